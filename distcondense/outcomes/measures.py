"""Measures of scores against outcomes: AUROC, C-index, R² and the rest, each with what every row adds to it.

A `Measured` has, beside its value, the influence of each row: how much the value would change, to first order, if the
row counted once more. An interval is made of these in one pass (evaluation/score.py: `interval`), with nothing sorted
or resampled again; for the AUROC that is DeLong's variance, for the others the infinitesimal jackknife. The slow twins
in tests/naive.py take weights, and the influences are their derivatives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Flags, Floats, Index, Numbers
from distcondense.kernels.jit import kernel
from distcondense.outcomes.kaplan_meier import SurvivalCurves

TITLES = {  # key → what people read
    "auroc": "AUROC", "macro_auroc": "AUROC, macro", "pairwise_auroc": "AUROC, macro, one against one",
    "auprc": "AUPRC", "balanced_accuracy": "Balanced accuracy",
    "f1": "F1", "macro_f1": "F1, macro", "sensitivity": "Sensitivity", "specificity": "Specificity", "ppv": "PPV",
    "npv": "NPV", "brier": "Brier score", "calibration_slope": "Calibration slope", "c_index": "C-index",
    "integrated_brier": "Integrated Brier score", "calibration": "Expected/observed at the horizon",
    "r2": "R²", "rmse": "RMSE", "mae": "MAE",
}  # fmt: skip
CERTAIN = 1e-6  # probabilities are taken for no closer to 0 or 1
NEWTON = 50  # steps of a calibration slope


def title(measure: str) -> str:
    """What people read; a measure that is not known here is its own title."""
    return TITLES.get(measure, measure)


@dataclass(frozen=True)
class Measured:
    """A value on one test set. NaN: not defined there."""

    value: float
    influence: Floats | None = None  # (n,) ∂value/∂(how often a row counts); None: no interval
    share: int = 0  # a number within [0, 1]: of about so many rows it is a share; 0: any number


NONE = Measured(float("nan"))


def auroc(label: NDArray[np.int8], score: Numbers) -> float:
    """P(score of a case > score of a control), ties a half. NaN where one class is absent."""
    return ranking(label, score).value


def ranking(label: NDArray[np.int8], score: Numbers) -> Measured:
    """The AUROC, and as influences DeLong's structural components: how each row stands among those of the other class.

    They are stretched by √(k/(k − 1)) of their class, so that squares add up to DeLong's own variance.
    """
    case = np.asarray(label) == 1
    _, rank = np.unique(np.asarray(score), return_inverse=True)
    size = int(rank.max()) + 1 if len(rank) else 0
    cases, controls = np.bincount(rank[case], minlength=size), np.bincount(rank[~case], minlength=size)
    many, few = int(cases.sum()), int(controls.sum())
    if not many or not few:
        return NONE
    below = (np.cumsum(controls) - controls / 2) / few  # of a case: how many controls it is above
    above = 1 - (np.cumsum(cases) - cases / 2) / many
    value = float((cases * below).sum() / many)
    influence = np.empty(len(rank))
    influence[case] = (below[rank[case]] - value) / many * np.sqrt(many / max(many - 1, 1))
    influence[~case] = (above[rank[~case]] - value) / few * np.sqrt(few / max(few - 1, 1))
    return Measured(value, influence, min(many, few))


def precision(label: NDArray[np.int8], score: Numbers) -> Measured:
    """Average precision (AUPRC): the mean, over cases, of the share of cases among rows that score as high."""
    case = np.asarray(label) == 1
    _, rank = np.unique(-np.asarray(score, np.float64), return_inverse=True)  # highest first
    if not case.any():
        return NONE
    size = int(rank.max()) + 1
    cases = np.bincount(rank[case], minlength=size).astype(np.float64)
    hits, seen, total = np.cumsum(cases), np.cumsum(np.bincount(rank, minlength=size)), cases.sum()
    at = hits / seen
    value = float((cases * at).sum() / total)
    lower = (cases / total)[::-1]  # a row counts in the precision at every score that is no higher than its own
    gain = np.cumsum(lower * ((seen - hits) / seen**2)[::-1])[::-1]
    loss = np.cumsum(lower * (hits / seen**2)[::-1])[::-1]
    influence = np.where(case, (at[rank] - value) / total + gain[rank], -loss[rank])
    return Measured(value, influence, int(total))


def share(of: Flags, among: Flags) -> Measured:
    """The share of rows `of` among rows `among`; NaN where there are none."""
    total = int(among.sum())
    if not total:
        return NONE
    value = float((of & among).sum() / total)
    return Measured(value, among * (of - value) / total, total)


def mean_of(parts: list[Measured]) -> Measured:
    """The mean of those that are defined."""
    there = [part for part in parts if np.isfinite(part.value) and part.influence is not None]
    if not there:
        return NONE
    influence = sum((part.influence for part in there if part.influence is not None), np.zeros(1)) / len(there)
    return Measured(float(np.mean([part.value for part in there])), influence, min(part.share for part in there))


def recall(label: Index, decided: Index | Flags, classes: int) -> Measured:
    """Balanced accuracy: the mean over classes of the share that was found."""
    return mean_of([share(decided == k, label == k) for k in range(classes)])


def f1(label: Index, decided: Index | Flags, classes: Index | range) -> Measured:
    """2·hits/(real + said), the mean over these classes; those that are nowhere are left out."""
    parts = []
    for k in classes:
        real, said = label == k, decided == k
        of = int(real.sum() + said.sum())
        if of:
            hit = real & said
            value = float(2 * hit.sum() / of)
            parts.append(Measured(value, (2.0 * hit - value * (real.astype(float) + said)) / of, of))
    return mean_of(parts)


def macro_ranking(label: Index, scores: Numbers) -> Measured:
    """Mean over classes of one class's score against the rest; a class that is absent is left out."""
    return mean_of([ranking((label == k).astype(np.int8), scores[:, k]) for k in range(scores.shape[1])])


