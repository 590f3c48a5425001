"""The report of a study: the tidy table, Markdown shaped like Thakur et al. 2026's Tables 2, 3 and 4, and a page.

All of it is computed on patients and belongs to the custodian (`OUT/internal`). Every number stands with its interval,
every ε with its guarantee. Kinds of outcome are those found in the results: a section each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.evaluation.experiment import NOT_DEFINED
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, REFERENCE, TRAINED_ON
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import rounded_up
from distcondense.report.picture import panels
from distcondense.report.study_page import study_page
from distcondense.report.text import estimate, markdown_table
from distcondense.runs.figures import LINES, Figure, Series
from distcondense.runs.files import plain, write_json, write_text, write_whole
from distcondense.runs.release import software
from distcondense.study.accounts import account_words
from distcondense.study.answer import ABOUT as ABOUT_EPSILON
from distcondense.study.answer import against_epsilon, answer
from distcondense.study.comparison import StudyComparison, behind, decisions, in_markdown, overview, pictures, promises
from distcondense.study.design import Study
from distcondense.study.external import NO_RESULTS, ExternalResults
from distcondense.study.folder import StudyFolder
from distcondense.study.results import (
    FAILED,
    QUICK,
    ScoreRows,
    SeedMean,
    cells_table,
    mean_of,
    results_table,
    scores_table,
)

HEAD = """# Study {name}: for the custodian, not for release

Everything on this page and in this folder was computed on patients outside any privacy guarantee. What may be handed
over is in the `release/` folder of one cell, under the guarantee its `privacy.json` states. Choosing a cell by the
numbers below is itself not covered by that guarantee.

A number is the mean over seeds ± its standard deviation over them, and in brackets the 95% interval over test
patients (its bounds averaged over seeds). IPC is the number of synthetic rows per class, event status or stratum of the
outcome. ε is the largest over seeds. *end-to-end* is a theorem about patients; *conditional* is one only if the schema
or outcome values that were read off the patients are public anyway; *as-published* is the accounting of Thakur et al.,
which is not: the end-to-end worst case of the same noise is in the column `worst_case_epsilon_end_to_end` of
`cells.csv`. "Random" is trained on as many random real rows of the same balance, without any privacy. Tables by IPC
have the shape of the paper's Table 3, those of all metrics of its Table 2, those of other sites of its Table 4.
"""
AGAINST = {  # column → a word for it, and what stands below the axis
    "ipc": ("IPC", "IPC: synthetic rows per class, event status or stratum"),
    "budget": ("ε", "ε asked for, of the guarantee named in the legend"),
}
ABOUT = "Means over seeds with 95% intervals over test patients. Dashed: models of real rows, without any privacy."
LIMIT = "Choosing a cell by these numbers is not covered by its guarantee."


def write_report(study: Study, folder: StudyFolder, external: ExternalResults = NO_RESULTS) -> pd.DataFrame:
    """Write results.parquet, results.csv, cells.csv, tables.md, report.json and the page of the finished cells.

    Of several methods decide.md and methods.svg, too: which method when.

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
    write_whole(internal / "results.csv", lambda draft: _write_csv(scores_table(everything), draft))
    write_whole(internal / "cells.csv", lambda draft: _write_csv(cells_table(everything), draft))
    rows = ScoreRows.from_frame(everything)
    failed, results = rows.where(rows["part"] == FAILED), rows.where(rows["part"] != FAILED)
    reasons = {str(cell): str(note) for cell, note in zip(failed["cell"], failed["note"], strict=True)}
    quick, here = results.where(results["part"] == QUICK), results.where(at_home(results))
    write_text(internal / "tables.md", markdown(study, quick, reasons, read))
    report = study_report(study.name, len(study.cells), quick.where(at_home(quick)), reasons, read)
    if len(set(here["method"])) > 1:  # several methods to decide between
        compared = StudyComparison(here, failed)
        told, tables, promised = behind(compared), [*overview(compared), *decisions(compared)], promises(compared)
        lines = answer(compared, study.seen_by)
        report |= plain(
            {
                "decisions": [asdict(table) for table in tables],
                "verdict": [*(f"{need}: {words}" for need, words in lines), *told, LIMIT],
                "limits": [*promised, LIMIT],
                "comparisons": [asdict(figure) for figure in pictures(compared)],
            }
        )
        done = len(set(results["cell"]))
        text = in_markdown(study.name, done, len(study.cells), lines, told, tables, promised)
        write_text(internal / "decide.md", text)
        if drawn := list(against_epsilon(compared)):
            under = f"study {study.name}: {done} of {len(study.cells)} cells"
            picture = panels(drawn, "Which method when", under, ABOUT_EPSILON, one_legend=True)
            write_text(internal / "methods.svg", picture)
    write_json(internal / "report.json", report)
    write_text(internal / "report.html", study_page(report))
    return everything


