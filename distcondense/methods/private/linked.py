"""Pairs of numbers within the cells of their table: copulas and differences that fit it, copies and orders.

A table of a dozen groups a column says how two numbers go together, and leaves each of them anywhere within its group.
Where they go together closely, a fine cell of one is drawn by that of the other: under the normal copula that is
nearest to the noisy table, or by a normal difference of the two, where that is as near and says more: ages at two
visits are then a few years apart, as in the table, and no group's width. Where nobody seems to lie where one number is
above the other, though many were expected there, it is below or the same in every row; where nobody seems to lie on
either side, both are the same. All of it is post-processing of noisy tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtr, ndtri

from distcondense.arrays import Flags, Floats, Index
from distcondense.data.cells import Cells
from distcondense.data.relations import unit_of

Rng = np.random.Generator
Pair = tuple[int, int]
Relation = Literal["", "same", "below", "above"]

CLOSE = 0.5  # correlation of normal scores from which on fine cells are drawn together
CORRELATIONS = 46  # that are tried of either sign, evenly on the scale of Fisher's z
FURTHEST = 4.5  # up to this z, which is 0.9998
NEAR = 0.9  # from which on a difference may say more:
SHIFTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)  # up or down, in standard deviations of the first,
SPREADS = (0.01, 0.015, 0.02, 0.027, 0.036, 0.05, 0.065, 0.09, 0.12, 0.16, 0.21, 0.28, 0.37)
SAME = 6.0  # it may be further from the noisy table, in the sum of squared standard deviations
NODES = 8  # places within a group of rows, where the copula is looked at
BESIDE = 2  # nobody lies in a region where in so many groups beside the others
SURE = 4.5  # more than so many deviations of their noise were expected,
ODD = 2.5  # and no more than so many seen,
FAR = 3.0  # nor than so many in the whole of it
NEVER = 1e-3  # of two cells that are so much rarer together than by chance


@dataclass(frozen=True)
class Link:
    """How two numbers go together."""

    correlation: float  # of their normal scores
    relation: Relation = ""  # the first is the same as, never above ("below") or never below ("above") the second
    shift: float = 0.0  # what the second is above the first, in the middle,
    spread: float = 0.0  # ± this standard deviation; 0: the copula says it

    @property
    def close(self) -> bool:
        return abs(self.correlation) >= CLOSE or bool(self.relation)

    @property
    def turned(self) -> Link:
        """The same, seen from the second."""
        relation: dict[Relation, Relation] = {"below": "above", "above": "below"}
        return replace(self, relation=relation.get(self.relation, self.relation), shift=-self.shift)


@dataclass(frozen=True)
class Number:
    """A column of numbers: where its fine cells lie, the shares of rows in them, and their groups in a table."""

    edges: Floats  # (cells + 1,)
    shares: Floats  # (cells,)
    groups: Index  # (cells,)

    @classmethod
    def of_cells(cls, cells: Cells, shares: Floats, groups: Index) -> Number:
        """Without the cell of holes."""
        inner = cells.size - cells.hole
        edges = np.concatenate([[cells.column.low], cells.cuts, [cells.column.high]]).astype(np.float64)
        return cls(edges, np.maximum(shares[:inner], 0.0) + 1e-12, groups[:inner])

    @property
    def middle(self) -> Floats:
        return np.asarray((self.edges[1:] + self.edges[:-1]) / 2, np.float64)

    @property
    def width(self) -> float:
        """The standard deviation of all rows."""
        weight = self.shares / self.shares.sum()
        return float(np.sqrt(max(weight @ self.middle**2 - (weight @ self.middle) ** 2, 1e-300)))


def regions(first: Floats, second: Floats) -> dict[str, Flags]:
    """(k, l) where all of one number's ranges lie above, or below, all of the other's; rows (low, high), NaN: holes."""
    with np.errstate(invalid="ignore"):
        above = first[:, None, 0] >= second[None, :, 1]
        below = first[:, None, 1] <= second[None, :, 0]
    return {"above": above, "below": below}


def ranges_of_groups(cells: Cells, groups: Index) -> Floats:
    """(k, 2) from where to where each group of a number's cells reaches; NaN for that of holes."""
    inner = cells.size - cells.hole
    edges = np.concatenate([[cells.column.low], cells.cuts, [cells.column.high]]).astype(np.float64)
    out = np.full((int(groups.max()) + 1, 2), np.nan)
    for group in range(len(out)):
        here = np.flatnonzero(groups[:inner] == group)
        if len(here):
            out[group] = edges[here[0]], edges[here[-1] + 1]
    return out


