"""Marks of rows: the published hash to the bit, under a secret, and nobody can choose two rows that share one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcondense.data.persons import PERSON, TEXT, HoldoutSplit, Ranks, RowHash
from distcondense.kernels import hashing as kernels
from tests import naive

KEY = bytes(range(16))
# of the reference implementation's vectors of 128 bits: the key above, bytes 0, 1, 2, … so many of them
KNOWN = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    24: "2db479ae78bd50d8882a8a178a6132ad",
    63: "5150d1772f50834a503e069a973fbd7c",
}
# two rows that shared 128 bits of a hash without a key (a XOR lane and an ADD lane over the same word)
CHOSEN = np.array([[-958883.302, 1.780481281578596e-29], [-13633.968, -6.052771424796253e25]])
WORD = st.integers(0, 2**64 - 1)


def marks(rows: Any, coins: HoldoutSplit) -> Any:
    hashed = RowHash(len(rows), coins)
    for column in np.asarray(rows, np.float64).T:
        hashed.add_numbers(column)
    return hashed.marks()


@pytest.mark.parametrize("length", KNOWN)
def test_the_oracle_gives_the_published_vectors(length: int) -> None:
    assert naive.siphash(KEY, bytes(range(length))).hex() == KNOWN[length]


@settings(deadline=None, max_examples=60)
@given(words=st.lists(st.lists(WORD, min_size=3, max_size=3), max_size=40), key=st.binary(min_size=16, max_size=16))
def test_words_of_many_rows_have_the_hash_of_their_bytes(words: list[list[int]], key: bytes) -> None:
    rows = np.array(words, np.uint64).reshape(-1, 3)  # (words, rows)
    state, mark = np.empty((4, 3), np.uint64), np.empty((3, 2), np.uint64)
    kernels.begin(*np.frombuffer(key, np.uint64), state)
    for word in rows:
        kernels.fold(word, state)
    kernels.finish(len(rows), state, mark)
    for i in range(3):
        assert mark[i].tobytes() == naive.siphash(key, rows[:, i].tobytes())


@pytest.mark.parametrize("rows", [0, 1, kernels.BLOCK, 2 * kernels.BLOCK + 3])
def test_numbers_and_listed_numbers_are_hashed_as_their_words(rows: int) -> None:
    rng = np.random.default_rng(rows)
    values, words, codes = rng.integers(-3, 7, rows), rng.random(10), rng.integers(0, 200, 10).astype(np.uint8)
    states, out = np.empty((2, 4, rows), np.uint64), np.empty(rows, np.uint8)
    for state in states:
        kernels.begin(*np.frombuffer(KEY, np.uint64), state)
    kernels.fold_listed(values, -3, codes, words.view(np.uint64), out, states[0])
    kernels.fold_numbers(words[values + 3].view(np.uint64), states[1])
    assert np.array_equal(states[0], states[1])
    assert np.array_equal(out, codes[values + 3])


def test_zeros_are_alike_and_so_are_holes() -> None:
    other_nan = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    mark = marks([[0.0], [-0.0], [np.nan], [other_nan], [np.inf]], HoldoutSplit(0.2, 5))
    assert np.array_equal(mark[0], mark[1])
    assert np.array_equal(mark[2], mark[3])
    assert len(np.unique(mark, axis=0)) == 3


def rows_of_few_values() -> list[Any]:
    yes = (np.arange(2**16)[:, None] >> np.arange(16)) & 1
    tenths = np.stack(np.meshgrid(*[np.arange(40) / 10] * 3), -1).reshape(-1, 3)
    return [yes, yes * 1e6, tenths, -tenths * 1e-9]


@pytest.mark.parametrize("rows", rows_of_few_values(), ids=["yes or no", "millions", "tenths", "small"])
def test_rows_that_differ_have_marks_that_differ_as_chance_would_have_it(rows: Any) -> None:
    """Marks of rows on a grid: no two are the same, and 32 bits of either word collide as often as random ones."""
    mark = marks(rows, HoldoutSplit(0.2, 2**90 + 3))
    assert len(np.unique(mark, axis=0)) == len(np.unique(mark[:, 0])) == len(np.unique(mark[:, 1])) == len(rows)
    for lane in (0, 1):
        for half in (mark[:, lane] >> np.uint64(32), mark[:, lane] & np.uint64(2**32 - 1)):
            assert len(rows) - len(np.unique(half)) <= 8  # of 2¹⁶ rows half a pair is expected
    shares = np.bincount((mark[:, 0] >> np.uint64(54)).astype(np.int64), minlength=1024) / len(rows) * 1024
    assert np.abs(shares - 1).max() < 6 * np.sqrt(1024 / len(rows))  # the buckets that marks name are alike


def test_birthdays_come_as_often_as_random_ones() -> None:
    """2¹⁸ rows, 32 bits of the mark: about 8 pairs share them, under every secret."""
    rows = np.arange(2**18)[:, None] / 8
    pairs = [
        len(rows) - len(np.unique(marks(rows, HoldoutSplit(0.2, secret))[:, lane] >> np.uint64(32)))
        for secret in range(4)
        for lane in (0, 1)
    ]
    assert 30 <= sum(pairs) <= 100  # of 64 expected


def test_rows_chosen_to_share_a_mark_share_none_under_any_secret() -> None:
    """And a coin is the row's own: with or without the one, the other is its content's first, on the same side."""
    assert all(len(np.unique(marks(CHOSEN, HoldoutSplit(0.2, secret)).ravel())) == 4 for secret in range(500))
    assert Ranks(2).count(marks(CHOSEN, HoldoutSplit(0.2, 7))).tolist() == [0, 0]


def test_pairs_that_share_a_mark_under_one_secret_would_not_under_another() -> None:
    """What somebody finds who knows one key, here in 24 bits, is worth nothing under the next."""
    rows = np.arange(2**15)[:, None] * 3.0
    found = marks(rows, HoldoutSplit(0.2, 1))[:, 0] >> np.uint64(40)
    order = np.argsort(found, kind="stable")
    alike = order[:-1][found[order[1:]] == found[order[:-1]]], order[1:][found[order[1:]] == found[order[:-1]]]
    assert len(alike[0]) > 10
    other = marks(rows, HoldoutSplit(0.2, 2))[:, 0] >> np.uint64(40)
    assert (other[alike[0]] == other[alike[1]]).sum() <= 1


def test_persons_and_texts_are_hashed_under_the_secret_too() -> None:
    ours, theirs = HoldoutSplit(0.2, 1), HoldoutSplit(0.2, 2)
    for words in (PERSON, TEXT):
        assert ours.digests(["a", "b", "a"], words).shape == (3, words)
        assert np.array_equal(ours.digests(["a"], words), ours.digests(["b", "a"], words)[1:])
        assert not np.intersect1d(ours.digests(["a", "b"], words), theirs.digests(["a", "b"], words)).size
    assert PERSON * 64 >= 128
    assert TEXT * 64 >= 128 + 64  # texts of many columns, by the same chance: privacy/curves.py


def test_the_secret_is_in_no_repr() -> None:
    assert "8675309" not in repr(HoldoutSplit(0.3, 8675309))
