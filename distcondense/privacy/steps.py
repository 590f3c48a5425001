"""Accounting of Thakur et al. 2026 §4.4, and what the same noise is worth end to end.

*As published*: RDP of a Poisson-subsampled Gaussian at rate q = m/n with the smallest σ_i of each step. It would be
sound if the reference model were public and one patient could change a step's gradient by at most C.

*Worst case*: neither holds. The reference model was fitted to the patients without noise and is used at every step, so
nothing is subsampled; and one patient can move all m clipped rows at once, each by up to 2C: sensitivity 2C√m. Steps
with noise σ_t·C then compose to a Gaussian mechanism with μ² = Σ_t (2√m/σ_t)². Even this does not count the choice of
σ_i, the stopping step, the scaling and the labels' range, all of which also read patients.
"""

from __future__ import annotations

import copy
import json
import math
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from distcondense.errors import BudgetError, RunFolderError, os_errors
from distcondense.outside import OutsideError, parse_json, read_text
from distcondense.privacy.budget import check_budget
from distcondense.privacy.dp_library import dp_accounting
from distcondense.privacy.ledger import sync_folder

WHY = (
    "That accounting holds only if the reference model is public and one patient changes each step's gradient by at "
    "most the clipping norm; neither is true here.",
    "Not counted in it, nor in the worst case: the choice of noise levels and of the clipping norm, the stopping step, "
    "scaling by training means, and the range of the labels.",
)
WHY_WITHOUT_NOISE = ("This table was optimised against a model of real patients without any noise.",)
WORST_CASE_SHOWN = 100.0  # above this a digit would only pretend to mean something
LOWEST_RUNG = 0.25  # σ_i ≥ 0.25·σ_base (eq. 13)


