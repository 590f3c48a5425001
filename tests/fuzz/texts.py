"""Ways in 4, 6 and 7: schema files, study files, and the options of every command."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pandas as pd

import distcondense as dc
from distcondense.data.cohort import Facts
from distcondense.data.outcome import Goal
from distcondense.data.schema import Schema
from distcondense.methods.base import method_named, method_names, methods, options_of, prepare
from tests.fuzz.driver import TEXT, Room
from tests.fuzz.tables import broken
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
    if rng.random() < 0.1:
        room.write("schema.toml", content)
        patients(12).to_csv(room.path / "cohort.csv", index=False)
        room.cli("schema", "check", "schema.toml", "cohort.csv")
        return
    read_schema(room, content)


def read_schema(room: Room, content: bytes | str) -> None:
    """A schema file read, and where that is one, written again, used for a small table and shown to every method."""
    path = room.write("schema.toml", content)
    found = room.call("Schema.from_toml", lambda: Schema.from_toml(path))
    if found is None:
        return
    room.call("to_toml", found.to_toml)
    cohort = room.call("Cohort.from_frame", lambda: dc.Cohort.from_frame(patients(12), schema=found, **BINARY))
    facts = room.call(
        "Facts.from_goal", lambda: Facts.from_goal(Goal.from_roles(target="died"), found, ignore=BINARY["ignore"])
    )
    for known in (facts, cohort and cohort.facts):
        for name in method_names() if known else ():
            method = method_named(name)
            settings = options_of(method, {"epsilon": 1.0} if name in ("private", "published") else {})
            room.call(f"refuse {name}", lambda method=method, known=known, s=settings: prepare(method, known, s))


def external(room: Room) -> None:
    """Results of another machine with something wrong in them, brought to a study that is in order."""
    from distcondense.study import Study
    from distcondense.study.results import COLUMNS, public_columns

    rng, said = room.rng, Study.from_toml(room.write("s.toml", STUDY))
    row = {
        **public_columns(said.cells[0]),
        "study": "s",
        "cell": "ward-private",
        "outcome": "binary",
        "ipc": 2,
        "value": 0.7,
        "tested_on": "ward",
        "trained_on": "condensed",
        "metric": "auroc",
        "main": True,
        "part": "quick",
        "low": 0.6,
        "high": 0.8,
        "epsilon": 1.0,
        "guarantee": "end-to-end",
        "unit": "row",
        "measured": "",
        "rows": 4,
    }
    rows = [{**dict.fromkeys(COLUMNS), **row, "trained_on": way} for way in ("condensed", "full", "random_real")]
    rows.append({**rows[0], "part": "failed", "note": "why"} if rng.random() < 0.3 else rows[0])
    frame = pd.DataFrame(rows[rng.randrange(2) :])
    for name in rng.sample(list(COLUMNS), rng.choice((0, 1, 1, 2, 4))):
        nasty = rng.choice((None, "", "x", -1, 0, 1e400, 2**62, True, "\udc80", TEXT, float("nan"), [], {"a": 1}, b"x"))
        frame = frame.drop(columns=name) if rng.random() < 0.2 else frame.assign(**{name: [nasty] * len(frame)})
    try:
        frame.to_parquet(room.path / "r.parquet", index=False)
    except Exception:  # nobody could have written that
        room.write("r.parquet", b"PAR1")
    if rng.random() < 0.3:
        room.write("r.parquet", broken(room, (room.path / "r.parquet").read_bytes()))
    code = room.cli("study", "s.toml", "--report", "--quiet", "--out", "told", "--with", "r.parquet")
    if code == 1 or (code == 2 and (room.path / "told").exists()):
        room.fault("traceback" if code == 1 else "half-written", f"results of another machine: exit code {code}")


def studies(room: Room) -> None:
    """A study file with something wrong in it, checked without running a cell."""
    rng, text = room.rng, STUDY
    if rng.random() < 0.1:
        write(patients(12), room.path)
        external(room)
        return
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
    "cohort.csv", "schema.toml", "1,2,3", "1,,2", "é", "'", "--", "no/such/place", "loop", "locked/x", "locked",
    "secret.csv",
)  # fmt: skip
FLAGS = (
    "--method", "--target", "--positive", "--kind", "--person-id", "--ignore", "--schema", "--missing-marker",
    "--threads", "--account", "--separator", "--encoding", "--decimal", "--memory", "--scratch", "--actors",
    "--num-cpus", "--num-gpus", "--hung-after", "--mechanism", "--nonsense", "--link", "--time", "--event",
)  # fmt: skip


def _flags(method: str) -> list[str]:
    """The options that this method has, as the command line calls them."""
    return [f"--{entry.name.replace('_', '-')}" for entry in fields(method_named(method).Options)]


def options(room: Room) -> None:
    """Any option with any word, on every command; `condense` stops at the latest at a folder that is not a run's."""
    rng = room.rng
    write(patients(12), room.path)
    (room.path / "loop").symlink_to("loop")
    locked = room.path / "locked"
    locked.mkdir(mode=rng.choice((0o000, 0o500)))
    room.write("secret.csv", TEXT).chmod(0)
    taken = room.path / "taken"
    taken.mkdir()
    room.write("taken/other.txt", "not ours")
    method = rng.choice([one.name for one in methods()])
    own = _flags(method)
    extra = [
        word
        for _ in range(rng.randrange(1, 4))
        for word in (rng.choice(own if rng.random() < 0.6 else FLAGS), rng.choice(NASTY_WORDS))
    ]
    words = [rng.choice(NASTY_WORDS) for _ in range(2)]
    base = ["--target", "died", "--ignore", "months", "--ignore", "relapse", "--schema", "schema.toml"]
    run = rng.choice(("taken", "loop", "cohort.csv", "loop/x", "locked/run"))
    draft = rng.choice(("taken", "loop", "/dev/null", "no/such/place", "x" * 300, "locked/s.toml"))
    commands: list[list[Any]] = [
        ["condense", "cohort.csv", *base, *extra, "--out", run],
        ["condense", "cohort.csv", *base, *extra, "--out", "taken"],
        *[["condense", "cohort.csv", *base, "--method", method, *extra, "--out", "taken"]] * 4,
        ["condense", words[0], *base, "--out", "taken"],
        ["schema", "infer", words[0]],
        ["schema", "infer", "cohort.csv", "--out", draft, *rng.choice(((), ("--force",)))],
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
        ["study", "status", words[0]],
        ["init", words[0], "--yes", "--no-plan"],
        ["init", "cohort.csv", "--yes", "--no-plan", "--out", rng.choice(("taken", "loop", "/dev/null", "x" * 300))],
        ["init", "cohort.csv", "--yes", "--no-plan", "--force", "--ipc", words[0], "--missing-marker", words[1]],
        ["attack", "audit", "--method", words[0], "--epsilon", words[1], "--runs", "0"],
        ["attack", "audit", "--delta", words[0], "--canaries", words[1], "--runs", "0"],
        ["attack", "taken", "--data", "cohort.csv", "--shadows", words[0]],
        ["evaluate", "taken", "--data", "cohort.csv", "--external", words[0], "--seed", words[1]],
        ["bench", "--out", words[0], "--threads", rng.choice(("0", "-1", "x"))],
        ["demo", "--out", "taken", "--method", words[0], "--threads", "0"],
        ["submit", "--address", words[0], "--working-dir", words[1], "--", "true"],
    ]
    code = room.cli(*rng.choice(commands), shown=True)
    if code == 1:
        room.fault("traceback", "exit code 1")
    if [path.name for path in taken.iterdir()] != ["other.txt"]:
        room.fault("half-written", "somebody's own folder was changed")
    if not (room.path / "loop").is_symlink():
        room.fault("half-written", "a link was replaced")
