"""Cells that follow the rows, bounds and categories that are found and paid for: what is found, and what it costs."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distcondense as dc
from distcondense.data.cells import FINE, MICRO, OCTAVES, Cells, public_cells
from distcondense.data.features import check_features
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, SchemaError
from distcondense.methods.private import plan as planning
from distcondense.methods.private.domain import (
    Bounded,
    bounded,
    follow,
    found_categories,
    found_cells,
    levels,
    most_cells,
    out_of_reach,
)
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.plan import NAMED_SHARE, Plan
from distcondense.methods.private.prepare import prepare
from distcondense.outcomes.binary import Binary
from distcondense.privacy import noise
from distcondense.privacy.accountant import membership_advantage, replay, trade_off, with_earlier
from distcondense.privacy.budget import Budget
from distcondense.privacy.events import Event
from distcondense.privacy.verify import verify


def micro(column: Column) -> Cells:
    return public_cells(Schema((column,)), MICRO)[0]


def number(low: float = 0, high: float = 1, **more: Any) -> Column:
    return Column("x", "continuous", low=low, high=high, **more)


def counting(cells: Cells, values: Any, sigma: float, seed: int = 0) -> Any:
    """What the gate would answer, with ordinary noise."""
    rng = np.random.default_rng(seed)
    codes = cells.codes(pd.Series(values, dtype=float))

    def count(starts: Any) -> Any:
        held = np.bincount(np.searchsorted(starts, codes, side="right") - 1, minlength=len(starts))
        return held + rng.normal(0, sigma, len(starts))

    return count


def found(column: Column, values: Any, sigma: float = 20.0, seed: int = 0) -> tuple[Cells, Any]:
    cells = micro(column)
    new, merge = found_cells(cells, counting(cells, values, sigma, seed), sigma)
    if not new.boundless:
        return new, merge
    told = bounding(new, values, sigma, seed)
    return told.cells, told.merge[merge]


def bounding(cells: Cells, values: Any, sigma: float, seed: int = 0, rows: float | None = None) -> Bounded:
    """Bounds from what the gate would answer about these cells."""
    codes = cells.codes(pd.Series(values, dtype=float))
    counts = np.bincount(codes, minlength=cells.size) + np.random.default_rng([seed, 1]).normal(0, sigma, cells.size)
    return bounded(cells, counts, sigma, rows)


# ---- which columns are counted, and what it costs


def test_only_numbers_on_a_grid_too_fine_to_be_counted_at_once_are_counted_first() -> None:
    few = Column("x", "integer", low=0, high=FINE - 1)
    assert levels(micro(few)) == 0
    assert levels(micro(replace(few, high=FINE))) == 1
    assert levels(micro(number())) == 1
    assert levels(micro(number(-5, 3, spacing="log", missing="indicator"))) == 1
    assert levels(micro(Column("x", "categorical", categories=tuple("abc")))) == 0
    for kind in ("integer", "continuous"):
        assert levels(micro(Column("x", kind, domain="private"))) == 2  # type: ignore[arg-type]
    assert most_cells(micro(number(missing="indicator"))) == FINE + 1


def test_the_plan_says_the_questions_and_their_price_from_public_facts() -> None:
    schema = Schema(
        (
            number(),
            Column("i", "integer", low=0, high=9),
            Column("p", "integer", domain="private"),
            Column("c", "categorical", domain="private"),
        )
    )
    cells, side = public_cells(schema, MICRO), Binary(("y",)).private_side()
    plan = Plan.for_table(4, side, cells)
    assert (plan.domain, plan.unlisted) == (3, 1)
    budget = plan.budget(1.0, 1e-5)
    events = plan.events(budget, cells, side, "person", 7)
    ours = [e for e in events if e.cost == plan.domain_cost(budget) and e.query in ("categories", "histogram")]
    asked = [(e.query, e.columns, e.cells) for e in ours]
    assert asked == [("categories", ("c",), 7), ("histogram", ("x",), FINE + 1), *[("histogram", ("p",), FINE + 1)] * 2]
    spent = math.fsum(e.cost**2 for e in ours) / budget.mu**2
    assert spent == pytest.approx(planning.DOMAIN_SHARE)
    assert math.fsum(e.delta for e in events) == pytest.approx(NAMED_SHARE * 1e-5)
    assert 0.999 < replay(events, 1e-5).epsilon <= 1.0
    bare = Plan.for_table(1, side, public_cells(Schema((Column("i", "integer", low=0, high=9),)), MICRO))
    assert (bare.domain, bare.unlisted, bare.budget(1.0, 1e-5).delta_categories) == (0, 0, 0.0)
    assert not [e for e in bare.events(bare.budget(1.0, 1e-5), cells[1:2], side, "row") if e.by == "none"]  # one column


def test_of_a_wide_table_only_chosen_columns_are_counted() -> None:
    columns = tuple(number() for _ in range(200))
    schema = Schema(tuple(replace(column, name=f"x{k}") for k, column in enumerate(columns)))
    side = Binary(("y",)).private_side()
    plan = Plan.for_table(200, side, public_cells(schema, MICRO))
    assert plan.domain == plan.picks == planning.PICKS


# ---- cells that follow the rows


@given(st.integers(0, 10_000), st.sampled_from([1.0, 30.0, 1000.0]), st.integers(0, 3))
def test_new_cells_are_a_partition_of_the_old_ones_and_no_more_than_they_may_be(
    rows: int, sigma: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    column = number(-50, 50, missing="indicator")
    values = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(3, 1, rows))
    cells, merge = found(column, values, sigma, seed)
    old = micro(column)
    assert cells.size <= most_cells(old)
    assert np.all(np.diff(cells.cuts) > 0)
    assert merge.shape == (old.size,)
    assert np.all(np.isin(np.diff(merge), (0, 1)))
    assert (merge[0], merge[-1]) == (0, cells.size - 1)
    series = pd.Series([*values, -50.0, 50.0, 0.0, np.nan])
    assert merge[old.codes(series)].tolist() == cells.codes(series).tolist()  # at the gate and afterwards the same


def test_cells_are_fine_where_rows_are_however_generous_the_bounds() -> None:
    values = np.random.default_rng(1).normal(120, 15, 20_000)
    for low, high in ((60.0, 240.0), (-150.0, 16_020.0), (-9000.0, 9000.0)):
        cells, _ = found(number(low, high), values)
        inside = cells.cuts[(cells.cuts > 80) & (cells.cuts < 160)]
        assert len(inside) >= 30, (low, high)
    cells, _ = found(Column("x", "integer", domain="private"), np.round(values))
    assert len(cells.cuts[(cells.cuts > 80) & (cells.cuts < 160)]) >= 70
    assert 0 <= cells.column.low <= 85  # type: ignore[operator]
    assert 155 <= cells.column.high <= 300  # type: ignore[operator]


def test_too_few_rows_leave_equal_cells() -> None:
    cells, _ = found(number(0, 100), np.full(10, 50.0), sigma=1000.0, seed=2)
    assert FINE - 2 <= cells.size <= FINE
    assert np.ptp(np.diff(cells.cuts)) < 2.0


def test_a_heavy_zero_is_a_cell_of_its_own() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random(20_000) < 0.9, 0.0, rng.integers(3000, 90_000, 20_000))
    for column in (
        Column("x", "integer", low=-5_000_000, high=5_000_000),
        Column("x", "integer", domain="private"),
        Column("x", "integer", low=-5_000_000, high=5_000_000, spacing="log"),
    ):
        cells, _ = found(column, values)
        zero = int(cells.codes(pd.Series([0.0]))[0])
        edges = [-math.inf, *cells.cuts, math.inf]
        assert edges[zero] == 0 or cells.column.low == 0
        assert edges[zero + 1] <= 3000


def test_empty_cells_are_wider_the_further_they_lie_from_any_row() -> None:
    counts = np.zeros(64)
    counts[30] = 1000.0
    starts = follow(counts, 1.0, np.arange(64) * 10, 640, 64)
    widths = np.diff([*starts, 640])
    left = widths[starts < 300]
    assert left.tolist() == sorted(left.tolist(), reverse=True)
    assert left[-2:].tolist() == [10, 10]
    assert np.all(widths[(starts >= 300) & (starts < 310)] == 1)


def test_nobody_is_drawn_far_from_everybody() -> None:
    column = number(-1000, 1000)
    cells = replace(micro(column), cuts=np.linspace(-1000, 1000, 101)[1:-1])
    counts = np.random.default_rng(0).normal(0, 5, 100)
    counts[50:53] += 1000
    far = out_of_reach(counts, 5.0, cells)
    assert far.sum() >= 90
    assert not far[49:54].any()
    assert not out_of_reach(np.zeros(100), 5.0, cells).any()


def test_rows_are_drawn_wherever_noise_may_hide_many_of_them() -> None:
    cells = replace(micro(number(0, 16)), cuts=np.arange(1.0, 16))
    counts = np.zeros(16)
    counts[8], counts[15] = 500.0, 700.0  # a spike in the middle that stands out alone, but not with eight cells before
    counts[:8] = -20.0
    assert not out_of_reach(counts, 60.0, cells)[2:].any()
    counts[:] = 50.0
    counts[10] = 900.0  # one cell stands out: the others hold half of all rows
    assert not out_of_reach(counts, 60.0, cells).any()
    assert out_of_reach(np.where(counts > 100, 900.0, 0.0), 1.0, cells)[[*range(9), *range(12, 16)]].all()


def test_what_the_noise_is_made_of_is_not_taken_for_bounds() -> None:
    column = Column("x", "continuous", domain="private", decimals=2)
    for seed in range(30):
        values = np.random.default_rng(seed).uniform(2, 6, 5000)
        cells, _ = found(column, values, 30.0, seed)
        assert not cells.boundless
        assert not cells.column.problems()
        assert 0 <= cells.column.low <= 2.1  # type: ignore[operator]
        assert 5.8 <= cells.column.high <= 12  # type: ignore[operator]
    nothing, merge = found(column, [], 30.0)
    assert (nothing.column.low, nothing.column.high, nothing.size, merge.max()) == (0, 1, 1, 0)


LABORATORY: dict[str, Any] = {
    "heart rate": lambda rng, n: np.clip(rng.normal(97, 30, n), 0, 300).round(),
    "four decades": lambda rng, n: 10 ** rng.normal(1.5, 0.6, n),
    "TSH": lambda rng, n: np.exp(rng.normal(0.5, 1.4, n)).round(2),
    "bilirubin": lambda rng, n: np.exp(rng.normal(-0.3, 1.1, n)).round(1),
    "probability": lambda rng, n: rng.beta(2, 1.5, n).round(3),
    "rare probability": lambda rng, n: rng.beta(0.5, 3, n).round(3),
    "percentage": lambda rng, n: (100 * rng.beta(8, 1.5, n)).round(),
    "sodium": lambda rng, n: rng.normal(137.5, 6, n).round(),
    "base excess": lambda rng, n: rng.normal(-1, 5, n).round(1),
    "count": lambda rng, n: rng.poisson(1.9, n).astype(float),
    "mostly none": lambda rng, n: np.where(rng.random(n) < 0.85, 0, np.exp(rng.normal(6, 1, n)).round()),
    "years of schooling": lambda rng, n: np.clip(rng.normal(11.7, 3.4, n).round(), 0, 31),
}


@pytest.mark.parametrize("name", LABORATORY)
def test_bounds_leave_hardly_anybody_out_and_no_desert_in(name: str) -> None:
    """9,000 rows, and the noise that thirty numbers have together at ε = 1."""
    rng, column = np.random.default_rng(0), Column("x", "continuous", domain="private")
    values = LABORATORY[name](rng, 9000)
    lost, wide, highest = [], [], []
    real = np.ptp(np.quantile(values, [0.001, 0.999]))
    for seed in range(8):
        new, _ = found_cells(micro(column), counting(micro(column), values, 150.0, seed), 150.0, 9000, 48)
        told = bounding(new, values, 50.0, seed, 9000.0 + 60 * rng.normal())
        low, high = told.cells.bounds
        assert not told.cells.column.problems()
        lost.append(float(((values < low) | (values > high)).mean()))
        wide.append((high - low) / real)
        highest.append(high)
        assert told.below + told.above < 9000 * (lost[-1] + 0.01) + 4 * sum(told.noise)
        legal = told.cells.numbers(np.arange(told.cells.size), np.full(told.cells.size, 0.5))
        assert ((legal >= low) & (legal <= high)).all()
    assert np.mean(lost) <= 0.01
    assert max(wide) <= (8.0 if name == "mostly none" else 4.0)
    if name in ("probability", "percentage"):
        assert np.mean(np.isin(highest, (1, 100))) > 0.5


def test_what_bounds_leave_out_joins_the_outermost_cells_and_is_said() -> None:
    cells = replace(micro(Column("x", "continuous", domain="private", missing="indicator")), cuts=np.arange(-1.0, 120))
    counts = np.zeros(cells.size)
    counts[2:22], counts[-2], counts[-1] = 500.0, 40.0, 77.0  # numbers from 0 to 20, some far out, and holes
    told = bounded(cells, counts, 10.0)
    low, high = told.cells.bounds
    assert low == 0
    assert 20 <= high < 60
    held = np.bincount(told.merge, counts)
    assert len(held) == told.cells.size
    assert held[-1] == 77
    assert held[-2] >= 40
    assert (told.below, told.above) == (0.0, 40.0)
    assert told.noise[1] == pytest.approx(10 * np.sqrt(120 - high + 1), rel=0.02)


@pytest.mark.parametrize("column", [number(0, 500), number(-3.3, -3.1), number(-1e-3, 1e7, spacing="log")])
def test_numbers_of_unknown_precision_have_no_more_digits_than_their_cells_tell_apart(column: Column) -> None:
    cells, rng = public_cells(Schema((column,)))[0], np.random.default_rng(0)
    codes = rng.integers(0, cells.size, 5000)
    values = cells.numbers(codes, rng.random(5000))
    np.testing.assert_array_equal(cells.codes(pd.Series(values)), codes)
    assert max(len(f"{value:.12g}") for value in values) <= 9
    assert len(np.unique(values)) > 500


@given(st.floats(-1e13, 1e13))
def test_a_number_without_bounds_has_a_cell_of_nearly_its_own(value: float) -> None:
    cells = micro(Column("x", "continuous", domain="private"))
    code = int(cells.codes(pd.Series([value]))[0])
    edges = [-math.inf, *cells.cuts, math.inf]
    assert edges[code] <= value < edges[code + 1]
    if 2.0**-OCTAVES <= abs(value) < 2.0**OCTAVES:
        assert edges[code + 1] - edges[code] <= abs(value) / 1000


# ---- categories


def test_found_categories_are_listed_by_text_and_the_others_share_one() -> None:
    cells = micro(Column("c", "categorical", domain="private", missing="category"))
    new, labels = found_categories(cells, {"b": 50.0, "a": 20.0, "other": 30.0}, checked=False)
    assert labels == ("a", "b", "other")
    assert new.column.categories == ("a", "b", "other", "other_")
    assert new.size == 5
    _many, labels = found_categories(cells, {f"v{k}": float(k) for k in range(300)}, checked=True)
    assert len(labels) == FINE
    assert "v299" in labels
    assert "v0" not in labels


def test_found_values_that_look_like_identifiers_are_kept_back() -> None:
    cells = micro(Column("c", "categorical", domain="private"))
    told = {f"2024-01-{k:02d}": 100.0 for k in range(1, 29)}
    assert found_categories(cells, told, checked=False)[1] == ()
    assert found_categories(cells, told, checked=False)[0].column.categories == ("other",)
    assert len(found_categories(cells, told, checked=True)[1]) == 28


def test_a_value_without_a_list_is_read_as_its_own_text_whatever_stands_beside_it() -> None:
    schema = Schema((Column("c", "categorical", domain="private", missing="category"),))
    for beside in ([], [None], ["a"], [2.5], [True]):
        read = check_features(pd.DataFrame({"c": pd.Series([1, 2, *beside], dtype=object)}), schema)["c"]
        assert list(read[:2]) == ["1", "2"]
    whole = check_features(pd.DataFrame({"c": [1.0, np.nan]}), schema)["c"]
    assert whole[0] == "1"
    assert pd.isna(whole[1])
    later = Schema((Column("c", "categorical", categories=("1", "other"), domain="private", missing="category"),))
    again = check_features(pd.DataFrame({"c": [1, 7, None]}, dtype=object), later)
    cells = public_cells(later)[0]
    assert cells.codes(again["c"]).tolist() == [0, 1, 2]


# ---- the schema


def test_the_words_of_a_schema_file_come_back_as_they_were(tmp_path: Path) -> None:
    text = """
    [columns.age]
    kind = "integer"
    bounds = "private"
    [columns.site]
    kind = "categorical"
    categories = "private"
    missing = "category"
    """
    file = tmp_path / "schema.toml"
    file.write_text(text)
    schema = Schema.from_toml(file)
    assert schema["age"].unknown
    assert schema["site"].unknown
    assert schema.to_dict()["columns"]["age"] == {"kind": "integer", "bounds": "private"}
    assert schema.to_dict()["columns"]["site"]["categories"] == "private"
    assert Schema.from_dict(schema.to_dict()) == schema
    told = replace(schema["age"], low=0, high=90)
    assert not told.unknown
    assert told.to_dict() == {"kind": "integer", "low": 0, "high": 90, "domain": "private"}
    check_features(pd.DataFrame({"age": [-500, 4000]}), Schema((told,)))  # moved into the bounds, not refused


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ({"kind": "integer", "bounds": "public"}, "bounds can only be"),
        ({"kind": "integer", "bounds": "private", "low": 0, "high": 3}, "exclude each other"),
        ({"kind": "integer", "categories": "private"}, "belongs to categorical"),
        ({"kind": "categorical", "bounds": "private"}, "belongs to continuous"),
        ({"kind": "binary", "categories": "private"}, "cannot be private"),
        ({"kind": "categorical", "categories": "private", "ordered": True}, "ordered needs"),
        ({"kind": "categorical", "categories": "private", "missing": "constant", "fill": "a"}, "declared categories"),
        ({"kind": "integer", "bounds": "private", "step": 5}, "step needs declared bounds"),
        ({"kind": "integer", "domain": "secret"}, "domain must be one of"),
    ],
)
def test_a_private_domain_that_cannot_be_is_refused(entry: dict[str, Any], what: str) -> None:
    with pytest.raises(SchemaError, match=what):
        Schema.from_dict({"columns": {"x": entry}})


def test_a_method_that_does_not_pay_needs_the_list() -> None:
    with pytest.raises((SchemaError, CohortError), match="categories"):
        dc.condense(cohort(200, 0), method="published", ipc=20, noise=False, threads=1)


# ---- the account


def told(delta: float, cost: float = 0.1) -> Event:
    return Event("gaussian", "categories", ("c",), 5, cost, noise=1 / cost, by="value", delta=delta)


def test_what_names_cost_is_added_to_delta_and_hardly_to_epsilon() -> None:
    plain = [Event("gaussian", "histogram", ("c",), 5, 0.1, noise=10.0)] * 2
    named = [told(1e-6), told(2e-6)]
    found = replay(named, 1e-5)
    assert found.delta_categories == pytest.approx(3e-6)
    assert found.epsilon == pytest.approx(replay(plain, 7e-6).epsilon + 3e-6, abs=1e-9)
    assert found.epsilon > replay(plain, 7e-6).epsilon > replay(plain, 1e-5).epsilon
    assert found.agree
    assert math.isinf(replay(named, 3e-6).epsilon)
    assert math.isinf(replay([told(1e-5)], 1e-5).epsilon)


def test_names_of_several_runs_add_up() -> None:
    first, second = [replace(told(1e-6), run="a")], [replace(told(1e-6), run="b")]
    both = with_earlier(second, first, 1e-5)
    assert both == pytest.approx(replay([told(1e-6), told(1e-6)], 1e-5).epsilon)
    assert with_earlier([replace(told(6e-6), run="b")], [replace(told(6e-6), run="a")], 1e-5) == "unbounded"


def test_a_tester_who_waits_for_a_name_is_within_the_curve() -> None:
    """The worst case there is: with probability Δ the answer names the person, and otherwise says nothing."""
    delta = 0.01
    events = [told(delta, 1e-6)]
    assert membership_advantage(events) >= delta
    assert membership_advantage(events) < delta + 1e-5
    for alpha, beta in trade_off(events):
        assert beta <= max(0.0, 1 - delta - alpha) + 1e-12
        assert beta >= max(0.0, 1 - 2 * delta - alpha) - 1e-5


def test_the_two_sided_bound_holds_for_an_exact_mechanism() -> None:
    """One listed value and one of the person's own, noise and threshold, all probabilities exactly: both directions."""
    scale, shift = 40.0, 10
    grid = np.arange(-1200, 1201)
    mass = np.exp(-(grid**2) / (2 * scale**2))
    mass /= mass.sum()
    above = noise.threshold(shift, scale, 1, 2e-3)
    own = float(mass[grid > above - shift].sum())  # the person's own value is told
    assert own <= 2e-3
    # outputs: the listed value's noisy count (moved by the person), and whether the own value is told, and its count
    without = mass
    with_ = np.concatenate([np.zeros(shift), mass[:-shift]])
    mu = shift / scale
    event = Event("gaussian", "categories", ("c",), 1, mu, noise=1 / mu, by="value", delta=2e-3)
    base = replay([replace(event, query="histogram", delta=0.0)], 1e-2)
    for epsilon in (0.5, base.epsilon):
        slack = -math.log1p(-2e-3)
        gauss = max(
            np.maximum(with_ - math.exp(epsilon) * without, 0).sum(),
            np.maximum(without - math.exp(epsilon) * with_, 0).sum(),
        )
        joined = own + np.maximum((1 - own) * with_ - math.exp(epsilon + slack) * without, 0).sum()
        left = np.maximum(without - math.exp(epsilon + slack) * (1 - own) * with_, 0).sum()
        assert joined <= gauss + 2e-3
        assert left <= gauss


