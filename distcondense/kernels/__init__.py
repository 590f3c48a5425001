"""The hot loop's kernels: NumPy in, NumPy out; no pandas, no Ray, no Treelite.

Two backends with one contract (kernels/README.md): Numba, and the C++ twin where a compiler is found. `backend()` is
decided once per process, and the names below then mean that backend's functions: a run never mixes the two.
Names are fetched on first use, so importing the package does not import Numba and the command line starts at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distcondense.kernels.arguments import NOISE_STREAM
    from distcondense.kernels.ensemble import TreeEnsemble
    from distcondense.kernels.fused import fused_step
    from distcondense.kernels.native import backend
    from distcondense.kernels.random import bits, normals, uniforms
    from distcondense.kernels.update import AdamState, NoiseRule, adam, clip_and_noise, row_norms
    from distcondense.kernels.walk import jacobian, jacobian_csr, margins, scores

_MODULES = {
    "backend": "native",
    "TreeEnsemble": "ensemble",
    "fused_step": "fused",
    "NOISE_STREAM": "arguments",
    "bits": "random",
    "normals": "random",
    "uniforms": "random",
    "AdamState": "update",
    "NoiseRule": "update",
    "adam": "update",
    "clip_and_noise": "update",
    "row_norms": "update",
    "jacobian": "walk",
    "jacobian_csr": "walk",
    "margins": "walk",
    "scores": "walk",
}

_TWINS = {"adam", "clip_and_noise", "fused_step", "jacobian", "jacobian_csr", "margins", "scores"}  # native too

__all__ = [
    "NOISE_STREAM",
    "AdamState",
    "NoiseRule",
    "TreeEnsemble",
    "adam",
    "backend",
    "bits",
    "clip_and_noise",
    "fused_step",
    "jacobian",
    "jacobian_csr",
    "margins",
    "normals",
    "row_norms",
    "scores",
    "uniforms",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    if name in _TWINS and import_module(f"{__name__}.native").backend() == "native":
        module = "native"
    value = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
