"""Way in 3: folders of CSV and Parquet files, read in batches: broken, unlike each other, or no tables at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

import distcondense as dc
from tests.fuzz.driver import NUMBER, TEXT, Room
from tests.fuzz.quick import quickly
from tests.fuzz.tables import NASTY_CELLS, broken
from tests.shell import TARGET
from tests.tiny import BINARY, SCHEMA, patients

HOW: tuple[dict[str, Any], ...] = (
    {"schema": SCHEMA, **BINARY},
    {"schema": SCHEMA, **BINARY, "person_id": "who"},
    {"schema": SCHEMA, "time": "months", "event": "relapse", "ignore": ("died",)},
    {"schema": SCHEMA, "target": "dyed"},
    {"schema": None, **BINARY},
)


def batches(room: Room) -> None:
    """Several files, most of them good; opened, and with some luck condensed."""
    rng, folder = room.rng, room.path / "table"
    folder.mkdir()
    ending = rng.choice(("csv", "csv", "parquet", "parquet", "csv.gz", "feather"))
    for number in range(rng.choice((1, 2, 2, 3))):
        _file(room, folder, number, ending if rng.random() < 0.95 else rng.choice(("csv", "parquet", "txt")))
    turn = rng.randrange(12)
    if turn == 0:
        (folder / "loop.csv").symlink_to("loop.csv")
    elif turn == 1:
        (folder / f"inner.{ending}").mkdir()
    elif turn == 2:
        (folder / f".hidden.{ending}").write_bytes(b"x")
    elif turn == 3:
        (folder / f"empty.{ending}").write_bytes(b"")
    elif turn == 4:
        (folder / f"locked.{ending}").write_bytes(b"x")
        (folder / f"locked.{ending}").chmod(0)
    how = dict(rng.choice(HOW))
    with room.inside(), quickly():
        if rng.random() < 0.15:
            room.write("schema.toml", SCHEMA.to_toml())
            code = room.cli("condense", "table/", *TARGET, "--threads", "1", "--ipc", "2", "--quiet", "--out", "run")
            if code == 0:
                room.clean(room.path / "run")
            return
        found = room.call("LargeTable.from_path", lambda: dc.LargeTable.from_path("table", **how))
        if found is not None:
            room.no_canary(repr(found), "a repr")
            room.call("condense in batches", lambda: dc.condense(found, ipc=2, threads=1, out="run"))
            room.no_canary_in(room.path / "run")
            if (room.path / "run" / "internal" / "run.json").exists():
                room.clean(room.path / "run")
    if rng.random() < 0.3:
        room.call("from_file of a folder", lambda: dc.Cohort.from_file(folder, **how))


def _file(room: Room, folder: Path, number: int, ending: str) -> None:
    rng, rows = room.rng, room.rng.choice((0, 1, 8, 30))
    frame = patients(rows, rng.randrange(50)).astype(object).assign(who=[f"id-{k % 4}" for k in range(rows)])
    if rows and rng.random() < 0.4:
        cell = rng.choice((*NASTY_CELLS, TEXT, NUMBER, float(NUMBER), None, 1j, [1], True))
        frame.iat[rng.randrange(rows), rng.randrange(frame.shape[1])] = cell
    if rng.random() < 0.15:
        frame = frame.drop(columns=rng.choice(list(frame)))
    if rng.random() < 0.1:
        frame = frame[rng.sample(list(frame), frame.shape[1])]
    if rng.random() < 0.1:
        frame[TEXT] = 1
    path = folder / f"part-{number}.{ending}"
    if ending.startswith("csv") or ending == "txt":
        sign = rng.choice((",", ",", ",", ";"))
        frame.to_csv(path, index=False, sep=sign, header=rng.random() < 0.9, errors="replace")
    else:
        try:
            table = pa.Table.from_pandas(frame.infer_objects(), preserve_index=False)
            if ending == "parquet":
                pyarrow.parquet.write_table(table, path, row_group_size=rng.choice((4, 1000)))
            else:
                pyarrow.feather.write_feather(table, path)
        except Exception:  # what Arrow cannot hold is no way in
            return
    if rng.random() < 0.2:
        path.write_bytes(broken(room, path.read_bytes()))
