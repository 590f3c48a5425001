"""Does one person more or less change how anybody else is read? `python -m benchmarks.stability [--pairs 5000]`.

For every way in (files, frames, `PrivateModel`, a study with `where`, evaluation) pairs of neighbouring tables of odd
types are made: a table, and the same with one person of one to three rows put in at any place. The two are read, and
what is compared is all that a release can depend on: everybody else's cells, labels, times, numbers, identifiers and
coins, the labels and the schema. The larger table may be refused instead, for what the new person's rows hold.
`tests/data/test_stability.py` runs a few thousand pairs and lets broken readers loose on them.
"""

from __future__ import annotations

import argparse
import datetime as dt
import gzip
import io
import re
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from benchmarks import record
from distcondense.data.cells import public_cells
from distcondense.data.coding import Coded
from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.data.outcome import Goal
from distcondense.data.persons import HoldoutSplit
from distcondense.data.relations import rule_from
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, DistcondenseWarning, UserError
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.methods.private import estimator
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result, table_of
from distcondense.study import rows as study
from distcondense.study.sources import Endpoint, Source

Row = dict[str, Any]
Styles = dict[str, Sequence[Any]]  # how a column may be written → its legal cells; "odd": cells that are refused
COIN = HoldoutSplit(0.3, 2**100 + 7)
PERSONS = 4  # tried on each table


# -- what the cells of a column may be --------------------------------------------------------------------------------

NUMBERS: Styles = {
    "int": (0, 7, 40), "float": (0.0, 7.25, 40.0, 1e-7), "float32": (np.float32(0.1), np.float32(7)),
    "text": ("7", "7.0", " 40", "1e1", "0.30000000000000004"), "decimal": (Decimal("7.0"), Decimal("0.1")),
    "hole": (None, np.nan), "odd": (True, "x", 1e9, -1, np.inf, pd.Timestamp(0), b"7", "nan", "1_0"),
}  # fmt: skip
LABELS: list[tuple[tuple[Any, ...], Styles]] = [  # no dict: (0, 1) == (False, True)
    ((0, 1), {"int": (0, 1), "float": (0.0, 1.0), "bool": (False, True), "text": ("0", "1"),
              "small": (np.uint8(0), np.int8(1)), "decimal": (Decimal(0), Decimal("1.0")),
              "odd": (2, "no", "True", 0.5)}),
    ((False, True), {"bool": (False, True), "numpy": (np.False_, np.True_), "int": (0, 1), "text": ("False", "True"),
                    "odd": (2, "no", "1")}),
    (("0", "1"), {"text": ("0", "1"), "int": (0, 1), "float": (0.0, 1.0), "odd": (True, "yes", "1.0")}),
    (("no", "yes"), {"text": ("no", "yes"), "odd": (1, True, "maybe", 0.0)}),
]  # fmt: skip
CODES: dict[tuple[Any, ...], Styles] = {
    ("01", "1", 2, "None"): {"text": ("01", "1", "2", "None"), "number": (2, 2.0), "one": (1, 1.0), "hole": (None,),
                             "odd": (True, "02", 3, "1.0")},
    ("1", True, 2): {"text": ("1", "True"), "bool": (True, np.True_), "number": (1, 2, 2.0), "odd": (False, "x", 0)},
    ("a", "b", "c"): {"text": ("a", "b", "c"), "hole": (None, np.nan), "odd": ("d", 1, True)},
    (1, 2, 3): {"int": (1, 2, 3), "float": (1.0, 2.0), "text": ("1", "2"), "hole": (None,),
                "odd": (True, 4, "01", 1.5)},
}  # fmt: skip
CLASSES: dict[tuple[Any, ...], Styles] = {
    ("a", "b", "c"): {"text": ("a", "b", "c"), "odd": ("d", 1)},
    (0, 1, 2): {"int": (0, 1, 2), "float": (0.0, 1.0, 2.0), "text": ("0", "1", "2"), "bool": (False, True),
                "odd": (3, "a")},
}  # fmt: skip
TIMES: Styles = {"int": (1, 40), "float": (0.5, 7.25), "text": ("3", "1e1"), "odd": (0, -1, True, "x", None)}
WHO: Styles = {
    "int": range(1, 60), "large": range(2**63, 2**63 + 60), "negative": range(-60, -1),
    "numpy": list(np.arange(60, 90)),
    "text": [f"{k:02d}" for k in range(90)], "name": [f"P-{k}" for k in range(60)], "bool": (True, False),
    "odd": (1.5, np.float64(3), Decimal(4), None),
}  # fmt: skip

