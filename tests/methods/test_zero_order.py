"""The zero-order engine under the theorem: what moves, what stays, what it costs (nothing), and who computes it."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.linear_model import LogisticRegression

import distcondense as dc
from distcondense.cluster.config import Cluster
from distcondense.cluster.executors import LocalExecutor
from distcondense.data.cells import MICRO, public_cells
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.schema import Column, Schema
from distcondense.errors import ModelError, SettingsError
from distcondense.kernels.update import NoiseRule
from distcondense.methods.base import Context
from distcondense.methods.private import condense as private
from distcondense.methods.private import placement, zero_order
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.placement import PlacedRows, place
from distcondense.methods.private.prepare import prepare
from distcondense.methods.private.zero_order import MovableRows, MoveSettings, moved
from distcondense.methods.zero_order.engine import (
    Problem,
    RealScores,
    ReferenceLoss,
    gradient,
    optimise,
    seed_key,
    widths_of,
)
from distcondense.methods.zero_order.objectives import Composite, bce, softmax, squares
from distcondense.methods.zero_order.several import StackedModels, opened
from distcondense.models.base import BlackBox
from distcondense.models.trees import tree_model
from distcondense.outcomes.private_side import PrivateFit, PrivateSide
from tests import naive
from tests.conftest import SMALL_SCHEMA, SMALL_TABLE, small_frame

COLUMNS = (
    Column("age", "integer", low=0, high=120),
    Column("crp", "continuous", low=0, high=400, decimals=1),
    Column("smoker", "binary", categories=(0, 1)),
    Column("stage", "categorical", categories=("I", "II", "III")),
    Column("albumin", "continuous", low=10, high=60, step=0.5, missing="indicator"),
)
OUTCOMES = {
    "binary": ({"target": "died"}, (Column("died", "binary", categories=(0, 1)),)),
    "survival": (
        {"time": "months", "event": "event"},
        (Column("months", "continuous", low=0, high=61), Column("event", "binary", categories=(0, 1))),
    ),
    "multiclass": ({"target": "grade"}, (Column("grade", "categorical", categories=("low", "middle", "high")),)),
    "continuous": ({"target": "cost"}, (Column("cost", "continuous", low=0, high=500, decimals=1),)),
}
EVERY_KIND = pytest.mark.parametrize("kind", OUTCOMES)


def frame_of(rows: int) -> pd.DataFrame:
    frame, rng = small_frame(rows), np.random.default_rng(1)
    albumin = np.round(2 * np.clip(45 - frame["age"] / 10 + rng.normal(0, 4, rows), 10, 60)) / 2
    risk = 0.05 * (frame["age"] - 55) + 0.04 * (frame["crp"] - 20)
    return frame.assign(
        albumin=albumin.where(rng.random(rows) > 0.2),
        grade=np.select([risk < -0.8, risk < 0.8], ["low", "middle"], "high"),
        cost=np.clip(100 + 60 * risk + rng.normal(0, 20, rows), 0, 500).round(1),
    )


def cohort_of(kind: str, rows: int = 3000) -> Cohort:
    goal, outcome = OUTCOMES[kind]
    names = [column.name for column in (*COLUMNS, *outcome)]
    return Cohort.from_frame(frame_of(rows)[names], schema=Schema((*COLUMNS, *outcome)), **goal)


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """Small pools and few exchanges: what is promised holds at any number of them."""
    fewer = {"POPULATION": 1500, "CANDIDATES": 300, "PEOPLE": 100, "POOL": 200, "SETS": 1, "STEPS": 40}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fewer.items():
            patch.setattr(placement, name, value)
        patch.setattr(zero_order, "DRAWN", 300)
        yield


Known = tuple[PrivateFit, PrivateSide, PlacedRows]


class Everything(dict[str, Known]):
    """Of each kind, when it is first asked for: what left the gate, and placed rows."""

    def __missing__(self, kind: str) -> Known:
        cohort = cohort_of(kind)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # whether there is an answer in it is not what is tested here
            learned = replace(dc.PrivateModel(epsilon=8.0).fit(cohort).learned_, doubt="")
        side = cohort.outcome.kind.private_side()
        self[kind] = (learned, side, place(learned, side, 12, seed=0))
        return self[kind]


@pytest.fixture(scope="module")
def known() -> Everything:
    return Everything()


@pytest.fixture
def anything_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge who likes every look better than the one before: the rows of the last step are kept."""
    count = itertools.count()
    monkeypatch.setattr(MovableRows, "judged", lambda self, X: float(next(count)))


