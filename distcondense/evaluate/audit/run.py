"""`run_audit`: attacks on the mechanisms themselves, and the ε that they prove at least (SPEC §7).

A mechanism is run many times on a small public synthetic cohort, with or without one canary person, by fair coins. An
attacker who knows everybody else's rows guesses the coin; audit_stats.py turns the guesses into a lower bound on ε. The
neighbours are worst cases: an outlier, a category nobody else has, a class of one, a person with many rows, for
survival an early event, and for the choice of columns in wide tables a person who decides between two.

`private`, white box: the attacker sees every answer that left the gate. Given the answers so far all public steps are
known, so the exact sums s₀ (without) and s₁ (with) of each question can be recomputed, and the privacy loss
Σ ⟨a − (s₀ + s₁)/2, s₁ − s₀⟩/σ² is the best statistic there is; 0 is its best threshold, known before any run. An answer
equal to an exact sum in a coordinate that the canary moves was not noised at all, and settles the matter.

`published`: the attacker sees the released rows only. It suffices to look at what was never noised: the scale of a
column, and which categories its encoding kept.

A finding's `bound` holds with 95% confidence. `exceeded` is said at a stricter level: each of the F findings is
compared with its claim at confidence 1 − ALARM/F, and every bound is valid for any mechanism that keeps its claim,
so by the union bound an intact build fails an audit with probability at most ALARM = 1e-4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.cluster.executors import LocalExecutor
from distcondense.data.cells import Cells, public_cells
from distcondense.data.cohort import Cohort, Split
from distcondense.data.schema import Column, Schema
from distcondense.errors import SettingsError
from distcondense.evaluate.audit import stats as st
from distcondense.methods.private.fit import PICK_SHARE, Plan, fit_private
from distcondense.methods.published.condense import condense_published
from distcondense.privacy import noise
from distcondense.privacy.accountant import Budget, gaussian_mu, replay
from distcondense.privacy.contributions import SCORE_MAX
from distcondense.privacy.gate import MARGIN, By, Logistic, Objective, PiecewiseExponential, PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.steps import calibrate, check_budget
from distcondense.settings import Settings

Floats = NDArray[np.float64]
Mechanism = Literal["private", "published"]
CONFIDENCE = 0.95
ALARM = 1e-4  # chance that a whole audit of an intact build fails
CERTAIN = 1e9  # a statistic that leaves no doubt

OUTLIER, UNSEEN, ALONE, MANY, EARLY, CHOICE = (
    "outlier", "unseen category", "class of one", "many rows", "early event (survival)", "column choice",
)  # fmt: skip
NEIGHBOURS: dict[Mechanism, tuple[str, ...]] = {
    "private": (OUTLIER, UNSEEN, ALONE, MANY, EARLY, CHOICE),
    "published": (OUTLIER, UNSEEN, ALONE),  # it promises nothing to a person with many rows
}
GUARANTEE: dict[Mechanism, str] = {"private": "end-to-end", "published": "as-published"}


# ---- what is found -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """One attack on one pair of neighbours: ε is at least `bound`, with this confidence."""

    neighbour: str
    attack: str
    runs: int  # that count for the bound (one run: the guesses)
    bound: float
    confidence: float
    claim: float  # ε by the mechanism's own account
    guarantee: str
    exceeded: bool  # the claim is refuted, at the confidence of the whole audit
    sure: float  # the bound at that confidence
    reach: float | None = None  # private: ε that the best test finds with endless runs
    fpr: tuple[float, float] | None = None
    fnr: tuple[float, float] | None = None

    @property
    def power(self) -> float:
        """The bound as a share of the claim."""
        return self.bound / self.claim if self.claim > 0 else math.inf if self.bound > 0 else 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Audit:
    """All findings about one mechanism."""

    mechanism: Mechanism
    epsilon: float  # asked
    delta: float
    findings: tuple[Finding, ...]
    problems: tuple[str, ...] = ()  # that need no statistics: an answer outside the ledger, a sum moved too far

    @property
    def guarantee(self) -> str:
        return GUARANTEE[self.mechanism]

    @property
    def passed(self) -> bool:
        return not self.problems and not any(finding.exceeded for finding in self.findings)

    @property
    def power(self) -> float:
        """The best bound as a share of its claim: what an audit that passed was able to see."""
        return max((finding.power for finding in self.findings), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "mechanism": self.mechanism, "epsilon": self.epsilon, "delta": self.delta, "guarantee": self.guarantee,
            "passed": self.passed, "power": self.power if math.isfinite(self.power) else None,
            "problems": list(self.problems), "findings": [finding.to_dict() for finding in self.findings],
        }  # fmt: skip

    def lines(self) -> list[str]:
        """The table as text, and the verdict in words."""
        head = ("neighbour", "attack", "runs", f"ε at least ({CONFIDENCE:.0%})", "claimed", "within reach", "")
        body = [
            (f.neighbour, f.attack, f"{f.runs}", f"{f.bound:.2f}", f"{f.claim:.2f}",
             "" if f.reach is None else f"{f.reach:.2f}", "EXCEEDED" if f.exceeded else "above" if f.power > 1 else "")
            for f in self.findings
        ]  # fmt: skip
        width = [max(len(row[k]) for row in (head, *body)) for k in range(len(head))]
        table = [
            "  ".join(
                c.rjust(w) if 2 <= k <= 5 else c.ljust(w) for k, (c, w) in enumerate(zip(row, width, strict=True))
            )
            for row in (head, *body)
        ]
        asked = f"{self.mechanism} at ε = {self.epsilon:g} ({self.guarantee}, δ = {self.delta:g})"
        return [asked, *(line.rstrip() for line in table), *self.problems, self.verdict()]

    def verdict(self) -> str:
        """FAILED, IN DOUBT (more bounds above their claims than chance explains, none of them sure) or PASSED."""
        best = max(self.findings, key=lambda f: (f.exceeded, f.power), default=None)
        above = sum(f.power > 1 for f in self.findings)
        if best is not None and best.exceeded:
            return (
                f"FAILED: ε is at least {best.bound:.2f} ({best.neighbour}; {best.attack}), "
                f"claimed {best.claim:.2f} ({best.guarantee})."
            )
        if self.problems:
            return "FAILED: the mechanism does not keep its own account."
        if st.chance_of(above, len(self.findings), 1 - CONFIDENCE) < 1 - CONFIDENCE:
            return (
                f"IN DOUBT: {above} of {len(self.findings)} bounds are above their claim ({self.guarantee}), "
                f"each with {CONFIDENCE:.0%} confidence, none sure enough for an alarm: repeat with more runs."
            )
        return (
            f"PASSED: no attack refuted the claim; the best one proved {self.power:.0%} of its claim"
            + (f" ({above} of {len(self.findings)} above it, as chance may do). " if above else ". ")
            + "Attacks can show that a guarantee does not hold, never that it does."
        )


@dataclass(frozen=True)
class _Draft:
    """A finding before it is known how many there are."""

    finding: Finding
    bound_at: Callable[[float], float]  # confidence → bound


def _settled(drafts: Sequence[_Draft]) -> tuple[Finding, ...]:
    found = []
    for draft in drafts:
        sure = draft.bound_at(1 - ALARM / len(drafts))
        found.append(replace(draft.finding, sure=sure, exceeded=sure > draft.finding.claim))
    return tuple(found)


def _coins(count: int) -> NDArray[np.bool_]:
    """Fair and fresh: what is proved about a guesser is proved over these."""
    return np.random.default_rng().random(count) < 0.5


def run_audit(
    *,
    mechanism: Mechanism = "private",
    epsilon: float = 1.0,
    delta: float = 1e-5,
    runs: int = 1000,
    canaries: int = 1000,
    seed: int = 0,
    threads: int = 1,
    neighbours: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Attack a mechanism at this ε: `runs` runs for each pair of neighbours, and one run with `canaries` canaries.

    `seed` makes the cohort; coins and noise come from the operating system, or the bounds would hold for lucky seeds
    only. `threads` go to the models that `published` fits. `neighbours` leaves out pairs. `progress` hears (runs done,
    runs in all).
    """
    if mechanism not in get_args(Mechanism):
        raise SettingsError("mechanism", "must be one of private, published", found=repr(mechanism))
    check_budget(epsilon=epsilon, delta=delta)
    if runs < 20 or (canaries != 0 and canaries < 20):
        raise SettingsError(
            "runs and canaries", "must be 20 or more (canaries: or 0 for none), or nothing could be found",
            found=f"{runs} and {canaries}", fix="1000 runs see most of what there is",
        )  # fmt: skip
    known = NEIGHBOURS[mechanism]
    chosen = known if neighbours is None else tuple(neighbours)
    if unknown := [name for name in chosen if name not in known]:
        raise SettingsError("neighbours", f"must be among {', '.join(known)}", found=repr(unknown[0]))
    tables = math.ceil(canaries / PER_TABLE) if mechanism == "private" else int(canaries > 0)
    total, done = runs * len(chosen) + tables, 0

    def tell() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    if mechanism == "private":
        drafts, problems = _audit_private(chosen, epsilon, delta, runs, canaries, seed, tell)
    else:
        drafts, problems = _audit_published(chosen, epsilon, delta, runs, canaries, seed, threads, tell), ()
    return Audit(mechanism, epsilon, delta, _settled(drafts), problems)


