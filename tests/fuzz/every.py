"""Of the ways in that have an end: every one of their cases, where the fuzzer draws some.

`python -m tests.fuzz.every` calls every name of the API with every thing, writes every value behind every key of a
schema and of a study, puts every value into every column of a table, and every value at every place of an account
whose digests are made to fit. No seed: what it says holds for all of them. A quarter of an hour.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import pandas as pd

import distcondense as dc
from distcondense.data.schema import Column, Schema
from distcondense.privacy.chained_file import line_digest
from distcondense.privacy.events import Event
from tests.fuzz import calls, tables, texts
from tests.fuzz.driver import Room, run_case
from tests.fuzz.locks import locks_hold
from tests.tiny import SCHEMA, patients

WORDS = (
    '"date"',
    '"ignore"',
    '"log"',
    '"constant"',
    '"category"',
    '"indicator"',
    '"refuse"',
    '"2020-01-01"',
    '"%Y"',
    '"years_between(a, b)"',
    '["x"]',
)
VALUES: tuple[Any, ...] = (None, "x", "", [], {}, -1, 0, 1, True, 0.5, -0.5, 1e-300, 1e18, 1e300, 2**53, 10**6, [[]])
GONE = object()
Case = tuple[str, Callable[[Room], None]]


def api() -> Iterator[Case]:
    """Every call with every thing."""
    ways = (calls._condensing, calls._reading, lambda _, thing: calls._learning(thing), calls._measuring)
    for number in range(len(_things())):
        for way in ways:

            def run(room: Room, way: Any = way, number: int = number) -> None:
                with room.inside():
                    for name, call in list(way(room, _things(room)[number])):
                        found = room.call(name, call)
                        if isinstance(found, Schema):
                            room.call("to_toml", found.to_toml)
                        for account in room.path.glob("*.jsonl"):
                            account.unlink()
                    room.no_drafts()

            yield f"thing {number}", run


def _things(room: Room | None = None) -> list[Any]:
    made: list[Any] = calls.plain_things() + tables.nasty_values(room)  # type: ignore[arg-type]
    return [calls.harmless(thing) for thing in made]


def schemas() -> Iterator[Case]:
    """Every key of every column with every value."""
    lines = SCHEMA.to_toml().splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith("[columns")]
    for head, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        for key in [*(entry.name for entry in fields(Column) if entry.name != "name"), "bounds", "nonsense"]:
            for value in (*texts.NASTY_TOML, *WORDS):
                body = [line for line in lines[head + 1 : end] if not line.startswith(f"{key} = ")]
                text = "\n".join([*lines[: head + 1], f"{key} = {value}", *body, *lines[end:]])
                yield f"{lines[head]} {key} = {value[:40]}", lambda room, text=text: texts.read_schema(room, text)


def studies() -> Iterator[Case]:
    """Every line of a study with every value."""
    from distcondense.study import Study

    def run(room: Room, text: str) -> None:
        texts.write(patients(12), room.path)
        room.call("Study.from_toml", lambda: Study.from_toml(room.write("s.toml", text)))

    lines = texts.STUDY.splitlines()
    for place in texts._assignments(texts.STUDY):
        for value in texts.NASTY_TOML:
            line = f"{lines[place].partition(' = ')[0]} = {value}"
            text = "\n".join([*lines[:place], line, *lines[place + 1 :]])
            yield line[:60], lambda room, text=text: run(room, text)


def frames() -> Iterator[Case]:
    """Every value in every column, in one row and in all, read in every way."""

    def run(room: Room, column: str, number: int, rows: int, here: range) -> None:
        frame = patients(rows, 1).assign(who=[f"id-{k % 3}" for k in range(rows)])
        cells = pd.Series(frame[column].tolist(), dtype=object)
        for place in here:
            cells.iat[place] = tables.nasty_values(room)[number]
        for how in tables.HOWS:
            found = room.call(
                "from_frame", lambda how=how: dc.Cohort.from_frame(frame.assign(**{column: cells}), **how)
            )
            if isinstance(found, dc.Cohort):
                tables.taken_in(room, found)

    for column in [*patients(1), "who"]:
        for number in range(len(tables.nasty_values(None))):  # type: ignore[arg-type]
            for rows, here in ((3, range(1)), (3, range(3)), (1, range(1))):
                how = (column, number, rows, here)
                yield f"{column}, value {number}, {len(here)} of {rows} rows", lambda room, how=how: run(room, *how)


def accounts() -> Iterator[Case]:
    """Every place of an account's file with every value, the digests of what follows made to fit."""

    def run(room: Room, number: int, path: tuple[Any, ...], value: Any) -> None:
        file = room.path / "account.jsonl"
        entries = _account(file)
        _put(entries[number], path, value)
        written = list[bytes]()
        for entry in entries:
            link = {"previous": line_digest(written[-1])} if written and entry is not entries[number] else {}
            written.append(json.dumps({**entry, **link}).encode())
        file.write_bytes(b"\n".join(written) + b"\n")
        room.call("an account", lambda: _look(file))

    with tempfile.TemporaryDirectory() as folder:
        entries = _account(Path(folder) / "account.jsonl")
    for number, entry in enumerate(entries):
        for path in _places(entry):
            for value in (*VALUES, *([] if isinstance(path[-1], int) else [GONE])):
                how = (number, path, value)
                shown = "gone" if value is GONE else repr(value)
                yield f"line {number}, {path} = {shown}", lambda room, how=how: run(room, *how)


def _account(file: Path) -> list[dict[str, Any]]:
    kept = dc.Odometer.create(file, cap=30.0, about="ward")
    kept.charge("first", [Event("gaussian", "sums", ("a",), 2, 0.5, noise=2.0, unit="person")] * 3)
    kept.charge("second", [Event("choice", "choice", (), 2, 0.1, 2, noise=20.0, unit="person")])
    return [json.loads(line) for line in file.read_text().splitlines()]


def _look(file: Path) -> None:
    kept = dc.Odometer(file)
    kept.lines()
    json.dumps(kept.read().to_dict(), allow_nan=False)
    kept.check("third", [Event("gaussian", "sums", ("a",), 2, 0.5, unit="person")])


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from _places(value, (*path, key))


def _put(tree: Any, path: tuple[Any, ...], value: Any) -> None:
    for key in path[:-1]:
        tree = tree[key]
    if value is GONE:
        del tree[path[-1]]
    else:
        tree[path[-1]] = copy.deepcopy(value)


WAYS = {"api": api, "schemas": schemas, "studies": studies, "frames": frames, "accounts": accounts}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.every", description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}; all if not said")
    warnings.simplefilter("ignore")
    wrong = 0
    with locks_hold():
        for way in parser.parse_args().ways or WAYS:
            cases, faults = 0, list[str]()
            for what, case in WAYS[way]():
                faults += [f"{fault} [{what}]" for fault in run_case(case, 0)]
                cases += 1
            sys.stdout.write(
                "\n      ".join([f"{way:<11} {cases:>6} cases  {len(faults)} faults", *faults[:20]]) + "\n"
            )
            sys.stdout.flush()
            wrong += len(faults)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
