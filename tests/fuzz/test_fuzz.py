"""A short run of `make exhaustive`, and every kind of case that it, or somebody, found: they stay found."""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import distcondense as dc
from distcondense.data.schema import Column, Schema
from distcondense.errors import SchemaError, UserError
from distcondense.outside import MOST_DEPTH, OutsideError, parse_json, parse_toml
from distcondense.privacy.binding import json_digest
from distcondense.privacy.statement import Privacy
from distcondense.runs.signing import verify_release
from tests.fuzz.__main__ import fuzz
from tests.fuzz.driver import TEXT, Room
from tests.fuzz.statements import releases
from tests.shell import TARGET, Call, files, refused, write
from tests.tiny import BINARY, SCHEMA, patients

SEED = 20261117
SHORT = {"csv": 60, "frames": 60, "schemas": 60, "options": 12, "studies": 15, "api": 40, "statements": 25}


@pytest.mark.parametrize("way", SHORT)
def test_hostile_input_meets_no_traceback_and_shows_no_patient(way: str) -> None:
    assert fuzz(SHORT[way], SEED, way, quiet=True) == {way: []}


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path, random.Random(0))


# -- bounds of what comes from outside --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["1e400", "NaN", "-Infinity", str(2**63), "9" * 5000, "[" * 40 + "]" * 40, "[" * 99_999, "", "{"]
)
def test_json_beyond_the_bounds_is_refused(text: str) -> None:
    with pytest.raises(OutsideError):
        parse_json(text)
    with pytest.raises(OutsideError):
        parse_json(f'{{"a": {text}}}')


@pytest.mark.parametrize("value", ["1e400", "nan", "9" * 30, "9" * 4400, "[" * 50 + "]" * 50, "[" * 5000 + "]" * 5000])
def test_toml_beyond_the_bounds_is_refused(value: str) -> None:
    with pytest.raises(OutsideError):
        parse_toml(f"a = {value}")


def test_what_is_within_the_bounds_is_read() -> None:
    deep = "[" * (MOST_DEPTH - 1) + "]" * (MOST_DEPTH - 1)
    assert parse_json(deep)
    assert parse_json(str(2**63 - 1)) == 2**63 - 1


@pytest.mark.parametrize("kind", ["integer", "continuous"])
def test_bounds_that_no_array_holds_are_refused_with_the_schema(kind: Any) -> None:
    for bound in (1e20, 1e308, -1e308, 10**5000, np.inf, 1j, np.timedelta64(1)):
        with pytest.raises(SchemaError, match="must be a number within"):
            Schema((Column("a", kind, low=0, high=bound),))


# -- statements -------------------------------------------------------------------------------------------------------


def _published(stated: dict[str, Any], **changes: Any) -> None:
    stated["parameters"].update(changes)


FORGED: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "no steps": ("published", lambda stated: stated.update(ledger=[])),
    "steps below none": ("published", lambda stated: stated["ledger"][0].update(count=-4)),
    "steps without end": ("published", lambda stated: stated["ledger"][0].update(count=10**12)),
    "nobody sampled": ("published", lambda stated: _published(stated, sampling_rate=0)),
    "a smaller ε": ("published", lambda stated: stated.update(epsilon=0.0001)),
    "an earlier step": ("published", lambda stated: _published(stated, released_step=1)),
    "a sum in words": ("private", lambda stated: stated.update(epsilon_with_earlier_runs="tiny")),
    "another μ": ("private", lambda stated: _published(stated, mu=0.01)),
    "a nested parameter": ("private", lambda stated: _published(stated, accounting={"a": 1})),
}


def accepted(release: Path) -> bool:
    try:
        return verify_release(release).holds
    except UserError:
        return False


@pytest.mark.parametrize("name", FORGED)
def test_a_statement_forged_with_its_sentence_and_digest_does_not_verify(tmp_path: Path, name: str) -> None:
    method, forge = FORGED[name]
    for file, content in releases()[method].items():
        (tmp_path / file).write_bytes(content)
    assert accepted(tmp_path)
    stated = json.loads((tmp_path / "privacy.json").read_bytes())
    forge(stated)
    with contextlib.suppress(Exception):  # a forger who cannot write the sentence leaves the old one
        stated["statement"] = Privacy.from_dict(stated).paragraph()
    stated["digest"] = json_digest(stated)
    (tmp_path / "privacy.json").write_text(json.dumps(stated))
    assert not accepted(tmp_path)


# -- targets and folders ----------------------------------------------------------------------------------------------


def test_a_draft_replaces_regular_files_only(call: Call, tmp_path: Path) -> None:
    write(patients(12), tmp_path)
    (tmp_path / "link").symlink_to("schema.toml")
    (tmp_path / "room").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = files(tmp_path)
    for target in ("link", "room", "pipe", "/dev/null", ".", "no/such/place", "x" * 300, "schema.toml/x"):
        refused(call("schema", "infer", "cohort.csv", "--out", target, "--force"))
    assert files(tmp_path) == before
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("word", ["x" * 300, "x" * 5000, "a/" * 3000])
def test_an_argument_that_is_too_long_for_a_path_is_refused(call: Call, tmp_path: Path, word: str) -> None:
    write(patients(12), tmp_path)
    refused(call("condense", word, *TARGET))
    refused(call("condense", "cohort.csv", *TARGET, "--out", word))
    refused(call("schema", "check", word))
    refused(call("privacy", "verify", word))
    refused(call("study", word))


