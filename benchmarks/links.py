"""What talking costs: the terms of benchmarks/scale.py's model that grow with machines, measured on loopback.

    python -m benchmarks.links

Real row workers on two real Ray nodes (two raylets on this machine, TCP over loopback between them): the seconds of a
round (a public step and a question to every actor, and its sums back) with 1, 2, 4 and 8 actors, and the driver's own
share of it, which no other machine can take over; bytes of sums that the driver takes in per second of its own; bytes
of coded records per second from the actor that read them to one on the other node that owns them; the driver's own
seconds for each load of them, and for each call that takes some; how many bytes an answer and a record have. What
loopback cannot tell is the bandwidth and the latency of a network.
Results go to results/scale-links.json.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.scale import COINS, made, schema, target
from distcondense.cluster.config import Cluster
from distcondense.cluster.shards import opened_on
from distcondense.data import files
from distcondense.data.large import LargeTable
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import PreparedPrivate, prepare
from distcondense.privacy import noise
from distcondense.privacy.gate import gate_over
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import HistogramQuery, ShiftScores

ACTORS = (1, 2, 4, 8)
ROUNDS = 60  # of which the median counts
MOST_CELLS = 2**15  # of an answer of many bytes
HANDED = 16  # pieces that are read and taken, one by one and all at once
STORE = 200 * 2**20


@contextmanager
def two_nodes() -> Iterator[str]:
    """The address of a cluster of two nodes on loopback, one core each."""
    os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}
    with tempfile.TemporaryDirectory() as folder:
        token = Path(folder) / "token"
        token.touch(mode=0o600)
        token.write_text(secrets.token_hex(32))
        os.environ["RAY_AUTH_TOKEN_PATH"] = str(token)
        from ray.cluster_utils import Cluster as RayCluster

        from distcondense.cluster.ray._ray_private import patient_start

        node = {"node_ip_address": "127.0.0.1", "object_store_memory": STORE, "num_cpus": 1}
        with patient_start(300):
            nodes = RayCluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
            try:
                nodes.add_node(**node)
                yield str(nodes.address)
            finally:
                nodes.shutdown()


def seconds_of(call: Callable[[], Any], times: int) -> tuple[float, float]:
    """The median of so many calls, after a few that do not count; and this process's own share of one, of CPU."""
    found, cpu = [], 0.0
    for number in range(-3, times):
        if number == 0:
            cpu = time.process_time()
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return median(found[3:]), (time.process_time() - cpu) / times


@contextmanager
def opened(address: str, actors: int, table: LargeTable, public: PreparedPrivate, folder: Path) -> Iterator[Any]:
    where = Cluster(address=address, actors=actors, num_cpus=2 / max(actors, 2), start_timeout=300)
    cells, objective, most = public.cells, public.side.objective, public.rows_per_person
    with opened_on(where, table, cells, objective, COINS, most, scratch_=folder) as rows:
        yield rows


