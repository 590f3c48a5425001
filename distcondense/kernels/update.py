"""Clip, noise and Adam, row by row: eqs. (8) and (12–14) of Thakur et al. 2026.

The row functions here are also what `fused.py` calls, so the fused step and its parts give the same bits.
Everything is float32; sums of squares are float64 in eight fixed lanes, which vectorise and have one order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distcondense.errors import SettingsError
from distcondense.kernels.arguments import NOISE_STREAM, check_clip, check_in_place, check_moments, over_rows, read_only
from distcondense.kernels.jit import kernel
from distcondense.kernels.random import BLOCKS, counter_words, normals_row

ADAM_EPSILON = 1e-8
RUNGS = 8  # the ladder of eq. (14): RUNGS multiples of σ_base/4


@dataclass
class AdamState:
    """First and second moments, (m, d) float32 each, and the number of updates done."""

    m: NDArray[np.float32]
    v: NDArray[np.float32]
    step: int = 0

    @classmethod
    def zeros(cls, shape: tuple[int, int]) -> AdamState:
        return cls(np.zeros(shape, np.float32), np.zeros(shape, np.float32))


@dataclass(frozen=True)
class NoiseRule:
    """Row-wise clipping to `clip` (C) and the noise ladder over `sigma_base`; sigma_base = 0 means no noise."""

    clip: float
    sigma_base: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.sigma_base < math.inf:
            raise SettingsError("sigma_base", "must be finite and at least 0", found=str(self.sigma_base))
        check_clip(self.clip, self.sigma_base)

    def sigmas(self, norms: ArrayLike) -> NDArray[np.float32]:
        """σ_i for each row norm, clipped or not, (m,) float32 (eq. 14)."""
        flat = read_only(np.ascontiguousarray(norms, dtype=np.float32).reshape(-1))
        out = np.empty_like(flat)
        _sigmas(flat, float(self.clip), float(self.sigma_base), out)
        return out


@kernel()
def sigma_of(norm: Any, clip: Any, sigma_base: Any) -> Any:
    """The largest rung σ with min(norm, C) ≥ σ C, else the lowest rung."""
    clipped = min(np.float64(norm), clip)
    for k in range(RUNGS, 1, -1):
        sigma = np.float32(0.25 * k * sigma_base)
        if sigma > 0 and clipped >= np.float64(sigma) * clip:
            return sigma
    return np.float32(0.25 * sigma_base)


@kernel()
def _sigmas(norms: Any, clip: Any, sigma_base: Any, out: Any) -> None:
    for i in range(norms.size):
        out[i] = sigma_of(norms[i], clip, sigma_base)


@kernel()
def norm_row(g: Any) -> Any:
    """‖g‖₂ of one row as float32; eight lanes by column % 8, summed in one order."""
    d = g.size
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = 0.0
    whole = d // 8 * 8
    for j in range(0, whole, 8):
        h = g[j : j + 8]
        a0 += np.float64(h[0]) * np.float64(h[0])
        a1 += np.float64(h[1]) * np.float64(h[1])
        a2 += np.float64(h[2]) * np.float64(h[2])
        a3 += np.float64(h[3]) * np.float64(h[3])
        a4 += np.float64(h[4]) * np.float64(h[4])
        a5 += np.float64(h[5]) * np.float64(h[5])
        a6 += np.float64(h[6]) * np.float64(h[6])
        a7 += np.float64(h[7]) * np.float64(h[7])
    rest = 0.0
    for j in range(whole, d):
        rest += np.float64(g[j]) * np.float64(g[j])
    total = ((a0 + a4) + (a1 + a5)) + ((a2 + a6) + (a3 + a7)) + rest
    return np.float32(math.sqrt(total))


@kernel(error_model="numpy")
def clip_row(g: Any, norm: Any, clip: Any) -> None:
    """g ← g · min(1, C/‖g‖) for a float32 norm and clip."""
    if norm > clip:
        factor = np.float32(clip / norm)
        for j in range(g.size):
            g[j] *= factor


@kernel()
def noise_row(
    g: Any, amount: Any, scratch: Any, words: Any, key0: Any, key1: Any, stream: Any, step: Any, row: Any
) -> None:
    """g ← g + amount · N(0, I); `scratch` (d,) float32 takes the normals."""
    if amount > 0:
        normals_row(scratch, words, key0, key1, stream, step, row)
        for j in range(g.size):
            g[j] += amount * scratch[j]


@kernel(error_model="numpy")
def adam_row(x: Any, g: Any, m: Any, v: Any, rule: Any) -> None:
    """One Adam update of one row; `rule` is what `adam_rule` gives."""
    beta1, rest1, beta2, rest2, rate, correction, epsilon = rule
    for j in range(x.size):
        m[j] = beta1 * m[j] + rest1 * g[j]
        v[j] = beta2 * v[j] + rest2 * (g[j] * g[j])
        x[j] -= rate * m[j] / (np.sqrt(v[j] * correction) + epsilon)


@kernel()
def _norms(G: Any, out: Any, first: Any, last: Any) -> None:
    for i in range(first, last):
        out[i] = norm_row(G[i])


@kernel()
def _clip_and_noise(G: Any, norms: Any, clip: Any, sigma: Any, counter: Any, first: Any, last: Any) -> None:
    key0, key1, stream, step, row0 = counter
    scratch, words = np.empty(G.shape[1], np.float32), np.empty((4, BLOCKS), np.uint32)
    for i in range(first, last):
        g = G[i]
        norms[i] = norm_row(g)
        clip_row(g, norms[i], clip)
        if sigma[i] > 0:
            row = np.uint32(row0 + np.uint32(i))
            noise_row(g, np.float32(sigma[i] * clip), scratch, words, key0, key1, stream, step, row)


@kernel()
def _adam(X: Any, G: Any, m: Any, v: Any, rule: Any, first: Any, last: Any) -> None:
    for i in range(first, last):
        adam_row(X[i], G[i], m[i], v[i], rule)


def row_norms(G: NDArray[np.float32], threads: int = 1) -> NDArray[np.float32]:
    """‖g_i‖₂ of every row of G (m, d), (m,) float32."""
    G = read_only(np.ascontiguousarray(G, np.float32))
    out = np.empty(len(G), np.float32)
    over_rows(lambda first, last: _norms(G, out, first, last), len(G), threads)
    return out


def clip_and_noise(
    G: NDArray[np.float32], clip: float, sigma: ArrayLike, key: int, step: int, row0: int = 0, threads: int = 1
) -> NDArray[np.float32]:
    """g_i ← g_i·min(1, C/‖g_i‖) + N(0, σ_i²C²I) in place (eqs. 12, 13); the norms before clipping, (m,) float32.

    `sigma` is one number or (m,). Row i of G takes the noise of row row0 + i, step `step`, stream NOISE_STREAM.
    """
    check_in_place(G, np.shape(G), "G")
    sigmas = read_only(np.ascontiguousarray(np.broadcast_to(np.asarray(sigma, np.float32), (len(G),))))
    check_clip(clip, sigmas)
    counter, norms = counter_words(key, NOISE_STREAM, step, row0, len(G)), np.empty(len(G), np.float32)
    over_rows(
        lambda first, last: _clip_and_noise(G, norms, np.float32(clip), sigmas, counter, first, last), len(G), threads
    )
    return norms


def adam_rule(step: int, rate: float, beta1: float, beta2: float) -> tuple[np.float32, ...]:
    """The constants of update number `step` (from 1), bias corrections included."""
    numbers = (beta1, 1 - beta1, beta2, 1 - beta2, rate / (1 - beta1**step), 1 / (1 - beta2**step), ADAM_EPSILON)
    return tuple(np.float32(number) for number in numbers)


def adam(
    X: NDArray[np.float32],
    G: NDArray[np.float32],
    state: AdamState,
    rate: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    threads: int = 1,
) -> None:
    """One Adam update (eq. 8) of X (m, d) along G, in place; `state` moves one step on."""
    check_moments(X, state, beta1, beta2)
    G = read_only(np.ascontiguousarray(G, np.float32))
    if G.shape != X.shape:
        raise SettingsError("G", f"must have the shape of X, {X.shape}", found=str(G.shape))
    rule = adam_rule(state.step + 1, rate, beta1, beta2)
    over_rows(lambda first, last: _adam(X, G, state.m, state.v, rule, first, last), len(X), threads)
    state.step += 1
