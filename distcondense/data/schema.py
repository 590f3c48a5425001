"""`Schema`: what is *public* about a table. Kinds, bounds, categories, units, and what to do with missing values.

A schema is written by a person (or drafted with `Schema.infer`, which marks it as inferred, because bounds read off
patients are no longer public knowledge). It is read and written as TOML:

    format = 1
    origin = "declared"

    [columns.age]
    kind = "integer"
    low = 18
    high = 110
    unit = "years"

    [columns.smoker]
    kind = "categorical"
    categories = ["never", "former", "current"]
    missing = "category"
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import numpy as np
import pandas as pd

from distcondense.errors import SchemaError

Kind = Literal["continuous", "integer", "binary", "categorical"]
Missing = Literal["refuse", "constant", "category", "indicator"]
Spacing = Literal["linear", "log"]
Label = str | int | float | bool
FORMAT = 1
MAX_WHOLE = 2**53  # beyond it a float is always whole, and not every whole number is a float
MAX_INFERRED_CATEGORIES = 100  # more distinct texts than this look like identifiers or free text
MAX_SURE_IDENTIFIERS = 20  # more dates, addresses, long numbers than this are no list of categories
MAX_CATEGORIES = 1000  # of whatever shape: nobody lists more answers than this
_SURE = re.compile(
    r"[^\s@]+@[^\s@]+|[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}|\d{6,}"
    r"|\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}",
    re.IGNORECASE,
)


def plain_value(value: Any) -> Any:
    """NumPy scalars as Python ones; whole floats as int, so that 1.0 and 1 are one label."""
    if isinstance(value, np.generic):
        value = value.item()
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True)
class Column:
    """One column's public description.

    `missing`: "refuse" (default), "constant" (missing values become the public `fill`), "category" (missing is a
    category of its own) or "indicator" (numbers: a 0/1 column beside it, the value itself set to `fill`, which
    defaults to the middle of the bounds). `spacing`: "log" for a skewed number (money, counts, concentrations), most of
    whose values lie near `low`; the private method then cuts its public cells finer there.
    `ordered`: the categories are listed in their natural order (stages, grades), which the private method uses.
    `decimals`: released numbers are rounded to so many digits after the point, as they are measured.
    """

    name: str
    kind: Kind
    low: float | None = None
    high: float | None = None
    categories: tuple[Label, ...] = ()
    unit: str = ""
    missing: Missing = "refuse"
    fill: Label | None = None
    spacing: Spacing = "linear"
    ordered: bool = False
    decimals: int | None = None

    @property
    def numeric(self) -> bool:
        return self.kind in ("continuous", "integer")

    @property
    def middle(self) -> float:
        """The public value that stands in for a missing number where no `fill` is given."""
        if self.low is None or self.high is None:
            return 0.0
        middle = (self.low + self.high) / 2
        return float(round(middle)) if self.kind == "integer" else middle

    def rounded(self, values: Any) -> Any:
        """Numbers as this column writes them."""
        if self.kind == "integer":
            return np.round(values)
        return values if self.decimals is None else np.round(values, self.decimals)

    def problems(self) -> list[str]:
        """Everything wrong with this description, all at once."""
        if self.kind not in get_args(Kind):
            return [f"kind must be one of {', '.join(get_args(Kind))}. Found {self.kind!r}"]
        found = [f"{key} must be a number. Found {value!r}" for key, value in (("low", self.low), ("high", self.high))
                 if value is not None and not _is_number(value)]  # fmt: skip
        if not isinstance(self.unit, str):
            found.append(f"unit must be text. Found {self.unit!r}")
        if not all(isinstance(c, str | int | float) and c == c for c in self.categories):  # c != c: NaN is a hole
            found.append("categories must be texts, numbers or true/false")
        if self.fill is not None and not (isinstance(self.fill, str | bool) or _is_number(self.fill)):
            found.append(f"fill must be a text, a finite number or true/false. Found {self.fill!r}")
        if found:  # what follows compares and counts them
            return found
        if self.missing not in get_args(Missing):
            found.append(f"missing must be one of {', '.join(get_args(Missing))}. Found {self.missing!r}")
        if self.spacing not in get_args(Spacing):
            found.append(f"spacing must be one of {', '.join(get_args(Spacing))}. Found {self.spacing!r}")
        if not isinstance(self.ordered, bool):
            found.append(f"ordered must be true or false. Found {self.ordered!r}")
        elif self.ordered and self.kind != "categorical":
            found.append("ordered belongs to categorical columns")
        if self.numeric:
            found += self._numeric_problems()
        else:
            found += self._label_problems()
        return found

    def _rounds_out(self) -> bool:
        """Whether a legal number could be rounded to one beyond the bounds."""
        if self.low is None or self.high is None:
            return False
        return bool(self.rounded(self.low) < self.low or self.rounded(self.high) > self.high)

    def _numeric_problems(self) -> list[str]:
        found = []
        if self.categories:
            found.append("categories belong to binary and categorical columns")
        if (self.low is None) != (self.high is None):
            found.append("low and high go together")
        elif self.low is not None and self.high is not None:
            if not self.low < self.high:
                found.append(f"low must be below high. Found low = {self.low}, high = {self.high}")
            elif self.kind == "integer" and math.ceil(self.low) > math.floor(self.high):
                found.append(f"no whole number lies within the bounds. Found low = {self.low}, high = {self.high}")
        if self.spacing == "log" and self.low is None:
            found.append('spacing = "log" needs low and high')
        if self.decimals is not None and not (type(self.decimals) is int and 0 <= self.decimals <= 12):
            found.append(f"decimals must be a whole number from 0 to 12. Found {self.decimals!r}")
        elif self.decimals and self.kind == "integer":
            found.append("decimals belong to continuous columns")
        elif self.decimals is not None and not found and self._rounds_out():
            found.append("low and high must have no more decimals than the column")
        if self.missing == "category":
            found.append('missing = "category" is for categorical columns; use "indicator"')
        number = _is_number(self.fill)
        if self.missing == "constant" and not number:
            found.append('missing = "constant" needs a number as fill')
        elif self.missing == "indicator" and self.fill is not None and not number:
            found.append(f'the fill of missing = "indicator" must be a number. Found {self.fill!r}')
        if self.missing == "constant" and number and not found:  # a released row holds it, so it must be a legal value
            if self.low is not None and self.high is not None and not self.low <= self.fill <= self.high:  # type: ignore[operator]
                found.append(f"fill must be within the bounds. Found {self.fill}")
            if self.kind == "integer" and self.fill != round(self.fill):  # type: ignore[arg-type]
                found.append(f"fill of an integer column must be whole. Found {self.fill}")
        return found

    def _label_problems(self) -> list[str]:
        found = []
        if self.low is not None or self.high is not None:
            found.append("low and high belong to continuous and integer columns")
        if self.decimals is not None:
            found.append("decimals belong to continuous columns")
        if self.spacing != "linear":
            found.append("spacing belongs to continuous and integer columns")
        if len(set(self.categories)) != len(self.categories):
            found.append("categories must not repeat")
        if self.kind == "binary" and len(self.categories) != 2:
            found.append(f"a binary column needs two categories, the negative first. Found {len(self.categories)}")
        if self.kind == "categorical" and not self.categories:
            found.append("a categorical column needs its list of categories")
        if self.missing == "indicator":
            found.append('missing = "indicator" is for numbers; use "category"')
        if self.kind == "binary" and self.missing == "category":
            found.append('a binary column has no third category; make it categorical, or use missing = "constant"')
        if self.missing == "constant" and self.fill not in self.categories:
            found.append('missing = "constant" needs one of the categories as fill')
        return found

    def to_dict(self) -> dict[str, Any]:
        """What TOML holds: only what differs from the defaults."""
        plain = {f.name: f.default for f in fields(self)}
        out = {k: v for k, v in asdict(self).items() if k not in ("name", "fill") and v != plain[k]}
        if self.fill is not None:  # not compared with ==: the text "refuse" or "" is a legal fill
            out["fill"] = self.fill
        return {k: [plain_value(x) for x in v] if isinstance(v, tuple) else v for k, v in out.items()}


@dataclass(frozen=True)
class Schema:
    """The public description of a table: its columns, in order, and where the knowledge came from."""

    columns: tuple[Column, ...]
    origin: Literal["declared", "inferred"] = "declared"
    notes: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        found = [f"[columns.{c.name}] {p}" for c in self.columns for p in c.problems()]
        names = [c.name for c in self.columns]
        found += [f"column {n!r} appears twice" for n in sorted({n for n in names if names.count(n) > 1})]
        if not self.columns:
            found.append("no columns")
        if found:
            _refuse_all(found, "schema")

    def __contains__(self, name: str) -> bool:
        return any(c.name == name for c in self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise SchemaError(
            f"column {name!r}", "must be in the schema", found=nearest(name, self.names), fix="add it to the schema"
        )

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    def without(self, names: Iterable[str]) -> Schema:
        drop = set(names)
        return Schema(tuple(c for c in self.columns if c.name not in drop), self.origin, self.notes)

    # -- TOML -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file."""
        try:
            data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise SchemaError(
                f"schema file {path}",
                "must exist",
                found="no such file",
                fix="draft one: distcondense schema infer TABLE",
            ) from None
        except OSError as error:
            raise SchemaError(
                f"schema file {path}", "must be a readable file", found=type(error).__name__, fix="check the path"
            ) from None
        except UnicodeDecodeError:  # its message would quote bytes of whatever file this is
            raise SchemaError(
                f"schema file {path}", "must be text in UTF-8", found="other bytes", fix="save it as UTF-8"
            ) from None
        except tomllib.TOMLDecodeError as error:
            raise SchemaError(
                f"schema file {path}", "must be valid TOML", found=str(error), fix="correct that line"
            ) from None
        return cls.from_dict(data, where=str(path))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "schema") -> Schema:
        """A schema from the parsed TOML; unknown keys are errors that name the nearest legal key."""
        found = unknown_keys(data, {"format", "origin", "columns", "notes"}, "")
        if data.get("format", FORMAT) != FORMAT:
            raise SchemaError(
                where, f"format must be {FORMAT}", found=repr(data["format"]), fix=f"write format = {FORMAT}"
            )
        if data.get("origin", "declared") not in ("declared", "inferred"):
            raise SchemaError(
                where, 'origin must be "declared" or "inferred"', found=repr(data["origin"]), fix="correct that line"
            )
        if not isinstance(data.get("columns", {}), Mapping):
            raise SchemaError(
                where, "columns must be tables", found="another type", fix="write [columns.NAME] sections"
            )
        notes = data.get("notes", [])
        if not isinstance(notes, list | tuple) or not all(isinstance(note, str) for note in notes):
            raise SchemaError(where, "notes must be a list of texts", found="another type", fix='write notes = ["…"]')
        keys = {"kind", "low", "high", "categories", "unit", "missing", "fill", "spacing", "ordered", "decimals"}
        columns = []
        for name, entry in data.get("columns", {}).items():
            section = f"[columns.{name}] "
            if not isinstance(entry, Mapping):
                found.append(f'{section}must be a table, e.g. kind = "continuous"')
                continue
            found += unknown_keys(entry, keys, section)
            if "kind" not in entry:
                found.append(f'{section}must have a kind, e.g. kind = "continuous"')
                continue
            if not isinstance(entry.get("categories", []), list | tuple):
                found.append(f"{section}categories must be a list")
                continue
            values = {key: value for key, value in entry.items() if key in keys}
            values["categories"] = tuple(plain_value(v) for v in entry.get("categories", ()))
            columns.append(Column(name=str(name), **values))
        if found:  # together with what the columns themselves say
            _refuse_all([*found, *(f"[columns.{c.name}] {p}" for c in columns for p in c.problems())], where)
        return cls(tuple(columns), data.get("origin", "declared"), tuple(notes))

    def to_dict(self) -> dict[str, Any]:
        head: dict[str, Any] = {"format": FORMAT, "origin": self.origin}
        if self.notes:
            head["notes"] = list(self.notes)
        return head | {"columns": {c.name: c.to_dict() for c in self.columns}}

    def to_toml(self) -> str:
        import tomli_w  # the standard library reads TOML but does not write it

        text = tomli_w.dumps(self.to_dict())
        if self.origin == "inferred":
            text = (
                "# Drafted from the data. Bounds and categories below were read off patients: they are NOT public\n"
                '# knowledge until a person has checked and edited them. Then set origin = "declared".\n' + text
            )
        return text

    # -- drafting -------------------------------------------------------------------------------------------------

    @classmethod
    def infer(cls, frame: pd.DataFrame, names: Iterable[str] | None = None) -> Schema:
        """A draft read off the data (of these columns), marked as inferred. Bounds are rounded outwards.

        A column of identifiers or free text is left out, and `notes` say so: a draft lists no such value.
        """
        columns, notes = [], []
        for name in frame.columns if names is None else names:
            series = frame[name]
            missing = bool(series.isna().any())
            column = _infer_column(str(name), series.dropna(), missing)
            why = like_identifiers(column.categories)
            if why or len(column.categories) > MAX_INFERRED_CATEGORIES:  # never listed: one may be somebody's name
                notes.append(
                    f"column {name} is left out: {len(column.categories)} different values"
                    f"{f', {why}' if why else ''}; is it an identifier or free text?"
                )
            else:
                columns.append(column)
        if notes and not columns:
            raise SchemaError(
                "table", "must have a column that is no identifier: no column is left to describe",
                found="; ".join(notes), fix="check the table, or write the schema by hand",
            )  # fmt: skip
        return cls(tuple(columns), "inferred", tuple(notes))


