"""Scores and tables as tables of cells, so that a page has one way to show a table.

Scores become a table with a row for each thing that was measured and a column a measure; where there are more measures
than things it is turned around. What all rows share (the student, where it was tested) is said once, below. Scores of
attacks stand one a row, each with its ceiling, its power and what that means.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from distcondense.evaluation.leaks import above_ceiling
from distcondense.evaluation.score import FULL, PLAIN, RANDOM, SOFT, TRAINED_ON, Score
from distcondense.outcomes.measures import title
from distcondense.report.text import digits, interval, sentence, written
from distcondense.runs.figures import Table

LABELS = {PLAIN: "outcome column alone", SOFT: "as the manual says"}
ENDS = {FULL: " (ceiling)", RANDOM: " (floor)"}
MOST_COLUMNS = 100  # of a table
MOST_TABLES, ALIKE = 6, 0.7  # of one section's scores; the share of measures from which two things are in one
TURNED = 4  # rows up to which a table of scores is turned around


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
    how: str = ""  # how its intervals were made, for those who ask

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


def page_table(table: Table, most: int | None = None) -> PageTable:
    """Numbers right, texts left; a value may be [value, low, high]. Short rows are filled, of many the first shown."""
    width = len(table.columns)
    rows = [tuple(row[:width]) + ("",) * (width - len(row)) for row in table.rows[:most]]
    columns = list(zip(*rows, strict=True))
    numeric = {i for i, values in enumerate(columns) if i and any(map(_is_number, values)) and all(map(_fits, values))}
    cells = tuple(tuple(map(_cell, row)) for row in rows)
    below, left_out = (table.about,) if table.about else (), len(table.rows) - len(rows)
    return PageTable(table.title, table.columns, cells, below=below, numeric=frozenset(numeric), left_out=left_out)


def pairs_table(caption: str, pairs: Mapping[str, Any]) -> PageTable:
    """A row for each name and its value."""
    rows = ((str(name).replace("_", " "), value) for name, value in pairs.items())
    return page_table(Table("", caption, ("name", "value"), tuple(rows)))


def rows_table(
    caption: str, rows: Sequence[Mapping[str, Any]], titles: Mapping[str, str] | None = None
) -> PageTable | None:
    """Dictionaries as rows; columns as they first come. None without rows."""
    if not rows:
        return None
    names = list(dict.fromkeys(name for row in rows for name in row))
    headings = tuple((titles or {}).get(name, str(name).replace("_", " ")) for name in names)
    cells = (tuple(row.get(name, "") for name in names) for row in rows)
    return page_table(Table("", caption, headings, tuple(cells)))


def _cell(value: Any) -> TableCell:
    return TableCell(written(value[0]), interval(*value[1:])) if _is_estimate(value) else TableCell(written(value))


def _is_estimate(value: Any) -> bool:
    """A number with its interval."""
    return isinstance(value, list | tuple) and [*map(_is_plain, value)] == [True] * 3


def _is_plain(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_number(value: Any) -> bool:
    return value is not None and (_is_plain(value) or _is_estimate(value))


def _fits(value: Any) -> bool:
    """May stand in a column of numbers: a number, nothing, a small count."""
    return _is_number(value) or value is None or (isinstance(value, str) and (value in ("", "—") or value[0] in "<>≤≥"))


# -- scores -----------------------------------------------------------------------------------------------------------


def way_words(way: str) -> str:
    """What a model was trained on."""
    return TRAINED_ON.get(way, way) + ENDS.get(way, "")


def labels_words(labels: str) -> str:
    return LABELS.get(labels, labels)


def score_tables(scores: Sequence[Score], titles: Mapping[str, str], label: str) -> Iterator[PageTable]:
    """Scores as tables: things with the same measures share one, attacks stand apart.

    Parameters
    ----------
    scores : sequence of Score
        Of one section of the evaluation; may be empty.
    titles : mapping
        Measure → what people read, where the section has words of its own.
    label : str
        Begins each table's name among all tables of a page.

    Yields
    ------
    PageTable
        Tables of values with intervals, then one of attacks with their ceilings and power.
    """
    attacked = any(map(_is_attack, scores))  # what an attack could not measure stands with what it could
    attacks = [score for score in scores if _is_attack(score) or (attacked and math.isnan(score.value))]
    others = [score for score in scores if score not in attacks]
    for number, alike in enumerate(_alike(others)):
        also = f", table {number + 1}" if number else ""
        yield replace(_measured(alike, titles), label=f"{label}: values with 95% intervals{also}")
    if attacks:
        yield replace(_attacked(attacks, titles), label=f"{label}: attacks with ceilings and power")


def _is_attack(score: Score) -> bool:
    return score.ceiling is not None or score.power is not None


HEADS = ("of", "student", "trained on", "tested on")
Key = tuple[TableCell, TableCell, TableCell, TableCell]  # what a score is about, in the order of HEADS


def _by_key(scores: Sequence[Score]) -> dict[Key, dict[str, Score]]:
    """What was measured → measure → its first score."""
    found: dict[Key, dict[str, Score]] = {}
    for score in scores:
        rows = f"{score.rows:,} rows" if score.rows else ""
        how = ", ".join(words for words in (labels_words(score.labels), rows) if words)
        trained = TableCell(way_words(score.trained_on), how)
        key = (TableCell(score.group), TableCell(score.student), trained, TableCell(score.tested_on))
        found.setdefault(key, {}).setdefault(score.measure, score)
    return found


def _name(measure: str, titles: Mapping[str, str]) -> str:
    known = title(measure)
    return titles.get(measure, known.replace("_", " ") if known == measure else known)


def _measured(scores: Mapping[Key, Mapping[str, Score]], titles: Mapping[str, str]) -> PageTable:
    """A row a thing, a column a measure; turned around where there are more measures than things."""
    every = [score for of_key in scores.values() for score in of_key.values()]
    names = {score.measure: _name(score.measure, titles) for score in every}
    vary = _varying(scores) or [2]
    notes = list(dict.fromkeys(score.note for score in every if score.note))
    how = _intervals(every)
    below = (_shared(every, next(iter(scores)), vary), *(f"[{i}] {note}" for i, note in enumerate(notes, 1)))

    def estimate(score: Score | None) -> TableCell:
        """The value over its interval; a mark for the note that says why there is none."""
        if score is None:
            return TableCell("")
        mark = f" [{notes.index(score.note) + 1}]" if score.note else ""
        return TableCell(digits(score.value) + mark, interval(score.low, score.high))

    caption = "Values with 95% intervals"
    if len(scores) <= TURNED and len(names) > len(scores):
        columns = ("measure", *(", ".join(_both(key[i]) for i in vary) or "value" for key in scores))
        rows = tuple((TableCell(names[m]), *(estimate(of_key.get(m)) for of_key in scores.values())) for m in names)
        return PageTable(caption, columns, rows, below=below, numeric=frozenset(range(1, len(columns))), how=how)
    columns = (*(HEADS[i] for i in vary), *names.values())
    whole = TableCell("all")  # of no group in particular
    rows = tuple(
        (*(key[i] if key[i].text else whole for i in vary), *(estimate(of_key.get(m)) for m in names))
        for key, of_key in scores.items()
    )
    return PageTable(caption, columns, rows, below=below, numeric=frozenset(range(len(vary), len(columns))), how=how)


def _alike(scores: Sequence[Score]) -> list[dict[Key, dict[str, Score]]]:
    """Scores of things with the same measures together: groups and their gaps have tables of their own."""
    by_key = _by_key(scores)
    tables: list[set[str]] = []
    for measures in map(set, by_key.values()):
        near = next((known for known in tables if len(measures & known) >= ALIKE * len(measures | known)), None)
        if near is None:
            tables.append(measures)
        else:
            near |= measures
    if len(tables) > MOST_TABLES:
        return [by_key]
    groups: list[dict[Key, dict[str, Score]]] = [{} for _ in tables]
    for key, of_key in by_key.items():
        measures = set(of_key)
        best = max(range(len(tables)), key=lambda i: len(measures & tables[i]) / len(measures | tables[i]))
        groups[best][key] = of_key
    return [group for group in groups if group]


def _varying(keys: Collection[Key]) -> list[int]:
    """Which of HEADS tell the rows apart."""
    return [i for i in range(len(HEADS)) if len({key[i] for key in keys}) > 1]


def _both(cell: TableCell) -> str:
    return f"{cell.text}, {cell.more}" if cell.more else cell.text


def _shared(scores: Sequence[Score], key: Key, vary: Sequence[int]) -> str:
    """What all rows share, on how many rows, and at which thresholds."""

    def span(values: Sequence[float]) -> str:
        return digits(values[0]) if len(values) == 1 else f"{digits(values[0])} to {digits(values[-1])}"

    words = [f"{HEADS[i]} {_both(key[i])}" for i in range(len(HEADS)) if i not in vary and key[i].text]
    if sizes := sorted({score.n for score in scores if score.n}):
        words.append(f"{span(sizes)} test rows")
    if thresholds := sorted({score.threshold for score in scores if score.threshold is not None}):
        words.append(f"decisions at a threshold of {span(thresholds)}")
    return sentence("; ".join(words)) if words else ""


def _intervals(scores: Sequence[Score]) -> str:
    """How their intervals were made, in statisticians' words."""
    return sentence(", ".join(list(dict.fromkeys(score.interval for score in scores if score.interval))[:4]))


