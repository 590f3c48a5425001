"""The audit: its bounds are bounds, it has power, the intact build passes it and broken builds do not."""

from __future__ import annotations

import dataclasses
import functools
import json
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as strategy
from scipy import stats

from distcondense.errors import SettingsError
from distcondense.evaluation.audit import AUDITORS, run_audit
from distcondense.evaluation.audit import private as on_private
from distcondense.evaluation.audit import published as on_published
from distcondense.evaluation.audit import stats as st
from distcondense.evaluation.audit.findings import ALARM, Audit, AuditRequest, Finding, PendingFinding, settled
from distcondense.evaluation.audit.neighbours import (
    ALONE,
    CAP,
    CHOICE,
    EARLY,
    FAR,
    MANY,
    OUTLIER,
    PAIR,
    SCHEMA,
    SEVERAL,
    UNLISTED,
    UNSEEN,
    AuditSetting,
    GateObserver,
    neighbouring,
)
from distcondense.methods.private import fit, smoothing
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.plan import Plan
from distcondense.privacy import accountant, gate, noise
from distcondense.privacy import table_rows as behind
from distcondense.privacy.curves import gaussian_epsilon, gaussian_mu
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from tests import naive
from tests.fixed_noise import begin


@pytest.fixture(autouse=True, scope="module")
def remembered():
    """The accountant's slowest function, whose numbers are the same in every run, is computed once for each."""
    patch = pytest.MonkeyPatch()
    patch.setattr(accountant, "pld_epsilon", functools.cache(accountant.pld_epsilon))
    yield
    patch.undo()


# ---- from guesses to a bound


@given(
    strategy.integers(1, 40),
    strategy.integers(0, 40),
    strategy.integers(0, 20),
    strategy.floats(0, 6),
    strategy.sampled_from([0.0, 1e-5, 1e-3]),
)
def test_the_one_run_p_value_is_the_theorems(guesses, right, abstained, epsilon, delta):
    right = min(right, guesses)
    asked = {"guesses": guesses, "right": right, "epsilon": epsilon, "delta": delta}
    fast = st.one_run_p_value(canaries=guesses + abstained, **asked)
    assert fast == pytest.approx(naive.one_run_p_value(guesses + abstained, **asked), rel=1e-9, abs=1e-14)


def test_the_one_run_bound_is_the_one_printed_in_the_paper():
    found = st.one_run_bound(canaries=1000, guesses=100, right=75, delta=1e-4, confidence=0.95)
    assert found == pytest.approx(0.673, abs=1e-3)  # appendix D


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_randomised_response_is_never_bounded_above_its_epsilon_more_often_than_said(epsilon):
    """Right guesses of ε-randomised response are Binomial(k, e^ε/(1 + e^ε)): coverage is a sum, not a simulation."""
    k, chance = 200, 1 / (1 + math.exp(-epsilon))
    over = [
        v
        for v in range(k + 1)
        if st.one_run_bound(canaries=k, guesses=k, right=v, delta=0.0, confidence=0.95) > epsilon
    ]
    assert over
    assert 0.02 < stats.binom.pmf(over, k, chance).sum() <= 0.05


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_with_many_canaries_the_bound_comes_close_to_randomised_responses_epsilon(epsilon):
    k = 20_000
    right = math.floor(k / (1 + math.exp(-epsilon)))
    found = st.one_run_bound(canaries=k, guesses=k, right=right, delta=1e-7, confidence=0.95)
    assert 0.9 * epsilon < found < epsilon


@pytest.mark.parametrize(("errors", "trials"), [(0, 7), (3, 30), (15, 30), (29, 30), (30, 30)])
def test_clopper_pearson_limits_are_where_the_binomial_says(errors, trials):
    if errors < trials:
        assert float(st.rate_above(errors, trials, 0.975)) == pytest.approx(naive.rate_above(errors, trials, 0.975))
    else:
        assert float(st.rate_above(errors, trials, 0.975)) == 1.0
    assert float(st.rate_below(errors, trials, 0.975)) == pytest.approx(
        1 - float(st.rate_above(trials - errors, trials, 0.975)), abs=1e-12
    )


