"""Further rows of a finished run, all or some: drawn from what left the gate, at no cost.

`Sampler` is what a method leaves for that; it knows no patient. Rows that are asked for by conditions are drawn until
enough of them fulfil these.
"""

from __future__ import annotations

import numbers
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd

from distcondense.arrays import Flags
from distcondense.data.names import nearest
from distcondense.data.reserved import WEIGHT
from distcondense.data.schema import Column
from distcondense.errors import SettingsError, brief

Where = Mapping[str, Any]  # column → a value, a (low, high) of a number, a list of categories, None: empty
Rng = np.random.Generator

BATCH = 20_000  # rows drawn at once
BATCHES = 200  # as long as anybody is found; then it is said that there are too few


class Sampler(Protocol):
    """Draws rows as the population has them, of a run's own columns; a dataclass, so that a folder can keep it."""

    @property
    def rows(self) -> float:
        """The noisy number of rows of the real table."""
        ...

    @property
    def kind(self) -> Any:
        """Of outcome."""
        ...

    def drawn(self, rows: int, rng: Rng) -> pd.DataFrame:
        """So many whole rows, with outcome and own columns, as a run's table has them."""
        ...


def sampled(sampler: Sampler, columns: Mapping[str, Column], rows: int, where: Where | None, seed: int) -> pd.DataFrame:
    """So many further rows that fulfil the conditions; their weights add up to how many there are by noisy answers."""
    if isinstance(rows, bool) or not isinstance(rows, numbers.Integral) or rows < 1:
        raise SettingsError("rows", "must be a whole number of 1 or more", found=brief(rows))
    rng = np.random.default_rng([int(seed), 0x5A3])
    conditions = {name: checked(name, asked, columns) for name, asked in (where or {}).items()}
    found: list[pd.DataFrame] = []
    held = seen = 0
    for _ in range(BATCHES if conditions else -(-int(rows) // BATCH)):
        batch = sampler.drawn(BATCH if conditions else min(BATCH, int(rows) - held), rng)
        kept = batch[fulfilled(batch, conditions)]
        found.append(kept)
        held, seen = held + len(kept), seen + len(batch)
        if held >= rows:
            break
    if held < rows:
        raise SettingsError(
            "where",
            "must leave enough of the rows that the model draws",
            found=f"{held:,} of {seen:,} fulfil it, {rows:,} are wanted",
            fix="ask for fewer rows, or for wider conditions: of few patients little is known",
        )
    frame = pd.concat(found, ignore_index=True).iloc[: int(rows)].reset_index(drop=True)
    frame[WEIGHT] = sampler.rows * held / seen / len(frame)
    return frame


def checked(name: str, asked: Any, columns: Mapping[str, Column]) -> Any:
    """What is asked of a column, or an error that says what can be."""
    what = f"where[{brief(name)!r}]"
    if name not in columns:
        raise SettingsError(what, "must name a column of the rows", found=nearest(name, columns), fix="look at .schema")
    column, single = columns[name], not isinstance(asked, Collection) or isinstance(asked, str)
    if asked is None:
        return None
    if column.kind == "date":
        raise SettingsError(what, "must be of a number or of categories", found="a column of dates", fix="leave it out")
    if column.numeric:
        ends = (asked, asked) if single else tuple(asked)
        if len(ends) != 2 or not all(isinstance(end, numbers.Real) and not isinstance(end, bool) for end in ends):
            raise SettingsError(
                what, "must be a number, or a lowest and a highest one", found=brief(asked), fix="(60, 80)"
            )
        if not ends[0] <= ends[1]:
            raise SettingsError(what, "must begin with the lower end", found=brief(asked), fix="(60, 80)")
        return ends
    labels = [asked] if single else list(asked)
    unknown = [label for label in labels if label not in column.categories]
    if unknown or not labels:
        raise SettingsError(
            what,
            f"must be among the categories: {', '.join(map(str, column.categories[:12]))}",
            found=brief(unknown[0]) if unknown else "none",
        )
    return frozenset(labels)


def fulfilled(frame: pd.DataFrame, conditions: Mapping[str, Any]) -> Flags:
    """(rows,) which fulfil all conditions."""
    good = np.ones(len(frame), np.bool_)
    for name, asked in conditions.items():
        if asked is None:
            good &= frame[name].isna().to_numpy()
        elif isinstance(asked, frozenset):
            good &= frame[name].isin(asked).to_numpy()
        else:
            good &= frame[name].between(*asked).fillna(False).to_numpy(np.bool_)
    return good
