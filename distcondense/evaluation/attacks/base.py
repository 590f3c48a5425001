"""What attacks on membership share: who is attacked, how well members are told from others, and what that means.

Members were in the table that was condensed, outsiders were left out of it by a coin: but for that they are alike, so
whatever tells them apart has leaked. As many of either are attacked, one row of each person, and beside all of them
the most vulnerable tenth: those farthest from every other person, for whom a copy would matter most.

An attack gives each target a score, higher where it believes in a member, and `judged` reports
    AUROC       DeLong's interval (as in outcomes/measures.py)
    advantage   true minus false positives; the threshold is chosen on one half of the targets, measured on the other
    true positives at a given rate of false ones   the interval allows for the threshold being estimated, too
each with its power, the smallest value that so many targets would have shown to be above chance (95% interval) with a
probability of 80%, and the most that the guarantee allows (ceiling.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize, stats

from distcondense.arrays import Flags, Floats, Index, Matrix
from distcondense.data.codec import Codec, EncodedColumn
from distcondense.data.outcome import Outcome
from distcondense.evaluation.attacks.ceiling import Ceilings
from distcondense.evaluation.audit.stats import rate_above, rate_below
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.leaks import above_ceiling, chance, excess, is_leak
from distcondense.evaluation.ruler import Ruler
from distcondense.evaluation.score import CONDENSED, NORMAL, Interval, Score, interval
from distcondense.evaluation.score import wilson as wilson
from distcondense.evaluation.section import Section
from distcondense.kernels.neighbours import nearest
from distcondense.outcomes.measures import Measured, ranking
from distcondense.runs.figures import LINES, Figure, Series, Table

MOST = 5000  # members that are attacked, and as many outsiders
MOST_CONDENSED = 20_000  # condensed rows that an attack looks at
CROWD = 50_000  # real rows among which a target's nearest other person is looked for
LEAST = 20  # of either, for a score to be worth its interval
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
LIKELY = 0.8  # probability with which `power` would have been found
LESSONS = 5  # of an attacker who learns: on four fifths of the targets, judged on the last
# of LESSONS that overlap so many targets vary like one: 1 + LESSONS · judged/learned (Nadeau and Bengio 2003)
OVERLAP = 1 + LESSONS * (1 / LESSONS) / (1 - 1 / LESSONS)
STRICT = 1 - 0.025 / 2  # each of two one-sided limits that hold together at 97.5%


# -- who is attacked --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Targets:
    """Members and outsiders, as many of either, one row of each person."""

    rows: Matrix  # (n, d) encoded as the condensed rows are
    ruler: Ruler  # on which distances are measured
    member: Flags  # (n,)
    outcome: Outcome  # in the unit that models see
    apart: Floats  # (n,) distance to the nearest other person's row
    reference: Index  # row numbers of outsiders that are not attacked: what an attacker may know of the population
    members: int  # persons (or rows) that there are
    outsiders: int
    by_person: bool

    def __len__(self) -> int:
        return len(self.member)

    @property
    def ruled(self) -> Matrix:
        """(n, d) as distances are measured."""
        return self.ruler(self.rows)

    @property
    def vulnerable(self) -> Flags:
        """(n,) the tenth that is farthest from everybody else."""
        chosen = np.zeros(len(self), bool)
        chosen[np.argsort(-self.apart, kind="stable")[: math.ceil(len(self) / 10)]] = True
        return chosen

    def words(self) -> str:
        half, what = len(self) // 2, "persons, one row of each" if self.by_person else "rows"
        return (
            f"attacked: {half:,} of {self.members:,} members and {half:,} of {self.outsiders:,} outsiders ({what}; "
            f"at most {MOST:,} of either)"
        )

    @classmethod
    def of(cls, inputs: EvaluationInput, *, seed: int, threads: int, reference: bool = False) -> Targets:
        """By chance. With `reference` half of the outsiders are not attacked but known to the attacker."""
        rng = np.random.default_rng([seed, 0xA77A])
        members, outsiders = (_one_each(inputs, part, rng) for part in (inputs.split.train, inputs.split.test))
        known = outsiders[len(outsiders) // 2 :] if reference else outsiders[:0]
        free = outsiders[: len(outsiders) - len(known)]
        count = min(len(members), len(free), MOST)
        chosen = np.concatenate([members[:count], free[:count]])
        rows = inputs.codec.encode(inputs.cohort.features.iloc[chosen])
        others = rng.permutation(np.concatenate([members[count:], outsiders[count:]]))[: max(CROWD - len(chosen), 0)]
        ruler = Ruler.of(rows)
        crowd = ruler(np.concatenate([rows, inputs.codec.encode(inputs.cohort.features.iloc[others])]))
        # the first neighbour is the row itself, or its copy
        distance = nearest(crowd[: len(rows)], crowd, 2, threads)[0]
        apart = distance[:, 1] if distance.shape[1] > 1 else np.zeros(len(rows))
        outcome = inputs.kind.in_unit(inputs.cohort.outcome.take(chosen), inputs.unit)
        return cls(
            rows,
            ruler,
            np.arange(len(chosen)) < count,
            outcome,
            apart,
            known,
            len(members),
            len(outsiders),
            inputs.cohort.person is not None,
        )


def _one_each(inputs: EvaluationInput, part: Index, rng: np.random.Generator) -> Index:
    """The part's row numbers in random order; of a person with several rows one of them."""
    mixed = rng.permutation(part)
    if inputs.cohort.person is None:
        return mixed
    return mixed[np.sort(np.unique(inputs.cohort.person[mixed], return_index=True)[1])]


