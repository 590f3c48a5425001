"""What the numbers say: ratios within the run, growth along each series, a Markdown table and a log-log plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from distcondense.errors import UserError

Record = dict[str, Any]

# step against what: (other way, on the used features only, faster is good, the targets of Numba and C++)
CLAIMS = (
    ("naive XGBoost", False, True, ("≥ 10,000", "≥ 10,000")),
    ("inplace_predict", False, True, ("", "")),
    ("tl2cgen", False, True, ("≥ 1,000", "≥ 1,000")),
    ("tl2cgen", True, True, ("", "")),
    ("copy", False, False, ("≤ 10", "≤ 4")),
)
STEPS = ("fused/Numba", "fused/C++")
STYLES = {"used columns": "--", "sparse": "-.", "copy": ":"}  # of the plot's lines


def _seconds(results: Sequence[Record], problem: str, adapter: str) -> dict[str, float]:
    """Median and minimum; empty where it was not measured."""
    seconds = (r["seconds"] for r in results if r["problem"] == problem and r["adapter"] == adapter)
    return next(seconds, None) or {}


def ratios(results: Sequence[Record], facts: Sequence[Record]) -> list[Record]:
    """The whole step against Jacobians alone and against the copy, on the base problem, from this run's numbers."""
    base, rows = facts[0], []
    for step in STEPS:
        mine = _seconds(results, base["name"], step)
        for other, used_only, faster, targets in CLAIMS:
            theirs = _seconds(results, base["name"], other)
            share = base["used_features"] / base["features"] if used_only else 1.0
            times = {key: theirs[key] * share / mine[key] for key in mine if key in theirs}
            against = f"{other}'s Jacobian" if faster else "the copy control"
            row = {
                "step": step,
                "against": against + (", used features only" if used_only else ""),
                "meaning": "times faster" if faster else "times as long",
                "median": None,
                "min": None,
                "asked": targets[STEPS.index(step)],
            }
            rows.append(row | {key: value if faster else 1 / value for key, value in times.items()})
    return rows


def growth(results: Sequence[Record], facts: Sequence[Record], vary: Mapping[str, Any]) -> list[Record]:
    """For each series and way: seconds at each size, last over first, and the slope of log seconds on log size."""
    rows: list[Record] = []
    names = list(dict.fromkeys(result["adapter"] for result in results if result["adapter"] != "do nothing"))
    for size, adapter in product(vary, names):
        points = sorted((p for p in facts if size in p["series"]), key=lambda p: int(p[size]))
        known = [(p[size], seconds) for p in points if (seconds := _seconds(results, p["name"], adapter))]
        if len(known) < 2:
            continue
        row: Record = {"series": size, "adapter": adapter, "sizes": [value for value, _ in known]}
        for key in ("median", "min"):
            line = [seconds[key] for _, seconds in known]
            row |= {key: line, f"{key}_growth": line[-1] / line[0]}
        row["exponent"] = math.log(row["min_growth"]) / math.log(known[-1][0] / known[0][0])
        rows.append(row)
    return rows


def short_time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"


def cell(result: Record) -> str:
    """Median and how it came about, or why there is none."""
    if result["seconds"] is None:
        return str(result["status"])
    return short_time(result["seconds"]["median"]) + (f" ({result['note']})" if result["note"] else "")


