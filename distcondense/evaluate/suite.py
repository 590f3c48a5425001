"""The evaluation as a list of parts, one room each, in the order in which a page shows them.

A new measure is one room: a module with `part(home, *, seed, threads, say) -> Part` and a line here (an attack: in
attacks/__init__.py). Parts are independent of each other; one that fails says so in its place, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from distcondense.data.cohort import Cohort
from distcondense.errors import SettingsError, UserError
from distcondense.evaluate.attacks import ATTACKS
from distcondense.evaluate.home import Home
from distcondense.evaluate.part import Part, Say, quiet

__all__ = ["ATTACKS", "LIKENESS", "PARTS", "UTILITY", "Asked", "evaluated"]

UTILITY = {
    "utility": "distcondense.evaluate.utility.recipients",
    "subgroups": "distcondense.evaluate.utility.subgroups",
    "sites": "distcondense.evaluate.utility.sites",
    "imbalance": "distcondense.evaluate.utility.imbalance",
    "interpretation": "distcondense.evaluate.interpretation.attributions",
    "hazards": "distcondense.evaluate.interpretation.hazards",
    "curves": "distcondense.evaluate.interpretation.curves",
}
LIKENESS = {
    "fidelity": "distcondense.evaluate.fidelity.columns",
    "likeness": "distcondense.evaluate.fidelity.likeness",
    "landscape": "distcondense.evaluate.fidelity.landscape",
    "composite": "distcondense.evaluate.fidelity.composite",
    "copies": "distcondense.evaluate.copies",
}
PARTS = {**UTILITY, **LIKENESS, **ATTACKS}


@dataclass(frozen=True)
class Asked:
    """What an evaluation is asked for."""

    parts: tuple[str, ...] = (*UTILITY, *LIKENESS)
    seed: int = 0
    threads: int = 1
    sites: Mapping[str, Cohort] = field(default_factory=dict)  # other sites' tables, by name
    shadows: int = 0  # runs of the method on random halves, for attacks that need them

    def __post_init__(self) -> None:
        for name in self.parts:
            if name not in PARTS:
                close = get_close_matches(name, list(PARTS), n=1, cutoff=0.5)
                raise SettingsError(
                    "parts", f"must be among {', '.join(PARTS)}", found=repr(name),
                    fix=f"say {close[0]}" if close else "leave it out for all",
                )  # fmt: skip


def evaluated(
    home: Home, asked: Asked, *, say: Say = quiet, progress: Callable[[str, int, int], None] | None = None,
    rerun: Any = None,
) -> list[Part]:  # fmt: skip
    """The parts that were asked for, in the page's order; other sites only where there are any."""
    names = [name for name in PARTS if name in asked.parts and (name != "sites" or asked.sites)]
    found = []
    for done, name in enumerate(names):
        if progress is not None:
            progress(name, done, len(names))
        found.append(_part(name, home, asked, say, rerun))
    if progress is not None:
        progress("", len(names), len(names))
    return found


def _part(name: str, home: Home, asked: Asked, say: Say, rerun: Any) -> Part:
    module, _, function = PARTS[name].partition(":")
    measure = getattr(import_module(module), function or "part")
    given: dict[str, Any] = {"seed": asked.seed, "threads": asked.threads, "say": say}
    if name == "sites":
        given["sites"] = asked.sites
    if name == "lira" and asked.shadows:
        given |= {"shadows": asked.shadows, "rerun": rerun}
    try:
        part: Part = measure(home, **given)
    except UserError:
        raise
    except Exception as error:  # a library's message may quote a patient's value: its type says enough
        say(f"{name}: {type(error).__name__}")
        return Part(name, name.capitalize(), notes=(f"could not be measured: {type(error).__name__}",))
    return part
