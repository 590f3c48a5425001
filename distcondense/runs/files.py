"""Atomic files: written aside, synced, moved into place at once. The only way a run's files reach the disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distcondense.errors import RunFolderError, brief, may, os_errors
from distcondense.privacy.ledger import sync_folder


def refuse_target(path: Path) -> None:
    """Refuse to write where no regular file can be: into a folder that is not there, over a folder, device or link."""
    what = f"file {brief(path)}"
    with os_errors(what, "must be writable", RunFolderError):
        found = os.lstat(path).st_mode if os.path.lexists(path) else None
        if found is not None and not stat.S_ISREG(found):
            known = "a folder" if stat.S_ISDIR(found) else "a link" if stat.S_ISLNK(found) else "no regular file"
            raise RunFolderError(what, "must be a new or regular file", found=known, fix="say another path")
        if not stat.S_ISDIR(os.stat(path.parent).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "")
        if not may(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "")


def draft_of(path: Path) -> Path:
    """Where a file is written before it gets its name."""
    return path.with_name(path.name + ".draft")


def write_whole(path: Path, write: Callable[[Path], object], *, mode: int | None = None, synced: bool = True) -> None:
    """`write(draft)` makes the file; it appears whole or not at all, if `synced` also after a power cut."""
    refuse_target(path)
    draft = draft_of(path)
    with os_errors(f"file {brief(path)}", "must be writable", RunFolderError):
        try:
            if mode is not None:  # readable by its owner only, from its first byte on
                os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode))
            write(draft)
            if synced:
                with open(draft, "rb") as file:
                    os.fsync(file.fileno())
            os.replace(draft, path)
            if synced:
                sync_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
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
