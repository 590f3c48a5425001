"""Two backends, one contract: a process has one of them, a run records it, and both give the same table.

Also what surrounds them: a second process compiles nothing, and the kernels are plain Python with the JIT off.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense import kernels
from distcondense.kernels import native, walk
from distcondense.outcomes.binary import fit_xgb
from tests.conftest import SMALL_SCHEMA, small_frame

ROOT = Path(__file__).resolve().parents[2]
needs_native = pytest.mark.skipif(native.why_not() is not None, reason=f"no native kernels: {native.why_not()}")
MODULES = {"numba": "distcondense.kernels.fused", "native": "distcondense.kernels.native"}
RUN = """
import sys
sys.modules["matplotlib"] = None  # no picture: loading it takes longer than the run
from tests.kernels.test_backend import condense
print(*condense(sys.argv[1]))
"""


def condense(out: Path | str) -> tuple[str, str]:
    """A noisy run with this process's backend: its name, and where its fused step comes from."""
    cohort = dc.Cohort.from_frame(small_frame(), target="died", ignore=["months", "event"], schema=SMALL_SCHEMA)
    dc.condense(
        cohort,
        method="published",
        sigma_base=2.0,
        ipc=10,
        steps=40,
        evaluate_every=40,
        threads=1,
        soft=True,
        noise_key=3,
        out=out,
    )
    return kernels.backend(), kernels.fused_step.__module__


def condense_elsewhere(backend: str, out: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"DISTCONDENSE_BACKEND": backend}
    return subprocess.run([sys.executable, "-c", RUN, out], capture_output=True, text=True, cwd=ROOT, env=env)


@needs_native
def test_both_backends_condense_to_the_same_table_and_a_run_says_which_it_had(tmp_path: Path) -> None:
    here, frames = kernels.backend(), {}
    there = next(name for name in MODULES if name != here)
    assert condense(tmp_path / here) == (here, MODULES[here])
    done = condense_elsewhere(there, tmp_path / there)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [there, MODULES[there]]
    for backend in MODULES:
        run = json.loads((tmp_path / backend / "internal/run.json").read_text())
        assert run["backend"] == backend
        frames[backend] = pd.read_parquet(tmp_path / backend / "release/condensed.parquet").drop(columns="died")
    gap = (frames["numba"] - frames["native"]).abs() / frames["numba"].std().replace(0, 1)
    assert gap.to_numpy().max() < 1e-3  # float32 rounding, carried through 40 steps


def test_an_unknown_backend_is_refused_in_words(tmp_path: Path) -> None:
    done = condense_elsewhere("fortran", tmp_path / "run")
    assert done.returncode != 0
    assert "must be numba or native" in done.stderr
    assert not (tmp_path / "run").exists()


@needs_native
def test_native_scores_are_numbas(binary) -> None:
    rows = np.random.default_rng(0).normal(size=(len(binary), 6)).astype(np.float32)
    model = fit_xgb(rows, binary.outcome, threads=1)
    assert native.scores(model.ensemble, rows) == pytest.approx(walk.scores(model.ensemble, rows), abs=1e-6)
    assert native.scores(model.ensemble, rows) == pytest.approx(model.scores(rows), abs=1e-6)


ONCE_EACH = """
import json
import numpy as np
from numba.core.registry import CPUDispatcher
from distcondense.models.jacobian import jacobian
from distcondense.kernels import exchange, fused, native, native_build, random, update, walk
from tests import naive

built, really = [], native_build.compile_to
native_build.compile_to = lambda target, **more: (built.append(target.name), really(target, **more))
rng = np.random.default_rng(0)
trees = naive.random_ensemble(rng, d=5, trees=3, depth=3)
X, steps, slopes = naive.grid_rows(rng, 4, 5), naive.grid_steps(rng, 5), np.ones(4, np.float32)
for backend in (walk, native) if native.why_not() is None else (walk,):
    backend.scores(trees, X)
    backend.jacobian(trees, X, steps)
    backend.jacobian_csr(trees, X, steps)
    step, state = (fused if backend is walk else native).fused_step, update.AdamState.zeros(X.shape)
    step(trees, X.copy(), slopes, steps, state, update.NoiseRule(1.0, 0.5), 0.1, (0.9, 0.99), 1, 0)
jacobian(lambda rows: rows[:, 0], X, steps, "blocked")
update.clip_and_noise(X.copy(), 1.0, 0.5, 1, 0)
update.adam(X.copy(), X, update.AdamState.zeros(X.shape), 0.1)
random.bits(1, 2, 3, 4, (2, 5))
modules = (exchange, fused, random, update, walk)
kernels = {k.py_func.__name__: k.stats for m in modules for k in vars(m).values() if isinstance(k, CPUDispatcher)}
hits = [name for name, stats in kernels.items() if stats.cache_hits]
misses = [name for name, stats in kernels.items() if stats.cache_misses]
print(json.dumps({"built": built, "hits": hits, "misses": misses}))
"""


def test_a_second_process_compiles_nothing() -> None:
    """The caches are the user's own: what this or an earlier process compiled, the next one finds there."""
    native.why_not()  # builds the library if this is its first use; test_native.py has a fresh cache for that
    env = os.environ | {"DISTCONDENSE_BACKEND": "", "NUMBA_DISABLE_JIT": "0"}

    def another() -> dict[str, list[str]]:
        done = subprocess.run([sys.executable, "-c", ONCE_EACH], capture_output=True, text=True, cwd=ROOT, env=env)
        assert done.returncode == 0, done.stderr
        said: dict[str, list[str]] = json.loads(done.stdout)
        assert said["built"] == []
        return said

    found = another()
    if found["misses"]:  # kernels that nothing has called since they were changed: the second time they are there
        found = another()
    assert found["misses"] == []
    assert {"_jacobian", "_fused", "_adam"} <= set(found["hits"])


def test_the_kernels_are_right_with_the_jit_off() -> None:
    """Numba can hide a wrong index or a narrow type that plain Python shows; small cases, so that it takes seconds."""
    env = os.environ | {"NUMBA_DISABLE_JIT": "1", "DISTCONDENSE_BACKEND": "numba"}
    which = [
        "tests/kernels/test_kernels.py",
        "tests/models/test_jacobian.py",
        "tests/methods/test_placement.py",
        "-k",
        "test_kernels or every_depth or any_model or linear or exchanged_rows",
    ]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error::RuntimeWarning", *which]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=120)
    assert done.returncode == 0, done.stdout[-4000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 30