# ---- private: the gate and the model behind it ---------------------------------------------------------------

ROWS = 400
CAP = 4  # rows per person
EXTRA = 8  # rows that the person with many rows has
PER_TABLE = 100  # canaries in one table of the one-run audit: their smoothing kernels are this wide
SCHEMA = Schema((Column("marker", "integer", low=0, high=3), Column("site", "categorical", categories=("A", "B", "C"))))
FOLLOW_UP = PiecewiseExponential((1.0, 2.0, 3.0, 4.0), 5.0)


@dataclass(frozen=True)
class Rows:
    """A public synthetic table in cells, as the gate takes it."""

    codes: NDArray[np.int64]
    label: NDArray[np.int64]
    person: NDArray[np.int64]
    time: Floats | None = None

    def plus(self, other: Rows) -> Rows:
        time = None
        if self.time is not None and other.time is not None:
            time = np.concatenate([self.time, other.time])
        return Rows(
            np.concatenate([self.codes, other.codes]), np.concatenate([self.label, other.label]),
            np.concatenate([self.person, other.person]), time,
        )  # fmt: skip

    def only(self, rows: NDArray[np.bool_]) -> Rows:
        return Rows(
            self.codes[rows], self.label[rows], self.person[rows], None if self.time is None else self.time[rows]
        )


