"""Sheets: a numbered list on the screen and one question about all of it, so that Enter leaves it as it is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from distcondense.guide.prompts import Prompts

NONE, ALL = "none", "all"
_Change = TypeVar("_Change")


def picked(prompts: Prompts, title: str, lines: Mapping[str, str], question: str, default: Sequence[str]) -> list[str]:
    """Those of the lines' names that are chosen, by number or name; all or none of them by these words."""
    names = list(lines)
    prompts.show(title, _numbered(lines))
    usual = ", ".join(str(names.index(name) + 1) for name in default) or NONE
    while True:
        answer = prompts.text(question, usual)
        if answer.casefold() in (NONE, ALL):
            return names if answer.casefold() == ALL else []
        parts = [answer] if answer in names else re.split(r"[,;]" if "," in answer else r"[;\s]", answer)
        chosen = [_named(part, names) for part in parts if part.strip()]
        if None not in chosen:
            return [name for name in names if name in chosen]
        prompts.show("Not on the sheet", f"Numbers of lines, such as 1, 3; or {ALL}; or {NONE}")


def changed(
    prompts: Prompts,
    title: str,
    lines: Mapping[str, str],
    question: str,
    read: Callable[[str, str], _Change],
    legal: str,
) -> dict[str, _Change]:
    """What is said of some lines, as NUMBER=ANSWER or NAME=ANSWER, and read; a `ValueError` asks again. Enter: none."""
    prompts.show(title, _numbered(lines))
    while True:
        answer = prompts.text(question, "")
        try:
            return dict(_changes(answer, list(lines), read))
        except ValueError:
            prompts.show("Not understood", legal)


def _changes(answer: str, names: list[str], read: Callable[[str, str], _Change]) -> list[tuple[str, _Change]]:
    changes = []
    for part in re.split(r"[,;]", answer):
        if not part.strip():
            continue
        line, sign, said = part.rpartition("=")
        name = _named(line, names)
        if not sign or name is None:
            raise ValueError
        changes.append((name, read(name, said.strip())))
    return changes


def _named(said: str, names: list[str]) -> str | None:
    """The name of a line, said by its number or itself."""
    said = said.strip()
    if said.isdecimal() and 1 <= int(said) <= len(names):
        return names[int(said) - 1]
    return said if said in names else None


def _numbered(lines: Mapping[str, str]) -> str:
    return "\n".join(f"{number}  {text}" for number, text in enumerate(lines.values(), 1))
