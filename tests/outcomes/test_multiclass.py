"""Outcomes of several classes: reading, the softmax objective and its norm, the private path from table to release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import distcondense as dc
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.outcome import Goal, Outcome
from distcondense.data.persons import Stratified
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, ModelError, SchemaError, SettingsError
from distcondense.evaluation.score import CONDENSED, FULL, REFERENCE, Score, find
from distcondense.methods.private import METHOD
from distcondense.methods.private.options import PrivateOptions
from distcondense.outcomes.multiclass import Multiclass, Softmax, SoftmaxLoss, softmax
from distcondense.outcomes.private_side import GroupCounts, NewtonStep
from distcondense.privacy.contributions import SCORE_MAX
from distcondense.privacy.verify import verify
from tests import naive
from tests.conftest import SMALL_SCHEMA, small_frame
from tests.tiny import CANARIES, NUMBER, TEXT

GRADES = ("mild", "middle", "severe")
GRADE = Column("grade", "categorical", categories=GRADES)
SCHEMA = Schema((*SMALL_SCHEMA.columns, GRADE))
ASIDE = ["died", "months", "event"]


def graded(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """The small table with a grade that age, CRP and stage tell, the highest one rare."""
    frame = small_frame(rows, seed)
    stage = frame["stage"].map({"I": -0.7, "II": 0.0, "III": 1.0})
    risk = (frame["age"] - 55) / 15 + (frame["crp"] - 20) / 20 + stage
    risk += np.random.default_rng([seed, 1]).normal(0, 0.7, rows)
    return frame.assign(grade=np.array(GRADES)[np.digitize(risk, [0.0, 2.0])])


def cohort_of(frame: pd.DataFrame, schema: Schema | None = SCHEMA, **more: Any) -> Cohort:
    return Cohort.from_frame(frame, target="grade", ignore=ASIDE, schema=schema, **more)


@pytest.fixture(scope="module")
def large() -> Cohort:
    return cohort_of(graded(1500))


def no_canary(error: Any) -> None:
    assert not any(canary in str(error.value) for canary in CANARIES)


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["frame", "csv", "parquet"])
def test_a_declared_outcome_has_its_schema_s_classes_in_its_schema_s_order(ending: str, tmp_path: Path) -> None:
    frame, path = graded(), tmp_path / f"t.{ending}"
    if ending == "frame":
        cohort = cohort_of(frame)
    else:
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
        cohort = Cohort.from_file(path, target="grade", ignore=ASIDE, schema=SCHEMA)
    kind = cohort.outcome.kind
    assert (kind.name, kind.labels, kind.labels_public) == ("multiclass", GRADES, True)
    assert [GRADES[code] for code in cohort.outcome["label"]] == frame["grade"].tolist()
    assert "grade" not in cohort.schema


def test_classes_that_are_numbers_read_the_same_from_every_cell(tmp_path: Path) -> None:
    schema = Schema((Column("x", "continuous"), Column("grade", "categorical", categories=(1, 2, 3))))
    path = tmp_path / "t.csv"
    path.write_text("x,grade\n" + "1.0,1\n2.0,2.0\n3.0,03\n" * 4)
    assert Cohort.from_file(path, target="grade", schema=schema).outcome["label"].tolist() == [0, 1, 2] * 4
    for values in ([1, 2, 3], [1.0, 2.0, 3.0], ["1", "2", "3"]):
        frame = pd.DataFrame({"x": np.arange(3.0), "grade": values})
        assert Cohort.from_frame(frame, target="grade", schema=schema).outcome["label"].tolist() == [0, 1, 2]


def test_an_undeclared_outcome_must_be_named_as_several_classes_and_its_classes_are_not_public() -> None:
    frame = graded()
    with pytest.raises(
        CohortError, match=r"'grade': an outcome must have two values, or be declared .*Found 3 distinct"
    ):
        cohort_of(frame, SMALL_SCHEMA)
    cohort = cohort_of(frame, SMALL_SCHEMA, kind="multiclass")
    assert cohort.outcome.kind.labels == tuple(sorted(GRADES))
    assert not cohort.outcome.kind.labels_public
    before = Facts.from_goal(Goal.from_roles(target="grade", kind="multiclass"), SMALL_SCHEMA)
    for facts in (before, cohort.facts):
        with pytest.raises(SettingsError, match=r"outcome 'grade': .*read off the rows"):
            METHOD.prepare(facts, PrivateOptions())
        METHOD.prepare(facts, PrivateOptions(trust_inferred_schema=True))


def test_twenty_one_classes_and_two_are_refused_before_a_row_is_read() -> None:
    for count in (2, 21):
        schema = Schema((Column("x", "continuous"), Column("grade", "categorical", categories=tuple(range(count)))))
        with pytest.raises(SchemaError, match=f"'grade': must have 3 to 20 classes. Found {count} declared. Fix"):
            Facts.from_goal(Goal.from_roles(target="grade"), schema)
    legal = Schema((Column("x", "continuous"), Column("grade", "categorical", categories=tuple(range(20)))))
    assert len(Facts.from_goal(Goal.from_roles(target="grade"), legal).kind.labels) == 20


@pytest.mark.parametrize("count", [1, 2, 21])
def test_undeclared_classes_of_a_wrong_number_are_counted_and_not_shown(count: int) -> None:
    frame = graded().assign(grade=[f"{TEXT} {i % count}" for i in range(300)])
    with pytest.raises(CohortError, match=f"'grade': must have 3 to 20 classes. Found {count} distinct") as error:
        cohort_of(frame, SMALL_SCHEMA, kind="multiclass")
    no_canary(error)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (TEXT, r"'grade': must hold the schema's classes only. Found 2 rows, first at row 8. Fix: add the"),
        (NUMBER, r"'grade': must hold the schema's classes only. Found 2 rows"),
        (None, r"'grade': must be known .*Found missing values in 2 rows, first at row 8"),
        ([TEXT], r"'grade': must hold texts or numbers. Found nested values in 2 rows"),
    ],
)
def test_a_cell_that_is_no_class_is_refused_and_never_shown(value: Any, says: str) -> None:
    frame = graded()
    for row in (7, 11):
        frame.at[row, "grade"] = value
    with pytest.raises(CohortError, match=says) as error:
        cohort_of(frame)
    no_canary(error)


def test_a_table_with_one_class_is_read_and_only_splitting_it_says_so() -> None:
    """Reading must not raise: on the private path the error itself would tell something about patients."""
    cohort = cohort_of(graded().assign(grade="mild"))
    assert cohort.outcome.kind.labels == GRADES
    with pytest.raises(CohortError, match=r"'grade': must have two classes or more. Found one class only"):
        Stratified(0).split(cohort)


def test_a_split_has_its_share_of_every_class() -> None:
    cohort = cohort_of(graded(1000))
    split, label = Stratified(3).split(cohort), cohort.outcome["label"]
    for k in range(3):
        held = [np.count_nonzero(label[rows] == k) for rows in (split.train, split.validation, split.test)]
        assert np.allclose(held, np.array([0.7, 0.1, 0.2]) * np.count_nonzero(label == k), atol=1)


# -- the objective ----------------------------------------------------------------------------------------------------


def contributions(scores: Any, label: Any) -> np.ndarray:
    """(n, 2K) what each row adds."""
    loss = SoftmaxLoss(scores.shape[1])
    target = loss.prepare({"label": np.asarray(label)})
    return np.stack(loss.contributions(np.asarray(scores, np.float64), target), axis=1)


@settings(max_examples=100)
@given(
    st.integers(3, 20).flatmap(
        lambda k: st.tuples(
            hnp.arrays(np.float64, (40, k), elements=st.floats(-100, 100) | st.sampled_from([-1e300, 1e300, 0.0])),
            hnp.arrays(np.int64, 40, elements=st.integers(0, k - 1)),
        )
    )
)
def test_no_row_adds_a_vector_longer_than_1(case: tuple[np.ndarray, np.ndarray]) -> None:
    """4,000 rows (p, y), most of them at or near the corners of the simplex."""
    found = contributions(*case)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found, axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize("classes", [3, 4, 7, 20])
def test_neither_does_one_anywhere_in_the_simplex(classes: int) -> None:
    """Probabilities from flat to one-hot, every label: thousands of each, the corners and the edges among them."""
    rng = np.random.default_rng(classes)
    p = np.concatenate([rng.dirichlet(np.full(classes, a), 1000) for a in (0.02, 0.3, 1.0, 30.0)])
    corners = np.eye(classes)
    edges = (corners[:, None] + corners[None]).reshape(-1, classes) / 2
    p = np.maximum(np.concatenate([p, corners, edges]), np.exp(-2 * SCORE_MAX))
    longest = max(
        float(np.linalg.norm(contributions(np.log(p), np.full(len(p), y)), axis=1).max()) for y in range(classes)
    )
    assert 0.9 < longest <= 1 + 1e-12  # a bound that nobody comes near would waste the budget


@given(hnp.arrays(np.float64, (5, 4), elements=st.floats(-4, 4)), hnp.arrays(np.int64, 5, elements=st.integers(0, 3)))
def test_what_a_row_adds_is_the_slope_and_the_curvature_of_its_loss(scores: np.ndarray, label: np.ndarray) -> None:
    """Differences of −log P(y), by every score; scaled, and scaled down together where that is longer than 1."""
    found, scales, step = contributions(scores, label), np.array(SoftmaxLoss(4).scales), 1e-4
    for row, y, said in zip(scores, label, found, strict=True):
        there = naive.softmax_loss(row, y)
        slopes, curvatures = [], []
        for k in range(4):
            up, down = (naive.softmax_loss(row + sign * step * np.eye(4)[k], y) for sign in (1, -1))
            slopes.append((up - down) / (2 * step))
            curvatures.append((up - 2 * there + down) / step**2)
        expected = scales * np.array([*slopes, *curvatures])
        assert said == pytest.approx(expected / max(1.0, np.linalg.norm(expected)), abs=1e-5)


def test_a_label_out_of_range_is_moved_to_the_nearest_class_without_a_word() -> None:
    loss, scores = SoftmaxLoss(3), np.zeros((4, 3))
    target = loss.prepare({"label": np.array([-5, 0, 2, 99])})
    assert target["label"].tolist() == [0, 0, 2, 2]
    assert np.isfinite(np.stack(loss.contributions(scores, target))).all()


def side_of_three() -> Softmax:
    return Softmax(Multiclass(("y",), ("a", "b", "c")), SoftmaxLoss(3))


def histogram_says(hessian: np.ndarray) -> NewtonStep:
    return NewtonStep(*(np.zeros_like(hessian) for _ in range(3)), hessian)


def test_noise_is_not_taken_for_rows_of_a_rare_class_and_what_stands_out_is_believed() -> None:
    side, rng = side_of_three(), np.random.default_rng(0)
    truth = np.stack([np.full(60, 0.5), np.linspace(50, 900, 60), np.full(60, 400.0)])
    noisy = truth + rng.normal(0, 30, truth.shape)
    said = side.hessian(noisy, histogram_says(truth / [[1.0], [0.8], [0.8]]), 30.0)
    assert np.maximum(noisy[0], 0).mean() > 10  # a plain clip would see rows where there are none
    assert said[0].mean() < 2
    assert np.abs(said[1:] - truth[1:]).mean() < 0.5 * np.abs(noisy[1:] - truth[1:]).mean()
    other = truth * np.where(np.arange(60) % 2, 1.6, 0.4)  # cells differ from what histograms lead to expect
    kept = side.hessian(other, histogram_says(truth), 0.01)
    assert np.allclose(kept[1:], other[1:], rtol=0.01)
    assert (side.hessian(noisy, None, 30.0) == np.maximum(noisy, 0)).all()


def test_a_class_of_which_a_column_says_nothing_is_as_likely_in_all_its_cells() -> None:
    side, share = side_of_three(), np.array([0.7, 0.299, 0.001])
    table = np.stack([np.linspace(-2, 2, 8), np.zeros(8), np.zeros(8)])
    settled = side.settled(table, {"counted": GroupCounts(1000 * share, 1.0)})
    assert np.allclose(share @ np.exp(settled), 1)
    assert np.allclose(softmax(np.log(share) + settled.T), softmax(np.log(share) + table.T))
    nothing = settled.copy()
    nothing[2] = 0.0  # what the prior draws a class to that nobody has told about
    assert np.allclose(softmax(np.log(share) + nothing.T)[:, 2], share[2], rtol=0.01)


@given(hnp.arrays(np.float64, (6, 5), elements=st.floats(-1e3, 1e3)))
def test_softmax_gives_probabilities_at_any_margin(margin: np.ndarray) -> None:
    p = softmax(margin)
    assert p.sum(1) == pytest.approx(np.ones(6))
    assert (p > 0).all()
    assert (p.max(1) == p[np.arange(6), margin.argmax(1)]).all()


# -- learners ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["xgb", "forest", "logistic"])
def test_learners_give_every_class_a_probability_from_hard_and_soft_labels(name: str) -> None:
    cohort = cohort_of(graded(600))
    rows = dc.design(cohort).to_numpy(np.float32)
    rows = (rows - rows.mean(0)) / rows.std(0)
    outcome, kind = cohort.outcome, cohort.outcome.kind
    soft = 0.9 * np.eye(3)[outcome["label"]] + 0.1 / 3
    for how in ({}, {"soft": soft}, {"soft": soft, "weight": np.linspace(0.5, 2, 600)}):
        model = kind.learner(name).fit(rows, outcome, seed=0, threads=1, **how)
        scores = model.scores(rows)
        assert scores.shape == (600, 3)
        assert model.link == "probabilities"
        assert kind.score(model.link, scores, outcome) > 0.85
    few = outcome.take(np.flatnonzero(outcome["label"] != 1)[:40])  # a class that no row has keeps its column
    assert kind.learner(name).fit(rows[:40], few, seed=0, threads=1).scores(rows[:9]).shape == (9, 3)


# -- the private path -------------------------------------------------------------------------------------------------


def quick(cohort: Cohort, **more: Any) -> dc.Result:
    return dc.condense(cohort, **{"ipc": 12, "epsilon": 6.0, "threads": 1, **more})


@pytest.mark.usefixtures("quick_placement")
def test_a_release_has_rows_of_every_class_with_probabilities_that_add_up(large: Cohort, tmp_path: Path) -> None:
    result = quick(large, out=tmp_path / "run")
    frame, own = result.frame, [f"distcondense_risk_{grade}" for grade in GRADES]
    assert list(frame) == [*SMALL_SCHEMA.names, "grade", *own, "distcondense_weight"]
    assert frame["grade"].value_counts().to_dict() == dict.fromkeys(GRADES, 12)
    assert frame[own].sum(axis=1).to_numpy() == pytest.approx(np.ones(36))
    assert frame[own].min().min() > 0
    assert frame["distcondense_weight"].sum() == pytest.approx(result.privacy.parameters["rows_noisy_estimate"], abs=1)
    assert len(result.privacy.parameters["group_shares_noisy_estimate"]) == 3
    assert sum(result.privacy.parameters["group_shares_noisy_estimate"]) == pytest.approx(1, abs=1e-3)
    assert verify(tmp_path / "run").holds
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "run/release/condensed.parquet"), frame)
    assert (tmp_path / "run/release/report.html").exists()

    scores = [Score.from_dict(score) for score in result.internal["scores"]]
    for way in ("full", "reference", "condensed", "random_real"):
        for measure in ("macro_auroc", "balanced_accuracy", "macro_f1"):
            score = find(scores, way, measure)
            assert score is not None
            assert 0 <= score.low <= score.value <= score.high <= 1
    private, full, condensed = (find(scores, way, "macro_auroc") for way in (REFERENCE, FULL, CONDENSED))
    assert private is not None
    assert full is not None
    assert condensed is not None
    assert private.value > 0.75
    assert condensed.value > 0.65


@pytest.mark.usefixtures("quick_placement")
@pytest.mark.parametrize("reference", ["forest", "logistic"])
def test_rows_are_for_the_student_that_was_named(large: Cohort, reference: str) -> None:
    result = quick(large, reference=reference)
    assert result.internal["student"] == reference
    again = dc.evaluate(large, result, threads=1)
    then = [Score.from_dict(score) for score in result.internal["scores"]]
    for way in (FULL, CONDENSED):
        one, other = find(again, way, "macro_auroc"), find(then, way, "macro_auroc")
        assert one is not None
        assert other is not None
        assert one.value == pytest.approx(other.value, abs=0.02)


@pytest.mark.usefixtures("quick_placement")
def test_a_release_trains_models_from_its_plain_labels_and_from_probabilities(large: Cohort) -> None:
    from sklearn.linear_model import LogisticRegression

    result = quick(large, holdout=0.0)
    X, y, weight = result.training_data()
    assert len(X) == len(y) == len(weight) == 36
    assert y.tolist() == result.frame["grade"].tolist()  # rows as they are
    assert weight.sum() == pytest.approx(36)  # weights have mean 1 a row
    shares = result.privacy.parameters["group_shares_noisy_estimate"]
    assert [np.average(y == grade, weights=weight) for grade in GRADES] == pytest.approx(shares, abs=1e-3)
    fitted = LogisticRegression(max_iter=5000).fit(X, y, sample_weight=weight)
    assert list(fitted.classes_) == sorted(GRADES)
    soft_X, soft, persons = result.soft_data()
    assert soft.shape == (36, 3)
    assert soft.sum(1) == pytest.approx(np.ones(36))
    assert persons.sum() == pytest.approx(result.privacy.parameters["rows_noisy_estimate"], abs=1)
    assert list(soft_X) == list(X)


@pytest.mark.usefixtures("quick_placement")
@pytest.mark.parametrize("seed", range(3))
def test_a_class_of_one_patient_raises_nothing(seed: int, tmp_path: Path) -> None:
    """Whoever is left out by a coin, an error would tell that the class is all but empty."""
    frame = graded(700, seed)
    frame.loc[frame["grade"] == "severe", "grade"] = "middle"
    frame.loc[5, "grade"] = "severe"
    result = quick(cohort_of(frame), out=tmp_path / "run", ipc=5)
    assert not result.privacy.answer
    assert result.frame["grade"].value_counts().to_dict() == dict.fromkeys(GRADES, 5)


@pytest.mark.usefixtures("quick_placement")
@pytest.mark.parametrize("grade", GRADES)
def test_a_table_of_one_class_raises_nothing_and_ends_without_an_answer(grade: str, tmp_path: Path) -> None:
    result = quick(cohort_of(graded(300).assign(grade=grade)), out=tmp_path / "run")
    assert len(result.frame) == 0
    assert {"grade", "distcondense_risk_mild", "distcondense_weight"} <= set(result.frame)
    assert "NO ANSWER" in result.privacy.paragraph()
    assert verify(tmp_path / "run").holds


@pytest.mark.usefixtures("quick_placement")
def test_a_person_with_many_rows_is_one_person() -> None:
    frame = graded(900).assign(who=np.arange(900) // 3)
    privacy = quick(cohort_of(frame, person_id="who"), rows_per_person=2).privacy
    assert "at most 2 are read" in privacy.neighbouring
    assert privacy.parameters["rows_noisy_estimate"] < 700


def test_published_refuses_several_classes_before_it_reads_a_row(
    large: Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cohort, "fingerprint", lambda self: pytest.fail("patients were read"))
    with pytest.raises(SettingsError, match=r"method published: takes .* Found a multiclass outcome"):
        dc.condense(large, method="published", epsilon=2.0)


# -- PrivateModel -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted() -> dc.PrivateModel:
    frame = graded(2000)
    return dc.PrivateModel(schema=SMALL_SCHEMA, classes=GRADES, epsilon=6.0).fit(
        frame[SMALL_SCHEMA.names], frame["grade"]
    )


def test_a_private_model_gives_every_class_a_probability(fitted: dc.PrivateModel) -> None:
    fresh = graded(1500, seed=7)
    chance = fitted.predict_proba(fresh)
    assert chance.shape == (1500, 3)
    assert chance.sum(1) == pytest.approx(np.ones(1500))
    assert fitted.classes_.tolist() == list(GRADES)
    outcome = Outcome(Multiclass(("grade",), GRADES), {"label": fresh["grade"].map(GRADES.index).to_numpy()})
    assert outcome.kind.score("probabilities", chance, outcome) > 0.85
    assert (fitted.predict(fresh) == np.array(GRADES, object)[chance.argmax(1)]).all()
    assert softmax(fitted.decision_function(fresh)) == pytest.approx(chance)
    with pytest.raises(ModelError, match="kind of outcome"):
        fitted.predict_survival_function(fresh, [1.0])


def test_explanations_of_every_class_add_up_to_its_score(fitted: dc.PrivateModel) -> None:
    fresh = graded(200, seed=7)
    parts, scores = fitted.explain(fresh), fitted.decision_function(fresh)
    assert list(parts) == list(GRADES)
    assert len(fitted.base_) == 3
    for k, grade in enumerate(GRADES):
        assert list(parts[grade]) == SMALL_SCHEMA.names
        np.testing.assert_allclose(parts[grade].sum(axis=1) + fitted.base_[k], scores[:, k], atol=1e-9)
    table = fitted.tables_["stage"]
    assert list(table.columns) == list(GRADES)
    assert list(table.index) == ["I", "II", "III"]
    assert table.loc["III", "severe"] > table.loc["I", "severe"]


def test_a_cohort_and_its_columns_make_the_same_kind_of_model(large: Cohort) -> None:
    model = dc.PrivateModel(epsilon=4.0).fit(large)
    assert model.classes_.tolist() == list(GRADES)
    assert model.predict_proba(large.features).shape == (1500, 3)
    with pytest.raises(SettingsError, match="takes a cohort alone"):
        dc.PrivateModel(classes=GRADES).fit(large)
