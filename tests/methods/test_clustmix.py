"""clustmix as published against 3A by hand; its variant with a theorem; accounts, kills, and broken builds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd
import pytest
from dp_accounting.pld import PLDAccountant

import distcondense as dc
from distcondense.data.cohort import Cohort
from distcondense.data.persons import HoldoutSplit, Stratified
from distcondense.data.schema import Column, Schema
from distcondense.errors import BudgetError, SchemaError, SettingsError
from distcondense.evaluation.audit import stats as st
from distcondense.methods.base import method_named
from distcondense.methods.clustmix import paper, theorem
from distcondense.methods.clustmix.accounting import delta_of, least_size, sigma_of
from distcondense.methods.clustmix.kip import Kip, adapted, centred, loss_and_gradient
from distcondense.methods.clustmix.mixture import assigned, clusters
from distcondense.methods.clustmix.ntk import BIAS, kernel_and_slopes
from distcondense.methods.clustmix.options import ClustMixOptions
from distcondense.methods.clustmix.units import Units
from distcondense.outcomes.base import WEIGHT
from distcondense.privacy import noise
from distcondense.privacy import table_rows as behind
from distcondense.privacy.curves import gaussian_epsilon, gaussian_mu
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.odometer import Odometer
from distcondense.privacy.verify import verify
from distcondense.runs.result import released_order
from tests import naive
from tests.conftest import SMALL_SCHEMA, small_frame
from tests.shell import Call

pytestmark = pytest.mark.filterwarnings("ignore:.*as-published:distcondense.errors.DistcondenseWarning")

DECLARED = Schema((*SMALL_SCHEMA.columns, Column("died", "binary", categories=(0, 1))))
QUICK = {"method": "clustmix", "threads": 1, "adapt_steps": 3, "ipc": 6}
THEOREM = {**QUICK, "variant": "theorem", "parts": 4}


def table(rows: int = 600, seed: int = 0, persons: int = 0) -> Cohort:
    frame = small_frame(rows, seed).drop(columns=["months", "event"])
    how = {}
    if persons:
        frame["who"] = [f"p{i % persons}" for i in range(rows)]
        how = {"person_id": "who"}
    return Cohort.from_frame(frame, target="died", schema=DECLARED, **how)


def several(rows: int = 600) -> Cohort:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, rows)
    frame = pd.DataFrame({"a": rng.normal(y, 1).clip(-5, 8), "b": rng.choice(["u", "v"], rows), "y": y})
    columns = (
        Column("a", "continuous", low=-5, high=8),
        Column("b", "categorical", categories=("u", "v", "w")),
        Column("y", "categorical", categories=(0, 1, 2)),
    )
    return Cohort.from_frame(frame, target="y", schema=Schema(columns))


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise: what is left is arithmetic."""
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: sums)


# -- approximate ------------------------------------------------------------------------------------------------------


def test_the_assignment_is_the_cheapest_of_all_that_leave_no_cluster_too_small() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        cost, least = rng.normal(size=(6, 3)) * [1, 1, 3], int(rng.integers(0, 3))
        found, best = assigned(cost, least), naive.cheapest_assignment(cost.tolist(), least)
        assert np.bincount(found, minlength=3).min() >= least
        assert cost[np.arange(6), found].sum() == pytest.approx(sum(cost[i][k] for i, k in enumerate(best)))


def test_clusters_are_large_enough_and_find_groups_that_are_there() -> None:
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.normal(at, 0.02, (30, 2)) for at in (0.1, 0.5, 0.9)])
    of = clusters(rows, 3, 20, rng)
    assert sorted(np.bincount(of).tolist()) == [30, 30, 30]
    assert all(len(set(of[k * 30 : k * 30 + 30].tolist())) == 1 for k in range(3))
    uneven = clusters(rows[:65], 3, 20, rng)  # five rows of the last group: it must take others
    assert np.bincount(uneven).min() >= 20


