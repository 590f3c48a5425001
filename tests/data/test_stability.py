"""One person more or less changes nobody else: not how their cells are read, nor who they are, nor what is released.

First each hole that a review found, then the property, for every way in (`benchmarks/stability.py` makes the tables).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import distcondense as dc
from benchmarks.stability import PERSONS, WAYS, Tally, try_pairs, verdict
from distcondense.data.cells import public_cells
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.large import LargeTable
from distcondense.data.missing import without_codes
from distcondense.data.outcome import Goal
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Column, Schema
from distcondense.data.values import Values
from distcondense.errors import CohortError, SchemaError, SettingsError
from distcondense.methods.base import method_named, prepare
from distcondense.study.rows import load
from distcondense.study.sources import Endpoint, Source
from tests.shell import Call
from tests.tiny import BINARY, SCHEMA, patients

HOW: dict[str, Any] = {"schema": SCHEMA, **BINARY}
X = Schema((Column("x", "continuous", low=0, high=100), Column("died", "binary", categories=(0, 1))))


def flags(labels: tuple[Any, Any], cells: Any) -> Cohort:
    """A cohort whose only feature has these labels and cells."""
    schema = Schema((Column("flag", "binary", categories=labels), Column("y", "binary", categories=(0, 1))))
    return Cohort.from_frame(pd.DataFrame({"flag": cells, "y": 0}), target="y", schema=schema)


# -- 1: where ---------------------------------------------------------------------------------------------------------


def site(tmp_path: Path, sites: list[Any], wanted: Any, ending: str = "csv") -> int:
    """Rows that a study selects."""
    frame = patients(len(sites)).assign(site=pd.Series(sites, dtype=object if ending == "csv" else None))
    path = tmp_path / f"ward.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    source = Source("ward", "", path=str(path), schema=SCHEMA, where={"site": wanted})
    endpoint = Endpoint(Goal.from_roles(target="died"), ignore=("months", "relapse"))
    return len(load(source, endpoint))


def test_one_person_of_another_site_selects_nobody_else(tmp_path: Path) -> None:
    sites = ["1", "01"] * 20
    for wanted, count in (("1", 20), ("01", 20), (1, 40)):
        assert site(tmp_path, sites, wanted) == count
        assert site(tmp_path, [*sites, "X9"], wanted) == count


@pytest.mark.parametrize(
    ("cell", "wanted", "selected"),
    [
        ("1", "1", True),
        ("1", 1, True),
        ("1.0", 1, True),
        ("01", 1, True),
        ("01", "1", False),
        ("1e0", 1.0, True),
        ("True", True, True),
        ("true", True, True),
        ("True", "True", True),
        ("True", 1, False),
        ("1", True, False),
        ("NA", "NA", True),
        ("", "", True),
        ("NA", 0, False),
        ("A", "a", False),
        (" A", "A", False),
    ],
)
def test_a_cell_of_a_csv_is_selected_by_its_own_text(tmp_path: Path, cell: str, wanted: Any, selected: bool) -> None:
    rest = "other" if isinstance(wanted, str) else "7"
    for others in ([rest], [rest, "X9"], [rest, "2.5", "null"]):
        sure = str(wanted)
        assert site(tmp_path, [cell, sure, *others], wanted) == 1 + selected


@pytest.mark.parametrize(
    ("cells", "wanted", "rows"),
    [
        ([2**53 + 1, 2**53, None], 2**53 + 1, 1),
        ([1, 2, None], 1, 1),
        ([1.5, 1.0], 1, 1),
        ([True, False], True, 1),
        (["1", "2"], "1", 1),
        (["A", None], "A", 1),
    ],
)
def test_a_value_of_a_typed_file_is_selected_by_itself(
    tmp_path: Path, cells: list[Any], wanted: Any, rows: int
) -> None:
    table = pa.Table.from_pandas(patients(len(cells))).replace_schema_metadata()  # as no pandas wrote it
    pyarrow.parquet.write_table(table.append_column("site", pa.array(cells)), tmp_path / "ward.parquet")
    source = Source("ward", "", path=str(tmp_path / "ward.parquet"), schema=SCHEMA, where={"site": wanted})
    assert len(load(source, Endpoint(Goal.from_roles(target="died"), ignore=("months", "relapse")))) == rows


# -- 2: identifiers ---------------------------------------------------------------------------------------------------


def persons(ids: Any) -> list[int]:
    frame = patients(len(ids)).assign(who=ids)
    person = Cohort.from_frame(frame, person_id="who", **HOW).person
    assert person is not None
    return [int(code) for code in person]


LARGE = [2**63 + k for k in range(300)]


def test_one_negative_identifier_merges_nobody() -> None:
    frame = pd.DataFrame({"x": np.linspace(0, 100, 301)})
    seen: list[int] = []

    class Seen(Exception):
        pass

    def stop(cohort: Cohort, *rest: Any) -> Any:
        seen.append(len(np.unique(cohort.person)))
        raise Seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("distcondense.methods.private.estimator.open_gate", stop)
        for ids in (LARGE, [*LARGE, -5]):
            for given in (ids, tuple(ids), pd.Series(ids, dtype=object)):
                n = len(ids)
                with pytest.raises(Seen):
                    dc.PrivateModel(schema=X.without(["died"])).fit(frame[:n], [0] * n, person=given)
    assert seen == [300] * 3 + [301] * 3


@pytest.mark.parametrize(
    "ids",
    [
        LARGE[:3],
        [*LARGE[:3], -5],
        ["1", "01", "1.0"],
        [1, "01", True],
        [b"1", "1"],
        pd.Series([2**60, 2**60 + 1]),
        pd.Series([2**60, 2**60 + 1], dtype="Int64"),
        pd.Series(["a", "b"], dtype="string"),
        pd.Categorical(["b", "a"]),
        pd.Categorical([7, 5]),
        pd.to_datetime(["2020-01-01", "2020-01-02"]),
    ],
    ids=repr,
)
def test_every_identifier_is_text_on_its_own(ids: Any) -> None:
    assert persons(pd.Series(ids)) == list(range(len(ids)))


def test_a_number_and_its_text_are_one_person() -> None:
    assert persons([7, "7", np.int8(7), np.uint64(7), "07"]) == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "ids",
    [
        np.arange(4.0),
        [1, 2, 3.5, "a"],
        pd.Series([1.0, 2, 3, 4], dtype="Float64"),
        pd.Categorical([1.0, 2.0, 1.0, 1.0]),
        np.arange(4, dtype=np.float32),
        [Decimal(1), 2, 3, 4],
    ],
    ids=repr,
)
def test_identifiers_with_a_decimal_point_are_refused_everywhere(tmp_path: Path, ids: Any) -> None:
    frame = patients(4).assign(who=ids)
    with pytest.raises(CohortError, match=r"'who': identifiers must be texts or whole numbers. Found float.* row"):
        Cohort.from_frame(frame, person_id="who", **HOW)
    with pytest.raises(CohortError, match="identifiers must be texts or whole numbers"):
        dc.PrivateModel(schema=Schema((SCHEMA["crp"],))).fit(frame[["crp"]], frame["died"], person=frame["who"])
    if len({type(v) for v in ids}) == 1 and not isinstance(ids, list):
        frame.to_parquet(tmp_path / "t.parquet")
        frame.to_feather(tmp_path / "t.feather")
        for path in (tmp_path / "t.parquet", tmp_path / "t.feather"):
            with pytest.raises(CohortError, match="identifiers must be texts or whole numbers"):
                Cohort.from_file(path, person_id="who", **HOW)
            source = Source("ward", "", path=str(path), schema=SCHEMA, person_id="who")
            with pytest.raises(CohortError, match="identifiers must be texts or whole numbers"):
                load(source, Endpoint(Goal.from_roles(target="died"), ignore=("months", "relapse")))


def test_a_coin_is_the_persons_own_whoever_else_is_there() -> None:
    frame = patients(240).assign(who=[f"p{k // 2}" for k in range(240)])
    new = frame[:3].assign(who="new")
    alone = Cohort.from_frame(frame, person_id="who", **HOW)
    for at in (0, 100, 240):
        both = Cohort.from_frame(pd.concat([frame[:at], new, frame[at:]]), person_id="who", **HOW)
        out = np.isin(np.arange(243), HoldoutSplit(0.3, 2**90).split(both).test)
        rest = np.delete(out, slice(at, at + 3))
        np.testing.assert_array_equal(np.flatnonzero(rest), HoldoutSplit(0.3, 2**90).split(alone).test)
    assert 0.2 < len(HoldoutSplit(0.3, 7).split(alone).test) / 240 < 0.4
    assert not np.array_equal(HoldoutSplit(0.3, 7).split(alone).test, HoldoutSplit(0.3, 8).split(alone).test)


# -- 3: frames and outcomes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [(0, 1), (False, True), ("no", "yes")])
def test_private_refuses_an_outcome_that_is_not_declared(values: tuple[Any, Any]) -> None:
    features = SCHEMA.without(["died", "months", "relapse"])
    goals = (
        Goal.from_roles(target="died"),
        Goal.from_roles(time="months", event="relapse"),
        Goal.from_roles(target="crp", kind="continuous"),
    )
    private = method_named("private")
    for goal in goals:
        facts = Facts.from_goal(goal, features.without(["crp"]))
        options = private.Options(horizon=9.0 if "time" in goal.columns else None)
        with pytest.raises(SettingsError, match=r"declared in the schema.*kind = \"binary\", categories = \[0, 1\]"):
            prepare(private, facts, options)
    frame = patients().assign(died=lambda f: f["died"].map(dict(enumerate(values))))
    cohort = Cohort.from_frame(frame, schema=features, positive=values[1], **BINARY)
    assert not cohort.outcome.kind.labels_public
    with pytest.raises(SettingsError, match="declared in the schema"):
        dc.condense(cohort)


LABELS = [(False, True), (0, 1), ("0", "1"), ("no", "yes"), ("False", "True")]
CELLS: dict[str, Callable[[], Any]] = {
    "bool": lambda: pd.Series([True, False]),
    "boolean": lambda: pd.Series([True, False], dtype="boolean"),
    "int": lambda: pd.Series([1, 0]),
    "uint8": lambda: pd.Series([1, 0], dtype="uint8"),
    "Int64": lambda: pd.Series([1, 0], dtype="Int64"),
    "float": lambda: pd.Series([1.0, 0.0]),
    "float32": lambda: pd.Series([1.0, 0.0], dtype="float32"),
    "text of numbers": lambda: pd.Series(["1", "0"]),
    "string of numbers": lambda: pd.Series(["1", "0"], dtype="string"),
    "category of numbers": lambda: pd.Series([1, 0], dtype="category"),
    "category of texts": lambda: pd.Series(["1", "0"], dtype="category"),
    "objects": lambda: pd.Series([1, 0], dtype=object),
    "objects, floats": lambda: pd.Series([1.0, 0], dtype=object),
    "objects, bools": lambda: pd.Series([True, np.False_], dtype=object),
    "words": lambda: pd.Series(["yes", "no"]),
    "category of words": lambda: pd.Series(["yes", "no"], dtype="category"),
    "text of bools": lambda: pd.Series(["True", "False"]),
}


def fits(labels: tuple[Any, Any], cells: str) -> bool:
    """Which values mean these labels, by a table and not by the code under test."""
    if "words" in cells:
        return str(labels) == "('no', 'yes')"
    if cells == "text of bools":
        return str(labels) in ("(False, True)", "('False', 'True')")
    if "bool" in cells:
        return str(labels) in ("(False, True)", "(0, 1)", "('False', 'True')")
    if "text" in cells or "string" in cells:
        return str(labels) in ("(0, 1)", "('0', '1')")
    return str(labels) in ("(0, 1)", "('0', '1')", "(False, True)")


@pytest.mark.parametrize("labels", LABELS, ids=str)
@pytest.mark.parametrize("cells", CELLS)
def test_a_label_depends_on_the_value_and_the_schema_not_on_the_dtype(labels: tuple[Any, Any], cells: str) -> None:
    column = CELLS[cells]()
    declared = Schema((Column("x", "continuous"), Column("y", "binary", categories=labels)))
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": column})
    if not fits(labels, cells):
        with pytest.raises(CohortError, match=r"categories only\. Found 2 rows, first at row 1"):
            flags(labels, column)
        with pytest.raises(CohortError, match=r"two categories only\. Found 2 rows, first at row 1"):
            Cohort.from_frame(frame, target="y", schema=declared)
        return
    read = flags(labels, column).features["flag"]
    assert list(read) == [labels[1], labels[0]]
    assert [type(v) for v in read] == [type(labels[1]), type(labels[0])]
    outcome = Cohort.from_frame(frame, target="y", schema=declared).outcome
    assert list(outcome["label"]) == [1, 0]
    assert (outcome.kind.labels, outcome.kind.labels_public) == (labels, True)


@pytest.mark.parametrize(
    ("cells", "labels", "says"),
    [
        ([True, 1, 0], (0, 1), "numbers in 2 rows, first at row 2; true/false in 1 row, first at row 1"),
        ([1, True, 0], (0, 1), "numbers in 2 rows, first at row 1; true/false in 1 row, first at row 2"),
        ([1, "1", 0], (0, 1), "numbers in 2 rows, first at row 1; texts in 1 row, first at row 2"),
        ([True, "False"], (False, True), "texts in 1 row, first at row 2; true/false in 1 row, first at row 1"),
    ],
)
def test_a_column_of_several_types_is_refused_with_types_and_counts(cells: list[Any], labels: Any, says: str) -> None:
    for make in (
        lambda: flags(labels, pd.Series(cells, dtype=object)),
        lambda: Cohort.from_frame(
            pd.DataFrame({"x": 1.0, "died": pd.Series(cells, dtype=object)}),
            target="died",
            schema=Schema((X["x"], Column("died", "binary", categories=labels))),
        ),
        lambda: Cohort.from_frame(
            pd.DataFrame({"x": 1.0, "died": pd.Series(cells, dtype=object)}), target="died", schema=X.without(["died"])
        ),
    ):
        with pytest.raises(CohortError, match="values of one type") as error:
            make()
        assert says in str(error.value)


def test_labels_that_are_declared_in_several_types_may_be_so_in_the_table() -> None:
    schema = Schema((Column("code", "categorical", categories=("1", True, 2)), X["died"]))
    for cells, labels in (([True, 1, 2], [True, "1", 2]), ([1, True, 2], ["1", True, 2]), (["1", 2.0], ["1", 2])):
        frame = pd.DataFrame({"code": pd.Series(cells, dtype=object), "died": 0})
        assert repr(list(Cohort.from_frame(frame, target="died", schema=schema).features["code"])) == repr(labels)


@pytest.mark.parametrize("value", [True, np.True_, "5,0", "", pd.Timestamp(0), b"1", 1j], ids=repr)
def test_what_is_no_number_is_refused_by_its_row(value: Any) -> None:
    for cells in ([value], [1.5, value], [value, 2**70], ["7", value]):
        frame = pd.DataFrame({"x": pd.Series(cells, dtype=object), "died": 0})
        with pytest.raises(CohortError, match=f"'x': must be numbers.*1 row, first at row {1 + cells.index(value)}"):
            Cohort.from_frame(frame, target="died", schema=X)


@pytest.mark.parametrize("value", [12, 12.0, "12", " 12", "1.2e1", np.uint8(12), Decimal("12.0")])
def test_a_number_is_the_same_number_beside_any_other(value: Any) -> None:
    for others in ([], [1], [0.1], ["0.30000000000000004"], [None]):
        schema = Schema((replace(X["x"], missing="indicator"), X["died"]))
        frame = pd.DataFrame({"x": pd.Series([value, *others], dtype=object), "died": 0})
        assert Cohort.from_frame(frame, target="died", schema=schema).features["x"][0] == 12.0


def test_whole_numbers_beyond_floats_are_not_read_off_floats() -> None:
    """An integer column with one hole is a column of floats in pandas."""
    big = 2**53 + 1
    schema = Schema((Column("code", "categorical", categories=(big, big - 1), missing="category"), X["died"]))
    for cells, dtype in (([big, big - 1], "int64"), ([big, big - 1, None], "Int64")):
        frame = pd.DataFrame({"code": pd.Series(cells, dtype=dtype), "died": 0})
        assert list(Cohort.from_frame(frame, target="died", schema=schema).features["code"][:2]) == [big, big - 1]
    rounded = pd.DataFrame({"code": [big, big - 1, None], "died": 0})
    with pytest.raises(CohortError, match="categories only"):
        Cohort.from_frame(rounded, target="died", schema=schema)


@pytest.mark.parametrize("ending", ["parquet", "feather", "arrow"])
def test_a_hole_in_a_typed_file_rounds_nobody(tmp_path: Path, ending: str) -> None:
    big = 2**53 + 1
    schema = Schema((Column("code", "categorical", categories=(big, big - 1), missing="category"), X["died"]))
    table, path = pa.table({"code": [big, None, big - 1], "died": [0, 1, 0]}), tmp_path / f"t.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, str(path))
    how: dict[str, Any] = {"target": "died", "schema": schema}
    for made in (Cohort.from_file(path, **how), Cohort.from_frame(table, **how)):
        assert [c for c in made.features["code"] if c == c] == [big, big - 1]


# -- values that are equal and written differently, and codes for missing beside them --------------------------------

LARGE_CODES = [900000000000207009, 900000000000207011, 900000000000207013]  # as of SNOMED CT's extensions


def free(**more: Any) -> Schema:
    """A column of categories that nobody has listed."""
    column = Column("code", "categorical", domain="private", **{"missing": "category", **more})
    return Schema((column, X["died"]))


def texts_read(cells: Any, **more: Any) -> list[str]:
    cohort = Cohort.from_frame(pd.DataFrame({"code": cells, "died": 0}), target="died", schema=free(**more))
    return cohort.features["code"].tolist()


@pytest.mark.parametrize("codes", [(-9,), (-9, "?"), (2**59, -9.0), ("?",)])
@pytest.mark.parametrize("more", [[-9], [-9, -9], []])
def test_one_persons_code_for_missing_rewrites_nobodys_category(
    tmp_path: Path, codes: tuple[Any, ...], more: list[int]
) -> None:
    table = pa.table({"code": [*LARGE_CODES, *more], "died": 0 * np.arange(3 + len(more))})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    schema, how = free(missing_values=codes), {"target": "died"}
    expected = list(map(str, LARGE_CODES))
    for frame in (table, table.to_pandas(), table.to_pandas().astype(object), table.to_pandas().convert_dtypes()):
        assert Cohort.from_frame(frame, schema=schema, **how).features["code"].tolist()[:3] == expected
    assert Cohort.from_file(tmp_path / "t.parquet", schema=schema, **how).features["code"].tolist()[:3] == expected
    large = LargeTable.from_path(tmp_path / "t.parquet", schema=schema, **how)
    batch = next(iter(large.read(large.pieces[0], large.coder(public_cells(large.facts.schema), HoldoutSplit(0.2, 7)))))  # type: ignore[arg-type]
    assert set(expected) <= set(batch.coded.words[0].values())


@pytest.mark.parametrize("other", ["code", "count"])
def test_a_hole_in_any_column_of_whole_numbers_rewrites_nobody(other: str) -> None:
    for hole in (None, 5):
        columns = {"code": [*LARGE_CODES, 1], "count": [1, 2, 3, 4], "died": [0, 0, 0, 0]}
        columns[other] = [*columns[other][:3], hole]
        count = Column("count", "integer", 0, 100, missing="indicator", missing_values=(-9,))
        schema = Schema((*free(missing_values=(-9,)).columns, count))
        cohort = Cohort.from_frame(pa.table(columns), target="died", schema=schema)
        assert cohort.features["code"].tolist()[:3] == list(map(str, LARGE_CODES))


def test_a_code_is_compared_exactly() -> None:
    big = 2**53
    for dtype in ("int64", "Int64", "uint64", object):
        cells = pd.Series([big, big + 1, 7], dtype=dtype)
        assert texts_read(cells, missing_values=(big + 1, -9)) == [str(big), np.nan, "7"]
    floats = pd.Series([float(big), 7.0])
    assert texts_read(floats, missing_values=(big + 1,)) == [str(big), "7"]
    assert texts_read(pd.Series(["01", "1", "1.0", "True"]), missing_values=(1,)) == [np.nan] * 3 + ["True"]


UTC_NOON = pd.Timestamp("2020-05-01 12:00", tz="UTC")
EQUAL: list[tuple[list[Any], list[str]]] = [
    ([UTC_NOON, UTC_NOON.tz_convert("Asia/Tokyo")], ["2020-05-01 12:00:00+00:00", "2020-05-01 21:00:00+09:00"]),
    (
        [UTC_NOON.to_pydatetime(), UTC_NOON.tz_convert("Asia/Tokyo").to_pydatetime()],
        ["2020-05-01 12:00:00+00:00", "2020-05-01 21:00:00+09:00"],
    ),
    ([pd.Timedelta(1, "D"), np.timedelta64(24, "h"), np.timedelta64(1, "D")], ["1 days 00:00:00"] * 3),
    ([np.datetime64("2020-05-01"), pd.Timestamp("2020-05-01")], ["2020-05-01 00:00:00"] * 2),
    ([1, 1.0, True, Decimal("1.0"), np.uint8(1), "1", "1.0"], ["1", "1", "True", "1", "1", "1", "1.0"]),
    ([2**53, 2**53 + 1, Decimal(2**53 + 1)], ["9007199254740992", "9007199254740993", "9007199254740993"]),
]


@pytest.mark.parametrize(("values", "texts"), EQUAL, ids=str)
def test_equal_values_become_what_each_becomes_by_itself(values: list[Any], texts: list[str]) -> None:
    alone = [texts_read(pd.Series([value], dtype=object))[0] for value in values]
    assert alone == texts
    assert texts_read(pd.Series(values, dtype=object)) == texts
    assert texts_read(pd.Series(values[::-1], dtype=object)) == texts[::-1]


def test_a_label_beyond_floats_is_read_the_same_beside_its_float() -> None:
    schema = Schema((Column("code", "categorical", categories=(2**53, 7), missing="category", out_of_range="missing"),
                     X["died"]))  # fmt: skip
    for cells in ([2**53, float(2**53)], [float(2**53), 2**53]):
        frame = pd.DataFrame({"code": pd.Series(cells, dtype=object), "died": 0})
        read = Cohort.from_frame(frame, target="died", schema=schema).features["code"]
        assert read.isna().tolist() == [isinstance(cell, float) for cell in cells]


def test_a_marker_that_is_a_number_marks_it_however_others_write_theirs(tmp_path: Path) -> None:
    column = Column("x", "continuous", low=0, high=100, missing="indicator", out_of_range="missing")
    for marker, codes in ((["-9"], ()), ([""], ("7.5",)), ([""], (7.5,))):
        schema = Schema((replace(column, missing_values=codes), X["died"]))
        for odd in ("3", "x", "1e999"):
            (tmp_path / "t.csv").write_text(f"x,died\n7.50,0\n-9.0,0\n8,0\n{odd},0\n")
            read = Cohort.from_file(tmp_path / "t.csv", target="died", schema=schema, missing_markers=marker)
            expected = [np.nan if codes else 7.5, np.nan, 8.0]
            np.testing.assert_array_equal(read.features["x"].tolist()[:3], expected)


# -- values that cannot be used ---------------------------------------------------------------------------------------

UNUSABLE = [3.5, np.inf, -np.inf, "text", "", True, b"7", 1j, [1], {}, 2**70, 10**5000, "a\ud800", Decimal("sNaN"),
            Decimal("1e400"), pd.Timestamp(0), None]  # fmt: skip


def private_columns() -> list[Column]:
    numbers = [Column("x", kind, domain="private") for kind in ("integer", "continuous")]  # type: ignore[arg-type]
    policies: tuple[dict[str, Any], ...] = ({}, {"missing": "indicator"}, {"missing": "constant", "fill": 1})
    texts = [replace(free().columns[0], name="x", missing=missing) for missing in ("refuse", "category")]  # type: ignore[arg-type]
    return [*(replace(column, **policy) for column in numbers for policy in policies), *texts]


@pytest.mark.parametrize("column", private_columns(), ids=lambda column: f"{column.kind} {column.missing}")
def test_no_value_of_a_private_domain_stops_a_run(column: Column) -> None:
    schema, beside = Schema((column, X["died"])), [7, 2, 40]
    frame = pd.DataFrame({"x": pd.Series(beside, dtype=object), "died": 0})
    alone = Cohort.from_frame(frame, target="died", schema=schema).features["x"].tolist()
    for value in UNUSABLE:
        frame = pd.DataFrame({"x": pd.Series([*beside, value], dtype=object), "died": 0})
        both = Cohort.from_frame(frame, target="died", schema=schema).features["x"]
        assert both.tolist()[:3] == alone
        assert (column.missing == "refuse") <= both.notna().all()
        if column.numeric:
            assert not np.isinf(both).any()
            assert column.kind == "continuous" or (both.dropna() % 1 == 0).all()


def test_what_is_out_of_range_is_refused_moved_or_a_hole_as_the_schema_says(tmp_path: Path) -> None:
    lab = Column("x", "integer", low=1, high=50, missing="indicator")
    cells = ["7", "51", "-3", "7.6", "inf", "text", "", "50"]
    (tmp_path / "t.csv").write_text("x,died\n" + "".join(f'"{cell}",0\n' for cell in cells))
    nan = np.nan
    for rule, expected in (("clip", [7, 50, 1, 8, 50, nan, nan, 50]), ("missing", [7, *[nan] * 6, 50])):
        schema = Schema((replace(lab, out_of_range=rule), X["died"]))  # type: ignore[arg-type]
        read = Cohort.from_file(tmp_path / "t.csv", target="died", schema=schema)
        np.testing.assert_array_equal(read.features["x"], np.array(expected, float))
        frame = pd.DataFrame({"x": pd.Series(cells, dtype=object), "died": 0}).replace({"x": {"": None}})
        again = Cohort.from_frame(frame, target="died", schema=schema)
        np.testing.assert_array_equal(again.features["x"], np.array(expected, float))
    table = pa.table({"x": [7.0, 51.0, 7.6, None, float("inf")], "died": [0] * 5})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    for rule in ("clip", "missing"):
        schema = Schema((replace(lab, out_of_range=rule), X["died"]))  # type: ignore[arg-type]
        large = LargeTable.from_path(tmp_path / "t.parquet", target="died", schema=schema)
        coder = large.coder(public_cells(large.facts.schema), HoldoutSplit(0.2, 7))  # type: ignore[arg-type]
        fast = next(iter(large.read(large.pieces[0], coder))).coded
        slow = coder.of_cohort(Cohort.from_file(tmp_path / "t.parquet", target="died", schema=schema))
        np.testing.assert_array_equal(fast.codes[0], slow.codes[0])
        np.testing.assert_array_equal(fast.mark, slow.mark)


def test_a_refusal_offers_the_choice_and_no_wider_bounds() -> None:
    for cells, column in (
        ([7.0, 101.0], X["x"]),
        ([7.5, 1.0], Column("x", "integer", 0, 100)),
        (["a", "b"], Column("x", "categorical", categories=("a",))),
    ):
        frame = pd.DataFrame({"x": cells, "died": 0})
        with pytest.raises(CohortError, match="out_of_range = ") as error:
            Cohort.from_frame(frame, target="died", schema=Schema((column, X["died"])))
        assert "or widen the bounds" not in str(error.value)


def test_a_rule_for_all_columns_is_for_those_that_it_fits_and_do_not_say_otherwise() -> None:
    columns = {
        "a": {"kind": "integer", "low": 0, "high": 9},
        "b": {"kind": "integer", "low": 0, "high": 9, "missing": "indicator"},
        "c": {"kind": "categorical", "categories": ["x"], "missing": "category"},
        "d": {"kind": "integer", "low": 0, "high": 9, "missing": "indicator", "out_of_range": "refuse"},
        "e": {"kind": "integer", "bounds": "private"},
        "f": {"kind": "ignore"},
    }
    for rule, expected in (("clip", "ab"), ("missing", "bc"), ("refuse", "")):
        schema = Schema.from_dict({"out_of_range": rule, "columns": columns})
        assert [c.name for c in schema.columns if c.out_of_range != "refuse"] == list(expected)
        assert Schema.from_dict(schema.to_dict()) == schema
        assert all(c.out_of_range == "refuse" for c in schema.released.columns)
    for entry, what in (
        ({"kind": "integer", "low": 0, "high": 9, "out_of_range": "missing"}, "needs a policy for holes"),
        ({"kind": "categorical", "categories": ["x"], "out_of_range": "clip"}, "is for numbers"),
        ({"kind": "integer", "bounds": "private", "out_of_range": "clip"}, "refuses nothing"),
        ({"kind": "integer", "low": 0, "high": 9, "out_of_range": "widen"}, "must be one of refuse, clip, missing"),
    ):
        with pytest.raises(SchemaError, match=what):
            Schema.from_dict({"columns": {"x": entry}})
    with pytest.raises(SchemaError, match="out_of_range must be one of"):
        Schema.from_dict({"out_of_range": "widen", "columns": columns})


def test_nothing_stands_for_an_outcome() -> None:
    number = Column("y", "continuous", low=0, high=9, missing="constant", fill=1, out_of_range="clip")
    label = Column("y", "binary", categories=(0, 1), missing="constant", fill=0, out_of_range="missing")
    frame = pd.DataFrame({"x": 1.0, "y": [3.0, 12.0]})
    moved = Cohort.from_frame(frame, target="y", schema=Schema((X["x"], number)))
    assert moved.outcome["value"].tolist() == [3.0, 9.0]
    for column in (label, replace(number, out_of_range="missing")):
        with pytest.raises(CohortError, match=r"two categories only|bounds"):
            Cohort.from_frame(frame, target="y", schema=Schema((X["x"], column)))


# -- 13: identifiers as categories ------------------------------------------------------------------------------------

IDENTIFIERS: dict[str, list[Any]] = {
    "record numbers": [f"{k:07d}" for k in range(4000)],
    "record numbers as numbers": list(range(100_000, 104_000)),
    "few record numbers": [f"{7919 * k + 10**6}" for k in range(40)],
    "codes": [f"AX-{k:03d}" for k in range(150)],
    "UUIDs": [f"{k:08x}-0000-4000-8000-{k:012x}" for k in range(30)],
    "e-mail addresses": [f"{chr(97 + k)}@example.org" for k in range(25)],
    "dates": [f"19{k:02d}-03-0{1 + k % 9}" for k in range(50)],
    "names": [f"{'AHZ'[k % 3]}na {''.join(last)}" for k, last in enumerate(product("sbkmt", "aeio", "rlnd", "eat"))],
    "free text": [" ".join("abcdefghij"[int(d)] * 3 for d in f"{k:04d}") for k in range(1500)],
}
CATEGORIES: dict[str, list[Any]] = {
    "stages": ["I", "II", "III"],
    "ages": list(range(18, 111)),
    "small numbers": list(range(900)),
    "years": [str(year) for year in range(1920, 2020)],
    "countries": ["".join(letters) + "land" for letters in product("BDFGHKLM", "aeiou", "lmnrs")],
    "few codes": [f"C{k}.{k % 7}" for k in range(60)],
}


def with_codes(codes: list[Any]) -> Schema:
    return Schema((X["x"], Column("code", "categorical", categories=tuple(dict.fromkeys(codes))), X["died"]))


def private(schema: Schema, **options: Any) -> None:
    chosen = method_named("private")
    prepare(chosen, Facts.from_goal(Goal.from_roles(target="died"), schema), chosen.Options(**options))


@pytest.mark.parametrize("what", IDENTIFIERS)
def test_private_refuses_identifiers_as_categories_unless_the_column_is_named(what: str) -> None:
    schema = with_codes(IDENTIFIERS[what])
    with pytest.raises(SchemaError, match=r"'code'.*identifiers.*categories_checked=.*code") as error:
        private(schema)
    assert not any(str(value) in str(error.value) for value in IDENTIFIERS[what])
    private(schema, categories_checked=["code"])
    with pytest.raises(SettingsError, match="the nearest is 'code'"):
        private(schema, categories_checked=("cod",))


@pytest.mark.parametrize("what", CATEGORIES)
def test_private_takes_lists_of_categories_as_people_declare_them(what: str) -> None:
    private(with_codes(CATEGORIES[what]))


@pytest.mark.parametrize("what", IDENTIFIERS)
def test_a_draft_never_lists_identifiers(what: str) -> None:
    values = [str(value) for value in IDENTIFIERS[what]]
    draft = Schema.infer(pd.DataFrame({"x": np.arange(float(len(values))), "code": values}))
    assert draft.names == ["x"]
    text = draft.to_toml()
    left_out = tomllib.loads(text)["columns"]["code"]
    assert left_out["kind"] == "ignore"
    assert left_out["reason"].startswith("dates:" if what == "dates" else f"{len(set(values))} different values")
    assert not any(value in text for value in values)
    with pytest.raises(SchemaError, match="no column is left"):
        Schema.infer(pd.DataFrame({"code": values}))


def test_the_statement_says_which_lists_were_checked(binary: Cohort, quick_placement: None) -> None:
    result = dc.condense(binary, ipc=5, threads=1, categories_checked=["stage"])
    assert result.privacy.parameters["categories_checked"] == ["stage"]


def test_a_checked_list_is_named_on_the_command_line(call: Call) -> None:
    codes = [f"AX-{k:03d}" for k in range(150)]
    Path("schema.toml").write_text(with_codes(codes).to_toml())
    pd.DataFrame({"x": np.arange(150) % 100, "code": codes, "died": np.arange(150) % 2}).to_csv("t.csv", index=False)
    how = ("condense", "t.csv", "--target", "died", "--schema", "schema.toml", "--ipc", 2, "--out", "run", "--quiet")
    answer = call(*how)
    assert (answer.code, Path("run").exists()) == (2, False)
    assert "--categories-checked code" in answer.err
    assert "AX-" not in answer.err
    assert call(*how, "--categories-checked", "code").code in (0, 3)  # not refused: answered, or too little to tell


# -- the property -----------------------------------------------------------------------------------------------------

TABLES = {
    "CSV": 60,
    "CSV.gz": 30,
    "URI": 30,
    "Parquet": 60,
    "Feather": 40,
    "batches": 50,
    "Arrow table": 40,
    "Polars": 40,
    "query": 12,
    "frame": 130,
    "rows of nobody": 50,
    "PrivateModel": 70,
    "study, where": 60,
    "evaluate": 60,
}
tried: dict[str, Tally] = {}


@pytest.mark.parametrize("name", WAYS)
def test_one_person_more_changes_nobody_else(name: str, tmp_path: Path) -> None:
    """Or the table is refused for what that person's rows hold."""
    tried[name] = tally = Tally()
    way = WAYS[name]

    @settings(max_examples=TABLES[name], phases=[Phase.generate])
    @given(st.randoms(use_true_random=True))
    def pairs(rng: Random) -> None:
        for pair in way.pairs(rng):
            said = verdict(way, pair, tmp_path)
            tally.add(said)
            assert not said.startswith("different"), (said, pair.schema, pair.without, pair.whole)

    pairs()
    assert tally.pairs - tally.refused - tally.both > tally.pairs / 4  # most of what is tried is accepted


