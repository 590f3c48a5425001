"""The sparse walk: exact scores and finite-difference Jacobians of a tree ensemble (eq. 7 of Thakur et al. 2026).

Perturbing feature j changes only the trees whose path tests j. For each row and tree: walk to the leaf; at a node on j
only one direction can flip the test (x + ε where x is below the threshold, x − ε where it is not). The first node that
flips in a direction decides where the perturbed row goes: walk its other subtree with the perturbed value and add the
difference of the leaves to Δ⁺ or Δ⁻ of j. The cost is O(m · trees · depth²), whatever d is; a dense answer costs the
wiping of m · d zeros besides, `jacobian_csr` does not.

x ± ε is float32, as a black box would see it. A missing value (NaN) stays missing, so its derivative is 0. Sums are
float64: differences of leaves that cancel then leave 10⁻¹⁷, which Adam ignores, and not 10⁻⁸, which it does not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distcondense.kernels.arguments import as_rows, as_steps, over_rows, read_only
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.kernels.jit import kernel


@kernel()
def depth_of(left: Any, roots: Any) -> int:
    """The longest path of any tree, in tests; the size of `flips` below."""
    level, deepest = np.zeros(left.size, np.int32), 0
    stack = np.empty(left.size + 1, np.int32)
    for t in range(roots.size):
        stack[0], n = roots[t], 1
        level[roots[t]] = 0
        while n > 0:
            n -= 1
            v = stack[n]
            deepest = max(deepest, level[v])
            if left[v] >= 0:
                for w in range(left[v], left[v] + 2):
                    level[w] = level[v] + 1
                    stack[n] = w
                    n += 1
    return deepest


@kernel()
def leaf_of(x: Any, v: Any, trees: Any) -> Any:
    """The leaf that row x reaches from node v."""
    feature, threshold, left, default_left, _ = trees
    j = feature[v]
    while j >= 0:
        z = x[j]
        below = z < threshold[v] or (z != z and default_left[v] == 1)
        v = left[v] + (0 if below else 1)
        j = feature[v]
    return v


@kernel()
def walk_row(x: Any, steps: Any, trees: Any, base: Any, delta: Any, touched: Any, mark: Any, flips: Any) -> Any:
    """Δ⁺ and Δ⁻ of one row into delta[j, 0] and delta[j, 1]; the number of touched features, and the margin.

    `touched` lists the features with an entry. `mark` must be all zero before, and the caller zeroes it after.
    """
    feature, threshold, left, default_left, roots = trees
    count, margin = 0, base
    for t in range(roots.size):
        v, n = roots[t], 0
        j = feature[v]
        while j >= 0:
            z, cut = x[j], threshold[v]
            below = z < cut
            moved = z + steps[j] if below else z - steps[j]
            flips[n] = v
            n += 1 if (moved < cut) != below else 0  # kept without a branch; never where z is NaN
            goes_left = below or (z != z and default_left[v] == 1)
            v = left[v] + (0 if goes_left else 1)
            j = feature[v]
        leaf = np.float64(threshold[v])
        margin += leaf
        for k in range(n):
            u = flips[k]
            j = feature[u]
            below = x[j] < threshold[u]
            earlier = False  # a node above has already sent the perturbed row elsewhere
            for q in range(k):
                earlier |= feature[flips[q]] == j and (x[j] < threshold[flips[q]]) == below
            if earlier:
                continue
            moved = x[j] + steps[j] if below else x[j] - steps[j]
            w = left[u] + (1 if below else 0)
            i = feature[w]
            while i >= 0:
                z = moved if i == j else x[i]
                goes_left = z < threshold[w] or (z != z and default_left[w] == 1)
                w = left[w] + (0 if goes_left else 1)
                i = feature[w]
            if mark[j] == 0:
                mark[j] = 1
                touched[count] = j
                count += 1
                delta[j, 0] = 0.0
                delta[j, 1] = 0.0
            delta[j, 0 if below else 1] += np.float64(threshold[w]) - leaf
    return count, margin


@kernel(error_model="numpy")
def link(margin: Any, sigmoid: Any) -> Any:
    """A margin's score: its logistic transform, or itself."""
    return 1.0 / (1.0 + math.exp(-margin)) if sigmoid else margin


@kernel(error_model="numpy")
def quotient(margin: Any, here: Any, up: Any, down: Any, step: Any, sigmoid: Any) -> Any:
    """J of one feature from Δ⁺, Δ⁻ and its step, as float32; `here` is link(margin)."""
    above = link(margin + up, sigmoid) if up != 0 else here
    under = link(margin + down, sigmoid) if down != 0 else here
    return np.float32((above - under) / (2.0 * np.float64(step)))


@kernel(error_model="numpy")
def gradient_row(x: Any, dldf: Any, steps: Any, forest: Any, scratch: Any, g: Any) -> None:
    """dldf · J of one row into g (d,) float32, which must be zero before; `scratch` is what `scratch_of` gives."""
    trees, base, sigmoid, _ = forest
    delta, touched, mark, flips = scratch
    count, margin = walk_row(x, steps, trees, base, delta, touched, mark, flips)
    here = link(margin, sigmoid)
    for k in range(count):
        j = touched[k]
        mark[j] = 0
        g[j] = dldf * quotient(margin, here, delta[j, 0], delta[j, 1], steps[j], sigmoid)


@kernel()
def scratch_of(d: Any, depth: Any) -> Any:
    """Δ (d, 2), touched (d,), mark (d,) and flips (depth + 1,): what `walk_row` needs of memory."""
    return np.empty((d, 2)), np.empty(d, np.int32), np.zeros(d, np.uint8), np.empty(depth + 1, np.int32)


