"""The whole way: canaries from a file's bytes through the reader, the gate and the method to the released bytes.

A pair of neighbours is two CSVs that differ by the lines of one person, who stands first in the file. Each run writes
one of them, by a fair coin, reads it as users do (`Cohort.from_file`), condenses it as `condense` does and writes its
run folder. The attacker then has the bytes of `release/` and nothing else: whatever number can be read off them is a
trace (release_features.py); the first runs show which traces tell the two files apart best, the others count. So
nothing has to be known of how a build is broken, in the reader, in the coins, in the release or between them.

The claim is the release's own trade-off curve, where it states one, and its ε else.

    A PERSON    400 rows, values beyond everybody else's, a category nobody has, texts that nobody listed
    THE CASE    the only case of the table, with coins for who is held out: a part without cases may not change them
    THE PLACE   outcomes follow the coins that a public seed would give to places in the file, which one person shifts

In the one-run attack each of many canaries has a category and an unlisted text of its own, and is in by its own coin.
What needs no statistics: a release must verify, and with the same noisy answers both files must release the same bytes.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from json import loads
from pathlib import Path
from typing import Any

import numpy as np

from distcondense.arrays import Flags, Floats
from distcondense.data.cohort import Cohort
from distcondense.data.schema import Schema
from distcondense.errors import DistcondenseWarning
from distcondense.evaluation.audit import stats
from distcondense.evaluation.audit.findings import AuditRequest, PendingFinding, coins, first_runs, many_runs, one_run
from distcondense.evaluation.audit.release_features import (
    Bytes,
    ReleaseDiscriminant,
    Traces,
    as_table,
    bytes_of,
    marked,
    traces_of,
)
from distcondense.methods.base import Context, Method, method_named, options_of, prepare
from distcondense.privacy.binding import STATEMENT
from distcondense.runs.folder import RunFolder
from distcondense.runs.release import SCHEMA as SCHEMA_FILE
from distcondense.runs.release import TABLE
from distcondense.runs.saving import write_run
from distcondense.runs.signing import verify_release

PERSON, CASE, PLACE = PAIRS = (
    "whole way: a person of many rows",
    "whole way: the only case",
    "whole way: first in the file",
)
PEOPLE = 600  # so many that ε = 1 releases rows; so few that no pair of columns is asked for there, which takes longer
MANY = 400  # rows that the canary has
HELD_OUT = 0.5
LEAST = 40  # runs of a pair, or nothing could be found
PILOT = 0.4  # of them to choose the traces
GUESSED = 0.2  # of the canaries
MARK = "canary"
HEAD = "who,marker,site,ward,case"
PUBLIC = """format = 1
origin = "declared"

[columns.marker]
kind = "integer"
low = 0
high = 10
missing = "indicator"

[columns.site]
kind = "categorical"
categories = [{sites}]

[columns.ward]
kind = "categorical"
categories = "private"

[columns.case]
kind = "binary"
categories = [0, 1]
"""


# ---- files


@dataclass(frozen=True)
class NeighbourFiles:
    """What everybody knows of a table, and its lines: everybody else's, and those of each canary."""

    schema: str  # TOML
    others: tuple[str, ...]
    canaries: tuple[tuple[str, ...], ...]
    options: Mapping[str, Any] = field(default_factory=dict)  # of the run

    def csv(self, members: Flags) -> bytes:
        """The file with these canaries, first of all."""
        of = [line for lines, there in zip(self.canaries, members, strict=True) if there for line in lines]
        return ("\n".join([HEAD, *of, *self.others]) + "\n").encode()


def neighbouring(name: str, seed: int) -> NeighbourFiles:
    """Cases have marker 1, the others 0, but half of the people lack it; 1 is mostly in the north. None are at C."""
    rng = np.random.default_rng([seed, 0xF11E])
    marker = rng.integers(0, 2, PEOPLE)
    case = marker.copy()
    options: dict[str, Any] = {"holdout": 0.0}
    own = [f"x,10,C,{MARK}{k},0" for k in range(MANY)]
    if name == CASE:
        case[:], options["holdout"], own = 0, HELD_OUT, [f"x,0,C,{MARK},1"]
    if name == PLACE:  # coins that follow the public seed and the place would let in positives only
        case = (np.random.default_rng(seed).random(PEOPLE) >= HELD_OUT).astype(np.int64)
        options["holdout"], own = HELD_OUT, [f"x,1,C,{MARK},0"]
    others = _lines(rng, marker, case)
    return NeighbourFiles(_schema("A", "B", "C"), others, (tuple(own),), options)


