"""The exchange kernel: rows of a set are exchanged for candidates while students of the set learn better.

It takes its random proposals from outside, so that the answer is a function of its inputs. Used by
methods/private/students.py; NumPy in, NumPy out.
"""

from __future__ import annotations

import numpy as np

from distcondense.arrays import Floats, Index, Matrix
from distcondense.kernels.jit import kernel

FRESH = 100  # exchanges after which all students are solved anew, so that rounding does not add up


@kernel(error_model="numpy", fastmath=True)
def exchange_rows(
    among: Matrix,
    beyond: Matrix,
    labels: Matrix,
    truth: Matrix,
    ends: Index,
    weights: Floats,
    mean: Matrix,
    near: Floats,
    ridge: float,
    chosen: Index,
    places: Index,
    candidates: Index,
) -> int:
    """Exchange chosen[place] for a candidate wherever the students' score rises; the number of exchanges made.

    Student q is kernel ridge regression of the chosen rows: among (Q, c, c) kernels between candidates, beyond
    (Q, r, c) kernels between r other rows and candidates, labels (c, S) of which columns ends[q]:ends[q+1] are its own,
    truth (r, S) centred and of norm 1 in each column. The score is Σ_s weights[s] · the correlation between
    its answers and the truth in column s, less near[q] · m · MMD², the squared distance in q's kernel between
    the set and the population, whose mean embedding of each candidate is mean (Q, c). `chosen` (m,) is written; places,
    candidates: (steps,) proposals.
    """
    Q, m, r, S = len(among), len(chosen), beyond.shape[1], labels.shape[1]
    kernel_of = np.empty((Q, m, m), np.float32)
    inverse = np.empty((Q, m, m), np.float32)
    seen = np.empty((Q, r, m), np.float32)
    solved = np.empty((S, m), np.float32)
    taken = np.zeros(among.shape[1], np.bool_)
    for i in range(m):
        taken[chosen[i]] = True
    change, trial = np.empty((Q, m), np.float32), np.empty((S, m), np.float32)
    second, small, far = np.empty((Q, m), np.float32), np.empty((Q, 4)), np.empty(Q)
    answer, apart = np.empty(r, np.float32), np.empty(Q)
    best, kept, fresh = -np.inf, 0, True
    for t in range(-1, len(places)):
        if fresh:  # solve all students from their rows
            best = 0.0
            for q in range(Q):
                for i in range(m):
                    for k in range(m):
                        kernel_of[q, i, k] = among[q, chosen[i], chosen[k]]
                    kernel_of[q, i, i] += ridge
                    for p in range(r):
                        seen[q, p, i] = beyond[q, p, chosen[i]]
                inner, outer = 0.0, 0.0
                for i in range(m):
                    outer += mean[q, chosen[i]]
                    for k in range(m):
                        inner += among[q, chosen[i], chosen[k]]
                apart[q] = inner / m - 2 * outer
                best -= near[q] * apart[q]
                inverse[q] = np.linalg.inv(kernel_of[q].astype(np.float64)).astype(np.float32)
                for s in range(ends[q], ends[q + 1]):
                    for i in range(m):
                        total = np.float32(0.0)
                        for k in range(m):
                            total += inverse[q, i, k] * labels[chosen[k], s]
                        solved[s, i] = total
                    best += weights[s] * _follows(seen[q], solved[s], truth[:, s], answer)
            fresh = False
        if t < 0:
            continue
        place, candidate = places[t], candidates[t]
        if taken[candidate]:
            continue
        score = 0.0
        for q in range(Q):
            for k in range(m):
                change[q, k] = among[q, candidate, chosen[k]] - kernel_of[q, place, k]
            # K + e·vᵀ + v·eᵀ: the diagonal is met twice
            change[q, place] = (among[q, candidate, candidate] + ridge - kernel_of[q, place, place]) / 2
            moved = 0.0
            for k in range(m):
                moved += change[q, k]
            moved -= change[q, place]  # the others only; a row's kernel with itself is 1 in all but the linear one
            own = among[q, candidate, candidate] - among[q, chosen[place], chosen[place]]
            far[q] = apart[q] + (2 * moved + own) / m - 2 * (mean[q, candidate] - mean[q, chosen[place]])
            score -= near[q] * far[q]
            first = inverse[q, place]
            length = np.float32(0.0)
            for i in range(m):
                total = np.float32(0.0)
                for k in range(m):
                    total += inverse[q, i, k] * change[q, k]
                second[q, i] = total
                length += total * change[q, i]
            a, b, c = 1.0 + second[q, place], float(length), float(first[place])
            determinant = a * a - b * c
            small[q, 0], small[q, 1], small[q, 2], small[q, 3] = a, b, c, determinant
            if abs(determinant) < 1e-9:
                score = -np.inf
                break
            for s in range(ends[q], ends[q + 1]):
                step = labels[candidate, s] - labels[chosen[place], s]
                along, here = np.float32(0.0), solved[s, place] + step * first[place]
                for k in range(m):
                    trial[s, k] = solved[s, k] + step * first[k]
                    along += change[q, k] * trial[s, k]
                x = np.float32((a * along - b * here) / determinant)
                y = np.float32((a * here - c * along) / determinant)
                for k in range(m):
                    trial[s, k] -= x * first[k] + y * second[q, k]
                more = trial[s, place]
                score += weights[s] * _follows_after(
                    seen[q], trial[s], truth[:, s], answer, beyond[q], candidate, place, more
                )
        if not score > best:
            continue
        for q in range(Q):
            a, b, c, determinant = small[q, 0], small[q, 1], small[q, 2], small[q, 3]
            apart[q], first = far[q], inverse[q, place].copy()
            for i in range(m):
                # (K + U V)⁻¹ = M − M U (I + V M U)⁻¹ V M, U = [e, v], V = [v, e]ᵀ
                u = np.float32((first[i] * a - second[q, i] * c) / determinant)
                w = np.float32((second[q, i] * a - first[i] * b) / determinant)
                for k in range(m):
                    inverse[q, i, k] -= u * second[q, k] + w * first[k]
            for k in range(m):
                value = among[q, candidate, chosen[k]]
                kernel_of[q, place, k], kernel_of[q, k, place] = value, value
            kernel_of[q, place, place] = among[q, candidate, candidate] + ridge
            for p in range(r):
                seen[q, p, place] = beyond[q, p, candidate]
        for s in range(S):
            for k in range(m):
                solved[s, k] = trial[s, k]
        taken[chosen[place]], taken[candidate] = False, True
        chosen[place], best, kept = candidate, score, kept + 1
        fresh = kept % FRESH == 0
    return kept