@pytest.mark.parametrize("bound", [st.by_rates, st.by_gaussian_rates, st.by_coin_game, st.by_gaussian_game])
def test_more_right_guesses_prove_more_and_coin_tosses_prove_nothing(bound):
    found = [bound(st.ErrorCounts(wrong, 500, wrong, 500), 1e-5, 0.95) for wrong in (250, 150, 50, 0)]
    assert found[0] == 0.0
    assert 0 < found[1] < found[2] < found[3] < st.EPSILON_MAX


def test_bounds_of_a_gaussian_mechanisms_best_test_stay_below_its_epsilon_and_come_close():
    mu, n = 1.0, 10**6
    wrong = round(n * stats.norm.cdf(-mu / 2))
    counts, truth = st.ErrorCounts(wrong, n, wrong, n), gaussian_epsilon(mu, 1e-5)
    for bound in (st.by_gaussian_rates, st.by_gaussian_game):
        assert 0.98 * truth < bound(counts, 1e-5, 0.95) < truth
    for bound in (st.by_rates, st.by_coin_game):  # true, but far: the claim at δ is about rarer events
        assert 0.5 < bound(counts, 1e-5, 0.95) < truth / 2


# ---- the whole trade-off curve


def gaussian_runs(rng, mu, runs):
    member = rng.random(runs) < 0.5
    return rng.normal(size=runs) + mu * member, member


@pytest.mark.parametrize(("mu", "near"), [(0.0, 0.0), (1.0, 0.55), (2.0, 0.75), (4.0, 0.75)])
def test_the_whole_curve_of_a_gaussian_stays_below_its_mu_and_comes_near(mu, near):
    rng = np.random.default_rng(5)
    found = np.array([st.mu_by_curve(*gaussian_runs(rng, mu, 1000), 0.95) for _ in range(200)])
    assert (found <= mu).mean() >= 0.95  # in truth over 0.99: rates of neighbouring tests go together
    assert np.median(found) >= near * mu


def test_the_band_holds_for_all_its_tests_at_once():
    """True rates of the very thresholds that the band is about, 400 times; coverage is 0.95 or more by Bonferroni."""
    rng, held = np.random.default_rng(6), 0
    for _ in range(400):
        x, member = gaussian_runs(rng, 1.0, 300)
        without, with_ = np.sort(x[~member]), np.sort(x[member])
        few, fewer = st.ranks(len(without)), st.ranks(len(with_))
        cuts = np.concatenate([without[len(without) - 1 - few], with_[fewer]])
        fpr, fnr = st.band(x, member, 0.95)
        held += bool((stats.norm.sf(cuts) <= fpr).all() and (stats.norm.cdf(cuts - 1.0) <= fnr).all())
    assert held >= 0.95 * 400
    assert st.ranks(20).tolist() == [0, 1, 2, 4, 8]
    assert st.band(x, np.ones(300, bool), 0.95)[0].size == 0


@given(strategy.lists(strategy.tuples(strategy.integers(-3, 3), strategy.booleans()), min_size=4, max_size=30))
def test_the_band_is_that_of_its_counts_ties_included(runs):
    x, member = np.array([v for v, _ in runs], float), np.array([m for _, m in runs])
    if member.all() or not member.any():
        return
    n, m = int((~member).sum()), int(member.sum())
    tests = [(sorted(x[~member])[n - 1 - e], e, None) for e in st.ranks(n)]
    tests += [(sorted(x[member])[e] - 0.5, None, e) for e in st.ranks(m)]  # whole numbers: nobody is between
    each = 1 - 0.05 / (2 * len(tests))
    for (cut, alarms, missed), fpr, fnr in zip(tests, *st.band(x, member, 0.95), strict=True):
        seen = int((x[~member] > cut).sum()), int((x[member] <= cut).sum())
        assert seen[0] <= (n if alarms is None else alarms)
        assert seen[1] <= (m if missed is None else missed)
        assert fpr == pytest.approx(float(st.rate_above(seen[0] if alarms is None else alarms, n, each)))
        assert fnr == pytest.approx(float(st.rate_above(seen[1] if missed is None else missed, m, each)))


