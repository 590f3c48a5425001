"""The gate: what it answers, what it refuses, what one person can move, and that rows stay behind it."""

from __future__ import annotations

import ast
import copy
import gc
import itertools
import json
import math
import os
import pickle
import random
import secrets
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import distcondense
from distcondense.errors import BudgetError, CohortError, RunFolderError, SettingsError
from distcondense.outcomes.binary import Logistic
from distcondense.outcomes.survival import PiecewiseExponential
from distcondense.privacy import answering, noise
from distcondense.privacy import table_rows as behind
from distcondense.privacy.accountant import replay
from distcondense.privacy.budget import Budget
from distcondense.privacy.contributions import Statistic
from distcondense.privacy.curves import CELLS_MAX
from distcondense.privacy.events import Event
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.layout import UnlistedColumn
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import (
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
from distcondense.privacy.rows import MARGIN, ROWS_ALL_MAX
from distcondense.privacy.table_rows import TableRows
from tests import naive
from tests.conftest import real_data
from tests.toys import Lived

LAVISH = Budget(15.0, 1e-3, mu=4.0, picks=1000, pick_epsilon=0.5)
GRID = (1.0, 4.0, 6.0)
SURVIVAL = Lived((2.0, 5.0), 9.0, hazard=(0.05, 0.1, 0.02), grid=GRID)
EDGES = [0.0, 2.0, 5.0, 9.0]
MU = 0.25
LIMIT = noise.GRID * MU


def table(codes, label, *, sizes=None, objective=None, time=None, budget=LAVISH, ledger=None, **more):
    codes = np.asarray(codes)
    sizes = [3] * codes.shape[1] if sizes is None else sizes
    target = {"label": np.asarray(label)} if time is None else {"label": np.asarray(label), "time": time}
    return PrivateTable(
        codes,
        sizes,
        target,
        names=[f"x{j}" for j in range(codes.shape[1])],
        objective=objective or Logistic(),
        budget=budget,
        ledger=ledger or Ledger(),
        **more,
    )


def random_rows(n=60, people=None, seed=0):
    """codes (n, 2) below (3, 4), label, time, person."""
    rng = np.random.default_rng(seed)
    codes = np.column_stack([rng.integers(0, 3, n), rng.integers(0, 4, n)])
    person = np.arange(n) if people is None else rng.integers(0, people, n)
    return codes, rng.integers(0, 2, n), rng.uniform(0, 12, n), person


@pytest.fixture
def bare(monkeypatch):
    """Noise taken away, for tests only: the integer sums as they go in are kept here."""
    seen: list[np.ndarray] = []

    def nothing(sums, scale):
        seen.append(sums.copy())
        return sums.copy()

    def top(scores, count, scale):
        seen.append(scores.copy())
        return np.argsort(-scores, kind="stable")[:count]

    monkeypatch.setattr(noise, "discrete_gaussian", nothing)
    monkeypatch.setattr(noise, "noisy_top", top)
    return seen


@dataclass(frozen=True)
class Cells:
    """A public map: what stands in `given` for each (cell of the first column, label), of any size at all."""

    given: tuple = tuple((0.3 * k, -0.2, 2.0 - k) for k in range(6))
    name: str = "cells"
    columns: tuple = (0,)

    @property
    def size(self):
        return len(self.given[0])

    def values(self, codes, target):
        assert codes.shape == (len(target["label"]), len(self.columns))
        return np.array(self.given)[2 * codes[:, 0] + target["label"].astype(np.int64)]


def explode(*_, **__):
    raise AssertionError("this must not be called")


# ---- refusing


QUESTIONS = {
    "histogram": lambda t, mu: t.histogram((0,), mu=mu),
    "sums": lambda t, mu: t.sums((0, 1), mu=mu),
    "total": lambda t, mu: t.total("hazard", mu=mu),
    "mapped": lambda t, mu: t.mapped(Cells(), mu=mu),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_refused_query_computes_nothing_and_enters_nothing(question, monkeypatch, tmp_path):
    codes, label, time, _ = random_rows()
    path = tmp_path / "ledger.jsonl"
    t = table(
        codes, label, sizes=[3, 4], objective=SURVIVAL, time=time, ledger=Ledger(path), budget=Budget(1, 1e-5, 0.5)
    )
    QUESTIONS[question](t, 0.3)
    before = path.read_bytes()
    monkeypatch.setattr(TableRows, "answer", explode)
    monkeypatch.setattr(noise, "discrete_gaussian", explode)
    with pytest.raises(BudgetError, match=r"0\.4 of 0\.5 left"):
        QUESTIONS[question](t, 0.41)
    assert len(t.ledger.events) == 1
    assert path.read_bytes() == before
    with pytest.raises(AssertionError, match="must not be called"):  # what still fits goes through to the rows
        QUESTIONS[question](t, 0.39)


def test_shares_that_add_up_to_the_budget_but_for_the_last_bit_are_answered(bare):
    codes, label, _, _ = random_rows(5)
    budget = Budget.calibrate(epsilon=1.0, delta=1e-5)
    t = table(codes, label, sizes=[3, 4], budget=budget)
    for _ in range(300):
        t.sums((0,), mu=budget.mu * math.sqrt(1 / 300))
    assert replay(t.ledger.events, 1e-5).epsilon <= 1.0
    with pytest.raises(BudgetError):
        t.sums((0,), mu=1e-4 * budget.mu)


def test_picks_beyond_the_plan_are_refused(monkeypatch):
    codes, label, _, _ = random_rows()
    t = table(codes, label, sizes=[3, 4], budget=Budget(1, 1e-5, 0.1, picks=3, pick_epsilon=0.1))
    t.choose(2)
    monkeypatch.setattr(TableRows, "answer", explode)
    with pytest.raises(BudgetError, match="2 asked, 1 left"):
        t.choose(2)
    assert len(t.ledger.events) == 1
    with pytest.raises(BudgetError, match="without picks"):
        table(codes, label, sizes=[3, 4], budget=Budget(1, 1e-5, 0.1)).choose(1)


def test_more_cells_than_the_grid_reserve_covers_are_refused():
    spent = [Event("gaussian", "histogram", ("x0",), CELLS_MAX - 5, 0.1, by="none")]
    t = table([[0], [1]], [0, 1], ledger=Ledger(earlier=spent))
    with pytest.raises(BudgetError, match="6 asked, 5 left"):
        t.histogram((0,), mu=0.1)
    t.histogram((0,), by="none", mu=0.1)


def test_a_question_with_more_cells_than_memory_is_refused_before_anything_is_made():
    t = table([[0, 0]], [0], sizes=[10**6, 10**6])
    for ask in (t.histogram, t.sums):
        with pytest.raises(BudgetError, match="released cells"):
            ask((0, 1), mu=0.1)


def test_a_score_can_never_become_something_that_is_no_number(bare):
    t = table([[0], [1]], [0, 1], objective=SURVIVAL.with_hazard((1e100,) * 3), time=np.array([9.0, 0.0]))
    with pytest.raises(SettingsError, match="1e"):
        t.shift((0,), np.array([1e308, 0.0, 0.0]))
    for step in (1e6, -1e6, -1e6):
        t.shift((0,), np.full(3, step))
        with np.errstate(all="raise", under="ignore"):
            assert np.all(np.isfinite(t.sums((0,), mu=MU)))
    with pytest.raises(SettingsError, match="hazard"):
        SURVIVAL.with_hazard((1e308,) * 3)
    with pytest.raises(SettingsError, match="most"):
        PiecewiseExponential((), 1.0, most=1e300)


def test_what_earlier_runs_spent_counts():
    earlier = [Event("gaussian", "sums", ("x0",), 6, 0.4)]
    t = table([[0], [1]], [0, 1], budget=Budget(1, 1e-5, 0.5), ledger=Ledger(earlier=earlier))
    assert t.spent().mu_left == pytest.approx(0.3)
    with pytest.raises(BudgetError):
        t.sums((0,), mu=0.31)
    with pytest.raises(BudgetError, match="no more than the budget"):
        table([[0]], [0], budget=Budget(1, 1e-5, 0.3), ledger=Ledger(earlier=earlier))
    dear = [Event("choice", "choice", (), 1, 0.9)]
    with pytest.raises(BudgetError, match="no more than the budget"):
        table([[0]], [0], ledger=Ledger(earlier=dear))


@pytest.mark.parametrize("mu", [0.0, -1.0, math.nan, math.inf, 8.5])
def test_a_cost_without_meaning_is_refused(mu):
    t = table([[0], [1]], [0, 1])
    for ask in (t.histogram, t.sums):
        with pytest.raises(SettingsError, match="mu"):
            ask((0,), mu=mu)
    assert t.ledger.events == ()


def test_public_mistakes_are_named():
    t = table([[0], [1]], [0, 1])
    for wrong in (
        lambda: t.sums((1,), mu=0.1),
        lambda: t.sums((0, 0), mu=0.1),
        lambda: t.total("hazard", mu=0.1),
        lambda: t.histogram((0,), by="stratum", mu=0.1),
        lambda: t.shift((0,), np.zeros(2)),
        lambda: t.shift((0,), np.array([0.0, math.nan, 0.0])),
        lambda: t.choose(2),
        lambda: t.choose(0),
        lambda: t.bins(0, np.array([0, 1])),
        lambda: t.bins(0, np.array([0.0, 1.0, 1.0])),
        lambda: setattr(t, "objective", SURVIVAL),
        lambda: t.related([(0, 1)], [np.zeros((3, 3))]),
    ):
        with pytest.raises(SettingsError):
            wrong()
    assert t.ledger.events == ()
    unset = table([[0]], [1], objective=PiecewiseExponential((), 5.0), time=np.array([1.0]))
    for ask in (lambda: unset.sums((0,), mu=0.1), lambda: unset.choose(1)):
        with pytest.raises(SettingsError, match="with_hazard"):
            ask()
    with pytest.raises(CohortError):
        table([[0.5]], [1])
    with pytest.raises(CohortError):
        table([[0]], [1, 0])
    with pytest.raises(CohortError, match=r"target 'time': must be given with a Lived objective"):
        table([[0]], [1], objective=SURVIVAL)


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("label", [0, 1])
def test_an_empty_table_or_class_is_answered_like_any_other(n, label):
    """No exception may tell that a class, or the whole table, has no rows."""
    codes, person = np.zeros((n, 2), int), np.arange(n)
    t = table(codes, np.full(n, label), sizes=[3, 4], objective=SURVIVAL, time=np.ones(n), person=person)
    assert t.histogram((0,), by="stratum", mu=MU).shape == (7, 3)
    assert t.histogram((0, 1), by="label", mu=MU).shape == (2, 12)
    assert [part.shape for part in t.sums((), mu=MU)] == [(1,), (1,)]
    assert t.total("hazard", mu=MU).shape == (6,)
    t.shift((0,), np.ones(3))
    t.bins(1, np.array([0, 0, 1, 1]))
    assert sorted(t.choose(2)) == [0, 1]
    assert t.related([(0, 1), (1, 0)], [np.zeros((3, 2)), np.zeros((2, 3))]) in (0, 1)


def test_values_outside_the_public_bounds_raise_nothing(bare):
    times = np.array([math.nan, math.inf, -5.0, 1e300])
    t = table([[-7], [99], [1], [2]], [1, 1, 1, 1], objective=SURVIVAL, time=times)
    assert np.rint(t.histogram((0,), by="none", mu=MU)[0]).tolist() == [1, 1, 2]  # nearest bin
    events, exposure = np.split(t.total("hazard", mu=MU), 2)
    assert np.rint(events).tolist() == [2, 0, 0]  # past the horizon: censored
    assert exposure == pytest.approx([4, 6, 8], abs=1e-6)
    big = table(np.array([[250], [3]], np.uint8), [0, 1], sizes=[1000])
    assert np.flatnonzero(np.rint(big.histogram((0,), by="none", mu=MU)[0])).tolist() == [3, 250]


# ---- the same as the slow twin


def parts_of(codes, sizes, columns, pairs, weight):
    """[(coordinate, value)] of each row for gradient sums."""
    cells = math.prod(sizes[j] for j in columns)
    out = []
    for row, (g, h) in zip(codes, pairs, strict=True):
        cell = 0
        for j in columns:
            cell = cell * sizes[j] + int(row[j])
        out.append([(cell, g), (cells + cell, weight * h)])
    return out, 2 * cells


@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 1), (25, 2), (6, 40)])
@pytest.mark.parametrize("columns", [(), (1,), (1, 0)])
def test_gradient_sums_are_those_of_the_slow_twin(people, cap, columns, bare):
    codes, label, time, person = random_rows(80, people)
    sizes, step = [3, 4], np.array([1.5, -2.0, 0.3125, 4.0])  # whole steps of log odds
    owners = naive.people(person, cap)
    t = table(codes, label, sizes=sizes, person=person, rows_per_person=cap)
    t.shift((1,), step)
    pairs = [naive.logistic_pair(step[row[1]], y) for row, y in zip(codes, label, strict=True)]
    parts, size = parts_of(codes, sizes, columns, pairs, 3.3)
    G, H = t.sums(columns, mu=MU)
    slow = np.array(naive.clipped_sum(parts, owners, size, LIMIT, MARGIN))
    assert np.max(np.abs(bare[-1] - slow)) <= len(owners)  # of 2³⁰: a last bit of a float for each person
    assert np.concatenate([G, H * 3.3]) == pytest.approx(slow / LIMIT, rel=1e-8, abs=1e-6)

    t = table(codes, label, sizes=sizes, person=person, rows_per_person=cap, objective=SURVIVAL, time=time)
    t.shift((0,), step[:3])
    pairs = []
    for row, y, when in zip(codes, label, time, strict=True):
        g, h = naive.survival_pair(step[row[0]], min(when, 9.0), int(y and when <= 9), EDGES, SURVIVAL.hazard, 1.0)
        norm = max(1.0, math.hypot(g, h))
        pairs.append((g / norm, h / norm))
    parts, size = parts_of(codes, sizes, columns, pairs, 1.0)
    t.sums(columns, mu=MU)
    slow = np.array(naive.clipped_sum(parts, owners, size, LIMIT, MARGIN))
    assert np.max(np.abs(bare[-1] - slow)) <= 2 * len(owners)


