"""Counter-based random numbers: a value is a function of (key, stream, step, row, column), never of who computes it.

Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The key's low word is key0, its
high word key1; the counter is (column // 4, row, step, stream); column % 4 picks the output word. Sharding therefore
never changes an answer, and a row can be recomputed anywhere at any time.

Normals are Box–Muller in float32, written out with polynomials (Cephes) instead of `log`, `sin` and `cos`, so that the
loop vectorises and the bits do not depend on the machine's C library. This is for the published method and for
initial values; the noise of the private method comes from `privacy/`, never from here.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.errors import SettingsError
from distcondense.kernels.arguments import check_counter
from distcondense.kernels.jit import kernel

BLOCKS = 512  # Philox blocks made at a time: 8 KB of words, which stay in the first cache

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)  # wide, so that a sum wraps only where it is cut
_8, _32 = np.uint32(8), np.uint64(32)
_2_32, _2_33 = np.float32(2.0**-32), np.float32(2.0**-33)

f32 = np.float32
_HALF, _ONE, _TWO = f32(0.5), f32(1), f32(2)
_QUARTER_TURN = f32(math.pi / 2 * 2.0**-22)  # radians in one unit of the 22 bits below the quadrant
_LN2_HI, _LN2_LO = f32(0.693359375), f32(-2.12194440e-4)
_LOG = tuple(
    f32(c)
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
)
_SIN = tuple(f32(c) for c in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
_COS = tuple(f32(c) for c in (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2))


@kernel()
def _philox(words: Any, count: Any, first: Any, key0: Any, key1: Any, stream: Any, step: Any, row: Any) -> None:
    """Ten rounds over the counters of `count` blocks from `first` on; `words` is (4, BLOCKS) uint32, one line a word.

    Rounds are the outer loop and words lie in lines: only so does the compiler turn it into vector instructions.
    """
    w0, w1, w2, w3 = words[0][:count], words[1][:count], words[2][:count], words[3][:count]
    for b in range(count):
        w0[b] = first + np.uint32(b)
        w1[b] = row
        w2[b] = step
        w3[b] = stream
    for _ in range(10):
        for b in range(count):
            p0, p1 = _M0 * np.uint64(w0[b]), _M1 * np.uint64(w2[b])
            w0[b] = np.uint32(np.uint32(p1 >> _32) ^ w1[b] ^ key0)
            w1[b] = np.uint32(p1)
            w2[b] = np.uint32(np.uint32(p0 >> _32) ^ w3[b] ^ key1)
            w3[b] = np.uint32(p0)
        key0, key1 = np.uint32(np.uint64(key0) + _W0), np.uint32(np.uint64(key1) + _W1)


@kernel(inline="always")
def _log(x: Any) -> Any:
    """ln x for float32 x in [2⁻³³, 1], within one unit in the last place."""
    word = f32(x).view(np.int32)
    # the exponent that leaves a mantissa in [√½, √2), found on the bits so that no branch stops the vector loop
    shifted = np.int32(word - np.int32(0x3F3504F3))
    e = np.int32(shifted >> np.int32(23))
    y = np.int32(np.int32(shifted & np.int32(0x007FFFFF)) + np.int32(0x3F3504F3)).view(np.float32) - _ONE
    z = y * y
    p = (((_LOG[0] * y + _LOG[1]) * y + _LOG[2]) * y + _LOG[3]) * y + _LOG[4]
    p = (((p * y + _LOG[5]) * y + _LOG[6]) * y + _LOG[7]) * y + _LOG[8]
    p = p * y * z
    ef = f32(e)
    p = p + _LN2_LO * ef
    p = p - _HALF * z
    return (y + p) + _LN2_HI * ef


@kernel(inline="always")
def _box_muller(ra: Any, rb: Any) -> Any:
    """Two float32 normals from two uint32 words."""
    u1 = f32(ra) * _2_32 + _2_33
    radius = f32(math.sqrt(-_TWO * _log(u1)))
    turn = np.int32(rb >> _8)  # 24 bits: 2 of quadrant (to the nearest), 22 of angle, both exact
    quadrant = np.int32((turn + np.int32(1 << 21)) >> np.int32(22))
    x = f32(np.int32(turn - np.int32(quadrant << np.int32(22)))) * _QUARTER_TURN
    z = x * x
    s = ((_SIN[0] * z + _SIN[1]) * z + _SIN[2]) * z * x + x
    c = ((_COS[0] * z + _COS[1]) * z + _COS[2]) * z * z - _HALF * z + _ONE
    odd = (quadrant & 1) != 0
    cosine, sine = (s, c) if odd else (c, s)
    cosine = -cosine if ((quadrant + 1) & 2) != 0 else cosine
    sine = -sine if (quadrant & 2) != 0 else sine
    return radius * cosine, radius * sine


@kernel()
def bits_row(out: Any, words: Any, key0: Any, key1: Any, stream: Any, step: Any, row: Any) -> None:
    """Random words of one row into `out` (d,) uint32; `words` is scratch (4, BLOCKS) uint32, the scalars are uint32."""
    d = out.size
    for first in range(0, (d + 3) // 4, BLOCKS):
        count = min(BLOCKS, (d + 3) // 4 - first)
        _philox(words, count, np.uint32(first), key0, key1, stream, step, row)
        part = out[4 * first : 4 * (first + count)]
        for k in range(4):
            word = words[k]
            for b in range((part.size - k + 3) // 4):
                part[4 * b + k] = word[b]


@kernel()
def normals_row(out: Any, words: Any, key0: Any, key1: Any, stream: Any, step: Any, row: Any) -> None:
    """Standard normals of one row into `out` (d,) float32; scratch and scalars as in `bits_row`."""
    d = out.size
    for first in range(0, (d + 3) // 4, BLOCKS):
        count = min(BLOCKS, (d + 3) // 4 - first)
        _philox(words, count, np.uint32(first), key0, key1, stream, step, row)
        w0, w1, w2, w3 = words[0], words[1], words[2], words[3]
        z = out[4 * first : 4 * (first + count)]
        for b in range(z.size // 4):
            z0, z1 = _box_muller(w0[b], w1[b])
            z2, z3 = _box_muller(w2[b], w3[b])
            z[4 * b] = z0
            z[4 * b + 1] = z1
            z[4 * b + 2] = z2
            z[4 * b + 3] = z3
        if z.size % 4:  # the last block of the row, cut short
            b = z.size // 4
            z0, z1 = _box_muller(w0[b], w1[b])
            z2, _ = _box_muller(w2[b], w3[b])
            z[4 * b] = z0
            if z.size % 4 > 1:
                z[4 * b + 1] = z1
            if z.size % 4 > 2:
                z[4 * b + 2] = z2


@kernel()
def _bits(out: Any, key0: Any, key1: Any, stream: Any, step: Any, row0: Any) -> None:
    words = np.empty((4, BLOCKS), np.uint32)
    for i in range(out.shape[0]):
        bits_row(out[i], words, key0, key1, stream, step, np.uint32(row0 + np.uint32(i)))


@kernel()
def _normals(out: Any, key0: Any, key1: Any, stream: Any, step: Any, row0: Any) -> None:
    words = np.empty((4, BLOCKS), np.uint32)
    for i in range(out.shape[0]):
        normals_row(out[i], words, key0, key1, stream, step, np.uint32(row0 + np.uint32(i)))


def counter_words(key: int, stream: int, step: int, row0: int, rows: int) -> tuple[np.uint32, ...]:
    """(low word of the key, high word, stream, step, row0) as the kernels take them, checked for `rows` rows."""
    check_counter(key=key, stream=stream, step=step, row0=row0, rows=rows)
    return tuple(np.uint32(word) for word in (key & 0xFFFFFFFF, key >> 32, stream, step, row0))


def bits(key: int, stream: int, step: int, row0: int, shape: tuple[int, int]) -> NDArray[np.uint32]:
    """Random words, (rows, cols) uint32, for rows row0 … row0 + rows − 1."""
    out = np.empty(_check_shape(shape), np.uint32)
    _bits(out, *counter_words(key, stream, step, row0, shape[0]))
    return out


def uniforms(key: int, stream: int, step: int, row0: int, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Uniform numbers in [0, 1) with 24 bits each, (rows, cols) float32."""
    words = bits(key, stream, step, row0, shape)
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def normals(key: int, stream: int, step: int, row0: int, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Standard normal numbers, (rows, cols) float32, within ±6.77."""
    out = np.empty(_check_shape(shape), np.float32)
    _normals(out, *counter_words(key, stream, step, row0, shape[0]))
    return out


def _check_shape(shape: tuple[int, int]) -> tuple[int, int]:
    if len(shape) != 2 or min(shape) < 0:
        raise SettingsError("shape", "must be (rows, columns), both at least 0", found=str(shape))
    return shape
