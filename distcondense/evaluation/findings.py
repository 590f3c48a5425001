"""`Findings`: what an evaluation says of one condensed set, as `internal/report.json` keeps it and pages show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from distcondense.evaluation.leaks import above_ceiling, is_leak
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, Score, find
from distcondense.evaluation.section import Section
from distcondense.evaluation.suite import ATTACKS
from distcondense.outcomes.measures import title
from distcondense.privacy.statement import Privacy
from distcondense.runs.figures import Figure
from distcondense.runs.files import plain

FORMAT = 1
NO_LEAK = "No leak found by these attacks at this power"


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
                "quick": [score.to_dict() for score in self.quick],
                "note": self.note,
                "figures": [asdict(figure) for figure in self.figures],
                "parts": [part.to_dict() for part in self.parts],
                "made_with": dict(self.made_with),
                "seed": self.seed,
            }
        )
        return found

    def verdict(self) -> list[str]:
        """The page in a few sentences: the guarantee, how good, how safe."""
        said = [self.privacy.sentence()]
        if self.privacy.answer:
            said.append(self.privacy.answer)
        said += _how_good(self.quick) or [self.note or "Nothing was measured on patients."]
        if self.run.get("rows_sampled") is not None:
            said.append(
                f"Evaluation saw a sample: {self.run['rows_sampled']:,} of {self.run['rows_real']:,} real rows."
            )
        return said + _how_safe(self.parts)


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


def _how_safe(parts: Sequence[Section]) -> list[str]:
    """What the attacks found: those that did better than chance, and those above what the guarantee allows."""
    tried = [part for part in parts if part.name in ATTACKS and part.scores]
    if not tried:
        return []
    if above := [part.title for part in tried if any(map(above_ceiling, part.scores))]:
        return [f"ABOVE WHAT THE GUARANTEE ALLOWS: {', '.join(above)}. Do not release; report this."]
    if leaks := [part.title for part in tried if any(map(is_leak, part.scores))]:
        return [f"A leak was found by {len(leaks)} of {_groups(tried)} of attacks: {', '.join(leaks)}."]
    return [f"{NO_LEAK} ({_groups(tried)} of attacks; those that were not tried may find more)."]


def _groups(parts: Sequence[Section]) -> str:
    return "1 group" if len(parts) == 1 else f"{len(parts)} groups"


def _shown(score: Score) -> str:
    return f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"
