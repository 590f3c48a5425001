"""Pages a data-protection officer can read: one HTML file each, a pure view of plain dictionaries.

`internal_page` shows `internal/report.json`, all of it computed on patients, and says so on every screen;
`release_page` shows only what it is given of the release side; `study_page` shows a study's grid. A page loads nothing
and runs nothing: styles and drawings are inside, and a content-security policy forbids the rest. Whatever stands in a
report is escaped. A page that would grow beyond LARGEST leaves out rows of tables, then figures, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, WAYS, Score
from distcondense.evaluation.section import Section
from distcondense.evaluation.suite import ATTACKS, LIKENESS, UTILITY
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import Privacy, shown
from distcondense.privacy.verify import statement_of_file
from distcondense.report.axes import clean, digits, written
from distcondense.report.svg import draw, numbers
from distcondense.report.tables import (
    PageTable,
    TableCell,
    labels_words,
    score_sheets,
    sheet_of,
    sheet_of_pairs,
    sheet_of_rows,
    way_words,
)
from distcondense.runs.figures import DOTS, LINES, Figure, Series, Table

LARGEST = 1_500_000  # bytes of a page
COPIES = "copies"  # a room of likeness that is read beside the attacks, and is no privacy either
# the rooms of each section, in the order in which they are read; others go where their scores belong
SECTIONS = {
    "good": tuple(UTILITY),
    "looks": tuple(name for name in LIKENESS if name != COPIES),
    "attacks": (COPIES, *ATTACKS),
}
PROMISES = {  # guarantee → what it is, and how to feel about it
    "end-to-end": ("a theorem about every {unit} of the table", "good"),
    "conditional": ("a theorem only if what was read off the patients is public anyway", "care"),
    "as-published": ("the accounting of a paper, not a theorem about patients", "bad"),
    "none": ("nothing bounds what these rows tell about patients", "bad"),
}
LIMITS = (
    "The guarantee protects patients; attacks only look for mistakes. That these attacks found no leak at this power "
    "does not mean that there is none.",
    "Intervals are of chance in the choice of test rows (95%). They do not say how the numbers would change at another "
    "hospital, in another year, or in another run.",
    "Choosing among runs or settings by the numbers of this page, and then releasing, is not covered by the guarantee.",
)
LEAKS = {
    "True": TableCell("▲ leak found", tone="bad"),
    "False": TableCell("✓ no leak found at this power", tone="good"),
}
IN_JSON = ": they are in report.json"


# -- the three pages --------------------------------------------------------------------------------------------------


def internal_page(report: Mapping[str, Any]) -> str:
    """The custodian's page of one run: everything, nothing of it for release."""
    return size_checked(lambda bounds: _internal(report, Maker(bounds, IN_JSON)))


def release_page(report: Mapping[str, Any]) -> str:
    """What may be handed over with the table: only what `report` holds; all but name and privacy is optional."""
    return size_checked(lambda bounds: _release(report, Maker(bounds)))


def study_page(report: Mapping[str, Any]) -> str:
    """The custodian's page of a study: its grid, a row a way to condense."""
    return size_checked(lambda bounds: _study(report, Maker(bounds, ": they are in results.csv")))


# -- size -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounds:
    """At most so many rows of one table, and so many figures in one gallery."""

    rows: int
    figures: int


LADDER = (
    Bounds(1000, 300),
    Bounds(200, 100),
    Bounds(50, 60),
    Bounds(20, 30),
    Bounds(10, 12),
    Bounds(5, 3),
    Bounds(1, 0),
)
CELL = len("<td></td>")  # bytes of an empty one


class TooLarge(Exception):
    """A page that need not be written out to know that it is too large."""


def size_checked(make: Callable[[Bounds], str], largest: int = LARGEST) -> str:
    """The fullest page that is small enough; the barest, where none is."""
    page = ""
    for bounds in LADDER:
        try:
            page = make(bounds)
        except TooLarge:
            continue
        if len(page.encode("utf-8")) <= largest:
            break
    return page


# -- what templates are given -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrawnFigure:
    """A figure, drawn, with the table behind it."""

    title: str
    about: str
    svg: Markup
    sheet: PageTable


@dataclass(frozen=True)
class Gallery:
    figures: tuple[DrawnFigure, ...]
    left_out: int = 0
    elsewhere: str = ""


