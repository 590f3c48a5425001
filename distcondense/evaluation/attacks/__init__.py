"""Attacks on a condensed table: what somebody who has it can find out about the patients it was made of.

    base.py        what every attack on membership reports        targets.py    who is attacked
    ceiling.py     what the guarantee allows                      mixed_table.py    rows as an attacker lays them out
    membership.py  Thakur et al. 2026's: distances to the nearest condensed rows
    attribute.py   Thakur et al. 2026's: an attribute from the others
    distance.py    PSyGenTAB's, linkage, columns                  domias.py     densities compared
    lira.py        shadow runs                                    risks.py      singling out, linking, inferring
    mechanism.py   an attacker who knows how private tables are made

An attack that finds nothing has found nothing: the words are "no leak found by these attacks at this power". An attack
is one module here with a `section` (decorated by `base.attack`) and one line in `ATTACKS`; it is loaded when asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["ATTACKS"]

ATTACKS: Mapping[str, str] = {  # name → module, in the order in which pages show them
    name: f"{__name__}.{name}"
    for name in ("membership", "distance", "domias", "attribute", "risks", "mechanism", "lira")
}
