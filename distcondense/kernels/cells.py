"""Rows into cells: where each row lies, and exact integer sums of what rows add there. Loops in row order, no threads.

Sums are int64: the caller keeps them within that (privacy/rows.py says how). Floats are truncated towards zero one by
one before they are added, so that no sum depends on an order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distcondense.kernels.jit import kernel

FEW = 32  # rows of one person that are sorted in place
CROWDED = 8  # cuts in one step
BLOCK = 512  # rows whose cells are found before they are counted: they stay in the nearest cache
KNOWN, TRIED = 2**12, 2**12  # numbers whose cells are remembered; rows after which it is seen whether that helps
_ODD, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(64 - 12)
SIDES, SMALL = 4, 1024  # tallies side by side, of so few cells: rows that follow each other often lie in the same cell,
# and adding there would wait for the addition before


@kernel()
def place(code: Any, to: Any, size: Any, cell: Any) -> None:
    """cell ← cell·size + to[code]: one more column of a joint cell."""
    for i in range(code.shape[0]):
        cell[i] = cell[i] * size + to[code[i]]


@kernel()
def look_up(code: Any, to: Any, out: Any) -> None:
    """out ← to[code]."""
    for i in range(code.shape[0]):
        out[i] = to[code[i]]


@kernel()
def count(cell: Any, group: Any, total: Any) -> None:
    """Rows in each (group, cell), added to `total`; one group alone is that of all rows."""
    rows, cells = cell.shape[0], np.uint32(total.shape[1])
    at, flat = np.empty(BLOCK, np.uint32), total.reshape(-1)
    sides = SIDES if flat.shape[0] <= SMALL else 1
    tally = np.zeros((sides, flat.shape[0]), np.int64)
    for first in range(0, rows, BLOCK):
        last = min(first + BLOCK, rows)
        here = cell[first:last]
        if group.shape[0] == 1:
            for i in range(last - first):
                at[i] = np.uint32(group[0]) * cells + np.uint32(here[i])
        else:
            own = group[first:last]
            for i in range(last - first):
                at[i] = np.uint32(own[i]) * cells + np.uint32(here[i])
        even = (last - first) // SIDES * SIDES if sides == SIDES else 0
        for i in range(0, even, SIDES):
            tally[0, at[i]] += 1
            tally[1, at[i + 1]] += 1
            tally[2, at[i + 2]] += 1
            tally[3, at[i + 3]] += 1
        for i in range(even, last - first):
            tally[0, at[i]] += 1
    for side in range(sides):
        for j in range(flat.shape[0]):
            flat[j] += tally[side, j]


@kernel()
def add(cell: Any, values: Any, factor: Any, total: Any) -> None:
    """Σ trunc(value·factor) in each cell, added to `total`."""
    for i in range(cell.shape[0]):
        total[cell[i]] += np.int64(values[i] * factor)


@kernel()
def add_pairs(small: Any, weight: Any, first: Any, second: Any, sizes: Any, starts: Any, total: Any) -> None:
    """Σ weight in each cell of each pair of columns; `small` (columns, n) cells, a pair's block begins at its start."""
    for p in range(first.shape[0]):
        a, b, size, start = small[first[p]], small[second[p]], sizes[second[p]], starts[p]
        for i in range(a.shape[0]):
            total[start + np.int64(a[i]) * size + b[i]] += weight[i]


@kernel()
def count_threes(small: Any, threes: Any, sizes: Any, starts: Any, total: Any) -> None:
    """Rows in each joint cell of three columns, added to `total`; `small` (columns, n) cells, threes (T, 3) columns."""
    rows, at = small.shape[1], np.empty(BLOCK, np.uint32)
    for t in range(threes.shape[0]):
        own = total[starts[t] : starts[t + 1]]
        second, third = np.uint32(sizes[threes[t, 1]]), np.uint32(sizes[threes[t, 2]])
        for first in range(0, rows, BLOCK):
            last = min(first + BLOCK, rows)
            a, b = small[threes[t, 0], first:last], small[threes[t, 1], first:last]
            c = small[threes[t, 2], first:last]
            for i in range(last - first):
                at[i] = (np.uint32(a[i]) * second + np.uint32(b[i])) * third + np.uint32(c[i])
            for i in range(last - first):
                own[at[i]] += 1


