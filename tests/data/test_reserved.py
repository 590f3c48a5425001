"""Our own columns: names that collide with nobody's, last in the table, described there; never read as patients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.reserved import MADE_HERE, RISK, each_named
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, SchemaError
from tests.shell import Call, refused

OLD = ("weight", "risk", "expected")  # of a hospital's, and no longer ours
FEATURES = tuple(Column(name, "integer", low=0, high=99, unit="kg") for name in OLD)
SCHEMA = Schema((*FEATURES, Column("died", "binary", categories=("no", "yes"))))


def table(rows: int = 1500) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 100, (rows, len(OLD)))
    died = np.where(rng.random(rows) < (values[:, 0] / 99) ** 3, "yes", "no")
    return pd.DataFrame(values, columns=list(OLD)).assign(died=died)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("ours") / "run"
    cohort = dc.Cohort.from_frame(table(), target="died", schema=SCHEMA)
    dc.condense(cohort, ipc=20, epsilon=8.0, threads=1, out=out)
    return out / "release"


def test_a_table_may_have_columns_called_weight_and_risk_and_ours_stand_last(run: Path) -> None:
    made = pd.read_csv(run / "condensed.csv")
    assert list(made) == [*OLD, "died", "distcondense_risk", "distcondense_weight"]
    assert made[list(OLD)].isin(range(100)).all(axis=None)


def test_the_released_schema_describes_features_outcome_and_our_columns_apart(run: Path) -> None:
    made, said = pd.read_csv(run / "condensed.csv"), Schema.from_toml(run / "schema.toml")
    assert said.columns == FEATURES
    assert [c.name for c in (*said.columns, *said.outcome, *said.added)] == list(made)
    assert [c.categories for c in said.outcome] == [("no", "yes")]
    assert all(c.meaning for c in (*said.outcome, *said.added))
    assert all("feature" in c.meaning for c in said.added)
    assert Schema.from_dict(said.to_dict()) == said


def test_a_released_schema_serves_the_real_table_again(run: Path) -> None:
    cohort = dc.Cohort.from_frame(table(), target="died", schema=Schema.from_toml(run / "schema.toml"))
    assert list(cohort.features) == list(OLD)


@pytest.mark.parametrize("command", ["schema infer TABLE", "condense TABLE --target died --epsilon 1"])
def test_our_own_rows_are_refused_by_their_names(call: Call, run: Path, command: str) -> None:
    answer = call(
        *(str(run / "condensed.csv") if word == "TABLE" else word for word in command.split()),
        *(["--schema", run / "schema.toml"] if command.startswith("condense") else []),
    )
    refused(answer, MADE_HERE)


def test_check_refuses_them_in_a_table_and_in_a_schema(call: Call, run: Path, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    refused(call("schema", "check", tmp_path / "schema.toml", run / "condensed.csv"), MADE_HERE)
    assert call("schema", "check", run / "schema.toml", run / "condensed.csv").code == 0  # its own
    with pytest.raises(SchemaError, match=MADE_HERE):
        Schema((Column("Distcondense_Risk", "continuous", low=0, high=1),))


def test_ignoring_our_columns_does_not_make_them_patients(run: Path) -> None:
    made = pd.read_csv(run / "condensed.csv")
    with pytest.raises(CohortError, match=MADE_HERE):
        dc.Cohort.from_frame(made, target="died", schema=SCHEMA, ignore=[RISK, "distcondense_weight"])


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (("mild", "severe"), ("mild", "severe")),
        ((1, -1), ("1", "_1")),
        (("a b", "a-b"), ("1", "2")),
        (("Low", "low"), ("1", "2")),
        (("<5", ">5", "?"), ("1", "2", "3")),
        (("<5", "5 to 9"), ("_5", "5_to_9")),
    ],
)
def test_every_class_has_a_column_of_its_own_in_any_tool(labels: tuple[object, ...], named: tuple[str, ...]) -> None:
    found = each_named(RISK, labels)
    assert found == tuple(f"distcondense_risk_{name}" for name in named)
    assert all(name.isidentifier() for name in found)
