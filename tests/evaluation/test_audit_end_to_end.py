"""The audit the whole way: what a release shows, the intact build passes, and builds broken anywhere between do not."""

from __future__ import annotations

import dataclasses
import functools
import json
import os

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data import cohort as reading
from distcondense.data import features
from distcondense.data.persons import HoldoutSplit, Split
from distcondense.data.reserved import WEIGHT
from distcondense.errors import SettingsError
from distcondense.evaluation.audit import AUDITORS, end_to_end, release_features, run_audit
from distcondense.methods.base import method_named
from distcondense.methods.private import condense as private_way
from distcondense.methods.private import placement
from distcondense.methods.private.plan import Plan
from distcondense.privacy import accountant, noise
from distcondense.privacy.accounts import KeptAccounts
from distcondense.runs import release
from distcondense.runs.folder import RunFolder


@pytest.fixture
def undisturbed(monkeypatch):
    """Nobody pulls the plug, so nothing is waited for; fewer rows are drawn, one round of boosting instead of three.

    The accountant's slowest function, whose numbers are the same in every run, is computed once for each.
    """
    usual = Plan.for_table
    monkeypatch.setattr(Plan, "for_table", lambda *args, **how: dataclasses.replace(usual(*args, **how), epochs=1))
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(placement, "LARGE", 300)
    monkeypatch.setitem(AUDITORS["private"].whole, "ipc", 200)
    monkeypatch.setattr(accountant, "pld_epsilon", functools.cache(accountant.pld_epsilon))


def exceeded(found):
    return [f.attack for f in found.findings if f.exceeded]


def went(name):
    """An audit of one pair the whole way at ε = 1: 16 runs choose the trace, 24 count; 23 right guesses are enough."""
    return run_audit(epsilon=1.0, runs=20, canaries=0, whole=40, neighbours=[name])


def test_the_intact_build_passes_the_whole_way(undisturbed):
    told = []
    found = run_audit(
        epsilon=1.0,
        runs=20,
        canaries=100,
        whole=40,
        neighbours=list(end_to_end.PAIRS),
        progress=lambda done, total: told.append((done, total)),
    )
    assert found.passed, found.lines()
    assert found.problems == ()
    assert {f.neighbour for f in found.findings} == {*end_to_end.PAIRS, "100 canaries", "whole way: 100 canaries"}
    assert all(0.9 < f.claim <= 1.0 for f in found.findings)  # as released: small tables ask for no pairs
    assert told[-1] == (122, 122)
    assert all(f"{name}: by " in "\n".join(found.lines()) for name in end_to_end.PAIRS)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["findings"][-1]["neighbour"].startswith("whole way")


def test_the_whole_way_is_the_way_of_condense(undisturbed, tmp_path, monkeypatch):
    """The audit's own run releases what `dc.condense` releases, byte for byte, given its noisy answers."""
    way = end_to_end.ReleaseRunner(
        method_named("private"), {"epsilon": 1.0, "ipc": 200, "rows_per_person": 4}, 1, tmp_path
    )
    files, there = end_to_end.neighbouring(end_to_end.PERSON, seed=0), np.array([True])
    way.release(files, there, keep="own")
    schema = dc.Schema.from_toml(tmp_path / "schema.toml")
    cohort = dc.Cohort.from_file(tmp_path / "table.csv", target="case", person_id="who", schema=schema)
    unsaid = KeptAccounts((), "", "")  # the audit's own run has no account, and says nothing of one
    monkeypatch.setattr("distcondense.api.condensing.accounts_of", lambda *files, **how: unsaid)
    dc.condense(cohort, **way.options, **files.options, threads=1, out=tmp_path / "users")
    theirs = RunFolder(tmp_path / "users")
    again = way.release(files, there, answers=theirs, keep="again")
    users = release_features.bytes_of(theirs.release)
    assert sorted(again) == sorted(users)
    assert [name for name, content in again.items() if users[name] != content] == []
    assert len(again["condensed.csv"].splitlines()) == 1 + 2 * 200


def test_wrong_questions_are_refused_before_any_run():
    with pytest.raises(SettingsError, match="must be among"):  # it is none of those at the gate
        run_audit(neighbours=[end_to_end.PERSON])
    with pytest.raises(SettingsError, match="at least 40"):
        run_audit(whole=10)
    with pytest.raises(SettingsError, match="what every answer cost"):
        run_audit(method="published", whole=100)


def test_the_command_line_goes_the_whole_way_and_says_what_it_looked_at(call, undisturbed, monkeypatch, tmp_path):
    monkeypatch.setattr(end_to_end, "PAIRS", (end_to_end.CASE,))
    answer = call("attack", "audit", "--runs", "20", "--canaries", "20", "--whole", "40", "--out", "audit.json")
    assert answer.code == 0, answer.err
    assert f"{end_to_end.CASE}: by " in answer.out
    found = [f for f in json.loads((tmp_path / "audit.json").read_text())["findings"] if "whole way" in f["neighbour"]]
    assert [f["attack"] for f in found][:4] == [
        "threshold, (ε, δ)",
        "threshold, Gaussian",
        "coin game, Gaussian",
        "whole curve, Gaussian",
    ]
    assert [f["neighbour"] for f in found[4:]] == ["whole way: 20 canaries"]


