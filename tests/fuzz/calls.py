"""Way in 8: calls of the API with things of other types and ranges, for every public name and every option there is."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import fields
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import distcondense as dc
from distcondense.data.schema import Column, Schema
from distcondense.methods.base import methods
from tests.fuzz.driver import CANARIES, Room
from tests.fuzz.tables import nasty_values
from tests.tiny import BINARY, SCHEMA, patients
from tests.toys import Uniform

RUNS = (
    "method",
    "threads",
    "account",
    "cluster",
    "memory",
    "scratch",
    "held_out",
    "known",
    "progress",
    "log",
    "resume",
    "force",
)


@cache
def _cohort() -> dc.Cohort:
    return dc.Cohort.from_frame(patients(40), schema=SCHEMA, **BINARY)


@cache
def _result() -> dc.Result:
    """Of the toy: nothing is learned, so that it is there at once."""
    from distcondense.methods import base

    base.register(Uniform())
    try:
        return dc.condense(_cohort(), method="uniform", ipc=2, threads=1)
    finally:
        base.forget("uniform")


@cache
def _model() -> dc.PrivateModel:
    import warnings

    table = patients(40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dc.PrivateModel(schema=SCHEMA.only(["age", "crp"]), epsilon=8.0).fit(
            table[["age", "crp"]], table["died"]
        )


def plain_things() -> list[Any]:
    """Of every type and range that a caller may have at hand."""
    return [
        0,
        -1,
        1.5,
        True,
        "x",
        "",
        [],
        {},
        (),
        math.nan,
        math.inf,
        2**70,
        b"x",
        object(),
        patients(3),
        np.arange(3),
        Path("x"),
        pd.Series([1]),
        Decimal(1),
        np.float32(1.0),
        _cohort(),
        SCHEMA,
        print,
        "\0",
        "x" * 300,
        "\ud800",
        None,
        [1],
        ["x"],
        {"x": 1},
        (0, 0),
        (1, 0),
        1e-300,
        1e300,
        10**400,
        [math.nan],
        ("x", "x"),
        np.array([]),
        pd.DataFrame(),
        "died",
        ["died"],
    ]


def harmless(thing: Any) -> Any:
    """The same, but for what holds a patient's value."""
    try:
        said = str(thing)
    except ValueError:  # Python writes no more than 4,300 digits
        said = ""
    return "x" if any(canary in said for canary in CANARIES) else thing


def _things(room: Room) -> Any:
    return harmless(room.rng.choice([*plain_things(), *nasty_values(room)]))


def _condensing(room: Room, thing: Any) -> Iterator[tuple[str, Any]]:
    taken = room.path / "taken"  # refused at the latest here: it is somebody's
    taken.mkdir()
    room.write("taken/other.txt", "not ours")
    for name in RUNS:
        yield f"condense {name}", lambda name=name: dc.condense(_cohort(), out=taken, **{name: thing})
    for method in methods():
        for entry in fields(method.Options):
            how = {"method": method.name, entry.name: thing}
            yield f"condense {method.name} {entry.name}", lambda how=how: dc.condense(_cohort(), out=taken, **how)
    yield "condense cohort", lambda: dc.condense(thing, out=taken)
    yield "condense out", lambda: dc.condense(_cohort(), ipc=0, out=thing)


def _reading(room: Room, thing: Any) -> Iterator[tuple[str, Any]]:
    for name in ("target", "time", "event", "positive", "kind", "person_id", "schema", "ignore"):
        how = {"schema": SCHEMA, **BINARY, name: thing}
        yield f"from_frame {name}", lambda how=how: dc.Cohort.from_frame(patients(12), **how)
        yield f"LargeTable {name}", lambda how=how: dc.LargeTable.from_path("t.csv", **how)
    for name in ("separator", "encoding", "decimal", "missing_markers"):
        yield f"from_file {name}", lambda name=name: dc.Cohort.from_file("t.csv", target="x", **{name: thing})
    yield "from_frame table", lambda: dc.Cohort.from_frame(thing, schema=SCHEMA, **BINARY)
    yield "from_file path", lambda: dc.Cohort.from_file(thing, schema=SCHEMA, **BINARY)
    yield "LargeTable path", lambda: dc.LargeTable.from_path(thing, schema=SCHEMA, **BINARY)
    yield "from_toml", lambda: Schema.from_toml(thing)
    yield "from_dict", lambda: Schema.from_dict(thing)
    yield "from_dict columns", lambda: Schema.from_dict({"columns": {"a": thing}})
    yield "from_dict key", lambda: Schema.from_dict(_one_changed(room, thing))
    yield "infer", lambda: Schema.infer(thing)
    yield "column", lambda: Schema((Column("a", "continuous", low=thing, high=thing),))
    filled = {"categories": ("x",), "missing": "constant", "fill": thing}
    yield "column fill", lambda: Schema((Column("a", "categorical", **filled),))  # type: ignore[arg-type]
    yield "Schema", lambda: Schema(thing)


