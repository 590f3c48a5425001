"""docs/ is true: what it names exists, its numbers are the code's, and its claims about whole runs hold."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Callable
from functools import cache, reduce
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.outcome import kinds
from distcondense.data.schema import Column, Schema
from distcondense.errors import SettingsError
from distcondense.methods.private.constants import constants
from distcondense.outcomes.multiclass import SoftmaxLoss
from distcondense.privacy import curves, ledger, noise, questions
from distcondense.privacy.accountant import replay
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.statement import rounded_up
from distcondense.privacy.verify import verify
from distcondense.runs.folder import RunFolder
from tests.conftest import SMALL_SCHEMA, SMALL_TABLE, small_frame
from tests.report.test_catalogue import INFO

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "privacy.md"
DOCUMENTS = sorted((ROOT / "docs").glob("*.md"))
NO_TEST = "a benchmark, no test"
# how to use something, or what was measured, not how it is made
FOR_USERS = {
    "bibliography.md",
    "glossary.md",
    "custodian.md",
    "evaluation.md",
    "five-minutes.md",
    "method.md",
    "nist.md",
    "operator.md",
    "recipient.md",
    "results.md",
    "schema.md",
}
# whose constants the document lists, because they shape what is asked of patients …
MODELLING = (
    "distcondense/data/cells.py",
    "distcondense/methods/private/plan.py",
    "distcondense/methods/private/domain.py",
    "distcondense/methods/private/fit.py",
    "distcondense/methods/private/joint.py",
    "distcondense/methods/private/linked.py",
    "distcondense/methods/private/terms.py",
    "distcondense/methods/private/uncertainty.py",
    "distcondense/methods/private/smoothing.py",
    "distcondense/outcomes/binary.py",
    "distcondense/outcomes/multiclass.py",
    "distcondense/outcomes/continuous.py",
    "distcondense/outcomes/survival.py",
)
# … but for these, which are about students and candidate sets: post-processing, or no part of the private method
AFTERWARDS = {
    "distcondense/methods/private/joint.py": {"ROUNDS", "FACTOR", "THRICE"},
    "distcondense/outcomes/binary.py": {"RARE", "SURE", "CHANCE", "UNEVEN", "EXTREME", "VECTORS"},
    "distcondense/outcomes/multiclass.py": {"TREES", "LEAST_CANDIDATES"},
    "distcondense/outcomes/continuous.py": {"TREES", "RESIDUAL"},
    "distcondense/outcomes/survival.py": {"PARTS", "INFLATED", "FOLLOWED", "MOMENTS", "FINER", "POPULATION", "RISKS"},
}
EXAMPLES = ("path.py: name", "path.py::test_name")  # how the document says that it refers


# ---- what the document names


def quotes(text: str) -> list[str]:
    """What stands in backticks, but for whole blocks of code."""
    return re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def named(text: str) -> list[tuple[str, str]]:
    """(path, name) of every `path.py`, `path.py: name` and `path.py::test_name` in backticks; name may be empty."""
    found = []
    for quoted in quotes(text):
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
                parts = [p for target in node.targets for p in getattr(target, "elts", [target])]  # also A, B = 1, 2
                out |= {prefix + part.id for part in parts if isinstance(part, ast.Name)}
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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_everything_a_document_names_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert absent(text) == []
    assert len(named(text)) > 10 or document.name in FOR_USERS
    for linked in re.findall(r"\]\(([\w./-]+)\)", text):
        assert (document.parent / linked).exists(), linked


def test_the_argument_names_what_it_is_made_of() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert len({name for _, name in named(text) if name.startswith("test_")}) > 50
    assert len({name for path, name in named(text) if name and path.startswith("distcondense/")}) > 40


def test_the_argument_is_four_pages_from_definition_to_theorem() -> None:
    argument = DOCUMENT.read_text(encoding="utf-8").split("∎")[0]
    assert len(argument.split()) <= 2_760  # four sides of A4 in 10 points
    assert argument.index("## 1. What is promised") < argument.index("## 7. Theorem")


def test_a_name_that_does_not_exist_would_be_noticed() -> None:
    text = (
        "`distcondense/privacy/gate.py`, `distcondense/privacy/gate.py: PrivateTable.sums`, `distcondense/gone.py`, "
        "`distcondense/privacy/gate.py: PrivateTable.mean`, `tests/privacy/test_gate.py::test_never_written`, "
        "`privacy.json`, "
        "`tests/privacy/test_gate.py::test_a_table_cannot_be_looked_into`, `distcondense/privacy/noise.py: GIRD`"
    )
    assert absent(text) == [
        "distcondense/gone.py",
        "distcondense/privacy/gate.py: PrivateTable.mean",
        "tests/privacy/test_gate.py: test_never_written",
        "distcondense/privacy/noise.py: GIRD",
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_reference_is_written_in_a_way_the_check_would_miss(document: Path) -> None:
    quoted = quotes(document.read_text(encoding="utf-8"))
    meant = [text for text in quoted if ".py" in text and text not in EXAMPLES]
    assert len(meant) == len(named("".join(f"`{text}`" for text in meant)))


@pytest.mark.parametrize(("document", "least"), [("privacy.md", 25), ("gate.md", 6)])
def test_every_row_of_the_argument_points_to_code_and_to_a_test(document: str, least: int) -> None:
    rows = rows_of((ROOT / "docs" / document).read_text(encoding="utf-8"), "test")
    assert len(rows) > least
    for cells in rows:
        assert named(cells[-2]), cells[0]
        assert any(name.startswith("test_") for _, name in named(cells[-1])) or cells[-1] == NO_TEST, cells[0]


def value_of(path: str, name: str) -> Any:
    """What a module, or a class of it, has under that name."""
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    return reduce(getattr, name.split("."), module)


def constants_in(path: str) -> set[str]:
    """Names in capitals of numbers, and collections of numbers, that a module defines itself."""
    capitals = {name for name in names_in(ROOT / path) if re.fullmatch(r"[A-Z][A-Z_]*", name)}
    return {name for name in capitals if numbers(value_of(path, name))}


def numbers(value: Any) -> list[float]:
    """A number, or the numbers in a table or a row of them; nothing for anything else."""
    parts = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else [value]
    return [float(part) for part in parts] if all(isinstance(part, int | float) for part in parts) else []


def test_the_constants_are_those_of_the_code() -> None:
    rows = rows_of(DOCUMENT.read_text(encoding="utf-8"), "what it fixes")
    assert len(rows) > 10
    for cells in rows:
        ((path, name),) = named(cells[0])
        assert numbers(value_of(path, name)) == [float(value) for value in cells[1].split(", ")], name


def test_the_table_of_constants_is_complete() -> None:
    listed = {named(cells[0])[0] for cells in rows_of(DOCUMENT.read_text(encoding="utf-8"), "what it fixes")}
    for path in MODELLING:
        here = {name for at, name in listed if at == path}
        assert constants_in(path) - here == AFTERWARDS.get(path, set()), path


def test_every_constant_in_the_table_is_bound_to_the_statement() -> None:
    every = {name for kind in kinds() for name in constants(kind)}
    for cells in rows_of(DOCUMENT.read_text(encoding="utf-8"), "what it fixes"):
        ((path, name),) = named(cells[0])
        if "." not in name:  # a field's default is not a module's
            assert f"{path.removesuffix('.py').replace('/', '.')}.{name}" in every


def test_the_specification_has_every_question_and_every_step() -> None:
    text = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    in_page = {name for path, name in named(text) if path == "distcondense/privacy/questions.py"}
    assert in_page == {one.__name__ for one in (*get_args(questions.Question), *get_args(questions.Step))}


def test_a_constant_left_out_of_the_table_would_be_noticed() -> None:
    assert {"LEAST", "CHOICE_CELLS"} <= constants_in("distcondense/methods/private/fit.py")
    assert {"STANDS_OUT", "CASES"} <= constants_in("distcondense/methods/private/uncertainty.py")
    assert {"SPREADS", "DRIFT"} <= constants_in("distcondense/methods/private/smoothing.py")
    assert {"FEWEST", "MOST"} <= constants_in("distcondense/outcomes/multiclass.py")  # one line, two names
    assert "RISK" not in constants_in("distcondense/outcomes/binary.py")
    assert numbers({"probability": 64, "log-risk": 8}) == [64.0, 8.0]


def test_the_gate_has_the_answers_the_document_lists_and_no_other() -> None:
    public = {name for name in dir(PrivateTable) if not name.startswith("_")}
    answers = {"categories", "histogram", "sums", "total", "mapped", "choose", "related"}
    steps = {"shift", "bins", "adopt"}
    known = {"names", "sizes", "budget", "ledger", "objective", "groups", "spent"}  # schema, plan and ledger only
    assert public == answers | steps | known
    in_document = {name.removeprefix("PrivateTable.") for _, name in named(DOCUMENT.read_text(encoding="utf-8"))}
    assert answers | steps <= in_document


# ---- what it says about several classes


@pytest.mark.parametrize("classes", [3, 7, 20])
def test_a_softmax_contribution_has_norm_at_most_one(classes: int) -> None:
    """For scores of any size, beyond the clip too, and every label, also one that does not exist."""
    rng = np.random.default_rng(classes)
    spread = 10.0 ** rng.uniform(-2, 3, (20_000, 1))
    score = np.concatenate([rng.normal(size=(20_000, classes)) * spread, np.zeros((classes + 2, classes))])
    label = np.concatenate([rng.integers(0, classes, 20_000), np.arange(-1, classes + 1)])
    objective = SoftmaxLoss(classes)
    parts = np.stack(objective.contributions(score, objective.prepare({"label": label})))
    assert len(parts) == len(objective.scales) == 2 * classes
    norms = np.sqrt((parts**2).sum(0))
    assert norms.max() <= 1 + 1e-12
    assert norms.max() > 0.999  # a smaller scale would waste budget


def test_several_classes_without_scaling_would_need_a_factor_of_root_two() -> None:
    x = np.linspace(0, 1, 100_001)
    assert (x**2 + 4 * x**2 * (1 - x) ** 2 <= x + 1e-15).all()
    p = np.random.default_rng(0).dirichlet(np.full(5, 0.3), 20_000)
    g, h = p - np.eye(5)[0], p * (1 - p)
    squared = (g**2 + 4 * h**2).sum(1)
    assert (squared <= 2 * (1 - p[:, 0]) + 1e-12).all()
    assert squared.max() > 1.9  # and no less than that


# ---- what it says about whole runs


QUICK = pytest.mark.usefixtures("quick_placement")  # few candidate sets, exchanges and students: only to save time


def wide_schema(d: int) -> Schema:
    return Schema(tuple(Column(name, "binary", categories=(0, 1)) for name in (*(f"c{j}" for j in range(d)), "died")))


def wide(rows: int, seed: int, d: int = 130) -> dc.Cohort:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.integers(0, 2, (rows, d)), columns=wide_schema(d).names[:-1])
    frame["died"] = (rng.random(rows) < 0.2 + 0.6 * frame["c3"]).astype(int)
    return dc.Cohort.from_frame(frame, target="died", schema=wide_schema(d))


def binary(rows: int, seed: int) -> dc.Cohort:
    frame = small_frame(rows, seed).assign(who=np.arange(rows) // (1 + seed))
    return dc.Cohort.from_frame(frame, target="died", ignore=["months", "event"], person_id="who", schema=SMALL_TABLE)


def survival(rows: int, seed: int) -> dc.Cohort:
    return dc.Cohort.from_frame(
        small_frame(rows, seed), time="months", event="event", ignore=["died"], schema=SMALL_TABLE
    )


def several_classes(rows: int, seed: int) -> dc.Cohort:
    frame = small_frame(rows, seed).drop(columns=["months", "event", "died"])
    rng = np.random.default_rng([seed, 1])
    frame["grade"] = np.digitize(0.05 * (frame["age"] - 55) + frame["smoker"] + rng.normal(0, 0.5, rows), [-0.5, 1.0])
    schema = Schema((*SMALL_SCHEMA.columns, Column("grade", "categorical", categories=(0, 1, 2))))
    return dc.Cohort.from_frame(frame, target="grade", schema=schema)


class Named:
    """Stands for the random name of a run, which is drawn before a patient is read."""

    hex = "0" * 32


@QUICK
@pytest.mark.parametrize("make", [binary, several_classes, survival, wide])
def test_two_tables_with_the_same_answers_give_the_same_release_to_the_byte(
    make: Callable[[int, int], dc.Cohort], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second table has other patients and another size; its gate is made to give the answers of the first."""
    # an ε of its own, so that what the accountants keep of this coarse grid of losses (only to save time) serves nobody
    how: dict[str, Any] = {"epsilon": 8.1, "ipc": 5, "threads": 1, "seed": 3, "about": INFO}
    monkeypatch.setattr(curves, "LOSS_STEP", 1e-3)
    monkeypatch.setattr(ledger.uuid, "uuid4", Named)
    if make is survival:
        how["horizon"] = 60.0
    gaussian, top = noise.discrete_gaussian, noise.noisy_top
    said: list[Any] = []

    def keep(draw: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*query: Any) -> Any:
            said.append(draw(*query))
            return said[-1]

        return asked

    monkeypatch.setattr(noise, "discrete_gaussian", keep(gaussian))
    monkeypatch.setattr(noise, "noisy_top", keep(top))
    dc.condense(make(900, 0), out=tmp_path / "a", **how)
    again = iter(said)
    monkeypatch.setattr(noise, "discrete_gaussian", lambda sums, scale: next(again))
    monkeypatch.setattr(noise, "noisy_top", lambda scores, count, scale: next(again))
    dc.condense(make(620, 1), out=tmp_path / "b", **how)
    assert next(again, None) is None
    files = sorted(path.name for path in (tmp_path / "a" / "release").iterdir())
    papers = [
        "README.md",
        "croissant.json",
        "datasheet.md",
        "deployment.json",
        "healthdcat.jsonld",
        "model.svg",
        "privacy.json",
        "report.html",
        "schema.toml",
    ]
    assert files == sorted(["condensed.csv", "condensed.parquet", *papers])
    assert len(pd.read_csv(tmp_path / "a/release/condensed.csv")) >= 10  # an answer, and rows made from it
    for name in files:
        assert (tmp_path / "a" / "release" / name).read_bytes() == (tmp_path / "b" / "release" / name).read_bytes()
    if make is binary:  # other answers, other release: the comparison can fail
        monkeypatch.setattr(noise, "discrete_gaussian", gaussian)
        monkeypatch.setattr(noise, "noisy_top", top)
        dc.condense(make(900, 0), out=tmp_path / "c", **how)
        a, c = ((tmp_path / run / "release" / "condensed.csv").read_bytes() for run in "ac")
        assert a != c