def move(known: Known, *references: Any, steps: int = 12, **how: Any) -> tuple[PlacedRows, dict[str, Any]]:
    learned, side, placed = known
    return moved(placed, learned, side, **{"seed": 0, "steps": steps, "references": references, **how})


def same(a: PlacedRows, b: PlacedRows) -> bool:
    soft = (None if one.labelled.soft is None else one.labelled.soft.tobytes() for one in (a, b))
    return a.codes.tobytes() == b.codes.tobytes() and a.inside.tobytes() == b.inside.tobytes() and len(set(soft)) == 1


# -- what moves -------------------------------------------------------------------------------------------------------


@EVERY_KIND
def test_numbers_move_and_nothing_else_does(kind, known, anything_goes):
    learned, _, placed = known[kind]
    made, facts = move(known[kind], steps=30)
    before, after = (one.features(learned.model.cells) for one in (placed, made))
    assert facts["columns_moved"]
    assert set(facts["columns_moved"]) <= {"age", "crp", "albumin"}
    for name in ("smoker", "stage"):
        assert before[name].tolist() == after[name].tolist()
    assert before["albumin"].isna().tolist() == after["albumin"].isna().tolist()
    assert any(before[name].tolist() != after[name].tolist() for name in ("age", "crp"))
    for name, values in placed.labelled.outcome.arrays.items():
        assert np.array_equal(values, made.labelled.outcome[name])


@EVERY_KIND
def test_moved_rows_are_legal_and_what_is_expected_of_them_is_the_private_model_s(kind, known, anything_goes):
    learned, side, _ = known[kind]
    made, _ = move(known[kind], steps=30)
    values = made.features(learned.model.cells)
    for column in COLUMNS:
        if column.numeric:
            found = values[column.name].dropna().to_numpy(np.float64)
            assert found.min() >= column.low
            assert found.max() <= column.high
            assert np.allclose(found, column.rounded(found), atol=1e-9)
    assert np.array_equal(learned.model.codes(values), made.codes)  # cells and values agree
    if made.labelled.soft is not None:
        assert np.allclose(made.labelled.soft, side.expected(learned.model.margin(made.codes)))
    assert made.labelled.weight.sum() == pytest.approx(learned.rows)


def test_a_class_never_contradicts_its_risk_and_a_pair_that_was_paid_for_never_breaks(known, anything_goes):
    learned, side, placed = known["binary"]
    made, _ = move(known["binary"], "private", "students", steps=60)
    even = np.full(len(made.codes), 0.5)
    before, after = (side.label(learned, one.codes, even, len(even)).outcome["label"] for one in (placed, made))
    agreed = before == placed.labelled.outcome["label"]
    assert agreed.any()
    assert np.array_equal(after[agreed], before[agreed])
    pairs = {j for pair in (*learned.joint.forest, *learned.joint.more) for j in pair}
    assert pairs
    for j in pairs:
        coarse = learned.joint.coarse[j]
        assert np.array_equal(coarse[made.codes[:, j]], coarse[placed.codes[:, j]])


def test_a_number_passes_no_more_than_its_share_of_rows():
    p = np.array([0.5, 0.02, 0.03, 0.05, 0.2, 0.2])
    first, last = zero_order._stretch(np.arange(6), p, None)
    assert (first[0], last[0]) == (0, 0)  # half of all rows share a value: nobody leaves it
    assert (first[2], last[2]) == (0, 4)
    first, last = zero_order._stretch(np.arange(6), p, np.array([0, 0, 1, 1, 1, 2]))
    assert (first[2], last[2]) == (2, 4)
    assert first.tolist() <= list(range(6))
    assert last.tolist() >= list(range(6))


