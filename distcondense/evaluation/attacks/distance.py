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

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import stats

from distcondense.arrays import Flags, Floats, Matrix
from distcondense.data.outcome import Outcome
from distcondense.errors import ModelError
from distcondense.evaluation.attacks.base import (
    AUROC,
    OVERLAP,
    attack,
    attack_score,
    attacked,
    cross_validated,
    difference,
    widened,
)
from distcondense.evaluation.attacks.chance import auroc_error, auroc_luck, auroc_power, difference_power, shares_luck
from distcondense.evaluation.attacks.membership import distance_features
from distcondense.evaluation.attacks.targets import Targets, ceilings_of, condensed_rows, draw_targets, places
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import UNKNOWN, Score, interval, wilson
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


@attack(NAME, TITLE)
def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """The attacks on a condensed table."""
    targets = draw_targets(inputs, seed=seed, threads=threads)
    log(f"distances of {len(targets):,} targets")
    condensed = condensed_rows(inputs, seed)
    ruled = targets.ruler(condensed)
    distance, number = nearest(targets.ruled, ruled, 1, threads)
    features = np.log(distance_features(targets.ruled, ruled, threads=threads) + TINY)
    confidence, missing = _confidence(inputs, targets, seed, threads)
    attacks = {
        NEAREST: -distance[:, 0],
        PLACED: np.log(targets.apart + TINY) - np.log(distance[:, 0] + TINY),
        LOGISTIC: cross_validated(features, targets, _logistic, seed=seed)[0],
        **confidence,
    }
    scores = [
        attack_score(inputs, AUROC, UNKNOWN, len(targets), note=why, student=name) for name, why in missing.items()
    ]
    scores.append(_overall(attacks, targets, inputs))
    log("linkage")
    linked, known = linkage(inputs, targets, condensed, seed=seed, threads=threads)
    columns, table, figure = _columns(inputs, targets, ruled[number[:, 0]], seed)
    note = (
        f"Linkage: the attacker knows {', '.join(known)}; a row agrees on a number that differs by less than "
        f"{AGREE:g} standard deviations and on a category that is the same."
    )
    return attacked(
        NAME,
        TITLE,
        inputs,
        targets,
        attacks,
        seed=seed,
        overlapping=(LOGISTIC,),
        scores=[*scores, *linked, *columns],
        notes=[note] if known else [],
        titles=TITLES,
        figures=(figure,),
        tables=(table,),
        settings={"known_columns": known, "agree_within": AGREE, "most_columns": MOST_COLUMNS},
    )


def _logistic(features: Floats, member: Flags) -> Callable[[Floats], Floats]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(features, member)
    return lambda asked: np.asarray(model.decision_function(asked), np.float64)


def _overall(attacks: Mapping[str, Floats], targets: Targets, inputs: EvaluationInput) -> Score:
    """Mean AUROC of PSyGenTAB's three attacks; its black box is a model's confidence, or the distance without one."""
    three = [STUDENT if STUDENT in attacks else NEAREST, *([WHITE] if WHITE in attacks else []), LOGISTIC]
    label, ceilings = targets.member.astype(np.int8), ceilings_of(inputs)
    each = [widened(ranking(label, attacks[name]), OVERLAP if name == LOGISTIC else 1.0) for name in three]
    reach, half = interval(mean_of(each)), len(targets) // 2
    # a mean varies no more than what it is of does in the mean, however these depend on each other
    crowds = [half / (OVERLAP if name == LOGISTIC else 1.0) for name in three]
    error = sum(auroc_error(n, n) for n in crowds) / len(three)
    return attack_score(
        inputs,
        AUROC,
        reach,
        len(targets),
        student=f"{OVERALL}: mean of {', '.join(three)}",
        interval="DeLong",
        ceiling=None if ceilings is None else ceilings.auroc,
        power=auroc_power(min(crowds), min(crowds)),
        luck=float(stats.norm.sf((reach.value - 0.5) / error)),
    )


# -- a model's confidence ---------------------------------------------------------------------------------------------


