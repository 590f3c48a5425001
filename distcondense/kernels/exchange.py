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
    alike: Matrix,
    along: Matrix,
    labels: Matrix,
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

    Student q is kernel ridge regression of the chosen rows: among (Q, c, c) kernels between candidates, labels (c, S)
    of which columns ends[q]:ends[q+1] are its own. Its answers about r other rows are B a, with B (r, c) its kernels
    between those and candidates, centred over the r. They come as what a correlation needs: alike (Q, c, c) = Bᵀ B
    and along (S, c) = truthᵀ B, the truth being centred and of norm 1, so that a proposal costs m² and not r·m.
    The score is Σ_s weights[s] · the correlation between its answers and the truth in column s, less near[q] · m ·
    MMD², the squared distance in q's kernel between the set and the population, whose mean embedding of each candidate
    is mean (Q, c). `chosen` (m,) is written; places, candidates: (steps,) proposals.
    """
    Q, m, S = len(among), len(chosen), len(along)
    kernel_of = np.empty((Q, m, m), np.float32)
    inverse = np.empty((Q, m, m), np.float32)
    squares = np.empty((Q, m, m), np.float32)
    solved = np.empty((S, m), np.float32)
    taken = np.zeros(among.shape[1], np.bool_)
    for i in range(m):
        taken[chosen[i]] = True
    change, trial = np.empty((Q, m), np.float32), np.empty((S, m), np.float32)
    second, small, far = np.empty((Q, m), np.float32), np.empty((Q, 4)), np.empty(Q)
    apart = np.empty(Q)
    best, kept, fresh = -np.inf, 0, True
    for t in range(-1, len(places)):
        if fresh:  # solve all students from their rows
            best = 0.0
            for q in range(Q):
                inner, outer = 0.0, 0.0
                for i in range(m):
                    for k in range(m):
                        kernel_of[q, i, k] = among[q, chosen[i], chosen[k]]
                        squares[q, i, k] = alike[q, chosen[i], chosen[k]]
                        inner += kernel_of[q, i, k]
                    kernel_of[q, i, i] += ridge
                    outer += mean[q, chosen[i]]
                apart[q] = inner / m - 2 * outer
                best -= near[q] * apart[q]
                inverse[q] = np.linalg.inv(kernel_of[q].astype(np.float64)).astype(np.float32)
                for s in range(ends[q], ends[q + 1]):
                    for i in range(m):
                        total = np.float32(0.0)
                        for k in range(m):
                            total += inverse[q, i, k] * labels[chosen[k], s]
                        solved[s, i] = total
                    best += weights[s] * _follows(squares[q], solved[s], along[s], alike[q], chosen, 0, chosen[0])
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
                ahead, here = np.float32(0.0), solved[s, place] + step * first[place]
                for k in range(m):
                    trial[s, k] = solved[s, k] + step * first[k]
                    ahead += change[q, k] * trial[s, k]
                x = np.float32((a * ahead - b * here) / determinant)
                y = np.float32((a * here - c * ahead) / determinant)
                for k in range(m):
                    trial[s, k] -= x * first[k] + y * second[q, k]
                score += weights[s] * _follows(squares[q], trial[s], along[s], alike[q], chosen, place, candidate)
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
                value, square = among[q, candidate, chosen[k]], alike[q, candidate, chosen[k]]
                kernel_of[q, place, k], kernel_of[q, k, place] = value, value
                squares[q, place, k], squares[q, k, place] = square, square
            kernel_of[q, place, place] = among[q, candidate, candidate] + ridge
            squares[q, place, place] = alike[q, candidate, candidate]
        for s in range(S):
            for k in range(m):
                solved[s, k] = trial[s, k]
        taken[chosen[place]], taken[candidate] = False, True
        chosen[place], best, kept = candidate, score, kept + 1
        fresh = kept % FRESH == 0
    return kept


@kernel(error_model="numpy", fastmath=True)
def _follows(
    squares: Matrix, solved: Matrix, along: Matrix, alike: Matrix, chosen: Index, place: int, candidate: int
) -> float:
    """The correlation of a student's answers with the truth, where the row at `place` is the candidate.

    squares (m, m) is `alike` at the chosen rows, the row at `place` being the one before.
    """
    m, own = len(solved), solved[place]
    square, cross, told = 0.0, np.float32(0.0), np.float32(0.0)
    for i in range(m):
        if i != place:
            before = np.float32(0.0)
            for k in range(i):
                before += squares[i, k] * solved[k]
            if place < i:
                before -= squares[i, place] * own
            square += solved[i] * (2.0 * before + squares[i, i] * solved[i])
    for k in range(m):
        cross += alike[candidate, chosen[k]] * solved[k]
        told += along[chosen[k]] * solved[k]
    cross -= alike[candidate, chosen[place]] * own
    told += (along[candidate] - along[chosen[place]]) * own
    square += own * (2.0 * cross + alike[candidate, candidate] * own)
    return told / np.sqrt(max(square, 1e-24))
