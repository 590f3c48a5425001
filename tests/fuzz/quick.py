"""Whole runs in a moment: few candidate sets and students, nothing measured. What is promised holds at any number."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from distcondense.api import running
from distcondense.evaluation.audit import AUDITORS
from distcondense.methods import base as methods
from distcondense.privacy import accountant, curves
from tests.conftest import quicken
from tests.toys import Uniform

counted = functools.cache(curves.pld_epsilon)  # of the same questions it is the same number, and most of a run's time


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Inside, runs are short, and the method that draws rows from the schema is there."""
    with pytest.MonkeyPatch.context() as patch:
        quicken(patch)
        patch.setattr(accountant, "pld_epsilon", counted)
        patch.setattr(running, "measured", lambda *_, **__: ([], "not measured"))
        usual = AUDITORS["private"]
        patch.setitem(AUDITORS, "private", replace(usual, neighbours=usual.neighbours[:1]))  # type: ignore[arg-type]
        methods.register(Uniform())
        try:
            yield
        finally:
            methods.forget("uniform")
