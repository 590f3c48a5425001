"""Ways in 3 to 6: schema files, study files, options, and calls of the API with things of other types."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import distcondense as dc
from distcondense.data.cohort import Facts
from distcondense.data.outcome import Goal
from distcondense.data.schema import Column, Schema
from distcondense.methods.base import method_named, options_of, refuse
from tests.fuzz.driver import CANARIES, TEXT, Room
from tests.fuzz.tables import nasty_values
from tests.shell import write
from tests.tiny import BINARY, SCHEMA, patients

NASTY_TOML = (
    "1e400", "-1e400", "nan", "inf", "1e308", "-1e308", "1e20", "9" * 30, "9" * 4400, "true", "[]", "{}", '""', '"x"',
    "[[[[]]]]", "[" * 200 + "]" * 200, "[" * 5000 + "]" * 5000, "1979-05-27", "07:32:00", "-1", "0", "0.1", "5e-324",
    '"' + "y" * 3000 + '"', '["a", 1, true]', '"private"', "0x1F", "'''\n'''", '"\\u0000"', '"distcondense_risk"',
    "[1, [2]]",
    "9223372036854775807", "1e15", "{a = {b = {c = 1}}}",
)  # fmt: skip
STUDY = """
[study]
name = "s"
seeds = [0]
ipc = 2

[[data]]
name = "ward"
path = "cohort.csv"
schema = "schema.toml"
target = "died"
ignore = ["months", "relapse"]

