"""The finite-difference Jacobian (eq. 7 of Thakur et al. 2026): one contract, four paths.

J_ij = [f(x_i + ε_j e_j) − f(x_i − ε_j e_j)] / 2ε_j, with x ± ε computed in float32 on every path, so that a threshold
hit exactly is decided the same way everywhere.

- "structured": the sparse walk over `model.ensemble`, or the closed form over `model.coefficients`
- "compiled": perturbation batches through a shared library that tl2cgen makes of the trees (GTIL without a compiler)
- "blocked": perturbation batches through `model.scores`, for any black box
- "naive": a perturbed copy per column and direction through `model.scores`, the honest baseline
- "auto": structured where the model has structure, else blocked

A row touches few features (≈115 of 2,932 at 2,000 × 2,932), so the answer may be had without its zeros, form="csr": the
structured path then never makes, nor even wipes, a dense (m, d) array, and its cost does not grow with d.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from distcondense.arrays import Index, Matrix
from distcondense.errors import ModelError, SettingsError
from distcondense.kernels.arguments import as_rows, as_steps, check_threads
from distcondense.models.base import BlackBox, Model

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from distcondense.kernels.ensemble import TreeEnsemble
    from distcondense.kernels.walk import CSR

JacobianPath = Literal["auto", "structured", "compiled", "blocked", "naive"]
PATHS = ("auto", "structured", "compiled", "blocked", "naive")
FORMS = ("dense", "csr")
MEMORY_BUDGET = 256 * 2**20
TILE_BYTES, TILE_ROWS = 32 * 2**20, 1024  # of a batch in tiles: small enough to spread, large enough to pay for a call


def jacobian(
    model: Any,
    X: ArrayLike,
    steps: ArrayLike,
    path: JacobianPath = "auto",
    *,
    form: Literal["dense", "csr"] = "dense",
    memory_budget: int = MEMORY_BUDGET,
    threads: int = 1,
) -> NDArray[np.float32] | csr_array:
    """The finite-difference Jacobian ∂f/∂X of a model at some rows.

    Parameters
    ----------
    model : Model, fitted model or callable
        A `Model`, a fitted XGBoost, LightGBM or scikit-learn tree model, anything else with predict methods, or a
        function rows → scores.
    X : (m, d) array
        The rows, as float32.
    steps : (d,) array
        The step ε_j of each column, above 0: J_ij = [f(x_i + ε_j e_j) − f(x_i − ε_j e_j)] / 2ε_j.
    path : {"auto", "structured", "compiled", "blocked", "naive"}
        How it is computed; "auto" takes the sparse walk over trees, or the closed form of a linear score, where the
        model has one, else batches of perturbed rows.
    form : {"dense", "csr"}
        "csr" gives what is not zero, the same numbers with columns in order.
    memory_budget : int
        Bytes of a perturbation batch ("compiled", "blocked").
    threads : int
        Threads; any number gives the same bits.

    Returns
    -------
    (m, d) float32, or scipy.sparse.csr_array

    Raises
    ------
    SettingsError
        If an argument is outside its range, or the model has no structure for `path`.
    ModelError
        If `model` is none, or does not give one score per row.

    Examples
    --------
    >>> import numpy as np
    >>> import distcondense as dc
    >>> def f(rows):
    ...     return 3 * rows[:, 0] - rows[:, 1]
    >>> dc.jacobian(f, np.zeros((1, 2)), steps=[0.5, 0.5])
    array([[ 3., -1.]], dtype=float32)
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
    reference = as_model(model, rows.shape[1], threads=threads)
    if reference.n_features != rows.shape[1]:
        raise SettingsError(
            "X", f"must have the model's {reference.n_features} features", found=f"{rows.shape[1]} columns"
        )
    path = resolve_path(reference, path)
    if form == "dense":
        return _dense(reference, rows, eps, path, memory_budget, threads)
    from scipy.sparse import csr_array

    if path == "structured" and getattr(reference, "ensemble", None) is not None:
        from distcondense import kernels

        indptr, indices, data = kernels.jacobian_csr(reference.ensemble, rows, eps, threads)  # type: ignore[attr-defined]
        return csr_array((data, indices, indptr), shape=rows.shape)
    return csr_array(_dense(reference, rows, eps, path, memory_budget, threads))