@dataclass(frozen=True)
class Setting:
    """What is public about a table: everything but the rows."""

    cells: tuple[Cells, ...]
    objective: Objective
    plan: Plan
    budget: Budget

    @classmethod
    def of(cls, schema: Schema, objective: Objective, epsilon: float, delta: float) -> Setting:
        plan = Plan.of(len(schema.columns), survival=isinstance(objective, PiecewiseExponential))
        return cls(public_cells(schema), objective, plan, plan.budget(epsilon, delta))

    def arguments(self, rows: Rows) -> dict[str, Any]:
        return {
            "codes": rows.codes, "sizes": [cell.size for cell in self.cells], "label": rows.label,
            "names": [cell.column.name for cell in self.cells], "objective": self.objective, "budget": self.budget,
            "time": rows.time, "person": rows.person, "rows_per_person": CAP,
        }  # fmt: skip


def neighbouring(name: str, seed: int) -> tuple[Rows, Rows]:
    """(everybody else, the canary). Positives lie high on the marker; nobody is at site C."""
    rng = np.random.default_rng([seed, 0xA0D17])
    marker, site = rng.integers(0, 4, ROWS), rng.integers(0, 2, ROWS)
    label = (rng.random(ROWS) < np.array([0.05, 0.2, 0.6, 0.95])[marker]).astype(np.int64)
    if name == ALONE:
        label[:] = 0
    time = None
    if name == EARLY:  # nearly all are followed to the end
        time = np.where(label == 1, rng.uniform(3.0, 5.0, ROWS), 5.0)
    others = Rows(np.column_stack([marker, site]), label, np.arange(ROWS), time)
    count = EXTRA if name == MANY else 1
    cell, outcome = {
        OUTLIER: ((3, 1), 0), UNSEEN: ((1, 2), 1), ALONE: ((0, 0), 1), MANY: ((0, 0), 1), EARLY: ((0, 0), 1),
    }[name]  # fmt: skip
    canary = Rows(
        np.tile(np.array(cell, np.int64), (count, 1)), np.full(count, outcome), np.full(count, ROWS),
        np.full(count, 0.1) if name == EARLY else None,
    )  # fmt: skip
    return others, canary


