"""Slow oracles straight from the formulas, in plain Python and NumPy: what every fast kernel is compared with.

Nothing here imports Numba or the code under test (only the `TreeEnsemble` dataclass). Arithmetic is float64 except
where the contract says float32: x ± ε, and the uniform numbers that Box–Muller starts from.
"""

from __future__ import annotations

import ast
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from distcondense.kernels.ensemble import TreeEnsemble

WORD = 0xFFFFFFFF
NOISE_STREAM = 7


# ---- hashes ------------------------------------------------------------------------------------------------


def siphash(key: bytes, message: bytes) -> bytes:
    """SipHash-2-4 with 128 bits, from Aumasson and Bernstein 2012 and their reference's longer output."""

    def turned(x: int, by: int) -> int:
        return (x << by | x >> 64 - by) % 2**64

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) % 2**64
            v[1] = turned(v[1], 13) ^ v[0]
            v[0] = turned(v[0], 32)
            v[2] = (v[2] + v[3]) % 2**64
            v[3] = turned(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) % 2**64
            v[3] = turned(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) % 2**64
            v[1] = turned(v[1], 17) ^ v[2]
            v[2] = turned(v[2], 32)

    k = [int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")]
    names = (b"somepseu", b"dorandom", b"lygenera", b"tedbytes")
    v = [int.from_bytes(name, "big") ^ k[i % 2] for i, name in enumerate(names)]
    v[1] ^= 0xEE
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return first.to_bytes(8, "little") + (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")


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
    ensemble: TreeEnsemble,
    X: NDArray[Any],
    dldf: NDArray[Any],
    steps: NDArray[Any],
    m: NDArray[Any],
    v: NDArray[Any],
    t: int,
    clip: float,
    sigma_base: float,
    rate: float,
    betas: tuple[float, float],
    key: int,
    step: int,
    row0: int,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
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


def average_precision(label, score, weight):
    """Mean over cases of the share of cases among rows that score at least as high."""
    total = sum(w for y, w in zip(label, weight, strict=True) if y == 1)
    out = 0.0
    for i in range(len(label)):
        if label[i] == 1 and weight[i]:
            seen = [j for j in range(len(label)) if score[j] >= score[i]]
            out += weight[i] * sum(weight[j] for j in seen if label[j] == 1) / sum(weight[j] for j in seen)
    return out / total if total else math.nan


def survival_after(time, event, weight, at):
    """Kaplan–Meier: the share free of the event after `at`."""
    free = 1.0
    for moment in sorted({t for t, e in zip(time, event, strict=True) if e and t <= at}):
        here = sum(w for t, w in zip(time, weight, strict=True) if t >= moment)
        died = sum(w for t, e, w in zip(time, event, weight, strict=True) if e and t == moment)
        free *= 1 - died / here if here else 1.0
    return free


def survival_loss(time, event, alive, times, weight):
    """Graf's Brier score, a mean over times; censoring weights of the unweighted rows."""
    n, ones, censored = len(time), [1.0] * len(time), [1 - e for e in event]
    total = 0.0
    for k, moment in enumerate(times):
        later = survival_after(time, censored, ones, moment)
        for i in range(n):
            if event[i] and time[i] <= moment:
                total += weight[i] * alive[i][k] ** 2 / survival_after(time, censored, ones, time[i] - 1e-9)
            elif time[i] > moment:
                total += weight[i] * (1 - alive[i][k]) ** 2 / later
    return total / len(times) / sum(weight)


def resampled(measure, rows, rng, resamples, person=None):
    """95% percentile bootstrap of a measure of counts per row; rows of one person come and go together."""
    owners = list(range(rows)) if person is None else list(person)
    units = sorted(set(owners))
    found = []
    for _ in range(resamples):
        drawn = rng.choice(units, len(units))
        count = {unit: int((drawn == unit).sum()) for unit in units}
        value = measure([float(count[owner]) for owner in owners])
        if value == value:
            found.append(value)
    found.sort()
    return found[int(0.025 * len(found))], found[int(0.975 * len(found))]


def slope(loss, f, step=1e-5):
    """∂loss/∂f_i by symmetric differences."""
    out = []
    for i in range(len(f)):
        up, down = list(f), list(f)
        up[i] += step
        down[i] -= step
        out.append((loss(up) - loss(down)) / (2 * step))
    return out


# ---- the gate: one person at a time ------------------------------------------------------------------------


def people(person, cap):
    """The kept rows of each person: the first `cap` in table order."""
    kept: dict[Any, list[int]] = {}
    for row, who in enumerate(person):
        if len(kept.setdefault(who, [])) < cap:
            kept[who].append(row)
    return list(kept.values())


def coarse(code, starts):
    """The coarse cell of a bin: the last one that begins at it or before it."""
    return max(k for k, start in enumerate(starts) if start <= code)


def clipped_sum(parts, owners, size, limit, margin):
    """Σ_person trunc(clip(Σ_rows trunc(v·limit·margin))), in Python integers; parts[row] = [(coordinate, value), …]."""
    total = [0] * size
    for rows in owners:
        own = [0] * size
        for row in rows:
            for coordinate, value in parts[row]:
                own[coordinate] += math.trunc(value * (limit * margin))
        norm = math.sqrt(sum(value * value for value in own))
        if norm > limit * margin:
            own = [math.trunc(value * (limit * margin / norm)) for value in own]
        total = [a + b for a, b in zip(total, own, strict=True)]
    return total


def mapped_sum(vectors, owners, size, limit, margin):
    """Σ_person trunc(clip(Σ_rows trunc(clip(v)·limit·margin))); a coordinate that is no number is 0."""
    shortened = []
    for vector in vectors:
        own = [0.0 if math.isnan(v) else max(-1e100, min(1e100, v)) for v in vector]
        norm = max(1.0, math.sqrt(sum(v * v for v in own)))
        shortened.append([(k, v / norm) for k, v in enumerate(own)])
    return clipped_sum(shortened, owners, size, limit, margin)


def logistic_pair(score, label):
    p = 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))
    return p - label, p * (1 - p)


