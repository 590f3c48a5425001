"""Masks cancel in the total, and hide everything else; builds that hide less are caught."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from distcondense.errors import RunFolderError
from distcondense.federated import masks
from distcondense.federated.masks import BYTES, MODULUS, from_bytes, keystream, masked, pair_key, to_bytes, unmasked

NAMES = ("a", "b", "c", "d")
SET, DIGEST = "11" * 32, "22" * 32
Stream = Callable[[bytes, str, int], list[int]]


def keys_of(names: tuple[str, ...] = NAMES) -> dict[str, dict[str, bytes]]:
    """Of each site the keys that it shares with each other one."""
    x25519 = masks.cryptography().asymmetric.x25519
    own = {name: x25519.X25519PrivateKey.generate() for name in names}
    public = {name: key.public_key().public_bytes_raw() for name, key in own.items()}
    return {
        name: {other: pair_key(own[name], public[other], SET, (name, other)) for other in names if other != name}
        for name in names
    }


def sent(
    values: dict[str, list[int]], keys: dict[str, dict[str, bytes]], question: str, stream: Stream = keystream
) -> Any:
    """What every site sends."""
    return {
        name: masked(one, name, {other: stream(key, question, len(one)) for other, key in keys[name].items()})
        for name, one in values.items()
    }


def test_masks_cancel_in_the_total_whatever_its_sign_and_size() -> None:
    rng = np.random.default_rng(0)
    values = {name: [int(v) for v in rng.integers(-(2**60), 2**60, 50)] for name in NAMES}
    values["a"][0], values["b"][1], values["c"][2] = -(2**100), 2**100, 0
    total = unmasked(list(sent(values, keys_of(), DIGEST).values()), 2**101)
    assert total.tolist() == [sum(column) for column in zip(*values.values(), strict=True)]
    small = unmasked([[5, MODULUS - 7], [1, 3]], 2**40)
    assert small.dtype == np.int64
    assert small.tolist() == [6, -4]


def test_bytes_are_integers_and_back() -> None:
    values = [0, 1, MODULUS - 1, 2**64, 2**127]
    assert from_bytes(to_bytes(values)) == values
    assert len(to_bytes(values)) == BYTES * len(values)


def test_both_sites_of_a_pair_have_one_key_and_no_other_pair_question_or_set_has_it() -> None:
    keys = keys_of()
    assert keys["a"]["b"] == keys["b"]["a"]
    assert len({key for own in keys.values() for key in own.values()}) == len(NAMES) * (len(NAMES) - 1) // 2
    pair = keys["a"]["b"]
    assert keystream(pair, DIGEST, 4) == keystream(pair, DIGEST, 4)
    assert not set(keystream(pair, DIGEST, 4)) & set(keystream(pair, SET, 4))
    own = masks.cryptography().asymmetric.x25519.X25519PrivateKey.generate()
    public = own.public_key().public_bytes_raw()
    assert pair_key(own, public, SET, ("a", "b")) != pair_key(own, public, DIGEST, ("a", "b"))
    assert pair_key(own, public, SET, ("a", "b")) != pair_key(own, public, SET, ("a", "c"))


@pytest.mark.parametrize("honest", [2, 3])
def test_given_the_total_every_view_is_equally_likely(honest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every mask of every pair, modulo 5: whatever honest sites hold, messages of one total are equally frequent."""
    monkeypatch.setattr(masks, "MODULUS", 5)
    names = NAMES[:honest]
    edges = list(itertools.combinations(names, 2))

    def views(values: dict[str, int]) -> Counter[tuple[int, ...]]:
        found: Counter[tuple[int, ...]] = Counter()
        for drawn in itertools.product(range(5), repeat=len(edges)):
            mask = {frozenset(edge): value for edge, value in zip(edges, drawn, strict=True)}
            found[
                tuple(masked([values[n]], n, {o: [mask[frozenset((n, o))]] for o in names if o != n})[0] for n in names)
            ] += 1
        return found

    one = views(dict(zip(names, (1, 4, 2), strict=False)))
    assert len(one) == 5 ** (honest - 1)  # all messages that have this total
    assert len(set(one.values())) == 1
    assert one == views(dict(zip(names, (4, 1, 2), strict=False)))  # other rows, the same total: the same view


def left_out(pair: bytes, question: str, count: int) -> list[int]:
    return [0] * count


def reused(pair: bytes, question: str, count: int) -> list[int]:
    return keystream(pair, SET, count)


def seeded_small(pair: bytes, question: str, count: int) -> list[int]:
    """32 bits of a key would take minutes: eight, as a stand-in."""
    return keystream(bytes([pair[0]]), question, count)


def narrow(pair: bytes, question: str, count: int) -> list[int]:
    return [mask % 2**64 for mask in keystream(pair, question, count)]


def weaknesses(stream: Stream) -> list[str]:
    """What a coordinator with one colluding site finds out about two honest ones that hold zeros."""
    keys, count, rounds, found = keys_of(NAMES[:3]), 64, 40, []
    digests = [f"{number:064x}" for number in range(rounds)]
    views = []
    for question in digests:
        messages = sent({name: [0] * count for name in NAMES[:3]}, keys, question, stream)
        known = {other: stream(keys["c"][other], question, count) for other in ("a", "b")}  # c gives its streams away
        views.append([(value - mask) % MODULUS for value, mask in zip(messages["a"], known["a"], strict=True)])
    flat = np.frombuffer(b"".join(to_bytes(view) for view in views), np.uint8)
    expected = len(flat) / 256
    for place in range(BYTES):  # each byte of a coordinate by itself
        tally = np.bincount(flat[place::BYTES], minlength=256)
        square = float(((tally - expected / BYTES) ** 2).sum() / (expected / BYTES))
        if square > 255 + 8 * np.sqrt(2 * 255):
            found.append("not uniform")
            break
    if len({tuple(view) for view in views}) < rounds:
        found.append("reused")
    if any(views[0] == [v % MODULUS for v in keystream(bytes([seed]), digests[0], count)] for seed in range(256)):
        found.append("guessed")
    return found


@pytest.mark.parametrize(
    ("stream", "finding"),
    [(left_out, "not uniform"), (reused, "reused"), (seeded_small, "guessed"), (narrow, "not uniform")],
)
def test_a_broken_build_is_caught(stream: Stream, finding: str) -> None:
    assert finding in weaknesses(stream)


def test_the_build_as_it_is_shows_no_weakness() -> None:
    assert weaknesses(keystream) == []


def test_masks_that_do_not_cancel_are_refused() -> None:
    keys = keys_of()
    values = {name: [1] * 20 for name in NAMES}
    messages = sent(values, keys, DIGEST) | {"b": sent(values, keys, SET)["b"]}  # b was asked something else
    with pytest.raises(RunFolderError, match="masks that do not cancel"):
        unmasked(list(messages.values()), 2**80)
