"""The adapters: every way to one step's Jacobian, the whole step, and the controls, behind one small interface.

`prepare` may compile, pack and allocate, and is not timed; what it returns is. The slow ways move one column of one
buffer at a time: making the buffer is not timed, which favours them.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from distcondense.bench.problems import F32, BenchProblem, loaded
from distcondense.kernels import native, walk
from distcondense.kernels.arguments import over_rows
from distcondense.kernels.fused import fused_step
from distcondense.kernels.jit import kernel
from distcondense.kernels.update import AdamState, NoiseRule

Columns = NDArray[np.int64]
Run = Callable[[Columns], F32 | None]
Scores = Callable[[F32], NDArray[Any]]

NOISE = NoiseRule(clip=1e-5, sigma_base=1.0)
RATE, BETAS, KEY = 0.001, (0.9, 0.999), 1


@dataclass(frozen=True)
class Adapter:
    """One way. `covers` says which columns of the Jacobian a run gives; a "sample" costs in proportion to its size."""

    name: str
    what: Literal["control", "jacobian", "step"]
    says: str
    prepare: Callable[[BenchProblem, int], Run]
    covers: Literal["nothing", "sample", "used", "all"] = "nothing"
    why_not: Callable[[], str | None] = lambda: None

    @property
    def slow(self) -> bool:
        return self.covers == "sample"


def _quotient(up: NDArray[Any], down: NDArray[Any], step: float) -> F32:
    quotient: F32 = ((up.astype(np.float64) - down) / (2.0 * float(step))).astype(np.float32)
    return quotient


def _naive(problem: BenchProblem, threads: int) -> Run:
    import xgboost as xgb

    booster, X, steps = loaded(problem.booster, threads), problem.X, problem.steps

    def run(columns: Columns) -> F32:
        J = np.empty((len(X), len(columns)), np.float32)
        for k, j in enumerate(columns):
            up, down = X.copy(), X.copy()
            up[:, j] += steps[j]
            down[:, j] -= steps[j]
            f = [booster.predict(xgb.DMatrix(rows, nthread=threads)) for rows in (up, down)]
            J[:, k] = _quotient(f[0], f[1], steps[j])
        return J

    return run


def _by_columns(predict: Scores, problem: BenchProblem) -> Run:
    """2m rows in one buffer: the upper half has column j at +ε, the lower at −ε; then the column is put back."""
    X, steps, m = problem.X, problem.steps, problem.rows
    buffer = np.concatenate((X, X))

    def run(columns: Columns) -> F32:
        J = np.empty((m, len(columns)), np.float32)
        for k, j in enumerate(columns):
            buffer[:m, j] = X[:, j] + steps[j]
            buffer[m:, j] = X[:, j] - steps[j]
            f = predict(buffer)
            J[:, k] = _quotient(f[:m], f[m:], steps[j])
            buffer[:m, j] = buffer[m:, j] = X[:, j]
        return J

    return run


def _inplace(problem: BenchProblem, threads: int) -> Run:
    booster = loaded(problem.booster, threads)
    return _by_columns(lambda rows: np.asarray(booster.inplace_predict(rows, validate_features=False)), problem)


def _gtil(problem: BenchProblem, threads: int) -> Run:
    import treelite

    from distcondense.models.compiled import CompiledPredictor

    forest = treelite.Model.deserialize_bytes(problem.reference.treelite_bytes)
    return _by_columns(CompiledPredictor(None, forest, np.float32, False, threads), problem)


@cache
def library_folder() -> tempfile.TemporaryDirectory[str]:
    """Compiled models of this process, gone with it: they are not kept in the user's cache."""
    return tempfile.TemporaryDirectory(prefix="distcondense-bench-")


@contextmanager
def _quiet() -> Iterator[None]:
    """Without tl2cgen's reports, which it prints."""
    with redirect_stdout(StringIO()):
        yield


def _tl2cgen(problem: BenchProblem, threads: int) -> Run:
    import tl2cgen
    import treelite

    from distcondense.models.compiled import AsKnown, CompiledPredictor, find_toolchain

    reference = problem.reference
    forest = treelite.Model.deserialize_bytes(reference.treelite_bytes)
    library = Path(library_folder().name) / f"{reference.fingerprint}.so"
    with _quiet():
        if not library.exists():
            files = {"parallel_comp": min(problem.trees, 16)}
            tl2cgen.export_lib(AsKnown(forest), find_toolchain(), library, params=files, nthread=os.cpu_count() or 1)
        engine = tl2cgen.Predictor(library, nthread=threads)
    return _by_columns(CompiledPredictor(engine, forest, np.dtype(np.float32), False, threads), problem)