def _dense(model: Model, X: Matrix, steps: Matrix, path: JacobianPath, memory_budget: int, threads: int) -> Matrix:
    if path == "structured":
        return _structured(model, X, steps, threads)
    tiler = BatchTiler(model, path, threads, memory_budget)
    J, whole = np.zeros(X.shape, np.float32), Tile(0, len(X), 0, len(tiler.columns))
    tiler.place(J, whole, tiler.tile(X, steps, whole))
    return J


def as_model(model: Any, n_features: int, *, threads: int = 1) -> Model:
    """`model` itself if it is a `Model`, else wrapped: by its trees, its own predict methods, or as a function."""
    if isinstance(model, Model):
        return model
    from distcondense.models.references import own_scores
    from distcondense.models.trees import library_of, tree_model

    unread = None
    if library_of(model) is not None:
        try:
            return tree_model(model, threads=threads)
        except ModelError as error:
            unread = error
    names = list(getattr(model, "feature_names_in_", map(str, range(n_features))))
    if (own := own_scores(model, names, unread=unread)) is not None:
        return BlackBox(own[0], own[1] or "value", n_features, type(model).__name__)
    if unread is not None:
        raise unread
    if callable(model):
        return BlackBox(model, link="probability", n_features=n_features)
    raise ModelError(
        "model",
        "must be a reference, a fitted model with predict methods, or a function rows → scores",
        found=type(model).__name__,
        fix="pass lambda rows: model.predict_proba(rows)[:, 1]",
    )


def resolve_path(model: Model, path: JacobianPath) -> JacobianPath:
    """The path itself; for "auto" structured where the model has structure, else blocked."""
    if path != "auto":
        return path
    has = getattr(model, "ensemble", None) is not None or getattr(model, "coefficients", None) is not None
    return "structured" if has else "blocked"


def tested_columns(model: Model) -> Index:
    """Columns that may change a score: those that trees split at, or that have a coefficient; of a black box all."""
    if (trees := getattr(model, "ensemble", None)) is not None:
        return np.asarray(trees.used, np.int64)
    if (line := getattr(model, "coefficients", None)) is not None:
        return np.flatnonzero(np.asarray(line))
    return np.arange(model.n_features)


def _structured(model: Model, X: NDArray[np.float32], steps: NDArray[np.float32], threads: int) -> NDArray[np.float32]:
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


@dataclass(frozen=True)
class Tile:
    """A part of a Jacobian: rows top … bottom − 1, and of a tiler's `columns` those at first … last − 1."""

    top: int
    bottom: int
    first: int
    last: int


class BatchTiler:
    """Any black box: perturbed copies of rows through a scoring function, a batch at a time.

    The shape of a batch depends on the table only, and tiles are made of whole ones: a BLAS may round a row otherwise
    in a batch of another shape, and who computes a tile must not show in its bits.
    """

    def __init__(
        self,
        model: Model,
        path: JacobianPath,
        threads: int = 1,
        memory_budget: int = MEMORY_BUDGET,
        batch_rows: int | None = None,
    ) -> None:
        from distcondense.models.trees import TreeModel

        if path == "compiled" and not isinstance(model, TreeModel):
            raise SettingsError(
                "path",
                "'compiled' needs a tree model that Treelite can read",
                found=f"model {model.name!r}",
                fix="path='blocked', or 'auto'",
            )
        self.model, self.path, self.threads = model, path, threads
        self.memory_budget, self.batch_rows = memory_budget, batch_rows
        # what the model does not test cannot change a score; "naive" asks all the same
        self.columns = np.arange(model.n_features) if path == "naive" else tested_columns(model)

    def grid(self, rows: int) -> tuple[int, int]:
        """(rows, columns) of one batch; a tile starts at multiples of them."""
        from distcondense.kernels.perturbation import plan

        if self.path == "naive":
            return rows, 1
        itemsize = self._dtype.itemsize
        return plan(rows, self.model.n_features, len(self.columns), itemsize, self.memory_budget, self.batch_rows)

    def tile(self, X: NDArray[np.float32], steps: NDArray[np.float32], tile: Tile) -> NDArray[np.float32]:
        """The quotients of one tile, (rows, columns) float32."""
        from distcondense.kernels.perturbation import perturbed

        columns = self.columns[tile.first : tile.last]
        part = np.empty((tile.bottom - tile.top, len(columns)), np.float32)
        rows = X[tile.top : tile.bottom]
        if self.path == "naive":
            for at, j in enumerate(columns):
                up, down = rows.copy(), rows.copy()
                up[:, j] += steps[j]
                down[:, j] -= steps[j]
                part[:, at] = _quotient(self.model.scores(up), self.model.scores(down), steps[j])
            return part
        shape = self.grid(len(X))
        for which, first, block, batch in perturbed(rows, steps, columns, shape=shape, dtype=self._dtype):
            f = self._scores(batch.reshape(-1, X.shape[1])).reshape(len(block), 2, -1)
            part[which, first : first + len(block)] = _quotient(f[:, 0], f[:, 1], steps[block, None]).T
        return part

    def place(self, J: NDArray[np.float32], tile: Tile, part: NDArray[np.float32]) -> None:
        """Put a tile's quotients where they belong; J is zero elsewhere."""
        J[tile.top : tile.bottom, self.columns[tile.first : tile.last]] = part

    @cached_property
    def _dtype(self) -> np.dtype[Any]:
        if self.path != "compiled":
            return np.dtype(np.float32)
        from distcondense.models.compiled import input_type

        return input_type(self.model)  # type: ignore[arg-type]

    @cached_property
    def _scores(self) -> Callable[[Any], NDArray[np.float32]]:
        """Made on first use: who only plans tiles compiles nothing."""
        if self.path != "compiled":
            return self.model.scores
        from distcondense.models.compiled import compiled_predictor

        return compiled_predictor(self.model, threads=self.threads)  # type: ignore[arg-type]


