"""A whole session over a folder: agreement, keys that people compare, rounds, a release that verifies."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.cluster.config import Cluster
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, RunFolderError, SettingsError, UserError
from distcondense.federated import parties
from distcondense.federated.accounting import Sharing
from distcondense.federated.agreement import Agreement
from distcondense.federated.folder import WaitingError
from distcondense.federated.session import SiteSession
from distcondense.federated.site import Site
from distcondense.methods.private.options import PrivateOptions
from distcondense.privacy import chained_file, noise
from distcondense.privacy.ledger import read_events
from distcondense.privacy.verify import verify
from tests.federated.sites import NAMES, Region, described, patients
from tests.fuzz.quick import quickly


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Region:
    before = os.environ.get("DISTCONDENSE_STATE")
    made = Region(tmp_path_factory.mktemp("region"))
    for name in NAMES:
        made.join(name)
    made.run()
    if before is not None:
        os.environ["DISTCONDENSE_STATE"] = before
    return made


def test_the_release_verifies_and_its_statement_says_how_many_sites_and_whom_each_must_trust(region: Region) -> None:
    run = region.own / "run"
    assert verify(run).holds
    assert verify(region.shared / "release").holds
    stated = json.loads((run / "release" / "privacy.json").read_text())
    assert stated["guarantee"] == "end-to-end"
    assert stated["epsilon"] <= 8.0
    assert stated["parameters"]["sites"] == 3
    assert stated["parameters"]["sites_that_may_collude"] == 1
    assert stated["parameters"]["mu_if_all_other_sites_collude"] == pytest.approx(stated["parameters"]["mu"] * 2**0.5)
    assert "Made by 3 sites that shared masked sums only" in stated["statement"]
    assert "up to 1 of the sites together" in stated["statement"]
    result = dc.load(run)
    assert len(result.frame) == 10
    assert len(result.sample(20)) == 20


def test_every_site_has_a_ledger_of_its_own_with_the_same_prices(region: Region) -> None:
    own = read_events(region.own / "run" / "internal" / "ledger.jsonl")
    assert len(own) > 15
    prices = [(event.query, event.cost, event.cells) for event in own]
    for name in NAMES:
        events = read_events(region.folder / name / "run" / "internal" / "ledger.jsonl")
        assert [(event.query, event.cost, event.cells) for event in events] == prices
    accounts = list((region.folder / "state" / "accounts").iterdir())
    assert len(accounts) == len(NAMES)
    assert all('"entry": "charge"' in account.read_text() for account in accounts)


def test_nothing_of_a_site_lies_in_the_folder_but_keys_and_masked_numbers(region: Region) -> None:
    for file in region.shared.rglob("*"):
        if file.is_file() and file.name in NAMES:
            head, said, body = file.read_bytes().split(b"\n", 2) if file.parent.name != "joined" else (b"", b"", b"")
            assert not body or len(body) == 16 * json.loads(said)["cells"]
            assert json.loads(head or b"{}").keys() <= {"message", "kind", "by", "signature"}
    answers = b"".join(f.read_bytes().split(b"\n", 2)[2] for f in region.shared.glob("rounds/*/east"))
    spread = np.bincount(np.frombuffer(answers, np.uint8), minlength=256)
    assert spread.min() > 0.5 * spread.mean()  # not a byte of it is likelier than another
    assert (region.folder / "east" / "keys.json").stat().st_mode & 0o077 == 0
    assert json.loads((region.folder / "east" / "keys.json").read_text())["agreeing"] == ""  # after the end


def test_every_site_has_a_copy_of_the_release_and_measures_it_for_itself(region: Region) -> None:
    for name in NAMES:
        own = region.folder / name
        assert verify(own / "release").holds
        found = json.loads((own / "run" / "internal" / "score.json").read_text())
        assert 0.5 < found["score"] <= 1
        assert 10 < found["rows"] < 100  # a fifth, by this site's own coins
    assert not [file for file in region.shared.rglob("*") if file.name == "score.json"]


def test_pairs_of_columns_are_chosen_by_gaussian_answers_alone(region: Region) -> None:
    events = read_events(region.own / "run" / "internal" / "ledger.jsonl")
    assert {event.kind for event in events} == {"gaussian"}
    assert sum(event.query == "histogram" and len(event.columns) == 2 for event in events) >= 3


def test_a_closed_session_answers_nothing_more(region: Region) -> None:
    with pytest.raises(RunFolderError, match="one that is closed"):
        parties.round_(region.shared, region.folder / "east")


def test_nobody_answers_before_the_keys_were_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    region = Region(tmp_path, 90)
    region.join("east")
    with pytest.raises(WaitingError, match="2 missing"):
        parties.round_(region.shared, region.own)
    for name in NAMES[1:]:
        region.join(name)
    keys = region.fingerprint
    with pytest.raises(WaitingError):
        parties.round_(region.shared, region.own)  # the first question is out
    for said, words in [("", "nobody confirmed"), ("AAAA-BBBB", "another")]:
        with pytest.raises(SettingsError, match=words):
            parties.round_(region.shared, region.folder / "east", keys=said)
    assert read_events(region.folder / "east" / "run" / "internal" / "ledger.jsonl") == ()
    for name in NAMES:
        said = parties.round_(region.shared, region.folder / name, keys=keys)
        assert said.startswith("1 questions answered")
    with pytest.raises(WaitingError):
        parties.round_(region.shared, region.own)  # by hand, a command at a time: the second is out
    assert parties.round_(region.shared, region.folder / "east").startswith("2 questions answered")  # once is enough
    assert len(list((region.shared / "rounds").iterdir())) == 2


def test_a_full_disk_sends_nothing_and_costs_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    region = Region(tmp_path, 90)
    for name in NAMES:
        region.join(name)
    keys = region.fingerprint
    with pytest.raises(WaitingError):
        parties.round_(region.shared, region.own)

    def full(file: Path, message: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("distcondense.federated.site.write_message", full)
        with pytest.raises(OSError, match="No space"):
            parties.round_(region.shared, region.folder / "east", keys=keys)
    assert not (region.shared / "rounds" / "000000" / "east").exists()
    assert parties.round_(region.shared, region.folder / "east").startswith("1 questions answered")
    assert len(read_events(region.folder / "east" / "run" / "internal" / "ledger.jsonl")) == 1


def without(name: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.drop(columns=name)


def beyond(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(ward="z")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("ward"), "every column"),
        (beyond, "ward"),
        (lambda frame: frame.iloc[:0], "row"),
        (without("died"), "died"),
    ],
)
def test_a_table_that_does_not_fit_is_told_to_its_site_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[pd.DataFrame], pd.DataFrame], words: str
) -> None:
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    region = Region(tmp_path, 60)
    before = sorted(region.shared.rglob("*"))
    with pytest.raises(UserError, match=words) as told:
        region.join("east", change(region.frame))
    assert sorted(region.shared.rglob("*")) == before
    assert not re.search(r"\bz\b", str(told.value))
    assert not (tmp_path / "east" / "keys.json").exists()


def test_a_site_with_one_class_only_takes_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    region = Region(tmp_path, 90)
    for name in NAMES:
        region.join(name, region.frame.assign(died="no") if name == "east" else None)
    with pytest.raises(WaitingError):
        parties.round_(region.shared, region.own)
    with quickly():
        region.steps()
        parties.close(region.shared, region.own)
    assert verify(region.own / "run").holds
    said = parties.close(region.shared, region.folder / "east")
    assert "nothing was measured" in said or "AUROC" in said


def test_more_rows_than_the_cap_allows_are_refused_at_the_site(tmp_path: Path) -> None:
    from distcondense.data.cohort import Cohort
    from distcondense.federated.agreement import Agreement
    from distcondense.federated.site import check_table

    schema, reading = described("died")
    agreement = Agreement.propose("00" * 32, schema, reading, PrivateOptions(epsilon=8.0), Sharing(2, 0), persons=10)
    with pytest.raises(CohortError, match="cap on persons"):
        check_table(Cohort.from_frame(patients(20)[[*schema.names]], **agreement.how), agreement)
    with pytest.raises(SettingsError, match="persons"):
        Agreement.propose("00" * 32, schema, reading, PrivateOptions(epsilon=8.0), Sharing(2, 0), persons=2**41)


def test_bounds_that_nobody_knows_are_found_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come from histograms, which are sums; the first question after the classes asks for them."""
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    known, _ = described("died")
    columns = [
        Column("crp", "continuous", domain="private", missing="indicator") if c.name == "crp" else c
        for c in known.columns
    ]
    region = Region(tmp_path, 300, Schema(tuple(columns)))
    for name in NAMES:
        region.join(name)
    run = region.run()
    assert verify(run).holds
    assert "bounds or categories of 'crp'" in json.loads((run / "release" / "privacy.json").read_text())["statement"]


