"""Submitting a job: what may leave this machine, what is refused, and a real head node that runs the demo.

Most tests need no cluster: they look at folders, at a client that is played, or at a server that is not Ray. The last
section starts one head node on the loopback, with its own ports, folder and token, and ends it by its handle.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import tomllib
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ray.job_submission import JobDetails

from distcondense.cluster import submit as submitting
from distcondense.cluster import upload
from distcondense.cluster.config import IN_A_JOB
from distcondense.cluster.ray._ray_private import files_to_send
from distcondense.cluster.ray.jobs import AWAITED_SECONDS, JobState, SubmittedJob, job_client, start_job
from distcondense.cluster.ray.session import load_ray
from distcondense.cluster.submit import check_address, doubts, find_token, submit
from distcondense.cluster.upload import (
    DATA_SUFFIXES,
    HARMLESS_SUFFIXES,
    pack,
    package,
    package_files,
    reads_as_table,
    refuse_data,
)
from distcondense.errors import ClusterError, DistcondenseWarning, SettingsError
from tests.data.test_large import SIMPLE, as_shuffled_parts
from tests.data.test_large import patients as several
from tests.shell import Call, files, options, refused
from tests.tiny import BINARY, CANARIES, NUMBER, SCHEMA, TEXT, patients

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "cluster"
HANG = 600.0  # seconds: for what hangs, not for what is slow


def quiet(_: str) -> None:
    pass


def folder_of(root: Path, **files: str | bytes) -> Path:
    """A folder with these files; `__` in a name stands for a slash, `_` before its ending for a dot."""
    root.mkdir(parents=True, exist_ok=True)
    for key, content in files.items():
        stem, _, ending = key.rpartition("_")
        write(root / f"{stem.replace('__', '/')}.{ending}", content)
    return root


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def packed(folder: Path | str | None, scratch: Path, **environment: Any) -> set[str]:
    """The names in the zip that would be sent."""
    env = package(environment, None if folder is None else str(folder), scratch / "job.zip", quiet)
    return set(zipfile.ZipFile(env["working_dir"]).namelist())


def canary_table(rows: int = 40) -> pd.DataFrame:
    frame = patients(rows)
    frame.loc[3, "ferritin"] = NUMBER
    frame.loc[4, "sex"] = TEXT
    return frame


# -- what may leave: names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "cohort.csv",
        "data/cohort.csv.gz",
        "COHORT.CSV",
        "cohort.csv.old",
        "cohort.2024.parquet",
        "a.feather",
        "a.arrow",
        "a.xlsx",
        "a.sas7bdat",
        "a.dta",
        "a.sav",
        "a.rds",
        "a.RData",
        "a.npy",
        "a.npz",
        "a.pkl",
        "a.h5",
        "a.sqlite",
        "a.db",
        "a.jsonl",
        "a.tsv",
        "a.ipynb",
        "all.zip",
        "all.tar.gz",
        "model.joblib",
        "internal/checkpoint.draft",
    ],
)
def test_a_file_named_like_data_is_refused_unopened(name: str, tmp_path: Path) -> None:
    write(tmp_path / "w" / name, "nothing")
    write(tmp_path / "w/main.py", "print(1)\n")
    with pytest.raises(SettingsError, match="table of patients") as refusal:
        packed(tmp_path / "w", tmp_path)
    assert name in str(refusal.value)
    assert "main.py" not in str(refusal.value)
    assert not (tmp_path / "job.zip").exists()


def test_a_run_folders_internal_room_is_refused_and_a_package_of_that_name_is_not(tmp_path: Path) -> None:
    folder_of(
        tmp_path / "w", internal__code_py="x = 1\n", run__internal__owner_json="{}", run__internal__log_txt="fine"
    )
    with pytest.raises(SettingsError, match="internal folder") as refusal:
        packed(tmp_path / "w", tmp_path)
    assert "run/internal/log.txt" in str(refusal.value)
    assert "internal/code.py" not in str(refusal.value)
    shutil.rmtree(tmp_path / "w/run")
    assert "internal/code.py" in packed(tmp_path / "w", tmp_path)


def test_a_link_to_a_table_is_a_table(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere/cohort.parquet", b"PAR1")
    (tmp_path / "w").mkdir()
    (tmp_path / "w/notes").symlink_to(tmp_path / "elsewhere/cohort.parquet")
    with pytest.raises(SettingsError, match=r"notes \(\.parquet data\)"):
        packed(tmp_path / "w", tmp_path)


def test_a_linked_folder_is_looked_into_as_ray_would_send_it(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere/deep/cohort.csv", "a,b\n")
    (tmp_path / "w").mkdir()
    (tmp_path / "w/link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match=r"link/deep/cohort\.csv"):
        packed(tmp_path / "w", tmp_path)


def test_many_tables_are_counted_and_a_few_named(tmp_path: Path) -> None:
    for i in range(12):
        write(tmp_path / f"w/t{i:02}.csv", "")
    with pytest.raises(SettingsError, match=r"t00\.csv.* and 4 more"):
        packed(tmp_path / "w", tmp_path)


# -- what may leave: contents -----------------------------------------------------------------------------------------

SEPARATORS = [",", ";", "\t", "|", " "]


@pytest.mark.parametrize("separator", SEPARATORS)
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-16"])
def test_a_table_under_another_name_is_refused_and_nothing_of_it_is_said(
    separator: str, encoding: str, tmp_path: Path
) -> None:
    frame = canary_table().assign(town="Köln")
    write(tmp_path / "w/notes.txt", frame.to_csv(index=False, sep=separator).encode(encoding))
    with pytest.raises(SettingsError, match=r"notes\.txt \(rows of fields\)") as refusal:
        packed(tmp_path / "w", tmp_path)
    for word in (*CANARIES, "Köln", "ferritin"):
        assert word not in str(refusal.value)


@given(
    rows=st.integers(20, 60),
    columns=st.integers(1, 6),
    seed=st.integers(0, 10**6),
    separator=st.sampled_from(SEPARATORS),
    header=st.booleans(),
    holes=st.floats(0, 0.3),
)
def test_rows_of_numbers_are_a_table_however_they_are_separated(
    rows: int, columns: int, seed: int, separator: str, header: bool, holes: float
) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-3, 4, columns)
    frame = pd.DataFrame(cells, columns=[f"x{i}" for i in range(columns)]).round(3)
    if columns > 1:
        frame = frame.mask(pd.DataFrame(rng.random((rows, columns)) < holes, columns=frame.columns).assign(x0=False))
    assert reads_as_table(frame.to_csv(index=False, sep=separator, header=header, na_rep="NA"))


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(str(10_000 + i) for i in range(25)),  # one patient number a line
        "\n".join(f"P{i:03} 2024-01-{i + 1:02}" for i in range(25)),
        "\n".join(",".join(["f", "II", "yes"]) for _ in range(25)),  # no number at all
        "\n".join("\t".join(f"{j * 0.5}" for j in range(300)) for _ in range(3)),  # few, wide rows
        "# exported\n# twice\n" + "\n".join(f"{i};{i / 7:.3f}".replace(".", ",") for i in range(30)),
        json.dumps([{"age": i, "crp": i / 3} for i in range(120)]),
        json.dumps({"age": {str(i): i for i in range(250)}}, indent=1),
    ],
    ids=["numbers", "dates", "words", "wide", "commas", "records", "columns"],
)
def test_other_shapes_of_tables_are_tables(text: str) -> None:
    assert reads_as_table(text)


@pytest.mark.parametrize(
    "text",
    [
        (ROOT / "README.md").read_text(encoding="utf-8"),
        (ROOT / "constraints.txt").read_text(),
        (ROOT / "LICENSE").read_text(),
        Path(__file__).read_text(encoding="utf-8"),
        "\n".join(f"[columns.p{i}]\nkind = 'continuous'\nlow = {-i}\nhigh = {i}\n" for i in range(500)),
        "\n".join(f"[[column]]\nname = 'p{i}'\nlow = {i}\n" for i in range(500)),
        "\n".join(f"p{i} = {{kind = 'continuous', low = 0, high = {i}, unit = 'x'}}" for i in range(500)),
        "\n".join(f"rate_{i}: 0.{i}" for i in range(40)),
        "\n".join(f'    "name {i}",' for i in range(40)),
        "a,b\n1,2\n",  # too short to be anybody
        "",
    ],
    ids=["readme", "constraints", "licence", "python", "schema", "list", "inline", "yaml", "strings", "short", "empty"],
)
def test_code_prose_and_settings_are_not_tables(text: str) -> None:
    assert not reads_as_table(text)


def test_a_long_tables_cut_last_line_does_not_save_it(tmp_path: Path) -> None:
    rows = "\n".join(",".join(f"{i * j % 97}" for j in range(20_000)) for i in range(120))
    assert len(rows) > 4 * 2**20
    with pytest.raises(SettingsError, match="rows of fields"):
        refuse_data("here", {"wide.txt": write(tmp_path / "wide.txt", rows)})


def test_what_is_not_text_is_refused_and_pictures_are_not(tmp_path: Path) -> None:
    binary = bytes(range(256)) * 4
    folder_of(tmp_path / "w", plot_png=binary, model_bin=binary)
    with pytest.raises(SettingsError, match=r"model\.bin \(not text\)") as refusal:
        packed(tmp_path / "w", tmp_path)
    assert "plot.png" not in str(refusal.value)
    assert not set(HARMLESS_SUFFIXES) & set(DATA_SUFFIXES)


def test_a_folder_that_is_too_large_is_refused_before_its_files_are_read(tmp_path: Path) -> None:
    write(tmp_path / "w/big.txt", "")
    os.truncate(tmp_path / "w/big.txt", 101 * 2**20)  # a hole: it takes no room
    with pytest.raises(SettingsError, match=r"under 100 MB and 10,000 files\. Found 101 MB in 1 files"):
        packed(tmp_path / "w", tmp_path)


# -- what is sent -----------------------------------------------------------------------------------------------------


def test_ignored_and_excluded_tables_stay_and_stop_nothing(tmp_path: Path) -> None:
    folder_of(
        tmp_path / "w", main_py="print(1)\n", a_csv="", sub__b_csv="", sub__keep_py="", c_parquet="", venv__d_csv=""
    )
    write(tmp_path / "w/.gitignore", "a.csv\n")
    write(tmp_path / "w/sub/.rayignore", "*.csv\n")
    sent = packed(tmp_path / "w", tmp_path, excludes=["*.parquet"])
    assert {"main.py", "sub/keep.py"} <= sent
    assert not [name for name in sent if name.endswith((".csv", ".parquet"))]


def test_gitignored_tables_are_refused_where_ray_is_told_to_send_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(tmp_path / "w", a_csv="")
    write(tmp_path / "w/.gitignore", "a.csv\n")
    monkeypatch.setenv("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", "1")
    with pytest.raises(SettingsError, match=r"a\.csv"):
        packed(tmp_path / "w", tmp_path)


def test_the_checkout_passes_its_own_guard_and_goes_without_tests_and_results(tmp_path: Path) -> None:
    sent = packed(None, tmp_path)
    assert {"distcondense/__main__.py", "kernels/walk.cpp", "constraints.txt", "cluster/runtime_env.yaml"} <= sent
    assert not [name for name in sent if name.startswith(("tests/", "docs/", "benchmarks/results/", ".git/", ".venv/"))]
    assert not [name for name in sent if "__pycache__" in name]


def test_the_package_is_put_into_a_folder_that_lacks_it_and_runs_from_there(tmp_path: Path) -> None:
    folder_of(tmp_path / "w", study_toml="x = 1\n")
    sent = packed(tmp_path / "w", tmp_path)
    assert {"study.toml", "distcondense/cli/__init__.py", "constraints.txt"} <= sent
    assert "distcondense/report/templates/release.html.j2" in sent  # what a wheel holds, its data among it
    zipfile.ZipFile(tmp_path / "job.zip").extractall(tmp_path / "node")
    code = (
        "import distcondense; from distcondense.kernels.native_build import source_folder; "
        "print(distcondense.__file__); print(source_folder())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "node", capture_output=True, text=True, check=True
    )
    assert [line.startswith(str(tmp_path / "node")) for line in found.stdout.splitlines()] == [True, True]


def test_what_is_sent_is_what_a_wheel_holds() -> None:
    """Every file of the package under version control, a library where one was built, and the C++ sources."""
    listed = subprocess.run(["git", "ls-files", "distcondense"], cwd=ROOT, capture_output=True, text=True, check=True)
    sources = {
        f"distcondense/kernels/native_src/{path.name}"
        for path in (ROOT / "kernels").iterdir()
        if path.suffix in (".cpp", ".h", ".json")
    }
    sent = {name for name in package_files() if not name.endswith(".so")}
    assert sent == {*listed.stdout.split(), *sources, "constraints.txt"}


def test_an_installed_package_goes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(upload.PACKAGE, tmp_path / "site/distcondense", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(upload, "PACKAGE", tmp_path / "site/distcondense")
    write(tmp_path / "site/cohort.csv", "")  # beside it, of no concern
    assert packed(None, tmp_path) == set(package_files())


@pytest.mark.parametrize(
    "environment",
    [{"pip": ["distcondense==0.1.0"]}, {"pip": {"packages": ["distcondense[compiled]"]}}, {"uv": ["distcondense"]}],
)
def test_a_requirement_for_the_package_takes_the_place_of_sending_it(
    environment: dict[str, Any], tmp_path: Path
) -> None:
    folder_of(tmp_path / "w", a_py="")
    assert packed(tmp_path / "w", tmp_path, **environment) == {"a.py"}
    assert package(environment, None, tmp_path / "none.zip", quiet) == environment


def test_an_archive_on_the_cluster_is_passed_on_by_its_uri(tmp_path: Path) -> None:
    env = package({}, "s3://bucket/code.zip", tmp_path / "job.zip", quiet)
    assert env == {"working_dir": "s3://bucket/code.zip"}
    assert not (tmp_path / "job.zip").exists()


@pytest.mark.parametrize(("name", "found"), [("code.zip", "a file"), ("nowhere", "no such folder")])
def test_a_working_dir_must_be_a_folder(name: str, found: str, tmp_path: Path) -> None:
    write(tmp_path / "code.zip", "")
    with pytest.raises(SettingsError, match=f"must be a folder. Found {found}"):
        packed(tmp_path / name, tmp_path)


def test_the_same_files_make_the_same_package(tmp_path: Path) -> None:
    first, second = folder_of(tmp_path / "1", a_py="x", b_py="y"), folder_of(tmp_path / "2", b_py="y", a_py="x")
    os.utime(second / "a.py", (1, 1))
    (first / "a.py").chmod(0o755)
    (second / "a.py").chmod(0o755)
    for number, folder in enumerate((first, second)):
        pack({p.name: p for p in folder.iterdir()}, tmp_path / f"{number}.zip")
    assert (tmp_path / "0.zip").read_bytes() == (tmp_path / "1.zip").read_bytes()
    assert zipfile.ZipFile(tmp_path / "0.zip").getinfo("a.py").external_attr >> 16 == 0o755


def test_modules_and_requirement_files_are_looked_at_too(tmp_path: Path) -> None:
    module = folder_of(tmp_path / "module", code_py="", cohort_csv="")
    wheel = tmp_path / "some-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("some/cohort.parquet", b"PAR1")
    for said, environment in (
        (r"py_modules: .*cohort\.csv", {"py_modules": [str(module)]}),
        (r"py_modules: .*must be a folder\. Found a file", {"py_modules": [str(wheel)]}),  # is not looked into
        (r"py_modules: .*must be a folder\. Found no such folder", {"py_modules": [str(tmp_path / "nowhere")]}),
        (r"runtime env: pip: .*cohort\.csv", {"pip": str(module / "cohort.csv")}),
    ):
        with pytest.raises(SettingsError, match=said):
            packed(None, tmp_path, **environment)
    (module / "cohort.csv").unlink()
    env = package({"py_modules": [str(module), "s3://bucket/m.zip"]}, None, tmp_path / "job.zip", quiet)
    assert env["py_modules"] == [str(module), "s3://bucket/m.zip"]


# -- address, token, command ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8265", "auto", "ray://head:10001", "http://", "http://head:port", "ftp://head:8265", ""]
)
def test_an_address_that_is_no_dashboards_url_is_refused(address: str) -> None:
    with pytest.raises(ClusterError, match="URL of a head node's dashboard"):
        check_address(address)


def test_an_address_with_a_password_is_refused_unsaid() -> None:
    with pytest.raises(ClusterError, match="must not hold a password") as refusal:
        check_address("http://me:hunter2@head:8265")
    assert "hunter2" not in str(refusal.value)


def test_an_address_is_taken_without_its_last_slash() -> None:
    assert check_address(" https://head.example/ray/ ") == "https://head.example/ray"


def test_the_token_is_found_where_ray_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_token({}) is None
    write(tmp_path / ".ray/auth_token", "at home\n")
    named = str(write(tmp_path / "token", "in a file\n"))
    assert find_token({}) == "at home"
    assert find_token({"RAY_AUTH_TOKEN_PATH": named}) == "in a file"
    assert find_token({"RAY_AUTH_TOKEN_PATH": named, "RAY_AUTH_TOKEN": "said"}) == "said"


@pytest.mark.parametrize("content", [None, "", b"\xff\xfe\x00"])
def test_a_token_file_that_is_named_must_have_a_token(content: str | bytes | None, tmp_path: Path) -> None:
    if content is not None:
        write(tmp_path / "token", content)
    with pytest.raises(ClusterError, match="RAY_AUTH_TOKEN_PATH"):
        find_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "token")})


@pytest.mark.parametrize(
    ("command", "doubted"),
    [
        ("python -m distcondense demo --out /data/demo", []),
        ("python -m distcondense demo", ["demo without --out"]),
        ("distcondense condense /d/c.parquet -o run", ["--out run is relative"]),
        ("distcondense condense cohort.csv --out=/d/run", ["cohort.csv is relative"]),
        ("distcondense condense s3://b/c.parquet --out s3://b/run", []),
        ("distcondense condense file:///d/c.parquet --out=out.parquet", ["--out out.parquet is relative"]),
        ("python script.py --seed 1", []),
        ("distcondense privacy verify /d/run", []),
    ],
)
def test_a_command_that_will_not_do_what_it_does_here_is_doubted(command: str, doubted: list[str]) -> None:
    found = doubts(command.split())
    assert len(found) == len(doubted)
    for said, expected in zip(found, doubted, strict=True):
        assert said.startswith(expected)
        assert "absolute path" in said


@pytest.mark.parametrize(
    ("content", "found"),
    [(None, "FileNotFoundError"), ("pip: [a\nx: 1", "ParserError in line 2"), ("- pip", "list"), ("", "NoneType")],
)
def test_a_runtime_env_that_cannot_be_read_is_refused(content: str | None, found: str, tmp_path: Path) -> None:
    path = tmp_path / "env.yaml"
    if content is not None:
        write(path, content)
    with pytest.raises(SettingsError, match=rf"runtime env env\.yaml: .*Found {found}"):
        submit(["true"], runtime_env=path, log=quiet)


# -- following, with a cluster that is played -------------------------------------------------------------------------


@dataclass
class Played:
    """Ray's client, of a cluster that runs one job: `tails` are what each connection to the log gives."""

    tails: list[tuple[str, ...]]
    end: tuple[str, str, int | None] = ("SUCCEEDED", "", 0)
    pending: int = 0
    started: list[tuple[str, dict[str, Any], float | None]] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)

    def submit_job(self, *, entrypoint: str, runtime_env: dict[str, Any], entrypoint_num_cpus: float | None) -> str:
        self.started.append((entrypoint, runtime_env, entrypoint_num_cpus))
        self.sent = set(zipfile.ZipFile(runtime_env["working_dir"]).namelist())
        return "raysubmit_1"

    async def tail_job_logs(self, job: str) -> AsyncIterator[str]:
        for chunk in self.tails.pop(0):
            if chunk == "BREAK":
                raise RuntimeError("WebSocket connection closed unexpectedly")
            if chunk == "CTRL-C":
                raise KeyboardInterrupt
            yield chunk

    def get_job_info(self, job: str) -> JobDetails:
        state = self.end if not self.tails else ("RUNNING", "", None)
        if self.pending:
            self.pending -= 1
            state = ("PENDING", "waiting for cores", None)
        status, message, code = state
        return JobDetails(type="SUBMISSION", entrypoint="", status=status, message=message, driver_exit_code=code)


