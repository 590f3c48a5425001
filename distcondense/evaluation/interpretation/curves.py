"""Outcomes by risk group. Survival: Kaplan–Meier curves of real and condensed rows (Thakur et al. 2026 §2.3, Fig 2).
With two classes: how often the event happens to patients of whom a student says so (calibration by tenths of risk).

Curves are drawn at no more than 60 equal steps up to a horizon that comes from the released rows, and only while ten
patients are at risk: no patient's time can be read off. Risk groups are made by the scores of a student of real
training rows, and cut at the quantiles of the rows themselves: patients by their own, condensed rows by theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from distcondense.arrays import Flags, Floats, Index, Matrix, Numbers
from distcondense.data.outcome import Outcome
from distcondense.errors import ModelError
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.interpretation.kaplan_meier import (
    AT_RISK,
    common,
    distance,
    log_rank,
    public_grid,
    risk_groups,
    tidy,
)
from distcondense.evaluation.resampling import RESAMPLES, between, in_words, resampled, some_of
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, SOFT, TRAINED_ON, Score, wilson_middle
from distcondense.evaluation.section import Section, quiet
from distcondense.models.base import Model
from distcondense.models.learners import Learner
from distcondense.outcomes.kaplan_meier import SurvivalCurves
from distcondense.runs.figures import LINES, STEPS, Figure, Series, Table

NAME = "curves"
TITLE = "Outcomes by risk group"
ROWS = 20_000  # that a student is taught with
TESTED = 20_000  # held-out rows
THIRDS, HALVES = 90, 20  # rows from which on three groups, or two, are made
TIMES = 5  # at which numbers at risk are shown
TENTHS = 10
HELD_OUT = "held out"
ALL, MEAN = "all rows", "mean of risk groups"
GROUPS = {2: ("lower risk", "higher risk"), 3: ("low risk", "middle risk", "high risk")}
TITLES = {
    "curve_distance": "Distance of survival curves (0: same)",
    "calibration_error": "Distance of said and observed risk (0: calibrated)",
}


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Callable[[str], None] = quiet) -> Section:
    """Survival curves, or calibration, whichever the outcome has."""
    if not len(inputs.rows):
        return Section(NAME, TITLE, notes=("The run made no rows: there are no curves to compare.",))
    timed = "time" in inputs.cohort.outcome.arrays
    learner = inputs.learner if timed else _giving_probabilities(inputs)
    if learner is None or not (timed or len(inputs.kind.labels) == 2):
        return Section(NAME, TITLE, notes=("Curves are for outcomes with a time and an event, or with two classes.",))
    train, test = inputs.sample(inputs.split.train, ROWS, seed), inputs.sample(inputs.split.test, TESTED, seed)
    if len(test) < HALVES:
        return Section(NAME, TITLE, notes=(f"Fewer than {HALVES} rows were held out: too few for groups.",))
    log("drawing curves")
    draw = _survival if timed else _calibration
    return draw(inputs, learner, train, test, seed=seed, threads=threads)


def _giving_probabilities(inputs: EvaluationInput) -> Learner | None:
    """The run's own learner where its scores are probabilities, else the first of the kind's whose scores are."""
    return next((one for one in (inputs.learner, *inputs.kind.learners.values()) if one.link == "probability"), None)


# -- a time and an event ----------------------------------------------------------------------------------------------


def _survival(
    inputs: EvaluationInput, learner: Learner, train: Sample, test: Sample, *, seed: int, threads: int
) -> Section:
    real, made = _lives(test.outcome, inputs.unit), _lives(inputs.labelled.outcome, 1.0)
    grid = public_grid(made, real)
    if not len(grid):
        return Section(
            NAME, TITLE, notes=(f"Fewer than {AT_RISK} held-out rows are at risk at any time of the curves.",)
        )
    notes = _survival_notes(train, test)
    pairs: dict[str, tuple[Flags, SurvivalCurves, SurvivalCurves]] = {ALL: (np.ones(len(real), bool), real, made)}
    mine = theirs = np.empty(0, np.int64)
    groups = 3 if min(len(real), len(made)) >= THIRDS else 2
    if len(made) < HALVES:
        notes.append(f"Fewer than {HALVES} condensed rows: no risk groups.")
    else:
        try:
            model = _taught(learner, inputs.codec.encode(train.features), train.outcome, seed=seed, threads=threads)
        except (ModelError, ValueError, ArithmeticError) as error:
            notes.append(f"No risk groups: the student could not be taught ({type(error).__name__}).")
        else:
            mine = risk_groups(_risk(model, inputs.codec.encode(test.features)), groups)
            theirs = risk_groups(_risk(model, inputs.rows), groups)
            for number, name in enumerate(GROUPS[groups]):
                pairs[name] = (mine == number, real.take(mine == number), made.take(theirs == number))
    scores = list(_distances(pairs, grid, inputs, test, learner.name, seed))
    of_groups = {name: pair[1:] for name, pair in pairs.items() if name != ALL}
    figures = [_steps("survival-all", "Survival of all rows", {ALL: (real, made)}, grid, inputs)]
    tables = [_numbers_at_risk(pairs, grid)]
    if of_groups:
        figures.append(_steps("survival-groups", "Survival by risk group", of_groups, grid, inputs))
        tables.append(_log_rank(real, made, mine, theirs))
    settings = {
        "student": learner.name,
        "taught with rows": len(train),
        "held-out rows": len(test),
        "of held-out rows": test.of,
        "steps": len(grid),
        "horizon": float(f"{grid[-1]:.6g}"),
        "resamples": RESAMPLES,
    }
    return Section(NAME, TITLE, tuple(scores), tuple(figures), tuple(tables), tuple(notes), TITLES, settings)


def _lives(outcome: Outcome, unit: float) -> SurvivalCurves:
    """In the table's own unit of time."""
    return SurvivalCurves(tidy(np.asarray(outcome["time"], np.float64) * unit), outcome["label"] == 1)


