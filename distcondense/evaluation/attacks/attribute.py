"""Attribute inference (Thakur et al. 2026 §4.6): from condensed rows and a patient's other columns, one column.

For each attribute a gradient boosting model (100 trees, depth 3, learning rate 0.1) learns it from the other columns of
the condensed rows and is asked about members. That a model predicts well is what a condensed table is for; what is
lost is how much better it does for members than for outsiders, whom it cannot know: the *excess*. Beside them the same
model of as many other real rows: what an attacker could do without the condensed table.

Numbers are scored by R², categories by the share that is right; of two categories the AUROC as well. Every target's
errors, ranked and averaged over attributes, are a membership attack of their own, with its ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from distcondense.arrays import Flags, Floats, Matrix
from distcondense.data.codec import EncodedColumn
from distcondense.evaluation.attacks.base import attack, attack_score, attacked, judged
from distcondense.evaluation.attacks.chance import SURE, exchanged_luck, shares_luck
from distcondense.evaluation.attacks.targets import (
    MOST_CONDENSED,
    NotAttackedError,
    Targets,
    ceilings_of,
    condensed_rows,
    draw_targets,
    places,
)
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.resampling import choose
from distcondense.evaluation.score import CONDENSED, NORMAL, RANDOM, UNKNOWN, Interval, Score, interval
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.outcomes.measures import NONE, Measured, error, ranking, share
from distcondense.runs.figures import DOTS, Figure, Series

NAME, TITLE = "attribute", "Attribute inference (Thakur et al. 2026)"
MOST_ATTRIBUTES = 10
LEAST_ROWS = 20  # with the attribute known, to learn it or to be scored on it
TREES: dict[str, Any] = {"n_estimators": 100, "max_depth": 3, "learning_rate": 0.1, "tree_method": "hist"}
STUDENT = "gradient boosting"
MEMBERS, OUTSIDERS = "members", "outsiders"
R2, RIGHT, RANKED, EXCESS_R2, EXCESS_RIGHT = (
    "attribute_r2",
    "attribute_accuracy",
    "attribute_auroc",
    "attribute_excess_r2",
    "attribute_excess_accuracy",
)
TITLES = {
    R2: "R² of the attribute",
    RIGHT: "Share of the attribute that is guessed right",
    RANKED: "AUROC of the attribute",
    EXCESS_R2: "R² for members beyond that for outsiders (0: no leak)",
    EXCESS_RIGHT: "Share guessed right for members beyond that for outsiders (0: no leak)",
}
JACKKNIFE = "infinitesimal jackknife"
INTERVALS = {R2: JACKKNIFE, RIGHT: "Wilson", RANKED: "DeLong"}


@dataclass(frozen=True, repr=False)
class Attribute:
    """One column as it is guessed: a number, or a category's code."""

    encoded: EncodedColumn
    place: slice
    centre: Floats  # (width,) of the codec
    scale: Floats

    @property
    def name(self) -> str:
        return self.encoded.column.name

    @property
    def classes(self) -> int:
        """0: a number."""
        return 0 if self.encoded.column.numeric else len(self.encoded.values) or 2

    def values(self, rows: Matrix) -> tuple[Floats, Flags]:
        """(n,) the attribute, and where it is known."""
        raw, every = rows[:, self.place] * self.scale + self.centre, np.ones(len(rows), bool)
        if not self.classes:
            return raw[:, 0], every if self.encoded.width == 1 else raw[:, 1] < 0.5
        if self.encoded.values:
            return raw.argmax(1).astype(np.float64), every
        return (raw[:, 0] > 0.5).astype(np.float64), every


