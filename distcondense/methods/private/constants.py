"""The constants of the private method: public, the same for every table, and bound to each statement by a digest."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from distcondense.data import cells
from distcondense.methods.gated import constants_of
from distcondense.methods.private import (
    domain,
    fit,
    joint,
    linked,
    placement,
    plan,
    smoothing,
    students,
    terms,
    uncertainty,
)
from distcondense.outcomes import private_side
from distcondense.privacy import accountant, budget, contributions, curves, gate, noise, questions, rows
from distcondense.privacy.binding import json_digest

SHARED: tuple[ModuleType, ...] = (
    cells,
    plan,
    domain,
    fit,
    uncertainty,
    smoothing,
    joint,
    linked,
    terms,
    placement,
    students,
    private_side,
    accountant,
    budget,
    contributions,
    curves,
    gate,
    noise,
    questions,
    rows,
)


def constants(kind: type[Any], more: tuple[ModuleType, ...] = ()) -> dict[str, Any]:
    """Numbers in capitals, and collections of numbers, of every module that shapes a run of this kind of outcome.

    `more`: modules of another method that is built on this one.
    """
    return constants_of((*SHARED, sys.modules[kind.__module__], *more))


def constants_digest(kind: type[Any], more: tuple[ModuleType, ...] = ()) -> str:
    return json_digest(constants(kind, more))
