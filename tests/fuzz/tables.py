"""Ways in 1 and 2: CSV files of every make and breakage; frames and Parquet with values that no column should hold."""

from __future__ import annotations

import datetime
import gzip
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from distcondense.data.cohort import Cohort
from distcondense.data.schema import Schema
from distcondense.data.tables import read_table
from tests.fuzz.driver import FIRST, NUMBER, TEXT, Room
from tests.tiny import BINARY, SCHEMA, SURVIVAL, patients

NASTY_CELLS = (
    "", " ", TEXT, NUMBER, "1e400", "-1e400", "nan", "NaN", "inf", "-Infinity", "1_0", "0x1A", "1,5", "1.5", "1.234,5",
    "1,234", "١٢", "9" * 400, "9" * 5000, "-0", "+1", "True", "yes", "NULL", "None", "2020-01-01", "\u2028", "\ufeff",
    "'", "=1+1", "\x07", "1e-400", "0.1e1", " 3", "3 ", "x" * 2000, "\U0001f600", "ö", "a\tb",
)  # fmt: skip
HOWS: tuple[dict[str, Any], ...] = (
    {"schema": SCHEMA, **BINARY},
    {"schema": SCHEMA, **SURVIVAL},
    {"schema": None, **BINARY},
    {"schema": SCHEMA, **BINARY, "person_id": "who"},
    {"schema": SCHEMA, "target": "stage", "ignore": ("months", "relapse", "died")},
    {"schema": SCHEMA, "target": "crp", "ignore": ("months", "relapse", "died")},
    {"schema": None, "target": "dyed"},
    {"schema": SCHEMA, "target": ""},
    {"schema": SCHEMA, **BINARY, "person_id": ""},
)


