"""Tab-PE by hand: votes, variations and choices against the slow twin, its account, its rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distcondense as dc
from benchmarks import peers
from benchmarks.peers.by_hand import BY_HAND, gate_of
from benchmarks.peers.coding import LABEL, Coding
from benchmarks.peers.elsewhere import ELSEWHERE
from benchmarks.peers.tab_pe import TabPE, TabPEOptions, space_of
from distcondense.data.persons import HoldoutSplit
from distcondense.evaluation.audit import stats as st
from distcondense.methods import base as methods
from distcondense.methods.base import method_named, options_of
from distcondense.methods.dp_geng.evolution import Space, Votes, chosen
from distcondense.privacy import noise
from distcondense.privacy.accountant import replay
from distcondense.privacy.budget import Budget
from distcondense.privacy.ledger import Ledger
from tests import naive
from tests.conftest import small_frame
from tests.study.test_study import SCHEMA

SPACE = Space(sizes=(5, 3, 4, 2), numeric=(True, True, False, True), hole=(True, False, False, False))


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    peers.register()
    yield
    for name in [*(method.name for method in (*ELSEWHERE, *BY_HAND)), TabPE.name]:
        methods.forget(name)


def cohort(rows: int = 240, *, survival: bool = False) -> dc.Cohort:
    how: dict[str, Any] = (
        {"time": "months", "event": "event", "ignore": ["died"]}
        if survival
        else {"target": "died", "ignore": ["months", "event"]}
    )
    return dc.Cohort.from_frame(small_frame(rows), schema=SCHEMA, **how)


def test_a_vote_falls_where_the_loop_says() -> None:
    rng = np.random.default_rng(1)
    crowd = [SPACE.drawn(7, rng), SPACE.drawn(4, rng)]
    rows, label = SPACE.drawn(60, rng), rng.integers(0, 2, 60)
    tables = tuple(tuple(SPACE.distances(j, of[:, j]) for j in range(4)) for of in crowd)
    votes = Votes((0, 1, 2, 3, 4), tables)
    codes = np.column_stack([rows, label])
    found = votes.values(codes, {})
    assert found.shape == (60, votes.size) == (60, 11)
    assert (found.sum(1) == 1).all()
    assert set(np.unique(found)) == {0.0, 1.0}  # norm 1: the gate shortens nobody
    for i in range(60):
        before, distances = naive.tab_pe_vote(
            rows[i], label[i], [of.tolist() for of in crowd], SPACE.sizes, SPACE.numeric, SPACE.hole
        )
        place = int(found[i].argmax()) - before
        assert distances[place] == pytest.approx(min(distances))
        assert np.array_equal(votes.values(codes[i : i + 1], {}), found[i : i + 1])  # whoever stands beside it


def test_rows_are_drawn_from_all_public_values_and_vary_within_their_rate() -> None:
    rng = np.random.default_rng(0)
    rows = SPACE.drawn(4000, rng)
    for j, size in enumerate(SPACE.sizes):
        assert set(np.unique(rows[:, j])) == set(range(size))
    assert np.mean(rows[:, 0] == 4) == pytest.approx(0.5, abs=0.05)  # a hole or a number
    for rate in (0.5, 0.01):
        new = SPACE.varied(rows, rate, rng)
        assert np.array_equal(new.max(0), rows.max(0))
        assert np.mean(new[:, 2] != rows[:, 2]) == pytest.approx(rate * 3 / 4, abs=0.05)  # redrawn, some to the same
        number = (rows[:, 0] < 4) & (new[:, 0] < 4)
        assert np.abs(new[number, 0] - rows[number, 0]).max() <= np.round(rate * 3)
        assert np.mean((new[:, 0] == 4) != (rows[:, 0] == 4)) == pytest.approx(rate / 2, abs=0.03)
    assert not np.array_equal(SPACE.varied(rows, 0.5, rng)[:, 1], rows[:, 1])


def test_rows_are_chosen_by_votes_drawn_at_first_and_then_the_best() -> None:
    rng = np.random.default_rng(0)
    votes = np.array([-3.0, 5.0, 0.0, 1.0, 4.0])
    assert chosen(votes, 3, False, rng).tolist() == [1, 4, 3]
    drawn = chosen(votes, 9000, True, rng)
    shares = np.bincount(drawn, minlength=5) / 9000
    assert shares == pytest.approx([0, 0.5, 0, 0.1, 0.4], abs=0.03)
    assert set(chosen(-np.ones(3), 300, True, rng)) == {0, 1, 2}  # noise below 0 everywhere: anyone


def test_variations_become_smaller_as_the_authors_say() -> None:
    options = TabPEOptions()
    for t in range(30):
        assert options.rate(t) == pytest.approx(naive.tab_pe_rate(t, 30, 0.5, 0.01, 0.2))
    assert (options.rate(0), options.rounds, options.first_rate, options.last_rate) == (0.5, 30, 0.5, 0.01)


@pytest.mark.parametrize("survival", [False, True])
def test_the_budget_is_spent_at_the_gate_as_planned(survival: bool) -> None:
    there = cohort(survival=survival)
    method, asked = method_named("tab-pe"), {"ipc": 6, "epsilon": 1.5, "rounds": 8}
    result = dc.condense(there, method="tab-pe", held_out=HoldoutSplit(0.2, 2), threads=1, **asked)
    stated = result.privacy
    assert (stated.guarantee, stated.unit) == ("end-to-end", "row")
    assert 0.99 * 1.5 < replay(stated.events, 1e-5).epsilon <= stated.epsilon * (1 + 1e-6) <= 1.5 * (1 + 1e-6)
    due = method.prepare(there.facts, options_of(method, asked)).planned
    assert [(e.kind, e.query, e.columns, e.cells, e.by, e.unit) for e in due] == [
        (e.kind, e.query, e.columns, e.cells, e.by, e.unit) for e in stated.events
    ]
    assert [e.cost for e in due] == pytest.approx([e.cost for e in stated.events])
    assert len(stated.events) == 7
    assert set(result.frame["event" if survival else "died"].value_counts()) == {6}
    own = [name for name in result.frame if name in SCHEMA.names]
    how: dict[str, Any] = {"time": "months", "event": "event"} if survival else {"target": "died"}
    assert len(dc.Cohort.from_frame(result.frame[own], schema=SCHEMA.only(own), **how)) == 12  # legal rows


def test_killed_between_two_votes_it_goes_on_to_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, how = cohort(), {"method": "tab-pe", "ipc": 4, "rounds": 7, "held_out": HoldoutSplit(0.2, 2), "threads": 1}

    class Killed(BaseException):
        pass

    seen: list[int] = []
    vote = chosen

    def dies(*said: Any) -> Any:
        seen.append(1)
        if len(seen) == 7:
            raise Killed
        return vote(*said)

    monkeypatch.setattr("distcondense.methods.dp_geng.evolution.chosen", dies)
    with pytest.raises(Killed):
        dc.condense(there, out=tmp_path / "run", **how)
    before = (tmp_path / "run/internal").rglob("*.answers")
    assert any(path.stat().st_size for path in before)
    resumed = dc.condense(there, out=tmp_path / "run", resume=True, **how)
    assert len(resumed.privacy.events) == 6  # nobody was asked twice


# -- a broken build is caught -----------------------------------------------------------------------------------------

CLAIM, RUNS, SURE = 4.0, 80, 0.9999


def bound() -> float:
    """The ε that guesses about one row prove at least, from one vote, of an attacker who knows all other rows."""
    there = cohort(61)
    worlds = [there.take(np.arange(60)), there]
    options = TabPEOptions(ipc=4, rounds=2, epsilon=CLAIM)
    coding = Coding.of(there.facts, options.cells)
    space = space_of(coding)
    crowd = [space.drawn(4, np.random.default_rng(3)) for _ in range(2)]
    tables = tuple(tuple(space.distances(j, of[:, j]) for j in range(len(space.sizes))) for of in crowd)
    budget = Budget.calibrate(epsilon=CLAIM, delta=options.delta)

    def answer(world: dc.Cohort) -> Any:
        gate = gate_of(world, coding, options, Ledger(), HoldoutSplit(0.0, 1))
        names = [*(name for name in coding.sizes if name != LABEL), LABEL]
        return gate.mapped(Votes(tuple(gate.names.index(name) for name in names), tables), mu=budget.mu)

    with pytest.MonkeyPatch.context() as quiet:
        quiet.setattr(noise, "discrete_gaussian", lambda sums, scale: sums)
        exact = [answer(world) for world in worlds]
    direction = exact[1] - exact[0]
    assert np.abs(direction).sum() == pytest.approx(1.0, abs=1e-3)  # one vote
    middle, wrong = (exact[0] + exact[1]) @ direction / 2, [0, 0]
    for present, world in enumerate(worlds):
        for _ in range(RUNS):
            wrong[present] += (answer(world) @ direction > middle) != bool(present)
    return st.by_gaussian_rates(st.ErrorCounts(wrong[0], RUNS, wrong[1], RUNS), 1e-5, SURE)


def test_an_attack_on_a_vote_proves_no_more_than_is_claimed_and_finds_a_build_with_a_fifth_of_the_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert bound() <= CLAIM
    real = noise.discrete_gaussian
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: real(sums, scale / 5))
    assert bound() > CLAIM
