"""Pairs of columns in the private model: found where they do something together, paid for, drawn; else no cost."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from distcondense.data.cells import public_cells
from distcondense.data.outcome import Outcome
from distcondense.data.schema import Column, Schema
from distcondense.methods.private import figures
from distcondense.methods.private.figures import model_figures
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.joint import Counts, _together
from distcondense.methods.private.plan import Plan
from distcondense.methods.private.smoothing import pair_kernels, posteriors, prior_kernels, smooth
from distcondense.methods.private.terms import Grids, PairSearch
from distcondense.outcomes.base import Kind
from distcondense.outcomes.binary import Binary
from distcondense.outcomes.continuous import Continuous
from distcondense.outcomes.multiclass import Multiclass
from distcondense.outcomes.private_side import PrivateFit, PrivateSide
from distcondense.outcomes.survival import Survival
from distcondense.privacy import noise
from distcondense.privacy.accountant import replay
from distcondense.privacy.gate import PrivateTable, gate_over
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.shards import ShardedRows, ThreadShards
from distcondense.privacy.table_rows import TableRows
from distcondense.report.svg import figure_table
from distcondense.runs.figures import HEAT
from tests import naive

SCHEMA = Schema(
    (
        Column("age", "integer", low=20, high=80),
        Column("drug", "binary", categories=("no", "yes")),
        Column("dose", "continuous", low=0, high=1, missing="indicator"),
        Column("site", "categorical", categories=("a", "b", "c")),
    )
)
KINDS: dict[str, Kind] = {
    "binary": Binary(("y",)),
    "multiclass": Multiclass(("y",), ("low", "middle", "high")),
    "continuous": Continuous(("y",), Column("y", "continuous", low=-20.0, high=20.0)),
    "survival": Survival(("t", "y"), time=Column("t", "continuous", low=0, high=9)),
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def side_of(kind: Kind) -> PrivateSide:
    return kind.private_side(horizon=9.0 if kind.name == "survival" else None)


def patients(kind: Kind, rows: int, together: float, seed: int = 0) -> tuple[pd.DataFrame, Outcome]:
    """Age helps with the drug and harms without it, by `together`; the site matters by itself."""
    rng = np.random.default_rng(seed)
    age, drug, site = rng.integers(20, 81, rows), rng.integers(0, 2, rows), rng.integers(0, 3, rows)
    dose = np.where(rng.random(rows) < 0.1, np.nan, rng.random(rows))
    risk = 0.8 * (site - 1) + together * (2 * drug - 1) * (age - 50) / 30
    noisy, failure = risk + rng.logistic(size=rows), rng.exponential(5 * np.exp(-risk))
    arrays = {
        "binary": {"label": (noisy > 0).astype(np.int8)},
        "multiclass": {"label": np.digitize(noisy, [-1.0, 1.0])},
        "continuous": {"value": np.clip(noisy, -20, 20)},
        "survival": {"label": (failure < 9).astype(np.int8), "time": np.clip(failure, 1e-3, 9.0)},
    }
    frame = pd.DataFrame(
        {"age": age, "drug": np.array(["no", "yes"])[drug], "dose": dose, "site": np.array(["a", "b", "c"])[site]}
    )
    return frame, Outcome(kind, arrays[kind.name])


def gate_of(frame: pd.DataFrame, outcome: Outcome, plan: Plan, epsilon: float, ledger: Ledger) -> PrivateTable:
    cells = public_cells(SCHEMA, fine=32)
    return PrivateTable(
        np.stack([one.codes(frame[one.column.name]) for one in cells], axis=1),
        [one.size for one in cells],
        outcome.arrays,
        names=SCHEMA.names,
        objective=side_of(outcome.kind).objective,
        budget=plan.budget(epsilon, 1e-5),
        ledger=ledger,
    )


def learned_from(
    kind: Kind, rows: int, together: float, epsilon: float, ledger: Ledger | None = None
) -> tuple[PrivateFit, PrivateTable, Plan]:
    side = side_of(kind)
    plan = Plan.for_table(len(SCHEMA.columns), side)
    table = gate_of(*patients(kind, rows, together), plan, epsilon, Ledger() if ledger is None else ledger)
    return fit_private(table, public_cells(SCHEMA, fine=32), plan, side), table, plan


@pytest.fixture
def fixed_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)

    def gaussian(sums: Any, scale: float) -> Any:
        return sums + np.rint(scale * rng.normal(size=sums.shape)).astype(np.int64)

    monkeypatch.setattr(noise, "discrete_gaussian", gaussian)


def asked_of_pairs(table: PrivateTable) -> list[Any]:
    return [event for event in table.ledger.events if event.query == "sums" and len(event.columns) == 2]


@EVERY_KIND
def test_what_two_columns_do_together_is_found_and_makes_the_model_better(
    kind: Kind, fixed_noise: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned, table, plan = learned_from(kind, 8000, 1.5, 4.0)
    model = learned.model
    first = model.pairs[0]
    assert [model.cells[j].column.name for j in first.columns] == ["age", "drug"]
    frame, truth = patients(kind, 4000, 1.5, seed=1)
    codes, side = model.codes(frame), side_of(kind)
    alone = model.__class__(model.cells, model.intercept, model.tables, model.link)
    scores = [kind.score(side.link, side.expected(one.margin(codes)), truth) for one in (alone, model)]
    assert scores[1] > scores[0] + 0.04
    # what it says of each column alone stands in that column's table
    for share in (learned.overall[j] for j in first.columns):
        assert share.sum() == pytest.approx(1)
    of = [np.bincount(g, learned.overall[j]) for j, g in zip(first.columns, first.groups, strict=True)]
    assert np.abs(first.table @ of[1]).max() < 1e-9
    assert np.abs(of[0] @ first.table).max() < 1e-9
    assert first.errors.shape == first.table.shape
    assert (first.errors > 0).all()
    # all of the budget is spent, and no more
    assert table.spent().mu == pytest.approx(table.budget.mu, rel=1e-9)
    assert replay(table.ledger.events, 1e-5).epsilon <= 4.0
    assert len(asked_of_pairs(table)) <= plan.looked + plan.measured
    drawn = model_figures(learned, side, ("low", "middle", "high"))["model"]
    heat = next(figure for figure in drawn if figure.name == "term-0-1")
    assert "age and drug" in heat.title
    assert all(line.low is not None and line.high is not None for line in heat.series)
    if kind.name == "multiclass":
        classes_have_rows_of_their_own(learned, side, monkeypatch)


def classes_have_rows_of_their_own(learned: PrivateFit, side: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where curves would hide each other: each stretch has the mean of its cells, weighted by how many are there."""
    monkeypatch.setattr(figures, "SIDE_BY_SIDE", 2)
    drawn = model_figures(learned, side, ("low", "middle", "high"))["model"]
    panels = {one.name: one for one in drawn if one.name.startswith("model-")}
    assert len({one.y_range for one in panels.values()}) == 1
    for j, cells in enumerate(learned.model.cells):
        figure, table = panels[f"model-{j}"], learned.model.tables[j]
        assert figure.kind == HEAT
        assert [line.name for line in figure.series] == ["low", "middle", "high"]
        assert len(figure.series[0].x) <= (figures.STRETCHES + 1 if cells.numeric else figures.NAMES)
        for line, of_class in zip(figure.series, table, strict=True):
            assert min(of_class) - 1e-9 <= min(line.y) <= max(line.y) <= max(of_class) + 1e-9
        if cells.numeric:
            continue
        codes = np.sort(np.argsort(-learned.overall[j], kind="stable")[: figures.NAMES])
        np.testing.assert_allclose([line.y for line in figure.series], table[:, codes])
        first = figure_table(figure).rows[0]
        assert first[0] == "low"
        assert re.fullmatch(r"-?[\d.]+ \[-?[\d.]+, -?[\d.]+\]", first[1])


