"""How a CSV is written: read off its first line, said, never guessed in silence; no cell depends on another row."""

from __future__ import annotations

import gzip
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcondense.data.cohort import Cohort
from distcondense.data.dialect import Dialect
from distcondense.data.schema import Column, Schema
from distcondense.data.tables import MISSING_MARKERS, read_table
from distcondense.errors import CohortError, DistcondenseWarning, SettingsError
from tests.shell import Call, refused
from tests.tiny import CANARIES, SCHEMA, patients

SIGNS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
HOW: dict[str, Any] = {"schema": SCHEMA, "target": "died", "ignore": ("months", "relapse")}
GRÖSSE = Schema(
    (
        Column("größe", "continuous", low=0.0, high=300.0),
        Column("ort", "categorical", categories=("Köln", "Ulm")),
        Column("died", "binary", categories=(0, 1)),
    )
)
ROWS = "größe;ort;died\n170,5;Köln;0\n181,25;Ulm;1\n"


def cohort_of(content: bytes, *, name: str = "t.csv", quiet: bool = True, **how: Any) -> Cohort:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        if quiet:
            warnings.simplefilter("ignore", DistcondenseWarning)
        path = Path(folder) / name
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        return Cohort.from_file(path, **(HOW | how))


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("sign", SIGNS)
def test_every_separator_encoding_and_mark_gives_the_same_cohort_and_is_said(
    sign: str, encoding: str, name: str
) -> None:
    plain = cohort_of(patients(20).to_csv(index=False).encode())
    content = patients(20).to_csv(index=False, sep=sign).encode(encoding)
    unusual = sign != "," or not encoding.startswith("utf-8")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = cohort_of(content, name=name, quiet=False)
    assert found.fingerprint() == plain.fingerprint()
    assert [str(w.message).partition(" read as ")[0] for w in said] == [f"table {name}"] * unusual
    assert (f"{SIGNS[sign]}-separated" in found.read_as) == (sign != ",")
    assert (encoding.upper() in found.read_as) == (not encoding.startswith("utf-8"))
    stated = cohort_of(content, quiet=False, name=name, separator=SIGNS[sign], encoding=encoding)
    assert stated.read_as == ""
    assert stated.fingerprint() == plain.fingerprint()
    assert stated.how["separator"] == sign


def test_latin_1_and_decimal_commas_are_taken_and_said() -> None:
    with pytest.warns(DistcondenseWarning, match=r"read as semicolon-separated, Latin-1 \(cp1252\), decimal comma"):
        found = cohort_of(ROWS.encode("cp1252"), quiet=False, schema=GRÖSSE, ignore=())
    assert list(found.features["größe"]) == [170.5, 181.25]
    assert list(found.features["ort"]) == ["Köln", "Ulm"]
    stated = cohort_of(
        ROWS.encode("cp1252"), quiet=False, schema=GRÖSSE, ignore=(), separator=";", encoding="cp1252", decimal=","
    )
    assert stated.fingerprint() == found.fingerprint()


def test_latin_1_below_a_plain_header_must_be_stated() -> None:
    content = "ort;x;died\nKöln;1;0\nUlm;2;1\n".encode("cp1252")
    schema = Schema((GRÖSSE["ort"], Column("x", "integer", low=0, high=9), GRÖSSE["died"]))
    with pytest.raises(CohortError, match=r"must be text in UTF-8.*encoding=.cp1252"):
        cohort_of(content, schema=schema, ignore=())
    assert list(cohort_of(content, schema=schema, ignore=(), encoding="cp1252").features["ort"]) == ["Köln", "Ulm"]


CELLS = {"3,5": 3.5, "3.5": 3.5, "12": 12.0, "0,25": 0.25, "1,234": 1.234, "7.125": 7.125, "": np.nan, "1e2": 100.0}
NUMBERS = Schema(
    (
        Column("a", "continuous", low=0.0, high=1e3, missing="indicator"),
        Column("b", "categorical", categories=(1.5, 2), missing="category"),
        Column("died", "binary", categories=(0, 1)),
    )
)


