"""Masks that cancel in a total: integers modulo 2¹²⁸, streams that two sites share for one question.

A key of a pair of sites comes from X25519 and HKDF-SHA-256, bound to the set of sites and both names; the key of a
question from that by HKDF, bound to the question's digest, which no two questions share. ChaCha20 makes the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.errors import ModelError, RunFolderError

BYTES = 16  # of a coordinate
MODULUS = 1 << (8 * BYTES)
PAIR, QUESTION = b"distcondense federated 1: a pair of sites", b"distcondense federated 1: a question"


def cryptography() -> Any:
    """The package's primitives, or what to install."""
    try:
        from cryptography.hazmat import primitives
        from cryptography.hazmat.primitives import ciphers, hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519, x25519
        from cryptography.hazmat.primitives.ciphers import algorithms
        from cryptography.hazmat.primitives.kdf import hkdf
    except ModuleNotFoundError:
        raise ModelError(
            "sites together",
            "need the package cryptography",
            found="no such package",
            fix="pip install 'distcondense[sign]'",
        ) from None
    del ciphers, hashes, serialization, ed25519, x25519, algorithms, hkdf  # parts of the package, by their names
    return primitives


def pair_key(own: Any, other: bytes, set_digest: str, names: tuple[str, str]) -> bytes:
    """The key of a pair of sites: `own` an X25519 private key, `other` the other one's public bytes."""
    parts = cryptography()
    secret = own.exchange(parts.asymmetric.x25519.X25519PublicKey.from_public_bytes(other))
    info = b"\0".join([PAIR, bytes.fromhex(set_digest), *(name.encode() for name in sorted(names))])
    return _derived(secret, info)


def keystream(pair: bytes, question: str, count: int) -> list[int]:
    """The pair's masks of a question, by its digest: `count` integers below the modulus."""
    parts = cryptography()
    key = _derived(pair, QUESTION + b"\0" + bytes.fromhex(question))
    cipher = parts.ciphers.Cipher(parts.ciphers.algorithms.ChaCha20(key, bytes(16)), mode=None)  # a key is used once
    return from_bytes(cipher.encryptor().update(bytes(BYTES * count)))


def _derived(secret: bytes, info: bytes) -> bytes:
    parts = cryptography()
    derived: bytes = parts.kdf.hkdf.HKDF(parts.hashes.SHA256(), 32, salt=None, info=info).derive(secret)
    return derived


def masked(values: Iterable[int], site: str, streams: Mapping[str, Sequence[int]]) -> list[int]:
    """A site's integers under its masks: added where the other site's name is larger, taken away where not."""
    total = [int(value) for value in values]
    for other, stream in streams.items():
        sign = 1 if site < other else -1
        total = [value + sign * mask for value, mask in zip(total, stream, strict=True)]
    return [value % MODULUS for value in total]


def unmasked(messages: Sequence[Sequence[int]], largest: int) -> NDArray[Any]:
    """The total of all sites' messages: int64 where all of it fits with room for a sum of two, else Python's integers.

    Larger than `largest` no total can be: then masks did not cancel.
    """
    totals = [sum(one) % MODULUS for one in zip(*messages, strict=True)]
    totals = [value - MODULUS if value >= MODULUS // 2 else value for value in totals]
    if any(abs(value) > largest for value in totals):
        raise RunFolderError(
            "masked sums",
            "must be of one question, from all sites of the set",
            found="masks that do not cancel: sites answered different questions, or one of them has another's keys",
            fix="begin another session; nothing can be read off these messages",
        )
    return np.array(totals, np.int64 if all(abs(value) < 2**62 for value in totals) else object)


def to_bytes(values: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(BYTES, "little") for value in values)


def from_bytes(content: bytes) -> list[int]:
    return [int.from_bytes(content[start : start + BYTES], "little") for start in range(0, len(content), BYTES)]
