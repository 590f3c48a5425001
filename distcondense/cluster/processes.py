"""Processes of this machine for a black box that holds the interpreter's lock: threads would take turns with it.

They compute the tiles that threads would, so that the bits are the same. The model goes to each of them once, a step's
rows with each tile: synthetic rows, never a table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from distcondense import kernels
from distcondense.cluster.worker import Shared, TileResult, TileWorker
from distcondense.models.base import Model
from distcondense.models.jacobian import JacobianPath, Tile

HELD = 1.6  # times as long by the clock, for the same seconds of processor: two tiles at once took turns
IDLE_SECONDS = 60  # after which a process ends that nobody asks: its driver may have been killed

_worker: TileWorker  # of such a process


class TileProcesses:
    """So many processes that hold a model and compute tiles of its Jacobian; leaving it ends them.

    Parameters
    ----------
    model, path
        The reference, and how its Jacobian is computed.
    processes
        How many; each has one thread.

    Raises
    ------
    Exception
        Of whatever kind, where the model cannot be sent to a process.
    """

    def __init__(self, model: Model, path: JacobianPath, processes: int) -> None:
        from cloudpickle import dumps  # also of what a script has defined, which is not run again
        from joblib.externals.loky import ProcessPoolExecutor

        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        self._pool = ProcessPoolExecutor(
            processes,
            timeout=IDLE_SECONDS,
            initializer=_begin,
            initargs=(dumps(model), path),
            env={**single, "DISTCONDENSE_BACKEND": kernels.backend()},
        )

    def __enter__(self) -> TileProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(wait=True, kill_workers=True)

    def tiles(self, shared: Shared, tiles: Iterable[Tile]) -> Iterator[TileResult]:
        """The quotients of each tile, in order; `BrokenProcessPool` where a process has died."""
        yield from self._pool.map(partial(_compute, shared), tiles)


def _begin(model: bytes, path: JacobianPath) -> None:
    import pickle

    global _worker
    _worker = TileWorker(pickle.loads(model), path)


def _compute(shared: Shared, tile: Tile) -> TileResult:
    return _worker.tile(shared, tile)


def seconds_of(compute: Callable[[Tile], TileResult], tile: Tile) -> tuple[TileResult, float, float]:
    """A tile's quotients, and the seconds it took: by the clock, and of the processor in this thread."""
    clock, processor = time.perf_counter(), time.thread_time()
    result = compute(tile)
    return result, time.perf_counter() - clock, max(time.thread_time() - processor, 1e-9)
