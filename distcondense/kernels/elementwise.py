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
_BIAS, _FRACTION = 1023, 52  # of float64: the bits of 2ᵏ are (k + bias)·2⁵²; |k| ≤ 1011 for arguments in the range
_SERIES = tuple(1 / math.factorial(n) for n in range(14))  # of e^r, |r| ≤ ln 2 / 2: what is left out is below 2⁻⁵⁷
(_S0, _S1, _S2, _S3, _S4, _S5, _S6, _S7, _S8, _S9, _S10, _S11, _S12, _S13) = _SERIES
SIDES, SMALL = 4, 512  # as in cells.py
BLOCK = 512  # rows whose entries are found before they are added up: they stay in the nearest cache


@kernel(inline="always")
def _power(x: Any) -> Any:
    """e^x = 2ᵏ·e^r, x = k·ln 2 + r, of an x in the range."""
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
    return p * np.int64((np.int64(k) + _BIAS) << _FRACTION).view(np.float64)


@kernel()
def _exp(values: NDArray[Any], out: NDArray[Any]) -> None:
    for i in range(values.shape[0]):
        x = values[i]
        x = x if x > -RANGE else -RANGE  # so that what is no number goes to the lower end
        x = x if x < RANGE else RANGE
        out[i] = _power(x)


@kernel(inline="always")
def _chance(score: Any, most: Any) -> Any:
    """1/(1 + e^−F), scores clipped to ±most."""
    x = score if score > -most else -most  # what is no number goes to the lower end
    x = x if x < most else most
    return 1 / (1 + _power(-x))


@kernel(error_model="numpy")
def logistic(score: Any, label: Any, most: Any, weight: Any, g: Any, h: Any) -> None:
    """g = p − label and h = weight·p·(1 − p), p = 1/(1 + e^−F), scores clipped to ±most: all of it in one pass."""
    for i in range(score.shape[0]):
        p = _chance(score[i], most)
        g[i] = p - label[i]
        h[i] = weight * p * (1 - p)


@kernel()
def looked_up_sums(code: Any, table: Any, cell: Any, score: Any, label: Any, entries: Any, total: Any) -> None:
    """What rows add in each cell, looked up by score and label: total (2, cells) += entries (2, 2·L + 1, 2) int64.

    Scores are whole numbers; beyond ±L they count as ±L. First score += table[code], where there are codes. Few cells
    have tallies side by side (cells.py says why).
    """
    rows, cells, most = score.shape[0], total.shape[1], np.int32(entries.shape[1] // 2)
    size, flat = np.int32(entries.shape[1]), entries.reshape(-1, 2)
    at = np.empty(BLOCK, np.uint32)
    sides = SIDES if cells <= SMALL else 1
    tally = np.zeros((sides, cells, 2), np.int64)
    for first in range(0, rows, BLOCK):
        last = min(first + BLOCK, rows)
        here, own, where = score[first:last], label[first:last], cell[first:last]
        if code.shape[0]:
            way = code[first:last]
            for i in range(last - first):
                here[i] += table[way[i]]
        for i in range(last - first):
            at[i] = np.uint32(min(max(here[i], -most), most) + most + np.int32(own[i]) * size)
        even = (last - first) // SIDES * SIDES if sides == SIDES else 0
        for i in range(0, even, SIDES):
            a, b, c, d = where[i], where[i + 1], where[i + 2], where[i + 3]
            p, q, r, s = at[i], at[i + 1], at[i + 2], at[i + 3]
            tally[0, a, 0] += flat[p, 0]
            tally[0, a, 1] += flat[p, 1]
            tally[1, b, 0] += flat[q, 0]
            tally[1, b, 1] += flat[q, 1]
            tally[2, c, 0] += flat[r, 0]
            tally[2, c, 1] += flat[r, 1]
            tally[3, d, 0] += flat[s, 0]
            tally[3, d, 1] += flat[s, 1]
        for i in range(even, last - first):
            tally[0, where[i], 0] += flat[at[i], 0]
            tally[0, where[i], 1] += flat[at[i], 1]
    for side in range(sides):
        for j in range(cells):
            total[0, j] += tally[side, j, 0]
            total[1, j] += tally[side, j, 1]


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
