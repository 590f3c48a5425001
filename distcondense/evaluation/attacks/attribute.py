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
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from distcondense.arrays import Flags, Floats, Index, Matrix
from distcondense.data.codec import EncodedColumn
from distcondense.evaluation.attacks.base import (
    MOST_CONDENSED,
    Targets,
    attackable,
    attacked,
    ceilings_of,
    condensed_rows,
    judged,
    nothing,
    places,
)
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import CONDENSED, NORMAL, RANDOM, Score, interval
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.outcomes.measures import NONE, Measured, error, ranking, share
from distcondense.runs.figures import DOTS, Figure, Series

NAME, TITLE = "attribute", "Attribute inference (Thakur et al. 2026)"
MOST_ATTRIBUTES = 10
LEAST_ROWS = 20  # with the attribute known, to learn it or to be scored on it
TREES: dict[str, Any] = {"n_estimators": 100, "max_depth": 3, "learning_rate": 0.1, "tree_method": "hist"}
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


@dataclass(frozen=True, repr=False)
class Attribute:
    """One column as it is guessed: a number, or a category's code."""

    block: EncodedColumn
    place: slice
    centre: Floats  # (width,) of the codec
    scale: Floats

    @property
    def number(self) -> bool:
        return self.block.column.numeric

    @property
    def classes(self) -> int:
        """0: a number."""
        return 0 if self.number else len(self.block.values) or 2

    def values(self, rows: Matrix) -> tuple[Floats, Flags]:
        """(n,) the attribute, and where it is known."""
        raw, every = rows[:, self.place] * self.scale + self.centre, np.ones(len(rows), bool)
        if self.number:
            return raw[:, 0], every if self.block.width == 1 else raw[:, 1] < 0.5
        if self.block.values:
            return raw.argmax(1).astype(np.float64), every
        return (raw[:, 0] > 0.5).astype(np.float64), every


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """The attack on a condensed table."""
    targets = attackable(inputs, seed=seed, threads=threads, reference=True)
    if isinstance(targets, str):
        return nothing(NAME, TITLE, targets)
    every = attributes(inputs)
    if len(every) < 2:
        return nothing(NAME, TITLE, "there is one column only, and nothing to guess it from")
    rng, chosen = np.random.default_rng([seed, 0xA771]), every
    if len(every) > MOST_ATTRIBUTES:
        chosen = [every[k] for k in np.sort(rng.choice(len(every), MOST_ATTRIBUTES, replace=False))]
    condensed = condensed_rows(inputs, seed)
    others = inputs.codec.encode(inputs.cohort.features.iloc[targets.reference[: len(condensed)]])
    ceilings, scores, ranks = ceilings_of(inputs), [], []
    for one in chosen:
        log(f"guessing {one.block.column.name}")
        found, apart = _guess(one, inputs, targets, condensed, others, seed, threads)
        # a difference of two rates, of members and of outsiders, is a membership advantage
        most = None if ceilings is None else ceilings.advantage
        scores += [replace(score, ceiling=most) if score.measure == EXCESS_RIGHT else score for score in found]
        if apart is not None:
            ranks.append(-stats.rankdata(apart) / len(apart))
    if ranks:
        scores += judged(
            np.mean(ranks, axis=0), targets, ceilings, inputs=inputs, seed=seed, student="errors of guesses"
        )
    notes = [
        f"{len(chosen)} of {len(every)} columns were guessed, each from all others; the control learned from "
        f"{len(others):,} real rows that were left out and are not attacked.",
        "R² and shares guessed right say how much the columns have to do with each other; only the excess is a leak.",
    ]
    return attacked(
        NAME,
        TITLE,
        inputs,
        targets,
        scores,
        notes=notes,
        titles=TITLES,
        figures=_figures(scores),
        settings={
            "most_attributes": MOST_ATTRIBUTES,
            "control_rows": len(others),
            "trees": dict(TREES),
            "most_rows": MOST_CONDENSED,
        },
    )


def attributes(inputs: EvaluationInput) -> list[Attribute]:
    centre, scale = inputs.codec.centre, inputs.codec.scale
    return [Attribute(block, place, centre[place], scale[place]) for block, place in places(inputs.codec)]