def many_canaries(count: int, seed: int) -> NeighbourFiles:
    """Canary k has site k and a ward that nobody listed."""
    rng = np.random.default_rng([seed, 0xF11F])
    marker = rng.integers(0, 2, PEOPLE)
    own = tuple((f"x{k},{rng.integers(0, 2)},s{k},{_mark(k)},{k % 2}",) for k in range(count))
    schema = _schema("A", "B", *(f"s{k}" for k in range(count)))
    others = _lines(rng, marker, marker)
    return NeighbourFiles(schema, others, own, {"holdout": 0.0, "categories_checked": ("site",)})


def _mark(number: int) -> str:
    return f"{MARK}-{number}-"


def _schema(*sites: str) -> str:
    return PUBLIC.format(sites=", ".join(f'"{site}"' for site in sites))


def _lines(rng: np.random.Generator, marker: Any, case: Any) -> tuple[str, ...]:
    n = len(marker)
    known, site, ward = rng.random(n) < 0.5, rng.random(n) < 0.2, (rng.random(n) < 0.1) ^ (marker == 1)
    return tuple(
        f"p{k},{marker[k] if known[k] else ''},{'AB'[int(site[k])]},{('south', 'north')[int(ward[k])]},{case[k]}"
        for k in range(n)
    )


# ---- one run


@dataclass(frozen=True)
class ReleaseRunner:
    """A method, its public settings, and a room to run it in."""

    method: Method
    options: Mapping[str, Any]
    threads: int
    directory: Path

    def release(
        self, files: NeighbourFiles, members: Flags, *, answers: RunFolder | None = None, keep: str = ""
    ) -> Bytes:
        """Bytes in, bytes out. `answers`: a run whose noisy answers are given again, for whatever is in the file.

        `keep` names a folder that stays; others are gone with the run.
        """
        folder = RunFolder(self.directory / (keep or "run"))
        table, schema = self.directory / "table.csv", self.directory / SCHEMA_FILE
        table.write_bytes(files.csv(members))
        schema.write_text(files.schema, encoding="utf-8")
        cohort = Cohort.from_file(table, target="case", person_id="who", schema=Schema.from_toml(schema))
        settings = options_of(self.method, {**self.options, **files.options})
        identity = {"method": self.method.name, "options": settings.to_dict(), "data": cohort.fingerprint()}
        folder.claim(identity, resume=False, force=False)
        if answers is not None:
            for file in (answers.ledger, answers.ledger.with_suffix(".answers"), answers.internal / "holdout.json"):
                shutil.copy(file, folder.internal / file.name)
        run = folder.run if answers is None else answers.run
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DistcondenseWarning)  # of a large ε: it is meant
            prepared = prepare(self.method, cohort.facts, settings)
            context = Context(threads=self.threads, folder=folder, run=run)
            (made,) = self.method.condense(cohort, prepared, context).values()
        record = {"rows": len(cohort), "settings": settings.to_dict()}
        write_run(folder, replace(made, details=None, identity=identity, internal=record))
        found = bytes_of(folder.release)
        if not keep:
            shutil.rmtree(folder.path)
        return found


# ---- attacks


def total_runs(request: AuditRequest) -> int:
    pairs = [name for name in request.neighbours if name in PAIRS]
    return request.whole * len(pairs) + int(request.whole > 0 and request.canaries > 0)


def attack(
    method: str, guarantee: str, options: Mapping[str, Any], request: AuditRequest, on_run: Callable[[], None]
) -> tuple[list[PendingFinding], tuple[str, ...]]:
    """All chosen pairs, then one run with many canaries; and what needs no statistics."""
    pending: list[PendingFinding] = []
    problems: list[str] = []
    options = {**options, "epsilon": request.epsilon, "delta": request.delta, "seed": request.seed}
    with tempfile.TemporaryDirectory(prefix="distcondense-audit-") as directory:
        runner = ReleaseRunner(method_named(method), options, request.threads, Path(directory))
        for name in (name for name in request.neighbours if name in PAIRS):
            files = neighbouring(name, request.seed)
            problems += _books(name, runner, files)
            pending += _pair(name, runner, files, guarantee, request, on_run)
        if request.canaries:
            pending.append(_one_run(runner, guarantee, request))
            on_run()
    return pending, tuple(problems)


