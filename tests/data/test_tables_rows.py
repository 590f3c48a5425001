"""A CSV is read row by row: nobody's row changes how another person's row is read."""

from __future__ import annotations

import csv
import gzip
import io
import socket
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcondense.data import tables
from distcondense.data.cohort import Cohort
from distcondense.data.csv_table import read_cell
from distcondense.data.reading import read_csv_cells
from distcondense.data.schema import Column, Schema
from distcondense.data.tables import MISSING_MARKERS, read_table
from distcondense.errors import CohortError
from tests.tiny import CANARIES, patients

HEADER = ("who", "crp", "age", "code", "flag", "died")
SCHEMA = Schema(
    (
        Column("crp", "continuous", low=-1e6, high=1e6, missing="indicator"),
        Column("age", "integer", low=0, high=1e9),
        Column("code", "categorical", categories=("01", "1", 2, "None", "1e5"), missing="category"),
        Column("flag", "binary", categories=(False, True)),
        Column("died", "binary", categories=("0", "ja")),
    )
)
HOW: dict[str, Any] = {"schema": SCHEMA, "target": "died", "person_id": "who"}
# what each cell says, by a table and not by the code under test
IDS = ("1", "01", "001", "1E5", "10E4", "1.0", " 1", "A-7", "True")
CRP = {
    "1": 1.0,
    "01": 1.0,
    "0.1": 0.1,
    "1e-3": 1e-3,
    "+2": 2.0,
    " 3": 3.0,
    "-0.30000000000000004": -0.30000000000000004,
    "123456.78901234567": 123456.78901234567,
    "": np.nan,
    "NA": np.nan,
}
AGE = {"40": 40.0, "040": 40.0, "40.0": 40.0, "1E5": 1e5, "123456789": 123456789.0}
CODE = {"01": "01", "1": "1", "2": 2, "2.0": 2, "02": 2, "None": "None", "1e5": "1e5", "": None, "NA": None}
FLAG = {"True": True, "TRUE": True, "true": True, "1": True, "1.0": True, "False": False, "0": False, "FALSE": False}
DIED = {"0": 0, "ja": 1}
Row = tuple[str, ...]

rows_of = st.tuples(st.sampled_from(IDS), *(st.sampled_from(sorted(cells)) for cells in (CRP, AGE, CODE, FLAG, DIED)))
undeclared = st.sampled_from(["0", "1", "00", "01", "1.0", "1e0", " 0"])


def written(rows: Sequence[Row], header: Row = HEADER) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


def cohort_of(rows: Sequence[Row], header: Row = HEADER, ending: str = ".csv", **how: Any) -> Cohort:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"cohort{ending}"
        text = written(rows, header).encode()
        path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
        return Cohort.from_file(path, **(HOW | how))


def same_rows(found: Cohort, expected: Cohort) -> None:
    pd.testing.assert_frame_equal(found.features, expected.features, check_exact=True)
    np.testing.assert_array_equal(found.outcome["label"], expected.outcome["label"])
    assert found.outcome.kind.labels == expected.outcome.kind.labels
    assert list(map(type, found.outcome.kind.labels)) == list(map(type, expected.outcome.kind.labels))
    assert found.person is not None
    assert expected.person is not None
    np.testing.assert_array_equal(pd.factorize(found.person)[0], pd.factorize(expected.person)[0])


@settings(max_examples=60)
@given(rows=st.lists(rows_of, min_size=2, max_size=7), ending=st.sampled_from([".csv", ".csv.gz"]), data=st.data())
def test_a_row_that_comes_or_goes_changes_no_other_row(rows: list[Row], ending: str, data: st.DataObject) -> None:
    gone = data.draw(st.integers(0, len(rows) - 1))
    rest = [i for i in range(len(rows)) if i != gone]
    same_rows(cohort_of(rows, ending=ending).take(np.array(rest)), cohort_of([rows[i] for i in rest], ending=ending))


@settings(max_examples=40)
@given(rows=st.lists(rows_of, min_size=2, max_size=6), labels=st.lists(undeclared, min_size=6, max_size=6))
def test_a_row_changes_no_other_row_where_the_outcome_is_not_declared(rows: list[Row], labels: list[str]) -> None:
    rows = [(*row[:-1], label) for row, label in zip(rows, labels, strict=False)]
    how = {"schema": SCHEMA.without(["died"])}
    whole = cohort_of(rows, **how)
    for gone in range(len(rows)):
        rest = [i for i in range(len(rows)) if i != gone]
        same_rows(whole.take(np.array(rest)), cohort_of([rows[i] for i in rest], **how))


