"""`Canvas`: an SVG drawing that is filled from top to bottom, with its marks, hatches and legend.

It is WIDTH units wide and scales, so that its text stays legible on a screen of 360 pixels. Series differ by colour and
by dash, marker or hatching. Colours are classes that the page's style sheet fills in, for light and dark. Every text
is cleaned and escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import escape

from distcondense.report.text import clean, fitted, width_of, wrapped
from distcondense.runs.figures import BARS, DOTS, LINES, Figure

WIDTH = 360.0  # units; a font of 12 of them has 10 pixels or more on the smallest screen
LINE = 15.0
COLOURS = 8  # classes s0 … s7 of the style sheet
DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2 1 2 1 2")
LEVELS = ("5 4", "1 4", "8 3 1 3")
HATCHES = {1: (45, "M0 3h6"), 2: (0, "M2 3h2"), 3: (0, "M0 3h6"), 4: (0, "M0 3h6M3 0v6"), 5: (-45, "M0 3h6")}


@dataclass
class Canvas:
    """Elements from top to bottom; `y` is how far down it is filled. `key` begins every id.

    Without `keyed` there is no legend: somebody else draws one for several figures.
    """

    key: str
    keyed: bool = field(default=True, kw_only=True)
    parts: list[str] = field(default_factory=list)
    y: float = 4.0

    def add(self, element: str) -> None:
        self.parts.append(element)

    def text(
        self, x: float, y: float, words: str, anchor: str = "start", kind: str = "tick", turn: bool = False
    ) -> None:
        how = "" if anchor == "start" else f' text-anchor="{anchor}"'
        turned = f' transform="rotate(-60 {short(x)} {short(y)})"' if turn else ""
        self.add(f'<text class="{kind}" x="{short(x)}" y="{short(y)}"{how}{turned}>{escape(clean(words))}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, dash: str = "") -> None:
        self.add(f'<path class="{kind}" d="M{short(x1)} {short(y1)}L{short(x2)} {short(y2)}"{dashed(dash)}/>')

    def box(self, kind: str, x: float, y: float, width: float, height: float, opacity: float | None = None) -> None:
        fill = "" if opacity is None else f' fill-opacity="{opacity:.2f}"'
        place = f'x="{short(x)}" y="{short(y)}" width="{short(width)}" height="{short(height)}"'
        self.add(f'<rect class="{kind}" {place}{fill}/>')

    def label(self, text: str, *, middle: bool = False) -> None:
        """In up to two lines below what is there: from the left, or in the middle."""
        for line in wrapped(text, WIDTH - 10):
            self.y += LINE
            self.text(WIDTH / 2 if middle else 2.0, self.y - 3, line, "middle" if middle else "start", "label")

    def marks(
        self, number: int, kind: str, marks: Sequence[str], whiskers: Sequence[str], figure: Figure | None = None
    ) -> None:
        """Bars or markers of one series, as one path, and their whiskers; bars are filled as their figure says."""
        colour, fill = f"s{number % COLOURS}", ""
        if figure is not None:
            kind, fill = self.fill(figure, number)
        if marks:
            self.add(f'<path class="{kind} {colour}" d="{"".join(marks)}"{fill}/>')
        if whiskers:
            self.add(f'<path class="whisker {colour if kind == "mark" else "over"}" d="{"".join(whiskers)}"/>')

    def fill(self, figure: Figure, number: int) -> tuple[str, str]:
        """Class and fill of bars of one series: where there are several, not by colour alone."""
        turn = number % (len(HATCHES) + 1)
        hatched = len(figure.series) > 1 and turn > 0
        return ("hatched", f' fill="url(#{self.key}-h{number})"') if hatched else ("bar", "")

    def legend(self, figure: Figure) -> None:
        """Series with their marks, levels and the diagonal with their dashes; nothing for a single series alone."""
        if self.keyed:
            self.entries(self.samples(figure), WIDTH)

    def entries(self, entries: Sequence[tuple[str, str]], width: float) -> None:
        """Samples and their names, one after the other in lines of this width."""
        x = 2.0
        for number, (sample, name) in enumerate(entries):
            words = fitted(name, width - 36)
            wide = 28 + width_of(words) + 12
            if number and x + wide - 12 > width:
                x, self.y = 2.0, self.y + LINE + 2
            self.add(f'<g transform="translate({short(x)} {short(self.y + 8)})">{sample}</g>')
            self.text(x + 28, self.y + 12, words, kind="entry")
            x += wide
        if entries:
            self.y += LINE + 8

    def samples(self, figure: Figure, *, values: bool = True) -> list[tuple[str, str]]:
        """What a legend shows of a figure: how a series, a level or the diagonal is drawn, and its name."""
        entries: list[tuple[str, str]] = []
        if len(figure.series) > 1:
            entries = [(self._sample(figure, k), one.name) for k, one in enumerate(figure.series)]
        for number, (name, y) in enumerate(figure.at):
            if math.isfinite(y):
                dash = dashed(LEVELS[number % len(LEVELS)])
                words = f"{name}: {y:.3g}".replace("-", "−") if values else name
                entries.append((f'<path class="level" d="M0 0h22"{dash}/>', words))
        if figure.diagonal:
            entries.append(('<path class="diagonal" d="M0 0h22"/>', "equal"))
        return entries

    def _sample(self, figure: Figure, place: int) -> str:
        number = look(figure, place)
        colour = f"s{number % COLOURS}"
        if figure.kind == BARS:
            kind, fill = self.fill(figure, number)
            return f'<rect class="{kind} {colour}" x="2" y="-5" width="18" height="10"{fill}/>'
        marker = f'<path class="mark {colour}" d="{marker_path(number, 11, 0)}"/>'
        if figure.kind == DOTS:
            return marker
        line = f'<path class="line {colour}" d="M0 0h22"{dashed(dash_of(figure, place))}/>'
        return line + (marker if figure.kind == LINES else "")

    def hatches(self, figure: Figure) -> None:
        """The patterns that `fill` names."""
        for number in range(len(figure.series)):
            if self.fill(figure, number)[1]:
                turn, path = HATCHES[number % (len(HATCHES) + 1)]
                self.add(
                    f'<pattern id="{self.key}-h{number}" class="s{number % COLOURS}" patternUnits="userSpaceOnUse" '
                    f'width="6" height="6" patternTransform="rotate({turn})"><path class="ground" d="M0 0h6v6h-6z"/>'
                    f'<path class="hatch" d="{path}"/></pattern>'
                )


def look(figure: Figure, place: int) -> int:
    """The number of a series' colour, dash and mark."""
    own = figure.series[place].look
    return place if own is None else own