@kernel()
def _jacobian(X: Any, steps: Any, forest: Any, J: Any, first: Any, last: Any) -> None:
    scratch, one = scratch_of(X.shape[1], forest[3]), np.float32(1)
    for i in range(first, last):
        gradient_row(X[i], one, steps, forest, scratch, J[i])


@kernel()
def _jacobian_csr(X: Any, columns: Any, steps: Any, forest: Any, counts: Any, first: Any, last: Any) -> Any:
    """The columns and values of rows first … last − 1, end to end; counts[i] is how many of them row i has.

    `forest` and `steps` know the used columns only. A row's are gathered first: a line of cache holds 16 of them then,
    and not one of them, however far apart they lie in X.
    """
    width, one, n = columns.size, np.float32(1), 0
    scratch = scratch_of(width, forest[3])
    x, g = np.empty(width, np.float32), np.zeros(width, np.float32)
    entries, values = np.empty(2 * width + 1, np.int32), np.empty(2 * width + 1, np.float32)
    for i in range(first, last):
        row = X[i]
        for k in range(width):
            x[k] = row[columns[k]]
        gradient_row(x, one, steps, forest, scratch, g)
        if n + width >= entries.size:
            more_entries, more_values = np.empty(2 * entries.size, np.int32), np.empty(2 * entries.size, np.float32)
            more_entries[:n], more_values[:n] = entries[:n], values[:n]
            entries, values = more_entries, more_values
        before = n
        for k in range(width):  # without a branch: what is zero is written over
            entries[n], values[n] = columns[k], g[k]
            n += 1 if g[k] != 0 else 0
            g[k] = 0
        counts[i] = n - before
    return entries[:n], values[:n]


@kernel()
def _scores_of(X: Any, forest: Any, sigmoid: Any, out: Any, first: Any, last: Any) -> None:
    trees, base, _, _ = forest
    roots = trees[4]
    for i in range(first, last):
        margin = base
        for t in range(roots.size):
            margin += np.float64(trees[1][leaf_of(X[i], roots[t], trees)])
        out[i] = np.float32(link(margin, sigmoid))


# (indptr, indices, data) of a sparse matrix by rows: (m + 1,) int64, (entries,) int32, (entries,) float32
CSR = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]
Trees = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32], NDArray[np.uint8], NDArray[np.int32]]


def forest_of(ensemble: TreeEnsemble) -> tuple[Trees, float, bool, int]:
    """An ensemble as the kernels take it: its arrays, its base, whether its link is the sigmoid, its depth."""
    trees = (
        read_only(ensemble.feature),
        read_only(ensemble.threshold),
        read_only(ensemble.left),
        read_only(ensemble.default_left),
        read_only(ensemble.roots),
    )
    return trees, float(ensemble.base), ensemble.link == "sigmoid", int(depth_of(trees[2], trees[4]))


def _scores(ensemble: TreeEnsemble, X: ArrayLike, sigmoid: bool, threads: int) -> NDArray[np.float32]:
    rows, forest = as_rows(X, ensemble.n_features), forest_of(ensemble)
    out = np.empty(len(rows), np.float32)
    over_rows(lambda first, last: _scores_of(rows, forest, sigmoid, out, first, last), len(rows), threads)
    return out


def margins(ensemble: TreeEnsemble, X: ArrayLike, threads: int = 1) -> NDArray[np.float32]:
    """base + Σ leaves for each row of X (m, d); (m,) float32."""
    return _scores(ensemble, X, False, threads)


def scores(ensemble: TreeEnsemble, X: ArrayLike, threads: int = 1) -> NDArray[np.float32]:
    """link(margin) for each row of X (m, d); (m,) float32."""
    return _scores(ensemble, X, ensemble.link == "sigmoid", threads)


def jacobian(ensemble: TreeEnsemble, X: ArrayLike, steps: ArrayLike, threads: int = 1) -> NDArray[np.float32]:
    """J_ij = [f(x_i + ε_j e_j) − f(x_i − ε_j e_j)] / 2ε_j for every entry of X (m, d); (m, d) float32."""
    rows = as_rows(X, ensemble.n_features)
    step, forest = as_steps(steps, ensemble.n_features), forest_of(ensemble)
    J = np.zeros(rows.shape, np.float32)
    over_rows(lambda first, last: _jacobian(rows, step, forest, J, first, last), len(rows), threads)
    return J


def jacobian_csr(ensemble: TreeEnsemble, X: ArrayLike, steps: ArrayLike, threads: int = 1) -> CSR:
    """The entries of `jacobian` that are not zero, row by row with ascending columns; the cost does not grow with d."""
    rows = as_rows(X, ensemble.n_features)
    used, forest = read_only(ensemble.used), forest_of(ensemble.compact)
    step = read_only(as_steps(steps, ensemble.n_features)[used])
    counts = np.empty(len(rows), np.int64)
    parts: dict[int, tuple[NDArray[np.int32], NDArray[np.float32]]] = {}

    def part(first: int, last: int) -> None:
        parts[first] = _jacobian_csr(rows, used, step, forest, counts, first, last)

    over_rows(part, len(rows), threads)
    columns, values = zip(*(parts[first] for first in sorted(parts)), strict=True)
    return indptr_of(counts), np.concatenate(columns), np.concatenate(values)


def indptr_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each row's entries begin, and where the last one's end."""
    indptr = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=indptr[1:])
    return indptr
