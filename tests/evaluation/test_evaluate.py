"""`evaluate` and `attack` on finished runs: every kind of outcome, what is refused, and what stays inside."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.cohort import Cohort
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, RunFolderError, SettingsError
from distcondense.evaluation.findings import Findings
from distcondense.evaluation.leaks import decide
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Section
from distcondense.evaluation.shortfall import shortfall, shortfall_of_sets
from distcondense.evaluation.suite import ATTACKS, LIKENESS, SECTIONS, UTILITY, EvaluationRequest
from distcondense.privacy.statement import Privacy
from distcondense.report.internal_page import internal_page
from distcondense.report.terminal import Console
from tests.shell import Call, files

FEATURES = (
    Column("age", "integer", low=18, high=99, missing="indicator"),
    Column("sex", "categorical", categories=("F", "M")),
    Column("ward", "categorical", categories=("a", "b", "c")),
    Column("crp", "continuous", low=0, high=300, decimals=4),
)
OUTCOMES = {
    "two": ({"target": "ill"}, (Column("ill", "binary", categories=(0, 1)),)),
    "three": ({"target": "stage"}, (Column("stage", "categorical", categories=("I", "II", "III")),)),
    "number": ({"target": "days"}, (Column("days", "continuous", low=0, high=60, decimals=1),)),
    "time": (
        {"time": "months", "event": "died"},
        (Column("months", "continuous", low=0.1, high=60), Column("died", "binary", categories=(0, 1))),
    ),
}
CANARY = 77.7137  # a value that no other patient has, that no bin edge is, and that no draw is likely to hit


def ward(rows: int = 900, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, crp = rng.integers(18, 100, rows), rng.gamma(2, 20, rows).clip(0, 300).round(1)
    crp[0] = CANARY
    sex, place = rng.choice(["F", "M"], rows), rng.choice(["a", "b", "c"], rows, p=[0.5, 0.3, 0.2])
    risk = (age - 58) / 12 + (crp - 40) / 40 + (sex == "M") * 0.5
    life, left = rng.exponential(24 * np.exp(-0.6 * risk)), rng.uniform(5, 60, rows)
    return pd.DataFrame(
        {
            "age": pd.array(np.where(rng.random(rows) < 0.1, None, age), "Int64"),
            "sex": sex,
            "ward": place,
            "crp": crp,
            "ill": (rng.random(rows) < 1 / (1 + np.exp(-risk))).astype(int),
            "stage": np.array(["I", "II", "III"])[np.digitize(risk + rng.logistic(size=rows), [-0.7, 1.0])],
            "days": np.clip(10 + 5 * risk + rng.normal(0, 3, rows), 0, 60).round(1),
            "months": np.minimum(life, left).clip(0.1, 60),
            "died": (life <= left).astype(int),
        }
    )


def cohort_of(kind: str, frame: pd.DataFrame | None = None) -> Cohort:
    goal, columns = OUTCOMES[kind]
    frame = ward() if frame is None else frame
    names = [column.name for column in (*FEATURES, *columns)]
    return Cohort.from_frame(frame[names], schema=Schema((*FEATURES, *columns)), **goal)


METHODS: dict[str, dict[str, Any]] = {
    "private": {"epsilon": 8.0, "ipc": 40},
    "published": {"method": "published", "noise": False, "ipc": 40, "steps": 20, "evaluate_every": 10},
}


@pytest.mark.usefixtures("quick_placement", "fewer")
@pytest.mark.parametrize(
    ("kind", "method"),
    [("two", "private"), ("two", "published"), ("three", "private"), ("number", "private"), ("time", "private")],
)
def test_every_part_has_an_answer_for_every_kind_of_outcome(kind: str, method: str, tmp_path: Path) -> None:
    cohort = cohort_of(kind)
    dc.condense(cohort, threads=1, out=tmp_path / "run", **METHODS[method])
    before = digests(tmp_path / "run/release")
    sites = {"elsewhere": cohort_of(kind, ward(400, seed=5))}
    (found,) = dc.evaluate_run(tmp_path / "run", cohort, parts=tuple(SECTIONS), external=sites, threads=1).values()
    assert [part.name for part in found.parts if part.name in SECTIONS] == list(SECTIONS)
    assert {part.name for part in found.parts} - set(SECTIONS) == ({"course"} if method == "published" else set())
    scored = {part.name for part in found.parts if part.scores}
    assert {"utility", "sites", "fidelity", "likeness", "composite", "copies", *ATTACKS} - {"lira"} <= scored
    for part in found.parts:
        assert not any(note.startswith("could not be measured") for note in part.notes), (part.name, part.notes)
        assert part.scores or part.notes or part.figures, part.name
        for score in part.scores:
            assert score.measure in part.titles or score.measure in cohort.outcome.kind.measures, score.measure
            if not np.isnan(score.value) and not np.isnan(score.low):
                assert score.low <= score.value + 1e-9 <= score.high + 2e-9, score
            assert not np.isnan(score.value) or score.note, score
    text = (tmp_path / "run/internal/report.json").read_text(encoding="utf-8")
    assert json.loads(text) == found.to_dict()
    assert {key: values for key, values in values_by_key(json.loads(text)).items() if len(values) > 1} == {}
    assert again(json.loads(text)["parts"]) == list(found.to_dict()["parts"])
    assert "<!doctype html>" in (tmp_path / "run/internal/report.html").read_text(encoding="utf-8")
    assert not re.search(r"(?<![\d.])77\.713[67]", text)  # a patient's own value; the page is a view of this
    assert digests(tmp_path / "run/release") == before  # nothing of it is released


def values_by_key(report: dict[str, Any]) -> dict[tuple[str, ...], set[float | None]]:
    """Every score of a report: what was measured, of which model, trained and tested on what → its values."""
    names = ("measure", "student", "trained_on", "labels", "tested_on", "group")
    values: dict[tuple[str, ...], set[float | None]] = {}
    for score in [*report["quick"], *(score for part in report["parts"] for score in part["scores"])]:
        values.setdefault(tuple(score[name] for name in names), set()).add(score["value"])
    return values


@pytest.mark.usefixtures("quick_placement", "fewer")
def test_a_later_evaluation_keeps_the_runs_own_numbers_and_another_seed_starts_anew(tmp_path: Path) -> None:
    cohort, run = cohort_of("two"), tmp_path / "run"
    dc.condense(cohort, threads=1, out=run, seed=3, **METHODS["private"])
    first = json.loads((run / "internal/run.json").read_text())["scores"]
    dc.evaluate_run(run, cohort, parts=("utility",), threads=1)
    sites = {"elsewhere": cohort_of("two", ward(400, seed=5))}
    dc.evaluate_run(run, cohort, parts=("subgroups",), external=sites, threads=1)
    report = json.loads((run / "internal/report.json").read_text())
    assert report["quick"] == first
    assert [part["name"] for part in report["parts"]] == ["utility", "subgroups", "sites"]
    assert {key: values for key, values in values_by_key(report).items() if len(values) > 1} == {}
    again = {(s["measure"], s["trained_on"]): s["value"] for s in first if s["trained_on"] != "reference"}
    for part in (report["parts"][0], report["parts"][2]):
        own = [s for s in part["scores"] if s["tested_on"] == "held out" and s["student"] == "xgb"]
        kept = {(s["measure"], s["trained_on"]): s["value"] for s in own if s["labels"] != "plain"}
        assert kept == again
    dc.evaluate_run(run, cohort, parts=("copies",), seed=4, threads=1)
    report = json.loads((run / "internal/report.json").read_text())
    assert [part["name"] for part in report["parts"]] == ["copies"]
    assert report["quick"] != first


def again(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [Section.from_dict(part).to_dict() for part in parts]


def digests(room: Path) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in files(room).items()}


@pytest.fixture
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller students and attackers: what is measured stays the same."""
    from distcondense.evaluation.attacks import attribute, distance, membership
    from distcondense.evaluation.fidelity import landscape, row_similarity
    from distcondense.models import learners
    from distcondense.outcomes import continuous, multiclass

    monkeypatch.setattr(learners, "ROUNDS", 15)
    monkeypatch.setattr(row_similarity, "ROUNDS", 15)
    monkeypatch.setattr(landscape, "STEPS", 250)
    monkeypatch.setitem(attribute.TREES, "n_estimators", 15)
    for module in (distance, membership, continuous, multiclass):
        monkeypatch.setattr(module, "TREES", 15)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from files, as the command line makes it."""
    from tests.conftest import quicken

    room = tmp_path_factory.mktemp("made")
    goal, columns = OUTCOMES["two"]
    names = [column.name for column in (*FEATURES, *columns)]
    ward()[names].to_csv(room / "ward.csv", index=False)
    schema = Schema((*FEATURES, *columns))
    (room / "schema.toml").write_text(schema.to_toml())
    with pytest.MonkeyPatch.context() as patch:
        quicken(patch)
        cohort = Cohort.from_file(room / "ward.csv", schema=schema, **goal)
        dc.condense(cohort, threads=1, out=room / "run", **METHODS["private"])
    return room


# -- the command line -------------------------------------------------------------------------------------------------


def test_evaluate_reads_the_table_as_the_run_did_and_keeps_what_was_measured_before(made: Path, call: Call) -> None:
    answer = call("evaluate", made / "run", "--data", made / "ward.csv", "--parts", "copies", "--threads", "1")
    assert answer.code == 0, answer.err
    assert "end-to-end" in answer.out
    assert "condensed rows reach" in " ".join(answer.out.split()) or "reaches AUROC" in " ".join(answer.out.split())
    answer = call("evaluate", made / "run", "--data", made / "ward.csv", "--parts", "curves", "--json")
    assert answer.code == 0, answer.err
    assert [part["name"] for part in json.loads(answer.out)["parts"]] == ["curves", "copies"]
    page = (made / "run/internal/report.html").read_text(encoding="utf-8")
    assert "not to be released" in page or "not for release" in page
    assert "AUROC" in page


def test_attack_takes_a_run_or_the_word_audit(made: Path, call: Call) -> None:
    answer = call("attack", made / "run", "--data", made / "ward.csv", "--only", "mechanism", "--threads", "1")
    assert answer.code == (4 if "A LEAK WAS FOUND" in answer.out else 0), answer.err  # at ε = 8 there may be one
    assert "audit" in call("attack", "--help").out
    assert call("attack", "audit", "--help").code == 0
    found = json.loads((made / "run/internal/report.json").read_text())
    assert {"copies", "mechanism"} <= {part["name"] for part in found["parts"]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.iloc[:-1], "must be the one that the run condensed"),
        (lambda frame: frame.assign(crp=frame["crp"].round(0)), "must be the one that the run condensed"),
        (lambda frame: frame.drop(columns="sex"), "must have every column of the schema"),
        (lambda frame: frame.drop(columns="ill"), "must be in the table"),
    ],
    ids=["fewer rows", "other values", "no sex", "no outcome"],
)
def test_another_table_is_refused(made: Path, call: Call, tmp_path: Path, change: Any, words: str) -> None:
    change(pd.read_csv(made / "ward.csv", dtype={"age": "Int64"})).to_csv(tmp_path / "other.csv", index=False)
    before = digests(made / "run")
    answer = call("evaluate", made / "run", "--data", tmp_path / "other.csv")
    assert answer.code == 2
    assert words in " ".join(answer.err.split())
    assert "Fix:" in answer.err
    assert digests(made / "run") == before


def test_a_site_with_unseen_categories_is_refused_without_saying_them(made: Path, call: Call, tmp_path: Path) -> None:
    frame = pd.read_csv(made / "ward.csv", dtype={"age": "Int64"})
    frame.loc[3, "ward"] = "secret-ward"
    frame.to_csv(tmp_path / "site.csv", index=False)
    answer = call(
        "evaluate", made / "run", "--data", made / "ward.csv", "--external", tmp_path / "site.csv", "--parts", "copies"
    )
    assert answer.code == 2
    assert "site site.csv: must have the columns, units and categories" in " ".join(answer.err.split())
    assert "'ward'" in answer.err
    assert "secret" not in answer.err


def test_folders_parts_and_records_that_are_not_there(made: Path, call: Call, tmp_path: Path) -> None:
    answer = call("evaluate", tmp_path, "--data", made / "ward.csv")
    assert answer.code == 2
    assert "must hold a finished run" in answer.err
    answer = call("evaluate", made / "run", "--data", made / "ward.csv", "--parts", "fidelty")
    assert answer.code == 2
    assert "say fidelity" in answer.err
    assert call("attack", made / "run", "--data", "nowhere.csv").code == 2
    with pytest.raises(RunFolderError, match="finished run"):
        dc.evaluate_run(tmp_path, cohort_of("two"))
    with pytest.raises(SettingsError, match="must be among"):
        EvaluationRequest(("nothing",))
    with pytest.raises(CohortError, match="the one that the run condensed"):
        dc.evaluate_run(made / "run", cohort_of("two", ward(300)))


@pytest.mark.usefixtures("quick_placement")
def test_a_run_that_held_nobody_out_says_so(tmp_path: Path) -> None:
    cohort = cohort_of("two")
    dc.condense(cohort, threads=1, out=tmp_path / "run", holdout=0.0, **METHODS["private"])
    (found,) = dc.evaluate_run(tmp_path / "run", cohort, threads=1).values()
    assert "nobody was held out" in found.note
    assert found.scores == []
    assert "nobody was held out" in (tmp_path / "run/internal/report.html").read_text()


# -- what the page says -----------------------------------------------------------------------------------------------


def attack(luck: float | None, name: str = "membership", ceiling: float | None = None, scores: int = 1) -> Section:
    """An attack whose first score luck reaches so often; the others are where luck puts them."""
    first = Score("auroc", "condensed", "x", 0.9, 0.85, 0.95, 400, True, power=0.57, ceiling=ceiling, luck=luck)
    others = (replace(first, value=0.5, low=0.45, high=0.55, luck=0.5),) * (scores - 1)
    return Section(name, f"Attack {name}", scores=(first, *others) if luck is not None else ())


def verdict(*parts: Section, privacy: Privacy | None = None) -> str:
    none = Privacy("none", "toy", None, None, "none", "none")
    return " ".join(Findings({}, privacy or none, parts=parts).verdict())


def test_the_verdict_on_attacks_says_what_was_found_and_at_which_power() -> None:
    assert "No leak found by these attacks at this power" in verdict(attack(0.3))
    assert "A LEAK WAS FOUND by 1 of 1" in verdict(attack(1e-4))
    assert "ABOVE WHAT THE GUARANTEE ALLOWS" in verdict(attack(1e-4, ceiling=0.6))
    assert "safe" not in verdict(attack(0.3))


def test_one_decision_is_made_over_all_scores_of_all_attacks() -> None:
    """What would be a leak among 26 scores is none among 76; the page counts them, and Holm lets the next be tried."""
    likely, others = attack(0.001, scores=26), attack(0.4, "distance", scores=50)
    assert decide([likely]).leaks
    assert not decide([likely, others])
    assert "No leak found" in verdict(likely, others)
    assert "2 groups of attacks, 76 scores" in verdict(likely, others)
    assert decide([attack(0.02), attack(0.03, "distance")]).leaks.keys() == {"membership", "distance"}
    assert not decide([attack(0.03), attack(0.03, "distance")])


def test_an_attack_that_was_not_tried_is_never_told_as_no_leak() -> None:
    untried = attack(None, "lira")
    assert "No leak" not in verdict(untried)
    assert "Not tried, so neither found nor ruled out: Attack lira" in verdict(untried)
    assert "1 group of attacks, 1 scores" in verdict(attack(0.3), untried)
    findings = Findings({"name": "x"}, Privacy("none", "toy", None, None, "none", "none"), parts=(untried,))
    html = internal_page(findings.to_dict())
    assert "not tried" in html
    assert "no leak found at this power</span>" not in html


@pytest.mark.parametrize(("luck", "code"), [(1e-6, 4), (0.3, 0)])
def test_attack_alone_exits_by_what_it_found(
    made: Path, call: Call, monkeypatch: pytest.MonkeyPatch, luck: float, code: int
) -> None:
    findings = Findings({}, Privacy("none", "toy", None, None, "none", "none"), parts=(attack(luck),))
    monkeypatch.setattr("distcondense.api.evaluate_run", lambda *_, **__: {80: findings})
    how = [made / "run", "--data", made / "ward.csv"]
    assert call("attack", *how).code == code
    assert call("attack", *how, "--json").code == code
    assert call("evaluate", *how, "--attacks").code == 0
    assert "4 where one was" in call("attack", "a-run", "--help").out


def test_a_leak_comes_with_what_to_do_now() -> None:
    private = Privacy("end-to-end", "toy", 1.0, 1e-5, "one row", "toy")
    assert "another --seed" in verdict(attack(1e-4))
    assert "No theorem bounds" in verdict(attack(1e-4))
    assert "Nothing is above what ε = 1 (end-to-end" in verdict(attack(1e-4), privacy=private)


def test_every_part_is_of_one_group_and_stands_in_the_documentation() -> None:
    assert set(SECTIONS) == {*UTILITY, *LIKENESS, *ATTACKS}
    text = (Path(__file__).parents[2] / "docs/evaluation.md").read_text(encoding="utf-8")
    for name in SECTIONS:
        assert f"`{name}`" in text, name


# -- a verdict that says no --------------------------------------------------------------------------------------------


def score_of(trained_on: str, value: float, measure: str = "auroc") -> Score:
    return Score(measure, trained_on, "held out", value, value - 0.05, value + 0.05, 400, True, rows=100)


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([score_of("condensed", 0.71), score_of("random_real", 0.70)], ""),
        ([score_of("condensed", 0.69), score_of("random_real", 0.70)], "below 0.700 of models of as many random real"),
        ([score_of("condensed", 0.69)], ""),
        ([score_of("condensed", 0.9), score_of("condensed", 0.54, "balanced_accuracy")], "above a guess's 0.500"),
        ([score_of("condensed", 0.9), score_of("condensed", 0.56, "balanced_accuracy")], ""),
        ([score_of("condensed", float("nan")), score_of("random_real", 0.70)], ""),
    ],
)
def test_rows_below_the_floor_or_near_a_guess_are_not_good_enough(scores: list[Score], words: str) -> None:
    said = shortfall(scores, {"labels": ["no", "yes"]})
    assert (words in said) if words else not said
    assert not said or said.startswith("NOT GOOD ENOUGH: ")
    found = Findings(
        {"outcome": {"labels": ["no", "yes"]}}, Privacy("none", "toy", None, None, "none", "none"), tuple(scores)
    )
    assert found.to_dict()["poor"] is bool(said)
    assert (found.verdict()[0] == said) is bool(said)  # the first line of page and terminal
    page = internal_page({**found.to_dict(), "run": {"name": "run"}})
    assert ('class="lead bad-tag"' in page) is bool(said)
    of_two = {
        "data": {"outcome": {"labels": ["no", "yes"]}},
        "sets": [{"scores": []}, {"scores": [s.to_dict() for s in scores]}],
    }
    assert shortfall_of_sets(of_two) == said


def test_a_guess_among_several_classes_is_right_less_often() -> None:
    right = score_of("condensed", 0.3, "balanced_accuracy")
    scores = [score_of("condensed", 0.7, "macro_auroc"), right]
    assert not shortfall(scores, {"labels": ["a", "b", "c", "d", "e"]})
    assert "above a guess's 0.333" in shortfall(scores, {"labels": ["a", "b", "c"]})
    assert not shortfall(scores, {})


def test_the_terminal_says_no_in_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    scores = [score_of("condensed", 0.6), score_of("random_real", 0.7), score_of("full", 0.8)]
    record = {"rows": 100, "scores": [one.to_dict() for one in scores], "data": {"outcome": {"labels": [0, 1]}}}
    none = Privacy("none", "toy", None, None, "none", "none")
    Console().verdict(record, none)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("NOT GOOD ENOUGH: models of the 100 condensed rows reach AUROC 0.600, below 0.700")
    assert second.startswith("condensed 100 rows")