@settings(max_examples=60)
@given(rows=st.lists(rows_of, min_size=1, max_size=8))
def test_every_cell_says_what_it_says_alone(rows: list[Row]) -> None:
    cohort = cohort_of(rows)
    who, crp, age, code, flag, died = zip(*rows, strict=True)
    np.testing.assert_array_equal(cohort.features["crp"], [CRP[c] for c in crp])
    np.testing.assert_array_equal(cohort.features["age"], [AGE[c] for c in age])
    assert [None if c != c else c for c in cohort.features["code"]] == [CODE[c] for c in code]
    assert list(cohort.features["flag"]) == [FLAG[c] for c in flag]
    assert list(cohort.outcome["label"]) == [DIED[c] for c in died]
    assert cohort.outcome.kind.labels == ("0", "ja")
    assert cohort.person is not None
    for i, one in enumerate(who):
        for j, other in enumerate(who):
            assert (cohort.person[i] == cohort.person[j]) == (one == other)


@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["declared", "inferred"])
def test_ids_that_are_one_number_are_four_persons(schema: Schema | None) -> None:
    ids = ("1", "01", "1E5", "10E4")
    rows = [(who, "1.5", "40", "2", "True", label) for who in ids for label in ("0", "ja")]
    cohort = cohort_of(rows, schema=schema, positive="ja")
    assert cohort.person is not None
    assert list(cohort.person) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("label", ["0", "ja"])
def test_a_declared_outcome_reads_when_only_one_label_occurs(label: str) -> None:
    cohort = cohort_of([("1", "1.5", "40", "2", "True", label)] * 3)
    assert list(cohort.outcome["label"]) == [int(label == "ja")] * 3
    assert cohort.outcome.kind.labels == ("0", "ja")
    assert cohort.outcome.kind.labels_public


def test_the_event_of_a_survival_table_reads_cell_by_cell() -> None:
    schema = Schema(
        (Column("age", "integer"), Column("months", "continuous"), Column("event", "binary", categories=("0", "ja")))
    )
    header = ("age", "months", "event")
    for rows in ([("40", "01.50", "0")], [("40", "1.5", "0"), ("41", "2", "ja")]):
        how = {"schema": schema, "target": None, "person_id": None, "time": "months", "event": "event"}
        cohort = cohort_of(rows, header, **how)
        assert (cohort.outcome["time"][0], cohort.outcome["label"][0]) == (1.5, 0)


@pytest.mark.parametrize(
    ("cells", "positive", "labels", "read"),
    [
        (("0", "1"), None, (0, 1), [0, 1]),
        (("0.0", "1.0"), None, (0, 1), [0, 1]),
        (("FALSE", "TRUE"), None, (False, True), [0, 1]),
        (("1", "2"), "2", (1, 2), [0, 1]),
        (("01", "ja"), "01", ("ja", "01"), [1, 0]),
        (("no", "yes"), "yes", ("no", "yes"), [0, 1]),
    ],
)
def test_an_undeclared_outcome_is_a_number_where_it_reads_as_one(
    cells: tuple[str, str], positive: str | None, labels: tuple[Any, Any], read: list[int]
) -> None:
    rows = [("1", "1.5", "40", "2", "True", cell) for cell in cells]
    cohort = cohort_of(rows, schema=SCHEMA.without(["died"]), positive=positive)
    assert list(cohort.outcome["label"]) == read
    assert cohort.outcome.kind.labels == labels
    assert list(map(type, cohort.outcome.kind.labels)) == list(map(type, labels))


def test_an_undeclared_outcome_of_words_and_numbers_is_refused() -> None:
    rows = [("1", "1.5", "40", "2", "True", cell) for cell in ("True", "False", "1")]
    with pytest.raises(CohortError, match=r"'died': must be all true/false or all numbers. Found both in 1 row"):
        cohort_of(rows, schema=SCHEMA.without(["died"]))


LEGAL = ("1", "1.5", "40", "2", "True", "0")


@pytest.mark.parametrize(
    ("name", "cell", "says"),
    [
        ("crp", "CANARY", r"'crp': must be numbers. Found text in 1 row, first at row 3"),
        ("age", "987654x", r"'age': must be numbers. Found text in 1 row, first at row 3"),
        ("age", "987_654", r"'age': must be numbers. Found text in 1 row, first at row 3"),
        ("crp", "True", r"'crp': must be numbers. Found text in 1 row, first at row 3"),
        ("crp", "-inf", r"'crp': must be finite. Found 1 row, first at row 3"),
        ("code", "987654", r"'code': must hold the schema's categories only. Found 1 row, first at row 3"),
        ("code", "001", r"'code': must hold the schema's categories only. Found 1 row, first at row 3"),
        ("flag", "CANARY", r"'flag': must hold the schema's categories only. Found 1 row, first at row 3"),
        ("died", "CANARY", r"'died': must hold the schema's two categories only. Found 1 row, first at row 3"),
        ("died", "00", r"'died': must hold the schema's two categories only. Found 1 row, first at row 3"),
        ("who", "NA", r"'who': must be known .*1 row, first at row 3"),
    ],
)
def test_a_cell_that_does_not_fit_is_refused_and_never_shown(name: str, cell: str, says: str) -> None:
    bad = tuple(cell if column == name else legal for column, legal in zip(HEADER, LEGAL, strict=True))
    with pytest.raises(CohortError, match=says) as error:
        cohort_of([LEGAL, LEGAL, bad])
    assert not any(canary in str(error.value) for canary in CANARIES)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None


