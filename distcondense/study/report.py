"""The report of a study: one tidy table, Markdown shaped like paper 000's Tables 2, 3 and 4, and plots.

All of it is computed on patients and belongs to the custodian (`OUT/internal`). Every number stands with its interval,
every ε with its guarantee. `results` has one row per cell × tested on × trained on × metric.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from distcondense.privacy.accountant import Event, replay, unite
from distcondense.privacy.ledger import read_events
from distcondense.privacy.statement import shown
from distcondense.report.plots import _save
from distcondense.report.terminal import NAMES
from distcondense.runs.folder import RunFolder
from distcondense.study.cell import StudyFolder, _read
from distcondense.study.design import Cell, Study

WAYS = ("full", "private_model", "condensed", "random_real")
COVERED = ("condensed", "private_model")  # by the cell's guarantee; the others are models of patients
MAIN = {"binary": "auroc", "survival": "c_index"}
HEAD = """# Study {name}: for the custodian, not for release

Everything on this page and in this folder was computed on patients outside any privacy guarantee. What may be handed
over is in the `release/` folder of one cell, under the guarantee its `privacy.json` states. Choosing a cell by the
numbers below is itself not covered by that guarantee.

A number is the mean over seeds ± its standard deviation over them, and in brackets the 95% bootstrap interval over test
patients (its bounds averaged over seeds). IPC is the number of synthetic rows per class (survival: per event status).
ε is the largest over seeds. *end-to-end* is a theorem about patients; *as-published* is the accounting of paper 000,
which is not: the end-to-end worst case of the same noise is in the column `worst_case_epsilon_end_to_end` of
`results.csv`. "Random" is trained on as many random real rows of the same class balance, without any privacy.
"""
COLUMNS = (
    "study", "cell", "data", "task", "method", "mechanism", "reference", "ipc", "seed", "tested_on", "trained_on",
    "rows", "test_rows", "metric", "value", "low", "high", "epsilon", "guarantee", "delta",
    "worst_case_epsilon_end_to_end", "epsilon_asked", "guarantee_asked", "privacy", "note", "seconds",
)  # fmt: skip
TEXTS = {"study", "cell", "data", "task", "method", "mechanism", "reference", "tested_on", "trained_on", "metric",
         "guarantee", "worst_case_epsilon_end_to_end", "guarantee_asked", "privacy", "note"}  # fmt: skip


def write_report(study: Study, folder: StudyFolder, failed: Mapping[str, str]) -> pd.DataFrame:
    """Write results.parquet, results.csv, tables.md and the plots of the finished cells; the tidy table."""
    results = tidy(study, folder)
    room = folder.internal
    _whole(room / "results.parquet", lambda draft: results.to_parquet(draft, index=False))
    _whole(room / "results.csv", lambda draft: results.to_csv(draft, index=False))
    text = markdown(study, results, failed, spent(folder))
    _whole(room / "tables.md", lambda draft: draft.write_text(text, encoding="utf-8"))
    for task in MAIN:
        plot(results, task, "ipc", room / f"utility-vs-ipc-{task}.png")
        plot(results, task, "budget", room / f"utility-vs-epsilon-{task}.png")
    return results


def _whole(path: Path, write: Callable[[Path], object]) -> None:
    draft = path.with_name(path.name + ".draft")
    write(draft)
    os.replace(draft, path)


# -- the tidy table ---------------------------------------------------------------------------------------------------


def tidy(study: Study, folder: StudyFolder) -> pd.DataFrame:
    """All finished cells; a model that could not be fitted or had no answer has rows without a value, and a note."""
    rows = [row for cell in study.cells for row in _rows_of(study.name, cell, folder)]
    frame = pd.DataFrame(rows, columns=list(COLUMNS))
    kinds = {name: "string" if name in TEXTS else "float64" for name in COLUMNS}
    kinds |= dict.fromkeys(("ipc", "seed", "rows", "test_rows"), "Int64")
    return frame.astype(kinds)


def _rows_of(study: str, cell: Cell, folder: StudyFolder) -> Iterator[dict[str, Any]]:
    run = folder.run(cell)
    if not run.finished:
        return
    record = _read(run.internal / "run.json")
    privacy = json.loads((run.release / "privacy.json").read_text(encoding="utf-8"))
    tests = {cell.source.name: record["metrics"]}
    done = folder.elsewhere(cell)
    tests |= {source.name: done[source.name]["metrics"] for source, _ in cell.test_on if source.name in done}
    head = {
        "study": study, "cell": cell.name, "data": cell.data, "task": cell.goal.task, "method": cell.method,
        "mechanism": cell.mechanism, "reference": cell.reference, "ipc": cell.ipc, "seed": cell.seed,
        "epsilon_asked": cell.epsilon, "guarantee_asked": cell.guarantee if cell.epsilon is not None else "none",
        "seconds": record["timings_seconds"]["total"],
    }  # fmt: skip
    claim = {
        "epsilon": privacy["epsilon"], "guarantee": privacy["guarantee"], "delta": privacy["delta"],
        "privacy": record["privacy"], "worst_case_epsilon_end_to_end": privacy["worst_case_epsilon"] or None,
    }  # fmt: skip
    patients = {"guarantee": "none", "privacy": "none: trained on patients"}
    for place, metrics in tests.items():
        counts = metrics.get("rows", {})
        why = metrics.get("note", "")
        ways = [way for way in WAYS if way in metrics]
        if "condensed" not in ways:
            ways.append("condensed")
            why = why or ("no answer" if privacy.get("answer") else "not measured")
        for way in ways:
            found = metrics.get(way, {})
            note = found.get("failed", "") if way in metrics else why
            measured = [name for name in NAMES if name in found] or [MAIN[cell.goal.task]]
            for name in measured:
                yield {
                    **head, "tested_on": place, "trained_on": way, "rows": counts.get(way),
                    "test_rows": counts.get("test"), "metric": name, **(claim if way in COVERED else patients),
                    **{k: found.get(name, {}).get(k) for k in ("value", "low", "high")}, "note": note or None,
                }  # fmt: skip


def spent(folder: StudyFolder) -> dict[str, tuple[int, str]]:
    """Per table: how many private cells read its patients, and the end-to-end ε of all of them together, in words.

    Cells of earlier versions of the study file and unfinished ones count: their patients were read all the same.
    """
    accounts: dict[str, list[tuple[Event, ...]]] = {}
    names: dict[str, set[str]] = {}
    for path in sorted((folder.internal / "definitions").glob("*.json")):
        definition = _read(path)
        run = RunFolder(folder.cells / path.stem)
        events = unite(run.earlier_events(), read_events(run.ledger))
        if events:
            accounts.setdefault(definition["patients"], []).append(events)
            names.setdefault(definition["patients"], set()).add(definition["data"])
    out = {}
    for patients, found in accounts.items():
        out[", ".join(sorted(names[patients]))] = (len(found), _together(unite(*found)))
    return out


def _together(events: Sequence[Event]) -> str:
    delta = 1e-5
    if len({event.unit for event in events}) > 1:
        return "without a common bound, because some protect rows and some persons"
    return f"ε = {shown(replay(events, delta).epsilon, 3)} (end-to-end, δ = {delta:g})"


# -- Markdown ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    """One way to condense: what a row of a table is about."""

    method: str
    reference: str
    asked: float | None
    guarantee: str

    @property
    def words(self) -> str:
        asked = "" if self.asked is None else f", ε ≤ {self.asked:g} {self.guarantee}"
        return f"{self.method}, {self.reference}{asked}"

    def of(self, results: pd.DataFrame) -> pd.DataFrame:
        asked = results["epsilon_asked"]
        return results[
            (results["method"] == self.method)
            & (results["reference"] == self.reference)
            & (asked.isna() if self.asked is None else asked == self.asked)
        ]


def _at_home(results: pd.DataFrame) -> pd.Series[bool]:
    """Tested on the site's own patients."""
    return results["tested_on"] == results["data"].str.split(":").str[0]