def low(t, columns=(0, 1)):
    """A strategy: cells and two rows over all of them. As a map of whole tables it makes some longer, no cell."""
    cells = math.prod(t.sizes[column] for column in columns)
    rows = [np.ones(cells), np.resize([1.0, -1.0], cells)]
    return np.concatenate([0.4 * np.eye(cells), np.array(rows) * math.sqrt(0.42)])


def halves(t):
    """Neighbouring bins of the first two columns, two and two."""
    return [[place // 2 for place in range(size)] for size in t.sizes[:2]]


@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (6, 40)])
@pytest.mark.parametrize("columns", [(1,), (0, 1)])
def test_sums_over_merged_cells_are_those_of_merged_bins(people, cap, columns, bare):
    """And they leave the bins as they are: the next question is about those."""
    codes, label, _, person = random_rows(80, people)
    merges = ([0, 1, 1], [1, 0, 0, 2])
    asked, binned = (table(codes, label, sizes=[3, 4], person=person, rows_per_person=cap) for _ in range(2))
    for t in (asked, binned):
        t.shift((1,), np.array([1.5, -2.0, 0.3125, 4.0]))
    before = [part.tolist() for part in asked.sums((0, 1), mu=MU)]
    found = asked.sums(columns, mu=MU, merges=[merges[column] for column in columns])
    for column in columns:
        binned.bins(column, np.array(merges[column]))
    for one, other in zip(found, binned.sums(columns, mu=MU), strict=True):
        assert one.tolist() == other.tolist()
    assert [part.tolist() for part in asked.sums((0, 1), mu=MU)] == before


@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (6, 40)])
@pytest.mark.parametrize("by", ["none", "label"])
@pytest.mark.parametrize("columns", [(1,), (0, 1)])
def test_histograms_of_merged_cells_are_those_of_merged_bins(people, cap, by, columns, bare):
    """Also where a choice has counted the pair already; and they leave the bins as they are."""
    codes, label, _, person = random_rows(80, people)
    merges = ([0, 1, 1], [1, 0, 0, 2])
    asked, binned = (table(codes, label, sizes=[3, 4], person=person, rows_per_person=cap) for _ in range(2))
    before = asked.histogram((0, 1), by=by, mu=MU).tolist()
    asked.related([(0, 1)], [np.zeros((3, 4))])
    found = asked.histogram(columns, by=by, mu=MU, merges=[merges[column] for column in columns])
    assert asked.ledger.events[-1].cells == found.size
    for column in columns:
        binned.bins(column, np.array(merges[column]))
    assert found.tolist() == binned.histogram(columns, by=by, mu=MU).tolist()
    assert asked.histogram((0, 1), by=by, mu=MU).tolist() == before
    with pytest.raises(SettingsError, match="beside starts"):
        asked.histogram((1,), by=by, mu=MU, starts=(0, 1), merges=[merges[1]])


@pytest.mark.parametrize(
    "merges", [[[0, 1, 1]], [[0, 1], [0, 0, 1, 1]], [[0, 2, 2], [0, 0, 1, 1]], [[0, -1, 0], [0] * 4]]
)
def test_maps_of_cells_that_do_not_fit_are_refused(merges):
    codes, label, _, _ = random_rows()
    with pytest.raises(SettingsError, match="merges"):
        table(codes, label, sizes=[3, 4]).sums((0, 1), mu=MU, merges=merges)
    with pytest.raises(SettingsError, match="merges"):
        table(codes, label, sizes=[3, 4]).histogram((0, 1), mu=MU, merges=merges)


@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (6, 40)])
@pytest.mark.parametrize("columns", [(1,), (0, 1)])
def test_sums_by_a_strategy_are_those_of_the_slow_twin(people, cap, columns, bare):
    """Whole steps of the matrix times what each row adds; of the loops as many are lost by rounding as there are."""
    codes, label, _, person = random_rows(80, people)
    owners, steps = naive.people(person, cap), np.array([1.5, -2.0, 0.3125, 4.0])
    t = table(codes, label, sizes=[3, 4], person=person, rows_per_person=cap)
    t.shift((1,), steps)
    mix = np.trunc(low(t, columns) * 1024) / 1024
    answers, cells = mix.shape
    parts = []
    for row, y in zip(codes, label, strict=True):
        p = 1 / (1 + math.exp(-steps[row[1]]))
        cell = int(np.ravel_multi_index([row[j] for j in columns], [(3, 4)[j] for j in columns]))
        told = [(k, mix[k, cell] * (p - y)) for k in range(answers)]
        parts.append([*told, (answers + cell, 3.3 * p * (1 - p))])
    G, H = t.sums(columns, mu=MU, strategy=low(t, columns))
    slow = np.array(naive.clipped_sum(parts, owners, answers + cells, LIMIT, MARGIN))
    assert np.max(np.abs(bare[-1] - slow)) <= 2048 * 80
    assert (len(G), len(H)) == (answers, cells)
    assert t.ledger.events[-1].cells == answers + cells
    if people is None:  # nobody is shortened: the strategy's answers are its matrix times the cells' sums
        assert mix @ t.sums(columns, mu=MU)[0] == pytest.approx(G, abs=1e-4)


def test_a_strategy_with_too_long_a_column_is_refused():
    codes, label, _, _ = random_rows()
    t = table(codes, label, sizes=[3, 4])
    for wrong in (np.ones((2, 4)), np.eye(3), np.eye(4)[0], np.full((1, 4), np.nan), np.zeros((0, 4)), 1.5 * np.eye(4)):
        with pytest.raises(SettingsError, match="strategy"):
            t.sums((1,), mu=MU, strategy=wrong)
    assert not t.ledger.events
    t.sums((1,), mu=MU, strategy=np.full((4, 4), 0.5))  # of norm 1


@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (6, 40)])
@pytest.mark.parametrize("by", ["none", "label", "stratum", "moment"])
def test_histograms_are_those_of_the_slow_twin(people, cap, by, bare):
    codes, label, time, person = random_rows(80, people)
    owners = naive.people(person, cap)
    t = table(codes, label, sizes=[3, 4], person=person, rows_per_person=cap, objective=SURVIVAL, time=time)
    parts = []
    for row, y, when in zip(codes, label, time, strict=True):
        event = int(y and when <= 9)
        stratum, moment = (naive.end_of_follow_up(when, y, edges) for edges in (EDGES, [0.0, *GRID, 9.0]))
        group = {"none": 0, "label": event, "stratum": stratum, "moment": moment}[by]
        parts.append([(12 * group + 4 * int(row[0]) + int(row[1]), 1.0)])
    size = 12 * t.groups(by)
    counts = t.histogram((0, 1), by=by, mu=MU)
    slow = np.array(naive.clipped_sum(parts, owners, size, LIMIT, MARGIN))
    assert counts.shape == (t.groups(by), 12)
    assert np.max(np.abs(bare[-1] - slow)) <= len(owners)
    if people is None:
        assert np.rint(counts).sum() == 80


