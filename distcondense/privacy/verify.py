"""`distcondense privacy verify`: what a privacy.json states, recomputed from that file alone.

Its ledger is replayed by two accountants; the noise of its entries, the trade-off curve, the membership advantage and
the statement in words must be those the ledger gives. Of a run folder the ledger on disk is compared too, and what
earlier runs spent is reported. What no check can see: entries that were left out of a file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from distcondense.errors import RunFolderError, UserError
from distcondense.privacy.accountant import membership_advantage, replay, trade_off, with_earlier
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import read_events
from distcondense.privacy.statement import NO_SUM, Privacy, shown
from distcondense.privacy.steps import StepAccountant

ROUNDING = 1e-9
NOISE_ROUNDING = 1e-6  # relative
DIGITS = 6


@dataclass(frozen=True)
class Verified:
    """What a ledger adds up to, beside what the file states."""

    guarantee: str
    stated: float
    delta: float
    accountants: dict[str, float]  # name → ε
    events: int
    agree: bool  # the two accountants, in the sense their docstring gives
    contradictions: tuple[str, ...] = ()  # what the file, or its folder, says that the ledger does not give
    notes: tuple[str, ...] = ()  # of a run folder: what was compared, what earlier runs spent

    @property
    def replayed(self) -> float:
        return next(iter(self.accountants.values()))

    @property
    def pays(self) -> bool:
        return self.agree and self.replayed <= self.stated + ROUNDING

    @property
    def holds(self) -> bool:
        return self.pays and not self.contradictions

    def lines(self) -> list[str]:
        claim = f"ε = {shown(self.stated, DIGITS)} ({self.guarantee}) at δ = {self.delta:g}"
        out = [f"stated:   {claim}, {self.events} ledger entries"]
        out += [
            f"replayed: ε = {shown(value, DIGITS)} ({self.guarantee}) by {name}"
            for name, value in self.accountants.items()
        ]
        out += [f"folder:   {note} ({self.guarantee})" for note in self.notes]
        out += [f"WRONG:    {found} ({self.guarantee})" for found in self.contradictions]
        return [*out, self.verdict]

    @property
    def verdict(self) -> str:
        if not self.pays:
            return f"THE LEDGER DOES NOT PAY FOR THE STATED ε ({self.guarantee})"
        if self.contradictions:
            return f"THE LEDGER IS NOT THAT OF THE STATEMENT ({self.guarantee}): see what is wrong above"
        return (
            f"the ledger pays for the stated ε: the entries listed add up to the stated ε ({self.guarantee}); entries "
            "that were left out cannot be seen from this file"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "replayed": self.replayed, "holds": self.holds, "verdict": self.verdict}


def verify(path: Path) -> Verified:
    """Replay a run folder's, a release folder's or a file's ledger."""
    file = _find(path)
    try:
        stated = json.loads(file.read_text(encoding="utf-8"))
        guarantee = stated["guarantee"]
        if guarantee == "none":
            raise RunFolderError(
                str(file), "must state a guarantee", found="none", fix="treat the table as patient data"
            )
        epsilon, delta = float(stated["epsilon"]), float(stated["delta"])
        if guarantee == "end-to-end":
            if not stated["ledger"]:
                raise RunFolderError(
                    str(file), "must list what was asked of patients", found="an empty ledger", fix="restore the file"
                )
            found = _end_to_end(stated, epsilon, delta)
            internal = path / "internal"
            return _with_folder(found, stated, internal) if path.is_dir() and internal.is_dir() else found
        return _as_published(stated, epsilon, delta)
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise RunFolderError(
            str(file), "must be a privacy.json as a run writes it", found=type(error).__name__, fix="check the path"
        ) from None


def _end_to_end(stated: dict[str, Any], epsilon: float, delta: float) -> Verified:
    events = [Event.from_dict(entry) for entry in stated["ledger"]]
    found = replay(events, delta)
    names = (
        ("PLD (dp-accounting)", "Rényi (dp-accounting)") if found.picks else ("exact Gaussian", "PLD (dp-accounting)")
    )
    second = found.exact_or_rdp if found.picks else found.pld
    wrong = [*_wrong_noise(events), *_wrong_unit(events, stated), *_wrong_curve(events, stated), *_wrong_words(stated)]
    return Verified(
        "end-to-end", epsilon, delta, {names[0]: found.epsilon, names[1]: second}, len(events), found.agree,
        tuple(wrong),
    )  # fmt: skip


