"""What a run takes by the size of its table: memory and CPU seconds, from measurements, before anybody is read.

    memory = base + each · rows · columns        CPU seconds likewise        scratch = each · rows · columns

`python -m benchmarks.sizes` measured simulated tables of several sizes, a process each, and fitted the lines; seconds
are of one core of the machine it names. They are good to a factor of two or so: many categories, steps and black boxes
take more. How well cores share the work is not foretold: a time is given for all of them, and for one. Nothing here
reads a row: of a table its files' metadata is enough, and of a CSV the lengths of its first lines.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from distcondense.errors import CohortError, SettingsError, brief, os_errors

MIB, GIB = 2**20, 2**30
ROOM = 1.5  # of memory, above what was measured: a request that is too small ends the run
SCRATCH = 3.0  # bytes a value of coded rows on disk (cluster/README.md: 60 a row of 20 columns)
PER_ACTOR = 0.5 * GIB  # an actor that reads a table in many files, whatever its size (cluster/README.md)
ACTORS_TAKE = 1.9  # CPU seconds of actors and driver beside one process's, for the same rows (results/scale.json, ray)
STARTS = 5.0  # seconds until a cluster and its actors are up (there)
HEAD_OF_TEXT = MIB  # bytes of a CSV whose lines are measured


@dataclass(frozen=True)
class SizeModel:
    """Lines over rows · columns: (base, each) of bytes and of CPU seconds."""

    memory: tuple[float, float]
    seconds: tuple[float, float]


IN_MEMORY, IN_BATCHES = "in memory", "in batches"


@cache
def models() -> dict[str, dict[str, SizeModel]]:
    """By how a table is read and by method, as `sizes.json` beside this file has them."""
    known = json.loads(Path(__file__).with_name("sizes.json").read_text(encoding="utf-8"))
    return {
        how: {name: SizeModel(tuple(one["bytes"]), tuple(one["cpu_seconds"])) for name, one in ways.items()}
        for how, ways in known.items()
    }


@dataclass(frozen=True)
class Shape:
    """How large a table is: rows, and columns with the outcome; `exact` where its files say so."""

    rows: int
    columns: int
    exact: bool = True

    @classmethod
    def from_text(cls, text: str) -> Shape | None:
        """1e7x20 or 10000000×20; None where it is no shape."""
        found = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*[x×*]\s*([0-9]+)", text.strip(), re.IGNORECASE)
        if found is None:
            return None
        rows, columns = float(found[1]), int(found[2])
        if not 1 <= rows <= 1e12 or not 1 <= columns <= 1e6:
            raise SettingsError("SHAPE", "must be ROWSxCOLUMNS", found=brief(text), fix="e.g. 1e7x20")
        return cls(int(rows), columns)

    @classmethod
    def from_table(cls, path: Path) -> Shape:
        """Of a table on disk, by its files' metadata; of a CSV about, by the lengths of its first lines."""
        with os_errors(f"table {brief(path)}", "must be readable", CohortError):
            files = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
            shapes = [_of_file(file) for file in files if file.suffix in _READERS]
        if not shapes:
            raise CohortError(
                f"table {brief(path)}",
                "must be a Parquet, Arrow or CSV file, a folder of them, or a shape",
                found="no such file",
                fix="e.g. distcondense plan 1e7x20",
            )
        rows, exact = sum(one.rows for one in shapes), all(one.exact for one in shapes)
        return cls(rows, max(one.columns for one in shapes), exact)

    @property
    def values(self) -> int:
        return self.rows * self.columns

    def __str__(self) -> str:
        return f"{'' if self.exact else 'about '}{self.rows:,} rows × {self.columns:,} columns"


def _parquet(file: Path) -> Shape:
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(file)
    return Shape(metadata.num_rows, metadata.num_columns)


def _arrow(file: Path) -> Shape:
    import pyarrow.dataset as ds

    data = ds.dataset(file, format="feather")
    return Shape(data.count_rows(), len(data.schema.names))


