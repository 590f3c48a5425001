"""The protocol every fitted model satisfies: scores for rows, and what a score means.

Optional attributes unlock faster paths of `jacobian`: `ensemble` (a flat `TreeEnsemble`) the sparse walk,
`coefficients` the closed form of a linear score. A model that has neither is a black box, and that is fine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from distcondense.arrays import Matrix
from distcondense.errors import ModelError

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
    """Any callable rows → scores."""

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
