"""Rows that hang together: the forest, raking and drawing against exact tables, and which pairs are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from distcondense.arrays import Floats, Index
from distcondense.data.cells import public_cells
from distcondense.data.schema import Column, Schema
from distcondense.methods.private import joint as joints
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.joint import Joint, PairAnswer, PairTable, ask_pairs, coarse_cells, shape_of
from distcondense.methods.private.plan import PairPlan, Plan
from distcondense.outcomes.binary import Logistic
from distcondense.privacy import noise
from distcondense.privacy.accountant import replay
from distcondense.privacy.budget import Budget
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from tests.methods.test_additive import FEATURES, KINDS, gate_of, outcome_of, side_of, simulated

FINE = (5, 4, 3)  # fine cells of three columns
COARSE = (np.array([0, 0, 1, 1, 2]), np.array([0, 1, 1, 2]), np.array([0, 1, 2]))  # and their coarse ones
SHARES = np.array([0.7, 0.3])
ROWS = 33_000


def fine_marginals(seed: int = 0) -> list[Floats]:
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.full(size, 3.0), 2) for size in FINE]


def true_joint(start: Joint, seed: int = 1) -> Floats:
    """(2, 3, 3, 3) a distribution of three coarse columns by group, with the marginals of `start`."""
    law = np.random.default_rng(seed).gamma(0.7, 1.0, (2, 3, 3, 3))
    for _ in range(400):
        for column, held in enumerate(start.marginals):
            axes = tuple(axis for axis in (1, 2, 3) if axis != column + 1)
            shape = [2, 1, 1, 1]
            shape[column + 1] = 3
            law = law * (held / law.sum(axes)).reshape(shape)
    return law


def known(*, more: bool = True) -> tuple[Joint, list[Floats], Floats]:
    """A model that was told the true tables of (0, 1) and (1, 2), and (0, 2) beside them."""
    fine = fine_marginals()
    start = Joint.independent(fine, SHARES, COARSE)
    law = true_joint(start)
    held = start.with_forest({(0, 1): PairTable.whole(law.sum((0, 3))), (1, 2): PairTable.whole(law.sum((0, 1)))})
    beside = {(0, 2): PairTable.whole(law.sum((0, 2)))} if more else {}
    return Joint(held.coarse, held.marginals, held.forest, beside), fine, law


def frequencies(group: Index, cell: list[Index] | Index) -> Floats:
    """(2, 3, 3, 3) shares of rows."""
    out = np.zeros((2, 3, 3, 3))
    np.add.at(out, (group, *(np.asarray(one) for one in cell)), 1 / len(group))
    return out


def by_enumeration(model: Joint) -> Floats:
    """(2, 3, 3, 3) the law of the forest (0, 1), (1, 2): every cell on its own, P(g, a, b)·P(c | g, b)."""
    out = np.zeros((2, 3, 3, 3))
    for g, a, b, c in np.ndindex(out.shape):
        given = model.forest[1, 2][g, b]
        out[g, a, b, c] = model.forest[0, 1][g, a, b] * given[c] / given.sum()
    return out


def error(rows: int) -> float:
    """Five standard deviations of a share of so many independent rows, at most."""
    return 5 * 0.5 / np.sqrt(rows)


# ---- the model


def test_independent_columns_have_their_marginals_in_coarse_cells() -> None:
    fine = fine_marginals()
    model = Joint.independent(fine, SHARES, COARSE)
    for p, where, held in zip(fine, COARSE, model.marginals, strict=True):
        for g in (0, 1):
            for k in range(3):
                assert held[g, k] == pytest.approx(SHARES[g] * sum(p[g, f] for f in np.flatnonzero(where == k)))
    table = model.expected(0, 2)
    assert table.sum() == pytest.approx(1)
    for g, a, c in np.ndindex(table.shape):
        assert table[g, a, c] == pytest.approx(model.marginals[0][g, a] * model.marginals[2][g, c] / SHARES[g])


def test_a_table_of_the_forest_has_the_told_pair_and_both_marginals_in_every_group() -> None:
    model, _, law = known()
    for (i, j), table in model.forest.items():
        np.testing.assert_allclose(table.sum(0), law.sum((0, 3) if (i, j) == (0, 1) else (0, 1)), atol=1e-4)
        np.testing.assert_allclose(table.sum(2), model.marginals[i], atol=1e-4)
        np.testing.assert_allclose(table.sum(1), model.marginals[j], atol=1e-12)  # fitted last


def test_rows_of_the_forest_have_the_law_that_enumeration_gives() -> None:
    model, _, _ = known(more=False)
    found = frequencies(*model.coarse_rows(ROWS, np.random.default_rng(2)))
    np.testing.assert_allclose(found, by_enumeration(model), atol=error(ROWS) / 2)
    np.testing.assert_allclose(found.sum((1, 2, 3)), SHARES, atol=1.5 / ROWS)  # groups are drawn evenly


def test_weights_of_raking_are_those_of_exact_iterative_fitting() -> None:
    """All 54 cells of the forest's law as rows: raked weights beside proportional fitting of the whole table."""
    model, _, law = known()
    start = by_enumeration(model)
    wanted = [((0, 2), law.sum((0, 2))), *(((i, j), t.sum(0)) for (i, j), t in model.forest.items())]
    exact = start.copy()
    for _ in range(3000):
        for (i, j), table in wanted:
            rest = tuple(axis for axis in range(4) if axis not in (i + 1, j + 1))
            shape = [1, 1, 1, 1]
            shape[i + 1], shape[j + 1] = table.shape
            exact = exact * (table / exact.sum(rest)).reshape(shape)
        for i, held in enumerate(model.marginals):
            rest = tuple(axis for axis in (1, 2, 3) if axis != i + 1)
            shape = [2, 1, 1, 1]
            shape[i + 1] = 3
            exact = exact * (held / exact.sum(rest)).reshape(shape)
    many = np.round(start * 2e5).astype(int)
    group, *cell = (np.repeat(index.ravel(), many.ravel()) for index in np.indices(many.shape))
    found = np.zeros_like(start)
    np.add.at(found, (group, *cell), model.raked(group, cell))
    np.testing.assert_allclose(found, exact, atol=2e-3)
    np.testing.assert_allclose(found.sum((0, 2)), law.sum((0, 2)), atol=2e-3)
    assert np.abs(start.sum((0, 2)) - law.sum((0, 2))).max() > 0.01  # which the forest alone does not give


