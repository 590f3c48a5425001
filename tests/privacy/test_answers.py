"""Whether a fit is an answer: the first count, the agreement of scores and outcomes, and what chance would give.

Where a verdict is asked for, noise and permutations have fixed seeds, so that it is the same in every run;
`python -m benchmarks.answers` counts false and missed answers with real noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense.data.cells import public_cells
from distcondense.data.outcome import Outcome
from distcondense.data.schema import Column, Schema
from distcondense.methods.private import uncertainty
from distcondense.methods.private.fit import fit_private, sizes
from distcondense.methods.private.plan import AGREEMENT_SHARE, Plan
from distcondense.methods.private.smoothing import prior_kernels
from distcondense.methods.private.uncertainty import (
    FEW,
    NOTHING,
    AgreementObjective,
    ChosenAmong,
    ColumnEvidence,
    by_chance,
    reason_for_doubt,
)
from distcondense.outcomes.base import Kind
from distcondense.outcomes.binary import COUNT_SHARE, Binary
from distcondense.outcomes.continuous import Continuous
from distcondense.outcomes.multiclass import Multiclass
from distcondense.outcomes.private_side import GroupCounts, PrivateFit, PrivateSide
from distcondense.outcomes.survival import PiecewiseExponential, Survival
from distcondense.privacy import noise
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from tests import naive

HORIZON = 10.0
KINDS: dict[str, Kind] = {
    "binary": Binary(("y",)),
    "multiclass": Multiclass(("y",), ("a", "b", "c")),
    "continuous": Continuous(("y",), Column("y", "continuous", low=-20.0, high=20.0)),
    "survival": Survival(("t", "y"), time=Column("t", "continuous", low=0, high=HORIZON)),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def side_of(kind: Kind) -> PrivateSide:
    side = kind.private_side()
    assert side is not None
    return side


SIDE = side_of(KINDS["binary"])


def outcome_of(kind: Kind, risk: Any, rng: np.random.Generator) -> Outcome:
    noisy, rows = risk + rng.logistic(size=len(risk)), len(risk)
    failure, leaving = rng.exponential(8 * np.exp(-risk)), rng.uniform(0.5, 20, rows)
    arrays = {
        "binary": {"label": (noisy > 0).astype(np.int8)},
        "multiclass": {"label": np.digitize(noisy, [-1.0, 1.0])},
        "continuous": {"value": np.clip(noisy, -20, 20)},
        "survival": {
            "label": (failure <= np.minimum(leaving, HORIZON)).astype(np.int8),
            "time": np.maximum(np.minimum(np.minimum(failure, leaving), HORIZON), 1e-3),
        },
    }
    return Outcome(kind, arrays[kind.name])


def fitted(
    kind: Kind,
    rows: int,
    columns: int,
    epsilon: float,
    *,
    effect: float = 0.0,
    alike: float = 0.0,
    outcome: Outcome | None = None,
) -> tuple[PrivateFit, PrivateTable, Plan]:
    """Numbers that are correlated by `alike`; the first three say something about the outcome, by `effect`."""
    rng, side = np.random.default_rng([rows, columns]), side_of(kind)
    x = np.sqrt(alike) * rng.normal(size=(rows, 1)) + np.sqrt(1 - alike) * rng.normal(size=(rows, columns))
    schema = Schema(tuple(Column(f"c{j}", "continuous", low=-6, high=6) for j in range(columns)))
    cells, plan = public_cells(schema, fine=32), Plan.for_table(columns, side)
    codes = np.stack([one.codes(pd.Series(np.clip(x[:, j], -6, 6))) for j, one in enumerate(cells)], axis=1)
    outcome = outcome_of(kind, effect * x[:, :3].sum(1), rng) if outcome is None else outcome
    table = PrivateTable(
        codes,
        [one.size for one in cells],
        outcome.arrays,
        names=schema.names,
        objective=side.objective,
        budget=plan.budget(epsilon, 1e-5),
        ledger=Ledger(),
    )
    return fit_private(table, cells, plan, side), table, plan


@pytest.fixture
def fixed_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise in every run: rounded Gaussians, and choices by Gumbel noise."""
    rng = np.random.default_rng(7)

    def gaussian(sums: Any, scale: float) -> Any:
        return sums + np.rint(scale * rng.normal(size=sums.shape)).astype(np.int64)

    def top(scores: Any, count: int, scale: float) -> Any:
        return np.argsort(-(scores + scale * rng.gumbel(size=scores.shape)), kind="stable")[:count]

    monkeypatch.setattr(noise, "discrete_gaussian", gaussian)
    monkeypatch.setattr(noise, "noisy_top", top)