# a CSV has texts only
CSV_NUMBERS: Styles = {
    "text": ("7", "07", "7.0", " 40", "1e1", "0.30000000000000004", "1E-7"),
    "hole": ("", "NA"),
    "odd": ("x", "True", "1_0", "-1", "inf", "0x1"),
}
CSV_LABELS: list[tuple[tuple[Any, ...], Styles]] = [  # no dict: (0, 1) == (False, True)
    ((0, 1), {"number": ("0", "1", "00", "1.0", "1e0"), "word": ("true", "FALSE", "True"), "odd": ("2", "yes", "")}),
    ((False, True), {"word": ("true", "FALSE", "True"), "number": ("0", "1", "1.0"), "odd": ("2", "yes", "NA")}),
    (("0", "1"), {"text": ("0", "1"), "odd": ("1.0", "01", "True")}),
    (("no", "yes"), {"text": ("no", "yes"), "odd": ("1", "True", "No")}),
]
CSV_CODES: dict[tuple[Any, ...], Styles] = {
    ("01", "1", 2, "None"): {"text": ("01", "1", "2", "None"), "number": ("2.0", "02", "2e0"), "hole": ("", "NA"),
                             "odd": ("x", "1.0", "True")},
    ("1", True, 2): {"text": ("1", "True", "2"), "number": ("true", "2.0"), "odd": ("x", "0", "False")},
    ("a", "b", "c"): {"text": ("a", "b", "c"), "hole": ("", "null"), "odd": ("d", "1", "A")},
}  # fmt: skip
CSV_CLASSES: dict[tuple[Any, ...], Styles] = {
    ("a", "b", "c"): {"text": ("a", "b", "c"), "odd": ("d", "1")},
    (0, 1, 2): {"number": ("0", "1", "2", "2.0", "01"), "odd": ("3", "x")},
}
CSV_TIMES: Styles = {"number": ("1", "40", "0.5", "07.25"), "odd": ("0", "-1", "x", "", "True")}
CSV_WHO: Styles = {
    "text": ("1", "01", "1.0", "1E5", "10E4", " 1", "A-7", "True", "001", "1e0", "7", "07", "7.0"),
    "odd": ("", "NA"),
}
SITES: Sequence[str] = ("1", "01", "1.0", "X9", "", "NA", "True", "2.5", "A")
WANTED: Sequence[Any] = ("1", "01", 1, 1.0, True, "A", "NA", 2.5)
TYPED_SITES: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {  # cells, what may be asked for
    "int": ((2**53 + 1, 2**53, 1, 2, None), (2**53 + 1, 1, 2)),
    "text": (("1", "01", "A", None), ("1", "A")),
    "float": ((1.0, 2.5, 2.0, None), (1, 2.5)),
    "bool": ((True, False, None), (True, False)),
}
COLUMN_TYPES: dict[str, Sequence[Sequence[str]]] = {  # styles that may stand in one column of a typed file
    "numbers": (("int", "float", "hole"), ("text", "hole"), ("decimal", "hole")),
    "labels": (("int", "float", "hole"), ("text", "hole"), ("bool",), ("decimal",)),
    "who": (("int", "negative"), ("large",), ("text", "name"), ("bool",)),
}


# what columns that refuse nothing, or not what is beyond their bounds, may hold; each type of a file by itself
BIG = (2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2)
HUGE = (2**63 - 2, 2**63 - 1, 10**17 + 3)
PARIS = dt.timezone(dt.timedelta(hours=1))
NOON = dt.datetime(2020, 5, 1, 12, 0, 0, 250)
ZONES = (pd.Timestamp("2020-05-01 12:00", tz="UTC"), pd.Timestamp("2020-05-01 14:00", tz="Europe/Paris"),
         NOON.replace(tzinfo=dt.UTC), (NOON + dt.timedelta(hours=1)).replace(tzinfo=PARIS))  # fmt: skip
