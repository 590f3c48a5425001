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
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.evaluation.attacks.base import attack, attacked
from distcondense.evaluation.attacks.mixed_table import Bins, MixedTable, outcome_groups
from distcondense.evaluation.attacks.targets import draw_targets
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.resampling import choose
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.privacy.statement import Privacy

NAME, TITLE = "mechanism", "An attacker who knows how the table was made"
COLUMNS = 200  # that are looked at
CELLS = 64  # of a number
PAIRS = 300  # pairs of columns
PAIR_CELLS = 12  # of a number in a pair, about as many as private tables are made of; and CELLS, where copies show
MANY = 130  # a column of more categories is in no pair
REFERENCE = 20_000  # rows of people who are known not to be in the table
UNKNOWN_NOISE = 1.0  # σ of counts where the ledger names none
COLUMN, PAIR, FINE_PAIR = "column", "pair", "fine pair"
ATTACKS = {"columns": (COLUMN,), "columns and pairs": (COLUMN, PAIR), "fine pairs": (FINE_PAIR,)}


@dataclass(frozen=True)
class CellHistogram:
    """One column, or a pair of them, cut into cells; and the noise its counts got."""

    what: str  # COLUMN, PAIR, FINE_PAIR
    at: tuple[int, ...]  # numbers of its columns
    bins: tuple[Bins, ...]
    noise: float = UNKNOWN_NOISE

    def codes(self, laid: Floats) -> Index:
        """(n,) cell of each row."""
        code = np.zeros(len(laid), np.int64)
        for j, bins in zip(self.at, self.bins, strict=True):
            code = code * bins.size + bins.codes(laid[:, j])
        return code

    def counts(self, laid: Floats, group: Index, groups: int, weight: Floats | None = None) -> Floats:
        """(groups, cells) rows of each class in each cell, or the sum of their weights."""
        size = math.prod(bins.size for bins in self.bins)
        at = group * size + self.codes(laid)
        return np.bincount(at, weight, groups * size).reshape(groups, -1).astype(np.float64)


@attack(NAME, TITLE)
def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """Likelihood ratios from columns alone, from columns and pairs, and from pairs in fine cells."""
    targets = draw_targets(inputs, seed=seed, threads=threads, reference=True)
    log("mechanism: likelihood ratios of cells' shares")
    mixed = MixedTable.from_inputs(inputs, most=COLUMNS, seed=seed)
    histograms = _histograms(mixed, inputs.privacy, seed)
    sample = inputs.sample(targets.reference, REFERENCE, seed)
    weight = np.ones(len(inputs.rows)) if inputs.labelled.weight is None else inputs.labelled.weight
    # real and condensed rows are encoded and decoded alike, so that a copy is in its patient's cells
    sides = (
        (inputs.rows, inputs.made),
        (inputs.codec.encode(sample.features), sample.outcome),
        (targets.rows, targets.outcome),
    )
    made, known, asked = (mixed.laid_out(inputs.codec.decode(rows), outcome) for rows, outcome in sides)
    *classes, real = outcome_groups(inputs.made, *(outcome for _, outcome in sides), inputs.cohort.outcome)
    of_made, of_known, of_asked = classes
    groups = 1 + max(int(part.max(initial=0)) for part in (*classes, real))
    ratios, rarity = {what: np.zeros(len(targets)) for what in (COLUMN, PAIR, FINE_PAIR)}, np.zeros(len(targets))
    for histogram in histograms:
        ours, weights = (histogram.counts(made, of_made, groups, each) for each in (None, weight))
        theirs, cell = histogram.counts(known, of_known, groups), histogram.codes(asked)
        table = likelihood_ratios(ours, weights, theirs, histogram.noise, float(weight.sum()))
        ratios[histogram.what] += table[of_asked, cell]
        if histogram.what == COLUMN:
            share = (theirs + 0.5) / (theirs + 0.5).sum(1, keepdims=True)
            rarity -= np.log(share)[of_asked, cell]
    pairs = sum(histogram.what == PAIR for histogram in histograms)
    attacks = {
        name: sum((ratios[what] for what in parts), np.zeros(len(targets)))
        for name, parts in ATTACKS.items()
        if pairs or parts == (COLUMN,)
    }
    columns, named = len(mixed.features), sum(histogram.noise != UNKNOWN_NOISE for histogram in histograms)
    left = f" by chance ({mixed.left_out:,} are left out)" if mixed.left_out else ""
    notes = [
        f"{columns:,} columns{left} and {pairs:,} pairs of them, against {len(sample):,} of {sample.of:,} reference "
        "rows of people who were held out and are not attacked.",
        f"The ledger names the noise of {named:,} of these {len(histograms):,} histograms; of the others "
        f"σ = {UNKNOWN_NOISE:g} is assumed.",
        "The most vulnerable are those in the rarest cells.",
    ]
    settings = {
        "columns": columns,
        "pairs": pairs,
        "cells": CELLS,
        "pair_cells": PAIR_CELLS,
        "reference_rows": len(sample),
        "most_reference": REFERENCE,
    }
    targets = replace(targets, apart=rarity)
    return attacked(NAME, TITLE, inputs, targets, attacks, seed=seed, notes=notes, settings=settings)