# ---- the two questions


def test_classes_are_counted_before_anything_else_and_the_agreement_is_asked_once() -> None:
    for kind in (KINDS["binary"], KINDS["multiclass"]):
        for columns in (3, 130):
            _, table, plan = fitted(kind, 300, columns, 2.0)
            events, mu = table.ledger.events, table.budget.mu
            first = events[0]
            assert (first.query, first.columns, first.by) == ("histogram", (), "label")
            assert first.cost == pytest.approx(mu * np.sqrt(COUNT_SHARE))
            (asked,) = (event for event in events if event.by == "agreement")
            assert (asked.query, asked.cells) == ("total", 1 + 2 * table.objective.scores)
            assert asked.cost == pytest.approx(mu * np.sqrt(AGREEMENT_SHARE))
            assert asked.noise == pytest.approx(1 / (uncertainty.PRODUCT * asked.cost))
            assert plan.own["count"] == COUNT_SHARE


@pytest.mark.parametrize("kind", [KINDS["continuous"], KINDS["survival"]], ids=["continuous", "survival"])
def test_every_kind_pays_for_the_agreement(kind: Kind) -> None:
    _, table, plan = fitted(kind, 300, 3, 2.0)
    assert [event.by for event in table.ledger.events].count("agreement") == 1
    assert len(table.ledger.events) <= plan.answers
    assert table.spent().mu <= table.budget.mu * (1 + 1e-9)


def ready(kind: Kind) -> Any:
    objective = side_of(kind).objective
    return (
        objective.with_hazard([0.05] * objective.intervals)
        if isinstance(objective, PiecewiseExponential)
        else objective
    )


@EVERY_KIND
@given(width=st.floats(1e-6, 10), at=st.floats(-5, 5), sharp=st.floats(0.01, 1e3), seed=st.integers(0, 2**32))
def test_what_a_row_adds_to_the_agreement_has_norm_at_most_one(
    kind: Kind, width: float, at: float, sharp: float, seed: int
) -> None:
    """For scores of any size, and a centre that need not be theirs."""
    rng, inner = np.random.default_rng(seed), ready(kind)
    outcome = outcome_of(kind, rng.normal(size=200), rng)
    score = sharp * rng.normal(size=(200,) if inner.scores == 1 else (200, inner.scores))
    start, centre = (tuple(at * rng.normal(size=inner.scores)) for _ in range(2))
    objective = AgreementObjective(inner, start, centre, width)
    parts = np.stack(objective.statistics["agreement"].values(objective.prepare(outcome.arrays), score))
    assert len(parts) == objective.statistics["agreement"].size
    assert np.all(np.isfinite(parts))
    assert np.sqrt(np.square(parts).sum(0)).max() <= 1


def test_a_row_can_add_almost_one_to_the_agreement() -> None:
    """A smaller weight would waste budget."""
    objective = AgreementObjective(ready(KINDS["binary"]), (8.0,), (8.0,), 1.0)
    values = objective.statistics["agreement"].values
    parts = np.stack(values(objective.prepare({"label": np.array([0])}), np.array([-40.0])))
    assert np.sqrt(np.square(parts).sum()) > 0.99