@dataclass(frozen=True)
class SectionView:
    """A part, ready to be shown."""

    key: str
    title: str
    scores: tuple[PageTable, ...]
    gallery: Gallery
    tables: tuple[PageTable, ...]
    notes: tuple[str, ...]
    settings: PageTable | None
    leak: TableCell | None  # of an attack: what it found, in a word


@dataclass(frozen=True)
class Card:
    what: str
    number: str
    more: str
    tone: str = ""


@dataclass(frozen=True)
class Claim:
    """What may be said about privacy: never an ε without its guarantee."""

    card: Card
    short: str
    sentences: tuple[str, ...]
    paragraph: str
    charged: bool  # every look at patients was paid for at the gate


@dataclass
class Maker:
    """Cuts to the bounds, and gives every drawing an id of its own."""

    bounds: Bounds
    elsewhere: str = ""  # where to find what is left out
    count: int = 0
    cells: int = 0  # of all tables so far

    def key(self, word: str) -> str:
        self.count += 1
        return f"{word}-{self.count}"

    def cut(self, sheet: PageTable) -> PageTable:
        found = sheet.cut(self.bounds.rows, self.elsewhere)
        self.cells += len(found.rows) * len(found.columns)
        if self.cells * CELL > LARGEST and self.bounds != LADDER[-1]:
            raise TooLarge
        return found

    def table(self, table: Table) -> PageTable:
        return self.cut(sheet_of(table, self.bounds.rows))

    def gallery(self, figures: Iterable[Figure]) -> Gallery:
        every = list(figures)
        kept = every[: self.bounds.figures]
        return Gallery(tuple(map(self.show, kept)), len(every) - len(kept), self.elsewhere)

    def show(self, figure: Figure) -> DrawnFigure:
        return DrawnFigure(figure.title, figure.about, draw(figure, self.key("figure")), self.table(numbers(figure)))

    def room(self, part: Section) -> SectionView:
        settings = sheet_of_pairs(f"Settings: {part.title}", part.settings) if part.settings else None
        return SectionView(
            self.key("part"),
            part.title,
            tuple(self.cut(sheet) for sheet in score_sheets(part.scores, part.titles, part.title)),
            self.gallery(part.figures),
            tuple(map(self.table, part.tables)),
            part.notes,
            None if settings is None else self.cut(settings),
            LEAKS.get(str(part.settings.get("found"))),
        )


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("distcondense.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _cleaned(value: Any) -> Any:
    """Before it is escaped; a drawing is clean already."""
    return value if isinstance(value, Markup) else clean(written(value))


def _page(template: str, **context: Any) -> str:
    return _environment().get_template(template).render(**context)


# -- a run, inside ----------------------------------------------------------------------------------------------------


def _internal(report: Mapping[str, Any], maker: Maker) -> str:
    run, privacy = report["run"], report["privacy"]
    parts = [Section.from_dict(one) for one in report.get("parts", ())]
    quick = tuple(Score.from_dict(one) for one in report.get("quick", ()))
    sections = {name: [maker.room(part) for part in found] for name, found in sections_of(parts).items()}
    claim = claim_of(privacy)
    made = report.get("made_with", {})
    warned = [str(line) for line in made.get("warnings") or ()]
    return _page(
        "internal.html.j2",
        internal=True,
        title=f"{run['name']}: internal report, not for release",
        name=run["name"],
        kicker="Report for the custodian",
        under=_under(run),
        contents=(
            ("verdict", "Verdict and ε"),
            ("good", "How good"),
            ("looks", "What it looks like"),
            ("attacks", "Copy check and attacks"),
            ("limits", "Limits"),
            ("made", "How it was made"),
        ),
        verdict=_lines(report.get("verdict")),
        claim=claim,
        cards=(claim.card, *_cards(run, quick)),
        facts=_facts(run),
        glance=maker.gallery(at_a_glance(quick)),
        quick=[maker.cut(one) for one in score_sheets(quick, {}, "At a glance")],
        **sections,
        limits=(*LIMITS, *warned),
        public=_lines(privacy.get("public")),
        not_covered=_lines(privacy.get("not_covered")),
        made=[_made(maker, k, v) for k, v in made.items() if v],
        version=run.get("version", ""),
    )


def sections_of(parts: Sequence[Section]) -> dict[str, list[Section]]:
    """Section → its rooms in reading order; a room nobody listed goes to the attacks if it has a ceiling or a power."""
    found: dict[str, list[Section]] = {section: [] for section in SECTIONS}
    order = {name: number for number, name in enumerate(name for names in SECTIONS.values() for name in names)}
    for part in sorted(parts, key=lambda part: order.get(part.name, len(order))):
        attacked = any(score.ceiling is not None or score.power is not None for score in part.scores)
        listed = (section for section, names in SECTIONS.items() if part.name in names)
        found[next(listed, "attacks" if attacked else "looks")].append(part)
    return found


def _under(run: Mapping[str, Any]) -> str:
    made, version = run.get("made"), run.get("version")
    words = [f"method {run['method']}" if run.get("method") else "", f"made {made}" if made else ""]
    return " · ".join(word for word in (*words, f"distcondense {version}" if version else "") if word)


def _facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    names = {
        "method": "Method",
        "outcome": "Outcome",
        "rows_real": "Real rows",
        "rows_condensed": "Condensed rows",
        "columns": "Columns",
        "rows_sampled": "Real rows that evaluation saw",
        "made": "Made",
    }
    outcome = run.get("outcome")
    if isinstance(outcome, Mapping) and outcome.get("columns"):
        run = {**run, "outcome": f"{said(outcome['columns'])} ({said(outcome.get('kind', 'outcome'))})"}
    return [(words, said(run[name])) for name, words in names.items() if run.get(name) is not None]


def _cards(run: Mapping[str, Any], quick: Sequence[Score]) -> list[Card]:
    """How many rows became how many, and the first measure of the condensed rows between its floor and its ceiling."""
    cards = []
    if run.get("rows_condensed") is not None:
        of = f"from {written(run['rows_real'])} real rows" if run.get("rows_real") is not None else ""
        cards.append(Card("Condensed rows", written(run["rows_condensed"]), of))
    first = next((score for score in quick if score.trained_on == CONDENSED), None)
    if first is not None:

        def of_way(way: str) -> str:
            found = [s.value for s in quick if s.trained_on == way and s.measure == first.measure]
            return digits(found[0]) if found else "—"

        between = f"ceiling {of_way(FULL)} (real rows), floor {of_way(RANDOM)} (as few random real rows)"
        labels = f", {labels_words(first.labels)}" if first.labels else ""
        what = f"{title(first.measure)} of a model of the condensed rows{labels}"
        cards.append(Card(what, digits(first.value), between))
    return cards


def at_a_glance(quick: Sequence[Score]) -> list[Figure]:
    """The first measure of every way to train, with its interval: the condensed rows between ceiling and floor."""
    if not quick:
        return []
    first, order = quick[0], {way: number for number, way in enumerate(WAYS)}
    main = [s for s in quick if (s.measure, s.tested_on, s.group) == (first.measure, first.tested_on, first.group)]
    main.sort(key=lambda score: order.get(score.trained_on, len(order)))
    series = []
    for student in dict.fromkeys(score.student for score in main):
        rows: dict[str, Score] = {}
        for score in main:
            labels = f", {labels_words(score.labels)}" if score.labels and score.trained_on == CONDENSED else ""
            if score.student == student:
                rows.setdefault(f"{way_words(score.trained_on)}{labels}", score)
        bounds = (tuple(getattr(score, name) for score in rows.values()) for name in ("value", "low", "high"))
        series.append(Series(student or "model", tuple(rows), *bounds))
    about = "Each dot is a model tested on real rows that nobody trained on; whiskers are 95% intervals."
    words = title(first.measure)
    return [
        Figure("glance", DOTS, f"{words} by what a model was trained on", about, "trained on", words, tuple(series))
    ]


@dataclass(frozen=True)
class MadeWith:
    title: str
    lines: tuple[str, ...] = ()
    sheet: PageTable | None = None


def _made(maker: Maker, name: str, value: Any) -> MadeWith:
    """One entry of how it was made: a table of pairs, sentences, or one of them."""
    words = {"timings": "Time, in seconds", "odometer": "All that was read of these patients"}.get(name)
    words = words or name.replace("_", " ").capitalize()
    if isinstance(value, Mapping):
        return MadeWith(words, sheet=maker.cut(sheet_of_pairs(words, value)))
    return MadeWith(words, _lines(value))


# -- privacy ----------------------------------------------------------------------------------------------------------


def claim_of(privacy: Mapping[str, Any]) -> Claim:
    """From a statement's own words; a statement as privacy.json holds it can say them itself."""
    guarantee, epsilon, delta = (privacy.get(name) for name in ("guarantee", "epsilon", "delta"))
    means, tone = PROMISES.get(str(guarantee), ("an unknown guarantee", "bad"))
    means = means.format(unit=privacy.get("unit") or "row")
    whole = {field.name for field in fields(Privacy)} <= set(privacy)
    stated = statement_of_file(dict(privacy)) if whole else None
    if epsilon is None or guarantee in (None, "none"):
        card, short = Card("Privacy", "No guarantee", means, "bad"), "No privacy guarantee."
    else:
        at = "" if delta is None else f", δ = {float(delta):g}"
        number = f"ε = {shown(float(epsilon), 3)}"
        card = Card(f"Privacy: {guarantee} guarantee", number, f"{guarantee}{at}: {means}", tone)
        short = f"{number} ({guarantee}{at})"
        short = str(privacy.get("short") or (stated.short() if stated else short))
    sentence = str(privacy.get("sentence") or (stated.sentence() if stated else ""))
    more = short if ";" in short or not sentence else ""  # what the card does not say: earlier runs, the worst case
    paragraph = str(privacy.get("paragraph") or privacy.get("statement") or "")
    charged = guarantee in ("end-to-end", "conditional")
    return Claim(card, short, tuple(_sentence(line) for line in (more, sentence) if line), paragraph, charged)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}" if words.endswith(".") else f"{words[:1].upper()}{words[1:]}."


