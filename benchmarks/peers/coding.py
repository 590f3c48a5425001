"""A cohort as a table of public codes, which every peer takes, and codes as rows in original units again.

Numbers are cut into public cells between their declared bounds (`data/cells.py`, CELLS a column), categories are their
place in the declared list, a hole is a code of its own; the outcome is a column "y" of its classes and, where it has a
time, "t" of TIMES equal parts of the public follow-up. Nothing is read off patients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Index
from distcondense.data.cells import Cells, public_cells
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.outcome import Outcome
from distcondense.data.persons import HoldoutSplit, reading_order
from distcondense.errors import SettingsError

CELLS = 32  # of a number; what dpmm's and DP-EBM's own defaults come to
TIMES = 20  # parts of the follow-up
LABEL, TIME = "y", "t"


@dataclass(frozen=True)
class Coding:
    """Public maps there and back."""

    cells: tuple[Cells, ...]
    kind: Any
    horizon: float | None  # where the outcome has a time

    @classmethod
    def of(cls, facts: Facts, fine: int = CELLS) -> Coding:
        assert facts.schema is not None
        timed = "time" in facts.kind.roles
        horizon = facts.kind.time.high if timed and facts.kind.time is not None else None
        if timed and horizon is None:
            raise SettingsError("follow-up", "must have a public end", found="none", fix="declare the time's bounds")
        return cls(public_cells(facts.schema, fine), facts.kind, horizon)

    @property
    def classes(self) -> int:
        return len(self.kind.labels)

    @property
    def sizes(self) -> dict[str, int]:
        """Codes of each column: c0, c1, … in the schema's order, then the outcome's."""
        own = {f"c{j}": int(cells.size) for j, cells in enumerate(self.cells)}
        return {**own, LABEL: self.classes, **({} if self.horizon is None else {TIME: TIMES})}

    @property
    def ordered(self) -> list[str]:
        """Columns whose neighbouring codes are alike; a hole's is the last, and no neighbour."""
        return [f"c{j}" for j, cells in enumerate(self.cells) if cells.ordered]

    def table(self, cohort: Cohort) -> pd.DataFrame:
        """(n, columns) codes; one row of each person, where persons are known."""
        found = {f"c{j}": cells.codes(cohort.features[cells.column.name]) for j, cells in enumerate(self.cells)}
        found[LABEL] = np.asarray(cohort.outcome["label"])
        if self.horizon is not None:
            place = np.floor(TIMES * cohort.outcome["time"] / self.horizon).astype(np.int64)
            found[TIME] = np.clip(place, 0, TIMES - 1)
        return pd.DataFrame(found).astype(np.int64).iloc[one_each(cohort)].reset_index(drop=True)

    def rows(self, codes: pd.DataFrame, rng: np.random.Generator) -> tuple[pd.DataFrame, Outcome]:
        """Features in original units and the outcome; numbers lie anywhere within their cells."""
        codes = codes.reset_index(drop=True).astype(np.int64)
        frame = pd.DataFrame(
            {
                cells.column.name: cells.values(codes[f"c{j}"].to_numpy(), rng.random(len(codes)))
                for j, cells in enumerate(self.cells)
            }
        )
        label = codes[LABEL].to_numpy()
        arrays = {"label": label.astype(np.int8 if self.classes == 2 else np.int64)}
        if self.horizon is not None:
            inside = 1 - rng.random(len(codes))  # (0, 1]: a time is above 0
            arrays["time"] = self.horizon * (codes[TIME].to_numpy() + inside) / TIMES
        return frame, Outcome(self.kind, arrays)

    def sets(self, pool: pd.DataFrame, ipcs: tuple[int, ...], seed: int) -> dict[int, pd.DataFrame]:
        """IPC rows of each class from a pool of codes, again and again where the pool has too few; none of none."""
        rng = np.random.default_rng([seed, 0x9EE5])
        found = {}
        for ipc in ipcs:
            chosen: list[Index] = []
            for label in range(self.classes):
                there = np.flatnonzero(pool[LABEL].to_numpy() == label)
                if len(there):
                    chosen.append(rng.choice(there, ipc, replace=len(there) < ipc))
            found[ipc] = pool.iloc[np.concatenate(chosen)] if chosen else pool.iloc[:0]
        return found


CHOOSING = HoldoutSplit(0.0, 0)  # no secret: whoever shares a hash here changes a choice among their own rows


def one_each(cohort: Cohort) -> Index:
    """One row of each person, chosen by who and what it is; all rows where each is a person."""
    order = reading_order(cohort, CHOOSING)
    if order is None or cohort.person is None:
        return np.arange(len(cohort))
    by = np.lexsort((order, cohort.person))
    first = np.diff(cohort.person[by], prepend=-1) != 0
    return np.sort(by[first])
