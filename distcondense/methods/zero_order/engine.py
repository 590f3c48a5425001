"""The loop of Thakur et al. 2026 §4.2–4.4, readable as its algorithm box:

    repeat: f ← reference(X);  ∂ℓ/∂f analytic;  ∂f/∂X by finite differences with fresh steps ε_j;
            G ← ∂ℓ/∂f · ∂f/∂X;  clip each row to C;  add N(0, σ_i²C²I);  X ← Adam(X, G)
            every few steps: train a student on X, score it on validation, keep the best X

Several references may be used at once: ℓ is then the mean of their losses, each in units of its own first value.
Without noise no account is kept.

Randomness is counter-based: every number is a function of (key, stream, step, row, column), so neither sharding nor a
restart can change a result. Two keys: the seed's, for everything that may be repeated, and the noise key.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from distcondense import kernels
from distcondense.arrays import Floats, Index, Matrix
from distcondense.cluster.executors import Executor
from distcondense.errors import BudgetError
from distcondense.kernels.random import bits, uniforms
from distcondense.kernels.update import RUNGS, AdamState, NoiseRule, row_norms
from distcondense.methods.base import Progress
from distcondense.methods.zero_order.objectives import Valued
from distcondense.models.base import Model
from distcondense.privacy.steps import LOWEST_RUNG, StepAccountant
from distcondense.runs.checkpoint import Checkpoint

PERTURB_STREAM, START_STREAM, DRAW_STREAM, LABEL_STREAM = 1, 2, 3, 4
CHECKPOINT_SECONDS = 5.0  # at most this much work is lost, and a step; the first step is always kept
CHECKPOINT_SHARE = 20  # seconds of work to each second of writing, where a state is large


def seed_key(seed: int) -> int:
    """A 64-bit key from a user's seed."""
    return int.from_bytes(hashlib.sha256(f"distcondense {seed}".encode()).digest()[:8], "little")


def draws(key: int, step: int, stratum: int, count: int, population: int) -> Index:
    """`count` row numbers below `population`, with replacement, for one stratum of one step."""
    words = bits(key, DRAW_STREAM, step, stratum, (1, count))[0].astype(np.uint64)
    return ((words * np.uint64(population)) >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True)
class RealScores:
    """Scores of the real training rows by stratum: all the loop ever sees of patients."""

    by_stratum: tuple[Floats, ...]
    counts: tuple[int, ...]  # synthetic rows per stratum, the number drawn

    def means(self, key: int, step: int) -> Floats:
        """Mean score of an equal number of real rows drawn afresh, per stratum; NaN where there are none."""
        out = np.full(len(self.by_stratum), np.nan)
        for k, (scores, count) in enumerate(zip(self.by_stratum, self.counts, strict=True)):
            if len(scores) and count:
                out[k] = scores[draws(key, step, k, count, len(scores))].mean()
        return out


LossOfScores = Callable[[Floats, Floats], Valued]  # scores of the synthetic rows, real means by stratum → loss, slope


@dataclass(frozen=True)
class ReferenceLoss:
    """One reference, and what its scores of the rows should be."""

    models: tuple[Model, ...]  # of one score each: f is (m,), or (m, S) where a reference has S of them
    objective: LossOfScores
    real: RealScores
    weight: float = 1.0  # of its loss

    def scores(self, X: Matrix, threads: int) -> Floats:
        parts = [_scores(model, X, threads) for model in self.models]
        return parts[0] if len(parts) == 1 else np.stack(parts, axis=1)

    def loss(self, X: Matrix, key: int, step: int, threads: int) -> tuple[float, Floats]:
        """The loss and ∂ℓ/∂f, (m, S)."""
        loss, slope = self.objective(self.scores(X, threads), self.real.means(key, step))
        return self.weight * loss, self.weight * slope.reshape(len(X), -1)


def in_units_of_the_start(
    references: Sequence[ReferenceLoss], start: Matrix, key: int, threads: int
) -> tuple[ReferenceLoss, ...]:
    """Several losses as one, 1/K Σ ℓ_k(X)/ℓ_k(X₀): each in units of its first value, so that none drowns the others."""
    if len(references) < 2:
        return tuple(references)
    first = [reference.loss(start, key, 0, threads)[0] for reference in references]
    return tuple(
        replace(reference, weight=1 / (len(references) * max(loss, 1e-12)))
        for reference, loss in zip(references, first, strict=True)
    )


@dataclass(frozen=True)
class Problem:
    """What is optimised."""

    references: tuple[ReferenceLoss, ...]
    start: Matrix  # (m, d)
    noise: NoiseRule

    @property
    def models(self) -> tuple[Model, ...]:
        """All that a Jacobian is needed of, in order."""
        return tuple(model for reference in self.references for model in reference.models)


