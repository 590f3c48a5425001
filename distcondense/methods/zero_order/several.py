"""Who computes the Jacobians of several references at once: at most one group of models goes to the cluster.

Structure makes a Jacobian cheap, so models that have it stay in process; black boxes are what is worth spreading. Two
or more of them are one model to the executor, which gets the rows once for each, numbered in a last column: one pool of
workers, one batch a step. The same is done in process, so that where a run is carried out does not show in its bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distcondense.arrays import Matrix
from distcondense.cluster.executors import Executor, LocalExecutor, executor_for
from distcondense.methods.base import Context
from distcondense.models.base import Model
from distcondense.models.jacobian import JacobianPath, resolve_path

NUMBER_STEP = 0.25  # of the column that numbers the models: too little to mean another


@contextmanager
def opened(
    models: Sequence[Model], path: JacobianPath, X: Matrix, widths: Matrix, context: Context
) -> Iterator[list[Executor]]:
    """An open executor for each model, here or on the context's cluster."""
    boxes = [k for k, model in enumerate(models) if resolve_path(model, path) != "structured"]
    spread = boxes or [0]  # what the context's machines compute
    with ExitStack() as stack:
        executors: dict[int, Executor] = {}
        first = models[spread[0]] if len(spread) == 1 else StackedModels(tuple(models[k] for k in spread))
        main = stack.enter_context(executor_for(first, path, context.cluster, threads=context.threads, log=context.log))
        if len(spread) > 1:
            shared = StackedJacobian(main, tuple(models[k] for k in spread))
            main.open(shared.model, "blocked" if path == "auto" else path, *shared.stacked(X, widths))
            executors = {k: OneOfSeveral(shared, at) for at, k in enumerate(spread)}
        else:
            main.open(models[spread[0]], path, X, widths)
            executors[spread[0]] = main
        for k in set(range(len(models))) - set(executors):
            executors[k] = stack.enter_context(LocalExecutor(context.threads, log=context.log))
            executors[k].open(models[k], path, X, widths)
        yield [executors[k] for k in range(len(models))]


@dataclass(frozen=True)
class StackedModels:
    """Models side by side as one: the last column of a row says whose score it gets."""

    models: tuple[Model, ...]
    name: str = "several references"

    @property
    def link(self) -> str:
        return self.models[0].link

    @property
    def n_features(self) -> int:
        return self.models[0].n_features + 1

    def scores(self, rows: Matrix) -> Matrix:
        whose, own = np.rint(rows[:, -1]).astype(np.int64), np.ascontiguousarray(rows[:, :-1])
        out = np.empty(len(rows), np.float32)
        for k, model in enumerate(self.models):
            here = whose == k
            if here.any():
                out[here] = model.scores(own[here])
        return out


@dataclass
class StackedJacobian:
    """One Jacobian of several models, computed when the first of them is asked for."""

    executor: Executor
    models: tuple[Model, ...]
    found: list[Matrix] = field(default_factory=list)

    @property
    def model(self) -> StackedModels:
        return StackedModels(self.models)

    def stacked(self, X: Matrix, widths: Matrix) -> tuple[Matrix, Matrix]:
        """The rows once for each model, numbered; and the widths with the number's."""
        number = np.repeat(np.arange(len(self.models), dtype=np.float32), len(X))
        rows = np.concatenate([np.tile(X, (len(self.models), 1)), number[:, None]], axis=1)
        return np.ascontiguousarray(rows, np.float32), np.append(widths, np.float32(NUMBER_STEP))

    def jacobian(self, k: int, X: Matrix, widths: Matrix) -> Matrix:
        if k == 0:
            whole = self.executor.jacobian(*self.stacked(X, widths))[:, :-1]
            self.found = [np.ascontiguousarray(part) for part in np.split(whole, len(self.models))]
        return self.found[k]


@dataclass(frozen=True)
class OneOfSeveral:
    """One of several models, as the engine asks for it: in order, step after step."""

    shared: StackedJacobian
    number: int
    fuses: bool = False

    def __enter__(self) -> OneOfSeveral:
        return self

    def __exit__(self, *error: Any) -> None:
        """The shared executor is closed by whoever opened it."""

    def open(self, model: Model, path: JacobianPath, X: Matrix, widths: Matrix) -> None:
        """Open already."""

    def jacobian(self, X: Matrix, widths: Matrix) -> Matrix:
        return self.shared.jacobian(self.number, X, widths)

    def report(self, **facts: Any) -> None:
        if self.number == 0:
            self.shared.executor.report(**facts)

    def facts(self) -> dict[str, Any]:
        return self.shared.executor.facts()
