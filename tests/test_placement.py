"""Condensation as post-processing: exchange kernels beside their slow twins, and what `place` promises about rows."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcondense.arrays import Floats, Index
from distcondense.data.cells import public_cells
from distcondense.data.outcome import Outcome
from distcondense.data.schema import Column, Schema
from distcondense.kernels.exchange import exchange_decorrelate, exchange_mmd
from distcondense.methods.private import placement
from distcondense.methods.private.placement import Encoder, Mixture, Placed, place, stratified
from distcondense.models.additive import AdditiveModel
from distcondense.outcomes.base import Kind, Labelled, Learned, PrivateSide
from distcondense.outcomes.binary import Binary
from distcondense.outcomes.measures import expected_auroc
from distcondense.outcomes.multiclass import Multiclass
from distcondense.outcomes.survival import Curve, PiecewiseExponential, Survival
from tests import naive

pytestmark = pytest.mark.usefixtures("quick_placement")

HORIZON = 60.0
COLUMNS = (
    Column("age", "integer", low=0, high=120),
    Column("crp", "continuous", low=0, high=400, spacing="log"),
    Column("smoker", "binary", categories=(0, 1)),
    Column("stage", "categorical", categories=("I", "II", "III"), missing="category"),
    Column("albumin", "continuous", low=10, high=60, missing="indicator"),
    Column("site", "categorical", categories=("only",)),
)


KINDS: dict[str, Kind] = {
    "binary": Binary(("died",)),
    "survival": Survival(("months", "died"), time=Column("months", "continuous", low=0, high=HORIZON)),
    "multiclass": Multiclass(("grade",), ("mild", "middle", "severe")),
}
EVERY_KIND = pytest.mark.parametrize("name", KINDS)
SHARES = {"binary": (0.69, 0.31), "survival": (0.69, 0.31), "multiclass": (0.6, 0.3, 0.1)}


def side_of(name: str) -> PrivateSide:
    side = KINDS[name].private_side()
    assert side is not None
    return side


def learned(*columns: Column, name: str = "binary", seed: int = 0, **other: Any) -> Learned:
    """What a gate might have answered about these columns, without any gate."""
    rng, side = np.random.default_rng(seed), side_of(name)
    scores = side.objective.scores
    cells = public_cells(Schema(columns or COLUMNS), fine=16)

    def table(size: int, ordered: bool) -> Floats:
        one = np.cumsum(rng.normal(0, 0.5, size)) if ordered else rng.normal(0, 1, size)
        return one - one.mean()

    tables = tuple(np.stack([table(c.size, c.ordered) for _ in range(scores)]) for c in cells)
    marginals = []
    for each in tables:
        base = rng.dirichlet(np.full(each.shape[1], 2.0))
        groups = base * np.exp(each) if scores > 1 else np.stack([base, base * np.exp(each[0])])
        marginals.append(groups / groups.sum(1, keepdims=True))
    objective, facts = side.objective, {}
    if name == "survival":
        objective = PiecewiseExponential((15.0, 30.0, 45.0), HORIZON, hazard=(0.004, 0.006, 0.005, 0.003))
        facts = {"leaving": (0.001, 0.01, 0.02, 0.03)}
    intercept, tables = (np.array([0.5, 0.0, -0.5]), tables) if scores > 1 else (-0.5, tuple(t[0] for t in tables))
    model = AdditiveModel(cells, intercept, tables, side.link)
    known: dict[str, Any] = {"rows": 3217.4, "shares": np.array(SHARES[name]), "evidence": 50.0, "facts": facts}
    return Learned(model, tuple(range(len(cells))), tuple(marginals), objective=objective, **known | other)


def placed_of(known: Learned, ipc: int, *, name: str = "binary", seed: int = 5, threads: int = 1) -> Placed:
    return place(known, side_of(name), ipc, seed=seed, threads=threads)


def same(a: Placed, b: Placed) -> bool:
    return all(np.array_equal(u, v) if u is not None else v is None for u, v in zip(parts(a), parts(b), strict=True))


def parts(placed: Placed) -> tuple[Any, ...]:
    labelled = placed.labelled
    return placed.codes, placed.inside, labelled.weight, labelled.soft, *labelled.outcome.arrays.values()


# ---- the kernels and their slow twins


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), d=st.integers(1, 4), m=st.integers(1, 9), size=st.integers(1, 5))
def test_the_mmd_exchange_makes_the_swaps_that_its_slow_twin_makes(seed: int, d: int, m: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(size, size=(d, m))
    payload = 100 * x + rng.integers(100, size=(d, m))
    levels = rng.normal(size=(d, size))
    values = np.exp(-np.abs(levels[:, :, None] - levels[:, None, :]))
    mean = np.einsum("jst,cjt->cjs", values, rng.dirichlet(np.ones(size), size=(2, d)))
    column, (first, second) = rng.integers(d, size=40), rng.integers(m, size=(2, 40))
    there, carried, accepted = naive.exchange_mmd(x, payload, values, mean, list(zip(column, first, second)))  # noqa: B905
    fast, travelled = x.copy(), payload.copy()
    assert exchange_mmd(fast, travelled, values, mean, column, first, second) == accepted
    np.testing.assert_array_equal(fast, there)
    # alike cells of one column may be told apart by what travels with them, and no swap is made for nothing
    np.testing.assert_array_equal(travelled, carried)
    np.testing.assert_array_equal(travelled // 100, fast)
    np.testing.assert_array_equal(np.sort(travelled, axis=1), np.sort(payload, axis=1))
    assert accepted == 0 or naive.squared_mmd(fast, values, mean) < naive.squared_mmd(x, values, mean)


def test_the_mmd_exchange_does_make_swaps() -> None:
    """Two columns that move together, a population where they do not: swapping is worth it, and ends near it."""
    x = np.stack([np.repeat([0, 1], 8)] * 2)
    values = np.exp(-np.abs(np.arange(2)[:, None] - np.arange(2)))[None].repeat(2, 0)
    mean = np.full((2, 2, 2), values[0].mean())
    rng = np.random.default_rng(0)
    assert exchange_mmd(x, x.copy(), values, mean, rng.integers(2, size=400), *rng.integers(16, size=(2, 400))) >= 4
    assert np.bincount(2 * x[0] + x[1]).tolist() == [4, 4, 4, 4]


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**32),
    m=st.integers(1, 9),
    widths=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    cells=st.integers(1, 5),
)
def test_the_decorrelating_exchange_makes_the_swaps_that_its_slow_twin_makes(
    seed: int, m: int, widths: list[int], cells: int
) -> None:
    rng = np.random.default_rng(seed)
    index = rng.integers(cells, size=(m, len(widths)))
    # whole numbers, so that both ways of adding up are exact and ties are ties
    seen = [rng.integers(-4, 5, size=(cells, width)).astype(float) for width in widths]
    z = np.concatenate([table[index[:, j]] for j, table in enumerate(seen)], axis=1)
    ends = np.cumsum([0, *widths])
    proposals = rng.integers(m, size=(2, len(widths), 12, 2))
    slow, carried, accepted = naive.exchange_decorrelate(z, index, ends, proposals)
    fast, travelled = z.copy(), index.copy()
    assert exchange_decorrelate(fast, travelled, ends, proposals) == accepted
    np.testing.assert_array_equal(fast, slow)
    np.testing.assert_array_equal(travelled, carried)
    np.testing.assert_array_equal(np.sort(travelled, axis=0), np.sort(index, axis=0))
    np.testing.assert_array_equal(fast, np.concatenate([t[travelled[:, j]] for j, t in enumerate(seen)], axis=1))
    assert accepted == 0 or naive.cross_products(fast, ends) < naive.cross_products(z, ends)


def test_columns_that_move_together_are_torn_apart() -> None:
    """At 60 rows the correlations that chance leaves are mostly gone, and every column holds what it held."""
    known = learned()
    marginals = [p[0] for p in known.marginals]
    codes, u = placement.uncorrelated(marginals, 60, np.random.default_rng(3))
    plain = stratified(marginals, 60, np.random.default_rng(3))

    def together(rows: Index) -> float:
        z = np.concatenate(placement._seen(rows, marginals), axis=1)
        return naive.cross_products(
            z - z.mean(0), np.cumsum([0, *(b.shape[1] for b in placement._seen(rows, marginals))])
        )

    assert together(codes) < 0.2 * together(plain)
    np.testing.assert_array_equal(np.sort(codes, axis=0), np.sort(plain, axis=0))
    np.testing.assert_allclose(np.sort(u), (np.arange(60) + 0.5) / 60)


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.floats(0.01, 0.99)), min_size=1, max_size=30),
)
def test_the_expected_auroc_is_that_of_all_pairs(rows: list[tuple[int, float]]) -> None:
    score, probability = [float(s) for s, _ in rows], [p for _, p in rows]
    fast = expected_auroc(np.array(score), np.array(probability))
    assert fast == pytest.approx(naive.expected_auroc(score, probability), rel=1e-12)


# ---- rows: repeatable, legal, and of the right number and weight


@EVERY_KIND
def test_one_seed_gives_one_set_of_rows_on_any_number_of_threads(name: str) -> None:
    known = learned(name=name)
    once = placed_of(known, 6, name=name)
    assert same(once, placed_of(known, 6, name=name))
    assert same(once, placed_of(known, 6, name=name, threads=3))
    other = placed_of(known, 6, name=name, seed=6)
    assert not np.array_equal(once.codes, other.codes)
    assert not np.array_equal(once.inside, other.inside)


def test_candidates_that_are_made_at_the_same_time_do_not_share_their_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """All three are held back until each has drawn its rows: what they draw next must be their own."""
    alone, together, closer = placed_of(learned(), 6), threading.Barrier(3, timeout=300), placement.closer

    def held_back(*given: Any) -> Any:
        together.wait()
        return closer(*given)

    monkeypatch.setattr(placement, "closer", held_back)
    assert same(alone, placed_of(learned(), 6, threads=3))


@EVERY_KIND
@pytest.mark.parametrize("ipc", [1, 2, 25])
def test_rows_are_legal_values_of_their_cells(name: str, ipc: int) -> None:
    known = learned(name=name)
    placed = placed_of(known, ipc, name=name, seed=1)
    frame = placed.features(known.model.cells)
    assert list(frame) == [column.name for column in COLUMNS]
    np.testing.assert_array_equal(known.model.codes(frame), placed.codes)
    for cells, column in zip(known.model.cells, COLUMNS, strict=True):
        values = frame[column.name]
        assert cells.hole or not values.isna().any()
        if column.numeric:
            assert column.low is not None
            assert column.high is not None
            assert values.dropna().between(column.low, column.high).all()
            assert column.kind != "integer" or (values.dropna() % 1 == 0).all()
        else:
            assert set(values.dropna()) <= set(column.categories)


@EVERY_KIND
@pytest.mark.parametrize("ipc", [1, 7, 40])
def test_each_class_has_its_rows_and_all_weights_add_up_to_the_noisy_number_of_rows(name: str, ipc: int) -> None:
    known, groups = learned(name=name), len(SHARES[name])
    placed = placed_of(known, ipc, name=name, seed=2)
    outcome, weight = placed.labelled.outcome, placed.labelled.weight
    assert outcome["label"].tolist() == np.repeat(np.arange(groups), ipc).tolist()
    assert placed.codes.shape == placed.inside.shape == (groups * ipc, len(COLUMNS))
    assert weight is not None
    assert weight.sum() == pytest.approx(known.rows)
    assert (weight > 0).all()
    assert set(outcome.arrays) == ({"label", "time"} if name == "survival" else {"label"})
    assert (placed.labelled.soft is None) is (name == "survival")


def test_the_soft_label_is_the_private_model_s_probability() -> None:
    known = learned()
    placed = placed_of(known, 10, seed=3)
    margin = naive.additive_margin(known.model.intercept, known.model.tables, placed.codes)
    assert placed.labelled.soft is not None
    np.testing.assert_allclose(placed.labelled.soft, 1 / (1 + np.exp(-np.array(margin))), rtol=1e-12)


def test_the_soft_labels_of_several_classes_are_the_private_model_s_probabilities() -> None:
    known = learned(name="multiclass")
    placed = placed_of(known, 10, name="multiclass", seed=3)
    each = [
        naive.additive_margin(known.model.intercept[k], [table[k] for table in known.model.tables], placed.codes)
        for k in range(3)
    ]
    mass = np.exp(np.array(each).T)
    assert placed.labelled.soft is not None
    np.testing.assert_allclose(placed.labelled.soft, mass / mass.sum(1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("name", ["binary", "multiclass"])
def test_every_column_holds_what_the_marginals_say(name: str) -> None:
    """As many rows from each class, stratified; swaps between rows change no column: within a row per class."""
    known, ipc = learned(name=name), 40
    placed = placed_of(known, ipc, name=name, seed=4)
    for j, p in enumerate(known.marginals):
        count = np.bincount(placed.codes[:, j], minlength=p.shape[1])
        assert np.abs(count - ipc * p.sum(0)).max() < len(p)


@pytest.mark.parametrize("name", ["binary", "multiclass"])
def test_rows_lie_closer_to_the_population_than_stratified_ones(name: str) -> None:
    known = learned(name=name)
    mixture = Mixture.of(known, 1.5)

    def apart(codes: Index) -> float:
        x = np.stack([group[codes[:, j]] for j, group in enumerate(mixture.groups)])
        return naive.squared_mmd(x, mixture.values, mixture.mean)

    for seed in range(3):
        rng = np.random.default_rng(seed)
        start = np.concatenate([stratified([p[c] for p in known.marginals], 15, rng) for c in range(len(SHARES[name]))])
        assert apart(placed_of(known, 15, name=name, seed=seed).codes) < apart(start)


@pytest.mark.parametrize("name", ["binary", "multiclass"])
def test_the_population_s_mean_embedding_is_the_average_kernel_under_each_class_s_marginal(name: str) -> None:
    known, width = learned(name=name), 0.8
    mixture = Mixture.of(known, width)
    for j, (table, p) in enumerate(zip(known.model.tables, known.marginals, strict=True)):
        effects = np.atleast_2d(table).T  # of a cell on every score
        for cell, group in enumerate(mixture.groups[j]):
            kernel = [np.exp(-np.linalg.norm(effects[cell] - other) / width) for other in effects]
            np.testing.assert_allclose(mixture.mean[:, j, group], p @ kernel)
            np.testing.assert_allclose(mixture.values[j, group, mixture.groups[j]], kernel)
    assert mixture.pick.sum() == pytest.approx(1.0)
    assert mixture.pick.argmin() == 5  # a column of one cell is hardly worth a proposal, yet may be proposed
    assert mixture.pick.min() > 0


@pytest.mark.parametrize("ipc", [1, 7, 60])
@pytest.mark.parametrize("share", [0.003, 0.31, 0.9])
def test_weighted_survival_rows_have_the_private_event_share_and_times_within_follow_up(ipc: int, share: float) -> None:
    known = learned(name="survival", shares=np.array([1 - share, share]))
    labelled = placed_of(known, ipc, name="survival", seed=1).labelled
    time = labelled.outcome["time"]
    assert np.average(labelled.outcome["label"], weights=labelled.weight) == pytest.approx(share)
    assert (time > 0).all()
    assert (time <= HORIZON).all()


@EVERY_KIND
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_single_column_of_any_kind_is_enough(name: str, column: Column) -> None:
    known = learned(column, name=name)
    for ipc in (1, 8):
        placed = placed_of(known, ipc, name=name, seed=1)
        assert placed.codes.shape == (len(SHARES[name]) * ipc, 1)
        np.testing.assert_array_equal(known.model.codes(placed.features(known.model.cells)), placed.codes)
        weight = placed.labelled.weight
        assert weight is not None
        assert np.isfinite(weight).all()
        assert weight.sum() == pytest.approx(known.rows)


@EVERY_KIND
def test_where_nothing_was_learned_there_are_no_rows(name: str) -> None:
    known = learned(name=name, doubt="too few rows of the rarer class to tell from noise")
    placed = placed_of(known, 50, name=name, seed=1)
    frame = placed.features(known.model.cells)
    assert list(frame) == [column.name for column in COLUMNS]
    assert len(frame) == 0
    labelled = placed.labelled
    assert labelled.weight is not None
    assert len(labelled.outcome) == len(labelled.weight) == 0
    assert set(labelled.outcome.arrays) == ({"label", "time"} if name == "survival" else {"label"})
    assert (labelled.soft is None) is (name == "survival")
    KINDS[name].write(frame, labelled)  # a table without rows has all its columns
    assert {*KINDS[name].names, *KINDS[name].own_columns()} <= set(frame)


# ---- the choice among candidates


def listened(monkeypatch: pytest.MonkeyPatch, judgement: Callable[[int], float]) -> list[Index]:
    """Every judge replaced by a judgement of the number of the call; the candidates they saw."""
    seen: list[Index] = []

    def judged(judge: Any, encode: Any, placed: Placed) -> float:
        seen.append(placed.codes)
        return judgement(len(seen) - 1)

    monkeypatch.setattr(placement, "_judged", judged)
    return seen


@EVERY_KIND
@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_candidate_whose_students_agree_best_is_kept(monkeypatch: pytest.MonkeyPatch, name: str, best: int) -> None:
    seen = listened(monkeypatch, lambda call: float(call == best))
    placed = placed_of(learned(name=name), 6, name=name)
    assert len(seen) == 3
    np.testing.assert_array_equal(placed.codes, seen[best])
    assert not np.array_equal(seen[0], seen[1])


def test_a_set_too_large_for_several_candidates_is_judged_by_no_student(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = listened(monkeypatch, lambda call: 0.0)
    monkeypatch.setattr(placement, "MAX_WORK", 40 * 12 * 12 * 1.5)
    assert len(placed_of(learned(), 6).codes) == 12
    assert seen == []
    monkeypatch.setattr(placement, "MAX_WORK", 40 * 12 * 12 * 2.5)
    placed_of(learned(), 6)
    assert len(seen) == 2


def test_a_survival_set_too_large_for_several_candidates_has_no_student(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = listened(monkeypatch, lambda call: 0.0)
    monkeypatch.setattr(placement, "UNCORRELATED_WORK", 12 * 2 - 1)
    assert len(placed_of(learned(name="survival"), 6, name="survival").codes) == 12
    assert seen == []
    monkeypatch.setattr(placement, "UNCORRELATED_WORK", 12 * 2)
    placed_of(learned(name="survival"), 6, name="survival")
    assert len(seen) == 2


@pytest.mark.parametrize("name", ["binary", "multiclass"])
def test_students_of_better_rows_are_judged_better(name: str) -> None:
    """Rows that say nothing (all alike) against rows that span the columns."""
    known, side, rng = learned(name=name), side_of(name), np.random.default_rng(0)
    encode = Encoder(known.model.cells)
    pool = stratified(known.overall, 200, rng)
    judge = side.judge(known, pool, encode(pool, rng.random(pool.shape)))
    rows = stratified([p.mean(0) for p in known.marginals], 60, np.random.default_rng(1))

    def judged(codes: Index) -> float:
        labelled = side.label(known, codes, np.arange(60) % side.groups, np.full(60, 0.5))
        return judge(encode(codes, np.full(codes.shape, 0.5)), labelled)

    assert judged(np.repeat(rows[:1], 60, axis=0)) == pytest.approx(0.5)
    assert judged(rows) > 0.6


def test_a_cox_student_is_judged_by_how_closely_it_follows_the_model() -> None:
    """Rows with the model's own times, the same rows with times turned round, and rows that are all alike."""
    known, encode = learned(name="survival"), Encoder(public_cells(Schema(COLUMNS), fine=16))
    pool = stratified([p.mean(0) for p in known.marginals], 200, np.random.default_rng(0))
    judge = side_of("survival").judge(known, pool, encode(pool, np.random.default_rng(1).random(pool.shape)))
    rank = np.argsort(np.argsort(-known.model.margin(pool))).astype(np.float64) + 1
    rows = encode(pool, np.full(pool.shape, 0.5))

    def dying_at(time: Floats) -> Labelled:
        return Labelled(Outcome(KINDS["survival"], {"label": np.ones(200, np.int8), "time": time}), None, np.ones(200))

    assert judge(rows, dying_at(rank)) > 0.6
    assert judge(rows, dying_at(201 - rank)) < -0.6
    assert judge(np.repeat(rows[:1], 200, axis=0), dying_at(rank)) == -1.0