def time_lived(time, edges):
    """Time at risk inside each interval."""
    return [max(0.0, min(time, b) - a) for a, b in itertools.pairwise(edges)]


def interval(time, edges):
    """k with edge_k ≤ time < edge_k+1; the horizon belongs to the last."""
    return max(k for k in range(len(edges) - 1) if k == 0 or edges[k] <= time)


def end_of_follow_up(time, event, edges):
    """0 … K − 1: left in that interval; K: followed to the horizon; then the event in each, where it is not later."""
    horizon, intervals = edges[-1], len(edges) - 1
    if event and time <= horizon:
        return intervals + 1 + interval(min(time, horizon), edges)
    return intervals if time >= horizon else interval(time, edges)


def survival_pair(score, time, event, edges, hazard, most):
    lived = time_lived(time, edges)
    a = sum(h * w for h, w in zip(hazard, lived, strict=True)) * math.exp(max(-30.0, min(30.0, score)))
    a = min(a, most)
    return a - event, a


def choice_scores(codes, g, owners, limit, margin):
    """Σ_cells |Σ_people g|, a person's gradients scaled down to Σ_rows |g| ≤ limit."""
    scores = []
    for column in range(len(codes[0])):
        cells: dict[int, int] = {}
        for rows in owners:
            own = {row: math.trunc(max(-1.0, min(1.0, g[row])) * (limit * margin)) for row in rows}
            length = sum(abs(value) for value in own.values())
            for row, value in own.items():
                if length > limit * margin:
                    value = math.trunc(value * (limit * margin / length))
                cells[codes[row][column]] = cells.get(codes[row][column], 0) + value
        scores.append(sum(abs(value) for value in cells.values()))
    return scores


def pair_scores(codes, owners, pairs, expected, ahead, limit, margin):
    """Σ_cells |rows − expected| + head start, in exact integers: a person's rows share one unit, limit·margin."""
    scores = []
    for (i, j), table, start in zip(pairs, expected, ahead, strict=True):
        apart = {(a, b): -math.trunc(float(value) * limit) for (a, b), value in np.ndenumerate(np.asarray(table))}
        for rows in owners:
            each = math.floor(limit * margin) // len(rows)
            for row in rows:
                apart[int(codes[row][i]), int(codes[row][j])] += each
        scores.append(sum(abs(value) for value in apart.values()) + math.trunc(start * limit))
    return scores


def hockey_stick(p, q, epsilon):
    """Σ [p − e^ε q]₊."""
    return sum(max(0.0, a - math.exp(epsilon) * b) for a, b in zip(p, q, strict=True))


def peeled(scores, picks):
    """Law of `picks` exponential mechanisms one after the other, without replacement; P(j) ∝ e^score."""
    law = {(): 1.0}
    for _ in range(picks):
        longer = {}
        for taken, chance in law.items():
            left = [j for j in range(len(scores)) if j not in taken]
            top = max(scores[j] for j in left)
            weight = {j: math.exp(scores[j] - top) for j in left}
            for j in left:
                longer[(*taken, j)] = chance * weight[j] / sum(weight.values())
        law = longer
    return law


# ---- audits: how many right guesses a guarantee allows


def binomial_pmf(k, n, p):
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


def one_run_p_value(canaries, guesses, right, epsilon, delta):
    """Steinke, Nasr, Jagielski 2023, corollary 5.4, term by term."""
    p = 1 / (1 + math.exp(-epsilon))
    chance = [binomial_pmf(k, guesses, p) for k in range(guesses + 1)]
    tail = math.fsum(chance[right:])
    slack = max((math.fsum(chance[right - i : right]) / i for i in range(1, right + 1)), default=0.0)
    return min(1.0, tail + 2 * canaries * delta * slack)


