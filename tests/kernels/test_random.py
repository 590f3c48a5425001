"""Only about randomness: the generator's words, what is made of them, and how good that is."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from distcondense.errors import SettingsError
from distcondense.kernels import random
from distcondense.kernels.arguments import NOISE_STREAM
from tests import naive

KEY = 0x0123_4567_89AB_CDEF
WORDS = st.integers(0, 2**32 - 1)

# the philox4x32-10 lines of Random123's kat_vectors: counter, key, answer
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.fixture(scope="module")
def sample() -> np.ndarray:
    return random.normals(KEY, NOISE_STREAM, 3, 0, (1500, 4000)).astype(np.float64)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_the_oracle_gives_the_known_answers_of_random123(counter, key, answer):
    assert naive.philox(counter, key) == answer


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_the_kernel_gives_the_known_answers_of_random123(counter, key, answer):
    words = np.zeros((4, random.BLOCKS), np.uint32)
    column, row, step, stream = (np.uint32(word) for word in counter)
    random._philox(words, 1, column, np.uint32(key[0]), np.uint32(key[1]), stream, step, row)
    assert tuple(int(word) for word in words[:, 0]) == answer


@settings(deadline=None, max_examples=40)
@given(
    key=st.integers(0, 2**64 - 1),
    stream=WORDS,
    step=WORDS,
    row0=st.integers(0, 2**32 - 4),
    rows=st.integers(0, 3),
    columns=st.integers(0, 23),
)
def test_words_are_those_of_the_oracle(key, stream, step, row0, rows, columns):
    fast = random.bits(key, stream, step, row0, (rows, columns))
    assert fast.dtype == np.uint32
    np.testing.assert_array_equal(fast, naive.bits(key, stream, step, row0, (rows, columns)))


@settings(deadline=None, max_examples=40)
@given(
    key=st.integers(0, 2**64 - 1), stream=WORDS, step=WORDS, row0=st.integers(0, 2**32 - 4), columns=st.integers(1, 23)
)
def test_normals_are_those_of_the_formula(key, stream, step, row0, columns):
    fast = random.normals(key, stream, step, row0, (3, columns))
    assert fast.dtype == np.float32
    np.testing.assert_allclose(fast, naive.normals(key, stream, step, row0, (3, columns)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("draw", [random.bits, random.uniforms, random.normals])
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_value_does_not_depend_on_the_shape_asked_for(draw: Callable[..., np.ndarray], data):
    # wider than one batch of Philox blocks, so that the seam between two batches is crossed
    whole = draw(KEY, 1, 2, 10, (5, 4 * random.BLOCKS + 9))
    first = data.draw(st.integers(0, 4))
    rows = data.draw(st.integers(1, 5 - first))
    columns = data.draw(st.one_of(st.integers(1, 12), st.integers(4 * random.BLOCKS - 5, 4 * random.BLOCKS + 9)))
    part = draw(KEY, 1, 2, 10 + first, (rows, columns))
    np.testing.assert_array_equal(part, whole[first : first + rows, :columns])


def test_words_beyond_one_batch_of_blocks_are_still_those_of_the_oracle():
    width = 8 * random.BLOCKS + 6
    fast = random.bits(KEY, 1, 2, 3, (2, width))
    for column in (0, 4 * random.BLOCKS - 1, 4 * random.BLOCKS, 8 * random.BLOCKS - 1, 8 * random.BLOCKS, width - 1):
        block = (column // 4, 4, 2, 1)
        assert fast[1, column] == naive.philox(block, (KEY & naive.WORD, KEY >> 32))[column % 4]
    z = random.normals(KEY, 1, 2, 3, (2, width))
    for column in (4 * random.BLOCKS, 8 * random.BLOCKS + 4):
        expected = naive.box_muller(int(fast[1, column]), int(fast[1, column + 1]))
        np.testing.assert_allclose(z[1, column : column + 2], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("change", ["key", "high word of the key", "stream", "step", "row"])
def test_every_part_of_the_counter_matters(change):
    here = random.bits(KEY, 1, 2, 3, (50, 40))
    there = {
        "key": lambda: random.bits(KEY + 1, 1, 2, 3, (50, 40)),
        "high word of the key": lambda: random.bits(KEY ^ (1 << 63), 1, 2, 3, (50, 40)),
        "stream": lambda: random.bits(KEY, 2, 2, 3, (50, 40)),
        "step": lambda: random.bits(KEY, 1, 3, 3, (50, 40)),
        "row": lambda: random.bits(KEY, 1, 2, 3 + 50, (50, 40)),
    }[change]()
    assert np.count_nonzero(here == there) <= 1


def test_uniforms_are_the_top_24_bits():
    words, numbers = random.bits(KEY, 0, 0, 0, (200, 500)), random.uniforms(KEY, 0, 0, 0, (200, 500))
    np.testing.assert_array_equal(numbers, (words >> 8) / 2.0**24)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert stats.kstest(numbers.ravel(), "uniform").pvalue > 1e-4


def test_normals_are_normal_by_kolmogorov_and_smirnov(sample):
    assert stats.kstest(sample[:250].ravel(), "norm").pvalue > 1e-4


@pytest.mark.parametrize(
    ("power", "moment", "variance"), [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)]
)
def test_moments_are_those_of_a_normal(sample, power, moment, variance):
    # E[z^2k] − E[z^k]² in closed form, so the bound is five standard errors
    assert abs((sample**power).mean() - moment) < 5 * math.sqrt(variance / sample.size)


def test_tails_to_five_sigma_hold_what_they_should():
    draws, beyond = 0, np.zeros(6)
    for step in range(16):
        z = np.abs(random.normals(KEY, 3, step, 0, (1000, 4000)))
        draws += z.size
        beyond += [np.count_nonzero(z > k) for k in range(6)]
    expected = draws * special.erfc(np.arange(1, 6) / math.sqrt(2))
    assert expected[-1] > 30
    np.testing.assert_array_less(np.abs(beyond[1:] - expected), 5 * np.sqrt(expected))


def test_the_tail_reaches_beyond_six_sigma_with_the_right_probability():
    # the radius depends on one word only, so its tail can be counted without drawing 10⁹ numbers
    radius = np.array([random._box_muller(np.uint32(word), np.uint32(0))[0] for word in range(4000)])
    assert radius[0] == pytest.approx(math.sqrt(2 * 33 * math.log(2)), abs=1e-6)
    assert (np.diff(radius) < 0).all()
    for sigmas in (5.3, 5.6, 6.0):
        assert np.count_nonzero(radius > sigmas) / 2**32 == pytest.approx(math.exp(-(sigmas**2) / 2), rel=0.02)


@pytest.mark.parametrize("ra", [0, 1, 255, 2**24, 2**31 - 1, 2**31, 2**32 - 257, 2**32 - 1])
@pytest.mark.parametrize("rb", [0, 255, 2**29 - 1, 2**29, 2**30, 3 * 2**29, 2**31, 5 * 2**29, 3 * 2**30, 2**32 - 1])
def test_extreme_words_give_the_formula(ra, rb):
    fast = random._box_muller(np.uint32(ra), np.uint32(rb))
    np.testing.assert_allclose(fast, naive.box_muller(ra, rb), rtol=0, atol=1e-6)


def test_neighbours_are_not_correlated(sample):
    later = random.normals(KEY, NOISE_STREAM, 4, 0, sample.shape).astype(np.float64)
    pairs = {
        "cosine and sine": (sample[:, 0::2], sample[:, 1::2]),
        "two pairs of a block": (sample[:, 0::4], sample[:, 2::4]),
        "two blocks": (sample[:, :-4], sample[:, 4:]),
        "two rows": (sample[:-1], sample[1:]),
        "two steps": (sample, later),
    }
    for name, (a, b) in pairs.items():
        for power in (1, 2):  # Box–Muller hides dependence in the squares first
            r = np.corrcoef((a**power).ravel(), (b**power).ravel())[0, 1]
            assert abs(r) < 5 / math.sqrt(a.size), f"{name}, power {power}"


def test_no_block_ever_repeats():
    words = np.concatenate(
        [
            random.bits(KEY, stream, step, row0, (64, 400)).reshape(-1, 4)
            for stream in (0, 7)
            for step in (0, 1)
            for row0 in (0, 64)
        ]
    )
    blocks = np.ascontiguousarray(words).view("u8").reshape(-1, 2)
    assert len(np.unique(blocks, axis=0)) == len(blocks)


def test_single_words_repeat_as_often_as_chance_has_it():
    words = random.bits(KEY, 0, 0, 0, (500, 4000)).ravel()
    repeats = words.size - np.unique(words).size
    expected = words.size**2 / 2**33
    assert abs(repeats - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": -1},
        {"key": 2**64},
        {"stream": 2**32},
        {"step": -1},
        {"row0": 2**32 - 1},  # two rows from here would wrap round and repeat the noise of row 0
        {"shape": (2, -1)},
    ],
)
def test_a_counter_that_would_wrap_round_is_refused(wrong):
    good = {"key": 1, "stream": 0, "step": 0, "row0": 0, "shape": (2, 2)}
    with pytest.raises(SettingsError):
        random.normals(**(good | wrong))
