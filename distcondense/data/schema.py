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

Relations between columns stand beside them, `[[rules]]` (data/relations.py).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

import numpy as np
import pandas as pd

from distcondense.arrays import Floats
from distcondense.data.ours import MADE_HERE, PREFIX, ours, refuse_ours
from distcondense.data.relations import Rule, rule_from, rule_problems
from distcondense.errors import SchemaError, brief, need
from distcondense.outside import OutsideError, parse_toml, read_text

Kind = Literal["continuous", "integer", "binary", "categorical"]
Missing = Literal["refuse", "constant", "category", "indicator"]
Spacing = Literal["linear", "log"]
Domain = Literal["declared", "private"]
Label = str | int | float | bool
FORMAT = 1
PARTS = ("columns", "outcome", "added")  # of a schema file, each [PART.NAME]
MAX_WHOLE = 2**53  # beyond it a float is always whole, and not every whole number is a float
MOST_NUMBER = 1e18  # of bounds, steps and fills: differences and squares of larger ones leave float32
MAX_INFERRED_CATEGORIES = 100  # more distinct texts than this look like identifiers or free text
MAX_SURE_IDENTIFIERS = 20  # more dates, addresses, long numbers than this are no list of categories
MAX_INFERRED_DECIMALS = 6
STEP_SLACK = 1e-6  # of a step: how far from a multiple float64 may put one
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
    `decimals`: released numbers are rounded to so many digits after the point, as they are measured. `step`: they are
    multiples of it (doses of 5, half points), counted from 0 where `low` is one of them, else from `low`.
    `domain`: "private" where nobody knows bounds or categories (in TOML: bounds = "private", categories = "private").
    The private method then finds them with noise and pays for them; what it releases names what it found, and keeps the
    word. Found categories are texts, the last of them stands for all others, and numbers beyond found bounds are moved
    to them. `meaning`: what it is, in words for whoever gets the table.
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
    step: float | None = None
    domain: Domain = "declared"
    meaning: str = ""

    @property
    def searched(self) -> bool:
        """Bounds or categories are found privately, or were: no value is illegal."""
        return self.domain == "private"

    @property
    def unknown(self) -> bool:
        """They are still to be found."""
        return self.searched and (self.low is None if self.numeric else not self.categories)

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

    @property
    def keeps_holes(self) -> bool:
        """Whether a released row may have a hole here."""
        return self.missing in ("indicator", "category")

    @property
    def origin(self) -> float:
        """Where steps are counted from."""
        if self.low is None or self.step is None:
            return 0.0
        low = float(math.ceil(self.low)) if self.kind == "integer" else float(self.low)
        return 0.0 if abs(low / self.step - round(low / self.step)) < STEP_SLACK else low

    def rounded(self, values: Any) -> Any:
        """Numbers as this column writes them."""
        if self.step is not None:
            count = np.round((values - self.origin) / self.step)
            if self.high is not None:  # the last multiple, not the bound, is the highest legal number
                count = np.minimum(count, np.floor((self.high - self.origin) / self.step + STEP_SLACK))
            return np.round(self.origin + count * self.step, max(_digits(self.step), _digits(self.origin)))
        if self.kind == "integer":
            return np.round(values)
        return values if self.decimals is None else np.round(values, self.decimals)

    def problems(self) -> list[str]:
        """Everything wrong with this description, all at once."""
        if self.kind not in get_args(Kind):
            return [f"kind must be one of {', '.join(get_args(Kind))}. Found {self.kind!r}"]
        rule = f"must be a number within ±{MOST_NUMBER:g}"
        found = [f"{key} {rule}. Found {brief(value)}" for key, value in (("low", self.low), ("high", self.high))
                 if value is not None and not _is_number(value)]  # fmt: skip
        texts = {"unit": self.unit, "meaning": self.meaning}
        found += [f"{key} must be text. Found {value!r}" for key, value in texts.items() if not isinstance(value, str)]
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
        if self.domain not in get_args(Domain):
            found.append(f"domain must be one of {', '.join(get_args(Domain))}. Found {self.domain!r}")
        elif self.searched:
            found += self._private_problems()
        if self.numeric:
            found += self._numeric_problems()
        else:
            found += self._label_problems()
        return found

    def _private_problems(self) -> list[str]:
        if self.kind == "binary":
            return ["a binary column needs its two categories: they cannot be private"]
        found = []
        if self.ordered:
            found.append("ordered needs categories that are declared in their order")
        if self.unknown and self.step is not None:
            found.append("step needs declared bounds")
        if self.unknown and not self.numeric and self.missing == "constant":
            found.append('missing = "constant" needs declared categories; use "category"')
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
        if self.step is not None:
            found += self._step_problems()
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
            elif self.step is not None and self.rounded(self.fill) != self.fill:
                found.append(f"fill must be a multiple of the step. Found {self.fill}")
        return found

    def _step_problems(self) -> list[str]:
        if not _is_number(self.step) or not self.step > 0:  # type: ignore[operator]
            return [f"step must be a number above 0. Found {self.step!r}"]
        found = []
        if self.decimals is not None:
            found.append("decimals and step exclude each other")
        if self.kind == "integer" and self.step != round(self.step):  # type: ignore[arg-type]
            found.append(f"step of an integer column must be whole. Found {self.step}")
        if _is_number(self.low) and _is_number(self.high) and self.low + self.step > self.high:  # type: ignore[operator]
            found.append(f"step must fit between low and high. Found {self.step}")
        return found

    def _label_problems(self) -> list[str]:
        found = []
        if self.low is not None or self.high is not None:
            found.append("low and high belong to continuous and integer columns")
        if self.decimals is not None:
            found.append("decimals belong to continuous columns")
        if self.step is not None:
            found.append("step belongs to continuous and integer columns")
        if self.spacing != "linear":
            found.append("spacing belongs to continuous and integer columns")
        if len(set(self.categories)) != len(self.categories):
            found.append("categories must not repeat")
        if self.kind == "binary" and len(self.categories) != 2:
            found.append(f"a binary column needs two categories, the negative first. Found {len(self.categories)}")
        if self.kind == "categorical" and not self.categories and not self.unknown:
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
        if self.unknown:
            out.pop("domain")
            out["bounds" if self.numeric else "categories"] = "private"
        return {k: [plain_value(x) for x in v] if isinstance(v, tuple) else v for k, v in out.items()}


