"""What anybody can read off a release: every file's bytes as plain numbers, the traces, each under a name of its own.

Nothing here knows the method or the patients. A table shows how many rows it has, what its weights add up to, the mean,
median and ends of every number, the weight of every category (and of every number, where there are few), its first and
last row; a statement and a schema show every number and every text they hold, a page every number; and of every file
the length is known, and how often it holds given texts.
"""

from __future__ import annotations

import io
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from distcondense.arrays import Flags, Floats
from distcondense.data.reserved import WEIGHT

LONGEST = 80  # characters of a text that is told apart: hashes, categories, words; statements are longer
FEW = 40  # different numbers of a column that are counted one by one
MANY = 400  # entries of a list that are told one by one
TOGETHER = 12  # traces that are added up

Traces = dict[str, float]
Bytes = Mapping[str, bytes]  # file name → content


def bytes_of(room: Path) -> dict[str, bytes]:
    """Every file of a released folder."""
    return {str(p.relative_to(room)): p.read_bytes() for p in sorted(room.rglob("*")) if p.is_file()}


def traces_of(files: Bytes, marks: Sequence[str] = ()) -> Traces:
    """All traces of a release; `marks` are texts that only a canary has."""
    found: Traces = {"files": float(len(files))}
    for name, content in files.items():
        found[f"length of {name}"] = float(len(content))
        suffix = Path(name).suffix
        if suffix in _READERS:
            found |= {f"{name}: {trace}": value for trace, value in _READERS[suffix](content)}
        if marks and suffix != ".parquet":  # packed: its values are in the table's traces
            found[f"{name}: marks"] = float(sum(content.count(mark.encode()) for mark in marks))
    return found


def marked(files: Bytes, mark: str) -> int:
    """How often a text stands in the released files, whatever they are packed in."""
    found = sum(content.count(mark.encode()) for name, content in files.items() if Path(name).suffix != ".parquet")
    packed = (content for name, content in files.items() if Path(name).suffix == ".parquet")
    return found + sum(_table(content).to_csv(index=False).count(mark) for content in packed)


@dataclass(frozen=True)
class ReleaseDiscriminant:
    """The traces that told the first runs apart best, and how they are added up: a linear discriminant, trace by trace.

    A trace's spread is that within either kind of run, and a little of its whole range: so a trace that parted few
    runs by chance weighs no more than one that is exact, and an exact one far more than all that chance alone gives.
    """

    names: tuple[str, ...]
    middle: Floats
    spread: Floats
    apart: Floats  # of the means, in spreads

    @classmethod
    def fit(cls, runs: pd.DataFrame, member: Flags, most: int = TOGETHER) -> ReleaseDiscriminant:
        """(runs, traces) of which it is known which are `member`."""
        values = runs.to_numpy(np.float64)
        if not member.any() or member.all():
            return cls((), np.zeros(0), np.zeros(0), np.zeros(0))
        parts = values[member], values[~member]
        means = [part.mean(0) for part in parts]
        within = sum(((part - mean) ** 2).sum(0) for part, mean in zip(parts, means, strict=True))
        spread = np.sqrt((within + np.ptp(values, axis=0) ** 2 / 4) / len(values))
        apart = (means[0] - means[1]) / np.where(spread > 0, spread, 1.0)
        best = np.argsort(-np.abs(apart), kind="stable")[:most]
        names = tuple(str(runs.columns[k]) for k in best)
        return cls(names, (means[0] + means[1])[best] / 2, np.where(spread > 0, spread, 1.0)[best], apart[best])

    def scores(self, runs: Sequence[Traces]) -> Floats:
        """(runs,) the higher, the more like those with the canary; no trace counts for more than it did at first."""
        values = np.array([[one.get(name, 0.0) for name in self.names] for one in runs], np.float64)
        far = (values - self.middle) / self.spread
        return np.asarray(np.clip(far, -np.abs(self.apart), np.abs(self.apart)) @ self.apart)

    @property
    def words(self) -> str:
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return f"{self.names[0]}{more}" if self.names else "nothing"


