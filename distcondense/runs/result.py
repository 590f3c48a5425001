"""`Result`: a condensed set in original units, what privacy it has, and how to hand it over. `Results`: several.

A method returns one with `details`, from which the run is measured and recorded; `condense` puts the record in their
place. A pickle or a copy of a result holds what may be released and nothing that was computed on patients: neither the
run's record (exact numbers of rows, scores) nor its identity (a digest of the data).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.codec import Codec
from distcondense.data.dates import with_dates
from distcondense.data.persons import Splitting
from distcondense.data.reserved import WEIGHT
from distcondense.data.schema import Schema
from distcondense.errors import RunFolderError, SettingsError, brief
from distcondense.models.base import Model
from distcondense.models.learners import Learner
from distcondense.outcomes.base import WEIGHTS, Kind, Labelled
from distcondense.privacy.events import Event
from distcondense.privacy.odometer import Odometer
from distcondense.privacy.statement import Privacy
from distcondense.runs.figures import Figure
from distcondense.runs.release import TABLE, ReleaseInfo, label_frame, table_names
from distcondense.runs.sampling import Sampler, Where, sampled

if TYPE_CHECKING:
    from distcondense.data.encoder import FeatureEncoder

SHOWN = 5  # rows in a notebook


@dataclass(frozen=True, repr=False)
class RunDetails:
    """What a method tells of a set beside what is released: for the run's own evaluation and record, in memory only.

    `encoded` are the very rows that models are fitted to, where they are not just the features; `reference` is the
    model that was condensed against, which is a score of its own where the guarantee covers it, else the model of all
    training rows.
    """

    features: pd.DataFrame  # (m, columns) in original units; encoded columns where the result is `raw`
    labelled: Labelled  # the outcome, soft labels, weights
    splitting: Splitting  # which persons were for what
    notes: Mapping[str, Any] = field(default_factory=dict)  # for run.json
    timings: dict[str, float] = field(default_factory=dict)  # seconds
    codec: Codec | None = None  # of `encoded`; fitted to the training rows where none is given
    encoded: Matrix | None = None  # (m, d) float32
    learner: Learner | None = None  # what students are; the outcome's default where none is given
    reference: Model | None = None
    reference_covered: bool = False
    others: tuple[
        tuple[Learner, Model | None], ...
    ] = ()  # further references' learners, and their models of all training rows
    unit: float = 1.0  # of time, as models see it
    figures: tuple[Figure, ...] = ()  # to show to the custodian: not covered


def table_of(features: pd.DataFrame, schema: Schema, kind: Kind, labelled: Labelled) -> pd.DataFrame:
    """The condensed table: features, the outcome in the table's own labels, soft labels, weights."""
    frame = with_dates(features.copy(), schema)
    kind.write(frame, labelled)
    frame[WEIGHT] = 1.0 if labelled.weight is None else labelled.weight
    return frame


def schema_of(features: Schema, kind: Kind) -> Schema:
    """The condensed table's: the features, and what the columns beside them mean."""
    return replace(features.released, outcome=kind.outcome_columns(), added=(*kind.added_columns(), WEIGHTS))


def released_order(rows: int) -> Index:
    """How so many rows are shuffled, always alike.

    Methods give them class by class; whoever looks at the first twenty, or splits a table as it stands, should see all.
    """
    return np.random.default_rng(0x0DE4).permutation(rows)


def labelled_of(frame: pd.DataFrame, kind: Kind) -> Labelled:
    """The outcome, soft labels and weights of a condensed table."""
    return replace(kind.written(frame), weight=frame[WEIGHT].to_numpy(np.float64))


