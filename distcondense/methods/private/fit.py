"""The private model: additive boosting over public cells, fitted through the gate only.

A plan made from public facts alone says how the budget is spent (plan.py); what is learned is the kind of outcome's
business (`PrivateSide`). Between answers everything is post-processing: cells are merged where the noisy histogram is
thin, and each noisy gradient is shrunk by empirical Bayes (smoothing.py), which also decides whether the column carries
any signal at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.data.cells import FINE, Cells
from distcondense.methods.private.domain import even_cells, found_categories, found_cells, levels, out_of_reach
from distcondense.methods.private.joint import Joint, ask_pairs, coarse_cells
from distcondense.methods.private.plan import Plan
from distcondense.methods.private.smoothing import DRIFT, doubt, merge_cells, prior_kernels, smooth, spread_out
from distcondense.methods.private.uncertainty import ChosenAmong, ColumnEvidence, agreement_evidence, reason_for_doubt
from distcondense.models.additive import AdditiveModel
from distcondense.outcomes.private_side import GroupCounts, NewtonStep, PrivateFit, PrivateSide, pooled
from distcondense.privacy.contributions import Objective
from distcondense.privacy.gate import PrivateTable

DRAWN = 0x9005  # seed of the rows by which pairs are expected: they are compared with patients, so it is no secret
CHOICE_CELLS = 32  # of a number while columns are chosen: coarse, so that spread-out columns do not look rich
LOOKS = 4  # Newton's steps on what the histograms say,
STRIDE = 1.5  # none of them longer
LEAST = 2.0  # a merged cell holds this many standard deviations of its noise

Progress = Callable[[int, int], None]  # (answers so far, planned answers)


@dataclass
class PlannedQueries:
    """The gate with a plan; counts the answers. What a kind of outcome sees of it is `PrivateQueries`."""

    table: PrivateTable
    plan: Plan
    progress: Progress = lambda done, of: None
    asked: int = 0

    @property
    def objective(self) -> Objective:
        return self.table.objective

    def set_objective(self, objective: Objective) -> None:
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
    table: PrivateTable,
    cells: tuple[Cells, ...],
    plan: Plan,
    side: PrivateSide,
    progress: Progress = lambda done, of: None,
    checked: Collection[str] = (),
) -> PrivateFit:
    """Spend the table's budget according to the plan. `progress` hears (answers so far, planned answers).

    `checked`: columns whose categories may be told though they look like identifiers.
    """
    ask = PlannedQueries(table, plan, progress)
    facts = side.begin(ask)
    cells = tuple(_listed(ask, j, cell, cell.column.name in checked) for j, cell in enumerate(cells))
    columns = tuple(range(plan.columns))
    if plan.picks:
        coarse = [max(1, cell.size // CHOICE_CELLS) if cell.numeric else 1 for cell in cells]
        columns = tuple(sorted(int(j) for j in ask.told(table.choose(plan.picks, coarse=coarse))))
    many, rare = _told(side, facts)
    most = FINE if rare is None else plan.number_cells(table.budget, rare)
    used = tuple(_follow(ask, j, cells[j], many, most) for j in columns)

    cost = plan.histogram_cost(table.budget)
    counts = [ask.told(table.histogram((j,), by=side.grouping, mu=cost)) for j in columns]
    sigma = 1 / cost
    rows, shares, counted = sizes(counts, sigma, facts.get("counted"))
    all_groups = sigma * np.sqrt(len(shares))  # noise of a cell of all groups together
    merges = [
        merge_cells(count.sum(0), all_groups, ordered=cell.ordered, hole=cell.hole, most=side.merged, least=LEAST)
        for count, cell in zip(counts, used, strict=True)
    ]
    for j, merge in zip(columns, merges, strict=True):
        table.bins(j, merge)
    intercept = side.intercept(shares)
    start = intercept - facts.get("started", 0.0)
    if np.any(start != 0):
        ask.shift(start)

    # a merged hole is its own last cell; one that was merged away (categories) is a cell like any other
    kernels = [
        prior_kernels(int(merge.max()) + 1, cell.ordered, cell.ordered and cell.hole, table.objective.scores > 1)
        for merge, cell in zip(merges, used, strict=True)
    ]
    known = [
        _looked(side, count, sigma, merge, shares, facts, kernel)
        for count, merge, kernel in zip(counts, merges, kernels, strict=True)
    ]
    groups = plan.pair_groups(table.budget, rows)
    price = plan.sums_cost(table.budget, pairs=groups > 0)
    tables, told, errors, facts = _boost(ask, side, columns, kernels, known, facts, price)
    marginals = tuple(
        _probabilities(count, merge, sigma, cell) for count, merge, cell in zip(counts, merges, used, strict=True)
    )
    model = AdditiveModel(used, intercept, tuple(t[..., m] for t, m in zip(tables, merges, strict=True)), side.link)
    model = _centred(model, marginals, shares)
    joint = _joint(ask, columns, merges, marginals, shares, rows, groups, model)
    objective = table.objective
    evidence = agreement_evidence(ask, side, intercept, tables, told, rows, facts, _choice(plan, table))
    learned = PrivateFit(model, columns, marginals, rows, shares, evidence, objective, facts, joint=joint)
    fine = tuple(error[:, merge] for error, merge in zip(errors, merges, strict=True))
    scaled = _in_units(replace(model, tables=fine), facts).tables
    return replace(
        learned, doubt=reason_for_doubt(learned, side, counted), model=_in_units(model, facts), errors=scaled
    )


def _choice(plan: Plan, table: PrivateTable) -> ChosenAmong:
    return ChosenAmong(-(-plan.columns // plan.picks), 2 / table.budget.pick_epsilon) if plan.picks else ChosenAmong()


def _listed(ask: PlannedQueries, column: int, cells: Cells, checked: bool) -> Cells:
    """The column with the categories that were found for it, where nobody had listed them."""
    if cells.numeric or not cells.column.unknown:
        return cells
    table, plan = ask.table, ask.plan
    told = ask.told(table.categories(column, mu=plan.domain_cost(table.budget), delta=plan.named_delta(table.budget)))
    found, labels = found_categories(cells, told, checked)
    table.adopt(column, labels, hole=cells.hole)
    return found


def _told(side: PrivateSide, facts: Mapping[str, Any]) -> tuple[float, float | None]:
    """(noisy number of rows, those of a rare group on average), as the kind's own questions told; (0, None): not."""
    counted = facts.get("counted")
    if counted is None and "rows" not in facts:
        return 0.0, None
    held = np.full(side.groups, facts["rows"] / side.groups) if counted is None else np.maximum(counted.rows, 1.0)
    rows = float(held.sum())
    return rows, rows * side.least_share(held / rows) / max(side.groups - 1, 1)


