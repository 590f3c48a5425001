"""A study on one page: its grid, and the main metric against IPC and ε, as figures with their data behind them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast

import pandas as pd

from distcondense.evaluation.score import CONDENSED, FULL, RANDOM
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import rounded_up
from distcondense.runs.figures import LINES, Figure, Series
from distcondense.runs.files import plain
from distcondense.runs.release import software
from distcondense.study.results import SeedMean

AGAINST = {  # column → a word for it, and what stands below the axis
    "ipc": ("IPC", "IPC: synthetic rows per class, event status or stratum"),
    "budget": ("ε", "ε asked for, of the guarantee named in the legend"),
}
ABOUT = "Means over seeds with 95% intervals over test patients. Dashed: models of real rows, without any privacy."
LIMIT = "Choosing a cell by these numbers is not covered by its guarantee."


def study_report(
    name: str, cells: int, home: pd.DataFrame, failed: Mapping[str, str], read: Mapping[str, str]
) -> dict[str, Any]:
    """What the page shows, as plain data. `home`: results of tests on each site's own patients."""
    main = home[home["main"]].assign(budget=lambda frame: frame["epsilon_asked"].fillna(frame["epsilon"]))
    found: dict[str, Any] = plain(
        {
            "format": 1,
            "name": name,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": software()["version"],
            "finished": home["cell"].nunique(),
            "cells": cells,
            "verdict": [LIMIT],
            "read": dict(read),
            "titles": {
                "ipc": "IPC",
                "epsilon": "ε, with its guarantee",
                "full": "real rows",
                "random": "random real rows",
            },
            "grid": list(_grid(main)),
            "figures": [asdict(figure) for figure in figures(main)],
            "failed": dict(failed),
            "limits": [LIMIT],
        }
    )
    return found


def _grid(main: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A row for each way to condense each table."""
    keys = ["data", "metric", "method", "reference", "budget", "ipc"]
    for key, part in main.groupby(keys, sort=False, dropna=False):
        data, metric, method, reference, _, ipc = cast(tuple[Any, ...], key)
        made = part[part["trained_on"] == CONDENSED]
        if made.empty:
            continue
        yield {
            "table": data,
            "measure": title(metric),
            "method": method,
            "student": reference,
            "epsilon": _promise(made),
            "ipc": int(ipc),
            "seeds": int(made["seed"].nunique()),
            "condensed": SeedMean.from_rows(made).bounds,
            "full": SeedMean.from_rows(part[part["trained_on"] == FULL]).bounds,
            "random": SeedMean.from_rows(part[part["trained_on"] == RANDOM]).bounds,
        }


def _promise(rows: pd.DataFrame) -> str:
    known = rows["epsilon"].dropna()
    guarantee = rows["guarantee"].iloc[0]
    return "no privacy" if known.empty else f"ε = {rounded_up(float(known.max()), 3)} ({guarantee})"


def figures(main: pd.DataFrame) -> Iterator[Figure]:
    """The main metric against IPC and against ε, one for each table and reference."""
    condensed = main[(main["trained_on"] == CONDENSED) & main["value"].notna()]
    panels = condensed[["data", "reference", "metric"]].drop_duplicates().itertuples(index=False, name=None)
    for number, (data, reference, metric) in enumerate(panels):
        of_panel = (main["data"] == data) & (main["reference"] == reference) & (main["metric"] == metric)
        here = condensed[of_panel.reindex(condensed.index)]
        full = float(main.loc[of_panel & (main["trained_on"] == FULL), "value"].astype(float).mean())
        for against, (word, axis) in AGAINST.items():
            lines = tuple(_lines(here[here[against].notna()], against))
            if not lines:
                continue
            if against == "ipc":
                lines += tuple(_random(main[of_panel & (main["trained_on"] == RANDOM)]))
            yield Figure(
                f"{against}-{number}",
                LINES,
                f"{data}, {reference}: {title(metric)} against {word}",
                ABOUT,
                axis,
                f"{title(metric)} on test patients",
                lines,
                at=() if math.isnan(full) else (("real rows, no privacy", full),),
            )


def _lines(here: pd.DataFrame, against: str) -> Iterator[Series]:
    """One line per way to condense, with its intervals."""
    other = "budget" if against == "ipc" else "ipc"
    for key, part in here.groupby(["method", "guarantee", other], sort=False, dropna=False):
        method, guarantee, at = cast(tuple[str, str, float], key)
        promise = "no privacy" if guarantee == "none" else guarantee
        if against != "ipc":
            promise = f"IPC {at}, {promise}"
        elif not pd.isna(at):
            promise = f"ε {at:g} {promise}"
        mean = part.groupby(against)[["value", "low", "high"]].mean().astype(float)
        x = tuple(float(value) for value in mean.index)
        yield Series(f"{method}, {promise}", x, tuple(mean["value"]), tuple(mean["low"]), tuple(mean["high"]))


def _random(rows: pd.DataFrame) -> Iterator[Series]:
    few = rows.groupby("ipc")["value"].mean().astype(float).dropna()
    if len(few):
        yield Series("random real rows, no privacy", tuple(float(ipc) for ipc in few.index), tuple(few))