def test_a_row_that_would_break_a_rule_stays_where_it_was(known, anything_goes):
    placed = known["binary"][2]
    made, _ = move(known["binary"], steps=30, legal=lambda frame: np.zeros(len(frame), np.bool_))
    assert np.array_equal(made.codes, placed.codes)
    assert np.array_equal(made.inside, placed.inside)


def test_nothing_is_kept_that_does_not_help(known, monkeypatch):
    """The start itself comes back, to the bit, from a judge who likes it best."""
    count = itertools.count()
    monkeypatch.setattr(MovableRows, "judged", lambda self, X: -float(next(count)))
    made, facts = move(known["binary"])
    assert made is known["binary"][2]
    assert (facts["released_step"], facts["columns_moved"]) == (0, [])
    assert facts["judged_after"] == facts["judged_before"]


@pytest.mark.parametrize("kind", ["binary", "survival"])
def test_the_judge_never_likes_the_moved_rows_less(kind, known):
    made, facts = move(known[kind], "private")
    assert facts["judged_after"] >= facts["judged_before"]
    assert (facts["judged_after"] > facts["judged_before"]) == (made is not known[kind][2])


def test_a_column_is_kept_only_where_it_helps(known):
    """A judge who wants age as it was and crp as high as can be gets just that."""
    learned, side, placed = known["binary"]
    cells = learned.model.cells
    as_released = Codec.public(Schema(tuple(cell.column for cell in cells))).encode(placed.features(cells))
    field = MovableRows.from_placed(placed, learned, side, np.random.default_rng(0))
    age, crp = (field.codec.names.index(name) for name in ("age", "crp"))

    def wants(rows: Any, labelled: Any) -> float:
        return float(rows[:, crp].sum() - 100 * np.abs(rows[:, age] - as_released[:, age]).sum())

    field = replace(field, judge=wants)
    before = field.judged(field.start)
    X, score = field.column_by_column(field.start, before, field.box[1])
    assert np.array_equal(X[:, age], field.start[:, age])
    assert np.array_equal(X[:, crp], field.box[1][:, crp])
    assert score == field.judged(X) > before


def test_where_nothing_was_learned_or_rows_are_many_nothing_moves(known):
    learned, side, placed = known["binary"]
    none = replace(placed, codes=placed.codes[:0], inside=placed.inside[:0], labelled=side.kind.no_rows())
    assert moved(none, replace(learned, doubt="no signal"), side, seed=0, steps=5) == (none, {})
    many = placed.take(np.arange(placement.LARGE + 1) % len(placed.codes))  # a drawn cohort, which nobody judges
    assert moved(many, learned, side, seed=0, steps=5) == (many, {})


@pytest.mark.parametrize(
    "column",
    [
        Column("x", "integer", low=0, high=100_000),
        Column("x", "integer", low=-3, high=40),
        Column("x", "continuous", low=-1.5, high=77.3),
        Column("x", "continuous", low=0, high=400, decimals=1),
        Column("x", "continuous", low=10, high=60, step=0.5, missing="indicator"),
        Column("x", "continuous", low=0, high=1e6, spacing="log"),
        Column("x", "continuous", low=0, high=1e6, decimals=2, spacing="log"),
    ],
)
@pytest.mark.parametrize("fine", [64, MICRO])
def test_a_legal_number_is_found_in_its_cell_again(column, fine):
    cells = public_cells(Schema((column,)), fine)[0]
    rng = np.random.default_rng(0)
    codes = rng.integers(cells.size - cells.hole, size=500)
    numbers = cells.numbers(codes, rng.random(500))
    found, inside = cells.located(numbers)
    assert ((inside >= 0) & (inside < 1)).all()
    assert np.allclose(cells.numbers(found, inside), numbers, rtol=1e-12)
    if column.decimals is not None or column.step is not None or column.kind == "integer":
        assert np.array_equal(found, codes)


# -- what it costs ----------------------------------------------------------------------------------------------------


