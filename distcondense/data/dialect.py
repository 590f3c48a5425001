"""How a CSV is written: separator, encoding, decimal sign, header. Stated by the user, or read off its first line.

What a cell means must not depend on other rows. So separator and encoding come from the first line alone, which is
public, and from the names that were asked for; what it leaves open is refused with words that ask for it. The decimal
sign needs no guess: in a file that commas do not separate, a cell's one comma or one point is its decimal sign,
whatever stands in other cells, and a file with both is refused. A first line that is not known to name columns may be
a patient: nothing of it is ever quoted.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distcondense.errors import CohortError, SettingsError, need

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
POINT, COMMA, EITHER = ".", ",", ".,"  # the signs that may stand before a cell's decimals
_WORDS = {word: sign for sign, word in SEPARATORS.items()} | {"\\t": "\t", "space": " ", "pipe": "|"}
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ENCODINGS = {"utf-8-sig": "UTF-8", "cp1252": "Latin-1 (cp1252)"}
_LONGEST = 64 * 2**20  # bytes of a first line
_RARE = ":^~"  # signs that separate fields here and there, and stand in names, too
_NO_NAME = re.compile(r"[\s\d.,:/+\-eE%]*|true|false|na|n/a|nan|null|none", re.IGNORECASE)  # numbers, dates, holes


@dataclass(frozen=True)
class Dialect:
    """What a user states about a CSV; None: its first line says."""

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        """Check them; a separator may be said by its name."""
        for what, value in self.stated().items():
            need(value, str, what, "a text")
        encoding, decimal = self.encoding, self.decimal
        sign = None if self.separator is None else _WORDS.get(self.separator, self.separator)
        if sign is not None and (len(sign) != 1 or sign in "\"'\r\n\0." or sign.isalnum()):
            raise SettingsError(
                "separator",
                "must be one sign that stands between fields",
                found=repr(self.separator)[:40],
                fix=f"say {', '.join(SEPARATORS.values())} or the sign itself",
            )
        if encoding is not None:
            try:
                "".encode(encoding)  # a text encoding, not base64 and the like
            except (LookupError, TypeError, ValueError):
                raise SettingsError(
                    "encoding",
                    "must be one that Python knows",
                    found=repr(encoding)[:40],
                    fix="e.g. utf-8, cp1252, utf-16",
                ) from None
            encoding = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
        if decimal not in (None, POINT, COMMA):
            raise SettingsError("decimal", "must be . or ,", found=repr(decimal)[:40], fix="leave it out for the point")
        if decimal is not None and decimal == sign:
            raise SettingsError(
                "decimal",
                "must be another sign than the separator",
                found=repr(decimal)[:40],
                fix="correct one of them",
            )
        object.__setattr__(self, "separator", sign)
        object.__setattr__(self, "encoding", encoding)

    def stated(self) -> dict[str, str]:
        """What was said, to read the same table again."""
        options = {"separator": self.separator, "encoding": self.encoding, "decimal": self.decimal}
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV is read: from what was stated and its first line. `decimal`: the signs a cell may use."""

    separator: str
    encoding: str
    decimal: str
    asked: Dialect
    commas: bool = False  # decimal commas were found

    @property
    def words(self) -> str:
        """What was taken and not stated, where it is not the plain way (comma, UTF-8, point); else empty."""
        parts = []
        if self.asked.separator is None and self.separator != ",":
            parts.append(f"{SEPARATORS[self.separator]}-separated")
        if self.asked.encoding is None and self.encoding != "utf-8-sig":
            parts.append(_ENCODINGS.get(self.encoding, self.encoding.upper()))
        if self.asked.decimal is None and self.commas:
            parts.append("decimal comma")
        return ", ".join(parts)

    @property
    def whole(self) -> str:
        """All of it, for messages."""
        between = SEPARATORS.get(self.separator, "stated sign")
        return f"{between}-separated, {_ENCODINGS.get(self.encoding, self.encoding)}"


def pointed(text: str, decimal: str) -> str:
    """A cell's text with its decimal sign as a point; a sign that the file does not use makes it no number."""
    if decimal == POINT:
        return text
    return "" if decimal == COMMA and "." in text else text.replace(",", ".")


def csv_format(source: Path | bytes, what: str, asked: Dialect, names: Collection[str], *, packed: bool) -> CsvFormat:
    """How this CSV is read. `names`: columns that were asked for, which tell one separator from another."""
    line = _first_line(source, packed)
    encoding = asked.encoding or _encoding(line, what)
    try:
        header = line.decode(encoding).lstrip("\ufeff")
    except UnicodeError:
        raise CohortError(
            what,
            f"must be text in {_ENCODINGS.get(encoding, encoding)}",
            found="other bytes in its first line",
            fix="state the encoding it was saved in, e.g. --encoding cp1252",
        ) from None
    separator = asked.separator or _separator(header, what, names)
    if asked.decimal is None:
        decimal = POINT if separator == "," else EITHER
    else:
        decimal = asked.decimal
    if decimal == separator:
        raise CohortError(
            what,
            "must have a decimal sign that is not its separator",
            found=f"{SEPARATORS[separator]} for both",
            fix="state --separator, or leave out --decimal",
        )
    return CsvFormat(separator, encoding, decimal, asked)