def markdown(record: Record) -> str:
    m, base = record["machine"], record["problems"][0]
    adapters = {adapter["name"]: adapter for adapter in record["adapters"]}
    lines = [
        f"# Benchmark, {record['mode']} mode",
        "",
        f"`{record['command']}`, {record['started']}, {record['seconds']:.0f} s, **{record['threads']} thread(s)**. "
        f"{m['cpu']}, {m['cores']} cores, native kernels: {m['isa'] or 'none'}; load average {_loads(m)}.",
        "",
        f"Versions: {', '.join(f'{k} {v}' for k, v in m['versions'].items() if v)}, Python {m['python']}.",
        "",
        f"## The whole step, {base['rows']:,} × {base['features']:,}, {base['trees']} trees, depth {base['depth']} "
        f"({base['used_features']:,} features used)",
        "",
        "| whole step | against | by medians | by minima | asked |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for r in record["ratios"]:
        values = [
            f"{r[key]:,.3g}×" if r[key] and r[key] < 100 else f"{r[key]:,.0f}×" if r[key] else "—"
            for key in ("median", "min")
        ]
        lines.append(f"| {r['step']} | {r['against']} ({r['meaning']}) | {values[0]} | {values[1]} | {r['asked']} |")
    lines += [
        "",
        "## One step on that problem, way by way",
        "",
        "| way | | median | min | repeats | measured on | peak memory | max difference |",
        "| --- | --- | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for r in (r for r in record["results"] if r["problem"] == base["name"]):
        head = f"| {r['adapter']} | {r['what']}: {adapters[r['adapter']]['says']} "
        if r["seconds"] is None:
            lines.append(f"{head}| {r['status']} | | | | | |")
            continue
        times = f"{short_time(r['seconds']['median'])} | {short_time(r['seconds']['min'])} | {r['repeats']}"
        difference = "" if r["max_difference"] is None else f"{r['max_difference']:.1e}"
        lines.append(f"{head}| {times} | {r['note'] or 'all'} | {_memory(r['peak_memory'])} | {difference} |")
    for size in dict.fromkeys(entry["series"] for entry in record["growth"]):
        lines += _series(record, size)
    lines += ["", "## How", ""] + [f"- {key}: {text}." for key, text in record["method"].items()]
    lines.append("- growth: the same trees (trained on few features) placed among d columns; exponent by minima.")
    if record.get("plot"):
        lines += ["", f"![seconds against size, log-log]({record['plot']})"]
    return "\n".join(lines) + "\n"


def _series(record: Record, size: str) -> list[str]:
    entries = [entry for entry in record["growth"] if entry["series"] == size]
    sizes = max((entry["sizes"] for entry in entries), key=len)
    slow = {r["adapter"] for r in record["results"] if r["scaled"]}
    lines = [
        "",
        f"## {size.capitalize()} varied, median",
        "",
        f"| way | {' | '.join(f'{value:,}' for value in sizes)} | growth (by minima) | exponent |",
        f"| --- | {'---: | ' * len(sizes)}---: | ---: |",
    ]
    for entry in entries:
        known = dict(zip(entry["sizes"], entry["median"], strict=True))
        cells = " | ".join(short_time(known[value]) if value in known else "—" for value in sizes)
        mark = " (scaled)" if entry["adapter"] in slow else ""
        grew = f"{entry['median_growth']:.2f}× ({entry['min_growth']:.2f}×)"
        lines.append(f"| {entry['adapter']}{mark} | {cells} | {grew} | {entry['exponent']:.2f} |")
    return lines


def _loads(m: Record) -> str:
    return " → ".join(str(load[0]) if load else "?" for load in (m["load_average_start"], m["load_average_end"]))


def _memory(peak: Record | None) -> str:
    if peak is None:
        return ""
    return f"{peak['peak_bytes'] / 2**20:,.0f} MiB" if "peak_bytes" in peak else f"not measured: {peak['error']}"


def plot(record: Record, path: Path) -> None:
    """One log-log panel per series, one line per way; hollow marks are scaled from a sample of features."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("the plot", "needs matplotlib", found="none", fix="pip install 'distcondense[plot]'") from None
    matplotlib.use("Agg", force=False)
    from matplotlib.figure import Figure

    slow = {r["adapter"] for r in record["results"] if r["scaled"]}
    names = [a["name"] for a in record["adapters"]]
    series = list(dict.fromkeys(entry["series"] for entry in record["growth"])) or ["features"]
    figure = Figure(figsize=(12, 4.2 * math.ceil(len(series) / 2)), layout="constrained")
    panels = figure.subplots(math.ceil(len(series) / 2), 2, sharey=True, squeeze=False).ravel()
    for panel, size in zip(panels, series, strict=False):
        for entry in (entry for entry in record["growth"] if entry["series"] == size):
            name = entry["adapter"]
            colour = "black" if name == "copy" else f"C{names.index(name) % 10}"
            panel.plot(
                entry["sizes"],
                entry["median"],
                marker="o",
                color=colour,
                label=name,
                linestyle=next((style for part, style in STYLES.items() if part in name), "-"),
                markerfacecolor="white" if name in slow else None,
            )
        panel.set(xscale="log", yscale="log", xlabel=size, ylabel="seconds per step, median")
        ticks = sorted({value for entry in record["growth"] if entry["series"] == size for value in entry["sizes"]})
        panel.set_xticks(ticks, [f"{value:,}" for value in ticks])
        panel.set_xticks([], minor=True)
        panel.set_title(f"{size} varied", fontsize=10)
        panel.grid(alpha=0.3, which="both", linewidth=0.4)
    for panel in panels[len(series) :]:
        panel.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    figure.suptitle(f"One step, {record['threads']} thread(s); hollow: sample of features, scaled", fontsize=11)
    figure.savefig(path, dpi=130, format="png")  # whatever a draft is called