def _why_not_tl2cgen() -> str | None:
    from distcondense.models.compiled import find_toolchain

    if find_spec("tl2cgen") is None:
        return "tl2cgen is not installed (pip install 'distcondense[compiled]')"
    return None if find_toolchain() else "no C compiler (gcc or clang) on PATH"


def _structured(jacobian: Callable[..., F32], problem: BenchProblem, threads: int) -> Run:
    ensemble, X, steps = problem.reference.ensemble, problem.X, problem.steps
    return lambda columns: jacobian(ensemble, X, steps, threads)


def _used_columns(jacobian: Callable[..., F32], problem: BenchProblem, threads: int) -> Run:
    """Reads the used columns of X, gives those columns of J: no dense (m, d) output, as in the fused step."""
    few, used, X = problem.reference.ensemble.compact, problem.used, problem.X
    steps = problem.steps[used]
    return lambda columns: jacobian(few, np.take(X, used, axis=1), steps, threads)


def _sparse(jacobian_csr: Callable[..., Any], problem: BenchProblem, threads: int) -> Run:
    """What `dc.jacobian(form="csr")` gives: X as it is in, the entries that are not zero out."""
    from scipy.sparse import csr_array

    ensemble, X, steps = problem.reference.ensemble, problem.X, problem.steps

    def run(columns: Columns) -> Any:
        indptr, indices, data = jacobian_csr(ensemble, X, steps, threads)
        return csr_array((data, indices, indptr), shape=X.shape)

    return run


def _fused(step: Callable[..., Any], problem: BenchProblem, threads: int) -> Run:
    ensemble, X, state = problem.reference.ensemble, problem.X.copy(), AdamState.zeros(problem.X.shape)
    slopes, steps = problem.slopes, problem.steps

    def run(columns: Columns) -> None:
        step(ensemble, X, slopes, steps, state, NOISE, RATE, BETAS, KEY, state.step, 0, threads)

    return run


@kernel()
def _stream(x: Any, m: Any, v: Any, one: Any, first: Any, last: Any) -> None:
    for i in range(first, last):
        for j in range(x.shape[1]):
            x[i, j] *= one  # a factor the compiler does not know, so that nothing is left out
            m[i, j] *= one
            v[i, j] *= one


def _copy(problem: BenchProblem, threads: int) -> Run:
    X = problem.X.copy()
    m, v = X.copy(), X.copy()
    if native.why_not() is None:
        return lambda columns: native.copy_control(X, m, v, threads)
    one = np.float32(1)
    return lambda columns: over_rows(lambda a, b: _stream(X, m, v, one, a, b), len(X), threads)


def _nothing(problem: BenchProblem, threads: int) -> Run:
    return lambda columns: None


def _no_native() -> str | None:
    reason = native.why_not()
    return None if reason is None else (reason.strip().splitlines() or ["no native kernels"])[0]


ADAPTERS = (
    Adapter("do nothing", "control", "an empty call: what measuring itself costs", _nothing),
    Adapter("copy", "control", "X, m, v once in and once out: the memory limit of a step", _copy),
    Adapter("naive XGBoost", "jacobian", "a copy and a DMatrix per column and direction", _naive, "sample"),
    Adapter("inplace_predict", "jacobian", "XGBoost without a DMatrix, one column moved at a time", _inplace, "sample"),
    Adapter("GTIL", "jacobian", "Treelite's interpreter", _gtil, "sample"),
    Adapter("tl2cgen", "jacobian", "Treelite → C → shared library", _tl2cgen, "sample", _why_not_tl2cgen),
    Adapter(
        "structured/Numba", "jacobian", "the sparse walk, dense (m, d) answer",
        partial(_structured, walk.jacobian), "all",
    ),
    Adapter(
        "structured/C++", "jacobian", "the same, native", partial(_structured, native.jacobian), "all", _no_native
    ),
    Adapter(
        "structured/Numba, used columns", "jacobian", "the sparse walk, answer on the used columns only",
        partial(_used_columns, walk.jacobian), "used",
    ),
    Adapter(
        "structured/C++, used columns", "jacobian", "the same, native",
        partial(_used_columns, native.jacobian), "used", _no_native,
    ),
    Adapter(
        "structured/Numba, sparse", "jacobian", "the sparse walk, answer by rows without its zeros (CSR)",
        partial(_sparse, walk.jacobian_csr), "all",
    ),
    Adapter(
        "structured/C++, sparse", "jacobian", "the same, native",
        partial(_sparse, native.jacobian_csr), "all", _no_native,
    ),
    Adapter("fused/Numba", "step", "walk, clip, noise and Adam in one pass", partial(_fused, fused_step)),
    Adapter("fused/C++", "step", "the same, native", partial(_fused, native.fused_step), "nothing", _no_native),
)  # fmt: skip
