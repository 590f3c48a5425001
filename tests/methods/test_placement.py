"""Condensation as post-processing: the exchange kernel beside its slow twin, and what `place` promises about rows."""

from __future__ import annotations

import ast
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcondense.arrays import Flags, Floats, Index
from distcondense.data.cells import public_cells
from distcondense.data.outcome import Outcome
from distcondense.data.schema import Column, Schema
from distcondense.kernels.exchange import exchange_rows
from distcondense.methods.private import joint, linked, placement
from distcondense.methods.private import students as student_panel
from distcondense.methods.private.joint import Joint, PairTable
from distcondense.methods.private.placement import Encoder, Holes, PlacedRows, place, population, within
from distcondense.methods.private.students import StudentPanel
from distcondense.models.additive import AdditiveModel
from distcondense.outcomes.base import Kind, Labelled
from distcondense.outcomes.binary import Binary, by_chance
from distcondense.outcomes.continuous import Continuous
from distcondense.outcomes.multiclass import Multiclass
from distcondense.outcomes.private_side import PrivateFit, PrivateSide
from distcondense.outcomes.survival import FollowUp, PiecewiseExponential, Survival
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
    "continuous": Continuous(("cost",), Column("cost", "continuous", low=0, high=200, decimals=1)),
}
CLASSES = pytest.mark.parametrize("name", ["binary", "multiclass"])
EVERY_KIND = pytest.mark.parametrize("name", KINDS)
SHARES = {
    "binary": (0.69, 0.31),
    "survival": (0.69, 0.31),
    "multiclass": (0.6, 0.3, 0.1),
    "continuous": (0.2, 0.2, 0.2, 0.2, 0.2),
}
ARRAYS = {"binary": {"label"}, "survival": {"label", "time"}, "multiclass": {"label"}, "continuous": {"value"}}


def side_of(name: str) -> PrivateSide:
    side = KINDS[name].private_side()
    assert side is not None
    return side


