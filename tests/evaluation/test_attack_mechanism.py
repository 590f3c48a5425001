"""The attack that knows the mechanism: ratios against densities, tracing as well as theory says, ceilings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from distcondense import Cohort, Column, Schema
from distcondense.evaluation.attacks import mechanism
from distcondense.evaluation.attacks.base import AUROC, VULNERABLE
from distcondense.evaluation.attacks.mechanism import likelihood_ratios, noises
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.leaks import decide
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Section
from distcondense.methods.base import Context, method_named, options_of
from distcondense.privacy.events import Event
from distcondense.privacy.statement import Privacy
from tests.evaluation_inputs import changed
from tests.leaky import cohort_of, home_that_knows_nothing, home_that_memorised, memorised, said


def score_of(part: Section, student: str, group: str = "") -> Score:
    return next(one for one in part.scores if (one.student, one.measure, one.group) == (student, AUROC, group))


# -- formulas ---------------------------------------------------------------------------------------------------------


def test_a_cells_ratio_is_that_of_the_densities_with_and_without_the_person() -> None:
    rng = np.random.default_rng(0)
    made, weights = rng.integers(0, 9, (2, 5)).astype(float), rng.random((2, 5)) * 40
    known, noise, stands_for = rng.integers(1, 9, (2, 5)).astype(float), 1.7, 120.0
    found = likelihood_ratios(made, weights, known, noise, stands_for)
    for g in range(2):
        m, r, total = made[g].sum(), known[g].sum(), weights[g].sum()
        n = stands_for * total / weights.sum()
        q, p = weights[g] / total, known[g] / r
        for c in range(5):
            ratio = 0.0
            for k in range(5):
                both = (made[g, k] + known[g, k] + 0.5) / (m + r + 2.5)
                sd = math.sqrt(both * (1 - both) * (1 / m + 1 / r) + (noise / n) ** 2)
                shift = ((k == c) - both) / n
                ratio += stats.norm(p[k] + shift, sd).logpdf(q[k]) - stats.norm(p[k], sd).logpdf(q[k])
            assert found[g, c] == pytest.approx(ratio, rel=1e-9, abs=1e-12)


def test_a_class_that_nobody_has_says_nothing() -> None:
    known = np.array([[3.0, 1.0], [0.0, 0.0]])
    found = likelihood_ratios(np.eye(2), np.eye(2), known, 1.0, 10.0)
    assert found[0].any()
    assert not found[1].any()
    assert np.isfinite(likelihood_ratios(np.zeros((2, 2)), np.zeros((2, 2)), known, 1.0, 0.0)).all()


def test_more_noise_weighs_less() -> None:
    made, known = np.array([[9.0, 1.0]]), np.array([[5.0, 5.0]])
    near, far = (likelihood_ratios(made, made, known, noise, 10.0) for noise in (0.1, 100.0))
    assert np.ptp(near) > 100 * np.ptp(far)


def test_the_noise_is_the_ledgers_smallest_of_a_histogram() -> None:
    events = [
        Event("gaussian", "histogram", ("age",), 8, 0.1, noise=10.0),
        Event("gaussian", "histogram", ("age",), 8, 0.2, noise=5.0),
        Event("gaussian", "histogram", ("stage", "age"), 8, 0.1, noise=9.0, by="none"),
        Event("gaussian", "sums", ("crp",), 8, 0.1, noise=1.0),
    ]
    stated = Privacy("end-to-end", "toy", 1.0, 1e-6, "one row", "toy", ledger=[event.to_dict() for event in events])
    assert noises(stated) == {("age",): 5.0, ("age", "stage"): 9.0}
    assert noises(Privacy("none", "toy", None, None, "none", "none")) == {}


def wide(rows: int, columns: int, seed: int) -> Cohort:
    """Independent yes/no columns, each with its own share, and an outcome that has nothing to do with them."""
    rng = np.random.default_rng(seed)
    share = np.random.default_rng(1).uniform(0.2, 0.8, columns)
    table = pd.DataFrame((rng.random((rows, columns)) < share).astype(int), columns=[f"x{j}" for j in range(columns)])
    schema = Schema(
        (*(Column(name, "binary", categories=(0, 1)) for name in table), Column("y", "binary", categories=(0, 1)))
    )
    return Cohort.from_frame(table.assign(y=rng.integers(0, 2, rows)), target="y", schema=schema)


def test_averages_of_many_columns_trace_members_as_well_as_theory_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dwork et al. 2015: d independent means of n members, r reference rows (of the class): μ² = d/(n(1 + n/r))."""
    monkeypatch.setattr(mechanism, "COLUMNS", 300)
    monkeypatch.setattr(mechanism, "PAIRS", 1)
    cohort = wide(400, 300, 2)
    found = mechanism.section(EvaluationInput.from_result(cohort, memorised(cohort)), seed=0, threads=1)
    n, r = 100, 50  # half of the rows are members, a quarter reference; half of either are of a class
    best = float(special.ndtr(math.sqrt(300 / (n * (1 + n / r))) / math.sqrt(2)))
    score = score_of(found, "columns")
    assert score.low - 0.05 < best < score.high + 0.05
    assert score.low > 0.6
    assert decide([found])


