"""Several IPC from one read of the patients: one fit, one ledger, one ε, a table of each; on disk and in studies."""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.schema import Column, Schema
from distcondense.errors import SettingsError
from distcondense.evaluation.experiment import Experiment
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, REFERENCE
from distcondense.methods.base import method_named, methods, options_of, takes_several
from distcondense.methods.private import condense as private
from distcondense.methods.private import placement
from distcondense.methods.private.options import PrivateOptions
from distcondense.models import learners
from distcondense.privacy import curves, noise
from distcondense.privacy.ledger import read_events
from distcondense.privacy.odometer import Odometer
from distcondense.runs.release import LABEL
from distcondense.runs.signing import make_keys, sign, verify_release
from distcondense.study import LocalTasks, Study, run_study
from distcondense.study.accounts import account_words
from distcondense.study.cell import StudyFolder
from tests.conftest import SMALL_SCHEMA, small_frame
from tests.shell import TARGET, Call, files, refused, write
from tests.tiny import patients
from tests.toys import registered

IPCS = [9, 5]  # not in order: what is asked for is given as it was asked for
# an ε of its own, so that what the accountants keep of this coarse grid of losses (only to save time) serves nobody
HOW: dict[str, Any] = {"epsilon": 6.21, "threads": 1}
TABLES = [f"condensed-{ipc}.{kind}" for ipc in IPCS for kind in ("csv", "parquet")]
PAPERS = ["README.md", "croissant.json", "datasheet.md", "deployment.json", "model.svg", "report.html", "schema.toml"]


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    """Rows are drawn, not chosen; small models, no pictures: how good a set is is no question here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "LARGE", 0)
        patch.setattr(placement, "POPULATION", 1000)
        patch.setattr(learners, "ROUNDS", 10)
        patch.setattr(curves, "LOSS_STEP", 1e-3)
        patch.setitem(sys.modules, "matplotlib.figure", None)
        yield


def ward(rows: int = 900) -> dc.Cohort:
    schema = Schema((*SMALL_SCHEMA.columns, Column("died", "binary", categories=(0, 1))))
    return dc.Cohort.from_frame(small_frame(rows), target="died", ignore=["months", "event"], schema=schema)


def test_released_numbers_have_no_more_digits_than_their_cells_tell_apart() -> None:
    result = dc.condense(ward(), rows=40, **HOW)
    numbers = [c.name for c in result.schema.columns if c.kind == "continuous" and c.decimals is None]
    assert numbers
    for name in numbers:
        assert max(len(f"{value:.15g}") for value in result.frame[name].dropna()) <= 9, name


def said(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "release/privacy.json").read_text()))


def record_of(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "internal/run.json").read_text()))


# -- in Python --------------------------------------------------------------------------------------------------------


def test_a_list_of_ipc_gives_a_result_of_each_from_one_fit() -> None:
    results, alone = dc.condense(ward(), ipc=IPCS, **HOW), dc.condense(ward(), ipc=5, **HOW)
    assert isinstance(results, dc.Results)
    assert isinstance(alone, dc.Result)
    assert list(results) == IPCS
    assert {ipc: len(one.frame) for ipc, one in results.items()} == {9: 18, 5: 10}
    assert len(results.privacy.ledger) == len(alone.privacy.ledger)
    assert results.privacy.epsilon == alone.privacy.epsilon
    for one in results.values():
        assert one.privacy == results.privacy
        assert one.record["splitting"] == results.record["splitting"]
        assert one.frame.attrs[LABEL]["epsilon"] == results.privacy.epsilon
    assert "all 2 sets of synthetic rows (IPC 9, 5) were made from these answers alone" in results.privacy.paragraph()
    assert "the synthetic rows were made from these answers alone" in alone.privacy.paragraph()
    assert 7 not in results
    X, y, weight = results[9].training_data()
    assert len(X) == len(y) == len(weight) >= 18


def test_a_set_is_the_one_that_a_run_of_its_ipc_alone_makes_of_the_same_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[Any] = []

    def keep(draw: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*query: Any) -> Any:
            heard.append(draw(*query))
            return heard[-1]

        return asked

    for draw in ("discrete_gaussian", "noisy_top"):
        monkeypatch.setattr(noise, draw, keep(getattr(noise, draw)))
    results = dc.condense(ward(), ipc=IPCS, holdout=0.0, seed=3, **HOW)
    for ipc in IPCS:
        again = iter(heard)
        for draw in ("discrete_gaussian", "noisy_top"):
            monkeypatch.setattr(noise, draw, lambda *query, again=again: next(again))
        alone = dc.condense(ward(), ipc=ipc, holdout=0.0, seed=3, **HOW)
        pd.testing.assert_frame_equal(alone.frame, results[ipc].frame)
        assert next(again, None) is None


def test_patients_are_read_once_and_models_of_real_rows_are_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, fitted = [], []
    fit, trained = private.fit_private, Experiment.trained
    monkeypatch.setattr(private, "fit_private", lambda *args: asked.append(1) or fit(*args))
    monkeypatch.setattr(
        Experiment, "trained", lambda self, arm, *rest: fitted.append(arm.trained_on) or trained(self, arm, *rest)
    )
    results = dc.condense(ward(), ipc=IPCS, **HOW)
    assert len(asked) == 1
    assert fitted == [FULL, REFERENCE, CONDENSED, RANDOM, CONDENSED, RANDOM]
    whole = {ipc: [s for s in one.record["scores"] if s["trained_on"] == FULL] for ipc, one in results.items()}
    assert whole[9] == whole[5] != []
    rows = {
        ipc: {s["rows"] for s in one.record["scores"] if s["trained_on"] == CONDENSED} for ipc, one in results.items()
    }
    assert rows == {9: {18}, 5: {10}}


def test_each_result_can_be_measured_again_and_pickles_hold_no_record() -> None:
    cohort = ward()
    results = dc.condense(cohort, ipc=IPCS, **HOW)
    for ipc, one in results.items():
        found = {(s.trained_on, s.measure): s.value for s in dc.evaluate(cohort, one, threads=1)}
        for score in one.record["scores"]:
            if score["trained_on"] == CONDENSED:
                assert found[CONDENSED, score["measure"]] == pytest.approx(score["value"], abs=0.02), ipc
    copied = pickle.loads(pickle.dumps(results))
    assert list(copied) == IPCS
    assert copied.internal == {}
    for refuse in (lambda: copied.record, lambda: copied.save("anywhere"), lambda: copied[5].record):
        with pytest.raises(SettingsError, match="must have the record of its run"):
            refuse()


def test_what_a_method_notes_of_one_set_stands_beside_its_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    made = private._result

    def noted(*given: Any, **details: Any) -> Any:
        one = made(*given, **details)
        return one.with_details(notes={**one.details.notes, "own": {"rows": len(one.frame)}})

    monkeypatch.setattr(private, "_result", noted)
    results = dc.condense(ward(), ipc=IPCS, **HOW)
    assert [one["own"] for one in results.record["sets"]] == [{"rows": 18}, {"rows": 10}]
    assert "own" not in results.record
    assert results[5].record["own"] == {"rows": 10}
    assert results.record["scaling"] == results[5].record["scaling"] == "public"
    assert dc.condense(ward(), ipc=5, **HOW).record["own"] == {"rows": 10}


def test_a_list_of_one_is_one_table_under_its_usual_name(tmp_path: Path) -> None:
    results = dc.condense(ward(), ipc=[5], out=tmp_path / "run", **HOW)
    assert list(results) == [5]
    released = {"condensed.csv", "condensed.parquet", "privacy.json", "report.html", "schema.toml"}
    assert released <= set(files(tmp_path / "run/release"))
    assert not any("condensed-" in name for name in files(tmp_path / "run/release"))
    assert "the synthetic rows were made" in said(tmp_path / "run")["statement"]
    assert verify_release(tmp_path / "run").holds


def test_where_there_is_no_answer_there_is_no_table(tmp_path: Path) -> None:
    frame = small_frame(300).assign(died=lambda f: f["died"].sample(frac=1, random_state=1).to_numpy())
    schema = Schema((*SMALL_SCHEMA.columns, Column("died", "binary", categories=(0, 1))))
    cohort = dc.Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=schema)
    results = dc.condense(cohort, ipc=IPCS, epsilon=0.0521, threads=1, out=tmp_path / "run")
    assert results.privacy.answer
    assert {ipc: len(one.frame) for ipc, one in results.items()} == {9: 0, 5: 0}
    papers = [
        "README.md",
        "croissant.json",
        "datasheet.md",
        "deployment.json",
        "privacy.json",
        "report.html",
        "schema.toml",
    ]
    assert sorted(files(tmp_path / "run/release")) == papers
    assert verify_release(tmp_path / "run").holds


def test_an_account_is_charged_once_for_all_sets(tmp_path: Path) -> None:
    account = Odometer.create(tmp_path / "account")
    dc.condense(ward(), ipc=IPCS, account=account, **HOW)
    other = Odometer.create(tmp_path / "other")
    dc.condense(ward(), ipc=5, account=other, **HOW)
    assert len(account.others("")) == len(other.others("")) > 0


# -- on disk ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("made") / "run"
    dc.condense(ward(), ipc=IPCS, out=run, **HOW)
    return run


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def test_a_folder_has_a_table_of_each_ipc_and_one_statement_bound_to_all(run: Path) -> None:
    assert sorted(files(run / "release")) == sorted([*TABLES, *PAPERS, "privacy.json"])
    stated = said(run)
    assert set(stated["files"]) == {*TABLES, *PAPERS}
    assert stated["parameters"]["ipc"] == IPCS
    assert "(IPC 9, 5)" in stated["statement"]
    for ipc in IPCS:
        csv, parquet = (
            f(run / f"release/condensed-{ipc}.{kind}")
            for f, kind in ((pd.read_csv, "csv"), (pd.read_parquet, "parquet"))
        )
        pd.testing.assert_frame_equal(csv, parquet, check_dtype=False)
        assert len(csv) == 2 * ipc
        assert parquet.attrs[LABEL]["epsilon"] == stated["epsilon"]
    for place in (run, run / "release", run / "release/privacy.json"):
        found = verify_release(place)
        assert found.holds, found.contradictions
        assert "SHA-256 of 11 released files compared" in found.notes
    assert len(read_events(run / "internal/ledger.jsonl")) == len(stated["ledger"])


def test_run_json_has_the_scores_of_each_set_with_its_ipc(run: Path) -> None:
    record = record_of(run)
    assert record["settings"]["ipc"] == IPCS
    assert [(one["ipc"], one["rows"]) for one in record["sets"]] == [(9, 18), (5, 10)]
    assert "scores" not in record
    for one in record["sets"]:
        assert {score["trained_on"] for score in one["scores"]} == {FULL, REFERENCE, CONDENSED, RANDOM}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda file: file.write_bytes(file.read_bytes() + b"\n"), "is not the file that the statement was made for"),
        (lambda file: file.unlink(), "is missing"),
        (lambda file: shutil.copy(file, file.with_stem("condensed-7")), "is not part of the release"),
    ],
)
def test_verify_finds_what_was_changed_lost_or_added(
    run: Path, name: str, spoil: Callable[[Path], Any], says: str
) -> None:
    spoil(run / "release" / name)
    found = verify_release(run)
    assert not found.holds
    assert any(says in words for words in found.contradictions)


def test_verify_looks_at_the_label_of_every_table(run: Path) -> None:
    file = run / "release/condensed-5.parquet"
    frame = pd.read_parquet(file)
    frame.attrs = {}
    frame.to_parquet(file)
    assert any("label of condensed-5.parquet" in words for words in verify_release(run).contradictions)


def test_a_signature_covers_all_sets(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    make_keys(tmp_path / "keys")
    sign(run, tmp_path / "keys/private.pem")
    assert verify_release(run, key=tmp_path / "keys/public.pem").holds


def test_results_are_saved_together_or_one_alone(tmp_path: Path) -> None:
    results = dc.condense(ward(), ipc=IPCS, **HOW)
    assert results.save(tmp_path / "all") == tmp_path / "all"
    assert sorted(files(tmp_path / "all/release")) == sorted([*TABLES, *PAPERS, "privacy.json"])
    results[5].save(tmp_path / "one")
    assert len(pd.read_csv(tmp_path / "one/release/condensed.csv")) == 10
    for place in ("all", "one"):
        assert verify_release(tmp_path / place).holds
    again = dc.condense(ward(), ipc=IPCS, **HOW)
    again.save(tmp_path / "all", force=True)
    for one in again.values():  # what the folder held before was read off the same patients
        assert one.privacy.epsilon_with_earlier_runs > 1.2 * one.privacy.epsilon
        assert one.frame.attrs[LABEL]["epsilon_with_earlier_runs"] == one.privacy.epsilon_with_earlier_runs
    assert verify_release(tmp_path / "all").holds


def test_a_run_killed_between_two_sets_resumes_without_asking_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, placed = private.place, []

    def dies(*args: Any, **how: Any) -> Any:
        placed.append(args[2])
        if len(placed) == 2:
            raise KeyboardInterrupt
        return place(*args, **how)

    monkeypatch.setattr(private, "place", dies)
    with pytest.raises(KeyboardInterrupt):
        dc.condense(ward(), ipc=IPCS, out=tmp_path / "run", **HOW)
    before = (tmp_path / "run/internal/ledger.jsonl").read_bytes()
    monkeypatch.setattr(noise, "discrete_gaussian", None)  # nobody may be asked again
    results = dc.condense(ward(), ipc=IPCS, out=tmp_path / "run", resume=True, **HOW)
    assert placed == [9, 5, 9, 5]
    assert {ipc: len(one.frame) for ipc, one in results.items()} == {9: 18, 5: 10}
    assert (tmp_path / "run/internal/ledger.jsonl").read_bytes() == before
    assert verify_release(tmp_path / "run").holds


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ipc", "says"),
    [
        ([], "ipc: must name at least one number"),
        ([5, 9, 5], r"ipc: must not repeat. Found \(5, 9, 5\)"),
        ([5, 0], "ipc: must be between 1 and"),
        ([5, -1], "ipc: must be between 1 and"),
        ([5, 2.5], "ipc: must be a whole number or a list of whole numbers"),
        ([5, True], "ipc: must be a whole number or a list of whole numbers"),
        ("5,9", "ipc: must be a whole number or a list of whole numbers. Found str"),
    ],
)
def test_a_wrong_list_is_refused_before_anybody_is_read(ipc: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=says):
        dc.condense(ward(60), ipc=ipc, out=tmp_path / "run", **HOW)
    assert not (tmp_path / "run").exists()


def test_a_method_whose_every_ipc_is_a_run_of_its_own_refuses_a_list(tmp_path: Path) -> None:
    with registered():
        assert [method.name for method in methods() if takes_several(method)] == ["private"]
        for method, more in (("published", {"noise": False}), ("uniform", {})):
            with pytest.raises(
                SettingsError, match=f"for method {method}: every IPC is a run of its own.*one run per IPC"
            ):
                dc.condense(ward(60), method=method, ipc=[5, 9], out=tmp_path / "run", **more)
            assert options_of(method_named(method), {"ipc": 5, **more}).ipcs == (5,)
    assert not (tmp_path / "run").exists()
    assert PrivateOptions(ipc=[5, 9]).ipcs == PrivateOptions(ipc=(5, 9)).ipc == (5, 9)
    assert PrivateOptions(ipc=5).ipcs == (5,)


# -- on the command line ----------------------------------------------------------------------------------------------


def test_the_command_line_takes_a_list_with_commas(call: Call, tmp_path: Path) -> None:
    cohort = write(patients(1500), tmp_path)
    how = ["--epsilon", "6.21", "--threads", "1"]
    answer = call("condense", cohort, *TARGET, *how, "--ipc", "9,5", "--out", "run")
    assert answer.code == 0, answer.err
    table = answer.out[: answer.out.index("guarantee:")]
    assert [table.count(words) for words in ("IPC 9", "IPC 5", "every set")] == [1, 1, 1]
    assert table.count("Condensed (synthetic)") == table.count("Random real rows") == 2
    assert table.count("Real training rows") == 1
    first = next(line for line in answer.out.splitlines() if not line.startswith("NOT GOOD ENOUGH: "))
    assert first.startswith("condensed 18 and 10 rows (2 sets): ")
    assert "(IPC 9, 5) were made" in (tmp_path / "run/release/datasheet.md").read_text(encoding="utf-8")
    assert "placing 18 + 10 rows" in answer.err
    assert sorted(files(tmp_path / "run/release")) == sorted([*TABLES, *PAPERS, "privacy.json"])
    verified = call("privacy", "verify", "run")
    assert verified.code == 0, verified.out
    assert "SHA-256 of 11 released files" in verified.out
    for ipc in IPCS:
        assert call("schema", "check", "run/release/schema.toml", f"run/release/condensed-{ipc}.csv").code == 0

    answer = call("condense", cohort, *TARGET, *how, "--ipc", "9,5", "--out", "again", "--json")
    found = json.loads(answer.out)
    assert [one["ipc"] for one in found["sets"]] == IPCS
    assert all(one["scores"] for one in found["sets"])
    assert found["privacy"]["parameters"]["ipc"] == IPCS


@pytest.mark.parametrize(("said", "says"), [("9,5,9", "must not repeat"), ("9,0", "must be between 1 and")])
def test_a_wrong_list_on_the_command_line_is_one_message(call: Call, tmp_path: Path, said: str, says: str) -> None:
    refused(call("condense", write(patients(60), tmp_path), *TARGET, "--ipc", said), "ipc", says)


def test_what_is_no_list_of_numbers_cannot_be_parsed(call: Call, tmp_path: Path) -> None:
    for words in ("9,", "", "9;5", "9,x"):
        answer = call("condense", write(patients(60), tmp_path), *TARGET, "--ipc", words)
        assert answer.code == 2
        assert "--ipc" in answer.err
        assert "Traceback" not in answer.err


def test_published_names_the_way_out_on_the_command_line(call: Call, tmp_path: Path) -> None:
    answer = call(
        "condense", write(patients(60), tmp_path), *TARGET, "--method", "published", "--no-noise", "--ipc", "5,9"
    )
    refused(answer, "one run per IPC", "method published")


# -- studies ----------------------------------------------------------------------------------------------------------

STUDY = """
[study]
name = "small"
seeds = [0, 1]
ipc = [9, 5]