@pytest.mark.parametrize("more", [False, True])
def test_drawn_rows_have_all_marginals_and_all_tables(more: bool) -> None:
    model, fine, law = known(more=more)
    codes, group = model.draw(fine, ROWS, np.random.default_rng(4))
    assert codes.shape == (ROWS, 3)
    for j, p in enumerate(fine):
        for g in (0, 1):
            np.testing.assert_allclose(
                np.bincount(codes[group == g, j], minlength=FINE[j]) / (group == g).sum(), p[g], atol=error(ROWS * 0.3)
            )
    cell = [where[codes[:, j]] for j, where in enumerate(COARSE)]
    found = frequencies(group, cell)
    np.testing.assert_allclose(found.sum((0, 3)), law.sum((0, 3)), atol=error(ROWS))
    np.testing.assert_allclose(found.sum((0, 1)), law.sum((0, 1)), atol=error(ROWS))
    apart = np.abs(found.sum((0, 2)) - law.sum((0, 2))).max()
    assert apart < error(ROWS) if more else apart > 2 * error(ROWS)


def test_more_rows_than_are_raked_at_once_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joints, "POOL", 3000)
    model, fine, law = known()
    codes, group = model.draw(fine, 10_001, np.random.default_rng(5))
    assert len(codes) == len(group) == 10_001
    cell = [where[codes[:, j]] for j, where in enumerate(COARSE)]
    np.testing.assert_allclose(frequencies(group, cell).sum((0, 2)), law.sum((0, 2)), atol=2 * error(10_001))


