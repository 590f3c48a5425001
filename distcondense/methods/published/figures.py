"""What a published run has to show to the custodian: score, loss and ε as-published over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distcondense.runs.figures import LINES, Figure, Series

DRAWN = {
    "score": "Score of a fresh student on validation patients",
    "loss": "Loss of the synthetic rows",
    "epsilon_as_published": "ε, as-published (not a theorem)",
}


def history(entries: Sequence[dict[str, Any]]) -> tuple[Figure, ...]:
    """A figure for each thing that was noted along the way."""
    out = []
    for name, title in DRAWN.items():
        noted = [(entry["step"], entry[name]) for entry in entries if entry[name] is not None]
        if noted:
            steps, values = zip(*noted, strict=True)
            out.append(
                Figure(
                    name,
                    LINES,
                    title,
                    "How the run went, step by step; the released rows are those of the best score.",
                    "step",
                    title,
                    (Series("this run", tuple(map(float, steps)), tuple(map(float, values))),),
                )
            )
    return tuple(out)
