"""Studies: a file's mistakes are told at once, a killed study goes on, one failed cell stops nobody, numbers add up."""

from __future__ import annotations

import gzip
import importlib
import json
import multiprocessing
import os
import re
import signal
import stat
import sys
import time
import urllib.request
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from distcondense.cluster.config import Cluster
from distcondense.data.schema import Column, Schema
from distcondense.errors import ClusterError, RunFolderError, SettingsError
from distcondense.models import learners
from distcondense.outcomes.measures import auroc
from distcondense.privacy.accountant import replay
from distcondense.privacy.ledger import read_events
from distcondense.privacy.odometer import Odometer
from distcondense.report.terminal import Console
from distcondense.runs.folder import RunFolder
from distcondense.study import LocalTasks, Study, Tasks, plan, run_study, write_report
from distcondense.study import cell as cells_module
from distcondense.study.accounts import account_words
from distcondense.study.cell import CellOutcome, evaluation_input, run_cell
from distcondense.study.folder import StudyFolder
from distcondense.study.progress import CellProgress, StudyProgress, live_table, logged, watching
from distcondense.study.results import COLUMNS
from distcondense.study.rows import load
from distcondense.study.toml_table import digest
from tests.conftest import SMALL_SCHEMA, quicken, real_data, small_frame
from tests.shell import Call, files, refused
from tests.tiny import NUMBER, TEXT
from tests.toys import registered

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = Schema(
    (
        *SMALL_SCHEMA.columns,
        Column("died", "binary", categories=(0, 1)),
        Column("months", "continuous", low=0, high=60),
        Column("event", "binary", categories=(0, 1)),
    )
)
HEAD = """
[study]
name = "small"
seeds = [0, 1]
ipc = [6]
"""
BINARY = """
[[data]]
name = "ward"
path = "ward.csv"
schema = "schema.toml"
target = "died"
ignore = ["months", "event"]
"""
SURVIVAL = """
[[data]]
name = "trial"
path = "ward.csv"
schema = "schema.toml"
time = "months"
event = "event"
ignore = ["died"]
"""
NONE = """
[[method]]
name = "none"
method = "published"
settings = { noise = false, steps = 6, evaluate_every = 2 }
"""
PRIVATE = """
[[method]]
method = "private"
epsilon = 8
"""
BOTH = (SURVIVAL, BINARY, NONE, 'data = ["ward"]\n', PRIVATE.replace("8", "1"), 'data = ["trial"]\n')
ROUNDS = learners.ROUNDS
HANGS = 600  # seconds: nothing here takes that long


def quicker(patch: pytest.MonkeyPatch) -> None:
    """Smaller models, one candidate, few resamples, no pictures: numbers are only compared with themselves here."""
    patch.setattr(learners, "ROUNDS", 10)
    quicken(patch)
    patch.setitem(sys.modules, "matplotlib.figure", None)


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        quicker(patch)
        yield


@contextmanager
def pictures() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "matplotlib.figure", raising=False)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table and its schema, where study files are written."""
    small_frame(240).to_csv(tmp_path / "ward.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    return tmp_path


def study_of(folder: Path, *parts: str) -> Study:
    (folder / "study.toml").write_text("".join(parts), encoding="utf-8")
    return Study.from_toml(folder / "study.toml")


def run(study: Study, out: Path, tasks: Any = None) -> StudyProgress:
    return run_study(study, out, tasks or LocalTasks(), threads=1)


def test_a_report_prepares_no_cell_and_has_the_same_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets of a thousand cells take most of a minute."""
    cells = [cell.key for cell in study_of(folder, HEAD, BINARY, NONE, PRIVATE).cells]
    monkeypatch.setattr("distcondense.study.design.prepare", None)
    assert [cell.key for cell in Study.from_toml(folder / "study.toml", prepared=False).cells] == cells
    with pytest.raises(TypeError):
        Study.from_toml(folder / "study.toml")


def name_of(study: Study, folder: Path, number: int) -> str:
    """Of a cell's folder in `out`."""
    return StudyFolder(folder / "out").name(study.cells[number])


def stamps(path: Path) -> dict[str, tuple[bytes, int]]:
    """Contents and time of the last change of every file."""
    found = {}
    for file in sorted(path.rglob("*")):
        if file.is_file():
            found[str(file.relative_to(path))] = (file.read_bytes(), file.stat().st_mtime_ns)
    return found


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (HEAD.replace("seeds", "seed") + BINARY + NONE, ("[study]", "no 'seed'; the nearest is 'seeds'")),
        (HEAD + BINARY.replace("target", "traget") + NONE, ("[[data]] 1:", "'traget'; the nearest is 'target'")),
        (HEAD + BINARY + NONE.replace("method =", "metod ="), ("[[method]] 1:", "'metod'; the nearest is 'method'")),
        (HEAD + BINARY + NONE.replace("steps", "stpes"), ("[[method]] none:", "the nearest to stpes is steps")),
        (HEAD + BINARY + NONE.replace("published", "pubished"), ("one of private, published", "Fix: say published")),
        (HEAD + BINARY.replace('"died"', '"dide"') + NONE, ("column 'dide'", "the nearest is 'died'")),
        (HEAD + BINARY + NONE + 'data = ["wrad"]\n', ("no 'wrad'; the nearest is 'ward'",)),
        (HEAD + BINARY + 'seen_by = ["pubished"]\n' + NONE, ("ward: seen_by: no 'pubished'", "'published'")),
        (HEAD + BINARY + NONE + 'reference = "xbg"\n', ("no 'xbg'; the nearest is 'xgb'",)),
        (HEAD + BINARY + '[[metod]]\nmethod = "private"\n', ("the nearest is 'method'", "must have a [[method]]")),
        (HEAD + '[[data]]\nname = "s"\nsimulated = "seer_lik"\n' + NONE, ("the nearest is 'seer_like'",)),
        (
            HEAD + '[[data]]\nname = "s"\nsimulated = "seer_like"\noptions = { row = 9 }\n' + NONE,
            ("no 'row'; the nearest is 'rows'",),
        ),
    ],
)
def test_a_typing_error_names_the_key_and_the_nearest_legal_one(folder: Path, wrong: str, says: tuple[str]) -> None:
    with pytest.raises(SettingsError) as error:
        study_of(folder, wrong)
    for part in says:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (HEAD + BINARY + NONE + 'reference = "cox"\n', "reference 'cox' does not fit data 'ward', which has a binary"),
        (HEAD + SURVIVAL + NONE + 'reference = "xgb"\n', "which has a survival outcome: say cox or aft"),
        (HEAD + BINARY.replace('schema = "schema.toml"\n', "") + PRIVATE, "data 'ward': schema: must be declared"),
        (HEAD + BINARY + NONE + "epsilon = 1\n", "without noise takes neither epsilon nor sigma_base"),
        (HEAD + BINARY + PRIVATE + "settings = { steps = 5 }\n", "steps belongs to method published"),
        (HEAD + BINARY + PRIVATE + "settings = { ipc = 5 }\n", "settings: ipc must stand beside settings"),
        (HEAD + BINARY + NONE.replace("steps = 6", 'steps = "6"'), "steps: must be a whole number"),
        (HEAD + BINARY + NONE.replace("steps = 6", "perturbation = 3"), "perturbation: must be two numbers"),
        (HEAD.replace("[6]", "[6, 6]") + BINARY + NONE, "ipc must not repeat. Found 6 twice"),
        (HEAD.replace("[6]", '["6"]') + BINARY + NONE, "ipc must be whole numbers"),
        (HEAD.replace("ipc = [6]", "") + BINARY + NONE, "must have an ipc"),
        (HEAD.replace("[0, 1]", "[-1]") + BINARY + NONE, "seed: must be in [0, 2**63)"),
        (HEAD + "memory_gb = 0\n" + BINARY + NONE, "memory_gb must be above 0"),
        (HEAD + "threads = [1, 2]\n" + BINARY + NONE, "threads must be one number"),
        (HEAD + BINARY + BINARY + NONE, "names must differ. Found 'ward' 2 times"),
        (HEAD + BINARY + NONE + NONE, "names must differ. Found 'none' 2 times"),
        (HEAD + BINARY.replace('"ward"', '"../ward"') + NONE, "it names folders"),
        (HEAD + BINARY.replace("ward.csv", "no.csv") + NONE, "no such file, no.csv"),
        (HEAD + BINARY.replace("ward.csv", "nowhere://ward.csv") + NONE, "must be readable at its URI"),
        (HEAD + BINARY.replace("ward.csv", ".") + NONE, "path must be a readable table. Found IsADirectoryError"),
        (HEAD + BINARY.replace("schema.toml", "no.toml") + NONE, "schema file"),
        (HEAD + BINARY + 'time = "months"\n' + NONE, "ward: outcome: needs a time and an event, or a target"),
        (HEAD + BINARY + 'kind = "binray"\n' + NONE, "Found 'binray'. Fix: say binary"),
        (
            HEAD + BINARY.replace("died", "stage") + NONE,
            "takes survival and binary outcomes. Found a multiclass outcome",
        ),
        (HEAD + BINARY.replace('path = "ward.csv"', "") + NONE, "a path or simulated, one of the two"),
        (HEAD + BINARY + 'test_on = ["ward"]\n' + NONE, "test_on must name other [[data]]. Found the table itself"),
        (HEAD + BINARY + 'test_on = ["trial"]\n' + SURVIVAL + NONE, "both must have the same outcomes"),
        (HEAD + BINARY + SURVIVAL + NONE + 'data = ["ward"]\n', "[[data]] trial: is used by no method"),
        (HEAD + '[[data]]\nname = "s"\nsimulated = "gbsg2"\ntarget = "x"\n' + NONE, "bring their own schema"),
        (HEAD + '[[data]]\nname = "s"\nsimulated = "seer_like"\noptions = { rows = 0 }\n' + NONE, "rows: must be"),
        (HEAD + "[[data]\n", "must be valid TOML"),
        ("data = 3\nmethod = 4\nstudy = 5\n", "[study] must be a table"),
    ],
)
def test_a_contradiction_is_refused_before_anything_runs(folder: Path, wrong: str, says: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(says)):
        study_of(folder, wrong)


