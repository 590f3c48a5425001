"""Attacks on `private`, white box: the attacker sees every answer that left the gate, and knows everybody else's rows.

The privacy loss of all answers together is the statistic (neighbours.py); 0 is its best threshold, known before any
run. For the choice of columns in wide tables, and of pairs of columns, the canary decides between two. Of values that
nobody listed the canary has one of its own, and shares another whose noisy number is released. In the one-run attack
many canaries, each in by a coin of its own, are guessed from one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from distcondense.arrays import Flags, Floats
from distcondense.data.schema import Column, Schema
from distcondense.evaluation.audit import stats
from distcondense.evaluation.audit.findings import (
    CONFIDENCE,
    Auditor,
    AuditRequest,
    PendingFinding,
    coins,
    many_runs,
    one_run,
    pending_finding,
)
from distcondense.evaluation.audit.neighbours import (
    ALONE,
    CAP,
    CERTAIN,
    CHOICE,
    EARLY,
    FAR,
    MANY,
    OUTLIER,
    PAIR,
    SCHEMA,
    SEVERAL,
    UNLISTED,
    UNSEEN,
    AuditSetting,
    GateObserver,
    NeighbourTable,
    ObservedAnswer,
    neighbouring,
)
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.placement import LARGE
from distcondense.methods.private.plan import NAMED_SHARE, PAIR_PICK_SHARE, PICK_SHARE
from distcondense.outcomes.binary import Binary
from distcondense.outcomes.continuous import Continuous
from distcondense.outcomes.multiclass import Multiclass
from distcondense.outcomes.survival import Survival
from distcondense.privacy import noise
from distcondense.privacy.accountant import replay
from distcondense.privacy.budget import Budget
from distcondense.privacy.contributions import SCORE_MAX
from distcondense.privacy.curves import gaussian_mu
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.layout import UnlistedColumn
from distcondense.privacy.ledger import Ledger

GUARANTEE = "end-to-end"
NEIGHBOURS = (OUTLIER, UNSEEN, ALONE, MANY, EARLY, SEVERAL, FAR, CHOICE, PAIR, UNLISTED)
FAR_ABOVE = 20.0  # standard deviations: a value of so many rows passes every threshold
PER_TABLE = 100  # canaries in one table of the one-run attack: their smoothing kernels are this wide
CASE = Binary(("case",)).private_side()
SIDES = {  # of the neighbours that are not about a yes or a no
    EARLY: Survival(("time", "case")).private_side(horizon=5.0),
    SEVERAL: Multiclass(("group",), ("A", "B", "C")).private_side(),
    FAR: Continuous(("value",), Column("value", "continuous", low=0.0, high=100.0)).private_side(),
}


@dataclass
class Checks:
    """What needs no statistics."""

    epsilon: float
    delta: float
    unrecorded: int = 0
    too_far: float = 1.0  # the most that a canary moved a sum, in shares of what was paid for
    claims: dict[tuple[float, int], float] = field(default_factory=dict)

    def claim(self, ledger: Ledger) -> float:
        """ε by the ledger's own account."""
        key = (math.fsum(event.cost**2 for event in ledger.events), len(ledger.events))
        if key not in self.claims:
            self.claims[key] = replay(ledger.events, self.delta).epsilon
        return self.claims[key]

    def problems(self) -> tuple[str, ...]:
        problems = []
        if self.unrecorded:
            problems.append(f"LEDGER: {self.unrecorded} answers left the gate and are not in the ledger.")
        if self.too_far > 1:
            problems.append(f"SENSITIVITY: one person moved a sum by {self.too_far:.3g} times what was paid for.")
        if (most := max(self.claims.values(), default=0.0)) > self.epsilon:
            problems.append(f"BUDGET: the ledger adds up to ε = {most:.4g} (end-to-end), asked {self.epsilon:g}.")
        return tuple(problems)


def attack(request: AuditRequest, on_run: Callable[[], None]) -> tuple[list[PendingFinding], tuple[str, ...]]:
    """All chosen pairs of neighbours, then the one-run attack."""
    checks = Checks(request.epsilon, request.delta)
    pending: list[PendingFinding] = []
    special = {
        CHOICE: lambda: [_columns(request, on_run)],
        PAIR: lambda: [_pairs(request, on_run)],
        UNLISTED: lambda: _unlisted(request, checks, on_run),
    }
    for name in request.neighbours:
        pending += special[name]() if name in special else losses(name, request, checks, on_run, watched)
    if request.canaries:
        pending.append(_one_run(request, checks, on_run))
    return pending, checks.problems()


def watched(
    world: NeighbourTable, worlds: tuple[NeighbourTable, NeighbourTable], setting: AuditSetting, ledger: Ledger
) -> GateObserver:
    """One run of the method on `world`, with a witness at the gate."""
    witness = GateObserver(worlds, setting)
    fit_private(setting.gate(world, ledger, witness), setting.cells, setting.plan, setting.side)
    return witness


