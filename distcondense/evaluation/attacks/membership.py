"""Thakur et al.'s membership attack (§4.5): from distances to the nearest condensed rows, was this person in the table?

Of each target the distances to its k = 5 nearest condensed rows by three metrics (Euclidean, Manhattan, cosine), and of
them the mean, least, largest, standard deviation and range: 15 features. A gradient boosting classifier (100 trees,
depth 3, learning rate 0.1) learns on four fifths of members and outsiders and is judged on the last, five times. The
five fifths are disjoint, so that each target is judged once and an interval can be given; the table beside the scores
has the means of the five repeats as the paper reports them. The paper's advantage is the largest on the very targets
that it is measured on: above 0 by chance alone. The scores choose the threshold on other targets.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distcondense.arrays import Flags, Floats, Matrix
from distcondense.evaluation.attacks.base import FOLDS, attack, attacked, cross_validated
from distcondense.evaluation.attacks.targets import condensed_rows, draw_targets
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.kernels.neighbours import nearest, nearest_manhattan
from distcondense.runs.figures import Table

NAME, TITLE = "membership", "Membership attack by distances (Thakur et al. 2026)"
NEIGHBOURS = 5
STATISTICS = ("mean", "least", "largest", "standard deviation", "range")
TREES = 100  # of the gradient boosting


@attack(NAME, TITLE)
def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """The attack on a condensed table."""
    targets = draw_targets(inputs, seed=seed, threads=threads)
    log(f"membership attack on {len(targets):,} targets")
    features = distance_features(targets.ruled, targets.ruler(condensed_rows(inputs, seed)), threads=threads)
    score, each = cross_validated(features, targets, _boosting(seed), seed=seed)
    settings = {"neighbours": NEIGHBOURS, "repeats": FOLDS, "trees": TREES, "depth": 3, "learning_rate": 0.1}
    attacks = {"gradient boosting": score}
    return attacked(
        NAME,
        TITLE,
        inputs,
        targets,
        attacks,
        seed=seed,
        overlapping=attacks,
        tables=(_as_published(each),),
        settings=settings,
    )


def distance_features(rows: Matrix, condensed: Matrix, *, threads: int, k: int = NEIGHBOURS) -> Floats:
    """(n, 15): STATISTICS of the distances to the k nearest condensed rows, by each of three metrics its own k."""
    features = []
    for distances in (
        nearest(rows, condensed, k, threads)[0],
        nearest_manhattan(rows, condensed, k, threads)[0],
        cosine(rows, condensed, k, threads),
    ):
        low, high = distances.min(1), distances.max(1)
        features += [distances.mean(1), low, high, distances.std(1), high - low]
    return np.stack(features, axis=1)


def cosine(rows: Matrix, condensed: Matrix, k: int, threads: int) -> Floats:
    """(n, k) the least 1 − cos: half the squared distance between directions. A row of zeros is at 1 from all."""
    directions = []
    for table in (rows, condensed):
        norm = np.linalg.norm(table.astype(np.float64), axis=1, keepdims=True)
        directions.append((table / np.where(norm > 0, norm, 1.0)).astype(np.float32))
    distances = nearest(directions[0], directions[1], k, threads)[0] ** 2 / 2
    return np.where(np.abs(rows).max(1, keepdims=True) > 0, distances, 1.0)


def _boosting(seed: int) -> Callable[[Floats, Flags], Callable[[Floats], Floats]]:
    from sklearn.ensemble import GradientBoostingClassifier

    def fit(features: Floats, member: Flags) -> Callable[[Floats], Floats]:
        model = GradientBoostingClassifier(
            n_estimators=TREES, max_depth=3, learning_rate=0.1, random_state=seed % 2**32
        ).fit(features, member)
        return lambda asked: model.predict_proba(asked)[:, 1]

    return fit


def _as_published(each: list[tuple[Flags, Floats]]) -> Table:
    """Means over the repeats, as Thakur et al. 2026 gives them: no threshold is set aside, no interval."""
    from sklearn.metrics import roc_auc_score, roc_curve

    repeats = []
    for member, score in each:
        false, true, _ = roc_curve(member, score)
        repeats.append((roc_auc_score(member, score), np.max(true - false), float(np.interp(0.1, false, true))))
    mean, spread = np.mean(repeats, axis=0), np.std(repeats, axis=0)
    names = ("AUROC", "Advantage, largest over thresholds", "True positives at 10% false ones")
    return Table(
        "as_published",
        "As Thakur et al. 2026 reports it",
        ("measure", "mean of five repeats", "standard deviation"),
        tuple((name, round(float(m), 4), round(float(s), 4)) for name, m, s in zip(names, mean, spread, strict=True)),
        "The largest advantage over thresholds is above 0 by chance alone, the more so the fewer targets there are.",
    )