def learned(*columns: Column, name: str = "binary", seed: int = 0, **other: Any) -> PrivateFit:
    """What a gate might have answered about these columns, without any gate."""
    rng, side = np.random.default_rng(seed), side_of(name)
    scores = side.objective.scores
    cells = public_cells(Schema(columns or COLUMNS), fine=16)

    def table(size: int, ordered: bool) -> Floats:
        one = np.cumsum(rng.normal(0, 0.5, size)) if ordered else rng.normal(0, 1, size)
        return one - one.mean()

    tables = tuple(np.stack([table(c.size, c.ordered) for _ in range(scores)]) for c in cells)
    marginals, shares = [], np.array(SHARES[name])
    for each in tables:
        base = rng.dirichlet(np.full(each.shape[1], 2.0))
        lean = each if scores > 1 else np.stack([share * each[0] for share in np.linspace(0, 1, len(shares))])
        groups = base * np.exp(lean)
        marginals.append(groups / groups.sum(1, keepdims=True))
    objective, facts = side.objective, {}
    if name == "survival":
        objective = PiecewiseExponential((15.0, 30.0, 45.0), HORIZON, hazard=(0.004, 0.006, 0.005, 0.003))
        facts = ends_with(objective, float(np.asarray(other.get("shares", shares))[1]))
    intercept, tables = (np.array([0.5, 0.0, -0.5]), tables) if scores > 1 else (-0.5, tuple(t[0] for t in tables))
    if name == "continuous":
        facts, intercept, tables = {"spread": 0.5, "unit": 20.0}, 90.0, tuple(20 * t for t in tables)
    model = AdditiveModel(cells, intercept, tables, side.link)
    coarse = [np.arange(cell.size) * min(cell.size, 6) // cell.size for cell in cells]
    whole = Joint.independent(marginals, np.array(other.get("shares", shares)), coarse)
    if len(cells) > 2:  # the first and the third belong together
        apart = whole.expected(0, 2).sum(0) * np.exp(rng.normal(0, 1, (coarse[0].max() + 1, coarse[2].max() + 1)))
        whole = whole.with_forest({(0, 2): PairTable.whole(apart / apart.sum())})
    known: dict[str, Any] = {"rows": 3217.4, "shares": shares, "evidence": 50.0, "facts": facts, "joint": whole}
    return PrivateFit(model, tuple(range(len(cells))), tuple(marginals), objective=objective, **known | other)


def ends_with(objective: PiecewiseExponential, events: float) -> dict[str, Any]:
    """A private curve under which this share of all rows has the event, and the others leave."""
    dying, leaving = np.array([0.004, 0.007, 0.006, 0.004]), np.array([0.001, 0.01, 0.02, 0.03])
    low, high = 1e-3, 1e3
    for _ in range(60):
        middle = np.sqrt(low * high)
        seen = FollowUp(objective.edges, middle * dying, leaving).ends(np.zeros(1))[0].sum()
        low, high = (middle, high) if seen < events else (low, middle)
    return {"dying": tuple(middle * dying), "leaving": tuple(leaving)}


def placed_of(known: PrivateFit, ipc: int, *, name: str = "binary", seed: int = 5, threads: int = 1) -> PlacedRows:
    return place(known, side_of(name), ipc, seed=seed, threads=threads)


def same(a: PlacedRows, b: PlacedRows) -> bool:
    return all(np.array_equal(u, v) if u is not None else v is None for u, v in zip(parts(a), parts(b), strict=True))


def parts(placed: PlacedRows) -> tuple[Any, ...]:
    labelled = placed.labelled
    return placed.codes, placed.inside, labelled.weight, labelled.soft, *labelled.outcome.arrays.values()


# ---- the kernel and its slow twin


def random_panel(rng: np.random.Generator, c: int, r: int, widths: list[int]) -> tuple[Any, ...]:
    """Kernels of c candidates and r others in as many students' eyes, with labels and truths of theirs."""
    Q, S = len(widths), sum(widths)
    here, there = rng.normal(size=(Q, c, 3)), rng.normal(size=(Q, r, 3))
    among, beyond = (
        np.exp(-((one[:, :, None] - here[:, None]) ** 2).sum(3) / 3).astype(np.float32) for one in (here, there)
    )
    among[0], beyond[0] = here[0] @ here[0].T / 3, there[0] @ here[0].T / 3  # one of them linear
    truth = rng.normal(size=(r, S))
    truth -= truth.mean(0)
    truth /= np.linalg.norm(truth, axis=0)
    return (
        among,
        beyond,
        rng.normal(size=(c, S)).astype(np.float32),
        np.asfortranarray(truth.astype(np.float32)),
        np.cumsum([0, *widths]).astype(np.int64),
        rng.uniform(0.5, 1.5, S),
        among.mean(axis=2).astype(np.float32),
        rng.choice([0.0, 0.5], Q),
        0.25,
    )


def compact(panel: tuple[Any, ...]) -> tuple[Any, ...]:
    """A panel as the kernel takes it."""
    among, beyond, labels, truth, ends, *others = panel
    return (among, *student_panel.told(beyond, truth, ends), labels, ends, *others)


WIDTHS = st.lists(st.integers(1, 2), min_size=1, max_size=3)
WIDTHS = WIDTHS.filter(lambda widths: sum(widths) > 1)  # truths of one column have a layout, and a kernel, of their own


@settings(max_examples=12)
@given(seed=st.integers(0, 2**32), m=st.integers(1, 6), widths=WIDTHS)
def test_exchanged_rows_are_those_that_the_slow_twin_exchanges(seed: int, m: int, widths: list[int]) -> None:
    rng = np.random.default_rng(seed)
    c, r = m + 5, 7
    panel = random_panel(rng, c, r, widths)
    start = rng.permutation(c)[:m].astype(np.int64)
    proposals = [(int(place), int(one)) for place, one in zip(rng.integers(m, size=15), rng.integers(c, size=15))]  # noqa: B905
    slow, made, tried = naive.exchange_rows(panel, start, proposals, 1e-4)
    fast = start.copy()
    places, candidates = np.array(tried, np.int64).reshape(-1, 2).T.copy()
    assert exchange_rows(*compact(panel), fast, places, candidates) == made
    np.testing.assert_array_equal(fast, slow)
    assert len(set(fast)) == m  # nobody twice
    assert made == 0 or naive.students_score(panel, fast) > naive.students_score(panel, start)


def test_many_exchanges_do_not_add_up_their_rounding() -> None:
    """Several hundred proposals, solved anew after some: the set is better, and as good as the kernel believed."""
    rng = np.random.default_rng(0)
    panel = random_panel(rng, 400, 60, [1, 1, 2])
    start = np.arange(30, dtype=np.int64)
    chosen = start.copy()
    made = exchange_rows(*compact(panel), chosen, rng.integers(30, size=600), rng.integers(400, size=600))
    assert made > 40
    assert naive.students_score(panel, chosen) > naive.students_score(panel, start) + 0.3
    again = chosen.copy()  # what was refused before the last exchange may be taken now, what was made is not undone
    exchange_rows(*compact(panel), again, rng.integers(30, size=200), rng.integers(400, size=200))
    assert naive.students_score(panel, again) >= naive.students_score(panel, chosen) - 1e-4


def test_exchanges_stay_within_strata_and_teach_more() -> None:
    known, side, rng = learned(), side_of("binary"), np.random.default_rng(0)
    codes, inside = population(known, 600, rng)
    encode, margin = Encoder(known.model.cells), known.model.margin(codes)
    labelled = side.label(known, codes[:300], placement._even(300, rng), 40)
    hard, soft = side.student_labels(labelled)
    parts = placement._parts(known, codes, 1.0)
    panel = StudentPanel.from_candidates(
        encode(codes[:300], inside[:300]),
        parts[:300],
        hard,
        soft,
        encode(codes[300:], inside[300:]),
        parts[300:],
        margin[300:, None],
    )
    stratum = side.strata(labelled)
    start = placement._stratified(stratum, {0: 20, 1: 20}, placement.Holes(np.zeros_like(stratum), np.ones(1)), rng)
    better = panel.improved(start, stratum, 300, np.random.default_rng(1))
    np.testing.assert_array_equal(stratum[better], stratum[start])
    assert len(set(better)) == 40
    assert not np.array_equal(better, start)
    near = np.array(student_panel.NEAR)
    given_ = (
        panel.among,
        panel.beyond,
        panel.labels,
        panel.truth,
        panel.ends,
        panel.weights,
        panel.mean,
        near,
        student_panel.RIDGE,
    )
    assert naive.students_score(given_, better) > naive.students_score(given_, start) + 0.02


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


def test_parts_that_are_made_at_the_same_time_do_not_share_their_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are held back until each has drawn its rows: what they draw next must be their own."""
    monkeypatch.setattr(placement, "STEPS_AT", 6)
    alone, together, improved = placed_of(learned(), 6), threading.Barrier(2, timeout=60), StudentPanel.improved

    def held_back(*given_: Any) -> Any:
        together.wait()
        return improved(*given_)

    monkeypatch.setattr(StudentPanel, "improved", held_back)
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
def test_a_set_has_its_rows_and_all_weights_add_up_to_the_noisy_number_of_rows(name: str, ipc: int) -> None:
    known, groups = learned(name=name), len(SHARES[name])
    placed = placed_of(known, ipc, name=name, seed=2)
    outcome, weight = placed.labelled.outcome, placed.labelled.weight
    assert placed.codes.shape == placed.inside.shape == (groups * ipc, len(COLUMNS))
    assert weight is not None
    assert weight.sum() == pytest.approx(known.rows)
    assert (weight > 0).all()
    assert set(outcome.arrays) == ARRAYS[name]
    assert (placed.labelled.soft is None) is (name == "survival")


@CLASSES
@pytest.mark.parametrize("ipc", [1, 7, 40])
def test_each_class_has_its_rows_and_by_weight_its_private_prevalence(name: str, ipc: int) -> None:
    known = learned(name=name)
    labelled = placed_of(known, ipc, name=name, seed=2).labelled
    label = labelled.outcome["label"]
    assert np.bincount(label).tolist() == [ipc] * len(SHARES[name])
    shares = [np.average(label == k, weights=labelled.weight) for k in range(len(SHARES[name]))]
    assert shares == pytest.approx(SHARES[name])


def test_weights_bring_the_mean_risk_nearer_to_the_prevalence_and_no_row_counts_for_many_others() -> None:
    known = learned()
    labelled = placed_of(known, 40, seed=2).labelled
    label, risk, weight = labelled.outcome["label"], labelled.soft, labelled.weight
    assert risk is not None
    assert weight is not None
    plain = np.where(label == 1, SHARES["binary"][1], SHARES["binary"][0])
    assert abs(np.average(risk, weights=weight) - 0.31) <= abs(np.average(risk, weights=plain) - 0.31) + 1e-9
    for value in (0, 1):
        assert weight[label == value].max() <= 5.0001 * weight[label == value].min()


def test_the_plain_label_says_on_which_side_of_the_prevalence_the_risk_lies() -> None:
    known = learned()
    labelled = placed_of(known, 40, seed=2).labelled
    assert labelled.soft is not None
    np.testing.assert_array_equal(labelled.outcome["label"], (labelled.soft > SHARES["binary"][1]).astype(int))


def test_the_plain_class_is_the_one_whose_probability_is_highest_above_its_prevalence() -> None:
    known, side = learned(name="multiclass"), side_of("multiclass")
    codes, _ = population(known, 600, np.random.default_rng(0))
    labelled = side.label(known, codes, np.full(600, 0.5), 120)
    assert labelled.soft is not None
    above = np.log(labelled.soft) - np.log(SHARES["multiclass"])
    assert (labelled.outcome["label"] == above.argmax(1)).mean() > 0.8  # a class without candidates is moved ahead
    assert np.bincount(labelled.outcome["label"], minlength=3).min() >= 0.3 / 3 * 600 - 1


@CLASSES
def test_a_label_is_the_more_chance_the_more_rows_there_are(name: str) -> None:
    chances = [by_chance(rows) for rows in (1, 200, 2000, 4000, 12_000, 20_000, 10**6)]
    assert chances == sorted(chances)
    assert (chances[:3], chances[-2:]) == ([0.0] * 3, [1.0, 1.0])
    known, side = learned(name=name), side_of(name)
    codes, _ = population(known, 6000, np.random.default_rng(0))
    margin = known.model.margin(codes)
    drawn = codes[placement._drawn(placement._class_weight(side.probabilities(margin)), 6000, np.random.default_rng(1))]
    at = placement._even(6000, np.random.default_rng(2))
    sure, some, most = (side.label(known, drawn, at, rows).outcome["label"] for rows in (200, 5000, 10**6))
    assert 0 < (sure != some).mean() < (sure != most).mean()
    # as patients' labels: among as many of each class, in proportion to probability over prevalence
    soft = (
        side.expected(known.model.margin(drawn))
        if name == "multiclass"
        else side.probabilities(known.model.margin(drawn))
    )
    likely = soft / np.array(SHARES[name])
    likely /= likely.sum(1, keepdims=True)
    share = np.array([(most == k).mean() for k in range(len(SHARES[name]))])
    np.testing.assert_allclose(share, likely.mean(0), atol=0.03)


def test_a_number_is_what_is_expected_and_some_of_the_residuals() -> None:
    known = learned(name="continuous")
    labelled = placed_of(known, 20, name="continuous", seed=3).labelled
    value, soft = labelled.outcome["value"], labelled.soft
    assert soft is not None
    apart = value - soft
    assert ((value >= 0) & (value <= 200)).all()
    np.testing.assert_allclose(value, np.round(value, 1))
    assert 0 < apart.std() < 0.5 * 20.0 * 0.5  # a part of the private residual spread
    side = side_of("continuous")
    codes, _ = population(known, 4000, np.random.default_rng(0))
    spreads = [
        np.std(
            side.label(known, codes, placement._even(4000, np.random.default_rng(1)), rows).outcome["value"]
            - side.expected(known.model.margin(codes))
        )
        for rows in (100, 10**6)
    ]
    assert spreads[0] < spreads[1] <= 10.5


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


# ---- whole rows


@EVERY_KIND
@pytest.mark.parametrize("ipc", [8, 700])
def test_every_row_is_one_of_the_drawn_population(name: str, ipc: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No swap breaks a row: what is released was drawn as a whole, and its place in each cell with it."""
    drawn: list[tuple[Index, Floats]] = []

    def kept(*given_: Any) -> tuple[Index, Floats]:
        drawn.append(population(*given_))
        return drawn[-1]

    monkeypatch.setattr(placement, "population", kept)
    placed = placed_of(learned(name=name), ipc, name=name)
    ((codes, inside),) = drawn
    there = {(*row, *at) for row, at in zip(codes.tolist(), inside.tolist(), strict=True)}
    assert {(*row, *at) for row, at in zip(placed.codes.tolist(), placed.inside.tolist(), strict=True)} <= there


@EVERY_KIND
def test_a_large_set_is_drawn_and_nobody_is_taught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: Any, **__: Any) -> Any:
        raise AssertionError("this must not be called")

    monkeypatch.setattr(StudentPanel, "from_candidates", explode)
    known, ipc = learned(name=name), 2500
    placed = placed_of(known, ipc, name=name)
    assert len(placed.codes) == ipc * len(SHARES[name]) > placement.LARGE
    weight = placed.labelled.weight
    assert weight is not None
    assert weight.sum() == pytest.approx(known.rows)
    if name in ("survival", "continuous"):  # as the population has them
        for j, p in enumerate(known.overall):
            np.testing.assert_allclose(
                np.bincount(placed.codes[:, j], minlength=len(p)) / len(placed.codes), p, atol=0.05
            )


