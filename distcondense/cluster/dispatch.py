"""Getting every tile of a step computed, whoever dies, stalls or is slow. Knows no Ray: a `Crew` is what it leads.

A tile that did not come back is computed again, never dropped. As tiles are a function of (X, widths, tile) alone, it
does not matter who computes one, how often, or in which order: each has its place in the answer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distcondense.cluster.config import Cluster
from distcondense.cluster.plan import Grid, Job, grid_of, plan
from distcondense.cluster.worker import Hello, Part, Shared, blas, likeness
from distcondense.errors import ClusterError
from distcondense.models.jacobian import Batches, Tile, Walk

AHEAD = 2  # tiles in a worker's hands at once: it computes one while the next is on its way
SLOW = 3.0  # times its expected seconds: then whoever is idle computes the tile as well
HEARTBEAT = 0.25  # seconds between looks at the clock while nothing comes back
SLOWEST = 1e-9  # units per second, where a speed is divided by
MEMORY = 0.5  # weight of the newest measurement in a worker's speed

Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class Lost:
    """A worker is gone; `hopeless` where starting it again would end the same way."""

    cause: str
    hopeless: bool = False


@dataclass(frozen=True)
class Failed:
    """The model raised an error; a worker that is well."""

    error: BaseException


@dataclass(frozen=True)
class Came:
    """A ticket that is settled: a value, `Lost` or `Failed`."""

    ticket: Hashable
    value: Any


class Crew(Protocol):
    """Workers that are asked by number and answer by ticket."""

    size: int

    def raise_up(self, worker: int) -> Hashable: ...  # a new worker in this place; the ticket of its Hello
    def share(self, shared: Shared) -> Any: ...  # a step's rows, once; what `start` hands on
    def calibrate(self, worker: int, shared: Any, tile: Tile) -> Hashable: ...
    def start(self, worker: int, shared: Any, tile: Tile) -> Hashable: ...
    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Came]: ...
    def drop(self, worker: int) -> None: ...
    def resources_free(self) -> str: ...
    def close(self) -> None: ...


@dataclass
class _Errand:
    """A ticket that is not settled yet."""

    worker: int
    kind: str  # "hello", "calibrate" or "tile"
    began: float
    step: int = -1
    job: int = -1  # index into the step's jobs
    units: int = 0


@dataclass
class _Member:
    """What is known of one worker."""

    up: bool = False
    speed: float = 0.0  # units per second; 0: not measured yet
    deaths: int = 0  # in a row, since a tile of it came back
    back_at: float | None = None  # when it may be started again
    who: Hello | None = None


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
        self, crew: Crew, config: Cluster, way: Batches | Walk, *, clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        self.crew, self.config, self.way, self.say = crew, config, way, say
        self.tally = Tally()
        self._clock = clock
        self._members = [_Member() for _ in range(crew.size)]
        self._errands: dict[Hashable, _Errand] = {}
        self._alike, self._blas = likeness(), blas()
        self._odd: set[str] = set()  # hosts that were spoken of
        self._nobody_since: float | None = None
        self._begun = 0  # steps
        self._measured_on: Grid | None = None
        self._since = 0  # steps up to this one had other units
        for worker in range(crew.size):
            self._raise_up(worker)

    @property
    def speeds(self) -> list[float]:
        """Units per second of each worker; 0 where it is away."""
        return [member.speed if member.up else 0.0 for member in self._members]

    @property
    def members(self) -> list[Hello | None]:
        return [member.who for member in self._members]

    def calibrate(self, shared: Shared) -> None:
        """Wait for the crew, and measure each worker on one unit of the real work."""
        grid, handed = grid_of(self.way, len(shared.X)), self.crew.share(shared)
        self._measured_on = grid
        (_, unit), *_ = grid.tiles(0, 1)
        latest = self._clock() + self.config.start_timeout
        # one worker is enough to begin with, but those on their way are worth waiting for, for a while
        while not any(self.speeds) or (self._coming() and self._clock() <= latest):
            self._measure(handed, unit)
            self._listen({})
        if late := self._coming():
            self.say(f"{late} of {self.crew.size} workers are not up after {self.config.start_timeout:g} s")
        self.tally.bytes_moved += shared.nbytes

    def _coming(self) -> int:
        """How many are on their way for the first time."""
        return sum(not (member.up and member.speed) and not member.deaths for member in self._members)

    def _measure(self, handed: Any, unit: Tile) -> None:
        """Whoever is up without a known speed computes one unit first: a tile might be far too large for it."""
        asked = {errand.worker for errand in self._errands.values() if errand.kind == "calibrate"}
        for worker, member in enumerate(self._members):
            if member.up and not member.speed and worker not in asked:
                self._send(self.crew.calibrate(worker, handed, unit), worker, "calibrate")

    def jacobian(self, shared: Shared) -> Matrix:
        """∂f/∂X at one step, from tiles; (m, d) float32."""
        began = self._clock()
        grid = grid_of(self.way, len(shared.X))
        if grid != self._measured_on:  # a unit is other work now
            self._since = self._begun
            for member in self._members:
                member.speed = 0.0
        if not any(self.speeds):
            self.calibrate(shared)
        behind = {errand.worker for errand in self._errands.values()}  # at an earlier step: nothing is meant for them
        free = [0.0 if worker in behind else speed for worker, speed in enumerate(self.speeds)]
        jobs = plan(grid, free if any(free) else self.speeds)
        (_, unit), *_ = grid.tiles(0, 1)
        handed = self.crew.share(shared)
        self._begun += 1  # one that failed must not lend its number: its tiles may still come
        step = _Step(self._begun, jobs, self.crew.size)
        while step.missing:
            self._measure(handed, unit)
            self._hand_out(step, handed)
            self._listen({step.number: step})
        J = np.zeros(shared.X.shape, np.float32)
        for job, part in zip(jobs, step.parts, strict=True):  # in the plan's order, whoever was first
            assert part is not None
            self.way.place(J, job.tile, part.value)
            self.tally.bytes_moved += part.nbytes
        self.tally.bytes_moved += shared.nbytes
        self.tally.steps += 1
        self.tally.tiles += len(jobs)
        self.tally.seconds += self._clock() - began
        return J

    def _hand_out(self, step: _Step, handed: Any) -> None:
        """Keep every worker that is up busy: its own share, then others', then tiles that are overdue elsewhere."""
        now, speeds = self._clock(), self.speeds
        busy, held, since = [0] * self.crew.size, [0] * self.crew.size, [now] * self.crew.size
        for errand in self._errands.values():
            here = errand.step == step.number
            busy[errand.worker] += 1 if here else AHEAD  # still at something earlier: nothing until it is heard of
            held[errand.worker] += errand.units
            since[errand.worker] = min(since[errand.worker], errand.began)
        late = [max(0.0, now - began - units / max(speed, SLOWEST))
                for began, units, speed in zip(since, held, speeds, strict=True)]  # fmt: skip
        for worker, member in enumerate(self._members):
            while member.up and busy[worker] < AHEAD:
                job = step.next_for(worker, speeds, held, late)
                if job is None and not busy[worker]:
                    job = self._overdue(step, now)
                    self.tally.computed_twice += job is not None
                if job is None:
                    break
                tile, units = step.jobs[job].tile, step.jobs[job].units
                self._send(self.crew.start(worker, handed, tile), worker, "tile", step.number, job, units)
                busy[worker] += 1
                held[worker] += units

    def _overdue(self, step: _Step, now: float) -> int | None:
        """The tile that should have been here longest ago from everyone who was asked for it."""
        late: dict[int, float] = {}
        for errand in self._errands.values():
            if errand.step == step.number and step.parts[errand.job] is None:
                expected = AHEAD * errand.units / max(self._members[errand.worker].speed, SLOWEST)
                overdue = (now - errand.began) - SLOW * max(expected, HEARTBEAT)
                late[errand.job] = min(overdue, late.get(errand.job, overdue))
        worst = max(late, key=lambda job: late[job], default=None)
        return worst if worst is not None and late[worst] > 0 else None

    def _send(self, ticket: Hashable, worker: int, kind: str, step: int = -1, job: int = -1, units: int = 0) -> None:
        self._errands[ticket] = _Errand(worker, kind, self._clock(), step, job, units)

    def _listen(self, steps: dict[int, _Step]) -> None:
        """Take what came back; start again whoever may be."""
        for worker, member in enumerate(self._members):
            if member.back_at is not None and self._clock() >= member.back_at:
                member.back_at = None
                self.tally.restarts += 1
                self._raise_up(worker)
        self._give_up_if_nobody_comes()
        for came in self.crew.wait(list(self._errands), self._patience()):
            errand = self._errands.pop(came.ticket, None)
            if errand is None:  # of a worker that is gone by now
                continue
            if isinstance(came.value, Lost):
                self._bury(errand.worker, came.value, steps)
            elif isinstance(came.value, Failed):
                raise came.value.error
            elif errand.kind == "hello":
                self._welcome(errand.worker, came.value)
            elif errand.kind == "calibrate":
                self._members[errand.worker].speed = 1.0 / max(came.value, 1e-9)
            else:
                self._take(errand, came.value, steps.get(errand.step))

    def _patience(self) -> float:
        waiting = [m.back_at - self._clock() for m in self._members if m.back_at is not None]
        return max(0.0, min([HEARTBEAT, *waiting]))

    def _take(self, errand: _Errand, part: Part, step: _Step | None) -> None:
        member = self._members[errand.worker]
        member.deaths = 0
        if errand.step > self._since:
            speed = errand.units / max(part.seconds, 1e-9)
            member.speed = (1 - MEMORY) * member.speed + MEMORY * speed if member.speed else speed
        if step is not None:  # else a straggler of an earlier step: its tile has been computed elsewhere
            step.take(errand.job, part)

    def _raise_up(self, worker: int) -> None:
        self._send(self.crew.raise_up(worker), worker, "hello")

    def _welcome(self, worker: int, who: Hello) -> None:
        other = {name: theirs for name, theirs in who.alike.items() if self._alike.get(name) != theirs}
        if other:
            raise ClusterError(
                f"worker on {who.host}", "must run the versions of this program, or results would differ in their bits",
                found=", ".join(f"{name} {theirs} (here {self._alike.get(name)})" for name, theirs in other.items()),
                fix="install constraints.txt's versions on every node; DISTCONDENSE_BACKEND=numba needs no compiler",
            )  # fmt: skip
        if who.blas != self._blas and who.host not in self._odd:
            self._odd.add(who.host)
            self.say(
                f"worker on {who.host} has another processor (BLAS {who.blas}, here {self._blas}): a model made of "
                "matrix products may differ in its last bits there; trees do not"
            )
        member = self._members[worker]
        member.up, member.who = True, who

    def _bury(self, worker: int, lost: Lost, steps: dict[int, _Step]) -> None:
        """Take a lost worker's tiles back, and plan its return."""
        member = self._members[worker]
        member.up = False
        member.deaths += 1
        self.crew.drop(worker)
        for ticket in [t for t, errand in self._errands.items() if errand.worker == worker]:
            del self._errands[ticket]
        for step in steps.values():
            step.take_back(self._errands.values())
        self.tally.causes.append(lost.cause)
        if lost.hopeless or member.deaths > self.config.max_restarts:
            again = "" if lost.hopeless else f" {member.deaths} times in a row"
            raise ClusterError(
                f"worker {worker}", "must stay alive", found=f"lost{again}: {lost.cause}", fix=_fix(lost.cause)
            )
        wait = self.config.backoff * 2 ** (member.deaths - 1)
        member.back_at = self._clock() + wait
        self.say(f"worker {worker} lost ({lost.cause}); its tiles go to others, it is started again in {wait:g} s")

    def _give_up_if_nobody_comes(self) -> None:
        if any(member.up for member in self._members):
            self._nobody_since = None
            return
        now = self._clock()
        self._nobody_since = now if self._nobody_since is None else self._nobody_since
        if now - self._nobody_since > self.config.start_timeout:
            raise ClusterError(
                "cluster", f"must bring up a worker within {self.config.start_timeout:g} s",
                found=self.crew.resources_free(),
                fix="free or add nodes, or ask for less per actor (num_cpus, num_gpus)",
            )  # fmt: skip