def _guess(
    one: Attribute,
    inputs: EvaluationInput,
    targets: Targets,
    condensed: Matrix,
    others: Matrix,
    seed: int,
    threads: int,
) -> tuple[list[Score], Floats | None]:
    """The attribute's scores, and (n,) how wrong the attacker is about each target."""
    name, main = one.block.column.name, RIGHT if one.classes else R2
    truth, known = one.values(targets.rows)
    who = {MEMBERS: known & targets.member, OUTSIDERS: known & ~targets.member}
    scores: list[Score] = []
    apart: Floats | None = None
    measured: dict[str, Measured] = {}
    for way, rows in ((CONDENSED, condensed), (RANDOM, others)):
        guesses = _learned(one, rows, targets.rows, seed, threads)
        for tested in (MEMBERS, OUTSIDERS) if way == CONDENSED else (MEMBERS,):
            at = who[tested]
            why = "too few rows with this attribute known, or all alike" if guesses is None else ""
            for measure in (main, RANKED) if one.classes == 2 else (main,):
                if guesses is None or at.sum() < LEAST_ROWS:
                    found = NONE
                    why = why or f"fewer than {LEAST_ROWS} {tested} with this attribute known"
                else:
                    found = _measured(measure, truth[at], guesses[at])
                    why = "" if math.isfinite(found.value) else "not defined: all alike"
                if measure == main and way == CONDENSED:
                    measured[tested] = found
                scores.append(_score(measure, found, way, tested, int(at.sum()), len(rows), name, inputs, why))
        if way == CONDENSED and guesses is not None:
            apart = _errors(one, truth, guesses)
            apart[~known] = np.median(apart[known]) if known.any() else 0.0
    scores.append(_excess(measured[MEMBERS], measured[OUTSIDERS], one, inputs, targets, len(condensed)))
    return scores, apart


def _learned(one: Attribute, rows: Matrix, asked: Matrix, seed: int, threads: int) -> Floats | None:
    """Guesses: (n,) numbers, or (n, classes) probabilities; None where there is nothing to learn from.

    Two categories are learned as a number, 0 or 1, as in the paper.
    """
    import xgboost as xgb

    value, known = one.values(rows)
    value = value[known]
    if len(value) < LEAST_ROWS or value.min() == value.max():
        return None
    from_rows, to_rows = (np.delete(matrix, np.r_[one.place], axis=1) for matrix in (rows[known], asked))
    how = {**TREES, "n_jobs": threads, "random_state": seed % 2**31, "verbosity": 0}
    if one.classes <= 2:
        model = xgb.XGBRegressor(**how).fit(from_rows, value)
        guess = np.asarray(model.predict(to_rows), np.float64)
        return np.stack([1 - guess, guess], axis=1) if one.classes else guess
    there, codes = np.unique(value.astype(np.int64), return_inverse=True)
    model = xgb.XGBClassifier(**how).fit(from_rows, codes)
    found = np.zeros((len(asked), one.classes))
    found[:, there] = model.predict_proba(to_rows)
    return found


def _measured(measure: str, truth: Floats, guesses: Floats) -> Measured:
    if measure == R2:
        return error(truth, guesses, "r2")
    codes: Index = truth.astype(np.int64)
    if measure == RANKED:
        return ranking(codes.astype(np.int8), guesses[:, 1])
    return share(guesses.argmax(1) == codes, np.ones(len(codes), bool))


def _errors(one: Attribute, truth: Floats, guesses: Floats) -> Floats:
    if one.number:
        return np.abs(guesses - truth)
    return 1 - guesses[np.arange(len(truth)), truth.astype(np.int64)]


def _score(
    measure: str,
    found: Measured,
    way: str,
    tested: str,
    n: int,
    rows: int,
    name: str,
    inputs: EvaluationInput,
    why: str,
) -> Score:
    at = interval(found)
    words = {R2: JACKKNIFE, RIGHT: "Wilson", RANKED: "DeLong"}[measure]
    return Score(
        measure,
        way,
        tested,
        at.value,
        at.low,
        at.high,
        n,
        way == CONDENSED and inputs.privacy.charged,
        rows,
        note=why,
        student="gradient boosting",
        group=name,
        interval="" if why else words,
    )


def _excess(
    inside: Measured, outside: Measured, one: Attribute, inputs: EvaluationInput, targets: Targets, rows: int
) -> Score:
    """What is guessed better of members than of outsiders; they are other people, so variances add up."""
    measure = EXCESS_RIGHT if one.classes else EXCESS_R2
    value, half, why = inside.value - outside.value, float("nan"), ""
    if inside.influence is None or outside.influence is None or not math.isfinite(value):
        value, why = float("nan"), "not measured for members and outsiders both"
    else:
        half = NORMAL * math.sqrt(float(inside.influence @ inside.influence + outside.influence @ outside.influence))
    return Score(
        measure,
        CONDENSED,
        "members against outsiders",
        value,
        value - half,
        value + half,
        len(targets),
        inputs.privacy.charged,
        rows,
        note=why,
        student="gradient boosting",
        group=one.block.column.name,
        interval="" if why else JACKKNIFE,
        power=None if why else half / NORMAL * (NORMAL + float(stats.norm.ppf(0.8))),
    )


def _figures(scores: Sequence[Score]) -> tuple[Figure, ...]:
    excess = [score for score in scores if score.measure in (EXCESS_R2, EXCESS_RIGHT) and math.isfinite(score.value)]
    if not excess:
        return ()
    points = Series(
        "excess",
        tuple(score.group for score in excess),
        tuple(score.value for score in excess),
        tuple(score.low for score in excess),
        tuple(score.high for score in excess),
    )
    about = "Above 0 an attribute of members is guessed better than that of people who were left out."
    return (
        Figure(
            "excess",
            DOTS,
            "How much better members' attributes are guessed",
            about,
            "attribute",
            "R² or share right, members less outsiders",
            (points,),
            at=(("no leak", 0.0),),
        ),
    )
