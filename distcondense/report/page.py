"""What the pages share: a page is one HTML file, a pure view of plain dictionaries.

`internal_page` shows `internal/report.json`, all of it computed on patients, and says so on every screen;
`release_page` shows only what it is given of the release side; `study_page` shows a study's grid. A page loads nothing
and runs nothing: styles and drawings are inside, and a content-security policy forbids the rest. Whatever stands in a
report is escaped. A page that would grow beyond LARGEST leaves out rows of tables, then figures, and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from distcondense.privacy.statement import Privacy, meaning, rounded_up
from distcondense.report.svg import draw, figure_table
from distcondense.report.tables import PageTable, page_table
from distcondense.report.text import sentence, sentences_of, written
from distcondense.runs.figures import Figure, Table

if TYPE_CHECKING:
    from jinja2 import Environment

LARGEST = 1_500_000  # bytes of a page
CELL = len("<td></td>")  # bytes of an empty one
LIMITS = (
    "The guarantee protects patients; attacks only look for mistakes. That these attacks found no leak at this power "
    "does not mean that there is none.",
    "Intervals are of chance in the choice of test rows (95%). They do not say how the numbers would change at another "
    "hospital, in another year, or in another run.",
    "Choosing among runs or settings by the numbers of this page, and then releasing, is not covered by the guarantee.",
)
WORDS = {"end-to-end": "Guaranteed.", "conditional": "Guaranteed on a condition.", "none": "No guarantee."}
TONES = {"end-to-end": "good", "conditional": "care"}  # how to feel about a guarantee; about any other, bad


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
    """A figure as it is shown, with the table behind it."""

    title: str
    about: str
    svg: Markup
    sheet: PageTable


@dataclass(frozen=True)
class Gallery:
    """Figures side by side, how to read several of them, and how many are left out."""

    figures: tuple[DrawnFigure, ...]
    left_out: int = 0
    elsewhere: str = ""
    about: str = ""  # sentences that several figures share, which are said once


@dataclass(frozen=True)
class Card:
    """A number in large letters."""

    what: str
    number: str
    more: str
    tone: str = ""


@dataclass
class PageMaker:
    """Cuts tables and galleries to the bounds, and gives every drawing an id of its own."""

    bounds: Bounds
    elsewhere: str = ""  # where to find what is left out
    count: int = 0
    cells: int = 0  # of all tables so far

    def key(self, word: str) -> str:
        self.count += 1
        return f"{word}-{self.count}"

    def cut(self, table: PageTable) -> PageTable:
        cut = table.cut(self.bounds.rows, self.elsewhere)
        self.cells += len(cut.rows) * len(cut.columns)
        if self.cells * CELL > LARGEST and self.bounds != LADDER[-1]:
            raise TooLarge
        return cut

    def table(self, table: Table) -> PageTable:
        return self.cut(page_table(table, self.bounds.rows))

    def gallery(self, figures: Iterable[Figure]) -> Gallery:
        every = list(figures)
        shown = every[: self.bounds.figures]
        said = Counter(line for figure in shown for line in set(sentences_of(figure.about)))
        kept = tuple(
            DrawnFigure(
                figure.title,
                " ".join(line for line in sentences_of(figure.about) if said[line] == 1),
                draw(figure, self.key("figure")),  # its description has them all, for those who cannot see it
                self.table(figure_table(figure)),
            )
            for figure in shown
        )
        shared = dict.fromkeys(line for figure in shown for line in sentences_of(figure.about) if said[line] > 1)
        return Gallery(kept, len(every) - len(kept), self.elsewhere, " ".join(shared))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import

    return Environment(
        loader=PackageLoader("distcondense.report"),
        autoescape=True,
        undefined=StrictUndefined,
        # before it is escaped; a drawing is clean already
        finalize=lambda value: value if isinstance(value, Markup) else written(value),
        trim_blocks=True,
        lstrip_blocks=True,
    )


def rendered(template: str, **context: Any) -> str:
    """A template of `templates/`, filled in."""
    return _environment().get_template(template).render(**context)


# -- privacy ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Claim:
    """What may be said about privacy: never an ε without its guarantee."""

    card: Card
    short: str
    sentence: str  # with which the paragraph begins
    sentences: tuple[str, ...]
    paragraph: str
    charged: bool  # every look at patients was paid for at the gate
    word: str  # before any number
    tone: str  # good, care or bad: its colour
    means: str


def claim_of(stated: Mapping[str, Any]) -> Claim:
    """A statement as privacy.json holds it, in its own words."""
    privacy = Privacy.from_dict(dict(stated))
    guarantee, means, short = privacy.guarantee, meaning(privacy.guarantee, privacy.unit), privacy.short()
    if privacy.epsilon is None:
        card = Card("Privacy", "No guarantee", means, "bad")
    else:
        more = f"{guarantee}, δ = {privacy.delta:g}: {means}"
        card = Card("Privacy", f"ε = {rounded_up(privacy.epsilon, 3)}", more, TONES.get(guarantee, "bad"))
    # said once: by verdict and card, in full by the paragraph; a sentence has what these do not: earlier runs, the
    # worst case, a paper's own claim
    beyond = [short.partition("; ")[2] if privacy.charged else short] if ";" in short else []
    words = tuple(map(sentence, beyond if privacy.charged or guarantee == "none" else (*beyond, privacy.sentence())))
    word, tone = WORDS.get(guarantee, "Not guaranteed."), card.tone
    if privacy.answer:
        word, tone = "No answer.", "bad"
    return Claim(
        card, short, privacy.sentence(), words, privacy.paragraph(), privacy.charged, word, tone, sentence(means)
    )
