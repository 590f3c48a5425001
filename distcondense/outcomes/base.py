"""What a kind of outcome is to the rest of the house. One file a kind: it reads it, learns it, scores it, writes it.

A `Kind` is an object with the outcome's public facts (its columns, labels, bounds). Everything that differs between
kinds is asked of it; nothing outside `outcomes/` asks which kind it is. What the private method needs is apart, in
`PrivateSide`: a kind without one is refused by that method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import pandas as pd

from distcondense.arrays import Codes, Floats, Index, Matrix, Numbers
from distcondense.data.outcome import Goal, Outcome
from distcondense.data.reserved import WEIGHT
from distcondense.data.schema import Column, Label, Schema
from distcondense.errors import ModelError, SettingsError
from distcondense.models.learners import Learner
from distcondense.outcomes.measures import Measured
from distcondense.outcomes.recipes import Recipe, Released
from distcondense.privacy.contributions import Objective

WEIGHTS = Column(
    WEIGHT,
    "continuous",
    meaning="how many rows of the real table this row stands for. Weights restore how common the "
    "outcome is; a model that only ranks patients needs none. No feature.",
)


@dataclass(frozen=True)
class Labelled:
    """The outcome of synthetic rows: as it is released, the soft labels beside it, and weights."""

    outcome: Outcome
    soft: Floats | None = None  # (m,) or (m, S): what the private model expects
    weight: Floats | None = None  # (m,) adding up to the noisy number of rows


@dataclass(frozen=True)
class Rule:
    """How a model's scores become decisions and probabilities; settled on rows that are not tested on."""

    threshold: float | None = None  # flagged from this score on
    survival: Callable[[Numbers, Floats], Floats] | None = None  # scores (n,), times (k,) → (n, k) free of the event
    horizon: float | None = None  # up to which survival is said


