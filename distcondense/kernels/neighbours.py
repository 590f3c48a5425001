"""Nearest rows, exactly, in blocks: which rows of one table are nearest to each row of another.

‖a − b‖² = ‖a‖² − 2ab + ‖b‖² through BLAS is fast and rounds. So it only chooses: every row that rounding lets be among
the k nearest is measured again as a difference, in float64. The answer is that of a plain loop over all pairs (a copy
has distance 0, of equal distances the lower row number comes first), whatever the blocks and the number of threads.
NumPy in, NumPy out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from distcondense.arrays import Floats, Index, Matrix
from distcondense.errors import SettingsError
from distcondense.kernels.arguments import as_rows, over_rows, read_only
from distcondense.kernels.jit import kernel

POINTS = 256  # rows of a block: its products with AMONG rows are 4 MB a thread and stay in the cache
AMONG = 4096
ROUNDING = 2.0**-24  # of float32
TINY = 1e-30  # below it float32's squares vanish
NOBODY = -1


def nearest(points: Any, among: Any, k: int, threads: int = 1) -> tuple[Floats, Index]:
    """Euclidean distances (n, k), nearest first, and row numbers (n, k) of the k rows of `among` nearest to each point.

    points (n, d), among (m, d) float32. Where m < k there are m columns. A row that is itself in `among` has itself, or
    its copy, as its first neighbour: ask for one more and leave the first out.
    """
    points, among, k = _checked(points, among, k)
    squared, found = _nobody(len(points), k)
    centre, scale = _middle(points, among)
    blame = np.float32(8 * (points.shape[1] + 8) * ROUNDING)  # of ‖a‖² + ‖b‖²: more than all the rounding there is
    with threadpool_limits(1, user_api="blas"):  # the threads are ours: each has its own rows
        for first in range(0, len(among) if k else 0, AMONG):
            some = among[first : first + AMONG]
            shifted = _shifted(some, centre, scale)
            product, norm = np.ascontiguousarray(-2 * shifted.T), _norms(shifted)
            high, low = norm * (1 + blame) + np.float32(TINY), norm * (1 - blame) - np.float32(TINY)

            def block(start: int, stop: int, some=some, product=product, high=high, low=low, first=first) -> None:  # type: ignore[no-untyped-def]
                for at in range(start, stop, POINTS):
                    here = slice(at, min(at + POINTS, stop))
                    rows = _shifted(points[here], centre, scale)
                    _merge(
                        rows @ product,
                        2 * blame * _norms(rows),
                        high,
                        low,
                        points[here],
                        some,
                        first,
                        squared[here],
                        found[here],
                    )

            over_rows(block, len(points), threads)
    return np.sqrt(squared), found


def nearest_manhattan(points: Any, among: Any, k: int, threads: int = 1) -> tuple[Floats, Index]:
    """The same for Σ|a − b|."""
    points, among, k = _checked(points, among, k)
    distance, found = _nobody(len(points), k)
    for first in range(0, len(among) if k else 0, AMONG):
        columns = read_only(np.ascontiguousarray(among[first : first + AMONG].T))

        def block(start: int, stop: int, columns: Matrix = columns, first: int = first) -> None:
            _merge_manhattan(points[start:stop], columns, first, distance[start:stop], found[start:stop])

        over_rows(block, len(points), threads)
    return distance, found


def _checked(points: Any, among: Any, k: int) -> tuple[Matrix, Matrix, int]:
    points = as_rows(points, name="points")
    among = as_rows(among, points.shape[1], "among")
    if k < 1:
        raise SettingsError("k", "must be at least 1", found=str(k))
    for name, rows in (("points", points), ("among", among)):
        if not all(np.isfinite(rows[at : at + AMONG]).all() for at in range(0, len(rows), AMONG)):
            raise SettingsError(name, "must be finite numbers", found="some that are NaN or infinite")
    return points, among, min(k, len(among))


def _nobody(n: int, k: int) -> tuple[Floats, Index]:
    return np.full((n, k), np.inf), np.full((n, k), NOBODY, np.int64)


def _middle(points: Matrix, among: Matrix) -> tuple[Floats, float]:
    """Where zero is put, and the unit: rounding is least near zero, and squares of large numbers must not overflow."""
    centre = among[:AMONG].mean(0, dtype=np.float64) if len(among) else np.zeros(among.shape[1])
    ends = [float(end) for rows in (points, among) if rows.size for end in (rows.min(), rows.max())]
    largest = max(map(abs, ends), default=0.0)
    return centre, 2.0 ** np.ceil(np.log2(largest)) if largest > 0 else 1.0


def _shifted(rows: Matrix, centre: Floats, scale: float) -> Matrix:
    return ((rows - centre) / scale).astype(np.float32)


def _norms(rows: Matrix) -> Matrix:
    return np.einsum("ij,ij->i", rows, rows, dtype=np.float64).astype(np.float32)


@kernel()
def _merge(
    products: Matrix,
    slack: Matrix,
    high: Matrix,
    low: Matrix,
    points: Matrix,
    among: Matrix,
    first: int,
    squared: Floats,
    found: Index,
) -> None:
    """Put these rows of `among`, the first of which has number `first`, among the k nearest so far.

    products (n, m) are −2ab; high, low (m,) are ‖b‖² with room for rounding; slack (n,) is the room that a needs.
    """
    k, m, d = squared.shape[1], len(among), points.shape[1]
    best = np.empty(k, np.float32)
    for i in range(len(points)):
        best[:] = np.inf
        for j in range(m):  # the k least of what the distances are at most
            value = products[i, j] + high[j]
            if value < best[k - 1]:
                at = k - 1
                while at > 0 and best[at - 1] > value:
                    best[at] = best[at - 1]
                    at -= 1
                best[at] = value
        limit = best[k - 1] + slack[i]
        for j in range(m):  # all whose distance may be as small
            if products[i, j] + low[j] <= limit:
                total = 0.0
                for c in range(d):
                    step = np.float64(points[i, c]) - np.float64(among[j, c])
                    total += step * step
                _enter(total, first + j, squared[i], found[i])
                if squared[i, k - 1] == 0.0:
                    break


@kernel()
def _merge_manhattan(points: Matrix, columns: Matrix, first: int, distance: Floats, found: Index) -> None:
    """The same for Σ|a − b|, on rows that are given as columns (d, m): the inner loop runs over neighbours."""
    d, m = columns.shape
    k = distance.shape[1]
    total = np.empty(m, np.float64)
    for i in range(len(points)):
        total[:] = 0.0
        for c in range(d):
            a = np.float64(points[i, c])
            for j in range(m):
                total[j] += abs(a - np.float64(columns[c, j]))
        for j in range(m):
            if total[j] < distance[i, k - 1]:
                _enter(total[j], first + j, distance[i], found[i])


@kernel()
def _enter(value: float, number: int, values: Floats, numbers: Index) -> None:
    """Into a sorted list of k; a later number stands behind those of the same value."""
    at = len(values) - 1
    if value >= values[at]:
        return
    while at > 0 and values[at - 1] > value:
        values[at] = values[at - 1]
        numbers[at] = numbers[at - 1]
        at -= 1
    values[at] = value
    numbers[at] = number