# ---- survival: two ends of follow-up


def curve_of(known: Learned) -> tuple[Curve, Index]:
    pool = stratified(known.overall, 500, np.random.default_rng(0))
    return Curve.of(known, known.model.margin(pool)), pool


def test_follow_up_ends_one_way_or_the_other_and_as_often_by_events_as_the_private_share_says() -> None:
    known = learned(name="survival")
    curve, pool = curve_of(known)
    seen, left = curve.ends(known.model.margin(pool))
    np.testing.assert_allclose(seen.sum(1) + left.sum(1), 1.0)
    assert seen.sum(1).mean() == pytest.approx(known.shares[1], abs=1e-6)
    risk = known.model.margin(pool)
    assert seen.sum(1)[risk.argmax()] > seen.sum(1)[risk.argmin()]


def test_the_ends_of_follow_up_are_those_of_many_small_steps() -> None:
    """Exact formulas against 60,000 steps of Euler's method, two margins."""
    curve, margin = curve_of(learned(name="survival"))[0], np.array([-1.0, 0.7])
    seen, left = curve.ends(margin)
    steps = 15_000
    for row, m in enumerate(margin):
        alive = 1.0
        for k in range(4):
            die, leave = curve.hazard[k] * np.exp(m + curve.shift), curve.leaving[k]
            share = alive * np.cumprod(np.full(steps, 1 - (die + leave) * 15.0 / steps))
            at_risk = np.concatenate([[alive], share[:-1]]).sum() * 15.0 / steps
            assert seen[row, k] == pytest.approx(die * at_risk, rel=1e-3)
            assert left[row, k] == pytest.approx(leave * at_risk, rel=1e-3)
            alive = float(share[-1])
        assert left[row, 4] == pytest.approx(alive, rel=1e-3)