class Kind(ABC):
    """One kind of outcome, with what is public about the one at hand."""

    name: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]  # columns it needs, in order
    measures: ClassVar[tuple[str, ...]]  # keys of `outcomes/measures.py: TITLES`; the first is the main one
    learners: ClassVar[Mapping[str, Learner]]  # reference models and students; the first is the default
    groups_named: ClassVar[str] = "class"  # what IPC counts rows of

    names: tuple[str, ...]
    labels: tuple[Label, ...] = ()  # how its classes are written, where it has classes
    labels_public: bool = True

    # -- reading (see data/outcome.py: ReadableKind)

    @classmethod
    @abstractmethod
    def recognises(cls, goal: Goal, schema: Schema | None) -> bool: ...

    @classmethod
    @abstractmethod
    def of(cls, goal: Goal, schema: Schema | None) -> Kind: ...

    @abstractmethod
    def read(self, frame: pd.DataFrame) -> Outcome: ...

    def number_columns(self) -> tuple[str, ...]:
        return ()

    def label_column(self, schema: Schema | None) -> Column | None:
        """The declared description of the label column, where its cells are labels."""
        return None

    def strata(self, outcome: Outcome) -> Index:
        """The class of each row, where it has one."""
        return outcome["label"].astype(np.int64)

    def check(self, outcome: Outcome) -> None:  # noqa: B027
        """Refuse rows that no model could be fitted to."""

    @abstractmethod
    def lacking(self, outcome: Outcome) -> str: ...

    def identity(self) -> Any:
        return (self.name, self.names)

    def facts(self) -> dict[str, Any]:
        """What a run's record says about the outcome."""
        labels = {"labels": [str(label) for label in self.labels]} if self.labels else {}
        return {"kind": self.name, "columns": list(self.names), **labels}

    # -- models and scores

    @property
    def default_learner(self) -> str:
        return next(iter(self.learners))

    def learner(self, name: str | None = None) -> Learner:
        """The learner of that name; the default where none is said."""
        name = self.default_learner if name is None else name
        if name not in self.learners:
            raise SettingsError(
                "reference",
                f"for a {self.name} outcome must be one of {', '.join(self.learners)}",
                found=repr(name),
                fix=f"say {self.default_learner}",
            )
        return self.learners[name]

    @property
    def links(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(learner.link for learner in self.learners.values()))

    def unit(self, outcome: Outcome) -> float:
        """What models divide the outcome by (eq. 1), from these rows."""
        return 1.0

    def in_unit(self, outcome: Outcome, unit: float) -> Outcome:
        """The outcome divided by `unit`; as it is where nothing is divided."""
        return outcome

    @abstractmethod
    def score(self, link: str, scores: Numbers, outcome: Outcome) -> float:
        """The main measure of a model's scores on these rows."""

    def rule(self, link: str, scores: Numbers, outcome: Outcome) -> Rule:
        """How scores become decisions and probabilities, settled on these rows; nothing where a kind needs none."""
        return Rule()

    @abstractmethod
    def measured(self, link: str, scores: Numbers, outcome: Outcome, rule: Rule) -> dict[str, Measured]:
        """Every measure on one test set, the main one first."""

    def alike(self, real: Outcome, synthetic: Outcome, rng: np.random.Generator) -> Index:
        """Random real rows, as many of each stratum as the synthetic rows have, or all there are."""
        ours, theirs = self.strata(real), self.strata(synthetic)
        chosen = []
        for value in np.unique(theirs):
            there = np.flatnonzero(ours == value)
            chosen.append(rng.permutation(there)[: int((theirs == value).sum())])
        return np.concatenate(chosen) if chosen else np.empty(0, np.int64)

    # -- the released table

    def outcome_columns(self) -> tuple[Column, ...]:
        """Its own columns as a condensed table has them, with their meaning."""
        numbers = [Column(name, "continuous", meaning="the outcome.") for name in self.names]
        if not self.labels:
            return tuple(numbers)
        two: Literal["binary", "categorical"] = "binary" if len(self.labels) == 2 else "categorical"
        return (*numbers[:-1], Column(self.names[-1], two, categories=self.labels, meaning="the outcome."))

    def added_columns(self) -> tuple[Column, ...]:
        """What it adds to a condensed table besides the outcome; all of it `data/reserved.py: is_reserved`."""
        return ()

    def words(self) -> tuple[str, ...]:
        """What its columns in a condensed table are, a sentence each, for whoever gets one."""
        return tuple(f"{c.name}: {c.meaning}" for c in (*self.outcome_columns(), *self.added_columns()))

    def recipes(self, table: Released) -> tuple[Recipe, ...]:
        """How a recipient trains on a released CSV with tools of their own; the first is the one to begin with."""
        return ()

    def released(self, file: str, texts: Sequence[str] = ()) -> Released:
        """A released CSV of this outcome, for `recipes`; `texts` as there."""
        return Released(file, tuple(self.names), self.own_columns(), WEIGHT, tuple(texts))

    def own_columns(self) -> tuple[str, ...]:
        """Names of what it adds."""
        return tuple(column.name for column in self.added_columns())

    @abstractmethod
    def write(self, frame: pd.DataFrame, labelled: Labelled) -> None:
        """Put the outcome, and its soft labels, into a table of features."""

    @abstractmethod
    def written(self, frame: pd.DataFrame) -> Labelled:
        """What `write` put there, read back."""

    @abstractmethod
    def training_data(self, X: pd.DataFrame, labelled: Labelled) -> tuple[pd.DataFrame, Any, Floats]:
        """X, y, sample_weight as scikit-learn or lifelines take them, weights not yet scaled."""

    # -- methods

    def invented(self, train: Outcome, rows: int, positives: int, inside: Floats) -> Outcome:
        """Labels for rows that start as noise (Thakur et al. §4.2); `inside` (positives,) are uniforms in [0, 1)."""
        raise NotImplementedError

    def match_strata(self, train: Outcome, outcome: Outcome, count: int) -> tuple[Index, int, bool]:
        """((n,) stratum of each row for the match loss, their number, whether they are averaged: eq. 3, 11)."""
        raise NotImplementedError

    def private_side(self, *, horizon: float | None = None) -> PrivateSide | None:
        """How the private method learns it, from public facts alone; None: it cannot."""
        return None


# -- the private method's view ----------------------------------------------------------------------------------------


class Ask(Protocol):
    """The gate with a plan: what a kind may ask, by the names it gave its questions."""

    @property
    def objective(self) -> Objective: ...

    def aim(self, objective: Objective) -> None:
        """A public step: the objective with what an answer told."""
        ...

    def shift(self, intercept: Any) -> None:
        """A public step: every row's score moves by this."""
        ...

    def counts(self, by: str, question: str) -> Floats:
        """(groups,) noisy numbers of rows; `question` is one of the kind's own."""
        ...

    def total(self, name: str, question: str) -> Floats:
        """The objective's statistic of that name."""
        ...

    def noise(self, question: str) -> float:
        """Standard deviation of that question's noise, in persons."""
        ...


