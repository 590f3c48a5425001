"""Row shards on two real Ray nodes: the integers and the ledger of memory, whoever is stopped or killed, and where.

The noise has a fixed stand-in; everything else is as in a run. The driver that is killed is this module as a program.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
from ray.cluster_utils import Cluster as RayCluster

import distcondense as dc
from distcondense.cluster.config import Cluster
from distcondense.cluster.ray import rows
from distcondense.cluster.ray.rows import remote_shards
from distcondense.cluster.remote_shards import RemoteShards
from distcondense.cluster.row_worker import ShardPlan
from distcondense.cluster.worker import Identity
from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.errors import CohortError
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.privacy import noise
from distcondense.privacy.gate import gate_over
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.rows import ExactAnswers
from distcondense.privacy.shards import ShardedRows
from tests.data.test_large import COINS, SIMPLE, as_shuffled_parts, exact, how, in_memory, patients, told
from tests.nodes import HANG, NODE, two_nodes

__all__ = ["exact"]  # a fixture
pytestmark = pytest.mark.filterwarnings("ignore:column who looks like an identifier")
OPTIONS = PrivateOptions(epsilon=2.0, rows_per_person=2)
ROOT = Path(__file__).resolve().parents[2]
KILLED_AT = 7  # answers of a driver, the last of which it enters and never gets


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayCluster]:
    with two_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return patients(360)


def config(address: str, **more: Any) -> Cluster:
    """An actor of two cores for each node: they cannot be on the same."""
    return Cluster(address=address, actors=2, num_cpus=2, start_timeout=HANG, **{"backoff": 0, **more})


def plan_of(table: LargeTable, scratch: Path) -> tuple[ShardPlan, Any]:
    public = prepare(table.facts, OPTIONS)
    scratch.mkdir(exist_ok=True)
    return ShardPlan(
        table, public.cells, public.side.objective, COINS, public.rows_per_person, 8, "nodes", str(scratch)
    ), public


def gate_of(shards: RemoteShards, public: Any, ledger: Ledger) -> Any:
    rows = ShardedRows(shards, [one.size for one in public.cells], public.side.objective, public.rows_per_person)
    return gate_over(
        rows,
        names=[one.column.name for one in public.cells],
        budget=public.budget,
        ledger=ledger,
        unit=public.unit,
        unlisted=[5],
    )


class Clock:
    """An hour passes whenever all that is waited for is one process that is stopped; else it goes as usual."""

    def __init__(self) -> None:
        self.shards: Any = None
        self.stopped, self._ahead = -1, 0.0

    def __call__(self) -> float:
        if self.stopped >= 0:
            members, requests = self.shards.pool.members, self.shards.pool.requests.values()
            asked = {request.worker for request in requests}
            if [members[worker].identity.pid for worker in asked if members[worker].identity] == [self.stopped]:
                self._ahead += 3600
        return time.monotonic() + self._ahead


def identities(shards: RemoteShards) -> list[Identity]:
    """Of the workers that are up."""
    return [member.identity for member in shards.pool.members if member.identity is not None]


def at_answer(number: int, what: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """`what` happens when so many answers were given and the next is entered."""
    left, answer = [number], ExactAnswers.answer

    def after(self: Any, question: Any, limit: float) -> Any:
        left[0] -= 1
        if left[0] == 0:
            what()
        return answer(self, question, limit)

    monkeypatch.setattr(ExactAnswers, "answer", after)


def gauges() -> dict[str, float]:
    """What the nodes' Prometheus endpoints say of rows."""
    found = {}
    for node in ray.nodes():
        if node["alive"]:
            with urllib.request.urlopen(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics") as page:
                lines = page.read().decode().splitlines()
            for line in lines:
                if line.startswith("ray_distcondense_rows_"):
                    found[line.partition("{")[0].removeprefix("ray_distcondense_rows_")] = float(line.split()[-1])
    return found


def test_two_nodes_give_the_integers_and_the_ledger_of_memory(
    nodes: RayCluster, exact: list[Any], frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is lost: each actor takes its own files with it, and nobody is sent to look for others'."""
    monkeypatch.setattr(rows, "on_every_node", lambda *given: pytest.fail("nobody was lost"))
    due = in_memory(exact, Cohort.from_frame(frame, **how(True)), OPTIONS)
    table = LargeTable.from_path(as_shuffled_parts(frame, tmp_path / "in"), **how(True))
    shard_plan, public = plan_of(table, tmp_path / "scratch")
    with remote_shards(config(nodes.address), shard_plan) as shards:
        assert len({who.node for who in identities(shards)}) == 2
        assert told(exact, gate_of(shards, public, Ledger()), public) == due
        assert shards.pool.causes == []
        assert table.read_rows == len(frame)
        assert table.sample is not None
        late, seen = time.monotonic() + HANG, dict[str, float]()
        while seen.get("shards") != 2 and time.monotonic() < late:  # until the agents have got them: twice a second
            seen = gauges()
    assert (seen["rows_read"], seen["bytes_read"] > 0, seen["shards"]) == (len(frame), True, 2)
    assert {"rows_per_second", "seconds_left"} <= set(seen)
    assert not list((tmp_path / "scratch").iterdir())


def test_an_actor_stopped_and_a_node_killed_at_an_answer_change_nothing(
    nodes: RayCluster, exact: list[Any], frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who hears nothing any more (SIGSTOP) is replaced after the stated time; a node's place is taken by another."""
    due = in_memory(exact, Cohort.from_frame(frame, **how(True)), OPTIONS)
    table = LargeTable.from_path(as_shuffled_parts(frame, tmp_path / "in"), **how(True))
    shard_plan, public = plan_of(table, tmp_path / "scratch")
    victim = nodes.list_all_nodes()[-1]
    clock = Clock()
    with remote_shards(config(nodes.address), shard_plan, clock=clock) as clock.shards:
        there = next(who for who in identities(clock.shards) if who.node == victim.node_id)
        here = next(who for who in identities(clock.shards) if who.node != victim.node_id)

        def stop() -> None:
            os.kill(here.pid, signal.SIGSTOP)
            clock.stopped = here.pid

        def kill() -> None:
            nodes.remove_node(victim, allow_graceful=False)
            with suppress(ProcessLookupError):  # it would notice by itself, in a while
                os.kill(there.pid, signal.SIGKILL)
            nodes.add_node(**NODE, num_cpus=2)

        at_answer(3, stop, monkeypatch)
        at_answer(9, kill, monkeypatch)
        assert told(exact, gate_of(clock.shards, public, Ledger()), public) == due
        assert clock.shards.pool.causes[0] == "no answer within 300 s"
        assert len(clock.shards.pool.causes) > 1
    assert not list((tmp_path / "scratch").iterdir())


def killed() -> None:
    raise KeyboardInterrupt


def test_a_driver_killed_between_ledger_and_answer_resumes_to_the_integers_and_the_ledger_of_memory(
    nodes: RayCluster, exact: list[Any], frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort, path = Cohort.from_frame(frame, **how(True)), tmp_path / "memory.jsonl"

    with monkeypatch.context() as patch:
        at_answer(KILLED_AT, killed, patch)
        with pytest.raises(KeyboardInterrupt):
            in_memory(exact, cohort, OPTIONS, Ledger(path, run="one"))
    due = in_memory(exact, cohort, OPTIONS, Ledger(path, run="one"))
    folder = as_shuffled_parts(frame, tmp_path / "in")
    how_run = {"cwd": ROOT, "env": {**os.environ, "PYTHONPATH": str(ROOT)}, "timeout": HANG}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.cluster.test_row_nodes", nodes.address, str(folder), str(tmp_path)],
        check=False,
        **how_run,  # type: ignore[call-overload]
    )
    assert ended.returncode == -signal.SIGKILL
    assert len((tmp_path / "ray.jsonl").read_text().splitlines()) == KILLED_AT
    table = LargeTable.from_path(folder, **how(True))
    shard_plan, public = plan_of(table, tmp_path / "scratch")
    with remote_shards(config(nodes.address), shard_plan) as shards:
        assert told(exact, gate_of(shards, public, Ledger(tmp_path / "ray.jsonl", run="one")), public) == due
    assert not list((tmp_path / "scratch").iterdir())  # nor anything of the one that was killed


def main(address: str, folder: str, place: str) -> None:
    """A driver that is killed when it has entered an answer and before it has it."""
    noise.discrete_gaussian = lambda sums, scale: sums.copy()  # type: ignore[assignment]
    noise.noisy_top = lambda scores, count, scale: np.argsort(-scores, kind="stable")[:count]  # type: ignore[assignment]
    at_answer(KILLED_AT, lambda: os.kill(os.getpid(), signal.SIGKILL), pytest.MonkeyPatch())
    table = LargeTable.from_path(folder, **how(True))
    shard_plan, public = plan_of(table, Path(place) / "scratch")
    with remote_shards(config(address), shard_plan) as shards:
        told([], gate_of(shards, public, Ledger(Path(place) / "ray.jsonl", run="one")), public)


# ---- bad input: found by the workers, said by the driver; nothing half-written, ledger true


def test_what_a_worker_finds_wrong_ends_the_run_in_the_words_of_one_process(
    nodes: RayCluster, frame: pd.DataFrame, tmp_path: Path
) -> None:
    """A file that vanishes while it is read; the others are played in tests/cluster/test_remote_shards.py."""
    as_shuffled_parts(frame, tmp_path / "in")
    table = LargeTable.from_path(
        tmp_path / "in", target="died", schema=SIMPLE, person_id="who", ignore=["ward", "spread"]
    )
    (tmp_path / "in" / "deep" / "8.parquet").unlink()
    with pytest.raises(CohortError, match=r"8\.parquet: must stay.*Found no such file.*resume"):
        dc.condense(
            table,
            epsilon=2.0,
            threads=1,
            out=tmp_path / "run",
            cluster=config(nodes.address),
            scratch=tmp_path / "scratch",
        )
    assert not (tmp_path / "run" / "internal" / "ledger.jsonl").exists()
    assert not (tmp_path / "run" / "release").exists()
    assert not list((tmp_path / "scratch").glob("*"))


if __name__ == "__main__":
    main(*sys.argv[1:])
