"""The settings of clustmix. Where the paper tunes a number on the training rows and gives none, the default is ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

from distcondense.errors import SettingsError, brief
from distcondense.methods.base import Options, option
from distcondense.methods.gate_options import DELTA_MOST

PAPER, THEOREM = VARIANTS = ("paper", "theorem")
OF_PAPER, OF_THEOREM = ("slices",), ("parts", "rows_per_person", "holdout", "trust_inferred_schema")
EPSILON_MOST = 100  # e^ε has 44 digits; far beyond it there is no second accountant to check a statement with


@dataclass(frozen=True, kw_only=True)
class ClustMixOptions(Options):
    """The settings of clustmix (3A). `ipc` is the most clusters, and so rows, of a class.

    `variant` decides what `epsilon` means: as-published for `paper`, end-to-end for `theorem`. Settings of the variant
    that is not used are refused, so that nobody believes in them.
    """

    guarantee: ClassVar[str] = "as-published"
    variant: str = option(
        PAPER, "clustmix as in the paper (paper: ε as-published), or over a public partition (theorem: ε end-to-end)."
    )
    epsilon: float = option(1.0, "Budget of the chosen variant's guarantee.", typical="typical values are 0.5 to 5")
    delta: float = option(1e-5, "δ of the budget; the paper's 1/N would tell the number of patients.")
    sigma_max: float | None = option(
        None,
        "Most noise of a row, as a share of each column's range, hence least rows of a cluster (eq. 7); tried "
        "out if not said.",
        typical="typical values are 0.05 to 0.5",
    )
    slices: int = option(4, "Variant paper: slices of the rows along one column, each with clusters of its own.")
    alpha: float = option(
        0.5,
        "Weight of staying at the clusters' means while they are adapted (eq. 5); 1: stay. As printed it is held "
        "against a sum over rows, so that it says little unless it is very near 1.",
    )
    adapt_steps: int = option(60, "Steps of Adam that adapt the means (eq. 5); 0: none.")
    adapt_rate: float = option(0.01, "Adam's rate, in standard deviations.")
    layers: int = option(1, "Hidden layers of the network whose tangent kernel adapts the means.")
    ridge: float = option(1e-6, "λ of eq. 4, as a share of the kernel's mean diagonal.")
    parts: int = option(  # known before anybody is read, so a guess at the rows is public or is not made
        64,
        "Variant theorem: parts that persons fall into by a keyed hash; about one for each 100 rows of the rarest "
        "class, by what is publicly known.",
    )
    rows_per_person: int = option(5, "Rows of one person beyond this many are not read.")
    holdout: float = option(0.2, "Share of persons left out of the fit, to measure on; 0: nobody.")
    trust_inferred_schema: bool = option(
        False, "Take bounds and categories off the patients; the guarantee is then called conditional."
    )

    @property
    def promise(self) -> str:
        if self.variant != THEOREM:
            return self.guarantee
        return "conditional" if self.trust_inferred_schema else "end-to-end"

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        yield from self.need(self.variant in VARIANTS, "variant", f"must be one of {', '.join(VARIANTS)}")
        yield from self.need(0 < self.epsilon <= EPSILON_MOST, "epsilon", f"must be above 0 and at most {EPSILON_MOST}")
        yield from self.need(0 < self.delta < 1, "delta", "must be in (0, 1)")
        if self.variant == THEOREM:
            rule = f"of an end-to-end guarantee must be at most {DELTA_MOST}"
            yield from self.need(not DELTA_MOST < self.delta < 1, "delta", rule)
        yield from self.need(
            self.sigma_max is None or 0 < self.sigma_max < float("inf"), "sigma_max", "must be above 0 and finite"
        )
        yield from self.need(1 <= self.slices <= 2**10, "slices", "must be in [1, 1024]")
        yield from self.need(0 <= self.alpha <= 1, "alpha", "must be in [0, 1]")
        yield from self.need(0 <= self.adapt_steps < 2**31, "adapt_steps", "must be 0 or more")
        yield from self.need(0 < self.adapt_rate <= 1e3, "adapt_rate", "must be above 0, and at most 1000")
        yield from self.need(1 <= self.layers <= 10, "layers", "must be in [1, 10]")
        yield from self.need(0 < self.ridge < float("inf"), "ridge", "must be above 0 and finite")
        yield from self.need(2 <= self.parts <= 2**10, "parts", "must be in [2, 1024]")
        yield from self.need(1 <= self.rows_per_person <= 2**16, "rows_per_person", "must be in [1, 65536]")
        yield from self.need(0 <= self.holdout < 1, "holdout", "must be in [0, 1)")
        other = {PAPER: OF_THEOREM, THEOREM: OF_PAPER}.get(self.variant, ())
        default = {entry.name: entry.default for entry in fields(self)}
        for name in other:
            if getattr(self, name) != default[name]:
                yield SettingsError(
                    name, f"is not for variant {self.variant}", found=brief(getattr(self, name)), fix="leave it out"
                )
