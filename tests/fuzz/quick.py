"""Whole runs in a moment: few candidate sets and students, nothing measured. What is promised holds at any number."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from distcondense import api
from distcondense.methods import base as methods
from tests.conftest import quicken
from tests.toys import Uniform


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Inside, runs are short, and the method that draws rows from the schema is there."""
    with pytest.MonkeyPatch.context() as patch:
        quicken(patch)
        patch.setattr(api, "measured", lambda *_, **__: ([], "not measured"))
        methods.register(Uniform())
        try:
            yield
        finally:
            methods.forget("uniform")
