"""distcondense: condense a patient table into a small synthetic one, and say what privacy it has."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distcondense.api import condense as condense
    from distcondense.api import evaluate as evaluate
    from distcondense.api import evaluate_run as evaluate_run
    from distcondense.cluster.config import Cluster as Cluster
    from distcondense.data.codec import design as design
    from distcondense.data.cohort import Cohort as Cohort
    from distcondense.data.large import LargeTable as LargeTable
    from distcondense.data.schema import Column as Column
    from distcondense.data.schema import Schema as Schema
    from distcondense.evaluation.score import Score as Score
    from distcondense.methods.private.estimator import PrivateModel as PrivateModel
    from distcondense.models.jacobian import jacobian as jacobian
    from distcondense.privacy.odometer import Odometer as Odometer
    from distcondense.runs.reading import load as load
    from distcondense.runs.release import ReleaseInfo as ReleaseInfo
    from distcondense.runs.result import Result as Result
    from distcondense.runs.result import Results as Results

__version__ = "0.2.0"

# name → module, loaded on first use: `distcondense --help` must not wait for XGBoost
_HOMES = {
    "Cluster": "cluster.config", "Cohort": "data.cohort", "Column": "data.schema", "Schema": "data.schema",
    "Result": "runs.result", "Results": "runs.result", "Score": "evaluation.score", "condense": "api",
    "evaluate": "api", "evaluate_run": "api",
    "PrivateModel": "methods.private.estimator", "design": "data.codec", "jacobian": "models.jacobian",
    "Odometer": "privacy.odometer", "LargeTable": "data.large", "load": "runs.reading", "ReleaseInfo": "runs.release",
}  # fmt: skip
__all__ = [
    "Cluster",
    "Cohort",
    "Column",
    "LargeTable",
    "Odometer",
    "PrivateModel",
    "ReleaseInfo",
    "Result",
    "Results",
    "Schema",
    "Score",
    "condense",
    "design",
    "evaluate",
    "evaluate_run",
    "jacobian",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'distcondense' has no attribute {name!r}")
    return getattr(import_module(f"distcondense.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
