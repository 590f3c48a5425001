"""The report of a study: the tidy table, Markdown shaped like Thakur et al. 2026's Tables 2, 3 and 4, and a page.

All of it is computed on patients and belongs to the custodian (`OUT/internal`). Every number stands with its interval,
every ε with its guarantee. Kinds of outcome are those found in the results: a section each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, REFERENCE, WAYS
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import rounded_up
from distcondense.report.study_page import study_page
from distcondense.runs.files import plain, write_json, write_text, write_whole
from distcondense.study.accounts import spent
from distcondense.study.comparison import FailedCell, behind, decisions, in_markdown, overview, pictures, promises
from distcondense.study.design import Study
from distcondense.study.external import NO_RESULTS, ExternalResults
from distcondense.study.folder import StudyFolder
from distcondense.study.grid import LIMIT, study_report
from distcondense.study.results import FAILED, QUICK, tidy

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


def write_report(study: Study, folder: StudyFolder, external: ExternalResults = NO_RESULTS) -> pd.DataFrame:
    """Write results.parquet, results.csv, tables.md, decide.md and the page of the finished cells; the tidy table.

    external: what other machines found; cells that are finished here are this one's.
    """
    everything, room = tidy(study, folder), folder.internal
    read = {
        data: f"read by {_cells(many)} through the gate; all that was read: {words}"
        for data, (many, words) in spent(folder).items()
    }
    if len(more := external.without(set(everything["key"]))):
        everything = pd.concat([everything, more], ignore_index=True) if len(everything) else more
        read |= {"made elsewhere": f"{_cells(more['key'].nunique())}; what they read is in none of these sums"}
    write_whole(room / "results.parquet", lambda draft: everything.to_parquet(draft, index=False))
    write_whole(room / "results.csv", lambda draft: everything.to_csv(draft, index=False))
    gone, results = everything[everything["part"] == FAILED], everything[everything["part"] != FAILED]
    failed = {str(cell): str(why) for cell, why in zip(gone["cell"], gone["note"], strict=True)}
    lost = [_lost(row) for row in gone.to_dict("records")]
    quick, here = results[results["part"] == QUICK], results[at_home(results)]
    write_text(room / "tables.md", markdown(study, quick, failed, read))
    said = study_report(study.name, len(study.cells), quick[at_home(quick)], failed, read) | decided(here, lost)
    if "decisions" in said:
        done = results["cell"].nunique()
        write_text(room / "decide.md", in_markdown(study.name, done, len(study.cells), here, lost))
    write_json(room / "report.json", said)
    write_text(room / "report.html", study_page(said))
    return everything


def _cells(many: int) -> str:
    return "1 cell" if many == 1 else f"{many} cells"


def _lost(row: Mapping[Any, Any]) -> FailedCell:
    asked = None if math.isnan(row["epsilon_asked"]) else float(row["epsilon_asked"])
    return FailedCell(row["data"], row["method"], asked, row["guarantee_asked"], int(row["ipc"]), row["note"])


def decided(here: pd.DataFrame, lost: Sequence[FailedCell] = ()) -> dict[str, Any]:
    """Which method when, for the page: only where there are several methods to decide between."""
    if here["method"].nunique() < 2:
        return {}
    tables, drawn = [*overview(here), *decisions(here, lost)], pictures(here)
    found: dict[str, Any] = plain(
        {
            "decisions": [asdict(table) for table in tables],
            "verdict": [*behind(here), LIMIT],
            "limits": [*promises(here), LIMIT],
            "comparisons": [asdict(figure) for figure in drawn],
        }
    )
    return found


def at_home(results: pd.DataFrame) -> pd.Series[bool]:
    """Tested on the site's own patients."""
    return results["tested_on"] == results["data"].str.split(":").str[0]


def markdown(study: Study, results: pd.DataFrame, failed: Mapping[str, str], read: Mapping[str, str]) -> str:
    """The whole page."""
    finished = results["cell"].nunique()
    parts = [HEAD.format(name=study.name), f"{finished} of {len(study.cells)} cells are in these tables.\n"]
    if read:
        parts.append("## What was read\n\nAn ε below is of one cell alone. Releases about the same patients add up:\n")
        parts += [*(f"- {data}: {words}" for data, words in read.items()), ""]
    home, away = results[at_home(results)], results[~at_home(results)]
    for outcome in home["outcome"].unique():
        here, name = home[home["outcome"] == outcome], f"{outcome.capitalize()} outcomes"
        parts += _by_ipc(here[here["main"]], name)
        if here["metric"].nunique() > 1:
            parts += _by_metric(here, f"{name}, all metrics")
    parts += _by_metric(away, "Other sites: trained at → tested at")
    if failed:
        parts.append("## Cells that failed\n")
        parts += [f"- `{name}`: {reason}" for name, reason in failed.items()]
    return "\n".join(parts).rstrip() + "\n"


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


