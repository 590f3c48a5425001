"""The cheapest assignment of rows to clusters in which no cluster is too small, exactly: successive shortest paths.

From the best assignment without the constraint, one row more for a cluster that lacks rows at a time, over the cheapest
chain of moves from a cluster that can spare one. Used by methods/clustmix/mixture.py; NumPy in, NumPy out.
"""

from __future__ import annotations

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.kernels.jit import kernel

TINY = 1e-12  # a chain must be this much cheaper, so that rounding closes no circle


@kernel()
def fill_clusters(cost: Floats, of: Index, size: Index, least: int) -> None:
    """Change `of` (n,), the cheapest cluster of each row by (n, K) costs, until each `size` (K,) is at least `least`.

    There must be K·least rows or more.
    """
    n, count = cost.shape
    price, who = np.empty((count, count)), np.empty((count, count), np.int64)
    stale = np.ones(count, np.bool_)
    reached, before = np.empty(count), np.empty(count, np.int64)
    while True:
        lacking = False
        for k in range(count):
            lacking = lacking or size[k] < least
        if not lacking:
            return
        for k in range(count):  # the cheapest row to move from a changed cluster to every other
            if stale[k]:
                price[k, :] = np.inf
        for i in range(n):
            k = of[i]
            if stale[k]:
                for j in range(count):
                    change = cost[i, j] - cost[i, k]
                    if j != k and change < price[k, j]:
                        price[k, j] = change
                        who[k, j] = i
        stale[:] = False
        for k in range(count):
            reached[k] = 0.0 if size[k] > least else np.inf
            before[k] = -1
        changed = True
        while changed:
            changed = False
            for k in range(count):
                if reached[k] < np.inf:
                    for j in range(count):
                        if reached[k] + price[k, j] < reached[j] - TINY:
                            reached[j] = reached[k] + price[k, j]
                            before[j] = k
                            changed = True
        end = -1
        for k in range(count):
            if size[k] < least and (end < 0 or reached[k] < reached[end]):
                end = k
        size[end] += 1
        stale[end] = True
        while before[end] >= 0:
            start = before[end]
            of[who[start, end]] = end
            stale[start] = True
            end = start
        size[end] -= 1