def test_a_budget_leaves_room_for_names() -> None:
    for picks, share in ((0, 0.0), (3, 0.2)):
        budget = Budget.calibrate(epsilon=1.0, delta=1e-5, delta_categories=1e-6, picks=picks, pick_share=share)
        assert budget.mu < Budget.calibrate(epsilon=1.0, delta=1e-5, picks=picks, pick_share=share).mu
        assert 0.99 < budget.total_epsilon() <= 1.0


# ---- whole runs


SCHEMA = Schema(
    (
        Column("age", "integer", domain="private"),
        Column("dose", "continuous", domain="private", missing="indicator"),
        Column("site", "categorical", domain="private", missing="category"),
        Column("died", "binary", categories=(0, 1)),
    )
)


def frame(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    site = rng.choice(np.array(["north", "south", "west"], object), rows, p=[0.5, 0.3, 0.2])
    site[rng.random(rows) < 0.1] = None
    out = pd.DataFrame({"age": rng.integers(20, 90, rows), "dose": rng.lognormal(1, 0.4, rows), "site": site})
    out.loc[rng.random(rows) < 0.05, "dose"] = np.nan
    risk = 1 / (1 + np.exp(-(out["age"] - 60) / 8 - (site == "north")))
    out["died"] = (rng.random(rows) < risk).astype(int)
    return out


def cohort(rows: int, seed: int) -> dc.Cohort:
    return dc.Cohort.from_frame(frame(rows, seed), target="died", schema=SCHEMA)


def test_a_custodian_without_a_codebook_gets_a_release_that_verifies(tmp_path: Path) -> None:
    table = frame(6000, 1)
    table.loc[0, "site"] = "the only one of its kind"
    made = dc.Cohort.from_frame(table, target="died", schema=SCHEMA)
    result = dc.condense(made, epsilon=4.0, ipc=20, threads=1, out=tmp_path / "run")
    assert result.privacy.guarantee == "end-to-end"
    assert verify(tmp_path / "run").holds
    assert result.schema["site"].categories == ("north", "south", "west", "other")
    assert 0 <= result.schema["age"].low <= 20  # type: ignore[operator]
    assert 88 <= result.schema["age"].high <= 260  # type: ignore[operator]
    assert result.schema == Schema.from_toml(tmp_path / "run/release/schema.toml")
    stated = json.loads((tmp_path / "run/release/privacy.json").read_text())
    assert stated["parameters"]["delta_reserved_for_found_categories"] == pytest.approx(NAMED_SHARE * 1e-5)
    assert "paid for" in stated["statement"]
    everything = "".join(p.read_text(errors="ignore") for p in (tmp_path / "run").rglob("*") if p.is_file())
    assert "only one of its kind" not in everything
    scores = dc.evaluate(made, result, threads=1)
    assert scores


def test_a_ledger_without_its_delta_does_not_pay(tmp_path: Path) -> None:
    dc.condense(cohort(3000, 1), epsilon=2.0, ipc=5, threads=1, out=tmp_path / "run")
    file = tmp_path / "run/release/privacy.json"
    stated = json.loads(file.read_text())
    for entry in stated["ledger"]:
        entry["delta"] *= 5
    file.write_text(json.dumps(stated))
    assert not verify(file).pays


def test_a_private_model_finds_its_domain_and_says_others_of_what_it_did_not() -> None:
    model = dc.PrivateModel(epsilon=4.0).fit(cohort(6000, 2))
    new = pd.DataFrame({"age": [-5, 300, 50], "dose": [1e9, None, 3.0], "site": ["nowhere", None, "north"]})
    assert np.isfinite(model.decision_function(new)).all()
    assert model.tables_["site"].index.tolist() == ["north", "south", "west", "other", "missing"]
    assert model.privacy_.guarantee == "end-to-end"


def test_nothing_of_a_private_domain_is_public_before_the_gate() -> None:
    """What is planned is the same for two tables with other values."""
    a, b = (prepare(cohort(rows, seed).facts, PrivateOptions()) for rows, seed in ((300, 0), (700, 5)))
    assert a.planned == b.planned
    assert [c.size for c in a.cells] == [c.size for c in b.cells]


def test_private_bounds_need_no_trust_but_an_outcome_must_be_declared() -> None:
    wrong = replace(SCHEMA, columns=(*SCHEMA.columns[:3], Column("died", "categorical", domain="private")))
    with pytest.raises((CohortError, SchemaError, dc.errors.SettingsError)):
        dc.condense(dc.Cohort.from_frame(frame(200, 0), target="died", schema=wrong), threads=1)


@given(
    st.integers(0, 10_000), st.sampled_from([1.0, 30.0, 1000.0]), st.integers(0, 50), st.sampled_from([16, 48, FINE])
)
def test_a_number_without_bounds_has_no_more_cells_than_were_planned(
    rows: int, sigma: float, seed: int, most: int
) -> None:
    column = Column("x", "continuous", domain="private", missing="indicator")
    rng = np.random.default_rng(seed)
    values = np.where(rng.random(rows) < 0.1, np.nan, rng.normal(0, 3, rows) * 10.0 ** rng.integers(-3, 6, rows))
    cells, merge = found_cells(micro(column), counting(micro(column), values, sigma, seed), sigma, rows, most)
    assert cells.size <= most_cells(micro(column))
    assert merge.max() == cells.size - 1
    told = bounding(cells, values, sigma, seed)
    assert told.cells.size == told.merge.max() + 1
    assert np.all(np.isin(np.diff(told.merge), (0, 1)))
    assert not told.cells.column.problems()
    assert told.cells.cuts.size == 0 or told.cells.column.low < told.cells.cuts[0]
    held = told.cells.codes(pd.Series(np.clip(values, *told.cells.bounds)))
    assert (held == told.merge[cells.codes(pd.Series(values))]).all()  # at the gate and afterwards the same
