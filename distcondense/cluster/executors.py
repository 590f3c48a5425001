"""Where a run's Jacobian is computed: in this process (`LocalExecutor`), or on Ray's actors (`RayExecutor`).

The driver does everything else in both cases: it aggregates, clips, adds noise, moves the rows and keeps the account.
Both give the same bits, with any number of threads, actors or nodes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
from threadpoolctl import threadpool_limits

from distcondense.arrays import Matrix
from distcondense.cluster.config import Cluster, check_store
from distcondense.cluster.plan import grid_of, shares
from distcondense.cluster.processes import HELD, TileProcesses, seconds_of
from distcondense.cluster.worker import Shared, TileResult, TileWorker
from distcondense.errors import ClusterError
from distcondense.models.base import Model
from distcondense.models.jacobian import JacobianPath, Tile, jacobian, make_tiler, resolve_path

Log = Callable[[str], None]
TILES_PER_THREAD = 8
PROBED = 5  # units of the first step that show whether threads take turns
WORTH_SAYING = 0.5  # seconds of a step from which on it is said what it takes, and processes may be worth their start


class Executor(Protocol):
    """Computes a model's Jacobian, step after step; `open` gives it the model, leaving it frees its machines."""

    def __enter__(self) -> Executor: ...

    def __exit__(self, *error: object) -> None: ...

    @property
    def fuses(self) -> bool:
        """The engine may run the fused in-process kernel instead of asking for a Jacobian."""
        ...

    def open(self, model: Model, path: JacobianPath, X: Matrix, widths: Matrix) -> None:
        """Get ready for rows of X's shape; X and widths are the first step's."""
        ...

    def jacobian(self, X: Matrix, widths: Matrix) -> Matrix:
        """∂f/∂X (m, d) float32 at the rows X (m, d) by symmetric differences over `widths` (d,)."""
        ...

    def report(self, *, steps_per_second: float, epsilon: Callable[[], float] | None, guarantee: str) -> None:
        """How the run goes, once a step; ε, by this guarantee, is computed only where it is shown."""
        ...

    def facts(self) -> dict[str, Any]:
        """What run.json keeps."""
        ...


