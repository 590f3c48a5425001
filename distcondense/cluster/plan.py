"""Which tile goes to whom: shares of a step's work by each worker's measured speed.

A table's Jacobian is a grid of units (batches of a black box, stripes of rows of the sparse walk). Units are never
cut, so a plan decides who computes what, and nothing else: any plan gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distcondense.models.jacobian import BatchTiler, Tile, WalkTiler

TILE_SECONDS = 0.5  # long enough that messages and copies cost little, short against a step that is worth a cluster
LEAST_SECONDS = 0.02  # a shorter tile would be all message
TILES_EACH = 4  # a tile is at most this part of what its worker has left, so that a slow one can be relieved


@dataclass(frozen=True)
class Grid:
    """The units of a Jacobian: stripes of `height` rows × blocks of `width` columns, counted stripe by stripe."""

    rows: int
    columns: int
    height: int
    width: int

    @property
    def blocks(self) -> int:
        """How many units a stripe has."""
        return -(-self.columns // self.width)

    @property
    def units(self) -> int:
        """How many units there are."""
        return -(-self.rows // self.height) * self.blocks

    def tiles(self, first: int, last: int) -> list[tuple[int, Tile]]:
        """Units first … last − 1 as (number of units, tile): a tile may cover whole stripes, or part of one."""
        tiles = []
        while first < last:
            stripe, block = divmod(first, self.blocks)
            whole = (last - first) // self.blocks if block == 0 else 0
            end = (stripe + whole) * self.blocks if whole else min(last, (stripe + 1) * self.blocks)
            bottom = min(self.rows, (stripe + max(whole, 1)) * self.height)
            left = block * self.width
            right = self.columns if whole else min(self.columns, (block + end - first) * self.width)
            tiles.append((end - first, Tile(stripe * self.height, bottom, left, right)))
            first = end
        return tiles


def grid_of(tiler: BatchTiler | WalkTiler, rows: int) -> Grid:
    """The units of a table of `rows` rows; a model that uses no column has one, and it is empty."""
    return Grid(rows, max(len(tiler.columns), 1), *tiler.grid(rows))


@dataclass(frozen=True)
class Assignment:
    """A tile, how many units it has, and the worker it is meant for."""

    tile: Tile
    units: int
    worker: int


def shares(count: int, weights: Sequence[float]) -> list[int]:
    """`count` things divided in proportion to the weights; whole numbers that add up, the larger remainders first.

    Equal shares where all weights are 0; of two equal remainders the earlier one is first.
    """
    total = sum(weights)
    if total <= 0:
        weights, total = [1.0] * len(weights), float(len(weights))
    exact = [count * weight / total for weight in weights]
    counts = [int(share) for share in exact]
    order = sorted(range(len(counts)), key=lambda k: counts[k] - exact[k])
    for k in order[: count - sum(counts)]:
        counts[k] += 1
    return counts


def plan(grid: Grid, speeds: Sequence[float]) -> list[Assignment]:
    """Tiles in the order of the table, each worker's a run of it; `speeds` in units per second, 0 for who is away."""
    assignments, first = [], 0
    for worker, count in enumerate(shares(grid.units, speeds)):
        least = max(1, int(speeds[worker] * LEAST_SECONDS))
        most = max(least, int(speeds[worker] * TILE_SECONDS))
        last = first + count
        while first < last:  # large ones first, then smaller and smaller: at the end nobody waits long for another
            size = min(last - first, max(least, min(most, -(-(last - first) // TILES_EACH))))
            assignments += [Assignment(tile, units, worker) for units, tile in grid.tiles(first, first + size)]
            first += size
    return assignments
