"""The settings of PSyGenTAB; defaults are PSyGenTAB's where it gives them (§IV-B: P_min, epochs, batch)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from distcondense.errors import SettingsError
from distcondense.methods.base import Options, option

if TYPE_CHECKING:
    from distcondense.methods.private.options import PrivateOptions

NETWORK, PRIVATE = SAMPLERS = ("network", "private")
SAMPLING, TRAINING, OFF = REGIMES = ("sampling", "training", "off")
OF_PRIVATE = (
    "epsilon",
    "delta",
    "rows_per_person",
    "holdout",
    "horizon",
    "trust_inferred_schema",
    "categories_checked",
)
OF_NETWORK = ("epochs", "batch", "learning_rate", "hidden", "cells", "balance")
OF_TRAINING = ("columnwise", "likelihood", "multiplier", "penalty", "growth")


@dataclass(frozen=True, kw_only=True)
class PsygentabOptions(Options):
    """The settings of PSyGenTAB: the sampler, where P ≥ P_min is enforced, and the augmented Lagrangian.

    With sampler `network` there is no guarantee and no ε; with `private` the budget is that of the private method.
    Settings of the sampler that is not used are refused, so that nobody believes in them.
    """

    guarantee: ClassVar[str] = "none"
    sampler: str = option(
        NETWORK, "Psygentab: what rows are drawn from: network (trained on patients, NO guarantee) or private."
    )
    regime: str = option(
        SAMPLING,
        "Psygentab: where P ≥ P_min is sought: sampling (a search over temperature and top-p, as in the authors' "
        "program), training (their Algorithm 1, which costs utility; network only) or off.",
    )
    p_min: float = option(0.8, "Psygentab: P_min, the least score of distances; it is no privacy guarantee.")
    rounds: int = option(3, "Psygentab, regime sampling: rounds over all temperatures and top-p.")
    columnwise: bool = option(False, "Psygentab, regime training: a multiplier for every column beside the table's.")
    likelihood: float = option(1.0, "Psygentab, regime training: weight of the likelihood among the parts of U.")
    multiplier: float = option(0.0, "Psygentab, regime training: λ at the start.")
    penalty: float = option(1.0, "Psygentab, regime training: μ at the start.")
    growth: float = option(1.1, "Psygentab, regime training: α, by which μ grows while P is below P_min.")
    epochs: int = option(50, "Psygentab, network: epochs of training, at most.")
    batch: int = option(128, "Psygentab, network: rows of a mini-batch.")
    # the paper's 2e-4 is for a pre-trained transformer's size; a network this small learns little by it in 50 epochs
    learning_rate: float = option(0.003, "Adam's rate.")
    hidden: int = option(128, "Psygentab, network: units of each of its two layers.")
    cells: int = option(32, "Psygentab, network: public cells of a number, at most.")
    balance: bool = option(True, "Psygentab, network: as many rows of each class; else as common as among patients.")
    reference: str | None = option(None, "The model that the rows are for: xgb, cox, aft, … of the outcome's kind.")
    epsilon: float | None = option(
        None, "Budget of sampler private, end-to-end.", typical="typical values are 0.5 to 5"
    )
    delta: float = option(1e-5, "δ of the budget.")
    rows_per_person: int = option(5, "Rows of one person beyond this many are not read.")
    holdout: float = option(0.2, "Share of persons left out of the fit, to measure on; 0: nobody.")
    horizon: float | None = option(
        None,
        "Survival: public end of follow-up, if the schema does not say.",
        typical="the length of follow-up by design, in the unit of the time column",
    )
    trust_inferred_schema: bool = option(
        False, "Take bounds and categories off the patients; the guarantee is then called conditional."
    )
    categories_checked: tuple[str, ...] = option(
        (),
        "Column whose categories look like identifiers and were checked to be none. May be repeated.",
        typical="a list of columns",
    )

    @property
    def promise(self) -> str:
        """The network's rows come of patients without noise; the private sampler's are covered by its budget."""
        return self.guarantee if self.sampler == NETWORK else self.private.promise

    @property
    def at_training(self) -> bool:
        return self.regime == TRAINING

    @property
    def at_sampling(self) -> bool:
        return self.regime == SAMPLING

    @cached_property
    def private(self) -> PrivateOptions:
        """The settings of the private method that this run's sampler is."""
        from distcondense.methods.private.options import PrivateOptions

        said = {name: getattr(self, name) for name in (*OF_PRIVATE, "ipc", "seed", "reference")}
        return PrivateOptions(**{**said, "epsilon": 1.0 if self.epsilon is None else self.epsilon})

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        yield from self.need(self.sampler in SAMPLERS, "sampler", f"must be one of {', '.join(SAMPLERS)}")
        yield from self.need(self.regime in REGIMES, "regime", f"must be one of {', '.join(REGIMES)}")
        yield from self.need(0 <= self.p_min <= 1, "p_min", "must be in [0, 1]")
        yield from self.need(0 <= self.multiplier < float("inf"), "multiplier", "must be at least 0 and finite")
        yield from self.need(0 < self.penalty < float("inf"), "penalty", "must be above 0 and finite")
        yield from self.need(0 < self.likelihood <= 1e6, "likelihood", "must be above 0, and at most 1e6")
        yield from self.need(1 < self.growth < float("inf"), "growth", "must be above 1 and finite")
        yield from self.need(0 < self.learning_rate <= 1e3, "learning_rate", "must be above 0, and at most 1000")
        for name in ("rounds", "epochs", "batch", "hidden"):
            yield from self.need(1 <= getattr(self, name) < 2**31, name, "must be in [1, 2**31)")
        yield from self.need(2 <= self.cells <= 128, "cells", "must be in [2, 128]")
        if self.sampler == NETWORK:
            yield from self._others(
                OF_PRIVATE,
                "is for sampler private: rows of a network that patients trained have no guarantee",
                f"say --sampler {PRIVATE}, or leave it out",
            )
        elif self.sampler == PRIVATE:
            yield from self._others(
                OF_NETWORK, "is for sampler network: the private sampler is not trained", "leave it out"
            )
            if self.regime == TRAINING:
                yield self.wrong("regime", f"of sampler {PRIVATE} must be {SAMPLING} or {OFF}", self.regime)
            try:
                _ = self.private
            except SettingsError as error:
                yield error

        if self.regime != TRAINING:
            yield from self._others(OF_TRAINING, f"is for regime {TRAINING}", "leave it out", f"regime {self.regime}")
        if self.regime != SAMPLING:
            yield from self._others(("rounds",), f"is for regime {SAMPLING}", "leave it out", f"regime {self.regime}")

    def _others(self, names: tuple[str, ...], rule: str, fix: str, found: str = "") -> Iterator[SettingsError]:
        """Settings that were said and mean nothing here."""
        for name in names:
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                yield SettingsError(name, rule, found=found or f"sampler {self.sampler}", fix=fix)

    def to_dict(self) -> dict[str, Any]:
        """Without the settings of the sampler that is not used: they say nothing about the run."""
        found, unused = super().to_dict(), OF_PRIVATE if self.sampler == NETWORK else OF_NETWORK
        own = {name: value for name, value in found.items() if name not in unused and not name.startswith("epsilon_")}
        if self.sampler == NETWORK:
            return own
        return {**own, f"epsilon_{self.promise.replace('-', '_')}": self.private.epsilon}
