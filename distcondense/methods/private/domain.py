"""Where the rows of a number lie: cells that follow the mass, found by noisy counts before anything else is learned.

Public bounds may be generous, and most of a public grid then lies where nobody is. So a number is read on a grid of up
to MICRO cells, of which FINE are made by post-processing of noisy answers: the rows in FINE coarse cells are counted,
cells that stand out of the noise are cut finer, the more the more rows they hold, and the empty ones are joined, the
wider the further they lie from any row. A finer grid is counted on several levels, each on what the one before found.

What it costs is said by the plan from public facts: a column whose grid has no more than FINE cells costs nothing.

Where nobody knows the bounds (`bounds = "private"`) the grid is a logarithmic one around 0, and the bounds are the
outer edges of the cells that hold rows, rounded outwards. Where nobody knows the categories (`categories = "private"`)
they are those whose noisy number of rows passes a threshold; all the others become one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from distcondense.arrays import Codes, Flags, Floats, Index
from distcondense.data.cells import FINE, Cells
from distcondense.data.draft import like_identifiers
from distcondense.data.schema import Column

OTHER = "other"
OCCUPIED = 3.0  # a coarse cell holds rows where its count is above so many standard deviations of its noise
BOUND = 4.5  # the same of the outermost cells, whose edges become bounds: one by chance would make them absurd
THIN = 0.125  # where bounds are found: a cell with less than this share of what cells further inwards hold is beyond
STRETCH = 0.5  # bounds lie so much further out than what surely holds rows, in its lengths
REACH = 0.7  # how far tails go beyond the body of a number, in lengths of that body,
FEW = 0.1  # where what lies further out is known to be no more than this share of the rows
SEEN = 0.75  # of all rows must lie in coarse cells that hold rows, or cells are of even width
WINDOW = 8  # thin rows are looked for in windows of up to 1/this of the coarse cells

Count = Callable[[Index], Floats]  # (k,) first micro cell of each coarse one → (k,) noisy rows


def levels(cells: Cells) -> int:
    """How often a column's rows are counted before its cells are fixed: each level makes cells FINE times finer."""
    inner = cells.size - cells.hole
    return max(1, math.ceil(math.log(inner, FINE) - 0.01) - 1) if cells.numeric and inner > FINE else 0


def most_cells(cells: Cells) -> int:
    """The most cells that a column can have after this stage, and while it is counted."""
    if cells.numeric:
        return min(cells.size, FINE + cells.hole)
    return FINE + 1 + cells.hole if cells.column.unknown else cells.size


def found_cells(cells: Cells, count: Count, sigma: float, rows: float = 0.0, most: int = FINE) -> tuple[Cells, Codes]:
    """(cells that follow the rows, the new cell of each old one), by `levels(cells)` noisy counts of deviation sigma.

    `count` is asked with the first old cell of each coarse one; a hole is a coarse cell of its own, the last. In the
    end there are about `most` cells: of even width where cells that stand out of the noise hold too few of the `rows`
    to say where the others are.
    """
    inner = cells.size - cells.hole
    starts, seen, number = _first(cells, inner), [], levels(cells)
    for level in range(number):
        counts = count(np.append(starts, inner) if cells.hole else starts)[: len(starts)]
        seen.append((np.append(starts, inner), counts))
        starts = follow(counts, sigma, starts, inner, most if level == number - 1 else FINE)
    counts = seen[0][1]
    if not cells.boundless and counts[occupied(counts, sigma)].sum() < SEEN * rows:
        return even_cells(cells, most)
    found = cells.joined(starts)
    if cells.boundless:
        found, starts = _bounded(found, starts, _ends(seen, sigma), cells)
    return found, _merge(cells, starts)