def test_the_ledger_and_the_statement_are_those_of_chosen_rows():
    cohort = cohort_of("binary")
    runs = [
        dc.condense(cohort, ipc=8, epsilon=4.0, threads=1, holdout=0.0, placement=how, **more)
        for how, more in (("chosen", {}), ("zero-order", {"moves": 3}), ("zero-order", {"moves": 60}))
    ]
    chosen, few, many = (run.privacy for run in runs)
    asked = [
        [
            {name: event[name] for name in ("kind", "query", "cost", "noise", "picks", "delta")}
            for event in privacy.ledger
        ]
        for privacy in (chosen, few, many)
    ]
    assert asked[0] == asked[1] == asked[2]
    assert (chosen.guarantee, chosen.epsilon, chosen.delta) == (many.guarantee, many.epsilon, many.delta)
    assert many.guarantee == "end-to-end"
    assert chosen.public == many.public
    assert chosen.not_covered == many.not_covered


class Armed:
    """Stands where patients were: any use of it fails the test."""

    def __getattribute__(self, name):
        raise AssertionError(f"patients were touched after the gate was built: {name}")

    __len__ = __iter__ = __getitem__ = __array__ = lambda self, *_: pytest.fail("patients were touched")


@pytest.mark.parametrize("kind", ["binary", "survival"])
def test_no_patient_is_read_after_the_gate(kind, monkeypatch):
    built, fit, cohort = private.open_gate, private.fit_private, cohort_of(kind)
    mined = Cohort(cohort.features, cohort.schema, cohort.outcome)

    def open_and_arm(own, *rest):
        table = built(own, *rest)
        object.__setattr__(own, "features", Armed())
        object.__setattr__(own, "outcome", replace(own.outcome, arrays=Armed()))
        return table

    monkeypatch.setattr(private, "open_gate", open_and_arm)
    monkeypatch.setattr(private, "fit_private", lambda *how: replace(fit(*how), doubt=""))  # rows in any case
    options = PrivateOptions(
        ipc=8, epsilon=4.0, placement="zero-order", moves=5, references="private, students", holdout=0.0
    )
    made = private.condense(mined, prepare(mined.facts, options), Context())[8]
    assert len(made.frame) == 16
    assert made.details.notes["zero_order"]["steps"] == 5
    with pytest.raises(AssertionError, match="touched"):
        _ = mined.features.iloc  # the trap works


# -- again, and elsewhere ---------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_rows_on_any_number_of_threads(known, anything_goes):
    one, _ = move(known["binary"], "private", "students")
    two, _ = move(known["binary"], "private", "students", context=Context(threads=2))
    other, _ = move(known["binary"], "private", "students", seed=1)
    assert same(one, two)
    assert not same(one, other)


def line(columns: int) -> BlackBox:
    weights = np.linspace(-1, 1, columns).astype(np.float32)
    return BlackBox(lambda rows: 1 / (1 + np.exp(-(rows @ weights) / 50)), "probability", columns, "line")


def wave(columns: int) -> BlackBox:
    return BlackBox(lambda rows: 0.5 + np.sin(rows[:, 0] / 30) / 3, "probability", columns, "wave")


@pytest.mark.parametrize(
    ("references", "path"), [(("private",), "structured"), (("line", "wave"), "auto"), (("private", "line"), "auto")]
)
def test_rows_moved_on_ray_are_those_moved_here_to_the_bit(references, path, known, anything_goes):
    learned = known["binary"][0]
    columns = len(
        MovableRows.from_placed(known["binary"][2], *known["binary"][:2], np.random.default_rng(0)).codec.names
    )
    assert learned.informative
    models = {"line": line(columns), "wave": wave(columns), "private": "private"}
    how = {"steps": 4, "path": path}
    here, _ = move(known["binary"], *(models[name] for name in references), **how)
    there, facts = move(
        known["binary"],
        *(models[name] for name in references),
        **how,
        context=Context(cluster=Cluster(address="local", actors=1, start_timeout=600)),
    )
    assert same(here, there)
    assert facts["execution"]["executor"] == "ray"


# -- references -------------------------------------------------------------------------------------------------------


def aim(model: Any, label: Any, weight: float = 1.0) -> ReferenceLoss:
    objective = Composite(lambda f: bce(f, label), label.astype(np.int64), average=False, rho=0.1)
    return ReferenceLoss((model,), objective, RealScores((np.array([0.2]), np.array([0.8])), (5, 5)), weight)