@dataclass(frozen=True)
class Schema:
    """The public description of a table: its columns, in order, and where the knowledge came from.

    That of a condensed table also describes its `outcome` and the columns that were `added` to it, apart from the
    columns that models learn from.
    """

    columns: tuple[Column, ...]
    origin: Literal["declared", "inferred"] = "declared"
    notes: tuple[str, ...] = field(default=(), compare=False)
    rules: tuple[Rule, ...] = ()
    outcome: tuple[Column, ...] = ()
    added: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        parts = {name: getattr(self, name) for name in PARTS}
        found = [f"[{part}.{c.name}] {p}" for part, columns in parts.items() for c in columns for p in c.problems()]
        found += [f"[columns.{c.name}] names that begin with {PREFIX} are our own: {MADE_HERE}"
                  for c in self.columns if ours(c.name)]  # fmt: skip
        names = [c.name for c in self.columns]
        found += [f"column {n!r} appears twice" for n in sorted({n for n in names if names.count(n) > 1})]
        if not self.columns:
            found.append("no columns")
        if self.rules and not found:
            found = rule_problems(self.rules, {c.name: c for c in self.columns}, lambda name: nearest(name, names))
        if found:
            _refuse_all(found, "schema")

    def __contains__(self, name: str) -> bool:
        return any(c.name == name for c in (*self.columns, *self.outcome))

    def __getitem__(self, name: str) -> Column:
        for column in (*self.columns, *self.outcome):
            if column.name == name:
                return column
        raise SchemaError(
            f"column {name!r}", "must be in the schema", found=nearest(name, self.names), fix="add it to the schema"
        )

    @property
    def names(self) -> list[str]:
        return [c.name for c in self.columns]

    @property
    def features(self) -> Schema:
        """Of what models learn from, and nothing else."""
        return replace(self, outcome=(), added=())

    def without(self, names: Iterable[str]) -> Schema:
        drop = set(names)
        return self.only(name for name in self.names if name not in drop)

    def only(self, names: Iterable[str]) -> Schema:
        """These columns, in the schema's order, and the rules about them alone."""
        keep = set(names)
        rules = tuple(rule for rule in self.rules if rule.names <= keep)
        return replace(self, columns=tuple(c for c in self.columns if c.name in keep), rules=rules)

    def described(self, columns: Iterable[Column]) -> Schema:
        """With these descriptions of its columns instead; a rule that no longer fits them (a category gone) goes."""
        new = {c.name: c for c in columns}
        own = {c.name: new.get(c.name, c) for c in self.columns}
        rules = tuple(rule for rule in self.rules if not rule.problems(own))
        return replace(self, columns=tuple(own.values()), rules=rules)

    # -- TOML -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_toml(cls, path: str | Path) -> Schema:
        """Read a schema file."""
        need(path, (str, Path), "schema file", "a path")
        what = f"schema file {brief(path)}"
        if not os.path.lexists(path):
            raise SchemaError(
                what, "must exist", found="no such file", fix="draft one: distcondense schema infer TABLE"
            )
        try:
            data = parse_toml(read_text(path, what, SchemaError))
        except OutsideError as error:
            raise SchemaError(what, "must be valid TOML", found=str(error), fix="correct that line") from None
        return cls.from_dict(data, where=brief(path))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "schema") -> Schema:
        """A schema from the parsed TOML; unknown keys are errors that name the nearest legal key."""
        need(data, Mapping, where, "a table")
        found = unknown_keys(data, {"format", "origin", "notes", "rules", *PARTS}, "")
        if data.get("format", FORMAT) != FORMAT:
            raise SchemaError(
                where, f"format must be {FORMAT}", found=repr(data["format"]), fix=f"write format = {FORMAT}"
            )
        if data.get("origin", "declared") not in ("declared", "inferred"):
            raise SchemaError(
                where, 'origin must be "declared" or "inferred"', found=repr(data["origin"]), fix="correct that line"
            )
        notes = data.get("notes", [])
        if not isinstance(notes, list | tuple) or not all(isinstance(note, str) for note in notes):
            raise SchemaError(where, "notes must be a list of texts", found="another type", fix='write notes = ["…"]')
        parts = {part: _columns_in(data, part, found, where) for part in PARTS}
        rules = []
        if not isinstance(data.get("rules", []), list | tuple):
            raise SchemaError(where, "rules must be a list of tables", found="another type", fix="write [[rules]]")
        for number, entry in enumerate(data.get("rules", []), 1):
            try:
                rules.append(rule_from(entry))
            except SchemaError as error:
                found.append(f"[[rules]] {number}: {error}")
        if found:  # together with what the columns themselves say
            own = [f"[{part}.{c.name}] {p}" for part, columns in parts.items() for c in columns for p in c.problems()]
            _refuse_all([*found, *own], where)
        return cls(origin=data.get("origin", "declared"), notes=tuple(notes), rules=tuple(rules), **parts)

    def to_dict(self) -> dict[str, Any]:
        head: dict[str, Any] = {"format": FORMAT, "origin": self.origin}
        if self.notes:
            head["notes"] = list(self.notes)
        rules = {"rules": [rule.to_dict() for rule in self.rules]} if self.rules else {}
        parts = {part: {c.name: c.to_dict() for c in getattr(self, part)} for part in PARTS}
        return head | {part: columns for part, columns in parts.items() if columns} | rules

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
        refuse_ours(frame.columns)
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
    if pd.api.types.is_complex_dtype(present):
        raise SchemaError(f"column {name!r}", "must hold texts or real numbers", found="complex numbers",
                          fix="make two columns of it, or drop it")  # fmt: skip
    if not numeric:
        if not all(map(pd.api.types.is_hashable, present)):
            raise SchemaError(f"column {name!r}", "must hold texts or numbers", found="lists or other nested values",
                              fix="drop it, or make one column of each part")  # fmt: skip
        categories = tuple(sorted({_label(v) for v in present.astype(object).unique()}, key=str)) or ("unknown",)
        if len(categories) == 2 and not missing:
            return Column(name, "binary", categories=categories)
        return Column(name, "categorical", categories=categories, missing="category" if missing else "refuse")
    values = present.to_numpy(dtype=np.float64)
    values = values[np.isfinite(values)]
    if values.size and float(np.abs(values).max()) > MOST_NUMBER / 10:
        raise SchemaError(f"column {name!r}", f"numbers must lie within ±{MOST_NUMBER / 10:g}", found="larger ones",
                          fix="correct the rows, or divide them by a unit")  # fmt: skip
    if values.size == 0:
        return Column(name, "continuous", low=0.0, high=1.0, missing="indicator")
    whole = bool(np.all(values == np.round(values))) and float(np.abs(values).max()) < MAX_WHOLE
    if whole and set(np.unique(values)) == {0.0, 1.0} and not missing:
        return Column(name, "binary", categories=(0, 1))
    decimals = None if whole else _decimals(values, np.float32 if present.dtype == np.float32 else np.float64)
    low, high = _round_out(float(values.min()), float(values.max()), whole, decimals)
    column = Column(
        name, "integer" if whole else "continuous", low=low, high=high, missing="indicator" if missing else "refuse",
        decimals=decimals,
    )  # fmt: skip
    return replace(column, decimals=None) if column.problems() else column


