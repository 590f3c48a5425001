"""Results say how they were made, are listed, quoted by a document, and made by a command that is there."""

from __future__ import annotations

import importlib.util
import pkgutil
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

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
    assert made["command"].startswith("distcondense bench") or (
        module and importlib.util.find_spec(module[1]) is not None
    )


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


# -- numbers that documents quote

DOCUMENTS = [record.ROOT / "README.md", *sorted((record.ROOT / "docs").rglob("*.md"))]
SCORE = re.compile(r"(?<![\w.])[01]\.\d{3}(?!\d)")  # how scores are written, and nothing else


def test_a_number_that_a_document_quotes_stands_in_a_file_that_its_section_names() -> None:
    assert sum(count for count, _ in record.quotes().values()) > 300


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)
def test_what_was_measured_names_its_file(document: Path) -> None:
    for heading, section in record.sections(document).items():
        if SCORE.search(record.SETTING.sub("", section)):
            assert record.NAMED.search(section), heading


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The documents and results, to be changed."""
    for place in ("README.md", "docs", "benchmarks/results"):
        source, copy = record.ROOT / place, tmp_path / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("*.parquet", "*.ipynb", "*.png"))
        else:
            shutil.copy(source, copy)
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.setattr(record, "RESULTS", tmp_path / "benchmarks/results")
    record._values_of.cache_clear()
    yield tmp_path
    record._values_of.cache_clear()


def test_a_number_that_changes_in_a_document_is_noticed(copied: Path) -> None:
    """Every 20th, with another digit: at once where no other number of the files is that, else by its seal."""
    page, sealed = copied / "docs/results.md", record.quotes()
    text = page.read_text(encoding="utf-8")
    hidden = record.SETTING.sub(lambda found: "#" * len(found[0]), text)
    tried = {"at once": 0, "by its seal": 0}
    for number in list(record.NUMBER.finditer(hidden))[::20]:
        digit = str((int(number[1][-1]) + 5) % 10)
        page.write_text(text[: number.end(1) - 1] + digit + text[number.end(1) :], encoding="utf-8")
        try:
            assert record.quotes() != sealed, number[0]
            tried["by its seal"] += 1
        except ValueError:
            tried["at once"] += 1
    assert min(tried.values()) > 2


def test_a_result_that_changes_is_noticed_where_it_is_quoted(copied: Path) -> None:
    sealed = record.quotes()
    file = copied / "benchmarks/results/private-adult.md"
    file.write_text(file.read_text(encoding="utf-8") + "\n| one more | 0.5 |\n", encoding="utf-8")
    record._values_of.cache_clear()
    changed = {name for (name, _), seal in record.quotes().items() if sealed[name, _] != seal}
    assert changed == {"docs/results.md"}


def test_every_drawing_that_a_page_shows_is_one_by_itself() -> None:
    drawings = [*record.RESULTS.rglob("*.svg"), *(record.ROOT / "docs").rglob("*.svg")]
    assert drawings
    for file in drawings:
        assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg", file.name


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
