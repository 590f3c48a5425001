"""Where a run's Jacobian is computed: in this process (`LocalExecutor`), or on Ray's actors (`RayExecutor`).

The driver does everything else in both cases: it aggregates, clips, adds noise, moves the rows and keeps the account.
Both give the same bits, with any number of threads, actors or nodes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from distcondense.arrays import Matrix
from distcondense.cluster.config import Cluster, check_store
from distcondense.cluster.plan import divide, grid_of
from distcondense.cluster.worker import Shared, Worker
from distcondense.models.base import Model
from distcondense.models.jacobian import JacobianPath, jacobian, path_of, way_of

Say = Callable[[str], None]
TILES_PER_THREAD = 8


class Executor(Protocol):
    """Computes a model's Jacobian, step after step. Entered, it has its machines; opened, it has its model."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *error: Any) -> None: ...

    @property
    def fuses(self) -> bool:
        """The engine may run the fused in-process kernel instead of asking for a Jacobian."""
        ...

    def open(self, model: Model, path: JacobianPath, X: Matrix, widths: Matrix) -> None:
        """Get ready for rows of X's shape; X and widths are the first step's."""
        ...

    def jacobian(self, X: Matrix, widths: Matrix) -> Matrix: ...

    def report(self, *, steps_per_second: float, epsilon: Callable[[], float] | None, guarantee: str) -> None:
        """How the run goes, once a step; ε, by this guarantee, is computed only where it is shown."""
        ...

    def facts(self) -> dict[str, Any]:
        """What run.json keeps."""
        ...


class LocalExecutor:
    """In this process, on `threads` threads; a black box is called by several of them at once."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads
        self.fuses = False
        self._stack = ExitStack()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def open(self, model: Model, path: JacobianPath, X: Matrix, widths: Matrix) -> None:
        self._model = model
        if path_of(model, path) == "structured":
            self.fuses = True
            return
        # one thread in a BLAS: with more a product may round otherwise, and the threads here are enough
        self._stack.enter_context(threadpool_limits(1, user_api="blas"))
        self._pool = self._stack.enter_context(ThreadPoolExecutor(self.threads))
        self._way = way_of(model, path)
        self._mine = threading.local()
        self._make: Callable[[], Worker] = lambda: Worker(model, path)

    def jacobian(self, X: Matrix, widths: Matrix) -> Matrix:
        if self.fuses:
            return jacobian(self._model, X, widths, path="structured", threads=self.threads)  # type: ignore[return-value]
        J, shared = np.zeros(X.shape, np.float32), Shared(X, widths)
        grid = grid_of(self._way, len(X))
        first, tiles = 0, []
        for count in divide(grid.units, [1.0] * (self.threads * TILES_PER_THREAD)):
            tiles += [tile for _, tile in grid.tiles(first, first + count)]
            first += count
        for tile, part in zip(
            tiles, self._pool.map(lambda tile: self._worker().tile(shared, tile), tiles), strict=True
        ):
            self._way.place(J, tile, part.value)
        return J

    def _worker(self) -> Worker:
        """This thread's own: a compiled predictor serves one caller at a time."""
        if not hasattr(self._mine, "worker"):
            self._mine.worker = self._make()
        worker: Worker = self._mine.worker
        return worker

    def report(self, *, steps_per_second: float, epsilon: Callable[[], float] | None, guarantee: str) -> None:
        pass

    def facts(self) -> dict[str, Any]:
        return {"executor": "in-process", "threads": self.threads}


