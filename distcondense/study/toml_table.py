"""`TomlTable`: one table of a study file, asked key by key; what is not of the asked type becomes a problem in words.

Values are read as methods read their options (`methods.base.as_type`). Pydantic would check single types, which is a
dozen lines here, and stop at the first rule between keys that fails; a study file is refused with all its problems.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from distcondense.data.schema import unknown_keys
from distcondense.errors import UserError
from distcondense.methods.base import as_type

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
TYPES = {str: "texts", int: "whole numbers", float: "numbers"}
Number = TypeVar("Number", int, float)


class TomlTable:
    """One table of the file. What is wrong with a value is noted among `problems`, and then a default is given.

    Parameters
    ----------
    values : Any
        What the file holds at its place; anything but a table is a problem.
    where : str
        Begins every problem's words, e.g. ``[[data]] ward:``.
    legal : sequence of str
        The keys that it may have.
    problems : list of str
        Where problems are noted; all tables of a file share one.
    """

    def __init__(self, values: Any, where: str, legal: Sequence[str], problems: list[str]) -> None:
        self.where, self.problems = where, problems
        self.values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        if not isinstance(values, Mapping):
            self.wrong("must be a table")
        problems += unknown_keys(self.values, set(legal), f"{where} ")

    def wrong(self, text: str) -> None:
        self.problems.append(f"{self.where} {text}")

    @contextmanager
    def noting(self, what: str = "") -> Iterator[None]:
        """An error inside the `with` becomes a problem."""
        try:
            yield
        except UserError as error:
            self.wrong(f"{what}{error}")

    def text(self, key: str, default: str | None = None) -> str | None:
        value = self.values.get(key, default)
        if value is not None and (not isinstance(value, str) or not value):
            self.wrong(f"{key} must be a text")
            return default
        return value

    def name(self, key: str, default: str = "") -> str:
        value = self.text(key, default or None)
        if value is None:
            self.wrong(f"must have a {key}")
        elif not NAME.fullmatch(value):
            self.wrong(f"{key} must be at most 40 letters, digits and . _ + - (it names folders). Found {value!r}")
        return value or ""

    def texts(self, key: str) -> tuple[str, ...]:
        """One text or a list of them."""
        return self._list(key, str)

    def wholes(self, key: str) -> tuple[int, ...]:
        return self._list(key, int)

    def numbers(self, key: str) -> tuple[float, ...]:
        return self._list(key, float)

    def number(self, key: str, default: Number) -> Number:
        """One number, of the default's type."""
        values = self._list(key, type(default))
        if len(values) > 1:
            self.wrong(f"{key} must be one number")
        return values[0] if values else default

    def table(self, key: str) -> dict[str, Any]:
        value = self.values.get(key, {})
        if not isinstance(value, Mapping):
            self.wrong(f"{key} must be a table, e.g. {key} = {{…}}")
            return {}
        return dict(value)

    def tables(self, key: str) -> list[Any]:
        value = self.values.get(key, [])
        if not isinstance(value, list):
            self.wrong(f"{key} must be written as [[{key}]]")
            return []
        return value

    def _list(self, key: str, kind: Any) -> tuple[Any, ...]:
        value = self.values.get(key, [])
        items = as_type(value if isinstance(value, list) else [value], tuple[kind, ...])
        if items is None or "" in items:
            self.wrong(f"{key} must be {TYPES[kind]}")
            return ()
        twice = [repr(item) for item, times in Counter(items).items() if times > 1]
        if twice:
            self.wrong(f"{key} must not repeat. Found {', '.join(twice)} twice")
        return tuple(dict.fromkeys(items))


def digest(value: Any) -> str:
    """Of a definition: the same for the same contents."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
