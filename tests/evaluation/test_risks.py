"""Singling out, linking, inferring: formulas against loops; a memorising run is caught, one that knows nothing not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from distcondense import Cohort, Column, Schema
from distcondense.evaluation.attacks import mixed_table as room
from distcondense.evaluation.attacks import risks
from distcondense.evaluation.attacks.mixed_table import Bins, MixedColumn, MixedTable
from distcondense.evaluation.attacks.risks import ALONE, AT_LEAST, AT_MOST, EQUAL, INFER, LINK, Predicates, Rate, Trial
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.leaks import SURELY, decide
from distcondense.evaluation.resampling import one_row_each
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Section
from distcondense.privacy.statement import Privacy
from tests.evaluation_inputs import changed
from tests.leaky import cohort_of, home_that_knows_nothing, home_that_memorised, independent, memorised, said

STATED = Privacy("end-to-end", "toy", 1.0, 1e-6, "add or remove one row", "toy")


@pytest.fixture(scope="module")
def caught() -> Section:
    return risks.section(home_that_memorised(), seed=0, threads=1)


@pytest.fixture(scope="module")
def spared() -> Section:
    return risks.section(home_that_knows_nothing(privacy=STATED), seed=0, threads=1)


def score_of(part: Section, measure: str, group: str) -> Score:
    return next(one for one in part.scores if (one.measure, one.group) == (measure, group))


# -- formulas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "n"), [(0, 30), (7, 30), (30, 30), (990, 2000)])
def test_a_rate_has_wilsons_interval(hits: int, n: int) -> None:
    from scipy import stats

    rate, known = Rate(hits, n), stats.binomtest(hits, n).proportion_ci(method="wilson")
    assert rate.middle - rate.half == pytest.approx(known.low, abs=1e-6)
    assert rate.middle + rate.half == pytest.approx(known.high, abs=1e-6)


def test_a_risk_is_what_members_have_beyond_the_control_and_errors_propagate() -> None:
    trial = Trial(LINK, "any", Rate(300, 400), Rate(100, 400), 0.01)
    a, c = trial.members.middle, trial.control.middle
    assert trial.risk == pytest.approx((a - c) / (1 - c))

    def risk(at: float, beside: float) -> float:
        return (at - beside) / (1 - beside)

    step = 1e-6  # slow twin: derivatives by differences
    by_attack = (risk(a + step, c) - risk(a - step, c)) / (2 * step)
    by_control = (risk(a, c + step) - risk(a, c - step)) / (2 * step)
    slow = math.sqrt((by_attack * trial.members.half) ** 2 + (by_control * trial.control.half) ** 2)
    assert trial.half == pytest.approx(slow, rel=1e-6)


def test_intervals_of_risks_cover_the_truth() -> None:
    rng, covered = np.random.default_rng(1), 0
    for _ in range(2000):
        trial = Trial(LINK, "", Rate(int(rng.binomial(300, 0.3)), 300), Rate(int(rng.binomial(300, 0.2)), 300), 0.0)
        covered += abs(trial.risk - 0.125) <= trial.half
    assert covered / 2000 > 0.925  # 95% ± 5 standard errors


def test_as_much_as_the_power_is_found_four_times_of_five() -> None:
    rng, power = np.random.default_rng(2), Trial(LINK, "", Rate(80, 400), Rate(80, 400), 0.0).power
    members = 0.2 + power * 0.8
    trials = [
        Trial(LINK, "", Rate(int(rng.binomial(400, members)), 400), Rate(int(rng.binomial(400, 0.2)), 400), 0.0)
        for _ in range(2000)
    ]
    assert 0.7 < np.mean([one.score(None, False, 1).luck <= SURELY for one in trials]) < 0.9


def test_an_attack_below_random_guesses_says_so() -> None:
    weak = Trial(INFER, "sex", Rate(30, 100), Rate(20, 100), baseline=0.6)
    assert weak.score(None, False, 10).note == risks.WEAK
    assert Trial(INFER, "sex", Rate(30, 100), Rate(20, 100), baseline=0.3).score(None, False, 10).note != risks.WEAK


def test_few_successes_are_not_told() -> None:
    assert str(Rate(3, 1000)) == "<1.0%"
    assert str(Rate(0, 1000)) == "<1.0%"
    assert str(Rate(30, 1000)) == "3.0%"


# -- predicates, distances, guesses against loops ---------------------------------------------------------------------


def holds(row: Any, terms: list[tuple[int, int, float]]) -> bool:
    for j, sign, value in terms:
        x = float(row[j])
        if sign == EQUAL and not (x == value or (math.isnan(x) and math.isnan(value))):
            return False
        if (sign == AT_MOST and not x <= value) or (sign == AT_LEAST and not x >= value):
            return False
    return True


def mixed_of(seed: int = 0) -> MixedTable:
    rng = np.random.default_rng(seed)
    made = np.column_stack([rng.integers(0, 3, 40), np.round(rng.normal(size=40), 1), rng.integers(0, 2, 40)]).astype(
        float
    )
    made[:4, 1] = np.nan
    column = Column("x", "continuous", low=-5, high=5, missing="indicator")
    spread = float(np.nanmax(made[:, 1]) - np.nanmin(made[:, 1]))
    stage = Column("stage", "categorical", categories=("I", "II", "III"))
    return MixedTable(
        (MixedColumn("stage", False, 1.0, stage), MixedColumn("x", True, spread, column), MixedColumn("y", False, 1.0)),
        made,
    )


def test_predicates_are_counted_as_by_a_loop() -> None:
    mixed, rng = mixed_of(), np.random.default_rng(3)
    table, other = mixed_of(5).made, mixed_of(6).made
    for predicates in (
        risks.univariate(mixed, rng),
        risks.multivariate(mixed, 2, rng),
        risks.random_predicates(mixed, 200, 2, rng),
    ):
        counts = []
        for one in (table, other):
            alone = 0
            for q in range(len(predicates)):
                terms = list(zip(predicates.column[q], predicates.sign[q], predicates.value[q], strict=True))
                alone += sum(holds(row, terms) for row in one) == 1
            assert predicates.alone(one) == alone
            counts.append(alone)
        assert [rate.hits for rate in predicates.on_both(table, other, 0)] == counts
        assert not set(np.unique(predicates.column)) & {2}  # the outcome singles nobody out


def test_guesses_that_hang_on_one_row_count_as_few() -> None:
    """A hundred times the same predicate is one guess, whose rate varies like that of one."""
    table = np.arange(200.0)[:, None]
    one = np.zeros((100, 1))
    same = Predicates(one.astype(np.int64), one.astype(np.int64) + AT_MOST, one)
    ours, theirs = same.on_both(table, table + 1, 0)
    assert (ours.hits, theirs.hits) == (100, 0)
    assert ours.crowd > 50
    assert not Trial(ALONE, "", ours, theirs, 0.0).risk > Trial(ALONE, "", ours, theirs, 0.0).half * 2


def test_distances_and_the_nearest_are_those_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "BLOCK", 120)  # three rows at a time
    mixed, rows = mixed_of(), mixed_of(7).made

    def apart(a: Any, b: Any) -> float:
        number = 1.0 if math.isnan(a[1]) != math.isnan(b[1]) else 0.0
        if not math.isnan(a[1]) and not math.isnan(b[1]):
            number = min(1.0, abs(a[1] - b[1]) / mixed.columns[1].spread)
        return float(a[0] != b[0]) + number

    slow = np.array([[apart(a, b) for b in mixed.made] for a in rows])
    fast = np.concatenate([total for _, total in mixed.apart(rows, [0, 1])])
    np.testing.assert_allclose(fast, slow, atol=1e-6)
    at = mixed.nearest(rows, [0, 1])
    np.testing.assert_allclose(slow[np.arange(len(rows)), at], slow.min(1), atol=1e-6)


def test_inference_is_that_of_a_loop() -> None:
    mixed, rows = mixed_of(), mixed_of(7).made
    hits = risks._each(mixed, rows, np.array([0, 1, 2]))
    for secret, others in ((0, [1]), (1, [0]), (2, [0, 1])):
        total = np.concatenate([one for _, one in mixed.apart(rows, others)])
        for k, row in enumerate(rows):
            near = np.flatnonzero(total[k] <= total[k].min() + 1e-5)[0]
            guess, truth = mixed.made[near, secret], row[secret]
            right = guess == truth or (math.isnan(guess) and math.isnan(truth))
            if secret == 1 and not right and not math.isnan(guess) and not math.isnan(truth):
                right = abs(guess - truth) <= 0.05 * mixed.columns[1].spread
            assert hits[secret][k] == right


def test_cells_are_public_where_the_schema_has_them() -> None:
    mixed = mixed_of()
    stage, number = (Bins.from_column(trait, mixed.made[:, j], 10) for j, trait in enumerate(mixed.columns[:2]))
    assert stage.codes(np.array([0.0, 2.0, 3.0])).tolist() == [0, 2, 3]  # 3: a hole
    assert number.codes(np.array([-5.0, 4.99, np.nan])).tolist() == [0, 9, 10]
    boundless = replace(mixed.columns[1], column=Column("x", "continuous", missing="indicator"))
    assert Bins.from_column(boundless, mixed.made[:, 1], 4).size <= 5


def test_one_row_of_a_person_is_a_target() -> None:
    frame = pd.DataFrame({"x": np.arange(12.0), "who": np.repeat(list("abcd"), 3), "died": [0, 1] * 6})
    schema = Schema((Column("x", "continuous", low=0, high=20), Column("died", "binary", categories=(0, 1))))
    cohort = Cohort.from_frame(frame, target="died", person_id="who", schema=schema)
    inputs = EvaluationInput.from_result(cohort, memorised(cohort, share=0.6))
    sample = inputs.sample(np.arange(12), 12, 0)
    assert sample.person is not None
    chosen = one_row_each(np.arange(len(sample)), sample.person, np.random.default_rng(0))
    assert sorted(sample.person[chosen]) == [0, 1, 2, 3]


# -- the whole --------------------------------------------------------------------------------------------------------


def test_a_memorising_run_is_caught_by_all_three(caught: Section) -> None:
    for measure, group in (
        ("singling_out_risk", "one column"),
        ("linking_risk", "2 and 2 columns"),
        ("inferring_risk", "age"),
        ("inferring_risk", "any, from 3 columns"),
    ):
        score = score_of(caught, measure, group)
        assert score.low > 0.2, measure
        assert score.ceiling is None
    assert decide([caught])
    assert said(caught).startswith("A leak was found")


def test_other_peoples_rows_are_no_leak(spared: Section) -> None:
    assert not decide([spared])
    assert said(spared).startswith("No leak found by these attacks at this power")
    for score in spared.scores:
        assert score.low < 0.1
        assert score.high > -0.1
        assert score.power is not None
        assert 0 < score.power < 1


def test_every_score_has_interval_power_and_the_ceiling_of_its_theorem(spared: Section) -> None:
    for score in spared.scores:
        assert score.low < score.value < score.high
        assert score.interval
        assert score.covered
        if score.measure == "singling_out_risk":
            assert score.ceiling is None
        else:
            assert score.ceiling is not None
            assert 0 <= score.ceiling <= math.e - 1
    assert {score.measure for score in spared.scores} == set(spared.titles)


def test_it_is_the_same_again_and_can_be_kept(caught: Section) -> None:
    again = risks.section(home_that_memorised(), seed=0, threads=2)
    assert again == caught
    assert Section.from_dict(caught.to_dict()).to_dict() == caught.to_dict()


def test_a_time_and_an_event_are_secrets_too() -> None:
    cohort = cohort_of(300, survival=True)
    found = risks.section(EvaluationInput.from_result(cohort, memorised(cohort)), seed=0, threads=1)
    groups = {score.group for score in found.scores if score.measure == "inferring_risk"}
    assert {"outcome: time", "outcome: label"} <= groups
    assert score_of(found, "inferring_risk", "outcome: time").low > 0.3


def test_without_rows_or_held_out_patients_it_says_so() -> None:
    inputs = home_that_memorised(100)
    none = changed(inputs, rows=inputs.rows[:0])
    alone = replace(inputs, split=replace(inputs.split, test=inputs.split.test[:0]))
    few = replace(inputs, split=replace(inputs.split, test=inputs.split.test[:5]))
    for one in (none, alone, few):
        found = risks.section(one, seed=0, threads=1)
        assert not found.scores
        assert found.notes[0].startswith("Not attacked")


def test_columns_beyond_the_bound_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(risks, "COLUMNS", 3)
    found = risks.section(home_that_memorised(200), seed=0, threads=1)
    assert "1 are left out" in " ".join(found.notes)


def test_no_false_alarm_over_many_tables() -> None:
    """Intervals have their level, also where many predicates hang on few rows."""
    above, of = 0, 0
    for seed in range(8):
        cohort = cohort_of(400, seed=100 + seed)
        inputs = EvaluationInput.from_result(cohort, independent(cohort, cohort_of(400, seed=1000 + seed), seed=seed))
        scores = risks.section(inputs, seed=seed, threads=1).scores
        above, of = above + sum(score.low > 0 for score in scores), of + len(scores)
    assert above / of < 0.025 + 5 * math.sqrt(0.025 / of)
