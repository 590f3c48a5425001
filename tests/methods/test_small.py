"""Small tables: what the histograms say before the rounds, and how many cells so few rows can bear."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense.data.cells import FINE, MICRO, public_cells
from distcondense.data.outcome import Outcome
from distcondense.data.schema import Column, Schema
from distcondense.methods.private import fit
from distcondense.methods.private.domain import even_cells, found_cells
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.plan import OWN_GROUPS, Plan
from distcondense.methods.private.smoothing import prior_kernels, smooth
from distcondense.methods.private.uncertainty import _multinomial, _zero_sum, stands_out
from distcondense.outcomes.base import Kind
from distcondense.outcomes.binary import STEP, Binary
from distcondense.outcomes.continuous import Continuous
from distcondense.outcomes.measures import auroc
from distcondense.outcomes.multiclass import Multiclass
from distcondense.outcomes.private_side import GroupCounts
from distcondense.outcomes.survival import Survival
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from tests.privacy.test_answers import fixed_noise as fixed_noise
from tests.privacy.test_answers import side_of

BINARY = Binary(("y",))
TWO: dict[str, Kind] = {
    "binary": BINARY,
    "survival": Survival(("t", "y"), time=Column("t", "continuous", low=0, high=9)),
}


def steps(kind: Kind, held: Any, noise: float, shares: Any, facts: Any = None, most: int = 60) -> Any:
    """(S, cells) where Newton's steps on histograms lead without any prior, of no more than 1 each."""
    side, held = side_of(kind), np.asarray(held, np.float64)
    table = np.zeros((side.objective.scores, held.shape[1]))
    for _ in range(most):
        precision, information, *_ = side.histogram_step(  # type: ignore[misc]
            held, np.full(held.shape[1], noise), np.asarray(shares), table, facts or {}
        )
        table = table + np.clip(side.settled(information / precision) - table, -1, 1)
    return table


# ---- what the histograms say


@given(st.lists(st.tuples(st.integers(5, 300), st.integers(5, 300)), min_size=2, max_size=5))
def test_the_histograms_alone_find_the_log_odds_of_a_cell(rows: list[tuple[int, int]]) -> None:
    held = np.array(rows, np.float64).T
    share = held.sum(1) / held.sum()
    wanted = np.log(held[1] / held[0]) - np.log(share[1] / share[0])
    assert steps(BINARY, held, 1e-6, share)[0] == pytest.approx(wanted, abs=STEP / 2 + 1e-6)  # scores are in steps


@given(st.lists(st.tuples(*[st.integers(20, 200)] * 3), min_size=2, max_size=4))
def test_the_histograms_alone_find_the_scores_of_several_classes(rows: list[tuple[int, ...]]) -> None:
    held = np.array(rows, np.float64).T
    logs = np.log(held) - np.log(held.sum(1, keepdims=True))
    kind = Multiclass(("y",), ("a", "b", "c"))
    assert steps(kind, held, 1e-6, held.sum(1) / held.sum(), most=300) == pytest.approx(logs - logs.mean(0), abs=1e-3)


@given(st.lists(st.tuples(st.integers(5, 300), st.integers(5, 300)), min_size=2, max_size=5))
def test_the_histograms_alone_find_the_hazard_of_people_followed_alike(rows: list[tuple[int, int]]) -> None:
    held = np.array(rows, np.float64).T
    share = held.sum(1) / held.sum()
    wanted = np.log(-np.log(held[0] / held.sum(0))) - np.log(-np.log(share[0]))
    assert steps(TWO["survival"], held, 1e-6, share)[0] == pytest.approx(wanted, abs=1e-6)


def test_the_histograms_alone_find_the_mean_of_a_number() -> None:
    kind = Continuous(("y",), Column("y", "continuous", low=-20.0, high=20.0))
    held = np.array([[30.0, 0.0], [10.0, 10.0], [0.0, 30.0]])
    found = steps(kind, held, 1e-6, held.sum(1) / held.sum(), {"means": (-1.0, 0.0, 1.0), "dispersion": 1.0})
    assert found[0] == pytest.approx([-0.75, 0.75])


@pytest.mark.parametrize("kind", TWO.values(), ids=TWO)
def test_noise_in_a_histogram_is_less_to_be_believed_and_empty_cells_do_no_harm(kind: Kind) -> None:
    side, shares = side_of(kind), np.array([0.8, 0.2])
    held = np.array([[80.0, -30.0, 0.0], [20.0, 5.0, -40.0]])
    told = [side.histogram_step(held, np.full(3, noise), shares, np.zeros((1, 3)), {}) for noise in (1.0, 400.0)]
    assert all(np.all(np.isfinite(part)) for one in told for part in one)  # type: ignore[union-attr]
    assert told[0][0][0, 0] > 5 * told[1][0][0, 0]  # type: ignore[index]


