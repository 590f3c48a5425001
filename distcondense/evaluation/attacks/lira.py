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
    Targets,
    attacked,
    ceilings_of,
    judged,
    nothing,
    roc_figure,
    why_not,
)
from distcondense.evaluation.attacks.mixed_table import OutcomeGroups
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.ruler import Ruler
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Section, quiet
from distcondense.kernels.neighbours import nearest
from distcondense.methods.base import Condensed, Context, Options, method_named, options_of
from distcondense.outcomes.measures import auroc

NAME = "lira"
TITLE = "LiRA: shadow runs"
SHADOWS = 16
FEWEST = 4  # shadow runs, with less there is no distribution
TARGETS = 600  # members, and as many outsiders: with SHADOWS just enough to see one false alarm in a thousand
EXCHANGES = 40  # of who was in, to see how scores of every run vary by chance
APART = 100  # of them the farthest from everybody else, of CANDIDATES
CANDIDATES = 4_000
TAUGHT = 5_000  # condensed rows that a student is taught with
OWN_SPREAD = 64  # shadows from which on each target has its own standard deviation
SURE = 1e-5  # probabilities are taken for no closer to 0 or 1
NEAR = 1e-3  # distances for no smaller
TREES, LINEAR, NEAREST = "boosted trees", "logistic", "nearest row"
STATISTICS = (TREES, LINEAR, NEAREST)
ALL_RUNS = f"{MEMBERSHIP}, every run in turn"
ASK = (
    "Shadow runs are asked for with --shadows N: each costs a condensation. Their noise is fresh, and no account is "
    "charged: what they make is looked at in internal/ only and never released."
)

Rerun = Callable[[Cohort, int], Condensed]  # the same method and settings on another table, with this seed


def section(
    inputs: EvaluationInput,
    *,
    seed: int,
    threads: int,
    log: Callable[[str], None] = quiet,
    shadows: int = SHADOWS,
    rerun: Rerun | None = None,
) -> Section:
    """The attack with so many shadow runs; without `rerun` a part that says how they are asked for."""
    if rerun is None or shadows < 1:
        found = nothing(NAME, TITLE, "no shadow runs were asked for")
        return replace(found, notes=(*found.notes, ASK))
    if why := why_not(inputs):
        return nothing(NAME, TITLE, why)
    chosen = LiraTargets.of(inputs, seed=seed, threads=threads)
    if why := why_not(inputs, chosen.targets):
        return nothing(NAME, TITLE, why)
    runs = [ObservedRun.of(inputs, chosen, chosen.targets.member, seed=seed, threads=threads)]
    for k in range(shadows):
        log(f"LiRA: shadow run {k + 1} of {shadows}")
        own = int(np.random.default_rng([seed, k, 0x54AD]).integers(2**31))
        shadow = _shadow(inputs, chosen, rerun, seed=own, threads=threads)
        runs += [] if shadow is None else [shadow]
    if len(runs) - 1 < FEWEST:
        few = f"{len(runs) - 1} of {shadows} shadow runs made rows, and fewer than {FEWEST} are no distribution"
        return nothing(NAME, TITLE, few)
    return _written(inputs, chosen.targets, runs, shadows, seed)


def rerun_of(name: str, options: Options | Mapping[str, Any], *, threads: int = 1) -> Rerun:
    """The method of that name with these settings, without a folder or an account."""
    method = method_named(name)

    def rerun(cohort: Cohort, seed: int) -> Condensed:
        if isinstance(options, Mapping):
            own = options_of(method, {**options, "seed": seed})
        else:
            own = replace(options, seed=seed)
        (made,) = method.condense(cohort, method.prepare(cohort.facts, own), Context(threads=threads)).values()
        return made

    return rerun


# -- who is attacked, and what is seen of a run -----------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class LiraTargets:
    """The targets: their places in the table, and as base.py knows them."""

    places: Index  # (n,) row numbers, members first
    outcome: Outcome
    classes: OutcomeGroups
    targets: Targets

    @classmethod
    def of(cls, inputs: EvaluationInput, *, seed: int, threads: int) -> LiraTargets:
        """By chance, and of each side those who are farthest from everybody else."""
        rng = np.random.default_rng([seed, 0x117A])
        members, outsiders = (_one_each(inputs, part, rng) for part in (inputs.split.train, inputs.split.test))
        count = min(len(members), len(outsiders), CANDIDATES)
        places = np.concatenate([members[:count], outsiders[:count]])
        rows = inputs.codec.encode(inputs.cohort.features.iloc[places])
        ruler = Ruler.of(rows)
        apart = nearest(ruler(rows), ruler(rows), 2, threads)[0][:, -1] if count > 1 else np.zeros(len(places))
        kept = np.concatenate([side + _both_ways(apart[side : side + count]) for side in (0, count)]).astype(np.int64)
        outcome = inputs.kind.in_unit(inputs.cohort.outcome.take(places[kept]), inputs.unit)
        targets = Targets(
            rows=rows[kept],
            ruler=ruler,
            member=kept < count,
            outcome=outcome,
            apart=apart[kept],
            reference=np.empty(0, np.int64),
            members=len(members),
            outsiders=len(outsiders),
            by_person=inputs.cohort.person is not None,
        )
        return cls(places[kept], outcome, OutcomeGroups.of(inputs.made), targets)


