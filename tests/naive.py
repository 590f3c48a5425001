"""Slow oracles straight from the formulas, in plain Python and NumPy: what every fast kernel is compared with.

Nothing here imports Numba or the code under test (only the `TreeEnsemble` dataclass). Arithmetic is float64 except
where the contract says float32: x ± ε, and the uniform numbers that Box–Muller starts from.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.kernels.ensemble import TreeEnsemble

WORD = 0xFFFFFFFF
NOISE_STREAM = 7


# ---- random numbers ----------------------------------------------------------------------------------------


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 as in Random123."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & WORD, (p0 >> 32) ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return c0, c1, c2, c3


def bits(key: int, stream: int, step: int, row0: int, shape: tuple[int, int]) -> NDArray[np.uint32]:
    out = np.empty(shape, np.uint32)
    for i in range(shape[0]):
        for j in range(shape[1]):
            out[i, j] = philox((j // 4, row0 + i, step, stream), (key & WORD, key >> 32))[j % 4]
    return out


def box_muller(ra: int, rb: int) -> tuple[float, float]:
    u1 = float(np.float32(np.float32(ra) * np.float32(2.0**-32)) + np.float32(2.0**-33))
    u2 = (rb >> 8) * 2.0**-24
    radius = math.sqrt(-2 * math.log(u1))
    return radius * math.cos(2 * math.pi * u2), radius * math.sin(2 * math.pi * u2)


def normals(key: int, stream: int, step: int, row0: int, shape: tuple[int, int]) -> NDArray[np.float64]:
    width = (shape[1] + 1) // 2 * 2
    words = bits(key, stream, step, row0, (shape[0], width))
    out = np.empty((shape[0], width))
    for i in range(shape[0]):
        for j in range(0, width, 2):
            out[i, j], out[i, j + 1] = box_muller(int(words[i, j]), int(words[i, j + 1]))
    return out[:, : shape[1]]


# ---- clip, noise, Adam -------------------------------------------------------------------------------------


def sigma(norm: float, clip: float, sigma_base: float) -> float:
    """Eq. (14): the largest rung of the ladder that the clipped gradient covers, else the lowest."""
    rungs = [0.25 * k * sigma_base for k in range(1, 9)]
    covered = [s for s in rungs if s > 0 and min(norm, clip) / (s * clip) >= 1]
    return max(covered, default=rungs[0])


def clip_and_noise(G: NDArray[Any], clip: float, sigmas: NDArray[Any], key: int, step: int, row0: int) -> NDArray[Any]:
    """Eqs. (12), (13)."""
    out = G.astype(np.float64)
    noise = normals(key, NOISE_STREAM, step, row0, (G.shape[0], G.shape[1]))
    for i in range(len(out)):
        norm = math.sqrt(sum(float(value) ** 2 for value in out[i]))
        if norm > 0:
            out[i] *= min(1.0, clip / norm)
        if sigmas[i] > 0:
            out[i] += float(sigmas[i]) * clip * noise[i]
    return out


def adam(
    X: NDArray[Any], G: NDArray[Any], m: NDArray[Any], v: NDArray[Any], t: int, rate: float, beta1: float, beta2: float
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Eq. (8), update number t from 1; new X, m, v in float64."""
    m = beta1 * m.astype(np.float64) + (1 - beta1) * G
    v = beta2 * v.astype(np.float64) + (1 - beta2) * G.astype(np.float64) ** 2
    step = rate * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + 1e-8)
    return X - step, m, v


# ---- trees -------------------------------------------------------------------------------------------------


def margin(ensemble: TreeEnsemble, x: NDArray[np.float32]) -> float:
    total = float(ensemble.base)
    for root in ensemble.roots:
        node = int(root)
        while ensemble.feature[node] >= 0:
            value = x[ensemble.feature[node]]
            left = bool(ensemble.default_left[node]) if np.isnan(value) else value < ensemble.threshold[node]
            node = int(ensemble.left[node]) + (0 if left else 1)
        total += float(ensemble.threshold[node])
    return total


def score(ensemble: TreeEnsemble, x: NDArray[np.float32]) -> float:
    value = margin(ensemble, x)
    return 1 / (1 + math.exp(-value)) if ensemble.link == "sigmoid" else value


def jacobian(ensemble: TreeEnsemble, X: NDArray[np.float32], steps: NDArray[np.float32]) -> NDArray[np.float64]:
    """Eq. (7), two predictions an entry."""
    J = np.empty(X.shape)
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            up, down = X[i].copy(), X[i].copy()
            up[j] += steps[j]
            down[j] -= steps[j]
            J[i, j] = (score(ensemble, up) - score(ensemble, down)) / (2 * float(steps[j]))
    return J