@attack(NAME, TITLE)
def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """The attack on a condensed table."""
    targets = draw_targets(inputs, seed=seed, threads=threads, reference=True)
    centre, scale = inputs.codec.centre, inputs.codec.scale
    every = [Attribute(encoded, place, centre[place], scale[place]) for encoded, place in places(inputs.codec)]
    if len(every) < 2:
        raise NotAttackedError("there is one column only, and nothing to guess it from")
    chosen = [every[k] for k in choose(len(every), MOST_ATTRIBUTES, np.random.default_rng([seed, 0xA771]))]
    condensed = condensed_rows(inputs, seed)
    others = inputs.codec.encode(inputs.cohort.features.iloc[targets.reference[: len(condensed)]])
    scores, ranks = [], []
    for attribute in chosen:
        log(f"guessing {attribute.name}")
        guessed, wrong = _guess(attribute, inputs, targets, condensed, others, seed, threads)
        scores += guessed
        if wrong is not None:
            ranks.append(-stats.rankdata(wrong) / len(wrong))
    if ranks:
        scores += judged(np.mean(ranks, axis=0), targets, inputs=inputs, seed=seed, student="errors of guesses")
    notes = [
        f"{len(chosen)} of {len(every)} columns were guessed, each from all others; the control learned from "
        f"{len(others):,} real rows that were left out and are not attacked.",
        "R² and shares guessed right say how much the columns have to do with each other; only the excess is a leak.",
    ]
    settings = {
        "most_attributes": MOST_ATTRIBUTES,
        "control_rows": len(others),
        "trees": dict(TREES),
        "most_rows": MOST_CONDENSED,
    }
    return attacked(
        NAME,
        TITLE,
        inputs,
        targets,
        {},
        seed=seed,
        scores=scores,
        notes=notes,
        titles=TITLES,
        figures=_figures(scores),
        settings=settings,
    )


def _guess(
    attribute: Attribute,
    inputs: EvaluationInput,
    targets: Targets,
    condensed: Matrix,
    others: Matrix,
    seed: int,
    threads: int,
) -> tuple[list[Score], Floats | None]:
    """The attribute's scores, and (n,) how wrong the attacker is about each target."""
    main = RIGHT if attribute.classes else R2
    truth, known = attribute.values(targets.rows)
    sources = {CONDENSED: condensed, RANDOM: others}
    guesses = {name: _learned(attribute, rows, targets.rows, seed, threads) for name, rows in sources.items()}
    scores, measured = [], {}
    for trained_on, tested_on in ((CONDENSED, MEMBERS), (CONDENSED, OUTSIDERS), (RANDOM, MEMBERS)):
        guess, at = guesses[trained_on], known & (targets.member == (tested_on == MEMBERS))
        for measure in (main, RANKED) if attribute.classes == 2 else (main,):
            value, why = NONE, ""
            if guess is None:
                why = "too few rows with this attribute known, or all alike"
            elif at.sum() < LEAST_ROWS:
                why = f"fewer than {LEAST_ROWS} {tested_on} with this attribute known"
            else:
                value = _measured(measure, truth[at], guess[at])
                why = "" if math.isfinite(value.value) else "not defined: all alike"
            measured[trained_on, tested_on, measure] = value
            about = {"note": why, "group": attribute.name, "interval": "" if why else INTERVALS[measure]}
            covered, rows = trained_on == CONDENSED and inputs.privacy.charged, len(sources[trained_on])
            reach, n = interval(value), int(at.sum())
            scores.append(
                Score.from_interval(
                    measure, trained_on, tested_on, reach, n, covered, rows=rows, student=STUDENT, **about
                )
            )
    inside, outside = (measured[CONDENSED, tested_on, main] for tested_on in (MEMBERS, OUTSIDERS))
    guess = guesses[CONDENSED]
    luck = None if guess is None else _luck(attribute, truth[known], guess[known], targets.member[known], seed)
    scores.append(_excess(inside, outside, luck, attribute, inputs, len(targets)))
    if guess is None:
        return scores, None
    codes = truth.astype(np.int64)
    wrong = 1 - guess[np.arange(len(truth)), codes] if attribute.classes else np.abs(guess - truth)
    wrong[~known] = np.median(wrong[known]) if known.any() else 0.0
    return scores, wrong


