"""Which columns a message may name: those that the schema or an argument names. Any other one is said by its place.

A table whose first line is a patient, or whose columns are patients, has values for names. What a user has named is
known to be none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from distcondense.errors import brief


@dataclass(frozen=True)
class Names:
    """The names in a table's header, and those of them that are known."""

    header: Sequence[str]
    known: Collection[str]

    def __contains__(self, name: str) -> bool:
        return name in self.known

    def said(self, name: str) -> str:
        """What a message calls a column of the table."""
        return f"column {brief(repr(name)) if name in self.known else self.place(name)}"

    def place(self, name: str) -> int:
        """Its number, from 1."""
        return list(self.header).index(name) + 1

    def some(self, names: Iterable[str], most: int = 8) -> str:
        """A list of columns, cut where it is long."""
        listed = [repr(name) if name in self.known else f"column {self.place(name)}" for name in names]
        return ", ".join(listed[:most]) + (f" … and {len(listed) - most} more" if len(listed) > most else "")

    def nearest(self, name: str) -> str:
        """'no such name', and the column that may be meant; where no other name shows a header, one spelt like it."""
        sure = not set(self.known).isdisjoint(self.header)
        return nearest(name, self.header, 0.5 if sure else 0.75)


def nearest(name: str, legal: Iterable[str], cutoff: float = 0.5) -> str:
    """'no such name', and the legal one that may be meant, for error messages."""
    legal = list(legal)
    close = get_close_matches(name, legal, n=1, cutoff=cutoff)
    return f"no {name!r}; the nearest is {close[0]!r}" if close else f"no {name!r} among {len(legal)}"
