"""One whole step in one pass over the rows: walk → gradient → norm → clip → noise → Adam (eqs. 6–8, 12–14).

A row's gradient lives in one line of scratch, so no dense Jacobian exists, and X, m and v stream through memory once.
Each part is the function that `walk.py` and `update.py` use by themselves: the result has the same bits as
jacobian → G = ∂ℓ/∂f · J → clip_and_noise → adam.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distcondense.errors import SettingsError
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.kernels.jit import kernel
from distcondense.kernels.random import BLOCKS, key_words
from distcondense.kernels.rows import NOISE_STREAM, as_steps, check_counter, check_in_place, over_rows, read_only
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
from distcondense.kernels.walk import depth_of, gradient_row, scratch_of, trees_of


@kernel()
def _fused(
    X: Any,
    dldf: Any,
    steps: Any,
    trees: Any,
    base: Any,
    sigmoid: Any,
    depth: Any,
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
    scratch, words = scratch_of(d, depth), np.empty((4, BLOCKS), np.uint32)
    g, z = np.empty(d, np.float32), np.empty(d, np.float32)
    key0, key1, stream, step, row0 = counter
    short = np.float32(clip)
    for i in range(first, last):
        g[:] = 0
        gradient_row(X[i], dldf[i], steps, trees, base, sigmoid, scratch, g)
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
    check_in_place(X, (len(X), ensemble.n_features), "X")
    check_in_place(state.m, X.shape, "state.m")
    check_in_place(state.v, X.shape, "state.v")
    outer = read_only(np.ascontiguousarray(dldf, np.float32))
    if outer.shape != (len(X),):
        raise SettingsError("dldf", f"must have one entry per row, shape ({len(X)},)", found=f"shape {outer.shape}")
    eps = as_steps(steps, X.shape[1])
    check_counter(stream=NOISE_STREAM, step=step, row0=row0, rows=len(X))
    counter = (*key_words(key), np.uint32(NOISE_STREAM), np.uint32(step), np.uint32(row0))
    rule = adam_rule(state.step + 1, rate, *betas)
    trees, base, sigmoid = trees_of(ensemble), float(ensemble.base), ensemble.link == "sigmoid"
    depth, clip, sigma_base = depth_of(trees[2], trees[4]), float(noise.clip), float(noise.sigma_base)
    norms, sigmas = np.empty(len(X), np.float32), np.empty(len(X), np.float32)

    def rows(first: int, last: int) -> None:
        _fused(
            X,
            outer,
            eps,
            trees,
            base,
            sigmoid,
            depth,
            state.m,
            state.v,
            clip,
            sigma_base,
            rule,
            counter,
            norms,
            sigmas,
            first,
            last,
        )

    over_rows(rows, len(X), threads)
    state.step += 1
    return norms, sigmas
