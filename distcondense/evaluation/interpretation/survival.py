"""Survival curves of real and condensed rows side by side, of all rows and by risk group (Thakur et al. 2026, Fig 2).

Curves are drawn at no more than 60 equal steps up to a horizon that comes from the released rows, and only while ten
patients are at risk: no patient's time can be read off. Risk groups are made by the scores of a model of real training
rows, and cut at the quantiles of the rows themselves: patients by their own, condensed rows by theirs.

As the paper draws it, beside them: what models of real and of condensed rows predict for the held-out patients, on
average over these, and what was observed of them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from distcondense.arrays import Flags, Floats, Index, Numbers
from distcondense.data.outcome import Outcome
from distcondense.errors import ModelError
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.interpretation.training import predictions
from distcondense.evaluation.resampling import RESAMPLES, between, in_words, resampled, some_of
from distcondense.evaluation.score import CONDENSED, HELD_OUT, PLAIN, RANDOM, TRAINED_ON, UNKNOWN, Score
from distcondense.models.base import Model
from distcondense.models.learners import Learner, TrainingSet
from distcondense.outcomes.kaplan_meier import SurvivalCurves
from distcondense.runs.figures import STEPS, Figure, Series, Table

STEPS_DRAWN = 60  # of a curve, at most
AT_RISK = 10  # patients; with fewer at risk a curve ends
THIRDS, HALVES = 90, 20  # rows from which on three groups, or two, are made
EVENLY = 20_000  # rows that stand for weighted ones, each as often as it weighs
TIMES = 5  # at which numbers at risk are shown
ALL, MEAN = "all rows", "mean of risk groups"
GROUPS = {2: ("lower risk", "higher risk"), 3: ("low risk", "middle risk", "high risk")}

Pairs = dict[str, tuple[Flags, SurvivalCurves, SurvivalCurves]]  # group → held-out rows in it, their and our curves


def survival_parts(
    inputs: EvaluationInput, learner: Learner, train: Sample, test: Sample, *, seed: int, threads: int
) -> dict[str, Any]:
    """Scores, figures, tables, notes and settings of a section on survival; notes alone where nobody is at risk."""
    real, made = _curves(test.outcome, inputs.unit), _curves(inputs.labelled.outcome, 1.0)
    grid = public_grid(made, real)
    if not len(grid):
        return {"notes": (f"Fewer than {AT_RISK} held-out rows are at risk at any time of the curves.",)}
    notes = [
        f"Risk groups by the scores of a student of {some_of(len(train), train.of)} real training rows; held-out and "
        "condensed rows are each cut at their own quantiles.",
        f"Curves of {some_of(len(test), test.of)} held-out rows. A distance is the mean gap between two curves up to "
        "their common horizon; 0.01 is one percentage point.",
        f"“{TRAINED_ON[RANDOM]}”: what as many held-out rows, drawn with replacement, differ by: chance alone.",
        "Intervals resample the held-out rows; the condensed rows, the student and its cuts stay as they are. A "
        "distance cannot be below 0, so resamples lie above it on average.",
    ]
    every: Pairs = {ALL: (np.ones(len(real), bool), real, made)}
    groups: Pairs = {}
    tables: list[Table] = []
    if len(made) < HALVES:
        notes.append(f"Fewer than {HALVES} condensed rows: no risk groups.")
    else:
        try:
            if lacking := inputs.kind.lacking(train.outcome):
                raise ModelError("student", f"needs rows with {lacking}", found="none")
            model = learner.fit(inputs.codec.encode(train.features), train.outcome, seed=seed, threads=threads)
        except (ModelError, ValueError, ArithmeticError) as error:
            notes.append(f"No risk groups: the student could not be taught ({type(error).__name__}).")
        else:
            names = GROUPS[3 if min(len(real), len(made)) >= THIRDS else 2]
            sign = -1.0 if model.link == "log-time" else 1.0  # a longer log-time is a lower risk
            mine, theirs = (
                risk_groups(sign * model.scores(rows), len(names))
                for rows in (inputs.codec.encode(test.features), inputs.rows)
            )
            for number, name in enumerate(names):
                groups[name] = (mine == number, real.take(mine == number), made.take(theirs == number))
            tables = [_log_rank(real, made, mine, theirs)]
    figures = [_figure("survival-all", "Survival of all rows", every, grid, inputs)]
    if groups:
        figures.append(_figure("survival-groups", "Survival by risk group", groups, grid, inputs))
    drawn, predicted = _predicted(inputs, learner, train, test, real, grid, seed=seed, threads=threads)
    figures += drawn
    return {
        "scores": (*_distances({**every, **groups}, grid, inputs, test, learner.name, seed), *predicted),
        "figures": tuple(figures),
        "tables": (_numbers_at_risk({**every, **groups}, grid), *tables),
        "notes": tuple(notes),
        "settings": {
            "student": learner.name,
            "taught with rows": len(train),
            "held-out rows": len(test),
            "of held-out rows": test.of,
            "steps": len(grid),
            "horizon": float(f"{grid[-1]:.6g}"),
            "resamples": RESAMPLES,
        },
    }


def _curves(outcome: Outcome, unit: float) -> SurvivalCurves:
    """In the table's own unit of time."""
    return SurvivalCurves(tidy(np.asarray(outcome["time"], np.float64) * unit), outcome["label"] == 1)


