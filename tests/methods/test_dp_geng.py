"""The method dp-geng (DP-GENG): its algorithm box by hand, its account, what it asks, and whole runs."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.cells import public_cells
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Column, Schema
from distcondense.errors import BudgetError, SettingsError
from distcondense.kernels.elementwise import affine
from distcondense.methods.base import method_named
from distcondense.methods.dp_geng import networks
from distcondense.methods.dp_geng.allocation import (
    Allocation,
    matching_left,
    mu_of_sampling,
    searched,
    sigma_of_lemma_5,
    sigma_of_theorem_2,
)
from distcondense.methods.dp_geng.distil import Distillation, chosen
from distcondense.methods.dp_geng.encoding import Encoding
from distcondense.methods.dp_geng.evolution import Space, Votes
from distcondense.methods.dp_geng.generator import RowGenerator
from distcondense.methods.dp_geng.maps import ClassFeatures, Gradients
from distcondense.methods.dp_geng.networks import FeatureNetwork, softmax, trained
from distcondense.methods.dp_geng.options import DpGengOptions
from distcondense.methods.dp_geng.prepare import prepare
from distcondense.methods.dp_geng.run import class_means
from distcondense.outcomes.binary import Logistic
from distcondense.outcomes.private_side import PrivateFit
from distcondense.privacy import accountant, noise
from distcondense.privacy.accountant import replay
from distcondense.privacy.budget import Budget
from distcondense.privacy.curves import gaussian_mu
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.verify import verify
from tests import naive
from tests.conftest import SMALL_SCHEMA, SMALL_TABLE, small_frame

METHOD = method_named("dp-geng")
TINY = {
    "generated": 400,
    "extractors": 2,
    "extractor_epochs": 2,
    "expert_epochs": 2,
    "expert_steps": 2,
    "iterations": 20,
    "units": 8,
    "features": 4,
    "ipc": 5,
    "epsilon": 6.0,
    "threads": 1,
}
CELLS = public_cells(SMALL_SCHEMA)


@pytest.fixture(autouse=True, scope="module")
def remembered():
    """The accountant's slowest functions, whose numbers are the same in every run, are computed once for each."""
    patch = pytest.MonkeyPatch()
    for name in ("pld_epsilon", "composed"):
        patch.setattr(accountant, name, functools.cache(getattr(accountant, name)))
    yield
    patch.undo()


def random_network(width: int, hidden: int, features: int, classes: int, seed: int) -> FeatureNetwork:
    rng = np.random.default_rng(seed)
    shapes = (
        (width, hidden),
        (hidden,),
        (hidden, features),
        (features,),
        (features,),
        (features,),
        (features, classes),
        (classes,),
    )
    parts = [rng.normal(size=shape) for shape in shapes]
    parts[5] = np.abs(parts[5]) + 0.5  # spread
    return FeatureNetwork(*parts)


def random_codes(rows: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, cells.size, rows) for cells in CELLS], axis=1)


@pytest.fixture(scope="module")
def encoding() -> Encoding:
    return Encoding.from_cells(CELLS, random_codes(500))


def binary(rows: int = 1500, **more) -> dc.Cohort:
    return dc.Cohort.from_frame(
        small_frame(rows).assign(**more),
        target="died",
        ignore=["months", "event"],
        schema=SMALL_TABLE,
        person_id="who" if "who" in more else None,
    )


def several(rows: int = 3000) -> dc.Cohort:
    frame = small_frame(rows).drop(columns=["months", "event", "died"])
    shift = np.random.default_rng(1).normal(0, 0.5, rows)
    frame["grade"] = np.digitize(0.05 * (frame["age"] - 55) + frame["smoker"] + shift, [-0.5, 1.0])
    schema = Schema((*SMALL_SCHEMA.columns, Column("grade", "categorical", categories=(0, 1, 2))))
    return dc.Cohort.from_frame(frame, target="grade", schema=schema)


# ---- a network, row by row