def test_a_rare_but_certain_leak_is_seen_by_the_curve_and_hardly_by_the_coin_game():
    """One run in five gives the canary away: accuracy 0.6, but no false alarm among the guesses that are sure."""
    rng = np.random.default_rng(7)
    member = np.arange(1000) % 2 == 1
    x = rng.random(1000) + np.where(member & (rng.random(1000) < 0.2), 5.0, 0.0)
    game = max(st.mu_by_game(st.Threshold(cut).count(x, member), 0.95) for cut in (0.5, 1.0))
    assert st.mu_by_curve(x, member, 0.95) > 2 * game
    assert st.by_curve(x, member, 1e-5, 0.95) > 1.5


def test_the_mu_of_a_stated_curve_is_the_ledgers():
    alphas = np.linspace(0.001, 0.999, 300)
    curve = [(0.0, 0.7), *zip(alphas, stats.norm.cdf(-stats.norm.ppf(alphas) - 0.8), strict=True)]
    assert st.mu_of_curve(curve, 0.01) == pytest.approx(0.8, abs=1e-9)  # what cannot be tested is left out
    assert st.mu_of_curve([(0.0, 0.0), (0.5, 0.0)], 0.01) == 0.0


@given(strategy.lists(strategy.tuples(strategy.integers(-4, 4), strategy.booleans()), min_size=4, max_size=25))
def test_the_chosen_threshold_is_the_best_there_is(runs):
    statistic, member = np.array([x for x, _ in runs], float), np.array([m for _, m in runs])
    if member.all() or not member.any():
        return
    negatives, positives = int((~member).sum()), int(member.sum())

    def value(fp, fn):
        above = (float(st.rate_above(k, n, 0.975)) for k, n in ((fp, negatives), (fn, positives)))
        return float(st.mu_of_rates(*map(np.asarray, above)))

    cut = st.best_cut(statistic, member, st.mu_of_rates, 0.95)
    counts = cut.count(statistic, member)
    best = naive.best_cut(statistic.tolist(), member.tolist(), value)
    assert value(counts.false_positives, counts.false_negatives) == pytest.approx(best)


# ---- the attacker


@pytest.fixture
def short(monkeypatch):
    """One round of boosting instead of three: half the questions, the same budget."""
    usual = Plan.for_table
    monkeypatch.setattr(Plan, "for_table", lambda *args, **how: dataclasses.replace(usual(*args, **how), epochs=1))


class Replayed:
    """Follows a run that is replayed from its ledger, and notes what the exact sums would have been in one world."""

    def __init__(self, rows):
        self.rows, self.exact = rows, []
        self.stepped = rows.apply

    def answered(self, question, event, noisy):
        self.exact.append(self.rows.answer(question, noise.GRID * event.cost))


def test_the_privacy_loss_can_be_recomputed_from_the_ledger_and_the_other_rows_alone(tmp_path, monkeypatch):
    others, canary = neighbouring(OUTLIER, seed=3)
    worlds = (others, others.plus(canary))
    setting = AuditSetting.calibrate(SCHEMA, on_private.CASE, 4.0, 1e-5)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    witness = on_private.watched(worlds[1], worlds, setting, ledger)
    assert witness.unrecorded(ledger) == 0

    monkeypatch.setattr(noise, "discrete_gaussian", None)  # nothing is asked anew: all comes from the file
    exact = []
    for world in worlds:
        replayed = Replayed(setting.rows(world))
        nobody = setting.gate(others.only(np.zeros(len(others.person), bool)), Ledger(ledger.path), replayed)
        fit_private(nobody, setting.cells, setting.plan, setting.side)
        exact.append(replayed.exact)
    kept = [Ledger(ledger.path).kept(number) for number in range(len(ledger.events))]
    loss = 0.0
    for event, answer, without, with_ in zip(ledger.events, kept, *exact, strict=True):
        if event.kind == "choice":  # of one pair among one: tells nothing
            assert (event.by, answer.tolist()) == ("pairs", [0])
            continue
        far, near = ((answer - world).astype(float) / noise.GRID for world in (without, with_))
        loss += (far @ far - near @ near) / 2
    assert setting.plan.answers - setting.plan.looked - setting.plan.measured <= len(kept) <= setting.plan.answers
    assert sum(seen.losses().sum() for seen in witness.seen) == pytest.approx(loss, rel=1e-6, abs=1e-6)


