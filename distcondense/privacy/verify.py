"""`distcondense privacy verify`: what a privacy.json states, recomputed from that file, and compared with its release.

Its ledger is replayed by two accountants and must add up to the stated ε, no more and no less; the noise of its
entries, the trade-off curve, the membership advantage and the statement in words must be those the ledger gives; the
released files must be those it was made for. Of a run folder the ledger on disk is compared too, and what earlier runs
spent is reported. What no check of a file can see: one that was forged as a whole, hence signatures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from distcondense.errors import RunFolderError, SettingsError, UserError
from distcondense.privacy.accountant import (
    advantage_with_earlier,
    membership_advantage,
    replay,
    trade_off,
    with_earlier,
)
from distcondense.privacy.binding import STATEMENT, unbound
from distcondense.privacy.curves import gaussian_epsilon, pld_epsilon
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import read_events
from distcondense.privacy.statement import NO_SUM, Guarantee, Privacy, shown
from distcondense.privacy.steps import StepAccountant

ROUNDING = 1e-9
NOISE_ROUNDING = 1e-6  # relative
LEFT_OUT = 1e-5  # relative to 1 + ε: a ledger this far below the stated ε lacks an entry
DIGITS = 6
NOTHING = "no privacy guarantee"
CHOSEN = (
    "columns were chosen, so the two accountants bound the picks differently and need not give one number: they agree "
    "where neither is below the Gaussian part alone and the first is at most √(4/3) of the second"
)


@dataclass(frozen=True)
class Verified:
    """What a ledger adds up to, beside what the file states."""

    guarantee: str
    stated: float | None  # None where no guarantee is stated
    delta: float | None
    accountants: dict[str, float]  # name → ε
    events: int
    agree: bool  # the two accountants, in the sense their docstring gives
    contradictions: tuple[str, ...] = ()  # what the file, or its folder, says that the ledger does not give
    notes: tuple[str, ...] = ()  # of a run folder: what was compared, what earlier runs spent

    def plus(self, contradictions: Sequence[str], notes: Sequence[str]) -> Verified:
        """With what another check found."""
        return replace(
            self, contradictions=(*self.contradictions, *contradictions), notes=(*self.notes, *notes)
        )  # fmt: skip

    @property
    def replayed(self) -> float | None:
        return next(iter(self.accountants.values()), None)

    @property
    def pays(self) -> bool:
        if self.stated is None or self.replayed is None:  # nothing is promised
            return self.stated is None
        return self.agree and self.replayed <= self.stated + ROUNDING

    @property
    def holds(self) -> bool:
        return self.pays and not self.contradictions

    def lines(self) -> list[str]:
        claim = NOTHING if self.stated is None else f"ε = {shown(self.stated, DIGITS)} ({self.guarantee}) at δ = "
        claim += "" if self.delta is None else f"{self.delta:g}"
        out = [f"stated:   {claim}, {self.events} ledger entries"]
        out += [
            f"replayed: ε = {shown(value, DIGITS)} ({self.guarantee}) by {name}"
            for name, value in self.accountants.items()
        ]
        out += [f"note:     {note} ({self.guarantee})" for note in self.notes]
        out += [f"WRONG:    {found} ({self.guarantee})" for found in self.contradictions]
        return [*out, self.verdict]

    @property
    def verdict(self) -> str:
        if not self.pays:
            return f"THE LEDGER DOES NOT PAY FOR THE STATED ε ({self.guarantee})"
        if self.contradictions:
            return f"LEDGER, STATEMENT AND RELEASE DO NOT BELONG TOGETHER ({self.guarantee}): see what is wrong above"
        if self.stated is None:
            return f"{NOTHING.upper()}, and the statement says so: treat the table as patient data"
        return (
            f"the ledger pays for the stated ε: the entries listed add up to the stated ε ({self.guarantee}); a file "
            "that was forged as a whole cannot be seen from it, only from a signature"
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "replayed": self.replayed, "holds": self.holds, "verdict": self.verdict}


def verify(path: Path) -> Verified:
    """Replay a run folder's, a release folder's or a file's ledger, and compare the files that it was made for."""
    file = statement_file(path)
    try:
        stated = json.loads(file.read_text(encoding="utf-8"))
        guarantee = stated["guarantee"]
        if guarantee not in get_args(Guarantee):
            raise RunFolderError(
                str(file), "must state a guarantee by its name", found="an unknown one",
                fix="treat the table as patient data",
            )  # fmt: skip
        if guarantee == "none":
            return _without(stated).plus(*unbound(stated, file.parent, whole=path.is_dir()))
        epsilon, delta = float(stated["epsilon"]), float(stated["delta"])
        if guarantee == "as-published":
            found = _as_published(stated, epsilon, delta)
        else:
            if not stated["ledger"]:
                raise RunFolderError(
                    str(file), "must list what was asked of patients", found="an empty ledger", fix="restore the file"
                )
            found = _charged(stated, epsilon, delta)
            internal = path / "internal"
            if path.is_dir() and internal.is_dir():
                found = _with_folder(found, stated, internal)
        return found.plus(*unbound(stated, file.parent, whole=path.is_dir()))
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError) as error:
        raise RunFolderError(
            str(file), "must be a privacy.json as a run writes it", found=type(error).__name__, fix="check the path"
        ) from None