def trade_off(privacy: Mapping[str, Any]) -> Figure | None:
    """What the best possible membership test can do: its errors, and those of guessing."""
    points = privacy.get("trade_off") or ()
    if not points:
        return None
    x, y = (tuple(float(point[i]) for point in points) for i in (0, 1))
    best = Series("best possible test", x, y)
    return Figure(
        "trade_off",
        LINES,
        f"What any test of membership can do ({privacy.get('guarantee')} guarantee)",
        "Whoever tests whether somebody was in the table makes at least these errors. The nearer to guessing, the less "
        "the release tells.",
        "false positives",
        "false negatives, at least",
        (best, Series("guessing", (0.0, 1.0), (1.0, 0.0))),
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
    )


# -- a release --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chapter:
    key: str
    title: str
    about: str
    gallery: Gallery = field(default_factory=lambda: Gallery(()))


CHAPTERS = (
    (
        "model",
        "What each column adds to the risk",
        "The model that made the labels is a sum: each figure shows what one column adds to it, all else being equal.",
    ),
    (
        "marginals",
        "Columns as measured",
        "Counts with noise, as the patients were asked for them. Their noise is part of the guarantee.",
    ),
    (
        "pairs",
        "Pairs of columns as measured",
        "Counts with noise of two columns together, of the pairs that were asked for.",
    ),
)


