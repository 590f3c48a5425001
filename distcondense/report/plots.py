"""The picture of a run, for `internal/`. Published: score, loss, ε as-published over the steps. Private: the model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from distcondense.models.additive import AdditiveModel


def plot_history(history: list[dict[str, Any]], path: Path) -> bool:
    """Draw the evaluations of a run into a PNG, atomically; False where matplotlib is not installed."""
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
    _save(figure, path)
    return True


def _save(figure: Any, path: Path) -> None:
    draft = path.with_name(path.name + ".draft")
    figure.savefig(draft, format="png", dpi=120)
    os.replace(draft, path)


def plot_private(model: AdditiveModel, trade_off: Sequence[tuple[float, float]], path: Path, title: str) -> bool:
    """What the private model learned, column by column, and what its guarantee leaves to an attacker."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return False
    spread = [float(np.ptp(table)) for table in model.tables]
    strongest = sorted(range(len(spread)), key=lambda j: -spread[j])[:7]
    figure = Figure(figsize=(13, 6), layout="constrained")
    axes = figure.subplots(2, 4).ravel()
    curve = np.array(trade_off)
    axes[0].plot(curve[:, 0], curve[:, 1], label="best attack this guarantee allows")
    axes[0].plot([0, 1], [1, 0], ":", color="grey", label="guessing")
    axes[0].set(xlabel="false alarms", ylabel="members missed", title="membership test (f-DP)")
    axes[0].legend(fontsize=7)
    for ax, j in zip(axes[1:], strongest, strict=False):
        cells, table = model.cells[j], model.tables[j]
        inner = cells.size - cells.hole
        if cells.numeric:
            edges = np.concatenate([[cells.column.low], cells.cuts, [cells.column.high]])
            ax.stairs(table[:inner], edges, baseline=None)
            if cells.column.spacing == "log":
                ax.set_xscale("symlog")
            ax.set_xlabel(cells.column.unit)
        else:
            ax.barh([str(c)[:18] for c in cells.column.categories][:20], table[:inner][:20])
            ax.tick_params(labelsize=6)
        ax.set_title(cells.column.name, fontsize=9)
        ax.axhline(0, color="grey", lw=0.5) if cells.numeric else ax.axvline(0, color="grey", lw=0.5)
    for ax in axes[1 + len(strongest) :]:
        ax.set_visible(False)
    what = "log odds" if model.link == "probability" else "log hazard"
    figure.suptitle(f"{title}: what each value adds to the {what}, {len(strongest)} strongest of {len(spread)} columns")
    _save(figure, path)
    return True
