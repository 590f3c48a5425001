"""Scores and tables as sheets of cells, so that a page has one way to show a table.

Scores become a sheet with a row for each thing that was measured and a column a measure; where there are more measures
than things it is turned around. What all rows share (the student, where it was tested) is said once, below. Scores of
attacks stand one a row, each with its ceiling, its power and what that means.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distcondense.evaluation.leaks import above_ceiling
from distcondense.evaluation.score import FULL, PLAIN, RANDOM, SOFT, WAYS, Score
from distcondense.outcomes.measures import title
from distcondense.report.axes import digits, written
from distcondense.runs.figures import Table

LABELS = {PLAIN: "outcome column alone", SOFT: "as the manual says"}
ENDS = {FULL: " (ceiling)", RANDOM: " (floor)"}
MOST_COLUMNS = 100  # of a sheet
MOST_TABLES, ALIKE = 6, 0.7  # of one room's scores; the share of measures from which two things are in one
TURNED = 4  # rows up to which a sheet of scores is turned around


@dataclass(frozen=True)
class TableCell:
    text: str
    more: str = ""  # in small letters: an interval
    tone: str = ""  # good, care, bad: a tag


@dataclass(frozen=True)
class PageTable:
    """A table as it is shown; the first cell of a row is its heading."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    label: str = ""  # its name among all tables of a page; the caption, where it needs no other
    below: tuple[str, ...] = ()
    numeric: frozenset[int] = frozenset()
    left_out: int = 0
    elsewhere: str = ""

    def cut(self, rows: int, elsewhere: str) -> PageTable:
        """At most so many rows, and MOST_COLUMNS columns."""
        out, wide = self, len(self.columns) - MOST_COLUMNS
        if wide > 0:
            note = f"{wide:,} further columns are left out{elsewhere}."
            narrow = tuple(row[:MOST_COLUMNS] for row in self.rows)
            out = replace(out, columns=self.columns[:MOST_COLUMNS], rows=narrow, below=(*self.below, note))
        over = max(len(self.rows) - rows, 0) + self.left_out
        return replace(out, rows=out.rows[:rows], left_out=over, elsewhere=elsewhere) if over else out

    def without_empty(self) -> PageTable:
        """Without columns that nobody filled."""
        kept = [i for i in range(len(self.columns)) if any(row[i].text for row in self.rows)]
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        numeric = frozenset(new for new, old in enumerate(kept) if old in self.numeric)
        return replace(self, columns=tuple(self.columns[i] for i in kept), rows=rows, numeric=numeric)


def sheet_of(table: Table, most: int | None = None) -> PageTable:
    """Numbers right, texts left; rows that are too short are filled. Of a very long one the first rows."""
    width = len(table.columns)
    rows = [tuple(row[:width]) + ("",) * (width - len(row)) for row in table.rows[:most]]
    numeric = frozenset(
        i for i in range(1, width) if any(_number(row[i]) for row in rows) and all(_right(row[i]) for row in rows)
    )
    cells = tuple(tuple(_cell(value) for value in row) for row in rows)
    below = (table.about,) if table.about else ()
    return PageTable(
        table.title, table.columns, cells, below=below, numeric=numeric, left_out=len(table.rows) - len(rows)
    )


def sheet_of_pairs(caption: str, pairs: Mapping[str, Any]) -> PageTable:
    rows = tuple((TableCell(str(name).replace("_", " ")), _cell(value)) for name, value in pairs.items())
    return PageTable(caption, ("name", "value"), rows)


def sheet_of_rows(
    caption: str, rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str] | None = None
) -> PageTable | None:
    """Dictionaries as rows; columns as they first come. A value may be [value, low, high]. None without rows."""
    if not rows:
        return None
    names = list(dict.fromkeys(name for row in rows for name in row))
    headings = tuple((titles or {}).get(name, str(name).replace("_", " ")) for name in names)
    cells = tuple(tuple(_cell(row.get(name, "")) for name in names) for row in rows)
    numeric = frozenset(
        i
        for i, name in enumerate(names)
        if i
        and any(_number(row.get(name)) or _estimated(row.get(name)) for row in rows)
        and all(_right(row.get(name, "")) or _estimated(row.get(name)) for row in rows)
    )
    return PageTable(caption, headings, cells, numeric=numeric)


