"""Nearest rows: the blocks and their rounding against a plain loop over all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from distcondense.errors import SettingsError
from distcondense.kernels import neighbours
from distcondense.kernels.neighbours import nearest, nearest_manhattan


def twin(points, among, k, power):
    """Every pair in float64; of equal distances the lower row number first."""
    distances, numbers = [], []
    for a in np.asarray(points, np.float64):
        all_of_them = []
        for j, b in enumerate(np.asarray(among, np.float64)):
            total = 0.0
            for one, two in zip(a, b, strict=True):
                total += (one - two) ** 2 if power == 2 else abs(one - two)
            all_of_them.append((total, j))
        chosen = sorted(all_of_them)[:k]
        distances.append([np.sqrt(total) if power == 2 else total for total, _ in chosen])
        numbers.append([j for _, j in chosen])
    width = min(k, len(among))
    return np.array(distances).reshape(-1, width), np.array(numbers, int).reshape(-1, width)


def agree(points, among, k, threads=1):
    for fast, power in ((nearest, 2), (nearest_manhattan, 1)):
        distance, number = fast(points, among, k, threads)
        expected, where = twin(points, among, k, power)
        np.testing.assert_allclose(distance, expected, rtol=1e-13, atol=0)
        np.testing.assert_array_equal(number, where)


numbers = st.one_of(
    st.integers(-2, 2).map(float),  # ties and copies
    st.floats(-1e3, 1e3, width=32),
    st.sampled_from([1e-30, 1e-6, 1e6, -1e6, 3e18, 1e-45]),  # far apart in size: float32's squares vanish or overflow
)


@st.composite
def tables(draw):
    n, m, d = draw(st.integers(0, 6)), draw(st.integers(1, 9)), draw(st.integers(1, 5))
    made = [draw(hnp.arrays(np.float32, (rows, d), elements=numbers.map(np.float32))) for rows in (n, m)]
    if n and draw(st.booleans()):
        made[0][0] = made[1][-1]
    return made[0], made[1], draw(st.integers(1, 11))


@settings(max_examples=150)
@given(tables())
def test_it_is_the_loop_over_all_pairs(table):
    agree(*table)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_rows_that_rounding_cannot_tell_apart_are_told_apart(offset):
    """Around 1e4 a product in float32 is wrong by more than all of these distances."""
    rng = np.random.default_rng(0)
    among = (offset + 0.01 * rng.normal(size=(60, 20))).astype(np.float32)
    points = (offset + 0.01 * rng.normal(size=(15, 20))).astype(np.float32)
    agree(points, among, 4)


def test_blocks_do_not_change_the_answer(monkeypatch):
    rng = np.random.default_rng(1)
    points, among = (np.round(rng.normal(size=(rows, 6)) * 2).astype(np.float32) for rows in (90, 150))
    whole = nearest(points, among, 7), nearest_manhattan(points, among, 7)
    monkeypatch.setattr(neighbours, "POINTS", 7)
    monkeypatch.setattr(neighbours, "AMONG", 11)
    for before, after in zip(whole, (nearest(points, among, 7), nearest_manhattan(points, among, 7)), strict=True):
        np.testing.assert_array_equal(before[0], after[0])
        np.testing.assert_array_equal(before[1], after[1])


def test_any_number_of_threads_gives_the_same_bits():
    rng = np.random.default_rng(2)
    points, among = (rng.normal(size=(rows, 30)).astype(np.float32) for rows in (1500, 700))
    for fast in (nearest, nearest_manhattan):
        one, two = (fast(points, among, 5, threads) for threads in (1, 2))
        np.testing.assert_array_equal(one[0], two[0])
        np.testing.assert_array_equal(one[1], two[1])


def test_a_copy_has_distance_zero_and_is_found():
    rng = np.random.default_rng(3)
    among = (1e3 * rng.normal(size=(5000, 40))).astype(np.float32)
    chosen = rng.integers(0, 5000, 200)
    distance, number = nearest(among[chosen], among, 2, 2)
    assert (distance[:, 0] == 0).all()
    assert (number[:, 0] == chosen).all()
    assert (distance[:, 1] > 0).all()


def test_of_equal_distances_the_lower_number_comes_first():
    among = np.zeros((10, 3), np.float32)
    distance, number = nearest(np.ones((2, 3), np.float32), among, 4)
    assert number.tolist() == [[0, 1, 2, 3]] * 2
    assert (distance == np.sqrt(3)).all()


def test_more_neighbours_than_rows_are_all_the_rows():
    points, among = np.zeros((3, 2), np.float32), np.ones((2, 2), np.float32)
    assert nearest(points, among, 5)[0].shape == nearest_manhattan(points, among, 5)[1].shape == (3, 2)
    assert nearest(points, among[:0], 5)[0].shape == (3, 0)
    assert nearest(points[:0], among, 5)[1].shape == (0, 2)


def test_what_cannot_be_measured_is_refused_without_a_value():
    rows = np.zeros((2, 2), np.float32)
    with pytest.raises(SettingsError, match="at least 1"):
        nearest(rows, rows, 0)
    with pytest.raises(SettingsError, match="features"):
        nearest(rows, rows[:, :1], 1)
    with pytest.raises(SettingsError, match="finite"):
        nearest(rows, np.array([[np.nan, 0]], np.float32), 1)


def test_it_agrees_with_scikit_learn():
    neighbors = pytest.importorskip("sklearn.neighbors")
    rng = np.random.default_rng(4)
    points, among = (rng.normal(size=(rows, 25)).astype(np.float32) for rows in (400, 900))
    for fast, metric in ((nearest, "euclidean"), (nearest_manhattan, "manhattan")):
        other = neighbors.NearestNeighbors(n_neighbors=6, algorithm="brute", metric=metric).fit(among.astype(float))
        distance, number = other.kneighbors(points.astype(float))
        np.testing.assert_allclose(fast(points, among, 6, 2)[0], distance, rtol=1e-6)
        np.testing.assert_array_equal(fast(points, among, 6, 2)[1], number)
