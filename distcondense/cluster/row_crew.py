"""Leading a crew of `RowWorker`s that may die, stall or be slow: a large table as shards on many machines.

Knows no Ray: `Hands` is what it leads. Pieces go to whoever is idle, so that a slow reader reads less; loads go from
reader to owner without passing the driver, and what a reader owns itself does not travel. Public steps wait for the
next question and go with it: they cost no round of their own. An owner that is lost, or does not answer for
`hung_after` seconds, is replaced: all pieces are read again for its buckets alone, and the public steps are made again.
An owner that is slow is helped: once others have waited for it as long as reading again takes, buckets are shared out
anew, in proportion to speed, and whoever gets some reads them and makes their steps (so a run takes at most twice what
it would have, had anybody known). As sums are exact and coins are people's own, nothing that is answered depends on any
of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from distcondense.cluster.config import Cluster
from distcondense.cluster.dispatch import Failed, Lost, Settled
from distcondense.cluster.pace import Pace
from distcondense.cluster.row_worker import Job, Read
from distcondense.cluster.shards import Reading
from distcondense.cluster.worker import versions
from distcondense.errors import ClusterError
from distcondense.privacy.questions import Question, Step
from distcondense.privacy.rows import IntegerSums

HEARTBEAT = 0.25  # seconds between looks at the clock
GONE = "what was read is gone with its reader"
HELP_SECONDS = 5.0  # of waiting for slow owners, below which nothing is moved
IN_FLIGHT = 2  # pieces for each reader that are read and not yet taken by their owners
TOGETHER = 8  # workers, of which each takes what one piece holds for it; of n times so many, what n pieces hold, at
# once: it is the driver who calls, for every piece and owner


class Hands(Protocol):
    """Workers that are asked by number and answer by ticket."""

    size: int

    def launch(self, worker: int, owned: Sequence[int]) -> Hashable: ...  # the ticket of its Identity
    def read(
        self, worker: int, piece: int, wanted: Mapping[int, Sequence[int]], sampled: bool
    ) -> tuple[Hashable, list[Any]]: ...  # the ticket of its Read, and one load for each worker
    def ask(self, worker: int, what: str, *given: Any) -> Hashable: ...
    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Settled]: ...
    def drop(self, worker: int) -> None: ...


@dataclass
class _Call:
    worker: int
    what: str
    began: float
    piece: int = -1  # of a read
    loads: list[Any] = field(default_factory=list)  # of a read: one for each owner
    owners: Mapping[int, int] = field(default_factory=dict)  # for whom it reads → their lives, when it was asked
    life: int = 0  # of the worker that was asked
    taken: tuple[int, ...] = ()  # of a take: the pieces


class RowCrew:
    """Shards with their owners; a `privacy.shards.Shards`."""

    def __init__(
        self,
        hands: Hands,
        job: Job,
        config: Cluster,
        *,
        log: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
        meter: Callable[[dict[str, float]], None] = lambda facts: None,
    ) -> None:
        self.hands, self.job, self.config, self.log, self.meter = hands, job, config, log, meter
        self.samples: list[Any] = []
        self.rows = self.moved = 0
        self.losses = list[str]()
        self._clock = clock
        self._steps: list[Step] = []
        self._calls: dict[Hashable, _Call] = {}
        self._life, self._up = [0] * hands.size, [False] * hands.size
        self._back_at: dict[int, float] = {}
        self._in_a_row = [0] * hands.size
        self._heard = [clock()] * hands.size  # when each last answered
        self._made: dict[int, int] = {}  # how many public steps each owner's shards have made
        pieces = range(len(job.table.pieces))
        self._owned = [list(range(owner, job.buckets, hands.size)) for owner in range(hands.size)]
        self._lacks = [set(own) for own in self._owned]  # buckets that each owner has yet to read
        self._pace, self._open_seconds = Pace(hands.size), 0.0
        self.start_seconds = 0.0  # until every worker had come
        self._due = [set(range(hands.size)) for _ in pieces]  # of each piece, the owners who have yet to take it
        self._left = [len(pieces)] * hands.size  # of each owner, how many pieces it has yet to take
        self._waiting: list[dict[int, Any]] = [{} for _ in range(hands.size)]  # of each owner: loads of pieces, for it
        self._laid: set[int] = set()  # owners whose shards stand
        self._seen: set[int] = set()  # pieces whose sample was taken
        self._versions = versions()
        self._reading = Reading(job.table.rows, job.table.bytes, len(pieces), log, clock)
        for worker in range(hands.size):
            self._launch(worker)

    @property
    def owned(self) -> list[list[int]]:
        """Each worker's buckets."""
        return self._owned

    # ---- shards, as the gate's rows see them

    def open(self) -> None:
        """Read the table; every owner then has its shards."""
        began = self._clock()
        while not all(self._up):
            self._give_up_if_nobody_comes()
            for call, value in self._settle():
                self._took(call, value)
        self.start_seconds, began = self._clock() - began, self._clock()
        self._restore()
        self._open_seconds = self._clock() - began
        self.log(f"{self._reading.words()}; {self.job.buckets} buckets on {self.hands.size} workers")
        self.job.table.read_rows = self.rows
        self.job.table.take_sample(self.samples)
        self.samples = []

    def counted(self, question: Question, limit: float) -> Iterator[IntegerSums]:
        left, took, calm = set(range(self.hands.size)), dict[int, float](), len(self.losses)
        while left:
            self._restore()
            asked = {call.worker for call in self._calls.values()}
            for owner in sorted(left - asked):
                self._ask(owner, "counted", question, limit, self._steps[self._made[owner] :])
            for call, answer in self._settle():
                if call.what != "counted":
                    self._took(call, answer)
                    continue
                left.discard(call.worker)
                self._made[call.worker] = len(self._steps)
                took[call.worker] = self._clock() - call.began
                if answer is not None:
                    yield answer
        self._help(took, calm)

    def apply(self, step: Step) -> None:
        """Made by every owner before its next answer; whoever is replaced meanwhile makes it with its earlier ones."""
        self._steps.append(step)

    def _help(self, took: Mapping[int, float], calm: int) -> None:
        """After a round: buckets of slow owners go to others, where waiting has cost what reading again does.

        Only here, between rounds, may an owner have some of its buckets and lack others: before the next question is
        asked, `_restore` has brought all of them to the same step.
        """
        if len(self.losses) == calm:
            self._pace.note(self._owned, took)
        if self._pace.waited < max(HELP_SECONDS, self._open_seconds):
            return
        moves, self._pace = self._pace.moves(self._owned), Pace(self.hands.size)
        for move in moves:
            self._owned[move.giver] = [one for one in self._owned[move.giver] if one not in move.buckets]
            self._owned[move.taker] = sorted([*self._owned[move.taker], *move.buckets])
            self._lacks[move.taker].update(move.buckets)
            self._laid.discard(move.taker)
            self._all_due(move.taker)
            self._ask(move.giver, "forget", move.buckets)
            self.moved += len(move.buckets)
            self.log(f"worker {move.giver} is slow: {len(move.buckets)} of its buckets go to worker {move.taker}")
        self.meter({"moved": float(self.moved)})

    # ---- getting every owner its rows

    def _restore(self) -> None:
        """Until every owner has its shards, with all public steps made."""
        while len(self._laid) < self.hands.size:
            self._give_up_if_nobody_comes()
            self._hand_out()
            for call, value in self._settle():
                self._took(call, value)
            self._hand_over()

    def _hand_over(self) -> None:
        """Loads to their owners: some at a time, the last ones when nobody reads."""
        some, reading = max(1, self.hands.size // TOGETHER), any(call.what == "read" for call in self._calls.values())
        for owner, waiting in enumerate(self._waiting):
            if len(waiting) >= (some if reading else 1):
                ticket = self.hands.ask(owner, "take", *waiting.values())
                self._calls[ticket] = _Call(owner, "take", self._clock(), taken=tuple(waiting), life=self._life[owner])
                waiting.clear()

    def _hand_out(self) -> None:
        if not all(self._up):  # what is read now would be read again for whoever is missing, and it is needed
            return
        busy = {call.worker for call in self._calls.values()}
        idle = [worker for worker in range(self.hands.size) if worker not in busy]
        if not idle:
            return
        reading = {call.piece for call in self._calls.values() if call.what == "read"}
        taking = {(call.worker, piece) for call in self._calls.values() for piece in call.taken}
        taking |= {(owner, piece) for owner, waiting in enumerate(self._waiting) for piece in waiting}
        room = IN_FLIGHT * self.hands.size**2 - len(taking) - len(reading)
        waiting = (
            (piece, [owner for owner in sorted(due) if (owner, piece) not in taking])
            for piece, due in enumerate(self._due)
            if due and piece not in reading
        )
        open_ = ((piece, owners) for piece, owners in waiting if owners)
        for worker in idle:
            piece, owners = next(open_, (-1, [])) if room > 0 else (-1, [])
            if owners:
                room -= 1
                wanted = {owner: tuple(sorted(self._lacks[owner])) for owner in owners}
                ticket, loads = self.hands.read(worker, piece, wanted, piece not in self._seen)
                lives = {owner: self._life[owner] for owner in owners}
                self._calls[ticket] = _Call(worker, "read", self._clock(), piece, loads, lives, self._life[worker])
            elif worker not in self._laid and not self._left[worker]:
                self._lay_out(worker)

    def _all_due(self, owner: int) -> None:
        """It has to take every piece, for what it lacks."""
        self._left[owner] = len(self._due)
        for due in self._due:
            due.add(owner)

    def _lay_out(self, worker: int) -> None:
        if worker in self._made:  # it has shards already, which must not be behind those that come
            self._ask(worker, "apply", self._steps[self._made[worker] :])
        for bucket in sorted(self._lacks[worker]):
            self._ask(worker, "lay_out", bucket)
        self._ask(worker, "replay", list(self._steps))

    def _took(self, call: _Call, value: Any) -> None:
        if call.what == "read":
            assert isinstance(value, Read)
            if call.piece not in self._seen:
                self._seen.add(call.piece)
                self.rows += value.rows
                self.samples += value.sample
                self._reading.add(rows=value.rows, bytes_=value.bytes, pieces=1)
                self.meter(
                    {
                        "rows_per_second": self._reading.rate,
                        "rows_read": float(self.rows),
                        "bytes_read": float(self._reading.done["bytes"]),
                        "seconds_left": self._reading.left,
                    }
                )
            for owner, life in call.owners.items():  # who was replaced meanwhile may lack more than was read for it
                if owner == call.worker:
                    self._has_taken(owner, call.piece)
                elif owner in self._due[call.piece] and self._up[owner] and self._life[owner] == life:
                    self._waiting[owner][call.piece] = call.loads[owner]
        elif call.what == "take":
            for piece in call.taken:
                self._has_taken(call.worker, piece)
        elif call.what == "replay":
            self._laid.add(call.worker)
            self._lacks[call.worker].clear()
            self._made[call.worker] = len(self._steps)
            self.meter({"shards": float(len(self._laid))})

    def _has_taken(self, owner: int, piece: int) -> None:
        self._due[piece].remove(owner)  # twice would count rows twice: an error, never an answer
        self._left[owner] -= 1

    # ---- calls and losses

    def _ask(self, worker: int, what: str, *given: Any) -> None:
        ticket = self.hands.ask(worker, what, *given)
        self._calls[ticket] = _Call(worker, what, self._clock(), life=self._life[worker])

    def _settle(self) -> Iterator[tuple[_Call, Any]]:
        """What came back from workers that live; who is lost, or has not answered in time, is replaced."""
        for worker, when in list(self._back_at.items()):
            if self._clock() >= when:
                del self._back_at[worker]
                self._launch(worker)
        for settled in self.hands.wait(list(self._calls), HEARTBEAT):
            call = self._calls.pop(settled.ticket, None)
            if call is None or call.life != self._life[call.worker]:
                continue
            if isinstance(settled.value, Lost):
                if call.what == "take" and settled.value.cause == GONE:  # its reader died: the piece is read again
                    continue
                self._lose(call.worker, settled.value)
            elif isinstance(settled.value, Failed):
                raise settled.value.error
            elif call.what == "identity":
                if settled.value.versions != self._versions:
                    raise ClusterError(
                        f"worker on {settled.value.host}",
                        "must run the driver's versions",
                        found="others",
                        fix="rebuild the cluster's image from constraints.txt",
                    )
                self._up[call.worker] = True
            else:
                self._in_a_row[call.worker], self._heard[call.worker] = 0, self._clock()
                yield call, settled.value
        now = self._clock()
        waiting = {call.worker: call.began for call in reversed(self._calls.values()) if call.what != "identity"}
        for worker, began in waiting.items():  # since its oldest call, or its last answer: it takes one after the other
            if now - max(began, self._heard[worker]) > self.config.hung_after:
                self._lose(worker, Lost(f"no answer within {self.config.hung_after:g} s"))

    def _launch(self, worker: int) -> None:
        ticket = self.hands.launch(worker, self._owned[worker])
        self._calls[ticket] = _Call(worker, "identity", self._clock(), life=self._life[worker])

    def _lose(self, worker: int, lost: Lost) -> None:
        self.hands.drop(worker)
        self._life[worker] += 1
        self._up[worker] = False
        self._in_a_row[worker] += 1
        self._laid.discard(worker)
        self._made.pop(worker, None)
        self._calls = {ticket: call for ticket, call in self._calls.items() if call.worker != worker}
        self._lacks[worker] = set(self._owned[worker])
        self._waiting[worker].clear()
        self._all_due(worker)
        self.losses.append(lost.cause)
        self.meter({"restarts": float(len(self.losses))})
        if not lost.again or self._in_a_row[worker] > self.config.max_restarts:
            raise ClusterError(
                f"worker {worker}",
                "must stay alive",
                found=f"lost: {lost.cause}",
                fix="look at its log and its node; the run's folder can be resumed (--resume)",
            )
        wait = self.config.backoff * 2 ** (self._in_a_row[worker] - 1)
        self._back_at[worker] = self._clock() + wait
        self.log(f"worker {worker} lost ({lost.cause}); its buckets are read again, its steps made again")

    def _give_up_if_nobody_comes(self) -> None:
        """Every owner is needed, so that one without room for it would be waited for without end."""
        patience, now = 10 * self.config.start_timeout, self._clock()
        late = [call.worker for call in self._calls.values() if call.what == "identity" and now - call.began > patience]
        if late:
            raise ClusterError(
                "cluster",
                f"must bring up every worker within {patience:g} s",
                found=f"{len(late)} of {self.hands.size} that did not come",
                fix="free or add nodes, or ask for fewer or smaller actors (--actors, --num-cpus), then --resume",
            )
