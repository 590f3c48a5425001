"""The coordinator: it asks, adds up masked messages, and makes the release of the noisy totals. It holds no row.

A question goes out once, signed; what it was is stored, and after a kill the same bytes go out again. The ledger holds
every answer, as that of a run with one site does.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from distcondense.errors import RunFolderError
from distcondense.federated import session as kinds
from distcondense.federated.masks import from_bytes, unmasked
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
from distcondense.federated.tables import SummedExact, SummedTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import Question, Step
from distcondense.privacy.rows import IntegerSums
from distcondense.runs.kept_objects import to_plain


class Exchange(Protocol):
    """How a question gets to all sites, and their answers back."""

    def ask(self, number: int, message: bytes) -> Mapping[str, bytes]:
        """Each site's message, by its name, for the question of this number."""
        ...


class SummedRows(SummedExact):
    """Rows of all sites, as the gate sees them: noisy totals.

    Parameters
    ----------
    session : SiteSession
    keys : OwnKeys
        The coordinator's.
    exchange : Exchange
        How messages travel.
    folder : Path
        Where questions are stored before they go out.
    """

    def __init__(self, session: SiteSession, keys: OwnKeys, exchange: Exchange, folder: Path) -> None:
        prepared = session.agreement.prepared
        super().__init__([one.size for one in prepared.cells], prepared.side.objective, prepared.rows_per_person)
        self.session, self.keys, self.exchange, self.folder = session, keys, exchange, folder
        self.rounds = 0  # questions so far
        self.transcript = session.digest  # of the last question
        self._steps: list[Any] = []
        self._message = b""
        self.received = 0  # bytes

    def next(self, question: Question, mu: float) -> None:
        """The next question's message; the one that went out, where a run goes on."""
        payload = plain_bytes(
            {
                "set": self.session.digest,
                "round": self.rounds,
                "previous": self.transcript,
                "steps": self._steps,
                "question": to_plain(question),
                "mu": mu,
            }
        )
        file = self.folder / f"{self.rounds:06d}.{kinds.QUESTION}"
        self._message = self.keys.sealed(kinds.QUESTION, COORDINATOR, payload)
        if file.exists():
            if read_message(file) != self._message:
                raise RunFolderError(
                    f"question {self.rounds}",
                    "must be the one that went out under its number",
                    found="another: the run was begun by another version, or on another machine",
                    fix="go on where it was begun",
                )
        else:
            write_message(file, self._message)
        self.transcript, self._steps, self.rounds = digest(payload), [], self.rounds + 1

    def counted(self, question: Question, limit: float) -> IntegerSums:
        number, members = self.rounds - 1, self.session.members
        answers = self.exchange.ask(number, self._message)
        if set(answers) != set(members):
            raise RunFolderError(
                f"answers to question {number}",
                "must come from every site of the set",
                found=f"{len(answers)} of {len(members)}",
                fix="wait for the others",
            )
        values = [self._values(number, name, answers[name]) for name in sorted(members)]
        if len({len(one) for one in values}) != 1:
            raise RunFolderError(f"answers to question {number}", "must be of one length", found="several")
        agreement = self.session.agreement
        largest = agreement.sharing.largest(agreement.persons)
        return IntegerSums(unmasked(values, largest))

    def _values(self, number: int, name: str, message: bytes) -> list[int]:
        payload = opened(message, kinds.ANSWER, name, self.session.members[name]["signing"])
        said, _, body = payload.partition(b"\n")
        data = data_of(said, f"message {kinds.ANSWER} of {name}")
        due = {"round": number, "question": self.transcript, "set": self.session.digest}
        values = from_bytes(body)
        if any(data.get(key) != value for key, value in due.items()) or data.get("cells") != len(values):
            raise RunFolderError(
                f"message {kinds.ANSWER} of {name}",
                "must answer this question",
                found="an answer to another one",
                fix="let the site send what it has stored for this question",
            )
        self.received += len(message)
        return values

    def _applied(self, step: Step) -> None:
        self._steps.append(to_plain(step))


def summed_table(rows: SummedRows, ledger: Ledger) -> SummedTable:
    """The gate of a run whose rows lie at several sites."""
    prepared = rows.session.agreement.prepared
    return SummedTable.over(
        rows,
        prepared.sharing,
        names=[one.column.name for one in prepared.cells],
        budget=prepared.budget,
        ledger=ledger,
        unit=prepared.unit,
        choice_cost=prepared.choice_cost if prepared.looks else 0.0,
    )