[[method]]
method = "private"
epsilon = 1.0
"""


def _assignments(text: str) -> list[int]:
    return [number for number, line in enumerate(text.splitlines()) if " = " in line]


def mutated(room: Room, text: str) -> str:
    """A text of lines with one of them changed, doubled, taken out, or bytes of it spoiled."""
    rng, lines = room.rng, text.splitlines()
    turn = rng.randrange(8)
    if turn < 4:
        place = rng.choice(_assignments(text))
        key = lines[place].partition(" = ")[0]
        lines[place] = f"{key} = {rng.choice(NASTY_TOML)}"
    elif turn == 4:
        place = rng.choice(_assignments(text))
        key, _, value = lines[place].partition(" = ")
        lines[place] = f"{rng.choice((key[:-1], key.upper(), 'nonsense', key + '.a', '', chr(233)))} = {value}"
    elif turn == 5:
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    elif turn == 6:
        del lines[rng.randrange(len(lines))]
    else:
        joined = "\n".join(lines)
        place = rng.randrange(len(joined))
        extra = rng.choice(("\0", "[", "]", '"', "=", "\n", "é", "#", "\x1b", "'''", "[[", "}"))
        return joined[:place] + extra + joined[place + rng.randrange(3) :]
    return "\n".join(lines)


def schemas(room: Room) -> None:
    """A schema file with something wrong in it: read, checked, or used to read a small table."""
    rng, text = room.rng, SCHEMA.to_toml()
    for _ in range(rng.choice((1, 1, 2, 3))):
        text = mutated(room, text)
    content = text.encode("utf-8")
    if rng.random() < 0.05:
        content = bytes(rng.randrange(256) for _ in range(60))
    path = room.write("schema.toml", content)
    if rng.random() < 0.1:
        patients(12).to_csv(room.path / "cohort.csv", index=False)
        room.cli("schema", "check", "schema.toml", "cohort.csv")
        return
    found = room.call("Schema.from_toml", lambda: Schema.from_toml(path))
    if found is None:
        return
    room.call("to_toml", found.to_toml)
    cohort = room.call("Cohort.from_frame", lambda: dc.Cohort.from_frame(patients(12), schema=found, **BINARY))
    facts = room.call("Facts.of", lambda: Facts.of(Goal.of(target="died"), found, ignore=BINARY["ignore"]))
    for known in (facts, cohort and cohort.facts):
        for name in ("private", "published") if known else ():
            method = method_named(name)
            settings = options_of(method, {"epsilon": 1.0})
            room.call(f"refuse {name}", lambda method=method, known=known, s=settings: refuse(method, known, s))


def studies(room: Room) -> None:
    """A study file with something wrong in it, checked without running a cell."""
    rng, text = room.rng, STUDY
    for _ in range(rng.choice((1, 1, 2))):
        text = mutated(room, text)
    write(patients(12), room.path)
    path = room.write("s.toml", text)
    if rng.random() < 0.2:
        (room.path / rng.choice(("cohort.csv", "schema.toml"))).write_bytes(b"\xff" * rng.randrange(200))
    if rng.random() < 0.2:
        room.cli("study", "s.toml", "--dry-run")
        return
    from distcondense.study import Study

    room.call("Study.from_toml", lambda: Study.from_toml(path))


NASTY_WORDS = (
    "", " ", "-1", "0", "1", "nan", "inf", "-inf", "1e400", "1e-400", "1e308", "0.5", "9223372036854775807", "9" * 400,
    "2147483649", "x" * 300, "x" * 5000, "\u2028", "\udc80", TEXT.lower(), "none", "true", ".", "..", "/", "/dev/null",
    "cohort.csv", "schema.toml", "1,2,3", "1,,2", "é", "'", "--", "no/such/place", "loop", "locked/x",
)  # fmt: skip
FLAGS = (
    "--epsilon", "--delta", "--ipc", "--seed", "--method", "--target", "--positive", "--kind", "--person-id",
    "--ignore", "--schema", "--missing-marker", "--threads", "--rows-per-person", "--holdout", "--reference",
    "--horizon", "--sigma-base",
    "--clip", "--steps", "--rho", "--odometer", "--separator", "--encoding", "--decimal", "--placement",
    "--categories-checked", "--actors", "--num-cpus", "--mechanism", "--nonsense", "--link", "--trust-inferred-schema",
)  # fmt: skip


def options(room: Room) -> None:
    """Any option with any word, on every command; `condense` stops at the latest at a folder that is not a run's."""
    rng = room.rng
    write(patients(12), room.path)
    (room.path / "loop").symlink_to("loop")
    taken = room.path / "taken"
    taken.mkdir()
    room.write("taken/other.txt", "not ours")
    extra = [word for _ in range(rng.randrange(1, 4)) for word in (rng.choice(FLAGS), rng.choice(NASTY_WORDS))]
    words = [rng.choice(NASTY_WORDS) for _ in range(2)]
    base = ["--target", "died", "--ignore", "months", "--ignore", "relapse", "--schema", "schema.toml"]
    commands: list[list[Any]] = [
        ["condense", "cohort.csv", *base, *extra, "--out", rng.choice(("taken", "loop", "cohort.csv", "loop/x"))],
        ["condense", "cohort.csv", *base, *extra, "--out", "taken"],
        ["condense", "cohort.csv", *base, "--method", "published", *extra, "--out", "taken"],
        ["condense", words[0], *base, "--out", "taken"],
        ["schema", "infer", words[0]],
        ["schema", "infer", "cohort.csv", "--out",
         rng.choice(("taken", "loop", "/dev/null", "no/such/place", "x" * 300)), *rng.choice(((), ("--force",)))],
        ["schema", "check", words[0], words[1]],
        ["privacy", "verify", words[0]],
        ["privacy", "verify", "taken", "--key", words[0]],
        ["privacy", "ledger", words[0]],
        ["privacy", "ledger", "a.jsonl", "--create", "--cap", words[0], "--delta", words[1]],
        ["privacy", "keygen", rng.choice(("loop", "cohort.csv", "loop/x", "cohort.csv/x"))],
        ["privacy", "sign", words[0], "--key", words[1]],
        ["evaluate", words[0], "--data", words[1]],
        ["evaluate", "taken", "--data", "cohort.csv", "--parts", words[0]],
        ["attack", "audit", "--runs", words[0], "--out", "no/such/place/x.json"],
        ["attack", "audit", "--threads", rng.choice(("0", "-1", "x"))],
        ["attack", words[0], "--data", words[1], "--only", words[0]],
        ["study", words[0], "--dry-run", "--out", words[1]],
        ["study", "schema.toml", "--dry-run", "--threads", words[0]],
    ]  # fmt: skip
    code = room.cli(*rng.choice(commands), shown=True)
    if code == 1:
        room.fault("traceback", "exit code 1")
    if [path.name for path in taken.iterdir()] != ["other.txt"]:
        room.fault("half-written", "somebody's own folder was changed")
    if not (room.path / "loop").is_symlink():
        room.fault("half-written", "a link was replaced")