def as_table(runs: Sequence[Traces]) -> pd.DataFrame:
    """(runs, traces); a trace that a run lacks is 0. What all share, or all but one (names, hashes), is left out."""
    table = pd.DataFrame(list(runs)).fillna(0.0)
    ordered = np.sort(table.to_numpy(np.float64), axis=0)  # all but one are the same: the first or the last may differ
    alike = (ordered[:-1] == ordered[0]).all(0) | (ordered[1:] == ordered[-1]).all(0)
    changing = table.loc[:, ~alike]
    return changing if len(changing.columns) else table.iloc[:, :1]


# ---- what is in a file


def _table(content: bytes) -> pd.DataFrame:
    return pq.read_table(io.BytesIO(content)).to_pandas()


def _csv(content: bytes) -> Iterator[tuple[str, float]]:
    yield from _frame(pd.read_csv(io.BytesIO(content), keep_default_na=False, na_values=[""]))


def _parquet(content: bytes) -> Iterator[tuple[str, float]]:
    frame = _table(content)
    frame.attrs = {}
    yield from _frame(frame)


def _frame(frame: pd.DataFrame) -> Iterator[tuple[str, float]]:
    yield "rows", float(len(frame))
    if not len(frame):
        return
    weight = frame[WEIGHT].to_numpy(np.float64) if WEIGHT in frame else np.ones(len(frame))
    yield "weight", float(weight.sum())
    for name in frame.columns:
        values = frame[name]
        yield f"{name} empty", float(values.isna().sum())
        if pd.api.types.is_numeric_dtype(values):
            yield from _numbers(str(name), values.to_numpy(np.float64), weight)
        else:
            texts = values.astype(str)
            yield from _each(str(name), texts, weight)
            yield f"first {name} = {texts.iloc[0]}", 1.0
            yield f"last {name} = {texts.iloc[-1]}", 1.0


def _each(name: str, values: Any, weight: Any) -> Iterator[tuple[str, float]]:
    """Rows and weight of each value."""
    codes, distinct = pd.factorize(values)
    rows, heavy = (np.bincount(codes, by, len(distinct)) for by in (None, weight))
    for place, value in enumerate(distinct):
        yield f"{name} = {value}", float(heavy[place])
        yield f"rows with {name} = {value}", float(rows[place])


def _numbers(name: str, values: Any, weight: Any) -> Iterator[tuple[str, float]]:
    there = ~np.isnan(values)
    if not there.any():
        return
    values, weight = values[there], weight[there]
    yield f"{name} sum by weight", float(values @ weight)
    yield f"{name} mean", float(values.mean())
    yield f"{name} median", float(np.median(values))
    yield f"{name} least", float(values.min())
    yield f"{name} most", float(values.max())
    if len(np.unique(values)) <= FEW:
        yield from _each(name, values, weight)
    yield f"first {name}", float(values[0])
    yield f"last {name}", float(values[-1])


def _tree(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Numbers as they are; texts, and what a list holds, as a 1 under their own name."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _tree(part, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        yield f"{path} entries", float(len(value))
        for place, part in enumerate(value[:MANY]):
            if isinstance(part, str):
                yield f"{path} has {part[:LONGEST]}", 1.0
            else:
                yield from _tree(part, f"{path}.{place}")
    elif isinstance(value, str):
        if len(value) <= LONGEST:
            yield f"{path} is {value}", 1.0
    elif isinstance(value, bool | int | float) and math.isfinite(value):
        yield path, float(value)


def _page(content: bytes) -> Iterator[tuple[str, float]]:
    """Every number that can be read on a page, by how it is written."""
    for number in sorted(set(_NUMBER.findall(_TAG.sub(" ", content.decode())))):
        yield f"holds {number}", 1.0


_TAG = re.compile(r"<style.*?</style>|<[^>]*>", re.DOTALL)
_NUMBER = re.compile(r"\d[\d.,]*\d|\d")
_READERS: Mapping[str, Callable[[bytes], Iterator[tuple[str, float]]]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".json": lambda content: _tree(json.loads(content)),
    ".html": _page,
    ".md": _page,
    ".svg": _page,
    ".toml": lambda content: _tree(tomllib.loads(content.decode())),
}