def rate_above(errors, trials, confidence):
    """The largest rate at which so few errors, or fewer, still happen with chance 1 − confidence: by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        seen = math.fsum(binomial_pmf(k, trials, middle) for k in range(errors + 1))
        low, high = (middle, high) if seen > 1 - confidence else (low, middle)
    return high


def best_cut(statistic, member, value):
    """The largest value(false positives, false negatives) of any threshold, in either direction."""
    best = -math.inf
    for sign in (1, -1):
        for threshold in [-math.inf, *(sign * x for x in statistic)]:
            said = [sign * x > threshold for x in statistic]
            fp = sum(s and not m for s, m in zip(said, member, strict=True))
            fn = sum(m and not s for s, m in zip(said, member, strict=True))
            best = max(best, value(fp, fn))
    return best


# ---- the private additive model: cells, tables, smoothing


def cell_of(value: float, cuts: Any) -> int:
    """b with cuts[b − 1] ≤ value < cuts[b]; beyond the outermost cuts the outermost cells."""
    return sum(1 for cut in cuts if cut <= value)


def additive_margin(intercept: float, tables: Any, rows: Any, pairs: Any = ()) -> list[float]:
    """intercept + Σ_j table_j[cell_j] + Σ_ij table_ij[group of cell_i, group of cell_j] of each row of cells."""
    out = []
    for row in rows:
        total = intercept
        for table, cell in zip(tables, row, strict=True):
            total += float(table[cell])
        for pair in pairs:
            first, second = (group[row[column]] for column, group in zip(pair.columns, pair.groups, strict=True))
            total += float(pair.table[first][second])
        out.append(total)
    return out


def log_normal(x: NDArray[Any], covariance: NDArray[Any]) -> float:
    """log density of N(0, covariance) at x."""
    _, log_det = np.linalg.slogdet(2 * math.pi * covariance)
    return -0.5 * log_det - 0.5 * float(x @ np.linalg.inv(covariance) @ x)


def smooth(precision: Any, information: Any, kernels: Any) -> NDArray[np.float64]:
    """Posterior mean over all kernels and "no effect", from the densities themselves; all precisions above 0.

    b = Λ⁻¹η is what was seen; evidence of a kernel: log N(b; 0, K + Λ⁻¹) − log N(b; 0, Λ⁻¹), added up over the scores,
    of which one too many is counted where there are several. "No effect" has a sixth of the prior.
    """
    scores, chances, tables = len(precision), [math.log(1 / 6)], [np.zeros(np.shape(precision))]
    for kernel in kernels:
        evidence, table = 0.0, []
        for own, told in zip(precision, information, strict=True):
            noise = np.diag([1 / p for p in own])
            seen = np.array([i / p for i, p in zip(told, own, strict=True)])
            evidence += log_normal(seen, kernel + noise) - log_normal(seen, noise)
            table.append(kernel @ np.linalg.inv(kernel + noise) @ seen)
        chances.append(math.log(5 / 6 / len(kernels)) + evidence * (max(scores - 1, 1) / scores))
        tables.append(np.array(table))
    weights = [math.exp(chance - max(chances)) for chance in chances]
    return np.asarray(sum(w * t for w, t in zip(weights, tables, strict=True)) / sum(weights), np.float64)


def agreement(scores: Any, gradients: Any, centre: Any, width: float) -> list[float]:
    """Σ g·φ, then Σ g and Σ φ score by score, row by row: g = −gradient, φ = (score − centre)/max(length, width)."""
    several = range(len(centre))
    out = [0.0] * (1 + 2 * len(centre))
    for row, gradient in zip(scores, gradients, strict=True):
        apart = [row[s] - centre[s] for s in several]
        longest = max(math.sqrt(sum(a * a for a in apart)), width)
        for s in several:
            out[0] -= gradient[s] * apart[s] / longest
            out[1 + s] -= gradient[s]
            out[1 + len(centre) + s] += apart[s] / longest
    return out


def by_chance(columns: Any, dispersion: float, rivals: int, gumbel: float, rng: Any) -> float:
    """One draw, one score: columns (precision, noise, hessian, kernels) fitted to variation and noise alone."""
    agree = 0.0
    for precision, noise, hessian, kernels in columns:
        cells = range(len(hessian))
        tried = [[rng.normal() * math.sqrt(dispersion * h) for h in hessian] for _ in range(rivals)]
        worth = [sum(map(abs, own)) + gumbel * rng.gumbel() for own in tried]
        own = tried[worth.index(max(worth))]
        told = [-precision[c] * own[c] / hessian[c] + math.sqrt(noise[c]) * rng.normal() for c in cells]
        table = smooth([precision], [told], kernels)[0]
        mean = sum(table[c] * hessian[c] for c in cells) / sum(hessian)
        agree -= sum((table[c] - mean) * own[c] for c in cells)
    return agree


def merge_cells(
    counts: list[float], sigma: float, ordered: bool, hole: bool, most: int, least: float,
    afforded: float, sure: float, spike: float,
) -> list[int]:  # fmt: skip
    """Groups of fine cells, written down one by one; then the group of each fine cell.

    `least` deviations of noise in a cell, or up to `sure` of them where `afforded` such cells could be had; `spike`
    times the mean of its neighbours a cell stands alone, or where it holds enough by itself.
    """
    share = max(sum(counts), 1.0) / (2 * most)
    groups: list[list[int]] = []
    if ordered:
        inner = len(counts) - hole

        asked = max(least, min(sum(counts) / (afforded * sigma), max(least, sure)))

        def full(group: list[int]) -> bool:
            held = sum(counts[fine] for fine in group)
            return held >= share and held >= asked * sigma * math.sqrt(len(group))

        def alone(count: float, group: list[int]) -> bool:
            single = (least + 2) * sigma
            beside = max(sum(counts[fine] for fine in group), 0.0) / len(group)
            whole = count >= share and count >= single and count >= asked * sigma
            return whole or count >= single + spike * beside

        groups = [[]]
        for fine in range(inner):
            if groups[-1] and alone(counts[fine], groups[-1]):
                groups.append([])
            groups[-1].append(fine)
            if full(groups[-1]) and fine < inner - 1:
                groups.append([])
        if len(groups) > 1 and not full(groups[-1]):
            thin = groups.pop()
            groups[-1] += thin
        if hole:
            groups.append([len(counts) - 1])
    else:
        groups = [[fine] for fine, count in enumerate(counts) if count >= least * sigma]
        groups.append([fine for fine, count in enumerate(counts) if count < least * sigma])
    return [next(k for k, group in enumerate(groups) if fine in group) for fine in range(len(counts))]


# ---- exchange: rows of a set for candidates, while students of the set learn better


def students_score(panel: Any, chosen: NDArray[Any]) -> float:
    """What the students of a set score together, each solved from scratch in float64.

    `panel`: among, beyond, labels, truth, ends, weights, mean, near, ridge, as the kernel takes them.
    """
    among, beyond, labels, truth, ends, weights, mean, near, ridge = panel
    m, score = len(chosen), 0.0
    for q in range(len(among)):
        own = among[q].astype(np.float64)[np.ix_(chosen, chosen)]
        here = slice(ends[q], ends[q + 1])
        solved = np.linalg.solve(own + ridge * np.eye(m), labels.astype(np.float64)[chosen, here])
        answers = beyond[q].astype(np.float64)[:, chosen] @ solved
        for answer, true, weight in zip(answers.T, truth.astype(np.float64)[:, here].T, weights[here], strict=True):
            apart = answer - answer.mean()
            score += float(weight) * float(apart @ true) / max(float(np.linalg.norm(apart)), 1e-12)
        away = float(own.sum()) / m - 2 * float(mean[q].astype(np.float64)[chosen].sum())
        score -= float(near[q]) * away
    return score


def exchange_rows(
    panel: Any, chosen: NDArray[Any], proposals: list[tuple[int, int]], tie: float
) -> tuple[NDArray[Any], int, list[tuple[int, int]]]:
    """(the set, exchanges made, proposals tried): each tried on a copy, and left out where it is within a tie."""
    made, tried = 0, []
    for place, candidate in proposals:
        trial = chosen.copy()
        trial[place] = candidate
        if candidate in chosen:
            tried.append((place, candidate))  # nobody is in a set twice
            continue
        gain = students_score(panel, trial) - students_score(panel, chosen)
        if abs(gain) < tie:
            continue
        tried.append((place, candidate))
        if gain > 0:
            chosen, made = trial, made + 1
    return chosen, made, tried


def assert_sparse_is_dense(sparse, dense):
    """(indptr, indices, data) is the dense answer without its zeros, columns ascending and none twice."""
    indptr, indices, data = sparse
    found = csr_array((data, indices, indptr), shape=dense.shape)
    assert found.has_canonical_format
    assert (data != 0).all()
    np.testing.assert_array_equal(found.toarray(), dense)


# ---- plans: who computes which part of a Jacobian


def units(rows: int, columns: int, height: int, width: int) -> list[list[tuple[int, int]]]:
    """The cells (row, column) of each unit: stripes from the top, in each its blocks from the left."""
    return [
        [(i, j) for i in range(rows) if i // height == stripe for j in range(columns) if j // width == block]
        for stripe in sorted({i // height for i in range(rows)})
        for block in sorted({j // width for j in range(columns)})
    ]


def shares(count: int, speeds: list[float]) -> list[int]:
    """Largest remainders in exact arithmetic; of equal ones the first. All alike where nobody has a speed."""
    exact = [Fraction(speed) for speed in speeds] if any(speeds) else [Fraction(1)] * len(speeds)
    due = [count * speed / sum(exact) for speed in exact]
    given = [math.floor(share) for share in due]
    while sum(given) < count:
        neediest = max(range(len(due)), key=lambda k: (due[k] - given[k], -k))
        given[neediest] += 1
    return given


# ---- the gate with several scores: softmax


def softmax_parts(scores, label, weight):
    """(g, c·h) of one row, S of each, scaled down together to norm 1: g = (p − y)/√2, h = p(1 − p). No weight: no h."""
    top = max(scores)
    mass = [math.exp(score - top) for score in scores]
    p = [m / sum(mass) for m in mass]
    out = [(chance - (k == label)) / math.sqrt(2) for k, chance in enumerate(p)]
    if weight:
        out += [weight * chance * (1 - chance) for chance in p]
    norm = max(1.0, math.sqrt(sum(value * value for value in out)))
    return [value / norm for value in out]


def choice_scores_of_many(codes, gradients, owners, limit, margin):
    """Σ_scores Σ_cells |Σ_people g|, a person's gradients scaled down to Σ_rows Σ_scores |g| ≤ limit."""
    scores = []
    for column in range(len(codes[0])):
        cells: dict[tuple[int, int], int] = {}
        for rows in owners:
            own = {
                (row, k): math.trunc(max(-1.0, min(1.0, g)) * (limit * margin))
                for row in rows
                for k, g in enumerate(gradients[row])
            }
            length = sum(abs(value) for value in own.values())
            for (row, k), value in own.items():
                if length > limit * margin:
                    value = math.trunc(value * (limit * margin / length))
                place = (k, int(codes[row][column]))
                cells[place] = cells.get(place, 0) + value
        scores.append(sum(abs(value) for value in cells.values()))
    return scores