def followed(cluster: Played) -> tuple[JobState, str, list[str]]:
    shown: list[str] = []
    said: list[str] = []
    job = SubmittedJob(cluster, "raysubmit_1", "http://head:8265")
    state = job.follow(show=shown.append, log=said.append, wait=lambda _: None)
    return state, "".join(shown), said


def test_a_log_is_shown_as_it_comes() -> None:
    state, shown, said = followed(Played([("one\n", "two\n")]))
    assert (state.exit_code, shown, said) == (0, "one\ntwo\n", [])


@given(st.lists(st.lists(st.text("ab\n", min_size=1), max_size=4), min_size=1, max_size=5), st.data())
def test_a_log_that_breaks_off_is_taken_up_again_and_nothing_is_shown_twice(chunks: list[list[str]], data: Any) -> None:
    whole = "".join(part for tail in chunks for part in tail)
    tails = []
    for at in range(len(chunks) - 1):  # each connection gives the log from its first character, cut anywhere
        upto = "".join(part for tail in chunks[: at + 1] for part in tail)
        cut = data.draw(st.integers(0, len(upto)))
        tails.append((upto[:cut], upto[cut:], "BREAK"))
    state, shown, said = followed(Played([*tails, (whole,)]))
    assert shown == whole
    assert state.status == "SUCCEEDED"
    assert len(said) == len(tails)


