"""The method `kde-knn` (KDE-KNN §3.8): rows drawn from a kernel density of each class, those kept that pass a filter.

No privacy guarantee: every row is a patient's row plus kernel noise, and a distance filter is no differential privacy
(the paper says so itself). It is here to be compared with, and refuses to be called private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from distcondense.methods.base import Context, Prepared, has_classes
from distcondense.methods.kde_knn.options import KdeKnnOptions

if TYPE_CHECKING:
    from distcondense.data.cohort import Cohort, Facts
    from distcondense.runs.result import Result


class KdeKnn:
    """No guarantee: a custodian's comparison."""

    name: ClassVar[str] = "kde-knn"
    about: ClassVar[str] = "KDE-KNN: NO PRIVACY GUARANTEE, patients' rows plus kernel noise, filtered"
    guarantee: ClassVar[str] = "none"
    Options: ClassVar[Any] = KdeKnnOptions

    def takes(self, kind: Any) -> bool:
        return has_classes(kind)

    def prepare(self, facts: Facts, options: KdeKnnOptions) -> Prepared:
        return Prepared(facts, options)

    def condense(self, cohort: Cohort, prepared: Prepared, context: Context) -> dict[int, Result]:
        from distcondense.methods.kde_knn.condense import condense

        return {prepared.options.ipc: condense(cohort, prepared.options, context)}


METHOD = KdeKnn()