@EVERY_KIND
def test_where_columns_do_nothing_together_the_last_round_has_what_was_kept(kind: Kind, fixed_noise: None) -> None:
    learned, table, plan = learned_from(kind, 8000, 0.0, 4.0)
    assert learned.model.pairs == ()
    sums = [event.cost for event in table.ledger.events if event.query == "sums" and len(event.columns) == 1]
    assert asked_of_pairs(table)
    assert sums[-4:] == [plan.last_cost(table.budget, sums[0], looked=True)] * 4
    assert sums[-1] > sums[0]
    assert table.spent().mu == pytest.approx(table.budget.mu, rel=1e-9)


@EVERY_KIND
def test_few_rows_are_not_asked_about_pairs_and_nothing_is_kept_for_them(kind: Kind) -> None:
    _, table, plan = learned_from(kind, 60, 2.0, 0.5)
    assert not asked_of_pairs(table)
    sums = {event.cost for event in table.ledger.events if event.query == "sums"}
    assert sums == {plan.sums_cost(table.budget, pairs=0.0, terms=False)}
    assert table.spent().mu == pytest.approx(table.budget.mu, rel=1e-9)


@pytest.mark.parametrize("kind", [KINDS["continuous"], KINDS["multiclass"]], ids=["continuous", "multiclass"])
def test_a_run_killed_between_questions_about_pairs_goes_on_to_the_same_model(
    kind: Kind, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, ask, seen = tmp_path / "ledger.jsonl", PrivateTable.sums, []

    def dies(self: PrivateTable, columns: Any, **how: Any) -> Any:
        seen.append(len(columns))
        if seen.count(2) == 3:
            raise KeyboardInterrupt
        return ask(self, columns, **how)

    monkeypatch.setattr(PrivateTable, "sums", dies)
    with pytest.raises(KeyboardInterrupt):
        learned_from(kind, 8000, 1.5, 8.0, Ledger(path))
    monkeypatch.setattr(PrivateTable, "sums", ask)
    before = path.read_text().splitlines()
    first, table, _ = learned_from(kind, 8000, 1.5, 8.0, Ledger(path))
    assert path.read_text().splitlines()[: len(before)] == before
    assert table.spent().mu == pytest.approx(table.budget.mu, rel=1e-9)
    monkeypatch.setattr(noise, "discrete_gaussian", lambda *_: pytest.fail("nothing may be drawn again"))
    again, _, _ = learned_from(kind, 8000, 1.5, 8.0, Ledger(path))
    assert first.model.pairs
    for one, other in zip(first.model.pairs, again.model.pairs, strict=True):
        assert one.columns == other.columns
        assert one.table.tolist() == other.table.tolist()


@EVERY_KIND
def test_rows_in_shards_give_the_model_of_one_table(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    side, cells = side_of(kind), public_cells(SCHEMA, fine=32)
    plan = Plan.for_table(len(cells), side)
    frame, outcome = patients(kind, 8000, 1.5)
    codes = np.stack([one.codes(frame[one.column.name]) for one in cells], axis=1)
    sizes, found = [one.size for one in cells], []
    for parts in (1, 3):
        rng = np.random.default_rng(3)
        monkeypatch.setattr(
            noise,
            "discrete_gaussian",
            lambda sums, scale, rng=rng: sums + np.rint(scale * rng.normal(size=sums.shape)).astype(np.int64),
        )
        monkeypatch.setattr(noise, "noisy_top", lambda scores, count, scale: np.argsort(-scores, kind="stable")[:count])
        shards = [
            TableRows.from_table(
                codes[part::parts],
                sizes,
                {name: values[part::parts] for name, values in outcome.arrays.items()},
                side.objective,
            )
            for part in range(parts)
        ]
        table = gate_over(
            ShardedRows(ThreadShards(shards), sizes, side.objective, 1),
            names=SCHEMA.names,
            budget=plan.budget(8.0, 1e-5),
            ledger=Ledger(),
            unit="row",
        )
        found.append(fit_private(table, cells, plan, side).model)
    assert found[0].pairs
    for one, other in zip(*(model.pairs for model in found), strict=True):
        assert one.columns == other.columns
        assert one.table.tolist() == other.table.tolist()


# ---- candidates


def test_candidates_are_few_where_noise_is_large_and_bounded_where_columns_are_many() -> None:
    side = side_of(KINDS["binary"])
    for d, most in ((4, 4), (40, 32), (3000, 16)):
        plan = Plan.for_table(d, side)
        assert plan.terms == most
        assert plan.looks(most * (most - 1) // 2)[0] == most * (most - 1) // 2
        events = plan.events(plan.budget(1.0, 1e-5), public_cells(SCHEMA), side, "row")
        assert sum(event.cost**2 for event in events if event.kind == "gaussian") == pytest.approx(
            plan.budget(1.0, 1e-5).mu ** 2
        )
    assert Plan.for_table(1, side).terms == 0


def test_more_columns_are_looked_at_the_more_rows_there_are() -> None:
    side, d = side_of(KINDS["binary"]), 12
    plan = Plan.for_table(d, side)
    cells = public_cells(Schema(tuple(Column(f"c{j}", "integer", low=0, high=9) for j in range(d))))
    rng = np.random.default_rng(0)
    tables = [0.1 * (j + 1) * rng.normal(size=(1, 10)) for j in range(d)]
    many = []
    for rows in (10, 3000, 30_000, 10**6):
        table = PrivateTable(
            np.zeros((1, d), np.int64),
            [10] * d,
            {"label": np.zeros(1, np.int8)},
            names=[one.column.name for one in cells],
            objective=side.objective,
            budget=plan.budget(1.0, 1e-5),
            ledger=Ledger(),
        )
        grids = [Grids.from_shares(np.full(10, 0.1), np.arange(10), one) for one in cells]
        search = PairSearch(table, plan, side, range(d), grids, lambda answer: answer)
        found = search.candidates(tables, [np.full((1, 10), rows * 0.02)] * d)
        many.append(len(found))
        assert {j for pair in found for j in pair} <= set(range(d))
        assert not found or (d - 2, d - 1) in found  # the columns that do most come first
    assert many == sorted(many)
    assert (many[0], many[-1]) == (0, d * (d - 1) // 2)


# ---- answers about the same cells


def test_two_answers_about_rows_are_put_together_by_their_noise() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(5, 50, (4, 3)).astype(float)
    first, second = np.array([0, 0, 1, 1]), np.array([0, 1, 1])
    coarse = np.zeros((2, 2))
    np.add.at(coarse, (first[:, None], second), truth)
    assert _together(coarse, 2.0, None)[1].tolist() == [[4.0] * 2] * 2
    far = []
    for _ in range(400):
        answer = coarse + 4 * rng.normal(size=coarse.shape)
        both, variance = _together(answer, 4.0, Counts(truth + 2 * rng.normal(size=truth.shape), 2.0, first, second))
        far.append((both - coarse) / np.sqrt(variance))
    assert np.mean(far) == pytest.approx(0, abs=0.1)
    assert np.var(far) == pytest.approx(1, rel=0.15)
    assert variance.ravel()[0] == pytest.approx(1 / (1 / 16 + 1 / (2 * 4)))  # two fine cells in it


def test_a_matrix_of_precisions_smooths_as_its_diagonal_does() -> None:
    rng, kernels = np.random.default_rng(0), prior_kernels(6, True, False)
    precision, information = rng.uniform(0, 50, (1, 6)), rng.normal(size=(1, 6)) * 10
    found = smooth(np.stack([np.diag(precision[0])]), information, kernels)
    assert found == pytest.approx(smooth(precision, information, kernels))


def test_the_evidence_of_a_pair_s_kernels_is_that_of_the_slow_twin() -> None:
    rng = np.random.default_rng(1)
    both, alone = pair_kernels((4, True, True), (2, False, False))
    precision, told = rng.uniform(1, 20, (1, 8)), rng.normal(size=8)
    for kernels in (both, alone):
        _, evidence = posteriors(precision, (precision * told)[..., None], kernels)
        slow = [
            naive.log_normal(told, kernel + np.diag(1 / precision[0]))
            - naive.log_normal(told, np.diag(1 / precision[0]))
            for kernel in kernels
        ]
        assert evidence[:, 0] == pytest.approx(slow)
    for kernel in both[:2]:  # nothing left over of either column
        table = kernel.reshape(4, 2, 4, 2)
        assert np.abs(table.sum(0)).max() < 1e-9
        assert np.abs(table.sum(1)).max() < 1e-9