def _one_each(inputs: EvaluationInput, part: Index, rng: np.random.Generator) -> Index:
    """Row numbers in random order; of a person with several rows one of them."""
    mixed = rng.permutation(part)
    if inputs.cohort.person is None:
        return mixed
    return mixed[np.sort(np.unique(inputs.cohort.person[mixed], return_index=True)[1])]


def _both_ways(apart: Floats) -> Index:
    """At most TARGETS: the APART that are farthest, and the first of the others, whose order is chance."""
    far = np.argsort(-apart, kind="stable")[:APART]
    others = np.setdiff1d(np.arange(len(apart)), far)[: TARGETS - len(far)]
    return np.concatenate([far, others])


@dataclass(frozen=True, repr=False)
class ObservedRun:
    """What an attacker sees of one run: a statistic of each kind of every target, and who was in."""

    statistics: Mapping[str, Floats]  # (n,) each
    inside: Flags  # (n,)

    @classmethod
    def of(cls, inputs: EvaluationInput, chosen: LiraTargets, inside: Flags, *, seed: int, threads: int) -> ObservedRun:
        """`home` has this run's own condensed rows and scaling, and everybody's features."""
        people = inputs.codec.encode(inputs.cohort.features.iloc[chosen.places])
        rows, outcome = inputs.rows, inputs.made
        if len(rows) > TAUGHT:
            some = np.sort(np.random.default_rng([seed, 0x7A06]).choice(len(rows), TAUGHT, replace=False))
            rows, outcome = rows[some], outcome.take(some)
        label, asked = chosen.classes.codes(outcome), chosen.classes.codes(chosen.outcome)
        ruler = Ruler.of(people)
        near = nearest(ruler(people), ruler(rows), 1, threads)[0][:, 0]
        found = {name: confidence(name, rows, label, people, asked, threads) for name in (TREES, LINEAR)}
        return cls({**found, NEAREST: -np.log(near + NEAR)}, inside)


def confidence(name: str, rows: Matrix, label: Index, people: Matrix, asked: Index, threads: int) -> Floats:
    """(n,) log p − log(1 − p) of each target's own outcome, by a student of the rows; 0 where it learned nothing."""
    there, code = np.unique(label, return_inverse=True)
    if len(there) < 2:
        return np.zeros(len(people))
    model = _student(name, threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # students of few rows may stop early: no news here
        probability = np.asarray(model.fit(rows, code).predict_proba(people), np.float64)
    known = np.isin(asked, there)
    own = probability[np.arange(len(people)), np.searchsorted(there, np.where(known, asked, there[0]))]
    own = np.clip(np.where(known, own, 0.0), SURE, 1 - SURE)
    return np.asarray(np.log(own) - np.log1p(-own), np.float64)


def _student(name: str, threads: int) -> Any:
    if name == TREES:
        from xgboost import XGBClassifier

        from distcondense.models import learners

        more = {"n_estimators": learners.ROUNDS, "n_jobs": threads, "verbosity": 0, "random_state": 0}
        return XGBClassifier(**learners.TREES, **more)
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=500)


def _shadow(
    inputs: EvaluationInput, chosen: LiraTargets, rerun: Rerun, *, seed: int, threads: int
) -> ObservedRun | None:
    """One run on so many of the persons that half of all are condensed; None where it made no rows."""
    cohort = inputs.cohort
    rng = np.random.default_rng([seed, 0xC01])
    person = np.arange(len(cohort)) if cohort.person is None else cohort.person
    share = min(1.0, 0.5 * len(cohort) / max(1, len(inputs.split.train)))  # the method leaves some out by itself
    some = np.flatnonzero((rng.random(int(person.max()) + 1) < share)[person])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistcondenseWarning)  # the run itself has said them
        try:
            table = cohort.take(some)
            own = EvaluationInput.of(table, rerun(table, seed))
        except UserError:
            return None
    if not len(own.rows):
        return None
    inside = np.zeros(len(cohort), bool)
    inside[some[own.split.train]] = True
    whole = replace(own, cohort=cohort)  # its rows and scaling, with everybody to ask about
    return ObservedRun.of(whole, chosen, inside[chosen.places], seed=seed, threads=threads)


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
    def of(cls, statistic: Floats, inside: Flags) -> ShadowNormals:
        """statistic (shadows, n), inside (shadows, n)."""
        own = len(statistic) >= OWN_SPREAD
        mean_in, sd_in = _normal(statistic, inside, own)
        mean_out, sd_out = _normal(statistic, ~inside, own)
        return cls(mean_in, sd_in, mean_out, sd_out, (inside.sum(0) >= 2) & ((~inside).sum(0) >= 2))

    def online(self, observed: Floats) -> Floats:
        """(n,) log-likelihood ratio; 0 for targets that nothing is known of."""
        with_it = -(((observed - self.mean_in) / self.sd_in) ** 2) / 2 - np.log(self.sd_in)
        without = -(((observed - self.mean_out) / self.sd_out) ** 2) / 2 - np.log(self.sd_out)
        return np.where(self.known, with_it - without, 0.0)

    def offline(self, observed: Floats) -> Floats:
        """(n,) how far above what is seen without the target."""
        return np.where(self.known, (observed - self.mean_out) / self.sd_out, 0.0)


