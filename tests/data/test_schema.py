"""The schema: what may be said about a table, that TOML keeps it, and that nothing else may be said."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcondense.data.features import check_features
from distcondense.data.relations import Derived
from distcondense.data.schema import Column, Schema
from distcondense.errors import SchemaError

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LABELS = TEXTS | st.booleans() | st.integers(-99, 99) | st.sampled_from([0.5, -2.25])
NUMBERS = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6)


@st.composite
def numeric_columns(draw: st.DrawFn, name: str) -> Column:
    kind = draw(st.sampled_from(["continuous", "integer"]))
    low = high = None
    if draw(st.booleans()):
        low = draw(NUMBERS)
        high = low + draw(st.integers(1, 1000))
    missing = draw(st.sampled_from(["refuse", "constant", "indicator"]))
    fill = None
    if missing == "constant":
        fill = 3 if high is None else int(np.floor(high))
    elif missing == "indicator":
        fill = draw(st.none() | NUMBERS)
    decimals = draw(st.sampled_from([None, 0, 3])) if kind == "continuous" and low is None else None
    step = (
        draw(st.sampled_from([None, 1, 0.25])) if kind == "continuous" and decimals is None and fill is None else None
    )
    return Column(
        name, kind, low=low, high=high, unit=draw(TEXTS), missing=missing, fill=fill, decimals=decimals, step=step
    )


@st.composite
def label_columns(draw: st.DrawFn, name: str) -> Column:
    kind = draw(st.sampled_from(["binary", "categorical"]))
    most = 2 if kind == "binary" else 6
    labels = tuple(draw(st.lists(LABELS, min_size=2, max_size=most, unique=True)))
    missing = draw(st.sampled_from(["refuse", "constant"] + ["category"] * (kind == "categorical")))
    fill = draw(st.sampled_from(labels)) if missing == "constant" else None
    return Column(name, kind, categories=labels, unit=draw(TEXTS), missing=missing, fill=fill)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(TEXTS, min_size=1, max_size=5, unique=True))
    columns = tuple(draw(numeric_columns(n) | label_columns(n)) for n in names)
    notes = tuple(draw(st.lists(TEXTS, max_size=2)))
    return Schema(columns, draw(st.sampled_from(["declared", "inferred"])), notes)


@settings(max_examples=100)
@given(schemas())
def test_toml_keeps_every_schema(schema: Schema) -> None:
    again = Schema.from_dict(tomllib.loads(schema.to_toml()))
    assert again == schema
    assert again.notes == schema.notes
    # == takes true for 1; the release must not
    assert [[type(c) for c in a.categories] for a in again.columns] == [
        [type(c) for c in b.categories] for b in schema.columns
    ]


def test_a_schema_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    schema = Schema(
        (Column("Größe", "continuous", low=0.4, high=2.5, unit="m"), Column("x", "binary", categories=(False, True)))
    )
    path = tmp_path / "schema.toml"
    path.write_text(schema.to_toml(), encoding="utf-8")
    assert Schema.from_toml(path) == schema


@pytest.mark.parametrize("word", ["refuse", "", "missing"])
def test_a_fill_that_looks_like_a_default_is_not_lost(word: str) -> None:
    schema = Schema((Column("consent", "categorical", categories=("accept", word), missing="constant", fill=word),))
    assert Schema.from_dict(tomllib.loads(schema.to_toml()))["consent"].fill == word


# -- drafting ---------------------------------------------------------------------------------------------------------


def test_a_draft_says_that_it_was_read_off_patients() -> None:
    schema = Schema.infer(pd.DataFrame({"age": [30, 64], "crp": [0.5, 7.25]}))
    assert schema.origin == "inferred"
    text = schema.to_toml()
    assert text.startswith("# Drafted from the data")
    assert "NOT public" in text
    assert tomllib.loads(text)["origin"] == "inferred"
    assert "Drafted" not in Schema(schema.columns).to_toml()


def test_a_draft_recognises_each_kind_of_column() -> None:
    frame = pd.DataFrame(
        {
            "whole": [18, 99, 40],
            "decimal": [0.5, 12.3, 4.0],
            "zero_one": [0, 1, 1],
            "yes_no": ["no", "yes", "no"],
            "flag": [True, False, True],
            "stage": ["II", "I", "III"],
            "whole_with_holes": [18, np.nan, 40],
            "text_with_holes": ["a", None, "b"],
            "empty": [np.nan, np.nan, np.nan],
            "date": pd.to_datetime(["2020-01-01", "2021-01-01", "2022-01-01"]),
        }
    )
    schema = Schema.infer(frame)
    found = {c.name: (c.kind, c.categories, c.missing) for c in schema.columns}
    assert found == {
        "whole": ("integer", (), "refuse"),
        "decimal": ("continuous", (), "refuse"),
        "zero_one": ("binary", (0, 1), "refuse"),
        "yes_no": ("binary", ("no", "yes"), "refuse"),
        "flag": ("binary", (False, True), "refuse"),
        "stage": ("categorical", ("I", "II", "III"), "refuse"),
        "whole_with_holes": ("integer", (), "indicator"),
        "text_with_holes": ("categorical", ("a", "b"), "category"),
        "empty": ("continuous", (), "indicator"),
    }
    assert [(c.name, c.format) for c in schema.ignored] == [("date", "%Y-%m-%d")]
    check_features(frame, Schema.from_dict(tomllib.loads(schema.to_toml())))  # and the table fits its own draft


def test_a_draft_doubts_a_column_that_looks_like_an_identifier() -> None:
    frame = pd.DataFrame({"name": [f"person {k}" for k in range(150)], "stage": ["I", "II", "III"] * 50})
    (ignored,) = Schema.infer(frame).ignored
    assert ignored.name == "name"
    assert "150" in ignored.reason


def test_nested_values_are_refused_with_the_column_by_its_place() -> None:
    with pytest.raises(SchemaError, match=r"column 1:.*nested"):
        Schema.infer(pd.DataFrame({"codes": [["a"], ["b", "c"]]}))


@settings(max_examples=100)
@given(
    st.lists(
        st.floats(-1e15, 1e15) | st.integers(-(10**15), 10**15).map(float) | st.just(np.nan), min_size=1, max_size=8
    )
)
def test_every_table_fits_the_schema_drafted_from_it(values: list[float]) -> None:
    frame = pd.DataFrame({"x": values})
    checked = check_features(frame, Schema.infer(frame))
    assert len(checked) == len(values)


def test_bounds_are_never_rounded_inwards() -> None:
    values = [-0.00016999999999999999, 0.00048000000000000007]
    column = Schema.infer(pd.DataFrame({"x": values}))["x"]
    assert column.low is not None
    assert column.high is not None
    assert column.low <= values[0]
    assert column.high >= values[1]


@pytest.mark.parametrize(
    ("values", "decimals"),
    [
        ([0.5, 7.25], 2),
        ([36.6, 37.0], 1),
        ([1 / 3, 2.0], None),
        ([1e-6, 0.5], 6),
        ([1e-7, 0.5], None),
        ([1e15, 0.5], None),
    ],
)
def test_a_draft_says_how_many_decimals_a_column_has(values: list[float], decimals: int | None) -> None:
    assert Schema.infer(pd.DataFrame({"x": values}))["x"].decimals == decimals
    if decimals is not None and decimals < 6:  # as float32 the digits are the same
        assert Schema.infer(pd.DataFrame({"x": np.array(values, np.float32)}))["x"].decimals == decimals


def test_a_drafted_whole_number_has_no_decimals() -> None:
    assert Schema.infer(pd.DataFrame({"x": [1, 5, 7]}))["x"].decimals is None


@pytest.mark.parametrize("value", [1e17, 2.0**53, 1e-13, 0.1 + 0.2])
def test_extreme_numbers_can_be_drafted_too(value: float) -> None:
    frame = pd.DataFrame({"x": [value, value / 3]})
    schema = Schema.infer(frame)
    check_features(frame, Schema.from_dict(tomllib.loads(schema.to_toml())))
    assert schema["x"].kind == "continuous"


def test_numbers_that_no_bounds_hold_are_refused_without_showing_them() -> None:
    with pytest.raises(SchemaError, match=r"column 1:.*within") as refusal:
        Schema.infer(pd.DataFrame({"x": [9.87654e300, 1.0]}))
    assert "987" not in str(refusal.value).replace(".", "")


# -- refusing ---------------------------------------------------------------------------------------------------------

ILLEGAL: list[tuple[dict[str, Any], str]] = [
    ({}, "must have a kind"),
    ({"kind": "number"}, "kind must be one of"),
    ({"kind": ["continuous"]}, "kind must be one of"),
    ({"kind": "continuous", "low": 1}, "low and high go together"),
    ({"kind": "continuous", "low": 2, "high": 2}, "low must be below high"),
    ({"kind": "continuous", "low": 3, "high": 2}, "low must be below high"),
    ({"kind": "continuous", "low": float("nan"), "high": 2}, "low must be a number"),
    ({"kind": "continuous", "low": 0, "high": float("inf")}, "high must be a number"),
    ({"kind": "continuous", "low": "0", "high": 2}, "low must be a number"),
    ({"kind": "continuous", "low": True, "high": 2}, "low must be a number"),
    ({"kind": "integer", "low": 0.2, "high": 0.8}, "no whole number"),
    ({"kind": "integer", "categories": [1, 2]}, "categories belong to"),
    ({"kind": "continuous", "unit": 5}, "unit must be text"),
    ({"kind": "continuous", "missing": "drop"}, "missing must be one of"),
    ({"kind": "continuous", "missing": ["constant"]}, "missing must be one of"),
    ({"kind": "continuous", "missing": "category"}, 'use "indicator"'),
    ({"kind": "continuous", "missing": "constant"}, "needs a number as fill"),
    ({"kind": "continuous", "missing": "constant", "fill": "0"}, "needs a number as fill"),
    ({"kind": "continuous", "missing": "constant", "fill": float("nan")}, "fill must be"),
    ({"kind": "continuous", "missing": "constant", "fill": [0]}, "fill must be"),
    ({"kind": "continuous", "low": 0, "high": 1, "missing": "constant", "fill": 2}, "fill must be within the bounds"),
    ({"kind": "integer", "missing": "constant", "fill": 0.5}, "must be whole"),
    ({"kind": "continuous", "missing": "indicator", "fill": "0"}, "must be a number"),
    ({"kind": "continuous", "decimals": -1}, "decimals must be a whole number from 0 to 12"),
    ({"kind": "continuous", "decimals": 1.0}, "decimals must be a whole number from 0 to 12"),
    ({"kind": "continuous", "decimals": True}, "decimals must be a whole number from 0 to 12"),
    ({"kind": "continuous", "decimals": 13}, "decimals must be a whole number from 0 to 12"),
    ({"kind": "integer", "decimals": 1}, "decimals belong to continuous columns"),
    ({"kind": "binary", "categories": ["a", "b"], "decimals": 1}, "decimals belong to continuous columns"),
    ({"kind": "continuous", "low": 0.04, "high": 2, "decimals": 1}, "low and high must have no more decimals"),
    ({"kind": "continuous", "low": 0, "high": 2.06, "decimals": 1}, "low and high must have no more decimals"),
    ({"kind": "continuous", "step": 0}, "step must be a number above 0"),
    ({"kind": "continuous", "step": -1}, "step must be a number above 0"),
    ({"kind": "continuous", "step": "1"}, "step must be a number above 0"),
    ({"kind": "continuous", "step": float("nan")}, "step must be a number above 0"),
    ({"kind": "continuous", "step": 0.5, "decimals": 1}, "exclude each other"),
    ({"kind": "integer", "step": 0.5}, "must be whole"),
    ({"kind": "integer", "low": 0, "high": 9, "step": 10}, "must fit between low and high"),
    ({"kind": "integer", "low": 0, "high": 90, "step": 10, "missing": "constant", "fill": 5}, "multiple of the step"),
    ({"kind": "categorical", "categories": ["a"], "step": 1}, "step belongs to"),
    ({"kind": "binary"}, "two categories"),
    ({"kind": "binary", "categories": ["a"]}, "two categories"),
    ({"kind": "binary", "categories": ["a", "b", "c"]}, "two categories"),
    ({"kind": "binary", "categories": ["a", "b"], "missing": "category"}, "no third category"),
    ({"kind": "binary", "categories": ["a", "b"], "low": 0, "high": 1}, "low and high belong to"),
    ({"kind": "categorical"}, "needs its list of categories"),
    ({"kind": "categorical", "categories": []}, "needs its list of categories"),
    ({"kind": "categorical", "categories": "abc"}, "categories must be a list"),
    ({"kind": "categorical", "categories": 5}, "categories must be a list"),
    ({"kind": "categorical", "categories": [["a"], ["b"]]}, "categories must be texts"),
    ({"kind": "categorical", "categories": ["a", float("nan")]}, "categories must be texts"),
    ({"kind": "categorical", "categories": ["a", "b", "a"]}, "must not repeat"),
    ({"kind": "categorical", "categories": [1, True]}, "must not repeat"),
    ({"kind": "categorical", "categories": ["a"], "missing": "indicator"}, 'use "category"'),
    ({"kind": "categorical", "categories": ["a"], "missing": "constant"}, "one of the categories as fill"),
    ({"kind": "categorical", "categories": ["a"], "missing": "constant", "fill": "b"}, "one of the categories as fill"),
]


@pytest.mark.parametrize(("entry", "says"), ILLEGAL, ids=[str(k) for k in range(len(ILLEGAL))])
def test_every_illegal_description_is_refused(entry: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaError) as error:
        Schema.from_dict({"columns": {"x": entry}})
    assert says in str(error.value)
    assert "[columns.x]" in str(error.value)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"format": 2, "columns": {"x": {"kind": "continuous"}}}, "format must be 1"),
        ({"origin": "guessed", "columns": {"x": {"kind": "continuous"}}}, "origin must be"),
        ({"columns": [1]}, "columns must be tables"),
        ({"columns": {"x": "continuous"}}, "must be a table"),
        ({"notes": 5, "columns": {"x": {"kind": "continuous"}}}, "notes must be"),
        ({"columns": {}}, "no columns"),
        ({}, "no columns"),
    ],
)
def test_every_illegal_file_is_refused(data: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        Schema.from_dict(data)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(SchemaError) as error:
        Schema.from_dict(
            {
                "colour": "blue",
                "columns": {
                    "age": {"kind": "integer", "low": 9, "high": 1, "missing": "category"},
                    "sex": {"kind": "binary", "categories": ["f"], "catgories": ["f"]},
                    "bmi": {"low": 1},
                },
            }
        )
    text = str(error.value)
    assert "6 problems" in text
    for part in (
        "'colour'",
        "low must be below high",
        'use "indicator"',
        "two categories",
        "'catgories'",
        "must have a kind",
    ):
        assert part in text


def test_the_same_column_twice_is_refused() -> None:
    with pytest.raises(SchemaError, match="'x' appears twice"):
        Schema((Column("x", "continuous"), Column("y", "continuous"), Column("x", "integer")))


@pytest.mark.parametrize(
    ("key", "meant"), [("catgories", "categories"), ("hihg", "high"), ("knd", "kind"), ("units", "unit")]
)
def test_an_unknown_key_names_the_nearest_legal_one(key: str, meant: str) -> None:
    with pytest.raises(SchemaError, match=f"no '{key}'; the nearest is '{meant}'"):
        Schema.from_dict({"columns": {"x": {"kind": "continuous", key: "a"}}})


def test_an_unknown_column_names_the_nearest_one() -> None:
    schema = Schema((Column("creatinine", "continuous"), Column("age", "integer")))
    with pytest.raises(SchemaError, match="the nearest is 'creatinine'"):
        schema["creatinin"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "must exist"),
        (b"[columns", "valid TOML"),
        (b"\xff\xfe\x00", "UTF-8"),
        ("folder", "must be a regular file"),
    ],
)
def test_an_unreadable_schema_file_is_a_clear_error(tmp_path: Path, content: Any, says: str) -> None:
    path = tmp_path / "schema.toml"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    with pytest.raises(SchemaError, match=says):
        Schema.from_toml(path)


def test_a_short_rule_is_no_part_of_the_column_that_is_written_before_it() -> None:
    columns = (Column("dose", "continuous", low=0, high=50), Column("twice", "continuous", low=0, high=100))
    schema = Schema(columns, rules=(Derived("twice", "2 * dose"),), origin="declared")
    assert Schema.from_dict(tomllib.loads(schema.to_toml())) == schema
