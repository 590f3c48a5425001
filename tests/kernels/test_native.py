"""The C++ kernels against the oracles of naive.py and, bit for bit, against themselves and Numba's random numbers."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distcondense.errors import ModelError, SettingsError
from distcondense.kernels import native, native_build
from distcondense.kernels.ensemble import TreeEnsemble

sys.path.insert(0, str(Path(__file__).parent))
from tests import naive

ROOT = Path(__file__).resolve().parents[2]
needs_native = pytest.mark.skipif(native.why_not() is not None, reason=f"no native kernels: {native.why_not()}")
needs_compiler = pytest.mark.skipif(native_build.compiler() is None, reason="no C++ compiler (g++, clang++ or $CXX)")
ISAS = ("portable", "avx2", "avx512")

seeds = st.integers(0, 2**32 - 1)
widths = st.integers(1, 90)
heights = st.integers(1, 19)


@pytest.fixture(params=ISAS)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    before = native.isa()
    if not native.use_isa(request.param):
        pytest.skip(f"this processor has no {request.param}")
    yield request.param
    native.use_isa(before)


def adam_state(rng, shape):
    m, v = rng.normal(size=shape) * 1e-2, rng.random(shape) * 1e-3
    return SimpleNamespace(m=m.astype(np.float32), v=v.astype(np.float32), step=int(rng.integers(0, 50)))


def copy_of(state):
    return SimpleNamespace(m=state.m.copy(), v=state.v.copy(), step=state.step)


def jacobian_by(way: str, ensemble: TreeEnsemble, X: np.ndarray, steps: np.ndarray) -> np.ndarray:
    packed, J = native._Packed(ensemble, way), np.empty_like(X)
    library = native._library()
    assert library.dck_jacobian(packed.handle, X.ctypes.data, *X.shape, steps.ctypes.data, J.ctypes.data, 1) == 0
    return J


# ---- trees -------------------------------------------------------------------------------------------------


@needs_native
@settings(max_examples=40, deadline=None)
@given(seeds, heights, widths, st.integers(0, 5), st.integers(0, 12), st.sampled_from([0.0, 0.2]))
def test_margins_are_those_of_the_oracle(seed, m, d, trees, depth, missing):
    rng = np.random.default_rng(seed)
    ensemble = naive.random_ensemble(rng, d=d, trees=trees, depth=depth)
    X = naive.grid_rows(rng, m, d, missing=missing)
    expected = [naive.margin(ensemble, x) for x in X]
    np.testing.assert_allclose(native.margins(ensemble, X), expected, rtol=1e-6, atol=2e-6)


@needs_native
@settings(max_examples=60, deadline=None)
@given(
    seeds,
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(1, 12),
    st.sampled_from(["identity", "sigmoid"]),
    st.sampled_from([0.0, 0.2]),
    st.booleans(),
)
def test_the_lanes_and_the_walk_are_the_finite_difference(seed, m, d, trees, depth, link, missing, few):
    rng = np.random.default_rng(seed)
    features = min(d, 3) if few else d  # few features repeat on a path
    ensemble = naive.random_ensemble(rng, d=d, trees=trees, depth=depth, link=link, features=features)
    X, steps = naive.grid_rows(rng, m, d, missing=missing), naive.grid_steps(rng, d)
    lanes = jacobian_by("lanes", ensemble, X, steps)
    np.testing.assert_allclose(lanes, naive.jacobian(ensemble, X, steps), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(lanes, jacobian_by("walk", ensemble, X, steps))
    np.testing.assert_array_equal(lanes, native.jacobian(ensemble, X, steps))


@needs_native
@settings(max_examples=40, deadline=None)
@given(
    seed=seeds,
    m=st.integers(0, 40),
    d=st.integers(1, 60),
    trees=st.integers(0, 5),
    depth=st.integers(0, 12),
    missing=st.sampled_from([0.0, 0.2]),
    threads=st.integers(1, 3),
)
@example(seed=3, m=37, d=3000, trees=5, depth=5, missing=0.0, threads=2)  # columns so far apart that they are fetched
def test_the_sparse_answer_is_the_dense_one_without_its_zeros(seed, m, d, trees, depth, missing, threads):
    rng = np.random.default_rng(seed)
    ensemble = naive.random_ensemble(rng, d=d, trees=trees, depth=depth)
    X, steps = naive.grid_rows(rng, m, d, missing=missing), naive.grid_steps(rng, d)
    naive.assert_sparse_is_dense(native.jacobian_csr(ensemble, X, steps, threads), native.jacobian(ensemble, X, steps))


@needs_native
def test_three_thousand_features_one_row_and_a_threshold_hit_exactly():
    tree = {
        "feature": np.array([2999, -1, 2999, -1, -1], np.int32),
        "threshold": np.array([1.0, 5.0, 2.0, 7.0, 11.0], np.float32),
        "left": np.array([1, -1, 3, -1, -1], np.int32),
        "default_left": np.zeros(5, np.uint8),
        "roots": np.array([0], np.int32),
    }
    ensemble = TreeEnsemble(**tree, base=0.0, link="identity", n_features=3000)
    X, steps = np.zeros((1, 3000), np.float32), np.full(3000, 0.5, np.float32)
    for x, step, slope in ((0.5, 0.5, 2.0), (1.0, 0.5, 2.0), (1.5, 0.5, 4.0), (1.5, 1.0, 3.0), (0.0, 0.5, 0.0)):
        X[0, 2999], steps[2999] = x, step
        J = native.jacobian(ensemble, X, steps)
        assert J[0, 2999] == slope
        assert np.count_nonzero(J) == (slope != 0)


@needs_native
@pytest.mark.parametrize("base", [-14.0, -3.0, 3.0, 14.0])
def test_a_saturated_score_keeps_the_digits_of_its_slope(base):
    rng = np.random.default_rng(2)
    ensemble = naive.random_ensemble(rng, d=6, trees=3, depth=4)
    ensemble = dataclasses.replace(ensemble, base=base, threshold=ensemble.threshold.copy())
    X, steps = naive.grid_rows(rng, 9, 6), naive.grid_steps(rng, 6)
    np.testing.assert_allclose(native.jacobian(ensemble, X, steps), naive.jacobian(ensemble, X, steps), rtol=3e-5)


@needs_native
def test_an_ensemble_that_is_no_forest_is_refused():
    loop = {"feature": np.array([0, -1, -1], np.int32), "left": np.array([0, -1, -1], np.int32)}
    rest = {"threshold": np.zeros(3, np.float32), "default_left": np.zeros(3, np.uint8), "roots": np.zeros(1, np.int32)}
    with pytest.raises(ModelError, match="separate trees"):
        native.margins(TreeEnsemble(**loop, **rest, base=0.0, link="identity", n_features=1), np.zeros((1, 1)))


# ---- random numbers, clip, noise, Adam -------------------------------------------------------------------------


@needs_native
@pytest.mark.parametrize("d", [1, 3, 32, 77, 1100])
def test_random_words_are_philox(isa, d):
    for key, stream, step, row0 in ((0, 0, 0, 0), (2**64 - 1, 7, 2**32 - 1, 2**32 - 3), (0x0123456789ABCDEF, 3, 9, 5)):
        expected = naive.bits(key, stream, step, row0, (3, d))
        np.testing.assert_array_equal(native.bits(key, stream, step, row0, (3, d)), expected)


@needs_native
def test_normals_are_box_muller_and_numbas_bits(isa):
    from distcondense.kernels import random as numba_random

    z = native.normals(12345, 7, 3, 10, (5, 1101))
    np.testing.assert_allclose(z, naive.normals(12345, 7, 3, 10, (5, 1101)), rtol=0, atol=1e-6)
    many = (300, 2932)
    np.testing.assert_array_equal(native.normals(5, 7, 1, 0, many), numba_random.normals(5, 7, 1, 0, many))


@needs_native
@settings(max_examples=40, deadline=None)
@given(seeds, heights, widths, st.sampled_from([1e-3, 1.0, 100.0]), st.integers(1, 3))
def test_clip_and_noise_are_the_formula(seed, m, d, clip, threads):
    rng = np.random.default_rng(seed)
    G = rng.normal(size=(m, d)).astype(np.float32) * rng.choice([0.0, 1e-3, 1.0], (m, 1)).astype(np.float32)
    sigma = rng.choice([0.0, 0.25, 2.0], m).astype(np.float32)
    expected, norms = naive.clip_and_noise(G, clip, sigma, seed, 4, 17), np.sqrt((G.astype(float) ** 2).sum(axis=1))
    np.testing.assert_allclose(native.clip_and_noise(G, clip, sigma, seed, 4, 17, threads), norms, rtol=1e-6)
    np.testing.assert_allclose(G, expected, rtol=1e-6, atol=3e-6 * clip)


@needs_native
@settings(max_examples=40, deadline=None)
@given(seeds, heights, widths, st.integers(1, 3))
def test_adam_is_the_formula(seed, m, d, threads):
    rng = np.random.default_rng(seed)
    X, G, state = (
        rng.normal(size=(m, d)).astype(np.float32),
        rng.normal(size=(m, d)).astype(np.float32),
        adam_state(rng, (m, d)),
    )
    t = state.step + 1
    expected = naive.adam(X, G, state.m, state.v, t, 0.01, 0.9, 0.999)
    native.adam(X, G, state, 0.01, 0.9, 0.999, threads)
    assert state.step == t
    for found, wanted in zip((X, state.m, state.v), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


# ---- the fused step --------------------------------------------------------------------------------------------


def fused_case(seed, m, d, depth, missing):
    rng = np.random.default_rng(seed)
    ensemble = naive.random_ensemble(rng, d=d, trees=4, depth=depth)
    X, steps = naive.grid_rows(rng, m, d, missing=missing), naive.grid_steps(rng, d)
    return ensemble, X, rng.normal(size=m).astype(np.float32), steps, adam_state(rng, (m, d))


@needs_native
@settings(max_examples=40, deadline=None)
@given(seeds, heights, widths, st.integers(1, 9), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.01, 10.0]))
def test_the_fused_step_has_the_bits_of_its_parts(seed, m, d, depth, sigma_base, clip):
    ensemble, X, dldf, steps, state = fused_case(seed, m, d, depth, 0.1)
    Y, other = X.copy(), copy_of(state)
    noise = SimpleNamespace(clip=clip, sigma_base=sigma_base)
    norms, sigmas = native.fused_step(ensemble, X, dldf, steps, state, noise, 0.01, (0.9, 0.99), seed, 6, 11)
    G = dldf[:, None] * native.jacobian(ensemble, Y, steps)
    np.testing.assert_array_equal(native.clip_and_noise(G, clip, sigmas, seed, 6, 11), norms)
    native.adam(Y, G, other, 0.01, 0.9, 0.99)
    for found, wanted in ((X, Y), (state.m, other.m), (state.v, other.v)):
        np.testing.assert_array_equal(found, wanted)
    edges = np.abs(np.minimum(norms, clip)[:, None] / clip - 0.25 * sigma_base * np.arange(2, 9)).min(axis=1) < 1e-6
    ladder = [naive.sigma(float(norm), clip, sigma_base) for norm in norms]
    np.testing.assert_allclose(sigmas[~edges], np.array(ladder)[~edges], rtol=1e-6)


@needs_native
def test_a_clipped_row_on_the_edge_of_the_ladder_takes_the_higher_rung():
    ensemble, X, dldf, steps, state = fused_case(3, 6, 8, 4, 0.0)
    noise = SimpleNamespace(clip=1e-6, sigma_base=0.5)  # 2 σ_base = 1: min(norm, C)/(σC) is exactly 1 where clipped
    norms, sigmas = native.fused_step(ensemble, X, dldf, steps, state, noise, 0.01, (0.9, 0.99), 1, 1)
    assert (norms > 1e-6).any()
    assert (sigmas[norms > 1e-6] == 1.0).all()


@needs_native
def test_the_fused_step_is_the_paper():
    ensemble, X, dldf, steps, state = fused_case(5, 7, 20, 5, 0.0)
    expected = naive.fused_step(
        ensemble, X, dldf, steps, state.m, state.v, state.step + 1, 0.3, 0.4, 0.01, (0.9, 0.999), 8, 2, 100
    )
    noise = SimpleNamespace(clip=0.3, sigma_base=0.4)
    norms, sigmas = native.fused_step(ensemble, X, dldf, steps, state, noise, 0.01, (0.9, 0.999), 8, 2, 100)
    for found, wanted in zip((X, state.m, state.v, norms, sigmas), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@needs_native
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_shards_and_instruction_sets_change_nothing(isa, threads):
    ensemble, X, dldf, steps, state = fused_case(9, 37, 130, 6, 0.05)
    noise = SimpleNamespace(clip=0.1, sigma_base=0.5)
    native.use_isa("portable")
    Y, whole = X.copy(), copy_of(state)
    norms, _ = native.fused_step(ensemble, Y, dldf, steps, whole, noise, 0.01, (0.9, 0.999), 4, 5)
    native.use_isa(isa)
    for first, last in ((0, 13), (13, 37)):
        part = SimpleNamespace(m=state.m[first:last], v=state.v[first:last], step=state.step)
        given_norms, _ = native.fused_step(
            ensemble, X[first:last], dldf[first:last], steps, part, noise, 0.01, (0.9, 0.999), 4, 5, first, threads
        )
        np.testing.assert_array_equal(given_norms, norms[first:last])
    for found, wanted in ((X, Y), (state.m, whole.m), (state.v, whole.v)):
        np.testing.assert_array_equal(found, wanted)


@needs_native
def test_the_copy_control_changes_nothing():
    X = np.random.default_rng(0).normal(size=(11, 77)).astype(np.float32)
    m, v, before = X + 1, X + 2, X.copy()
    native.copy_control(X, m, v, 2)
    assert (before == X).all()
    assert (m == before + 1).all()
    assert (v == before + 2).all()


@needs_native
def test_arrays_and_counters_outside_the_contract_are_named():
    ensemble, X, dldf, steps, state = fused_case(1, 3, 5, 2, 0.0)
    noise = SimpleNamespace(clip=1.0, sigma_base=0.5)
    rest = (noise, 0.01, (0.9, 0.999), 4, 5)
    for bad in (X.astype(np.float64), X[:, ::-1], X[:, :4].copy()):
        with pytest.raises(SettingsError, match="X"):
            native.fused_step(ensemble, bad, dldf, steps, copy_of(state), *rest)
    with pytest.raises(SettingsError, match="dldf"):
        native.fused_step(ensemble, X, dldf[:2], steps, state, *rest)
    with pytest.raises(SettingsError, match="row0"):
        native.normals(1, 1, 1, 2**32 - 1, (2, 2))
    with pytest.raises(SettingsError, match="key"):
        native.bits(-1, 1, 1, 0, (2, 2))
    with pytest.raises(SettingsError, match="clip"):
        native.clip_and_noise(X, 0.0, 1.0, 1, 1)


# ---- build, backend, sanitizers, contract --------------------------------------------------------------------


def backend_in(tmp_path: Path, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), **changes}
    command = "from distcondense.kernels import native; print(native.backend())"
    return subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=False)


def test_without_a_compiler_everything_runs_on_numba(tmp_path):
    assert backend_in(tmp_path, CXX="/no/such/compiler", DISTCONDENSE_BACKEND="").stdout.strip() == "numba"
    refused = backend_in(tmp_path, CXX="/no/such/compiler", DISTCONDENSE_BACKEND="native")
    assert refused.returncode != 0
    assert "no C++ compiler found" in refused.stderr
    assert backend_in(tmp_path, DISTCONDENSE_BACKEND="numba").stdout.strip() == "numba"
    assert "must be numba or native" in backend_in(tmp_path, DISTCONDENSE_BACKEND="fortran").stderr
    assert not list(tmp_path.rglob("*.so"))


@needs_compiler
def test_processes_that_build_at_once_all_load_one_library(tmp_path):
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "DISTCONDENSE_BACKEND": ""}
    script = """
