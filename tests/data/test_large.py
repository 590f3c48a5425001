"""Tables that are read in batches: the same integers as in memory, whatever the files, their order and the memory."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import distcondense as dc
from distcondense.api import evaluate_run
from distcondense.cli.common import app
from distcondense.cluster import shards
from distcondense.cluster.config import Cluster
from distcondense.data import buckets, files, large
from distcondense.data.cells import MICRO, public_cells
from distcondense.data.coding import Coder
from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, RunFolderError, SchemaError, SettingsError
from distcondense.methods.private.condense import open_gate
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.privacy import noise
from distcondense.privacy.gate import gate_over
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.rows import ExactAnswers
from distcondense.runs.reading import read_again
from tests.store import store_of

pytestmark = pytest.mark.filterwarnings("ignore:column who looks like an identifier")
COINS = HoldoutSplit(0.25, 2**90 + 3)
SCHEMA = Schema(
    (
        Column("age", "integer", 18, 100), Column("dose", "continuous", 0, 50, missing="indicator"),
        Column("spread", "continuous", domain="private"), Column("smoker", "binary", categories=("no", "yes")),
        Column("stage", "categorical", categories=("I", "II", "III"), missing="category"),
        Column("ward", "categorical", domain="private", missing="category"),
        Column("died", "binary", categories=(0, 1)),
    )
)  # fmt: skip


def patients(rows: int = 700, seed: int = 0) -> pd.DataFrame:
    """With holes, unlisted values, equal rows, and people with several rows."""
    rng = np.random.default_rng(seed)
    age, smoker = rng.integers(18, 100, rows), rng.random(rows) < 0.3
    frame = pd.DataFrame(
        {
            "age": age,
            "dose": np.where(rng.random(rows) < 0.1, np.nan, np.round(rng.gamma(2, 4, rows).clip(0, 50), 1)),
            "spread": np.round(rng.normal(0, 30, rows), 3),
            "smoker": np.where(smoker, "yes", "no"),
            "stage": rng.choice(["I", "II", "III", None], rows, p=[0.5, 0.3, 0.15, 0.05]),
            "ward": rng.choice(["north", "south", "ICU", "x", None], rows, p=[0.5, 0.3, 0.1, 0.05, 0.05]),
            "died": (rng.random(rows) < 0.1 + 0.005 * (age - 18) + 0.2 * smoker).astype(int),
            "who": [f"p{k}" for k in rng.integers(0, rows // 2, rows)],
        }
    )
    frame.iloc[-60:, :-1] = frame.iloc[:60, :-1].to_numpy()
    return frame.astype({"age": int, "dose": float, "spread": float, "died": int})


def how(persons: bool) -> dict[str, Any]:
    return {"target": "died", "schema": SCHEMA, **({"person_id": "who"} if persons else {"ignore": ["who"]})}


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every integer before noise; a fixed stand-in for the noise."""
    seen: list[Any] = []

    def nothing(sums: Any, scale: float) -> Any:
        seen.append([int(value) for value in sums.ravel()])
        return sums.copy()

    def top(scores: Any, count: int, scale: float) -> Any:
        seen.append([int(value) for value in scores])
        return np.argsort(-scores, kind="stable")[:count]

    monkeypatch.setattr(noise, "discrete_gaussian", nothing)
    monkeypatch.setattr(noise, "noisy_top", top)
    return seen


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, pieces, buckets and chunks so small that a little table has many of each."""
    for name, value in (("BATCH_ROWS", 97), ("PIECE_ROWS", 200), ("CSV_BYTES", 4000)):
        monkeypatch.setattr(files, name, value)
    monkeypatch.setattr(buckets, "CHUNK_ROWS", 40)
    monkeypatch.setattr(shards, "bucket_count", lambda rows, memory, threads: 8)


def told(exact: list[Any], gate: Any, public: Any) -> tuple[list[Any], Any]:
    exact.clear()
    fit_private(gate, public.cells, public.plan, public.side)
    return list(exact), [event.to_dict() | {"run": "", "session": ""} for event in gate.ledger.events]


def in_memory(
    exact: list[Any], cohort: Cohort, options: PrivateOptions, ledger: Ledger | None = None
) -> tuple[list[Any], Any]:
    public = prepare(cohort.facts, options)
    return told(exact, open_gate(cohort, COINS, public, ledger or Ledger()), public)


def in_batches(
    exact: list[Any], table: LargeTable, options: PrivateOptions, threads: int = 1, ledger: Ledger | None = None
) -> tuple[list[Any], Any]:
    public = prepare(table.facts, options)
    with shards.scratch(None) as place:
        rows = shards.opened(
            table, public.cells, public.side.objective, COINS, public.rows_per_person, place, threads=threads
        )
        assert oct(place.stat().st_mode)[-3:] == "700"
        gate = gate_over(
            rows,
            names=[one.column.name for one in public.cells],
            budget=public.budget,
            ledger=ledger or Ledger(),
            unit=public.unit,
            unlisted=[5],
        )
        found = told(exact, gate, public)
    assert not place.exists()
    return found


def as_parquet(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_parquet(folder / "all.parquet", row_group_size=150)
    return folder / "all.parquet"


def as_shuffled_parts(frame: pd.DataFrame, folder: Path) -> Path:
    """Rows in another order, in files of other sizes and other types; one has no rows."""
    order = np.random.default_rng(9).permutation(len(frame))
    (folder / "deep").mkdir(parents=True)
    for k, rows in enumerate(np.split(order, [0, 10, 500])):
        part = frame.iloc[rows]
        if k == 2:
            part = part.astype({"age": "int16", "smoker": "category", "ward": "category", "died": "int8"})
        part.to_parquet(folder / ("deep" if k % 2 else ".") / f"{9 - k}.parquet", row_group_size=77, index=False)
    (folder / "_SUCCESS").touch()
    return folder


def as_csv(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_csv(folder / "all.csv", index=False)
    return folder / "all.csv"


def as_packed_csvs(frame: pd.DataFrame, folder: Path) -> Path:
    for k, rows in enumerate(np.split(np.arange(len(frame))[::-1], 3 if len(frame) % 3 == 0 else 1)):
        with gzip.open(folder / f"{k}.csv.gz", "wt") as out:
            frame.iloc[rows].to_csv(out, index=False)
    return folder


def as_arrow(frame: pd.DataFrame, folder: Path) -> Path:
    """Feather and Arrow files, packed and not, of several record batches and of one."""
    cut = len(frame) // 3
    frame.iloc[cut:].astype({"stage": "category"}).to_feather(folder / "a.feather", chunksize=120)
    table = pa.Table.from_pandas(frame.iloc[:cut], preserve_index=False)
    with pa.ipc.new_file(str(folder / "b.arrow"), table.schema) as out:
        out.write_table(table)
    return folder


WRITERS: dict[str, Callable[[pd.DataFrame, Path], Path]] = {
    "one file": as_parquet,
    "shuffled parts": as_shuffled_parts,
    "CSV": as_csv,
    "packed CSVs": as_packed_csvs,
    "Arrow": as_arrow,
}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return patients()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("persons", [False, True])
def test_any_files_in_any_order_give_the_integers_of_one_table_in_memory(
    persons: bool, exact: list[Any], frame: pd.DataFrame, tmp_path: Path
) -> None:
    options = PrivateOptions(epsilon=2.0, rows_per_person=2)
    due = in_memory(exact, Cohort.from_frame(frame, **how(persons)), options)
    assert len(due[0]) > 20
    for name, write in WRITERS.items():
        (tmp_path / name).mkdir()
        table = LargeTable.from_path(write(frame, tmp_path / name), **how(persons))
        assert in_batches(exact, table, options, threads=1 if name == "CSV" else 2) == due, name
        assert table.read_rows == len(frame)


@pytest.mark.parametrize("count", [1, 2, 64])
def test_neither_buckets_nor_memory_change_an_answer(
    count: int, exact: list[Any], frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = PrivateOptions(epsilon=2.0, rows_per_person=2)
    due = in_memory(exact, Cohort.from_frame(frame, **how(True)), options)
    monkeypatch.setattr(shards, "bucket_count", lambda rows, memory, threads: count)
    assert in_batches(exact, LargeTable.from_path(as_parquet(frame, tmp_path), **how(True)), options) == due


def test_less_memory_means_more_buckets_and_too_little_is_refused() -> None:
    rows = 10**8
    few, many = (shards.bucket_count(rows, memory, 2) for memory in (8 * 2**30, 2**29))
    assert few < many <= buckets.BUCKETS_MOST
    assert shards.bucket_count(1000, None, 2) == 1
    with pytest.raises(SettingsError, match="at least 256 MiB"):
        shards.bucket_count(rows, 1000, 2)


@pytest.mark.parametrize(("actors", "least"), [(None, 64), (1, 16), (2, 32), (3, 64), (40, 1024), (500, 1024)])
def test_every_worker_of_a_cluster_has_some_buckets_to_give_away(actors: int | None, least: int) -> None:
    assert shards.buckets_on(Cluster(actors=actors), 1000, None) == least
    assert shards.buckets_on(Cluster(actors=actors), 10**12, None) == buckets.BUCKETS_MOST


@pytest.mark.parametrize("persons", [False, True])
def test_a_batch_of_arrow_is_coded_as_the_slow_way_codes_it(persons: bool, frame: pd.DataFrame) -> None:
    cohort = Cohort.from_frame(frame, **how(persons))
    coder = Coder(
        cohort.schema, cohort.outcome.kind, public_cells(cohort.schema, MICRO), COINS, "who" if persons else None
    )
    slow = coder.of_cohort(cohort)
    for own in (
        frame,
        frame.astype({"age": "uint8", "dose": "float32", "ward": "category"}),
        frame.astype({"age": "Int64", "died": "bool"}),
    ):
        slow = coder.of_cohort(Cohort.from_frame(own, **how(persons)))
        fast = coder.of_batch(pa.RecordBatch.from_pandas(own, preserve_index=False))
        assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(slow.codes, fast.codes, strict=True))
        assert np.array_equal(slow.mark, fast.mark)
        assert np.array_equal(slow.target["label"], fast.target["label"])
        assert slow.words == fast.words
        assert (slow.who is None) if not persons else np.array_equal(slow.who, fast.who)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["int64", "uint64", "int8", "Int64"])
def test_persons_by_whole_numbers_are_those_of_the_slow_way(kind: str, frame: pd.DataFrame) -> None:
    rng = np.random.default_rng(2)
    numbers = rng.integers(0, 60, len(frame)) - (60 if kind == "int64" else 0)
    own = frame.assign(who=pd.Series(numbers).astype(kind) + (2**63 if kind == "uint64" else 0))
    cohort = Cohort.from_frame(own, **how(True))
    coder = Coder(cohort.schema, cohort.outcome.kind, public_cells(cohort.schema, MICRO), COINS, "who")
    fast = coder.of_batch(pa.RecordBatch.from_pandas(own, preserve_index=False))
    assert np.array_equal(fast.who, coder.of_cohort(cohort).who)  # type: ignore[arg-type]


def test_what_a_coder_remembers_of_a_batch_is_used_for_the_same_values_only(frame: pd.DataFrame) -> None:
    """Batches with fewer values, other orders of them and one that must be refused, before and after each other."""
    cohort = Cohort.from_frame(frame, **how(False))
    coder = Coder(cohort.schema, cohort.outcome.kind, public_cells(cohort.schema, MICRO), COINS)
    first = frame["ward"].dropna().unique()[0]
    parts = [frame, frame[frame["ward"] == first], frame[frame["died"] == 1], frame.iloc[::-1], frame]
    for own in parts:
        slow = coder.of_cohort(Cohort.from_frame(own, **how(False))) if own["died"].nunique() > 1 else None
        fast = coder.of_batch(pa.RecordBatch.from_pandas(own, preserve_index=False))
        if slow is not None:
            assert all(np.array_equal(a, b) for a, b in zip(slow.codes, fast.codes, strict=True))
            assert np.array_equal(slow.mark, fast.mark)
            assert slow.words == fast.words
        assert fast.target["label"].tolist() == own["died"].tolist()
    with pytest.raises(CohortError):
        coder.of_batch(pa.RecordBatch.from_pandas(frame.assign(died=frame["died"] + 5), preserve_index=False))
    again = coder.of_batch(pa.RecordBatch.from_pandas(frame, preserve_index=False))
    assert np.array_equal(again.mark, fast.mark)


def test_pieces_are_joined_where_many_workers_would_keep_the_driver_busy() -> None:
    def pieces(file: str, many: int) -> list[files.Piece]:
        return [files.Piece(file, (2 * k, 2 * k + 1), 2**20, 10, k * 2**20) for k in range(many)]

    few = [*pieces("a", 40), *pieces("b", 3)]
    assert files.fewer(few, 2) == tuple(few)
    many = [*pieces("a", 4001), *pieces("b", 3), files.Piece("c.csv", (), 5, 5), files.Piece("c.csv", (), 5, 5)]
    for workers in (16, 64, 256):
        joined = files.fewer(many, workers)
        most = min(files.PIECE_MOST, sum(piece.rows for piece in many) // (files.PIECES_EACH * workers))
        assert all(piece.rows <= most for piece in joined)
        assert len(joined) < len(many) / (most // 2**20) + 5
        assert [(piece.file, group) for piece in joined for group in piece.groups] == [
            (piece.file, group) for piece in many for group in piece.groups
        ]
        assert all(piece.first == piece.groups[0] // 2 * 2**20 for piece in joined if piece.groups)
        for what in ("rows", "bytes"):
            assert sum(getattr(piece, what) for piece in joined) == sum(getattr(piece, what) for piece in many)
        assert [piece for piece in joined if not piece.groups] == many[-2:]


def test_a_value_exactly_on_a_cut_has_the_cell_that_numpy_says() -> None:
    schema = Schema((Column("x", "continuous", -3, 1e6, spacing="log"), Column("y", "binary", categories=(0, 1))))
    cells = public_cells(schema.without(["y"]), MICRO)
    cuts = cells[0].cuts
    values = np.concatenate([cuts, np.nextafter(cuts, -np.inf), np.nextafter(cuts, np.inf), [-3, 1e6]])
    frame = pd.DataFrame({"x": values, "y": np.arange(len(values)) % 2})
    cohort = Cohort.from_frame(frame, target="y", schema=schema)
    fast = Coder(cohort.schema, cohort.outcome.kind, cells, COINS).of_batch(pa.RecordBatch.from_pandas(frame))
    assert np.array_equal(fast.codes[0], np.searchsorted(cuts, values, side="right"))


@pytest.mark.usefixtures("small")
def test_one_content_or_one_person_of_most_rows_is_taken_in_parts(exact: list[Any], tmp_path: Path) -> None:
    frame = patients(300)
    frame.iloc[50:260, :-1] = frame.iloc[0, :-1].to_numpy()
    frame.loc[20:200, "who"] = "unknown"
    frame = frame.astype({"age": int, "dose": float, "spread": float, "died": int})
    options = PrivateOptions(epsilon=2.0, rows_per_person=3)
    for persons in (False, True):
        due = in_memory(exact, Cohort.from_frame(frame, **how(persons)), options)
        assert in_batches(exact, LargeTable.from_path(as_parquet(frame, tmp_path), **how(persons)), options) == due


@pytest.mark.usefixtures("small")
def test_a_driver_killed_between_ledger_and_answer_resumes_to_the_integers_and_the_ledger_of_memory(
    exact: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in its seventh answer, entered and lost; the same in memory and in batches."""
    frame, options, answer = patients(300), PrivateOptions(epsilon=2.0, rows_per_person=2), ExactAnswers.answer
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    found = []
    for way in ("memory", "batches"):
        left = [6]

        def killed(self: Any, question: Any, limit: float, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return answer(self, question, limit)

        def run(path: Path = tmp_path / f"{way}.jsonl", way: str = way) -> Any:
            ledger = Ledger(path, run="one")
            if way == "memory":
                return in_memory(exact, Cohort.from_frame(frame, **how(True)), options, ledger)
            (tmp_path / "in").mkdir(exist_ok=True)
            table = LargeTable.from_path(as_parquet(frame, tmp_path / "in"), **how(True))
            return in_batches(exact, table, options, ledger=ledger)

        with monkeypatch.context() as patch:
            patch.setattr(ExactAnswers, "answer", killed)
            with pytest.raises(KeyboardInterrupt):
                run()
        found.append((list(exact), run()))
        assert len(found[-1][0]) == 6  # answers before the kill; the seventh stays paid for and is never asked
    assert found[0] == found[1]
    assert not list((tmp_path / "scratch").glob("*/shard-*"))


@pytest.mark.usefixtures("small")
def test_codes_for_missing_are_read_as_in_memory(exact: list[Any], tmp_path: Path) -> None:
    coded = replace(SCHEMA["age"], missing_values=(-9,), missing="indicator")
    schema = Schema((coded, *SCHEMA.columns[1:]))
    frame = patients(300)
    frame.loc[frame.index % 7 == 0, "age"] = -9
    said = {"target": "died", "schema": schema, "person_id": "who"}
    options = PrivateOptions(epsilon=2.0, rows_per_person=2)
    due = in_memory(exact, Cohort.from_frame(frame, **said), options)
    assert in_batches(exact, LargeTable.from_path(as_shuffled_parts(frame, tmp_path / "in"), **said), options) == due


@pytest.mark.usefixtures("small")
def test_columns_computed_from_dates_are_read_as_in_memory(exact: list[Any], tmp_path: Path) -> None:
    computed = replace(SCHEMA["age"], computed="years_between(born, came)")
    born, came = Column("born", "ignore"), Column("came", "ignore", format="%d.%m.%Y")
    schema = Schema((computed, *SCHEMA.columns[1:]), ignored=(born, came))
    frame = patients(300)
    ages, days = frame["age"], pd.to_timedelta(np.arange(300) % 300, "D")
    came_on = pd.Timestamp("2021-12-31")
    frame = frame.drop(columns="age").assign(
        born=[
            (came_on - pd.DateOffset(years=int(age)) - day).strftime("%Y-%m-%d")
            for age, day in zip(ages, days, strict=True)
        ],
        came=came_on.strftime("%d.%m.%Y"),
    )
    said = {"target": "died", "schema": schema, "person_id": "who"}
    options = PrivateOptions(epsilon=2.0, rows_per_person=2)
    due = in_memory(exact, Cohort.from_frame(frame, **said), options)
    for name, write in (("parquet", as_parquet), ("csv", as_csv)):
        (tmp_path / name).mkdir()
        assert in_batches(exact, LargeTable.from_path(write(frame, tmp_path / name), **said), options) == due
    frame.drop(columns="came").to_parquet(tmp_path / "parquet" / "more.parquet")
    refused(lambda: LargeTable.from_path(tmp_path / "parquet", **said), CohortError, "more.parquet", "'came'")


# ---- tables at a URI


@pytest.mark.usefixtures("small")
def test_a_folder_at_a_uri_gives_the_integers_of_memory(exact: list[Any], tmp_path: Path) -> None:
    """An object store's protocol on loopback, and file://."""
    frame = patients(120)
    options = PrivateOptions(epsilon=2.0, rows_per_person=2)
    due = in_memory(exact, Cohort.from_frame(frame, **how(True)), options)
    as_shuffled_parts(frame, tmp_path / "a folder" / "in")
    as_packed_csvs(frame, _made(tmp_path / "a folder" / "csv"))
    as_arrow(frame, _made(tmp_path / "a folder" / "arrow"))
    here = f"file://{quote(str(tmp_path))}/a%20folder/in"
    with store_of(tmp_path) as store:
        for uri in (here, *(store.uri(f"a folder/{name}/") for name in ("in", "csv", "arrow"))):
            assert large.is_large(uri, 2**63)
            assert in_batches(exact, LargeTable.from_path(uri, **how(True)), options) == due, uri
        one = store.uri("a folder/in/deep/8.parquet")
        assert not large.is_large(one, 2**63)
        assert large.is_large(one, 1)
        assert LargeTable.from_path(one, **how(True)).rows == 10
    assert set(store.asked) > {"a folder/in/7.parquet", "a folder/in/deep/8.parquet", "a folder/arrow/b.arrow"}


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


@pytest.mark.usefixtures("small")
def test_a_uri_that_vanishes_or_never_was_ends_in_words_without_its_credentials(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    as_shuffled_parts(frame, tmp_path / "data" / "in")
    with store_of(tmp_path / "data") as store:
        table = LargeTable.from_path(store.uri("in"), **how(True))
        for uri, words in (
            (store.uri("nowhere"), "no such file or folder"),
            (f"http://{store.address}/in", "file://, s3://"),
        ):
            with pytest.raises(CohortError, match=words) as error:
                LargeTable.from_path(uri, **how(True))
            assert "secret" not in str(error.value)
        store.gone.add("in/deep/8.parquet")
        with pytest.raises(CohortError, match=r"8\.parquet: must stay.*no such file.*resume") as error:
            dc.condense(table, epsilon=2.0, threads=2, out=tmp_path / "run")
    assert "secret" not in str(error.value)
    internal = tmp_path / "run" / "internal"
    assert not (internal / "ledger.jsonl").exists()
    assert not list(internal.glob("distcondense-rows-*"))
    assert not any(b"secret" in path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())


# ---- a whole run


SIMPLE = SCHEMA.without(["ward", "spread"])


@pytest.mark.usefixtures("quick_placement", "small")
def test_a_folder_is_condensed_evaluated_on_a_sample_and_read_again(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "SAMPLE", 400)
    frame = frame.assign(died=(frame["age"] > 60).astype(int))  # a signal that no noise hides
    folder = as_shuffled_parts(frame, tmp_path / "in")
    schema = tmp_path / "schema.toml"
    schema.write_text(SIMPLE.to_toml())
    said = CliRunner().invoke(
        app,
        [
            "condense",
            str(folder),
            "--target",
            "died",
            "--schema",
            str(schema),
            "--person-id",
            "who",
            "--epsilon",
            "8",
            "--ipc",
            "3",
            "--threads",
            "1",
            "--memory",
            "1GB",
            "-o",
            str(tmp_path / "run"),
            "--quiet",
        ],
    )
    assert said.exit_code == 0, said.output
    record = json.loads((tmp_path / "run/internal/run.json").read_text())
    assert record["data"]["rows"] == len(frame)
    assert 300 < record["data"]["evaluated_on_rows"] < 500
    assert not list((tmp_path / "run" / "internal").glob("distcondense-rows-*"))
    sample = read_again(tmp_path / "run", folder)
    assert len(sample) == record["data"]["evaluated_on_rows"]
    said_so = f"Evaluation saw a sample: {len(sample)} of {len(frame)} real rows."
    for _ in range(2):  # as the run left the page, and after an evaluation
        for page, there in (("internal", True), ("release", False)):  # how many there are is not for release
            assert (said_so in (tmp_path / "run" / page / "report.html").read_text()) == there
        assert said_so in json.loads((tmp_path / "run/internal/report.json").read_text())["verdict"]
        assert evaluate_run(tmp_path / "run", sample, parts=(), threads=1)
    os.utime(folder / "9.parquet", (1, 1))
    with pytest.raises(CohortError, match="other files"):
        read_again(tmp_path / "run", folder)


def test_other_methods_say_that_they_need_the_whole_table(frame: pd.DataFrame, tmp_path: Path) -> None:
    table = LargeTable.from_path(
        as_parquet(frame, tmp_path), target="died", schema=SIMPLE, ignore=["who", "ward", "spread"]
    )
    with pytest.raises(SettingsError, match="needs the whole table in memory"):
        dc.condense(table, method="published", noise=False, threads=1)  # type: ignore[arg-type]


# ---- bad input: said in words, before anything is asked of patients


def refused(table: Callable[[], Any], kind: type[Exception], *words: str) -> None:
    with pytest.raises(kind) as error:
        table()
    for word in words:
        assert word in str(error.value)


def test_files_that_do_not_go_together_are_refused_before_a_row_is_read(frame: pd.DataFrame, tmp_path: Path) -> None:
    def fresh() -> Path:
        shutil.rmtree(tmp_path / "in", ignore_errors=True)
        (tmp_path / "in").mkdir()
        frame.iloc[:300].to_parquet(tmp_path / "in" / "a.parquet")
        return tmp_path / "in"

    def read() -> LargeTable:
        return LargeTable.from_path(tmp_path / "in", **how(True))

    frame.drop(columns=["stage"]).to_parquet(fresh() / "b.parquet")
    refused(read, CohortError, "b.parquet", "'stage'", "every column")
    frame.assign(age=frame["age"].astype(str)).to_parquet(fresh() / "b.parquet")
    refused(read, CohortError, "'age'", "one type", "texts in file b.parquet")
    (fresh() / "b.parquet").touch()
    refused(read, CohortError, "b.parquet", "an empty file")
    (fresh() / "b.parquet").write_bytes(b"PAR1 and then nothing of use")
    refused(read, CohortError, "b.parquet", "readable")
    frame.to_csv(fresh() / "b.csv")
    refused(read, CohortError, "one kind")
    shutil.rmtree(fresh())
    refused(read, CohortError, "no such file or folder")
    fresh()
    refused(lambda: LargeTable.from_path(tmp_path / "in", target="died"), SchemaError, "must be declared")


@pytest.mark.usefixtures("small")
def test_a_bad_row_is_told_by_file_and_rule_and_not_by_value(frame: pd.DataFrame, tmp_path: Path) -> None:
    spoiled = frame.assign(dose=frame["dose"].where(np.arange(len(frame)) != 444, 987654.25))
    for write in (as_parquet, as_csv):
        table = LargeTable.from_path(write(spoiled, tmp_path), **how(True))
        with pytest.raises(CohortError) as error:
            dc.condense(table, epsilon=2.0, threads=2, out=tmp_path / f"run {write.__name__}")
        assert "all." in str(error.value)
        assert "'dose'" in str(error.value)
        assert "bounds" in str(error.value)
        assert "987654" not in str(error.value)
        internal = tmp_path / f"run {write.__name__}" / "internal"
        assert not (internal / "ledger.jsonl").exists()  # nothing was asked
        assert not list(internal.glob("distcondense-rows-*"))


def test_a_file_that_vanishes_and_a_disk_without_room_end_in_words(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    path = as_parquet(frame, tmp_path / "in")
    table = LargeTable.from_path(tmp_path / "in", **how(True))
    monkeypatch.setattr(shards.shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(10, 5, 5))  # type: ignore[attr-defined]
    refused(lambda: dc.condense(table, threads=1), RunFolderError, "must have room", "scratch=")
    monkeypatch.undo()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(buckets.os, "posix_fallocate", full)
    refused(lambda: dc.condense(table, threads=2), RunFolderError, "No space left", "scratch=")
    monkeypatch.undo()
    path.unlink()
    refused(lambda: dc.condense(table, threads=2), CohortError, "all.parquet", "no such file", "resume")


def test_progress_tells_rows_bytes_and_time_and_nothing_else() -> None:
    now, said = [0.0], list[str]()
    reading = shards.ReadProgress(1000, 5 * 10**9, 4, said.append, clock=lambda: now[0])
    reading.add(rows=100, bytes_=5 * 10**8)
    now[0] = 10.0
    reading.add(rows=100, bytes_=5 * 10**8, pieces=1)
    assert said == ["read 200 of about 1,000 rows, 1.0 GB, 1 of 4 pieces; 20 rows/s, about 40 s left"]