@dataclass(frozen=True)
class Seen:
    """One answer as it left the gate, in grid units, beside what it would be without noise in either world."""

    answer: Floats
    without: Floats
    with_: Floats
    cost: float  # μ
    place: NDArray[np.int64] | None  # one column: the cell of each of its public cells, after merging

    @property
    def moved(self) -> Floats:
        return self.with_ - self.without

    def losses(self) -> Floats:
        """Privacy loss of each coordinate, positive where "with" is likelier."""
        loss = (self.answer - (self.without + self.with_) / 2) * self.moved / noise.GRID**2
        touched = self.moved != 0
        loss[touched & (self.answer == self.with_)] = CERTAIN
        loss[touched & (self.answer == self.without)] = -CERTAIN
        return loss


class _Bare(PrivateTable):
    """Auditor's double of the gate over the auditor's own public rows: tells exact sums, draws and enters nothing."""

    exact: NDArray[np.int64]

    def _gaussian(
        self, query: str, columns: tuple[int, ...], cells: int, mu: float, spread: float,
        sums: Callable[[float], NDArray[np.int64]],
    ) -> Floats:  # fmt: skip
        self.exact = sums(noise.GRID * mu)
        return np.zeros(cells)


class Witness(PrivateTable):
    """The gate as it is, with an attacker at its mouth who knows both worlds and follows the public steps in each."""

    def __init__(self, rows: Rows, worlds: tuple[Rows, Rows], setting: Setting, ledger: Ledger) -> None:
        super().__init__(**setting.arguments(rows), ledger=ledger)
        self.worlds = tuple(_Bare(**setting.arguments(world), ledger=Ledger()) for world in worlds)
        self.seen: list[Seen] = []
        self._place = {column: np.arange(cell.size) for column, cell in enumerate(setting.cells)}
        self._last: tuple[Floats, float] = (np.zeros(0), 0.0)

    def shift(self, columns: tuple[int, ...], table: NDArray[Any]) -> None:
        super().shift(columns, table)
        for world in self.worlds:
            world.shift(columns, table)

    def bins(self, columns: tuple[int, ...] | int, merge: NDArray[Any]) -> None:
        super().bins(columns, merge)
        for world in self.worlds:
            world.bins(columns, merge)
        column = columns if isinstance(columns, int) else int(np.ravel(columns)[0])
        self._place[column] = np.asarray(merge)[self._place[column]]

    def histogram(self, columns: tuple[int, ...], *, by: By = "label", mu: float) -> Floats:
        answer = super().histogram(columns, by=by, mu=mu)
        self._watch(columns, lambda world: world.histogram(columns, by=by, mu=mu))
        return answer

    def sums(self, columns: tuple[int, ...], *, mu: float) -> tuple[Floats, Floats]:
        answer = super().sums(columns, mu=mu)
        self._watch(columns, lambda world: world.sums(columns, mu=mu))
        return answer

    def hazard(self, *, mu: float) -> tuple[Floats, Floats]:
        answer = super().hazard(mu=mu)
        self._watch((), lambda world: world.hazard(mu=mu))
        return answer

    def _gaussian(
        self, query: str, columns: tuple[int, ...], cells: int, mu: float, spread: float,
        sums: Callable[[float], NDArray[np.int64]],
    ) -> Floats:  # fmt: skip
        answer = super()._gaussian(query, columns, cells, mu, spread, sums)
        self._last = (np.rint(answer * (noise.GRID * mu * MARGIN)), mu)
        return answer

    def _watch(self, columns: tuple[int, ...], ask: Callable[[_Bare], Any]) -> None:
        for world in self.worlds:
            if world.objective != self.objective:  # a public step, too
                world.objective = self.objective
            ask(world)
        without, with_ = (world.exact.astype(np.float64) for world in self.worlds)
        place = self._place[columns[0]].copy() if len(columns) == 1 else None
        self.seen.append(Seen(*self._last[:1], without, with_, self._last[1], place))

    def unrecorded(self) -> int:
        """Answers that left the gate and are not in the ledger as they left it."""
        kept = [self.ledger.kept(number) for number in range(len(self.ledger.events))]
        lost = len(self.seen) - len(kept)
        pairs = zip(self.seen, kept, strict=False)
        return max(lost, 0) + sum(k is None or not np.array_equal(seen.answer, k) for seen, k in pairs)