class _Step:
    """The jobs of one step, and how far they are."""

    def __init__(self, number: int, jobs: list[Job], workers: int) -> None:
        self.number, self.jobs = number, jobs
        self.parts: list[Part | None] = [None] * len(jobs)
        self.missing = len(jobs)
        self._queues: list[deque[int]] = [deque() for _ in range(workers)]
        for index, job in enumerate(jobs):
            self._queues[job.worker].append(index)

    def next_for(self, worker: int, speeds: Sequence[float], held: Sequence[int], late: Sequence[float]) -> int | None:
        """The next job of this worker; where it has none left, the last of whoever would take longest.

        Unless it would take longer itself: a tile that is meant for a fast worker is large. `held` are the units in
        each one's hands, `late` the seconds by which they are overdue: for one that is stalled they grow and grow.
        """
        if self._queues[worker]:
            return self._queues[worker].popleft()

        def left(other: int) -> float:
            return sum(self.jobs[job].units for job in self._queues[other]) / max(speeds[other], SLOWEST) + late[other]

        slowest = max((k for k, queue in enumerate(self._queues) if queue), key=left, default=None)
        if slowest is None:
            return None
        mine = (held[worker] + self.jobs[self._queues[slowest][-1]].units) / max(speeds[worker], SLOWEST)
        return self._queues[slowest].pop() if mine <= left(slowest) else None

    def take(self, job: int, part: Part) -> None:
        if self.parts[job] is None:
            self.parts[job] = part
            self.missing -= 1

    def take_back(self, errands: Any) -> None:
        """Queue again what is neither here, nor queued, nor in anybody's hands."""
        held = {errand.job for errand in errands if errand.step == self.number}
        held |= {job for queue in self._queues for job in queue}
        for index, part in enumerate(self.parts):
            if part is None and index not in held:
                self._queues[self.jobs[index].worker].appendleft(index)


def _fix(cause: str) -> str:
    if "memory" in cause:
        return "give each actor more memory (fewer actors, a larger node), or use a smaller model"
    if "not installed" in cause:
        return "install it on every node, or list it under pip in cluster/runtime_env.yaml"
    return "look at the worker's log on its node (ray logs actor)"