def found_relation(
    rows: Floats, variance: Floats, expected: Floats, ranges: tuple[Floats, Floats]
) -> tuple[Relation, Flags]:
    """(what a noisy table of two numbers says, the cells in which that leaves nobody)."""
    where = regions(*ranges)
    gone = {}
    for name, there in where.items():
        from_others = np.cumsum(there, 1) if name == "below" else np.cumsum(there[:, ::-1], 1)[:, ::-1]
        near = there & (from_others <= BESIDE)
        noise, whole = (np.sqrt(variance[one].sum()) for one in (near, there))
        few = rows[near].sum() < ODD * noise and rows[there].sum() < FAR * whole
        gone[name] = bool(few and expected[near].sum() > SURE * noise > 0)
    if gone["above"] and gone["below"]:
        return "same", where["above"] | where["below"]
    if gone["above"]:
        return "below", where["above"]
    return ("above", where["below"]) if gone["below"] else ("", np.zeros(rows.shape, np.bool_))


def fitted(rows: Floats, variance: Floats, expected: Floats, numbers: tuple[Number, Number]) -> tuple[Link, Floats]:
    """(how two numbers go together, (k, l) rows in each of their groups), nearest to noisy rows without holes.

    The margins are those of `expected`.
    """
    if not expected.sum() > 0:  # nobody has both
        return Link(0.0), expected
    at = [np.concatenate([[0.0], np.cumsum(expected.sum(axis))]) / expected.sum() for axis in (1, 0)]
    inside = (np.arange(NODES) + 0.5) / NODES
    nodes, ends = _scores(at[0][:-1, None] + inside * np.diff(at[0])[:, None]), _scores(at[1])

    def by_copula(correlation: float) -> Floats:
        given = np.diff(_upto(ends, nodes[..., None], correlation), axis=-1).mean(1)
        return np.asarray(expected.sum(1, keepdims=True) * given, np.float64)

    first, second = numbers
    last = np.flatnonzero(np.diff(second.groups, append=-1))  # of each group of the second
    upto = np.concatenate([[-np.inf], second.edges[last + 1][:-1], [np.inf]])
    many = np.bincount(first.groups, first.shares, expected.shape[0])

    def by_difference(shift: float, spread: float) -> Floats:
        given = np.diff(_within_spread(first, upto, shift, spread), axis=1) * first.shares[:, None]
        shares = np.stack([np.bincount(first.groups, one, expected.shape[0]) for one in given.T], axis=1)
        return np.asarray(expected.sum(1, keepdims=True) * shares / many[:, None], np.float64)

    def apart(table: Floats) -> float:
        return float(((rows - table) ** 2 / variance).sum())

    tried = np.tanh(np.linspace(-FURTHEST, FURTHEST, 2 * CORRELATIONS - 1))
    best = float(min(tried, key=lambda one: (apart(by_copula(one)), abs(one))))
    link, table = Link(best), by_copula(best)
    if best >= NEAR:
        width = first.width
        steps = [(sign * width * shift, width * spread) for sign in (1, -1) for shift in SHIFTS for spread in SPREADS]
        shift, spread = min(steps, key=lambda one: apart(by_difference(*one)))
        if apart(by_difference(shift, spread)) <= apart(table) + SAME:
            link, table = replace(link, shift=shift, spread=spread), by_difference(shift, spread)
    return link, table