@EVERY_KIND
def test_the_agreement_is_that_of_the_slow_twin(kind: Kind) -> None:
    rng, inner = np.random.default_rng(3), ready(kind)
    outcome = outcome_of(kind, rng.normal(size=50), rng)
    several = rng.normal(size=(50, inner.scores))
    start, centre = (tuple(0.3 * rng.normal(size=inner.scores)) for _ in range(2))
    objective = AgreementObjective(inner, start, centre, 0.8)
    target = objective.prepare(outcome.arrays)
    shape = (50,) if inner.scores == 1 else (50, inner.scores)
    statistic = objective.statistics["agreement"]
    found = statistic.undo(np.sum(statistic.values(target, several.reshape(shape)), axis=1))
    still = np.broadcast_to(start, several.shape).reshape(shape)
    gradients = np.stack(inner.contributions(still, target)[: inner.scores], axis=1)
    assert found == pytest.approx(naive.agreement(several.tolist(), gradients.tolist(), centre, 0.8))


def test_an_objective_that_is_asked_for_agreement_is_otherwise_as_before() -> None:
    inner = ready(KINDS["survival"])
    objective = AgreementObjective(inner, (0.0,), (0.0,), 1.0)
    assert objective.continues(inner)
    assert not objective.continues(ready(KINDS["binary"]))
    assert set(objective.statistics) == {*inner.statistics, "agreement"}
    for name in ("scores", "scales", "groupings", "ready"):
        assert getattr(objective, name) == getattr(inner, name)


# ---- counts


def test_the_less_noisy_count_weighs_more() -> None:
    histograms = [np.full((2, 100), 3.0), np.full((2, 25), 8.0)]  # 300 and 200 of each class
    rows, shares, spread = sizes(histograms, 1.0, None)
    assert rows == pytest.approx(2 * (300 / 100 + 200 / 25) / (1 / 100 + 1 / 25))
    assert shares.tolist() == [0.5, 0.5]
    assert spread == pytest.approx(1 / np.sqrt(1 / 100 + 1 / 25))
    rows, shares, spread = sizes(histograms, 1.0, GroupCounts(np.array([90.0, 10.0]), 1e-3))
    assert rows == pytest.approx(100, rel=1e-3)
    assert shares == pytest.approx([0.9, 0.1], rel=1e-3)
    assert spread == pytest.approx(1e-3, rel=1e-3)


def test_a_small_table_is_not_refused_for_its_histograms_noise(fixed_noise: None) -> None:
    """The fine cells of 30 numbers say little of 455 rows; the count does."""
    learned, _, _ = fitted(KINDS["binary"], 455, 30, 2.5, effect=1.5)
    assert learned.doubt != FEW
    assert learned.rows == pytest.approx(455, rel=0.25)


def test_a_handful_of_cases_is_too_few(fixed_noise: None) -> None:
    label = np.zeros(3000, np.int8)
    label[:5] = 1
    learned, _, _ = fitted(KINDS["binary"], 3000, 4, 1.0, outcome=Outcome(KINDS["binary"], {"label": label}))
    assert learned.doubt == FEW


# ---- chance


def column(cells: int, rows: float, blur: float) -> tuple[Any, Any, Any, Any]:
    """Precision, noise, hessian and kernels as two rounds leave them."""
    hessian = np.full(cells, rows / cells)
    told_by = hessian**2 / (blur**2 + hessian)
    return 2 * told_by, 2 * told_by * blur**2 / (blur**2 + hessian), hessian, prior_kernels(cells, True, False)


def told_of(precision: Any, noise: Any, hessian: Any, kernels: Any) -> ColumnEvidence:
    return ColumnEvidence(np.diag(precision)[None], np.diag(noise)[None], hessian[None], kernels)


