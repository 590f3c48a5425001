"""Rows that are persons of their own, laid out as they are read: sides, coins of equal rows, scores; against loops."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distcondense.cluster import shards
from distcondense.data import buckets, files, in_order
from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Schema
from distcondense.errors import RunFolderError
from distcondense.kernels import scatter as kernels
from distcondense.methods.private.condense import open_gate
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.privacy.gate import gate_over
from distcondense.privacy.ledger import Ledger
from tests.data.test_large import SCHEMA, WRITERS, exact, patients, told

pytestmark = pytest.mark.filterwarnings("ignore:column who looks like an identifier")
__all__ = ["exact"]  # a fixture
HOW: dict[str, Any] = {
    "target": "died",
    "schema": Schema(tuple(c for c in SCHEMA.columns if c.name != "ward")),
    "ignore": ["who", "ward"],
}
OPTIONS = PrivateOptions(epsilon=2.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, pieces, shards and buckets so small that a little table has many of each."""
    for name, value in (("BATCH_ROWS", 97), ("PIECE_ROWS", 200), ("CSV_BYTES", 4000)):
        monkeypatch.setattr(files, name, value)
    monkeypatch.setattr(shards, "BUCKET_ROWS", 90)
    monkeypatch.setattr(shards, "bucket_count", lambda rows, memory, threads: 8)


def in_memory(exact: list[Any], frame: pd.DataFrame, coins: HoldoutSplit) -> Any:
    cohort = Cohort.from_frame(frame, **HOW)
    public = prepare(cohort.facts, OPTIONS)
    return told(exact, open_gate(cohort, coins, public, Ledger()), public)


def in_batches(exact: list[Any], table: LargeTable, coins: HoldoutSplit, threads: int = 1, **how: Any) -> Any:
    public = prepare(table.facts, OPTIONS)
    with shards.scratch(None) as place:
        rows = shards.opened(
            table, public.cells, public.side.objective, coins, public.rows_per_person, place, threads=threads, **how
        )
        assert not (place / "marks").exists()
        gate = gate_over(
            rows,
            names=[one.column.name for one in public.cells],
            budget=public.budget,
            ledger=Ledger(),
            unit=public.unit,
        )
        return told(exact, gate, public)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("distinct", [700, 12])
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_rows_laid_out_as_they_are_read_give_the_integers_of_memory(
    share: float, distinct: int, exact: list[Any], tmp_path: Path
) -> None:
    """Of 700 rows, so many contents: equal ones lie in different files, batches and shards."""
    frame, coins = patients(700), HoldoutSplit(share, 2**90 + 3)
    frame = frame.iloc[np.random.default_rng(4).integers(0, distinct, 700) if distinct < 700 else range(700)]
    frame = frame.reset_index(drop=True)
    due = in_memory(exact, frame, coins)
    for name, write in WRITERS.items():
        (tmp_path / name).mkdir()
        table = LargeTable.from_path(write(frame, tmp_path / name), **HOW)
        assert in_batches(exact, table, coins, threads=1 if name == "CSV" else 2) == due, name
        assert table.read_rows == len(frame)