def _attacked(scores: Sequence[Score], titles: Mapping[str, str]) -> PageTable:
    """A row an attack: found, allowed, could have been found."""
    keys = [next(iter(_by_key([score]))) for score in scores]
    vary = _varying(keys)
    limited = any(score.ceiling is not None for score in scores)
    rows = tuple(
        (
            TableCell(_name(score.measure, titles), ", ".join(_both(key[i]) for i in vary if key[i].text)),
            TableCell(digits(score.value), interval(score.low, score.high)),
            TableCell(written(score.ceiling) if limited else ""),
            TableCell(written(score.power)),
            judged(score) if limited else TableCell(""),
            TableCell(digits(score.n) if score.n else ""),
            TableCell(score.note),
        )
        for score, key in zip(scores, keys, strict=True)
    )
    columns = ("attack", "found", "ceiling", "power", "against the ceiling", "targets", "note")
    ceiling = (
        "Ceiling: the most that the stated guarantee allows."
        if limited
        else "There is no ceiling: no guarantee says how much an attack may find."
    )
    shared = _shared([replace(score, n=0) for score in scores], keys[0], vary)
    below = (f"{ceiling} Power: the least this attack would have found.", shared)
    table = PageTable(
        "Attacks with 95% intervals",
        columns,
        rows,
        below=below,
        numeric=frozenset({1, 2, 3, 5}),
        how=_intervals(scores),
    )
    return table.without_empty()


def judged(score: Score) -> TableCell:
    """Against the ceiling, in words with a sign, never by colour alone. Whether it is a leak its section says."""
    if not math.isfinite(score.value):
        return TableCell("not measured", tone="care")
    if score.ceiling is None or not math.isfinite(score.ceiling):
        return TableCell("no guarantee to hold it to")
    if score.value <= score.ceiling:
        return TableCell("✓ within the ceiling", tone="good")
    if above_ceiling(score) or not math.isfinite(score.low):
        return TableCell("▲ above the ceiling", tone="bad")
    return TableCell("above the ceiling, within chance", tone="care")