def test_cells_that_the_forest_gives_no_chance_are_never_drawn() -> None:
    """A structural zero (no male wives) stays one, raked or not, and whatever a table beside the forest says."""
    fine = [np.array([[0.5, 0.5], [0.3, 0.7]]), np.array([[0.6, 0.4], [0.4, 0.6]]), np.full((2, 2), 0.5)]
    model = Joint.independent(fine, SHARES, [np.arange(2)] * 3)
    table = np.zeros((2, 2, 2))
    table[:, 0, 0] = model.marginals[0][:, 0]  # 0 goes with 0, and 1 with either
    table[:, 1, 0] = model.marginals[0][:, 1] / 4
    table[:, 1, 1] = model.marginals[0][:, 1] * 3 / 4
    for more in ({}, {(0, 2): PairTable.whole(np.array([[0.4, 0.04], [0.1, 0.46]]))}):
        codes, _ = Joint(model.coarse, model.marginals, {(0, 1): table}, more).draw(
            fine, 20_000, np.random.default_rng(0)
        )
        assert not ((codes[:, 0] == 0) & (codes[:, 1] == 1)).any()
        assert {(1, 0), (1, 1), (0, 0)} == {(int(a), int(b)) for a, b in codes[:, :2]}


def test_a_fine_cell_lies_in_its_coarse_one_and_follows_its_group() -> None:
    rng = np.random.default_rng(0)
    coarse = np.array([2, 0, 1, 0, 2, 1, 0])  # coarse cells need not be neighbours
    fine = rng.dirichlet(np.ones(7), 2)
    fine[1, [2, 5]] = 0.0  # a coarse cell that its group has no mass in
    group, cell = rng.integers(0, 2, 40_000), rng.integers(0, 3, 40_000)
    found = joints._within(fine, coarse, cell, group, rng)
    np.testing.assert_array_equal(coarse[found], cell)
    for g in (0, 1):
        for k in range(3):
            there = (group == g) & (cell == k)
            p = np.where(coarse == k, fine[g], 0.0)
            p = p if p.sum() else np.where(coarse == k, fine.mean(0), 0.0)  # then as everybody together
            np.testing.assert_allclose(
                np.bincount(found[there], minlength=7) / there.sum(), p / p.sum(), atol=error(int(there.sum()))
            )
    assert (fine[0, found[group == 0]] > 0).all()


# ---- coarse cells


def cells_of(column: Column) -> Any:
    return public_cells(Schema((column,)), fine=16)[0]


def test_coarse_cells_of_a_number_are_neighbours_of_about_equal_mass() -> None:
    cells = cells_of(Column("age", "integer", low=0, high=159))
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(cells.size, 0.5))
    merged = np.arange(cells.size)
    coarse = coarse_cells(p, merged, cells, 4)
    assert set(np.diff(coarse)) <= {0, 1}
    assert coarse[0] == 0
    assert coarse.max() <= 3
    assert np.bincount(coarse, p).max() <= 1 / 4 + p.max()
    assert coarse_cells(p, merged, cells, cells.size).tolist() == merged.tolist()  # few enough: as they are


def test_coarse_cells_are_of_merged_ones() -> None:
    cells = cells_of(Column("age", "integer", low=0, high=159))
    merged = np.arange(cells.size) // 2
    coarse = coarse_cells(np.full(cells.size, 1 / cells.size), merged, cells, 4)
    assert coarse.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_hole_of_a_number_keeps_a_coarse_cell_of_its_own() -> None:
    cells = cells_of(Column("crp", "continuous", low=0, high=10, missing="indicator"))
    p = np.append(np.full(cells.size - 1, 0.9 / (cells.size - 1)), 0.1)
    coarse = coarse_cells(p, np.arange(cells.size), cells, 4)
    assert coarse[-1] == coarse.max() == 3
    assert (coarse[:-1] < 3).all()
    assert set(coarse) == {0, 1, 2, 3}


def test_the_heaviest_categories_stay_and_the_others_share_one_cell() -> None:
    cells = cells_of(Column("ward", "categorical", categories=tuple("abcdef")))
    p = np.array([0.02, 0.4, 0.05, 0.3, 0.2, 0.03])
    coarse = coarse_cells(p, np.arange(6), cells, 4)
    assert len({coarse[1], coarse[3], coarse[4]}) == 3
    assert coarse[0] == coarse[2] == coarse[5] not in (coarse[1], coarse[3], coarse[4])


