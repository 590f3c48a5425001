"""Copy check: are condensed rows nearer to training rows than they would be to any rows? Not a privacy measure.

A row far from every patient may still tell about one, and a common row equals a patient's by coincidence: so every
number stands beside the same number for held-out rows, as many of them as training rows, which cannot have been copied.

    exact matches   condensed rows that equal a real row in every released column
    DCR             distance to the closest record; mean, median and 5% (KDE-KNN, PSyGenTAB)
    NNDR            that distance over that to the second closest (PSyGenTAB): low where one patient is singled out
    σ rule          KDE-KNN's filter (Step 6, eq. 3–4): a row is dropped whose DCR is below σ, the mean distance of a
                    row to its nearest other real row

Distances are Euclidean between standardised numbers and categories (ruler.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Flags, Floats, Index, Matrix
from distcondense.data.outcome import Outcome
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.resampling import choose
from distcondense.evaluation.ruler import Ruler
from distcondense.evaluation.score import CONDENSED, UNKNOWN, Interval, Score, interval
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.kernels.neighbours import nearest
from distcondense.outcomes.measures import share
from distcondense.runs.figures import LINES, Figure, Series, Table

NAME, TITLE = "copies", "Copy check (not a privacy measure)"
MOST = 200_000  # real rows of either part that distances are measured to
MOST_CONDENSED = 20_000
MOST_SIGMA = 5_000  # real rows whose nearest other real row is looked for
MOST_RULER = 40_000  # real rows by which columns are scaled
RESAMPLES = 400
BLOCK = 100_000  # rows that are encoded at once
FEW = 10  # counts below are not shown
TRAIN, HELD = "training rows", "held-out rows"
EVERY = "all training rows"
EXACT, EXACT_OUTCOME, NEARER, DROPPED = "exact_matches", "exact_matches_outcome", "nearer_to_training", "sigma_dropped"
STATISTICS: dict[str, Callable[[Floats], Floats]] = {  # of (resamples, m)
    "mean": lambda x: x.mean(-1),
    "median": lambda x: np.median(x, axis=-1),
    "5%": lambda x: np.quantile(x, 0.05, axis=-1),
}
TITLES = {
    EXACT: "Condensed rows that equal a real row in every feature",
    EXACT_OUTCOME: "Condensed rows that equal a real row in every feature and the outcome",
    NEARER: "Condensed rows nearer to a training row than to any held-out row (0.5: no copying)",
    DROPPED: "Condensed rows that KDE-KNN's σ rule would drop",
    **{f"dcr_{name}": f"Distance to the closest record, {name}" for name in STATISTICS},
    **{f"nndr_{name}": f"Closest over second closest distance, {name} (1: singles nobody out)" for name in STATISTICS},
}


@dataclass(frozen=True, repr=False)
class _Side:
    """Condensed rows against one part of the real rows."""

    name: str
    exact: Flags  # (m,)
    exact_outcome: Flags
    closest: Floats  # (m,) DCR
    ratio: Floats  # (m,) NNDR


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """The copy check of a condensed table."""
    why = ""
    if not len(inputs.rows):
        why = "the run gave no answer, so there are no condensed rows"
    elif min(len(inputs.split.test), len(inputs.split.train)) < 2:
        why = "nobody was held out, and without them nothing says which distance is small"
    if why:
        return Section(NAME, TITLE, notes=(f"Not checked: {why}.",))
    rng = np.random.default_rng([seed, 0xC09E])
    count = min(len(inputs.split.train), len(inputs.split.test), MOST)
    condensed = choose(len(inputs.rows), MOST_CONDENSED, rng)
    parts = {
        name: rng.choice(of, count, replace=False)
        for name, of in ((TRAIN, inputs.split.train), (HELD, inputs.split.test))
    }
    # as they were released: optimised rows may differ from their legal form
    rows = inputs.rows[condensed] if inputs.raw else inputs.codec.encode(inputs.frame.iloc[condensed])
    made = inputs.made.take(condensed)
    log(f"distances of {len(rows):,} condensed rows to {count:,} training and as many held-out rows")
    some = np.concatenate([numbers[: MOST_RULER // 2] for numbers in parts.values()])
    sides, ruler = {}, Ruler.of(inputs.codec.encode(inputs.cohort.features.iloc[some]))
    for name, numbers in parts.items():
        real = ruler(inputs.codec.encode(inputs.cohort.features.iloc[numbers]))
        distance, _ = nearest(ruler(rows), real, 2, threads)
        exact, both = _matches(inputs, rows, made, numbers)
        sides[name] = _Side(name, exact, both, distance[:, 0], nndr(distance))
        if name == TRAIN:
            sigma = sigma_of(real, rng, threads)
    every = _matches(inputs, rows, made, inputs.split.train)
    scores = [_share(EXACT, EVERY, every[0], inputs), _share(EXACT_OUTCOME, EVERY, every[1], inputs)]
    for side in sides.values():
        scores += _scores(side, sigma, inputs, np.random.default_rng([seed, 0xB007]))
    scores.append(_nearer(sides[TRAIN], sides[HELD], inputs))
    notes = (
        "A copy check, not a privacy measure: rows may be far from every patient and tell about one all the same, and "
        "rows that many people share equal somebody's by coincidence. Compare training with held-out rows.",
        _words(sides, every[0], count, len(inputs.split.train)),
        f"On a random {count:,} of {len(inputs.split.train):,} training and {count:,} of {len(inputs.split.test):,} "
        f"held-out rows (as many of either, at most {MOST:,}), {len(rows):,} of {len(inputs.rows):,} condensed rows; σ "
        f"from at most {MOST_SIGMA:,} training rows.",
        *(() if not inputs.raw else ("The table holds raw encoded numbers: equality is that of encoded rows.",)),
    )
    return Section(
        NAME,
        TITLE,
        tuple(scores),
        _figures(sides),
        (_table(sides, every[0], count, len(inputs.split.train)),),
        notes,
        TITLES,
        {"most": MOST, "most_condensed": MOST_CONDENSED, "real_rows": count, "sigma": sigma},
    )


def nndr(distance: Floats) -> Floats:
    """(m,) closest over second closest; 1 where both are 0, for such a row is two people's."""
    if distance.shape[1] < 2:
        return np.ones(len(distance))
    first, second = distance[:, 0], distance[:, 1]
    return np.where(second > 0, first / np.where(second > 0, second, 1.0), 1.0)