@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (6, 40)])
def test_coarse_histograms_are_those_of_the_slow_twin(people, cap, bare):
    codes, label, _, person = random_rows(80, people)
    owners = naive.people(person, cap)
    t = table(codes, label, sizes=[3, 4], person=person, rows_per_person=cap)
    for starts in ((0, 1, 3), (0, 2), (0,), (0, 1, 2, 3)):
        counts = t.histogram((1,), by="label", mu=MU, starts=starts)
        parts = [
            [(len(starts) * int(y) + naive.coarse(int(row[1]), starts), 1.0)]
            for row, y in zip(codes, label, strict=True)
        ]
        slow = np.array(naive.clipped_sum(parts, owners, 2 * len(starts), LIMIT, MARGIN))
        assert counts.shape == (2, len(starts))
        assert np.max(np.abs(bare[-1] - slow)) <= len(owners)
        assert t.ledger.events[-1].cells == 2 * len(starts)
    for columns, wrong in (((1,), (1, 2)), ((1,), (0, 4)), ((1,), (0, 2, 2)), ((0, 1), (0, 2)), ((), (0,))):
        with pytest.raises(SettingsError, match="must name bins of one column"):
            t.histogram(columns, by="label", mu=MU, starts=wrong)


# ---- sums of a public map


WILD = (
    (1.0, 0.0, 0.0),
    (math.nan, 3.0, -4.0),
    (math.inf, 0.0, 1.0),
    (-math.inf, math.inf, 0.5),
    (1e300, -1e300, 0.0),
    (0.1, 0.2, -0.3),
)


@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (6, 40)])
@pytest.mark.parametrize("given", [Cells.given, WILD])
def test_mapped_sums_are_those_of_the_slow_twin(people, cap, given, bare):
    codes, label, _, person = random_rows(80, people)
    t = table(codes, label, sizes=[3, 4], person=person, rows_per_person=cap)
    noisy = t.mapped(Cells(given), mu=MU)
    owners = naive.people(person, cap)
    vectors = [given[2 * int(row[0]) + int(y)] for row, y in zip(codes, label, strict=True)]
    slow = np.array(naive.mapped_sum(vectors, owners, 3, LIMIT, MARGIN))
    assert np.max(np.abs(bare[-1] - slow)) <= 2 * len(owners)
    assert noisy == pytest.approx(slow / LIMIT, rel=1e-8, abs=1e-6)
    event = t.ledger.events[-1]
    assert (event.query, event.by, event.columns, event.cells, event.cost) == ("mapped", "cells", ("x0",), 3, MU)
    assert event.words == "sum of cells"


@pytest.mark.parametrize("given", [Cells.given, WILD])
def test_no_person_moves_a_mapped_sum_by_more_than_it_costs_whatever_the_map_gives(given, bare):
    """Exhaustive: every person of one to three rows; no warning is given, for it would depend on a patient."""
    base, owner = [(0, 1), (2, 0), (1, 1)], [10, 30, 10]
    kinds = list(itertools.product((0, 1, 2), (0, 1)))
    furthest = 0.0
    for rows in (rows for count in (1, 2, 3) for rows in itertools.product(kinds, repeat=count)):
        answers = []
        for every, who in ((base, owner), ([*base[:1], *rows, *base[1:]], [10, *[20] * len(rows), 30, 10])):
            t = table([[c] for c, _ in every], [y for _, y in every], person=np.array(who), rows_per_person=2)
            t.mapped(Cells(given), mu=MU)
            answers.append(bare[-1])
        moved = math.sqrt(sum(int(v) ** 2 for v in answers[1] - answers[0])) / LIMIT
        assert moved <= 1.0
        furthest = max(furthest, moved)
    assert furthest > 0.999


@pytest.mark.parametrize("missing", ["_shrink", "_norms"])
def test_a_mapped_sum_that_is_not_clipped_would_be_noticed(missing, bare, monkeypatch):
    """Rows are shortened first, then persons: without either step one person moves the sum too far."""
    monkeypatch.setattr(behind, missing, lambda length, *_: np.ones(len(length)))
    joined = table([[0], [2], [2]], [0, 0, 0], person=np.array([1, 2, 2]), rows_per_person=2)
    assert norm_of_change(bare, lambda t: t.mapped(Cells(), mu=MU), joined, table([[0]], [0])) > LIMIT


@given(st.permutations(list(range(40))), st.sampled_from([1, 7, 3 * 2**15]))
def test_a_mapped_sum_does_not_depend_on_order_or_on_how_many_rows_are_taken_at_a_time(order, values):
    codes, label, _, person = random_rows(40, 25, seed=3)
    answers = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "discrete_gaussian", lambda sums, scale: sums)
        for rows in (np.arange(40), np.array(order)):
            t = table(codes[rows], label[rows], sizes=[3, 4], person=person[rows], rows_per_person=40)
            answers.append(t.mapped(Cells(), mu=MU).tolist())
            patch.setattr(behind, "VALUES", values)
    assert answers[0] == answers[1]


def test_a_map_sees_merged_cells_and_its_answer_is_kept_and_given_again(bare, tmp_path, monkeypatch):
    codes, label, _, _ = random_rows(30)
    path, kept = tmp_path / "ledger.jsonl", []
    for again in (False, True):
        t = table(codes, label, sizes=[3, 4], ledger=Ledger(path))
        t.bins(0, np.array([0, 1, 1]))
        if again:
            monkeypatch.setattr(TableRows, "answer", explode)
        kept.append(t.mapped(Cells(), mu=MU).tolist())
    coarse = table(np.minimum(codes, 1), label, sizes=[2, 4])
    monkeypatch.undo()
    assert kept[0] == kept[1]
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: sums)
    assert coarse.mapped(Cells(), mu=MU).tolist() == kept[0]


def test_a_map_without_a_name_or_with_more_coordinates_than_the_reserve_is_refused(monkeypatch):
    codes, label, _, _ = random_rows(5)
    t = table(codes, label, sizes=[3, 4])
    monkeypatch.setattr(TableRows, "answer", explode)
    for wrong, what in (
        (Cells(name=""), "must have a name"),
        (Cells(((),)), "1 to"),
        (Cells(columns=(2,)), "between 0 and 1"),
        (Cells((range(CELLS_MAX + 1),)), "must have a name and"),
    ):
        with pytest.raises(SettingsError, match=what):
            t.mapped(wrong, mu=MU)
    assert t.ledger.events == ()


# ---- values that nobody has listed


def values_of(words, sites, **more):
    """A table of one listed column and one of these words, None for a hole."""
    labels = sorted({word for word in words if word is not None})
    place = {word: code for code, word in enumerate(labels)} | {None: -1}
    unlisted = {1: UnlistedColumn(np.array([place[word] for word in words], np.int64), labels)}
    codes = np.column_stack([np.asarray(sites, np.int64), np.zeros(len(words), np.int64)])
    budget = Budget(1.0, 1e-5, mu=4.0, picks=9, pick_epsilon=0.5, delta_categories=5e-6)
    return table(codes, np.zeros(len(words)), **{"sizes": [3, 1], "budget": budget, "unlisted": unlisted, **more})


@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (6, 40)])
def test_counts_of_unlisted_values_are_those_of_the_slow_twin(people, cap, bare, monkeypatch):
    rng = np.random.default_rng(2)
    words = [[None, "ash", "oak", "yew"][k] for k in rng.integers(0, 4, 80)]
    person = np.arange(80) if people is None else rng.integers(0, people, 80)
    monkeypatch.setattr(noise, "threshold", lambda *_: -1)
    t = values_of(words, np.zeros(80), person=person, rows_per_person=cap)
    told = t.categories(1, mu=MU, delta=1e-6)
    owners = naive.people(person, cap)
    kept = [word for rows in owners for word in (words[row] for row in rows)]
    names = sorted({word for word in kept if word is not None})
    parts = [[(([*names, None]).index(word) if word in names else len(names), 1.0)] for word in words]
    slow = np.array(naive.clipped_sum(parts, owners, len(names) + 1, LIMIT, MARGIN))[:-1]
    assert list(told) == names
    assert np.max(np.abs(bare[-1] - slow)) <= len(owners)
    assert [told[name] for name in names] == pytest.approx(slow / LIMIT, rel=1e-8, abs=1e-6)
    assert t.ledger.events[-1].delta == 1e-6
    assert t.ledger.events[-1].cells == (cap if people is not None or cap > 1 else 1)


def test_no_person_moves_counts_of_unlisted_values_by_more_than_they_cost(bare, monkeypatch):
    """Exhaustive over persons of up to three rows; of values that they alone bring every count is within the limit."""
    monkeypatch.setattr(noise, "threshold", lambda *_: 10**30)
    base, owner = ["ash", "oak", "ash", None], [1, 1, 2, 3]
    furthest = 0.0
    for count in (1, 2, 3):
        for rows in itertools.product(("ash", "oak", None, "rare", "own"), repeat=count):
            answers = []
            for words, who in ((base, owner), ([*rows, *base], [9] * count + owner)):
                t = values_of(words, np.zeros(len(words)), person=np.array(who), rows_per_person=2)
                t.categories(1, mu=MU, delta=1e-6)
                kept = {word for at in naive.people(who, 2) for word in (words[row] for row in at)} - {None}
                answers.append(dict(zip(sorted(kept), bare[-1].tolist(), strict=True)))
            without, with_ = answers
            change = {word: with_.get(word, 0) - without.get(word, 0) for word in {*with_, *without}}
            assert set(with_) >= set(without)
            assert math.sqrt(sum(value**2 for value in change.values())) <= LIMIT
            assert len(set(with_) - set(without)) <= 2
            furthest = max(furthest, math.sqrt(sum(value**2 for value in change.values())) / LIMIT)
    assert furthest > 0.95


