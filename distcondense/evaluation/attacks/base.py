"""What attacks on membership share: who is attacked, how well members are told from others, and what that means.

Members were in the table that was condensed, outsiders were left out of it by a coin: but for that they are alike, so
whatever tells them apart has leaked. As many of either are attacked, one row of each person, and beside all of them
the most vulnerable tenth: those farthest from every other person, for whom a copy would matter most.

An attack gives each target a score, higher where it believes in a member, and `judged` reports
    AUROC       DeLong's interval (as in outcomes/measures.py)
    advantage   true minus false positives; the threshold is chosen on one half of the targets, measured on the other
    true positives at a given rate of false ones   the interval allows for the threshold being estimated, too
each with the probability that luck reaches it, the smallest value that so many targets would have shown (chance.py),
and the most that the guarantee allows (ceiling.py). What is a leak is decided on a whole page (../leaks.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
from scipy import stats

from distcondense.arrays import Flags, Floats
from distcondense.evaluation.attacks.chance import (
    LIKELY,
    auroc_luck,
    auroc_power,
    difference_power,
    rate_luck,
    rate_power,
    shares_luck,
)
from distcondense.evaluation.attacks.targets import (
    LEAST,
    MOST,
    MOST_CONDENSED,
    NotAttackedError,
    Targets,
    ceilings_of,
    check_attackable,
)
from distcondense.evaluation.audit.stats import rate_above, rate_below
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import CONDENSED, UNKNOWN, Interval, Score, interval, wilson
from distcondense.evaluation.section import Section
from distcondense.outcomes.measures import Measured, ranking
from distcondense.runs.figures import LINES, Figure, Series, Table

VULNERABLE = "most vulnerable tenth"
MEMBERSHIP = "members against outsiders"  # what scores of membership are measured on
AUROC, ADVANTAGE, TPR_10, TPR_001 = "auroc", "advantage", "tpr_at_0.1", "tpr_at_0.001"
RATES = {TPR_10: 0.1, TPR_001: 0.001}
TITLES = {
    AUROC: "AUROC of the attack (0.5: chance)",
    ADVANTAGE: "Membership advantage (0: chance)",
    TPR_10: "Members found at 10% false alarms (0.1: chance)",
    TPR_001: "Members found at 0.1% false alarms (0.001: chance)",
}
FOLDS = 5  # of an attacker who learns: on four fifths of the targets, judged on the last
# of FOLDS that overlap so many targets vary like one: 1 + FOLDS · judged/learned (Nadeau and Bengio 2003)
OVERLAP = 1 + FOLDS * (1 / FOLDS) / (1 - 1 / FOLDS)
STRICT = 1 - 0.025 / 2  # each of two one-sided limits that hold together at 97.5%


def attack(name: str, title: str) -> Callable[[Callable[..., Section]], Callable[..., Section]]:
    """A section of the evaluation from an attack, which may raise `NotAttackedError` wherever it cannot go on.

    Parameters
    ----------
    name : str
        Its key in `attacks.ATTACKS`.
    title : str
        Its heading.

    Returns
    -------
    Callable
        A decorator of `section(inputs, *, seed, threads, log) -> Section`: draw targets (`draw_targets`), give each a
        score, higher where it is believed to be a member, and hand the scores to `attacked`.
    """

    def decorate(section: Callable[..., Section]) -> Callable[..., Section]:
        @wraps(section)
        def attempted(inputs: EvaluationInput, **how: Any) -> Section:
            try:
                check_attackable(inputs)
                return section(inputs, **how)
            except NotAttackedError as why:
                return Section(name, title, notes=(f"Not attacked: {why}. That is no finding.",))

        return attempted

    return decorate


# -- how well they are told apart -------------------------------------------------------------------------------------


def attack_score(
    inputs: EvaluationInput, measure: str, reach: Interval, n: int, *, tested_on: str = MEMBERSHIP, **more: Any
) -> Score:
    """A score of an attack on the condensed rows; `more` are further fields of `Score`."""
    covered, rows = inputs.privacy.charged, len(inputs.rows)
    return Score.from_interval(measure, CONDENSED, tested_on, reach, n, covered, rows=rows, **more)


def judged(
    score: Floats, targets: Targets, *, inputs: EvaluationInput, seed: int, student: str = "", crowd: float = 1.0
) -> list[Score]:
    """Every measure of an attack's scores, on all targets and on the most vulnerable tenth.

    Parameters
    ----------
    score : (n,) float64
        Of each target, higher where it is believed to be a member.
    targets : Targets
    inputs : EvaluationInput
    seed : int
        Of the halves of which one chooses a threshold.
    student : str
        The attack's name within its section.
    crowd : float
        So many targets vary like one: `OVERLAP` for scores of `cross_validated`.

    Returns
    -------
    list of Score
        Each with its interval, its power, and the most that the guarantee allows.
    """
    ceilings, scores = ceilings_of(inputs), []
    most: dict[str, float] = {}
    if ceilings is not None:
        rates = {measure: ceilings.tpr(rate) for measure, rate in RATES.items()}
        most = {AUROC: ceilings.auroc, ADVANTAGE: ceilings.advantage, **rates}
    overlap = "" if crowd == 1 else f"; {FOLDS} lessons overlap, so {crowd:g} targets count as one"
    for group, who in (("", np.ones(len(targets), bool)), (VULNERABLE, targets.vulnerable)):
        inside, outside = score[who & targets.member], score[who & ~targets.member]
        for measure in TITLES:
            note, rate = "", RATES.get(measure, 1.0)
            if min(len(inside), len(outside)) < LEAST:
                note = f"fewer than {LEAST} members or outsiders in this group"
            elif len(outside) * rate < 1:
                note = f"needs {math.ceil(1 / rate):,} outsiders to see so few false alarms"
            unknown = UNKNOWN, None, None, ""
            reach, power, luck, how = unknown if note else _measured(measure, inside, outside, crowd, seed)
            about = {"note": note, "student": student, "group": group, "interval": how and how + overlap}
            ceiling, n = most.get(measure), int(who.sum())
            scores.append(attack_score(inputs, measure, reach, n, power=power, luck=luck, ceiling=ceiling, **about))
    return scores


def _measured(
    measure: str, inside: Floats, outside: Floats, crowd: float, seed: int
) -> tuple[Interval, float | None, float | None, str]:
    """One measure of members' and outsiders' scores, its power, how likely it is by luck, how its interval is made."""
    if measure == AUROC:
        label = np.repeat(np.array([1, 0], np.int8), [len(inside), len(outside)])
        reach = interval(widened(ranking(label, np.concatenate([inside, outside])), crowd))
        n, m = len(inside) / crowd, len(outside) / crowd
        return reach, auroc_power(n, m), auroc_luck(reach.value, n, m), "DeLong"
    if measure == ADVANTAGE:
        rng = np.random.default_rng([seed, 0x4A1F])
        inside, outside = rng.permutation(inside), rng.permutation(outside)
        half, other_half = len(inside) // 2, len(outside) // 2
        cut = _best_cut(inside[:half], outside[:other_half])
        hits, alarms = int((inside[half:] >= cut).sum()), int((outside[other_half:] >= cut).sum())
        n, m = (len(inside) - half) / crowd, (len(outside) - other_half) / crowd
        shares = hits / crowd, n, alarms / crowd, m
        return difference(*shares), difference_power(n, m), shares_luck(*shares), "Newcombe, of two Wilson intervals"
    power = rate_power(len(inside), len(outside), RATES[measure], crowd)
    reach = _true_positives(inside, outside, RATES[measure], crowd)
    alarms = math.floor(len(outside) * RATES[measure])
    caught = round(reach.value * len(inside))
    sides = caught / crowd, len(inside) / crowd, alarms / crowd, len(outside) / crowd
    luck: float | None = None if power is None else rate_luck(*sides)
    return reach, power, luck, "Clopper–Pearson, of members and of the threshold"


def _best_cut(inside: Floats, outside: Floats) -> float:
    """The threshold with the largest advantage on these."""
    cuts = np.unique(np.concatenate([inside, outside]))
    hits = 1 - np.searchsorted(np.sort(inside), cuts) / len(inside)
    alarms = 1 - np.searchsorted(np.sort(outside), cuts) / len(outside)
    return float(cuts[np.argmax(hits - alarms)])


def _true_positives(inside: Floats, outside: Floats, rate: float, crowd: float) -> Interval:
    """True positives at a rate of false ones. The share of all outsiders above the (c+1)-th highest of n of them is
    Beta(c + 1, n − c) distributed, whatever the scores: that gives a threshold whose rate is surely below the one asked
    for, one whose rate is surely above, and the members beyond the two bound the number that is wanted."""
    n = len(outside)
    above = -np.sort(-outside)  # highest first
    strict, lenient = _surely(n, rate, crowd)

    def limit(bound: Callable[..., Floats], caught: Flags) -> float:
        return float(bound(np.float64(caught.sum() / crowd), len(caught) / crowd, STRICT))

    value = float((inside > above[min(math.floor(n * rate), n - 1)]).mean())
    low = 0.0 if strict is None else limit(rate_below, inside > above[strict])
    return Interval(value, min(low, value), max(limit(rate_above, inside >= above[lenient]), value))


def widened(measured: Measured, crowd: float) -> Measured:
    """A measure whose rows vary together, so many like one."""
    if measured.influence is None:
        return measured
    share = max(1, math.floor(measured.share / crowd))
    return replace(measured, influence=measured.influence * math.sqrt(crowd), share=share)


def _surely(n: int, rate: float, crowd: float) -> tuple[int | None, int]:
    """(c, c): of n outsiders the most above a threshold that surely has at most this rate; the fewest for at least."""
    c = np.arange(n)
    within = stats.beta.cdf(rate, c / crowd + 1, (n - c) / crowd)
    strict, lenient = np.flatnonzero(within >= STRICT), np.flatnonzero(within <= 1 - STRICT)
    return (int(strict[-1]) if len(strict) else None), (int(lenient[0]) if len(lenient) else n - 1)


def difference(hits: float, of: float, alarms: float, among: float) -> Interval:
    """95% interval of the difference of two shares (Newcombe 1998, method 10)."""
    ours, theirs = wilson(hits, of), wilson(alarms, among)
    value = ours.value - theirs.value
    down = math.hypot(ours.value - ours.low, theirs.high - theirs.value)
    up = math.hypot(ours.high - ours.value, theirs.value - theirs.low)
    return Interval(value, max(value - down, -1.0), min(value + up, 1.0))


def cross_validated(
    features: Floats, targets: Targets, fit: Callable[[Floats, Flags], Callable[[Floats], Floats]], *, seed: int
) -> tuple[Floats, list[tuple[Flags, Floats]]]:
    """Scores of an attacker who learns from four fifths of the targets, on the last fifth, five times.

    fit(features, member) gives a function features → scores. Back come a score for each target, its rank within the
    fifth in which it was judged, and of each fifth who was judged and the scores as they are.
    """
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed % 2**32).split(features, targets.member)
    rank, each = np.empty(len(targets)), []
    for known, asked in folds:
        score = fit(features[known], targets.member[known])(features[asked])
        rank[asked] = stats.rankdata(score) / len(asked)
        each.append((targets.member[asked], score))
    return rank, each


# -- the section ------------------------------------------------------------------------------------------------------


def attacked(
    name: str,
    title: str,
    inputs: EvaluationInput,
    targets: Targets,
    attacks: Mapping[str, Floats],
    *,
    seed: int,
    overlapping: Collection[str] = (),
    scores: Iterable[Score] = (),
    notes: Iterable[str] = (),
    figures: Iterable[Figure] = (),
    tables: Sequence[Table] = (),
    titles: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Section:
    """The section of an attack: its scores, and the bounds of what was looked at.

    Parameters
    ----------
    name, title : str
        As in `attack`.
    inputs : EvaluationInput
    targets : Targets
    attacks : mapping of str to (n,) float64
        A score of each target by each attack; all are `judged` and drawn.
    seed : int
    overlapping : collection of str
        Those of `attacks` whose scores are of `cross_validated`.
    scores, notes, figures, tables
        What is reported besides.
    titles : mapping of str to str
        What people read of measures that are not in `TITLES`.
    settings : mapping
        Bounds and thresholds besides those that all attacks share.

    Returns
    -------
    Section
        Whether a leak was found is decided over all sections (`leaks.decide`).
    """
    both: list[Score] = []
    for student, values in attacks.items():
        crowd = OVERLAP if student in overlapping else 1.0
        both += judged(values, targets, inputs=inputs, seed=seed, student=student, crowd=crowd)
    both += scores
    titles = {**TITLES, **(titles or {})}
    half, what = len(targets) // 2, "persons, one row of each" if targets.by_person else "rows"
    bounds = [
        f"Attacked: {half:,} of {targets.members:,} members and {half:,} of {targets.outsiders:,} outsiders ({what}; "
        f"at most {MOST:,} of either)."
    ]
    if len(inputs.rows) > MOST_CONDENSED:
        bounds.append(f"On a random {MOST_CONDENSED:,} of {len(inputs.rows):,} condensed rows.")
    if inputs.privacy.charged and ceilings_of(inputs) is None:
        bounds.append("No ceiling: the guarantee is one of rows, and persons with several rows were attacked.")
    roc = [roc_figure(attacks, targets, inputs)] if attacks else []
    used = {score.measure for score in both}
    return Section(
        name,
        title,
        tuple(both),
        (*roc, *figures),
        tuple(tables),
        (*notes, *bounds),
        {measure: words for measure, words in titles.items() if measure in used},
        {
            "members": half,
            "outsiders": half,
            "most_targets": MOST,
            "most_condensed": MOST_CONDENSED,
            "vulnerable": int(targets.vulnerable.sum()),
            "power_at": LIKELY,
            **(settings or {}),
        },
    )


def roc_figure(attacks: Mapping[str, Floats], targets: Targets, inputs: EvaluationInput) -> Figure:
    """True against false positives of each attack, at fixed rates, with the most that the guarantee allows."""
    rates = (0.0, 0.01, 0.02, 0.05, *(round(0.1 * k, 1) for k in range(1, 11)))
    series = []
    for name, score in attacks.items():
        outside = -np.sort(-score[~targets.member])
        cuts = [outside[min(math.floor(len(outside) * rate), len(outside) - 1)] for rate in rates[:-1]]
        caught = [float((score[targets.member] > cut).mean()) for cut in cuts]
        series.append(Series(name, rates, (*caught, 1.0)))
    if (ceilings := ceilings_of(inputs)) is not None:
        series.append(Series("most that the guarantee allows", rates, tuple(ceilings.tpr(rate) for rate in rates)))
    return Figure(
        "roc",
        LINES,
        "How many members the attack finds",
        "On the diagonal an attack does no better than guessing.",
        "false alarms among outsiders",
        "members found",
        tuple(series),
        diagonal=True,
        x_range=(0, 1),
        y_range=(0, 1),
    )
