"""Attacks on membership and attributes: they catch copies, find nothing in strangers, and say no more than that."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from importlib import import_module
from itertools import combinations

import numpy as np
import pytest
from scipy import special, stats

from distcondense.data.persons import Split
from distcondense.evaluation import score as scores
from distcondense.evaluation.attacks import ATTACKS, attribute, base, chance, distance, domias, membership
from distcondense.evaluation.attacks.ceiling import Ceilings
from distcondense.evaluation.attacks.targets import Targets, ceilings_of, draw_targets
from distcondense.evaluation.leaks import SURELY, decide
from distcondense.evaluation.section import Section
from distcondense.models.base import BlackBox
from distcondense.privacy.statement import Privacy
from tests.attack_inputs import home_of
from tests.evaluation_inputs import changed
from tests.leaky import said

OURS = ("membership", "distance", "domias", "attribute")
HOME = home_of("strangers", train=40, test=40, rows=1)
PRIVATE = Privacy("end-to-end", "toy", 1.0, 1e-5, "one row", "toy")


def attack(name, inputs, seed=0, threads=1):
    return import_module(ATTACKS[name]).section(inputs, seed=seed, threads=threads)


@pytest.fixture(scope="module")
def copied():
    inputs = home_of("copies", train=250, test=250, rows=250)
    return {name: attack(name, inputs) for name in OURS}


@pytest.fixture(scope="module")
def strangers():
    inputs = home_of("strangers", train=250, test=250, rows=250)
    return {name: attack(name, inputs) for name in OURS}


def main_score(part, student=None):
    found = [s for s in part.scores if s.measure == base.AUROC and not s.group and student in (None, s.student)]
    return found[0]


# -- what they find ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OURS)
def test_a_memorising_table_is_caught(copied, name):
    assert decide([copied[name]])
    assert said(copied[name]).startswith("A leak was found")
    assert main_score(copied[name]).low > 0.6


@pytest.mark.parametrize("name", OURS)
def test_nothing_is_found_in_a_table_of_strangers(strangers, name):
    part = strangers[name]
    assert not decide([part])
    assert said(part).startswith("No leak found by these attacks at this power")
    at = main_score(part)
    assert at.low < 0.5 < at.high


def test_the_most_vulnerable_are_attacked_too(copied):
    scores = [s for s in copied["membership"].scores if s.group == base.VULNERABLE]
    assert {s.measure for s in scores} == set(base.TITLES)
    (at,) = [s for s in scores if s.measure == base.AUROC]
    assert at.n == 50
    assert at.low > 0.7


def test_links_and_columns_of_copies_stand_out(copied, strangers):
    (ours,) = [s for s in copied["distance"].scores if s.measure == distance.LINKED_EXCESS]
    (theirs,) = [s for s in strangers["distance"].scores if s.measure == distance.LINKED_EXCESS]
    assert ours.low > 0.8
    assert theirs.low < 0.05
    alone = [s for s in copied["distance"].scores if s.student == distance.ONE_COLUMN and s.group.startswith("x")]
    assert len(alone) == 6
    assert min(s.low for s in alone) > 0.9
    (table,) = copied["distance"].tables
    assert sum(row[1] for row in table.rows) == pytest.approx(1.0, abs=1e-3)


def test_attributes_of_members_are_guessed_better_only_where_they_were_copied(copied, strangers):
    def excess(part):
        return [s for s in part.scores if s.measure.startswith("attribute_excess")]

    assert len(excess(copied["attribute"])) == 8
    assert min(s.low for s in excess(copied["attribute"])) > 0
    assert all(s.luck > SURELY for s in excess(strangers["attribute"]))
    controls = [s for s in copied["attribute"].scores if s.trained_on == "random_real"]
    assert {s.tested_on for s in controls} == {"members"}


@pytest.mark.parametrize("name", OURS)
def test_every_word_is_careful_and_every_score_has_its_interval_and_power(copied, strangers, name):
    for part in (copied[name], strangers[name]):
        text = " ".join([part.title, *part.notes, *part.titles.values(), *(f.about for f in part.figures)])
        assert not re.search(r"\b(safe|private|anonymous|protected)\b", text, re.IGNORECASE)
        assert set(part.titles) == {score.measure for score in part.scores}
        assert Section.from_dict(part.to_dict()).to_dict() == part.to_dict()
        for score in part.scores:
            if math.isnan(score.value):
                assert score.note
            else:
                assert score.low <= score.value <= score.high
                assert score.interval
        assert all(s.power is not None for s in part.scores if s.measure == base.AUROC and not math.isnan(s.value))


def test_the_same_seed_gives_the_same_part_on_any_threads(copied):
    inputs = home_of("copies", train=250, test=250, rows=250)
    for name in ("membership", "domias"):
        assert attack(name, inputs, threads=2).to_dict() == copied[name].to_dict()


# -- who is attacked --------------------------------------------------------------------------------------------------


def test_one_row_of_each_person_is_attacked_and_no_person_twice():
    inputs = home_of("strangers", train=300, test=150, rows=50, persons=3)
    targets = draw_targets(inputs, seed=0, threads=1)
    assert len(targets) == 100
    assert targets.by_person
    assert (targets.members, targets.outsiders) == (100, 50)
    every = inputs.codec.encode(inputs.cohort.features)
    number = [int(np.flatnonzero((every == row).all(1))[0]) for row in targets.rows]
    assert len(set(inputs.cohort.person[number])) == 100
    assert set(number[:50]) <= set(range(300))
    assert set(number[50:]) <= set(range(300, 450))


def test_the_vulnerable_tenth_is_far_from_everybody():
    inputs = home_of("strangers", train=100, test=100, rows=20)
    targets = draw_targets(inputs, seed=0, threads=1)
    ruled = targets.ruled.astype(float)  # all rows are attacked
    apart = np.array([[np.linalg.norm(a - b) for b in ruled] for a in ruled])
    np.fill_diagonal(apart, np.inf)
    np.testing.assert_allclose(targets.apart, apart.min(1), rtol=1e-5)
    assert targets.vulnerable.sum() == 20
    assert targets.apart[targets.vulnerable].min() >= targets.apart[~targets.vulnerable].max()


def test_what_the_attacker_knows_is_not_attacked():
    inputs = home_of("strangers", train=100, test=101, rows=20)
    targets = draw_targets(inputs, seed=0, threads=1, reference=True)
    known = inputs.codec.encode(inputs.cohort.features.iloc[targets.reference])
    assert len(known) == 51
    assert not ({row.tobytes() for row in known} & {row.tobytes() for row in targets.rows})
    assert set(targets.reference) <= set(inputs.split.test)


@pytest.mark.parametrize("name", OURS)
def test_without_rows_or_outsiders_they_say_so(name):
    inputs = home_of("strangers", train=60, test=60, rows=30)
    empty = changed(inputs, rows=inputs.rows[:0], frame=inputs.frame.iloc[:0])
    nobody = replace(inputs, split=Split(inputs.split.train, inputs.split.validation, inputs.split.test[:0]))
    few = replace(inputs, split=Split(inputs.split.train, inputs.split.validation, inputs.split.test[:9]))
    for one in (empty, nobody, few):
        part = attack(name, one)
        assert part.scores == ()
        assert part.notes[0].startswith("Not attacked")
        assert decide([part]).untried == (name,)
        assert not decide([part])


@pytest.mark.parametrize("kind", ["copies", "strangers"])
def test_one_condensed_row_and_times_to_events_are_no_trouble(kind):
    for part in (
        attack("membership", home_of(kind, train=60, test=60, rows=1)),
        attack("distance", home_of(kind, train=80, test=80, rows=60, time=True)),
        attack("domias", home_of(kind, train=60, test=90, rows=2)),
        attack("attribute", home_of(kind, train=60, test=90, rows=3)),
    ):
        assert part.scores


# -- the numbers ------------------------------------------------------------------------------------------------------


def test_the_fifteen_features_are_those_of_the_paper():
    neighbors = pytest.importorskip("sklearn.neighbors")
    rng = np.random.default_rng(0)
    rows, made = (rng.normal(size=(n, 7)).astype(np.float32) for n in (50, 40))
    rows[0] = 0
    found = membership.distance_features(rows, made, threads=1)
    assert found.shape == (50, 15)
    for k, metric in enumerate(("euclidean", "manhattan", "cosine")):
        search = neighbors.NearestNeighbors(n_neighbors=5, algorithm="brute", metric=metric).fit(made.astype(float))
        near = search.kneighbors(rows.astype(float))[0]
        statistics = [near.mean(1), near.min(1), near.max(1), near.std(1), near.max(1) - near.min(1)]
        np.testing.assert_allclose(found[:, 5 * k : 5 * k + 5], np.stack(statistics, 1), rtol=1e-4, atol=1e-5)


def test_densities_are_those_of_a_library():
    neighbors = pytest.importorskip("sklearn.neighbors")
    rng = np.random.default_rng(0)
    at, rows = rng.normal(size=(30, 3)), rng.normal(size=(80, 3))
    width = 80 ** (-1 / 7) * rows.std()
    other = neighbors.KernelDensity(bandwidth=width).fit(rows).score_samples(at)
    ours = domias.log_density(at, rows, 1.0, 2) - 1.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(ours, other, rtol=1e-6)


def test_shares_have_wilsons_interval():
    for hits, of in ((0, 7), (3, 40), (40, 40)):
        known = stats.binomtest(hits, of).proportion_ci(method="wilson")
        at = scores.wilson(hits, of)
        assert (at.low, at.high) == pytest.approx((known.low, known.high), abs=1e-9)


def test_the_difference_of_shares_is_newcombes_example():
    at = base.difference(56, 70, 48, 80)  # Newcombe 1998, table II (a), method 10
    assert (at.low, at.high) == pytest.approx((0.0524, 0.3339), abs=1e-4)


def one_attack(rng, n, apart):
    """Scores of n members and n outsiders, normal and so far apart; as `judged` gives them."""
    member = np.arange(2 * n) < n
    score = rng.normal(size=2 * n) + apart * member
    targets = Targets(
        np.zeros((2 * n, 1), np.float32), None, member, None, rng.random(2 * n), np.arange(0), n, n, False
    )
    return {(s.measure, s.group): s for s in base.judged(score, targets, inputs=HOME, seed=1)}


def test_intervals_hold_what_is_true_in_most_samples():
    """95% intervals of 200 samples: fewer than 5 standard deviations below 190 hold it."""
    rng = np.random.default_rng(0)
    n, apart, hold = 120, 0.8, dict.fromkeys((base.AUROC, base.ADVANTAGE, base.TPR_10), 0)
    truth = {
        base.AUROC: special.ndtr(apart / math.sqrt(2)),
        base.ADVANTAGE: 2 * special.ndtr(apart / 2) - 1,  # of the best threshold: a chosen one has less
        base.TPR_10: special.ndtr(apart - special.ndtri(0.9)),
    }
    for _ in range(200):
        found = one_attack(rng, n, apart)
        for measure in hold:
            at = found[measure, ""]
            hold[measure] += at.low <= truth[measure] <= at.high
    assert min(hold.values()) > 190 - 5 * math.sqrt(200 * 0.05 * 0.95)


def test_the_power_is_what_would_be_found_four_times_in_five():
    rng = np.random.default_rng(1)
    n = 150
    apart = special.ndtri(chance.auroc_power(n, n)) * math.sqrt(2)
    seen = sum(one_attack(rng, n, apart)[base.AUROC, ""].luck <= SURELY for _ in range(200))
    assert abs(seen / 200 - 0.8) < 5 * math.sqrt(0.8 * 0.2 / 200)
    assert chance.auroc_power(10**6, 10**6) < 0.503
    assert chance.difference_power(5, 5) > chance.difference_power(500, 500) > 0
    assert chance.rate_power(5, 5, 0.1) is None


@pytest.mark.parametrize(("n", "m", "alarms"), [(3, 4, 0), (4, 3, 1), (5, 4, 2)])
def test_luck_is_counted_right_over_all_ways_to_be_a_member(n, m, alarms):
    """Every choice of n members among n + m targets in a row, the best first, is as likely."""
    rows = [np.isin(np.arange(n + m), chosen) for chosen in combinations(range(n + m), n)]
    for found in range(n + 1):
        above = [row[: np.flatnonzero(~row)[alarms]].sum() >= found for row in rows]
        assert chance.rate_luck(found, n, alarms, m) == pytest.approx(np.mean(above))
        first = [row[: alarms + found].sum() >= found for row in rows]
        assert chance.shares_luck(found, n, alarms, m) == pytest.approx(np.mean(first))


def noise_page(rng, n):
    """What attacks that know nothing report of n members and n outsiders, a column with a long tail among it."""
    member, tail, guess = np.arange(2 * n) < n, rng.standard_t(2, 2 * n), np.zeros(2 * n)
    about = {"place": slice(0, 1), "centre": np.zeros(1), "scale": np.ones(1)}
    column = attribute.Attribute(HOME.codec.blocks[0], **about)
    sides = [attribute._measured(attribute.R2, tail[who], guess[who]) for who in (member, ~member)]
    luck = attribute._luck(column, tail, guess, member, seed=int(rng.integers(2**31)))
    excess = attribute._excess(*sides, luck, column, HOME, 2 * n)
    return [*one_attack(rng, n, 0.0).values(), *one_attack(rng, n, 0.0).values(), excess]


def test_one_page_in_twenty_at_most_calls_noise_a_leak():
    """Of 300 pages of noise 15 are expected at most; fewer than 5 standard deviations more do."""
    rng = np.random.default_rng(0)
    pages = [Section("distance", "noise", tuple(noise_page(rng, 60))) for _ in range(300)]
    assert sum(bool(decide([page])) for page in pages) < 15 + 5 * math.sqrt(300 * 0.05 * 0.95)


def test_few_false_alarms_need_many_outsiders():
    found = one_attack(np.random.default_rng(0), 100, 3.0)
    assert "1,000 outsiders" in found[base.TPR_001, ""].note
    many = one_attack(np.random.default_rng(0), 5000, 3.0)[base.TPR_001, ""]
    truth = special.ndtr(3.0 - special.ndtri(0.999))
    assert many.low <= truth <= many.high
    assert many.low > 0.1


def test_learning_attackers_get_wider_intervals(copied):
    """Under chance the five overlapping lessons vary more than DeLong says."""
    wide = main_score(copied["membership"])
    assert "overlap" in wide.interval
    assert wide.power > chance.auroc_power(250, 250)


def test_losses_are_those_of_the_likelihood():
    inputs = home_of("strangers", train=60, test=60, rows=50)
    targets = draw_targets(inputs, seed=0, threads=1)
    model = BlackBox(lambda rows: np.full(len(rows), 0.25), "probability", inputs.rows.shape[1])
    found = distance.loss(model, targets.rows, targets.outcome, inputs.rows, inputs.made)
    np.testing.assert_allclose(found, np.where(targets.outcome["label"] == 1, -np.log(0.25), -np.log(0.75)))
    lasting = home_of("strangers", train=60, test=60, rows=50, time=True)
    targets = draw_targets(lasting, seed=0, threads=1)
    flat = BlackBox(lambda rows: np.zeros(len(rows)), "log-risk", inputs.rows.shape[1])
    found = distance.loss(flat, targets.rows, targets.outcome, lasting.rows, lasting.made)
    lifelines = pytest.importorskip("lifelines")
    curve = lifelines.NelsonAalenFitter(nelson_aalen_smoothing=False)
    curve.fit(lasting.made["time"], lasting.made["label"])
    hazard = np.maximum(curve.cumulative_hazard_at_times(targets.outcome["time"]).to_numpy(), 1e-6)
    event = targets.outcome["label"] == 1
    np.testing.assert_allclose(found, 2 * np.where(event, hazard - 1 - np.log(hazard), hazard), rtol=1e-6)


def test_a_model_that_the_method_hands_over_is_attacked():
    inputs = home_of("copies", train=80, test=80, rows=80)
    known = {
        row.tobytes(): label
        for row, label in zip(
            inputs.codec.encode(inputs.cohort.features.iloc[:80]), inputs.cohort.outcome["label"][:80], strict=True
        )
    }

    def certain(rows):  # of those it was fitted to
        return np.array([{0: 0.05, 1: 0.95, None: 0.5}[known.get(row.tobytes())] for row in rows])

    part = attack("distance", changed(inputs, reference=BlackBox(certain, "probability", inputs.rows.shape[1])))
    assert main_score(part, distance.WHITE).value == 1.0
    without = main_score(attack("distance", inputs), distance.WHITE)
    assert math.isnan(without.value)
    assert "no model" in without.note


# -- ceilings ---------------------------------------------------------------------------------------------------------


def test_the_ceiling_stands_beside_what_it_bounds():
    inputs = home_of("strangers", train=100, test=100, rows=60, privacy=PRIVATE)
    ceilings = Ceilings.from_privacy(PRIVATE)
    for name in ("distance", "attribute"):
        part = attack(name, inputs)
        for score in part.scores:
            expected = {
                base.AUROC: ceilings.auroc,
                base.ADVANTAGE: ceilings.advantage,
                base.TPR_10: ceilings.tpr(0.1),
                distance.LINKED_EXCESS: ceilings.advantage,
                "attribute_excess_accuracy": ceilings.advantage,
            }.get(score.measure)
            if math.isnan(score.value) or score.student == distance.ONE_COLUMN:
                continue
            assert score.ceiling == expected, score


def test_a_guarantee_that_does_not_hold_is_named():
    part = attack("membership", home_of("copies", train=100, test=100, rows=100, privacy=PRIVATE))
    assert "above the ceiling" in said(part)


def test_a_guarantee_of_rows_is_no_ceiling_for_persons():
    inputs = home_of("strangers", train=150, test=150, rows=30, persons=3, privacy=PRIVATE)
    assert ceilings_of(inputs) is None
    assert ceilings_of(changed(inputs, privacy=replace(PRIVATE, unit="person"))) is not None
    assert any("No ceiling" in note for note in attack("membership", inputs).notes)


# -- the registry -----------------------------------------------------------------------------------------------------


def test_attacks_are_found_by_name():
    assert set(OURS) <= set(ATTACKS)
    for name in ATTACKS:
        assert callable(import_module(ATTACKS[name]).section)
