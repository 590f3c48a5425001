"""The report of a study: the tidy table, Markdown shaped like Thakur et al. 2026's Tables 2, 3 and 4, and a page.

All of it is computed on patients and belongs to the custodian (`OUT/internal`). Every number stands with its interval,
every ε with its guarantee. Kinds of outcome are those found in the results: a section each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, cast

import pandas as pd

from distcondense.evaluation.experiment import NOT_DEFINED
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, REFERENCE, TRAINED_ON
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import rounded_up
from distcondense.report.study_page import study_page
from distcondense.report.text import estimate, markdown_table
from distcondense.runs.figures import LINES, Figure, Series
from distcondense.runs.files import plain, write_json, write_text, write_whole
from distcondense.runs.release import software
from distcondense.study.accounts import account_words
from distcondense.study.comparison import behind, decisions, in_markdown, overview, pictures, promises
from distcondense.study.design import Study
from distcondense.study.external import NO_RESULTS, ExternalResults
from distcondense.study.folder import StudyFolder
from distcondense.study.results import FAILED, QUICK, SeedMean, results_table

HEAD = """# Study {name}: for the custodian, not for release

Everything on this page and in this folder was computed on patients outside any privacy guarantee. What may be handed
over is in the `release/` folder of one cell, under the guarantee its `privacy.json` states. Choosing a cell by the
numbers below is itself not covered by that guarantee.

A number is the mean over seeds ± its standard deviation over them, and in brackets the 95% interval over test
patients (its bounds averaged over seeds). IPC is the number of synthetic rows per class, event status or stratum of the
outcome. ε is the largest over seeds. *end-to-end* is a theorem about patients; *conditional* is one only if the schema
or outcome values that were read off the patients are public anyway; *as-published* is the accounting of Thakur et al.,
which is not: the end-to-end worst case of the same noise is in the column `worst_case_epsilon_end_to_end` of
`results.csv`. "Random" is trained on as many random real rows of the same balance, without any privacy. Tables by IPC
have the shape of the paper's Table 3, those of all metrics of its Table 2, those of other sites of its Table 4.
"""
AGAINST = {  # column → a word for it, and what stands below the axis
    "ipc": ("IPC", "IPC: synthetic rows per class, event status or stratum"),
    "budget": ("ε", "ε asked for, of the guarantee named in the legend"),
}
ABOUT = "Means over seeds with 95% intervals over test patients. Dashed: models of real rows, without any privacy."
LOOKED_AT = (  # of tables.md: all others would be copied by every choice of rows
    "data", "tested_on", "outcome", "main", "metric", "method", "reference", "epsilon_asked", "guarantee_asked", "ipc",
    "trained_on", "seed", "value", "low", "high", "rows", "note", "epsilon", "guarantee",
)  # fmt: skip
LIMIT = "Choosing a cell by these numbers is not covered by its guarantee."


def write_report(study: Study, folder: StudyFolder, external: ExternalResults = NO_RESULTS) -> pd.DataFrame:
    """Write results.parquet, results.csv, tables.md, decide.md, report.json and the page of the finished cells.

    Parameters
    ----------
    study : Study
        The checked study file.
    folder : StudyFolder
        Where its cells lie; the report goes to its `internal/`.
    external : ExternalResults
        What other machines made of the study; cells that are finished here are this one's.

    Returns
    -------
    DataFrame
        All results, a row a score (`study.results`).
    """
    everything, internal = results_table(study, folder), folder.internal
    read = {
        data: f"read by {_cells(many)} through the gate; all that was read: {words}"
        for data, (many, words) in account_words(folder).items()
    }
    if len(more := external.without(set(everything["key"]))):
        everything = pd.concat([everything, more], ignore_index=True) if len(everything) else more
        read |= {"made elsewhere": f"{_cells(more['key'].nunique())}; what they read is in none of these sums"}
    write_whole(internal / "results.parquet", lambda draft: everything.to_parquet(draft, index=False))
    write_whole(internal / "results.csv", lambda draft: everything.to_csv(draft, index=False))
    failed, results = everything[everything["part"] == FAILED], everything[everything["part"] != FAILED]
    reasons = {str(cell): str(note) for cell, note in zip(failed["cell"], failed["note"], strict=True)}
    quick, here = results[results["part"] == QUICK], results[at_home(results)]
    write_text(internal / "tables.md", markdown(study, quick, reasons, read))
    report = study_report(study.name, len(study.cells), quick[at_home(quick)], reasons, read)
    if here["method"].nunique() > 1:  # several methods to decide between
        told, tables, promised = behind(here), [*overview(here), *decisions(here, failed)], promises(here)
        report |= plain(
            {
                "decisions": [asdict(table) for table in tables],
                "verdict": [*told, LIMIT],
                "limits": [*promised, LIMIT],
                "comparisons": [asdict(figure) for figure in pictures(here)],
            }
        )
        done = results["cell"].nunique()
        write_text(internal / "decide.md", in_markdown(study.name, done, len(study.cells), told, tables, promised))
    write_json(internal / "report.json", report)
    write_text(internal / "report.html", study_page(report))
    return everything


def _cells(many: int) -> str:
    return "1 cell" if many == 1 else f"{many} cells"


def at_home(results: pd.DataFrame) -> pd.Series[bool]:
    """Tested on the site's own patients."""
    return results["tested_on"] == results["data"].str.split(":").str[0]