@pytest.mark.parametrize(("rivals", "gumbel"), [(1, 0.0), (6, 3.0)])
def test_chance_is_that_of_the_slow_twin(monkeypatch: pytest.MonkeyPatch, rivals: int, gumbel: float) -> None:
    """In mean and spread: their random numbers are not the same."""
    monkeypatch.setattr(uncertainty, "DRAWS", 1000)
    columns = [column(cells, 400, blur) for cells, blur in ((3, 2.0), (5, 20.0), (4, 8.0))]
    told = [told_of(*one) for one in columns]
    found = by_chance(SIDE, told, 0.7, ChosenAmong(rivals, gumbel))
    rng = np.random.default_rng(1)
    slow = np.array([naive.by_chance(columns, 0.7, rivals, gumbel, rng) for _ in range(1000)])
    assert found.mean() == pytest.approx(slow.mean(), rel=0.1)
    assert found.std() == pytest.approx(slow.std(), rel=0.1)


def test_chance_grows_with_columns_and_with_their_rivals_and_shrinks_with_noise() -> None:
    def mean(many: int, blur: float, chosen: ChosenAmong) -> float:
        return float(by_chance(SIDE, [told_of(*column(5, 400, blur))] * many, 1.0, chosen).mean())

    alone = mean(10, 5.0, ChosenAmong())
    assert mean(40, 5.0, ChosenAmong()) > 1.5 * alone
    assert mean(10, 5.0, ChosenAmong(25, 1.0)) > 1.5 * alone
    assert mean(10, 5.0, ChosenAmong(25, 1e6)) == pytest.approx(
        alone, rel=0.3
    )  # a choice that is all noise favours nobody
    assert mean(10, 50.0, ChosenAmong()) < 0.5 * alone


def test_a_table_of_which_nothing_is_known_has_no_chance_and_no_warning() -> None:
    nothing = ColumnEvidence(np.zeros((1, 4, 4)), np.zeros((1, 4, 4)), np.zeros((1, 4)), prior_kernels(4, True, False))
    assert not by_chance(SIDE, [nothing], 1.0, ChosenAmong()).any()


# ---- verdicts


@EVERY_KIND
def test_a_relation_is_an_answer_and_chance_is_none(kind: Kind, fixed_noise: None) -> None:
    true, _, _ = fitted(kind, 3000, 6, 2.5, effect=1.0)
    assert not true.doubt
    assert true.evidence > 2 * uncertainty.STANDS_OUT
    for _ in range(3):
        false, _, _ = fitted(kind, 3000, 6, 2.5)
        assert false.doubt == NOTHING
        assert false.evidence < uncertainty.STANDS_OUT


def test_columns_that_repeat_each_other_are_no_evidence(fixed_noise: None) -> None:
    """They fit each other's noise, with scores that spread; agreement with outcomes does not come of it."""
    for _ in range(5):
        learned, _, _ = fitted(KINDS["binary"], 455, 30, 5.0, alike=0.9)
        assert learned.doubt == NOTHING


def test_chosen_columns_are_no_evidence_for_having_been_chosen(fixed_noise: None) -> None:
    for _ in range(3):
        learned, _, _ = fitted(KINDS["binary"], 1000, 200, 10.0)
        assert learned.doubt == NOTHING
    true, _, _ = fitted(KINDS["binary"], 2000, 200, 5.0, effect=1.0)
    assert not true.doubt


def test_a_model_that_says_little_is_no_answer_however_sure(fixed_noise: None) -> None:
    learned, _, _ = fitted(KINDS["binary"], 3000, 6, 2.5, effect=1.0)
    flat = learned.model.tables[0] * 0
    model = type(learned.model)(learned.model.cells, learned.model.intercept, (flat,) * 6, learned.model.link)
    assert reason_for_doubt(learned, SIDE, 1.0) == ""
    assert reason_for_doubt(type(learned)(**{**vars(learned), "model": model}), SIDE, 1.0) == NOTHING