def why_not(inputs: EvaluationInput, targets: Targets | None = None) -> str:
    """Why there is nothing to attack, or nobody to attack it for; empty where there is."""
    if not len(inputs.rows):
        return "the run gave no answer: there are no condensed rows to attack"
    if not len(inputs.split.test):
        return "nobody was held out: without outsiders nothing can be said about members"
    if targets is not None and len(targets) < 2 * LEAST:
        return f"fewer than {LEAST} persons in the table or held out: too few to say anything"
    return ""


def attackable(inputs: EvaluationInput, *, seed: int, threads: int, reference: bool = False) -> Targets | str:
    """Who is attacked (`Targets.of`), or why nobody can be."""
    if why := why_not(inputs):
        return why
    targets = Targets.of(inputs, seed=seed, threads=threads, reference=reference)
    return why_not(inputs, targets) or targets


def condensed_rows(inputs: EvaluationInput, seed: int) -> Matrix:
    """The condensed rows, encoded; a random choice where there are more than an attack looks at."""
    if len(inputs.rows) <= MOST_CONDENSED:
        return inputs.rows
    chosen = np.random.default_rng([seed, 0xC0DE]).choice(len(inputs.rows), MOST_CONDENSED, replace=False)
    return inputs.rows[np.sort(chosen)]


def places(codec: Codec) -> list[tuple[EncodedColumn, slice]]:
    """The table's columns, and where each stands among the encoded ones."""
    found, at = [], 0
    for block in codec.blocks:
        if block.width:
            found.append((block, slice(at, at + block.width)))
        at += block.width
    return found


def ceilings_of(inputs: EvaluationInput) -> Ceilings | None:
    """What the guarantee allows at most; None where it is none, or one of rows where persons are attacked."""
    if inputs.cohort.person is not None and inputs.privacy.unit != "person":
        return None
    return Ceilings.of(inputs.privacy)


# -- how well they are told apart -------------------------------------------------------------------------------------


def judged(
    score: Floats,
    targets: Targets,
    ceilings: Ceilings | None,
    *,
    inputs: EvaluationInput,
    seed: int,
    student: str = "",
    crowd: float = 1.0,
) -> list[Score]:
    """Every measure of an attack's scores, on all targets and on the most vulnerable tenth.

    crowd: so many targets vary like one, OVERLAP for scores of `cross_judged`.
    """
    found = []
    for group, who in (("", np.ones(len(targets), bool)), (VULNERABLE, targets.vulnerable)):
        common: dict[str, Any] = {
            "trained_on": CONDENSED,
            "tested_on": MEMBERSHIP,
            "n": int(who.sum()),
            "covered": inputs.privacy.charged,
            "rows": len(inputs.rows),
            "student": student,
            "group": group,
        }
        inside, outside = score[who & targets.member], score[who & ~targets.member]
        if min(len(inside), len(outside)) < LEAST:
            none, note = float("nan"), f"fewer than {LEAST} members or outsiders in this group"
            found += [Score(measure, value=none, low=none, high=none, note=note, **common) for measure in TITLES]
            continue
        found.append(_auroc(inside, outside, ceilings, common, crowd))
        found.append(_advantage(inside, outside, ceilings, common, crowd, np.random.default_rng([seed, 0x4A1F])))
        found += [_caught(inside, outside, measure, ceilings, common, crowd) for measure in RATES]
    return found


