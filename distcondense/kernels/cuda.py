"""The structured Jacobian on a CUDA device: `jacobian` and `jacobian_csr` with the contract and the bits of walk.py.

The bits are those of the Numba backend; the native one agrees with both to float32 rounding only (kernels/README.md).
The device runs `walk_row` itself, compiled for it, one thread a row, over the used columns only, and returns what comes
of additions alone: margins and Δ⁺, Δ⁻ in float64, in walk.py's order. The link, whose exp differs in the last bit from
library to library, is applied on the host by walk.py's own `link`. So the bits are the CPU kernel's by construction: a
sum of two numbers has one right rounding, and where nothing is multiplied there is nothing to contract into an FMA.

Only touched entries cross the bus: `_walk_rows` counts them, the host adds up where each row's begin, `_pack_rows` puts
them there in ascending order. Rows go in blocks that fit `memory_budget` bytes of the device; the trees come besides.
Needs a driver and NVVM (a CUDA toolkit, or the package numba-cuda); `why_not()` says what is missing here.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numba.core.errors import NumbaPerformanceWarning
from numpy.typing import ArrayLike, NDArray

from distcondense.errors import SettingsError
from distcondense.kernels.arguments import as_rows, as_steps, check_threads, over_rows
from distcondense.kernels.ensemble import TreeEnsemble
from distcondense.kernels.jit import kernel
from distcondense.kernels.walk import CSR, forest_of, indptr_of, link, quotient, walk_row
from distcondense.kernels.walk import jacobian as jacobian_here

_unusable: str | None = None
try:
    from numba import cuda
except Exception as error:  # Numba is to lose its CUDA target to the package numba-cuda, which may be half installed
    _unusable = f"Numba without its CUDA target ({error})"

MEMORY_BUDGET = 256 * 2**20  # bytes; Numba may keep those of the call before until memory is short
_WARP = 32  # threads a block: the least there is, so that a few thousand rows spread over all multiprocessors

# touched entries of a block of rows: the first row, where each row's begin (rows + 1,), their columns and values
_Entries = tuple[int, NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]


def _compiled(function: Any, *, device: bool = False) -> Any:
    """The Python function, or that of a CPU kernel, for the device; compiled at its first launch."""
    return function if _unusable else cuda.jit(device=device)(getattr(function, "py_func", function))


_walk_row = _compiled(walk_row, device=True)


def _walk_rows(rows: Any, X: Any, steps: Any, trees: Any, base: Any, scratch: Any, counts: Any, margins: Any) -> None:
    i = cuda.grid(1)
    if i < rows:
        delta, touched, mark, flips = scratch
        counts[i], margins[i] = _walk_row(
            X[i], steps, trees, base, delta[:, :, i], touched[:, i], mark[:, i], flips[:, i]
        )


def _pack_rows(rows: Any, mark: Any, delta: Any, starts: Any, columns: Any, packed: Any) -> None:
    """The marked entries of row i from starts[i] on, columns ascending; what was marked is wiped for the next block."""
    i = cuda.grid(1)
    if i < rows:
        at = starts[i]
        for j in range(mark.shape[0]):
            if mark[j, i] != 0:
                mark[j, i] = 0
                columns[at] = j
                packed[at, 0] = delta[j, 0, i]
                packed[at, 1] = delta[j, 1, i]
                at += 1


_walk_kernel, _pack_kernel = _compiled(_walk_rows), _compiled(_pack_rows)


@kernel(error_model="numpy")
def _slopes(
    margins: Any, starts: Any, columns: Any, delta: Any, steps: Any, sigmoid: Any, values: Any, first: Any, last: Any
) -> None:
    """The end of walk.py's `gradient_row`, on the host."""
    for i in range(first, last):
        margin = margins[i]
        here = link(margin, sigmoid)
        for k in range(starts[i], starts[i + 1]):
            values[k] = quotient(margin, here, delta[k, 0], delta[k, 1], steps[columns[k]], sigmoid)


class _DeviceBuffers(NamedTuple):
    """What a block of rows needs on the device; scratch has its rows last, so that a warp's lie side by side."""

    X: Any  # (rows, width) float32
    delta: Any  # (width, 2, rows) float64, with the next three what `scratch_of` gives a row
    touched: Any  # (width, rows) int32
    mark: Any  # (width, rows) uint8
    flips: Any  # (depth + 1, rows) int32
    counts: Any  # (rows,) int64, then where each row's entries begin
    margins: Any  # (rows,) float64
    columns: Any  # (rows · width,) int32, the packed entries
    packed: Any  # (rows · width, 2) float64


def _buffers(
    rows: int, width: int, depth: int, make: Callable[[tuple[int, ...], type[np.generic]], Any]
) -> _DeviceBuffers:
    return _DeviceBuffers(
        X=make((rows, width), np.float32),
        delta=make((width, 2, rows), np.float64),
        touched=make((width, rows), np.int32),
        mark=make((width, rows), np.uint8),
        flips=make((depth + 1, rows), np.int32),
        counts=make((rows,), np.int64),
        margins=make((rows,), np.float64),
        columns=make((rows * width,), np.int32),
        packed=make((rows * width, 2), np.float64),
    )


def row_bytes(width: int, depth: int) -> int:
    """Device memory of one row of `width` used columns under trees of this depth."""
    return int(sum(_buffers(1, width, depth, lambda shape, dtype: math.prod(shape) * np.dtype(dtype).itemsize)))