@kernel()
def move(cell: Any, table: Any, score: Any) -> None:
    """score (n, S) += table (cells, S)[cell]."""
    if table.shape[1] == 1:
        for i in range(cell.shape[0]):
            score[i, 0] += table[cell[i], 0]
    else:
        for i in range(cell.shape[0]):
            for s in range(table.shape[1]):
                score[i, s] += table[cell[i], s]


@kernel()
def by_person(begin: Any, cell: Any, values: Any, owner: Any, where: Any, parts: Any) -> Any:
    """Adds up each person's rows by cell, cells upwards; rows of person p are begin[p] … begin[p+1].

    values (K, n) whole numbers; owner, where (n,) and parts (K, n) are written up to the number that is returned: whose
    it is, which cell, and the sums there.
    """
    found = 0
    order = np.empty(FEW, np.int64)
    for p in range(begin.shape[0] - 1):
        start, stop = begin[p], begin[p + 1]
        rows = stop - start
        if rows > FEW:
            sorted_ = np.argsort(cell[start:stop])
        else:
            for i in range(rows):
                j = i
                while j > 0 and cell[start + order[j - 1]] > cell[start + i]:
                    order[j] = order[j - 1]
                    j -= 1
                order[j] = i
            sorted_ = order[:rows]
        last = np.int64(-1)
        for i in range(rows):
            row = start + sorted_[i]
            if cell[row] != last:
                last = cell[row]
                owner[found], where[found] = p, last
                for k in range(values.shape[0]):
                    parts[k, found] = 0.0
                found += 1
            for k in range(values.shape[0]):
                parts[k, found - 1] += values[k, row]
    return found


@kernel(inline="always")
def _slot(bits: Any) -> Any:
    return (bits * _ODD) >> _SHIFT


@kernel(inline="always")
def _cell(x: Any, cuts: Any, jump: Any, origin: Any, scale: Any) -> Any:
    """How many cuts lie at or below x. Mostly there is none or one more than where looking begins: these are added
    without a branch, which nobody could foresee."""
    at, steps = (x - origin) * scale, jump.shape[0] - 1
    step = 0 if at < 0 else steps - 1 if at >= steps else int(at)
    found, last = jump[step], jump[step + 1]
    if last - found > CROWDED:
        while found < last:
            middle = (found + last) >> 1
            if cuts[middle] <= x:
                found = middle + 1
            else:
                last = middle
    found += cuts[found] <= x
    found += cuts[found] <= x
    while cuts[found] <= x:
        found += 1
    while found > 0 and cuts[found - 1] > x:  # a step's edge is rounded
        found -= 1
    return found


@kernel()
def cut(values: Any, cuts: Any, jump: Any, origin: Any, scale: Any, low: Any, high: Any, whole: Any, out: Any) -> Any:
    """out ← how many cuts lie at or below each number; returns (how many are no number, how many are illegal).

    Illegal are infinite ones, those outside [low, high] and, with `whole`, those with decimals. `cuts` end with
    infinity. `jump`: equal steps of 1/scale from `origin` on, and how many cuts lie below each, where looking begins.
    Measured numbers have few decimals and come again: cells of some are remembered, as long as that is worth while.
    """
    holes, bad, hits, remember = 0, 0, 0, True
    bits, known, cells = values.view(np.uint64), np.zeros(KNOWN, np.uint64), np.zeros(KNOWN, out.dtype)
    known[_slot(np.uint64(0))] = np.uint64(1)  # so that no slot knows what was never looked up
    for i in range(values.shape[0]):
        if i % TRIED == 0:
            remember = i == 0 or (remember and hits > TRIED // 4 * 3)
            hits = 0
        if remember:
            slot = _slot(bits[i])
            if known[slot] == bits[i]:
                out[i] = cells[slot]
                hits += 1
                continue
        x = values[i]
        if x != x:
            holes += 1
            continue
        if not (low <= x <= high) or np.isinf(x) or (whole and x != np.round(x)):
            bad += 1
            continue
        out[i] = _cell(x, cuts, jump, origin, scale)
        if remember:
            known[slot], cells[slot] = bits[i], out[i]
    return holes, bad


@kernel()
def fill(values: Any, code: Any, out: Any) -> None:
    """out ← code where there is no number."""
    for i in range(values.shape[0]):
        if values[i] != values[i]:
            out[i] = code