# ---- cells


def test_the_cells_of_a_number_grow_with_the_noisy_rows() -> None:
    for columns in (5, 40):
        plan = Plan.for_table(columns, side_of(BINARY))
        budget = plan.budget(1.0, 1e-5)
        for share in (0.0, 0.01, 1.0):  # of a rare group: few of its rows do not make cells coarser than all rows need
            rows = (-100.0, 0.0, 500.0, 5000.0, 5e4, 5e5)
            many = [plan.number_cells(budget, n, share * n, 2) for n in rows]
            assert many == sorted(many)
            assert (many[0], many[-1]) == (16, FINE)
        assert plan.number_cells(budget, 5e3, 5e3, 2) > plan.number_cells(budget, 5e3, 0.0, 2)


@given(st.integers(1, 300), st.integers(1, 40), st.booleans())
def test_even_cells_are_neighbours_joined_as_many_in_each(high: int, most: int, hole: bool) -> None:
    column = Column("x", "integer", low=0, high=high, missing="indicator" if hole else "refuse")
    cells = public_cells(Schema((column,)), fine=512)[0]
    found, merge = even_cells(cells, most)
    inner = cells.size - cells.hole
    assert found.size - found.hole == min(most, inner)
    assert found.hole == cells.hole
    assert merge.tolist() == sorted(merge)
    many = np.bincount(merge[:inner])
    assert many.max() - many.min() <= 1
    values = pd.Series(np.arange(high + 1))
    assert found.codes(values).tolist() == merge[cells.codes(values)].tolist()


def test_cells_follow_rows_that_are_seen_and_are_even_where_noise_hides_them() -> None:
    cells = public_cells(Schema((Column("x", "continuous", low=0, high=1000),)), MICRO)[0]
    rng = np.random.default_rng(0)
    for sigma, narrow in ((5.0, True), (300.0, False)):
        codes = cells.codes(pd.Series(rng.uniform(200, 300, 2000)))

        def count(starts: Any, codes: Any = codes, sigma: float = sigma) -> Any:
            there = np.bincount(np.searchsorted(starts, codes, side="right") - 1, minlength=len(starts))
            return there + sigma * rng.normal(size=len(starts))

        found, _ = found_cells(cells, count, sigma, 2000.0, 16)
        inside = np.count_nonzero((found.cuts > 200) & (found.cuts < 300))
        assert (inside > 5) == narrow
        assert narrow or np.ptp(np.diff(found.cuts)) < 2


@pytest.mark.parametrize(
    ("kind", "held", "rare"),
    [
        (BINARY, [950, 50], 50.0),
        (Survival(("t", "y"), time=Column("t", "continuous", low=0, high=9)), [100, 900], 900.0),
        (Multiclass(("y",), ("a", "b", "c")), [600, 300, 100], 200.0),
    ],
    ids=["binary", "survival", "multiclass"],
)
def test_cells_are_counted_by_the_rows_of_a_rare_group(kind: Kind, held: list[int], rare: float) -> None:
    side = side_of(kind)
    assert fit._told(side, {"counted": GroupCounts(np.array(held, np.float64), 1.0)}) == pytest.approx((1000, rare))
    assert fit._told(side, {}) == (0.0, None)


def test_a_number_s_strata_are_as_rare_as_each_other() -> None:
    side = side_of(Continuous(("y",), Column("y", "continuous", low=-20.0, high=20.0)))
    assert fit._told(side, {"rows": 1000.0}) == pytest.approx((1000, 1000 / (side.groups - 1)))


@pytest.mark.parametrize("rows", [60, 4000])
def test_few_rows_are_asked_what_was_planned(rows: int) -> None:
    """Fewer cells change no question's cost, none is left out but those about pairs, and sums get what these leave."""
    schema = Schema((Column("x", "continuous", low=0, high=1000), Column("z", "integer", low=0, high=90)))
    cells, side, rng = public_cells(schema, MICRO), side_of(BINARY), np.random.default_rng(rows)
    plan = Plan.for_table(2, side, cells)
    budget, ledger = plan.budget(1.0, 1e-5), Ledger()
    codes = np.stack([rng.integers(one.size, size=rows) for one in cells], axis=1)
    table = PrivateTable(
        codes,
        [one.size for one in cells],
        {"label": rng.integers(2, size=rows).astype(np.int8)},
        names=schema.names,
        objective=side.objective,
        budget=budget,
        ledger=ledger,
    )
    fit_private(table, cells, plan, side)

    planned = plan.events(budget, cells, side, "row")
    pairs = sum(one.query == "choice" for one in ledger.events) > 0
    kept = [one for one in planned if pairs or (one.query != "choice" and one.cells != OWN_GROUPS**2)]
    due = sorted((one.kind, one.cost) for one in kept if one.query != "sums")
    assert sorted((one.kind, one.cost) for one in ledger.events if one.query != "sums") == due
    assert table.spent().mu == pytest.approx(budget.mu, rel=1e-9)


