"""Attacks on a condensed table: what somebody who has it can find out about the patients it was made of.

    base.py        who is attacked, and what every attack on membership reports
    membership.py  Thakur et al. 2026's: distances to the nearest condensed rows    domias.py     densities compared
    attribute.py   Thakur et al.: an attribute from the others             distance.py   PSyGenTAB's, linkage, columns
    lira.py, mechanism.py, risks.py                                        ceiling.py    what the guarantee allows

An attack that finds nothing has found nothing: the words are "no leak found by these attacks at this power". An attack
is one file here and one line in `ATTACKS`; it is loaded when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from distcondense.errors import SettingsError

if TYPE_CHECKING:
    from distcondense.evaluation.section import Section

__all__ = ["ATTACKS", "attack_named"]

_ROOM = "distcondense.evaluation.attacks"
ATTACKS: Mapping[str, str] = {  # name → module:function, in the order in which pages show them
    "membership": f"{_ROOM}.membership:section",
    "distance": f"{_ROOM}.distance:section",
    "domias": f"{_ROOM}.domias:section",
    "attribute": f"{_ROOM}.attribute:section",
    "risks": f"{_ROOM}.risks:section",
    "mechanism": f"{_ROOM}.mechanism:section",
    "lira": f"{_ROOM}.lira:section",
}


def attack_named(name: str) -> Callable[..., Section]:
    """`section(inputs, *, seed, threads, log)` of that attack."""
    if name not in ATTACKS:
        close = get_close_matches(name, ATTACKS, 1)
        raise SettingsError(
            "attack",
            f"must be one of {', '.join(ATTACKS)}",
            found=repr(name),
            fix=f"did you mean {close[0]!r}?" if close else "",
        )
    module, function = ATTACKS[name].split(":")
    found: Callable[..., Section] = getattr(import_module(module), function)
    return found
