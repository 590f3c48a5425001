"""A site: its rows behind its own gate, its ledger, and what it has answered. It gives one answer to a question.

What it keeps, in a folder of its own: keys, each question with the answer that it gave, and the ledger. In this order:
the question is entered in the ledger, the answer is drawn, masked and stored, its digest is entered in the ledger, it
is sent. What a kill left without digest has not left the site, and is drawn again; what has one is only sent again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields, is_dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.errors import CohortError, RunFolderError
from distcondense.federated import session as kinds
from distcondense.federated.agreement import with_labels
from distcondense.federated.masks import keystream, masked, pair_key, to_bytes
from distcondense.federated.messages import (
    COORDINATOR,
    OwnKeys,
    data_of,
    digest,
    opened,
    plain_bytes,
    read_message,
    write_message,
)
from distcondense.federated.session import SiteSession
from distcondense.federated.tables import SiteTable
from distcondense.methods.base import Context
from distcondense.methods.private.condense import open_gate
from distcondense.methods.private.large import large_gate
from distcondense.methods.private.uncertainty import AgreementObjective
from distcondense.privacy.answering import BEHIND
from distcondense.privacy.contributions import Objective
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import (
    STRATEGY,
    ColumnChoice,
    GradientQuery,
    HistogramQuery,
    MergeBins,
    SetObjective,
    ShiftScores,
    StatisticQuery,
)
from distcondense.runs.kept_objects import from_plain, to_plain

LEARNED = {"centre", "unit", "clip", "cuts", "hazard"}  # of an objective: what earlier answers may set


class Site:
    """One site of a session, with its rows open.

    Parameters
    ----------
    name : str
        As in the set.
    session : SiteSession
        The set, whose fingerprint somebody has confirmed.
    keys : OwnKeys
        The site's own, whose public halves are in the set.
    table : SiteTable
        Its half of the gate.
    folder : Path
        Where its answers are stored before they are sent.
    """

    def __init__(self, name: str, session: SiteSession, keys: OwnKeys, table: SiteTable, folder: Path) -> None:
        if session.members.get(name) != keys.public():
            raise RunFolderError(
                f"site {name}",
                "must be in the set of sites with its own keys",
                found="other keys, or another name",
                fix="the session cannot go on: begin another one, after asking who changed them",
            )
        self.name, self.session, self.folder = name, session, folder
        self._signer, self._table, self._ledger = keys, table, table.ledger
        self._pairs = {
            other: pair_key(keys.agreer, bytes.fromhex(public["agreeing"]), session.digest, (name, other))
            for other, public in session.members.items()
            if other != name
        }
        self._previous = session.digest  # of the question that was answered last
        self.rounds = 0  # that were answered
        self._torn = False
        stored = self._stored()
        table.replaying = True
        for number in range(stored):  # steps are made again, and nothing is drawn or charged
            payload = opened(self._round(number)[0], kinds.QUESTION, COORDINATOR, session.agreement.coordinator)
            self._asked(data_of(payload, f"message {kinds.QUESTION}"))
            self._previous, self.rounds = digest(payload), number + 1
        table.replaying = False
        if stored > len(self._ledger.noted):  # a kill came in between
            self._note(stored - 1)

    def answer(self, message: bytes) -> bytes:
        """The masked message for a question; the stored bytes if it was answered already.

        Raises
        ------
        RunFolderError
            If the question is not the coordinator's next one in this session. Nothing is spent.
        BudgetError
            If the question is over the plan's budget, or over the cap of the site's account. Nothing is spent.
        """
        if self._torn:
            raise RunFolderError("site", "must be opened anew after an error", found="a question that failed")
        payload = opened(message, kinds.QUESTION, COORDINATOR, self.session.agreement.coordinator)
        data = data_of(payload, f"message {kinds.QUESTION}")
        number, asked = data.get("round"), digest(payload)
        if data.get("set") != self.session.digest:
            raise _refused("must be of this session and set of sites", "another session")
        if type(number) is int and 0 <= number < self.rounds:
            if self._round(number)[0] != message:
                raise _refused("must be the one that was answered under its number", "another question")
            return self.stored(number)
        if number != self.rounds:
            raise _refused(f"must come in order: {self.rounds} is next", "another number")
        if data.get("previous") != self._previous:
            raise _refused("must follow the question that was answered last", "another transcript")
        self._torn = True  # until it is done: steps must not be made twice
        self._asked(data)
        part = self._table.part
        streams = {other: keystream(pair, asked, part.size) for other, pair in self._pairs.items()}
        head = plain_bytes({"round": number, "question": asked, "cells": part.size, "set": self.session.digest})
        reply = head + b"\n" + to_bytes(masked(part.tolist(), self.name, streams))
        sealed = self._signer.sealed(kinds.ANSWER, self.name, reply)
        # stored and noted before it is sent: see docs/federated.md
        write_message(self._file(number), b"%d\n" % len(message) + message + sealed)
        self._note(number)
        self._previous, self.rounds, self._torn = asked, self.rounds + 1, False
        return sealed

    def stored(self, number: int) -> bytes:
        """An answer that was given already."""
        return self._round(number)[1]

    def _stored(self) -> int:
        """How many answers are stored; refused where they are not those that the ledger knows."""
        noted, events = self._ledger.noted, len(self._ledger.events)
        there = next(number for number in count() if not self._file(number).exists())
        good = len(noted) <= there <= len(noted) + 1 and there <= events <= there + 1
        if not good or any(digest(read_message(self._file(number))) != noted[number] for number in noted):
            raise RunFolderError(
                "stored answers",
                "must be those that the ledger lists, or the site could give a second answer to a question",
                found=f"{there} files, and {len(noted)} answers to {events} questions in the ledger"
                if not good
                else "other bytes",
                fix="put back the whole folder as it was last; without it this site's session is over, and was charged",
            )
        return there

    def _note(self, number: int) -> None:
        """Enter in the ledger what answers this question from now on."""
        self._ledger.note(number, digest(read_message(self._file(number))))

    def _asked(self, data: dict[str, Any]) -> None:
        """Ask the site's gate, after the public steps that come before the question."""
        try:
            steps, question = [from_plain(step) for step in data["steps"]], from_plain(data["question"])
            mu = float(data["mu"])
        except (KeyError, TypeError, ValueError):
            raise _refused("must hold steps, a question and its price", "something else") from None
        for step in steps:
            self._step(step)
        table = self._table
        match question:
            case HistogramQuery(columns, by, starts, merges):
                table.histogram(columns, by=by, mu=mu, starts=starts, merges=merges)
            case GradientQuery(columns, merges, strategy):
                asked = np.array(strategy, np.float64) / STRATEGY if strategy else None
                table.sums(columns, mu=mu, merges=merges, strategy=asked)
            case StatisticQuery(name):
                table.total(name, mu=mu)
            case ColumnChoice(0, among, widths):
                table.column_sums(among, widths, mu=mu)
            case _:
                raise _refused("must be a histogram, sums of gradients or a statistic", "another kind")

    def _step(self, step: Any) -> None:
        table = self._table
        match step:
            case ShiftScores(columns, shift):
                table.shift(tuple(columns), np.asarray(shift, np.float64))
            case MergeBins(column, merge):
                table.bins((column,), np.asarray(merge))
            case SetObjective(objective):
                table.objective = as_known(objective, table.objective)
            case _:
                raise _refused("must have public steps of a known kind", "another kind")

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06d}"

    def _round(self, number: int) -> tuple[bytes, bytes]:
        """A question and the answer that was given to it, as they are stored."""
        size, _, both = read_message(self._file(number)).partition(b"\n")
        return both[: int(size)], both[int(size) :]