def _write_csv(table: pd.DataFrame, draft: Path) -> None:
    """By Arrow, in a tenth of pandas' time."""
    import pyarrow.csv

    pyarrow.csv.write_csv(pyarrow.Table.from_pandas(table, preserve_index=False), str(draft))


def _cells(many: int) -> str:
    return "1 cell" if many == 1 else f"{many} cells"


def at_home(results: ScoreRows) -> Any:
    """(rows,) whether each was tested on the site's own patients."""
    sites = {data: data.split(":")[0] for data in set(results["data"])}
    return results["tested_on"] == np.array([sites[data] for data in results["data"]], object)


def markdown(study: Study, results: ScoreRows, failed: Mapping[str, str], read: Mapping[str, str]) -> str:
    """tables.md."""
    lines = [
        HEAD.format(name=study.name),
        f"{len(set(results['cell']))} of {len(study.cells)} cells are in these tables.\n",
    ]
    if read:
        lines.append("## What was read\n\nAn ε below is of one cell alone. Releases about the same patients add up:\n")
        lines += [*(f"- {data}: {words}" for data, words in read.items()), ""]
    at = at_home(results)
    home, away = results.where(at), results.where(~at)
    for (outcome,), here in home.groups("outcome"):
        name = f"{outcome.capitalize()} outcomes"
        lines += _by_ipc(here.where(here["main"]), name)
        if len(set(here["metric"])) > 1:
            lines += _by_metric(here, f"{name}, all metrics")
    if len(away):
        lines += _by_metric(away, "Other sites: trained at → tested at")
    if failed:
        lines.append("## Cells that failed\n")
        lines += [f"- `{name}`: {reason}" for name, reason in failed.items()]
    return "\n".join(lines).rstrip() + "\n"


def _ways(results: ScoreRows) -> Iterator[tuple[str, ScoreRows]]:
    """Each way to condense, in words, and its rows."""
    for key, rows in results.groups("method", "reference", "epsilon_asked", "guarantee_asked"):
        method, reference, epsilon, guarantee = key
        words = "" if math.isnan(epsilon) else f", ε ≤ {epsilon:g} {guarantee}"
        yield f"{method}, {reference}{words}", rows


def _by_ipc(main: ScoreRows, name: str) -> list[str]:
    """Rows data × method, columns IPC, of the main metric."""
    ipcs = sorted(map(int, set(main["ipc"])))
    table = []
    for (data,), here in main.groups("data"):
        for words, rows in _ways(here):
            by_way = {
                way: [rows.where((rows["trained_on"] == way) & (rows["ipc"] == ipc)) for ipc in ipcs]
                for way in (CONDENSED, REFERENCE, RANDOM)
            }
            full = _estimate(rows.where(rows["trained_on"] == FULL))
            table.append([data, words, full, *map(_estimate, by_way[CONDENSED])])
            table.append(["", "ε", "—", *map(_epsilon, by_way[CONDENSED])])
            if any(map(len, by_way[REFERENCE])):
                table.append(["", TRAINED_ON[REFERENCE].lower(), "", *map(_estimate, by_way[REFERENCE])])
            table.append(["", "random", "", *map(_estimate, by_way[RANDOM])])
    columns = ["data", "trained on", "full", *(f"IPC {ipc}" for ipc in ipcs)]
    return [f"## {name}: {title(main['metric'][0])} by IPC\n", *markdown_table(columns, table), ""]


def _by_metric(results: ScoreRows, heading: str) -> Iterator[str]:
    """A table per data set (and place of the test), rows IPC, columns metrics and ε."""
    yield f"## {heading}\n"
    for number, ((data, place), here) in enumerate(results.groups("data", "tested_on")):
        metrics = list(dict.fromkeys(here["metric"]))
        table = []
        for words, rows in _ways(here):
            for way, name in ((CONDENSED, words), (RANDOM, "random")):
                of_way = dict(rows.where(rows["trained_on"] == way).groups("ipc"))
                for (ipc,), part in sorted(of_way.items(), key=lambda entry: entry[0]):
                    table.append([name, str(int(ipc)), *_estimates(part, metrics), _epsilon(part)])
            table.append(["full", "—", *_estimates(rows.where(rows["trained_on"] == FULL), metrics), "no privacy"])
        letter = chr(ord("a") + number) if number < 26 else str(number + 1)
        yield f"### ({letter}) {data}{'' if at_home(here).all() else f' → {place}'}\n"
        yield from markdown_table(["trained on", "IPC", *map(title, metrics), "ε"], table)
        yield ""


