"""An attack that knows how private tables are made: noisy counts of cells by class, of columns and of pairs of them.

What a table gives away of such counts is its own shares of cells. A person in cell c of a column adds 1/n to that
share, and takes their part of the others; everybody else is like the reference population, here half of those who were
held out. So the log-likelihood ratio of "in the table" against "not" is, for shares q and reference shares p of the
person's class, d = (e_c − p)/n and variances V,

    Σ_cells d·(q − p)/V − ½ d²/V,     V = p(1 − p)(1/m + 1/reference rows) + (σ/n)²,

summed over columns: the matched filter of Homer et al. 2008 and of the tracing attack of Dwork et al. 2015, with the
noise σ that the statement's ledger names for the column's histogram (1 where it names none). p in d and V is that of
both tables together, as in a test of their being alike. It needs no method to be of any kind: a table that follows its
patients' counts too closely is caught, whatever made it.

The most vulnerable tenth are those in the rarest cells, by the sum of −log p over columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.outcome import Outcome
from distcondense.evaluation.attacks.base import attackable, attacked, ceilings_of, judged, nothing, roc_figure
from distcondense.evaluation.attacks.mixed_table import Bins, MixedTable, OutcomeGroups
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.section import Section, quiet
from distcondense.privacy.statement import Privacy

NAME = "mechanism"
TITLE = "An attacker who knows how the table was made"
COLUMNS = 200  # that are looked at
CELLS = 64  # of a number
PAIRS = 300  # pairs of columns
PAIR_CELLS = 12  # of a number in a pair, about as many as private tables are made of; and CELLS, where copies show
MANY = 130  # a column of more categories is in no pair
REFERENCE = 20_000  # rows of people who are known not to be in the table
UNKNOWN_NOISE = 1.0  # σ of counts where the ledger names none
COLUMN, PAIR, FINE_PAIR = "column", "pair", "fine pair"
ATTACKS = {"columns": (COLUMN,), "columns and pairs": (COLUMN, PAIR), "fine pairs": (FINE_PAIR,)}


@dataclass(frozen=True, repr=False)
class CellRows:
    """Rows as an attacker counts them."""

    group: Index  # (n,) class of each
    laid: Floats  # (n, columns)
    weight: Floats  # (n,) how much each counts


@dataclass(frozen=True)
class CellHistogram:
    """One column, or a pair of them, cut into cells; and the noise its counts got."""

    what: str  # COLUMN, PAIR, FINE_PAIR
    at: tuple[int, ...]  # numbers of its columns
    bins: tuple[Bins, ...]
    noise: float = UNKNOWN_NOISE

    @property
    def size(self) -> int:
        return math.prod(bins.size for bins in self.bins)

    def codes(self, laid: Floats) -> Index:
        """(n,) cell of each row."""
        code = np.zeros(len(laid), np.int64)
        for j, bins in zip(self.at, self.bins, strict=True):
            code = code * bins.size + bins.codes(laid[:, j])
        return code

    def counts(self, side: CellRows, groups: int) -> CellCounts:
        at, cells = side.group * self.size + self.codes(side.laid), groups * self.size
        rows, weights = (np.bincount(at, each, cells).reshape(groups, -1) for each in (None, side.weight))
        return CellCounts(rows.astype(np.float64), weights.astype(np.float64))


@dataclass(frozen=True, repr=False)
class CellCounts:
    """(groups, cells) rows, and the sum of their weights."""

    rows: Floats
    weights: Floats


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Callable[[str], None] = quiet) -> Section:
    """Likelihood ratios from columns alone, from columns and pairs, and from pairs in fine cells."""
    targets = attackable(inputs, seed=seed, threads=threads, reference=True)
    if isinstance(targets, str):
        return nothing(NAME, TITLE, targets)
    log("mechanism: likelihood ratios of cells' shares")
    cut = Binning.of(inputs, seed)
    sample = inputs.sample(targets.reference, REFERENCE, seed)
    made = cut.side(inputs.rows, inputs.made, inputs.labelled.weight)
    known = cut.side(inputs.codec.encode(sample.features), sample.outcome)
    asked = cut.side(targets.rows, targets.outcome)
    stands_for = float(made.weight.sum())
    ratios, rarity = {what: np.zeros(len(targets)) for what in (COLUMN, PAIR, FINE_PAIR)}, np.zeros(len(targets))
    for histogram in cut.histograms:
        ours, theirs = (histogram.counts(side, cut.groups) for side in (made, known))
        codes = histogram.codes(asked.laid)
        table = likelihood_ratios(ours, theirs, histogram.noise, stands_for)
        ratios[histogram.what] += table[asked.group, codes]
        if histogram.what == COLUMN:
            rarity += _rarity(theirs)[asked.group, codes]
    pairs = sum(histogram.what == PAIR for histogram in cut.histograms)
    attacks = {name: sum((ratios[what] for what in of), np.zeros(len(targets))) for name, of in ATTACKS.items()}
    if not pairs:
        attacks = {name: score for name, score in attacks.items() if ATTACKS[name] == (COLUMN,)}
    targets = replace(targets, apart=rarity)
    ceilings = ceilings_of(inputs)
    scores = [
        score
        for name, found in attacks.items()
        for score in judged(found, targets, ceilings, inputs=inputs, seed=seed, student=name)
    ]
    columns = len(cut.mixed.features)
    named = sum(histogram.noise != UNKNOWN_NOISE for histogram in cut.histograms)
    left = f" by chance ({cut.mixed.left_out:,} are left out)" if cut.mixed.left_out else ""
    notes = [
        f"{columns:,} columns{left} and {pairs:,} pairs of them, against {len(sample):,} of {sample.of:,} reference "
        "rows of people who were held out and are not attacked.",
        f"The ledger names the noise of {named:,} of these {len(cut.histograms):,} histograms; of the others "
        f"σ = {UNKNOWN_NOISE:g} is assumed.",
        "The most vulnerable are those in the rarest cells.",
    ]
    bounds = {
        "columns": columns,
        "pairs": pairs,
        "cells": CELLS,
        "pair_cells": PAIR_CELLS,
        "reference_rows": len(sample),
        "most_reference": REFERENCE,
    }
    figures = [roc_figure(attacks, targets, ceilings)]
    return attacked(NAME, TITLE, inputs, targets, scores, notes=notes, figures=figures, settings=bounds)


@dataclass(frozen=True, repr=False)
class Binning:
    """How rows are cut into cells, the same for real and condensed ones."""

    inputs: EvaluationInput
    mixed: MixedTable
    classes: OutcomeGroups
    groups: int
    histograms: tuple[CellHistogram, ...]

    @classmethod
    def of(cls, inputs: EvaluationInput, seed: int) -> Binning:
        mixed = MixedTable.of(inputs, most=COLUMNS, seed=seed)
        columns = [(j, mixed.traits[j]) for j in map(int, mixed.features)]
        fine, coarse = (
            [Bins.of(trait, mixed.made[:, j], cells) for j, trait in columns] for cells in (CELLS, PAIR_CELLS)
        )
        noise = noises(inputs.privacy)
        found = [
            CellHistogram(COLUMN, (j,), (fine[j],), noise.get((trait.name,), UNKNOWN_NOISE)) for j, trait in columns
        ]
        for a, b in _pairs([j for j, _ in columns if fine[j].size <= MANY], seed):
            names = tuple(sorted((mixed.names[a], mixed.names[b])))
            each = noise.get(names, UNKNOWN_NOISE)
            found.append(CellHistogram(PAIR, (a, b), (coarse[a], coarse[b]), each))
            found.append(CellHistogram(FINE_PAIR, (a, b), (fine[a], fine[b]), each))
        classes = OutcomeGroups.of(inputs.made)
        real = int(classes.codes(inputs.cohort.outcome).max(initial=0)) if classes.cuts is None else len(classes.cuts)
        groups = 1 + max(real, int(classes.codes(inputs.made).max(initial=0)))
        return cls(inputs, mixed, classes, groups, tuple(found))

    def side(self, rows: Matrix, outcome: Outcome, weight: Floats | None = None) -> CellRows:
        """Encoded rows, cut. Real and condensed ones walk the same way, so that a copy is in its patient's cells."""
        laid = self.mixed.laid_out(self.inputs.codec.decode(rows), outcome)
        return CellRows(self.classes.codes(outcome), laid, np.ones(len(laid)) if weight is None else weight)


