"""Figures as inline SVG: every kind of `runs/figures.py`, drawn for a phone first, without a script.

A drawing is WIDTH units wide and scales, so that its text stays legible on a screen of 360 pixels. Series differ by
colour and by dash, marker or hatching. Colours are classes that the page's style sheet fills in, for light and dark.
Names are cleaned and escaped here; whatever a drawing leaves out or shortens stands in the table behind it (`numbers`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

from markupsafe import Markup, escape

from distcondense.errors import SettingsError
from distcondense.report.axes import Axis, axis_of, clean, digits, fitted, span_of, width_of, wrapped
from distcondense.runs.figures import BARS, DOTS, HEAT, LINES, STEPS, Figure, Series, Table

WIDTH = 360.0  # units; a font of 12 of them has 10 pixels or more on the smallest screen
LINE = 15.0
PLOT = 190.0  # height of a plot with two axes of numbers
RIGHT = 14.0
STRIP = 7.0  # height of the strip that says where many are
COLOURS = 8  # classes s0 … s7 of the style sheet
MOST_NAMES, MOST_MARKS = 40, 240  # rows of a figure by names, and bars or dots in all
MOST_CELLS = 40  # rows, and columns, of a heat map
MOST_POINTS = 300  # of one line
MOST_SERIES = 24  # but for heat maps
MOST_BARS, MOST_DOTS = 180, 500  # over numbers: beyond it bars become a step curve, and of dots every so many are drawn
MARKED, WHISKERED = 30, 14  # points up to which a line has markers, and whiskers instead of a band
FEW = 10  # values of x up to which they may stand evenly where they span powers of ten
DODGE = 3.0  # between whiskers of several lines over the same names
SPREAD = 20.0  # … from this ratio on
LARGEST = 1e100  # numbers beyond it, and those that are none, are not drawn
STRONGEST = 0.75  # opacity of a heat map's last colour: text on it stays legible
HATCHES = 6
DASHES = ("", "7 3", "2 3", "9 3 2 3", "5 2 1 2 1 2")
LEVELS = ("5 4", "1 4", "8 3 1 3")


# -- what is drawn ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    x: float | str
    y: float
    low: float
    high: float


def _points(series: Series) -> list[Point]:
    """Those that can be drawn."""
    nothing = (math.nan,) * len(series.y)
    whole = zip(series.x, series.y, series.low or nothing, series.high or nothing, strict=False)
    return [Point(x, y, low, high) for x, y, low, high in whole if _drawable(x) and abs(y) < LARGEST]


def _drawable(x: Any) -> bool:
    return isinstance(x, str) or (isinstance(x, int | float) and abs(x) < LARGEST)


def _names(figure: Figure) -> list[float | str]:
    """Every x, once, as they come."""
    return list(dict.fromkeys(x for one in figure.series for x in one.x if _drawable(x)))


def _by_name(figure: Figure) -> bool:
    return any(isinstance(x, str) for one in figure.series for x in one.x)


def _values(figure: Figure) -> list[float]:
    """What the axis of y must show: points, levels, and whiskers that are not absurdly long."""
    points = [point for one in figure.series for point in _points(one)]
    values = [point.y for point in points] + [y for _, y in figure.at if math.isfinite(y)]
    if not values or figure.y_range is not None:  # where it was said how far to look, whiskers stop there
        return values
    low, high = min(values), max(values)
    lengths = sorted(p.high - p.low for p in points if abs(p.high) < LARGEST and abs(p.low) < LARGEST)
    usual = lengths[len(lengths) // 2] if lengths else 0.0
    room = 2 * max(high - low, usual)
    ends = [end for point in points for end in (point.low, point.high) if abs(end) < LARGEST]
    return values + [min(max(end, low - room), high + room) for end in ends]


@dataclass
class Canvas:
    """Elements from top to bottom; `y` is how far down it is filled."""

    key: str
    parts: list[str] = field(default_factory=list)
    y: float = 4.0

    def add(self, element: str) -> None:
        self.parts.append(element)

    def text(
        self, x: float, y: float, words: str, anchor: str = "start", kind: str = "tick", turn: bool = False
    ) -> None:
        how = "" if anchor == "start" else f' text-anchor="{anchor}"'
        turned = f' transform="rotate(-60 {_n(x)} {_n(y)})"' if turn else ""
        self.add(f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}"{how}{turned}>{escape(clean(words))}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str, dash: str = "") -> None:
        self.add(f'<path class="{kind}" d="M{_n(x1)} {_n(y1)}L{_n(x2)} {_n(y2)}"{_dash(dash)}/>')

    def over(self, text: str) -> None:
        """A label above, from the left, in up to two lines."""
        self._words(text, 2.0, "start")

    def under(self, text: str) -> None:
        """A label or a note below, in the middle."""
        self._words(text, WIDTH / 2, "middle")

    def _words(self, text: str, x: float, anchor: str) -> None:
        for line in wrapped(text, WIDTH - 10):
            self.y += LINE
            self.text(x, self.y - 3, line, anchor, "label")


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _dash(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def draw(figure: Figure, key: str = "") -> Markup:
    """The figure as one `<svg>` with title and description; `key` makes its ids its own in a page."""
    if figure.kind not in _KINDS:
        rule = f"must be one of {', '.join(_KINDS)}"
        raise SettingsError(f"figure {clean(figure.name)}", rule, found=repr(clean(figure.kind)))
    key = key or "f" + hashlib.sha256(repr(figure).encode("utf-8", "replace")).hexdigest()[:12]
    drawing = Canvas(key)
    if any(_points(one) for one in figure.series):
        some = replace(figure, series=figure.series if figure.kind == HEAT else figure.series[:MOST_SERIES])
        _KINDS[figure.kind](drawing, some)
        if len(some.series) < len(figure.series):
            drawing.under(f"The first {MOST_SERIES} of {len(figure.series):,} series; all are in the table.")
    else:
        drawing.text(WIDTH / 2, 40, "Nothing to draw: no value was measured.", "middle", "label")
        drawing.y = 60.0
    about = f"{clean(figure.about)} {_described(figure)}".strip()
    height = _n(drawing.y + 4)
    return Markup(
        f'<svg class="drawn" viewBox="0 0 {_n(WIDTH)} {height}" width="{_n(WIDTH)}" height="{height}" role="img" '
        f'aria-labelledby="{key}-t {key}-d"><title id="{key}-t">{escape(clean(figure.title))}</title>'
        f'<desc id="{key}-d">{escape(about)}</desc>{"".join(drawing.parts)}</svg>'
    )


def _described(figure: Figure) -> str:
    """For those who cannot see it: what is drawn, of whom, from where to where."""
    values = [point.y for one in figure.series for point in _points(one)]
    if not values:
        return "Nothing could be drawn."
    names = ", ".join(clean(one.name) for one in figure.series[:8] if one.name)
    more = f" and {len(figure.series) - 8} more" if len(figure.series) > 8 else ""
    return (
        f"{_KIND_WORDS[figure.kind]}{f' of {names}{more}' if names else ''}, values from {digits(min(values))} to "
        f"{digits(max(values))}. The numbers are in the table after it."
    )


_KIND_WORDS = {BARS: "Bars", LINES: "Lines", STEPS: "Step curves", DOTS: "Dots", HEAT: "A heat map with the rows"}


# -- the legend -------------------------------------------------------------------------------------------------------


def _legend(drawing: Canvas, figure: Figure) -> None:
    """Series with their marks, levels and the diagonal with their dashes; nothing for a single series alone."""
    named = list(enumerate(figure.series)) if len(figure.series) > 1 else []
    entries: list[tuple[str, str]] = [(_sample(drawing, figure, number), one.name) for number, one in named]
    for number, (name, y) in enumerate(figure.at):
        if math.isfinite(y):
            dash = _dash(LEVELS[number % len(LEVELS)])
            entries.append((f'<path class="level" d="M0 0h22"{dash}/>', f"{name}: {y:.3g}".replace("-", "−")))
    if figure.diagonal:
        entries.append(('<path class="diagonal" d="M0 0h22"/>', "equal"))
    x = 2.0
    for number, (sample, name) in enumerate(entries):
        shown = fitted(name, WIDTH - 36)
        width = 28 + width_of(shown) + 12
        if number and x + width - 12 > WIDTH:
            x, drawing.y = 2.0, drawing.y + LINE + 2
        drawing.add(f'<g transform="translate({_n(x)} {_n(drawing.y + 8)})">{sample}</g>')
        drawing.text(x + 28, drawing.y + 12, shown, kind="entry")
        x += width
    if entries:
        drawing.y += LINE + 8


def _sample(drawing: Canvas, figure: Figure, number: int) -> str:
    colour = f"s{number % COLOURS}"
    if figure.kind == BARS:
        kind, fill = _filled(drawing, figure, number)
        return f'<rect class="{kind} {colour}" x="2" y="-5" width="18" height="10"{fill}/>'
    if figure.kind == DOTS:
        return f'<path class="mark {colour}" d="{_marker(number, 11, 0)}"/>'
    line = f'<path class="line {colour}" d="M0 0h22"{_dash(DASHES[number % len(DASHES)])}/>'
    return line + (f'<path class="mark {colour}" d="{_marker(number, 11, 0)}"/>' if figure.kind == LINES else "")


def _marker(number: int, x: float, y: float, r: float = 4.0) -> str:
    """Circle, square, triangle, diamond, triangle down, cross, plus, bow: a path around a point."""
    turn = number % COLOURS
    if turn == 0:
        return f"M{_n(x - r)} {_n(y)}a{r:g} {r:g} 0 1 0 {2 * r:g} 0a{r:g} {r:g} 0 1 0 {-2 * r:g} 0z"
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
    return "M" + "L".join(f"{_n(x + dx)} {_n(y + dy)}" for dx, dy in shapes[turn]) + "z"


def _filled(drawing: Canvas, figure: Figure, number: int) -> tuple[str, str]:
    """How bars of one series are filled where there are several: not by colour alone."""
    if len(figure.series) < 2 or number % HATCHES == 0:
        return "bar", ""
    return "hatched", f' fill="url(#{drawing.key}-h{number})"'


def _hatches(drawing: Canvas, figure: Figure) -> None:
    lines = {1: (45, "M0 3h6"), 2: (0, "M2 3h2"), 3: (0, "M0 3h6"), 4: (0, "M0 3h6M3 0v6"), 5: (-45, "M0 3h6")}
    wanted = [number for number in range(len(figure.series)) if _filled(drawing, figure, number)[1]]
    for number in wanted:
        turn, path = lines[number % HATCHES]
        drawing.add(
            f'<pattern id="{drawing.key}-h{number}" class="s{number % COLOURS}" patternUnits="userSpaceOnUse" '
            f'width="6" height="6" patternTransform="rotate({turn})"><path class="ground" d="M0 0h6v6h-6z"/>'
            f'<path class="hatch" d="{path}"/></pattern>'
        )


# -- names down the side: horizontal bars, dots with whiskers ---------------------------------------------------------


def _down(drawing: Canvas, figure: Figure) -> None:
    """A row a name, because names are long and a phone is narrow; values go to the right."""
    count, points = len(figure.series), [_points(one) for one in figure.series]
    names = _names(figure)
    kept = names[: max(8, min(MOST_NAMES, MOST_MARKS // count))]
    texts = [fitted(_name(name), WIDTH - 30) for name in kept]
    longest = max(map(width_of, texts))
    above = longest > 0.36 * WIDTH  # the name stands over its bars
    each = {1: 12.0, 2: 9.0, 3: 8.0}.get(count, 7.0) if figure.kind == BARS else 11.0
    here = {name: [i for i, one in enumerate(points) if any(p.x == name for p in one)] for name in kept}
    head = LINE if above else 0.0
    tall = {name: head + max(len(here[name]) * each, 0.0 if above else 12.0) + (11 if above else 8) for name in kept}
    _hatches(drawing, figure)
    _legend(drawing, figure)
    drawing.over(figure.x)
    start = 16.0 if above else longest + 10
    zero = figure.kind == BARS
    span = span_of(_values(figure), figure.y_range, zero)
    axis = axis_of(span, start, WIDTH - RIGHT - 10, nice=figure.y_range is None, most=6)
    top = drawing.y + 4
    place = dict(zip(kept, accumulate((tall[name] for name in kept), initial=top), strict=False))
    bottom = top + sum(tall.values())
    _upright(drawing, axis, top, bottom)
    for name, text in zip(kept, texts, strict=True):
        y = place[name] + (LINE - 2 if above else tall[name] / 2 + 4)
        drawing.text(2 if above else start - 6, y, text, "start" if above else "end", "name")
    base = axis(min(max(0.0, axis.low), axis.high))
    for number, one in enumerate(points):
        marks: list[str] = []
        whiskers: list[str] = []
        for point in (p for p in one if p.x in place):
            inside = tall[point.x] - head - len(here[point.x]) * each
            y = place[point.x] + head + inside / 2 + each * here[point.x].index(number)
            if figure.kind == BARS:
                marks.append(f"M{_n(base)} {_n(y + 0.5)}H{_n(axis(point.y))}v{_n(each - 1)}H{_n(base)}z")
            else:
                marks.append(_marker(number, axis(point.y), y + each / 2))
            whiskers += _whisker(axis, point, y + each / 2, along=True)
        kind, fill = _filled(drawing, figure, number) if figure.kind == BARS else ("mark", "")
        _series(drawing, number, kind, marks, whiskers, fill)
    _levels(drawing, figure, axis, top, bottom, upright=True)
    drawing.y = bottom + LINE + 3
    drawing.under(figure.y)
    if len(kept) < len(names):
        drawing.under(f"The first {len(kept)} of {len(names):,}; all are in the table.")


def _name(value: float | str) -> str:
    return value if isinstance(value, str) else digits(float(value))


def _series(
    drawing: Canvas, number: int, kind: str, marks: Sequence[str], whiskers: Sequence[str], fill: str = ""
) -> None:
    colour = f"s{number % COLOURS}"
    if marks:
        drawing.add(f'<path class="{kind} {colour}" d="{"".join(marks)}"{fill}/>')
    if whiskers:
        drawing.add(f'<path class="whisker {colour if kind == "mark" else "over"}" d="{"".join(whiskers)}"/>')


def _whisker(axis: Axis, point: Point, at: float, *, along: bool) -> Iterator[str]:
    """From low to high, with a cap where the end lies inside the figure."""
    if not (math.isfinite(point.low) and math.isfinite(point.high)):
        return
    low, high = axis(point.low), axis(point.high)
    yield f"M{_n(low)} {_n(at)}H{_n(high)}" if along else f"M{_n(at)} {_n(low)}V{_n(high)}"
    for end, place in ((point.low, low), (point.high, high)):
        if axis.holds(end):
            yield f"M{_n(place)} {_n(at - 3)}v6" if along else f"M{_n(at - 3)} {_n(place)}h6"


def _upright(drawing: Canvas, axis: Axis, top: float, bottom: float) -> None:
    """Ticks of an axis along the drawing, with lines up through it."""
    for value, label in axis.ticks:
        x = axis(value)
        drawing.line(x, top, x, bottom, "axis" if value == 0 else "grid")
        drawing.text(x, bottom + LINE - 1, label, "middle")


def _levels(drawing: Canvas, figure: Figure, axis: Axis, start: float, end: float, *, upright: bool) -> None:
    for number, (_, y) in enumerate(figure.at):
        if math.isfinite(y):
            at, dash = axis(y), LEVELS[number % len(LEVELS)]
            line = (at, start, at, end) if upright else (start, at, end, at)
            drawing.line(*line, "level", dash)


# -- two axes: lines, steps, dots and bars over numbers ---------------------------------------------------------------


def _across(drawing: Canvas, figure: Figure) -> None:
    """x to the right, y up."""
    if figure.kind == BARS and len(_names(figure)) > MOST_BARS:
        figure = replace(figure, kind=STEPS)
    _hatches(drawing, figure)
    _legend(drawing, figure)
    drawing.over(figure.y)
    span = span_of(_values(figure), figure.y_range, figure.kind == BARS)
    top, bottom = drawing.y + 8, drawing.y + 8 + PLOT
    y_axis = axis_of(span, bottom, top, nice=figure.y_range is None)
    start = max(width_of(label) for _, label in y_axis.ticks) + 10
    for value, label in y_axis.ticks:
        y = y_axis(value)
        drawing.line(start, y, WIDTH - RIGHT, y, "axis" if value == 0 else "grid")
        drawing.text(start - 6, y + 4, label, "end")
    place, x_axis = _places(drawing, figure, start, bottom)
    _support(drawing, figure, place, bottom)
    if figure.diagonal and x_axis is not None:
        low, high = max(x_axis.low, y_axis.low), min(x_axis.high, y_axis.high)
        if low < high:
            drawing.line(x_axis(low), y_axis(low), x_axis(high), y_axis(high), "diagonal")
    _levels(drawing, figure, y_axis, start, WIDTH - RIGHT, upright=False)
    width = _bar_width(figure, place)
    for number, one in enumerate(figure.series):
        points = [point for point in _points(one) if point.x in place]
        if figure.kind in (LINES, STEPS):
            aside = 0.0 if x_axis is not None else DODGE * (number - (len(figure.series) - 1) / 2)
            there = {x: at + aside for x, at in place.items()}
            _curve(drawing, figure.kind, number, sorted(points, key=lambda p: there[p.x]), there, y_axis)
            continue
        marks: list[str] = []
        whiskers: list[str] = []
        if figure.kind == DOTS:
            points = points[:: math.ceil(len(points) / MOST_DOTS)] if points else []
        base = y_axis(min(max(0.0, y_axis.low), y_axis.high))
        for point in points:
            x, y = place[point.x], y_axis(point.y)
            if figure.kind == BARS:
                left = x + width * (number - len(figure.series) / 2)
                marks.append(f"M{_n(left)} {_n(base)}V{_n(y)}h{_n(width)}V{_n(base)}z")
                x = left + width / 2
            else:
                marks.append(_marker(number, x, y, 3.5))
            whiskers += _whisker(y_axis, point, x, along=False)
        kind, fill = _filled(drawing, figure, number) if figure.kind == BARS else ("mark", "")
        _series(drawing, number, kind, marks, whiskers, fill)
    drawing.y = bottom + LINE + 5
    drawing.under(figure.x)


def _support(drawing: Canvas, figure: Figure, place: dict[float | str, float], bottom: float) -> None:
    """A strip along the axis, the darker the more are there: where a curve rests on many and where on few."""
    if not figure.support:
        return
    edges = [place[x] for x in figure.series[0].x]
    dense = [share / max(b - a, 0.1) for share, (a, b) in zip(figure.support, pairwise(edges), strict=False)]
    most = max(dense, default=0.0)
    for value, (a, b) in zip(dense, pairwise(edges), strict=False):
        if value > 1e-4 * most:
            box = f'x="{_n(a)}" y="{_n(bottom - STRIP)}" width="{_n(max(b - a, 1.5))}" height="{_n(STRIP)}"'
            drawing.add(f'<rect class="there" {box} fill-opacity="{0.1 + 0.7 * math.sqrt(value / most):.2f}"/>')


def _places(
    drawing: Canvas, figure: Figure, start: float, bottom: float
) -> tuple[dict[float | str, float], Axis | None]:
    """Where each x stands, and the axis where they are numbers on one. Draws the ticks."""
    names, end = _names(figure), WIDTH - RIGHT
    if not _by_name(figure):
        numbers = sorted(float(x) for x in names)
        if not _evenly(figure, numbers):
            edge = (end - start) / len(numbers) / 2 if figure.kind == BARS else 4.0
            edge = min(max(edge, 4.0), 60.0)
            span = span_of(numbers, figure.x_range, zero=False)
            axis = axis_of(span, start + edge, end - edge, nice=False)
            for value, label in axis.ticks:
                drawing.line(axis(value), bottom, axis(value), bottom + 4, "axis")
                drawing.text(axis(value), bottom + LINE + 1, label, "middle")
            return {x: axis(float(x)) for x in names}, axis
        names = list(numbers)
    step = (end - start) / len(names)
    place = {name: start + step * (number + 0.5) for number, name in enumerate(names)}
    widest = max(width_of(fitted(_name(name), 90)) for name in names)
    every = max(1, math.ceil((min(widest, 90) + 6) / step))
    for name in names[::every]:
        text = fitted(_name(name), step * every - 4)
        half = width_of(text) / 2
        drawing.text(min(max(place[name], half + 2), WIDTH - half - 2), bottom + LINE + 1, text, "middle")
    return place, None


def _evenly(figure: Figure, numbers: Sequence[float]) -> bool:
    """Numbers that stand side by side like names: bars of cells of all widths, a few sizes over powers of ten."""
    if figure.diagonal or figure.x_range is not None or len(numbers) < 2:
        return False
    gaps = [b - a for a, b in pairwise(numbers)]
    if figure.kind == BARS:
        return max(gaps) > 1.5 * min(gaps)
    return (
        figure.kind in (LINES, DOTS) and len(numbers) <= FEW and numbers[0] > 0 and numbers[-1] / numbers[0] >= SPREAD
    )


def _bar_width(figure: Figure, place: dict[float | str, float]) -> float:
    at = sorted(place.values())
    gap = min((b - a for a, b in pairwise(at)), default=60.0)
    return max(0.82 * gap / max(len(figure.series), 1), 0.4)


def _curve(
    drawing: Canvas, kind: str, number: int, points: list[Point], place: dict[float | str, float], axis: Axis
) -> None:
    """A line with its band or whiskers; of very long ones every so many points."""
    if len(points) > MOST_POINTS:
        last = len(points) - 1
        points = [points[round(i * last / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]
    if not points:
        return
    colour = f"s{number % COLOURS}"
    walk = _stepped if kind == STEPS else _straight
    at = [place[point.x] for point in points]
    banded = [(x, p) for x, p in zip(at, points, strict=True) if math.isfinite(p.low) and math.isfinite(p.high)]
    if banded and (kind == STEPS or len(points) > WHISKERED):
        upper = walk([(x, axis(p.high)) for x, p in banded])
        lower = walk([(x, axis(p.low)) for x, p in banded])
        drawing.add(f'<path class="shade {colour}" d="M{"L".join(upper)}L{"L".join(reversed(lower))}z"/>')
        banded = []
    if len(points) > 1:
        line = "L".join(walk([(x, axis(p.y)) for x, p in zip(at, points, strict=True)]))
        drawing.add(f'<path class="line {colour}" d="M{line}"{_dash(DASHES[number % len(DASHES)])}/>')
    whiskers = [bit for x, p in banded for bit in _whisker(axis, p, x, along=False)]
    dots = len(points) == 1 or (kind == LINES and len(points) <= MARKED)
    marks = [_marker(number, x, axis(p.y), 3.5) for x, p in zip(at, points, strict=True)] if dots else []
    _series(drawing, number, "mark", marks, whiskers)


def _straight(points: Sequence[tuple[float, float]]) -> list[str]:
    return [f"{_n(x)} {_n(y)}" for x, y in points]


def _stepped(points: Sequence[tuple[float, float]]) -> list[str]:
    """A value holds until the next one."""
    out = [f"{_n(points[0][0])} {_n(points[0][1])}"]
    for (_, before), (x, y) in pairwise(points):
        out += [f"{_n(x)} {_n(before)}", f"{_n(x)} {_n(y)}"] if before != y else [f"{_n(x)} {_n(y)}"]
    return out


# -- heat maps --------------------------------------------------------------------------------------------------------


def _heat(drawing: Canvas, figure: Figure) -> None:
    """A cell a value: the stronger the colour the larger it is; of both signs, a colour each."""
    columns, rows = _names(figure)[:MOST_CELLS], figure.series[:MOST_CELLS]
    there = [{point.x: point.y for point in _points(one)} for one in rows]
    values = [cells[name] for cells in there for name in columns if name in cells]
    low, high = span_of(values, figure.y_range, zero=False)
    signed = low < 0 < high
    reach = max(-low, high)

    def share(value: float) -> float:
        return abs(value) / reach if signed else (value - low) / (high - low)

    _scale(drawing, (-reach, 0.0, reach) if signed else (low, (low + high) / 2, high))
    if len(values) < len(rows) * len(columns):
        drawing.over("dashed: not shown")
    drawing.over(figure.y)
    sides = [fitted(one.name, 0.34 * WIDTH) for one in rows]
    start = max(map(width_of, sides)) + 8
    wide = (WIDTH - 6 - start) / max(len(columns), 1)
    tall = min(max(wide * 0.8, 14.0), 26.0)
    heads = [fitted(_name(name), 90) for name in columns]
    turned = max(map(width_of, heads), default=0.0) > wide - 4
    every = max(1, math.ceil(13 / wide)) if turned else 1
    top = drawing.y + (max(map(width_of, heads)) * 0.88 + 12 if turned else LINE + 2)
    for number, text in list(enumerate(heads))[::every]:
        x = start + wide * (number + 0.5)
        if turned:
            text = fitted(text, (WIDTH - x - 4) / 0.5) if x + width_of(text) * 0.5 > WIDTH - 4 else text
            drawing.text(x + 4, top - 5, text, turn=True)
        else:
            drawing.text(x, top - 5, text, "middle")
    digit = [_short(value) for value in values]
    written_in = max(map(width_of, digit), default=0.0) + 3 <= wide and tall >= 14
    for number, (cells, side) in enumerate(zip(there, sides, strict=True)):
        y = top + tall * number
        drawing.text(start - 5, y + tall / 2 + 4, side, "end", "name")
        for place, name in enumerate(columns):
            x = start + wide * place
            box = f'x="{_n(x + 0.5)}" y="{_n(y + 0.5)}" width="{_n(wide - 1)}" height="{_n(tall - 1)}"'
            if name not in cells:
                drawing.add(f'<rect class="hole" {box}/>')
                continue
            sign = "below" if signed and cells[name] < 0 else "above"
            drawing.add(f'<rect class="{sign}" {box} fill-opacity="{STRONGEST * share(cells[name]):.2f}"/>')
            if written_in:
                drawing.text(x + wide / 2, y + tall / 2 + 4, _short(cells[name]), "middle", "cell")
    drawing.y = top + tall * len(rows) + 4
    drawing.under(figure.x)
    if len(columns) < len(_names(figure)) or len(rows) < len(figure.series):
        drawing.under(f"The first {len(rows)} rows and {len(columns)} columns; all are in the table.")


def _short(value: float) -> str:
    """Two digits, for a cell."""
    value = round(value, 2) + 0.0 if abs(value) < 10 else value
    if value == int(value) and abs(value) < 10_000:
        return str(int(value)).replace("-", "−")
    text = f"{value:.2f}" if abs(value) < 10 else f"{value:.3g}"
    return re.sub(r"^(-?)0\.", r"\1.", text).replace("-", "−")


def _scale(drawing: Canvas, ends: tuple[float, float, float]) -> None:
    """The colours' own legend: five boxes and the numbers at their ends and middle."""
    low, middle, high = ends
    x, wide = 2.0, 24.0
    for number in range(5):
        share = abs(number - 2) / 2 if middle == 0 and low < 0 else number / 4
        sign = "below" if middle == 0 and low < 0 and number < 2 else "above"
        box = f'x="{_n(x + wide * number)}" y="{_n(drawing.y)}" width="{_n(wide)}" height="10"'
        drawing.add(f'<rect class="{sign}" {box} fill-opacity="{STRONGEST * share:.2f}"/>')
    drawing.text(x + 5 * wide + 8, drawing.y + 9, f"{digits(low)} to {digits(high)}", kind="entry")
    drawing.y += LINE + 2


