"""What a kind of outcome is to the rest of the package. One file a kind: it reads it, learns it, scores it, writes it.

A `Kind` is an object with the outcome's public facts (its columns, labels, bounds). Everything that differs between
kinds is asked of it; nothing outside `outcomes/` asks which kind it is. What the private method needs is apart, in
`outcomes/private_side.py: PrivateSide`: a kind without one is refused by that method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from distcondense.arrays import Codes, Floats, Index, Numbers
from distcondense.data.outcome import Goal, Outcome
from distcondense.data.reserved import WEIGHT
from distcondense.data.schema import Column, Label, Schema
from distcondense.errors import CohortError, SettingsError
from distcondense.models.learners import Learner
from distcondense.outcomes.measures import Measured
from distcondense.outcomes.recipes import Recipe, Released

if TYPE_CHECKING:
    from distcondense.outcomes.private_side import PrivateSide

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

    def take(self, rows: Index) -> Labelled:
        """These rows, in this order."""
        arrays = {name: values[rows] for name, values in self.outcome.arrays.items()}
        soft, weight = (None if values is None else values[rows] for values in (self.soft, self.weight))
        return Labelled(Outcome(self.outcome.kind, arrays), soft, weight)


@dataclass(frozen=True)
class Rule:
    """How a model's scores become decisions and probabilities; settled on rows that are not tested on."""

    threshold: float | None = None  # flagged from this score on
    survival: Callable[[Numbers, Floats], Floats] | None = None  # scores (n,), times (k,) → (n, k) free of the event
    horizon: float | None = None  # up to which survival is said


