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
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date, time
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NoReturn, get_args

import numpy as np
import pandas as pd

from distcondense.data.dates import EPOCH, UNITS, Between, at, declared, readable, since
from distcondense.data.relations import Rule, rule_from, rule_problems
from distcondense.data.reserved import MADE_HERE, PREFIX, is_reserved
from distcondense.errors import SchemaError, brief, need
from distcondense.outside import OutsideError, leaves, parse_toml, read_text

Kind = Literal["continuous", "integer", "binary", "categorical", "date", "ignore"]
Missing = Literal["refuse", "constant", "category", "indicator"]
Spacing = Literal["linear", "log"]
Domain = Literal["declared", "private"]
Label = str | int | float | bool
FORMAT = 1
PARTS = ("columns", "outcome", "added")  # of a schema file, each [PART.NAME]
MAX_WHOLE = 2**53  # beyond it a float is always whole, and not every whole number is a float
MOST_NUMBER = 1e18  # of bounds, steps and fills: differences and squares of larger ones leave float32
_BOUND, _STEP = f"must be a number within ±{MOST_NUMBER:g}", "must be a number above 0"
_FILL, _DECIMALS = "must be a text, a finite number or true/false", "must be a whole number from 0 to 12"
_PLAIN = (str, int, float, Decimal, np.number, np.bool_, date, time, NoneType)  # what a file can hold
STEP_SLACK = 1e-6  # of a step: how far from a multiple float64 may put one


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
    `missing_values`: codes that stand for a hole (-9, 999, "?"), read before bounds are checked.
    A date is a whole number of `unit` (days if not said) from a public `origin`, within bounds that are dates; `format`
    is how the table writes it, and how it is written back. `computed`: the column is not in the table, but made of two
    of its dates on reading, `years_between(birth, admitted)`; they may be ignored themselves.
    kind "ignore": it is left out, for a `reason`.
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
    missing_values: tuple[Label, ...] = ()
    format: str = ""
    origin: str = ""
    computed: str = ""
    reason: str = ""

    def __post_init__(self) -> None:
        if not _is_word(self.kind, Kind) or self.kind != "date" or self._type_problems():  # `problems` says so
            return
        start = declared(self.origin or EPOCH)
        unit = self.unit or "days"
        object.__setattr__(self, "origin", self.origin or EPOCH)
        if start is None or unit not in UNITS:
            return
        for key in ("low", "high", "fill"):
            value = getattr(self, key)
            found = None if value is None or _is_number(value) else declared(value)
            if found is not None:
                object.__setattr__(self, key, int(since(found, start, unit)))

    @property
    def searched(self) -> bool:
        """Bounds or categories are found privately, or were: no value is illegal."""
        return self.domain == "private"

    @property
    def unknown(self) -> bool:
        """They are still to be found."""
        return self.searched and (self.low is None if self.numeric else not self.categories)

    @property
    def is_ignored(self) -> bool:
        return isinstance(self.kind, str) and self.kind == "ignore"  # before anything is checked

    @property
    def numeric(self) -> bool:
        return self.kind in ("continuous", "integer", "date")

    @property
    def whole(self) -> bool:
        """Its numbers are whole."""
        return self.kind in ("integer", "date")

    @property
    def released(self) -> Column:
        """Without what only matters to whoever reads the real table."""
        return replace(self, missing_values=(), computed="")

    @property
    def middle(self) -> float:
        """The public value that stands in for a missing number where no `fill` is given."""
        if self.low is None or self.high is None:
            return 0.0
        middle = (self.low + self.high) / 2
        return float(round(middle)) if self.whole else middle

    @property
    def sources(self) -> tuple[str, ...]:
        """What it is computed from."""
        how = Between.parse(self.computed) if isinstance(self.computed, str) else None
        return () if how is None else how.names

    @property
    def keeps_holes(self) -> bool:
        """Whether a released row may have a hole here."""
        return self.missing in ("indicator", "category")

    @property
    def counted_from(self) -> float:
        """Where steps are counted from."""
        if self.low is None or self.step is None:
            return 0.0
        low = float(math.ceil(self.low)) if self.whole else float(self.low)
        return 0.0 if abs(low / self.step - round(low / self.step)) < STEP_SLACK else low

    def rounded(self, values: Any) -> Any:
        """Numbers as this column writes them."""
        if self.step is not None:
            count = np.round((values - self.counted_from) / self.step)
            if self.high is not None:  # the last multiple, not the bound, is the highest legal number
                count = np.minimum(count, np.floor((self.high - self.counted_from) / self.step + STEP_SLACK))
            return np.round(self.counted_from + count * self.step, max(_digits(self.step), _digits(self.counted_from)))
        if self.whole:
            return np.round(values)
        return values if self.decimals is None else np.round(values, self.decimals)

    def problems(self) -> list[str]:
        """Everything wrong with this description, all at once."""
        if found := self._type_problems():  # what follows compares and counts them
            return found
        if self.kind == "ignore":
            return self._ignored_problems()
        found = self._date_problems()
        found += [
            f"{key} {_BOUND}. Found {_said(value)}"
            for key, value in (("low", self.low), ("high", self.high))
            if value is not None and not _is_number(value)
        ]
        if any(code in self.categories for code in self.missing_values):
            found.append("a category must not be among missing_values too")
        if self.fill is not None and not (isinstance(self.fill, str | bool) or _is_number(self.fill)):
            found.append(f"fill {_FILL}. Found {_said(self.fill)}")
        if found:
            return found
        if self.ordered and self.kind != "categorical":
            found.append("ordered belongs to categorical columns")
        if self.searched:
            found += self._private_problems()
        if self.numeric:
            found += self._numeric_problems()
        else:
            found += self._label_problems()
        return found

    def _type_problems(self) -> list[str]:
        """Of fields that are not what they must be, whatever they hold: a caller may have put anything there."""
        found = []
        for key, words in (("kind", Kind), ("missing", Missing), ("spacing", Spacing), ("domain", Domain)):
            if not _is_word(getattr(self, key), words):
                said = _said(getattr(self, key))
                found.append(f"{key} must be one of {', '.join(get_args(words))}. Found {said}")
        found += [
            f"{key} must be text. Found {_said(getattr(self, key))}"
            for key in ("name", "unit", "meaning", "format", "origin", "computed", "reason")
            if not _is_text(getattr(self, key))
        ]
        if not isinstance(self.ordered, bool):
            found.append(f"ordered must be true or false. Found {_said(self.ordered)}")
        if not (isinstance(self.categories, tuple) and all(_is_text(c) or (isinstance(c, int | float) and c == c)
                                                           for c in self.categories)):  # fmt: skip  # c != c: NaN
            found.append("categories must be texts, numbers or true/false")
        if not (
            isinstance(self.missing_values, tuple) and all(_is_text(c) or _is_number(c) for c in self.missing_values)
        ):
            found.append("missing_values must be texts and numbers")
        for key, rule in (("low", _BOUND), ("high", _BOUND), ("fill", _FILL), ("decimals", _DECIMALS), ("step", _STEP)):
            value = getattr(self, key)
            if value is pd.NaT or not isinstance(value, _PLAIN) or (isinstance(value, str) and not _is_text(value)):
                found.append(f"{key} {rule}. Found {_said(value)}")
        return found

    def _ignored_problems(self) -> list[str]:
        plain = {f.name: f.default for f in fields(self)}
        may = {"name", "kind", "reason", "meaning", "format", "missing_values"}  # dates that others are computed from
        extra = sorted(f.name for f in fields(self) if f.name not in may and getattr(self, f.name) != plain[f.name])
        found = [f"{key} says nothing about a column that is ignored" for key in extra]
        return [*found, *self._format_problems()]

    def _format_problems(self) -> list[str]:
        if not self.format or readable(self.format):
            return []
        return [f"format must write dates that can be read again, such as %Y-%m-%d. Found {_said(self.format)}"]

    def _date_problems(self) -> list[str]:
        found = []
        if self.reason:
            found.append('reason belongs to kind = "ignore"')
        if self.computed and Between.parse(self.computed) is None:
            found.append(
                "computed must be years_between(FIRST, SECOND), or months_, days_ or hours_between. "
                f"Found {_said(self.computed)}"
            )
        elif self.computed and not (self.numeric and self.kind != "date"):
            found.append("computed belongs to continuous and integer columns")
        if self.kind != "date":
            if self.format or self.origin:
                found.append('format and origin belong to kind = "date"')
            return found
        if declared(self.origin) is None:
            found.append(f"origin must be a date such as 1970-01-01. Found {_said(self.origin)}")
        if self.unit and self.unit not in UNITS:
            found.append(f"unit of a date must be one of {', '.join(UNITS)}. Found {_said(self.unit)}")
        wrong = [key for key in ("low", "high") if not _is_number(getattr(self, key))]
        if wrong:
            return [*found, f"{' and '.join(wrong)} must be dates such as 2015-01-31"]
        if self.searched or self.decimals is not None or self.step is not None:
            found.append("a date has no decimals and no step, and its bounds are declared")
        found += self._format_problems()
        return found if found else self._calendar_problems()

    def _calendar_problems(self) -> list[str]:
        """Of bounds that were said as numbers, or lie far from the origin."""
        found = []
        for key in ("low", "high", "fill"):
            value = getattr(self, key)
            try:
                if _is_number(value):
                    at(float(value), self)
            except OverflowError:
                found.append(f"{key} must be a date between the years 1 and 9999. Found {_said(value)}")
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
            elif self.whole and max(abs(self.low), abs(self.high)) > MAX_WHOLE:
                found.append(f"bounds of whole numbers must lie within ±{MAX_WHOLE}")
            elif self.whole and math.ceil(self.low) > math.floor(self.high):
                found.append(f"no whole number lies within the bounds. Found low = {self.low}, high = {self.high}")
        if self.spacing == "log" and self.low is None:
            found.append('spacing = "log" needs low and high')
        if self.decimals is not None and not (type(self.decimals) is int and 0 <= self.decimals <= 12):
            found.append(f"decimals {_DECIMALS}. Found {_said(self.decimals)}")
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
            found.append(f'the fill of missing = "indicator" must be a number. Found {_said(self.fill)}')
        if self.missing == "constant" and number and not found:  # a released row holds it, so it must be a legal value
            if self.low is not None and self.high is not None and not self.low <= self.fill <= self.high:  # type: ignore[operator]
                found.append(f"fill must be within the bounds. Found {self.fill}")
            if self.whole and self.fill != round(self.fill):  # type: ignore[arg-type]
                found.append(f"fill of an integer column must be whole. Found {self.fill}")
            elif self.step is not None and self.rounded(self.fill) != self.fill:
                found.append(f"fill must be a multiple of the step. Found {self.fill}")
        return found

    def _step_problems(self) -> list[str]:
        if not _is_number(self.step) or not self.step > 0:  # type: ignore[operator]
            return [f"step {_STEP}. Found {_said(self.step)}"]
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
        if self.kind == "date":
            out |= {
                key: at(float(value), self).isoformat().removesuffix("T00:00:00")
                for key, value in (("low", self.low), ("high", self.high), ("fill", self.fill))
                if value is not None
            }
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
    ignored: tuple[Column, ...] = ()  # kind "ignore": whatever they hold is nobody's business

    def __post_init__(self) -> None:
        for part in (*PARTS, "ignored"):
            need(getattr(self, part), tuple, part, "a tuple of Columns", fix="Schema((Column(…), …))")
            for column in getattr(self, part):
                need(column, Column, part, "a tuple of Columns", fix="Schema((Column(…), …))")
                need(column.name, str, "column name", "a text")
        for part, kinds, words in (("rules", Rule, "a tuple of rules"), ("notes", str, "a tuple of texts")):
            need(getattr(self, part), tuple, part, words)
            for one in getattr(self, part):
                need(one, kinds, part, words)
        if not (isinstance(self.origin, str) and self.origin in ("declared", "inferred")):
            raise SchemaError(
                "origin", 'must be "declared" or "inferred"', found=_said(self.origin), fix="leave it out: declared"
            )
        aside = tuple(c for c in self.columns if c.is_ignored)
        if aside:
            object.__setattr__(self, "columns", tuple(c for c in self.columns if not c.is_ignored))
            object.__setattr__(self, "ignored", (*self.ignored, *aside))
        parts = {name: getattr(self, name) for name in PARTS}
        found = [f"[{part}.{c.name}] {p}" for part, columns in parts.items() for c in columns for p in c.problems()]
        found += [
            f"[columns.{c.name}] names that begin with {PREFIX} are our own: {MADE_HERE}"
            for c in self.columns
            if is_reserved(c.name)
        ]
        found += [f"[columns.{c.name}] {p}" for c in self.ignored for p in c.problems()]
        found += self._source_problems() if not found else []
        names = [c.name for c in (*self.columns, *self.ignored)]
        found += [f"column {n!r} appears twice" for n in sorted({n for n in names if names.count(n) > 1})]
        if not self.columns:
            found.append("no columns")
        if self.rules and not found:
            found = rule_problems(self.rules, {c.name: c for c in self.columns}, lambda name: nearest(name, names))
        if found:
            _refuse_all(found, "schema")

    def _source_problems(self) -> list[str]:
        """Of columns that are computed from others, and of rules about dates."""
        dates = {c.name: c for c in self.columns if c.kind == "date"}
        known = {*dates, *(c.name for c in self.ignored)}
        found = [
            f"[columns.{c.name}] computed needs {source!r} in the schema, as kind date or ignore"
            for c in self.columns
            for source in c.sources
            if source not in known
        ]
        for number, rule in enumerate(self.rules, 1):
            scales = {(dates[name].origin, dates[name].unit or "days") for name in rule.names if name in dates}
            if len(scales) > 1:
                found.append(f"[[rules]] {number}: its dates must have one origin and one unit")
        return found

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
    def every(self) -> list[str]:
        """Every name that it describes: features, outcome, our own columns and what is ignored."""
        return [c.name for c in (*self.columns, *self.outcome, *self.added, *self.ignored)]

    @property
    def features(self) -> Schema:
        """Of what models learn from, and nothing else: what is computed is there."""
        columns = tuple(replace(c, computed="") if c.computed else c for c in self.columns)
        return replace(self, columns=columns, outcome=(), added=(), ignored=())

    @property
    def released(self) -> Schema:
        """What may go with a condensed table: nothing about columns that were left out."""
        return replace(self, columns=tuple(c.released for c in self.columns), ignored=())

    @property
    def in_table(self) -> list[str]:
        """Names that a table must have: what is computed is not there, what it is computed from is."""
        own = [c.name for c in self.columns if not c.computed]
        return list(dict.fromkeys([*own, *(source for c in self.columns for source in c.sources)]))

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
        _refuse_what_no_file_holds(data, where)
        found = unknown_keys(data, {"format", "origin", "notes", "rules", "missing_values", *PARTS}, "")
        if data.get("format", FORMAT) != FORMAT:
            raise SchemaError(
                where, f"format must be {FORMAT}", found=repr(data["format"]), fix=f"write format = {FORMAT}"
            )
        if data.get("origin", "declared") not in ("declared", "inferred"):
            raise SchemaError(
                where, 'origin must be "declared" or "inferred"', found=repr(data["origin"]), fix="correct that line"
            )
        if not isinstance(data.get("missing_values", []), list | tuple):
            raise SchemaError(
                where, "missing_values must be a list", found="another type", fix='write missing_values = [-9, "?"]'
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
        parts["columns"] |= {c.name: c.to_dict() for c in self.ignored}
        return head | {part: columns for part, columns in parts.items() if columns} | rules

    def to_toml(self, comments: Mapping[str, str] | None = None) -> str:
        """As a file; `comments`: lines below the section of a column."""
        import tomli_w  # the standard library reads TOML but does not write it

        said = self.to_dict()
        pieces = [{key: value for key, value in said.items() if key not in (*PARTS, "rules")}]
        pieces += [{part: {name: entry}} for part in PARTS for name, entry in said.get(part, {}).items()]
        pieces += [{"rules": said["rules"]}] if self.rules else []
        below = {name: "".join(f"# {line}\n" for line in text.splitlines()) for name, text in (comments or {}).items()}
        text = "\n".join(
            tomli_w.dumps(piece) + "".join(below.get(name, "") for name in piece.get("columns", ())) for piece in pieces
        )
        if self.origin == "inferred":
            text = (
                "# Drafted from the data. Bounds and categories below were read off patients: they are NOT public\n"
                '# knowledge until a person has checked and edited them. Then set origin = "declared".\n' + text
            )
        return text

    @classmethod
    def infer(cls, frame: pd.DataFrame, names: Iterable[str] | None = None) -> Schema:
        """A draft read off the data (of these columns), marked as inferred (data/draft.py)."""
        from distcondense.data.draft import draft
        from distcondense.data.tables import as_frame

        return draft(as_frame(frame), names, codes=False).schema


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
        own = entry.get("missing_values", ())
        if not isinstance(own, list | tuple):
            found.append(f"{section}missing_values must be a list")
            continue
        for_all = [] if part != "columns" or entry["kind"] == "ignore" else data.get("missing_values", [])
        codes = [
            *map(plain_value, own),
            *(plain_value(v) for v in for_all if plain_value(v) not in values["categories"]),
        ]
        values["missing_values"] = tuple(code for k, code in enumerate(codes) if code not in codes[:k])
        columns.append(Column(name=str(name), **values))
    return tuple(columns)


def _refuse_what_no_file_holds(data: Mapping[str, Any], where: str) -> None:
    """Frames, arrays and the like compare element by element: what follows would trip over them, wherever they are."""
    try:
        odd = next((one for one in leaves(data) if one is pd.NaT or not isinstance(one, _PLAIN)), None)
    except OutsideError as error:
        raise SchemaError(where, "must be within bounds", found=str(error), fix="write flat tables") from None
    if odd is not None:
        raise SchemaError(
            where,
            "must be made of texts, numbers, dates, lists and tables",
            found=f"a {type(odd).__name__}",
            fix="write what a schema file can hold",
        )


def _said(value: Any) -> str:
    """What was given, in a message: a table or a list may hold patients, and is said by its type."""
    if isinstance(value, int):  # Python writes no more than 4,300 digits, which `brief` knows
        return brief(value)
    return brief(repr(value)) if isinstance(value, str | float | None) else f"a {type(value).__name__}"


def _is_text(value: Any) -> bool:
    """A text that a file can hold: no half of a pair of UTF-16 is in it."""
    return isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value


def _is_word(value: Any, words: Any) -> bool:
    """One of a `Literal`'s words; anything at all may have been given."""
    return isinstance(value, str) and value in get_args(words)


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
        wrong.append(f'bounds can only be "private"; else write low and high. Found {_said(entry["bounds"])}')
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
