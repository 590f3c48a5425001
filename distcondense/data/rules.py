"""`Rules`: a schema's relations applied to tables. Which rows obey, what derived columns are, how a row is mended.

On real rows only counts leave here (`Rules.broken`, for the custodian). The rest works on synthetic rows of legal
values and knows nothing but those and the schema, so it is post-processing.

Mending changes one column of a row at a time: of all legal values tried, the one after which the fewest rules are
broken and that is nearest to what was there; where that does not end well, the row takes the columns that rules speak
of from another row that obeys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Flags, Floats, Index
from distcondense.data.relations import Constraint, Derivation, Implies, Rule, derivations_in_order, unit_of
from distcondense.data.schema import Column, Schema
from distcondense.data.writing import written_labels, written_numbers
from distcondense.errors import SchemaError

Rng = np.random.Generator
Values = dict[str, Floats]  # name → (m,): numbers, or codes of categories; NaN is a hole

QUANTILES = 32  # of a column's values, tried where a number must change
GRID = 17  # legal numbers between its bounds, tried as well
MOST_LABELS = 200  # categories tried
ROUNDS = 8  # changes of a row
TRIES = 256  # random rows, to find one that obeys


@dataclass(frozen=True)
class Rules:
    """A schema's rules, ready to use; those whose columns a table does not have are left alone."""

    schema: Schema

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        return tuple(rule for rule in self.schema.rules if isinstance(rule, Constraint))

    @cached_property
    def derivations(self) -> tuple[Derivation, ...]:
        """Each after those it needs."""
        return tuple(derivations_in_order(self.schema.rules)[0])

    def __bool__(self) -> bool:
        return bool(self.schema.rules)

    @cached_property
    def columns(self) -> dict[str, Column]:
        return {column.name: column for column in self.schema.columns}

    @property
    def derived(self) -> tuple[str, ...]:
        """Columns that are computed, in the order in which they are."""
        return tuple(rule.derived for rule in self.derivations)

    def reachable(self, names: Iterable[str]) -> list[str]:
        """These columns and all that can be computed from them, in the schema's order."""
        known = set(names) - set(self.derived)
        for rule in self.derivations:
            if rule.sources <= known:
                known.add(rule.derived)
        return [name for name in self.schema.names if name in known]

    # -- looking --------------------------------------------------------------------------------------------------

    def broken(self, frame: pd.DataFrame) -> list[tuple[Rule, int]]:
        """How many rows of a table that fits the schema break each rule, its own derived columns included."""
        table = self._read(frame, self.schema.names)
        known = [rule for rule in self.schema.rules if rule.names <= set(table)]
        return [(rule, int(np.count_nonzero(rule.broken(table, self.columns)))) for rule in known]

    def holds(self, frame: pd.DataFrame) -> Flags:
        """(m,) rows that obey, with derived columns computed, whatever the table says they are."""
        return self._count(self._free(frame), len(frame)) == 0

    def _read(self, frame: pd.DataFrame, names: Iterable[str]) -> Values:
        """Of these columns those that the table has."""
        return table_of(frame, {name: self.columns[name] for name in names if name in frame})

    def _free(self, frame: pd.DataFrame) -> Values:
        """All columns that are not computed."""
        return self._read(frame, [name for name in self.schema.names if name not in self.derived])

    def _derive(self, table: Values) -> tuple[Values, dict[str, Flags]]:
        """The table with derived columns, and where each of those is no legal value of its column."""
        table, illegal = dict(table), {}
        for rule in self.derivations:
            if rule.sources <= set(table):
                table[rule.derived], illegal[rule.derived] = _settled(rule, table, self.columns)
        return table, illegal

    def _count(self, table: Values, rows: int, touching: str | None = None) -> Index:
        """(m,) how many rules each row breaks, of those that can be checked (and depend on this column, if given)."""
        table, illegal = self._derive(table)
        count = np.zeros(rows, np.int64)
        for name, here in illegal.items():
            if touching is None or touching in self._roots[name]:
                count += here
        for rule in self.constraints:
            if rule.names <= set(table) and (touching is None or touching in self._sources(rule)):
                count += rule.broken(table, self.columns)
        return count

    @cached_property
    def _roots(self) -> dict[str, frozenset[str]]:
        """Per derived column: the columns it comes from in the end."""
        roots: dict[str, frozenset[str]] = {}
        for rule in self.derivations:
            roots[rule.derived] = frozenset().union(*(roots.get(name, {name}) for name in rule.sources))
        return roots

    def _sources(self, rule: Rule) -> frozenset[str]:
        return frozenset().union(*(self._roots.get(name, {name}) for name in rule.names))

    # -- computing ------------------------------------------------------------------------------------------------

    def completed(self, frame: pd.DataFrame) -> pd.DataFrame:
        """With all derived columns that can be computed, in the schema's order; legal values in any case."""
        if not self.derivations:
            return frame
        table, illegal = self._derive(self._free(frame))
        derived = {}
        for name in illegal:
            column, values = self.columns[name], table[name].copy()
            values[np.isnan(values) & illegal[name]] = column.stand_in if column.numeric else 0
            legal = np.asarray(_legal(column, values)) if column.numeric else values
            derived[name] = _written(column, legal, frame.index)
        out = frame.assign(**derived)
        known = [name for name in self.schema.names if name in out]
        return out[known + [name for name in out if name not in self.columns]]

    # -- mending --------------------------------------------------------------------------------------------------

    def repaired(self, frame: pd.DataFrame, rng: Rng) -> pd.DataFrame:
        """The table with rows that broke a rule changed so that they obey, in as few columns as that takes."""
        if not self:
            return frame
        table = self._free(frame)
        bad = ~self.holds(frame)
        if not bad.any():
            return frame
        rows, good = np.flatnonzero(bad), {name: values[~bad] for name, values in table.items()}
        mended = self._mended({name: values[rows] for name, values in table.items()}, good, rng)
        out = frame.copy()
        for name, values in mended.items():
            if not np.array_equal(values, table[name][rows], equal_nan=True):
                table[name][rows] = values
                out[name] = _written(self.columns[name], table[name], frame.index)
        present = [name for name in self.derived if name in frame]
        return out.assign(**self.completed(out)[present]) if present else out

    def check(self) -> None:
        """Refuse rules that no row seems to obey; looks at the schema alone."""
        bounded = all(not c.numeric or c.low is not None for c in map(self.columns.__getitem__, self._order))
        if self and bounded and not _rows(self._examples(np.random.default_rng(0))):
            raise SchemaError(
                "rules",
                "must leave rows that obey all of them",
                found=f"none among {TRIES} random rows, each changed to obey",
                fix="look for rules that contradict each other, or a derived column's bounds",
            )

    def _examples(self, rng: Rng) -> Values:
        """Legal rows that obey, made from nothing; maybe none."""
        table = {name: _random(self.columns[name], TRIES, rng) for name in self._order}
        table = self._changed(table, table, rng)
        good = self._count(table, TRIES) == 0
        return {name: values[good] for name, values in table.items()}

    def _mended(self, table: Values, good: Values, rng: Rng) -> Values:
        table = self._changed(table, good if _rows(good) else table, rng)
        left = np.flatnonzero(self._count(table, _rows(table)))
        donors = good if _rows(good) or not len(left) else self._examples(rng)
        if len(left) and _rows(donors):
            chosen = rng.integers(_rows(donors), size=len(left))
            for name in self._order:
                if name in table:
                    table[name][left] = donors[name][chosen]
        return table

    @cached_property
    def _order(self) -> list[str]:
        """Columns that rules speak of and that are not computed."""
        spoken_of = frozenset().union(*map(self._sources, self.schema.rules)) - set(self.derived)
        return [name for name in self.schema.names if name in spoken_of]

    def _changed(self, table: Values, like: Values, rng: Rng) -> Values:
        """After rounds of the best single change of every row that still breaks a rule."""
        table = {name: values.copy() for name, values in table.items()}
        for _ in range(ROUNDS):
            bad = np.flatnonzero(self._count(table, _rows(table)))
            if not len(bad):
                break
            part = {name: values[bad] for name, values in table.items()}
            column, value = self._best_change(part, like, rng)
            moved = [np.flatnonzero(column == k) for k in range(len(self._order))]
            if not any(map(len, moved)):
                break
            for name, rows in zip(self._order, moved, strict=True):
                if len(rows):
                    table[name][bad[rows]] = value[rows]
        return table

    def _best_change(self, table: Values, like: Values, rng: Rng) -> tuple[Index, Floats]:
        """(b,) which column of each row to change, −1 for none that helps, and its new value."""
        rows = _rows(table)
        column, value, best = np.full(rows, -1), np.full(rows, np.nan), np.zeros(rows)
        for k, name in enumerate(self._order):
            if name not in table:
                continue
            before = self._count(table, rows, name)
            if not before.any():
                continue
            for new, cost in self._proposals(name, table, like, rng):
                after = self._count(table | {name: new}, rows, name)
                gain = before - after - cost
                better = (after < before) & (gain > best)
                column[better], value[better], best[better] = k, new[better], gain[better]
        return column, value

    def _proposals(self, name: str, table: Values, like: Values, rng: Rng) -> Iterator[tuple[Floats, Floats]]:
        """Legal values for one column of every row, with what each costs, in [0, 1)."""
        column, old = self.columns[name], table[name]
        rules = [rule for rule in self.constraints if name in rule.names]
        role = 0.0 if any(name in rule.targets for rule in rules) else 0.4
        if column.numeric:
            low, high = _bounds(column, like[name])
            for new in self._numbers(column, table, like[name], rules):
                apart = np.abs(new - old) / max(high - low, 1e-300)
                yield new, role + 0.3 * np.where(np.isnan(apart), 0.5, np.clip(apart, 0, 1))
        else:
            size = len(column.categories)
            seen = like[name][~np.isnan(like[name])].astype(np.int64)
            share = (np.bincount(seen, minlength=size) + 0.1) / (len(seen) + 0.1 * size)
            tried = range(size) if size <= MOST_LABELS else rng.choice(size, MOST_LABELS, replace=False, p=share)
            for code in tried:  # the smallest of exponential times is drawn in proportion to the share
                luck = rng.exponential(1 / share[code], len(old))
                yield np.full(len(old), float(code)), role + 0.3 * luck / (1 + luck)
        if column.keeps_holes:  # the last thing to do, unless a rule asks for one
            wanted = any(isinstance(rule, Implies) and name in rule.then.must_be_missing for rule in rules)
            yield np.full(len(old), np.nan), np.full(len(old), role if wanted else 0.9)

    def _numbers(self, column: Column, table: Values, like: Floats, rules: Sequence[Constraint]) -> Iterator[Floats]:
        """Numbers as other rows have them, some between the bounds, and those it is compared with."""
        rows = len(table[column.name])
        low, high = _bounds(column, like)
        known = like[~np.isnan(like)]
        some = np.quantile(known, np.linspace(0, 1, QUANTILES), method="nearest") if len(known) else np.empty(0)
        for number in np.unique([*some, *_legal(column, np.linspace(low, high, GRID))]):
            yield np.full(rows, number)
        unit = unit_of(column) or 1e-6 * (high - low)
        full = self._derive(table)[0]
        for rule in rules:
            conditions = reversed(rule.conditions) if isinstance(rule, Implies) else ()
            for part in (part for condition in conditions for part in condition.parts):
                for other in part.compared_with(column.name, full, self.columns):
                    for move in (0.0, -unit, unit):
                        yield np.broadcast_to(_legal(column, other + move), (rows,))