def _auroc(
    inside: Floats, outside: Floats, ceilings: Ceilings | None, common: Mapping[str, Any], crowd: float
) -> Score:
    label = np.repeat(np.array([1, 0], np.int8), [len(inside), len(outside)])
    at = interval(widened(ranking(label, np.concatenate([inside, outside])), crowd))
    return Score(
        AUROC,
        value=at.value,
        low=at.low,
        high=at.high,
        interval=_words("DeLong", crowd),
        power=auroc_power(len(inside) / crowd, len(outside) / crowd),
        ceiling=None if ceilings is None else ceilings.auroc,
        **common,
    )


def _advantage(
    inside: Floats,
    outside: Floats,
    ceilings: Ceilings | None,
    common: Mapping[str, Any],
    crowd: float,
    rng: np.random.Generator,
) -> Score:
    inside, outside = rng.permutation(inside), rng.permutation(outside)
    here, there = len(inside) // 2, len(outside) // 2
    cut = _best_cut(inside[:here], outside[:there])
    hits, alarms = int((inside[here:] >= cut).sum()), int((outside[there:] >= cut).sum())
    of, among = (len(inside) - here) / crowd, (len(outside) - there) / crowd
    at = difference(hits / crowd, of, alarms / crowd, among)
    return Score(
        ADVANTAGE,
        value=at.value,
        low=at.low,
        high=at.high,
        power=difference_power(of, among),
        interval=_words("Newcombe, of two Wilson intervals", crowd),
        ceiling=None if ceilings is None else ceilings.advantage,
        **common,
    )


def _best_cut(inside: Floats, outside: Floats) -> float:
    """The threshold with the largest advantage on these."""
    cuts = np.unique(np.concatenate([inside, outside]))
    hits = 1 - np.searchsorted(np.sort(inside), cuts) / len(inside)
    alarms = 1 - np.searchsorted(np.sort(outside), cuts) / len(outside)
    return float(cuts[np.argmax(hits - alarms)])


def _caught(
    inside: Floats, outside: Floats, measure: str, ceilings: Ceilings | None, common: Mapping[str, Any], crowd: float
) -> Score:
    """True positives at a rate of false ones. The share of all outsiders above the (c+1)-th highest of n of them is
    Beta(c + 1, n − c) distributed, whatever the scores: that gives a threshold whose rate is surely below the one asked
    for, one whose rate is surely above, and the members beyond the two bound the number that is wanted."""
    rate, n, none = RATES[measure], len(outside), float("nan")
    ceiling = None if ceilings is None else ceilings.tpr(rate)
    if n * rate < 1:
        note = f"needs {math.ceil(1 / rate):,} outsiders to see so few false alarms"
        return Score(measure, value=none, low=none, high=none, note=note, ceiling=ceiling, **common)
    above = -np.sort(-outside)  # highest first
    strict, lenient = _surely(n, rate, crowd)
    value = float((inside > above[min(math.floor(n * rate), n - 1)]).mean())
    low = 0.0
    if strict is not None:
        low = _limit(rate_below, (inside > above[strict]), crowd)
    high = _limit(rate_above, (inside >= above[lenient]), crowd)
    return Score(
        measure,
        value=value,
        low=min(low, value),
        high=max(high, value),
        ceiling=ceiling,
        interval=_words("Clopper–Pearson, of members and of the threshold", crowd),
        power=rate_power(len(inside), n, rate, crowd),
        **common,
    )


def _limit(bound: Callable[..., Floats], caught: Flags, crowd: float) -> float:
    """Clopper–Pearson of as many members as vary on their own."""
    return float(bound(np.float64(caught.sum() / crowd), len(caught) / crowd, STRICT))


def widened(found: Measured, crowd: float) -> Measured:
    """A measure whose rows vary together, so many like one."""
    if found.influence is None:
        return found
    return replace(found, influence=found.influence * math.sqrt(crowd), share=max(1, math.floor(found.share / crowd)))


