"""The settings of dp-geng; defaults are the paper's (Appendix G) where they make sense on tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distcondense.errors import SettingsError
from distcondense.methods.base import option
from distcondense.methods.gate_options import GateOptions

GENERATED, NOISE = STARTS = ("generated", "noise")
HEAD, ALL = SCOPES = ("head", "all")
PRIVATE, TAB_PE, MARGINALS = GENERATORS = ("private", "tab-pe", "marginals")


@dataclass(frozen=True, kw_only=True)
class DpGengOptions(GateOptions):
    """The settings of dp-geng (DP-GENG): the budget and its three parts, networks and distillation.

    Of the budget's μ² the generator gets `generator_share`, the expert `expert_share` and feature matching the rest
    (eq. 8). A part that is switched off gets nothing, and the others share what it would have had.
    """

    generator: str = option(
        PRIVATE,
        "dp-geng: what draws the generated rows, the private method's sampler, Tab-PE (private evolution) or "
        "marginals (a histogram of every column by class).",
    )
    # the paper searches both shares by scores on patients, which nobody pays for; ours were set once, on public tables
    generator_share: float = option(0.6, "dp-geng: share of μ² that the generator gets.")
    expert_share: float = option(0.15, "dp-geng: share of μ² that fine-tuning the expert gets.")
    start: str = option(GENERATED, "dp-geng: where rows start, generated (the paper's DP-Init) or noise.")
    matching: bool = option(True, "dp-geng: match features of patients (the paper's DP-FM).")
    expert: bool = option(True, "dp-geng: align rows by an expert (the paper's DP-EG).")
    generated: int = option(20_000, "dp-geng: rows that the generator draws.")  # the paper: 50,000 images
    extractors: int = option(20, "dp-geng: number of feature extractors.")
    extractor_epochs: int = option(30, "dp-geng: epochs of each extractor on generated rows.")
    expert_epochs: int = option(100, "dp-geng: epochs of the expert on generated rows.")
    expert_steps: int = option(20, "dp-geng: noisy gradients that the expert is fine-tuned by.")
    # on tables a noise of √(number of weights) drowns the gradient of a whole network: few weights are fine-tuned
    fine_tune: str = option(HEAD, "dp-geng: what of the expert is fine-tuned, its head or all of it.")
    expert_rate: float = option(0.5, "dp-geng: step of the expert's fine-tuning.")
    iterations: int = option(2000, "dp-geng: distillation steps.")
    class_batch: int = option(128, "dp-geng: rows of a class looked at in one step.")
    rate: float = option(5e-3, "dp-geng: step η_F of feature matching.")
    guide_rate: float = option(5e-3, "dp-geng: step η_E of the expert's guidance.")
    units: int = option(64, "dp-geng: width of the networks' first layer.")
    features: int = option(32, "dp-geng: width of the networks' second layer, the features.")

    @property
    def shares(self) -> tuple[float, float, float]:
        """Of μ²: generator, matching, expert; what a part that is switched off would have had, the others share."""
        parts = (
            self.generator_share,
            (1 - self.generator_share - self.expert_share) * self.matching,
            self.expert_share * self.expert,
        )
        return parts[0] / sum(parts), parts[1] / sum(parts), parts[2] / sum(parts)

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        for name in ("generator_share", "expert_share"):
            yield from self.need(0 < getattr(self, name) < 1, name, "must be in (0, 1)")
        yield from self.need(
            self.generator_share + self.expert_share < 1, "expert_share", "must leave a share for feature matching"
        )
        yield from self.need(self.generator in GENERATORS, "generator", f"must be one of {', '.join(GENERATORS)}")
        yield from self.need(self.start in STARTS, "start", f"must be one of {', '.join(STARTS)}")
        yield from self.need(self.fine_tune in SCOPES, "fine_tune", f"must be one of {', '.join(SCOPES)}")
        yield from self.need(100 <= self.generated <= 10**6, "generated", "must be in [100, 10**6]")
        for name, most in (("extractors", 200), ("units", 1024), ("features", 1024), ("class_batch", 2**20)):
            yield from self.need(1 <= getattr(self, name) <= most, name, f"must be in [1, {most}]")
        for name in ("extractor_epochs", "expert_epochs", "expert_steps", "iterations"):
            yield from self.need(1 <= getattr(self, name) <= 10**6, name, "must be in [1, 10**6]")
        for name in ("expert_rate", "rate", "guide_rate"):
            yield from self.need(0 < getattr(self, name) <= 1e3, name, "must be above 0, and at most 1000")
