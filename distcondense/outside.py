"""Files that others wrote, read within bounds: text, JSON and TOML. Size, depth, digits and lengths are limited here.

A parser meets anything: a gigabyte, brackets a million deep, 1e400, a count of 10¹², whole numbers of 5,000 digits.
What is beyond a bound is refused like what is no JSON or TOML at all, by a `ValueError` whose words hold nothing of the
file but the place.
"""

from __future__ import annotations

import json
import math
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from distcondense.errors import UserError, os_errors

MOST_BYTES = 512 * 2**20
MOST_DEPTH = 32
MOST_WHOLE = 2**63  # numbers beyond it fit no array
MOST_ENTRIES = 10_000_000


class OutsideError(ValueError):
    """What was read is no JSON or TOML within the bounds."""


def read_text(path: str | Path, what: str, kind: type[UserError] = UserError) -> str:
    """A file's text, UTF-8."""
    with os_errors(what, "must be a readable file", kind):
        status = Path(path).stat()
        if not stat.S_ISREG(status.st_mode):
            folder = stat.S_ISDIR(status.st_mode)
            raise kind(
                what,
                "must be a regular file",
                found="a folder" if folder else "something else",
                fix="name the file inside it" if folder else "name a file",
            )
        if status.st_size > MOST_BYTES:
            raise kind(
                what, f"must have at most {MOST_BYTES:,} bytes", found=f"{status.st_size:,}", fix="check the path"
            )
        content = Path(path).read_bytes()
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:  # its message would quote bytes of whatever file this is
        raise kind(what, "must be text in UTF-8", found="other bytes", fix="save it as UTF-8") from None


def parse_json(text: str | bytes) -> Any:
    """JSON within the bounds; `OutsideError` otherwise."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OutsideError(type(error).__name__) from None
    return bounded(value)


def parse_toml(text: str) -> dict[str, Any]:
    """TOML within the bounds; `OutsideError` otherwise, which says the line."""
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OutsideError(str(error)) from None
    except RecursionError:
        raise OutsideError(f"brackets more than {MOST_DEPTH} deep") from None
    except (ValueError, OverflowError):  # whole numbers of thousands of digits, dates that are none
        raise OutsideError("a number or date beyond what can be held") from None
    bounded(value)
    return value


def bounded(value: Any) -> Any:
    """The same value, if its depth, numbers and number of entries are within the bounds."""
    for leaf in leaves(value):
        if isinstance(leaf, float) and not math.isfinite(leaf):
            raise OutsideError("a number that is not finite")
        if isinstance(leaf, int) and not -MOST_WHOLE <= leaf < MOST_WHOLE:
            raise OutsideError("a whole number beyond 64 bits")
    return value


def leaves(value: Any) -> Iterator[Any]:
    """What tables and lists hold in the end, level by level; `OutsideError` beyond the bounds of depth and entries."""
    level, entries = [value], 0
    for _ in range(MOST_DEPTH):
        inner: list[Any] = []
        for entry in level:
            if isinstance(entry, Mapping):
                inner += entry.values()
            elif isinstance(entry, list | tuple):
                inner += entry
            else:
                yield entry
        entries += len(inner)
        if entries > MOST_ENTRIES:
            raise OutsideError(f"more than {MOST_ENTRIES:,} entries")
        if not inner:
            return
        level = inner
    raise OutsideError(f"brackets more than {MOST_DEPTH} deep")