def test_every_problem_of_a_csv_is_in_one_message() -> None:
    with pytest.raises(CohortError) as error:
        cohort_of([LEGAL, ("1", "CANARY", "40", "CANARY", "CANARY", "0")])
    for part in ("3 problems", "'crp'", "'code'", "'flag'"):
        assert part in str(error.value)
    assert "CANARY" not in str(error.value)


@pytest.mark.parametrize("cells", [("True", "False"), ("true", ""), ("", "true"), ("TRUE", "1"), ("1", "TRUE")])
def test_a_number_column_takes_no_true_and_false_whatever_the_other_rows_hold(cells: tuple[str, str]) -> None:
    with pytest.raises(CohortError, match="'crp': must be numbers"):
        cohort_of([("1", cell, "40", "2", "True", "0") for cell in cells])


def test_a_column_that_is_left_out_may_hold_anything() -> None:
    cohort = cohort_of([LEGAL, ("1", "some text", "40", "2", "True", "ja")], ignore=iter(["crp"]))
    assert list(cohort.features) == ["age", "code", "flag"]


def test_a_named_marker_is_a_hole_in_text_and_number_columns() -> None:
    rows = [LEGAL, ("1", "?", "40", "?", "True", "ja")]
    cohort = cohort_of(rows, missing_markers=(*MISSING_MARKERS, "?"))
    assert list(cohort.features["crp"].isna()) == [False, True]
    assert list(cohort.features["code"].isna()) == [False, True]


def test_a_table_without_roles_is_read_as_pandas_reads_it_but_to_the_last_digit(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n01,0.30000000000000004\n2,123456.78901234567\n")
    frame = read_table(path)
    assert list(frame["a"]) == [1, 2]
    assert list(frame["b"]) == [0.30000000000000004, 123456.78901234567]
    assert list(read_csv_cells(path, Schema((Column("a", "categorical", categories=("01", 2)),)))["a"]) == ["01", 2]


@settings(max_examples=200)
@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.booleans())
def test_a_written_number_is_read_as_itself(value: float) -> None:
    assert read_cell(str(value)) == value


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "-Infinity", "1_0", "0x1A", "1e999", "٣", "1,5", "tRUE", "1" * 5000]
)
def test_a_text_that_is_no_finite_number_stays_a_text(text: str) -> None:
    assert read_cell(text) == text


def test_a_store_that_does_not_answer_is_refused_and_not_waited_for(monkeypatch):
    """A socket that listens and says nothing stands for a store whose network is gone."""
    monkeypatch.setattr(tables, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        uri = f"s3://me:secret@bucket/t.csv?scheme=http&region=x&endpoint_override=127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(CohortError, match=r"t\.csv.*no answer in 0\.3 seconds") as refusal:
            read_table(uri)
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "feather"])
def test_a_table_at_a_uri_is_the_table_on_disk(tmp_path, monkeypatch, ending):
    """pyarrow's in-memory store stands for S3; file:// is read in place."""
    from pyarrow import fs

    frame, path = patients(20), tmp_path / f"cohort.{ending}"
    {"parquet": frame.to_parquet, "feather": frame.to_feather}.get(ending, partial(frame.to_csv, index=False))(path)
    here = read_table(path)
    pd.testing.assert_frame_equal(read_table(f"file://{path}"), here)
    store = fs._MockFileSystem()
    with store.open_output_stream(path.name, compression=None) as out:
        out.write(path.read_bytes())
    from_uri = fs.FileSystem.from_uri
    monkeypatch.setattr(fs, "FileSystem", type("Any", (), {"from_uri": staticmethod(lambda uri: (store, path.name))}))
    pd.testing.assert_frame_equal(read_table(f"s3://bucket/{path.name}"), here)
    monkeypatch.setattr(fs, "FileSystem", type("Any", (), {"from_uri": staticmethod(from_uri)}))
    for uri in (f"nowhere://user:secret@host/{path.name}", "file:///no/such/file.csv"):
        with pytest.raises(CohortError) as refusal:
            read_table(uri)
        assert "secret" not in str(refusal.value)