def _decimals(values: Floats, own: Any) -> int | None:
    """The fewest digits after the point that all values have; None where six are not enough."""
    if float(np.abs(values).max()) * 10.0**MAX_INFERRED_DECIMALS > MAX_WHOLE:
        return None
    digits = range(MAX_INFERRED_DECIMALS + 1)
    return next((d for d in digits if np.array_equal(np.round(values, d).astype(own), values.astype(own))), None)


def _round_out(low: float, high: float, whole: bool, decimals: int | None = None) -> tuple[float, float]:
    """Bounds rounded outwards to two significant digits of the range, and no more decimals than the column has."""
    span = high - low or max(abs(high), 1.0)
    unit = 10.0 ** math.floor(math.log10(span) - 1)
    if whole or decimals is not None:
        unit = max(unit, 10.0 ** -(decimals or 0))
    lowest, highest = low, high
    low, high = math.floor(low / unit) * unit, math.ceil(high / unit) * unit
    if high <= low:
        high = low + unit
    digits = max(0, -math.floor(math.log10(unit)))
    if whole:
        return int(low), int(high)
    return min(round(low, digits), lowest), max(round(high, digits), highest)  # float rounding may have gone inwards


def _columns_in(data: Mapping[str, Any], part: str, found: list[str], where: str) -> tuple[Column, ...]:
    """The columns that one part of a schema file describes; what is wrong with how they are written goes to `found`."""
    if not isinstance(data.get(part, {}), Mapping):
        raise SchemaError(where, f"{part} must be tables", found="another type", fix=f"write [{part}.NAME] sections")
    keys = {entry.name for entry in fields(Column)} - {"name"}
    columns = []
    for name, entry in data.get(part, {}).items():
        section = f"[{part}.{name}] "
        if not isinstance(entry, Mapping):
            found.append(f'{section}must be a table, e.g. kind = "continuous"')
            continue
        entry, wrong = _private_words(entry)
        found += [f"{section}{problem}" for problem in wrong]
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
    return tuple(columns)