def _text(file: Path) -> Shape:
    with file.open("rb") as opened:
        head = opened.read(HEAD_OF_TEXT)
    lines = head.splitlines()[: -1 if len(head) == HEAD_OF_TEXT else None]
    if len(lines) < 2:
        return Shape(0, 1, exact=False)
    mark = max((b",", b";", b"\t", b"|"), key=lines[0].count)
    each = sum(map(len, lines[1:])) / (len(lines) - 1) + 1
    rows = max(0, round((file.stat().st_size - len(lines[0])) / each))
    return Shape(rows, lines[0].count(mark) + 1, exact=False)


_READERS = {".parquet": _parquet, ".feather": _arrow, ".arrow": _arrow, ".csv": _text}


def _of_file(file: Path) -> Shape:
    try:
        return _READERS[file.suffix](file)
    except (ValueError, KeyError) as error:  # pyarrow's errors are such
        raise CohortError(
            f"table {brief(file)}", "must be readable", found=type(error).__name__, fix="check the file"
        ) from None


@dataclass(frozen=True)
class Needs:
    """What one way to run takes."""

    where: str
    how: str  # options of `condense` that make it so
    memory: float  # bytes of one process, with ROOM
    cpu_seconds: float
    seconds: tuple[float, float]  # where all cores help all the time, and where one does all
    scratch: float = 0.0  # bytes on disk, of all processes together
    processes: int = 1

    def row(self) -> tuple[str, ...]:
        """For a table."""
        many = f"{self.processes} × " if self.processes > 1 else ""
        return (
            self.where,
            many + in_bytes(self.memory),
            " to ".join(map(in_time, self.seconds)),
            in_bytes(self.scratch),
            self.how,
        )


def plan(shape: Shape, method: str, *, cores: int, actors: int) -> list[Needs]:
    """Every way to condense a table of this shape with this method, one machine first.

    Parameters
    ----------
    shape : Shape
    method : str
        One that was measured.
    cores : int
        Of one machine.
    actors : int
        Of a cluster, of two cores each.

    Returns
    -------
    list of Needs

    Raises
    ------
    SettingsError
        For a method without measurements.
    """
    whole_table, by_parts = (models()[how].get(method) for how in (IN_MEMORY, IN_BATCHES))
    if whole_table is None:
        known = ", ".join(models()[IN_MEMORY])
        raise SettingsError("--method", "must be one that was measured", found=repr(brief(method)), fix=f"say {known}")
    whole = _needs(whole_table, shape)
    ways = [Needs("one machine, in memory", "", whole[0], whole[1], (whole[1] / cores, whole[1]))]
    if by_parts is None:
        return ways
    memory, seconds = _needs(by_parts, shape)
    scratch = SCRATCH * shape.values
    ways.append(
        Needs(
            "one machine, in batches",
            f"--memory {max(1, math.ceil(memory / GIB))}GB --scratch FOLDER",
            memory,
            seconds,
            (seconds / cores, seconds),
            scratch,
        )
    )
    on_actors = seconds * ACTORS_TAKE
    ways.append(
        Needs(
            f"a cluster of {actors} actors of 2 cores",
            f"--ray HOST:PORT --actors {actors} --num-cpus 2 --scratch FOLDER",
            PER_ACTOR * ROOM,
            on_actors,
            (STARTS + on_actors / (2 * actors), STARTS + on_actors / actors),
            scratch,
            actors,
        )
    )
    return ways


def _needs(model: SizeModel, shape: Shape) -> tuple[float, float]:
    memory, seconds = (base + each * shape.values for base, each in (model.memory, model.seconds))
    return memory * ROOM, seconds


def here() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def fits(ways: Iterable[Needs], memory: float) -> list[Needs]:
    """Those of one machine that this memory has room for."""
    return [one for one in ways if one.processes == 1 and one.memory <= memory]


def in_bytes(number: float) -> str:
    if not number:
        return "—"
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{max(1, round(number / MIB))} MiB"


def in_time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