class LocalExecutor:
    """On this machine, on `threads` threads; a black box is called by several of them at once.

    A model with structure is computed by the fused kernel, which uses the same number of threads. A black box that
    holds the interpreter's lock, as the first tiles show, is computed by as many processes (processes.py).
    """

    def __init__(self, threads: int = 1, *, log: Log = lambda line: None) -> None:
        self.threads, self.log = threads, log
        self._processes: TileProcesses | None = None
        self.fuses = False
        self._unknown = False
        self._stack = ExitStack()

    def __enter__(self) -> LocalExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def open(self, model: Model, path: JacobianPath, X: Matrix, widths: Matrix) -> None:
        self._model = model
        if resolve_path(model, path) == "structured":
            self.fuses = True
            return
        # one thread in a BLAS: with more a product may round otherwise, and the threads here are enough
        self._stack.enter_context(threadpool_limits(1, user_api="blas"))
        self._pool = self._stack.enter_context(ThreadPoolExecutor(self.threads))
        self._tiler = make_tiler(model, path)
        self._path, self._of_thread = path, threading.local()
        self._unknown = min(self.threads, os.cpu_count() or 1) > 1  # whether threads compute it at the same time

    def jacobian(self, X: Matrix, widths: Matrix) -> Matrix:
        if self.fuses:
            return jacobian(self._model, X, widths, path="structured", threads=self.threads)  # type: ignore[return-value]
        J, shared = np.zeros(X.shape, np.float32), Shared(X, widths)
        grid = grid_of(self._tiler, len(X))

        def compute(tile: Tile) -> TileResult:
            if not hasattr(self._of_thread, "worker"):  # a compiled predictor serves one caller at a time
                self._of_thread.worker = TileWorker(self._model, self._path)
            result: TileResult = self._of_thread.worker.tile(shared, tile)
            return result

        first, tiles = 0, list[Tile]()
        if self._unknown and grid.units > PROBED:
            probed = [tile for unit in range(PROBED) for _, tile in grid.tiles(unit, unit + 1)]
            for tile, result in zip(probed, self._probe(compute, probed, grid.units), strict=True):
                self._tiler.place(J, tile, result.value)
            first = PROBED
        self._unknown = False
        for count in shares(grid.units - first, [1.0] * (self.threads * TILES_PER_THREAD)):
            tiles += [tile for _, tile in grid.tiles(first, first + count)]
            first += count
        for tile, result in zip(tiles, self._computed(compute, shared, tiles), strict=True):
            self._tiler.place(J, tile, result.value)
        return J

    def _probe(self, compute: Callable[[Tile], TileResult], tiles: Sequence[Tile], units: int) -> list[TileResult]:
        """The first tiles: two to get ready, one alone, two at once. Where these take turns, processes are started."""
        ready = list(self._pool.map(compute, tiles[:2]))
        alone, clock, processor = self._pool.submit(seconds_of, compute, tiles[2]).result()
        beside = list(self._pool.map(lambda tile: seconds_of(compute, tile), tiles[3:]))
        turns = max(clocks / seconds for _, clocks, seconds in beside) / (clock / processor)
        if (step := units * clock / self.threads) >= WORTH_SAYING:
            by = "threads"
            if turns > HELD:
                try:
                    self._processes = self._stack.enter_context(TileProcesses(self._model, self._path, self.threads))
                    by = "processes: the model holds the interpreter's lock"
                except Exception as error:  # of whatever in a model cannot be pickled
                    by = f"threads that take turns: it cannot be sent to processes ({type(error).__name__})"
            self.log(f"a step asks the model {units:,} batches, about {step:.2g} s on {self.threads} {by}")
        return [*ready, alone, *(result for result, _, _ in beside)]

    def _computed(
        self, compute: Callable[[Tile], TileResult], shared: Shared, tiles: Sequence[Tile]
    ) -> list[TileResult]:
        if self._processes is not None:
            try:
                return list(self._processes.tiles(shared, tiles))
            except BrokenProcessPool:
                self.log("a process has died: threads go on in place of processes")
                self._processes = None
        return list(self._pool.map(compute, tiles))

    def report(self, *, steps_per_second: float, epsilon: Callable[[], float] | None, guarantee: str) -> None:
        pass

    def facts(self) -> dict[str, Any]:
        by = {} if self._processes is None else {"processes": self.threads}
        return {"executor": "in-process", "threads": self.threads, **by}