def test_a_layer_gives_a_row_the_same_bits_wherever_it_stands_and_however_many_there_are():
    rng = np.random.default_rng(0)
    rows, weights, bias = rng.normal(size=(301, 37)), rng.normal(size=(37, 19)), rng.normal(size=19)
    whole = affine(rows, weights, bias)
    order = rng.permutation(301)
    assert affine(rows[order], weights, bias).tobytes() == whole[order].tobytes()
    for k in (0, 7, 300):
        assert affine(rows[k : k + 1], weights, bias).tobytes() == whole[k : k + 1].tobytes()
    slow = [bias[3] + 0.0]
    for x, w in zip(rows[5], weights[:, 3], strict=True):
        slow.append(slow[-1] + x * w)  # in this order, rounded each time
    assert whole[5, 3] == slow[-1]
    assert whole == pytest.approx(rows @ weights + bias)


def test_features_logits_and_gradients_are_those_of_the_slow_twin():
    net, rng = random_network(5, 4, 3, 3, seed=1), np.random.default_rng(2)
    rows, label = rng.normal(size=(12, 5)), rng.integers(0, 3, 12)
    assert net.features(rows) == pytest.approx(np.array([naive.network_features(net, row)[2] for row in rows]))
    assert net.logits(rows) == pytest.approx(np.array([naive.network_logits(net, row) for row in rows]))
    assert softmax(net.logits(rows)) == pytest.approx(np.array([naive.network_probabilities(net, r) for r in rows]))
    for whole, weights in ((False, 12), (True, 12 + 15 + 24)):
        found = net.gradients(rows, label, whole=whole)
        assert found.shape == (12, weights)
        for k in (0, 5, weights - 1):  # by how the loss changes when one weight does
            ends = []
            for sign in (1, -1):
                step = np.zeros(weights)
                step[k] = sign * 1e-6
                moved = net.moved(step)
                ends.append(
                    [-math.log(naive.network_probabilities(moved, r)[y]) for r, y in zip(rows, label, strict=True)]
                )
            assert found[:, k] == pytest.approx((np.array(ends[0]) - np.array(ends[1])) / 2e-6, abs=1e-6)


def test_a_trained_network_has_learned_its_rows_and_its_features_are_centred():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 4))
    label = (rows[:, 0] + rows[:, 1] > 0).astype(np.int64)
    chance = np.eye(2)[label]
    net = trained(rows, chance, hidden=8, features=4, epochs=150, seed=(0, 1))
    assert (np.argmax(net.logits(rows), axis=1) == label).mean() > 0.9
    assert np.abs(net.features(rows).mean(0)).max() < 1e-9
    again = trained(rows, chance, hidden=8, features=4, epochs=150, seed=(0, 1))
    assert again.w1.tobytes() == net.w1.tobytes()
    assert trained(rows, chance, hidden=8, features=4, epochs=150, seed=(0, 2)).w1.tobytes() != net.w1.tobytes()


def test_cells_are_the_codecs_numbers_of_their_middles_and_go_back_to_legal_rows(encoding):
    codes = random_codes(50, seed=3)
    frame = pd.DataFrame({c.column.name: c.values(codes[:, j], np.full(50, 0.5)) for j, c in enumerate(CELLS)})
    assert encoding.rows(codes) == pytest.approx(encoding.of_codec(encoding.codec.encode(frame)), abs=1e-5)
    pd.testing.assert_frame_equal(encoding.codec.decode(encoding.to_codec(encoding.rows(codes))), frame)
    low, high = encoding.box
    assert (encoding.rows(codes) >= low).all()
    assert (encoding.rows(codes) <= high).all()
    assert encoding.rows(codes[::-1]).tobytes() == encoding.rows(codes)[::-1].tobytes()


# ---- what is asked of patients


def gate(codes, label, person=None, rows_per_person=1, budget=None):
    return PrivateTable(
        codes,
        [c.size for c in CELLS],
        {"label": label},
        names=[c.column.name for c in CELLS],
        objective=Logistic(),
        budget=budget or Budget(15.0, 1e-3, mu=4.0),
        ledger=Ledger(),
        person=person,
        rows_per_person=rows_per_person,
    )


