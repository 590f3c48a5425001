"""PSyGenTAB's composite scores: utility U (eq. 1), P (eq. 3) and FAITH (eq. 9), with their parts.

The paper names what goes into each part and leaves the rest open; what was chosen here stands in `CHOICES`, a line a
part, and on the page. Weights are equal, as the paper has them for FAITH; a part that does not apply gives its weight
to the others. P is a score of distances: it says nothing about what the guarantee says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from distcondense.arrays import Floats
from distcondense.errors import DistcondenseError
from distcondense.evaluation.fidelity.columns import column_scores
from distcondense.evaluation.fidelity.comparison import (
    HELD,
    REAL,
    ComparedColumn,
    ComparedRows,
    Comparison,
    centred,
    compared,
    why_not,
)
from distcondense.evaluation.fidelity.divergences import alike, category_coverage, fences, shares, support_coverage
from distcondense.evaluation.fidelity.faith import (
    AMONG,
    ASKED,
    P_WEIGHTS,
    alignment,
    composed,
    distance_scores,
    faith_scores,
    nearness,
    nothing,
)
from distcondense.evaluation.fidelity.faith import CHOICES as FAITH_CHOICES
from distcondense.evaluation.fidelity.faith import TITLES as FAITH_TITLES
from distcondense.evaluation.fidelity.pairs import correlation_gaps, joint_tables
from distcondense.evaluation.fidelity.row_similarity import beyond, weighted_share
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.score import RANDOM, SOFT, Score
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.models.base import Model
from distcondense.outcomes.measures import Measured

NAME, TITLE = "composite", "Composite scores of PSyGenTAB: U, P and FAITH"
TAUGHT = 20_000  # real rows that a model is taught with, at most
EFFICACY = ("auroc", "macro_auroc", "balanced_accuracy", "f1", "macro_f1", "c_index", "r2")
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
CHOICES = (
    "U: six parts of equal weight (the paper states none).",
    "Marginal: of a number the mean of Kolmogorov–Smirnov, 1 − exp(−Kullback–Leibler), Jensen–Shannon divergence and "
    "the range not spanned; of categories total variation.",
    "Rare: of a number min/max of the real and condensed share beyond 1.5 interquartile ranges; of categories the same "
    "of the rarest real one.",
    "Joint: mean of 1 − ‖difference of correlations‖/d over numbers, and of contingency and mutual-information "
    "similarity over pairs with categories.",
    "Coverage: category coverage; of a number the mean over its cells of min(1, condensed/real share).",
    "Efficacy: the run's student trained on condensed and tested on held-out rows, and the other way round: mean of "
    "AUROC, balanced accuracy and F1, or of what the outcome has instead (C-index, R²). For the yardstick the model of "
    "real rows is tested on held-out rows.",
    *FAITH_CHOICES,
)


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
    notes = (*comparison.notes, near.note, *CHOICES)
    settings = {
        "U weights": "equal",
        "P weights": list(P_WEIGHTS),
        "FAITH weights": "equal",
        "rows asked": ASKED,
        "training rows searched, at most": AMONG,
        "real rows taught with, at most": TAUGHT,
    }
    return Section(NAME, TITLE, (*scores, *faithful), (), tables, notes, TITLES, settings)


def _known(values: Sequence[Floats], note: str) -> tuple[Floats, str]:
    return (np.asarray(sum(values) / len(values), np.float64), "") if len(values) else nothing(note)


# -- U ----------------------------------------------------------------------------------------------------------------


def utility_scores(
    inputs: EvaluationInput, comparison: Comparison, gaps: Sequence[Floats], *, seed: int, threads: int
) -> list[Score]:
    compared_columns, joint = comparison.columns, joint_tables(comparison, seed, mixed=True)
    columns = [column_scores(comparison, column) for column in compared_columns]
    teacher = PredictiveEfficacy.from_inputs(inputs, seed, threads)
    scores = []
    for k, side in enumerate(comparison.sides):
        parts: dict[str, tuple[Floats, str]] = {
            "f_marg": _known([1 - _apart(found[k]) for found in columns], "no columns"),
            "f_rare": _known([_rare(comparison, column, side) for column in compared_columns], "no columns"),
            "f_joint": _joined(comparison, gaps[k], joint[k]),
            "c_div": _known([_diverse(comparison, column, side) for column in compared_columns], "no columns"),
            "t_dyn": nothing("rows are not series in time: nothing to compare"),
            "e_pred": teacher.efficacy(comparison, side),
        }
        for name, (values, note) in {"utility": composed(parts), **parts}.items():
            scores.append(comparison.score(name, side, centred(values), note=note))
    return scores


def _apart(found: Mapping[str, Floats]) -> Floats:
    """δ of eq. 2: the mean of what a number's measures say, total variation of categories."""
    if "ks" not in found or not np.isfinite(found["ks"][0]):
        return found["total_variation"]
    parts = [found["ks"], 1 - np.exp(-found["kullback_leibler"]), found["jensen_shannon"] ** 2]
    if np.isfinite(found["range_coverage"][0]):
        parts.append(1 - found["range_coverage"])
    return np.asarray(sum(parts) / len(parts), np.float64)


def _rare(comparison: Comparison, column: ComparedColumn, side: ComparedRows) -> Floats:
    """How alike the shares of rare values are: beyond the fences, or in the rarest group that real rows have."""
    if column.numbers is not None:
        limits = fences(column.numbers[REAL])
        real = shares(comparison.counted(beyond(column.numbers[REAL], limits).astype(np.int64), 2))[1]
        return np.asarray(alike(real, weighted_share(beyond(column.numbers[side.which], limits), side.weight).value))
    p = shares(comparison.counted(column.codes[REAL], column.size))
    rarest = int(np.argmin(np.where(p[:, 0] > 0, p[:, 0], np.inf)))
    return np.asarray(alike(p[rarest], shares(column.counts(side.which, side.weight))[rarest]), np.float64)


def _joined(comparison: Comparison, gaps: Floats, joint: tuple[Floats, Floats]) -> tuple[Floats, str]:
    parts = [] if (lines := alignment(comparison, gaps)) is None else [lines]
    parts += [found.mean(axis=0) for found in joint if len(found)]
    return _known(parts, "there is only one column")


def _diverse(comparison: Comparison, column: ComparedColumn, side: ComparedRows) -> Floats:
    real, other = (comparison.counted(column.codes[REAL], column.size), column.counts(side.which, side.weight)[:, None])
    if column.numbers is not None:
        return np.asarray(support_coverage(shares(real), shares(other)), np.float64)
    return np.asarray(category_coverage(real, other), np.float64)


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

    def efficacy(self, comparison: Comparison, side: ComparedRows) -> tuple[Floats, str]:
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
        names = [name for name in EFFICACY if name in there and np.isfinite(there[name].value)]
        names = [name for name in names if name in back and np.isfinite(back[name].value)]
        if not names:
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
