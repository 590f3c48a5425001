"""Which method when, in at most ten lines, and one picture of all methods: what a study of several of them comes to.

Everything follows from the results: no line names a method, a table or a number that was not measured. Compared are
plain labels at equal ε of the default's guarantee, table by table, at the smallest number of rows per class (IPC) that
most methods have. "Clearly" is told by seeds (`comparison.is_clear`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from distcondense.evaluation.score import FULL, PLAIN, RANDOM, SOFT
from distcondense.methods.base import default_method
from distcondense.runs.figures import LINES, Figure, Series
from distcondense.study.comparison import MODEL, Contender, StudyComparison, is_clear
from distcondense.study.results import SeedMean, mean_of

MOST_EPSILONS = 4  # a line each; six more lines are of all
NAMED = 3  # methods or tables that a line names at most
ABOUT = (
    "Each panel: one table. A point is a method at one ε: students of its rows with the plain outcome column, mean "
    "over seeds. Dashed: real rows, without any privacy. Only an ε called end-to-end is a theorem about patients."
)


@dataclass(frozen=True)
class _Duel:
    """The default on one table at one ε, and how far each other method is ahead of it (−: behind)."""

    ours: Contender
    ahead: tuple[tuple[float, bool, str], ...]  # by how much, whether clearly, who: the best first


def answer(comparison: StudyComparison, seen_by: Mapping[str, Sequence[str]]) -> list[str]:
    """At most ten lines: who teaches best at each ε, and what else decides between methods.

    Parameters
    ----------
    comparison : StudyComparison
        Of several methods.
    seen_by : mapping of str to sequence of str
        Table → methods whose constants were set with it in view, as the study file says.

    Returns
    -------
    list of str
        Sentences; none where nothing was measured beside the default method.
    """
    duels = list(_duels(comparison))
    if not duels:
        return []
    budgets = sorted({duel.ours.epsilon for duel in duels})
    middle = max(budgets, key=lambda epsilon: (sum(duel.ours.epsilon == epsilon for duel in duels), -abs(epsilon - 1)))
    shown = budgets if len(budgets) <= MOST_EPSILONS else [middle]
    lines = [_at(epsilon, [duel for duel in duels if duel.ours.epsilon == epsilon]) for epsilon in shown]
    at_middle = [duel for duel in duels if duel.ours.epsilon == middle]
    lines += [
        line
        for line in (
            _more_than_rows(at_middle, middle),
            _likeness(comparison, at_middle, middle),
            _seconds(comparison),
            _attacks(comparison),
            _without_theorem(comparison, at_middle, middle),
            _seen(at_middle, middle, seen_by),
        )
        if line
    ]
    return lines


def _duels(comparison: StudyComparison) -> Iterator[_Duel]:
    for data in comparison.by_data:
        ways = [way for way in comparison.of(data) if not math.isnan(way.epsilon) and len(way.measured(PLAIN))]
        if not ways:
            continue
        ipc = comparison.common_ipc(data)
        for ours in (way for way in ways if way.is_default and way.ipc == ipc):
            ahead = []
            for way in ways:
                gap = (way.seeds(PLAIN) - ours.seeds(PLAIN)).dropna()
                if way.same_place(ours) and not way.is_default and len(gap):
                    ahead.append((float(gap.mean()), is_clear(gap), way.method))
            if ahead:
                yield _Duel(ours, tuple(sorted(ahead, reverse=True)))


def _at(epsilon: float, duels: Sequence[_Duel]) -> str:
    won = [duel for duel in duels if duel.ahead[0][0] < 0]
    lost = sorted(
        (duel for duel in duels if duel not in won), key=lambda duel: (not duel.ahead[0][1], -duel.ahead[0][0])
    )
    clearly = sum(any(by > 0 and surely for by, surely, _ in duel.ahead) for duel in lost)
    named = [
        f"{who} on {duel.ours.data} ({by:+.3f}{', clearly' if surely else ''})"
        for duel in lost
        for by, surely, who in duel.ahead[:1]
    ]
    rest = f"; level with it or ahead: {_listed(named)}" if named else ""
    return (
        f"ε = {epsilon:g} ({duels[0].ours.guarantee}): {default_method()} teaches best on {len(won)} of "
        f"{_counted(len(duels), 'table')} and is clearly behind on {clearly or 'none'}{rest}."
    )


def _more_than_rows(duels: Sequence[_Duel], epsilon: float) -> str:
    told = []
    for labels, words in ((SOFT, "labels as the manual says"), (MODEL, "its own model in their place")):
        gaps = [(duel.ours.seeds(labels) - duel.ours.seeds(PLAIN)).dropna() for duel in duels]
        means = [float(gap.mean()) for gap in gaps if len(gap)]
        if means:
            told.append(f"{words}, {np.mean(means):+.3f} (mean over {_counted(len(means), 'table')})")
    if not told:
        return ""
    return (
        f"More than plain rows of {default_method()}, where a recipient can use it, ε = {epsilon:g}: {'; '.join(told)}."
    )


def _likeness(comparison: StudyComparison, duels: Sequence[_Duel], epsilon: float) -> str:
    """Pairs of columns, against the default's on the tables that both have."""
    gaps: dict[str, list[float]] = {}
    for duel in duels:
        own = duel.ours.fidelity("contingency_similarity").value
        for way in comparison.of(duel.ours.data):
            other = way.fidelity("contingency_similarity").value
            if way.same_place(duel.ours) and not way.is_default and not math.isnan(own + other):
                gaps.setdefault(way.method, []).append(other - own)
    if not gaps:
        return ""
    ranked = sorted(gaps, key=lambda method: -float(np.mean(gaps[method])))
    named = [f"{method} {np.mean(gaps[method]):+.3f} ({_counted(len(gaps[method]), 'table')})" for method in ranked]
    return (
        f"Pairs of columns like patients' (contingency similarity against that of {default_method()}, ε = "
        f"{epsilon:g}): {_listed(named)}."
    )


