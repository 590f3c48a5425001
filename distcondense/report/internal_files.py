"""`internal/report.json` and its page: an evaluation's findings on disk, for the custodian."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distcondense.evaluation.findings import Findings
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Section
from distcondense.evaluation.suite import SECTIONS, EvaluationRequest
from distcondense.outside import parse_json
from distcondense.report.internal_page import internal_page
from distcondense.runs.figures import Figure
from distcondense.runs.files import write_json, write_text
from distcondense.runs.folder import RunFolder
from distcondense.runs.release import PAGE, software
from distcondense.runs.result import Result, Results


def write_first_report(
    folder: RunFolder, result: Result | Results, figures: Sequence[Figure], log: Callable[[str], None]
) -> None:
    """The run's own scores on a page. It comes last and may fail: what was paid for is already on disk."""
    course = (Section("course", "How the run went", figures=tuple(figures)),) if figures else ()
    for table, one in result.tables.items():
        try:
            scores = [Score.from_dict(score) for score in one.record["scores"]]
            note, seed = one.record["scores_note"], one.record["settings"]["seed"]
            write_findings(folder, table, findings_of(folder, one, scores, note, course, seed=seed))
        except Exception as error:  # names and units of columns are anybody's text, bounds anybody's numbers
            log(f"no report: {type(error).__name__}")


def findings_of(
    folder: RunFolder, result: Result, scores: Sequence[Score], note: str, sections: Sequence[Section], *, seed: int
) -> Findings:
    """What was found about one set of a run, with what its record says of the run."""
    record = result.record
    return Findings(
        run={
            "name": folder.path.resolve().name,
            "method": record["method"],
            "outcome": record["data"]["outcome"],
            "made": record["finished_at"],
            "version": software()["version"],
            "rows_real": record["data"]["rows"],
            "rows_condensed": len(result.frame),
            "columns": record["data"]["columns"],
            "rows_sampled": record["data"].get("evaluated_on_rows"),  # none where all were seen
        },
        privacy=result.privacy,
        quick=tuple(scores),
        note=note,
        parts=tuple(sections),
        made_with=_made_with(record),
        seed=seed,
    )


def write_findings(folder: RunFolder, table: str, findings: Findings) -> None:
    """report.json and report.html; of one of several sets report-IPC.json and its page."""
    path, content = _report_path(folder, table), findings.to_dict()
    write_json(path, content)
    write_text(path.with_suffix(".html"), internal_page(content))


def kept_sections(folder: RunFolder, table: str, request: EvaluationRequest) -> list[Section]:
    """Sections that an earlier evaluation by the same seed left, but for those that are asked for again."""
    try:
        report = parse_json(_report_path(folder, table).read_bytes())
        sections = [Section.from_dict(section) for section in report["parts"] if section["name"] not in request.parts]
        return [section for section in sections if report["seed"] == request.seed or not section.scores]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def in_order(sections: Sequence[Section]) -> list[Section]:
    """Sections in the suite's order, those that it does not know first."""
    order = {name: place for place, name in enumerate(SECTIONS)}
    return sorted(sections, key=lambda section: order.get(section.name, -1))


def _report_path(folder: RunFolder, table: str) -> Path:
    ending = table.partition("-")[2]
    return folder.internal / (Path(PAGE).stem + (f"-{ending}" if ending else "") + ".json")


def _made_with(record: Mapping[str, Any]) -> dict[str, Any]:
    names = ("settings", "timings_seconds", "versions", "warnings", "interval")
    kept = {name: record[name] for name in names if record.get(name)}
    return kept | {"splitting": {"by": record["splitting"]["by"]}}  # not its secret
