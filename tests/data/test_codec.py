"""The codec: what goes in comes out, and whatever comes out is legal."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from distcondense.data.cells import MICRO, public_cells
from distcondense.data.codec import Codec, design, design_of
from distcondense.data.features import check_features
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, DistcondenseWarning
from tests.tiny import BINARY, SCHEMA, patients

ANCHOR = Column("anchor", "continuous", low=-1e4, high=1e4)  # always varies, so that something is left to encode


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    kind = draw(st.sampled_from(["continuous", "integer", "binary", "categorical"]))
    if kind in ("continuous", "integer"):
        low = draw(st.none() | st.integers(-5000, 5000))
        high = None if low is None else low + draw(st.integers(1, 5000))
        missing = draw(st.sampled_from(["refuse", "constant", "indicator"]))
        fill = (7 if low is None else low) if missing == "constant" else None
        decimals = draw(st.sampled_from([None, 0, 1, 6])) if kind == "continuous" else None
        step = draw(st.sampled_from([None, 1, 5])) if decimals is None and missing != "constant" else None
        step = None if step is None or (low is not None and high - low < step) else step
        return Column(name, kind, low=low, high=high, missing=missing, fill=fill, decimals=decimals, step=step)
    labels: tuple[Any, ...] = draw(st.sampled_from([("no", "yes"), (0, 1), (False, True), (2, "two")]))
    if kind == "categorical":
        labels = (*labels, "missing", *draw(st.sampled_from([(), ("other",), (10, 11)])))
    missing = draw(st.sampled_from(["refuse", "constant"] + ["category"] * (kind == "categorical")))
    return Column(name, kind, categories=labels, missing=missing, fill=labels[1] if missing == "constant" else None)


def values(column: Column) -> st.SearchStrategy[Any]:
    """Legal values of a column, holes where its policy allows them."""
    low, high = (-20000, 20000) if column.low is None or column.high is None else (column.low, column.high)
    if column.step is not None:
        legal: st.SearchStrategy[Any] = st.floats(float(low), float(high)).map(lambda v: float(column.rounded(v)))
    elif column.kind == "integer":
        legal = st.integers(int(low), int(high))
    elif column.kind == "continuous":
        digits = 6 if column.decimals is None else column.decimals
        legal = st.floats(float(low), float(high)).map(lambda v: min(max(round(v, digits), low), high))
    else:
        legal = st.sampled_from(column.categories)
    return legal if column.missing == "refuse" else legal | st.none()


@st.composite
def tables(draw: st.DrawFn) -> tuple[pd.DataFrame, Schema]:
    """A schema and a checked table that fits it: 2 to 10 rows, some columns constant, some with holes."""
    described = [draw(columns(f"c{k}")) for k in range(draw(st.integers(1, 4)))]
    rows = draw(st.integers(2, 10))
    frame = pd.DataFrame(
        {c.name: pd.Series(draw(st.lists(values(c), min_size=rows, max_size=rows)), dtype=object) for c in described}
    )
    schema = Schema((*described, ANCHOR))
    return check_features(frame.assign(anchor=np.arange(float(rows))), schema), schema


def fit(features: pd.DataFrame, schema: Schema) -> Codec:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistcondenseWarning)  # constant columns are expected here
        return Codec.fit(features, schema)


EXTREMES = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def anything(draw: st.DrawFn) -> tuple[Codec, Schema, np.ndarray]:
    features, schema = draw(tables())
    codec = fit(features, schema)
    shape = (draw(st.integers(1, 5)), len(codec.names))
    z = draw(hnp.arrays(np.float32, shape, elements=EXTREMES | st.floats(-3, 3, width=32)))
    return codec, Schema(tuple(c for c in schema.columns if c.name in codec.columns)), z


# -- there and back ---------------------------------------------------------------------------------------------------


@settings(max_examples=75)
@given(tables())
def test_a_table_survives_the_round_trip(table: tuple[pd.DataFrame, Schema]) -> None:
    features, schema = table
    codec = fit(features, schema)
    encoded = codec.encode(features)
    assert encoded.dtype == np.float32
    assert encoded.shape == (len(features), len(codec.names))
    back = codec.decode(encoded)
    assert list(back) == codec.columns
    centre = dict(zip(codec.names, codec.centre, strict=True))
    for name in codec.columns:
        column, before, after = schema[name], features[name], back[name]
        if column.missing == "constant":
            before = before.astype(object).where(before.notna(), column.fill)
        holes = before.isna().to_numpy()
        np.testing.assert_array_equal(after.isna().to_numpy(), holes)
        before, after = before[~holes], after[~holes]
        if column.kind == "continuous":
            wanted = before.to_numpy(np.float64)
            tolerance = 2e-7 * np.abs(wanted - centre[name]) + 1e-9  # float32 of (value − centre)/scale
            assert (np.abs(after.to_numpy(np.float64) - wanted) <= tolerance).all()
        elif column.kind == "integer":
            np.testing.assert_array_equal(after.to_numpy(np.float64), before.to_numpy(np.float64))
        else:
            assert list(after) == list(before)
            assert list(map(type, after.astype(object))) == list(map(type, before.astype(object)))


@settings(max_examples=75)
@given(anything())
def test_whatever_the_optimiser_made_decodes_to_a_legal_table(made: tuple[Codec, Schema, np.ndarray]) -> None:
    codec, schema, z = made
    back = codec.decode(z)
    assert list(back) == schema.names
    check_features(back, schema)  # bounds, whole numbers, known categories, holes only where declared
    for column in schema.columns:
        if column.kind == "integer" and column.missing != "indicator":
            assert back[column.name].dtype == np.int64
        elif column.kind == "integer":
            assert back[column.name].dtype == ("Int64" if back[column.name].isna().any() else np.int64)
        if column.step is not None:
            present = back[column.name].dropna().to_numpy(np.float64)
            np.testing.assert_array_equal(present, column.rounded(present))
        if column.decimals is not None:
            present = back[column.name].dropna().to_numpy()
            np.testing.assert_array_equal(present, np.round(present, column.decimals))


@settings(max_examples=75)
@given(anything())
def test_a_reader_of_the_table_trains_on_what_project_gives(made: tuple[Codec, Schema, np.ndarray]) -> None:
    codec, schema, z = made
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(codec.encode(codec.decode(z)), codec.project(z))
        np.testing.assert_array_equal(codec.encode(check_features(codec.decode(z), schema)), codec.project(z))


@given(tables())
def test_real_rows_are_already_legal(table: tuple[pd.DataFrame, Schema]) -> None:
    features, schema = table
    codec = fit(features, schema)
    encoded = codec.encode(features)
    # a category or a hole is settled exactly; a continuous number moves by float32 rounding at most
    np.testing.assert_allclose(codec.project(encoded), encoded, rtol=1e-6, atol=1e-6)


@given(tables())
def test_encoded_training_columns_have_mean_0_and_variance_1(table: tuple[pd.DataFrame, Schema]) -> None:
    features, schema = table
    codec = fit(features, schema)
    encoded = codec.encode(features).astype(np.float64)
    np.testing.assert_allclose(encoded.mean(0), 0, atol=1e-5)
    varies = np.ptp(encoded, axis=0) > 0
    np.testing.assert_allclose(encoded.std(0)[varies], 1, atol=1e-5)


# -- legal values, one by one -----------------------------------------------------------------------------------------


def one(column: Column, *raw: float) -> Any:
    """The legal value that these raw numbers of one column become."""
    return Codec.plain(Schema((column,))).decode(np.array([raw], np.float32))[column.name][0]


def test_numbers_go_to_the_nearest_legal_number() -> None:
    age = Column("age", "integer", low=18, high=110)
    assert [one(age, v) for v in (17.2, 54.4, 54.6, 1e30, -1e30)] == [18, 54, 55, 110, 18]
    tight = Column("n", "integer", low=0.5, high=3.5)
    assert [one(tight, v) for v in (-9, 9)] == [1, 3]
    crp = Column("crp", "continuous", low=0.0, high=500.0)
    assert [one(crp, v) for v in (-3.0, 12.5, 1e30)] == [0.0, 12.5, 500.0]


def test_numbers_have_the_decimals_they_are_declared_with() -> None:
    """Through float32 and back the number is the one that was measured, to the last digit."""
    temperature = Column("t", "continuous", low=30.0, high=43.5, decimals=1)
    assert [one(temperature, v) for v in (36.649, 36.651, 12.0, 99.0)] == [36.6, 36.7, 30.0, 43.5]
    assert one(Column("t", "continuous", decimals=2), 1.23456) == 1.23
    values = np.round(np.linspace(30, 43.5, 136), 1)
    codec = Codec.public(Schema((temperature,)))
    back = codec.decode(codec.encode(pd.DataFrame({"t": values})))["t"]
    assert back.tolist() == values.tolist()


STEPS = [
    (Column("x", "continuous", low=0, high=10, step=0.1), [0.0, 0.1, 0.3, 0.7, 9.9, 10.0]),
    (Column("x", "continuous", low=0.25, high=3.1, step=0.5), [0.25, 0.75, 2.75]),  # from low: 0.25 is no multiple
    (Column("x", "continuous", low=-1, high=1, step=0.5), [-1.0, -0.5, 0.0, 0.5, 1.0]),
    (Column("x", "integer", low=0, high=102, step=5), [0, 5, 95, 100]),
    (Column("x", "integer", low=3, high=33, step=10), [3, 13, 23, 33]),
    (Column("x", "integer", low=0, high=100_000, step=250, spacing="log"), [0, 250, 500, 100_000]),
    (Column("x", "continuous", low=0, high=5000, step=2.5), [0.0, 2.5, 4997.5, 5000.0]),
]


@pytest.mark.parametrize(("column", "some"), STEPS, ids=[str(k) for k in range(len(STEPS))])
def test_steps_are_legal_numbers_each_in_one_cell_and_each_cell_has_one(column: Column, some: list[float]) -> None:
    (cells,) = public_cells(Schema((column,)))
    assert column.low is not None
    assert column.high is not None
    assert column.step is not None
    legal = np.unique(column.rounded(np.arange(column.low, column.high + column.step / 4, column.step / 2)))
    assert set(some) <= set(legal.tolist())
    assert legal.min() >= column.low
    assert legal.max() <= column.high
    codes = cells.codes(pd.Series(legal))
    assert np.bincount(codes, minlength=cells.size).min() >= 1
    for inside in (0.0, 0.5, 0.999999):
        made = cells.numbers(np.arange(cells.size), np.full(cells.size, inside))
        assert set(made.tolist()) <= set(legal.tolist())
        np.testing.assert_array_equal(cells.codes(pd.Series(made)), np.arange(cells.size))
    codec = Codec.public(Schema((column,)))
    back = codec.decode(codec.encode(pd.DataFrame({"x": legal})))["x"]
    np.testing.assert_array_equal(back, legal)  # to the last digit: 0.3, not 0.30000000000000004
    outside = pd.DataFrame({"x": [column.low - 1e6, column.high + 1e6]})
    assert codec.decode(codec.encode(outside))["x"].tolist() == [legal.min(), legal.max()]


def test_whole_numbers_and_labels_stay_whole_beside_holes() -> None:
    age = Column("age", "integer", low=18, high=110, missing="indicator")
    grade = Column("grade", "categorical", categories=(1, 2), missing="category")
    codec = Codec.plain(Schema((age, grade)))
    back = codec.decode(np.array([[37, 0, 1, 0, 0], [50, 1, 0, 0, 1]], np.float32))
    assert back.dtypes.tolist() == ["Int64", "Int64"]
    assert back.to_csv(index=False) == "age,grade\n37,1\n,\n"
    assert codec.decode(np.array([[37, 0, 1, 0, 0]], np.float32)).dtypes.tolist() == [np.int64, np.int64]
    check_features(back, Schema((age, grade)))


def test_an_integer_without_bounds_is_still_an_integer_at_any_size() -> None:
    count = Column("count", "integer")
    assert [one(count, v) for v in (3e38, -3e38, 2.4)] == [2**53, -(2**53), 2]


def test_categories_go_to_the_largest_of_their_group() -> None:
    stage = Column("stage", "categorical", categories=("I", "II", "III"))
    assert one(stage, -0.2, 0.4, 0.1) == "II"
    assert one(stage, -3.0, -2.0, -1.0) == "III"
    assert one(stage, 5.0, 7.0, 6.0) == "II"
    sex = Column("sex", "binary", categories=("f", "m"))
    assert [one(sex, v) for v in (-9.0, 0.4, 0.6, 9.0)] == ["f", "f", "m", "m"]


def test_holes_come_back_as_holes_and_their_number_is_the_public_fill() -> None:
    crp = Column("crp", "continuous", low=0.0, high=10.0, missing="indicator")
    assert np.isnan(one(crp, 9.0, 0.9))
    assert one(crp, 9.0, 0.1) == 9.0
    codec = Codec.plain(Schema((crp,)))
    np.testing.assert_array_equal(codec.project(np.array([[9.0, 0.9]], np.float32)), [[5.0, 1.0]])
    stage = Column("stage", "categorical", categories=("I", "II"), missing="category")
    assert one(stage, 0.1, 0.2, 0.9) is None


def test_a_category_called_missing_is_not_a_hole() -> None:
    answer = Column("answer", "categorical", categories=("missing", "given"), missing="category")
    codec = Codec.plain(Schema((answer,)))
    assert len(set(codec.names)) == 3
    back = codec.decode(np.eye(3, dtype=np.float32))
    assert list(back["answer"]) == ["missing", "given", None]


# -- what training rows do not have -----------------------------------------------------------------------------------


def test_constant_columns_are_dropped_with_a_warning_and_reported() -> None:
    frame = patients().assign(crp=4.5, stage="II")
    schema = SCHEMA.without(["months", "relapse", "died"])
    features = check_features(frame, schema)
    with pytest.warns(DistcondenseWarning, match="2 constant columns dropped: 'crp', 'stage'"):
        codec = Codec.fit(features, schema)
    assert codec.dropped == ("crp", "stage")
    assert codec.columns == ["age", "ferritin", "sex"]
    assert list(codec.decode(codec.encode(features))) == codec.columns


def test_a_column_of_small_numbers_is_not_constant() -> None:
    features = pd.DataFrame({"hormone": [1e-13, 2e-13, 4e-13], "far": [1e9, 1e9 + 1, 1e9 + 2]})
    codec = Codec.fit(features, Schema((Column("hormone", "continuous"), Column("far", "continuous"))))
    assert codec.dropped == ()
    np.testing.assert_allclose(codec.decode(codec.encode(features))["hormone"], features["hormone"], rtol=1e-6)


@pytest.mark.parametrize("value", [0.1, 1e9 + 0.1, -3e-9, 0.0])
def test_a_repeated_decimal_is_constant_whatever_float_rounding_says(value: float) -> None:
    features = pd.DataFrame({"same": [value] * 1001, "x": np.arange(1001.0)})
    with pytest.warns(DistcondenseWarning, match="'same'"):
        codec = Codec.fit(features, Schema((Column("same", "continuous"), Column("x", "continuous"))))
    assert codec.columns == ["x"]


def test_a_table_of_constants_only_is_refused() -> None:
    features = pd.DataFrame({"a": [1.0, 1.0], "b": [2.0, 2.0]})
    with pytest.raises(CohortError, match="2 constant columns"):
        Codec.fit(features, Schema((Column("a", "continuous"), Column("b", "continuous"))))


def test_a_column_that_is_missing_or_constant_keeps_its_holes() -> None:
    schema = Schema((Column("dose", "continuous", low=0, high=10, missing="indicator"),))
    features = check_features(pd.DataFrame({"dose": [5.0, np.nan, 5.0, np.nan]}), schema)  # 5 is also the fill
    codec = Codec.fit(features, schema)
    pd.testing.assert_frame_equal(codec.decode(codec.encode(features)), features)


def test_a_category_nobody_had_in_training_is_encoded_as_none_and_never_made() -> None:
    schema = Schema((Column("stage", "categorical", categories=("I", "II", "III", "IV")), ANCHOR))
    train = check_features(pd.DataFrame({"stage": ["I", "III"] * 5, "anchor": np.arange(10.0)}), schema)
    codec = Codec.fit(train, schema)
    assert codec.names == ["stage=I", "stage=III", "anchor"]
    unseen = check_features(pd.DataFrame({"stage": ["II", "IV"], "anchor": [1.0, 2.0]}), schema)
    raw = codec.soften(codec.encode(unseen))
    np.testing.assert_allclose(raw[["stage=I", "stage=III"]], 0, atol=1e-6)
    z = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    assert set(codec.decode(z)["stage"]) == {"I", "III"}


def test_keep_constant_keeps_every_column_of_the_schema() -> None:
    schema = SCHEMA.without(["months", "relapse", "died"])
    features = check_features(patients().assign(crp=4.5, stage="II"), schema)
    codec = Codec.fit(features, schema, keep_constant=True)
    assert codec.names == Codec.plain(schema).names
    assert codec.dropped == ()
    assert np.isfinite(codec.encode(features)).all()


# -- raw numbers ------------------------------------------------------------------------------------------------------


@given(anything())
def test_softened_rows_are_the_raw_numbers_in_original_units(made: tuple[Codec, Schema, np.ndarray]) -> None:
    codec, _, z = made
    soft = codec.soften(z)
    assert list(soft) == codec.names
    np.testing.assert_array_equal(soft.to_numpy(), z.astype(np.float64) * codec.scale + codec.centre)


def test_softening_does_not_bend_values_into_bounds() -> None:
    codec = Codec.plain(
        Schema((Column("age", "integer", low=18, high=110), Column("sex", "binary", categories=("f", "m"))))
    )
    soft = codec.soften(np.array([[200.5, 1.75]], np.float32))
    assert soft.iloc[0].to_dict() == {"age": 200.5, "sex": 1.75}


def test_the_design_is_original_units_with_one_hot_categories() -> None:
    from distcondense.data.cohort import Cohort

    frame = patients()
    found = design(Cohort.from_frame(frame, schema=SCHEMA, **BINARY))
    assert list(found) == ["age", "crp", "ferritin", "sex", "stage=I", "stage=II", "stage=III"]
    np.testing.assert_array_equal(found["age"], frame["age"])
    np.testing.assert_array_equal(found["sex"], frame["sex"] == "m")
    np.testing.assert_array_equal(found["stage=II"], frame["stage"] == "II")


@given(tables())
def test_the_design_of_decoded_rows_is_their_legal_raw_form(table: tuple[pd.DataFrame, Schema]) -> None:
    features, schema = table
    codec = Codec.plain(schema)
    z = codec.encode(features)
    np.testing.assert_allclose(design_of(codec.decode(z), schema), codec.legal(z), rtol=1e-12)


@pytest.mark.parametrize(
    "column",
    [
        Column("x", "integer", low=0, high=100_000),
        Column("x", "integer", low=-3, high=40),
        Column("x", "continuous", low=-1.5, high=77.3),
        Column("x", "continuous", low=0, high=400, decimals=1),
        Column("x", "continuous", low=10, high=60, step=0.5, missing="indicator"),
        Column("x", "continuous", low=0, high=1e6, spacing="log"),
        Column("x", "continuous", low=0, high=1e6, decimals=2, spacing="log"),
    ],
)
@pytest.mark.parametrize("fine", [64, MICRO])
def test_a_legal_number_is_found_in_its_cell_again(column: Column, fine: int) -> None:
    cells = public_cells(Schema((column,)), fine)[0]
    rng = np.random.default_rng(0)
    codes = rng.integers(cells.size - cells.hole, size=500)
    numbers = cells.numbers(codes, rng.random(500))
    found, inside = cells.located(numbers)
    assert ((inside >= 0) & (inside < 1)).all()
    assert np.allclose(cells.numbers(found, inside), numbers, rtol=1e-12)
    if column.decimals is not None or column.step is not None or column.kind == "integer":
        assert np.array_equal(found, codes)
