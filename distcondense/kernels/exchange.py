"""Exchange kernels: swap the values of one column between two rows, so that every marginal stays as it is.

Both write into the arrays they are given and take their random proposals from outside, so that the answer is a
function of its inputs. Used by methods/private/placement.py; NumPy in, NumPy out.
"""

from __future__ import annotations

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.kernels.jit import kernel


@kernel(error_model="numpy")
def exchange_mmd(
    x: Index, payload: Index, values: Floats, mean: Floats, column: Index, first: Index, second: Index
) -> int:
    """Swap cells while the squared MMD to a mixture of C product distributions falls; the number of swaps made.

    x, payload: (d, m) cells, and what travels with them. values: (d, s, s) kernel between two cells of a column.
    mean: (C, d, s) mean embedding of each cell in each of C equally likely groups. The rest: (swaps,) proposals.
    MMD² = (1/m²) Σ_ik Π_j k_j(x_ij, x_kj) − (2/m) Σ_i (1/C) Σ_c Π_j mean_cj(x_ij) + constant.
    """
    d, m = x.shape
    groups = mean.shape[0]
    share = 1.0 / groups
    gram = np.ones((m, m))
    part = np.ones((groups, m))
    for i in range(m):
        for j in range(d):
            for k in range(m):
                gram[i, k] *= values[j, x[j, i], x[j, k]]
            for c in range(groups):
                part[c, i] *= mean[c, j, x[j, i]]
    size = values.shape[1]
    to_b, to_a = np.empty(size), np.empty(size)
    accepted = 0
    for t in range(len(column)):
        j, a, b = column[t], first[t], second[t]
        cells = x[j]
        va, vb = cells[a], cells[b]
        if va == vb:
            continue
        # only column j's factor changes: the relative change of row a (va → vb) and row b (vb → va) against each cell
        for v in range(size):
            to_b[v] = values[j, vb, v] / values[j, va, v] - 1.0
            to_a[v] = values[j, va, v] / values[j, vb, v] - 1.0
        change = 0.0
        for k in range(m):
            change += gram[a, k] * to_b[cells[k]] + gram[b, k] * to_a[cells[k]]
        # rows a and b move themselves: the diagonal stays 1, gram[a, b] stays what it is
        change -= to_b[va] + to_a[vb] + gram[a, b] * (to_b[vb] + to_a[va])
        gain = 0.0
        for c in range(groups):
            ratio = mean[c, j, vb] / mean[c, j, va]
            gain += share * (part[c, a] * (ratio - 1.0) + part[c, b] * (1.0 / ratio - 1.0))
        if change / m - gain >= -1e-13:
            continue
        kept = gram[a, b]
        for k in range(m):
            gram[a, k] *= 1.0 + to_b[cells[k]]
            gram[b, k] *= 1.0 + to_a[cells[k]]
        gram[a, a], gram[b, b], gram[a, b], gram[b, a] = 1.0, 1.0, kept, kept
        for k in range(m):
            gram[k, a], gram[k, b] = gram[a, k], gram[b, k]
        for c in range(groups):
            ratio = mean[c, j, vb] / mean[c, j, va]
            part[c, a] *= ratio
            part[c, b] /= ratio
        cells[a], cells[b] = vb, va
        payload[j, a], payload[j, b] = payload[j, b], payload[j, a]
        accepted += 1
    return accepted


@kernel()
def exchange_decorrelate(z: Floats, index: Index, ends: Index, proposals: Index) -> int:
    """Swap two rows' values of one column where that brings the columns' cross products closer to 0; swaps made.

    z: (m, q) centred features, column j's in ends[j]:ends[j + 1]. index: (m, d) what travels with them.
    proposals: (sweeps, d, tries, 2) pairs of rows.
    """
    q, accepted = z.shape[1], 0
    for s in range(proposals.shape[0]):
        for j in range(len(ends) - 1):
            low, high = ends[j], ends[j + 1]
            gap = z.T @ z
            for t in range(proposals.shape[2]):
                a, b = proposals[s, j, t, 0], proposals[s, j, t, 1]
                if index[a, j] == index[b, j]:
                    continue
                change = 0.0
                for k in range(q):
                    if k < low or k >= high:
                        for c in range(low, high):
                            delta = (z[a, k] - z[b, k]) * (z[b, c] - z[a, c])
                            change += delta * (2 * gap[k, c] + delta)
                if change >= 0:
                    continue
                for k in range(q):
                    if k < low or k >= high:
                        for c in range(low, high):
                            gap[k, c] += (z[a, k] - z[b, k]) * (z[b, c] - z[a, c])
                for c in range(low, high):
                    z[a, c], z[b, c] = z[b, c], z[a, c]
                index[a, j], index[b, j] = index[b, j], index[a, j]
                accepted += 1
    return accepted
