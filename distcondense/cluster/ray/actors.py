"""Workers as Ray actors, each in a process of its own: the `Workers` of pool.py."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from distcondense.cluster.config import Cluster, check_store
from distcondense.cluster.pool import InputLost, Outlook, WorkerLost
from distcondense.cluster.ray.processes import OUT_OF_MEMORY, cause_of, end_process, environment, would_fail_again
from distcondense.cluster.ray.session import Session, load_ray
from distcondense.cluster.row_worker import RowWorker
from distcondense.cluster.worker import Identity, TileWorker
from distcondense.errors import ClusterError, UserError
from distcondense.models.base import Model
from distcondense.models.jacobian import JacobianPath


class _Remote:
    """What an actor adds to its worker: the node it is on, and errors that come back as values."""

    holds_patients = False

    def identity(self) -> Identity:
        who: Identity = super().identity()  # type: ignore[misc]
        return replace(who, node=load_ray().get_runtime_context().get_node_id())

    def call(self, method: str, parts: int, *arguments: Any) -> Any:
        """The answer, followed by `parts` results; an error as a value.

        Raised where patients are, Ray would write an error's text, and what it holds, into its logs.
        """
        try:
            answer = getattr(self, method)(*arguments)
        except UserError as error:
            answer = error
        except MemoryError:
            answer = WorkerLost(OUT_OF_MEMORY)
        except ImportError as error:
            answer = WorkerLost(cause_of(error), again=False)
        except Exception as error:
            if not self.holds_patients:  # the model's own error, as it would be in process
                raise
            answer = ClusterError(
                f"worker on {socket.gethostname()}",
                f"must be able to {method}",
                found=type(error).__name__,
                fix="look at its log (ray logs actor)",
            )
        return (answer, *[None] * parts) if parts and not isinstance(answer, tuple) else answer


class TileActor(_Remote, TileWorker):
    """A `TileWorker` in a process of its own.

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
        return super().identity()


class RowActor(_Remote, RowWorker):
    """A `RowWorker` in a process of its own."""

    holds_patients = True


class RayWorkers:
    """Ray actors of one class, called by number.

    Parameters
    ----------
    actor
        `TileActor` or `RowActor`.
    first
        What every one of them is started with, before what it alone is started with.
    size
        How many there are.
    config
        Cores of each.
    options
        Further options of Ray for each: `num_gpus`, `scheduling_strategy`.
    """

    def __init__(self, actor: type[_Remote], first: Sequence[Any], size: int, config: Cluster, **options: Any) -> None:
        self._ray, self.size, self.config, self._first = load_ray(), size, config, first
        self._options = {"num_cpus": config.num_cpus, "max_restarts": 0, **options}
        self._holds_patients = actor.holds_patients
        self._remote = self._ray.remote(actor)
        self._actors: list[Any] = [None] * size
        self._identities: list[Any] = [None] * size  # the ticket of each one's identity

    def launch(self, worker: int, *arguments: Any) -> Any:
        """A new actor in the place of `worker`; the ticket of its `Identity`."""
        where = self._remote.options(**self._options, runtime_env=environment(self.config.threads))
        self._actors[worker] = where.remote(*self._first, *arguments)
        self._identities[worker], _ = self.call(worker, "identity")
        return self._identities[worker]

    def put(self, value: Any) -> Any:
        """A value into the object store; its reference."""
        return stored(value)

    def call(self, worker: int, method: str, *arguments: Any, parts: int = 0) -> tuple[Any, list[Any]]:
        """The reference of an answer, and those of `parts` further results."""
        called = self._actors[worker].call.options(num_returns=parts + 1).remote(method, parts, *arguments)
        ticket, *rest = called if parts else [called]
        return ticket, rest

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[tuple[Any, Any]]:
        """What came back: answers, errors of the model, or the news that a worker is gone."""
        if not tickets:  # everybody is gone; Ray would return at once, and the caller spin
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(tickets), num_returns=len(tickets), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(tickets), num_returns=1, timeout=seconds)
        return [(ticket, self._value(ticket)) for ticket in ready]

    def _value(self, ticket: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ticket)
        except errors.ObjectLostError:
            return InputLost()
        except errors.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, BaseException) else error
            if isinstance(cause, errors.ObjectLostError | errors.RayActorError):
                return InputLost()
            if not self._holds_patients and not isinstance(cause, MemoryError | ImportError):
                return cause
            return WorkerLost(cause_of(error), again=not isinstance(cause, ImportError))
        except errors.RayError as error:
            return WorkerLost(cause_of(error), again=not would_fail_again(error))

    def drop(self, worker: int, identity: Identity | None) -> None:
        """End what is left of an actor, also where its process is stopped and hears nothing."""
        if self._actors[worker] is not None:
            self._ray.kill(self._actors[worker], no_restart=True)
            if identity is not None:
                end_process(identity)
            self._actors[worker] = self._identities[worker] = None

    def outlook(self) -> Outlook:
        """Who has cores and is starting: an actor with a process, or one that does not wait for room (any more)."""
        from distcondense.cluster.ray._ray_private import has_process, waiting_for_room

        pending = [
            actor
            for actor, ticket in zip(self._actors, self._identities, strict=True)
            if actor is not None and not self._ray.wait([ticket], timeout=0)[0]
        ]
        without = sum(not has_process(actor) for actor in pending)
        amounts = {"CPU": float(self.config.num_cpus), "GPU": float(self._options.get("num_gpus", 0))}
        waiting = min(without, waiting_for_room({name: amount for name, amount in amounts.items() if amount}))
        free = self._ray.available_resources()
        return Outlook(
            starting=len(pending) - waiting,
            free=f"{free.get('CPU', 0):g} free cores and {free.get('GPU', 0):g} free GPUs",
        )


def tile_workers(session: Session, config: Cluster, model: Model, path: JacobianPath) -> RayWorkers:
    """Actors that each hold a model, for `TileDispatcher`."""
    from ray import cloudpickle

    # a cluster that is joined may grow to what was said
    places = (
        0
        if config.actors and not session.started_here
        else session.places("actor", config.num_cpus, gpus=config.num_gpus)
    )
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
    first = [stored(packed), path, config.threads, config.num_gpus > 0]  # restarted actors read the model from there
    return RayWorkers(TileActor, first, config.actors or places, config, num_gpus=config.num_gpus)


def stored(value: Any) -> Any:
    """A value in Ray's object store, once; its reference."""
    ray = load_ray()
    try:
        return ray.put(value)
    except ray.exceptions.ObjectStoreFullError:
        raise ClusterError(
            "object store",
            "must hold the model and the rows of a step",
            found="a full object store",
            fix="give the nodes more object_store_memory, or use a smaller IPC or model",
        ) from None