def dash_of(figure: Figure, place: int) -> str:
    """Of a series' line: what it says itself, else one by its look."""
    broken = figure.series[place].broken
    return DASHES[look(figure, place) % len(DASHES)] if broken is None else DASHES[int(broken)]


def short(value: float) -> str:
    """A coordinate with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")


def dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def marker_path(number: int, x: float, y: float, r: float = 4.0) -> str:
    """Circle, square, triangle, diamond, triangle down, cross, plus, bow: a path around a point."""
    turn = (number + number // COLOURS) % COLOURS  # the ninth has the first colour and another mark
    if turn == 0:
        return f"M{short(x - r)} {short(y)}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z"
    a, b = r * 0.9, r * 0.35
    plus = [(-b, -r), (b, -r), (b, -b), (r, -b), (r, b), (b, b), (b, r), (-b, r), (-b, b), (-r, b), (-r, -b), (-b, -b)]
    shapes: dict[int, list[tuple[float, float]]] = {
        1: [(-a, -a), (a, -a), (a, a), (-a, a)],
        2: [(0, -r), (r, a), (-r, a)],
        3: [(0, -r - 1), (r + 1, 0), (0, r + 1), (-r - 1, 0)],
        4: [(0, r), (r, -a), (-r, -a)],
        5: [((dx - dy) * 0.75, (dx + dy) * 0.75) for dx, dy in plus],
        6: plus,
        7: [(-r, -r), (r, r), (r, -r), (-r, r)],
    }
    return "M" + "L".join(f"{short(x + dx)} {short(y + dy)}" for dx, dy in shapes[turn]) + "z"