# -- values -----------------------------------------------------------------------------------------------------------


def _rows(table: Values) -> int:
    return len(next(iter(table.values()), ()))


def table_of(frame: pd.DataFrame, columns: Mapping[str, Column]) -> Values:
    """These columns of a table that fits its schema, as rules read them."""
    return {name: _values(frame[name], column) for name, column in columns.items()}


def _values(series: pd.Series[Any], column: Column) -> Floats:
    if column.numeric:
        return series.to_numpy(dtype=np.float64, na_value=np.nan).copy()
    codes = pd.Categorical(series, categories=list(column.categories)).codes.astype(np.float64)
    return np.where(codes < 0, np.nan, codes)


def _written(column: Column, values: Floats, index: Any) -> pd.Series[Any]:
    if column.numeric:
        return pd.Series(written_numbers(column, values), index=index)
    codes = np.where(np.isnan(values), len(column.categories), values).astype(np.int64)
    return written_labels(column, codes).set_axis(index)


def _settled(rule: Derivation, table: Values, columns: dict[str, Column]) -> tuple[Floats, Flags]:
    """What a derived column is, as it is written, and where that is no legal value."""
    column = columns[rule.derived]
    values = np.array(rule.values(table, columns))
    if column.numeric:
        values = column.rounded(values)
    if column.missing == "constant":
        fill = column.stand_in if column.numeric else float(column.categories.index(column.fill))  # type: ignore[arg-type]
        values = np.where(np.isnan(values), fill, values)
    illegal = np.isnan(values) & (not column.keeps_holes)
    if column.numeric and column.low is not None and column.high is not None:
        illegal = illegal | (values < column.low) | (values > column.high)
    return values, illegal


def _bounds(column: Column, seen: Floats) -> tuple[float, float]:
    """The lowest and highest legal number; of a column without bounds, the lowest and highest there are."""
    if column.low is None or column.high is None:
        known = seen[~np.isnan(seen)]
        return (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    whole = column.whole
    return (float(np.ceil(column.low)), float(np.floor(column.high))) if whole else (column.low, column.high)


def _legal(column: Column, numbers: Any) -> Any:
    """The nearest legal numbers; holes stay."""
    if column.low is None or column.high is None:
        return column.rounded(numbers)
    return column.rounded(np.clip(numbers, *_bounds(column, np.empty(0))))


def _random(column: Column, rows: int, rng: Rng) -> Floats:
    if column.numeric:
        low, high = _bounds(column, np.empty(0))
        numbers: Floats = _legal(column, rng.uniform(low, high, rows))
        return numbers
    return rng.integers(len(column.categories), size=rows).astype(np.float64)
