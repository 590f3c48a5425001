"""Discrimination of scores against outcomes: AUROC and Harrell's C-index, both weighted, both O(n log n).

Weights exist for the bootstrap: a resample is a vector of counts, so the data are sorted once and never copied.
lifelines and scikit-learn are the oracles in the tests; they take one unweighted sample at a time, too slowly for
a thousand resamples of a large cohort.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def auroc(label: NDArray[np.int8], score: NDArray[np.floating], weight: Floats | None = None) -> float:
    """P(score of a case > score of a control), ties a half. NaN where one class is absent."""
    return AurocSample(label, score)(weight)


class AurocSample:
    """One test set, sorted once; call with bootstrap counts (in the original row order)."""

    def __init__(self, label: NDArray[np.int8], score: NDArray[np.floating]) -> None:
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


def c_index(time: Floats, event: NDArray[np.int8], risk: NDArray[np.floating], weight: Floats | None = None) -> float:
    """Harrell's C: of the pairs whose order is known, how many have the higher risk die first. NaN without pairs."""
    return CIndexSample(time, event, risk)(weight)


class CIndexSample:
    """One test set, sorted once; call with bootstrap counts (in the original row order)."""

    def __init__(self, time: Floats, event: NDArray[np.int8], risk: NDArray[np.floating]) -> None:
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