@contextmanager
def opened_site(
    name: str, session: SiteSession, keys: OwnKeys, table: Cohort | LargeTable, context: Context, answers: Path
) -> Iterator[Site]:
    """A site with its rows behind its gate, for the length of a `with`; `context` brings ledger, account and coins."""
    agreement = session.agreement
    check_table(table, agreement)
    splitting = context.holdout_split(agreement.private_options.holdout)
    assert context.folder is not None
    ledger = Ledger(context.folder.ledger, run=context.run, account=context.account)  # it keeps no answers beside it
    with ExitStack() as stack:
        if isinstance(table, LargeTable):
            gate = stack.enter_context(large_gate(table, splitting, agreement.prepared, ledger, context))
        else:
            gate = open_gate(table, splitting, agreement.prepared, ledger)
        yield Site(name, session, keys, SiteTable.before(BEHIND[gate], agreement.sharing), answers)


def check_table(table: Cohort | LargeTable, agreement: Any) -> None:
    """Refuse a table that is not what was agreed on; said to the site alone, without a value."""
    if with_labels(table.facts) != agreement.facts:
        raise CohortError(
            "table",
            "must be read by the agreement: the same schema, outcome and person column",
            found="another schema or outcome",
            fix="read it as the agreement says",
        )
    rows = table.rows if isinstance(table, LargeTable) else len(table)
    if rows > agreement.persons * agreement.prepared.rows_per_person:
        raise CohortError(
            "table",
            "must not have more rows than the agreement's cap on persons allows",
            found="more",
            fix="begin a session with a larger cap (--persons)",
        )


def as_known(objective: Any, current: Objective) -> Any:
    """The objective with what was learned since; everything else must be as the site's own code has it.

    So a row adds what the code at this site proves to be of norm at most 1, whatever a message says.
    """
    if isinstance(objective, AgreementObjective):
        of = as_known(objective.of, current.of if isinstance(current, AgreementObjective) else current)
        return replace(objective, of=of)
    known = current.of if isinstance(current, AgreementObjective) else current
    if type(objective) is not type(known) or not is_dataclass(known):
        raise _refused("must keep the kind of its objective", "another kind")
    names = [entry.name for entry in fields(known) if entry.init]
    changed = {name for name in names if to_plain(getattr(objective, name)) != to_plain(getattr(known, name))}
    if not changed <= LEARNED:
        raise _refused("must keep the constants of its objective", f"{len(changed - LEARNED)} others")
    return replace(known, **{name: getattr(objective, name) for name in changed})  # type: ignore[type-var]


def _refused(rule: str, found: str) -> RunFolderError:
    return RunFolderError(
        f"message {kinds.QUESTION}", rule, found=found, fix="ask the coordinator; nothing was answered or spent"
    )