@QUICK
def test_one_seed_does_not_repeat_the_noise() -> None:
    estimates = {
        dc.condense(binary(300, 0), epsilon=1.0, ipc=2, seed=5, threads=1).privacy.parameters["rows_noisy_estimate"]
        for _ in range(4)
    }
    assert len(estimates) > 1  # σ is about thirty persons: four equal ones are a chance of about one in a million


@QUICK
def test_a_replaced_run_is_still_counted(tmp_path: Path) -> None:
    how: dict[str, Any] = {"ipc": 2, "threads": 1, "out": tmp_path / "run"}
    first = dc.condense(binary(300, 0), epsilon=1.0, **how)
    assert first.privacy.epsilon_with_earlier_runs is None
    second = dc.condense(binary(300, 0), epsilon=0.5, force=True, **how)
    both = replay((*first.privacy.events, *second.privacy.events), 1e-5).epsilon
    assert both > 1.05
    assert second.privacy.epsilon_with_earlier_runs == pytest.approx(both, rel=1e-6)
    assert f"ε = {rounded_up(both, 4)}" in second.privacy.paragraph()
    third = dc.condense(binary(300, 0), epsilon=0.5, force=True, **how)
    assert third.privacy.epsilon_with_earlier_runs is not None
    assert third.privacy.epsilon_with_earlier_runs > both
    assert len(RunFolder(tmp_path / "run").earlier_events()) == len(first.privacy.ledger) + len(second.privacy.ledger)


