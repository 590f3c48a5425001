"""Outcomes by risk group. Survival: Kaplan–Meier curves of real and condensed rows (survival.py).
With two classes: how often the event happens to patients of whom a model says so (calibration by tenths of risk).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from distcondense.arrays import Flags, Floats, Index, Numbers
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.interpretation.survival import AT_RISK, HALVES, rounded, survival_parts
from distcondense.evaluation.interpretation.training import ROWS, predictions
from distcondense.evaluation.resampling import RESAMPLES, between, in_words, resampled, some_of
from distcondense.evaluation.score import wilson_middle
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.models.learners import Learner
from distcondense.runs.figures import LINES, Figure, Series

NAME, TITLE = "curves", "Outcomes by risk group"
TESTED = 20_000  # held-out rows
TENTHS = 10
TITLES = {
    "curve_distance": "Distance of survival curves (0: same)",
    "predicted_distance": "Distance of predicted and observed survival curves (0: same)",
    "calibration_error": "Distance of said and observed risk (0: calibrated)",
}


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """Survival curves, or calibration, whichever the outcome has."""
    timed = "time" in inputs.cohort.outcome.arrays
    learner: Learner | None = inputs.learner
    if not timed:  # the run's own learner where its scores are probabilities, else the first of the kind's
        every = (inputs.learner, *inputs.kind.learners.values()) if len(inputs.kind.labels) == 2 else ()
        learner = next((learner for learner in every if learner.link == "probability"), None)
    why = ""
    if not len(inputs.rows):
        why = "The run made no rows: there are no curves to compare."
    elif learner is None:
        why = "Curves are for outcomes with a time and an event, or with two classes."
    elif len(inputs.split.test) < HALVES:
        why = f"Fewer than {HALVES} rows were held out: too few for groups."
    if why or learner is None:
        return Section(NAME, TITLE, notes=(why,))
    train, test = inputs.sample(inputs.split.train, ROWS, seed), inputs.sample(inputs.split.test, TESTED, seed)
    log("drawing curves")
    measure = survival_parts if timed else _calibration
    return Section(NAME, TITLE, titles=TITLES, **measure(inputs, learner, train, test, seed=seed, threads=threads))


# -- two classes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class RiskTenths:
    """Rows in order of the risk that was said, in parts of about a tenth each."""

    said: Floats  # (parts,) mean risk
    observed: Floats  # (parts,) share with the event
    rows: Floats

    @classmethod
    def from_risks(cls, said: Numbers, label: Flags, most: int = TENTHS, fewest: int = AT_RISK) -> RiskTenths:
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
        means = [(risk[rows].mean(), label[rows].mean(), float(len(rows))) for rows in parts]
        return cls(*np.array(means, np.float64).reshape(-1, 3).T)

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
) -> dict[str, Any]:
    """Scores, figures, notes and settings of a section on calibration."""
    label = test.outcome["label"] == 1
    if min(label.sum(), (~label).sum()) < AT_RISK:
        return {"notes": (f"Fewer than {AT_RISK} held-out rows of one class: no calibration.",)}
    held = inputs.codec.encode(test.features)
    scores, series = [], []
    counts = list(resampled(len(test), test.person, seed=seed))
    how: dict[str, Any] = {"seed": seed, "threads": threads}
    for words, blank, said in predictions(
        inputs, train, test, learner, "calibration_error", lambda model, _: model.scores(held), **how
    ):
        if said is None:
            scores.append(blank)
            continue
        tenths = RiskTenths.from_risks(said, label)
        order = np.argsort(said, kind="stable")  # once: what is in order already is soon sorted again
        errors = []
        for count in counts:
            rows = np.repeat(order, count[order].astype(np.int64))
            errors.append(RiskTenths.from_risks(said[rows], label[rows]).error)
        scores.append(blank.with_interval(between(tenths.error, errors), in_words(test.person)))
        series.append(Series(words, *map(rounded, (tenths.said, tenths.observed, *tenths.band))))
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
    made = some_of(min(len(inputs.rows), ROWS), len(inputs.rows))
    notes = (
        f"Models of {some_of(len(train), train.of)} real training rows and of {made} condensed rows, on "
        f"{some_of(len(test), test.of)} held-out rows; neighbouring tenths are one where fewer than {AT_RISK} rows "
        "have the event, or do not.",
        "Probabilities as the student says them: one that weights classes overstates the rarer one.",
    )
    settings = {
        "student": learner.name,
        "taught with rows": len(train),
        "held-out rows": len(test),
        "of held-out rows": test.of,
        "resamples": RESAMPLES,
    }
    return {"scores": tuple(scores), "figures": (figure,) if series else (), "notes": notes, "settings": settings}
