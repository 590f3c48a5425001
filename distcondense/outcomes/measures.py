"""Measures of scores against outcomes, each one weighted function of one test set: AUROC, C-index, R² and the rest.

Weights exist for the bootstrap: a resample is a vector of counts, so the data are sorted once and never copied.
lifelines and scikit-learn are the oracles in the tests; they take one unweighted sample at a time, too slowly for
a thousand resamples of a large cohort.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from distcondense.arrays import Flags, Floats, Index, Numbers

TITLES = {  # key → what people read
    "auroc": "AUROC", "macro_auroc": "AUROC, macro", "balanced_accuracy": "Balanced accuracy", "macro_f1": "F1, macro",
    "sensitivity": "Sensitivity", "specificity": "Specificity", "ppv": "PPV", "npv": "NPV", "c_index": "C-index",
    "r2": "R²", "rmse": "RMSE", "mae": "MAE",
}  # fmt: skip


def title(measure: str) -> str:
    """What people read; a measure that is not known here is its own title."""
    return TITLES.get(measure, measure)


def auroc(label: NDArray[np.int8], score: Numbers, weight: Floats | None = None) -> float:
    """P(score of a case > score of a control), ties a half. NaN where one class is absent."""
    return AurocSample(label, score)(weight)


class AurocSample:
    """One test set, sorted once; call with bootstrap counts (in the original row order)."""

    def __init__(self, label: NDArray[np.int8], score: Numbers) -> None:
        self.order = np.argsort(score, kind="stable")
        self.case = np.asarray(label)[self.order] == 1
        ordered = np.asarray(score)[self.order]
        self.ties = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1])  # first row of each run of equal scores

    def __call__(self, weight: Floats | None = None) -> float:
        w = np.ones(len(self.order)) if weight is None else weight[self.order].astype(np.float64)
        cases = np.add.reduceat(w * self.case, self.ties)
        controls = np.add.reduceat(w * ~self.case, self.ties)
        total = cases.sum() * controls.sum()
        if total == 0:
            return float("nan")
        below = np.cumsum(controls) - controls
        return float((cases * (below + controls / 2)).sum() / total)


def c_index(time: Floats, event: NDArray[np.int8], risk: Numbers, weight: Floats | None = None) -> float:
    """Harrell's C: of the pairs whose order is known, how many have the higher risk die first. NaN without pairs."""
    return CIndexSample(time, event, risk)(weight)


class CIndexSample:
    """One test set, sorted once; call with bootstrap counts (in the original row order)."""

    def __init__(self, time: Floats, event: NDArray[np.int8], risk: Numbers) -> None:
        # latest time first; at one time censored rows come first, because they outlive an event at that time
        self.order = np.lexsort((np.asarray(event), -np.asarray(time, np.float64)))
        self.time = np.ascontiguousarray(np.asarray(time, np.float64)[self.order])
        self.event = np.ascontiguousarray(np.asarray(event)[self.order].astype(np.int8))
        _, rank = np.unique(np.asarray(risk)[self.order], return_inverse=True)
        self.rank = np.ascontiguousarray(rank.astype(np.int64))

    def __call__(self, weight: Floats | None = None) -> float:
        n = len(self.order)
        w = np.ones(n) if weight is None else np.ascontiguousarray(weight[self.order], dtype=np.float64)
        agree, pairs = _concordance(self.time, self.event, self.rank, w)
        return float(agree / pairs) if pairs > 0 else float("nan")


@njit(cache=True, nogil=True)
def _concordance(time, event, rank, weight):  # type: ignore[no-untyped-def]
    """Rows come latest first; a Fenwick tree over risk ranks holds the weight of everyone known to live longer."""
    n = len(time)
    size = rank.max() + 1
    tree = np.zeros(size + 1)
    at = np.zeros(size)
    inside, agree, pairs = 0.0, 0.0, 0.0
    i = 0
    while i < n:
        j = i
        while j < n and time[j] == time[i] and event[j] == event[i]:
            if event[j] == 1:
                below, k = 0.0, rank[j]
                while k > 0:
                    below += tree[k]
                    k -= k & -k
                agree += weight[j] * (below + 0.5 * at[rank[j]])
                pairs += weight[j] * inside
            j += 1
        for q in range(i, j):  # two events at one time are not comparable, so they enter together, afterwards
            at[rank[q]] += weight[q]
            inside += weight[q]
            k = rank[q] + 1
            while k <= size:
                tree[k] += weight[q]
                k += k & -k
        i = j
    return agree, pairs


