"""Perturbation batches for models without structure: copies of X, each with one column moved by ±ε.

The copies are made once. From one block of columns to the next only the moved columns are put back and others moved,
so building a batch costs O(rows) per column, not O(rows · d).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.kernels.jit import kernel


@kernel()
def _move(out: Any, X: Any, steps: Any, columns: Any) -> None:
    """Copies 2c and 2c + 1 take column columns[c] moved by +ε and −ε; the sum is float32 whatever `out` is."""
    for c in range(columns.size):
        j = columns[c]
        for i in range(X.shape[0]):
            out[2 * c, i, j] = X[i, j] + steps[j]
            out[2 * c + 1, i, j] = X[i, j] - steps[j]


@kernel()
def _put_back(out: Any, X: Any, columns: Any) -> None:
    for c in range(columns.size):
        j = columns[c]
        for i in range(X.shape[0]):
            out[2 * c, i, j] = X[i, j]
            out[2 * c + 1, i, j] = X[i, j]


def plan(
    rows: int, d: int, columns: int, itemsize: int, memory_budget: int, batch_rows: int | None = None
) -> tuple[int, int]:
    """(rows, columns) of one batch: 2 · rows · columns · d items stay within the budget, if one row does.

    Stripes of rows are even; a batch takes no more columns than it needs for about `batch_rows` perturbed rows.
    """
    row_pair = 2 * d * itemsize
    most = max(1, min(rows, memory_budget // row_pair))
    height = -(-rows // -(-rows // most)) if rows else 1
    width = max(1, min(columns, memory_budget // (row_pair * height)))
    return height, width if batch_rows is None else min(width, max(1, -(-batch_rows // (2 * height))))


def perturbed(
    X: NDArray[np.float32],
    steps: NDArray[np.float32],
    columns: NDArray[np.int64],
    *,
    shape: tuple[int, int],
    dtype: Any,
) -> Iterator[tuple[slice, int, NDArray[np.int64], NDArray[Any]]]:
    """Yield (rows, at, block, batch): batch[2c] and batch[2c + 1] are those rows with block[c] moved by +ε and −ε.

    `block` is columns[at : at + width]. The batch, (2·columns, rows, d), is read-only and holds until the next.
    """
    height, width = shape
    for top in range(0, len(X), height):
        part = X[top : top + height]
        copies = np.empty((2 * min(width, len(columns)), *part.shape), dtype)
        copies[:] = part
        for at in range(0, len(columns), width):
            block = columns[at : at + width]
            _move(copies, part, steps, block)
            view = copies[: 2 * len(block)].view()
            view.flags.writeable = False
            yield slice(top, top + len(part)), at, block, view
            _put_back(copies, part, block)
