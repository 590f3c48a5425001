"""Several references at once: the joint loss and gradient by the loop, one in a list as one alone, who chooses rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.cluster.executors import LocalExecutor
from distcondense.data.cohort import Cohort
from distcondense.errors import RunFolderError, SettingsError
from distcondense.evaluation.score import CONDENSED, Score, find
from distcondense.kernels.update import NoiseRule
from distcondense.methods.base import Context, one_by_one
from distcondense.methods.private import students
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.placement import place
from distcondense.methods.published.condense import EncodedCohort, _problem, _reference, synthetic_outcome
from distcondense.methods.published.options import PublishedOptions
from distcondense.methods.zero_order.engine import Problem, gradient, seed_key, widths_of
from distcondense.methods.zero_order.several import StackedModels, opened
from distcondense.models.base import BlackBox
from tests import naive
from tests.conftest import SMALL_TABLE, small_frame
from tests.shell import Call, refused

pytestmark = pytest.mark.usefixtures("quick_placement")
TWO = ("xgb", "logistic", "svm")


def binary(rows: int = 300) -> Cohort:
    return Cohort.from_frame(small_frame(rows), target="died", ignore=["months", "event"], schema=SMALL_TABLE)


def survival(rows: int = 300) -> Cohort:
    return Cohort.from_frame(small_frame(rows), time="months", event="event", ignore=["died"], schema=SMALL_TABLE)


def quick(cohort: Cohort, **more: Any) -> dc.Result:
    how = {"method": "published", "noise": False, "ipc": 10, "steps": 12, "evaluate_every": 6, "threads": 1, **more}
    return dc.condense(cohort, **how)


# -- the joint loss ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [TWO, ("cox", "aft")])
def test_the_joint_gradient_is_the_mean_of_the_references_own_each_in_units_of_its_first_loss(
    names: tuple[str, ...],
) -> None:
    cohort = binary(200) if "xgb" in names else survival(200)
    options = PublishedOptions(noise=False, ipc=4, reference=names)
    split = dc.data.persons.Stratified(0).split(cohort)
    data = EncodedCohort.from_cohort(cohort, split, keep_constant=False)
    models = [_reference(cohort.outcome.kind, data, name, options, 1)[1] for name in names]
    labels = synthetic_outcome(options, data.train)
    joint = _problem(options, models, data, labels, 1)
    X, key = joint.start, seed_key(0)
    widths = widths_of(options, key, 0, X.shape[1])
    with opened(joint.models, "auto", X, widths, Context()) as executors:
        G, loss = gradient(joint, options, X, key, 0, 1, executors)
    assert loss == pytest.approx(1.0)  # every reference in units of its first loss, and this is the first
    later = X + 0.3
    parts = []
    for model in models:
        alone = _problem(options, [model], data, labels, 1)
        with LocalExecutor(1) as executor:
            executor.open(model, "auto", X, widths)
            first = gradient(alone, options, X, key, 0, 1, [executor])[1]
            parts.append((first, *gradient(alone, options, later, key, 1, 1, [executor])))
            slope = alone.references[0].loss(later, key, 1, 1)[1][:, 0]
            slow = naive.central_differences(model.scores, later, widths_of(options, key, 1, X.shape[1]))
            assert np.allclose(parts[-1][1], slope[:, None] * slow, atol=2e-3)
    with opened(joint.models, "auto", X, widths, Context()) as executors:
        G, loss = gradient(joint, options, later, key, 1, 1, executors)
    expected, total = naive.joint_gradient([(a, g.tolist(), b) for a, g, b in parts])
    assert loss == pytest.approx(total, rel=1e-5)
    assert np.allclose(G, expected, atol=1e-6)
    assert isinstance(joint, Problem)
    assert joint.noise == NoiseRule(1.0)


def line(columns: int) -> BlackBox:
    weights = np.linspace(-1, 1, columns).astype(np.float32)
    return BlackBox(lambda rows: 1 / (1 + np.exp(-(rows @ weights) / 50)), "probability", columns, "line")


def wave(columns: int) -> BlackBox:
    return BlackBox(lambda rows: 0.5 + np.sin(rows[:, 0] / 30) / 3, "probability", columns, "wave")


def test_several_models_are_one_whose_last_column_says_which() -> None:
    both, rows = StackedModels((line(3), wave(3))), np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    rows[:, 3] = [0, 1, 0, 1, 1, 0]
    scores = both.scores(rows)
    own = np.ascontiguousarray(rows[:, :3])
    assert np.allclose(scores, np.where(rows[:, 3] == 0, line(3).scores(own), wave(3).scores(own)))
    assert both.n_features == 4


@pytest.mark.parametrize("method", ["published", "private"])
def test_one_reference_in_a_list_is_that_reference_to_the_bit(method: str, tmp_path: Any) -> None:
    if method == "published":
        alone = quick(binary(), reference="xgb", noise=True, epsilon=2.5, noise_key=3)
        listed = quick(binary(), reference=["xgb"], noise=True, epsilon=2.5, noise_key=3)
        pd.testing.assert_frame_equal(alone.frame, listed.frame)
        assert alone.privacy == listed.privacy
        assert alone.internal["settings"] == listed.internal["settings"]
        assert "references" not in listed.internal
    else:
        assert PrivateOptions(reference="xgb").to_dict() == PrivateOptions(reference=("xgb",)).to_dict()
        assert PrivateOptions(reference=("xgb",)).among == ()  # as ever: everybody on the panel chooses


def test_a_run_against_several_says_so_everywhere_and_scores_a_student_of_each(tmp_path: Any) -> None:
    result = quick(binary(), reference=TWO, noise=True, epsilon=2.5, out=tmp_path / "run")
    record = json.loads((tmp_path / "run/internal/run.json").read_text())
    assert record["references"] == list(TWO) == record["settings"]["reference"]
    assert result.privacy.parameters["references"] == list(TWO)
    assert result.privacy.guarantee == "as-published"
    assert list(record["scores_by_reference"]) == list(TWO)
    for name in TWO:
        own = [Score.from_dict(score) for score in record["scores_by_reference"][name]]
        score = find(own, CONDENSED, "auroc")
        assert score is not None
        assert score.student == name
        assert 0 <= score.low <= score.value <= score.high <= 1
    again = dc.evaluate(binary(), result, threads=1)  # a finished run can still be measured
    assert find(again, CONDENSED, "auroc") is not None


def test_a_killed_run_against_several_resumes_to_the_same_table_and_other_references_are_another_run(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distcondense.methods.zero_order.engine.CHECKPOINT_SECONDS", 0.0)
    how = {"reference": ("cox", "aft"), "noise": True, "epsilon": 2.5, "noise_key": 9}
    whole = quick(survival(), **how)

    def kill(*, step: int, **_: Any) -> None:
        if step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick(survival(), out=tmp_path / "run", progress=kill, **how)
    with pytest.raises(RunFolderError, match="other settings"):
        quick(survival(), out=tmp_path / "run", resume=True, **{**how, "reference": "cox"})
    again = quick(survival(), out=tmp_path / "run", resume=True, **how)
    pd.testing.assert_frame_equal(whole.frame, again.frame)


# -- two new learners of two classes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logistic", "svm"])
def test_logistic_regression_and_support_vectors_are_scikit_learn_s(name: str) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(120, 4)).astype(np.float32)
    cohort = binary(120)
    label = (rows[:, 0] + rows[:, 1] ** 2 + rng.normal(size=120) > 0.5).astype(np.int8)
    outcome = cohort.outcome.with_arrays(label=label)
    mine = cohort.outcome.kind.learner(name).fit(rows, outcome, seed=0, threads=1).scores(rows)
    if name == "logistic":
        theirs = LogisticRegression(max_iter=2000).fit(rows, label).predict_proba(rows)[:, 1]
        assert np.allclose(mine, theirs, atol=1e-4)
        soft = np.where(label == 1, 0.9, 0.1)
        softly = cohort.outcome.kind.learner(name).fit(rows, outcome, soft=soft).scores(rows)
        assert np.corrcoef(mine, softly)[0, 1] > 0.99
        assert softly.std() < mine.std()
    else:
        distance = SVC().fit(rows, label).decision_function(rows)
        platt = LogisticRegression(max_iter=2000).fit(distance[:, None], label)
        assert np.allclose(mine, platt.predict_proba(distance[:, None])[:, 1], atol=1e-3)
    one = outcome.with_arrays(label=np.ones(120, np.int8))
    assert set(cohort.outcome.kind.learner(name).fit(rows, one).scores(rows)) == {1.0}


# -- private: who chooses ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned() -> Any:
    return replace(dc.PrivateModel(epsilon=8.0).fit(binary(1000)).learned_, doubt="")  # rows, whatever the noise


def test_rows_are_chosen_by_the_students_named_and_by_all_where_none_is(
    learned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = binary().outcome.kind.private_side()
    weights = []
    real = students.StudentPanel.from_candidates.__func__

    def of(cls: Any, *given: Any) -> Any:
        panel = real(cls, *given)
        weights.append(panel.weights.tolist())
        return panel

    monkeypatch.setattr(students.StudentPanel, "from_candidates", classmethod(of))
    everybody = place(learned, side, 12, seed=0)
    same = place(learned, side, 12, seed=0, named=())
    place(learned, side, 12, seed=0, named=("logistic", "svm"))
    assert np.array_equal(everybody.codes, same.codes)
    assert weights[0] == weights[1] == [students.SMOOTH, students.LINEAR, students.PLAIN, students.SOFT]
    assert weights[2] == [students.SMOOTH, students.LINEAR, 0.0, 0.0]


def test_a_private_run_for_several_is_recorded_and_its_guarantee_is_the_same(tmp_path: Any) -> None:
    result = dc.condense(binary(800), reference=TWO, epsilon=8.0, ipc=8, threads=1, out=tmp_path / "run")
    record = json.loads((tmp_path / "run/internal/run.json").read_text())
    assert record["references"] == list(TWO) == record["settings"]["reference"]
    assert list(record["scores_by_reference"]) == list(TWO)
    assert result.privacy.guarantee == "end-to-end"
    assert "scores" not in (tmp_path / "run/release/privacy.json").read_text()


# -- what is said -----------------------------------------------------------------------------------------------------


def test_references_are_said_one_by_one_or_with_commas() -> None:
    assert one_by_one(None) == ()
    assert one_by_one("xgb") == ("xgb",)
    assert one_by_one("xgb, svm") == one_by_one(["xgb", "svm"]) == ("xgb", "svm")
    assert PublishedOptions(noise=False, reference="xgb,svm").against == ("xgb", "svm")


@pytest.mark.parametrize("options", [PrivateOptions, lambda **how: PublishedOptions(noise=False, **how)])
def test_a_reference_twice_or_none_at_all_is_refused(options: Any) -> None:
    for said in (("xgb", "xgb"), ()):
        with pytest.raises(SettingsError, match="must name at least one, and none twice"):
            options(reference=said)


@pytest.mark.parametrize("method", ["published", "private"])
def test_each_of_several_must_be_for_the_kind_of_outcome(method: str) -> None:
    more = {"noise": False} if method == "published" else {}
    with pytest.raises(SettingsError, match="for a binary outcome must be one of xgb, logistic, svm"):
        dc.condense(binary(), method=method, reference=("xgb", "cox"), **more)


def test_the_command_line_takes_the_reference_again_and_again(call: Call, tmp_path: Any) -> None:
    small_frame(300).drop(columns=["months", "event"]).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "s.toml").write_text(dc.Schema(SMALL_TABLE.columns[:5]).to_toml(), encoding="utf-8")
    how = ("condense", "t.csv", "--target", "died", "--schema", "s.toml", "--threads", 1, "--ipc", 5, "--out", "run")
    own = ("--method", "published", "--no-noise", "--steps", 3)
    refused(call(*how, *own, "--reference", "xgb", "--reference", "tree"), "must be one of xgb, logistic, svm")
    assert call(*how, *own, "--reference", "xgb", "--reference", "logistic").code == 0
    record = json.loads((tmp_path / "run/internal/run.json").read_text())
    assert record["settings"]["reference"] == ["xgb", "logistic"]