def test_a_cluster_that_stays_away_is_given_up_with_the_way_to_go_on() -> None:
    with pytest.raises(ClusterError, match=r"ray job logs --follow --address http://head:8265 raysubmit_1"):
        followed(Played([("BREAK",)] * 100))


def test_a_job_that_waits_says_why_once() -> None:
    _, _, said = followed(Played([("x",)], pending=60))
    assert said == ["job raysubmit_1: waiting for cores"]


@pytest.mark.parametrize(
    ("status", "code", "ours", "words"),
    [
        ("SUCCEEDED", 0, 0, "succeeded"),
        ("FAILED", 2, 2, "failed with exit code 2"),
        ("FAILED", -9, 137, "failed with exit code 137"),
        ("FAILED", None, 1, "failed: no such package"),
        ("STOPPED", None, 1, "stopped"),
    ],
)
def test_the_jobs_exit_code_is_ours(status: str, code: int | None, ours: int, words: str) -> None:
    state = JobState(status, "no such package", code)
    assert (state.exit_code, str(state)) == (ours, words)


# -- the command line, with a cluster that is played ------------------------------------------------------------------


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    cluster = Played([("hello\n",)])
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret-token")
    monkeypatch.setattr(submitting, "job_client", lambda address, token: cluster)
    return cluster