# -- the whole --------------------------------------------------------------------------------------------------------


def test_a_memorising_run_is_caught() -> None:
    found = mechanism.section(home_that_memorised(1500), seed=0, threads=1)
    assert decide([found])
    assert score_of(found, "fine pairs").low > 0.55
    assert score_of(found, "columns").value > 0.5
    assert score_of(found, "fine pairs", VULNERABLE).value > 0.5
    assert {score.measure for score in found.scores} == set(found.titles)


def test_other_peoples_rows_are_no_leak() -> None:
    found = mechanism.section(home_that_knows_nothing(1500), seed=0, threads=1)
    assert not decide([found])
    assert "No leak found by these attacks at this power" in said(found)
    for name in mechanism.ATTACKS:
        score = score_of(found, name)
        assert score.low - 0.02 < 0.5 < score.high + 0.02
        assert score.power is not None
        assert score.ceiling is None


def test_it_takes_every_kind_of_outcome_and_weights() -> None:
    for survival in (False, True):
        cohort = cohort_of(400, survival=survival)
        made = memorised(cohort)
        weights = np.full(len(made.frame), 2.5)
        found = mechanism.section(
            EvaluationInput.from_result(
                cohort, made.with_details(labelled=replace(made.details.labelled, weight=weights))
            ),
            seed=0,
            threads=1,
        )
        assert score_of(found, "fine pairs").value > 0.55
    frame = pd.DataFrame({"x": np.arange(200.0) % 50, "y": np.arange(200.0)})
    schema = Schema((Column("x", "continuous", low=0, high=50), Column("y", "continuous", low=0, high=200)))
    number = Cohort.from_frame(frame, target="y", schema=schema)
    found = mechanism.section(EvaluationInput.from_result(number, memorised(number)), seed=0, threads=1)
    assert [score.student for score in found.scores if score.measure == AUROC] == ["columns", "columns"]  # no pairs


def test_it_is_the_same_again_and_can_be_kept() -> None:
    one, again = (mechanism.section(home_that_memorised(200), seed=3, threads=threads) for threads in (1, 2))
    assert one.to_dict() == again.to_dict()
    assert Section.from_dict(one.to_dict()).to_dict() == one.to_dict()


def test_without_rows_or_people_it_says_so() -> None:
    inputs = home_that_memorised(100)
    for one in (
        changed(inputs, rows=inputs.rows[:0]),
        replace(inputs, split=replace(inputs.split, test=inputs.split.test[:9])),
    ):
        found = mechanism.section(one, seed=0, threads=1)
        assert not found.scores
        assert found.notes[0].startswith("Not attacked")


def test_many_pairs_and_columns_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanism, "PAIRS", 2)
    monkeypatch.setattr(mechanism, "COLUMNS", 3)
    found = mechanism.section(home_that_memorised(200), seed=0, threads=1)
    assert found.settings["pairs"] == 2
    assert "1 are left out" in " ".join(found.notes)


def test_a_private_run_stays_below_its_ceiling(quick_placement: Any) -> None:
    method = method_named("private")
    cohort = cohort_of(4000)  # so many that there is an answer
    options = options_of(method, {"epsilon": 1.0, "ipc": 50, "holdout": 0.3})
    made = method.condense(cohort, method.prepare(cohort.facts, options), Context())[50]
    inputs = EvaluationInput.from_result(cohort, made)
    assert set(noises(inputs.privacy)) & {("age",), ("crp",), ("smoker",), ("stage",)}
    found = mechanism.section(inputs, seed=0, threads=1)
    assert len(inputs.rows)
    for name in mechanism.ATTACKS:
        score = score_of(found, name)
        assert score.ceiling is not None
        assert 0.5 < score.ceiling < 0.75
        assert score.low < score.ceiling
    assert "The ledger names the noise of" in " ".join(found.notes)