class StepRecord:
    """The noise multiplier of every step, on disk before any state that came of it.

    Append-only. A run killed after the record was written and before its checkpoint was does those steps again, with
    the same key and hence the same noise; should one come out otherwise, it costs what it cost at its dearest.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[int, float] = {}
        self._fresh: list[str] = []
        self._torn = False
        if os.path.lexists(path):
            text = read_text(path, "step record", RunFolderError)
            self._torn = bool(text) and not text.endswith("\n")  # killed while writing: nothing came of that line
            for line in text.split("\n")[:-1]:
                try:
                    entry = parse_json(line)
                except OutsideError:  # a torn line that a later one was written behind
                    continue
                try:
                    self._keep(int(entry["step"]), float(entry["noise_multiplier"]))
                except (KeyError, TypeError, ValueError):
                    raise RunFolderError(
                        "step record",
                        "must hold a step and its noise on each line",
                        found="a line of another shape",
                        fix="start again with --force (its cost adds up)",
                    ) from None

    def enter(self, step: int, multiplier: float) -> float:
        """Note a step; the multiplier it is to be accounted with. On disk after the next `write`."""
        if self._known.get(step) != multiplier:
            self._fresh.append(json.dumps({"step": step, "noise_multiplier": multiplier}))
        return self._keep(step, multiplier)

    def write(self) -> None:
        if not self._fresh:
            return
        fresh = not self.path.exists()
        with (
            os_errors("step record", "must be writable", RunFolderError),
            open(self.path, "a", encoding="utf-8") as out,
        ):
            out.write("\n" * self._torn + "".join(f"{line}\n" for line in self._fresh))
            out.flush()
            os.fsync(out.fileno())
        if fresh:
            sync_folder(self.path.parent)
        self._fresh.clear()
        self._torn = False

    def _keep(self, step: int, multiplier: float) -> float:
        self._known[step] = min(multiplier, self._known.get(step, math.inf))
        return self._known[step]


@dataclass
class StepAccountant:
    """Counts noisy steps and says what they cost, in both ways."""

    sampling_rate: float  # q = m/n, at most 1
    delta: float
    rows: int  # m
    ledger: list[tuple[float, int]] = field(default_factory=list)  # (noise multiplier, steps), in order
    record: StepRecord | None = None  # the same on disk
    _rdp: Any = field(default=None, repr=False)
    _composed: int = 0  # steps already inside _rdp

    @property
    def steps(self) -> int:
        return sum(count for _, count in self.ledger)

    def spend(self, multiplier: float) -> None:
        """Enter one step, before its result is used."""
        if self.record is not None:
            multiplier = self.record.enter(self.steps, multiplier)
        if self.ledger and self.ledger[-1][0] == multiplier:
            self.ledger[-1] = (multiplier, self.ledger[-1][1] + 1)
        else:
            self.ledger.append((multiplier, 1))

    def epsilon(self) -> float:
        """ε as published, of all steps so far."""
        return _up(float(self._accountant().get_epsilon(self.delta)))

    def worst_case(self) -> float:
        """End-to-end ε of the same noise; inf where no noise was added."""
        if self.steps == 0:
            return 0.0
        if any(multiplier <= 0 for multiplier, _ in self.ledger):
            return math.inf
        mu = math.sqrt(sum(count * 4 * self.rows / multiplier**2 for multiplier, count in self.ledger))
        if mu > 15:  # ε > μ²/2 here: far over what is ever shown, and the root finder below would overflow
            return math.inf
        return _up(float(dp_accounting().get_epsilon_gaussian(1 / mu, self.delta)))

    def affordable(self, multiplier: float, budget: float, most: int) -> int:
        """How many more steps at this noise the budget pays for, at most `most`."""
        accountant = self._accountant()

        def cost(steps: int) -> float:
            trial = copy.deepcopy(accountant)
            trial.compose(self._event(multiplier), steps)
            return _up(float(trial.get_epsilon(self.delta)))

        if cost(most) <= budget:
            return most
        low, high = 0, most  # low is affordable, high is not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if cost(middle) <= budget else (low, middle)
        return low

    def _event(self, multiplier: float) -> Any:
        library = dp_accounting()
        return library.PoissonSampledDpEvent(self.sampling_rate, library.GaussianDpEvent(multiplier))

    def _accountant(self) -> Any:
        """The RDP accountant, brought up to date with what the ledger holds."""
        if self._rdp is None:
            self._rdp = dp_accounting().rdp.RdpAccountant()
        behind = self.steps - self._composed
        for multiplier, count in reversed(self.ledger):
            if behind == 0:
                break
            fresh = min(count, behind)
            self._rdp.compose(self._event(multiplier), fresh)
            behind -= fresh
        self._composed = self.steps
        return self._rdp


@lru_cache(maxsize=64)
def calibrate(*, epsilon: float, delta: float, sampling_rate: float, steps: int) -> float:
    """The smallest σ_base whose lowest rung keeps `steps` steps within ε as published, rounded to the safe side."""
    check_budget(epsilon=epsilon, delta=delta)
    library = dp_accounting()

    def event(multiplier: float) -> Any:
        gaussian = library.GaussianDpEvent(multiplier)
        return library.SelfComposedDpEvent(library.PoissonSampledDpEvent(sampling_rate, gaussian), steps)

    def cost(multiplier: float) -> float:
        return _up(float(library.rdp.RdpAccountant().compose(event(multiplier)).get_epsilon(delta)))

    guess = max(1.0, sampling_rate * math.sqrt(steps) / epsilon)
    try:
        multiplier = library.calibrate_dp_mechanism(
            library.rdp.RdpAccountant, event, epsilon, delta, library.LowerEndpointAndGuess(0.01, guess), tol=1e-4
        )
    except Exception as error:
        raise BudgetError(
            "epsilon",
            "must be reachable with some noise",
            found=f"{epsilon} for {steps} steps ({type(error).__name__})",
            fix="ask for fewer steps or a larger epsilon",
        ) from None
    while cost(multiplier) > epsilon:  # the search stops within a tolerance: step to the safe side of it
        multiplier *= 1.0005
    # the kernel holds σ in float32: round up to one, so that the noise drawn is never below the noise paid for
    return float(np.nextafter(np.float32(multiplier), np.float32(np.inf))) / LOWEST_RUNG


def in_words(epsilon: float) -> str:
    """An end-to-end worst case, without digits that mean nothing."""
    if epsilon > WORST_CASE_SHOWN:
        return f"over {WORST_CASE_SHOWN:.0f}"
    return f"{epsilon:.3g}"


def _up(epsilon: float) -> float:
    """Rounded up in the fourth decimal: a stated ε is never below the computed one."""
    return math.ceil(epsilon * 1e4) / 1e4