def test_an_audit_that_could_not_be_written_is_refused_before_the_work(call: Call, tmp_path: Path) -> None:
    refused(call("attack", "audit", "--out", "no/such/place.json"), "no such file or folder")
    refused(call("attack", "audit", "--threads", "0"), "at least 1")


@pytest.mark.parametrize("content", [b"[]", b"{}", b"null", b"[" * 99_999, b'{"identity": 1e400}', b"\xff", None])
def test_a_folder_with_a_damaged_owner_is_refused_in_words(call: Call, tmp_path: Path, content: bytes | None) -> None:
    write(patients(12), tmp_path)
    owner = tmp_path / "run" / "internal" / "owner.json"
    owner.parent.mkdir(parents=True)
    owner.mkdir() if content is None else owner.write_bytes(content)
    refused(call("condense", "cohort.csv", *TARGET, "--out", "run", "--resume"), "belongs to")


def test_a_loop_of_links_is_no_folder_and_no_file(call: Call, tmp_path: Path) -> None:
    write(patients(12), tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    refused(call("condense", "loop", *TARGET))
    refused(call("condense", "cohort.csv", *TARGET, "--out", "loop"))
    refused(call("condense", "cohort.csv", *TARGET, "--out", "loop/run"))
    refused(call("privacy", "verify", "loop"))


# -- names that are values --------------------------------------------------------------------------------------------

ODD_COLUMNS: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "one more": lambda table: table.assign(**{TEXT: 1.0}),
    "twice": lambda table: pd.concat([table.assign(**{TEXT: 1}), pd.Series(1, table.index, name=TEXT)], axis=1),
    "an identifier": lambda table: table.assign(**{TEXT: [f"id-{k % 30}" for k in range(len(table))]}),
    "signals": lambda table: table.assign(**{TEXT: Decimal("sNaN")}),
    "halves": lambda table: table.assign(**{TEXT: "\ud800"}),
    "nested": lambda table: table.assign(**{TEXT: [[1]] * len(table)}),
    "complex": lambda table: table.assign(**{TEXT: 1j}),
    "free text": lambda table: table.assign(**{TEXT: [f"word {k} and {k + 1}" for k in range(len(table))]}),
    "the outcome": lambda table: table.rename(columns={"died": TEXT}),
}


@pytest.mark.parametrize("odd", ODD_COLUMNS)
@pytest.mark.parametrize("schema", [SCHEMA, None], ids=["declared", "inferred"])
@pytest.mark.parametrize("way", ["frame", "csv", "parquet"])
def test_a_column_that_nobody_named_is_said_by_its_place(room: Room, odd: str, schema: Any, way: str) -> None:
    table: Any = ODD_COLUMNS[odd](patients(120))
    path = room.path / f"t.{way}"
    try:
        if way == "csv":
            table.to_csv(path, index=False)
        elif way == "parquet":
            pq.write_table(pa.Table.from_pandas(table), path)
    except (pa.ArrowException, ValueError, ArithmeticError):  # what no file holds
        return
    read = dc.Cohort.from_frame if way == "frame" else dc.Cohort.from_file
    room.call(odd, lambda: read(table if way == "frame" else path, schema=schema, **BINARY))
    assert not room.faults


# -- the API ----------------------------------------------------------------------------------------------------------

COHORT = dc.Cohort.from_frame(patients(12), schema=SCHEMA, **BINARY)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dc.condense(patients(12)),
        lambda: dc.condense(COHORT, epsilon="1"),
        lambda: dc.condense(COHORT, out=3),
        lambda: dc.condense(COHORT, account=3.5),
        lambda: dc.condense(COHORT, ipc=2**63),
        lambda: dc.condense(COHORT, threads="all"),
        lambda: dc.Cohort.from_frame(patients(12), target=3),
        lambda: dc.Cohort.from_frame(patients(12), target="died", person_id=""),
        lambda: dc.Cohort.from_frame(patients(12), target="died", ignore="age"),
        lambda: dc.Cohort.from_frame(patients(12), target="died", schema={}),
        lambda: dc.Cohort.from_frame(patients(12).assign(x=Decimal("sNaN")), target="died"),
        lambda: dc.Cohort.from_frame(patients(12).assign(x=1j), target="died"),
        lambda: dc.Cohort.from_frame(patients(12).assign(x=[[1]] * 12), target="died", person_id="x"),
        lambda: dc.PrivateModel().fit(3),
        lambda: dc.PrivateModel(schema=SCHEMA.only(["age"])).fit(patients(12)[["age"]], 3),
        lambda: dc.Odometer(3),
        lambda: dc.evaluate(COHORT, 3),
        lambda: Schema.from_dict([]),
        lambda: Schema.from_toml(3),
    ],
)
def test_a_call_with_another_type_is_refused_in_words(call: Callable[[], Any]) -> None:
    with pytest.raises(UserError, match=r"must|needs"):
        call()


def test_a_model_asked_about_a_frame_without_a_column_names_it() -> None:
    model = dc.PrivateModel(schema=SCHEMA.only(["age", "crp"]), epsilon=np.float32(8.0)).fit(
        patients(400)[["age", "crp"]], patients(400)["died"]
    )
    assert model.privacy_.epsilon is not None
    with pytest.raises(UserError, match="1 missing: 'crp'"):
        model.predict(pd.DataFrame({"age": [50]}))
    with pytest.raises(UserError, match="2 missing"):
        model.predict([[50, 1.0]])
