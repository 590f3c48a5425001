"""The protocol every fitted model satisfies, and the plain models that belong to no library.

Optional attributes unlock faster paths of `jacobian`: `ensemble` (a flat `TreeEnsemble`) the sparse walk,
`coefficients` the closed form of a linear score. A model that has neither is a black box, and that is fine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from distcondense import kernels
from distcondense.arrays import Matrix
from distcondense.errors import ModelError
from distcondense.kernels.ensemble import TreeEnsemble

Link = str  # what a score is; a kind of outcome names its learners' links ("probability", "log-risk", "value", …)
Rows = Matrix
Scores = Matrix  # (k,), or (k, S) where a model has several scores a row


@runtime_checkable
class Model(Protocol):
    """A fitted model f seen only through its scores: a reference to condense against, or a student of condensed rows.

    `link` says what f(x) is: "probability" P(y=1), "log-risk" (Cox), "log-time" (AFT), …
    """

    @property
    def name(self) -> str: ...

    @property
    def link(self) -> Link: ...

    @property
    def n_features(self) -> int: ...

    def scores(self, rows: Rows) -> Scores:
        """f for each row; (k, d) float32 in, (k,) or (k, S) float32 out."""
        ...


@dataclass(frozen=True)
class BlackBox:
    """Any callable rows → scores: (k, d) float32 in, one finite number per row out.

    Raises
    ------
    ModelError
        By `scores`, if the callable returns anything else.
    """

    function: Callable[[Rows], object]
    link: Link
    n_features: int
    name: str = "black box"

    def scores(self, rows: Rows) -> Scores:
        answer = np.asarray(self.function(rows), dtype=np.float32)
        if answer.shape != (len(rows),):
            raise ModelError(
                f"reference model {self.name!r}",
                "must return one score per row",
                found=f"shape {answer.shape} for {len(rows)} rows",
                fix="return a one-dimensional array, e.g. model.predict_proba(rows)[:, 1]",
            )
        if not np.isfinite(answer).all():
            raise ModelError(
                f"reference model {self.name!r}",
                "must return finite scores",
                found=f"{np.count_nonzero(~np.isfinite(answer))} scores that are NaN or infinite",
                fix="check the model on standardised inputs; clip or refit it",
            )
        return answer


@dataclass(frozen=True)
class EnsembleModel:
    """A flat ensemble scored by our own walk: moved trees, or a private model's tables, which no library knows."""

    name: str
    link: Link
    ensemble: TreeEnsemble
    threads: int = 1

    @property
    def n_features(self) -> int:
        return self.ensemble.n_features

    def scores(self, rows: Rows) -> Scores:
        return kernels.scores(self.ensemble, rows, self.threads)


@dataclass(frozen=True)
class LinearModel:
    """A linear score, which is what a Cox model is: f(x) = x·coefficients + intercept. Its Jacobian is exact."""

    coefficients: NDArray[np.float32]  # (d,)
    intercept: float
    link: Link = "log-risk"
    name: str = "cox"

    @property
    def n_features(self) -> int:
        return len(self.coefficients)

    def scores(self, rows: Rows) -> Scores:
        return (rows @ self.coefficients + np.float32(self.intercept)).astype(np.float32)