def test_slices_are_cut_at_rows_own_values_in_one_column() -> None:
    rng = np.random.default_rng(2)
    rows = np.stack([rng.integers(0, 2, 200), rng.random(200)], axis=1)
    part = paper.slices(rows, 4, rng)
    assert set(part) == {0, 1, 2, 3}
    edges = [rows[part == k, 1].min() for k in range(4)]
    assert edges == sorted(edges)
    assert all(rows[part == k, 1].max() < edges[k + 1] for k in range(3))
    assert set(paper.slices(rows, 1, rng)) == {0}


# -- adapt ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layers", [1, 3])
def test_the_kernel_is_the_recursion_and_its_slopes_are_differences(layers: int) -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    K, by_product, by_length = kernel_and_slopes(X, Y, layers)
    for i in range(4):
        for j in range(5):
            assert K[i, j] == pytest.approx(naive.fully_connected_ntk(X[i], Y[j], layers, BIAS))
            for c in range(3):
                step = np.eye(3)[c] * 1e-6
                slope = [naive.fully_connected_ntk(X[i] + s * step, Y[j], layers, BIAS) for s in (1, -1)]
                due = by_product[i, j] * Y[j, c] + 2 * by_length[i, j] * X[i, c]
                assert (slope[0] - slope[1]) / 2e-6 == pytest.approx(due, abs=1e-6)


def test_the_kernel_is_that_of_a_wide_network() -> None:
    """One hidden layer of 400,000 units: inner product of the gradients by all its weights and biases."""
    rng, width, d = np.random.default_rng(4), 400_000, 3
    x, y = rng.normal(size=d), rng.normal(size=d)
    W, b = rng.normal(size=(width, d)) * math.sqrt(2 / d), rng.normal(size=width) * BIAS * math.sqrt(2)
    # with weights of variance 2 before the ReLU, x·y/d + b² is half the covariance of the units
    hidden = [np.maximum(W @ z + b, 0) for z in (x, y)]
    last = hidden[0] @ hidden[1] / width + BIAS**2
    both = float(((W @ x + b > 0) & (W @ y + b > 0)).mean())
    first = 2 * both * (x @ y / d + BIAS**2)
    assert naive.fully_connected_ntk(x, y, 1, BIAS) == pytest.approx(last + first, rel=0.02)


def test_the_gradient_of_equation_5_is_that_of_its_slow_twin() -> None:
    rng = np.random.default_rng(5)
    X, T = rng.normal(size=(4, 3)), rng.normal(size=(7, 3))
    start, label, target, weight = X + 0.2, np.array([0, 1, 2, 0]), rng.integers(0, 3, 7), rng.random(7)
    how = Kip(alpha=0.3, steps=1, rate=0.1, layers=2, ridge=0.0)

    def slow(at: Any) -> float:
        return naive.kip_loss(at.tolist(), label, start.tolist(), T.tolist(), target, 3, weight, 0.05, 0.3, 2, BIAS)

    loss, gradient = loss_and_gradient(X, centred(label, 3), start, T, centred(target, 3), weight, 0.05, how)
    assert loss == pytest.approx(slow(X))
    for i in range(4):
        for j in range(3):
            step = np.zeros_like(X)
            step[i, j] = 1e-5
            assert (slow(X + step) - slow(X - step)) / 2e-5 == pytest.approx(gradient[i, j], abs=1e-6, rel=1e-5)


def test_alpha_is_the_weight_of_staying() -> None:
    rng = np.random.default_rng(6)
    means, rows, label = rng.random((4, 2)), rng.random((20, 2)), np.array([0, 0, 1, 1])
    moved = {
        alpha: np.abs(adapted(means, label, rows, rng.integers(0, 2, 20), 2, Kip(alpha, 30, 0.02, 1, 1e-3)) - means)
        for alpha in (0.0, 0.999, 1.0)
    }
    assert moved[1.0].max() == 0
    assert moved[0.999].mean() < moved[0.0].mean()


# -- anonymise --------------------------------------------------------------------------------------------------------


