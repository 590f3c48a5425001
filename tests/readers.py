"""Readers of CSV other than ours, emulated by their own documented rules: what a recipient's tool makes of a cell.

`readr`: R's readr 2 with its defaults (NA strings "" and "NA", types guessed per column: logical, number, date, text;
numbers with leading zeros stay text). `excel`: a spreadsheet that opens the file by a double click: cell by cell, 15
significant digits, formulas, dates. Both are checked once against the real thing by hand; here they run without it.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

LOGICAL = {
    "T": True,
    "F": False,
    "TRUE": True,
    "FALSE": False,
    "true": True,
    "false": False,
    "True": True,
    "False": False,
}
NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)?(\.\d*)?([eE][+-]?\d+)?$")
DATE = re.compile(r"\d{4}-\d{2}-\d{2}$|\d{4}/\d{2}/\d{2}$")
SHEET_DATE = re.compile(
    r"\d{1,4}[-/.]\d{1,4}([-/.]\d{1,4})?$|\d{1,2}[ -]?[A-Za-z]{3,9}$|[A-Za-z]{3,9}[ -]?\d{1,4}$", re.ASCII
)


def cells(path: Path) -> dict[str, list[str]]:
    """Columns as texts, as RFC 4180 has them."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    return {name: [row[i] for row in rows] for i, name in enumerate(head)}


def readr(path: Path) -> dict[str, list[Any]]:
    """None is NA."""
    return {name: _guessed(column) for name, column in cells(path).items()}


def _guessed(column: list[str]) -> list[Any]:
    there = [text.strip() for text in column if text not in ("", "NA")]
    if all(text in LOGICAL for text in there):
        return [LOGICAL.get(text.strip()) for text in column]
    if all(_number(text) for text in there):
        return [None if text in ("", "NA") else float(text) for text in column]
    if all(DATE.match(text) for text in there):
        return [None if text in ("", "NA") else ("date", text) for text in column]
    return [None if text in ("", "NA") else text.strip() for text in column]


def _number(text: str) -> bool:
    return bool(NUMBER.match(text)) and any(c.isdigit() for c in text)


def excel(path: Path) -> dict[str, list[Any]]:
    """None is an empty cell; a formula or a date is no longer what was written."""
    return {name: [_cell(text) for text in column] for name, column in cells(path).items()}


def _cell(text: str) -> Any:
    if text == "":
        return None
    if re.match(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$", text):
        return float(f"{float(text):.15g}")  # leading zeros are gone
    if text[0] in "=+@" or re.match(r"-\D", text):
        return ("formula", text)
    if text.upper() in ("TRUE", "FALSE"):
        return text.upper() == "TRUE"
    if SHEET_DATE.match(text):
        return ("date", text)
    return text
