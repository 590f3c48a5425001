"""`Cluster`: every knob of a run on Ray, in one checked object."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from numbers import Integral, Real

from distcondense.errors import ClusterError, SettingsError, brief, need

STORE_SHARE = 0.8  # of a node's object store that a step's rows and answers, or the model, may fill


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where a run is spread, and how patient it is with machines that die."""

    address: str = ""  # host:port to join; "local": start one here; "": the one RAY_ADDRESS names, else start one here
    actors: int | None = None  # None: as many as the cluster's cores (GPUs, where num_gpus is said) allow
    num_cpus: float = 1  # of each actor; its models use this many threads
    num_gpus: float = 0  # of each actor; above 0 the structured path runs on the GPU
    max_restarts: int = 3  # of each actor in a row, before the run gives up
    backoff: float = 0.5  # seconds before an actor's first restart; doubles with each further one
    start_timeout: float = 60  # seconds without room for a single actor, before the run gives up; ten times as many
    # for one that has its cores and is starting: a busy machine is slow, and a large model takes its time
    hung_after: float = 300  # seconds without an answer, before a worker that was asked counts as hung and is replaced
    object_store_memory: int | None = None  # bytes, of a cluster that is started here

    def __post_init__(self) -> None:
        need(self.address, str, "cluster: address", "a text")
        for entry in fields(self):
            value = getattr(self, entry.name)
            whole_ = entry.name in ("actors", "max_restarts", "object_store_memory")
            if entry.name != "address" and not (value is None and entry.default is None):
                need(
                    value,
                    Integral if whole_ else Real,
                    f"cluster: {entry.name}",
                    "a whole number" if whole_ else "a number",
                )
        for good, name, rule in (
            (self.actors is None or self.actors >= 1, "actors", "must be at least 1"),
            (self.num_cpus > 0, "num_cpus", "must be above 0"),
            (self.num_gpus >= 0, "num_gpus", "must be at least 0"),
            (self.max_restarts >= 0, "max_restarts", "must be at least 0"),
            (self.backoff >= 0, "backoff", "must be at least 0 seconds"),
            (self.start_timeout > 0, "start_timeout", "must be above 0 seconds"),
            (self.hung_after > 0, "hung_after", "must be above 0 seconds"),
        ):
            if not good:
                raise SettingsError(f"cluster: {name}", rule, found=brief(getattr(self, name)), fix="leave it out")

    @property
    def starts_here(self) -> bool:
        """A cluster of this machine is to be started; else there is one to join."""
        return (self.address or os.environ.get("RAY_ADDRESS") or "local") == "local"

    @property
    def joins(self) -> str:
        """The address to join."""
        return self.address or os.environ["RAY_ADDRESS"]

    @property
    def cores_of_actors(self) -> int | None:
        """What all actors take together, where their number is said."""
        return None if self.actors is None else max(1, round(self.actors * self.num_cpus))

    @property
    def threads(self) -> int:
        """What one actor's models may use."""
        return max(1, int(self.num_cpus))


def check_store(room: float, need: float, what: str, instead: str) -> None:
    """`need` bytes of `what` must fit a node's object store of `room`, or Ray would put them on disk or stall."""
    if need > STORE_SHARE * room:
        raise ClusterError(
            "object store",
            f"must hold {need / 2**20:.0f} MiB of {what} on every node",
            found=f"{room / 2**20:.0f} MiB, of which {100 * STORE_SHARE:.0f}% may be used",
            fix=f"start the nodes with a larger --object-store-memory, or use {instead}",
        )
