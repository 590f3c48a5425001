"""`Privacy`: what may be said about a condensed set, and how. No ε leaves without its guarantee."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Guarantee = Literal["end-to-end", "as-published", "none"]


@dataclass(frozen=True)
class Privacy:
    """The privacy side of a result. `epsilon` belongs to `guarantee`; read them together or not at all."""

    guarantee: Guarantee
    mechanism: str
    epsilon: float | None  # at the released step
    delta: float | None
    epsilon_at_last_step: float | None  # the run went on to here, and its history was looked at
    worst_case_epsilon: str  # end to end, of the same noise: a number, "over 100" or "none"
    neighbouring: str
    noise_source: str
    parameters: dict[str, Any] = field(default_factory=dict)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    schema_origin: str = "declared"

    def short(self) -> str:
        """One phrase for a table or a progress line."""
        if self.epsilon is None:
            return "no privacy guarantee"
        claim = f"ε = {self.epsilon:.3g} ({self.guarantee}, δ = {self.delta:g})"
        return f"{claim}; end to end at worst: {self.worst_case_epsilon}"

    def paragraph(self) -> str:
        """What a data-protection officer should read."""
        if self.guarantee == "none":
            return (
                "NO PRIVACY GUARANTEE. This table was optimised against a model of real patients without any noise. "
                "Treat it as patient data: do not hand it over."
            )
        text = (
            f"guarantee: {self.guarantee}. Under the accounting of the published method the released step has "
            f"ε = {self.epsilon:.4g} at δ = {self.delta:g} (ε = {self.epsilon_at_last_step:.4g} at the last step, both "
            "as-published). That accounting holds only if the reference model is public and one patient changes each "
            "step's gradient by at most the clipping norm; neither is true here. End to end, the worst case of the "
            f"same noise is an ε of {self.worst_case_epsilon}. Not counted in either: the choice of noise levels and "
            "of the clipping norm, the stopping step, scaling by training means, and the range of the labels. This "
            "is a reproduction of a paper, not a theorem about patients."
        )
        if self.schema_origin == "inferred":
            text += " The schema was inferred from the patients: bounds and categories are not public knowledge."
        return text

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "statement": self.paragraph()}
