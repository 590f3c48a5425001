"""Way in 5: statements that were tampered with. None of them may verify, and none may bring `verify` down."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import distcondense as dc
from distcondense.privacy.binding import json_digest
from distcondense.privacy.statement import Privacy
from tests.fuzz.driver import Room
from tests.tiny import BINARY, SCHEMA, patients

NASTY: tuple[Any, ...] = (
    None,
    0,
    -1,
    1,
    1e-9,
    0.0001,
    1e12,
    10**12,
    2**70,
    -0.0,
    1e308,
    True,
    False,
    "",
    "tiny",
    "unbounded",
    "none",
    [],
    {},
    [[]],
    [0, 0],
    {"a": 1},
    "as-published",
    "end-to-end",
    "x" * 2000,
)
CLAIMS = (
    "epsilon",
    "delta",
    "membership_advantage",
    "trade_off",
    "ledger",
    "epsilon_with_earlier_runs",
    "epsilon_at_last_step",
    "worst_case_epsilon",
    "statement",
)


@cache
def releases() -> dict[str, dict[str, bytes]]:
    """The released files of one run of each method that states an ε, made once."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cohort = dc.Cohort.from_frame(patients(240), schema=SCHEMA, **BINARY)
        for name, how in {
            "private": {"epsilon": 1.0},
            "published": {"method": "published", "epsilon": 2.5, "steps": 4},
        }.items():
            out = Path(folder) / name
            dc.condense(cohort, ipc=2, threads=1, out=out, **how)
            found[name] = {path.name: path.read_bytes() for path in (out / "release").iterdir()}
    return found


def statements(room: Room) -> None:
    """One thing changed in a true statement; with some its digest and its sentence are made to fit."""
    rng = room.rng
    name = rng.choice(("published", "published", "published", "private"))
    files = releases()[name]
    stated = json.loads(files["privacy.json"])
    raw = rng.random() < 0.25
    if raw:
        content = _spoiled(room, files["privacy.json"])
        if content == files["privacy.json"] or _same(content, stated):
            return
    else:
        forged = _tampered(room, copy.deepcopy(stated))
        if forged == stated:
            return
        content = json.dumps(forged).encode()
    release = room.path / "release"
    release.mkdir()
    for file, body in files.items():
        (release / file).write_bytes(content if file == "privacy.json" else body)
    if rng.random() < 0.2:
        accepted = room.cli("privacy", "verify", "release") == 0
    else:
        from distcondense.runs.signing import verify_release

        found = room.call("verify", lambda: verify_release(release))
        accepted = found is not None and found.holds
    if accepted:
        room.fault("wrong acceptance", f"{name}: {'spoiled bytes' if raw else _difference(stated, forged)}")


def _same(content: bytes, stated: Any) -> bool:
    try:
        return bool(json.loads(content) == stated)
    except (ValueError, RecursionError):
        return False


def _spoiled(room: Room, content: bytes) -> bytes:
    rng, place = room.rng, room.rng.randrange(len(content))
    extra = rng.choice(
        (b"[" * 3000, b"1e400", b"NaN", b"Infinity", b"-", b"\0", b"\xff", b'"', b"9" * 5000, b"{", b"]")
    )
    return rng.choice(
        (
            lambda: content[:place],
            lambda: content[:place] + extra + content[place:],
            lambda: extra,
            lambda: b"[" * 100_000 + b"]" * 100_000,
            lambda: b'{"guarantee": ' * 2000 + b"1" + b"}" * 2000,
            lambda: content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :],
            lambda: b"",
            lambda: b"[]",
            lambda: content + content,
        )
    )()


def _tampered(room: Room, stated: dict[str, Any]) -> dict[str, Any]:
    """Without a new digest anything may be changed; with one, only what is claimed can be held against it."""
    rng = room.rng
    if rng.random() < 0.5:
        place, key = _somewhere(room, stated)
        if rng.random() < 0.2 and isinstance(place, dict):
            del place[key]
        else:
            place[key] = rng.choice(NASTY)
        return stated
    key = rng.choice([name for name in CLAIMS if stated.get(name) not in (None, "", [])])
    if key == "ledger" or (key == "statement" and rng.random() < 0.8):
        key = "ledger"
        entry = rng.choice(stated["ledger"])
        turn = rng.randrange(4)
        if turn == 0:
            stated["ledger"] = stated["ledger"][: rng.randrange(len(stated["ledger"]))]
        elif turn == 1 and "count" in entry:
            entry["count"] = rng.choice((-4, 0, 1e12, 10**12, entry["count"] + 1, "1", None, 0.5))
        elif turn == 2 and "sampling_rate" in stated["parameters"]:
            stated["parameters"]["sampling_rate"] = rng.choice((0, -1, 1e-9, 2, "0.1", None, 1e-300))
        else:
            name = "cost" if "cost" in entry else "noise_multiplier"
            entry[name] = rng.choice((0, -1.0, 1e300, 1e-300, "1", None, entry[name] * 1.5, entry[name] / 2))
    elif isinstance(stated[key], float):
        stated[key] = rng.choice((stated[key] / 2, stated[key] * 0.999, 0.0001, 0, -1.0, 1e-300, "tiny", True))
    else:
        stated[key] = rng.choice(NASTY)
    if rng.random() < 0.7:
        with contextlib.suppress(Exception):  # a forger who cannot write the sentence leaves the old one
            stated["statement"] = Privacy.from_dict(stated).paragraph()
    with contextlib.suppress(ValueError):
        stated["digest"] = json_digest(stated)
    return stated


def _somewhere(room: Room, stated: dict[str, Any]) -> tuple[Any, Any]:
    """A place in the tree, any depth."""
    place: Any = stated
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = room.rng.choice(keys)
        if isinstance(place[key], dict | list) and place[key] and room.rng.random() < 0.7:
            place = place[key]
            continue
        return place, key


def _difference(stated: dict[str, Any], forged: dict[str, Any]) -> str:
    changed = [key for key in {*stated, *forged} if stated.get(key, math.nan) != forged.get(key, math.nan)]
    return ", ".join(f"{key} = {json.dumps(forged.get(key))[:60]}" for key in sorted(changed) if key != "digest")
