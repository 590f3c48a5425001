"""Pairs of numbers in the cells of their table: laws that fit it, orders and copies, and rows drawn by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from distcondense.arrays import Floats, Index
from distcondense.data.cells import Cells, public_cells
from distcondense.data.schema import Column, Schema
from distcondense.methods.private import linked
from distcondense.methods.private.linked import Link, Number, draw_linked, fitted, found_relation, in_line, in_order

ROWS, SIGMA = 9000, 45.0
AGES = public_cells(
    Schema(
        (
            Column("age", "integer", low=0, high=119),
            Column("before", "integer", low=0, high=119, missing="indicator"),
            Column("after", "integer", low=0, high=119),
        )
    )
)


def groups_of(shares: Floats, many: int = 10) -> Index:
    """Neighbouring cells of about equal mass."""
    middle = np.cumsum(shares) - shares / 2
    return np.unique(np.minimum((middle * many / shares.sum()).astype(int), many - 1), return_inverse=True)[1]


def seen(first: Floats, second: Floats, seed: int = 0) -> tuple[Floats, Floats, tuple[Number, Number]]:
    """(noisy rows, expected if independent, the numbers) of two columns of ages in years."""
    numbers = []
    for values in (first, second):
        shares = np.bincount(values.astype(int), minlength=120) / len(values)
        numbers.append(Number.of_cells(AGES[0], shares, groups_of(shares)))
    one, other = numbers
    rows = np.zeros((one.groups.max() + 1, other.groups.max() + 1))
    np.add.at(rows, (one.groups[first.astype(int)], other.groups[second.astype(int)]), 1.0)
    expected = np.outer(rows.sum(1), rows.sum(0)) / rows.sum()
    return rows + np.random.default_rng(seed).normal(0, SIGMA, rows.shape), expected, (one, other)


def ages(seed: int = 0) -> Floats:
    return np.clip(np.random.default_rng(seed).normal(60, 15, ROWS), 20, 110).round()


def ranges(number: Number) -> Floats:
    ends = [np.flatnonzero(number.groups == k) for k in range(number.groups.max() + 1)]
    return np.array([(number.edges[here[0]], number.edges[here[-1] + 1]) for here in ends])


@pytest.mark.parametrize("correlation", [-0.8, 0.0, 0.6, 0.95])
def test_the_correlation_of_a_noisy_table_is_found(correlation: float) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, ROWS))
    b = correlation * a + np.sqrt(1 - correlation**2) * b
    rows, expected, numbers = seen(*(np.clip(60 + 15 * x, 1, 118).round() for x in (a, b)))
    link, table = fitted(rows, np.full(rows.shape, SIGMA**2), expected, numbers)
    assert link.correlation == pytest.approx(correlation, abs=0.05)
    np.testing.assert_allclose(table.sum(1), expected.sum(1), rtol=1e-3)
    assert link.close == (abs(correlation) >= linked.CLOSE)


def test_two_ages_that_are_a_few_years_apart_are_told_by_their_difference() -> None:
    age = ages()
    later = age + 3 + np.random.default_rng(2).integers(-1, 2, ROWS)
    rows, expected, numbers = seen(age, later)
    link, _ = fitted(rows, np.full(rows.shape, SIGMA**2), expected, numbers)
    assert link.spread > 0
    assert link.shift == pytest.approx(3, abs=1.0)
    assert link.spread < 3
    assert link.turned.shift == -link.shift


@pytest.mark.parametrize("seed", range(3))
def test_orders_and_copies_are_found_and_nothing_else_is(seed: int) -> None:
    age, rng = ages(seed), np.random.default_rng(seed)
    cases = {
        "same": age,
        "below": np.clip(age + rng.exponential(12, ROWS), 0, 119).round(),
        "above": np.clip(age - rng.exponential(12, ROWS), 0, 119).round(),
        "": np.clip(age + rng.normal(0, 12, ROWS), 0, 119).round(),
    }
    for relation, other in cases.items():
        rows, expected, (one, two) = seen(age, other, seed)
        found, nobody = found_relation(rows, np.full(rows.shape, SIGMA**2), expected, (ranges(one), ranges(two)))
        assert found == relation
        assert nobody.any() == bool(relation)


def linked_rows(link: Link, rows: int = 4000, seed: int = 0) -> tuple[list[Index], list[Index], list[Index]]:
    """(fine cells, coarse cells of each row, coarse cell of each fine one) of three ages, the first two linked."""
    rng = np.random.default_rng(seed)
    shares = np.bincount(ages().astype(int), minlength=120) / ROWS
    coarse = [groups_of(shares)] * 3
    coarse[1] = np.append(coarse[1], coarse[1].max() + 1)  # and one of holes
    fine = [np.stack([shares] * 2), np.stack([np.append(0.9 * shares, 0.1)] * 2), np.stack([shares] * 2)]
    codes = [rng.choice(len(one[0]), rows, p=one[0]) for one in fine]
    cell = [group[code] for group, code in zip(coarse, codes, strict=True)]
    hole = codes[1] == 120
    near = np.clip(cell[0] + rng.integers(-1, 2, rows), 0, coarse[0].max())
    cell[1] = np.where(hole, cell[1], near)
    codes[1] = np.array([rng.choice(np.flatnonzero(coarse[1] == c)) for c in cell[1]])
    group = rng.integers(0, 2, rows)
    draw_linked(codes, {(0, 1): link}, coarse, cell, fine, np.array([0.6, 0.4]), AGES, group, rng)
    return codes, cell, coarse


def test_linked_numbers_stay_in_their_coarse_cells_and_go_together() -> None:
    codes, cell, coarse = linked_rows(Link(0.97))
    for code, own, group in zip(codes, cell, coarse, strict=True):
        np.testing.assert_array_equal(group[code], own)
    there = codes[1] < 120
    apart, _, _ = linked_rows(Link(0.0))
    both = [np.corrcoef(one[0][there], one[1][there])[0, 1] for one in (codes, apart)]
    assert both[0] > both[1] + 0.02
    assert ((codes[1] == 120) == (cell[1] == coarse[1][-1])).all()  # a hole stays one


def test_what_is_drawn_has_the_chances_that_enumeration_gives() -> None:
    """One coarse cell a column: the first by its marginal, the second by the copula given it, each cell on its own."""
    cells = public_cells(Schema((Column("a", "integer", low=0, high=5), Column("b", "integer", low=0, high=4))))
    rng, rows = np.random.default_rng(4), 60_000
    fine = [rng.dirichlet(np.full(size, 3.0), 1) for size in (6, 5)]
    link, coarse = Link(0.8), [np.zeros(6, int), np.zeros(5, int)]
    codes = [np.zeros(rows, int)] * 2
    draw_linked(codes, {(0, 1): link}, coarse, list(codes), fine, np.ones(1), cells, np.zeros(rows, int), rng)
    one, other = (Number.of_cells(cells[k], fine[k][0], coarse[k]) for k in (0, 1))
    given = linked._given(one, other, link)
    law = fine[0][0][:, None] * given / given.sum(1, keepdims=True)
    found = np.zeros((6, 5))
    np.add.at(found, (codes[0], codes[1]), 1 / rows)
    np.testing.assert_allclose(found, law, atol=5 * 0.5 / np.sqrt(rows))
    np.testing.assert_allclose(law.sum(0), fine[1][0], atol=0.08)


@pytest.mark.parametrize("relation", ["same", "below", "above"])
def test_released_numbers_obey_what_was_found_of_them_to_the_last_digit(relation: linked.Relation) -> None:
    rng, rows = np.random.default_rng(5), 5000
    codes = rng.integers(0, 120, (rows, 3))
    codes[:20, 1] = 120  # holes
    inside = rng.random((rows, 3))
    link = Link(0.9, relation)
    for links in ({(0, 1): link}, {(1, 0): link.turned}):
        moved, where = in_line(links, AGES, codes, inside)
        first, second = (AGES[k].numbers(moved[:, k], where[:, k]) for k in (0, 1))
        there = ~np.isnan(second)
        assert there.sum() == (codes[:, 1] < 120).sum()
        held = {"same": first == second, "below": first <= second, "above": first >= second}[relation]
        assert held[there].all()
        np.testing.assert_array_equal(moved[:, 2], codes[:, 2])
        untouched = {"same": codes[:, 0] == codes[:, 1], "below": codes[:, 0] <= codes[:, 1]}.get(
            relation, codes[:, 0] >= codes[:, 1]
        )
        np.testing.assert_array_equal(moved[untouched | ~there], codes[untouched | ~there])


def test_numbers_a_few_years_apart_are_so_within_wide_cells_too() -> None:
    wide = tuple(replace(cells, cuts=np.arange(15.0, 120, 15)) for cells in AGES)
    rng = np.random.default_rng(9)
    codes = np.repeat(rng.integers(0, 7, (4000, 1)), 3, axis=1)
    link = Link(0.99, shift=-2.0, spread=1.0)
    moved, where = in_line({(0, 2): link}, wide, codes, rng.random((4000, 3)))
    first, second = (wide[k].numbers(moved[:, k], where[:, k]) for k in (0, 2))
    inside = (first % 15 > 6) & (first % 15 < 12)  # far from the ends of the cell
    assert np.mean(second[inside] - first[inside]) == pytest.approx(-2, abs=0.2)
    assert np.abs(second - first).max() <= 8
    assert np.mean(moved != codes) < 0.01  # they stay in their cells, but for rounding
    np.testing.assert_array_equal(wide[1].numbers(moved[:, 1], where[:, 1]), wide[1].numbers(codes[:, 1], where[:, 1]))


def test_where_a_group_of_rows_has_nobody_near_everybody_says_where_a_number_lies() -> None:
    shares, groups = np.ones(120) / 120, np.arange(120) // 10
    rare = np.where(np.arange(120) < 5, 0.2, 0.0)  # the group's own noisy answer: all are young
    fine = [np.stack([shares, shares]), np.zeros((2, 121)), np.stack([shares, rare])]
    codes = [np.full(500, 64), np.zeros(500, int), np.full(500, 67)]
    cell = [np.full(500, 6), np.zeros(500, int), np.full(500, 6)]
    coarse = [groups, np.zeros(121, int), groups]
    links = {(0, 2): Link(0.99, spread=1.0)}
    group = np.ones(500, int)
    draw_linked(codes, links, coarse, cell, fine, np.array([0.9, 0.1]), AGES, group, np.random.default_rng(0))
    assert np.abs(codes[2] - codes[0]).max() < 6


def test_every_number_is_drawn_after_the_one_it_hangs_on() -> None:
    link = Link(0.9)
    order = in_order({(0, 3): link, (3, 5): link, (1, 2): link})
    place = {column: k for k, (column, _) in enumerate(order)}
    assert sorted(place) == [0, 1, 2, 3, 5]
    for column, by in order:
        assert by is None or place[by] < place[column]
    assert sum(by is None for _, by in order) == 2


def test_a_link_turned_twice_is_the_same() -> None:
    link = Link(0.7, "below", shift=2.0, spread=1.0)
    assert link.turned == replace(link, relation="above", shift=-2.0)
    assert link.turned.turned == link
    assert Link(0.7, "same").turned == Link(0.7, "same")


def test_cells_know_the_ranges_of_their_groups() -> None:
    cells: Cells = AGES[1]
    coarse = np.append(np.arange(120) // 30, 4)
    found = linked.ranges_of_groups(cells, coarse)
    assert np.isnan(found[4]).all()
    assert found[0, 0] == 0
    assert found[3, 1] == 119
    for k in range(3):
        assert found[k, 1] == found[k + 1, 0]