@kernel(error_model="numpy", fastmath=True)
def _follows(seen: Matrix, solved: Matrix, truth: Matrix, answer: Matrix) -> float:
    """The correlation of a student's answers with the truth."""
    r, m = seen.shape
    for p in range(r):
        total = np.float32(0.0)
        for k in range(m):
            total += seen[p, k] * solved[k]
        answer[p] = total
    return _correlation(answer, truth)


@kernel(error_model="numpy", fastmath=True)
def _follows_after(
    seen: Matrix, solved: Matrix, truth: Matrix, answer: Matrix, beyond: Matrix, candidate: int, place: int, more: float
) -> float:
    """The same with one row of the set exchanged."""
    r, m = seen.shape
    for p in range(r):
        total = np.float32(0.0)
        for k in range(m):
            total += seen[p, k] * solved[k]
        answer[p] = total + (beyond[p, candidate] - seen[p, place]) * more
    return _correlation(answer, truth)


@kernel(error_model="numpy", fastmath=True)
def _correlation(answer: Matrix, truth: Matrix) -> float:
    r = len(answer)
    mean = 0.0
    for p in range(r):
        mean += answer[p]
    mean /= r
    square, along = 0.0, 0.0
    for p in range(r):
        apart = answer[p] - mean
        square += apart * apart
        along += apart * truth[p]
    return along / max(np.sqrt(square), 1e-12)
