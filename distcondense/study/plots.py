"""Plots of a study: the main metric against IPC and against ε, a file per kind of outcome, a panel per table."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from distcondense.evaluate.score import CONDENSED, FULL, RANDOM
from distcondense.outcomes.measures import title
from distcondense.runs.files import save_figure

AGAINST = {  # column → name in files, and what stands below the axis
    "ipc": ("ipc", "IPC: synthetic rows per class, event status or stratum"),
    "budget": ("epsilon", "ε asked for, of the guarantee named in the legend"),
}


def draw_all(home: pd.DataFrame, room: Path) -> None:
    """Every plot that the results of tests at home allow; those of an earlier version of the study go."""
    for path in room.glob("utility-vs-*.png"):
        path.unlink()
    main = home[home["main"]].assign(budget=lambda frame: frame["epsilon_asked"].fillna(frame["epsilon"]))
    for outcome in main["outcome"].unique():
        for against, (name, _) in AGAINST.items():
            draw(main[main["outcome"] == outcome], against, room / f"utility-vs-{name}-{outcome}.png")


def draw(main: pd.DataFrame, against: str, path: Path) -> bool:
    """The main metric against "ipc" or "budget", a panel per table and reference; False where there is nothing."""
    condensed = main[(main["trained_on"] == CONDENSED) & main[against].notna() & main["value"].notna()]
    if condensed.empty:
        return False
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        return False
    panels = list(condensed[["data", "reference"]].drop_duplicates().itertuples(index=False, name=None))
    down, across = math.ceil(len(panels) / 2), min(len(panels), 2)
    figure = Figure(figsize=(7.5 * across, 4 * down), layout="constrained")
    axes = np.atleast_1d(figure.subplots(down, across)).ravel()
    for axis, (data, reference) in zip(axes, panels, strict=False):
        here = condensed[(condensed["data"] == data) & (condensed["reference"] == reference)]
        _curves(axis, here, against)
        _levels(axis, main[(main["data"] == data) & (main["reference"] == reference)], against)
        axis.set(title=f"{data}, {reference}", xlabel=AGAINST[against][1], xscale="log")
        axis.set_ylabel(f"{title(here['metric'].iloc[0])} on test patients")
        points = sorted(here[against].unique())
        axis.set_xticks(points, [f"{point:g}" for point in points])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle("For the custodian, not for release. Bars: 95% bootstrap intervals, mean over seeds", fontsize=9)
    save_figure(figure, path)
    return True


def _curves(axis: Any, here: pd.DataFrame, against: str) -> None:
    """One line per way to condense, with its intervals."""
    groups = here.groupby(["method", "guarantee", "budget" if against == "ipc" else "ipc"], sort=False, dropna=False)
    for number, (key, part) in enumerate(groups):
        method, guarantee, other = cast(tuple[str, str, float], key)
        mean = part.groupby(against)[["value", "low", "high"]].mean().astype(float)
        value, low, high = mean.to_numpy().T
        promise = "no privacy" if guarantee == "none" else guarantee
        if against != "ipc":
            promise = f"IPC {other}, {promise}"
        elif not pd.isna(other):
            promise = f"ε {other:g} {promise}"
        aside = 1.02 ** (number - (len(groups) - 1) / 2)  # bars of several lines would hide each other
        axis.errorbar(
            mean.index.to_numpy(float) * aside, value, yerr=np.clip([value - low, high - value], 0, None),
            marker="o", markersize=4, capsize=3, linewidth=1.2, label=f"{method}, {promise}",
        )  # fmt: skip


def _levels(axis: Any, here: pd.DataFrame, against: str) -> None:
    """What to compare with: models of all real rows, and of as few random ones."""
    full = here.loc[here["trained_on"] == FULL, "value"].mean()
    axis.axhline(full, color="black", linestyle="--", linewidth=1, label="full data, no privacy")
    few = here[here["trained_on"] == RANDOM].groupby("ipc")["value"].mean().astype(float)
    if against == "ipc":
        axis.plot(few.index.to_numpy(float), few.to_numpy(), color="grey", marker="x", markersize=4, linewidth=1,
                  linestyle=":", label="random rows, no privacy")  # fmt: skip
        return
    for number, (ipc, value) in enumerate(few.items()):
        axis.axhline(value, color="grey", linewidth=0.8, linestyle=":", label=None if number else "random rows")
        axis.annotate(f"IPC {ipc}", (1.0, value), xycoords=("axes fraction", "data"), fontsize=6, color="grey",
                      ha="right", va="bottom")  # fmt: skip