def check_header(names: Sequence[str], asked: Collection[str], what: str, how: CsvFormat) -> None:
    """Refuse a first line that does not name columns, one that lacks most of those asked for, and repeated names.

    It is known for a header by the names that were asked for, and its other names may then be said; not by names that
    are numbers, as values are, nor where other fields are. Without any, such a field shows that it is none.
    """
    wanted = set(asked)
    present = wanted.intersection(names)
    if 2 * len(present) < len(wanted):
        raise _absent(len(present), len(wanted), len(names), what, how)
    odd = [place for place, name in enumerate(names, 1) if _NO_NAME.fullmatch(name)]
    shown = any(not _NO_NAME.fullmatch(name) for name in present)
    if odd and not shown and not wanted.issuperset(names):
        raise CohortError(
            what,
            "its first line must name the columns",
            found=f"{len(odd)} of {len(names)} fields that are numbers, dates or empty, first in column {odd[0]}",
            fix="add a header line; give every column a name, or export without row numbers",
        )
    if not wanted:
        _refuse_unsplit(names, what, how)
    sayable = shown and wanted.issuperset(names[place - 1] for place in odd)
    if not sayable and present < wanted:
        raise _absent(len(present), len(wanted), len(names), what, how)
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:  # pandas would rename the second "age" to "age.1" in silence
        known = sayable and wanted.issuperset(twice)
        repeated = ", ".join(map(repr, twice)) if known else f"{len(twice)} of {len(set(names))}"
        raise CohortError(
            what,
            "column names must be unique",
            found=f"repeated: {repeated}",
            fix="rename or drop one of each" + ("" if known else "; add a header line if it has none"),
        )


def _refuse_unsplit(names: Sequence[str], what: str, how: CsvFormat) -> None:
    """Of names that nobody asked for: fields that another sign would split further may be a whole row."""
    split = {sign: [part for name in names for part in name.split(sign)] for sign in (*SEPARATORS, *_RARE)}
    rows = [
        sign
        for sign, parts in split.items()
        if sign != how.separator
        and len(parts) >= 2 * len(names)
        and (sign in SEPARATORS or any(part.strip() and _NO_NAME.fullmatch(part) for part in parts))
    ]
    if rows or (len(names) == 1 and re.search(r"[\s:^~]", names[0].strip())):
        raise CohortError(
            what,
            "its first line must show which sign separates fields",
            found=f"{len(names)} field{'s' * (len(names) != 1)} ({how.whole}) of several words or with other signs",
            fix="state it, e.g. --separator space; name columns without signs that separate",
        )


def _absent(found: int, wanted: int, fields: int, what: str, how: CsvFormat) -> CohortError:
    return CohortError(
        what,
        "its first line must name the columns that were asked for",
        found=f"{found} of {wanted} names among {fields} field{'s' * (fields != 1)} ({how.whole})",
        fix="check that the first line is a header, the spelling of the names, and --separator and --encoding",
    )


@contextmanager
def unpacked(source: Path | bytes, packed: bool) -> Iterator[Any]:
    """The bytes of a CSV's text, to be read."""
    with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as raw:
        yield gzip.GzipFile(fileobj=raw) if packed else raw


def _first_line(source: Path | bytes, packed: bool) -> bytes:
    """The first line that is not blank, as bytes."""
    with unpacked(source, packed) as stream:
        start = stream.read(4)
        wide = next((name for mark, name in _BOMS if start.startswith(mark) and name != "utf-8-sig"), None)
        content = bytearray(start)
        while len(content) < _LONGEST:
            lines = re.split(rb"[\r\n]", bytes(content)) if wide is None else _wide_lines(bytes(content), wide)
            full = [line for line in lines[:-1] if line.strip(b" \t\x00\xff\xfe")]
            if full:
                return full[0]
            more = stream.read(max(len(content), 4096))
            if not more:
                break
            content += more
        return bytes(content) if wide else bytes(content).strip(b"\r\n")


def _wide_lines(content: bytes, encoding: str) -> list[bytes]:
    """Lines of UTF-16 or UTF-32, with its mark in front of each."""
    text = content[: len(content) // 4 * 4].decode(encoding, "replace")
    return [line.encode(encoding) for line in re.split(r"[\r\n]", text)]


def _encoding(line: bytes, what: str) -> str:
    marked = next((name for mark, name in _BOMS if line.startswith(mark)), None)
    if marked is not None:
        return marked
    if b"\0" in line:
        raise CohortError(
            what,
            "must be text",
            found="NUL bytes in its first line and no mark that says UTF-16",
            fix="state --encoding utf-16-le or utf-16-be, or save it as UTF-8",
        )
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"


def _separator(header: str, what: str, names: Collection[str]) -> str:
    fields = {sign: _fields(header, sign) for sign in SEPARATORS}
    several = [sign for sign, parts in fields.items() if len(parts) > 1]
    if not several:
        return ","
    if len(several) == 1:
        return several[0]
    known = {sign: len(set(fields[sign]).intersection(names)) for sign in several}
    best = [sign for sign in several if known[sign] == max(known.values())]
    if len(best) > 1:
        raise CohortError(
            what,
            "its first line must show which sign separates fields",
            found=" and ".join(f"{len(fields[sign]) - 1} × {SEPARATORS[sign]}" for sign in best),
            fix=f"state it: --separator {' or '.join(SEPARATORS[sign] for sign in best)}",
        )
    return best[0]


def _fields(header: str, sign: str) -> list[str]:
    try:
        return next(csv.reader([header], delimiter=sign), [])
    except csv.Error:  # a field longer than the csv module takes: left to the reader
        return header.split(sign)
