"""The picture of a private run: what each column adds, and the trade-off curve. Everything in it is covered."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from distcondense.models.additive import AdditiveModel
from distcondense.privacy.statement import Privacy
from distcondense.runs.files import save_figure


def draw_model(model: AdditiveModel, effect: str, privacy: Privacy, path: Path) -> bool:
    """What the private model learned, column by column, and what its guarantee leaves to an attacker."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return False
    tables = [np.atleast_2d(table) for table in model.tables]  # a line for each score
    spread = [float(np.ptp(table, axis=1).max()) for table in tables]
    strongest = sorted(range(len(spread)), key=lambda j: -spread[j])[:7]
    figure = Figure(figsize=(13, 6), layout="constrained")
    axes = figure.subplots(2, 4).ravel()
    alarms, missed = np.array(privacy.trade_off)[1:].T  # but for no false alarms at all, which a log axis cannot show
    # "pre": up to each point what holds at that point, so that between two of them the drawing is on the safe side
    axes[0].step(alarms, 1 - missed, where="pre", label=f"best attack on this run ({privacy.guarantee})")
    axes[0].plot(alarms, alarms, ":", color="grey", label="guessing")
    axes[0].set(xlabel="false alarms", ylabel="members found", title="membership test (f-DP)")
    axes[0].set(xscale="log", yscale="log")
    axes[0].legend(fontsize=7)
    for ax, j in zip(axes[1:], strongest, strict=False):
        cells, scores = model.cells[j], tables[j]
        inner = cells.size - cells.hole
        if cells.numeric:
            edges = np.concatenate([[cells.column.low], cells.cuts, [cells.column.high]])
            for table in scores:
                ax.stairs(table[:inner], edges, baseline=None)
            if cells.column.spacing == "log":
                ax.set_xscale("symlog")
            ax.set_xlabel(cells.column.unit)
        else:
            names = [str(c)[:18] for c in cells.column.categories][:20]
            for k, table in enumerate(scores):
                ax.barh(np.arange(len(names)) + 0.8 * k / len(scores), table[:inner][:20], 0.8 / len(scores))
            ax.set_yticks(np.arange(len(names)), names)
            ax.tick_params(labelsize=6)
        ax.set_title(cells.column.name, fontsize=9)
        ax.axhline(0, color="grey", lw=0.5) if cells.numeric else ax.axvline(0, color="grey", lw=0.5)
    for ax in axes[1 + len(strongest) :]:
        ax.set_visible(False)
    figure.suptitle(
        f"{privacy.short()}: what each value adds to the {effect}, {len(strongest)} strongest of {len(spread)} columns"
    )
    save_figure(figure, path)
    return True
