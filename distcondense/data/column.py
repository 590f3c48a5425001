"""`Column`: one column's public description, how it rounds numbers, and everything that can be wrong with it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from datetime import date, time
from decimal import Decimal
from types import NoneType
from typing import Any, Literal, TypeGuard, get_args

import numpy as np
import pandas as pd

from distcondense.data.dates import EPOCH, UNITS, Between, at, declared, readable, since
from distcondense.errors import brief

Kind = Literal["continuous", "integer", "binary", "categorical", "date", "ignore"]
Missing = Literal["refuse", "constant", "category", "indicator"]
Spacing = Literal["linear", "log"]
Domain = Literal["declared", "private"]
OutOfRange = Literal["refuse", "clip", "missing"]
Label = str | int | float | bool
MAX_WHOLE = 2**53  # beyond it a float is always whole, and not every whole number is a float
MOST_NUMBER = 1e18  # of bounds, steps and fills: differences and squares of larger ones leave float32
PLAIN = (str, int, float, Decimal, np.number, np.bool_, date, time, NoneType)  # what a file can hold
STEP_SLACK = 1e-6  # of a step: how far from a multiple float64 may put one
_WORDS = {"kind": Kind, "missing": Missing, "spacing": Spacing, "domain": Domain, "out_of_range": OutOfRange}
_TEXTS = ("name", "unit", "meaning", "format", "origin", "computed", "reason")
_BOUND = f"must be a number within ±{MOST_NUMBER:g}"
_NUMBERS = {
    "low": _BOUND,
    "high": _BOUND,
    "fill": "must be a text, a finite number or true/false",
    "decimals": "must be a whole number from 0 to 12",
    "step": "must be a number above 0",
}
_OF_IGNORED = {"name", "kind", "reason", "meaning", "format", "missing_values", "inferred"}  # dates may be a source


@dataclass(frozen=True)
class Column:
    """One column's public description.

    Nothing is checked when it is made: a `Schema` refuses all that is wrong with all of its columns at once.

    Parameters
    ----------
    name : str
        As the table's header writes it.
    kind : {"continuous", "integer", "binary", "categorical", "date", "ignore"}
        What it holds. "ignore": it is left out, for a `reason`.
    low, high : float, optional
        Bounds that are known without any patient; of a date, dates such as "2015-01-31".
    categories : tuple of str, int, float or bool
        All labels that may occur; of a binary column two, the negative first.
    unit : str
        Of a number; of a date "days" (the default), "hours", "minutes" or "seconds".
    missing : {"refuse", "constant", "category", "indicator"}
        What becomes of holes: they are refused; they become the public `fill`; they are a category of their own; or
        (numbers) there is a 0/1 column beside it and the value itself is `fill`.
    fill : str, int, float or bool, optional
        Stands for a hole; where it is not given, the middle of the bounds does.
    spacing : {"linear", "log"}
        "log" for a skewed number (money, counts, concentrations), most of whose values lie near `low`: the private
        method then cuts its public cells finer there.
    ordered : bool
        The categories are listed in their natural order (stages, grades), which the private method uses.
    decimals : int, optional
        Released numbers are rounded to so many digits after the point, as they are measured.
    step : float, optional
        Released numbers are multiples of it (doses of 5, half points), counted from 0 where `low` is one of them, else
        from `low`.
    domain : {"declared", "private"}
        "private" where nobody knows bounds or categories (in TOML: bounds = "private", categories = "private"). The
        private method then finds them with noise and pays for them; what it releases names what it found, and keeps
        the word. Found categories are texts, the last of them stands for all others, and numbers beyond found bounds
        are moved to them.
    meaning : str
        What it is, in words for whoever gets the table.
    missing_values : tuple of str, int or float
        Codes that stand for a hole (-9, 999, "?"), read before bounds are checked.
    out_of_range : {"refuse", "clip", "missing"}
        What becomes of a value that bounds, kind or categories do not allow, in its own row alone: the table is
        refused; (numbers) it is moved to the nearest legal one, and what is no number is a hole; or it is a hole.
    censored : bool
        A number may stand behind the sign of a limit ("<0.01", ">200", "≤ 5"), and is then read as that number.
    format, origin : str
        Of a date: how the table writes it, and is written back; and the public day that whole units are counted from.
    computed : str
        The column is not in the table, but made of two of its dates on reading: `years_between(birth, admitted)`. They
        may be ignored themselves.
    reason : str
        Why a column is ignored.
    inferred : tuple of str
        Of the fields above those that were read off patients and that nobody has confirmed yet.

    Examples
    --------
    >>> import distcondense as dc
    >>> age = dc.Column("age", "integer", low=18, high=110, unit="years")
    >>> age.middle
    64.0
    >>> dc.Column("stage", "categorical").problems()
    ['a categorical column needs its list of categories']
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
    out_of_range: OutOfRange = "refuse"
    censored: bool = False
    format: str = ""
    origin: str = ""
    computed: str = ""
    reason: str = ""
    inferred: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Bounds and fill of a date, where they are dates, become whole units from the origin."""
        if not _is_word(self.kind, Kind) or self.kind != "date" or self._type_problems():  # `problems` says so
            return
        object.__setattr__(self, "origin", self.origin or EPOCH)
        start, unit = declared(self.origin), self.unit or "days"
        if start is None or unit not in UNITS:
            return
        for key in ("low", "high", "fill"):
            value = getattr(self, key)
            moment = None if value is None or _is_number(value) else declared(value)
            if moment is not None:
                object.__setattr__(self, key, int(since(moment, start, unit)))

    @property
    def searched(self) -> bool:
        """Bounds or categories are found privately, or were: no value is illegal."""
        return self.domain == "private"

    @property
    def forgives(self) -> bool:
        """What cannot be used as any value of its kind becomes a hole, rather than that the table is refused."""
        return self.searched or (self.out_of_range != "refuse" and self.missing != "refuse")

    @property
    def limits(self) -> tuple[float, float]:
        """The lowest and highest number that may be read; beyond bounds that are only found later, very far."""
        if self.searched or self.low is None or self.high is None:
            return -MOST_NUMBER, MOST_NUMBER
        return (float(math.ceil(self.low)), float(math.floor(self.high))) if self.whole else (self.low, self.high)

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
        aside = ("missing_values", "computed", "out_of_range", "censored")
        inferred = tuple(key for key in self.inferred if key not in aside)
        return replace(self, missing_values=(), computed="", out_of_range="refuse", censored=False, inferred=inferred)

    @property
    def stand_in(self) -> float:
        """The public number that stands for a hole."""
        return float(self.fill) if isinstance(self.fill, int | float) else self.middle

    @property
    def middle(self) -> float:
        """The public value that stands in for a missing number where no `fill` is given."""
        if self.low is None or self.high is None:
            return 0.0
        middle = (self.low + self.high) / 2
        return float(round(middle)) if self.whole else middle

    @property
    def known(self) -> Column:
        """Without holes, as an outcome is, for which nothing can stand: what would become one is refused."""
        kept: OutOfRange = "clip" if self.out_of_range == "clip" else "refuse"
        return replace(self, missing="refuse", fill=None, out_of_range=kept)

    @property
    def sources(self) -> tuple[str, ...]:
        """What it is computed from."""
        formula = Between.parse(self.computed) if isinstance(self.computed, str) else None
        return () if formula is None else formula.names

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
        """Numbers, or one, as this column writes them."""
        if self.step is not None:
            count = np.round((values - self.counted_from) / self.step)
            if self.high is not None:  # the last multiple, not the bound, is the highest legal number
                count = np.minimum(count, np.floor((self.high - self.counted_from) / self.step + STEP_SLACK))
            return np.round(self.counted_from + count * self.step, max(_digits(self.step), _digits(self.counted_from)))
        if self.whole:
            return np.round(values)
        return values if self.decimals is None else np.round(values, self.decimals)

    def described(self, *, whole: bool = False) -> str:
        """What is declared of it, in words; with `whole`, all that a person confirms, its categories too."""
        if self.is_ignored:
            return f"left out{f', {self.reason}' if self.reason else ''}"
        domain = f"{len(self.categories)} categories"
        if self.unknown:
            domain = f"{'bounds' if self.numeric else 'categories'} found privately"
        elif self.numeric:
            entry = self.to_dict()  # dates as dates
            domain = f"{entry.get('low')} to {entry.get('high')} {self.unit}".strip()
        elif whole:
            domain = ", ".join(map(str, self.categories))
        codes = f"; missing: {', '.join(map(str, self.missing_values))}" if self.missing_values else ""
        codes += "; limits such as <1 are read as 1" if self.censored else ""
        holes = decimals = ""
        if whole:
            holes = "; no holes" if self.missing == "refuse" else "; may have holes"
            decimals = f"; {self.decimals} decimals" if self.decimals is not None else ""
            domain = f"{self.kind}, {domain}"
        return f"{domain}{decimals}{holes}{codes}{f'; {self.computed}' if self.computed else ''}"

    def to_dict(self) -> dict[str, Any]:
        """What TOML holds: only what differs from the defaults."""
        defaults = {f.name: f.default for f in fields(self)}
        out = {k: v for k, v in asdict(self).items() if k not in ("name", "fill") and v != defaults[k]}
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

    # -- what is wrong with it ----------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Everything wrong with this description, all at once; empty where it is legal."""
        if problems := self._type_problems():  # what follows compares and counts them
            return problems
        if self.kind == "ignore":
            return self._ignored_problems()
        problems = self._date_problems()
        problems += _broken(
            (self.low is not None and not _is_number(self.low), self._refused("low")),
            (self.high is not None and not _is_number(self.high), self._refused("high")),
            (set(self.categories) & set(self.missing_values), "a category must not be among missing_values too"),
            (not isinstance(self.fill, str | bool | None) and not _is_number(self.fill), self._refused("fill")),
        )
        if problems:
            return problems
        problems += _broken(
            (self.ordered and self.kind != "categorical", "ordered belongs to categorical columns"),
            (
                self.censored and (self.kind not in ("continuous", "integer") or self.computed),
                "censored belongs to continuous and integer columns of the table",
            ),
        )
        problems += self._private_problems() if self.searched else []
        problems += self._range_problems()
        return problems + (self._numeric_problems() if self.numeric else self._label_problems())

    def _refused(self, key: str) -> str:
        """That a field is not what it must be."""
        return f"{key} {_NUMBERS[key]}. Found {said(getattr(self, key))}"

    def _type_problems(self) -> list[str]:
        """Of fields that are not what they must be, whatever they hold: a caller may have put anything there."""
        problems = [
            f"{key} must be one of {', '.join(get_args(words))}. Found {said(getattr(self, key))}"
            for key, words in _WORDS.items()
            if not _is_word(getattr(self, key), words)
        ]
        texts = [key for key in _TEXTS if not _is_text(getattr(self, key))]
        problems += [f"{key} must be text. Found {said(getattr(self, key))}" for key in texts]
        categories, codes = (v if isinstance(v, tuple) else [None] for v in (self.categories, self.missing_values))
        labels = all(_is_text(c) or (isinstance(c, int | float) and c == c) for c in categories)  # c != c: NaN
        problems += _broken(
            (not isinstance(self.ordered, bool), f"ordered must be true or false. Found {said(self.ordered)}"),
            (not isinstance(self.censored, bool), f"censored must be true or false. Found {said(self.censored)}"),
            (not labels, "categories must be texts, numbers or true/false"),
            (not all(_is_text(c) or _is_number(c) for c in codes), "missing_values must be texts and numbers"),
            (
                not (isinstance(self.inferred, tuple) and all(map(_is_field, self.inferred))),
                "inferred must list fields of the column, such as decimals",
            ),
        )
        for key in _NUMBERS:
            value = getattr(self, key)
            if value is pd.NaT or not isinstance(value, PLAIN) or (isinstance(value, str) and not _is_text(value)):
                problems.append(self._refused(key))
        return problems

    def _ignored_problems(self) -> list[str]:
        extra = sorted(f.name for f in fields(self) if f.name not in _OF_IGNORED and getattr(self, f.name) != f.default)
        problems = [f"{key} says nothing about a column that is ignored" for key in extra]
        return problems + self._format_problems()

    def _format_problems(self) -> list[str]:
        if not self.format or readable(self.format):
            return []
        return [f"format must write dates that can be read again, such as %Y-%m-%d. Found {said(self.format)}"]

    def _date_problems(self) -> list[str]:
        """Of a date, and of what belongs to dates in any other column."""
        problems = _broken((self.reason, 'reason belongs to kind = "ignore"'))
        if self.computed and Between.parse(self.computed) is None:
            problems.append(
                "computed must be years_between(FIRST, SECOND), or months_, days_ or hours_between. "
                f"Found {said(self.computed)}"
            )
        elif self.computed and self.kind not in ("continuous", "integer"):
            problems.append("computed belongs to continuous and integer columns")
        if self.kind != "date":
            return problems + _broken((self.format or self.origin, 'format and origin belong to kind = "date"'))
        problems += _broken(
            (declared(self.origin) is None, f"origin must be a date such as 1970-01-01. Found {said(self.origin)}"),
            (
                self.unit and self.unit not in UNITS,
                f"unit of a date must be one of {', '.join(UNITS)}. Found {said(self.unit)}",
            ),
        )
        wrong = [key for key in ("low", "high") if not _is_number(getattr(self, key))]
        if wrong:
            return [*problems, f"{' and '.join(wrong)} must be dates such as 2015-01-31"]
        if self.searched or self.decimals is not None or self.step is not None:
            problems.append("a date has no decimals and no step, and its bounds are declared")
        problems += self._format_problems()
        return problems or self._calendar_problems()

    def _calendar_problems(self) -> list[str]:
        """Of bounds that were said as numbers, or lie far from the origin."""
        problems = []
        for key in ("low", "high", "fill"):
            value = getattr(self, key)
            try:
                if _is_number(value):
                    at(float(value), self)
            except OverflowError:
                problems.append(f"{key} must be a date between the years 1 and 9999. Found {said(value)}")
        return problems

    def _private_problems(self) -> list[str]:
        if self.kind == "binary":
            return ["a binary column needs its two categories: they cannot be private"]
        filled = self.unknown and not self.numeric and self.missing == "constant"
        return _broken(
            (self.ordered, "ordered needs categories that are declared in their order"),
            (self.unknown and self.step is not None, "step needs declared bounds"),
            (filled, 'missing = "constant" needs declared categories; use "category"'),
        )

    def _range_problems(self) -> list[str]:
        """Of what is to become of illegal values."""
        if self.out_of_range == "refuse":
            return []
        return _broken(
            (self.searched, "out_of_range belongs to declared bounds and categories: a private domain refuses nothing"),
            (self.out_of_range == "clip" and not self.numeric, 'out_of_range = "clip" is for numbers and dates'),
            (
                self.out_of_range == "missing" and self.missing == "refuse",
                'out_of_range = "missing" needs a policy for holes: missing = "constant", "category" or "indicator"',
            ),
        )

    def _numeric_problems(self) -> list[str]:
        problems = _broken((self.categories, "categories belong to binary and categorical columns"))
        low, high = self.low, self.high
        if low is None or high is None:
            problems += _broken((low is not high, "low and high go together"))
        else:
            bounds = f"Found low = {low}, high = {high}"
            too_wide = self.whole and max(abs(low), abs(high)) > MAX_WHOLE
            empty = self.whole and math.ceil(low) > math.floor(high)
            problems += _broken(
                (not low < high, f"low must be below high. {bounds}"),
                (too_wide, f"bounds of whole numbers must lie within ±{MAX_WHOLE}"),
                (empty, f"no whole number lies within the bounds. {bounds}"),
            )[:1]
        problems += _broken((self.spacing == "log" and low is None, 'spacing = "log" needs low and high'))
        if self.decimals is not None:
            legal = type(self.decimals) is int and 0 <= self.decimals <= 12
            bounded = legal and not problems and self.step is None and low is not None and high is not None
            problems += _broken(
                (not legal, self._refused("decimals")),
                (self.decimals and self.kind == "integer", "decimals belong to continuous columns"),
                (bounded and self._rounds_out(), "low and high must have no more decimals than the column"),
            )[:1]
        problems += self._step_problems() if self.step is not None else []
        return problems + self._fill_problems(legal=not problems)

    def _rounds_out(self) -> bool:
        """Whether a bound could be rounded to a number beyond it."""
        return bool(self.rounded(self.low) < self.low or self.rounded(self.high) > self.high)

    def _step_problems(self) -> list[str]:
        step = self.step
        if step is None or not _is_number(step) or not step > 0:
            return [self._refused("step")]
        bounded = self.low is not None and self.high is not None
        return _broken(
            (self.decimals is not None, "decimals and step exclude each other"),
            (self.kind == "integer" and step != round(step), f"step of an integer column must be whole. Found {step}"),
            (bounded and self.low + step > self.high, f"step must fit between low and high. Found {step}"),  # type: ignore[operator]
        )

    def _fill_problems(self, legal: bool) -> list[str]:
        """Of a number's policy for holes; `legal`: nothing else is wrong with it."""
        fill, number = self.fill, _is_number(self.fill)
        unfit = self.missing == "indicator" and fill is not None and not number
        problems = _broken(
            (self.missing == "category", 'missing = "category" is for categorical columns; use "indicator"'),
            (self.missing == "constant" and not number, 'missing = "constant" needs a number as fill'),
            (unfit, f'the fill of missing = "indicator" must be a number. Found {said(fill)}'),
        )
        if self.missing == "constant" and _is_number(fill) and legal:  # a released row holds it: it must be legal
            outside = self.low is not None and self.high is not None and not self.low <= fill <= self.high
            broken = self.whole and fill != round(fill)
            between = not broken and self.step is not None and self.rounded(fill) != fill
            problems += _broken(
                (outside, f"fill must be within the bounds. Found {fill}"),
                (broken, f"fill of an integer column must be whole. Found {fill}"),
                (between, f"fill must be a multiple of the step. Found {fill}"),
            )
        return problems

    def _label_problems(self) -> list[str]:
        categories, binary = self.categories, self.kind == "binary"
        bounded = self.low is not None or self.high is not None
        return _broken(
            (bounded, "low and high belong to continuous and integer columns"),
            (self.decimals is not None, "decimals belong to continuous columns"),
            (self.step is not None, "step belongs to continuous and integer columns"),
            (self.spacing != "linear", "spacing belongs to continuous and integer columns"),
            (len(set(categories)) != len(categories), "categories must not repeat"),
            (
                binary and len(categories) != 2,
                f"a binary column needs two categories, the negative first. Found {len(categories)}",
            ),
            (not binary and not categories and not self.unknown, "a categorical column needs its list of categories"),
            (self.missing == "indicator", 'missing = "indicator" is for numbers; use "category"'),
            (
                binary and self.missing == "category",
                'a binary column has no third category; make it categorical, or use missing = "constant"',
            ),
            (
                self.missing == "constant" and self.fill not in categories,
                'missing = "constant" needs one of the categories as fill',
            ),
        )