def _seconds(comparison: StudyComparison) -> str:
    found = _by_method(comparison, lambda way: mean_of(way.rows["cpu_seconds"]))
    if default_method() not in found:
        return ""
    seconds = {method: float(np.mean(values)) for method, values in found.items()}
    ranked = sorted((method for method in seconds if method != default_method()), key=seconds.__getitem__)
    named = [f"{method} {seconds[method]:.3g}" for method in ranked]
    rest = (
        f"; least {_listed(named)}; most {named[-1]}" if len(named) > NAMED else f"; {_listed(named)}" if named else ""
    )
    return (
        f"CPU seconds of a run, mean over its tables and ε: {default_method()} {seconds[default_method()]:.3g}{rest}."
    )


def _attacks(comparison: StudyComparison) -> str:
    by_method = _by_method(comparison, lambda way: way.attack)
    found = {method: float(np.mean(values)) for method, values in by_method.items()}
    if not found:
        return ""
    ranked = sorted(found, key=lambda method: -found[method])
    own = f"; {default_method()} {found[default_method()]:.3f}" if default_method() in found else ""
    named = [f"{method} {found[method]:.3f}" for method in ranked if method != default_method()]
    return (
        f"The strongest membership attack on a table (AUROC, 0.5 is guessing), mean over tables: {_listed(named)}{own}."
    )