class Kind(ABC):
    """One kind of outcome, with what is public about the outcome at hand.

    A kind is a frozen dataclass that says, as class data, what it is called and made of, and implements six methods:
    `recognises`, `from_goal`, `read`, `lacking`, `score` and `measured`. Everything else has a default that follows
    from the data; a kind overrides what is different for it. `tests/toys.py: Fraction` is the smallest one.

    Attributes
    ----------
    name : str
        By which it is found (`--kind`, `dc.Cohort.from_frame(kind=…)`).
    roles : tuple of str
        The columns it needs, in order: ("target",) or ("time", "event").
    arrays : dict of str to dtype
        The arrays of its `Outcome`, in the order of the roles; an array "label" holds codes of `labels`.
    numeric_roles : tuple of str
        Roles whose cells are numbers in a CSV; the others are labels, read as text.
    measures : tuple of str
        Keys of `outcomes/measures.py: TITLES`; the first is the main one.
    learners : dict of str to Learner
        Reference models and students; the first is the default.
    groups_named : str
        What records per class (IPC) counts rows of, in words.
    too_few : tuple of str
        What an error says was found where `lacking` says something, and what to do about it.
    names : tuple of str
        Its columns, in the order of the roles.
    labels : tuple
        How its classes are written, where it has classes, the negative first.
    labels_public : bool
        Whether the values that it releases are publicly known, not read off the rows.
    declared : Column or None
        How the label column's cells are written, where the schema says so.
    """

    name: ClassVar[str]
    roles: ClassVar[tuple[str, ...]]
    arrays: ClassVar[Mapping[str, type[np.generic]]]
    numeric_roles: ClassVar[tuple[str, ...]] = ()
    measures: ClassVar[tuple[str, ...]]
    learners: ClassVar[Mapping[str, Learner]]
    groups_named: ClassVar[str] = "class"
    too_few: ClassVar[tuple[str, str]] = ("one class only", "check the column")

    names: tuple[str, ...]
    labels: tuple[Label, ...] = ()
    labels_public: bool = True
    declared: Column | None = None

    @property
    def groups(self) -> int:
        """How many groups records per class (IPC) counts rows of, from public facts."""
        return max(len(self.labels), 2)

    # -- reading

    @classmethod
    @abstractmethod
    def recognises(cls, goal: Goal, schema: Schema | None) -> bool:
        """Whether the schema describes this goal's columns as an outcome of this kind."""

    @classmethod
    @abstractmethod
    def from_goal(cls, goal: Goal, schema: Schema | None) -> Kind:
        """The kind with what is public about it; refuses what can be refused before a row is read."""

    @abstractmethod
    def read(self, frame: pd.DataFrame) -> Outcome:
        """The outcome of a table's rows, its columns checked; the outcome's kind knows its labels."""

    def strata(self, outcome: Outcome) -> Index:
        """(n,) small codes to stratify a split by: the class of each row, where it has one."""
        return outcome["label"].astype(np.int64)

    @abstractmethod
    def lacking(self, outcome: Outcome) -> str:
        """What these rows lack for a model to be fitted or measured on them, in words; empty where nothing."""

    def check(self, outcome: Outcome) -> None:
        """Refuse rows that no model could be fitted to: never asked on a private path, where the error would tell."""
        if need := self.lacking(outcome):
            found, fix = self.too_few
            raise CohortError(f"{self.roles[-1]} {self.names[-1]!r}", f"must have {need}", found=found, fix=fix)

    def facts(self) -> dict[str, Any]:
        """What a run's record says about the outcome."""
        labels = {"labels": [str(label) for label in self.labels]} if self.labels else {}
        return {"kind": self.name, "columns": list(self.names), **labels}

    # -- models and scores

    def learner(self, name: str | None = None) -> Learner:
        """The learner of that name; the first where none is said."""
        first = next(iter(self.learners))
        if name is not None and name not in self.learners:
            raise SettingsError(
                "reference",
                f"for a {self.name} outcome must be one of {', '.join(self.learners)}",
                found=repr(name),
                fix=f"say {first}",
            )
        return self.learners[first if name is None else name]

    @property
    def links(self) -> tuple[str, ...]:
        """What scores of its learners may be (`models/base.py: Link`), without repetition."""
        return tuple(dict.fromkeys(learner.link for learner in self.learners.values()))

    def unit(self, outcome: Outcome) -> float:
        """What models divide the outcome by (Thakur et al., eq. 1), from these rows."""
        return 1.0

    def in_unit(self, outcome: Outcome, unit: float) -> Outcome:
        """The outcome divided by `unit`; as it is where nothing is divided."""
        return outcome

    @abstractmethod
    def score(self, link: str, scores: Numbers, outcome: Outcome) -> float:
        """The main measure of a model's scores on these rows; larger is better."""

    def rule(self, link: str, scores: Numbers, outcome: Outcome) -> Rule:
        """How scores become decisions and probabilities, settled on these rows; nothing where a kind needs none."""
        return Rule()

    @abstractmethod
    def measured(self, link: str, scores: Numbers, outcome: Outcome, rule: Rule) -> dict[str, Measured]:
        """Every measure on one test set, the main one first."""

    def alike(self, real: Outcome, synthetic: Outcome, rng: np.random.Generator) -> Index:
        """Random real rows, as many of each stratum as the synthetic rows have, or all there are."""
        of_real, of_synthetic = self.strata(real), self.strata(synthetic)
        chosen = [np.empty(0, np.int64)]
        for value in np.unique(of_synthetic):
            there = np.flatnonzero(of_real == value)
            chosen.append(rng.permutation(there)[: int((of_synthetic == value).sum())])
        return np.concatenate(chosen)

    # -- the released table

    def outcome_columns(self) -> tuple[Column, ...]:
        """Its own columns as a condensed table has them, with their meaning."""
        numbers = [Column(name, "continuous", meaning="the outcome.") for name in self.names]
        if not self.labels:
            return tuple(numbers)
        two: Literal["binary", "categorical"] = "binary" if len(self.labels) == 2 else "categorical"
        return (*numbers[:-1], Column(self.names[-1], two, categories=self.labels, meaning="the outcome."))

    def added_columns(self) -> tuple[Column, ...]:
        """Columns of soft labels that it adds to a condensed table; all of them `data/reserved.py: is_reserved`."""
        return ()

    def own_columns(self) -> tuple[str, ...]:
        """Names of what it adds."""
        return tuple(column.name for column in self.added_columns())

    def recipes(self, table: Released) -> tuple[Recipe, ...]:
        """How a recipient trains on a released CSV with tools of their own; the first is the one to begin with."""
        return ()

    def as_soft(self, outcome: Outcome) -> Floats:
        """(n,), or (n, K) of K > 2 classes: the plain outcome as soft labels that are sure."""
        last = outcome[list(self.arrays)[-1]]
        return np.eye(len(self.labels))[last] if len(self.labels) > 2 else last.astype(np.float64)

    def write(self, frame: pd.DataFrame, labelled: Labelled) -> None:
        """Put the outcome, and its soft labels, into a table of features."""
        for name, array in zip(self.names, self.arrays, strict=True):
            values = labelled.outcome[array]
            frame[name] = as_written(self.labels, values) if array == "label" else values
        if added := self.own_columns():
            soft = self.as_soft(labelled.outcome) if labelled.soft is None else labelled.soft
            for name, values in zip(added, np.atleast_2d(soft.T), strict=True):
                frame[name] = values

    def written(self, frame: pd.DataFrame) -> Labelled:
        """What `write` put there, read back."""
        arrays: dict[str, Any] = {}
        for name, (array, dtype) in zip(self.names, self.arrays.items(), strict=True):
            if array == "label":
                codes = label_codes(frame[name], self.labels)
                arrays[array] = (codes if len(self.labels) > 2 else codes == 1).astype(dtype)
            else:
                arrays[array] = frame[name].to_numpy(dtype)
        added = list(self.own_columns())
        soft = frame[added[0] if len(added) == 1 else added].to_numpy(np.float64) if added else None
        return Labelled(Outcome(self, arrays), soft)

    def no_rows(self) -> Labelled:
        """The outcome of a set without rows."""
        empty = {name: np.empty(0, dtype) for name, dtype in self.arrays.items()}
        many = len(self.own_columns())
        soft = None if not many else np.empty(0) if many == 1 else np.empty((0, many))
        return Labelled(Outcome(self, empty), soft, np.empty(0))

    def training_target(self, labelled: Labelled) -> Any:
        """`y` as scikit-learn or lifelines take it beside the features of these rows."""
        return labelled.outcome[list(self.arrays)[-1]]

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


def as_written(labels: Sequence[Label], codes: Codes) -> pd.Series[Any]:
    """Codes as the table writes them."""
    written = np.empty(len(labels), object)
    written[:] = labels
    return pd.Series(written[codes.astype(int)]).infer_objects()


def label_codes(series: pd.Series[Any], labels: Sequence[Label]) -> Index:
    """A released column's labels as codes; text and numbers that read the same are the same, unknown ones are −1."""
    known = {str(label): code for code, label in enumerate(labels)}
    return series.map(lambda value: known.get(str(value), -1)).to_numpy(np.int64)
