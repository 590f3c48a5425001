"""The published method end to end: labels, learners, given models, results on disk, and what each part is for."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from xgboost import XGBClassifier

import distcondense as dc
from distcondense.data.outcome import Outcome
from distcondense.errors import BudgetError, CohortError, DistcondenseWarning, ModelError, RunFolderError, SettingsError
from distcondense.evaluation.score import CONDENSED, Score, find
from distcondense.kernels.update import NoiseRule
from distcondense.methods.base import method_named, options_of
from distcondense.methods.published import noise as noise_words
from distcondense.methods.published.condense import synthetic_outcome
from distcondense.methods.published.options import AS_PRINTED, PublishedOptions
from distcondense.methods.zero_order.engine import NoiseTally
from distcondense.models import learners
from distcondense.outcomes.binary import fit_xgb
from distcondense.outcomes.survival import Survival
from distcondense.privacy.steps import StepAccountant
from distcondense.runs.checkpoint import Checkpoint
from tests.conftest import SMALL_SCHEMA, small_frame


def quick(cohort, **more):
    return dc.condense(
        cohort,
        **{"method": "published", "noise": False, "ipc": 20, "steps": 60, "evaluate_every": 20, "threads": 1, **more},
    )


def scores_of(result):
    return [Score.from_dict(score) for score in result.internal["scores"]]


def test_half_the_synthetic_rows_are_events_spread_over_time_and_half_censored_at_the_end(survival):
    made, real = synthetic_outcome(PublishedOptions(noise=False, ipc=40), survival.outcome), survival.outcome
    events, censored = made["time"][made["label"] == 1], made["time"][made["label"] == 0]
    low, high = real["time"][real["label"] == 1].min(), real["time"][real["label"] == 0].max()
    assert len(events) == len(censored) == 40
    assert set(censored) == {high}
    edges = np.linspace(low, high, 41)
    assert np.array_equal(np.histogram(events, edges)[0], np.ones(40, int))  # stratified: one in each bin


def test_a_given_ratio_of_classes_is_kept(binary):
    frame = quick(binary, positive_share=0.1).frame
    assert frame["died"].sum() == 4
    assert len(frame) == 40


def test_runs_of_the_same_rows_and_seed_share_their_reference_and_others_do_not(binary, monkeypatch):
    fitted, train = [], learners.booster_of
    monkeypatch.setattr(learners, "booster_of", lambda *given: fitted.append(len(given[1].rows)) or train(*given))
    monkeypatch.setattr(learners, "_kept", {})
    first = quick(binary, steps=20)
    again, _, _ = quick(binary, steps=20), quick(binary, steps=20, ipc=5), quick(binary, steps=20, seed=1)
    assert fitted.count(max(fitted)) == 2  # of seed 0 once, of seed 1 once
    pd.testing.assert_frame_equal(first.frame, again.frame)


def test_a_student_on_validation_sees_the_columns_that_the_reference_tests(binary, monkeypatch):
    seen, train = [], learners.booster_of
    monkeypatch.setattr(learners, "booster_of", lambda *given: seen.append(given[1].rows.shape) or train(*given))
    rows = dc.design(binary)
    model = XGBClassifier(n_estimators=3, max_depth=1).fit(rows, binary.outcome["label"])
    tested = len(model.get_booster().get_score())
    quick(binary, reference=model, steps=20)
    assert 0 < tested < rows.shape[1]
    assert seen[0] == (40, tested)


def test_strata_are_quarters_of_the_real_event_times_and_censored_rows_apart(survival):
    outcome = survival.outcome
    codes, count, average = outcome.kind.match_strata(outcome, outcome, 4)
    assert (count, average) == (5, True)
    events = outcome["label"] == 1
    assert set(codes[~events]) == {4}
    counts = np.bincount(codes[events], minlength=4)
    assert counts.min() > 0.2 * events.sum()
    later = [outcome["time"][events][codes[events] == k].mean() for k in range(4)]
    assert later == sorted(later)


def test_times_are_scaled_by_the_iqr_of_events_or_their_median(survival):
    outcome, kind = survival.outcome, survival.outcome.kind
    times = outcome["time"][outcome["label"] == 1]
    assert kind.unit(outcome) == pytest.approx(np.subtract(*np.percentile(times, [75, 25])))
    flat = Outcome(Survival(("t", "e")), {"label": np.ones(4, np.int8), "time": np.array([5.0, 5.0, 5.0, 5.0])})
    assert flat.kind.unit(flat) == 5.0
    assert set(flat.kind.in_unit(flat, 5.0)["time"]) == {1.0}


@pytest.mark.parametrize("name", ["xgb", "aft", "cox"])
def test_learners_find_the_signal_and_say_what_their_scores_mean(name, binary, survival):
    cohort = binary if name == "xgb" else survival
    rows = dc.design(cohort).to_numpy(np.float32)
    rows = (rows - rows.mean(0)) / rows.std(0)
    kind = cohort.outcome.kind
    learner = kind.learner(name)
    model = learner.fit(rows, cohort.outcome, seed=0, threads=1)
    assert model.link == learner.link
    assert kind.score(model.link, model.scores(rows), cohort.outcome) > 0.65


def test_rounds_are_picked_on_validation(binary):
    rows = np.random.default_rng(0).normal(size=(len(binary), 3)).astype(np.float32)  # nothing to learn
    noise = fit_xgb(rows, binary.outcome, validation=(rows[::-1].copy(), binary.outcome), threads=1)
    whole = fit_xgb(rows, binary.outcome, threads=1)
    assert whole.ensemble.n_trees == 100
    assert noise.ensemble.n_trees < 100


def test_a_learner_is_asked_of_the_kind_of_outcome_it_is_for(binary, survival):
    for name in ("aft", "cox"):
        with pytest.raises(
            SettingsError, match=r"for a binary outcome must be one of xgb, logistic, svm. .*Fix: say xgb"
        ):
            binary.outcome.kind.learner(name)
    with pytest.raises(SettingsError, match="for a survival outcome must be one of cox, aft"):
        survival.outcome.kind.learner("xgb")


@pytest.mark.parametrize("reference", ["cox", "aft"])
def test_survival_runs_end_to_end(survival, reference, tmp_path):
    result = quick(survival, reference=reference, out=tmp_path / "run")
    frame = pd.read_parquet(tmp_path / "run/release/condensed.parquet")
    assert list(frame.columns) == ["age", "crp", "smoker", "stage", "months", "event", "distcondense_weight"]
    assert set(frame["event"]) == {0, 1}
    assert (frame["months"] > 0).all()
    assert find(scores_of(result), CONDENSED, "c_index") is not None


def test_condensing_against_a_good_model_teaches_a_student():
    """What the method is for: the condensed rows beat rows that never moved."""
    cohort = dc.Cohort.from_frame(small_frame(1500), target="died", ignore=["months", "event"], schema=SMALL_SCHEMA)
    moved = quick(cohort, ipc=50, steps=200, learning_rate=0.01)
    still = quick(cohort, ipc=50, steps=1, learning_rate=1e-9)
    score = {name: find(scores_of(r), CONDENSED, "auroc").value for name, r in (("moved", moved), ("still", still))}
    assert score["moved"] > 0.7
    assert score["moved"] > score["still"] + 0.1


def test_a_fitted_tree_model_and_the_same_model_as_a_callable_condense_alike(binary):
    from sklearn.ensemble import GradientBoostingClassifier

    model = GradientBoostingClassifier(n_estimators=20, max_depth=2, random_state=0)
    model.fit(dc.design(binary).to_numpy(np.float32), binary.outcome["label"])
    trees = quick(binary, reference=model, steps=10, soft=True)
    opaque = quick(binary, reference=lambda rows: model.predict_proba(rows)[:, 1], steps=10, soft=True)
    assert trees.internal["reference"] == "GradientBoostingClassifier"
    columns = [c for c in trees.frame if c not in ("died", "distcondense_risk", "distcondense_weight")]
    gap = (trees.frame[columns] - opaque.frame[columns]).abs() / trees.frame[columns].abs().clip(lower=1)
    assert np.quantile(gap.to_numpy(), 0.95) < 1e-3  # a threshold moved by rounding may flip a few cells


def test_a_callable_for_survival_must_say_what_its_scores_are(survival):
    with pytest.raises(ModelError, match="log-risk"):
        quick(survival, reference=lambda rows: rows[:, 0])
    result = quick(survival, reference=lambda rows: rows[:, 0] / 50, link="log-risk", steps=5)
    assert result.internal["student"] == "cox"


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        (lambda rows: np.full((len(rows), 2), 0.5), "one score per row"),
        (lambda rows: np.full(len(rows), np.nan), "finite"),
        (3, "callable"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_in_words(binary, reference, told):
    with pytest.raises(ModelError, match=told):
        quick(binary, reference=reference)


def test_a_reference_for_the_other_task_is_refused(binary):
    with pytest.raises(SettingsError, match="must be one of xgb"):
        quick(binary, reference="cox")


def test_more_rows_than_patients_is_allowed_and_said(binary):
    with pytest.warns(DistcondenseWarning, match="not a condensation"):
        result = quick(binary, ipc=150, steps=2)
    assert len(result.frame) == 300
    assert any("not a condensation" in line for line in result.internal["warnings"])


def test_few_training_rows_of_the_rarer_class_are_a_warning():
    frame = small_frame().assign(died=np.arange(300) % 25 == 0)
    cohort = dc.Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=SMALL_SCHEMA)
    with pytest.warns(DistcondenseWarning, match="'died': fewer than 10 training rows of the rarer class"):
        quick(cohort, ipc=5, steps=2)


def test_the_run_folder_has_two_rooms_and_no_patient_number_in_release(binary, tmp_path):
    result = quick(binary, out=tmp_path / "run", noise=True, epsilon=2.5)
    release = sorted(p.name for p in (tmp_path / "run/release").iterdir())
    papers = [
        "README.md",
        "croissant.json",
        "datasheet.md",
        "deployment.json",
        "privacy.json",
        "report.html",
        "schema.toml",
    ]
    assert release == sorted(["condensed.csv", "condensed.parquet", *papers])
    run = json.loads((tmp_path / "run/internal/run.json").read_text())
    assert {"settings", "seeds_policy", "versions", "timings_seconds", "history", "scores"} <= set(run)
    scores = [Score.from_dict(score) for score in run["scores"]]
    for way in ("full", "condensed", "random_real"):
        for measure in ("auroc", "sensitivity", "specificity", "ppv", "npv"):
            score = find(scores, way, measure)
            assert score.low <= score.value <= score.high
            assert score.n == run["data"]["split"]["test"]
    assert "auroc" not in (tmp_path / "run/release/privacy.json").read_text()
    assert not (tmp_path / "run/internal/checkpoint.npz").exists()
    csv = pd.read_csv(tmp_path / "run/release/condensed.csv")
    assert csv.shape == result.frame.shape
    assert dc.Schema.from_toml(tmp_path / "run/release/schema.toml").features == SMALL_SCHEMA


def test_a_key_that_outlived_a_killed_finish_is_erased_by_the_next_comer(binary, tmp_path, monkeypatch):
    """Killed between run.json and erasing the checkpoint: the run is finished, and its key is still there."""
    monkeypatch.setattr(Checkpoint, "erase", lambda self: None)
    quick(binary, out=tmp_path / "run")
    monkeypatch.undo()
    left = tmp_path / "run/internal/checkpoint.npz"
    assert left.exists()
    with pytest.raises(RunFolderError, match="finished"):
        quick(binary, out=tmp_path / "run", resume=True)
    assert not left.exists()


def test_the_noise_key_is_nowhere_in_a_finished_run(binary, tmp_path, monkeypatch):
    key = 0x1234567890ABCDEF
    monkeypatch.setattr("distcondense.methods.published.condense.secrets.randbits", lambda bits: key)
    quick(binary, out=tmp_path / "run", noise=True, epsilon=2.5)
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert str(key).encode() not in content
            assert key.to_bytes(8, "little") not in content


def test_a_finished_run_is_not_overwritten_without_force(binary, tmp_path):
    quick(binary, out=tmp_path / "run", steps=2)
    with pytest.raises(RunFolderError, match="finished"):
        quick(binary, out=tmp_path / "run", steps=2)
    with pytest.raises(RunFolderError, match="other settings"):
        quick(binary, out=tmp_path / "run", steps=3)
    quick(binary, out=tmp_path / "run", steps=3, force=True)


def test_a_killed_run_resumes_through_the_front_door_to_the_same_table(binary, tmp_path, monkeypatch):
    monkeypatch.setattr("distcondense.methods.zero_order.engine.CHECKPOINT_SECONDS", 0.0)
    how = {"noise": True, "epsilon": 2.5}
    whole = quick(binary, noise_key=77, **how)

    def kill(*, step, **_):
        if step == 45:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick(binary, noise_key=77, out=tmp_path / "run", progress=kill, **how)
    assert not (tmp_path / "run/release").exists()
    with pytest.raises(RunFolderError, match="resume=True"):
        quick(binary, out=tmp_path / "run", **how)
    again = quick(binary, out=tmp_path / "run", resume=True, **how)
    pd.testing.assert_frame_equal(whole.frame, again.frame)
    assert whole.privacy.ledger == again.privacy.ledger
    assert again.privacy.noise_source.startswith("a key the caller gave")  # whoever resumes does not know that
    assert "given by the caller" in again.internal["seeds_policy"]


def test_a_run_that_fails_leaves_nothing_behind(binary, tmp_path):
    with pytest.raises(ModelError):
        quick(binary, reference=lambda rows: np.full(len(rows), np.nan), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_forced_run_that_fails_leaves_the_finished_one_in_place(binary, tmp_path):
    before = quick(binary, out=tmp_path / "run", steps=2)
    with pytest.raises(BudgetError):
        quick(binary, out=tmp_path / "run", force=True, noise=True, epsilon=0.01, sigma_base=0.5)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "run/release/condensed.csv"), before.frame, check_dtype=False)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["internal", "release"]
    quick(binary, out=tmp_path / "run", force=True, steps=3)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["internal", "release"]


def test_an_identifier_is_not_taken_for_a_category():
    frame = small_frame().assign(name=[f"person {i}" for i in range(300)])
    with pytest.raises(CohortError, match="needs a declared schema") as error:
        dc.Cohort.from_frame(frame, target="died", ignore=["months", "event"])
    assert "person 1" not in str(error.value)


def test_every_epsilon_in_run_json_is_named_as_published(binary, tmp_path):
    quick(binary, out=tmp_path / "run", noise=True, epsilon=2.5)
    run = json.loads((tmp_path / "run/internal/run.json").read_text())

    def keys(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield key
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    assert {key for key in keys(run) if "epsilon" in key} == {"epsilon_as_published"}


def test_a_result_can_be_saved_later_and_trains_models(binary, tmp_path):
    from sklearn.linear_model import LogisticRegression

    result = quick(binary)
    result.save(tmp_path / "later")
    assert (tmp_path / "later/release/condensed.parquet").exists()
    X, y, weight = result.training_data()
    assert X.shape == (40, 6)
    assert set(y) == {0, 1}
    LogisticRegression(max_iter=2000).fit(X, y, sample_weight=weight)


def test_soft_labels_leave_the_plain_rows_as_they_are(binary):
    from dataclasses import replace

    result = quick(binary, steps=2)
    soft = replace(result, frame=result.frame.assign(distcondense_risk=0.25, distcondense_weight=2.0))
    X, y, weight = soft.training_data()
    assert len(X) == 40
    assert y.tolist() == result.frame["died"].tolist()
    assert weight.tolist() == pytest.approx([1.0] * 40)  # whatever their scale, weights come with mean 1
    assert soft.soft_data()[1].tolist() == pytest.approx([0.25] * 40)


def test_a_soft_release_keeps_the_raw_numbers(binary, tmp_path):
    result = quick(binary, soft=True, out=tmp_path / "run")
    assert {"stage=I", "stage=II", "stage=III"} <= set(result.frame)
    assert (result.frame["age"] != result.frame["age"].round()).any()
    X, _, _ = result.training_data()
    assert X.shape[1] == 6


def test_a_constant_column_is_dropped_and_reported(tmp_path):
    frame = small_frame().assign(ward=7)
    cohort = dc.Cohort.from_frame(frame, target="died", ignore=["months", "event"])
    with pytest.warns(DistcondenseWarning, match="'ward'"):
        result = quick(cohort, steps=2, out=tmp_path / "run")
    assert "ward" not in result.frame
    run = json.loads((tmp_path / "run/internal/run.json").read_text())
    assert run["constant_columns_dropped"] == ["ward"]


def test_an_unknown_setting_is_refused(binary):
    with pytest.raises(SettingsError, match="learning_rat"):
        quick(binary, learning_rat=0.1)


# -- as printed, and what the noise does ------------------------------------------------------------------------------


def test_as_printed_sets_what_the_paper_prints_and_leaves_what_is_said_beside_it():
    method = method_named("published")
    printed = options_of(method, {"preset": "as-printed", "epsilon": 2.5, "rho": 0.2})
    assert {name: getattr(printed, name) for name in AS_PRINTED} == {**AS_PRINTED, "rho": 0.2}
    assert (printed.learning_rate, printed.soft) == (0.001, True)
    assert PublishedOptions(epsilon=2.5).learning_rate != 0.001
    with pytest.raises(SettingsError, match="must be one of as-printed"):
        options_of(method, {"preset": "printed", "epsilon": 2.5})
    with pytest.raises(SettingsError, match="preset belongs to method published"):
        options_of(method_named("private"), {"preset": "as-printed"})


@pytest.mark.parametrize("sigma_base", [0.3, 1.0, 2.0, 2.1, 40.0])
def test_the_ladder_is_inert_exactly_where_the_run_says_so(sigma_base):
    """Slow twin of eq. 13: of all norms up to far beyond C, is one on another rung than the lowest."""
    rule = NoiseRule(0.5, sigma_base)
    norms = np.linspace(0, 5, 2001)
    lowest = np.float32(0.25 * sigma_base)
    assert noise_words.adapts(rule) == any(rule.sigmas([norm])[0] > lowest for norm in norms)
    words = noise_words.beforehand(rule, StepAccountant(0.1, 1e-5, 20), 10, None)
    assert ("inert" in words) == (not noise_words.adapts(rule))


def test_the_tally_counts_rungs_and_signal_row_by_row():
    rule, tally, expected, ratios = NoiseRule(2.0, 1.0), NoiseTally(), [0] * 8, []
    for seed in range(3):
        norms = np.random.default_rng(seed).uniform(0, 4, 50).astype(np.float32)
        sigmas = rule.sigmas(norms)
        tally.enter(norms, sigmas, rule)
        for norm, sigma in zip(norms, sigmas, strict=True):
            expected[round(float(sigma) / 0.25) - 1] += 1
            ratios.append(min(float(norm), 2.0) / (float(sigma) * 2.0))
    assert tally.rungs == expected
    assert tally.rows == 150
    assert tally.signal == pytest.approx(sum(ratios))
    assert tally.clear == sum(ratio >= 1 for ratio in ratios)


def test_a_run_says_what_its_noise_does_and_that_sigma_snr_and_epsilon_do_not_hold_together(binary, tmp_path):
    lines: list[str] = []
    with pytest.warns(DistcondenseWarning, match="louder than the method"):
        result = quick(binary, noise=True, epsilon=1.0, ipc=60, steps=40, out=tmp_path / "run", log=lines.append)
    first, last = (line for line in lines if line.startswith("noise: "))
    assert "eq. 13 is inert here" in first
    assert "where the paper asks for at least 1" in first
    assert "(as-published), and 1 pays for" in first
    privacy, record = result.privacy, json.loads((tmp_path / "run/internal/run.json").read_text())
    assert f"(as-published) at released step {privacy.parameters['released_step']}" in last
    assert "end to end at worst: " in last
    assert record["noise"]["rungs"] == {"0.25": 1.0}
    assert record["noise"]["share_at_least_1"] == 0.0
    assert 0 < record["noise"]["mean_signal_to_noise"] < 1
    assert not [line for line in _lines_of(binary, noise=False) if line.startswith("noise: ")]


def test_the_warning_of_loud_noise_comes_before_the_first_step_by_the_callers_rules(binary):
    how, counts = {"noise": True, "epsilon": 1.0, "ipc": 60, "steps": 40}, list[int]()

    def shown() -> int:
        return sum("louder" in str(one.message) for one in heard)

    def progress(*, loss: float | None = None, **_: object) -> None:
        counts.extend([shown()] if loss is not None else [])

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        result = quick(binary, progress=progress, **how)
    assert set(counts) == {1}  # at every step
    assert shown() == 1
    assert "louder" in " ".join(result.record["warnings"])
    counts.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DistcondenseWarning)
        with pytest.raises(DistcondenseWarning, match="louder"):
            quick(binary, progress=progress, **how)
    assert not counts


def _lines_of(cohort, **more):
    lines: list[str] = []
    quick(cohort, steps=20, log=lines.append, **more)
    return lines


def test_with_a_small_sigma_base_rows_climb_the_ladder(binary):
    lines = _lines_of(binary, noise=True, sigma_base=1.0, clip=1e-4)
    assert "rows with a large gradient take more (eq. 13)" in lines[1]
    assert "1·σ_base by" in lines[-2] or "1·σ_base by" in lines[-1]