def _cell(value: Any) -> TableCell:
    if _estimated(value):
        of = value if isinstance(value, Mapping) else dict(zip(("value", "low", "high"), value, strict=True))
        return TableCell(written(of["value"]), _interval(of.get("low"), of.get("high")))
    if isinstance(value, Mapping):
        return TableCell("; ".join(f"{name}: {_cell(one).text}" for name, one in value.items()))
    if isinstance(value, list | tuple):
        return TableCell(", ".join(_cell(one).text for one in value))
    return TableCell(written(value))


def _estimated(value: Any) -> bool:
    """A number with its interval."""
    if isinstance(value, Mapping):
        return "value" in value and set(value) <= {"value", "low", "high"}
    return isinstance(value, list | tuple) and len(value) == 3 and all(_number(one) or one is None for one in value)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _right(value: Any) -> bool:
    """May stand in a column of numbers: a number, nothing, a small count."""
    return _number(value) or value is None or (isinstance(value, str) and (value in ("", "—") or value[0] in "<>≤≥"))


def _interval(low: Any, high: Any) -> str:
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return ""
    return f"{digits(float(low))} to {digits(float(high))}"


# -- scores -----------------------------------------------------------------------------------------------------------


def way_words(way: str) -> str:
    """What a model was trained on."""
    return WAYS.get(way, way) + ENDS.get(way, "")


def labels_words(labels: str) -> str:
    return LABELS.get(labels, labels)


def score_sheets(scores: Sequence[Score], titles: Mapping[str, str], label: str) -> Iterator[PageTable]:
    """Attacks apart from the rest; nothing where there are no scores."""
    held = any(map(_held, scores))  # what an attack could not measure stands with what it could
    attacks = [score for score in scores if _held(score) or (held and math.isnan(score.value))]
    others = [score for score in scores if score not in attacks]
    for number, alike in enumerate(_alike(others)):
        also = f", table {number + 1}" if number else ""
        yield replace(_measured(alike, titles), label=f"{label}: values with 95% intervals{also}")
    if attacks:
        yield replace(_attacked(attacks, titles), label=f"{label}: attacks with ceilings and power")


def _held(score: Score) -> bool:
    return score.ceiling is not None or score.power is not None


HEADS = ("of", "student", "trained on", "tested on")
Key = tuple[TableCell, TableCell, TableCell, TableCell]


def _key(score: Score) -> Key:
    """What a score is about, in the order of HEADS."""
    how = ", ".join(word for word in (labels_words(score.labels), f"{score.rows:,} rows" if score.rows else "") if word)
    return (
        TableCell(score.group),
        TableCell(score.student),
        TableCell(way_words(score.trained_on), how),
        TableCell(score.tested_on),
    )


def _name(measure: str, titles: Mapping[str, str]) -> str:
    known = title(measure)
    return titles.get(measure, known.replace("_", " ") if known == measure else known)


def _measured(scores: Sequence[Score], titles: Mapping[str, str]) -> PageTable:
    """A row a thing, a column a measure; turned around where there are more measures than things."""
    keys = list(dict.fromkeys(map(_key, scores)))
    measures = list(dict.fromkeys(score.measure for score in scores))
    vary = _varying(keys) or [2]
    found: dict[tuple[Key, str], Score] = {}
    for score in scores:
        found.setdefault((_key(score), score.measure), score)
    notes = list(dict.fromkeys(score.note for score in scores if score.note))
    names = {measure: _name(measure, titles) for measure in measures}
    below = (_about(scores, keys[0], vary), *(f"{_mark(i)} {note}" for i, note in enumerate(notes)))
    caption = "Values with 95% intervals"
    if len(keys) <= TURNED and len(measures) > len(keys):
        columns = ("measure", *(", ".join(map(_both, (key[i] for i in vary))) or "value" for key in keys))
        rows = tuple((TableCell(names[m]), *(_estimate(found.get((key, m)), notes) for key in keys)) for m in measures)
        return PageTable(caption, columns, rows, below=below, numeric=frozenset(range(1, len(columns))))
    columns = (*(HEADS[i] for i in vary), *names.values())
    whole = TableCell("all")  # of no group in particular
    rows = tuple(
        (*(key[i] if key[i].text else whole for i in vary), *(_estimate(found.get((key, m)), notes) for m in measures))
        for key in keys
    )
    return PageTable(caption, columns, rows, below=below, numeric=frozenset(range(len(vary), len(columns))))