# ---- measures of several classes and of numbers


def pairwise_auroc(label, probabilities):
    """Hand and Till: over ordered pairs of classes, P(a row of the first has the higher score for it), ties a half."""
    found = []
    for a, b in itertools.permutations(range(len(probabilities[0])), 2):
        ours, others = ([p[a] for p, own in zip(probabilities, label, strict=True) if own == k] for k in (a, b))
        if ours and others:
            found.append(sum((x > y) + (x == y) / 2 for x in ours for y in others) / (len(ours) * len(others)))
    return sum(found) / len(found) if found else math.nan


def macro_auroc(label, probabilities, weight):
    """Mean over the classes that are there (and are not all there is) of one class against the rest."""
    found = []
    for k in range(len(probabilities[0])):
        one = auroc([int(y == k) for y in label], [p[k] for p in probabilities], weight)
        if one == one:
            found.append(one)
    return sum(found) / len(found) if found else float("nan")


def balanced_accuracy(label, decided, weight):
    """Mean over the classes that are there of the share that was found."""
    shares = []
    for k in set(label):
        held = sum(w for y, w in zip(label, weight, strict=True) if y == k)
        hit = sum(w for y, d, w in zip(label, decided, weight, strict=True) if y == k == d)
        if held:
            shares.append(hit / held)
    return sum(shares) / len(shares) if shares else float("nan")


