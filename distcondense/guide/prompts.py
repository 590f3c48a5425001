"""Who answers questions: a person at a terminal, or nobody (`--yes`), whose questions stay open."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.panel import Panel
from rich.prompt import Confirm, Prompt
from rich.text import Text


class Prompts(Protocol):
    """One question at a time; each has a default, which is Enter."""

    def show(self, title: str, text: str) -> None:
        """A screen before its question."""

    def text(self, question: str, default: str) -> str:
        """The answer, as it was typed."""

    def confirm(self, question: str, default: bool = True) -> bool:
        """Whether the answer is yes."""


class TerminalPrompts:
    """Asks a person."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)

    def show(self, title: str, text: str) -> None:
        self.console.print(Panel(Text(text), title=Text(title), title_align="left"))

    def text(self, question: str, default: str) -> str:
        return Prompt.ask(Text(question), console=self.console, default=default, show_default=bool(default)).strip()

    def confirm(self, question: str, default: bool = True) -> bool:
        return Confirm.ask(Text(question), console=self.console, default=default)


class DefaultAnswers:
    """Asks nobody: takes every default and remembers the question."""

    def __init__(self) -> None:
        self.open: list[str] = []
        self.title = ""

    def show(self, title: str, text: str) -> None:
        """Shows nothing: the file that is written says it."""
        self.title = title

    def text(self, question: str, default: str) -> str:
        self.open.append(f"{self.title}: {question}{f' ({default} is taken)' if default else ''}")
        return default

    def confirm(self, question: str, default: bool = True) -> bool:
        self.open.append(f"{self.title}: {question} ({'yes' if default else 'no'} is taken)")
        return default