def _confidence(
    inputs: EvaluationInput, targets: Targets, seed: int, threads: int
) -> tuple[dict[str, Floats], dict[str, str]]:
    """(n,) how little each model is surprised by each target's outcome; and why that cannot be said of the others."""
    models: dict[str, Model | None] = {STUDENT: None, WHITE: inputs.reference}
    why = {WHITE: "the method hands over no model of its own, or the run is evaluated from its folder"}
    weight, soft = inputs.labelled.weight, inputs.labelled.soft
    try:  # as a recipient fits one, by the manual
        models[STUDENT] = inputs.learner.fit(
            inputs.rows, inputs.made, weight=weight, soft=soft, seed=seed, threads=threads
        )
    except ModelError as error:
        why[STUDENT] = str(error)
    confidence, missing = {}, {}
    for name, model in models.items():
        losses = None if model is None else loss(model, targets.rows, targets.outcome, inputs.rows, inputs.made)
        if losses is not None:
            confidence[name] = -losses
        else:
            missing[name] = why[name] if model is None else "this model has no loss of a single row"
    return confidence, missing


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
        if model.link not in ("probability", "probabilities"):
            return None
        label = np.asarray(outcome["label"], np.int64)
        likely = np.where(label == 1, score, 1 - score) if score.ndim == 1 else score[np.arange(len(label)), label]
        return -np.log(np.clip(likely, TINY, 1.0))
    values = list(outcome.arrays.values())
    return None if len(values) != 1 or score.ndim > 1 else (score - np.asarray(values[0], np.float64)) ** 2


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
    inputs: EvaluationInput, targets: Targets, condensed: Matrix, *, seed: int, threads: int
) -> tuple[list[Score], list[str]]:
    """Shares of members and of outsiders that are linked, and the difference; the columns that the attacker knows."""
    every = places(inputs.codec)
    if len(every) < 2:
        return [attack_score(inputs, LINKED_EXCESS, UNKNOWN, len(targets), note="there is one column only")], []
    chosen = np.zeros(len(every), bool)
    chosen[np.random.default_rng([seed, 0x117C]).permutation(len(every))[: (len(every) + 1) // 2]] = True
    known = np.r_[tuple(place for (_, place), on in zip(every, chosen, strict=True) if on)]
    rows = nearest(targets.ruled[:, known], targets.ruler(condensed)[:, known], 1, threads)[1][:, 0]
    agree = np.all(agreements(inputs, targets, condensed[rows])[:, ~chosen], axis=1)
    half, ceilings = len(targets) // 2, ceilings_of(inputs)
    hits, alarms = int(agree[targets.member].sum()), int(agree[~targets.member].sum())
    scores = [
        attack_score(
            inputs, LINKED, wilson(count, half), half, tested_on=tested_on, interval="Wilson", student="linkage"
        )
        for tested_on, count in (("members", hits), ("outsiders", alarms))
    ]
    scores.append(
        attack_score(
            inputs,
            LINKED_EXCESS,
            difference(hits, half, alarms, half),
            len(targets),
            student="linkage",
            interval="Newcombe (of two Wilson intervals)",
            power=difference_power(half, half),
            luck=shares_luck(hits, half, alarms, half),
            ceiling=None if ceilings is None else ceilings.advantage,
        )
    )
    return scores, [encoded.column.name for (encoded, _), on in zip(every, chosen, strict=True) if on]


def agreements(inputs: EvaluationInput, targets: Targets, others: Matrix) -> Flags:
    """(n, columns) whether a target and the row found for it agree: in a category, or nearly in a number."""
    agree, scale, centre = [], inputs.codec.scale, inputs.codec.centre
    for encoded, place in places(inputs.codec):
        ours, theirs = targets.rows[:, place], others[:, place]
        if encoded.values:
            codes = [(rows * scale[place] + centre[place]).argmax(1) for rows in (ours, theirs)]
            agree.append(codes[0] == codes[1])
        else:
            agree.append((np.abs(ours - theirs) < AGREE * targets.ruler.scale[place]).all(1))
    return np.stack(agree, axis=1)


# -- columns ----------------------------------------------------------------------------------------------------------


def _columns(
    inputs: EvaluationInput, targets: Targets, neighbours: Matrix, seed: int
) -> tuple[list[Score], Table, Figure]:
    """What each column adds: AUROC of closeness in it, and its share in an attack on all columns together."""
    from sklearn.ensemble import GradientBoostingClassifier

    every, half = places(inputs.codec), len(targets) // 2
    gap = np.abs(targets.ruled - neighbours)
    apart = np.stack([gap[:, place].sum(1) for _, place in every], axis=1)
    most = np.sort(np.argsort(-apart.std(0), kind="stable")[:MOST_COLUMNS])
    names = [every[column][0].column.name for column in most]
    about: dict[str, Any] = {"student": ONE_COLUMN, "interval": "DeLong", "power": auroc_power(half, half)}
    label, scores = targets.member.astype(np.int8), []
    for column, name in zip(most, names, strict=True):
        reach = interval(ranking(label, -apart[:, column]))
        luck = auroc_luck(reach.value, half, half)
        scores.append(attack_score(inputs, AUROC, reach, len(targets), group=name, luck=luck, **about))
    model = GradientBoostingClassifier(n_estimators=TREES, max_depth=3, random_state=seed % 2**32)
    share = model.fit(apart[:, most], targets.member).feature_importances_
    order = np.argsort(-share, kind="stable")
    rows = tuple((names[k], round(float(share[k]), 4), round(scores[k].value, 4)) for k in order)
    title, words = (
        "What an attack leans on",
        "Shares add up to 1 also where nothing is learned: they say what an attack leans on, not that it works. "
        "Where the attack does no better than chance they are noise.",
    )
    table = Table("columns", title, ("column", "share of importance", "AUROC of it alone"), rows, words)
    series = Series("importance", tuple(row[0] for row in rows), tuple(row[1] for row in rows))
    return scores, table, Figure("columns", BARS, title, words, "column", "share of importance", (series,))
