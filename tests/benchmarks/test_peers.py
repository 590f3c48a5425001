"""Peers: they get public codes and nothing else, their ε is named as what it is, and a page says which method when."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from benchmarks import peers
from benchmarks.peers import elsewhere, environments
from benchmarks.peers.by_hand import BY_HAND
from benchmarks.peers.checked import distances
from benchmarks.peers.coding import LABEL, TIME, Coding, one_each
from benchmarks.peers.elsewhere import ELSEWHERE
from benchmarks.peers.tab_pe import TabPE
from distcondense.data.persons import HoldoutSplit
from distcondense.errors import SettingsError
from distcondense.evaluation.score import RANDOM, REFERENCE
from distcondense.methods import base as methods
from distcondense.methods.base import method_named, options_of
from distcondense.privacy.accountant import replay
from distcondense.study import Study, design
from distcondense.study.comparison import StudyComparison, behind, decisions, in_markdown, overview, pictures, promises
from distcondense.study.results import COLUMNS, ScoreRows
from tests.conftest import real_data, small_frame
from tests.study.test_study import BINARY, HEAD, SCHEMA, run, study_of

PEERS = (*ELSEWHERE, *BY_HAND, TabPE())
ROOT = Path(__file__).resolve().parents[2]
FEATURES = [column.name for column in SCHEMA.columns][:-3]


@pytest.fixture(autouse=True)
def _known() -> Iterator[None]:
    peers.register()
    yield
    for method in PEERS:
        methods.forget(method.name)


def cohort(rows: int = 240, *, survival: bool = False, seed: int = 0) -> dc.Cohort:
    how: dict[str, Any] = (
        {"time": "months", "event": "event", "ignore": ["died"]}
        if survival
        else {"target": "died", "ignore": ["months", "event"]}
    )
    return dc.Cohort.from_frame(small_frame(rows, seed=seed), schema=SCHEMA, **how)


# -- whether a table was handed over rightly ---------------------------------------------------------------------------


def test_a_peer_that_mixes_up_its_columns_is_told_from_one_that_does_not() -> None:
    """0 for the table itself; independence where the outcome is shuffled; more where columns are swapped."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 4000)
    table = pd.DataFrame({"c0": label + 2 * rng.integers(0, 2, 4000), "c1": rng.integers(0, 4, 4000), LABEL: label})
    sizes = {"c0": 4, "c1": 4, LABEL: 2}
    assert max(list(distances(table, table, sizes).values())[:2]) == pytest.approx(0)
    shuffled = distances(table, table.assign(**{LABEL: rng.permutation(label)}), sizes)
    assert shuffled["columns"] == pytest.approx(0)
    assert shuffled["pairs with the outcome"] == pytest.approx(shuffled["the same pairs if independent"], abs=0.02)
    assert shuffled["pairs with the outcome"] > 0.2
    swapped = distances(table, table.rename(columns={"c0": "c1", "c1": "c0"}), sizes)
    assert swapped["pairs with the outcome"] > 0.4


# -- codes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("survival", [False, True])
def test_codes_become_rows_and_the_same_codes_again(survival: bool) -> None:
    there = cohort(survival=survival)
    coding = Coding.of(there.facts)
    table = coding.table(there)
    assert list(table) == list(coding.sizes)
    assert ((table >= 0) & (table < pd.Series(coding.sizes))).all(axis=None)
    assert (TIME in table) == survival
    frame, outcome = coding.rows(table, np.random.default_rng(0))
    target = {"died": outcome["label"]} if not survival else {"event": outcome["label"], "months": outcome["time"]}
    how: dict[str, Any] = {"time": "months", "event": "event"} if survival else {"target": "died"}
    kept = SCHEMA.only([*FEATURES, *target])
    again = dc.Cohort.from_frame(frame.assign(**target), schema=kept, **how)
    pd.testing.assert_frame_equal(coding.table(again), table)


def test_codes_depend_on_the_schema_and_on_no_other_row() -> None:
    one, two = cohort(100), cohort(100)
    assert Coding.of(one.facts).sizes == Coding.of(cohort(7, seed=3).facts).sizes
    some = Coding.of(one.facts).table(two.take(np.arange(10)))
    pd.testing.assert_frame_equal(some, Coding.of(one.facts).table(one)[:10])


