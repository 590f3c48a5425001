"""The loop: it follows the algorithm box, repeats to the bit, resumes to the bit, and keeps the best step."""

from __future__ import annotations

import numpy as np
import pytest

from distcondense.cluster.executors import LocalExecutor
from distcondense.errors import RunFolderError
from distcondense.kernels.random import normals, uniforms
from distcondense.kernels.update import AdamState, NoiseRule
from distcondense.methods.published.options import PublishedOptions
from distcondense.methods.zero_order import engine
from distcondense.methods.zero_order.engine import Problem, RealScores, ReferenceLoss, State, optimise, seed_key
from distcondense.methods.zero_order.objectives import Composite, bce
from distcondense.models.base import BlackBox
from distcondense.privacy.steps import StepAccountant
from distcondense.runs.checkpoint import Checkpoint
from tests import naive

ROWS, COLUMNS = 6, 5
LABEL = np.array([0, 0, 0, 1, 1, 1], np.int8)


def logistic(rows):
    return 1 / (1 + np.exp(-(rows @ np.array([1.0, -2.0, 0.5, 0.0, 0.3], np.float32) + np.sin(rows[:, 0]))))


def problem(sigma_base=0.0):
    real = np.linspace(0.05, 0.95, 40)
    aim = ReferenceLoss(
        (BlackBox(logistic, "probability", COLUMNS),),
        Composite(lambda f: bce(f, LABEL), LABEL.astype(np.int64), average=False, rho=0.1),
        RealScores((real[:20], real[20:]), (3, 3)),
    )
    start = normals(seed_key(0), engine.START_STREAM, 0, 0, (ROWS, COLUMNS))
    return Problem((aim,), start, NoiseRule(0.05, sigma_base))


def options(**more):
    return PublishedOptions(
        **{"noise": False, "ipc": 3, "steps": 12, "evaluate_every": 4, "learning_rate": 0.01, **more}
    )


def run(said, sigma_base=0.0, record=None, **more):
    accountant, setup = StepAccountant(0.1, 1e-5, ROWS, record=record), problem(sigma_base)
    how = {"noise_key": 5, "accountant": accountant, "validate": lambda X: float(-np.abs(X).sum()), **more}
    with LocalExecutor(more.get("threads", 1)) as executor:
        executor.open(setup.models[0], "auto", setup.start, np.ones(COLUMNS, np.float32))
        return optimise(setup, said, executors=[executor], **how), accountant


def test_the_loop_is_the_algorithm_box_computed_by_hand():
    """Twelve noisy steps from the formulas: fresh ε_j, black-box differences, clip, ladder, noise, Adam."""
    said, setup = options(), problem(sigma_base=1.5)
    X = setup.start.astype(np.float64)
    m, v = np.zeros_like(X), np.zeros_like(X)
    key = seed_key(0)
    for step in range(said.steps):
        widths = 0.025 + 1.975 * uniforms(key, engine.PERTURB_STREAM, step, 0, (1, COLUMNS))[0]
        f = logistic(X)
        means = [
            scores[engine.draws(key, step, k, 3, 20)].mean()
            for k, scores in enumerate(setup.references[0].real.by_stratum)
        ]
        supervised, matched = naive.bce(f, LABEL), naive.match(f, LABEL, means, False)
        alpha = supervised / (matched + 1e-8) / 9
        slope = naive.slope(
            lambda p, a=alpha, r=means: naive.bce(p, LABEL) + a * naive.match(p, LABEL, r, False), f, 1e-7
        )
        for i in range(ROWS):
            g = np.zeros(COLUMNS)
            for j in range(COLUMNS):
                bump = np.zeros(COLUMNS)
                bump[j] = widths[j]
                g[j] = (
                    slope[i] * (logistic((X[i] + bump)[None])[0] - logistic((X[i] - bump)[None])[0]) / (2 * widths[j])
                )
            g *= min(1.0, 0.05 / np.linalg.norm(g))
            rungs = [r * 1.5 for r in np.arange(0.25, 2.01, 0.25) if np.linalg.norm(g) / (r * 1.5 * 0.05) >= 1 - 1e-6]
            sigma = max(rungs, default=0.25 * 1.5)
            g += sigma * 0.05 * normals(5, 7, step, i, (1, COLUMNS))[0]
            m[i] = 0.9 * m[i] + 0.1 * g
            v[i] = 0.999 * v[i] + 0.001 * g**2
            X[i] -= 0.01 * (m[i] / (1 - 0.9 ** (step + 1))) / (np.sqrt(v[i] / (1 - 0.999 ** (step + 1))) + 1e-8)
    state, accountant = run(said, sigma_base=1.5)
    assert pytest.approx(X, abs=2e-4) == state.X
    assert accountant.steps == 12