def _pairs(columns: list[int], seed: int) -> list[tuple[int, int]]:
    """All pairs of these columns; so many by chance where there are more."""
    every = list(combinations(columns, 2))
    if len(every) <= PAIRS:
        return every
    chosen = np.random.default_rng([seed, 0x9A12]).choice(len(every), PAIRS, replace=False)
    return [every[k] for k in np.sort(chosen)]


def noises(privacy: Privacy) -> dict[tuple[str, ...], float]:
    """σ of counted rows by the histogram's columns, the smallest of several, as the ledger names them."""
    found: dict[tuple[str, ...], float] = {}
    for event in privacy.events if privacy.charged else ():
        if event.kind == "gaussian" and event.query in ("histogram", "categories") and event.noise > 0:
            names = tuple(sorted(event.columns))
            found[names] = min(event.noise, found.get(names, np.inf))
    return found


def likelihood_ratios(made: CellCounts, known: CellCounts, noise: float, stands_for: float) -> Floats:
    """(groups, cells) what a histogram says for somebody of that class in that cell having been in the table.

    `stands_for`: persons behind the condensed rows. A class that one of the tables lacks says nothing.
    """
    m, r, total = (counts.sum(1, keepdims=True) for counts in (made.rows, known.rows, made.weights))
    there = (m > 0) & (r > 0) & (total > 0)
    m, r, total = (np.where(there, one, 1.0) for one in (m, r, total))
    n = np.where(there, stands_for * total / max(made.weights.sum(), 1e-300), 1.0)
    both = (made.rows + known.rows + 0.5) / (m + r + 0.5 * made.rows.shape[1])
    variance = both * (1 - both) * (1 / m + 1 / r) + (noise / n) ** 2
    pull = (made.weights / total - known.rows / r) / variance
    linear = (pull - (both * pull).sum(1, keepdims=True)) / n
    square = ((1 - 2 * both) / variance + (both**2 / variance).sum(1, keepdims=True)) / n**2
    return np.where(there, linear - square / 2, 0.0)


def _rarity(known: CellCounts) -> Floats:
    """(groups, cells) −log of the reference population's share."""
    rows = known.rows + 0.5
    return np.asarray(-np.log(rows / rows.sum(1, keepdims=True)), np.float64)