def csv(room: Room) -> None:
    """A table in a random dialect, broken in up to three ways, read by one of the commands or calls that read it."""
    rng = room.rng
    rows = rng.choice((1, 2, 5, 12))
    frame = patients(rows, rng.randrange(50)).astype(object).assign(who=[f"id-{k % 4}" for k in range(rows)])
    for _ in range(rng.randrange(4)):
        frame.iloc[rng.randrange(rows), rng.randrange(frame.shape[1])] = rng.choice(NASTY_CELLS)
    headless = rng.random() < 0.2
    if headless:
        for place in rng.sample(range(frame.shape[1]), 3):
            frame.iloc[0, place] = FIRST
    if rng.random() < 0.1:
        frame.insert(0, rng.choice(("", "0", "age", "note", "distcondense_risk")), TEXT, allow_duplicates=True)
    sign = rng.choice((",", ",", ";", "\t", "|", " ", ":"))
    text = frame.to_csv(
        index=rng.random() < 0.1,
        sep=sign,
        header=not headless,
        decimal=rng.choice("..,") if sign != "," else ".",
        lineterminator=rng.choice(("\n", "\n", "\r\n", "\r")),
    )
    content = text.encode(rng.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32", "utf-16-le")), "replace")
    if rng.random() < 0.1:
        content = text.encode("cp1252", "replace")
    for _ in range(rng.choice((0, 0, 1, 2, 3))):
        content = broken(room, content)
    name = rng.choice(("t.csv", "t.csv", "t.csv.gz"))
    if name.endswith("gz"):
        content = gzip.compress(content)
        if rng.random() < 0.2:
            content = broken(room, content)
    _read(room, room.write(name, content))


def broken(room: Room, content: bytes) -> bytes:
    """With bytes cut off, put in, doubled or changed."""
    rng, place = room.rng, room.rng.randrange(len(content) + 1)
    extra = rng.choice((b"\0", b'"', b"\n\n", b",,,", b"\xff", b"\xe9", b";", b"\r", b'"\n', b"\xef\xbb\xbf", b"\x1a"))
    return rng.choice(
        (
            lambda: content[:place],
            lambda: content[place:],
            lambda: content[:place] + extra + content[place:],
            lambda: content + content[place:],
            lambda: content[:place] + bytes([rng.randrange(256)]) + content[place + 1 :],
            lambda: b"\n" * 3 + content,
        )
    )()


def _read(room: Room, path: Path) -> None:
    rng, how = room.rng, dict(room.rng.choice(HOWS))
    written: dict[str, Any] = {}
    if rng.random() < 0.3:
        written["separator"] = rng.choice((",", ";", "tab", "semicolon", "ab", "", "\n", "1"))
    if rng.random() < 0.2:
        written["encoding"] = rng.choice(("utf-8", "cp1252", "utf-16", "ascii", "klingon", "utf-7", "idna"))
    if rng.random() < 0.2:
        written["decimal"] = rng.choice((".", ",", ";", ""))
    turn = rng.random()
    if turn < 0.7:
        found = room.call("Cohort.from_file", lambda: Cohort.from_file(path, **how, **written))
        if isinstance(found, Cohort):
            taken_in(room, found)
            data = path.read_bytes() if path.suffix == ".csv" else gzip.decompress(path.read_bytes())
            if 0 < data.count(0) < len(data) / 4:  # more are an encoding's
                room.fault("wrong acceptance", "NUL characters in a table")
        return
    if turn < 0.85:
        frame = room.call("read_table", lambda: read_table(path))
        if frame is not None:
            drafted = room.call("Schema.infer", lambda: Schema.infer(frame))
            if drafted is not None and FIRST in drafted.to_toml():
                room.fault("canary", "a first line in a draft")
        return
    options = [word for key, value in written.items() for word in (f"--{key}", value)]
    room.write("schema.toml", SCHEMA.to_toml())
    if turn < 0.88:
        room.cli("init", path.name, "--yes", "--no-plan", "--force", *options, shown=True)
    elif turn < 0.95:
        room.cli("schema", "infer", path.name, *options, shown=True)
    else:
        room.cli("schema", "check", "schema.toml", path.name, *options)


def taken_in(room: Room, cohort: Cohort) -> None:
    """Of a table that was accepted: every value is one that its schema allows."""
    room.call("fingerprint", cohort.fingerprint)
    room.no_canary(repr(cohort), "a repr")
    for column in cohort.schema.columns:
        series = cohort.features[column.name]
        holes = series.isna().to_numpy(bool)
        if holes.any() and column.missing == "refuse":
            room.fault("wrong acceptance", f"{column.kind}: a hole without a policy")
        if column.numeric:
            values = series.to_numpy(np.float64)[~holes]
            if series.dtype.kind != "f" or not np.isfinite(values).all():
                room.fault("wrong acceptance", f"{column.kind}: no finite numbers ({series.dtype})")
            elif not column.searched and ((values < column.low) | (values > column.high)).any():
                room.fault("wrong acceptance", f"{column.kind}: out of its bounds")
            elif column.kind == "integer" and (values % 1 != 0).any():
                room.fault("wrong acceptance", "integer: no whole numbers")
        elif not set(series[~holes]) <= set(column.categories):
            room.fault("wrong acceptance", f"{column.kind}: another category")


def nasty_values(room: Room) -> list[Any]:
    return [
        None,
        np.nan,
        pd.NA,
        pd.NaT,
        np.inf,
        -np.inf,
        1e308,
        -1e308,
        5e-324,
        2**63,
        2**200,
        -(2**70),
        True,
        np.bool_(False),
        Decimal("sNaN"),
        Decimal("NaN"),
        Decimal("1e400"),
        Decimal("1.5"),
        Fraction(1, 3),
        1j,
        complex("nan"),
        TEXT,
        float(NUMBER),
        NUMBER,
        "\ud800",
        f"\udfff{TEXT}",
        "",
        b"bytes",
        bytearray(b"x"),
        [1],
        (1, 2),
        {"a": TEXT},
        {1},
        np.array([1, 2]),
        np.datetime64("2020-01-01"),
        np.timedelta64(1, "D"),
        datetime.date(2020, 1, 1),
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        pd.Period("2020"),
        pd.Interval(0, 1),
        object(),
        type,
        np.float16(1.5),
        np.longdouble(1.5),
        np.int8(1),
        slice(1),
        pd.Timestamp("2020"),
        "9" * 5000,
        range(3),
        "nan",
        np.float32("inf"),
        Ellipsis,
        NotImplemented,
    ]


def frames(room: Room) -> None:
    """A frame with impossible values or columns; as it is, or through Parquet, Feather or Arrow."""
    rng = room.rng
    rows = rng.choice((1, 3, 8))
    frame = patients(rows, rng.randrange(50)).assign(who=[f"id-{k % 3}" for k in range(rows)])
    for _ in range(rng.choice((0, 1, 1, 2))):
        column, value = rng.choice(list(frame)), rng.choice(nasty_values(room))
        cells: Any = frame[column].tolist()
        for place in range(rows) if rng.random() < 0.3 else [rng.randrange(rows)]:
            cells[place] = value
        made = pd.Series([None] * rows, dtype=object)
        for place, cell in enumerate(cells):
            made.iat[place] = cell
        frame[column] = made
    frame = _odd_frame(room, frame)
    how = dict(rng.choice(HOWS))
    if rng.random() < 0.6:
        table: Any = frame
        if rng.random() < 0.15:
            table = rng.choice((frame.to_numpy(), list(frame), None, {}, "t.csv", frame.iloc[:, 0], frame.iloc[:0]))
        found = room.call("Cohort.from_frame", lambda: Cohort.from_frame(table, **how))
    else:
        ending = rng.choice(("parquet", "feather", "arrow"))
        path = room.path / f"t.{ending}"
        try:
            arrow = pa.Table.from_pandas(frame, preserve_index=rng.random() < 0.1)
            if rng.random() < 0.3:
                arrow = _odd_arrow(room, arrow)
            if ending == "parquet":
                import pyarrow.parquet

                pyarrow.parquet.write_table(arrow, path)
            else:
                import pyarrow.feather

                pyarrow.feather.write_feather(arrow, path)
        except Exception:  # what Arrow cannot hold is no way in
            return
        if rng.random() < 0.3:
            path.write_bytes(broken(room, path.read_bytes()))
        found = room.call(f"Cohort.from_file {ending}", lambda: Cohort.from_file(path, **how))
        if rng.random() < 0.1:
            room.cli("schema", "infer", path.name, shown=True)
    if isinstance(found, Cohort):
        taken_in(room, found)


def _odd_frame(room: Room, frame: pd.DataFrame) -> pd.DataFrame:
    rng, column = room.rng, room.rng.choice(list(frame))
    turn = rng.randrange(14)
    if turn == 0:
        return pd.concat([frame, frame[[column]]], axis=1)
    if turn == 1:
        return frame.rename(columns={column: rng.choice(("", " ", 0, None, np.nan, "\ud800", TEXT, ("a", "b")))})
    if turn == 2:
        return frame.set_axis(pd.MultiIndex.from_product([["a"], frame.columns]), axis=1)
    if turn == 3:
        return frame.set_index(column)
    if turn == 4:
        kinds = ("category", "string", "Float32", "boolean", "complex128", "datetime64[ns]", "Int64", "float16", bool)
        try:
            frame[column] = frame[column].astype(rng.choice(kinds))
        except (TypeError, ValueError, ArithmeticError, RuntimeError):
            return frame
    if turn == 5:
        frame[column] = pd.arrays.SparseArray(np.zeros(len(frame)))
    if turn == 6:
        kind = rng.choice((pa.list_(pa.int64()), pa.struct([("a", pa.int64())]), pa.binary(), pa.decimal128(5, 2)))
        frame[column] = pd.Series([None] * len(frame), dtype=pd.ArrowDtype(kind))
    if turn == 7:
        frame = frame.drop(columns=column)
    return frame


def _odd_arrow(room: Room, table: Any) -> Any:
    rows, place = table.num_rows, room.rng.randrange(table.num_columns)
    column = room.rng.choice(
        (
            lambda: pa.array([[1, 2]] * rows),
            lambda: pa.array([{"a": TEXT}] * rows),
            lambda: pa.nulls(rows),
            lambda: pa.array([b"x"] * rows),
            lambda: pa.array([None, *[2**63 - 1] * (rows - 1)], pa.int64()),
            lambda: pa.array([True] * rows),
            lambda: pa.array(["x"] * rows).dictionary_encode(),
            lambda: pa.array([datetime.timedelta(1)] * rows),
            lambda: pa.array([Decimal("1.5")] * rows),
            lambda: pa.array([[("k", 1)]] * rows, pa.map_(pa.string(), pa.int64())),
        )
    )()
    return table.set_column(place, table.field(place).name, column)