def test_the_best_step_on_validation_is_kept_and_without_early_stopping_the_last():
    scores = iter([0.5, 0.9, 0.7])
    state, _ = run(options(), validate=lambda X: next(scores))
    assert (state.best_step, state.best_score, state.step) == (8, 0.9, 12)
    assert [h["score"] for h in state.history] == [0.5, 0.9, 0.7]
    scores = iter([0.5, 0.9, 0.7])
    last, _ = run(options(early_stopping=False), validate=lambda X: next(scores))
    assert last.best_step == 12
    assert np.array_equal(last.best_X, last.X)


def test_a_student_that_cannot_be_fitted_is_never_the_best():
    scores = iter([np.nan, 0.6, np.nan])
    state, _ = run(options(), validate=lambda X: next(scores))
    assert state.best_step == 8


def test_patience_stops_a_run_that_gets_no_better():
    scores = iter([0.9, 0.5, 0.4, 0.3])
    state, _ = run(options(steps=100, patience=2), validate=lambda X: next(scores))
    assert (state.step, state.stopped, state.best_step) == (12, "patience", 4)


def test_more_threads_change_nothing():
    one, _ = run(options(), sigma_base=1.0, threads=1)
    two, _ = run(options(), sigma_base=1.0, threads=2)
    assert np.array_equal(one.X, two.X)


class Killed(Exception):
    pass


@pytest.mark.parametrize("at", [1, 5, 8, 11])
def test_a_run_killed_at_any_step_resumes_to_the_same_bits_and_the_same_ledger(at, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "CHECKPOINT_SECONDS", 0.0)
    whole, paid = run(options(), sigma_base=1.0)
    checkpoint = Checkpoint(tmp_path / "checkpoint.npz")

    def kill(*, step, **_):
        if step == at:
            raise Killed

    with pytest.raises(Killed):
        run(options(), sigma_base=1.0, checkpoint=checkpoint, progress=kill)
    # the second process draws a fresh key, and must go on with the checkpoint's once there is one
    key = 5 if at < 4 else 999
    again, paid_again = run(options(), sigma_base=1.0, checkpoint=checkpoint, noise_key=key)
    assert np.array_equal(whole.X, again.X)
    assert np.array_equal(whole.best_X, again.best_X)
    assert whole.history == again.history
    assert paid.ledger == paid_again.ledger
    assert paid.epsilon() == paid_again.epsilon()


def test_a_checkpoint_is_whole_or_refused_and_gone_after_erasing(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint.npz")
    assert checkpoint.load() is None
    state = State(np.ones((2, 3), np.float32), AdamState.zeros((2, 3)), noise_key=2**64 - 1, step=7)
    state.save(checkpoint, [(1.5, 7)])
    back, ledger = State.load(checkpoint)
    assert (back.noise_key, back.step, ledger) == (2**64 - 1, 7, [(1.5, 7)])
    assert (checkpoint.path.stat().st_mode & 0o077) == 0
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:50])
    with pytest.raises(RunFolderError, match="readable"):
        checkpoint.load()
    checkpoint.erase()
    assert list(tmp_path.iterdir()) == []


def test_real_rows_are_drawn_evenly_and_afresh():
    first, second = engine.draws(3, 0, 0, 50_000, 7), engine.draws(3, 1, 0, 50_000, 7)
    assert np.bincount(first, minlength=7) == pytest.approx(np.full(7, 50_000 / 7), rel=0.05)
    assert not np.array_equal(first, second)
    assert np.isnan(RealScores((np.array([]), np.array([1.0])), (3, 3)).means(0, 0)[0])