def trees() -> Any:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 4)).astype(np.float32)
    return tree_model(xgboost.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1).fit(rows, rows[:, 0] > rows[:, 1]))


def test_several_references_give_the_weighted_sum_of_their_gradients():
    label, X = np.repeat(np.array([0, 1], np.int8), 5), np.random.default_rng(1).normal(size=(10, 4)).astype(np.float32)
    models, walk, key = (trees(), line(4), wave(4)), MoveSettings(0, 3), seed_key(0)
    widths = widths_of(walk, key, 0, 4)

    def found(*weights: float) -> Any:
        references = tuple(aim(model, label, weight) for model, weight in zip(models, weights, strict=True))
        problem = Problem(references, X, NoiseRule(np.inf))
        with opened(problem.models, "auto", X, widths, Context()) as executors:
            return gradient(problem, walk, X, key, 0, 1, executors)

    parts = [found(*row) for row in np.eye(3)]
    G, loss = found(0.5, 0.2, 0.3)
    assert loss == pytest.approx(0.5 * parts[0][1] + 0.2 * parts[1][1] + 0.3 * parts[2][1])
    assert np.allclose(G, 0.5 * parts[0][0] + 0.2 * parts[1][0] + 0.3 * parts[2][0], atol=1e-6)
    alone = Problem((aim(models[1], label),), X, NoiseRule(np.inf))
    with LocalExecutor(1) as executor:
        executor.open(models[1], "auto", X, widths)
        assert np.allclose(parts[1][0], gradient(alone, walk, X, key, 0, 1, [executor])[0], atol=1e-6)


def test_several_models_are_one_whose_last_column_says_which():
    both, rows = StackedModels((line(3), wave(3))), np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    rows[:, 3] = [0, 1, 0, 1, 1, 0]
    scores = both.scores(rows)
    own = np.ascontiguousarray(rows[:, :3])
    assert np.allclose(scores, np.where(rows[:, 3] == 0, line(3).scores(own), wave(3).scores(own)))
    assert both.n_features == 4


def test_numbers_stay_in_their_box_and_what_may_not_move_keeps_its_bits():
    label, X = np.repeat(np.array([0, 1], np.int8), 5), np.random.default_rng(1).normal(size=(10, 4)).astype(np.float32)
    low, high = X - np.float32(0.2), X + np.float32(0.2)
    low[:, 1] = high[:, 1] = X[:, 1]
    for model in (trees(), line(4)):
        problem = Problem((aim(model, label),), X, NoiseRule(np.inf), (low, high))
        with LocalExecutor(1) as executor:
            executor.open(model, "auto", X, np.ones(4, np.float32))
            state = optimise(problem, MoveSettings(0, 40), validate=lambda X: 0.0, executors=[executor])
        assert (np.clip(state.X, low, high) == state.X).all()
        assert state.X[:, 1].tobytes() == X[:, 1].tobytes()
        assert np.abs(state.X - X).max() > 0.05


def test_the_losses_that_the_paper_lacks_have_the_slopes_of_their_formulas():
    rng = np.random.default_rng(0)
    f, y = rng.normal(size=7), rng.normal(size=7)
    loss, slope = squares(f, y)
    assert loss == pytest.approx(sum((a - b) ** 2 for a, b in zip(f, y, strict=True)) / 14)
    assert slope == pytest.approx(naive.slope(lambda g: squares(np.array(g), y)[0], f), abs=1e-7)
    f, y = rng.normal(size=(5, 3)), np.array([0, 2, 1, 1, 0])
    loss, slope = softmax(f, y)
    chances = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    assert loss == pytest.approx(-np.mean([np.log(chances[i, k]) for i, k in enumerate(y)]))
    by_hand = naive.slope(lambda g: softmax(np.array(g).reshape(5, 3), y)[0], f.ravel())
    assert slope.ravel() == pytest.approx(by_hand, abs=1e-7)


