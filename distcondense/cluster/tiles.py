"""Getting every tile of a step computed by a pool of workers, whoever dies, stalls or is slow. Knows no Ray.

A tile that did not come back is computed again, never dropped. As tiles are a function of (X, widths, tile) alone, it
does not matter who computes one, how often, or in which order: each has its place in the answer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distcondense.arrays import Matrix
from distcondense.cluster.config import Cluster
from distcondense.cluster.plan import Assignment, Grid, grid_of, plan
from distcondense.cluster.pool import HEARTBEAT, WorkerPool, Workers
from distcondense.cluster.worker import Shared, TileResult
from distcondense.models.jacobian import BatchTiler, WalkTiler

AHEAD = 2  # tiles in a worker's hands at once: it computes one while the next is on its way
SLOW = 3.0  # times its expected seconds: then whoever is idle computes the tile as well
MEMORY = 0.5  # weight of the newest measurement in a worker's speed
SLOWEST = 1e-9  # units per second, where a speed is divided by


@dataclass(frozen=True)
class TileRequest:
    """Which tile a worker was asked for: the number of its step, its own, and how many units it has."""

    step: int
    number: int
    units: int


@dataclass
class TileCounts:
    """What a run computed and moved."""

    tiles: int = 0
    computed_twice: int = 0
    bytes_moved: int = 0
    seconds: float = 0.0


class StepTiles:
    """The tiles of one step by their number; each is queued for a worker, in a worker's hands, or here."""

    def __init__(self, number: int, assignments: list[Assignment], workers: int) -> None:
        self.number, self.assignments = number, assignments
        self.results: list[TileResult | None] = [None] * len(assignments)
        self.missing = len(assignments)
        self._queues: list[deque[int]] = [deque() for _ in range(workers)]
        for at, assignment in enumerate(assignments):
            self._queues[assignment.worker].append(at)

    def next_for(self, worker: int, speeds: Sequence[float], held: Sequence[int], late: Sequence[float]) -> int | None:
        """The next tile of this worker; where it has none left, the last of whoever would take longest.

        Unless it would take longer itself: a tile that is meant for a fast worker is large. `held` are the units in
        each one's hands, `late` the seconds by which they are overdue: for one that is stalled they grow and grow.
        """
        if self._queues[worker]:
            return self._queues[worker].popleft()

        def left(other: int) -> float:
            units = sum(self.assignments[at].units for at in self._queues[other])
            return units / max(speeds[other], SLOWEST) + late[other]

        slowest = max((k for k, queue in enumerate(self._queues) if queue), key=left, default=None)
        if slowest is None:
            return None
        mine = (held[worker] + self.assignments[self._queues[slowest][-1]].units) / max(speeds[worker], SLOWEST)
        return self._queues[slowest].pop() if mine <= left(slowest) else None

    def take(self, number: int, result: TileResult) -> None:
        """A tile's quotients; whoever was first counts."""
        if self.results[number] is None:
            self.results[number] = result
            self.missing -= 1

    def queue_again(self, in_hand: set[int]) -> None:
        """Queue what is neither here, nor queued, nor in anybody's hands."""
        known = in_hand | {at for queue in self._queues for at in queue}
        for at, result in enumerate(self.results):
            if result is None and at not in known:
                self._queues[self.assignments[at].worker].appendleft(at)


