"""What private answers cost: exact, by PLD, by Rényi; and that each of them errs to the safe side."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from dataclasses import replace

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from distcondense.errors import BudgetError, SettingsError
from distcondense.privacy import accountant, curves, noise
from distcondense.privacy.accountant import (
    FALSE_ALARMS,
    membership_advantage,
    missed_at,
    replay,
    together,
    trade_off,
    with_earlier,
)
from distcondense.privacy.budget import Budget
from distcondense.privacy.curves import (
    CELLS_MAX,
    COLLISION,
    choice_delta,
    collision_delta,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    grid_delta,
)
from distcondense.privacy.events import Event
from distcondense.privacy.rows import ROWS_ALL_MAX
from tests import naive


def gaussian(cost, cells=16):
    return Event("gaussian", "sums", ("age",), cells, cost)


def choice(cost, picks):
    return Event("choice", "choice", (), picks, cost, picks)


def delta_to_fifty_digits(mu, epsilon):
    with mpmath.workdps(50):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        upper, lower = mpmath.ncdf(mu / 2 - epsilon / mu), mpmath.ncdf(-mu / 2 - epsilon / mu)
        return float(upper - mpmath.exp(epsilon) * lower)


# ---- the Gaussian


@pytest.mark.parametrize("mu", [0.01, 0.1, 0.27, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.03, 0.5, 1.0, 4.0, 20.0])
def test_delta_of_a_gaussian_is_right_to_nine_digits(mu, epsilon):
    truth = delta_to_fifty_digits(mu, epsilon)
    assert gaussian_delta(mu, epsilon) == pytest.approx(truth, rel=1e-9, abs=1e-300)


@given(st.floats(0.005, 6.0), st.floats(-9.0, -1.0))
def test_epsilon_is_the_smallest_that_holds_and_mu_the_largest(mu, exponent):
    delta = 10.0**exponent
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    if epsilon > 0:
        assert gaussian_delta(mu, epsilon * (1 - 1e-7)) > delta
        assert gaussian_mu(epsilon, delta) == pytest.approx(mu, rel=1e-7)
        assert gaussian_delta(gaussian_mu(epsilon, delta), epsilon) <= delta


def test_epsilon_of_a_gaussian_is_the_one_of_dp_accounting():
    for mu in (0.1, 0.27, 1.0, 2.5):
        theirs = dp_accounting.get_epsilon_gaussian(1 / mu, 1e-5)
        assert gaussian_epsilon(mu, 1e-5) == pytest.approx(theirs, rel=1e-6)


# ---- the grid


@pytest.mark.parametrize("scale", [4, 8, 16, 32, 64, 128, 256])
def test_the_discrete_gaussian_is_as_near_the_rounded_one_as_stated(scale):
    k = np.arange(0, 40 * scale + 1)
    mass = np.exp(-(k.astype(float) ** 2) / (2 * scale**2))
    discrete = mass / (2 * mass.sum() - 1)
    rounded = ndtr(-(k - 0.5) / scale) - ndtr(-(k + 0.5) / scale)
    gap = np.abs(discrete - rounded)
    far = (2 * gap.sum() - gap[0]) / 2  # both are symmetric
    assert far <= noise.distance_to_rounded(scale) <= 0.05 / scale**2
    assert far >= 0.98 * 0.02016 / scale**2  # the leading term, E|Z²−1|/(48 s²)


def test_the_reserve_for_the_grid_is_what_the_docstring_says():
    tau = noise.distance_to_rounded(noise.GRID)
    assert grid_delta(1.0) == pytest.approx((1 + math.e) * CELLS_MAX * tau)
    assert grid_delta(20.0) < 1e-5 / 4  # so that ε = 20 at δ = 1e-5 is still answered
    assert math.isinf(grid_delta(1e6))


def test_the_chance_of_a_shared_hash_among_the_most_rows_is_reserved_for_every_run():
    pairs = ROWS_ALL_MAX * (ROWS_ALL_MAX - 1) / 2
    assert pairs * 2.0**-128 + 2**23 * pairs * 2.0**-192 <= COLLISION == 2.0**-48
    assert collision_delta(1.0) == pytest.approx((1 + math.e) * COLLISION)
    assert collision_delta(1.0, 3) == pytest.approx(3 * collision_delta(1.0))
    assert grid_delta(20.0) + collision_delta(20.0) < 1e-5 / 2  # so that ε = 20 at δ = 1e-5 is still answered
    assert math.isinf(collision_delta(1e6))
    one, several = gaussian(0.3), [dataclasses.replace(gaussian(0.1), run=name) for name in "abc"]
    assert replay([one], 1e-5).delta_collisions == pytest.approx(collision_delta(replay([one], 1e-5).epsilon))
    assert replay(several, 1e-5).delta_collisions == pytest.approx(3 * collision_delta(replay(several, 1e-5).epsilon))
    assert replay([choice(0.1, 2)], 1e-5).delta_collisions > 0  # choices read the same rows
    assert replay([], 1e-5).delta_collisions == 0


def test_what_hashes_may_cost_comes_out_of_delta_and_off_the_trade_off_curve(monkeypatch):
    fine, curve = replay([gaussian(0.3)], 1e-5), trade_off([gaussian(0.3)], [0.5])
    advantage = membership_advantage([gaussian(0.3)])
    for name in ("_replay", "_advantage"):
        monkeypatch.setattr(accountant, name, getattr(accountant, name).__wrapped__)
    for module in (accountant, curves):
        monkeypatch.setattr(module, "COLLISION", 1e-6)
    coarse = replay([gaussian(0.3)], 1e-5)
    assert coarse.epsilon > fine.epsilon * 1.005
    assert gaussian_delta(0.3, coarse.epsilon) + collision_delta(coarse.epsilon) <= 1e-5
    assert membership_advantage([gaussian(0.3)]) == pytest.approx(advantage + 2e-6, abs=1e-9)
    assert trade_off([gaussian(0.3)], [0.5])[0][1] < curve[0][1] - 1e-6
    assert Budget.calibrate(epsilon=1.0, delta=1e-5).total_epsilon() <= 1.0
    for module in (accountant, curves):
        monkeypatch.setattr(module, "COLLISION", 1e-5)
    with pytest.raises(BudgetError, match="hashes of rows"):
        Budget.calibrate(epsilon=1.0, delta=1e-5)


def test_the_reserve_comes_out_of_delta_and_raises_epsilon(monkeypatch):
    fine = replay([gaussian(0.3)], 1e-5)
    monkeypatch.setattr(accountant, "_replay", accountant._replay.__wrapped__)  # what is kept knows the fine grid only
    monkeypatch.setattr(curves, "GRID", 2.0**18)  # a coarse grid: the reserve is now a visible part of δ
    coarse = replay([gaussian(0.3)], 1e-5)
    assert 1e-6 < coarse.delta_grid < 1e-4
    assert coarse.epsilon > fine.epsilon * 1.005
    assert gaussian_delta(0.3, coarse.epsilon) + grid_delta(coarse.epsilon) <= 1e-5
    monkeypatch.setattr(curves, "GRID", 2.0**10)
    assert math.isinf(replay([gaussian(0.3)], 1e-5).epsilon)
    with pytest.raises(BudgetError, match="grid of the noise"):
        Budget.calibrate(epsilon=1.0, delta=1e-5)


# ---- choices


@given(
    st.lists(st.tuples(st.floats(-20, 20), st.floats(-1, 1)), min_size=2, max_size=7),
    st.floats(0.01, 4.0),
    st.integers(0, 40),
)
def test_the_logistic_pair_dominates_the_exponential_mechanism(table, pick, step):
    """Scores u and u + change with |change| ≤ 1, P(j) ∝ exp(ε₀u_j/2): bounded range ε₀."""
    scores = [u * pick / 2 for u, _ in table]
    moved = [(u + change) * pick / 2 for u, change in table]
    p, q = (list(naive.peeled(s, 1).values()) for s in (scores, moved))
    epsilon = (step / 20 - 1) * pick
    for a, b in ((p, q), (q, p)):
        assert naive.hockey_stick(a, b, epsilon) <= choice_delta(pick, epsilon) + 1e-12


@pytest.mark.parametrize("pick", [0.1, 1.0, 3.0])
def test_the_logistic_pair_is_reached_by_two_candidates(pick):
    for epsilon in np.linspace(-0.9, 0.9, 7) * pick:
        reached = 0.0
        for gap in np.linspace(-60, 60, 4001):
            p = list(naive.peeled([(gap + 1) * pick / 2, 0.0], 1).values())
            q = list(naive.peeled([gap * pick / 2, pick / 2], 1).values())
            reached = max(reached, naive.hockey_stick(p, q, epsilon))
        assert reached == pytest.approx(choice_delta(pick, epsilon), rel=2e-3)


@pytest.mark.parametrize("epsilon", [710.0, 1e3, 1e6, 1e300])
def test_a_budget_beyond_all_exponents_is_no_overflow(epsilon: float) -> None:
    """Of a method whose own argument takes any ε: e^ε is no float from 710 on."""
    assert gaussian_delta(0.0, epsilon) == choice_delta(1.0, epsilon) == 0.0
    mu = gaussian_mu(epsilon, 1e-5)
    assert 0 < mu < math.inf
    assert gaussian_delta(mu, epsilon) <= 1e-5


def test_two_peeled_picks_cost_no_more_than_two_composed_pairs():
    rng = np.random.default_rng(0)
    pick = 0.8
    pair = curves.composed(0.0, ((pick, 2),))
    bounds = {epsilon: float(pair.get_delta_for_epsilon(epsilon)) for epsilon in (0.0, 0.4, 0.8, 1.2)}
    nearest = 0.0
    for _ in range(400):
        scores, change = rng.normal(0, 3, 4), rng.choice([-1.0, 1.0], 4)
        p = naive.peeled(list(scores * pick / 2), 2)
        q = naive.peeled(list((scores + change) * pick / 2), 2)
        for epsilon, bound in bounds.items():
            true = naive.hockey_stick([p[o] for o in p], [q[o] for o in p], epsilon)
            assert true <= bound + 1e-9
            nearest = max(nearest, true / bound)
    assert nearest > 0.5  # the bound is not true merely because it is far away


@pytest.mark.parametrize("mu", [0.003, 0.05, 0.3, 1.6])
def test_the_gaussian_pld_is_theirs_to_the_bit(mu):
    step = 0.9371e-4
    theirs = pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=step)
    ours = curves._gaussian_pld(mu, step)
    for loss in np.linspace(-3 * mu, mu**2 / 2 + 8 * mu, 20):
        assert ours.get_delta_for_epsilon(float(loss)) == theirs.get_delta_for_epsilon(float(loss))
    assert ours.get_epsilon_for_delta(1e-9) == theirs.get_epsilon_for_delta(1e-9)


@pytest.mark.parametrize(("mu", "pick", "count"), [(0.26, 0.05, 6), (1.7, 0.8, 2), (0.004, 0.3, 40)])
def test_a_gaussian_composed_with_picks_is_theirs_to_the_bit(mu, pick, count):
    gaussian_part, picks = curves._gaussian_pld(mu, 1e-4), curves._pick_pld(pick, 1e-4).self_compose(count)
    ours, theirs = curves._compose(gaussian_part, picks)._pmf_remove, gaussian_part.compose(picks)._pmf_remove
    np.testing.assert_array_equal(ours._probs, theirs._probs)
    assert (ours._lower_loss, ours._infinity_mass) == (theirs._lower_loss, theirs._infinity_mass)
    assert ours._discretization == theirs._discretization
    assert ours._pessimistic_estimate


ACCOUNT = """
import sys
from distcondense.privacy import curves
from distcondense.privacy.dp_library import HEAVY, dp_accounting
curves.composed(0.3, ((0.1, 3),)).get_epsilon_for_delta(1e-6)
assert not set(HEAVY) & set(sys.modules), "SciPy was imported whole"
assert abs(dp_accounting().get_epsilon_gaussian(1.0, 1e-5) - curves.gaussian_epsilon(1.0, 1e-5)) < 1e-6
from scipy import signal, stats
assert stats.norm.cdf(0.0) == 0.5 and len(signal.fftconvolve([1.0, 2.0], [3.0])) == 2
from dp_accounting.pld import privacy_loss_distribution as pld
assert pld.from_laplace_mechanism(1.0).get_epsilon_for_delta(0.0) > 0.9
"""


def test_accounting_imports_two_parts_of_scipy_only_when_it_uses_them():
    done = subprocess.run([sys.executable, "-c", ACCOUNT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("mu", "picks"), [(0.26, ((0.05, 6),)), (0.0, ((0.8, 2),)), (0.5, ((0.01, 1), (0.2, 3)))])
def test_the_deltas_of_all_losses_at_once_are_those_of_their_loop(mu, picks):
    theirs = curves.composed(mu, picks).get_delta_for_epsilon(curves.LOSSES)
    np.testing.assert_allclose(curves.composed_deltas(mu, picks), theirs, rtol=1e-12, atol=1e-15)


def test_the_closed_form_of_a_pick_is_connect_the_dots():
    pick, step = 0.3, 1e-3
    points = range(-300, 301)
    dots = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        step, -300, 300, [choice_delta(pick, i * step) for i in points]
    )
    ours = curves._pick_pld(pick, step)
    epsilons = np.linspace(-0.4, 0.4, 33)
    assert np.allclose(ours.get_delta_for_epsilon(epsilons), dots.get_delta_for_epsilon(epsilons), rtol=0, atol=1e-11)
    for epsilon in epsilons:
        assert float(ours.get_delta_for_epsilon(epsilon)) >= choice_delta(pick, epsilon) - 1e-13


def test_a_pick_off_the_grid_of_losses_is_rounded_up():
    wide = curves._pick_pld(0.30049, 1e-3)
    for epsilon in (0.0, 0.1, 0.2):
        assert float(wide.get_delta_for_epsilon(epsilon)) >= choice_delta(0.30049, epsilon)


def test_opendp_charges_a_choice_what_we_charge():
    scale = 2 * noise.GRID / 0.7
    assert noise.choice_rho(int(noise.GRID), 5, scale) == pytest.approx(5 * 0.7**2 / 8, rel=1e-9)


def test_opendp_charges_a_gaussian_answer_what_we_charge():
    assert noise.gaussian_rho(noise.GRID * 0.3, noise.GRID) == pytest.approx(0.3**2 / 2, rel=1e-12)


# ---- budgets


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 2.5, 8.0, 15.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-7])
def test_a_budget_spends_what_was_asked_and_no_more(epsilon, delta):
    budget = Budget.calibrate(epsilon=epsilon, delta=delta)
    assert budget.total_epsilon() <= epsilon
    assert budget.total_epsilon() >= 0.999 * epsilon
    spent = replay([gaussian(budget.mu * math.sqrt(1 / 700))] * 700, delta)  # shares need not add up to the last bit
    assert 0.999 * epsilon <= spent.epsilon <= epsilon
    assert spent.agree


@pytest.mark.parametrize(
    ("epsilon", "picks", "share"), [(0.5, 10, 0.1), (1.0, 16, 0.2), (2.5, 40, 0.3), (1.0, 1, 0.9), (1.0, 200, 0.5)]
)
def test_a_budget_with_picks_spends_what_was_asked_and_no_more(epsilon, picks, share):
    budget = Budget.calibrate(epsilon=epsilon, delta=1e-5, picks=picks, pick_share=share)
    whole = budget.mu**2 / 2 + picks * budget.pick_epsilon**2 / 8
    assert picks * budget.pick_epsilon**2 / 8 / whole == pytest.approx(share, rel=1e-3)
    assert 0.995 * epsilon <= budget.total_epsilon() <= epsilon
    spent = replay([gaussian(budget.mu), choice(budget.pick_epsilon, picks)], 1e-5)
    assert spent.epsilon == budget.total_epsilon()
    assert spent.agree
    assert spent.picks == picks


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0, "delta": 1e-5},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": math.nan, "delta": 1e-5},
        {"epsilon": 1.0, "delta": 1e-5, "picks": 3},
        {"epsilon": 1.0, "delta": 1e-5, "pick_share": 0.1},
        {"epsilon": 1.0, "delta": 1e-5, "picks": 3, "pick_share": 1.0},
    ],
)
def test_a_budget_that_means_nothing_is_refused(wrong):
    with pytest.raises(SettingsError):
        Budget.calibrate(**wrong)


def test_an_epsilon_beyond_the_grid_is_refused_and_not_rounded():
    with pytest.raises(BudgetError, match="smaller epsilon"):
        Budget.calibrate(epsilon=40.0, delta=1e-5)


# ---- replay


def test_the_order_and_the_slicing_of_answers_do_not_matter():
    rng = np.random.default_rng(1)
    costs = rng.uniform(0.001, 0.05, 60)
    events = [gaussian(float(cost)) for cost in costs] + [choice(0.05, 3), choice(0.05, 2)]
    shuffled = [events[i] for i in rng.permutation(len(events))]
    a, b = replay(events, 1e-5), replay(shuffled, 1e-5)
    assert a == b
    assert a.mu == pytest.approx(math.sqrt(float((costs**2).sum())), rel=1e-12)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
def test_exact_and_pld_agree_and_the_pld_is_never_below(mu):
    found = replay([gaussian(mu / 2)] * 4, 1e-5)
    assert found.epsilon == found.exact_or_rdp
    assert found.exact_or_rdp - 1e-9 <= found.pld <= found.exact_or_rdp * 1.001 + 1e-3
    assert found.agree


def test_two_accountants_that_disagree_are_seen():
    found = replay([gaussian(0.3)], 1e-5)
    assert not replace(found, pld=found.pld * 1.01).agree
    mixed = replay([gaussian(0.3), choice(0.1, 5)], 1e-5)
    assert mixed.agree
    assert not replace(mixed, pld=mixed.gaussian_part * 0.9).agree
    assert not replace(mixed, pld=mixed.exact_or_rdp * 1.3).agree


def test_every_event_raises_epsilon():
    events, last = [], 0.0
    for event in (gaussian(0.1), choice(0.05, 1), gaussian(0.02), choice(0.2, 4), choice(0.05, 1)):
        events.append(event)
        now = replay(events, 1e-5).epsilon
        assert now > last
        last = now


def test_no_event_costs_nothing():
    found = replay([], 1e-5)
    assert (found.epsilon, found.pld, found.exact_or_rdp, found.mu, found.delta_grid) == (0, 0, 0, 0, 0)
    assert membership_advantage([]) == 0
    assert missed_at(trade_off([]), 0.5) == pytest.approx(0.5)


def test_events_survive_json_bit_for_bit():
    for event in (
        Event("choice", "choice", ("größe", "age"), 3, 0.1 + 0.2, 3, 1.0, 2 / 3),
        Event("gaussian", "histogram", ("age",), 3, 0.1, by="stratum", unit="person", run="a1"),
        Event("gaussian", "total", (), 10, 1 / 3, by="hazard"),
    ):
        assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event


def test_an_event_says_in_words_what_was_asked():
    said = [
        Event("gaussian", "histogram", (), 2, 0.1, by="label"),
        Event("gaussian", "histogram", (), 1, 0.1, by="none"),
        gaussian(0.1),
        Event("gaussian", "total", (), 6, 0.1, by="hazard"),
        choice(0.1, 2),
    ]
    assert [event.words for event in said] == [
        "histogram by label",
        "histogram",
        "gradient sums",
        "total of hazard",
        "choice of columns",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "laplace"},
        {"cost": 0.0},
        {"cost": math.nan},
        {"picks": 0},
        {"cells": -1},
        {"extra": 1},
        {"query": "gradient sums"},
        {"query": "choice"},
        {"kind": "choice"},
        {"unit": "family"},
    ],
)
def test_an_event_without_meaning_is_refused(change):
    with pytest.raises(SettingsError):
        Event.from_dict({**gaussian(0.1).to_dict(), **change})


def test_runs_without_a_sum_say_why_in_a_word():
    own, person = gaussian(0.1), Event("gaussian", "sums", (), 4, 0.1, unit="person")
    assert with_earlier([own], [], 1e-5) is None
    assert with_earlier([own], [own], 1e-5) == replay([own, own], 1e-5).epsilon
    assert with_earlier([own], [person], 1e-5) == "different units"
    assert with_earlier([own], [gaussian(100.0)], 1e-5) == "unbounded"
    assert with_earlier([own, choice(0.1, 2)], [gaussian(100.0)], 1e-5) == "unbounded"


# ---- trade-off


def test_the_trade_off_of_gaussian_answers_is_exact():
    curve = trade_off([gaussian(0.6), gaussian(0.8)])
    for alpha, beta in curve[1:-1]:
        assert beta == pytest.approx(float(mpmath.ncdf(-mpmath.sqrt(2) * mpmath.erfinv(2 * alpha - 1) - 1.0)), abs=1e-9)
    assert curve[0] == (0.0, pytest.approx(1.0, abs=1e-6))
    assert curve[-1] == (1.0, 0.0)


def test_choices_can_only_lower_the_trade_off():
    plain, mixed = trade_off([gaussian(0.3)]), trade_off([gaussian(0.3), choice(0.3, 4)])
    lower = [a[1] - b[1] for a, b in zip(plain, mixed, strict=True)][1:-1]
    assert min(lower) > 0
    tiny = trade_off([gaussian(0.3), choice(1e-4, 1)])  # almost no choice: almost the exact curve
    assert max(abs(a[1] - b[1]) for a, b in zip(plain, tiny, strict=True)) < 1e-3


@pytest.mark.parametrize("events", [[gaussian(0.5)], [gaussian(0.3), choice(0.3, 4)]])
def test_the_best_attacker_of_the_curve_has_the_stated_advantage(events):
    best = max(1 - alpha - beta for alpha, beta in trade_off(events, np.linspace(0, 1, 1001)))
    assert best == pytest.approx(membership_advantage(events), abs=1e-4)
    assert best <= membership_advantage(events) + 1e-9


def test_the_curve_has_ten_points_a_decade_at_both_ends():
    alphas = np.array(FALSE_ALARMS)
    assert (alphas[0], alphas[1], alphas[-2], alphas[-1]) == (0, 1e-6, 1 - 1e-6, 1)
    assert (np.diff(alphas) > 0).all()
    assert np.allclose(alphas + alphas[::-1], 1)
    small = alphas[(alphas > 0) & (alphas <= 0.05)]
    assert np.diff(np.log10(small)).max() < 0.11
    assert np.diff(alphas).max() < 0.0103
    assert {1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.5} <= set(FALSE_ALARMS)


def test_members_found_at_one_false_alarm_in_a_thousand_are_not_understated():
    """ε = 5: 2.4%, where chords between equidistant points said 1.1%."""
    mu = gaussian_mu(5.0, 1e-5)
    exact = float(ndtr(mu - 3.090232306167813))
    assert exact == pytest.approx(0.0245, abs=1e-4)
    assert 1 - missed_at(trade_off([gaussian(mu)]), 1e-3) == pytest.approx(exact, rel=1e-6)


@given(st.floats(0.01, 6.0), st.one_of(st.floats(0, 1), st.floats(-9, 0).map(lambda power: 10.0**power)))
def test_a_reading_of_the_stored_curve_is_never_above_the_exact_one(mu, alpha):
    curve = trade_off([gaussian(mu)])
    with mpmath.workdps(40):
        normal = mpmath.inf if alpha == 0 else -mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(alpha) - 1)
        exact = float(mpmath.ncdf(normal - mu))
    assert missed_at(curve, alpha) <= exact + 1e-15
    for near in (alpha, 1 - alpha):  # the mirror image is as exact at the other end
        assert 0 <= missed_at(curve, near) <= 1


def test_a_reading_with_choices_is_never_above_what_the_pairs_allow_at_any_rate():
    events = [gaussian(0.3), choice(0.3, 4)]
    curve, alphas = trade_off(events), np.concatenate([np.logspace(-8, 0, 400), np.linspace(0, 1, 401)])
    exact = [beta for _, beta in trade_off(events, alphas)]
    readings = [missed_at(curve, alpha) for alpha in alphas]
    assert all(reading <= beta + 1e-12 for reading, beta in zip(readings, exact, strict=True))
    assert max(beta - reading for reading, beta in zip(readings, exact, strict=True)) < 0.025  # and not far below


def test_the_advantage_of_a_gaussian_is_its_total_variation():
    assert membership_advantage([gaussian(0.5)]) == pytest.approx(2 * float(ndtr(0.25)) - 1, abs=1e-12)


# ---- runs without a gate


def test_a_read_without_a_gate_has_no_epsilon_and_no_price():
    event = Event.nonprivate("run")
    for events in ([event], [gaussian(0.1), event], [gaussian(0.1), choice(0.2, 3), event]):
        found = replay(events, 1e-5)
        assert math.isinf(found.epsilon)
        assert membership_advantage(events) == 1.0
        assert {beta for _, beta in trade_off(events)} == {0.0}
        assert together(events, 1e-5) == "unbounded"
    assert Event.from_dict(json.loads(json.dumps(event.to_dict(), allow_nan=False))) == event
    assert "without a gate" in event.words


def test_a_read_without_a_gate_is_unbounded_whatever_units_are_beside_it():
    person = replace(gaussian(0.1), unit="person")
    assert with_earlier([person], [Event.nonprivate()], 1e-5) == "unbounded"
    assert with_earlier([person], [gaussian(0.1)], 1e-5) == "different units"


@pytest.mark.parametrize(
    "wrong",
    [{"cost": 0.1}, {"cost": math.inf}, {"query": "sums"}, {"kind": "gaussian"}, {"kind": "choice", "query": "choice"}],
)
def test_a_read_without_a_gate_cannot_be_given_a_price(wrong):
    with pytest.raises(SettingsError, match="event"):
        replace(Event.nonprivate(), **wrong)