@EVERY_KIND
@pytest.mark.parametrize("ipc", [6, 700])
def test_rows_obey_the_rules_they_are_drawn_under(name: str, ipc: int) -> None:
    known = learned(name=name)

    def legal(frame: pd.DataFrame) -> Flags:
        return ((frame["smoker"] == 1) | (frame["age"] < 40)).to_numpy(np.bool_)

    assert not legal(place(known, side_of(name), ipc, seed=5).features(known.model.cells)).all()
    placed = place(known, side_of(name), ipc, seed=5, legal=legal)
    assert len(placed.codes) == ipc * len(SHARES[name])
    assert legal(placed.features(known.model.cells)).all()


def test_where_no_row_obeys_rows_are_drawn_all_the_same() -> None:
    """They will be repaired."""
    known = learned()
    placed = place(known, side_of("binary"), 5, seed=1, legal=lambda frame: np.zeros(len(frame), np.bool_))
    assert len(placed.codes) == 10


@pytest.mark.parametrize("column", [COLUMNS[0], COLUMNS[1], COLUMNS[4]], ids=lambda column: column.name)
def test_numbers_lie_in_their_cells_as_a_line_between_the_neighbours_densities_has_it(column: Column) -> None:
    """The distribution function of a density 1 + t·(2x − 1) at the place of each uniform is that uniform."""
    (cells,) = public_cells(Schema((column,)), fine=16)
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.full(cells.size, 0.7))
    share[3] = share[5] = 0.0
    u = np.append(np.linspace(0, 1, 200, endpoint=False), 1 - 1e-16)
    edges = np.array([column.low, *cells.cuts, column.high], np.float64)
    density = share[: cells.size - cells.hole] / np.diff(edges)
    between = [density[0], *((density[1:] + density[:-1]) / 2), density[-1]]
    for code in range(cells.size):
        found = within(cells, share, np.full(len(u), code), u)
        assert ((found >= 0) & (found < 1)).all()
        assert (np.diff(found) >= 0).all()
        if code < cells.size - cells.hole and between[code] + between[code + 1] > 0:
            t = (between[code + 1] - between[code]) / (between[code] + between[code + 1])
            np.testing.assert_allclose(found + t * (found**2 - found), u, atol=1e-9)