def plain_value(value: Any) -> Any:
    """NumPy scalars as Python ones; whole floats as int, so that 1.0 and 1 are one label."""
    if isinstance(value, np.generic):
        value = value.item()
    return int(value) if isinstance(value, float) and value.is_integer() else value


def said(value: object) -> str:
    """What was given, in a message: a table or a list may hold patients, and is said by its type."""
    if isinstance(value, int):  # Python writes no more than 4,300 digits, which `brief` knows
        return brief(value)
    return brief(repr(value)) if isinstance(value, str | float | None) else f"a {type(value).__name__}"


def _broken(*rules: tuple[object, str]) -> list[str]:
    """The texts of the rules that are broken: each stands behind the condition under which it is."""
    return [text for is_broken, text in rules if is_broken]


def _is_text(value: object) -> bool:
    """A text that a file can hold: no half of a pair of UTF-16 is in it."""
    return isinstance(value, str) and value.encode("utf-8", "ignore").decode() == value


def _is_word(value: object, words: Any) -> bool:
    """One of a `Literal`'s words; anything at all may have been given."""
    return isinstance(value, str) and value in get_args(words)


def _is_field(value: object) -> bool:
    """What a column may have read off patients."""
    return isinstance(value, str) and value not in ("name", "inferred") and any(f.name == value for f in fields(Column))


def _is_number(value: Any) -> TypeGuard[float]:
    """A real number of any library within the bounds of numbers; true and false are none."""
    if isinstance(value, bool | np.timedelta64 | np.complexfloating) or not isinstance(value, int | float | np.number):
        return False
    size: Any = abs(value)
    return bool(size <= MOST_NUMBER)  # NaN is not


def _digits(number: float) -> int:
    """Digits after the point, at most 12, of a number as it is written."""
    exponent = Decimal(repr(float(number))).normalize().as_tuple().exponent
    return min(max(0, -exponent), 12) if isinstance(exponent, int) else 0