def test_a_value_of_one_person_is_told_no_more_often_than_its_delta_says():
    """Against the exact tail of the discrete Gaussian, at a scale at which it can be added up."""
    scale, delta = 2.0**9, 1e-3
    weight = np.exp(-(np.arange(-60 * 512, 60 * 512 + 1) ** 2) / (2 * scale**2))
    tail = np.cumsum(weight[::-1])[::-1] / weight.sum()  # P[noise ≥ k − 60·512]
    for values in (1, 3, 40):
        for limit in (0.3, 77.5, 2000.0):
            above = noise.threshold(limit, scale, values, delta)
            chance = values * tail[above - math.floor(limit) + 1 + 60 * 512]
            assert chance <= delta
            assert chance > 0.98 * delta  # no larger than it must be
            lower = above - int(0.02 * scale)  # a mutant: a threshold that is a little too low is caught
            assert values * tail[lower - math.floor(limit) + 1 + 60 * 512] > delta
    with pytest.raises(BudgetError, match="delta of categories"):
        noise.threshold(1.0, noise.GRID, 10, 1e-21)
    with pytest.raises(BudgetError, match="delta of categories"):
        noise.threshold(1.0, noise.GRID, 1, 0.5)


def test_the_threshold_is_that_of_the_charged_delta_and_the_person_with_most_values():
    """With real noise: 2,000 values of one person each, at a δ so large that some must pass, and hardly too many."""
    words = [f"v{k}" for k in range(2000)]
    budget = Budget(1.0, 0.2, mu=8.0, delta_categories=0.15)
    t = values_of(words, np.zeros(2000), budget=budget)
    told = t.categories(1, mu=1.0, delta=0.05)
    assert stats.binomtest(len(told), 2000, 0.05).pvalue > 1e-7
    t = values_of(words, np.zeros(2000), budget=budget, person=np.arange(2000), rows_per_person=5)
    told = t.categories(1, mu=1.0, delta=0.05)
    assert stats.binomtest(len(told), 2000, 0.01).pvalue > 1e-7
    assert all(count > 2 for count in told.values())


def test_values_beyond_the_cap_do_not_exist(bare, monkeypatch):
    monkeypatch.setattr(noise, "threshold", lambda *_: -1)
    t = values_of(["ash", "oak", "yew"], [0, 0, 0], person=np.array([1, 1, 1]), rows_per_person=2)
    assert list(t.categories(1, mu=MU, delta=1e-6)) == ["ash", "oak"]


def test_adopted_values_are_cells_others_share_one_and_nothing_is_said(bare):
    words = ["ash", "oak", None, "yew", "ash"]
    for hole, expected in ((True, [2, 0, 2, 1]), (False, [2, 0, 3])):
        t = values_of(words, [0] * 5)
        assert t.sizes == (3, 1)
        assert np.rint(t.histogram((1,), by="none", mu=MU)[0]).tolist() == [5]
        assert t.adopt(1, ["ash", "elm"], hole=hole) is None
        assert np.rint(t.histogram((1,), by="none", mu=MU)[0]).tolist() == expected
    for wrong in (
        lambda: t.adopt(0, ["a"]),
        lambda: t.adopt(1, ["a", "a"]),
        lambda: t.categories(0, mu=MU, delta=1e-6),
    ):
        with pytest.raises(SettingsError):
            wrong()


def test_unlisted_values_over_budget_are_refused_and_resumed_ones_are_not_asked_again(tmp_path, monkeypatch):
    words = ["ash"] * 400 + ["oak"]
    path = tmp_path / "ledger.jsonl"
    t = values_of(words, [0] * 401, ledger=Ledger(path))
    told = t.categories(1, mu=1.0, delta=4e-6)
    assert list(told) == ["ash"]
    assert told["ash"] == pytest.approx(400, abs=8)
    monkeypatch.setattr(TableRows, "answer", explode)
    with pytest.raises(BudgetError, match="categories of many rows"):
        t.categories(1, mu=1.0, delta=2e-6)
    assert len(t.ledger.events) == 1
    again = values_of(words, [0] * 401, ledger=Ledger(path))
    assert again.categories(1, mu=1.0, delta=4e-6) == told
    path.with_suffix(".answers").unlink()
    lost = values_of(words, [0] * 401, ledger=Ledger(path))
    assert lost.categories(1, mu=1.0, delta=4e-6) == {}


@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (6, 40)])
def test_choice_scores_are_those_of_the_slow_twin(people, cap, bare):
    codes, label, _, person = random_rows(80, people)
    step = np.array([1.5, -2.0, 0.3125])  # whole steps of log odds
    t = table(codes, label, sizes=[3, 4], person=person, rows_per_person=cap)
    t.shift((0,), step)
    g = [naive.logistic_pair(step[row[0]], y)[0] for row, y in zip(codes, label, strict=True)]
    slow = naive.choice_scores(codes.tolist(), g, naive.people(person, cap), noise.GRID, MARGIN)
    picked = t.choose(1, columns=[1, 0])
    assert np.max(np.abs(bare[-1] - np.array(slow)[[1, 0]])) <= 80
    assert picked.tolist() == [int(np.argmax(slow))]


PAIRS = [(0, 1), (2, 0), (1, 2)]
EXPECTED = [np.arange(12.0).reshape(3, 4) / 7, np.full((2, 3), 9.3), np.zeros((4, 2))]


def three_columns(n=80, people=None, seed=0):
    """codes (n, 3) below (3, 4, 2), label, person."""
    codes, label, _, person = random_rows(n, people, seed)
    return np.column_stack([codes, np.random.default_rng(seed + 1).integers(0, 2, n)]), label, person


@pytest.mark.parametrize("ahead", [None, [0.0, 2.5, 40.0]])
@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (25, 3), (6, 40)])
def test_scores_of_pairs_are_those_of_the_slow_twin(people, cap, ahead, bare):
    """Also the second time, after an answer was remembered, and after cells were merged."""
    codes, label, person = three_columns(80, people)
    t = table(codes, label, sizes=[3, 4, 2], person=person, rows_per_person=cap)
    owners = naive.people(person, cap)
    for _ in range(2):
        slow = naive.pair_scores(codes, owners, PAIRS, EXPECTED, ahead or [0.0] * 3, noise.GRID, MARGIN)
        assert t.related(PAIRS, EXPECTED, ahead) == int(np.argmax(slow))
        assert bare[-1].tolist() == slow
    t.bins(1, np.array([0, 0, 1, 1]))
    codes[:, 1] //= 2
    merged = [np.full((3, 2), 4.0), np.ones((2, 2))]
    t.related([(0, 1), (1, 2)], merged)
    assert bare[-1].tolist() == naive.pair_scores(
        codes, owners, [(0, 1), (1, 2)], merged, [0.0] * 2, noise.GRID, MARGIN
    )


def test_the_pair_that_differs_most_from_what_is_expected_is_found():
    """Two columns that are one, and two that have nothing to do with each other, with the noise that is charged."""
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 3, (2, 3000))
    t = table(np.column_stack([one, other, one]), one == 0)
    independent = np.full((3, 3), 3000 / 9)
    assert [t.related([(0, 1), (1, 2), (0, 2)], [independent] * 3) for _ in range(20)] == [2] * 20
    assert {(e.kind, e.query, e.by, e.picks, e.cells, e.columns) for e in t.ledger.events} == {
        ("choice", "choice", "pairs", 1, 1, ())
    }
    assert len(t.ledger.events) == 20
    assert t.spent().picks_left == LAVISH.picks - 20
    assert t.spent().mu == 0


@pytest.mark.parametrize(
    "wrong",
    [
        ([], []),
        ([(0, 1)], []),
        ([(0, 1)], [np.zeros((4, 3))]),
        ([(0, 1)], [np.zeros(12)]),
        ([(0,)], [np.zeros(3)]),
        ([(0, 0)], [np.zeros((3, 3))]),
        ([(0, 3)], [np.zeros((3, 3))]),
        ([(0, 1)], [np.full((3, 4), -1.0)]),
        ([(0, 1)], [np.full((3, 4), math.nan)]),
        ([(0, 1)], [np.full((3, 4), math.inf)]),
        ([(0, 1)], [np.full((3, 4), ROWS_ALL_MAX / 11)]),
        ([(0, 1)], [np.zeros((3, 4))], [1.0, 2.0]),
        ([(0, 1)], [np.zeros((3, 4))], [-1.0]),
        ([(0, 1)], [np.zeros((3, 4))], [math.nan]),
        ([(0, 1)], [np.zeros((3, 4))], [2.0 * ROWS_ALL_MAX]),
    ],
)
def test_a_question_about_pairs_that_makes_no_sense_is_refused(wrong, monkeypatch):
    codes, label, _ = three_columns()
    t = table(codes, label, sizes=[3, 4, 2])
    monkeypatch.setattr(TableRows, "answer", explode)
    with pytest.raises(SettingsError):
        t.related(*wrong)
    assert t.ledger.events == ()


def test_pairs_beyond_the_plan_or_without_one_are_refused(monkeypatch):
    codes, label, _ = three_columns()
    t = table(codes, label, sizes=[3, 4, 2], budget=Budget(1, 1e-5, 0.1, picks=2, pick_epsilon=0.1))
    for _ in range(2):
        t.related(PAIRS, EXPECTED)
    monkeypatch.setattr(TableRows, "answer", explode)
    with pytest.raises(BudgetError, match="1 asked, 0 left"):
        t.related(PAIRS, EXPECTED)
    assert len(t.ledger.events) == 2
    with pytest.raises(BudgetError, match="a budget without picks"):
        table(codes, label, sizes=[3, 4, 2], budget=Budget(1, 1e-5, 0.1)).related(PAIRS, EXPECTED)


def test_a_chosen_pair_is_remembered_and_a_lost_one_is_the_first(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    codes, label, _ = three_columns()

    def opened():
        return table(codes, label, sizes=[3, 4, 2], ledger=Ledger(path))

    first = opened().related(PAIRS, EXPECTED, [0.0, 0.0, 1e6])
    assert first == 2
    with monkeypatch.context() as patch:
        patch.setattr(TableRows, "answer", explode)
        patch.setattr(noise, "noisy_top", explode)
        assert opened().related(PAIRS, EXPECTED, [0.0, 0.0, 1e6]) == 2
        with pytest.raises(RunFolderError, match="same questions"):  # a choice of a column is another question
            opened().choose(1)
        path.with_suffix(".answers").unlink()
        assert opened().related(PAIRS, EXPECTED, [0.0, 0.0, 1e6]) == 0
    assert len(Ledger(path).events) == 1


@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (6, 40)])
def test_events_and_time_at_risk_are_those_of_the_slow_twin(people, cap, bare):
    codes, label, time, person = random_rows(80, people)
    t = table(codes, label, sizes=[3, 4], person=person, rows_per_person=cap, objective=SURVIVAL, time=time)
    whole = math.sqrt(1.25)
    parts, true_events, true_time = [], np.zeros(3), np.zeros(3)
    for y, when in zip(label, time, strict=True):
        event, when = int(y and when <= 9), min(when, 9.0)
        lived = naive.time_lived(when, EDGES)
        at = naive.interval(when, EDGES)
        shares = [time / width for time, width in zip(lived, (2.0, 3.0, 4.0), strict=True)]
        parts.append([(at, event / whole)] + [(3 + k, 0.5 / math.sqrt(3) / whole * s) for k, s in enumerate(shares)])
        true_events[at] += event
        true_time += lived
    events, exposure = np.split(t.total("hazard", mu=MU), 2)
    slow = np.array(naive.clipped_sum(parts, naive.people(person, cap), 6, LIMIT, MARGIN))
    assert np.max(np.abs(bare[-1] - slow)) <= 2 * 80
    if people is None:  # nobody is clipped: the truth comes back, in units of time
        assert events == pytest.approx(true_events, rel=1e-6, abs=1e-6)
        assert exposure == pytest.approx(true_time, rel=1e-6)


