"""`Entry`: one table of a study file, asked key by key; what is not of the asked kind becomes a problem in words."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distcondense.data.schema import unknown_keys

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")


class TomlTable:
    """One table of the file. A wrong answer is noted among `problems`, and then a default is given."""

    def __init__(self, values: Any, where: str, legal: Sequence[str], problems: list[str]) -> None:
        self.where, self.problems = where, problems
        self.values: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
        if not isinstance(values, Mapping):
            self.wrong("must be a table")
        problems += unknown_keys(self.values, set(legal), f"{where} ")

    def wrong(self, text: str) -> None:
        self.problems.append(f"{self.where} {text}")

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
            return ""
        if not NAME.fullmatch(value):
            self.wrong(f"{key} must be at most 40 letters, digits and . _ + - (it names folders). Found {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """One text or a list of them."""
        return self._list(key, "texts", lambda v: isinstance(v, str) and bool(v))

    def wholes(self, key: str) -> tuple[int, ...]:
        return self._list(key, "whole numbers", lambda v: isinstance(v, int) and not isinstance(v, bool))

    def numbers(self, key: str) -> tuple[float, ...]:
        found = self._list(key, "numbers", lambda v: isinstance(v, int | float) and not isinstance(v, bool))
        return tuple(map(float, found))

    def one(self, key: str, found: tuple[Any, ...], default: Any) -> Any:
        if len(found) > 1:
            self.wrong(f"{key} must be one number")
        return found[0] if found else default

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

    def _list(self, key: str, what: str, good: Callable[[Any], bool]) -> tuple[Any, ...]:
        value = self.values.get(key, [])
        value = value if isinstance(value, list) else [value]
        if not all(map(good, value)):
            self.wrong(f"{key} must be {what}")
            return ()
        twice = [repr(v) for v, times in Counter(value).items() if times > 1]
        if twice:
            self.wrong(f"{key} must not repeat. Found {', '.join(twice)} twice")
        return tuple(dict.fromkeys(value))


def digest(value: Any) -> str:
    """Of a definition: the same for the same contents."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