def _follow(ask: PlannedQueries, column: int, cells: Cells, rows: float, most: int) -> Cells:
    """A number's cells, at most so many: where its rows are, if its public grid is too fine to be counted at once."""
    if not cells.numeric or cells.size - cells.hole <= most:
        return cells
    table = ask.table
    if levels(cells):
        cost = ask.plan.domain_cost(table.budget)

        def count(starts: Index) -> Floats:
            return np.asarray(ask.told(table.histogram((column,), by="none", mu=cost, starts=starts.tolist()))[0])

        found, merge = found_cells(cells, count, 1 / cost, rows, most)
    else:
        found, merge = even_cells(cells, most)
    table.bins(column, merge)
    return found


def _joint(
    ask: PlannedQueries,
    columns: tuple[int, ...],
    merges: list[Index],
    marginals: tuple[Floats, ...],
    shares: Floats,
    rows: float,
    most: int,
    model: AdditiveModel,
) -> Joint:
    """Which columns belong together; where no pair is asked for, columns are independent within each group of rows."""
    table, plan, overall = ask.table, ask.plan, pooled(marginals, shares)
    coarse = [
        coarse_cells(p, merge, cells, max(most, 2))
        for p, merge, cells in zip(overall, merges, model.cells, strict=True)
    ]
    where = [group[merge] for group, merge in zip(coarse, merges, strict=True)]
    joint = Joint.independent(marginals, shares, where)
    if not most:
        return joint
    for j, group in zip(columns, coarse, strict=True):
        table.bins(j, group)
    costs = (plan.pair_cost(table.budget), plan.pair_cost(table.budget, more=True) if plan.more else 0.0)
    worth = np.array([np.sum(np.atleast_2d(t) ** 2 @ p) for p, t in zip(overall, model.tables, strict=True)])
    rng = np.random.Generator(np.random.PCG64(DRAWN))  # no noise: rows of the forest, the same in every run
    return ask_pairs(table, columns, joint, rows, costs, (plan.forest, plan.more), ask.told, rng, worth)