def _taught(
    learner: Learner, rows: Matrix, outcome: Outcome, *, seed: int, threads: int, **how: Floats | None
) -> Model:
    if lacking := outcome.kind.lacking(outcome):
        raise ModelError("student", f"needs rows with {lacking}", found="none")
    return learner.fit(rows, outcome, seed=seed, threads=threads, **how)


def _risk(model: Model, rows: Matrix) -> Numbers:
    """A longer log-time is a lower risk."""
    scores = model.scores(rows)
    return -scores if model.link == "log-time" else scores


def _distances(
    pairs: Mapping[str, tuple[Flags, SurvivalCurves, SurvivalCurves]],
    grid: Floats,
    inputs: EvaluationInput,
    test: Sample,
    student: str,
    seed: int,
) -> Iterator[Score]:
    """Of each group, of all rows, and the groups' mean; beside each, what as many real rows by chance would have."""
    none, words = float("nan"), in_words(test.person)
    drawn: dict[str, list[list[float]]] = {}
    found: dict[str, tuple[float, float]] = {}  # value, and that of as many real rows
    counts = list(resampled(len(test), test.person, seed=seed))
    for name, (mine, real, made) in pairs.items():
        shared = common(grid, real, made)
        blank = Score(
            "curve_distance",
            CONDENSED,
            HELD_OUT,
            none,
            none,
            none,
            len(real),
            True,
            len(made),
            student=student,
            labels=PLAIN,
            group=name,
        )
        if not len(shared):
            yield replace(blank, note=f"fewer than {AT_RISK} patients at risk")
            continue
        condensed, ours = made.survival(shared), real.survival(shared)
        value = distance(ours, condensed, shared)
        resample = [
            distance(real.survival(shared, one[mine]), condensed, shared) if one[mine].any() else none for one in counts
        ]
        rng = np.random.default_rng([seed, 0xF1007, len(drawn)])
        chance = [distance(real.survival(shared, _as_many(rng, real, made)), ours, shared) for _ in counts]
        drawn[name] = [resample, chance]
        found[name] = (value, float(np.mean(chance)))
        yield from _pair(blank, found[name], drawn[name], words)
    groups = [name for name in found if name != ALL]
    if len(groups) > 1:
        blank = Score(
            "curve_distance",
            CONDENSED,
            HELD_OUT,
            none,
            none,
            none,
            len(test),
            True,
            len(inputs.rows),
            student=student,
            labels=PLAIN,
            group=MEAN,
        )
        value, chance_value = np.mean([found[name] for name in groups], axis=0)
        both = [list(np.mean([drawn[name][k] for name in groups], axis=0)) for k in range(2)]
        yield from _pair(blank, (float(value), float(chance_value)), both, words)


def _as_many(rng: np.random.Generator, real: SurvivalCurves, made: SurvivalCurves) -> Floats:
    """How often each real row counts where as many are drawn as there are condensed ones."""
    return np.bincount(rng.integers(0, len(real), len(made)), minlength=len(real)).astype(np.float64)


