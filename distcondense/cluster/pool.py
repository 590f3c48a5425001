"""`WorkerPool`: workers that are started, watched and replaced, whatever they compute. Knows no Ray.

`TileDispatcher` (tiles.py) asks its workers for tiles of a Jacobian, `RemoteShards` (remote_shards.py) for sums over
the rows of a large table. Both hear the same of a worker that dies, hangs or never comes; what was asked of it is asked
again, and as an answer depends on what was asked alone, it does not matter who gives it, how often, or in which order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from distcondense.cluster.config import Cluster
from distcondense.cluster.worker import Identity, blas_kernels, versions
from distcondense.errors import ClusterError

HEARTBEAT = 0.25  # seconds between looks at the clock while nothing comes back
PATIENCE = 10  # times start_timeout, for a worker that has its cores and is starting
STARTING = ("identity", "calibrate")  # answers that do not clear a worker's record: it has done nothing yet


@dataclass(frozen=True)
class WorkerLost:
    """A worker is gone; `again` is False where starting it again would end the same way."""

    cause: str
    again: bool = True


@dataclass(frozen=True)
class InputLost(WorkerLost):
    """What a call was to work on is gone, with the worker that made it; the worker that was called may be well."""

    cause: str = "what it was to work on is gone"


@dataclass(frozen=True)
class Outlook:
    """What is to be expected of workers that are not up: how many have cores and are starting, and what is free."""

    starting: int
    free: str


class Workers(Protocol):
    """Processes that are called by number and answer by ticket (`ray.actors.RayWorkers`)."""

    size: int

    def launch(self, worker: int, *arguments: Any) -> Hashable:
        """Start a new worker in this place; the ticket of its `Identity`."""

    def put(self, value: Any) -> Any:
        """Hand a value over once; what calls are then given in its place."""

    def call(self, worker: int, method: str, *arguments: Any, parts: int = 0) -> tuple[Hashable, list[Any]]:
        """The ticket of an answer, and `parts` further results, which stay where they are until a call is given one."""

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[tuple[Hashable, Any]]:
        """Tickets that have an end after at most so many seconds, each with its answer, an error or `WorkerLost`.

        An error is one of the model or of the table: the worker that met it is well.
        """

    def drop(self, worker: int, identity: Identity | None) -> None:
        """End a worker, also one that hears nothing any more."""

    def outlook(self) -> Outlook: ...


@dataclass(frozen=True)
class Request:
    """What a worker was asked for and has not answered yet."""

    worker: int
    method: str
    began: float
    work: Any = None  # what the caller wants to know of it when the answer comes
    parts: Sequence[Any] = ()
    may_lose_input: bool = False


@dataclass
class Member:
    """What is known of one worker."""

    up: bool = False
    identity: Identity | None = None
    launches: int = 0
    launched_at: float = 0.0
    heard_at: float = 0.0  # when it last answered
    losses: int = 0  # in a row, since it last answered
    restart_at: float | None = None


@dataclass
class WorkerPool:
    """Starts workers, refuses those that would compute other bits, replaces those that die or hang.

    Parameters
    ----------
    workers
        The processes; on Ray they are actors.
    config
        How patient to be: `max_restarts`, `backoff`, `start_timeout`, `hung_after`.
    needed
        With fewer workers than this nothing can go on: one for tiles, all of them for rows.
    arguments
        What the worker with this number is started with.
    on_loss
        Called with the number of a worker that is gone, before it is started again.

    Raises
    ------
    ClusterError
        Where a worker is lost more than `max_restarts` times in a row, has other versions than this program, or too
        few of them come up.
    """

    workers: Workers
    config: Cluster
    needed: int = 1
    arguments: Callable[[int], tuple[Any, ...]] = lambda worker: ()
    on_loss: Callable[[int], None] = lambda worker: None
    clock: Callable[[], float] = time.monotonic
    log: Callable[[str], None] = lambda line: None
    requests: dict[Hashable, Request] = field(default_factory=dict)
    restarts: int = 0
    causes: list[str] = field(default_factory=list)  # why workers were lost

    def __post_init__(self) -> None:
        self.members = [Member() for _ in range(self.workers.size)]
        self._versions, self._blas = versions(), blas_kernels()
        self._logged: set[str] = set()  # hosts with another processor; "patience"
        for worker in range(self.workers.size):
            self._launch(worker)

    def call(
        self, worker: int, method: str, *arguments: Any, work: Any = None, parts: int = 0, may_lose_input: bool = False
    ) -> None:
        """Ask a worker; its answer comes out of `receive`, with `work`."""
        ticket, rest = self.workers.call(worker, method, *arguments, parts=parts)
        self.requests[ticket] = Request(worker, method, self.clock(), work, rest, may_lose_input)

    def receive(self) -> Iterator[tuple[Request, Any]]:
        """What came back from workers that are well; who is lost or hangs is replaced on the way."""
        for worker, member in enumerate(self.members):
            if member.restart_at is not None and self.clock() >= member.restart_at:
                self.restarts += 1
                self._launch(worker)
        self._give_up_if_too_few_come()
        restarts = [member.restart_at - self.clock() for member in self.members if member.restart_at is not None]
        for ticket, value in self.workers.wait(list(self.requests), max(0.0, min([HEARTBEAT, *restarts]))):
            request = self.requests.pop(ticket, None)
            if request is None or (request.may_lose_input and isinstance(value, InputLost)):
                continue  # of a worker that is gone by now; or to be asked again, with another input
            if isinstance(value, BaseException):
                raise value
            if isinstance(value, WorkerLost):
                self.lose(request.worker, value)
                continue
            member = self.members[request.worker]
            member.heard_at = self.clock()
            if request.method not in STARTING:
                member.losses = 0
            if request.method == "identity":
                self._admit(member, value)
            else:
                yield request, value
        self._replace_the_hung()

    def lose(self, worker: int, lost: WorkerLost) -> None:
        """Forget what a lost worker was asked for, and plan its return."""
        member = self.members[worker]
        self.workers.drop(worker, member.identity)
        member.up, member.identity, member.losses = False, None, member.losses + 1
        self.requests = {ticket: request for ticket, request in self.requests.items() if request.worker != worker}
        self.causes.append(lost.cause)
        self.on_loss(worker)
        if not lost.again or member.losses > self.config.max_restarts:
            times = f" {member.losses} times in a row" if lost.again else ""
            raise ClusterError(
                f"worker {worker}", "must stay alive", found=f"lost{times}: {lost.cause}", fix=_fix(lost.cause)
            )
        wait = self.config.backoff * 2 ** (member.losses - 1)
        member.restart_at = self.clock() + wait
        self.log(f"worker {worker} lost ({lost.cause}); its work is done again, it is started again in {wait:g} s")

    def close(self) -> None:
        """End all workers."""
        for worker, member in enumerate(self.members):
            self.workers.drop(worker, member.identity)

    def _launch(self, worker: int) -> None:
        member, now = self.members[worker], self.clock()
        member.launches, member.launched_at, member.restart_at = member.launches + 1, now, None
        self.requests[self.workers.launch(worker, *self.arguments(worker))] = Request(worker, "identity", now)

    def _admit(self, member: Member, identity: Identity) -> None:
        theirs = {name: value for name, value in identity.versions.items() if self._versions.get(name) != value}
        if theirs:
            raise ClusterError(
                f"worker on {identity.host}",
                "must run the versions of this program, or results would differ in their bits",
                found=", ".join(f"{name} {value} (here {self._versions.get(name)})" for name, value in theirs.items()),
                fix="install constraints.txt's versions on every node; DISTCONDENSE_BACKEND=numba needs no compiler",
            )
        if identity.blas not in ("", self._blas) and identity.host not in self._logged:
            self._logged.add(identity.host)
            self.log(
                f"worker on {identity.host} has another processor (BLAS {identity.blas}, here {self._blas}): a model "
                "made of matrix products may differ in its last bits there; trees do not"
            )
        member.up, member.identity = True, identity

    def _replace_the_hung(self) -> None:
        """Who was asked and has not answered anything for `hung_after` seconds counts as lost."""
        now, oldest = self.clock(), dict[int, float]()
        for request in self.requests.values():
            if request.method != "identity":  # of one that is starting `_give_up_if_too_few_come` knows
                oldest[request.worker] = min(request.began, oldest.get(request.worker, now))
        for worker, began in oldest.items():
            if now - max(began, self.members[worker].heard_at) > self.config.hung_after:
                self.lose(worker, WorkerLost(f"no answer within {self.config.hung_after:g} s"))

    def _give_up_if_too_few_come(self) -> None:
        """Who has cores and is starting is waited for longer than room for the one worker that is needed."""
        missing = self.needed - sum(member.up for member in self.members)
        starting = [member for member in self.members if not member.up and member.restart_at is None]
        if missing <= 0 or len(starting) < missing:
            return
        least = self.config.start_timeout
        waited = self.clock() - sorted(member.launched_at for member in starting)[-missing]
        if waited <= least:
            return
        outlook = self.workers.outlook()
        if self.needed == 1 and not outlook.starting:  # where all are needed, others may make room
            raise ClusterError(
                "cluster",
                f"must have room for one worker within {least:g} s",
                found=outlook.free,
                fix="free or add nodes, ask for less per actor (num_cpus, num_gpus), or raise start_timeout",
            )
        if waited > PATIENCE * least:
            raise ClusterError(
                "cluster",
                f"must bring up {'a' if self.needed == 1 else 'every'} worker within {PATIENCE * least:g} s",
                found=f"{missing} of {self.needed} missing, {outlook.starting} that have their cores and do not answer",
                fix="free or add nodes, ask for fewer or smaller actors (--actors, --num-cpus), look at the workers' "
                "logs (ray logs actor), or raise start_timeout; then --resume",
            )
        if "patience" not in self._logged:
            self._logged.add("patience")
            self.log(f"too few workers are up after {least:g} s; {outlook.starting} have their cores and are starting")


def _fix(cause: str) -> str:
    if "memory" in cause:
        return "give each actor more memory (fewer actors, a larger node), or use a smaller model; then --resume"
    if "not installed" in cause:
        return "install it on every node, or list it under pip in cluster/runtime_env.yaml"
    return "look at the worker's log on its node (ray logs actor); a run with a folder goes on with --resume"
