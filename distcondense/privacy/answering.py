"""How the gate answers: check, enter, compute, noise, keep; in that order, one question at a time.

An answer is entered in the ledger before it is computed; over budget, it is refused before it is entered. What the gate
holds is no attribute of a table: `vars`, `dir`, `pickle` and `copy` do not find it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NoReturn, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Codes, Floats, Index
from distcondense.errors import BudgetError, CohortError, SettingsError
from distcondense.privacy import noise
from distcondense.privacy.accountant import totals
from distcondense.privacy.budget import Budget
from distcondense.privacy.contributions import Objective, Target
from distcondense.privacy.curves import CELLS_MAX
from distcondense.privacy.events import Event, Query, Unit
from distcondense.privacy.layout import UnlistedColumn
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import Question, Step
from distcondense.privacy.rows import MARGIN, MU_MAX, ROWS_MAX, ROWS_SHARD_MAX, ExactAnswers

TOLERANCE = 1e-9  # on μ²: shares of a budget need not add up to the last bit; Budget.calibrate leaves ten times more


class Observer(Protocol):
    """For the auditor: hears of every public step and every answer, and sees only what leaves the gate."""

    def stepped(self, step: Step) -> None:
        """A public step was made."""
        ...

    def answered(self, question: Question, event: Event, noisy: Index) -> None:
        """These noisy integers answered a question, and are kept; of a choice the positions among its candidates."""
        ...


@dataclass(frozen=True)
class Balance:
    """What the ledger holds against the budget."""

    mu: float
    mu_left: float
    picks: int
    picks_left: int
    cells: int
    cells_left: int
    delta_categories: float


class NoisyAnswers:
    """What lies behind a gate, and how noisy answers are made of it; `PrivateTable` says what may be asked."""

    __slots__ = ("__weakref__",)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return BEHIND[self].names

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of bins of each column."""
        return tuple(BEHIND[self].rows.sizes)

    @property
    def budget(self) -> Budget:
        """What may be spent in all."""
        return BEHIND[self].budget

    @property
    def ledger(self) -> Ledger:
        """Every access so far."""
        return BEHIND[self].ledger

    def spent(self) -> Balance:
        """What is spent and what is left."""
        spent, budget = totals(self.ledger.events), self.budget
        return Balance(
            mu=spent.mu,
            mu_left=math.sqrt(max(0.0, budget.mu**2 - spent.mu**2)),
            picks=spent.picked,
            picks_left=max(0, budget.picks - spent.picked),
            cells=spent.cells,
            cells_left=max(0, CELLS_MAX - spent.cells),
            delta_categories=spent.delta_categories,
        )

    def _top(self, question: Question, count: int, named: tuple[str, ...], by: str = "") -> Index:
        """The places of the `count` largest scores, each of sensitivity 1."""
        each = self.budget.pick_epsilon
        if each <= 0:
            raise BudgetError(
                "column choice",
                "must be paid for",
                found="a budget without picks",
                fix="Budget.calibrate(..., picks=…, pick_share=…)",
            )
        scale = 2 * noise.GRID / each  # a sensitivity of 1 is GRID in grid units; ε₀ = 2·sensitivity/scale
        check_opendp_cost(noise.choice_rho(int(noise.GRID), count, scale), count * each**2 / 8)
        event = Event("choice", "choice", named, count, each, count, 1.0, 2 / each, by=by, unit=BEHIND[self].unit)
        return self._ask(
            question,
            event,
            noise.GRID,
            lambda exact: noise.noisy_top(exact, count, scale),
            lambda: np.arange(count, dtype=np.int64),
        )

    def _event(
        self,
        query: Query,
        cells: int,
        mu: float,
        *,
        columns: tuple[int, ...] = (),
        by: str = "",
        sensitivity: float = 1.0,
        delta: float = 0.0,
    ) -> Event:
        """A Gaussian answer as the ledger lists it."""
        names = tuple(self.names[column] for column in columns)
        spread, unit = sensitivity / mu, BEHIND[self].unit
        return Event("gaussian", query, names, cells, float(mu), 1, sensitivity, spread, by=by, unit=unit, delta=delta)

    def _gaussian(
        self,
        question: Question,
        query: Query,
        cells: int,
        mu: float,
        *,
        columns: tuple[int, ...] = (),
        by: str = "",
        sensitivity: float = 1.0,
    ) -> Floats:
        """An integer vector that a person moves by `limit` at most, noised, back in the units of the contributions."""
        limit = self._limit(mu)
        if cells > CELLS_MAX:  # more than an event can hold, let alone memory
            raise _too_many_cells(query, cells, self.spent().cells_left)
        noisy = self._ask(
            question,
            self._event(query, cells, mu, columns=columns, by=by, sensitivity=sensitivity),
            limit,
            self._noised,
            lambda: np.zeros(cells, np.int64),
        )
        return np.asarray(noisy / (limit * MARGIN), np.float64)

    def _limit(self, mu: float) -> float:
        """The most that a person may change the integers of a Gaussian answer of noise 1/μ by, in L2."""
        return gaussian_limit(mu)

    def _noised(self, exact: Index) -> Index:
        """What is released of a Gaussian answer's exact integers."""
        return noise.discrete_gaussian(exact, noise.GRID)

    def _ask(
        self,
        question: Question,
        event: Event,
        limit: float,
        noised: Callable[[Index], Index],
        lost: Callable[[], Index],
    ) -> Index:
        """Replay, or: check, enter, compute, noise, keep. In that order, one question at a time."""
        behind, ledger = BEHIND[self], self.ledger
        with behind.lock, ledger.lock:  # tables that share a ledger must not share what is left of it
            if (number := ledger.resume(event)) is not None:
                kept = ledger.kept(number)
                noisy = lost() if kept is None else kept
            else:
                self._afford(event)
                number = ledger.enter(event)
                noisy = noised(behind.rows.answer(question, limit))
                ledger.keep(number, noisy)
        if behind.observer is not None:
            behind.observer.answered(question, event, noisy.copy())
        return noisy

    def _step(self, step: Step) -> None:
        behind = BEHIND[self]
        behind.rows.apply(step)
        if behind.observer is not None:
            behind.observer.stepped(step)

    def _afford(self, event: Event) -> None:
        spent, budget = self.spent(), self.budget
        if event.delta and spent.delta_categories + event.delta > budget.delta_categories * (1 + TOLERANCE):
            raise BudgetError(
                event.words,
                "must stay within what the budget's delta leaves for them",
                found=f"{event.delta:.3g} asked of {budget.delta_categories:.3g}",
                fix="Budget.calibrate(..., delta_categories=…)",
            )
        if event.kind == "choice":
            if event.picks > spent.picks_left:
                raise BudgetError(
                    "column choice",
                    "must stay within the budget's picks",
                    found=f"{event.picks} asked, {spent.picks_left} left",
                    fix="ask for fewer, or plan more picks",
                )
            return
        if event.cells > spent.cells_left:
            raise _too_many_cells(event.words, event.cells, spent.cells_left)
        if spent.mu**2 + event.cost**2 > budget.mu**2 * (1 + TOLERANCE):
            raise BudgetError(
                event.words,
                "must stay within the privacy budget",
                found=f"mu {event.cost:.6g} asked, {spent.mu_left:.6g} of {budget.mu:.6g} left",
                fix="ask for less, or make the plan fit the budget",
            )

    # ---- what a table must not do

    def __repr__(self) -> str:
        return f"PrivateTable({len(self.names)} columns)"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("a PrivateTable cannot be copied or pickled: its rows stay where they are")

    def __len__(self) -> NoReturn:
        raise TypeError("a PrivateTable has no len(): the number of rows is not public")

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> NoReturn:
        raise TypeError("a PrivateTable cannot be iterated: its rows stay where they are")


