"""`Privacy`: what may be said about a condensed set, and how. No ε leaves without its guarantee, none rounded down."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from decimal import ROUND_CEILING, Context
from typing import Any, Literal

from distcondense.privacy.accountant import NoSum
from distcondense.privacy.events import Event, Unit

Guarantee = Literal["end-to-end", "as-published", "none"]
UNBOUNDED: Literal["unbounded"] = "unbounded"
# of several runs without an ε together: after "with earlier runs", and after "together with them"
NO_SUM: dict[NoSum, tuple[str, str]] = {
    "unbounded": (f"ε = {UNBOUNDED}", f"there is no end-to-end guarantee: ε is {UNBOUNDED}"),
    "different units": (
        "no common ε, they protect different units",
        "the end-to-end guarantee is without a common bound: the runs protect different units, rows and persons",
    ),
}
LARGE_EPSILON = 10.0
LARGE_DELTA = 1e-3
ALMOST, SIMILAR = 0.3, 0.6  # membership advantages up to which a person in the table is as good as one who is not


@dataclass(frozen=True)
class Privacy:
    """The privacy side of a result. `epsilon` belongs to `guarantee`; read them together or not at all."""

    guarantee: Guarantee
    method: str
    epsilon: float | None  # end-to-end: of everything released; as-published: at the released step
    delta: float | None
    neighbouring: str
    noise_source: str
    unit: Unit = "row"  # whose presence is protected
    parameters: dict[str, Any] = field(default_factory=dict)
    ledger: list[dict[str, Any]] = field(default_factory=list)
    schema_origin: str = "declared"
    labels_public: bool = True  # the outcome's values were declared, not read off patients
    public: tuple[str, ...] = ()  # what the guarantee takes as known to everybody
    not_covered: tuple[str, ...] = ()
    answer: str = ""  # end-to-end: what to think of the release, where it holds no answer
    # f-DP: (false positives, least false negatives of any membership test), and the largest 1 − both
    trade_off: tuple[tuple[float, float], ...] = ()
    membership_advantage: float | None = None
    # end-to-end, of this run and the earlier ones: a number, or why there is none
    epsilon_with_earlier_runs: float | NoSum | None = None
    epsilon_at_last_step: float | None = None  # as-published: the run went on to here, and its history was looked at
    worst_case_epsilon: str = ""  # as-published: end to end, of the same noise: a number, "over 100" or "none"
    made: str = "the synthetic rows were made"  # end-to-end: from the answers alone
    earlier_runs: str = "Earlier runs in this folder"  # end-to-end: who else read the same patients

    @property
    def charged(self) -> bool:
        """Whether every look at patients was paid for at the gate: the ledger holds `events`."""
        return self.guarantee == "end-to-end"

    @property
    def events(self) -> tuple[Event, ...]:
        """The ledger of an end-to-end guarantee, for an accountant to read."""
        return tuple(Event.from_dict(entry) for entry in self.ledger)

    def short(self) -> str:
        """One phrase for a table or a progress line."""
        if self.epsilon is None:
            return "no privacy guarantee"
        claim = f"ε = {shown(self.epsilon, 3)} ({self.guarantee}, δ = {self.delta:g})"
        both = self._with_earlier
        if both is not None:
            words = f"ε = {shown(both, 3)}" if isinstance(both, float) else NO_SUM[both][0]
            claim += f"; with earlier runs {words} (end-to-end)"
        return f"{claim}; end to end at worst: {self.worst_case_epsilon}" if self.worst_case_epsilon else claim

    def paragraph(self) -> str:
        """What a data-protection officer should read."""
        if self.guarantee == "none":
            return (
                "NO PRIVACY GUARANTEE. This table was optimised against a model of real patients without any noise. "
                "Treat it as patient data: do not hand it over."
            )
        text = self._end_to_end() if self.charged else self._as_published()
        if self.schema_origin == "inferred":
            text += " The schema was inferred from the patients: bounds and categories are not public knowledge."
        if not self.labels_public:
            text += " The outcome's values were read off patients: they are not public knowledge either."
        return text

    def _end_to_end(self) -> str:
        assert self.epsilon is not None
        by_person = self.unit == "person"
        whom = (
            "for every person in the table"
            if by_person
            else "for every row; a person with k rows is protected about k times less"
        )
        text = (
            f"guarantee: end-to-end differential privacy, ε = {shown(self.epsilon, 4)} at δ = {self.delta:g}, {whom} "
            f"({self.neighbouring}). {_promise(self._advantage, by_person)}"
        )
        if self.membership_advantage is not None:
            text += (
                f": the best possible test of whether {'somebody' if by_person else 'a row'} was in it has sensitivity "
                f"plus specificity of at most {shown(1 + self.membership_advantage, 4)}, where guessing has 1"
            )
        text += (
            ". The guarantee may fail altogether with a probability of about δ, which should be well below 1 over the "
            "number of patients." + self._warnings()
        )
        text += (
            f" The whole budget was spent in {len(self.ledger)} noisy answers, each entered in the ledger before it "
            f"was given{'' if self.answer else f'; {self.made} from these answers alone'}."
        )
        if self.public:
            text += f" Taken as public: {'; '.join(self.public)}."
        if self.not_covered:
            text += f" Not covered: {'; '.join(self.not_covered)}."
        return f"{text}{self._earlier()} {self.answer}".rstrip()

    @property
    def _with_earlier(self) -> float | NoSum | None:
        """A finite number, or why there is none."""
        both = self.epsilon_with_earlier_runs
        if both is None or isinstance(both, str):
            return both
        return float(both) if math.isfinite(both) else UNBOUNDED

    @property
    def _advantage(self) -> float:
        """As stated, or the largest any (ε, δ) allows."""
        if self.membership_advantage is not None:
            return self.membership_advantage
        assert self.epsilon is not None
        assert self.delta is not None
        return math.tanh(self.epsilon / 2) + 2 * self.delta / (1 + math.exp(min(self.epsilon, 700.0)))

    def _warnings(self) -> str:
        assert self.epsilon is not None
        assert self.delta is not None
        both = self._with_earlier
        text = ""
        if max(self.epsilon, both if isinstance(both, float) else 0.0) > LARGE_EPSILON:
            text += f" WARNING: an ε above {LARGE_EPSILON:g} (end-to-end) promises patients very little."
        if self.delta > LARGE_DELTA:
            text += (
                f" WARNING: δ is above {LARGE_DELTA:g}: publishing one patient in {math.floor(1 / self.delta):,} as "
                "they are would satisfy it."
            )
        return text

    def _earlier(self) -> str:
        both = self._with_earlier
        if both is None:
            return ""
        read = f" {self.earlier_runs} read the same patients; together with them "
        if isinstance(both, float):
            return f"{read}the end-to-end guarantee is ε = {shown(both, 4)} at δ = {self.delta:g}."
        return f"{read}{NO_SUM[both][1]}."

    def _as_published(self) -> str:
        assert self.epsilon is not None
        assert self.epsilon_at_last_step is not None
        return (
            f"guarantee: {self.guarantee}. Under the accounting of the published method the released step has "
            f"ε = {shown(self.epsilon, 4)} at δ = {self.delta:g} (ε = {shown(self.epsilon_at_last_step, 4)} at the "
            "last step, both as-published). That accounting holds only if the reference model is public and one "
            "patient changes each step's gradient by at most the clipping norm; neither is true here. End to end, the "
            f"worst case of the same noise is an ε of {self.worst_case_epsilon}. Not counted in either: the choice of "
            "noise levels and of the clipping norm, the stopping step, scaling by training means, and the range of "
            "the labels. This is a reproduction of a paper, not a theorem about patients."
        )

    def to_dict(self) -> dict[str, Any]:
        """For privacy.json, whose numbers are all finite: what is unbounded is so in words."""
        return {**asdict(self), "epsilon_with_earlier_runs": self._with_earlier, "statement": self.paragraph()}


def shown(value: float, digits: int) -> str:
    """A number with so many significant digits, rounded up: what is printed never promises more than what holds."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return UNBOUNDED
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{float(up):.{digits}g}"


def _promise(advantage: float, by_person: bool) -> str:
    """What ε means to somebody who was in the table, in words that get weaker as the membership advantage grows."""
    one, gone = ("one person", "that person's rows") if by_person else ("one row", "that row")
    found, without = f"what they can find out about {one}", f"if {gone} had never been in the table"
    whatever = "Whatever anybody does with this release, and whatever else they know, "
    if advantage <= ALMOST:
        return f"{whatever}{found} is almost the same as {without}"
    if advantage <= SIMILAR:
        return f"{whatever}{found} is similar to what it would be {without}"
    return f"But this ε promises little: depending on what else somebody knows, {found} may be far more than {without}"
