"""The examples in the docstrings of the data package run, and say what they say."""

from __future__ import annotations

import doctest
from importlib import import_module

import pytest


@pytest.mark.parametrize("module", ["schema", "column", "cohort", "large", "codec"])
def test_examples_in_docstrings_are_true(module: str) -> None:
    failed, attempted = doctest.testmod(import_module(f"distcondense.data.{module}"))
    assert attempted
    assert not failed
