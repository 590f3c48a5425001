"""The native backend: the C++ kernels of `kernels/` behind the same functions as the Numba kernels.

This is the one boundary of the native code (contract: kernels/README.md): shapes, dtypes and ranges are checked here,
and nothing is checked again below. `backend()` says which of the two serves this process; it is decided once, so a run
never mixes them. A wheel brings the library; in a checkout the first use builds it, or by hand
`python -m distcondense.kernels.native build`.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import weakref
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distcondense.errors import ModelError, SettingsError
from distcondense.kernels.arguments import (
    NOISE_STREAM,
    as_rows,
    as_slopes,
    as_steps,
    check_clip,
    check_counter,
    check_in_place,
    check_moments,
    check_threads,
)

if TYPE_CHECKING:
    from distcondense.kernels.update import AdamState, NoiseRule
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.kernels.native_build import NativeBuildError, build

Backend = Literal["numba", "native"]
F32 = NDArray[np.float32]

ADAM_EPSILON = 1e-8
_ABI = 2
_WAYS = {"auto": 0, "lanes": 1, "walk": 2}

_P, _I32, _I64, _U32, _U64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint64
_F64 = ctypes.c_double
_RANDOM = [_U64, _U32, _U32, _U32, _I64, _I64, _P]
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "dck_abi": (_I32, []),
    "dck_isa": (ctypes.c_char_p, []),
    "dck_use_isa": (_I32, [ctypes.c_char_p]),
    "dck_pack": (_P, [_P, _P, _P, _P, _I64, _P, _I64, ctypes.c_float, _I32, _I64, _I32, ctypes.POINTER(_I32)]),
    "dck_free": (None, [_P]),
    "dck_margins": (_I32, [_P, _P, _I64, _I64, _P, _I32]),
    "dck_jacobian": (_I32, [_P, _P, _I64, _I64, _P, _P, _I32]),
    "dck_jacobian_csr": (_P, [_P, _P, _I64, _I64, _P, _P, _I32]),
    "dck_take": (None, [_P, _P, _P]),
    "dck_bits": (None, _RANDOM),
    "dck_normals": (None, _RANDOM),
    "dck_clip_and_noise": (_I32, [_P, _I64, _I64, _F64, _P, _U64, _U32, _U32, _P, _I32]),
    "dck_adam": (_I32, [_P] * 4 + [_I64] * 3 + [_F64] * 4 + [_I32]),
    "dck_fused_step": (_I32, [_P] * 6 + [_I64] * 3 + [_F64] * 6 + [_U64, _U32, _U32, _P, _P, _I32]),
    "dck_copy_control": (_I32, [_P] * 3 + [_I64] * 2 + [_I32]),
}


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(build()))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if library.dck_abi() != _ABI:
        raise NativeBuildError(f"the native library speaks ABI {library.dck_abi()}, this package {_ABI}")
    return library


@cache
def backend() -> Backend:
    """The backend of this process: DISTCONDENSE_BACKEND if set, else native where it can be built, else Numba."""
    wanted = os.environ.get("DISTCONDENSE_BACKEND", "")
    if wanted not in ("", "numba", "native"):
        raise SettingsError("DISTCONDENSE_BACKEND", "must be numba or native", found=wanted)
    if wanted == "numba":
        return "numba"
    reason = why_not()
    if reason is None:
        return "native"
    if wanted == "native":
        fix = "install g++ or clang++, or unset DISTCONDENSE_BACKEND to run on Numba"
        raise SettingsError("DISTCONDENSE_BACKEND", "native needs the C++ kernels", found=reason, fix=fix)
    return "numba"


@cache
def why_not() -> str | None:
    """None where the native kernels load (they are built if need be), else the reason in words."""
    try:
        _library()
    except (NativeBuildError, OSError, RuntimeError, AttributeError, subprocess.SubprocessError) as error:
        return str(error)
    return None


def isa() -> str:
    """The instruction set in use: portable, avx2 or avx512."""
    return str(_library().dck_isa().decode())


def use_isa(name: str) -> bool:
    """Take another instruction set, for tests and benchmarks (same bits); False where this processor lacks it."""
    return bool(_library().dck_use_isa(name.encode()) == 0)


class _Packed:
    """An ensemble in the library's own layout; freed with this object."""

    def __init__(self, ensemble: TreeEnsemble, way: str = "auto") -> None:
        e, status, library = ensemble, _I32(0), _library()
        feature, left = np.ascontiguousarray(e.feature, np.int32), np.ascontiguousarray(e.left, np.int32)
        threshold = np.ascontiguousarray(e.threshold, np.float32)
        default_left, roots = np.ascontiguousarray(e.default_left, np.uint8), np.ascontiguousarray(e.roots, np.int32)
        if not feature.shape == left.shape == threshold.shape == default_left.shape == (feature.size,):
            raise ModelError("ensemble", "feature, threshold, left and default_left must have one entry per node")
        self.handle = library.dck_pack(
            _at(feature),
            _at(threshold),
            _at(left),
            _at(default_left),
            feature.size,
            _at(roots),
            roots.size,
            float(e.base),
            int(e.link == "sigmoid"),
            int(e.n_features),
            _WAYS[way],
            ctypes.byref(status),
        )
        if not self.handle:
            if status.value == 1:
                raise MemoryError("no memory for the packed ensemble")
            raise ModelError("ensemble", "its nodes must form separate trees over features below n_features")
        weakref.finalize(self, library.dck_free, self.handle)


