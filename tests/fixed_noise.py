"""The noise and the coins of tests: of the real law, but the same in every run, so that no test fails by bad luck.

Each test has a stream of its own, keyed by its name; two runs within a test draw different noise, as they should. Tests
of the samplers themselves carry the mark `real_noise`. `--noise 1` tries the whole suite under other noise, and
`--noise real` under the operating system's. Other processes that a test starts always draw real noise.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from distcondense.privacy import noise

REAL = "real"
_stream: np.random.Generator | None = None  # None: the operating system's


def begin(test: str, asked: str) -> None:
    """From here on noise is that of this test, under the noise that was asked for."""
    global _stream
    _stream = None if asked == REAL else np.random.default_rng([zlib.crc32(test.encode()), int(asked)])


class FixedSampler:
    """opendp's measurement with its own account of what an answer costs, and draws from the test's stream."""

    def __init__(self, real: Any, draw: Callable[[np.random.Generator, list[int]], list[int]]) -> None:
        self.map = real.map
        self.real, self.draw = real, draw

    def __call__(self, values: list[int]) -> list[int]:
        return list(self.real(values)) if _stream is None else self.draw(_stream, values)


def replace_samplers() -> None:
    """Puts fixed samplers where opendp's are drawn from, and fixed coins where runs ask who is left out."""
    real_gaussian, real_top, real_bits = noise._gaussian, noise._top, secrets.randbits

    @lru_cache(maxsize=8)
    def gaussian(scale: float) -> FixedSampler:
        def draw(rng: np.random.Generator, values: list[int]) -> list[int]:
            return [value + round(scale * z) for value, z in zip(values, rng.normal(size=len(values)), strict=True)]

        return FixedSampler(real_gaussian(scale), draw)

    @lru_cache(maxsize=8)
    def top(count: int, scale: float) -> FixedSampler:
        def draw(rng: np.random.Generator, values: list[int]) -> list[int]:
            best = max(values)
            noisy = np.array([float(value - best) for value in values]) + scale * rng.gumbel(size=len(values))
            picks: list[int] = np.argsort(-noisy, kind="stable")[:count].tolist()
            return picks

        return FixedSampler(real_top(count, scale), draw)

    def randbits(k: int) -> int:
        return real_bits(k) if _stream is None else int.from_bytes(_stream.bytes(-(-k // 8)), "big") >> (-k % 8)

    noise._gaussian, noise._top, secrets.randbits = gaussian, top, randbits  # type: ignore[assignment]