def _lines_in(results: pd.DataFrame) -> list[_Line]:
    keys = results[["method", "reference", "epsilon_asked", "guarantee_asked"]].drop_duplicates()
    return [_Line(m, r, None if math.isnan(e) else e, g) for m, r, e, g in keys.itertuples(index=False)]


def markdown(
    study: Study, results: pd.DataFrame, failed: Mapping[str, str], read: Mapping[str, tuple[int, str]]
) -> str:
    """The whole page."""
    finished = results["cell"].nunique()
    parts = [HEAD.format(name=study.name), f"{finished} of {len(study.cells)} cells are in these tables.\n"]
    if read:
        parts.append("## What was read\n\nAn ε below is of one cell alone. Releases about the same patients add up:\n")
        parts += [f"- {data}: read by {cells} private cell{'s' if cells > 1 else ''}; all that was read: {words}"
                  for data, (cells, words) in read.items()]  # fmt: skip
        parts.append("")
    home, away = results[_at_home(results)], results[~_at_home(results)]
    parts += _by_ipc(home, "binary", "Overview. Binary outcomes")
    parts += _by_metric(home[home["task"] == "binary"], "Table 2. Binary outcomes, all metrics")
    parts += _by_ipc(home, "survival", "Table 3. Survival outcomes")
    parts += _by_metric(away, "Table 4. Other sites: trained at → tested at")
    if failed:
        parts.append("## Cells that failed\n")
        parts += [f"- `{name}`: {reason}" for name, reason in failed.items()]
    return "\n".join(parts).rstrip() + "\n"


