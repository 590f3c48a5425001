"""docs/privacy.md is true: what it names exists, its numbers are the code's, and its claims about whole runs hold."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.schema import Column, Schema
from distcondense.errors import SettingsError
from distcondense.methods.private import placement
from distcondense.privacy import noise
from distcondense.privacy.accountant import replay
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.statement import shown
from distcondense.privacy.verify import verify
from distcondense.runs.folder import RunFolder
from tests.conftest import SMALL_SCHEMA, small_frame

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "privacy.md"
NO_TEST = "a benchmark, no test"
# whose every constant the document lists: what the private model does with a table
MODELLING = ("distcondense/data/cells.py", "distcondense/methods/private/fit.py", "distcondense/methods/private/smoothing.py")
EXAMPLES = ("path.py: name", "path.py::test_name")  # how the document says that it refers


# ---- what the document names


def named(text: str) -> list[tuple[str, str]]:
    """(path, name) of every `path.py`, `path.py: name` and `path.py::test_name` in backticks; name may be empty."""
    found = []
    for quoted in re.findall(r"`([^`]+)`", text):
        if quoted in EXAMPLES:
            continue
        match = re.fullmatch(r"([\w./-]+\.py)(?:::|:\s+)?([\w.]*)", quoted.replace("\n", " "))
        if match:
            found.append((match[1], match[2]))
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    """Functions, classes and constants of a module, methods and fields as Class.name."""

    def collect(body: list[ast.stmt], prefix: str) -> set[str]:
        out: set[str] = set()
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                out.add(prefix + node.name)
                if isinstance(node, ast.ClassDef):
                    out |= collect(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.Assign):
                out |= {prefix + target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                out.add(prefix + node.target.id)
        return out

    return frozenset(collect(ast.parse(path.read_text(encoding="utf-8")).body, ""))


def absent(text: str) -> list[str]:
    """What a text names and the repository does not have."""
    out = []
    for path, name in named(text):
        file = ROOT / path
        if not file.is_file():
            out.append(path)
        elif name and name not in names_in(file):
            out.append(f"{path}: {name}")
    return out


def rows_of(text: str, heading: str) -> list[list[str]]:
    """The cells of the tables whose last column has this heading."""
    out: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            inside = False
        elif inside and set(line) - set("|- "):
            out.append(cells)
        elif cells[-1] == heading:
            inside = True
    return out


def test_everything_the_document_names_exists() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert absent(text) == []
    assert len({name for _, name in named(text) if name.startswith("test_")}) > 50
    assert len({name for path, name in named(text) if name and path.startswith("distcondense/")}) > 40


def test_a_name_that_does_not_exist_would_be_noticed() -> None:
    text = (
        "`distcondense/privacy/gate.py`, `distcondense/privacy/gate.py: PrivateTable.sums`, `distcondense/gone.py`, "
        "`distcondense/privacy/gate.py: PrivateTable.mean`, `tests/test_gate.py::test_never_written`, `privacy.json`, "
        "`tests/test_gate.py::test_a_table_cannot_be_looked_into`, `distcondense/privacy/noise.py: GIRD`"
    )
    assert absent(text) == [
        "distcondense/gone.py",
        "distcondense/privacy/gate.py: PrivateTable.mean",
        "tests/test_gate.py: test_never_written",
        "distcondense/privacy/noise.py: GIRD",
    ]


def test_no_reference_is_written_in_a_way_the_check_would_miss() -> None:
    quoted = re.findall(r"`([^`]+)`", DOCUMENT.read_text(encoding="utf-8"))
    meant = [text for text in quoted if ".py" in text and text not in EXAMPLES]
    assert len(meant) == len(named("".join(f"`{text}`" for text in meant)))


def test_every_row_of_the_argument_points_to_code_and_to_a_test() -> None:
    rows = rows_of(DOCUMENT.read_text(encoding="utf-8"), "test")
    assert len(rows) > 25
    for cells in rows:
        assert named(cells[-2]), cells[0]
        assert any(name.startswith("test_") for _, name in named(cells[-1])) or cells[-1] == NO_TEST, cells[0]


def constants_in(path: str) -> dict[str, Any]:
    """Numbers, and collections of numbers, in capitals that a module defines itself."""
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    return {
        name: getattr(module, name)
        for name in names_in(ROOT / path)
        if re.fullmatch(r"[A-Z][A-Z_]*", name) and numbers(getattr(module, name))
    }


def numbers(value: Any) -> list[float]:
    """A number, or the numbers in a table or a row of them; nothing for anything else."""
    parts = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else [value]
    return [float(part) for part in parts] if all(isinstance(part, int | float) for part in parts) else []


def test_the_constants_are_those_of_the_code() -> None:
    rows = rows_of(DOCUMENT.read_text(encoding="utf-8"), "what it fixes")
    assert len(rows) > 10
    for cells in rows:
        ((path, name),) = named(cells[0])
        assert numbers(constants_in(path)[name]) == [float(value) for value in cells[1].split(", ")], name


def test_the_table_of_constants_is_complete() -> None:
    listed = {named(cells[0])[0] for cells in rows_of(DOCUMENT.read_text(encoding="utf-8"), "what it fixes")}
    for path in MODELLING:
        assert {name for name in constants_in(path) if (path, name) not in listed} == set(), path


def test_a_constant_left_out_of_the_table_would_be_noticed() -> None:
    assert {"EPOCHS", "MERGED", "CASES"} <= set(constants_in("distcondense/methods/private/fit.py"))
    assert {"SPREADS", "DRIFT"} <= set(constants_in("distcondense/methods/private/smoothing.py"))
    assert numbers({"probability": 64, "log-risk": 8}) == [64.0, 8.0]


def test_the_gate_has_the_answers_the_document_lists_and_no_other() -> None:
    public = {name for name in dir(PrivateTable) if not name.startswith("_")}
    answers, steps = {"histogram", "sums", "hazard", "choose"}, {"shift", "bins"}
    known = {"names", "sizes", "budget", "ledger", "objective", "groups", "spent"}  # schema, plan and ledger only
    assert public == answers | steps | known
    in_document = {name.removeprefix("PrivateTable.") for _, name in named(DOCUMENT.read_text(encoding="utf-8"))}
    assert answers | steps <= in_document


# ---- what it says about whole runs


def wide_schema(d: int) -> Schema:
    return Schema(tuple(Column(f"c{j}", "binary", categories=(0, 1)) for j in range(d)))


def wide(rows: int, seed: int, d: int = 130) -> dc.Cohort:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(0, 2, (rows, d)), columns=wide_schema(d).names)
    frame["died"] = (rng.random(rows) < 0.2 + 0.6 * frame["c3"]).astype(int)
    return dc.Cohort.from_frame(frame, target="died", schema=wide_schema(d))


def binary(rows: int, seed: int) -> dc.Cohort:
    frame = small_frame(rows, seed).assign(who=np.arange(rows) // (1 + seed))
    return dc.Cohort.from_frame(
        frame, target="died", ignore=["months", "event"], person_id="who", schema=SMALL_SCHEMA
    )  # fmt: skip


def survival(rows: int, seed: int) -> dc.Cohort:
    return dc.Cohort.from_frame(
        small_frame(rows, seed), time="months", event="event", ignore=["died"], schema=SMALL_SCHEMA
    )


def unnamed(file: Path) -> bytes:
    """The bytes of a released file without the run's random name, which is drawn before a patient is read."""
    if file.name != "privacy.json":
        return file.read_bytes()
    (run,) = {entry.get("run", "") for entry in json.loads(file.read_text(encoding="utf-8"))["ledger"]}
    return file.read_bytes().replace(run.encode(), b"") if run else file.read_bytes()


