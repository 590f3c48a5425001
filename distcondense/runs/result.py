"""`Result`: the condensed table in original units, what privacy it has, and how to hand it over."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.data.codec import design_of
from distcondense.data.schema import Schema
from distcondense.errors import SettingsError
from distcondense.privacy.accountant import Event, unite, with_earlier
from distcondense.privacy.ledger import read_events
from distcondense.privacy.statement import Privacy
from distcondense.runs.folder import RunFolder, write_json

RISK, WEIGHT = "risk", "weight"


@dataclass(frozen=True)
class Result:
    """What `condense` gives back.

    `frame` has the features in original units and categories, the outcome in the table's own labels, `risk` (binary
    outcomes: the soft label; the published method's labels are hard: 0 or 1) and `weight` (private: they add up to the
    noisy number of patients). Where a private run found no answer it has no rows; `privacy.answer` says why.
    """

    frame: pd.DataFrame
    schema: Schema  # of the features in `frame`
    outcome: tuple[str, ...]  # (target,) or (time, event)
    labels: tuple[Any, Any]  # how negative and positive are written
    privacy: Privacy
    soft: bool = False  # frame holds raw numbers, one column per category
    internal: dict[str, Any] = field(default_factory=dict, repr=False)  # run.json
    identity: dict[str, Any] = field(default_factory=dict, repr=False)
    earlier: tuple[Event, ...] = field(default=(), repr=False)  # what private runs before this one spent

    def training_data(self) -> tuple[pd.DataFrame, Any, np.ndarray]:
        """X, y, sample_weight for scikit-learn or lifelines; weights have mean 1.

        X is numeric, in original units, categories one-hot. Binary: y is 0/1 and a row with a soft label appears as a
        weighted pair. Survival: y is a frame with the time and the event (0/1).
        """
        X, weight = self._features(), self._weight()
        if len(self.outcome) == 2:
            return (
                X,
                pd.DataFrame({self.outcome[0]: self.frame[self.outcome[0]], self.outcome[1]: self._label()}),
                weight,
            )
        risk = self.frame[RISK].to_numpy(np.float64)
        both = pd.concat([X, X], ignore_index=True)
        y = np.repeat([0, 1], len(X))
        weights = np.concatenate([weight * (1 - risk), weight * risk])
        used = weights > 0
        return both[used].reset_index(drop=True), y[used], weights[used]

    def soft_data(self) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """X, risk, weight for models that take probabilities as labels (XGBoost, LightGBM), in persons as released.

        Better than pairs there: a booster that subsamples rows would tear a pair apart.
        """
        if len(self.outcome) == 2:
            raise SettingsError("soft_data", "is for binary outcomes", found="survival", fix="use training_data()")
        return self._features(), self.frame[RISK].to_numpy(np.float64), self.frame[WEIGHT].to_numpy(np.float64)

    def _features(self) -> pd.DataFrame:
        aside = [*self.outcome, WEIGHT, *([RISK] if RISK in self.frame else [])]
        features = self.frame.drop(columns=aside)
        return features.astype(np.float64) if self.soft else design_of(features, self.schema)

    def _weight(self) -> np.ndarray:
        weight = self.frame[WEIGHT].to_numpy(np.float64)
        return weight / weight.mean() if len(weight) else weight

    def _label(self) -> np.ndarray:
        return np.asarray((self.frame[self.outcome[-1]] == self.labels[1]).to_numpy(np.int64))

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the run folder: `release/` to hand over, `internal/` for the custodian only."""
        folder = RunFolder(Path(path))
        folder.claim(self.identity, resume=not force and not folder.finished and folder.internal.exists(), force=force)
        self.write(folder)
        return folder.path

    def write(self, folder: RunFolder) -> None:
        """Fill a folder that is already this run's; run.json comes last and marks it finished."""
        if self.privacy.guarantee == "end-to-end":
            self._bring_the_account(folder)
        folder.write_release(self._fill)
        folder.finish(self.internal)

    def _bring_the_account(self, folder: RunFolder) -> None:
        """The folder's ledger becomes this run's; what other runs spent, here or where it was made, stays counted."""
        own, there = self.privacy.events, read_events(folder.ledger)
        others = unite(self.earlier, folder.earlier_events(), there)
        if {event.run for event in there} != {event.run for event in own}:
            folder.replace_ledger(own)
        folder.account(others)
        assert self.privacy.delta is not None
        both = with_earlier(own, folder.earlier_events(), self.privacy.delta)
        object.__setattr__(self, "privacy", replace(self.privacy, epsilon_with_earlier_runs=both))

    def _fill(self, room: Path) -> None:
        parquet = self.frame.copy()
        for name in parquet.select_dtypes(object).columns:
            if len({type(v) for v in parquet[name].dropna()}) > 1:  # a Parquet column has one type
                parquet[name] = parquet[name].map(str, na_action="ignore")
        parquet.to_parquet(room / "condensed.parquet", index=False)
        self.frame.to_csv(room / "condensed.csv", index=False)
        (room / "schema.toml").write_text(self.schema.to_toml(), encoding="utf-8")
        write_json(room / "privacy.json", self.privacy.to_dict())


def check_outcome_names(names: tuple[str, ...], columns: list[str]) -> None:
    """`risk` and `weight` are our columns in the condensed table."""
    taken = sorted({RISK, WEIGHT} & {*names, *columns})
    if taken:
        raise SettingsError(
            "table", "must not use the names risk and weight", found=", ".join(taken), fix="rename the column"
        )
