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
from typing import NamedTuple

import numpy as np

from distcondense.evaluation.score import FULL, PLAIN, RANDOM, SOFT
from distcondense.methods.base import default_method
from distcondense.runs.figures import LINES, Figure, Series
from distcondense.study.comparison import MODEL, Contender, StudyComparison, is_clear
from distcondense.study.results import SeedMean, mean_of

THEOREMS = ("end-to-end", "conditional")
MOST_EPSILONS = 4  # a line each; six more lines are of all
NAMED = 3  # methods or tables that a line names at most
ABOUT = (
    "A panel a table. A point is a method at one ε: students of its rows with the plain outcome column, mean over "
    "seeds; IPC is the number of rows per class. A line that is drawn through has a theorem about patients; one that "
    "is broken has its authors' account, which is none. Level lines: models of real rows, without any privacy."
)


class Advice(NamedTuple):
    """One line of the answer: what somebody needs, and what the results say to it."""

    need: str
    words: str


@dataclass(frozen=True)
class _Duel:
    """The default on one table at one ε, and how far each other method is ahead of it (−: behind)."""

    ours: Contender
    ahead: tuple[tuple[float, bool, str], ...]  # by how much, whether clearly, who: the best first


def answer(comparison: StudyComparison, seen_by: Mapping[str, Sequence[str]]) -> list[Advice]:
    """At most ten lines: who teaches best at each ε, and what else decides between methods.

    Parameters
    ----------
    comparison : StudyComparison
        Of several methods.
    seen_by : mapping of str to sequence of str
        Table → methods whose constants were set with it in view, as the study file says.

    Returns
    -------
    list of Advice
        None where nothing was measured beside the default method.
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
            others = [way for way in ways if way.same_place(ours) and not way.is_default]
            gaps = [(way.ahead_of(ours, PLAIN), way.method) for way in others]
            if ahead := [(float(gap.mean()), is_clear(gap), method) for gap, method in gaps if len(gap)]:
                yield _Duel(ours, tuple(sorted(ahead, reverse=True)))


def _at(epsilon: float, duels: Sequence[_Duel]) -> Advice:
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
    return Advice(
        f"A theorem at ε = {epsilon:g} ({duels[0].ours.guarantee})",
        f"{default_method()} teaches best on {len(won)} of {_counted(len(duels), 'table')} and is clearly behind on "
        f"{clearly or 'none'}{f'; level with it or ahead: {_listed(named)}' if named else ''}.",
    )


def _more_than_rows(duels: Sequence[_Duel], epsilon: float) -> Advice | None:
    told = []
    for labels, words in (
        (SOFT, "probabilities and weights, which as the manual says teach"),
        (MODEL, "its own model, which in the place of rows scores"),
    ):
        gaps = [duel.ours.ahead_of(duel.ours, labels, PLAIN) for duel in duels]
        means = [float(gap.mean()) for gap in gaps if len(gap)]
        if means:
            told.append(f"{words} {np.mean(means):+.3f} on {_counted(len(means), 'table')}")
    if not told:
        return None
    words = f"{default_method()} has, beside the plain outcome column at ε = {epsilon:g}, {', and '.join(told)}."
    return Advice("More than plain rows", words)


def _likeness(comparison: StudyComparison, duels: Sequence[_Duel], epsilon: float) -> Advice | None:
    """Pairs of columns, against the default's on the tables that both have."""
    gaps: dict[str, list[float]] = {}
    home = []
    for duel in duels:
        own = duel.ours.fidelity("contingency_similarity").value
        home += [] if math.isnan(own) else [own]
        for way in comparison.of(duel.ours.data):
            other = way.fidelity("contingency_similarity").value
            if way.same_place(duel.ours) and not way.is_default and not math.isnan(own + other):
                gaps.setdefault(way.method, []).append(other - own)
    if not gaps:
        return None
    ranked = sorted(gaps, key=lambda method: -float(np.mean(gaps[method])))
    named = [f"{method} {np.mean(gaps[method]):+.3f} on {_counted(len(gaps[method]), 'table')}" for method in ranked]
    return Advice(
        "Columns that go together as patients' do",
        f"contingency similarity at ε = {epsilon:g} (1 is the same): {default_method()} {np.mean(home):.3f}; against "
        f"it {_listed(named)}.",
    )