@dataclass
class _Checks:
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
        found = []
        if self.unrecorded:
            found.append(f"LEDGER: {self.unrecorded} answers left the gate and are not in the ledger.")
        if self.too_far > 1:
            found.append(f"SENSITIVITY: one person moved a sum by {self.too_far:.3g} times what was paid for.")
        if (most := max(self.claims.values(), default=0.0)) > self.epsilon:
            found.append(f"BUDGET: the ledger adds up to ε = {most:.4g} (end-to-end), asked {self.epsilon:g}.")
        return tuple(found)


def _audit_private(
    chosen: Sequence[str], epsilon: float, delta: float, runs: int, canaries: int, seed: int, tell: Callable[[], None]
) -> tuple[list[_Draft], tuple[str, ...]]:
    checks = _Checks(epsilon, delta)
    drafts: list[_Draft] = []
    for name in chosen:
        if name == CHOICE:
            drafts.append(_choices(epsilon, delta, runs, tell))
            continue
        setting = Setting.of(SCHEMA, FOLLOW_UP if name == EARLY else Logistic(), epsilon, delta)
        others, canary = neighbouring(name, seed)
        worlds = (others, others.plus(canary))
        member = _coins(runs)
        loss, moved, claim = np.zeros(runs), np.zeros(runs), math.inf
        for run in range(runs):
            table = Witness(worlds[int(member[run])], worlds, setting, Ledger())
            fit_private(table, setting.cells, setting.plan)
            loss[run] = sum(float(seen.losses().sum()) for seen in table.seen)
            moved[run] = math.sqrt(sum(float(seen.moved @ seen.moved) for seen in table.seen)) / noise.GRID
            for seen in table.seen:
                far = math.sqrt(float(seen.moved @ seen.moved)) / (noise.GRID * seen.cost)
                checks.too_far = max(checks.too_far, far)
            checks.unrecorded += table.unrecorded()
            claim = min(claim, checks.claim(table.ledger))
            tell()
        reach = st.epsilon_of_mu(float(np.sqrt(np.mean(moved**2))), delta)
        drafts += _many_runs(name, loss, member, claim, delta, "private", reach=reach, known=st.Cut(0.0))
    if canaries:
        drafts.append(_one_private_run(epsilon, delta, canaries, seed, checks, tell))
    return drafts, checks.problems()