def test_submit_shows_the_log_and_says_how_it_ended(call: Call, played: Played, tmp_path: Path) -> None:
    folder_of(tmp_path / "w", a_py="")
    answer = call("submit", "--working-dir", "w", "--entrypoint-num-cpus", "1.5", "--", "python", "a.py", "--x", "a b")
    assert (answer.code, answer.out) == (0, "hello\n")
    assert "job raysubmit_1 succeeded" in answer.err
    assert "secret-token" not in answer.err
    command, _, cpus = played.started[0]
    assert (command, cpus) == ("python a.py --x 'a b'", 1.5)
    assert "a.py" in played.sent


def test_a_failed_jobs_code_is_the_commands_code(call: Call, played: Played, tmp_path: Path) -> None:
    folder_of(tmp_path / "w", a_py="")
    played.end = ("FAILED", "Job entrypoint command failed with exit code 7, last available logs: …", 7)
    answer = call("submit", "--working-dir", "w", "python", "a.py")  # -- may be left out
    assert answer.code == 7
    assert answer.err.count("failed") == 1


def test_a_quiet_submission_prints_nothing(call: Call, played: Played, tmp_path: Path) -> None:
    folder_of(tmp_path / "w", a_py="")
    answer = call("submit", "--quiet", "--working-dir", "w", "--", "python", "a.py")
    assert (answer.code, answer.out, answer.err) == (0, "", "")


