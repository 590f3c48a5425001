"""`PrivateTable`: the gate. It holds the rows and answers with noise only (SPEC §4).

Neighbouring tables differ by one person, with all their rows; the number of people is not public. Of a person's rows
the first `rows_per_person` in table order count, a rule that looks at nobody else. Every answer is

    Σ over people of  trunc(v_person / γ)   +   discrete Gaussian noise of scale GRID      (integers, γ = Δ/(μ·GRID))

where v_person is that person's vector over *all* coordinates of the answer, scaled down to L2 norm Δ = 1 where it is
longer. Rounding towards zero cannot lengthen it, integer sums do not depend on order, so one person changes the sum by
at most GRID·μ and the answer costs μ (noise.py, accountant.py). Factors carry a margin of 2⁻³⁰ for float64.

An answer is entered in the ledger before it is computed; over budget, it is refused before it is entered. Nothing that
is raised here depends on a patient's value: codes outside their column's bins are moved to the nearest bin, times
outside [0, horizon] to the nearest end, row by row, without a word.

The rows are no attribute of the table: `vars`, `dir`, `pickle` and `copy` do not find them. That guards against
mistakes; a Python process cannot guard them against code that means to find them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Literal, NoReturn
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from distcondense.errors import BudgetError, CohortError, SettingsError
from distcondense.privacy import noise
from distcondense.privacy.accountant import CELLS_MAX, MU_MAX, Budget, Event, totals
from distcondense.privacy.contributions import Logistic, Objective, PiecewiseExponential
from distcondense.privacy.ledger import Ledger

__all__ = ["Logistic", "Objective", "PiecewiseExponential", "PrivateTable", "Spent"]

Floats = NDArray[np.float64]
Cells = NDArray[np.intp]
By = Literal["none", "label", "stratum"]

MARGIN = 1 - 2.0**-30  # on every factor that bounds a norm: far over the error of float64, far under any noise
# rows taken at a time: fits the cache, and CHUNK·GRID·MU_MAX = 2⁵⁰, so that float64 sums of integers are exact
CHUNK = 2**15
STEP_MAX = 1e6  # of one shift: a score that is not a number would have no bounded gradient
ROWS_ALL_MAX = 2**27  # ROWS_ALL_MAX·GRID·MU_MAX = 2⁶²: integer sums cannot overflow
ROWS_MAX = 2**16  # of one person: their float64 sums of integers are exact too
SLOTS_KEPT = 64  # groupings of people with several rows that are remembered
TOLERANCE = 1e-9  # on μ²: shares of a budget need not add up to the last bit; Budget.calibrate leaves ten times more
EXPOSURE_WEIGHT = 0.5  # share of the norm in `hazard`: events are few, time at risk is plenty


@dataclass(frozen=True)
class Spent:
    """What the ledger holds against the budget."""

    mu: float
    mu_left: float
    picks: int
    picks_left: int
    cells: int
    cells_left: int


class PrivateTable:
    """Holds the rows; answers with noise only."""

    __slots__ = ("__weakref__",)

    def __init__(
        self,
        codes: NDArray[Any],
        sizes: Sequence[int],
        label: NDArray[Any],
        *,
        names: Sequence[str],
        objective: Objective,
        budget: Budget,
        ledger: Ledger,
        time: NDArray[Any] | None = None,
        person: NDArray[Any] | None = None,
        rows_per_person: int = 1,
    ) -> None:
        """(n, d) integer bin codes below `sizes`, (n,) 0/1 labels (survival: 1 = event, with `time`).

        Without `person` every row is a person of its own and `rows_per_person` is not used.
        """
        _check_shapes(codes, sizes, label, names, time, person, rows_per_person)
        _check_objective(objective, time)
        _check_ledger(ledger, budget)
        rows = _Rows(codes, sizes, label, objective, time, person, rows_per_person)
        unit = "row" if person is None else "person"
        _ROOMS[self] = _Room(rows, tuple(str(name) for name in names), budget, ledger, unit)

    # ---- public knowledge

    @property
    def names(self) -> tuple[str, ...]:
        return _ROOMS[self].names

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of bins of each column."""
        return tuple(_ROOMS[self].rows.sizes)

    @property
    def budget(self) -> Budget:
        return _ROOMS[self].budget

    @property
    def ledger(self) -> Ledger:
        return _ROOMS[self].ledger

    @property
    def objective(self) -> Objective:
        return _ROOMS[self].rows.objective

    @objective.setter
    def objective(self, objective: Objective) -> None:
        """A public step, e.g. `table.objective = table.objective.with_hazard(h)`; the time grid stays."""
        old = self.objective
        same = type(objective) is type(old)
        if isinstance(objective, PiecewiseExponential) and isinstance(old, PiecewiseExponential):
            same = objective.cuts == old.cuts and objective.horizon == old.horizon
        if not same:
            raise SettingsError("objective", "must keep its kind, cuts and horizon", fix="make a new PrivateTable")
        _ROOMS[self].rows.set_objective(objective)

    def groups(self, by: By) -> int:
        """Number of groups of a histogram: 1, 2 labels, or 2K strata (event status × interval: event·K + k)."""
        if by == "none":
            return 1
        if by == "label":
            return 2
        if by == "stratum" and isinstance(self.objective, PiecewiseExponential):
            return 2 * self.objective.intervals
        raise SettingsError(
            "by", 'must be "none", "label" or, with a survival objective, "stratum"', found=repr(by), fix='by="label"'
        )

    def spent(self) -> Spent:
        """What is spent and what is left."""
        mu, picks, cells = totals(self.ledger.events)
        count, budget = sum(number for _, number in picks), self.budget
        left = math.sqrt(max(0.0, budget.mu**2 - mu**2))
        return Spent(mu, left, count, max(0, budget.picks - count), cells, max(0, CELLS_MAX - cells))

    # ---- public steps: cost nothing, release nothing

    def shift(self, columns: tuple[int, ...], table: NDArray[Any]) -> None:
        """Add table[cell] to every row's score; no columns: add one number to all."""
        rows, columns = _ROOMS[self].rows, self._columns(columns)
        step = np.asarray(table, np.float64).ravel()
        cells = rows.count(columns)
        if step.shape != (cells,) or not np.all(np.abs(step) <= STEP_MAX):
            raise SettingsError(
                "table", f"must hold {cells} numbers between ±{STEP_MAX:g}", found=f"shape {np.shape(table)}"
            )
        rows.shift(columns, step)

    def bins(self, columns: tuple[int, ...] | int, merge: NDArray[Any]) -> None:
        """Replace one column's codes by merge[codes]: a public re-binning, e.g. from an earlier noisy histogram."""
        column = self._columns((columns,) if isinstance(columns, (int, np.integer)) else columns)
        rows = _ROOMS[self].rows
        new = np.asarray(merge)
        if len(column) != 1:
            raise SettingsError("columns", "must be one column for a re-binning", found=f"{len(column)}")
        if new.shape != (rows.sizes[column[0]],) or new.dtype.kind not in "iu" or new.min() < 0:
            raise SettingsError(
                "merge", f"must map {rows.sizes[column[0]]} bins to integers of 0 or more", found=f"shape {new.shape}"
            )
        rows.merge(column[0], new)

    # ---- answers: each is entered first, then computed, then noised

    def histogram(self, columns: tuple[int, ...], *, by: By = "label", mu: float) -> Floats:
        """(groups, cells) noisy numbers of rows; cells in C order of the columns. Δ = 1."""
        rows, columns = _ROOMS[self].rows, self._columns(columns)
        groups, cells = self.groups(by), rows.count(columns)

        def sums(limit: float) -> NDArray[np.int64]:
            return rows.histogram(columns, by, groups, limit)

        answer = self._gaussian(f"histogram by {by}", columns, groups * cells, mu, 1 / mu if mu > 0 else 0.0, sums)
        return answer.reshape(groups, cells)

    def sums(self, columns: tuple[int, ...], *, mu: float) -> tuple[Floats, Floats]:
        """(G, H): noisy sums of gradient and hessian in each cell, under the current scores. Δ = 1 for the pair."""
        rows, columns = _ROOMS[self].rows, self._columns(columns)
        cells = rows.count(columns)
        if isinstance(self.objective, PiecewiseExponential) and self.objective.hazard is None:
            raise SettingsError("hazard", "must be set before gradients are asked", fix="objective.with_hazard(...)")

        def sums(limit: float) -> NDArray[np.int64]:
            return rows.gradient_sums(columns, limit)

        answer = self._gaussian("gradient sums", columns, 2 * cells, mu, 1 / mu if mu > 0 else 0.0, sums)
        return answer[:cells], answer[cells:] / self.objective.hessian_weight

    def hazard(self, *, mu: float) -> tuple[Floats, Floats]:
        """(events (K,), time at risk (K,)): noisy, in each public interval.

        One person adds w·(1 at the event's interval, ½K^(−½)·share of each interval lived), w = 1/√1.25: norm at most 1
        without clipping, so that long lives are not counted less than short ones.
        """
        rows, objective = _ROOMS[self].rows, self.objective
        if not isinstance(objective, PiecewiseExponential):
            raise SettingsError("hazard", "must be asked of a survival objective", found=type(objective).__name__)
        k, whole = objective.intervals, math.sqrt(1 + EXPOSURE_WEIGHT**2)
        weight = EXPOSURE_WEIGHT / math.sqrt(k) / whole

        def sums(limit: float) -> NDArray[np.int64]:
            return rows.hazard(1 / whole, weight, limit)

        noise_of_events = whole / mu if mu > 0 else 0.0
        answer = self._gaussian("events and time at risk by interval", (), 2 * k, mu, noise_of_events, sums)
        return answer[:k] * whole, answer[k:] / weight * objective.widths

    def choose(
        self, count: int, columns: Sequence[int] | None = None, *, coarse: Sequence[int] | None = None
    ) -> NDArray[np.int64]:
        """The `count` columns with the largest Σ_cells |Σ g|, by peeled exponential mechanisms at the budget's ε₀.

        `coarse` (public, one per candidate): that many neighbouring bins count as one cell in the score.
        A person's gradients are scaled down to Σ_rows |g| ≤ 1, so one person moves every score by at most 1.
        A choice lost in a crash is answered with the first candidates.
        """
        room = _ROOMS[self]
        among = self._columns(tuple(range(len(room.names))) if columns is None else tuple(columns))
        if not 1 <= count <= len(among):
            raise SettingsError("count", f"must be between 1 and the {len(among)} candidates", found=f"{count}")
        widths = (1,) * len(among) if coarse is None else tuple(int(width) for width in coarse)
        if len(widths) != len(among) or min(widths) < 1:
            raise SettingsError("coarse", f"must hold {len(among)} numbers of 1 or more", found=f"{len(widths)}")
        if isinstance(self.objective, PiecewiseExponential) and self.objective.hazard is None:
            raise SettingsError("hazard", "must be set before gradients are asked", fix="objective.with_hazard(...)")
        each = room.budget.pick_epsilon
        if each <= 0:
            raise BudgetError(
                "column choice", "must be paid for", found="a budget without picks",
                fix="Budget.calibrate(..., picks=…, pick_share=…)",
            )  # fmt: skip
        named = () if columns is None else tuple(room.names[column] for column in among)
        scale = 2 * noise.GRID / each  # a sensitivity of 1 is GRID in grid units; ε₀ = 2·sensitivity/scale
        event = Event("choice", "choice of columns", named, count, each, count, 1.0, 2 / each)
        _check_account(noise.choice_rho(int(noise.GRID), count, scale), count * each**2 / 8)
        position = self._ask(
            event,
            lambda: noise.noisy_top(room.rows.choice_scores(among, widths, noise.GRID), count, scale),
            lambda: np.arange(count),
        )
        return np.array(among, np.int64)[position]

    # ---- how an answer is made

    def _gaussian(
        self,
        query: str,
        columns: tuple[int, ...],
        cells: int,
        mu: float,
        spread: float,
        sums: Callable[[float], NDArray[np.int64]],
    ) -> Floats:
        """An integer vector of sensitivity limit = GRID·μ, noised, back in the units of the contributions."""
        if not 0 < mu <= MU_MAX:
            raise SettingsError("mu", f"must be above 0 and at most {MU_MAX:g}", found=f"{mu}")
        limit = noise.GRID * mu
        _check_account(noise.gaussian_rho(limit, noise.GRID), mu**2 / 2)
        names = tuple(_ROOMS[self].names[column] for column in columns)
        event = Event("gaussian", query, names, cells, float(mu), 1, 1.0, spread)
        noisy = self._ask(
            event, lambda: noise.discrete_gaussian(sums(limit), noise.GRID), lambda: np.zeros(cells, np.int64)
        )
        return noisy / (limit * MARGIN)

    def _ask(
        self, event: Event, answer: Callable[[], NDArray[np.int64]], lost: Callable[[], NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """Replay, or: check, enter, compute, keep. In that order, one question at a time."""
        room, ledger = _ROOMS[self], self.ledger
        event = replace(event, unit=room.unit)
        with room.lock:
            if (number := ledger.resume(event)) is not None:
                kept = ledger.kept(number)
                return lost() if kept is None else kept
            self._afford(event)
            number = ledger.enter(event)
            noisy = answer()
            ledger.keep(number, noisy)
            return noisy

    def _afford(self, event: Event) -> None:
        spent, budget = self.spent(), self.budget
        if event.kind == "choice":
            if event.picks > spent.picks_left:
                raise BudgetError(
                    "column choice", "must stay within the budget's picks",
                    found=f"{event.picks} asked, {spent.picks_left} left", fix="ask for fewer, or plan more picks",
                )  # fmt: skip
            return
        if event.cells > spent.cells_left:
            raise BudgetError(
                event.query, f"must stay within {CELLS_MAX} released cells in all",
                found=f"{event.cells} asked, {spent.cells_left} left", fix="use fewer bins or fewer columns at a time",
            )  # fmt: skip
        if spent.mu**2 + event.cost**2 > budget.mu**2 * (1 + TOLERANCE):
            raise BudgetError(
                event.query, "must stay within the privacy budget",
                found=f"mu {event.cost:.6g} asked, {spent.mu_left:.6g} of {budget.mu:.6g} left",
                fix="ask for less, or make the plan fit the budget",
            )  # fmt: skip

    def _columns(self, columns: Sequence[int]) -> tuple[int, ...]:
        d = len(_ROOMS[self].names)
        chosen = tuple(int(column) for column in columns)
        if len(set(chosen)) != len(chosen) or not all(0 <= column < d for column in chosen):
            raise SettingsError("columns", f"must be distinct and between 0 and {d - 1}", found=f"{chosen[:8]}")
        return chosen

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


# ---- the rows ------------------------------------------------------------------------------------------------


class _Rows:
    """The kept rows, column by column: people with one row first, then the others person by person."""

    def __init__(
        self,
        codes: NDArray[Any],
        sizes: Sequence[int],
        label: NDArray[Any],
        objective: Objective,
        time: NDArray[Any] | None,
        person: NDArray[Any] | None,
        rows_per_person: int,
    ) -> None:
        order, self.owner = _by_person(person, len(codes), rows_per_person)
        self.single = len(order) - len(self.owner)
        self.sizes = [int(size) for size in sizes]
        self.codes: list[NDArray[Any]] = []
        for column, size in enumerate(self.sizes):
            code = np.clip(codes[order, column].astype(np.int64), 0, size - 1)
            self.codes.append(code.astype(np.min_scalar_type(size - 1)))
        self.label = np.asarray(label)[order] == 1
        self.time: Floats | None = None
        if isinstance(objective, PiecewiseExponential):
            assert time is not None
            late = np.nan_to_num(np.asarray(time, np.float64)[order], nan=0.0, posinf=np.inf, neginf=0.0)
            self.label &= late <= objective.horizon
            self.time = np.clip(late, 0.0, objective.horizon)
        self.score = np.zeros(len(order))
        self._slots: dict[tuple[tuple[int, ...], str], tuple[Cells, Cells]] = {}
        self.set_objective(objective)

    def set_objective(self, objective: Objective) -> None:
        self.objective = objective
        self._gradients: tuple[Floats, Floats] | None = None
        self._cumulative: Floats | None = None
        if isinstance(objective, PiecewiseExponential) and objective.hazard is not None:
            self._cumulative = objective.cumulative(self.time if self.time is not None else np.zeros(0))

    def count(self, columns: tuple[int, ...]) -> int:
        return math.prod(self.sizes[column] for column in columns)

    def cell(self, columns: tuple[int, ...]) -> Cells:
        """The joint cell of each row, in C order of the columns."""
        if not columns:
            return np.zeros(len(self.label), np.intp)
        cell = self.codes[columns[0]].astype(np.intp)
        for column in columns[1:]:
            cell *= self.sizes[column]
            cell += self.codes[column]
        return cell

    def shift(self, columns: tuple[int, ...], step: Floats) -> None:
        self.score += step[self.cell(columns)]
        self._gradients = None

    def merge(self, column: int, new: NDArray[Any]) -> None:
        size = int(new.max()) + 1
        self.codes[column] = new.astype(np.min_scalar_type(size - 1))[self.codes[column]]
        self.sizes[column] = size
        self._slots = {key: slots for key, slots in self._slots.items() if column not in key[0]}

    def gradients(self) -> tuple[Floats, Floats]:
        if self._gradients is None:
            g, h = np.empty_like(self.score), np.empty_like(self.score)
            for part in _chunks(len(g)):
                cumulative = None if self._cumulative is None else self._cumulative[part]
                g[part], h[part] = self.objective.gradients(self.score[part], self.label[part], cumulative)
            self._gradients = g, h
        return self._gradients

    # each of the following is an integer vector that one person changes by at most `limit` (choice: each score)

    def histogram(self, columns: tuple[int, ...], by: str, groups: int, limit: float) -> NDArray[np.int64]:
        cells, cell = self.count(columns), self.cell(columns)
        if by == "label":
            cell += cells * self.label
        elif by == "stratum":
            assert isinstance(self.objective, PiecewiseExponential)
            assert self.time is not None
            interval = self.objective.interval(self.time)
            cell += cells * (self.objective.intervals * self.label + interval)
        unit = math.floor(limit * MARGIN)
        alone = np.bincount(cell[: self.single], minlength=groups * cells).astype(np.int64) * unit
        if not len(self.owner):
            return alone
        ones = np.full(len(self.owner), float(unit))
        return alone + self._together((columns, by), cell[self.single :], groups * cells, [ones], limit)

    def gradient_sums(self, columns: tuple[int, ...], limit: float) -> NDArray[np.int64]:
        return self._sum((columns, "sums"), self.cell(columns), self.count(columns), list(self.gradients()), limit)

    def hazard(self, event_weight: float, exposure_weight: float, limit: float) -> NDArray[np.int64]:
        assert isinstance(self.objective, PiecewiseExponential)
        assert self.time is not None
        interval = self.objective.interval(self.time)
        k, edges, widths = self.objective.intervals, self.objective.edges, self.objective.widths
        values = [event_weight * (self.label & (interval == at)) for at in range(k)]
        for at in range(k):
            values.append(exposure_weight * np.clip((self.time - edges[at]) / widths[at], 0.0, 1.0))
        return self._sum(((), "hazard"), np.zeros(len(self.label), np.intp), 1, values, limit)

    def choice_scores(self, columns: tuple[int, ...], widths: tuple[int, ...], limit: float) -> NDArray[np.int64]:
        g = np.trunc(np.clip(self.gradients()[0], -1.0, 1.0) * (limit * MARGIN))
        if len(self.owner):
            several = g[self.single :]
            length = np.asarray(np.bincount(self.owner, np.abs(several)), np.float64)
            g = np.concatenate([g[: self.single], np.trunc(several * _shrink(length, limit)[self.owner])])
        scores = []
        for column, width in zip(columns, widths, strict=True):
            cell = self.codes[column] if width == 1 else self.codes[column] // width
            scores.append(int(np.abs(_add(cell, g, self.sizes[column])).sum()))
        return np.array(scores, np.int64)

    def _sum(
        self, key: tuple[tuple[int, ...], str], cell: Cells, cells: int, values: list[Floats], limit: float
    ) -> NDArray[np.int64]:
        """Σ over people of their clipped vectors: coordinate (value, cell). A single row has norm ≤ 1 already."""
        factor = limit * MARGIN
        total = np.concatenate([_add(cell[: self.single], value[: self.single], cells, factor) for value in values])
        if len(self.owner):
            several = [np.trunc(value[self.single :] * factor) for value in values]
            total += self._together(key, cell[self.single :], cells, several, limit)
        return total

    def _together(
        self, key: tuple[tuple[int, ...], str], cell: Cells, cells: int, values: list[Floats], limit: float
    ) -> NDArray[np.int64]:
        """The same for people with several rows: add up each person's cells, clip the person, add up people."""
        if key not in self._slots:
            if len(self._slots) >= SLOTS_KEPT:
                self._slots.pop(next(iter(self._slots)))
            # a slot is one cell of one person; sorted, so that a person's norm does not depend on the order of rows
            self._slots[key] = np.unique(self.owner * cells + cell, return_inverse=True)
        slots, slot = self._slots[key]
        owner, where = slots // cells, slots % cells
        parts = [np.bincount(slot, value, minlength=len(slots)) for value in values]
        square = np.zeros(len(slots))
        for part in parts:
            square += part * part
        shrink = _shrink(np.sqrt(np.bincount(owner, square)), limit)[owner]
        return np.concatenate([_add(where, part * shrink, cells) for part in parts])


@dataclass
class _Room:
    rows: _Rows
    names: tuple[str, ...]
    budget: Budget
    ledger: Ledger
    unit: str  # "person" where rows name theirs, else "row"
    lock: Lock = field(default_factory=Lock)


_ROOMS: WeakKeyDictionary[PrivateTable, _Room] = WeakKeyDictionary()


def _shrink(length: Floats, limit: float) -> Floats:
    """Factor that brings each length under the limit, with the margin."""
    bound = limit * MARGIN
    return bound / np.maximum(length, bound)


def _add(cell: NDArray[Any], values: Floats, cells: int, factor: float = 1.0) -> NDArray[np.int64]:
    """Sums by cell of trunc(factor·value), exact at any number of rows."""
    total = np.zeros(cells, np.int64)
    for part in _chunks(len(values)):
        total += np.bincount(cell[part], np.trunc(values[part] * factor), minlength=cells).astype(np.int64)
    return total


def _chunks(n: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]


def _by_person(person: NDArray[Any] | None, n: int, most: int) -> tuple[Cells, Cells]:
    """Kept rows, people with one kept row first; and the owner, from 0, of each of the rows after those."""
    if person is None:
        return np.arange(n), np.zeros(0, np.intp)
    _, number = np.unique(np.asarray(person), return_inverse=True)
    order = np.argsort(number, kind="stable")  # stable: within a person, table order
    people = number[order]
    first = np.concatenate([[True], people[1:] != people[:-1]]) if n else np.zeros(0, np.bool_)
    start = np.flatnonzero(first)
    rank = np.arange(n) - np.repeat(start, np.diff(np.append(start, n)))
    kept = rank < most
    order, people = order[kept], people[kept]
    several = np.bincount(people, minlength=1)[people] > 1
    _, owner = np.unique(people[several], return_inverse=True)
    return np.concatenate([order[~several], order[several]]), owner.astype(np.intp)


# ---- checks: of shapes and kinds, never of values ------------------------------------------------------------


def _check_shapes(
    codes: NDArray[Any],
    sizes: Sequence[int],
    label: NDArray[Any],
    names: Sequence[str],
    time: NDArray[Any] | None,
    person: NDArray[Any] | None,
    rows_per_person: int,
) -> None:
    if np.ndim(codes) != 2 or np.asarray(codes).dtype.kind not in "iu":
        raise CohortError("codes", "must be a two-dimensional array of integers", found=f"{np.ndim(codes)} dimensions")
    n, d = np.shape(codes)
    if len(sizes) != d or len(names) != d or not all(int(size) >= 1 for size in sizes):
        raise CohortError(
            "sizes and names", f"must have one entry for each of {d} columns, sizes of 1 or more",
            found=f"{len(sizes)} sizes, {len(names)} names",
        )  # fmt: skip
    if n > ROWS_ALL_MAX:
        raise CohortError("codes", f"must have at most {ROWS_ALL_MAX} rows", fix="condense a part of the table")
    for what, array in (("label", label), ("time", time), ("person", person)):
        if array is not None and np.shape(array) != (n,):
            raise CohortError(what, "must have one entry for each row of codes", found=f"{np.ndim(array)} dimensions")
    if not 1 <= rows_per_person <= ROWS_MAX:
        raise SettingsError("rows_per_person", f"must be between 1 and {ROWS_MAX}", found=f"{rows_per_person}")


def _check_objective(objective: Objective, time: NDArray[Any] | None) -> None:
    if isinstance(objective, PiecewiseExponential) and time is None:
        raise CohortError("time", "must be given with a survival objective", fix="time=…")


def _check_ledger(ledger: Ledger, budget: Budget) -> None:
    """What earlier runs spent must fit this budget, or nothing can be promised."""
    mu, picks, _ = totals(ledger.events)
    count, dearest = sum(number for _, number in picks), max((each for each, _ in picks), default=0.0)
    if mu**2 > budget.mu**2 * (1 + TOLERANCE) or count > budget.picks or dearest > budget.pick_epsilon * (1 + 1e-12):
        raise BudgetError(
            "ledger", "must hold no more than the budget",
            found=f"mu {mu:.6g} of {budget.mu:.6g}, {count} picks of {budget.picks}",
            fix="use the run's own budget, or a new one that covers what was spent",
        )  # fmt: skip


def _check_account(theirs: float, ours: float) -> None:
    """opendp's own zCDP account of the measurement must not exceed what the ledger is charged."""
    if not theirs <= ours * (1 + 1e-9):
        raise BudgetError("noise", f"must cost rho = {ours:.6g} at most", found=f"{theirs:.6g} by opendp's account")
