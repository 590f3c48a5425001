"""The finite-difference Jacobian (eq. 7 of paper 000): one contract, four ways.

J_ij = [f(x_i + ε_j e_j) − f(x_i − ε_j e_j)] / 2ε_j, with x ± ε computed in float32 on every path, so that a threshold
hit exactly is decided the same way everywhere.

- "structured": the sparse walk over `model.ensemble`, or the closed form over `model.coefficients`
- "compiled": perturbation batches through a shared library that tl2cgen makes of the trees (GTIL without a compiler)
- "blocked": perturbation batches through `model.scores`, for any black box
- "naive": a perturbed copy per column and direction through `model.scores`, the honest baseline
- "auto": structured where the model has structure, else blocked

A row touches few features (≈115 of 2,932 in SPEC §5), so the answer may be had without its zeros, form="csr": the
structured path then never makes, nor even wipes, a dense (m, d) array, and its cost does not grow with d.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distcondense.errors import ModelError, SettingsError
from distcondense.kernels.rows import as_rows, as_steps, check_threads
from distcondense.references.base import BlackBox, Reference

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Path = Literal["auto", "structured", "compiled", "blocked", "naive"]
PATHS = ("auto", "structured", "compiled", "blocked", "naive")
FORMS = ("dense", "csr")
MEMORY_BUDGET = 256 * 2**20


def jacobian(
    model: Any,
    X: ArrayLike,
    steps: ArrayLike,
    path: Path = "auto",
    *,
    form: Literal["dense", "csr"] = "dense",
    memory_budget: int = MEMORY_BUDGET,
    threads: int = 1,
) -> NDArray[np.float32] | csr_array:
    """∂f/∂X of a model at the rows X (m, d) by symmetric differences over `steps` (d,); (m, d) float32.

    `model` is a `Reference`, a fitted XGBoost, LightGBM or scikit-learn tree model, or a function rows → scores.
    `form` "csr" gives a `scipy.sparse.csr_array` of what is not zero, the same numbers with columns in order.
    `memory_budget` in bytes bounds a perturbation batch ("compiled", "blocked").
    """
    if path not in PATHS:
        raise SettingsError("path", f"must be one of {', '.join(PATHS)}", found=repr(path))
    if form not in FORMS:
        raise SettingsError("form", f"must be one of {', '.join(FORMS)}", found=repr(form))
    if memory_budget < 1:
        raise SettingsError("memory_budget", "must be at least 1 byte", found=str(memory_budget))
    check_threads(threads)
    rows = as_rows(X)
    eps = as_steps(steps, rows.shape[1])
    reference = as_reference(model, rows.shape[1], threads=threads)
    if reference.n_features != rows.shape[1]:
        raise SettingsError(
            "X", f"must have the model's {reference.n_features} features", found=f"{rows.shape[1]} columns"
        )
    if path == "auto":
        path = "structured" if _structure(reference) else "blocked"
    if form == "dense":
        return _dense(reference, rows, eps, path, memory_budget, threads)
    from scipy.sparse import csr_array

    if path == "structured" and getattr(reference, "ensemble", None) is not None:
        from distcondense import kernels

        indptr, indices, data = kernels.jacobian_csr(reference.ensemble, rows, eps, threads)  # type: ignore[attr-defined]
        return csr_array((data, indices, indptr), shape=rows.shape)
    return csr_array(_dense(reference, rows, eps, path, memory_budget, threads))


def _dense(
    model: Reference, X: NDArray[np.float32], steps: NDArray[np.float32], path: Path, memory_budget: int, threads: int
) -> NDArray[np.float32]:
    if path == "structured":
        return _structured(model, X, steps, threads)
    if path == "compiled":
        return _compiled(model, X, steps, memory_budget, threads)
    if path == "blocked":
        every = np.arange(X.shape[1], dtype=np.int64)
        return _by_batches(model.scores, X, steps, every, memory_budget, np.float32)
    return _naive(model, X, steps)


def as_reference(model: Any, n_features: int, *, threads: int = 1) -> Reference:
    """`model` itself if it is a `Reference`, else wrapped: library models by their trees, functions as black boxes."""
    if isinstance(model, Reference):
        return model
    from distcondense.references.trees import library_of, tree_reference

    if library_of(model) is not None:
        return tree_reference(model, threads=threads)
    if callable(model):
        return BlackBox(model, link="probability", n_features=n_features)
    raise ModelError(
        "model",
        "must be a reference, a fitted XGBoost, LightGBM or scikit-learn tree model, or a function rows → scores",
        found=type(model).__name__,
        fix="pass lambda rows: model.predict_proba(rows)[:, 1]",
    )


def _structure(model: Reference) -> bool:
    return getattr(model, "ensemble", None) is not None or getattr(model, "coefficients", None) is not None


def _structured(
    model: Reference, X: NDArray[np.float32], steps: NDArray[np.float32], threads: int
) -> NDArray[np.float32]:
    if getattr(model, "ensemble", None) is not None:
        from distcondense import kernels

        return kernels.jacobian(model.ensemble, X, steps, threads)  # type: ignore[attr-defined]
    coefficients = getattr(model, "coefficients", None)
    if coefficients is None:
        raise SettingsError(
            "path",
            "'structured' needs a tree ensemble or a linear score",
            found=f"model {model.name!r}, which has neither",
            fix="path='blocked', or 'auto'",
        )
    line = np.asarray(coefficients, np.float32)
    if line.shape != (X.shape[1],):
        raise ModelError(
            f"model {model.name!r}", f"must have one coefficient per feature, {X.shape[1]}", found=f"shape {line.shape}"
        )
    return np.tile(line, (len(X), 1))


def _compiled(
    model: Reference, X: NDArray[np.float32], steps: NDArray[np.float32], memory_budget: int, threads: int
) -> NDArray[np.float32]:
    from distcondense.references.compiled import compiled_predictor
    from distcondense.references.trees import TreeReference

    if not isinstance(model, TreeReference):
        raise SettingsError(
            "path",
            "'compiled' needs a tree model that Treelite can read",
            found=f"model {model.name!r}",
            fix="path='blocked', or 'auto'",
        )
    predict = compiled_predictor(model, threads=threads)
    feature = model.ensemble.feature
    used = np.unique(feature[feature >= 0]).astype(np.int64)  # the others cannot change a score
    return _by_batches(predict, X, steps, used, memory_budget, predict.dtype)


def _by_batches(
    scores: Callable[[Any], NDArray[np.float32]],
    X: NDArray[np.float32],
    steps: NDArray[np.float32],
    columns: NDArray[np.int64],
    memory_budget: int,
    dtype: Any,
) -> NDArray[np.float32]:
    from distcondense.kernels.batches import perturbed

    J = np.zeros(X.shape, np.float32)
    for rows, block, batch in perturbed(X, steps, columns, memory_budget=memory_budget, dtype=dtype):
        f = scores(batch.reshape(-1, X.shape[1])).reshape(len(block), 2, -1)
        J[rows, block] = _quotient(f[:, 0], f[:, 1], steps[block, None]).T
    return J


def _naive(model: Reference, X: NDArray[np.float32], steps: NDArray[np.float32]) -> NDArray[np.float32]:
    J = np.empty(X.shape, np.float32)
    for j in range(X.shape[1]):
        up, down = X.copy(), X.copy()
        up[:, j] += steps[j]
        down[:, j] -= steps[j]
        J[:, j] = _quotient(model.scores(up), model.scores(down), steps[j])
    return J


def _quotient(up: NDArray[np.float32], down: NDArray[np.float32], steps: Any) -> NDArray[np.float32]:
    difference = up.astype(np.float64) - down
    return (difference / (2.0 * np.asarray(steps, np.float64))).astype(np.float32)