def tidy(times: Floats) -> Floats:
    """Without what float64 put into their twelfth digit, so that equal times are equal."""
    longest = float(times.max(initial=0.0))
    return np.round(times, 11 - math.floor(math.log10(longest))) if longest > 0 else times


def public_grid(made: SurvivalCurves, real: SurvivalCurves) -> Floats:
    """(≤ 60,) equal steps to a horizon that no patient's time is in: the released rows' longest time, rounded up to two
    digits, halved until ten patients and one released row reach its half, and cut where fewer are at risk."""
    longest = float(made.time.max())
    digit = 10.0 ** (math.floor(math.log10(longest)) - 1)
    horizon = math.ceil(longest / digit) * digit

    def reached(until: Floats) -> Flags:
        return np.asarray((real.at_risk(until) >= AT_RISK) & (made.at_risk(until) >= 1))

    for _ in range(64):
        if reached(np.array([horizon / 2]))[0]:
            break
        horizon /= 2
    grid = tidy(horizon * np.arange(1, STEPS_DRAWN + 1) / STEPS_DRAWN)
    return grid[reached(grid)]


def common(grid: Floats, real: SurvivalCurves, made: SurvivalCurves) -> Floats:
    """Of the grid, the times at which ten patients are at risk and the condensed curve is known: someone is, or all had
    the event."""
    if not len(real) or not len(made):
        return grid[:0]
    known = (made.at_risk(grid) >= 1) | (made.survival(grid) <= 0)
    both = (real.at_risk(grid) >= AT_RISK) & known
    return grid[: len(grid) if both.all() else int(np.argmin(both))]


def distance(ours: Floats, theirs: Floats, grid: Floats) -> float:
    """∫|S − S′| dt / h over [0, h], by trapezia between the steps of the grid; both curves are 1 at 0."""
    apart = np.concatenate([[0.0], np.abs(ours - theirs)])
    return float(np.trapezoid(apart, np.concatenate([[0.0], grid])) / grid[-1])


def risk_groups(risk: Numbers, groups: int) -> Index:
    """(n,) which part of its own rows each is in, by quantiles of its risk; equal risks are in one group."""
    size = np.asarray(risk, np.float64)
    size = np.round(size / max(float(np.abs(size).max(initial=0.0)), 1e-300), 5)  # float32 tells equal rows apart
    cuts = np.quantile(size, np.arange(1, groups) / groups)
    return np.searchsorted(cuts, size, side="left").astype(np.int64)


def log_rank(curves: SurvivalCurves, group: Index) -> float:
    """lifelines' p-value of the log-rank test between the groups; NaN where there is one group only."""
    from lifelines.statistics import multivariate_logrank_test

    if len(np.unique(group)) < 2 or not curves.event.any():
        return float("nan")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(multivariate_logrank_test(curves.time, group, curves.event).p_value)


