"""Rows in many places: every answer is a sum over people, so shards add up exactly, in any order; noise comes after.

A person's rows lie in one shard. What a shard tells is exact: it is for whoever holds the gate, inside one trust domain
(docs/privacy.md, 4.2), and nowhere else.

How large sums may get. Within a shard of `ROWS_SHARD_MAX` rows a coordinate is at most 2²⁷·GRID·MU_MAX = 2⁶², which
int64 holds. Over shards `ShardTotal` adds two halves, v = high·2³² + low with 0 ≤ low < 2³²: after k shards |high| is
at most k·2³⁰ and low below k·2³², so that both fit int64 for k < 2³¹ shards, far more than `ROWS_ALL_MAX` needs. The
total is int64 where it stays below 2⁶², else Python's integers, which have no end; noise of the same law is added to
both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Index
from distcondense.privacy.contributions import Objective
from distcondense.privacy.questions import Question, Step
from distcondense.privacy.rows import ExactAnswers, IntegerSums
from distcondense.privacy.table_rows import TableRows

_HALF = 32  # bits


class Shards(Protocol):
    """Rows in several places, asked and stepped together."""

    def counted(self, question: Question, limit: float) -> Iterable[IntegerSums]:
        """Each shard's sums, in whatever order they come; each shard once."""
        ...

    def apply(self, step: Step) -> None:
        """A public step, on all of them."""
        ...


class ShardedRows(ExactAnswers):
    """Rows as the gate needs them, of which each person's lie in one of several shards."""

    def __init__(self, shards: Shards, sizes: Sequence[int], objective: Objective, most: int) -> None:
        super().__init__(sizes, objective, most)
        self.shards = shards

    def counted(self, question: Question, limit: float) -> IntegerSums:
        tally = ShardTotal()
        for part in self.shards.counted(question, limit):
            tally.add(part)
        return tally.total()

    def _applied(self, step: Step) -> None:
        self.shards.apply(step)


class ThreadShards:
    """Shards in this process, `threads` of them at a time."""

    def __init__(self, shards: Sequence[TableRows], threads: int = 1) -> None:
        self._shards = shards
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def counted(self, question: Question, limit: float) -> Iterator[IntegerSums]:
        return self._each(lambda shard: shard.counted(question, limit))

    def apply(self, step: Step) -> None:
        for _ in self._each(lambda shard: shard.apply(step)):
            pass

    def _each(self, call: Any) -> Iterator[Any]:
        return iter(map(call, self._shards) if self._pool is None else self._pool.map(call, self._shards))


class ShardTotal:
    """An exact sum of shards' answers, however many and however large; texts are added up text by text."""

    def __init__(self) -> None:
        self._high: Index | None = None
        self._low: Index | None = None
        self._named: dict[str, int] | None = None

    def add(self, part: IntegerSums) -> None:
        if part.labels is not None:
            self._named = {} if self._named is None else self._named
            for label, value in zip(part.labels, part.values, strict=True):
                self._named[label] = self._named.get(label, 0) + int(value)
            return
        high, low = _halves(part.values)
        if self._high is None or self._low is None:
            self._high, self._low = high, low
        else:
            self._high += high
            self._low += low

    def total(self) -> IntegerSums:
        if self._named is not None:
            labels = tuple(sorted(self._named))  # an order that tells nothing of shards
            return IntegerSums(_joined(*_halves(np.array([self._named[label] for label in labels], object))), labels)
        assert self._high is not None
        assert self._low is not None
        return IntegerSums(_joined(self._high, self._low))


def _halves(values: NDArray[Any]) -> tuple[Index, Index]:
    """v = high·2³² + low, low from 0 to 2³² − 1."""
    return (values >> _HALF).astype(np.int64), (values & (2**_HALF - 1)).astype(np.int64)


def _joined(high: Index, low: Index) -> NDArray[Any]:
    """int64 where that leaves room for noise, else Python's integers."""
    high, low = high + (low >> _HALF), low & (2**_HALF - 1)
    if not np.any(np.abs(high) >= 2**30 - 1):
        return (high << _HALF) + low
    return high.astype(object) * 2**_HALF + low.astype(object)