def test_models_from_elsewhere_are_moved_against_and_the_statement_says_so():
    cohort = cohort_of("binary")
    design = dc.design(cohort)
    trained = xgboost.XGBClassifier(n_estimators=5, max_depth=2, n_jobs=1).fit(design, cohort.outcome["label"])
    chain = LogisticRegression(max_iter=500).fit(design.to_numpy() / 100, cohort.outcome["label"])

    def hospital_score(rows):
        return chain.predict_proba(rows / 100)[:, 1]

    made = dc.condense(
        cohort,
        ipc=8,
        epsilon=4.0,
        threads=1,
        holdout=0.0,
        placement="zero-order",
        moves=4,
        references=("private", trained, hospital_score, chain),
    )
    told = made.record["zero_order"]["references"]
    assert told[0] == "private additive model"
    assert told[2:] == ["hospital_score", "LogisticRegression"]
    for words in (made.privacy.public, made.privacy.not_covered):
        assert any("XGBClassifier, hospital_score, LogisticRegression" in line for line in words)
    assert made.privacy.guarantee == "end-to-end"
    assert json.loads(json.dumps(made.record["settings"]))["references"] == [
        "private",
        "XGBClassifier",
        "hospital_score",
        "LogisticRegression",
    ]


# -- refused before a patient is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"placement": "zeroth"}, "placement: must be one of chosen, zero-order. Found zeroth"),
        ({"placement": "zero-order", "references": "privat"}, "references: must be private or students.*'privat'"),
        ({"placement": "zero-order", "references": "private,private"}, "each at most once"),
        ({"placement": "zero-order", "references": ()}, "references: .* Found nothing"),
        ({"references": "students"}, "are for rows that are moved. Found placement 'chosen'.*zero-order"),
        ({"placement": "zero-order", "moves": 0}, "moves: must be in"),
        ({"placement": "zero-order", "path": "quick"}, "path: must be one of auto"),
    ],
)
def test_settings_that_say_nothing_are_refused_by_name(how, says):
    with pytest.raises(SettingsError, match=says):
        PrivateOptions(**how)


def test_what_cannot_be_moved_against_is_refused_while_the_budget_is_whole(tmp_path):
    def breaks(rows):
        raise ValueError("not today")

    def refused(error: Any, says: str, cohort: Cohort, *references: Any) -> None:
        with pytest.raises(error, match=says):
            dc.condense(cohort, placement="zero-order", references=references, out=tmp_path / "run", threads=1)
        assert not list(tmp_path.rglob("ledger*"))

    binary = cohort_of("binary", 60)
    refused(SettingsError, "one score a row", cohort_of("multiclass", 60), "students")
    refused(ModelError, "columns of dc.design", binary, line(3))
    refused(ModelError, "must be a name, a fitted tree model or a callable", binary, 3.0)
    refused(ValueError, "not today", binary, breaks)
    refused(ModelError, "one score per row", binary, lambda rows: rows)
    found = replace(COLUMNS[1], low=None, high=None, decimals=None, domain="private")
    unknown = Schema((COLUMNS[0], found, *COLUMNS[2:], *OUTCOMES["binary"][1]))
    if any(column.unknown for column in unknown.columns):
        names = [column.name for column in unknown.columns]
        blind = Cohort.from_frame(frame_of(60)[names], schema=unknown, target="died")
        refused(SettingsError, "columns that are public", blind, line(9))


def test_the_command_line_takes_the_one_option(call):
    small_frame(600).to_csv("cohort.csv", index=False)
    with open("schema.toml", "w", encoding="utf-8") as out:
        out.write(SMALL_TABLE.to_toml())
    assert SMALL_SCHEMA.columns[0] in SMALL_TABLE.columns
    answer = call(
        "condense",
        "cohort.csv",
        "--schema",
        "schema.toml",
        "--target",
        "died",
        "--ignore",
        "months",
        "--ignore",
        "event",
        "--ipc",
        5,
        "--epsilon",
        8,
        "--placement",
        "zero-order",
        "--moves",
        3,
        "--references",
        "private,students",
        "--threads",
        1,
        "--out",
        "run",
    )
    assert answer.code == 0, answer
    with open("run/internal/run.json", encoding="utf-8") as file:
        record = json.load(file)
    assert record["zero_order"]["steps"] == 3
    assert record["settings"]["placement"] == "zero-order"