class WalkTiler:
    """The sparse walk over a model's trees, by rows; `gpu` takes the CUDA twin of the kernel."""

    UNIT = 64  # rows: below this a call costs more than its work

    def __init__(self, model: Model, threads: int = 1, gpu: bool = False) -> None:
        self.ensemble: TreeEnsemble = model.ensemble  # type: ignore[attr-defined]
        self.columns = self.ensemble.used.astype(np.int64)
        self.threads, self.gpu = threads, gpu

    def grid(self, rows: int) -> tuple[int, int]:
        """(rows, columns) of one tile: all used columns of some rows."""
        return min(self.UNIT, rows), max(len(self.columns), 1)

    def tile(self, X: NDArray[np.float32], steps: NDArray[np.float32], tile: Tile) -> CSR:
        """The entries of one tile that are not zero."""
        rows = X[tile.top : tile.bottom]
        if self.gpu:
            from distcondense.kernels import cuda

            return cuda.jacobian_csr(self.ensemble, rows, steps)
        from distcondense import kernels

        return kernels.jacobian_csr(self.ensemble, rows, steps, self.threads)

    def place(self, J: NDArray[np.float32], tile: Tile, part: CSR) -> None:
        """Put a tile's entries where they belong; J is zero elsewhere."""
        indptr, indices, data = part
        rows = np.repeat(np.arange(tile.top, tile.bottom), np.diff(indptr))
        J[rows, indices] = data


def make_tiler(model: Model, path: JacobianPath, *, threads: int = 1, gpu: bool = False) -> BatchTiler | WalkTiler:
    """How tiles of this model's Jacobian are computed along `path`, by whoever computes them."""
    path = resolve_path(model, path)
    if path == "structured":
        if getattr(model, "ensemble", None) is None:
            raise SettingsError(
                "path",
                "'structured' in tiles needs a tree ensemble",
                found=f"model {model.name!r}",
                fix="path='blocked', or run in process",
            )
        return WalkTiler(model, threads, gpu)
    return BatchTiler(on_gpu(model) if gpu else model, path, threads, TILE_BYTES, TILE_ROWS)


def on_gpu(model: Model) -> Model:
    """An XGBoost model that predicts on the GPU; any other model as it is."""
    from distcondense.models.trees import TreeModel

    return model.on_gpu() if isinstance(model, TreeModel) else model


def _quotient(up: NDArray[np.float32], down: NDArray[np.float32], steps: Any) -> NDArray[np.float32]:
    difference = up.astype(np.float64) - down
    return (difference / (2.0 * np.asarray(steps, np.float64))).astype(np.float32)
