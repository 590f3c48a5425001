"""A panel of students in closed form: which whole rows teach what the private model knows.

A kernel ridge student of a set of rows is solved exactly, and exchanging one row of the set for another changes its
answers by a rank-two update (kernels/exchange.py). Three students stand for the kinds of models that recipients train:
one that sees rows as numbers, with a Gaussian kernel (kernel machines, networks), one that is linear in them, and one
that sees what each column contributes to the score, with a Laplace kernel (trees). They learn the plain labels, the
last one the soft ones too, and are scored by how closely they follow the private model over rows of the population.
Exchanges that raise the mean of these correlations are kept; where several references are named, only the students
that stand for them count. Rows stay whole, and a row is exchanged only for one of its own stratum, so that classes,
event shares and times stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distcondense.arrays import Floats, Index, Matrix
from distcondense.kernels.exchange import exchange_rows

Rng = np.random.Generator

RIDGE = 0.5
RARE = 0.07  # smallest standard deviation a feature is divided by: a rare category is no landmark
SMOOTH, LINEAR, PLAIN, SOFT = 1.3, 1.5, 1.3, 1.5  # how much each student's agreement counts
SEES = {  # learners → which of the three students stands for each
    "svm": 0,
    "logistic": 1,
    "ridge": 1,
    "cox": 1,
    "xgb": 2,
    "forest": 2,
    "aft": 2,
}
NEAR = (0.0, 0.0, 0.6)  # and how much the distance of the set to the population, in each student's eyes


@dataclass(frozen=True, eq=False)
class StudentPanel:
    """What the students see of candidates, what they are taught, and what they should say."""

    among: Matrix  # (Q, c, c) kernels between candidates
    beyond: Matrix  # (Q, r, c) kernels between rows of the population and candidates
    labels: Matrix  # (c, S) of all students, one after the other
    truth: Matrix  # (r, S) centred and of norm 1 in each column
    ends: Index  # (Q + 1,) which columns are whose
    weights: Floats  # (S,)
    mean: Matrix  # (Q, c) mean kernel of each candidate with all

    @classmethod
    def from_candidates(
        cls,
        rows: Matrix,
        parts: Floats,
        hard: Floats,
        soft: Floats | None,
        people: Matrix,
        people_parts: Floats,
        truth: Floats,
        named: Sequence[str] = (),
    ) -> StudentPanel:
        """`rows` (c, f), `parts` (c, p): candidates as numbers and as contributions, `hard`, `soft` (c, S): labels;
        `people`, `people_parts`, `truth` (r, S): rows of the population, and what is to be said of them;
        `named`: learners whose students alone count, where it is not all."""
        spread = rows.std(0)
        used = spread > 1e-9
        centre, scale = rows.mean(0)[used], np.maximum(spread, RARE)[used]
        here, there = (np.asarray((part[:, used] - centre) / scale, np.float64) for part in (rows, people))
        width = max(int(used.sum()), 1)
        true, plain = truth - truth.mean(0), _unit(hard)
        true = true / np.maximum(np.sqrt((true * true).sum(0)), 1e-12)
        both, weighed = (plain, (PLAIN,)) if soft is None else (np.hstack([plain, _unit(soft)]), (PLAIN, SOFT))
        students = [
            (_gaussian(here, here, width), _gaussian(there, here, width), plain, (SMOOTH,)),
            (here @ here.T / width, there @ here.T / width, plain, (LINEAR,)),
            (_laplace(parts, parts), _laplace(people_parts, parts), both, weighed),
        ]
        among, beyond = (np.stack([one[k] for one in students], dtype=np.float32, casting="same_kind") for k in (0, 1))
        heard = {SEES[name] for name in named if name in SEES} or {0, 1, 2}
        weights = [weight * (k in heard) for k, (*_, own) in enumerate(students) for weight in own]
        scores = true.shape[1]
        return cls(
            among,
            beyond,
            np.hstack([one[2] for one in students]).astype(np.float32),
            np.asfortranarray(np.tile(true, (1, len(weights))).astype(np.float32)),
            np.cumsum([0, *(one[2].shape[1] for one in students)]).astype(np.int64),
            np.repeat(weights, scores) / scores,
            np.stack([one[0].mean(axis=1) for one in students]).astype(np.float32),
        )

    def improved(self, start: Index, stratum: Index, steps: int, rng: Rng) -> Index:
        """(m,) candidates, after exchanges within strata that raise what the students score together."""
        chosen = start.astype(np.int64)
        places = rng.integers(len(chosen), size=steps)
        wanted = stratum[chosen][places]
        order = np.argsort(stratum, kind="stable")
        first = np.searchsorted(stratum[order], wanted, side="left")
        last = np.searchsorted(stratum[order], wanted, side="right")
        candidates = order[first + (rng.random(steps) * (last - first)).astype(np.int64)]
        there, at = np.unique(np.concatenate([chosen, candidates]), return_inverse=True)  # the others are never asked
        inside = at[: len(chosen)].astype(np.int64)
        exchange_rows(
            np.ascontiguousarray(self.among[:, there[:, None], there]),
            *told(self.beyond[:, :, there], self.truth, self.ends),
            np.ascontiguousarray(self.labels[there]),
            self.ends,
            self.weights,
            np.ascontiguousarray(self.mean[:, there]),
            np.array(NEAR),
            RIDGE,
            inside,
            places.astype(np.int64),
            at[len(chosen) :].astype(np.int64),
        )
        return there[inside]


def told(beyond: Matrix, truth: Matrix, ends: Index) -> tuple[Matrix, Matrix]:
    """What the kernel needs of students' kernels with the population: (Q, c, c) BᵀB and (S, c) truthᵀB, B centred."""
    centred = beyond - beyond.mean(axis=1, keepdims=True)
    alike = np.stack([one.T @ one for one in centred])
    along = [truth[:, first:last].T @ one for one, first, last in zip(centred, ends[:-1], ends[1:], strict=True)]
    return alike, np.ascontiguousarray(np.concatenate(along), np.float32)


def _unit(labels: Floats) -> Floats:
    """Labels centred and scaled, column by column, so that a constant is no lesson."""
    apart = labels - labels.mean(0)
    return np.asarray(apart / np.maximum(apart.std(0), 1e-12), np.float64)


def _gaussian(first: Floats, second: Floats, width: int) -> Floats:
    apart = (first * first).sum(1)[:, None] + (second * second).sum(1)[None] - 2 * first @ second.T
    return np.asarray(np.exp(-np.maximum(apart, 0.0) / width), np.float64)


def _laplace(first: Floats, second: Floats) -> Floats:
    from scipy.spatial.distance import cdist

    return np.asarray(np.exp(-cdist(first, second, "cityblock")), np.float64)
