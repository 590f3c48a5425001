"""The GPU kernel against the oracle of naive.py and, bit for bit, against the CPU kernel.

Numba's simulator must be chosen before Numba is imported, so one subprocess answers all cases; where there is a GPU a
second one answers them on it. What the real compiler makes of the kernels is read off its PTX, which needs no GPU.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest
from numba import types

from distcondense.errors import SettingsError
from distcondense.kernels import cuda, walk
from distcondense.kernels.ensemble import TreeEnsemble
from tests import naive

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Case:
    ensemble: TreeEnsemble
    X: np.ndarray
    steps: np.ndarray
    budget: int = cuda.MEMORY_BUDGET

    @property
    def row_bytes(self) -> int:
        few = self.ensemble.compact
        return cuda.row_bytes(few.n_features, walk.depth_of(few.left, few.roots))

    @property
    def block(self) -> int:
        """Rows that fit the budget."""
        return max(1, self.budget // self.row_bytes)


def case(
    seed: int,
    m: int,
    d: int,
    *,
    trees: int = 3,
    depth: int = 3,
    missing: float = 0.0,
    budget: int | None = None,
    **more: Any,
) -> Case:
    """Trees, rows and steps on one grid, so that thresholds are hit exactly; `more` goes to `naive.random_ensemble`."""
    rng = np.random.default_rng(seed)
    ensemble = naive.random_ensemble(rng, d=d, trees=trees, depth=depth, **more)
    X, steps = naive.grid_rows(rng, m, d, missing=missing), naive.grid_steps(rng, d)
    return Case(ensemble, X, steps, budget or cuda.MEMORY_BUDGET)


def spread(one: Case, every: int) -> Case:
    """Unused columns before, between and after the used ones."""
    inner = one.ensemble.feature >= 0
    feature = np.where(inner, every * one.ensemble.feature + every // 2, -1).astype(np.int32)
    d = every * one.ensemble.n_features
    steps = naive.grid_steps(np.random.default_rng(0), d)
    return Case(replace(one.ensemble, feature=feature, n_features=d), np.repeat(one.X, every, axis=1), steps)


def with_one_leaf_trees(one: Case) -> Case:
    """A tree of one leaf before, and one after, the others."""
    e, nodes = one.ensemble, len(one.ensemble.feature)
    ensemble = replace(
        e,
        feature=np.append(e.feature, np.full(2, -1, np.int32)),
        threshold=np.append(e.threshold, np.array([0.7, -0.3], np.float32)),
        left=np.append(e.left, np.full(2, -1, np.int32)),
        default_left=np.append(e.default_left, np.zeros(2, np.uint8)),
        roots=np.concatenate(([nodes], e.roots, [nodes + 1])).astype(np.int32),
    )
    return replace(one, ensemble=ensemble)


def stump(cut: float, low: float, high: float, base: float, link: Any) -> TreeEnsemble:
    return TreeEnsemble(
        feature=np.array([0, -1, -1], np.int32),
        threshold=np.array([cut, low, high], np.float32),
        left=np.array([1, -1, -1], np.int32),
        default_left=np.zeros(3, np.uint8),
        roots=np.zeros(1, np.int32),
        base=base,
        link=link,
        n_features=1,
    )


def one_column(ensemble: TreeEnsemble, values: list[float], step: float) -> Case:
    return Case(ensemble, np.array(values, np.float32)[:, None], np.full(1, step, np.float32))


def far_away(one: Case, rows: slice) -> Case:
    """Rows so far from every threshold that nothing flips."""
    one.X[rows] = 100
    return one


CASES = {
    "a stump": case(0, 1, 1, trees=1, depth=1),
    "one row": case(1, 1, 4),
    "no rows": case(2, 0, 4),
    "no trees": case(3, 3, 4, trees=0),
    "trees of one leaf": case(4, 3, 4, depth=0),
    "trees of one leaf among others": with_one_leaf_trees(case(5, 4, 4)),
    "more features than rows": case(6, 3, 60, trees=6),
    "unused columns": spread(case(7, 4, 5), every=6),
    "missing values": case(8, 6, 4, missing=0.4, link="identity"),
    "everything missing": case(9, 3, 4, missing=1.0),
    "infinite values": one_column(stump(0.0, 1.0, 3.0, 0.0, "identity"), [np.inf, -np.inf, 0.25], 1.0),
    "one feature all the way down": case(10, 5, 1, depth=12),
    "identity": case(11, 6, 5, link="identity"),
    "more rows than a warp": case(12, 70, 3, trees=2, depth=2),
    "more rows than a block": case(13, 23, 5, budget=2000),
    "blocks of one row": case(14, 4, 5, budget=1),
    "a block that touches nothing": far_away(case(15, 23, 5, budget=2000), slice(0, 16)),
    "slopes below the smallest float": one_column(stump(0.0, 1.0, 0.0, -104.0, "sigmoid"), [-0.5, 0.5], 2.0),
    # a device that flushes subnormal numbers to zero would not see these flips
    "subnormal numbers": one_column(stump(3e-40, 0.0, 1e-5, 0.0, "identity"), [0.0, 2e-40, 4e-40], 2e-40),
} | {
    f"at random {seed}": case(
        seed,
        m=seed % 5 + 1,
        d=seed % 7 + 1,
        trees=seed % 4 + 1,
        depth=seed % 6 + 1,
        features=min(seed % 7 + 1, 3),
        link=("sigmoid", "identity")[seed % 2],
        missing=(0.0, 0.3)[seed // 2 % 2],
    )
    for seed in range(100, 124)
}

ANSWER = """
import sys, weakref
import numpy as np
from distcondense.kernels import cuda
from tests.kernels.test_cuda import CASES

