"""Rows into cells: where each row lies, and exact integer sums of what rows add there. Loops in row order, no threads.

Sums are int64: the caller keeps them within that (privacy/rows.py says how). Floats are truncated towards zero one by
one before they are added, so that no sum depends on an order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from distcondense.kernels.jit import kernel

FEW = 32  # rows of one person that are sorted in place
BLOCK = 512  # rows whose cells are found before they are counted: they stay in the nearest cache
# Tables of few cells are summed in four copies side by side: rows that follow each other often lie in one cell, and
# adding there would wait for the addition before.
SIDES, SMALL, SMALL_PAIRS = 4, 1024, 512


@kernel()
def place(code: Any, to: Any, size: Any, cell: Any) -> None:
    """cell (n,) ← cell·size + to[code], code (n,): one more column of a joint cell."""
    for i in range(code.shape[0]):
        cell[i] = cell[i] * size + to[code[i]]


@kernel()
def look_up(code: Any, to: Any, out: Any) -> None:
    """out (n,) ← to[code], code (n,)."""
    for i in range(code.shape[0]):
        out[i] = to[code[i]]


@kernel()
def count(cell: Any, group: Any, total: Any) -> None:
    """total (groups, cells) += rows in each (group, cell); cell (n,), group (n,) or (1,) where all rows are in one."""
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
    """total (cells,) += Σ trunc(values·factor) in each cell; cell, values (n,)."""
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
def count_triples(small: Any, triples: Any, sizes: Any, starts: Any, total: Any) -> None:
    """total += rows in each joint cell of three columns; `small` (columns, n) cells, triples (T, 3) columns."""
    rows, at = small.shape[1], np.empty(BLOCK, np.uint32)
    for t in range(triples.shape[0]):
        own = total[starts[t] : starts[t + 1]]
        second, third = np.uint32(sizes[triples[t, 1]]), np.uint32(sizes[triples[t, 2]])
        for first in range(0, rows, BLOCK):
            last = min(first + BLOCK, rows)
            a, b = small[triples[t, 0], first:last], small[triples[t, 1], first:last]
            c = small[triples[t, 2], first:last]
            for i in range(last - first):
                at[i] = (np.uint32(a[i]) * second + np.uint32(b[i])) * third + np.uint32(c[i])
            for i in range(last - first):
                own[at[i]] += 1


@kernel()
def shift_scores(cell: Any, table: Any, score: Any) -> None:
    """score (n, S) += table (cells, S)[cell]."""
    if table.shape[1] == 1:
        for i in range(cell.shape[0]):
            score[i, 0] += table[cell[i], 0]
    else:
        for i in range(cell.shape[0]):
            for s in range(table.shape[1]):
                score[i, s] += table[cell[i], s]


@kernel()
def sum_by_person(begin: Any, cell: Any, values: Any, owner: Any, where: Any, parts: Any) -> Any:
    """Adds up each person's rows by cell, cells upwards; rows of person p are begin[p] … begin[p+1].

    values (K, n) whole numbers; owner, where (n,) and parts (K, n) are written up to the number that is returned: whose
    it is, which cell, and the sums there.
    """
    many = 0
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
                owner[many], where[many] = p, last
                for k in range(values.shape[0]):
                    parts[k, many] = 0.0
                many += 1
            for k in range(values.shape[0]):
                parts[k, many - 1] += values[k, row]
    return many


@kernel()
def looked_up_sums(code: Any, table: Any, cell: Any, score: Any, label: Any, entries: Any, total: Any) -> None:
    """What rows add in each cell, looked up by score and label: total (2, cells) += entries (2, 2·L + 1, 2) int64.

    Scores are whole numbers; beyond ±L they count as ±L. First score += table[code], where there are codes. Few cells
    have tallies side by side.
    """
    rows, cells, most = score.shape[0], total.shape[1], np.int32(entries.shape[1] // 2)
    size, flat = np.int32(entries.shape[1]), entries.reshape(-1, 2)
    at = np.empty(BLOCK, np.uint32)
    sides = SIDES if cells <= SMALL_PAIRS else 1
    tally = np.zeros((sides, cells, 2), np.int64)
    for first in range(0, rows, BLOCK):
        last = min(first + BLOCK, rows)
        here, own, where = score[first:last], label[first:last], cell[first:last]
        if code.shape[0]:
            codes = code[first:last]
            for i in range(last - first):
                here[i] += table[codes[i]]
        for i in range(last - first):
            at[i] = np.uint32(min(max(here[i], -most), most) + most + np.int32(own[i]) * size)
        even = (last - first) // SIDES * SIDES if sides == SIDES else 0
        for i in range(0, even, SIDES):
            a, b, c, d = where[i], where[i + 1], where[i + 2], where[i + 3]
            p, q, r, s = at[i], at[i + 1], at[i + 2], at[i + 3]
            tally[0, a, 0] += flat[p, 0]
            tally[0, a, 1] += flat[p, 1]
            tally[1, b, 0] += flat[q, 0]
            tally[1, b, 1] += flat[q, 1]
            tally[2, c, 0] += flat[r, 0]
            tally[2, c, 1] += flat[r, 1]
            tally[3, d, 0] += flat[s, 0]
            tally[3, d, 1] += flat[s, 1]
        for i in range(even, last - first):
            tally[0, where[i], 0] += flat[at[i], 0]
            tally[0, where[i], 1] += flat[at[i], 1]
    for side in range(sides):
        for j in range(cells):
            total[0, j] += tally[side, j, 0]
            total[1, j] += tally[side, j, 1]