def _release(report: Mapping[str, Any], maker: Maker) -> str:
    privacy = report["privacy"]
    claim = claim_of(privacy)
    drawings = {name: [Figure.from_dict(one) for one in report.get(name) or ()] for name, _, _ in CHAPTERS}
    chapters = [
        Chapter(name, head, about, maker.gallery(drawings[name])) for name, head, about in CHAPTERS if drawings[name]
    ]
    curve = Figure.from_dict(report["trade_off"]) if report.get("trade_off") else trade_off(privacy)
    ledger = sheet_of_rows("Every question that was asked of the patients", report.get("ledger") or ())
    schema = _schema(report.get("schema") or ())
    use = _use(report.get("use") or ())
    there = {
        "table": schema is not None or bool(report.get("outcome")),
        **{name: bool(drawings[name]) for name in drawings},
        "ledger": ledger is not None or curve is not None,
        "rules": bool(report.get("rules")),
        "use": bool(use),
    }
    words = {
        "table": "The table",
        "model": "What columns add",
        "marginals": "Columns",
        "pairs": "Pairs",
        "ledger": "Ledger and trade-off",
        "rules": "Rules",
        "use": "How to use it",
    }
    cards = [claim.card]
    if report.get("rows") is not None:
        columns = len(report.get("schema") or ())
        cards.append(Card("Synthetic rows", written(report["rows"]), f"of {columns:,} columns" if columns else ""))
    return _page(
        "release.html.j2",
        internal=False,
        title=f"{report['name']}: condensed table",
        name=report["name"],
        kicker="A condensed, synthetic table",
        under=claim.short,
        contents=(("guarantee", "The guarantee"), *((key, words[key]) for key, here in there.items() if here)),
        claim=claim,
        cards=cards,
        outcome=_lines(report.get("outcome")),
        schema=None if schema is None else maker.cut(schema),
        galleries=chapters,
        trade_off=maker.gallery([] if curve is None else [curve]),
        ledger=None if ledger is None else maker.cut(ledger),
        rules=_lines(report.get("rules")),
        use=use,
        version=_version(privacy),
    )