def _bars_or_dots(drawing: Canvas, figure: Figure) -> None:
    (_down if _by_name(figure) else _across)(drawing, figure)


_KINDS: dict[str, Callable[[Canvas, Figure], None]] = {
    BARS: _bars_or_dots,
    LINES: _across,
    STEPS: _across,
    DOTS: _bars_or_dots,
    HEAT: _heat,
}


# -- the table behind -------------------------------------------------------------------------------------------------


def numbers(figure: Figure) -> Table:
    """Every number of a figure, those too that a drawing had no room for."""
    x = figure.x or "name"
    if figure.kind == HEAT:
        names = _names(figure)
        rows = []
        for one in figure.series:
            there = dict(zip(one.x, one.y, strict=False))
            rows.append((one.name, *(there.get(name, math.nan) for name in names)))
        return Table(figure.name, figure.title, ("", *(_name(name) for name in names)), tuple(rows))
    if len(figure.series) == 1:
        one = figure.series[0]
        bounds = one.low is not None or one.high is not None
        columns = (x, figure.y or "value", *(("95% interval",) if bounds else ()))
        return Table(figure.name, figure.title, columns, tuple(_lines(one, bounds)))
    bounds = any(one.low is not None or one.high is not None for one in figure.series)
    columns = ("series", x, figure.y or "value", *(("95% interval",) if bounds else ()))
    rows = [(one.name, *line) for one in figure.series for line in _lines(one, bounds)]
    return Table(figure.name, figure.title, columns, tuple(rows))


def _lines(one: Series, bounds: bool) -> Iterator[tuple[Any, ...]]:
    nothing = (math.nan,) * len(one.y)
    for x, y, low, high in zip(one.x, one.y, one.low or nothing, one.high or nothing, strict=False):
        yield (x, y, *((_interval(low, high),) if bounds else ()))


def _interval(low: float, high: float) -> str:
    return "—" if math.isnan(low) and math.isnan(high) else f"{digits(low)} to {digits(high)}"
