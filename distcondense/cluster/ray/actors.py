"""The actors of a run, each with a `Worker` in a process of its own (`RayCrew`), and its gauges (`Meters`)."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from distcondense.cluster.config import Cluster, check_store
from distcondense.cluster.dispatch import Failed, Lost, Outlook, Settled
from distcondense.cluster.ray.processes import OUT_OF_MEMORY, cause_of, end_process, environment, would_fail_again
from distcondense.cluster.ray.session import Session, load_ray
from distcondense.cluster.worker import Identity, Shared, Worker
from distcondense.errors import ClusterError, UserError
from distcondense.models.base import Model
from distcondense.models.jacobian import JacobianPath, Tile


class Actor(Worker):
    """A `Worker` in a process of its own.

    The model comes as bytes: unpickled from Ray's store its arrays would be read-only, which scikit-learn refuses.
    """

    def __init__(self, packed: bytes, *arguments: Any) -> None:
        self._refused: UserError | None = None
        try:
            super().__init__(pickle.loads(packed), *arguments)
            self.refuse_interpreter()
        except UserError as error:  # raised here, Ray would only say that the actor died
            self._refused = error

    def identity(self) -> Identity:
        if self._refused is not None:
            raise self._refused
        return replace(super().identity(), node=load_ray().get_runtime_context().get_node_id())


class RayCrew:
    """Actors that each hold a `Worker`; the `Crew` of `dispatch.py`."""

    def __init__(self, session: Session, config: Cluster, model: Model, path: JacobianPath) -> None:
        self._ray = load_ray()
        self.config, self.path = config, path
        self.size = config.actors or 0
        if not self.size or session.started_here:  # a cluster that is joined may grow to what was said
            places = session.places("actor", config.num_cpus, gpus=config.num_gpus)
            self.size = self.size or places
        from ray import cloudpickle

        try:
            packed = cloudpickle.dumps(model)
        except Exception as error:  # a lock, a file, a connection: each has an error of its own
            raise ClusterError(
                "reference model",
                "must be one that can be pickled, to travel to the workers",
                found=type(error).__name__,
                fix="make what cannot travel in the function itself, or run without Ray",
            ) from None
        check_store(session.object_store, len(packed), "the model", "a smaller model")
        self._model = self._put(packed, "the model")  # once; restarted actors read it from there, too
        self._remote = self._ray.remote(Actor)
        self._actors: list[Any] = [None] * self.size
        self._identified: list[Any] = [None] * self.size  # the ticket of each one's identity
        self._who: list[Identity | None] = [None] * self.size

    def launch(self, worker: int) -> Any:
        """A new actor in the place of `worker`; the ticket of its `Identity`."""
        options = {"num_cpus": self.config.num_cpus, "num_gpus": self.config.num_gpus, "max_restarts": 0}
        actor = self._remote.options(**options, runtime_env=environment(self.config.threads)).remote(
            self._model, self.path, self.config.threads, self.config.num_gpus > 0
        )
        self._actors[worker], self._identified[worker] = actor, actor.identity.remote()
        return self._identified[worker]

    def put(self, shared: Shared) -> Any:
        """X and the widths into the object store, once a step."""
        return self._put(shared, "the rows of a step")

    def _put(self, value: Any, what: str) -> Any:
        try:
            return self._ray.put(value)
        except self._ray.exceptions.ObjectStoreFullError:
            raise ClusterError(
                "object store",
                f"must hold {what}",
                found="a full object store",
                fix="give the nodes more object_store_memory, or use a smaller IPC or model",
            ) from None

    def calibrate(self, worker: int, shared: Any, tile: Tile) -> Any:
        return self._actors[worker].calibrate.remote(shared, tile)

    def start(self, worker: int, shared: Any, tile: Tile) -> Any:
        return self._actors[worker].tile.remote(shared, tile)

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Settled]:
        """What came back: answers, errors of the model, or the news that a worker is gone."""
        if not tickets:  # everybody is gone; Ray would return at once, and the caller spin
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(tickets), num_returns=len(tickets), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(tickets), num_returns=1, timeout=seconds)
        settled = [Settled(ticket, self._value(ticket)) for ticket in ready]
        for one in settled:
            if isinstance(one.value, Identity):
                self._who[self._identified.index(one.ticket)] = one.value
        return settled

    def _value(self, ticket: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ticket)
        except (
            errors.RayActorError,
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.RuntimeEnvSetupError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
            errors.RaySystemError,
        ) as error:
            return Lost(cause_of(error), again=not would_fail_again(error))
        except errors.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, BaseException) else error
            if isinstance(cause, MemoryError):
                return Lost(OUT_OF_MEMORY)
            if isinstance(cause, ImportError):
                return Lost(cause_of(error), again=False)
            return Failed(cause)

    def drop(self, worker: int) -> None:
        """End what is left of an actor, also where its process is stopped and hears nothing."""
        if self._actors[worker] is not None:
            self._ray.kill(self._actors[worker], no_restart=True)
            if (who := self._who[worker]) is not None:
                end_process(who)
            self._actors[worker] = self._identified[worker] = self._who[worker] = None

    def outlook(self) -> Outlook:
        """Who has cores and is starting: an actor with a process, or one that does not wait for room (any more)."""
        from distcondense.cluster.ray._ray_private import has_process, waiting_for_room

        pending = [
            actor
            for actor, ticket in zip(self._actors, self._identified, strict=True)
            if actor is not None and not self._ray.wait([ticket], timeout=0)[0]
        ]
        without = sum(not has_process(actor) for actor in pending)
        asked = {"CPU": float(self.config.num_cpus), "GPU": float(self.config.num_gpus)}
        waiting = min(without, waiting_for_room({name: amount for name, amount in asked.items() if amount}))
        free = self._ray.available_resources()
        return Outlook(
            starting=len(pending) - waiting,
            free=f"{free.get('CPU', 0):g} free cores and {free.get('GPU', 0):g} free GPUs",
        )

    def close(self) -> None:
        for worker in range(self.size):
            self.drop(worker)


class Meters:
    """The run's gauges on Ray's dashboard (and its Prometheus endpoint)."""

    def __init__(self) -> None:
        load_ray()
        from ray.util.metrics import Gauge

        def gauge(name: str, text: str, *tags: str) -> Any:
            return Gauge(f"distcondense_{name}", description=text, tag_keys=tags)

        self._gauges = {
            "steps_per_second": gauge("steps_per_second", "Steps of the loop per second."),
            "tiles_per_second": gauge("tiles_per_second", "Tiles of the Jacobian that came back per second."),
            "bytes_moved": gauge("bytes_moved", "Bytes through the object store since the run began."),
            "restarts": gauge("actor_restarts", "Actors started again since the run began."),
        }
        self._epsilon = gauge("epsilon", "Privacy spent so far; the tag says by which guarantee.", "guarantee")

    def set(self, facts: dict[str, float], epsilon: float | None, guarantee: str) -> None:
        """`facts` by the gauges' names; ε, where there is one, under the name of its guarantee."""
        for name, value in facts.items():
            self._gauges[name].set(value)
        if epsilon is not None:
            self._epsilon.set(epsilon, tags={"guarantee": guarantee})