def _by_ipc(home: pd.DataFrame, task: str, title: str) -> Iterator[str]:
    """Rows data × method, columns IPC: the shape of Table 3."""
    metric = MAIN[task]
    part = home[(home["task"] == task) & (home["metric"] == metric)]
    if part.empty:
        return
    ipcs = sorted(part["ipc"].unique())

    def cells(rows: pd.DataFrame, way: str, words: Callable[[pd.DataFrame], str]) -> list[str]:
        of_way = rows[rows["trained_on"] == way]
        return [words(of_way[of_way["ipc"] == ipc]) for ipc in ipcs]

    yield f"## {title}: {NAMES[metric]} by IPC\n"
    yield _row("data", "trained on", "full", *(f"IPC {ipc}" for ipc in ipcs))
    yield _rule(3 + len(ipcs))
    for data in part["data"].unique():
        here = part[part["data"] == data]
        for line in _lines_in(here):
            rows = line.of(here)
            full = _estimate(rows[rows["trained_on"] == "full"])
            yield _row(data, line.words, full, *cells(rows, "condensed", _estimate))
            yield _row("", "ε", "—", *cells(rows, "condensed", _epsilon))
            if "private_model" in set(rows["trained_on"]):
                yield _row("", "the private model itself", "", *cells(rows, "private_model", _estimate))
            yield _row("", "random", "", *cells(rows, "random_real", _estimate))
    yield ""


def _by_metric(results: pd.DataFrame, title: str) -> Iterator[str]:
    """A table per data set (and place of the test), rows IPC, columns metrics and ε: the shape of Table 2."""
    if results.empty:
        return
    yield f"## {title}\n"
    pairs = results[["data", "tested_on"]].drop_duplicates()
    for number, (data, place) in enumerate(pairs.itertuples(index=False)):
        here = results[(results["data"] == data) & (results["tested_on"] == place)]
        metrics = [name for name in NAMES if name in set(here["metric"])]
        yield f"### ({_letter(number)}) {data}{'' if _at_home(here).all() else f' → {place}'}\n"
        yield _row("trained on", "IPC", *(NAMES[name] for name in metrics), "ε")
        yield _rule(3 + len(metrics))
        for line in _lines_in(here):
            rows = line.of(here)
            for way, words in (("condensed", line.words), ("random_real", "random")):
                for ipc in sorted(rows["ipc"].unique()):
                    part = rows[(rows["trained_on"] == way) & (rows["ipc"] == ipc)]
                    if len(part):
                        yield _row(words, str(ipc), *_estimates(part, metrics), _epsilon(part))
            yield _row("full", "—", *_estimates(rows[rows["trained_on"] == "full"], metrics), "no privacy")
        yield ""