def _version(privacy: Mapping[str, Any]) -> str:
    version = (privacy.get("software") or {}).get("version")
    return f" {version}" if version else ""


def _schema(columns: Sequence[Mapping[str, Any]]) -> PageTable | None:
    if not columns:
        return None
    rows = tuple(
        (
            TableCell(said(one["name"])),
            TableCell(said(one.get("kind", ""))),
            TableCell(_values(one)),
            TableCell(said(one.get("unit") or "")),
            TableCell(said(one.get("description") or "")),
        )
        for one in columns
    )
    sheet = PageTable(
        "Columns, as the public schema declares them", ("column", "kind", "values", "unit", "about"), rows
    )
    return sheet.without_empty()


def _values(column: Mapping[str, Any], most: int = 12) -> str:
    """Bounds or categories."""
    if found := list(column.get("categories") or ()):
        more = f", … ({len(found):,} in all)" if len(found) > most else ""
        return ", ".join(map(written, found[:most])) + more
    low, high = column.get("bounds") or (column.get("low"), column.get("high"))
    return "" if low is None and high is None else f"{written(low)} to {written(high)}"


@dataclass(frozen=True)
class UsageLine:
    text: str
    code: bool


def _use(lines: Iterable[Any]) -> list[UsageLine]:
    """Sentences, and lines of code (indented by four, or {"code": …}) together in one block."""
    out: list[UsageLine] = []
    for line in lines:
        code = isinstance(line, Mapping) or str(line).startswith("    ")
        text = str(line["code"]) if isinstance(line, Mapping) else str(line)[4:] if code else str(line)
        if code and out and out[-1].code:
            out[-1] = UsageLine(f"{out[-1].text}\n{text}", True)
        else:
            out.append(UsageLine(text, code))
    return out


# -- a study ----------------------------------------------------------------------------------------------------------


def _study(report: Mapping[str, Any], maker: Maker) -> str:
    finished, cells = report.get("finished"), report.get("cells")
    done = f"{written(finished)} of {written(cells)} cells are on this page." if cells is not None else ""
    grid = sheet_of_rows("A row a way to condense", report.get("grid") or (), report.get("titles") or {})
    verdict = (*_lines(report.get("verdict")), *([done] if done else []))
    read, failed = report.get("read") or (), report.get("failed") or ()
    under = [f"made {report['made']}" if report.get("made") else ""]
    return _page(
        "study.html.j2",
        internal=True,
        title=f"{report['name']}: study, not for release",
        name=report["name"],
        kicker="Study, for the custodian",
        under=" · ".join(word for word in under if word),
        contents=(("verdict", "Verdict"), ("grid", "The grid"), ("limits", "Limits")),
        verdict=verdict,
        decisions=[maker.table(Table.from_dict(one)) for one in report.get("decisions") or ()],
        comparisons=maker.gallery(Figure.from_dict(one) for one in report.get("comparisons") or ()),
        read=_pairs(read),
        failed=_pairs(failed),
        grid=None if grid is None else maker.cut(grid),
        gallery=maker.gallery(Figure.from_dict(one) for one in report.get("figures") or ()),
        tables=[maker.table(Table.from_dict(one)) for one in report.get("tables") or ()],
        limits=(*LIMITS, *_lines(report.get("limits"))),
        version=f" {report['version']}" if report.get("version") else "",
    )


# -- words ------------------------------------------------------------------------------------------------------------


def said(value: Any) -> str:
    """Whatever a report holds, in words."""
    if isinstance(value, Mapping):
        return "; ".join(f"{str(name).replace('_', ' ')}: {said(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(said, value))
    if isinstance(value, float) and not math.isfinite(value):
        return "—"
    return written(value)


def _lines(value: Any) -> tuple[str, ...]:
    """One sentence or several."""
    if not value:
        return ()
    return tuple(map(said, value)) if isinstance(value, list | tuple) else (said(value),)


def _pairs(found: Mapping[str, Any] | Sequence[Any]) -> tuple[str, ...]:
    if isinstance(found, Mapping):
        return tuple(f"{name}: {said(words)}" for name, words in found.items())
    return _lines(found)
