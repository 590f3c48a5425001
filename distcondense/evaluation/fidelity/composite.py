"""PSyGenTAB's composite scores: utility U (eq. 1), P (eq. 3) and FAITH (eq. 9), with their parts.

The paper names what goes into each part and leaves the rest open; what was chosen here stands in `CHOICES`, a line a
part, and on the page. Weights are equal, as the paper has them for FAITH; a part that does not apply gives its weight
to the others. P is a score of distances: it says nothing about what the guarantee says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from distcondense.arrays import Floats
from distcondense.errors import DistcondenseError
from distcondense.evaluation.fidelity.comparison import HELD, Comparison, centred, compared, why_not
from distcondense.evaluation.fidelity.faith import AMONG, ASKED, P_WEIGHTS, distance_scores, faith_scores, nearness
from distcondense.evaluation.fidelity.faith import CHOICES as FAITH_CHOICES
from distcondense.evaluation.fidelity.faith import TITLES as FAITH_TITLES
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.score import RANDOM, SOFT, Score
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.models.base import Model
from distcondense.outcomes.likeness import ComparedRows, correlation_gaps
from distcondense.outcomes.measures import Measured
from distcondense.outcomes.utility import CHOICES, Part, both_ways, nothing, utility

NAME, TITLE = "composite", "Composite scores of PSyGenTAB: U, P and FAITH"
TAUGHT = 20_000  # real rows that a model is taught with, at most
TITLES = {
    "utility": "U of PSyGenTAB, eq. 1 (1: best)",
    "f_marg": "Marginal fidelity, eq. 2 (1: best)",
    "f_rare": "Rare events kept (1: best)",
    "f_joint": "Joint associations kept (1: best)",
    "c_div": "Coverage and diversity (1: best)",
    "t_dyn": "Temporal dynamics (1: best)",
    "e_pred": "Predictive efficacy, both ways (1: best)",
    **FAITH_TITLES,
}


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """U for every way, P and FAITH for condensed and for held-out rows."""
    if why := why_not(inputs):
        return Section(NAME, TITLE, notes=(f"Not measured: {why}.",), titles=TITLES)
    comparison = compared(inputs, seed)
    log("composite utility")
    with threadpool_limits(limits=threads):
        gaps = correlation_gaps(comparison, seed)
        scores = utility_scores(inputs, comparison, gaps, seed=seed, threads=threads)
        log("composite distances and rules")
        near = nearness(inputs, seed, threads)
        scores += distance_scores(near)
        faithful, tables = faith_scores(inputs, comparison, gaps, near, seed)
    notes = (*comparison.notes, near.note, *CHOICES, *FAITH_CHOICES)
    settings = {
        "U weights": "equal",
        "P weights": list(P_WEIGHTS),
        "FAITH weights": "equal",
        "rows asked": ASKED,
        "training rows searched, at most": AMONG,
        "real rows taught with, at most": TAUGHT,
    }
    return Section(NAME, TITLE, (*scores, *faithful), (), tables, notes, TITLES, settings)


# -- U ----------------------------------------------------------------------------------------------------------------


def utility_scores(
    inputs: EvaluationInput, comparison: Comparison, gaps: Sequence[Floats], *, seed: int, threads: int
) -> list[Score]:
    teacher = PredictiveEfficacy.from_inputs(inputs, seed, threads)
    found = utility(comparison, gaps, [teacher.efficacy(comparison, side) for side in comparison.sides], seed)
    return [
        comparison.score(name, side, centred(values), note=note)
        for side, parts in zip(comparison.sides, found, strict=True)
        for name, (values, note) in parts.items()
    ]


@dataclass(frozen=True, repr=False)
class PredictiveEfficacy:
    """The run's student, taught by real rows, and what is needed to teach others."""

    inputs: EvaluationInput
    held: Sample
    train: Sample
    drawn: Sample
    real: Model | None  # None: nothing could be learned
    note: str
    seed: int
    threads: int

    @classmethod
    def from_inputs(cls, inputs: EvaluationInput, seed: int, threads: int) -> PredictiveEfficacy:
        held, train = inputs.sample(inputs.split.test, HELD, seed), inputs.sample(inputs.split.train, TAUGHT, seed)
        drawn = inputs.sample(inputs.split.train, len(inputs.rows), seed)
        model, note = None, inputs.kind.lacking(train.outcome)
        if not note:
            try:
                rows = inputs.codec.encode(train.features)
                model = inputs.learner.fit(rows, train.outcome, seed=seed, threads=threads)
            except DistcondenseError as error:
                note = str(error)
        return cls(inputs, held, train, drawn, model, note, seed, threads)

    def efficacy(self, comparison: Comparison, side: ComparedRows) -> Part:
        """Mean over both directions of the measures that the outcome has, each within [0, 1]."""
        inputs, codec, how = self.inputs, self.inputs.codec, {"seed": self.seed, "threads": self.threads}
        if self.real is None:
            return nothing(self.note)
        if lacking := inputs.kind.lacking(self.drawn.outcome if side.name == RANDOM else inputs.made):
            return nothing(f"these rows lack {lacking}")
        try:
            if side.name == RANDOM:
                model = inputs.learner.fit(codec.encode(self.drawn.features), self.drawn.outcome, **how)
            elif side.labels == SOFT:
                labelled = inputs.labelled
                model = inputs.learner.fit(inputs.rows, inputs.made, weight=labelled.weight, soft=labelled.soft, **how)
            else:
                model = inputs.learner.fit(inputs.rows, inputs.made, **how)
            there = self._measured(model, self.held)
            back = self._measured(self.real, self.held if side.name == RANDOM else None)
        except DistcondenseError as error:
            return nothing(str(error))
        if not (names := both_ways(there, back)):
            return nothing("this outcome has no measure within [0, 1]")
        fixed = np.mean([np.clip(back[name].value, 0, 1) for name in names])
        values = [_resampled(there[name], comparison) for name in names]
        return np.asarray((np.mean(values, axis=0) + fixed) / 2, np.float64), ""

    def _measured(self, model: Model, held: Sample | None) -> dict[str, Measured]:
        """On held-out rows, or on the condensed ones; what decides is settled on real training rows."""
        inputs, encode = self.inputs, self.inputs.codec.encode
        some = np.arange(len(self.train))[:HELD]
        known = encode(self.train.features.iloc[some])
        rule = inputs.kind.rule(model.link, model.scores(known), self.train.outcome.take(some))
        rows, outcome = (inputs.rows, inputs.made) if held is None else (encode(held.features), held.outcome)
        return inputs.kind.measured(model.link, model.scores(rows), outcome, rule)


def _resampled(found: Measured, comparison: Comparison) -> Floats:
    """A measure and, to first order, what it is in each resample."""
    moved = np.zeros(1) if found.influence is None else found.influence @ (comparison.counts - 1)
    return np.clip(found.value + moved, 0.0, 1.0)