def _words(interval: str, crowd: float) -> str:
    return interval if crowd == 1 else f"{interval}; {LESSONS} lessons overlap, so {crowd:g} targets count as one"


def _surely(n: int, rate: float, crowd: float) -> tuple[int | None, int]:
    """(c, c): of n outsiders the most above a threshold that surely has at most this rate; the fewest for at least."""
    c = np.arange(n)
    within = stats.beta.cdf(rate, c / crowd + 1, (n - c) / crowd)
    strict, lenient = np.flatnonzero(within >= STRICT), np.flatnonzero(within <= 1 - STRICT)
    return (int(strict[-1]) if len(strict) else None), (int(lenient[0]) if len(lenient) else n - 1)


def difference(hits: float, of: float, alarms: float, among: float) -> Interval:
    """95% interval of the difference of two shares (Newcombe 1998, method 10)."""
    one, two = wilson(hits, of), wilson(alarms, among)
    value = one.value - two.value
    down = math.hypot(one.value - one.low, two.high - two.value)
    up = math.hypot(one.high - one.value, two.value - two.low)
    return Interval(value, max(value - down, -1.0), min(value + up, 1.0))


# -- what would have been found ---------------------------------------------------------------------------------------


def auroc_power(members: float, outsiders: float) -> float:
    """The smallest AUROC whose 95% interval would be above ½ with a probability of LIKELY (Hanley and McNeil 1982)."""

    def error(area: float) -> float:
        pairs, triples = area / (2 - area), 2 * area**2 / (1 + area)
        spread = area * (1 - area) + (members - 1) * (pairs - area**2) + (outsiders - 1) * (triples - area**2)
        return math.sqrt(max(spread, 0.0) / (members * outsiders))

    return _least(lambda area: area - 0.5 - NORMAL * error(0.5) - _z() * error(area), 0.5)


def difference_power(members: float, outsiders: float) -> float:
    """The same for the difference of two shares, where they vary most: around a half."""
    each = math.sqrt((1 / members + 1 / outsiders) / 4)
    return _least(lambda a: a - each * (NORMAL + _z() * math.sqrt(1 - a * a)), 0.0)


def rate_power(members: int, outsiders: int, rate: float, crowd: float = 1.0) -> float | None:
    """The same for true positives at this rate of false ones; None where no number of them would show anything."""
    if _surely(outsiders, rate, crowd)[0] is None:
        return None
    caught, of = np.arange(members + 1) / crowd, members / crowd
    enough = np.flatnonzero(rate_below(caught, of, STRICT) > rate)  # type: ignore[arg-type]
    if not len(enough):
        return None
    return float(stats.beta.ppf(LIKELY, caught[enough[0]], of - caught[enough[0]] + 1))


def _z() -> float:
    return float(stats.norm.ppf(LIKELY))


def _least(beyond: Callable[[float], float], low: float) -> float:
    return 1.0 if beyond(1.0) <= 0 else float(optimize.brentq(beyond, low, 1.0))


# -- what it means ----------------------------------------------------------------------------------------------------


def verdict(scores: Sequence[Score], titles: Mapping[str, str]) -> tuple[bool, list[str]]:
    """Whether a leak was found (leaks.py), and sentences that say so: never more than what was found at this power."""
    tested = [score for score in scores if excess(score) > -math.inf]
    leaks = [score for score in tested if is_leak(score)]
    notes = []
    if leaks:
        worst = max(leaks, key=excess)
        where = ", ".join(filter(None, (worst.student, worst.group)))
        notes.append(
            f"A leak was found: {titles[worst.measure]} is {worst.value:.3f} ({worst.low:.3f} to {worst.high:.3f})"
            f"{f' [{where}]' if where else ''}; {len(leaks)} of {len(tested)} scores are beyond what chance explains."
        )
    elif tested:
        powers = [score.power for score in tested if score.measure == AUROC and not score.group and score.power]
        reach = f": an AUROC of {max(powers):.3f} or more would have been found with 80% probability" if powers else ""
        notes.append(f"No leak found by these attacks at this power{reach}. It is no proof that there is none.")
        if lucky := sum(score.low > chance(score.measure) for score in tested):
            notes.append(
                f"{lucky} of {len(tested)} intervals lie above chance, none of them far; of independent ones about "
                "one in 40 does by luck."
            )
    else:
        notes.append("Nothing could be measured, so nothing was found or ruled out.")
    if beyond := sum(map(above_ceiling, tested)):
        notes.append(
            f"{beyond} scores lie above the ceiling of the guarantee by more than luck explains: the guarantee does "
            "not hold as stated. Repeat with another seed, and run `distcondense attack audit`."
        )
    return bool(leaks), notes


