"""Messages that do not belong are refused with a clear word, and nothing is spent twice, or for nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from distcondense.data.schema import Column, Schema
from distcondense.errors import BudgetError, RunFolderError, SettingsError, UserError
from distcondense.federated.agreement import Agreement, refuse_shared
from distcondense.federated.coordinator import SummedRows, summed_table
from distcondense.federated.messages import COORDINATOR, OwnKeys, digest, fingerprint, opened, plain_bytes
from distcondense.federated.session import SiteSession, agreement_of, join_payload
from distcondense.federated.site import as_known
from distcondense.methods.private.uncertainty import AgreementObjective
from distcondense.outcomes.binary import Logistic
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.odometer import ChargedRun, Odometer
from distcondense.privacy.questions import CategoriesQuery, ColumnChoice, HistogramQuery, PairChoice, SetObjective
from distcondense.runs.kept_objects import to_plain
from tests.federated.sites import Hall, described, patients

Forge = Callable[["Caught"], bytes]


class Caught(Hall):
    """Keeps the questions that went out; two were answered, and the third waits."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, [patients(60, 1), patients(60, 2)])
        self.questions: list[bytes] = []
        table = summed_table(self.rows(), Ledger())
        for column in (0, 1):
            table.histogram((column,), by="label", mu=0.2)
        self.asked = 2
        self.payload = {**json.loads(opened(self.questions[1], "question", COORDINATOR, self.agreement.coordinator))}
        self.payload |= {"round": 2, "previous": self.transcript}

    def ask(self, number: int, message: bytes) -> Any:
        self.questions.append(message)
        return super().ask(number, message)

    @property
    def transcript(self) -> str:
        return digest(opened(self.questions[-1], "question", COORDINATOR, self.agreement.coordinator))

    def said(self, **changes: Any) -> bytes:
        """The next question, with changes, signed by the coordinator."""
        return self.keys.sealed("question", COORDINATOR, plain_bytes({**self.payload, **changes}))


def of_another_key(hall: Caught) -> bytes:
    other = OwnKeys.from_file(hall.folder / "other.json")
    return other.sealed("question", COORDINATOR, plain_bytes(hall.payload))


def another_objective(hall: Caught) -> bytes:
    return hall.said(steps=[to_plain(SetObjective(Logistic(hessian_weight=1.0)))])


FORGED: dict[str, tuple[Forge, str]] = {
    "another question under a number that was answered": (lambda h: h.said(round=1), "another question"),
    "a question that comes too early": (lambda h: h.said(round=3), "in order"),
    "a number that is none": (lambda h: h.said(round="2"), "in order"),
    "of another session": (lambda h: h.said(set="00" * 32), "another session"),
    "after another transcript": (lambda h: h.said(previous="00" * 32), "another transcript"),
    "of a wrong key": (of_another_key, "signed with the sender's key"),
    "changed on its way": (lambda h: h.said().replace(b'"round":2', b'"round":3'), "signed with the sender's key"),
    "an answer for a question": (
        lambda h: h.site_keys["site-1"].sealed("answer", "site-1", plain_bytes(h.payload)),
        "another kind or sender",
    ),
    "other bytes": (lambda h: b"\x00\xff" * 40, "other bytes"),
    "of another version": (lambda h: h.said().replace(b"federated 1", b"federated 9", 1), "version"),
    "a class that is not ours": (lambda h: h.said(question={"object": "os:system", "fields": {}}), "something else"),
    "a question that nobody may ask of sums": (lambda h: h.said(question=to_plain(CategoriesQuery(0))), "another kind"),
    "sums of all columns in cells of no bins": (
        lambda h: h.said(question=to_plain(ColumnChoice(0, (0, 1), (1, 0)))),
        "widths",
    ),
    "a choice of columns": (lambda h: h.said(question=to_plain(ColumnChoice(1, (0, 1), (1, 1)))), "another kind"),
    "a choice": (lambda h: h.said(question=to_plain(PairChoice(((0, 1),), (), ()))), "another kind"),
    "a column that is not there": (lambda h: h.said(question=to_plain(HistogramQuery((9,), "label"))), "columns"),
    "an objective with constants of its own": (another_objective, "constants of its objective"),
    "a price over the budget": (lambda h: h.said(mu=5.0), "budget"),
    "no price": (lambda h: h.said(mu=0.0), "mu"),
    "a price that is no number": (lambda h: h.said(mu="much"), "price"),
}


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Caught:
    return Caught(tmp_path_factory.mktemp("hall"))


@pytest.mark.parametrize("name", FORGED)
def test_a_message_that_does_not_belong_is_refused_and_nothing_is_spent(hall: Caught, name: str) -> None:
    forge, words = FORGED[name]
    site = hall.open("site-0")
    files = sorted(site.folder.iterdir())
    with pytest.raises(UserError, match=words):
        site.answer(forge(hall))
    assert len(hall.ledgers["site-0"].events) == hall.asked
    assert sorted(site.folder.iterdir()) == files


def test_the_question_as_it_should_be_is_answered_once_however_often_it_comes(tmp_path: Path) -> None:
    hall = Caught(tmp_path)
    site = hall.open("site-0")
    first = site.answer(hall.said())
    assert site.answer(hall.said()) == first == hall.open("site-0").answer(hall.said())
    assert site.answer(hall.questions[0]) == site.stored(0)  # a replay gets the stored bytes
    assert len(hall.ledgers["site-0"].events) == 3