def test_every_problem_is_in_one_message(folder: Path) -> None:
    wrong = HEAD.replace("seeds", "seed") + BINARY.replace("target", "traget") + NONE.replace("steps", "stpes")
    with pytest.raises(SettingsError) as error:
        study_of(folder, wrong)
    for part in ("4 problems:", "'seeds'", "'target'", "is steps", "or a target"):
        assert part in str(error.value)


def test_the_command_refuses_a_typing_error_in_one_message(call: Call, folder: Path) -> None:
    (folder / "study.toml").write_text(HEAD.replace("seeds", "seed") + BINARY + NONE, encoding="utf-8")
    refused(call("study", "study.toml"), "study file study.toml", "the nearest is 'seeds'", "edit the study file")
    refused(call("study", "no.toml"), "must exist")
    assert not (folder / "study-study").exists()


def test_the_grid_is_the_product_of_everything_asked(folder: Path) -> None:
    method = '[[method]]\nmethod = "private"\nreference = ["cox", "aft"]\nepsilon = [1, 2.5]\ndata = ["trial"]\n'
    study = study_of(folder, HEAD.replace("[6]", "[6, 7, 8]"), BINARY, SURVIVAL, NONE, method)
    # none: two tables × 3 IPC × 2 seeds; private: one table × 2 references × 2 ε × 2 seeds, each for all IPC at once
    assert len(study.cells) == 2 * 3 * 2 + 2 * 2 * 2
    assert len({cell.name for cell in study.cells}) == len(study.cells)
    private = [c for c in study.cells if c.made_by == "private"]
    asked = {(c.data, c.reference, c.ipc, c.epsilon, c.seed) for c in private}
    assert asked == {("trial", r, (6, 7, 8), e, s) for r in ("cox", "aft") for e in (1, 2.5) for s in (0, 1)}
    assert {c.reference for c in study.cells if c.data == "ward"} == {"xgb"}
    assert private[0].name == "trial-private-cox-ipc6+7+8-eps1-end-to-end-seed0"


def test_a_table_may_have_several_outcomes(folder: Path) -> None:
    outcomes = """
[[data]]
name = "both"
path = "ward.csv"
schema = "schema.toml"

[[data.outcome]]
name = "death"
target = "died"
ignore = ["months", "event"]

[[data.outcome]]
name = "relapse"
time = "months"
event = "event"
ignore = ["died"]
"""
    study = study_of(folder, HEAD, outcomes, NONE)
    assert [(c.data, c.reference) for c in study.cells[::2]] == [("both:death", "xgb"), ("both:relapse", "cox")]
    kinds = [load(cell.source, cell.endpoint).outcome.kind for cell in study.cells[::2]]
    assert [kind.names for kind in kinds] == [("died",), ("months", "event")]


def test_what_kind_of_outcome_a_column_is_the_schema_says_or_the_file(folder: Path) -> None:
    stages = BINARY.replace('"died"', '"stage"')
    (cell, _) = study_of(folder, HEAD, stages, PRIVATE).cells
    assert load(cell.source, cell.endpoint).outcome.kind.name == "multiclass"
    (named, _) = study_of(folder, HEAD, stages, 'kind = "multiclass"\n', PRIVATE).cells
    assert load(named.source, named.endpoint).fingerprint() == load(cell.source, cell.endpoint).fingerprint()


def test_a_cell_is_named_after_public_columns_and_not_after_where_it_lies(folder: Path) -> None:
    out = StudyFolder(folder / "out")
    out.internal.mkdir(parents=True)
    out.make_salt()

    def names(*parts: str) -> list[str]:
        return [out.name(cell) for cell in study_of(folder, *parts).cells]

    first = names(HEAD, BINARY, NONE)
    assert names("# a remark\n", HEAD, SURVIVAL, BINARY, NONE, "epsilon = []\n")[2:] == first
    os.rename(folder / "ward.csv", folder / "moved.csv")
    moved = BINARY.replace("ward.csv", "moved.csv")
    assert names(HEAD, moved, NONE) == first
    assert names(HEAD, BINARY.replace("ward.csv", (folder / "moved.csv").as_uri()), NONE) == first
    assert not set(names(HEAD, moved, NONE.replace("steps = 6", "steps = 7"))) & set(first)
    small_frame(240, seed=1).to_csv(folder / "moved.csv", index=False)  # other patients under the same name
    assert not set(names(HEAD, moved, NONE)) & set(first)


