"""`Attestation`: who stands for what was first read off a table, in which words and when; `[[attested]]` of a schema.

What is public about patients is what a person knows without having seen them. A draft cannot know that, so a person
says it, with a name and a date, and whoever gets a release reads it in the datasheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date
from typing import Any

from distcondense.errors import SchemaError

WORDS = "I know these from the codebook, not from this file."
_LISTS = ("columns", "rules")


@dataclass(frozen=True)
class Attestation:
    """What somebody confirmed: the description of columns, and rules that hold by definition.

    Parameters
    ----------
    by, on : str
        Who, and the day as 2026-01-31.
    words : str
        What was said.
    columns, rules : tuple of str
        Names of columns, and rules in words.

    Raises
    ------
    SchemaError
        Where it has no name, no day or says nothing.
    """

    by: str
    on: str
    words: str = WORDS
    columns: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        texts = [name for name in ("by", "on", "words") if not _is_text(getattr(self, name))]
        lists = [
            name
            for name in _LISTS
            if not (isinstance(getattr(self, name), tuple) and all(map(_is_text, getattr(self, name))))
        ]
        if texts or lists:
            raise SchemaError(
                (texts + lists)[0],
                "must be a text" if texts else "must be a list of texts",
                found="nothing, or another type",
                fix='write by = "name", on = "2026-01-31"',
            )
        try:
            date.fromisoformat(self.on)
        except ValueError:
            raise SchemaError(
                "on", "must be a day", found="another text", fix='write it as on = "2026-01-31"'
            ) from None

    @classmethod
    def from_entry(cls, entry: Any) -> Attestation:
        """One table of a schema file."""
        known = [one.name for one in fields(cls)]
        legal = isinstance(entry, Mapping) and {"by", "on"} <= set(entry) <= set(known)
        if not legal:
            rule = f"must have by and on, and nothing but {', '.join(known)}"
            raise SchemaError("entry", rule, found="other keys", fix="correct it")
        lists = {key: tuple(entry[key]) for key in _LISTS if isinstance(entry.get(key), list | tuple)}
        return cls(**dict(entry) | {"on": str(entry["on"])} | lists)

    def to_dict(self) -> dict[str, Any]:
        """What TOML holds."""
        return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(self).items() if v}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.encode("utf-8", "ignore").decode() == value
