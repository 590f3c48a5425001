"""`Findings`: what an evaluation says of one condensed set, as `internal/report.json` keeps it and pages show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from distcondense.evaluation.leaks import NO_LEAK, RULE, above_ceiling, decide, titles_of
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, Score, find
from distcondense.evaluation.section import Section
from distcondense.evaluation.shortfall import shortfall
from distcondense.evaluation.suite import ATTACKS
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import Privacy
from distcondense.runs.figures import Figure
from distcondense.runs.files import plain

FORMAT = 1


@dataclass(frozen=True)
class Findings:
    """Everything on one page: the run, the quick scores, the method's own figures, and the parts."""

    run: Mapping[str, Any]  # name, method, outcome, when and with what it was made, numbers of rows
    privacy: Privacy
    quick: tuple[Score, ...] = ()
    note: str = ""  # why there are no scores
    figures: tuple[Figure, ...] = ()
    parts: tuple[Section, ...] = ()
    made_with: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0  # of everything that was drawn for it

    @property
    def scores(self) -> list[Score]:
        return [*self.quick, *(score for part in self.parts for score in part.scores)]

    def to_dict(self) -> dict[str, Any]:
        stated = {**self.privacy.to_dict(), "short": self.privacy.short(), "sentence": self.privacy.sentence()}
        found: dict[str, Any] = plain(
            {
                "format": FORMAT,
                "run": dict(self.run),
                "privacy": stated,
                "verdict": self.verdict(),
                "poor": bool(self.shortfall),
                "quick": [score.to_dict() for score in self.quick],
                "note": self.note,
                "figures": [asdict(figure) for figure in self.figures],
                "parts": [part.to_dict() for part in self.parts],
                "made_with": dict(self.made_with),
                "seed": self.seed,
            }
        )
        return found

    @property
    def shortfall(self) -> str:
        """Why the condensed rows should not be relied on; empty where nothing speaks against it."""
        return shortfall(self.quick, self.run.get("outcome", {}))

    def verdict(self) -> list[str]:
        """The page in a few sentences: what speaks against the rows, the guarantee, how good, how safe."""
        said = [*filter(None, [self.shortfall]), self.privacy.sentence()]
        if self.privacy.answer:
            said.append(self.privacy.answer)
        said += _how_good(self.quick) or [self.note or "Nothing was measured on patients."]
        if self.run.get("rows_sampled") is not None:
            said.append(
                f"Evaluation saw a sample: {self.run['rows_sampled']:,} of {self.run['rows_real']:,} real rows."
            )
        return said + self.safety()

    def safety(self) -> list[str]:
        """What the attacks found, what was not tried, and what to do now; nothing where none was asked for."""
        return _how_safe(self.parts, self.privacy)

    @property
    def leaky(self) -> bool:
        """Whether attacks found a leak, or more than the guarantee allows."""
        return bool(decide(self.parts)) or bool(_above(self.parts))


def _how_good(scores: Sequence[Score]) -> list[str]:
    """The main measure of a model of the condensed rows, between its ceiling and its floor."""
    made = find(scores, CONDENSED)
    if made is None or math.isnan(made.value):
        return []
    text = (
        f"A model trained on the {made.rows} condensed rows reaches {title(made.measure)} {_shown(made)} "
        f"on {made.n} held-out patients' rows"
    )
    best, floor = (find(scores, way, made.measure) for way in (FULL, RANDOM))
    beside = []
    if best is not None and not math.isnan(best.value):
        beside.append(f"one trained on {best.rows} real rows {_shown(best)}")
    if floor is not None and not math.isnan(floor.value):
        beside.append(f"one trained on {floor.rows} random real rows {_shown(floor)}")
    return [f"{text}; {', '.join(beside)}." if beside else f"{text}."]


def _how_safe(parts: Sequence[Section], privacy: Privacy) -> list[str]:
    decision = decide(parts)
    said = []
    if decision.untried:
        named = ", ".join(titles_of(parts, decision.untried))
        said = [f"Not tried, so neither found nor ruled out: {named}; the reasons stand with each."]
    if not decision.tested:
        return said
    tried = f"{_groups(len(decision.tested))} of attacks, {decision.count:,} scores"
    if above := _above(parts):
        return [f"ABOVE WHAT THE GUARANTEE ALLOWS: {', '.join(above)}. Do not release; report this.", *said]
    if not decision:
        return [f"{NO_LEAK} ({tried}; {RULE}). Attacks that were not tried may find more.", *said]
    named = ", ".join(titles_of(parts, decision.leaks))
    return [f"A LEAK WAS FOUND by {len(decision.leaks)} of {tried}: {named} ({RULE}).", _what_now(privacy), *said]


def _above(parts: Sequence[Section]) -> list[str]:
    return [part.title for part in parts if part.name in ATTACKS and any(map(above_ceiling, part.scores))]


def _what_now(privacy: Privacy) -> str:
    """What to do about a leak."""
    again = "attack again with another --seed, which a real leak survives"
    if not privacy.charged:
        return (
            f"What to do now: hand nothing over; {again}. No theorem bounds what is leaked here: use a method with one."
        )
    return (
        f"What to do now: hand nothing over yet; {again}. Nothing is above what {privacy.short()} allows: if it is "
        "more than you accept, the remedy is a smaller ε; read in internal/report.html what was found, and of whom."
    )


def _groups(count: int) -> str:
    return "1 group" if count == 1 else f"{count} groups"


def _shown(score: Score) -> str:
    return f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"
