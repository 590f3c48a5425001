"""What a row adds is a function of its value: not of its place in an array, of its neighbours or of who compiled it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from distcondense.kernels import elementwise
from distcondense.outcomes.binary import Logistic
from distcondense.outcomes.multiclass import SoftmaxLoss
from distcondense.outcomes.survival import PiecewiseExponential
from distcondense.privacy.contributions import SCORE_MAX

ROWS = 100_000
OFFSETS = range(18)
LENGTHS = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 1000, 32_768, 99_000)
OBJECTIVES = {
    "logistic": Logistic(),
    "softmax of 3": SoftmaxLoss(3),
    "softmax of 20": SoftmaxLoss(20),
    "hazard": PiecewiseExponential((12.0, 36.0), 60.0, hazard=(0.01, 0.02, 0.015)),
}


def rows_of(name: str, rows: int = ROWS):
    """Scores and outcomes for an objective, some of them far outside what is clipped."""
    objective, rng = OBJECTIVES[name], np.random.default_rng(7)
    shape = rows if objective.scores == 1 else (rows, objective.scores)
    score = rng.normal(0, 3, shape)
    score[rng.random(rows) < 0.02] *= 1e5
    given = {"label": rng.integers(0, max(2, objective.scores), rows), "time": rng.uniform(0, 70, rows)}
    return objective, score, given


def contributions(objective, score, given):
    return objective.contributions(score, objective.prepare(given))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_rows_contribution_does_not_depend_on_its_place(name):
    objective, score, given = rows_of(name)
    whole = contributions(objective, score, given)
    for offset in OFFSETS:
        for length in LENGTHS:
            part = slice(offset, offset + length)
            here = contributions(objective, score[part], {key: values[part] for key, values in given.items()})
            for mine, all_of_them in zip(here, whole, strict=True):
                assert np.array_equal(mine, all_of_them[part]), (name, offset, length)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_row_alone_adds_what_it_adds_in_a_crowd(name):
    objective, score, given = rows_of(name, 300)
    whole = contributions(objective, score, given)
    for row in range(300):
        part = slice(row, row + 1)
        alone = contributions(objective, score[part], {key: values[part] for key, values in given.items()})
        assert [float(mine[0]) for mine in alone] == [float(values[row]) for values in whole]


def test_a_strided_or_reversed_array_gives_the_same_bits():
    x = np.random.default_rng(0).normal(0, 9, 3001)
    made = elementwise.exp(x)
    assert np.array_equal(elementwise.exp(x[::3]), made[::3])
    assert np.array_equal(elementwise.exp(x[::-1]), made[::-1])
    wide = x[:3000].reshape(300, 10)
    assert np.array_equal(elementwise.exp(wide), made[:3000].reshape(300, 10))
    assert np.array_equal(elementwise.exp(np.asfortranarray(wide)), made[:3000].reshape(300, 10))
    assert np.array_equal(elementwise.row_sums(np.asfortranarray(wide)), elementwise.row_sums(wide))


@given(arrays(np.float64, st.integers(0, 40), elements=st.floats(-700, 700)))
def test_the_exponential_is_right_to_two_units_in_the_last_place(x):
    made = elementwise.exp(x)
    right = np.array([math.exp(value) for value in x])
    assert np.all(np.abs(made - right) <= 2 * np.spacing(right))


def test_what_is_outside_the_range_is_moved_to_its_end_and_nothing_is_raised():
    far = elementwise.exp(np.array([1e300, np.inf, -1e300, -np.inf, np.nan, 0.0]))
    most = elementwise.exp(np.array([elementwise.RANGE, -elementwise.RANGE]))
    assert far.tolist() == [most[0], most[0], most[1], most[1], most[1], 1.0]


def test_it_grows_where_its_argument_does():
    x = np.sort(np.random.default_rng(1).uniform(-SCORE_MAX, SCORE_MAX, 200_000))
    assert np.all(np.diff(elementwise.exp(x)) >= 0)


def test_without_a_compiler_the_bits_are_the_same(tmp_path: Path):
    x = np.random.default_rng(3).normal(0, 12, 4000)
    np.save(tmp_path / "x.npy", x)
    code = (
        "import numpy as np; from distcondense.kernels import elementwise as e; from pathlib import Path;"
        f"x = np.load({str(tmp_path / 'x.npy')!r}); made = e.exp(x);"
        "assert type(e._exp).__name__ == 'function';"
        "assert all(np.array_equal(e.exp(x[k : k + n]), made[k : k + n]) for k in range(18) for n in (1, 7, 16, 33));"
        f"np.save({str(tmp_path / 'made.npy')!r}, made)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert np.array_equal(np.load(tmp_path / "made.npy"), elementwise.exp(x))


def test_threads_give_the_same_bits_at_the_same_time():
    x = np.random.default_rng(4).normal(0, 12, 50_000)
    made, found = elementwise.exp(x), {}
    threads = [Thread(target=lambda k=k: found.setdefault(k, elementwise.exp(x))) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[k], made) for k in range(4))


def test_private_objectives_use_no_exponential_of_numpy():
    """NumPy's has one code for the body of an array and another for its ends on some processors."""
    import ast
    import inspect
    import textwrap

    from distcondense.outcomes import multiclass

    made = [type(objective).contributions for objective in OBJECTIVES.values()] + [multiclass.softmax]
    for function in made:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        used = {
            f"{node.value.id}.{node.attr}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        assert not used & {"np.exp", "np.expm1", "np.log", "np.log1p", "np.power", "special.expit"}, function
