"""LiRA, the likelihood-ratio attack with shadow runs (Carlini et al. 2022), as DP-GENG measures it (Table 2).

The attacker repeats the whole run on random halves of the population, so that each target is in about half of these
shadow runs. Of every run, the shadows and the one that was released, a target has a statistic φ: how sure a student of
its condensed rows is of the target's own outcome, on the logit scale, log p − log(1 − p); or how near the nearest
condensed row is. Of the shadows with the target, and of those without, φ gets a normal distribution each:

    online    log N(φ; in) − log N(φ; out)      offline   (φ − mean out)/sd out, which needs no shadow with the target

With few shadows all targets share one standard deviation of either kind, as the paper advises. What is attacked is the
released run, and, because one run has too few outsiders to see one false alarm in a thousand, every run in turn, from
all the others.

Each shadow costs a condensation, so they are asked for. Their noise is fresh, and no account is charged: what they make
is looked at in `internal/` only, and never released.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distcondense.arrays import Flags, Floats, Index, Matrix
from distcondense.data.cohort import Cohort
from distcondense.data.outcome import Outcome
from distcondense.errors import DistcondenseWarning, UserError
from distcondense.evaluation.attacks.base import (
    ADVANTAGE,
    AUROC,
    MEMBERSHIP,
    TPR_001,
    attack,
    attacked,
    judged,
    roc_figure,
)
from distcondense.evaluation.attacks.mixed_table import outcome_groups
from distcondense.evaluation.attacks.targets import LEAST, NotAttackedError, Targets, both_sides
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.resampling import choose
from distcondense.evaluation.ruler import Ruler
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.kernels.neighbours import nearest
from distcondense.methods.base import Context, Options, method_named, options_of
from distcondense.outcomes.measures import auroc
from distcondense.runs.result import Result

NAME, TITLE = "lira", "LiRA: shadow runs"
SHADOWS = 16
FEWEST = 4  # shadow runs, with less there is no distribution
TARGETS = 600  # members, and as many outsiders: with SHADOWS just enough to see one false alarm in a thousand
EXCHANGES = 40  # of who was in, to see how scores of every run vary by chance
APART = 100  # of them the farthest from everybody else, of CANDIDATES
CANDIDATES = 4_000
TAUGHT = 5_000  # condensed rows that a student is trained on
OWN_SPREAD = 64  # shadows from which on each target has its own standard deviation
SURE = 1e-5  # probabilities are taken for no closer to 0 or 1
NEAR = 1e-3  # distances for no smaller
TREES, LINEAR, NEAREST = STATISTICS = ("boosted trees", "logistic", "nearest row")
ALL_RUNS = f"{MEMBERSHIP}, every run in turn"
NOT_RELEASED = (
    "Their noise is fresh, and no account is charged: what they make is looked at in internal/ only and never released."
)

Rerun = Callable[[Cohort, int], Result]  # the same method and settings on another table, with this seed


@attack(NAME, TITLE)
def section(
    inputs: EvaluationInput,
    *,
    seed: int,
    threads: int,
    log: Log = quiet,
    shadows: int = SHADOWS,
    rerun: Rerun | None = None,
) -> Section:
    """The attack with so many shadow runs; without `rerun` a section that says how they are asked for."""
    if rerun is None or shadows < 1:
        ask = f"Shadow runs are asked for with --shadows N: each costs a condensation. {NOT_RELEASED}"
        raise NotAttackedError(f"no shadow runs were asked for. {ask.rstrip('.')}")
    places, targets = _draw_targets(inputs, seed=seed, threads=threads)
    runs = [ObservedRun.observe(inputs, inputs.made, places, targets.member, seed=seed, threads=threads)]
    for k in range(shadows):
        log(f"LiRA: shadow run {k + 1} of {shadows}")
        shadow_seed = int(np.random.default_rng([seed, k, 0x54AD]).integers(2**31))
        shadow = _shadow(inputs, places, rerun, seed=shadow_seed, threads=threads)
        runs += [] if shadow is None else [shadow]
    if len(runs) - 1 < FEWEST:
        raise NotAttackedError(
            f"{len(runs) - 1} of {shadows} shadow runs made rows, and fewer than {FEWEST} are no distribution"
        )
    inside = np.stack([run.inside for run in runs])
    pooled = replace(targets, rows=targets.rows[:0], member=inside.ravel(), apart=np.tile(targets.apart, len(runs)))
    scores: list[Score] = []
    curves: dict[str, Floats] = {}
    for name in STATISTICS:
        online, offline = every_run(runs, name)
        curves[name] = online.ravel()
        crowd = crowd_of(runs, name, seed)
        everywhere: dict[str, Any] = {"inputs": inputs, "seed": seed, "crowd": crowd}
        scores += _on(ALL_RUNS, judged(curves[name], pooled, student=f"{name}, online", **everywhere))
        of_offline = judged(offline.ravel(), pooled, student=f"{name}, offline", **everywhere)
        scores += _on(ALL_RUNS, of_offline, (AUROC, TPR_001))
        released = judged(online[0], targets, inputs=inputs, seed=seed, student=f"{name}, online")
        scores += _on(MEMBERSHIP, released, (AUROC, ADVANTAGE))
    members = int(inside.sum())
    notes = [
        f"{len(runs) - 1} of {shadows} shadow runs made rows; each was attacked from all other runs, and so was the "
        f"released one: {members:,} times a target was in, {inside.size - members:,} times it was not.",
        f"At most {TARGETS:,} members and as many outsiders are targets, up to {APART:,} of each because they are the "
        f"farthest from everybody else; a student is trained on at most {TAUGHT:,} condensed rows.",
        f"Shadow runs: {NOT_RELEASED}",
        "Scores of every run are wider than those of as many independent targets would be, by as much as they vary "
        "where who was in is exchanged at random.",
    ]
    settings = {"shadows": len(runs) - 1, "targets": TARGETS, "apart": APART, "taught": TAUGHT}
    figures = [roc_figure(curves, pooled, inputs)]
    more: dict[str, Any] = {"scores": scores, "notes": notes, "figures": figures, "settings": settings}
    return attacked(NAME, TITLE, inputs, targets, {}, seed=seed, **more)


def _on(tested_on: str, scores: Sequence[Score], only: tuple[str, ...] = ()) -> list[Score]:
    """Scores as measured on these; of some measures only, then of all targets only."""
    kept = [score for score in scores if not only or (score.measure in only and not score.group)]
    return [replace(score, tested_on=tested_on) for score in kept]


def rerun_of(name: str, options: Options | Mapping[str, Any], *, threads: int = 1) -> Rerun:
    """The method of that name with these settings, without a folder or an account."""
    method = method_named(name)

    def rerun(cohort: Cohort, seed: int) -> Result:
        if isinstance(options, Mapping):
            seeded = options_of(method, {**options, "seed": seed})
        else:
            seeded = replace(options, seed=seed)
        (made,) = method.condense(cohort, method.prepare(cohort.facts, seeded), Context(threads=threads)).values()
        return made

    return rerun


# -- who is attacked, and what is seen of a run -----------------------------------------------------------------------


def _draw_targets(inputs: EvaluationInput, *, seed: int, threads: int) -> tuple[Index, Targets]:
    """(n,) row numbers, members first, and the targets: by chance, and of each side those farthest from everybody."""
    members, outsiders = both_sides(inputs, np.random.default_rng([seed, 0x117A]))
    count = min(len(members), len(outsiders), CANDIDATES)
    if count < LEAST:
        raise NotAttackedError(f"fewer than {LEAST} persons in the table or held out: too few to say anything")
    places = np.concatenate([members[:count], outsiders[:count]])
    rows = inputs.codec.encode(inputs.cohort.features.iloc[places])
    ruler = Ruler.of(rows)
    apart = nearest(ruler(rows), ruler(rows), 2, threads)[0][:, -1]
    sides = []
    for start in (0, count):  # the APART that are farthest, and the first of the others, whose order is chance
        far = np.argsort(-apart[start : start + count], kind="stable")[:APART]
        sides += [start + far, start + np.setdiff1d(np.arange(count), far)[: TARGETS - len(far)]]
    kept = np.concatenate(sides).astype(np.int64)
    return places[kept], Targets(
        rows=rows[kept],
        ruler=ruler,
        member=kept < count,
        outcome=inputs.kind.in_unit(inputs.cohort.outcome.take(places[kept]), inputs.unit),
        apart=apart[kept],
        reference=np.empty(0, np.int64),
        members=len(members),
        outsiders=len(outsiders),
        by_person=inputs.cohort.person is not None,
    )


@dataclass(frozen=True, repr=False)
class ObservedRun:
    """What an attacker sees of one run: a statistic of each kind of every target, and who was in."""

    statistics: Mapping[str, Floats]  # (n,) each
    inside: Flags  # (n,)

    @classmethod
    def observe(
        cls, inputs: EvaluationInput, released: Outcome, places: Index, inside: Flags, *, seed: int, threads: int
    ) -> ObservedRun:
        """`inputs` has this run's own condensed rows and scaling, and everybody's features.

        Outcomes are grouped as those of the `released` rows are.
        """
        people = inputs.codec.encode(inputs.cohort.features.iloc[places])
        chosen = choose(len(inputs.rows), TAUGHT, np.random.default_rng([seed, 0x7A06]))
        rows, ruler = inputs.rows[chosen], Ruler.of(people)
        truth = inputs.kind.in_unit(inputs.cohort.outcome.take(places), inputs.unit)
        label, asked = outcome_groups(released, inputs.made.take(chosen), truth)
        near = nearest(ruler(people), ruler(rows), 1, threads)[0][:, 0]
        sure = {name: confidence(name, rows, label, people, asked, threads) for name in (TREES, LINEAR)}
        return cls({**sure, NEAREST: -np.log(near + NEAR)}, inside)


def confidence(name: str, rows: Matrix, label: Index, people: Matrix, asked: Index, threads: int) -> Floats:
    """(n,) log p − log(1 − p) of each target's own outcome, by a student of the rows; 0 where it learned nothing."""
    from sklearn.linear_model import LogisticRegression
    from xgboost import XGBClassifier

    from distcondense.models import learners

    there, code = np.unique(label, return_inverse=True)
    if len(there) < 2:
        return np.zeros(len(people))
    model: Any = LogisticRegression(max_iter=500)
    if name == TREES:
        more = {"n_estimators": learners.ROUNDS, "n_jobs": threads, "verbosity": 0, "random_state": 0}
        model = XGBClassifier(**learners.TREES, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # students of few rows may stop early: no news here
        probability = np.asarray(model.fit(rows, code).predict_proba(people), np.float64)
    known = np.isin(asked, there)
    p = probability[np.arange(len(people)), np.searchsorted(there, np.where(known, asked, there[0]))]
    p = np.clip(np.where(known, p, 0.0), SURE, 1 - SURE)
    return np.asarray(np.log(p) - np.log1p(-p), np.float64)


def _shadow(inputs: EvaluationInput, places: Index, rerun: Rerun, *, seed: int, threads: int) -> ObservedRun | None:
    """One run on so many of the persons that half of all are condensed; None where it made no rows."""
    cohort, rng = inputs.cohort, np.random.default_rng([seed, 0xC01])
    person = np.arange(len(cohort)) if cohort.person is None else cohort.person
    share = min(1.0, 0.5 * len(cohort) / max(1, len(inputs.split.train)))  # the method leaves some out by itself
    chosen = np.flatnonzero((rng.random(int(person.max()) + 1) < share)[person])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistcondenseWarning)  # the run itself has said them
        try:
            table = cohort.take(chosen)
            shadow = EvaluationInput.from_result(table, rerun(table, seed))
        except UserError:
            return None
    if not len(shadow.rows):
        return None
    inside = np.zeros(len(cohort), bool)
    inside[chosen[shadow.split.train]] = True
    whole = replace(shadow, cohort=cohort)  # its rows and scaling, with everybody to ask about
    return ObservedRun.observe(whole, inputs.made, places, inside[places], seed=seed, threads=threads)