def test_a_witness_is_told_what_leaves_and_changes_nothing(short, monkeypatch):
    """The gate's own class, and the same answers with and without it."""
    others, canary = neighbouring(MANY, seed=1)
    setting = AuditSetting.calibrate(SCHEMA, on_private.CASE, 4.0, 1e-5)
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: sums + 5)
    ledgers = (Ledger(), Ledger())
    witness = GateObserver((others, others.plus(canary)), setting)
    for ledger, observer in zip(ledgers, (witness, None), strict=True):
        table = setting.gate(others, ledger, observer)
        assert type(table) is PrivateTable
        fit_private(table, setting.cells, setting.plan, setting.side)
    noised = [number for number, event in enumerate(ledgers[0].events) if event.kind == "gaussian"]
    for number, seen in zip(noised, witness.seen, strict=True):
        assert seen.answer.tolist() == ledgers[0].kept(number).tolist() == ledgers[1].kept(number).tolist()
        assert seen.answer.tolist() == (seen.without + 5).tolist()
    assert len(witness.seen) + 1 == len(ledgers[1].events) <= setting.plan.answers  # which pair is no sum


@pytest.mark.parametrize("name", [OUTLIER, UNSEEN, ALONE, MANY, EARLY, SEVERAL, FAR])
def test_neighbours_differ_by_one_person_who_moves_the_sums_nearly_as_far_as_is_paid_for(name):
    others, canary = neighbouring(name, seed=0)
    assert len(np.unique(canary.person)) == 1
    assert not np.isin(canary.person, others.person).any()
    if name == UNSEEN:
        assert canary.codes[0, 1] not in others.codes[:, 1]
    if name == ALONE:
        assert (others.target["label"].any(), canary.target["label"].all()) == (False, True)
    if name == MANY:
        assert len(canary.person) > CAP
    side = on_private.SIDES.get(name, on_private.CASE)
    setting = AuditSetting.calibrate(SCHEMA, side, 4.0, 1e-5)
    witness = on_private.watched(others, (others, others.plus(canary)), setting, Ledger())
    moved = math.sqrt(sum(seen.moved @ seen.moved for seen in witness.seen)) / noise.GRID
    paid = math.sqrt(sum(seen.cost**2 for seen in witness.seen))
    assert 0.9 * paid < moved <= paid


# ---- the intact build. The audit raises a false alarm with probability at most ALARM = 1e-4: F findings, each compared
# with its claim at confidence 1 − ALARM/F by a bound that holds for every mechanism that keeps its claim.


def test_the_intact_build_passes_an_audit_that_could_see(short):
    told = []
    found = run_audit(epsilon=8.0, runs=40, canaries=200, progress=lambda done, total: told.append((done, total)))
    assert found.passed, found.lines()
    assert found.problems == ()
    assert {f.neighbour for f in found.findings} == {*AUDITORS["private"].neighbours, "200 canaries"}
    assert all(7.9 < f.claim <= 8.0 for f in found.findings if f.neighbour not in (CHOICE, PAIR))
    assert all(f.guarantee == "end-to-end" for f in found.findings)
    assert all(f.reach >= 0.9 * f.claim for f in found.findings if f.reach is not None)
    # a coin game at μ = 1.5 proves less than 1.6 of 8.0 in 40 runs with probability 0.2, all eight with less than 1e-5
    assert found.power > 0.2
    assert told[-1] == (402, 402)
    assert len(told) == 402