def test_thousands_of_pairs_were_tried() -> None:
    if set(tried) != set(WAYS):
        pytest.skip("some ways in were not run")
    counts = {name: tally.pairs for name, tally in tried.items()}
    assert counts == {name: PERSONS * tables for name, tables in TABLES.items()}
    assert sum(counts.values()) >= 2500


# readers as they were, or nearly: each must be caught


def merged_types(series: pd.Series, name: str) -> Values:
    codes, distinct = pd.factorize(series)
    return Values(codes, list(distinct))


def merged_persons(series: pd.Series, name: str) -> tuple[Any, tuple[str, ...]]:
    codes, known = pd.factorize(np.asarray(list(series)))
    return codes.astype(np.int64), tuple(map(str, known))


def guessed_where(source: Source, endpoint: Endpoint) -> pd.DataFrame:
    frame = pd.read_csv(source.path) if str(source.path).endswith("csv") else pd.read_parquet(source.path)
    for column, value in source.where.items():
        frame = frame[frame[column].map(str) == str(value)]
    return frame.reset_index(drop=True)


def joined_numbers(series: pd.Series, name: str, *, forgives: bool = False, censored: bool = False) -> Any:
    """A number counts from the smallest that is there."""
    found = pd.to_numeric(series.astype(str), errors="coerce").to_numpy(np.float64)
    found[np.isinf(found)] = np.nan
    return found - np.nanmin(found) if np.isfinite(found).any() else found