# -- the likelihood ratio ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShadowNormals:
    """Of each target: mean and standard deviation of φ in shadow runs with it and without it."""

    mean_in: Floats
    sd_in: Floats
    mean_out: Floats
    sd_out: Floats
    known: Flags  # targets that were in and out of two shadow runs at least

    @classmethod
    def fit(cls, statistic: Floats, inside: Flags) -> ShadowNormals:
        """statistic (shadows, n), inside (shadows, n)."""
        known = (inside.sum(0) >= 2) & ((~inside).sum(0) >= 2)
        return cls(*_normal(statistic, inside), *_normal(statistic, ~inside), known)

    def online(self, observed: Floats) -> Floats:
        """(n,) log-likelihood ratio; 0 for targets that nothing is known of."""
        with_it = -(((observed - self.mean_in) / self.sd_in) ** 2) / 2 - np.log(self.sd_in)
        without = -(((observed - self.mean_out) / self.sd_out) ** 2) / 2 - np.log(self.sd_out)
        return np.where(self.known, with_it - without, 0.0)

    def offline(self, observed: Floats) -> Floats:
        """(n,) how far above what is seen without the target."""
        return np.where(self.known, (observed - self.mean_out) / self.sd_out, 0.0)


def _normal(statistic: Floats, these: Flags) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column over these entries; one standard deviation of all with few runs."""
    n = these.sum(0)
    mean = np.where(these, statistic, 0.0).sum(0) / np.maximum(n, 1)
    squares, freedom = (np.where(these, statistic - mean, 0.0) ** 2).sum(0), np.maximum(n - 1, 0)
    variance = squares / np.maximum(freedom, 1)
    if len(statistic) < OWN_SPREAD:
        variance = np.full(len(mean), squares.sum() / max(1, int(freedom.sum())))
    return mean, np.sqrt(variance) + 1e-6


def every_run(runs: Sequence[ObservedRun], name: str) -> tuple[Floats, Floats]:
    """(runs, n) online and offline scores, each run attacked from all the others."""
    statistic, inside = np.stack([run.statistics[name] for run in runs]), np.stack([run.inside for run in runs])
    online, offline = np.empty_like(statistic), np.empty_like(statistic)
    for k in range(len(runs)):
        others = np.arange(len(runs)) != k
        normals = ShadowNormals.fit(statistic[others], inside[others])
        online[k], offline[k] = normals.online(statistic[k]), normals.offline(statistic[k])
    return online, offline


def crowd_of(runs: Sequence[ObservedRun], name: str, seed: int) -> float:
    """How many scores of every run vary like one: two runs are each attacked from the other, and a run's rows move all
    of its targets. Seen where who was in changes by chance, run by run, which is what it would be if nothing leaked."""
    inside = np.stack([run.inside for run in runs])
    rng, areas = np.random.default_rng([seed, 0xC40D]), []
    for _ in range(EXCHANGES):
        others = rng.permuted(inside, axis=1)
        online, _ = every_run([replace(run, inside=who) for run, who in zip(runs, others, strict=True)], name)
        areas.append(auroc(others.ravel().astype(np.int8), online.ravel()))
    members, outsiders = int(inside.sum()), int((~inside).sum())
    alone = (members + outsiders + 1) / (12 * members * outsiders)  # variance of an AUROC of independent scores
    return max(1.0, float(np.var(areas)) / alone)
