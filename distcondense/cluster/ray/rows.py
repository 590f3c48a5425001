"""A large table opened on a cluster: `RemoteShards` over Ray actors.

Loads travel from reader to owner through the object store; the driver holds their references only. Sums go to the
driver as the values of calls, and are dropped once they are added up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from distcondense.cluster.config import Cluster
from distcondense.cluster.pool import WorkerPool
from distcondense.cluster.ray.actors import RayWorkers, RowActor, stored
from distcondense.cluster.ray.gauges import ROWS, Gauges
from distcondense.cluster.ray.session import connected, load_ray
from distcondense.cluster.remote_shards import RemoteShards
from distcondense.cluster.row_worker import ShardPlan, sweep
from distcondense.data.files import fewer


@contextmanager
def remote_shards(
    config: Cluster,
    shard_plan: ShardPlan,
    log: Callable[[str], None] = lambda line: None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[RemoteShards]:
    """Shards of a table that a cluster's actors have read, for the length of a `with`."""
    with connected(config) as session:
        log(str(session))
        size = config.actors or session.places("actor", config.num_cpus)
        shard_plan.table.pieces = fewer(shard_plan.table.pieces, size)  # before anybody is told of them by number
        workers = RayWorkers(RowActor, [stored(shard_plan)], size, config, scheduling_strategy="SPREAD")
        meter = partial(Gauges(ROWS).set, prefix="rows_")
        shards = RemoteShards(workers, shard_plan, config, log=log, clock=clock, meter=meter)
        try:
            shards.open()
            yield shards
        finally:
            if not _close(shards.pool):
                on_every_node(sweep, shard_plan.name, shard_plan.scratch)


def _close(pool: WorkerPool) -> bool:
    """End all workers; whether each of them has taken its files with it. Looking for files takes seconds."""
    ray = load_ray()
    closing = [pool.workers.call(worker, "close")[0] for worker, member in enumerate(pool.members) if member.up]
    well = not pool.causes and len(closing) == pool.workers.size
    try:
        well &= all(answer is None for answer in ray.get(closing, timeout=10))
    except ray.exceptions.RayError:
        well = False
    pool.close()
    return well


def on_every_node(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function on every node of the cluster that is alive; at most ten seconds are waited for it."""
    ray = load_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    tickets = [
        ray.remote(function)
        .options(
            num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False), max_retries=0
        )
        .remote(*arguments)
        for node in ray.nodes()
        if node["alive"]
    ]
    with suppress(ray.exceptions.RayError):
        ray.wait(tickets, num_returns=len(tickets), timeout=10)
