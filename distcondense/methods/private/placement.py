"""Condensation as post-processing: few whole rows whose students agree with the private model.

Nothing here sees a patient: it reads `PrivateFit`, what left the gate, and a seed. What was tried and what won is
measured by `python -m benchmarks.placement`.

Whole rows are drawn from the joint model (joint.py). Candidates among them get their labels, each row on its own, by
the rule of the kind of outcome; a set takes a fixed number of rows from each stratum (class, event and time), and rows
are exchanged for others of their stratum while a panel of students learns better from them (students.py). A larger set
is made of several such parts, each from candidates of its own: a part teaches by itself, and all of them together what
they have in common. A set too large for that is a stratified draw, and in the end a synthetic cohort of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from distcondense.arrays import Flags, Floats, Index, Matrix
from distcondense.data.cells import Cells
from distcondense.data.codec import Codec
from distcondense.data.schema import Schema
from distcondense.methods.private.students import StudentPanel
from distcondense.outcomes.base import Labelled
from distcondense.outcomes.private_side import PrivateFit, PrivateSide, shared

Rng = np.random.Generator
Legal = Callable[[pd.DataFrame], Flags]  # which rows obey the rules of the domain
Draw = Callable[[PrivateFit, int, Rng, Legal | None], tuple[Index, Floats]]  # whole rows: `population`, or another way
OnProgress = Callable[[int, int], None]  # (parts so far, in all)

POPULATION = 20_000  # rows drawn from the joint model, or so many for each row that is wanted:
SPARE = 3
CANDIDATES = 3000  # rows that a part of a set is chosen among, at most; or so many for each row:
CHOICE = 8
CANDIDATES_LEAST = 1000
PEOPLE = 1500  # rows of the population that students are asked about
STEPS = 5000  # exchanges tried for a set of
STEPS_AT = 200  # rows; a larger one is made of parts of about so many, with fewer exchanges in each
LARGE = 1200  # rows from which on a set is drawn, not chosen
HOLES = 4  # columns, those most often empty, whose holes a set has as often as the population, however it is chosen
RAKED = 30  # passes


@dataclass(frozen=True)
class PlacedRows:
    """Synthetic rows as public cells, and their outcome."""

    codes: Index  # (m, d)
    inside: Floats  # (m, d) in [0, 1): where within its cell a number lies
    labelled: Labelled

    def features(self, cells: tuple[Cells, ...]) -> pd.DataFrame:
        """Legal values in original units."""
        return values_of(cells, self.codes, self.inside)

    def take(self, rows: Index) -> PlacedRows:
        return PlacedRows(self.codes[rows], self.inside[rows], self.labelled.take(rows))


def values_of(cells: tuple[Cells, ...], codes: Index, inside: Floats) -> pd.DataFrame:
    """Rows of cells, and where in them numbers lie, as legal values in original units."""
    return pd.DataFrame({c.column.name: c.values(codes[:, j], inside[:, j]) for j, c in enumerate(cells)})


@dataclass(frozen=True)
class Holes:
    """Which of the columns that are empty most often are empty in each candidate, and how often in the population."""

    which: Index  # (c,) one number below 2 ** HOLES
    share: Floats  # (2 ** HOLES,)

    @classmethod
    def from_population(cls, learned: PrivateFit, population: Index, candidates: Index) -> Holes:
        cells = learned.model.cells
        empty = np.array([p[-1] * (1 - p[-1]) * c.hole for c, p in zip(cells, learned.overall, strict=True)])
        columns = [j for j in np.argsort(-empty, kind="stable")[:HOLES] if empty[j] > 0]

        def which(codes: Index) -> Index:
            bits = [(codes[:, j] == cells[j].size - 1).astype(np.int64) << k for k, j in enumerate(columns)]
            return np.asarray(sum(bits, np.zeros(len(codes), np.int64)))

        share = np.bincount(which(population), minlength=2**HOLES) / len(population)
        return cls(which(candidates), share)


class Encoder:
    """Cells as the numbers students see: the codec's rows of legal values."""

    def __init__(self, cells: tuple[Cells, ...]) -> None:
        self.cells = cells
        self.codec = Codec.public(Schema(tuple(c.column for c in cells)))

    def __call__(self, codes: Index, inside: Floats) -> Matrix:
        return self.codec.encode(values_of(self.cells, codes, inside))


