"""`release/report.html`: what the guarantee covers, from what a run releases and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from distcondense.data.reserved import RISK
from distcondense.data.schema import Column
from distcondense.outcomes.base import WEIGHTS
from distcondense.report.manual import column_values, recipes
from distcondense.report.page import Card, PageMaker, claim_of, rendered, size_checked
from distcondense.report.tables import rows_table
from distcondense.report.text import sentences, written
from distcondense.runs.figures import LINES, Figure, Series
from distcondense.runs.files import plain
from distcondense.runs.release import MANUAL, csv_name, software
from distcondense.runs.result import Result

GALLERIES = {  # key of the report → word of the contents, heading, and what its figures show
    "model": (
        "What columns add",
        "What each column adds to the risk",
        "The model that made the labels is a sum: each figure shows what one column adds to it, all else being equal.",
    ),
    "marginals": (
        "Columns",
        "Columns as measured",
        "Counts with noise, as the patients were asked for them. Their noise is part of the guarantee.",
    ),
    "pairs": (
        "Pairs",
        "Pairs of columns as measured",
        "Counts with noise of two columns together, of the pairs that were asked for.",
    ),
}
CODE = "    "  # begins a line of code


def released_page(sets: Mapping[str, Result]) -> str:
    """Of a run's sets by their tables' names; it reads what is released with them and nothing else."""
    return release_page(released(sets))


def released(sets: Mapping[str, Result]) -> dict[str, Any]:
    """What the page shows, as plain data."""
    first = next(iter(sets.values()))
    privacy, kind, schema = first.privacy, first.kind, first.schema
    report: dict[str, Any] = plain(
        {
            "format": 1,
            "name": f"Condensed table: {' and '.join(kind.names)}",
            "privacy": {**privacy.to_dict(), "software": software()},
            "schema": schema_rows(schema.columns),
            "outcome": [*_meanings(kind.outcome_columns()), *_meanings(kind.added_columns()), *_meanings([WEIGHTS])],
            "rows": sum(len(one.frame) for one in sets.values()),
            **{name: [asdict(figure) for figure in figures] for name, figures in first.covered.items()},
            "ledger": [_question(entry) for entry in privacy.ledger] if privacy.charged else [],
            "rules": [str(rule) for rule in schema.rules],
            "use": [] if privacy.answer else _usage(sets, first),
        }
    )
    return report


def schema_rows(columns: Sequence[Column]) -> list[dict[str, str]]:
    """Columns as the public schema declares them, a row each; what no column has is left out."""
    rows = [
        {"column": column.name, "kind": column.kind, "values": column_values(column), "unit": column.unit or ""}
        for column in columns
    ]
    return [{name: text for name, text in row.items() if any(other[name] for other in rows)} for row in rows]


def _meanings(columns: Sequence[Column]) -> list[str]:
    """What columns mean, a line each; one for all where each says the same of a class of its own."""
    labels = (re.escape(column.name.removeprefix(f"{RISK}_")) for column in columns)
    alike = {re.sub(rf"\b{label}\b", "its class", c.meaning) for label, c in zip(labels, columns, strict=True)}
    if len(columns) > 2 and len(alike) == 1:
        return [f"{columns[0].name} … {columns[-1].name}, {len(columns)} columns: {alike.pop()}"]
    return [f"{column.name}: {column.meaning}" for column in columns]


def _question(entry: Mapping[str, Any]) -> dict[str, Any]:
    """One question of the ledger, in words."""
    return {name: value for name, value in entry.items() if value not in (None, "", [], {}) and name != "run"}


def _usage(sets: Mapping[str, Result], first: Result) -> list[str]:
    """How a recipient trains a model: the manual's first recipe, and what must not be a feature."""
    files = " and ".join(csv_name(name, one.frame) for name, one in sets.items())
    own = [*first.kind.names, *first.kind.own_columns(), WEIGHTS.name]
    return [
        f"{files} holds one synthetic patient a row; the same rows are in the Parquet file of that name.",
        f"Features are all columns but {', '.join(own)}: the outcome and what was computed from it.",
        *(f"{CODE}{line}" for recipe in recipes(sets)[:1] for line in recipe.code.splitlines()),
        f"{MANUAL} has the same for other tools. Test a model on real patients before it is used: scores on synthetic "
        "rows say little.",
    ]