# ---- several scores


@dataclass(frozen=True)
class Softmax:
    """A toy objective of three scores, with or without a hessian; its twin is `naive.softmax_parts`."""

    weight: float = 0.7
    scores: int = 3
    ready: bool = True

    @property
    def scales(self):
        return (1 / math.sqrt(2),) * 3 + (self.weight,) * (3 if self.weight else 0)

    @property
    def groupings(self):
        return {"label": 3}

    @property
    def statistics(self):
        def values(target, score):
            return [0.5 * (target["label"] == k) for k in range(3)]

        return {"classes": Statistic(3, values, lambda answer: answer * 2, 2.0)}

    def prepare(self, target):
        return {"label": np.clip(target["label"], 0, 2)}

    def group(self, by, target):
        return target["label"]

    def contributions(self, score, target):
        mass = np.exp(score - score.max(axis=1, keepdims=True)) if len(score) else score
        p = mass / mass.sum(axis=1, keepdims=True)
        out = [(p[:, k] - (target["label"] == k)) / math.sqrt(2) for k in range(3)]
        if self.weight:
            out += [self.weight * p[:, k] * (1 - p[:, k]) for k in range(3)]
        norm = np.maximum(1.0, np.sqrt(sum(value * value for value in out)))
        return tuple(value / norm for value in out)

    def continues(self, earlier):
        return isinstance(earlier, Softmax)


STEPS_OF_THREE = np.array([[0.5, -1.0, 0.0, 2.0], [0.0, 3.0, -2.0, 1.0], [-1.0, 0.0, 0.7, -4.0]])


@pytest.mark.parametrize("weight", [0.7, 0.0])
@pytest.mark.parametrize(("people", "cap"), [(None, 1), (25, 2), (6, 40)])
def test_answers_of_three_scores_are_those_of_the_slow_twin(weight, people, cap, bare):
    codes, _, _, person = random_rows(80, people)
    label = np.random.default_rng(5).integers(0, 3, 80)
    owners, blocks = naive.people(person, cap), 6 if weight else 3
    t = table(codes, label, sizes=[3, 4], person=person, rows_per_person=cap, objective=Softmax(weight))
    t.shift((1,), STEPS_OF_THREE)
    t.shift((), [0.1, 0.2, -0.3])
    scores = STEPS_OF_THREE[:, codes[:, 1]].T + np.array([0.1, 0.2, -0.3])
    values = [naive.softmax_parts(list(score), y, weight) for score, y in zip(scores, label, strict=True)]
    for columns, cells in (((), 1), ((0,), 3), ((1, 0), 12)):
        place = [0 if not columns else int(r[0]) if columns == (0,) else 3 * int(r[1]) + int(r[0]) for r in codes]
        parts = [[(cells * k + at, v) for k, v in enumerate(row)] for at, row in zip(place, values, strict=True)]
        answer = t.sums(columns, mu=MU)
        slow = np.array(naive.clipped_sum(parts, owners, blocks * cells, LIMIT, MARGIN))
        assert [part.shape for part in answer] == [(cells,)] * blocks
        assert np.max(np.abs(bare[-1] - slow)) <= 2 * len(owners)
        back = [part * scale for part, scale in zip(answer, t.objective.scales, strict=True)]
        assert np.concatenate(back) == pytest.approx(slow / LIMIT, rel=1e-8, abs=1e-6)
        assert t.ledger.events[-1].cells == blocks * cells
    assert t.groups("label") == 3
    t.histogram((0,), by="label", mu=MU)
    parts = [[(3 * int(y) + int(row[0]), 1.0)] for row, y in zip(codes, label, strict=True)]
    assert np.max(np.abs(bare[-1] - naive.clipped_sum(parts, owners, 9, LIMIT, MARGIN))) <= len(owners)
    counted = t.total("classes", mu=MU)
    parts = [[(int(y), 0.5)] for y in label]
    slow = np.array(naive.clipped_sum(parts, owners, 3, LIMIT, MARGIN))
    assert np.max(np.abs(bare[-1] - slow)) <= len(owners)
    assert counted == pytest.approx(2 * slow / LIMIT, abs=1e-6)
    assert (t.ledger.events[-1].by, t.ledger.events[-1].noise) == ("classes", 2 / MU)
    t.choose(1)
    slow = naive.choice_scores_of_many(codes, [row[:3] for row in values], owners, noise.GRID, MARGIN)
    assert np.max(np.abs(bare[-1] - np.array(slow))) <= 3 * 80


@pytest.mark.parametrize("cap", [1, 2])
def test_no_person_with_three_scores_moves_an_answer_by_more_than_it_costs(cap, bare):
    kinds = list(itertools.product((0, 1, 2), (0, 1, 2)))
    furthest = dict.fromkeys(("sums", "merged", "mixed", "histogram", "total", "choose"), 0.0)

    def make(people):
        rows = [row for owner in people for row in owner]
        t = table(
            [[code, y] for code, y in rows],
            [y for _, y in rows],
            objective=Softmax(),
            person=np.array([who for who, owner in enumerate(people) for _ in owner]),
            rows_per_person=cap,
        )
        t.shift((0,), np.array([[9.0, 0.0, 0.3], [0.0, 0.0, 2.0], [-9.0, 0.1, 5.0]]))
        return t

    base = [((0, 1), (2, 0)), ((1, 1),)]
    without = make(base)
    for rows in [*((kind,) for kind in kinds), *itertools.product(kinds, repeat=2)]:
        joined = make([*base, rows])
        for what, ask in (
            ("sums", lambda t: t.sums((0, 1), mu=MU / 100)),
            ("merged", lambda t: t.sums((0, 1), mu=MU / 100, merges=halves(t))),
            ("mixed", lambda t: t.sums((0, 1), mu=MU / 100, strategy=low(t))),
            ("histogram", lambda t: t.histogram((0,), mu=MU / 100)),
            ("total", lambda t: t.total("classes", mu=MU / 100)),
        ):
            moved = norm_of_change(bare, ask, joined, without) / (LIMIT / 100)
            assert moved <= 1.0, (what, rows)
            furthest[what] = max(furthest[what], moved)
        joined.choose(1)
        without.choose(1)
        change = np.max(np.abs(bare[-2] - bare[-1])) / noise.GRID
        assert change <= 1.0, rows
        furthest["choose"] = max(furthest["choose"], change)
    assert furthest["total"] > (0.95 if cap == 2 else 0.45)  # a row of it has norm ½
    assert all(furthest[what] > 0.95 for what in ("sums", "merged", "mixed", "histogram", "choose")), furthest


def test_a_step_of_several_scores_has_a_row_for_each():
    t = table([[0], [1]], [0, 2], objective=Softmax())
    for right in (np.zeros((3, 3)), [[0.0] * 3] * 3):
        t.shift((0,), right)
    for right in (np.zeros(3), np.zeros((3, 1))):
        t.shift((), right)
    for columns, wrong in (((0,), np.zeros(3)), ((0,), np.zeros((3, 2))), ((), np.zeros(1)), ((), np.zeros((1, 3)))):
        with pytest.raises(SettingsError, match=r"must hold 3 × \d numbers"):
            t.shift(columns, wrong)


# ---- what one person can move


def norm_of_change(bare, ask, with_person, without):
    ask(with_person)
    ask(without)
    a, b = (part.astype(object) for part in bare[-2:])  # Python integers: exact
    return math.sqrt(sum(int(x) ** 2 for x in (a - b)))


@pytest.mark.parametrize("objective", ["logistic", "survival"])
@pytest.mark.parametrize("cap", [1, 2])
def test_no_person_with_any_rows_moves_an_answer_by_more_than_it_costs(objective, cap, bare):
    """Exhaustive: every person of one to three rows with any code, label and time, added to a fixed table."""
    times = (0.0, 2.0, 8.9, 50.0) if objective == "survival" else (1.0,)
    kinds = list(itertools.product((0, 1, 2), (0, 1), times))
    base = [(0, 1, 1.0), (2, 0, 7.0), (1, 1, 3.0)]
    base_person = [10, 30, 10]
    step = {"logistic": [-40.0, 0.485, 3.0], "survival": [-30.0, 1.0, 30.0]}[objective]
    questions = ("sums", "merged", "mixed", "histogram", "coarse", "joined", "stratum", "moment", "choose", "total")
    furthest = dict.fromkeys(questions, 0.0)
    settings_ = SURVIVAL if objective == "survival" else Logistic()

    def make(rows, person):
        t = table(
            [[code, (code + y) % 3] for code, y, _ in rows],
            [y for _, y, _ in rows],
            objective=settings_,
            time=np.array([when for *_, when in rows]),
            person=np.array(person),
            rows_per_person=cap,
        )
        t.shift((0,), np.array(step))
        return t

    persons = [rows for count in (1, 2) for rows in itertools.product(kinds, repeat=count)]
    persons += [(a, b, a) for a, b in itertools.product(kinds[:4], repeat=2)]  # the third is beyond the cap
    for number, rows in enumerate(persons):
        # first, last or between the others, by row and by name
        name, at = (5, 20, 99)[number % 3], number % 4
        without = make(base, base_person)
        joined = make(base[:at] + list(rows) + base[at:], base_person[:at] + [name] * len(rows) + base_person[at:])
        asked = {
            "sums": lambda t: t.sums((0, 1), mu=MU / 100),
            "merged": lambda t: t.sums((0, 1), mu=MU / 100, merges=halves(t)),
            "mixed": lambda t: t.sums((0, 1), mu=MU / 100, strategy=low(t)),
            "histogram": lambda t: t.histogram((0,), mu=MU / 100),
            "coarse": lambda t: t.histogram((0,), mu=MU / 100, starts=(0, 1)),
            "joined": lambda t: t.histogram((0, 1), by="none", mu=MU / 100, merges=halves(t)),
        }
        if objective == "survival":
            asked["stratum"] = lambda t: t.histogram((1,), by="stratum", mu=MU / 100)
            asked["moment"] = lambda t: t.histogram((), by="moment", mu=MU / 100)
            asked["total"] = lambda t: t.total("hazard", mu=MU / 100)
        for what, ask in asked.items():
            moved = norm_of_change(bare, ask, joined, without) / (LIMIT / 100)
            assert moved <= 1.0, (what, number)
            furthest[what] = max(furthest[what], moved)
        joined.choose(1)
        without.choose(1)
        change = np.max(np.abs(bare[-2] - bare[-1])) / noise.GRID
        assert change <= 1.0, number
        furthest["choose"] = max(furthest["choose"], change)
    needed = {"sums", "merged", "mixed", "histogram", "joined", "choose"} | (
        {"stratum", "moment", "total"} if objective == "survival" else set()
    )
    assert all(furthest[what] > 0.95 for what in needed), furthest  # the bound is used, not just kept


