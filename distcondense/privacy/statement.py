"""`Privacy`: what may be said about a condensed set, and how. No ε leaves without its guarantee."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from distcondense.privacy.accountant import Event

Guarantee = Literal["end-to-end", "as-published", "none"]


@dataclass(frozen=True)
class Privacy:
    """The privacy side of a result. `epsilon` belongs to `guarantee`; read them together or not at all."""

    guarantee: Guarantee
    mechanism: str
    epsilon: float | None  # end-to-end: of everything released; as-published: at the released step
    delta: float | None
    neighbouring: str
    noise_source: str
    parameters: dict[str, Any] = field(default_factory=dict)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    schema_origin: str = "declared"
    public: tuple[str, ...] = ()  # what the guarantee takes as known to everybody
    not_covered: tuple[str, ...] = ()
    answer: str = ""  # end-to-end: what to think of the release, where it holds no answer
    # f-DP: (false positives, least false negatives of any membership test), and the largest 1 − both
    trade_off: tuple[tuple[float, float], ...] = ()
    membership_advantage: float | None = None
    epsilon_with_earlier_runs: float | None = None  # end-to-end, of this run and those it replaced in its folder
    epsilon_at_last_step: float | None = None  # as-published: the run went on to here, and its history was looked at
    worst_case_epsilon: str = ""  # as-published: end to end, of the same noise: a number, "over 100" or "none"

    @property
    def events(self) -> tuple[Event, ...]:
        """The ledger of an end-to-end guarantee, for an accountant to read."""
        return tuple(Event.from_dict(entry) for entry in self.ledger)

    def short(self) -> str:
        """One phrase for a table or a progress line."""
        if self.epsilon is None:
            return "no privacy guarantee"
        claim = f"ε = {self.epsilon:.3g} ({self.guarantee}, δ = {self.delta:g})"
        return f"{claim}; end to end at worst: {self.worst_case_epsilon}" if self.worst_case_epsilon else claim

    def paragraph(self) -> str:
        """What a data-protection officer should read."""
        if self.guarantee == "none":
            return (
                "NO PRIVACY GUARANTEE. This table was optimised against a model of real patients without any noise. "
                "Treat it as patient data: do not hand it over."
            )
        text = self._end_to_end() if self.guarantee == "end-to-end" else self._as_published()
        if self.schema_origin == "inferred":
            text += " The schema was inferred from the patients: bounds and categories are not public knowledge."
        return text

    def _end_to_end(self) -> str:
        text = (
            f"guarantee: end-to-end differential privacy, ε = {self.epsilon:.4g} at δ = {self.delta:g}, for every "
            f"person in the table ({self.neighbouring}). Whatever anybody does with this release, and whatever else "
            "they know, what they can find out about one person is almost the same as if that person's rows had never "
            "been in the table: "
        )
        if self.membership_advantage is not None:
            text += (
                f"the best possible test of whether somebody was in it has sensitivity plus specificity of at most "
                f"{1 + self.membership_advantage:.3f}, where guessing has 1. "
            )
        text += (
            f"The whole budget was spent in {len(self.ledger)} noisy answers, each entered in the ledger before it was "
            "given; the synthetic rows were made from these answers alone."
        )
        if self.public:
            text += f" Taken as public: {'; '.join(self.public)}."
        if self.not_covered:
            text += f" Not covered: {'; '.join(self.not_covered)}."
        if self.epsilon_with_earlier_runs is not None:
            text += (
                " Earlier runs in this folder read the same patients; together with them the end-to-end guarantee is "
                f"ε = {self.epsilon_with_earlier_runs:.4g} at δ = {self.delta:g}."
            )
        return f"{text} {self.answer}".rstrip()

    def _as_published(self) -> str:
        return (
            f"guarantee: {self.guarantee}. Under the accounting of the published method the released step has "
            f"ε = {self.epsilon:.4g} at δ = {self.delta:g} (ε = {self.epsilon_at_last_step:.4g} at the last step, both "
            "as-published). That accounting holds only if the reference model is public and one patient changes each "
            "step's gradient by at most the clipping norm; neither is true here. End to end, the worst case of the "
            f"same noise is an ε of {self.worst_case_epsilon}. Not counted in either: the choice of noise levels and "
            "of the clipping norm, the stopping step, scaling by training means, and the range of the labels. This "
            "is a reproduction of a paper, not a theorem about patients."
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "statement": self.paragraph()}
