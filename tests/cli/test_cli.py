"""The command line: what it prints, what it refuses, and that a refusal leaves nothing behind.

Most tests call `main` in this process; a few start a real one. Every run is tiny: 240 rows, 20 steps.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from distcondense.data.schema import Schema
from distcondense.methods.base import methods
from distcondense.runs import saving
from tests.shell import FOLLOWED, TARGET, Answer, Call, files, options, refused, write
from tests.tiny import BINARY, NUMBER, SCHEMA, SPOILED, TEXT, Spoiled, patients

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--ipc", "10", "--steps", "20", "--evaluate-every", "10", "--threads", "1"]
NOISY = ["--method", "published", "--sigma-base", "8"]
BARE = ["--method", "published", "--no-noise"]


@pytest.fixture
def cohort(tmp_path: Path) -> Path:
    return write(patients(), tmp_path)


def bare_epsilons(text: str) -> list[str]:
    """Every ε with a number whose guarantee is neither said just before it nor right behind it."""
    flat = " ".join(text.split()).lower()
    bare = []
    for found in re.finditer(r"(ε|epsilon)\W{0,3}(?=\d|over|none)", flat):
        before, behind = flat[max(0, found.start() - 200) : found.start()], flat[found.end() : found.end() + 40]
        if not re.search("as.published|end to end", before) and not re.search("as.published", behind):
            bare.append(before[-40:] + found.group() + behind)
    return bare


def objects(data: Any) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict):
        yield data
    for value in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from objects(value)


def score(scores: list[dict[str, Any]], trained_on: str, measure: str) -> dict[str, Any]:
    """The one of them."""
    (found,) = [entry for entry in scores if (entry["trained_on"], entry["measure"]) == (trained_on, measure)]
    return found


# -- runs that end well -----------------------------------------------------------------------------------------------


def test_a_run_writes_two_rooms_and_a_table_to_read(call: Call, cohort: Path, tmp_path: Path) -> None:
    answer = call("condense", cohort, *TARGET, *NOISY, *SMALL, "--out", "run")
    assert answer.code == 0
    first, title = [line for line in answer.out.splitlines() if not line.startswith("NOT GOOD ENOUGH: ")][:2]
    assert first.startswith("condensed 20 rows: models trained on them reach AUROC ")
    assert "(as-published" in first
    assert "…," in title  # its own
    assert answer.out.count("…") == 1  # no word is cut
    for part in ("Real training rows", "Condensed (synthetic)", "Random real rows, same number", "Sensitivity"):
        assert part in answer.out
    assert re.search(r"0\.\d{3} \[0\.\d{3}, [01]\.\d{3}\]", answer.out)
    assert "[95% intervals]" in answer.out
    assert "release: " in answer.err.splitlines()[-1]
    assert "condensing: 20/20" in answer.err
    assert sorted(files(tmp_path / "run")) == [
        "internal/log.txt",
        "internal/owner.json",
        "internal/report.html",
        "internal/report.json",
        "internal/run.json",
        "internal/steps.jsonl",
        "release/README.md",
        "release/condensed.csv",
        "release/condensed.parquet",
        "release/croissant.json",
        "release/datasheet.md",
        "release/deployment.json",
        "release/privacy.json",
        "release/report.html",
        "release/schema.toml",
    ]
    made = pd.read_csv(tmp_path / "run/release/condensed.csv")
    assert list(made) == ["age", "crp", "ferritin", "sex", "stage", "died", "distcondense_risk", "distcondense_weight"]
    assert dict(made["died"].value_counts()) == {0: 10, 1: 10}
    pd.testing.assert_frame_equal(made, pd.read_parquet(tmp_path / "run/release/condensed.parquet"))
    released = Schema.from_toml(tmp_path / "run/release/schema.toml")
    assert released.features == SCHEMA.without(["months", "relapse", "died"])
    assert call("schema", "check", "run/release/schema.toml", "run/release/condensed.csv").code == 0
    # a number measured on patients is itself a release: it stays inside
    measured = json.loads((tmp_path / "run/internal/run.json").read_text())["scores"]
    auroc = score(measured, "condensed", "auroc")
    assert auroc["low"] <= auroc["value"] <= auroc["high"]
    handed_over = (tmp_path / "run/release/privacy.json").read_text()
    assert "auroc" not in handed_over
    assert "history" not in handed_over


@pytest.mark.parametrize("noise", [NOISY, BARE], ids=["published", "none"])
def test_every_printed_epsilon_stands_beside_its_guarantee(
    call: Call, cohort: Path, tmp_path: Path, noise: list[str]
) -> None:
    answer = call("condense", cohort, *TARGET, *noise, *SMALL, "--out", "run")
    printed = answer.out + answer.err + (tmp_path / "run/internal/log.txt").read_text()
    assert bare_epsilons(printed) == []
    if noise is NOISY:
        assert "guarantee: as-published" in answer.out
        assert "ε = " in answer.out
        assert "(as-published)" in answer.err  # the progress line
    else:
        assert "NO PRIVACY GUARANTEE" in answer.out
        assert "NO PRIVACY" in answer.err
        assert "ε" not in printed


def test_the_search_for_bare_epsilons_finds_them() -> None:
    assert bare_epsilons("step 3 ε 2.50 done")
    assert bare_epsilons("epsilon: 3")
    assert bare_epsilons("ε = 2.5 (δ = 1e-05); end to end at worst: over 100")
    assert not bare_epsilons("step 3 ε 2.50 (as-published)")


def test_json_is_one_object_and_its_epsilon_has_a_guarantee(call: Call, cohort: Path) -> None:
    answer = call("condense", cohort, *TARGET, *NOISY, *SMALL, "--json", "--out", "run")
    assert answer.code == 0
    assert answer.err == ""
    assert answer.out.count("\n") == 1
    data = json.loads(answer.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data["privacy"]["guarantee"] == "as-published"
    assert data["privacy"]["worst_case_epsilon"]
    assert score(data["scores"], "condensed", "auroc")["value"] is not None
    with_epsilon = [o for o in objects(data) if any("epsilon" in key for key in o)]
    assert with_epsilon
    assert all("guarantee" in o for o in with_epsilon)
    written = json.loads(Path("run/release/privacy.json").read_text())
    assert {name for name in written if name not in data["privacy"]} == {"files", "software", "digest"}
    assert data["privacy"] == {name: written[name] for name in data["privacy"]}


def test_quiet_prints_nothing_even_where_there_is_something_to_warn_of(call: Call, tmp_path: Path) -> None:
    table = write(patients().assign(crp=4.5), tmp_path)
    answer = call("condense", table, *TARGET, *NOISY, *SMALL, "--quiet", "--out", "run")
    assert answer == Answer(0, "", "")
    record = json.loads((tmp_path / "run/internal/run.json").read_text())
    assert record["constant_columns_dropped"] == ["crp"]
    assert "'crp'" in record["warnings"][0]


def test_constant_columns_and_a_large_ipc_are_allowed_and_said(call: Call, tmp_path: Path) -> None:
    table = write(patients().assign(crp=4.5), tmp_path)
    answer = call("condense", table, *TARGET, *BARE, *SMALL, "--ipc", "150", "--out", "run")
    assert answer.code == 0
    assert "warning: 1 constant columns dropped: 'crp'" in answer.err
    assert "warning: IPC 150 is more than the rarer class has" in answer.err
    assert "crp" not in Schema.from_toml(tmp_path / "run/release/schema.toml")
    made = pd.read_csv(tmp_path / "run/release/condensed.csv")
    assert "crp" not in made
    assert len(made) == 300


@pytest.mark.parametrize("reference", ["cox", "aft"])
def test_a_survival_run_ends_with_a_c_index(call: Call, cohort: Path, tmp_path: Path, reference: str) -> None:
    answer = call("condense", cohort, *FOLLOWED, *NOISY, *SMALL, "--reference", reference, "--json", "--out", "run")
    assert answer.code == 0
    assert 0 <= score(json.loads(answer.out)["scores"], "full", "c_index")["value"] <= 1
    made = pd.read_csv(tmp_path / "run/release/condensed.csv")
    assert list(made)[-3:] == ["months", "relapse", "distcondense_weight"]
    assert (made["months"] > 0).all()


def test_soft_output_keeps_the_raw_numbers(call: Call, cohort: Path, tmp_path: Path) -> None:
    assert call("condense", cohort, *TARGET, *BARE, *SMALL, "--soft", "--quiet", "--out", "run").code == 0
    made = pd.read_csv(tmp_path / "run/release/condensed.csv")
    assert {"stage=I", "stage=II", "stage=III"} <= set(made)
    assert (made["age"] % 1 != 0).any()


def test_labels_and_holes_are_released_as_the_table_writes_them(call: Call, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    frame = patients().assign(died=lambda f: f["died"].map({0: "alive", 1: "dead"}), grade=rng.choice([1, 2, 3], 240))
    frame["grade"] = frame["grade"].astype(object).where(rng.random(240) < 0.6, "?")
    frame.drop(columns=["months", "relapse"]).to_csv(tmp_path / "labels.csv", index=False)
    (tmp_path / "labels.toml").write_text(
        SCHEMA.without(["months", "relapse", "died"]).to_toml()
        + '[columns.grade]\nkind = "categorical"\ncategories = [1, 2, 3]\nmissing = "category"\n'
    )
    how = ["--target", "died", "--positive", "dead", "--missing-marker", "?", "--schema", "labels.toml"]
    assert call("condense", "labels.csv", *how, *BARE, *SMALL, "--quiet", "--out", "run").code == 0
    made = pd.read_csv(tmp_path / "run/release/condensed.csv", dtype=str, keep_default_na=False)
    assert set(made["died"]) == {"alive", "dead"}
    assert "" in set(made["grade"])
    assert set(made["grade"]) <= {"1", "2", "3", ""}


def test_a_file_name_that_looks_like_markup_is_only_a_name(call: Call, cohort: Path) -> None:
    odd = cohort.rename(cohort.with_name("ward [red] 3.csv"))
    answer = call("condense", odd, *TARGET, *BARE, *SMALL, "--out", "run")
    assert answer.code == 0
    assert "ward [red] 3.csv: trained on" in answer.out


def test_the_same_seed_gives_the_same_table(call: Call, cohort: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert call("condense", cohort, *TARGET, *BARE, *SMALL, "--seed", seed, "--quiet", "--out", name).code == 0
    a, b, c = ((tmp_path / name / "release/condensed.csv").read_bytes() for name in "abc")
    assert a == b
    assert a != c


# -- bad tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SPOILED, ids=[s.name for s in SPOILED])
def test_a_spoiled_table_is_refused_and_nothing_is_written(call: Call, tmp_path: Path, case: Spoiled) -> None:
    table = write(case.spoil(patients()), tmp_path)
    before = files(tmp_path)
    answer = call("condense", table, *options(case.how), "--schema", "schema.toml", *NOISY, *SMALL, "--out", "run")
    refused(answer, *case.says)
    assert files(tmp_path) == before
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("absent.csv", None, "no such file"),
        ("empty.csv", b"", "an empty file"),
        ("header.csv", b"age,died\n", "0 rows"),
        ("twice.csv", b"age,age,died\n987654,1,0\n", "repeated: "),
        ("comma.csv", b"age,crp,died\n987654,1,0,\n", "more fields"),
        ("latin.csv", "age,died\nCANARY\xe9,1\n".encode("latin-1"), "--encoding cp1252"),
        ("broken.csv.gz", b"age,died\n987654,1\n", "BadGzipFile"),
        ("broken.parquet", b"PAR1 CANARY 987654", "ArrowInvalid"),
        ("broken.feather", b"CANARY 987654", "ArrowInvalid"),
        ("cohort.xlsx", b"CANARY", "'.xlsx'"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(
    call: Call, tmp_path: Path, name: str, content: bytes | None, says: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    for command in (
        ["condense", name, "--target", "died", *NOISY, "--out", "run"],
        ["schema", "infer", name, "--out", "run"],
    ):
        refused(call(*command), name, says)
        assert not (tmp_path / "run").exists()


def test_constants_only_are_refused_and_nothing_is_written(call: Call, tmp_path: Path) -> None:
    table = tmp_path / "constant.csv"
    pd.DataFrame({"a": 1.5, "b": NUMBER, "died": [0, 1] * 60}).to_csv(table, index=False)
    refused(call("condense", table, "--target", "died", *NOISY, *SMALL, "--out", "run"), "2 constant columns")
    assert list(tmp_path.iterdir()) == [table]


def test_too_few_rows_are_refused(call: Call, tmp_path: Path) -> None:
    table = write(patients(12), tmp_path)
    answer = call("condense", table, *TARGET, *NOISY, *SMALL, "--out", "run")
    refused(answer, "needs both classes", "12 rows")
    assert not (tmp_path / "run").exists()


def test_our_own_column_names_are_refused_in_a_table(call: Call, tmp_path: Path) -> None:
    patients().assign(distcondense_risk=NUMBER + np.arange(240)).to_csv(tmp_path / "risk.csv", index=False)
    refused(call("condense", "risk.csv", *options(BINARY), *NOISY, *SMALL, "--out", "run"), "made", "rename")
    assert not (tmp_path / "run").exists()


# -- bad settings -----------------------------------------------------------------------------------------------------

SETTINGS: list[tuple[list[str], str]] = [
    (["--method", "published", "--epsilon", "0"], "epsilon"),
    (["--method", "published", "--epsilon", "-1"], "epsilon"),
    (["--method", "published", "--epsilon", "nan"], "epsilon"),
    (["--method", "published", "--epsilon", "inf"], "epsilon"),
    (["--method", "published", "--epsilon", "1", "--delta", "0"], "delta"),
    (["--method", "published", "--epsilon", "1", "--delta", "1"], "delta"),
    (["--method", "published", "--epsilon", "1", "--delta", "-0.1"], "delta"),
    (["--method", "published", "--epsilon", "1", "--delta", "nan"], "delta"),
    (["--method", "published", "--sigma-base", "0"], "sigma_base"),
    (["--method", "published"], "needs a budget"),
    ([*BARE, "--epsilon", "1"], "without noise"),
    ([*BARE, "--sigma-base", "1"], "without noise"),
    (["--method", "public"], "say published"),
    (["--method", "private", "--epsilon", "1"], "steps belongs to method published"),
    ([*BARE, "--ipc", "0"], "ipc"),
    ([*BARE, "--steps", "0"], "steps"),
    ([*BARE, "--learning-rate", "0"], "learning_rate"),
    ([*BARE, "--learning-rate", "inf"], "learning_rate"),
    ([*BARE, "--clip", "0"], "clip"),
    ([*BARE, "--clip", "inf"], "clip"),
    ([*BARE, "--rho", "1"], "rho"),
    ([*BARE, "--evaluate-every", "0"], "evaluate_every"),
    ([*BARE, "--patience", "-1"], "patience"),
    ([*BARE, "--seed", "-1"], "seed"),
    ([*BARE, "--threads", "0"], "threads"),
    ([*BARE, "--reference", "cox"], "reference"),
    ([*BARE, "--reference", "forest"], "reference"),
    ([*BARE, "--resume", "--force"], "--resume or --force"),
    ([*BARE, "--schema", "absent.toml"], "no such file"),
    ([*BARE, "--schema", "cohort.csv"], "TOML"),
    ([*BARE, "--ignore", "wardd"], "'wardd'"),
    ([*BARE, "--person-id", "ages"], "nearest is 'age'"),
    ([*BARE, "--time", "months"], "a time and an event, or a target"),
    (["--method", "published", "--sigma-base", "0.5", "--epsilon", "0.001"], "must pay for at least one step"),
]


@pytest.mark.parametrize(("arguments", "says"), SETTINGS, ids=[" ".join(a) for a, _ in SETTINGS])
def test_a_setting_out_of_range_is_refused_and_nothing_is_written(
    call: Call, cohort: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    before = files(tmp_path)
    refused(call("condense", cohort, *TARGET, *SMALL, *arguments, "--out", "run"), says)
    assert files(tmp_path) == before
    assert not (tmp_path / "run").exists()


def test_all_bad_settings_are_reported_at_once(call: Call, cohort: Path) -> None:
    answer = call("condense", cohort, *TARGET, *NOISY, "--delta", "2", "--ipc", "0", "--rho", "-1")
    refused(
        answer,
        "delta: must be in (0, 1). Found 2.0",
        "ipc: must be between 1 and 1,000,000. Found 0",
        "rho: must be in",
    )


def test_bad_settings_are_found_before_the_table_is_read(call: Call, tmp_path: Path) -> None:
    refused(call("condense", "absent.csv", "--target", "died", *NOISY, "--delta", "2"), "delta")


@pytest.mark.parametrize("arguments", [["--ipc", "many"], ["--epsilon", "small"], ["--nonsense"]])
def test_an_argument_that_cannot_be_parsed_is_exit_2_too(
    call: Call, cohort: Path, tmp_path: Path, arguments: list[str]
) -> None:
    answer = call("condense", cohort, *TARGET, *BARE, *arguments, "--out", "run")
    assert answer.code == 2
    assert arguments[0] in answer.err
    assert "Traceback" not in answer.err
    assert not (tmp_path / "run").exists()


def test_a_run_without_an_outcome_is_refused(call: Call, cohort: Path) -> None:
    refused(call("condense", cohort, *BARE), "or a target", "neither")


@pytest.mark.parametrize(
    ("method", "arguments", "says"),
    [
        ("published", ["--holdout", "0.2"], "holdout belongs to method private"),
        ("published", ["--rows-per-person", "2"], "rows_per_person belongs to method private"),
        ("published", ["--horizon", "60"], "horizon belongs to method private"),
        ("published", ["--trust-inferred-schema"], "trust_inferred_schema belongs to method private"),
        ("private", ["--steps", "5"], "steps belongs to method published"),
        ("private", ["--no-noise"], "noise belongs to method published"),
        ("private", ["--sigma-base", "8"], "sigma_base belongs to method published"),
    ],
)
def test_an_option_of_another_method_is_refused_with_the_method_it_belongs_to(
    call: Call, tmp_path: Path, method: str, arguments: list[str], says: str
) -> None:
    answer = call("condense", "absent.csv", "--target", "died", "--method", method, "--epsilon", "1", *arguments)
    refused(answer, f"method {method}: takes only settings of its own", says)
    assert files(tmp_path) == {}


def test_a_kind_of_outcome_that_does_not_exist_is_refused_with_the_nearest(call: Call, cohort: Path) -> None:
    refused(call("condense", cohort, *TARGET, *BARE, "--kind", "multi-class"), "kind: must be one of", "say multiclass")
    refused(call("condense", cohort, *TARGET, *BARE, "--kind", "survival"), "outcome", "--time and --event")


def test_a_demo_of_a_method_that_does_not_exist_is_refused(call: Call, tmp_path: Path) -> None:
    refused(call("demo", "--method", "privat"), "method: must be one of", "say private")
    assert files(tmp_path) == {}


# -- run folders ------------------------------------------------------------------------------------------------------


def test_a_finished_run_is_replaced_only_with_force(call: Call, cohort: Path, tmp_path: Path) -> None:
    run = ["condense", cohort, *TARGET, *BARE, *SMALL, "--quiet", "--out", "run"]
    assert call(*run).code == 0
    before = files(tmp_path / "run")
    refused(call(*run), "holds a finished run", "--force")
    refused(call(*run, "--resume"), "holds a finished run")
    refused(call(*run, "--seed", "5"), "other settings", "--force")
    assert files(tmp_path / "run") == before
    assert call(*run, "--seed", "5", "--force").code == 0
    assert files(tmp_path / "run")["release/condensed.csv"] != before["release/condensed.csv"]


def test_a_folder_of_other_data_is_not_touched(call: Call, cohort: Path, tmp_path: Path) -> None:
    run = ["condense", cohort, *TARGET, *BARE, *SMALL, "--quiet", "--out", "run"]
    assert call(*run).code == 0
    before = files(tmp_path / "run")
    write(patients(seed=1), tmp_path)
    refused(call(*run), "other settings or data")
    assert files(tmp_path / "run") == before


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def terminated(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def in_a_folder_that_is_gone(*_: Any, **__: Any) -> None:
    Path("gone").mkdir()
    os.chdir("gone")
    Path("../gone").rmdir()
    Path.cwd()


def test_a_command_that_is_told_to_stop_says_by_what_it_goes_on(
    call: Call, cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGTERM has the exit code that shells know it by, and the handler of whoever called is back afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    run = ["condense", cohort, *TARGET, *BARE, *SMALL, "--quiet", "--force", "--out", "run"]
    with monkeypatch.context() as patched:
        patched.setattr("distcondense.methods.published.Published.condense", terminated)
        answer = call(*run)
    assert answer.code == 143
    (said,) = [line for line in answer.err.splitlines() if line.startswith("stopped (SIGTERM)")]
    again = shlex.split(said.partition("go on by: ")[2])
    assert again == ["distcondense", *(str(one) for one in run if one != "--force"), "--resume"]
    assert signal.getsignal(signal.SIGTERM) is before
    assert call(*again[1:]).code == 0
    assert (tmp_path / "run/internal/run.json").exists()


def test_a_call_that_the_system_refuses_a_library_is_named_and_the_log_is_kept(
    call: Call, cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ["condense", cohort, *TARGET, *BARE, *SMALL, "--quiet", "--out", tmp_path / "run"]
    with monkeypatch.context() as patched:
        patched.setattr("distcondense.methods.published.Published.condense", in_a_folder_that_is_gone)
        answer = call(*run)
    refused(answer, "the call pathlib.Path.cwd", "no such file or folder", "--resume")
    assert "run folder run" not in answer.err
    assert "the call pathlib.Path.cwd" in (tmp_path / "run/internal/log.txt").read_text()
    monkeypatch.chdir(tmp_path)
    assert call(*run, "--resume").code == 0


def test_a_release_without_one_of_its_documents_is_a_failed_run_that_can_go_on(
    call: Call, cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a job brought code without its templates: nothing is released, and nothing of the budget is lost."""
    run = ["condense", cohort, *TARGET, *BARE, *SMALL, "--quiet", "--out", "run"]
    with monkeypatch.context() as patched:
        patched.setitem(saving.DOCUMENTS, "README.md", "distcondense.report.nowhere:manual")
        refused(call(*run), "no README.md (ModuleNotFoundError)", "--resume")
    assert not (tmp_path / "run/release").exists()
    assert call(*run, "--resume").code == 0
    assert call(*run[:-1], "other").code == 0
    assert files(tmp_path / "run/release") == files(tmp_path / "other/release")


