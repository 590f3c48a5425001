"""What the Python fronts of all kernels share: the checks of their arguments, and threads over rows.

Threads are plain Python threads over row ranges; the kernels release the GIL. Unlike Numba's `prange` this changes no
global setting, so several callers in one process do not disturb each other, and as each row is computed by the same
code wherever it lands, any number of threads gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distcondense.errors import SettingsError

if TYPE_CHECKING:
    from distcondense.kernels.update import AdamState

NOISE_STREAM = 7  # the stream of clip-and-noise; other users of a key take other streams


def over_rows(kernel: Callable[[int, int], None], rows: int, threads: int) -> None:
    """Call kernel(first, last) on ranges that together cover `rows` rows, on `threads` threads."""
    threads = min(check_threads(threads), max(rows, 1))
    if threads == 1:
        kernel(0, rows)
        return
    cuts = [rows * k // threads for k in range(threads + 1)]
    with ThreadPoolExecutor(threads - 1) as pool:
        others = [pool.submit(kernel, cuts[k], cuts[k + 1]) for k in range(1, threads)]
        kernel(cuts[0], cuts[1])
        for other in others:
            other.result()


def check_threads(threads: int) -> int:
    """The number of threads, at least 1."""
    if threads < 1:
        raise SettingsError("threads", "must be at least 1", found=str(threads))
    return int(threads)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: to Numba a read-only array is another type, and each type is compiled anew.

    Arrays from Ray's store are read-only, unpickled ensembles are not; as views all of them meet the same code.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def as_rows(X: Any, n_features: int | None = None, name: str = "X") -> NDArray[np.float32]:
    """X as a read-only C-contiguous (m, d) float32 array; copied only if it is not one."""
    rows = np.ascontiguousarray(X, dtype=np.float32)
    if np.ndim(X) != 2:
        raise SettingsError(name, "must have two dimensions, rows × features", found=f"{np.ndim(X)}")
    if n_features is not None and rows.shape[1] != n_features:
        raise SettingsError(name, f"must have the model's {n_features} features", found=f"{rows.shape[1]} columns")
    return read_only(rows)


def as_steps(steps: Any, d: int) -> NDArray[np.float32]:
    """Finite-difference steps as read-only (d,) float32, all finite and above zero."""
    out = np.ascontiguousarray(steps, dtype=np.float32)
    if out.shape != (d,):
        raise SettingsError("steps", f"must have one step per feature, shape ({d},)", found=f"shape {out.shape}")
    wrong = ~(np.isfinite(out) & (out > 0))
    if wrong.any():
        raise SettingsError(
            "steps",
            "must be finite and above 0 in float32",
            found=f"{np.count_nonzero(wrong)} that are not, the first at feature {int(np.argmax(wrong))}",
            fix="draw steps from U(0.025, 2) or set them to a fraction of each feature's spread",
        )
    return read_only(out)


def check_in_place(array: NDArray[np.float32], shape: tuple[int, ...], name: str) -> None:
    """Refuse what a kernel could not change in place."""
    good = isinstance(array, np.ndarray) and array.dtype == np.float32 and array.flags.c_contiguous
    if not good or array.shape != shape or not array.flags.writeable:
        raise SettingsError(
            name,
            f"must be a writeable C-contiguous float32 array of shape {shape}",
            found=f"{getattr(array, 'dtype', type(array).__name__)} of shape {np.shape(array)}",
            fix="np.ascontiguousarray(array, dtype=np.float32), copied if it is read-only",
        )


def as_slopes(dldf: Any, rows: int) -> NDArray[np.float32]:
    """∂ℓ/∂f as read-only (rows,) float32."""
    slopes = np.ascontiguousarray(dldf, np.float32)
    if slopes.shape != (rows,):
        raise SettingsError("dldf", f"must have one entry per row, shape ({rows},)", found=f"shape {slopes.shape}")
    return read_only(slopes)


def check_moments(
    X: NDArray[np.float32], state: AdamState, beta1: float, beta2: float, n_features: int | None = None
) -> None:
    """Refuse rows and moments that Adam could not change in place, and rates of decay outside [0, 1)."""
    shape = as_rows(X, n_features).shape
    for name, array in (("X", X), ("state.m", state.m), ("state.v", state.v)):
        check_in_place(array, shape, name)
    for name, value in (("beta1", beta1), ("beta2", beta2)):
        if not 0 <= value < 1:
            raise SettingsError(name, "must be in [0, 1)", found=str(value))


def check_clip(clip: float, sigma: Any) -> None:
    """Refuse a clipping norm that is not above 0, or infinite where noise is added, and noise below 0."""
    if not clip > 0 or (np.isinf(clip) and np.any(sigma)):
        raise SettingsError("clip", "must be above 0, and finite where noise is added", found=str(clip))
    if not np.all(np.asarray(sigma) >= 0):
        raise SettingsError("sigma", "must be at least 0", found="a negative or missing one")


def check_counter(*, key: int, stream: int, step: int, row0: int, rows: int) -> None:
    """Refuse a key of more than 64 bits and a counter that would wrap round, for a wrapped counter repeats noise."""
    for name, value, width in (("key", key, 64), ("stream", stream, 32), ("step", step, 32), ("row0", row0, 32)):
        if not 0 <= value < 2**width:
            raise SettingsError(name, f"must be a whole number in [0, 2**{width})", found=str(value))
    if row0 + rows > 2**32:
        raise SettingsError("row0", "row0 + rows must be at most 2**32", found=f"{row0} + {rows}")
