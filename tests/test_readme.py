"""README and pages are true: their Python runs, their commands exist, the demo does what the first screen says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distcondense.cli.demo import COHORTS
from distcondense.data.outcome import kind_named
from distcondense.errors import SettingsError
from distcondense.methods.base import methods
from tests.conftest import SMALL_TABLE, small_frame
from tests.shell import Call

ROOT = Path(__file__).resolve().parents[1]
README = "README.md"
PAGES = (README, *(f"docs/{name}.md" for name in ("custodian", "recipient", "operator", "method", "results")))
SCREENS = 100  # lines of the README


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(kind: str, page: str = README) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text_of(page), re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """Every `distcondense …` line of the shell blocks, as words, without its comment."""
    lines = "\n".join(blocks("sh", page)).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("distcondense ")]


# -- what it shows ----------------------------------------------------------------------------------------------------


def test_the_python_of_readme_and_pages_runs_as_it_stands(tmp_path: Path) -> None:
    frame = small_frame(4000).drop(columns=["months", "event"]).assign(mrn=[f"p{k // 2}" for k in range(4000)])
    frame.to_parquet(tmp_path / "cohort.parquet")
    (tmp_path / "cohort.toml").write_text(SMALL_TABLE.without(["months", "event"]).to_toml(), encoding="utf-8")
    pages = {page: "\n".join(blocks("python", page)) for page in PAGES}
    assert "dc.condense" in pages[README]
    code = "\n".join([pages.pop(README), 'result.save("run/")', *pages.values()])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/release/condensed.csv").exists()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_exists_and_so_do_its_options(
    page: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # help cuts no option
    said = commands(page)
    if page == README:
        assert {"condense", "evaluate", "privacy"} <= {words[0] for words in said}
    for words in said:
        own = words[: words.index("--")] if "--" in words else words  # what is behind it is another command
        group = own[:2] if own[0] in ("schema", "privacy", "attack") else own[:1]
        if group[0] == "attack" and group[1:] != ["audit"]:
            group = ["attack", "a-run"]
        beside = [word for flag in ("--method", "--ray") for word in said_with(flag, own)]
        answer = call(*group, *beside, "--help")
        assert answer.code == 0, own
        known = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", answer.out))
        assert {word.split("=")[0] for word in own if re.match(r"--?[a-z]", word)} <= known, own


def said_with(flag: str, words: list[str]) -> list[str]:
    """An option of `condense` beside which help shows others, as it stands in a command."""
    if words[0] != "condense" or flag not in words:
        return []
    place = words.index(flag)
    return [flag] if flag == "--ray" else words[place : place + 2]


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_links_to_exists(page: str) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", text_of(page)):
        assert ((ROOT / page).parent / link).exists(), link


def test_the_readme_is_two_screens_and_the_afternoon_five_commands() -> None:
    assert len(text_of(README).splitlines()) <= SCREENS
    afternoon = text_of(README).split("## The custodian's afternoon")[1].split("```sh\n")[1].split("```")[0]
    assert len([line for line in afternoon.splitlines() if line.startswith("distcondense ")]) <= 5


@pytest.mark.parametrize("page", PAGES)
def test_every_benchmark_that_a_page_names_exists(page: str) -> None:
    for name in set(re.findall(r"python -m (benchmarks\.\w+)", text_of(page))):
        place = ROOT / name.replace(".", "/")
        assert place.with_suffix(".py").exists() or (place / "__main__.py").exists(), name


def test_every_make_target_of_the_readme_exists() -> None:
    targets = re.findall(r"^make (\w+)", "\n".join(blocks("sh") + blocks("sh", "docs/operator.md")), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert {"demo", "test"} <= set(targets)
    assert all(f"\n{target}:" in makefile for target in targets)


# -- the demo, run once -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Demo:
    out: Path
    printed: str
    logged: str

    def read(self, cohort: str, method: str, file: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / cohort / method / file).read_text(encoding="utf-8"))
        return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    out = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [sys.executable, "-m", "distcondense", "demo", "--out", str(out), "--threads", "2"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Demo(out, done.stdout, done.stderr)


BOTH = [method.name for method in methods() if all(map(method.takes, map(kind_named, ("binary", "survival"))))]
SHOWN = BOTH[:2]
RUNS = [(cohort, method) for cohort in COHORTS for method in SHOWN]


@pytest.mark.parametrize(("cohort", "method"), RUNS)
def test_the_demo_writes_a_run_folder_for_every_method_on_every_cohort(demo: Demo, cohort: str, method: str) -> None:
    run = demo.out / cohort / method
    assert (run / "release/condensed.csv").exists()
    for room in ("internal", "release"):
        assert (run / room / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert demo.read(cohort, method, "internal/run.json")["method"] == method


def test_the_demo_condenses_a_classification_and_a_survival_cohort(demo: Demo) -> None:
    for cohort, measure in (("breast_cancer", "auroc"), ("gbsg2", "c_index")):
        for method in SHOWN:
            scores = demo.read(cohort, method, "internal/run.json")["scores"]
            assert any((s["measure"], s["trained_on"]) == (measure, "condensed") for s in scores)


def test_the_demo_labels_every_method_as_what_it_is(demo: Demo) -> None:
    for cohort in COHORTS:
        assert demo.read(cohort, "private", "release/privacy.json")["guarantee"] == "end-to-end"
        assert demo.read(cohort, "published", "release/privacy.json")["guarantee"] == "as-published"


def test_the_demo_shows_both_methods_in_one_table(demo: Demo) -> None:
    tables = re.findall(r"┏.*?└", demo.printed, re.DOTALL)
    assert len(tables) == len(COHORTS)
    for table in tables:
        first = [line.split("│")[1].strip() for line in table.splitlines() if line.startswith("│")]
        assert [cell for cell in first if cell in SHOWN] == SHOWN
        words = " ".join(first)
        assert "end-to-end" in words
        assert "as-published" in words


def test_the_demo_prints_two_screens_and_ends_with_what_to_open(demo: Demo) -> None:
    lines = demo.printed.splitlines()
    assert len(lines) + len(demo.logged.splitlines()) <= SCREENS
    assert lines[-1 - len(RUNS)].startswith("open")
    for (cohort, method), line in zip(RUNS, lines[-len(RUNS) :], strict=True):
        assert f"{demo.out / cohort / method}/release/report.html" in line


def test_the_demo_as_json_is_one_object_and_can_be_asked_for_one_method(
    demo: Demo, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it prints, from the runs above."""

    def run(cohort: Any, *, method: str, out: Path, **said: Any) -> Any:
        if method not in SHOWN:  # a base install has no JAX
            raise SettingsError(method, "needs JAX", found="none")
        privacy = demo.read(out.parent.name, method, "release/privacy.json")
        return SimpleNamespace(
            privacy=SimpleNamespace(
                to_dict=lambda: privacy, sentence=lambda: "", guarantee=privacy["guarantee"], answer=privacy["answer"]
            ),
            internal=demo.read(out.parent.name, method, "internal/run.json"),
        )

    monkeypatch.setattr("distcondense.api.condense", run)
    shown = json.loads(call("demo", "--json").out)["runs"]
    assert {(cohort, method) for cohort in shown for method in shown[cohort]} == set(RUNS)
    assert shown["gbsg2"]["private"]["privacy"]["guarantee"] == "end-to-end"
    assert shown["gbsg2"]["private"]["scores"]
    shown = json.loads(call("demo", "--json", "--method", "published").out)["runs"]
    assert {cohort: list(runs) for cohort, runs in shown.items()} == {cohort: ["published"] for cohort in COHORTS}
    assert len(BOTH) > len(SHOWN)
    everybody = call("demo", "--all-methods")
    assert all(f"left out: {name}" in everybody.out + everybody.err for name in BOTH[2:])
    assert call("demo", "--json", "--method", BOTH[2]).code == 2
