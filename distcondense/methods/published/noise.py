"""In words, what the noise of eqs. (12–14) does: before a run what cannot hold together, after it what happened."""

from __future__ import annotations

import math
from typing import Any

from distcondense.kernels.update import NoiseRule
from distcondense.methods.zero_order.engine import NoiseTally, State
from distcondense.privacy.statement import rounded_up
from distcondense.privacy.steps import LOWEST_RUNG, StepAccountant, in_words

EVIDENCE = 2.0  # √steps/σ below which noise wins: measured on SEER and GBSG2, see docs/methods/published.md


def adapts(noise: NoiseRule) -> bool:
    """Whether a row can be on any rung but the lowest: its clipped signal is at most C, the next rung 0.5 σ_base·C."""
    return 2 * LOWEST_RUNG * noise.sigma_base <= 1


def evidence(noise: NoiseRule, steps: int) -> float:
    """What all steps say together of a row's direction, in units of their noise on the lowest rung: √steps/σ."""
    return math.sqrt(steps) / (LOWEST_RUNG * noise.sigma_base)


def beforehand(noise: NoiseRule, accountant: StepAccountant, steps: int, epsilon: float | None) -> str:
    """One line before the first step: σ, whether eq. 13 can adapt, and what its SNR ≥ 1 would leave of ε."""
    sigma = LOWEST_RUNG * noise.sigma_base
    words = f"noise: σ_base = {noise.sigma_base:.3g}, at least {sigma:.3g}·C for each of {steps:,} steps"
    words += f"; together a row's gradient is at most {evidence(noise, steps):.2g} times its noise"
    if adapts(noise):
        return f"{words}; rows with a large gradient take more (eq. 13)"
    words += (
        "; eq. 13 is inert here: with σ_base above 2 every row is on the lowest rung, whatever its gradient. "
        f"Signal to noise is at most {1 / sigma:.2g}, where the paper asks for at least 1"
    )
    if epsilon is None or sigma <= 1:
        return words
    one, fit = _cost(accountant, 1), accountant.affordable(1.0, epsilon, steps)
    return (
        f"{words}: then σ ≤ C, one step costs ε = {rounded_up(one, 3)} (as-published), and {epsilon:g} pays for "
        f"{'none' if fit == 0 else f'{fit:,}'} of {steps:,}"
    )


def too_loud(noise: NoiseRule, accountant: StepAccountant, steps: int) -> str:
    """A warning where so much noise leaves rows that teach less than random real ones; "" where it need not."""
    found = evidence(noise, steps)
    if found >= EVIDENCE:
        return ""
    return (
        f"the noise of this ε is louder than the method: over {steps:,} steps a row's gradient is {found:.2g} times "
        f"its noise, and below {EVIDENCE:g} models of the rows were worse than models of as many random real rows on "
        f"SEER and GBSG2. What counts is the share of training rows drawn in a step, {accountant.sampling_rate:.2g} "
        "here: fewer rows of each class or a larger ε help, or method private"
    )


def afterwards(state: State, accountant: StepAccountant, sigma_base: float) -> str:
    """One line after the last step: rungs, signal to noise, and ε as published and end to end."""
    found, released, last = facts(state.tally), state.best_epsilon or 0.0, accountant.epsilon()
    rungs = ", ".join(f"{rung}·σ_base by {share:.1%}" for rung, share in found["rungs"].items())
    return (
        f"noise: σ_i was {rungs} of {state.tally.rows:,} row steps (σ_base = {sigma_base:.3g}); signal to noise "
        f"{found['mean_signal_to_noise']:.2g} on average, at least 1 in {found['share_at_least_1']:.1%}; "
        f"ε = {rounded_up(released, 3)} (as-published) at released step {state.best_step:,}, "
        f"ε = {rounded_up(last, 3)} (as-published) at last step {accountant.steps:,}; "
        f"end to end at worst: {in_words(accountant.worst_case())}"
    )


def facts(tally: NoiseTally) -> dict[str, Any]:
    """The same for run.json."""
    rows = max(tally.rows, 1)
    return {
        "rungs": {f"{LOWEST_RUNG * (k + 1):g}": count / rows for k, count in enumerate(tally.rungs) if count},
        "mean_signal_to_noise": tally.signal / rows,
        "share_at_least_1": tally.clear / rows,
    }


def _cost(accountant: StepAccountant, steps: int) -> float:
    return StepAccountant(accountant.sampling_rate, accountant.delta, accountant.rows, ledger=[(1.0, steps)]).epsilon()
