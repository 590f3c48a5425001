"""The tiles of one step, and how far they are: which are queued for whom, and which are here."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from distcondense.cluster.plan import Assignment
from distcondense.cluster.worker import Part

SLOWEST = 1e-9  # units per second, where a speed is divided by


class Step:
    """Assignments by their number; each is queued, in somebody's hands, or here."""

    def __init__(self, number: int, assignments: list[Assignment], workers: int) -> None:
        self.number, self.assignments = number, assignments
        self.parts: list[Part | None] = [None] * len(assignments)
        self.missing = len(assignments)
        self._queues: list[deque[int]] = [deque() for _ in range(workers)]
        for at, assignment in enumerate(assignments):
            self._queues[assignment.worker].append(at)

    def next_for(self, worker: int, speeds: Sequence[float], held: Sequence[int], late: Sequence[float]) -> int | None:
        """The next assignment of this worker; where it has none left, the last of whoever would take longest.

        Unless it would take longer itself: a tile that is meant for a fast worker is large. `held` are the units in
        each one's hands, `late` the seconds by which they are overdue: for one that is stalled they grow and grow.
        """
        if self._queues[worker]:
            return self._queues[worker].popleft()

        def left(other: int) -> float:
            units = sum(self.assignments[at].units for at in self._queues[other])
            return units / max(speeds[other], SLOWEST) + late[other]

        slowest = max((k for k, queue in enumerate(self._queues) if queue), key=left, default=None)
        if slowest is None:
            return None
        mine = (held[worker] + self.assignments[self._queues[slowest][-1]].units) / max(speeds[worker], SLOWEST)
        return self._queues[slowest].pop() if mine <= left(slowest) else None

    def take(self, number: int, part: Part) -> None:
        """A tile's answer; whoever was first counts."""
        if self.parts[number] is None:
            self.parts[number] = part
            self.missing -= 1

    def queue_again(self, in_hand: set[int]) -> None:
        """Queue what is neither here, nor queued, nor in anybody's hands."""
        known = in_hand | {at for queue in self._queues for at in queue}
        for at, part in enumerate(self.parts):
            if part is None and at not in known:
                self._queues[self.assignments[at].worker].appendleft(at)