def _wrong_noise(events: Sequence[Event]) -> list[str]:
    """σ = Δ/μ; a query in units of its own may show more, never less. A pick has Gumbel noise of scale 2Δ/ε₀."""
    out = []
    for number, event in enumerate(events, 1):
        if event.noise == 0:  # says nothing about it
            continue
        due = (1 if event.kind == "gaussian" else 2) * event.sensitivity / event.cost
        own_units = event.query == "total"
        least, most = due * (1 - NOISE_ROUNDING), math.inf if own_units else due * (1 + NOISE_ROUNDING)
        if not least <= event.noise <= most:
            out.append(f"entry {number}, {event.words}: noise {event.noise:.6g} where its cost says {due:.6g}")
    return out


def _wrong_unit(events: Sequence[Event], stated: dict[str, Any]) -> list[str]:
    rows = sum(event.unit != "person" for event in events)
    if stated["unit"] == "person" and rows:
        return [f"{rows} entries protect rows, the statement is about persons"]
    return []


def _wrong_curve(events: Sequence[Event], stated: dict[str, Any]) -> list[str]:
    out = []
    advantage = stated["membership_advantage"]
    if advantage is None or not abs(advantage - membership_advantage(events)) <= ROUNDING:
        out.append("the membership advantage is not the one the ledger gives")
    curve, due = stated["trade_off"], trade_off(events)
    near = len(curve) == len(due) and all(
        abs(here - there) <= ROUNDING
        for point, other in zip(curve, due, strict=True)
        for here, there in zip(point, other, strict=True)
    )
    return out if near else [*out, "the trade-off curve is not the one the ledger gives"]


def _wrong_words(stated: dict[str, Any]) -> list[str]:
    """The paragraph people read must be the one its numbers make."""
    known = {field.name for field in fields(Privacy)}
    said = Privacy(**{name: value for name, value in stated.items() if name in known})
    return [] if said.paragraph() == stated["statement"] else ["the statement in words is not that of the numbers"]


def _with_folder(found: Verified, stated: dict[str, Any], internal: Path) -> Verified:
    """What lies beside the release: the ledger on disk, and what earlier runs in the folder spent."""
    wrong, notes = [], []
    events = tuple(Event.from_dict(entry) for entry in stated["ledger"])
    on_disk, earlier = (read_events(internal / name) for name in ("ledger.jsonl", "earlier.jsonl"))
    if not (internal / "ledger.jsonl").is_file():
        notes.append("internal/ledger.jsonl is missing, nothing to compare the entries with")
    elif on_disk != events:
        wrong.append(f"internal/ledger.jsonl holds {len(on_disk)} entries that are not the {len(events)} of the file")
    else:
        notes.append(f"internal/ledger.jsonl holds the same {len(events)} entries")
    if earlier:
        both, said = with_earlier(events, earlier, found.delta), stated["epsilon_with_earlier_runs"]
        total = NO_SUM[both][0] if isinstance(both, str) else f"ε = {shown(both or 0.0, DIGITS)}"
        notes.append(f"internal/earlier.jsonl holds {len(earlier)} entries of earlier runs, together {total}")
        low = isinstance(both, float) and isinstance(said, int | float) and said < both - ROUNDING
        if low or said is None or (isinstance(both, str) and said != both):
            wrong.append("the statement does not count the earlier runs of this folder")
    return replace(found, contradictions=(*found.contradictions, *wrong), notes=tuple(notes))


def _as_published(stated: dict[str, Any], epsilon: float, delta: float) -> Verified:
    """The published accounting counts all steps; the stated ε of an earlier, released step is a part of it."""
    facts = stated["parameters"]
    accountant = StepAccountant(float(facts["sampling_rate"]), delta, int(facts["rows"]))
    for entry in stated["ledger"]:
        for _ in range(int(entry["count"])):
            accountant.spend(float(entry["noise_multiplier"]))
    last = float(stated["epsilon_at_last_step"])
    return Verified(
        "as-published", last, delta, {"RDP (dp-accounting)": accountant.epsilon()}, len(stated["ledger"]), True,
        tuple(_wrong_words(stated)),
    )  # fmt: skip


def _find(path: Path) -> Path:
    for file in (path, path / "privacy.json", path / "release" / "privacy.json"):
        if file.is_file():
            return file
    raise RunFolderError(
        str(path),
        "must be a run folder, its release folder or a privacy.json",
        found="none of them",
        fix="check the path",
    )