def test_without_following_the_jobs_name_is_all_of_standard_output(call: Call, played: Played, tmp_path: Path) -> None:
    folder_of(tmp_path / "w", a_py="")
    answer = call("submit", "--no-follow", "--working-dir", "w", "--", "python", "a.py")
    assert (answer.code, answer.out) == (0, "raysubmit_1\n")
    assert "RAY_AUTH_MODE=token ray job stop --address http://127.0.0.1:8265 raysubmit_1" in answer.err


def test_ctrl_c_leaves_the_job_and_says_how_to_follow_and_stop_it(call: Call, played: Played, tmp_path: Path) -> None:
    folder_of(tmp_path / "w", a_py="")
    played.tails = [("hello\n", "CTRL-C")]
    answer = call("submit", "--working-dir", "w", "--", "python", "a.py")
    assert answer.code == 1
    assert "job raysubmit_1 goes on; follow it: RAY_AUTH_MODE=token ray job logs" in answer.err
    assert "--resume" not in answer.err


def test_a_refused_submission_starts_nothing(call: Call, played: Played, tmp_path: Path) -> None:
    canary_table().to_csv(write(tmp_path / "w/notes.txt", ""), index=False)
    refused(call("submit", "--working-dir", "w", "--", "python", "a.py"), "notes.txt", ".rayignore", "path or URI")
    refused(call("submit"), "COMMAND", "python -m distcondense demo")
    refused(call("submit", "--address", "auto", "--", "true"), "http://HEAD:8265")
    refused(call("submit", "--runtime-env", "none.yaml", "--", "true"), "runtime env none.yaml")
    assert played.started == []


def test_a_relative_out_is_warned_of(call: Call, played: Played, tmp_path: Path) -> None:
    folder_of(tmp_path / "w", a_py="")
    answer = call("submit", "--working-dir", "w", "--", "python", "-m", "distcondense", "demo", "--out", "demo")
    assert answer.code == 0
    assert "warning: --out demo is relative" in answer.err


# -- what answers at the address --------------------------------------------------------------------------------------


@contextlib.contextmanager
def server(answers: dict[str, tuple[int, str]]) -> Iterator[str]:
    """An HTTP server on a free port of the loopback; what is not in `answers` is 404, "" never comes."""
    end = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.get(self.path, (404, "not here"))
            if not text:
                end.wait()
                return
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))  # looks for its end that often
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        end.set()
        http.shutdown()
        thread.join()
        http.server_close()


def version(number: str) -> tuple[int, str]:
    return 200, json.dumps({"version": "4", "ray_version": number, "ray_commit": "", "session_name": ""})


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({}, "must be a Ray dashboard"),
        ({"/api/version": (200, "<html>log in</html>")}, "must be a Ray dashboard"),
        ({"/api/version": (200, "[]")}, "must be a Ray dashboard"),
        ({"/api/version": (500, "no")}, "must be a Ray dashboard"),
        ({"/api/version": (401, "who?")}, "needs the cluster's token. Found a token it does not accept"),
        ({"/api/version": (200, "")}, "must answer. Found no answer in 0.5 seconds"),
        ({"/api/version": version("2.41.0")}, "Found Ray 2.41.0. Fix: pip install 'ray[default]==2.41.0'"),
    ],
    ids=["404", "html", "list", "error", "token", "silent", "version"],
)
def test_what_is_not_our_cluster_is_told_within_seconds(answers: dict[str, tuple[int, str]], says: str) -> None:
    silent = any(not text for _, text in answers.values())
    with server(answers) as address, pytest.raises(ClusterError) as refusal:
        job_client(address, "token", answer_seconds=0.5 if silent else HANG)
    assert says in str(refusal.value)
    assert address in str(refusal.value)


def test_nobody_at_the_address_is_told(free_ports: Callable[[int], list[int]]) -> None:
    with pytest.raises(ClusterError, match=r"must be reachable\. Found nobody who answers"):
        job_client(f"http://127.0.0.1:{free_ports(1)[0]}", None)


def test_a_cluster_that_asks_for_no_token_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    open_house = {
        "/api/version": version(ray.__version__),
        "/api/authentication_mode": (200, '{"authentication_mode": "disabled"}'),
    }
    with server(open_house) as address, pytest.warns(DistcondenseWarning, match="asks for no token"):
        job_client(address, None)


def test_the_address_that_is_given_wins_over_rays_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:1")
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:2")
    with server({"/api/version": version("1.0.0")}) as address, pytest.raises(ClusterError, match=r"Found Ray 1\.0\.0"):
        job_client(address, None)
    assert os.environ["RAY_API_SERVER_ADDRESS"] == "http://127.0.0.1:1"


class JustStarted:
    """A head whose dashboard answers before its job agent is up: so many jobs are not taken."""

    def __init__(self, refusals: int) -> None:
        self.left, self.asked = refusals, 0

    def submit_job(self, **job: Any) -> str:
        self.asked += 1
        if self.asked <= self.left:
            words = "No available agent to submit job, please try again later."
            raise RuntimeError(f"Request failed with status code 500: {words}.")
        return "raysubmit_1"


def test_a_head_that_has_just_started_is_asked_again_until_it_takes_the_job() -> None:
    head = JustStarted(3)
    assert start_job(head, "x", "true", {}, 0).name == "raysubmit_1"
    assert head.asked == 4


