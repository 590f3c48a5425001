"""The evaluation as a list of sections, one module each, in the order in which a page shows them.

A new measure is one module with `section(inputs, *, seed, threads, log) -> Section` and a line here (an attack: in
attacks/__init__.py). Sections are independent of each other; one that fails says so, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from distcondense.data.cohort import Cohort
from distcondense.errors import SettingsError, UserError
from distcondense.evaluation.attacks import ATTACKS
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.section import Say, Section, quiet

__all__ = ["ATTACKS", "LIKENESS", "SECTIONS", "UTILITY", "EvaluationRequest", "evaluated"]

UTILITY = {
    "utility": "distcondense.evaluation.utility.recipients",
    "subgroups": "distcondense.evaluation.utility.subgroups",
    "sites": "distcondense.evaluation.utility.sites",
    "imbalance": "distcondense.evaluation.utility.imbalance",
    "interpretation": "distcondense.evaluation.interpretation.attributions",
    "hazards": "distcondense.evaluation.interpretation.hazards",
    "curves": "distcondense.evaluation.interpretation.curves",
}
LIKENESS = {
    "fidelity": "distcondense.evaluation.fidelity.columns",
    "likeness": "distcondense.evaluation.fidelity.row_similarity",
    "landscape": "distcondense.evaluation.fidelity.landscape",
    "composite": "distcondense.evaluation.fidelity.composite",
    "copies": "distcondense.evaluation.copies",
}
SECTIONS = {**UTILITY, **LIKENESS, **ATTACKS}


@dataclass(frozen=True)
class EvaluationRequest:
    """What an evaluation is asked for."""

    parts: tuple[str, ...] = (*UTILITY, *LIKENESS)
    seed: int = 0
    threads: int = 1
    sites: Mapping[str, Cohort] = field(default_factory=dict)  # other sites' tables, by name
    shadows: int = 0  # runs of the method on random halves, for attacks that need them

    def __post_init__(self) -> None:
        for name in self.parts:
            if name not in SECTIONS:
                close = get_close_matches(name, list(SECTIONS), n=1, cutoff=0.5)
                raise SettingsError(
                    "parts",
                    f"must be among {', '.join(SECTIONS)}",
                    found=repr(name),
                    fix=f"say {close[0]}" if close else "leave it out for all",
                )


def evaluated(
    inputs: EvaluationInput,
    asked: EvaluationRequest,
    *,
    log: Say = quiet,
    progress: Callable[[str, int, int], None] | None = None,
    rerun: Any = None,
) -> list[Section]:
    """The parts that were asked for, in the page's order; other sites only where there are any."""
    names = [name for name in SECTIONS if name in asked.parts and (name != "sites" or asked.sites)]
    found = []
    for done, name in enumerate(names):
        if progress is not None:
            progress(name, done, len(names))
        found.append(_part(name, inputs, asked, log, rerun))
    if progress is not None:
        progress("", len(names), len(names))
    return found


def _part(name: str, inputs: EvaluationInput, asked: EvaluationRequest, log: Say, rerun: Any) -> Section:
    module, _, function = SECTIONS[name].partition(":")
    measure = getattr(import_module(module), function or "section")
    given: dict[str, Any] = {"seed": asked.seed, "threads": asked.threads, "log": log}
    if name == "sites":
        given["sites"] = asked.sites
    if name == "lira" and asked.shadows:
        given |= {"shadows": asked.shadows, "rerun": rerun}
    try:
        part: Section = measure(inputs, **given)
    except UserError:
        raise
    except Exception as error:  # a library's message may quote a patient's value: its type says enough
        log(f"{name}: {type(error).__name__}")
        return Section(name, name.capitalize(), notes=(f"could not be measured: {type(error).__name__}",))
    return part
