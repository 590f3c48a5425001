"""What the private method asks of a kind of outcome: its objective, its own questions, and how rows get their labels.

`PrivateSide` is that view. It knows public facts only; everything it learns about patients comes as a noisy answer
through `PrivateQueries`, and is covered by the guarantee.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.errors import ModelError
from distcondense.outcomes.base import Kind, Labelled
from distcondense.privacy.contributions import Objective

if TYPE_CHECKING:
    from distcondense.models.additive import AdditiveModel


FAINT = 1e-9  # rows, where a histogram holds none
SHARE_RANGE = (0.05, 1.5)  # of a cell's hessian as its histogram leads to expect
SHARE_SPREAD = 0.5


class PrivateQueries(Protocol):
    """The gate with a plan: what a kind may ask, by the names it gave its questions."""

    @property
    def objective(self) -> Objective: ...

    def set_objective(self, objective: Objective) -> None:
        """A public step: the objective with what an answer told."""
        ...

    def shift(self, intercept: float | Floats) -> None:
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
class Clipped:
    """How many rows a column's bounds, which were found, left out: they became its lowest and highest value."""

    column: str
    below: float  # noisy rows
    above: float
    noise: tuple[float, float]  # standard deviations of both


@dataclass(frozen=True)
class PrivateFit:
    """Everything that left the gate, in usable form. All of it is covered by the guarantee."""

    model: AdditiveModel  # over the used columns
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
    clipped: tuple[Clipped, ...] = ()  # of columns whose bounds were found

    @property
    def overall(self) -> list[Floats]:
        """Per used column (cells,): cell probabilities of all groups together."""
        return pooled(self.marginals, self.shares)

    @property
    def informative(self) -> bool:
        """Whether there is an answer in this."""
        return not self.doubt


@dataclass(frozen=True)
class GroupCounts:
    """Rows of each group, counted before anything else."""

    rows: Floats  # (groups,) noisy
    noise: float  # standard deviation of each


class NewtonStep(NamedTuple):
    """What noisy sums say about a column's table; all (S, cells)."""

    precision: Floats
    information: Floats
    noise: Floats  # variance of the information that privacy noise makes
    hessian: Floats


