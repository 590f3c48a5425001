"""Likeness of whole rows: can condensed rows be told from real ones, and do they lie where real ones lie?

Density and coverage (Naeem et al. 2020, k = 5; KDE-KNN §3.7): around each real row a ball that reaches its fifth
nearest real row; how many condensed rows lie in balls, and how many balls hold one. Propensity (pMSE, Snoke et al.
2018): how far a logistic regression's guesses of "condensed or real" are from not knowing, beside what chance alone
gives. Detection: the AUROC of boosted trees that try to tell them apart. Rare values: the share of rows beyond 1.5
interquartile ranges of the real quartiles (PSyGenTAB). All on held-out rows, beside as many random training rows.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from distcondense.arrays import Flags, Floats, Index, Matrix, Numbers
from distcondense.evaluation.fidelity.comparison import HELD, Comparison, centred, compared, why_not
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.ruler import Ruler
from distcondense.evaluation.score import (
    CONDENSED,
    FULL,
    HELD_OUT,
    NORMAL,
    PLAIN,
    RANDOM,
    UNKNOWN,
    Interval,
    Score,
    interval,
)
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.models.learners import BINS, WIDE, WIDE_BINS
from distcondense.outcomes.divergences import fences
from distcondense.outcomes.likeness import FEWEST, REAL, ComparedColumn, ComparedRows, beyond, column_numbers
from distcondense.outcomes.measures import Measured, average, ranking, share

NAME, TITLE = "likeness", "How alike whole rows are"
ROWS = 5_000  # of each kind, at most
WORK = 1e9  # differences of two numbers in a table of distances: wide tables get fewer rows
NEIGHBOURS = 5
BLOCK = 1 << 22  # distances held at a time
FOLDS = 5
ROUNDS = 40  # of the trees that try to tell rows apart
TREES = {"objective": "binary:logistic", "learning_rate": 0.2, "max_depth": 4, "tree_method": "hist", "verbosity": 0}
PER_COLUMN = 10  # rows of each kind that a column of the logistic regression must have
LOOSE = 1e6  # its penalty's inverse: none, but for columns that say the same
TITLES = {
    "density": "Density: condensed rows among real ones (1: as real rows)",
    "coverage": "Coverage: real rows with a condensed one near (1: all)",
    "detection_auroc": "Detection: AUROC of telling them from real rows (0.5: cannot be told)",
    "pmse": "Propensity score, mean squared error (0: cannot be told)",
    "pmse_chance": "Propensity score that chance alone gives",
    "pmse_ratio": "Propensity score over chance (1: cannot be told)",
    "rare_share": "Share of rare values, beyond 1.5 interquartile ranges",
    "rare_difference": "Difference of the shares of rare values, mean over columns (0: same)",
}
WHOLE_ROWS = ("density", "coverage", "detection_auroc", "pmse", "pmse_chance", "pmse_ratio")


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """Whole rows, each way of looking beside the yardstick."""
    if why := why_not(inputs):
        return Section(NAME, TITLE, notes=(f"Not measured: {why}.",), titles=TITLES)
    rows = alike_rows(inputs, seed)
    notes = [
        f"{len(rows.made):,} condensed rows, chosen at random where there are more, and as many held-out and training "
        f"rows; at most {ROWS:,}, fewer of wide tables. Encoded as models see them, each column in standard deviations "
        "of training rows; without the outcome and without weights.",
        f"Density and coverage: {NEIGHBOURS} neighbours; a row on the edge of a ball lies inside. Rows of the real "
        f"distribution reach a density of 1 and a coverage of about {1 - 0.5**NEIGHBOURS:.2f}.",
    ]
    scores: list[Score] = []
    for name, labels, others in ((CONDENSED, PLAIN, rows.made), (RANDOM, "", rows.drawn)):
        log(f"telling {'condensed' if name == CONDENSED else 'random real'} rows from held-out ones")
        with threadpool_limits(limits=threads):
            measures, why = row_measures(rows.held, others, seed=seed, threads=threads)
        about = {"rows": len(others), "labels": labels}
        for measure in WHOLE_ROWS:
            reach, how = measures.get(measure, (UNKNOWN, ""))
            about |= {"note": "" if measure in measures else why, "interval": how}
            n, covered = len(rows.held), name == CONDENSED
            scores.append(Score.from_interval(measure, name, HELD_OUT, reach, n, covered, **about))
    comparison = compared(inputs, seed)
    scores += rare_scores(inputs, comparison, seed)
    notes += [
        f"Propensity: a logistic regression on at most a {PER_COLUMN}th as many columns as rows of each kind, chosen "
        "at random. Chance: what two independent samples of one population give, by its number of parameters.",
        f"Detection: {FOLDS}-fold cross-validation of {ROUNDS} boosted trees.",
        f"Rare values: on {comparison.notes[0][0].lower()}{comparison.notes[0][1:]} A share of fewer than {FEWEST} "
        "patients is not shown.",
    ]
    settings = {"rows of each kind, at most": ROWS, "neighbours": NEIGHBOURS, "folds": FOLDS, "rounds": ROUNDS}
    return Section(NAME, TITLE, tuple(scores), notes=tuple(notes), titles=TITLES, settings=settings)


# -- whole rows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class RowSamples:
    """As many rows of each kind, each column in standard deviations of training rows."""

    held: Matrix
    made: Matrix
    drawn: Matrix


def alike_rows(inputs: EvaluationInput, seed: int) -> RowSamples:
    width = max(inputs.rows.shape[1], 1)
    size = int(min(ROWS, len(inputs.rows), len(inputs.split.test), max((WORK / width) ** 0.5, FEWEST)))
    chosen = np.sort(np.random.default_rng([seed, 0xA11E]).permutation(len(inputs.rows))[:size])
    held, drawn = (
        inputs.codec.encode(inputs.sample(part, size, seed).features)
        for part in (inputs.split.test, inputs.split.train)
    )
    ruler = Ruler.of(drawn)
    return RowSamples(*(ruler(rows) for rows in (held, inputs.rows[chosen], drawn)))


def row_measures(
    held: Matrix, others: Matrix, *, seed: int, threads: int
) -> tuple[dict[str, tuple[Interval, str]], str]:
    """(n, d) held-out and (m, d) other rows → by measure its interval and how that was made; and why some are lacking.

    Measures that could not be had are not in it.
    """
    if min(len(held), len(others)) < max(FEWEST, NEIGHBOURS + 1, 2 * FOLDS):
        return {}, f"fewer than {FEWEST} rows of a kind"
    inside = in_balls(held, others, NEIGHBOURS)
    thickness = (len(held) / (NEIGHBOURS * len(others)) * inside).astype(np.float64)
    covered = share(inside > 0, np.ones(len(held), bool))
    label, guessed = guesses(held, others, seed=seed, threads=threads)
    measures = {
        "density": (interval(average(thickness)), "1.96 standard errors over held-out rows"),
        "coverage": (interval(covered), "Wilson, over held-out rows"),
        "detection_auroc": (interval(ranking(label, guessed)), "DeLong"),
    }
    error, chance, parameters = propensity(held, others, seed)
    if not parameters:
        return measures, "no column varies"
    low, high = _ratio_between(error / chance, parameters)
    how = "noncentral χ², normal approximation"
    measures["pmse"] = (Interval(error, low * chance, high * chance), how)
    measures["pmse_chance"] = (Interval(chance, chance, chance), "exact for large tables")
    measures["pmse_ratio"] = (Interval(error / chance, low, high), how)
    return measures, ""


def in_balls(real: Numbers, others: Numbers, k: int) -> Index:
    """(n,) how many of the other rows lie in each real row's ball, which reaches its k-th nearest real row."""
    from scipy.spatial.distance import cdist

    inside = np.empty(len(real), np.int64)
    step = max(1, BLOCK // max(len(real), len(others)))
    for at in range(0, len(real), step):
        here = real[at : at + step]
        reach = np.partition(cdist(here, real), k, axis=1)[:, k]  # the row itself is the nearest
        inside[at : at + step] = (cdist(here, others) <= reach[:, None]).sum(axis=1)
    return inside


def guesses(real: Numbers, others: Numbers, *, seed: int, threads: int) -> tuple[NDArray[np.int8], Floats]:
    """(n + m,) who is not real, and what trees that have not seen the row say of it."""
    import xgboost as xgb
    from sklearn.model_selection import StratifiedKFold

    rows = np.concatenate([real, others]).astype(np.float32)
    label = np.concatenate([np.zeros(len(real), np.int8), np.ones(len(others), np.int8)])
    guessed = np.empty(len(rows))
    bins = WIDE_BINS if rows.shape[1] > WIDE else BINS
    settings = {**TREES, "seed": seed % 2**31, "nthread": threads, "max_bin": bins}
    for known, asked in StratifiedKFold(FOLDS, shuffle=True, random_state=seed % 2**31).split(rows, label):
        data = xgb.QuantileDMatrix(rows[known], label[known], nthread=threads, max_bin=bins)
        booster = xgb.train(settings, data, ROUNDS)
        guessed[asked] = booster.inplace_predict(rows[asked], validate_features=False)
    return label, guessed


def propensity(real: Numbers, others: Numbers, seed: int) -> tuple[float, float, int]:
    """pMSE of a logistic regression, its expectation by chance, and its parameters besides the intercept.

    Two independent samples of one population give c(1 − c)·χ²/n, c the others' share. (Snoke et al. hold rows against
    those that they were made from, and have (1 − c) times that.)
    """
    from sklearn.linear_model import LogisticRegression

    rows = np.concatenate([real, others]).astype(np.float64)
    varies = np.flatnonzero(rows.std(axis=0) > 1e-9)
    most = max(1, min(len(real), len(others)) // PER_COLUMN)
    chosen = np.sort(np.random.default_rng([seed, 0x9502]).permutation(varies)[:most])
    rows = rows[:, chosen]
    if not rows.shape[1]:
        return float("nan"), float("nan"), 0
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    parameters = int(np.linalg.matrix_rank(rows.T @ rows / len(rows), tol=1e-8, hermitian=True))
    label = np.concatenate([np.zeros(len(real), np.int8), np.ones(len(others), np.int8)])
    n, c = len(rows), len(others) / len(rows)
    with warnings.catch_warnings():  # rows that a line separates have no best line, and need none
        warnings.simplefilter("ignore")
        model = LogisticRegression(C=LOOSE, max_iter=300, tol=1e-6).fit(rows, label)
    found = float(((model.predict_proba(rows)[:, 1] - c) ** 2).mean())
    return found, parameters * c * (1 - c) / n, parameters


def _ratio_between(ratio: float, parameters: int) -> tuple[float, float]:
    """95% of ratio·parameters, a χ² with that many degrees of freedom moved by what is not chance."""
    beyond = max(ratio - 1, 0.0) * parameters
    half = NORMAL * (2 * parameters + 4 * beyond) ** 0.5 / parameters
    return max(ratio - half, 0.0), ratio + half


# -- rare values ------------------------------------------------------------------------------------------------------


def rare_gaps(comparison: Comparison, column: ComparedColumn, side: ComparedRows) -> Floats:
    """|real − other share of rare values| of the held-out rows and their resamples; fences are those of the former."""
    assert column.numbers is not None
    limits = fences(column.numbers[REAL])
    real = comparison.counted(beyond(column.numbers[REAL], limits).astype(np.int64), 2)
    other = weighted_share(beyond(column.numbers[side.which], limits), side.weight).value
    return np.asarray(np.abs(real[1] / real.sum(axis=0) - other), np.float64)


def weighted_share(flags: Flags, weight: Floats) -> Measured:
    value = float(weight @ flags / weight.sum())
    return Measured(value, weight * (flags - value) / weight.sum(), len(flags))


def rare_scores(inputs: EvaluationInput, comparison: Comparison, seed: int) -> list[Score]:
    """Per number its share of rare values, in real training rows too; and the mean difference from held-out rows."""
    compared_columns = [column for column in comparison.columns if column.numbers is not None]
    train = inputs.sample(inputs.split.train, HELD, seed)
    scores = []
    for side in comparison.sides:
        gaps = [rare_gaps(comparison, column, side) for column in compared_columns]
        note = "" if gaps else "no column is a number"
        mean = np.mean(gaps, axis=0) if gaps else np.array([np.nan])
        scores.append(comparison.score("rare_difference", side, centred(mean), note=note))
    for column in compared_columns:
        assert column.numbers is not None
        limits = fences(column.numbers[REAL])
        for side in comparison.sides:
            flags = beyond(column.numbers[side.which], limits)
            reach, note = _unless_few(weighted_share(flags, side.weight), flags, private=side.name == RANDOM)
            scores.append(comparison.score("rare_share", side, reach, group=column.name, note=note, how="Wilson"))
        if column.name in train.features:
            flags = beyond(column_numbers(train.features[column.name], inputs.schema[column.name]), limits)
            reach, note = _unless_few(share(flags, np.ones(len(flags), bool)), flags, private=True)
            about = {"rows": len(flags), "note": note, "group": column.name, "interval": "Wilson"}
            scores.append(Score.from_interval("rare_share", FULL, HELD_OUT, reach, comparison.rows, False, **about))
    return scores


def _unless_few(measured: Measured, flags: Flags, *, private: bool) -> tuple[Interval, str]:
    """Its interval; of fewer than FEWEST patients none, and a note that says so."""
    few = private and flags.sum() < FEWEST
    return (UNKNOWN, f"<{FEWEST} rows") if few else (interval(measured), "")
