"""Who answers questions: a person at a terminal, or nobody (`--yes`), whose questions stay open."""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.panel import Panel
from rich.prompt import Confirm, Prompt


class Prompts(Protocol):
    """One question at a time; each has a default."""

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
        self.console.print(Panel(text, title=title, title_align="left"), markup=False)

    def text(self, question: str, default: str) -> str:
        return Prompt.ask(question, console=self.console, default=default).strip()

    def confirm(self, question: str, default: bool = True) -> bool:
        return Confirm.ask(question, console=self.console, default=default)


class DefaultAnswers:
    """Asks nobody: takes every default and remembers the question."""

    def __init__(self) -> None:
        self.open: list[str] = []

    def show(self, title: str, text: str) -> None:
        """Shows nothing."""

    def text(self, question: str, default: str) -> str:
        self.open.append(f"{question} ({default} is taken)" if default else question)
        return default

    def confirm(self, question: str, default: bool = True) -> bool:
        self.open.append(f"{question} ({'yes' if default else 'no'} is taken)")
        return default
