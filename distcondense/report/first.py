"""Tables of a first run: what was declared, and what ε buys on a simulated table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from distcondense.outcomes.measures import title

GUARANTEE = "end-to-end"


def begun_table(name: str, rows: Sequence[tuple[str, str, str]]) -> Table:
    """Columns as they are described now."""
    table = Table(title=f"{escape(name)}: what the schema says")
    for head in ("column", "kind", "declared"):
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def bought_table(bought: Sequence[Any], rows: int) -> Table:
    """A row for each ε."""
    measure = next((one.measure for one in bought if one.measure), "")
    table = Table(title=f"What ε buys ({GUARANTEE}), tried on {rows} simulated rows of this shape")
    for head in ("ε", f"{title(measure) if measure else 'score'}, all rows", "condensed", "expected loss"):
        table.add_column(head, justify="right")
    for one in bought:
        made = ("no answer", "—") if one.condensed is None else (f"{one.condensed:.3f}", f"{one.loss:.3f}")
        table.add_row(f"{one.epsilon:g}", f"{one.full:.3f}", *made)
    table.caption = "A guide and no promise: real columns may say more of the outcome, or less. Read off no patient."
    return table