@dataclass
class BehindGate:
    """What is behind one gate."""

    rows: ExactAnswers
    names: tuple[str, ...]
    budget: Budget
    ledger: Ledger
    unit: Unit  # "person" where rows name theirs, else "row"
    observer: Observer | None
    unlisted: frozenset[int] = frozenset()  # columns whose values nobody has listed
    lock: Lock = field(default_factory=Lock)


BEHIND: WeakKeyDictionary[NoisyAnswers, BehindGate] = WeakKeyDictionary()


def _too_many_cells(words: str, cells: int, left: int) -> BudgetError:
    return BudgetError(
        words,
        f"must stay within {CELLS_MAX} released cells in all",
        found=f"{cells} asked, {left} left",
        fix="use fewer bins or fewer columns at a time",
    )


# ---- checks: of shapes, kinds and prices, never of a value ---------------------------------------------------------


def check_table(
    codes: Codes,
    sizes: Sequence[int],
    target: Target,
    names: Sequence[str],
    person: NDArray[Any] | None,
    rows_per_person: int,
    order: NDArray[Any] | None,
    unlisted: Mapping[int, UnlistedColumn],
) -> None:
    """Refuse arrays whose shapes do not fit together."""
    if np.ndim(codes) != 2 or np.asarray(codes).dtype.kind not in "iu":
        raise CohortError("codes", "must be a two-dimensional array of integers", found=f"{np.ndim(codes)} dimensions")
    n, d = np.shape(codes)
    if len(sizes) != d or len(names) != d or not all(int(size) >= 1 for size in sizes):
        raise CohortError(
            "sizes and names",
            f"must have one entry for each of {d} columns, sizes of 1 or more",
            found=f"{len(sizes)} sizes, {len(names)} names",
        )
    if n > ROWS_SHARD_MAX:
        raise CohortError(
            "codes",
            f"must have at most {ROWS_SHARD_MAX} rows in one place",
            fix="condense the file: it is read in parts",
        )
    for what, array in (*target.items(), ("person", person), ("order", order)):
        if array is not None and np.shape(array) != (n,):
            raise CohortError(what, "must have one entry for each row of codes", found=f"{np.ndim(array)} dimensions")
    if not 1 <= rows_per_person <= ROWS_MAX:
        raise SettingsError("rows_per_person", f"must be between 1 and {ROWS_MAX}", found=f"{rows_per_person}")
    for column, values in unlisted.items():
        if not 0 <= column < d or sizes[column] != 1 or np.shape(values.codes) != (n,):
            raise CohortError(
                f"unlisted column {column}",
                "must be a column of one bin with one entry for each row",
                found=f"{np.ndim(values.codes)} dimensions",
            )


