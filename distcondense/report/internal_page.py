"""`internal/report.html`: the custodian's page of one run, a view of `internal/report.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distcondense.evaluation.leaks import Decision, decide, in_words
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, TRAINED_ON, Score, find
from distcondense.evaluation.section import Section
from distcondense.evaluation.suite import ATTACKS, LIKENESS, UTILITY
from distcondense.outcomes.measures import title
from distcondense.report.page import LIMITS, Card, Claim, Gallery, PageMaker, claim_of, rendered, size_checked
from distcondense.report.tables import PageTable, TableCell, labels_words, pairs_table, score_tables, way_words
from distcondense.report.text import digits, sentences, written
from distcondense.runs.figures import DOTS, Figure, Series

COPIES = "copies"  # a section of likeness that is read beside the attacks, and is no privacy either
# the sections of each chapter, in the order in which they are read; others go where their scores belong
CHAPTERS = {
    "good": tuple(UTILITY),
    "looks": tuple(name for name in LIKENESS if name != COPIES),
    "attacks": (COPIES, *ATTACKS),
}
LEAK = TableCell("▲ leak found", tone="bad")
NO_LEAK = TableCell("✓ no leak found at this power", tone="good")
UNTRIED = TableCell("not tried", tone="care")
FACTS = {
    "method": "Method",
    "outcome": "Outcome",
    "rows_real": "Real rows",
    "rows_condensed": "Condensed rows",
    "columns": "Columns",
    "rows_sampled": "Real rows that evaluation saw",
    "made": "Made",
}
MADE_WITH = {"timings": "Time, in seconds", "odometer": "All that was read of these patients"}


@dataclass(frozen=True)
class SectionView:
    """A section of the evaluation, ready to be shown."""

    key: str
    title: str
    scores: tuple[PageTable, ...]
    gallery: Gallery
    tables: tuple[PageTable, ...]
    notes: tuple[str, ...]
    settings: PageTable | None
    leak: TableCell | None  # of an attack: what it found, in a word


def internal_page(report: Mapping[str, Any]) -> str:
    """The custodian's page of one run: everything, nothing of it for release.

    Parameters
    ----------
    report : mapping
        What `internal/report.json` holds; all but `run` and `privacy` is optional.

    Returns
    -------
    str
        One HTML document of at most LARGEST bytes; what it had to leave out it says.
    """
    return size_checked(lambda bounds: _page(report, PageMaker(bounds, ": they are in report.json")))


def _page(report: Mapping[str, Any], maker: PageMaker) -> str:
    run, privacy, made_with = report["run"], report["privacy"], report.get("made_with", {})
    sections = [Section.from_dict(entry) for entry in report.get("parts", ())]
    quick = tuple(Score.from_dict(entry) for entry in report.get("quick", ()))
    found = decide(sections)
    chapters = {name: [_section(maker, one, found) for one in listed] for name, listed in chapters_of(sections).items()}
    claim = claim_of(privacy)
    under = (("method", "method"), ("made", "made"), ("version", "distcondense"))
    return rendered(
        "internal.html.j2",
        internal=True,
        title=f"{run['name']}: internal report, not for release",
        name=run["name"],
        kicker="Report for the custodian",
        under=" · ".join(f"{word} {run[name]}" for name, word in under if run.get(name)),
        contents=(
            ("verdict", "Verdict and ε"),
            ("good", "How good"),
            ("looks", "What it looks like"),
            ("attacks", "Copy check and attacks"),
            ("limits", "Limits"),
            ("made", "How it was made"),
        ),
        verdict=[line for line in sentences(report.get("verdict")) if line != claim.sentence],  # the card says it
        poor=report.get("poor") is True,
        **_in_a_word(report.get("poor") is True, bool(found.leaks), claim),
        claim=claim,
        cards=(claim.card, *_cards(run, quick)),
        facts=_facts(run),
        glance=maker.gallery(at_a_glance(quick)),
        quick=[maker.cut(table) for table in score_tables(quick, {}, "At a glance")],
        **chapters,
        limits=(*LIMITS, *sentences(made_with.get("warnings"))),
        public=sentences(privacy.get("public")),
        not_covered=sentences(privacy.get("not_covered")),
        made=[_made(maker, name, value) for name, value in made_with.items() if value],
        version=run.get("version", ""),
    )


def _in_a_word(poor: bool, leak: bool, claim: Claim) -> dict[str, str]:
    """The worst of what is known, with its colour, before any number."""
    if leak:
        return {
            "word": "A leak was found.",
            "tone": "bad",
            "more": "Do not release these rows before it is understood.",
        }
    if poor and claim.tone != "bad":
        return {"word": "Of little use.", "tone": "bad", "more": f"Privacy: {claim.word.lower()}"}
    return {"word": claim.word, "tone": claim.tone, "more": claim.means}


def chapters_of(sections: Sequence[Section]) -> dict[str, list[Section]]:
    """Chapter → its sections in reading order; one that is not listed is an attack if it has a ceiling or a power."""
    chapters: dict[str, list[Section]] = {name: [] for name in CHAPTERS}
    place = {name: chapter for chapter, names in CHAPTERS.items() for name in names}
    order = list(place)
    for section in sorted(sections, key=lambda one: order.index(one.name) if one.name in place else len(order)):
        attacked = any(score.ceiling is not None or score.power is not None for score in section.scores)
        chapters[place.get(section.name, "attacks" if attacked else "looks")].append(section)
    return chapters


def _section(maker: PageMaker, section: Section, found: Decision) -> SectionView:
    attacked = section.name in ATTACKS
    cell = LEAK if section.name in found.leaks else NO_LEAK if section.name in found.tested else UNTRIED
    settings = pairs_table(f"Settings: {section.title}", section.settings) if section.settings else None
    return SectionView(
        maker.key("part"),
        section.title,
        tuple(maker.cut(table) for table in score_tables(section.scores, section.titles, section.title)),
        maker.gallery(section.figures),
        tuple(map(maker.table, section.tables)),
        (*in_words(section, found), *section.notes) if attacked else section.notes,
        None if settings is None else maker.cut(settings),
        cell if attacked else None,
    )


def _facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    outcome = run.get("outcome")
    if isinstance(outcome, Mapping) and outcome.get("columns"):
        run = {**run, "outcome": f"{written(outcome['columns'])} ({written(outcome.get('kind', 'outcome'))})"}
    return [(words, written(run[name])) for name, words in FACTS.items() if run.get(name) is not None]


def _cards(run: Mapping[str, Any], quick: Sequence[Score]) -> list[Card]:
    """How many rows became how many, and the first measure of the condensed rows between its floor and its ceiling."""
    cards = []
    if run.get("rows_condensed") is not None:
        of = f"from {written(run['rows_real'])} real rows" if run.get("rows_real") is not None else ""
        cards.append(Card("Condensed rows", written(run["rows_condensed"]), of))
    if (first := find(quick, CONDENSED)) is not None:
        ends = [find(quick, way, first.measure) for way in (FULL, RANDOM)]
        ceiling, floor = ("—" if score is None else digits(score.value) for score in ends)
        between = f"ceiling {ceiling} (real rows), floor {floor} (as few random real rows)"
        labels = f", {labels_words(first.labels)}" if first.labels else ""
        what = f"{title(first.measure)} of a model of the condensed rows{labels}"
        cards.append(Card(what, digits(first.value), between))
    return cards


def at_a_glance(quick: Sequence[Score]) -> list[Figure]:
    """The first measure of every way to train, with its interval: the condensed rows between ceiling and floor."""
    if not quick:
        return []
    first, order = quick[0], list(TRAINED_ON)
    main = [s for s in quick if (s.measure, s.tested_on, s.group) == (first.measure, first.tested_on, first.group)]
    main.sort(key=lambda score: order.index(score.trained_on) if score.trained_on in order else len(order))
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


def _made(maker: PageMaker, name: str, value: Any) -> tuple[str, tuple[str, ...], PageTable | None]:
    """One entry of how it was made: its title, then sentences or a table of pairs."""
    words = MADE_WITH.get(name) or name.replace("_", " ").capitalize()
    if isinstance(value, Mapping):
        return words, (), maker.cut(pairs_table(words, value))
    return words, sentences(value), None
