"""What a run will take: by lines that were measured, of shapes that files tell without a row being read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import record
from distcondense.cluster import sizes
from distcondense.cluster.sizes import SCRATCH, Shape, models, plan
from distcondense.errors import CohortError, SettingsError
from tests.shell import Call, refused


def test_the_models_are_those_that_were_measured() -> None:
    found = json.loads((record.RESULTS / "sizes.json").read_text(encoding="utf-8"))["results"]
    assert {how: set(ways) for how, ways in found.items()} == {how: set(ways) for how, ways in models().items()}
    for how, ways in models().items():
        for name, model in ways.items():
            assert model.memory == pytest.approx(tuple(found[how][name]["bytes"]), rel=0.01)
            assert model.seconds == pytest.approx(tuple(found[how][name]["cpu_seconds"]), rel=0.01)
            for point in found[how][name]["points"]:
                values = point["rows"] * point["columns"]
                told = model.memory[0] + model.memory[1] * values, model.seconds[0] + model.seconds[1] * values
                assert 0.4 < told[0] / point["bytes"] < 2.5, (name, point)
                assert 0.4 < told[1] / point["cpu_seconds"] < 2.5, (name, point)


def test_what_actors_take_beside_threads_is_what_was_measured() -> None:
    largest = json.loads((record.RESULTS / "scale.json").read_text(encoding="utf-8"))["results"]["ray"][0]
    threads, actors = largest["two threads"], largest["two actors"]
    ratio = (actors["actors_cpu_seconds"] + actors["cpu_seconds"]) / threads["cpu_seconds"]
    assert pytest.approx(ratio, rel=0.1) == sizes.ACTORS_TAKE
    assert pytest.approx(actors["cluster_seconds"] + actors["actors_start_seconds"], rel=0.1) == sizes.STARTS


@pytest.mark.parametrize(
    ("text", "rows", "columns"), [("1e7x20", 10**7, 20), ("4000×2932", 4000, 2932), ("5 x 2", 5, 2)]
)
def test_a_shape_is_read_as_it_is_written(text: str, rows: int, columns: int) -> None:
    assert Shape.from_text(text) == Shape(rows, columns)


def test_what_is_no_shape_is_a_table_or_refused(call: Call) -> None:
    assert Shape.from_text("cohort.parquet") is None
    with pytest.raises(SettingsError, match="ROWSxCOLUMNS"):
        Shape.from_text("1e99x20")
    refused(call("plan", "nowhere.parquet"), "nowhere.parquet")
    refused(call("plan", "1e6x20", "--method", "magic"), "must be one that was measured")


def test_files_tell_their_shape_without_a_row_being_read(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.random.default_rng(0).integers(100, 999, (500, 4)), columns=list("abcd"))
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "many").mkdir()
    for part in range(3):
        frame.to_parquet(tmp_path / f"many/{part}.parquet")
    assert Shape.from_table(tmp_path / "a.parquet") == Shape(500, 4)
    assert Shape.from_table(tmp_path / "a.csv") == Shape(500, 4, exact=False)
    assert Shape.from_table(tmp_path / "many") == Shape(1500, 4)
    (tmp_path / "empty").mkdir()
    with pytest.raises(CohortError, match="must be a Parquet"):
        Shape.from_table(tmp_path / "empty")


def test_a_larger_table_takes_more_and_batches_bound_the_memory(call: Call) -> None:
    small, large = (plan(Shape(rows, 20), "private", cores=4, actors=8) for rows in (10**5, 10**8))
    for less, more in zip(small, large, strict=True):
        assert more.cpu_seconds > less.cpu_seconds
    whole, batches, cluster = large
    assert batches.memory < whole.memory / 2
    assert batches.scratch == cluster.scratch == SCRATCH * 10**8 * 20
    assert len(plan(Shape(10**5, 20), "published", cores=4, actors=8)) == 1
    answer = call("plan", "1e8x20", "--json")
    assert [one["where"] for one in json.loads(answer.out)["ways"]] == [one.where for one in large]
    assert "100,000,000 rows × 20 columns" in call("plan", "1e8x20").out
