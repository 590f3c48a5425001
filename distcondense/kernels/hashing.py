"""Marks: SipHash-2-4 with 128 bits (Aumasson, Bernstein 2012) of the words of each row, under a run's secret; coins.

A word of all rows is taken in at a time, into four arrays of the hash's state, so that a loop does several rows at
once; the same bits on any machine. That marks differ where rows do rests on SipHash being pseudo-random to whoever does
not know the key, and on nothing else (privacy/curves.py: collision_delta). Coins are mixed from marks as SplitMix64
mixes (Steele, Lea, Flood 2014), and no guarantee rests on how well: whatever a coin is as a function of its own row,
neighbouring tables stay neighbours (docs/privacy.md, §2).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distcondense.kernels.jit import kernel

BLOCK = 2048  # rows whose words of a listed column wait together
_GOLDEN, _M1, _M2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_INFINITE, _SIGN, _NOT = np.uint64(0x7FF0000000000000), np.uint64(1 << 63), np.uint64(0x7FF8000000000000)
_SIZE = np.uint64((1 << 63) - 1)
_SIP = (
    np.uint64(0x736F6D6570736575),
    np.uint64(0x646F72616E646F6D ^ 0xEE),  # 0xEE, and 0xEE and 0xDD at the end: 128 bits are wanted
    np.uint64(0x6C7967656E657261),
    np.uint64(0x7465646279746573),
)
_0, _EE, _DD, _BYTES, _ALL, _TOP = (np.uint64(value) for value in (0, 0xEE, 0xDD, 8, 0xFF, 56))


@kernel(inline="always")
def _mix(x: Any) -> Any:
    z = x + _GOLDEN
    z = (z ^ (z >> _30)) * _M1
    z = (z ^ (z >> _27)) * _M2
    return z ^ (z >> _31)


@kernel(inline="always")
def _turned(x: Any, by: int) -> Any:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@kernel(inline="always")
def _round(a: Any, b: Any, c: Any, d: Any) -> Any:
    a += b
    c += d
    b, d = _turned(b, 13) ^ a, _turned(d, 16) ^ c
    a = _turned(a, 32) + d
    c += b
    d, b = _turned(d, 21) ^ a, _turned(b, 17) ^ c
    return a, b, _turned(c, 32), d


@kernel(inline="always")
def _taken(word: Any, i: Any, s0: Any, s1: Any, s2: Any, s3: Any) -> None:
    a, b, c, d = _round(s0[i], s1[i], s2[i], s3[i] ^ word)
    a, s1[i], s2[i], s3[i] = _round(a, b, c, d)
    s0[i] = a ^ word


@kernel()
def begin(key0: Any, key1: Any, state: Any) -> None:
    """(4, n) state ← that of rows of which nothing is known yet."""
    state[0], state[1], state[2], state[3] = key0 ^ _SIP[0], key1 ^ _SIP[1], key0 ^ _SIP[2], key1 ^ _SIP[3]


@kernel()
def fold(words: Any, state: Any) -> None:
    """(4, n) state ← one more 64-bit word of each row."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    for i in range(len(words)):
        _taken(words[i], i, s0, s1, s2, s3)


@kernel()
def fold_numbers(bits: Any, state: Any) -> None:
    """The same of float64 numbers, given as their bits: −0 is 0, and whatever is no number is one and the same."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    for i in range(len(bits)):
        word = bits[i]
        word = _NOT if (word & _SIZE) > _INFINITE else word
        word = _0 if word == _SIGN else word
        _taken(word, i, s0, s1, s2, s3)


@kernel()
def fold_listed(values: Any, low: Any, codes: Any, words: Any, out: Any, state: Any) -> None:
    """Whole numbers from `low` on: out ← the code of each, and its word into the state."""
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    waiting = np.empty(BLOCK, np.uint64)
    for start in range(0, len(values), BLOCK):
        end = min(len(values), start + BLOCK)
        for i in range(start, end):
            at = values[i] - low
            out[i] = codes[at]
            waiting[i - start] = words[at]
        t0, t1, t2, t3 = s0[start:end], s1[start:end], s2[start:end], s3[start:end]
        for i in range(end - start):
            _taken(waiting[i], i, t0, t1, t2, t3)


@kernel()
def finish(words: Any, state: Any, mark: Any) -> None:
    """(n, 2) mark ← the hash of so many words of each row; the state is left as it is."""
    last = (np.uint64(words) * _BYTES & _ALL) << _TOP
    s0, s1, s2, s3 = state[0], state[1], state[2], state[3]
    for i in range(len(mark)):
        a, b, c, d = _round(s0[i], s1[i], s2[i], s3[i] ^ last)
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a ^ last, b, c ^ _EE, d)
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        mark[i, 0] = a ^ b ^ c ^ d
        a, b, c, d = _round(a, b ^ _DD, c, d)
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        mark[i, 1] = a ^ b ^ c ^ d


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