def rounding_codes(series: pd.Series, column: Column) -> Any:
    """One row's code makes floats of everybody's whole numbers."""
    if not column.missing_values or not pd.api.types.is_integer_dtype(series):
        return without_codes(series, column)
    numbers = series.to_numpy(np.float64, na_value=np.nan)
    coded = np.isin(numbers, [code for code in column.missing_values if not isinstance(code, str)])
    return pd.Series(np.where(coded, np.nan, numbers)) if coded.any() else series


def merged_equals(cells: Any, kind: type) -> tuple[Any, list[Any]]:
    """Equal values of one type are taken for one, however they are written."""
    codes, values = pd.factorize(cells)
    return codes, list(values)


BROKEN: dict[str, tuple[str, dict[str, Any]]] = {  # what is broken → a way in, what is put in place of what
    "types in one column are merged": ("frame", {"data.values.Values.from_series": merged_types}),
    "labels are read off the rows": (
        "frame",
        {
            "data.values.Values.from_series": merged_types,
            "outcomes.binary.declared_labels": lambda *given: None,
            "outcomes.binary.refuse_mixture": lambda *given: None,
        },
    ),
    "persons are numbers": ("PrivateModel", {"data.cohort.identifiers_of": merged_persons}),
    "pandas guesses the site": ("study, where", {"study.rows._rows": guessed_where}),
    "coins go by place": ("evaluate", {"data.persons.HoldoutSplit.digests": None}),
    "a code for missing rounds everybody, in a file": ("Parquet", {"data.features.without_codes": rounding_codes}),
    "a code for missing rounds everybody, in a batch": ("batches", {"data.features.without_codes": rounding_codes}),
    "a code for missing rounds everybody, in a frame": ("frame", {"data.features.without_codes": rounding_codes}),
    "the first zone is everybody's": ("frame", {"data.values._listed": merged_equals}),
    "marks of different rows collide": ("rows of nobody", {"data.persons.RowHash.add_column": lambda *given: None}),
    "numbers look at each other": ("CSV", {"data.features.numbers_of": joined_numbers}),
}