@pytest.mark.parametrize("where", [{"memory": 2**29}, {"cluster": Cluster(address="local", actors=1)}, "folder"])
def test_a_site_whose_rows_are_read_in_batches_or_on_ray_gives_the_same_integers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any
) -> None:
    """Masks are those of its keys, so that the bytes it sends are the same where its noise is."""
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "one" / "state"))
    monkeypatch.setattr(noise, "discrete_gaussian", lambda exact, scale: exact)
    region = Region(tmp_path / "one", 90, holdout=0.0)
    for name in NAMES:
        region.join(name)
    with pytest.raises(WaitingError):
        parties.round_(region.shared, region.own)
    answer = region.shared / "rounds" / "000000" / "east"
    sent = []
    for how in ({}, where):
        shutil.copytree(tmp_path / "one", tmp_path / "kept", dirs_exist_ok=True)
        table = tmp_path / "one" / "east.csv"
        if how == "folder":  # of two files
            lines = table.read_text().splitlines()
            table.unlink()
            table.mkdir()
            for part in (0, 1):
                (table / f"{part}.csv").write_text("\n".join([lines[0], *lines[1 + part :: 2]]) + "\n")
            how = {}
        parties.round_(region.shared, tmp_path / "one" / "east", keys=region.fingerprint, **how)
        sent.append(answer.read_bytes())
        shutil.rmtree(tmp_path / "one")
        shutil.move(tmp_path / "kept", tmp_path / "one")
    assert sent[0] == sent[1]
    with pytest.raises(SettingsError, match="the coordinator has none"):
        parties.round_(region.shared, region.own, memory=10**8)