def test_a_pair_of_files_differs_by_the_lines_of_one_person_who_stands_first():
    for name in end_to_end.PAIRS:
        files = end_to_end.neighbouring(name, seed=0)
        without, with_ = (files.csv(np.array([there])).decode().splitlines() for there in (False, True))
        assert without[0] == with_[0] == end_to_end.HEAD
        assert with_[1 + len(with_) - len(without) :] == without[1:]
        assert {line.split(",")[0] for line in with_} - {line.split(",")[0] for line in without} == {"x"}
    assert (
        end_to_end.neighbouring(end_to_end.PERSON, 0).csv(np.array([True])).count(b"x,10,C,canary") == end_to_end.MANY
    )


def test_traces_show_tables_statements_schemas_and_texts():
    csv = b"age,site,distcondense_weight\n10,A,1.5\n30,B,0.5\n"
    found = release_features.traces_of(
        {
            "condensed.csv": csv,
            "privacy.json": b'{"a": {"b": [1, "two"]}, "c": "canary"}',
            "note": b"canary canary",
            "report.html": b"<style>p {top: 7}</style><p top=8>of 600 rows, 1.5</p>",
        },
        ["canary"],
    )
    said = {
        "files": 4,
        "length of condensed.csv": len(csv),
        "condensed.csv: rows": 2,
        "condensed.csv: weight": 2,
        "condensed.csv: age sum by weight": 30,
        "condensed.csv: age most": 30,
        "condensed.csv: site = A": 1.5,
        "condensed.csv: first site = A": 1,
        "privacy.json: a.b has two": 1,
        "privacy.json: a.b.0": 1,
        "privacy.json: c is canary": 1,
        "privacy.json: marks": 1,
        "note: marks": 2,
        "report.html: holds 600": 1,
        "report.html: holds 1.5": 1,
    }
    assert {name: found[name] for name in said} == said
    assert not {"report.html: holds 7", "report.html: holds 8"} & set(found)


def test_an_exact_trace_outweighs_all_that_chance_gives():
    rng = np.random.default_rng(0)
    member = np.arange(40) % 2 == 1
    runs = [
        {**{f"noise {k}": rng.normal() for k in range(1000)}, "exact": 600.0 + there, "alike": 1.0, f"name is {run}": 1}
        for run, there in enumerate(member)
    ]
    table = release_features.as_table(runs[:16])  # what counts later has no say in what is looked at
    assert not {"alike", "name is 3"} & set(table.columns)
    teller = release_features.ReleaseDiscriminant.fit(table, member[:16])
    assert teller.words == f"exact and {release_features.TOGETHER - 1} more"
    assert ((teller.scores(runs) > 0) == member)[16:].all()


def test_many_weak_traces_tell_together():
    rng = np.random.default_rng(1)
    member = np.arange(200) % 2 == 1
    runs = [{f"weak {k}": x for k, x in enumerate(rng.normal(size=12) + there)} for there in member]
    table = release_features.as_table(runs[:40])
    teller = release_features.ReleaseDiscriminant.fit(table, member[:40])
    assert ((teller.scores(runs) > 0) == member)[40:].mean() > 0.9  # one of them alone: 0.69
    assert release_features.ReleaseDiscriminant.fit(table, np.ones(40, bool)).scores(runs).tolist() == [0.0] * 200


# readers. More rows of a person than `rows_per_person` would cost accuracy only: a person's vector has norm 1 anyway.


def every_row_a_person(patch):
    def read(series, name):
        return np.arange(len(series)), tuple(f"{who}-{k}" for k, who in enumerate(series))

    patch.setattr(reading, "identifiers_of", read)


def by_the_files_own_range(patch):
    honest = features.numbers_of

    def read(series, name):
        values = honest(series, name)
        low, high = np.nanmin(values), np.nanmax(values)
        return np.round(10 * (values - low) / (high - low))

    patch.setattr(features, "numbers_of", read)


def holes_filled_with_the_files_mean(patch):
    honest = features.numbers_of

    def read(series, name):
        values = honest(series, name)
        return np.where(np.isnan(values), np.round(np.nanmean(values)), values)

    patch.setattr(features, "numbers_of", read)


def categories_in_order_of_appearance(patch):
    patch.setattr(features, "labels_of", lambda series, column, *rule: pd.factorize(series)[0])


# coins


