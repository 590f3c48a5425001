"""Shared by all tests: seeded Hypothesis without deadlines (a first call compiles), explicit threads, small cohorts."""

from __future__ import annotations

import os

os.environ.setdefault("NUMBA_NUM_THREADS", "2")
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # spinning threads fight with whatever else runs

import secrets
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, settings

from distcondense import Cohort, Column, Schema
from tests import fixed_noise
from tests.shell import Answer, Call

# Ray reads these when it is first imported: loopback only, and a token of this test run that touches nobody's home
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN_PATH"] = str(Path(tempfile.mkdtemp(prefix="distcondense-tests-")) / "token")
Path(os.environ["RAY_AUTH_TOKEN_PATH"]).write_text(secrets.token_hex(32))
for name in ("RAY_ADDRESS", "RAY_AUTH_TOKEN"):
    os.environ.pop(name, None)

os.environ["DISTCONDENSE_STATE"] = "off"  # no account is kept in anybody's home
# nobody pulls the plug here; whoever tests that the disk is asked puts a watcher in its place
os.fsync = lambda file: None
fixed_noise.replace_samplers()

settings.register_profile(
    "house", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

# Files that take longest: they begin first, so that no worker is left alone with one in the end (`make test`).
LONGEST = (
    "readme",
    "kills",
    "submit",
    "ray",
    "odometer",
    "study",
    "evaluate",
    "audit_end_to_end",
    "audit",
    "placement",
)
# Files of whole runs, clusters, attacks and other processes, which `make quick` leaves out.
SLOW = {
    *LONGEST,
    *("row_nodes", "private", "remote_shards", "dp_geng", "psygentab", "recipients", "large", "stability"),
    *("afternoon", "release", "backend", "cli", "hostile", "cli_private", "domain", "additive", "answers", "native"),
    *("executors", "multiclass", "rules", "study_operator", "several_ipc", "pages", "references", "continuous", "fuzz"),
    *("clustmix", "lira", "attacks", "risks", "package", "gate", "cuda", "trees", "peers", "small", "in_order"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out files that take more than some seconds")
    parser.addoption("--noise", default="0", help="which fixed noise: a number, or 'real' for the operating system's")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a test's fixtures, those of its module too: noise is keyed by the test's name."""
    real = item.get_closest_marker("real_noise") is not None
    fixed_noise.begin(item.nodeid, fixed_noise.REAL if real else item.config.getoption("--noise"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Longest files first; without what only `make exhaustive` runs, and with --quick without slow files."""
    place = {f"test_{name}.py": number for number, name in enumerate(LONGEST)}
    slow = {f"test_{name}.py" for name in SLOW} if config.getoption("--quick") else set()
    wanted = "exhaustive" in config.getoption("-m")
    left_out = [
        item
        for item in items
        if item.path.name in slow or (not wanted and item.get_closest_marker("exhaustive") is not None)
    ]
    config.hook.pytest_deselected(items=left_out)
    out = set(left_out)
    items[:] = sorted(
        (item for item in items if item not in out), key=lambda item: place.get(item.path.name, len(place))
    )


def real_data(name: str) -> Path:
    """A real data set beside the project, or a skip that says what is missing."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"real data set {name} is not beside the project")
    return path


def small_frame(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Four features with signal, a binary outcome and a survival outcome."""
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 90, rows)
    crp = np.round(rng.gamma(2, 10, rows).clip(0, 200), 1)
    smoker = rng.integers(0, 2, rows)
    stage = rng.choice(["I", "II", "III"], rows, p=[0.5, 0.3, 0.2])
    risk = (
        0.05 * (age - 55)
        + 0.04 * (crp - 20)
        + 0.8 * smoker
        + np.select([stage == "II", stage == "III"], [0.5, 1.2], 0.0)
    )
    died = (rng.random(rows) < 1 / (1 + np.exp(-risk))).astype(int)
    time = rng.exponential(np.exp(-risk / 2) * 30) + 0.1
    return pd.DataFrame(
        {
            "age": age,
            "crp": crp,
            "smoker": smoker,
            "stage": stage,
            "died": died,
            "months": np.minimum(time, 60.0),
            "event": (time <= 60).astype(int),
        }
    )


SMALL_SCHEMA = Schema(
    (
        Column("age", "integer", low=0, high=120, unit="years"),
        Column("crp", "continuous", low=0, high=400, unit="mg/L"),
        Column("smoker", "binary", categories=(0, 1)),
        Column("stage", "categorical", categories=("I", "II", "III")),
    )
)
OUTCOMES = (
    Column("died", "binary", categories=(0, 1)),
    Column("months", "continuous"),  # no bounds: whoever wants a horizon says one
    Column("event", "binary", categories=(0, 1)),
)
SMALL_TABLE = Schema((*SMALL_SCHEMA.columns, *OUTCOMES))  # the same with its outcomes declared


@pytest.fixture
def binary() -> Cohort:
    return Cohort.from_frame(small_frame(), target="died", ignore=["months", "event"], schema=SMALL_TABLE)


@pytest.fixture
def survival() -> Cohort:
    return Cohort.from_frame(small_frame(), time="months", event="event", ignore=["died"], schema=SMALL_TABLE)


def quicken(patch: pytest.MonkeyPatch) -> None:
    """Few candidates and exchanges: what placement promises holds at any number of them."""
    from distcondense.methods.private import joint, placement

    fewer = {"POPULATION": 1500, "CANDIDATES": 300, "CANDIDATES_LEAST": 80, "PEOPLE": 100, "STEPS": 100}
    for name, value in fewer.items():
        patch.setattr(placement, name, value)
    patch.setattr(joint, "POOL", 6000)


@pytest.fixture
def quick_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    quicken(monkeypatch)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Call:
    """`call("condense", …)` as a shell would, in this process, with `tmp_path` as the working directory."""
    from distcondense import cli  # only here: tests that do not call it do not load it

    monkeypatch.chdir(tmp_path)

    def run(*arguments: Any) -> Answer:
        monkeypatch.setattr(sys, "argv", ["distcondense", *map(str, arguments)])
        capsys.readouterr()
        with warnings.catch_warnings():  # main sets its own filters
            try:
                cli.main()
                code: Any = 0
            except SystemExit as done:
                code = done.code or 0
        return Answer(code, *capsys.readouterr())

    return run
