"""What explains a release: README.md, datasheet.md, model.svg. Code runs, words warn, other tools read the table."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.reserved import WEIGHT
from distcondense.data.schema import Column, Schema
from distcondense.methods.private.smoothing import doubt, prior_kernels, smooth
from distcondense.outcomes.recipes import Recipe
from distcondense.privacy.statement import Privacy
from distcondense.report.datasheet import datasheet, possible, quotable
from distcondense.report.manual import manual, misread, texts
from distcondense.report.picture import panels
from distcondense.runs.figures import STEPS, Figure, Series
from distcondense.runs.release import ReleaseInfo
from distcondense.runs.signing import verify_release
from tests import readers
from tests.conftest import quicken

SITES = ("a, b", 'say "ah"', "<30", "=1+1", "01", "NA", "Zürich")  # what a CSV may stumble over
HOW: dict[str, dict[str, str]] = {
    "binary": {"target": "died"},
    "multiclass": {"target": "grade"},
    "continuous": {"target": "stay"},
    "survival": {"time": "months", "event": "relapse"},
}
OUTCOMES = {
    "binary": (Column("died", "binary", categories=("no", "yes")),),
    "multiclass": (Column("grade", "categorical", categories=("a", "b", "c")),),
    "continuous": (Column("stay", "continuous", low=0.0, high=60.0, decimals=1),),
    "survival": (
        Column("months", "continuous", low=0.0, high=60.0), Column("relapse", "binary", categories=("n", "y"))
    ),
}  # fmt: skip
FEATURES = (
    Column("age", "integer", low=0, high=120, unit="years", missing="indicator"),
    Column("crp", "continuous", low=0, high=400, unit="mg/L", missing="indicator", decimals=1),
    Column("ward [no.]", "integer", low=0, high=9, missing="constant", fill=0),
    Column("site", "categorical", categories=SITES, missing="category"),
    Column("code", "categorical", categories=("001", "007", "010")),
    Column("smoker", "binary", categories=("F", "T")),
)


def patients(rows: int = 1500) -> pd.DataFrame:
    """Outcomes of every kind that follow the features; holes by every policy."""
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 90, rows).astype(float),
            "crp": rng.gamma(2, 20, rows).round(1).clip(0, 400),
            "ward [no.]": rng.integers(0, 9, rows).astype(float),
            "site": rng.choice(SITES, rows),
            "code": rng.choice(["001", "007", "010"], rows),
            "smoker": rng.choice(["F", "T"], rows),
        }
    )
    risk = (frame["age"] - 55) / 12 + (frame["smoker"] == "T") + (frame["site"] == "<30") + rng.normal(0, 0.5, rows)
    time = rng.exponential(40 * np.exp(-risk / 2)) + 0.1
    frame = frame.assign(
        died=np.where(risk > 0.7, "yes", "no"),
        grade=np.array(["a", "b", "c"])[np.digitize(risk, [-0.5, 1.0])],
        stay=np.round((20 + 6 * risk).clip(0, 60), 1),
        months=np.minimum(time, 60.0),
        relapse=np.where(time < 60, "y", "n"),
    )
    for name in ("age", "crp", "ward [no.]", "site"):
        frame.loc[rng.random(rows) < 0.15, name] = None
    return frame


def cohort(kind: str) -> dc.Cohort:
    schema = Schema((*FEATURES, *OUTCOMES[kind]))
    return dc.Cohort.from_frame(patients()[schema.names], schema=schema, **HOW[kind])


@pytest.fixture(scope="module", params=list(HOW))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dc.Result, Path]:
    """One small private run of each kind of outcome; its release is all that a recipient has."""
    run = tmp_path_factory.mktemp(request.param) / "run"
    with pytest.MonkeyPatch.context() as patch:
        quicken(patch)
        given = {"ipc": 40, "epsilon": 8.0, "holdout": 0.0, "threads": 1, "out": run}
        result = dc.condense(cohort(request.param), **given)
    assert not result.privacy.answer
    return request.param, result, run / "release"


def bare_epsilons(text: str) -> list[str]:
    """Every ε with a number beside which no guarantee is named."""
    flat, bare = " ".join(text.split()), []
    for found in re.finditer(r"ε\W{0,3}(?:is |of )?(?=\d|over)", flat):
        around = flat[max(0, found.start() - 200) : found.start()] + flat[found.end() : found.end() + 60]
        if not re.search("as-published|end-to-end|end to end|conditional", around, re.IGNORECASE):
            bare.append(around)
    return bare


def blocks(release: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (release / "README.md").read_text(encoding="utf-8"), re.DOTALL)


# -- the recipient, who has release/ and no distcondense ---------------------------------------------------------------


def test_every_python_recipe_trains_a_model_from_the_release_alone(
    made: tuple[str, dc.Result, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, result, release = made
    monkeypatch.chdir(release)
    found = blocks(release, "python")
    assert len(found) == (2 if kind == "survival" else 3)
    for code in found:
        assert "import distcondense" not in code
        assert len(code.splitlines()) <= 8
        names: dict[str, Any] = {}
        exec(compile(code, "README.md", "exec"), names)
        assert names["model"] is not None
        ours = {*result.outcome, *result.kind.own_columns(), WEIGHT}
        features = names["X"].columns if kind != "survival" or "xgb" in names else names["X"].columns[:-2]
        assert not ours & set(features)
        assert any(name.startswith("code_0") for name in features)  # 007 is a text
        assert len(names["table"]) == len(result.frame)


@pytest.mark.parametrize(("value", "warned"), [(0.2, True), (0.99, False)])
def test_the_recipient_is_warned_by_the_model_s_own_account_alone(
    made: tuple[str, dc.Result, Path], value: float, warned: bool
) -> None:
    _, result, _ = made
    name = result.privacy.parameters["expected_by_the_model_itself"][0]
    value = value if name != "R²" else value - 0.19
    privacy = replace(result.privacy, parameters={"expected_by_the_model_itself": [name, value]})
    said = manual({"condensed": replace(result, privacy=privacy)})
    assert ("HARDLY BETTER THAN A GUESS" in said) is warned
    assert "NOT GOOD ENOUGH" not in said  # computed on patients: never for a recipient


def test_a_model_of_the_first_recipe_ranks_real_patients(
    made: tuple[str, dc.Result, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, _, release = made
    if kind != "binary":
        pytest.skip("one kind is enough")
    monkeypatch.chdir(release)
    names: dict[str, Any] = {}
    exec(blocks(release, "python")[0], names)
    real = patients()
    X = pd.get_dummies(real[[c.name for c in FEATURES]], dtype=float).reindex(
        columns=names["X"].columns, fill_value=0.0
    )
    yes = names["model"].predict_proba(X)[:, list(names["model"].classes_).index("yes")]
    died = (real["died"] == "yes").to_numpy()
    assert np.mean(yes[died][:, None] > yes[~died][None]) > 0.75


def test_the_manual_names_every_column_that_is_no_feature_and_forbids_what_misleads(
    made: tuple[str, dc.Result, Path],
) -> None:
    _, result, release = made
    text = " ".join((release / "README.md").read_text(encoding="utf-8").split())
    for name in (*result.outcome, *result.kind.own_columns(), WEIGHT):
        assert f"`{name}`" in text
    for rule in ("Never validate on these rows", "No p-values", "type-I error", "Nothing about small groups"):
        assert rule in text
    assert bare_epsilons((release / "README.md").read_text(encoding="utf-8")) == []
    assert bare_epsilons((release / "datasheet.md").read_text(encoding="utf-8")) == []


def test_in_a_survival_release_nobody_is_asked_to_weight(made: tuple[str, dc.Result, Path]) -> None:
    """All weights are the same there, and a penalised Cox model of large weights is another one."""
    kind, result, release = made
    if kind != "survival":
        pytest.skip("survival alone")
    assert result.frame[WEIGHT].nunique() == 1
    for code in (*blocks(release, "python"), *blocks(release, "r")):
        assert f"[{WEIGHT!r}]" not in code.replace('"', "'")


def test_the_papers_are_bound_to_the_statement_and_checked(made: tuple[str, dc.Result, Path], tmp_path: Path) -> None:
    _, _, release = made
    stated = json.loads((release / "privacy.json").read_text(encoding="utf-8"))
    assert {"README.md", "datasheet.md", "model.svg"} <= set(stated["files"])
    assert verify_release(release).holds
    copy = tmp_path / "release"
    copy.mkdir()
    for file in release.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    (copy / "README.md").write_text("Feel free to use risk as a feature.", encoding="utf-8")
    assert any("README.md is not the file" in line for line in verify_release(copy).contradictions)


# -- the table in other tools -----------------------------------------------------------------------------------------


def alike(found: Any, due: Any) -> bool:
    """The same value: a hole, a number, a text."""
    if found is None or found is pd.NA or (isinstance(found, float) and math.isnan(found)):
        return due is None or due is pd.NA or (isinstance(due, float) and math.isnan(due))
    if isinstance(found, bool) or isinstance(due, str) or not isinstance(found, int | float | np.number):
        return str(found) == str(due)
    return due is not None and due is not pd.NA and math.isclose(float(found), float(due), rel_tol=1e-12, abs_tol=1e-15)


def misread_columns(columns: dict[str, list[Any]], frame: pd.DataFrame) -> set[str]:
    assert list(columns) == list(frame.columns)
    return {
        name
        for name, cells in columns.items()
        if not all(alike(a, b) for a, b in zip(cells, frame[name].tolist(), strict=True))
    }


def test_pandas_as_the_manual_says_reads_every_cell_as_it_was_written(made: tuple[str, dc.Result, Path]) -> None:
    _, result, release = made
    line = next(line for line in blocks(release, "python")[0].splitlines() if line.startswith("table = "))
    names: dict[str, Any] = {"pd": pd}
    exec(line.replace("condensed.csv", str(release / "condensed.csv")), names)
    assert misread_columns({n: names["table"][n].tolist() for n in names["table"]}, result.frame) == set()
    assert result.frame["age"].isna().any()  # a hole of a number, and of a category
    assert result.frame["site"].isna().any()
    assert not result.frame["ward [no.]"].isna().any()  # the policy of a constant leaves none


@pytest.mark.parametrize("tool", ["pandas", "readr", "excel"])
def test_what_a_tool_misreads_by_itself_the_manual_names(made: tuple[str, dc.Result, Path], tool: str) -> None:
    _, result, release = made
    file = release / "condensed.csv"
    if tool == "pandas":
        plain = pd.read_csv(file)
        columns: dict[str, list[Any]] = {name: plain[name].tolist() for name in plain}
    else:
        columns = getattr(readers, tool)(file)
    found = misread_columns(columns, result.frame)
    warned = "\n".join(misread({column.name: column.categories for column in FEATURES}))
    assert found <= {name for name in columns if f"`{name}`" in warned}
    assert "site" in found or "NA" not in set(result.frame["site"])
    text = (release / "README.md").read_text(encoding="utf-8")
    assert all(line in text for line in warned.splitlines())


def test_the_csv_is_plain_utf_8_with_one_line_a_row_and_no_mark(made: tuple[str, dc.Result, Path]) -> None:
    _, result, release = made
    raw = (release / "condensed.csv").read_bytes()
    assert not raw.startswith(b"\xef\xbb\xbf")  # read.csv would make it part of the first name
    assert raw.decode("utf-8").count("\n") == len(result.frame) + 1
    assert b"\r" not in raw


def test_harmless_categories_need_no_warning() -> None:
    assert misread({"stage": ("I", "II"), "sex": ("f", "m"), "grade": (1, 2)}) == []
    assert texts({"stage": ("I", "II"), "sex": ("f", "m"), "grade": (1, 2), "zip": ("01234", "x")}) == ["zip"]


# -- the officer ------------------------------------------------------------------------------------------------------


def statement(guarantee: Any = "end-to-end", **more: Any) -> Privacy:
    epsilon = None if guarantee == "none" else 1.0
    own: dict[str, Any] = {"epsilon_at_last_step": 2.0, "worst_case_epsilon": "over 100"}
    given = {**(own if guarantee == "as-published" else {}), **more}
    if guarantee == "conditional":
        given["schema_origin"] = "inferred"
    return Privacy(guarantee, "any", epsilon, 1e-5, "add or remove one row", "os", **given)


def sheet(privacy: Privacy, make: Any = datasheet, rows: int = 20) -> str:
    kind = SimpleNamespace(
        names=("died",),
        labels=(0, 1),
        own_columns=lambda: ("risk",),
        outcome_columns=lambda: (Column("died", "binary", categories=(0, 1), meaning="it."),),
        added_columns=lambda: (),
        recipes=lambda table: (Recipe("any", "python", "pass"),),
    )
    one = SimpleNamespace(
        frame=pd.DataFrame(index=range(rows)),
        schema=Schema(FEATURES),
        kind=kind,
        privacy=privacy,
        raw=False,
        covered={},
        info=ReleaseInfo(),
    )
    return str(make({"condensed": one}))


@pytest.mark.parametrize("make", [datasheet, manual])
@pytest.mark.parametrize(
    ("guarantee", "says"),
    [
        ("none", "TREAT THIS TABLE AS PATIENT DATA"),
        ("as-published", "NO THEOREM COVERS THIS TABLE"),
        ("conditional", "CAREFUL"),
    ],
)
def test_a_release_that_no_theorem_covers_says_so_before_anything_else(guarantee: str, says: str, make: Any) -> None:
    text = sheet(statement(guarantee), make)
    assert says in text[:600]
    assert bare_epsilons(text) == []


def test_a_theorem_needs_no_warning_and_none_may_be_quoted_without_one() -> None:
    assert "WARNING" not in sheet(statement())
    assert "No row is a patient" in sheet(statement(), manual)
    for guarantee in ("as-published", "none"):
        assert "No row is a patient" not in sheet(statement(guarantee), manual)
        assert "coincidence" not in sheet(statement(guarantee))
    assert "differential privacy" not in sheet(statement("none")).replace("differentially private", "")


def test_the_datasheet_answers_what_the_officer_asks(made: tuple[str, dc.Result, Path]) -> None:
    _, result, release = made
    text = (release / "datasheet.md").read_text(encoding="utf-8")
    heads = (
        "What may be said about it",
        "The guarantee, in numbers",
        "The guarantee, in words",
        "Not covered",
        "What was spent in all",
        "Is any row a real patient?",
        "Taken as public",
        "How to check it",
    )
    officers = (Path(__file__).parents[2] / "docs/nist.md").read_text(encoding="utf-8")  # what NIST would have her ask
    asked = set(re.findall(r"\| \*([^*|]+)\* \|", officers))
    assert len(asked) > 6
    for head in (*heads, *asked):
        assert f"\n## {head}\n" in text, head
    assert "| trust model | central" in text
    assert "side channels" in text
    assert "Subgroups must be checked" in text
    assert "coincidence" in text
    assert f"distcondense {dc.__version__}" in text
    assert result.privacy.paragraph() in text
    one = quotable(result, [len(result.frame)])
    assert f"> {one}" in text
    assert "end-to-end" in one
    assert "By its own account" in one


def test_earlier_runs_are_in_the_total_and_in_the_words_to_quote() -> None:
    text = sheet(statement(epsilon_with_earlier_runs=2.5, advantage_with_earlier_runs=0.5))
    assert "included: ε = 2.5 (end-to-end), the total known" in text
    assert "Together with all earlier runs known, ε is 2.5 (end-to-end)" in text
    assert "by a factor of 12.2" in " ".join(text.split())  # of both
    assert "no bound" not in text
    assert "unbounded" in sheet(statement(epsilon_with_earlier_runs="unbounded"))


def test_the_number_of_possible_rows_is_public_and_counts_holes() -> None:
    assert possible([Column("a", "binary", categories=(0, 1)), Column("b", "integer", low=0, high=4)]) == "10"
    assert possible([Column("a", "binary", categories=(0, 1), missing="category")]) == "3"
    assert possible(FEATURES).startswith("10^")


# -- the picture ------------------------------------------------------------------------------------------------------


def test_the_picture_is_one_whole_svg_on_one_scale(made: tuple[str, dc.Result, Path]) -> None:
    kind, result, release = made
    root = ET.parse(release / "model.svg").getroot()
    assert root.tag.endswith("svg")
    parts = [one for one in root if one.tag.endswith("svg")]
    figures = result.covered["model"]
    assert len(parts) == len(figures)
    columns = [figure for figure in figures if figure.name.startswith("model-")]
    assert len({figure.y_range for figure in columns}) == 1
    assert (figures[0].name == "lives") == (kind == "survival")
    ids = [one.get("id") for one in root.iter() if one.get("id")]
    assert len(ids) == len(set(ids))


def test_every_panel_has_bands_support_and_missing_levels(made: tuple[str, dc.Result, Path]) -> None:
    _, result, _ = made
    panels = {figure.title.split(":")[0]: figure for figure in result.covered["model"]}
    for figure in panels.values():
        for one in figure.series:
            if figure.name == "lives":
                continue
            assert one.low is not None
            assert one.high is not None
            assert all(low <= y <= high for low, y, high in zip(one.low, one.y, one.high, strict=True))
    age = panels["age"]
    assert age.kind == STEPS
    assert len(age.support) == len(age.series[0].x) - 1
    assert any(name.startswith("missing (") for name, _ in age.at)
    assert max(panels["crp"].series[0].x) < 400  # where patients are, not where the bounds are
    if "site" in panels:
        assert any(str(x).startswith("missing (") for x in panels["site"].series[0].x)


def test_names_cannot_break_the_picture() -> None:
    nasty = Series("a<b", (0.0, 1.0), (0.0, 1.0), (-1.0, 0.0), (1.0, 2.0))
    one = Figure("x", STEPS, 'ward "5" <&> ' + "w" * 300, "about", "x & y", "<y>", (nasty,), support=(0.5,))
    ET.fromstring(panels([one] * 4, "a < b & c", "ε = 1 (end-to-end)"))


def test_bands_hold_the_truth_about_as_often_as_they_say() -> None:
    """Tables drawn from one of the priors, seen through noise of known size."""
    rng, kernels, held = np.random.default_rng(0), prior_kernels(12, True, False), list[float]()
    for _ in range(200):
        truth = rng.multivariate_normal(np.zeros(12), kernels[rng.integers(len(kernels))] + 1e-12 * np.eye(12))
        precision = np.full(12, 1 / rng.uniform(0.1, 0.5) ** 2)
        seen = truth + rng.normal(0, 1 / np.sqrt(precision))
        table = smooth(precision[None], (precision * seen)[None], kernels)[0]
        held += list(np.abs(table - truth) <= 1.96 * doubt(precision, precision * seen, kernels, table))
    assert 0.92 <= np.mean(held) <= 0.99