def _choices(epsilon: float, delta: float, runs: int, tell: Callable[[], None]) -> _Draft:
    """One pick between two columns that are level without the canary, who lifts one score by 1 and lowers the other.

    Public shifts by `side` bring all gradients to ±1. In `first` each side has a cell of its own, and so has it in
    `second`, but there the canary is in the other side's cell. The claim is the ε₀ of the pick, not the whole budget.
    """
    budget = Budget.calibrate(epsilon=epsilon, delta=delta, picks=1, pick_share=PICK_SHARE)
    side = np.repeat([0, 1], 10)
    others = Rows(np.column_stack([side, side, side]), side, np.arange(20))  # side 0: g = 1, side 1: g = −1
    canary = Rows(np.array([[0, 0, 1]]), np.array([0]), np.array([20]))
    worlds = (others, others.plus(canary))
    member = _coins(runs)
    lifted, claim = np.zeros(runs), math.inf
    for run in range(runs):
        world, ledger = worlds[int(member[run])], Ledger()
        table = PrivateTable(
            world.codes, [2, 2, 2], world.label, names=["side", "first", "second"], objective=Logistic(),
            budget=budget, ledger=ledger, person=world.person,
        )  # fmt: skip
        table.shift((0,), np.array([SCORE_MAX, -SCORE_MAX]))
        lifted[run] = float(table.choose(1, columns=(1, 2))[0] == 1)
        claim = min(claim, math.fsum(event.cost * event.picks for event in ledger.events))
        tell()
    counts = st.Cut(0.5).count(lifted, member)
    fpr, fnr = counts.intervals(CONFIDENCE)
    finding = Finding(
        CHOICE, "ε₀ of one pick, bounded range", runs, st.by_range(counts, delta, CONFIDENCE), CONFIDENCE, claim,
        GUARANTEE["private"], False, 0.0, budget.pick_epsilon, fpr, fnr,
    )  # fmt: skip
    return _Draft(finding, lambda level: st.by_range(counts, delta, level))


def _many_runs(
    name: str, statistic: Floats, member: NDArray[np.bool_], claim: float, delta: float, mechanism: Mechanism, *,
    reach: float | None = None, known: st.Cut | None = None, pilot: float = 0.5,
) -> list[_Draft]:  # fmt: skip
    """Findings from one statistic: thresholds from the first runs, error rates from the rest.

    A threshold that is `known` beforehand needs no pilot: all runs count. Only `private` is held to a Gaussian claim.
    """
    first = np.arange(len(member)) < max(10, int(pilot * len(member)))
    gaussian = mechanism == "private"

    def cut(value: Callable[[Floats, Floats], Floats]) -> st.Counts:
        return st.best_cut(statistic[first], member[first], value, CONFIDENCE).count(statistic[~first], member[~first])

    rates = cut(partial(st.epsilon_of_rates, delta=delta))
    game = known.count(statistic, member) if known else cut(lambda fpr, fnr: 1 - (fpr + fnr) / 2)
    attacks: list[tuple[str, st.Counts, Callable[[st.Counts, float, float], float]]] = [
        ("threshold, (ε, δ)", rates, st.by_rates),
        *([("threshold, Gaussian", cut(st.mu_of_rates), st.by_gaussian_rates)] if gaussian else []),
        ("coin game, Gaussian", game, st.by_gaussian_game)
        if gaussian
        else ("coin game, (ε, δ)", game, st.by_coin_game),
    ]
    drafts = []
    for attack, counts, bound in attacks:
        fpr, fnr = counts.intervals(CONFIDENCE)
        finding = Finding(
            name, attack, counts.runs, bound(counts, delta, CONFIDENCE), CONFIDENCE, claim, GUARANTEE[mechanism],
            False, 0.0, reach, fpr, fnr,
        )  # fmt: skip
        drafts.append(_Draft(finding, partial(lambda level, b, c: b(c, delta, level), b=bound, c=counts)))
    return drafts


def _one_run(
    score: Floats, member: NDArray[np.bool_], guesses: int, claim: float, delta: float, mechanism: Mechanism
) -> _Draft:
    """Guess on the surest canaries: in where the score is above 0."""
    surest = np.argsort(-np.abs(score), kind="stable")[:guesses]
    right = int(((score[surest] > 0) == member[surest]).sum())
    bound = partial(st.one_run_bound, canaries=len(member), guesses=guesses, right=right, delta=delta)
    finding = Finding(
        f"{len(member)} canaries", f"one run, {right} right", guesses, bound(confidence=CONFIDENCE), CONFIDENCE, claim,
        GUARANTEE[mechanism], False, 0.0,
    )  # fmt: skip
    return _Draft(finding, lambda level: bound(confidence=level))