def test_a_category_has_no_place_in_its_cell() -> None:
    (cells,) = public_cells(Schema((COLUMNS[3],)))
    u = np.random.default_rng(0).random(50)
    np.testing.assert_array_equal(within(cells, np.full(cells.size, 1 / cells.size), np.zeros(50, np.int64), u), u)


# ---- survival


@pytest.mark.parametrize("ipc", [7, 60, 700])
@pytest.mark.parametrize("share", [0.05, 0.31, 0.9])
def test_survival_rows_have_the_private_event_share_without_weights_and_times_within_follow_up(
    ipc: int, share: float
) -> None:
    known = learned(name="survival", shares=np.array([1 - share, share]))
    labelled = placed_of(known, ipc, name="survival", seed=1).labelled
    time, weight = labelled.outcome["time"], labelled.weight
    assert labelled.outcome["label"].mean() == pytest.approx(share, abs=max(0.04, 1 / ipc))
    assert weight is not None
    assert np.ptp(weight) == 0
    assert (time > 0).all()
    assert (time <= HORIZON).all()


def kaplan_meier(time: Floats, event: Index, at: Floats) -> list[float]:
    """The share free of the event at each time, row by row."""
    out = []
    for when in at:
        alive = 1.0
        for t in sorted({float(t) for t, e in zip(time, event, strict=True) if e and t <= when}):
            alive *= 1 - float((event[time == t]).sum()) / float((time >= t).sum())
        out.append(alive)
    return out


