"""Remedies for a rare class: each does what it says, and they help where one is needed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from distcondense.data.persons import HoldoutSplit
from distcondense.evaluation.experiment import Experiment
from distcondense.evaluation.score import CONDENSED, FULL
from distcondense.evaluation.utility import imbalance
from distcondense.evaluation.utility.imbalance import ADDED, REMEDIES
from tests.evaluation_inputs import HOW, changed, cohort_of, home_of, nobody_held_out, noise_cohort, without_rows


def rare_cohort(rows=4000, share=0.05):
    """One class is rare and not easily told from the other."""
    cohort = noise_cohort(rows, 4)
    rng = np.random.default_rng(2)
    x = cohort.features["x0"].to_numpy()
    label = (x + 1.5 * rng.normal(size=rows) > np.quantile(x, 1 - share) + 1.2).astype(np.int8)
    return replace(cohort, outcome=cohort.outcome.with_arrays(label=label), person=None)


@dataclass(frozen=True)
class Rows:
    """What a remedy takes, and what it leaves."""

    rows: np.ndarray
    label: np.ndarray
    weight: np.ndarray | None = None


@pytest.fixture
def training():
    rng = np.random.default_rng(0)
    label = np.array([1] * 12 + [0] * 88)
    return Rows((rng.normal(size=(100, 3)) + 4 * label[:, None]).astype(np.float32), label)


def done(name, training, seed=0):
    return Rows(*REMEDIES[name](training.rows, training.label, np.random.default_rng(seed), 1))


@pytest.mark.parametrize("name", ["over-sampling", "under-sampling", "SMOTE"])
@pytest.mark.parametrize("rarer", [0, 1])
def test_a_remedy_of_rows_leaves_as_many_of_either_class(training, name, rarer):
    given = replace(training, label=training.label if rarer else 1 - training.label)
    found = done(name, given)
    wanted = 12 if name == "under-sampling" else 88
    assert np.bincount(found.label).tolist() == [wanted, wanted]
    assert len(found.rows) == 2 * wanted
    assert found.weight is None
    whole = {(*row, label) for row, label in zip(given.rows.tolist(), given.label.tolist(), strict=True)}
    new = {(*row, label) for row, label in zip(found.rows.tolist(), found.label.tolist(), strict=True)} - whole
    assert {label for *_, label in new} == ({rarer} if name == "SMOTE" else set())


def test_class_weights_make_the_classes_count_alike(training):
    found = done("class weights", training)
    assert found.weight[training.label == 1].sum() == pytest.approx(found.weight[training.label == 0].sum())
    assert found.weight.mean() == pytest.approx(1.0)
    assert found.rows is training.rows


def test_smote_rows_lie_between_a_row_and_one_of_its_five_neighbours(training):
    found = done("SMOTE", training)
    rare = training.rows[training.label == 1].astype(np.float64)
    apart = np.linalg.norm(rare[:, None] - rare[None], axis=2)
    near = np.argsort(apart, axis=1)[:, 1:6]
    for row in found.rows[100:].astype(np.float64):
        between = [  # the slow twin: on the segment, the ways to either end add up to its length
            np.linalg.norm(row - rare[i]) + np.linalg.norm(row - rare[j]) - apart[i, j]
            for i in range(len(rare))
            for j in near[i]
        ]
        assert min(between) < 1e-5


def test_smote_of_one_row_repeats_it(training):
    label = np.zeros(100, np.int64)
    label[7] = 1
    found = done("SMOTE", replace(training, label=label))
    assert (found.rows[100:] == training.rows[7]).all()
    assert np.bincount(found.label).tolist() == [99, 99]


def test_every_remedy_is_measured_on_real_and_condensed_rows_and_condensed_rows_are_one():
    inputs = home_of(rare_cohort(2000), 300)
    part = imbalance.section(inputs, seed=0, threads=1)
    found = {(s.trained_on, s.group, s.measure): s for s in part.scores}
    both = [*REMEDIES]
    measures = ("auroc", "balanced_accuracy", "f1")
    assert set(found) == {
        (way, name, measure)
        for way, names in ((FULL, [*both, ADDED]), (CONDENSED, both))
        for name in names
        for measure in measures
    }
    assert found[FULL, ADDED, "auroc"].rows == found[FULL, "none", "auroc"].rows + 300
    assert {s.threshold for s in part.scores} == {0.5}
    assert len(part.tables[0].rows) == 11
    assert len(part.figures) == 3


def test_a_rare_class_is_missed_without_a_remedy_and_found_with_one():
    part = imbalance.section(home_of(rare_cohort(), 1500), seed=0, threads=1)
    for way in (FULL, CONDENSED):
        accuracy = {s.group: s.value for s in part.scores if (s.trained_on, s.measure) == (way, "balanced_accuracy")}
        for name in ("class weights", "over-sampling", "under-sampling", "SMOTE"):
            assert accuracy[name] > accuracy["none"] + 0.05


def test_without_a_remedy_the_learner_weighs_no_class_by_itself():
    """With plain labels of a rare class it would, and its probabilities would be far above the prevalence."""
    experiment = Experiment(home_of(rare_cohort(), 1500), 0, 1)
    arms = {(arm.trained_on, arm.group): arm for arm in imbalance.remedied(experiment)}
    share = float(experiment.train.outcome["label"].mean())
    assert share < 0.1
    said = {}
    for name in ("none", "class weights"):
        arm = arms[FULL, name]
        model = experiment.inputs.learner.fit(arm.rows, arm.outcome, weight=arm.weight, soft=arm.soft, seed=0)
        said[name] = model.scores(experiment.test.rows(experiment.inputs.codec)).mean()
    assert said["none"] == pytest.approx(share, abs=0.02)
    assert said["class weights"] > 2 * share


@pytest.mark.parametrize("kind", sorted(set(HOW) - {"binary"}))
def test_other_outcomes_have_a_note(kind):
    part = imbalance.section(home_of(cohort_of(kind)), seed=0, threads=1)
    assert part.scores == ()
    assert "two classes" in part.notes[0]


def test_too_few_cases_no_rows_and_the_same_seed():
    inputs = home_of(rare_cohort(600), 200)
    one, again, other = (imbalance.section(inputs, seed=seed, threads=1) for seed in (0, 0, 1))
    assert repr(one) == repr(again)
    assert repr(one.scores) != repr(other.scores)
    few = rare_cohort(1000)
    cases = np.flatnonzero(few.outcome["label"])
    few = replace(few, outcome=few.outcome.with_arrays(label=np.isin(np.arange(1000), cases[:11]).astype(np.int8)))
    part = imbalance.section(home_of(few, 200, split=HoldoutSplit(0.3, 7)), seed=0, threads=1)
    assert part.scores == ()
    assert "<10" in part.notes[0]
    cohort = cohort_of("binary", 300)
    for there, words in ((without_rows(home_of(cohort)), "no condensed rows"), (nobody_held_out(cohort), "held out")):
        part = imbalance.section(there, seed=0, threads=1)
        assert part.scores == ()
        assert words in part.notes[0]


def test_condensed_rows_of_one_class_are_a_note():
    inputs = home_of(rare_cohort(1000), 200, manual=False)
    one = replace(inputs.labelled, outcome=inputs.labelled.outcome.with_arrays(label=np.zeros(200, np.int8)))
    part = imbalance.section(changed(inputs, labelled=one), seed=0, threads=1)
    condensed = [s for s in part.scores if s.trained_on == CONDENSED]
    assert len(condensed) == 1
    assert np.isnan(condensed[0].value)
    assert "both classes" in condensed[0].note
