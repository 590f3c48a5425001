"""Figures as matplotlib axes, for notebooks: the same data that the pages draw as SVG."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.errors import SettingsError
from distcondense.report.release_page import GALLERIES, trade_off
from distcondense.runs.figures import BARS, DOTS, HEAT, STEPS, Figure
from distcondense.runs.result import Result

TRADE_OFF = "trade_off"
ACROSS, WIDE, HIGH = 3, 4.2, 3.2  # figures in a row, inches of each
SHADE = 0.2  # opacity of a 95% band


def plotted(result: Result, which: str) -> NDArray[Any]:
    """The figures of one gallery of the release page, an axes each."""
    there = {name: result.covered[name] for name in GALLERIES if result.covered.get(name)}
    there |= {TRADE_OFF: figures} if (figures := tuple(trade_off(result.privacy.to_dict()))) else {}
    if which not in there:
        raise SettingsError(
            "plot",
            f"must be one of {', '.join([*GALLERIES, TRADE_OFF])}, as far as the result has them",
            found=repr(which) if isinstance(which, str) else f"a {type(which).__name__}",
            fix=f"this one has {', '.join(there) or 'none'}; report.html of its release shows all that it had",
        )
    try:
        from matplotlib import pyplot
    except ImportError:
        fix = "pip install 'distcondense[plot]'"
        raise SettingsError("the plot", "needs matplotlib", found="none", fix=fix) from None
    figures = there[which]
    across = min(ACROSS, len(figures))
    down = math.ceil(len(figures) / across)
    drawing, grid = pyplot.subplots(
        down, across, figsize=(WIDE * across, HIGH * down), squeeze=False, layout="constrained"
    )
    axes: NDArray[Any] = grid.ravel()
    for one, figure in zip(axes, figures, strict=False):
        _draw(one, figure)
    for one in axes[len(figures) :]:
        one.remove()
    _legends(drawing, axes[: len(figures)])
    drawing.suptitle(result.privacy.short())
    return axes[: len(figures)]


def _draw(axes: Any, figure: Figure) -> None:
    axes.set(title=figure.title, xlabel=figure.x, ylabel=figure.y)
    if figure.kind == HEAT:
        values = np.array([series.y for series in figure.series], float)
        axes.figure.colorbar(axes.pcolormesh(values, cmap="cividis"), ax=axes)
        columns = [str(x) for x in figure.series[0].x]
        axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=90)
        axes.set_yticks(np.arange(len(figure.series)) + 0.5, [series.name for series in figure.series])
        return
    for number, series in enumerate(figure.series):
        x: Any = list(map(str, series.x)) if any(isinstance(at, str) for at in series.x) else list(series.x)
        band = series.low is not None and series.high is not None
        label, colour = series.name or None, f"C{number}"
        if figure.kind == BARS:
            axes.bar(x, series.y, color=colour, alpha=0.7, label=label)
        elif figure.kind == STEPS:
            axes.step(x, series.y, where="post", color=colour, label=label)
        else:
            axes.plot(x, series.y, "o" if figure.kind == DOTS else ".-", color=colour, label=label)
        if band and figure.kind in (BARS, DOTS):
            middle = np.asarray(series.y, float)
            ends = np.maximum([middle - np.asarray(series.low), np.asarray(series.high) - middle], 0)
            axes.errorbar(x, series.y, ends, fmt="none", ecolor="black", elinewidth=1)
        elif band:
            how = {"step": "post"} if figure.kind == STEPS else {}
            axes.fill_between(x, series.low, series.high, color=colour, alpha=SHADE, **how)
    for name, level in figure.at:
        axes.axhline(level, color="grey", linestyle="--", label=name)
    if figure.diagonal:
        axes.axline((0, 0), slope=1, color="grey", linestyle=":")
    if figure.x_range is not None:
        axes.set_xlim(figure.x_range)
    if figure.y_range is not None:
        axes.set_ylim(figure.y_range)


def _legends(drawing: Any, axes: NDArray[Any]) -> None:
    """One for all figures, where all name the same series; else each has its own."""
    entries = [one.get_legend_handles_labels() for one in axes]
    names = {tuple(labels) for _, labels in entries}
    if len(axes) > 1 and len(names) == 1 and len(entries[0][1]) > 1:
        drawing.legend(*entries[0], loc="outside lower center", ncols=4)
        return
    for one, (handles, labels) in zip(axes, entries, strict=True):
        if len(labels) > 1:
            one.legend(handles, labels)
