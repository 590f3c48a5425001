"""The private model: additive boosting over public cells, fitted through the gate only (SPEC §4.2, §4.3).

A plan made from public facts alone says how the budget is spent (plan.py); what is learned is the kind of outcome's
business (`PrivateSide`). Between answers everything is post-processing: cells are merged where the noisy histogram is
thin, and each noisy gradient is shrunk by empirical Bayes (smoothing.py), which also decides whether the column carries
any signal at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.data.cells import Cells
from distcondense.methods.private.plan import Plan
from distcondense.methods.private.smoothing import DRIFT, joint_evidence, merge_cells, prior_kernels, smooth, spread_out
from distcondense.models.additive import AdditiveModel
from distcondense.outcomes.base import Learned, PrivateSide, pooled
from distcondense.privacy.contributions import Objective
from distcondense.privacy.gate import PrivateTable

CHOICE_CELLS = 32  # of a number while columns are chosen: coarse, so that spread-out columns do not look rich
LEAST = 2.0  # a merged cell holds this many standard deviations of its noise
# below any of these the run says that it found no answer, instead of handing over noise as data
EVIDENCE = 8.0  # log evidence of all columns together; permuted outcomes of 3,200 patients give 2.2 ± 3.6 at ε = 1
EVIDENCE_CHOSEN = 20.0  # the same after columns were chosen, which favours those that look best by chance
SPREAD = 0.15  # standard deviation of the model's margin; less than that is an AUROC of about 0.54
CASES = 3.0  # noisy number of the rarer class, in standard deviations of its noise

Progress = Callable[[int, int], None]  # (answers so far, planned answers)


@dataclass
class Asking:
    """The gate with a plan; counts the answers. What a kind of outcome sees of it is `outcomes.base.Ask`."""

    table: PrivateTable
    plan: Plan
    progress: Progress = lambda done, of: None
    asked: int = 0

    @property
    def wide(self) -> bool:
        return self.plan.picks > 0

    @property
    def objective(self) -> Objective:
        return self.table.objective

    def aim(self, objective: Objective) -> None:
        self.table.objective = objective

    def shift(self, intercept: Any) -> None:
        self.table.shift((), np.atleast_1d(np.asarray(intercept, np.float64)))

    def counts(self, by: str, question: str) -> Floats:
        mu = self.plan.own_cost(self.table.budget, question)
        return self.told(self.table.histogram((), by=by, mu=mu)[:, 0])

    def total(self, name: str, question: str) -> Floats:
        return self.told(self.table.total(name, mu=self.plan.own_cost(self.table.budget, question)))

    def noise(self, question: str) -> float:
        return 1 / self.plan.own_cost(self.table.budget, question)

    def told(self, answer: Any) -> Any:
        self.asked += 1
        self.progress(self.asked, self.plan.answers)
        return answer


def fit_private(
    table: PrivateTable, cells: tuple[Cells, ...], plan: Plan, side: PrivateSide,
    progress: Progress = lambda done, of: None,
) -> Learned:  # fmt: skip
    """Spend the table's budget according to the plan. `progress` hears (answers so far, planned answers)."""
    ask = Asking(table, plan, progress)
    facts = side.begin(ask)
    columns = tuple(range(plan.columns))
    if plan.picks:
        coarse = [max(1, cell.size // CHOICE_CELLS) if cell.numeric else 1 for cell in cells]
        columns = tuple(sorted(int(j) for j in ask.told(table.choose(plan.picks, coarse=coarse))))
    used = tuple(cells[j] for j in columns)

    cost = plan.histogram_cost(table.budget)
    counts = [ask.told(table.histogram((j,), by=side.grouping, mu=cost)) for j in columns]
    sigma = 1 / cost
    rows, shares = sizes(counts)
    all_groups = sigma * np.sqrt(len(shares))  # noise of a cell of all groups together
    merges = [
        merge_cells(count.sum(0), all_groups, ordered=cell.ordered, hole=cell.hole, most=side.merged, least=LEAST)
        for count, cell in zip(counts, used, strict=True)
    ]
    for j, merge in zip(columns, merges, strict=True):
        table.bins(j, merge)
    intercept = side.intercept(shares, facts)
    start = intercept - facts.get("started", 0.0)
    if np.any(start != 0):
        ask.shift(start)

    known = [
        side.first_look(_by_group(count, merge), sigma**2 * np.bincount(merge).astype(np.float64), shares)
        for count, merge in zip(counts, merges, strict=True)
    ]
    tables, evidence, facts = _boost(ask, side, columns, used, known, facts)
    marginals = tuple(
        _probabilities(count, merge, sigma, cell) for count, merge, cell in zip(counts, merges, used, strict=True)
    )
    model = AdditiveModel(used, intercept, tuple(t[..., m] for t, m in zip(tables, merges, strict=True)), side.link)
    model = _centred(model, marginals, shares)
    learned = Learned(model, columns, marginals, rows, shares, evidence, table.objective, facts)
    return replace(learned, doubt=_doubt(learned, plan, side, sigma), model=side.in_units(model, facts))


def _boost(
    ask: Asking, side: PrivateSide, columns: tuple[int, ...], cells: tuple[Cells, ...],
    known: list[tuple[Floats, Floats] | None], facts: Mapping[str, Any],
) -> tuple[list[Floats], float, Mapping[str, Any]]:  # fmt: skip
    """Rounds of noisy Newton steps, column after column; earlier rounds still count, less as their targets drift.

    Tables are (size,), or (S, size) with S scores; `known` is what the histograms said about each.
    """
    table, plan = ask.table, ask.plan
    cost, scores = plan.sums_cost(table.budget), table.objective.scores
    shapes = [(scores, table.sizes[j]) for j in columns]
    tables, precision, information, hessians = ([np.zeros(shape) for shape in shapes] for _ in range(4))
    for k, look in enumerate(known):
        if look is not None:
            precision[k], information[k] = look
    # a merged hole is its own last cell; one that was merged away (categories) is a cell like any other
    kernels = [
        prior_kernels(size, cell.ordered, cell.ordered and cell.hole)
        for (_, size), cell in zip(shapes, cells, strict=True)
    ]
    evidence = np.zeros(len(columns))
    for epoch in range(plan.epochs):
        sigma = side.gradient_noise / (cost * table.objective.scales[0])  # of G; H comes with less
        for k, j in enumerate(columns):
            parts = ask.told(table.sums((j,), mu=cost))
            G, H = np.stack(parts[:scores]), np.stack(parts[scores:])
            if side.steady:
                hessians[k] += H
                H = hessians[k] / (epoch + 1)
            H = np.maximum(H, 0.0)
            kept = 1 / (1 + DRIFT * precision[k])
            # a gradient sum of n patients varies by about H even without noise
            told_by = H * H / (sigma**2 + side.dispersion(facts) * H)
            precision[k] = kept * precision[k] + told_by
            information[k] = kept * information[k] + told_by * (tables[k] + side.newton(G, H))
            fresh = np.empty_like(tables[k])
            for s in range(scores):
                fresh[s], evidence[k] = smooth(precision[k][s], information[k][s], kernels[k])
            fresh = side.settled(fresh)
            step = fresh - tables[k]
            table.shift((j,), step if scores > 1 else step[0])
            tables[k] = fresh
        facts = side.after_round(ask, facts)
    if scores > 1:
        evidence = np.array([joint_evidence(*both) for both in zip(precision, information, kernels, strict=True)])
    return [t if scores > 1 else t[0] for t in tables], float(evidence.sum()), facts


def _doubt(learned: Learned, plan: Plan, side: PrivateSide, sigma: float) -> str:
    """Why what was learned is no answer, in words; empty where it is one."""
    # the precision-weighted mean of `sizes`: each histogram's total has variance cells·σ²
    noise = sigma / np.sqrt(sum(1 / cells.size for cells in learned.model.cells))
    if learned.rows * side.fewest(learned.shares) < CASES * noise:
        return "too few rows of the rarer class to tell from noise"
    pairs = zip(learned.overall, learned.model.tables, strict=True)
    variances = sum(np.atleast_2d(t) ** 2 @ p for p, t in pairs)  # tables have mean 0
    assert not isinstance(variances, int)
    if learned.evidence < (EVIDENCE_CHOSEN if plan.picks else EVIDENCE) or side.spread(variances) < SPREAD:
        return "no relation between the features and the outcome that stands out of the noise"
    return ""


def sizes(counts: list[Floats]) -> tuple[float, Floats]:
    """(rows, (groups,) shares): every histogram estimates both; those with fewer cells are less noisy."""
    weight = np.array([1 / count.shape[1] for count in counts])
    by_group = np.array([count.sum(1) for count in counts])
    held = np.maximum((weight[:, None] * by_group).sum(0) / weight.sum(), 1.0)
    total = held.sum()
    shares = np.clip(held / total, 1e-4, 1 - 1e-4)
    shares[0] = max(1 - shares[1:].sum(), 1e-4)
    return float(total), shares


def _probabilities(count: Floats, merge: Index, sigma: float, cells: Cells) -> Floats:
    """(groups, s) noisy counts → cell probabilities of each group, without the mass that clipping at 0 would invent.

    Merged cells keep their (non-negative) totals; how each is spread over its fine cells all groups say together.
    """
    both = sigma * np.sqrt(len(count))
    inside = spread_out(count.sum(0), merge, both, ordered=cells.ordered, hole=cells.hole)
    out = np.empty_like(count)
    for row, fine in enumerate(count):
        mass = np.maximum(np.bincount(merge, fine), 0.0)[merge] * inside
        out[row] = mass / mass.sum() if mass.sum() > 0 else inside / inside.sum()
    return out


def _by_group(count: Floats, merge: Index) -> Floats:
    """(groups, merged cells) noisy numbers of rows."""
    return np.stack([np.bincount(merge, row) for row in count])


def _centred(model: AdditiveModel, marginals: tuple[Floats, ...], shares: Floats) -> AdditiveModel:
    """The same model with every table's mean moved into the intercept, as a reader of the tables expects."""
    means = [t @ p for p, t in zip(pooled(marginals, shares), model.tables, strict=True)]
    tables = tuple(t - mean[..., None] for t, mean in zip(model.tables, means, strict=True))
    intercept = model.intercept + np.sum(means, axis=0)
    return replace(model, intercept=intercept if np.ndim(intercept) else float(intercept), tables=tables)