def check_target(objective: Objective, target: Target) -> None:
    """Refuse a target that the objective cannot take; tried on no rows at all, so that no error shows a patient."""
    try:
        objective.prepare({name: np.asarray(values)[:0] for name, values in target.items()})
    except KeyError as missing:
        raise CohortError(
            f"target {missing.args[0]!r}",
            f"must be given with a {type(objective).__name__} objective",
            found=", ".join(target) or "no target",
            fix=f"target={{{missing.args[0]!r}: …}}",
        ) from None


def check_ledger(ledger: Ledger, budget: Budget) -> None:
    """Refuse a ledger that holds more than the budget: nothing could be promised."""
    spent = totals(ledger.events)
    dearest = max((each for each, _ in spent.picks), default=0.0)
    if (
        spent.delta_categories > budget.delta_categories * (1 + TOLERANCE)
        or spent.mu**2 > budget.mu**2 * (1 + TOLERANCE)
        or spent.picked > budget.picks
        or dearest > budget.pick_epsilon * (1 + 1e-12)
    ):
        raise BudgetError(
            "ledger",
            "must hold no more than the budget",
            found=f"mu {spent.mu:.6g} of {budget.mu:.6g}, {spent.picked} picks of {budget.picks}",
            fix="use the run's own budget, or a new one that covers what was spent",
        )


def gaussian_limit(mu: float) -> float:
    """GRID·μ, the most that one person may change a Gaussian answer of price μ by, in grid units."""
    if not 0 < mu <= MU_MAX:
        raise SettingsError("mu", f"must be above 0 and at most {MU_MAX:g}", found=f"{mu}")
    limit = noise.GRID * mu
    check_opendp_cost(noise.gaussian_rho(limit, noise.GRID), mu**2 / 2)
    return limit


def check_opendp_cost(theirs: float, ours: float) -> None:
    """Refuse noise whose zCDP cost ρ by opendp's own account exceeds what the ledger is charged."""
    if not theirs <= ours * (1 + 1e-9):
        raise BudgetError("noise", f"must cost rho = {ours:.6g} at most", found=f"{theirs:.6g} by opendp's account")
