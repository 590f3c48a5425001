"""Columns into records and back: rows are dealt out to where they belong, and those that count are collected again.

Fields of one width at a time, as unsigned integers. Loops in row order, no threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distcondense.kernels.jit import kernel

TOP = 54  # of 64 bits: the ten above name a bucket


@kernel()
def places_by_number(number: Any, begin: Any, place: Any) -> None:
    """place ← where each row lies once rows stand by their number, in row order; numbers begin at `begin` (written)."""
    for i in range(number.shape[0]):
        place[i] = begin[number[i]]
        begin[number[i]] += 1


@kernel()
def scatter_fields(fields: Any, place: Any, at: Any, out: Any) -> None:
    """out[place[i], at[f]] ← fields[f, i]."""
    for i in range(place.shape[0]):
        row = out[place[i]]
        for f in range(at.shape[0]):
            row[at[f]] = fields[f, i]


@kernel()
def gather_fields(records: Any, which: Any, at: Any, out: Any) -> None:
    """out[f, j] ← records[which[j], at[f]]."""
    for j in range(which.shape[0]):
        row = records[which[j]]
        for f in range(at.shape[0]):
            out[f, j] = row[at[f]]


@kernel()
def scatter_values(values: Any, place: Any, out: Any) -> None:
    """out[place[i]] ← values[i]."""
    for i in range(place.shape[0]):
        out[place[i]] = values[i]


@kernel()
def scatter_pairs(values: Any, place: Any, out: Any) -> None:
    """The same of (n, 2)."""
    for i in range(place.shape[0]):
        out[place[i], 0] = values[i, 0]
        out[place[i], 1] = values[i, 1]


@kernel()
def gather_stretches(values: Any, first: Any, begin: Any, out: Any) -> None:
    """Stretches of (n, 2) values one behind the other: the k-th is values[first[k]:], out[begin[k]:begin[k + 1]]."""
    for k in range(first.shape[0]):
        at = first[k] - begin[k]
        for i in range(begin[k], begin[k + 1]):
            out[i, 0], out[i, 1] = values[at + i, 0], values[at + i, 1]


@kernel()
def bucket_keys(mark: Any, lost: Any, buckets: Any, key: Any, counts: Any) -> None:
    """key ← the bucket that each mark names, behind all of them where a row is lost; counts += rows of each key."""
    last = np.uint64(buckets - 1)
    for i in range(mark.shape[0]):
        key[i] = np.int64((mark[i, 0] >> np.uint64(TOP)) & last) + lost[i] * buckets
        counts[key[i]] += 1


@kernel()
def maybe_repeated(mark: Any, seen: Any, out: Any) -> None:
    """out ← whether another mark of (n, 2) has the same place in `seen` (zeros, a power of two): any equal one has."""
    last = np.uint64(seen.shape[0] - 1)
    for i in range(mark.shape[0]):
        at = mark[i, 0] & last
        seen[at] = min(seen[at] + 1, 2)
    for i in range(mark.shape[0]):
        out[i] = seen[mark[i, 0] & last] > 1
