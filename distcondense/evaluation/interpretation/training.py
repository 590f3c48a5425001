"""What the models that are interpreted are trained on: real rows, condensed rows, and as few random real rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from distcondense.arrays import Numbers
from distcondense.errors import ModelError
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.resampling import choose
from distcondense.evaluation.score import CONDENSED, FULL, HELD_OUT, PLAIN, RANDOM, SOFT, UNKNOWN, Score
from distcondense.models.base import Model
from distcondense.models.learners import Learner, TrainingSet

ROWS = 20_000  # that a model is trained on, real or condensed
WORDS = {FULL: "real rows", CONDENSED: "condensed rows", RANDOM: "random real rows"}


def training_sets(
    inputs: EvaluationInput, train: Sample, *, seed: int, threads: int
) -> dict[tuple[str, str], TrainingSet]:
    """By (trained on, labels): real rows, condensed rows plain and by the manual, as many random real rows.

    Parameters
    ----------
    inputs : EvaluationInput
    train : Sample
        The real training rows.
    seed, threads : int

    Returns
    -------
    dict of (str, str) to TrainingSet
        Without (CONDENSED, SOFT) where the condensed rows have neither soft labels nor weights.
    """
    chosen = choose(len(inputs.rows), ROWS, np.random.default_rng([seed, 0xC0DE]))
    real = TrainingSet(inputs.codec.encode(train.features), train.outcome, seed=seed, threads=threads)
    plain = replace(real, rows=inputs.rows[chosen], outcome=inputs.made.take(chosen))
    sets = {(FULL, ""): real, (CONDENSED, PLAIN): plain}
    labels = inputs.labelled.soft, inputs.labelled.weight
    if any(values is not None for values in labels):
        soft, weight = (None if values is None else values[chosen] for values in labels)
        sets[CONDENSED, SOFT] = replace(plain, soft=soft, weight=weight)
    alike = inputs.kind.alike(real.outcome, plain.outcome, np.random.default_rng([seed, 0x4EA1]))
    sets[RANDOM, ""] = replace(real, rows=real.rows[alike], outcome=real.outcome.take(alike))
    return sets


def predictions(
    inputs: EvaluationInput,
    train: Sample,
    test: Sample,
    learner: Learner,
    measure: str,
    predict: Callable[[Model, TrainingSet], Numbers],
    *,
    seed: int,
    threads: int,
) -> Iterator[tuple[str, Score, Any]]:
    """What models of real and of condensed rows say of held-out rows: in words whose, a score to fill in, what it says.

    Nothing is said by a model that could not be fitted; its score then has a note why.
    """
    for (trained_on, labels), training in training_sets(inputs, train, seed=seed, threads=threads).items():
        if trained_on == RANDOM:
            continue
        about = {"rows": len(training.rows), "student": learner.name, "labels": labels}
        covered = trained_on == CONDENSED
        blank = Score.from_interval(measure, trained_on, HELD_OUT, UNKNOWN, len(test), covered, **about)
        words = f"model of {WORDS[trained_on]}" + (", by the manual" if labels == SOFT else "")
        try:
            if lacking := inputs.kind.lacking(training.outcome):
                raise ModelError("student", f"needs rows with {lacking}", found="none")
            how: dict[str, Any] = {"weight": training.weight, "soft": training.soft, "seed": seed, "threads": threads}
            model = learner.fit(training.rows, training.outcome, **how)
            yield words, blank, predict(model, training)
        except (ModelError, ValueError, ArithmeticError) as error:
            yield words, replace(blank, note=f"could not be taught ({type(error).__name__})"), None
