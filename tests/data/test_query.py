"""Tables that are queries, as a data manager with an OMOP database asks for them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.cohort import Cohort
from distcondense.data.query import MEMORY, read_query
from distcondense.errors import SettingsError, UserError
from tests.shell import Call, refused

duckdb = pytest.importorskip("duckdb", reason="the extra sql is not installed")
DOCUMENT = Path(__file__).parents[2] / "docs" / "custodian.md"
SURNAME = "Zacharias"


def omop(folder: Path, *, seed: int = 0, people: int = 80) -> Path:
    """The tables of the common data model that the example asks, in any order."""
    rng, days = np.random.default_rng(4), pd.Timestamp("2019-01-01") + pd.to_timedelta(np.arange(people) * 3, "D")
    ids = np.arange(people) + 500
    tables = {
        "person": {
            "person_id": ids, "gender_concept_id": rng.choice([8507, 8532, 0], people),
            "year_of_birth": rng.integers(1930, 2000, people),
        },
        "visit_occurrence": {
            "person_id": np.tile(ids, 3), "visit_concept_id": np.repeat([9202, 9201, 9201], people),
            "visit_start_date": [*(days - pd.Timedelta(40, "D")), *days, *(days + pd.Timedelta(300, "D"))],
        },
        "condition_occurrence": {
            "person_id": ids, "condition_concept_id": rng.choice([201826, 317009], people), "condition_start_date": days
        },
        "concept_ancestor": {
            "ancestor_concept_id": [201820, 201820], "descendant_concept_id": [201820, 201826]
        },
        "measurement": {
            "person_id": ids, "measurement_concept_id": 3016723, "unit_concept_id": 8840, "measurement_date": days,
            "value_as_number": np.round(rng.gamma(4, 0.3, people), 2),
        },
        "death": {"person_id": ids[::3], "death_date": days[::3] + pd.Timedelta(90, "D")},
        "note": {"person_id": ids, "note_text": [SURNAME] * people},
    }  # fmt: skip
    path = folder / "omop.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as database:
        for name, columns in tables.items():
            frame = pd.DataFrame(columns).sample(frac=1, random_state=seed)
            dates = ", ".join(f"CAST({one} AS DATE) AS {one}" for one in frame if one.endswith("_date"))
            database.execute(f"CREATE TABLE {name} AS SELECT * {f'REPLACE ({dates})' if dates else ''} FROM frame")
    return path


@pytest.fixture
def features(tmp_path: Path) -> Path:
    """The example of the document, as a file."""
    (found,) = re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "features.sql").write_text(found, encoding="utf-8")
    return tmp_path / "features.sql"


def test_the_example_is_one_row_a_person_whatever_order_the_database_has(tmp_path: Path, features: Path) -> None:
    first = read_query(omop(tmp_path), features)
    assert len(first) == first["person_id"].nunique() == 80
    assert set(first["sex"]) == {"f", "m", "other"}
    assert first["died"].sum() == 27
    assert first["visits_before"].eq(1).all()
    assert 0 < first["diabetes"].sum() < 80
    pd.testing.assert_frame_equal(read_query(omop(tmp_path, seed=9), features), first)


def test_a_query_is_condensed_and_evaluated_as_a_file_is(tmp_path: Path, features: Path, call: Call) -> None:
    omop(tmp_path)
    begun = call("init", "omop.duckdb", "--query", "features.sql", "--yes", "--no-plan")
    assert begun.code == 0, begun.err
    (following,) = (line for line in begun.out.splitlines() if line.startswith("next, once"))
    assert "--query features.sql --account patients.jsonl --schema schema.toml --target died" in following
    words = "condense omop.duckdb --query features.sql --schema schema.toml --target died --person-id person_id"
    how = [*words.split(), "--method", "published", "--no-noise", "--steps", "2", "--ipc", "5", "--out", "run"]
    refused(call(*how), "no file whose account could be charged", "--account FILE")
    assert call("privacy", "ledger", "patients.jsonl", "--create").code == 0
    answer = call(*how, "--account", "patients.jsonl")
    assert answer.code == 0, answer.err
    assert len(dc.Odometer(tmp_path / "patients.jsonl").read().charges) == 1
    assert "creatinine_mg_dl" in dc.load(tmp_path / "run").frame
    measured = call("evaluate", "run", "--data", "omop.duckdb", "--parts", "copies")
    assert measured.code == 0, measured.err


def test_in_python_too_with_an_account(tmp_path: Path, features: Path) -> None:
    database = omop(tmp_path)
    schema = dc.Schema.draft(database, target="died", person_id="person_id", query=features)
    assert (schema["creatinine_mg_dl"].unit, schema["age"].high) == ("mg/dL", 120)
    with pytest.raises(SettingsError, match=r"no file whose account could be charged.*account=FILE"):
        dc.condense(database, "died", query=features, schema=schema)
    with pytest.raises(SettingsError, match=r"query: is of a database\. Found a frame"):
        dc.condense(pd.DataFrame({"died": [0, 1]}), "died", query="SELECT 1")
    with pytest.raises(SettingsError, match=r"separator: says how a CSV is written\. Found a query"):
        dc.condense(database, "died", query=features, separator=";")


def test_numbers_keep_the_types_of_the_database() -> None:
    query = "SELECT i AS x, CAST(i * 1.5 AS DECIMAL(9, 2)) AS cost, i % 2 AS y FROM range(40) AS t(i)"
    schema = dc.Schema.draft(MEMORY, target="y", query=query)
    assert (schema["cost"].kind, schema["cost"].decimals) == ("continuous", 1)
    assert Cohort.from_file(MEMORY, query=query, target="y").features["cost"].max() == 58.5


def test_one_hole_changes_nobody_elses_place() -> None:
    """A column of truth values with one hole is of another type in pandas; rows must not be put in another order."""
    query = "SELECT i AS who, i % 2 = 0 AS flag, i AS number, i / 4 AS part FROM range(60) AS t(i)"
    hole = f"{query} UNION ALL SELECT 60, NULL, NULL, NULL"
    first, second = read_query(MEMORY, query), read_query(MEMORY, hole)
    assert second.loc[second["who"] != 60, "who"].tolist() == first["who"].tolist()


@pytest.mark.parametrize(
    ("database", "query", "says"),
    [
        ("omop.duckdb", "SELECT * FROM patients", "Table with name patients does not exist"),
        ("omop.duckdb", "SELEC 1", "Parser Error"),
        ("omop.duckdb", "CREATE TABLE mine AS SELECT 1", "must be answered with rows"),
        ("omop.duckdb", "SELECT CAST(note_text AS INTEGER) FROM note", "must be answered with rows"),
        ("omop.duckdb", "SELECT * FROM person WHERE FALSE", "at least one row"),
        ("omop.duckdb", "SELECT person_id, person_id FROM person", "name each column once"),
        ("omop.duckdb", "SELECT * FROM read_csv('t.csv')", "must not read files without types"),
        ("omop.duckdb", "SELECT * FROM 'visits.json'", "must not read files without types"),
        ("none.duckdb", "SELECT 1", "no such file"),
        ("sqlite:///a.db", "SELECT 1", "SQLite's columns have no types"),
        ("snowflake://me:secret@account/db", "SELECT 1", "pip install adbc-driver-snowflake"),
        ("omop.duckdb", "none.sql", "query none.sql: "),
    ],
)
def test_what_cannot_be_answered_is_said_without_a_cell(tmp_path: Path, database: str, query: str, says: str) -> None:
    omop(tmp_path)
    with pytest.raises(UserError) as error:
        read_query(database if "://" in database else tmp_path / database, query)
    assert says in str(error.value)
    assert SURNAME not in str(error.value)
    assert "secret" not in str(error.value)
    with duckdb.connect(str(tmp_path / "omop.duckdb"), read_only=True) as unchanged:
        assert len(unchanged.execute("SHOW TABLES").fetchall()) == 7
