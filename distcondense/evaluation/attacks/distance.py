"""PSyGenTAB's attacks (§IV-I): black box, white box, logistic regression, linkage, and what each column adds to them.

    nearest        a target is called a member where a condensed row is near: a threshold on the distance
    nearest, of its place   the same over the distance to the nearest other person: near for where it lies
    logistic       a logistic regression on the 15 distances of Thakur et al. 2026's attack, learned on other targets
    student        black box: the confidence (loss) that a model of the condensed rows has in a target's outcome
    white box      the loss of the method's own model, where the method hands one over
    linkage        by half of the columns a target's nearest condensed row is found; does it agree on all the others?
    columns        how well closeness in one column alone, to the nearest condensed row, tells members; and each
                   column's share in the importance of a gradient boosting attack on all of them (Table VII)

PSyGenTAB's "overall distinguishability" is the mean AUROC of black box, white box (where there is one) and logistic.
A rate of linkage means nothing alone (half of any table agrees on a rare diagnosis): what counts is how much oftener
members are linked than outsiders, and that is bounded by the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distcondense.arrays import Flags, Floats, Matrix
from distcondense.data.outcome import Outcome
from distcondense.errors import ModelError
from distcondense.evaluation.attacks.base import (
    AUROC,
    MEMBERSHIP,
    OVERLAP,
    Targets,
    attackable,
    attacked,
    auroc_power,
    ceilings_of,
    condensed_rows,
    cross_judged,
    difference,
    difference_power,
    judged,
    nothing,
    places,
    roc_figure,
    unmeasured,
    widened,
    wilson,
)
from distcondense.evaluation.attacks.ceiling import Ceilings
from distcondense.evaluation.attacks.membership import distance_features
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import CONDENSED, Score, interval
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.kernels.neighbours import nearest
from distcondense.models.base import Model
from distcondense.outcomes.measures import mean_of, ranking
from distcondense.runs.figures import BARS, Figure, Series, Table

NAME, TITLE = "distance", "Black box, white box, logistic and linkage attacks (PSyGenTAB)"
MOST_COLUMNS = 20  # whose own risk is measured
TREES = 100  # of the attack on all columns together
AGREE = 0.1  # of a standard deviation: numbers that differ by less agree
TINY = 1e-6
NEAREST, PLACED, LOGISTIC, STUDENT, WHITE = "nearest", "nearest, of its place", "logistic", "student", "white box"
ONE_COLUMN = "closeness in one column"
LINKED, LINKED_EXCESS, OVERALL = "linked", "linked_excess", "overall distinguishability"
TITLES = {
    LINKED: "Share linked: nearest by half of the columns, agreeing on the rest",
    LINKED_EXCESS: "Share of members linked beyond that of outsiders (0: no leak)",
}


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """The attacks on a condensed table."""
    targets = attackable(inputs, seed=seed, threads=threads)
    if isinstance(targets, str):
        return nothing(NAME, TITLE, targets)
    log(f"distances of {len(targets):,} targets")
    condensed, ceilings = condensed_rows(inputs, seed), ceilings_of(inputs)
    ruled = targets.ruler(condensed)
    distance, number = nearest(targets.ruled, ruled, 1, threads)
    features = np.log(distance_features(targets.ruled, ruled, threads=threads) + TINY)
    attacks = {
        NEAREST: -distance[:, 0],
        PLACED: np.log(targets.apart + TINY) - np.log(distance[:, 0] + TINY),
        LOGISTIC: cross_judged(features, targets, _logistic, seed=seed)[0],
    }
    notes, missing = [], {}
    for name, model in ((STUDENT, _student), (WHITE, _own)):
        found, why = _confidence(model, inputs, targets, seed, threads)
        if found is None:
            missing[name] = why
        else:
            attacks[name] = found
    scores = []
    for name, score in attacks.items():
        crowd = OVERLAP if name == LOGISTIC else 1.0
        scores += judged(score, targets, ceilings, inputs=inputs, seed=seed, student=name, crowd=crowd)
    scores += [unmeasured(AUROC, why, inputs=inputs, n=len(targets), student=name) for name, why in missing.items()]
    scores.append(_overall(attacks, targets, ceilings, inputs))
    log("linkage")
    linked, by = linkage(inputs, targets, condensed, ceilings, seed=seed, threads=threads)
    scores += linked
    if by:
        notes.append(
            f"Linkage: the attacker knows {', '.join(by)}; a row agrees on a number that differs by less than "
            f"{AGREE:g} standard deviations and on a category that is the same."
        )
    columns, table, figure = _columns(inputs, targets, ruled[number[:, 0]], seed)
    return attacked(
        NAME,
        TITLE,
        inputs,
        targets,
        [*scores, *columns],
        notes=notes,
        titles=TITLES,
        figures=(roc_figure(attacks, targets, ceilings), *figure),
        tables=table,
        settings={"known_columns": list(by), "agree_within": AGREE, "most_columns": MOST_COLUMNS},
    )


def _logistic(features: Floats, member: Flags) -> Callable[[Floats], Floats]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(features, member)
    return lambda asked: np.asarray(model.decision_function(asked), np.float64)


def _overall(attacks: dict[str, Floats], targets: Targets, ceilings: Ceilings | None, inputs: EvaluationInput) -> Score:
    """Mean AUROC of PSyGenTAB's three attacks; its black box is a model's confidence, or the distance without one."""
    three = [STUDENT if STUDENT in attacks else NEAREST, *([WHITE] if WHITE in attacks else []), LOGISTIC]
    label = targets.member.astype(np.int8)
    each = [widened(ranking(label, attacks[name]), OVERLAP if name == LOGISTIC else 1.0) for name in three]
    at = interval(mean_of(each))
    return Score(
        AUROC,
        CONDENSED,
        MEMBERSHIP,
        at.value,
        at.low,
        at.high,
        len(targets),
        inputs.privacy.charged,
        len(inputs.rows),
        student=f"{OVERALL}: mean of {', '.join(three)}",
        interval="DeLong",
        ceiling=None if ceilings is None else ceilings.auroc,
        power=auroc_power(len(targets) // 2, len(targets) // 2),
    )


# -- a model's confidence ---------------------------------------------------------------------------------------------


def _student(inputs: EvaluationInput, seed: int, threads: int) -> Model | None:
    """As a recipient fits one, by the manual."""
    labelled = inputs.labelled
    return inputs.learner.fit(
        inputs.rows, inputs.made, weight=labelled.weight, soft=labelled.soft, seed=seed, threads=threads
    )


def _own(inputs: EvaluationInput, seed: int, threads: int) -> Model | None:
    return inputs.reference


def _confidence(
    model: Callable[[EvaluationInput, int, int], Model | None],
    inputs: EvaluationInput,
    targets: Targets,
    seed: int,
    threads: int,
) -> tuple[Floats | None, str]:
    """(n,) how little a model is surprised by each target's outcome; or why that cannot be said."""
    try:
        fitted = model(inputs, seed, threads)
    except ModelError as error:
        return None, str(error)
    if fitted is None:
        return None, "the method hands over no model of its own, or the run is evaluated from its folder"
    found = loss(fitted, targets.rows, targets.outcome, inputs.rows, inputs.made)
    return (None, "this model has no loss of a single row") if found is None else (-found, "")


