"""What several sites answer together is what one table with all rows answers, to the bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Column, Schema
from distcondense.federated import coordinator, site, tables
from distcondense.federated.agreement import Agreement
from distcondense.federated.tables import SharedTable, SummedTable
from distcondense.methods.private.condense import open_gate
from distcondense.methods.private.fit import fit_private
from distcondense.privacy import noise
from distcondense.privacy.answering import BEHIND
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import ColumnChoice, GradientQuery, HistogramQuery, ShiftScores, StatisticQuery
from distcondense.privacy.table_rows import TableRows
from tests.federated.sites import Hall, described, patients


class Recording:
    """Integers before noise, in the order they were asked; noise is that of a fixed stream."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self._rng = np.random.default_rng(7)

    def __call__(self, exact: Any) -> Any:
        self.seen.append([int(value) for value in exact])
        return exact + np.rint(self._rng.normal(0, noise.GRID, len(exact))).astype(np.int64)


class OneTable(SummedTable):
    """The coordinator's gate with all rows behind it: the slow twin of several sites."""

    __slots__ = ()

    def _gaussian(self, *arguments: Any, **said: Any) -> Any:
        return SharedTable._gaussian(self, *arguments, **said)


def learn(table: SummedTable, agreement: Agreement) -> None:
    prepared = agreement.prepared
    fit_private(table, prepared.cells, prepared.plan, prepared.side)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Sites add nothing; a total gets noise of a fixed stream, where several sites answer and where one table does."""
    recording = Recording()
    monkeypatch.setattr(noise, "discrete_gaussian", lambda exact, scale: exact)
    monkeypatch.setattr(SummedTable, "_noised", lambda table, exact: recording(exact))
    return recording


def of_one_table(hall: Hall, whole: pd.DataFrame, recording: Recording) -> list[list[int]]:
    prepared = hall.agreement.prepared
    gate = open_gate(hall.read(whole), HoldoutSplit(0.0, 0), prepared, Ledger())
    table = OneTable.before(BEHIND[gate], prepared.sharing)
    table.choice_cost, table.looks = prepared.choice_cost, {}
    recording.__init__()  # type: ignore[misc]
    learn(table, hall.agreement)
    return recording.seen


def split(whole: pd.DataFrame, sites: int, seed: int = 0) -> list[pd.DataFrame]:
    """By person, unevenly: the first site has most."""
    place = np.random.default_rng(seed).choice(
        sites, whole["who"].max() + 1, p=np.arange(sites, 0, -1) / (sites * (sites + 1) / 2)
    )
    return [whole[place[whole["who"]] == k] for k in range(sites)]


@pytest.mark.parametrize(("target", "sites"), [("died", 2), ("followed", 3), ("cost", 5), ("stage", 2)])
def test_integers_before_noise_are_those_of_one_table_with_all_rows(
    tmp_path: Any, recorded: Recording, target: str, sites: int
) -> None:
    whole = patients()
    hall = Hall(tmp_path, split(whole, sites), target)
    rows = hall.rows()
    learn(coordinator.summed_table(rows, Ledger()), hall.agreement)
    together = recorded.seen
    assert rows.rounds == len(together) > 10
    assert of_one_table(hall, whole, recorded) == together


@pytest.mark.parametrize("sites", [2, 3, 5])
def test_any_split_of_rows_has_the_same_integers(tmp_path: Any, sites: int) -> None:
    """Every row a person: wherever it lies, also where a site has all rows or one, sums are those of one table."""
    whole = patients(80)
    hall = Hall(tmp_path, [whole] * sites, by_person=False)
    prepared, limit, rng = hall.agreement.prepared, hall.agreement.sharing.limit(0.4), np.random.default_rng(sites)
    questions = [HistogramQuery((0,), "label"), HistogramQuery((0, 2), "none"), GradientQuery((1,))]
    questions += [StatisticQuery(name) for name in prepared.side.objective.statistics]
    step = ShiftScores((0,), rng.normal(size=(1, prepared.cells[0].size)))

    def exact(frame: pd.DataFrame) -> list[Any]:
        rows = BEHIND[open_gate(hall.read(frame), HoldoutSplit(0.0, 0), prepared, Ledger())].rows
        rows.apply(step)
        return [rows.answer(question, limit) for question in questions]

    together = exact(whole)
    for most in (1, 2, 80, 80, 80):  # rows that are not at the first site
        place = np.where(rng.permutation(len(whole)) < most, rng.integers(0, sites, len(whole)), 0)
        apart = [exact(whole[place == k]) for k in range(sites) if np.any(place == k)]
        for one, parts in zip(together, zip(*apart, strict=True), strict=True):
            assert np.array_equal(one, np.sum(parts, axis=0))


WIDE = tuple(f"gene{number}" for number in range(140))


def wide(rows: int = 120) -> tuple[pd.DataFrame, Schema]:
    """The first columns go with the outcome, most others are noise."""
    frame, rng = patients(rows), np.random.default_rng(3)
    died = (frame["died"] == "yes").to_numpy()
    genes = {name: np.clip(rng.integers(0, 8, rows) + (4 * died if k < 3 else 0), 0, 9) for k, name in enumerate(WIDE)}
    schema, _ = described("died")
    return pd.concat([frame, pd.DataFrame(genes)], axis=1), Schema(
        (*schema.columns, *(Column(name, "integer", 0, 9) for name in WIDE))
    )


def test_of_many_columns_some_are_chosen_by_noisy_sums_of_all_which_are_those_of_one_table(
    tmp_path: Any, recorded: Recording
) -> None:
    whole, schema = wide()
    hall = Hall(tmp_path, split(whole, 2), schema=schema)
    ledger = Ledger()
    learn(coordinator.summed_table(hall.rows(), ledger), hall.agreement)
    together = recorded.seen
    assert of_one_table(hall, whole, recorded) == together
    assert [event.words for event in ledger.events if event.by == "columns"] == ["gradient sums"]
    assert {event.kind for event in ledger.events} == {"gaussian"}
    planned = hall.agreement.prepared.planned
    assert math.fsum(e.cost**2 for e in ledger.events) <= math.fsum(e.cost**2 for e in planned) * (1 + 1e-9)


def test_columns_that_go_with_the_outcome_are_chosen_where_the_noise_lets_them(tmp_path: Any) -> None:
    whole, schema = wide(4000)
    hall = Hall(tmp_path, split(whole, 2), schema=schema, epsilon=10.0)
    table = coordinator.summed_table(hall.rows(), Ledger())
    chosen = {table.names[column] for column in table.choose(4).tolist()}
    assert set(WIDE[:3]) <= chosen


def test_no_person_moves_the_sums_of_all_columns_by_more_than_they_cost(tmp_path: Any) -> None:
    """Thousands of persons of up to four rows, beside none and beside others, over all columns at once."""
    hall = Hall(tmp_path, [patients(40, 1), patients(40, 2)])
    prepared, limit = hall.agreement.prepared, 2.0**20
    sizes, objective = [one.size for one in prepared.cells], prepared.side.objective
    question, rng, furthest = ColumnChoice(0, tuple(range(len(sizes))), (1, 2, 1)), np.random.default_rng(1), 0.0
    for _ in range(2000):
        rows = int(rng.integers(1, 5))
        codes = np.stack([rng.integers(0, size, rows + 3) for size in sizes], axis=1)
        label, person = rng.integers(0, 2, rows + 3), np.append(np.zeros(rows, np.int64), [1, 2, 2])
        shift = rng.normal(0, 5, sizes[0])
        exact = []
        for kept in (np.ones(rows + 3, bool), person > 0):
            table = TableRows.from_table(codes[kept], sizes, {"label": label[kept]}, objective, person[kept], 4)
            table.apply(ShiftScores((0,), shift))
            exact.append(table.answer(question, limit).astype(float))
        furthest = max(furthest, float(np.linalg.norm(exact[0] - exact[1])))
    assert 0.9 * limit < furthest <= limit


class KilledEveryRound(Hall):
    """One site after the other dies in each round: before its message is stored, or after it and before it is sent."""

    def ask(self, number: int, message: bytes) -> dict[str, bytes]:
        answers = {}
        for place, name in enumerate(self.names):
            victim = place == number % len(self.names)
            if victim and number % 2:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(site, "keystream", killed)
                    with pytest.raises(KeyboardInterrupt):
                        self.open(name).answer(message)
            elif victim:
                first = self.open(name).answer(message)
                assert self.open(name).answer(message) == first  # the bytes that were stored
            answers[name] = (self.open(name) if victim else self.sites.get(name) or self.open(name)).answer(message)
        return answers


def killed(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("sites", [2, 3, 5])
def test_a_site_that_is_killed_in_every_round_changes_no_integer_and_is_charged_once(
    tmp_path: Any, recorded: Recording, sites: int
) -> None:
    whole = patients(120)
    hall = KilledEveryRound(tmp_path, split(whole, sites, seed=sites))
    rows = hall.rows()
    learn(coordinator.summed_table(rows, Ledger()), hall.agreement)
    together = recorded.seen
    assert of_one_table(hall, whole, recorded) == together
    for name in hall.names:
        assert len(hall.open(name)._table.ledger.events) == rows.rounds


def test_a_coordinator_that_is_killed_goes_on_with_the_same_questions(tmp_path: Any, recorded: Recording) -> None:
    hall = Hall(tmp_path, split(patients(120), 2))
    path = tmp_path / "coordinator" / "ledger.jsonl"
    whole, asked = hall.ask, []

    def dies(number: int, message: bytes) -> Any:
        asked.append(message)
        if number == 9:
            raise KeyboardInterrupt
        return whole(number, message)

    hall.ask = dies  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        learn(coordinator.summed_table(hall.rows(), Ledger(path)), hall.agreement)
    hall.ask = lambda number, message: asked.append(message) or whole(number, message)  # type: ignore[method-assign,func-returns-value]
    ledger, rows = Ledger(path), hall.rows()
    learn(coordinator.summed_table(rows, ledger), hall.agreement)
    assert len(ledger.events) == rows.rounds == len(hall.ledgers["site-0"].events)
    assert asked[9] == asked[10]  # the question that went out, again
    assert len(asked) == rows.rounds + 1


def test_no_person_at_several_sites_moves_the_total_by_more_than_it_costs(tmp_path: Any, recorded: Recording) -> None:
    """A person with one row at each of k sites, all in one cell: the worst there is."""
    hall = Hall(tmp_path, [patients(60, seed) for seed in (1, 2, 3)], hospitals=3, by_person=False)
    agreement, columns = hall.agreement, (0, 1, 2)
    cost = agreement.sharing.cost(0.5)
    exact = []
    for more in (0, 1):
        found = []
        for name in hall.names:
            frame = patients(60, 1 + hall.names.index(name))
            one = hall.read(pd.concat([frame, frame.iloc[:more]]))
            gate = open_gate(one, HoldoutSplit(0.0, 0), agreement.prepared, Ledger())
            rows = BEHIND[gate].rows
            found.append(rows.counted(HistogramQuery(columns[:1], "none"), agreement.sharing.limit(0.5)).values)
        exact.append(np.sum(found, axis=0))
    moved = float(np.linalg.norm((exact[1] - exact[0]).astype(float)))
    at_worst = sum(abs(int(value)) for value in exact[1] - exact[0])
    assert moved <= noise.GRID * cost
    assert at_worst <= noise.GRID * cost  # were it the same cell at all three
    assert at_worst > 0.99 * noise.GRID * cost  # and no less is charged than that


def test_the_noise_of_a_total_is_what_the_plan_counts_with(tmp_path: Any) -> None:
    hall = Hall(tmp_path, split(patients(), 4), colluding=2)
    table = coordinator.summed_table(hall.rows(), Ledger())
    counts = np.concatenate([table.histogram((0,), by="label", mu=0.5).ravel() for _ in range(2)])
    again = np.concatenate([table.histogram((0,), by="label", mu=0.5).ravel() for _ in range(2)])
    spread = np.std(counts - again) / np.sqrt(2)
    assert abs(spread * 0.5 - 1) < 0.25  # 300 cells: five standard deviations
    assert tables.SiteTable.__mro__[1] is SharedTable