def _distances(
    pairs: Pairs, grid: Floats, inputs: EvaluationInput, test: Sample, student: str, seed: int
) -> Iterator[Score]:
    """Of each group, of all rows, and the groups' mean; beside each, what as many real rows by chance would have."""
    common_fields: dict[str, Any] = {"student": student, "labels": PLAIN}
    resamples: dict[str, tuple[list[float], list[float]]] = {}  # of the held-out rows, and of as many by chance
    values: dict[str, tuple[float, float]] = {}
    counts = list(resampled(len(test), test.person, seed=seed))
    for name, (mine, real, made) in pairs.items():
        shared = common(grid, real, made)
        blank = _blank(len(real), len(made), group=name, **common_fields)
        if not len(shared):
            yield replace(blank, note=f"fewer than {AT_RISK} patients at risk")
            continue
        theirs, ours = made.survival(shared), real.survival(shared)
        moved = [
            distance(real.survival(shared, count[mine]), theirs, shared) if count[mine].any() else float("nan")
            for count in counts
        ]
        rng = np.random.default_rng([seed, 0xF1007, len(resamples)])
        chance = []
        for _ in counts:  # as many real rows as there are condensed ones, drawn with replacement
            times = np.bincount(rng.integers(0, len(real), len(made)), minlength=len(real)).astype(np.float64)
            chance.append(distance(real.survival(shared, times), ours, shared))
        resamples[name], values[name] = (moved, chance), (distance(ours, theirs, shared), float(np.mean(chance)))
        yield from _beside_chance(blank, values[name], resamples[name], test)
    groups = [name for name in values if name != ALL]
    if len(groups) > 1:
        value, by_chance = np.mean([values[name] for name in groups], axis=0)
        moved, chance = (list(np.mean([resamples[name][k] for name in groups], axis=0)) for k in range(2))
        blank = _blank(len(test), len(inputs.rows), group=MEAN, **common_fields)
        yield from _beside_chance(blank, (float(value), float(by_chance)), (moved, chance), test)


def _blank(n: int, rows: int, **fields: Any) -> Score:
    return Score.from_interval("curve_distance", CONDENSED, HELD_OUT, UNKNOWN, n, True, rows=rows, **fields)


def _beside_chance(
    blank: Score, values: tuple[float, float], resamples: tuple[list[float], list[float]], test: Sample
) -> Iterator[Score]:
    yield blank.with_interval(between(values[0], resamples[0]), in_words(test.person))
    how, changes = f"{RESAMPLES} draws of as many held-out rows", {"trained_on": RANDOM, "labels": "", "covered": False}
    yield blank.with_interval(between(values[1], resamples[1]), how, **changes)


def _predicted(
    inputs: EvaluationInput,
    learner: Learner,
    train: Sample,
    test: Sample,
    real: SurvivalCurves,
    grid: Floats,
    *,
    seed: int,
    threads: int,
) -> tuple[list[Figure], list[Score]]:
    """Mean predicted survival of the held-out rows by models of real and of condensed rows, beside what was observed.

    A model's baseline is that of the rows that taught it, as a recipient would have it.
    """
    held, observed = inputs.codec.encode(test.features), real.survival(grid)
    x = rounded(np.concatenate([[0.0], grid]))
    ends = (rounded(np.concatenate([[1.0], end])) for end in real.band(grid))
    series, scores = [Series("observed", x, *ends)], []
    counts = list(resampled(len(test), test.person, seed=seed))

    def survival(model: Model, training: TrainingSet) -> Floats:
        own = _as_often(training.weight, len(training.rows))
        rule = inputs.kind.rule(model.link, model.scores(training.rows)[own], training.outcome.take(own))
        assert rule.survival is not None
        return np.asarray(rule.survival(model.scores(held), grid / inputs.unit), np.float64)

    how: dict[str, Any] = {"seed": seed, "threads": threads}
    for words, blank, alive in predictions(inputs, train, test, learner, "predicted_distance", survival, **how):
        if alive is None:
            scores.append(blank)
            continue
        moved = [distance(real.survival(grid, count), count @ alive / count.sum(), grid) for count in counts]
        mean = alive.mean(axis=0)
        scores.append(blank.with_interval(between(distance(observed, mean, grid), moved), in_words(test.person)))
        series.append(Series(words, x, rounded(np.concatenate([[1.0], mean]))))
    figure = Figure(
        "survival-predicted",
        STEPS,
        "Survival that models predict, beside what was observed",
        "Held-out real rows: their Kaplan–Meier curve with Greenwood's 95% band, and the mean of what models of real "
        "and of condensed rows predict for them, each with the baseline of its own rows.",
        f"{inputs.kind.names[0]}, in {len(grid)} equal steps",
        "share without the event",
        tuple(series),
        y_range=(0.0, 1.0),
    )
    return ([figure] if len(series) > 1 else []), scores


