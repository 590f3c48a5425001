"""Results that another machine made: `--with results.parquet`. Their cells are not run again, and the report has them.

Machines that share no disk, or come one after the other, each run a part of a study (`--only`, `--seeds`); what they
found is brought together by the `results.parquet` of each. A cell is taken where all that is public about it is the
same: the table's name and schema, outcome, method, settings, ε, seed. Whether the tables hold the same rows nobody can
see here: a digest of them in a file that goes around would tell whose rows they are. A cell that failed there, and why,
is a result too.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pyarrow as pa

from distcondense.errors import RunFolderError, brief, os_errors
from distcondense.study.design import Cell, Study
from distcondense.study.tidy import COLUMNS, FAILED


@dataclass(frozen=True)
class Brought:
    """Rows of results.parquet files, one file's for each cell."""

    rows: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS))

    @classmethod
    def of(cls, paths: Sequence[Path], study: Study) -> Brought:
        """Of cells of this study; where several files have a cell, the first one's."""
        found, known = cls().rows, {cell.key for cell in study.cells}
        for path in paths:
            more = _read(path)
            there = more["key"].isin(known) & ~more["key"].isin(found["key"])
            found = pd.concat([found, more[there]], ignore_index=True) if len(found) else more[there]
        return cls(found.reset_index(drop=True).assign(study=study.name).astype(COLUMNS))

    def has(self, cell: Cell) -> bool:
        """Whether all that the study asks of the cell is there, or why there is nothing."""
        mine = self.rows[self.rows["key"] == cell.key]
        if (mine["part"] == FAILED).any():
            return True
        asked = set(cell.parts)
        done = {ipc: set(parts.split()) for ipc, parts in zip(mine["ipc"], mine["measured"], strict=True)}
        sites = {cell.source.name, *(source.name for source, _ in cell.test_on)}
        return all(asked <= done.get(ipc, {""}) for ipc in cell.ipcs) and sites <= set(mine["tested_on"].dropna())

    def without(self, keys: Collection[str]) -> pd.DataFrame:
        """The rows of other cells than these, which are finished here."""
        return self.rows[~self.rows["key"].isin(list(keys))]


def _read(path: Path) -> pd.DataFrame:
    what = f"results {brief(path)}"
    wrong = RunFolderError(
        what, "must be a results.parquet of a study, by this version", found="another file",
        fix="say the file from OUT/internal of the study on the other machine",
    )  # fmt: skip
    with os_errors(what, "must be readable", RunFolderError):
        content = path.read_bytes()
    try:
        rows = pd.read_parquet(io.BytesIO(content))
        return rows[list(COLUMNS)].astype(COLUMNS)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError):  # spoiled, or without our columns
        raise wrong from None
