"""One whole step in one pass over the rows: walk → gradient → norm → clip → noise → Adam (eqs. 6–8, 12–14).

A row's gradient lives in one line of scratch, so no dense Jacobian exists, and X, m and v stream through memory once.
Each part is the function that `walk.py` and `update.py` use by themselves: the result has the same bits as
jacobian → G = ∂ℓ/∂f · J → clip_and_noise → adam.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distcondense.kernels.arguments import NOISE_STREAM, as_slopes, as_steps, check_moments, over_rows
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.kernels.jit import kernel
from distcondense.kernels.random import BLOCKS, counter_words
from distcondense.kernels.update import (
    AdamState,
    NoiseRule,
    adam_row,
    adam_rule,
    clip_row,
    noise_row,
    norm_row,
    sigma_of,
)
from distcondense.kernels.walk import forest_of, gradient_row, scratch_of


@kernel()
def _fused(
    X: Any,
    dldf: Any,
    steps: Any,
    forest: Any,
    m: Any,
    v: Any,
    clip: Any,
    sigma_base: Any,
    rule: Any,
    counter: Any,
    norms: Any,
    sigmas: Any,
    first: Any,
    last: Any,
) -> None:
    d = X.shape[1]
    scratch, words = scratch_of(d, forest[3]), np.empty((4, BLOCKS), np.uint32)
    g, z = np.empty(d, np.float32), np.empty(d, np.float32)
    key0, key1, stream, step, row0 = counter
    short = np.float32(clip)
    for i in range(first, last):
        g[:] = 0
        gradient_row(X[i], dldf[i], steps, forest, scratch, g)
        norms[i] = norm_row(g)
        clip_row(g, norms[i], short)
        sigmas[i] = sigma_of(norms[i], clip, sigma_base)
        if sigmas[i] > 0:
            row = np.uint32(row0 + np.uint32(i))
            noise_row(g, np.float32(sigmas[i] * short), z, words, key0, key1, stream, step, row)
        adam_row(X[i], g, m[i], v[i], rule)


def fused_step(
    ensemble: TreeEnsemble,
    X: NDArray[np.float32],
    dldf: ArrayLike,
    steps: ArrayLike,
    state: AdamState,
    noise: NoiseRule,
    rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    key: int = 0,
    step: int = 0,
    row0: int = 0,
    threads: int = 1,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Move X (m, d) and `state` one step on, in place; the row norms before clipping and σ_i, (m,) float32 each.

    `dldf` (m,) is ∂ℓ/∂f at X, `steps` (d,) the ε_j; `key`, `step` and `row0` are the counter of the noise.
    """
    check_moments(X, state, *betas, ensemble.n_features)
    slopes, eps = as_slopes(dldf, len(X)), as_steps(steps, X.shape[1])
    counter = counter_words(key, NOISE_STREAM, step, row0, len(X))
    rule, forest = adam_rule(state.step + 1, rate, *betas), forest_of(ensemble)
    clip, sigma_base, m, v = float(noise.clip), float(noise.sigma_base), state.m, state.v
    norms, sigmas = np.empty(len(X), np.float32), np.empty(len(X), np.float32)

    def rows(first: int, last: int) -> None:
        _fused(X, slopes, eps, forest, m, v, clip, sigma_base, rule, counter, norms, sigmas, first, last)

    over_rows(rows, len(X), threads)
    state.step += 1
    return norms, sigmas