ANY: Styles = {
    "int": (-9, 0, 1, 7, 999), "big": BIG, "huge": HUGE, "float": (-9.0, 1.0, 7.5, float(2**53), 1e300, np.inf),
    "text": ("-9", "1", "1.0", "?", "", "a", "999", "True", "<7", " > 7.5"), "bool": (True, False, np.True_),
    "decimal": (Decimal("1.0"), Decimal(1), Decimal("7.50")), "hole": (None, np.nan),
    "date": (dt.date(2020, 5, 1), dt.date(1020, 5, 1)), "moment": (NOON, NOON.replace(fold=1)), "zones": ZONES,
    "span": (dt.timedelta(days=1), np.timedelta64(24, "h"), np.timedelta64(1, "D"), pd.Timedelta(1, "D")),
    "past all": (2**64, 10**400, 10**5000, Decimal("1e400"), Fraction(1, 3), Fraction(10**400)),
    "unusable": (b"1", (1, 2), [1], "a\ud800", Decimal("sNaN"), 1j),
}  # fmt: skip
ANY_TYPES = (("int", "big", "huge", "hole"), ("float", "hole"), ("text", "hole"), ("bool", "hole"), ("date", "hole"),
             ("moment", "hole"))  # fmt: skip
CSV_ANY: Styles = {
    "number": ("-9", "-9.0", "-90e-1", "1", "01", "7.5", "1e400", "-inf", *map(str, (*BIG, *HUGE))),
    "text": ("?", "a", "True", "true", " 7", "nan", "1_0", "9" * 400, "<7", " >= -9"), "hole": ("", "NA"),
}  # fmt: skip
DAYS: Styles = {"text": ("01/02/2015", "29/02/2016", " 03/04/2018"), "code": ("?",), "hole": (None,),
                "odd date": ("30/02/2015", "01/01/1890", "x", "2015-02-01")}  # fmt: skip
CODED: Sequence[tuple[Any, ...]] = ((), (), (-9,), (-9, 999), ("?",), ("-9", "a"), (2**53,), (2**53 + 1, "?"), (7.5,))
FORGIVING = ("free", "wild", "lab", "share", "large", "day", "age")


def forgiving(rng: Random) -> list[Column]:
    """Columns of every option that refuse no row for what it holds."""
    codes = partial(rng.choice, CODED)
    policy: Any = rng.choice(["refuse", "indicator", "constant"])
    after: Any = rng.choice(["clip", "missing"])
    known: Any = (*BIG[1:], HUGE[1], -3)
    fill = {"fill": 7} if policy == "constant" else {}
    kind: Any = rng.choice(["continuous", "integer"])
    return [
        Column("free", "categorical", domain="private", missing=rng.choice(["refuse", "category"]),
               missing_values=codes()),
        Column("wild", kind, domain="private", missing=policy, missing_values=codes(), **fill),
        Column("lab", kind, low=1, high=50, missing="indicator", out_of_range=after, missing_values=codes(),
               censored=rng.random() < 0.5),
        Column("share", "continuous", low=0, high=1, decimals=1, missing="constant", fill=0.5, out_of_range="missing",
               missing_values=codes()),
        Column("large", "categorical", categories=known, missing="category", out_of_range="missing",
               missing_values=rng.choice([(), (-9,), (999, "?")])),
        Column("day", "date", low="2015-01-01", high="2020-12-31", format="%d/%m/%Y", missing="indicator",  # type: ignore[arg-type]
               out_of_range=after, missing_values=("?",), unit=rng.choice(["", "hours"])),
        Column("age", "integer", low=0, high=110, computed="years_between(born, day)", missing="indicator",
               out_of_range=after),
        Column("born", "ignore", format="%d/%m/%Y", missing_values=("?",)),
    ]  # fmt: skip


