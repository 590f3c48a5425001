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
from numpy.typing import NDArray

from distcondense.data.cells import public_cells
from distcondense.data.schema import Column, Schema
from distcondense.kernels.exchange import exchange_decorrelate, exchange_mmd
from distcondense.methods.private import placement
from distcondense.methods.private.fit import Learned
from distcondense.methods.private.placement import Placed, expected_auroc, place
from distcondense.models.additive import AdditiveModel
from distcondense.privacy.gate import Logistic, Objective, PiecewiseExponential
from tests import naive

HORIZON = 60.0
COLUMNS = (
    Column("age", "integer", low=0, high=120),
    Column("crp", "continuous", low=0, high=400, spacing="log"),
    Column("smoker", "binary", categories=(0, 1)),
    Column("stage", "categorical", categories=("I", "II", "III"), missing="category"),
    Column("albumin", "continuous", low=10, high=60, missing="indicator"),
    Column("site", "categorical", categories=("only",)),
)


def learned(*columns: Column, survival: bool = False, seed: int = 0, **other: Any) -> Learned:
    """What a gate might have answered about these columns, without any gate."""
    rng = np.random.default_rng(seed)
    cells = public_cells(Schema(columns or COLUMNS), fine=16)
    tables = tuple(np.cumsum(rng.normal(0, 0.5, c.size)) if c.ordered else rng.normal(0, 1, c.size) for c in cells)
    tables = tuple(t - t.mean() for t in tables)
    marginals = []
    for table in tables:
        base = rng.dirichlet(np.full(len(table), 2.0))
        both = np.stack([base, base * np.exp(table)])
        marginals.append(both / both.sum(1, keepdims=True))
    objective: Objective = Logistic()
    if survival:
        objective = PiecewiseExponential((15.0, 30.0, 45.0), HORIZON, hazard=(0.004, 0.006, 0.005, 0.003))
        other = {"leaving": (0.001, 0.01, 0.02, 0.03), **other}
    model = AdditiveModel(cells, -0.5, tables, "log-risk" if survival else "probability")
    facts: dict[str, Any] = {"rows": 3217.4, "positive": 0.31, "evidence": 50.0, **other}
    return Learned(model, tuple(range(len(cells))), tuple(marginals), objective=objective, **facts)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates and swaps: the promises hold at any number of them."""
    fewer = {
        "CANDIDATES": 3,
        "SURVIVAL_CANDIDATES": 3,
        "POOL": 200,
        "SURVIVAL_POOL": 800,
        "SWAPS_PER_ROW": 40,
        "ROUNDS": 5,
    }
    for name, value in fewer.items():
        monkeypatch.setattr(placement, name, value)


def same(a: Placed, b: Placed) -> bool:
    return all(np.array_equal(u, v) if u is not None else v is None for u, v in zip(parts(a), parts(b), strict=True))


def parts(placed: Placed) -> tuple[Any, ...]:
    return placed.codes, placed.inside, placed.label, placed.weight, placed.risk, placed.time


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
    codes, u = placement._uncorrelated(marginals, 60, np.random.default_rng(3))
    plain = placement._stratified(marginals, 60, np.random.default_rng(3))

    def together(rows: NDArray[Any]) -> float:
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

BOTH = pytest.mark.parametrize("survival", [False, True], ids=["binary", "survival"])


@BOTH
def test_one_seed_gives_one_set_of_rows_on_any_number_of_threads(survival: bool) -> None:
    known = learned(survival=survival)
    once = place(known, 6, seed=5)
    assert same(once, place(known, 6, seed=5))
    assert same(once, place(known, 6, seed=5, threads=3))
    other = place(known, 6, seed=6)
    assert not np.array_equal(once.codes, other.codes)
    assert not np.array_equal(once.inside, other.inside)


def test_candidates_that_are_made_at_the_same_time_do_not_share_their_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """All three are held back until each has drawn its rows: what they draw next must be their own."""
    alone, together, closer = place(learned(), 6, seed=5), threading.Barrier(3, timeout=20), placement._closer

    def held_back(*given: Any) -> Any:
        together.wait()
        return closer(*given)

    monkeypatch.setattr(placement, "_closer", held_back)
    assert same(alone, place(learned(), 6, seed=5, threads=3))


@BOTH
@pytest.mark.parametrize("ipc", [1, 2, 25])
def test_rows_are_legal_values_of_their_cells(survival: bool, ipc: int) -> None:
    known = learned(survival=survival)
    placed = place(known, ipc, seed=1)
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


@BOTH
@pytest.mark.parametrize("ipc", [1, 7, 40])
def test_each_class_has_its_rows_and_all_weights_add_up_to_the_noisy_number_of_rows(survival: bool, ipc: int) -> None:
    known = learned(survival=survival)
    placed = place(known, ipc, seed=2)
    assert placed.label.tolist() == [0] * ipc + [1] * ipc
    assert placed.codes.shape == placed.inside.shape == (2 * ipc, len(COLUMNS))
    assert placed.weight.sum() == pytest.approx(known.rows)
    assert (placed.weight > 0).all()
    assert (placed.time is None) is not survival
    assert (placed.risk is None) is survival


def test_the_soft_label_is_the_private_model_s_probability() -> None:
    known = learned()
    placed = place(known, 10, seed=3)
    margin = naive.additive_margin(known.model.intercept, known.model.tables, placed.codes)
    assert placed.risk is not None
    np.testing.assert_allclose(placed.risk, 1 / (1 + np.exp(-np.array(margin))), rtol=1e-12)


def test_every_column_holds_what_the_marginals_say() -> None:
    """Half the rows from each class, stratified; swaps between rows change no column: within a row per class."""
    known, ipc = learned(), 40
    placed = place(known, ipc, seed=4)
    for j, p in enumerate(known.marginals):
        count = np.bincount(placed.codes[:, j], minlength=p.shape[1])
        assert np.abs(count - ipc * p.sum(0)).max() < 2


def test_rows_lie_closer_to_the_population_than_stratified_ones() -> None:
    known = learned()
    mixture = placement._Mixture.of(known, 1.5)

    def apart(codes: NDArray[Any]) -> float:
        x = np.stack([group[codes[:, j]] for j, group in enumerate(mixture.groups)])
        return naive.squared_mmd(x, mixture.values, mixture.mean)

    for seed in range(3):
        rng = np.random.default_rng(seed)
        start = np.concatenate([placement._stratified([p[c] for p in known.marginals], 15, rng) for c in (0, 1)])
        assert apart(place(known, 15, seed=seed).codes) < apart(start)


def test_the_population_s_mean_embedding_is_the_average_kernel_under_each_class_s_marginal() -> None:
    known, width = learned(), 0.8
    mixture = placement._Mixture.of(known, width)
    for j, (table, p) in enumerate(zip(known.model.tables, known.marginals, strict=True)):
        for cell, group in enumerate(mixture.groups[j]):
            kernel = [np.exp(-abs(table[cell] - other) / width) for other in table]
            np.testing.assert_allclose(mixture.mean[:, j, group], p @ kernel)
            np.testing.assert_allclose(mixture.values[j, group, mixture.groups[j]], kernel)
    assert mixture.pick.sum() == pytest.approx(1.0)
    assert mixture.pick.argmin() == 5  # a column of one cell is hardly worth a proposal, yet may be proposed
    assert mixture.pick.min() > 0


@pytest.mark.parametrize("ipc", [1, 7, 60])
@pytest.mark.parametrize("share", [0.003, 0.31, 0.9])
def test_weighted_survival_rows_have_the_private_event_share_and_times_within_follow_up(ipc: int, share: float) -> None:
    placed = place(learned(survival=True, positive=share), ipc, seed=1)
    assert placed.time is not None
    assert np.average(placed.label, weights=placed.weight) == pytest.approx(share)
    assert (placed.time > 0).all()
    assert (placed.time <= HORIZON).all()


@BOTH
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
def test_a_single_column_of_any_kind_is_enough(survival: bool, column: Column) -> None:
    known = learned(column, survival=survival)
    for ipc in (1, 8):
        placed = place(known, ipc, seed=1)
        assert placed.codes.shape == (2 * ipc, 1)
        np.testing.assert_array_equal(known.model.codes(placed.features(known.model.cells)), placed.codes)
        assert np.isfinite(placed.weight).all()
        assert placed.weight.sum() == pytest.approx(known.rows)


@BOTH
def test_where_nothing_was_learned_there_are_no_rows(survival: bool) -> None:
    known = learned(survival=survival, doubt="too few rows of the rarer class to tell from noise")
    placed = place(known, 50, seed=1)
    frame = placed.features(known.model.cells)
    assert list(frame) == [column.name for column in COLUMNS]
    assert len(frame) == 0
    assert len(placed.label) == len(placed.weight) == 0
    assert (placed.time is None) is not survival
    assert (placed.risk is None) is survival


# ---- the choice among candidates


def listened(monkeypatch: pytest.MonkeyPatch, judgement: Callable[[int], float]) -> list[NDArray[Any]]:
    """Both judges replaced by a judgement of the number of the call; the candidates they saw."""
    seen: list[NDArray[Any]] = []

    def judge(self: Any, candidate: Any, inside: Any = None) -> float:
        seen.append(candidate.codes if isinstance(candidate, Placed) else candidate)
        return judgement(len(seen) - 1)

    for kind in (placement._Judge, placement._CoxJudge):
        monkeypatch.setattr(kind, "__call__", judge)
    return seen


@BOTH
@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_candidate_whose_students_agree_best_is_kept(
    monkeypatch: pytest.MonkeyPatch, survival: bool, best: int
) -> None:
    seen = listened(monkeypatch, lambda call: float(call == best))
    placed = place(learned(survival=survival), 6, seed=5)
    assert len(seen) == 3
    np.testing.assert_array_equal(placed.codes, seen[best])
    assert not np.array_equal(seen[0], seen[1])


def test_a_set_too_large_for_several_candidates_is_judged_by_no_student(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = listened(monkeypatch, lambda call: 0.0)
    monkeypatch.setattr(placement, "MAX_WORK", 40 * 12 * 12 * 1.5)
    assert len(place(learned(), 6, seed=5).label) == 12
    assert seen == []
    monkeypatch.setattr(placement, "MAX_WORK", 40 * 12 * 12 * 2.5)
    place(learned(), 6, seed=5)
    assert len(seen) == 2


def test_a_survival_set_too_large_for_several_candidates_has_no_student(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = listened(monkeypatch, lambda call: 0.0)
    monkeypatch.setattr(placement, "SURVIVAL_WORK", 12 * 2 - 1)
    assert len(place(learned(survival=True), 6, seed=5).label) == 12
    assert seen == []
    monkeypatch.setattr(placement, "SURVIVAL_WORK", 12 * 2)
    place(learned(survival=True), 6, seed=5)
    assert len(seen) == 2


def test_students_of_better_rows_are_judged_better() -> None:
    """Rows that say nothing (all alike) against rows that span the columns."""
    known = learned()
    judge = placement._Judge(known, np.random.default_rng(0))
    rows = placement._stratified([p.mean(0) for p in known.marginals], 60, np.random.default_rng(1))
    inside = np.full(rows.shape, 0.5)
    assert judge(np.repeat(rows[:1], 60, axis=0), inside) == pytest.approx(0.5)
    assert judge(rows, inside) > 0.6


def test_a_cox_student_is_judged_by_how_closely_it_follows_the_model() -> None:
    """Rows with the model's own times, the same rows with times turned round, and rows that are all alike."""
    known = learned(survival=True)
    pool = placement._stratified([p.mean(0) for p in known.marginals], 200, np.random.default_rng(0))
    judge = placement._CoxJudge(known, pool, np.random.default_rng(1))
    rank = np.argsort(np.argsort(-known.model.margin(pool))).astype(np.float64) + 1
    right = Placed(pool, np.full(pool.shape, 0.5), np.ones(200, np.int8), np.ones(200), time=rank)
    assert judge(right) > 0.6
    assert judge(replace(right, time=np.asarray(201 - rank, np.float64))) < -0.6
    alike = replace(right, codes=np.repeat(pool[:1], 200, axis=0))
    assert judge(alike) == -1.0


