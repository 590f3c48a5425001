"""What ties a statement to what was released: SHA-256 of every file, the software, a digest of the statement itself.

A hash shows that a file is the one a run wrote. It does not show who wrote it: whoever forges the table can make hashes
and digest fit again. Against that there is a signature (`runs/release.py`), which covers privacy.json and so all files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATEMENT, SIGNATURE = "privacy.json", "signature.dsse.json"


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_digest(data: Mapping[str, Any]) -> str:
    """SHA-256 of JSON data, whatever the layout of their file; an entry `digest` is left out."""
    content = {name: value for name, value in data.items() if name != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def bind(stated: Mapping[str, Any], files: Mapping[str, str], software: Mapping[str, Any]) -> dict[str, Any]:
    """A statement with the SHA-256 of every released file by name, and what made it. `stated` is plain JSON data."""
    whole = {**stated, "files": dict(files), "software": dict(software)}
    return {**whole, "digest": json_digest(whole)}


def compare_files(stated: Mapping[str, Any], folder: Path, *, whole: bool) -> tuple[list[str], list[str]]:
    """(what contradicts the statement, what was compared) in the folder that it lies in.

    `whole`: the folder is the release, so that nothing may be missing or added; else only what is there is compared.
    """
    wrong = [] if stated.get("digest") == json_digest(stated) else [f"{STATEMENT} was edited after the run wrote it"]
    files = stated.get("files")
    if not isinstance(files, dict) or not files:
        return [*wrong, f"{STATEMENT} names no released file: nothing ties it to a table"], []
    compared = 0
    for name, due in files.items():
        if Path(name).name != name or name in (STATEMENT, SIGNATURE):
            wrong.append(f"{name!r} is not the name of a released file")
        elif (folder / name).is_file():
            compared += 1
            if file_hash(folder / name) != due:
                wrong.append(f"{name} is not the file that the statement was made for")
        elif whole:
            wrong.append(f"{name} is missing")
    if whole:
        known = {*files, STATEMENT, SIGNATURE}
        wrong += [
            f"{path.name} is not part of the release" for path in sorted(folder.iterdir()) if path.name not in known
        ]
    if not compared:
        return wrong, ["no released file lies beside the statement: nothing but the statement was checked"]
    return wrong, [f"SHA-256 of {compared} released files compared"]
