"""Our own columns in a condensed table: names that no table of patients has, told from the name alone.

A table that has one was made by distcondense. It is refused wherever patients are read: rows of rows would carry a
promise about nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from distcondense.errors import CohortError

PREFIX = "distcondense_"
RISK, EXPECTED, WEIGHT = f"{PREFIX}risk", f"{PREFIX}expected", f"{PREFIX}weight"
MADE_HERE = "these are rows that distcondense made"


def is_reserved(name: str) -> bool:
    return name.casefold().startswith(PREFIX)


def refuse_reserved(names: Iterable[str]) -> None:
    """A table with a column of ours is no table of patients."""
    reserved = [name for name in map(str, names) if is_reserved(name)]
    if reserved:
        more = f" and {len(reserved) - 3} more" if len(reserved) > 3 else ""
        raise CohortError(
            "table",
            f"must be one of patients: names that begin with {PREFIX} are our own",
            found=f"{', '.join(map(repr, reserved[:3]))}{more}: {MADE_HERE}",
            fix="say the table that they were made of; if they are patients' after all, rename the column",
        )


def each_named(stem: str, labels: Sequence[object]) -> tuple[str, ...]:
    """A column's name for each label: the label itself where that makes names that differ in any tool, else numbers."""
    slugs = [re.sub(r"\W+", "_", str(label)) for label in labels]
    plain = len({slug.casefold() for slug in slugs}) == len(slugs) and all(slug.strip("_") for slug in slugs)
    return tuple(f"{stem}_{slug if plain else k}" for k, slug in enumerate(slugs, 1))
