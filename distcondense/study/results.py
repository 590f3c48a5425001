"""The results of a study: the scores of all finished cells, one row each, with what the cell is and promises.

One row per cell × IPC × part × student × tested on × trained on × metric; part "quick" is the run's own scores. A cell
that failed has one row per IPC, of part "failed", whose note says why. That is results.parquet; results.csv and
cells.csv are it for people, each fact once (`scores_table`, `cells_table`).
`method` is what the study file calls a method, `made_by` which one it is; `main` marks the
metric that tables by IPC and plots show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats, Index
from distcondense.data.outcome import kind_named
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, Score
from distcondense.study.design import STUDENTS, Cell, Study
from distcondense.study.folder import StudyFolder, read_json

COLUMNS = {  # name → its type
    "study": "string", "cell": "string", "data": "string", "outcome": "string", "method": "string", "made_by": "string",
    "reference": "string", "ipc": "Int64", "seed": "Int64", "tested_on": "string", "trained_on": "string",
    "rows": "Int64", "test_rows": "Int64", "metric": "string", "main": "bool", "value": "float64", "low": "float64",
    "high": "float64", "epsilon": "float64", "guarantee": "string", "delta": "float64",
    "worst_case_epsilon_end_to_end": "string", "epsilon_asked": "float64", "guarantee_asked": "string",
    "privacy": "string", "note": "string", "seconds": "float64", "making_seconds": "float64", "cpu_seconds": "float64",
    "peak_memory_bytes": "float64", "part": "string", "student": "string", "labels": "string",
    "unit": "string", "why": "string", "key": "string", "measured": "string", "commit": "string",
}  # fmt: skip
QUICK = "quick"  # the part that every run measures itself
FAILED = "failed"  # no part: there is nothing to measure
SCORES = (
    "data", "method", "reference", "epsilon_asked", "ipc", "seed", "tested_on", "trained_on", "student", "labels",
    "part", "metric", "main", "value", "low", "high", "rows", "test_rows", "epsilon", "guarantee", "note",
)  # fmt: skip
CELLS = (
    "data", "method", "made_by", "reference", "epsilon_asked", "guarantee_asked", "seed", "outcome", "epsilon",
    "guarantee", "unit", "delta", "worst_case_epsilon_end_to_end", "privacy", "why", "note", "seconds",
    "making_seconds", "cpu_seconds", "peak_memory_bytes", "cell", "commit",
)  # fmt: skip
ON_PATIENTS = {"guarantee": "none", "privacy": "none: trained on patients"}


class ScoreRows:
    """Rows of the results: a report chooses rows ten thousand times, each a hundred times as fast as pandas.

    A choice keeps the places of its rows, and takes them out of a column when that is asked for.

    Parameters
    ----------
    columns : mapping of str to ndarray
        Of one length. Texts are objects, None where there is none; numbers are float64, NaN where there is none.
    """

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._whole: dict[str, Any] = dict(columns)
        self._codes: dict[str, Index] = {}  # of whole columns, as far as anybody grouped by them
        self._places: Index | None = None  # all
        self._taken: dict[str, Any] = {}

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> ScoreRows:
        """Of a results table."""
        types = {"bool": bool, "Int64": np.float64, "float64": np.float64}
        columns = {}
        for name, kind in ((name, COLUMNS[name]) for name in frame.columns if name in COLUMNS):
            if kind == "string":  # equal texts become one object
                codes, values = pd.factorize(frame[name].astype(object), use_na_sentinel=False)
                columns[name] = np.array([None if pd.isna(value) else value for value in values], object)[codes]
            else:
                columns[name] = frame[name].to_numpy(types[kind])
        return cls(columns)

    def __len__(self) -> int:
        return len(next(iter(self._whole.values()))) if self._places is None else len(self._places)

    def __getitem__(self, name: str) -> Any:
        if self._places is None:
            return self._whole[name]
        if name not in self._taken:
            self._taken[name] = self._whole[name][self._places]
        return self._taken[name]

    def where(self, chosen: Any) -> ScoreRows:
        """The rows of a mask or of places."""
        places = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        rows = ScoreRows({})
        rows._whole, rows._codes = self._whole, self._codes
        rows._places = places if self._places is None else self._places[places]
        return rows

    def plus(self, name: str, values: Any) -> ScoreRows:
        """With one more column."""
        return ScoreRows({**{other: self[other] for other in self._whole}, name: values})

    def groups(self, *names: str) -> Iterator[tuple[tuple[Any, ...], ScoreRows]]:
        """The values of these columns and the rows that have them, in the order in which they first stand there."""
        if not len(self):
            return
        code = np.zeros(len(self), np.int64)
        for name in names:
            if name not in self._codes:
                self._codes[name] = pd.factorize(self._whole[name], use_na_sentinel=False)[0]
            own = self._codes[name] if self._places is None else self._codes[name][self._places]
            code = pd.factorize(code * (own.max() + 1) + own)[0]
        order = np.argsort(code, kind="stable")
        for places in np.split(order, np.flatnonzero(np.diff(code[order])) + 1):
            yield tuple(self._whole[name][self._place(places[0])] for name in names), self.where(places)

    def _place(self, row: int) -> int:
        return row if self._places is None else int(self._places[row])


@dataclass(frozen=True)
class SeedMean:
    """A measure over seeds. Cells of one seed share their split: the seed is the repetition."""

    value: float  # NaN where nothing was measured
    low: float  # of the 95% interval over test persons, averaged
    high: float
    spread: float  # standard deviation over seeds; NaN of one
    seeds: int

    @classmethod
    def from_rows(cls, rows: ScoreRows) -> SeedMean:
        """Of rows of the results; those without a value do not count."""
        value = rows["value"]
        there = ~np.isnan(value)
        seeds, seed = np.unique(rows["seed"][there], return_inverse=True)
        bounds = [value, rows["low"], rows["high"]]
        means = [_by_seed(one[there], seed, len(seeds)) for one in bounds]
        mean, low, high = (mean_of(one) for one in means)
        spread = float(means[0].std(ddof=1)) if len(seeds) > 1 else math.nan
        return cls(mean, low, high, spread, len(seeds))

    @property
    def bounds(self) -> tuple[float, float, float]:
        """Value, low, high: as tables hold a number with its interval."""
        return self.value, self.low, self.high

    @property
    def plus_minus(self) -> str:
        return "" if math.isnan(self.spread) else f" ± {self.spread:.3f}"


def mean_of(values: Floats) -> float:
    """Of those that are there."""
    there = values[~np.isnan(values)]
    return float(there.mean()) if len(there) else math.nan


def _by_seed(values: Floats, seed: Index, seeds: int) -> Floats:
    """(seeds,) means of the values that are there; NaN where a seed has none."""
    there = ~np.isnan(values)
    total, many = (np.bincount(seed[there], one, minlength=seeds) for one in (values[there], np.ones(there.sum())))
    return np.divide(total, many, out=np.full(seeds, np.nan), where=many > 0)


def results_table(study: Study, folder: StudyFolder) -> pd.DataFrame:
    """The scores of all cells of a study that are done.

    Parameters
    ----------
    study : Study
        The checked study file.
    folder : StudyFolder
        Where its cells lie.

    Returns
    -------
    DataFrame
        COLUMNS, a row a score. A model that could not be fitted or had no answer has rows without a value, and a note.
    """
    rows = []
    for cell in study.cells:
        measured = {int(ipc): " ".join(sorted(parts)) for ipc, parts in folder.parts(cell).items()}
        rows += [{**row, "measured": measured.get(row["ipc"], "")} for row in _rows_of(study.name, cell, folder)]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def scores_table(results: pd.DataFrame) -> pd.DataFrame:
    """What results.csv holds: SCORES, six decimals, a row a score. What is of a cell is in `cells_table`.

    Models of real rows belong to no method: each stands once, without one, and not with every cell beside it.
    """
    table = results[list(SCORES)].round(dict.fromkeys(("value", "low", "high"), 6))
    real = table["trained_on"].isin([FULL, RANDOM])
    shared = table[real].assign(method=None, epsilon_asked=np.nan).drop_duplicates()
    return pd.concat([table[~real], shared.astype(table.dtypes)]).sort_index()


def cells_table(results: pd.DataFrame) -> pd.DataFrame:
    """What cells.csv holds: CELLS, a row a cell. What it promises and why, what it took, which commit made it."""
    own = results[~results["trained_on"].isin([FULL, RANDOM])]
    return own.drop_duplicates("cell")[list(CELLS)]


def public_columns(cell: Cell) -> dict[str, Any]:
    """Which cell it is, wherever it is run."""
    return {
        "key": cell.key,
        "data": cell.data,
        "method": cell.method,
        "made_by": cell.made_by,
        "seed": cell.seed,
        "reference": cell.reference,
        "epsilon_asked": cell.epsilon,
        "guarantee_asked": "none" if cell.epsilon is None else cell.guarantee,
    }


def _rows_of(study: str, cell: Cell, folder: StudyFolder) -> Iterator[dict[str, Any]]:
    run, name = folder.run(cell), {"study": study, "cell": folder.name(cell), **public_columns(cell)}
    if reason := folder.failure(cell):
        yield from ({**name, "ipc": ipc, "part": FAILED, "main": False, "note": reason} for ipc in cell.ipcs)
    if not run.finished:
        return
    record, stated = read_json(run.internal / "run.json"), read_json(run.release / "privacy.json")
    outcome, took = record["data"]["outcome"]["kind"], record["timings_seconds"]
    main = kind_named(outcome).measures[0]
    head = {
        **name,
        "outcome": outcome,
        "commit": (stated.get("software") or {}).get("commit"),
        "seconds": took["total"],
        "making_seconds": took["total"] - took.get("evaluate", 0.0),
        "cpu_seconds": took.get("cpu"),
        "peak_memory_bytes": max(folder.peak(cell) or 0, record.get("peak_memory_bytes", 0)) or None,
    }
    claim = {
        **{name: stated[name] for name in ("epsilon", "guarantee", "delta", "unit")},
        # why it is no theorem, in its statement's first words; none where it is one
        "why": next(iter(stated.get("why", ())), None),
        "privacy": record["privacy"],
        "worst_case_epsilon_end_to_end": stated["worst_case_epsilon"] or None,
    }
    done = folder.elsewhere(cell)
    tests = {cell.source.name: record, **{s.name: done[s.name] for s, _ in cell.test_on if s.name in done}}
    for place, tested in tests.items():
        for test in tested.get("sets", [tested]):
            here = {**head, "ipc": test.get("ipc", cell.ipcs[0]), "tested_on": place, "part": QUICK}
            scores = [Score.from_dict(entry) for entry in test["scores"]]
            yield from ({**here, "main": score.measure == main, **_columns(score, claim)} for score in scores)
            if CONDENSED not in {score.trained_on for score in scores}:
                none = {"trained_on": CONDENSED, "metric": main, "main": True, **claim}
                rows = 0 if stated["answer"] else None  # a release without an answer has no rows
                yield {**here, **none, "rows": rows, "note": test["scores_note"] or stated["answer"] or "not measured"}
    students = read_json(folder.yardstick(cell)).get("students", [])
    for ipc, parts in folder.parts(cell).items():
        for part, measured in parts.items():
            here = {**head, "ipc": int(ipc), "tested_on": cell.source.name, "part": part}
            for score in map(Score.from_dict, measured["scores"] + (students if part == STUDENTS else [])):
                yield {**here, "main": part == STUDENTS and score.measure == main, **_columns(score, claim)}


def _columns(score: Score, claim: dict[str, Any]) -> dict[str, Any]:
    """One score, with what its model promises."""
    return {
        "trained_on": score.trained_on,
        "rows": score.rows,
        "test_rows": score.n,
        "metric": score.measure,
        "value": score.value,
        "low": score.low,
        "high": score.high,
        "note": score.note or None,
        "student": score.student,
        "labels": score.labels,
        **(claim if score.covered else ON_PATIENTS),
    }