def sigma_of(real: Matrix, rng: np.random.Generator, threads: int) -> float:
    """Mean distance of a real row to its nearest other (KDE-KNN, eq. 3), of at most MOST_SIGMA rows to all of these."""
    chosen = real if len(real) <= MOST_SIGMA else real[rng.choice(len(real), MOST_SIGMA, replace=False)]
    return float(nearest(chosen, real, 2, threads)[0][:, 1].mean())  # the first is the row itself


# -- exact matches ----------------------------------------------------------------------------------------------------


def _matches(inputs: EvaluationInput, rows: Matrix, made: Outcome, numbers: Index) -> tuple[Flags, Flags]:
    """(m,) condensed rows that equal one of these real rows in all features; and in the outcome, too."""
    own = fingerprints(rows), fingerprints(_with_outcome(rows, made))
    seen = np.zeros((2, len(rows)), bool)
    for first in range(0, len(numbers), BLOCK):
        here = numbers[first : first + BLOCK]
        real = inputs.codec.encode(inputs.cohort.features.iloc[here])
        outcome = inputs.kind.in_unit(inputs.cohort.outcome.take(here), inputs.unit)
        for k, theirs in enumerate((fingerprints(real), fingerprints(_with_outcome(real, outcome)))):
            seen[k] |= np.isin(own[k], theirs)
    return seen[0], seen[1]


def _with_outcome(rows: Matrix, outcome: Outcome) -> Matrix:
    extra = [np.asarray(array, np.float32).reshape(len(rows), -1) for array in outcome.arrays.values()]
    return np.concatenate([rows, *extra], axis=1)