@settings(max_examples=120)
@given(
    rows=st.lists(st.tuples(st.sampled_from(sorted(CELLS)), st.sampled_from(["1,5", "1.5", "2", "2,0"])), min_size=1)
)
def test_a_number_is_what_its_own_cell_says_or_the_table_is_refused(rows: list[tuple[str, str]]) -> None:
    """In a file that semicolons separate either sign is the decimal one, whoever else is in it: no other number."""
    content = ("a;b;died\n" + "".join(f"{a};{b};0\n" for a, b in rows)).encode()
    signs = {sign for a, _ in rows for sign in ".," if sign in a}
    if signs == {".", ","} or {a for a, _ in rows if "," in a} == {"1,234"}:
        with pytest.raises(CohortError, match="decimal"):
            cohort_of(content, schema=NUMBERS, ignore=())
        return
    found = cohort_of(content, schema=NUMBERS, ignore=())
    np.testing.assert_array_equal(found.features["a"], [CELLS[a] for a, _ in rows])
    assert list(found.features["b"]) == [{"1,5": 1.5, "1.5": 1.5}.get(b, 2) for _, b in rows]


def test_numbers_with_commas_alone_do_not_say_whether_they_are_thousands() -> None:
    content = b"a;b;died\n1,234;2;0\n5,678;2;1\n"
    with pytest.raises(CohortError, match="decimal"):
        cohort_of(content, schema=NUMBERS, ignore=())
    assert list(cohort_of(content, schema=NUMBERS, ignore=(), decimal=",").features["a"]) == [1.234, 5.678]
    with pytest.raises(CohortError, match=r"'a'.*must be numbers"):
        cohort_of(content, schema=NUMBERS, ignore=(), decimal=".")


def test_a_stated_decimal_comma_takes_no_points_and_a_comma_file_no_commas() -> None:
    with pytest.raises(CohortError, match=r"'a'.*must be numbers"):
        cohort_of(b"a;b;died\n1.5;2;0\n", schema=NUMBERS, ignore=(), decimal=",")
    with pytest.raises(CohortError, match=r"'a'.*must be numbers"):
        cohort_of(b'a,b,died\n"1,5",2,0\n', schema=NUMBERS, ignore=())
    with pytest.raises(CohortError, match="not its separator"):
        cohort_of(b"a,b,died\n1,2,0\n", schema=NUMBERS, ignore=(), decimal=",")


def test_one_person_more_changes_nobody_else_in_any_dialect() -> None:
    """The first line decides; whatever a person's own line holds, the others' cells stay or the table is refused."""
    base = "größe;ort;died\n170,5;Köln;0\n181,25;Ulm;1\n"
    alone = cohort_of(base.encode(), schema=GRÖSSE, ignore=())
    for line in ("1,2;Ulm;1", "150;Ulm;1", "1,5,Ulm;Ulm;1", "x|y;Ulm;1", "1.5;Ulm;0", "a,b,c,d,e", '"1;2";Ulm;1'):
        try:
            more = cohort_of(f"{base}{line}\n".encode(), schema=GRÖSSE, ignore=())
        except CohortError:
            continue
        pd.testing.assert_frame_equal(more.features.iloc[:2], alone.features, check_exact=True)
    with pytest.raises(CohortError, match="encoding"):  # and not: everybody is read as Latin-1
        cohort_of(base.encode() + "150;Köln;0\n".encode("cp1252"), schema=GRÖSSE, ignore=())


