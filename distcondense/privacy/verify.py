"""`distcondense privacy verify`: the ledger of a privacy.json, replayed from that file alone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from distcondense.errors import RunFolderError, UserError
from distcondense.privacy.accountant import Event, replay
from distcondense.privacy.published import PublishedAccountant

ROUNDING = 1e-9


@dataclass(frozen=True)
class Verified:
    """What a ledger adds up to, beside what the file states."""

    guarantee: str
    stated: float
    delta: float
    accountants: dict[str, float]  # name → ε
    events: int
    agree: bool  # the two accountants, in the sense their docstring gives

    @property
    def replayed(self) -> float:
        return next(iter(self.accountants.values()))

    @property
    def holds(self) -> bool:
        return self.agree and self.replayed <= self.stated + ROUNDING

    def lines(self) -> list[str]:
        out = [
            f"stated:   ε = {self.stated:.6g} ({self.guarantee}) at δ = {self.delta:g}, {self.events} ledger entries"
        ]
        out += [f"replayed: ε = {value:.6g} ({self.guarantee}) by {name}" for name, value in self.accountants.items()]
        verdict = "the ledger pays for the stated ε" if self.holds else "THE LEDGER DOES NOT PAY FOR THE STATED ε"
        return [*out, f"{verdict} ({self.guarantee})"]

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "replayed": self.replayed, "holds": self.holds}


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
            return _end_to_end(stated, epsilon, delta)
        return _as_published(stated, epsilon, delta)
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
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
    return Verified("end-to-end", epsilon, delta, {names[0]: found.epsilon, names[1]: second}, len(events), found.agree)


def _as_published(stated: dict[str, Any], epsilon: float, delta: float) -> Verified:
    """The published accounting counts all steps; the stated ε of an earlier, released step is a part of it."""
    facts = stated["parameters"]
    accountant = PublishedAccountant(float(facts["sampling_rate"]), delta, int(facts["rows"]))
    for entry in stated["ledger"]:
        for _ in range(int(entry["count"])):
            accountant.spend(float(entry["noise_multiplier"]))
    last = float(stated["epsilon_at_last_step"])
    return Verified(
        "as-published", last, delta, {"RDP (dp-accounting)": accountant.epsilon()}, len(stated["ledger"]), True
    )


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