class Loop(Protocol):
    """The settings of a loop: a method's options, or what it makes of them."""

    @property
    def seed(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def epsilon(self) -> float | None: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def beta1(self) -> float: ...
    @property
    def beta2(self) -> float: ...
    @property
    def perturbation(self) -> tuple[float, float]: ...
    @property
    def early_stopping(self) -> bool: ...
    @property
    def patience(self) -> int: ...

    def every(self, columns: int) -> int:
        """Steps between evaluations."""
        ...


@dataclass
class NoiseTally:
    """What the ladder of eq. 13 did so far: rows times steps by rung, and how loud their gradients were."""

    rungs: list[int] = field(default_factory=lambda: [0] * RUNGS)
    signal: float = 0.0  # sum of min(‖g_i‖, C)/(σ_i C)
    clear: int = 0  # how often that was at least 1, which the paper asks for

    @property
    def rows(self) -> int:
        return sum(self.rungs)

    def enter(self, norms: Matrix, sigmas: Matrix, noise: NoiseRule) -> None:
        """Count the rows of one step, by their norms before clipping."""
        rung = np.rint(sigmas / (LOWEST_RUNG * noise.sigma_base)).astype(np.int64) - 1
        for k, count in enumerate(np.bincount(rung, minlength=RUNGS)):
            self.rungs[k] += int(count)
        ratio = np.minimum(norms, noise.clip) / (sigmas * noise.clip)
        self.signal += float(ratio.sum(dtype=np.float64))
        self.clear += int((ratio >= 1).sum())


@dataclass
class State:
    """Where the loop stands; everything a restart needs."""

    X: Matrix
    adam: AdamState
    noise_key: int
    step: int = 0
    best_X: Matrix | None = None
    best_step: int = 0
    best_score: float = -np.inf
    best_epsilon: float | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    stale: int = 0  # evaluations since the best one
    stopped: str = ""
    key_given: bool = False  # the caller knows the noise key
    tally: NoiseTally = field(default_factory=NoiseTally)
    begun_at: int = 0  # the step this process began with

    def save(self, checkpoint: Checkpoint, ledger: list[tuple[float, int]]) -> None:
        arrays = {"X": self.X, "m": self.adam.m, "v": self.adam.v}
        if self.best_X is not None:
            arrays["best_X"] = self.best_X
        facts = {
            name: getattr(self, name)
            for name in ("step", "best_step", "best_epsilon", "history", "stale", "stopped", "key_given")
        }
        facts |= {"noise_key": str(self.noise_key), "best_score": float(self.best_score), "ledger": ledger}
        facts["tally"] = asdict(self.tally)
        checkpoint.save(arrays, facts)

    @classmethod
    def load(cls, checkpoint: Checkpoint) -> tuple[State, list[tuple[float, int]]] | None:
        found = checkpoint.load()
        if found is None:
            return None
        arrays, facts = found
        ledger = [(float(a), int(b)) for a, b in facts.pop("ledger")]
        key, tally = int(facts.pop("noise_key")), NoiseTally(**facts.pop("tally", {}))
        moments = AdamState(arrays["m"], arrays["v"], facts["step"])
        return cls(arrays["X"], moments, key, best_X=arrays.get("best_X"), tally=tally, **facts), ledger


def optimise(
    problem: Problem,
    options: Loop,
    *,
    validate: Callable[[Matrix], float],
    executors: Sequence[Executor],
    noise_key: int = 0,
    accountant: StepAccountant | None = None,
    key_given: bool = False,
    threads: int = 1,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
) -> State:
    """Run the loop to its end, from the checkpoint if it holds one. `executors` are open, one for each model.

    `accountant` may be left out where no noise is added.
    """
    noisy = problem.noise.sigma_base > 0
    accountant = StepAccountant(1.0, 0.5, len(problem.start)) if accountant is None and not noisy else accountant
    assert accountant is not None
    state = State(problem.start.copy(), AdamState.zeros(problem.start.shape), noise_key, key_given=key_given)
    restored = State.load(checkpoint) if checkpoint else None
    if restored:
        state, accountant.ledger[:] = restored
        state.begun_at = state.step
    key = seed_key(options.seed)
    credit = _credit(problem, options, accountant, state.step) if noisy else options.steps
    if noisy and credit == 0 and state.step == 0:
        raise BudgetError(
            "epsilon",
            "must pay for at least one step at this noise",
            found=f"{options.epsilon}",
            fix="raise --epsilon or --sigma-base",
        )
    epsilon = state.history[-1]["epsilon_as_published"] if state.history else None
    score = state.history[-1]["score"] if state.history else None
    next_save = 0.0
    began = time.monotonic()
    every = options.every(problem.start.shape[1])

    while state.step < options.steps and not state.stopped:
        if noisy and credit == 0:
            credit = _credit(problem, options, accountant, state.step)
            if credit == 0:
                state.stopped = "budget"
                break
        loss, norms, sigmas = _step(problem, options, state, key, threads, executors)
        if noisy:
            accountant.spend(float(sigmas.min()))
            state.tally.enter(norms, sigmas, problem.noise)
            credit -= 1
        state.step += 1
        last = state.step == options.steps or (
            noisy and credit == 0 and _credit(problem, options, accountant, state.step) == 0
        )
        if state.step % every == 0 or last:
            score = validate(state.X)
            epsilon = accountant.epsilon() if noisy else None
            _remember(state, options, loss, score, epsilon)
        if checkpoint and time.monotonic() >= next_save:
            before = time.monotonic()
            if accountant.record is not None:  # first: a state must never be known without its cost
                accountant.record.write()
            state.save(checkpoint, accountant.ledger)
            took = time.monotonic() - before
            next_save = before + took + max(CHECKPOINT_SECONDS, CHECKPOINT_SHARE * took)
        for executor in executors:
            executor.report(
                steps_per_second=(state.step - state.begun_at) / (time.monotonic() - began),
                epsilon=accountant.epsilon if noisy else None,
                guarantee="as-published",
            )
        if progress:
            progress(step=state.step, steps=options.steps, loss=loss, score=score, epsilon=epsilon)
    state.stopped = state.stopped or "planned steps done"
    if accountant.record is not None:
        accountant.record.write()
    return state


def gradient(
    problem: Problem, options: Loop, X: Matrix, key: int, step: int, threads: int, executors: Sequence[Executor]
) -> tuple[Matrix, float]:
    """(6, 7) ∂ℓ/∂X at one step, before clipping, and the loss."""
    loss, slopes, widths = _slopes(problem, options, X, key, step, threads)
    parts = []
    for executor, slope in zip(executors, slopes.T, strict=True):
        parts.append(executor.jacobian(X, widths))
        parts[-1] *= slope[:, None]
    G = parts[0]
    for part in parts[1:]:
        G += part
    return G, loss


def widths_of(options: Loop, key: int, step: int, columns: int) -> Matrix:
    """This step's finite-difference widths ε_j, (d,) float32."""
    low, high = options.perturbation
    widths = low + (high - low) * uniforms(key, PERTURB_STREAM, step, 0, (1, columns))[0]
    return widths.astype(np.float32)


def _scores(model: Model, X: Matrix, threads: int) -> Floats:
    trees = getattr(model, "ensemble", None)
    scores = model.scores(X) if trees is None else kernels.scores(trees, X, threads)
    return scores.astype(np.float64)


def _slopes(
    problem: Problem, options: Loop, X: Matrix, key: int, step: int, threads: int
) -> tuple[float, Matrix, Matrix]:
    """The loss, ∂ℓ/∂f (m, models) and this step's finite-difference widths ε_j (d,)."""
    losses, slopes = zip(*(reference.loss(X, key, step, threads) for reference in problem.references), strict=True)
    slope = np.concatenate(slopes, axis=1).astype(np.float32)
    return float(sum(losses)), slope, widths_of(options, key, step, X.shape[1])


def _step(
    problem: Problem, options: Loop, state: State, key: int, threads: int, executors: Sequence[Executor]
) -> tuple[float, Matrix, Matrix]:
    """One update in place; the loss before it, and of each row the gradient's norm and the noise multiplier."""
    X, step, noise, betas = state.X, state.step, problem.noise, (options.beta1, options.beta2)
    trees = getattr(problem.models[0], "ensemble", None)
    if len(executors) == 1 and trees is not None and executors[0].fuses:
        loss, slopes, widths = _slopes(problem, options, X, key, step, threads)
        norms, sigmas = kernels.fused_step(
            trees,
            X,
            slopes[:, 0],
            widths,
            state.adam,
            noise,
            options.learning_rate,
            betas,
            state.noise_key,
            step,
            0,
            threads,
        )
    else:
        G, loss = gradient(problem, options, X, key, step, threads, executors)
        sigmas = noise.sigmas(row_norms(G))
        norms = kernels.clip_and_noise(G, noise.clip, sigmas, state.noise_key, step, 0, threads)
        kernels.adam(X, G, state.adam, options.learning_rate, *betas, threads)
    return loss, norms, sigmas


def _credit(problem: Problem, options: Loop, accountant: StepAccountant, step: int) -> int:
    """How many more steps are sure to be within the budget, were each as costly as a step can be."""
    left = options.steps - step
    if options.epsilon is None or left == 0:
        return left
    # float32, as the kernel rounds the rung it uses: a multiplier in the ledger equals this one to the bit
    lowest = float(np.float32(LOWEST_RUNG * problem.noise.sigma_base))
    return accountant.affordable(lowest, options.epsilon, left)


def _remember(state: State, options: Loop, loss: float, score: float, epsilon: float | None) -> None:
    """Enter an evaluation into the history; keep X if it is the best (or simply the newest, without early stopping)."""
    state.history.append({"step": state.step, "loss": loss, "score": score, "epsilon_as_published": epsilon})
    if np.isnan(score):  # the student could not be fitted: never better than one that could
        score = -np.inf
    if score > state.best_score or not options.early_stopping or state.best_X is None:
        state.best_X, state.best_step, state.best_score, state.best_epsilon = state.X.copy(), state.step, score, epsilon
        state.stale = 0
    else:
        state.stale += 1
        if options.patience and state.stale >= options.patience:
            state.stopped = "patience"