def test_a_result_can_be_written_and_read(short):
    found = run_audit(epsilon=4.0, runs=20, canaries=20, neighbours=[OUTLIER])
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (data["method"], data["guarantee"]) == ("private", "end-to-end")
    assert [f["attack"] for f in data["findings"]][:4] == [
        "threshold, (ε, δ)",
        "threshold, Gaussian",
        "coin game, Gaussian",
        "whole curve, Gaussian",
    ]
    for f in data["findings"][1:4]:  # μ, and the ε that it is at the claim's δ
        assert f["bound"] == pytest.approx(st.epsilon_of_mu(f["mu"], 1e-5))
    assert data["findings"][0]["mu"] is None
    lines = found.lines()
    assert lines[0] == "private at ε = 4 (end-to-end, δ = 1e-05)"
    assert len(lines) == 2 + 5 + 1
    assert "μ at least" in lines[1]
    assert "Attacks can show" in lines[-1] or "IN DOUBT" in lines[-1]


def test_the_alarm_level_is_shared_by_all_findings():
    asked = []
    finding = Finding("x", "y", 10, 0.5, 0.95, 1.0, "end-to-end", False, 0.0)

    def bound_at(confidence):
        asked.append(confidence)
        return 1.01 if len(asked) == 2 else 0.99

    found = settled([PendingFinding(finding, bound_at)] * 4)
    assert asked == [1 - ALARM / 4] * 4
    assert [f.exceeded for f in found] == [False, True, False, False]


def test_the_verdict_tells_a_chance_excess_from_a_doubt_and_from_a_refutation():
    def finding(bound, sure):
        return Finding("x", "y", 10, bound, 0.95, 1.0, "end-to-end", sure > 1, sure)

    calm, high, broken = finding(0.5, 0.1), finding(1.2, 0.9), finding(1.5, 1.2)
    cases = {
        (calm,) * 10: "PASSED: no attack refuted the claim; the best one proved 50%",
        (calm,) * 9 + (high,): "PASSED: no attack refuted the claim; the best one proved 120% of its claim (1 of 10",
        (calm,) * 6 + (high,) * 4: "IN DOUBT: 4 of 10 bounds",
        (calm, high, broken): "FAILED: ε is at least 1.50",
    }
    for findings, words in cases.items():
        found = Audit("private", "end-to-end", 1.0, 1e-5, findings)
        assert found.verdict().startswith(words)
        assert found.passed == (broken not in findings)
    books = Audit("private", "end-to-end", 1.0, 1e-5, (calm,), ("LEDGER: 3 answers …",))
    assert (books.passed, books.verdict()) == (False, "FAILED: the method does not keep its own account.")


def test_every_auditor_names_its_pairs_and_its_guarantee():
    assert {name: auditor.guarantee for name, auditor in AUDITORS.items()} == {
        "private": "end-to-end",
        "published": "as-published",
        "dp-geng": "end-to-end",
    }
    assert AUDITORS["private"].neighbours == (OUTLIER, UNSEEN, ALONE, MANY, EARLY, SEVERAL, FAR, CHOICE, PAIR, UNLISTED)
    assert AUDITORS["published"].neighbours == (OUTLIER, UNSEEN, ALONE)


def test_wrong_questions_are_refused_before_any_run():
    with pytest.raises(SettingsError, match="one of private, published, dp-geng"):
        run_audit(method="none")
    with pytest.raises(SettingsError, match="20 or more"):
        run_audit(runs=5)
    with pytest.raises(SettingsError, match="must be among"):
        run_audit(neighbours=["a friend"])
    with pytest.raises(SettingsError, match="epsilon"):
        run_audit(epsilon=0.0)


# ---- broken builds. Runs are chosen so that each is caught with probability over 0.9999: the coin game's right guesses
# are Binomial(runs, Φ(μ/2)) at the μ of the broken build, and the alarm's threshold on them is far below their mean.