def _without_theorem(comparison: StudyComparison, duels: Sequence[_Duel], epsilon: float) -> str:
    """What promises less, on the tables that both have: how far its rows are from the default's."""
    gaps: dict[tuple[str, str], list[float]] = {}
    for duel in duels:
        own = SeedMean.from_rows(duel.ours.measured(PLAIN)).value
        for way in comparison.of(duel.ours.data):
            same = way.ipc == duel.ours.ipc and (math.isnan(way.epsilon) or way.epsilon == epsilon)
            value = SeedMean.from_rows(way.measured(PLAIN)).value
            if same and way.guarantee != duel.ours.guarantee and not math.isnan(value):
                gaps.setdefault((way.method, way.guarantee), []).append(value - own)
    if not gaps:
        return ""
    named = [
        f"{method} ({guarantee}) {np.mean(values):+.3f} on {_counted(len(values), 'table')}"
        for (method, guarantee), values in sorted(gaps.items(), key=lambda entry: -float(np.mean(entry[1])))
    ]
    return (
        f"No theorem stands behind these, whose numbers are no rivals': against {default_method()} at ε = {epsilon:g}, "
        f"{', '.join(named)}."
    )


def _seen(duels: Sequence[_Duel], epsilon: float, seen_by: Mapping[str, Sequence[str]]) -> str:
    """On tables that nobody had looked at, as far as the study file says."""
    if not any(seen_by.values()):
        return ""
    home = default_method()
    seen = [name for name, methods in seen_by.items() if home in methods]
    fresh = [name for name in seen_by if name not in seen]
    told = f"Constants of {home} were set with {', '.join(seen)} in view" if seen else f"No table was seen by {home}"
    own = [duel for duel in duels if duel.ours.data.split(":")[0] in fresh]
    if not fresh:
        return f"{told}: there is no table here that nobody had looked at."
    if not own:
        return f"{told}, and not with {', '.join(fresh)}, where nothing is measured yet."
    gap = float(np.mean([duel.ahead[0][0] for duel in own]))
    words = f"by {-gap:.3f} ahead of" if gap < 0 else f"by {gap:.3f} behind"
    return (
        f"{told}, and not with {', '.join(fresh)}: there it is, at ε = {epsilon:g}, {words} the best other method, "
        f"mean over {_counted(len(own), 'table')}."
    )


def _by_method(comparison: StudyComparison, value: Callable[[Contender], float]) -> dict[str, list[float]]:
    """The values that are there."""
    found: dict[str, list[float]] = {}
    for way in comparison.ways:
        if not math.isnan(number := value(way)):
            found.setdefault(way.method, []).append(number)
    return found


def _listed(named: Sequence[str]) -> str:
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more


def _counted(many: int, what: str) -> str:
    return f"{many} {what}{'s' * (many != 1)}"


def against_epsilon(comparison: StudyComparison) -> Iterator[Figure]:
    """A panel a table: plain labels against ε, a line a method, and the levels of real rows."""
    tables: dict[str, dict[Contender, float]] = {}
    for way in comparison.budgets:
        mean = SeedMean.from_rows(way.measured(PLAIN))
        if mean.seeds and way.ipc == comparison.common_ipc(way.data):
            tables.setdefault(way.data, {})[way] = mean.value
    everywhere = Counter(way.method for ways in tables.values() for way in {way.method: way for way in ways}.values())
    default = {way.method: way.is_default for ways in tables.values() for way in ways}
    # the default first, then what most tables have; a method looks alike in all panels
    looks = {name: k for k, name in enumerate(sorted(default, key=lambda m: (not default[m], -everywhere[m], m)))}
    for number, (data, found) in enumerate(tables.items()):
        points: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for way in sorted(found, key=lambda way: looks[way.method]):
            points.setdefault((way.method, way.guarantee), []).append((way.epsilon, found[way]))
        ipc = comparison.common_ipc(data)
        levels = ((FULL, "all real rows", None), (RANDOM, "as many real rows", ipc))
        real = [(name, comparison.real(data, trained_on, of)) for trained_on, name, of in levels]
        yield Figure(
            f"epsilon-{number}",
            LINES,
            f"{data}, IPC {ipc}",
            ABOUT,
            "ε",
            comparison.measure(data),
            tuple(
                Series(f"{method} ({guarantee})", *zip(*sorted(own), strict=True), look=looks[method])
                for (method, guarantee), own in points.items()
            ),
            at=tuple((name, mean.value) for name, mean in real if mean.seeds),
        )
