"""Exponentials, row sums and affine maps whose bits depend on a row alone, not on its place in an array.

`np.exp` has one code for the body of an array and another for its ends on some processors, and where it does, a person
who is added shifts everybody behind them by a last bit. Here every element goes through the same additions and
multiplications, each rounded as IEEE 754 says: no libm, no vector library, no contraction. So the bits are the same at
any offset, length and stride, vectorised or not, compiled or not, on any processor. A library's matrix product, too,
adds up in an order that depends on how many rows there are; `affine` goes from a row's first input to its last.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Floats
from distcondense.kernels.jit import kernel

RANGE = 700.0  # arguments outside ±RANGE, and what is no number, are moved to its nearest end; never an overflow
_INVERSE = 1 / math.log(2)
_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # ln 2 = high + low; k·high is exact for |k| < 2¹¹
_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_BIAS, _FRACTION = 1023, 52  # of float64: the bits of 2ᵏ are (k + bias)·2⁵²; |k| ≤ 1011 for arguments in the range
_SERIES = tuple(1 / math.factorial(n) for n in range(14))  # of e^r, |r| ≤ ln 2 / 2: what is left out is below 2⁻⁵⁷
(_S0, _S1, _S2, _S3, _S4, _S5, _S6, _S7, _S8, _S9, _S10, _S11, _S12, _S13) = _SERIES


@kernel(inline="always")
def _power(x: Any) -> Any:
    """e^x = 2ᵏ·e^r, x = k·ln 2 + r, of an x in the range."""
    k = np.floor(x * _INVERSE + 0.5)
    r = (x - k * _HIGH) - k * _LOW
    p = _S7 + r * (_S8 + r * (_S9 + r * (_S10 + r * (_S11 + r * (_S12 + r * _S13)))))
    p = _S0 + r * (_S1 + r * (_S2 + r * (_S3 + r * (_S4 + r * (_S5 + r * (_S6 + r * p))))))
    return p * np.int64((np.int64(k) + _BIAS) << _FRACTION).view(np.float64)


@kernel()
def _exp(values: NDArray[Any], out: NDArray[Any]) -> None:
    for i in range(values.shape[0]):
        x = values[i]
        x = x if x > -RANGE else -RANGE  # so that what is no number goes to the lower end
        x = x if x < RANGE else RANGE
        out[i] = _power(x)


@kernel(error_model="numpy")
def logistic(score: Any, label: Any, most: Any, weight: Any, g: Any, h: Any) -> None:
    """g (n,) ← p − label and h (n,) ← weight·p·(1 − p), where p = 1/(1 + e^−score), scores clipped to ±most."""
    for i in range(score.shape[0]):
        x = score[i] if score[i] > -most else -most  # what is no number goes to the lower end
        x = x if x < most else most
        p = 1 / (1 + _power(-x))
        g[i] = p - label[i]
        h[i] = weight * p * (1 - p)


def exp(values: Any) -> Floats:
    """e^x of each element, of any shape, in float64: right to two units in the last place."""
    flat = np.ascontiguousarray(values, np.float64)
    out = np.empty(flat.shape)
    _exp(flat.reshape(-1), out.reshape(-1))
    return out


def row_sums(values: Floats) -> Floats:
    """(n,) sums of the rows of (n, K), added from left to right: NumPy's own order depends on shape and layout."""
    total = values[:, 0].copy()
    for column in range(1, values.shape[1]):
        total += values[:, column]
    return total


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
    inputs = [np.ascontiguousarray(part, np.float64) for part in (rows, weights, bias)]
    _affine(inputs[0], inputs[1], inputs[2], out)
    return out