def test_an_unweighted_survival_curve_is_the_model_s_own() -> None:
    known = learned(name="survival")
    labelled = placed_of(known, 100, name="survival", seed=1).labelled
    codes, _ = population(known, 5000, np.random.default_rng(3))
    margin = known.model.margin(codes)
    curve = FollowUp.calibrated(known, margin)
    at = np.linspace(3, HORIZON - 1, 20)
    assert isinstance(known.objective, PiecewiseExponential)
    reached = np.interp(at, curve.edges, np.append(0.0, np.cumsum(curve.hazard * np.diff(curve.edges))))
    own = np.exp(-np.exp(margin)[:, None] * reached).mean(0)
    found = kaplan_meier(labelled.outcome["time"], labelled.outcome["label"], at)
    assert own[-1] < 0.8
    np.testing.assert_allclose(found, own, atol=0.06)


# ---- one column, no answer


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
    assert set(labelled.outcome.arrays) == ARRAYS[name]
    assert (labelled.soft is None) is (name == "survival")
    KINDS[name].write(frame, labelled)  # a table without rows has all its columns
    assert {*KINDS[name].names, *KINDS[name].own_columns()} <= set(frame)


# ---- the choice among candidates


@EVERY_KIND
def test_a_larger_set_is_made_of_parts_that_are_chosen_each_by_itself(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "STEPS_AT", 20)
    sizes: list[int] = []
    improved = StudentPanel.improved

    def counted(panel: StudentPanel, start: Index, *given_: Any) -> Any:
        sizes.append(len(start))
        return improved(panel, start, *given_)

    monkeypatch.setattr(StudentPanel, "improved", counted)
    groups = len(SHARES[name])
    once = placed_of(learned(name=name), 30, name=name)
    assert len(once.codes) == 30 * groups == sum(sizes)
    assert len(sizes) == placement.number_of_parts(30 * groups)
    assert max(sizes) < 40
    if name in ("binary", "multiclass"):
        assert set(np.bincount(once.labelled.outcome["label"])) == {30}
    assert same(once, placed_of(learned(name=name), 30, name=name, threads=3))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=60),
    st.integers(1, 8),
    st.integers(1, 50),
    st.integers(0, 9),
)
def test_candidates_are_dealt_out_once_and_every_part_has_what_it_is_to_take(
    drawn: list[tuple[int, int]], parts: int, rows: int, seed: int
) -> None:
    stratum, which = (np.array(one) for one in zip(*drawn, strict=True))
    quotas = placement.quotas_of(stratum, rows, balanced=False)
    dealt = placement.dealt(stratum, quotas, Holes(which, np.full(16, 1 / 16)), parts, np.random.default_rng(seed))
    assert len(dealt) <= parts
    seen = np.concatenate([here for here, _ in dealt])
    assert len(set(seen.tolist())) == len(seen)
    for value, count in quotas.items():
        assert sum(own.get(value, 0) for _, own in dealt) == count
    for here, own in dealt:
        assert set(own) <= set(stratum[here].tolist())
        assert all(count > 0 for count in own.values())
        assert abs(len(here) - len(stratum) / parts) < 1