def loss(model: Model, rows: Matrix, outcome: Outcome, made_rows: Matrix, made: Outcome) -> Floats | None:
    """(n,) each row's loss: −log likelihood of a class, squared error of a number, surprise at a time."""
    score = np.asarray(model.scores(rows), np.float64)
    if "time" in outcome.arrays:
        event, time = outcome["label"] == 1, np.maximum(np.asarray(outcome["time"], np.float64), TINY)
        if model.link == "log-time":  # who was still followed is a surprise only beyond the time that was said
            apart = np.log(time) - score
            return np.where(event, np.abs(apart), np.maximum(apart, 0.0))
        return _deviance(score, time, event, np.asarray(model.scores(made_rows), np.float64), made)
    if "label" in outcome.arrays:
        label = np.asarray(outcome["label"], np.int64)
        if model.link not in ("probability", "probabilities"):
            return None
        likely = np.where(label == 1, score, 1 - score) if score.ndim == 1 else score[np.arange(len(label)), label]
        return -np.log(np.clip(likely, TINY, 1.0))
    (value,) = outcome.arrays.values() if len(outcome.arrays) == 1 else (None,)
    return None if value is None or score.ndim > 1 else (score - np.asarray(value, np.float64)) ** 2


def _deviance(score: Floats, time: Floats, event: Flags, made_score: Floats, made: Outcome) -> Floats | None:
    """(n,) squared deviance residuals of a log risk, by Breslow's hazard of the condensed rows."""
    if score.ndim > 1 or not (made["label"] == 1).any():
        return None
    centre = float(made_score.mean())
    order = np.argsort(made["time"], kind="stable")
    when, risk = np.asarray(made["time"], np.float64)[order], np.exp(np.clip(made_score[order] - centre, -30, 30))
    at_risk = np.cumsum(risk[::-1])[::-1][np.searchsorted(when, when)]
    hazard = np.concatenate([[0.0], np.cumsum((made["label"][order] == 1) / at_risk)])
    expected = hazard[np.searchsorted(when, time, side="right")] * np.exp(np.clip(score - centre, -30, 30))
    expected = np.maximum(expected, TINY)
    return 2 * np.where(event, expected - 1 - np.log(expected), expected)