def _seconds(comparison: StudyComparison) -> Advice | None:
    found = _by_method(comparison.budgets, lambda way: mean_of(way.rows["cpu_seconds"]))
    if default_method() not in found:
        return None
    seconds = {method: float(np.mean(values)) for method, values in found.items()}
    ranked = sorted((method for method in seconds if method != default_method()), key=seconds.__getitem__)
    named = [f"{method} {_short(seconds[method])}" for method in ranked]
    rest = (
        f"; least {_listed(named)}; most {named[-1]}" if len(named) > NAMED else f"; {_listed(named)}" if named else ""
    )
    return Advice(
        "Little time",
        f"CPU seconds of a run with an ε, mean over its tables: {default_method()} "
        f"{_short(seconds[default_method()])}{rest}.",
    )


def _attacks(comparison: StudyComparison) -> Advice | None:
    by_method = _by_method(comparison.ways, lambda way: way.attack)
    found = {method: float(np.mean(values)) for method, values in by_method.items()}
    if not found:
        return None
    ranked = sorted(found, key=lambda method: -found[method])
    own = f"; {default_method()} {found[default_method()]:.3f}" if default_method() in found else ""
    named = [f"{method} {found[method]:.3f}" for method in ranked if method != default_method()]
    return Advice(
        "Attacks",
        "AUROC of the strongest one on membership (0.5 is guessing), mean over the tables where it was tried: "
        f"{_listed(named)}{own}.",
    )


def _without_theorem(comparison: StudyComparison, duels: Sequence[_Duel], epsilon: float) -> Advice | None:
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
        return None
    named = [
        f"{method} ({guarantee}) {np.mean(values):+.3f} on {_counted(len(values), 'table')}"
        for (method, guarantee), values in sorted(gaps.items(), key=lambda entry: -float(np.mean(entry[1])))
    ]
    return Advice(
        "Without a theorem",
        f"these promise less and are no rivals; against {default_method()} at ε = {epsilon:g}: {', '.join(named)}.",
    )


def _seen(duels: Sequence[_Duel], epsilon: float, seen_by: Mapping[str, Sequence[str]]) -> Advice | None:
    """On tables that nobody had looked at, as far as the study file says."""
    if not any(seen_by.values()):
        return None
    home = default_method()
    seen = [name for name, methods in seen_by.items() if home in methods]
    fresh = [name for name in seen_by if name not in seen]
    told = f"constants of {home} were set with {', '.join(seen)} in view" if seen else f"no table was seen by {home}"
    own = [duel for duel in duels if duel.ours.data.split(":")[0] in fresh]
    if not fresh:
        words = f"{told}: there is no table here that nobody had looked at."
    elif not own:
        words = f"{told}, and not with {', '.join(fresh)}, where nothing is measured yet."
    else:
        gap = float(np.mean([duel.ahead[0][0] for duel in own]))
        by = f"by {-gap:.3f} ahead of" if gap < 0 else f"by {gap:.3f} behind"
        words = (
            f"{told}, and not with {', '.join(fresh)}: there it is, at ε = {epsilon:g}, {by} the best other method, "
            f"mean over {_counted(len(own), 'table')}."
        )
    return Advice("How far to trust this", words)


def _by_method(ways: Sequence[Contender], value: Callable[[Contender], float]) -> dict[str, list[float]]:
    """The values that are there."""
    found: dict[str, list[float]] = {}
    for way in ways:
        if not math.isnan(number := value(way)):
            found.setdefault(way.method, []).append(number)
    return found


def _short(seconds: float) -> str:
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.2g}"


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
    broken = {way.method: way.guarantee not in THEOREMS for ways in tables.values() for way in ways}
    # the default first, theorems, then what most tables have; a method looks alike in all panels
    order = sorted(default, key=lambda method: (not default[method], broken[method], -everywhere[method], method))
    looks = {method: k for k, method in enumerate(order)}
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
                Series(
                    f"{method} ({guarantee})",
                    *zip(*sorted(own), strict=True),
                    look=looks[method],
                    broken=guarantee not in THEOREMS,
                )
                for (method, guarantee), own in points.items()
            ),
            at=tuple((name, mean.value) for name, mean in real if mean.seeds),
        )