# -- a pair of neighbours ---------------------------------------------------------------------------------------------


@dataclass
class Pair:
    """Two tables that differ by one person, and all that is public about them."""

    schema: Schema
    goal: dict[str, str]
    without: list[Row]
    whole: list[Row]
    added: list[int]  # rows of the whole that are the person's
    choice: dict[str, Any] = field(default_factory=dict)  # of the format; and the first table as read, for many pairs


def _pick(rng: Random, styles: Styles, allowed: Sequence[str], odd: float) -> Any:
    """A cell of one of these styles, or, seldom, one that is refused."""
    legal = [style for style in styles if style != "odd"]
    known = [style for style in allowed if style in legal] or legal
    pool = styles["odd"] if "odd" in styles and rng.random() < odd else styles[rng.choice(known)]
    return pool[rng.randrange(len(pool))]


def _text(who: Any) -> str:
    return str(int(who)) if isinstance(who, float | Decimal) and who == int(who) else str(who)


def make_pairs(rng: Random, form: str) -> list[Pair]:
    """A table and several persons, as Python values (`frame`), typed columns (`typed`) or texts (`csv`)."""
    csv = form == "csv"
    codes, classes = (CSV_CODES, CSV_CLASSES) if csv else (CODES, CLASSES)
    labels = CSV_LABELS if csv else LABELS
    (flag, flags), (died, deaths), code = rng.choice(labels), rng.choice(labels), rng.choice([*codes, ("1", True, 2)])
    if form == "typed":  # a typed column has one type: no labels of several
        code = rng.choice([("a", "b", "c"), (1, 2, 3)])
    hole = "category" if "hole" in codes[code] else "refuse"
    cells: dict[str, Styles] = {
        "x": CSV_NUMBERS if csv else NUMBERS,
        "flag": flags,
        "code": codes[code],
        "who": CSV_WHO if csv else WHO,
        "note": {"any": SITES if csv else ("1", "x")},
        **dict.fromkeys(("free", "wild", "lab", "share", "large"), CSV_ANY if csv else ANY),
        "day": DAYS,
        "born": DAYS,
    }
    columns = [
        Column("x", "continuous", low=0, high=100, missing="indicator"),
        Column("flag", "binary", categories=flag),
        Column("code", "categorical", categories=code, missing=hole),  # type: ignore[arg-type]
        *forgiving(rng),
    ]
    kind = rng.choice(["binary", "binary", "survival", "multiclass", "continuous"])
    goal = {"target": "y"}
    if kind == "survival":
        goal = {"time": "t", "event": "y"}
        cells["t"] = CSV_TIMES if csv else TIMES
        columns.append(Column("t", "continuous"))
    if kind in ("binary", "survival"):
        cells["y"] = deaths
        columns.append(Column("y", "binary", categories=died))
    elif kind == "multiclass":
        several = rng.choice(list(classes))
        cells["y"] = classes[several]
        columns.append(Column("y", "categorical", categories=several))
    else:
        cells["y"] = {style: pool for style, pool in cells["x"].items() if style != "hole"}
        columns.append(Column("y", "continuous", low=0, high=100))
    group = {"x": "numbers", "t": "numbers", "who": "who"} | ({"y": "numbers"} if kind == "continuous" else {})
    if form == "typed":
        own = {
            name: rng.choice(ANY_TYPES)
            if styles is ANY
            else rng.choice(
                [
                    types
                    for types in COLUMN_TYPES[group.get(name, "labels")]
                    if any(style in styles and style != "hole" for style in types)
                ]
                or [("any",)]
            )
            for name, styles in cells.items()
        }
        others = own
    else:
        own = {name: (rng.choice([style for style in styles if style != "odd"]),) for name, styles in cells.items()}
        others = {name: own[name] if rng.random() < 0.8 else tuple(styles) for name, styles in cells.items()}
    if form == "frame" and rng.random() < 0.3:  # of whole numbers alone: pandas has them as integers
        own |= dict.fromkeys(("free", "large"), ("big",))
        others |= dict.fromkeys(("free", "large"), ("big", "int"))
    odd = 0.0 if form == "typed" else rng.choice([0.0, 0.0, 0.08])
    without = [
        {name: _pick(rng, styles, own[name], 0.0) for name, styles in cells.items()} for _ in range(rng.randrange(1, 7))
    ]
    rules = (rule_from({"compare": "lab <= x + 20"}),) if rng.random() < 0.3 else ()
    schema, choice = Schema(tuple(columns), rules=rules), {"seed": rng.random()}
    taken = {_text(row["who"]) for row in without}
    pairs = []
    for _ in range(PERSONS):
        name = next(
            (
                found
                for found in (_pick(rng, cells["who"], others["who"], odd) for _ in range(30))
                if _text(found) not in taken
            ),
            None if form == "typed" else "somebody else",
        )
        rows = [
            {**{c: _pick(rng, styles, others[c], odd) for c, styles in cells.items()}, "who": name}
            for _ in range(rng.randrange(1, 4))
        ]
        added = sorted(rng.sample(range(len(without) + len(rows)), len(rows)))
        if rng.random() < 0.5:
            added = list(range(at := rng.randrange(len(without) + 1), at + len(rows)))
        left, new = iter(without), iter(rows)
        whole = [next(new) if k in set(added) else next(left) for k in range(len(without) + len(rows))]
        pairs.append(Pair(schema, goal, without, whole, added, choice))
    return pairs


