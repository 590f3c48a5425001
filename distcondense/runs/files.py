"""Atomic files: written aside, synced, moved into place at once. The only way a run's files reach the disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distcondense.privacy.ledger import sync_folder


def write_whole(path: Path, write: Callable[[Path], object], *, mode: int | None = None) -> None:
    """`write(draft)` makes the file; it appears under its name whole or not at all, also after a power cut."""
    draft = path.with_name(path.name + ".draft")
    if mode is not None:  # readable by its owner only, from its first byte on
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode))
    try:
        write(draft)
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
        sync_folder(path.parent)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def write_json(path: Path, data: Any) -> None:
    """With NaN as null, so that every JSON reader can read it."""
    write_text(path, json.dumps(plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """What JSON can hold: NumPy's scalars as Python's, NaN and infinities as null."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