def _as_often(weight: Numbers | None, rows: int) -> Index:
    """Row numbers, each as often as it weighs: all once where there are no weights."""
    if weight is None:
        return np.arange(rows)
    upto = np.floor(np.cumsum(np.asarray(weight, np.float64)) / np.sum(weight) * EVENLY + 0.5).astype(np.int64)
    return np.repeat(np.arange(rows), np.diff(upto, prepend=0))


def _figure(name: str, title: str, pairs: Pairs, grid: Floats, inputs: EvaluationInput) -> Figure:
    series = []
    for group, (_, real, made) in pairs.items():
        shared = common(grid, real, made)
        for words, curves in (("real", real), ("condensed", made)) if len(shared) else ():
            x = rounded(np.concatenate([[0.0], shared]))
            ends = (rounded(np.concatenate([[1.0], end])) for end in curves.band(shared))
            series.append(Series(f"{group}, {words}", x, *ends))
    return Figure(
        name,
        STEPS,
        title,
        "Kaplan–Meier curves of held-out real rows and of condensed rows, as a recipient would draw them, without "
        f"weights. Bands are Greenwood's 95%. A curve ends where fewer than {AT_RISK} patients are at risk.",
        f"{inputs.kind.names[0]}, in {len(grid)} equal steps",
        "share without the event",
        tuple(series),
        y_range=(0.0, 1.0),
    )


def _numbers_at_risk(pairs: Pairs, grid: Floats) -> Table:
    times = grid[-1] * np.arange(TIMES) / (TIMES - 1)
    groups = [real.at_risk(times) < AT_RISK for name, (_, real, _) in pairs.items() if name != ALL]
    few = np.any(groups, axis=0) if groups else np.zeros(TIMES, bool)
    rows = []
    for name, (_, real, made) in pairs.items():
        cells: list[int | str] = []
        for count, hidden in zip(real.at_risk(times), few & (name == ALL), strict=True):
            if count < AT_RISK:
                cells.append(f"<{AT_RISK}")
            else:  # the total less the others would tell of a group that is not counted out
                cells.append(f"about {round(count, -1):g}" if hidden else int(count))
        rows.append((f"{name}, real", *cells))
        rows.append((f"{name}, condensed", *(int(count) for count in made.at_risk(times))))
    return Table(
        "at-risk",
        "Numbers at risk",
        ("rows", *(f"{time:.4g}" for time in times)),
        tuple(rows),
        f"Rows not yet at their event or end of follow-up; fewer than {AT_RISK} patients are not counted out.",
    )


def _log_rank(real: SurvivalCurves, made: SurvivalCurves, mine: Index, theirs: Index) -> Table:
    shown = []
    for p in (log_rank(real, mine), log_rank(made, theirs)):
        shown.append("–" if not np.isfinite(p) else "<0.001" if p < 0.001 else f"{p:.3f}")
    return Table(
        "log-rank",
        "Log-rank test",
        ("test", "real rows, p", "condensed rows, p"),
        (("between risk groups", *shown),),
        "A small p: the groups' curves differ by more than chance.",
    )


def rounded(values: Floats) -> tuple[float, ...]:
    """To five digits, for figures."""
    return tuple(float(f"{value:.5g}") for value in values)