@pytest.mark.parametrize("make", [binary, survival, wide], ids=["binary", "survival", "wide"])
def test_two_tables_with_the_same_answers_give_the_same_release_to_the_byte(
    make: Callable[[int, int], dc.Cohort], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second table has other patients and another size; its gate is made to give the answers of the first."""
    how: dict[str, Any] = {"epsilon": 8.0, "ipc": 5, "threads": 1, "seed": 3}
    if make is survival:
        how["horizon"] = 60.0
    monkeypatch.setattr(placement, "CANDIDATES", 2, raising=False)  # fewer candidate sets: only to save time
    gaussian, top = noise.discrete_gaussian, noise.noisy_top
    said: list[Any] = []

    def keep(draw: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*query: Any) -> Any:
            said.append(draw(*query))
            return said[-1]

        return asked

    monkeypatch.setattr(noise, "discrete_gaussian", keep(gaussian))
    monkeypatch.setattr(noise, "noisy_top", keep(top))
    dc.condense(make(400, 0), out=tmp_path / "a", **how)
    again = iter(said)
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: next(again))
    monkeypatch.setattr(noise, "noisy_top", lambda scores, count, scale: next(again))
    dc.condense(make(277, 1), out=tmp_path / "b", **how)
    assert next(again, None) is None
    files = sorted(path.name for path in (tmp_path / "a" / "release").iterdir())
    assert files == ["condensed.csv", "condensed.parquet", "privacy.json", "schema.toml"]
    for name in files:
        assert unnamed(tmp_path / "a" / "release" / name) == unnamed(tmp_path / "b" / "release" / name)
    if make is binary:  # other answers, other release: the comparison can fail
        monkeypatch.setattr(noise, "discrete_gaussian", gaussian)
        dc.condense(make(400, 0), out=tmp_path / "c", **how)
        a, c = ((tmp_path / run / "release" / "condensed.csv").read_bytes() for run in "ac")
        assert a != c


def test_one_seed_does_not_repeat_the_noise() -> None:
    estimates = {
        dc.condense(binary(300, 0), epsilon=1.0, ipc=2, seed=5, threads=1).privacy.parameters["rows_noisy_estimate"]
        for _ in range(4)
    }
    assert len(estimates) > 1  # σ is about thirty persons: four equal ones are a chance of about one in a million


def test_a_replaced_run_is_still_counted(tmp_path: Path) -> None:
    how: dict[str, Any] = {"ipc": 2, "threads": 1, "out": tmp_path / "run"}
    first = dc.condense(binary(300, 0), epsilon=1.0, **how)
    assert first.privacy.epsilon_with_earlier_runs is None
    second = dc.condense(binary(300, 0), epsilon=0.5, force=True, **how)
    both = replay((*first.privacy.events, *second.privacy.events), 1e-5).epsilon
    assert both > 1.05
    assert second.privacy.epsilon_with_earlier_runs == pytest.approx(both, rel=1e-6)
    assert f"ε = {shown(both, 4)}" in second.privacy.paragraph()
    third = dc.condense(binary(300, 0), epsilon=0.5, force=True, **how)
    assert third.privacy.epsilon_with_earlier_runs is not None
    assert third.privacy.epsilon_with_earlier_runs > both
    assert len(RunFolder(tmp_path / "run").earlier_events()) == len(first.privacy.ledger) + len(second.privacy.ledger)


def test_a_release_can_be_verified_from_its_own_file_and_a_better_claim_is_caught(tmp_path: Path) -> None:
    dc.condense(binary(300, 0), epsilon=1.0, ipc=2, threads=1, out=tmp_path / "run")
    for place in (tmp_path / "run", tmp_path / "run" / "release", tmp_path / "run" / "release" / "privacy.json"):
        found = verify(place)
        assert found.holds
        assert 0.99 < found.replayed <= found.stated <= 1.0
    file = tmp_path / "run" / "release" / "privacy.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "epsilon": 0.9}))
    assert not verify(file).holds


def test_outcome_values_read_off_the_rows_are_refused() -> None:
    frame = small_frame(60).drop(columns=["months", "event"])
    frame["died"] = np.where(frame["died"] == 1, "yes", "no")
    cohort = dc.Cohort.from_frame(frame, target="died", positive="yes", schema=SMALL_SCHEMA)
    with pytest.raises(SettingsError, match="publicly known"):
        dc.condense(cohort, epsilon=1.0, threads=1)