# ---- a class that hardly anybody is in


def test_gradients_of_several_classes_drawn_by_chance_add_up_and_have_their_variances() -> None:
    n, p = 1000, np.array([[0.5, 0.6], [0.499, 0.3], [0.001, 0.1]])
    hessian = n * p * (1 - p)
    share, held = _multinomial(hessian)
    drawn = _zero_sum(np.sqrt(held)[:, None] * np.random.default_rng(1).normal(size=(3, 20_000, 2)), share)
    assert np.abs(drawn.sum(0)).max() < 1e-9
    assert drawn.var(1) == pytest.approx(hessian, rel=0.25)


def test_what_chance_sometimes_makes_is_no_evidence_though_it_is_far_from_what_it_mostly_makes() -> None:
    chance = np.append(np.zeros(97), [90.0, 100.0, 110.0])
    assert (80 - chance.mean()) / chance.std() > 4
    assert stands_out(80.0, chance, 1.0) < 2
    assert stands_out(400.0, chance, 1.0) == pytest.approx((400 - chance.mean()) / np.hypot(chance.std(), 1.0))
    even = np.random.default_rng(0).normal(size=1000)
    assert stands_out(3.0, even, 2.0) == pytest.approx(3 / np.sqrt(5), abs=0.1)


# ---- no worse than what histograms by class alone would give


def small_table(rows: int, rng: np.random.Generator) -> tuple[pd.DataFrame, Any]:
    """Ten columns, of which four say something; two of these say the same."""
    x = rng.normal(size=(rows, 10))
    x[:, 3] = 0.7 * x[:, 0] + 0.7 * x[:, 3]
    risk = 1.2 * x[:, 0] + np.abs(x[:, 1]) + 0.8 * (x[:, 2] > 0) - 2
    label = (rng.random(rows) < 1 / (1 + np.exp(-risk))).astype(np.int8)
    return pd.DataFrame(np.clip(x, -4, 4), columns=[f"c{j}" for j in range(10)]), label


@pytest.mark.usefixtures("fixed_noise")
def test_the_private_model_of_a_small_table_is_not_behind_naive_bayes() -> None:
    """The same table, ten draws of noise: the posterior of histograms by class that have all of the budget."""
    schema = Schema(tuple(Column(f"c{j}", "continuous", low=-4, high=4) for j in range(10)))
    (frame, label), (fresh, truth) = (small_table(rows, np.random.default_rng(rows)) for rows in (1000, 3000))
    side, found = side_of(BINARY), []
    outcome = Outcome(BINARY, {"label": label})
    for _ in range(10):
        scores = []
        for fine, own in ((MICRO, True), (16, False)):
            cells = public_cells(schema, fine)
            plan = Plan.for_table(10, side, cells)
            budget = plan.budget(1.0, 1e-5)
            codes = np.stack([one.codes(frame[one.column.name]) for one in cells], axis=1)
            table = PrivateTable(
                codes,
                [one.size for one in cells],
                outcome.arrays,
                names=schema.names,
                objective=side.objective,
                budget=budget,
                ledger=Ledger(),
            )
            if own:
                model = fit_private(table, cells, plan, side).model
                scores.append(auroc(truth, model.margin(model.codes(fresh))))
                continue
            odds, mu = np.zeros(len(fresh)), budget.mu / np.sqrt(len(cells))
            for j, one in enumerate(cells):
                counts = np.maximum(table.histogram((j,), by="label", mu=mu), 0) + 0.5 / mu
                logs = np.log(counts / counts.sum(1, keepdims=True))
                odds += (logs[1] - logs[0])[one.codes(fresh[one.column.name])]
            scores.append(auroc(truth, odds))
        found.append(scores)
    private, naive_bayes = np.mean(found, axis=0)
    assert private > naive_bayes + 0.01, (private, naive_bayes)


def test_looking_at_the_histograms_asks_nothing() -> None:
    """A function of noisy counts and public shapes: no gate is given."""
    side, merge = side_of(BINARY), np.arange(4)
    count = np.array([[50.0, 40, 30, 20], [10, 20, 30, 40]])
    told = fit._looked(side, count, 3.0, merge, np.array([0.58, 0.42]), {}, prior_kernels(4, True, False))
    assert told is not None
    table = smooth(told[0], told[1], prior_kernels(4, True, False))[0]
    assert np.all(np.diff(table) > 0)
