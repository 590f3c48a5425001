"""`PrivateTable`: the gate. It holds the rows and answers with noise only.

Neighbouring tables differ by one person, with all their rows; the number of people is not public. Of a person's rows
`rows_per_person` count, by a rule that looks at nobody else. Every answer is

    Σ over people of  trunc(v_person / γ)   +   discrete Gaussian noise of scale GRID      (integers, γ = Δ/(μ·GRID))

where v_person is that person's vector over *all* coordinates of the answer, scaled down to L2 norm Δ = 1 where it is
longer (rows.py). One person changes the sum by at most GRID·μ, so the answer costs μ (noise.py, curves.py).

An answer is entered in the ledger before it is computed; over budget, it is refused before it is entered. Nothing that
is raised here depends on a patient's value: codes outside their column's bins are moved to the nearest bin, outcomes
outside their legal range to its nearest end, row by row, without a word.

The rows are no attribute of the table: `vars`, `dir`, `pickle` and `copy` do not find them. That guards against
mistakes; a Python process cannot guard them against code that means to find them.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NoReturn, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distcondense.arrays import Codes, Floats, Index
from distcondense.errors import BudgetError, CohortError, SettingsError
from distcondense.privacy import noise
from distcondense.privacy.accountant import totals
from distcondense.privacy.budget import Budget
from distcondense.privacy.contributions import Objective, PublicMap, Target
from distcondense.privacy.curves import CELLS_MAX
from distcondense.privacy.events import Event, Query, Unit
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import (
    AdoptCategories,
    CategoriesQuery,
    ColumnChoice,
    GradientQuery,
    HistogramQuery,
    MapQuery,
    MergeBins,
    PairChoice,
    Question,
    SetObjective,
    ShiftScores,
    StatisticQuery,
    Step,
)
from distcondense.privacy.rows import (
    MARGIN,
    MU_MAX,
    ROWS_ALL_MAX,
    ROWS_MAX,
    ROWS_SHARD_MAX,
    GuardedRows,
    TableRows,
    UnlistedColumn,
)

SHIFT_MAX = 1e6  # of one shift: a score that is not a number would have no bounded gradient
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


class PrivateTable:
    """Holds the rows; answers with noise only."""

    __slots__ = ("__weakref__",)

    def __init__(
        self,
        codes: Codes,
        sizes: Sequence[int],
        target: Target,
        *,
        names: Sequence[str],
        objective: Objective,
        budget: Budget,
        ledger: Ledger,
        person: NDArray[Any] | None = None,
        rows_per_person: int = 1,
        unlisted: Mapping[int, UnlistedColumn] | None = None,
        observer: Observer | None = None,
        order: NDArray[Any] | None = None,
    ) -> None:
        """(n, d) integer bin codes below `sizes`, and the outcome's (n,) arrays by name, as the objective takes them.

        Without `person` every row is a person of its own and `rows_per_person` is not used; `order` (n,) says which of
        a person's rows count where there are more (the smallest; table order if not said). `unlisted` columns have
        values that nobody has listed: one bin until they `adopt` some.
        """
        _check_shapes(codes, sizes, target, names, person, rows_per_person, order)
        _check_unlisted(unlisted or {}, codes, sizes)
        _check_target(objective, target)
        _check_ledger(ledger, budget)
        rows = TableRows(codes, sizes, target, objective, person, rows_per_person, unlisted, order)
        unit: Unit = "row" if person is None else "person"
        _BEHIND[self] = _Behind(
            rows, tuple(str(name) for name in names), budget, ledger, unit, observer, frozenset(unlisted or ())
        )

    # ---- public knowledge

    @property
    def names(self) -> tuple[str, ...]:
        return _BEHIND[self].names

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of bins of each column."""
        return tuple(_BEHIND[self].rows.sizes)

    @property
    def budget(self) -> Budget:
        return _BEHIND[self].budget

    @property
    def ledger(self) -> Ledger:
        return _BEHIND[self].ledger

    @property
    def objective(self) -> Objective:
        return _BEHIND[self].rows.objective

    @objective.setter
    def objective(self, objective: Objective) -> None:
        """A public step, e.g. `table.objective = table.objective.with_hazard(h)`; kind and grid stay."""
        if not objective.continues(self.objective):
            raise SettingsError("objective", "must keep its kind and its public grid", fix="make a new PrivateTable")
        self._step(SetObjective(objective))

    def groups(self, by: str) -> int:
        """Number of groups of a histogram: 1 by "none", else what the objective says."""
        known = {"none": 1, **self.objective.groupings}
        if by not in known:
            raise SettingsError("by", f"must be one of {', '.join(known)}", found=repr(by), fix='by="none"')
        return known[by]

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

    # ---- public steps: cost nothing, release nothing

    def shift(self, columns: tuple[int, ...], table: ArrayLike) -> None:
        """Add table[cell] to every row's score; no columns: add one number to all.

        Where rows have S > 1 scores the table is (S, cells); without columns (S,) will do.
        """
        columns, scores = self._columns(columns), self.objective.scores
        cells, given = self._cells(columns), np.array(table, np.float64)
        shape = (cells,) if scores == 1 else (scores, cells)
        if given.size != scores * cells or (scores > 1 and given.shape[0] != scores) or not _small(given):
            raise SettingsError(
                "table",
                f"must hold {' × '.join(map(str, shape))} numbers between ±{SHIFT_MAX:g}",
                found=f"shape {given.shape}",
            )
        self._step(ShiftScores(columns, given.reshape(shape)))

    def bins(self, columns: tuple[int, ...] | int, merge: Codes) -> None:
        """Replace one column's codes by merge[codes]: a public re-binning, e.g. from an earlier noisy histogram."""
        column = self._columns((columns,) if isinstance(columns, (int, np.integer)) else columns)
        if len(column) != 1:
            raise SettingsError("columns", "must be one column for a re-binning", found=f"{len(column)}")
        new, size = np.array(merge), self.sizes[column[0]]
        if new.shape != (size,) or new.dtype.kind not in "iu" or new.min() < 0:
            raise SettingsError("merge", f"must map {size} bins to integers of 0 or more", found=f"shape {new.shape}")
        self._step(MergeBins(column[0], new))

    def adopt(self, column: int, labels: Sequence[str], *, hole: bool = False) -> None:
        """A column of unlisted values gets a cell for each label, one for all others and, with `hole`, one for holes.

        The labels are public, e.g. found by `categories`.
        """
        self._check_unlisted(column)
        if len(set(labels)) != len(labels):
            raise SettingsError("labels", "must not repeat", found=f"{len(labels)} labels")
        self._step(AdoptCategories(column, tuple(labels), hole))

    # ---- answers: each is entered first, then computed, then noised

    def histogram(
        self, columns: tuple[int, ...], *, by: str = "label", mu: float, starts: Sequence[int] = ()
    ) -> Floats:
        """(groups, cells) noisy numbers of rows; cells in C order of the columns. Δ = 1.

        `starts` (public, of one column): neighbouring bins count as one cell; the first bin of each, from 0 upwards.
        """
        columns, groups = self._columns(columns), self.groups(by)
        first = self._starts(columns, starts)
        cells = len(first) or self._cells(columns)
        question = HistogramQuery(columns, by, first)
        answer = self._gaussian(question, "histogram", groups * cells, mu, columns=columns, by=by)
        return answer.reshape(groups, cells)

    def categories(self, column: int, *, mu: float, delta: float) -> dict[str, float]:
        """Values of a column that nobody has listed, and their noisy numbers of rows, where these pass a threshold.

        Δ = 1 over all values together. A person who brings values that nobody else has brings `rows_per_person` at the
        most, and any of them is told with probability `delta` at the most: accountant.py says what both cost together.
        """
        self._check_unlisted(column)
        _check_mu(mu)
        rows, limit = _BEHIND[self].rows, noise.GRID * mu
        _check_account(noise.gaussian_rho(limit, noise.GRID), mu**2 / 2)
        above = noise.threshold(limit, noise.GRID, rows.most, delta)
        event = Event(  # of all noisy numbers those that one person can move are approximated: so many cells
            "gaussian",
            "categories",
            (self.names[column],),
            rows.most,
            float(mu),
            1,
            1.0,
            1 / mu,
            by="value",
            unit=_BEHIND[self].unit,
            delta=float(delta),
        )

        def told(exact: Index) -> Index:
            noisy = noise.discrete_gaussian(exact, noise.GRID) if len(exact) else exact
            names = rows.labels(column)
            return _packed({names[place]: int(noisy[place]) for place in np.flatnonzero(noisy > above).tolist()})

        packed = self._ask(CategoriesQuery(column), event, limit, told, lambda: _packed({}))
        return {label: count / (limit * MARGIN) for label, count in _unpacked(packed).items()}

    def sums(self, columns: tuple[int, ...], *, mu: float) -> tuple[Floats, ...]:
        """(cells,) noisy sums under the current scores, one array per scale: S gradients, then none or S hessians.

        Δ = 1 for all of them together; each comes back divided by its scale, in its own units.
        """
        columns, scales = self._columns(columns), self.objective.scales
        cells = self._cells(columns)
        self._check_ready()
        answer = self._gaussian(GradientQuery(columns), "sums", len(scales) * cells, mu, columns=columns)
        return tuple(answer[k * cells : (k + 1) * cells] / scale for k, scale in enumerate(scales))

    def total(self, name: str, *, mu: float) -> Floats:
        """One of the objective's statistics, summed over all rows with noise, in the units it is read in. Δ = 1."""
        known = self.objective.statistics
        if name not in known:
            raise SettingsError(
                "total",
                f"must be one of the objective's statistics: {', '.join(known) or 'it has none'}",
                found=repr(name),
            )
        statistic = known[name]
        return statistic.undo(
            self._gaussian(StatisticQuery(name), "total", statistic.size, mu, by=name, noise_at_1=statistic.unit)
        )

    def mapped(self, map_: PublicMap, *, mu: float) -> Floats:
        """(size,) noisy sum over persons of a public map of their rows. Δ = 1: longer vectors are shortened.

        Of each row, then of each person's sum; what is no number counts as 0, without a word.
        """
        columns, size = self._columns(map_.columns), int(map_.size)
        if not 1 <= size <= CELLS_MAX or not map_.name:
            raise SettingsError("map", f"must have a name and 1 to {CELLS_MAX} coordinates", found=f"{size}")
        return self._gaussian(MapQuery(map_), "mapped", size, mu, columns=columns, by=map_.name)

    def choose(self, count: int, columns: Sequence[int] | None = None, *, coarse: Sequence[int] | None = None) -> Index:
        """The `count` columns with the largest Σ |Σ g|, by peeled exponential mechanisms at the budget's ε₀.

        The outer sum is over scores and cells. `coarse` (public, one per candidate): that many neighbouring bins count
        as one cell. A person's gradients, as they count in the norm, are scaled down to Σ_rows Σ_scores |g| ≤ 1, so one
        person moves every column's sum by at most 1. A choice lost in a crash is answered with the first candidates.
        """
        names = self.names
        among = self._columns(tuple(range(len(names))) if columns is None else tuple(columns))
        if not 1 <= count <= len(among):
            raise SettingsError("count", f"must be between 1 and the {len(among)} candidates", found=f"{count}")
        widths = (1,) * len(among) if coarse is None else tuple(int(width) for width in coarse)
        if len(widths) != len(among) or min(widths) < 1:
            raise SettingsError("coarse", f"must hold {len(among)} numbers of 1 or more", found=f"{len(widths)}")
        self._check_ready()
        named = () if columns is None else tuple(names[column] for column in among)
        position = self._top(ColumnChoice(count, among, widths), count, named)
        return np.array(among, np.int64)[position]

    def related(
        self, pairs: Sequence[tuple[int, int]], expected: Sequence[Floats], ahead: Sequence[float] | None = None
    ) -> int:
        """Which of these pairs of columns differs most from what is expected of it, by one exponential mechanism at ε₀.

        `expected` (public): a table of numbers of rows for each pair. A pair is worth Σ over cells of |rows −
        expected|, and its head start in rows, `ahead`, where one is given; a person's rows share one row's weight, so
        that one person moves it by at most 1. A choice lost in a crash is answered with the first pair.
        """
        among = tuple(self._columns(pair) for pair in pairs)
        tables = tuple(np.array(table, np.float64) for table in expected)
        shapes = [tuple(self.sizes[column] for column in pair) for pair in among]
        if not among or any(len(pair) != 2 for pair in among) or [table.shape for table in tables] != shapes:
            raise SettingsError("expected", "must hold a table of cells for each pair", found=f"{len(tables)} tables")
        starts = (0.0,) * len(among) if ahead is None else tuple(float(start) for start in ahead)
        flat = np.concatenate([table.ravel() for table in tables])
        first = np.cumsum([0, *(table.size for table in tables[:-1])])
        if not (np.all(flat >= 0) and np.all(np.add.reduceat(flat, first) <= ROWS_ALL_MAX)):
            raise SettingsError("expected", f"must be 0 or more and add up to {ROWS_ALL_MAX} rows at most")
        if len(starts) != len(among) or not all(0 <= start <= ROWS_ALL_MAX for start in starts):
            raise SettingsError("ahead", f"must hold {len(among)} numbers from 0 to {ROWS_ALL_MAX}")
        return int(self._top(PairChoice(tuple((i, j) for i, j in among), tables, starts), 1, (), by="pairs")[0])

    # ---- how an answer is made

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
        _check_account(noise.choice_rho(int(noise.GRID), count, scale), count * each**2 / 8)
        event = Event("choice", "choice", named, count, each, count, 1.0, 2 / each, by=by, unit=_BEHIND[self].unit)
        return self._ask(
            question,
            event,
            noise.GRID,
            lambda exact: noise.noisy_top(exact, count, scale),
            lambda: np.arange(count, dtype=np.int64),
        )

    def _gaussian(
        self,
        question: Question,
        query: Query,
        cells: int,
        mu: float,
        *,
        columns: tuple[int, ...] = (),
        by: str = "",
        noise_at_1: float = 1.0,
    ) -> Floats:
        """An integer vector of sensitivity limit = GRID·μ, noised, back in the units of the contributions."""
        _check_mu(mu)
        limit = noise.GRID * mu
        _check_account(noise.gaussian_rho(limit, noise.GRID), mu**2 / 2)
        if cells > CELLS_MAX:  # more than an event can hold, let alone memory
            raise _too_many(query, cells, self.spent().cells_left)
        names = tuple(self.names[column] for column in columns)
        event = Event(
            "gaussian", query, names, cells, float(mu), 1, noise_at_1, noise_at_1 / mu, by=by, unit=_BEHIND[self].unit
        )
        noisy = self._ask(
            question,
            event,
            limit,
            lambda exact: noise.discrete_gaussian(exact, noise.GRID),
            lambda: np.zeros(cells, np.int64),
        )
        return np.asarray(noisy / (limit * MARGIN), np.float64)

    def _ask(
        self,
        question: Question,
        event: Event,
        limit: float,
        noised: Callable[[Index], Index],
        lost: Callable[[], Index],
    ) -> Index:
        """Replay, or: check, enter, compute, noise, keep. In that order, one question at a time."""
        behind, ledger = _BEHIND[self], self.ledger
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
        behind = _BEHIND[self]
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
            raise _too_many(event.words, event.cells, spent.cells_left)
        if spent.mu**2 + event.cost**2 > budget.mu**2 * (1 + TOLERANCE):
            raise BudgetError(
                event.words,
                "must stay within the privacy budget",
                found=f"mu {event.cost:.6g} asked, {spent.mu_left:.6g} of {budget.mu:.6g} left",
                fix="ask for less, or make the plan fit the budget",
            )

    def _columns(self, columns: Sequence[int]) -> tuple[int, ...]:
        d = len(self.names)
        chosen = tuple(int(column) for column in columns)
        if len(set(chosen)) != len(chosen) or not all(0 <= column < d for column in chosen):
            raise SettingsError("columns", f"must be distinct and between 0 and {d - 1}", found=f"{chosen[:8]}")
        return chosen

    def _check_unlisted(self, column: int) -> None:
        if column not in _BEHIND[self].unlisted:
            raise SettingsError("column", "must be one whose values nobody has listed", found=f"{column}")

    def _starts(self, columns: tuple[int, ...], starts: Sequence[int]) -> tuple[int, ...]:
        first = tuple(int(start) for start in starts)
        if first:
            last = self.sizes[columns[0]] - 1 if len(columns) == 1 else -1
            if first[0] != 0 or first[-1] > last or any(a >= b for a, b in itertools.pairwise(first)):
                raise SettingsError(
                    "starts",
                    "must name bins of one column, from 0 upwards",
                    found=f"{len(first)} starts",
                    fix="starts=(0, …)",
                )
        return first

    def _cells(self, columns: tuple[int, ...]) -> int:
        return math.prod(_BEHIND[self].rows.sizes[column] for column in columns)

    def _check_ready(self) -> None:
        if not self.objective.ready:
            raise SettingsError(
                "objective",
                "must be ready before gradients are asked",
                found="one that still needs an earlier answer",
                fix="set what it needs first, e.g. table.objective = table.objective.with_hazard(...)",
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
class _Behind:
    """What is behind one gate."""

    rows: GuardedRows
    names: tuple[str, ...]
    budget: Budget
    ledger: Ledger
    unit: Unit  # "person" where rows name theirs, else "row"
    observer: Observer | None
    unlisted: frozenset[int] = frozenset()  # columns whose values nobody has listed
    lock: Lock = field(default_factory=Lock)


_BEHIND: WeakKeyDictionary[PrivateTable, _Behind] = WeakKeyDictionary()


def gate_over(
    rows: GuardedRows,
    *,
    names: Sequence[str],
    budget: Budget,
    ledger: Ledger,
    unit: Unit,
    unlisted: Collection[int] = (),
) -> PrivateTable:
    """A gate before rows that lie elsewhere: on disk, on other machines. Its noise is drawn here, after their total."""
    _check_ledger(ledger, budget)
    table = PrivateTable.__new__(PrivateTable)
    _BEHIND[table] = _Behind(rows, tuple(map(str, names)), budget, ledger, unit, None, frozenset(unlisted))
    return table


# ---- checks: of shapes and kinds, never of values ------------------------------------------------------------


def _too_many(words: str, asked: int, left: int) -> BudgetError:
    return BudgetError(
        words,
        f"must stay within {CELLS_MAX} released cells in all",
        found=f"{asked} asked, {left} left",
        fix="use fewer bins or fewer columns at a time",
    )


def _check_mu(mu: float) -> None:
    if not 0 < mu <= MU_MAX:
        raise SettingsError("mu", f"must be above 0 and at most {MU_MAX:g}", found=f"{mu}")


def _check_unlisted(unlisted: Mapping[int, UnlistedColumn], codes: Codes, sizes: Sequence[int]) -> None:
    for column, one in unlisted.items():
        if not 0 <= column < len(sizes) or sizes[column] != 1 or np.shape(one.codes) != (len(codes),):
            raise CohortError(
                f"unlisted column {column}",
                "must be a column of one bin with one entry for each row",
                found=f"{np.ndim(one.codes)} dimensions",
            )


def _packed(told: Mapping[str, int]) -> Index:
    """Labels and noisy counts as a ledger keeps answers: bytes of JSON, one in each entry."""
    return np.frombuffer(json.dumps(dict(sorted(told.items()))).encode(), np.uint8).astype(np.int64)


def _unpacked(packed: Index) -> dict[str, int]:
    told: dict[str, int] = json.loads(packed.astype(np.uint8).tobytes())
    return told


def _small(given: Floats) -> bool:
    return bool(np.all(np.abs(given) <= SHIFT_MAX))


def _check_shapes(
    codes: Codes,
    sizes: Sequence[int],
    target: Target,
    names: Sequence[str],
    person: NDArray[Any] | None,
    rows_per_person: int,
    order: NDArray[Any] | None,
) -> None:
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


def _check_target(objective: Objective, target: Target) -> None:
    """Tried on no rows at all, so that nothing in the error can be a patient's."""
    try:
        objective.prepare({name: np.asarray(values)[:0] for name, values in target.items()})
    except KeyError as missing:
        raise CohortError(
            f"target {missing.args[0]!r}",
            f"must be given with a {type(objective).__name__} objective",
            found=", ".join(target) or "no target",
            fix=f"target={{{missing.args[0]!r}: …}}",
        ) from None


def _check_ledger(ledger: Ledger, budget: Budget) -> None:
    """What earlier runs spent must fit this budget, or nothing can be promised."""
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


def _check_account(theirs: float, ours: float) -> None:
    """opendp's own zCDP account of the measurement must not exceed what the ledger is charged."""
    if not theirs <= ours * (1 + 1e-9):
        raise BudgetError("noise", f"must cost rho = {ours:.6g} at most", found=f"{theirs:.6g} by opendp's account")
