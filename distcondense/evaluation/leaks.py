"""What counts as a leak: one decision over all scores of all attacks on a page, for page, terminal and exit code.

Members and outsiders are told apart by a coin alone, so each score has a probability that an attack which knows nothing
reaches as much (`Score.luck`, attacks/chance.py). Of all these probabilities together Holm's step-down procedure calls
as leaks those that would stand on one page in twenty at most, were there none: the smallest of m must be below 0.05/m,
the next below 0.05/(m − 1), and so on. It holds however the scores depend on each other. What was not tried is never
told as not found.

Whether a score refutes the guarantee is another question: so far above its ceiling, in lengths of the lower half of its
interval, that the best of `SCORES` would be there by luck once in twenty pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from distcondense.evaluation.attacks import ATTACKS
from distcondense.evaluation.score import NORMAL, Score
from distcondense.evaluation.section import Section

CHANCE = {"auroc": 0.5, "tpr_at_0.1": 0.1, "tpr_at_0.001": 0.001}  # of a guess; 0 of an advantage, an excess or a risk
ONCE = 0.05  # how often all attacks on one page together may call luck a leak
SCORES = 200  # that all attacks together report, at most
SURELY = ONCE / SCORES  # a score that luck reaches no oftener is a leak whatever the others are
FAR = NormalDist().inv_cdf(1 - SURELY)  # standard deviations
NO_LEAK = "No leak found by these attacks at this power"
RULE = (
    "one decision over all scores of all attacks (Holm): were there no leak, one page in twenty at most would show one"
)


@dataclass(frozen=True)
class Decision:
    """What all attacks on a page together found, by name of the section."""

    tested: Mapping[str, tuple[Score, ...]]  # of the attacks that could have shown a leak: scores that say something
    leaks: Mapping[str, tuple[Score, ...]]  # the clearest first
    untried: tuple[str, ...]  # attacks that showed nothing and could not have

    @property
    def count(self) -> int:
        """Scores that were decided on together."""
        return sum(map(len, self.tested.values()))

    def __bool__(self) -> bool:
        return bool(self.leaks)


def decide(sections: Iterable[Section]) -> Decision:
    """Which scores of these attacks are leaks, by one decision over all of them.

    Parameters
    ----------
    sections : iterable of Section
        All that stand on a page; those that are no attacks are passed over.

    Returns
    -------
    Decision
    """
    attacks = [section for section in sections if section.name in ATTACKS]
    tested = {one.name: tuple(score for score in one.scores if score.luck is not None) for one in attacks}
    order = sorted(
        ((name, score) for name, scores in tested.items() for score in scores), key=lambda pair: pair[1].luck or 0.0
    )
    leaks: dict[str, tuple[Score, ...]] = {}
    for place, (name, score) in enumerate(order):
        if (score.luck or 0.0) > ONCE / (len(order) - place):
            break
        leaks[name] = (*leaks.get(name, ()), score)
    return Decision(
        {name: scores for name, scores in tested.items() if scores},
        {one.name: leaks[one.name] for one in attacks if one.name in leaks},
        tuple(name for name, scores in tested.items() if not scores),
    )


def in_words(section: Section, decision: Decision) -> list[str]:
    """What the page says of one attack: never more than what was found at this power."""
    tested, leaks = decision.tested.get(section.name, ()), decision.leaks.get(section.name, ())
    if not tested:
        return [] if section.notes else ["Not attacked: nothing could be measured. That is no finding."]
    words = []
    if leaks:
        worst = leaks[0]
        where = ", ".join(filter(None, (worst.student, worst.group)))
        words.append(
            f"A leak was found: {section.titles.get(worst.measure, worst.measure)} is {worst.value:.3f} "
            f"({worst.low:.3f} to {worst.high:.3f}){f' [{where}]' if where else ''}; {len(leaks)} of {len(tested)} "
            "scores are beyond what chance explains."
        )
    else:
        powers = [score.power for score in tested if score.measure == "auroc" and not score.group and score.power]
        reach = f": an AUROC of {max(powers):.3f} or more would have been found with 80% probability" if powers else ""
        words.append(f"{NO_LEAK}{reach}. It is no proof that there is none.")
        if lucky := sum(score.low > chance(score.measure) for score in tested):
            words.append(
                f"{lucky} of {len(tested)} intervals lie above chance, none of them far enough for so many scores; of "
                "independent ones about one in 40 does by luck."
            )
    if beyond := sum(map(above_ceiling, tested)):
        words.append(
            f"{beyond} scores lie above the ceiling of the guarantee by more than luck explains: the guarantee does "
            "not hold as stated. Repeat with another seed, and run `distcondense attack audit`."
        )
    return words


def chance(measure: str) -> float:
    """What an attack that knows nothing reaches."""
    return CHANCE.get(measure, 0.0)


def above_ceiling(score: Score) -> bool:
    """Whether it is above what the guarantee allows by more than luck: then the guarantee does not hold as stated.

    Never of a score that tests nothing: one without a value, or of which no value would have shown anything (no power).
    """
    if score.ceiling is None or score.power is None or not math.isfinite(score.low):
        return False
    return (score.value - score.ceiling) / max(score.value - score.low, 1e-9) * NORMAL > FAR


def titles_of(sections: Sequence[Section], names: Iterable[str]) -> list[str]:
    """What people read of these sections, in the order of the page."""
    chosen = set(names)
    return [section.title for section in sections if section.name in chosen]
