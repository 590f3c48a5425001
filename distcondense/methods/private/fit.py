"""The private reference model: additive boosting over public cells, fitted through the gate only (SPEC §4.2, §4.3).

Binary outcomes: log odds; survival: log hazard over a piecewise-constant baseline, which gives a whole survival curve.
A plan made from public facts alone (number of columns, kind of outcome) says how the budget is spent:

    wide tables          the two classes are counted, so that gradients start from the prevalence  COUNT_SHARE of μ²
                         PICKS columns are chosen by exponential mechanisms on |gradient sums|   PICK_SHARE of ρ
    survival             events and time at risk per public interval: the baseline               HAZARD_SHARE of μ²
                         rows by event status and interval: how follow-up ends                   FOLLOW_UP_SHARE of μ²
    histograms           every used column by class (event status): start, cells, prevalence     HISTOGRAM_SHARE of μ²
    gradient sums        EPOCHS rounds through the used columns                                   the rest of μ²

Between answers everything is post-processing: cells are merged where the noisy histogram is thin, and each noisy
gradient is shrunk by empirical Bayes (smoothing.py), which also decides whether the column carries any signal at all.
Rounds, shares and cells were set once, on public data sets, and depend on nothing in the table at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from distcondense.data.cells import Cells
from distcondense.errors import BudgetError
from distcondense.methods.private.smoothing import DRIFT, merge_cells, prior_kernels, smooth, spread_out
from distcondense.models.additive import AdditiveModel
from distcondense.privacy.accountant import Budget
from distcondense.privacy.gate import Logistic, Objective, PiecewiseExponential, PrivateTable

Floats = NDArray[np.float64]
EPOCHS = 3
HISTOGRAM_SHARE = 0.2
HAZARD_SHARE = 0.03
FOLLOW_UP_SHARE = 0.02
WIDE = 128  # from this many columns on, cycling through all of them wastes the budget
PICKS = 16
PICK_SHARE = 0.2
COUNT_SHARE = 0.02
CHOICE_CELLS = 32  # of a number while columns are chosen: coarse, so that spread-out columns do not look rich
MERGED = {"probability": 64, "log-risk": 8}  # a merged cell holds at least a 1/(2·MERGED) share of the rows
LEAST = 2.0  # and this many standard deviations of its noise
INTERVALS = 5  # of follow-up time
NOISIEST = 1000.0  # persons: with a noise of more than this in every sum no hospital's table could be learned from
# below any of these the run says that it found no answer, instead of handing over noise as data
EVIDENCE = 8.0  # log evidence of all columns together; permuted outcomes of 3,200 patients give 2.2 ± 3.6 at ε = 1
EVIDENCE_CHOSEN = 20.0  # the same after columns were chosen, which favours those that look best by chance
SPREAD = 0.15  # standard deviation of the model's margin; less than that is an AUROC of about 0.54
CASES = 3.0  # noisy number of the rarer class, in standard deviations of its noise


@dataclass(frozen=True)
class Plan:
    """How a budget is spent; a function of public facts."""

    columns: int  # of the table
    survival: bool
    epochs: int
    picks: int = 0

    @classmethod
    def of(cls, columns: int, *, survival: bool) -> Plan:
        picks = PICKS if columns > WIDE else 0
        return cls(columns, survival, EPOCHS, picks)

    @property
    def counted(self) -> bool:
        """The classes are counted before columns are chosen (a hazard's baseline does that for survival)."""
        return self.picks > 0 and not self.survival

    @property
    def used(self) -> int:
        """Columns the model may use."""
        return self.picks or self.columns

    @property
    def answers(self) -> int:
        return self.used * (1 + self.epochs) + 2 * self.survival + self.counted + (self.picks > 0)

    def budget(self, epsilon: float, delta: float) -> Budget:
        """The calibrated budget, refused where no table could be learned from at this noise; looks at no data."""
        budget = Budget.calibrate(
            epsilon=epsilon, delta=delta, picks=self.picks, pick_share=PICK_SHARE if self.picks else 0.0
        )
        noise = 1 / self.sums_cost(budget)
        if noise > NOISIEST:
            raise BudgetError(
                "epsilon", f"must leave less noise than {NOISIEST:.0f} persons in each sum, or every answer is noise",
                found=f"ε = {epsilon:g} end-to-end at δ = {delta:g}: {noise:,.0f} persons for {self.used} columns",
                fix="ask for a larger epsilon or use fewer columns; no patient was read",
            )  # fmt: skip
        return budget

    def hazard_cost(self, budget: Budget) -> float:
        return budget.mu * np.sqrt(HAZARD_SHARE)

    def follow_up_cost(self, budget: Budget) -> float:
        return budget.mu * np.sqrt(FOLLOW_UP_SHARE)

    def count_cost(self, budget: Budget) -> float:
        return budget.mu * np.sqrt(COUNT_SHARE)

    def histogram_cost(self, budget: Budget) -> float:
        return float(budget.mu * np.sqrt(HISTOGRAM_SHARE / self.used))

    def sums_cost(self, budget: Budget) -> float:
        share = 1 - HISTOGRAM_SHARE - self.survival * (HAZARD_SHARE + FOLLOW_UP_SHARE) - self.counted * COUNT_SHARE
        return float(budget.mu * np.sqrt(share / (self.epochs * self.used)))


@dataclass(frozen=True)
class Learned:
    """Everything that left the gate, in usable form. All of it is covered by the guarantee."""

    model: AdditiveModel  # over the used columns
    columns: tuple[int, ...]  # their numbers in the table
    marginals: tuple[Floats, ...]  # per used column (2, cells): cell probabilities in each class (event status)
    rows: float  # noisy number of rows
    positive: float  # noisy share of the positive class (events)
    evidence: float  # log evidence that the features say anything about the outcome
    objective: Objective  # survival: with the private baseline hazard
    leaving: tuple[float, ...] = ()  # survival: (K,) hazard of leaving without an event, per unit of time
    doubt: str = ""  # why there is no answer in this, if there is none

    @property
    def overall(self) -> list[Floats]:
        """Per used column (cells,): cell probabilities of both classes together."""
        return _pooled(self.marginals, self.positive)

    @property
    def informative(self) -> bool:
        return not self.doubt


def fit_private(
    table: PrivateTable, cells: tuple[Cells, ...], plan: Plan, tell: Callable[[int, int], None] = lambda done, of: None
) -> Learned:
    """Spend the table's budget according to the plan. `tell` hears (answers so far, planned answers)."""
    budget, planned = table.budget, plan.answers
    asked = 0

    def told() -> None:
        nonlocal asked
        asked += 1
        tell(asked, planned)

    leaving: tuple[float, ...] = ()

    if isinstance(table.objective, PiecewiseExponential):
        events, exposure = table.hazard(mu=plan.hazard_cost(budget))
        table.objective = table.objective.with_hazard(_baseline(events, exposure))
        told()
        ends = table.histogram((), by="stratum", mu=plan.follow_up_cost(budget)).reshape(2, -1)
        leaving = tuple(float(rate) for rate in _baseline(ends[0], exposure))
        told()
    columns, intercept = tuple(range(plan.columns)), 0.0
    if plan.counted:
        _, share = _sizes([table.histogram((), by="label", mu=plan.count_cost(budget))])
        intercept = _logit(share)
        table.shift((), np.array([intercept]))
        told()
    if plan.picks:
        coarse = [max(1, cell.size // CHOICE_CELLS) if cell.numeric else 1 for cell in cells]
        columns = tuple(sorted(int(j) for j in table.choose(plan.picks, coarse=coarse)))
        told()
    used = tuple(cells[j] for j in columns)

    counts = []
    for j in columns:
        counts.append(table.histogram((j,), by="label", mu=plan.histogram_cost(budget)))
        told()
    sigma = 1 / plan.histogram_cost(budget)
    rows, positive = _sizes(counts)
    link = "probability" if isinstance(table.objective, Logistic) else "log-risk"
    merges = [
        merge_cells(
            count.sum(0), sigma * np.sqrt(2), ordered=cell.ordered, hole=cell.hole, most=MERGED[link], least=LEAST
        )
        for count, cell in zip(counts, used, strict=True)
    ]  # fmt: skip
    for j, merge in zip(columns, merges, strict=True):
        table.bins(j, merge)
    if link == "probability":
        table.shift((), np.array([_logit(positive) - intercept]))
        intercept = _logit(positive)

    tables, evidence = _boost(table, columns, used, plan, told)
    marginals = tuple(
        _probabilities(count, merge, sigma, cell) for count, merge, cell in zip(counts, merges, used, strict=True)
    )
    model = AdditiveModel(used, intercept, tuple(t[m] for t, m in zip(tables, merges, strict=True)), link)  # type: ignore[arg-type]
    model = _centred(model, marginals, positive)
    learned = Learned(model, columns, marginals, rows, positive, evidence, table.objective, leaving)
    return replace(learned, doubt=_doubt(learned, plan, sigma))


def _boost(
    table: PrivateTable, columns: tuple[int, ...], cells: tuple[Cells, ...], plan: Plan, told: Callable[[], None]
) -> tuple[list[Floats], float]:
    """Rounds of noisy Newton steps, column after column; earlier rounds still count, less as their targets drift."""
    cost = plan.sums_cost(table.budget)
    sigma = 1 / cost  # of G; H comes with 1/hessian_weight of it
    sizes = [table.sizes[j] for j in columns]
    tables = [np.zeros(size) for size in sizes]
    precision, information = ([np.zeros(size) for size in sizes] for _ in range(2))
    evidence = np.zeros(len(columns))
    for _ in range(plan.epochs):
        for k, j in enumerate(columns):
            G, H = table.sums((j,), mu=cost)
            H = np.maximum(H, 0.0)
            kept = 1 / (1 + DRIFT * precision[k])
            told_by = H * H / (sigma**2 + H)  # a gradient sum of n patients varies by about H even without noise
            precision[k] = kept * precision[k] + told_by
            information[k] = kept * information[k] + told_by * (tables[k] + _newton(G, H, table.objective))
            # a merged hole is its own last cell; one that was merged away (categories) is a cell like any other
            kernels = prior_kernels(sizes[k], cells[k].ordered, cells[k].ordered and cells[k].hole)
            fresh, evidence[k] = smooth(precision[k], information[k], kernels)
            table.shift((j,), fresh - tables[k])
            tables[k] = fresh
            told()
    return tables, float(evidence.sum())


def _doubt(learned: Learned, plan: Plan, sigma: float) -> str:
    """Why what was learned is no answer, in words; empty where it is one."""
    survival = isinstance(learned.objective, PiecewiseExponential)  # needs events; that nobody is censored is no fault
    rarer = learned.rows * (learned.positive if survival else min(learned.positive, 1 - learned.positive))
    # the precision-weighted mean of `_sizes`: each histogram's total has variance cells·σ²
    noise = sigma / np.sqrt(sum(1 / cells.size for cells in learned.model.cells))
    if rarer < CASES * noise:
        return "too few rows of the rarer class to tell from noise"
    pairs = zip(learned.overall, learned.model.tables, strict=True)
    variance = sum(float(p @ t**2) for p, t in pairs)  # tables have mean 0
    if learned.evidence < (EVIDENCE_CHOSEN if plan.picks else EVIDENCE) or variance < SPREAD**2:
        return "no relation between the features and the outcome that stands out of the noise"
    return ""


def _newton(G: Floats, H: Floats, objective: Objective) -> Floats:
    """The step that would make a cell's noisy gradient 0, 0 where its noisy hessian is.

    A hazard multiplies: observed over expected events is 1 − G/H, and its logarithm the exact step, where Newton's own
    step would run far past it; noise below the half of what is expected is not believed.
    """
    ratio = np.divide(-G, H, out=np.zeros_like(G), where=H > 0)
    return ratio if isinstance(objective, Logistic) else np.log1p(np.maximum(ratio, -0.5))


def _baseline(events: Floats, exposure: Floats) -> Floats:
    """Events per unit of time in each interval, at least a fifth of their mean: a noisy zero is not believed."""
    total = max(float(events.sum()), 1.0)
    floor = 0.2 * total / len(events)
    at_risk = np.maximum(exposure, 0.02 * max(float(np.max(exposure)), 1.0))
    return np.maximum(events, floor) / at_risk


def _sizes(counts: list[Floats]) -> tuple[float, float]:
    """(rows, share of positives): every histogram estimates both; those with fewer cells are less noisy."""
    weight = np.array([1 / count.shape[1] for count in counts])
    by_class = np.array([count.sum(1) for count in counts])
    negative, positive = np.maximum((weight[:, None] * by_class).sum(0) / weight.sum(), 1.0)
    share = positive / (negative + positive)
    return float(negative + positive), float(np.clip(share, 1e-4, 1 - 1e-4))


def _logit(share: float) -> float:
    return float(np.log(share / (1 - share)))


def _probabilities(count: Floats, merge: NDArray[np.int64], sigma: float, cells: Cells) -> Floats:
    """(2, s) noisy counts → cell probabilities of each class, without the mass that clipping noise at 0 would invent.

    Merged cells keep their (non-negative) totals; how each is spread over its fine cells both classes say together.
    """
    inside = spread_out(count.sum(0), merge, sigma * np.sqrt(2), ordered=cells.ordered, hole=cells.hole)
    out = np.empty_like(count)
    for row, fine in enumerate(count):
        mass = np.maximum(np.bincount(merge, fine), 0.0)[merge] * inside
        out[row] = mass / mass.sum() if mass.sum() > 0 else inside / inside.sum()
    return out


def _pooled(marginals: tuple[Floats, ...], positive: float) -> list[Floats]:
    return [(1 - positive) * m[0] + positive * m[1] for m in marginals]


def _centred(model: AdditiveModel, marginals: tuple[Floats, ...], positive: float) -> AdditiveModel:
    """The same model with every table's mean moved into the intercept, as a reader of the tables expects."""
    means = [float(p @ t) for p, t in zip(_pooled(marginals, positive), model.tables, strict=True)]
    tables = tuple(t - mean for t, mean in zip(model.tables, means, strict=True))
    return replace(model, intercept=model.intercept + float(np.sum(means)), tables=tables)
