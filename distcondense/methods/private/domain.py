"""Where the rows of a number lie: cells that follow the mass, found by noisy counts before anything else is learned.

Public bounds may be generous, and most of a public grid then lies where nobody is. So a number is read on a grid of up
to MICRO cells, of which FINE are made by post-processing of noisy answers: the rows in FINE coarse cells are counted,
cells that stand out of the noise are cut finer, the more the more rows they hold, and the empty ones are joined, the
wider the further they lie from any row. A finer grid is counted on several levels, each on what the one before found.

What it costs is said by the plan from public facts: a column whose grid has no more than FINE cells costs nothing.

Where nobody knows the bounds (`bounds = "private"`) the grid is a logarithmic one around 0, and beyond the rows its
cells are a ladder that loses nobody. The histogram that every column pays for anyway then says where bounds lie: where
rows end at once, or thin out along a normal distribution's tail on a scale between that of the number and of its
logarithm, so that hardly anybody is left; of all such ends one between what the noisy counts can bear, rather far out.
That is post-processing, and so is how many the bounds leave out. Where nobody knows the categories (`categories =
"private"`) they are those whose noisy number of rows passes a threshold; all the others become one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from distcondense.arrays import Codes, Flags, Floats, Index
from distcondense.data.cells import FINE, Cells
from distcondense.data.draft import like_identifiers
from distcondense.data.schema import Column

OTHER = "other"
OCCUPIED = 3.0  # a coarse cell holds rows where its count is above so many standard deviations of its noise
BOUND = 4.5  # the same of a cell far out from others
SURE = 5.0  # bounds: the same of rows far out, where one by chance would make them absurd
LEFT_OUT = 5e-4  # bounds leave out so many rows, as far as one can tell
BODY = 0.02  # how rows thin out is looked at from where so many of them lie further out,
SEEN_BEYOND = 8.0  # these are so many standard deviations of their noise,
WIDER = 4.0  # and so many times those of the outermost cell that holds rows;
MOST_BODY = 0.5  # no more than these, for the noise,
WHOLE_BODY = 0.9  # nor than these
POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)  # scales on which tails may be straight; 0 is the logarithm
SIGNED_POWERS = (0.5, 0.75, 1.0)  # where rows have both signs: of their distance from the middle
BLOCKS = 8  # cells in which rows are seen are joined to so many
TRIED = 60  # ends on each scale, up to
FURTHEST = 64.0  # times as far out as rows are seen
STOPS = 0.2  # how likely rows end at once rather than thin out,
NATURAL = 20.0  # so many times likelier where scales end than at another cell's edge:
ENDS = (1.0, 100.0)  # of shares, and at 0
ROUGH = 0.3  # rows of a cell are so far from any line, relative
RATHER = 0.65  # rather too far out: the quantile of what the end may be
ALSO = 3.0  # rows further out, but not much, move it where they are so many standard deviations
PARTS = 20.0  # of the middle half of all rows, to which numbers are rounded where nobody said how they are measured
MOST_DIGITS = 4  # of the distance of its bounds at most,
MOST_DECIMALS = 12  # and with so many decimals at most
FROM_ZERO = 0.02  # a lower bound closer to 0 than this share of the upper one is 0
REACH = 0.7  # how far tails go beyond the body of a number, in lengths of that body,
FEW = 0.1  # where what lies further out is known to be no more than this share of the rows
BESIDE = 2  # cells beside those that hold rows keep their edges where bounds are looked for,
FEWEST = 16  # and so many more are made at least
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
    starts, kept, seen, number = _first(cells, inner), np.empty(0, np.int64), [], levels(cells)
    for level in range(number):
        counts = count(np.append(starts, inner) if cells.hole else starts)[: len(starts)]
        seen.append(counts)
        if cells.boundless and not level:
            kept = _kept(counts, sigma, starts, inner)
        starts = follow(
            counts, sigma, starts, inner, max(most - len(kept) - len(ENDS), FEWEST) if level == number - 1 else FINE
        )
    if not cells.boundless and seen[0][occupied(seen[0], sigma)].sum() < SEEN * rows:
        return even_cells(cells, most)
    if cells.boundless:
        scale_ends = np.searchsorted(cells.cuts, ENDS, side="right") + 1
        more = np.unique(np.concatenate([starts, kept, scale_ends])).astype(np.int64)
        starts = more if len(more) <= FINE else starts  # nothing stands out: as it was
    return cells.joined(starts), _merge(cells, starts)


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


class Bounded(NamedTuple):
    """A number with the bounds that its histogram told, and how many these leave out."""

    cells: Cells
    merge: Codes  # the new cell of each old one: what lies beyond joins the outermost
    below: float  # noisy rows, which become the lowest legal value,
    above: float  # and the highest
    noise: tuple[float, float]  # standard deviations of both


def bounded(cells: Cells, counts: Floats, sigma: float, rows: float | None = None) -> Bounded:
    """Bounds around what a noisy histogram (cells,) says of a number whose bounds nobody knew.

    `rows`: how many there are, where other answers tell that with hardly any noise.
    """
    inner = cells.size - cells.hole
    if rows is not None:
        counts = counts + (rows - counts.sum()) / cells.size
    held, edges = counts[:inner], np.concatenate([[cells.column.low], cells.cuts, [cells.column.high]]).astype(float)
    natural = edges[np.minimum(np.searchsorted(edges, ENDS, side="right"), inner)]  # the cell of each holds it
    known = rows is not None
    upper = Tail.from_counts(edges, held, sigma, natural, known)
    lower = Tail.from_counts(-edges[::-1], held[::-1], sigma, [0], known)
    column = replace(cells.column, low=0, high=1)
    if upper is None or lower is None or -lower.end > upper.end:  # nothing stands out of the noise: one cell
        merge = (np.arange(cells.size) >= inner).astype(np.int64)
        return Bounded(replace(cells, column=column, cuts=np.empty(0), boundless=False), merge, 0.0, 0.0, (0.0, 0.0))
    low, high = -lower.end, upper.end
    end = next((end for end, edge in zip(ENDS, natural, strict=True) if high == edge), None)
    if cells.column.whole and high > low + 1:
        high = math.ceil(high) - 1  # the last cell ends before its edge
    if 0 < low < FROM_ZERO * high:
        low = 0.0
    if max(-low, high) < 10.0 ** (2 - MOST_DECIMALS):
        low = high = 0.0
    if not high - low > LEFT_OUT * abs(high):  # all rows seem to have one value
        low, high = low - abs(low) / 2, high + abs(high) / 2 + (high == 0)
    low, high = _neat(low, high, cells.column)
    if end is not None:
        high = type(high)(end)
    inside = (cells.cuts > low) & (cells.cuts < high)
    merge = np.append(0, np.cumsum(inside))
    if cells.hole:
        merge = np.append(merge, merge[-1] + 1)
    beyond = edges[1:] <= low, edges[:-1] >= high
    gone = [max(float(held[one].sum()), 0.0) for one in beyond]
    noise = [float(sigma * math.sqrt(int(one.sum()))) for one in beyond]
    column = _measured(replace(column, low=low, high=high), upper.quarter + lower.quarter)
    found = replace(cells, column=column, cuts=cells.cuts[inside], boundless=False)
    return Bounded(found, merge, gone[0], gone[1], (noise[0], noise[1]))


class Tail(NamedTuple):
    """Where rows of a number end upwards."""

    end: float  # LEFT_OUT of all rows are left there
    quarter: float  # a quarter of all rows lie beyond it

    @classmethod
    def from_counts(
        cls, edges: Floats, held: Floats, sigma: float, natural: Sequence[float] | Floats, known: bool
    ) -> Tail | None:
        """Of noisy counts between edges; None where nothing stands out of the noise.

        Rows thin out along a normal distribution's tail, on one of several scales, or end at a cell's edge, rather at a
        `natural` one. All ends that are tried are weighed by how well the counts agree with them, whose sum has no
        noise where it is `known`.
        """
        rows, cells = float(held.sum()), len(held)
        upto = np.append(np.cumsum(held[::-1])[::-1], 0.0)  # rows from each edge on
        many = np.arange(cells + 1)
        noise = sigma * np.sqrt(
            many * np.maximum(1 - many / cells, 0.0) if known else many
        )  # of so many cells together
        outermost = _outermost(upto, noise)
        if outermost < 0:
            return None
        falling = np.maximum.accumulate(upto[::-1])[::-1]
        zero = int(np.searchsorted(edges, 0.0, side="right"))  # the first cell above that of 0
        below = rows - upto[int(np.searchsorted(edges, 0.0, side="left"))]
        none = min(SURE * sigma * math.sqrt(cells), FEW * rows)  # with so many rows nobody seems to be there
        one_sign = bool(below < none and upto[zero] > 0)
        first, body = 0, rows
        if one_sign and upto[zero] < MOST_BODY * rows:  # of 0 many tables are full: how all others thin out
            first = min(zero, outermost)
            body = max(float(falling[first]), 1.0)
        needed = np.maximum(BODY * body, SEEN_BEYOND * noise[cells - np.arange(cells)])
        needed = np.maximum(
            np.minimum(needed, MOST_BODY * body), min(WIDER * max(held[outermost], 0.0), WHOLE_BODY * body)
        )
        enough = np.flatnonzero(falling[:-1] >= needed)
        start = min(max(int(enough[-1]) if len(enough) else first, first), outermost)
        middle = 0.0 if one_sign and edges[start] >= 0 else float(edges[np.flatnonzero(falling >= rows / 2)[-1]])
        powers = POWERS if one_sign and edges[start] >= 0 else SIGNED_POWERS
        near = float(edges[start + 1] - edges[start])
        before = float(edges[start] - edges[start - 1]) if start else near
        near = min(near, before) if before > 1e-6 * near else near
        if powers is SIGNED_POWERS and edges[start] <= middle:
            middle = float(edges[start] - (edges[outermost + 1] - edges[start]))
        share = min(max(float(falling[start]) / body, 1e-3), WHOLE_BODY)
        left = min(LEFT_OUT * rows / body, share / 4)
        ends = np.geomspace(near / 4, FURTHEST * max(float(edges[outermost] - edges[start]), near), TRIED)
        within = np.linspace(edges[start], edges[outermost + 1], BLOCKS, endpoint=False)  # of few values, maybe
        blocks = np.clip(np.searchsorted(edges, within), start, outermost)
        kept = np.unique(np.concatenate([[start], blocks, np.arange(outermost + 1, cells)]))
        joined, blur = np.add.reduceat(held, kept), sigma * np.sqrt(np.diff(kept, append=cells))
        end = _end(edges[np.append(kept, cells)], joined, blur, share, left, ends, middle, powers, natural)
        alone = np.flatnonzero(held > BOUND * sigma)
        sure = max(outermost, int(alone[-1]) if len(alone) else 0)  # rows lie in this cell
        end = max(end, min(float(edges[sure + 1]), float(2 * edges[sure] - edges[start])))
        while (further := _also(edges, held, sigma, end, 2 * end - float(edges[start]))) > end:
            end = further
        if edges[start] < 0 and upto[zero] < none:
            end = min(end, 0.0)
        cell = min(int(np.flatnonzero(falling >= rows / 4)[-1]), cells - 1)
        part = (falling[cell] - rows / 4) / max(float(falling[cell] - falling[cell + 1]), 1e-12)
        return cls(end, _between(float(edges[cell]), float(edges[cell + 1]), float(np.clip(part, 0, 1))))


def _end(
    edges: Floats,
    held: Floats,
    sigma: Floats,
    share: float,
    left: float,
    ends: Floats,
    middle: float,
    powers: Sequence[float],
    natural: Sequence[float] | Floats,
) -> float:
    """Where a share `left` of rows is left, of which `share` lie beyond the first edge; `ends`: tried, from there."""
    scores, cells = ndtri([1 - share, 1 - left]), len(held)
    stops = np.arange(1, cells + 1)  # rows end at this edge; the last: nowhere
    likely = np.where(np.isin(edges[1:], natural), NATURAL, 1.0)
    likely = np.append(STOPS * likely[:-1] / cells, 1 - STOPS)
    told, found = [], []
    for power in powers:
        least = max(float(edges[0]) - middle, 1e-3 * ends[0] if power == 0 else 0.0)
        place, at = (_scaled(np.maximum(one - middle, least), power) for one in (edges, edges[0] + ends))
        steep = (at - place[0]) / (scores[1] - scores[0])
        beyond = ndtr(-(scores[0] + (place - place[0]) / steep[:, None]))  # (ends, edges)
        mass = beyond[:, :-1] - beyond[:, 1:]
        whole = np.append(np.cumsum(mass, 1)[:, :-1], beyond[:, :1], 1)  # (ends, stops)
        inside = np.arange(cells) < stops[:, None]
        due = mass[:, None] * inside / np.maximum(whole, 1e-300)[..., None] * max(float(held.sum()), float(sigma[0]))
        variance = sigma**2 + due + (ROUGH * due) ** 2
        told.append(-0.5 * ((held - due) ** 2 / variance + np.log(variance)).sum(2) + np.log(likely))
        last = np.append(edges[1:-1], np.inf)
        found.append(np.minimum(edges[0] + ends[:, None], last))
    logs, places = np.concatenate(told).ravel(), np.concatenate(found).ravel()
    order = np.argsort(places, kind="stable")
    weight = np.cumsum(np.exp(logs - logs.max())[order])
    return float(places[order][np.searchsorted(weight, RATHER * weight[-1])])


def _also(edges: Floats, held: Floats, sigma: float, end: float, reach: float) -> float:
    """The end, or where neighbouring cells reach beyond it that stand out of the noise, and no further than `reach`."""
    there = np.flatnonzero((edges[1:] > end) & (edges[1:] <= reach))
    for width in range(1, len(there) + 1):
        sums = np.convolve(held[there], np.ones(width), "valid")
        for first in np.flatnonzero(sums > ALSO * sigma * math.sqrt(width)):
            end = max(end, float(edges[there[first] + width]))
    return end


def _outermost(upto: Floats, noise: Floats) -> int:
    """The first cell of the outermost run of neighbours that hold rows for sure; -1: none. `noise`: of so many."""
    beyond = np.flatnonzero(upto[:-1] > SURE * noise[:0:-1])  # all further out, together
    found, width = int(beyond[-1]) if len(beyond) else -1, 1
    while width < len(upto):
        held = np.flatnonzero(upto[:-width] - upto[width:] > SURE * noise[width])
        found = max(found, int(held[-1]) if len(held) else -1)
        width *= 2
    return found


def _scaled(values: Floats, power: float) -> Floats:
    return np.asarray(np.log(values) if power == 0 else values**power, np.float64)


def _between(low: float, high: float, part: float) -> float:
    """So much of the way from one number to another, by their logarithms where both are of one sign."""
    if low * high > 0:
        return float(low * (high / low) ** part)
    return low + part * (high - low)


def _measured(column: Column, middle: float) -> Column:
    """Rounded, where nobody said how it is measured, to a small part of how far its middle half of rows reaches."""
    if column.whole or column.decimals is not None:
        return column
    assert column.low is not None
    assert column.high is not None
    finest = (column.high - column.low) * 10.0**-MOST_DIGITS
    decimals = math.ceil(-math.log10(max(middle / PARTS, finest)))
    needed = max(-int(Decimal(repr(float(end))).normalize().as_tuple().exponent) for end in (column.low, column.high))
    return replace(column, decimals=int(np.clip(max(decimals, needed), 0, MOST_DECIMALS)))


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
    spare = max(most - len(kept), min(FEWEST, FINE - len(kept)))
    parts = _parts(np.sqrt(np.maximum(counts[held], sigma)), np.diff(edges)[held], spare)
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


def _kept(counts: Floats, sigma: float, starts: Index, size: int) -> Index:
    """Where cells begin that seem to hold rows, or quarters of cells that hold many, and their next neighbours.

    They are kept, whatever more noise in finer cells may hide.
    """
    edges, alone = np.append(starts, size), counts > OCCUPIED * sigma
    seem = alone.copy()
    for width in (2, 4, 8):  # runs of cells none of which stands out alone
        rest, many = (np.convolve(one, np.ones(width), "valid") for one in (np.where(alone, 0.0, counts), ~alone))
        for first in np.flatnonzero(rest > OCCUPIED * sigma * np.sqrt(np.maximum(many, 1))):
            seem[first : first + width] = True
    held = np.flatnonzero(seem)
    held = held[np.argsort(-counts[held], kind="stable")][: FINE // 16]
    beside = (held[:, None] + np.arange(-BESIDE, BESIDE + 1)).ravel()
    many = held[alone[held]]
    inside = edges[many][:, None] + np.diff(edges)[many][:, None] * np.arange(4) // 4
    return np.union1d(starts[np.clip(beside, 0, len(starts) - 1)], inside.ravel()).astype(np.int64)


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