def test_what_a_head_waits_for_is_said_before_it_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head holds the request itself: it is said while that is open."""
    assert AWAITED_SECONDS < 10
    monkeypatch.setattr("distcondense.cluster.ray.jobs.AWAITED_SECONDS", 0.0)
    said, heard = [], threading.Event()

    def log(line: str) -> None:
        said.append(line)
        heard.set()

    class Silent(JustStarted):
        def submit_job(self, **job: Any) -> str:
            assert heard.wait(HANG)
            return super().submit_job(**job)

    assert start_job(Silent(0), "http://h:8265", "true", {}, 0, log=log).name == "raysubmit_1"
    assert said[0].startswith("waiting for the job agent of http://h:8265")


def test_a_head_that_never_takes_jobs_is_told_after_a_stated_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distcondense.cluster.ray.jobs.AGENT_SECONDS", 0.0)
    head = JustStarted(1000)
    with pytest.raises(ClusterError, match=r"must take the job\. Found .*No available agent.*dashboard_agent\.log"):
        start_job(head, "x", "true", {}, 0)
    assert head.asked < 1000


# -- the folder cluster/ ----------------------------------------------------------------------------------------------


def requirement_names(lines: list[str]) -> set[str]:
    import re

    return {re.split(r"[\s<>=\[;#]", line.strip())[0] for line in lines if not line.startswith("-")}


def test_the_runtime_env_asks_for_all_dependencies_at_the_tested_versions() -> None:
    from ray.runtime_env import RuntimeEnv

    found = yaml.safe_load((CLUSTER / "runtime_env.yaml").read_text(encoding="utf-8"))
    assert set(RuntimeEnv(**found).to_dict()) >= {"pip", "excludes"}  # Ray's own check
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = requirement_names(found["pip"])
    needed = requirement_names(project["dependencies"]) - {"ray"}  # a node's own
    assert needed <= asked <= needed | {"tl2cgen", "matplotlib"}
    assert found["pip"][0] == "-c ${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/constraints.txt"
    assert asked <= requirement_names((ROOT / "constraints.txt").read_text().replace("_", "-").splitlines())


def test_the_runtime_env_leaves_every_data_format_behind(tmp_path: Path) -> None:
    excludes = yaml.safe_load((CLUSTER / "runtime_env.yaml").read_text(encoding="utf-8"))["excludes"]
    for suffix in DATA_SUFFIXES:
        write(tmp_path / f"deep/cohort{suffix}", "")
    write(tmp_path / "run/internal/run.json", "{}")
    write(tmp_path / "code.py", "")
    load_ray()
    assert files_to_send(tmp_path, excludes, defaults=True) == [tmp_path / "code.py"]


def test_the_reference_cluster_is_one_that_ray_takes_with_the_token_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    monkeypatch.chdir(ROOT)
    config = prepare_config(yaml.safe_load((CLUSTER / "cluster.yaml").read_text(encoding="utf-8")))
    validate_config(config)
    for commands in (config["head_start_ray_commands"], config["worker_start_ray_commands"]):
        assert "RAY_AUTH_MODE=token" in commands[-1]
        assert subprocess.run(["bash", "-n", "-c", commands[-1]]).returncode == 0
    assert "--dashboard-host=127.0.0.1" in config["head_start_ray_commands"][-1]
    local = {there: here for there, here in config["file_mounts"].items() if not here.startswith("~")}
    assert all((ROOT / here).exists() for here in local.values())
    assert "~/.ray/auth_token" in config["file_mounts"]


MANIFESTS = [path.relative_to(CLUSTER).as_posix() for path in (CLUSTER / "kuberay.yaml", *CLUSTER.glob("jobs/*.yaml"))]
GIVEN = {"kind", "apiVersion", "metadata", "spec"}
POD = {"containers", "volumes"}
CONTAINER = {"name", "image", "env", "ports", "resources", "securityContext", "volumeMounts"}
GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
SPECS = {  # what KubeRay 1.5.1 and Kubernetes know, of which these files make use: a slip of the pen is ignored there
    "RayCluster": {
        "rayVersion",
        "authOptions",
        "enableInTreeAutoscaling",
        "autoscalerOptions",
        "headGroupSpec",
        "workerGroupSpecs",
    },
    "RayJob": {"clusterSelector", "entrypoint", "entrypointNumCpus", "backoffLimit"},
    "NetworkPolicy": {"podSelector", "policyTypes", "ingress"},
}
VERSIONS = {"RayCluster": "ray.io/v1", "RayJob": "ray.io/v1", "NetworkPolicy": "networking.k8s.io/v1"}


def manifests() -> dict[str, list[dict[str, Any]]]:
    """Every object of the manifests, by its kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name in MANIFESTS:
        for one in yaml.safe_load_all((CLUSTER / name).read_text(encoding="utf-8")):
            found.setdefault(one["kind"], []).append(one)
    return found


def groups(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]


def in_bytes(quantity: str) -> int:
    """2Gi, as Kubernetes writes it."""
    return int(quantity.removesuffix("Gi")) * 2**30


def test_the_manifests_say_what_their_schemas_know() -> None:
    found = manifests()
    assert found.keys() == SPECS.keys()
    for kind, objects in found.items():
        for one in objects:
            assert one.keys() == GIVEN
            assert one["apiVersion"] == VERSIONS[kind]
            assert one["spec"].keys() <= SPECS[kind], one["metadata"]["name"]
    (cluster,) = found["RayCluster"]
    for group in groups(cluster):
        assert group.keys() <= GROUP
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())  # a map of texts
        pod = group["template"]["spec"]
        assert pod.keys() <= POD
        (container,) = pod["containers"]
        assert container.keys() <= CONTAINER
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        assert container["resources"]["requests"] == container["resources"]["limits"]


def test_the_cluster_of_the_manifest_grows_and_keeps_the_account_on_the_volume() -> None:
    import ray

    from distcondense import __version__

    (cluster,) = manifests()["RayCluster"]
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    assert cluster["spec"]["rayVersion"] == ray.__version__
    assert cluster["spec"]["enableInTreeAutoscaling"]
    cpu, gpu = cluster["spec"]["workerGroupSpecs"]
    assert (cpu["minReplicas"], cpu["maxReplicas"] > 1, gpu["maxReplicas"]) == (0, True, 0)
    for group in groups(cluster):
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"] == f"distcondense:{__version__}"
        places = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/data", "/scratch", "/dev/shm"} == places
        (state,) = [entry["value"] for entry in container["env"] if entry["name"] == "DISTCONDENSE_STATE"]
        assert state.startswith("/data/")
        shm = next(v["emptyDir"] for v in group["template"]["spec"]["volumes"] if v["name"] == "shm")
        assert int(group["rayStartParams"]["object-store-memory"]) < in_bytes(shm["sizeLimit"])
    for name in ("cluster.yaml", "submit.sh", "README.md", "kuberay.yaml", "Dockerfile"):
        assert ray.__version__.rpartition(".")[0] in (CLUSTER / name).read_text(encoding="utf-8")