assert cuda.why_not() is None, cuda.why_not()
held, most, really = 0, 0, cuda.cuda.device_array

def give_back(size):
    global held
    held -= size

def counted(shape, dtype):
    global held, most
    array = really(shape, dtype)
    held += array.nbytes
    most = max(most, held)
    weakref.finalize(array, give_back, array.nbytes)
    return array

cuda.cuda.device_array = counted
answers = {}
for name, case in CASES.items():
    most, arguments = 0, (case.ensemble, case.X, case.steps)
    answers[f"{name}/dense"] = cuda.jacobian(*arguments, memory_budget=case.budget)
    answers[f"{name}/most"] = most
    sparse = cuda.jacobian_csr(*arguments, threads=2, memory_budget=case.budget)
    answers |= {f"{name}/{part}": array for part, array in zip(("indptr", "indices", "data"), sparse, strict=True)}
np.savez(sys.argv[1], **answers)
"""


def python(code: str, *arguments: Any, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_ENABLE_CUDASIM": "0"} | changes
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)


@pytest.fixture(scope="module", params=["simulator", "device"] if cuda.why_not() is None else ["simulator"])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """What the GPU kernel says to every case."""
    out = tmp_path_factory.mktemp(request.param) / "answers.npz"
    done = python(ANSWER, out, NUMBA_ENABLE_CUDASIM=str(int(request.param == "simulator")))
    assert done.returncode == 0, done.stderr[-4000:]
    with np.load(out) as found:
        yield found


def bits(array: np.ndarray) -> np.ndarray:
    """Bytes, so that −0 is not 0."""
    return np.frombuffer(array.tobytes(), np.uint8)


@pytest.mark.parametrize("name", CASES)
def test_the_gpu_has_the_bits_of_the_processor(answers, name):
    one, found = CASES[name], answers[f"{name}/dense"]
    expected = walk.jacobian(one.ensemble, one.X, one.steps)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(bits(found), bits(expected))


@pytest.mark.parametrize("name", CASES)
def test_the_gpus_sparse_answer_has_the_bits_of_the_processors(answers, name):
    one = CASES[name]
    expected = walk.jacobian_csr(one.ensemble, one.X, one.steps)
    for part, wanted in zip(("indptr", "indices", "data"), expected, strict=True):
        found = answers[f"{name}/{part}"]
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(bits(found), bits(wanted))


@pytest.mark.parametrize("name", CASES)
def test_the_gpu_walk_is_the_finite_difference(answers, name):
    one = CASES[name]
    expected = naive.jacobian(one.ensemble, one.X, one.steps)
    np.testing.assert_allclose(answers[f"{name}/dense"], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_a_block_of_rows_stays_within_the_memory_budget(answers, name):
    one = CASES[name]
    assert answers[f"{name}/most"] <= max(one.budget, one.row_bytes)


def test_the_cases_above_are_what_they_are_called():
    # guards the generator: a case that lost its point would prove nothing
    J = {name: walk.jacobian(one.ensemble, one.X, one.steps) for name, one in CASES.items()}
    several = CASES["more rows than a block"]
    assert 1 < several.block < len(several.X) - several.block
    assert CASES["blocks of one row"].block == 1
    empty = "a block that touches nothing"
    assert not J[empty][: CASES[empty].block].any()
    assert J[empty][CASES[empty].block :].any()
    small = J["slopes below the smallest float"]
    assert (np.signbit(small) & (small == 0)).any()
    assert (J["subnormal numbers"] != 0).sum() == 2
    assert 1 < len(CASES["unused columns"].ensemble.used) < 10
    hits = sum(np.isin(one.X + one.steps, one.ensemble.threshold).sum() for one in CASES.values())
    assert hits > 100
    assert np.isnan(CASES["missing values"].X).any()
    assert sum(map(np.count_nonzero, J.values())) > 300


# ---- what the real compiler makes of it ----------------------------------------------------------------------

I8, I4, U1, F4, F8 = types.int64, types.int32, types.uint8, types.float32, types.float64
PRODUCT = re.compile(r"\b(?:fma|mad|mul|div)\.[\w.]*f(?:32|64)")


def ptx(kernel: Any, *signature: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The assembly of a kernel, with its own options, for compute capability 8.0."""
    if cuda.cuda.implementation != "Built-in":
        pytest.skip("compiling without a device is known of Numba's built-in target only")
    from numba.cuda import dispatcher
    from numba.cuda.cudadrv import nvvm

    if not nvvm.is_available():
        pytest.skip("no NVVM (CUDA toolkit)")
    monkeypatch.setattr(dispatcher, "get_current_device", lambda: SimpleNamespace(compute_capability=(8, 0)))
    fast = bool(kernel.targetoptions.get("fastmath"))
    return str(cuda.cuda.compile_ptx(kernel.py_func, signature, fastmath=fast, cc=(8, 0))[0])