def _one_private_run(
    epsilon: float, delta: float, canaries: int, seed: int, checks: _Checks, tell: Callable[[], None]
) -> _Draft:
    """Canary k is alone with known rows in category k of both columns, so that no other canary's coin disturbs it."""
    rng = np.random.default_rng([seed, 0x0E])
    scores: list[Floats] = []
    members: list[NDArray[np.bool_]] = []
    claim = math.inf
    while (left := canaries - sum(map(len, scores))) > 0:
        count = min(PER_TABLE, left)
        names = tuple(f"c{k}" for k in range(max(count, 2)))
        schema = Schema(tuple(Column(name, "categorical", categories=names) for name in ("first", "second")))
        setting = Setting.of(schema, Logistic(), epsilon, delta)
        # so many known rows that no category is thin enough to be merged with another
        each = 50 + math.ceil(6 / setting.plan.histogram_cost(setting.budget))
        code = np.repeat(np.arange(len(names)), each)
        label = (rng.random(len(code)) < 0.38).astype(np.int64)  # where a positive moves the sums the most
        others = Rows(np.column_stack([code, code]), label, np.arange(len(code)))
        own = np.arange(count)
        every = Rows(np.column_stack([own, own]), np.ones(count, np.int64), len(code) + own)
        member = _coins(count)
        table = Witness(others.plus(every.only(member)), (others, others.plus(every)), setting, Ledger())
        fit_private(table, setting.cells, setting.plan)
        checks.unrecorded += table.unrecorded()
        claim = min(claim, checks.claim(table.ledger))
        scores.append(sum((_of_canaries(seen, count) for seen in table.seen), np.zeros(count)))
        members.append(member)
        tell()
    guesses = st.planned_guesses(canaries, gaussian_mu(epsilon, delta), delta, CONFIDENCE)
    return _one_run(np.concatenate(scores), np.concatenate(members), guesses, claim, delta, "private")


def _of_canaries(seen: Seen, count: int) -> Floats:
    """(count,) privacy loss of each canary in one answer; those in one merged cell share its loss."""
    if seen.place is None:  # not asked by column: nothing in it is one canary's own
        return np.zeros(count)
    place = seen.place[:count]
    size = int(seen.place.max()) + 1
    by_cell = seen.losses().reshape(-1, size).sum(0)
    return by_cell[place] / np.bincount(place, minlength=size)[place]


# ---- published: what is released -----------------------------------------------------------------------------

PUBLISHED_ROWS = 200
PUBLISHED_TRAIN, PUBLISHED_VALID = 140, 170
IPC, STEPS = 40, 10
PILOT = 0.1  # its runs are slow and its statistics far apart: few runs find the threshold
MANY_IPC = 1000


def _audit_published(
    chosen: Sequence[str], epsilon: float, delta: float, runs: int, canaries: int, seed: int, threads: int,
    tell: Callable[[], None],
) -> list[_Draft]:  # fmt: skip
    drafts: list[_Draft] = []
    for name in chosen:
        others, canary = _patients(name, seed)
        worlds = [
            _PublishedWorld.of(t, epsilon, delta, seed, threads, IPC) for t in (others, pd.concat([others, canary]))
        ]
        member = _coins(runs)
        noiseless = [world.release(noise=False) for world in worlds]
        statistic = np.zeros(runs)
        for run in range(runs):
            statistic[run] = _nearer(worlds[int(member[run])].release(), *noiseless)
            tell()
        drafts += _many_runs(name, statistic, member, epsilon, delta, "published", pilot=PILOT)
    if canaries:
        drafts.append(_one_published_run(epsilon, delta, canaries, seed, threads))
        tell()
    return drafts