# ---- asking


def related_table(seed: int = 0, rows: int = 4000) -> tuple[PrivateTable, Joint, list[Floats]]:
    """Columns 0 and 1 are almost one, 2 and 3 are related, the rest is chance; a group of rows tells nothing."""
    rng = np.random.default_rng(seed)
    a, c, e = rng.integers(0, 3, (3, rows))
    b = np.where(rng.random(rows) < 0.95, a, rng.integers(0, 3, rows))
    d = np.where(rng.random(rows) < 0.5, c, rng.integers(0, 3, rows))
    codes, label = np.column_stack([a, b, c, d, e]), rng.integers(0, 2, rows)
    table = PrivateTable(
        codes,
        [3] * 5,
        {"label": label},
        names=list("abcde"),
        objective=Logistic(),
        budget=Budget(60.0, 1e-3, mu=8.0, picks=20, pick_epsilon=1.0),
        ledger=Ledger(),
    )
    fine = [
        np.stack([np.bincount(codes[label == g, j], minlength=3) / (label == g).sum() for g in (0, 1)])
        for j in range(5)
    ]
    shares = np.bincount(label) / rows
    return table, Joint.independent(fine, shares, [np.arange(3)] * 5), fine


THREE = public_cells(Schema(tuple(Column(name, "categorical", categories=("x", "y", "z")) for name in "abcde")))


def asked(table: PrivateTable, start: Joint, fine: list[Floats], counts: tuple[int, int] = (4, 2)) -> Joint:
    return ask_pairs(
        table,
        range(5),
        start,
        4000.0,
        (1.0, 0.7),
        counts,
        lambda answer: answer,
        np.random.default_rng(0),
        np.ones(5),
        {},
        THREE,
        [part.mean(0) for part in fine],
    )


def test_the_pairs_that_matter_are_found_and_join_all_columns() -> None:
    table, start, fine = related_table()
    model = asked(table, start, fine)
    assert next(iter(model.forest)) == (0, 1)
    assert list(model.forest)[1] == (2, 3)
    reached = {0}
    for _ in range(5):
        reached |= {k for pair in model.forest if reached & set(pair) for k in pair}
    assert reached == set(range(5))
    assert len(model.forest) == 4  # joined by as few as possible: a tree
    assert len(model.more) == 2
    assert not set(model.more) & set(model.forest)
    asked_for = [(event.kind, event.query, event.by) for event in table.ledger.events]
    assert asked_for.count(("choice", "choice", "pairs")) == 6
    assert asked_for.count(("gaussian", "histogram", "none")) == 6
    assert table.spent().mu ** 2 == pytest.approx(4 * 1.0 + 2 * 0.7**2)
    codes, _ = model.draw(fine, 20_000, np.random.default_rng(1))
    assert (codes[:, 0] == codes[:, 1]).mean() == pytest.approx(0.95 + 0.05 / 3, abs=0.02)
    assert (codes[:, 2] == codes[:, 3]).mean() == pytest.approx(0.5 + 0.5 / 3, abs=0.03)
    assert (codes[:, 0] == codes[:, 4]).mean() == pytest.approx(1 / 3, abs=0.03)


def test_only_columns_that_are_worth_it_take_part_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joints, "PAIRED", 3)
    table, start, fine = related_table()
    model = ask_pairs(
        table,
        range(5),
        start,
        4000.0,
        (1.0, 0.7),
        (2, 1),
        lambda answer: answer,
        np.random.default_rng(0),
        np.array([0.0, 3.0, 2.0, 0.0, 1.0]),
        {},
        THREE,
        [part.mean(0) for part in fine],
    )
    assert {k for pair in (*model.forest, *model.more) for k in pair} == {1, 2, 4}
    codes, _ = model.draw(fine, 1000, np.random.default_rng(1))
    assert codes.shape == (1000, 5)  # the others are drawn on their own


