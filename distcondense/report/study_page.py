"""`internal/report.html` of a study: its grid, and which method when. A view of the study's `internal/report.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distcondense.report.page import LIMITS, PageMaker, rendered, size_checked
from distcondense.report.tables import rows_table
from distcondense.report.text import sentences, written
from distcondense.runs.figures import Figure, Table


def study_page(report: Mapping[str, Any]) -> str:
    """The custodian's page of a study: its grid, a row a way to condense.

    Parameters
    ----------
    report : mapping
        What `study.report` writes into the study's report.json; all but `name` is optional.

    Returns
    -------
    str
        One HTML document of at most LARGEST bytes; what it had to leave out it says.
    """
    return size_checked(lambda bounds: _page(report, PageMaker(bounds, ": they are in results.csv")))


def _page(report: Mapping[str, Any], maker: PageMaker) -> str:
    verdict = [*sentences(report.get("verdict"))]
    if report.get("cells") is not None:
        verdict.append(f"{written(report.get('finished'))} of {written(report['cells'])} cells are on this page.")
    grid = rows_table("A row a way to condense", report.get("grid") or (), report.get("titles"))
    figures = {
        name: maker.gallery(map(Figure.from_dict, report.get(name) or ())) for name in ("comparisons", "figures")
    }
    return rendered(
        "study.html.j2",
        internal=True,
        title=f"{report['name']}: study, not for release",
        name=report["name"],
        kicker="Study, for the custodian",
        under=f"made {report['made']}" if report.get("made") else "",
        contents=(("verdict", "Verdict"), ("grid", "The grid"), ("limits", "Limits")),
        verdict=verdict,
        decisions=[maker.table(Table.from_dict(entry)) for entry in report.get("decisions") or ()],
        read=[f"{name}: {words}" for name, words in (report.get("read") or {}).items()],
        failed=[f"{name}: {words}" for name, words in (report.get("failed") or {}).items()],
        grid=None if grid is None else maker.cut(grid),
        **figures,
        limits=(*LIMITS, *sentences(report.get("limits"))),
        version=f" {report['version']}" if report.get("version") else "",
    )