def _learning(thing: Any) -> Iterator[tuple[str, Any]]:
    table = patients(12)
    x, y, schema = table[["age", "crp"]], table["died"], SCHEMA.only(["age", "crp"])
    yield "fit", lambda: dc.PrivateModel().fit(thing)
    yield "fit X", lambda: dc.PrivateModel(schema=schema).fit(thing, [0, 1])
    yield "fit y", lambda: dc.PrivateModel(schema=schema).fit(x, thing)
    yield "fit person", lambda: dc.PrivateModel(schema=schema).fit(x, y, person=thing)
    for name in dc.PrivateModel().get_params():
        yield f"PrivateModel {name}", lambda name=name: dc.PrivateModel(**{"schema": schema, name: thing}).fit(x, y)
        yield f"set_params {name}", lambda name=name: _model().__class__().set_params(**{name: thing}).fit(thing)
    yield "predict unfitted", lambda: dc.PrivateModel().predict(thing)
    for name in ("predict", "predict_proba", "decision_function", "explain"):
        if hasattr(dc.PrivateModel, name):
            yield name, lambda name=name: getattr(_model(), name)(thing)
    yield "predict_survival_function", lambda: _model().predict_survival_function(x, thing)
    yield "predict odd frame", lambda: _model().predict(x.assign(age=pd.Series([thing] * len(x), dtype=object)))


def _measuring(room: Room, thing: Any) -> Iterator[tuple[str, Any]]:
    yield "evaluate cohort", lambda: dc.evaluate(thing, _result())
    yield "evaluate result", lambda: dc.evaluate(_cohort(), thing)
    for name in ("parts", "external", "seed", "threads"):
        if thing is not None and not (name == "seed" and isinstance(thing, int)):  # else it would measure in earnest
            yield f"evaluate {name}", lambda name=name: dc.evaluate(_cohort(), _result(), **{name: thing})
    yield "evaluate_run run", lambda: dc.evaluate_run(thing, _cohort())
    yield "evaluate_run cohort", lambda: dc.evaluate_run(room.path, thing)
    for name in ("parts", "external", "shadows", "seed", "threads", "log", "progress"):
        yield f"evaluate_run {name}", lambda name=name: dc.evaluate_run(room.path, _cohort(), **{name: thing})
    yield "save", lambda: _result().save(thing)
    yield "design", lambda: dc.design(thing)
    yield "Odometer", lambda: dc.Odometer(thing)
    for name in ("cap", "delta", "about"):
        yield f"Odometer {name}", lambda name=name: dc.Odometer.create(room.path / "a.jsonl", **{name: thing})
    yield "set_cap", lambda: dc.Odometer.create(room.path / "b.jsonl", cap=3.0).set_cap(thing)
    for entry in fields(dc.Cluster):
        yield f"Cluster {entry.name}", lambda name=entry.name: dc.Cluster(**{name: thing})


def _one_changed(room: Room, thing: Any) -> Any:
    data = copy.deepcopy(SCHEMA.to_dict())
    column = data["columns"][room.rng.choice(list(data["columns"]))]
    column[room.rng.choice([*column, "missing", "spacing", "decimals", "step", "ordered", "domain"])] = thing
    return data


def api(room: Room) -> None:
    """One call with one thing of another type or range."""
    thing = _things(room)
    ways = (_condensing(room, thing), _reading(room, thing), _learning(thing), _measuring(room, thing))
    name, call = room.rng.choice(list(room.rng.choice(ways)))
    with room.inside():
        found = room.call(name, call)
    if isinstance(found, Schema):
        room.call("to_toml", found.to_toml)
    room.no_drafts()