@pytest.mark.usefixtures("small")
def test_scores_in_a_file_are_those_in_memory(
    exact: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, found, coins = (
        LargeTable.from_path(WRITERS["one file"](patients(), tmp_path), **HOW),
        list[Any](),
        HoldoutSplit(0.25, 7),
    )
    made = in_order.scores_of
    for allowed in (2**30, 100):
        monkeypatch.setattr(shards, "SCORES_HELD", allowed)
        monkeypatch.setattr(shards, "scores_of", lambda *how: found.append(made(*how)) or found[-1])
        found.append(in_batches(exact, table, coins))
    held, one, mapped, other = found
    assert one == other
    assert [isinstance(part, np.memmap) for part in (*held, *mapped)] == [False] * len(held) + [True] * len(mapped)
    assert [part.shape for part in held] == [part.shape for part in mapped]


def test_scores_of_several_classes_stand_row_by_row(tmp_path: Path) -> None:
    for allowed, kind in ((0, np.dtype(np.float64)), (10**6, np.dtype(np.int32))):
        parts = in_order.scores_of([3, 0, 2], 4, kind, tmp_path, allowed)
        assert {part.dtype for part in parts} == {kind}
        assert [part.shape for part in parts] == [(3, 4), (0, 4), (2, 4)]
        assert not any(part.any() for part in parts)


def test_persons_and_values_without_a_list_are_still_brought_together(tmp_path: Path) -> None:
    path = WRITERS["one file"](patients(), tmp_path)
    named = Schema(tuple(c for c in SCHEMA.columns if c.name != "ward"))
    for how, kind in (
        (HOW, in_order.InOrderRows),
        ({"target": "died", "schema": SCHEMA, "ignore": ["who"]}, buckets.Buckets),
        ({"target": "died", "schema": named, "ignore": ["ward"], "person_id": "who"}, buckets.Buckets),
    ):
        table = LargeTable.from_path(path, **how)
        cells = prepare(table.facts, OPTIONS).cells
        coded = next(iter(table.read(table.pieces[0], table.coder(cells, HoldoutSplit(0.25, 7))))).coded
        layout = buckets.RecordLayout.from_arrays(cells, coded.target, coded.who is not None)
        store = shards._store(layout, HoldoutSplit(0.25, 7), 700, tmp_path, None, 1)
        assert isinstance(store, kind)
        store.close()


@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite"])
def test_a_disk_that_fills_up_ends_in_words(
    call: str, exact: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = LargeTable.from_path(WRITERS["one file"](patients(), tmp_path), **HOW)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(in_order.os, call, full)
    with pytest.raises(RunFolderError, match="No space left"):
        in_batches(exact, table, HoldoutSplit(0.25, 7), threads=2)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 3), st.data())
def test_rows_that_change_sides_leave_those_that_count_in_front(kept: int, lost: int, free: int, data: Any) -> None:
    room = kept + free + lost
    there = [*range(kept), *range(kept + free, room)]
    changed = sorted(data.draw(st.sets(st.sampled_from(there)))) if there else []
    due = [row for row in there if (row < kept) != (row in changed)]
    rows, source, target = in_order.moves(kept, np.array(changed, np.int64))
    column = np.arange(room)
    column[target] = column[source]
    assert rows == len(due)
    assert sorted(column[:rows].tolist()) == due
    assert len(source) <= len(changed) + free  # the others stay


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_marks_are_dealt_into_buckets_as_loops_do_it(rows: int) -> None:
    rng = np.random.default_rng(rows)
    mark, lost, many = rng.integers(0, 2**64, (rows, 2), dtype=np.uint64), rng.random(rows) < 0.3, 8
    key, counts = np.empty(rows, np.int32), np.zeros(2 * many, np.int64)
    kernels.bucket_keys(mark, lost, many, key, counts)
    due = [(int(one) >> kernels.TOP) % many + many * int(out) for one, out in zip(mark[:, 0], lost, strict=True)]
    assert key.tolist() == due
    assert counts.tolist() == [due.count(k) for k in range(2 * many)]
    place = rng.permutation(rows).astype(np.int32)
    both, one = np.zeros((rows, 2), np.uint64), np.zeros(rows, np.uint64)
    kernels.scatter_pairs(mark, place, both)
    kernels.scatter_values(mark[:, 0].copy(), place, one)
    for i in range(rows):
        assert both[place[i]].tolist() == mark[i].tolist()
        assert one[place[i]] == mark[i, 0]


@given(st.lists(st.integers(0, 40), max_size=60))
def test_marks_that_have_an_equal_are_never_missed(words: list[int]) -> None:
    mark = np.array([[word * 0x9E3779B97F4A7C15 % 2**64, word] for word in words], np.uint64).reshape(-1, 2)
    times = Counter(words)
    suspected = in_order._suspects(mark)
    assert all(flag for word, flag in zip(words, suspected, strict=True) if times[word] > 1)