def weights_of(weight: Floats | None, rows: int) -> Floats:
    return np.ones(rows) if weight is None else np.asarray(weight, np.float64)


class ShareSample:
    """The share of rows `of` among rows `among`; NaN where there are none."""

    def __init__(self, of: Flags, among: Flags) -> None:
        self.of, self.among = of & among, among

    def __call__(self, weight: Floats | None = None) -> float:
        w = weights_of(weight, len(self.of))
        total = w[self.among].sum()
        return float(w[self.of].sum() / total) if total else float("nan")


class MacroAurocSample:
    """Mean over classes of one class's probability against the rest; a class that is absent is left out."""

    def __init__(self, label: Index, probabilities: Numbers) -> None:
        classes = range(probabilities.shape[1])
        self.each = [AurocSample((label == k).astype(np.int8), probabilities[:, k]) for k in classes]

    def __call__(self, weight: Floats | None = None) -> float:
        found = np.array([one(weight) for one in self.each])
        return float(np.mean(found[np.isfinite(found)])) if np.isfinite(found).any() else float("nan")


class ConfusionSample:
    """Balanced accuracy (mean recall) or macro F1 of decisions; classes that are nowhere are left out."""

    def __init__(self, label: Index, decided: Index, classes: int, *, f1: bool) -> None:
        self.cell, self.classes, self.f1 = label * classes + decided, classes, f1

    def __call__(self, weight: Floats | None = None) -> float:
        counts = np.bincount(self.cell, weights_of(weight, len(self.cell)), minlength=self.classes**2)
        table = counts.reshape(self.classes, self.classes)
        hit, real, said = np.diag(table), table.sum(1), table.sum(0)
        of = real + said if self.f1 else real
        there = of > 0
        return float(np.mean((1 + self.f1) * hit[there] / of[there])) if there.any() else float("nan")


class ErrorSample:
    """R², root mean squared error or mean absolute error of predictions; R² is NaN where the outcome is constant."""

    def __init__(self, value: Floats, predicted: Numbers, measure: str) -> None:
        self.value, self.measure = np.asarray(value, np.float64), measure
        self.error = np.asarray(predicted, np.float64) - self.value

    def __call__(self, weight: Floats | None = None) -> float:
        w = weights_of(weight, len(self.value))
        total = w.sum()
        if not total:
            return float("nan")
        if self.measure == "mae":
            return float(w @ np.abs(self.error) / total)
        squared = float(w @ self.error**2 / total)
        if self.measure == "rmse":
            return float(np.sqrt(squared))
        there = self.value[w > 0]
        if there.min() == there.max():  # not asked of the variance, which rounding may leave above 0
            return float("nan")
        mean = w @ self.value / total
        return 1 - squared / float(w @ (self.value - mean) ** 2 / total)


def best_threshold(label: NDArray[np.int8], score: Numbers) -> float:
    """The cut with the largest sensitivity + specificity (Youden), to be chosen on rows that are not tested on."""
    order = np.argsort(-score, kind="stable")
    ranked, cases = score[order], label[order] == 1
    sensitivity = np.cumsum(cases) / max(cases.sum(), 1)
    fall_out = np.cumsum(~cases) / max((~cases).sum(), 1)
    last_of_tie = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # a cut must not split equal scores
    return float(ranked[last_of_tie[np.argmax((sensitivity - fall_out)[last_of_tie])]])


def expected_auroc(score: Numbers, probability: Floats) -> float:
    """The AUROC `score` would have if outcomes were drawn with these probabilities; ties count half."""
    order = np.argsort(score, kind="stable")
    ranked, p = score[order], probability[order]
    start = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    positive, negative = np.add.reduceat(p, start), np.add.reduceat(1 - p, start)
    return float((positive * (negative.cumsum() - negative / 2)).sum() / (positive.sum() * negative.sum()))
