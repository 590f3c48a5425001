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
    def of(cls, paths: Sequence[Path], study: Study) -> ExternalResults:
        """Of cells of this study; where several files have a cell, the first one's."""
        known = {cell.key: cell for cell in study.cells}
        found = [cls().rows]
        for path in paths:
            more = _read(path, known)
            found.append(more[~more["key"].isin({key for rows in found for key in rows["key"]})])
        rows = [part for part in found if len(part)]
        return cls(pd.concat(rows, ignore_index=True).assign(study=study.name).astype(COLUMNS)) if rows else cls()

    @cached_property
    def _there(self) -> dict[str, tuple[bool, dict[int, set[str]], set[str]]]:
        """Key → whether it failed, IPC → parts that were measured, places where it was tested."""
        found: dict[str, tuple[bool, dict[int, set[str]], set[str]]] = {}
        for key, mine in self.rows.groupby("key"):
            sets = mine[["ipc", "measured"]].drop_duplicates()
            done = {int(ipc): set(parts.split()) for ipc, parts in sets.itertuples(index=False)}
            found[str(key)] = bool((mine["part"] == FAILED).any()), done, set(mine["tested_on"].dropna())
        return found

    def has(self, cell: Cell) -> bool:
        """Whether all that the study asks of the cell is there, or why there is nothing."""
        if cell.key not in self._there:
            return False
        failed, done, places = self._there[cell.key]
        asked, sites = set(cell.parts), {cell.source.name, *(source.name for source, _ in cell.test_on)}
        return failed or (all(ipc in done and asked <= done[ipc] for ipc in cell.ipcs) and sites <= places)

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
    names = {key: public_columns(known[key]) for key in rows["key"].unique()}
    said = {name: [names[key][name] for key in rows["key"]] for name in next(iter(names.values()), {})}
    return rows.assign(**said).astype(COLUMNS)


def _legal(rows: pd.DataFrame, sets: set[tuple[str, int]]) -> bool:
    """Whether a study could have written the rows: what pages say of them is of these words."""
    failed, told = rows[rows["part"] == FAILED], rows[rows["part"] != FAILED]
    words = {
        "part": (QUICK, *SECTIONS),
        "trained_on": TRAINED_ON,
        "guarantee": GUARANTEES,
        "outcome": kind_names(),
        "unit": (*get_args(Unit), pd.NA),
    }
    known = all((key, ipc) in sets for key, ipc in zip(rows["key"], rows["ipc"], strict=True))
    full = (rows[["measured", "cell"]], failed["note"], told[["metric", "tested_on"]])
    return (
        known
        and all(told[name].isin(list(legal)).all() for name, legal in words.items())
        and all(part.notna().to_numpy().all() for part in full)
        and not (told["epsilon"] <= 0).any()
    )