def test_a_time_is_where_its_share_of_the_mass_is_reached() -> None:
    curve = Curve(np.array([0.0, 10.0, 30.0, 60.0]), np.ones(3), np.ones(3))
    mass = np.tile([0.2, 0.2, 0.4, 0.2], (5, 1))  # the last fifth stays to the end
    at = np.array([0.1, 0.3, 0.6, 0.79, 0.95])
    np.testing.assert_allclose(curve.quantile(mass, at), [5.0, 20.0, 45.0, 59.25, 60.0])
    assert curve.quantile(mass[:1], np.zeros(1)) == pytest.approx(0.2)  # nobody's follow-up has length 0
    event = np.tile([0.5, 0.0, 0.5, 0.0], (2, 1))  # no event after the horizon
    np.testing.assert_allclose(curve.quantile(event, np.array([0.25, 0.75])), [5.0, 45.0])


# ---- nothing here can see a patient

ALLOWED = {  # modules that hold no rows, and of others the names that hold none
    "distcondense.arrays": None,
    "distcondense.data.cells": None,
    "distcondense.data.codec": {"Codec"},
    "distcondense.data.schema": None,
    "distcondense.errors": None,
    "distcondense.kernels.exchange": None,
    "distcondense.outcomes.base": {"Judge", "Labelled", "Learned", "PrivateSide"},
}