# -- the ways in ------------------------------------------------------------------------------------------------------


def _exactly(values: list[Any], name: str) -> Any:
    """As pandas holds them without making others of them, as it does of whole numbers beside a hole or a float."""
    kinds = set(map(type, values))
    plain = len(kinds) == 1 and kinds <= {float, bool, pd.Timestamp, dt.datetime, dt.timedelta}
    whole = kinds == {int} and all(abs(value) < 2**63 for value in values)
    zones = {getattr(value, "tzinfo", None) for value in values}
    return pd.Series(values, dtype=None if name not in FORGIVING or whole or (plain and len(zones) == 1) else object)


def _frame(rows: list[Row], choice: dict[str, Any]) -> pd.DataFrame:
    frame = pd.DataFrame({name: _exactly([row[name] for row in rows], name) for name in rows[0]})
    if choice["seed"] < 0.2:
        for name in frame.columns.difference(FORGIVING):
            with suppress(TypeError, OverflowError), np.errstate(invalid="ignore"):  # pandas' own, beyond 64 bits
                frame[name] = frame[name].convert_dtypes()
    elif choice["seed"] < 0.4:
        texts = [name for name in frame if all(isinstance(value, str) for value in frame[name])]
        frame = frame.astype(dict.fromkeys(texts, "category"))
    return frame