def _estimates(rows: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    return [_estimate(rows[rows["metric"] == metric]) for metric in metrics]


def _estimate(rows: pd.DataFrame) -> str:
    """0.714 ± 0.021 [0.675, 0.751]: mean ± sd over seeds, interval; in words where there is no number."""
    if rows.empty:
        return ""
    missing = int(rows["value"].isna().sum())
    lost = f" ({_why(rows)} in {missing} of {len(rows)})" if missing else ""
    # cells of one seed share their split (published) or their number of patients (private): the seed is the repetition
    seeds = rows.dropna(subset="value").groupby("seed")[["value", "low", "high"]].mean()
    if seeds.empty:
        return f"—{lost}"
    mean = seeds.mean()
    spread = f" ± {seeds['value'].std(ddof=1):.3f}" if len(seeds) > 1 else ""
    low, high = ("—" if math.isnan(mean[bound]) else f"{mean[bound]:.3f}" for bound in ("low", "high"))
    return f"{mean['value']:.3f}{spread} [{low}, {high}]{lost}"


def _why(rows: pd.DataFrame) -> str:
    notes = set(rows.loc[rows["value"].isna(), "note"].dropna())
    if not notes:
        return "undefined"  # nobody was flagged, so there is no PPV
    return "no answer" if notes == {"no answer"} else "not measured"


def _epsilon(rows: pd.DataFrame) -> str:
    """The largest over seeds, with its guarantee."""
    if rows.empty or rows["epsilon"].isna().all():
        return "no privacy" if len(rows) else ""
    return f"{shown(float(rows['epsilon'].max()), 3)} {rows['guarantee'].iloc[0]}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(columns: int) -> str:
    return "| --- " * columns + "|"


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else str(number + 1)


# -- plots ------------------------------------------------------------------------------------------------------------

AXES = {"ipc": "IPC: synthetic rows per class", "budget": "ε asked for, of the guarantee named in the legend"}


def plot(results: pd.DataFrame, task: str, against: str, path: Path) -> bool:
    """Utility against "ipc" or "budget" (ε), a panel per table and reference; False where there is nothing to draw."""
    path.unlink(missing_ok=True)  # of an earlier version of the study
    metric = MAIN[task]
    home = results[_at_home(results) & (results["task"] == task) & (results["metric"] == metric)].assign(
        budget=results["epsilon_asked"].fillna(results["epsilon"])
    )
    condensed = home[(home["trained_on"] == "condensed") & home[against].notna() & home["value"].notna()]
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
        _levels(axis, home[(home["data"] == data) & (home["reference"] == reference)], against)
        axis.set(title=f"{data}, {reference}", xlabel=AXES[against], xscale="log")
        axis.set_ylabel(f"{NAMES[metric]} on test patients")
        points = sorted(here[against].unique())
        axis.set_xticks(points, [f"{point:g}" for point in points])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle("For the custodian, not for release. Bars: 95% bootstrap intervals, mean over seeds", fontsize=9)
    _save(figure, path)
    return True


def _curves(axis: Any, here: pd.DataFrame, against: str) -> None:
    """One line per way to condense, with its intervals."""
    groups = here.groupby(["method", "guarantee", "budget" if against == "ipc" else "ipc"], sort=False, dropna=False)
    for number, (key, part) in enumerate(groups):
        method, guarantee, other = cast(tuple[str, str, float], key)
        mean = part.groupby(against)[["value", "low", "high"]].mean().astype(float)
        value, low, high = mean.to_numpy().T
        kind = "no privacy" if guarantee == "none" else guarantee
        kind = f"IPC {other}, {kind}" if against != "ipc" else kind if pd.isna(other) else f"ε {other:g} {kind}"
        aside = 1.02 ** (number - (len(groups) - 1) / 2)  # bars of several lines would hide each other
        axis.errorbar(
            mean.index.to_numpy(float) * aside, value, yerr=np.clip([value - low, high - value], 0, None),
            marker="o", markersize=4, capsize=3, linewidth=1.2, label=f"{method}, {kind}",
        )  # fmt: skip


def _levels(axis: Any, here: pd.DataFrame, against: str) -> None:
    """What to compare with: models of all real rows, and of as few random ones."""
    full = here.loc[here["trained_on"] == "full", "value"].mean()
    axis.axhline(full, color="black", linestyle="--", linewidth=1, label="full data, no privacy")
    few = here[here["trained_on"] == "random_real"].groupby("ipc")["value"].mean().astype(float)
    if against == "ipc":
        axis.plot(few.index.to_numpy(float), few.to_numpy(), color="grey", marker="x", markersize=4, linewidth=1,
                  linestyle=":", label="random rows, no privacy")  # fmt: skip
        return
    for number, (ipc, value) in enumerate(few.items()):
        axis.axhline(value, color="grey", linewidth=0.8, linestyle=":", label=None if number else "random rows")
        axis.annotate(f"IPC {ipc}", (1.0, value), xycoords=("axes fraction", "data"), fontsize=6, color="grey",
                      ha="right", va="bottom")  # fmt: skip