[[data]]
name = "ward"
path = "ward.csv"
schema = "schema.toml"
target = "died"
ignore = ["months", "event"]
test_on = ["elsewhere"]

[[data]]
name = "elsewhere"
path = "elsewhere.csv"
schema = "schema.toml"
target = "died"
ignore = ["months", "event"]

[[method]]
method = "private"
epsilon = 6.21
data = ["ward"]

[[method]]
name = "none"
method = "published"
data = ["ward"]
settings = { noise = false, steps = 4, evaluate_every = 2 }
"""


@pytest.fixture
def study(tmp_path: Path) -> Study:
    for name, seed in (("ward", 0), ("elsewhere", 1)):
        small_frame(300, seed).to_csv(tmp_path / f"{name}.csv", index=False)
    schema = Schema((*SMALL_SCHEMA.columns, *(Column(name, "binary", categories=(0, 1)) for name in ("died", "event"))))
    (tmp_path / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    return Study.from_toml(tmp_path / "study.toml")


def test_ipcs_that_one_read_serves_are_one_cell_of_a_study(study: Study, tmp_path: Path) -> None:
    assert [(cell.made_by, cell.ipc) for cell in study.cells if cell.seed == 0] == [
        ("private", (5, 9)),
        ("published", 9),
        ("published", 5),
    ]
    assert "-ipc5+9-" in study.cells[0].name
    (tmp_path / "study.toml").write_text(STUDY.replace("[9, 5]", "[5, 9]"), encoding="utf-8")
    again = Study.from_toml(tmp_path / "study.toml")  # another order is the same cell: nobody is read again for it
    assert again.cells[0].identity == study.cells[0].identity
    (tmp_path / "study.toml").write_text(STUDY.replace("[9, 5]", f"{list(range(1, 40))}"), encoding="utf-8")
    assert "-39-ipcs-" in Study.from_toml(tmp_path / "study.toml").cells[0].name


def test_a_study_reads_patients_once_for_all_ipc_and_keeps_a_row_of_each(study: Study, tmp_path: Path) -> None:
    out = tmp_path / "out"
    progress = run_study(study, out, LocalTasks(), threads=1)
    assert [line.reason for line in progress.failed] == []
    folder, cell = StudyFolder(out), study.cells[0]
    release = folder.run(cell).release
    assert {"condensed-5.csv", "condensed-9.csv"} < {path.name for path in release.iterdir()}
    assert verify_release(folder.run(cell).path).holds
    results = pd.read_parquet(out / "internal/results.parquet")
    key = ["cell", "ipc", "tested_on", "trained_on", "metric"]
    assert not results.duplicated(key).any()
    mine = results[(results["cell"] == folder.name(cell)) & (results["trained_on"] == CONDENSED) & results["main"]]
    assert sorted(zip(mine["ipc"], mine["tested_on"], mine["rows"], strict=True)) == [
        (5, "elsewhere", 10),
        (5, "ward", 10),
        (9, "elsewhere", 18),
        (9, "ward", 18),
    ]
    assert mine["value"].notna().all()
    assert mine["epsilon"].nunique() == 1
    of_method = results.groupby("method")["ipc"].agg(lambda ipc: sorted(set(ipc)))
    assert of_method.to_dict() == {"private": [5, 9], "none": [5, 9]}
    (cells, words), *others = account_words(folder).values()
    assert (cells, others) == (2, []), words  # one read for each seed
    again = run_study(study, out, LocalTasks(), threads=1)
    assert {line.state for line in again.lines} == {"kept"}
