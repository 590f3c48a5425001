"""`Cluster`: every setting of a run on Ray, in one checked object."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from numbers import Integral, Real

from distcondense.errors import ClusterError, SettingsError, brief, need

IN_A_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray gives it to the command of a job
STORE_SHARE = 0.8  # of a node's object store that a step's rows and answers, or the model, may fill


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where a run is spread, and how patient it is with machines that die.

    Parameters
    ----------
    address
        HOST:PORT of a head node to join, or "auto" on a machine of the cluster; "local" starts a cluster on this
        machine; empty takes the one that RAY_ADDRESS names, else starts one here.
    actors
        How many workers; as many as the cluster's cores (GPUs, where `num_gpus` is given) allow if None.
    num_cpus
        Cores of each actor; its models use as many threads.
    num_gpus
        GPUs of each actor; above 0 the structured Jacobian is computed on them.
    max_restarts
        How often in a row an actor is started again before the run gives up.
    backoff
        Seconds before an actor's first restart; doubled for each further one.
    start_timeout
        Seconds without room for a single actor before the run gives up; ten times as many for one that has its cores
        and is starting: a busy machine is slow, and a large model takes its time.
    hung_after
        Seconds without an answer before a worker counts as hung and is replaced.
    object_store_memory
        Bytes of Ray's object store, of a cluster that is started here; Ray's own choice if None.

    Raises
    ------
    SettingsError
        Where a number is not one, or outside its range.

    Examples
    --------
    Nothing is started by making one: hand it to `dc.condense(cohort, cluster=…)`.

    >>> import distcondense as dc
    >>> cluster = dc.Cluster(address="local", actors=4, num_cpus=2)
    >>> cluster.starts_here, cluster.threads
    (True, 2)
    >>> dc.Cluster(actors=0)
    Traceback (most recent call last):
    distcondense.errors.SettingsError: cluster: actors: must be at least 1. Found 0. Fix: leave it out.
    """

    address: str = ""
    actors: int | None = None
    num_cpus: float = 1
    num_gpus: float = 0
    max_restarts: int = 3
    backoff: float = 0.5
    start_timeout: float = 60
    hung_after: float = 300
    object_store_memory: int | None = None

    def __post_init__(self) -> None:
        need(self.address, str, "cluster: address", "a text")
        for entry in fields(self):
            value = getattr(self, entry.name)
            whole = entry.name in ("actors", "max_restarts", "object_store_memory")
            if entry.name != "address" and not (value is None and entry.default is None):
                need(
                    value,
                    Integral if whole else Real,
                    f"cluster: {entry.name}",
                    "a whole number" if whole else "a number",
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


def check_store(size: float, need: float, what: str, instead: str) -> None:
    """`need` bytes of `what` must fit a node's object store of `size`, or Ray would put them on disk or stall."""
    if need > STORE_SHARE * size:
        raise ClusterError(
            "object store",
            f"must hold {need / 2**20:.0f} MiB of {what} on every node",
            found=f"{size / 2**20:.0f} MiB, of which {100 * STORE_SHARE:.0f}% may be used",
            fix=f"start the nodes with a larger --object-store-memory, or use {instead}",
        )