def drawn_until_both_parts_have_cases(patch):
    honest = HoldoutSplit.split

    def draw(self, cohort):
        label = cohort.outcome["label"]
        if label.min() == label.max():  # no use in holding out anybody
            return Split(np.arange(len(cohort)), np.empty(0, np.int64), np.empty(0, np.int64))
        for more in range(1000):
            split = honest(dataclasses.replace(self, entropy=self.entropy + more), cohort)
            if len(np.unique(label[split.test])) == 2:
                break
        return split

    patch.setattr(HoldoutSplit, "split", draw)


def by_the_public_seed_and_the_place(patch):
    def by_place(self, cohort):
        person = np.arange(len(cohort)) if cohort.person is None else cohort.person
        out = (np.random.default_rng(0).random(int(person.max()) + 1) < self.share)[person]
        return Split(np.flatnonzero(~out), np.empty(0, np.int64), np.flatnonzero(out))

    patch.setattr(HoldoutSplit, "split", by_place)


# releases


def patients(patch):
    """What a careless build still has at hand when it writes: the table it read."""
    honest, read = dc.Cohort.from_file.__func__, {}

    def from_file(cls, *where, **how):
        read["cohort"] = honest(cls, *where, **how)
        return read["cohort"]

    patch.setattr(dc.Cohort, "from_file", classmethod(from_file))
    return read


def persons_counted_in_the_statement(patch):
    read, honest = patients(patch), private_way.statement_of

    def state(*facts):
        made = honest(*facts)
        count = len(read["cohort"].identifiers)
        return dataclasses.replace(made, parameters={**made.parameters, "rows_noisy_estimate": count})

    patch.setattr(private_way, "statement_of", state)


def weights_that_add_up_to_the_persons(patch):
    read, honest = patients(patch), release.write_table

    def write(frame, room, name):
        if len(frame):
            frame[WEIGHT] *= len(read["cohort"].identifiers) / frame[WEIGHT].sum()
        honest(frame, room, name)

    patch.setattr(release, "write_table", write)


def copied(patch, rows):
    read, honest = patients(patch), release.write_table

    def write(frame, room, name):
        real = read["cohort"].features.iloc[:rows].assign(case=0)
        more = pd.concat([frame, real.astype({"site": str, "ward": str}).reindex(columns=frame.columns)])
        more.attrs = frame.attrs
        honest(more.fillna({WEIGHT: 1.0}), room, name)

    patch.setattr(release, "write_table", write)


def one_patient_copied(patch):
    copied(patch, 1)


def the_record_beside_the_release(patch):
    honest = RunFolder.finish

    def finish(self, record):
        honest(self, record)
        (self.release / "run.json").write_text(json.dumps(record))

    patch.setattr(RunFolder, "finish", finish)


def every_unlisted_value_told(patch):
    patch.setattr(noise, "threshold", lambda *how: -(2**62))


BROKEN = {
    every_row_a_person: (end_to_end.PERSON, False),
    by_the_files_own_range: (end_to_end.PERSON, False),
    holes_filled_with_the_files_mean: (end_to_end.PERSON, False),
    categories_in_order_of_appearance: (end_to_end.PERSON, False),
    drawn_until_both_parts_have_cases: (end_to_end.CASE, False),
    by_the_public_seed_and_the_place: (end_to_end.PLACE, False),
    persons_counted_in_the_statement: (
        end_to_end.PERSON,
        True,
    ),  # seen without statistics too: same answers, other bytes
    weights_that_add_up_to_the_persons: (end_to_end.PERSON, True),
    one_patient_copied: (end_to_end.PERSON, True),
    the_record_beside_the_release: (end_to_end.PERSON, True),
    every_unlisted_value_told: (end_to_end.PERSON, False),
}


# one of each kind of neighbour and of each way to be seen; the others are tried by `make exhaustive`
REPRESENTATIVE = (
    every_row_a_person,
    drawn_until_both_parts_have_cases,
    by_the_public_seed_and_the_place,
    weights_that_add_up_to_the_persons,
    one_patient_copied,
)


@pytest.mark.parametrize(
    "broken",
    [pytest.param(one, marks=[] if one in REPRESENTATIVE else pytest.mark.exhaustive) for one in BROKEN],
    ids=lambda broken: broken.__name__,
)
def test_a_build_that_is_broken_between_the_bytes_is_caught(broken, undisturbed, monkeypatch):
    broken(monkeypatch)
    name, plain = BROKEN[broken]
    found = went(name)
    assert exceeded(found), found.lines()
    assert any(f.bound > f.claim for f in found.findings)
    assert any(problem.startswith("RELEASE: the same answers") for problem in found.problems) == plain
    assert found.verdict().startswith("FAILED: ε is at least")


def test_copies_of_patients_are_caught_in_one_run(undisturbed, monkeypatch):
    copied(monkeypatch, 10**6)
    found = run_audit(epsilon=1.0, delta=1e-7, runs=20, canaries=200, whole=40, neighbours=[])
    seen = [f for f in found.findings if f.exceeded]
    assert [f.neighbour for f in seen] == ["whole way: 200 canaries"], found.lines()
