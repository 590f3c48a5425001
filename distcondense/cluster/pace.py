"""How fast owners of buckets answer, what the others' waiting has cost, and a fairer way to share buckets out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Move:
    """Buckets that change hands."""

    giver: int
    taker: int
    buckets: tuple[int, ...]


class Pace:
    """Seconds that each owner took for its buckets, round by round, since they were last shared out."""

    def __init__(self, size: int) -> None:
        self._seconds = [0.0] * size
        self.waited = 0.0  # seconds by which rounds were longer than with buckets in proportion to speed

    def note(self, owned: Sequence[Sequence[int]], seconds: Mapping[int, float]) -> None:
        """A round that everybody answered, each as its first."""
        at_work = {owner: max(took, 1e-6) for owner, took in seconds.items() if owned[owner]}
        if not at_work:
            return
        for owner, took in at_work.items():
            self._seconds[owner] += took
        speeds = [len(own) / at_work[owner] if owner in at_work else 0.0 for owner, own in enumerate(owned)]
        wanted = _in_proportion(sum(map(len, owned)), speeds)
        best = max(want / speed for want, speed in zip(wanted, speeds, strict=True) if speed)
        self.waited += max(0.0, max(at_work.values()) - best)

    def moves(self, owned: Sequence[Sequence[int]]) -> list[Move]:
        """From those with more buckets than their speed has earned them to those with fewer."""
        speeds = [len(own) / took if took else 0.0 for own, took in zip(owned, self._seconds, strict=True)]
        wanted = _in_proportion(sum(map(len, owned)), speeds)
        spare = [(owner, own[want:]) for owner, (own, want) in enumerate(zip(owned, wanted, strict=True))]
        waiting = [(owner, bucket) for owner, buckets in spare for bucket in buckets]
        found: list[Move] = []
        for taker, (own, want) in enumerate(zip(owned, wanted, strict=True)):
            coming, waiting = waiting[: max(0, want - len(own))], waiting[max(0, want - len(own)) :]
            for giver in dict.fromkeys(giver for giver, _ in coming):
                found.append(Move(giver, taker, tuple(bucket for one, bucket in coming if one == giver)))
        return found


def _in_proportion(count: int, weights: Sequence[float]) -> list[int]:
    """So many things in whole numbers, by largest remainders; the earlier one where they are equal."""
    total = sum(weights)
    exact = [count * weight / total for weight in weights] if total else [0.0] * len(weights)
    whole = [int(share) for share in exact]
    by_remainder = sorted(range(len(weights)), key=lambda k: whole[k] - exact[k])
    for k in by_remainder[: count - sum(whole)]:
        whole[k] += 1
    return whole
