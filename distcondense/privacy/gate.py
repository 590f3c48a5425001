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
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distcondense.arrays import Codes, Floats, Index
from distcondense.errors import SettingsError
from distcondense.privacy import noise
from distcondense.privacy.answering import (
    BEHIND,
    BehindGate,
    NoisyAnswers,
    Observer,
    check_ledger,
    check_table,
    check_target,
    gaussian_limit,
)
from distcondense.privacy.budget import Budget
from distcondense.privacy.contributions import Objective, PublicMap, Target
from distcondense.privacy.curves import CELLS_MAX
from distcondense.privacy.events import Unit
from distcondense.privacy.layout import UnlistedColumn
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import (
    STRATEGY,
    AdoptCategories,
    CategoriesQuery,
    ColumnChoice,
    GradientQuery,
    HistogramQuery,
    MapQuery,
    MergeBins,
    PairChoice,
    SetObjective,
    ShiftScores,
    StatisticQuery,
)
from distcondense.privacy.rows import MARGIN, ROWS_ALL_MAX, ExactAnswers
from distcondense.privacy.table_rows import TableRows

SHIFT_MAX = 1e6  # of one shift: a score that is not a number would have no bounded gradient


class PrivateTable(NoisyAnswers):
    """The gate: it holds the rows of patients and answers with noise only.

    Every question names its price, `mu`; the noise of an answer has σ = Δ/mu in the units of the answer, where Δ is
    the most that one person changes it by (in L2; a choice: each score). All answers together cost √Σmu² and may not
    exceed the budget. Public steps (`shift`, `bins`, `adopt`, `objective`) cost nothing and release nothing.

    Parameters
    ----------
    codes : (n, d) array of int
        Bin codes of each row; those outside a column's bins count as its nearest bin.
    sizes : sequence of int
        The number of bins of each column; public.
    target : mapping of str to (n,) array
        The outcome's arrays by name, as the objective takes them.
    names : sequence of str
        Names of the columns; public.
    objective : Objective
        The private objective, which bounds what a row adds to any sum.
    budget : Budget
        What may be spent in all.
    ledger : Ledger
        Where every question is entered before it is answered.
    person : (n,) array, optional
        Whose each row is; without it every row is a person of its own and `rows_per_person` is not used.
    rows_per_person : int
        How many rows of one person count.
    unlisted : mapping of int to UnlistedColumn, optional
        Columns whose values nobody has listed: one bin until they `adopt` some.
    observer : Observer, optional
        Hears of every step and every noisy answer, for the auditor.
    order : (n,) array, optional
        Which of a person's rows count where there are more: the smallest; table order if not given.

    Raises
    ------
    CohortError, SettingsError
        If shapes, names or sizes do not fit together; never for a value.
    BudgetError
        If the ledger already holds more than the budget.

    Examples
    --------
    >>> import numpy as np
    >>> from distcondense.outcomes.binary import Logistic
    >>> from distcondense.privacy.budget import Budget
    >>> from distcondense.privacy.gate import PrivateTable
    >>> from distcondense.privacy.ledger import Ledger
    >>> codes, died = np.array([[0], [1], [1], [2]]), np.array([0, 0, 1, 1])
    >>> budget = Budget.calibrate(epsilon=1.0, delta=1e-5)
    >>> table = PrivateTable(
    ...     codes, [3], {"label": died}, names=["stage"], objective=Logistic(), budget=budget, ledger=Ledger()
    ... )
    >>> table.histogram((0,), by="none", mu=0.1).shape  # numbers of rows, each with noise of σ = 1/0.1
    (1, 3)
    >>> table.spent().mu
    0.1
    """

    __slots__ = ()

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
        check_table(codes, sizes, target, names, person, rows_per_person, order, unlisted or {})
        check_target(objective, target)
        check_ledger(ledger, budget)
        rows = TableRows.from_table(codes, sizes, target, objective, person, rows_per_person, unlisted, order)
        unit: Unit = "row" if person is None else "person"
        BEHIND[self] = BehindGate(
            rows, tuple(str(name) for name in names), budget, ledger, unit, observer, frozenset(unlisted or ())
        )

    # ---- public knowledge

    @property
    def objective(self) -> Objective:
        """What is learned by gradient sums; setting another of the same kind is a public step."""
        return BEHIND[self].rows.objective

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

    # ---- public steps: cost nothing, release nothing

    def shift(self, columns: tuple[int, ...], table: ArrayLike) -> None:
        """Add table[cell] to every row's score; no columns: add one number to all.

        Where rows have S > 1 scores the table is (S, cells); without columns (S,) will do.
        """
        columns, scores = self._columns(columns), self.objective.scores
        cells, numbers = BEHIND[self].rows.cells(columns), np.array(table, np.float64)
        shape = (cells,) if scores == 1 else (scores, cells)
        fits = numbers.size == scores * cells and (scores == 1 or numbers.shape[0] == scores)
        if not fits or not np.all(np.abs(numbers) <= SHIFT_MAX):
            raise SettingsError(
                "table",
                f"must hold {' × '.join(map(str, shape))} numbers between ±{SHIFT_MAX:g}",
                found=f"shape {numbers.shape}",
            )
        self._step(ShiftScores(columns, numbers.reshape(shape)))

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
        self,
        columns: tuple[int, ...],
        *,
        by: str = "label",
        mu: float,
        starts: Sequence[int] = (),
        merges: Sequence[Sequence[int]] = (),
    ) -> Floats:
        """Noisy numbers of rows in each cell of some columns.

        Sensitivity Δ = 1: a row is 1 in one cell, and a person's rows together count up to L2 norm 1. Which cell that
        is follows from the row and public maps alone, be cells merged or not.

        Parameters
        ----------
        columns : tuple of int
            The columns whose joint cells are counted, in C order.
        by : str
            How rows are grouped besides: "none", or one of the objective's groupings.
        mu : float
            The price; the noise of each number has σ = 1/mu.
        starts : sequence of int
            Of one column, public: neighbouring bins count as one cell; the first bin of each, from 0 upwards.
        merges : sequence of sequences of int, optional
            Public, one for each column: the coarser cell, from 0 upwards, that each of its bins counts in here.

        Returns
        -------
        (groups, cells) float64
        """
        columns, groups, first = self._columns(columns), self.groups(by), tuple(int(start) for start in starts)
        last = self.sizes[columns[0]] - 1 if len(columns) == 1 else -1
        if first and (first[0] != 0 or first[-1] > last or any(a >= b for a, b in itertools.pairwise(first))):
            raise SettingsError(
                "starts",
                "must name bins of one column, from 0 upwards",
                found=f"{len(first)} starts",
                fix="starts=(0, …)",
            )
        if first and merges:
            raise SettingsError("merges", "must not be given beside starts", fix="one of the two")
        coarse = self._merges(columns, merges)
        cells = len(first) or self._joint_cells(columns, coarse)
        question = HistogramQuery(columns, by, first, coarse)
        answer = self._gaussian(question, "histogram", groups * cells, mu, columns=columns, by=by)
        return answer.reshape(groups, cells)

    def categories(self, column: int, *, mu: float, delta: float) -> dict[str, float]:
        """Values of an unlisted column and their noisy numbers of rows, where these pass a threshold.

        Sensitivity Δ = 1 over all values together. A person who brings values that nobody else has brings
        `rows_per_person` at the most, and any of them is told with probability `delta` at the most: accountant.py says
        what both cost together.

        Parameters
        ----------
        column : int
            A column whose values nobody has listed.
        mu : float
            The price; the noise of each number has σ = 1/mu.
        delta : float
            The probability at most that a value of one person alone is told.

        Returns
        -------
        dict of str to float
        """
        self._check_unlisted(column)
        rows, limit = BEHIND[self].rows, gaussian_limit(mu)
        above = noise.threshold(limit, noise.GRID, rows.most, delta)
        # of all noisy numbers those that one person can move are approximated: so many cells
        event = self._event("categories", rows.most, mu, columns=(column,), by="value", delta=float(delta))

        def noised(exact: Index) -> Index:
            noisy = noise.discrete_gaussian(exact, noise.GRID) if len(exact) else exact
            names = rows.labels(column)
            return _packed({names[place]: int(noisy[place]) for place in np.flatnonzero(noisy > above).tolist()})

        packed = self._ask(CategoriesQuery(column), event, limit, noised, lambda: _packed({}))
        counts: dict[str, int] = json.loads(packed.astype(np.uint8).tobytes())
        return {label: count / (limit * MARGIN) for label, count in counts.items()}

    def sums(
        self,
        columns: tuple[int, ...],
        *,
        mu: float,
        merges: Sequence[Sequence[int]] = (),
        strategy: ArrayLike | None = None,
    ) -> tuple[Floats, ...]:
        """Noisy sums of gradients and hessians under the current scores, in each cell of some columns.

        Sensitivity Δ = 1 for all of them together: the objective bounds a row's vector, which is added to one cell,
        and a person's rows together count up to L2 norm 1. Which cell that is follows from the row and public maps
        alone, be it of one column or of several, merged or not.

        With a strategy A a row in cell c adds its gradients times A's column c, and its hessians as before. No column
        is longer than 1, so ‖A_c g‖² + ‖h‖² ≤ ‖g‖² + ‖h‖² ≤ 1; a person's rows are added up as they are told, and
        count up to norm 1 (Li et al. 2015, the matrix mechanism).

        Parameters
        ----------
        columns : tuple of int
            The columns whose joint cells are summed, in C order.
        mu : float
            The price; the noise of each sum has σ = 1/(mu · its scale).
        merges : sequence of sequences of int, optional
            Public, one for each column: the coarser cell, from 0 upwards, that each of its bins counts in here.
        strategy : (answers, cells) array, optional
            Public: the combinations of cells as which gradients are told. Entries are cut to steps of 1/1024.

        Returns
        -------
        tuple of (cells,) float64
            One array per scale of the objective: S gradients, then none or S hessians, in their own units. With a
            strategy the gradients are (answers,) each: those of A, its entries in whole steps, times those of cells.
        """
        columns, scales = self._columns(columns), self.objective.scales
        coarse = self._merges(columns, merges)
        cells = self._joint_cells(columns, coarse)
        steps = None if strategy is None else _in_whole_steps(strategy, cells)
        question = GradientQuery(columns, coarse, () if steps is None else tuple(map(tuple, steps.tolist())))
        self._check_ready()
        scores = self.objective.scores
        sizes = [cells if steps is None or k >= scores else len(steps) for k in range(len(scales))]
        answer = self._gaussian(question, "sums", sum(sizes), mu, columns=columns)
        parts = np.split(answer, np.cumsum(sizes)[:-1])
        return tuple(part / scale for part, scale in zip(parts, scales, strict=True))

    def total(self, name: str, *, mu: float) -> Floats:
        """One of the objective's statistics, summed over all rows with noise, in the units it is read in.

        Sensitivity Δ = 1: the objective bounds a row's vector, and a person's rows together count up to L2 norm 1.
        """
        known = self.objective.statistics
        if name not in known:
            raise SettingsError(
                "total",
                f"must be one of the objective's statistics: {', '.join(known) or 'it has none'}",
                found=repr(name),
            )
        statistic = known[name]
        return statistic.undo(
            self._gaussian(StatisticQuery(name), "total", statistic.size, mu, by=name, sensitivity=statistic.unit)
        )

    def mapped(self, map_: PublicMap, *, mu: float) -> Floats:
        """(size,) noisy sum over persons of a public map of their rows.

        Sensitivity Δ = 1, whatever the map gives: longer vectors are shortened, of each row, then of each person's
        sum; what is no number counts as 0, without a word.
        """
        columns, size = self._columns(map_.columns), int(map_.size)
        if not 1 <= size <= CELLS_MAX or not map_.name:
            raise SettingsError("map", f"must have a name and 1 to {CELLS_MAX} coordinates", found=f"{size}")
        return self._gaussian(MapQuery(map_), "mapped", size, mu, columns=columns, by=map_.name)

    def choose(self, count: int, columns: Sequence[int] | None = None, *, coarse: Sequence[int] | None = None) -> Index:
        """The columns with the largest Σ |Σ g|, by peeled exponential mechanisms at the budget's ε₀ a pick.

        The outer sum is over scores and cells. Sensitivity 1 of every column's sum: a person's gradients, as they count
        in the norm, are scaled down to Σ_rows Σ_scores |g| ≤ 1. A choice lost in a crash is answered with the first
        candidates.

        Parameters
        ----------
        count : int
            How many columns are wanted.
        columns : sequence of int, optional
            The candidates; all columns if not given.
        coarse : sequence of int, optional
            Public, one per candidate: that many neighbouring bins count as one cell.

        Returns
        -------
        (count,) int64
            The chosen columns, best first.
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

        A pair is worth Σ over cells of |rows − expected|. Sensitivity 1: a person's rows share one row's weight. A
        choice lost in a crash is answered with the first pair.

        Parameters
        ----------
        pairs : sequence of (int, int)
            The candidates.
        expected : sequence of 2-d arrays
            Public: a table of numbers of rows for each pair, e.g. from earlier noisy answers.
        ahead : sequence of float, optional
            Public head starts, in rows.

        Returns
        -------
        int
            The position of the chosen pair.
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

    # ---- checks of arguments

    def _columns(self, columns: Sequence[int]) -> tuple[int, ...]:
        d = len(self.names)
        chosen = tuple(int(column) for column in columns)
        if len(set(chosen)) != len(chosen) or not all(0 <= column < d for column in chosen):
            raise SettingsError("columns", f"must be distinct and between 0 and {d - 1}", found=f"{chosen[:8]}")
        return chosen

    def _merges(self, columns: tuple[int, ...], merges: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        coarse = tuple(tuple(map(int, merge)) for merge in merges)
        if coarse and [len(merge) for merge in coarse] != [self.sizes[column] for column in columns]:
            raise SettingsError(
                "merges",
                f"must map the bins of each of {len(columns)} columns",
                found=f"{len(coarse)} maps of {', '.join(str(len(merge)) for merge in coarse)} bins",
            )
        if any(set(merge) != set(range(max(merge) + 1)) for merge in coarse):
            raise SettingsError("merges", "must number cells from 0 upwards, none left out", fix="np.unique's inverse")
        return coarse

    def _joint_cells(self, columns: tuple[int, ...], merges: tuple[tuple[int, ...], ...]) -> int:
        return math.prod(max(merge) + 1 for merge in merges) if merges else BEHIND[self].rows.cells(columns)

    def _check_unlisted(self, column: int) -> None:
        if column not in BEHIND[self].unlisted:
            raise SettingsError("column", "must be one whose values nobody has listed", found=f"{column}")

    def _check_ready(self) -> None:
        if not self.objective.ready:
            raise SettingsError(
                "objective",
                "must be ready before gradients are asked",
                found="one that still needs an earlier answer",
                fix="set what it needs first, e.g. table.objective = table.objective.with_hazard(...)",
            )


def _in_whole_steps(strategy: ArrayLike, cells: int) -> Index:
    """(answers, cells) steps of a strategy, each towards 0, so that no column gets longer; checked in whole numbers."""
    given = np.array(strategy, np.float64)
    if given.ndim != 2 or given.shape[1] != cells or not len(given) or not np.all(np.abs(given) <= 1):
        raise SettingsError(
            "strategy", f"must have rows of {cells} numbers between -1 and 1", found=f"shape {given.shape}"
        )
    steps: Index = np.trunc(given * STRATEGY).astype(np.int64)
    if np.any((steps**2).sum(axis=0) > STRATEGY**2):
        raise SettingsError("strategy", "must have columns of norm at most 1", fix="divide it by its longest column")
    return steps


def gate_over(
    rows: ExactAnswers,
    *,
    names: Sequence[str],
    budget: Budget,
    ledger: Ledger,
    unit: Unit,
    unlisted: Collection[int] = (),
) -> PrivateTable:
    """A gate before rows that lie elsewhere: on disk, on other machines. Its noise is drawn here, after their total."""
    check_ledger(ledger, budget)
    table = PrivateTable.__new__(PrivateTable)
    BEHIND[table] = BehindGate(rows, tuple(map(str, names)), budget, ledger, unit, None, frozenset(unlisted))
    return table


def _packed(counts: Mapping[str, int]) -> Index:
    """Labels and noisy counts as a ledger keeps answers: bytes of JSON, one in each entry."""
    return np.frombuffer(json.dumps(dict(sorted(counts.items()))).encode(), np.uint8).astype(np.int64)
