"""Axes of a drawing: numbers → units, with round ticks whose labels do not touch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from distcondense.report.text import width_of

SMALLEST = 1e-100  # numbers nearer to each other than this are one


@dataclass(frozen=True)
class Axis:
    """Numbers → units of the drawing."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[tuple[float, str], ...]

    def __call__(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        return self.start + (inside - self.low) / (self.high - self.low) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round numbers from `low` to `high`."""
    raw = (high - low) / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    for step in (power * factor for factor in (1, 2, 2.5, 5, 10, 20)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [number * step for number in range(first, last + 1)]
    return [low]


def _labels(values: Sequence[float]) -> list[str]:
    """As many decimals as tell them apart, no more."""
    largest = max(map(abs, values), default=0.0)
    if 0 < largest < 1e-4 or (largest >= 1e7 and len(values) > 1 and values[1] - values[0] >= largest / 50):
        return [f"{value:.1e}".replace("-", "−") if value else "0" for value in values]
    slack = min((b - a for a, b in pairwise(values)), default=largest) / 100
    for decimals in range(13):
        texts = [f"{value:,.{decimals}f}" for value in values]
        if all(abs(float(t.replace(",", "")) - v) <= slack for t, v in zip(texts, values, strict=True)):
            break
    return [text.replace("-", "−") if float(text.replace(",", "")) else text.lstrip("-") for text in texts]


def span_of(values: Sequence[float], wanted: tuple[float, float] | None, zero: bool) -> tuple[float, float]:
    """From where to where an axis goes: what was wanted, and no point outside it."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    if wanted is not None and all(map(math.isfinite, wanted)) and wanted[0] < wanted[1]:
        low, high = min(low, wanted[0]), max(high, wanted[1])
    elif zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= max(1e-12 * max(abs(low), abs(high)), SMALLEST):
        room = abs(low) / 2 or 0.5
        low, high = low - room, high + room
    return low, high


def axis_of(span: tuple[float, float], start: float, end: float, *, nice: bool, most: int = 6) -> Axis:
    """With round numbers at its ends where `nice`; as many ticks as fit, along the drawing or up it."""
    low, high = span
    for count in range(most, 1, -1):
        marks = ticks(low, high, count)
        if nice and len(marks) > 1:
            step = marks[1] - marks[0]
            ends = (min(step * math.floor(low / step + 1e-9), low), max(step * math.ceil(high / step - 1e-9), high))
            marks = ticks(*ends, count + 2)
        else:
            ends = (low, high)
        texts = _labels(marks)
        axis = Axis(*ends, start, end, tuple(zip(marks, texts, strict=True)))
        places = [axis(mark) for mark in marks]
        room = (width_of(a) / 2 + width_of(b) / 2 + 6 for a, b in pairwise(texts))
        if start > end or all(
            right - left >= need for left, right, need in zip(places, places[1:], room, strict=False)
        ):
            return axis
    return axis
