"""What noise of several sites costs, checked against exact sums of discrete Gaussians."""

from __future__ import annotations

import math
from pathlib import Path

import mpmath
import numpy as np
import pytest

from distcondense.arrays import Floats
from distcondense.data.cohort import Facts
from distcondense.data.outcome import Goal
from distcondense.errors import SettingsError
from distcondense.federated.accounting import Sharing
from distcondense.federated.agreement import prepared_for
from distcondense.federated.coordinator import summed_table
from distcondense.methods.private.options import PrivateOptions
from distcondense.privacy import noise
from distcondense.privacy.accountant import replay
from distcondense.privacy.curves import CELLS_MAX, gaussian_delta
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.noise import GRID, distance_of_sum, distance_to_rounded
from tests.federated.sites import Hall, described, patients


def masses(variance: float, reach: int) -> Floats:
    """The discrete Gaussian on −reach … reach."""
    at = np.arange(-reach, reach + 1)
    held = np.exp(-(at**2) / (2 * variance))
    return np.asarray(held / held.sum(), np.float64)


def summed(parts: int, scale: float, reach: int) -> Floats:
    """The sum of so many with joint deviation `scale`, by convolution."""
    one = masses(scale**2 / parts, reach)
    total = one
    for _ in range(parts - 1):
        total = np.convolve(total, one)
    middle = len(total) // 2
    return np.asarray(total[middle - reach : middle + reach + 1], np.float64)


@pytest.mark.parametrize(("parts", "scale"), [(2, 0.8), (2, 1.2), (3, 1.3), (5, 1.8), (4, 2.4)])
def test_a_sum_of_discrete_gaussians_is_as_near_to_one_as_is_charged(parts: int, scale: float) -> None:
    """By exact convolution in 60 digits: of every probability the log ratio, and so the total variation."""
    with mpmath.workdps(60):
        reach = int(9 * scale)
        each = mpmath.mpf(scale) ** 2 / parts
        one = {k: mpmath.exp(-(k**2) / (2 * each)) for k in range(-4 * reach, 4 * reach + 1)}
        norm = sum(one.values())
        total = {k: value / norm for k, value in one.items()}
        for _ in range(parts - 1):
            grown: dict[int, mpmath.mpf] = {}
            for k in range(-2 * reach, 2 * reach + 1):
                grown[k] = sum(total.get(k - j, mpmath.mpf(0)) * value for j, value in one.items()) / norm
            total = grown
        whole = mpmath.mpf(scale) ** 2
        target = {k: mpmath.exp(-(k**2) / (2 * whole)) for k in range(-9 * reach, 9 * reach + 1)}
        norm = sum(target.values())
        bound = distance_of_sum(parts, scale)
        furthest = max(abs(mpmath.log(total[k] * norm / target[k])) for k in range(-int(4 * scale), int(4 * scale) + 1))
        apart = sum(abs(total[k] - target[k] / norm) for k in range(-reach, reach + 1)) / 2
    assert 0 < furthest <= bound
    assert apart <= bound


def test_the_room_in_the_reserve_of_one_gate_is_far_more_than_a_sum_of_a_thousand_needs() -> None:
    """τ counts √6 where 1.51 would do; the sum's distance underflows float64 by 10¹⁵ digits."""
    with mpmath.workdps(30):
        density = lambda x: mpmath.npdf(x) * abs(x**3 - 3 * x)  # noqa: E731
        exact = mpmath.quad(density, [-30, -math.sqrt(3), 0, math.sqrt(3), 30])
        room = (mpmath.sqrt(6) - exact) / GRID / (48 * mpmath.mpf(GRID) ** 2)
        needed = 10 * 999 * mpmath.exp(-(mpmath.pi**2) * mpmath.mpf(GRID) ** 2 / 1000)
    assert abs(exact - 1.51) < 0.01
    assert needed < room * mpmath.mpf(10) ** -(10**15)
    assert Sharing(1000, 0).delta_reserved
    assert CELLS_MAX * distance_to_rounded(GRID, 1000) == CELLS_MAX * distance_to_rounded(GRID)


@pytest.mark.parametrize(("sites", "colluding", "hospitals"), [(3, 1, 1), (5, 2, 1), (5, 1, 3)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_the_honest_sites_noise_costs_what_is_charged_by_two_ways(
    sites: int, colluding: int, hospitals: int, epsilon: float
) -> None:
    """On a grid of 24 steps: the exact hockey stick of the honest sum is that of a Gaussian of the charged μ."""
    grid, mu = 24.0, 0.4
    sharing = Sharing(sites, colluding, hospitals)
    charged = sharing.cost(mu)
    scale = sharing.scale / GRID * grid  # of one site, on that grid
    moved = sharing.limit(mu) / GRID * grid * hospitals  # by a person at all those sites
    honest, reach = sharing.honest, 1200
    assert scale * math.sqrt(honest) == pytest.approx(grid)
    held = summed(honest, grid, reach)
    step = math.floor(moved)
    exact = np.maximum(held[step:] - math.exp(epsilon) * held[: len(held) - step], 0).sum()
    by_curve = gaussian_delta(step / grid, epsilon)
    apart = (1 + math.exp(epsilon)) * distance_to_rounded(grid, honest)
    assert exact <= by_curve + apart
    assert exact >= by_curve - apart  # and it costs no less
    assert moved == pytest.approx(charged * grid)


def test_the_total_noise_is_what_the_plan_counts_with_and_the_price_that_of_the_honest_part() -> None:
    sharing = Sharing(5, 2, 3)
    mu = 0.25
    spread = sharing.scale * math.sqrt(sharing.sites) / sharing.limit(mu)  # in rows
    assert spread == pytest.approx(1 / mu)
    assert sharing.cost(mu) == pytest.approx(3 * mu * math.sqrt(5 / 3))
    assert sharing.alone == pytest.approx(math.sqrt(3))


@pytest.mark.parametrize("sharing", [Sharing(2, 0), Sharing(5, 1), Sharing(4, 1, 2)])
def test_everything_that_is_planned_costs_what_was_agreed(sharing: Sharing) -> None:
    schema, reading = described("died")
    facts = Facts.from_goal(Goal.from_roles(**reading), schema, person_id="who")
    prepared = prepared_for(facts, PrivateOptions(epsilon=1.0, ipc=5), sharing)
    total = replay(prepared.planned, 1e-5)
    assert 0.97 < total.epsilon <= 1.0
    assert total.agree
    assert total.picks == 0
    assert {event.sensitivity for event in prepared.planned if event.query == "histogram"} == {float(sharing.hospitals)}
    assert all(event.noise == pytest.approx(event.sensitivity / event.cost) for event in prepared.planned)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((1, 0), "sites"), ((3, 2), "colluding"), ((3, -1), "colluding"), ((3, 1, 4), "hospitals"), ((3, 1, 0), "hosp")],
)
def test_what_cannot_be_shared_is_refused(arguments: tuple[int, ...], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Sharing(*arguments)


def test_a_site_draws_its_part_where_all_noise_is_drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: list[float] = []

    def seen(exact: Floats, scale: float) -> Floats:
        drawn.append(scale)
        return exact

    monkeypatch.setattr(noise, "discrete_gaussian", seen)
    hall = Hall(tmp_path, [patients(40, 1), patients(40, 2), patients(40, 3)], colluding=1)
    summed_table(hall.rows(), Ledger()).histogram((0,), by="label", mu=0.3)
    assert drawn == [pytest.approx(GRID / math.sqrt(2))] * 3