from distcondense.kernels import native, native_build
from dataclasses import replace
plan = native_build.build_plan(native_build.source_folder())
quick = replace(plan, flags=tuple("-O0" if flag == "-O3" else flag for flag in plan.flags), gcc_flags=())
native_build.build_plan = lambda folder: quick  # a race, not a benchmark
print(native.backend(), native.isa())
"""
    command = [sys.executable, "-c", script]
    racing = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = {process.communicate()[0].strip() for process in racing}
    assert answers == {f"native {native.isa()}"}
    assert [path.suffix for path in (tmp_path / "distcondense").iterdir()] == [".so"]


@needs_compiler
def test_a_build_that_failed_is_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def refuse(target: Path) -> None:
        calls.append(target)
        raise native_build.NativeBuildError("refused")

    monkeypatch.setattr(native_build, "compile_to", refuse)
    for _ in range(2):
        with pytest.raises(native_build.NativeBuildError):
            native_build.build()
    assert len(calls) == 1


@needs_compiler
def test_a_build_that_lost_its_sources_or_its_compiler_is_tried_again(tmp_path, monkeypatch):
    """As of a job that is killed, with its copy of the sources, while it compiles."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    mine = tmp_path / "kernels"
    shutil.copytree(ROOT / "kernels", mine)
    monkeypatch.setattr(native_build, "source_folder", lambda: mine if mine.exists() else None)
    really = subprocess.run

    def lost(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        if "-c" in command:
            shutil.rmtree(mine, ignore_errors=True)
        return really(command, **options)

    monkeypatch.setattr(native_build.subprocess, "run", lost)
    with pytest.raises(native_build.NativeBuildError, match="No such file"):
        native_build.build()
    shutil.copytree(ROOT / "kernels", mine)

    def killed(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return really(["sh", "-c", "kill -9 $$"], **options) if "-c" in command else really(command, **options)

    monkeypatch.setattr(native_build.subprocess, "run", killed)
    with pytest.raises(native_build.NativeBuildCutOff):
        native_build.build()
    assert not list(tmp_path.rglob("*.failed"))


@needs_compiler
def test_the_kernels_run_clean_under_address_and_undefined_behaviour_sanitizers(tmp_path):
    # the portable path as wide as AVX-512, the others as they are: the driver wants the same bits from both widths
    flags = ("-O0", "-g0", "-DDCK_WIDE", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    native_build.compile_to(tmp_path / "driver", flags=flags, driver=True)
    answer = subprocess.run([tmp_path / "driver"], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "0 failures" in answer.stdout
    assert "runtime error" not in answer.stderr


def contract() -> list[dict[str, str]]:
    section = (ROOT / "kernels/README.md").read_text(encoding="utf-8").partition("## Contract")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def test_the_contract_table_names_things_that_exist():
    rows, tests = contract(), Path(__file__).read_text(encoding="utf-8")
    header = (ROOT / "kernels/distcondense.h").read_text(encoding="utf-8")
    exported = set(re.findall(r"\bdck_(\w+)\(", header))
    infrastructure = {"abi", "isa", "use_isa", "pack", "free", "take", "copy_control"}
    assert {row["kernel"] for row in rows} == exported - infrastructure
    for row in rows:
        name = row["kernel"]
        assert callable(getattr(native, name))
        assert callable(getattr(naive, row["oracle"]))
        assert f"def {name}(" in (ROOT / row["Numba file"]).read_text(encoding="utf-8")
        assert (ROOT / row["C++ file"]).is_file()
        assert f"def {row['test']}(" in tests


SCALARS = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


def test_the_python_signatures_are_those_of_the_header():
    header = (ROOT / "kernels/distcondense.h").read_text(encoding="utf-8")
    declared = dict(re.findall(r"\b(dck_\w+)\(([^)]*)\);", header))
    for name, (_, arguments) in native._SIGNATURES.items():
        kinds = [part.strip() for part in declared[name].split(",") if part.strip() != "void"]
        assert len(kinds) == len(arguments), name
        scalars = [
            (kind.split()[0], argument) for kind, argument in zip(kinds, arguments, strict=True) if "*" not in kind
        ]
        assert all(SCALARS[kind] is argument for kind, argument in scalars), name