def _pair(blank: Score, values: tuple[float, float], drawn: Sequence[Sequence[float]], words: str) -> Iterator[Score]:
    at, chance = between(values[0], drawn[0]), between(values[1], drawn[1])
    yield replace(blank, value=at.value, low=at.low, high=at.high, interval=words)
    yield replace(
        blank,
        trained_on=RANDOM,
        labels="",
        covered=False,
        value=chance.value,
        low=chance.low,
        high=chance.high,
        interval=f"{RESAMPLES} draws of as many held-out rows",
    )


def _steps(
    name: str,
    title: str,
    pairs: Mapping[str, tuple[SurvivalCurves, SurvivalCurves]],
    grid: Floats,
    inputs: EvaluationInput,
) -> Figure:
    series = []
    for group, (real, made) in pairs.items():
        shared = common(grid, real, made)
        for words, lives in (("real", real), ("condensed", made)):
            if len(shared):
                y, low, high = (_rounded(np.concatenate([[1.0], end])) for end in lives.band(shared))
                series.append(Series(f"{group}, {words}", _rounded(np.concatenate([[0.0], shared])), y, low, high))
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


def _numbers_at_risk(pairs: Mapping[str, tuple[Flags, SurvivalCurves, SurvivalCurves]], grid: Floats) -> Table:
    times = grid[-1] * np.arange(TIMES) / (TIMES - 1)
    groups = [real.at_risk(times) for name, (_, real, _) in pairs.items() if name != ALL]
    few = np.array([any(group[k] < AT_RISK for group in groups) for k in range(TIMES)])
    rows = []
    for name, (_, real, made) in pairs.items():
        rough = few & (name == ALL)  # the total less the others would tell of a group that is not counted out
        shown = (_few(n, about) for n, about in zip(real.at_risk(times), rough, strict=True))
        rows.append((f"{name}, real", *shown))
        rows.append((f"{name}, condensed", *(int(count) for count in made.at_risk(times))))
    return Table(
        "at-risk",
        "Numbers at risk",
        ("rows", *(f"{time:.4g}" for time in times)),
        tuple(rows),
        f"Rows not yet at their event or end of follow-up; fewer than {AT_RISK} patients are not counted out.",
    )


def _log_rank(real: SurvivalCurves, made: SurvivalCurves, mine: Index, theirs: Index) -> Table:
    rows = (("between risk groups", _p(log_rank(real, mine)), _p(log_rank(made, theirs))),)
    return Table(
        "log-rank",
        "Log-rank test",
        ("test", "real rows, p", "condensed rows, p"),
        rows,
        "A small p: the groups' curves differ by more than chance.",
    )


def _few(count: float, rough: bool) -> int | str:
    if count < AT_RISK:
        return f"<{AT_RISK}"
    return f"about {round(count, -1):g}" if rough else int(count)