def nearest(name: str, legal: Iterable[str]) -> str:
    """'no such name (nearest: …)' for error messages."""
    legal = list(legal)
    close = get_close_matches(name, legal, n=1, cutoff=0.5)
    return f"no {name!r}; the nearest is {close[0]!r}" if close else f"no {name!r} among {len(legal)}"


def unknown_keys(data: Mapping[str, Any], legal: set[str], section: str) -> list[str]:
    return [f"{section}unknown key: {nearest(str(key), sorted(legal))}" for key in data if key not in legal]


def _private_words(entry: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """bounds = "private" and categories = "private" as the one field they stand for; and what is wrong with them."""
    numeric = entry.get("kind") in ("continuous", "integer")
    word, other = ("bounds", "categories") if numeric else ("categories", "bounds")
    wrong = []
    if "bounds" in entry and entry["bounds"] != "private":
        wrong.append(f'bounds can only be "private"; else write low and high. Found {entry["bounds"]!r}')
    elif entry.get(other) == "private":
        wrong.append(f'{other} = "private" belongs to {"categorical" if numeric else "continuous and integer"} columns')
    elif entry.get(word) == "private" and ("low" in entry or "high" in entry):
        wrong.append('bounds = "private" and low or high exclude each other')
    private = "private" in (entry.get("bounds"), entry.get("categories"))
    rest = {k: v for k, v in entry.items() if k != "bounds" and not (k == "categories" and v == "private")}
    return (rest | {"domain": "private"} if private else rest), wrong


def _refuse_all(found: list[str], what: str) -> NoReturn:
    shown = found[0] if len(found) == 1 else f"{len(found)} problems:" + "".join(f"\n  - {p}" for p in found)
    raise SchemaError(what, "must describe every column legally", found=shown, fix="edit the schema file")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, int | float | np.number):
        return False
    size: Any = value.real
    return not isinstance(value, np.complexfloating) and bool(abs(size) <= MOST_NUMBER)  # NaN is not


def _digits(number: float) -> int:
    """Digits after the point, at most 12, of a number as it is written."""
    exponent = Decimal(repr(float(number))).normalize().as_tuple().exponent
    return min(max(0, -exponent), 12) if isinstance(exponent, int) else 0