def _lines_in(results: pd.DataFrame) -> list[_Line]:
    keys = results[["method", "reference", "epsilon_asked", "guarantee_asked"]].drop_duplicates()
    return [_Line(m, r, None if math.isnan(e) else e, g) for m, r, e, g in keys.itertuples(index=False)]


def _by_ipc(main: pd.DataFrame, name: str) -> Iterator[str]:
    """Rows data × method, columns IPC, of the main metric."""
    if main.empty:
        return
    ipcs = sorted(main["ipc"].unique())

    def cells(rows: pd.DataFrame, way: str, words: Callable[[pd.DataFrame], str]) -> list[str]:
        of_way = rows[rows["trained_on"] == way]
        return [words(of_way[of_way["ipc"] == ipc]) for ipc in ipcs]

    yield f"## {name}: {title(main['metric'].iloc[0])} by IPC\n"
    yield _row("data", "trained on", "full", *(f"IPC {ipc}" for ipc in ipcs))
    yield _rule(3 + len(ipcs))
    for data in main["data"].unique():
        here = main[main["data"] == data]
        for line in _lines_in(here):
            rows = line.of(here)
            full = _estimate(rows[rows["trained_on"] == FULL])
            yield _row(data, line.words, full, *cells(rows, CONDENSED, _estimate))
            yield _row("", "ε", "—", *cells(rows, CONDENSED, _epsilon))
            if REFERENCE in set(rows["trained_on"]):
                yield _row("", WAYS[REFERENCE].lower(), "", *cells(rows, REFERENCE, _estimate))
            yield _row("", "random", "", *cells(rows, RANDOM, _estimate))
    yield ""


def _by_metric(results: pd.DataFrame, heading: str) -> Iterator[str]:
    """A table per data set (and place of the test), rows IPC, columns metrics and ε."""
    if results.empty:
        return
    yield f"## {heading}\n"
    pairs = results[["data", "tested_on"]].drop_duplicates()
    for number, (data, place) in enumerate(pairs.itertuples(index=False)):
        here = results[(results["data"] == data) & (results["tested_on"] == place)]
        metrics = list(here["metric"].unique())
        yield f"### ({_letter(number)}) {data}{'' if at_home(here).all() else f' → {place}'}\n"
        yield _row("trained on", "IPC", *(title(metric) for metric in metrics), "ε")
        yield _rule(3 + len(metrics))
        for line in _lines_in(here):
            rows = line.of(here)
            for way, words in ((CONDENSED, line.words), (RANDOM, "random")):
                for ipc in sorted(rows["ipc"].unique()):
                    part = rows[(rows["trained_on"] == way) & (rows["ipc"] == ipc)]
                    if len(part):
                        yield _row(words, str(ipc), *_estimates(part, metrics), _epsilon(part))
            yield _row("full", "—", *_estimates(rows[rows["trained_on"] == FULL], metrics), "no privacy")
        yield ""


def _estimates(rows: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    return [_estimate(rows[rows["metric"] == metric]) for metric in metrics]


def _estimate(rows: pd.DataFrame) -> str:
    """0.714 ± 0.021 [0.675, 0.751]: mean ± sd over seeds, interval; in words where there is no number."""
    if rows.empty:
        return ""
    missing = rows[rows["value"].isna()]
    lost = f" ({_why(missing)} in {len(missing)} of {len(rows)})" if len(missing) else ""
    # cells of one seed share their split, or their number of patients: the seed is the repetition
    seeds = rows.dropna(subset="value").groupby("seed")[["value", "low", "high"]].mean()
    if seeds.empty:
        return f"—{lost}"
    mean = seeds.mean()
    spread = f" ± {seeds['value'].std(ddof=1):.3f}" if len(seeds) > 1 else ""
    low, high = ("—" if math.isnan(mean[bound]) else f"{mean[bound]:.3f}" for bound in ("low", "high"))
    return f"{mean['value']:.3f}{spread} [{low}, {high}]{lost}"


def _why(missing: pd.DataFrame) -> str:
    """In a word: a measure of nobody (no PPV where nobody was flagged), a release without rows, or what a note says."""
    if missing["note"].isna().all():
        return "undefined"
    return "no answer" if (missing["rows"] == 0).all() else "not measured"


def _epsilon(rows: pd.DataFrame) -> str:
    """The largest over seeds, with its guarantee."""
    if rows.empty or rows["epsilon"].isna().all():
        return "no privacy" if len(rows) else ""
    return f"{rounded_up(float(rows['epsilon'].max()), 3)} {rows['guarantee'].iloc[0]}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(columns: int) -> str:
    return "| --- " * columns + "|"


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else str(number + 1)
