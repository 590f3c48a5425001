"""Drawings: every kind, whatever the names and numbers are, as well-formed XML that says what it shows."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as xml

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense.errors import SettingsError
from distcondense.report.axes import axis_of, span_of, ticks
from distcondense.report.canvas import WIDTH
from distcondense.report.svg import MOST_NAMES, MOST_SERIES, draw, figure_table
from distcondense.report.text import clean, digits, fitted, width_of, wrapped, written
from distcondense.runs.figures import BARS, DOTS, HEAT, LINES, STEPS, Figure, Series
from tests.sample_report import BY_STUDENT, EVERY_KIND, HAZARDS, PAIRS, RELIABILITY, SURVIVAL

KINDS = (BARS, LINES, STEPS, DOTS, HEAT)
HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=1>",
    "a&b</text>",
    "]]>",
    "\x00\x1b[31m",
    "\u202egnp",
    "\ud800",
)


def figure(kind: str, *series: Series, **more) -> Figure:
    return Figure(
        **({"name": "f", "kind": kind, "title": "t", "about": "a", "x": "x", "y": "y", "series": series} | more)
    )


def read(one: Figure, key: str = "") -> xml.Element:
    return xml.fromstring(str(draw(one, key)))


def texts(root: xml.Element) -> list[str]:
    return [element.text or "" for element in root.iter("text")]


def marks(root: xml.Element, kind: str) -> list[xml.Element]:
    return [element for element in root.iter() if kind in (element.get("class") or "").split()]


def places(root: xml.Element) -> list[float]:
    """Every coordinate that stands in an attribute or starts a path."""
    found = [float(e.get(name)) for e in root.iter() for name in ("x", "y", "width", "height") if e.get(name)]
    return found + [float(n) for e in root.iter("path") for n in re.findall(r"[MHVL](-?[\d.]+)", e.get("d"))]


# -- what every drawing has -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("one", EVERY_KIND, ids=lambda one: one.name)
def test_every_kind_is_well_formed_and_says_what_it_shows(one):
    root = read(one, "k")
    assert root.get("role") == "img"
    assert root.get("aria-labelledby").split() == [root.find("title").get("id"), root.find("desc").get("id")]
    assert root.find("title").text == one.title
    assert one.about in root.find("desc").text
    assert any(digits(v) in root.find("desc").text for s in one.series for v in s.y if math.isfinite(v))
    assert all(math.isfinite(place) and -40 < place < 4000 for place in places(root))
    if one.kind != HEAT and len(one.series) > 1:
        assert {s.name for s in one.series} <= set(texts(root))


def test_two_drawings_of_a_page_share_no_id():
    ids = [e.get("id") for key in ("a", "b") for e in read(BY_STUDENT, key).iter() if e.get("id")]
    assert len(ids) == len(set(ids)) > 4
    assert draw(BY_STUDENT) != draw(HAZARDS)
    assert read(BY_STUDENT).find("title").get("id") != read(HAZARDS).find("title").get("id")


def test_an_unknown_kind_is_refused_by_name():
    with pytest.raises(SettingsError, match="must be one of bars, lines, steps, dots, heat"):
        draw(figure("pie", Series("s", (1,), (1.0,))))


# -- what is drawn where ----------------------------------------------------------------------------------------------


def test_bars_end_where_their_values_are():
    root = read(figure(BARS, Series("s", ("a", "b"), (1.0, 3.0)), y_range=(0.0, 4.0)))
    (bars,) = marks(root, "bar")
    starts, ends = zip(*re.findall(r"M([\d.]+) [\d.]+H([\d.]+)", bars.get("d")), strict=True)
    (a, b), zero = map(float, ends), float(starts[0])
    assert (b - zero) / (a - zero) == pytest.approx(3, rel=0.01)


def test_whiskers_end_where_the_intervals_do_and_stop_at_the_edge():
    inside = read(figure(DOTS, Series("s", ("a",), (1.0,), (0.5,), (1.5,)), y_range=(0.0, 2.0)))
    beyond = read(figure(DOTS, Series("s", ("a",), (1.0,), (0.5,), (1e9,)), y_range=(0.0, 2.0)))
    one, other = (marks(root, "whisker")[0].get("d") for root in (inside, beyond))
    assert one.count("M") == 3  # the line and two caps
    assert other.count("M") == 2  # no cap where it goes on
    assert float(re.search(r"H([\d.]+)", other)[1]) > float(re.search(r"H([\d.]+)", one)[1])


def test_one_absurd_interval_does_not_flatten_the_figure():
    x = tuple("abcd")
    root = read(figure(DOTS, Series("s", x, (1.0, 1.2, 0.8, 1.1), (0.9,) * 4, (1.3, 1.3, 1.3, 1e6))))
    assert not any("," in text or "e" in text for text in texts(root) if text not in x)


def test_steps_hold_their_value_until_the_next():
    root = read(figure(STEPS, Series("s", (0, 1, 2), (1.0, 0.5, 0.25)), y_range=(0.0, 1.0)))
    points = [tuple(map(float, p.split())) for p in marks(root, "line")[0].get("d")[1:].split("L")]
    for (x0, y0), (x1, y1) in pairwise(points):
        assert x0 == x1 or y0 == y1


def test_bands_of_steps_lie_around_them():
    root = read(SURVIVAL)
    assert len(marks(root, "shade")) == len(marks(root, "line")) - 4 == 4  # four of the lines are the legend's


def test_levels_and_the_diagonal_are_drawn_and_named():
    assert "chance: 0.5" in texts(read(BY_STUDENT))
    assert len(marks(read(BY_STUDENT), "level")) == 2  # once in the legend
    assert len(marks(read(RELIABILITY), "diagonal")) == 2
    assert "no effect: 1" in texts(read(HAZARDS))


def test_series_differ_by_more_than_colour():
    lines = marks(read(figure(LINES, *(Series(str(i), (1, 2), (1.0, i)) for i in range(4)))), "line")
    assert len({line.get("stroke-dasharray") for line in lines}) == 4
    dots = marks(read(figure(DOTS, *(Series(str(i), (1, 2), (1.0, i)) for i in range(8)))), "mark")
    shapes = [re.sub(r"[\d.\s-]+", "", mark.get("d").split("z")[0]) for mark in dots[:8]]
    assert len(set(shapes)) >= 4
    fills = [bar.get("fill") for bar in marks(read(BY_STUDENT), "hatched")]
    assert len(set(fills)) == 2  # of three series one is solid


def test_cells_that_were_not_measured_are_holes():
    root = read(PAIRS)
    assert len(marks(root, "hole")) == 6
    assert len(marks(root, "above")) + len(marks(root, "below")) == 30 + 5  # and the scale
    strongest = max(float(cell.get("fill-opacity")) for kind in ("above", "below") for cell in marks(root, kind))
    assert strongest == 0.75


def test_numbers_over_powers_of_ten_stand_evenly():
    root = read(figure(LINES, Series("s", (10, 100, 1000), (1.0, 2.0, 3.0))))
    at = [float(e.get("x")) for e in root.iter("text") if e.text in ("10", "100", "1,000")]
    assert at[1] - at[0] == pytest.approx(at[2] - at[1], abs=0.2)
    ranged = read(figure(LINES, Series("s", (10, 100, 1000), (1.0, 2.0, 3.0)), x_range=(0, 1000)))
    assert "200" in texts(ranged)


# -- too little, too much ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_draw_is_said(kind):
    for one in (figure(kind), figure(kind, Series("s", (), ())), figure(kind, Series("s", ("a",), (math.nan,)))):
        assert texts(read(one)) == ["Nothing to draw: no value was measured."]
        assert figure_table(one).columns


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("x", [("a",), (3.0,)])
def test_one_point_is_drawn(kind, x):
    root = read(figure(kind, Series("s", x, (0.25,), (0.25,), (0.25,)), at=(("same", 0.25),)))
    assert [m for c in ("bar", "mark", "above") for m in marks(root, c)]


@pytest.mark.parametrize("kind", KINDS)
def test_holes_and_infinities_are_left_out_of_a_drawing_but_not_of_its_table(kind):
    values = (1.0, math.nan, math.inf, -math.inf, 1e308, 5e-324)
    one = figure(kind, Series("s", tuple("abcdef"), values, (math.nan,) * 6, (math.inf,) * 6))
    assert all(math.isfinite(place) for place in places(read(one)))
    table = figure_table(one)
    assert (len(table.rows) if kind != HEAT else len(table.columns) - 1) == 6


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_names_stay_a_drawing_and_all_are_in_the_table(kind):
    names = tuple(f"category number {i}" for i in range(200))
    one = figure(kind, Series("s", names, tuple(i / 200 for i in range(200))))
    root = read(one)
    assert float(root.get("height")) < 2000
    assert len(str(draw(one))) < 60_000
    table = figure_table(one)
    assert (len(table.rows) if kind != HEAT else len(table.columns) - 1) == 200
    if kind in (BARS, DOTS):
        assert any(text.startswith(f"The first {MOST_NAMES} of 200") for text in texts(root))


@pytest.mark.parametrize("kind", [BARS, LINES, STEPS, DOTS])
def test_very_long_series_and_very_many_stay_small(kind):
    long = figure(kind, Series("s", tuple(range(20_000)), tuple(float(i % 97) for i in range(20_000))))
    assert len(str(draw(long))) < 60_000
    many = figure(kind, *(Series(f"s{i}", ("a", "b"), (1.0, 2.0)) for i in range(300)))
    assert len(str(draw(many))) < 60_000
    assert any(text.startswith(f"The first {MOST_SERIES} of 300 series") for text in texts(read(many)))


# -- hostile names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("kind", KINDS)
def test_names_are_text_and_nothing_else(kind, name):
    series = [Series(f"{name}{i}", (name, "b"), (1.0, 2.0)) for i in range(2)]
    one = figure(kind, *series, title=name, about=name, x=name, y=name, name=name, at=((name, 1.5),))
    drawing = str(draw(one))
    drawing.encode("utf-8")
    root = xml.fromstring(drawing)
    assert {e.tag for e in root.iter()} <= {"svg", "title", "desc", "text", "path", "rect", "g", "pattern"}
    assert not any(attribute.startswith("on") or attribute == "href" for e in root.iter() for attribute in e.attrib)
    assert root.find("title").text.strip() == clean(name).strip()


@given(st.text(max_size=60), st.sampled_from(KINDS), st.lists(st.floats(), min_size=1, max_size=5))
def test_any_text_and_any_numbers_give_well_formed_drawings(name, kind, values):
    x = tuple(f"{name}{i}" for i in range(len(values)))
    one = figure(
        kind,
        Series(name, x, tuple(values)),
        Series("other", x, tuple(values), tuple(values), tuple(values)),
        title=name,
        y_range=(min(values), max(values)),
    )
    drawing = str(draw(one))
    drawing.encode("utf-8")
    assert "nan" not in drawing.replace(str(clean(name)), "").lower().replace("finance", "")
    xml.fromstring(drawing)
    xml.fromstring(str(draw(replace(one, series=tuple(replace(s, x=tuple(values)) for s in one.series)))))


# -- scales and words -------------------------------------------------------------------------------------------------


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.integers(2, 9))
def test_ticks_are_few_round_and_inside(low, width, most):
    width = max(width, abs(low) / 1e6)
    found = ticks(low, low + width, most)
    assert len(found) <= most
    assert all(low - width * 1e-6 <= tick <= low + width * (1 + 1e-6) for tick in found)
    if len(found) > 2:
        gaps = [b - a for a, b in pairwise(found)]
        assert max(gaps) == pytest.approx(min(gaps), rel=1e-3)


@given(st.lists(st.floats(-1e6, 1e6), max_size=6), st.booleans())
def test_an_axis_holds_every_value_and_its_labels_are_apart(values, zero):
    axis = axis_of(span_of(values, None, zero), 50, 340, nice=True)
    assert all(axis.holds(value) for value in values)
    assert len({label for _, label in axis.ticks}) == len(axis.ticks)
    at = [(axis(value), width_of(label)) for value, label in axis.ticks]
    assert all(b - a >= (w + v) / 2 for (a, w), (b, v) in pairwise(at)) or len(at) <= 3


def test_what_was_asked_is_what_an_axis_shows_unless_points_lie_outside():
    assert span_of([0.6], (0.5, 1.0), False) == (0.5, 1.0)
    assert span_of([0.2], (0.5, 1.0), False) == (0.2, 1.0)
    assert span_of([3.0], None, True) == (0.0, 3.0)
    assert span_of([], None, False) == (0.0, 1.0)
    assert span_of([0.5, 0.5], (math.nan, 1.0), False) == (0.25, 0.75)


def test_texts_are_cut_to_their_room():
    assert fitted("short", 100) == "short"
    assert fitted("W" * 100, 60).endswith("…")
    assert width_of(fitted("some words that go on and on and on", 90)) <= 90
    lines = wrapped(
        "a label of an axis that is far too long for one line and even for two of them, so it is cut", WIDTH
    )
    assert len(lines) == 2
    assert all(width_of(line) <= WIDTH for line in lines)
    assert wrapped("", WIDTH) == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.5, "0.500"),
        (3, "3"),
        (-3, "−3"),
        (1234567, "1,234,567"),
        (12.3456, "12.35"),
        (1234.5, "1,234"),
        (0.00001, "1.0e−05"),
        (math.nan, "—"),
        (math.inf, "—"),
        (0, "0"),
    ],
)
def test_numbers_are_written_as_people_write_them(value, words):
    assert digits(value) == words


def test_cells_are_written_as_they_are():
    assert [written(value) for value in (None, True, False, "<10", 0.25)] == ["—", "yes", "no", "<10", "0.250"]


def test_the_table_behind_a_figure_has_every_number():
    table = figure_table(HAZARDS)
    assert table.columns == ("series", "column", "hazard ratio", "95% interval")
    assert [row[2] for row in table.rows] == [y for one in HAZARDS.series for y in one.y]
    heat = figure_table(PAIRS)
    assert heat.columns[1:] == PAIRS.series[0].x
    assert [row[0] for row in heat.rows] == [one.name for one in PAIRS.series]