@pytest.mark.parametrize("whole", [False, True])
def test_sums_behind_the_gate_are_those_of_the_equations(encoding, whole, monkeypatch):
    """Eq. 1 by class, and lines 5 to 7 of Algorithm 2, without noise, by loops over persons."""
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: sums)
    rng = np.random.default_rng(5)
    codes, label = random_codes(40, seed=4), rng.integers(0, 2, 40)
    rows, net = encoding.rows(codes), random_network(encoding.width, 4, 3, 2, seed=6)
    clip = 2.0
    table = gate(codes, label)
    found = table.mapped(ClassFeatures(net, encoding, table.objective, clip), mu=0.5).reshape(2, 3)
    for k in (0, 1):
        held = [naive.clip_to(naive.network_features(net, rows[i])[2], clip) for i in range(40) if label[i] == k]
        assert found[k] * clip == pytest.approx(np.sum(held, axis=0), abs=1e-5)
    found = table.mapped(Gradients(net, encoding, table.objective, clip, whole), mu=0.5)
    held = [naive.clip_to(own, clip) for own in net.gradients(rows, label, whole=whole)]
    assert found * clip == pytest.approx(np.sum(held, axis=0), abs=1e-5)
    assert [event.by for event in table.ledger.events] == ["features by class", "gradients of the expert"]


def test_a_person_with_many_rows_moves_the_class_means_as_one(encoding, monkeypatch):
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: sums)
    codes, net = np.repeat(random_codes(1), 30, axis=0), random_network(encoding.width, 4, 3, 2, seed=6)
    table = gate(codes, np.ones(30), person=np.zeros(30), rows_per_person=30)
    found = table.mapped(ClassFeatures(net, encoding, table.objective, 1e-3), mu=0.5)
    assert np.linalg.norm(found) == pytest.approx(1.0)


def test_a_row_adds_the_same_bits_whoever_stands_beside_it(encoding):
    net, codes = random_network(encoding.width, 16, 8, 2, seed=6), random_codes(200, seed=7)
    target = {"label": np.arange(200) % 2 == 0}
    for asked in (ClassFeatures(net, encoding, Logistic(), 2.0), Gradients(net, encoding, Logistic(), 2.0, True)):
        whole = asked.values(codes, target)
        assert whole.shape == (200, asked.size)
        for some in (slice(17, 18), slice(3, 150), slice(199, None)):
            part = asked.values(codes[some], {"label": target["label"][some]})
            assert part.tobytes() == whole[some].tobytes()


def test_noisy_means_are_sums_over_noisy_counts_and_no_longer_than_the_clip():
    learned = PrivateFit(None, (), (), 100.0, np.array([0.25, 0.75]), 9.0, Logistic())
    means = class_means(np.array([5.0, 0.0, 0.0, 1500.0]), learned, clip=3.0)
    assert means.tolist() == [[3.0 * 5 / 25, 0.0], [0.0, 3.0]]


# ---- the algorithm box by hand


def test_two_steps_of_algorithm_1_are_those_of_the_slow_twin():
    """Two classes of three rows, one extractor, references that are all alike: nothing is left to chance."""
    rng = np.random.default_rng(0)
    net, expert = random_network(4, 5, 3, 2, seed=1), random_network(4, 5, 3, 2, seed=2)
    start, targets = rng.normal(size=(2, 3, 4)), rng.normal(size=(1, 2, 3))
    references = np.repeat(rng.normal(size=(2, 1, 4)), 6, axis=1)
    low, high = np.full(4, -1.5), np.full(4, 1.5)
    start = np.clip(start, low, high)
    rates, clip = (2e-2, 3e-2), 1.5
    walk = Distillation([net], targets, np.array([clip]), expert, references, low, high, *rates, batch=3, iterations=2)
    found = walk(start, seed=3)
    for k in (0, 1):
        rows = start[k].tolist()
        for _ in range(2):
            rows = naive.distilled_once(
                rows, k, net, clip, targets[0, k], expert, references[k].tolist(), rates, (low, high)
            )
        assert np.max(np.abs(found[k] - start[k])) > 0.01
        assert found[k] == pytest.approx(np.array(rows), abs=2e-4)
    bare = Distillation([], targets[:0], np.zeros(0), None, references, low, high, *rates, batch=3, iterations=2)
    assert bare(start, seed=3) is start