def _learned(attribute: Attribute, rows: Matrix, asked: Matrix, seed: int, threads: int) -> Floats | None:
    """Guesses: (n,) numbers, or (n, classes) probabilities; None where there is nothing to learn from.

    Two categories are learned as a number, 0 or 1, as in the paper.
    """
    import xgboost as xgb

    value, known = attribute.values(rows)
    value = value[known]
    if len(value) < LEAST_ROWS or value.min() == value.max():
        return None
    from_rows, to_rows = (np.delete(matrix, np.r_[attribute.place], axis=1) for matrix in (rows[known], asked))
    how = {**TREES, "n_jobs": threads, "random_state": seed % 2**31, "verbosity": 0}
    if attribute.classes <= 2:
        guess = np.asarray(xgb.XGBRegressor(**how).fit(from_rows, value).predict(to_rows), np.float64)
        return np.stack([1 - guess, guess], axis=1) if attribute.classes else guess
    there, codes = np.unique(value.astype(np.int64), return_inverse=True)
    probability = np.zeros((len(asked), attribute.classes))
    probability[:, there] = xgb.XGBClassifier(**how).fit(from_rows, codes).predict_proba(to_rows)
    return probability


def _measured(measure: str, truth: Floats, guesses: Floats) -> Measured:
    if measure == R2:
        return error(truth, guesses, "r2")
    if measure == RANKED:
        return ranking(truth.astype(np.int8), guesses[:, 1])
    return share(guesses.argmax(1) == truth.astype(np.int64), np.ones(len(truth), bool))


def _luck(attribute: Attribute, truth: Floats, guess: Floats, member: Flags, seed: int) -> float:
    """The probability that members' attributes are guessed so much better by chance.

    R² of a column with a long tail hangs on few patients, so its luck is that of members and outsiders exchanged.
    """
    if attribute.classes:
        right = guess.argmax(1) == truth.astype(np.int64)
        outside = ~member
        return shares_luck(right[member].sum(), member.sum(), right[outside].sum(), outside.sum())
    scaled = (truth - truth.mean()) / max(float(truth.std()), 1e-300)
    wrong = ((guess - truth) / max(float(truth.std()), 1e-300)) ** 2
    sums = np.stack([np.ones(len(truth)), scaled, scaled**2, wrong], axis=1)
    return exchanged_luck(sums, member, lambda ours, theirs: _r2(ours) - _r2(theirs), seed=seed)


def _r2(sums: Floats) -> Floats:
    """(e,) from (e, 4) sums of 1, the truth, its square and the squared error; NaN where all are alike."""
    n, first, second, wrong = sums.T
    around = second - first**2 / np.maximum(n, 1)
    return 1 - wrong / np.where(around > 1e-12 * n, around, np.nan)


def _excess(
    inside: Measured, outside: Measured, luck: float | None, attribute: Attribute, inputs: EvaluationInput, targets: int
) -> Score:
    """What is guessed better of members than of outsiders; they are other people, so variances add up.

    A difference of two rates, of members and of outsiders, is a membership advantage: so it has that ceiling.
    """
    measure, value = EXCESS_RIGHT if attribute.classes else EXCESS_R2, inside.value - outside.value
    about: dict[str, Any] = {"student": STUDENT, "group": attribute.name}
    if attribute.classes and (ceilings := ceilings_of(inputs)) is not None:
        about["ceiling"] = ceilings.advantage
    if inside.influence is None or outside.influence is None or not math.isfinite(value):
        note = "not measured for members and outsiders both"
        return attack_score(inputs, measure, UNKNOWN, targets, note=note, **about)
    error = math.sqrt(float(inside.influence @ inside.influence + outside.influence @ outside.influence))
    reach = Interval(value, value - NORMAL * error, value + NORMAL * error)
    how: dict[str, Any] = {"interval": JACKKNIFE, "power": error * SURE, "luck": luck}
    return attack_score(inputs, measure, reach, targets, **how, **about)


def _figures(scores: Sequence[Score]) -> tuple[Figure, ...]:
    shown = [score for score in scores if score.measure in (EXCESS_R2, EXCESS_RIGHT) and math.isfinite(score.value)]
    if not shown:
        return ()
    points = Series(
        "excess",
        tuple(score.group for score in shown),
        tuple(score.value for score in shown),
        tuple(score.low for score in shown),
        tuple(score.high for score in shown),
    )
    return (
        Figure(
            "excess",
            DOTS,
            "How much better members' attributes are guessed",
            "Above 0 an attribute of members is guessed better than that of people who were left out.",
            "attribute",
            "R² or share right, members less outsiders",
            (points,),
            at=(("no leak", 0.0),),
        ),
    )