def _within_spread(first: Number, ends: Floats, shift: float, spread: float) -> Floats:
    """(cells of the first, ends) P(second ≤ end), where it is the first's and a normal difference."""
    own = np.diff(first.edges)[:, None]
    return np.asarray(ndtr((ends - first.middle[:, None] - shift) / np.sqrt(spread**2 + own**2 / 12)), np.float64)


def _scores(shares: Floats) -> Floats:
    return np.asarray(ndtri(np.clip(shares, 1e-9, 1 - 1e-9)), np.float64)


def _upto(ends: Floats, given: Floats, correlation: float) -> Floats:
    """P(second ≤ end | first): both normal scores."""
    return np.asarray(ndtr((ends - correlation * given) / np.sqrt(1 - correlation**2)), np.float64)


def _given(first: Number, second: Number, link: Link) -> Floats:
    """(k, l) chance of the second's fine cells given the first's."""
    if link.spread:
        ends = np.concatenate([[-np.inf], second.edges[1:-1], [np.inf]])
        upto = _within_spread(first, ends, link.shift, link.spread)
    else:
        share = first.shares / first.shares.sum()
        scores = _scores(np.cumsum(share) - share / 2)
        upto = _upto(
            _scores(np.append(0.0, np.cumsum(second.shares)) / second.shares.sum()), scores[:, None], link.correlation
        )
    chance = np.maximum(np.diff(upto, axis=1), 0.0) + 1e-12 * second.shares
    if link.relation:
        where = regions(*(np.stack([one.edges[:-1], one.edges[1:]], axis=1) for one in (first, second)))
        outside = {"same": where["above"] | where["below"], "below": where["above"], "above": where["below"]}
        chance = np.where(outside[link.relation], 0.0, chance)
    return np.asarray(chance, np.float64)


def in_order(links: Mapping[Pair, Link]) -> list[tuple[int, int | None]]:
    """(column, the one that it is drawn by), each after the one it is drawn by; pairs are a forest."""
    beside: dict[int, list[int]] = {}
    for i, j in links:
        beside.setdefault(i, []).append(j)
        beside.setdefault(j, []).append(i)
    order: list[tuple[int, int | None]] = []
    done: set[int] = set()
    for root in sorted(beside, key=lambda column: (-len(beside[column]), column)):
        waiting: list[tuple[int, int | None]] = [] if root in done else [(root, None)]
        while waiting:
            column, by = waiting.pop(0)
            done.add(column)
            order.append((column, by))
            waiting += [(other, column) for other in beside[column] if other not in done]
    return order


def draw_linked(
    codes: list[Index],
    links: Mapping[Pair, Link],
    coarse: Sequence[Index],
    cell: Sequence[Index],
    fine: Sequence[Floats],
    shares: Floats,
    cells: Sequence[Cells],
    group: Index,
    rng: Rng,
) -> None:
    """Replace fine cells of linked numbers by such as go together, within their coarse cells. `codes`: by column.

    Each is drawn by the one it hangs on, and with a view to the coarse cells of those that hang on it. `fine`: per
    column (groups, cells); `shares` of the groups of rows.
    """
    order = in_order(links)
    overall = {column: shares @ fine[column] / shares.sum() for column, _ in order}
    for column, by in order:
        inner = cells[column].size - cells[column].hole
        own = coarse[column][:inner]
        weight = fine[column][:, :inner][group] * (own[None, :] == cell[column][:, None])
        plain = weight
        for other, hangs_on in order:
            if hangs_on == column:
                given = _directed(column, other, links, overall, cells)
                lands = np.stack(
                    [given[:, coarse[other][: given.shape[1]] == c].sum(1) for c in range(_size(coarse[other]))]
                )
                seen = cell[other] != _hole(cells[other], coarse[other])
                weight = weight * np.where(seen[:, None], lands[cell[other]], 1.0)
        if by is not None:
            given = _directed(by, column, links, overall, cells)
            known = codes[by] < len(given)
            rate = given / np.maximum(overall[column][:inner], 1e-15)
            factor = np.where(known[:, None], rate[np.minimum(codes[by], len(given) - 1)], 1.0)
            everybody = np.maximum(overall[column][:inner], 0.0)
            here = own[None, :] == cell[column][:, None]
            weight = weight * factor
            # what is hardly ever seen is no choice: rather by everybody's shares, then in another coarse cell
            for choice in (plain, everybody * here, fine[column][:, :inner][group], everybody + 0.0 * plain):
                never = ~(weight.sum(1) > NEVER * plain.sum(1))
                weight, plain = (
                    np.where(never[:, None], choice * factor, weight),
                    np.where(never[:, None], choice, plain),
                )
        reached = np.cumsum(weight, axis=1)
        there = (reached[:, -1] > 0) & (cell[column] != _hole(cells[column], coarse[column]))
        u = rng.random(len(group)) * reached[:, -1]
        found = np.minimum((reached <= u[:, None]).sum(1), inner - 1)
        codes[column] = np.where(there, found, codes[column])


