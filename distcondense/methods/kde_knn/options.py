"""The settings of kde-knn; defaults are the paper's (KDE-KNN §3.8, Tables A1 to A3). There is no ε among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from distcondense.errors import SettingsError
from distcondense.methods.base import Options, option

KNN, FOREST, SVM, NOBODY = VALIDATORS = ("knn", "rf", "svm", "none")


@dataclass(frozen=True, kw_only=True)
class KdeKnnOptions(Options):
    """The settings of kde-knn (KDE-KNN §3.8): densities of each class, a validator and a least distance.

    There is no ε among them: the method has no guarantee. `dc.condense(…, method="kde-knn", neighbours=23)` sets them
    by name; an illegal value raises `SettingsError` before a row is read.
    """

    validator: str = option(
        KNN, "Who must find a drawn row's class again for it to be kept: knn, rf (KDE-RF), svm (KDE-SVM) or none."
    )
    neighbours: int = option(23, "Neighbours that vote in knn, by Manhattan distance.")
    sigma: float = option(
        1.0,
        "Drawn rows nearer to a real row than this many times the mean distance of real rows to their nearest "
        "are thrown away; 0: none are.",
    )
    bandwidth: float | None = option(
        None,
        "Width of the kernels in standard deviations; Scott's rule if not said.",
        typical="leave it out for Scott's rule",
    )
    tries: int = option(1000, "Rows drawn for each row that is wanted, at most, before the run gives up.")

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        yield from self.need(self.validator in VALIDATORS, "validator", f"must be one of {', '.join(VALIDATORS)}")
        yield from self.need(1 <= self.neighbours < 2**31, "neighbours", "must be in [1, 2**31)")
        yield from self.need(0 <= self.sigma < float("inf"), "sigma", "must be 0 or more and finite")
        yield from self.need(
            self.bandwidth is None or 0 < self.bandwidth < float("inf"), "bandwidth", "must be above 0 and finite"
        )
        yield from self.need(1 <= self.tries < 2**31, "tries", "must be in [1, 2**31)")