def attacked(
    name: str,
    title: str,
    inputs: EvaluationInput,
    targets: Targets,
    scores: Sequence[Score],
    *,
    notes: Iterable[str] = (),
    figures: Sequence[Figure] = (),
    tables: Sequence[Table] = (),
    titles: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Section:
    """A room's part: scores, the verdict first, then bounds. `settings["found"]` says whether a leak was found."""
    titles = {**TITLES, **(titles or {})}
    found, words = verdict(scores, titles)
    bounds = [f"{targets.words()[0].upper()}{targets.words()[1:]}."]
    if len(inputs.rows) > MOST_CONDENSED:
        bounds.append(f"On a random {MOST_CONDENSED:,} of {len(inputs.rows):,} condensed rows.")
    if inputs.privacy.charged and ceilings_of(inputs) is None:
        bounds.append("No ceiling: the guarantee is one of rows, and persons with several rows were attacked.")
    used = {score.measure for score in scores}
    return Section(
        name,
        title,
        tuple(scores),
        tuple(figures),
        tuple(tables),
        (*words, *notes, *bounds),
        {measure: words for measure, words in titles.items() if measure in used},
        {
            "found": found,
            "members": len(targets) // 2,
            "outsiders": len(targets) // 2,
            "most_targets": MOST,
            "most_condensed": MOST_CONDENSED,
            "vulnerable": int(targets.vulnerable.sum()),
            "power_at": LIKELY,
            **(settings or {}),
        },
    )


def nothing(name: str, title: str, why: str) -> Section:
    """A part without scores that says why."""
    words = f"Not attacked: {why}. That is no finding."
    return Section(name, title, notes=(words,), settings={"found": False, "attacked": False})


def roc_figure(attacks: Mapping[str, Floats], targets: Targets, ceilings: Ceilings | None) -> Figure:
    """True against false positives of each attack, at fixed rates, with the most that the guarantee allows."""
    rates = (0.0, 0.01, 0.02, 0.05, *(round(0.1 * k, 1) for k in range(1, 11)))
    series = []
    for name, score in attacks.items():
        outside = -np.sort(-score[~targets.member])
        cuts = [outside[min(math.floor(len(outside) * rate), len(outside) - 1)] for rate in rates[:-1]]
        caught = [float((score[targets.member] > cut).mean()) for cut in cuts]
        series.append(Series(name, rates, (*caught, 1.0)))
    if ceilings is not None:
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


def cross_judged(
    features: Floats, targets: Targets, fit: Callable[[Floats, Flags], Callable[[Floats], Floats]], *, seed: int
) -> tuple[Floats, list[tuple[Flags, Floats]]]:
    """Scores of an attacker who learns from four fifths of the targets, on the last fifth, five times.

    fit(features, member) gives a function features → scores. Back come a score for each target, its rank within the
    fifth in which it was judged, and of each fifth who was judged and the scores as they are.
    """
    from sklearn.model_selection import StratifiedKFold

    folds = StratifiedKFold(LESSONS, shuffle=True, random_state=seed % 2**32).split(features, targets.member)
    rank, each = np.empty(len(targets)), []
    for known, asked in folds:
        score = fit(features[known], targets.member[known])(features[asked])
        rank[asked] = stats.rankdata(score) / len(asked)
        each.append((targets.member[asked], score))
    return rank, each


def unmeasured(measure: str, why: str, *, inputs: EvaluationInput, n: int, student: str = "", group: str = "") -> Score:
    """A score that could not be had."""
    none = float("nan")
    return Score(
        measure,
        CONDENSED,
        MEMBERSHIP,
        none,
        none,
        none,
        n,
        inputs.privacy.charged,
        len(inputs.rows),
        note=why,
        student=student,
        group=group,
    )