def macro_f1(label, decided, weight):
    """Mean over the classes that are there, or were said, of 2·hits/(real + said)."""
    values = []
    for k in {*label, *decided}:
        real = sum(w for y, w in zip(label, weight, strict=True) if y == k)
        said = sum(w for d, w in zip(decided, weight, strict=True) if d == k)
        hit = sum(w for y, d, w in zip(label, decided, weight, strict=True) if y == k == d)
        if real + said:
            values.append(2 * hit / (real + said))
    return sum(values) / len(values) if values else float("nan")


def error_of(value, predicted, weight, measure):
    """R², RMSE or MAE."""
    total = sum(weight)
    if not total:
        return float("nan")
    if measure == "mae":
        return sum(w * abs(p - y) for y, p, w in zip(value, predicted, weight, strict=True)) / total
    squared = sum(w * (p - y) ** 2 for y, p, w in zip(value, predicted, weight, strict=True))
    if measure == "rmse":
        return math.sqrt(squared / total)
    mean = sum(w * y for y, w in zip(value, weight, strict=True)) / total
    spread = sum(w * (y - mean) ** 2 for y, w in zip(value, weight, strict=True))
    return 1 - squared / spread if spread else float("nan")


def softmax_loss(scores, label):
    """−log P(label) of one row."""
    top = max(scores)
    return math.log(sum(math.exp(score - top) for score in scores)) + top - scores[label]


# ---- rules of a schema -------------------------------------------------------------------------------------


FUNCTIONS = {
    "min": min,
    "max": max,
    "log": math.log,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "abs": abs,
    "round": round,
    "floor": math.floor,
}


def formula(text, row):
    """Of one row, by Python itself; None is a hole, and so is what is no finite number."""
    if any(row[name] is None for name in names_in(text)):
        return None
    try:
        found = eval(text, {"__builtins__": {}}, FUNCTIONS | row)  # the texts are the tests' own
    except (ZeroDivisionError, OverflowError, ValueError, TypeError):  # TypeError: a root of −1 is complex
        return None
    return None if isinstance(found, complex) or not math.isfinite(found) else float(found)


def names_in(text):
    tree = ast.parse(text, mode="eval")
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(FUNCTIONS)


def compared(left, sign, right, row):
    """True, false, or None where a side is a hole."""
    text = right.startswith('"')
    a, b = (row[left], right.strip('"')) if text else (formula(left, row), formula(right, row))
    if a is None or b is None:
        return None
    equal = a == b if text else abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    if sign in ("==", "!="):
        return equal == (sign == "==")
    return (equal and sign in ("<=", ">=")) or (not equal and (a < b if sign[0] == "<" else a > b))


def implied(when, then, row):
    """Whether a row obeys: each side is a list of (left, sign, right), all of which are meant."""
    applies = all(compared(*part, row) is True for part in when)
    return not (applies and any(compared(*part, row) is False for part in then))


def nested(allowed, part, whole, row):
    return row[part] is None or row[whole] is None or row[part] in allowed[row[whole]]


# ---- kde-knn (KDE-KNN §3.8) --------------------------------------------------------------------------------


def mean_dcr(rows):
    """Eq. 3: σ, the mean over rows of the least distance to another row."""
    total = 0.0
    for j in range(len(rows)):
        total += min(math.dist(rows[j], rows[i]) for i in range(len(rows)) if i != j)
    return total / len(rows)


def knn_class(row, rows, label, neighbours):
    """The class most of the nearest rows have by Manhattan distance; rows and classes in order where they are equal."""
    near = sorted(range(len(rows)), key=lambda i: (sum(abs(a - b) for a, b in zip(row, rows[i], strict=True)), i))
    votes: dict[int, int] = {}
    for i in near[:neighbours]:
        votes[int(label[i])] = votes.get(int(label[i]), 0) + 1
    return min(votes, key=lambda c: (-votes[c], c))


def kde_knn(rows, label, wanted, count, neighbours, sigma, rng, batch, legal):
    """Steps 1 to 7 for one class: indices of drawn rows that pass, and the rows, in order of drawing."""
    own = [row for row, c in zip(rows, label, strict=True) if c == wanted]
    d = len(own[0])
    h, least = len(own) ** (-1 / (d + 4)), sigma * mean_dcr(rows)
    kept, number = [], 0
    while len(kept) < count:
        chosen, noise = rng.integers(0, len(own), batch), rng.standard_normal((batch, d))
        for k in range(batch):
            row = legal([float(own[chosen[k]][j]) + h * noise[k][j] for j in range(d)])
            again = knn_class(row, rows, label, neighbours) == wanted
            if again and min(math.dist(row, other) for other in rows) >= least and len(kept) < count:
                kept.append((number + k, row))
        number += batch
    return kept


# ---- psygentab (PSyGenTAB §III) ------------------------------------------------------------------------------


