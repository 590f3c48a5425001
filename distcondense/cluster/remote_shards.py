"""`RemoteShards`: a large table as shards in a pool of `RowWorker`s that may die, stall or be slow. Knows no Ray.

Pieces go to whoever is idle, so that a slow reader reads less; loads go from reader to owner without passing the
driver, and what a reader owns itself does not travel. Public steps wait for the next question and go with it: they cost
no round of their own. An owner that is lost, or does not answer for `hung_after` seconds, is replaced: all pieces are
read again for its buckets alone, and the public steps are made again. An owner that is slow is helped: once others have
waited for it as long as reading again takes, buckets are shared out anew, in proportion to speed, and whoever gets some
reads them and makes their steps (so a run takes at most twice what it would have, had anybody known). As sums are exact
and the split of people is keyed, nothing that is answered depends on any of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distcondense.cluster.config import Cluster
from distcondense.cluster.plan import shares
from distcondense.cluster.pool import Request, WorkerPool, Workers
from distcondense.cluster.row_worker import ShardPlan
from distcondense.cluster.shards import ReadProgress
from distcondense.privacy.questions import Question, Step
from distcondense.privacy.rows import IntegerSums

HELP_SECONDS = 5.0  # of waiting for slow owners, below which nothing is moved
IN_FLIGHT = 2  # pieces for each reader that are read and not yet taken by their owners
TOGETHER = 8  # workers, of which each takes what one piece holds for it; of n times so many, what n pieces hold, at
# once: it is the driver who calls, for every piece and owner


@dataclass(frozen=True)
class ReadRequest:
    """A piece that a worker reads, and for whom: owners by number → how often each had been started by then."""

    piece: int
    owners: Mapping[int, int]


@dataclass(frozen=True)
class BucketMove:
    """Buckets that change hands."""

    giver: int
    taker: int
    buckets: tuple[int, ...]


class BucketBalance:
    """How fast owners of buckets answer, since buckets were last shared out, and a fairer way to share them out."""

    def __init__(self, size: int) -> None:
        self._seconds = [0.0] * size  # that each owner took for its buckets, over all rounds
        self.waited = 0.0  # seconds by which rounds were longer than with buckets in proportion to speed

    def note(self, owned: Sequence[Sequence[int]], seconds: Mapping[int, float]) -> None:
        """A round that everybody answered, each as its first."""
        at_work = {owner: max(took, 1e-6) for owner, took in seconds.items() if owned[owner]}
        if not at_work:
            return
        for owner, took in at_work.items():
            self._seconds[owner] += took
        speeds = [len(buckets) / at_work[owner] if owner in at_work else 0.0 for owner, buckets in enumerate(owned)]
        due = shares(sum(map(len, owned)), speeds)
        best = max(count / speed for count, speed in zip(due, speeds, strict=True) if speed)
        self.waited += max(0.0, max(at_work.values()) - best)

    def moves(self, owned: Sequence[Sequence[int]]) -> list[BucketMove]:
        """From those with more buckets than their speed has earned them to those with fewer."""
        speeds = [len(buckets) / took if took else 0.0 for buckets, took in zip(owned, self._seconds, strict=True)]
        due = shares(sum(map(len, owned)), speeds)
        spare = [(owner, bucket) for owner, buckets in enumerate(owned) for bucket in buckets[due[owner] :]]
        moves: list[BucketMove] = []
        for taker, buckets in enumerate(owned):
            count = max(0, due[taker] - len(buckets))
            coming, spare = spare[:count], spare[count:]
            for giver in dict.fromkeys(giver for giver, _ in coming):
                moves.append(BucketMove(giver, taker, tuple(bucket for owner, bucket in coming if owner == giver)))
        return moves


class RemoteShards:
    """Shards with their owners, each a worker of a pool; a `privacy.shards.Shards`.

    Parameters
    ----------
    workers
        The processes that read and own rows.
    shard_plan
        The table, its cells, and how many buckets it has.
    config
        How patient to be with workers.
    meter
        Called with numbers of progress by their names; nothing in them tells a value of a row.
    """

    def __init__(
        self,
        workers: Workers,
        shard_plan: ShardPlan,
        config: Cluster,
        *,
        log: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
        meter: Callable[[dict[str, float]], None] = lambda facts: None,
    ) -> None:
        self.shard_plan, self.log, self.meter, self._clock = shard_plan, log, meter, clock
        self.samples: list[Any] = []
        self.rows = self.moved = 0
        self.start_seconds = 0.0  # until every worker had come
        size, pieces = workers.size, len(shard_plan.table.pieces)
        self.owned = [list(range(owner, shard_plan.buckets, size)) for owner in range(size)]  # each worker's buckets
        self._lacks = [set(buckets) for buckets in self.owned]  # buckets that each owner has yet to read
        self._steps: list[Step] = []
        self._steps_made: dict[int, int] = {}  # how many public steps each owner's shards have made
        self._balance, self._open_seconds = BucketBalance(size), 0.0
        self._due = [set(range(size)) for _ in range(pieces)]  # of each piece, the owners who have yet to take it
        self._pieces_left = [pieces] * size  # of each owner, how many pieces it has yet to take
        self._waiting: list[dict[int, Any]] = [{} for _ in range(size)]  # of each owner: loads of pieces, for it
        self._ready: set[int] = set()  # owners whose shards stand
        self._seen: set[int] = set()  # pieces whose sample was taken
        self._progress = ReadProgress(shard_plan.table.rows, shard_plan.table.bytes, pieces, log, clock)
        self.pool = WorkerPool(
            workers,
            config,
            needed=size,
            arguments=lambda worker: (list(self.owned[worker]),),
            on_loss=self._start_over,
            clock=clock,
            log=log,
        )

    # ---- shards, as the gate's rows see them

    def open(self) -> None:
        """Read the table; every owner then has its shards."""
        began = self._clock()
        while not all(member.up for member in self.pool.members):
            self._receive()
        self.start_seconds, began = self._clock() - began, self._clock()
        self._restore()
        self._open_seconds = self._clock() - began
        self.log(f"{self._progress}; {self.shard_plan.buckets} buckets on {len(self.owned)} workers")
        self.shard_plan.table.read_rows = self.rows
        self.shard_plan.table.take_sample(self.samples)
        self.samples = []

    def counted(self, question: Question, limit: float) -> Iterator[IntegerSums]:
        """Each owner's sums, in whatever order they come; each owner once."""
        left, seconds, losses = set(range(len(self.owned))), dict[int, float](), len(self.pool.causes)
        while left:
            self._restore()
            busy = {request.worker for request in self.pool.requests.values()}
            for owner in sorted(left - busy):
                self.pool.call(owner, "counted", question, limit, self._steps[self._steps_made[owner] :])
            for request, answer in self.pool.receive():
                if request.method != "counted":
                    self._take(request, answer)
                    continue
                left.discard(request.worker)
                self._steps_made[request.worker] = len(self._steps)
                seconds[request.worker] = self._clock() - request.began
                if answer is not None:
                    yield answer
        if len(self.pool.causes) == losses:
            self._balance.note(self.owned, seconds)
        if self._balance.waited >= max(HELP_SECONDS, self._open_seconds):
            self._help_the_slow()

    def apply(self, step: Step) -> None:
        """Made by every owner before its next answer; whoever is replaced meanwhile makes it with its earlier ones."""
        self._steps.append(step)

    def _help_the_slow(self) -> None:
        """Buckets of slow owners go to others.

        Only here, between rounds, may an owner have some of its buckets and lack others: before the next question is
        asked, `_restore` has brought all of them to the same step.
        """
        moves, self._balance = self._balance.moves(self.owned), BucketBalance(len(self.owned))
        for move in moves:
            self.owned[move.giver] = [bucket for bucket in self.owned[move.giver] if bucket not in move.buckets]
            self.owned[move.taker] = sorted([*self.owned[move.taker], *move.buckets])
            self._lacks[move.taker].update(move.buckets)
            self._must_read(move.taker)
            self.pool.call(move.giver, "forget", move.buckets)
            self.moved += len(move.buckets)
            self.log(f"worker {move.giver} is slow: {len(move.buckets)} of its buckets go to worker {move.taker}")
        self.meter({"moved": float(self.moved)})

    # ---- getting every owner its rows

    def _restore(self) -> None:
        """Until every owner has its shards, with all public steps made."""
        while len(self._ready) < len(self.owned):
            self._hand_out()
            self._receive()
            self._hand_over()

    def _receive(self) -> None:
        for request, answer in self.pool.receive():
            self._take(request, answer)

    def _hand_out(self) -> None:
        """Pieces to read for whoever is idle; who has taken all of them lays its buckets out."""
        size, requests = len(self.owned), list(self.pool.requests.values())
        if not all(member.up for member in self.pool.members):
            return  # what is read now would be read again for whoever is missing, and it is needed
        busy = {request.worker for request in requests}
        reading = {request.work.piece for request in requests if request.method == "read"}
        taking = {(request.worker, piece) for request in requests if request.method == "take" for piece in request.work}
        taking |= {(owner, piece) for owner, loads in enumerate(self._waiting) for piece in loads}
        room = IN_FLIGHT * size**2 - len(taking) - len(reading)
        unread = (
            (piece, owners)
            for piece, due in enumerate(self._due)
            if piece not in reading and (owners := [owner for owner in sorted(due) if (owner, piece) not in taking])
        )
        for worker in sorted(set(range(size)) - busy):
            piece, owners = next(unread, (-1, [])) if room > 0 else (-1, [])
            if owners:
                room -= 1
                wanted = {owner: tuple(sorted(self._lacks[owner])) for owner in owners}
                work = ReadRequest(piece, {owner: self.pool.members[owner].launches for owner in owners})
                new = piece not in self._seen
                self.pool.call(worker, "read", piece, wanted, size, new, worker, work=work, parts=size)
            elif worker not in self._ready and not self._pieces_left[worker]:
                self._lay_out(worker)

    def _hand_over(self) -> None:
        """Loads to their owners: some at a time, the last ones when nobody reads."""
        some = max(1, len(self.owned) // TOGETHER)
        reading = any(request.method == "read" for request in self.pool.requests.values())
        for owner, loads in enumerate(self._waiting):
            if len(loads) >= (some if reading else 1):
                self.pool.call(owner, "take", *loads.values(), work=tuple(loads), may_lose_input=True)
                loads.clear()

    def _lay_out(self, worker: int) -> None:
        if worker in self._steps_made:  # it has shards already, which must not be behind those that come
            self.pool.call(worker, "apply", self._steps[self._steps_made[worker] :])
        for bucket in sorted(self._lacks[worker]):
            self.pool.call(worker, "lay_out", bucket)
        self.pool.call(worker, "replay", list(self._steps))

    def _take(self, request: Request, answer: Any) -> None:
        """What an answer changes; of most calls it is enough that they are done."""
        if request.method == "read":
            piece = request.work.piece
            if piece not in self._seen:
                self._seen.add(piece)
                self.rows += answer.rows
                self.samples += answer.sample
                self._progress.add(rows=answer.rows, bytes_=answer.bytes, pieces=1)
                self.meter(self._progress.numbers())
            for owner, launches in request.work.owners.items():
                member = self.pool.members[owner]
                if owner == request.worker:
                    self._has_taken(owner, piece)
                elif owner in self._due[piece] and member.up and member.launches == launches:
                    self._waiting[owner][piece] = request.parts[owner]  # a later one may lack more than was read
        elif request.method == "take":
            for piece in request.work:
                self._has_taken(request.worker, piece)
        elif request.method == "replay":
            self._ready.add(request.worker)
            self._lacks[request.worker].clear()
            self._steps_made[request.worker] = len(self._steps)
            self.meter({"shards": float(len(self._ready))})

    def _has_taken(self, owner: int, piece: int) -> None:
        self._due[piece].remove(owner)  # twice would count rows twice: an error, never an answer
        self._pieces_left[owner] -= 1

    def _must_read(self, owner: int) -> None:
        """An owner has to take every piece, for what it lacks."""
        self._ready.discard(owner)
        self._pieces_left[owner] = len(self._due)
        for due in self._due:
            due.add(owner)

    def _start_over(self, worker: int) -> None:
        """A lost worker's place is empty: all of its buckets are read again, and its steps made again."""
        self._steps_made.pop(worker, None)
        self._lacks[worker] = set(self.owned[worker])
        self._waiting[worker].clear()
        self._must_read(worker)
        self.meter({"restarts": float(len(self.pool.causes))})
