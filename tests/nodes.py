"""Two real Ray nodes on loopback, for tests that join and leave them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.cluster_utils import Cluster as RayCluster

from distcondense.cluster.ray._ray_private import patient_start

HANG = 600.0  # seconds: for what hangs, not for what is slow
NODE = {"node_ip_address": "127.0.0.1", "object_store_memory": 80 * 2**20}


@contextmanager
def two_nodes(**second: Any) -> Iterator[RayCluster]:
    """A head and a second node, of two cores each."""
    with patient_start(int(HANG)):
        cluster = RayCluster(
            initialize_head=True,
            head_node_args={
                **NODE,
                "num_cpus": 2,
                "include_dashboard": False,
                "_system_config": {"metrics_report_interval_ms": 500},
            },
        )
        cluster.add_node(**NODE, num_cpus=2, **second)
        try:
            yield cluster
        finally:
            cluster.shutdown()
