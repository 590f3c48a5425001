"""Every knob of a condensation, checked all at once. Names are full; defaults are the paper's where it gives them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from distcondense.errors import SettingsError

Mechanism = Literal["private", "published", "none"]
DEFAULT_EPSILON = 1.0  # of `private`, end to end
PUBLISHED_ONLY = (
    "positive_share", "sigma_base", "clip", "steps", "learning_rate", "beta1", "beta2", "rho", "perturbation", "strata",
    "evaluate_every", "early_stopping", "patience", "soft",
)  # fmt: skip
TYPICAL = {  # fixes for what has no default
    "mechanism": "leave it out for the default, private",
    "epsilon": "typical values are 0.5 to 5",
    "sigma_base": "typical values are 2 to 20, or say --epsilon instead",
    "clip": "leave it out: it is then chosen from the first gradient",
    "horizon": "the length of follow-up by design, in the unit of the time column",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run is made of; two runs with equal settings on equal data are the same run.

    `private` takes the fields up to `trust_inferred_schema`; `published` and `none` those after them. In `published`
    exactly one of `epsilon` (σ_base is chosen for the planned steps) and `sigma_base` starts the noise; both together
    mean: this noise, and stop at the last step the budget pays for.
    """

    mechanism: Mechanism = "private"
    ipc: int = 100  # synthetic records per class (survival: per event status)
    epsilon: float | None = None  # private: end-to-end, 1 if not said; published: as-published
    delta: float = 1e-5
    seed: int = 0  # of everything but the privacy noise
    rows_per_person: int = 5  # private, where rows name their person: rows beyond this many are not read
    holdout: float = 0.2  # private: share of persons left out of the fit, to measure on; 0: nobody
    horizon: float | None = None  # private, survival: the public end of follow-up; None: the schema's bound of the time
    trust_inferred_schema: bool = False  # private: take bounds and categories read off patients as public
    positive_share: float = 0.5  # of the synthetic rows
    sigma_base: float | None = None
    clip: float | None = None  # C; None: a quarter of the median row norm of the first gradient (the paper gives no C)
    steps: int = 1000
    # The paper's 0.001 moves a row by less than one standard deviation in 1,000 steps; under noise nothing is learned
    # (benchmarks/ablation.py measures both), so the default is larger.
    learning_rate: float = 0.05
    beta1: float = 0.9
    beta2: float = 0.999
    rho: float = 0.1  # the match loss's share; 0 switches it off
    perturbation: tuple[float, float] = (0.025, 2.0)
    strata: int = 4  # quantile strata of the event times, plus one for the censored
    evaluate_every: int | None = None  # None: 50 steps, 200 on tables of more than 500 encoded columns
    early_stopping: bool = True
    patience: int = 0  # evaluations without a better score before the run stops; 0: never stop early
    soft: bool = False  # release raw numbers instead of legal values

    def __post_init__(self) -> None:
        if self.mechanism == "private" and self.epsilon is None:
            object.__setattr__(self, "epsilon", DEFAULT_EPSILON)
        problems = list(self._problems())
        if len(problems) == 1:
            raise problems[0]
        if problems:
            raise SettingsError("settings", "must be legal", found="".join(f"\n  - {p}" for p in problems))

    def _problems(self) -> list[SettingsError]:
        found: list[SettingsError] = []

        def need(good: bool, name: str, rule: str, value: Any) -> None:
            if not good:
                default = getattr(type(self), name, None)
                fix = TYPICAL.get(name) or (f"leave it out for the default, {default}" if default is not None else "")
                found.append(SettingsError(name, rule, found=str(value), fix=fix))

        need(
            self.mechanism in get_args(Mechanism),
            "mechanism",
            f"must be one of {', '.join(get_args(Mechanism))}",
            repr(self.mechanism),
        )
        need(self.ipc >= 1, "ipc", "must be at least 1", self.ipc)
        need(0 < self.positive_share < 1, "positive_share", "must be in (0, 1)", self.positive_share)
        need(
            self.epsilon is None or 0 < self.epsilon < float("inf"),
            "epsilon",
            "must be above 0 and finite",
            self.epsilon,
        )
        need(0 < self.delta < 1, "delta", "must be in (0, 1)", self.delta)
        need(
            self.sigma_base is None or 0 < self.sigma_base < float("inf"),
            "sigma_base",
            "must be above 0 and finite",
            self.sigma_base,
        )
        need(self.clip is None or 0 < self.clip < float("inf"), "clip", "must be above 0 and finite", self.clip)
        need(1 <= self.steps < 2**32, "steps", "must be at least 1", self.steps)
        need(0 < self.learning_rate < float("inf"), "learning_rate", "must be above 0 and finite", self.learning_rate)
        need(0 <= self.beta1 < 1 and 0 <= self.beta2 < 1, "beta1, beta2", "must be in [0, 1)", (self.beta1, self.beta2))
        need(0 <= self.rho < 1, "rho", "must be in [0, 1)", self.rho)
        low, high = self.perturbation
        need(0 < low <= high < float("inf"), "perturbation", "must be a finite range above 0", self.perturbation)
        need(self.strata >= 1, "strata", "must be at least 1", self.strata)
        need(
            self.evaluate_every is None or self.evaluate_every >= 1,
            "evaluate_every",
            "must be at least 1",
            self.evaluate_every,
        )
        need(self.patience >= 0, "patience", "must be at least 0", self.patience)
        need(0 <= self.seed < 2**63, "seed", "must be in [0, 2**63)", self.seed)
        need(1 <= self.rows_per_person <= 2**16, "rows_per_person", "must be in [1, 65536]", self.rows_per_person)
        need(0 <= self.holdout < 1, "holdout", "must be in [0, 1)", self.holdout)
        need(
            self.horizon is None or 0 < self.horizon < float("inf"),
            "horizon",
            "must be above 0 and finite",
            self.horizon,
        )
        if self.mechanism == "private":
            need(not self.delta > 0.01, "delta", "of an end-to-end guarantee must be at most 0.01", self.delta)
            foreign = [n for n in PUBLISHED_ONLY if getattr(self, n) != getattr(type(self), n)]
            if foreign:
                found.append(
                    SettingsError(
                        "mechanism private",
                        "takes no settings of the published loop",
                        found=", ".join(foreign),
                        fix="leave them out, or say --mechanism published",
                    )
                )
        if self.mechanism == "published" and self.epsilon is None and self.sigma_base is None:
            found.append(
                SettingsError(
                    "mechanism published",
                    "needs a budget or a noise level",
                    found="neither",
                    fix="say --epsilon 2.5 (as-published) or --sigma-base 8",
                )
            )
        if self.mechanism == "none" and (self.epsilon is not None or self.sigma_base is not None):
            found.append(
                SettingsError(
                    "mechanism none",
                    "adds no noise, so it takes neither epsilon nor sigma_base",
                    found="one of them",
                    fix="use mechanism published",
                )
            )
        return found

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

    def to_dict(self) -> dict[str, Any]:
        """For run.json, where ε stands beside its guarantee like everywhere."""
        fields = {**asdict(self), "perturbation": list(self.perturbation)}
        epsilon = "epsilon_end_to_end" if self.mechanism == "private" else "epsilon_as_published"
        return {epsilon if name == "epsilon" else name: value for name, value in fields.items()}