def exceeded(found):
    return [f.attack for f in found.findings if f.exceeded]


def test_halved_noise_is_caught(short, monkeypatch):
    honest = noise.discrete_gaussian
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: honest(sums, scale / 2))
    found = run_audit(epsilon=8.0, runs=300, canaries=0, neighbours=[MANY])
    assert exceeded(found), found.lines()
    assert not found.passed
    assert found.problems == ()  # the account looks perfect: only statistics see this
    assert found.verdict().startswith("FAILED: ε is at least")


def test_a_skipped_ledger_is_caught_by_the_books_and_by_statistics(short, monkeypatch):
    """After its first answer the gate forgets to enter; the reported ε is that of one histogram."""
    enter, keep = Ledger.enter, Ledger.keep
    monkeypatch.setattr(Ledger, "enter", lambda self, event: -1 if self.events else enter(self, event))
    monkeypatch.setattr(Ledger, "keep", lambda self, number, answer: number < 0 or keep(self, number, answer))
    found = run_audit(epsilon=8.0, runs=420, canaries=0, neighbours=[MANY])
    assert found.findings[0].claim < 3.0
    assert exceeded(found), found.lines()
    assert any(problem.startswith("LEDGER: 2520 answers") for problem in found.problems)  # all but the first, 420 times


def test_missing_clipping_of_a_person_with_many_rows_is_caught(short, monkeypatch):
    monkeypatch.setattr(behind, "_shrink", lambda length, limit: np.ones_like(length))
    found = run_audit(epsilon=4.0, runs=150, canaries=0, neighbours=[MANY])
    assert exceeded(found), found.lines()
    assert any("moved a sum by 4 times" in problem for problem in found.problems)


def test_a_strategy_that_is_too_long_is_caught(short, monkeypatch):
    """A gate that does not look how long the columns of a strategy are, and a plan that makes them three times so."""
    monkeypatch.setattr(gate, "_in_whole_steps", lambda given, cells: np.trunc(given * gate.STRATEGY).astype(np.int64))
    honest = smoothing.low_frequencies
    monkeypatch.setattr(fit, "low_frequencies", lambda *told: None if (A := honest(*told)) is None else 3 * A)
    found = run_audit(epsilon=4.0, runs=20, canaries=0, neighbours=[OUTLIER])
    assert any(problem.startswith("SENSITIVITY: one person moved a sum") for problem in found.problems), found.lines()
    assert not found.passed


def test_noise_left_out_where_nobody_is_gives_an_unseen_category_away(short, monkeypatch):
    """A sparse release: cells whose true sum is 0 stay 0."""
    honest = noise.discrete_gaussian
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: np.where(sums == 0, 0, honest(sums, scale)))
    found = run_audit(epsilon=2.0, runs=200, canaries=0, neighbours=[UNSEEN])
    assert exceeded(found), found.lines()


def test_a_column_choice_with_a_third_of_its_noise_is_caught(monkeypatch):
    honest = noise.noisy_top
    monkeypatch.setattr(noise, "noisy_top", lambda scores, count, scale: honest(scores, count, scale / 3))
    found = run_audit(epsilon=8.0, runs=800, canaries=0, neighbours=[CHOICE])
    assert exceeded(found), found.lines()


def test_an_honest_column_choice_comes_as_near_its_cost_as_its_runs_allow():
    found = run_audit(epsilon=8.0, runs=800, canaries=0, neighbours=[CHOICE]).findings[0]
    assert not found.exceeded
    assert found.power > 0.25  # its error rates are known to a tenth: two logits, 0.5 of 1.4 in all


def test_a_choice_of_pairs_with_a_tenth_of_its_noise_is_caught(monkeypatch):
    honest = noise.noisy_top
    monkeypatch.setattr(noise, "noisy_top", lambda scores, count, scale: honest(scores, count, scale / 10))
    found = run_audit(epsilon=8.0, runs=400, canaries=0, neighbours=[PAIR])
    assert exceeded(found), found.lines()