def _estimates(rows: ScoreRows, metrics: Iterable[str]) -> list[str]:
    groups = {metric: own for (metric,), own in rows.groups("metric")}
    return [_estimate(groups[metric]) if metric in groups else "" for metric in metrics]


def _estimate(rows: ScoreRows) -> str:
    """0.714 ± 0.021 [0.675, 0.751]: mean ± sd over seeds, interval; in words where there is no number."""
    if not len(rows):
        return ""
    mean, missing = SeedMean.from_rows(rows), np.isnan(rows["value"])
    words = estimate(*mean.bounds, mean.plus_minus)
    if not missing.any():
        return words
    why = "no answer" if (rows["rows"][missing] == 0).all() else "not measured"
    why = "undefined" if {*rows["note"][missing]} <= {NOT_DEFINED, None} else why
    return f"{words} ({why} in {missing.sum()} of {len(rows)})"


def _epsilon(rows: ScoreRows) -> str:
    """The largest over seeds, with its guarantee."""
    if not len(rows) or np.isnan(rows["epsilon"]).all():
        return "no privacy" if len(rows) else ""
    return f"{rounded_up(float(np.nanmax(rows['epsilon'])), 3)} {rows['guarantee'][0]}"


# -- the page: every cell ---------------------------------------------------------------------------------------------


def study_report(
    name: str, cells: int, home: ScoreRows, failed: Mapping[str, str], read: Mapping[str, str]
) -> dict[str, Any]:
    """What the page shows, as plain data. `home`: results of tests on each site's own patients."""
    main = home.where(home["main"])
    asked = main["epsilon_asked"]
    main = main.plus("budget", np.where(np.isnan(asked), main["epsilon"], asked))
    report: dict[str, Any] = plain(
        {
            "format": 1,
            "name": name,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "version": software()["version"],
            "finished": len(set(home["cell"])),
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


def _grid(main: ScoreRows) -> Iterator[dict[str, Any]]:
    """A row for each way to condense each table."""
    for key, part in main.groups("data", "metric", "method", "reference", "budget", "ipc"):
        data, metric, method, reference, _, ipc = key
        condensed = part.where(part["trained_on"] == CONDENSED)
        if not len(condensed):
            continue
        yield {
            "table": data,
            "measure": title(metric),
            "method": method,
            "student": reference,
            "epsilon": _promise(condensed),
            "ipc": int(ipc),
            "seeds": len(set(condensed["seed"])),
            "condensed": SeedMean.from_rows(condensed).bounds,
            "full": SeedMean.from_rows(part.where(part["trained_on"] == FULL)).bounds,
            "random": SeedMean.from_rows(part.where(part["trained_on"] == RANDOM)).bounds,
        }


def _promise(rows: ScoreRows) -> str:
    words = _epsilon(rows)
    return words if words == "no privacy" else "ε = {} ({})".format(*words.split(" ", 1))


def figures(main: ScoreRows) -> Iterator[Figure]:
    """The main metric against IPC and against ε, one for each table and reference."""
    made = main.where((main["trained_on"] == CONDENSED) & ~np.isnan(main["value"]))
    for number, ((data, reference, metric), here) in enumerate(made.groups("data", "reference", "metric")):
        real = main.where((main["data"] == data) & (main["reference"] == reference) & (main["metric"] == metric))
        full = mean_of(real.where(real["trained_on"] == FULL)["value"])
        for against, (word, axis) in AGAINST.items():
            lines = tuple(_lines(here.where(~np.isnan(here[against])), against))
            if not lines:
                continue
            if against == "ipc":
                lines += tuple(_random(real.where(real["trained_on"] == RANDOM)))
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


def _lines(here: ScoreRows, against: str) -> Iterator[Series]:
    """One line per way to condense, with its intervals."""
    other = "budget" if against == "ipc" else "ipc"
    for (method, guarantee, at), part in here.groups("method", "guarantee", other):
        promise = "no privacy" if guarantee == "none" else guarantee
        if against != "ipc":
            promise = f"IPC {int(at)}, {promise}"
        elif not math.isnan(at):
            promise = f"ε {at:g} {promise}"
        yield Series(f"{method}, {promise}", *_means(part, against, "value", "low", "high"))


def _random(rows: ScoreRows) -> Iterator[Series]:
    few = rows.where(~np.isnan(rows["value"]))
    if len(few):
        yield Series("random real rows, no privacy", *_means(few, "ipc", "value"))


def _means(rows: ScoreRows, against: str, *names: str) -> Iterator[tuple[float, ...]]:
    """The places on an axis, in order, and the means of these columns there."""
    places = sorted(((float(at), part) for (at,), part in rows.groups(against)), key=lambda place: place[0])
    yield tuple(at for at, _ in places)
    for name in names:
        yield tuple(mean_of(part[name]) for _, part in places)