class RayExecutor:
    """On Ray: actors hold the model, tiles of the Jacobian go to them by their measured speed.

    Parameters
    ----------
    config
        The cluster, its actors, and how patient to be with them.
    log
        Called with lines about the cluster and what happens to workers.
    """

    fuses = False

    def __init__(self, config: Cluster, *, log: Log = lambda line: None) -> None:
        self.config, self.log = config, log
        self._stack = ExitStack()
        self._facts: dict[str, Any] = {}

    def __enter__(self) -> RayExecutor:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def open(self, model: Model, path: JacobianPath, X: Matrix, widths: Matrix) -> None:
        from distcondense.cluster.ray.actors import tile_workers
        from distcondense.cluster.ray.gauges import EPSILON, TILES, Gauges
        from distcondense.cluster.ray.session import connected
        from distcondense.cluster.tiles import TileDispatcher

        session = self._stack.enter_context(connected(self.config))
        self.log(str(session))
        tiler, shared = make_tiler(model, path), Shared(X, widths)
        answers = len(X) * len(tiler.columns) * 4
        # two steps' rows and one step's answers must fit at once, or Ray would spill them to disk or stall
        check_store(session.object_store, 2 * shared.nbytes + answers, "a step's rows and answers", "a smaller IPC")
        workers = tile_workers(session, self.config, model, path)
        self._dispatcher = TileDispatcher(workers, self.config, tiler, log=self.log)
        self._stack.callback(self._dispatcher.pool.close)
        self._dispatcher.calibrate(shared)
        speeds = ", ".join(f"{speed:.3g}" for speed in self._dispatcher.speeds)
        units = grid_of(tiler, len(X)).units
        self.log(f"{workers.size} actors, {speeds} units/s; a step is {units} units, path {path}")
        self._facts = {"nodes": session.nodes, "actors": workers.size, "cluster_started_here": session.started_here}
        self._stack.enter_context(threadpool_limits(1, user_api="blas"))  # the driver scores rows, too
        self._gauges, self._epsilon = Gauges(TILES), Gauges(EPSILON, "guarantee")

    def jacobian(self, X: Matrix, widths: Matrix) -> Matrix:
        return self._dispatcher.jacobian(Shared(X, widths))

    def report(self, *, steps_per_second: float, epsilon: Callable[[], float] | None, guarantee: str) -> None:
        numbers = self._numbers()
        numbers["actor_restarts"] = numbers.pop("restarts")
        self._gauges.set({"steps_per_second": steps_per_second, **numbers})
        if epsilon is not None:
            self._epsilon.set({"epsilon": epsilon()}, guarantee=guarantee)

    def _numbers(self) -> dict[str, float]:
        counts = self._dispatcher.counts
        return {
            "tiles_per_second": counts.tiles / counts.seconds if counts.seconds else 0.0,
            "bytes_moved": float(counts.bytes_moved),
            "restarts": float(self._dispatcher.pool.restarts),
        }

    def facts(self) -> dict[str, Any]:
        return {
            "executor": "ray",
            **self._facts,
            **self._numbers(),
            "tiles": self._dispatcher.counts.tiles,
            "tiles_computed_twice": self._dispatcher.counts.computed_twice,
            "workers_lost": list(self._dispatcher.pool.causes),
            "units_per_second": self._dispatcher.speeds,
        }


def refuse_missing_gpus(config: Cluster) -> None:
    """Where GPUs are asked for and there are none, say so before a table is read.

    Raises
    ------
    ClusterError
        This machine has no GPU that works, or the cluster has not as many as one actor asks for.
    """
    if not config.num_gpus:
        return
    if not config.starts_here:
        from distcondense.cluster.ray.session import connected

        with connected(config) as session:
            session.places("actor", config.num_cpus, gpus=config.num_gpus)
        return
    from distcondense.kernels import cuda

    if (reason := cuda.why_not()) is not None:
        raise ClusterError(
            "num_gpus",
            "needs a GPU that works on this machine, where the cluster is to be started",
            found=reason,
            fix="leave out --num-gpus, or join a cluster that has GPUs (--ray HOST:PORT)",
        )


def why_in_process(model: Model, path: JacobianPath, config: Cluster) -> str | None:
    """Why this model's Jacobian is not computed on a cluster that is given; None where it is.

    Trees whose structure is known take milliseconds in process, where the fused kernel does not even write their
    Jacobian down; through Ray the same step took 6.5 times as long (benchmarks/results/cluster-speed.md).
    """
    if resolve_path(model, path) != "structured":
        return None
    if getattr(model, "ensemble", None) is None:
        return "a linear score has its Jacobian in closed form"
    if path == "auto" and not config.num_gpus:
        return "trees have a Jacobian that is faster than messages; path 'structured' would use the cluster"
    return None


def executor_for(
    model: Model, path: JacobianPath, cluster: Cluster | None, *, threads: int = 1, log: Log = lambda line: None
) -> Executor:
    """What computes a model's Jacobian: chosen by the kind of model, before a cluster is started or joined.

    Parameters
    ----------
    model, path
        The reference, and how its Jacobian is computed.
    cluster
        The cluster that may be used; None where there is none.
    threads
        Of this process, where the Jacobian is computed in it.
    log
        Called with a line about what was chosen and why, and later about workers.

    Returns
    -------
    Executor
        Not opened yet: nothing is started.
    """
    if cluster is None:
        return LocalExecutor(threads, log=log)
    if (reason := why_in_process(model, path, cluster)) is not None:
        log(f"the loop stays in process, and Ray is not used: {reason}")
        return LocalExecutor(threads, log=log)
    return RayExecutor(cluster, log=log)
