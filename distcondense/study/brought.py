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
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from distcondense.data.outcome import kind_names
from distcondense.errors import RunFolderError, brief, os_errors
from distcondense.evaluate.score import WAYS
from distcondense.evaluate.suite import PARTS
from distcondense.privacy.events import Unit
from distcondense.privacy.statement import GUARANTEES
from distcondense.study.design import Cell, Study
from distcondense.study.tidy import COLUMNS, FAILED, QUICK, what_it_is


@dataclass(frozen=True)
class Brought:
    """Rows of results.parquet files, one file's for each cell."""

    rows: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(COLUMNS)).astype(COLUMNS))

    @classmethod
    def of(cls, paths: Sequence[Path], study: Study) -> Brought:
        """Of cells of this study; where several files have a cell, the first one's."""
        known = {cell.key: cell for cell in study.cells}
        found = [cls().rows]
        for path in paths:
            more = _read(path, known)
            found.append(more[~more["key"].isin({key for rows in found for key in rows["key"]})])
        rows = [part for part in found if len(part)]
        return cls(pd.concat(rows, ignore_index=True).assign(study=study.name).astype(COLUMNS)) if rows else cls()

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


def _read(path: Path, known: Mapping[str, Cell]) -> pd.DataFrame:
    """The rows of cells of this study, whose names are this study's: a key is all that is taken of a file's."""
    what = f"results {brief(path)}"
    wrong = RunFolderError(
        what, "must be a results.parquet of a study, by this version", found="another file",
        fix="say the file from OUT/internal of the study on the other machine",
    )  # fmt: skip
    with os_errors(what, "must be readable", RunFolderError):
        content = path.read_bytes()
    try:
        rows = pd.read_parquet(io.BytesIO(content))[list(COLUMNS)].astype(COLUMNS)
    except Exception:  # spoiled, or not our columns: readers raise many types
        raise wrong from None
    rows = rows[rows["key"].isin(list(known))].reset_index(drop=True)
    cells = [known[key] for key in rows["key"]]
    if not all(_legal(row, cell) for row, cell in zip(rows.to_dict("records"), cells, strict=True)):
        raise wrong
    names = [what_it_is(cell) for cell in cells]
    return rows.assign(**{name: [one[name] for one in names] for name in next(iter(names), {})}).astype(COLUMNS)


def _legal(row: Mapping[Any, Any], cell: Cell) -> bool:
    """Whether a study could have written the row: what pages say of it is of these words."""
    if row["ipc"] not in cell.ipcs or pd.isna(row["measured"]) or pd.isna(row["cell"]):
        return False
    if row["part"] == FAILED:
        return not pd.isna(row["note"])
    words = (
        (row["part"], (QUICK, *PARTS)), (row["trained_on"], WAYS), (row["guarantee"], GUARANTEES),
        (row["outcome"], kind_names()), (row["unit"], (*get_args(Unit), None)),
    )  # fmt: skip
    told = all((None if pd.isna(word) else word) in legal for word, legal in words)
    return told and not pd.isna(row["metric"]) and not pd.isna(row["tested_on"]) and not row["epsilon"] <= 0
