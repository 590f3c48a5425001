"""The private model: additive boosting over public cells, fitted through the gate only.

A plan made from public facts alone says how the budget is spent (plan.py); what is learned is the kind of outcome's
business (`PrivateSide`). Between answers everything is post-processing: cells are merged where the noisy histogram is
thin, and each noisy gradient is shrunk by empirical Bayes (smoothing.py), which also decides whether the column carries
any signal at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from distcondense.arrays import Floats, Index
from distcondense.data.cells import FINE, Cells
from distcondense.methods.private.domain import bounded, even_cells, found_categories, found_cells, levels, out_of_reach
from distcondense.methods.private.joint import Counts, Joint, Pair, ask_pairs, coarse_cells
from distcondense.methods.private.plan import OWN_GROUPS, PairPlan, Plan
from distcondense.methods.private.smoothing import (
    DRIFT,
    cell_sums,
    diagonals,
    doubt,
    low_frequencies,
    merge_cells,
    prior_kernels,
    smooth,
    spread_out,
)
from distcondense.methods.private.terms import Grids, Look, PairSearch, PairSums
from distcondense.methods.private.uncertainty import ChosenAmong, ColumnEvidence, agreement_evidence, reason_for_doubt
from distcondense.models.additive import AdditiveModel, PairTerm
from distcondense.outcomes.private_side import FAINT, Clipped, GroupCounts, NewtonStep, PrivateFit, PrivateSide, pooled
from distcondense.privacy.contributions import Objective
from distcondense.privacy.gate import PrivateTable

DRAWN = 0x9005  # seed of the rows by which pairs are expected: they are compared with patients, so it is no secret
CHOICE_CELLS = 32  # of a number while columns are chosen: coarse, so that spread-out columns do not look rich
LOOKS = 4  # Newton's steps on what the histograms say,
STRIDE = 1.5  # none of them longer
ENOUGH = 4  # columns, whose histograms together say how many rows there are
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


@threadpool_limits.wrap(1, user_api="blas")  # type: ignore[untyped-decorator]  # small matrices: threads only wait
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
        coarse = [choice_width(cell) for cell in cells]
        columns = tuple(sorted(int(j) for j in ask.told(table.choose(plan.picks, coarse=coarse))))
    many, rare = _told(side, facts)
    most = FINE if rare is None else plan.number_cells(table.budget, many, rare, side.groups)
    used = tuple(_follow(ask, j, cells[j], many, most) for j in columns)

    cost = plan.histogram_cost(table.budget)
    counts = [ask.told(table.histogram((j,), by=side.grouping, mu=cost)) for j in columns]
    sigma = 1 / cost
    all_groups = sigma * np.sqrt(len(counts[0]))  # noise of a cell of all groups together
    rows, shares, counted = sizes(counts, sigma, facts.get("counted"))
    used, counts, clipped = _bounded(table, columns, used, counts, all_groups, rows)
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
    asked = plan.pairs_for(table.budget, rows)
    marginals = tuple(
        _probabilities(count, merge, sigma, cell) for count, merge, cell in zip(counts, merges, used, strict=True)
    )
    grids = tuple(
        Grids.from_shares(p, merge, cell)
        for p, merge, cell in zip(pooled(marginals, shares), merges, used, strict=True)
    )
    search = PairSearch(table, plan, side, columns, grids, ask.told)
    boosted = _boost(ask, search, used, kernels, known, facts, pairs=asked.part)
    tables, told, errors, facts = boosted.tables, boosted.evidence, boosted.errors, boosted.facts
    # a pair's groups are of merged cells while the gate is open, and of public ones in the model
    pairs = tuple(
        replace(term, groups=tuple(group[merges[j]] for j, group in zip(term.columns, term.groups, strict=True)))  # type: ignore[arg-type]
        for term in boosted.terms
    )
    fine = tuple(t[..., m] for t, m in zip(tables, merges, strict=True))
    model = AdditiveModel(used, intercept, fine, side.link, pairs=pairs)
    model = _centred(model, marginals, shares)
    joint = _joint(ask, search, merges, marginals, shares, rows, asked, model, boosted.counts)
    objective = table.objective
    shown = [*tables, *(np.reshape(term.table, (table.objective.scores, -1)) for term in boosted.terms)]
    evidence = agreement_evidence(ask, side, intercept, shown, told, rows, facts, _choice(plan, table))
    learned = PrivateFit(
        model, columns, marginals, rows, shares, evidence, objective, facts, joint=joint, clipped=clipped
    )
    spread = tuple(error[:, merge] for error, merge in zip(errors, merges, strict=True))
    scaled = _in_units(replace(model, tables=spread, pairs=()), facts).tables
    learned = replace(
        learned, doubt=reason_for_doubt(learned, side, counted), model=_in_units(model, facts), errors=scaled
    )
    return side.completed(learned)


def choice_width(cells: Cells) -> int:
    """Bins of a column that count as one cell while columns are chosen."""
    return max(1, cells.size // CHOICE_CELLS) if cells.numeric else 1


def _choice(plan: Plan, table: PrivateTable) -> ChosenAmong:
    """Of Gaussian answers, without ε₀: as if without noise, by which the luckiest of all rivals looks best."""
    if not plan.picks:
        return ChosenAmong()
    epsilon = table.budget.pick_epsilon
    return ChosenAmong(-(-plan.columns // plan.picks), 2 / epsilon if epsilon else 0.0)


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


def _bounded(
    table: PrivateTable,
    columns: tuple[int, ...],
    used: tuple[Cells, ...],
    counts: list[Floats],
    sigma: float,
    rows: float,
) -> tuple[tuple[Cells, ...], list[Floats], tuple[Clipped, ...]]:
    """Columns whose bounds nobody knew with those that their histogram tells; asks nothing."""
    cells, held, clipped = list(used), list(counts), []
    for k, (j, cell, count) in enumerate(zip(columns, used, counts, strict=True)):
        if cell.boundless:
            found = bounded(cell, count.sum(0), sigma, rows if len(columns) >= ENOUGH else None)
            table.bins(j, found.merge)
            cells[k], held[k] = found.cells, _by_group(count, found.merge.astype(np.int64))
            clipped.append(Clipped(cell.column.name, found.below, found.above, found.noise))
    return tuple(cells), held, tuple(clipped)


def _joint(
    ask: PlannedQueries,
    search: PairSearch,
    merges: list[Index],
    marginals: tuple[Floats, ...],
    shares: Floats,
    rows: float,
    asked: PairPlan,
    model: AdditiveModel,
    counts: Mapping[Pair, PairSums],
) -> Joint:
    """Which columns belong together; where no pair is asked for, columns are independent within each group of rows."""
    table, plan, overall = ask.table, ask.plan, pooled(marginals, shares)
    columns, grids = search.columns, search.grids
    coarse = [  # a number's are those of pair terms, so that what these told of rows is told of these cells, too
        grid.fine if cells.numeric else coarse_cells(p, merge, cells, OWN_GROUPS)
        for p, merge, grid, cells in zip(overall, merges, grids, model.cells, strict=True)
    ]
    where = [group[merge] for group, merge in zip(coarse, merges, strict=True)]
    joint = Joint.independent(marginals, shares, where)
    if not asked.forest:
        return joint
    for j, group in zip(columns, coarse, strict=True):
        table.bins(j, group)
    costs = (plan.pair_cost(table.budget, asked), plan.pair_cost(table.budget, asked, more=True))
    worth = np.array([np.sum(np.atleast_2d(t) ** 2 @ p) for p, t in zip(overall, model.tables, strict=True)])
    rng = np.random.Generator(np.random.PCG64(DRAWN))  # no noise: rows of the forest, the same in every run
    known = {
        (i, j): Counts(
            sums.hessian[0].reshape(grids[i].sizes[0], -1),
            search.count_noise(sums),
            *(np.arange(grids[k].sizes[0]) for k in (i, j)),
        )
        for (i, j), sums in counts.items()
        if search.side.steady  # its hessian counts rows
        and all(np.array_equal(coarse[k], grids[k].fine) for k in (i, j))
    }
    counted = (asked.forest, asked.more)
    return ask_pairs(table, columns, joint, rows, costs, counted, ask.told, rng, worth, known, model.cells, overall)


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
        fresh = side.settled(smooth(told[0], told[1], kernels), facts)
        table = table + np.clip(fresh - table, -STRIDE, STRIDE)
    return told


@dataclass(frozen=True)
class Boosted:
    """What the rounds learned, of each used column, and of the pairs that were measured."""

    tables: list[Floats]  # (size,) over merged cells, or (S, size)
    evidence: list[ColumnEvidence]  # of columns, then of pairs
    errors: list[Floats]  # (S, size)
    facts: Mapping[str, Any]
    terms: list[PairTerm]
    counts: Mapping[Pair, PairSums]


def _boost(
    ask: PlannedQueries,
    search: PairSearch,
    cells: Sequence[Cells],
    kernels: list[Floats],
    known: list[NewtonStep | None],
    facts: Mapping[str, Any],
    *,
    pairs: float,
) -> Boosted:
    """Rounds of noisy Newton steps, column after column; earlier rounds still count, less as their targets drift.

    Before the last one pairs are looked at, after it those that stood out are measured; where none did, it is asked
    with less noise. `known` is what the histograms said about each column; `pairs`: the part of their share that
    tables of pairs have.
    """
    table, side, columns, scores = ask.table, search.side, search.columns, ask.table.objective.scores
    shapes = [(scores, table.sizes[j]) for j in columns]
    tables, information, hessians = ([np.zeros(shape) for shape in shapes] for _ in range(3))
    precision, noise = ([np.zeros((*shape, shape[1])) for shape in shapes] for _ in range(2))
    for k, look in enumerate(known):
        if look is not None:
            information[k] = look.information
            precision[k], noise[k] = diagonals(look.precision), diagonals(look.noise)

    def means(rounds: int) -> list[Floats]:
        """Histograms tell better than sums how many rows a cell holds."""
        return [
            np.maximum(hessian / max(rounds, 1), 0.0) if look is None else look[3]
            for hessian, look in zip(hessians, known, strict=True)
        ]

    search.facts = facts
    kept_for_terms = search.expected(means(0))
    cost = ask.plan.sums_cost(table.budget, pairs=pairs, terms=kept_for_terms)
    varies, blur = facts.get("dispersion", 1.0), search.sigma(cost)
    strategies = [low_frequencies(one, varies * held, blur) for one, held in zip(cells, means(0), strict=True)]
    chosen: Mapping[Pair, Look] = {}
    candidates: list[Pair] = []
    for epoch in range(ask.plan.epochs):
        if epoch == ask.plan.epochs - 1 and kept_for_terms:
            search.facts = facts
            candidates = search.candidates(tables, means(epoch))
            chosen = search.look(candidates, means(epoch)) if candidates else {}
            cost = cost if chosen else ask.plan.last_cost(table.budget, cost, looked=bool(candidates))
        # of G, where several gradients of a row are centred, which takes a part of it away; H comes with less
        sigma = search.sigma(cost)
        own = 1 / (cost * table.objective.scales[scores])  # of H
        for k, j in enumerate(columns):
            parts = ask.told(table.sums((j,), mu=cost, strategy=strategies[k]))
            y, H = np.stack(parts[:scores]), np.stack(parts[scores:])
            hessians[k] += H
            H = side.hessian(hessians[k] / (epoch + 1) if side.steady else H, known[k], own)
            # a gradient sum of n patients varies by about H even without noise
            seen = cell_sums(strategies[k], y, sigma, facts.get("dispersion", 1.0) * H)
            told_by = H[:, :, None] * seen.precision * H[:, None]
            kept = np.linalg.inv(np.eye(H.shape[1]) + DRIFT * precision[k])
            precision[k] = kept @ precision[k] + told_by
            step = (told_by @ (tables[k] + side.newton(seen.gradient, H))[..., None])[..., 0]
            information[k] = (kept @ information[k][..., None])[..., 0] + step
            noise[k] = kept @ noise[k] @ kept.transpose(0, 2, 1) + H[:, :, None] * seen.noise * H[:, None]
            fresh = side.settled(smooth(precision[k], information[k], kernels[k]), facts)
            step = fresh - tables[k]
            table.shift((j,), step if scores > 1 else step[0])
            tables[k] = fresh
        facts = side.after_round(ask, facts)
    held = means(ask.plan.epochs)
    search.facts = facts
    terms, also, counts = search.measure(chosen, held, len(candidates)) if chosen else ([], [], {})
    varies = facts.get("dispersion", 1.0)
    errors = [_error(*one, varies) for one in zip(precision, information, held, kernels, tables, strict=True)]
    told = [ColumnEvidence(*one) for one in zip(precision, noise, held, kernels, strict=True)]
    return Boosted([t if scores > 1 else t[0] for t in tables], [*told, *also], errors, facts, terms, counts)


def _error(
    precision: Floats, information: Floats, hessian: Floats, kernels: Floats, table: Floats, varies: float
) -> Floats:
    """(S, cells) standard deviations of a column's table. Patients' own variation is the same in every round, so that
    rounds do not average it out as they do the noise: it is counted in full once more."""
    own = varies / np.maximum(hessian, FAINT)
    blurred = np.eye(hessian.shape[1]) + precision * own[:, None]
    held, said = np.linalg.solve(blurred, precision), np.linalg.solve(blurred, information[..., None])[..., 0]
    return np.stack([doubt(p, i, kernels, t) for p, i, t in zip(held, said, table, strict=True)])


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
    reach = cells.numeric and not cells.column.searched  # bounds that were found leave hardly anybody out, nor a desert
    far = out_of_reach(count.sum(0), both, cells) if reach else np.zeros(cells.size, np.bool_)
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
        model,
        intercept=facts["centre"] + unit * model.intercept,
        tables=tuple(unit * t for t in model.tables),
        pairs=tuple(replace(pair, table=unit * pair.table, errors=unit * pair.errors) for pair in model.pairs),
    )


def _centred(model: AdditiveModel, marginals: tuple[Floats, ...], shares: Floats) -> AdditiveModel:
    """The same model with every table's mean moved into the intercept, as a reader of the tables expects.

    What a pair's table says of each of its columns alone goes to that column's.
    """
    overall, intercept = pooled(marginals, shares), model.intercept
    tables, pairs = [np.array(table) for table in model.tables], []
    for pair in model.pairs:
        (i, j), (of_first, of_second) = pair.columns, pair.groups
        first, second = np.bincount(of_first, overall[i]), np.bincount(of_second, overall[j])
        table = pair.table
        rows, columns = table @ second, first @ table
        mean = rows @ first
        tables[i] += (rows - mean[..., None])[..., of_first]
        tables[j] += (columns - mean[..., None])[..., of_second]
        intercept = intercept + mean
        pairs.append(replace(pair, table=table - rows[..., :, None] - columns[..., None, :] + mean[..., None, None]))
    means = [t @ p for p, t in zip(overall, tables, strict=True)]
    intercept = intercept + np.sum(means, axis=0)
    return replace(
        model,
        intercept=intercept if np.ndim(intercept) else float(intercept),
        tables=tuple(t - mean[..., None] for t, mean in zip(tables, means, strict=True)),
        pairs=tuple(pairs),
    )
