"""Numbers into bins: how many cuts lie at or below each number of a column, and how many are missing or illegal."""

from __future__ import annotations

from typing import Any

import numpy as np

from distcondense.kernels.jit import kernel

CROWDED = 8  # cuts in one step
KNOWN, TRIED = 2**12, 2**12  # numbers whose bins are remembered; rows after which it is seen whether that helps
_ODD, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(64 - 12)


@kernel(inline="always")
def _slot(bits: Any) -> Any:
    return (bits * _ODD) >> _SHIFT


@kernel(inline="always")
def _bin(x: Any, cuts: Any, jump: Any, origin: Any, scale: Any) -> Any:
    """How many cuts lie at or below x. Mostly there is none or one more than where looking begins: these are added
    without a branch, which nobody could foresee."""
    at, steps = (x - origin) * scale, jump.shape[0] - 1
    step = 0 if at < 0 else steps - 1 if at >= steps else int(at)
    bin_, last = jump[step], jump[step + 1]
    if last - bin_ > CROWDED:
        while bin_ < last:
            middle = (bin_ + last) >> 1
            if cuts[middle] <= x:
                bin_ = middle + 1
            else:
                last = middle
    bin_ += cuts[bin_] <= x
    bin_ += cuts[bin_] <= x
    while cuts[bin_] <= x:
        bin_ += 1
    while bin_ > 0 and cuts[bin_ - 1] > x:  # a step's edge is rounded
        bin_ -= 1
    return bin_


@kernel()
def bin_numbers(
    values: Any, cuts: Any, jump: Any, origin: Any, scale: Any, low: Any, high: Any, whole: Any, out: Any
) -> Any:
    """out (n,) ← how many cuts lie at or below each of values (n,) float64; returns (missing, illegal), two counts.

    Illegal are infinite ones, those outside [low, high] and, with `whole`, those with decimals. `cuts` end with
    infinity. `jump`: equal steps of 1/scale from `origin` on, and how many cuts lie below each, where looking begins.
    Measured numbers have few decimals and come again: bins of some are remembered, as long as that is worth while.
    """
    holes, bad, hits, remember = 0, 0, 0, True
    bits, known, bins = values.view(np.uint64), np.zeros(KNOWN, np.uint64), np.zeros(KNOWN, out.dtype)
    known[_slot(np.uint64(0))] = np.uint64(1)  # so that no slot knows what was never looked up
    for i in range(values.shape[0]):
        if i % TRIED == 0:
            remember = i == 0 or (remember and hits > TRIED // 4 * 3)
            hits = 0
        if remember:
            slot = _slot(bits[i])
            if known[slot] == bits[i]:
                out[i] = bins[slot]
                hits += 1
                continue
        x = values[i]
        if x != x:
            holes += 1
            continue
        if not (low <= x <= high) or np.isinf(x) or (whole and x != np.round(x)):
            bad += 1
            continue
        out[i] = _bin(x, cuts, jump, origin, scale)
        if remember:
            known[slot], bins[slot] = bits[i], out[i]
    return holes, bad


@kernel()
def fill_missing(values: Any, code: Any, out: Any) -> None:
    """out ← code where there is no number."""
    for i in range(values.shape[0]):
        if values[i] != values[i]:
            out[i] = code