def from_frame(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    goal = Goal.from_roles(**pair.goal)
    return Cohort.read(_frame(rows, pair.choice), goal, schema=pair.schema, person_id="who", ignore=["note"])


def from_model(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    """What `PrivateModel.fit` makes of X, y and person, each a list of values."""
    y: Any = [row["y"] for row in rows]
    if "time" in pair.goal:
        y = (
            [(row["t"], row["y"]) for row in rows]
            if pair.choice["seed"] < 0.5
            else pd.DataFrame({"t": [row["t"] for row in rows], "y": y})
        )
    elif pair.choice["seed"] < 0.3:
        y = pd.Series(y, dtype=object)
    column = pair.schema["y"]
    bounds = (0.0, 100.0) if column.numeric else None
    kept = ("x", "flag", "code", "free", "wild", "lab", "share", "large", "day", "born")
    X = _frame([{name: row[name] for name in kept} for row in rows], pair.choice)
    classes = column.categories or (0, 1)
    return estimator._cohort(X, y, pair.schema.without(["y", "t"]), [row["who"] for row in rows], classes, bounds)


def written_csv(rows: list[Row], path: Path) -> Path:
    out = io.StringIO()
    pd.DataFrame(rows, dtype=object).to_csv(out, index=False)
    text = out.getvalue().encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


def written_arrow(rows: list[Row], path: Path, choice: dict[str, Any]) -> Path:
    arrays = {}
    for name in rows[0]:
        values = [None if row[name] != row[name] else row[name] for row in rows]
        large = any(isinstance(value, int) and value >= 2**63 for value in values)
        arrays[name] = pa.array(values, type=pa.uint64() if large else None)
        if choice["seed"] < 0.3 and pa.types.is_string(arrays[name].type):
            arrays[name] = arrays[name].dictionary_encode()
    table = pa.table(arrays)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        pyarrow.feather.write_feather(table, str(path))
    return path


def from_file(path: Path | str, pair: Pair) -> Cohort:
    return Cohort.from_file(path, schema=pair.schema, person_id="who", ignore=["note"], **pair.goal)


def from_csv(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    return from_file(written_csv(rows, room / "t.csv"), pair)


def from_gz(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    return from_file(written_csv(rows, room / "t.csv.gz"), pair)


def from_parquet(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    return from_file(written_arrow(rows, room / "t.parquet", pair.choice), pair)


def from_feather(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    return from_file(written_arrow(rows, room / "t.feather", pair.choice), pair)


def from_arrow(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    return of_table(pyarrow.parquet.read_table(written_arrow(rows, room / "t.parquet", pair.choice)), pair)


def from_polars(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    """A table that Polars does not take is refused: it has not reached us."""
    import polars

    table = pyarrow.parquet.read_table(written_arrow(rows, room / "t.parquet", pair.choice))
    try:
        frame = polars.from_arrow(table)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, TypeError, ValueError) as error:
        raise CohortError("table", "must be one that Polars takes", found=type(error).__name__) from None
    return of_table(frame, pair)


def from_query(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    """What DuckDB answers."""
    path = written_arrow(rows, room / "t.parquet", pair.choice)
    how = {"schema": pair.schema, "person_id": "who", "ignore": ["note"], **pair.goal}
    return Cohort.from_file(":memory:", query=f"SELECT * FROM read_parquet('{path}')", **how)


def of_table(table: Any, pair: Pair) -> Cohort:
    return Cohort.from_frame(table, schema=pair.schema, person_id="who", ignore=["note"], **pair.goal)


def from_uri(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    return from_file(written_csv(rows, room / "t.csv").as_uri(), pair)


def from_study(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    """A study that takes the rows of one site; the site of each row stands in `note`."""
    path = room / "t.csv"
    if pair.choice["site"]:
        path = written_arrow(rows, room / "t.parquet", pair.choice)
    else:
        written_csv(rows, path)
    source = Source("t", "", path=str(path), schema=pair.schema, person_id="who", where={"note": pair.choice["wanted"]})
    return study.load(source, Endpoint(Goal.from_roles(**pair.goal)))


def from_batches(pair: Pair, rows: list[Row], room: Path) -> Coded:
    """What a run on a large table sees, of one batch."""
    path = written_arrow(rows, room / "large.parquet", pair.choice)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistcondenseWarning)
        table = LargeTable.from_path(path, schema=pair.schema, person_id="who", ignore=["note"], **pair.goal)
    coder = table.coder(public_cells(table.facts.schema), HoldoutSplit(0.2, 7))  # type: ignore[arg-type]
    return next(iter(table.read(table.pieces[0], coder))).coded


def from_nobody(pair: Pair, rows: list[Row], room: Path) -> Cohort:
    """Rows that name nobody: coins are those of their content."""
    goal = Goal.from_roles(**pair.goal)
    return Cohort.read(_frame(rows, pair.choice), goal, schema=pair.schema, ignore=["note", "who"])


def sites(rng: Random) -> list[Pair]:
    """Neighbours with a site for each row; the first row is selected whatever the person does."""
    typed = rng.random() < 0.4
    pairs = make_pairs(rng, "typed" if typed else "csv")
    choice = pairs[0].choice  # all share it, and the first table's rows
    choice["site"] = rng.choice(list(TYPED_SITES)) if typed else ""
    cells, asked = TYPED_SITES[choice["site"]] if typed else (SITES, WANTED)
    choice["wanted"] = rng.choice(list(asked))
    for pair in pairs:
        for row in pair.whole:
            row["note"] = rng.choice(list(cells))
    pairs[0].without[0]["note"] = choice["wanted"] if typed else str(choice["wanted"])
    return pairs


def from_result(pair: Pair, rows: list[Row], room: Path) -> EvaluationInput:
    """What `dc.evaluate` makes of a table and a finished run; the run's rows are those of the first table."""
    cohort = from_frame(pair, rows, room)
    if "result" not in pair.choice:
        kind, few = cohort.outcome.kind, cohort.take(np.zeros(2, np.int64))
        labelled = Labelled(few.outcome, weight=np.ones(2))
        cell = {
            "splitting": COIN.to_dict(),
            "scaling": "public",
            "soft_labels": False,
            "weighted": True,
            "student": kind.learner().name,
            "unit": 1.0,
        }
        privacy = Privacy("none", "published", None, None, "none", "none")
        frame = pd.DataFrame({name: few.features[name].astype(object) for name in few.features})
        pair.choice["result"] = Result(
            table_of(frame, cohort.schema, kind, labelled), cohort.schema, kind=kind, privacy=privacy, internal=cell
        )
    return EvaluationInput.from_result(cohort, pair.choice["result"])


# -- reading and comparing --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One way in: how its neighbours are made and read."""

    pairs: Callable[[Random], list[Pair]]
    read: Callable[[Pair, list[Row], Path], Cohort | EvaluationInput | Coded]
    selects: bool = False  # row numbers in messages are then those of the rows as they were selected, or put in order


CSV, TYPED, FRAME = (partial(make_pairs, form=form) for form in ("csv", "typed", "frame"))
WAYS: dict[str, Way] = {
    "CSV": Way(CSV, from_csv),
    "CSV.gz": Way(CSV, from_gz),
    "URI": Way(CSV, from_uri),
    "Parquet": Way(TYPED, from_parquet),
    "Feather": Way(TYPED, from_feather),
    "batches": Way(TYPED, from_batches),
    "Arrow table": Way(TYPED, from_arrow),
    "Polars": Way(TYPED, from_polars),
    "query": Way(TYPED, from_query, selects=True),
    "frame": Way(FRAME, from_frame),
    "rows of nobody": Way(FRAME, from_nobody),
    "PrivateModel": Way(FRAME, from_model),
    "study, where": Way(sites, from_study, selects=True),
    "evaluate": Way(FRAME, from_result),
}


def seen(read: Cohort | EvaluationInput | Coded) -> tuple[Any, dict[Any, list[Any]]]:
    """What is public about a cohort, and what is said about each person's rows; of nobody's, about each row."""
    if isinstance(read, Coded):
        by_digest = dict[Any, list[Any]]()
        parts = [codes.tolist() for codes in (*read.codes, *read.target.values())] + [read.mark.tolist()]
        assert read.who is not None
        for who, *row in zip(map(tuple, read.who.tolist()), *parts, strict=True):
            by_digest.setdefault(who, []).append(row)
        return None, by_digest
    if isinstance(read, EvaluationInput):
        encoded, home = read.codec.encode(read.cohort.features), read
        public, rows = seen(read.cohort)
        held = np.isin(np.arange(len(read.cohort)), home.split.test)
        assert read.cohort.person is not None
        for at, who in enumerate(read.cohort.person):
            rows[read.cohort.identifiers[who]].append([bool(held[at]), encoded[at].tobytes()])
        return (public, home.rows.tobytes(), home.codec.names), rows
    cohort, by_person = read, dict[str, list[Any]]()
    kind, schema = cohort.outcome.kind, cohort.schema
    public = (kind.name, repr(getattr(kind, "labels", ())), kind.labels_public, repr(kind.facts()), schema.to_toml())
    held = np.isin(np.arange(len(cohort)), COIN.split(cohort).test).tolist()
    columns = [cells.codes(cohort.features[cells.column.name]).tolist() for cells in public_cells(schema)]
    columns += [[repr(v + 0 if c.numeric else v) for v in cohort.features[c.name].tolist()] for c in schema.columns]
    columns += [list(map(repr, np.asarray(array).tolist())) for array in cohort.outcome.arrays.values()]
    if cohort.person is None:
        count = Counter(map(repr, zip(held, *columns, strict=True)))
        return public, {(row, k): [] for row, times in count.items() for k in range(times)}
    for who, *row in zip(cohort.person, held, *columns, strict=True):
        by_person.setdefault(cohort.identifiers[who], []).append(row)
    return public, by_person


def verdict(way: Way, pair: Pair, room: Path) -> str:
    """same · refused (the larger table alone) · both refused · different: …"""
    if "first" not in pair.choice:
        try:
            pair.choice["first"] = seen(way.read(pair, pair.without, room))
        except (UserError, pa.ArrowException) as error:
            pair.choice["first"] = error
    first = pair.choice["first"]
    if any(f"column '{name}'" in str(first) for name in FORGIVING if isinstance(first, UserError)):
        return f"different: refused for what a column forgives, {first}"
    try:
        second = way.read(pair, pair.whole, room)
    except pa.ArrowException:
        return "both refused"  # no such file exists
    except UserError as error:
        if isinstance(first, Exception):
            return "both refused"
        if any(f"column '{name}'" in str(error) for name in FORGIVING):
            return f"different: refused for what a column forgives, {error}"
        return "refused" if way.selects or _names_the_person(str(error), pair) else f"different: refused, {error}"
    if isinstance(first, Exception):
        return f"different: refused without the person, {first}"
    public, rows = first
    public_after, rows_after = seen(second)
    if public != public_after:
        return "different: what is public"
    new = set(rows_after) - set(rows)
    others = {who: found for who, found in rows_after.items() if who not in new}
    most = len(pair.added) if way.read is from_nobody else 1
    return "same" if others == rows and len(new) <= most else "different: other persons' rows"


def _names_the_person(message: str, pair: Pair) -> bool:
    """Whether a refusal is about the person's rows: the first row it names, or one of the types it names."""
    named = [int(row) - 1 in pair.added for row in re.findall(r"first at row (\d+)", message)]
    if "identifiers must be" in message:  # one float makes floats of all in pandas, before we see them
        return True
    return any(named) if "values of one type" in message else bool(named) and all(named)


@dataclass
class Tally:
    pairs: int = 0
    refused: int = 0
    both: int = 0
    different: list[str] = field(default_factory=list)

    def add(self, said: str) -> None:
        self.pairs += 1
        self.refused += said == "refused"
        self.both += said == "both refused"
        if said.startswith("different"):
            self.different.append(said)


def try_pairs(name: str, pairs: int, seed: int = 0) -> Tally:
    """So many pairs of one way in."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as room, warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(-(-pairs // PERSONS)):
            for pair in WAYS[name].pairs(Random(f"{seed} {name} {number}")):
                tally.add(verdict(WAYS[name], pair, Path(room)))
    return tally


WORDS = ("same", "refused", "both refused", "different")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=5000, help="of each way in")
    options.add_argument("--seed", type=int, default=0)
    said = options.parse_args()
    print(f"{'way in':14}" + "".join(f"{word:>14}" for word in ("pairs", *WORDS, "seconds")))
    found = {}
    for name in WAYS:
        started = time.perf_counter()
        tally = try_pairs(name, said.pairs, said.seed)
        seconds = time.perf_counter() - started
        same = tally.pairs - tally.refused - tally.both - len(tally.different)
        counts = dict(zip(WORDS, (same, tally.refused, tally.both, len(tally.different)), strict=True))
        print(f"{name:14}" + "".join(f"{n:14,}" for n in (tally.pairs, *counts.values(), round(seconds))), flush=True)
        for line in sorted(set(tally.different))[:5]:
            print("   ", line)
        found[name] = {"pairs": tally.pairs, **counts}
    record.write("stability", {"options": vars(said), "ways": found}, seeds=[said.seed])


if __name__ == "__main__":
    main()
