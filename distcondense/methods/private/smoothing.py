"""Empirical-Bayes smoothing of noisy tables: how much of a noisy answer is signal, decided by the answer itself.

A column's table w has a Gaussian-process prior N(0, K). What is known about it are noisy linearised observations
b = H w + N(0, σ²), gathered as precision Λ = ΣH²/σ² and information η = ΣH b/σ². The posterior mean is K(I + ΛK)⁻¹η and
the log evidence of K against "no effect" is −½ log det(I + ΛK) + ½ ηᵀK(I + ΛK)⁻¹η. Kernels are averaged by their
evidence, K = 0 among them, so that a column of pure noise gets next to no table; with several scores a column has one
kernel for all of them. Everything here is post-processing: it reads noisy answers and public shapes only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from distcondense.arrays import Flags, Floats, Index
from distcondense.data.cells import Cells
from distcondense.privacy.questions import STRATEGY

SPREADS = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0)  # prior standard deviations of a table's entries, on the logit scale
LARGE = 4.0  # and one more where there are several scores
REACHES = (0.3, 1.0, 3.0)  # correlation lengths, in shares of an ordered column's cells
SHORT = 0.1  # and one more where there are several scores
PAIR_SPREADS = (0.02, 0.05, 0.12, 0.3, 0.7, 1.5)  # of a pair's table
PAIR_REACHES = (0.3, 1.0)  # of curves of each of its columns
LEFT_OVER = (0.0, 0.5)  # of a pair's spread, in what rounds left of each of its columns alone
LOW = 3  # frequencies of a strategy
LOW_SHARE = 0.85  # of a column's norm that they have where noise is all there is
AFFORDED = 16.0  # cells of a number, if it may have them,
SURE = 5.0  # hold so many standard deviations of their noise, but no more is asked of a cell
SPIKE = 4.0  # times as many rows as those beside it has a cell that stands alone
NO_EFFECT = 0.2  # prior odds that a column says nothing, against all other kernels together
DRIFT = 0.02  # variance by which a table's target may move while the other columns are refitted


@lru_cache(maxsize=256)
def pair_kernels(first: tuple[int, bool, bool], second: tuple[int, bool, bool]) -> tuple[Floats, Floats]:
    """((k, s, s), (k', s, s)) kernels of a pair's table with s = size · size cells: with what the two do together, and
    without.

    `first`, `second`: (size, ordered, hole). Together they do what products of a curve of each leave when every row
    and column has its mean taken off; without that, what rounds left of each column alone is all there is.
    """
    alone, both = [], []
    for a in _curves(*first):
        for b in _curves(*second):
            ones = np.kron(a, np.ones((second[0],) * 2)) + np.kron(np.ones((first[0],) * 2), b)
            centred = np.kron(_centred(a), _centred(b))
            alone.append(ones / np.mean(np.diagonal(ones)))
            both.append(centred / max(float(np.mean(np.diagonal(centred))), 1e-12))
    together = [
        spread**2 * (joint + part**2 * own)
        for spread in PAIR_SPREADS
        for part in LEFT_OVER
        for own, joint in zip(alone, both, strict=True)
    ]
    without = [spread**2 * part**2 * own for spread in PAIR_SPREADS for part in LEFT_OVER if part for own in alone]
    found = np.array(together), np.array(without)
    for kernels in found:
        kernels.setflags(write=False)
    return found


def _curves(size: int, ordered: bool, hole: bool) -> list[Floats]:
    """(size, size) of one column of a pair: smooth curves, a hole alone; or independent cells."""
    inner = size - hole
    if not ordered or inner < 3:
        return [np.eye(size)]
    apart = np.abs(np.subtract.outer(np.arange(inner), np.arange(inner)))
    out = []
    for reach in PAIR_REACHES:
        curve = np.eye(size)
        curve[:inner, :inner] = np.exp(-apart / max(1.0, reach * inner))
        out.append(curve)
    return out


def _centred(kernel: Floats) -> Floats:
    """Of tables whose mean is taken off."""
    return np.asarray(kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean(), np.float64)


def has_frequencies(cells: Cells) -> bool:
    """Whether a column may be asked about by low frequencies: it has an order, and cells enough for a trend."""
    return cells.ordered and cells.size - cells.hole > LOW


def low_frequencies(cells: Cells, varies: Floats, sigma: float) -> Floats | None:
    """(s + LOW, s) a strategy for gradient sums: cells, and low frequencies beside them. None: cells alone.

    The more noise, of deviation `sigma`, outweighs what patients vary by, (S, s), the larger a share of a column's norm
    low frequencies have: noise of a trend over many cells is then that of a few answers. No column is longer than 1. A
    hole is the last cell.
    """
    size = varies.shape[1]
    inner = size - cells.hole
    if not cells.ordered or inner <= LOW:
        return None
    share = LOW_SHARE * sigma**2 / (sigma**2 + float(varies.mean()))
    order = np.arange(1, LOW + 1)[:, None]
    low = np.cos(np.pi * order * (np.arange(inner) + 0.5) / inner) / order
    strategy = np.zeros((size + LOW, size))
    strategy[:size] = np.eye(size)
    strategy[:inner, :inner] *= np.sqrt(1 - share)
    strategy[size:, :inner] = low * np.sqrt(share / (low**2).sum(0).max())
    return strategy


class CellSums(NamedTuple):
    """Gradient sums of cells as noisy answers tell them."""

    gradient: Floats  # (S, s)
    precision: Floats  # (S, s, s) of these
    noise: Floats  # (S, s, s) covariance of precision · gradient that privacy noise makes


def cell_sums(strategy: Floats | None, answers: Floats, sigma: float, varies: Floats) -> CellSums:
    """What answers (S, r), combinations of cells with noise of deviation `sigma`, say of cells that vary by (S, s)."""
    if strategy is None:
        variance = sigma**2 + varies
        return CellSums(answers, diagonals(1 / variance), diagonals(sigma**2 / variance**2))
    taken = np.trunc(strategy * STRATEGY) / STRATEGY  # as the gate took it
    covariance = sigma**2 * np.eye(len(taken)) + (taken * varies[:, None]) @ taken.T
    weights = np.linalg.solve(covariance, np.broadcast_to(taken, (len(answers), *taken.shape)))  # (S, r, s)
    precision = taken.T @ weights
    said = answers[:, None] @ weights
    gradient = (np.linalg.pinv(precision, hermitian=True) @ said.transpose(0, 2, 1))[..., 0]
    return CellSums(gradient, precision, sigma**2 * weights.transpose(0, 2, 1) @ weights)


def diagonals(held: Floats) -> Floats:
    """(S, s) → (S, s, s)."""
    return held[..., None] * np.eye(held.shape[-1])


@lru_cache(maxsize=512)
def prior_kernels(size: int, ordered: bool, hole: bool, several: bool = False) -> Floats:
    """(kernels, size, size): independent cells, or for ordered ones a line and smooth curves; a hole stands alone.

    `several`: with more than one score a class may live on a short stretch of a column, so that rough and large tables
    are likelier. Without the zero kernel, whose evidence is 0 and whose table is empty.
    """
    inner = size - hole
    at = np.arange(inner)
    shapes = [np.eye(inner)]
    if ordered and inner > 1:
        apart = np.abs(at[:, None] - at)
        line = (at - (inner - 1) / 2) / ((inner - 1) / 2)
        smooth_ones = [
            np.exp(-apart / max(1.0, reach * inner)) for reach in (SHORT, *REACHES) if several or reach > SHORT
        ]
        shapes = [*(shapes if several else []), *smooth_ones, np.outer(line, line)]
    spreads = (*SPREADS, LARGE) if several else SPREADS
    kernels = np.zeros((len(shapes) * len(spreads), size, size))
    for k, (spread, shape) in enumerate((spread, shape) for spread in spreads for shape in shapes):
        kernels[k, :inner, :inner] = spread**2 * shape
        if hole:
            kernels[k, inner, inner] = spread**2
    kernels.setflags(write=False)
    return kernels


def smooth(precision: Floats, information: Floats, kernels: Floats) -> Floats:
    """(S, s), (S, s), (k, s, s) → (S, s) a column's table; with (S, n, s) informations of one precision, (S, n, s).

    A precision may be a matrix for each score, (S, s, s), where answers were of sums over several cells.
    """
    scores, size = precision.shape[:2]
    several = np.moveaxis(information.reshape(scores, -1, size), 1, 2)  # (S, s, n)
    tables, evidence = posteriors(precision, several, kernels)
    most = np.maximum(evidence.max(0), 0.0)
    weight = np.exp(evidence - most)
    weight = weight / (weight.sum(0) + NO_EFFECT * len(kernels) * np.exp(-most))
    return np.asarray(np.einsum("kn,cksn->cns", weight, tables).reshape(information.shape), np.float64)


def posteriors(precision: Floats, several: Floats, kernels: Floats) -> tuple[Floats, Floats]:
    """((S, k, s, n) tables, (k, n) log evidence against no effect) of each kernel, for n informations (S, s, n).

    Scores that add up to 0, as several do, tell S − 1 times what one of them tells.
    """
    scores = len(precision)
    system = _system(precision, kernels)
    tables = kernels @ np.linalg.solve(
        system, np.broadcast_to(several[:, None], (*system.shape[:2], *several.shape[1:]))
    )
    evidence = np.einsum("cksn,csn->kn", tables, several) - np.linalg.slogdet(system)[1].sum(0)[:, None]
    return tables, 0.5 * evidence * ((scores - 1) / scores if scores > 1 else 1.0)


def _system(precision: Floats, kernels: Floats) -> Floats:
    """(S, k, s, s) I + ΛK, of precisions (S, s) or (S, s, s)."""
    spread = precision[:, None, :, None] * kernels if precision.ndim == 2 else precision[:, None] @ kernels
    return np.asarray(np.eye(kernels.shape[-1]) + spread, np.float64)


def doubt(precision: Floats, information: Floats, kernels: Floats, table: Floats) -> Floats:
    """(s,) how far the truth may lie from `table`: standard deviations over all kernels, by their evidence.

    Kernels that explain the answers about as well disagree about what the answers leave open; "no effect" is one too.
    `precision` is (s,), or a matrix (s, s).
    """
    system = _system(precision[None], kernels)[0]
    solved = kernels @ np.linalg.inv(system)  # (k, s, s) posterior covariances
    means = solved @ information
    evidence = -0.5 * np.linalg.slogdet(system)[1] + 0.5 * means @ information
    weight = np.exp(evidence - max(float(evidence.max()), 0.0))
    none = np.exp(-max(float(evidence.max()), 0.0))
    square = weight @ (np.diagonal(solved, axis1=1, axis2=2) + (means - table) ** 2) + none * table**2
    return np.asarray(np.sqrt(np.maximum(square / (weight.sum() + none), 0.0)), np.float64)


def spread_out(
    counts: Floats, merged: Index, sigma: float, *, ordered: bool, hole: bool, nobody: Flags | None = None
) -> Floats:
    """(s,) noisy counts → how a merged cell's mass is shared among its fine cells, summing to 1 in each.

    Fine cells that stand out of the noise keep what they show; the rest of an ordered column follows the logarithm of
    the density, interpolated between the middles of merged cells, so that a long thin tail does not become a flat one.
    Cells of `nobody` get none of it.
    """
    inner = len(counts) - hole
    total, width = np.bincount(merged, counts), np.bincount(merged)
    profile = np.ones(len(counts))
    if ordered and inner > 1 and merged[inner - 1] > 0:
        last = merged[inner - 1] + 1
        middle = np.bincount(merged[:inner], np.arange(inner))[:last] / width[:last]
        density = np.log(np.maximum(total[:last], 0.1 * sigma) / width[:last])
        slope = np.diff(density) / np.diff(middle)
        at = np.arange(inner)
        line = np.interp(at, middle, density)
        line = np.where(at > middle[-1], density[-1] + min(slope[-1], 0.0) * (at - middle[-1]), line)
        line = np.where(at < middle[0], density[0] + max(slope[0], 0.0) * (at - middle[0]), line)
        profile[:inner] = np.exp(line - line.max())
    heavy = np.where(counts > 3 * sigma, counts, 0.0)
    rest = np.maximum(total - np.bincount(merged, heavy), 0.0)
    thin = np.where(heavy > 0, 0.0, profile) + 1e-12
    if nobody is not None:
        thin = np.where(nobody, 1e-30, thin)
    share = heavy + rest[merged] * thin / np.bincount(merged, thin)[merged] + 1e-9 * thin
    return np.asarray(share / np.bincount(merged, share)[merged], np.float64)


def merge_cells(counts: Floats, sigma: float, *, ordered: bool, hole: bool, most: int, least: float) -> Index:
    """(s,) → the merged cell of each fine cell, from noisy counts alone.

    Ordered: neighbours are joined until a cell holds a share of 1/(2·most) of the rows and `least` standard deviations
    of its own noise, or up to SURE of them where AFFORDED such cells could be had: of many thin cells some seem to hold
    rows by chance. A fine cell that is heavy by itself, or beside what came before it, is never joined to that.
    Categories: all that are lighter than `least` standard deviations share one cell.
    """
    inner = len(counts) - hole
    share = max(float(counts.sum()), 1.0) / (2 * most)
    merged = np.zeros(len(counts), np.int64)
    if not ordered:
        heavy = np.flatnonzero(counts >= least * sigma)
        merged[:] = len(heavy)
        merged[heavy] = np.arange(len(heavy))
        return merged
    alone = (least + 2) * sigma
    least = float(np.clip(counts.sum() / (AFFORDED * sigma), least, max(least, SURE)))
    cell, held, joined = 0, 0.0, 0
    for fine in range(inner):
        spike = alone + SPIKE * max(held, 0.0) / max(joined, 1)
        if joined and counts[fine] >= min(max(share, alone, least * sigma), spike):
            cell, held, joined = cell + 1, 0.0, 0
        merged[fine] = cell
        held, joined = held + counts[fine], joined + 1
        if held >= max(share, least * sigma * np.sqrt(joined)) and fine < inner - 1:
            cell, held, joined = cell + 1, 0.0, 0
    if cell and held < max(share, least * sigma * np.sqrt(joined)):  # what is left at the end is too thin on its own
        merged[:inner][merged[:inner] == cell] -= 1
        cell -= 1
    if hole:
        merged[-1] = cell + 1
    return merged