def test_equation_7_by_hand_and_the_least_size_is_where_its_noise_fits() -> None:
    for asked in ((1.0, 0.1, 170, 2, 14), (0.1, 0.5, 90, 4, 25), (8.0, 0.05, 60, 10, 7)):
        assert delta_of(*asked) == pytest.approx(naive.eq_7(*asked), rel=1e-6, abs=1e-14)
    least = least_size(1.0, 1e-5, 0.1, 2, 14)
    assert naive.eq_7(1.0, 0.1, least, 2, 14) <= 1e-5 < naive.eq_7(1.0, 0.1, least - 1, 2, 14)
    sigma = sigma_of(least, gaussian_mu(1.0, 1e-5), 2, 14)
    assert sigma <= 0.1
    assert naive.eq_7(1.0, sigma, least, 2, 14) == pytest.approx(1e-5, rel=1e-4)


def test_two_accountants_agree_on_the_stated_epsilon(tmp_path: Path) -> None:
    result = dc.condense(table(), **QUICK, epsilon=2.0, out=tmp_path / "run")
    mu = result.privacy.parameters["mu"]
    theirs = PLDAccountant().compose(dp_accounting.GaussianDpEvent(1 / mu)).get_epsilon(1e-5)
    assert result.privacy.epsilon == pytest.approx(gaussian_epsilon(mu, 1e-5), rel=1e-6)
    assert result.privacy.epsilon == pytest.approx(theirs, rel=1e-3)
    found = verify(tmp_path / "run")
    assert found.holds
    assert len(found.accountants) == 2
    file = tmp_path / "run/release/privacy.json"
    said = json.loads(file.read_text())
    file.write_text(json.dumps({**said, "epsilon": 1.5}))
    assert not verify(tmp_path / "run").pays


def test_a_row_has_the_noise_of_its_cluster_s_size() -> None:
    made = paper.Points(np.full((2, 4000), 0.5), np.array([0, 1]), np.array([100, 400]))
    found = paper.noised(made, 0.5, 2)
    due = [sigma_of(size, 0.5, 2, 4000) for size in (100, 400)]
    assert found.std(axis=1) == pytest.approx(due, rel=0.06)
    assert found.mean(axis=1) == pytest.approx([0.5, 0.5], abs=5 * max(due) / math.sqrt(4000))


# -- as published, whole ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("silent")
def test_a_run_without_its_noise_is_the_algorithm_by_hand() -> None:
    cohort = table(120, seed=3)
    result = dc.condense(cohort, **{**QUICK, "ipc": 2, "adapt_steps": 2}, slices=1, sigma_max=1.0, epsilon=8.0, seed=2)
    split = Stratified(2).split(cohort)
    features, label = cohort.features.iloc[split.train], cohort.outcome.take(split.train)["label"].astype(int)
    stage = features["stage"].map({"I": 0, "II": 1, "III": 2})
    raw = np.stack([features[name].astype(float) for name in ("age", "crp", "smoker")] + [stage.astype(float)], axis=1)
    low, high = raw.min(0), raw.max(0)
    rows = np.array([[(x - a) / (b - a) for x, a, b in zip(row, low, high, strict=True)] for row in raw])
    least = next(k for k in range(1, 999) if naive.eq_7(8.0, 1.0, k, 2, 4) <= 1e-5)
    assert least == result.privacy.parameters["l_min"]
    rng, means, own = np.random.default_rng([2, 0xC105, 0]), [], []
    for c in (0, 1):
        members = rows[label == c]
        of = clusters(members, 2, least, rng)
        for k in (0, 1):
            means.append([sum(column) / len(column) for column in zip(*members[of == k].tolist(), strict=True)])
        own += [c, c]
    target = rng.permutation(np.arange(len(rows)))
    moved = naive.kip(means, own, rows[target], label[target], 2, 0.5, 2, 0.01, 1, 1e-6, BIAS)
    back = np.clip(moved, 0, 1) * (high - low) + low
    order = released_order(len(own))
    frame, back, own = result.frame, back[order], [own[i] for i in order]
    assert frame["died"].tolist() == own
    assert np.abs(frame["age"] - back[:, 0]).max() <= 0.51
    assert np.allclose(frame["crp"], back[:, 1], atol=1e-3)
    assert frame["smoker"].tolist() == np.round(back[:, 2]).astype(int).tolist()
    assert frame["stage"].tolist() == [("I", "II", "III")[round(x)] for x in back[:, 3]]


