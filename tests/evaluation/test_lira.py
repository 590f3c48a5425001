"""LiRA: likelihood ratios against scipy; a method that memorises is caught, one that reads nobody is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from distcondense import Cohort
from distcondense.errors import SettingsError
from distcondense.evaluation.attacks import lira
from distcondense.evaluation.attacks.base import AUROC, TPR_001, VULNERABLE
from distcondense.evaluation.attacks.lira import ALL_RUNS, NEAREST, TREES, ObservedRun, ShadowNormals, every_run
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.leaks import decide
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Section
from distcondense.outcomes.measures import auroc
from distcondense.runs.result import Result
from tests.conftest import SMALL_TABLE, small_frame
from tests.evaluation_inputs import changed
from tests.leaky import Kept, cohort_of, home_that_knows_nothing, home_that_memorised, independent, memorised, said
from tests.toys import registered

ROWS, SHADOWS = 500, 8


def remember(cohort: Cohort, seed: int) -> Result:
    return memorised(cohort, seed=seed)


def forget(cohort: Cohort, seed: int) -> Result:
    return independent(cohort, cohort_of(2 * ROWS, seed=99), seed=seed)


@pytest.fixture(scope="module")
def caught() -> Section:
    return lira.section(home_that_memorised(ROWS), seed=0, threads=1, shadows=SHADOWS, rerun=remember)


@pytest.fixture(scope="module")
def spared() -> Section:
    return lira.section(home_that_knows_nothing(ROWS), seed=0, threads=1, shadows=SHADOWS, rerun=forget)


def score_of(part: Section, student: str, measure: str, on: str = ALL_RUNS) -> Score:
    return next(
        one for one in part.scores if (one.student, one.measure, one.tested_on, one.group) == (student, measure, on, "")
    )


# -- the likelihood ratio ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [False, True])
def test_the_likelihood_ratio_is_that_of_two_normal_distributions(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lira, "OWN_SPREAD", 2 if own else 1000)
    rng = np.random.default_rng(0)
    statistic, inside, observed = rng.normal(size=(12, 7)), rng.random((12, 7)) < 0.5, rng.normal(size=7)
    inside[:, 6] = [True] + [False] * 11  # once in: nothing is known of it
    normals = ShadowNormals.fit(statistic, inside)
    online, offline = normals.online(observed), normals.offline(observed)
    residuals = {side: [] for side in (True, False)}  # type: ignore[var-annotated]
    for j in range(7):
        for side in (True, False):
            these = statistic[inside[:, j] == side, j]
            residuals[side] += list(these - these.mean())
    for j in range(6):
        density = {}
        for side in (True, False):
            these = statistic[inside[:, j] == side, j]
            freedom = sum(max(0, (inside[:, k] == side).sum() - 1) for k in range(7))
            pooled = np.sqrt(np.sum(np.square(residuals[side])) / freedom)
            sd = (these.std(ddof=1) if own else pooled) + 1e-6
            density[side] = stats.norm(these.mean(), sd)
        assert online[j] == pytest.approx(density[True].logpdf(observed[j]) - density[False].logpdf(observed[j]))
        assert special.ndtr(offline[j]) == pytest.approx(density[False].cdf(observed[j]))
    assert online[6] == offline[6] == 0


def test_a_shift_that_is_there_is_found_as_well_as_it_can_be() -> None:
    """φ ~ N(1, 1) inside, N(0, 1) outside, and hard and easy targets: the best AUROC is Φ(1/√2)."""
    rng = np.random.default_rng(1)
    inside = rng.random((40, 800)) < 0.5
    statistic = rng.normal(0, 3, 800) + inside + rng.normal(size=(40, 800))
    online, offline = every_run([ObservedRun({"φ": s}, i) for s, i in zip(statistic, inside, strict=True)], "φ")
    best = float(special.ndtr(1 / np.sqrt(2)))
    for scores in (online, offline):
        ranks = stats.rankdata(scores)
        n = inside.sum()
        auroc = (ranks[inside.ravel()].sum() - n * (n + 1) / 2) / (n * (inside.size - n))
        assert best - 0.03 < auroc < best + 0.01


def test_confidence_is_the_logit_of_the_own_outcome() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(200, 2)).astype(np.float32)
    label = (rows[:, 0] + rng.normal(size=200) > 0).astype(np.int64) * 3  # classes 0 and 3
    people, asked = rows[:5], np.array([0, 3, 0, 3, 1])
    found = lira.confidence(lira.LINEAR, rows, label, people, asked, 1)
    from sklearn.linear_model import LogisticRegression

    p = LogisticRegression(max_iter=500).fit(rows, label).predict_proba(people)
    for k, column in enumerate((0, 1, 0, 1)):
        assert found[k] == pytest.approx(np.log(p[k, column] / (1 - p[k, column])), rel=1e-6)
    assert found[4] == pytest.approx(np.log(lira.SURE), rel=1e-3)  # a class that no row has
    assert not lira.confidence(lira.LINEAR, rows, np.zeros(200, np.int64), people, asked, 1).any()


# -- the whole --------------------------------------------------------------------------------------------------------


def test_a_method_that_memorises_is_caught(caught: Section) -> None:
    assert decide([caught])
    assert caught.settings["shadows"] == SHADOWS
    assert score_of(caught, f"{NEAREST}, online", AUROC).low > 0.95
    assert score_of(caught, f"{TREES}, online", AUROC).low > 0.55
    assert score_of(caught, f"{NEAREST}, offline", AUROC).low > 0.9
    assert score_of(caught, f"{NEAREST}, online", AUROC, "members against outsiders").low > 0.9
    assert score_of(caught, f"{NEAREST}, online", TPR_001).value > 0.5
    assert any(one.group == VULNERABLE and one.value > 0.9 for one in caught.scores if one.measure == AUROC)


def test_a_method_that_reads_nobody_is_not(spared: Section) -> None:
    assert not decide([spared])
    assert "No leak found by these attacks at this power" in said(spared)
    for score in spared.scores:
        if score.measure == AUROC:
            assert score.low - 0.02 < 0.5 < score.high + 0.02
            assert score.power is not None
            assert score.interval


def test_scores_of_every_run_count_as_fewer_where_runs_attack_each_other() -> None:
    """Of two runs the first is attacked from the second and the other way round: of noise both say the same."""
    rng = np.random.default_rng(4)
    noise = [ObservedRun({"φ": rng.normal(size=400)}, rng.random(400) < 0.5) for _ in range(8)]
    assert 1.3 < lira.crowd_of(noise, "φ", 0) < 4


def test_no_false_alarm_over_many_tables() -> None:
    far = []
    for seed in range(5):
        rng = np.random.default_rng([5, seed])
        runs = [ObservedRun({"φ": rng.normal(size=300)}, rng.random(300) < 0.5) for _ in range(7)]
        online, _ = every_run(runs, "φ")
        inside = np.stack([run.inside for run in runs])
        error = np.sqrt(lira.crowd_of(runs, "φ", seed) * (inside.size + 1) / 12 / inside.sum() / (~inside).sum())
        far.append((auroc(inside.ravel().astype(np.int8), online.ravel()) - 0.5) / error)
    assert abs(np.mean(far)) < 5 / np.sqrt(5)
    assert np.max(np.abs(far)) < 4


def test_without_a_way_to_run_again_it_says_how_to_ask() -> None:
    for found in (
        lira.section(home_that_memorised(100), seed=0, threads=1),
        lira.section(home_that_memorised(100), seed=0, threads=1, shadows=0, rerun=remember),
    ):
        assert not found.scores
        words = " ".join(found.notes)
        assert "--shadows N" in words
        assert "no account is charged" in words
        assert "internal/" in words
        assert not decide([found])


def test_each_shadow_condenses_half_of_the_persons_and_no_person_is_torn_apart() -> None:
    frame = small_frame(600).assign(who=np.repeat(np.arange(200), 3).astype(str))
    cohort = Cohort.from_frame(frame, target="died", ignore=["months", "event"], person_id="who", schema=SMALL_TABLE)

    class ByPerson(Kept):
        def split(self, cohort: Cohort) -> Any:
            assert cohort.person is not None
            coin = np.random.default_rng([self.seed, 1]).random(int(cohort.person.max()) + 1) < self.share
            inside = coin[cohort.person]
            whole = super().split(cohort)
            return replace(whole, train=np.flatnonzero(inside), test=np.flatnonzero(~inside))

    seen: list[float] = []

    def rerun(table: Cohort, seed: int) -> Result:
        assert table.person is not None
        assert set(np.bincount(table.person)) <= {0, 3}
        splitting = ByPerson(0.8, seed)
        train = splitting.split(table).train
        seen.append(len(train) / len(cohort))
        return memorised(table, seed=seed).with_details(splitting=splitting)

    inputs = EvaluationInput.from_result(cohort, memorised(cohort).with_details(splitting=ByPerson(0.8, 0)))
    found = lira.section(inputs, seed=0, threads=1, shadows=5, rerun=rerun)
    assert len(seen) == 5
    assert 0.4 < np.mean(seen) < 0.6
    assert "persons, one row of each" in " ".join(found.notes)


def test_shadows_that_fail_or_make_no_rows_are_counted_and_too_few_are_no_attack() -> None:
    inputs = home_that_memorised(200)
    count = iter(range(100))

    def sometimes(cohort: Cohort, seed: int) -> Result:
        k = next(count)
        if k % 3 == 0:
            raise SettingsError("toy", "must not fail", found="a failure")
        made = memorised(cohort, seed=seed)
        rows, labelled = made.details.features, made.details.labelled
        empty = labelled.outcome.take(np.empty(0, np.int64))
        none = made.with_details(features=rows.iloc[:0], labelled=replace(labelled, outcome=empty))
        return none if k % 3 == 1 else made

    few = lira.section(inputs, seed=0, threads=1, shadows=6, rerun=sometimes)
    assert not few.scores
    assert "2 of 6 shadow runs made rows" in few.notes[0]
    found = lira.section(inputs, seed=0, threads=1, shadows=13, rerun=sometimes)
    assert found.settings["shadows"] >= 4


def test_a_run_without_rows_is_not_attacked() -> None:
    inputs = home_that_memorised(100)
    found = lira.section(changed(inputs, rows=inputs.rows[:0]), seed=0, threads=1, rerun=remember)
    assert found.notes[0].startswith("Not attacked")


def test_a_registered_method_runs_again_with_another_seed() -> None:
    with registered():
        cohort = cohort_of(300)
        rerun = lira.rerun_of("uniform", {"ipc": 20})
        one, again, other = rerun(cohort, 1), rerun(cohort, 1), rerun(cohort, 2)
        pd.testing.assert_frame_equal(one.frame, again.frame)
        assert not one.frame.equals(other.frame)
        from tests.toys import UniformOptions

        same = lira.rerun_of("uniform", UniformOptions(ipc=20, seed=5))(cohort, 1)
        pd.testing.assert_frame_equal(one.frame, same.frame)
        found = lira.section(EvaluationInput.from_result(cohort, one), seed=0, threads=1, shadows=4, rerun=rerun)
    assert not decide([found])


def test_a_part_can_be_kept(caught: Section) -> None:
    assert Section.from_dict(caught.to_dict()).to_dict() == caught.to_dict()
    assert {score.measure for score in caught.scores} == set(caught.titles)