def pairwise_ranking(label: Index, scores: Numbers) -> Measured:
    """Mean over pairs of classes, both ways, of one class's score among the rows of the two (Hand and Till 2001)."""
    every = []
    for k in range(scores.shape[1]):
        for other in range(scores.shape[1]):
            if k != other:
                two = (label == k) | (label == other)
                found = ranking((label[two] == k).astype(np.int8), scores[two, k])
                influence = np.zeros(len(label))
                if found.influence is not None:
                    influence[two] = found.influence
                    found = replace(found, influence=influence)
                every.append(found)
    return mean_of(every)


def average(loss: Floats, *, bounded: bool = False) -> Measured:
    """The mean of a loss over rows; `bounded`: within [0, 1]."""
    if not len(loss):
        return NONE
    value = float(loss.mean())
    return Measured(value, (loss - value) / len(loss), len(loss) if bounded else 0)


def brier(label: Index, probabilities: Numbers) -> Measured:
    """Mean squared distance of probabilities to what happened; of (n, K) probabilities halved over all classes."""
    p = np.asarray(probabilities, np.float64)
    if p.ndim == 1:
        return average((p - label) ** 2, bounded=True)
    return average(((p - np.eye(p.shape[1])[label]) ** 2).sum(1) / 2, bounded=True)