_packed: dict[int, _Packed] = {}
_lock = threading.Lock()


def _pack(ensemble: TreeEnsemble) -> Any:
    """The ensemble's handle, packed once and kept for as long as the (immutable) ensemble lives."""
    with _lock:
        kept = _packed.get(id(ensemble))
        if kept is None:
            kept = _packed[id(ensemble)] = _Packed(ensemble)
            weakref.finalize(ensemble, _packed.pop, id(ensemble), None)
        return kept.handle


def _at(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


def _done(status: int) -> None:
    if status:
        raise MemoryError("no memory for the native kernel's working space")


def margins(ensemble: TreeEnsemble, X: ArrayLike, threads: int = 1) -> F32:
    """base + Σ_t leaf_t(x_i) of every row of X (m, d), (m,) float32."""
    rows = as_rows(X, ensemble.n_features)
    out = np.empty(len(rows), np.float32)
    _done(_library().dck_margins(_pack(ensemble), _at(rows), *rows.shape, _at(out), check_threads(threads)))
    return out


def scores(ensemble: TreeEnsemble, X: ArrayLike, threads: int = 1) -> F32:
    """link(margin) of every row of X (m, d), (m,) float32."""
    margin = margins(ensemble, X, threads)
    if ensemble.link == "identity":
        return margin
    with np.errstate(over="ignore"):  # e^−margin = ∞ gives the right score, 0
        return (1.0 / (1.0 + np.exp(-margin.astype(np.float64)))).astype(np.float32)


def jacobian(ensemble: TreeEnsemble, X: ArrayLike, steps: ArrayLike, threads: int = 1) -> F32:
    """J_ij = [f(x_i + ε_j e_j) − f(x_i − ε_j e_j)]/2ε_j by the sparse walk, dense (m, d) float32."""
    rows = as_rows(X, ensemble.n_features)
    eps, out = as_steps(steps, rows.shape[1]), np.empty(rows.shape, np.float32)
    handle = _pack(ensemble)
    _done(_library().dck_jacobian(handle, _at(rows), *rows.shape, _at(eps), _at(out), check_threads(threads)))
    return out


def jacobian_csr(
    ensemble: TreeEnsemble, X: ArrayLike, steps: ArrayLike, threads: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int32], F32]:
    """The entries of `jacobian` that are not zero: (indptr, indices, data), columns ascending; flat in d."""
    rows = as_rows(X, ensemble.n_features)
    eps, indptr = as_steps(steps, rows.shape[1]), np.empty(len(rows) + 1, np.int64)
    call, handle = _library().dck_jacobian_csr, _pack(ensemble)
    entries = call(handle, _at(rows), *rows.shape, _at(eps), _at(indptr), check_threads(threads))
    _done(entries is None)
    indices, data = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    _library().dck_take(entries, _at(indices), _at(data))
    return indptr, indices, data


def bits(key: int, stream: int, step: int, row0: int, shape: tuple[int, int]) -> NDArray[np.uint32]:
    """Random words, (rows, cols) uint32, for rows row0 … row0 + rows − 1."""
    out = np.empty(shape, np.uint32)
    check_counter(key=key, stream=stream, step=step, row0=row0, rows=shape[0])
    _library().dck_bits(key, stream, step, row0, *out.shape, _at(out))
    return out


