"""Rows in many places: any partition of people gives the answers of one table, and integers have no end."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcondense.outcomes.binary import Logistic
from distcondense.outcomes.multiclass import SoftmaxLoss
from distcondense.privacy import noise
from distcondense.privacy.budget import Budget
from distcondense.privacy.gate import gate_over
from distcondense.privacy.layout import UnlistedColumn
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import (
    AdoptCategories,
    CategoriesQuery,
    ColumnChoice,
    GradientQuery,
    HistogramQuery,
    MapQuery,
    MergeBins,
    PairChoice,
    SetObjective,
    ShiftScores,
    StatisticQuery,
)
from distcondense.privacy.rows import MARGIN, MU_MAX, ROWS_ALL_MAX, ROWS_SHARD_MAX, ExactAnswers, IntegerSums
from distcondense.privacy.shards import ShardedRows, ShardTotal, ThreadShards
from distcondense.privacy.table_rows import TableRows
from tests.toys import Lived

SIZES = [5, 40, 1, 3]
LIMIT = noise.GRID * 0.37
OBJECTIVES: dict[str, Any] = {"one score": Logistic(), "three": SoftmaxLoss(3), "time": Lived([2.0, 5.0], 9.0)}


class Corner:
    """A public map of the first column and the label to three coordinates."""

    name, columns, size = "corner", (0,), 3

    def values(self, codes: Any, target: Any) -> Any:
        return np.column_stack([codes[:, 0], 0.5 * codes[:, 0], np.ones(len(codes))])


def people(n: int, persons: int | None, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "codes": np.column_stack([rng.integers(0, size, n) for size in SIZES]),
        "label": rng.integers(0, 2, n),
        "time": rng.uniform(0, 12, n),
        "value": rng.integers(-1, 6, n),
        "person": np.arange(n) if persons is None else rng.integers(0, persons, n),
    }


def rows_of(table: dict[str, Any], where: Any, objective: Any, by_person: bool, words: list[str]) -> TableRows:
    target = {"label": table["label"][where], "time": table["time"][where]}
    unlisted = {2: UnlistedColumn(table["value"][where], words)}
    person = table["person"][where] if by_person else None
    return TableRows.from_table(table["codes"][where], SIZES, target, objective, person, 3, unlisted)


def told(rows: ExactAnswers, objective: Any) -> list[Any]:
    """Every question and every step, one after the other; what was answered, before noise."""
    found: list[Any] = [rows.answer(CategoriesQuery(2), LIMIT).tolist()]
    found = [sorted(zip(rows.labels(2), found[0], strict=True))]

    def ask(question: Any, limit: float = LIMIT) -> None:
        found.append(rows.answer(question, limit).tolist())

    rows.apply(AdoptCategories(2, ("b", "d"), True))
    ask(HistogramQuery((0, 2), "label"))
    ask(HistogramQuery((1,), "none", (0, 3, 20)))
    if isinstance(objective, Lived):
        ask(StatisticQuery("hazard"))
        rows.apply(SetObjective(objective.with_hazard([0.1, 0.2, 0.3])))
    rng = np.random.default_rng(5)
    scores = objective.scores
    for columns in ((), (0,), (1,), (0, 3)):
        ask(GradientQuery(columns))
        shape = (rows.cells(columns),) if scores == 1 else (scores, rows.cells(columns))
        rows.apply(ShiftScores(columns, rng.normal(size=shape)))
    ask(ColumnChoice(2, (0, 1, 3), (1, 7, 1)), noise.GRID)
    halves = tuple(tuple(place // 2 for place in range(rows.sizes[column])) for column in (1, 0))
    ask(GradientQuery((1, 0), halves))
    ask(GradientQuery((1,), halves[:1]))
    every = (512,) * (max(halves[0]) + 1)
    ask(GradientQuery((1,), halves[:1], (every, tuple(-step for step in every), tuple(range(len(every))))))
    rows.apply(MergeBins(1, np.arange(40) // 9))
    ask(GradientQuery((1,)))
    pairs = ((0, 1), (1, 3), (2, 0))
    tables = tuple(rng.uniform(0, 9, [rows.sizes[column] for column in pair]) for pair in pairs)
    ask(PairChoice(pairs, tables, (0.0, 1.0, 2.0)), noise.GRID)
    ask(PairChoice(pairs[:1], tables[:1], (0.5,)), noise.GRID)
    ask(MapQuery(Corner()))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("persons", [None, 60, 4])
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_any_partition_of_people_gives_the_answers_of_one_table(kind: str, persons: int | None, count: int) -> None:
    objective, table, words = OBJECTIVES[kind], people(150, persons, 1), list("abcdef")
    whole = told(rows_of(table, np.arange(150), objective, persons is not None, words), objective)
    rng = random.Random(count)
    home = np.array([rng.randrange(count) for _ in range(150)])[table["person"]]
    shards = [rows_of(table, home == k, objective, persons is not None, words) for k in range(count)]
    parts = ShardedRows(ThreadShards(shards, threads=2), SIZES, objective, shards[0].most)
    assert told(parts, objective) == whole
    rng.shuffle(shards)
    other = [rows_of(table, home == k, objective, persons is not None, words) for k in rng.sample(range(count), count)]
    assert told(ShardedRows(ThreadShards(other), SIZES, objective, shards[0].most), objective) == whole


def test_a_person_in_two_shards_would_be_noticed() -> None:
    table = people(40, 5, 2)
    whole = rows_of(table, np.arange(40), Logistic(), True, list("abcdef"))
    halves = [rows_of(table, np.arange(k, 40, 2), Logistic(), True, list("abcdef")) for k in (0, 1)]
    apart = ShardedRows(ThreadShards(halves), SIZES, Logistic(), 3)
    assert (
        apart.answer(HistogramQuery((0,), "label"), LIMIT).tolist()
        != whole.answer(HistogramQuery((0,), "label"), LIMIT).tolist()
    )


# ---- how large sums may get


MOST = int(ROWS_SHARD_MAX * noise.GRID * MU_MAX)  # of one shard, in one coordinate


@given(st.lists(st.lists(st.integers(-MOST, MOST), min_size=3, max_size=3), min_size=1, max_size=40))
@settings(max_examples=50)
def test_halves_add_up_to_what_python_says(parts: list[list[int]]) -> None:
    tally = ShardTotal()
    for part in parts:
        tally.add(IntegerSums(np.array(part, np.int64)))
    assert [int(value) for value in tally.total().values] == [sum(column) for column in zip(*parts, strict=True)]


def test_sums_at_the_edge_of_64_bits_and_far_beyond_are_exact() -> None:
    """As many full shards as the largest table has, at the largest cost: nothing overflows on the way or at the end."""
    assert MOST == 2**62
    shards = ROWS_ALL_MAX // ROWS_SHARD_MAX
    for sign in (1, -1):
        tally = ShardTotal()
        for _ in range(shards):
            tally.add(IntegerSums(np.array([sign * MOST, sign * (MOST - 1), sign], np.int64)))
        assert tally.total().values.tolist() == [sign * MOST * shards, sign * (MOST - 1) * shards, sign * shards]
    tally = ShardTotal()
    for value in (2**61, 2**61 - 1):
        tally.add(IntegerSums(np.array([value], np.int64)))
    assert tally.total().values.dtype in (np.int64, object)
    assert int(tally.total().values[0]) == 2**62 - 1


class Huge:
    """Shards that each hold as much as a shard can."""

    def __init__(self, shards: int) -> None:
        self.shards = shards

    def counted(self, question: Any, limit: float) -> Any:
        for _ in range(self.shards):
            if isinstance(question, CategoriesQuery):
                yield IntegerSums(np.array([2**62, 1], np.int64), ("many", "few"))
            elif isinstance(question, PairChoice | ColumnChoice):
                yield IntegerSums(np.array([2**61, 0, 5, 2**60], np.int64))
            else:
                yield IntegerSums(np.array([2**62, -(2**62)], np.int64))

    def apply(self, step: Any) -> None:
        pass


def huge(ledger: Ledger, shards: int = 64) -> Any:
    rows = ShardedRows(Huge(shards), [2, 2], Logistic(), 1)
    budget = Budget(1, 1e-5, 1.0, picks=40, pick_epsilon=0.1, delta_categories=1e-8)
    return gate_over(rows, names=["a", "b"], budget=budget, ledger=ledger, unit="row", unlisted=[0])


@pytest.mark.real_noise
def test_answers_beyond_64_bits_carry_the_same_noise_and_are_kept(tmp_path: Any) -> None:
    path = tmp_path / "ledger.jsonl"
    table = huge(Ledger(path))
    answer = table.histogram((0,), by="none", mu=0.1)[0]
    exact = Fraction(64 * 2**62) / Fraction(noise.GRID * 0.1 * MARGIN)
    assert abs(answer[0] / float(exact) - 1) < 1e-9
    assert answer[0] + answer[1] != 0  # two draws
    sums = np.array([64 * 2**62] * 4000, object)
    drawn = np.array([int(v) - 64 * 2**62 for v in noise.discrete_gaussian(sums, noise.GRID)], float) / noise.GRID
    assert abs(drawn.std() - 1) < 0.06
    assert abs(drawn.mean()) < 0.08
    again = huge(Ledger(path)).histogram((0,), by="none", mu=0.1)[0]
    assert again.tolist() == answer.tolist()


@pytest.mark.real_noise
def test_choices_among_scores_beyond_64_bits_follow_the_law() -> None:
    """Two near ones far above a third: picked in proportion, and the third after them, whatever lies between."""
    top = 2**80
    scores, scale = np.array([top, 5, top + 2 * 2**32, 6], object), 2.0**32
    first = [noise.noisy_top(scores, 3, scale).tolist() for _ in range(1500)]
    assert abs(np.mean([picks[0] == 2 for picks in first]) - 1 / (1 + np.exp(-2))) < 0.06
    assert all({picks[0], picks[1]} == {0, 2} for picks in first)
    assert 0.4 < np.mean([picks[2] == 1 for picks in first]) < 0.6
    table = huge(Ledger())
    assert table.choose(1, [0, 1]).tolist() == [0]
    assert table.related([(0, 1)], [np.zeros((2, 2))]) == 0
    assert list(table.categories(0, mu=0.1, delta=1e-9)) == ["many"]
