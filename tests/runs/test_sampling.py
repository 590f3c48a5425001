"""Further rows of a run: all or some, now or from its folder, at no cost, and nothing of a patient in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.relations import Derived
from distcondense.data.reserved import WEIGHT
from distcondense.data.schema import Column, Schema
from distcondense.errors import RunFolderError, SettingsError
from distcondense.privacy.verify import verify
from distcondense.runs.kept_objects import from_plain, to_plain
from tests.shell import Call

FEATURES = (
    Column("age", "integer", low=0, high=110, missing="indicator"),
    Column("sex", "categorical", categories=("f", "m")),
    Column("dose", "continuous", low=0, high=50, decimals=1),
    Column("twice", "continuous", low=0, high=100, decimals=1),
)
TWICE = Derived("twice", "2 * dose")
KINDS: dict[str, tuple[dict[str, Any], tuple[Column, ...]]] = {
    "two": ({"target": "ill"}, (Column("ill", "binary", categories=("no", "yes")),)),
    "three": ({"target": "stage"}, (Column("stage", "categorical", categories=("I", "II", "III")),)),
    "number": ({"target": "stay"}, (Column("stay", "continuous", low=0, high=60, decimals=1),)),
    "time": (
        {"time": "months", "event": "died"},
        (Column("months", "integer", low=0, high=60), Column("died", "binary", categories=(0, 1))),
    ),
}


def patients(rows: int = 3000) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    age, sex = rng.integers(18, 95, rows).astype(float), rng.choice(["f", "m"], rows)
    dose = rng.gamma(3, 3, rows).clip(0, 50).round(1)
    risk = (age - 60) / 12 + (sex == "m")
    age[rng.random(rows) < 0.1] = np.nan
    return pd.DataFrame(
        {
            "age": age,
            "sex": sex,
            "dose": dose,
            "twice": (2 * dose).round(1),
            "ill": np.where(rng.logistic(size=rows) + risk > 0, "yes", "no"),
            "stage": np.array(["I", "II", "III"])[np.digitize(rng.logistic(size=rows) + risk, [-1, 1])],
            "stay": (20 + 5 * risk + rng.normal(0, 4, rows)).clip(0, 60).round(1),
            "months": np.ceil(rng.exponential(40 * np.exp(-risk / 2)).clip(0.1, 60)),
            "died": (rng.random(rows) < 0.6).astype(int),
        }
    )


def cohort(kind: str) -> dc.Cohort:
    how, outcome = KINDS[kind]
    frame = patients()[[column.name for column in (*FEATURES, *outcome)]]
    return dc.Cohort.from_frame(frame, **how, schema=Schema((*FEATURES, *outcome), rules=(TWICE,), origin="declared"))


@pytest.fixture(scope="module", params=list(KINDS))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[dc.Result, Path]:
    run = tmp_path_factory.mktemp(request.param) / "run"
    result = dc.condense(cohort(request.param), ipc=5, epsilon=8.0, holdout=0.0, threads=1, seed=1, out=run)
    assert not result.privacy.answer
    return result, run


def test_further_rows_are_drawn_from_what_left_the_gate(made: tuple[dc.Result, Path]) -> None:
    result, _ = made
    asked = len(result.privacy.events)
    rows = result.sample(3000, seed=3)
    assert list(rows.columns) == list(result.frame.columns)
    assert len(rows) == 3000
    assert rows[WEIGHT].sum() == pytest.approx(result.sampler.rows)  # type: ignore[union-attr]
    real = patients()
    assert (rows["sex"] == "m").mean() == pytest.approx((real["sex"] == "m").mean(), abs=0.05)
    assert rows["age"].mean() == pytest.approx(real["age"].mean(), abs=3)
    assert rows["age"].isna().mean() == pytest.approx(0.1, abs=0.03)
    for name in result.outcome:
        if pd.api.types.is_numeric_dtype(real[name]):
            assert rows[name].mean() == pytest.approx(real[name].mean(), rel=0.15)
    assert (rows["twice"] - 2 * rows["dose"]).abs().max() < 0.06  # what is computed is computed
    assert rows.equals(result.sample(3000, seed=3))
    assert not rows.equals(result.sample(3000, seed=4))
    assert len(result.privacy.events) == asked  # nobody was asked anything
    assert rows.attrs == result.frame.attrs


def test_some_rows_fulfil_every_condition_and_weigh_as_many_patients_as_do(made: tuple[dc.Result, Path]) -> None:
    result, _ = made
    some = result.sample(200, where={"sex": "f", "age": (60, 80)}, seed=1)
    assert len(some) == 200
    assert set(some["sex"]) == {"f"}
    assert some["age"].between(60, 80).all()
    real = patients()
    there = int(((real["sex"] == "f") & real["age"].between(60, 80)).sum())
    assert some[WEIGHT].sum() == pytest.approx(there, rel=0.25)
    assert result.sample(20, where={"age": None})["age"].isna().all()
    name = result.outcome[-1]
    label = result.frame[name].iloc[0]
    assert (result.sample(20, where={name: label})[name] == label).all()


def test_a_saved_run_draws_the_same_rows_later(made: tuple[dc.Result, Path]) -> None:
    result, run = made
    later = dc.Result.load(run)
    assert later.sample(50, {"sex": "m"}, seed=2).equals(result.sample(50, {"sex": "m"}, seed=2))
    assert later.frame.equals(result.frame)
    assert verify(run).holds
    assert not (run / "release/sampler.json").exists()


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[dc.Results, Path]:
    run = tmp_path_factory.mktemp("two") / "run"
    return dc.condense(cohort("two"), ipc=[4, 6], epsilon=8.0, holdout=0.0, threads=1, out=run), run


@pytest.mark.parametrize(
    ("rows", "where", "words"),
    [
        (0, {}, "rows: must be a whole number"),
        (10, {"sx": "f"}, "must name a column"),
        (10, {"sex": "woman"}, "must be among the categories: f, m"),
        (10, {"sex": []}, "must be among the categories"),
        (10, {"age": (80, 60)}, "must begin with the lower end"),
        (10, {"age": "old"}, "must be a number, or a lowest and a highest one"),
        (10, {"age": (1, 2, 3)}, "must be a number, or a lowest and a highest one"),
        (10, {"dose": (49.9, 50), "age": (0, 1)}, "must leave enough of the rows"),
    ],
)
def test_what_cannot_be_drawn_is_refused_by_name(
    two: tuple[dc.Results, Path], rows: int, where: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distcondense.runs.sampling.BATCHES", 2)
    with pytest.raises(SettingsError, match=words):
        two[0][4].sample(rows, where)


def test_each_set_of_a_run_can_be_loaded_and_a_damaged_file_is_refused(two: tuple[dc.Results, Path]) -> None:
    sets, run = two
    assert len(dc.Result.load(run, ipc=6).frame) == len(sets[6].frame)
    with pytest.raises(RunFolderError, match="ipc: must be one of 4, 6"):
        dc.Result.load(run, ipc=5)
    file = run / "internal/sampler.json"
    whole = file.read_text()
    for wrong in (
        "[]",
        "{}",
        json.dumps({"object": "os:system", "fields": {}}),
        whole.replace("PopulationSampler", "Popen"),
    ):
        file.write_text(wrong)
        with pytest.raises(RunFolderError):
            dc.Result.load(run, ipc=4).sample(1)
    file.unlink()
    with pytest.raises(SettingsError, match="is for runs whose method keeps what left the gate"):
        dc.Result.load(run, ipc=4).sample(1)
    file.write_text(whole)


def test_a_method_that_keeps_nothing_draws_nothing() -> None:
    result = dc.condense(cohort("two"), method="published", ipc=2, steps=2, noise=False, threads=1)
    with pytest.raises(
        SettingsError, match=r"is for runs whose method keeps what left the gate. Found method published"
    ):
        result.sample(10)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        float("inf"),
        "a",
        (1, "b"),
        [1, (2,)],
        {("a", 1): 2.5},
        np.arange(6.0).reshape(2, 3),
        FEATURES[0],
    ],
)
def test_kept_objects_come_back_as_they_were(value: Any) -> None:
    again = from_plain(json.loads(json.dumps(to_plain(value))))
    assert type(again) is type(value)
    assert np.array_equal(again, value) if isinstance(value, np.ndarray) else again == value


@pytest.mark.parametrize(
    "wrong",
    [
        {"object": "subprocess:Popen", "fields": {"args": "true"}},
        {"object": "distcondense.runs.folder:os", "fields": {}},
        {"object": "distcondense.runs.files:write_text", "fields": {}},
        {"object": "distcondense.nowhere:Thing", "fields": {}},
        {"array": [1], "shape": [1], "type": "|O"},
        {"what": 1},
        [1],
    ],
)
def test_only_data_of_this_package_is_made_of_a_file(wrong: Any) -> None:
    with pytest.raises(RunFolderError):
        from_plain(wrong)


def test_the_command_writes_some_rows_of_a_saved_run(two: tuple[dc.Results, Path], call: Call, tmp_path: Path) -> None:
    _, run = two
    said = ("sample", str(run), "--rows", "30", "--where", "sex=f", "--where", "age=60:80", "--out", "more.csv")
    assert call(*said).code == 0
    rows = pd.read_csv(tmp_path / "more.csv")
    assert len(rows) == 30
    assert set(rows["sex"]) == {"f"}
    assert rows["age"].between(60, 80).all()
    assert "exists already" in call(*said).err
    assert call(*said, "--force").code == 0
    assert "must be NAME=…" in call("sample", str(run), "--rows", "3", "--where", "sex", "--out", "b.csv").err
    assert call("sample", str(run), "--rows", "3", "--where", "age=old", "--out", "b.csv").code == 2
    assert call("sample", str(run), "--rows", "3", "--out", "b.txt").code == 2
