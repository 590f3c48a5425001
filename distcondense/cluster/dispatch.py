"""Getting every tile of a step computed, whoever dies, stalls or is slow. Knows no Ray: a `Crew` is what it leads.

A tile that did not come back is computed again, never dropped. As tiles are a function of (X, widths, tile) alone, it
does not matter who computes one, how often, or in which order: each has its place in the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from distcondense.arrays import Matrix
from distcondense.cluster.config import Cluster
from distcondense.cluster.plan import Grid, grid_of, plan
from distcondense.cluster.step import SLOWEST, Step
from distcondense.cluster.worker import Identity, Part, Shared, blas_kernels, versions
from distcondense.errors import ClusterError
from distcondense.models.jacobian import Batches, Tile, Walk

AHEAD = 2  # tiles in a worker's hands at once: it computes one while the next is on its way
SLOW = 3.0  # times its expected seconds: then whoever is idle computes the tile as well
HEARTBEAT = 0.25  # seconds between looks at the clock while nothing comes back
MEMORY = 0.5  # weight of the newest measurement in a worker's speed
PATIENCE = 10  # times start_timeout, for a worker that has its cores and is starting


@dataclass(frozen=True)
class Lost:
    """A worker is gone; `again` is False where starting it again would end the same way."""

    cause: str
    again: bool = True


@dataclass(frozen=True)
class Failed:
    """The model raised an error; a worker that is well."""

    error: BaseException


@dataclass(frozen=True)
class Settled:
    """A ticket that has an end: a value, `Lost` or `Failed`."""

    ticket: Hashable
    value: Any


@dataclass(frozen=True)
class Outlook:
    """What is to be expected of workers that are not up: how many have cores and are starting, and what is free."""

    starting: int
    free: str


class Crew(Protocol):
    """Workers that are asked by number and answer by ticket."""

    size: int

    def launch(self, worker: int) -> Hashable: ...  # a new worker in this place; the ticket of its Identity
    def put(self, shared: Shared) -> Any: ...  # a step's rows, once; what `calibrate` and `start` hand on
    def calibrate(self, worker: int, shared: Any, tile: Tile) -> Hashable: ...
    def start(self, worker: int, shared: Any, tile: Tile) -> Hashable: ...
    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Settled]: ...
    def drop(self, worker: int) -> None: ...
    def outlook(self) -> Outlook: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class _Request:
    """What a worker was asked for and has not answered yet."""

    worker: int
    kind: str  # "identity", "calibrate" or "tile"
    began: float
    step: int = -1
    number: int = -1  # of the step's assignment
    units: int = 0


@dataclass
class _Member:
    """What is known of one worker."""

    up: bool = False
    speed: float = 0.0  # units per second; 0: not measured yet
    losses: int = 0  # in a row, since a tile of it came back
    back_at: float | None = None  # when it may be started again
    who: Identity | None = None


@dataclass
class Tally:
    """What a run moved and lost."""

    steps: int = 0
    tiles: int = 0
    computed_twice: int = 0
    restarts: int = 0
    bytes_moved: int = 0
    seconds: float = 0.0
    causes: list[str] = field(default_factory=list)


class Dispatcher:
    """Leads a crew through steps."""

    def __init__(
        self,
        crew: Crew,
        config: Cluster,
        way: Batches | Walk,
        *,
        clock: Callable[[], float] = time.monotonic,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.crew, self.config, self.way, self.log = crew, config, way, log
        self.tally = Tally()
        self._clock = clock
        self._members = [_Member() for _ in range(crew.size)]
        self._heard = [clock()] * crew.size  # when each last said anything
        self._requests: dict[Hashable, _Request] = {}
        self._versions, self._blas = versions(), blas_kernels()
        self._other_processors: set[str] = set()  # hosts that were spoken of
        self._nobody_since: float | None = None
        self._patience_said = False
        self._begun = 0  # steps
        self._measured_on: Grid | None = None
        self._measured_from = 0  # steps up to this one had other units
        for worker in range(crew.size):
            self._launch(worker)

    @property
    def speeds(self) -> list[float]:
        """Units per second of each worker; 0 where it is away."""
        return [member.speed if member.up else 0.0 for member in self._members]

    @property
    def members(self) -> list[Identity | None]:
        return [member.who for member in self._members]

    def calibrate(self, shared: Shared) -> None:
        """Wait for the crew, and measure each worker on one unit of the real work."""
        grid, handed = grid_of(self.way, len(shared.X)), self.crew.put(shared)
        self._measured_on = grid
        (_, unit), *_ = grid.tiles(0, 1)
        latest = self._clock() + self.config.start_timeout
        # one worker is enough to begin with, but those on their way are worth waiting for, for a while
        while not any(self.speeds) or (self._coming() and self._clock() <= latest):
            self._measure(handed, unit)
            self._receive(None)
        if late := self._coming():
            self.log(f"{late} of {self.crew.size} workers are not up after {self.config.start_timeout:g} s")
        self.tally.bytes_moved += shared.nbytes

    def _coming(self) -> int:
        """How many are on their way for the first time."""
        return sum(not (member.up and member.speed) and not member.losses for member in self._members)

    def _measure(self, handed: Any, unit: Tile) -> None:
        """Whoever is up without a known speed computes one unit first: a tile might be far too large for it."""
        asked = {request.worker for request in self._requests.values() if request.kind == "calibrate"}
        for worker, member in enumerate(self._members):
            if member.up and not member.speed and worker not in asked:
                self._requests[self.crew.calibrate(worker, handed, unit)] = _Request(worker, "calibrate", self._clock())

    def jacobian(self, shared: Shared) -> Matrix:
        """∂f/∂X at one step, from tiles; (m, d) float32."""
        began = self._clock()
        grid = grid_of(self.way, len(shared.X))
        if grid != self._measured_on:  # a unit is other work now
            self._measured_from = self._begun
            for member in self._members:
                member.speed = 0.0
        if not any(self.speeds):
            self.calibrate(shared)
        behind = {request.worker for request in self._requests.values()}  # at an earlier step: nothing is for them
        free = [0.0 if worker in behind else speed for worker, speed in enumerate(self.speeds)]
        assignments = plan(grid, free if any(free) else self.speeds)
        (_, unit), *_ = grid.tiles(0, 1)
        handed = self.crew.put(shared)
        self._begun += 1  # one that failed must not lend its number: its tiles may still come
        step = Step(self._begun, assignments, self.crew.size)
        while step.missing:
            self._measure(handed, unit)
            self._hand_out(step, handed)
            self._receive(step)
        J = np.zeros(shared.X.shape, np.float32)
        for assignment, part in zip(assignments, step.parts, strict=True):  # in the plan's order, whoever was first
            assert part is not None
            self.way.place(J, assignment.tile, part.value)
            self.tally.bytes_moved += part.nbytes
        self.tally.bytes_moved += shared.nbytes
        self.tally.steps += 1
        self.tally.tiles += len(assignments)
        self.tally.seconds += self._clock() - began
        return J

    def _hand_out(self, step: Step, handed: Any) -> None:
        """Keep every worker that is up busy: its own share, then others', then tiles that are overdue elsewhere."""
        now, speeds = self._clock(), self.speeds
        busy, held, since = [0] * self.crew.size, [0] * self.crew.size, [now] * self.crew.size
        for request in self._requests.values():
            here = request.step == step.number
            busy[request.worker] += 1 if here else AHEAD  # still at something earlier: nothing until it is heard of
            held[request.worker] += request.units
            since[request.worker] = min(since[request.worker], request.began)
        late = [
            max(0.0, now - began - units / max(speed, SLOWEST))
            for began, units, speed in zip(since, held, speeds, strict=True)
        ]
        for worker, member in enumerate(self._members):
            while member.up and busy[worker] < AHEAD:
                number = step.next_for(worker, speeds, held, late)
                if number is None and not busy[worker]:
                    number = self._overdue(step, now)
                    self.tally.computed_twice += number is not None
                if number is None:
                    break
                tile, units = step.assignments[number].tile, step.assignments[number].units
                ticket = self.crew.start(worker, handed, tile)
                self._requests[ticket] = _Request(worker, "tile", self._clock(), step.number, number, units)
                busy[worker] += 1
                held[worker] += units

    def _overdue(self, step: Step, now: float) -> int | None:
        """The tile that should have been here longest ago from everyone who was asked for it."""
        late: dict[int, float] = {}
        for request in self._requests.values():
            if request.step == step.number and step.parts[request.number] is None:
                expected = AHEAD * request.units / max(self._members[request.worker].speed, SLOWEST)
                overdue = (now - request.began) - SLOW * max(expected, HEARTBEAT)
                late[request.number] = min(overdue, late.get(request.number, overdue))
        worst = max(late, key=lambda number: late[number], default=None)
        return worst if worst is not None and late[worst] > 0 else None

    def _receive(self, step: Step | None) -> None:
        """Take what came back; start again whoever may be."""
        for worker, member in enumerate(self._members):
            if member.back_at is not None and self._clock() >= member.back_at:
                member.back_at = None
                self.tally.restarts += 1
                self._launch(worker)
        self._give_up_if_nobody_comes()
        for settled in self.crew.wait(list(self._requests), self._until_next_restart()):
            request = self._requests.pop(settled.ticket, None)
            if request is None:  # of a worker that is gone by now
                continue
            if isinstance(settled.value, Lost):
                self._lose(request.worker, settled.value, step)
            elif isinstance(settled.value, Failed):
                raise settled.value.error
            elif request.kind == "identity":
                self._admit(request.worker, settled.value)
            elif request.kind == "calibrate":
                self._members[request.worker].speed = 1.0 / max(settled.value, 1e-9)
            else:
                self._take(request, settled.value, step)
            self._heard[request.worker] = self._clock()
        self._replace_the_hung(step)

    def _replace_the_hung(self, step: Step | None) -> None:
        """Who was asked and has not said anything for `hung_after` seconds is started again, its tiles go to others."""
        now, oldest = self._clock(), dict[int, float]()
        for request in self._requests.values():
            if request.kind != "identity":  # of one that is starting `_give_up_if_nobody_comes` knows
                oldest[request.worker] = min(request.began, oldest.get(request.worker, now))
        for worker, began in oldest.items():
            if now - max(began, self._heard[worker]) > self.config.hung_after:
                self._lose(worker, Lost(f"no answer within {self.config.hung_after:g} s"), step)

    def _until_next_restart(self) -> float:
        waiting = [m.back_at - self._clock() for m in self._members if m.back_at is not None]
        return max(0.0, min([HEARTBEAT, *waiting]))

    def _take(self, request: _Request, part: Part, step: Step | None) -> None:
        member = self._members[request.worker]
        member.losses = 0
        if request.step > self._measured_from:
            speed = request.units / max(part.seconds, 1e-9)
            member.speed = (1 - MEMORY) * member.speed + MEMORY * speed if member.speed else speed
        if step is not None and request.step == step.number:  # else its tile has been computed elsewhere
            step.take(request.number, part)

    def _launch(self, worker: int) -> None:
        self._requests[self.crew.launch(worker)] = _Request(worker, "identity", self._clock())

    def _admit(self, worker: int, who: Identity) -> None:
        other = {name: theirs for name, theirs in who.versions.items() if self._versions.get(name) != theirs}
        if other:
            raise ClusterError(
                f"worker on {who.host}",
                "must run the versions of this program, or results would differ in their bits",
                found=", ".join(f"{name} {theirs} (here {self._versions.get(name)})" for name, theirs in other.items()),
                fix="install constraints.txt's versions on every node; DISTCONDENSE_BACKEND=numba needs no compiler",
            )
        if who.blas != self._blas and who.host not in self._other_processors:
            self._other_processors.add(who.host)
            self.log(
                f"worker on {who.host} has another processor (BLAS {who.blas}, here {self._blas}): a model made of "
                "matrix products may differ in its last bits there; trees do not"
            )
        member = self._members[worker]
        member.up, member.who = True, who

    def _lose(self, worker: int, lost: Lost, step: Step | None) -> None:
        """Take a lost worker's tiles back, and plan its return."""
        member = self._members[worker]
        member.up = False
        member.losses += 1
        self.crew.drop(worker)
        for ticket in [t for t, request in self._requests.items() if request.worker == worker]:
            del self._requests[ticket]
        if step is not None:
            step.queue_again({r.number for r in self._requests.values() if r.step == step.number})
        self.tally.causes.append(lost.cause)
        if not lost.again or member.losses > self.config.max_restarts:
            times = f" {member.losses} times in a row" if lost.again else ""
            raise ClusterError(
                f"worker {worker}", "must stay alive", found=f"lost{times}: {lost.cause}", fix=_fix(lost.cause)
            )
        wait = self.config.backoff * 2 ** (member.losses - 1)
        member.back_at = self._clock() + wait
        self.log(f"worker {worker} lost ({lost.cause}); its tiles go to others, it is started again in {wait:g} s")

    def _give_up_if_nobody_comes(self) -> None:
        """No room for anybody is said after start_timeout; who has cores and is starting is waited for longer."""
        if any(member.up for member in self._members):
            self._nobody_since = None
            return
        now, least = self._clock(), self.config.start_timeout
        self._nobody_since = now if self._nobody_since is None else self._nobody_since
        waited = now - self._nobody_since
        if waited <= least or any(member.back_at is not None for member in self._members):
            return
        outlook = self.crew.outlook()
        if not outlook.starting:
            raise ClusterError(
                "cluster",
                f"must have room for one worker within {least:g} s",
                found=outlook.free,
                fix="free or add nodes, ask for less per actor (num_cpus, num_gpus), or raise start_timeout",
            )
        if waited > PATIENCE * least:
            raise ClusterError(
                "cluster",
                f"must bring up a worker within {PATIENCE * least:g} s",
                found=f"{outlook.starting} that have their cores and do not answer",
                fix="look at the workers' logs and their nodes' load (ray logs actor), or raise start_timeout",
            )
        if not self._patience_said:
            self._patience_said = True
            self.log(f"no worker is up after {least:g} s; {outlook.starting} have their cores and are starting")


def _fix(cause: str) -> str:
    if "memory" in cause:
        return "give each actor more memory (fewer actors, a larger node), or use a smaller model"
    if "not installed" in cause:
        return "install it on every node, or list it under pip in cluster/runtime_env.yaml"
    return "look at the worker's log on its node (ray logs actor)"
