"""README and pages are true: their Python runs, their commands exist, the demo does what the first screen says."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from distcondense.cli.demo import COHORTS
from distcondense.data.outcome import kind_named
from distcondense.data.schema import Column, Schema
from distcondense.errors import SettingsError
from distcondense.methods.base import methods
from distcondense.runs.release import ReleaseInfo, missing_for_health_record
from tests.conftest import SMALL_TABLE, small_frame
from tests.shell import Call

ROOT = Path(__file__).resolve().parents[1]
README = "README.md"
PAGES = (
    README,
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
    *(path.relative_to(ROOT).as_posix() for path in (ROOT / "cluster").glob("*.md")),
)
SCREEN = 60  # lines


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(kind: str, page: str = README) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", text_of(page), re.DOTALL)


def commands(page: str) -> list[list[str]]:
    """Every `distcondense …` line of the shell blocks, as words, without its comment."""
    lines = "\n".join(blocks("sh", page)).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("distcondense ")]


# -- what it shows ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Desk:
    """A folder with the files that pages speak of."""

    folder: Path
    table: pd.DataFrame


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_placement: None) -> Desk:
    monkeypatch.chdir(tmp_path)
    table = small_frame(4000).drop(columns=["months", "event"]).assign(mrn=[f"p{k // 2}" for k in range(4000)])
    table["sex"] = np.where(table["age"] % 2, "f", "m")
    schema = SMALL_TABLE.without(["months", "event"])
    schema = replace(schema, columns=(*schema.columns, Column("sex", "binary", categories=("f", "m"))))
    table.to_parquet("cohort.parquet")
    table.to_csv("cohort.csv", index=False)
    for name in ("cohort.toml", "schema.toml"):
        Path(name).write_text(schema.to_toml(), encoding="utf-8")
    return Desk(tmp_path, table)


def test_the_python_of_every_page_runs_as_it_stands(desk: Desk) -> None:
    pages = {page: "\n".join(blocks("python", page)) for page in PAGES}
    pages = {page: code for page, code in pages.items() if code}
    assert {README, "docs/five-minutes.md", "docs/recipient.md", "docs/operator.md"} <= set(pages)
    assert "dc.condense" in pages[README]
    pages[README] += 'result.save("run/")'
    for page, code in pages.items():
        if 'out="run"' in code:
            shutil.rmtree("run")
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
            exec(compile(code, page, "exec"), {"frame": desk.table})
    assert Path("run/release/condensed.csv").exists()


def test_every_piece_of_a_schema_or_of_release_toml_on_a_page_is_one(tmp_path: Path) -> None:
    pieces = [piece for page in PAGES for piece in blocks("toml", page)]
    about = [piece for piece in pieces if piece.startswith("title")]
    assert [missing_for_health_record(ReleaseInfo.from_dict(tomllib.loads(piece))) for piece in about] == [[]]
    pieces = [piece for piece in pieces if piece not in about]
    assert len(pieces) >= 5
    for piece in pieces:
        file = tmp_path / "schema.toml"
        file.write_text(piece if piece.startswith("format") else f"format = 1\n{piece}", encoding="utf-8")
        assert Schema.from_toml(file).names


# what takes a terminal, a cluster, a network or long, by words of the command; and the test that runs it
ELSEWHERE = {
    "demo": "tests/test_readme.py::test_the_demo_writes_a_run_folder_for_every_method_on_every_cohort",
    "submit": "tests/cluster/test_submit.py::test_the_demo_runs_as_a_job_and_leaves_its_result_folders",
    "--ray": "tests/cluster/test_ray.py::test_the_command_line_starts_a_cluster_of_its_own_and_gives_the_result_of_a_"
    "run_without",
    "--query": "tests/data/test_query.py::test_a_query_is_condensed_and_evaluated_as_a_file_is",
    "study": "tests/study/test_study.py::test_the_example_studies_are_legal",
    "init": "tests/cli/test_afternoon.py::test_five_commands_lead_to_a_release",
    "evaluate": "tests/evaluation/test_evaluate.py::test_evaluate_reads_the_table_as_the_run_did_and_keeps_what_was"
    "_measured_before",
    "attack --data": "tests/evaluation/test_evaluate.py::test_attack_takes_a_run_or_the_word_audit",
    "attack audit": "tests/cli/test_cli_private.py::test_the_audit_prints_bounds_beside_claims_and_exits_by_its_"
    "verdict",
    "bench": "tests/bench/test_bench.py::test_every_problem_and_way_has_its_line_in_the_json",
    "simulate": "tests/cli/test_simulate.py::test_a_simulated_table_is_the_one_that_is_loaded_and_can_be_condensed",
    "dp-geng": "tests/methods/test_dp_geng.py::test_a_run_releases_legal_rows_of_every_class_under_a_statement_that_"
    "holds",
    "psygentab": "tests/methods/test_psygentab.py::test_every_kind_of_outcome_is_taken_by_both_samplers",
}


def test_every_command_of_every_page_runs_as_it_stands(desk: Desk, call: Call) -> None:
    every = list(dict.fromkeys(tuple(words) for page in PAGES for words in commands(page)))
    parts = [set(key.split()) for key in ELSEWHERE]
    assert all(any(part <= set(words) for words in every) for part in parts), "a command that no page has"
    here = [words for words in every if not any(part <= set(words) for part in parts)]
    assert len(here) >= 15
    for words in here:
        if "--create" in words:
            Path(words[2]).unlink(missing_ok=True)  # each page begins its own
        if words[0] == "condense":
            shutil.rmtree(words[words.index("--out") + 1] if "--out" in words else "run", ignore_errors=True)
        if words[-1] == "public.pem":  # what the recipient got from the custodian
            shutil.copy("keys/public.pem", "public.pem")
            assert call("privacy", "sign", "run", "--key", "keys/private.pem").code == 0
        answer = call(*words)
        assert answer.code == 0, (words, answer.out, answer.err)
    assert Path("women.csv").exists()


@pytest.mark.parametrize("test", ELSEWHERE.values())
def test_what_is_run_elsewhere_is_run_there(test: str) -> None:
    file, name = test.split("::")
    assert f"def {name}(" in text_of(file)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/glossary.md"])
def test_ipc_is_explained_where_a_page_first_says_it(page: str) -> None:
    """In words, not in code: `--ipc` stands in commands before."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text_of(page), flags=re.DOTALL)
    first = re.search(r"\bIPC\b", prose)
    near = prose[max(first.start() - 60, 0) : first.end() + 60] if first else "records per class"
    assert "records per class" in " ".join(near.split())


def test_no_line_of_a_page_is_longer_than_120_characters_but_for_rows_of_tables() -> None:
    lines = [
        (page, line) for page in (*PAGES, "CHANGELOG.md", "CONTRIBUTING.md") for line in text_of(page).splitlines()
    ]
    assert [(page, line) for page, line in lines if len(line) > 120 and not line.startswith("|")] == []


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
    for link in re.findall(
        r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", re.sub(r"`[^`\n]*`|```.*?```", "", text_of(page), flags=re.DOTALL)
    ):
        assert ((ROOT / page).parent / link).exists(), link


def test_the_readme_is_one_screen_and_the_afternoon_five_commands() -> None:
    assert len(text_of(README).splitlines()) <= SCREEN
    afternoon = text_of(README).split("## The custodian's afternoon")[1].split("```sh\n")[1].split("```")[0]
    assert len([line for line in afternoon.splitlines() if line.startswith("distcondense ")]) <= 5


@pytest.mark.parametrize("page", PAGES)
def test_every_benchmark_that_a_page_names_exists(page: str) -> None:
    for name in set(re.findall(r"python -m (benchmarks(?:\.\w+)+)", text_of(page))):
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
    assert len(lines) + len(demo.logged.splitlines()) <= 2 * SCREEN
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