# ---- survival: two ends of follow-up


def curve_of(known: PrivateFit) -> tuple[FollowUp, Index]:
    pool, _ = population(known, 500, np.random.default_rng(0))
    return FollowUp.calibrated(known, known.model.margin(pool)), pool


def test_rows_of_any_risks_end_together_as_the_private_curve_has_it() -> None:
    known = learned(name="survival")
    curve, pool = curve_of(known)
    margin = known.model.margin(pool)
    seen, left = curve.ends(margin)
    np.testing.assert_allclose(seen.sum(1) + left.sum(1), 1.0)
    assert seen.sum(1).mean() == pytest.approx(known.shares[1], abs=0.01)
    assert seen.sum(1)[margin.argmax()] > seen.sum(1)[margin.argmin()]
    reached, wanted = (np.cumsum(one.hazard * np.diff(one.edges)) for one in (curve, FollowUp.population(known)))
    np.testing.assert_allclose(np.exp(-np.exp(margin)[:, None] * reached).mean(0), np.exp(-wanted), atol=1e-3)


def test_the_times_of_a_set_are_quantiles_of_the_private_curve_in_their_order() -> None:
    known, side = learned(name="survival"), side_of("survival")
    curve = FollowUp.population(known)
    rng = np.random.default_rng(0)
    label, time = (rng.random(400) < 0.31).astype(np.int8), rng.uniform(1, HORIZON, 400)
    outcome = Outcome(KINDS["survival"], {"label": label, "time": time})
    kept = side.weighted(known, Labelled(outcome)).outcome
    assert (kept["label"] == label).all()
    for status, mass in zip((1, 0), curve.ends(np.zeros(1)), strict=True):
        there = label == status
        assert (np.diff(kept["time"][there][np.argsort(time[there])]) >= 0).all()
        reached = np.append(0.0, np.cumsum(mass[0])[: len(curve.edges) - 1]) / mass.sum()
        for share, edge in zip(reached, curve.edges, strict=True):
            assert (kept["time"][there] <= edge - 1e-9).mean() == pytest.approx(
                share, abs=1.01 / there.sum()
            ) or edge == HORIZON