def markdown(study: Study, results: pd.DataFrame, failed: Mapping[str, str], read: Mapping[str, str]) -> str:
    """tables.md."""
    finished, results = results["cell"].nunique(), results[list(LOOKED_AT)]
    lines = [HEAD.format(name=study.name), f"{finished} of {len(study.cells)} cells are in these tables.\n"]
    if read:
        lines.append("## What was read\n\nAn ε below is of one cell alone. Releases about the same patients add up:\n")
        lines += [*(f"- {data}: {words}" for data, words in read.items()), ""]
    home, away = results[at_home(results)], results[~at_home(results)]
    for outcome, here in home.groupby("outcome", sort=False):
        name = f"{str(outcome).capitalize()} outcomes"
        lines += _by_ipc(here[here["main"]], name)
        if here["metric"].nunique() > 1:
            lines += _by_metric(here, f"{name}, all metrics")
    if len(away):
        lines += _by_metric(away, "Other sites: trained at → tested at")
    if failed:
        lines.append("## Cells that failed\n")
        lines += [f"- `{name}`: {reason}" for name, reason in failed.items()]
    return "\n".join(lines).rstrip() + "\n"


def _ways(results: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each way to condense, in words, and its rows."""
    keys = ["method", "reference", "epsilon_asked", "guarantee_asked"]
    for key, rows in results.groupby(keys, sort=False, dropna=False):
        method, reference, epsilon, guarantee = cast(tuple[str, str, float, str], key)
        words = "" if math.isnan(epsilon) else f", ε ≤ {epsilon:g} {guarantee}"
        yield f"{method}, {reference}{words}", rows


def _by_ipc(main: pd.DataFrame, name: str) -> list[str]:
    """Rows data × method, columns IPC, of the main metric."""
    ipcs = sorted(main["ipc"].unique())
    table = []
    for data, here in main.groupby("data", sort=False):
        for words, rows in _ways(here):
            by_way = {
                way: [rows[(rows["trained_on"] == way) & (rows["ipc"] == ipc)] for ipc in ipcs]
                for way in (CONDENSED, REFERENCE, RANDOM)
            }
            full = _estimate(rows[rows["trained_on"] == FULL])
            table.append([str(data), words, full, *map(_estimate, by_way[CONDENSED])])
            table.append(["", "ε", "—", *map(_epsilon, by_way[CONDENSED])])
            if any(map(len, by_way[REFERENCE])):
                table.append(["", TRAINED_ON[REFERENCE].lower(), "", *map(_estimate, by_way[REFERENCE])])
            table.append(["", "random", "", *map(_estimate, by_way[RANDOM])])
    columns = ["data", "trained on", "full", *(f"IPC {ipc}" for ipc in ipcs)]
    return [f"## {name}: {title(main['metric'].iloc[0])} by IPC\n", *markdown_table(columns, table), ""]


def _by_metric(results: pd.DataFrame, heading: str) -> Iterator[str]:
    """A table per data set (and place of the test), rows IPC, columns metrics and ε."""
    yield f"## {heading}\n"
    for number, ((data, place), here) in enumerate(results.groupby(["data", "tested_on"], sort=False)):  # type: ignore[misc]
        metrics = list(here["metric"].unique())
        table = []
        for words, rows in _ways(here):
            for way, name in ((CONDENSED, words), (RANDOM, "random")):
                for ipc, part in rows[rows["trained_on"] == way].groupby("ipc"):
                    table.append([name, str(ipc), *_estimates(part, metrics), _epsilon(part)])
            table.append(["full", "—", *_estimates(rows[rows["trained_on"] == FULL], metrics), "no privacy"])
        letter = chr(ord("a") + number) if number < 26 else str(number + 1)
        yield f"### ({letter}) {data}{'' if at_home(here).all() else f' → {place}'}\n"
        yield from markdown_table(["trained on", "IPC", *map(title, metrics), "ε"], table)
        yield ""


def _estimates(rows: pd.DataFrame, metrics: Iterable[str]) -> list[str]:
    groups = dict(list(rows.groupby("metric", sort=False)))
    return [_estimate(groups[metric]) if metric in groups else "" for metric in metrics]


def _estimate(rows: pd.DataFrame) -> str:
    """0.714 ± 0.021 [0.675, 0.751]: mean ± sd over seeds, interval; in words where there is no number."""
    if rows.empty:
        return ""
    mean, missing = SeedMean.from_rows(rows), rows[rows["value"].isna()]
    words = estimate(*mean.bounds, mean.plus_minus)
    if missing.empty:
        return words
    why = "no answer" if (missing["rows"] == 0).all() else "not measured"
    why = "undefined" if (missing["note"] == NOT_DEFINED).all() else why
    return f"{words} ({why} in {len(missing)} of {len(rows)})"


def _epsilon(rows: pd.DataFrame) -> str:
    """The largest over seeds, with its guarantee."""
    if rows.empty or rows["epsilon"].isna().all():
        return "no privacy" if len(rows) else ""
    return f"{rounded_up(float(rows['epsilon'].max()), 3)} {rows['guarantee'].iloc[0]}"


# -- the page: every cell ---------------------------------------------------------------------------------------------


def study_report(
    name: str, cells: int, home: pd.DataFrame, failed: Mapping[str, str], read: Mapping[str, str]
) -> dict[str, Any]:
    """What the page shows, as plain data. `home`: results of tests on each site's own patients."""
    main = home[home["main"]].assign(budget=lambda frame: frame["epsilon_asked"].fillna(frame["epsilon"]))
    report: dict[str, Any] = plain(
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
    return report


def _grid(main: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """A row for each way to condense each table."""
    keys = ["data", "metric", "method", "reference", "budget", "ipc"]
    for key, part in main.groupby(keys, sort=False, dropna=False):
        data, metric, method, reference, _, ipc = cast(tuple[Any, ...], key)
        condensed = part[part["trained_on"] == CONDENSED]
        if condensed.empty:
            continue
        yield {
            "table": data,
            "measure": title(metric),
            "method": method,
            "student": reference,
            "epsilon": _promise(condensed),
            "ipc": int(ipc),
            "seeds": int(condensed["seed"].nunique()),
            "condensed": SeedMean.from_rows(condensed).bounds,
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