def gower(first, second, kinds):
    """Mean over columns: |difference|/inner of a number, over inner − 1 of ordered categories, 0 or 1 of others.

    `kinds`: per column ("number" | "order" | "names", inner cells); a place from `inner` on is a hole, in the middle
    and half a range aside.
    """
    total = 0.0
    for a, b, (kind, inner) in zip(first, second, kinds, strict=True):
        if kind == "names":
            total += float(a != b)
            continue
        at = [0.5 if x >= inner else x / (inner if kind == "number" else max(inner - 1, 1)) for x in (a, b)]
        total += abs(at[0] - at[1]) + abs((a >= inner) - (b >= inner)) / 2
    return total / len(kinds)


def psygentab_privacy(made, records, held, kinds):
    """Eq. 3 with λ = ½, ¼, ¼, moved by ½; and its parts D_c, Δ_dist, R_dup."""

    def two(row):
        return sorted(gower(row, record, kinds) for record in records)[:2]

    near, usual = [two(row) for row in made], [two(row)[0] for row in held]
    closest = sum((min(a, 1.0) + (a / b if b > 0 else 0.0)) / 2 for a, b in near) / len(near)
    nearer = sum((h > a) + (h == a) / 2 for a, _ in near for h in usual) / (len(near) * len(usual))
    overfit = max(2 * nearer - 1, 0.0)
    copies = sum(near[i][0] == 0 or any(made[i] == made[k] for k in range(i)) for i in range(len(made))) / len(made)
    return 0.5 * closest - 0.25 * overfit - 0.25 * copies + 0.5, closest, overfit, copies


def psygentab_loop(found, p_min, multiplier, penalty, growth, most):
    """Lines 10–13 of Algorithm 1 over the P of each epoch: (λ, μ) after each."""
    path = []
    for privacy in found:
        if privacy < p_min:
            penalty = min(growth * penalty, most[1])
        multiplier = min(max(0.0, multiplier + (p_min - privacy)), most[0])
        path.append((multiplier, penalty))
    return path


def psygentab_search(found, pairs, p_min):
    """The sampling-time search over (U, P), `pairs` of them a round: (λ, μ) that weighed each round, the last round's
    pair by the Lagrangian, and the pair with the highest P."""
    multiplier, penalty, short_for, path, chosen = 0.0, 1.0, 0, [], None
    for start in range(0, len(found), pairs):
        path.append((multiplier, penalty))
        losses = []
        for utility, privacy in found[start : start + pairs]:
            gap = max(0.0, p_min - privacy)
            losses.append(1 - utility + multiplier * gap + penalty * gap * gap / 2)
        chosen = start + losses.index(min(losses))
        gap = p_min - found[chosen][1]
        if gap > 0:
            multiplier, short_for = multiplier + gap, short_for + 1
            if short_for == 3:
                penalty, short_for = 2 * penalty, 0
        else:
            multiplier, short_for = multiplier / 2, 0
    highest = [privacy for _, privacy in found]
    return path, chosen, highest.index(max(highest))


# ---- DP-GENG: networks and Algorithm 1, in loops


def network_features(net, row):
    """((hidden), (features before centring), (features)) of one row."""
    first = [max(0.0, b + sum(x * w[k] for x, w in zip(row, net.w1, strict=True))) for k, b in enumerate(net.b1)]
    second = [max(0.0, b + sum(x * w[k] for x, w in zip(first, net.w2, strict=True))) for k, b in enumerate(net.b2)]
    return first, second, [(f - m) / s for f, m, s in zip(second, net.centre, net.spread, strict=True)]


def network_logits(net, row):
    features = network_features(net, row)[2]
    return [b + sum(f * w[k] for f, w in zip(features, net.w3, strict=True)) for k, b in enumerate(net.b3)]


def network_probabilities(net, row):
    logits = network_logits(net, row)
    high = [math.exp(v - max(logits)) for v in logits]
    return [v / sum(high) for v in high]


def clip_to(vector, most):
    """CLIP(v, C) of eq. 1."""
    norm = math.sqrt(sum(v * v for v in vector))
    return [v * min(1.0, most / norm) if norm > 0 else v for v in vector]


def matching_loss(net, clip, target, rows):
    """L_F of one class (eq. 2): ‖target − mean of clipped features‖²."""
    held = [clip_to(network_features(net, row)[2], clip) for row in rows]
    means = [sum(column) / len(rows) for column in zip(*held, strict=True)]
    return sum((t - m) ** 2 for t, m in zip(target, means, strict=True))


def alignment_loss(net, row, label, references):
    """One row's term of L_E (eqs 3 and 4): CE + KL(φ_E(x) ‖ softmax of the references' mean logits)."""
    logits = [network_logits(net, reference) for reference in references]
    mean = [sum(column) / len(logits) for column in zip(*logits, strict=True)]
    towards = [math.exp(v) / sum(math.exp(u) for u in mean) for v in mean]
    p = network_probabilities(net, row)
    return -math.log(p[label]) + sum(a * (math.log(a) - math.log(b)) for a, b in zip(p, towards, strict=True))


def slope_of_rows(function, rows):
    """∂/∂x of a function of (rows, columns) lists."""
    width = len(rows[0])

    def flat(values):
        return function([list(values[at : at + width]) for at in range(0, len(values), width)])

    found = slope(flat, [x for row in rows for x in row])
    return [found[at : at + width] for at in range(0, len(found), width)]