@pytest.mark.parametrize("name", ["curial-simulated", "proteomics-simulated", "seer", "adult"])
def test_the_example_studies_are_legal(name: str) -> None:
    if name in ("seer", "adult"):
        real_data({"seer": "seer_breast_4024.csv", "adult": "adult_48842.csv.gz"}[name])
    folder = ROOT / "benchmarks" / "studies"
    study = Study.from_toml(folder / f"{name}.toml")
    assert study.name == name
    table = (folder / "README.md").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in table if line.startswith(f"| `{name}.toml`"))
    assert line.endswith(f"| {len(study.cells)} |")
    assert {c.made_by for c in study.cells} == {"private", "published"}
    if name in ("seer", "adult"):  # their tables are read as the benchmarks read them
        cohort = load(study.cells[0].source, study.cells[0].endpoint)
        rows, positive = {"seer": (4024, 616), "adult": (48842, 11687)}[name]
        assert (len(cohort), int(cohort.outcome["label"].sum())) == (rows, positive)


# -- tables -----------------------------------------------------------------------------------------------------------


def test_columns_are_renamed_and_rows_chosen_before_the_schema_is_applied(folder: Path) -> None:
    frame = small_frame(240).rename(columns={"crp": "crp "})
    frame["site"] = np.where(np.arange(240) % 3 == 0, "01", "02")
    frame["crp "] = frame["crp "].astype(str)
    frame.loc[[0, 3], "crp "] = "?"
    frame.to_csv(folder / "ward.csv", index=False)
    holes = SCHEMA.to_toml().replace('high = 400\nunit = "mg/L"', 'high = 400\nunit = "mg/L"\nmissing = "indicator"')
    (folder / "schema.toml").write_text(holes, encoding="utf-8")
    data = BINARY + 'rename = { "crp " = "crp" }\nwhere = { site = 1 }\nmissing_markers = ["?"]\n'
    cell = study_of(folder, HEAD, data, NONE).cells[0]
    cohort = load(cell.source, cell.endpoint)
    assert len(cohort) == 80
    packed = gzip.compress((folder / "ward.csv").read_bytes())
    (folder / "ward.csv.gz").write_bytes(packed)
    elsewhere = data.replace("ward.csv", (folder / "ward.csv.gz").as_uri())
    same = study_of(folder, HEAD, elsewhere, NONE).cells[0]
    assert load(same.source, same.endpoint).fingerprint() == cohort.fingerprint()
    assert list(cohort.schema.names) == [c.name for c in SMALL_SCHEMA.columns]
    assert int(cohort.features["crp"].isna().sum()) == 2
    assert cohort.outcome["label"].tolist() == frame.loc[::3, "died"].tolist()


def test_persons_known_at_home_are_not_tested_elsewhere(folder: Path) -> None:
    frame = small_frame(240)
    frame["site"] = np.repeat(["A", "B"], 120)
    frame["who"] = np.concatenate([np.arange(120), np.arange(100, 220)])  # 20 persons were at both
    frame.to_csv(folder / "ward.csv", index=False)
    site = BINARY + 'person_id = "who"\n'
    home = site.replace('ward"\n', 'A"\n', 1) + 'where = { site = "A" }\ntest_on = ["B"]\n'
    other = site.replace('ward"\n', 'B"\n', 1) + 'where = { site = "B" }\n'
    cell = study_of(folder, HEAD, home, other, NONE).cells[0]
    ((source, endpoint),) = cell.test_on
    assert len(load(source, endpoint)) == 120
    assert len(load(source, endpoint, apart_from=cell.source)) == 100


# -- running ----------------------------------------------------------------------------------------------------------


class Scripted:
    """Tasks whose answers a test decides; it notes how many were handed out at once."""

    def __init__(self, at_once: int, answers: dict[int, Any] | None = None) -> None:
        self.at_once, self.answers = at_once, answers or {}
        self.open: dict[int, tuple[Any, ...]] = {}
        self.most, self.cancelled = 0, False

    def start(self, number: int, function: Any, *arguments: Any) -> None:
        self.open[number] = (function, *arguments)
        self.most = max(self.most, len(self.open))

    def wait(self, seconds: float) -> list[tuple[int, Any]]:
        number = max(self.open)  # the last one started is done first: the order must not matter
        function, *arguments = self.open.pop(number)
        if number in self.answers:
            value = self.answers[number]
            if isinstance(value, KeyboardInterrupt):
                raise value
            return [(number, value)]
        return [(number, function(*arguments))]

    def cancel(self) -> None:
        self.cancelled = True

    def show(self, study: str, cells: Any, seconds_left: float | None) -> None:
        """Nobody looks."""


def test_one_failed_cell_stops_nobody_and_its_reason_is_told(folder: Path) -> None:
    study = study_of(folder, HEAD.replace("[0, 1]", "[0, 1, 2]"), BINARY, NONE)
    tasks = Scripted(2, {1: ConnectionError("its process died (killed)")})
    progress = run(study, folder / "out", tasks)
    assert tasks.most == 2
    assert [line.state for line in progress.lines] == ["done", "failed", "done"]
    assert progress.failed[0].reason == "its process died (killed)"
    page = (folder / "out/internal/tables.md").read_text(encoding="utf-8")
    assert "2 of 3 cells" in page
    assert f"`{name_of(study, folder, 1)}`: its process died (killed)" in page
    run_study(study, folder / "out", LocalTasks(), threads=1, chosen=study.only({"seed": ["0", "2"]}))
    page = (folder / "out/internal/tables.md").read_text(encoding="utf-8")
    assert f"`{name_of(study, folder, 1)}`: its process died (killed)" in page
    again = run(study, folder / "out")
    assert [line.state for line in again.lines] == ["kept", "done", "kept"]
    assert "failed" not in (folder / "out/internal/tables.md").read_text(encoding="utf-8")