def normals(key: int, stream: int, step: int, row0: int, shape: tuple[int, int]) -> F32:
    """Standard normal numbers, (rows, cols) float32."""
    out = np.empty(shape, np.float32)
    check_counter(key=key, stream=stream, step=step, row0=row0, rows=shape[0])
    _library().dck_normals(key, stream, step, row0, *out.shape, _at(out))
    return out


def clip_and_noise(G: F32, clip: float, sigma: ArrayLike, key: int, step: int, row0: int = 0, threads: int = 1) -> F32:
    """g_i ← g_i·min(1, C/‖g_i‖) + N(0, σ_i²C²I) in place (eqs. 12, 13); the norms before clipping, (m,) float32."""
    check_in_place(G, as_rows(G, name="G").shape, "G")
    sigmas = np.ascontiguousarray(np.broadcast_to(np.asarray(sigma, np.float32), (len(G),)))
    check_clip(clip, sigmas)
    check_counter(key=key, stream=NOISE_STREAM, step=step, row0=row0, rows=len(G))
    norms = np.empty(len(G), np.float32)
    arguments = (*G.shape, float(clip), _at(sigmas), key, step, row0, _at(norms), check_threads(threads))
    _done(_library().dck_clip_and_noise(_at(G), *arguments))
    return norms


def adam(
    X: F32, G: ArrayLike, state: AdamState, rate: float, beta1: float = 0.9, beta2: float = 0.999, threads: int = 1
) -> None:
    """One Adam update (eq. 8) of X (m, d) along G, in place; `state` moves one step on."""
    check_moments(X, state, beta1, beta2)
    along = as_rows(G, X.shape[1], "G")
    if along.shape != X.shape:
        raise SettingsError("G", f"must have the shape of X, {X.shape}", found=str(along.shape))
    arrays = (_at(X), _at(along), _at(state.m), _at(state.v))
    numbers = (state.step + 1, rate, beta1, beta2, ADAM_EPSILON)
    _done(_library().dck_adam(*arrays, *X.shape, *numbers, check_threads(threads)))
    state.step += 1


def fused_step(
    ensemble: TreeEnsemble,
    X: F32,
    dldf: ArrayLike,
    steps: ArrayLike,
    state: AdamState,
    noise: NoiseRule,
    rate: float,
    betas: tuple[float, float],
    key: int,
    step: int,
    row0: int = 0,
    threads: int = 1,
) -> tuple[F32, F32]:
    """Walk → row gradient → clip → noise → Adam in one pass, X and `state` in place; (norms, sigmas), (m,) float32.

    `dldf` (m,) is ∂ℓ/∂f. Equal, bit for bit, to jacobian, clip_and_noise and adam one after the other.
    """
    check_moments(X, state, *betas, ensemble.n_features)
    slopes, eps = as_slopes(dldf, len(X)), as_steps(steps, X.shape[1])
    check_clip(noise.clip, noise.sigma_base)
    check_counter(key=key, stream=NOISE_STREAM, step=step, row0=row0, rows=len(X))
    norms, sigmas = np.empty(len(X), np.float32), np.empty(len(X), np.float32)
    arrays = (_at(X), _at(slopes), _at(eps), _at(state.m), _at(state.v))
    numbers = (state.step + 1, float(noise.clip), float(noise.sigma_base), rate, *betas, ADAM_EPSILON, key, step, row0)
    answer = (_at(norms), _at(sigmas), check_threads(threads))
    _done(_library().dck_fused_step(_pack(ensemble), *arrays, *X.shape, *numbers, *answer))
    state.step += 1
    return norms, sigmas


def copy_control(X: F32, m: F32, v: F32, threads: int = 1) -> None:
    """The memory limit for benchmarks: X, m and v streamed once in and once out, unchanged."""
    for name, array in (("X", X), ("m", m), ("v", v)):
        check_in_place(array, as_rows(X).shape, name)
    _done(_library().dck_copy_control(_at(X), _at(m), _at(v), *X.shape, check_threads(threads)))


def main(arguments: list[str]) -> int:
    """`python -m distcondense.kernels.native build`: build now and say where the library is."""
    if arguments != ["build"]:
        sys.stderr.write("usage: python -m distcondense.kernels.native build\n")
        return 2
    try:
        sys.stdout.write(f"{build(force=True)}\n")
    except NativeBuildError as error:
        sys.stderr.write(f"native kernels not built, everything runs on Numba: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