def test_a_run_is_as_published_and_says_why_it_is_no_theorem(call: Call) -> None:
    small_frame(600).drop(columns=["months", "event"]).to_csv("t.csv", index=False)
    answer = call(
        "condense",
        "t.csv",
        "--target",
        "died",
        "--method",
        "clustmix",
        "--adapt-steps",
        2,
        "--ipc",
        5,
        "--epsilon",
        3,
        "--threads",
        1,
        "--out",
        "run",
    )
    assert answer.code == 0, answer.err
    flat = " ".join((answer.out + answer.err).split())
    for part in ("as-published, ε = 3 at δ = 1e-05: not a theorem about patients", "(not covered by a theorem)"):
        assert part in flat
    why = " ".join(Path("run/release/datasheet.md").read_text(encoding="utf-8").split())
    for part in ("cuts between slices are patients'", "Kernel inducing points then move every point"):
        assert part in why
    assert call("privacy", "verify", "run").code == 0
    assert json.loads(Path("run/internal/run.json").read_text())["settings"]["epsilon_as_published"] == 3.0


def test_the_noise_level_is_chosen_on_training_rows_unless_it_is_said() -> None:
    tried = dc.condense(table(2000), **QUICK, epsilon=8.0)
    assert tried.internal["sigma_max_tried"] == [0.05, 0.1, 0.2, 0.5]
    scores = tried.internal["scores_on_training_rows"]
    assert tried.privacy.parameters["sigma_max"] == tried.internal["sigma_max_tried"][int(np.argmax(scores))]
    assert dc.condense(table(), **QUICK, epsilon=8.0, sigma_max=0.3).internal["sigma_max_tried"] == [0.3]


def test_a_class_that_fills_no_cluster_is_refused_with_the_size_it_needs() -> None:
    with pytest.raises(BudgetError, match=r"clusters that every class can fill.*clusters of at least \d+ rows"):
        dc.condense(table(100), **QUICK, epsilon=0.1, sigma_max=0.05)


def test_several_classes_have_rows_each_in_both_variants() -> None:
    for how in (QUICK, THEOREM):
        result = dc.condense(several(), **how, epsilon=8.0)
        counts = result.frame["y"].value_counts()
        assert set(counts.index) == {0, 1, 2}
        assert counts.max() <= 6
        assert set(result.frame["b"]) <= {"u", "v", "w"}


