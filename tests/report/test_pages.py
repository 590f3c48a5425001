"""Pages: in the right order, honest on every screen, escaped, small, and fine in a real browser, phone or desk."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcondense.data.schema import Column
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM
from distcondense.evaluation.section import Section
from distcondense.privacy.statement import Privacy
from distcondense.report.internal_page import at_a_glance, chapters_of, internal_page
from distcondense.report.page import LADDER, LARGEST, Bounds, claim_of, size_checked
from distcondense.report.release_page import _meanings, release_page
from distcondense.report.study_page import study_page
from distcondense.report.tables import MOST_COLUMNS, judged, page_table, rows_table, score_tables
from distcondense.report.text import clean
from distcondense.runs.figures import BARS, HEAT, LINES, Figure, Series, Table
from tests import sample_report as sample
from tests.browser import CHECK, Browser, chromium

PAGES = {
    "internal": (internal_page, sample.internal),
    "release": (release_page, sample.release),
    "study": (study_page, sample.study),
}
INSIDE = ("computed on patients", "not covered by the privacy guarantee", "not to be released", "reconstruct records")
GUARANTEES = ("end-to-end", "conditional", "as-published", "no privacy", "no guarantee")


def page(name: str) -> str:
    make, report = PAGES[name]
    return make(report())


def body(html: str) -> xml.Element:
    """Every tag of a body is closed, so it can be read as XML."""
    return xml.fromstring(html[html.index("<body>") : html.index("</html>")])


def words(element: xml.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def every(root: xml.Element, kind: str) -> list[xml.Element]:
    return [element for element in root.iter() if kind in (element.get("class") or "").split()]


def columns_of(html: str) -> list[list[str]]:
    return [[words(th) for th in table.iter("th") if th.get("scope") == "col"] for table in body(html).iter("table")]


# -- what stands where ------------------------------------------------------------------------------------------------


def test_the_internal_page_goes_from_the_verdict_to_how_it_was_made():
    root = body(page("internal"))
    assert [section.get("id") for section in root.iter("section")] == [
        "verdict",
        "good",
        "looks",
        "attacks",
        "limits",
        "made",
    ]
    rooms = [words(h) for h in root.iter("h3") if (h.get("id") or "").startswith("part-")]
    titles = (
        "Train on",
        "By subgroup",
        "What the students",
        "Hazard",
        "Survival",
        "Columns and pairs",
        "Copy",
        "Member",
        "Like",
    )
    assert [room.startswith(title) for room, title in zip(rooms, titles, strict=True)] == [True] * len(titles)


def test_the_release_page_goes_from_the_guarantee_to_how_to_use_it():
    root = body(page("release"))
    assert [section.get("id") for section in root.iter("section")] == [
        "guarantee",
        "table",
        "model",
        "marginals",
        "pairs",
        "ledger",
        "rules",
        "use",
    ]
    links = [a.get("href")[1:] for a in next(root.iter("nav")).iter("a")]
    assert links == [section.get("id") for section in root.iter("section")]


@pytest.mark.parametrize("name", ["internal", "study"])
def test_every_section_says_that_it_is_not_for_release_and_why(name):
    html = page(name)
    root = body(html)
    sections = list(root.iter("section"))
    assert sections
    for section in sections:
        (line,) = every(section, "inside")
        assert all(said in words(line).lower() for said in INSIDE)
    (band,) = every(root, "band")
    for said in ("Computed on patients", "not covered by the guarantee", "not to be released", "reconstruct records"):
        assert said in words(band)
    style = html[html.index("<style>") : html.index("</style>")]
    assert '@top-center { content: "Internal: computed on patients, not covered by the guarantee' in style
    assert re.search(r"\.band \{\s*position: sticky", style)


def test_a_release_page_has_no_word_of_that():
    html = page("release")
    assert not every(body(html), "inside")
    assert not every(body(html), "band")
    assert "Internal" not in html


def test_a_room_that_nobody_listed_finds_its_place():
    with_power = Section("new", "New", (sample.attack("a", 0.5),))
    without = Section("other", "Other", (sample.score("a", CONDENSED, 0.5),))
    found = chapters_of([without, with_power, *sample.parts()])
    assert found["attacks"][-1] is with_power
    assert found["looks"][-1] is without
    assert [part.name for part in found["good"]] == ["utility", "subgroups", "interpretation", "hazards", "curves"]


def test_an_empty_report_says_that_nothing_was_measured():
    report = {"run": {"name": "r", "method": "toy"}, "privacy": statement("none", epsilon=None, delta=None)}
    root = body(internal_page(report))
    assert words(root).count("Nothing was measured here") == 3
    assert "No guarantee" in words(root)
    assert "No cell is finished" in words(body(study_page({"name": "s"})))


def test_numbers_that_are_missing_are_dashes_with_their_reason():
    html = page("internal")
    assert "— [1]" in html
    assert "[1] nobody was flagged" in html
    assert "nan" not in re.sub(r"finance|nanny", "", words(body(html)).lower())


# -- privacy words ----------------------------------------------------------------------------------------------------


def epsilons(root: xml.Element) -> Iterator[str]:
    """Every block of text that says an ε with a number, and a card as a whole."""
    parents = {child: parent for parent in root.iter() for child in parent}
    for element in root.iter():
        if element.text and re.search(r"ε\s*[=≤]?\s*\d", element.text):
            block = parents[element] if "number" in (element.get("class") or "") else element
            yield words(block)


@pytest.mark.parametrize("name", PAGES)
def test_no_epsilon_without_its_guarantee(name):
    found = list(epsilons(body(page(name))))
    assert found
    assert [text for text in found if not any(word in text for word in GUARANTEES)] == []


def statement(guarantee: str, **more: Any) -> dict[str, Any]:
    given = {"guarantee": guarantee, "epsilon": 2.0, "delta": 1e-5} | more
    return Privacy(**({"method": "toy", "neighbouring": "rows", "noise_source": "none"} | given)).to_dict()


@pytest.mark.parametrize(
    ("privacy", "said", "tone"),
    [
        (statement("end-to-end"), "a theorem about every row", "good"),
        (
            statement("conditional", schema_origin="inferred"),
            "only if what was read off the patients is public",
            "care",
        ),
        (statement("as-published", epsilon_at_last_step=3.0, worst_case_epsilon="over 100"), "not a theorem", "bad"),
        (statement("none", epsilon=None, delta=None), "No guarantee", "bad"),
        (statement("end-to-end", epsilon_with_earlier_runs=5.5), "with earlier runs ε = 5.5", "good"),
    ],
)
def test_each_guarantee_is_called_what_it_is(privacy, said, tone):
    for html in (
        release_page({"name": "r", "privacy": privacy}),
        internal_page({"run": {"name": "r"}, "privacy": privacy}),
    ):
        text = words(body(html))
        assert said.casefold() in text.casefold()
        assert claim_of(privacy).card.tone == tone
        charged = privacy["guarantee"] in ("end-to-end", "conditional")
        if "Internal" not in html:
            assert ("Nobody looked at a patient again" in text) == charged
            assert ("No end-to-end guarantee covers" in text) != charged
    assert (
        "over 100" in claim_of(statement("as-published", epsilon_at_last_step=3.0, worst_case_epsilon="over 100")).short
    )


def test_epsilon_is_never_rounded_down():
    assert claim_of(statement("end-to-end", epsilon=1.23001)).card.number == "ε = 1.24"


# -- only what is given -----------------------------------------------------------------------------------------------


def test_a_release_page_shows_nothing_that_it_does_not_know():
    """Whoever hands it too much by mistake does not publish it."""
    canary = "CANARY-9f2"
    wrong = {
        **sample.release(),
        "quick": [canary],
        "parts": [canary],
        "verdict": [canary],
        "run": {"name": canary},
        "made_with": {"odometer": canary},
        "internal": canary,
    }
    wrong["privacy"] = {**wrong["privacy"], "internal": canary, "parameters": {"x": canary}}
    assert canary not in release_page(wrong)
    inside = sample.internal()
    inside["verdict"] = [canary]
    assert canary in internal_page(inside)


def test_all_but_name_and_privacy_is_optional():
    root = body(release_page({"name": "r", "privacy": statement("end-to-end", epsilon=1.0, delta=1e-6)}))
    assert [section.get("id") for section in root.iter("section")] == ["guarantee"]


@pytest.mark.parametrize(
    ("privacy", "word", "tone"),
    [
        ({"guarantee": "end-to-end"}, "Guaranteed.", "good"),
        ({"guarantee": "conditional", "schema_origin": "inferred"}, "Guaranteed on a condition.", "care"),
        ({"guarantee": "as-published"}, "Not guaranteed.", "bad"),
        ({"guarantee": "none", "epsilon": None, "delta": None}, "No guarantee.", "bad"),
        ({"guarantee": "end-to-end", "answer": "NO ANSWER: too few"}, "No answer.", "bad"),
    ],
)
def test_a_word_with_a_colour_comes_before_any_number(privacy, word, tone):
    page = release_page({"name": "r", "privacy": statement(**privacy)})
    inside = page[page.index("<main") :]
    assert f'<p class="verdict {tone}"><strong>{word}</strong>' in inside
    before = page[page.index("<body>") : page.index("</strong>")]
    assert "ε =" not in before
    assert page.count("<h3>The privacy statement</h3>") == 0  # it is folded, and said once
    internal = internal_page({"run": {"name": "r", "method": "toy"}, "privacy": statement(**privacy), "poor": True})
    poor = "Of little use." if tone != "bad" else word
    assert f'<p class="verdict bad"><strong>{poor}</strong>' in internal


def test_the_guarantee_and_what_figures_share_are_said_once():
    lines = (Series("", (0.0, 1.0), (1.0, 2.0)),)
    about = ("Bands are 95% intervals. Above 0 raises it.", "Bands are 95% intervals. In brackets: how many have it.")
    figures = [asdict(Figure(f"f{k}", LINES, f"figure {k}", about[k // 2], "x", "y", lines)) for k in range(3)]
    root = body(
        release_page(
            {"name": "r", "privacy": {**statement("end-to-end"), "epsilon_with_earlier_runs": None}, "model": figures}
        )
    )
    described = " ".join(words(one) for one in root.iter("desc"))
    for hidden in (*root.iter("details"), *root.iter("desc")):
        hidden.clear()
    text = words(root).casefold()
    assert text.count("theorem about every") == 1
    assert text.count("ε =") == 1
    assert [text.count(line) for line in ("bands are 95%", "above 0 raises it", "in brackets")] == [1, 1, 1]
    assert described.count("Bands are 95% intervals.") == 3
    earlier = {**statement("end-to-end"), "epsilon_with_earlier_runs": 5.5}
    inside = internal_page({"run": {"name": "r"}, "privacy": earlier, "verdict": [claim_of(earlier).sentence, "Good."]})
    root = body(inside)
    for hidden in root.iter("details"):
        hidden.clear()
    assert (words(root).count("ε = 2"), words(root).count("With earlier runs ε = 5.5 (end-to-end).")) == (1, 1)
    assert "Good." in words(root)


def test_columns_of_many_classes_are_explained_once():
    columns = [Column(f"distcondense_risk_{c}", "continuous", meaning=f"the probability of {c}.") for c in "abc"]
    assert _meanings(columns) == ["distcondense_risk_a … distcondense_risk_c, 3 columns: the probability of its class."]
    assert _meanings(columns[:2]) == [f"{c.name}: {c.meaning}" for c in columns[:2]]


def test_the_trade_off_curve_comes_from_the_statement():
    privacy = sample.release()["privacy"]
    assert "What any test of membership can do (end-to-end guarantee)" in release_page(
        {"name": "r", "privacy": privacy}
    )


def test_a_release_page_shows_bounds_categories_rules_and_code():
    text = words(body(page("release")))
    for said in (
        "0 to 120",
        "I, II, III",
        "… (80 in all)",
        "0 to 400.5",
        "systolic >= diastolic",
        "import pandas as pd",
    ):
        assert said in text
    (code,) = body(page("release")).iter("pre")
    assert words(code) == 'import pandas as pd rows = pd.read_parquet("condensed.parquet")'


# -- nothing is loaded, nothing runs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_pages_load_nothing_and_run_nothing(name):
    html = page(name)
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert html.count(f'<meta http-equiv="Content-Security-Policy" content="{policy}">') == 1
    assert html.index("Content-Security-Policy") < html.index("<style>")
    assert not re.search(r"https?:|<script|<iframe|<object|<embed|<form|@import|javascript:", html, re.IGNORECASE)
    assert all(target.startswith(("#", "data:,")) for target in re.findall(r'(?:src|href)="([^"]*)"', html))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))
    assert not re.search(r"<[^>]*\son\w+=", html)


# -- hostile names ----------------------------------------------------------------------------------------------------

TAGS = {
    "body", "a", "aside", "div", "header", "nav", "main", "section", "footer", "p", "h1", "h2", "h3", "ul", "li", "dl",
    "dt", "dd", "span", "strong", "em", "code", "pre", "details", "summary", "figure", "figcaption", "table",
    "caption", "thead", "tbody", "tr", "th", "td", "svg", "title", "desc", "g", "path", "rect", "text", "pattern",
}  # fmt: skip
KEPT = {"name", "kind", "guarantee", "unit", "trained_on", "query", "by", "run", "schema_origin"}


def poisoned(value: Any, poison: str, key: str = "") -> Any:
    """Every text of a report made hostile, but for the few that code compares."""
    if isinstance(value, dict):
        return {k: poisoned(v, poison, k) for k, v in value.items()}
    if isinstance(value, list):
        return [poisoned(one, poison, key) for one in value]
    return f"{poison}{value}" if isinstance(value, str) and key not in KEPT else value


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(
    "poison", ["<script>alert(1)</script>", "\"'><img src=http://x onerror=alert(1)>", "</style></svg>{{7*7}}"]
)
def test_hostile_names_are_text(name, poison):
    make, report = PAGES[name]
    html = make(poisoned(report(), poison))
    root = body(html)
    assert {element.tag for element in root.iter()} <= TAGS
    assert not any(a.startswith("on") or a == "src" for element in root.iter() for a in element.attrib)
    assert clean(poison) in "".join(root.itertext())
    assert "49" not in "".join(root.itertext()).split("{{7*7}}")[0][-10:]


@settings(max_examples=15)
@given(st.text(st.characters(codec=None), min_size=1, max_size=30))
def test_any_text_makes_a_page(poison):
    html = release_page(poisoned(sample.release(), poison))
    html.encode("utf-8")
    assert {element.tag for element in body(html).iter()} <= TAGS
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\u202a-\u202e\ud800-\udfff]", html)


# -- size -------------------------------------------------------------------------------------------------------------


def test_a_small_page_is_whole():
    assert "further" not in page("internal")
    assert len(page("internal").encode()) < 300_000


def test_an_enormous_report_makes_a_page_that_is_small_enough_and_says_what_it_left_out():
    names = tuple(f"column number {i} of a very wide table" for i in range(250))
    wide = Figure("w", HEAT, "Wide", "", "", "", tuple(Series(n, names, (0.5,) * 250) for n in names[:30]))
    bars = Figure("b", BARS, "Bars", "", "", "", (Series("s", names, (1.0,) * 250),))
    table = Table("t", "Long", ("a", "b", "c"), tuple((f"row {i}", i, "some words to fill it") for i in range(20_000)))
    part = Section("fidelity", "Fidelity", figures=(wide, *(bars,) * 150), tables=(table, table))
    report = {**sample.internal(), "parts": [part.to_dict()]}
    html = internal_page(report)
    assert 300_000 < len(html.encode()) <= LARGEST
    text = words(body(html))
    assert "further rows are left out, so that this page stays small: they are in report.json." in text
    assert "further figures are not drawn" in text
    assert f"{251 - MOST_COLUMNS} further columns are left out" in text


def test_the_fullest_page_that_fits_is_taken():
    asked: list[Bounds] = []

    def make(bounds: Bounds) -> str:
        asked.append(bounds)
        return "ä" * bounds.rows

    assert len(size_checked(make, largest=400)) == 200
    assert asked == list(LADDER[:2])
    assert size_checked(lambda bounds: "x" * 10_000, largest=10) == "x" * 10_000  # there is nothing left to leave out
    assert all(a.rows >= b.rows and a.figures >= b.figures for a, b in pairwise(LADDER))


# -- sheets -----------------------------------------------------------------------------------------------------------


def test_scores_become_a_row_a_way_and_a_column_a_measure():
    (sheet,) = score_tables(sample.quick(), {"brier": "Brier (0: best)"}, "Quick")
    assert sheet.columns == ("trained on", "AUROC", "Balanced accuracy", "Brier (0: best)")
    assert sheet.rows[0][0].text == "Real training rows (ceiling)"
    assert sheet.rows[-1][0].text == "Random real rows, same number (floor)"
    assert sheet.rows[2][0].more == "as the manual says, 100 rows"
    assert (sheet.rows[2][1].text, sheet.rows[2][1].more) == ("0.838", "0.808 to 0.868")
    assert sheet.below == ("Student xgboost; tested on held out; 1,460 test rows; decisions at a threshold of 0.310.",)
    assert sheet.how == "DeLong."  # for those who ask: in a fold


def test_few_things_with_many_measures_are_turned_around():
    scores = [sample.score(measure, way, 0.5) for measure in ("auroc", "ppv", "npv") for way in (FULL, RANDOM)]
    (sheet,) = score_tables(scores, {}, "x")
    assert sheet.columns[0] == "measure"
    assert [row[0].text for row in sheet.rows] == ["AUROC", "PPV", "NPV"]


def test_things_with_other_measures_have_a_table_of_their_own():
    groups = [sample.score("auroc", way, 0.8, group=group) for group in ("a", "b", "") for way in (FULL, CONDENSED)]
    gap = sample.score("gap", CONDENSED, 0.1, group="a or b")
    first, second = score_tables([*groups, gap], {}, "x")
    assert first.columns == ("of", "trained on", "AUROC")
    assert [row[0].text for row in first.rows] == ["a", "a", "b", "b", "all", "all"]
    assert "gap" in second.columns
    assert first.label != second.label


def test_an_attack_without_a_guarantee_has_no_ceiling_and_what_it_could_not_measure_stands_with_it():
    failed = sample.attack("b", math.nan, low=math.nan, high=math.nan, ceiling=None, power=None, note="too few")
    (sheet,) = score_tables([sample.attack("a", 0.6, ceiling=None), failed], {}, "x")
    assert sheet.columns == ("attack", "found", "power", "targets", "note")
    assert sheet.rows[1][-1].text == "too few"
    assert "There is no ceiling" in sheet.below[0]


@pytest.mark.parametrize(
    ("value", "low", "ceiling", "said", "tone"),
    [
        (0.5, 0.45, 0.6, "✓ within the ceiling", "good"),
        (0.62, 0.55, 0.6, "above the ceiling, within chance", "care"),
        (0.7, 0.65, 0.6, "▲ above the ceiling", "bad"),
        (0.7, math.nan, 0.6, "▲ above the ceiling", "bad"),
        (math.nan, math.nan, 0.6, "not measured", "care"),
        (0.7, 0.65, None, "no guarantee to hold it to", ""),
    ],
)
def test_attacks_are_held_to_their_ceiling(value, low, ceiling, said, tone):
    cell = judged(sample.attack("a", value, low=low, high=value, ceiling=ceiling))
    assert (cell.text, cell.tone) == (said, tone)


def test_attacks_stand_with_ceiling_power_and_what_they_found():
    html = page("internal")
    assert ["attack", "found", "ceiling", "power", "against the ceiling", "targets"] in columns_of(html)
    tags = [words(tag) for heading in body(html).iter("h3") for tag in every(heading, "tag")]
    assert tags == ["✓ no leak found at this power", "▲ leak found"]
    assert "no leak found by these attacks at this power" in words(body(html))


def test_tables_take_ragged_rows_small_counts_and_intervals():
    sheet = page_table(Table("t", "T", ("a", "n"), (("x", "<10"), ("y", 12), ("z",))))
    assert sheet.numeric == {1}
    assert [row[1].text for row in sheet.rows] == ["<10", "12", ""]
    grid = rows_table("G", [{"a": "x", "auroc": [0.5, 0.4, 0.6]}, {"a": "y", "b": ["p", "q"]}], {"auroc": "AUROC"})
    assert grid.columns == ("a", "AUROC", "b")
    assert (grid.rows[0][1].text, grid.rows[0][1].more) == ("0.500", "0.400 to 0.600")
    assert grid.rows[1][2].text == "p, q"
    assert rows_table("G", []) is None


def test_at_a_glance_the_condensed_rows_stand_between_ceiling_and_floor():
    (figure,) = at_a_glance(sample.quick())
    assert [x.split(",")[0].split(" (")[0] for x in figure.series[0].x] == [
        "Real training rows",
        "Condensed",
        "Condensed",
        "Random real rows",
    ]
    assert at_a_glance([]) == []


# -- in a real browser ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("there is no chromium here to open the pages in: apt-get install chromium")
    found = Browser(program)
    yield found
    found.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    room = tmp_path_factory.mktemp("pages")
    for name in PAGES:
        (room / f"{name}.html").write_text(page(name), encoding="utf-8")
    return {name: room / f"{name}.html" for name in PAGES}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1400])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_quiet_fits_its_window_and_can_be_read(browser, files, name, width, dark):
    browser.open(files[name], width=width, dark=dark)
    browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    browser.whole(width)
    assert browser.run(CHECK) == []
    assert browser.complaints() == []
    assert browser.requests() == [files[name].as_uri()]


@pytest.mark.parametrize("width", [360, 1400])
def test_every_screen_of_the_internal_page_carries_the_banner(browser, files, width):
    browser.open(files["internal"], width=width)
    seen = browser.run("""(async () => {
        const seen = [];
        for (let y = 0; y < document.documentElement.scrollHeight; y += 700) {
            scrollTo(0, y);
            await new Promise(done => requestAnimationFrame(done));
            seen.push(Boolean(document.elementFromPoint(innerWidth / 2, 4)?.closest(".band")));
        }
        return seen;
    })()""")
    assert len(seen) > 5
    assert all(seen)


@pytest.mark.parametrize("name", PAGES)
def test_on_paper_it_is_light_and_nothing_is_cut(browser, files, name):
    browser.open(files[name], width=800, dark=True, media="print")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.querySelector('.scroll')).overflow") == "visible"
    band = browser.run("document.querySelector('.band')?.getBoundingClientRect().height ?? 0")
    assert (band > 10) == (name != "release")
    assert browser.run("document.documentElement.scrollWidth") <= 800


def test_a_hostile_report_is_quiet_too(browser, tmp_path):
    file = tmp_path / "hostile.html"
    poison = "<img src=https://example.org/x.png onerror=console.log(1)><script>console.log(2)</script>" + "W" * 80
    file.write_text(internal_page(poisoned(sample.internal(), poison)), encoding="utf-8")
    browser.open(file, width=360)
    assert browser.complaints() == []
    assert browser.requests() == [file.as_uri()]
    assert browser.run("document.documentElement.scrollWidth") <= 360


def test_the_browser_would_notice(browser, tmp_path):
    """A page with every fault there is."""
    file = tmp_path / "wrong.html"
    file.write_text(
        "<!doctype html><html><body style='background:#fff'><h1>a</h1><h3>b</h3><img src='https://example.org/x.png'>"
        "<p style='color:#999'>pale</p><svg viewBox='0 0 10 10' width=300></svg><table><tr><td>x</td></tr></table>"
        "<div style='width:2000px'>wide</div><script>console.error('no')</script></body></html>",
        encoding="utf-8",
    )
    browser.open(file, width=360)
    wrong = " ".join(browser.run(CHECK))
    for fault in (
        "no language",
        "no title",
        "heading skips",
        "img without alt",
        "contrast 2.8",
        "svg without title",
        "svg without role",
        "table without caption",
        "row without header",
        "too wide",
        "landmark main",
    ):
        assert fault in wrong
    assert any("no" in entry for entry in browser.complaints())
    assert "https://example.org/x.png" in browser.requests()