def statement_of_file(stated: dict[str, Any]) -> Privacy:
    """The statement that a privacy.json holds."""
    known = {field.name for field in fields(Privacy)}
    return Privacy(**{name: value for name, value in stated.items() if name in known})


def _charged(stated: dict[str, Any], epsilon: float, delta: float) -> Verified:
    events = [Event.from_dict(entry) for entry in stated["ledger"]]
    found = replay(events, delta)
    names = (
        ("PLD (dp-accounting)", "Rényi (dp-accounting)") if found.picks else ("exact Gaussian", "PLD (dp-accounting)")
    )
    second = found.exact_or_rdp if found.picks else found.pld
    wrong = [*_wrong_noise(events), *_wrong_unit(events, stated), *_wrong_curve(events, stated), *_wrong_words(stated)]
    if found.epsilon < epsilon - LEFT_OUT * (1 + epsilon):
        wrong.append("the ledger adds up to less than the stated ε: entries were left out")
    return Verified(
        stated["guarantee"], epsilon, delta, {names[0]: found.epsilon, names[1]: second}, len(events), found.agree,
        tuple(wrong), (CHOSEN,) if found.picks else (),
    )  # fmt: skip


def _without(stated: dict[str, Any]) -> Verified:
    """No guarantee: then nothing in the file may sound like one."""
    names = ("epsilon", "delta", "membership_advantage", "epsilon_with_earlier_runs", "epsilon_at_last_step")
    said = [name for name in names if stated[name] is not None] + [n for n in ("ledger", "trade_off") if stated[n]]
    wrong = [f"{name} is stated where no guarantee is" for name in said]
    return Verified("none", None, None, {}, 0, True, (*wrong, *_wrong_words(stated)))


def _wrong_noise(events: Sequence[Event]) -> list[str]:
    """σ = Δ/μ, both in the units of the query. A pick has Gumbel noise of scale 2Δ/ε₀."""
    out = []
    for number, event in enumerate(events, 1):
        if event.noise == 0:  # says nothing about it
            continue
        due = (1 if event.kind == "gaussian" else 2) * event.sensitivity / event.cost
        if not abs(event.noise - due) <= NOISE_ROUNDING * due:
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
    try:
        said = statement_of_file(stated).paragraph()
    except SettingsError as error:  # a guarantee that these facts do not allow
        return [str(error)]
    return [] if said == stated["statement"] else ["the statement in words is not that of the numbers"]


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
        both, said = with_earlier(events, earlier, float(stated["delta"])), stated["epsilon_with_earlier_runs"]
        total = NO_SUM[both][0] if isinstance(both, str) else f"ε = {shown(both or 0.0, DIGITS)}"
        notes.append(f"internal/earlier.jsonl holds {len(earlier)} entries of earlier runs, together {total}")
        low = isinstance(both, float) and isinstance(said, int | float) and said < both - ROUNDING
        if low or said is None or (isinstance(both, str) and said != both):
            wrong.append("the statement does not count the earlier runs of this folder")
        joint, due = stated["advantage_with_earlier_runs"], advantage_with_earlier(events, earlier, both)
        if due is not None and not (isinstance(joint, float) and joint >= due - ROUNDING):
            wrong.append("the statement does not give the membership advantage together with earlier runs")
    return found.plus(wrong, notes)


def _as_published(stated: dict[str, Any], epsilon: float, delta: float) -> Verified:
    """A paper's own accounting: of noisy means that share no patient, or of steps, an earlier of which is released."""
    facts = stated["parameters"]
    if "mu" in facts:
        mu = max(float(entry["mu"]) for entry in stated["ledger"])
        found = {"exact Gaussian": gaussian_epsilon(mu, delta), "PLD (dp-accounting)": pld_epsilon(mu, (), delta, 0)}
        exact, second = found.values()
        return Verified(
            "as-published", epsilon, delta, found, len(stated["ledger"]), abs(exact - second) <= 1e-3 * (1 + exact),
            tuple(_wrong_words(stated)),
        )  # fmt: skip
    accountant = StepAccountant(float(facts["sampling_rate"]), delta, int(facts["rows"]))
    for entry in stated["ledger"]:
        for _ in range(int(entry["count"])):
            accountant.spend(float(entry["noise_multiplier"]))
    last = float(stated["epsilon_at_last_step"])
    return Verified(
        "as-published", last, delta, {"RDP (dp-accounting)": accountant.epsilon()}, len(stated["ledger"]), True,
        tuple(_wrong_words(stated)),
    )  # fmt: skip


def statement_file(path: Path) -> Path:
    """The privacy.json of a run folder or a release folder, or that file itself."""
    for file in (path, path / STATEMENT, path / "release" / STATEMENT):
        if file.is_file():
            return file
    raise RunFolderError(
        str(path),
        "must be a run folder, its release folder or a privacy.json",
        found="none of them",
        fix="check the path",
    )