def test_noise_is_drawn_once_for_a_run_that_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []
    real = paper.noised
    monkeypatch.setattr(paper, "noised", lambda *how: drawn.append(real(*how)) or drawn[-1])
    with monkeypatch.context() as patch:
        patch.setattr(paper, "_frame", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            dc.condense(table(), **QUICK, sigma_max=0.3, epsilon=8.0, out=tmp_path / "run")
    result = dc.condense(table(), **QUICK, sigma_max=0.3, epsilon=8.0, out=tmp_path / "run", resume=True)
    assert len(drawn) == 1
    units = Units.of_rows(table().features.iloc[Stratified(0).split(table()).train], SMALL_SCHEMA)
    assert np.allclose(result.frame["crp"], units.decode(drawn[0])["crp"].iloc[released_order(len(drawn[0]))])
    assert not (tmp_path / "run/internal/checkpoint.npz").exists()


# -- the variant with a theorem ---------------------------------------------------------------------------------------


def opened(cohort: Cohort, options: ClustMixOptions, entropy: int = 1) -> tuple[PrivateTable, theorem.PreparedTheorem]:
    public = theorem.prepare(cohort.facts, options)
    assert public is not None
    return theorem.open_gate(cohort, HoldoutSplit(options.holdout, entropy), public, Ledger()), public


def options_of(**more: Any) -> ClustMixOptions:
    return ClustMixOptions(**{"variant": "theorem", "parts": 3, "holdout": 0.0, "epsilon": 4.0, **more})


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("persons", [0, 25])
def test_sums_by_part_are_those_of_the_slow_twin(persons: int) -> None:
    cohort, options = table(70, persons=persons), options_of(rows_per_person=2)
    table_, public = opened(cohort, options)
    answer = table_.mapped(public.sums, mu=public.budget.mu).reshape(3, 2, -1)
    features = cohort.features
    one_hot = [[float(value == stage) for stage in ("I", "II", "III")] for value in features["stage"]]
    values = [
        [age / 120 - 0.5, crp / 400 - 0.5, smoker - 0.5, *stage]
        for age, crp, smoker, stage in zip(
            features["age"], _middle(features["crp"]), features["smoker"].astype(int), one_hot, strict=True
        )
    ]
    order = dc.data.persons.reading_order(cohort, HoldoutSplit(0.0, 1))
    order = np.arange(70) if order is None else np.argsort(np.asarray(order), kind="stable")
    part, label = HoldoutSplit(0.0, 1).parts(cohort, 3)[order], cohort.outcome["label"].astype(int)[order]
    person = (np.arange(70) if cohort.person is None else cohort.person)[order]
    reach = math.sqrt(0.5**2 + (127.5 / 128 - 0.5) ** 2 + 0.5**2 + 1)  # crp: the middle of its outermost cell
    due = naive.sums_by_part([values[i] for i in order], part, label, person.tolist(), 2, 3, 2, theorem.BETA, reach)
    assert np.allclose(answer, due, atol=1e-6)
    sums, counts = public.sums.read(answer.ravel())
    if not persons:
        assert np.allclose(counts, [[((part == p) & (label == c)).sum() for c in (0, 1)] for p in range(3)], atol=1e-5)
        first = [values[i] for i in range(70) if part[i] == 0 and label[i] == 0]
        assert np.allclose(sums[0, 0], np.sum(first, axis=0), atol=1e-5)


def _middle(values: Any) -> Any:
    """crp as the public cells have it: 128 of equal width between 0 and 400."""
    return (np.minimum(np.floor(np.asarray(values, float) / 400 * 128), 127) + 0.5) / 128 * 400


def test_a_row_s_vector_is_never_longer_than_one_whatever_its_cells() -> None:
    public = theorem.prepare(table().facts, options_of())
    assert public is not None
    rng = np.random.default_rng(7)
    codes = np.stack([rng.integers(0, len(one), 500) for one in public.sums.tables] + [rng.integers(0, 3, 500)], axis=1)
    values = public.sums.values(codes, {"label": rng.integers(0, 2, 500)})
    assert (np.linalg.norm(values, axis=1) <= 1 + 1e-12).all()
    assert np.linalg.norm(values, axis=1).max() > 0.9
    alone = np.stack([public.sums.values(codes[i : i + 1], {"label": np.array([0])})[0] for i in range(9)])
    assert np.array_equal(alone, public.sums.values(codes[:9], {"label": np.zeros(9, int)}))  # to the bit


def test_parts_go_by_the_person_and_nobody_else() -> None:
    cohort = table(60, persons=20)
    part = HoldoutSplit(0.0, 9).parts(cohort, 8)
    assert all(len(set(part[cohort.person == who])) == 1 for who in range(20))
    fewer = cohort.take(np.flatnonzero(cohort.person != 3))
    kept = {name: int(p) for name, p in zip(np.array(cohort.identifiers)[cohort.person], part, strict=True)}
    again = HoldoutSplit(0.0, 9).parts(fewer, 8)
    assert all(kept[cohort.identifiers[who]] == p for who, p in zip(fewer.person, again, strict=True))
    assert not np.array_equal(part, HoldoutSplit(0.0, 10).parts(cohort, 8))
    rows = table(300)
    shuffled = np.random.default_rng(0).permutation(300)
    ours, theirs = HoldoutSplit(0.0, 9).parts(rows, 8), HoldoutSplit(0.0, 9).parts(rows.take(shuffled), 8)
    assert np.array_equal(ours[shuffled], theirs)
    assert set(ours) == set(range(8))


def test_parts_are_joined_until_all_stand_out_from_the_noise() -> None:
    sums = np.array([[10.0, 0.0], [0.0, 12.0], [0.2, 2.4], [-1.0, 0.0]])
    found = theorem.merged(sums, np.array([10.0, 12.0, 2.0, -1.0]), 5.0, 9)
    assert [round(count, 9) for _, count in found] in ([9.0, 14.0], [10.0, 13.0])
    assert np.allclose(sum(some for some, _ in found), sums.sum(axis=0))
    many = theorem.merged(np.ones((16, 2)), np.full(16, 4.0), 10.0, 9)  # 16 rows of 4 parts have twice a part's noise
    assert [count for _, count in many] == [64.0]
    assert len(theorem.merged(sums, np.array([10.0, 12.0, 9.0, 8.0]), 5.0, 2)) == 2


def test_its_guarantee_is_end_to_end_from_one_noisy_answer(tmp_path: Path) -> None:
    result = dc.condense(table(3000, persons=1500), **THEOREM, epsilon=3.0, out=tmp_path / "run")
    said = result.privacy
    assert (said.guarantee, said.unit, len(said.ledger)) == ("end-to-end", "person", 1)
    assert said.epsilon <= 3.0
    theirs = PLDAccountant().compose(dp_accounting.GaussianDpEvent(1 / said.events[0].cost)).get_epsilon(1e-5)
    assert said.epsilon == pytest.approx(theirs, rel=1e-3)
    assert verify(tmp_path / "run").holds
    assert 0 < len(result.frame) <= 12
    assert result.frame[WEIGHT].sum() == pytest.approx(said.parameters["rows_noisy_estimate"], abs=1)
    assert result.internal["settings"]["epsilon_end_to_end"] == 3.0


def test_everything_after_the_gate_is_a_function_of_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables whose noisy answers happen to be the same give the same rows."""
    public = theorem.prepare(table().facts, options_of())
    assert public is not None
    answer = np.abs(np.random.default_rng(0).normal(30, 1, public.sums.size))
    monkeypatch.setattr(PrivateTable, "mapped", lambda *_, **__: answer)
    one, other = (dc.condense(table(seed=s), **{**THEOREM, "parts": 3}, epsilon=4.0) for s in (1, 2))
    assert one.frame.equals(other.frame)
    assert len(one.frame)


def test_a_killed_run_resumes_from_the_answer_that_was_paid_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort, account = table(2000), Odometer.create(tmp_path / "a.jsonl")
    how = {**THEOREM, "epsilon": 3.0, "out": tmp_path / "run", "account": account}
    kept: list[Any] = []
    real = theorem.after
    with monkeypatch.context() as patch:

        def dies(answer: Any, *_: Any) -> None:
            kept.append(answer)
            raise KeyboardInterrupt

        patch.setattr(theorem, "after", dies)
        with pytest.raises(KeyboardInterrupt):
            dc.condense(cohort, **how)
    monkeypatch.setattr(theorem, "after", lambda answer, *more: kept.append(answer) or real(answer, *more))
    result = dc.condense(cohort, **how, resume=True)
    assert np.array_equal(kept[0], kept[1])
    assert len(result.privacy.ledger) == 1
    assert result.privacy.epsilon_with_earlier_runs is None
    assert len(account.read().charges) == 1


def test_accounts_are_charged_what_each_variant_is() -> None:
    cohort, method = table(), method_named("clustmix")
    assert [event.kind for event in method.prepare(cohort.facts, ClustMixOptions()).planned] == ["nonprivate"]
    (event,) = method.prepare(cohort.facts, options_of(parts=5)).planned
    public = theorem.prepare(cohort.facts, options_of(parts=5))
    assert public is not None
    assert (event.kind, event.query, event.cost) == ("gaussian", "mapped", public.budget.mu)
    assert event.cells == 5 * 2 * (6 + 1)
    opened_, _ = opened(cohort, options_of(parts=5))
    opened_.mapped(public.sums, mu=public.budget.mu)
    assert opened_.ledger.events[0].cost == event.cost


def test_too_few_people_give_a_statement_and_no_rows(tmp_path: Path) -> None:
    result = dc.condense(table(60), **THEOREM, epsilon=0.2, out=tmp_path / "run")
    assert len(result.frame) == 0
    assert "NO ANSWER" in result.privacy.paragraph()
    assert verify(tmp_path / "run").holds


def test_rows_that_are_noise_are_no_answer_and_what_is_released_has_the_noise_it_says(tmp_path: Path) -> None:
    """426 rows in 64 parts at ε = 1: each mean would have several ranges of noise. It once was released: AUROC 0.23."""
    result = dc.condense(table(426), **{**THEOREM, "parts": 64}, epsilon=1.0, holdout=0.0)
    assert len(result.frame) == 0
    assert "fewer rows of a class than would stand out from the noise" in result.privacy.paragraph()
    public = theorem.prepare(table().facts, options_of())
    least = public.noise / theorem.SIGMA_MAX
    rng = np.random.default_rng(0)
    for rows in (least / 8, least / 2, 2 * least):
        counts = np.full(16, rows)
        noise = rng.normal(0, public.noise, (16, 400))  # of a sum of a part, in ranges
        found = theorem.merged(noise, counts, least, 99)
        if counts.sum() >= least * 4:
            assert all(np.std(some / many) <= 1.2 * theorem.SIGMA_MAX for some, many in found)


def test_a_schema_that_is_not_public_is_refused_or_named_conditional() -> None:
    inferred = Cohort.from_frame(small_frame(2000).drop(columns=["months", "event"]), target="died")
    with pytest.raises(SchemaError, match="must be declared"):
        dc.condense(inferred, **THEOREM, epsilon=3.0)
    trusted = dc.condense(inferred, **THEOREM, epsilon=3.0, trust_inferred_schema=True)
    assert trusted.privacy.guarantee == "conditional"


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"variant": "both"}, "variant: must be one of paper, theorem"),
        ({"alpha": 1.5}, r"alpha: must be in \[0, 1\]"),
        ({"slices": 0}, "slices: must be in"),
        ({"sigma_max": 0.0}, "sigma_max: must be above 0"),
        ({"variant": "theorem", "delta": 0.1}, "at most 0.01"),
        ({"parts": 8}, "parts: is not for variant paper"),
        ({"variant": "theorem", "slices": 2}, "slices: is not for variant theorem"),
        ({"holdout": 0.5}, "holdout: is not for variant paper"),
    ],
)
def test_settings_outside_their_range_or_of_the_other_variant_are_named(how: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        ClustMixOptions(**how)


def test_the_promise_goes_with_the_variant() -> None:
    assert ClustMixOptions().promise == "as-published"
    assert options_of().promise == "end-to-end"
    assert options_of(trust_inferred_schema=True).promise == "conditional"


# -- tables with holes and rules, in every way of clustmix and kde-knn ------------------------------------------------


@pytest.mark.filterwarnings("ignore:NO PRIVACY:distcondense.errors.DistcondenseWarning")
@pytest.mark.parametrize(
    "how",
    [QUICK, THEOREM, {"method": "kde-knn", "ipc": 6, "threads": 1, "neighbours": 3}],
    ids=["paper", "theorem", "kde"],
)
def test_released_rows_are_legal_have_the_schema_s_holes_and_obey_its_rules(how: dict[str, Any]) -> None:
    columns = {
        "sex": {"kind": "binary", "categories": ["f", "m"]},
        "weeks": {"kind": "integer", "low": 0, "high": 42, "missing": "indicator"},
        "group": {"kind": "categorical", "categories": [1, 2, 3], "missing": "category"},
        "height": {"kind": "continuous", "low": 140, "high": 210, "decimals": 0},
        "kilos": {"kind": "continuous", "low": 35, "high": 200, "step": 0.5},
        "bmi": {"kind": "continuous", "low": 5, "high": 110, "decimals": 1},
        "died": {"kind": "binary", "categories": [0, 1]},
    }
    rules = [
        {"derived": "bmi", "formula": "kilos / (height / 100) ** 2"},
        {"if": 'sex == "m"', "then": "weeks is missing"},
    ]
    schema = Schema.from_dict({"columns": columns, "rules": rules})
    rng, n = np.random.default_rng(0), 1500
    frame = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "height": rng.integers(150, 200, n)})
    frame["weeks"] = np.where((frame["sex"] == "m") | (rng.random(n) < 0.4), np.nan, rng.integers(1, 42, n))
    frame["group"] = rng.choice([1, 2, 3, None], n)
    frame["kilos"] = np.round(rng.uniform(45, 120, n) * 2) / 2
    frame["bmi"] = np.round(frame["kilos"] / (frame["height"] / 100) ** 2, 1)
    frame["died"] = (rng.random(n) < 1 / (1 + np.exp(-(frame["bmi"] - 26) / 4))).astype(int)
    cohort = Cohort.from_frame(frame, target="died", schema=schema)
    result = dc.condense(cohort, **how, **({} if how["method"] == "kde-knn" else {"epsilon": 8.0}))
    made = result.frame
    assert len(made)
    assert set(made["died"]) == {0, 1}
    checked = dc.data.features.check_features(made, schema.without(["died"]))  # refuses what is not legal
    assert dc.data.rules.Rules(schema.without(["died"])).holds(checked).all()
    assert made.loc[made["sex"] == "m", "weeks"].isna().all()


# -- broken builds are caught -----------------------------------------------------------------------------------------

CLAIM, RUNS, SURE = 4.0, 80, 0.9999


def bound() -> float:
    """The ε that guesses about one person prove at least, of an attacker who knows everybody else."""
    frame = small_frame(60).drop(columns=["months", "event"]).assign(who=[f"p{i}" for i in range(60)])
    outlier = frame.iloc[[0] * 5].assign(age=119, crp=399.0, smoker=1, stage="III", died=1, who="canary")
    how = {"target": "died", "schema": DECLARED, "person_id": "who"}
    worlds = [Cohort.from_frame(f, **how) for f in (frame, pd.concat([frame, outlier], ignore_index=True))]
    options, wrong = options_of(epsilon=CLAIM), [0, 0]
    public = theorem.prepare(worlds[0].facts, options)
    assert public is not None

    def answer(world: Cohort) -> Any:
        gate = theorem.open_gate(world, HoldoutSplit(0.0, 1), public, Ledger())
        return gate.mapped(public.sums, mu=public.budget.mu)

    with pytest.MonkeyPatch.context() as quiet:
        quiet.setattr(noise, "discrete_gaussian", lambda sums, scale: sums)
        exact = [answer(world) for world in worlds]
    direction = exact[1] - exact[0]
    middle = (exact[0] + exact[1]) @ direction / 2
    for present, world in enumerate(worlds):
        for _ in range(RUNS):
            wrong[present] += (answer(world) @ direction > middle) != bool(present)
    return st.by_gaussian_rates(st.ErrorCounts(wrong[0], RUNS, wrong[1], RUNS), 1e-5, SURE)


def test_an_attack_on_the_intact_build_proves_no_more_than_is_claimed() -> None:
    assert bound() <= CLAIM


def test_a_build_with_a_fifth_of_the_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = noise.discrete_gaussian
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: real(sums, scale / 5))
    assert bound() > CLAIM


def test_a_build_that_does_not_shorten_a_person_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behind, "_shrink", lambda length, limit: np.ones_like(length))
    assert bound() > CLAIM


def test_defaults_are_the_paper_s_where_it_names_any() -> None:
    said = ClustMixOptions()
    assert (said.variant, said.epsilon, said.sigma_max) == ("paper", 1.0, None)  # σ_max: the best of several runs
    assert (said.alpha, said.layers) == (0.5, 1)  # tuned there, on the training rows; fixed here