def _things(room: Room) -> Any:
    cohort = dc.Cohort.from_frame(patients(12), schema=SCHEMA, **BINARY)
    plain: list[Any] = [0, -1, 1.5, True, "x", "", [], {}, (), math.nan, math.inf, 2**70, b"x", object(), patients(3),
                        np.arange(3), Path("x"), pd.Series([1]), Decimal(1), np.float32(1.0), cohort, SCHEMA, print,
                        "\0", "x" * 300, "\ud800"]  # fmt: skip
    drawn = room.rng.choice([*plain, *nasty_values(room)])
    return "x" if any(canary in str(drawn) for canary in CANARIES) else drawn  # no patient's


def _calls(room: Room) -> Iterator[tuple[str, Any]]:
    cohort = dc.Cohort.from_frame(patients(12), schema=SCHEMA, **BINARY)
    taken = room.path / "taken"
    taken.mkdir()
    room.write("taken/other.txt", "not ours")
    thing = _things(room)
    for name in ("epsilon", "delta", "ipc", "seed", "method", "threads", "rows_per_person", "holdout", "odometer",
                 "horizon", "reference", "placement", "categories_checked", "cluster"):  # fmt: skip
        yield f"condense {name}", lambda name=name: dc.condense(cohort, out=taken, **{name: thing})
    yield "condense cohort", lambda: dc.condense(thing, out=taken)
    yield "condense out", lambda: dc.condense(cohort, ipc=0, out=thing)
    for name in ("target", "time", "event", "positive", "kind", "person_id", "schema", "ignore"):
        how = {"schema": SCHEMA, **BINARY, name: thing}
        yield f"from_frame {name}", lambda how=how: dc.Cohort.from_frame(patients(12), **how)
    for name in ("separator", "encoding", "decimal", "missing_markers"):
        yield f"from_file {name}", lambda name=name: dc.Cohort.from_file("t.csv", target="x", **{name: thing})
    yield "from_frame table", lambda: dc.Cohort.from_frame(thing, schema=SCHEMA, **BINARY)
    yield "from_file path", lambda: dc.Cohort.from_file(thing, schema=SCHEMA, **BINARY)
    yield "from_toml", lambda: Schema.from_toml(thing)
    yield "from_dict", lambda: Schema.from_dict(thing)
    yield "from_dict columns", lambda: Schema.from_dict({"columns": {"a": thing}})
    yield "from_dict key", lambda: Schema.from_dict(_one_changed(room, thing))
    yield "column", lambda: Schema((Column("a", "continuous", low=thing, high=thing),))
    yield (
        "column fill",
        lambda: Schema((Column("a", "categorical", categories=("x",), missing="constant", fill=thing),)),
    )
    yield "fit", lambda: dc.PrivateModel().fit(thing)
    yield "fit X", lambda: dc.PrivateModel().fit(thing, [0, 1], schema=SCHEMA)
    yield (
        "fit y",
        lambda: dc.PrivateModel().fit(patients(12)[["age", "crp"]], thing, schema=SCHEMA.only(["age", "crp"])),
    )
    yield "fit epsilon", lambda: dc.PrivateModel(epsilon=thing).fit(thing)
    yield "predict", lambda: dc.PrivateModel().predict(thing)
    yield "evaluate", lambda: dc.evaluate(cohort, thing)
    yield "Odometer", lambda: dc.Odometer(thing)
    yield "Odometer.create", lambda: dc.Odometer.create(room.path / "a.jsonl", cap=thing)


def _one_changed(room: Room, thing: Any) -> Any:
    data = copy.deepcopy(SCHEMA.to_dict())
    column = data["columns"][room.rng.choice(list(data["columns"]))]
    column[room.rng.choice([*column, "missing", "spacing", "decimals", "step", "ordered", "domain"])] = thing
    return data


def api(room: Room) -> None:
    """One call with one thing of another type or range."""
    name, call = room.rng.choice(list(_calls(room)))
    found = room.call(name, call)
    if isinstance(found, Schema):
        room.call("to_toml", found.to_toml)