# ---- survival: two ends of follow-up


def curve_of(known: Learned) -> tuple[placement._Curve, NDArray[np.int64]]:
    overall = [(1 - known.positive) * p[0] + known.positive * p[1] for p in known.marginals]
    pool = placement._stratified(overall, 500, np.random.default_rng(0))
    return placement._Curve.of(known, pool), pool


def test_follow_up_ends_one_way_or_the_other_and_as_often_by_events_as_the_private_share_says() -> None:
    known = learned(survival=True)
    curve, pool = curve_of(known)
    seen, left = curve.ends(known.model.margin(pool))
    np.testing.assert_allclose(seen.sum(1) + left.sum(1), 1.0)
    assert seen.sum(1).mean() == pytest.approx(known.positive, abs=1e-6)
    risk = known.model.margin(pool)
    assert seen.sum(1)[risk.argmax()] > seen.sum(1)[risk.argmin()]


def test_the_ends_of_follow_up_are_those_of_many_small_steps() -> None:
    """Exact formulas against 60,000 steps of Euler's method, two margins."""
    curve, margin = curve_of(learned(survival=True))[0], np.array([-1.0, 0.7])
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
    curve = placement._Curve(np.array([0.0, 10.0, 30.0, 60.0]), np.ones(3), np.ones(3))
    mass = np.tile([0.2, 0.2, 0.4, 0.2], (5, 1))  # the last fifth stays to the end
    at = np.array([0.1, 0.3, 0.6, 0.79, 0.95])
    np.testing.assert_allclose(curve.quantile(mass, at), [5.0, 20.0, 45.0, 59.25, 60.0])
    assert curve.quantile(mass[:1], np.zeros(1)) == pytest.approx(0.2)  # nobody's follow-up has length 0
    event = np.tile([0.5, 0.0, 0.5, 0.0], (2, 1))  # no event after the horizon
    np.testing.assert_allclose(curve.quantile(event, np.array([0.25, 0.75])), [5.0, 45.0])