def test_a_step_moves_no_more_than_a_batch_of_each_class():
    rng = np.random.default_rng(0)
    net = random_network(4, 5, 3, 2, seed=1)
    start = rng.normal(size=(2, 10, 4))
    box = np.full(4, 9.0)
    walk = Distillation(
        [net], rng.normal(size=(1, 2, 3)), np.array([1.0]), None, np.zeros((2, 1, 4)), -box, box, 0.1, 0.1, 4, 1
    )
    moved = (walk(start, seed=0) != start.astype(np.float32)).any(axis=2)
    assert (moved.sum(1) <= 4).all()
    assert moved.any(1).all()


def test_rows_start_at_the_centres_of_their_class_each_once():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    features = np.concatenate([centre + 0.1 * rng.normal(size=(50, 2)) for centre in centres])
    found = chosen(features, 3, seed=1)
    assert sorted(found // 50) == [0, 1, 2]
    assert len(set(chosen(features, 40, seed=1).tolist())) == 40
    assert sorted(chosen(features[:2], 5, seed=1).tolist()) == [0, 0, 0, 1, 1]


# ---- the budget


def test_the_three_parts_add_up_and_lemma_5_is_undone_by_eq_10_but_not_by_theorem_2_as_printed():
    parts = Allocation.from_shares(0.7, (0.6, 0.25, 0.15))
    assert parts.total == pytest.approx(0.7)
    assert parts.matching == pytest.approx(matching_left(0.7, parts.generator, parts.expert))
    for sampled, steps in ((128 / 50_000, 2000), (0.1, 100), (0.01, 1)):
        how = {"sampled": sampled, "steps": steps}
        assert mu_of_sampling(sigma_of_lemma_5(parts.matching, **how), **how) == pytest.approx(parts.matching)
        # what is printed has the fraction upside down: too much noise where p²T < μ_F², too little where it is larger
        printed = mu_of_sampling(sigma_of_theorem_2(parts.matching, **how), **how)
        assert (printed > parts.matching) == (sampled**2 * steps > parts.matching**2)
    # asked of everybody the limit theorem charges more than exact composition, √T/σ: another reason not to use it
    assert mu_of_sampling(2.0, sampled=1.0, steps=9) > math.sqrt(9) / 2.0


def test_the_papers_example_of_a_budget():
    """Appendix D: at ε = 10 and δ = 1e-5 the total is μ = 2.0."""
    assert gaussian_mu(10.0, 1e-5) == pytest.approx(2.0, abs=0.05)


def test_the_papers_search_takes_no_more_than_is_good_enough():
    """Distance 1/μ, accuracy growing with μ: the smallest that are within 1.2 times and 90% of the full budget's."""
    parts = searched(2.0, lambda mu: 1 / mu if mu else math.inf, lambda mu: min(1.0, 0.5 + mu), rounds=30)
    assert parts.generator == pytest.approx(2.0 / 1.2)
    assert parts.expert == pytest.approx(0.4)
    assert parts.total == pytest.approx(2.0)


def test_parts_that_are_switched_off_leave_their_share_to_the_others():
    assert DpGengOptions().shares == pytest.approx((0.6, 0.25, 0.15))
    assert DpGengOptions(matching=False).shares == pytest.approx((0.8, 0.0, 0.2))
    assert DpGengOptions(matching=False, expert=False).shares == (1.0, 0.0, 0.0)


@pytest.mark.parametrize("epsilon", [1.0, 6.0])
def test_what_is_planned_costs_what_was_asked_by_two_accountants(epsilon):
    public = prepare(binary(200).facts, DpGengOptions(epsilon=epsilon, extractors=7, expert_steps=3))
    found = replay(public.planned, 1e-5)
    assert epsilon * (1 - 1e-3) < found.epsilon <= epsilon
    assert found.agree
    own = [event for event in public.planned if event.query == "mapped"]
    assert len(own) == 10
    spent = math.sqrt(math.fsum(event.cost**2 for event in own))
    assert spent == pytest.approx(math.hypot(public.allocation.matching, public.allocation.expert))
    assert found.mu == pytest.approx(public.allocation.total, rel=1e-6)


def test_too_small_a_budget_is_refused_before_a_patient_is_read():
    with pytest.raises(BudgetError, match="no patient was read"):
        prepare(binary(200).facts, DpGengOptions(epsilon=0.002))


# ---- refusing


def test_outcomes_without_classes_are_refused():
    for how in ({"time": "months", "event": "event", "ignore": ["died"]}, {"target": "age", "ignore": ["months"]}):
        schema = SMALL_TABLE
        cohort = dc.Cohort.from_frame(small_frame(60), schema=schema, **how)
        with pytest.raises(SettingsError, match="method dp-geng: takes multiclass and binary outcomes"):
            dc.condense(cohort, method="dp-geng", **TINY)


def test_without_jax_it_says_what_to_install_and_reads_nobody(monkeypatch):
    monkeypatch.setattr(networks, "find_spec", lambda name: None if name == "optax" else find_spec(name))
    cohort = binary(60)
    with pytest.raises(SettingsError, match=r'no optax\. Fix: pip install "distcondense\[neural\]"'):
        METHOD.prepare(cohort.facts, DpGengOptions())
    with pytest.raises(SettingsError, match="distcondense"):
        dc.condense(cohort, method="dp-geng", **TINY)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"generator_share": 0.9, "expert_share": 0.2}, "must leave a share for feature matching"),
        ({"start": "patients"}, "must be one of generated, noise"),
        ({"fine_tune": "some"}, "must be one of head, all"),
        ({"extractors": 0}, r"must be in \[1, 200\]"),
        ({"rate": 0.0}, "must be above 0"),
        ({"delta": 0.5}, "end-to-end guarantee must be at most"),
    ],
)
def test_settings_out_of_range_are_named(wrong, says):
    with pytest.raises(SettingsError, match=says):
        DpGengOptions(**wrong)