@QUICK
def test_a_release_can_be_verified_from_its_own_file_and_a_better_claim_is_caught(tmp_path: Path) -> None:
    dc.condense(binary(300, 0), epsilon=1.0, ipc=2, threads=1, out=tmp_path / "run")
    for place in (tmp_path / "run", tmp_path / "run" / "release", tmp_path / "run" / "release" / "privacy.json"):
        found = verify(place)
        assert found.holds
        assert 0.97 < found.replayed <= found.stated <= 1.0  # so few rows ask for no pairs, and make no choice
    file = tmp_path / "run" / "release" / "privacy.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "epsilon": 0.9}))
    assert not verify(file).holds


def test_outcome_values_read_off_the_rows_are_refused() -> None:
    frame = small_frame(60).drop(columns=["months", "event"])
    frame["died"] = np.where(frame["died"] == 1, "yes", "no")
    cohort = dc.Cohort.from_frame(frame, target="died", positive="yes", schema=SMALL_SCHEMA)
    with pytest.raises(SettingsError, match="must be declared in the schema"):
        dc.condense(cohort, epsilon=1.0, threads=1)


def test_every_statement_that_the_argument_cites_stands_in_the_evidence() -> None:
    argument, evidence = DOCUMENT.read_text(encoding="utf-8").split("# Part 2")
    cited = set(re.findall(r"\[(\d\.\d)\]", argument))
    numbered = re.findall(r"^\| (\d\.\d) \|", evidence, re.MULTILINE)
    assert cited == set(numbered)
    assert len(numbered) == len(set(numbered)) > 30
    assert len(argument.split()) < 3500  # four pages