# ---- nothing here can see a patient

ALLOWED = {  # modules that hold no rows, and the names taken from the gate's
    "distcondense.data.cells": None,
    "distcondense.data.codec": {"Codec"},
    "distcondense.data.cohort": {"Outcome"},  # a plain record, here of synthetic rows
    "distcondense.errors": None,
    "distcondense.kernels.exchange": None,
    "distcondense.privacy.gate": {"PiecewiseExponential"},
    "distcondense.models.learners": {"fit_cox"},
    "distcondense.methods.private.fit": {"Learned"},
    "distcondense.data.schema": None,
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
    "from distcondense.data.cohort import Cohort", "from distcondense import cohort", "import distcondense.data.cohort as c",
    "def f():\n    from distcondense.privacy.gate import PrivateTable", "from ..cohort import Cohort",
    "from distcondense.data.codec import Cohort", "__import__('distcondense.data.cohort')",
])  # fmt: skip
def test_the_import_check_would_notice_a_cohort(line: str) -> None:
    assert out_of_bounds(line) != []


def test_no_answer_is_a_property_of_what_was_learned_alone() -> None:
    known = learned()
    assert len(place(known, 3, seed=1).label) == 6
    assert len(place(replace(known, doubt="in doubt"), 3, seed=1).label) == 0