class RayExecutor:
    """On Ray: actors hold the model, tiles of the Jacobian go to them by their measured speed."""

    def __init__(self, config: Cluster, *, threads: int = 1, log: Say = lambda line: None) -> None:
        self.config, self.threads, self.log = config, threads, log
        self._stack = ExitStack()
        self._local: LocalExecutor | None = None
        self._facts: dict[str, Any] = {}

    def __enter__(self) -> RayExecutor:
        from distcondense.cluster.ray.session import connected

        self._session = self._stack.enter_context(connected(self.config, cpus=self._cpus()))
        self.log(str(self._session))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    @property
    def fuses(self) -> bool:
        return self._local is not None

    def open(self, model: Model, path: JacobianPath, X: Matrix, widths: Matrix) -> None:
        structured = path_of(model, path) == "structured"
        if structured and getattr(model, "ensemble", None) is None:
            self.log("planner: a linear score has its Jacobian in closed form; the loop stays in process")
            self._stay(model, path, X, widths)
            return
        from distcondense.cluster.dispatch import Dispatcher
        from distcondense.cluster.ray.actors import Meters, RayCrew

        session, way, shared = self._session, way_of(model, path), Shared(X, widths)
        _check_store(session.object_store, shared, len(way.columns))
        crew = RayCrew(session, self.config, model, path)
        self._stack.callback(crew.close)
        self._dispatcher = Dispatcher(crew, self.config, way, log=self.log)
        self._dispatcher.calibrate(shared)
        speeds = ", ".join(f"{speed:.3g}" for speed in self._dispatcher.speeds)
        self.log(f"{crew.size} actors, {speeds} units/s; a step is {grid_of(way, len(X)).units} units, path {path}")
        self._facts = {"nodes": session.nodes, "actors": crew.size, "cluster_started_here": session.started_here}
        if path == "auto" and structured and not self.config.num_gpus:
            self._choose(model, path, shared)
        else:
            self._stack.enter_context(threadpool_limits(1, user_api="blas"))  # the driver scores rows, too
        if self._local is None:
            self._meters = Meters()

    def _cpus(self) -> int | None:
        """Cores of a cluster started here: what the actors take, if their number is said."""
        return None if self.config.actors is None else max(1, round(self.config.actors * self.config.num_cpus))

    def _choose(self, model: Model, path: JacobianPath, shared: Shared) -> None:
        """Trees whose structure is known: through Ray only if that is measured to be faster here."""
        self.jacobian(shared.X, shared.widths)
        remote = _seconds(lambda: self.jacobian(shared.X, shared.widths))
        here = LocalExecutor(self.threads)
        here.open(model, path, shared.X, shared.widths)
        here.jacobian(shared.X, shared.widths)
        local = _seconds(lambda: here.jacobian(shared.X, shared.widths))
        stays = local <= remote
        self._facts["planner"] = {"in_process_seconds": local, "through_ray_seconds": remote, "in_process": stays}
        self.log(
            f"planner: the structured Jacobian takes {1e3 * local:.1f} ms in process and {1e3 * remote:.1f} ms through "
            f"Ray; {'the loop stays in process' if stays else 'Ray it is'}"
        )
        if stays:  # and the cluster goes
            self._stay(model, path, shared.X, shared.widths)

    def _stay(self, model: Model, path: JacobianPath, X: Matrix, widths: Matrix) -> None:
        self._stack.close()
        self._local = self._stack.enter_context(LocalExecutor(self.threads))
        self._local.open(model, path, X, widths)

    def jacobian(self, X: Matrix, widths: Matrix) -> Matrix:
        if self._local is not None:
            return self._local.jacobian(X, widths)
        return self._dispatcher.jacobian(Shared(X, widths))

    def report(self, *, steps_per_second: float, epsilon: Callable[[], float] | None, guarantee: str) -> None:
        if self._local is None:
            spent = None if epsilon is None else epsilon()
            self._meters.set({"steps_per_second": steps_per_second, **self._moved()}, spent, guarantee)

    def _moved(self) -> dict[str, float]:
        tally = self._dispatcher.tally
        return {
            "tiles_per_second": tally.tiles / tally.seconds if tally.seconds else 0.0,
            "bytes_moved": float(tally.bytes_moved),
            "restarts": float(tally.restarts),
        }

    def facts(self) -> dict[str, Any]:
        if self._local is not None:
            return {**self._local.facts(), **self._facts}
        tally = self._dispatcher.tally
        return {
            "executor": "ray",
            **self._facts,
            **self._moved(),
            "tiles": tally.tiles,
            "tiles_computed_twice": tally.computed_twice,
            "workers_lost": list(tally.causes),
            "units_per_second": self._dispatcher.speeds,
        }


def executor_of(cluster: Cluster | None, *, threads: int, log: Say = lambda line: None) -> Executor:
    return LocalExecutor(threads) if cluster is None else RayExecutor(cluster, threads=threads, log=log)


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _check_store(room: float, shared: Shared, columns: int) -> None:
    """Two steps' rows and one step's answers must fit at once, or Ray would spill them to disk or stall."""
    check_store(room, 2 * shared.nbytes + len(shared.X) * columns * 4, "a step's rows and answers", "a smaller IPC")