def test_an_interrupted_run_says_so_and_goes_on_with_resume(
    call: Call, cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ["condense", cohort, *TARGET, *BARE, *SMALL, "--quiet", "--out", "run"]
    with monkeypatch.context() as patched:
        patched.setattr("distcondense.methods.published.Published.condense", interrupted)
        answer = call(*run)
    assert answer.code == 130
    assert "interrupted; what was done is kept, go on by: distcondense condense" in answer.err
    assert not (tmp_path / "run/internal/run.json").exists()
    refused(call(*run), "holds an unfinished run", "--resume")
    refused(call(*run, "--resume", "--seed", "9"), "other settings")
    assert call(*run, "--resume").code == 0
    assert (tmp_path / "run/internal/run.json").exists()
    assert call(*run[:-1], "other").code == 0
    assert files(tmp_path / "run/release") == files(tmp_path / "other/release")


def test_a_bug_is_not_dressed_up_as_the_users_mistake(
    call: Call, cohort: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("distcondense.methods.published.Published.condense", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        call("condense", cohort, *TARGET, *BARE, *SMALL, "--out", "run")


@pytest.mark.parametrize("force", [[], ["--force"]], ids=["plain", "force"])
def test_a_folder_that_is_not_a_runs_is_never_cleared(
    call: Call, cohort: Path, tmp_path: Path, force: list[str]
) -> None:
    mine = tmp_path / "project" / "internal" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    answer = call("condense", cohort, *TARGET, *BARE, *SMALL, *force, "--out", "project")
    refused(answer, "must be new, empty or a run's", "other files")
    assert mine.read_text() == "years of work"


def test_an_out_that_is_a_file_is_refused(call: Call, cohort: Path, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    refused(call("condense", cohort, *TARGET, *BARE, *SMALL, "--out", "run"), "must be a folder")
    refused(call("condense", cohort, *TARGET, *BARE, *SMALL, "--out", "run/inside"), "must be")
    assert (tmp_path / "run").read_text() == "a file"


# -- schemas ----------------------------------------------------------------------------------------------------------


def test_schema_infer_drafts_a_file_that_check_accepts(call: Call, cohort: Path, tmp_path: Path) -> None:
    printed = call("schema", "infer", cohort)
    assert printed.code == 0
    written = call("schema", "infer", cohort, "--out", "draft.toml")
    assert written == Answer(0, "", written.err)
    assert "check every bound" in written.err
    assert (tmp_path / "draft.toml").read_text(encoding="utf-8") == printed.out
    assert Schema.from_toml("draft.toml").origin == "inferred"
    checked = call("schema", "check", "draft.toml", cohort)
    assert checked.code == 0
    assert "8 columns, inferred" in checked.out
    assert not list(tmp_path.glob("*.draft"))


def test_schema_infer_does_not_overwrite_an_edited_file(call: Call, cohort: Path, tmp_path: Path) -> None:
    before = (tmp_path / "schema.toml").read_bytes()
    refused(call("schema", "infer", cohort, "--out", "schema.toml"), "exists already", "--force")
    assert (tmp_path / "schema.toml").read_bytes() == before
    assert call("schema", "infer", cohort, "--out", "schema.toml", "--force").code == 0
    assert Schema.from_toml("schema.toml").origin == "inferred"


def test_schema_infer_into_a_folder_that_is_not_there_is_refused(call: Call, cohort: Path) -> None:
    refused(call("schema", "infer", cohort, "--out", "no/such/schema.toml"), "must be writable")


@pytest.mark.parametrize(
    "case", [s for s in SPOILED if "'died'" not in s.says and "time" not in s.how], ids=lambda s: s.name
)
def test_schema_check_refuses_a_table_that_does_not_fit(call: Call, tmp_path: Path, case: Spoiled) -> None:
    table = write(case.spoil(patients()), tmp_path)
    refused(call("schema", "check", "schema.toml", table), case.says[0])


def test_schema_check_reports_every_illegal_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(
        '[columns.a]\nkind = "integer"\nlow = 3\nhigh = 1\n[columns.b]\nkind = "binray"\n'
    )
    refused(call("schema", "check", "bad.toml"), "2 problems", "low must be below high", "kind must be one of")


# -- in a process of its own ------------------------------------------------------------------------------------------


def shell(*arguments: Any, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`python -m distcondense …` as anyone would type it, without PYTHONPATH."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-m", "distcondense", *map(str, arguments)],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_help_works_from_the_checkout() -> None:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    # -S -E would hide our dependencies too; instead: say where the package was found, and that it is the checkout
    where = "import distcondense; print(distcondense.__file__)"
    found = subprocess.run([sys.executable, "-c", where], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).parent == ROOT / "distcondense"
    done = shell("--help", cwd=ROOT)
    assert done.returncode == 0
    for command in ("condense", "demo", "schema"):
        assert command in done.stdout


def panels(text: str) -> dict[str, set[str]]:
    """The options in each panel of a help page."""
    found: dict[str, set[str]] = {}
    name = ""
    for line in text.splitlines():
        if begins := re.match(r"╭─ (.+?) ─", line):
            name = begins[1]
        else:
            found.setdefault(name, set()).update(re.findall(r"--[a-z][a-z0-9-]*", line[:60]))
    return found


def test_help_shows_what_methods_share_and_the_options_of_the_one_that_is_named(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # no word is cut
    every = {method.name: {f"--{e.name.replace('_', '-')}" for e in cli_options(method)} for method in methods()}
    shared = set.intersection(*every.values())
    assert {"--ipc", "--seed"} <= shared
    for name, own in every.items():
        found = panels(call("condense", "--method", name, "--help").out)
        assert own <= found[f"Method {name}"], name
        foreign = set().union(*every.values()) - own
        assert not foreign & set().union(*found.values()), name


def test_help_fits_a_screen_shows_the_default_method_and_lists_all(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    text = call("condense", "--help").out
    assert len(text.splitlines()) <= 60
    found = panels(text)
    assert {"--epsilon", "--holdout", "--horizon"} <= found["Method private"]
    assert not {"--sigma-base", "--steps", "--actors"} & set().union(*found.values())
    for method in methods():
        assert any(line.split()[:1] == [method.name] for line in text.splitlines()), method.name
    assert "--actors" in call("condense", "--ray", "--help").out


def cli_options(method: Any) -> list[Any]:
    return [entry for entry in fields(method.Options) if entry.metadata["cli"]]


def test_every_command_explains_itself(call: Call) -> None:
    for command in (["condense"], ["demo"], ["schema"], ["schema", "infer"], ["schema", "check"]):
        answer = call(*command, "--help")
        assert answer.code == 0
        assert "Usage" in answer.out
        assert bare_epsilons(answer.out) == []
    assert call("--version").out.startswith("distcondense ")


def test_a_whole_run_in_a_process_of_its_own(tmp_path: Path, cohort: Path) -> None:
    how = [*TARGET, "--method", "published", "--epsilon", "2.5", *SMALL]
    done = shell("condense", cohort, *how, "--json", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["privacy"]["guarantee"] == "as-published"
    assert done.stderr == ""  # nor anything that a library has to say


def test_a_spoiled_table_in_a_process_of_its_own(tmp_path: Path) -> None:
    frame = patients()
    frame["stage"] = TEXT
    frame["crp"] = NUMBER
    table = write(frame, tmp_path)
    done = shell("condense", table, *TARGET, *NOISY, *SMALL, "--out", "run", cwd=tmp_path)
    refused(Answer(done.returncode, done.stdout, done.stderr), "'stage'", "'crp'", "240 rows")
    assert not (tmp_path / "run").exists()


def test_every_second_of_a_command_is_in_the_timings_of_its_run(cohort: Path, tmp_path: Path) -> None:
    out, began = tmp_path / "run", time.monotonic()
    command = [sys.executable, "-m", "distcondense", "condense", str(cohort), *TARGET, *BARE, *SMALL, "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, cwd=cohort.parent)
    took = time.monotonic() - began
    timings = json.loads((out / "internal" / "run.json").read_text(encoding="utf-8"))["timings_seconds"]
    assert {"start", "read", "encode", "reference", "condense", "evaluate", "write"} <= set(timings)
    assert all(seconds > 0 for seconds in timings.values())
    assert sum(timings[name] for name in ("start", "read", "total", "write")) < took  # one after the other