class TileDispatcher:
    """Computes Jacobians on a pool of `TileWorker`s, step after step.

    Parameters
    ----------
    workers
        The processes that hold the model.
    config
        How patient to be with them.
    tiler
        How a table is cut into tiles, and where a tile's quotients belong.
    """

    def __init__(
        self,
        workers: Workers,
        config: Cluster,
        tiler: BatchTiler | WalkTiler,
        *,
        clock: Callable[[], float] = time.monotonic,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.config, self.tiler, self.log, self._clock = config, tiler, log, clock
        self.counts = TileCounts()
        self._speeds = [0.0] * workers.size  # units per second; 0: not measured yet
        self._step: StepTiles | None = None
        self._begun = 0  # steps
        self._measured_on: Grid | None = None
        self._measured_from = 0  # steps up to this one had other units
        self.pool = WorkerPool(workers, config, on_loss=self._take_back, clock=clock, log=log)

    @property
    def speeds(self) -> list[float]:
        """Units per second of each worker; 0 where it is away."""
        return [speed if member.up else 0.0 for speed, member in zip(self._speeds, self.pool.members, strict=True)]

    def calibrate(self, shared: Shared) -> None:
        """Wait for the workers, and measure each on one unit of the real work."""
        grid, handle = grid_of(self.tiler, len(shared.X)), self.pool.workers.put(shared)
        self._measured_on = grid
        latest = self._clock() + self.config.start_timeout
        # one worker is enough to begin with, but those on their way are worth waiting for, for a while
        while not any(self.speeds) or (self._coming() and self._clock() <= latest):
            self._measure(handle, grid)
            self._receive()
        if late := self._coming():
            self.log(f"{late} of {len(self._speeds)} workers are not up after {self.config.start_timeout:g} s")
        self.counts.bytes_moved += shared.nbytes

    def _coming(self) -> int:
        """How many are on their way for the first time."""
        return sum(not speed and not self.pool.members[worker].losses for worker, speed in enumerate(self.speeds))

    def _measure(self, handle: Any, grid: Grid) -> None:
        """Whoever is up without a known speed computes one unit first: a tile might be far too large for it."""
        (_, unit), *_ = grid.tiles(0, 1)
        measured = {request.worker for request in self.pool.requests.values() if request.method == "calibrate"}
        for worker, member in enumerate(self.pool.members):
            if member.up and not self._speeds[worker] and worker not in measured:
                self.pool.call(worker, "calibrate", handle, unit)

    def jacobian(self, shared: Shared) -> Matrix:
        """∂f/∂X at one step, from tiles; (m, d) float32."""
        began = self._clock()
        grid = grid_of(self.tiler, len(shared.X))
        if grid != self._measured_on:  # a unit is other work now
            self._measured_from = self._begun
            self._speeds = [0.0] * len(self._speeds)
        if not any(self.speeds):
            self.calibrate(shared)
        behind = {request.worker for request in self.pool.requests.values()}  # at an earlier step: nothing is for them
        free = [0.0 if worker in behind else speed for worker, speed in enumerate(self.speeds)]
        assignments = plan(grid, free if any(free) else self.speeds)
        handle = self.pool.workers.put(shared)
        self._begun += 1  # one that failed must not lend its number: its tiles may still come
        step = self._step = StepTiles(self._begun, assignments, len(self._speeds))
        while step.missing:
            self._measure(handle, grid)
            self._hand_out(step, handle)
            self._receive()
        J = np.zeros(shared.X.shape, np.float32)
        for assignment, result in zip(assignments, step.results, strict=True):  # in the plan's order
            assert result is not None
            self.tiler.place(J, assignment.tile, result.value)
            self.counts.bytes_moved += result.nbytes
        self.counts.bytes_moved += shared.nbytes
        self.counts.tiles += len(assignments)
        self.counts.seconds += self._clock() - began
        return J

    def _hand_out(self, step: StepTiles, handle: Any) -> None:
        """Keep every worker that is up busy: its own share, then others', then tiles that are overdue elsewhere."""
        now, speeds, size = self._clock(), self.speeds, len(self._speeds)
        busy, held, since = [0] * size, [0] * size, [now] * size
        for request in self.pool.requests.values():
            here = request.work is not None and request.work.step == step.number
            busy[request.worker] += 1 if here else AHEAD  # still at something earlier: nothing until it is heard of
            held[request.worker] += request.work.units if request.work is not None else 0
            since[request.worker] = min(since[request.worker], request.began)
        late = [
            max(0.0, now - began - units / max(speed, SLOWEST))
            for began, units, speed in zip(since, held, speeds, strict=True)
        ]
        for worker, member in enumerate(self.pool.members):
            while member.up and busy[worker] < AHEAD:
                number = step.next_for(worker, speeds, held, late)
                if number is None and not busy[worker]:
                    number = self._overdue(step, now)
                    self.counts.computed_twice += number is not None
                if number is None:
                    break
                tile, units = step.assignments[number].tile, step.assignments[number].units
                self.pool.call(worker, "tile", handle, tile, work=TileRequest(step.number, number, units))
                busy[worker] += 1
                held[worker] += units

    def _overdue(self, step: StepTiles, now: float) -> int | None:
        """The tile that should have been here longest ago from everyone who was asked for it."""
        late: dict[int, float] = {}
        for request in self.pool.requests.values():
            work = request.work
            if work is not None and work.step == step.number and step.results[work.number] is None:
                expected = AHEAD * work.units / max(self._speeds[request.worker], SLOWEST)
                overdue = (now - request.began) - SLOW * max(expected, HEARTBEAT)
                late[work.number] = min(overdue, late.get(work.number, overdue))
        worst = max(late, key=lambda number: late[number], default=None)
        return worst if worst is not None and late[worst] > 0 else None

    def _receive(self) -> None:
        """Take what came back; a tile of an earlier step has been computed elsewhere."""
        for request, answer in self.pool.receive():
            if request.method == "calibrate":
                self._speeds[request.worker] = 1.0 / max(answer, 1e-9)
                continue
            if request.work.step > self._measured_from:
                speed, before = request.work.units / max(answer.seconds, 1e-9), self._speeds[request.worker]
                self._speeds[request.worker] = (1 - MEMORY) * before + MEMORY * speed if before else speed
            if self._step is not None and request.work.step == self._step.number:
                self._step.take(request.work.number, answer)

    def _take_back(self, worker: int) -> None:
        """What a lost worker had in hand goes to others."""
        if (step := self._step) is not None:
            works = [request.work for request in self.pool.requests.values() if request.work is not None]
            step.queue_again({work.number for work in works if work.step == step.number})
