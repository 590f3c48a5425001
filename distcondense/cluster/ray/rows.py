"""`RowWorker`s as Ray actors (`RayHands`), and a large table opened on a cluster (`opened_on`).

Loads travel from reader to owner through the object store; the driver holds their references only. Sums go to the
driver as the values of calls, and are dropped once they are added up.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from distcondense.cluster.config import Cluster
from distcondense.cluster.dispatch import Failed, Lost, Settled
from distcondense.cluster.ray.processes import OUT_OF_MEMORY, cause_of, end_process, environment, would_fail_again
from distcondense.cluster.ray.session import Session, connected, load_ray
from distcondense.cluster.row_crew import GONE, RowCrew
from distcondense.cluster.row_worker import Job, RowWorker, sweep
from distcondense.cluster.worker import Identity
from distcondense.data.files import fewer
from distcondense.errors import ClusterError, UserError


class RowActor(RowWorker):
    """A `RowWorker` in a process of its own."""

    def identity(self) -> Identity:
        return replace(super().identity(), node=load_ray().get_runtime_context().get_node_id())

    def call(self, what: str, *given: Any) -> Any:
        """Errors come back as values: raised, Ray would write their text, and what they hold, into its logs."""
        try:
            return getattr(self, what)(*given)
        except UserError as error:
            return Failed(error)
        except MemoryError:
            return Lost(OUT_OF_MEMORY)
        except Exception as error:
            return Failed(
                ClusterError(
                    f"worker on {socket.gethostname()}",
                    f"must be able to {what}",
                    found=type(error).__name__,
                    fix="look at its log (ray logs actor)",
                )
            )

    def parted(
        self, number: int, wanted: Mapping[int, Sequence[int]], of: int, sampled: bool, own: int
    ) -> tuple[Any, ...]:
        found = self.call("read", number, wanted, of, sampled, own)
        return found if isinstance(found, tuple) else (found, *[None] * of)


class RayHands:
    """Actors; the `Hands` of `row_crew.py`."""

    def __init__(self, session: Session, config: Cluster, job: Job) -> None:
        self._ray, self.config = load_ray(), config
        self.size = config.actors or session.places("actor", config.num_cpus)
        job.table.pieces = fewer(job.table.pieces, self.size)  # before anybody is told of them by number
        self._job = job
        self._packed = self._ray.put(job)
        self._remote = self._ray.remote(RowActor)
        self._actors: list[Any] = [None] * self.size
        self._who: list[Identity | None] = [None] * self.size
        self._named: dict[Any, int] = {}
        self._lost = False  # somebody may have left files behind

    def launch(self, worker: int, owned: Sequence[int]) -> Any:
        actor = self._remote.options(
            num_cpus=self.config.num_cpus,
            max_restarts=0,
            scheduling_strategy="SPREAD",
            runtime_env=environment(self.config.threads),
        ).remote(self._packed, list(owned))
        self._actors[worker], ticket = actor, actor.identity.remote()
        self._named[ticket] = worker
        return ticket

    def read(
        self, worker: int, piece: int, wanted: Mapping[int, Sequence[int]], sampled: bool
    ) -> tuple[Any, list[Any]]:
        asked = self._actors[worker].parted.options(num_returns=self.size + 1)
        first, *loads = asked.remote(piece, wanted, self.size, sampled, worker if worker in wanted else -1)
        return first, loads

    def ask(self, worker: int, what: str, *given: Any) -> Any:
        return self._actors[worker].call.remote(what, *given)

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Settled]:
        if not tickets:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(tickets), num_returns=len(tickets), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(tickets), num_returns=1, timeout=seconds)
        return [Settled(ticket, self._value(ticket)) for ticket in ready]

    def _value(self, ticket: Any) -> Any:
        errors = self._ray.exceptions
        try:
            value = self._ray.get(ticket)
        except errors.ObjectLostError:
            return Lost(GONE)
        except errors.RayTaskError as error:  # what it was to take is gone, or it could not even begin
            cause = error.cause if isinstance(error.cause, BaseException) else error
            if isinstance(cause, errors.ObjectLostError | errors.RayActorError):
                return Lost(GONE)
            return Lost(cause_of(error), again=not isinstance(cause, ImportError))
        except errors.RayError as error:
            return Lost(cause_of(error), again=not would_fail_again(error))
        if (worker := self._named.pop(ticket, None)) is not None:
            self._who[worker] = value
        return value

    def drop(self, worker: int) -> None:
        """End an actor, also one whose process is stopped and hears nothing."""
        self._lost = True
        actor, who = self._actors[worker], self._who[worker]
        self._actors[worker] = self._who[worker] = None
        if actor is not None:
            self._ray.kill(actor, no_restart=True)
        if who is not None:
            end_process(who)

    def close(self) -> None:
        lost = self._lost or None in self._actors
        closing = [None if actor is None else actor.call.remote("close") for actor in self._actors]
        for worker, ticket in enumerate(closing):
            if ticket is not None:
                try:
                    lost |= self._ray.get(ticket, timeout=10) is not None
                except Exception:
                    lost = True
                self.drop(worker)
        if lost:  # whoever closes takes its files with it; a process just for looking takes seconds
            on_every_node(sweep, self._job.name, self._job.scratch)


def on_every_node(function: Callable[..., Any], *given: Any) -> None:
    ray = load_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    tickets = [
        ray.remote(function)
        .options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False), max_retries=0
        )
        .remote(*given)
        for node in ray.nodes()
        if node["alive"]
    ]
    with suppress(ray.exceptions.RayError):
        ray.wait(tickets, num_returns=len(tickets), timeout=10)


class RowMeters:
    """How far a table is read, on Ray's dashboard and its Prometheus endpoint: counts of rows, bytes and shards."""

    def __init__(self) -> None:
        load_ray()
        from ray.util.metrics import Gauge

        about = {
            "rows_per_second": "Rows read per second.",
            "rows_read": "Rows read so far.",
            "bytes_read": "Bytes read so far.",
            "shards": "Owners that have their rows.",
            "seconds_left": "Seconds until all rows are read, about.",
            "restarts": "Workers replaced.",
            "moved": "Buckets that went from slow workers to others.",
        }
        self._gauges = {name: Gauge(f"distcondense_rows_{name}", description=text) for name, text in about.items()}

    def __call__(self, facts: dict[str, float]) -> None:
        for name, value in facts.items():
            self._gauges[name].set(value)


@contextmanager
def crew_on(config: Cluster, job: Job, log: Callable[[str], None]) -> Iterator[RowCrew]:
    """A crew that has read the table, for the length of a `with`."""
    cpus = None if config.actors is None else max(1, round(config.actors * config.num_cpus))
    with connected(config, cpus=cpus) as session:
        log(str(session))
        hands = RayHands(session, config, job)
        try:
            crew = RowCrew(hands, job, config, log=log, meter=RowMeters())
            crew.open()
            yield crew
        finally:
            hands.close()
