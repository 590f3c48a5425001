"""A run is prepared once: one plan, one calibration, whoever starts it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import distcondense as dc
from distcondense.data.cohort import Cohort
from distcondense.methods.private import prepare as preparing
from distcondense.methods.private.plan import Plan
from distcondense.privacy.budget import Budget
from tests.conftest import SMALL_TABLE, Call, small_frame

HOW = {"epsilon": 6.0, "ipc": 8, "threads": 1}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a run was prepared, planned and calibrated."""
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str, what: str, bind: Any = lambda call: call) -> None:
        real = getattr(owner, name)

        def counting(*given: Any, **named: Any) -> Any:
            calls[what] += 1
            return real(*given, **named)

        monkeypatch.setattr(owner, name, bind(counting))

    count(preparing, "prepare", "prepare")
    count(Plan, "for_table", "plan", staticmethod)
    count(Budget, "calibrate", "calibrate", staticmethod)
    count(Plan, "events", "price")
    return calls


ONCE = {"prepare": 1, "plan": 1, "calibrate": 1, "price": 1}


@pytest.mark.usefixtures("quick_placement")
def test_a_run_from_python_is_prepared_once(counted: Counter[str], tmp_path: Path) -> None:
    account = dc.Odometer.create(tmp_path / "account.jsonl")
    cohort = Cohort.from_frame(small_frame(400), target="died", ignore=["months", "event"], schema=SMALL_TABLE)
    dc.condense(cohort, out=tmp_path / "run", account=account, **HOW)
    assert counted == ONCE


@pytest.mark.usefixtures("quick_placement")
def test_a_run_from_the_command_line_is_prepared_once(counted: Counter[str], call: Call, tmp_path: Path) -> None:
    small_frame(400).drop(columns=["months", "event"]).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "s.toml").write_text(SMALL_TABLE.without(["months", "event"]).to_toml(), encoding="utf-8")
    dc.Odometer.create(tmp_path / "account.jsonl")
    said = call(
        *("condense", "t.csv", "--schema", "s.toml", "--target", "died", "--epsilon", 6, "--ipc", 8, "--threads", 1),
        *("--account", "account.jsonl"),
    )
    assert said.code in (0, 3), said
    assert counted == ONCE


@pytest.mark.usefixtures("quick_placement")
def test_without_a_schema_a_run_is_planned_when_the_table_is_read(
    counted: Counter[str], call: Call, tmp_path: Path
) -> None:
    small_frame(400).drop(columns=["months", "event"]).to_csv(tmp_path / "t.csv", index=False)
    said = call(
        *("condense", "t.csv", "--target", "died", "--epsilon", 6, "--ipc", 8, "--threads", 1),
        "--trust-inferred-schema",
    )
    assert said.code in (0, 3), said
    assert counted + Counter(price=1) == ONCE  # there is no account to charge
