"""Cohorts to try things on: simulated ones with the shapes of Thakur et al. 2026 (Table 1), and two real ones.

No simulated row is a patient's; the distributions (populations.py) were written by hand to look plausible, but those of
`seer_like` (category shares, ranges, follow-up) were set by looking at summaries of the public SEER extract.
`seed` draws other patients from the same population, so two seeds are a train and a test set.

    load("curial_like", site="OUH", rows=5_000)       a `Simulated`: frame, declared schema, outcome names
    stream("diabetes_like", chunk_rows=20_000)        the same rows, frame by frame

Rows are made in fixed blocks of 4,096, each with its own random stream (a function of seed and block number), so row i
is the same whatever the chunk size and however many rows are asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from distcondense.data.names import nearest
from distcondense.data.populations import BLOCK, Array, Population, count, curial, diabetes, proteomics, seer, yes_no
from distcondense.data.schema import Column, Schema
from distcondense.errors import SettingsError

T = TypeVar("T")
CHUNK_BYTES = 64_000_000  # about how large a chunk is when nobody says
GROUP_ROWS, FILE_ROWS = 2**18, 2**24  # of a table on disk: a row group, a file


@dataclass(frozen=True)
class Simulated:
    """A cohort with everything `Cohort.from_frame` wants to know: `Cohort.from_frame(s.frame, **s.how)`."""

    frame: pd.DataFrame
    schema: Schema  # declared; outcome columns included
    description: str
    target: str | None = None
    time: str | None = None
    event: str | None = None

    @property
    def how(self) -> dict[str, Any]:
        return {"schema": self.schema, "target": self.target, "time": self.time, "event": self.event}


# -- streaming --------------------------------------------------------------------------------------------------------


def _frames(population: Population, rows: int, chunk_rows: int, seed: int) -> Iterator[pd.DataFrame]:
    held, block = -1, {}
    for start in range(0, rows, chunk_rows):
        stop = min(start + chunk_rows, rows)
        arrays: dict[str, Array] = {}
        for number in range(start // BLOCK, (stop - 1) // BLOCK + 1):
            if number != held:
                held, block = number, population.block(seed, number)
            first, last = max(start, number * BLOCK), min(stop, (number + 1) * BLOCK)
            for name, values in block.items():
                out = arrays.setdefault(name, np.empty((*values.shape[:-1], stop - start), values.dtype))
                out[..., first - start : last - start] = values[..., first - number * BLOCK : last - number * BLOCK]
        yield population.frame(arrays)


def _collect(population: Population, rows: int | None, seed: int) -> Simulated:
    rows = population.rows if rows is None else count("rows", rows)
    frame = next(_frames(population, rows, rows, count("seed", seed, least=0)))
    return Simulated(
        frame, population.schema, population.description, population.target, population.time, population.event
    )


def stream(
    name: str, *, rows: int | None = None, chunk_rows: int | None = None, seed: int = 0, **options: Any
) -> Iterator[pd.DataFrame]:
    """The rows of a simulated cohort, frame by frame; settings are checked at the call, not at the first frame."""
    population = _make(name, POPULATIONS, options)
    if chunk_rows is None:
        chunk_rows = BLOCK * max(1, CHUNK_BYTES // (8 * BLOCK * len(population.schema.columns)))
    rows = population.rows if rows is None else count("rows", rows)
    return _frames(population, rows, count("chunk_rows", chunk_rows), count("seed", seed, least=0))


def simulate(
    name: str,
    folder: Path,
    *,
    rows: int | None = None,
    seed: int = 0,
    features: int | None = None,
    rows_each: int = 1,
    chunk_rows: int = GROUP_ROWS,
    on_rows: Callable[[int, int], None] = lambda done, of: None,
) -> Path:
    """Write a simulated table of any size to disk, frame by frame, and the schema that goes with it.

    Parameters
    ----------
    name : str
        A simulated cohort, e.g. "curial_like".
    folder : Path
        New or empty: gets `table/`, Parquet files of up to 2^24 rows, and `schema.toml`.
    rows : int, optional
        As many as in Thakur et al. 2026 if not given.
    seed : int
        Of the patients drawn.
    features : int, optional
        The first so many columns, and the outcome; all if not given.
    rows_each : int
        Rows of each person; more than one make a column `who`, in which persons stand in random order.
    chunk_rows : int
        Rows of each row group.
    on_rows : callable
        Told how many rows are written, of how many.

    Returns
    -------
    Path
        The folder of the table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError("out", "must be new or an empty folder", found="something in it", fix="say another --out")
    population = _make(name, POPULATIONS, {})
    rows = population.rows if rows is None else count("rows", rows)
    outcome = {population.target, population.time, population.event}
    named = [column.name for column in population.schema.columns if column.name not in outcome]
    kept = {*named[: None if features is None else count("features", features)], *outcome}
    schema = Schema(
        tuple(column for column in population.schema.columns if column.name in kept), notes=population.schema.notes
    )
    who = (
        None if count("rows_each", rows_each) == 1 else np.random.default_rng([seed, 1]).permutation(rows) // rows_each
    )
    table = folder / "table"
    table.mkdir(parents=True)
    (folder / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    done, writer = 0, None
    for frame in stream(name, rows=rows, chunk_rows=chunk_rows, seed=seed):
        chosen = frame[list(schema.names)]
        if who is not None:
            chosen = chosen.assign(who=who[done : done + len(frame)])
        group = pa.Table.from_pandas(chosen, preserve_index=False)
        if writer is None:
            writer = pq.ParquetWriter(table / f"{done // FILE_ROWS:04d}.parquet", group.schema, compression="zstd")
        writer.write_table(group, row_group_size=chunk_rows)
        done += len(frame)
        on_rows(done, rows)
        if done % FILE_ROWS == 0 or done == rows:
            writer.close()
            writer = None
    return table


# -- the public names -------------------------------------------------------------------------------------------------


def curial_like(
    rows: int | None = None, site: str = "PUH", prevalence: float | None = None, seed: int = 0, shifted: bool = False
) -> Simulated:
    """COVID-19 status from 27 vitals and bloods, age, sex and oxygen device. Sites PUH, OUH and UHB differ in case mix,
    analysers, age and prevalence (5.3%, 2.5%, 4.2%). `rows` defaults to the site's number in Table 1. `shifted`: they
    differ as hospitals do, in who comes, in what analysers say and in what is measured at all (holes)."""
    return _collect(curial(site, prevalence, shifted), rows, seed)


def proteomics_like(
    rows: int | None = None, proteins: int = 2_932, prevalence: float = 0.01, seed: int = 0
) -> Simulated:
    """Myeloma from correlated protein levels (40 factors and noise; up to 50 informative); 52,999 rows, 0.6 GB."""
    return _collect(proteomics(proteins, prevalence), rows, seed)


def diabetes_like(rows: int | None = None, seed: int = 0) -> Simulated:
    """Years to diabetes among 474,886 volunteers; about 5% events, administrative censoring after 10 to 15 years."""
    return _collect(diabetes(), rows, seed)


def seer_like(rows: int | None = None, seed: int = 0) -> Simulated:
    """Months to death of 4,024 women with node-positive breast cancer; about 15% events, at most 107 months."""
    return _collect(seer(), rows, seed)


_BY_HAND = "Bounds were set by hand from the range such a measurement can have, with room; not read off rows."
# fmt: off
# measure: unit, high of mean and worst, high of the standard error
_NUCLEI = {
    "radius": ("image units", 50, 5), "texture": ("grey levels", 80, 10), "perimeter": ("image units", 350, 40),
    "area": ("image units²", 8000, 1000), "smoothness": ("", 0.5, 0.1), "compactness": ("", 2, 0.3),
    "concavity": ("", 2, 0.6), "concave_points": ("", 0.5, 0.1), "symmetry": ("", 1, 0.2),
    "fractal_dimension": ("", 0.4, 0.06),
}
# fmt: on


def breast_cancer() -> Simulated:
    """Real: scikit-learn's Wisconsin breast cancer data, 569 aspirates x 30 measurements; 1 = malignant (37%)."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    frame = data.data.rename(columns=lambda name: name.replace(" ", "_"))
    frame["malignant"] = (data.target == 0).astype(np.int8)  # scikit-learn codes malignant as 0
    columns = []
    for name in frame.columns[:-1]:
        error = name.endswith("_error")
        unit, high, high_error = _NUCLEI[name.removesuffix("_error") if error else name.split("_", 1)[1]]
        columns.append(Column(name, "continuous", 0, high_error if error else high, unit=unit))
    schema = Schema((*columns, yes_no("malignant")), notes=(_BY_HAND,))
    return Simulated(frame, schema, "Wisconsin breast cancer (scikit-learn): is the aspirate malignant?", "malignant")


def gbsg2() -> Simulated:
    """Real: the German Breast Cancer Study Group 2 trial from lifelines, 686 women x 8; recurrence-free survival."""
    from lifelines.datasets import load_gbsg2

    frame = load_gbsg2().rename(columns={"cens": "recurred_or_died"})
    columns = (
        Column("horTh", "binary", categories=("no", "yes")),
        Column("age", "integer", 18, 100, unit="years"),
        Column("menostat", "binary", categories=("Pre", "Post")),
        Column("tsize", "integer", 1, 200, unit="mm"),
        Column("tgrade", "categorical", categories=("I", "II", "III")),
        Column("pnodes", "integer", 1, 60, unit="nodes"),
        Column("progrec", "integer", 0, 3000, unit="fmol/mg"),
        Column("estrec", "integer", 0, 2000, unit="fmol/mg"),
        Column("time", "integer", 1, 3650, unit="days"),
        yes_no("recurred_or_died"),
    )
    frame = frame.loc[:, [c.name for c in columns]].astype({"recurred_or_died": np.int8})
    text = "GBSG2 trial (lifelines): days to recurrence or death of women with node-positive breast cancer."
    return Simulated(frame, Schema(columns, notes=(_BY_HAND,)), text, time="time", event="recurred_or_died")


POPULATIONS: dict[str, Callable[..., Population]] = {
    "curial_like": curial,
    "proteomics_like": proteomics,
    "diabetes_like": diabetes,
    "seer_like": seer,
}
DATASETS: dict[str, Callable[..., Simulated]] = {
    "curial_like": curial_like,
    "proteomics_like": proteomics_like,
    "diabetes_like": diabetes_like,
    "seer_like": seer_like,
    "breast_cancer": breast_cancer,
    "gbsg2": gbsg2,
}


def load(name: str, **options: Any) -> Simulated:
    """A cohort by name; `options` are those of its function (rows, seed, site, …)."""
    return _make(name, DATASETS, options)


def _make(name: str, table: Mapping[str, Callable[..., T]], options: Mapping[str, Any]) -> T:
    """What the function of that name gives, if it exists and takes these options."""
    if name not in table:
        rule = "must be a data set" if table is DATASETS else "must be a simulated data set (load() gives the others)"
        raise SettingsError(f"data set {name!r}", rule, found=nearest(str(name), table), fix=f"say {', '.join(table)}")
    known = list(inspect.signature(table[name]).parameters)
    for option in options:
        if option not in known:
            fix = f"say {', '.join(known)}" if known else "give none"
            raise SettingsError(f"data set {name!r}", "has its own options", found=nearest(option, known), fix=fix)
    return table[name](**options)