class PrivateSide(ABC):
    """What the private method asks of a kind of outcome.

    A side is a frozen dataclass with the data below and two methods: `expected` and `label`. Everything else has a
    default, that of a kind with one score a row and classes as groups.

    **The sensitivity rule.** Patients are seen through `objective` alone. For every score and every target, one row's
    contributions (gradients and scaled hessians), and one row's part of each of its statistics, are vectors of
    Euclidean norm at most 1. The proof stands in the objective's docstring; a test tries thousands of rows against it.
    Numbers outside their public range are moved into it by `Objective.prepare`, never refused: an error would tell.

    Attributes
    ----------
    kind : Kind
        The kind of outcome this is the private side of.
    objective : Objective
        Before any answer (`privacy/contributions.py`).
    link : str
        What the private model's expectations are (`models/base.py: Link`).
    questions : dict of str to float
        Its own questions and their shares of μ², in the order in which they are asked.
    merged : int
        A merged cell holds at least a 1/(2·merged) share of the rows.
    grouping : str
        Columns are counted by these groups of the objective; records per class (IPC) counts rows of each.
    balanced : bool
        A set has as many rows of each stratum, of candidates that are drawn as often for each class; otherwise it has
        the strata as often as the population does.
    drifts : bool
        Scores may drift away together, so that gradients without features are those of the start.
    steady : bool
        The hessian does not change between rounds, so that their answers are averaged.
    effect : str
        What a table's entries add to, in words.
    unit : float
        Students see the outcome divided by this.
    public : tuple of str
        What the guarantee takes as known besides the schema.
    """

    kind: Kind
    objective: Objective
    link: str
    questions: ClassVar[Mapping[str, float]]
    merged: int = 256
    grouping: str = "label"
    balanced: bool = True
    drifts: bool = False
    steady: bool = False
    effect: str = "score"
    unit: float = 1.0
    public: tuple[str, ...] = ()

    @property
    def groups(self) -> int:
        """How many groups of rows columns are counted by."""
        return self.objective.groupings[self.grouping]

    # -- fitting

    def begin(self, ask: PrivateQueries) -> Mapping[str, Any]:
        """Ask what must be known before anything else; what it keeps of the answers.

        The fit itself reads, where they are there: `counted` (GroupCounts), `rows` (noisy number), `started` (the
        score all rows were shifted to), `dispersion` (variance of a row's gradient over its hessian, 1 if not said),
        and `centre` and `unit` (of an outcome that is fitted in units of its own).
        """
        return {}

    def intercept(self, shares: Floats) -> float | Floats:
        """Where the score of every row starts, from the groups' shares: a number, or (S,)."""
        return 0.0

    def newton(self, G: Floats, H: Floats) -> Floats:
        """The step that would make each cell's noisy gradient 0; 0 where its noisy hessian is. All (S, …, cells)."""
        return np.divide(-G, H, out=np.zeros_like(G), where=H > 0)

    def histogram_step(
        self, held: Floats, noise: Floats, shares: Floats, table: Floats, facts: Mapping[str, Any]
    ) -> NewtonStep | None:
        """Newton's step from `table` (S, cells) on the histograms alone, which were asked anyway; None: no step.

        `held` (groups, cells) are noisy numbers of rows, `noise` (cells,) their variances. What a column says alone is
        where rounds begin: with a class that is naive Bayes, and on a small table most of what can be known.
        """
        return None

    def hessian(self, H: Floats, look: NewtonStep | None, noise: float) -> Floats:
        """(S, cells) noisy sums of hessians as they are believed, of noise with this standard deviation.

        `look` is what the column's histograms said.
        """
        return np.maximum(H, 0.0)

    def settled(self, table: Floats, facts: Mapping[str, Any] = MappingProxyType({})) -> Floats:
        """(S, cells) a column's table with what says nothing taken out of it. `facts`: what the kind was told."""
        return table

    def after_round(self, ask: PrivateQueries, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Ask what a round has changed; the facts with what that told."""
        return facts

    def completed(self, learned: PrivateFit) -> PrivateFit:
        """The fit with what follows from all answers together; asks nothing."""
        return learned

    def least_share(self, shares: Floats) -> float:
        """The share of rows without which there is nothing to learn: all but the largest group."""
        return float(1 - shares.max())

    # -- what the model says

    @abstractmethod
    def expected(self, margin: Floats) -> Floats:
        """Margins (n,) or (n, S) → soft labels of the same shape: what is expected of a row."""

    def predict(self, margin: Floats) -> Any:
        """What `PrivateModel.predict` says of rows with these margins: the likelier class, or what is expected."""
        return self.expected(margin)

    def probabilities(self, margin: Floats) -> Floats:
        """(n, classes) for `PrivateModel.predict_proba`."""
        raise _no_such_answer("probabilities of classes")

    def survival(self, margin: Floats, learned: PrivateFit, times: Floats) -> Floats:
        """(n, times) for `PrivateModel.predict_survival_function`."""
        raise _no_such_answer("a survival function")

    def curve(self, learned: PrivateFit) -> tuple[Floats, Floats] | None:
        """(times, share of all rows without the event after each), where the outcome is a time to an event."""
        return None

    # -- placing rows

    @abstractmethod
    def label(self, learned: PrivateFit, codes: Index, at: Floats, rows: int) -> Labelled:
        """Labels of candidates, each on its own: cells (n, d), a uniform of each (n,), and how many rows are wanted."""

    def strata(self, labelled: Labelled) -> Index:
        """(n,) a row is exchanged for one of its stratum only."""
        return self.kind.strata(labelled.outcome)

    def student_labels(self, labelled: Labelled) -> tuple[Floats, Floats | None]:
        """(n, S) plain labels and soft ones, as numbers for the students of `methods/private/students.py`."""
        plain, soft = self.kind.as_soft(labelled.outcome), labelled.soft
        return np.atleast_2d(plain.T).T, None if soft is None else np.atleast_2d(soft.T).T

    def weighted(self, learned: PrivateFit, labelled: Labelled) -> Labelled:
        """With weights that add up to the noisy number of rows and restore what the population is like."""
        m = len(labelled.outcome)
        return replace(labelled, weight=np.full(m, learned.rows / max(m, 1)))


def pooled(marginals: Sequence[Floats], shares: Floats) -> list[Floats]:
    """Per column: the groups' cell probabilities, weighted by the groups' shares."""
    out = []
    for by_group in marginals:
        total = shares[0] * by_group[0]
        for share, cells in zip(shares[1:], by_group[1:], strict=True):
            total = total + share * cells
        out.append(total)
    return out


def newton_step(
    apart: Floats, slope: Floats, own: Floats, varies: Floats, table: Floats, part: float = 1.0
) -> NewtonStep:
    """Newton's step of sums (S, cells) that are seen `apart` from what `table` leads to expect.

    `slope` is by how much these grow with the table, `own` the variance of their noise, `varies` that of patients.
    """
    variance = own + varies
    precision = slope * slope / variance
    return NewtonStep(precision, precision * table + part * slope / variance * apart, precision * own / variance, slope)


def shaped(H: Floats, expected: Floats, noise: float) -> Floats:
    """(S, cells) noisy sums of hessians as they are believed, of noise with this standard deviation.

    A cell of few rows, or of few of a rare class, holds less than the noise is large, and a noisy sum would be taken
    for certainty. Histograms say how many rows a cell holds, of which H is about a share, the same in all cells, as
    they lead to expect. The noisy sums say which share, and how far cells differ from it beyond their noise: so far,
    and no further, they are believed.
    """
    shape = np.maximum(expected, FAINT)
    size = (shape**2).sum(axis=1, keepdims=True)
    precision = size / noise**2  # of the share, against a prior of 1 ± SHARE_SPREAD
    share = np.clip((H * shape).sum(axis=1, keepdims=True) / size, *SHARE_RANGE)
    share = (share * precision + SHARE_SPREAD**-2) / (precision + SHARE_SPREAD**-2)
    alike = share * shape
    apart = np.maximum(((H - alike) ** 2 - noise**2).sum(axis=1, keepdims=True), 0.0)
    varies = apart / (alike**2).sum(axis=1, keepdims=True) * alike**2
    return np.maximum(alike + varies / (varies + noise**2) * (H - alike), 0.0)


def present(held: Floats, noise: Floats) -> Floats:
    """(cells,) rows of all groups, at least a standard deviation of their noise: a noisy zero is not believed."""
    return np.maximum(held.sum(0), np.sqrt(len(held) * noise))


def without_invented(counts: Floats) -> Floats:
    """Noisy counts → shares, none below 0: what clipping noise at 0 would invent is taken off everywhere alike."""
    total, low, high = max(float(counts.sum()), 1.0), 0.0, max(float(counts.max()), 1.0)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(counts - middle, 0.0).sum() > total else (low, middle)
    left = np.maximum(counts - low, 0.0) + 1e-9
    return np.asarray(left / left.sum(), np.float64)


def shared(rows: int, share: Floats) -> Index:
    """(k,) whole numbers that add up to `rows`, in proportion."""
    reached = np.round(np.cumsum(share) / np.sum(share) * rows).astype(np.int64)
    return np.diff(np.concatenate([[0], reached]))


def restoring(label: Index, shares: Floats, rows: float) -> Floats:
    """(m,) weights under which each class has its share, and which add up to `rows`; classes without rows are left."""
    there = np.bincount(label, minlength=len(shares))
    share = np.where(there > 0, shares, 0.0)
    return np.asarray(rows * (share / share.sum() / np.maximum(there, 1))[label], np.float64)


def _no_such_answer(what: str) -> ModelError:
    return ModelError(
        "PrivateModel",
        "has no such answer for this kind of outcome",
        found=f"{what} asked",
        fix="use predict, or decision_function",
    )
