"""`Privacy`: what may be said about a condensed set, and how. No ε leaves without its guarantee, none rounded down."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from decimal import ROUND_CEILING, Context
from typing import Any, Literal, get_args

from distcondense.errors import SettingsError
from distcondense.privacy.accountant import NoSum
from distcondense.privacy.events import Event, Unit

# a theorem · a theorem if what was read off the patients is public · a paper's accounting · nothing
Guarantee = Literal["end-to-end", "conditional", "as-published", "none"]
GUARANTEES: tuple[str, ...] = get_args(Guarantee)  # the best first
MEANINGS = {  # guarantee → what stands behind its ε
    "end-to-end": "a theorem about every {unit} of the table",
    "conditional": "a theorem only if what was read off the patients is public anyway",
    "as-published": "the accounting of a paper, not a theorem about patients",
    "none": "nothing bounds what these rows tell about patients",
}
UNBOUNDED: Literal["unbounded"] = "unbounded"
# of several runs without an ε together: after "with earlier runs", and after "together with them"
NO_SUM: dict[NoSum, tuple[str, str]] = {
    "unbounded": (f"ε = {UNBOUNDED}", f"there is no {{}} guarantee: ε is {UNBOUNDED}"),
    "different units": (
        "no common ε, they protect different units",
        "the {} guarantee is without a common bound: the runs protect different units, rows and persons",
    ),
}
LARGE_EPSILON = 10.0
LARGE_DELTA = 1e-3
ALMOST, SIMILAR = 0.3, 0.6  # membership advantages up to which a person in the table is as good as one who is not


@dataclass(frozen=True, repr=False)
class Privacy:
    """The privacy statement of a release: the guarantee, its ε and δ, and what they rest on.

    Read `epsilon` with `guarantee` or not at all. "end-to-end": a theorem about everything that was released.
    "conditional": the same if what was read off the patients outside the ledger (`inferred`) is public anyway.
    "as-published": a paper's own accounting, no theorem about patients. "none": treat the table as patient data.

    Raises
    ------
    SettingsError
        If a guarantee is called end-to-end although the schema or the labels were read off the patients.

    Examples
    --------
    >>> from distcondense.privacy.statement import Privacy
    >>> stated = Privacy("end-to-end", "private", 0.99999, 1e-5, "add or remove one person", "opendp", unit="person")
    >>> stated.short()
    'ε = 1 (end-to-end, δ = 1e-05)'
    >>> stated.sentence()
    'guarantee: end-to-end differential privacy, ε = 1 at δ = 1e-05, for every person in the table.'
    """

    guarantee: Guarantee
    method: str
    epsilon: float | None  # end-to-end, conditional: of everything released; as-published: at the released step
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
    # f-DP: (false positives, least false negatives of any membership test), and the largest 1 − both. Of this run;
    # between two points of the curve the smaller number of false negatives holds
    trade_off: tuple[tuple[float, float], ...] = ()
    membership_advantage: float | None = None
    # of this run and the earlier ones: a number, or why there is none; and its membership advantage
    epsilon_with_earlier_runs: float | NoSum | None = None
    advantage_with_earlier_runs: float | None = None
    epsilon_at_last_step: float | None = None  # as-published: the run went on to here, and its history was looked at
    worst_case_epsilon: str = ""  # as-published: end to end, of the same noise: a number, "over 100" or "none"
    why: tuple[str, ...] = ()  # as-published, none: why it is no more than that, in the method's own sentences
    made: str = "the synthetic rows were made"  # end-to-end: from the answers alone
    earlier_runs: str = "Earlier runs in this folder"  # end-to-end: who else read the same patients
    constants: str = ""  # SHA-256 of the method's constants, which are public
    account: str = ""  # end-to-end: in words, to which account of the patients it was charged
    sites: str = ""  # end-to-end: of rows at several sites, what each of them must trust, in words

    def __post_init__(self) -> None:
        if self.guarantee == "end-to-end" and self.inferred:
            raise SettingsError(
                "guarantee",
                "must be called conditional where something was read off the patients",
                found=f"end-to-end, with {' and '.join(self.inferred)} inferred",
            )

    @property
    def inferred(self) -> tuple[str, ...]:
        """What was read off the patients outside the ledger."""
        schema = ("the schema",) if self.schema_origin == "inferred" else ()
        return (*schema, *(() if self.labels_public else ("the outcome's values",)))

    @property
    def charged(self) -> bool:
        """Whether every look at patients was paid for at the gate: the ledger holds `events`."""
        return self.guarantee in ("end-to-end", "conditional")

    @property
    def events(self) -> tuple[Event, ...]:
        """The ledger of an end-to-end guarantee, for an accountant to read."""
        return tuple(Event.from_dict(entry) for entry in self.ledger)

    def __repr__(self) -> str:
        return f"Privacy({self.short()}; {self.unit} protected)" if self.charged else f"Privacy({self.short()})"

    def __str__(self) -> str:
        return self.paragraph()

    def short(self) -> str:
        """One phrase for a table or a progress line."""
        if self.epsilon is None:
            return "no privacy guarantee"
        claim = f"ε = {rounded_up(self.epsilon, 3)} ({self.guarantee}, δ = {self.delta:g})"
        if (both := self._with_earlier) is not None:
            words = f"ε = {rounded_up(both, 3)}" if isinstance(both, float) else NO_SUM[both][0]
            claim += f"; with earlier runs {words} ({self.guarantee})"
        return f"{claim}; end to end at worst: {self.worst_case_epsilon}" if self.worst_case_epsilon else claim

    def label(self) -> dict[str, Any]:
        """What travels with the table itself: in `frame.attrs` and in the Parquet file's metadata."""
        names = ("guarantee", "epsilon", "delta", "unit", "method")
        both = {} if self._with_earlier is None else {"epsilon_with_earlier_runs": self._with_earlier}
        return {**{name: getattr(self, name) for name in names}, **both, "statement": self.sentence()}

    def sentence(self) -> str:
        """The claim in one sentence, with which the paragraph begins."""
        if self.guarantee == "none":
            return "NO PRIVACY GUARANTEE."
        assert self.epsilon is not None
        claim = f"ε = {rounded_up(self.epsilon, 4)} at δ = {self.delta:g}"
        if not self.charged:
            last = self.epsilon_at_last_step
            steps = "" if last is None else f" at the released step (ε = {rounded_up(last, 4)} at the last step)"
            return f"guarantee: {self.guarantee}, {claim}{steps}: not a theorem about patients."
        whom = "for every person in the table" if self.unit == "person" else "for every row"
        condition = (
            "" if self.guarantee == "end-to-end" else ", only if what was read off the patients is public anyway"
        )
        return f"guarantee: {self.guarantee} differential privacy, {claim}, {whom}{condition}."

    def paragraph(self) -> str:
        """What a data-protection officer should read: first the claim, then the details."""
        if self.guarantee == "none":
            return " ".join((self.sentence(), *self.why, "Treat it as patient data: do not hand it over."))
        sentences = [self.sentence()]
        if self.schema_origin == "inferred":
            sentences.append(
                "The schema was inferred from the patients: bounds and categories are not public knowledge."
            )
        if not self.labels_public:
            sentences.append("The outcome's values were read off patients: they are not public knowledge either.")
        if self.charged:
            sentences += self._what_it_means()
        else:
            worst = f"End to end, the worst case of the same noise is an ε of {self.worst_case_epsilon}."
            sentences += [*self.why, worst, "This is a reproduction of a paper."]
        return " ".join(sentence for sentence in sentences if sentence)

    def _what_it_means(self) -> list[str]:
        """The paragraph of an end-to-end or conditional guarantee, after its claim; empty sentences are left out."""
        public, uncovered = "; ".join(self.public), "; ".join(self.not_covered)
        made = "" if self.answer else f"; {self.made} from these answers alone"
        return [
            self._earlier(),
            self.account,
            self.sites,
            self._promise(),
            *self._warnings(),
            f"Neighbouring tables: {self.neighbouring}."
            + ("" if self.unit == "person" else " A person with k rows is protected about k times less."),
            "The guarantee may fail altogether with a probability of about δ, which should be well below 1 over the "
            "number of patients.",
            f"All of it was spent in {len(self.ledger)} noisy answers, each entered in the ledger before it was "
            f"given{made}.",
            f"Taken as public: {public}." if public else "",
            f"Not covered: {uncovered}." if uncovered else "",
            self.answer,
        ]

    @property
    def _with_earlier(self) -> float | NoSum | None:
        """A finite number, or why there is none."""
        both = self.epsilon_with_earlier_runs
        if both is None or isinstance(both, str):
            return both
        return float(both) if math.isfinite(both) else UNBOUNDED

    def _promise(self) -> str:
        """What ε means to somebody who was in the table; with earlier runs, what all of them together mean."""
        by_person, both = self.unit == "person", self._with_earlier
        joint = isinstance(both, float)
        advantage = self.advantage_with_earlier_runs if joint else self.membership_advantage
        epsilon = both if isinstance(both, float) else self.epsilon
        assert epsilon is not None
        assert self.delta is not None
        of = "Of this run alone: " if isinstance(both, str) else ""
        promise = _promise(largest_advantage(epsilon, self.delta) if advantage is None else advantage, by_person, joint)
        if advantage is None:
            return f"{of}{promise}."
        alone = ""
        if joint and self.membership_advantage is not None:
            alone = f" (this run alone: {rounded_up(1 + self.membership_advantage, 4)})"
        return (
            f"{of}{promise}: the best possible test of whether {'somebody' if by_person else 'a row'} was in it has "
            f"sensitivity plus specificity of at most {rounded_up(1 + advantage, 4)}, where guessing has 1{alone}."
        )

    def _warnings(self) -> list[str]:
        assert self.epsilon is not None
        assert self.delta is not None
        both, warnings = self._with_earlier, []
        if max(self.epsilon, both if isinstance(both, float) else 0.0) > LARGE_EPSILON:
            warnings.append(f"WARNING: an ε above {LARGE_EPSILON:g} ({self.guarantee}) promises patients very little.")
        if self.delta > LARGE_DELTA:
            warnings.append(
                f"WARNING: δ is above {LARGE_DELTA:g}: publishing one patient in {math.floor(1 / self.delta):,} as "
                "they are would satisfy it."
            )
        return warnings

    def _earlier(self) -> str:
        both = self._with_earlier
        if both is None:
            return ""
        read = f"{self.earlier_runs} read the same patients; together with them "
        if isinstance(both, float):
            return f"{read}the {self.guarantee} guarantee is ε = {rounded_up(both, 4)} at δ = {self.delta:g}."
        return f"{read}{NO_SUM[both][1].format(self.guarantee)}."

    def to_dict(self) -> dict[str, Any]:
        """For privacy.json, whose numbers are all finite: what is unbounded is so in words."""
        return {**asdict(self), "epsilon_with_earlier_runs": self._with_earlier, "statement": self.paragraph()}

    @classmethod
    def from_dict(cls, stated: dict[str, Any]) -> Privacy:
        """The statement that a privacy.json holds; what else stands in the file (hashes, software) is left out."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in stated.items() if name in names})


def suffices(guarantee: str, least: str) -> bool:
    """Whether a guarantee is at least as good as another."""
    return GUARANTEES.index(guarantee) <= GUARANTEES.index(least)


def meaning(guarantee: str, unit: str) -> str:
    """What stands behind an ε of this guarantee, in a few words. unit: whose presence is protected."""
    return MEANINGS[guarantee].format(unit=unit)


def rounded_up(value: float, digits: int) -> str:
    """A number with so many significant digits, rounded up: what is printed never promises more than what holds."""
    if math.isnan(value):
        return "unknown"
    if math.isinf(value):
        return UNBOUNDED
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))
    return f"{float(up):.{digits}g}"


def largest_advantage(epsilon: float, delta: float) -> float:
    """The largest membership advantage any (ε, δ) allows."""
    return math.tanh(epsilon / 2) + 2 * delta / (1 + math.exp(min(epsilon, 700.0)))


def _promise(advantage: float, by_person: bool, several: bool) -> str:
    """In words that get weaker as the membership advantage grows."""
    one, gone = ("one person", "that person's rows") if by_person else ("one row", "that row")
    learned, without = f"what they can find out about {one}", f"if {gone} had never been in the table"
    whatever = (
        f"Whatever anybody does with {'these releases' if several else 'this release'} and whatever else they know, "
    )
    if advantage <= ALMOST:
        return f"{whatever}{learned} is almost the same as {without}"
    if advantage <= SIMILAR:
        return f"{whatever}{learned} is similar to what it would be {without}"
    return (
        f"But this ε promises little: depending on what else somebody knows, {learned} may be far more than {without}"
    )
