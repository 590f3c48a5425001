"""The settings of the published method; defaults are the paper's where it gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from distcondense.errors import SettingsError
from distcondense.methods.base import Options, one_by_one, option
from distcondense.methods.gate_options import DELTA_MOST
from distcondense.methods.zero_order import PATHS

# Thakur et al. 2026 §4.7 prints these; K, C, the number of steps and how often to validate it does not print. Rows are
# real numbers there ("all attributes are represented as continuous values", §4.6), not legal values.
AS_PRINTED: Mapping[str, Any] = {
    "learning_rate": 0.001,
    "beta1": 0.9,
    "beta2": 0.999,
    "rho": 0.1,
    "perturbation": (0.025, 2.0),
    "positive_share": 0.5,
    "early_stopping": True,
    "patience": 0,
    "soft": True,
}


@dataclass(frozen=True, kw_only=True)
class PublishedOptions(Options):
    """The settings of the published method (Thakur et al. 2026): noise, loss, optimiser and early stopping.

    Exactly one of `epsilon` (σ_base is chosen for the planned steps) and `sigma_base` starts the noise; both together
    mean: this noise, and stop at the last step the budget pays for. `noise=False` adds none, and takes neither.
    """

    guarantee: ClassVar[str] = "as-published"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"as-printed": AS_PRINTED}
    preset: str | None = option(
        None,
        "as-printed: what the paper prints, where our default differs; what is said beside it stands.",
        typical="say as-printed, or leave it out",
    )
    epsilon: float | None = option(
        None, "Budget, as-published; or say --sigma-base.", typical="typical values are 0.5 to 5"
    )
    delta: float = option(1e-5, "δ of the budget.")
    noise: bool = option(True, "Add noise; without it there is no privacy at all.")
    reference: Any = option(  # noqa: RUF009 (a field like the others)
        None, "The model condensed against: xgb, logistic, svm, cox, aft, … of the outcome's kind. May be repeated."
    )
    link: str | None = option(None, "What a given model's scores are: probability, log-risk or log-time.", cli=False)
    positive_share: float = option(0.5, "Share of positives (events) among the synthetic rows.")
    sigma_base: float | None = option(
        None,
        "Noise level; with --epsilon the run stops when the budget is spent.",
        typical="typical values are 2 to 20, or say --epsilon",
    )
    clip: float | None = option(  # the paper gives no C
        None,
        "Clipping norm C; a quarter of the first gradient's median row norm if not said.",
        typical="leave it out: it is then chosen from the first gradient",
    )
    steps: int = option(1000, "Planned steps.")
    # The paper's 0.001 moves a row by less than one standard deviation in 1,000 steps; under noise nothing is learned
    # (benchmarks/ablation.py measures both), so the default is larger.
    learning_rate: float = option(0.05, "Adam's rate.")
    beta1: float = option(0.9, "Adam's β₁.")
    beta2: float = option(0.999, "Adam's β₂.")
    rho: float = option(0.1, "The match loss's share of the loss; 0 switches it off.")
    perturbation: tuple[float, float] = option(
        (0.025, 2.0), "Range of the finite-difference steps, in standard deviations."
    )
    strata: int = option(4, "Quantile strata of the event times, plus one for the censored.")
    evaluate_every: int | None = option(None, "Steps between evaluations on validation.")
    early_stopping: bool = option(True, "Release the best step on validation, not the last.")
    patience: int = option(0, "Stop after this many evaluations without a better score; 0: never.")
    soft: bool = option(False, "Release raw numbers instead of legal values.")
    path: str = option("auto", f"Way of the Jacobian: {', '.join(PATHS)}.")
    noise_key: int | None = option(  # whoever knows it can subtract the noise
        None, "Makes the noise repeatable, for tests and studies.", cli=False, identity=False
    )

    @property
    def against(self) -> tuple[Any, ...]:
        """What is condensed against, one by one: names and models; empty: the kind's default."""
        return one_by_one(self.reference)

    def to_dict(self) -> dict[str, Any]:
        """One reference is the same run, however it is said."""
        names = [name if isinstance(name, str) else type(name).__name__ for name in self.against]
        return {**super().to_dict(), "reference": names if len(names) > 1 else next(iter(names), None)}

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        names = [one for one in self.against if isinstance(one, str)]
        if (self.reference is not None and not self.against) or len(set(names)) < len(names):
            yield self.wrong("reference", "must name at least one, and none twice", ", ".join(names) or "nothing")
        yield from self.need(
            self.preset is None or self.preset in self.presets, "preset", f"must be one of {', '.join(self.presets)}"
        )
        yield from self.need(
            self.epsilon is None or 0 < self.epsilon < float("inf"), "epsilon", "must be above 0 and finite"
        )
        for name in ("sigma_base", "clip"):  # beyond, rows overflow float32 or the account is a number nobody can write
            value = getattr(self, name)
            yield from self.need(value is None or 1e-6 <= value <= 1e6, name, "must be above 0, from 1e-6 to 1e6")
        yield from self.need(0 < self.positive_share < 1, "positive_share", "must be in (0, 1)")
        yield from self.need(0 < self.delta < 1, "delta", "must be in (0, 1)")
        yield from self.need(not DELTA_MOST < self.delta < 1, "delta", f"must be at most {DELTA_MOST}")
        yield from self.need(1 <= self.steps < 2**32, "steps", "must be in [1, 2**32)")
        yield from self.need(0 < self.learning_rate <= 1e3, "learning_rate", "must be above 0, and at most 1000")
        yield from self.need(0 <= self.beta1 < 1, "beta1", "must be in [0, 1)")
        yield from self.need(0 <= self.beta2 < 1, "beta2", "must be in [0, 1)")
        yield from self.need(0 <= self.rho < 1, "rho", "must be in [0, 1)")
        low, high = self.perturbation
        yield from self.need(1e-6 <= low <= high <= 1e6, "perturbation", "must be a range from 1e-6 to 1e6")
        yield from self.need(1 <= self.strata <= 1000, "strata", "must be in [1, 1000]")
        yield from self.need(
            self.evaluate_every is None or self.evaluate_every >= 1, "evaluate_every", "must be at least 1"
        )
        yield from self.need(self.patience >= 0, "patience", "must be at least 0")
        yield from self.need(self.path in PATHS, "path", f"must be one of {', '.join(PATHS)}")
        if self.noise and self.epsilon is None and self.sigma_base is None:
            yield SettingsError(
                "method published",
                "needs a budget or a noise level",
                found="neither",
                fix="say --epsilon 2.5 (as-published) or --sigma-base 8",
            )
        if not self.noise and (self.epsilon is not None or self.sigma_base is not None):
            yield SettingsError(
                "method published",
                "without noise takes neither epsilon nor sigma_base",
                found="one of them",
                fix="leave out --no-noise",
            )

    def every(self, columns: int) -> int:
        """Steps between evaluations for this many encoded columns: a student of a wide table is slow to train."""
        return self.evaluate_every or (200 if columns > 500 else 50)

    @property
    def rows(self) -> int:
        """m = 2·IPC."""
        return 2 * self.ipc

    @property
    def positives(self) -> int:
        return min(max(round(self.rows * self.positive_share), 1), self.rows - 1)