@pytest.mark.parametrize("cap", [1, 2, 3])
def test_no_person_with_any_rows_moves_the_worth_of_a_pair_by_more_than_one(cap, bare):
    """Exhaustive: every person of one to three rows with any codes, added to a fixed table, before any expectation."""
    base, base_person = [(0, 1, 0), (2, 0, 1), (2, 2, 1), (0, 1, 1)], [10, 30, 10, 40]
    cells = list(itertools.product((0, 1, 2), (0, 1, 2), (0, 1)))
    tables = ([np.zeros((3, 3)), np.zeros((3, 2))], [np.full((3, 3), 0.37), np.full((3, 2), 100.0)])

    def asked(rows, person, expected):
        t = table(rows, [0] * len(rows), sizes=[3, 3, 2], person=np.array(person), rows_per_person=cap)
        t.related([(0, 1), (1, 2)], expected)
        return bare[-1]

    persons = [rows for count in (1, 2) for rows in itertools.product(cells, repeat=count)]
    persons += [(a, b, c) for a in cells[:6] for b in cells[3:9] for c in cells[::5]]
    furthest = dict.fromkeys((1, 2, 3), 0)
    for expected in tables:
        before = asked(base, base_person, expected)
        for number, rows in enumerate(persons):
            name, at = (5, 20, 99)[number % 3], number % 5
            after = asked(
                base[:at] + list(rows) + base[at:], base_person[:at] + [name] * len(rows) + base_person[at:], expected
            )
            moved = max(abs(int(a) - int(b)) for a, b in zip(after, before, strict=True))
            assert moved <= noise.GRID, number
            furthest[len(rows)] = max(furthest[len(rows)], moved)
    assert all(moved > 0.95 * noise.GRID for moved in furthest.values())  # however many rows: one unit, and no less


def test_without_clipping_the_exhaustive_test_would_fail(bare, monkeypatch):
    monkeypatch.setattr(behind, "_shrink", lambda length, limit: np.ones_like(length))
    joined = table([[0], [1], [1]], [0, 1, 1], person=np.array([1, 2, 2]), rows_per_person=2)
    moved = norm_of_change(bare, lambda t: t.sums((0,), mu=MU), joined, table([[0]], [0]))
    assert moved > LIMIT


@given(st.floats(0, 1), st.booleans())
def test_a_logistic_contribution_has_norm_at_most_one(p, label):
    score = np.array([math.log(p / (1 - p)) if 0 < p < 1 else (2 * p - 1) * 1e9])
    g, h = Logistic().contributions(score, {"label": np.array([label])})
    assert math.hypot(g[0], h[0]) <= 1 + 1e-15


def test_the_weight_of_the_hessian_is_almost_the_largest_that_needs_no_clipping():
    p = np.linspace(0, 1, 200_001)
    longest = {c: np.max(p**2 + (c * p * (1 - p)) ** 2) for c in (3.3, 3.34)}
    assert longest[3.3] <= 1 < longest[3.34]
    with pytest.raises(SettingsError):
        Logistic(3.34)


@given(st.floats(-100, 100), st.floats(0, 1e6), st.booleans(), st.floats(0.01, 50), st.floats(0.1, 5))
def test_a_survival_contribution_has_norm_at_most_one(score, cumulative, event, most, weight):
    objective = PiecewiseExponential((), 1.0, most=most, hessian_weight=weight)
    g, h = objective.contributions(
        np.array([score]), {"label": np.array([event]), "cumulative": np.array([cumulative])}
    )
    assert math.hypot(g[0], h[0]) <= 1 + 1e-15


def test_the_cumulative_hazard_is_the_sum_over_intervals():
    for when in (0.0, 1.0, 2.0, 4.9, 5.0, 9.0):
        slow = sum(h * t for h, t in zip(SURVIVAL.hazard, naive.time_lived(when, EDGES), strict=True))
        assert SURVIVAL.cumulative([when])[0] == pytest.approx(slow)
        assert SURVIVAL.interval([when])[0] == naive.interval(when, EDGES)


# ---- people with many rows


def test_rows_beyond_the_cap_change_nothing(bare):
    codes, label = [[0], [1], [2], [2]], [1, 0, 1, 1]
    person = np.array(["a", "b", "a", "a"])
    for cap, kept in ((1, [0, 1]), (2, [0, 1, 2])):
        capped = table(codes, label, person=person, rows_per_person=cap)
        only = table(np.array(codes)[kept], np.array(label)[kept], person=person[kept], rows_per_person=cap)
        for t in (capped, only):
            t.sums((0,), mu=MU)
        assert bare[-1].tolist() == bare[-2].tolist()


@given(st.permutations(list(range(40))))
def test_the_order_of_rows_changes_no_bit(order):
    codes, label, time, person = random_rows(40, 9, seed=3)
    answers = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "discrete_gaussian", lambda sums, scale: sums)
        patch.setattr(noise, "noisy_top", lambda scores, count, scale: answers.append(scores) or np.arange(count))
        for rows in (np.arange(40), np.array(order)):
            t = table(
                codes[rows],
                label[rows],
                sizes=[3, 4],
                person=person[rows],
                rows_per_person=40,
                objective=SURVIVAL,
                time=time[rows],
            )
            t.shift((0,), np.array([0.1, 0.7, -0.4]))
            t.choose(1)
            t.related([(1, 0)], [np.full((4, 3), 1.7)])
            answers.append(
                np.concatenate([*t.sums((0, 1), mu=MU), t.total("hazard", mu=MU), t.histogram((1,), mu=MU).ravel()])
            )
    # row by row sums of time lived are integers on the grid before anybody is clipped, hence the same in any order
    assert len(answers) == 6
    for first, second in zip(answers[:3], answers[3:], strict=True):
        assert first.tolist() == second.tolist()


def test_a_person_with_many_rows_counts_as_one():
    """Ten thousand rows of one person, all in one cell: the answer is one person's worth."""
    n = 10_000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "discrete_gaussian", lambda sums, scale: sums)
        t = table(np.zeros((n, 1), int), np.ones(n), person=np.zeros(n), rows_per_person=n)
        G, H = t.sums((0,), mu=MU)
        assert math.hypot(G[0], H[0] * 3.3) == pytest.approx(1.0)
        assert t.histogram((0,), mu=MU)[1, 0] == pytest.approx(1.0)


def test_people_of_diabetes_130_count_once_however_often_they_came(bare):
    columns = ["patient_nbr", "time_in_hospital", "readmitted"]
    frame = pd.read_csv(real_data("diabetes130_readmission.csv.gz"), usecols=columns)
    person, codes = frame["patient_nbr"].to_numpy(), frame[["time_in_hospital"]].to_numpy() - 1
    label = (frame["readmitted"] == "<30").to_numpy()
    assert (len(frame), len(np.unique(person))) == (101_766, 71_518)
    busiest = frame["patient_nbr"].value_counts().index[0]
    for cap in (1, 3, 50):
        answers = []
        for rows in (np.full(len(frame), True), person != busiest):
            t = table(codes[rows], label[rows], sizes=[14], person=person[rows], rows_per_person=cap)
            t.histogram((0,), mu=MU)
            t.sums((0,), mu=MU)
            answers.append(bare[-2:])
        for a, b in zip(*answers, strict=True):
            assert 0.6 * LIMIT < math.sqrt(sum(int(x) ** 2 for x in a - b)) <= LIMIT
        owners = naive.people(person, cap)
        parts = [[(14 * int(y) + int(code), 1.0)] for y, (code,) in zip(label, codes, strict=True)]
        slow = np.array(naive.clipped_sum(parts, owners, 28, LIMIT, MARGIN))
        assert np.max(np.abs(answers[0][0] - slow)) <= len(owners)


# ---- public steps


def test_a_re_binned_table_is_the_table_of_the_new_bins(bare):
    codes, label, _, person = random_rows(50, 20)
    merge = np.array([0, 1, 1, 0])
    t = table(codes, label, sizes=[3, 4], person=person, rows_per_person=5)
    t.sums((1,), mu=MU)  # fills what is remembered about the old bins
    t.bins((1,), merge)
    assert t.sizes == (3, 2)
    merged = np.column_stack([codes[:, 0], merge[codes[:, 1]]])
    fresh = table(merged, label, sizes=[3, 2], person=person, rows_per_person=5)
    for each in (t, fresh):
        each.sums((1,), mu=MU)
    assert bare[-1].tolist() == bare[-2].tolist()


def test_public_steps_cost_nothing_and_say_nothing():
    codes, label, _, _ = random_rows()
    t = table(codes, label, sizes=[3, 4])
    assert t.shift((0,), np.ones(3)) is None
    assert t.bins(1, np.array([0, 0, 1, 1])) is None
    assert t.ledger.events == ()


def test_each_shift_is_seen_by_the_next_sums(bare):
    t = table([[0], [1]], [0, 1])
    total = 0.0
    for step in (0.0, 1.0, -3.0):
        t.shift((), np.array([step]))
        total += step
        G, H = t.sums((0,), mu=MU)
        for row, label in enumerate((0, 1)):
            assert (G[row], H[row]) == pytest.approx(naive.logistic_pair(total, label), abs=1e-6)