def fingerprints(rows: Matrix) -> NDArray[np.uint64]:
    """(n,) 64 bits of each row; equal rows have equal ones, others differ but for a chance of 2⁻⁶⁴ a pair."""
    bits = np.ascontiguousarray(rows + np.float32(0), np.float32).view(np.uint32)  # −0 is 0
    odd = np.random.default_rng(0xF1).integers(0, 2**64, (2, bits.shape[1] + 1), np.uint64, endpoint=False)
    found = np.full(len(bits), odd[0, -1])
    for column in range(bits.shape[1]):
        mixed = (bits[:, column].astype(np.uint64) + odd[1, column]) * (odd[0, column] | np.uint64(1))
        found = (found ^ mixed ^ (mixed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(32)
    return found


# -- scores -----------------------------------------------------------------------------------------------------------


def _score(measure: str, tested_on: str, reach: Interval, n: int, inputs: EvaluationInput, **more: str) -> Score:
    about = {"rows": len(inputs.rows), **more}
    return Score.from_interval(measure, CONDENSED, tested_on, reach, n, inputs.privacy.charged, **about)


def _share(measure: str, tested_on: str, of: Flags, inputs: EvaluationInput) -> Score:
    reach = interval(share(of, np.ones(len(of), bool)))
    return _score(measure, tested_on, reach, len(of), inputs, interval="Wilson")


def _scores(side: _Side, sigma: float, inputs: EvaluationInput, rng: np.random.Generator) -> Iterator[Score]:
    yield _share(EXACT, side.name, side.exact, inputs)
    yield _share(EXACT_OUTCOME, side.name, side.exact_outcome, inputs)
    yield _share(DROPPED, side.name, side.closest < sigma, inputs)
    m, how = len(side.closest), f"{RESAMPLES} resamples of condensed rows"
    resamples = [rng.integers(0, m, m) for _ in range(RESAMPLES)]
    for word, values in (("dcr", side.closest), ("nndr", side.ratio)):
        for name, statistic in STATISTICS.items():
            low, high = np.percentile([float(statistic(values[rows])) for rows in resamples], [2.5, 97.5])
            reach = Interval(float(statistic(values)), float(low), float(high))
            yield _score(f"{word}_{name}", side.name, reach, m, inputs, interval=how)


def _nearer(train: _Side, held: _Side, inputs: EvaluationInput) -> Score:
    """Ties, a row as near to either, say nothing and are left out."""
    decided = train.closest != held.closest
    if not decided.any():
        return _score(NEARER, TRAIN, UNKNOWN, 0, inputs, note="every condensed row is as near to either")
    return _share(NEARER, TRAIN, (train.closest < held.closest)[decided], inputs)


def _words(sides: dict[str, _Side], every: Flags, count: int, train: int) -> str:
    """What the exact matches say, in a sentence."""
    ours, theirs, m = int(sides[TRAIN].exact.sum()), int(sides[HELD].exact.sum()), len(every)
    shown = f"{_few(ours)} of {m:,} condensed rows equal one of {count:,} training rows, {_few(theirs)} a held-out one"
    if not every.any():
        return f"Exact matches: none with any of {train:,} training rows."
    spread = math.sqrt(max(ours + theirs, 1))  # of the difference, if either part were as likely
    if ours - theirs > 3 * spread:
        return f"Exact matches: {shown}. That is more than coincidence gives: rows of patients were copied."
    return (
        f"Exact matches: {shown}. That is what coincidence gives: rows that many people share equal somebody's, "
        "whether or not anybody's row was used."
    )


def _few(count: int) -> str:
    return f"<{FEW}" if 0 < count < FEW else f"{count:,}"


def _table(sides: dict[str, _Side], every: Flags, count: int, train: int) -> Table:
    rows = [(f"{EVERY} ({train:,})", _few(int(every.sum())))]
    rows += [(f"{name} ({count:,})", _few(int(side.exact.sum()))) for name, side in sides.items()]
    about = f"Of {len(every):,} condensed rows. Held-out rows were not used: what equals them does so by coincidence."
    return Table("exact", "Condensed rows that equal a real one", ("of", "condensed rows"), tuple(rows), about)


def _figures(sides: dict[str, _Side]) -> tuple[Figure, ...]:
    """Quantiles only, and none where a quantile would be one row."""
    if min(len(side.closest) for side in sides.values()) < 10 * FEW:
        return ()
    levels = tuple(round(0.05 * k, 2) for k in range(1, 20))
    series = tuple(
        Series(f"to {name}", levels, tuple(map(float, np.quantile(side.closest, levels))))
        for name, side in sides.items()
    )
    about = (
        "The share of condensed rows whose closest real row is at most so far. A curve of training rows well below "
        "that of held-out rows means copies."
    )
    return (
        Figure("dcr", LINES, "Distance to the closest record", about, "share of condensed rows", "distance", series),
    )