@pytest.mark.parametrize(
    "content",
    [
        b"CANARY-NAME,987654,0\nJohn,2,1\n",
        b"CANARY-NAME,CANARY-NAME,0\nJohn,x,1\n",
        b"CANARY-NAME;987654;0\nJohn;2;1\n",
        b"diet,CANARY-NAME,CANARY-NAME\nx,y,z\n",
        b"0,CANARY-NAME,CANARY-NAME\n0,y,z\n",
    ],
)
@pytest.mark.parametrize("how", [{}, {"schema": None, "ignore": ()}, {"schema": None, "ignore": (), "target": "0"}])
def test_nothing_of_a_first_line_that_may_be_a_patient_is_quoted(content: bytes, how: dict[str, Any]) -> None:
    with pytest.raises(CohortError) as refusal:
        cohort_of(content, **how)
    assert "first line" in str(refusal.value)
    assert not any(canary in str(refusal.value) for canary in (*CANARIES, "diet", "John"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"CANARY-NAME,987654,x\nJohn,2,y\n", "1 of 3 fields that are numbers"),
        (b"Jane,f,CANARY-NAME\nJohn,m,y\nJack,f,x\n", "1 of its 3 fields again as values"),
        (b",age,died\n1,2,3\n", "first in column 1"),
        (b"a;b,c\n1;2,3\n", "--separator comma or semicolon"),
        (b"a;b\n1,234;2\n", "--decimal"),
        (b"a;b\n1,5;2.5\n", "decimal points in column 2"),
        (b"a\0,\0b\0\n\0", "utf-16-le"),
    ],
)
def test_a_draft_of_a_table_that_is_not_clear_is_refused(call: Call, tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    refused(call("schema", "infer", "t.csv"), "t.csv", says)


@pytest.mark.parametrize("sign", [":", "^", "~"])
def test_a_table_that_was_not_split_is_no_column_of_categories(call: Call, tmp_path: Path, sign: str) -> None:
    (tmp_path / "t.csv").write_text("name\n" + "".join(f"CANARY-NAME{sign}{k}{sign}f\n" for k in range(5)))
    refused(call("schema", "infer", "t.csv"), "its lines must be split into fields")
    refused(call("init", "t.csv", "--yes"), "its lines must be split into fields")


def test_rows_with_spaces_between_fields_and_a_stray_comma_are_no_categories(call: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("CANARY-NAME 1,234 x CANARY-NAME\n28 50.6 148.36 m I 94.1\n77 13.3 15.9 f I 1.5\n")
    refused(call("schema", "infer", "t.csv"), "its lines must be split into fields")
    (tmp_path / "t.csv").write_text("crp day 1,ratio 1:2,at\n1.5,0.2,12:30:15\n1.6,0.3,12:31:00\n")
    assert call("schema", "infer", "t.csv").code == 0


@pytest.mark.parametrize(
    "line",
    ["CANARY-NAME|14.2|x", "CANARY-NAME,CANARY-NAME", "CANARY-NAME;x,y,z", "CANARY NAME", "55:CANARY-NAME;f:57.7:1"],
)
@pytest.mark.parametrize("command", [("schema", "infer"), ("init", "--yes", "--no-plan")])
def test_a_stated_separator_that_leaves_rows_whole_shows_nothing_of_them(
    call: Call, tmp_path: Path, line: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "t.csv").write_text(f"{line}\na|1|y\nb|2|z\n")
    refused(call(command[0], *command[1:2], "t.csv", *command[2:], "--separator", ";"), "which sign separates")


def test_a_draft_of_a_semicolon_file_has_its_columns_and_says_how_it_was_read(call: Call, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(ROWS.encode("cp1252"))
    answer = call("schema", "infer", "t.csv")
    assert answer.code == 0
    assert "read as semicolon-separated, Latin-1 (cp1252), decimal comma" in answer.err
    assert "categories" not in answer.out.partition("größe")[2].partition("[columns")[0]
    again = call("schema", "infer", "t.csv", "--separator", ";", "--encoding", "cp1252", "--decimal", ",")
    assert again.out == answer.out
    assert "read as" not in again.err


@pytest.mark.parametrize(
    "wrong",
    [
        {"separator": "ab"},
        {"separator": '"'},
        {"separator": ""},
        {"separator": "1"},
        {"encoding": "klingon"},
        {"encoding": "base64"},
        {"decimal": ";"},
        {"separator": ",", "decimal": ","},
        {"encoding": "\0"},
    ],
)
def test_a_dialect_that_cannot_be_is_refused_before_the_table_is_read(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        Cohort.from_file("absent.csv", target="x", **wrong)


def test_a_plain_table_is_read_as_before_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"a, b",died\r\n1.5,0\r\n')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = read_table(path, missing_markers=MISSING_MARKERS, dialect=Dialect())
    assert list(frame) == ["a, b", "died"]
