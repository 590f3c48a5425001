"""`distcondense privacy verify`: what a privacy.json states, recomputed from that file, and compared with its release.

Its ledger is replayed by two accountants and must add up to the stated ε, no more and no less; the noise of its
entries, the trade-off curve, the membership advantage and the statement in words must be those the ledger gives; the
released files must be those it was made for. Of a run folder the ledger on disk is compared too, and what earlier runs
spent is reported. What no check of a file can see: one that was forged as a whole, hence signatures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distcondense.errors import RunFolderError, SettingsError, UserError, brief, os_errors, refuse_os
from distcondense.outside import parse_json, read_text
from distcondense.privacy.accountant import (
    Replay,
    advantage_with_earlier,
    membership_advantage,
    replay,
    trade_off,
    with_earlier,
)
from distcondense.privacy.binding import STATEMENT, compare_files
from distcondense.privacy.budget import check_budget
from distcondense.privacy.curves import gaussian_epsilon, pld_epsilon
from distcondense.privacy.events import Event
from distcondense.privacy.ledger import read_events
from distcondense.privacy.statement import GUARANTEES, NO_SUM, Privacy, rounded_up
from distcondense.privacy.steps import StepAccountant, in_words

ROUNDING = 1e-9
NOISE_ROUNDING = 1e-6  # relative
LEFT_OUT = 1e-5  # relative to 1 + ε: a ledger this far below the stated ε lacks an entry
MOST_STEPS = 10_000_000  # more nobody counted
DIGITS = 6
NOTHING = "no privacy guarantee"
NO_SIGNATURE, UNCHECKED, SIGNED, MISSIGNED = "none", "there, not checked", "holds", "does not hold"
CHOSEN = (
    "columns were chosen: the two accountants bound these picks differently and need not give one number; they agree "
    "as closely as docs/privacy.md says they must"
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
    signature: str = NO_SIGNATURE

    def plus(self, contradictions: Sequence[str], notes: Sequence[str]) -> Verified:
        """With what another check has to say."""
        return replace(self, contradictions=(*self.contradictions, *contradictions), notes=(*self.notes, *notes))

    @property
    def replayed(self) -> float | None:
        """ε by the first accountant; None where nothing is promised."""
        return next(iter(self.accountants.values()), None)

    @property
    def pays(self) -> bool:
        """Whether the ledger adds up to no more than the stated ε, and both accountants agree."""
        if self.stated is None or self.replayed is None:  # nothing is promised
            return self.stated is None
        return self.agree and self.replayed <= self.stated + ROUNDING

    @property
    def holds(self) -> bool:
        """Whether the ledger pays and nothing contradicts the statement."""
        return self.pays and not self.contradictions

    def lines(self) -> list[str]:
        """For people: what is stated, replayed, noted and wrong, then the verdict."""
        claim = NOTHING if self.stated is None else f"ε = {rounded_up(self.stated, DIGITS)} ({self.guarantee}) at δ = "
        claim += "" if self.delta is None else f"{self.delta:g}"
        out = [f"stated:   {claim}, {self.events} ledger entries"]
        out += [
            f"replayed: ε = {rounded_up(value, DIGITS)} ({self.guarantee}) by {name}"
            if math.isfinite(value)
            else f"replayed: no bound ({self.guarantee}) by {name}"
            for name, value in self.accountants.items()
        ]
        out += [f"note:     {note} ({self.guarantee})" for note in self.notes]
        out += [f"WRONG:    {wrong} ({self.guarantee})" for wrong in self.contradictions]
        return [*out, self.verdict]

    @property
    def verdict(self) -> str:
        if not self.pays:
            return f"THE LEDGER DOES NOT PAY FOR THE STATED ε ({self.guarantee})"
        if self.contradictions:
            return f"LEDGER, STATEMENT AND RELEASE DO NOT BELONG TOGETHER ({self.guarantee}): see what is wrong above"
        if self.stated is None:
            return f"{NOTHING.upper()}, and the statement says so: treat the table as patient data"
        pays = f"the ledger pays for the stated ε: the entries listed add up to the stated ε ({self.guarantee}); "
        if self.signature == SIGNED:
            return pays + "the holder of the key's private half signed this statement and, by their hashes, these files"
        what = "the signature beside it was not checked" if self.signature == UNCHECKED else "there is no signature"
        return pays + f"a file that was forged as a whole cannot be seen from it, only from a signature: {what}"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "replayed": self.replayed, "holds": self.holds, "verdict": self.verdict}


def verify(path: Path) -> Verified:
    """Replay the ledger of a release, and compare its statement with it and with the files it was made for.

    Parameters
    ----------
    path : Path
        A run folder, its release folder or a privacy.json.

    Returns
    -------
    Verified
        What is stated, what the ledger gives by two accountants, and every contradiction; `holds` says whether there
        is none.

    Raises
    ------
    RunFolderError
        If there is no privacy.json as a run writes it.
    """
    file = statement_file(path)
    text = read_text(file, brief(file), RunFolderError)
    try:
        stated = parse_json(text)
        guarantee = stated["guarantee"]
        if guarantee not in GUARANTEES:
            raise RunFolderError(
                str(file),
                "must state a guarantee by its name",
                found="an unknown one",
                fix="treat the table as patient data",
            )
        if guarantee == "none":
            return _without(stated).plus(*compare_files(stated, file.parent, whole=path.is_dir()))
        epsilon, delta = _number(stated["epsilon"]), _number(stated["delta"])
        check_budget(epsilon=epsilon, delta=delta)
        if guarantee == "as-published":
            verified = _as_published(stated, epsilon, delta)
        else:
            if not stated["ledger"]:
                raise RunFolderError(
                    str(file), "must list what was asked of patients", found="an empty ledger", fix="restore the file"
                )
            verified = _charged(stated, epsilon, delta)
            internal = path / "internal"
            if path.is_dir() and internal.is_dir():
                verified = _with_folder(verified, stated, internal)
        return verified.plus(*compare_files(stated, file.parent, whole=path.is_dir()))
    except UserError:
        raise
    except OSError as error:  # of a name in it that no disk can hold, for one
        refuse_os(error, brief(file), "must name files that can be read", RunFolderError)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError, ArithmeticError, IndexError) as error:
        raise RunFolderError(
            brief(file), "must be a privacy.json as a run writes it", found=type(error).__name__, fix="check the path"
        ) from None


def _number(value: Any) -> float:
    """A finite number that the file gives as one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _whole(value: Any, least: int = 1, most: int = MOST_STEPS) -> int:
    """A whole number within these."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError
    return value


def _charged(stated: dict[str, Any], epsilon: float, delta: float) -> Verified:
    """A guarantee whose every look at patients is in the ledger: end-to-end or conditional."""
    events = [Event.from_dict(entry) for entry in stated["ledger"]]
    total, by_pld = replay(events, delta), "PLD (dp-accounting)"
    names = (by_pld, "Rényi (dp-accounting)") if total.picks else ("exact Gaussian", by_pld)
    second = total.exact_or_rdp if total.picks else total.pld
    wrong = _wrong_noise(events)
    rows = sum(event.unit != "person" for event in events)
    if stated["unit"] == "person" and rows:
        wrong.append(f"{rows} entries protect rows, the statement is about persons")
    wrong += [*_wrong_curve(events, stated), *_wrong_words(stated), *_wrong_facts(total, second, stated, epsilon)]
    both = stated["epsilon_with_earlier_runs"]  # none, a number no smaller than this run's own, or why there is none
    if both is not None and both not in NO_SUM and (isinstance(both, str) or _number(both) < epsilon - ROUNDING):
        wrong.append("ε with earlier runs is none that a run writes")
    if total.epsilon < epsilon - LEFT_OUT * (1 + epsilon):
        wrong.append("the ledger adds up to less than the stated ε: entries were left out")
    replayed = dict(zip(names, (total.epsilon, second), strict=True))
    notes = (CHOSEN,) if total.picks else ()
    return Verified(stated["guarantee"], epsilon, delta, replayed, len(events), total.agree, tuple(wrong), notes)


def _without(stated: dict[str, Any]) -> Verified:
    """No guarantee: then nothing in the file may sound like one."""
    names = ("epsilon", "delta", "membership_advantage", "epsilon_with_earlier_runs", "epsilon_at_last_step")
    claims = [name for name in names if stated[name] is not None] + [n for n in ("ledger", "trade_off") if stated[n]]
    wrong = [f"{name} is stated where no guarantee is" for name in claims]
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


def _wrong_facts(total: Replay, second: float, stated: dict[str, Any], epsilon: float) -> list[str]:
    """Parameters that the ledger decides must be what it decides; ε asked is never below what is stated.

    Others are a text, a number, true or false, or a list of such.
    """
    facts, out = stated["parameters"], []
    due = {
        "mu": total.mu,
        "picks": total.picks,
        "epsilon_by_second_accountant": second,
        "delta_reserved_for_discrete_noise": total.delta_grid,
        "delta_reserved_for_found_categories": total.delta_categories,
        "delta_reserved_for_collisions": total.delta_collisions,
    }
    for name, value in due.items():
        if name in facts and not _fits(facts[name], value):
            out.append(f"{name} among the parameters is not what the ledger gives")
    for name, value in facts.items():
        if name.startswith("epsilon_asked") and _number(value) < epsilon - ROUNDING:
            out.append(f"{name} among the parameters is less than what is stated")
        elif name not in due and not all(
            isinstance(item, str | int | float) for item in (value if isinstance(value, list) else [value])
        ):
            out.append(f"{name} among the parameters is none that a run writes")
    return out


def _fits(value: Any, due: float) -> bool:
    """The number that is due; null where that is infinite: the second accountant has no bound at a large ε."""
    if value is None or not math.isfinite(due):
        return value is None and due == math.inf
    return abs(_number(value) - due) <= ROUNDING * (1 + abs(due))


def _wrong_words(stated: dict[str, Any]) -> list[str]:
    """The paragraph people read must be the one its numbers make."""
    try:
        paragraph = Privacy.from_dict(stated).paragraph()
    except SettingsError as error:  # a guarantee that these facts do not allow
        return [str(error)]
    return [] if paragraph == stated["statement"] else ["the statement in words is not that of the numbers"]


def _with_folder(verified: Verified, stated: dict[str, Any], internal: Path) -> Verified:
    """With what lies beside the release: the ledger on disk, and what earlier runs in the folder spent."""
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
        both, claim = with_earlier(events, earlier, float(stated["delta"])), stated["epsilon_with_earlier_runs"]
        total = NO_SUM[both][0] if isinstance(both, str) else f"ε = {rounded_up(both or 0.0, DIGITS)}"
        notes.append(f"internal/earlier.jsonl holds {len(earlier)} entries of earlier runs, together {total}")
        low = isinstance(both, float) and isinstance(claim, int | float) and claim < both - ROUNDING
        if low or claim is None or (isinstance(both, str) and claim != both):
            wrong.append("the statement does not count the earlier runs of this folder")
        joint, due = stated["advantage_with_earlier_runs"], advantage_with_earlier(events, earlier, both)
        if due is not None and not (isinstance(joint, float) and joint >= due - ROUNDING):
            wrong.append("the statement does not give the membership advantage together with earlier runs")
    return verified.plus(wrong, notes)


def _as_published(stated: dict[str, Any], epsilon: float, delta: float) -> Verified:
    """A paper's own accounting: of noisy means that share no patient, or of steps, an earlier of which is released."""
    facts, wrong = stated["parameters"], _wrong_words(stated)
    if "mu" in facts:
        mu = max(_number(entry["mu"]) for entry in stated["ledger"])
        if min(_number(entry["mu"]) for entry in stated["ledger"]) <= 0:
            raise ValueError  # no run writes that
        if not abs(_number(facts["mu"]) - mu) <= ROUNDING * (1 + mu):
            wrong.append("mu among the parameters is not what the ledger gives")
        means = {"exact Gaussian": gaussian_epsilon(mu, delta), "PLD (dp-accounting)": pld_epsilon(mu, (), delta, 0, 0)}
        exact, second = means.values()
        return Verified(
            "as-published",
            epsilon,
            delta,
            means,
            len(stated["ledger"]),
            abs(exact - second) <= 1e-3 * (1 + exact),
            tuple(wrong),
        )
    rate, rows, steps = _number(facts["sampling_rate"]), _whole(facts["rows"]), list[tuple[float, int]]()
    for entry in stated["ledger"]:
        steps.append((_number(entry["noise_multiplier"]), _whole(entry["count"])))
    if not steps or not 0 < rate <= 1 or min(noise for noise, _ in steps) <= 0:
        raise ValueError  # no run writes that, and no accountant counts it
    every = StepAccountant(rate, delta, rows, ledger=steps)
    first = _first(steps, _whole(facts["released_step"], 0, every.steps))
    released = StepAccountant(rate, delta, rows, ledger=first)
    last = _number(stated["epsilon_at_last_step"])
    if _whole(facts["steps"]) != every.steps:
        wrong.append("the ledger does not hold as many steps as are stated")
    for name, claim, due in (("last step", last, every), ("released step", epsilon, released)):
        if not abs(claim - due.epsilon()) <= ROUNDING * (1 + claim):
            wrong.append(f"ε at the {name} is not what the ledger gives")
    if stated["worst_case_epsilon"] != in_words(every.worst_case()):
        wrong.append("the worst case end to end is not what the ledger gives")
    return Verified(
        "as-published", last, delta, {"RDP (dp-accounting)": every.epsilon()}, len(stated["ledger"]), True, tuple(wrong)
    )


def _first(steps: Sequence[tuple[float, int]], most: int) -> list[tuple[float, int]]:
    """The ledger of the first steps only."""
    first, left = list[tuple[float, int]](), most
    for noise, count in steps:
        if left > 0:
            first.append((noise, min(count, left)))
            left -= count
    return first


def statement_file(path: Path) -> Path:
    """The privacy.json of a run folder or a release folder, or that file itself."""
    with os_errors(brief(path), "must be readable", RunFolderError):
        for file in (path, path / STATEMENT, path / "release" / STATEMENT):
            if file.is_file():
                return file
    raise RunFolderError(
        brief(path),
        "must be a run folder, its release folder or a privacy.json",
        found="none of them",
        fix="check the path",
    )