def _directed(
    first: int, second: int, links: Mapping[Pair, Link], overall: Mapping[int, Floats], cells: Sequence[Cells]
) -> Floats:
    """Chances of the second's fine cells given the first's, whichever of the two is named first in the pair."""
    link = links[first, second] if (first, second) in links else links[second, first].turned
    one, other = (Number.of_cells(cells[k], overall[k], np.arange(cells[k].size)) for k in (first, second))
    return _given(one, other, link)


def _size(coarse: Index) -> int:
    return int(coarse.max()) + 1


def _hole(cells: Cells, coarse: Index) -> int:
    """The coarse cell of a number's holes; −1 where there is none."""
    return int(coarse[-1]) if cells.hole else -1


def in_line(links: Mapping[Pair, Link], cells: Sequence[Cells], codes: Index, inside: Floats) -> tuple[Index, Floats]:
    """Rows whose numbers obey what was found of them, to the last digit: ((rows, d) cells, (rows, d) where in them)."""
    codes, inside = codes.copy(), inside.copy()
    for column, by in in_order(links):
        if by is None:
            continue
        link = links[by, column] if (by, column) in links else links[column, by].turned
        if link.spread:
            _differ(link, cells, codes, inside, column, by)
        relation = link.relation
        if not relation:
            continue
        first, second = (cells[k].numbers(codes[:, k], inside[:, k]) for k in (by, column))
        with np.errstate(invalid="ignore"):
            wrong = {"same": first != second, "below": first > second, "above": first < second}[relation]
        there = wrong & ~np.isnan(first) & ~np.isnan(second)
        if not there.any():
            continue
        low, high = cells[column].bounds
        wanted = cells[column].column.rounded(np.clip(first[there], low, high))
        unit = unit_of(cells[column].column)
        wanted = wanted + unit * ((relation == "below") & (wanted < first[there]))
        wanted = wanted - unit * ((relation == "above") & (wanted > first[there]))
        codes[there, column], inside[there, column] = cells[column].located(np.clip(wanted, low, high))
    return codes, inside


def _differ(link: Link, cells: Sequence[Cells], codes: Index, inside: Floats, column: int, by: int) -> None:
    """Move numbers within their cells, which may be wide, to where a normal difference from the other has them."""
    first, own = (cells[k].numbers(codes[:, k], inside[:, k]) for k in (by, column))
    there = np.flatnonzero(~np.isnan(first) & ~np.isnan(own))
    low, high = cells[column].bounds
    edges = np.concatenate([[low], cells[column].cuts, [high]])
    code, middle = codes[there, column], first[there] + link.shift
    ends = np.stack([edges[code], edges[code + 1]])
    upto = ndtr((ends - middle) / link.spread)
    wanted = middle + link.spread * ndtri(upto[0] + inside[there, column] * (upto[1] - upto[0]))
    wanted = np.clip(np.where(upto[1] - upto[0] > 1e-9, wanted, middle), ends[0], ends[1])
    codes[there, column], inside[there, column] = cells[column].located(
        np.clip(cells[column].column.rounded(wanted), low, high)
    )