Watched = Callable[
    [NeighbourTable, tuple[NeighbourTable, NeighbourTable], AuditSetting, Ledger], GateObserver
]  # one run with a witness at the gate


def losses(
    name: str,
    request: AuditRequest,
    checks: Checks,
    on_run: Callable[[], None],
    watched: Watched,
    setting: AuditSetting | None = None,
) -> list[PendingFinding]:
    """Runs with and without the canary, told apart by the privacy loss of everything that left the gate."""
    if setting is None:
        setting = AuditSetting.calibrate(SCHEMA, SIDES.get(name, CASE), request.epsilon, request.delta)
    others, canary = neighbouring(name, request.seed)
    worlds = (others, others.plus(canary))
    member = coins(request.runs)
    loss, moved, claim = np.zeros(request.runs), np.zeros(request.runs), math.inf
    for run in range(request.runs):
        ledger = Ledger()
        witness = watched(worlds[int(member[run])], worlds, setting, ledger)
        loss[run] = sum(float(seen.losses().sum()) for seen in witness.seen)
        moved[run] = math.sqrt(sum(float(seen.moved @ seen.moved) for seen in witness.seen)) / noise.GRID
        for seen in witness.seen:
            far = math.sqrt(float(seen.moved @ seen.moved)) / (noise.GRID * seen.cost)
            checks.too_far = max(checks.too_far, far)
        checks.unrecorded += witness.unrecorded(ledger)
        claim = min(claim, checks.claim(ledger))
        on_run()
    reach = stats.epsilon_of_mu(float(np.sqrt(np.mean(moved**2))), request.delta)
    return many_runs(
        name, loss, member, claim, request.delta, GUARANTEE, gaussian=True, reach=reach, known=stats.Threshold(0.0)
    )


# ---- choices


def _columns(request: AuditRequest, on_run: Callable[[], None]) -> PendingFinding:
    """One pick between two columns that are level without the canary, who lifts one score by 1 and lowers the other.

    Public shifts by `side` bring all gradients to ±1. In `first` each side has a cell of its own, and so has it in
    `second`, but there the canary is in the other side's cell.
    """
    side = np.repeat([0, 1], 10)  # side 0: g = 1, side 1: g = −1
    others = NeighbourTable(np.column_stack([side, side, side]), {"label": side}, np.arange(20))
    canary = NeighbourTable(np.array([[0, 0, 1]]), {"label": np.array([0])}, np.array([20]))

    def lifted(table: PrivateTable) -> bool:
        table.shift((0,), np.array([SCORE_MAX, -SCORE_MAX]))
        return bool(table.choose(1, columns=(1, 2))[0] == 1)

    return _choices(CHOICE, (others, others.plus(canary)), PICK_SHARE, lifted, request, on_run)


def _pairs(request: AuditRequest, on_run: Callable[[], None]) -> PendingFinding:
    """The same for pairs of columns: each differs from what is expected by 1 row, here of nobody, there of the canary.

    All others are in cell 0 of all columns. The first pair expects one row too many elsewhere, and nobody where the
    canary is, who makes its distance 2; the second expects just the canary, who makes it 0.
    """
    others = NeighbourTable(np.zeros((20, 3), np.int64), {"label": np.repeat([0, 1], 10)}, np.arange(20))
    canary = NeighbourTable(np.ones((1, 3), np.int64), {"label": np.array([1])}, np.array([20]))
    expected = [np.array([[20.0, 1.0], [0.0, 0.0]]), np.array([[20.0, 0.0], [0.0, 1.0]])]

    def lifted(table: PrivateTable) -> bool:
        return table.related([(0, 1), (0, 2)], expected) == 0

    return _choices(PAIR, (others, others.plus(canary)), PAIR_PICK_SHARE, lifted, request, on_run)


def _choices(
    name: str,
    worlds: tuple[NeighbourTable, NeighbourTable],
    share: float,
    lifted: Callable[[PrivateTable], bool],
    request: AuditRequest,
    on_run: Callable[[], None],
) -> PendingFinding:
    """Whether the canary's candidate is `lifted` above the other. The claim is the ε₀ of the pick, not all of ε."""
    budget = Budget.calibrate(epsilon=request.epsilon, delta=request.delta, picks=1, pick_share=share)
    member = coins(request.runs)
    won, claim = np.zeros(request.runs), math.inf
    for run in range(request.runs):
        world, ledger = worlds[int(member[run])], Ledger()
        table = PrivateTable(
            world.codes,
            [2, 2, 2],
            world.target,
            names=["side", "first", "second"],
            objective=CASE.objective,
            budget=budget,
            ledger=ledger,
            person=world.person,
        )
        won[run] = float(lifted(table))
        claim = min(claim, math.fsum(event.cost * event.picks for event in ledger.events))
        on_run()
    counts = stats.Threshold(0.5).count(won, member)
    fpr, fnr = counts.intervals(CONFIDENCE)
    return pending_finding(
        name,
        "ε₀ of one pick, bounded range",
        request.runs,
        claim,
        GUARANTEE,
        lambda level: stats.by_range(counts, request.delta, level),
        reach=budget.pick_epsilon,
        fpr=fpr,
        fnr=fnr,
    )