def test_compiled_for_a_gpu_the_walk_only_adds_and_keeps_subnormal_numbers(monkeypatch):
    trees = types.Tuple((I4[::1], F4[::1], I4[::1], U1[::1], I4[::1]))
    scratch = types.Tuple((F8[:, :, ::1], I4[:, ::1], U1[:, ::1], I4[:, ::1]))
    walked = ptx(
        cuda._walk_kernel, I8, F4[:, ::1], F4[::1], trees, F8, scratch, I8[::1], F8[::1], monkeypatch=monkeypatch
    )
    packed = ptx(
        cuda._pack_kernel, I8, U1[:, ::1], F8[:, :, ::1], I8[::1], I4[::1], F8[:, ::1], monkeypatch=monkeypatch
    )
    assert "add.f32" in walked
    assert "add.f64" in walked
    assert not PRODUCT.findall(walked + packed)
    assert ".ftz" not in walked + packed


def test_a_product_would_be_contracted_and_noticed(monkeypatch):
    def line(x, y):
        y[0] += x[0] * x[1]

    assert PRODUCT.findall(ptx(cuda.cuda.jit(line), F8[::1], F8[::1], monkeypatch=monkeypatch)) == ["fma.rn.f64"]


# ---- machines without a GPU ------------------------------------------------------------------------------------

WITHOUT = """
import sys
import numpy as np
from distcondense.errors import UserError
from distcondense.kernels import walk
from tests import naive

rng = np.random.default_rng(0)
arguments = naive.random_ensemble(rng, d=3, trees=2, depth=2), naive.grid_rows(rng, 4, 3), naive.grid_steps(rng, 3)
before = walk.jacobian(*arguments)
assert "numba.cuda" not in sys.modules

from distcondense.kernels import cuda

assert cuda.why_not() is not None
for function in (cuda.jacobian, cuda.jacobian_csr):
    try:
        function(*arguments)
    except UserError as error:
        print(error)
assert np.array_equal(walk.jacobian(*arguments), before)
"""


def test_without_a_gpu_it_is_not_offered_and_nothing_else_changes():
    done = python(WITHOUT, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.startswith("the GPU kernel: needs a CUDA device that works. Found ")
    assert "Fix: leave GPUs out" in first


def test_a_numba_without_its_cuda_target_has_no_gpu(monkeypatch):
    monkeypatch.delattr(numba, "cuda")
    monkeypatch.setitem(sys.modules, "numba.cuda", None)
    spec = importlib.util.spec_from_file_location("cuda_without_target", cuda.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "without its CUDA target" in module.why_not()


def refuse() -> bool:
    raise OSError("no version information\nin libcuda.so")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"cuda": SimpleNamespace(is_available=refuse)}, "OSError: no version information in libcuda.so"),
        (
            {"cuda": SimpleNamespace(is_available=lambda: False, cuda_error=lambda: None)},
            "no NVVM library (CUDA toolkit)",
        ),
        (
            {"cuda": SimpleNamespace(is_available=lambda: True), "_blocks": lambda *_: iter(())},
            "a device whose answer is not that of the processor",
        ),
    ],
)
def test_a_device_that_fails_or_errs_is_not_offered(monkeypatch, broken, reason):
    for name, value in broken.items():
        monkeypatch.setattr(cuda, name, value)
    assert cuda.why_not.__wrapped__() == reason


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"X": np.zeros((2, 3), np.float32)}, "X"),
        ({"steps": np.zeros(4)}, "steps"),
        ({"threads": 0}, "threads"),
        ({"memory_budget": 0}, "memory_budget"),
    ],
)
def test_arguments_outside_the_contract_are_named_before_a_device_is_asked_for(changes, name):
    good = {"ensemble": CASES["one row"].ensemble, "X": CASES["one row"].X, "steps": CASES["one row"].steps}
    for function in (cuda.jacobian, cuda.jacobian_csr):
        with pytest.raises(SettingsError, match=f"^{name}: "):
            function(**good | changes)