def _looked(
    side: PrivateSide,
    count: Floats,
    sigma: float,
    merge: Index,
    shares: Floats,
    facts: Mapping[str, Any],
    kernels: Floats,
) -> NewtonStep | None:
    """What a column's histogram by group says about its table, by Newton's steps from an empty one; asks nothing."""
    held, noise = _by_group(count, merge), sigma**2 * np.bincount(merge).astype(np.float64)
    table, told = np.zeros((side.objective.scores, held.shape[1])), None
    for _ in range(LOOKS):
        told = side.histogram_step(held, noise, shares, table, facts)
        if told is None:
            break
        fresh = side.settled(smooth(told[0], told[1], kernels))
        table = table + np.clip(fresh - table, -STRIDE, STRIDE)
    return told


def _boost(
    ask: PlannedQueries,
    side: PrivateSide,
    columns: tuple[int, ...],
    kernels: list[Floats],
    known: list[NewtonStep | None],
    facts: Mapping[str, Any],
    cost: float,
) -> tuple[list[Floats], list[ColumnEvidence], list[Floats], Mapping[str, Any]]:
    """Rounds of noisy Newton steps, column after column; earlier rounds still count, less as their targets drift.

    Tables are (size,), or (S, size) with S scores, errors (S, size); `known` is what the histograms said about each.
    """
    table, scores = ask.table, ask.table.objective.scores
    shapes = [(scores, table.sizes[j]) for j in columns]
    tables, precision, information, noise, hessians = ([np.zeros(shape) for shape in shapes] for _ in range(5))
    for k, look in enumerate(known):
        if look is not None:
            precision[k], information[k], noise[k], _ = look
    for epoch in range(ask.plan.epochs):
        # of G, where several gradients of a row are centred, which takes a part of it away; H comes with less
        sigma = (np.sqrt(1 - 1 / scores) if scores > 1 else 1.0) / (cost * table.objective.scales[0])
        for k, j in enumerate(columns):
            parts = ask.told(table.sums((j,), mu=cost))
            G, H = np.stack(parts[:scores]), np.stack(parts[scores:])
            hessians[k] += H
            H = np.maximum(hessians[k] / (epoch + 1) if side.steady else H, 0.0)
            kept = 1 / (1 + DRIFT * precision[k])
            # a gradient sum of n patients varies by about H even without noise
            variance = sigma**2 + facts.get("dispersion", 1.0) * H
            told_by = H * H / variance
            precision[k] = kept * precision[k] + told_by
            information[k] = kept * information[k] + told_by * (tables[k] + side.newton(G, H))
            noise[k] = kept**2 * noise[k] + told_by * sigma**2 / variance
            fresh = side.settled(smooth(precision[k], information[k], kernels[k]))
            step = fresh - tables[k]
            table.shift((j,), step if scores > 1 else step[0])
            tables[k] = fresh
        facts = side.after_round(ask, facts)
    # histograms tell better than sums how many rows a cell holds
    means = [
        np.maximum(hessian / ask.plan.epochs, 0.0) if look is None else look[3]
        for hessian, look in zip(hessians, known, strict=True)
    ]
    varies = facts.get("dispersion", 1.0)
    errors = [_error(*one, varies) for one in zip(precision, information, means, kernels, tables, strict=True)]
    told = [ColumnEvidence(*one) for one in zip(precision, noise, means, kernels, strict=True)]
    return [t if scores > 1 else t[0] for t in tables], told, errors, facts


