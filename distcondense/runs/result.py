"""`Result`: the condensed table in original units, what privacy it has, and how to hand it over. `Results`: several.

A pickle or a copy of a result holds what may be released and nothing that was computed on patients: neither the run's
record (exact numbers of rows, scores) nor its identity (a digest of the data).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats
from distcondense.data.codec import design_of
from distcondense.data.dates import with_dates
from distcondense.data.features import check_features
from distcondense.data.reserved import WEIGHT
from distcondense.data.schema import Schema
from distcondense.errors import RunFolderError, SettingsError, UserError, brief, need, os_errors
from distcondense.outcomes.base import WEIGHTS, Kind, Labelled
from distcondense.outside import parse_json, read_text
from distcondense.privacy.accountant import advantage_with_earlier, unite, with_earlier
from distcondense.privacy.binding import STATEMENT, unbound
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import read_events
from distcondense.privacy.statement import Privacy
from distcondense.runs.figures import Figure
from distcondense.runs.folder import RunFolder
from distcondense.runs.release import SCHEMA, TABLE, label_frame, table_names, write_release

# a file's name → how its text is made of all sets of a run, by their tables' names; None: there is nothing to say
Papers = Mapping[str, Callable[[Mapping[str, "Result"]], str | None]]


def table_of(features: pd.DataFrame, schema: Schema, kind: Kind, labelled: Labelled) -> pd.DataFrame:
    """The condensed table: features, the outcome in the table's own labels, soft labels, weights."""
    frame = with_dates(features.copy(), schema)
    kind.write(frame, labelled)
    frame[WEIGHT] = 1.0 if labelled.weight is None else labelled.weight
    return frame


def schema_of(features: Schema, kind: Kind) -> Schema:
    """The condensed table's: the features, and what the columns beside them mean."""
    return replace(features.released, outcome=kind.outcome_columns(), added=(*kind.added_columns(), WEIGHTS))


def labelled_of(frame: pd.DataFrame, kind: Kind) -> Labelled:
    """The outcome, soft labels and weights of a condensed table."""
    return replace(kind.written(frame), weight=frame[WEIGHT].to_numpy(np.float64))


@dataclass(frozen=True)
class Result:
    """What `condense` gives back.

    `frame` has the features in original units and categories, the outcome in the table's own labels, soft labels where
    the kind of outcome has them (binary: `distcondense_risk`) and `distcondense_weight` (private: they add up to the
    noisy number of rows). Our own columns stand last.
    Where a private run found no answer it has no rows; `privacy.answer` says why.
    """

    frame: pd.DataFrame
    schema: Schema  # of the features in `frame`, and apart from them of its outcome and of our own columns
    kind: Kind  # of outcome
    privacy: Privacy
    raw: bool = False  # frame holds raw numbers, one column per category
    internal: dict[str, Any] = field(default_factory=dict, repr=False)  # run.json
    identity: dict[str, Any] = field(default_factory=dict, repr=False)
    earlier: tuple[Event, ...] = field(default=(), repr=False)  # what private runs before this one spent
    covered: Mapping[str, tuple[Figure, ...]] = field(default_factory=dict, repr=False)  # what its method has to show
    papers: Papers = field(default_factory=dict, repr=False)  # how what explains it is made

    def __post_init__(self) -> None:
        label_frame(self.frame, self.privacy)

    def __getstate__(self) -> dict[str, Any]:
        """The release side only: pickles travel."""
        return {**self.__dict__, "internal": {}, "identity": {}}

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

    def _labelled(self) -> Labelled:
        return labelled_of(self.frame, self.kind)

    def _features(self) -> pd.DataFrame:
        features = self.frame.drop(columns=[*self.outcome, *self.kind.own_columns(), WEIGHT])
        return (
            features.astype(np.float64) if self.raw else design_of(check_features(features, self.schema), self.schema)
        )

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the run folder: `release/` to hand over, `internal/` for the custodian only."""
        self.record  # noqa: B018  (refused before a folder is made)
        folder = _claimed(path, self.identity, force=force)
        self.write(folder)
        return folder.path

    def write(self, folder: RunFolder) -> list[str]:
        """Fill a folder that is already this run's, run.json last, which marks it finished; what could not be made."""
        return _write(folder, {TABLE: self}, self.internal)


@dataclass(frozen=True)
class Results(Mapping[int, Result]):
    """What `condense` gives back where several IPC are asked for: {IPC: `Result`}, in the order asked.

    All sets come from one read of the patients: one ledger, one split, and one ε that covers all of them together.
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

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write one run folder with all sets: one schema and one statement, a table of each IPC."""
        record = self.record
        folder = _claimed(path, self._any.identity, force=force)
        _write(folder, self._named(), record)
        return folder.path

    def write(self, folder: RunFolder) -> list[str]:
        """Fill a folder that is already this run's. What could not be made."""
        return _write(folder, self._named(), self.internal)

    def _named(self) -> dict[str, Result]:
        return {name: self.sets[ipc] for ipc, name in table_names(self.sets).items()}


