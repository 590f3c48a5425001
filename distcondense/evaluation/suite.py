"""The evaluation as a list of sections, one module each, in the order in which a page shows them.

A new measure is one module with `section(inputs, *, seed, threads, log) -> Section` and a line here (an attack: in
attacks/__init__.py). Sections are independent of each other; one that fails says so, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from distcondense.data.cohort import Cohort
from distcondense.errors import SettingsError, UserError
from distcondense.evaluation.attacks import ATTACKS
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Log, Section, quiet

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
    """What an evaluation is asked for.

    Parameters
    ----------
    parts
        Names of sections, keys of `SECTIONS`.
    seed, threads
        Of everything that is drawn and fitted.
    sites
        Other sites' tables, by name.
    shadows
        Runs of the method on random halves of the table, for the attack that needs them.

    Raises
    ------
    SettingsError
        Where a part is none of `SECTIONS`.
    """

    parts: tuple[str, ...] = (*UTILITY, *LIKENESS)
    seed: int = 0
    threads: int = 1
    sites: Mapping[str, Cohort] = field(default_factory=dict)
    shadows: int = 0

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
    request: EvaluationRequest,
    *,
    known: Sequence[Score] = (),
    log: Log = quiet,
    progress: Callable[[str, int, int], None] | None = None,
    rerun: Any = None,
) -> list[Section]:
    """The sections that were asked for, in the page's order; other sites only where there are any.

    known: scores that are there already, of the run itself and of sections that were measured before. Sections that
    train models keep them, and those of sections before them, so that a number has one value.
    """
    names = [name for name in SECTIONS if name in request.parts and (name != "sites" or request.sites)]
    scores, sections = list(known), list[Section]()
    for done, name in enumerate(names):
        if progress is not None:
            progress(name, done, len(names))
        sections.append(_section(name, inputs, request, scores, log, rerun))
        scores += sections[-1].scores
    if progress is not None:
        progress("", len(names), len(names))
    return sections


def _section(
    name: str, inputs: EvaluationInput, request: EvaluationRequest, known: Sequence[Score], log: Log, rerun: Any
) -> Section:
    module, _, function = SECTIONS[name].partition(":")
    measure = getattr(import_module(module), function or "section")
    options: dict[str, Any] = {"seed": request.seed, "threads": request.threads, "log": log}
    if name in ("utility", "sites"):
        options["known"] = known
    if name == "sites":
        options["sites"] = request.sites
    if name == "lira" and request.shadows:
        options |= {"shadows": request.shadows, "rerun": rerun}
    try:
        section: Section = measure(inputs, **options)
    except UserError:
        raise
    except Exception as error:  # a library's message may quote a patient's value: its type says enough
        log(f"{name}: {type(error).__name__}")
        return Section(name, name.capitalize(), notes=(f"could not be measured: {type(error).__name__}",))
    return section