# ---- whole runs


@pytest.mark.parametrize("kind", ["binary", "several"])
def test_a_run_releases_legal_rows_of_every_class_under_a_statement_that_holds(kind, tmp_path):
    cohort = binary(2000, who=np.arange(2000) // 2) if kind == "binary" else several()
    held = 0.2 if kind == "binary" else 0.0
    result = dc.condense(cohort, method="dp-geng", out=tmp_path / "run", holdout=held, **TINY)
    classes = 2 if kind == "binary" else 3
    frame = result.frame
    assert frame[cohort.outcome.kind.names[0]].value_counts().tolist() == [5] * classes
    assert frame["age"].between(0, 120).all()
    assert set(frame["stage"]) <= {"I", "II", "III"}
    risks = [name for name in frame.columns if "risk" in name]
    assert len(risks) == (1 if kind == "binary" else 3)
    assert frame[risks].to_numpy().min() >= 0
    assert frame[risks].to_numpy().max() <= 1
    privacy = result.privacy
    assert (privacy.guarantee, privacy.method) == ("end-to-end", "dp-geng")
    assert privacy.unit == ("person" if kind == "binary" else "row")
    assert privacy.epsilon <= 6.0
    assert verify(tmp_path / "run").holds
    asked = [event.query for event in privacy.events]
    assert asked.count("mapped") == 4
    assert asked[-4:] == ["mapped"] * 4
    said = privacy.parameters
    parts = math.sqrt(said["mu_generator"] ** 2 + said["mu_matching"] ** 2 + said["mu_expert"] ** 2)
    assert said["mu"] == pytest.approx(parts, rel=1e-6)
    assert 0 < said["epsilon_as_published_by_lemmas_2_and_3"] < 6.2
    assert said["sigma_matching_of_one_answer"] == pytest.approx(math.sqrt(2) / said["mu_matching"])
    assert {s["trained_on"] for s in result.record["scores"]} >= ({"condensed", "reference"} if held else set())


def test_what_a_run_asks_is_what_it_planned(tmp_path):
    options = {name: value for name, value in TINY.items() if name != "threads"}
    cohort = binary()
    planned = METHOD.prepare(cohort.facts, DpGengOptions(**options)).planned
    result = dc.condense(cohort, method="dp-geng", holdout=0.0, **TINY)
    asked = result.privacy.events
    assert [(e.query, e.cost) for e in asked if e.query == "mapped"] == [
        (e.query, pytest.approx(e.cost)) for e in planned if e.query == "mapped"
    ]
    assert [e.cells for e in asked[-4:]] == [8, 8, 10, 10]
    total = [math.fsum(e.cost**2 for e in events if e.kind == "gaussian") for events in (asked, planned)]
    assert total[0] == pytest.approx(total[1])


@pytest.mark.parametrize("generator", ["tab-pe", "marginals"])
def test_another_generator_asks_what_it_planned_and_its_rows_are_legal(generator, tmp_path):
    cohort = binary(2000, who=np.arange(2000) // 2)
    options = {name: value for name, value in TINY.items() if name != "threads"}
    planned = METHOD.prepare(cohort.facts, DpGengOptions(**options, generator=generator)).planned
    assert replay(planned, 1e-5).epsilon <= 6.0
    result = dc.condense(cohort, method="dp-geng", out=tmp_path / "run", holdout=0.0, generator=generator, **TINY)
    asked = result.privacy.events
    told, meant = ([(e.query, e.by, e.columns, e.cells) for e in events[:-4]] for events in (asked, planned))
    assert told == meant
    assert sum(e.cost**2 for e in asked) == pytest.approx(sum(e.cost**2 for e in planned))
    assert verify(tmp_path / "run").holds
    assert replay(asked, 1e-5).agree
    assert result.frame["died"].value_counts().tolist() == [5, 5]
    assert result.frame["age"].between(0, 120).all()
    assert set(result.frame["stage"]) <= {"I", "II", "III"}


@pytest.mark.parametrize(("way", "near"), [("marginals", 0.12), ("tab-pe", 0.45)])
def test_without_noise_generated_rows_of_a_class_are_like_its_patients(way, near, monkeypatch):
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: sums)
    cohort = several(3000)
    label = cohort.outcome["label"]
    generator = RowGenerator.from_facts(cohort.facts, DpGengOptions(epsilon=6.0, generator=way))
    learned = generator.fitted(cohort, HoldoutSplit(0.0, 0), Ledger(), lambda done, of: None)
    assert learned.informative
    assert learned.shares == pytest.approx(np.bincount(label) / 3000, abs=0.01)
    assert learned.rows == pytest.approx(3000, rel=0.01)
    drawn = generator.drawn(learned, 4000, 0)
    assert np.bincount(drawn.label) / len(drawn.label) == pytest.approx(learned.shares, abs=0.01)
    for j, cells in enumerate(generator.prepared.cells):
        theirs = cells.codes(cohort.features[cells.column.name])
        for k in range(3):
            both = (theirs[label == k], drawn.codes[drawn.label == k, j])
            p, q = (np.bincount(codes, minlength=cells.size) / len(codes) for codes in both)
            assert np.abs(p - q).sum() / 2 < near


def test_a_vote_is_one_whoever_stands_beside_it():
    """The sensitivity argument of the votes, over thousands of neighbours."""
    rng = np.random.default_rng(3)
    space = Space((7, 4, 3), (True, True, False), (True, False, False))
    crowd = [space.drawn(9, rng), space.drawn(5, rng)]
    tables = tuple(tuple(space.distances(j, of[:, j]) for j in range(3)) for of in crowd)
    votes = Votes((0, 1, 2, 3), tables)
    rows = np.column_stack([space.drawn(4000, rng), rng.integers(0, 3, 4000)])  # a class that has no rows, too
    every = votes.values(rows, {})
    assert np.sqrt((every**2).sum(1)).max() <= 1.0
    assert every[rows[:, -1] == 2].sum() == 0
    order = rng.permutation(4000)
    assert np.array_equal(votes.values(rows[order], {}), every[order])
    for i in range(0, 4000, 97):
        without = votes.values(np.delete(rows, i, axis=0), {})
        assert np.array_equal(every.sum(0) - without.sum(0), every[i])


@pytest.mark.parametrize("way", ["tab-pe", "marginals"])
def test_other_generators_need_declared_columns(way):
    column = Column("age", "integer", domain="private")
    schema = Schema((column, *(one for one in SMALL_TABLE.columns if one.name != "age")))
    facts = dc.Cohort.from_frame(small_frame(300), target="died", ignore=["months", "event"], schema=schema).facts
    with pytest.raises(SettingsError, match="needs bounds and categories of every column"):
        RowGenerator.from_facts(facts, DpGengOptions(generator=way))


def test_a_killed_run_resumes_to_what_it_would_have_been(tmp_path, monkeypatch):
    """Killed inside the questions of its own; nothing that was paid for is asked again."""
    how = {**TINY, "method": "dp-geng", "holdout": 0.0, "out": tmp_path / "run"}
    whole, said = noise.discrete_gaussian, []

    def drawn(sums, scale):
        said.append(whole(sums, scale))
        return said[-1]

    left = 3  # inside the expert's gradients
    real, calls = PrivateTable.mapped, {"left": left}

    def dies(self, *args, **kwargs):
        if calls["left"] == 0:
            raise KeyboardInterrupt
        calls["left"] -= 1
        return real(self, *args, **kwargs)

    cohort = binary(800)
    monkeypatch.setattr(noise, "discrete_gaussian", drawn)
    monkeypatch.setattr(PrivateTable, "mapped", dies)
    with pytest.raises(KeyboardInterrupt):
        dc.condense(cohort, **how)
    before = (tmp_path / "run" / "internal" / "ledger.jsonl").read_text().splitlines()
    monkeypatch.setattr(PrivateTable, "mapped", real)
    asked = len(said)
    first = dc.condense(cohort, **how, resume=True)
    after = (tmp_path / "run" / "internal" / "ledger.jsonl").read_text().splitlines()
    assert after[: len(before)] == before
    assert len(said) - asked == len(after) - len(before) == 4 - left
    assert verify(tmp_path / "run").holds
    (tmp_path / "run" / "internal" / "run.json").unlink()  # as if killed before its last file: the same once more
    again = dc.condense(cohort, **how, resume=True)
    pd.testing.assert_frame_equal(first.frame, again.frame)
    assert len(said) - asked == 4 - left


def test_no_signal_means_no_rows_and_nothing_more_is_asked(tmp_path):
    label = np.random.default_rng(3).integers(0, 2, 300)
    result = dc.condense(binary(300, died=label), method="dp-geng", out=tmp_path / "run", **{**TINY, "epsilon": 0.5})
    assert len(result.frame) == 0
    assert "NO ANSWER" in result.privacy.answer
    assert not [event for event in result.privacy.events if event.query == "mapped"]
    assert verify(tmp_path / "run").holds


@pytest.mark.parametrize(
    "said",
    [
        {"matching": False, "expert": False},
        {"start": "noise", "expert": False},
        {"matching": False, "fine_tune": "all"},
    ],
)
def test_each_part_can_be_switched_off_and_the_budget_goes_to_the_others(said):
    result = dc.condense(binary(), method="dp-geng", holdout=0.0, **{**TINY, **said})
    own = [event.by for event in result.privacy.events if event.query == "mapped"]
    assert own.count("features by class") == (0 if said.get("matching") is False else 2)
    assert own.count("gradients of the expert") == (0 if said.get("expert") is False else 2)
    assert len(result.frame) == 10
    assert result.privacy.epsilon <= 6.0


def test_rates_by_which_a_network_runs_away_make_rows_all_the_same():
    """After the first answer nothing may stop a statement; larger rates are refused before it."""
    frame = small_frame(400)
    cohort = dc.Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=SMALL_TABLE)
    result = dc.condense(cohort, method="dp-geng", **{**TINY, "expert_rate": 1e3, "rate": 1e3, "guide_rate": 1e3})
    assert result.frame.notna().all().all()
    for name in ("expert_rate", "rate", "guide_rate"):
        with pytest.raises(SettingsError, match="at most 1000"):
            dc.condense(cohort, method="dp-geng", **{**TINY, name: 1.7e308})


