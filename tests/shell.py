"""Calling the command line in this process, as a shell would, and what every refusal must look like."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from tests.tiny import BINARY, CANARIES, SCHEMA, SURVIVAL


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


Call = Callable[..., Answer]


def write(frame: pd.DataFrame, folder: Path) -> Path:
    """The table and its schema in a folder; the table's path."""
    frame.to_csv(folder / "cohort.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    return folder / "cohort.csv"


def options(how: dict[str, Any]) -> list[str]:
    found = []
    for name, value in how.items():
        for one in value if isinstance(value, tuple) else (value,):
            found += [f"--{name.replace('_', '-')}", str(one)]
    return found


TARGET = [*options(BINARY), "--schema", "schema.toml"]
FOLLOWED = [*options(SURVIVAL), "--schema", "schema.toml"]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refused(answer: Answer, *says: str) -> None:
    """Exit 2, one message with what, found and fix; no traceback, no patient."""
    assert answer.code == 2
    assert answer.out == ""
    errors = [line for line in answer.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    message = answer.err[answer.err.index("error: ") :]
    assert "Found " in message
    assert re.search("Fix: |must be one of|must be at least", message)  # the last two are fixes themselves
    assert "Traceback" not in answer.err
    for canary in CANARIES:
        assert canary not in answer.err
    for part in says:
        assert part in message
