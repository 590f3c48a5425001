"""What the models that are interpreted are trained on: real rows, condensed rows, and as few random real rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.resampling import choose
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, SOFT
from distcondense.models.learners import TrainingSet

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
