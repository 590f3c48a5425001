"""Frozen data of this package as JSON and back, so that a run can go on later without a pickle.

Only dataclasses of `distcondense` are made anew, by their own constructors, from numbers, texts, arrays and each
other: reading a file runs nothing that its writer chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

from distcondense.data.schema import Schema
from distcondense.errors import RunFolderError

ROOT = "distcondense"


def to_plain(value: Any) -> Any:
    """What JSON holds: texts, numbers and lists as they are, everything else under the name of what it is."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else {"number": repr(value)}
    if isinstance(value, np.ndarray):
        return {
            "array": [to_plain(one) for one in value.ravel().tolist()],
            "shape": value.shape,
            "type": value.dtype.str,
        }
    if isinstance(value, Schema):
        return {"schema": value.to_dict()}
    if isinstance(value, list | tuple):
        return {type(value).__name__: [to_plain(one) for one in value]}
    if isinstance(value, Mapping):
        return {"mapping": [[to_plain(key), to_plain(entry)] for key, entry in value.items()]}
    if is_dataclass(value) and type(value).__module__.partition(".")[0] == ROOT:
        own = {entry.name: to_plain(getattr(value, entry.name)) for entry in fields(value) if entry.init}
        return {"object": f"{type(value).__module__}:{type(value).__qualname__}", "fields": own}
    raise TypeError(type(value).__name__)


def from_plain(value: Any) -> Any:
    """What `to_plain` was given; an error where anything else stands there."""
    if not isinstance(value, dict):
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise _damaged()
    match value:
        case {"number": str(text)} if text in ("inf", "-inf", "nan"):
            return float(text)
        case {"array": list(entries), "shape": list(shape), "type": str(kind)}:
            dtype = np.dtype(kind)
            if dtype.hasobject:
                raise _damaged()
            return np.array([from_plain(one) for one in entries], dtype).reshape(shape)
        case {"schema": dict(said)}:
            return Schema.from_dict(said, where="a kept run")
        case {"list": list(entries)}:
            return [from_plain(one) for one in entries]
        case {"tuple": list(entries)}:
            return tuple(from_plain(one) for one in entries)
        case {"mapping": list(pairs)}:
            return {from_plain(key): from_plain(entry) for key, entry in pairs}
        case {"object": str(name), "fields": dict(own)}:
            return _class_named(name)(**{key: from_plain(entry) for key, entry in own.items()})
    raise _damaged()


def _class_named(name: str) -> Any:
    """A dataclass of this package."""
    module, _, qualified = name.partition(":")
    if module.partition(".")[0] != ROOT or not qualified.isidentifier():
        raise _damaged()
    try:
        found = getattr(import_module(module), qualified)
    except (ImportError, AttributeError):
        raise _damaged() from None
    if not (isinstance(found, type) and is_dataclass(found) and found.__module__ == module):
        raise _damaged()
    return found


def _damaged() -> RunFolderError:
    return RunFolderError(
        "what a run kept",
        "must be as the run wrote it",
        found="something else",
        fix="restore it from a backup, or condense again",
    )