def test_the_command_ends_with_2_where_a_cell_failed_and_with_0_otherwise(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(folder, HEAD, BINARY, NONE)
    real = cells_module.condense

    def fails(*arguments: Any, seed: int, **options: Any) -> Any:
        if seed == 1:
            raise SettingsError("the second seed", "must not be", found="it")
        return real(*arguments, seed=seed, **options)

    command = ["study", "study.toml", "--out", "out", "--in-process"]
    with monkeypatch.context() as patched:
        patched.setattr(cells_module, "condense", fails)
        answer = call(*command)
        assert answer.code == 2
        assert f"failed: {name_of(study, folder, 1)}: the second seed: must not be" in answer.err
        said = json.loads(call(*command, "--json").out)
    assert said["counts"] == {"done": 1, "failed": 1}
    answer = call(*command)
    assert (answer.code, answer.out) == (0, "")
    assert re.search(rf"{name_of(study, folder, 1)}: done in .* \(2 of 2 cells done, 1 of them before\)", answer.err)
    assert call(*command, "--quiet").err == ""


def test_a_dry_run_lists_the_cells_and_runs_nothing(call: Call, folder: Path) -> None:
    study = study_of(folder, HEAD, BINARY, NONE)
    answer = call("study", "study.toml", "--dry-run", "--out", "out")
    assert answer.code == 0
    assert answer.out.splitlines() == [f"waiting {cell.name}" for cell in study.cells]
    assert not (folder / "out").exists()


def test_ctrl_c_leaves_a_study_that_goes_on_by_the_same_command(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(folder, HEAD, BINARY, NONE)
    tasks = Scripted(1, {1: KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        run(study, folder / "out", tasks)
    assert tasks.cancelled
    assert [line.state for line in plan(study, folder / "out").lines] == ["kept", "waiting"]

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    command = ["study", "study.toml", "--out", "out", "--in-process"]
    with monkeypatch.context() as patched:
        patched.setattr(cells_module, "condense", interrupted)
        answer = call(*command)
    assert answer.code == 130
    assert "by the same command" in answer.err
    assert call(*command).code == 0


def test_what_a_library_says_about_a_cell_of_the_table_is_not_repeated(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = study_of(folder, HEAD, BINARY, NONE).cells[0]

    def fails(*_: Any, **__: Any) -> None:
        raise ValueError(f"cannot convert {NUMBER} of {TEXT}")

    monkeypatch.setattr(cells_module, "condense", fails)
    define(cell, folder)
    reason = run_cell(cell, folder / "out", 1).reason
    assert re.fullmatch(r"ValueError in cell\.py, line \d+", reason)


def define(cell: Any, folder: Path) -> None:
    path = StudyFolder(folder / "out").definition(cell)
    path.parent.mkdir(parents=True)
    path.touch()


def test_a_machine_that_does_not_see_the_study_folder_reads_no_patient(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = study_of(folder, HEAD, BINARY, NONE).cells[0]
    monkeypatch.setattr(cells_module, "load", lambda *_: pytest.fail("the table was opened"))
    assert "an --out that all machines share" in run_cell(cell, folder / "elsewhere", 1).reason
    assert not (folder / "elsewhere").exists()


def test_a_cell_made_on_a_machine_with_another_folder_is_not_taken_for_done(folder: Path) -> None:
    study = study_of(folder, HEAD, BINARY, NONE)
    progress = run(study, folder / "out", Scripted(2, {0: CellOutcome(1.0), 1: CellOutcome(1.0)}))
    assert [line.state for line in progress.lines] == ["failed", "failed"]
    assert "an --out that all machines share" in progress.failed[0].reason


def test_two_runs_of_one_study_do_not_meet(folder: Path) -> None:
    study = study_of(folder, HEAD, BINARY, NONE)
    lock = StudyFolder(folder / "out").lock("study", 0.0, "", "")
    with lock, pytest.raises(RunFolderError, match="must be run once at a time"):
        run(study, folder / "out")
    assert run(study, folder / "out").failed == []


def test_a_cell_somebody_else_is_at_work_on_is_not_touched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = study_of(folder, HEAD, BINARY, NONE).cells[0]
    define(cell, folder)
    monkeypatch.setattr(cells_module, "PATIENCE", 0.0)
    with StudyFolder(folder / "out").lock(StudyFolder(folder / "out").name(cell), 0.0, "", ""):
        assert "another process at work on it" in run_cell(cell, folder / "out", 1).reason
    assert not StudyFolder(folder / "out").run(cell).path.exists()


def test_a_folder_that_is_not_a_studys_is_left_alone(folder: Path) -> None:
    study = study_of(folder, HEAD, BINARY, NONE)
    before = files(folder)
    with pytest.raises(RunFolderError, match="other files in it"):
        run(study, folder)
    assert files(folder) == before


def test_a_changed_study_keeps_the_cells_that_did_not_change(folder: Path) -> None:
    out = folder / "out"
    first = study_of(folder, HEAD, BINARY, NONE)
    run(first, out)
    before = {name: stamps(out / "cells" / name) for name in map(StudyFolder(out).name, first.cells)}
    second = study_of(folder, HEAD.replace("[6]", "[6, 9]"), BINARY, NONE)
    progress = run(second, out)
    assert [line.state for line in progress.lines] == ["kept", "kept", "done", "done"]
    assert {name: stamps(out / "cells" / name) for name in before} == before
    results = pd.read_parquet(out / "internal/results.parquet")
    assert set(results["ipc"]) == {6, 9}
    run(study_of(folder, HEAD.replace("[6]", "[9]"), BINARY, NONE), out)
    assert set(pd.read_parquet(out / "internal/results.parquet")["ipc"]) == {9}


# where a study can be killed: (module, function, which call), and how many of its four cells are finished by then
KILLS = {
    "before the second cell": ("distcondense.study.run", "run_cell", 2, 1),
    "between making a cell's folder and signing it": ("distcondense.runs.folder", "write_json", 1, 0),
    "inside the loop of a cell": ("distcondense.methods.zero_order.engine", "_step", 3, 1),
    "between the ledger and the answer": ("distcondense.privacy.ledger", "Ledger.keep", 3, 0),
    "before the first report": ("distcondense.study.run", "write_report", 1, 1),
    "before the last report": ("distcondense.study.run", "_StudyFiles.close", 1, 4),
}
ORDER = (0, 2, 1, 3)  # in which its cells run: seed after seed


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same study, run through: without noise the bits are the same each time, with it the questions are."""
    folder = tmp_path_factory.mktemp("undisturbed")
    small_frame(240).to_csv(folder / "ward.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    run(study_of(folder, HEAD, *BOTH), folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def processes() -> Any:
    """Processes that start with everything imported, and nothing of this one's threads."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(
        ["tests.study.test_study", "xgboost", "lifelines", "distcondense.methods.published.condense"]
    )
    return server


def run_and_be_killed(study: Path, out: Path, module: str, name: str, call: int) -> None:
    """By a real SIGKILL when the call is about to be made: nothing after it happens, no handler runs."""
    *path, last = name.split(".")
    owner: Any = importlib.import_module(module)
    for part in path:
        owner = getattr(owner, part)
    real, made = getattr(owner, last), 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal made
        made += 1
        if made == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    setattr(owner, last, counted)
    quicker(pytest.MonkeyPatch())  # as the test does here
    warnings.simplefilter("ignore")
    run(Study.from_toml(study), out)


@pytest.mark.parametrize("where", KILLS)
def test_a_study_killed_anywhere_goes_on_and_loses_nothing(
    folder: Path, undisturbed: Path, processes: Any, where: str
) -> None:
    module, name, call, finished = KILLS[where]
    study = study_of(folder, HEAD, *BOTH)
    out = folder / "out"
    process = processes.Process(target=run_and_be_killed, args=(folder / "study.toml", out, module, name, call))
    process.start()
    process.join(HANGS)
    ended = process.exitcode
    process.kill()  # it did so itself long ago, unless it hangs
    assert ended == -signal.SIGKILL
    lines = plan(study, out).lines
    assert [lines[number].state for number in ORDER] == ["kept"] * finished + ["waiting"] * (4 - finished)
    cells, private = (study.cells[number] for number in ORDER[:finished]), StudyFolder(out).name(study.cells[0])
    kept = [*map(StudyFolder(out).name, cells)]
    before = {name: stamps(out / "cells" / name) for name in kept}
    asked = read_events(RunFolder(out / "cells" / private).ledger)

    progress = run(study, out)
    assert progress.failed == []
    assert {name: stamps(out / "cells" / name) for name in kept} == before
    for cell in study.cells:
        here, there = (StudyFolder(place).run(cell) for place in (out, undisturbed))
        if cell.method == "none":
            assert files(here.release) == files(there.release)
        else:  # never asked twice: the same questions, as many as in a run nobody disturbed
            own, theirs = read_events(here.ledger), read_events(there.ledger)
            assert [(e.query, e.columns, e.cost) for e in own] == [(e.query, e.columns, e.cost) for e in theirs]
            assert len({e.run for e in own}) == 1
            assert here.earlier_events() == ()
            assert json.loads((here.release / "privacy.json").read_text())["epsilon"] <= 1
    assert read_events(RunFolder(out / "cells" / private).ledger)[: len(asked)] == asked
    ours, other = (pd.read_parquet(place / "internal/results.parquet") for place in (out, undisturbed))
    assert set(ours["cell"]) == {*map(StudyFolder(out).name, study.cells)}
    apart = ["seconds", "making_seconds", "cpu_seconds", "peak_memory_bytes", "cell"]
    bits = [frame[frame["method"] == "none"].drop(columns=apart).reset_index(drop=True) for frame in (ours, other)]
    assert len(bits[0]) > 20
    pd.testing.assert_frame_equal(bits[0], bits[1])


def test_a_cluster_that_is_not_there_is_told_before_anything_runs(call: Call, folder: Path) -> None:
    pytest.importorskip("ray")
    study_of(folder, HEAD, BINARY, NONE)
    refused(call("study", "study.toml", "--out", "out", "--ray", "127.0.0.1:1"), "cluster 127.0.0.1:1", "reachable")
    refused(
        call("study", "study.toml", "--in-process", "--ray", "127.0.0.1:1"), "--in-process", "leave one of them out"
    )
    refused(call("study", "study.toml", "--at-once", "0"), "--at-once", "must be at least 1")
    assert not (folder / "out").exists()


class Murderous:
    """Tasks on Ray; one of them kills its own process instead of doing what it was asked."""

    def __init__(self, tasks: Tasks, victim: int) -> None:
        self.tasks, self.victim = tasks, victim
        self.at_once = tasks.at_once

    def start(self, number: int, function: Any, *arguments: Any) -> None:
        def killed(*_: Any) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        self.tasks.start(number, killed if number == self.victim else function, *arguments)

    def wait(self, seconds: float) -> list[tuple[int, Any]]:
        return self.tasks.wait(seconds)

    def cancel(self) -> None:
        self.tasks.cancel()

    def show(self, study: str, cells: Any, seconds_left: float | None) -> None:
        self.tasks.show(study, cells, seconds_left)


def listening(port: int) -> set[str]:
    """Addresses that a port is listened at, as the kernel writes them."""
    lines = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()]
    return {one[1].split(":")[0][-8:] for one in lines if one[3] == "0A" and int(one[1].split(":")[1], 16) == port}


def test_on_ray_a_killed_worker_costs_its_own_cell_and_the_others_have_the_same_bits(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray")
    from distcondense.cluster.ray.session import connected
    from distcondense.cluster.ray.tasks import TaskPool

    study = study_of(folder, HEAD, BINARY, NONE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learners, "ROUNDS", ROUNDS)  # as in the workers, which know nothing of this test
        run(study, folder / "here")
    monkeypatch.setenv("RAY_metrics_report_interval_ms", "500")
    with connected(Cluster(address="local", object_store_memory=80 * 2**20), cpus=2) as session:
        with pytest.raises(ClusterError, match="GiB for one task"):
            TaskPool(session, memory=2**50)
        tasks = TaskPool(session, num_cpus=1, memory=2**28)
        assert tasks.at_once == 2
        progress = run(study, folder / "there", Murderous(tasks, victim=1))
        assert [line.state for line in progress.lines] == ["done", "failed"]
        assert "its process died" in progress.failed[0].reason
        (port,) = (node["MetricsExportPort"] for node in ray.nodes())
        assert listening(port) == {"0100007F"}  # 127.0.0.1, and nowhere else
        page, late = "", time.monotonic() + HANGS
        while 'state="failed"' not in page and time.monotonic() < late:  # until the agent has got them
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as found:
                page = found.read().decode()
        (failed,) = re.findall(r'^ray_distcondense_study_cells{.*state="failed".*} (.*)$', page, re.MULTILINE)
        assert float(failed) == 1
        answer = call("study", "study.toml", "--out", "there", "--at-once", "2", "--json")
    assert (answer.code, json.loads(answer.out)["counts"]) == (0, {"done": 2})
    for cell in study.cells:
        here, there = (StudyFolder(folder / place).run(cell) for place in ("here", "there"))
        assert files(here.release) == files(there.release)


# -- what people see --------------------------------------------------------------------------------------------------


def board_of(study: Study) -> StudyProgress:
    cells = study.cells
    names = [cell.name for cell in cells]
    return StudyProgress(
        [
            CellProgress(cells[0], names[0], "done", 10.0),
            CellProgress(cells[1], names[1], "failed", reason="too few rows of a class"),
            CellProgress(cells[2], names[2], "running", started=float("-inf")),
            CellProgress(cells[3], names[3]),
        ],
        at_once=2,
    )


def test_the_live_table_shows_counts_time_left_and_reasons(folder: Path) -> None:
    study = study_of(folder, HEAD.replace("[0, 1]", "[0, 1, 2, 3]"), BINARY, NONE)
    progress = board_of(study)
    # one cell alike takes 10 s and one is overdue; two at once
    assert progress.seconds_left() == 5.0
    assert progress.words() == "1 of 4 cells done, 1 running, 1 failed, 1 waiting, about 5 s left"
    progress.lines[2].started = 0.0
    console = Console()
    with console.out.capture() as shown:
        console.out.print(live_table(progress))
    text = shown.get()
    assert re.search(r"│\s+1 │\s+1 │\s+1 │\s+1 │", text)
    assert "too few rows of a class" in text
    assert study.cells[2].name in text


def test_before_anything_is_done_nothing_is_said_about_time(folder: Path) -> None:
    progress = plan(study_of(folder, HEAD, BINARY, NONE), folder / "out")
    assert progress.seconds_left() is None
    assert progress.words() == "0 of 2 cells done, 2 waiting"


def test_a_log_has_one_line_per_cell(folder: Path) -> None:
    study = study_of(folder, HEAD.replace("[0, 1]", "[0, 1, 2, 3]"), BINARY, NONE)
    said: list[str] = []
    watch = logged(said.append)
    progress = board_of(study)
    for _ in range(3):
        watch(progress)
    assert len(said) == 2
    assert said[1].startswith(f"{study.cells[1].name}: failed: too few rows of a class (")


def test_a_terminal_gets_a_live_table_and_quiet_gets_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress = board_of(study_of(folder, HEAD.replace("[0, 1]", "[0, 1, 2, 3]"), BINARY, NONE))
    shown = {}
    for quiet in (False, True):
        with redirect_stderr(StringIO()) as err:
            console = Console(quiet=quiet)
            with watching(console) as watch:
                watch(progress)
        shown[quiet] = err.getvalue()
    assert "too few rows of a class" in shown[False]
    assert shown[True] == ""


# -- the report -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    """A study with two kinds of outcome, three methods and two sites that are tested on each other."""
    folder = tmp_path_factory.mktemp("reported")
    small_frame(2000).to_csv(folder / "ward.csv", index=False)  # enough for an answer at any noise
    small_frame(200, seed=5).to_csv(folder / "clinic.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    ward = BINARY + 'test_on = ["clinic"]\n'
    clinic = BINARY.replace("ward", "clinic") + 'test_on = ["ward"]\n'
    published = NONE.replace('"none"', '"published"').replace("noise = false", "sigma_base = 8")
    published += 'epsilon = 2\ndata = ["ward", "clinic"]\n'
    private = PRIVATE.replace("epsilon = 8", 'epsilon = 4\ndata = ["ward", "trial"]')
    study = study_of(folder, HEAD, ward, clinic, SURVIVAL, NONE, 'data = ["trial"]\n', published, private)
    assert run(study, folder / "out").failed == []
    with pictures():
        write_report(study, StudyFolder(folder / "out"))
    return study, folder / "out"


def naive_rows(study: Study, out: Path) -> Iterator[tuple[Any, ...]]:
    """(cell, tested on, trained on, metric, value, low, high), by hand from the JSON files."""
    for cell in study.cells:
        room = StudyFolder(out).run(cell).internal
        places = {cell.source.name: json.loads((room / "run.json").read_text())}
        if (room / "elsewhere.json").exists():
            places |= json.loads((room / "elsewhere.json").read_text())
        for place, test in places.items():
            for found in test.get("sets", [test])[0]["scores"]:
                yield (
                    StudyFolder(out).name(cell),
                    place,
                    found["trained_on"],
                    found["measure"],
                    found["value"],
                    found["low"],
                    found["high"],
                )


def test_the_tidy_table_holds_every_number_of_every_cell_and_no_other(reported: tuple[Study, Path]) -> None:
    study, out = reported
    results = pd.read_parquet(out / "internal/results.parquet")
    assert list(results.columns) == list(COLUMNS)
    assert set(results.loc[results["main"], "metric"]) == {"auroc", "c_index"}
    columns = ["cell", "tested_on", "trained_on", "metric", "value", "low", "high"]
    measured = results[results["test_rows"].notna()]
    plain = measured[columns].astype(object).where(measured[columns].notna(), None)
    found = sorted(map(str, plain.to_numpy().tolist()))
    assert found == sorted(str(list(row)) for row in naive_rows(study, out))
    assert len(found) > 150
    written, cells = (pd.read_csv(out / f"internal/{name}.csv") for name in ("results", "cells"))
    assert sorted(cells["cell"]) == sorted({*results["cell"]})
    of_cell = cells.set_index("cell")
    for row in results.itertuples():  # results.csv has every score, and cells.csv what it promises
        real = row.trained_on in ("full", "random_real")
        same = written[(written["data"] == row.data) & (written["seed"] == row.seed) & (written["ipc"] == row.ipc)]
        same = same[same["method"].isna() if real else same["method"] == row.method]
        here = same[(same["trained_on"] == row.trained_on) & (same["metric"] == row.metric)]
        here = here[here["tested_on"] == row.tested_on]
        assert np.isclose(here["value"], row.value, atol=1e-6, equal_nan=True).any()
        assert real or of_cell.loc[row.cell, "privacy"] == row.privacy
    assert not written.duplicated().any()  # models of real rows stand there once
    for cell in study.cells:
        privacy = json.loads((StudyFolder(out).run(cell).release / "privacy.json").read_text())
        own = results[results["cell"] == StudyFolder(out).name(cell)]
        claimed = own[own["trained_on"].isin(["condensed", "reference"])]
        if privacy["epsilon"] is None:
            assert claimed["epsilon"].isna().all()
        else:
            assert set(claimed["epsilon"]) == {privacy["epsilon"]}
        assert set(claimed["guarantee"]) == {privacy["guarantee"]}
        patients = own[own["trained_on"].isin(["full", "random_real"])]
        assert patients["epsilon"].isna().all()
        assert set(patients["guarantee"]) == {"none"}


def cells_of(page: str, title: str, *starts: str) -> list[list[str]]:
    """The cells of the rows below a heading that begin with these texts."""
    part = page[page.index(title) + len(title) :]
    part = part[: match.start()] if (match := re.search("^##", part, re.MULTILINE)) else part
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines() if line[:1] == "|"]
    return [row for row in rows if tuple(row[: len(starts)]) == starts]


def test_the_page_shows_mean_spread_and_interval_as_recomputed_by_hand(reported: tuple[Study, Path]) -> None:
    study, out = reported
    page = (out / "internal/tables.md").read_text(encoding="utf-8")
    rows = list(naive_rows(study, out))

    def by_hand(data: str, place: str, method: str, way: str, metric: str) -> str:
        wanted = {StudyFolder(out).name(c) for c in study.cells if (c.data, c.method) == (data, method)}
        every = [r[4:] for r in rows if r[0] in wanted and r[1:4] == (place, way, metric)]
        assert len(every) == 2  # one per seed
        numbers = [number for number in every if number[0] is not None]  # a PPV of nobody flagged is none
        lost = f" (undefined in {2 - len(numbers)} of 2)" if len(numbers) < 2 else ""
        if not numbers:
            return f"—{lost}"
        value, low, high = (np.array(column) for column in zip(*numbers, strict=True))
        spread = f" ± {np.sqrt(((value - value.mean()) ** 2).sum()):.3f}" if len(numbers) == 2 else ""
        return f"{value.mean():.3f}{spread} [{low.mean():.3f}, {high.mean():.3f}]{lost}"

    survival = cells_of(page, "## Survival outcomes: C-index by IPC", "trial", "none, cox")
    assert survival == [
        [
            "trial",
            "none, cox",
            by_hand("trial", "trial", "none", "full", "c_index"),
            by_hand("trial", "trial", "none", "condensed", "c_index"),
        ]
    ]
    name = "published, xgb, ε ≤ 2 as-published"
    (binary,) = cells_of(page, "### (b) clinic\n", name)
    metrics = ("auroc", "sensitivity", "specificity", "ppv", "npv")
    assert binary[1:7] == ["6", *(by_hand("clinic", "clinic", "published", "condensed", m) for m in metrics)]
    (cross,) = cells_of(page, "### (a) ward → clinic", name)
    assert cross[1:7] == ["6", *(by_hand("ward", "clinic", "published", "condensed", m) for m in metrics)]
    overview = cells_of(page, "## Binary outcomes: AUROC by IPC", "ward", "private, xgb, ε ≤ 4 end-to-end")
    assert overview[0][2] == by_hand("ward", "ward", "private", "full", "auroc")


def test_the_page_says_whose_it_is_and_no_epsilon_stands_without_its_guarantee(reported: tuple[Study, Path]) -> None:
    _, out = reported
    page = (out / "internal/tables.md").read_text(encoding="utf-8")
    assert page.startswith("# Study small: for the custodian, not for release")
    numbers = re.findall(r"ε (?:=|≤) [\d.]+[^|\n]{0,14}", page)
    assert len(numbers) > 10
    for number in numbers:
        assert re.search("end-to-end|as-published", number), number
    for line in page.splitlines():
        if re.match(r"\|  \| ε \|", line):
            for cell in line.strip("|").split("|")[3:]:
                assert re.fullmatch(r" ([\d.]+ (end-to-end|as-published)|no privacy) ", cell), line
    said = json.loads((out / "internal/report.json").read_text(encoding="utf-8"))
    assert {figure["name"].split("-")[0] for figure in said["figures"]} == {"ipc", "budget"}
    assert {row["measure"] for row in said["grid"]} == {"AUROC", "C-index"}
    page = (out / "internal/report.html").read_text(encoding="utf-8")
    assert page.count("<svg") == len(said["figures"])
    assert "not to be released" in page
    assert sorted(path.name for path in out.iterdir()) == ["cells", "internal"]


def test_the_page_adds_up_what_all_private_cells_read_of_the_same_patients(reported: tuple[Study, Path]) -> None:
    study, out = reported
    private = [c for c in study.cells if c.made_by == "private"]
    events = [e for c in private for e in read_events(StudyFolder(out).run(c).ledger)]
    together = replay(events, 1e-5).epsilon
    # "ward" and "trial" are two outcomes of one file: the same patients
    read = account_words(StudyFolder(out))
    assert set(read) == {"trial, ward", "clinic"}
    cells, words = read["trial, ward"]
    assert cells == len(private)
    assert "; and 4 read them without a gate, which no ε bounds" in words
    assert read["clinic"] == (0, "2 read them without a gate, which no ε bounds")
    said = float(re.search(r"ε = ([\d.]+) \(end-to-end", words)[1])  # type: ignore[index]
    assert together <= said <= together * 1.01 + 0.1
    assert said > 4
    assert words in (out / "internal/tables.md").read_text(encoding="utf-8")


# -- other sites ------------------------------------------------------------------------------------------------------


def test_a_site_that_is_home_itself_gives_homes_own_numbers(folder: Path) -> None:
    """The strongest check there is: same rows, same split, so the same metrics to the last digit."""
    (folder / "twin.csv").write_bytes((folder / "ward.csv").read_bytes())
    soft = NONE.replace('"none"', '"soft"').replace("steps = 6", "soft = true, steps = 6")
    parts = []
    for data, name in ((BINARY, "ward"), (SURVIVAL, "trial")):
        twin = data.replace(f'"{name}"', f'"{name}2"', 1).replace("ward.csv", "twin.csv")
        parts += [data, f'test_on = ["{name}2"]\n', twin]
    only = 'data = ["ward", "trial"]\n'
    study = study_of(folder, HEAD.replace("[0, 1]", "[3]"), *parts, NONE, only, soft, only)
    run(study, folder / "out")
    results = pd.read_parquet(folder / "out/internal/results.parquet")
    compared = 0
    for _, part in results[results["data"].isin(["ward", "trial"])].groupby(["cell", "trained_on", "metric"]):
        home, away = part.to_dict("records")
        assert home["tested_on"] != away["tested_on"]
        for column in ("value", "low", "high"):
            np.testing.assert_equal(home[column], away[column])  # nothing is nothing, too
        compared += 1
    assert compared == 2 * 3 * 10 + 2 * 3 * 3  # two methods × three ways × metrics


def test_a_private_release_is_tested_elsewhere_as_its_receiver_would(reported: tuple[Study, Path]) -> None:
    study, out = reported
    cell = next(c for c in study.cells if c.made_by == "private" and c.data == "ward")
    folder = StudyFolder(out)
    home = evaluation_input(folder.run(cell), load(cell.source, cell.endpoint))
    ((source, endpoint),) = cell.test_on
    site = load(source, endpoint)
    test = cell.held_out.split(site).test
    released = pd.read_parquet(folder.run(cell).release / "condensed.parquet")
    outcome = home.labelled.outcome.with_arrays(label=(released["died"] == 1).to_numpy().astype(np.int8))
    student = home.learner.fit(
        home.codec.encode(released),
        outcome,
        soft=released["distcondense_risk"].to_numpy(),
        weight=released["distcondense_weight"].to_numpy(),
        seed=cell.seed,
        threads=1,
    )
    score = student.scores(home.codec.encode(site.features.iloc[test]))
    found = folder.elsewhere(cell)["clinic"]["sets"][0]["scores"]
    (condensed,) = (s for s in found if (s["trained_on"], s["measure"]) == ("condensed", "auroc"))
    assert condensed["value"] == auroc(site.outcome["label"][test], score)
    assert condensed["n"] == len(test)
    assert {s["trained_on"] for s in found} == {"full", "condensed", "random_real"}  # the private model is not released


def test_a_site_added_later_is_tested_without_condensing_again(folder: Path) -> None:
    small_frame(200, seed=5).to_csv(folder / "clinic.csv", index=False)
    only = PRIVATE + 'data = ["trial"]\n'
    out = folder / "out"
    first = study_of(folder, HEAD, SURVIVAL, only)
    run(first, out)
    before = {name: stamps(out / "cells" / name) for name in map(StudyFolder(out).name, first.cells)}
    clinic = SURVIVAL.replace('"trial"', '"clinic"').replace("ward", "clinic")
    progress = run(study_of(folder, HEAD, SURVIVAL, 'test_on = ["clinic"]\n', clinic, only), out)
    assert [line.state for line in progress.lines] == ["done", "done"]
    for name, then in before.items():
        now = stamps(out / "cells" / name)
        assert set(now) - set(then) == {"internal/elsewhere.json"}
        assert {path: now[path] for path in then} == then
    small_frame(200, seed=6).to_csv(folder / "clinic.csv", index=False)  # other patients there: tested again
    again = study_of(folder, HEAD, SURVIVAL, 'test_on = ["clinic"]\n', clinic, only)
    assert [line.state for line in plan(again, out).lines] == ["waiting", "waiting"]


def test_a_site_without_both_classes_is_noted_and_nothing_fails(folder: Path) -> None:
    small_frame(60, seed=5).assign(died=0).to_csv(folder / "clinic.csv", index=False)
    clinic = BINARY.replace("ward", "clinic")
    study = study_of(folder, HEAD, BINARY, 'test_on = ["clinic"]\n', clinic, NONE, 'data = ["ward"]\n')
    assert run(study, folder / "out").failed == []
    results = pd.read_parquet(folder / "out/internal/results.parquet")
    away = results[results["tested_on"] == "clinic"]
    assert away["value"].isna().all()
    assert away["note"].str.contains("both classes").all()


def test_a_release_without_an_answer_is_tested_nowhere_and_nothing_fails(folder: Path) -> None:
    small_frame(60, seed=5).to_csv(folder / "clinic.csv", index=False)
    clinic = BINARY.replace("ward", "clinic")
    little = PRIVATE.replace("epsilon = 8", "epsilon = 0.03") + 'data = ["ward"]\n'
    study = study_of(folder, HEAD, BINARY, 'test_on = ["clinic"]\n', clinic, little)
    assert run(study, folder / "out").failed == []
    results = pd.read_parquet(folder / "out/internal/results.parquet")
    condensed = results[results["trained_on"] == "condensed"]
    assert set(condensed["tested_on"]) == {"ward", "clinic"}
    assert condensed["value"].isna().all()
    assert (condensed["rows"] == 0).all()
    assert "no answer in 2 of 2" in (folder / "out/internal/tables.md").read_text(encoding="utf-8")


# -- strangers --------------------------------------------------------------------------------------------------------


def test_a_strangers_method_and_kind_of_outcome_need_no_change_here(folder: Path) -> None:
    for seed, name in enumerate(("ward", "clinic")):
        small_frame(120, seed=seed).assign(died=lambda f: f["age"] / 100).to_csv(folder / f"{name}.csv", index=False)
    schema = Schema(tuple(column for column in SCHEMA.columns if column.name != "died"))
    (folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    shares = BINARY + 'kind = "fraction"\n'
    parts = (
        HEAD,
        shares,
        'test_on = ["clinic"]\n',
        shares.replace("ward", "clinic"),
        '[[method]]\nmethod = "uniform"\nsettings = { spread = 0.5 }\n',
    )
    with registered(), pictures():
        study = study_of(folder, *parts)
        assert run(study, folder / "out").failed == []
        with pytest.raises(SettingsError, match=r"uniform: takes only settings of its own\. Found epsilon"):
            study_of(folder, *parts, "epsilon = 1\n")
        with pytest.raises(SettingsError, match="has none to choose"):
            study_of(folder, *parts, 'reference = "trees"\n')
    results = pd.read_parquet(folder / "out/internal/results.parquet")
    assert {tuple(row) for row in results[["outcome", "made_by", "reference", "metric"]].to_numpy()} == {
        ("fraction", "uniform", "trees", "mae")
    }
    assert set(results.loc[results["data"] == "ward", "tested_on"]) == {"ward", "clinic"}
    page = (folder / "out/internal/tables.md").read_text(encoding="utf-8")
    assert "## Fraction outcomes: MAE by IPC" in page
    assert "### (a) ward → clinic" in page
    assert (folder / "out/internal/report.html").exists()
    with pytest.raises(SettingsError, match="must be one of"):  # nothing stays registered
        study_of(folder, *parts)


# -- what a study's folder tells, and what it remembers ---------------------------------------------------------------


def outside(out: Path) -> str:
    """Everything a study's folder shows outside `internal/`: names of files and folders, and contents."""
    seen = []
    for path in sorted(out.rglob("*")):
        if "internal" not in path.relative_to(out).parts:
            seen.append(str(path.relative_to(out)))
            seen.append(path.read_bytes().decode("latin-1") if path.is_file() else "")
    return "\n".join(seen)


def test_the_folder_of_a_cell_tells_nobody_whose_rows_are_in_it(call: Call, folder: Path) -> None:
    """Whoever knows all rows but one can make every digest of the file; none of them may stand outside internal/."""
    study = study_of(folder, HEAD.replace("[0, 1]", "[0]"), BINARY, NONE)
    said = [call("study", "study.toml", "--out", place, "--in-process", "--json") for place in ("here", "there")]
    (cell,) = study.cells
    here, there = (StudyFolder(folder / place) for place in ("here", "there"))
    assert here.name(cell) != there.name(cell)
    assert here.name(cell).startswith(f"{cell.name}-")
    cohort = load(cell.source, cell.endpoint)
    known = [
        digest(cell.identity),
        cell.source.content,
        cohort.fingerprint(),
        json.loads((here.run(cell).internal / "owner.json").read_text())["identity"],
    ]
    for text in (outside(here.path), outside(there.path), *(answer.out + answer.err for answer in said)):
        assert not [found for found in known if found[:8] in text]
    assert here.salt not in outside(here.path) + said[0].out + said[0].err
    assert stat.S_IMODE((here.internal / "salt").stat().st_mode) == 0o600
    assert len(here.salt) == 64


def test_names_stay_when_a_study_goes_on_and_a_dry_run_needs_no_salt(call: Call, folder: Path) -> None:
    study = study_of(folder, HEAD, BINARY, NONE)
    out = folder / "out"
    first = [line.name for line in run(study, out).lines]
    assert [line.name for line in run(study_of(folder, HEAD, BINARY, NONE), out).lines] == first
    shown = call("study", "study.toml", "--dry-run", "--out", "out").out.splitlines()
    assert shown == [f"done    {name}" for name in first]
    shown = call("study", "study.toml", "--dry-run", "--out", "elsewhere").out.splitlines()
    assert shown == [f"waiting {cell.name}" for cell in study.cells]
    assert not (folder / "elsewhere").exists()


def test_a_study_folder_without_its_salt_is_refused_and_spends_nothing_again(folder: Path) -> None:
    study, out = study_of(folder, HEAD, BINARY, NONE), folder / "out"
    run(study, out)
    (out / "internal" / "salt").unlink()
    before = files(out / "cells")
    with pytest.raises(RunFolderError, match="must have the salt"):
        run(study, out)
    assert files(out / "cells") == before


def test_two_versions_of_a_file_are_one_account_and_nothing_is_lost(folder: Path) -> None:
    out = folder / "out"
    one = HEAD.replace("[0, 1]", "[0]"), BINARY, PRIVATE.replace("8", "1")
    run(study_of(folder, *one), out)
    small_frame(241).to_csv(folder / "ward.csv", index=False)  # a patient more, under the same name
    twin = BINARY.replace('"ward"', '"twin"')
    run(study_of(folder, *one, twin), out)
    ((names, (cells, words)),) = account_words(StudyFolder(out)).items()
    assert names == "twin, ward (2 versions of the file)"
    assert cells == 3
    ledgers = [read_events(path) for path in (out / "cells").glob("*/internal/ledger.jsonl")]
    together = replay([event for events in ledgers for event in events], 1e-5).epsilon
    assert len(ledgers) == 3
    assert float(re.search(r"ε = ([\d.]+) \(end-to-end", words)[1]) >= together  # type: ignore[index]
    assert all(together > 1.15 * replay([*a, *b], 1e-5).epsilon for a, b in combinations(ledgers, 2))
    assert f"- {names}: read by 3 cells" in (out / "internal/tables.md").read_text(encoding="utf-8")


def test_different_patients_have_accounts_of_their_own(folder: Path) -> None:
    small_frame(240, seed=9).to_csv(folder / "clinic.csv", index=False)
    study = study_of(folder, HEAD, BINARY, BINARY.replace("ward", "clinic"), PRIVATE)
    run(study, folder / "out")
    assert {name: cells for name, (cells, _) in account_words(StudyFolder(folder / "out")).items()} == {
        "ward": 2,
        "clinic": 2,
    }


def test_cells_are_charged_on_the_patients_account_once_each(folder: Path) -> None:
    account = Odometer.create(folder / "patients.jsonl")
    theirs = Odometer.create(folder / "clinic.jsonl")
    small_frame(240, seed=9).to_csv(folder / "clinic.csv", index=False)
    clinic = BINARY.replace("ward", "clinic") + 'account = "clinic.jsonl"\n'
    parts = (HEAD + 'account = "patients.jsonl"\n', BINARY, clinic, PRIVATE)
    out = folder / "out"
    progress = run(study_of(folder, *parts), out)
    assert progress.failed == []
    run(study_of(folder, *parts), out)
    for one, data in ((account, "ward"), (theirs, "clinic")):
        names = {line.name for line in progress.lines if line.cell.data == data}
        assert {charge.about for charge in one.read().charges} == names
        assert len(one.read().charges) == 2
    said = [json.loads(path.read_text()) for path in (out / "cells").glob("*/release/privacy.json")]
    assert sum(one["epsilon_with_earlier_runs"] is not None for one in said) == 2


def test_a_cell_over_the_cap_fails_alone_and_reads_nobody(folder: Path) -> None:
    account = Odometer.create(folder / "patients.jsonl", cap=9.0)
    progress = run(study_of(folder, HEAD + 'account = "patients.jsonl"\n', BINARY, PRIVATE, NONE), folder / "out")
    assert [line.state for line in progress.lines] == ["done", "failed", "failed", "failed"]
    assert "within its cap" in progress.lines[1].reason
    assert "no run without a gate can keep" in progress.lines[2].reason
    assert len(account.read().charges) == 1
    (folder / "patients.jsonl").unlink()
    with pytest.raises(SettingsError, match=re.escape("[study] account: account")):
        study_of(folder, HEAD + 'account = "patients.jsonl"\n', BINARY, PRIVATE)


def test_cells_of_one_table_read_it_once_and_another_table_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_frame(120).to_csv(tmp_path / "ward.csv", index=False)
    small_frame(120, seed=1).to_csv(tmp_path / "clinic.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    study = study_of(tmp_path, HEAD.replace("[0, 1]", "[0]"), BINARY, BINARY.replace("ward", "clinic"), NONE)
    ward, clinic = study.cells
    cells_module._LAST.clear()
    seen, read = [], cells_module.load
    monkeypatch.setattr(
        cells_module, "load", lambda source, endpoint: seen.append(source.name) or read(source, endpoint)
    )
    for cell in (ward, ward, clinic, clinic, ward):
        there = cells_module.read_once(cell.source, cell.endpoint)
        pd.testing.assert_frame_equal(there.features, read(cell.source, cell.endpoint).features)
    assert seen == ["ward", "clinic", "ward"]  # one is held at a time