def calibration_slope(label: NDArray[np.int8], probability: Numbers) -> Measured:
    """The slope of a logistic regression of what happened on the log-odds that were said; 1: as it should be.

    NaN where it does not exist: one class, one score, or classes that a cut separates.
    """
    p = np.clip(np.asarray(probability, np.float64), CERTAIN, 1 - CERTAIN)
    said, y = np.log(p / (1 - p)), np.asarray(label, np.float64)
    if not len(y) or y.min() == y.max() or said.min() == said.max():
        return NONE
    if said[y == 0].max() <= said[y == 1].min() or said[y == 1].max() <= said[y == 0].min():
        return NONE
    design = np.stack([np.ones_like(said), said], axis=1)
    beta = np.zeros(2)
    for _ in range(NEWTON):
        fitted = 1 / (1 + np.exp(-np.clip(design @ beta, -30, 30)))
        hessian = (design * (fitted * (1 - fitted))[:, None]).T @ design
        step = np.linalg.solve(hessian + 1e-12 * np.eye(2), design.T @ (y - fitted))
        step /= max(1.0, float(np.abs(step).max()))  # of length 1 at the most: no overshooting into certainty
        beta += step
        if np.abs(step).max() < 1e-10:
            break
    fitted = 1 / (1 + np.exp(-np.clip(design @ beta, -30, 30)))
    hessian = (design * (fitted * (1 - fitted))[:, None]).T @ design
    influence = np.linalg.solve(hessian + 1e-12 * np.eye(2), (design * (y - fitted)[:, None]).T)[1]
    return Measured(float(beta[1]), influence)


def error(value: Floats, predicted: Numbers, measure: str) -> Measured:
    """R², root mean squared error or mean absolute error of predictions; R² is NaN where the outcome is constant."""
    y = np.asarray(value, np.float64)
    if not len(y):
        return NONE
    apart = np.asarray(predicted, np.float64) - y
    if measure == "mae":
        return average(np.abs(apart))
    squared = average(apart**2)
    assert squared.influence is not None
    if measure == "rmse":
        root = float(np.sqrt(squared.value))
        return Measured(root, squared.influence / max(2 * root, 1e-300))
    if y.min() == y.max():  # not asked of the variance, which rounding may leave above 0
        return NONE
    around = (y - y.mean()) ** 2
    left = float((apart**2).sum() / around.sum())
    return Measured(1 - left, -(apart**2 - left * around) / around.sum())


# -- a time and an event ----------------------------------------------------------------------------------------------


def c_index(time: Floats, event: NDArray[np.int8], risk: Numbers) -> float:
    """Harrell's C: of the pairs whose order is known, how many have the higher risk die first. NaN without pairs."""
    return concordance(time, event, risk).value


def concordance(time: Floats, event: NDArray[np.int8], risk: Numbers) -> Measured:
    """Harrell's C; the influence of a row is what its own pairs say beyond C."""
    if not len(time):
        return NONE
    # latest time first; at one time censored rows come first, because they outlive an event at that time
    order = np.lexsort((np.asarray(event), -np.asarray(time, np.float64)))
    _, rank = np.unique(np.asarray(risk)[order], return_inverse=True)
    agree, pairs = _concordance(
        np.asarray(time, np.float64)[order], np.asarray(event)[order].astype(np.int8), rank.astype(np.int64)
    )
    total = pairs.sum() / 2  # each pair is known to both of its rows
    if not total:
        return NONE
    value = float(agree.sum() / 2 / total)
    influence = np.empty(len(order))
    influence[order] = (agree - value * pairs) / total
    return Measured(value, influence, int(np.asarray(event).sum()))


@kernel()
def _concordance(time: Any, event: Any, rank: Any) -> Any:
    """(n,) pairs of each row that are known and that agree, ties a half. Rows come latest first.

    Two sweeps with a Fenwick tree over risk ranks: of an event the rows that outlive it, of a row the events before.
    """
    n, size = len(time), rank.max() + 1
    agree, pairs = np.zeros(n), np.zeros(n)
    tree, at = np.zeros(size + 1), np.zeros(size)
    inside, i = 0.0, 0
    while i < n:
        j = i
        while j < n and time[j] == time[i] and event[j] == event[i]:
            if event[j] == 1:
                agree[j] += _upto(tree, rank[j]) + 0.5 * at[rank[j]]
                pairs[j] += inside
            j += 1
        for q in range(i, j):  # two events at one time are not comparable, so they enter together, afterwards
            at[rank[q]] += 1
            inside += 1
            _enter(tree, rank[q])
        i = j
    tree[:], at[:], inside = 0.0, 0.0, 0.0
    i = n - 1
    while i >= 0:
        j = i
        while j >= 0 and time[j] == time[i] and event[j] == event[i]:
            agree[j] += inside - _upto(tree, rank[j]) - 0.5 * at[rank[j]]
            pairs[j] += inside
            j -= 1
        for q in range(i, j, -1):
            if event[q] == 1:
                at[rank[q]] += 1
                inside += 1
                _enter(tree, rank[q])
        i = j
    return agree, pairs


