"""Words and numbers as people read them: on a page, in a drawing, in a table of text; and how wide they are."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FONT = 12.0  # units of a drawing
LONGEST = 300  # characters of a text that is to be fitted: no drawing has room for more
UNSEEN = "�"
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(text: str) -> str:
    """What no document may hold or what turns the reading order around becomes a visible �."""
    if text.isascii() and text.isprintable():
        return text
    unseen = {c for c in set(text) - {"\t", "\n"} if unicodedata.category(c) in ("Cc", "Cs", "Cn", "Zl", "Zp")}
    return "".join(UNSEEN if c in unseen or c in _BIDI else c for c in text)


def sentence(words: str) -> str:
    """With a capital letter, but for ε, and a full stop."""
    return f"{words[:1] if words.startswith('ε') else words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


def sentences_of(text: str) -> list[str]:
    """The sentences of a text, each with its full stop."""
    return re.split(r"(?<=[.:!?])\s+(?=[A-Z0-9])", text) if text else []


# -- numbers ----------------------------------------------------------------------------------------------------------


def digits(value: float) -> str:
    """Three decimals; whole, large and tiny numbers as people write them; a dash where there is none."""
    if not math.isfinite(value):
        return "—"
    if value == int(value) and abs(value) < 1e15:
        text = f"{int(value):,}"
    elif abs(value) < 0.001:
        text = f"{value:.1e}"
    else:
        text = f"{value:.3f}" if abs(value) < 10 else f"{value:,.4g}"
    return text.replace("-", "−")


def written(value: Any) -> str:
    """Whatever a report holds, in words: numbers, texts, lists and pairs of them."""
    if value is None:
        return "—"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "; ".join(f"{clean(str(name)).replace('_', ' ')}: {written(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(written, value))
    return digits(float(value)) if isinstance(value, int | float) else clean(str(value))


def sentences(value: Any) -> tuple[str, ...]:
    """One sentence or several, as a report holds them."""
    return tuple(map(written, value)) if isinstance(value, list | tuple) else (written(value),) if value else ()


def interval(low: float | None, high: float | None) -> str:
    """Its two ends; nothing where one is missing."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return ""
    return f"{digits(low)} to {digits(high)}"


def estimate(value: float | None, low: float | None = None, high: float | None = None, spread: str = "") -> str:
    """A measure with its 95% interval in a line of text: 0.912 [0.900, 0.920], or a dash.

    Measures have three decimals; errors in an outcome's own units that are large four significant digits.
    spread: what stands between the two, for example a standard deviation over seeds.
    """

    def decimals(number: float | None) -> str:
        if number is None or math.isnan(number):
            return "—"
        return f"{number:.3f}" if abs(number) < 10 else f"{number:.4g}"

    if decimals(value) == "—":
        return "—"
    ends = [decimals(low), decimals(high)]
    return f"{decimals(value)}{spread}" + ("" if ends == ["—", "—"] else f" [{', '.join(ends)}]")


def duration(seconds: float) -> str:
    """A time that people wait for."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]


# -- how wide ---------------------------------------------------------------------------------------------------------


def width_of(text: str, font: float = FONT) -> float:
    """About how wide a text is, on the safe side: the widest of the usual fonts."""
    return font * sum(map(_em, text))


def _em(c: str) -> float:
    if c in "iIjl.,:;|!'()[]{} /ft·":
        return 0.4
    if c in "mwMW@%—→∞…&":
        return 1.0
    if unicodedata.combining(c):
        return 0.0
    if unicodedata.east_asian_width(c) in "WF":
        return 1.3
    return 0.75 if c.isupper() else 0.63 if ord(c) < 0x250 else 0.8


def fitted(text: str, room: float) -> str:
    """Cut to the room there is, with an ellipsis."""
    text = " ".join(clean(text[:LONGEST]).split())
    if width_of(text) <= room:
        return text
    while text and width_of(text) + FONT > room:
        text = text[:-1]
    return f"{text.rstrip()}…"


def wrapped(text: str, room: float, lines: int = 2) -> list[str]:
    """In at most so many lines, the last of them cut."""
    words, out = " ".join(clean(text[:LONGEST]).split()).split(" "), [""]
    for number, word in enumerate(words):
        longer = f"{out[-1]} {word}".strip()
        if width_of(longer) <= room or not out[-1]:
            out[-1] = longer
        elif len(out) < lines:
            out.append(word)
        else:
            out[-1] = " ".join([out[-1], *words[number:]])
            break
    return [fitted(line, room) for line in out if line]