@pytest.mark.parametrize("what", BROKEN)
def test_the_property_catches_a_broken_reader(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, patches = BROKEN[what]
    for target, broken in patches.items():  # None: a coin for the next person in line
        broken = broken or partial(next_coin, np.random.default_rng(0))
        monkeypatch.setattr(f"distcondense.{target}", broken)
    assert any(try_pairs(name, 100, seed).different for seed in range(10))


def next_coin(rng: np.random.Generator, identifiers: Any, words: int) -> Any:
    return rng.integers(0, 2**64, (len(list(identifiers)), words), np.uint64)


# -- limits of what can be measured ------------------------------------------------------------------------------------

LIMITS = {"1.5": 1.5, "<0.3": 0.3, "> 200": 200.0, " <=5": 5.0, "≥1e2": 100.0, "-2": -2.0, "<-1": -1.0}
NO_LIMITS = ("<", "< 1 ng", "<<1", "1<", "about 3", "<?")


def crp(**more: Any) -> Schema:
    return Schema((Column("crp", "continuous", low=-10, high=1000, censored=True, **more), X["died"]))


def test_a_limit_is_the_number_behind_its_sign_however_it_comes(tmp_path: Path) -> None:
    frame = pd.DataFrame({"crp": list(LIMITS), "died": 0})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    commas = [text.replace(".", ",") for text in LIMITS]
    frame.assign(crp=commas).to_csv(tmp_path / "comma.csv", sep=";", index=False)
    (tmp_path / "many").mkdir()
    frame.to_csv(tmp_path / "many" / "t.csv", index=False)
    how: dict[str, Any] = {"target": "died", "schema": crp()}
    for cohort in (
        Cohort.from_frame(frame, **how),
        Cohort.from_file(tmp_path / "t.csv", **how),
        Cohort.from_file(tmp_path / "t.parquet", **how),
        Cohort.from_file(tmp_path / "comma.csv", **how, separator=";", decimal=","),
    ):
        assert cohort.features["crp"].tolist() == list(LIMITS.values())
    large = LargeTable.from_path(tmp_path / "many", **how)
    coder = large.coder(public_cells(large.facts.schema), HoldoutSplit(0.2, 7))
    batch = next(iter(large.read(large.pieces[0], coder)))  # type: ignore[arg-type]
    grid = public_cells(crp())[0]
    assert batch.coded.codes[0].tolist() == grid.codes(pd.Series(list(LIMITS.values()))).tolist()


@pytest.mark.parametrize("text", NO_LIMITS)
def test_what_is_no_limit_is_refused_or_a_hole_in_its_own_row(text: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"crp": ["<0.3", text, "7"], "died": 0})
    frame.to_csv(tmp_path / "t.csv", index=False)
    forgiving = crp(missing="indicator", out_of_range="missing")
    for read in (Cohort.from_frame, lambda _, **how: Cohort.from_file(tmp_path / "t.csv", **how)):
        with pytest.raises(CohortError, match="1 row"):
            read(frame, target="died", schema=crp())
        values = read(frame, target="died", schema=forgiving).features["crp"]
        np.testing.assert_array_equal(values, [0.3, np.nan, 7.0])


def test_a_marker_and_a_code_mark_a_number_among_limits_however_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("crp,died\n-9.0,0\n7.50,0\n<-9,0\n<0.3,0\n")
    schema = crp(missing="indicator", missing_values=(7.5,))
    cohort = Cohort.from_file(tmp_path / "t.csv", target="died", schema=schema, missing_markers=["-9"])
    np.testing.assert_array_equal(cohort.features["crp"], [np.nan, np.nan, -9.0, 0.3])


def test_a_refused_limit_is_told_what_to_declare(tmp_path: Path) -> None:
    frame = pd.DataFrame({"crp": ["<0.3", ">200", "7"], "died": 0})
    frame.to_csv(tmp_path / "t.csv", index=False)
    strict = Schema((replace(crp()["crp"], censored=False), X["died"]))
    for read in (Cohort.from_frame, lambda _, **how: Cohort.from_file(tmp_path / "t.csv", **how)):
        with pytest.raises(CohortError, match="censored = true") as refused:
            read(frame, target="died", schema=strict)
        assert "200" not in str(refused.value)
    with pytest.raises(CohortError, match="missing_markers"):
        Cohort.from_frame(frame.assign(crp=["<0.3", "none", "7"]), target="died", schema=strict)