def test_of_each_person_a_peer_gets_one_row_wherever_it_stands() -> None:
    frame = small_frame(90).assign(who=np.repeat(np.arange(30), 3))
    how: dict[str, Any] = {"target": "died", "ignore": ["months", "event"], "person_id": "who", "schema": SCHEMA}
    here = dc.Cohort.from_frame(frame, **how)
    shuffled = frame.sample(frac=1.0, random_state=1)
    there = dc.Cohort.from_frame(shuffled, **how)
    chosen, other = one_each(here), one_each(there)
    assert sorted(frame["who"].iloc[chosen]) == list(range(30))
    assert set(frame.index[chosen]) == set(shuffled.index[other])


# -- peers elsewhere --------------------------------------------------------------------------------------------------


def test_a_peer_is_handed_codes_and_public_sizes_and_never_a_test_person(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def answers(
        name: str, question: dict[str, Any], table: pd.DataFrame, threads: int, limit: float
    ) -> tuple[pd.DataFrame, int]:
        seen.append((name, question, table))
        return table.sample(n=question["rows"], replace=True, random_state=0), 7

    monkeypatch.setattr(elsewhere, "asked", answers)
    there, coins = cohort(), HoldoutSplit(0.25, entropy=3)
    results = dc.condense(there, method="dpmm-mst", ipc=[4, 9], epsilon=2.0, held_out=coins, threads=1)
    ((name, question, table),) = seen  # one fit for both sets
    assert (name, question["epsilon"], question["delta"]) == ("dpmm", 2.0, 1e-5)
    assert len(table) == len(coins.split(there).train)
    assert set(table) == {*(f"c{j}" for j in range(len(FEATURES))), LABEL}  # not even the columns' names
    assert all(table[column].between(0, size - 1).all() for column, size in question["sizes"].items())
    for ipc, result in results.items():
        assert result.frame["died"].value_counts().to_dict() == {0: ipc, 1: ipc}
        stated = result.privacy
        assert (stated.guarantee, stated.epsilon, stated.unit) == ("as-published", 2.0, "row")
        assert "neither proved nor audited" in stated.paragraph()
        assert "not a theorem" in stated.sentence()
    assert results[4].record["peak_memory_bytes"] == 7


def test_a_model_without_rows_is_scored_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    there = cohort(400)
    coding = Coding.of(there.facts)
    tables = {f"c{j}": list(np.linspace(-1, 1, cells.size)) for j, cells in enumerate(coding.cells)}
    monkeypatch.setattr(elsewhere, "asked", lambda *_: ({"intercept": 0.5, "tables": tables}, 1))
    result = dc.condense(there, method="dp-ebm", ipc=5, held_out=HoldoutSplit(0.3, 1), threads=1)
    assert len(result.frame) == 0
    ways = {score["trained_on"] for score in result.record["scores"]}
    assert ways == {"full", "reference"}
    test = HoldoutSplit(0.3, 1).split(there).test
    codes = coding.table(there).iloc[test]
    margin = sum(np.asarray(tables[name])[codes[name]] for name in tables)
    from sklearn.metrics import roc_auc_score

    scores = {(s["trained_on"], s["measure"]): s["value"] for s in result.record["scores"]}
    by_hand = roc_auc_score(there.outcome["label"][test], margin)
    assert scores["reference", "auroc"] == pytest.approx(by_hand, abs=1e-3)  # it runs as trees of float32: other ties


def test_a_peer_that_does_not_end_is_stopped_and_that_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def answers(*said: Any) -> tuple[environments.Unfinished, int]:
        asked.append(said[-1])
        return environments.Unfinished(said[-1]), 3

    monkeypatch.setattr(elsewhere, "asked", answers)
    for method in ("dpmm-aim", "dp-ebm"):
        result = dc.condense(cohort(), method=method, ipc=5, time_limit=2.5, held_out=HoldoutSplit(0.3, 1), threads=1)
        assert len(result.frame) == 0
        assert result.privacy.answer == "not finished within 2.5 CPU seconds"
        assert (result.privacy.guarantee, result.privacy.epsilon) == ("as-published", 1.0)
        assert {score["trained_on"] for score in result.record["scores"]} == {"full"}
    assert asked == [2.5, 2.5]
    with pytest.raises(SettingsError, match="time_limit"):
        dc.condense(cohort(), method="dpmm-aim", time_limit=0.0)


def test_a_process_is_ended_at_its_limit_with_its_children_and_its_memory_is_its_own() -> None:
    child = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']); "
    for ends in ("import signal; signal.pause()", "exec('while True: pass')"):  # waits, or works, for ever
        assert environments.run([sys.executable, "-c", child + ends], os.environ, 0.2).stopped
    large = environments.run([sys.executable, "-c", "x = bytearray(300_000_000); sum(range(10**7))"], os.environ, 100)
    small = environments.run([sys.executable, "-c", "raise ValueError('a value')"], os.environ, 100)
    assert (large.stopped, large.code, small.stopped, small.code) == (False, 0, False, 1)
    assert large.peak > 300_000_000 > small.peak  # not that of an earlier one
    assert small.errors.strip().endswith("ValueError: a value")


def test_an_environment_that_is_not_built_is_told_with_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTCONDENSE_PEERS", str(tmp_path))
    with pytest.raises(SettingsError, match=r"python -m benchmarks\.peers build smartnoise"):
        dc.condense(cohort(), method="smartnoise-mst", ipc=4, threads=1)


def test_every_version_of_a_peer_is_pinned_and_none_is_ours() -> None:
    ours = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    for name in environments.NAMES:
        lines = (ROOT / f"benchmarks/peers/requirements-{name}.txt").read_text(encoding="utf-8").splitlines()
        assert all(re.fullmatch(r"[A-Za-z0-9_.\-]+==\S+", line) for line in lines)
    for package in ("dpmm", "smartnoise-synth", "interpret-core"):
        assert f"{package}==" not in ours


# -- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "survival"), [("naive-bayes", False), ("naive-bayes", True), ("marginals", False)])
def test_samplers_spend_their_budget_at_the_gate_and_as_planned(name: str, survival: bool) -> None:
    there = cohort(survival=survival)
    result = dc.condense(there, method=name, ipc=6, epsilon=1.5, held_out=HoldoutSplit(0.2, 2), threads=1)
    stated = result.privacy
    assert (stated.guarantee, stated.unit) == ("end-to-end", "row")
    assert 0.99 * 1.5 < replay(stated.events, 1e-5).epsilon <= stated.epsilon * (1 + 1e-6) <= 1.5 * (1 + 1e-6)
    method = method_named(name)
    asked = method.prepare(there.facts, options_of(method, {"ipc": 6, "epsilon": 1.5})).planned
    assert [(e.kind, e.query, e.columns, e.cells, e.by, e.unit) for e in asked] == [
        (e.kind, e.query, e.columns, e.cells, e.by, e.unit) for e in stated.events
    ]
    assert [e.cost for e in asked] == pytest.approx([e.cost for e in stated.events])
    assert len(result.frame) == 12
    if name == "naive-bayes":
        assert set(result.frame["event" if survival else "died"].value_counts()) == {6}


def test_random_rows_are_patients_of_the_training_part_and_say_so() -> None:
    there, coins = cohort(), HoldoutSplit(0.2, 2)
    result = dc.condense(there, method="random-rows", ipc=6, held_out=coins, threads=1)
    assert result.privacy.guarantee == "none"
    assert "These rows are patients." in result.privacy.paragraph()
    split, texts = coins.split(there), there.features.astype(str)
    train, test = (set(map(tuple, texts.iloc[part].to_numpy())) for part in (split.train, split.test))
    rows = set(map(tuple, result.frame[FEATURES].astype(str).to_numpy()))
    assert rows <= train
    assert not rows & (test - train)


# -- the study --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["methods", "methods-quick"])
def test_the_study_of_all_methods_is_legal_and_every_method_is_a_row(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_data("adult_48842.csv.gz")
    real, asked = design.prepare, (1.0,) if name == "methods-quick" else ()

    def prepare(method: Any, facts: Any, options: Any) -> None:  # not every ε is calibrated here: those of 1 are
        if getattr(options, "epsilon", None) in asked:
            real(method, facts, options)

    monkeypatch.setattr(design, "prepare", prepare)
    text = (ROOT / f"benchmarks/studies/{name}.toml").read_text(encoding="utf-8")
    shared = str(ROOT.parent / "shared")
    text = text.replace("../../../shared", shared).replace("../schemas", str(ROOT / "benchmarks/schemas"))
    text = text.replace(
        "~/.cache/distcondense/tables", str(tmp_path)
    )  # benchmarks.tables makes them: not to be had here
    persons = pd.DataFrame({column: [] for column in (*_names("diabetes130"), "readmitted", "patient_nbr")})
    for part in ("diabetes130", "diabetes130-quick"):
        persons.to_parquet(tmp_path / f"{part}.parquet")
    answers = dc.Schema.from_toml(ROOT / "benchmarks/schemas/brfss.toml").names
    kidney = dc.Schema.from_toml(ROOT / "benchmarks/schemas/kidney.toml").names
    for name_of_table, columns in (("brfss-quick", answers), ("brfss-heart", answers), ("kidney", kidney)):
        pd.DataFrame({column: [] for column in columns}).to_csv(tmp_path / f"{name_of_table}.csv", index=False)
    (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    study = Study.from_toml(tmp_path / f"{name}.toml")
    assert study.name == name
    assert {cell.made_by for cell in study.cells} == set(methods.method_names())  # ours and the peers
    table = (ROOT / "benchmarks/studies/README.md").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in table if line.startswith(f"| `{name}.toml`"))
    assert line.endswith(f"| {len(study.cells):,} |")


def _names(schema: str) -> list[str]:
    return [
        name
        for name in dc.Schema.from_toml(ROOT / f"benchmarks/schemas/{schema}.toml").names
        if name not in ("readmitted", "patient_nbr")
    ]


def test_a_page_says_which_method_when_with_the_words_of_each_guarantee(tmp_path: Path) -> None:
    small_frame(300).to_csv(tmp_path / "ward.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    rows = '[[method]]\nmethod = "{}"\nepsilon = 4\n[[method]]\nmethod = "random-rows"\n'.format("naive-bayes")
    study = study_of(tmp_path, HEAD.replace("[0, 1]", "[0]"), 'modules = ["benchmarks.peers"]\n', BINARY, rows)
    assert run(study, tmp_path / "out").failed == []
    said = json.loads((tmp_path / "out/internal/report.json").read_text(encoding="utf-8"))
    (table,) = said["decisions"]
    promises = {row[0]: row[1] for row in table["rows"]}
    assert promises["random-rows"] == "nothing bounds what these rows tell about patients"
    assert re.fullmatch(r"ε = [\d.]+ end-to-end: a theorem about every row of the table", promises["naive-bayes"])
    assert [row[0] for row in table["rows"]] == ["naive-bayes", "random-rows"]  # theorems first
    assert "random-rows (none): These rows are patients." in said["limits"]
    assert not any("naive-bayes" in line for line in said["limits"])
    text = (tmp_path / "out/internal/decide.md").read_text(encoding="utf-8")
    assert "2 of 2 cells" in text
    assert re.search(
        r"\| naive-bayes \| ε = [\d.]+ end-to-end: a theorem about every row of the table \|.*\| 6 \| 1 \|", text
    )
    page = (tmp_path / "out/internal/report.html").read_text(encoding="utf-8")
    assert "Which method when" in page
    assert "a theorem about every row of the table" in page


def tidy_rows(method: str, epsilon: float | None, values: dict[int, float], **more: Any) -> list[dict[str, Any]]:
    base = {
        "data": "ward",
        "method": method,
        "made_by": method,
        "reference": "xgb",
        "ipc": 100,
        "trained_on": "condensed",
        "metric": "auroc",
        "main": True,
        "epsilon_asked": epsilon,
        "epsilon": epsilon,
        "unit": "row",
        "guarantee": "none" if epsilon is None else "end-to-end",
        "part": "utility",
        "labels": "plain",
        "making_seconds": 9.0,
        "cpu_seconds": 2.0,
        "peak_memory_bytes": 2.0**30,
        "tested_on": "ward",
    }
    return [{**base, "seed": seed, "value": v, "low": v - 0.01, "high": v + 0.01, **more} for seed, v in values.items()]


def compared(rows: list[dict[str, Any]], lost: list[dict[str, Any]] | None = None) -> StudyComparison:
    tables = (pd.DataFrame(one, columns=list(COLUMNS)).astype(COLUMNS) for one in (rows, lost or []))
    return StudyComparison(*map(ScoreRows.from_frame, tables))


def test_where_the_default_is_behind_is_said_with_the_gap_and_its_spread() -> None:
    rows = [
        *tidy_rows("private", 1.0, {0: 0.80, 1: 0.82}),
        *tidy_rows("other", 1.0, {0: 0.83, 1: 0.83}),
        *tidy_rows("other", 2.0, {0: 0.99, 1: 0.99}),
        *tidy_rows("free", None, {0: 0.95, 1: 0.95}),
        *tidy_rows("slower", 1.0, {0: 0.70, 1: 0.70}),
    ]
    results = compared(rows)
    counted, said = behind(results)  # not at another ε, not without one, not where it is ahead
    assert counted.startswith("At equal ε of the same guarantee and IPC private is ahead in 1 of 2 comparisons")
    assert said == (
        "ward, IPC 100, plain labels: other (xgb, ε = 1 end-to-end) is ahead of private by 0.020 ± 0.014 over 2 seeds."
    )
    assert ", clearly in 0 (" in counted  # two seeds that differ by 0.02 prove nothing
    assert "clearly behind in 0;" in counted
    (table,) = decisions(results)
    assert [row[0] for row in table.rows] == ["other", "private", "slower", "other", "free"]  # ε by ε, the best first
    first = table.rows[3]
    told = dict(zip(table.columns, first, strict=True))
    assert (told["method"], told["IPC"], told["seeds"]) == ("other", 100, 2)
    assert told["plain labels"] == pytest.approx([0.99, 0.98, 1.0])
    assert told["one run takes"] == "2.0 CPU s, 1.00 GiB"
    (figure,) = pictures(results)
    assert {series.name.split(",")[0] for series in figure.series} == {"ε 1 (end-to-end)", "ε 2 (end-to-end)", "no ε"}
    alone = [row for row in rows if row["method"] in ("private", "free")]
    assert behind(compared(alone)) == [
        "No other method was measured beside private at the same ε of the same guarantee and IPC."
    ]
    ahead = [row for row in rows if row["method"] in ("private", "slower")]
    assert behind(compared(ahead)) == [
        "At equal ε of the same guarantee and IPC private is ahead of every other method, wherever both were measured."
    ]


def test_a_difference_that_is_larger_than_seeds_are_is_told_as_clear_and_first() -> None:
    ours = {seed: 0.80 + 0.001 * seed for seed in range(5)}
    rows = [
        *tidy_rows("private", 1.0, ours),
        *tidy_rows("level", 1.0, {seed: 0.802 + 0.03 * (seed % 2) for seed in ours}),
        *tidy_rows("better", 1.0, {seed: value + 0.01 for seed, value in ours.items()}),
        *tidy_rows("worse", 1.0, {seed: value - 0.01 - 0.001 * (seed % 2) for seed, value in ours.items()}),
        *tidy_rows("once", 1.0, {0: 0.9}),
    ]
    counted, first, *rest = behind(compared(rows))
    assert "is ahead in 1 of 4 comparisons" in counted
    assert ", clearly in 1 (" in counted
    assert "clearly behind in 1;" in counted
    assert first.endswith("better (xgb, ε = 1 end-to-end) is ahead of private by 0.010 ± 0.000 over 5 seeds, clearly.")
    assert len(rest) == 2
    assert not any("clearly" in sentence for sentence in rest)


def test_what_made_no_table_is_a_row_with_its_reason() -> None:
    late = tidy_rows("late", 1.0, {0: np.nan, 1: np.nan}, part="quick", note="not finished within 9 s")
    some = [*tidy_rows("some", 1.0, {0: 0.6}), *tidy_rows("some", 1.0, {1: np.nan}, part="quick", note="not finished")]
    rows = [*tidy_rows("private", 1.0, {0: 0.8, 1: 0.82}), *late, *some]
    names = ("data", "method", "epsilon_asked", "guarantee_asked", "ipc", "note")
    picky = dict(zip(names, ("ward", "picky", 1.0, "as-published", 100, "too few rows"), strict=True))
    results = compared(rows, [picky, picky, {**picky, "data": "other ward", "guarantee_asked": "none", "note": ""}])
    (table,) = decisions(results)
    assert [row[0] for row in table.rows] == ["private", "some", "late", "picky"]
    ours, some_, late_, picky = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert (late_["seeds"], late_["plain labels"]) == (0, "no table: not finished within 9 s")
    assert (picky["what it promises"], picky["plain labels"]) == (
        "ε ≤ 1 as-published, not reached",
        "no table: too few rows",
    )
    assert (picky["IPC"], picky["seeds"]) == (100, 0)
    assert (some_["seeds"], ours["seeds"]) == (1, 2)  # seeds that have numbers
    text = in_markdown(
        "study", 3, 4, [("Need", "one.")], behind(results), [*overview(results), *decisions(results)], promises(results)
    )
    assert "\n1. **Need:** one.\n" in text
    assert "a theorem about every row of the table | 2.0 CPU s, 1.00 GiB | no table: not finished" in text


def test_an_overview_has_the_best_of_each_promise_at_each_epsilon() -> None:
    rows = [
        *tidy_rows("private", 1.0, {0: 0.80, 1: 0.82}),
        *tidy_rows("good", 1.0, {0: 0.75, 1: 0.75}),
        *tidy_rows("better", 1.0, {0: 0.76, 1: 0.78}),
        *tidy_rows("better", 3.0, {0: 0.9, 1: 0.9}),
        *tidy_rows("paper", 1.0, {0: 0.79}, guarantee="as-published"),
        *tidy_rows("free", None, {0: 0.95}),
        *tidy_rows("lucky", 1.0, {2: 0.99}),  # no seed in common: not compared
        *tidy_rows("private", 1.0, {0: 0.85, 1: 0.85}, trained_on=RANDOM),
        *tidy_rows("private", 1.0, {0: 0.9, 1: 0.9}, trained_on="full"),
    ]
    (table,) = overview(compared(rows))
    (row,) = table.rows  # at ε = 3 nothing to compare with
    assert row == (
        "ward",
        "ε = 1 (end-to-end), IPC 100",
        "0.810 ± 0.014 (2)",
        "better 0.770 ± 0.014 (2): -0.040 on 2 shared",
        "0.850 ± 0.000 (2)",
        "0.900 ± 0.000 (2)",
    )
    only = [*tidy_rows("one", 1.0, {0: 0.8}), *tidy_rows("two", 1.0, {0: 0.8})]
    assert overview(compared(only)) == []


def test_a_model_without_rows_is_compared_with_the_default_s_model_and_not_with_its_students() -> None:
    note = {"note": "a model, and no rows", "part": "quick"}
    rows = [
        *tidy_rows("private", 1.0, {0: 0.80}),
        *tidy_rows("private", 1.0, {0: 0.90}, trained_on=REFERENCE),
        *tidy_rows("ebm", 1.0, {0: np.nan}, **note),
        *tidy_rows("ebm", 1.0, {0: 0.85}, trained_on=REFERENCE),
    ]
    results = compared(rows)
    assert behind(results)[0].startswith(
        "At equal ε of the same guarantee and IPC private is ahead of every other method"
    )
    (table,) = decisions(results)
    ours, theirs = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert (theirs["method"], theirs["plain labels"]) == ("ebm", "no table: a model, and no rows")
    assert theirs["its own model"] == pytest.approx([0.85, 0.84, 0.86])
    assert ours["its own model"] == pytest.approx([0.90, 0.89, 0.91])
    assert overview(results) == []
