"""Two backends, one contract: a process has one of them, a run records it, and both give the same table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from distcondense.kernels import native, walk
from distcondense.references.learners import fit_xgb

ROOT = Path(__file__).resolve().parents[1]
needs_native = pytest.mark.skipif(native.why_not() is not None, reason=f"no native kernels: {native.why_not()}")
RUN = """
import sys
import distcondense as dc
from distcondense import kernels
from tests.conftest import SMALL_SCHEMA, small_frame
cohort = dc.Cohort.from_frame(small_frame(), target="died", ignore=["months", "event"], schema=SMALL_SCHEMA)
dc.condense(cohort, mechanism="published", epsilon=2.5, ipc=10, steps=40, evaluate_every=20, threads=1, soft=True,
            noise_key=3, out=sys.argv[1])
print(kernels.backend(), kernels.fused_step.__module__)
"""


def condense(backend: str, out: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"DISTCONDENSE_BACKEND": backend}
    return subprocess.run([sys.executable, "-c", RUN, out], capture_output=True, text=True, cwd=ROOT, env=env)


@needs_native
def test_both_backends_condense_to_the_same_table_and_a_run_says_which_it_had(tmp_path: Path) -> None:
    frames = {}
    for backend, module in (("numba", "fused"), ("native", "native")):
        done = condense(backend, tmp_path / backend)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [backend, f"distcondense.kernels.{module}"]
        run = json.loads((tmp_path / backend / "internal/run.json").read_text())
        assert run["backend"] == backend
        frames[backend] = pd.read_parquet(tmp_path / backend / "release/condensed.parquet").drop(columns="died")
    gap = (frames["numba"] - frames["native"]).abs() / frames["numba"].std().replace(0, 1)
    assert gap.to_numpy().max() < 1e-3  # float32 rounding, carried through 40 steps


def test_an_unknown_backend_is_refused_in_words(tmp_path: Path) -> None:
    done = condense("fortran", tmp_path / "run")
    assert done.returncode != 0
    assert "must be numba or native" in done.stderr
    assert not (tmp_path / "run").exists()


@needs_native
def test_native_scores_are_numbas(binary) -> None:
    rows = np.random.default_rng(0).normal(size=(len(binary), 6)).astype(np.float32)
    model = fit_xgb(rows, binary.outcome, threads=1)
    assert native.scores(model.ensemble, rows) == pytest.approx(walk.scores(model.ensemble, rows), abs=1e-6)
    assert native.scores(model.ensemble, rows) == pytest.approx(model.scores(rows), abs=1e-6)