@kernel()
def _upto(tree: Any, rank: Any) -> Any:
    """How many have entered below this rank."""
    total, k = 0.0, rank
    while k > 0:
        total += tree[k]
        k -= k & -k
    return total


@kernel()
def _enter(tree: Any, rank: Any) -> None:
    k = rank + 1
    while k < len(tree):
        tree[k] += 1
        k += k & -k


def survival_loss(time: Floats, event: NDArray[np.int8], alive: Floats, times: Floats) -> Measured:
    """The Brier score at each of `times`, weighted for censoring (Graf 1999), as a mean over the times.

    alive: (n, times) the survival that was said. Weights come from a Kaplan–Meier curve of censoring in these very rows
    and are taken as given by the interval.
    """
    t, happened = np.asarray(time, np.float64), np.asarray(event) == 1
    if not len(t):
        return NONE
    followed = SurvivalCurves(t, ~happened)
    before = followed.survival(np.nextafter(t, -np.inf))  # still followed just before one's own time
    loss = np.zeros(len(t))
    for k, (moment, still) in enumerate(zip(times, followed.survival(times), strict=True)):
        gone = (t <= moment) & happened
        loss[gone] += alive[gone, k] ** 2 / np.maximum(before[gone], 1e-12)
        later = t > moment
        loss[later] += (1 - alive[later, k]) ** 2 / max(still, 1e-12)
    return average(loss / len(times))


def expected_over_observed(time: Floats, event: NDArray[np.int8], alive: Floats, horizon: float) -> Measured:
    """Events by the horizon: the share that was expected over the share that happened (Kaplan–Meier). 1: right.

    alive: (n,) the survival to the horizon that was said.
    """
    t, happened = np.asarray(time, np.float64), np.asarray(event) == 1
    if not len(t):
        return NONE
    free = float(SurvivalCurves(t, happened).survival(np.array([horizon]))[0])
    if free >= 1:
        return NONE
    moments, place = np.unique(t, return_inverse=True)
    events = np.bincount(place[happened], minlength=len(moments)).astype(float)
    here = len(t) - np.concatenate([[0], np.cumsum(np.bincount(place, minlength=len(moments)))[:-1]])
    used = moments <= horizon
    # S = Π(1 − d/r), so ∂ log S is −1/(r − d) where a row has its event, and d/(r(r − d)) wherever it is at risk
    left = np.maximum(here - events, 1e-12)
    at_risk = np.cumsum(np.where(used, events / (here * left), 0.0))
    moved = free * (at_risk[place] - np.where(used[place] & happened, 1 / left[place], 0.0))
    said = np.asarray(1 - alive, np.float64)
    expected, observed = float(said.mean()), 1 - free
    value = expected / observed
    return Measured(value, (said - expected) / len(t) / observed + value * moved / observed)


def best_threshold(label: NDArray[np.int8], score: Numbers) -> float:
    """The cut with the largest sensitivity + specificity (Youden), to be chosen on rows that are not tested on."""
    order = np.argsort(-score, kind="stable")
    ranked, cases = score[order], label[order] == 1
    sensitivity = np.cumsum(cases) / max(cases.sum(), 1)
    fall_out = np.cumsum(~cases) / max((~cases).sum(), 1)
    last_of_tie = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # a cut must not split equal scores
    return float(ranked[last_of_tie[np.argmax((sensitivity - fall_out)[last_of_tie])]])