def test_the_joint_model_is_a_function_of_what_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another table behind a gate that gives the answers of the first: the same model to the bit."""
    said: list[Any] = []

    def keep(draw: Any) -> Any:
        def answer(*query: Any) -> Any:
            said.append(draw(*query))
            return said[-1]

        return answer

    monkeypatch.setattr(noise, "discrete_gaussian", keep(noise.discrete_gaussian))
    monkeypatch.setattr(noise, "noisy_top", keep(noise.noisy_top))
    table, start, fine = related_table()
    first = asked(table, start, fine)
    again = iter(said)
    monkeypatch.setattr(noise, "discrete_gaussian", lambda *query: next(again))
    monkeypatch.setattr(noise, "noisy_top", lambda *query: next(again))
    second = asked(related_table(seed=7, rows=900)[0], start, fine)
    assert next(again, None) is None
    tables = [{pair: table.shares for pair, table in model.more.items()} for model in (first, second)]
    for one, other in ((first.forest, second.forest), tables):
        assert list(one) == list(other)
        for pair in one:
            np.testing.assert_array_equal(one[pair], other[pair])


def test_what_does_not_stand_out_of_the_noise_is_as_expected() -> None:
    expected = np.array([[100.0, 50.0], [30.0, 20.0]])
    near = joints.believed(expected + np.array([[3.0, -4.0], [4.9, 0.0]]), 25.0, expected)
    np.testing.assert_allclose(near, expected)
    far = joints.believed(expected + np.array([[80.0, -49.0], [-60.0, 0.0]]), 1.0, expected)
    assert far.sum() == pytest.approx(200)
    assert (far > 0).all()
    assert far[0, 0] > 150
    assert far[1, 0] < 0.01  # a noisy table may say that nobody is there


# ---- the plan


def events_of(rows: int, epsilon: float) -> tuple[PrivateTable, Plan, Any]:
    kind = KINDS["binary"]
    (frame, real), side = simulated(rows), side_of(kind)
    plan = Plan.for_table(5, side)
    table = gate_of(frame, FEATURES, outcome_of(kind, real), plan, epsilon)
    return table, plan, fit_private(table, public_cells(FEATURES), plan, side)


def test_small_tables_ask_for_no_pairs_and_their_sums_get_the_share() -> None:
    table, plan, learned = events_of(300, 1.0)
    assert not any(event.by == "pairs" for event in table.ledger.events)
    assert table.spent().mu == pytest.approx(table.budget.mu, rel=1e-9)
    sums = {event.cost for event in table.ledger.events if event.query == "sums"}
    assert sums == {plan.sums_cost(table.budget, pairs=0.0, terms=False)}
    assert max(sums) > plan.sums_cost(table.budget, terms=False)
    assert replay(table.ledger.events, 1e-5).epsilon <= 1.0  # less: no choice was made
    assert (learned.joint.forest, learned.joint.more) == ({}, {})
    codes, _ = learned.joint.draw(learned.marginals, 500, np.random.default_rng(0))
    assert codes.shape == (500, 5)


def test_larger_tables_ask_for_all_pairs_of_the_plan() -> None:
    table, plan, learned = events_of(6000, 8.0)
    assert sum(event.by == "pairs" for event in table.ledger.events) == plan.pairs == 10
    assert sum(event.by == "none" for event in table.ledger.events) == plan.pairs
    assert table.spent().mu == pytest.approx(table.budget.mu, rel=1e-9)
    assert table.spent().picks_left == 0
    assert 7.9 < replay(table.ledger.events, 1e-5).epsilon <= 8.0
    assert (len(learned.joint.forest), len(learned.joint.more)) == (plan.forest, plan.more) == (4, 6)


def test_wide_tables_ask_for_no_pairs() -> None:
    side = side_of(KINDS["binary"])
    for d in (129, 400):
        plan = Plan.for_table(d, side)
        assert plan.pairs == 0
        assert plan.pairs_for(plan.budget(1.0, 1e-5), 1e9).forest == 0
    plan = Plan.for_table(128, side)
    assert (plan.forest, plan.more) == (31, 62)  # among 32 of them
    assert Plan.for_table(1, side).pairs == 0


def test_small_tables_get_the_few_pairs_they_can_pay_for_and_large_ones_all() -> None:
    plan = Plan.for_table(20, side_of(KINDS["binary"]))
    budget = plan.budget(1.0, 1e-5)
    many = [plan.pairs_for(budget, rows) for rows in (-50.0, 0.0, 300.0, 2000.0, 3000.0, 9000.0, 3e4, 1e6)]
    assert many[:2] == [PairPlan(0, 0, 0.0)] * 2
    assert many[-1] == plan.all_pairs == PairPlan(19, 38)
    assert [pairs.forest for pairs in many] == sorted(pairs.forest for pairs in many)
    assert 0 < many[3].forest < many[4].forest < 19
    assert many[4].more == 0
    assert many[4].part < 1.0
    assert many[5] == PairPlan(19, 6)
    for pairs in many[3:]:  # what they cost is the share that the sums do not have
        mu = np.array(
            [plan.pair_cost(budget, pairs)] * pairs.forest + [plan.pair_cost(budget, pairs, more=True)] * pairs.more
        )
        sums = plan.sums_cost(budget, pairs=pairs.part)
        none = plan.sums_cost(budget, pairs=0.0)
        rounds = plan.epochs * plan.used
        assert np.sum(mu**2) + rounds * sums**2 == pytest.approx(rounds * none**2)


@pytest.mark.parametrize(("rows", "pairs"), [(1500, True), (300, False)])
def test_a_small_table_pays_for_its_few_pairs_what_its_plan_says(rows: int, pairs: bool) -> None:
    table, plan, learned = events_of(rows, 1.0)
    asked_for = sum(event.by == "none" for event in table.ledger.events)
    assert (asked_for > 0) == pairs
    assert asked_for == len(learned.joint.forest) < plan.pairs
    assert table.spent().mu == pytest.approx(table.budget.mu, rel=1e-9)
    assert replay(table.ledger.events, 1e-5).epsilon <= 1.0


def test_the_fit_keeps_what_belongs_together_together() -> None:
    """A column and its copy, a gate and an ε: drawn rows agree as patients do."""
    rng, rows = np.random.default_rng(0), 8000
    schema = Schema(tuple(Column(name, "categorical", categories=("x", "y", "z")) for name in ("a", "b", "c")))
    a, c = rng.integers(0, 3, (2, rows))
    frame = pd.DataFrame({"a": np.array(["x", "y", "z"])[a], "c": np.array(["x", "y", "z"])[c]})
    frame["b"] = frame["a"]
    kind = KINDS["binary"]
    side, plan = side_of(kind), Plan.for_table(3, side_of(kind))
    label = (rng.random(rows) < 0.2 + 0.3 * a).astype(np.int8)
    table = gate_of(
        frame, schema, outcome_of(kind, {"label": label, "event": label, "time": label, "grade": label}), plan, 4.0
    )
    learned = fit_private(table, public_cells(schema), plan, side)
    assert (0, 1) in learned.joint.forest
    codes, _ = learned.joint.draw(learned.marginals, 10_000, np.random.default_rng(1))
    assert (codes[:, 0] == codes[:, 1]).mean() > 0.98
    assert (codes[:, 0] == codes[:, 2]).mean() == pytest.approx(1 / 3, abs=0.05)


# ---- what a noisy table says


def test_a_column_of_few_categories_keeps_them_and_the_other_gets_the_rest() -> None:
    assert shape_of((12, 2), 24.0) == (12, 2)
    assert shape_of((12, 2), 16.0) == (8, 2)
    assert shape_of((8, 4), 32.0) == (8, 4)
    assert shape_of((12, 12), 50.0) == (7, 7)
    assert shape_of((3, 12), 0.0) == (2, 2)
    for most in range(4, 300):
        first, second = shape_of((24, 5), most)
        assert first * second <= most


def answer_of(rows: Floats, expected: Floats, sigma: float, seed: int = 0) -> PairAnswer:
    noisy = rows + np.random.default_rng(seed).normal(0, sigma, rows.shape)
    maps = tuple(np.arange(size) for size in rows.shape)
    return PairAnswer(noisy, np.full(rows.shape, sigma**2), expected, (maps[0], maps[1]), (len(rows), len(rows.T)))


def independent(rows: Floats) -> Floats:
    return np.asarray(np.outer(rows.sum(1), rows.sum(0)) / rows.sum(), np.float64)


@pytest.mark.parametrize("seed", range(5))
def test_a_code_nested_in_another_has_no_rows_outside_it(seed: int) -> None:
    rows = np.zeros((8, 4))
    rows[np.arange(8), np.arange(8) // 2] = [2000, 1500, 300, 900, 1200, 800, 600, 1700]
    table = answer_of(rows, independent(rows), 45.0, seed).table(9000.0)
    assert ((table.shares > 0) == (rows > 0)).all()
    assert table.shares.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(5))
def test_columns_that_go_together_loosely_keep_all_their_cells(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    rows = 9000 * np.outer(rng.dirichlet(np.full(6, 5.0)), rng.dirichlet(np.full(5, 5.0)))
    rows = rows * rng.uniform(0.6, 1.4, rows.shape)
    assert (answer_of(rows, independent(rows), 45.0, seed).table(9000.0).shares > 0).all()


def test_cells_that_go_with_nobody_are_emptied_through_the_whole_forest() -> None:
    """A function from 0 to 1 and one from 1 to 2: every drawn row obeys both, whatever noisy marginals say."""
    rng = np.random.default_rng(0)
    fine = [rng.dirichlet(np.full(size, 5.0), 2) for size in (6, 3, 2)]
    start = Joint.independent(fine, SHARES, [np.arange(6), np.arange(3), np.arange(2)])
    first, second = np.zeros((6, 3)), np.zeros((3, 2))
    first[np.arange(6), [0, 0, 1, 1, 1, 0]] = 1 / 6  # nobody is in cell 2 of column 1
    second[[0, 1, 2], [0, 1, 1]] = 1 / 3
    model = start.with_forest({(0, 1): PairTable.whole(first), (1, 2): PairTable.whole(second)})
    codes, _ = model.draw(fine, 20_000, np.random.default_rng(1))
    assert (first[codes[:, 0], codes[:, 1]] > 0).all()
    assert (second[codes[:, 1], codes[:, 2]] > 0).all()
    assert set(codes[:, 1].tolist()) == {0, 1}


def test_an_answer_about_groups_and_one_about_their_cells_are_put_together_by_least_squares() -> None:
    rng = np.random.default_rng(3)
    maps = (np.array([0, 0, 1]), np.array([0, 1]))
    coarse = PairAnswer(rng.normal(50, 5, (2, 2)), np.full((2, 2), 4.0), np.ones((2, 2)), maps, (3, 2))
    whole = PairAnswer(
        rng.normal(30, 5, (3, 2)), np.full((3, 2), 9.0), np.ones((3, 2)), (np.arange(3), np.arange(2)), (3, 2)
    )
    found = coarse.finer(whole)
    design, seen, weight = [], [], []
    for i, j in np.ndindex(3, 2):
        design.append(np.eye(6)[2 * i + j])
        seen.append(whole.rows[i, j])
        weight.append(1 / 9.0)
    for a, b in np.ndindex(2, 2):
        design.append([float(maps[0][i] == a and maps[1][j] == b) for i, j in np.ndindex(3, 2)])
        seen.append(coarse.rows[a, b])
        weight.append(1 / 4.0)
    X, W = np.array(design), np.diag(weight)
    covariance = np.linalg.inv(X.T @ W @ X)
    np.testing.assert_allclose(found.rows.ravel(), covariance @ X.T @ W @ np.array(seen), rtol=1e-9)
    np.testing.assert_allclose(found.variance.ravel(), np.diag(covariance), rtol=1e-9)


@pytest.mark.parametrize("rows", [0.05, 0.6, 3.0, 40.0, 2000.0])
def test_the_distance_by_chance_is_that_of_poisson_numbers(rows: float) -> None:
    drawn = np.random.default_rng(0).poisson(rows, (20_000, 12))
    seen = np.abs(drawn - rows).sum(1)
    found = joints.distance_by_chance(np.full((3, 4), rows))
    assert found == pytest.approx(seen.mean(), rel=0.12, abs=5 * seen.std() / np.sqrt(20_000))