@dataclass(frozen=True)
class Learned:
    """Everything that left the gate, in usable form. All of it is covered by the guarantee."""

    model: Any  # models.additive.AdditiveModel over the used columns
    columns: tuple[int, ...]  # their numbers in the table
    marginals: tuple[Floats, ...]  # per used column (groups, cells): cell probabilities in each group of rows
    rows: float  # noisy number of rows
    shares: Floats  # (groups,) noisy share of each group
    evidence: float  # that the features say anything about the outcome: standard deviations above chance
    objective: Objective  # with what its own questions told
    facts: Mapping[str, Any] = field(default_factory=dict)  # what the kind keeps of its own questions
    doubt: str = ""  # why there is no answer in this, if there is none
    joint: Any = None  # methods.private.joint.Joint: whole rows
    errors: tuple[Floats, ...] = ()  # per used column (S, cells): standard deviations of the model's table

    @property
    def overall(self) -> list[Floats]:
        """Per used column (cells,): cell probabilities of all groups together."""
        return pooled(self.marginals, self.shares)

    @property
    def informative(self) -> bool:
        return not self.doubt


@dataclass(frozen=True)
class Counted:
    """Rows of each group, counted before anything else."""

    rows: Floats  # (groups,) noisy
    noise: float  # standard deviation of each


def pooled(marginals: Sequence[Floats], shares: Floats) -> list[Floats]:
    """Per column: the groups' cell probabilities, weighted by the groups' shares."""
    out = []
    for by_group in marginals:
        total = shares[0] * by_group[0]
        for share, one in zip(shares[1:], by_group[1:], strict=True):
            total = total + share * one
        out.append(total)
    return out


Look = tuple[Floats, Floats, Floats, Floats]  # precision, information, its variance by noise, hessian: (S, cells) each


def looked(apart: Floats, slope: Floats, own: Floats, varies: Floats, table: Floats, part: float = 1.0) -> Look:
    """Newton's step of sums (S, cells) that are seen `apart` from what `table` leads to expect.

    `slope` is by how much these grow with the table, `own` the variance of their noise, `varies` that of patients.
    """
    variance = own + varies
    told_by = slope * slope / variance
    return told_by, told_by * table + part * slope / variance * apart, told_by * own / variance, slope


def present(held: Floats, noise: Floats) -> Floats:
    """(cells,) rows of all groups, at least a standard deviation of their noise: a noisy zero is not believed."""
    return np.maximum(held.sum(0), np.sqrt(len(held) * noise))


class Judge(Protocol):
    """How well students of a candidate set follow the private model over a pool of rows."""

    def __call__(self, rows: Matrix, labelled: Labelled) -> float: ...


