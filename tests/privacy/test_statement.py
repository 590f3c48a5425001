"""The statement in words and its verification: what is said at which ε, rounded which way, and what is caught."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distcondense as dc
from distcondense.data.schema import Column, Schema
from distcondense.errors import DistcondenseWarning, RunFolderError, SettingsError
from distcondense.privacy.accountant import membership_advantage, replay, trade_off
from distcondense.privacy.binding import bind, file_hash
from distcondense.privacy.curves import gaussian_mu
from distcondense.privacy.events import Event
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.statement import Privacy, rounded_up
from distcondense.privacy.verify import verify
from distcondense.runs.files import plain, write_json
from tests.conftest import SMALL_SCHEMA, small_frame
from tests.fuzz.statements import releases
from tests.shell import Call, refused

PERSON = "add or remove one person with all their rows, of which at most 5 are read"
ROW = "add or remove one row; every row is taken as one person"


def privacy(epsilon: float = 1.0, delta: float = 1e-5, **more: Any) -> Privacy:
    """A statement whose ledger, curve and words belong together."""
    mu = gaussian_mu(epsilon, delta) * (1 - 1e-7) / math.sqrt(3)
    whole = math.sqrt(1.25)  # of a total, in units of its own
    events = [
        Event("gaussian", "histogram", ("age",), 8, mu, noise=1 / mu, by="label", unit="person"),
        Event("gaussian", "sums", ("age",), 8, mu, noise=1 / mu, unit="person"),
        Event("gaussian", "total", (), 10, mu, sensitivity=whole, noise=whole / mu, by="hazard", unit="person"),
    ]
    fields: dict[str, Any] = {
        "neighbouring": PERSON,
        "unit": "person",
        "noise_source": "os",
        "ledger": [event.to_dict() for event in events],
        "trade_off": tuple(trade_off(events)),
        "membership_advantage": membership_advantage(events),
    }
    guarantee = more.pop("guarantee", "end-to-end")
    return Privacy(guarantee, "private", epsilon, delta, **{**fields, **more})


# ---- rounding


@given(st.floats(1e-6, 1e6), st.integers(2, 6))
def test_a_shown_number_is_never_below_the_real_one_and_hardly_above(value: float, digits: int) -> None:
    assert value <= float(rounded_up(value, digits)) * (1 + 1e-15)
    assert float(rounded_up(value, digits)) <= value * (1 + 10.0 ** (1 - digits)) * (1 + 1e-12)
    assert len(rounded_up(value, digits).split("e")[0].replace(".", "").lstrip("0")) <= max(digits, 1)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1.0, 3, "1"),
        (0.3, 3, "0.3"),
        (0.99999, 3, "1"),
        (1.0000001, 3, "1.01"),
        (2.6751, 4, "2.676"),
        (math.inf, 3, "unbounded"),
        (math.nan, 3, "unknown"),
        (np.float64(4.0), 4, "4"),
    ],
)
def test_numbers_are_shown_rounded_up(value: float, digits: int, text: str) -> None:
    assert rounded_up(value, digits) == text


def test_every_printed_epsilon_and_advantage_is_rounded_up() -> None:
    said = privacy(1.23001, membership_advantage=0.1230001)
    assert "ε = 1.24 (end-to-end" in said.short()
    assert "ε = 1.231 at" in said.paragraph()
    assert "at most 1.124, where guessing has 1" in said.paragraph()
    published = Privacy("as-published", "published", 1.23001, 1e-5, "row", "os", epsilon_at_last_step=2.00001)
    assert "ε = 1.231 at" in published.paragraph()
    assert "ε = 2.001 at the last step" in published.paragraph()


# ---- words


@pytest.mark.parametrize(
    ("advantage", "says"),
    [
        (0.1, "is almost the same as"),
        (0.3, "is almost the same as"),
        (0.31, "is similar to"),
        (0.6, "is similar to"),
        (0.61, "this ε promises little"),
    ],
)
def test_the_words_get_weaker_as_the_advantage_grows(advantage: float, says: str) -> None:
    text = privacy(membership_advantage=advantage).paragraph()
    every = ("is almost the same as", "is similar to", "this ε promises little")
    assert [words for words in every if words in text] == [says]


def test_without_a_stated_advantage_the_words_follow_the_worst_that_epsilon_allows() -> None:
    assert "almost the same" in privacy(0.5, membership_advantage=None).paragraph()
    assert "similar to" in privacy(1.0, membership_advantage=None).paragraph()  # tanh(1/2) = 0.46
    assert "promises little" in privacy(3.0, membership_advantage=None).paragraph()


def test_the_statement_says_what_delta_is_and_warns_where_it_or_epsilon_is_large() -> None:
    modest = privacy(10.0, 1e-3).paragraph()
    assert "may fail altogether with a probability of about δ" in modest
    assert "well below 1 over the number of patients" in modest
    assert "WARNING" not in modest
    assert "WARNING: an ε above 10" in privacy(10.1).paragraph()
    assert "WARNING: δ is above 0.001: publishing one patient in 500" in privacy(1.0, 2e-3).paragraph()
    assert "WARNING: an ε above 10" in privacy(6.0, epsilon_with_earlier_runs=12.0).paragraph()


def test_persons_are_promised_something_only_where_persons_are_the_unit() -> None:
    assert "for every person in the table" in privacy().paragraph()
    text = privacy(neighbouring=ROW, unit="row").paragraph()
    assert "person in the table" not in text
    assert "for every row." in text
    assert "A person with k rows is protected about k times less" in text
    assert "what they can find out about one row" in text
    reworded = privacy(neighbouring="a person comes or goes").paragraph()  # the unit is a field, not a phrase
    assert "for every person in the table." in reworded
    assert "Neighbouring tables: a person comes or goes." in reworded
    assert "for every row" in privacy(unit="row").paragraph()


def test_a_statement_without_an_answer_speaks_of_no_synthetic_rows() -> None:
    assert "the synthetic rows were made from these answers alone" in privacy().paragraph()
    text = privacy(answer="NO ANSWER: nothing there.").paragraph()
    assert "synthetic" not in text
    assert "3 noisy answers, each entered in the ledger before it was given. NO ANSWER" in text


def test_outcome_values_read_off_patients_are_told() -> None:
    assert "read off patients" not in privacy().paragraph()
    text = privacy(labels_public=False, guarantee="conditional").paragraph()
    assert "The outcome's values were read off patients" in text
    assert "inferred from the patients" not in text


@pytest.mark.parametrize("facts", [{"labels_public": False}, {"schema_origin": "inferred"}])
def test_what_was_read_off_patients_cannot_be_called_end_to_end(facts: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="must be called conditional"):
        privacy(**facts)
    said = privacy(guarantee="conditional", epsilon_with_earlier_runs=2.0, advantage_with_earlier_runs=0.5, **facts)
    for text in (said.short(), said.paragraph(), json.dumps(said.label())):
        assert "conditional" in text
        assert "end-to-end" not in text
    assert "only if what was read off the patients is public anyway" in said.sentence()
    assert said.charged


def test_the_paragraph_begins_with_the_sentence_that_the_table_carries() -> None:
    for said in (
        privacy(),
        privacy(unit="row"),
        privacy(guarantee="conditional"),
        Privacy("as-published", "published", 1.0, 1e-5, "row", "os", epsilon_at_last_step=2.0),
        Privacy("none", "published", None, None, "none", "none"),
    ):
        assert said.paragraph().startswith(said.sentence() + " ")
        assert said.label()["statement"] == said.sentence()
        assert said.guarantee == "none" or said.guarantee in said.sentence()


def test_the_words_and_the_advantage_are_those_of_all_runs_together() -> None:
    """Sixty fits: each alone is "almost the same", all of them together are not."""
    one = privacy(1.0)
    events = one.events * 60
    both, joint = replay(events, 1e-5).epsilon, membership_advantage(events)
    assert one.membership_advantage is not None
    assert one.membership_advantage < 0.15
    assert joint == pytest.approx(0.70, abs=0.01)
    text = replace(one, epsilon_with_earlier_runs=both, advantage_with_earlier_runs=joint).paragraph()
    assert "almost the same" not in text
    assert "promises little" in text
    assert f"at most {rounded_up(1 + joint, 4)}, where guessing has 1 (this run alone: " in text
    assert "Of this run alone: Whatever" in replace(one, epsilon_with_earlier_runs="unbounded").paragraph()


def test_only_what_went_through_the_gate_is_charged() -> None:
    assert privacy().charged
    assert privacy(guarantee="conditional").charged
    assert len(privacy().events) == 3
    for guarantee in ("as-published", "none"):
        assert not Privacy(guarantee, "any", None, None, "row", "os").charged  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("both", "short", "long"),
    [
        (2.34501, "; with earlier runs ε = 2.35 (end-to-end)", "the end-to-end guarantee is ε = 2.346 at δ = 1e-05."),
        (math.inf, "; with earlier runs ε = unbounded (end-to-end)", "no end-to-end guarantee: ε is unbounded."),
        ("unbounded", "; with earlier runs ε = unbounded (end-to-end)", "no end-to-end guarantee: ε is unbounded."),
        (
            "different units",
            "; with earlier runs no common ε, they protect different units (end-to-end)",
            "the end-to-end guarantee is without a common bound: the runs protect different units, rows and persons.",
        ),
    ],
)
def test_earlier_runs_are_told_whether_their_sum_is_a_number_or_not(both: float | str, short: str, long: str) -> None:
    said = privacy(epsilon_with_earlier_runs=both)
    assert said.short().endswith(short)
    assert f"together with them {long}" in said.paragraph() or f"together with them there is {long}" in said.paragraph()
    assert "earlier" not in privacy().short()
    assert "Earlier" not in privacy().paragraph()


# ---- verification


FILES = {"condensed.csv": b"age\n44\n", "schema.toml": b"format = 1\n"}


def written(said: Privacy, path: Path, **changed: Any) -> Path:
    """As a run writes it; `changed` before its digest is made, by somebody who knows how."""
    for name, content in FILES.items():
        (path.parent / name).write_bytes(content)
    hashes = {name: file_hash(path.parent / name) for name in FILES}
    write_json(path, bind({**plain(said.to_dict()), **plain(changed)}, hashes, {"version": "0"}))
    return path


@pytest.mark.parametrize("both", [None, 2.0, math.inf, "different units"])
def test_an_honest_file_holds_and_the_verdict_says_what_it_cannot_see(both: float | str | None, tmp_path: Path) -> None:
    found = verify(written(privacy(epsilon_with_earlier_runs=both), tmp_path / "privacy.json"))
    assert found.contradictions == ()
    assert found.holds
    assert found.lines()[-1].startswith("the ledger pays for the stated ε")
    assert "entries listed add up to the stated ε (end-to-end); a file that was forged as a whole" in found.verdict


def test_a_statement_written_and_read_is_the_same_statement(tmp_path: Path) -> None:
    said = privacy(labels_public=False, guarantee="conditional")
    data = json.loads(written(said, tmp_path / "privacy.json").read_text())
    assert (data["method"], data["unit"], data["labels_public"]) == ("private", "person", False)
    assert "mechanism" not in data
    assert tuple(Event.from_dict(entry) for entry in data["ledger"]) == said.events
    assert verify(tmp_path / "privacy.json").holds


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("factor", [9, 0.5])
def test_no_answer_may_show_more_or_less_noise_than_its_cost(number: int, factor: float, tmp_path: Path) -> None:
    said = privacy()
    ledger = [{**one, "noise": one["noise"] * (factor if k == number else 1)} for k, one in enumerate(said.ledger)]
    assert not verify(written(replace(said, ledger=ledger), tmp_path / "privacy.json")).holds
    ledger[number]["sensitivity"] *= factor  # in other units both are other numbers
    assert verify(written(replace(said, ledger=ledger), tmp_path / "privacy.json")).holds


def test_a_ledger_that_adds_up_to_less_than_the_stated_epsilon_lacks_an_entry(tmp_path: Path) -> None:
    said = privacy()
    rest = said.events[:-1]
    curve = {"trade_off": trade_off(rest), "membership_advantage": membership_advantage(rest)}
    shorter = replace(said, ledger=said.ledger[:-1], **curve)
    found = verify(written(shorter, tmp_path / "privacy.json"))
    assert found.pays
    assert found.contradictions == ("the ledger adds up to less than the stated ε: entries were left out",)


@pytest.mark.parametrize(
    "change", [{"noise_source": "dice"}, {"parameters": {"columns_used": []}}, {"constants": "0" * 64}]
)
def test_an_edit_that_no_number_contradicts_is_seen_by_the_digest(change: dict[str, Any], tmp_path: Path) -> None:
    file = written(privacy(), tmp_path / "privacy.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert verify(file).contradictions == ("privacy.json was edited after the run wrote it",)


def test_where_columns_were_chosen_the_lines_say_what_agreement_means(tmp_path: Path) -> None:
    pick = Event("choice", "choice", (), 2, 0.1, 2, noise=20.0, unit="person")
    events = (*privacy().events, pick)
    curve = {"trade_off": trade_off(events), "membership_advantage": membership_advantage(events)}
    said = privacy(ledger=[event.to_dict() for event in events], **curve)
    found = verify(written(replace(said, epsilon=replay(events, 1e-5).epsilon), tmp_path / "privacy.json"))
    assert found.holds, found.contradictions
    assert any("need not give one number" in line for line in found.lines())
    assert not any("need not give one number" in line for line in verify(written(privacy(), tmp_path / "a.json")).notes)


def test_an_empty_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="an empty ledger"):
        verify(written(privacy(), tmp_path / "privacy.json", ledger=[]))


def entry(number: int, **changed: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda said: {
        "ledger": [{**one, **(changed if k == number else {})} for k, one in enumerate(said["ledger"])]
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (entry(0, noise=1.0), "entry 1, histogram by label: noise"),
        (entry(1, noise=1e6), "entry 2, gradient sums: noise"),
        (entry(2, noise=0.1), "entry 3, total of hazard: noise"),
        (entry(1, unit="row"), "1 entries protect rows"),
        (lambda said: {"unit": "row"}, "statement in words"),
        (lambda said: {"labels_public": False}, "must be called conditional"),
        (lambda said: {"guarantee": "conditional"}, "statement in words"),
        (lambda said: {"membership_advantage": said["membership_advantage"] - 1e-6}, "membership advantage"),
        (lambda said: {"membership_advantage": None}, "membership advantage"),
        (lambda said: {"trade_off": [[a, min(1.0, b + 1e-6)] for a, b in said["trade_off"]]}, "trade-off curve"),
        (lambda said: {"trade_off": []}, "trade-off curve"),
        (lambda said: {"statement": said["statement"].replace("5 are read", "1 are read")}, "statement in words"),
        (lambda said: {"not_covered": ["rain"]}, "statement in words"),
    ],
)
def test_a_file_that_contradicts_its_ledger_is_caught(
    change: Callable[[dict[str, Any]], dict[str, Any]], says: str, tmp_path: Path
) -> None:
    said = privacy()
    found = verify(written(said, tmp_path / "privacy.json", **change(json.loads(json.dumps(said.to_dict())))))
    assert found.pays
    assert not found.holds
    assert any(says in line for line in found.contradictions)
    assert all(found.guarantee in line for line in found.lines())
    assert "pays for" not in found.verdict


def test_noise_that_an_entry_does_not_mention_is_no_contradiction(tmp_path: Path) -> None:
    silent = [{**one, "noise": 0.0} for one in privacy().ledger]
    assert verify(written(privacy(ledger=silent), tmp_path / "privacy.json")).holds


def test_a_pick_must_carry_the_gumbel_noise_of_its_cost(tmp_path: Path) -> None:
    pick = Event("choice", "choice", (), 2, 0.1, 2, noise=20.0, unit="person")
    curve = {"trade_off": tuple(trade_off([pick])), "membership_advantage": membership_advantage([pick])}
    epsilon = replay([pick], 1e-5).epsilon
    said = privacy(epsilon, ledger=[pick.to_dict()], **curve)
    assert verify(written(said, tmp_path / "a.json")).holds
    said = privacy(epsilon, ledger=[replace(pick, noise=10.0).to_dict()], **curve)
    assert "choice of columns: noise 10" in " ".join(verify(written(said, tmp_path / "b.json")).contradictions)


def run_folder(said: Privacy, path: Path) -> Path:
    for room in ("release", "internal"):
        (path / room).mkdir(parents=True)
    written(said, path / "release" / "privacy.json")
    (path / "internal" / "ledger.jsonl").write_text("".join(json.dumps(one) + "\n" for one in said.ledger))
    return path


def test_a_run_folders_ledger_is_compared_with_its_release(tmp_path: Path) -> None:
    run = run_folder(privacy(), tmp_path / "run")
    ledger = run / "internal" / "ledger.jsonl"
    assert verify(run).holds
    assert "the same 3 entries" in " ".join(verify(run).notes)
    lines = ledger.read_text()
    ledger.write_text(lines + lines.splitlines(keepends=True)[0])  # one more answer than the release admits
    assert not verify(run).holds
    assert "4 entries that are not the 3" in " ".join(verify(run).contradictions)
    assert verify(run / "release").holds  # from the file alone it cannot be seen
    ledger.write_text(lines + '{"kind": "gaus')  # torn by a kill: it was never answered
    assert verify(run).holds
    assert ledger.read_text().endswith('{"kind": "gaus')  # read, not mended
    ledger.write_text("no event\n")
    with pytest.raises(RunFolderError, match="one event on each line"):
        verify(run)
    ledger.unlink()
    assert "missing" in " ".join(verify(run).notes)


def test_earlier_runs_of_a_folder_are_reported_and_must_be_counted(tmp_path: Path) -> None:
    alone = privacy()
    both = replay((*alone.events, *alone.events), 1e-5).epsilon
    joint = membership_advantage((*alone.events, *alone.events))
    tried = (
        ("none", None, joint, False),
        ("low", both - 0.01, joint, False),
        ("right", both, joint, True),
        ("alone", both, alone.membership_advantage, False),
        ("silent", both, None, False),
    )
    for name, said, advantage, holds in tried:
        counted = replace(alone, epsilon_with_earlier_runs=said, advantage_with_earlier_runs=advantage)
        run = run_folder(counted, tmp_path / name)
        (run / "internal" / "earlier.jsonl").write_text((run / "internal" / "ledger.jsonl").read_text())
        found = verify(run)
        assert found.holds is holds
        assert f"3 entries of earlier runs, together ε = {rounded_up(both, 6)}" in " ".join(found.notes)


# ---- PrivateModel


def fitted(epsilon: float = 4.0) -> dc.PrivateModel:
    frame = small_frame(600)
    return dc.PrivateModel(schema=SMALL_SCHEMA, epsilon=epsilon).fit(frame[SMALL_SCHEMA.names], frame["died"])


def test_a_cohort_is_fitted_alone_and_nothing_beside_it_is_ignored() -> None:
    frame = small_frame(30)
    cohort = dc.Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=SMALL_SCHEMA)
    for name, value in (
        ("y", frame["died"]),
        ("schema", SMALL_SCHEMA),
        ("person", np.arange(30)),
        ("classes", ["a", "b"]),
    ):
        beside = {name: value} if name in ("y", "person") else {}
        model = dc.PrivateModel(**({} if beside else {name: value}))
        with pytest.raises(SettingsError, match=rf"takes a cohort alone.*Found {name}\."):
            model.fit(cohort, **beside)
        assert not hasattr(model, "privacy_")


def test_fits_of_one_model_add_up() -> None:
    frame = small_frame(600)
    model = fitted()
    first = model.privacy_
    assert first.epsilon_with_earlier_runs is None
    assert "the model was made from these answers alone" in first.paragraph()
    model.fit(frame[SMALL_SCHEMA.names], frame["died"])
    both = replay((*first.events, *model.privacy_.events), 1e-5).epsilon
    assert model.privacy_.epsilon_with_earlier_runs == pytest.approx(both)
    assert both > 5.5
    assert "Earlier fits of this model read the same patients; together with them" in model.privacy_.paragraph()


def test_an_interrupted_fit_is_counted_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = small_frame(600)
    model = dc.PrivateModel(schema=SMALL_SCHEMA, epsilon=4.0)
    with monkeypatch.context() as patch:
        patch.setattr(PrivateTable, "sums", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            model.fit(frame[SMALL_SCHEMA.names], frame["died"])
    model.fit(frame[SMALL_SCHEMA.names], frame["died"])
    both = model.privacy_.epsilon_with_earlier_runs
    assert isinstance(both, float)
    assert both > model.privacy_.epsilon + 0.1


def test_a_model_without_an_answer_warns_that_it_is_noise() -> None:
    frame = small_frame(400)
    with pytest.warns(DistcondenseWarning, match="the model is noise"):
        model = dc.PrivateModel(schema=SMALL_SCHEMA).fit(frame[SMALL_SCHEMA.names], np.zeros(400, int))
    text = model.privacy_.paragraph()
    assert "NO ANSWER: the model is noise" in text
    assert "synthetic" not in text
    assert "was made" not in text


@pytest.mark.parametrize("name", ["outcome_", "time_", "person_"])
def test_features_with_the_names_of_outcome_time_and_person_are_refused(name: str) -> None:
    schema = Schema((Column("age", "integer", 0, 100), Column(name, "integer", 0, 1)))
    frame = pd.DataFrame({"age": np.arange(20), name: np.arange(20) % 2})
    with pytest.raises(SettingsError, match=f"must not have columns named.*Found {name}"):
        dc.PrivateModel(schema=schema).fit(frame, np.arange(20) % 2)


@pytest.mark.parametrize(
    ("guarantee", "enough"),
    [("end-to-end", ("end-to-end", "conditional", "as-published", "none")), ("as-published", ("as-published", "none"))],
)
def test_verify_is_done_only_where_the_guarantee_will_do(
    tmp_path: Path, call: Call, guarantee: str, enough: tuple[str, ...]
) -> None:
    for name, content in releases()["private" if guarantee == "end-to-end" else "published"].items():
        (tmp_path / name).write_bytes(content)
    for least in ("end-to-end", "conditional", "as-published", "none"):
        answer = call("privacy", "verify", tmp_path, "--least", least)
        assert answer.code == (0 if least in enough else 2), least
        assert (f"NOT ENOUGH: {least} or better" in answer.out) == (least not in enough)
        said = call("privacy", "verify", tmp_path, "--least", least, "--json")
        assert json.loads(said.out)["suffices"] == (least in enough)
    assert call("privacy", "verify", tmp_path).code == 0
    refused(call("privacy", "verify", tmp_path, "--least", "some"), "--least", "must be one of end-to-end")


@pytest.mark.parametrize(("stated", "good"), [(math.inf, True), (25.0, False)])
def test_at_a_large_epsilon_the_second_accountant_may_have_no_bound(stated: float, good: bool, tmp_path: Path) -> None:
    """The Rényi bound of choices is infinite from about ε = 17 (end-to-end) on; no number may stand in its place."""
    events = (
        Event("gaussian", "sums", ("a",), 2, 3.4, noise=1 / 3.4, unit="person"),
        *[Event("choice", "choice", (), 2, 0.1, 2, noise=20.0, unit="person")] * 5,
    )
    total = replay(events, 1e-5)
    assert math.isinf(total.exact_or_rdp)
    said = replace(
        privacy(),
        epsilon=total.epsilon,
        ledger=tuple(event.to_dict() for event in events),
        trade_off=tuple(trade_off(events)),
        membership_advantage=membership_advantage(events),
        parameters={"mu": total.mu, "picks": total.picks, "epsilon_by_second_accountant": stated},
    )
    found = verify(written(said, tmp_path / "privacy.json"))
    assert found.holds == good, found.contradictions
    assert "replayed: no bound (end-to-end) by Rényi (dp-accounting)" in found.lines()