def like_identifiers(categories: Sequence[Label]) -> str:
    """Why a list of categories looks like one of identifiers, by its length and the shape of most of its entries.

    Empty where it does not. Not one of them is in the words.
    """
    texts = [str(label).strip() for label in categories]
    most = len(texts) / 2
    if len(texts) > MAX_SURE_IDENTIFIERS and sum(bool(_SURE.fullmatch(text)) for text in texts) > most:
        return "most of them dates, addresses, UUIDs or numbers of six digits or more"
    if len(texts) <= MAX_INFERRED_CATEGORIES:
        return ""
    if sum(len(text) > 3 and any(letter.isdigit() for letter in text) for text in texts) > most:
        return "most of them codes with digits, of four letters or more"
    words = [text.replace(",", " ").split() for text in texts]
    if sum(len(parts) > 1 for parts in words) > most and len({part for parts in words for part in parts}) > most:
        return "most of them several words that seldom occur twice, as in names"
    return "more than anybody lists by hand" if len(texts) > MAX_CATEGORIES else ""


def _label(value: Any) -> Label:
    """A value as TOML can hold it: dates and the like as text."""
    value = plain_value(float(value) if isinstance(value, Decimal) else value)
    return value if isinstance(value, str | int | float) else str(value)


def _infer_column(name: str, present: pd.Series[Any], missing: bool) -> Column:
    numeric = pd.api.types.is_numeric_dtype(present) and not pd.api.types.is_bool_dtype(present)
    if not numeric:
        if not all(map(pd.api.types.is_hashable, present)):
            raise SchemaError(f"column {name!r}", "must hold texts or numbers", found="lists or other nested values",
                              fix="drop it, or make one column of each part")  # fmt: skip
        categories = tuple(sorted({_label(v) for v in present.unique()}, key=str)) or ("unknown",)
        if len(categories) == 2 and not missing:
            return Column(name, "binary", categories=categories)
        return Column(name, "categorical", categories=categories, missing="category" if missing else "refuse")
    values = present.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    if values.size == 0:
        return Column(name, "continuous", low=0.0, high=1.0, missing="indicator")
    whole = bool(np.all(values == np.round(values))) and float(np.abs(values).max()) < MAX_WHOLE
    if whole and set(np.unique(values)) == {0.0, 1.0} and not missing:
        return Column(name, "binary", categories=(0, 1))
    low, high = _round_out(float(values.min()), float(values.max()), whole)
    return Column(
        name, "integer" if whole else "continuous", low=low, high=high, missing="indicator" if missing else "refuse"
    )