def test_new_cuts_and_a_new_hazard_are_used_and_another_follow_up_is_refused(bare):
    t = table([[0]], [0], objective=PiecewiseExponential((2.0,), 4.0), time=np.array([3.0]))
    for hazard, expected in (((0.1, 0.2), 0.4), ((0.1, 0.0), 0.2)):
        t.objective = t.objective.with_hazard(hazard)
        assert t.sums((0,), mu=MU)[0][0] == pytest.approx(expected)
    t.objective = t.objective.with_cuts((1.0, 2.5)).with_hazard((0.1, 0.2, 0.4))
    assert t.sums((0,), mu=MU)[0][0] == pytest.approx(0.1 + 0.3 + 0.2)
    assert np.rint(t.histogram((), by="stratum", mu=MU)[:, 0]).tolist() == [0, 0, 1, 0, 0, 0, 0]
    for other in (PiecewiseExponential((2.0,), 5.0), PiecewiseExponential((2.0,), 4.0, grid=(1.0,))):
        with pytest.raises(SettingsError, match="keep"):
            t.objective = other


# ---- noise

# the operating system's, which protects, and the one that is the same in every run of the tests
BOTH_SAMPLERS = pytest.mark.parametrize("source", [pytest.param("opendp", marks=pytest.mark.real_noise), "tests"])


@pytest.mark.real_noise
def test_noise_is_drawn_by_opendp_alone(monkeypatch):
    for module, names in (
        (random, ("random", "gauss", "getrandbits", "SystemRandom")),
        (secrets, ("token_bytes", "randbits", "randbelow", "SystemRandom")),
        (np.random, ("default_rng", "normal", "standard_normal", "seed", "RandomState", "Generator", "random")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, explode)
    rng = np.arange(60)
    t = table(
        np.column_stack([rng % 3, rng % 4]),
        rng % 2,
        sizes=[3, 4],
        objective=SURVIVAL,
        time=rng / 6.0,
        person=rng // 2,
        rows_per_person=2,
    )
    first, second = t.histogram((0,), mu=MU), t.histogram((0,), mu=MU)
    assert np.all(first != second)
    t.sums((0, 1), mu=MU)
    t.total("hazard", mu=MU)
    t.choose(2)


def test_nothing_in_the_room_imports_another_source_of_noise():
    room = Path(distcondense.__file__).parent / "privacy"
    drawn = []
    for path in room.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Attribute) and node.attr == "random":
                names = ["numpy.random"]
            roots = {name.split(".")[0] for name in names} | set(names)
            if roots & {"random", "secrets", "numpy.random"} or ("opendp" in roots and path.name != "noise.py"):
                drawn.append((path.name, names))
    assert drawn == []


@BOTH_SAMPLERS
def test_gaussian_noise_has_the_stated_spread_and_tails(source):
    draws = noise.discrete_gaussian(np.full(20_000, 7_000, np.int64), noise.GRID) - 7_000
    z = draws / noise.GRID
    assert z.std() == pytest.approx(1.0, abs=0.03)  # six standard errors
    assert abs(z.mean()) < 0.05
    for far in (1, 2, 3):
        share, expected = np.mean(np.abs(z) > far), 2 * stats.norm.sf(far)
        assert abs(share - expected) < 6 * math.sqrt(expected / 20_000)
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.05
    assert len(np.unique(draws % 512)) == 512  # the low bits are noise too


@pytest.mark.real_noise
def test_an_answer_carries_the_noise_it_was_charged_for():
    t = table([[0]] * 5, [0, 1, 0, 1, 1], sizes=[2000])
    for mu in (0.05, 0.5):
        counts = t.histogram((0,), mu=mu)
        assert counts[:, 1:].std() * mu == pytest.approx(1.0, abs=0.1)
        G, H = t.sums((0,), mu=mu)
        assert G[1:].std() * mu == pytest.approx(1.0, abs=0.12)
        assert H[1:].std() * mu * 3.3 == pytest.approx(1.0, abs=0.12)
        assert t.ledger.events[-1].noise == 1 / mu


@BOTH_SAMPLERS
def test_a_choice_follows_the_exponential_mechanism(source):
    pick, scores = 1.0, np.array([0.0, 1.0, 3.0])
    law = naive.peeled([score * pick / 2 for score in scores], 2)
    grid = (scores * noise.GRID).astype(np.int64)
    draws = 8_000
    seen = dict.fromkeys(law, 0)
    for _ in range(draws):
        seen[tuple(noise.noisy_top(grid, 2, 2 * noise.GRID / pick).tolist())] += 1
    for outcome, chance in law.items():
        assert abs(seen[outcome] / draws - chance) < 6 * math.sqrt(chance * (1 - chance) / draws)


# ---- the ledger