def _histograms(mixed: MixedTable, privacy: Privacy, seed: int) -> list[CellHistogram]:
    """Of each column, and of pairs of those with few categories, by chance where there are more than PAIRS."""
    columns = [(j, mixed.columns[j]) for j in map(int, mixed.features)]
    fine, coarse = (
        [Bins.from_column(column, mixed.made[:, j], cells) for j, column in columns] for cells in (CELLS, PAIR_CELLS)
    )
    noise = noises(privacy)
    histograms = [
        CellHistogram(COLUMN, (j,), (fine[j],), noise.get((column.name,), UNKNOWN_NOISE)) for j, column in columns
    ]
    every = list(combinations([j for j, _ in columns if fine[j].size <= MANY], 2))
    for k in choose(len(every), PAIRS, np.random.default_rng([seed, 0x9A12])):
        a, b = every[k]
        each = noise.get(tuple(sorted((mixed.columns[a].name, mixed.columns[b].name))), UNKNOWN_NOISE)
        histograms.append(CellHistogram(PAIR, (a, b), (coarse[a], coarse[b]), each))
        histograms.append(CellHistogram(FINE_PAIR, (a, b), (fine[a], fine[b]), each))
    return histograms


def noises(privacy: Privacy) -> dict[tuple[str, ...], float]:
    """σ of counted rows by the histogram's columns, the smallest of several, as the ledger names them."""
    smallest: dict[tuple[str, ...], float] = {}
    for event in privacy.events if privacy.charged else ():
        if event.kind == "gaussian" and event.query in ("histogram", "categories") and event.noise > 0:
            names = tuple(sorted(event.columns))
            smallest[names] = min(event.noise, smallest.get(names, np.inf))
    return smallest


def likelihood_ratios(made: Floats, weights: Floats, known: Floats, noise: float, stands_for: float) -> Floats:
    """(groups, cells) what a histogram says for somebody of that class in that cell having been in the table.

    Parameters
    ----------
    made, weights : (groups, cells) float64
        Condensed rows, and the sum of their weights.
    known : (groups, cells) float64
        Rows of the reference population.
    noise : float
        σ of the counts.
    stands_for : float
        Persons behind the condensed rows.

    Returns
    -------
    (groups, cells) float64
        Log-likelihood ratios. A class that one of the tables lacks says nothing: 0.
    """
    m, r, total = (counts.sum(1, keepdims=True) for counts in (made, known, weights))
    there = (m > 0) & (r > 0) & (total > 0)
    m, r, total = (np.where(there, sums, 1.0) for sums in (m, r, total))
    n = np.where(there, stands_for * total / max(weights.sum(), 1e-300), 1.0)
    both = (made + known + 0.5) / (m + r + 0.5 * made.shape[1])
    variance = both * (1 - both) * (1 / m + 1 / r) + (noise / n) ** 2
    pull = (weights / total - known / r) / variance
    linear = (pull - (both * pull).sum(1, keepdims=True)) / n
    square = ((1 - 2 * both) / variance + (both**2 / variance).sum(1, keepdims=True)) / n**2
    return np.where(there, linear - square / 2, 0.0)