def rounds(rows: Any, public: PreparedPrivate) -> dict[str, float]:
    """Seconds of an answer of few bytes, with a step before it, and of one of many; over all actors."""
    sizes = [one.size for one in public.cells]
    pairs = [(first, second) for second in range(len(sizes)) for first in range(second)]
    pair = max(
        (pair for pair in pairs if sizes[pair[0]] * sizes[pair[1]] <= MOST_CELLS),
        key=lambda pair: sizes[pair[0]] * sizes[pair[1]],
    )
    few, many = HistogramQuery((), "none"), HistogramQuery(pair, "label")
    step = ShiftScores((), np.zeros(1))
    asks: dict[str, tuple[int, Callable[[], Any]]] = {
        "few": (ROUNDS, lambda: (rows.shards.apply(step), list(rows.shards.counted(few, noise.GRID)))[1]),
        "many": (ROUNDS // 4, lambda: list(rows.shards.counted(many, noise.GRID))),
    }
    found = {f"{name}_bytes": float(sum(part.values.nbytes for part in asks[name][1]())) for name in ("few", "many")}
    for name, (times, call) in asks.items():
        found[f"{name}_seconds"], found[f"{name}_driver_seconds"] = seconds_of(call, times)
    return found


def exchanged(rows: Any) -> dict[str, float]:
    """Bytes per second of records from the first actor, which reads them, to the second."""
    import ray

    workers, table = rows.shards.pool.workers, rows.shards.shard_plan.table
    done, record_bytes = list[float](), 0.0
    for piece in range(len(table.pieces)):
        all_of_them = tuple(range(rows.shards.shard_plan.buckets))
        ticket, loads = workers.call(0, "read", piece, {1: all_of_them}, 2, False, -1, parts=2)
        ray.get(ticket)
        began = time.perf_counter()
        ray.get(workers.call(1, "take", loads[1])[0])
        took, bytes_ = (
            time.perf_counter() - began,
            sum(part.nbytes for parts in ray.get(loads[1]).records.values() for part in parts),
        )
        done.append(bytes_ / took)
        record_bytes = bytes_ / table.pieces[piece].rows
    return {"record_bytes": record_bytes, "across_bytes_per_second": median(done)}


def handed(rows: Any) -> dict[str, float]:
    """The driver's own seconds for a load that goes from its reader to an owner, and for a call that takes some."""
    import ray

    workers = rows.shards.pool.workers
    wanted = {owner: tuple(own) for owner, own in enumerate(rows.shards.owned) if owner}

    began = time.process_time()
    time.sleep(2.0)
    idle = (time.process_time() - began) / 2.0  # of the cores, in Ray's own threads, while nothing is asked

    def spent(at_once: int) -> float:
        """For each load, where so many are taken by one call."""
        began, clock = time.process_time(), time.perf_counter()
        for _ in range(HANDED // at_once):
            read = [
                workers.call(0, "read", 0, wanted, workers.size, False, -1, parts=workers.size) for _ in range(at_once)
            ]
            ray.get([ticket for ticket, _ in read])
            ray.get([workers.call(owner, "take", *(loads[owner] for _, loads in read))[0] for owner in wanted])
        busy = time.process_time() - began - idle * (time.perf_counter() - clock)
        return busy / (HANDED * len(wanted))

    spent(1)
    one, many = (median(each) for each in zip(*((spent(1), spent(HANDED)) for _ in range(5)), strict=True))
    call = max(0.0, (one - many) * HANDED / (HANDED - 1))
    return {"load_seconds": one - call, "call_seconds": call}


def an_answer(rows: Any, public: PreparedPrivate) -> dict[str, float]:
    """A whole fit: how many answers it gives, how many of them go to the rows, and the bytes of an actor's sums."""
    shards, counted = rows.shards, rows.shards.counted
    sizes, rounds_ = list[int](), list[int]()

    def telling(question: Any, limit: float) -> Iterator[Any]:
        rounds_.append(1)
        for part in counted(question, limit):
            sizes.append(part.values.nbytes)
            yield part

    shards.counted = telling
    names = [one.column.name for one in public.cells]
    gate = gate_over(rows, names=names, budget=public.budget, ledger=Ledger(), unit=public.unit)
    fit_private(gate, public.cells, public.plan, public.side)
    return {"answers": len(gate.ledger.events), "rounds": len(rounds_), "answer_bytes": float(np.mean(sizes))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/distcondense-scale"))
    said = parser.parse_args()
    place = made(said.folder, 10**6)
    files.PIECE_ROWS = 2**17  # so that there are some
    table = LargeTable.from_path(place, target=target(), schema=schema())
    public = prepare(table.facts, PrivateOptions(epsilon=1.0))
    by_actors, more = [], dict[str, Any]()
    with two_nodes() as address:
        for actors in ACTORS:
            with opened(address, actors, table, public, said.folder) as rows:
                by_actors.append({"actors": actors, **rounds(rows, public)})
                if actors == 2:
                    more |= {**exchanged(rows), **an_answer(rows, public)}
                if actors == ACTORS[-1]:
                    more |= {"handed": handed(rows)}
            print(json.dumps(by_actors[-1]), flush=True)
    least, most = by_actors[0], by_actors[-1]

    def each(name: str) -> float:
        """Seconds of the driver for every actor more."""
        return float(np.polyfit(ACTORS, [one[f"{name}_driver_seconds"] for one in by_actors], 1)[0])

    found = {
        "where": "loopback: two raylets on one machine, one million rows",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "by_actors": by_actors,
        "round": {"one_actor_seconds": least["few_seconds"], "each_actor_seconds": each("few")},
        "sums_bytes_per_second": (most["many_bytes"] - most["few_bytes"])
        / max(1e-9, most["many_driver_seconds"] - most["few_driver_seconds"]),
        **more,
    }
    record.write("scale-links", found, seeds=[])
    print(json.dumps({name: value for name, value in found.items() if name != "by_actors"}, indent=1))


if __name__ == "__main__":
    main()