# ---- values that nobody listed


def _unlisted(request: AuditRequest, checks: Checks, on_run: Callable[[], None]) -> list[PendingFinding]:
    """The canary's own value settles the matter where it is told; else the noisy number of those it shares does."""
    delta = NAMED_SHARE * request.delta
    budget = Budget.calibrate(epsilon=request.epsilon, delta=request.delta, delta_categories=delta)
    known = math.ceil(FAR_ABOVE / budget.mu)  # so many that the value is always told
    owner = np.append(np.arange(known), np.full(CAP, known))
    labels = ("own", "shared")
    value = np.ones(known + CAP, np.int64)
    value[-1] = 0
    shared = (CAP - 1) / math.hypot(1, CAP - 1)  # the canary's part in it, scaled to norm 1
    member = coins(request.runs)
    statistic, claim = np.zeros(request.runs), math.inf
    for run in range(request.runs):
        rows, ledger = np.arange(known + CAP * int(member[run])), Ledger()
        table = PrivateTable(
            np.zeros((len(rows), 1), np.int64),
            [1],
            {"label": np.zeros(len(rows), np.int64)},
            names=["value"],
            objective=CASE.objective,
            budget=budget,
            ledger=ledger,
            person=owner[rows],
            rows_per_person=CAP,
            unlisted={0: UnlistedColumn(value[rows], labels)},
        )
        released = table.categories(0, mu=budget.mu, delta=delta)
        statistic[run] = CERTAIN if "own" in released else released.get("shared", 0.0) - known - shared / 2
        claim = min(claim, checks.claim(ledger))
        on_run()
    reach = stats.epsilon_of_mu(budget.mu * shared, request.delta)
    return many_runs(
        UNLISTED,
        statistic,
        member,
        claim,
        request.delta,
        GUARANTEE,
        gaussian=True,
        reach=reach,
        known=stats.Threshold(0.0),
    )


# ---- one run, many canaries


def _one_run(request: AuditRequest, checks: Checks, on_run: Callable[[], None]) -> PendingFinding:
    """Canary k is alone with known rows in category k of both columns, so that no other canary's coin disturbs it."""
    rng = np.random.default_rng([request.seed, 0x0E])
    scores: list[Floats] = []
    members: list[Flags] = []
    claim = math.inf
    while (left := request.canaries - sum(map(len, scores))) > 0:
        count = min(PER_TABLE, left)
        names = tuple(f"c{k}" for k in range(max(count, 2)))
        schema = Schema(tuple(Column(name, "categorical", categories=names) for name in ("first", "second")))
        setting = AuditSetting.calibrate(schema, CASE, request.epsilon, request.delta)
        # so many known rows that no category is thin enough to be merged with another
        each = 50 + math.ceil(6 / setting.plan.histogram_cost(setting.budget))
        code = np.repeat(np.arange(len(names)), each)
        label = (rng.random(len(code)) < 0.38).astype(np.int64)  # where a positive moves the sums the most
        others = NeighbourTable(np.column_stack([code, code]), {"label": label}, np.arange(len(code)))
        own = np.arange(count)
        every = NeighbourTable(np.column_stack([own, own]), {"label": np.ones(count, np.int64)}, len(code) + own)
        member, ledger = coins(count), Ledger()
        witness = watched(others.plus(every.only(member)), (others, others.plus(every)), setting, ledger)
        checks.unrecorded += witness.unrecorded(ledger)
        claim = min(claim, checks.claim(ledger))
        scores.append(sum((_of_canaries(seen, count) for seen in witness.seen), np.zeros(count)))
        members.append(member)
        on_run()
    guesses = stats.planned_guesses(
        request.canaries, gaussian_mu(request.epsilon, request.delta), request.delta, CONFIDENCE
    )
    return one_run(np.concatenate(scores), np.concatenate(members), guesses, claim, request.delta, GUARANTEE)


def _of_canaries(seen: ObservedAnswer, count: int) -> Floats:
    """(count,) privacy loss of each canary in one answer; those in one merged cell share its loss."""
    if seen.place is None:  # not asked by column: nothing in it is one canary's own
        return np.zeros(count)
    place = seen.place[:count]
    size = int(seen.place.max()) + 1
    by_cell = seen.losses().reshape(-1, size).sum(0)
    return by_cell[place] / np.bincount(place, minlength=size)[place]


AUDITOR = Auditor(
    GUARANTEE,
    NEIGHBOURS,
    lambda canaries: math.ceil(canaries / PER_TABLE),
    attack,
    whole={"ipc": LARGE // 2 + 1, "rows_per_person": CAP},  # as many rows as are drawn, not chosen: they tell more
)
