"""What makes a large table quick: records dealt out and collected, and steps that wait; each against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from distcondense.kernels import scatter as kernels
from distcondense.outcomes.binary import STEP, Logistic
from distcondense.privacy.contributions import in_steps
from distcondense.privacy.questions import GradientQuery, HistogramQuery, MergeBins, ShiftScores
from distcondense.privacy.table_rows import TableRows
from tests import naive

LIMIT = 2.0**20


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint64])
def test_records_are_dealt_out_and_collected_as_loops_do_it(kind: Any) -> None:
    rng = np.random.default_rng(3)
    fields, number = rng.integers(0, 200, (3, 50)).astype(kind), rng.integers(0, 4, 50)
    place = np.empty(50, np.int64)
    kernels.places_by_number(number, np.append(0, np.cumsum(np.bincount(number, minlength=4))[:-1]), place)
    assert place.tolist() == naive.stable_places(number.tolist())
    at, out = np.array([4, 0, 2]), np.zeros((50, 5), kind)
    kernels.scatter_fields(fields, place, at, out)
    for i in range(50):
        assert [int(out[place[i], column]) for column in at] == [int(field[i]) for field in fields]
    which, back = rng.permutation(50)[:20], np.zeros((3, 20), kind)
    kernels.gather_fields(out, which, at, back)
    assert back.tolist() == [[int(out[row, column]) for row in which] for column in at]


@pytest.mark.parametrize("persons", [False, True])
def test_shifts_that_wait_through_merges_are_those_made_at_once(persons: bool) -> None:
    """Steps in any order on codes of two bytes and of one: sums of the rows whose scores and codes NumPy keeps."""
    rng = np.random.default_rng(8)
    n, sizes = 700, [1000, 6, 900]
    codes = np.stack([rng.integers(0, size, n) for size in sizes], axis=1)
    label, person = rng.integers(0, 2, n), rng.integers(0, 250, n) if persons else None
    rows = TableRows.from_table(codes, sizes, {"label": label}, Logistic(), person, 4)
    now, score, size = codes.copy(), np.zeros(n), list(sizes)

    def same() -> None:
        fresh = TableRows.from_table(now, size, {"label": label}, Logistic(), person, 4)
        order = _as_laid_out(person, n)
        fresh.score[:] = in_steps(score[order], STEP)
        for question in (
            GradientQuery((0,)),
            HistogramQuery((2,), "label"),
            GradientQuery((0, 1)),
            HistogramQuery((1, 2), "none"),
        ):
            assert np.array_equal(rows.answer(question, LIMIT), fresh.answer(question, LIMIT))

    def shift(*columns: int) -> None:
        table = np.round(rng.normal(size=int(np.prod([size[column] for column in columns]))) / STEP) * STEP
        rows.apply(ShiftScores(columns, table))
        score[:] += table[np.ravel_multi_index([now[:, column] for column in columns], [size[c] for c in columns])]

    def merge(column: int, cells: int) -> None:
        to = np.sort(rng.permutation(np.arange(size[column]) % cells))
        rows.apply(MergeBins(column, to))
        now[:, column], size[column] = to[now[:, column]], int(to.max()) + 1

    shift(0)
    shift(0, 1)
    merge(0, 300)  # two bytes still
    shift(0)
    merge(0, 40)  # one byte from here on, with shifts waiting
    shift(2)
    same()
    merge(2, 256)
    shift(2, 0)
    merge(0, 7)
    merge(1, 2)
    same()
    assert [rows.kept.codes[k].itemsize for k in range(3)] == [1, 1, 1]


def _as_laid_out(person: Any, n: int) -> Any:
    from distcondense.privacy.layout import rows_by_person

    return rows_by_person(person, n, 4)[0]
