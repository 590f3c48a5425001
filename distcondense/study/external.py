"""Results that another machine made: `--with results.parquet`. Their cells are not run again, and the report has them.

Machines that share no disk, or come one after the other, each run a part of a study (`--only`, `--seeds`); what they
found is brought together by the `results.parquet` of each. A cell is taken where all that is public about it is the
same: the table's name and schema, outcome, method, settings, ε, seed. Whether the tables hold the same rows nobody can
see here: a digest of them in a file that goes around would tell whose rows they are. A cell that failed there, and why,
is a result too.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import get_args

import pandas as pd

from distcondense.data.outcome import kind_names
from distcondense.errors import RunFolderError, brief, os_errors
from distcondense.evaluation.score import TRAINED_ON
from distcondense.evaluation.suite import SECTIONS
from distcondense.privacy.events import Unit
from distcondense.privacy.statement import GUARANTEES
from distcondense.study.design import Cell, Study
from distcondense.study.results import COLUMNS, FAILED, QUICK, public_columns


@dataclass(frozen=True)
class ExternalResults:
    """Rows of results.parquet files, one file's for each cell."""

    rows: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS))

    @classmethod
    def from_files(cls, paths: Sequence[Path], study: Study) -> ExternalResults:
        """Rows of cells of a study from results.parquet files.

        Parameters
        ----------
        paths : sequence of Path
            Of other machines' files; where several have a cell, the first one's rows are taken.
        study : Study
            Whose cells are asked for; rows of others are left out.

        Returns
        -------
        ExternalResults

        Raises
        ------
        RunFolderError
            For a file that no study of this version could have written.
        """
        known = {cell.key: cell for cell in study.cells}
        rows = cls().rows
        for path in paths:
            more = _read(path, known).assign(study=study.name).astype(COLUMNS)
            fresh = more[~more["key"].isin(set(rows["key"]))]
            rows = pd.concat([rows, fresh], ignore_index=True) if len(rows) else fresh
        return cls(rows)

    @cached_property
    def _by_key(self) -> dict[str, list[tuple[int, str, str, str]]]:
        """IPC, parts, site and part of each cell's rows, once each: looked up once, not once a cell."""
        found: dict[str, list[tuple[int, str, str, str]]] = {}
        told = self.rows[["key", "ipc", "measured", "tested_on", "part"]].astype({"ipc": "int64"}).drop_duplicates()
        for key, *rest in told.itertuples(index=False, name=None):
            found.setdefault(key, []).append(tuple(rest))
        return found

    def has(self, cell: Cell) -> bool:
        """Whether all that the study asks of the cell is there, or why there is nothing."""
        rows = self._by_key.get(cell.key, [])
        measured = {ipc: set(parts.split()) for ipc, parts, _, _ in rows}
        sites = {cell.source.name, *(source.name for source, _ in cell.test_on)} <= {place for _, _, place, _ in rows}
        done = all(ipc in measured and set(cell.parts) <= measured[ipc] for ipc in cell.ipcs)
        return any(part == FAILED for *_, part in rows) or (done and sites)

    def without(self, keys: Collection[str]) -> pd.DataFrame:
        """The rows of other cells than these, which are finished here."""
        return self.rows[~self.rows["key"].isin(list(keys))]


NO_RESULTS = ExternalResults()


def _read(path: Path, known: Mapping[str, Cell]) -> pd.DataFrame:
    """The rows of cells of this study, whose names are this study's: a key is all that is taken of a file's."""
    what = f"results {brief(path)}"
    wrong = RunFolderError(
        what,
        "must be a results.parquet of a study, by this version",
        found="another file",
        fix="say the file from OUT/internal of the study on the other machine",
    )
    with os_errors(what, "must be readable", RunFolderError):
        content = path.read_bytes()
    try:
        rows = pd.read_parquet(io.BytesIO(content))[list(COLUMNS)].astype(COLUMNS)
    except Exception:  # spoiled, or not our columns: readers raise many types
        raise wrong from None
    rows = rows[rows["key"].isin(list(known))].reset_index(drop=True)
    if not _legal(rows, {(key, ipc) for key, cell in known.items() for ipc in cell.ipcs}):
        raise wrong
    codes, keys = pd.factorize(rows["key"])
    public = pd.DataFrame([public_columns(known[key]) for key in keys]).take(codes).set_index(rows.index)
    return rows.assign(**public).astype(COLUMNS)


def _legal(rows: pd.DataFrame, sets: set[tuple[str, int]]) -> bool:
    """Whether a study could have written the rows: what pages say of them is of these words."""
    failed, scores = rows[rows["part"] == FAILED], rows[rows["part"] != FAILED]
    words = {
        "part": (QUICK, *SECTIONS),
        "trained_on": TRAINED_ON,
        "guarantee": GUARANTEES,
        "outcome": kind_names(),
        "unit": (*get_args(Unit), pd.NA),
    }
    told = rows[["key", "ipc"]].drop_duplicates().itertuples(index=False, name=None)
    known = all(one in sets for one in told)
    full = (rows[["measured", "cell"]], failed["note"], scores[["metric", "tested_on"]])
    return (
        known
        and all(scores[name].isin(list(legal)).all() for name, legal in words.items())
        and all(part.notna().to_numpy().all() for part in full)
        and not (scores["epsilon"] <= 0).any()
    )