class PrivateSide(ABC):
    """What the private method asks of a kind: its objective, its own questions, and how rows get their labels."""

    objective: Objective  # before any answer
    link: str  # of the private model's expectations
    merged: int = 64  # a merged cell holds at least a 1/(2·merged) share of the rows
    grouping: str = "label"  # columns are counted by these groups; IPC counts rows of each
    drifts: bool = False  # scores may drift away together, so that gradients without features are those of the start
    steady: bool = False  # the hessian does not change between rounds, so that their answers are averaged
    gradient_noise: float = 1.0  # share of a gradient's noise that `newton` leaves
    effect: str = "score"  # what a table's entries add to, in words
    unit: float = 1.0  # students see the outcome divided by this
    public: tuple[str, ...] = ()  # what the guarantee takes as known besides the schema

    @property
    def groups(self) -> int:
        return self.objective.groupings[self.grouping]

    def questions(self) -> Mapping[str, float]:
        """Its own questions and their shares of μ², in the order in which they are asked."""
        return {}

    def begin(self, ask: Ask) -> Mapping[str, Any]:
        """Ask what must be known before anything else; what it keeps of the answers."""
        return {}

    @abstractmethod
    def intercept(self, shares: Floats, facts: Mapping[str, Any]) -> Any:
        """Where the score of every row starts, from the groups' shares."""

    @abstractmethod
    def newton(self, G: Floats, H: Floats) -> Floats:
        """The step that would make each cell's noisy gradient 0; 0 where its noisy hessian is."""

    def dispersion(self, facts: Mapping[str, Any]) -> float:
        """Variance of a row's gradient over its hessian: what a sum varies by without any noise."""
        return 1.0

    def first_look(
        self, held: Floats, noise: Floats, shares: Floats, table: Floats, facts: Mapping[str, Any]
    ) -> Look | None:
        """Newton's step from `table` (S, cells) on the histograms alone, which were asked anyway; None: no step.

        `held` (groups, cells) are noisy numbers of rows, `noise` (cells,) their variances. What a column says alone is
        where rounds begin: with a class that is naive Bayes, and on a small table most of what can be known.
        """
        return None

    def settled(self, table: Floats) -> Floats:
        """(S, cells) a column's table with what says nothing taken out of it."""
        return table

    def after_round(self, ask: Ask, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask what a round has changed; the facts with what that told."""
        return facts

    def spread(self, variances: Floats) -> float:
        """Standard deviation of the score, from the (S,) variances of the scores."""
        return float(np.sqrt(variances[0]))

    def in_units(self, model: Any, facts: Mapping[str, Any]) -> Any:
        """The additive model in the outcome's own units."""
        return model

    @abstractmethod
    def fewest(self, shares: Floats) -> float:
        """The share of rows without which there is nothing to learn: of the rarer class, of events."""

    @abstractmethod
    def expected(self, margin: Floats, learned: Learned) -> Floats:
        """Margins → soft labels: what is expected of a row."""

    def predict(self, margin: Floats, learned: Learned) -> Any:
        """What `PrivateModel.predict` says of rows with these margins: the likelier class, or what is expected."""
        return self.expected(margin, learned)

    def probabilities(self, margin: Floats, learned: Learned) -> Floats:
        """(n, classes) for `PrivateModel.predict_proba`."""
        raise no_such_answer("probabilities of classes")

    def survival(self, margin: Floats, learned: Learned, times: Floats) -> Floats:
        """(n, times) for `PrivateModel.survival_function`."""
        raise no_such_answer("a survival function")

    def tilt(self, learned: Learned, margin: Floats) -> Floats | None:
        """(n,) how often rows of the population, of these margins, are candidates; None: all alike."""
        return None

    @abstractmethod
    def label(self, learned: Learned, codes: Index, at: Floats, rows: int) -> Labelled:
        """Labels of candidates, each on its own: cells (n, d), a uniform of each (n,), and how many rows are wanted."""

    def strata(self, learned: Learned, labelled: Labelled) -> Index:
        """(n,) a row is exchanged for one of its stratum only."""
        return labelled.outcome["label"].astype(np.int64)

    def quotas(self, learned: Learned, stratum: Index, rows: int) -> dict[int, int]:
        """How many rows a set takes of each stratum: as many of each, where all have candidates."""
        there = np.unique(stratum)
        return {int(value): int(count) for value, count in zip(there, shared(rows, np.ones(len(there))), strict=True)}

    @abstractmethod
    def training(self, labelled: Labelled) -> tuple[Floats, Floats | None]:
        """(n, S) plain labels and soft ones, as numbers for the students of `teaching`."""

    def truth(self, learned: Learned, margin: Floats) -> Floats:
        """(n, S) or (n,) what these students should say of rows of these margins."""
        return margin

    def weighted(self, learned: Learned, labelled: Labelled) -> Labelled:
        """With weights that add up to the noisy number of rows and restore what the population is like."""
        m = len(next(iter(labelled.outcome.arrays.values())))
        return replace(labelled, weight=np.full(m, learned.rows / max(m, 1)))

    @abstractmethod
    def judge(self, learned: Learned, pool: Index, rows: Matrix, among: Sequence[str] = ()) -> Judge:
        """A judge over a pool of rows, as cells and as students see them.

        `among`: learners of the kind whose students alone it listens to; none: all that it has.
        """

    @abstractmethod
    def unlabelled(self) -> Labelled:
        """No rows."""


def shared(rows: int, share: Floats) -> Index:
    """(k,) whole numbers that add up to `rows`, in proportion."""
    reached = np.round(np.cumsum(share) / np.sum(share) * rows).astype(np.int64)
    return np.diff(np.concatenate([[0], reached]))


def restoring(label: Index, shares: Floats, rows: float) -> Floats:
    """(m,) weights under which each class has its share, and which add up to `rows`; classes without rows are left."""
    there = np.bincount(label, minlength=len(shares))
    share = np.where(there > 0, shares, 0.0)
    return np.asarray(rows * (share / share.sum() / np.maximum(there, 1))[label], np.float64)


def as_the_population(stratum: Index, rows: int) -> dict[int, int]:
    """So many rows of each stratum that a set has the shares of the candidates."""
    there, many = np.unique(stratum, return_counts=True)
    counts = shared(rows, many.astype(np.float64))
    return {int(value): int(count) for value, count in zip(there, counts, strict=True)}


def no_such_answer(what: str) -> ModelError:
    return ModelError(
        "PrivateModel",
        "has no such answer for this kind of outcome",
        found=f"{what} asked",
        fix="use predict, or decision_function",
    )


def as_written(labels: Sequence[Label], codes: Codes) -> pd.Series[Any]:
    """Codes as the table writes them."""
    written = np.empty(len(labels), object)
    written[:] = labels
    return pd.Series(written[codes.astype(int)]).infer_objects()


def label_codes(series: pd.Series[Any], labels: Sequence[Label]) -> Index:
    """A released column's labels as codes; text and numbers that read the same are the same."""
    known = {str(label): code for code, label in enumerate(labels)}
    return series.map(lambda value: known.get(str(value), -1)).to_numpy(np.int64)
