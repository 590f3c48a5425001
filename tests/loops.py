"""A small noisy loop over a black box, to be run on any executor: what tests of executors and clusters share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distcondense.cluster.executors import Executor
from distcondense.kernels.random import normals
from distcondense.kernels.update import NoiseRule
from distcondense.methods.published.options import PublishedOptions
from distcondense.methods.zero_order import engine
from distcondense.methods.zero_order.engine import Problem, RealScores, ReferenceLoss, State, optimise, seed_key
from distcondense.methods.zero_order.objectives import Composite, bce
from distcondense.models.base import BlackBox, Model
from distcondense.privacy.steps import StepAccountant

ROWS, COLUMNS, STEPS = 600, 24, 5  # 600 rows: a batch has one column, a step 24 units
OPTIONS = PublishedOptions(noise=False, ipc=ROWS // 2, steps=STEPS, evaluate_every=2, learning_rate=0.01)


@dataclass(frozen=True)
class Ran:
    X: bytes
    best: bytes
    history: list[dict[str, Any]]
    ledger: list[tuple[float, int]]


def problem(reference: Model) -> Problem:
    label = np.repeat(np.array([0, 1], np.int8), ROWS // 2)
    real = np.linspace(0.05, 0.95, 40)
    aim = ReferenceLoss(
        (reference,),
        Composite(lambda f: bce(f, label), label.astype(np.int64), average=False, rho=0.1),
        RealScores((real[:20], real[20:]), (ROWS // 2, ROWS // 2)),
    )
    start = normals(seed_key(0), engine.START_STREAM, 0, 0, (ROWS, reference.n_features))
    return Problem((aim,), start, NoiseRule(0.05, 1.0))


def run(executor: Executor, reference: Model, path: Any = "auto", at_step: Callable[[int], None] | None = None) -> Ran:
    """Five noisy steps on this executor; `at_step` is called after each."""
    setup, accountant = problem(reference), StepAccountant(0.1, 1e-5, ROWS)
    with executor:
        widths = engine.widths_of(OPTIONS, seed_key(0), 0, reference.n_features)
        executor.open(reference, path, setup.start, widths)
        state: State = optimise(
            setup,
            OPTIONS,
            noise_key=5,
            accountant=accountant,
            validate=lambda X: float(-np.abs(X).sum()),
            executors=[executor],
            progress=lambda *, step, **_: at_step(step) if at_step else None,
        )
    assert state.best_X is not None
    return Ran(state.X.tobytes(), state.best_X.tobytes(), state.history, accountant.ledger)


def smooth(fuse: Path | None = None, how: Callable[[], None] | None = None) -> BlackBox:
    """A black box that is no tree. Where `fuse` exists, the first worker to see it takes it away and blows up.

    Made inside a function, so that it travels to workers by value: they cannot import the tests.
    """
    driver, weights = os.getpid(), np.linspace(-1, 1, COLUMNS).astype(np.float32)
    blow = how or (lambda: os.kill(os.getpid(), signal.SIGKILL))

    def scores(rows: Any) -> Any:
        if fuse is not None and os.getpid() != driver and fuse.exists():
            try:
                fuse.unlink()
            except FileNotFoundError:  # another worker's
                pass
            else:
                blow()
        return 1 / (1 + np.exp(-(rows @ weights + np.sin(rows).sum(axis=1))))

    return BlackBox(scores, "probability", COLUMNS)