def test_bounds_and_categories_that_are_paid_for_and_holes_are_the_same_at_both_openings_of_the_gate(monkeypatch):
    """Values that the first opening has found have the cells of the second; without noise their counts agree."""
    from distcondense.methods.dp_geng import generator

    frame = small_frame(3000)
    frame["crp"] = frame["crp"].where(np.random.default_rng(0).random(3000) > 0.2)
    frame["stage"] = frame["stage"].where(np.random.default_rng(1).random(3000) > 0.1)
    schema = Schema(
        (
            Column("age", "integer", domain="private"),
            Column("crp", "continuous", low=0, high=400, missing="indicator"),
            Column("smoker", "binary", categories=(0, 1)),
            Column("stage", "categorical", domain="private", missing="category"),
            *SMALL_TABLE.columns[4:],
        )
    )
    cohort = dc.Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=schema)
    sizes, real = [], generator.RowGenerator.opened

    def watched(self, *rest):
        table = real(self, *rest)
        sizes.append((table.sizes, tuple(cells.size for cells in rest[2].model.cells)))
        return table

    monkeypatch.setattr(generator.RowGenerator, "opened", watched)
    result = dc.condense(cohort, method="dp-geng", holdout=0.0, **TINY)
    ((here, there),) = sizes
    assert here == there
    assert there[3] == 5  # I, II, III, other, missing
    assert set(result.frame["stage"].dropna()) <= {"I", "II", "III", "other"}
    assert result.privacy.epsilon <= 6.0