def _launch(compiled: Any, rows: int, *arguments: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumbaPerformanceWarning)  # few rows do not fill a device: no news
        launch = compiled[-(-rows // _WARP), _WARP]
    launch(rows, *arguments)


def _blocks(
    ensemble: TreeEnsemble, X: NDArray[np.float32], steps: NDArray[np.float32], threads: int, memory_budget: int
) -> Iterator[_Entries]:
    """Block after block of rows; none where there is no row, or no tree tests anything."""
    used = ensemble.used
    if not used.size or not len(X):
        return
    trees, base, sigmoid, depth = forest_of(ensemble.compact)
    width, eps = len(used), steps[used]
    height = min(len(X), max(1, memory_budget // row_bytes(width, depth)))
    buffers = _buffers(height, width, depth, cuda.device_array)
    buffers.mark.copy_to_device(np.zeros((width, height), np.uint8))
    on_device = (cuda.to_device(eps), tuple(cuda.to_device(array) for array in trees), base)
    scratch = (buffers.delta, buffers.touched, buffers.mark, buffers.flips)
    for first in range(0, len(X), height):
        block = X[first : first + height].take(used, axis=1)
        n = len(block)
        buffers.X[:n].copy_to_device(block)
        _launch(_walk_kernel, n, buffers.X, *on_device, scratch, buffers.counts, buffers.margins)
        starts, margins = indptr_of(buffers.counts[:n].copy_to_host()), buffers.margins[:n].copy_to_host()
        total = int(starts[-1])
        columns, delta = np.empty(total, np.int32), np.empty((total, 2))
        if total:
            buffers.counts[:n].copy_to_device(starts[:-1])
            _launch(_pack_kernel, n, buffers.mark, buffers.delta, buffers.counts, buffers.columns, buffers.packed)
            buffers.columns[:total].copy_to_host(columns)
            buffers.packed[:total].copy_to_host(delta)
        values = np.empty(total, np.float32)
        slopes = partial(_slopes, margins, starts, columns, delta, eps, sigmoid, values)
        over_rows(slopes, n, threads)
        yield first, starts, used[columns], values


def _dense(blocks: Iterator[_Entries], shape: tuple[int, ...]) -> NDArray[np.float32]:
    J = np.zeros(shape, np.float32)
    for first, starts, columns, values in blocks:
        rows = np.repeat(np.arange(first, first + len(starts) - 1), np.diff(starts))
        J[rows, columns] = values
    return J


def _sparse(blocks: Iterator[_Entries], rows: int) -> CSR:
    counts = np.zeros(rows, np.int64)
    indices, data = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    for first, starts, columns, values in blocks:
        kept = values != 0
        counts[first : first + len(starts) - 1] = np.diff(indptr_of(kept)[starts])
        indices.append(columns[kept])
        data.append(values[kept])
    return indptr_of(counts), np.concatenate(indices), np.concatenate(data)


@cache
def why_not() -> str | None:
    """None where a CUDA device gives the CPU kernel's answer to a first small question, else the reason in words.

    Asked, and the kernels compiled, once a process. Under NUMBA_ENABLE_CUDASIM=1 the device is Numba's simulator.
    """
    if _unusable:
        return _unusable
    try:
        if not cuda.is_available():
            return " ".join(str(cuda.cuda_error() or "no NVVM library (CUDA toolkit)").split())
        stump = TreeEnsemble(
            feature=np.array([0, -1, -1], np.int32),
            threshold=np.array([0.5, -1.0, 2.0], np.float32),
            left=np.array([1, -1, -1], np.int32),
            default_left=np.zeros(3, np.uint8),
            roots=np.zeros(1, np.int32),
            base=0.1,
            link="sigmoid",
            n_features=1,
        )
        X, steps = np.array([[0.0], [0.4], [0.5]], np.float32), np.full(1, 0.3, np.float32)
        same = np.array_equal(
            _dense(_blocks(stump, X, steps, 1, MEMORY_BUDGET), X.shape), jacobian_here(stump, X, steps)
        )
    except Exception as error:  # whatever a driver, compiler or linker says: the processor can do the work
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return None if same else "a device whose answer is not that of the processor"


def _checked(
    ensemble: TreeEnsemble, X: ArrayLike, steps: ArrayLike, threads: int, memory_budget: int
) -> tuple[NDArray[np.float32], Iterator[_Entries]]:
    """The rows of X, and their blocks to come."""
    rows, eps = as_rows(X, ensemble.n_features), as_steps(steps, ensemble.n_features)
    check_threads(threads)
    if memory_budget < 1:
        raise SettingsError("memory_budget", "must be at least 1 byte", found=str(memory_budget))
    if (reason := why_not()) is not None:
        fix = "leave GPUs out (num_gpus=0), or install the GPU's driver and the CUDA toolkit"
        raise SettingsError("the GPU kernel", "needs a CUDA device that works", found=reason, fix=fix)
    return rows, _blocks(ensemble, rows, eps, threads, memory_budget)


def jacobian(
    ensemble: TreeEnsemble, X: ArrayLike, steps: ArrayLike, threads: int = 1, *, memory_budget: int = MEMORY_BUDGET
) -> NDArray[np.float32]:
    """`walk.jacobian` on the device, (m, d) float32, the same bits; `threads` of the host apply the link."""
    rows, blocks = _checked(ensemble, X, steps, threads, memory_budget)
    return _dense(blocks, rows.shape)


def jacobian_csr(
    ensemble: TreeEnsemble, X: ArrayLike, steps: ArrayLike, threads: int = 1, *, memory_budget: int = MEMORY_BUDGET
) -> CSR:
    """`walk.jacobian_csr` on the device, the same bits; `threads` of the host apply the link."""
    rows, blocks = _checked(ensemble, X, steps, threads, memory_budget)
    return _sparse(blocks, len(rows))