def _alike(scores: Sequence[Score]) -> list[list[Score]]:
    """Scores of things with the same measures together: groups and their gaps have tables of their own."""
    measured: dict[Key, list[str]] = {}
    for score in scores:
        measured.setdefault(_key(score), []).append(score.measure)
    tables: list[set[str]] = []
    for found in map(set, measured.values()):
        near = next((known for known in tables if len(found & known) >= ALIKE * len(found | known)), None)
        if near is None:
            tables.append(found)
        else:
            near |= found
    if len(tables) > MOST_TABLES:
        return [list(scores)]
    out: list[list[Score]] = [[] for _ in tables]
    for score in scores:
        own = set(measured[_key(score)])
        best = max(range(len(tables)), key=lambda i: len(own & tables[i]) / len(own | tables[i]))
        out[best].append(score)
    return [one for one in out if one]


def _varying(keys: Sequence[Key]) -> list[int]:
    """Which of HEADS tell the rows apart."""
    return [i for i in range(len(HEADS)) if len({key[i] for key in keys}) > 1]


def _both(cell: TableCell) -> str:
    return f"{cell.text}, {cell.more}" if cell.more else cell.text


def _estimate(score: Score | None, notes: Sequence[str]) -> TableCell:
    """The value over its interval; a mark for the note that says why there is none."""
    if score is None:
        return TableCell("")
    mark = f" {_mark(notes.index(score.note))}" if score.note else ""
    return TableCell(digits(score.value) + mark, _interval(score.low, score.high))


def _mark(number: int) -> str:
    return f"[{number + 1}]"


def _about(scores: Sequence[Score], key: Key, vary: Sequence[int]) -> str:
    """What all rows share, on how many rows, at which thresholds, and how the intervals were made."""
    words = [f"{HEADS[i]} {_both(key[i])}" for i in range(len(HEADS)) if i not in vary and key[i].text]
    if sizes := sorted({score.n for score in scores if score.n}):
        words.append(f"{_range(sizes)} test rows")
    if ways := list(dict.fromkeys(score.interval for score in scores if score.interval)):
        words.append(f"intervals: {', '.join(ways[:4])}")
    cuts = sorted({score.threshold for score in scores if score.threshold is not None})
    if cuts:
        words.append(f"decisions at a threshold of {_range(cuts)}")
    said = "; ".join(words)
    return f"{said[:1].upper()}{said[1:]}." if said else ""


def _range(found: Sequence[float]) -> str:
    return digits(found[0]) if len(found) == 1 else f"{digits(found[0])} to {digits(found[-1])}"


def _attacked(scores: Sequence[Score], titles: Mapping[str, str]) -> PageTable:
    """A row an attack: found, allowed, could have been found."""
    keys = list(map(_key, scores))
    vary = _varying(keys)
    rows = tuple(
        (
            TableCell(_name(score.measure, titles), ", ".join(_both(key[i]) for i in vary if key[i].text)),
            TableCell(digits(score.value), _interval(score.low, score.high)),
            TableCell(_or_dash(score.ceiling)),
            TableCell(_or_dash(score.power)),
            judged(score),
            TableCell(digits(score.n) if score.n else ""),
            TableCell(score.note),
        )
        for score, key in zip(scores, keys, strict=True)
    )
    columns = ("attack", "found", "ceiling", "power", "against the ceiling", "targets", "note")
    same = _about([replace(score, n=0) for score in scores], keys[0], vary)
    ceiling = "Ceiling: the most that the stated guarantee allows."
    if all(score.ceiling is None for score in scores):
        ceiling = "There is no ceiling: no guarantee says how much an attack may find."
        rows = tuple((*row[:2], TableCell(""), row[3], TableCell(""), *row[5:]) for row in rows)
    below = (f"{ceiling} Power: the least this attack would have found.", same)
    sheet = PageTable("Attacks with 95% intervals", columns, rows, below=below, numeric=frozenset({1, 2, 3, 5}))
    return sheet.without_empty()


def _or_dash(value: float | None) -> str:
    return "—" if value is None else digits(value)


def judged(score: Score) -> TableCell:
    """Against the ceiling, in words with a sign, never by colour alone. Whether it is a leak its room says."""
    if not math.isfinite(score.value):
        return TableCell("not measured", tone="care")
    if score.ceiling is None or not math.isfinite(score.ceiling):
        return TableCell("no guarantee to hold it to")
    if score.value <= score.ceiling:
        return TableCell("✓ within the ceiling", tone="good")
    if above_ceiling(score) or not math.isfinite(score.low):
        return TableCell("▲ above the ceiling", tone="bad")
    return TableCell("above the ceiling, within chance", tone="care")
