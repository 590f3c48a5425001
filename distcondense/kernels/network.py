"""One layer of a network, row by row: for maps of patients, whose bits must not depend on a row's place.

A matrix product of a library adds up in an order that depends on how many rows there are. Here every row is computed
by itself: its additions go from the first input to the last, each rounded as IEEE 754 says, whatever stands beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Floats
from distcondense.kernels.jit import kernel


@kernel()
def _affine(rows: NDArray[Any], weights: NDArray[Any], bias: NDArray[Any], out: NDArray[Any]) -> None:
    for i in range(rows.shape[0]):
        for k in range(bias.shape[0]):
            out[i, k] = bias[k]
        for j in range(rows.shape[1]):
            x = rows[i, j]
            for k in range(bias.shape[0]):  # over outputs, so that the compiler may use vectors and change no sum
                out[i, k] += x * weights[j, k]


def affine(rows: Floats, weights: Floats, bias: Floats) -> Floats:
    """(n, d), (d, k), (k,) → (n, k): bias + Σ_j rows[:, j]·weights[j], added up in this order for each row."""
    out = np.empty((len(rows), len(bias)))
    given = [np.ascontiguousarray(part, np.float64) for part in (rows, weights, bias)]
    _affine(given[0], given[1], given[2], out)
    return out
