"""Each loss against its naive twin, each derivative against symmetric differences of that twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense.methods.zero_order import objectives
from tests import naive


@st.composite
def survivals(draw):
    """Scores with ties in time, and censoring from none to almost all."""
    m = draw(st.integers(2, 25))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    time = rng.integers(1, draw(st.integers(2, 12)), m).astype(float)
    event = (rng.random(m) < draw(st.floats(0.05, 1.0))).astype(np.int8)
    event[0] = 1
    return rng.normal(scale=draw(st.floats(0.1, 4)), size=m), time, event


@st.composite
def probabilities(draw):
    m = draw(st.integers(1, 25))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    return rng.uniform(0.01, 0.99, m), rng.integers(0, 2, m).astype(np.int8)


@given(probabilities())
def test_bce_is_the_formula_and_its_slope_the_difference_quotient(case):
    p, y = case
    loss, slope = objectives.bce(p, y)
    assert loss == pytest.approx(naive.bce(p, y))
    assert slope == pytest.approx(naive.slope(lambda q: naive.bce(q, y), p, 1e-6), rel=1e-4, abs=1e-6)


@given(survivals())
def test_cox_with_ties_is_the_formula_and_its_slope_the_difference_quotient(case):
    f, time, event = case
    loss, slope = objectives.cox(f, time, event)
    assert loss == pytest.approx(naive.cox(f, time, event), rel=1e-9, abs=1e-9)
    assert slope == pytest.approx(naive.slope(lambda g: naive.cox(g, time, event), f), rel=1e-4, abs=1e-6)


@given(survivals())
def test_cox_does_not_change_when_every_score_moves_alike(case):
    f, time, event = case
    assert objectives.cox(f + 500, time, event)[0] == pytest.approx(
        objectives.cox(f, time, event)[0], rel=1e-6, abs=1e-6
    )
    assert objectives.cox(f, time, event)[1].sum() == pytest.approx(0, abs=1e-8)


def test_cox_is_the_loss_of_lifelines_without_ties():
    import pandas as pd
    from lifelines import CoxPHFitter

    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"x": rng.normal(size=60), "time": rng.permutation(60) + 1.0, "event": rng.integers(0, 2, 60)})
    model = CoxPHFitter().fit(frame, "time", "event")
    ours = objectives.cox(
        model.params_["x"] * frame["x"].to_numpy(), frame["time"].to_numpy(), frame["event"].to_numpy()
    )
    assert -ours[0] == pytest.approx(model.log_likelihood_, rel=1e-6)


@given(survivals())
def test_aft_is_the_formula_and_its_slope_the_difference_quotient(case):
    f, time, _ = case
    loss, slope = objectives.aft(f, time)
    assert loss == pytest.approx(naive.aft(f, time))
    assert slope == pytest.approx(naive.slope(lambda g: naive.aft(g, time), f), rel=1e-4, abs=1e-6)


@given(probabilities(), st.integers(1, 5), st.booleans())
def test_match_is_the_formula_and_leaves_out_strata_nobody_has(case, strata, average):
    f, _ = case
    rng = np.random.default_rng(len(f))
    stratum, real = rng.integers(0, strata, len(f)), rng.uniform(0, 1, strata)
    real[0] = np.nan if strata > 1 else real[0]
    loss, slope = objectives.match(f, stratum, real, average=average)
    assert loss == pytest.approx(naive.match(f, stratum, real, average))
    numeric = naive.slope(lambda g: naive.match(g, stratum, real, average), f, 1e-7)
    assert slope == pytest.approx(numeric, rel=1e-4, abs=1e-5)


@given(probabilities())
def test_the_composite_gives_the_match_loss_its_share_and_holds_alpha_constant(case):
    p, y = case
    real = np.array([0.2, 0.7])
    whole = objectives.Composite(lambda f: objectives.bce(f, y), y.astype(int), average=False, rho=0.1)
    loss, slope = whole(p, real)
    supervised, matched = naive.bce(p, y), naive.match(p, y, real, False)
    assert loss == pytest.approx(naive.composite(supervised, matched, 0.1))
    alpha = supervised / (matched + 1e-8) / 9
    frozen = naive.slope(lambda q: naive.bce(q, y) + alpha * naive.match(q, y, real, False), p, 1e-7)
    assert slope == pytest.approx(frozen, rel=1e-3, abs=1e-4 * max(1, alpha))


def test_a_share_of_zero_switches_the_match_loss_off():
    y = np.array([0, 1], np.int8)
    alone = objectives.Composite(lambda f: objectives.bce(f, y), y.astype(int), average=False, rho=0.0)
    p = np.array([0.3, 0.6])
    assert alone(p, np.array([0.9, 0.1]))[0] == objectives.bce(p, y)[0]


def test_a_sure_and_wrong_model_gives_a_finite_slope():
    loss, slope = objectives.bce(np.array([0.0, 1.0]), np.array([1, 0], np.int8))
    assert np.isfinite(loss)
    assert np.isfinite(slope).all()
