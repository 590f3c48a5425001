"""Exponentials whose bits depend on the value alone: what a row adds must not change with its place in an array.

`np.exp` has one code for the body of an array and another for its ends on some processors, and where it does, a person
who is added shifts everybody behind them by a last bit. Here every element goes through the same additions and
multiplications, each rounded as IEEE 754 says: no libm, no vector library, no contraction. So the bits are the same at
any offset, length and stride, vectorised or not, compiled or not, on any processor.
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
_MOST = 1011  # |k| for arguments in the range
_POWERS = np.ldexp(1.0, np.arange(-_MOST, _MOST + 1))  # 2ᵏ, exact
_SERIES = tuple(1 / math.factorial(n) for n in range(14))  # of e^r, |r| ≤ ln 2 / 2: what is left out is below 2⁻⁵⁷
(_S0, _S1, _S2, _S3, _S4, _S5, _S6, _S7, _S8, _S9, _S10, _S11, _S12, _S13) = _SERIES


@kernel(inline="always")
def _power(x: Any) -> Any:
    """e^x = 2ᵏ·e^r, x = k·ln 2 + r."""
    x = x if x > -RANGE else -RANGE  # so that what is no number goes to the lower end
    x = x if x < RANGE else RANGE
    k = np.floor(x * _INVERSE + 0.5)
    r = (x - k * _HIGH) - k * _LOW
    p = _S12 + r * _S13
    p = _S11 + r * p
    p = _S10 + r * p
    p = _S9 + r * p
    p = _S8 + r * p
    p = _S7 + r * p
    p = _S6 + r * p
    p = _S5 + r * p
    p = _S4 + r * p
    p = _S3 + r * p
    p = _S2 + r * p
    p = _S1 + r * p
    p = _S0 + r * p
    return p * _POWERS[int(k) + _MOST]


@kernel()
def _exp(values: NDArray[Any], out: NDArray[Any]) -> None:
    for i in range(values.shape[0]):
        out[i] = _power(values[i])


@kernel(error_model="numpy")
def logistic(score: Any, label: Any, most: Any, weight: Any, g: Any, h: Any) -> None:
    """g = p − label and h = weight·p·(1 − p), p = 1/(1 + e^−F), scores clipped to ±most: all of it in one pass."""
    for i in range(score.shape[0]):
        x = score[i]
        x = x if x > -most else -most  # what is no number goes to the lower end
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