def release_page(report: Mapping[str, Any]) -> str:
    """What may be handed over with the table.

    Parameters
    ----------
    report : mapping
        What `released` gives; all but `name` and `privacy` is optional. A key that is not known is not shown.

    Returns
    -------
    str
        One HTML document of at most LARGEST bytes; what it had to leave out it says.
    """
    return size_checked(lambda bounds: _page(report, PageMaker(bounds)))


def _page(report: Mapping[str, Any], maker: PageMaker) -> str:
    privacy = report["privacy"]
    claim = claim_of(privacy)
    galleries = {name: maker.gallery(map(Figure.from_dict, report[name])) for name in GALLERIES if report.get(name)}
    errors = maker.gallery(trade_off(privacy))
    ledger = rows_table("Every question that was asked of the patients", report.get("ledger") or ())
    schema = rows_table("Columns, as the public schema declares them", report.get("schema") or ())
    contents = [
        ("guarantee", "The guarantee"),
        *([("table", "The table")] if schema or report.get("outcome") else []),
        *((name, GALLERIES[name][0]) for name in galleries),
        *([("ledger", "Ledger and trade-off")] if ledger or errors.figures else []),
        *((name, words) for name, words in (("rules", "Rules"), ("use", "How to use it")) if report.get(name)),
    ]
    cards = [replace(claim.card, more=claim.card.more.partition(":")[0])]  # what it means is the verdict's
    if report.get("rows") is not None:
        columns = len(report.get("schema") or ())
        cards.append(Card("Synthetic rows", written(report["rows"]), f"of {columns:,} columns" if columns else ""))
    version = (privacy.get("software") or {}).get("version")
    return rendered(
        "release.html.j2",
        internal=False,
        title=f"{report['name']}: condensed table",
        name=report["name"],
        kicker="A condensed, synthetic table",
        contents=contents,
        claim=claim,
        cards=cards,
        outcome=sentences(report.get("outcome")),
        schema=None if schema is None else maker.cut(schema),
        galleries=[(name, *GALLERIES[name][1:], gallery) for name, gallery in galleries.items()],
        trade_off=errors,
        ledger=None if ledger is None else maker.cut(ledger),
        rules=sentences(report.get("rules")),
        use=_blocks(report.get("use") or ()),
        version=f" {version}" if version else "",
    )


def trade_off(privacy: Mapping[str, Any]) -> list[Figure]:
    """What the best possible membership test can do: its errors, and those of guessing."""
    points = privacy.get("trade_off") or ()
    if not points:
        return []
    x, y = (tuple(float(point[i]) for point in points) for i in (0, 1))
    figure = Figure(
        "trade_off",
        LINES,
        f"What any test of membership can do ({privacy.get('guarantee')} guarantee)",
        "Whoever tests whether somebody was in the table makes at least these errors. The nearer to guessing, the less "
        "the release tells.",
        "false positives",
        "false negatives, at least",
        (Series("best possible test", x, y), Series("guessing", (0.0, 1.0), (1.0, 0.0))),
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
    )
    return [figure]


def _blocks(lines: Sequence[str]) -> list[tuple[bool, str]]:
    """Whether it is code, and its text: sentences, and lines of code together in one block."""
    blocks: list[tuple[bool, str]] = []
    for line in lines:
        code = line.startswith(CODE)
        if code and blocks and blocks[-1][0]:
            blocks[-1] = (True, f"{blocks[-1][1]}\n{line.removeprefix(CODE)}")
        else:
            blocks.append((code, line.removeprefix(CODE)))
    return blocks