def test_answers_that_do_not_belong_are_refused_by_the_coordinator(tmp_path: Path) -> None:
    hall = Hall(tmp_path, [patients(60, 1), patients(60, 2)])
    kept: list[dict[str, bytes]] = []

    def table_with(change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> Any:
        folder = tmp_path / f"coordinator-{len(kept)}"
        rows = SummedRows(hall.session, hall.keys, hall, folder)
        honest = hall.ask

        def ask(number: int, message: bytes) -> dict[str, bytes]:
            kept.append(dict(honest(number, message)))
            return change(kept[-1])

        rows.exchange = type("Changed", (), {"ask": staticmethod(ask)})()
        return summed_table(rows, Ledger())

    for change, words in [
        (lambda said: {name: said[name] for name in list(said)[:1]}, "every site"),
        (lambda said: dict(zip(said, reversed(said.values()), strict=True)), "another kind or sender"),
        (lambda said: {name: one[:-16] for name, one in said.items()}, "signed"),
    ]:
        with pytest.raises(RunFolderError, match=words):
            table_with(change).histogram((0,), by="label", mu=0.2)
    late = table_with(lambda said: kept[0])  # answers to the first question, whatever is asked
    late.histogram((0,), by="label", mu=0.2)
    with pytest.raises(RunFolderError, match="must answer this question"):
        late.histogram((1,), by="label", mu=0.2)


def test_a_site_refuses_over_its_own_cap(tmp_path: Path) -> None:
    def capped(name: str, agreement: Agreement) -> ChargedRun:
        path = tmp_path / f"{name}.jsonl"
        account = Odometer(path) if path.exists() else Odometer.create(path, cap=3.0 if name == "site-1" else None)
        return ChargedRun((account,), agreement.session, agreement.prepared.planned, method="private")

    hall = Hall(tmp_path / "hall", [patients(60, 1), patients(60, 2)], account=capped)
    with pytest.raises(BudgetError, match="cap of ε = 3"):
        summed_table(hall.rows(), Ledger()).histogram((0,), by="label", mu=0.2)
    assert not Odometer(tmp_path / "site-1.jsonl").read().charges
    assert len(hall.ledgers["site-1"].events) == 0
    assert len(Odometer(tmp_path / "site-0.jsonl").read().charges) == 1  # whoever answered first has paid


def test_an_objective_may_change_in_what_was_learned_alone() -> None:
    known = Logistic()
    assert as_known(Logistic(), known) == known
    wrapped = AgreementObjective(Logistic(), (0.0,), (0.0,), 1.0)
    assert as_known(wrapped, known) == wrapped
    assert as_known(Logistic(), wrapped) == known
    for other in (Logistic(step=0.5), replace(wrapped, of=Logistic(hessian_weight=1.0)), object()):
        with pytest.raises(RunFolderError, match="must keep"):
            as_known(other, known)


def test_keys_names_and_agreements_that_differ_are_refused(tmp_path: Path) -> None:
    hall = Hall(tmp_path, [patients(60, 1), patients(60, 2)])
    keys = hall.site_keys
    joins = {name: keys[name].sealed("join", name, join_payload(hall.agreement, keys[name])) for name in hall.names}
    other = replace(hall.agreement, options={**hall.agreement.options, "epsilon": 2.0})
    late = keys["site-1"].sealed("join", "site-1", join_payload(other, keys["site-1"]))
    with pytest.raises(RunFolderError, match="another agreement"):
        SiteSession.of_joined(hall.agreement, {**joins, "site-1": late})
    twice = keys["site-0"].sealed("join", "site-1", join_payload(hall.agreement, keys["site-0"]))
    with pytest.raises(RunFolderError, match="one key twice"):
        SiteSession.of_joined(hall.agreement, {**joins, "site-1": twice})
    with pytest.raises(SettingsError, match="small letters"):
        SiteSession.of_joined(hall.agreement, {**joins, "../site": joins["site-0"]})
    hall.site_keys["site-0"] = OwnKeys.from_file(tmp_path / "others.json")
    with pytest.raises(RunFolderError, match="with its own keys"):
        hall.open("site-0")
    message = hall.keys.sealed("agreement", COORDINATOR, hall.agreement.payload)
    assert agreement_of(message).digest == hall.agreement.digest
    with pytest.raises(RunFolderError, match="signed"):
        agreement_of(message.replace(b'"colluding":0', b'"colluding":1'))
    with pytest.raises(RunFolderError, match="version"):
        Agreement.from_data({"version": "another"})


def test_a_fingerprint_covers_the_agreement_and_every_key(tmp_path: Path) -> None:
    hall = Hall(tmp_path, [patients(60, 1), patients(60, 2)])
    session = hall.session
    swapped = {**session.members, "site-0": {**session.members["site-0"], "agreeing": "00" * 32}}
    other = replace(hall.agreement, coordinator="00" * 32)
    prints = {
        session.fingerprint,
        SiteSession(hall.agreement, swapped).fingerprint,
        SiteSession(other, session.members).fingerprint,
    }
    assert len(prints) == 3
    assert fingerprint("00" * 32) == "-".join(["AAAA"] * 6)


def test_what_no_masked_sum_can_answer_is_refused_before_a_row_is_read() -> None:
    schema, _ = described("died")
    facts = type("Facts", (), {"schema": Schema((*schema.columns, Column("drug", "categorical", domain="private")))})()
    with pytest.raises(SettingsError, match="list all categories"):
        refuse_shared(facts)
