"""distcondense: condense a patient table into a small synthetic one, and say what privacy it has."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distcondense.cluster.config import Cluster as Cluster
    from distcondense.codec import design as design
    from distcondense.cohort import Cohort as Cohort
    from distcondense.jacobian import jacobian as jacobian
    from distcondense.pipeline import condense as condense
    from distcondense.private_model import PrivateModel as PrivateModel
    from distcondense.result import Result as Result
    from distcondense.schema import Column as Column
    from distcondense.schema import Schema as Schema
    from distcondense.settings import Settings as Settings

__version__ = "0.1.0"

# name → module, loaded on first use: `distcondense --help` must not wait for XGBoost
_HOMES = {
    "Cluster": "cluster.config", "Cohort": "cohort", "Column": "schema", "Schema": "schema", "Settings": "settings",
    "Result": "result", "PrivateModel": "private_model", "condense": "pipeline", "design": "codec",
}  # fmt: skip
__all__ = [
    "Cluster", "Cohort", "Column", "PrivateModel", "Result", "Schema", "Settings", "condense", "design", "jacobian",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'distcondense' has no attribute {name!r}")
    return getattr(import_module(f"distcondense.{_HOMES[name]}"), name)


class _Package(ModuleType):
    """Where a submodule and a public function share a name, the name stays the function's."""

    @property
    def jacobian(self) -> Any:
        return import_module("distcondense.jacobian").jacobian

    @jacobian.setter
    def jacobian(self, module: ModuleType) -> None:
        """The import system would put the submodule here."""


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