def _normal(statistic: Floats, these: Flags, own: bool) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column over these entries; one standard deviation of all, unless `own`."""
    n = these.sum(0)
    mean = np.where(these, statistic, 0.0).sum(0) / np.maximum(n, 1)
    squares = (np.where(these, statistic - mean, 0.0) ** 2).sum(0)
    freedom = np.maximum(n - 1, 0)
    if own:
        variance = squares / np.maximum(freedom, 1)
    else:
        variance = np.full(len(mean), squares.sum() / max(1, int(freedom.sum())))
    return mean, np.sqrt(variance) + 1e-6


# -- the part ---------------------------------------------------------------------------------------------------------


def every_run(runs: Sequence[ObservedRun], name: str) -> tuple[Floats, Floats]:
    """(runs, n) online and offline scores, each run attacked from all the others."""
    statistic, inside = np.stack([run.statistics[name] for run in runs]), np.stack([run.inside for run in runs])
    online, offline = np.empty_like(statistic), np.empty_like(statistic)
    for k in range(len(runs)):
        others = np.arange(len(runs)) != k
        normals = ShadowNormals.of(statistic[others], inside[others])
        online[k], offline[k] = normals.online(statistic[k]), normals.offline(statistic[k])
    return online, offline


def crowd_of(runs: Sequence[ObservedRun], name: str, seed: int) -> float:
    """How many scores of every run vary like one: two runs are each attacked from the other, and a run's rows move all
    of its targets. Seen where who was in changes by chance, run by run, which is what it would be if nothing leaked."""
    inside = np.stack([run.inside for run in runs])
    rng, found = np.random.default_rng([seed, 0xC40D]), []
    for _ in range(EXCHANGES):
        others = rng.permuted(inside, axis=1)
        online, _ = every_run([replace(run, inside=who) for run, who in zip(runs, others, strict=True)], name)
        found.append(auroc(others.ravel().astype(np.int8), online.ravel()))
    members, outsiders = int(inside.sum()), int((~inside).sum())
    alone = (members + outsiders + 1) / (12 * members * outsiders)  # variance of an AUROC of independent scores
    return max(1.0, float(np.var(found)) / alone)


def _written(inputs: EvaluationInput, targets: Targets, runs: list[ObservedRun], asked: int, seed: int) -> Section:
    ceilings = ceilings_of(inputs)
    scores: list[Score] = []
    curves: dict[str, Floats] = {}
    inside = np.stack([run.inside for run in runs])
    pooled = replace(targets, rows=targets.rows[:0], member=inside.ravel(), apart=np.tile(targets.apart, len(runs)))

    def asked_of(
        score: Floats, who: Targets, student: str, on: str, only: tuple[str, ...] = (), crowd: float = 1.0
    ) -> list[Score]:
        found = judged(score, who, ceilings, inputs=inputs, seed=seed, student=student, crowd=crowd)
        found = [one for one in found if not only or (one.measure in only and not one.group)]
        return [replace(one, tested_on=on) for one in found]

    for name in STATISTICS:
        online, offline = every_run(runs, name)
        curves[name] = online.ravel()
        crowd = crowd_of(runs, name, seed)
        scores += asked_of(online.ravel(), pooled, f"{name}, online", ALL_RUNS, crowd=crowd)
        scores += asked_of(offline.ravel(), pooled, f"{name}, offline", ALL_RUNS, (AUROC, TPR_001), crowd)
        scores += asked_of(online[0], targets, f"{name}, online", MEMBERSHIP, (AUROC, ADVANTAGE))
    members = int(inside.sum())
    notes = [
        f"{len(runs) - 1} of {asked} shadow runs made rows; each was attacked from all other runs, and so was the "
        f"released one: {members:,} times a target was in, {inside.size - members:,} times it was not.",
        f"At most {TARGETS:,} members and as many outsiders are targets, up to {APART:,} of each because they are the "
        f"farthest from everybody else; a student is taught with at most {TAUGHT:,} condensed rows.",
        "Shadow runs have fresh noise, and no account is charged for them: what they make is looked at in internal/ "
        "only and never released.",
        "Scores of every run are wider than those of as many independent targets would be, by as much as they vary "
        "where who was in is exchanged at random.",
    ]
    bounds = {"shadows": len(runs) - 1, "targets": TARGETS, "apart": APART, "taught": TAUGHT}
    figures = [roc_figure(curves, pooled, ceilings)]
    return attacked(NAME, TITLE, inputs, targets, scores, notes=notes, figures=figures, settings=bounds)
