"""Perturbation batches for models without structure: copies of X, each with one column moved by ±ε.

The copies are made once. From one block of columns to the next only the moved columns are put back and others moved,
so building a batch costs O(rows) per column, not O(rows · d).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


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
            for c, j in enumerate(block):
                copies[2 * c, :, j] = part[:, j] + steps[j]  # float32, whatever the copies are
                copies[2 * c + 1, :, j] = part[:, j] - steps[j]
            view = copies[: 2 * len(block)].view()
            view.flags.writeable = False
            yield slice(top, top + len(part)), at, block, view
            for c, j in enumerate(block):
                copies[2 * c : 2 * c + 2, :, j] = part[:, j]