def _round_out(low: float, high: float, whole: bool) -> tuple[float, float]:
    """Bounds rounded outwards to two significant digits of the range."""
    span = high - low or max(abs(high), 1.0)
    unit = 10.0 ** math.floor(math.log10(span) - 1)
    if whole:
        unit = max(unit, 1.0)
    lowest, highest = low, high
    low, high = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
    if high <= low:
        high = low + unit
    digits = max(0, -math.floor(math.log10(unit)))
    if whole:
        return int(low), int(high)
    return min(round(low, digits), lowest), max(round(high, digits), highest)  # float rounding may have gone inwards


def nearest(name: str, legal: Iterable[str]) -> str:
    """'no such name (nearest: …)' for error messages."""
    legal = list(legal)
    close = get_close_matches(name, legal, n=1, cutoff=0.5)
    return f"no {name!r}; the nearest is {close[0]!r}" if close else f"no {name!r} among {len(legal)}"


def unknown_keys(data: Mapping[str, Any], legal: set[str], section: str) -> list[str]:
    return [f"{section}unknown key: {nearest(str(key), sorted(legal))}" for key in data if key not in legal]


def _refuse_all(found: list[str], what: str) -> NoReturn:
    shown = found[0] if len(found) == 1 else f"{len(found)} problems:" + "".join(f"\n  - {p}" for p in found)
    raise SchemaError(what, "must describe every column legally", found=shown, fix="edit the schema file")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and bool(np.isfinite(value))
