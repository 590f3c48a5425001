"""Figures as inline SVG: every kind of `runs/figures.py`, drawn for a phone first, without a script.

Whatever a drawing leaves out or shortens stands in the table behind it (`figure_table`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

from markupsafe import Markup, escape

from distcondense.errors import SettingsError
from distcondense.report.axes import Axis, axis_of, span_of
from distcondense.report.canvas import COLOURS, LEVELS, LINE, WIDTH, Canvas, dash_of, dashed, look, marker_path, short
from distcondense.report.text import clean, digits, estimate, fitted, interval, width_of
from distcondense.runs.figures import BARS, DOTS, HEAT, LINES, STEPS, Figure, Series, Table

PLOT = 190.0  # height of a plot with two axes of numbers
RIGHT = 14.0
STRIP = 7.0  # height of the strip that says where many are
MOST_NAMES, MOST_MARKS = 40, 240  # rows of a figure by names, and bars or dots in all
MOST_CELLS = 40  # rows, and columns, of a heat map
MOST_POINTS = 300  # of one line
MOST_SERIES = 24  # but for heat maps
MOST_BARS, MOST_DOTS = 180, 500  # over numbers: beyond it bars become a step curve, and of dots every so many are drawn
MARKED, WHISKERED = 30, 14  # points up to which a line has markers, and whiskers instead of a band
FEW = 10  # values of x up to which they may stand evenly where they span powers of ten
SPREAD = 10.0  # … from this ratio on
DODGE = 3.0  # between whiskers of several lines over the same names
LARGEST = 1e100  # numbers beyond it, and those that are none, are not drawn
STRONGEST = 0.75  # opacity of a heat map's last colour: text on it stays legible
KIND_WORDS = {BARS: "Bars", LINES: "Lines", STEPS: "Step curves", DOTS: "Dots", HEAT: "A heat map with the rows"}


def draw(figure: Figure, key: str = "", *, legend: bool = True) -> Markup:
    """A figure as one `<svg>` element with title and description.

    Parameters
    ----------
    figure : Figure
        What is drawn, as data; names may hold anything.
    key : str
        Begins the drawing's ids, so that several fit into one page; made of the figure where it is empty.
    legend : bool
        Whether it says which mark is which.

    Returns
    -------
    Markup
        The element, escaped; it says so where there is nothing to draw.

    Raises
    ------
    SettingsError
        For a kind of figure that is none of BARS, LINES, STEPS, DOTS, HEAT.
    """
    if figure.kind not in KIND_WORDS:
        rule = f"must be one of {', '.join(KIND_WORDS)}"
        raise SettingsError(f"figure {clean(figure.name)}", rule, found=repr(clean(figure.kind)))
    key = key or "f" + hashlib.sha256(repr(figure).encode("utf-8", "replace")).hexdigest()[:12]
    canvas = Canvas(key, keyed=legend)
    values = [point.y for series in figure.series for point in _points(series)]
    description = "Nothing could be drawn."
    if values:
        first = figure if figure.kind == HEAT else replace(figure, series=figure.series[:MOST_SERIES])
        by_name = any(isinstance(x, str) for x in _names(first))
        plot = _heat if figure.kind == HEAT else _down if by_name and figure.kind in (BARS, DOTS) else _across
        plot(canvas, first)
        if len(first.series) < len(figure.series):
            canvas.label(
                f"The first {MOST_SERIES} of {len(figure.series):,} series; all are in the table.", middle=True
            )
        names = ", ".join(clean(series.name) for series in figure.series[:8] if series.name)
        more = f" and {len(figure.series) - 8} more" if len(figure.series) > 8 else ""
        description = (
            f"{KIND_WORDS[figure.kind]}{f' of {names}{more}' if names else ''}, values from {digits(min(values))} to "
            f"{digits(max(values))}. The numbers are in the table after it."
        )
    else:
        canvas.text(WIDTH / 2, 40, "Nothing to draw: no value was measured.", "middle", "label")
        canvas.y = 60.0
    about = f"{clean(figure.about)} {description}".strip()
    height = short(canvas.y + 4)
    return Markup(
        f'<svg class="drawn" viewBox="0 0 {short(WIDTH)} {height}" width="{short(WIDTH)}" height="{height}" role="img" '
        f'aria-labelledby="{key}-t {key}-d"><title id="{key}-t">{escape(clean(figure.title))}</title>'
        f'<desc id="{key}-d">{escape(about)}</desc>{"".join(canvas.parts)}</svg>'
    )


def figure_table(figure: Figure) -> Table:
    """Every number of a figure, those too that a drawing had no room for."""
    if figure.kind == HEAT:
        names = _names(figure)
        bounded = any(series.low is not None and series.high is not None for series in figure.series)
        by_name = [(series.name, {point[0]: point[1:] for point in _with_bounds(series)}) for series in figure.series]
        rows: list[tuple[Any, ...]] = [
            (
                name,
                *(estimate(*point) if bounded else point[0] for point in (values.get(x, (math.nan,)) for x in names)),
            )
            for name, values in by_name
        ]
        return Table(figure.name, figure.title, ("", *map(_name, names)), tuple(rows))
    several = len(figure.series) != 1
    bounded = any(series.low is not None or series.high is not None for series in figure.series)
    columns = ["series", figure.x or "name", figure.y or "value", "95% interval"]
    lines: list[list[Any]] = [
        [series.name, x, y, interval(low, high) or "—"]
        for series in figure.series
        for x, y, low, high in _with_bounds(series)
    ]
    kept = slice(0 if several else 1, 4 if bounded else 3)
    return Table(figure.name, figure.title, tuple(columns[kept]), tuple(tuple(line[kept]) for line in lines))


# -- what is drawn ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    x: float | str
    y: float
    low: float
    high: float


def _with_bounds(series: Series) -> Iterator[tuple[float | str, float, float, float]]:
    nothing = (math.nan,) * len(series.y)
    return zip(series.x, series.y, series.low or nothing, series.high or nothing, strict=False)


def _points(series: Series) -> list[Point]:
    """Those that can be drawn."""
    return [Point(*line) for line in _with_bounds(series) if _drawable(line[0]) and abs(line[1]) < LARGEST]


def _drawable(x: Any) -> bool:
    return isinstance(x, str) or (isinstance(x, int | float) and abs(x) < LARGEST)


def _names(figure: Figure) -> list[float | str]:
    """Every x, once, as they come."""
    return list(dict.fromkeys(x for series in figure.series for x in series.x if _drawable(x)))


def _name(value: float | str) -> str:
    if isinstance(value, str):
        return value
    text = digits(float(value))
    return text.rstrip("0").removesuffix(".") if "." in text and "e" not in text else text


def _values(figure: Figure) -> list[float]:
    """What the axis of y must show: points, levels, and whiskers that are not absurdly long."""
    points = [point for series in figure.series for point in _points(series)]
    values = [point.y for point in points] + [y for _, y in figure.at if math.isfinite(y)]
    if not values or figure.y_range is not None:  # where it was said how far to look, whiskers stop there
        return values
    low, high = min(values), max(values)
    lengths = sorted(p.high - p.low for p in points if abs(p.high) < LARGEST and abs(p.low) < LARGEST)
    usual = lengths[len(lengths) // 2] if lengths else 0.0
    room = 2 * max(high - low, usual)
    ends = [end for point in points for end in (point.low, point.high) if abs(end) < LARGEST]
    return values + [min(max(end, low - room), high + room) for end in ends]


def _whisker(axis: Axis, point: Point, at: float, *, along: bool) -> Iterator[str]:
    """From low to high, with a cap where the end lies inside the figure."""
    if not (math.isfinite(point.low) and math.isfinite(point.high)):
        return
    low, high = axis(point.low), axis(point.high)
    yield f"M{short(low)} {short(at)}H{short(high)}" if along else f"M{short(at)} {short(low)}V{short(high)}"
    for end, place in ((point.low, low), (point.high, high)):
        if axis.holds(end):
            yield f"M{short(place)} {short(at - 3)}v6" if along else f"M{short(at - 3)} {short(place)}h6"


def _levels(canvas: Canvas, figure: Figure, axis: Axis, start: float, end: float, *, upright: bool) -> None:
    for number, (_, y) in enumerate(figure.at):
        if math.isfinite(y):
            at, dash = axis(y), LEVELS[number % len(LEVELS)]
            line = (at, start, at, end) if upright else (start, at, end, at)
            canvas.line(*line, "level", dash)


# -- names down the side: horizontal bars, dots with whiskers ---------------------------------------------------------


def _down(canvas: Canvas, figure: Figure) -> None:
    """A row a name, because names are long and a phone is narrow; values go to the right."""
    count, points = len(figure.series), [_points(series) for series in figure.series]
    names, bars = _names(figure), figure.kind == BARS
    kept = names[: max(8, min(MOST_NAMES, MOST_MARKS // count))]
    texts = [fitted(_name(name), WIDTH - 30) for name in kept]
    longest = max(map(width_of, texts))
    above = longest > 0.36 * WIDTH  # the name stands over its bars
    each = {1: 12.0, 2: 9.0, 3: 8.0}.get(count, 7.0) if bars else 11.0
    here = {name: [i for i, of_series in enumerate(points) if any(p.x == name for p in of_series)] for name in kept}
    head = LINE if above else 0.0
    tall = {name: head + max(len(here[name]) * each, 0.0 if above else 12.0) + (11 if above else 8) for name in kept}
    canvas.hatches(figure)
    canvas.legend(figure)
    canvas.label(figure.x)
    start = 16.0 if above else longest + 10
    span = span_of(_values(figure), figure.y_range, zero=bars)
    axis = axis_of(span, start, WIDTH - RIGHT - 10, nice=figure.y_range is None, most=6)
    top = canvas.y + 4
    place = dict(zip(kept, accumulate((tall[name] for name in kept), initial=top), strict=False))
    bottom = top + sum(tall.values())
    for value, label in axis.ticks:
        x = axis(value)
        canvas.line(x, top, x, bottom, "axis" if value == 0 else "grid")
        canvas.text(x, bottom + LINE - 1, label, "middle")
    for name, text in zip(kept, texts, strict=True):
        y = place[name] + (LINE - 2 if above else tall[name] / 2 + 4)
        canvas.text(2 if above else start - 6, y, text, "start" if above else "end", "name")
    base = axis(min(max(0.0, axis.low), axis.high))
    for number, of_series in enumerate(points):
        marks: list[str] = []
        whiskers: list[str] = []
        for point in (p for p in of_series if p.x in place):
            inside = tall[point.x] - head - len(here[point.x]) * each
            y = place[point.x] + head + inside / 2 + each * here[point.x].index(number)
            if bars:
                marks.append(f"M{short(base)} {short(y + 0.5)}H{short(axis(point.y))}v{short(each - 1)}H{short(base)}z")
            else:
                marks.append(marker_path(number, axis(point.y), y + each / 2))
            whiskers += _whisker(axis, point, y + each / 2, along=True)
        canvas.marks(number, "mark", marks, whiskers, figure if bars else None)
    _levels(canvas, figure, axis, top, bottom, upright=True)
    canvas.y = bottom + LINE + 3
    canvas.label(figure.y, middle=True)
    if len(kept) < len(names):
        canvas.label(f"The first {len(kept)} of {len(names):,}; all are in the table.", middle=True)


# -- two axes: lines, steps, dots and bars over numbers ---------------------------------------------------------------


def _across(canvas: Canvas, figure: Figure) -> None:
    """x to the right, y up."""
    if figure.kind == BARS and len(_names(figure)) > MOST_BARS:
        figure = replace(figure, kind=STEPS)
    bars, count = figure.kind == BARS, len(figure.series)
    canvas.hatches(figure)
    canvas.legend(figure)
    canvas.label(figure.y)
    span = span_of(_values(figure), figure.y_range, zero=bars)
    top, bottom = canvas.y + 8, canvas.y + 8 + PLOT
    y_axis = axis_of(span, bottom, top, nice=figure.y_range is None)
    start = max(width_of(label) for _, label in y_axis.ticks) + 10
    for value, label in y_axis.ticks:
        y = y_axis(value)
        canvas.line(start, y, WIDTH - RIGHT, y, "axis" if value == 0 else "grid")
        canvas.text(start - 6, y + 4, label, "end")
    place, x_axis = _places(canvas, figure, start, bottom)
    if figure.support:
        _support(canvas, figure, place, bottom)
    if figure.diagonal and x_axis is not None:
        low, high = max(x_axis.low, y_axis.low), min(x_axis.high, y_axis.high)
        if low < high:
            canvas.line(x_axis(low), y_axis(low), x_axis(high), y_axis(high), "diagonal")
    _levels(canvas, figure, y_axis, start, WIDTH - RIGHT, upright=False)
    gap = min((b - a for a, b in pairwise(sorted(place.values()))), default=60.0)
    width = max(0.82 * gap / count, 0.4)
    base = y_axis(min(max(0.0, y_axis.low), y_axis.high))
    whiskered = any(series.low is not None for series in figure.series)
    for number, series in reversed([*enumerate(figure.series)]):  # the first ones on top
        points = [point for point in _points(series) if point.x in place]
        if figure.kind in (LINES, STEPS):
            aside = 0.0 if x_axis is not None or not whiskered else DODGE * (number - (count - 1) / 2)
            placed = sorted(((place[p.x] + aside, p) for p in points), key=lambda pair: pair[0])
            _curve(canvas, figure, number, placed, y_axis)
            continue
        marks: list[str] = []
        whiskers: list[str] = []
        if figure.kind == DOTS and points:
            points = points[:: math.ceil(len(points) / MOST_DOTS)]
        for point in points:
            x, y = place[point.x], y_axis(point.y)
            if bars:
                left = x + width * (number - count / 2)
                marks.append(f"M{short(left)} {short(base)}V{short(y)}h{short(width)}V{short(base)}z")
                x = left + width / 2
            else:
                marks.append(marker_path(number, x, y, 3.5))
            whiskers += _whisker(y_axis, point, x, along=False)
        canvas.marks(number, "mark", marks, whiskers, figure if bars else None)
    canvas.y = bottom + LINE + 5
    canvas.label(figure.x, middle=True)


def _support(canvas: Canvas, figure: Figure, place: dict[float | str, float], bottom: float) -> None:
    """A strip along the axis, the darker the more are there: where a curve rests on many and where on few."""
    stretches = list(pairwise(place[x] for x in figure.series[0].x))
    dense = [share / max(b - a, 0.1) for share, (a, b) in zip(figure.support, stretches, strict=False)]
    most = max(dense, default=0.0)
    for value, (a, b) in zip(dense, stretches, strict=False):
        if value > 1e-4 * most:
            canvas.box("there", a, bottom - STRIP, max(b - a, 1.5), STRIP, 0.1 + 0.7 * math.sqrt(value / most))


def _places(
    canvas: Canvas, figure: Figure, start: float, bottom: float
) -> tuple[dict[float | str, float], Axis | None]:
    """Where each x stands, and the axis where they are numbers on one. Draws the ticks."""
    names, end = _names(figure), WIDTH - RIGHT
    if not any(isinstance(x, str) for x in names):
        numbers = sorted(float(x) for x in names)
        if not _evenly(figure, numbers):
            edge = (end - start) / len(numbers) / 2 if figure.kind == BARS else 4.0
            edge = min(max(edge, 4.0), 60.0)
            span = span_of(numbers, figure.x_range, zero=False)
            axis = axis_of(span, start + edge, end - edge, nice=False)
            for value, label in axis.ticks:
                canvas.line(axis(value), bottom, axis(value), bottom + 4, "axis")
                canvas.text(axis(value), bottom + LINE + 1, label, "middle")
            return {x: axis(float(x)) for x in names}, axis
        names = list(numbers)
    step = (end - start) / len(names)
    place = {name: start + step * (number + 0.5) for number, name in enumerate(names)}
    widest = max(width_of(fitted(_name(name), 90)) for name in names)
    every = max(1, math.ceil((min(widest, 90) + 6) / step))
    for name in names[::every]:
        text = fitted(_name(name), step * every - 4)
        half = width_of(text) / 2
        canvas.text(min(max(place[name], half + 2), WIDTH - half - 2), bottom + LINE + 1, text, "middle")
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


def _curve(canvas: Canvas, figure: Figure, series: int, points: list[tuple[float, Point]], axis: Axis) -> None:
    """A line with its band or whiskers; of very long ones every so many points. points: where each stands, and it."""
    kind, number = figure.kind, look(figure, series)
    if len(points) > MOST_POINTS:
        last = len(points) - 1
        points = [points[round(i * last / (MOST_POINTS - 1))] for i in range(MOST_POINTS)]
    colour = f"s{number % COLOURS}"
    bounded = [(x, p) for x, p in points if math.isfinite(p.low) and math.isfinite(p.high)]
    if bounded and (kind == STEPS or len(points) > WHISKERED):
        upper = _path([(x, axis(p.high)) for x, p in bounded], kind)
        lower = _path([(x, axis(p.low)) for x, p in bounded], kind)
        canvas.add(f'<path class="shade {colour}" d="M{"L".join(upper)}L{"L".join(reversed(lower))}z"/>')
        bounded = []
    if len(points) > 1:
        line = "L".join(_path([(x, axis(p.y)) for x, p in points], kind))
        canvas.add(f'<path class="line {colour}" d="M{line}"{dashed(dash_of(figure, series))}/>')
    whiskers = [bit for x, p in bounded for bit in _whisker(axis, p, x, along=False)]
    marked = len(points) == 1 or (kind == LINES and len(points) <= MARKED)
    marks = [marker_path(number, x, axis(p.y), 3.5) for x, p in points] if marked else []
    canvas.marks(number, "mark", marks, whiskers)


def _path(points: Sequence[tuple[float, float]], kind: str) -> list[str]:
    """From point to point; of steps a value holds until the next one."""
    path = [f"{short(x)} {short(y)}" for x, y in points[:1]]
    for (_, before), (x, y) in pairwise(points):
        corner = [f"{short(x)} {short(before)}"] if kind == STEPS and before != y else []
        path += [*corner, f"{short(x)} {short(y)}"]
    return path


# -- heat maps --------------------------------------------------------------------------------------------------------


def _heat(canvas: Canvas, figure: Figure) -> None:
    """A cell a value: the stronger the colour the larger it is; of both signs, a colour each."""
    every, rows = _names(figure), figure.series[:MOST_CELLS]
    columns = every[:MOST_CELLS]
    cells = [{point.x: point.y for point in _points(series)} for series in rows]
    values = [of_row[name] for of_row in cells for name in columns if name in of_row]
    low, high = span_of(values, figure.y_range, zero=False)
    signed = low < 0 < high
    reach = max(-low, high)
    _colours(canvas, *((-reach, reach) if signed else (low, high)), signed)
    if len(values) < len(rows) * len(columns):
        canvas.label("dashed: not shown")
    canvas.label(figure.y)
    sides = [fitted(series.name, 0.34 * WIDTH) for series in rows]
    start = max(map(width_of, sides)) + 8
    wide = (WIDTH - 6 - start) / max(len(columns), 1)
    tall = min(max(wide * 0.8, 14.0), 26.0)
    heads = [fitted(_name(name), 90) for name in columns]
    turned = max(map(width_of, heads), default=0.0) > wide - 4
    step = max(1, math.ceil(13 / wide)) if turned else 1
    top = canvas.y + (max(map(width_of, heads)) * 0.88 + 12 if turned else LINE + 2)
    for number, text in list(enumerate(heads))[::step]:
        x = start + wide * (number + 0.5)
        if turned:
            text = fitted(text, (WIDTH - x - 4) / 0.5) if x + width_of(text) * 0.5 > WIDTH - 4 else text
            canvas.text(x + 4, top - 5, text, turn=True)
        else:
            canvas.text(x, top - 5, text, "middle")
    written_in = max((width_of(_two_digits(value)) for value in values), default=0.0) + 3 <= wide and tall >= 14
    for number, (of_row, side) in enumerate(zip(cells, sides, strict=True)):
        y = top + tall * number
        canvas.text(start - 5, y + tall / 2 + 4, side, "end", "name")
        for place, name in enumerate(columns):
            x, value = start + wide * place, of_row.get(name)
            if value is None:
                canvas.box("hole", x + 0.5, y + 0.5, wide - 1, tall - 1)
                continue
            share = abs(value) / reach if signed else (value - low) / (high - low)
            kind = "below" if signed and value < 0 else "above"
            canvas.box(kind, x + 0.5, y + 0.5, wide - 1, tall - 1, STRONGEST * share)
            if written_in:
                canvas.text(x + wide / 2, y + tall / 2 + 4, _two_digits(value), "middle", "cell")
    canvas.y = top + tall * len(rows) + 4
    canvas.label(figure.x, middle=True)
    if len(columns) < len(every) or len(rows) < len(figure.series):
        canvas.label(f"The first {len(rows)} rows and {len(columns)} columns; all are in the table.", middle=True)


def _two_digits(value: float) -> str:
    """For a cell."""
    value = round(value, 2) + 0.0 if abs(value) < 10 else value
    if value == int(value) and abs(value) < 10_000:
        text = str(int(value))
    else:
        text = re.sub(r"^(-?)0\.", r"\1.", f"{value:.2f}" if abs(value) < 10 else f"{value:.3g}")
    return text.replace("-", "−")


def _colours(canvas: Canvas, low: float, high: float, signed: bool) -> None:
    """The colours' own legend: five boxes and the numbers at their ends."""
    x, wide = 2.0, 24.0
    for number in range(5):
        share = abs(number - 2) / 2 if signed else number / 4
        kind = "below" if signed and number < 2 else "above"
        canvas.box(kind, x + wide * number, canvas.y, wide, 10, STRONGEST * share)
    canvas.text(x + 5 * wide + 8, canvas.y + 9, f"{digits(low)} to {digits(high)}", kind="entry")
    canvas.y += LINE + 2