def test_jobs_are_apart_from_the_cluster_and_those_that_read_patients_can_be_retried() -> None:
    """Whoever makes a cluster has spent nothing; a job that is started again is charged once."""
    found = manifests()
    (cluster,) = found["RayCluster"]
    (policy,) = found["NetworkPolicy"]
    chosen = {"ray.io/cluster": cluster["metadata"]["name"]}
    assert policy["spec"]["podSelector"] == {"matchLabels": chosen}
    assert [one["kind"] for one in yaml.safe_load_all((CLUSTER / "kuberay.yaml").read_text())] == [
        "RayCluster",
        "NetworkPolicy",
    ]
    for job in found["RayJob"]:
        said = job["spec"]["entrypoint"].split()
        assert job["spec"]["clusterSelector"] == chosen
        assert doubts(said) == []
        assert "condense" not in said or "--resume" in said
        assert not job["spec"]["backoffLimit"] or "--resume" in said


def test_the_image_is_made_of_sources_alone(tmp_path: Path) -> None:
    """A list of what may go in, none of it a table; the manifest's image is the one the Dockerfile says how to make."""
    text = (CLUSTER / "Dockerfile").read_text(encoding="utf-8")
    (cluster,) = manifests()["RayCluster"]
    (image,) = {group["template"]["spec"]["containers"][0]["image"] for group in groups(cluster)}
    assert f"docker build -f cluster/Dockerfile -t {image} ." in text
    rules = [
        line for line in (CLUSTER / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] not in ("#", "")
    ]
    assert rules[0] == "*"
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    assert let_in == {"distcondense", "kernels", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in let_in)


def test_the_readmes_options_and_files_exist(call: Call) -> None:
    import re

    text = (CLUSTER / "README.md").read_text(encoding="utf-8")
    calls = re.findall(r"distcondense submit (.*?)(?:-- |$)", text, re.MULTILINE)
    options = {option for said in calls for option in re.findall(r"--[a-z-]+", said)}
    assert {"--working-dir", "--no-follow"} <= options
    answer = call("submit", "--help")
    assert answer.code == 0
    assert [option for option in sorted(options | {"--runtime-env", "--address"}) if option not in answer.out] == []
    for name in re.findall(r"^\| `([\w./]+)`", text, re.MULTILINE):
        assert (CLUSTER / name).is_file()


