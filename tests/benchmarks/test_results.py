"""Results say how they were made, are listed, quoted by a document, and made by a command that is there."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest

import benchmarks
from benchmarks import record

FILES = record.results()


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(record.RESULTS)))
def test_a_result_says_how_it_was_made(file: Path) -> None:
    made = record.made(file)
    assert made is not None, f"{file.name} does not say command, commit, date, machine and seeds"
    assert all(made.values())
    module = re.match(r"python -m ([\w.]+)", made["command"])
    assert made["command"] == "distcondense bench" or (module and importlib.util.find_spec(module[1]) is not None)


def test_every_benchmark_can_be_imported() -> None:
    for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def test_the_list_of_results_is_as_the_command_writes_it() -> None:
    listed = (record.RESULTS / "README.md").read_text(encoding="utf-8")
    assert listed == record.index(), "run python -m benchmarks.record"


def test_every_result_is_quoted_by_a_document() -> None:
    stems = {file.stem if file.parent == record.RESULTS else file.parent.name for file in FILES}
    assert [stem for stem in sorted(stems) if not record.quoted_by(stem)] == []


def test_documents_quote_only_results_that_exist() -> None:
    for document in [record.ROOT / "README.md", *(record.ROOT / "docs").rglob("*.md")]:
        for name in re.findall(r"results/([\w.-]+\.(?:json|md|png))", document.read_text(encoding="utf-8")):
            assert (record.RESULTS / name).exists(), f"{document.name} quotes {name}"


def test_no_page_is_committed_and_a_result_without_a_header_would_be_noticed(tmp_path: Path) -> None:
    assert not list(record.RESULTS.rglob("*.html"))
    bare = tmp_path / "bare.json"
    bare.write_text('{"results": []}')
    assert record.made(bare) is None


def test_nothing_is_written_into_the_checkout_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTCONDENSE_RESULTS", raising=False)
    assert not record.target().is_relative_to(record.ROOT)
    monkeypatch.setenv("DISTCONDENSE_RESULTS", "benchmarks/results")
    assert record.target() == Path("benchmarks/results")


def test_what_is_written_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCONDENSE_RESULTS", str(tmp_path))
    record.write("toy", {"cells": [1]}, seeds=2, text="| a |")
    assert record.read("toy") == {"cells": [1]}
    assert record.read("other") is None
    for ending in (".json", ".md"):
        made = record.made(tmp_path / f"toy{ending}")
        assert made is not None
        assert made["seeds"] == "0, 1"
