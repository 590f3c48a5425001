"""The choice of columns against a third party: dp-accounting's PLD of the very probabilities, with no theory of ours.

`curves.py` charges every pick as a logistic pair. Here the outcomes of peeled exponential mechanisms on small score
vectors are listed one by one, with their probabilities under both neighbours, and handed to dp-accounting's
`from_two_probability_mass_functions`. What it finds must never be above what is charged.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.special import expit

from distcondense.privacy.curves import choice_delta, composed
from tests import naive

STEP = 1e-4  # dp-accounting's grid of losses
PICKS = (0.05, 0.3, 1.0, 2.5)


def theirs(here: list[float], there: list[float], *, pessimistic: bool) -> Any:
    """dp-accounting's PLD of two lists of probabilities over the same outcomes; both directions."""
    logs = ({k: math.log(p) for k, p in enumerate(side)} for side in (here, there))
    return pld.from_two_probability_mass_functions(
        *logs, value_discretization_interval=STEP, pessimistic_estimate=pessimistic, symmetric=False
    )


def mechanism(scores: Any, pick: float, picks: int) -> list[float]:
    """The probability of every ordered answer: Gumbel noise of scale 2/ε₀ on scores of sensitivity 1."""
    return list(naive.peeled(list(np.asarray(scores, float) * pick / 2), picks).values())


def delta(pair: Any, epsilon: float) -> float:
    return float(pair.get_delta_for_epsilon(epsilon))


def neighbours(rng: np.random.Generator, candidates: int) -> tuple[Any, Any]:
    """Scores, and those of a neighbour: the corners of what one person may do are the worst."""
    scores = rng.choice([0.0, 1.0, 5.0]) * rng.normal(size=candidates)
    return scores, scores + rng.choice([-1.0, 1.0], candidates)


@pytest.mark.parametrize("pick", PICKS)
def test_no_mechanism_costs_more_than_the_pair_that_is_charged(pick: float) -> None:
    rng = np.random.default_rng(int(pick * 100))
    nearest = 0.0
    for candidates, _ in itertools.product((2, 3, 5, 8), range(12)):
        here, there = (mechanism(scores, pick, 1) for scores in neighbours(rng, candidates))
        for pair in (theirs(here, there, pessimistic=False), theirs(there, here, pessimistic=False)):
            for epsilon in np.linspace(-0.9, 1.1, 11) * pick:
                assert delta(pair, epsilon) <= choice_delta(pick, epsilon) + 1e-12
                if abs(epsilon) < pick:
                    nearest = max(nearest, delta(pair, epsilon) / choice_delta(pick, epsilon))
    assert nearest > 0.8  # the neighbours are near the worst there are: half the charge would be refuted


@pytest.mark.parametrize("pick", PICKS)
def test_two_candidates_at_the_worst_gap_reach_the_charge(pick: float) -> None:
    """The two-point mechanism of the proof: logit p = logit q + ε₀, with the q that is worst at this ε."""
    q = expit(np.linspace(-12, 12, 4801))
    p = expit(np.linspace(-12, 12, 4801) + pick)
    for epsilon in np.linspace(-0.8, 0.8, 5) * pick:
        worst = int(np.argmax(p - math.exp(epsilon) * q))
        pair = [float(p[worst]), float(1 - p[worst])], [float(q[worst]), float(1 - q[worst])]
        charge = choice_delta(pick, epsilon)
        assert delta(theirs(*pair, pessimistic=False), epsilon) <= charge + 1e-12
        assert delta(theirs(*pair, pessimistic=True), epsilon) >= charge * 0.999


@pytest.mark.parametrize(("pick", "picks", "candidates"), [(0.1, 2, 4), (0.5, 3, 4), (1.0, 2, 5), (1.5, 3, 5)])
def test_peeled_picks_cost_no_more_than_so_many_pairs_composed(pick: float, picks: int, candidates: int) -> None:
    rng = np.random.default_rng(picks)
    charged = composed(0.0, ((pick, picks),))
    grid = np.linspace(0.0, 1.1, 12) * pick * picks
    bounds = [delta(charged, epsilon) for epsilon in grid]
    nearest = 0.0
    for _ in range(25):
        here, there = (mechanism(scores, pick, picks) for scores in neighbours(rng, candidates))
        for pair in (theirs(here, there, pessimistic=False), theirs(there, here, pessimistic=False)):
            found = [delta(pair, epsilon) for epsilon in grid]
            assert all(one <= bound + 1e-9 for one, bound in zip(found, bounds, strict=True))
            nearest = max(nearest, found[0] / bounds[0])
    assert nearest > 0.5


def test_independent_choices_composed_by_them_cost_no_more_than_composed_by_us() -> None:
    """Their composition of their PLD, four times the worst two-point mechanism, against ours of the logistic pair."""
    pick = 0.6
    p, q = 1 / (1 + math.exp(-pick / 2)), 1 / (1 + math.exp(pick / 2))
    four = theirs([p, 1 - p], [q, 1 - q], pessimistic=False).self_compose(4)
    charged = composed(0.0, ((pick, 4),))
    for epsilon in np.linspace(0, 2.4, 13):
        assert delta(four, epsilon) <= delta(charged, epsilon) + 1e-9
    assert delta(four, 0.0) > 0.8 * delta(charged, 0.0)


def test_a_charge_that_is_too_low_would_be_noticed() -> None:
    here, there = mechanism([0.5, 0.0], 1.0, 1), mechanism([-0.5, 1.0], 1.0, 1)
    assert delta(theirs(here, there, pessimistic=False), 0.0) > choice_delta(0.9, 0.0) + 1e-3
