"""Utility U of PSyGenTAB, eq. 1: one formula, for what a method steers by and for what `evaluate` says of its rows.

The paper names what goes into each part and leaves the rest open; what was chosen here stands in `CHOICES`, a line a
part. Weights are equal; a part that does not apply gives its weight to the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from distcondense.arrays import Floats
from distcondense.outcomes.divergences import alike, category_coverage, fences, shares, support_coverage
from distcondense.outcomes.likeness import (
    REAL,
    ComparedColumn,
    ComparedRows,
    ComparedTables,
    beyond,
    column_scores,
    defined_mean,
    joint_tables,
)
from distcondense.outcomes.measures import Measured

EFFICACY = ("auroc", "macro_auroc", "balanced_accuracy", "f1", "macro_f1", "c_index", "r2")
CHOICES = (
    "U: six parts of equal weight (the paper states none).",
    "Marginal: of a number the mean of Kolmogorov–Smirnov, 1 − exp(−Kullback–Leibler), Jensen–Shannon divergence and "
    "the range not spanned; of categories total variation.",
    "Rare: of a number min/max of the real and condensed share beyond 1.5 interquartile ranges; of categories the same "
    "of the rarest real one.",
    "Joint: mean of 1 − ‖difference of correlations‖/d over numbers, and of contingency and mutual-information "
    "similarity over pairs with categories.",
    "Coverage: category coverage; of a number the mean over its cells of min(1, condensed/real share).",
    "Efficacy: the run's student trained on condensed and tested on held-out rows, and the other way round: mean of "
    "AUROC, balanced accuracy and F1, or of what the outcome has instead (C-index, R²). For the yardstick the model of "
    "real rows is tested on held-out rows.",
)
Part = tuple[Floats, str]  # (1 + resamples,) its values, and why it has none


def utility(
    tables: ComparedTables, gaps: Sequence[Floats], efficacy: Sequence[Part], seed: int
) -> list[dict[str, Part]]:
    """For every side U and its six parts; `efficacy` (sides,) is the last of them, `gaps` those of correlations."""
    columns, joint = tables.columns, joint_tables(tables, seed, mixed=True)
    each = [column_scores(tables, column) for column in columns]
    found = []
    for k, side in enumerate(tables.sides):
        parts: dict[str, Part] = {
            "f_marg": _known([1 - _apart(scores[k]) for scores in each], "no columns"),
            "f_rare": _known([_rare(tables, column, side) for column in columns], "no columns"),
            "f_joint": _joined(tables, gaps[k], joint[k]),
            "c_div": _known([_diverse(tables, column, side) for column in columns], "no columns"),
            "t_dyn": nothing("rows are not series in time: nothing to compare"),
            "e_pred": efficacy[k],
        }
        found.append({"utility": composed(parts), **parts})
    return found


def both_ways(there: Mapping[str, Measured], back: Mapping[str, Measured]) -> list[str]:
    """The measures within [0, 1] that both directions have: E_pred is the mean over them and over both."""
    return [name for name in EFFICACY if all(name in one and np.isfinite(one[name].value) for one in (there, back))]


def nothing(note: str) -> Part:
    """A part that is not defined, and why."""
    return np.array([np.nan]), note


def composed(parts: Mapping[str, Part]) -> Part:
    """Equal weights over the parts that are defined; and which are not."""
    there = [values for values, _ in parts.values() if np.isfinite(values[0])]
    without = [name for name, (values, _) in parts.items() if not np.isfinite(values[0])]
    if not there:
        return nothing("no part is defined")
    return np.asarray(sum(there) / len(there), np.float64), f"without {', '.join(without)}" if without else ""


def alignment(comparison: ComparedTables, gaps: Floats) -> Floats | None:
    """Eq. 11 with d columns: 1 − ‖Corr(R) − Corr(S)‖_F/d, the norm from the pairs looked at; None without any."""
    there = gaps[np.isfinite(gaps[:, 0])]
    if not len(there):
        return None
    d = sum(column.line is not None for column in comparison.columns)
    return np.asarray(np.clip(1 - np.sqrt(defined_mean(there**2) * (d - 1) / d), 0.0, 1.0), np.float64)


def _known(values: Sequence[Floats], note: str) -> Part:
    return (np.asarray(sum(values) / len(values), np.float64), "") if len(values) else nothing(note)


def _apart(found: Mapping[str, Floats]) -> Floats:
    """δ of eq. 2: the mean of what a number's measures say, total variation of categories."""
    if "ks" not in found or not np.isfinite(found["ks"][0]):
        return found["total_variation"]
    parts = [found["ks"], 1 - np.exp(-found["kullback_leibler"]), found["jensen_shannon"] ** 2]
    if np.isfinite(found["range_coverage"][0]):
        parts.append(1 - found["range_coverage"])
    return np.asarray(sum(parts) / len(parts), np.float64)


def _rare(comparison: ComparedTables, column: ComparedColumn, side: ComparedRows) -> Floats:
    """How alike the shares of rare values are: beyond the fences, or in the rarest group that real rows have."""
    if column.numbers is not None:
        limits = fences(column.numbers[REAL])
        real = shares(comparison.counted(beyond(column.numbers[REAL], limits).astype(np.int64), 2))[1]
        return np.asarray(alike(real, side.weight @ beyond(column.numbers[side.which], limits) / side.weight.sum()))
    p = shares(comparison.counted(column.codes[REAL], column.size))
    rarest = int(np.argmin(np.where(p[:, 0] > 0, p[:, 0], np.inf)))
    return np.asarray(alike(p[rarest], shares(column.counts(side.which, side.weight))[rarest]), np.float64)


def _joined(comparison: ComparedTables, gaps: Floats, joint: tuple[Floats, Floats]) -> Part:
    parts = [] if (lines := alignment(comparison, gaps)) is None else [lines]
    parts += [found.mean(axis=0) for found in joint if len(found)]
    return _known(parts, "there is only one column")


def _diverse(comparison: ComparedTables, column: ComparedColumn, side: ComparedRows) -> Floats:
    real, other = (comparison.counted(column.codes[REAL], column.size), column.counts(side.which, side.weight)[:, None])
    if column.numbers is not None:
        return np.asarray(support_coverage(shares(real), shares(other)), np.float64)
    return np.asarray(category_coverage(real, other), np.float64)
