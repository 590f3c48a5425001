"""The most that a theorem lets a membership attack reach, against closed forms and against the best attack there is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import special

from distcondense.evaluation.attacks.ceiling import LEVELS, Ceilings
from distcondense.privacy.accountant import membership_advantage, replay, trade_off
from distcondense.privacy.events import Event
from distcondense.privacy.statement import Privacy


def statement(epsilon: float | None, delta: float | None, **more: Any) -> Privacy:
    return Privacy(more.pop("guarantee", "end-to-end"), "toy", epsilon, delta, "add or remove one row", "toy", **more)


def gaussian(mu: float, *others: Event, delta: float = 1e-6) -> Privacy:
    events = (Event("gaussian", "histogram", ("age",), 8, mu), *others)
    return statement(
        replay(events, delta).epsilon,
        delta,
        ledger=[event.to_dict() for event in events],
        trade_off=tuple(trade_off(events)),
        membership_advantage=membership_advantage(events),
    )


def ceilings(privacy: Privacy) -> Ceilings:
    found = Ceilings.from_privacy(privacy)
    assert found is not None
    return found


def test_what_is_no_theorem_has_no_ceiling() -> None:
    assert Ceilings.from_privacy(statement(None, None, guarantee="none")) is None
    assert Ceilings.from_privacy(statement(1.0, 1e-5, guarantee="as-published", epsilon_at_last_step=2.0)) is None


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_a_pure_epsilon_bounds_true_positives_by_its_two_lines(epsilon: float) -> None:
    found, grown = ceilings(statement(epsilon, 0.0)), math.exp(epsilon)
    for fpr in (0.0, 1e-4, 0.001, 0.01, 0.1, 0.5, 1.0):
        assert found.tpr(fpr) == pytest.approx(min(1.0, grown * fpr, 1 - (1 - fpr) / grown), abs=1e-12)
    # under the lines from (0, 0) to (c, 1 − c) to (1, 1), c = 1/(1 + e^ε)
    assert found.auroc == pytest.approx(grown / (1 + grown), abs=1e-3)
    assert found.auroc >= grown / (1 + grown)
    assert found.advantage == pytest.approx((grown - 1) / (grown + 1))


def test_delta_is_what_may_be_told_without_a_false_alarm() -> None:
    found = ceilings(statement(1.0, 0.05))
    assert found.tpr(0.0) == pytest.approx(0.05)
    assert found.tpr(0.1) == pytest.approx(0.05 + math.e * 0.1)
    assert found.advantage == pytest.approx((math.e - 1 + 0.1) / (math.e + 1))


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.5])
def test_gaussian_answers_have_the_closed_form_of_mu(mu: float) -> None:
    found = ceilings(gaussian(mu))
    assert found.auroc == pytest.approx(special.ndtr(mu / math.sqrt(2)), abs=1e-3)
    assert found.auroc >= special.ndtr(mu / math.sqrt(2))
    assert found.advantage == pytest.approx(2 * special.ndtr(mu / 2) - 1, abs=1e-4)
    for fpr in (0.001, 0.01, 0.1):
        assert found.tpr(fpr) == pytest.approx(special.ndtr(special.ndtri(fpr) + mu), rel=1e-3)
    assert found.tpr(0.0123) >= special.ndtr(special.ndtri(0.0123) + mu)  # between two levels: rounded up


def test_the_curve_is_tighter_than_epsilon_and_delta_alone() -> None:
    privacy = gaussian(1.0)
    alone = ceilings(statement(privacy.epsilon, privacy.delta))
    found = ceilings(privacy)
    assert found.auroc < alone.auroc - 0.1
    assert all(one <= other + 1e-12 for one, other in zip(found.most, alone.most, strict=True))
    stored = ceilings(statement(privacy.epsilon, privacy.delta, trade_off=privacy.trade_off))
    assert found.auroc <= stored.auroc < found.auroc + 0.01  # fewer points of the same curve


def test_choices_are_counted_too() -> None:
    pick = Event("choice", "choice", (), 0, 0.5, picks=2)
    with_picks, without = ceilings(gaussian(0.5, pick)), ceilings(gaussian(0.5))
    assert with_picks.auroc > without.auroc
    assert with_picks.advantage > without.advantage


def test_the_best_attack_reaches_the_ceiling_and_does_not_pass_it() -> None:
    """One Gaussian count with a target in it by a coin: its likelihood ratio is the best attack there is."""
    mu, runs = 1.0, 200_000
    rng = np.random.default_rng(3)
    without, inside = np.sort(rng.standard_normal(runs)), rng.standard_normal(runs) + mu
    found = ceilings(gaussian(mu))
    auroc = float(np.searchsorted(without, inside).mean() / runs)
    assert found.auroc - 0.006 < auroc < found.auroc + 0.005
    for fpr in (0.001, 0.01, 0.1):
        reached = float((inside > without[int((1 - fpr) * runs)]).mean())
        assert reached < found.tpr(fpr) + 5 * math.sqrt(reached / runs / fpr)


def test_earlier_runs_raise_the_ceiling_of_somebody_who_has_them_all() -> None:
    privacy = statement(1.0, 1e-6, epsilon_with_earlier_runs=2.0, advantage_with_earlier_runs=0.6)
    found = ceilings(privacy)
    assert found.with_earlier is not None
    assert found.with_earlier.auroc > found.auroc
    assert found.with_earlier.advantage == 0.6
    unbounded = ceilings(statement(1.0, 1e-6, epsilon_with_earlier_runs="unbounded")).with_earlier
    assert unbounded is not None
    assert unbounded.auroc == unbounded.advantage == unbounded.tpr(0.0) == 1.0
    assert ceilings(statement(1.0, 1e-6)).with_earlier is None


def test_a_risk_beside_a_control_is_bounded_too() -> None:
    found = ceilings(statement(1.0, 0.0))
    assert found.risk(0.1) == pytest.approx((math.e * 0.1 - 0.1) / 0.9)
    assert found.risk(1.0) == 1.0
    with pytest.raises(ValueError, match="fpr"):
        found.tpr(1.5)
    assert np.all(np.diff(LEVELS) > 0)
    assert LEVELS[-1] == 1.0