def _patients(name: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(everybody else, the canary), in original units; the last rows are for validation and test."""
    rng = np.random.default_rng([seed, 0xA0D18])
    marker = rng.uniform(0, 10, PUBLISHED_ROWS)
    case = (rng.random(PUBLISHED_ROWS) < 1 / (1 + np.exp(6 - marker))).astype(int)
    if name == ALONE:
        case[:PUBLISHED_TRAIN] = 0
    others = pd.DataFrame({"marker": marker, "site": rng.choice(["A", "B"], PUBLISHED_ROWS), "case": case})
    own = {OUTLIER: (100.0, "B", 0), UNSEEN: (5.0, "C", 1), ALONE: (1.0, "A", 1)}[name]
    return others, pd.DataFrame([own], columns=list(others.columns))


def _nearer(released: pd.DataFrame, without: pd.DataFrame, with_: pd.DataFrame) -> float:
    """How much nearer a released table lies to what the method makes *with* the canary when no noise is added.

    Start, seeds and everybody else are known, so both noiseless tables are. A category that one of them cannot have
    settles the matter.
    """
    if set(released["site"]) - set(without["site"]):
        return CERTAIN
    far = [
        float(((released["marker"] - table["marker"]) ** 2).sum() + (released["site"] != table["site"]).sum())
        for table in (without, with_)
    ]
    return far[0] - far[1]


@dataclass(frozen=True)
class _PublishedWorld:
    """The published method on one table; the canary, appended, is a training row: seeds are public."""

    cohort: Cohort
    split: Split
    settings: Settings
    threads: int

    @classmethod
    def of(
        cls, table: pd.DataFrame, epsilon: float, delta: float, seed: int, threads: int, ipc: int,
        sites: tuple[str, ...] = ("A", "B", "C"),
    ) -> _PublishedWorld:  # fmt: skip
        schema = Schema(
            (
                Column("marker", "continuous", low=0.0, high=100.0),
                Column("site", "categorical", categories=sites),
                Column("case", "binary", categories=(0, 1)),
            )
        )
        cohort = Cohort.from_frame(table.reset_index(drop=True), schema=schema, target="case")
        row = np.arange(len(table))
        train = (row < PUBLISHED_TRAIN) | (row >= PUBLISHED_ROWS)
        valid = (row >= PUBLISHED_TRAIN) & (row < PUBLISHED_VALID)
        split = Split(row[train], row[valid], row[~train & ~valid])
        # what `epsilon=` would do, once instead of in every run
        rate = min(1.0, 2 * ipc / int(train.sum()))
        sigma = _noise(epsilon, delta, rate)
        settings = Settings(
            mechanism="published", ipc=ipc, sigma_base=sigma, delta=delta, steps=STEPS, evaluate_every=STEPS, seed=seed
        )
        return cls(cohort, split, settings, threads)

    def release(self, *, noise: bool = True) -> pd.DataFrame:
        settings = self.settings if noise else replace(self.settings, mechanism="none", sigma_base=None)
        with LocalExecutor(self.threads) as executor:
            made = condense_published(
                self.cohort, self.split, settings, reference="xgb", threads=self.threads, executor=executor
            )
        return made.codec.decode(made.rows).assign(case=made.outcome.label)


@lru_cache(maxsize=8)
def _noise(epsilon: float, delta: float, rate: float) -> float:
    return calibrate(epsilon=epsilon, delta=delta, sampling_rate=rate, steps=STEPS)


def _one_published_run(epsilon: float, delta: float, canaries: int, seed: int, threads: int) -> _Draft:
    """Each canary has a site of its own; a released row from there gives it away. Few enough guesses to be sure of."""
    rng = np.random.default_rng([seed, 0x0F])
    others, _ = _patients(OUTLIER, seed)
    others["site"] = "A"
    sites = np.array([f"c{k}" for k in range(canaries)])
    every = pd.DataFrame({"marker": rng.uniform(0, 10, canaries), "site": sites, "case": rng.integers(0, 2, canaries)})
    member = _coins(canaries)
    world = _PublishedWorld.of(
        pd.concat([others, every[member]]), epsilon, delta, seed, threads, MANY_IPC, ("A", *sites.tolist())
    )
    released = world.release()["site"].value_counts()
    score = np.array([float(released.get(site, 0)) for site in sites])
    return _one_run(score, member, int(0.4 * canaries), epsilon, delta, "published")