def test_the_ends_of_follow_up_are_those_of_many_small_steps() -> None:
    """Exact formulas against 60,000 steps of Euler's method, two margins."""
    curve, margin = curve_of(learned(name="survival"))[0], np.array([-1.0, 0.7])
    seen, left = curve.ends(margin)
    steps = 15_000
    for row, m in enumerate(margin):
        alive = 1.0
        for k in range(4):
            die, leave = curve.hazard[k] * np.exp(m), curve.leaving[k]
            share = alive * np.cumprod(np.full(steps, 1 - (die + leave) * 15.0 / steps))
            at_risk = np.concatenate([[alive], share[:-1]]).sum() * 15.0 / steps
            assert seen[row, k] == pytest.approx(die * at_risk, rel=1e-3)
            assert left[row, k] == pytest.approx(leave * at_risk, rel=1e-3)
            alive = float(share[-1])
        assert left[row, 4] == pytest.approx(alive, rel=1e-3)


def test_a_time_is_where_its_share_of_the_mass_is_reached() -> None:
    curve = FollowUp(np.array([0.0, 10.0, 30.0, 60.0]), np.ones(3), np.ones(3))
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
    "distcondense.data.outcome": {"Outcome"},
    "distcondense.data.schema": None,
    "distcondense.errors": None,
    "distcondense.kernels.exchange": None,
    "distcondense.data.relations": {"unit_of"},
    "distcondense.methods.private.linked": None,
    "distcondense.methods.private.plan": {"PAIRED", "PAIR_NOISE"},
    "distcondense.methods.private.students": None,
    "distcondense.outcomes.base": {"Labelled"},
    "distcondense.outcomes.private_side": {"Judge", "PrivateFit", "PrivateSide", "shared"},
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
    for module in (placement, student_panel, linked):
        assert out_of_bounds(Path(module.__file__).read_text()) == []
    # the joint model asks its questions through a gate, and knows nothing else that could hold a patient
    assert out_of_bounds(Path(joint.__file__).read_text()) == ["distcondense.privacy.gate.PrivateTable"]


@pytest.mark.parametrize(
    "line",
    [
        "from distcondense.data.cohort import Cohort",
        "from distcondense import cohort",
        "import distcondense.data.cohort as c",
        "def f():\n    from distcondense.privacy.gate import PrivateTable",
        "from ..cohort import Cohort",
        "from distcondense.data.codec import Cohort",
        "__import__('distcondense.data.cohort')",
    ],
)
def test_the_import_check_would_notice_a_cohort(line: str) -> None:
    assert out_of_bounds(line) != []


def test_no_answer_is_a_property_of_what_was_learned_alone() -> None:
    known = learned()
    assert len(placed_of(known, 3).codes) == 6
    assert len(placed_of(replace(known, doubt="in doubt"), 3).codes) == 0