def _error(
    precision: Floats, information: Floats, hessian: Floats, kernels: Floats, table: Floats, varies: float
) -> Floats:
    """(S, cells) standard deviations of a column's table. Patients' own variation is the same in every round, so that
    rounds do not average it out as they do the noise: it is counted in full once more."""
    own = np.divide(varies, hessian, out=np.full_like(hessian, np.inf), where=hessian > 0)
    held = 1 / (1 / np.maximum(precision, 1e-12) + own)
    said = np.divide(information, precision, out=np.zeros_like(information), where=precision > 0)
    return np.stack([doubt(p, p * w, kernels, t) for p, w, t in zip(held, said, table, strict=True)])


def sizes(counts: list[Floats], sigma: float, counted: GroupCounts | None) -> tuple[float, Floats, float]:
    """(rows, (groups,) shares, noise of a group's rows), as all histograms and the count say: the noisier, the less."""
    told, variances = [count.sum(1) for count in counts], [count.shape[1] * sigma**2 for count in counts]
    if counted is not None:
        told, variances = [*told, counted.rows], [*variances, counted.noise**2]
    weight = 1 / np.array(variances)
    held = np.maximum(weight @ np.array(told) / weight.sum(), 1.0)
    total = held.sum()
    shares = np.clip(held / total, 1e-4, 1 - 1e-4)
    shares[0] = max(1 - shares[1:].sum(), 1e-4)
    return float(total), shares, float(1 / np.sqrt(weight.sum()))


def _probabilities(count: Floats, merge: Index, sigma: float, cells: Cells) -> Floats:
    """(groups, s) noisy counts → cell probabilities of each group, without the mass that clipping at 0 would invent.

    Merged cells keep their (non-negative) totals; how each is spread over its fine cells all groups say together.
    """
    both = sigma * np.sqrt(len(count))
    far = out_of_reach(count.sum(0), both, cells) if cells.numeric else np.zeros(cells.size, np.bool_)
    inside = spread_out(count.sum(0), merge, both, ordered=cells.ordered, hole=cells.hole, nobody=far)
    out = np.empty_like(count)
    for row, fine in enumerate(count):
        mass = np.where(far, 0.0, np.maximum(np.bincount(merge, fine), 0.0)[merge] * inside)
        out[row] = mass / mass.sum() if mass.sum() > 0 else inside / inside.sum()
    return out


def _by_group(count: Floats, merge: Index) -> Floats:
    """(groups, merged cells) noisy numbers of rows."""
    return np.stack([np.bincount(merge, row) for row in count])


def _in_units(model: AdditiveModel, facts: Mapping[str, Any]) -> AdditiveModel:
    """The model of an outcome that was fitted in units of its own, in the outcome's units."""
    if "unit" not in facts:
        return model
    unit = facts["unit"]
    return replace(
        model, intercept=facts["centre"] + unit * model.intercept, tables=tuple(unit * t for t in model.tables)
    )


def _centred(model: AdditiveModel, marginals: tuple[Floats, ...], shares: Floats) -> AdditiveModel:
    """The same model with every table's mean moved into the intercept, as a reader of the tables expects."""
    means = [t @ p for p, t in zip(pooled(marginals, shares), model.tables, strict=True)]
    tables = tuple(t - mean[..., None] for t, mean in zip(model.tables, means, strict=True))
    intercept = model.intercept + np.sum(means, axis=0)
    return replace(model, intercept=intercept if np.ndim(intercept) else float(intercept), tables=tables)