def test_the_entry_is_on_disk_before_the_answer_exists(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    codes, label, _, _ = random_rows()
    t = table(codes, label, sizes=[3, 4], ledger=Ledger(path))
    at_call, synced = [], []
    sync = os.fsync

    def watched(descriptor):
        sync(descriptor)
        synced.append(os.fstat(descriptor).st_ino)

    def failing(*_):
        assert path.stat().st_ino in synced  # on the disk, not only in the system's memory
        at_call.append(path.read_text())
        raise OSError("no entropy")

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(TableRows, "answer", failing)
    with pytest.raises(OSError, match="no entropy"):
        t.sums((0,), mu=0.125)
    entered = json.loads(at_call[0])
    assert entered.pop("session")  # a random name of this process
    assert entered == {
        "kind": "gaussian",
        "query": "sums",
        "columns": ["x0"],
        "cells": 6,
        "cost": 0.125,
        "picks": 1,
        "sensitivity": 1.0,
        "noise": 8.0,
        "by": "",
        "unit": "row",
        "run": t.ledger.run,
        "delta": 0.0,
    }
    assert t.spent().mu == 0.125


def test_a_run_killed_inside_an_answer_has_paid_for_it(tmp_path):
    path = tmp_path / "ledger.jsonl"
    code = f"""
import os, signal, numpy as np
from pathlib import Path
from distcondense.privacy import answering, noise
from distcondense.outcomes.binary import Logistic
from distcondense.privacy.budget import Budget
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
t = PrivateTable(np.array([[0], [1]]), [2], {{"label": np.array([0, 1])}}, names=["x0"], objective=Logistic(),
                 budget=Budget(1, 1e-5, 0.5), ledger=Ledger(Path({str(path)!r})))
t.sums((0,), mu=0.1)
noise.discrete_gaussian = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
t.histogram((0,), mu=0.2)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    ledger = Ledger(path)
    assert [event.cost for event in ledger.events] == [0.1, 0.2]
    assert ledger.kept(0).shape == (4,)
    assert ledger.kept(1) is None


def ask_everything(t):
    answers = [*t.sums((0,), mu=0.1), t.histogram((1,), mu=0.2), t.choose(1)]
    t.shift((0,), np.ones(3))
    return [*answers, *t.sums((0, 1), mu=0.1)]


def test_a_resumed_run_answers_from_what_was_kept_and_touches_no_row(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    codes, label, _, _ = random_rows()
    first = ask_everything(table(codes, label, sizes=[3, 4], ledger=Ledger(path)))
    text = path.read_bytes()
    resumed = table(codes, label, sizes=[3, 4], ledger=Ledger(path))
    with monkeypatch.context() as patch:
        patch.setattr(TableRows, "answer", explode)
        patch.setattr(noise, "discrete_gaussian", explode)
        patch.setattr(noise, "noisy_top", explode)
        again = ask_everything(resumed)
    for a, b in zip(first, again, strict=True):
        assert a.tolist() == b.tolist()
    assert path.read_bytes() == text
    resumed.sums((1,), mu=0.1)  # and goes on from there
    assert len(resumed.ledger.events) == 5
    assert len(path.read_bytes().splitlines()) == 5
    assert resumed.ledger.kept(4) is not None


def test_a_resumed_run_that_asks_something_else_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    codes, label, _, _ = random_rows()
    ask_everything(table(codes, label, sizes=[3, 4], ledger=Ledger(path)))
    for other in (
        lambda t: t.sums((1,), mu=0.1),
        lambda t: t.sums((0,), mu=0.1000001),
        lambda t: t.histogram((0,), mu=0.1),
        lambda t: t.choose(1),
    ):
        t = table(codes, label, sizes=[3, 4], ledger=Ledger(path))
        with pytest.raises(RunFolderError, match="same questions"):
            other(t)
        assert len(t.ledger.events) == 4
    with pytest.raises(RunFolderError, match="replayed to its end"):
        Ledger(path).enter(Event("gaussian", "sums", (), 1, 0.1))


def test_an_answer_lost_in_a_crash_stays_spent_and_is_zero(tmp_path):
    path = tmp_path / "ledger.jsonl"
    codes, label, _, _ = random_rows()
    first = ask_everything(table(codes, label, sizes=[3, 4], ledger=Ledger(path)))
    answers = path.with_suffix(".answers")
    answers.write_bytes(answers.read_bytes()[:-5])  # the last answer, torn
    t = table(codes, label, sizes=[3, 4], ledger=Ledger(path))
    again = ask_everything(t)
    for a, b in zip(first[:4], again[:4], strict=True):
        assert a.tolist() == b.tolist()
    assert not np.any(again[4])
    assert not np.any(again[5])
    assert t.spent().mu == pytest.approx(math.sqrt(0.06))
    t.sums((1,), mu=0.1)  # written after the torn end was cut off: readable the next time
    assert [Ledger(path).kept(number) is None for number in range(5)] == [False, False, False, True, False]


def test_a_damaged_answer_is_lost_and_not_believed(tmp_path):
    path = tmp_path / "ledger.jsonl"
    codes, label, _, _ = random_rows()
    table(codes, label, sizes=[3, 4], ledger=Ledger(path)).sums((0,), mu=0.1)
    answers = path.with_suffix(".answers")
    content = bytearray(answers.read_bytes())
    content[-3] ^= 1
    answers.write_bytes(bytes(content))
    assert Ledger(path).kept(0) is None


def test_a_choice_lost_in_a_crash_is_the_first_candidates(tmp_path):
    path = tmp_path / "ledger.jsonl"
    codes, label, _, _ = random_rows()
    table(codes, label, sizes=[3, 4], ledger=Ledger(path)).choose(1, columns=[1, 0])
    path.with_suffix(".answers").unlink()
    assert table(codes, label, sizes=[3, 4], ledger=Ledger(path)).choose(1, columns=[1, 0]).tolist() == [1]


def test_a_line_torn_by_a_kill_was_never_answered_and_is_cut_off(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.enter(Event("gaussian", "sums", ("x0",), 6, 0.1))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:30])
    again = Ledger(path)
    assert len(again.events) == 1
    assert again.resume(again.events[0]) == 0
    again.enter(Event("gaussian", "sums", ("x1",), 6, 0.2))
    assert [event.cost for event in Ledger(path).events] == [0.1, 0.2]


def test_a_damaged_line_inside_the_ledger_is_an_error(tmp_path):
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for cost in (0.1, 0.2):
        ledger.enter(Event("gaussian", "sums", ("x0",), 6, cost))
    path.write_bytes(b"{" + path.read_bytes())
    with pytest.raises(RunFolderError, match="line 1"):
        Ledger(path)


def test_two_runs_cannot_share_one_ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    event = Event("gaussian", "sums", ("x0",), 6, 0.1)
    first, second = Ledger(path), Ledger(path)
    first.enter(event)
    with pytest.raises(RunFolderError, match="one run at a time"):
        second.enter(event)
    assert len(Ledger(path).events) == 1
    assert second.events == ()


def test_a_ledger_hands_out_copies():
    ledger = Ledger()
    number = ledger.enter(Event("gaussian", "sums", ("x0",), 2, 0.1))
    ledger.keep(number, np.array([1, 2]))
    ledger.kept(number)[0] = 99
    assert ledger.kept(number).tolist() == [1, 2]
    with pytest.raises(SettingsError):
        ledger.keep(number, np.array([3, 4]))
    with pytest.raises(AttributeError):
        ledger.events = ()


def test_the_ledger_replays_to_what_the_budget_promised():
    codes, label, _, _ = random_rows()
    budget = Budget.calibrate(epsilon=1.0, delta=1e-5, picks=2, pick_share=0.1)
    t = table(codes, label, sizes=[3, 4], budget=budget)
    t.choose(2)
    for _ in range(10):
        t.sums((0,), mu=budget.mu / math.sqrt(10))
    found = replay(t.ledger.events, 1e-5)
    assert 0.995 <= found.epsilon <= 1.0
    assert found.epsilon == pytest.approx(budget.total_epsilon(), rel=1e-6)
    assert (t.spent().picks_left, t.spent().cells) == (0, 60)
    assert t.spent().mu_left < 1e-4 * budget.mu


# ---- rows stay behind the gate


def reachable(thing, depth=3):
    """Everything found through attributes, slots, closures and bound methods, as a careless caller would."""
    seen, todo = [], [(thing, 0)]
    known = set()
    while todo:
        item, level = todo.pop()
        if id(item) in known or isinstance(item, (str, bytes, int, float, type, type(np))):
            continue
        known.add(id(item))
        seen.append(item)
        if level == depth:
            continue
        found = []
        for name in dir(item):
            if name in ("__globals__", "__builtins__"):
                continue  # a module's own names are no attribute of the table
            try:
                found.append(getattr(item, name))
            except Exception:
                continue
        if isinstance(item, (list, tuple, set)):
            found += list(item)
        if isinstance(item, dict):
            found += list(item.values())
        todo += [(other, level + 1) for other in found]
    return seen


def test_no_attribute_leads_to_rows():
    n = 1237  # a length nothing else has
    rng = np.random.default_rng(0)
    codes, label = rng.integers(0, 3, (n, 2)), rng.integers(0, 2, n)
    t = table(codes, label)
    t.sums((0,), mu=0.1)
    t.shift((0,), np.ones(3))
    arrays = [item for item in reachable(t) if isinstance(item, np.ndarray)]
    assert all(n not in array.shape and array.size < n for array in arrays)
    holder = type("Holder", (), {})()
    holder.rows = np.zeros(n)  # the walk would have found them
    assert any(isinstance(item, np.ndarray) and n in item.shape for item in reachable(holder))


def test_a_table_cannot_be_looked_into():
    t = table([[0], [1]], [0, 1])
    assert repr(t) == str(t) == "PrivateTable(1 columns)"
    assert not hasattr(t, "__dict__")
    for peek in (len, list, iter, vars, pickle.dumps, copy.copy, copy.deepcopy, lambda t: t[0]):
        with pytest.raises(TypeError):
            peek(t)
    assert np.asarray(t, dtype=object).shape == ()  # NumPy does not unpack it either
    for name in ("rows", "codes", "label", "_rows", "__rows", "_PrivateTable__rows"):
        assert not hasattr(t, name)
    for name in ("budget", "ledger", "names", "sizes"):
        with pytest.raises(AttributeError):
            setattr(t, name, None)
    with pytest.raises(AttributeError):
        t.anything = 1
    assert t  # a table is true, and says nothing by it


def test_the_caller_may_change_its_arrays_afterwards(bare):
    codes, label = np.array([[0], [1]]), np.array([0, 1])
    t = table(codes, label)
    t.histogram((0,), mu=MU)
    codes[:], label[:] = 2, 0
    t.histogram((0,), mu=MU)
    assert bare[-1].tolist() == bare[-2].tolist()


def test_rows_go_when_the_table_goes():
    gc.collect()  # what earlier tests left
    t = table([[0], [1]], [0, 1])
    before = len(answering.BEHIND)
    del t
    gc.collect()
    assert len(answering.BEHIND) == before - 1


class Notes:
    """An observer that writes down what it hears."""

    def __init__(self, ledger=None):
        self.steps, self.answers, self.ledger = [], [], ledger

    def stepped(self, step):
        self.steps.append(step)

    def answered(self, question, event, noisy):
        if self.ledger is not None:  # kept before it is told
            assert self.ledger.kept(len(self.answers)).tolist() == noisy.tolist()
        self.answers.append((question, event, noisy.copy()))
        noisy[:] = 77  # its own copy: no answer changes


def test_an_observer_sees_exactly_what_leaves_the_gate():
    codes, label, time, _ = random_rows()
    ledger = Ledger()
    notes = Notes(ledger)
    start = Lived((2.0, 5.0), 9.0, grid=GRID)
    t = table(codes, label, sizes=[3, 4], objective=start, time=time, ledger=ledger, observer=notes)
    left = [t.total("hazard", mu=MU)]
    t.objective = SURVIVAL
    left.append(t.histogram((0,), by="stratum", mu=MU).ravel())
    t.bins(1, np.array([0, 0, 1, 1]))
    t.shift((0,), np.arange(3.0))
    left.append(np.concatenate(t.sums((0, 1), mu=MU)))
    left.append(t.choose(2, columns=[1, 0]))
    left.append(np.array([t.related([(0, 1)], [np.full((3, 2), 1.5)], [2.0])]))
    left.append(t.mapped(cells := Cells(), mu=MU))
    assert [question for question, _, _ in notes.answers[:4]] == [
        StatisticQuery("hazard"),
        HistogramQuery((0,), "stratum"),
        GradientQuery((0, 1)),
        ColumnChoice(2, (1, 0), (1, 1)),
    ]
    related = notes.answers[4][0]
    assert isinstance(related, PairChoice)
    assert (related.pairs, related.ahead) == (((0, 1),), (2.0,))
    assert related.expected[0].tolist() == [[1.5, 1.5]] * 3
    mapped = notes.answers[5][0]
    assert isinstance(mapped, MapQuery)
    assert mapped.map is cells
    assert [replace(event, run="", session="") for _, event, _ in notes.answers] == [
        replace(event, run="", session="") for event in ledger.events
    ]
    told = [noisy for *_, noisy in notes.answers]
    units = [noisy / (LIMIT * MARGIN) for noisy in told[:3]]
    again = [SURVIVAL.statistics["hazard"].undo(units[0]), units[1], units[2], np.array([1, 0])[told[3]], told[4]]
    again.append(told[5] / (LIMIT * MARGIN))
    for seen, answer in zip(again, left, strict=True):
        assert seen.tolist() == answer.tolist()
    aimed, merged, shifted = notes.steps
    assert aimed == SetObjective(SURVIVAL)
    assert isinstance(merged, MergeBins)
    assert (merged.column, merged.merge.tolist()) == (1, [0, 0, 1, 1])
    assert isinstance(shifted, ShiftScores)
    assert (shifted.columns, shifted.table.tolist()) == ((0,), [0.0, 1.0, 2.0])


def test_an_observer_cannot_see_rows_and_hears_nothing_of_what_is_refused(monkeypatch):
    n = 1237
    rng = np.random.default_rng(0)
    notes = Notes()
    t = table(rng.integers(0, 3, (n, 2)), rng.integers(0, 2, n), budget=Budget(1, 1e-5, 0.5), observer=notes)
    t.sums((0,), mu=0.3)
    t.shift((0,), np.ones(3))
    for refused in (lambda: t.sums((0,), mu=0.45), lambda: t.choose(1), lambda: t.shift((0,), np.ones(2))):
        with pytest.raises((BudgetError, SettingsError)):
            refused()
    assert (len(notes.answers), len(notes.steps)) == (1, 1)
    told = (notes.answers[0], notes.steps[0], t)
    arrays = [item for thing in told for item in reachable(thing) if isinstance(item, np.ndarray)]
    assert len(arrays) >= 2  # the walk does look into what was told
    assert all(n not in array.shape and array.size < n for array in arrays)
    with monkeypatch.context() as patch:
        patch.setattr(TableRows, "answer", lambda *_: (_ for _ in ()).throw(OSError("no entropy")))
        with pytest.raises(OSError, match="no entropy"):
            t.histogram((0,), mu=0.1)
    assert len(notes.answers) == 1  # entered and paid for, but nothing left


def test_a_resumed_run_tells_its_observer_the_same_again(tmp_path):
    path = tmp_path / "ledger.jsonl"
    codes, label, _, _ = random_rows()
    heard = []
    for _ in range(2):
        notes = Notes()
        ask_everything(table(codes, label, sizes=[3, 4], ledger=Ledger(path), observer=notes))
        heard.append([(question, event, noisy.tolist()) for question, event, noisy in notes.answers])
    assert heard[0] == heard[1]


def test_no_error_holds_a_value():
    secret = 8675309
    for wrong in (
        lambda: table([[secret], [0.5]], [0, 1]),
        lambda: table(np.full((2, 1), secret), [secret]),
        lambda: table(np.full((2, 1), secret), [0, 1], time=np.array([float(secret)])),
        lambda: table(np.full((2, 1), secret), [0, 1], person=np.array([secret])),
    ):
        with pytest.raises(CohortError) as caught:
            wrong()
        assert str(secret) not in str(caught.value)