def test_an_agreement_that_was_changed_after_a_site_joined_is_refused_and_nothing_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another schema, signed by the same coordinator."""
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    region = Region(tmp_path, 90)
    for name in NAMES:
        region.join(name)
    keys = region.fingerprint
    known, reading = described("died")
    other = Schema(tuple(replace(c, high=95) if c.name == "age" else c for c in known.columns))
    own = parties.Own(region.own).keys
    options = PrivateOptions(epsilon=8.0, ipc=5)
    changed = Agreement.propose(own.public()["signing"], other, reading, options, Sharing(3, 1))
    first = [(region.shared / name).read_bytes() for name in ("agreement", "set")]
    (region.shared / "agreement").write_bytes(own.sealed("agreement", "coordinator", changed.payload))
    with pytest.raises(RunFolderError, match="must be of this agreement"):
        parties.round_(region.shared, region.folder / "east", keys=keys)
    members = SiteSession(changed, SiteSession.from_messages(*first).members)
    (region.shared / "set").write_bytes(own.sealed("set", "coordinator", members.payload))
    with pytest.raises(RunFolderError, match="must be the one this site joined"):
        parties.round_(region.shared, region.folder / "east", keys=keys)
    assert not (region.folder / "east" / "run").exists()


def test_two_commands_of_one_party_at_once_are_one_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else both could draw an answer that a kill left in the ledger without one."""
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    region = Region(tmp_path, 90)
    for name in NAMES:
        region.join(name)
    with pytest.raises(WaitingError):
        parties.round_(region.shared, region.own)
    for own in (region.folder / "east", region.own):
        with parties.Own(own).alone(), pytest.raises(RunFolderError, match="one command at a time"):
            parties.round_(region.shared, own, keys=region.fingerprint)
    assert parties.round_(region.shared, region.folder / "east", keys=region.fingerprint).startswith("1 questions")


def test_clocks_that_are_years_apart_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No message has a time in it; an account notes what its own clock says, and never compares two."""
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    clock = itertools.cycle(["1999-12-31T23:59:59+00:00", "2107-01-01T00:00:00+00:00", "1970-01-01T00:00:00+00:00"])
    monkeypatch.setattr(chained_file, "_now", lambda: next(clock))
    with quickly():
        region = Region(tmp_path, 90)
        for name in NAMES:
            region.join(name)
        region.steps()
        parties.close(region.shared, region.own)
    assert verify(region.own / "run").holds
    said = b"".join(file.read_bytes() for file in region.shared.glob("rounds/*/question"))
    assert not re.search(rb"1999-|2107-|1970-|202\d-", said)


def test_a_folder_of_another_session_or_party_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    region = Region(tmp_path, 60)
    with pytest.raises(RunFolderError, match="must be new for a session"):
        Region(tmp_path, 60)
    region.join("east")
    region.join("east")  # once more changes nothing
    with pytest.raises(RunFolderError, match="another party"):
        parties.join(region.shared, tmp_path / "east", region.table("north"), "north")
    with pytest.raises(RunFolderError, match="another message under its name"):
        parties.join(region.shared, tmp_path / "thief", region.table("east"), "east")
    with pytest.raises(RunFolderError, match="must be a party's own"):
        parties.round_(region.shared, tmp_path / "nobody")
    assert Site.__name__ == "Site"