def out_of_bounds(source: str) -> list[str]:
    """What a file imports of this package beyond the allowed, anywhere in it."""
    wrong = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            wrong += [alias.name for alias in node.names if alias.name.split(".")[0] == "distcondense"]
        elif isinstance(node, ast.ImportFrom):
            module, names = node.module or "", {alias.name for alias in node.names}
            if node.level or module.split(".")[0] == "distcondense":
                allowed = ALLOWED.get(module, set())
                wrong += [f"{module}.{name}" for name in names if allowed is not None and name not in allowed]
        elif isinstance(node, ast.Name) and node.id in ("__import__", "eval", "exec", "open"):
            wrong.append(node.id)
    return wrong


def test_placement_imports_nothing_that_holds_patients() -> None:
    assert out_of_bounds(Path(placement.__file__).read_text()) == []


@pytest.mark.parametrize("line", [
    "from distcondense.data.cohort import Cohort", "from distcondense import cohort",
    "import distcondense.data.cohort as c",
    "def f():\n    from distcondense.privacy.gate import PrivateTable", "from ..cohort import Cohort",
    "from distcondense.data.codec import Cohort", "__import__('distcondense.data.cohort')",
])  # fmt: skip
def test_the_import_check_would_notice_a_cohort(line: str) -> None:
    assert out_of_bounds(line) != []


def test_no_answer_is_a_property_of_what_was_learned_alone() -> None:
    known = learned()
    assert len(placed_of(known, 3).codes) == 6
    assert len(placed_of(replace(known, doubt="in doubt"), 3).codes) == 0
