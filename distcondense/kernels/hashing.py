"""Marks: 128-bit hashes of what stands in a row, in two lanes; coins from them. A row at a time, same bits anywhere.

A word is folded in by one product a lane, each step of which can be undone: rows that differ in one word never share a
mark. Coins are mixed as SplitMix64 mixes (Steele, Lea, Flood 2014). No guarantee rests on how well: whatever a coin is
as a function of its own row, neighbouring tables stay neighbours (docs/privacy.md, "Why coins").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distcondense.kernels.jit import kernel

_GOLDEN, _M1, _M2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_INFINITE, _SIGN, _NOT = np.uint64(0x7FF0000000000000), np.uint64(1 << 63), np.uint64(0x7FF8000000000000)
_SIZE = np.uint64((1 << 63) - 1)
_LANE0, _LANE1 = np.uint64(0xD1B54A32D192ED03), np.uint64(0xA24BAED4963EE407)  # odd
_29, _32 = np.uint64(29), np.uint64(32)


@kernel(inline="always")
def _mix(x: Any) -> Any:
    z = x + _GOLDEN
    z = (z ^ (z >> _30)) * _M1
    z = (z ^ (z >> _27)) * _M2
    return z ^ (z >> _31)


@kernel(inline="always")
def _folded(word: Any, mark: Any, i: Any) -> None:
    word ^= word >> _32  # a small number's float64 has all its bits on top, where a product spreads nothing
    a, b = (mark[i, 0] ^ word) * _LANE0, (mark[i, 1] + word) * _LANE1
    mark[i, 0] = a ^ (a >> _32)
    mark[i, 1] = b ^ (b >> _29)


@kernel()
def fold(words: Any, mark: Any) -> None:
    """(n, 2) mark ← one more 64-bit word of each row."""
    for i in range(mark.shape[0]):
        _folded(words[i], mark, i)


@kernel()
def fold_numbers(bits: Any, mark: Any) -> None:
    """The same of float64 numbers, given as their bits: −0 is 0, and whatever is no number is one and the same."""
    for i in range(mark.shape[0]):
        word = bits[i]
        if (word & _SIZE) > _INFINITE:
            word = _NOT
        elif word == _SIGN:
            word = np.uint64(0)
        _folded(word, mark, i)


@kernel()
def fold_listed(values: Any, low: Any, codes: Any, words: Any, out: Any, mark: Any) -> None:
    """Whole numbers from `low` on: out ← the code of each, and its word into the mark."""
    for i in range(values.shape[0]):
        at = values[i] - low
        out[i] = codes[at]
        _folded(words[at], mark, i)


@kernel()
def keyed_uniforms(first: Any, second: Any, key0: Any, key1: Any, out: Any) -> None:
    """Uniforms in [0, 1) from two words of each row and a key."""
    for i in range(out.shape[0]):
        out[i] = (_mix(_mix(first[i] ^ key0) ^ _mix(second[i] + key1)) >> _11) * 2.0**-53


@kernel()
def occurrence_ranks(mark: Any, keys: Any, counts: Any, rank: Any) -> None:
    """rank ← how often each mark was met before; keys, counts: a table of a power of two places, 0 counts at first."""
    last = np.uint64(keys.shape[0] - 1)
    for i in range(mark.shape[0]):
        place = _mix(mark[i, 0]) & last
        while counts[place] != 0 and (keys[place, 0] != mark[i, 0] or keys[place, 1] != mark[i, 1]):
            place = (place + np.uint64(1)) & last
        keys[place, 0], keys[place, 1] = mark[i, 0], mark[i, 1]
        rank[i] = counts[place]
        counts[place] += 1
