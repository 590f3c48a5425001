"""The cohort: tables in every format, splits, missing values, and refusals that never show a patient's value."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcondense.data.cohort import Cohort
from distcondense.data.outcome import Outcome
from distcondense.data.persons import HoldoutSplit, Stratified, reading_order, split_from
from distcondense.data.schema import Column, Schema
from distcondense.data.tables import MISSING_MARKERS, read_table
from distcondense.errors import CohortError, DistcondenseWarning, SettingsError, UserError
from distcondense.outcomes.binary import Binary
from distcondense.privacy.layout import rows_by_person
from tests.conftest import SMALL_TABLE, real_data, small_frame
from tests.tiny import BINARY, CANARIES, NUMBER, SCHEMA, SPOILED, SURVIVAL, TEXT, Spoiled, patients, put


def with_columns(*columns: Column) -> Schema:
    """The tiny schema with some columns described otherwise."""
    changed = {c.name: c for c in columns}
    return Schema(tuple(changed.get(c.name, c) for c in SCHEMA.columns))


def no_canary(text: str) -> None:
    for canary in CANARIES:
        assert canary not in text


# -- formats ----------------------------------------------------------------------------------------------------------

WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "cohort.csv": lambda frame, path: frame.to_csv(path, index=False),
    "cohort.CSV": lambda frame, path: frame.to_csv(path, index=False),
    "cohort.v2.csv": lambda frame, path: frame.to_csv(path, index=False, encoding="utf-8-sig"),
    "cohort.csv.gz": lambda frame, path: frame.to_csv(path, index=False, compression="gzip"),
    "COHORT.CSV.GZ": lambda frame, path: frame.to_csv(path, index=False, compression="gzip"),
    "cohort.parquet": lambda frame, path: frame.to_parquet(path, index=False),
    "cohort.feather": lambda frame, path: frame.to_feather(path),
    "cohort.arrow": lambda frame, path: frame.to_feather(path, compression="uncompressed"),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("how", [BINARY, SURVIVAL], ids=["binary", "survival"])
def test_every_format_gives_the_same_cohort(tmp_path: Path, name: str, how: dict) -> None:
    frame = patients()
    WRITERS[name](frame, tmp_path / name)
    expected = Cohort.from_frame(frame, schema=SCHEMA, **how)
    found = Cohort.from_file(tmp_path / name, schema=SCHEMA, **how)
    pd.testing.assert_frame_equal(found.features, expected.features)
    assert found.fingerprint() == expected.fingerprint()
    assert found.outcome.kind.name == ("survival" if "time" in how else "binary")


def test_an_arrow_table_is_taken_as_it_is() -> None:
    frame = patients()
    found = Cohort.from_frame(pa.Table.from_pandas(frame), schema=SCHEMA, **BINARY)
    pd.testing.assert_frame_equal(found.features, Cohort.from_frame(frame, schema=SCHEMA, **BINARY).features)


def test_something_that_is_not_a_table_is_refused() -> None:
    with pytest.raises(CohortError, match="Found a dict"):
        Cohort.from_frame({"age": [1]}, target="age")


def test_features_come_in_the_schemas_order_and_without_the_outcome() -> None:
    cohort = Cohort.from_frame(patients()[::-1].iloc[:, ::-1], schema=SCHEMA, **SURVIVAL)
    assert list(cohort.features) == ["age", "crp", "ferritin", "sex", "stage"]
    assert list(cohort.features.index[:2]) == [0, 1]
    assert cohort.outcome.kind.names == ("months", "relapse")


def test_columns_that_are_not_in_the_schema_are_left_out_and_reported() -> None:
    with pytest.warns(DistcondenseWarning, match="1 columns .* left out: column 9"):
        cohort = Cohort.from_frame(patients().assign(ward=TEXT), schema=SCHEMA, **BINARY)
    assert cohort.ignored == ("ward",)
    assert "ward" not in cohort.features


def test_without_a_schema_one_is_inferred_and_says_so() -> None:
    assert Cohort.from_frame(patients(), **BINARY).schema.origin == "inferred"
    assert Cohort.from_frame(patients(), schema=SCHEMA, **BINARY).schema.origin == "declared"


def test_none_is_an_answer_and_a_named_marker_is_a_hole(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("test,age\nNone,?\nHigh,40\nNA,50\n")
    plain = read_table(path)
    assert list(plain["test"].isna()) == [False, False, True]
    assert not plain["age"].isna().any()
    marked = read_table(path, missing_markers=(*MISSING_MARKERS, "?"))
    assert list(marked["age"].isna()) == [True, False, False]


def test_text_and_numbers_that_read_the_same_are_the_same_category() -> None:
    schema = Schema((Column("grade", "categorical", categories=("1", 2, "3")), Column("x", "continuous")))
    frame = pd.DataFrame({"grade": [1.0, 2.0, 3.0] * 10, "x": np.arange(30.0), "y": [0, 1] * 15})
    cohort = Cohort.from_frame(frame, target="y", schema=schema)
    assert list(cohort.features["grade"][:3]) == ["1", 2, "3"]


# -- the outcome ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "positive", "written"),
    [
        ((0, 1), None, (0, 1)),
        ((False, True), None, (False, True)),
        (("no", "yes"), "yes", ("no", "yes")),
        (("no", "yes"), "no", ("yes", "no")),
        ((1.0, 2.0), "2", (1, 2)),
    ],
)
def test_the_positive_class_is_the_one_that_was_meant(labels: tuple, positive: str | None, written: tuple) -> None:
    died = patients()["died"]
    frame = patients().assign(died=died.map(dict(enumerate(labels))))
    cohort = Cohort.from_frame(frame, schema=SCHEMA.without(["died"]), positive=positive, **BINARY)
    swapped = positive is not None and labels[0] == positive
    np.testing.assert_array_equal(cohort.outcome["label"], 1 - died if swapped else died)
    assert cohort.outcome.kind.labels == written


def test_the_schemas_binary_target_says_which_class_is_positive() -> None:
    frame = patients().assign(died=lambda f: f["died"].map({0: "no", 1: "yes"}))
    schema = with_columns(Column("died", "binary", categories=("no", "yes")))
    cohort = Cohort.from_frame(frame, schema=schema, **BINARY)
    np.testing.assert_array_equal(cohort.outcome["label"], patients()["died"])


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({}, "needs a time and an event, or a target. Found neither"),
        ({"time": "months"}, "only time"),
        ({"event": "relapse"}, "only event"),
        ({"target": "died", "time": "months"}, "Found both"),
        ({"target": "died", "time": "months", "event": "relapse"}, "Found both"),
        ({"time": "months", "event": "months"}, "two columns"),
        ({"target": "died", "kind": "survival"}, "needs a time and an event. Found only target"),
        ({"target": "died", "kind": "binry"}, "must be one of .*Fix: say binary"),
    ],
)
def test_an_outcome_is_a_target_or_a_time_and_an_event(how: dict, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        Cohort.from_frame(patients(), **how)


def test_a_table_with_one_class_is_read_and_only_splitting_it_says_so() -> None:
    """Reading must not raise: on the private path the error itself would tell something about patients."""
    for value in (0, 1):
        cohort = Cohort.from_frame(patients().assign(died=value), schema=SCHEMA, **BINARY)
        assert set(cohort.outcome["label"]) == {value}
        with pytest.raises(CohortError, match="both classes"):
            Stratified(0).split(cohort)


def test_a_holdout_is_a_coin_for_each_person() -> None:
    frame = patients().assign(who=np.arange(240) // 2)
    cohort = Cohort.from_frame(frame, schema=SCHEMA, person_id="who", **BINARY)
    split = HoldoutSplit(0.3, entropy=7).split(cohort)
    assert sorted([*split.train, *split.test]) == list(range(240))
    assert not len(split.validation)
    assert not set(cohort.person[split.train]) & set(cohort.person[split.test])
    assert 0.15 < len(split.test) / 240 < 0.45
    assert len(HoldoutSplit(0.0, entropy=7).split(cohort).test) == 0


@pytest.mark.parametrize("way", [HoldoutSplit(0.25, 2**127 + 9), Stratified(5), Stratified(2, (0.5, 0.2, 0.3))])
def test_a_way_of_splitting_is_made_again_from_its_record(way: HoldoutSplit | Stratified) -> None:
    cohort = Cohort.from_frame(patients(), schema=SCHEMA, **BINARY)
    again = split_from(json.loads(json.dumps(way.to_dict())))
    assert again == way
    for rows, others in zip(vars(way.split(cohort)).values(), vars(again.split(cohort)).values(), strict=True):
        np.testing.assert_array_equal(rows, others)


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SPOILED, ids=[s.name for s in SPOILED])
@pytest.mark.parametrize("source", ["frame", "csv", "parquet"])
def test_a_spoiled_table_is_refused_without_showing_a_value(case: Spoiled, source: str, tmp_path: Path) -> None:
    frame = case.spoil(patients())
    path = tmp_path / f"cohort.{source}"
    if source == "csv":
        frame.to_csv(path, index=False)
    elif source == "parquet":
        mixed = [c for c in frame if frame[c].dtype == object and frame[c].map(type).nunique() > 1]
        frame.astype(dict.fromkeys(mixed, str)).to_parquet(path)
    table = frame if source == "frame" else read_table(path)
    with pytest.raises(UserError) as error:
        Stratified(0).split(Cohort.from_frame(table, schema=SCHEMA, **case.how))
    message = str(error.value)
    for part in case.says:
        assert part in message
    no_canary(message)
    assert error.value.found


def test_a_target_of_two_texts_must_be_named_and_is_not_shown() -> None:
    frame = patients().assign(died=lambda f: np.where(f["died"] == 1, TEXT, "no"))
    for how, says in (({}, "positive value must be named"), ({"positive": "yes"}, "positive value that was named")):
        with pytest.raises(CohortError, match=says) as error:
            Cohort.from_frame(frame, schema=SCHEMA.without(["died"]), **BINARY, **how)
        no_canary(str(error.value))


def test_nested_values_are_refused_by_name() -> None:
    frame = patients()
    frame["stage"] = [[TEXT]] * len(frame)
    for how in (BINARY, {"target": "stage"}):
        with pytest.raises(CohortError, match=r"'stage'.*nested values in 240 rows") as error:
            Cohort.from_frame(frame, schema=SCHEMA, **how)
        no_canary(str(error.value))


def test_every_problem_of_every_column_is_in_one_message() -> None:
    frame = put("stage", TEXT, [0])(put("crp", NUMBER)(put("age", np.nan)(patients())))
    with pytest.raises(CohortError) as error:
        Cohort.from_frame(frame, schema=SCHEMA, **BINARY)
    message = str(error.value)
    for part in ("3 problems", "'age'", "'crp'", "'stage'"):
        assert part in message
    no_canary(message)


def test_duplicate_columns_are_named(tmp_path: Path) -> None:
    frame = patients()
    twice = pd.concat([frame, frame[["crp"]]], axis=1)
    twice.to_csv(tmp_path / "twice.csv", index=False)
    for make in (
        lambda: Cohort.from_frame(twice, schema=SCHEMA, **BINARY),
        lambda: Cohort.from_file(tmp_path / "twice.csv", schema=SCHEMA, **BINARY),
        lambda: Cohort.from_frame(pd.DataFrame([[1, 2, 0]], columns=[1, "1", "crp"]), target="crp"),
    ):
        with pytest.raises(CohortError, match=r"must be unique. Found repeated: ('crp'|column 1)"):
            make()


@pytest.mark.parametrize("role", ["target", "person_id", "ignore"])
def test_a_column_that_is_not_there_names_the_nearest(role: str) -> None:
    how = {"target": "died", role: ["stge"] if role == "ignore" else "stge"}
    with pytest.raises(CohortError, match="no 'stge'; the nearest is 'stage'"):
        Cohort.from_frame(patients(), **how)


UNREADABLE: dict[str, tuple[bytes | None, str]] = {
    "absent.csv": (None, "no such file"),
    "empty.csv": (b"", "an empty file"),
    "blank.csv": (b"\n\n", "nothing to read"),
    "header.csv": (b"age,died\n", "0 rows"),
    "latin.csv": ("age,died\nCANARY-ö,2\n".encode("latin-1"), "other bytes below its first line"),
    "ragged.csv": (b"age,died\n1,0\n987654,1,CANARY\n", "3 fields where there were 2 before, in line 3"),
    "quote.csv": (b'age,died\n1,0\n"CANARY,1\n', "never closed, in row 2"),
    "comma.csv": (b"age,crp,died\n987654,2,0,\n3,4,1,\n", "more fields than 3"),
    "not.csv.gz": (b"age,died\n987654,1\n", "BadGzipFile"),
    "not.parquet": (b"age,died\n987654,1\nCANARY", "ArrowInvalid"),
    "not.feather": (b"age,died\n987654,1\nCANARY", "ArrowInvalid"),
    "cohort.xlsx": (b"CANARY", ".xlsx"),
    "cohort": (b"CANARY", "no ending"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_cannot_be_read_is_named_and_not_quoted(tmp_path: Path, name: str) -> None:
    content, found = UNREADABLE[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CohortError) as error:
        Cohort.from_file(tmp_path / name, target="died")
    assert name in str(error.value)
    assert found in str(error.value)
    no_canary(str(error.value))


def test_a_folder_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(CohortError, match="Found a folder"):
        Cohort.from_file(tmp_path, target="died")


def test_an_empty_frame_is_refused() -> None:
    with pytest.raises(CohortError, match="0 rows"):
        Cohort.from_frame(patients().iloc[:0], target="died")
    with pytest.raises(CohortError, match="only the outcome"):
        Cohort.from_frame(patients()[["died"]], target="died")


# -- missing values ---------------------------------------------------------------------------------------------------


def test_undeclared_missing_values_name_every_column() -> None:
    frame = patients()
    frame.loc[[3, 5, 9], "crp"] = np.nan
    frame.loc[4, "stage"] = None
    with pytest.raises(CohortError) as error:
        Cohort.from_frame(frame, schema=SCHEMA, **BINARY)
    message = str(error.value)
    assert "'crp'" in message
    assert "'stage'" in message
    assert "3 rows, first at row 4" in message
    assert "'age'" not in message


@pytest.mark.parametrize(
    "column",
    [
        Column("crp", "continuous", low=0, high=500, missing="constant", fill=5.0),
        Column("crp", "continuous", low=0, high=500, missing="indicator"),
        Column("stage", "categorical", categories=("I", "II", "III"), missing="category"),
        Column("stage", "categorical", categories=("I", "II", "III"), missing="constant", fill="II"),
        Column("sex", "binary", categories=("f", "m"), missing="constant", fill="m"),
    ],
    ids=lambda c: f"{c.kind}-{c.missing}",
)
def test_declared_missing_values_are_taken_in_as_holes(column: Column) -> None:
    frame = patients()
    frame.loc[[3, 5], column.name] = None
    cohort = Cohort.from_frame(frame, schema=with_columns(column), **BINARY)
    assert list(np.flatnonzero(cohort.features[column.name].isna())) == [3, 5]
    with pytest.raises(CohortError, match="no policy"):
        Cohort.from_frame(frame, schema=with_columns(replace(column, missing="refuse", fill=None)), **BINARY)


def test_a_policy_for_holes_does_not_excuse_other_values() -> None:
    schema = with_columns(Column("crp", "continuous", low=0, high=500, missing="indicator"))
    for value, says in ((NUMBER, "bounds"), (np.inf, "finite"), (TEXT, "must be numbers")):
        with pytest.raises(CohortError, match=says) as error:
            Cohort.from_frame(put("crp", value)(patients()), schema=schema, **BINARY)
        no_canary(str(error.value))


def test_persons_without_a_name_are_refused() -> None:
    frame = patients().assign(who=np.arange(240.0))
    frame.loc[7, "who"] = np.nan
    with pytest.raises(CohortError, match=r"'who'.*1 row, first at row 8"):
        Cohort.from_frame(frame, schema=SCHEMA, person_id="who", **BINARY)


# -- splits -----------------------------------------------------------------------------------------------------------


def cohort_of(label: np.ndarray, person: np.ndarray | None = None) -> Cohort:
    features = pd.DataFrame({"x": np.arange(float(len(label)))})
    outcome = Outcome(Binary(("y",)), {"label": label.astype(np.int8)})
    return Cohort(features, Schema((Column("x", "continuous"),)), outcome, person)


@settings(max_examples=60)
@given(negatives=st.integers(20, 400), positives=st.integers(20, 200), seed=st.integers(0, 2**31))
def test_splits_are_70_10_20_of_each_class(negatives: int, positives: int, seed: int) -> None:
    label = np.random.default_rng(seed).permutation(np.repeat([0, 1], [negatives, positives]))
    split = Stratified(seed).split(cohort_of(label))
    parts = [split.train, split.validation, split.test]
    assert sorted(np.concatenate(parts)) == list(range(len(label)))
    for value, total in ((0, negatives), (1, positives)):
        for rows, share in zip(parts, (0.7, 0.1, 0.2), strict=True):
            assert abs(np.count_nonzero(label[rows] == value) - share * total) <= 1


def test_a_split_is_a_function_of_its_seed() -> None:
    cohort = Cohort.from_frame(patients(), schema=SCHEMA, **BINARY)
    first, again, other = (Stratified(seed).split(cohort) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.test, again.test)
    assert not np.array_equal(first.test, other.test)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**31), persons=st.integers(60, 150), rows=st.integers(200, 400))
def test_the_rows_of_one_person_stay_together(seed: int, persons: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    person = rng.integers(0, persons, rows)
    label = np.where(person % 2 == 0, rng.integers(0, 2, rows), 0)
    split = Stratified(seed).split(cohort_of(label, pd.factorize(person)[0]))
    parts = [set(person[part]) for part in (split.train, split.validation, split.test)]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    assert sum(map(len, parts)) == len(set(person))
    assert abs(len(parts[0]) - 0.7 * len(set(person))) <= 2


def test_too_few_rows_to_split_are_refused() -> None:
    for label in (np.array([0] * 50 + [1] * 3), np.array([1] * 50 + [0] * 3)):
        with pytest.raises(CohortError, match="part needs both classes"):
            Stratified(0).split(cohort_of(label))
    with pytest.raises(SettingsError, match="sum to 1"):
        Stratified(0, fractions=(0.7, 0.2, 0.2)).split(cohort_of(np.arange(100) % 2))


def test_the_fingerprint_knows_data_outcome_and_persons() -> None:
    frame = patients().assign(who=np.arange(240) // 2)
    how = {"schema": SCHEMA, **BINARY}
    aside = {**how, "ignore": (*BINARY["ignore"], "who")}
    prints = {
        Cohort.from_frame(frame, **aside).fingerprint(),
        Cohort.from_frame(frame, person_id="who", **how).fingerprint(),
        Cohort.from_frame(frame.assign(age=frame["age"] + 1), **aside).fingerprint(),
        Cohort.from_frame(frame.assign(died=1 - frame["died"]), **aside).fingerprint(),
        Cohort.from_frame(
            frame, schema=with_columns(Column("age", "integer")), **{"target": "died", "ignore": aside["ignore"]}
        ).fingerprint(),
    }
    assert len(prints) == 5
    assert Cohort.from_frame(frame.copy(), **aside).fingerprint() in prints


# -- real patients ----------------------------------------------------------------------------------------------------


def test_the_seer_table_is_read_as_survival() -> None:
    path = real_data("seer_breast_4024.csv")
    cohort = Cohort.from_file(path, time="Survival Months", event="Status", positive="Dead")
    assert (len(cohort), int(cohort.outcome["label"].sum())) == (4024, 616)
    assert cohort.outcome.kind.labels == ("Alive", "Dead")
    assert "T Stage " in cohort.schema
    split = Stratified(0).split(cohort)
    assert [len(split.train), len(split.validation), len(split.test)] == pytest.approx([2817, 402, 805], abs=2)


def test_the_patients_of_diabetes_130_stay_together() -> None:
    frame = read_table(real_data("diabetes130_readmission.csv.gz"), missing_markers=(*MISSING_MARKERS, "?"))
    assert (frame["A1Cresult"] == "None").any()  # an answer
    assert not (frame["race"] == "?").any()
    frame["readmitted"] = frame["readmitted"] == "<30"
    keep = ["patient_nbr", "race", "age", "time_in_hospital", "A1Cresult", "readmitted"]
    cohort = Cohort.from_frame(frame[keep], target="readmitted", person_id="patient_nbr")
    assert cohort.schema["race"].missing == "category"
    assert cohort.person is not None
    parts = [np.unique(cohort.person[rows]) for rows in vars(Stratified(0).split(cohort)).values()]
    assert sum(map(len, parts)) == len(np.unique(np.concatenate(parts))) == 71_518
    assert [len(p) / 71_518 for p in parts] == pytest.approx([0.7, 0.1, 0.2], abs=1e-3)


# -- CSV, cell by cell ------------------------------------------------------------------------------------------------


def test_categories_that_are_one_number_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("code,x,y\n" + "01,1,0\n1,2,1\n1.0,3,1\n" * 5)
    apart = Schema((Column("code", "categorical", categories=("01", 1)), Column("x", "continuous")))
    assert list(Cohort.from_file(path, target="y", schema=apart).features["code"][:3]) == ["01", 1, 1]
    text = Schema((Column("code", "categorical", categories=("01", "1")), Column("x", "continuous")))
    with pytest.raises(CohortError, match=r"'code': .*categories only. Found 5 rows, first at row 3"):
        Cohort.from_file(path, target="y", schema=text)


def test_a_callers_frame_keeps_its_types() -> None:
    schema = Schema((Column("code", "categorical", categories=("1", 2)), Column("x", "continuous")))
    frame = pd.DataFrame({"code": [1, 2.0], "x": [1.0, 2.0], "y": [0, 1], "who": pd.Series([1, "1"], dtype=object)})
    cohort = Cohort.from_frame(frame, target="y", schema=schema, person_id="who")
    assert list(cohort.features["code"]) == ["1", 2]
    assert list(cohort.person) == [0, 0]
    with pytest.raises(CohortError, match="categories only"):
        Cohort.from_frame(frame.assign(code=["1", "2.0"]), target="y", schema=schema, ignore=["who"])


# ---- coins and rows that do not depend on where rows stand


def visits(rows: int = 400, people: int | None = None) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    frame = small_frame(rows, 5).drop(columns=["months", "event"])
    frame = frame.iloc[rng.integers(0, rows // 2, rows)].reset_index(drop=True)  # many rows are equal
    return frame if people is None else frame.assign(who=[f"p{k}" for k in rng.integers(0, people, rows)])


def held_out(frame: pd.DataFrame, **how: Any) -> list[str]:
    cohort = Cohort.from_frame(frame, target="died", schema=SMALL_TABLE.without(["months", "event"]), **how)
    return sorted(frame.iloc[HoldoutSplit(0.3, 2**100 + 1).split(cohort).test].astype(str).agg("|".join, axis=1))


@pytest.mark.parametrize("how", [{}, {"person_id": "who"}])
def test_a_row_without_a_person_has_a_coin_of_its_own_content_wherever_it_stands(how: dict[str, Any]) -> None:
    frame = visits(people=150 if how else None)
    whole, order = held_out(frame, **how), np.random.default_rng(0).permutation(len(frame))
    assert held_out(frame.iloc[order].reset_index(drop=True), **how) == whole
    assert 0.2 < len(whole) / len(frame) < 0.4
    without = Counter(held_out(frame.drop(index=7).reset_index(drop=True), **how))
    assert sum((Counter(whole) - without).values()) <= 1  # nobody else moved
    assert not without - Counter(whole)


def test_equal_rows_have_coins_of_their_own() -> None:
    frame = visits().iloc[[0] * 300].reset_index(drop=True)
    assert 50 < len(held_out(frame)) < 130


def test_which_rows_of_a_person_are_read_does_not_depend_on_where_they_stand() -> None:
    frame = visits(people=40)

    def read(table: pd.DataFrame) -> list[str]:
        cohort = Cohort.from_frame(
            table, target="died", person_id="who", schema=SMALL_TABLE.without(["months", "event"])
        )
        rows, _ = rows_by_person(cohort.person, len(table), 2, reading_order(cohort, HoldoutSplit(0.0, 3)))
        return sorted(table.iloc[rows].astype(str).agg("|".join, axis=1))

    again = frame.iloc[np.random.default_rng(1).permutation(len(frame))].reset_index(drop=True)
    assert read(again) == read(frame)
    assert len(read(frame)) == 80