def place(
    learned: PrivateFit,
    side: PrivateSide,
    ipc: int,
    *,
    seed: int,
    threads: int = 1,
    legal: Legal | None = None,
    draw: Draw | None = None,
    named: Sequence[str] = (),
    on_progress: OnProgress = lambda done, of: None,
) -> PlacedRows:
    """IPC rows for each group (class, event status, stratum); none where nothing was learned.

    `draw` is how whole rows are drawn from what was learned, where it is not `population`; `named` are the learners
    whose students choose, where it is not all that stand for what recipients train. `on_progress` hears how far it is.
    """
    if not learned.informative:
        codes = np.empty((0, len(learned.marginals)), np.int64)
        return PlacedRows(codes, codes.astype(float), side.kind.no_rows())
    on_progress(0, 1)
    rows, rng = len(learned.shares) * ipc, np.random.default_rng([seed, 0x9001])
    codes, inside = (draw or population)(learned, max(POPULATION, SPARE * rows), rng, legal)
    many = len(codes)
    if rows <= LARGE:
        many = min(max(CHOICE * rows, CANDIDATES_LEAST), CANDIDATES * number_of_parts(rows), many)
    weight = _class_weight(side.probabilities(learned.model.margin(codes))) if side.balanced else None
    among = _drawn(weight, many, rng)
    labelled = side.label(learned, codes[among], _even(many, rng), rows)
    found = PlacedRows(codes[among], inside[among], labelled)
    stratum = side.strata(labelled)
    quotas = quotas_of(stratum, rows, balanced=side.balanced)
    holes = Holes.from_population(learned, codes, found.codes)
    if rows > LARGE:
        kept = found.take(_stratified(stratum, quotas, holes, rng))
    else:
        people = codes[:PEOPLE], inside[:PEOPLE]
        kept = _chosen(learned, side, found, stratum, quotas, holes, people, seed, threads, named, on_progress)
    return replace(kept, labelled=side.weighted(learned, kept.labelled))


def population(learned: PrivateFit, rows: int, rng: Rng, legal: Legal | None = None) -> tuple[Index, Floats]:
    """((rows, d) cells, (rows, d) where in their cells): whole rows as the joint model has them."""
    codes, _ = learned.joint.draw(learned.marginals, rows, rng)
    inside = np.stack(
        [
            within(cells, p, codes[:, j], rng.random(len(codes)))
            for j, (cells, p) in enumerate(zip(learned.model.cells, learned.overall, strict=True))
        ],
        axis=1,
    )
    codes, inside = learned.joint.in_line(codes, inside)
    if legal is None:
        return codes, inside
    good = np.flatnonzero(legal(values_of(learned.model.cells, codes, inside)))
    if not len(good):
        return codes, inside  # every row will have to be repaired
    again = np.concatenate([good, rng.choice(good, rows - len(good))]) if len(good) < rows else good
    return codes[again], inside[again]


def within(cells: Cells, share: Floats, codes: Index, u: Floats) -> Floats:
    """(n,) in [0, 1): where in its cell a number lies; the density is a line between those of the neighbours."""
    if not cells.numeric:
        return u
    inner = cells.size - cells.hole
    edges = np.concatenate([[cells.column.low or 0.0], cells.cuts, [cells.column.high or 0.0]]).astype(np.float64)
    density = share[:inner] / np.maximum(np.diff(edges)[:inner], 1e-12)
    between = np.concatenate([density[:1], (density[1:] + density[:-1]) / 2, density[-1:]])
    code = np.minimum(codes, inner - 1)
    left, right = between[code], between[code + 1]
    middle = np.maximum((left + right) / 2, 1e-300)
    tilt = np.clip((right - left) / (2 * middle), -1.0, 1.0)  # density 1 + tilt·(2x − 1)
    flat = np.abs(tilt) < 1e-6
    steep = np.where(flat, 1.0, tilt)
    found = (steep - 1 + np.sqrt(np.maximum((1 - steep) ** 2 + 4 * steep * u, 0.0))) / (2 * steep)
    return np.asarray(np.clip(np.where(flat, u, found), 0.0, 1 - 1e-12), np.float64)