def distilled_once(rows, label, net, clip, target, expert, references, rates, box):
    """Lines 9 to 13 of Algorithm 1 for one class; slopes are each row's, so times the number of rows."""

    def moved(rows, change, rate):
        return [
            [min(max(x - rate * len(rows) * g, low), high) for x, g, low, high in zip(row, own, *box, strict=True)]
            for row, own in zip(rows, change, strict=True)
        ]

    rows = moved(rows, slope_of_rows(lambda at: matching_loss(net, clip, target, at), rows), rates[0])
    guided = slope_of_rows(lambda at: sum(alignment_loss(expert, r, label, references) for r in at) / len(at), rows)
    return moved(rows, guided, rates[1])


# ---- clustmix (3A) --------------------------------------------------------------------------------------


def fully_connected_ntk(x, y, layers, bias):
    """Θ(x, y) of a ReLU network of infinite width: arc-cosine recursions, one pair at a time."""
    d = len(x)
    P, Q, S = (sum(a * b for a, b in zip(u, v, strict=True)) / d + bias**2 for u, v in ((x, x), (y, y), (x, y)))
    theta = S
    for _ in range(layers):
        c = math.sqrt(P * Q)
        u = max(-1.0, min(1.0, S / c))
        angle = math.pi - math.acos(u)
        S = c * (u * angle + math.sqrt(1 - u * u)) / math.pi + bias**2
        theta = S + theta * angle / math.pi
        P, Q = P + bias**2, Q + bias**2
    return theta


def kip_loss(X, label, start, rows, target, classes, weight, ridge, alpha, layers, bias):
    """Eq. 5, element by element; K(x, x) from its limit u = 1."""
    one_hot = [[(c == k) - 1 / classes for k in range(classes)] for c in label]
    wanted = [[(c == k) - 1 / classes for k in range(classes)] for c in target]
    d = len(X[0])
    K = np.array([[fully_connected_ntk(a, b, layers, bias) for b in X] for a in X])
    for i, x in enumerate(X):
        P = sum(a * a for a in x) / d + bias**2
        K[i, i] = sum(P + k * bias**2 for k in range(layers + 1))
    solved = np.linalg.solve(K + ridge * np.eye(len(X)), np.array(one_hot))
    loss = 0.0
    for i, t in enumerate(rows):
        for k in range(classes):
            said = sum(fully_connected_ntk(x, t, layers, bias) * solved[j][k] for j, x in enumerate(X))
            loss += weight[i] * (wanted[i][k] - said) ** 2 / 2
    away = sum((a - b) ** 2 for x, s in zip(X, start, strict=True) for a, b in zip(x, s, strict=True))
    length = sum(b * b for s in start for b in s)
    return alpha * away / length + (1 - alpha) * loss


def kip(means, label, rows, target, classes, alpha, steps, rate, layers, ridge, bias):
    """Adam on eq. 5 by finite differences, on z-scored rows."""
    rows, means = np.asarray(rows, float), np.asarray(means, float)
    middle, spread = rows.mean(0), rows.std(0)
    start, T = (means - middle) / spread, (rows - middle) / spread
    P = (start**2).sum(1) / start.shape[1] + bias**2
    ridge *= float(np.mean([sum(p + k * bias**2 for k in range(layers + 1)) for p in P]))

    def loss(X):
        return kip_loss(
            X.tolist(), label, start.tolist(), T.tolist(), target, classes, [1.0] * len(T), ridge, alpha, layers, bias
        )

    X, m, v, h = start.copy(), np.zeros_like(start), np.zeros_like(start), 1e-5
    for step in range(1, steps + 1):
        g = np.zeros_like(X)
        for i, j in itertools.product(*map(range, X.shape)):
            one = np.zeros_like(X)
            one[i, j] = h
            g[i, j] = (loss(X + one) - loss(X - one)) / (2 * h)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        X = X - rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return X * spread + middle


def cheapest_assignment(cost, least):
    """Of all assignments whose clusters have `least` rows or more the one that costs least, tried one by one."""
    n, K = np.shape(cost)
    legal = (of for of in itertools.product(range(K), repeat=n) if min(of.count(k) for k in range(K)) >= least)
    return min(legal, key=lambda of: sum(cost[i][k] for i, k in enumerate(of)))


def eq_7(epsilon, sigma, size, classes, columns):
    """δ of eq. 7, with Φ from erfc."""
    mu = math.sqrt(classes * columns) / (size * sigma)
    phi = [0.5 * math.erfc(-z / math.sqrt(2)) for z in (-epsilon / mu + mu / 2, -epsilon / mu - mu / 2)]
    return phi[0] - math.exp(epsilon) * phi[1]


def sums_by_part(values, part, label, person, most, parts, classes, beta, reach):
    """clustmix with a theorem: of each person's first rows the vectors, shortened to norm 1, added up by block."""
    width = len(values[0])
    total = [[[0.0] * (width + 1) for _ in range(classes)] for _ in range(parts)]
    for who in sorted(set(person)):
        own = [[[0.0] * (width + 1) for _ in range(classes)] for _ in range(parts)]
        for i in [i for i in range(len(values)) if person[i] == who][:most]:
            vector = [beta * x / reach for x in values[i]] + [math.sqrt(1 - beta**2)]
            for k, x in enumerate(vector):
                own[part[i]][label[i]][k] += x
        length = math.sqrt(sum(x * x for block in own for line in block for x in line))
        for p, c, k in itertools.product(range(parts), range(classes), range(width + 1)):
            total[p][c][k] += own[p][c][k] / max(length, 1.0)
    return total