def _pair(
    name: str,
    runner: ReleaseRunner,
    files: NeighbourFiles,
    guarantee: str,
    request: AuditRequest,
    on_run: Callable[[], None],
) -> list[PendingFinding]:
    first = first_runs(request.whole, PILOT)
    member = np.where(first, np.arange(request.whole) % 2 == 1, coins(request.whole))  # those that count are by coins
    seen: list[Traces] = []
    claims: list[tuple[float, bool]] = []
    for there in member:
        released = runner.release(files, np.array([there]))
        seen.append(traces_of(released, [MARK]))
        claims.append(claimed(released, request.whole))
        on_run()
    pilot = [traces for traces, early in zip(seen, first, strict=True) if early]
    discriminant = ReleaseDiscriminant.fit(as_table(pilot), member[first])
    return many_runs(
        name,
        discriminant.scores(seen),
        member,
        max(epsilon for epsilon, _ in claims),
        request.delta,
        guarantee,
        gaussian=all(curved for _, curved in claims),
        pilot=PILOT,
        by=discriminant.words,
    )


def claimed(released: Bytes, runs: int) -> tuple[float, bool]:
    """(ε that a release states, whether it also states a trade-off curve, to which Gaussian readings can be held).

    Where the smallest Gaussian curve below the stated one means more than ε, that counts. A run that asked less than
    was planned states less; of several runs the largest claim counts.
    """
    stated = loads(released[STATEMENT])
    epsilon = math.inf if stated["epsilon"] is None else float(stated["epsilon"])
    if not stated["trade_off"]:
        return epsilon, False
    mu = stats.mu_of_curve([(alpha, beta) for alpha, beta in stated["trade_off"]], 1 / runs)
    return max(epsilon, stats.epsilon_of_mu(mu, float(stated["delta"]))), True


def _one_run(runner: ReleaseRunner, guarantee: str, request: AuditRequest) -> PendingFinding:
    """In where the release holds a canary's own text, or its category weighs more than most canaries'."""
    files, member = many_canaries(request.canaries, request.seed), coins(request.canaries)
    released = runner.release(files, member)
    claim, _ = claimed(released, request.canaries)
    score, guesses = scores(released, request.canaries), max(1, round(GUESSED * request.canaries))
    name = f"whole way: {request.canaries} canaries"
    return one_run(score, member, guesses, claim, request.delta, guarantee, name=name)


def scores(released: Bytes, canaries: int) -> Floats:
    """(canaries,) how surely each is in."""
    table = f"{TABLE}.csv"
    traces = traces_of({table: released[table]} if table in released else {})  # a run may have no answer
    weight = np.array([traces.get(f"{table}: site = s{k}", 0.0) for k in range(canaries)])
    total = max(traces.get(f"{table}: weight", 1.0), 1.0)
    marks = np.array([marked(released, _mark(k)) for k in range(canaries)], np.float64)
    return np.asarray(marks + (weight - np.median(weight)) / total)


# ---- what needs no statistics


def _books(name: str, runner: ReleaseRunner, files: NeighbourFiles) -> list[str]:
    """A release that does not verify; and bytes that differ though the gate gave the same answers."""
    without, with_ = (np.array([there]) for there in (False, True))
    one = runner.release(files, without, keep="one")
    folder = RunFolder(runner.directory / "one")
    found = [] if verify_release(folder.path).holds else [f"STATEMENT: a release does not verify ({name})."]
    if folder.ledger.exists():
        other = runner.release(files, with_, answers=folder, keep="other")
        differ = sorted(file for file in {*one, *other} if one.get(file) != other.get(file))
        if differ:
            found.append(f"RELEASE: the same answers, other bytes in {', '.join(differ)} ({name}).")
    for kept in ("one", "other"):
        shutil.rmtree(runner.directory / kept, ignore_errors=True)
    return found