# -- linkage ----------------------------------------------------------------------------------------------------------


def linkage(
    inputs: EvaluationInput, targets: Targets, condensed: Matrix, ceilings: Ceilings | None, *, seed: int, threads: int
) -> tuple[list[Score], list[str]]:
    """Shares of members and of outsiders that are linked, and the difference; the columns that the attacker knows."""
    every = places(inputs.codec)
    if len(every) < 2:
        return [unmeasured(LINKED_EXCESS, "there is one column only", inputs=inputs, n=len(targets))], []
    chosen = np.zeros(len(every), bool)
    chosen[np.random.default_rng([seed, 0x117C]).permutation(len(every))[: (len(every) + 1) // 2]] = True
    known = np.r_[tuple(place for (_, place), on in zip(every, chosen, strict=True) if on)]
    found = nearest(targets.ruled[:, known], targets.ruler(condensed)[:, known], 1, threads)[1][:, 0]
    agree = np.all(agreements(inputs, targets, condensed[found])[:, ~chosen], axis=1)
    half = len(targets) // 2
    hits, alarms = int(agree[targets.member].sum()), int(agree[~targets.member].sum())
    common: dict[str, Any] = {"covered": inputs.privacy.charged, "rows": len(inputs.rows), "student": "linkage"}
    scores = []
    for tested, count in (("members", hits), ("outsiders", alarms)):
        at = wilson(count, half)
        scores.append(Score(LINKED, CONDENSED, tested, at.value, at.low, at.high, half, interval="Wilson", **common))
    at = difference(hits, half, alarms, half)
    scores.append(
        Score(
            LINKED_EXCESS,
            CONDENSED,
            MEMBERSHIP,
            at.value,
            at.low,
            at.high,
            len(targets),
            interval="Newcombe (of two Wilson intervals)",
            power=difference_power(half, half),
            ceiling=None if ceilings is None else ceilings.advantage,
            **common,
        )
    )
    return scores, [block.column.name for (block, _), on in zip(every, chosen, strict=True) if on]


def agreements(inputs: EvaluationInput, targets: Targets, others: Matrix) -> Flags:
    """(n, columns) whether a target and the row found for it agree: in a category, or nearly in a number."""
    found, scale, centre = [], inputs.codec.scale, inputs.codec.centre
    for block, place in places(inputs.codec):
        one, two = targets.rows[:, place], others[:, place]
        if block.values:
            codes = [(rows * scale[place] + centre[place]).argmax(1) for rows in (one, two)]
            found.append(codes[0] == codes[1])
        else:
            found.append((np.abs(one - two) < AGREE * targets.ruler.scale[place]).all(1))
    return np.stack(found, axis=1)


# -- columns ----------------------------------------------------------------------------------------------------------


def _columns(
    inputs: EvaluationInput, targets: Targets, neighbours: Matrix, seed: int
) -> tuple[list[Score], tuple[Table, ...], tuple[Figure, ...]]:
    """What each column adds: AUROC of closeness in it, and its share in an attack on all columns together."""
    from sklearn.ensemble import GradientBoostingClassifier

    every = places(inputs.codec)
    gap = np.abs(targets.ruled - neighbours)
    apart = np.stack([gap[:, place].sum(1) for _, place in every], axis=1)
    most = np.sort(np.argsort(-apart.std(0), kind="stable")[:MOST_COLUMNS])
    label, scores = targets.member.astype(np.int8), []
    half = len(targets) // 2
    for column in most:
        at = interval(ranking(label, -apart[:, column]))
        scores.append(
            Score(
                AUROC,
                CONDENSED,
                MEMBERSHIP,
                at.value,
                at.low,
                at.high,
                len(targets),
                inputs.privacy.charged,
                len(inputs.rows),
                student=ONE_COLUMN,
                group=every[column][0].column.name,
                interval="DeLong",
                power=auroc_power(half, half),
            )
        )
    model = GradientBoostingClassifier(n_estimators=TREES, max_depth=3, random_state=seed % 2**32)
    share = model.fit(apart[:, most], targets.member).feature_importances_
    names = [every[column][0].column.name for column in most]
    order = np.argsort(-share, kind="stable")
    rows = tuple((names[k], round(float(share[k]), 4), round(scores[k].value, 4)) for k in order)
    about = (
        "Shares add up to 1 also where nothing is learned: they say what an attack leans on, not that it works. "
        "Where the attack does no better than chance they are noise."
    )
    head = ("column", "share of importance", "AUROC of it alone")
    table = Table("columns", "What an attack leans on", head, rows, about)
    series = Series("importance", tuple(row[0] for row in rows), tuple(row[1] for row in rows))
    figure = Figure("columns", BARS, "What an attack leans on", about, "column", "share of importance", (series,))
    return scores, (table,), (figure,)
