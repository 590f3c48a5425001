"""The private additive model: public cells, tables as trees, smoothing, and the fit through a real gate."""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import distcondense as dc
from distcondense.data.cells import FINE, Cells, public_cells
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.features import check_features
from distcondense.data.outcome import Outcome
from distcondense.data.persons import HoldoutSplit, Split
from distcondense.data.schema import Column, Schema
from distcondense.errors import BudgetError, CohortError, ModelError, SchemaError, SettingsError
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.methods.base import Context
from distcondense.methods.private import condense as method
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.plan import HISTOGRAM_SHARE, NUMBERS_SHARE, Plan
from distcondense.methods.private.prepare import prepare
from distcondense.methods.private.smoothing import (
    AFFORDED,
    SPIKE,
    SURE,
    cell_sums,
    low_frequencies,
    merge_cells,
    prior_kernels,
    smooth,
    spread_out,
)
from distcondense.models.additive import AdditiveModel, PairTerm
from distcondense.models.jacobian import jacobian
from distcondense.outcomes.base import Kind
from distcondense.outcomes.binary import Binary
from distcondense.outcomes.measures import auroc, c_index
from distcondense.outcomes.multiclass import Multiclass
from distcondense.outcomes.private_side import PrivateSide
from distcondense.outcomes.survival import Survival
from distcondense.privacy.accountant import replay
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from tests import naive
from tests.conftest import SMALL_SCHEMA, small_frame

# ---- public cells


@st.composite
def numbers(draw: st.DrawFn, name: str = "x") -> Column:
    """A bounded number of either kind, spacing and hole policy."""
    kind = draw(st.sampled_from(["continuous", "integer"]))
    low = float(draw(st.integers(-1000, 1000)))
    width = float(draw(st.sampled_from([1, 2, 7, 40, 127, 128, 129, 1000, 123_456])))
    decimals = None
    if kind == "continuous":
        part = draw(st.sampled_from([0.25, 1.0, 3.7]))
        width = round(width * part, 2)
        decimals = draw(st.sampled_from([None, 2, 5] + [0] * (part == 1.0)))
    missing = draw(st.sampled_from(["refuse", "constant", "indicator"]))
    fill = None if missing == "refuse" else low
    if missing == "indicator":
        fill = draw(st.sampled_from([None, low, low + width, low - 5]))
    return Column(
        name,
        kind,
        low=low,
        high=round(low + width, 2),
        missing=missing,
        fill=fill,  # type: ignore[arg-type]
        spacing=draw(st.sampled_from(["linear", "log"])),
        decimals=decimals,
    )


@st.composite
def labels(draw: st.DrawFn, name: str = "x") -> Column:
    if draw(st.booleans()):
        fill = draw(st.sampled_from([None, "no"]))
        return Column(name, "binary", categories=("no", "yes"), missing="constant" if fill else "refuse", fill=fill)
    categories = tuple("abcdefgh"[: draw(st.integers(1, 8))])
    missing = draw(st.sampled_from(["refuse", "constant", "category"]))
    return Column(
        name,
        "categorical",
        categories=categories,
        missing=missing,
        ordered=draw(st.booleans()),  # type: ignore[arg-type]
        fill=categories[-1] if missing == "constant" else None,
    )


def columns(name: str = "x") -> st.SearchStrategy[Column]:
    return numbers(name) | labels(name)


def cells_of(column: Column) -> Cells:
    return public_cells(Schema((column,)))[0]