def _claimed(path: str | Path, identity: dict[str, Any], *, force: bool) -> RunFolder:
    need(path, (str, Path), "path", "a path")
    folder = RunFolder(Path(path))
    with os_errors(f"run folder {brief(path)}", "must be readable and writable", RunFolderError):
        begun = not folder.finished and folder.internal.exists()
    folder.claim(identity, resume=not force and begun, force=force)
    return folder


def _write(folder: RunFolder, sets: Mapping[str, Result], record: dict[str, Any]) -> list[str]:
    """Tables by their names, all of one run; what of the papers could not be made."""
    first = next(iter(sets.values()))
    if first.privacy.charged:
        counted = _bring_the_account(first, folder)
        for one in sets.values():
            object.__setattr__(one, "privacy", counted)
            label_frame(one.frame, counted)
    frames = {} if first.privacy.answer else {name: one.frame for name, one in sets.items()}
    papers, failed = _papers(sets)
    record = {**record, "warnings": [*record.get("warnings", ()), *failed]} if failed else record
    folder.write_release(lambda room: write_release(room, frames, first.schema.to_toml(), first.privacy, papers))
    folder.finish(record)
    return failed


def _papers(sets: Mapping[str, Result]) -> tuple[dict[str, str], list[str]]:
    """What explains a release, and what could not be made: a budget that is spent is not lost for a page."""
    made, failed = {}, []
    for name, make in next(iter(sets.values())).papers.items():
        try:
            text = make(sets)
        except Exception as error:  # names and units of columns are anybody's text, bounds anybody's numbers
            failed.append(f"no {name}: {type(error).__name__}")
            continue
        if text is not None:
            made[name] = text
    return made, failed


def read_back(folder: RunFolder, kind: Kind) -> dict[str, Result]:
    """The sets of a finished run by their tables' names, from its folder."""
    try:
        return _read_back(folder, kind)
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OSError, StopIteration) as error:  # Arrow's are among them
        raise RunFolderError(
            f"run folder {brief(folder.path)}",
            "must hold what a finished run wrote",
            found=type(error).__name__,
            fix="restore it from a backup, or condense again",
        ) from None


def _read_back(folder: RunFolder, kind: Kind) -> dict[str, Result]:
    record, stated = folder.record(), _statement(folder)
    ipcs = [one["ipc"] for one in record.get("sets", [record])]
    privacy = Privacy.from_dict(stated)
    privacy = replace(privacy, trade_off=tuple((a, b) for a, b in privacy.trade_off))
    schema, out = Schema.from_toml(folder.release / SCHEMA), {}
    for ipc, name in table_names(ipcs).items():
        own = next(one for one in record.get("sets", [record]) if one["ipc"] == ipc)
        out[name] = Result(
            frame=_no_rows(schema, kind) if privacy.answer else pd.read_parquet(folder.release / f"{name}.parquet"),
            schema=schema,
            kind=kind,
            privacy=privacy,
            raw=record["raw"],
            internal={**record, **own},
        )
    return out


def _no_rows(schema: Schema, kind: Kind) -> pd.DataFrame:
    """The table of a run that found no answer, which is not written."""
    return pd.DataFrame(columns=[*schema.names, *kind.names, *kind.own_columns(), WEIGHT])


def _statement(folder: RunFolder) -> dict[str, Any]:
    """privacy.json, whose digest and whose files must be as the run wrote them."""
    stated = parse_json(read_text(folder.release / STATEMENT, STATEMENT, RunFolderError))
    if wrong := unbound(stated, folder.release, whole=False)[0]:
        raise RunFolderError(
            f"run folder {brief(folder.path)}",
            "release/ must be as the run wrote it",
            found=brief(wrong[0]),
            fix="restore it from a backup, or condense again",
        )
    return dict(stated)


def _bring_the_account(result: Result, folder: RunFolder) -> Privacy:
    """The folder's ledger becomes this run's; what other runs spent, here or where it was made, is counted."""
    own, there = result.privacy.events, read_events(folder.ledger)
    others = unite(result.earlier, folder.earlier_events(), there)
    if {event.run for event in there} != {event.run for event in own}:
        folder.replace_ledger(own)
    folder.account(others)
    assert result.privacy.delta is not None
    earlier = folder.earlier_events()
    both = with_earlier(own, earlier, result.privacy.delta)
    return replace(
        result.privacy,
        epsilon_with_earlier_runs=both,
        advantage_with_earlier_runs=advantage_with_earlier(own, earlier, both),
    )