def test_unlisted_values_with_halved_noise_are_caught(monkeypatch):
    honest = noise.discrete_gaussian
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: honest(sums, scale / 2))
    found = run_audit(epsilon=8.0, runs=300, canaries=0, neighbours=[UNLISTED])
    assert exceeded(found), found.lines()


def test_the_one_run_audit_sees_missing_noise(short, monkeypatch):
    honest = noise.discrete_gaussian
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: honest(sums, scale / 16))
    found = run_audit(epsilon=1.0, delta=1e-6, runs=20, canaries=200, neighbours=[])
    assert exceeded(found), found.lines()


# ---- dp-geng


def test_the_intact_dp_geng_passes_an_audit_that_could_see():
    found = run_audit(method="dp-geng", epsilon=8.0, runs=100, neighbours=[OUTLIER, MANY])
    assert found.passed, found.lines()
    assert not exceeded(found)
    assert max(f.power for f in found.findings) > 0.2
    assert found.problems == ()


def test_an_audit_is_the_same_under_the_same_noise():
    """Its coins too: an audit that draws any chance elsewhere passes or fails by luck, whatever noise a test has."""
    first, again = (_audited_under("3") for _ in range(2))
    assert first.findings == again.findings
    assert first.findings != _audited_under("4").findings


def _audited_under(other):
    begin("any test", other)
    return run_audit(method="dp-geng", epsilon=4.0, runs=40, neighbours=[OUTLIER])


def test_dp_geng_without_its_noise_or_with_half_of_it_is_caught(monkeypatch):
    honest = noise.discrete_gaussian
    for broken in (lambda sums, scale: sums.copy(), lambda sums, scale: honest(sums, scale / 2)):
        monkeypatch.setattr(noise, "discrete_gaussian", broken)
        found = run_audit(method="dp-geng", epsilon=8.0, runs=300, neighbours=[OUTLIER])
        assert exceeded(found), found.lines()
        assert not found.passed


@pytest.mark.parametrize(("clip", "neighbour"), [("_shrink", MANY), ("_norms", OUTLIER)])
def test_dp_geng_without_a_clip_is_caught(clip, neighbour, monkeypatch):
    """Of a person's sum, and of one row: features and gradients are a thousand times longer than what is paid for."""
    monkeypatch.setattr(behind, clip, lambda length, *_: np.ones(len(length)))
    found = run_audit(method="dp-geng", epsilon=1.0, runs=20, canaries=0, neighbours=[neighbour])
    assert any(problem.startswith("SENSITIVITY: one person moved a sum") for problem in found.problems)
    assert not found.passed


# ---- published


def test_one_run_of_the_published_method_refutes_its_nominal_epsilon():
    """Two hundred canaries with a site of their own: a released row from there gives each away."""
    found = run_audit(method="published", epsilon=1.0, delta=1e-6, runs=20, canaries=200, neighbours=[])
    assert len(exceeded(found)) == 1, found.lines()
    assert not found.passed
    assert found.findings[0].guarantee == "as-published"
    assert "as-published" in found.verdict()


def test_an_outlier_is_read_off_the_published_release():
    others, canary = on_published.neighbouring(OUTLIER, seed=0)
    asked = AuditRequest((OUTLIER,), 2.5, 1e-5, 20, 0, 0, 1)
    worlds = [
        on_published.PublishedTable.from_frame(t, asked, on_published.IPC)
        for t in (others, pd.concat([others, canary]))
    ]
    noiseless = [world.release(noise=False) for world in worlds]
    far = [on_published.nearer(world.release(), *noiseless) for world in worlds]
    assert far[0] < 0 < far[1]


def test_the_budget_a_gaussian_claim_means_is_the_accountants():
    assert st.epsilon_of_mu(gaussian_mu(2.0, 1e-5), 1e-5) == pytest.approx(2.0, abs=1e-9)
