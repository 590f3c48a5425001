"""Shards in a pool of row workers that are played: no Ray, no processes, a clock moved by hand; every sum is real.

Workers die or hang at any call. The only thing that counts: the integers before the noise, and the ledger, are those of
the table in memory.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from distcondense.cluster import remote_shards
from distcondense.cluster.config import Cluster
from distcondense.cluster.pool import InputLost, Outlook, WorkerLost, WorkerPool
from distcondense.cluster.ray.actors import RowActor
from distcondense.cluster.remote_shards import BucketBalance, BucketMove, RemoteShards
from distcondense.cluster.row_worker import RowWorker, ShardPlan, sweep
from distcondense.cluster.shards import SCRATCH, _lives, scratch_folder
from distcondense.cluster.worker import Identity
from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.errors import ClusterError, CohortError, RunFolderError
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.privacy.gate import gate_over
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.rows import ExactAnswers
from distcondense.privacy.shards import ShardedRows
from tests.data.test_large import COINS, as_parquet, as_shuffled_parts, exact, how, in_memory, patients, small, told

__all__ = ["exact", "small"]  # fixtures
pytestmark = pytest.mark.filterwarnings("ignore:column who looks like an identifier")
OPTIONS = PrivateOptions(epsilon=2.0, rows_per_person=2)


class Played:
    """Workers in this process; `fate` says at which of all calls (from 0) whoever is asked dies or hangs.

    `slow`: seconds of the played clock that each worker takes for a bucket, at every answer and step.
    """

    def __init__(
        self, shard_plan: ShardPlan, size: int, fate: dict[int, str], slow: Mapping[int, float] | None = None
    ) -> None:
        self.shard_plan, self.size, self.fate, self.now, self.slow = shard_plan, size, fate, 0.0, slow or {}
        self._ready: dict[Hashable, float] = {}
        self.shards: RemoteShards
        self._workers: list[RowWorker | None] = [None] * size
        self._answers: dict[Hashable, Any] = {}
        self._numbers, self._lives = count(), [0] * size
        self.calls: list[str] = []
        self.loads = 0  # that were taken from others

    def clock(self) -> float:
        self.now += 0.01
        return self.now

    def _answer(self, worker: int, what: str, parts: int, *given: Any) -> Hashable:
        ticket, end = next(self._numbers), self.fate.get(len(self.calls), "")
        self.calls.append(what)
        if end == ("never" if what == "identity" else "hang"):
            self._answers[ticket] = None
        elif (end == "die" and what != "identity") or self._workers[worker] is None:
            self._workers[worker] = None
            self._answers[ticket] = (WorkerLost("its process died"),)
        else:
            if what in ("counted", "apply"):
                held = len(self._workers[worker]._shards)  # type: ignore[union-attr]
                self._ready[ticket] = self.now + held * self.slow.get(worker, 0.0)
            self._answers[ticket] = (RowActor.call(self._workers[worker], what, parts, *given),)  # type: ignore[arg-type]
        return ticket

    def launch(self, worker: int, *arguments: Any) -> Hashable:
        self._workers[worker] = RowWorker(self.shard_plan, *arguments)
        return self._answer(worker, "identity", 0)

    def put(self, value: Any) -> Any:
        raise AssertionError("nothing is handed to all of them")

    def call(self, worker: int, method: str, *arguments: Any, parts: int = 0) -> tuple[Hashable, list[Any]]:
        self.loads += len(arguments) if method == "take" else 0
        if method == "take" and self.fate.get(len(self.calls)) == "gone":
            ticket = next(self._numbers)
            self.calls.append("take")
            self._answers[ticket] = (InputLost(),)
            return ticket, []
        ticket = self._answer(worker, method, parts, *arguments)
        if not parts or self._answers[ticket] is None or isinstance(self._answers[ticket][0], WorkerLost):
            return ticket, []
        first, *loads = self._answers[ticket][0]
        self._answers[ticket] = (first,)
        return ticket, loads

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[tuple[Hashable, Any]]:
        coming = [ticket for ticket in tickets if self._answers[ticket] is not None]
        ready = [ticket for ticket in coming if self._ready.get(ticket, 0.0) <= self.now]
        if not ready:
            self.now = min([self.now + seconds, *(self._ready[ticket] for ticket in coming)])
        return [(ticket, self._answers[ticket][0]) for ticket in ready]

    def outlook(self) -> Outlook:
        return Outlook(0, "0 free cores")

    def drop(self, worker: int, identity: Identity | None = None) -> None:
        if (gone := self._workers[worker]) is not None:
            gone.close()
        self._workers[worker] = None


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return patients(360)


def on_workers(
    exact: list[Any],
    table: LargeTable,
    size: int,
    fate: dict[int, str],
    config: Cluster | None = None,
    slow: Mapping[int, float] | None = None,
    scratch: Path | None = None,
    ledger: Ledger | None = None,
) -> tuple[Any, Played]:
    public = prepare(table.facts, OPTIONS)
    shard_plan = ShardPlan(
        table,
        public.cells,
        public.side.objective,
        COINS,
        public.rows_per_person,
        8,
        "played",
        None if scratch is None else str(scratch),
    )
    workers = Played(shard_plan, size, fate, slow)
    shards = RemoteShards(workers, shard_plan, config or Cluster(backoff=0, hung_after=30), clock=workers.clock)
    workers.shards = shards
    try:
        shards.open()
    except BaseException:
        for worker in range(size):
            workers.drop(worker)
        raise
    rows = ShardedRows(shards, [one.size for one in public.cells], public.side.objective, public.rows_per_person)
    names = [one.column.name for one in public.cells]
    gate = gate_over(rows, names=names, budget=public.budget, ledger=ledger or Ledger(), unit=public.unit, unlisted=[5])
    try:
        return told(exact, gate, public), workers
    finally:
        for worker in range(size):
            workers.drop(worker)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_any_number_of_owners_gives_the_integers_of_memory(
    size: int, persons: bool, exact: list[Any], frame: pd.DataFrame, tmp_path: Path
) -> None:
    due = in_memory(exact, Cohort.from_frame(frame, **how(persons)), OPTIONS)
    (tmp_path / "in").mkdir()
    table = LargeTable.from_path(as_parquet(frame, tmp_path / "in"), **how(persons))
    assert on_workers(exact, table, size, {})[0] == due
    assert table.read_rows == len(frame)
    assert table.sample is not None


@pytest.mark.usefixtures("small")
def test_what_a_reader_owns_does_not_travel_and_steps_cost_no_calls(
    exact: list[Any], frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LargeTable.from_path(as_shuffled_parts(frame, tmp_path / "in"), **how(True))
    for size in (1, 2, 3):
        _, workers = on_workers(exact, table, size, {})
        assert workers.calls.count("read") == len(table.pieces)
        assert workers.loads == len(table.pieces) * (size - 1)
        assert {*workers.calls} <= {"identity", "read", "take", "lay_out", "replay", "counted"}
    monkeypatch.setattr(remote_shards, "TOGETHER", 1)
    found, workers = on_workers(exact, table, 3, {})
    assert found == in_memory(exact, Cohort.from_frame(frame, **how(True)), OPTIONS)
    assert workers.loads == 2 * len(table.pieces)
    assert workers.calls.count("take") < workers.loads  # several at a time


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("end", ["die", "hang", "gone"])
@pytest.mark.parametrize("together", [1, 2])
def test_a_worker_that_dies_or_hangs_at_any_call_changes_nothing(
    together: int, end: str, exact: list[Any], frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind of call is hit, early and late, alone and several in a row; loads are taken one or two at a time."""
    monkeypatch.setattr(remote_shards, "TOGETHER", 2 // together)
    table = LargeTable.from_path(as_shuffled_parts(frame, tmp_path / "in"), **how(True))
    due, calm = on_workers(exact, table, 2, {})
    assert due == in_memory(exact, Cohort.from_frame(frame, **how(True)), OPTIONS)
    kinds = ("take",) if end == "gone" else ("read", "take", "lay_out", "replay", "counted")
    for kind in kinds:
        places = [number for number, what in enumerate(calm.calls) if what == kind]
        for fate in ({places[-1]: end, places[0]: end},):
            found, workers = on_workers(exact, table, 2, fate)
            assert found == due, (kind, fate)
            assert workers.calls.count("identity") > 2 or end == "gone"


@pytest.mark.usefixtures("small")
def test_a_slow_owner_is_helped_and_nothing_changes(
    exact: list[Any], frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its buckets go to the others, who read them and make their steps; whoever dies meanwhile is replaced as ever."""
    table = LargeTable.from_path(as_shuffled_parts(frame, tmp_path / "in"), **how(True))
    slow = {0: 0.1, 1: 2.0, 2: 0.1}
    with monkeypatch.context() as patch:
        patch.setattr(remote_shards, "HELP_SECONDS", 1e9)
        due, alone = on_workers(exact, table, 3, {}, slow=slow)
    assert due == in_memory(exact, Cohort.from_frame(frame, **how(True)), OPTIONS)
    assert alone.shards.moved == 0
    found, workers = on_workers(exact, table, 3, {}, slow=slow)
    assert found == due
    assert len(workers.shards.owned[1]) == 0
    assert sorted(bucket for own in workers.shards.owned for bucket in own) == list(range(8))
    assert workers.now < alone.now / 4
    assert "apply" in workers.calls  # whoever got buckets made the steps that waited, so that all its shards are alike
    began = workers.calls.index("forget")
    at = {kind: workers.calls.index(kind, began) for kind in ("forget", "read", "take", "lay_out", "replay", "counted")}
    for fate in (
        {at["forget"]: "die", at["counted"]: "hang"},
        {at["read"]: "die", at["take"]: "hang"},
        {at["lay_out"]: "hang", at["replay"]: "die"},
    ):
        assert on_workers(exact, table, 3, fate, slow=slow)[0] == due, fate


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("end", ["die", "hang"])
def test_a_worker_lost_at_the_steps_that_waited_while_buckets_moved_changes_nothing(
    end: str, exact: list[Any], frame: pd.DataFrame, tmp_path: Path
) -> None:
    """Whoever gets buckets first makes, by `apply`, the steps that its own shards have not made: it is lost there, once
    and in both of its attempts, and all of its buckets, old and new, are read again."""
    table = LargeTable.from_path(as_shuffled_parts(frame, tmp_path / "in"), **how(True))
    due, slow = in_memory(exact, Cohort.from_frame(frame, **how(True)), OPTIONS), {0: 0.1, 1: 2.0, 2: 0.1}
    found, calm = on_workers(exact, table, 3, {}, slow=slow)
    assert found == due
    at = [number for number, what in enumerate(calm.calls) if what == "apply"]
    assert len(at) > 1  # both takers
    for fate in ({at[0]: end}, {at[-1]: end}, dict.fromkeys(at, end)):
        found, workers = on_workers(exact, table, 3, fate, slow=slow)
        assert workers.calls[min(fate)] == "apply"
        assert workers.calls.count("identity") > 3  # somebody was replaced
        assert len(workers.shards.pool.causes) >= 1
        assert sorted(bucket for own in workers.shards.owned for bucket in own) == list(range(8))
        assert found == due, fate


def test_owners_of_equal_speed_keep_what_they_have_and_others_get_what_they_earn() -> None:
    owned = [[0, 3, 6], [1, 4, 7], [2, 5]]
    pace = BucketBalance(3)
    pace.note(owned, {0: 3.0, 1: 3.0, 2: 2.0})
    assert pace.waited == 0
    assert pace.moves(owned) == []
    pace = BucketBalance(3)
    for _ in range(2):
        pace.note(owned, {0: 3.0, 1: 9.0, 2: 2.0})
    assert pace.waited == pytest.approx(2 * (9 - 4))  # 4, 1 and 3 buckets take 4, 3 and 3 seconds
    assert pace.moves(owned) == [BucketMove(1, 0, (4,)), BucketMove(1, 2, (7,))]
    pace.note([[0], [], [1, 2]], {0: 1.0, 2: 1.0})  # who has none is not waited for
    with_none = BucketBalance(2)
    with_none.note([[], [0, 1]], {0: 5.0, 1: 1.0})
    assert with_none.moves([[], [0, 1]]) == []


@pytest.mark.usefixtures("small")
def test_a_worker_that_is_lost_again_and_again_ends_the_run_with_its_cause(
    exact: list[Any], frame: pd.DataFrame, tmp_path: Path
) -> None:
    table = LargeTable.from_path(as_shuffled_parts(frame, tmp_path / "in"), **how(True))
    for end, words in (("die", "its process died"), ("hang", "no answer within 30 s")):
        with pytest.raises(ClusterError, match=words) as error:
            on_workers(
                exact, table, 1, dict.fromkeys(range(1, 60), end), Cluster(backoff=0, hung_after=30, max_restarts=2)
            )
        assert "resume=True" in str(error.value)


@pytest.mark.usefixtures("small")
def test_a_worker_that_there_is_no_room_for_ends_the_run_after_a_stated_time(
    exact: list[Any], frame: pd.DataFrame, tmp_path: Path
) -> None:
    """At the start, and where one was lost: the others are up, and wait."""
    table = LargeTable.from_path(as_shuffled_parts(frame, tmp_path / "in"), **how(True))
    calm = on_workers(exact, table, 2, {})[1].calls
    lost = calm.index("counted", 40)
    for fate in ({1: "never"}, {lost: "die", **dict.fromkeys(range(lost + 1, lost + 20), "never")}):
        with pytest.raises(ClusterError, match=r"every worker within 600 s. Found 1 of 2 missing.*resume=True"):
            on_workers(exact, table, 2, fate, Cluster(backoff=0, hung_after=1e6))


@pytest.mark.usefixtures("small")
def test_what_a_worker_finds_wrong_is_said_in_the_words_of_one_process(
    exact: list[Any], frame: pd.DataFrame, tmp_path: Path
) -> None:
    """A bad row, a file that vanishes, no room, no folder: before anything is asked, and nothing is left."""

    def table(own: pd.DataFrame) -> LargeTable:
        shutil.rmtree(tmp_path / "in", ignore_errors=True)
        return LargeTable.from_path(as_shuffled_parts(own, tmp_path / "in"), **how(True))

    def refused(given: LargeTable, kind: type[Exception], *words: str, scratch: Path = tmp_path / "scratch") -> None:
        with pytest.raises(kind) as error:
            on_workers(exact, given, 2, {}, scratch=scratch)
        assert all(word in str(error.value) for word in words), str(error.value)
        assert exact == []
        assert not scratch.is_dir() or not list(scratch.iterdir())

    spoiled = table(frame.assign(dose=frame["dose"].where(np.arange(len(frame)) != 222, 987654.25)))
    refused(spoiled, CohortError, "7.parquet", "'dose'", "bounds")
    vanished = table(frame)
    (tmp_path / "in" / "7.parquet").unlink()
    refused(vanished, CohortError, "7.parquet", "no such file", "resume")
    large = table(frame)
    large.pieces = tuple(replace(piece, rows=10**14) for piece in large.pieces)
    refused(large, RunFolderError, "must have room", "scratch=")
    (tmp_path / "file").touch()
    refused(table(frame), RunFolderError, "must be possible to make", "scratch=", scratch=tmp_path / "file")


@pytest.mark.usefixtures("small")
def test_a_file_that_is_gone_when_a_lost_worker_needs_it_again_ends_the_run_which_resumes(
    exact: list[Any], frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers were given by then: they stay paid for, and are not asked again."""
    folder, path = as_shuffled_parts(frame, tmp_path / "in"), tmp_path / "ledger.jsonl"
    table = LargeTable.from_path(folder, **how(True))
    _, calm = on_workers(exact, table, 2, {})
    lose = WorkerPool.lose

    def gone(self: WorkerPool, worker: int, lost: WorkerLost) -> None:
        (folder / "7.parquet").rename(tmp_path / "7.parquet")
        lose(self, worker, lost)

    at = [number for number, what in enumerate(calm.calls) if what == "counted"][20]  # of two workers: the 11th answer
    with monkeypatch.context() as patch:
        patch.setattr(WorkerPool, "lose", gone)
        with pytest.raises(CohortError, match=r"7\.parquet: must stay.*no such file.*resume"):
            on_workers(exact, table, 2, {at: "die"}, ledger=Ledger(path, run="one"))
    assert len(exact) == 10
    assert len(Ledger(path, run="one").events) == 11  # the last was entered, and its answer lost
    (tmp_path / "7.parquet").rename(folder / "7.parquet")
    found, _ = on_workers(exact, table, 2, {}, ledger=Ledger(path, run="one"))
    cohort, answer, left = Cohort.from_frame(frame, **how(True)), ExactAnswers.answer, [11]

    def killed(self: Any, question: Any, limit: float) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return answer(self, question, limit)

    with monkeypatch.context() as patch:
        patch.setattr(ExactAnswers, "answer", killed)
        with pytest.raises(KeyboardInterrupt):
            in_memory(exact, cohort, OPTIONS, Ledger(tmp_path / "memory.jsonl", run="one"))
    assert found == in_memory(exact, cohort, OPTIONS, Ledger(tmp_path / "memory.jsonl", run="one"))


def test_what_killed_workers_left_is_swept(tmp_path: Path) -> None:
    for name in (f"{SCRATCH}mine-1", f"{SCRATCH}other-1"):
        (tmp_path / name).mkdir()
    sweep("mine", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [f"{SCRATCH}other-1"]


def test_what_killed_processes_left_goes_with_the_next_run_and_what_lives_stays(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet buried
    mine, host = scratch_folder(tmp_path), socket.gethostname()
    others = [f"{SCRATCH}x-elsewhere-{gone.pid}-ab", f"{SCRATCH}x-{host}-odd-ab"]
    for name in (*others, f"{SCRATCH}x-{host}-{gone.pid}-ab"):
        (tmp_path / name).mkdir()
    again = scratch_folder(tmp_path, "again")
    assert {path.name for path in tmp_path.iterdir()} == {mine.name, again.name, *others}
    gone.wait()
    assert not _lives(str(gone.pid))
    assert _lives(str(os.getpid()))
