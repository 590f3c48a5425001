"""Utility as recipients have it: every student, naive and by the manual, against libraries called by hand."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from distcondense.data.codec import Codec
from distcondense.data.persons import HoldoutSplit
from distcondense.errors import ModelError
from distcondense.evaluation import common_models, experiment, models
from distcondense.evaluation.experiment import CONDENSED_ROWS, HELD_OUT, Experiment
from distcondense.evaluation.models import learners_of, recipient
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, SOFT
from distcondense.evaluation.section import Section
from distcondense.evaluation.utility import recipients
from distcondense.models.learners import FittedModel, Learner
from distcondense.outcomes.base import Labelled
from tests import toys
from tests.evaluation_inputs import HOW, changed, cohort_of, home_of, nobody_held_out, noise_cohort, without_rows

pytestmark = pytest.mark.usefixtures("small_students")


@pytest.fixture
def small_students(monkeypatch):
    for name, value in {"TREES": 10, "PASSES": 15}.items():
        monkeypatch.setattr(common_models, name, value)


def values(part, **wanted):
    """Of scores that are like this, by student."""
    return {s.student: s.value for s in part.scores if all(getattr(s, key) == value for key, value in wanted.items())}


# -- everybody, in every way ------------------------------------------------------------------------------------------

PANELS = {
    "binary": ["xgb", "lightgbm", "forest", "svm", "logistic", "mlp"],
    "multiclass": ["xgb", "lightgbm", "forest", "svm", "logistic", "mlp"],
    "continuous": ["xgb", "lightgbm", "forest", "svm", "ridge", "mlp"],
    "survival": ["cox", "aft"],
}


@pytest.mark.parametrize("kind", HOW)
def test_every_student_is_taught_in_every_way_and_every_measure_has_an_interval(kind):
    inputs = home_of(cohort_of(kind))
    part = recipients.section(inputs, seed=0, threads=1)
    assert [student.name for student in learners_of(inputs.kind)] == PANELS[kind]
    ways = [
        (FULL, "", HELD_OUT),
        (CONDENSED, PLAIN, HELD_OUT),
        (CONDENSED, SOFT, HELD_OUT),
        (RANDOM, "", HELD_OUT),
        (FULL, "", CONDENSED_ROWS),
    ]
    found = {(s.trained_on, s.labels, s.tested_on, s.student, s.measure): s for s in part.scores}
    assert set(found) == {(*way, name, m) for way in ways for name in PANELS[kind] for m in inputs.kind.measures}
    for score in part.scores:
        if np.isnan(score.value):
            assert score.note
        else:
            assert score.low - 1e-9 <= score.value <= score.high + 1e-9
            assert score.interval
        assert score.covered == (score.trained_on == CONDENSED)
    assert all(np.isfinite(s.value) for s in part.scores if s.measure == inputs.kind.measures[0])
    assert set(inputs.kind.measures) <= set(part.titles)
    figure = part.figures[0]
    assert [len(series.x) for series in figure.series] == [len(PANELS[kind])] * 4
    stored = json.loads(json.dumps(part.to_dict(), allow_nan=False))
    assert repr(Section.from_dict(stored).scores) == repr(part.scores)


def test_a_kind_of_a_stranger_has_the_students_that_it_brings():
    with toys.registered():
        kind = toys.Fraction(("y",))
        assert [(one.name, recipient(one).soft) for one in learners_of(kind)] == [("trees", True)]


def test_the_numbers_depend_on_the_seed_alone():
    inputs = home_of(cohort_of("binary", 300), 60)
    one, again, other = (recipients.section(inputs, seed=seed, threads=1) for seed in (3, 3, 4))
    assert repr(one) == repr(again)
    assert repr(one.scores) != repr(other.scores)


# -- against libraries called by hand ---------------------------------------------------------------------------------


def test_a_linear_student_is_scikit_learns_own_naive_and_by_the_manual():
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import brier_score_loss, roc_auc_score
    from sklearn.preprocessing import StandardScaler

    inputs = home_of(cohort_of("binary", 800))
    part = recipients.section(inputs, seed=0, threads=1)
    test = inputs.codec.encode(inputs.cohort.features.iloc[inputs.split.test])
    truth = inputs.cohort.outcome["label"][inputs.split.test]
    scaler = StandardScaler().fit(inputs.rows)
    for labels, weight in ((PLAIN, None), (SOFT, inputs.labelled.weight / inputs.labelled.weight.mean())):
        model = LogisticRegression(max_iter=500)
        model.fit(scaler.transform(inputs.rows), inputs.labelled.outcome["label"], sample_weight=weight)
        said = model.predict_proba(scaler.transform(test))[:, 1]
        wanted = {"student": "logistic", "trained_on": CONDENSED, "labels": labels}
        assert values(part, measure="auroc", **wanted)["logistic"] == pytest.approx(
            roc_auc_score(truth, said), abs=1e-3
        )
        assert values(part, measure="brier", **wanted)["logistic"] == pytest.approx(
            brier_score_loss(truth, said), abs=1e-4
        )


def test_train_real_test_synthetic_is_the_real_rows_model_on_condensed_rows_each_counted_once():
    from sklearn.metrics import roc_auc_score

    inputs = home_of(cohort_of("binary", 800))
    part = recipients.section(inputs, seed=0, threads=1)
    train = inputs.cohort.take(inputs.split.train)
    apart = inputs.cohort.take(inputs.split.validation)
    validation = (inputs.codec.encode(apart.features), apart.outcome)
    rows = inputs.codec.encode(train.features)
    model = inputs.learner.fit(rows, train.outcome, validation=validation, seed=0, threads=1)
    wanted = roc_auc_score(inputs.labelled.outcome["label"], model.scores(inputs.rows))
    assert values(part, measure="auroc", tested_on=CONDENSED_ROWS)["xgb"] == pytest.approx(wanted, abs=1e-9)


def test_support_vectors_have_platts_probabilities_of_their_own_rows():
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    inputs = home_of(cohort_of("binary", 500))
    student = recipient(next(one for one in learners_of(inputs.kind) if one.name == "svm"))
    model = student.fit(inputs.rows, inputs.made, seed=0, threads=1)
    here, there = common_models.standardised(inputs.rows, inputs.rows[:40])
    vectors = SVC().fit(here, inputs.made["label"])
    platt = LogisticRegression().fit(vectors.decision_function(here)[:, None], inputs.made["label"])
    wanted = platt.predict_proba(vectors.decision_function(there)[:, None])[:, 1]
    assert model.scores(inputs.rows[:40]) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("name", ["svm", "mlp", "ridge", "forest"])
def test_a_number_comes_back_in_its_own_units(name):
    cohort = cohort_of("continuous", 400)
    rows = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    outcome = cohort.outcome.with_arrays(value=100.0 + 20.0 * rows[:, 0])
    student = recipient(next(one for one in learners_of(cohort.outcome.kind) if one.name == name))
    said = student.fit(rows, outcome, seed=0, threads=1).scores(rows)
    assert abs(said.mean() - outcome["value"].mean()) < 5
    assert np.corrcoef(said, outcome["value"])[0, 1] > 0.9


@pytest.mark.parametrize("kind", ["binary", "multiclass"])
def test_lightgbm_learns_soft_labels_as_shares(kind):
    pytest.importorskip("lightgbm")
    inputs = home_of(cohort_of(kind, 900), 400)
    classes = len(inputs.kind.labels)
    soft = np.full(400, 0.3) if kind == "binary" else np.tile(np.arange(1.0, classes + 1), (400, 1)) / 6
    student = recipient(next(one for one in learners_of(inputs.kind) if one.name == "lightgbm"))
    said = student.fit(inputs.rows, inputs.made, soft=soft, seed=0, threads=1).scores(inputs.rows[:50])
    assert said == pytest.approx(soft[:50], abs=0.02)


def test_classes_that_no_row_has_get_probability_0():
    inputs = home_of(cohort_of("multiclass", 600), 200)
    there = np.flatnonzero(inputs.made["label"] != 1)
    for student in map(recipient, learners_of(inputs.kind)):
        if student.name != "xgb":  # it says how many classes there are, and learns that one has no rows
            said = student.fit(inputs.rows[there], inputs.made.take(there), seed=0, threads=1).scores(inputs.rows[:20])
            assert said.shape == (20, 3)
            assert said[:, 1] == pytest.approx(0.0)


# -- naive, and as the manual says ------------------------------------------------------------------------------------


def spying(calls, name, soft):
    def learn(rows, outcome, **how):
        calls.append((len(rows), outcome, how))
        return FittedModel(lambda at: np.linspace(0, 1, len(at)), "probability", rows.shape[1], name)

    return Learner(name, "probability", learn, soft)


def test_the_naive_recipient_and_the_one_with_the_manual_train_on_different_things(monkeypatch):
    inputs, calls = home_of(cohort_of("binary", 400), 80), []
    ours = (spying(calls, "booster", True), spying(calls, "forest", False))
    monkeypatch.setattr(recipients, "learners_of", lambda kind: ours)
    recipients.section(inputs, seed=0, threads=1)
    booster, forest = calls[: len(calls) // 2], calls[len(calls) // 2 :]
    full, plain, manual, random = booster
    labels = inputs.labelled.outcome["label"]
    for _, _, how in (full, plain, random):
        assert how["weight"] is None
        assert how["soft"] is None
    assert (plain[1]["label"] == labels).all()
    assert full[0] == len(inputs.split.train)
    assert random[0] == plain[0] == 80
    assert np.bincount(random[1]["label"]).tolist() == np.bincount(labels).tolist()
    assert manual[2]["weight"] == pytest.approx(inputs.labelled.weight)  # in persons, as released
    assert manual[2]["soft"] == pytest.approx(inputs.labelled.soft)
    _, plain, manual, _ = forest
    assert plain[2]["weight"] is None
    assert manual[2]["soft"] is None  # scikit-learn's classifiers take classes
    assert manual[2]["weight"] == pytest.approx(inputs.labelled.weight / inputs.labelled.weight.mean())


def test_rows_without_soft_labels_and_weights_are_taught_once_and_said_to_be(monkeypatch):
    inputs, calls = home_of(cohort_of("binary", 400), 80, manual=False), []
    monkeypatch.setattr(recipients, "learners_of", lambda kind: (spying(calls, "booster", True),))
    part = recipients.section(inputs, seed=0, threads=1)
    assert len(calls) == 3  # real, condensed, random
    one, other = ([s for s in part.scores if s.labels == labels] for labels in (PLAIN, SOFT))
    assert repr([replace(s, labels="") for s in one]) == repr([replace(s, labels="") for s in other])
    assert any("neither soft labels nor weights" in note for note in part.notes)


# -- what numbers mean ------------------------------------------------------------------------------------------------


def test_condensed_rows_that_memorise_noise_teach_nothing():
    cohort = noise_cohort(3000, 40)
    inputs = home_of(cohort, 600, manual=False)
    rng = np.random.default_rng(5)
    rows = rng.normal(size=inputs.rows.shape).astype(np.float32)
    inputs = changed(
        inputs, rows=rows, labelled=Labelled(cohort.outcome.with_arrays(label=rng.integers(0, 2, 600).astype(np.int8)))
    )
    part = recipients.section(inputs, seed=0, threads=1)
    assert min(values(part, measure="auroc", trained_on=FULL, tested_on=HELD_OUT).values()) > 0.75
    for value in values(part, measure="auroc", trained_on=CONDENSED, labels=PLAIN).values():
        assert abs(value - 0.5) < 0.15  # by chance a little of the one column that counts
    for value in values(part, measure="auroc", tested_on=CONDENSED_ROWS).values():
        assert abs(value - 0.5) < 0.12  # 5 standard errors


def test_rows_of_one_person_count_together_in_an_interval():
    cohort = noise_cohort(400, 3, persons=4)
    inputs = home_of(cohort)
    with_persons = recipients.section(inputs, seed=0, threads=1)
    # the same rows, as if each were somebody
    alone = recipients.section(replace(inputs, cohort=replace(cohort, person=None)), seed=0, threads=1)
    width = {
        name: next(s for s in part.scores if (s.student, s.measure, s.trained_on) == ("logistic", "auroc", FULL))
        for name, part in (("persons", with_persons), ("rows", alone))
    }
    persons, rows = (width[name].high - width[name].low for name in ("persons", "rows"))
    assert width["persons"].value == width["rows"].value
    assert persons == pytest.approx(2 * rows, rel=0.1)
    assert "person" in width["persons"].interval


def test_a_model_of_all_columns_is_the_ceiling_where_condensed_rows_have_fewer():
    cohort = noise_cohort(1500, 5)
    codec = Codec.public(cohort.schema.without(["x0"]))
    inputs = home_of(cohort, 200, split=HoldoutSplit(0.3, 7), codec=codec)
    part = recipients.section(inputs, seed=0, threads=1)
    assert min(values(part, measure="auroc", trained_on=FULL, tested_on=HELD_OUT).values()) > 0.75
    assert max(values(part, measure="auroc", trained_on=CONDENSED, labels=PLAIN).values()) < 0.65
    assert any("saw all 5 columns" in note for note in part.notes)
    assert len(values(part, measure="auroc", tested_on=CONDENSED_ROWS)) == 6


@pytest.mark.parametrize("split", [None, HoldoutSplit(0.3, 7)])
def test_decisions_are_settled_on_validation_rows_or_on_training_rows_never_on_those_tested_on(split):
    cohort = noise_cohort(300, 3, persons=2)
    inputs = home_of(cohort, split=split)
    rows = Experiment(inputs, 0, 1)
    train, choosing, test = (set(one.person.tolist()) for one in (rows.train, rows.choosing, rows.test))
    assert train
    assert choosing
    assert test
    assert not test & (train | choosing)
    assert (choosing == train) if split else not choosing & train


# -- bounds and what cannot be measured -------------------------------------------------------------------------------


def test_samples_are_bounded_and_the_bound_is_said(monkeypatch):
    monkeypatch.setitem(models.MOST_ROWS_OF, "svm", 70)
    monkeypatch.setattr(experiment, "TRAINED", 200)
    monkeypatch.setattr(experiment, "TESTED", 60)
    inputs = home_of(cohort_of("binary", 600))
    part = recipients.section(inputs, seed=0, threads=1)
    assert {s.rows for s in part.scores if s.student == "svm"} == {70}
    assert {s.rows for s in part.scores if s.student == "xgb" and s.trained_on == FULL} == {200}
    assert {s.n for s in part.scores if s.tested_on == HELD_OUT} == {60}
    assert f"tested on a random 60 of {len(inputs.split.test)} held-out rows" in part.notes
    assert part.settings["training_rows_at_most"]["svm"] == 70


def test_without_lightgbm_its_scores_say_so_and_the_others_stay(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    part = recipients.section(home_of(cohort_of("binary", 300), 60), seed=0, threads=1)
    absent = [s for s in part.scores if s.student == "lightgbm"]
    assert len(absent) == 5
    assert all(np.isnan(s.value) and "needs the package lightgbm" in s.note for s in absent)
    assert np.isfinite(values(part, measure="auroc", trained_on=FULL, tested_on=HELD_OUT)["xgb"])


def test_condensed_rows_of_one_class_are_a_note():
    inputs = home_of(cohort_of("binary", 300), 60, manual=False)
    one = inputs.labelled.outcome.with_arrays(label=np.ones(60, np.int8))
    part = recipients.section(changed(inputs, labelled=Labelled(one)), seed=0, threads=1)
    condensed = [s for s in part.scores if s.trained_on == CONDENSED]
    assert condensed
    assert all(np.isnan(s.value) and "both classes" in s.note for s in condensed)
    student = recipient(learners_of(inputs.kind)[0])
    with pytest.raises(ModelError, match="both classes"):
        student.fit(inputs.rows, one, seed=0, threads=1)


def test_a_library_that_fails_is_a_note_without_its_words(monkeypatch):
    def fails(rows, outcome, **how):
        raise ValueError("CANARY 987654")

    monkeypatch.setattr(recipients, "learners_of", lambda kind: (Learner("odd", "probability", fails),))
    part = recipients.section(home_of(cohort_of("binary", 300), 60), seed=0, threads=1)
    assert {s.note for s in part.scores} == {"could not be fitted: ValueError"}


def test_no_rows_and_nobody_held_out_are_notes():
    cohort = cohort_of("binary", 300)
    empty = recipients.section(without_rows(home_of(cohort)), seed=0, threads=1)
    assert (empty.scores, empty.figures) == ((), ())
    assert "no condensed rows" in empty.notes[0]
    nobody = recipients.section(nobody_held_out(cohort), seed=0, threads=1)
    assert nobody.scores == ()
    assert "nobody was held out" in nobody.notes[0]