def test_the_script_without_a_command_says_how_it_is_used() -> None:
    done = subprocess.run([str(CLUSTER / "submit.sh")], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_the_script_sends_code_and_settings_only_and_ends_as_the_job_ends(tmp_path: Path) -> None:
    for name in (
        "distcondense/a.py",
        "distcondense/report/templates/a.html.j2",
        "kernels/a.cpp",
        "kernels/build.json",
        "kernels/numbers.json",
        "benchmarks/studies/s.toml",
        "constraints.txt",
        "cohort.csv",
        "distcondense/cohort.csv",
        "benchmarks/studies/notes.txt",
        "tests/t.py",
    ):
        write(tmp_path / "checkout" / name, "x")
    shutil.copytree(CLUSTER, tmp_path / "checkout/cluster")
    fake = write(
        tmp_path / "bin/ray",
        '#!/usr/bin/env bash\necho "$RAY_AUTH_MODE $RAY_API_SERVER_ADDRESS $*"\n'
        'cd "$4" && find . -type f | sort\nexit 1\n',
    )
    fake.chmod(0o755)
    done = subprocess.run(
        [str(tmp_path / "checkout/cluster/submit.sh"), "--", "python", "-c", "a b"],
        capture_output=True,
        text=True,
        env={"PATH": f"{fake.parent}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
    )
    first, *sent = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert first.startswith("token http://127.0.0.1:8265 job submit --working-dir ")
    assert first.endswith(f"--runtime-env {tmp_path}/checkout/cluster/runtime_env.yaml -- python -c a b")
    assert sent == [
        "./benchmarks/studies/s.toml",
        "./constraints.txt",
        "./distcondense/a.py",
        "./distcondense/report/templates/a.html.j2",
        "./kernels/a.cpp",
        "./kernels/build.json",
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"checkout", "bin"}  # no copy is left


# -- a real head node -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def free_ports() -> Callable[[int], list[int]]:
    def pick(count: int) -> list[int]:
        with contextlib.ExitStack() as open_ones:
            sockets = [open_ones.enter_context(socket.socket()) for _ in range(count)]
            for one in sockets:
                one.bind(("127.0.0.1", 0))
            return [one.getsockname()[1] for one in sockets]

    return pick


@dataclass(frozen=True)
class Head:
    address: str
    token: Path
    data: Path  # where the cluster keeps data and results


def session_of(leader: int) -> list[int]:
    """The processes of the session that this one was started to lead, itself included."""
    members = []
    for name in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(name.name)) == leader:
                members.append(int(name.name))
    return members


PATIENT_RAY = """
import ray.scripts.scripts
from distcondense.cluster.ray._ray_private import patient_start
with patient_start(600):
    ray.scripts.scripts.main()
"""


@pytest.fixture(scope="module")
def head(free_ports: Callable[[int], list[int]]) -> Iterator[Head]:
    """A head node on the loopback, with a token; it and its children end with the session they are in."""
    folder = Path(tempfile.mkdtemp(prefix="dc-"))  # short: Ray's sockets live below it
    token = write(folder / "token", "0123456789abcdef" * 4)
    options = ["port", "dashboard-port", "ray-client-server-port"]
    ports = dict(zip(options, free_ports(len(options)), strict=True))
    programs = Path(sys.executable).parent
    other = socket.socket()
    with contextlib.suppress(OSError):  # another node of this machine: the agent's usual port is taken, here or there
        other.bind(("127.0.0.1", 52365))
        other.listen()
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PATIENT_RAY,
            "start",
            "--head",
            "--block",
            "--node-ip-address=127.0.0.1",
            "--dashboard-host=127.0.0.1",
            "--num-cpus=2",
            "--object-store-memory=100000000",
            f"--temp-dir={folder / 'ray'}",
            "--disable-usage-stats",
            *(f"--{option}={port}" for option, port in ports.items()),
        ],
        env=os.environ
        | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        },
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "block forever" in line:
                break
        else:
            pytest.fail("ray start: " + "".join(said))
        yield Head(f"http://127.0.0.1:{ports['dashboard-port']}", token, folder / "data")
    finally:
        for member in session_of(process.pid):  # workers have process groups of their own
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        process.communicate()
        other.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def demo(head: Head) -> SubmittedJob:
    """The demo as a job; it runs while the tests before its own do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(head.token))
        patch.delenv("RAY_AUTH_TOKEN", raising=False)
        command = [
            "python",
            "-m",
            "distcondense",
            "demo",
            "--method",
            "private",
            "--out",
            str(head.data / "demo"),
            "--threads",
            "1",
        ]
        return submit(command, address=head.address, log=quiet)


@pytest.fixture(scope="module")
def large(head: Head) -> SubmittedJob:
    """What cluster/jobs/condense.yaml says of a table in many files, on this small cluster."""
    frame = several()
    as_shuffled_parts(frame.assign(died=(frame["age"] > 60).astype(int)), head.data / "cohort")  # no noise hides that
    write(head.data / "cohort.toml", SIMPLE.to_toml())
    job = yaml.safe_load((CLUSTER / "jobs/condense.yaml").read_text(encoding="utf-8"))
    said = job["spec"]["entrypoint"].replace("/data/", f"{head.data}/").replace("--actors 4", "--actors 2")
    said = said.replace("--epsilon 1", "--epsilon 8").replace("/scratch", str(head.data))
    command = [
        *said.replace("--num-cpus 2", "--num-cpus 0.5").split(),
        "--ignore",
        "who",
        "--ipc",
        "2",
        "--threads",
        "1",
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(head.token))
        patch.delenv("RAY_AUTH_TOKEN", raising=False)
        return submit(command, address=head.address, log=quiet)


@pytest.fixture
def at_head(head: Head, demo: SubmittedJob, monkeypatch: pytest.MonkeyPatch) -> Head:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(head.token))
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", head.address)
    return head


def test_a_real_job_runs_the_code_that_was_sent_and_its_exit_code_is_ours(
    at_head: Head, call: Call, tmp_path: Path
) -> None:
    script = (
        "import os, sys, distcondense\nprint('code:', distcondense.__file__)\n"
        f"print('in a job:', {IN_A_JOB!r} in os.environ)\nsys.exit(int(sys.argv[1]))\n"
    )
    folder_of(tmp_path / "w", job_py=script)
    answer = call("submit", "--working-dir", "w", "--", "python", "job.py", "7")
    assert answer.code == 7
    (where,) = [line for line in answer.out.splitlines() if line.startswith("code: ")]
    assert "working_dir_files" in where
    assert "failed with exit code 7" in answer.err
    assert "in a job: True" in answer.out


@pytest.mark.parametrize("token", ["wrong", None])
def test_a_wrong_or_missing_token_is_refused(
    token: str | None, at_head: Head, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of(tmp_path / "w", a_py="")
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    monkeypatch.setenv("HOME", str(tmp_path))
    if token:
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
    answer = call("submit", "--working-dir", "w", "--", "python", "a.py")
    refused(answer, "needs the cluster's token", "RAY_AUTH_TOKEN_PATH", "does not accept" if token else "no token")


def test_the_head_node_takes_no_runtime_env_that_ray_does_not_know(at_head: Head, call: Call, tmp_path: Path) -> None:
    folder_of(tmp_path / "w", a_py="")
    write(tmp_path / "env.yaml", "env_vars: [not, a, mapping]\n")
    answer = call("submit", "--runtime-env", "env.yaml", "--working-dir", "w", "--", "python", "a.py")
    refused(answer, "runtime env")


def test_the_script_submits_with_ray_alone(at_head: Head, tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    done = subprocess.run(
        [str(CLUSTER / "submit.sh"), "python", "-c", "import distcondense; print('code:', distcondense.__file__)"],
        env=os.environ | {"RUNTIME_ENV": "", "PATH": f"{programs}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("code: ") and "working_dir_files" in line]


def test_the_release_of_a_submitted_run_is_that_of_a_local_one(
    at_head: Head, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File for file: a run without noise from a folder that lacks the package, which is put into it."""
    monkeypatch.setattr(
        "distcondense.runs.release._commit", lambda: None
    )  # a checkout knows its commit, a job does not
    table = patients(240)
    table.to_csv(tmp_path / "cohort.csv", index=False)
    at_head.data.mkdir(exist_ok=True)
    shutil.copy(tmp_path / "cohort.csv", at_head.data / "cohort.csv")
    folder_of(tmp_path / "w", schema_toml=SCHEMA.to_toml())
    how = [*options(BINARY), "--method", "published", "--no-noise", "--ipc", "5", "--steps", "5", "--threads", "1"]
    out = at_head.data / "submitted"
    command = ["python", "-m", "distcondense", "condense", at_head.data / "cohort.csv", "--schema", "schema.toml"]
    answer = call("submit", "--working-dir", "w", "--", *command, *how, "--out", out)
    assert answer.code == 0, answer.out + answer.err
    assert "no README.md" not in answer.out
    schema = ["--schema", tmp_path / "w/schema.toml"]
    assert call("condense", tmp_path / "cohort.csv", *schema, *how, "--out", "local").code == 0
    ours, theirs = files(tmp_path / "local/release"), files(out / "release")
    assert {"README.md", "datasheet.md", "report.html", "privacy.json", "condensed.csv"} <= ours.keys()
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert call("privacy", "verify", out, "--least", "none").code == 0


def test_the_demo_runs_as_a_job_and_leaves_its_result_folders(at_head: Head, demo: SubmittedJob) -> None:
    shown: list[str] = []
    state = demo.follow(show=shown.append, log=quiet)
    assert state.exit_code == 0, "".join(shown)[-3000:]
    assert "release/report.html" in "".join(shown)
    for name in ("breast_cancer", "gbsg2"):
        release = at_head.data / "demo" / name / "private" / "release"
        assert len(pd.read_parquet(release / "condensed.parquet")) == 100
        assert json.loads((release / "privacy.json").read_text())["guarantee"] == "end-to-end"


def test_the_job_of_the_manifest_condenses_a_folder_that_its_actors_read(at_head: Head, large: SubmittedJob) -> None:
    shown: list[str] = []
    state = large.follow(show=shown.append, log=quiet)
    assert state.exit_code == 0, "".join(shown)[-3000:]
    out = at_head.data / "large"
    assert len(pd.read_parquet(out / "release" / "condensed.parquet")) == 4
    record = json.loads((out / "internal" / "run.json").read_text())
    assert (record["data"]["rows"], record["data"]["files"]) == (700, 4)
    assert "Ray cluster joined" in (out / "internal" / "log.txt").read_text()
