"""The picture of a published run: score, loss and ε as-published over the steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from distcondense.runs.files import save_figure


def draw_history(history: list[dict[str, Any]], path: Path) -> bool:
    """Draw the evaluations of a run into a PNG, False where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return False
    steps = [entry["step"] for entry in history]
    spent = [entry["epsilon_as_published"] for entry in history]
    noisy = spent[-1] is not None
    figure = Figure(figsize=(4 * (3 if noisy else 2), 3), layout="constrained")
    axes = figure.subplots(1, 3 if noisy else 2)
    drawn = [("score", "score of a fresh student on validation"), ("loss", "loss of the synthetic rows")]
    drawn += [("epsilon_as_published", "ε, as-published (not a theorem)")] if noisy else []
    for axis, (name, title) in zip(axes, drawn, strict=True):
        axis.plot(steps, [entry[name] for entry in history], marker=".", color="#28527a")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("step")
        axis.grid(alpha=0.3)
    scored = [(entry["score"], entry["step"]) for entry in history if entry["score"] == entry["score"]]
    if scored:
        axes[0].axvline(max(scored, key=lambda pair: pair[0])[1], color="#c0392b", linewidth=1, linestyle="--")
    save_figure(figure, path)
    return True
