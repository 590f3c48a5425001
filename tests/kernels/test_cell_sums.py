"""Rows counted and added up quickly: side by side, three columns at once, in one pass; each against loops."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense.data.coding import _jumps
from distcondense.kernels import binning, elementwise
from distcondense.kernels import cell_sums as kernels
from distcondense.outcomes.binary import Logistic
from distcondense.privacy.contributions import FARTHEST, OnGrid, in_steps
from distcondense.privacy.questions import (
    GradientQuery,
    HistogramQuery,
    MergeBins,
    PairChoice,
    SetObjective,
    ShiftScores,
)
from distcondense.privacy.rows import MARGIN, IntegerSums
from distcondense.privacy.shards import ShardedRows
from distcondense.privacy.table_rows import JOINT, TableRows, pairs_by_triple
from tests import naive
from tests.toys import SoftLogistic

LENGTHS = (0, 1, 3, 4, 511, 512, 513, 1030)
LIMIT = 2.0**20


@pytest.mark.parametrize("size", [1, 2, 300, kernels.SMALL, kernels.SMALL + 1])
@pytest.mark.parametrize("groups", [0, 1, 3])
def test_rows_are_counted_as_loops_count_them(size: int, groups: int) -> None:
    rng = np.random.default_rng([size, groups])
    for rows, kind in itertools.product(LENGTHS, (np.uint8, np.uint16, np.int64)):
        cell = rng.integers(0, min(size, np.iinfo(kind).max + 1), rows).astype(kind)
        group = rng.integers(0, groups, rows).astype(np.int8) if groups else np.zeros(1, np.int8)
        total = rng.integers(0, 9, (max(groups, 1), size))
        expected = total.copy()
        for i in range(rows):
            expected[group[i] if groups else 0, cell[i]] += 1
        kernels.count(cell, group, total)
        assert np.array_equal(total, expected)


@pytest.mark.parametrize("objective", [Logistic(), SoftLogistic()], ids=["labels", "shares"])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("cells", [5, kernels.SMALL_PAIRS + 1])
@pytest.mark.parametrize("rows", LENGTHS)
def test_gradients_looked_up_are_those_written_down_and_added_one_by_one(
    rows: int, cells: int, shifted: bool, objective: Logistic
) -> None:
    rng = np.random.default_rng(rows)
    assert isinstance(objective, OnGrid)
    score = in_steps(rng.normal(0, 4, rows), objective.step)
    far = rng.random(rows) < 0.2
    score[far] = rng.choice([30 * 1024, 30 * 1024 + 1, -30 * 1024, -30 * 1024 - 1, FARTHEST, -FARTHEST], far.sum())
    cell, label = rng.integers(0, cells, rows).astype(np.uint16), rng.integers(0, 2, rows)
    target, factor = objective.prepare({"label": label, "share": rng.random(rows)}), LIMIT * MARGIN
    total, expected = np.ones((2, cells), np.int64), [[1] * cells, [1] * cells]
    code, table = rng.integers(0, 3, rows).astype(np.uint8), in_steps(rng.normal(size=3), objective.step)
    after = np.array([one + table[code[i]] for i, one in enumerate(score)], np.int32) if shifted else score.copy()
    objective.add(cell, score, target, factor, total, (code, table) if shifted else None)
    for own, values in zip(expected, objective.contributions(after * objective.step, target), strict=True):
        for i in range(rows):
            own[cell[i]] += int(values[i] * factor)
    assert total.tolist() == expected
    assert np.array_equal(score, after)


def test_shifts_are_rounded_to_steps_for_every_row_alike() -> None:
    rng, objective = np.random.default_rng(8), Logistic()
    n, step = 300, objective.step
    codes, label = rng.integers(0, 4, (n, 1)), rng.integers(0, 2, n)
    shifts = [rng.normal(0, 2, 4), np.array([1e300, -1e300, 0.4 * step, -0.6 * step]), rng.normal(0, 2, 4)]
    rows = TableRows.from_table(codes, [4], {"label": label}, objective)
    for shift in shifts:
        rows.apply(ShiftScores((0,), shift))
    score = sum(np.clip(np.round(shift / step), -FARTHEST, FARTHEST) for shift in shifts) * step
    expected = [[0] * 4, [0] * 4]
    for own, values in zip(expected, objective.contributions(score[codes[:, 0]], {"label": label == 1}), strict=True):
        for i in range(n):
            own[codes[i, 0]] += int(values[i] * (LIMIT * MARGIN))
    assert rows.answer(GradientQuery((0,)), LIMIT).tolist() == [*expected[0], *expected[1]]


def test_scores_in_steps_stay_what_they_are_when_something_else_is_aimed_at() -> None:
    """Whether scores and outcomes agree is asked of an objective that knows no steps."""

    @dataclass(frozen=True)
    class Elsewhere(Logistic):
        add = None  # type: ignore[assignment]

    rng, step = np.random.default_rng(9), Logistic().step
    codes, label = rng.integers(0, 4, (200, 1)), rng.integers(0, 2, 200)
    both = [TableRows.from_table(codes, [4], {"label": label}, Logistic()) for _ in range(2)]
    shifts = [np.arange(-4, 4).reshape(2, 4)[k] * 300 * step for k in (0, 1)]
    for rows, aimed in zip(both, (Logistic(), Elsewhere()), strict=True):
        rows.apply(ShiftScores((0,), shifts[0]))
        rows.apply(SetObjective(aimed))
        rows.apply(ShiftScores((0,), shifts[1]))
    assert not isinstance(both[1].objective, OnGrid)
    assert np.array_equal(*(rows.answer(GradientQuery((0,)), LIMIT) for rows in both))


@pytest.mark.parametrize("few", [1, 30, 3 * binning.KNOWN, 0], ids=["one", "few", "many", "no number twice"])
@pytest.mark.parametrize("rows", [0, 1, binning.TRIED + 1, 3 * binning.TRIED + 5])
def test_numbers_that_come_again_have_the_cells_that_numpy_says(rows: int, few: int) -> None:
    """Remembered or not; what is no number or illegal is counted each time it comes."""
    rng = np.random.default_rng([rows, few])
    cuts = np.sort(rng.normal(0, 3, 200))
    values = rng.normal(0, 3, rows)
    if few:
        values = rng.choice(np.append(rng.normal(0, 3, few - 1), 0.0), rows)
    values[rng.random(rows) < 0.05] = -0.0
    odd = rng.random(rows)
    values[odd < 0.02], values[(odd > 0.02) & (odd < 0.04)] = np.nan, 5000.0
    legal = ~np.isnan(values) & (values < 1000)
    out = np.full(rows, 999, np.uint16)
    told = binning.bin_numbers(values, np.append(cuts, np.inf), *_jumps(cuts), -1000.0, 1000.0, False, out)
    assert told == (np.isnan(values).sum(), (values == 5000).sum())
    assert np.array_equal(out[legal], np.searchsorted(cuts, values[legal], side="right"))
    assert np.all(out[~legal] == 999)


def test_the_exponents_bits_make_the_powers_of_two() -> None:
    steps = np.arange(-1009, 1010)
    at = steps * np.log(2)
    assert np.allclose(elementwise.exp(at), np.ldexp(1.0, steps), rtol=1e-12, atol=0)


@given(
    st.lists(st.integers(1, 70), min_size=2, max_size=12).flatmap(
        lambda sizes: st.tuples(
            st.just(sizes), st.sets(st.sampled_from(list(itertools.permutations(range(len(sizes)), 2))), min_size=1)
        )
    )
)
def test_every_pair_is_among_three_columns_once(case: tuple[list[int], set[tuple[int, int]]]) -> None:
    sizes, pairs = [*case[0], 1], sorted(case[1])
    joined = pairs_by_triple(pairs, sizes)
    told = [(number, tuple(three[axis] for axis in axes)) for three, own in joined for number, axes in own]
    assert sorted(told) == list(enumerate(pairs))
    for three, _ in joined:
        assert len(set(three)) == 3
        assert three[2] == len(sizes) - 1 or np.prod([sizes[column] for column in three]) <= JOINT


def test_all_pairs_of_many_columns_are_counted_in_far_fewer_passes() -> None:
    pairs = list(itertools.combinations(range(19), 2))
    assert len(pairs_by_triple(pairs, [12] * 19 + [1])) < len(pairs) / 2


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("sizes", [(3, 5, 4, 2), (300, 5, 60, 70)])
def test_pairs_are_counted_as_loops_count_them(persons: bool, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    n, pairs = 900, ((0, 1), (3, 0), (1, 2), (2, 0), (3, 2), (1, 3))
    codes = np.stack([rng.integers(0, size, n) for size in sizes], axis=1)
    person = rng.integers(0, 400, n) if persons else None
    rows = TableRows.from_table(codes, sizes, {"label": rng.integers(0, 2, n)}, Logistic(), person, 3)
    expected = [rng.uniform(0, 9, (sizes[i], sizes[j])) for i, j in pairs]
    ahead = rng.uniform(0, 50, len(pairs))
    owners = naive.people(np.arange(n) if person is None else person, 3)
    made = rows.answer(PairChoice(pairs, tuple(expected), tuple(ahead)), LIMIT)
    assert made.tolist() == naive.pair_scores(codes, owners, pairs, expected, ahead, LIMIT, MARGIN)


@pytest.mark.parametrize("persons", [False, True])
def test_a_pair_that_was_counted_is_told_as_if_it_were_asked(persons: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    n, sizes = 500, (4, 3, 5)
    codes = np.stack([rng.integers(0, size, n) for size in sizes], axis=1)
    person, target = rng.integers(0, 200, n) if persons else None, {"label": rng.integers(0, 2, n)}
    rows, fresh = (TableRows.from_table(codes, sizes, target, Logistic(), person, 3) for _ in range(2))
    rows.answer(PairChoice(((0, 1), (2, 1)), (np.ones((4, 3)), np.ones((5, 3))), (0.0, 0.0)), LIMIT)
    asked, counted = list[Any](), TableRows.counted
    monkeypatch.setattr(TableRows, "counted", lambda self, *how: (asked.append(self), counted(self, *how))[1])
    for question in (
        HistogramQuery((0, 1), "none"),
        HistogramQuery((2, 1), "none"),
        HistogramQuery((1, 2), "none"),
        HistogramQuery((0, 1), "label"),
        HistogramQuery((0,), "none", (0, 2)),
    ):
        assert np.array_equal(rows.answer(question, 3.7 * LIMIT), fresh.answer(question, 3.7 * LIMIT))
    assert sum(one is rows for one in asked) == (5 if persons else 3)
    for one in (rows, fresh):
        one.apply(MergeBins(0, np.array([0, 0, 1, 1])))
    assert np.array_equal(rows.answer(question := HistogramQuery((0, 1), "none"), LIMIT), fresh.answer(question, LIMIT))


def test_a_known_pair_beyond_64_bits_is_exact() -> None:
    many = np.array([2**40, 0, 3, 2**39], object)

    class Far:
        def counted(self, question: Any, limit: float) -> Any:
            assert isinstance(question, PairChoice)  # nothing else is asked
            return [IntegerSums(many * int(limit * MARGIN))]

    rows = ShardedRows(Far(), [2, 2], Logistic(), 1)  # type: ignore[arg-type]
    rows.answer(PairChoice(((0, 1),), (np.ones((2, 2)),), (0.0,)), 2.0**32)
    assert rows.answer(HistogramQuery((0, 1), "none"), 2.0**34).tolist() == [
        int(one) * int(2.0**34 * MARGIN) for one in many
    ]
