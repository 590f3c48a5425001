"""Columns into records and back: rows are dealt out to where they belong, and those that count are collected again.

Fields of one width at a time, as unsigned integers. Loops in row order, no threads.
"""

from __future__ import annotations

from typing import Any

from distcondense.kernels.jit import kernel


@kernel()
def places_of(number: Any, begin: Any, place: Any) -> None:
    """place ← where each row lies once rows stand by their number, in row order; numbers begin at `begin` (written)."""
    for i in range(number.shape[0]):
        place[i] = begin[number[i]]
        begin[number[i]] += 1


@kernel()
def deal(fields: Any, place: Any, at: Any, out: Any) -> None:
    """out[place[i], at[f]] ← fields[f, i]."""
    for i in range(place.shape[0]):
        row = out[place[i]]
        for f in range(at.shape[0]):
            row[at[f]] = fields[f, i]


@kernel()
def collect(records: Any, which: Any, at: Any, out: Any) -> None:
    """out[f, j] ← records[which[j], at[f]]."""
    for j in range(which.shape[0]):
        row = records[which[j]]
        for f in range(at.shape[0]):
            out[f, j] = row[at[f]]