def fused_step(
    ensemble: TreeEnsemble, X: NDArray[Any], dldf: NDArray[Any], steps: NDArray[Any], m: NDArray[Any], v: NDArray[Any],
    t: int, clip: float, sigma_base: float, rate: float, betas: tuple[float, float], key: int, step: int, row0: int,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:  # fmt: skip
    """The whole step as the paper writes it; X, m, v, norms, sigmas."""
    G = dldf[:, None].astype(np.float64) * jacobian(ensemble, X, steps)
    norms = np.sqrt((G**2).sum(axis=1))
    sigmas = np.array([sigma(norm, clip, sigma_base) for norm in norms])
    G = clip_and_noise(G, clip, sigmas, key, step, row0)
    return *adam(X, G, m, v, t, rate, *betas), norms, sigmas


# ---- cases -------------------------------------------------------------------------------------------------


def random_ensemble(
    rng: np.random.Generator, *, d: int, trees: int, depth: int, link: Any = "sigmoid", features: int | None = None
) -> TreeEnsemble:
    """Trees of exactly `depth`, thresholds on the grid ¼ℤ, tests drawn from the first `features` features only.

    Rows and steps on the same grid hit thresholds exactly; few features repeat on a path.
    """
    feature: list[int] = []
    threshold: list[float] = []
    left: list[int] = []
    roots = []
    for _ in range(trees):
        roots.append(len(feature))
        feature.append(-1), threshold.append(rng.normal()), left.append(-1)
        frontier = [roots[-1]]
        for _ in range(depth):
            # one node always splits, so that the depth is reached; at most 8 do, so that deep trees stay small
            split = frontier[:1] + [node for node in frontier[1:8] if rng.random() < 0.7]
            frontier = []
            for node in split:
                feature[node] = int(rng.integers(features or d))
                threshold[node] = float(rng.integers(-6, 7)) / 4
                left[node] = len(feature)
                for _ in range(2):
                    frontier.append(len(feature))
                    feature.append(-1), threshold.append(rng.normal()), left.append(-1)
            rng.shuffle(frontier)
    return TreeEnsemble(
        feature=np.array(feature, np.int32),
        threshold=np.array(threshold, np.float32),
        left=np.array(left, np.int32),
        default_left=rng.integers(0, 2, len(feature)).astype(np.uint8),
        roots=np.array(roots, np.int32),
        base=0.25,
        link=link,
        n_features=d,
    )


def grid_rows(rng: np.random.Generator, m: int, d: int, *, missing: float = 0.0) -> NDArray[np.float32]:
    """Rows on the grid ¼ℤ, some entries missing."""
    X = (rng.integers(-8, 9, (m, d)) / 4).astype(np.float32)
    X[rng.random((m, d)) < missing] = np.nan
    return X


def grid_steps(rng: np.random.Generator, d: int) -> NDArray[np.float32]:
    """Steps on the grid ¼ℤ, from ¼ to 2."""
    return (rng.integers(1, 9, d) / 4).astype(np.float32)


# ---- losses and metrics: loops straight from the formulas ---------------------------------------------------


def bce(p, y):
    return sum(-math.log(pi) if yi == 1 else -math.log(1 - pi) for pi, yi in zip(p, y, strict=True)) / len(p)


def cox(f, time, event):
    total = 0.0
    for i in range(len(f)):
        if event[i] == 1:
            at_risk = sum(math.exp(f[j]) for j in range(len(f)) if time[j] >= time[i])
            total -= f[i] - math.log(at_risk)
    return total


def aft(f, time):
    total = 0.0
    for fi, ti in zip(f, time, strict=True):
        gap = abs(fi - math.log(ti))
        total += gap**2 / 2 if gap < 1 else gap - 0.5
    return total / len(f)


def match(f, stratum, real_means, average):
    total = 0.0
    for k, real in enumerate(real_means):
        mine = [fi for fi, s in zip(f, stratum, strict=True) if s == k]
        if mine and not math.isnan(real):
            total += abs(sum(mine) / len(mine) - real)
    return total / len(real_means) if average else total


def composite(supervised, matched, rho):
    alpha = supervised / (matched + 1e-8) * rho / (1 - rho)
    return supervised + alpha * matched


def auroc(label, score, weight):
    good = total = 0.0
    for i in range(len(label)):
        for j in range(len(label)):
            if label[i] == 1 and label[j] == 0:
                pair = weight[i] * weight[j]
                total += pair
                good += pair * (1.0 if score[i] > score[j] else 0.5 if score[i] == score[j] else 0.0)
    return good / total if total else math.nan


def c_index(time, event, risk, weight):
    good = total = 0.0
    for i in range(len(time)):
        for j in range(len(time)):
            known = event[i] == 1 and (time[i] < time[j] or (time[i] == time[j] and event[j] == 0))
            if known:
                pair = weight[i] * weight[j]
                total += pair
                good += pair * (1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0)
    return good / total if total else math.nan


def slope(loss, f, step=1e-5):
    """∂loss/∂f_i by symmetric differences."""
    out = []
    for i in range(len(f)):
        up, down = list(f), list(f)
        up[i] += step
        down[i] -= step
        out.append((loss(up) - loss(down)) / (2 * step))
    return out