def _p(value: float) -> str:
    return "–" if not np.isfinite(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(float(f"{value:.5g}") for value in values)


def _survival_notes(train: Sample, test: Sample) -> list[str]:
    return [
        f"Risk groups by the scores of a student of {some_of(len(train), train.of)} real training rows; held-out and "
        "condensed rows are each cut at their own quantiles.",
        f"Curves of {some_of(len(test), test.of)} held-out rows. A distance is the mean gap between two curves up to "
        "their common horizon; 0.01 is one percentage point.",
        f"“{TRAINED_ON[RANDOM]}”: what as many held-out rows, drawn with replacement, differ by: chance alone.",
        "Intervals resample the held-out rows; the condensed rows, the student and its cuts stay as they are. A "
        "distance cannot be below 0, so resamples lie above it on average.",
    ]


# -- two classes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class RiskTenths:
    """Rows in order of the risk that was said, in parts of about a tenth each."""

    said: Floats  # (parts,) mean risk
    observed: Floats  # (parts,) share with the event
    rows: Floats

    @classmethod
    def of(cls, said: Numbers, label: Flags, most: int = TENTHS, fewest: int = AT_RISK) -> RiskTenths:
        """Neighbours are put together until each has ten rows with and ten without the event, or more."""
        order = np.argsort(said, kind="stable")
        edges = np.unique(np.round(np.linspace(0, len(order), most + 1)).astype(np.int64))
        parts: list[Index] = []
        waiting = order[:0]
        for low, high in pairwise(edges):
            waiting = np.concatenate([waiting, order[low:high]])
            if min(label[waiting].sum(), (~label[waiting]).sum()) >= fewest:
                parts.append(waiting)
                waiting = order[:0]
        if len(waiting):  # the rest belongs to the last
            parts[-1:] = [np.concatenate([*parts[-1:], waiting])]
        risk = np.asarray(said, np.float64)
        return cls(
            np.array([risk[rows].mean() for rows in parts]),
            np.array([label[rows].mean() for rows in parts]),
            np.array([float(len(rows)) for rows in parts]),
        )

    @property
    def error(self) -> float:
        """The mean distance between what was said and what was observed, each part by its rows."""
        return float(self.rows @ np.abs(self.said - self.observed) / self.rows.sum())

    @property
    def band(self) -> tuple[Floats, Floats]:
        """Wilson's 95% of each observed share."""
        middle, half = wilson_middle(self.observed, self.rows)
        return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def _calibration(
    inputs: EvaluationInput, learner: Learner, train: Sample, test: Sample, *, seed: int, threads: int
) -> Section:
    label = test.outcome["label"] == 1
    if min(label.sum(), (~label).sum()) < AT_RISK:
        return Section(NAME, TITLE, notes=(f"Fewer than {AT_RISK} held-out rows of one class: no calibration.",))
    held, real = inputs.codec.encode(test.features), inputs.codec.encode(train.features)
    some = np.arange(len(inputs.rows))
    if len(some) > ROWS:
        some = np.sort(np.random.default_rng([seed, 0xC0DE]).choice(some, ROWS, replace=False))
    made, labelled = inputs.made.take(some), inputs.labelled
    ways: dict[tuple[str, str], tuple[Matrix, Outcome, dict[str, Floats | None]]] = {
        (FULL, ""): (real, train.outcome, {}),
        (CONDENSED, PLAIN): (inputs.rows[some], made, {}),
    }
    if labelled.soft is not None or labelled.weight is not None:
        soft, weight = (None if given is None else given[some] for given in (labelled.soft, labelled.weight))
        ways[CONDENSED, SOFT] = (inputs.rows[some], made, {"soft": soft, "weight": weight})
    scores, series = [], []
    counts = list(resampled(len(test), test.person, seed=seed))
    for (trained_on, labels), (rows, outcome, how) in ways.items():
        none = float("nan")
        blank = Score(
            "calibration_error",
            trained_on,
            HELD_OUT,
            none,
            none,
            none,
            len(test),
            trained_on == CONDENSED,
            len(rows),
            student=learner.name,
            labels=labels,
        )
        try:
            model = _taught(learner, rows, outcome, seed=seed, threads=threads, **how)
        except (ModelError, ValueError, ArithmeticError) as error:
            scores.append(replace(blank, note=f"could not be taught ({type(error).__name__})"))
            continue
        said = model.scores(held)
        tenths = RiskTenths.of(said, label)
        order = np.argsort(said, kind="stable")  # once: what is in order already is soon sorted again
        drawn = [_error(said, label, np.repeat(order, one[order].astype(np.int64))) for one in counts]
        at = between(tenths.error, drawn)
        scores.append(replace(blank, value=at.value, low=at.low, high=at.high, interval=in_words(test.person)))
        low, high = tenths.band
        words = {FULL: "model of real rows", CONDENSED: "model of condensed rows"}[trained_on]
        words += ", by the manual" if labels == SOFT else ""
        series.append(Series(words, *map(_rounded, (tenths.said, tenths.observed, low, high))))
    figure = Figure(
        "calibration",
        LINES,
        "Observed share by tenth of predicted risk",
        "Held-out real rows in tenths of the risk that a model says: across its mean, up the share to whom it "
        "happened, with Wilson's 95% intervals. On the diagonal risks are as said; above it they are understated.",
        "predicted risk",
        "observed share",
        tuple(series),
        diagonal=True,
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
    )
    notes = (
        f"Models of {some_of(len(train), train.of)} real training rows and of {some_of(len(some), len(inputs.rows))} "
        f"condensed rows, on {some_of(len(test), test.of)} held-out rows; neighbouring tenths are one where fewer than "
        f"{AT_RISK} rows have the event, or do not.",
        "Probabilities as the student says them: one that weights classes overstates the rarer one.",
    )
    settings = {
        "student": learner.name,
        "taught with rows": len(train),
        "held-out rows": len(test),
        "of held-out rows": test.of,
        "resamples": RESAMPLES,
    }
    return Section(NAME, TITLE, tuple(scores), (figure,) if series else (), (), notes, TITLES, settings)


def _error(said: Numbers, label: Flags, rows: Index) -> float:
    return RiskTenths.of(said[rows], label[rows]).error