def test_only_the_generator_opens_the_gate_and_both_openings_share_one_account(monkeypatch):
    from distcondense.methods.dp_geng import generator

    opened, real = [], generator.open_gate

    def watched(cohort, train, public, ledger):
        opened.append((public.budget, ledger))
        return real(cohort, train, public, ledger)

    monkeypatch.setattr(generator, "open_gate", watched)
    result = dc.condense(binary(), method="dp-geng", holdout=0.0, **TINY)
    (first, ledger), (second, other) = opened
    assert first == second
    assert ledger is other
    assert len(result.privacy.ledger) == len(ledger.events)


def test_two_tables_with_the_same_answers_give_the_same_rows(monkeypatch):
    """Other patients, and more of them; the second gate is made to give the answers of the first."""
    said = []
    gaussian, top = noise.discrete_gaussian, noise.noisy_top

    def keep(draw):
        def asked(*query):
            said.append(draw(*query))
            return said[-1]

        return asked

    monkeypatch.setattr(noise, "discrete_gaussian", keep(gaussian))
    monkeypatch.setattr(noise, "noisy_top", keep(top))
    first = dc.condense(binary(800), method="dp-geng", holdout=0.0, **TINY)
    again = iter(said)
    monkeypatch.setattr(noise, "discrete_gaussian", lambda *_: next(again))
    monkeypatch.setattr(noise, "noisy_top", lambda *_: next(again))
    second = dc.condense(
        dc.Cohort.from_frame(small_frame(1100, 5), target="died", ignore=["months", "event"], schema=SMALL_TABLE),
        method="dp-geng",
        holdout=0.0,
        **TINY,
    )
    pd.testing.assert_frame_equal(first.frame, second.frame)
    left = [{k: v for k, v in one.privacy.to_dict().items() if k != "ledger"} for one in (first, second)]
    assert json.dumps(left[0], default=str) == json.dumps(left[1], default=str)
    assert replace(first.privacy.events[-1], run="", session="") == replace(
        second.privacy.events[-1], run="", session=""
    )


def test_defaults_are_appendix_g_s_but_for_the_generated_rows():
    said = DpGengOptions()
    assert (said.extractors, said.extractor_epochs, said.expert_epochs, said.expert_steps) == (20, 30, 100, 20)
    assert (said.iterations, said.class_batch, said.rate, said.guide_rate) == (2000, 128, 5e-3, 5e-3)
    assert (said.start, said.matching, said.expert) == ("generated", True, True)  # all three parts of Table 3 (a)
    assert said.generated == 20_000  # the paper: 50,000 images