@dataclass(frozen=True, repr=False)
class Result:
    """A condensed set: what `condense` gives back.

    Where a private run found no answer it has no rows; `privacy.answer` says why. A pickle holds the release side only.

    Attributes
    ----------
    frame : DataFrame
        Features in original units and categories, the outcome in the table's own labels, then our own columns: soft
        labels where the kind of outcome has them (binary: `distcondense_risk`) and `distcondense_weight` (private: they
        add up to the noisy number of rows).
    schema : Schema
        Of the features, of the outcome and of our own columns.
    kind : Kind
        Of outcome.
    privacy : Privacy
        ε, δ, the guarantee by name, whose presence is protected, and the ledger.
    record : dict
        How the run was made and its scores, as in run.json: computed on patients, for the custodian.

    Examples
    --------
    >>> import distcondense as dc
    >>> from distcondense.data.datasets import load
    >>> data = load("breast_cancer")
    >>> cohort = dc.Cohort.from_frame(data.frame, **data.how)
    >>> result = dc.condense(cohort, method="published", ipc=5, steps=5, noise=False)
    >>> len(result.frame), result.privacy.guarantee
    (10, 'none')
    >>> list(result.frame.columns[-1:])
    ['distcondense_weight']
    """

    frame: pd.DataFrame
    schema: Schema  # of the features in `frame`, and apart from them of its outcome and of our own columns
    kind: Kind  # of outcome
    privacy: Privacy
    raw: bool = False  # frame holds raw numbers, one column per category
    internal: dict[str, Any] = field(default_factory=dict, repr=False)  # run.json
    identity: dict[str, Any] = field(default_factory=dict, repr=False)
    earlier: tuple[Event, ...] = field(default=(), repr=False)  # what private runs before this one spent
    accounts: tuple[Odometer, ...] = field(default=(), repr=False)  # that its run was charged to
    covered: Mapping[str, tuple[Figure, ...]] = field(default_factory=dict, repr=False)  # what its method has to show
    sampler: Sampler | None = field(default=None, repr=False)  # of what left the gate, where its method can draw more
    info: ReleaseInfo = field(default=ReleaseInfo(), repr=False)  # what the custodian says of it, for catalogues
    details: RunDetails | None = field(default=None, repr=False)  # of a method's own result, until it has a record

    def __post_init__(self) -> None:
        label_frame(self.frame, self.privacy)

    def with_details(self, **changes: Any) -> Result:
        """The same with other details."""
        assert self.details is not None
        return replace(self, details=replace(self.details, **changes))

    def __getstate__(self) -> dict[str, Any]:
        """The release side only: pickles travel."""
        return {**self.__dict__, "internal": {}, "identity": {}, "accounts": (), "details": None}

    @classmethod
    def from_rows(
        cls,
        features: pd.DataFrame,
        schema: Schema,
        labelled: Labelled,
        privacy: Privacy,
        splitting: Splitting,
        *,
        raw: bool = False,
        shuffle: bool = True,
        covered: Mapping[str, tuple[Figure, ...]] | None = None,
        sampler: Sampler | None = None,
        **details: Any,
    ) -> Result:
        """A method's condensed set: features in original units with their schema, and their outcome.

        Rows are shuffled unless `shuffle` is false. `details` are further fields of `RunDetails`; none of them must be
        given.
        """
        kind: Kind = labelled.outcome.kind
        if shuffle:
            order = released_order(len(features))
            features, labelled = features.iloc[order].reset_index(drop=True), labelled.take(order)
            if (encoded := details.get("encoded")) is not None:
                details["encoded"] = encoded[order]
        return cls(
            frame=table_of(features, schema, kind, labelled),
            schema=schema_of(schema, kind),
            kind=kind,
            privacy=privacy,
            raw=raw,
            covered=covered or {},
            sampler=sampler,
            details=RunDetails(features, labelled, splitting, **details),
        )

    @property
    def record(self) -> dict[str, Any]:
        """run.json: computed on patients, for the custodian; an error where this result came out of a pickle."""
        if not self.internal:
            raise SettingsError(
                "result",
                "must have the record of its run",
                found="one that was pickled or copied, which holds the release side only",
                fix="use the result that dc.condense gave back, or its run folder",
            )
        return self.internal

    @property
    def outcome(self) -> tuple[str, ...]:
        """Names of the outcome's columns."""
        return self.kind.names

    def training_data(self) -> tuple[pd.DataFrame, Any, Floats]:
        """X, y, sample_weight for scikit-learn or lifelines; weights have mean 1.

        X is numeric, in original units, categories one-hot. y is the plain outcome: 0/1, a class, or a frame with the
        time and the event (0/1); of a number what is expected. Weights restore the population: the prevalence of each
        class; a model that only ranks patients needs none.
        """
        labelled = self._labelled()
        assert labelled.weight is not None
        mean = labelled.weight.mean() if len(labelled.weight) else 1.0
        return self._features(), self.kind.training_target(labelled), labelled.weight / mean

    def soft_data(self) -> tuple[pd.DataFrame, Floats, Floats]:
        """X, soft labels, weights (in persons, as released) for models that take expectations as labels.

        Binary: probabilities of yes, for XGBoost and LightGBM. Several classes: (m, K) probabilities. Continuous:
        expected values.
        """
        labelled = self._labelled()
        if labelled.soft is None:
            raise SettingsError(
                "soft_data",
                "is for outcomes with soft labels",
                found=f"a {self.kind.name} outcome",
                fix="use training_data()",
            )
        assert labelled.weight is not None
        return self._features(), labelled.soft, labelled.weight

    def sample(self, rows: int, where: Where | None = None, *, seed: int = 0) -> pd.DataFrame:
        """Further rows as the population has them, all or some of them, at no cost: no patient is read.

        They are drawn from the noisy answers that the run has paid for, so the same guarantee covers them; they are not
        chosen to teach, as the released ones are. A condition on few patients gives rows about whom little is known.

        Parameters
        ----------
        rows : int
            How many.
        where : dict, optional
            What they must fulfil: column → a category or several, a number, a lowest and a highest one, or None for an
            empty cell. Columns of the outcome are columns too.
        seed : int
            The same seed gives the same rows.

        Returns
        -------
        DataFrame
            With the columns of `frame`; weights add up to how many real rows fulfil `where`, by noisy answers.

        Examples
        --------
        >>> import distcondense as dc
        >>> from distcondense.data.datasets import load
        >>> data = load("breast_cancer")
        >>> cohort = dc.Cohort.from_frame(data.frame, **data.how)
        >>> result = dc.condense(cohort, ipc=5, epsilon=5.0)
        >>> some = result.sample(50, where={"mean_radius": (15, 25)}, seed=1)
        >>> len(some), bool(some["mean_radius"].between(15, 25).all())
        (50, True)
        """
        if self.sampler is None:
            raise SettingsError(
                "sample",
                "is for runs whose method keeps what left the gate",
                found="no answer" if self.privacy.answer else f"method {self.privacy.method}",
                fix="use the rows that it has, or condense with a method that can draw more",
            )
        columns = {column.name: column for column in (*self.schema.columns, *self.schema.outcome)}
        frame = sampled(self.sampler, columns, rows, where, seed)[list(self.frame.columns)]
        label_frame(frame, self.privacy)
        return frame

    def score(self, table: Any, *, student: str | None = None) -> float:
        """How well a model of these rows does on real ones: AUROC, macro AUROC, C-index or R², as of the outcome.

        It is computed on patients, outside the guarantee: for whoever holds them. `dc.evaluate` has more measures, with
        their intervals, beside models of real rows.

        Parameters
        ----------
        table : DataFrame
            Patients whom the run did not see, features and outcome; numbers beyond the schema's bounds count as the
            nearest legal ones.
        student : str, optional
            A learner of the outcome's kind ("xgb", "logistic", "cox", …); its first if not given.

        Examples
        --------
        >>> import distcondense as dc
        >>> from distcondense.data.datasets import load
        >>> data = load("breast_cancer")
        >>> result = dc.condense(data.frame[:400], **data.how, rows=40, epsilon=5.0)
        >>> result.score(data.frame[400:], student="logistic") > 0.8
        True
        """
        score_on = import_module("distcondense.evaluation.quick").score_on  # a package above this one
        return float(score_on(self, table, student))

    def _labelled(self) -> Labelled:
        return labelled_of(self.frame, self.kind)

    def _features(self) -> pd.DataFrame:
        features = self._released_features()
        return features.astype(np.float64) if self.raw else self.encoder.transform(features)

    def _released_features(self) -> pd.DataFrame:
        return self.frame.drop(columns=[*self.outcome, *self.kind.own_columns(), WEIGHT])

    @property
    def encoder(self) -> FeatureEncoder:
        """A scikit-learn transformer of patients' features to the columns of `training_data()`.

        It knows the schema alone. Codes for missing must be holes already: a release does not name them.
        """
        from distcondense.data.encoder import FeatureEncoder

        return FeatureEncoder(self.schema.features, tuple(map(str, self._released_features())) if self.raw else None)

    def plot(self, which: str = "model") -> NDArray[Any]:
        """What the release page draws, as matplotlib axes: one for each figure.

        Parameters
        ----------
        which : {"model", "marginals", "pairs", "trade_off"}
            What columns add, columns as measured, pairs of them, what any test of membership can do. A result that was
            read from a release has its statement and its rows, hence the last alone.

        Returns
        -------
        array of matplotlib.axes.Axes
        """
        plotted = import_module("distcondense.report.plots").plotted  # a package above this one, as the pages are
        return plotted(self, which)  # type: ignore[no-any-return]

    @classmethod
    def load(cls, folder: str | Path, *, ipc: int | None = None) -> Result:
        """A finished run's set, or what a recipient has of it: a run folder, or its `release/` alone.

        `ipc` says which of several sets.

        Raises
        ------
        RunFolderError
            Where it is none, was changed since, or holds several sets (`dc.load` reads those).
        """
        from distcondense.runs.reading import load

        found = load(folder)
        if not isinstance(found, Results):
            return found
        if ipc is None:
            raise RunFolderError(
                f"folder {brief(folder)}", "must hold one set", found=f"{len(found)}", fix="dc.load, or say ipc="
            )
        if ipc not in found:
            raise RunFolderError("ipc", f"must be one of {', '.join(map(str, found))}", found=brief(ipc))
        return found[ipc]

    def __repr__(self) -> str:
        """The rows' number and the guarantee; some rows too, where the guarantee covers them."""
        return "\n".join([self._summary(), *([self.frame.head(SHOWN).to_string()] if self._may_show else [])])

    def _repr_html_(self) -> str:
        rows = self.frame.head(SHOWN).to_html() if self._may_show else ""
        return f"<p>{escape(self._summary())}</p>{rows}"

    @property
    def _may_show(self) -> bool:
        """Rows that are not covered may be near a patient's: a notebook is not the place."""
        return self.privacy.charged and len(self.frame) > 0

    def _summary(self) -> str:
        many, outcome = f"{len(self.frame):,} synthetic rows", " and ".join(map(repr, self.outcome))
        columns = f"{len(self._released_features().columns)} columns and {outcome} ({self.kind.name})"
        said = f"Result({many} of {columns}; {self.privacy.short()})"
        if self.privacy.answer:
            return f"{said}: {self.privacy.answer}"
        return said

    @property
    def tables(self) -> dict[str, Result]:
        """The sets of its run by the names of their tables: this one."""
        return {TABLE: self}

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the run folder: `release/` to hand over, `internal/` for the custodian only."""
        from distcondense.runs.saving import save

        return save(self, path, force=force)


@dataclass(frozen=True, repr=False)
class Results(Mapping[int, Result]):
    """What `condense` gives back where several IPC are asked for: {IPC: `Result`}, in the order asked.

    All sets come from one read of the patients: one ledger, one split, and one ε that covers all of them together.

    Attributes
    ----------
    sets : dict of int to Result
        By records per class.
    privacy : Privacy
        One statement for all of them.

    Examples
    --------
    >>> import distcondense as dc
    >>> from distcondense.data.datasets import load
    >>> data = load("breast_cancer")
    >>> cohort = dc.Cohort.from_frame(data.frame, **data.how)
    >>> results = dc.condense(cohort, ipc=[3, 5], epsilon=5.0)
    >>> {ipc: len(result.frame) for ipc, result in results.items()}
    {3: 6, 5: 10}
    """

    sets: dict[int, Result]
    internal: dict[str, Any] = field(default_factory=dict, repr=False)  # run.json

    def __getitem__(self, ipc: int) -> Result:
        return self.sets[ipc]

    def __iter__(self) -> Iterator[int]:
        return iter(self.sets)

    def __len__(self) -> int:
        return len(self.sets)

    def __getstate__(self) -> dict[str, Any]:
        """The release side only, as of each result."""
        return {**self.__dict__, "internal": {}}

    def __repr__(self) -> str:
        return "\n".join(["Results:", *(f"IPC {ipc}: {one._summary()}" for ipc, one in self.sets.items())])

    @property
    def _any(self) -> Result:
        """For what all of them share."""
        return next(iter(self.sets.values()))

    @property
    def privacy(self) -> Privacy:
        return self._any.privacy

    @property
    def record(self) -> dict[str, Any]:
        """run.json, as of a result; the scores of each set are in `sets`."""
        self._any.record  # noqa: B018  (refused where it came out of a pickle)
        return self.internal

    @property
    def identity(self) -> dict[str, Any]:
        return self._any.identity

    @property
    def tables(self) -> dict[str, Result]:
        """The sets by the names of their tables."""
        return {name: self.sets[ipc] for ipc, name in table_names(self.sets).items()}

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write one run folder with all sets: one schema and one statement, a table of each IPC."""
        from distcondense.runs.saving import save

        return save(self, path, force=force)