@given(numbers(), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_every_legal_number_has_exactly_one_cell(column: Column, shares: list[float]) -> None:
    cells = cells_of(column)
    inner = cells.size - cells.hole
    assert 1 <= inner <= FINE
    assert np.all(np.diff(cells.cuts) > 0)
    assert column.low is not None
    assert column.high is not None
    values = np.array([column.low + share * (column.high - column.low) for share in shares] + [column.low, column.high])
    values = column.rounded(values)
    codes = cells.codes(pd.Series(values))
    assert codes.tolist() == [naive.cell_of(value, cells.cuts) for value in values]
    assert codes.max() < inner
    assert (codes[-2], codes[-1]) == (0, inner - 1)
    outside = cells.codes(pd.Series([column.low - 1e-9, column.low - 1e12, column.high + 1e-9, column.high + 1e12]))
    assert outside.tolist() == [0, 0, inner - 1, inner - 1]


@given(columns(), st.data())
def test_a_value_made_for_a_cell_is_legal_and_comes_back_to_it(column: Column, data: st.DataObject) -> None:
    cells = cells_of(column)
    every = np.arange(cells.size)
    inside = np.array(data.draw(st.lists(st.integers(0, 63), min_size=cells.size, max_size=cells.size))) / 64
    made = pd.Series(cells.values(every, inside))
    assert cells.codes(made).tolist() == every.tolist()
    present = made.dropna()
    assert len(made) - len(present) == cells.hole
    if column.numeric:
        assert present.between(column.low, column.high).all()  # type: ignore[arg-type]
        assert np.all(present == column.rounded(present))
    else:
        assert set(present) == set(column.categories)


@given(columns())
def test_a_hole_has_the_cell_its_policy_gives_it(column: Column) -> None:
    cells = cells_of(column)
    hole = cells.codes(pd.Series([np.nan] if column.numeric else [None], dtype=float if column.numeric else object))[0]
    if column.missing in ("indicator", "category"):
        assert cells.hole
        assert hole == cells.size - 1
    elif column.missing == "constant":
        assert not cells.hole
        assert hole == cells.codes(pd.Series([column.fill]))[0]


def test_few_whole_numbers_have_a_cell_each_and_many_share() -> None:
    ages = cells_of(Column("age", "integer", low=18, high=110))
    assert ages.size == 93
    assert ages.codes(pd.Series(range(18, 111))).tolist() == list(range(93))
    many = cells_of(Column("platelets", "integer", low=0, high=2000))
    assert many.size == FINE
    held = np.bincount(many.codes(pd.Series(range(2001))))
    assert held.min() >= 15
    assert held.max() <= 17


def test_numbers_of_few_decimals_have_a_cell_each_and_finer_ones_share() -> None:
    share = cells_of(Column("share", "continuous", low=-0.3, high=0.7, decimals=1))
    assert share.size == 11
    legal = np.round(np.arange(-3, 8) / 10, 1)
    assert share.codes(pd.Series(legal)).tolist() == list(range(11))
    assert share.values(np.arange(11), np.full(11, 0.99)).tolist() == legal.tolist()
    fine = cells_of(Column("x", "continuous", low=0, high=1, decimals=3))
    assert fine.size == FINE
    held = np.bincount(fine.codes(pd.Series(np.arange(1001) / 1000)))
    assert (held.min(), held.max()) == (7, 8)
    beyond = cells_of(Column("x", "continuous", low=0, high=1e9, decimals=12))  # finer than floats
    assert beyond.size == FINE


def test_linear_cells_are_of_equal_width_and_logarithmic_ones_of_equal_ratio() -> None:
    linear = cells_of(Column("x", "continuous", low=-2, high=6))
    assert np.diff([-2, *linear.cuts, 6]) == pytest.approx(np.full(FINE, 8 / FINE))
    skewed = cells_of(Column("x", "continuous", low=5, high=1005, spacing="log"))
    away = np.array([5, *skewed.cuts, 1005]) - 5 + 0.1  # the unit is a ten-thousandth of the range
    assert away[1:] / away[:-1] == pytest.approx(np.full(FINE, 10_001 ** (1 / FINE)))
    counts = cells_of(Column("visits", "integer", low=0, high=5000, spacing="log"))
    assert counts.codes(pd.Series([0, 1, 2, 3])).tolist() == [0, 1, 2, 3]


def test_cells_know_whether_their_neighbours_are_alike() -> None:
    stages = ("I", "II", "III")
    assert cells_of(Column("stage", "categorical", categories=stages, ordered=True)).ordered
    assert not cells_of(Column("stage", "categorical", categories=stages)).ordered
    assert cells_of(Column("age", "integer", low=0, high=9)).ordered


def test_a_number_without_public_bounds_has_no_cells() -> None:
    schema = Schema((Column("age", "integer", low=0, high=9), Column("crp", "continuous"), Column("bmi", "continuous")))
    with pytest.raises(SchemaError, match=r"'crp' and 1 more.*public bounds"):
        public_cells(schema)


# ---- tables as trees


def random_pair(cells: tuple[Cells, ...], i: int, j: int, rng: np.random.Generator) -> PairTerm:
    """Groups of any cells: of neighbours mostly, as coarse cells are."""
    many = [min(cells[k].size, 4) for k in (i, j)]
    groups = tuple(
        np.sort(rng.integers(0, most, cells[k].size)) if rng.random() < 0.7 else rng.integers(0, most, cells[k].size)
        for k, most in zip((i, j), many, strict=True)
    )
    table = rng.normal(size=many)
    return PairTerm((i, j), groups, table, np.ones_like(table))  # type: ignore[arg-type]


@st.composite
def models(draw: st.DrawFn) -> tuple[AdditiveModel, Codec, pd.DataFrame, Any]:
    """A random model over a random schema, and rows in the middle third of random cells, holes included."""
    schema = Schema(tuple(draw(columns(f"c{j}")) for j in range(draw(st.integers(1, 4)))))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    cells = public_cells(schema)
    tables = []
    for each in cells:
        table = rng.normal(size=each.size)
        tables.append(np.repeat(table[::3], 3)[: each.size])  # with steps of several cells, as merging leaves them
    link = draw(st.sampled_from(["probability", "log-risk"]))
    pairs = tuple(random_pair(cells, i, j, rng) for i, j in combinations(range(len(cells)), 2) if rng.random() < 0.5)
    model = AdditiveModel(cells, float(rng.normal()), tuple(tables), link, pairs=pairs)  # type: ignore[arg-type]
    codes = np.stack([rng.integers(0, each.size, 12) for each in cells], axis=1)
    inside = rng.uniform(1 / 3, 2 / 3, codes.shape)
    frame = pd.DataFrame({c.column.name: c.values(codes[:, j], inside[:, j]) for j, c in enumerate(cells)})
    return model, Codec.public(schema), frame, codes


@given(models())
def test_the_model_as_trees_scores_like_its_tables(drawn: Any) -> None:
    model, codec, frame, codes = drawn
    assert model.codes(frame).tolist() == codes.tolist()
    slow = np.array(naive.additive_margin(model.intercept, model.tables, codes, model.pairs))
    assert model.margin(codes) == pytest.approx(slow)
    assert model.intercept + model.contributions(codes).sum(1) == pytest.approx(slow)
    expected = 1 / (1 + np.exp(-slow)) if model.link == "probability" else slow
    reference = model.over(codec)
    assert reference.n_features == len(codec.names)
    assert reference.scores(codec.encode(frame)) == pytest.approx(expected, abs=2e-5)


@given(models(), st.integers(0, 2**32))
def test_its_sparse_jacobian_is_the_difference_of_its_tables(drawn: Any, seed: int) -> None:
    model, codec, frame, codes = drawn
    model = replace(model, link="log-risk")
    rows = codec.encode(frame)
    steps = np.random.default_rng(seed).uniform(0.025, 2, rows.shape[1]).astype(np.float32)
    for one in (model, replace(model, pairs=())):
        found = jacobian(one.over(codec), rows, steps, path="structured")
        assert found == pytest.approx(jacobian(one.over(codec), rows, steps, path="naive"), abs=5e-4)
    at = 0
    for j, block in enumerate(codec.blocks):
        cells, table = model.cells[j], model.tables[j]
        if block.column.numeric:  # the oracle of numbers: look both moved values up in the table
            there = codes[:, j] != cells.size - 1 if cells.hole else np.full(len(rows), True)
            moved = []
            for sign in (1, -1):
                x = (rows[:, at] + np.float32(sign) * steps[at]).astype(np.float64) * codec.scale[at] + codec.centre[at]
                near = np.min(np.abs(x[:, None] - [*cells.cuts, math.inf]), axis=1) < 1e-5 * codec.scale[at]
                assume(not near.any())  # float32 decides those
                moved.append(np.array([table[naive.cell_of(value, cells.cuts)] for value in x]))
            expected = (moved[0] - moved[1]) / (2 * steps[at])
            assert found[there, at] == pytest.approx(expected[there], abs=5e-4)
        at += block.width


# ---- smoothing


@given(
    st.integers(1, 12),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.floats(0.01, 100),
    st.floats(0, 3),
    st.integers(0, 2**32),
)
def test_smoothing_is_that_of_the_slow_twin(
    size: int, scores: int, ordered: bool, hole: bool, sharpness: float, effect: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    size += hole
    precision = sharpness * rng.uniform(0.2, 2, (scores, size))
    truth = effect * np.sort(rng.normal(size=(scores, size)))
    information = precision * (truth + rng.normal(size=(scores, size)) / np.sqrt(precision))
    kernels = prior_kernels(size, ordered, hole, scores > 1)
    slow = naive.smooth(precision, information, kernels)
    assert smooth(precision, information, kernels) == pytest.approx(slow, abs=1e-6)
    several = smooth(precision, np.stack([information, -information], axis=1), kernels)
    assert several == pytest.approx(np.stack([slow, -slow], axis=1), abs=1e-6)


def test_noise_alone_gives_next_to_no_table_and_a_signal_does_not() -> None:
    rng = np.random.default_rng(4)
    kernels = prior_kernels(16, True, False)
    precision = np.full((1, 16), 25.0)
    found = smooth(precision, rng.normal(size=(1, 200, 16)) * 5, kernels)
    assert np.mean(found**2) * 25 < 0.06  # share of the noise's variance; 1 without smoothing
    table = smooth(precision, precision * np.linspace(-1, 1, 16), kernels)[0]
    assert np.corrcoef(table, np.linspace(-1, 1, 16))[0, 1] > 0.99
    assert not smooth(np.zeros((1, 16)), np.zeros((1, 16)), kernels).any()  # a lost answer: nothing is known


def test_a_kernel_leaves_the_hole_to_itself() -> None:
    kernels = prior_kernels(6, True, True)
    assert not kernels[:, :5, 5].any()
    assert np.all(kernels[:, 5, 5] > 0)
    for kernel in kernels:
        assert np.linalg.eigvalsh(kernel).min() > -1e-9


counts = st.lists(st.floats(-50, 400), min_size=2, max_size=30)


@given(counts, st.floats(0.5, 30), st.booleans(), st.booleans(), st.sampled_from([4, 8, 64]))
def test_merged_cells_are_those_of_the_slow_twin(
    drawn: list[float], sigma: float, ordered: bool, hole: bool, most: int
) -> None:
    found = merge_cells(np.array(drawn), sigma, ordered=ordered, hole=hole, most=most, least=2.0)
    assert found.tolist() == naive.merge_cells(drawn, sigma, ordered, hole, most, 2.0, AFFORDED, SURE, SPIKE)


@given(counts, st.floats(0.5, 30), st.booleans(), st.booleans())
def test_merging_loses_no_cell_and_keeps_order(drawn: list[float], sigma: float, ordered: bool, hole: bool) -> None:
    merged = merge_cells(np.array(drawn), sigma, ordered=ordered, hole=hole, most=8, least=2.0)
    assert sorted(set(merged)) == list(range(merged.max() + 1))
    if ordered:
        assert set(np.diff(merged)) <= {0, 1}
        assert not hole or np.count_nonzero(merged == merged[-1]) == 1
    else:
        light = np.array(drawn) < 2.0 * sigma
        assert len(set(merged[light])) <= 1
        assert len(set(merged[~light])) == np.count_nonzero(~light)


def test_a_heavy_cell_is_not_joined_to_what_came_before_it() -> None:
    merged = merge_cells(np.array([1.0, 1.0, 500.0, 1.0]), 5.0, ordered=True, hole=False, most=8, least=2.0)
    assert merged.tolist() == [0, 0, 1, 1]  # what is left at the end has nothing after it to be joined to


@given(counts, st.floats(0.5, 30), st.booleans(), st.booleans())
def test_a_merged_cell_is_shared_out_whole_among_its_fine_cells(
    drawn: list[float], sigma: float, ordered: bool, hole: bool
) -> None:
    fine = np.array(drawn)
    merged = merge_cells(fine, sigma, ordered=ordered, hole=hole, most=8, least=2.0)
    inside = spread_out(fine, merged, sigma, ordered=ordered, hole=hole)
    assert np.all(inside > 0)
    assert np.bincount(merged, inside) == pytest.approx(np.ones(merged.max() + 1))
    for cell in range(merged.max() + 1):  # of cells that stand out of the noise the heavier has the larger share
        seen = np.flatnonzero((merged == cell) & (fine > 3 * sigma))
        assert np.all(np.diff(inside[seen][np.argsort(fine[seen])]) >= -1e-12)


def test_a_thin_tail_is_not_spread_out_flat() -> None:
    counts_of = np.array([400.0, 200, 100, 50, 12, 6, 3, 2, 1, 1])
    merged = np.array([0, 1, 2, 3, 4, 4, 4, 4, 4, 4])
    inside = spread_out(counts_of, merged, 10.0, ordered=True, hole=False)
    assert np.all(np.diff(inside[4:]) < 0)


# ---- the fit, through a real gate


FEATURES = Schema(
    (
        Column("age", "integer", low=18, high=100),
        Column("crp", "continuous", low=0, high=300, spacing="log", missing="indicator"),
        Column("sex", "binary", categories=("f", "m")),
        Column("stage", "categorical", categories=("I", "II", "III", "IV"), ordered=True),
        Column("ward", "categorical", categories=("a", "b", "c"), missing="category"),
    )
)
HORIZON = 10.0
KINDS: dict[str, Kind] = {
    "binary": Binary(("died",)),
    "survival": Survival(("months", "died"), time=Column("months", "continuous", low=0, high=HORIZON)),
    "multiclass": Multiclass(("grade",), ("mild", "middle", "severe")),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def simulated(rows: int, seed: int = 0) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Features, and outcomes of every kind: a clear signal in age, stage and crp."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 101, rows),
            "crp": np.where(rng.random(rows) < 0.1, np.nan, np.minimum(rng.lognormal(2.5, 1, rows), 300)),
            "sex": rng.choice(["f", "m"], rows),
            "stage": rng.choice(["I", "II", "III", "IV"], rows),
            "ward": np.array(["a", "b", "c", None])[rng.integers(0, 4, rows)],
        }
    )
    stage = frame["stage"].map({"I": -1.0, "II": -0.3, "III": 0.3, "IV": 1.0}).to_numpy()
    risk = (frame["age"].to_numpy() - 59) / 15 + stage + 0.5 * (np.log1p(frame["crp"].fillna(12)) - 2.5).to_numpy()
    label = (rng.random(rows) < 1 / (1 + np.exp(-risk))).astype(int)
    failure = rng.exponential(12 * np.exp(-risk))
    leaving = rng.uniform(0.5, 20, rows)
    time = np.maximum(np.minimum(np.minimum(failure, leaving), HORIZON), 1e-3)
    event = ((failure <= leaving) & (failure <= HORIZON)).astype(int)
    return frame, {"label": label, "time": time, "event": event, "grade": np.digitize(1.5 * risk, [-1.0, 1.0])}


def outcome_of(kind: Kind, real: dict[str, Any]) -> Outcome:
    arrays = {
        "binary": {"label": real["label"].astype(np.int8)},
        "survival": {"label": real["event"].astype(np.int8), "time": real["time"]},
        "multiclass": {"label": real["grade"]},
    }
    return Outcome(kind, arrays[kind.name])


def side_of(kind: Kind) -> PrivateSide:
    side = kind.private_side()
    assert side is not None
    return side


def gate_of(frame: pd.DataFrame, schema: Schema, outcome: Outcome, plan: Plan, epsilon: float) -> PrivateTable:
    cells = public_cells(schema)
    codes = np.stack([each.codes(frame[each.column.name]) for each in cells], axis=1)
    return PrivateTable(
        codes,
        [each.size for each in cells],
        outcome.arrays,
        names=schema.names,
        objective=side_of(outcome.kind).objective,
        budget=plan.budget(epsilon, 1e-5),
        ledger=Ledger(),
    )


@EVERY_KIND
def test_the_private_model_learns_and_spends_exactly_its_plan(kind: Kind) -> None:
    (frame, real), side = simulated(4000), side_of(kind)
    outcome, plan = outcome_of(kind, real), Plan.for_table(5, side)
    table = gate_of(frame, FEATURES, outcome, plan, 8.0)
    heard: list[tuple[int, int]] = []
    learned = fit_private(table, public_cells(FEATURES), plan, side, lambda done, of: heard.append((done, of)))

    fresh, truth = simulated(3000, seed=1)
    margin = learned.model.margin(learned.model.codes(fresh))
    assert kind.score(side.link, side.expected(margin), outcome_of(kind, truth)) > 0.75
    assert learned.informative
    assert learned.rows == pytest.approx(4000, rel=0.05)
    assert learned.shares == pytest.approx(np.bincount(outcome["label"]) / 4000, abs=0.03)
    for marginal, cells in zip(learned.marginals, learned.model.cells, strict=True):
        assert marginal.shape == (side.groups, cells.size)
        assert marginal.min() >= 0
        assert marginal.sum(1) == pytest.approx(np.ones(side.groups))

    events = table.ledger.events
    assert len(events) <= plan.answers  # which pairs are asked about is told by answers
    assert heard == [(k + 1, plan.answers) for k in range(len(events))]
    assert table.spent().mu == pytest.approx(table.budget.mu, rel=1e-9)
    spent = replay(events, 1e-5)
    assert 7.9 < spent.epsilon <= 8.0
    assert spent.agree


@EVERY_KIND
def test_outcomes_that_have_nothing_to_do_with_the_features_give_no_answer(kind: Kind) -> None:
    (frame, real), side = simulated(20_000), side_of(kind)
    shuffled = outcome_of(kind, real).take(np.random.default_rng(1).permutation(20_000))
    plan = Plan.for_table(5, side)
    learned = fit_private(gate_of(frame, FEATURES, shuffled, plan, 1.0), public_cells(FEATURES), plan, side)
    assert not learned.informative
    assert "no relation" in learned.doubt


@EVERY_KIND
@pytest.mark.parametrize("value", [0, 1])
def test_a_class_nobody_is_in_gives_no_answer_and_no_exception(kind: Kind, value: int) -> None:
    (frame, real), side = simulated(300), side_of(kind)
    plan = Plan.for_table(5, side)
    alike = outcome_of(kind, {**real, **dict.fromkeys(("label", "event", "grade"), np.full(300, value))})
    table = gate_of(frame, FEATURES, alike, plan, 2.0)
    learned = fit_private(table, public_cells(FEATURES), plan, side)
    assert not any(len(event.columns) > 1 for event in table.ledger.events if event.query == "histogram")
    assert learned.doubt or (kind.name == "survival" and value == 1)  # events only: times and features may be related
    assert np.all(np.isfinite(learned.model.margin(learned.model.codes(frame))))


@EVERY_KIND
@pytest.mark.parametrize("d", [1, 2, 13, 129, 300])
def test_no_plan_asks_for_more_than_its_budget(d: int, kind: Kind) -> None:
    schema = Schema(tuple(Column(f"c{j}", "binary", categories=(0, 1)) for j in range(d)))
    rng, side = np.random.default_rng(d), side_of(kind)
    frame = pd.DataFrame(rng.integers(0, 2, (40, d)), columns=schema.names)
    plan = Plan.for_table(d, side)
    coins = rng.integers(0, 2, 40)
    outcome = outcome_of(kind, {"label": coins, "event": coins, "time": rng.uniform(0.1, HORIZON, 40), "grade": coins})
    table = gate_of(frame, schema, outcome, plan, 1.0)
    learned = fit_private(table, public_cells(schema), plan, side)  # a question too many would raise
    assert len(learned.columns) == len(set(learned.columns)) == plan.used == (16 if d > 128 else d)
    single = sum(
        len(event.columns) < 2 for event in table.ledger.events
    )  # so few rows ask for no pairs: picks are left
    assert single == plan.answers - 2 * plan.pairs - plan.looked - plan.measured
    assert (table.spent().picks, table.spent().picks_left) == (plan.picks, plan.pairs)
    assert table.spent().mu == pytest.approx(table.budget.mu, rel=1e-9)
    spent = replay(table.ledger.events, 1e-5)
    assert 0.97 < spent.epsilon <= 1.0
    assert spent.agree


@pytest.mark.parametrize("name", ["binary", "multiclass"])
def test_the_columns_that_matter_are_chosen_from_a_wide_table(name: str) -> None:
    d, rows, kind = 200, 4000, KINDS[name]
    rng, side = np.random.default_rng(3), side_of(kind)
    schema = Schema(tuple(Column(f"c{j}", "binary", categories=(0, 1)) for j in range(d)))
    x = rng.integers(0, 2, (rows, d))
    label = (rng.random(rows) < 1 / (1 + np.exp(-2 * (x[:, 7] + x[:, 150] - 1)))).astype(int)
    plan = Plan.for_table(d, side)
    outcome = outcome_of(kind, {"label": label, "event": label, "time": label, "grade": label + x[:, 7]})
    table = gate_of(pd.DataFrame(x, columns=schema.names), schema, outcome, plan, 4.0)
    learned = fit_private(table, public_cells(schema), plan, side)
    assert {7, 150} <= set(learned.columns)
    assert learned.informative


# ---- who reads patients


class Trap:
    """Stands where patients are; whoever looks is caught."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"patients were read: {name}")

    def _caught(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("patients were read")

    __getitem__ = __len__ = __iter__ = __array__ = __bool__ = __eq__ = __lt__ = __add__ = _caught
    __hash__ = None  # type: ignore[assignment]


def cohorts(rows: int, kind: Kind) -> tuple[Cohort, Cohort]:
    """A cohort, and the same with a trap in place of everything that belongs to patients."""
    frame, real = simulated(rows)
    cohort = Cohort(check_features(frame, FEATURES), FEATURES, outcome_of(kind, real), person=np.arange(rows) // 2)
    trap: Any = Trap()
    return cohort, Cohort(trap, FEATURES, Outcome(kind, trap), person=trap)


@EVERY_KIND
@pytest.mark.usefixtures("quick_placement")
def test_only_opening_the_gate_and_the_coins_read_patients(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole private path on a booby-trapped cohort; the real one is known to `open_gate` and the coins alone."""
    real, trapped = cohorts(1500, kind)
    prepared = prepare(trapped.facts, PrivateOptions(epsilon=8.0, ipc=5, rows_per_person=2))
    with pytest.raises(AssertionError, match="patients were read"):  # the trap works
        method.condense(trapped, prepared, Context())
    opened = []
    gate, toss = method.open_gate, HoldoutSplit.split

    def open_real(cohort: Cohort, *more: Any) -> PrivateTable:
        opened.append(("gate", cohort is trapped))
        return gate(real, *more)

    def toss_for_real(self: HoldoutSplit, cohort: Cohort) -> Split:
        opened.append(("coins", cohort is trapped))
        return toss(self, real)

    monkeypatch.setattr(method, "open_gate", open_real)
    monkeypatch.setattr(HoldoutSplit, "split", toss_for_real)
    condensed = method.condense(trapped, prepared, Context())[5]
    assert opened == [("gate", True), ("coins", False)]
    assert len(condensed.details.labelled.outcome) == 5 * side_of(kind).groups
    assert condensed.privacy.epsilon is not None
    assert condensed.privacy.epsilon <= 8.0


@EVERY_KIND
def test_a_budget_too_small_is_refused_before_a_patient_is_read(kind: Kind) -> None:
    _, trapped = cohorts(10, kind)
    with pytest.raises(BudgetError, match="no patient was read"):
        dc.condense(trapped, epsilon=1e-4, threads=1)
    with pytest.raises(BudgetError, match="no patient was read"):
        dc.PrivateModel(epsilon=1e-4).fit(trapped)
    with pytest.raises(BudgetError, match=r"persons for 13 columns"):
        Plan.for_table(13, side_of(kind)).budget(0.001, 1e-5)
    Plan.for_table(13, side_of(kind)).budget(0.1, 1e-5)


def test_an_inferred_schema_or_an_unknown_horizon_is_refused_before_a_patient_is_read() -> None:
    _, trapped = cohorts(10, KINDS["survival"])
    inferred = replace(trapped, schema=Schema(FEATURES.columns, "inferred"))
    unbounded = replace(trapped, outcome=Outcome(Survival(("months", "died")), trapped.outcome.arrays))
    for run in (lambda c: dc.condense(c, threads=1), lambda c: dc.PrivateModel().fit(c)):
        with pytest.raises(SchemaError, match="declared"):
            run(inferred)
        with pytest.raises(SettingsError, match="follow-up"):
            run(unbounded)


# ---- PrivateModel


@pytest.fixture(scope="module")
def fitted() -> dc.PrivateModel:
    frame, real = simulated(3000)
    y = np.where(real["label"] == 1, "ill", "well")
    return dc.PrivateModel(schema=FEATURES, classes=("well", "ill"), epsilon=5.0).fit(frame, y)


def test_a_private_model_answers_in_the_classes_it_was_given(fitted: dc.PrivateModel) -> None:
    fresh, real = simulated(2000, seed=1)
    chance = fitted.predict_proba(fresh)
    assert chance.shape == (2000, 2)
    assert chance.sum(1) == pytest.approx(np.ones(2000))
    assert auroc(real["label"], chance[:, 1]) > 0.75
    assert fitted.classes_.tolist() == ["well", "ill"]
    said = fitted.predict(fresh)
    assert set(said) == {"well", "ill"}
    assert np.array_equal(said == "ill", chance[:, 1] >= 0.5)
    assert fitted.decision_function(fresh) == pytest.approx(np.log(chance[:, 1] / chance[:, 0]))
    with pytest.raises(ModelError, match="kind of outcome"):
        fitted.predict_survival_function(fresh, [1.0])


def test_a_private_model_states_what_it_guarantees(fitted: dc.PrivateModel) -> None:
    privacy = fitted.privacy_
    assert (privacy.guarantee, privacy.delta) == ("end-to-end", 1e-5)
    assert privacy.epsilon is not None
    assert 4.9 < replay(privacy.events, 1e-5).epsilon <= privacy.epsilon <= 5.0
    assert "every row is taken as one person" in privacy.paragraph()
    assert list(fitted.tables_["sex"].index) == ["f", "m"]
    assert fitted.tables_["ward"].index[-1] == fitted.tables_["crp"].index[-1] == "missing"
    older = fitted.tables_["age"]
    assert older.loc[80:].mean() > older.loc[:40].mean()


def test_a_private_model_checks_the_rows_it_is_asked_about(fitted: dc.PrivateModel) -> None:
    fresh, _ = simulated(5)
    with pytest.raises(CohortError, match="'age'"):
        fitted.predict_proba(fresh.assign(age="old"))


def test_a_private_survival_curve_starts_at_one_and_only_falls() -> None:
    frame, real = simulated(3000)
    y = pd.DataFrame({"time": real["time"], "event": real["event"]})
    who = np.arange(3000) // 2
    model = dc.PrivateModel(schema=FEATURES, epsilon=8.0, horizon=HORIZON, rows_per_person=2).fit(frame, y, person=who)
    fresh, real = simulated(1000, seed=1)
    when, died = real["time"], real["event"]
    times = np.linspace(0, 12, 25)
    curves = model.predict_survival_function(fresh, times)
    assert curves.shape == (1000, 25)
    assert np.all(curves[:, 0] == 1)
    assert np.all(np.diff(curves, axis=1) <= 0)
    assert curves.min() >= 0
    assert np.all(curves[:, times >= HORIZON] == curves[:, [-1]])  # nothing is known beyond the horizon
    assert c_index(when, died.astype(np.int8), model.predict(fresh)) > 0.7
    alive = np.mean(when[died == 1] > 2) * np.mean(died) + np.mean(died == 0)  # a bound from above
    assert curves[:, times == 2.0].mean() < alive + 0.05
    assert "at most 2 are read" in model.privacy_.paragraph()
    with pytest.raises(ModelError, match="kind of outcome"):
        model.predict_proba(fresh)


def test_parameters_are_kept_copied_and_checked() -> None:
    from sklearn.base import clone

    model = dc.PrivateModel(epsilon=2.0, horizon=5.0)
    defaults = {name: entry.default for name, entry in inspect.signature(dc.PrivateModel).parameters.items()}
    assert model.get_params() == {**defaults, "epsilon": 2.0, "horizon": 5.0}
    assert {"delta", "rows_per_person", "trust_inferred_schema"} <= set(defaults)
    assert model.set_params(epsilon=3.0, delta=1e-6) is model
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(ValueError, match="colour"):
        model.set_params(colour="red")


def test_a_model_that_was_not_fitted_says_so() -> None:
    frame, _ = simulated(3)
    for ask in (lambda m: m.predict(frame), lambda m: m.tables_, lambda m: m.predict_survival_function(frame, [1.0])):
        with pytest.raises(ModelError, match="fitted first"):
            ask(dc.PrivateModel())


def test_rows_and_outcomes_that_do_not_belong_together_are_refused() -> None:
    frame, real = simulated(30)
    for wrong in (real["label"][:-1], np.zeros((30, 3)), None):
        with pytest.raises(SettingsError, match="one entry per row"):
            dc.PrivateModel(schema=FEATURES).fit(frame, wrong)


def to_treelite(ensemble: TreeEnsemble) -> Any:
    """The same trees as a `treelite.Model`, for GTIL, tl2cgen and whatever else reads Treelite."""
    from treelite.model_builder import Metadata, ModelBuilder, PostProcessorFunc, TreeAnnotation

    trees = ensemble.n_trees
    builder = ModelBuilder(
        threshold_type="float32",
        leaf_output_type="float32",
        metadata=Metadata(ensemble.n_features, "kRegressor", False, 1, [1], (1, 1)),
        tree_annotation=TreeAnnotation(trees, [0] * trees, [0] * trees),
        postprocessor=PostProcessorFunc("sigmoid" if ensemble.link == "sigmoid" else "identity"),
        base_scores=[ensemble.base],
    )
    for root in ensemble.roots:
        builder.start_tree()
        todo = [int(root)]
        while todo:
            node = todo.pop()
            builder.start_node(node - int(root))
            if ensemble.feature[node] < 0:
                builder.leaf(float(ensemble.threshold[node]))
            else:
                left = int(ensemble.left[node])
                builder.numerical_test(
                    int(ensemble.feature[node]),
                    float(ensemble.threshold[node]),
                    opname="<",
                    default_left=bool(ensemble.default_left[node]),
                    left_child_key=left - int(root),
                    right_child_key=left + 1 - int(root),
                )
                todo += [left + 1, left]
            builder.end_node()
        builder.end_tree()
    return builder.commit()


def test_the_model_goes_to_treelite_and_comes_back_the_same():
    """GTIL scores Treelite's copy as the kernels score ours, and our own reader takes it back."""
    import treelite

    from distcondense.models.trees import flatten

    frame = small_frame(600)
    model = dc.PrivateModel(schema=SMALL_SCHEMA, epsilon=8.0).fit(frame[SMALL_SCHEMA.names], frame["died"]).model_
    codec = Codec.public(SMALL_SCHEMA)
    reference = model.over(codec)
    rows = codec.encode(frame[SMALL_SCHEMA.names])
    copy = to_treelite(reference.ensemble)
    scored = treelite.gtil.predict(copy, rows, nthread=1).ravel()
    np.testing.assert_allclose(scored, reference.scores(rows), atol=1e-6)
    back = flatten(copy, name="private")
    assert back.n_trees == reference.ensemble.n_trees
    assert set(back.threshold[back.feature >= 0]) == set(reference.ensemble.threshold[reference.ensemble.feature >= 0])


def test_explanations_add_up_to_the_decision_and_average_to_nothing():
    frame = small_frame(2400)
    model = dc.PrivateModel(schema=SMALL_SCHEMA, epsilon=8.0).fit(frame[SMALL_SCHEMA.names], frame["died"])
    shares = model.explain(frame[SMALL_SCHEMA.names])
    np.testing.assert_allclose(
        shares.sum(axis=1) + model.base_, model.decision_function(frame[SMALL_SCHEMA.names]), atol=1e-9
    )
    assert abs(shares.mean()).max() < 0.25  # centred on the private marginals, which are near the real ones


# ---- answers by strategy


@pytest.mark.parametrize("hole", [False, True])
def test_the_noise_of_a_trend_is_that_of_a_few_answers_and_nobody_adds_more(hole):
    column = Column("x", "integer", low=0, high=39, missing="indicator" if hole else "refuse")
    cells = public_cells(Schema((column,)))[0]
    varies, trend = np.full((1, cells.size), 3.0), np.append(np.linspace(-1, 1, 40), [0.0] * hole)
    spread = []
    for sigma in (0.1, 30.0):
        strategy = low_frequencies(cells, varies, sigma)
        assert np.square(strategy).sum(0).max() <= 1 + 1e-12
        if hole:
            assert strategy[:, -1].tolist() == [0.0] * 40 + [1.0] + [0.0] * 3
        for one in (strategy, None):
            covariance = np.linalg.inv(
                cell_sums(one, np.zeros((1, 40 + hole + 3 * (one is not None))), sigma, varies)[1]
            )
            spread.append(float(trend @ covariance[0] @ trend))
    assert spread[0] == pytest.approx(spread[1], rel=0.05)  # without noise to speak of it is cells that are asked for
    assert spread[2] < 0.4 * spread[3]
    unordered = public_cells(Schema((Column("x", "categorical", categories=tuple("abcdefgh")),)))[0]
    assert low_frequencies(unordered, np.ones((1, 8)), 30.0) is None


def test_what_answers_by_strategy_say_of_cells_is_what_least_squares_say():
    rng = np.random.default_rng(0)
    strategy = np.trunc(np.vstack([0.5 * np.eye(5), rng.uniform(-0.6, 0.6, (2, 5))]) * 1024) / 1024
    answers, varies, sigma = rng.normal(size=(2, 7)), rng.uniform(0.5, 2.0, (2, 5)), 1.5
    told = cell_sums(strategy, answers, sigma, varies)
    for k in range(2):
        covariance = sigma**2 * np.eye(7) + strategy @ np.diag(varies[k]) @ strategy.T
        whitened = np.linalg.inv(np.linalg.cholesky(covariance))
        least = np.linalg.lstsq(whitened @ strategy, whitened @ answers[k], rcond=None)[0]
        assert told.gradient[k] == pytest.approx(least)
        # noise alone moves what is said of cells by the matrix that maps answers to it
        mapped = told.precision[k] @ np.linalg.pinv(whitened @ strategy) @ whitened
        assert told.noise[k] == pytest.approx(sigma**2 * mapped @ mapped.T)
    alone = cell_sums(None, answers[:, :5], sigma, varies)
    same = cell_sums(np.eye(5), answers[:, :5], sigma, varies)
    assert all(one == pytest.approx(other) for one, other in zip(alone, same, strict=True))


BY_SCORES = {"one": Binary(("y",)), "several": Multiclass(("y",), tuple("abc"))}


def test_histograms_have_less_the_more_columns_are_asked_about_by_strategy():
    number, choice = Column("n", "integer", low=0, high=99), Column("c", "categorical", categories=tuple("abcdefgh"))
    few, sides = Column("f", "integer", low=0, high=2), {name: kind.private_side() for name, kind in BY_SCORES.items()}
    shares = {}
    for columns in ((choice, choice), (number, choice), (number, few), (number, number)):
        cells = public_cells(Schema(tuple(replace(c, name=f"x{j}") for j, c in enumerate(columns))))
        for name, side in sides.items():
            plan = Plan.for_table(2, side, cells)
            budget = plan.budget(1.0, 1e-5)
            events = plan.events(budget, cells, side, "row")
            spent = math.fsum(event.cost**2 for event in events if event.kind == "gaussian")
            assert spent == pytest.approx(budget.mu**2)
            assert plan.used * plan.histogram_cost(budget) ** 2 / budget.mu**2 == pytest.approx(plan.histograms)
            shares.setdefault(name, []).append(plan.histograms)
    middle = (HISTOGRAM_SHARE + NUMBERS_SHARE) / 2
    assert shares["one"] == pytest.approx([HISTOGRAM_SHARE, middle, middle, NUMBERS_SHARE])
    assert shares["several"] == [HISTOGRAM_SHARE] * 4