def _chosen(
    learned: PrivateFit,
    side: PrivateSide,
    found: PlacedRows,
    stratum: Index,
    quotas: dict[int, int],
    holes: Holes,
    people: tuple[Index, Floats],
    seed: int,
    threads: int,
    named: Sequence[str],
    on_progress: OnProgress,
) -> PlacedRows:
    encode = Encoder(learned.model.cells)
    rows, seen = encode(found.codes, found.inside), encode(*people)
    margin = np.atleast_2d(learned.model.margin(people[0]).T).T
    scale = max(float(np.sqrt(np.sum(np.var(margin, axis=0)))), 1e-6)
    hard, soft = side.student_labels(found.labelled)
    known = _parts(learned, people[0], scale), margin
    # a row is exchanged for one with the same holes: its lesson may be the hole
    alike = stratum * 2**HOLES + holes.which
    parts = dealt(stratum, quotas, holes, number_of_parts(sum(quotas.values())), np.random.default_rng([seed, 0x9003]))

    def improved(number: int) -> Index:
        here, own = parts[number]
        rng = np.random.default_rng([seed, 0x9002, number])
        start = _stratified(stratum[here], own, Holes(holes.which[here], holes.share), rng)
        steps = int(STEPS * np.sqrt(min(1.0, STEPS_AT / len(start)) / len(parts)))
        panel = StudentPanel.from_candidates(
            rows[here],
            _parts(learned, found.codes[here], scale),
            hard[here],
            None if soft is None else soft[here],
            seen,
            *known,
            named,
        )
        return here[panel.improved(start, alike[here], steps, rng)]

    chosen: list[Index] = []
    # parts have threads of their own: a BLAS with more is slower on so small matrices, and may round otherwise
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as workers:
        for one in workers.map(improved, range(len(parts))):
            chosen.append(one)
            on_progress(len(chosen), len(parts))
    return found.take(np.concatenate(chosen))


def number_of_parts(rows: int) -> int:
    """Of a set of so many rows."""
    return max(1, round(rows / STEPS_AT))


def dealt(
    stratum: Index, quotas: dict[int, int], holes: Holes, parts: int, rng: Rng
) -> list[tuple[Index, dict[int, int]]]:
    """Candidates dealt out evenly, stratum by stratum, and so many rows as each part is to take of its strata."""
    order = rng.permutation(len(stratum))
    order = order[np.lexsort((holes.which[order], stratum[order]))]
    part = np.empty(len(stratum), np.int64)
    part[order] = np.arange(len(stratum)) % parts
    own: list[dict[int, int]] = [{} for _ in range(parts)]
    for value, count in quotas.items():
        having = rng.permutation(np.unique(part[stratum == value]))
        for number, rows in zip(having, shared(count, np.ones(len(having))), strict=True):
            if rows:
                own[number][value] = int(rows)
    return [(np.flatnonzero(part == number), wanted) for number, wanted in enumerate(own) if wanted]


def _parts(learned: PrivateFit, codes: Index, scale: float) -> Floats:
    """(n, columns × scores) what each column adds to the score, in standard deviations of the score."""
    tables = (np.atleast_2d(table)[:, codes[:, j]].T for j, table in enumerate(learned.model.tables))
    return np.concatenate(list(tables), axis=1) / scale


def quotas_of(stratum: Index, rows: int, *, balanced: bool) -> dict[int, int]:
    """How many rows a set takes of each stratum: as many of each, or the shares that the candidates have."""
    there, many = np.unique(stratum, return_counts=True)
    counts = shared(rows, np.ones(len(there)) if balanced else many.astype(np.float64))
    return {int(value): int(count) for value, count in zip(there, counts, strict=True)}


def _class_weight(probabilities: Floats) -> Floats:
    """(n,) how often rows of the population are candidates: as many of each class, as the model has them."""
    return np.asarray((probabilities / np.maximum(probabilities.sum(0), 1e-12)).sum(1))


def _even(rows: int, rng: Rng) -> Floats:
    """(rows,) uniforms that cover (0, 1) evenly, in random order."""
    return rng.permutation((np.arange(rows) + 0.5) / rows)


def _drawn(weight: Floats | None, rows: int, rng: Rng) -> Index:
    """Rows of the population, by weight; systematic, so that none is drawn more often than its weight asks for."""
    if weight is None:
        return np.arange(rows)
    order = rng.permutation(len(weight))
    at = (np.arange(rows) + rng.random()) / rows
    return order[np.searchsorted(np.cumsum(weight[order])[:-1] / weight.sum(), at, side="right")]


def _stratified(stratum: Index, quotas: dict[int, int], holes: Holes, rng: Rng) -> Index:
    """So many rows of each stratum, with the population's holes; where there are too few, some of them again."""
    weight, wanted = np.ones(len(stratum)), sum(quotas.values()) * holes.share
    for _ in range(RAKED):  # each set of sums in turn: where both can be had, both are
        weight *= (wanted / np.maximum(np.bincount(holes.which, weight, len(wanted)), 1e-12))[holes.which]
        for value, count in quotas.items():
            there = stratum == value
            weight[there] *= count / max(float(weight[there].sum()), 1e-12)
    chosen = []
    for value, count in quotas.items():
        there = rng.permutation(np.flatnonzero(stratum == value))
        there = there[np.argsort(holes.which[there], kind="stable")]
        upto = np.cumsum(weight[there])
        at = (np.arange(count) + rng.random()) * upto[-1] / count
        chosen.append(there[np.searchsorted(upto[:-1], at, side="right")])
    return np.concatenate(chosen)