def even_cells(cells: Cells, most: int) -> tuple[Cells, Codes]:
    """(at most so many cells, the new cell of each old one): neighbours joined, about as many in each; asks nothing."""
    inner = cells.size - cells.hole
    starts = np.unique(np.arange(most) * inner // most).astype(np.int64)
    return cells.joined(starts), _merge(cells, starts)


def _merge(cells: Cells, starts: Index) -> Codes:
    """The new cell of each old one, where new ones begin at `starts`; a hole is the last."""
    merge = np.searchsorted(starts, np.arange(cells.size), side="right") - 1
    if cells.hole:
        merge[-1] = len(starts)
    return merge


def _ends(seen: Sequence[tuple[Index, Floats]], sigma: float) -> tuple[int, int] | None:
    """(first, one after the last) micro cell of what surely holds rows: told by the first level, narrowed by others.

    `seen`: per level the (k + 1,) edges of its cells and their (k,) noisy rows. None where nothing stands out.
    """
    (edges, counts), *finer = seen
    held = np.flatnonzero(counts > BOUND * sigma)
    if not len(held):
        return None
    first, end = int(edges[held[0]]), int(edges[held[-1] + 1])
    lowest, highest = int(edges[held[0] + 1]), int(edges[held[-1]])  # inner edges of the two outermost cells
    for edges, counts in finer:
        lower = np.flatnonzero((edges[:-1] >= first) & (edges[1:] <= lowest))
        upper = np.flatnonzero((edges[:-1] >= highest) & (edges[1:] <= end))[::-1]
        first = int(edges[_reached(counts, lower, sigma)]) if len(lower) else first
        end = int(edges[_reached(counts, upper, sigma) + 1]) if len(upper) else end
    return first, end


def _reached(counts: Floats, inwards: Index, sigma: float) -> int:
    """Where rows begin among these cells, from outside inwards; the outermost where nothing stands out of the noise.

    Up to some cell the counts together stand out. Rows begin where counting from there outwards, each cell less THIN of
    what cells further inwards hold, comes to the most: rather too far out than too far in.
    """
    here = counts[inwards]
    there = np.cumsum(here) > BOUND * sigma * np.sqrt(np.arange(1, len(here) + 1))
    sure = int(np.argmax(there))
    outwards = np.cumsum((here - THIN * max(float(here[sure:].mean()), 0.0))[sure::-1])
    return int(inwards[sure - int(np.argmax(outwards))])


def _bounded(found: Cells, starts: Index, ends: tuple[int, int] | None, micro: Cells) -> tuple[Cells, Index]:
    """Cells within bounds around these micro cells; what lies beyond joins the outermost ones."""
    low, high = 0.0, 1.0  # where nothing stands out of the noise, one cell
    if ends is not None:
        edges = np.concatenate([[micro.column.low], micro.cuts, [micro.column.high]])
        first, last = float(edges[ends[0]]), float(edges[ends[1]])
        more = STRETCH * (last - first)  # for tails too thin to be seen; numbers that are never negative stay so
        low = first - more if first < 0 else max(first - more, 0.0)
        low, high = _neat(low, last + more if last > 0 else min(last + more, 0.0), found.column)
    inside = (found.cuts > low) & (found.cuts < high) & (ends is not None)
    column = replace(found.column, low=low, high=high)
    return replace(found, column=column, cuts=found.cuts[inside], boundless=False), starts[[True, *inside]]


def _neat(low: float, high: float, column: Column) -> tuple[float, float]:
    """Bounds rounded outwards to two digits of their distance, and no finer than the column's numbers."""
    unit = 10.0 ** math.floor(math.log10(high - low) - 1)
    least = 1.0 if column.kind == "integer" else 0.0 if column.decimals is None else 10.0**-column.decimals
    unit = max(unit, least)
    digits = max(0, -math.floor(math.log10(unit)))
    ends = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
    return (
        (int(ends[0]), int(ends[1])) if column.kind == "integer" else (round(ends[0], digits), round(ends[1], digits))
    )


def found_categories(cells: Cells, told: Mapping[str, float], checked: bool) -> tuple[Cells, tuple[str, ...]]:
    """(the column with the categories that were told, those of them that have a cell of their own).

    The most frequent FINE of them, in the order of their texts; then one for all others. Where they look like
    identifiers and nobody has checked them, none has a cell: that is decided on what was told, and costs nothing.
    """
    labels = tuple(sorted(sorted(told, key=lambda label: (-told[label], label))[:FINE]))
    if like_identifiers(labels) and not checked:
        labels = ()
    other = OTHER
    while other in labels:  # an answer of the same name is not ours
        other += "_"
    return replace(cells, column=replace(cells.column, categories=(*labels, other))), labels


def _first(cells: Cells, inner: int) -> Index:
    """FINE coarse cells of as many micro cells each; that of 0, which many tables are full of, stands alone."""
    zero = int(np.searchsorted(cells.cuts, 0.0, side="right"))
    alone = [place for place in (zero, zero + 1) if place < inner]
    return np.unique(np.concatenate([np.arange(FINE - 2) * inner // (FINE - 2), alone])).astype(np.int64)


def follow(counts: Floats, sigma: float, starts: Index, size: int, most: int) -> Index:
    """(k,) noisy rows in cells that begin at `starts`, of `size` micro cells → the starts of `most` new ones."""
    held = occupied(counts, sigma)
    if not held.any():  # too few rows to say: as it was
        return starts
    edges = np.append(starts, size)
    kept = np.concatenate([np.flatnonzero(held), *(_joined(run, held) for run in _runs(~held))])
    kept.sort()
    parts = _parts(np.sqrt(np.maximum(counts[held], sigma)), np.diff(edges)[held], most - len(kept))
    out: list[int] = []
    more = iter(parts)
    for cell in kept:
        number = next(more) if held[cell] else 1
        width = edges[cell + 1] - edges[cell]
        out += [int(edges[cell]) + part * int(width) // number for part in range(number)]
    return np.array(out, np.int64)


def occupied(counts: Floats, sigma: float) -> Flags:
    """(k,) whether each cell seems to hold rows: alone, or together with neighbours none of which do so alone."""
    held = counts > OCCUPIED * sigma
    width = 2
    while width <= len(counts) // WINDOW:
        for start in range(0, len(counts), width):
            window = slice(start, start + width)
            open_ = ~held[window]
            if counts[window][open_].sum() > OCCUPIED * sigma * math.sqrt(max(int(open_.sum()), 1)) and open_.any():
                held[window] = True
        width *= 2
    return held


def out_of_reach(counts: Floats, sigma: float, cells: Cells) -> Flags:
    """(s,) cells of a number further from its body than REACH times the body's length: no row is drawn there.

    The body is what is left after both tails whose noisy counts do not stand out of the noise, neither added up from
    outside nor alone. Noise may hide most of a small table's rows, and the body is then a cell or two of many: a tail
    is out of reach only where its noisy rows and a standard deviation more are FEW.
    """
    inner = cells.size - cells.hole
    edges, far, here = cells.edges, np.zeros(len(counts), np.bool_), counts[:inner]
    bound, alone = OCCUPIED * sigma * np.sqrt(np.arange(1, inner + 1)), here > BOUND * sigma
    left, right = (np.cumsum(here) > bound) | alone, (np.cumsum(here[::-1]) > bound) | alone[::-1]
    if left.any() and right.any():
        first, last = int(np.argmax(left)), inner - 1 - int(np.argmax(right))
        low, high = edges[min(first, last)], edges[max(first, last) + 1]
        beyond = REACH * (high - low)
        for tail in (edges[1:] <= low - beyond, edges[:-1] >= high + beyond):
            if here[tail].sum() + sigma * math.sqrt(int(tail.sum())) <= FEW * counts.sum():
                far[:inner] |= tail
    return far


def _runs(flags: Flags) -> list[tuple[int, int]]:
    """(first, one after the last) of each run of true flags."""
    change = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(a), int(b)) for a, b in change.reshape(-1, 2)]


def _joined(run: tuple[int, int], held: Flags) -> Index:
    """Empty cells joined: 1, 1, 2, 4, … of them away from the rows on either side. The first cell of each."""
    first, end = run
    from_left = first > 0  # rows lie on that side
    from_right = end < len(held)
    steps = np.cumsum([0, 1, *(2.0 ** np.arange(len(held).bit_length()))]).astype(np.int64)
    left = first + steps if from_left else np.array([first])
    right = end - steps if from_right else np.array([end])
    middle = (first + end) / 2 if from_left and from_right else end if from_left else first
    starts = {int(s) for s in left if s <= middle} | {int(s) for s in right if s >= middle} | {first}
    return np.array(sorted(s for s in starts if first <= s < end), np.int64)


def _parts(weight: Floats, widths: Index, spare: int) -> list[int]:
    """Into how many parts each cell is cut: by highest averages of its weight, no finer than its micro cells."""
    parts = [1] * len(weight)
    heap = [(-w / 2, k) for k, w in enumerate(weight) if widths[k] > 1]
    heapq.heapify(heap)
    for _ in range(spare):
        if not heap:
            break
        _, k = heapq.heappop(heap)
        parts[k] += 1
        if parts[k] < widths[k]:
            heapq.heappush(heap, (-weight[k] / (parts[k] + 1), k))
    return parts