# -- dates ------------------------------------------------------------------------------------------------------------


def birthdays_passed(born: Any, day: Any) -> int:
    """Completed years between two dates, by counting anniversaries; that of a 29th of February is the 1st of March."""
    years = 0
    while (day.year, day.month, day.day) >= (born.year + years + 1, born.month, born.day):
        years += 1
    return years


def soft_utility(shares, rare, value, ordered, correlations, made, likelihood):
    """The five parts of eq. 1 on a batch, `made` (n, columns) cells; T_dyn is left out."""
    n, d, K = len(made), len(shares), len(shares[0])
    q = [[sum(row[j] == k for row in made) / n for k in range(K)] for j in range(d)]
    far = alike = covered = 0.0
    for p, own, odd, line in zip(shares, q, rare, ordered, strict=True):
        gaps = [a - b for a, b in zip(p, own, strict=True)]
        far += max(abs(sum(gaps[: k + 1])) for k in range(K)) if line else sum(map(abs, gaps)) / 2
        a, b = (sum(x * r for x, r in zip(one, odd, strict=True)) for one in (p, own))
        alike += (min(a, b) + 1e-3) / (max(a, b) + 1e-3)
        there = [k for k in range(K) if p[k] > 0]
        covered += sum(min(own[k] / p[k], 1.0) for k in there) / len(there)
    at = [[value[j][row[j]] for j in range(d)] for row in made]
    apart = [[row[j] - sum(other[j] for other in at) / n for j in range(d)] for row in at]
    scale = [math.sqrt(sum(row[j] ** 2 for row in apart) + 1e-6) for j in range(d)]
    gap = 0.0
    for i, j in itertools.permutations(range(d), 2):
        gap += (sum(row[i] * row[j] for row in apart) / (scale[i] * scale[j]) - correlations[i][j]) ** 2
    return (1 - far / d + alike / d + 1 - math.sqrt(gap + 1e-12) / d + covered / d + math.exp(likelihood)) / 5


def soft_privacy(distance, usual, usual_columns, near, copy):
    """Eq. 3 of (n, records, features) column distances, and every P_j: nearest records by a softmax of distances."""
    closest, ratios, columns = [], [], [0.0] * len(usual_columns)
    for row in distance:
        mean = [sum(one) / len(one) for one in row]
        weight = [math.exp((min(mean) - x) / near) for x in mean]
        weight = [w / sum(weight) for w in weight]
        closest.append(sum(w * x for w, x in zip(weight, mean, strict=True)))
        first, second = sorted(mean)[:2]
        ratios.append(first / max(second, 1e-6))
        for j in range(len(columns)):
            columns[j] += sum(w * one[j] for w, one in zip(weight, row, strict=True)) / len(distance)
    d_c = (sum(closest) + sum(ratios)) / (2 * len(closest))
    nearer = sum(1 / (1 + math.exp((x - h) / near)) for x in closest for h in usual) / (len(closest) * len(usual))
    copied = sum(math.exp(-x / copy) for x in closest) / len(closest)
    by_column = [min(c / u, 1.0) if u > 0 else 1.0 for c, u in zip(columns, usual_columns, strict=True)]
    return 0.5 * d_c - 0.25 * max(2 * nearer - 1, 0.0) - 0.25 * copied + 0.5, by_column


# ---- several references ----------------------------------------------------------------------------------------


def central_differences(scores, X, widths):
    """Eq. 7 for any model, a coordinate at a time: (f(x + ε_j e_j) − f(x − ε_j e_j))/2ε_j."""
    out = np.zeros(X.shape)
    for j, width in enumerate(widths):
        up, down = X.copy(), X.copy()
        up[:, j] += width
        down[:, j] -= width
        out[:, j] = (scores(up).astype(float) - scores(down).astype(float)) / (2 * float(width))
    return out


def joint_gradient(parts):
    """1/K Σ_k g_k/ℓ_k(X₀) and the loss, from (first loss, gradient, loss) of each reference."""
    K, rows, columns = len(parts), len(parts[0][1]), len(parts[0][1][0])
    G = [[sum(g[i][j] / first for first, g, _ in parts) / K for j in range(columns)] for i in range(rows)]
    return G, sum(loss / first for first, _, loss in parts) / K


def stable_places(numbers):
    """Where each stands once they are sorted, equal ones in the order they came."""
    order = sorted(range(len(numbers)), key=lambda i: numbers[i])
    place = [0] * len(numbers)
    for where, i in enumerate(order):
        place[i] = where
    return place


def tab_pe_vote(row, label, crowd, sizes, numeric, hole):
    """Where in the crowd of its class a patient's vote falls: numbers over [0, 1], categories one-hot at 1/3."""

    def place(codes):
        found = []
        for j, code in enumerate(codes):
            if not numeric[j]:
                found += [1 / 3 if c == code else 0.0 for c in range(sizes[j])]
            else:
                most = sizes[j] - 1 - hole[j]
                found.append(None if code > most else code / max(most, 1))
        return found

    def apart(a, b):
        total = 0.0
        for x, y in zip(place(a), place(b), strict=True):
            if (x is None) != (y is None):
                total += 2 / 9  # hole against number: two categories that differ
            elif x is not None:
                total += (x - y) ** 2
        return total

    distances = [apart(row, other) for other in crowd[label]]
    before = sum(len(of) for of in crowd[:label])
    return before, distances


def tab_pe_rate(t, rounds, first, last, power):
    return first if t == 0 else first - (first - last) * (t / rounds) ** power
