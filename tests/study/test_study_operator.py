"""Studies as an operator wants them: one test set for all methods, files that grow, a forecast, an orderly stop."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.persons import HoldoutSplit, NestedSplit, split_from
from distcondense.errors import CohortError, SettingsError
from distcondense.methods import base as methods
from distcondense.privacy.accountant import replay
from distcondense.privacy.ledger import read_events
from distcondense.study import LocalTasks, Status, Study, plan, run_study
from distcondense.study import cell as cells_module
from distcondense.study.folder import StudyFolder
from distcondense.study.progress import prometheus
from distcondense.study.rows import load
from tests.conftest import small_frame
from tests.shell import Call, files, refused
from tests.study.test_study import BINARY, HEAD, NONE, PRIVATE, SCHEMA, Scripted, quicker, run, study_of
from tests.toys import Uniform, registered

SECRET = "Zzyzx-canary"


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        quicker(patch)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small_frame(240).to_csv(tmp_path / "ward.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    return tmp_path


# -- one test set -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, Path]:
    """Two methods on one table, with students of several kinds for one of the two seeds."""
    folder = tmp_path_factory.mktemp("both")
    small_frame(400).to_csv(folder / "ward.csv", index=False)
    (folder / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    study = study_of(folder, HEAD, 'attacks = { parts = ["utility"], seeds = [0] }\n', BINARY, NONE, PRIVATE)
    assert run(study, folder / "out").failed == []
    return study, folder / "out"


def splits(study: Study, out: Path) -> dict[tuple[str, int], Any]:
    found = {}
    for cell in study.cells:
        record = json.loads((StudyFolder(out).run(cell).internal / "run.json").read_text())
        found[cell.method, cell.seed] = split_from(record["splitting"]).split(load(cell.source, cell.endpoint))
    return found


def test_all_methods_of_a_seed_are_tested_on_the_same_persons_and_none_sees_them(both: tuple[Study, Path]) -> None:
    found = splits(*both)
    for seed in (0, 1):
        one, other = found["none", seed], found["private", seed]
        np.testing.assert_array_equal(one.test, other.test)
        assert 40 < len(one.test) < 120  # a fifth of 400
        for split in (one, other):
            assert not set(split.test) & {*split.train, *split.validation}
            assert len(split.test) + len(split.train) + len(split.validation) == 400  # and nobody is left unused
    assert set(found["none", 0].test) != set(found["none", 1].test)


def test_models_of_real_rows_are_one_number_under_one_dashed_line(both: tuple[Study, Path]) -> None:
    _, out = both
    results = pd.read_parquet(out / "internal/results.parquet")
    full = results[(results["trained_on"] == "full") & (results["part"] == "quick")]
    assert set(full["method"]) == {"none", "private"}
    assert (full.groupby(["seed", "metric"])["value"].nunique(dropna=False) == 1).all()
    assert (full.groupby(["seed", "metric"])["method"].nunique() == 2).all()


def test_a_method_is_given_the_table_without_the_test_persons(folder: Path) -> None:
    given = []

    class Watched(Uniform):
        def condense(self, cohort: Any, prepared: Any, context: Any) -> Any:
            given.append((cohort, context.apart))
            return super().condense(cohort, prepared, context)

    frame = small_frame(90).assign(who=np.repeat(np.arange(30), 3))
    cohort = dc.Cohort.from_frame(
        frame,
        target="died",
        person_id="who",
        schema=SCHEMA.only([c.name for c in SCHEMA.columns][:-2]),
        ignore=["months", "event"],
    )
    coins = HoldoutSplit(0.3, entropy=7)
    with registered():
        methods.register(Watched())
        result = dc.condense(cohort, method="uniform", ipc=5, held_out=coins, seed=2)
    ((rest, apart),) = given
    split = coins.split(cohort)
    assert apart
    assert rest.features.equals(cohort.features.iloc[split.train].reset_index(drop=True))
    assert not set(frame["who"][split.test]) & set(frame["who"][split.train])  # persons stay together
    used = split_from(result.record["splitting"])
    assert isinstance(used, NestedSplit)
    np.testing.assert_array_equal(used.split(cohort).test, split.test)
    assert split_from(json.loads(json.dumps(used.to_dict()))) == used


def test_who_is_tested_on_depends_on_the_seed_and_on_nobody_else(folder: Path) -> None:
    """What a theorem needs: one person more, wherever their rows stand, moves nobody to the other side."""
    cell, other = study_of(folder, HEAD, BINARY, NONE).cells
    frame, one = small_frame(120), small_frame(1, seed=9)

    def tested(table: pd.DataFrame) -> pd.DataFrame:
        table.to_csv(folder / "ward.csv", index=False)
        cohort = load(cell.source, cell.endpoint)
        return cohort.features.iloc[cell.held_out.split(cohort).test]

    before = tested(frame)
    for table in (pd.concat([one, frame]), pd.concat([frame[:60], one, frame[60:]]), frame.sample(frac=1.0)):
        now = tested(table)
        more = pd.concat([now, before]).drop_duplicates(keep=False)
        assert len(more) <= 1
        assert len(before) <= len(now) <= len(before) + 1
    assert cell.held_out != other.held_out  # another seed


def test_a_private_cell_spends_what_it_would_alone_and_its_statement_is_a_theorem(both: tuple[Study, Path]) -> None:
    study, out = both
    for cell in study.cells:
        if cell.made_by == "private":
            run_folder = StudyFolder(out).run(cell)
            stated = json.loads((run_folder.release / "privacy.json").read_text())
            assert (stated["guarantee"], stated["unit"]) == ("end-to-end", "row")
            spent = replay(read_events(run_folder.ledger), 1e-5).epsilon
            assert spent <= stated["epsilon"] * (1 + 1e-6) <= 8 * (1 + 1e-6)


def test_a_study_takes_no_holdout_of_a_method(folder: Path) -> None:
    with pytest.raises(SettingsError, match="say test in \\[study\\] for holdout"):
        study_of(folder, HEAD, BINARY, PRIVATE, "settings = { holdout = 0.5 }\n")
    with pytest.raises(SettingsError, match=r"test must be a share between 0 and 1\. Found 1"):
        study_of(folder, HEAD, "test = 1\n", BINARY, PRIVATE)
    assert {cell.test for cell in study_of(folder, HEAD, "test = 0.4\n", BINARY, PRIVATE).cells} == {0.4}


# -- further parts ----------------------------------------------------------------------------------------------------


def test_students_of_several_kinds_are_in_the_tidy_table_with_both_ways_to_teach(both: tuple[Study, Path]) -> None:
    _, out = both
    results = pd.read_parquet(out / "internal/results.parquet")
    students = results[results["part"] == "utility"]
    assert set(students["seed"]) == {0}  # that part was asked for one seed
    assert {"xgb", "logistic", "forest"} <= set(students["student"])
    labels = students[students["trained_on"] == "condensed"]
    assert set(labels["labels"]) == {"plain", "soft"}
    assert (labels.groupby("method")["labels"].nunique() == 2).all()
    full = students[(students["trained_on"] == "full") & (students["metric"] == "auroc")]
    assert (full.groupby("student")["value"].nunique() == 1).all()  # trained once for both methods
    assert (full.groupby("student")["method"].nunique() == 2).all()
    key = ["cell", "metric", "student", "trained_on", "labels", "tested_on"]
    models = results[results["part"].isin(["quick", "utility"])]
    assert (models.groupby(key, dropna=False)["value"].nunique() <= 1).all()  # a number has one value
    claimed = labels[labels["method"] == "private"]
    assert set(claimed["guarantee"]) == {"end-to-end"}
    assert (results["making_seconds"] <= results["seconds"]).all()
    assert (results["cpu_seconds"] > 0).all()
    assert (results["peak_memory_bytes"] > 1e6).all()


def test_a_part_added_later_is_measured_without_condensing_again(folder: Path) -> None:
    seeds, out = HEAD.replace("[0, 1]", "[0]"), folder / "out"
    first = study_of(folder, seeds, BINARY, NONE)
    run(first, out)
    (before,) = (files(StudyFolder(out).run(cell).path) for cell in first.cells)
    second = study_of(folder, seeds, 'parts = ["copies"]\n', BINARY, NONE)
    assert [line.state for line in plan(second, out).lines] == ["waiting"]
    assert [line.state for line in run(second, out).lines] == ["done"]
    (after,) = (files(StudyFolder(out).run(cell).path) for cell in second.cells)
    assert set(after) - set(before) == {"internal/parts.json"}
    assert {name: after[name] for name in before} == before
    assert "copies" in set(pd.read_parquet(out / "internal/results.parquet")["part"])
    with pytest.raises(SettingsError, match="the nearest is 'copies'"):
        study_of(folder, HEAD, 'parts = ["copis"]\n', BINARY, NONE)


class Forgetful(LocalTasks):
    """A worker that has read no study file."""

    def wait(self, seconds: float) -> list[tuple[int, Any]]:
        methods.forget(Uniform.name)
        return super().wait(seconds)


def test_methods_that_are_not_ours_come_from_modules_that_the_file_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "from distcondense.methods import base\nfrom tests.toys import Uniform\n"
    (folder / "strangers.py").write_text(code + "def register():\n    base.register(Uniform())\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    parts = (HEAD.replace("[0, 1]", "[0]"), 'modules = ["strangers"]\n', BINARY, '[[method]]\nmethod = "uniform"\n')
    try:
        study = study_of(folder, *parts)
        assert run(study, folder / "out", Forgetful()).failed == []
    finally:
        methods.forget(Uniform.name)
        sys.modules.pop("strangers", None)
    with pytest.raises(SettingsError, match="must be a Python module with register"):
        study_of(folder, HEAD, 'modules = ["nobody_has_this"]\n', BINARY, NONE)


# -- while it runs ----------------------------------------------------------------------------------------------------


def test_the_files_of_a_study_grow_while_it_runs_and_status_reads_them(call: Call, folder: Path) -> None:
    study, out, seen = study_of(folder, HEAD, BINARY, NONE), folder / "out", []

    def look(_: Any) -> None:
        status = Status.from_folder(out)
        tables = out / "internal/tables.md"
        text = tables.read_text(encoding="utf-8") if tables.exists() else ""
        gauges = (out / "internal/study.prom").read_text(encoding="utf-8")
        seen.append((status.state, status.record["counts"], re.findall(r"(\d) of 2 cells are in", text), gauges))

    run_study(study, out, LocalTasks(), threads=1, watch=look)
    assert {state for state, *_ in seen} == {"running"}
    assert any(counts.get("done") == 1 and inside == ["1"] for _, counts, inside, _ in seen)
    done = Status.from_folder(out)
    assert (done.state, done.record["counts"]) == ("finished", {"done": 2})
    answer = call("study", "status", "out")
    assert answer.code == 0
    assert "study small: finished" in answer.out
    assert "2 of 2 cells done" in answer.out
    assert "AUROC" in answer.out
    assert json.loads(call("study", "status", "out", "--json").out)["state"] == "finished"
    refused(call("study", "status", "."), "must hold a study that has begun")


def test_status_tells_a_stopped_study_from_one_that_was_killed(call: Call, folder: Path) -> None:
    study, out = study_of(folder, HEAD, BINARY, NONE), folder / "out"
    with pytest.raises(KeyboardInterrupt):
        run(study, out, Scripted(1, {1: KeyboardInterrupt()}))
    assert Status.from_folder(out).state == "stopped"
    assert Status.from_folder(out).record["counts"] == {"done": 1, "waiting": 1}
    said = json.loads((out / "internal/study.json").read_text())
    (out / "internal/study.json").write_text(json.dumps({**said, "state": "running"}))
    assert Status.from_folder(out).state == "killed"
    assert "goes on where it stopped" in call("study", "status", "out").out
    with StudyFolder(out).lock("study", 0.0, "", ""):
        assert Status.from_folder(out).state == "running"


def test_gauges_of_a_study_are_in_prometheus_format() -> None:
    page = prometheus("small", {"done": 3, "failed": 1}, 12.5)
    parser = pytest.importorskip("prometheus_client.parser")
    found = {family.name: family for family in parser.text_string_to_metric_families(page)}
    cells = found["distcondense_study_cells"]
    assert (cells.type, bool(cells.documentation)) == ("gauge", True)
    assert {sample.labels["state"]: sample.value for sample in cells.samples} == {
        "done": 3,
        "failed": 1,
        "running": 0,
        "waiting": 0,
        "left": 0,
    }
    (left,) = found["distcondense_study_seconds_left"].samples
    assert (left.labels, left.value) == ({"study": "small"}, 12.5)
    assert "seconds_left" not in prometheus("small", {}, None)


# -- before it runs ---------------------------------------------------------------------------------------------------


def spoil(folder: Path) -> None:
    frame = small_frame(240).astype({"crp": object})
    frame.loc[7, "crp"] = SECRET
    frame.to_csv(folder / "ward.csv", index=False)


def test_a_bad_row_fails_the_study_once_and_before_any_cell(
    call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(folder)
    study = study_of(folder, HEAD, BINARY, NONE)
    monkeypatch.setattr("distcondense.study.run.run_cell", lambda *_: pytest.fail("a cell ran"))
    with pytest.raises(CohortError, match="data 'ward': must be a table that can be read; no cell has run"):
        run(study, folder / "out")
    for more in ([], ["--dry-run"]):
        answer = call("study", "study.toml", "--out", "out", "--in-process", *more)
        refused(answer, "data 'ward'", "'crp'", "mend the table")
        assert SECRET not in answer.err
    assert not list((folder / "out/cells").iterdir())


def test_a_dry_run_opens_the_tables_and_says_what_the_study_takes(call: Call, folder: Path) -> None:
    study_of(folder, HEAD, "memory_gb = 0.5\n", BINARY, NONE, PRIVATE.replace("8", "[1, 2]"))
    answer = call("study", "study.toml", "--dry-run", "--out", "out", "--in-process")
    assert answer.code == 0
    assert len(answer.out.splitlines()) == 6
    assert re.search(r"ward: 240 rows × \d+ columns; 6 cells to run, each at least .* GiB to read it", answer.err)
    total = re.search(r"4 cells will have read it through the gate: ε = ([\d.]+) \(end-to-end, δ = 1e-05\)", answer.err)
    assert total
    assert 2 < float(total[1]) < 6  # at most 1 + 1 + 2 + 2
    assert "2 read them without a gate, which no ε bounds" in answer.err
    assert re.search(r"time: at least .* with 1 at once .*; memory: 1 × 0.5 GiB", answer.err)
    assert not (folder / "out").exists()
    told = json.loads(call("study", "study.toml", "--dry-run", "--out", "out", "--json").out)["forecast"]
    assert told["tables"][0]["rows"] == 240


def test_the_forecast_is_what_the_ledgers_say_afterwards(call: Call, folder: Path) -> None:
    study = study_of(folder, HEAD, BINARY, PRIVATE)
    command = ["study", "study.toml", "--dry-run", "--out", "out"]
    before = re.search(r"ε = ([\d.]+) \(end-to-end", call(*command).err)
    run(study, folder / "out")
    events = [event for cell in study.cells for event in read_events(StudyFolder(folder / "out").run(cell).ledger)]
    assert before
    assert replay(events, 1e-5).epsilon <= float(before[1]) <= replay(events, 1e-5).epsilon * 1.05
    after = call(*command).err
    assert f"ε = {before[1]} (end-to-end" in after  # what was read is not added to what is planned
    assert "2 of 2 cells done" in after


def test_what_another_machine_found_is_not_run_again_and_is_in_the_report(call: Call, folder: Path) -> None:
    study_of(folder, HEAD, BINARY, NONE, PRIVATE)
    command = ["study", "study.toml", "--in-process", "--out"]
    assert call(*command, "there", "--only", "method=none").code == 0
    assert call(*command, "other", "--only", "method=private", "--seeds", "0").code == 0
    external = ["--with", "there/internal/results.parquet", "--with", "other/internal/results.parquet"]
    assert "3 of 4 cells done, 3 of them elsewhere, 1 waiting" in call(*command, "here", *external, "--dry-run").err
    answer = call(*command, "here", *external)
    assert answer.code == 0
    assert "4 of 4 cells done, 3 of them elsewhere" in answer.err
    assert len(list((folder / "here/cells").iterdir())) == 1
    results = pd.read_parquet(folder / "here/internal/results.parquet")
    parts = [pd.read_parquet(folder / name / "internal/results.parquet") for name in ("there", "other")]
    assert results.groupby("key").ngroups == 4
    for part in parts:
        key = part["key"].iloc[0]
        pd.testing.assert_frame_equal(
            results[results["key"] == key].reset_index(drop=True), part[part["key"] == key].reset_index(drop=True)
        )
    tables = (folder / "here/internal/tables.md").read_text()
    assert "4 of 4 cells are in these tables" in tables
    assert "- made elsewhere: 3 cells; what they read is in none of these sums" in tables
    told = call("study", "study.toml", "--report", "--out", "told", *external)
    assert "3 of 4 cells done, 3 of them elsewhere, 1 not asked for" in told.err
    assert not list((folder / "told/cells").iterdir())
    assert "3 of 4 cells are in these tables" in (folder / "told/internal/tables.md").read_text()
    refused(call("study", "study.toml", "--report", "--dry-run"), "--report", "runs nothing")
    study_of(folder, HEAD, BINARY, NONE, PRIVATE.replace("epsilon = 8", "epsilon = 7"))  # another cell
    assert "2 of 4 cells done, 2 of them elsewhere, 2 waiting" in call(*command, "new", *external, "--dry-run").err
    refused(call(*command, "new", "--with", "there/nowhere"), "results there/nowhere", "must be readable")
    refused(call(*command, "new", "--with", "ward.csv"), "results ward.csv", "must be a results.parquet of a study")
    assert not (folder / "new").exists()


def test_a_cell_that_failed_elsewhere_is_told_with_its_reason_and_not_tried_again(call: Call, folder: Path) -> None:
    study = study_of(folder, HEAD, BINARY, NONE)
    run(study, folder / "there", Scripted(1, {0: RuntimeError("its process died")}))
    answer = call("study", "study.toml", "--in-process", "--out", "here", "--with", "there/internal/results.parquet")
    assert answer.code == 0
    assert not list((folder / "here/cells").iterdir())
    for page in ("tables.md", "report.html"):
        assert "its process died" in (folder / "here/internal" / page).read_text()
    asked = study_of(folder, HEAD, 'parts = ["copies"]\n', BINARY, NONE)  # more is asked than was measured there
    again = ["study", "study.toml", "--dry-run", "--out", "here", "--with", "there/internal/results.parquet"]
    assert "1 waiting" in call(*again).err
    assert len(asked.cells) == 2


def test_only_some_cells_run_and_the_report_is_of_all_that_are_done(call: Call, folder: Path) -> None:
    study = study_of(folder, HEAD, BINARY, NONE, PRIVATE)
    command = ["study", "study.toml", "--out", "out", "--in-process"]
    answer = call(*command, "--only", "method=none", "--seeds", "1")
    assert answer.code == 0
    assert "1 of 4 cells done, 3 not asked for" in answer.err
    assert [line.state for line in plan(study, folder / "out").lines] == ["waiting", "kept", "waiting", "waiting"]
    assert call(*command, "--only", "method=none").code == 0
    results = pd.read_parquet(folder / "out/internal/results.parquet")
    assert set(results["seed"]) == {0, 1}
    refused(call(*command, "--only", "method=noen"), "--only method", "the nearest is 'none'")
    refused(call(*command, "--only", "colour=red"), "must name one of data, method")
    refused(call(*command, "--seeds", "7"), "must be in the study")
    refused(call(*command, "--only", "data"), "KEY=VALUE")


# -- stopping ---------------------------------------------------------------------------------------------------------


def test_sigterm_says_how_to_go_on_and_loses_nothing(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study_of(folder, HEAD, BINARY, NONE)
    real, before = cells_module.condense, signal.getsignal(signal.SIGTERM)

    def stopped(*arguments: Any, seed: int, **options: Any) -> Any:
        if seed == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments, seed=seed, **options)

    command = ["study", "study.toml", "--out", "out", "--in-process"]
    with monkeypatch.context() as patched:
        patched.setattr(cells_module, "condense", stopped)
        answer = call(*command)
    assert answer.code == 143
    assert "stopped (SIGTERM): 1 of 2 cells done" in answer.err
    assert "go on by the same command: distcondense study study.toml --out out --in-process" in answer.err
    assert "Traceback" not in answer.err
    assert signal.getsignal(signal.SIGTERM) is before
    assert Status.from_folder(folder / "out").state == "stopped"
    assert call(*command).code == 0


def test_the_command_shows_its_own_help_and_that_of_status(call: Call) -> None:
    assert "--dry-run" in call("study", "--help").out
    assert "study status" in call("study", "--help").out
    assert "study folder" in call("study", "status", "--help").out
