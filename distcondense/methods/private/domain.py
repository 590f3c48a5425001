"""Where the rows of a number lie: cells that follow the mass, found by noisy counts before anything else is learned.

Public bounds may be generous, and most of a public grid then lies where nobody is. So a number is read on a grid of up
to MICRO cells, of which FINE are made by post-processing of noisy answers: the rows in FINE coarse cells are counted,
cells that stand out of the noise are cut finer, the more the more rows they hold, and the empty ones are joined, the
wider the further they lie from any row. A finer grid is counted on several levels, each on what the one before found.

What it costs is said by the plan from public facts: a column whose grid has no more than FINE cells costs nothing.

Where nobody knows the bounds (`bounds = "private"`) the grid is a logarithmic one around 0, and beyond the rows its
cells are a ladder that loses nobody. The histogram that every column pays for anyway then says where bounds lie: two
quantiles that stand out of its noise, and beyond them, along a line on a scale on which tails are straight, one that
leaves hardly anybody out. That is post-processing, and so is how many the bounds leave out. Where nobody knows the
categories (`categories = "private"`) they are those whose noisy number of rows passes a threshold; all the others
become one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from distcondense.arrays import Codes, Flags, Floats, Index
from distcondense.data.cells import FINE, Cells
from distcondense.data.draft import like_identifiers
from distcondense.data.schema import Column

OTHER = "other"
OCCUPIED = 3.0  # a coarse cell holds rows where its count is above so many standard deviations of its noise
BOUND = 4.5  # the same of a cell far out from others
SURE = 5.0  # bounds: the same of tails, where one by chance would make them absurd
TAIL = 0.02  # bounds: a tail of so many rows or more, as far as it stands out of the noise,
WIDER = 4.0  # and one of so many times as many say how rows thin out,
LEFT_OUT = 5e-4  # and where so many would be left
ENDS = (1.0, 100.0)  # of shares: where nobody seems to lie beyond one of these
NEAR = 0.7  # though the tail comes this near, or
FEWEST_BEYOND = 0.01  # would leave so few beyond, it is the bound
POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)  # scales on which tails may be straight; 0 is the logarithm
STEEPEST = 5.0  # most by which a tail grows with a standard deviation of a normal distribution
PARTS = 20.0  # of the middle half of all rows, to which numbers are rounded where nobody said how they are measured
MOST_DIGITS = 4  # of the distance of its bounds at most,
MOST_DECIMALS = 12  # and with so many decimals at most
HALF = 0.3  # a tail of more rows than this is no tail
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


def bounded(cells: Cells, counts: Floats, sigma: float) -> Bounded:
    """Bounds around what a noisy histogram (cells,) says of a number whose bounds nobody knew."""
    inner = cells.size - cells.hole
    held, edges = counts[:inner], np.concatenate([[cells.column.low], cells.cuts, [cells.column.high]]).astype(float)
    upper, lower = Tail.from_counts(edges, held, sigma), Tail.from_counts(-edges[::-1], held[::-1], sigma)
    column = replace(cells.column, low=0, high=1)
    if upper is None or lower is None or -lower.first > upper.first:  # nothing stands out of the noise: one cell
        merge = (np.arange(cells.size) >= inner).astype(np.int64)
        return Bounded(replace(cells, column=column, cuts=np.empty(0), boundless=False), merge, 0.0, 0.0, (0.0, 0.0))
    low, high = -lower.end, upper.end
    end = next((end for end in ENDS if low >= 0 and _is_end(end, upper, edges, held, sigma)), None)
    if 0 < low < FROM_ZERO * high:
        low = 0.0
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


@dataclass(frozen=True)
class Tail:
    """How rows of a number thin out upwards, by two quantiles that stand out of the noise.

    A line over normal scores joins them: of the number, or of its power or logarithm where no row has the other sign.
    """

    first: float
    second: float  # nearer to the middle
    score: float  # of the first, in standard deviations of a normal distribution,
    step: float  # and how much less the second's is
    quarter: float  # a quarter of all rows lie beyond it
    sure: float  # rows lie up to here for sure
    one_sign: bool  # no row has the other one
    power: float  # on whose scale the line is drawn; 0: the logarithm

    @classmethod
    def from_counts(cls, edges: Floats, held: Floats, sigma: float) -> Tail | None:
        """Of noisy counts between edges; None where nothing stands out of the noise."""
        rows = float(held.sum())
        upto = np.append(np.cumsum(held[::-1])[::-1], 0.0)  # rows from each edge on
        outermost, after = _outermost(upto, sigma)
        if outermost < 0:
            return None
        falling = np.maximum.accumulate(upto[::-1])[::-1]
        first = int(np.searchsorted(edges, 0.0, side="right"))  # above the cell of 0, of which many tables are full
        above, other = upto[first] / rows, rows - upto[np.searchsorted(edges, 0.0, side="left")]
        near = min(max(float(falling[outermost]) / rows, TAIL), 0.5)
        far = min(WIDER * near, (1 + 2 * near) / 3)
        if near < above < far:
            far = near + (above - near) / 4

        def at(share: float) -> float:
            cell = min(int(np.flatnonzero(falling >= min(share, 1.0) * rows)[-1]), len(held) - 1)
            part = (falling[cell] - share * rows) / max(float(falling[cell] - falling[cell + 1]), 1e-12)
            return _between(float(edges[cell]), float(edges[cell + 1]), float(np.clip(part, 0.0, 1.0)))

        score, alone = NormalDist().inv_cdf, np.flatnonzero(held > SURE * sigma)
        # where most rows lie further out than what can be told apart, as far as those are that hold rows together
        unresolved = float(edges[min(after, len(held) - 1)]) if near > HALF else -math.inf
        one_sign = min(above * rows, rows - above * rows, other) < SURE * sigma * math.sqrt(len(held))
        shares = (near, far, (1 + far) / 2)
        known, scores = np.array([at(share) for share in shares]), np.array([score(1 - share) for share in shares])
        return cls(
            float(known[0]),
            float(known[1]),
            float(scores[0]),
            float(scores[0] - scores[1]),
            at(0.25),
            max(float(edges[alone[-1]]) if len(alone) else -math.inf, unresolved),
            bool(one_sign),
            _straightest(known, scores) if one_sign and known[-1] > 0 and shares[-1] < above else 0.0,
        )

    @property
    def end(self) -> float:
        """Where LEFT_OUT of all rows are left."""
        further = (NormalDist().inv_cdf(1 - LEFT_OUT) - self.score) / self.step
        if self.one_sign and self.second > 0:
            far = max(self.second, self.first / STEEPEST**self.step)
            near, far = _scaled(np.array([self.first, far]), self.power).tolist()
            return max(_unscaled(near + (near - far) * further, self.power), self.first, self.sure)
        end = self.first + (self.first - self.second) * further
        return max(min(end, 0.0) if self.one_sign and self.first <= 0 else end, self.sure)

    def beyond(self, value: float) -> float:
        """The share of rows further out than this, which is above the first."""
        power = self.power if self.one_sign and self.second > 0 else 1.0
        here, near, far = _scaled(np.array([value, self.first, self.second]), power).tolist()
        return 1 - NormalDist().cdf(self.score + self.step * (here - near) / (near - far)) if near > far else 0.0


def _outermost(upto: Floats, sigma: float) -> tuple[int, int]:
    """(first, one after the last) cell of the outermost run of neighbours that hold rows for sure; (-1, -1): none."""
    found, width = (-1, -1), 1
    while width < len(upto):
        held = np.flatnonzero(upto[:-width] - upto[width:] > SURE * sigma * math.sqrt(width))
        if len(held) and held[-1] > found[0]:
            found = int(held[-1]), int(held[-1]) + width
        width *= 2
    return found


def _scaled(values: Floats, power: float) -> Floats:
    return np.asarray(np.log(values) if power == 0 else values**power / power, np.float64)


def _unscaled(value: float, power: float) -> float:
    return math.exp(value) if power == 0 else max(value * power, 0.0) ** (1 / power)


def _straightest(quantiles: Floats, scores: Floats) -> float:
    """Half the power on whose scale three quantiles are closest to a line over normal scores: rather too far out."""

    def bent(power: float) -> float:
        high, middle, low = _scaled(quantiles, power)
        return abs((middle - low) / max(high - low, 1e-300) - (scores[1] - scores[2]) / (scores[0] - scores[2]))

    return min(POWERS, key=bent) / 2


def _between(low: float, high: float, part: float) -> float:
    """So much of the way from one number to another, by their logarithms where both are of one sign."""
    if low * high > 0:
        return float(low * (high / low) ** part)
    return low + part * (high - low)


def _is_end(end: float, tail: Tail, edges: Floats, held: Floats, sigma: float) -> bool:
    """Whether a scale ends here: rows come near, nobody seems to lie beyond, and few would."""
    if not NEAR * end <= tail.end or not tail.first <= end < tail.end:
        return False
    outside = edges[:-1] > end
    rows, seen, noise = float(held.sum()), float(held[outside].sum()), sigma * math.sqrt(int(outside.sum()))
    few = tail.beyond(end) < FEWEST_BEYOND
    close = tail.first >= NEAR * end and seen < tail.beyond(end) * rows
    return seen < max(2 * noise, LEFT_OUT * rows) and (few or close)


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
