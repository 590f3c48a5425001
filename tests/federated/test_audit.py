"""Whole runs of several sites under attack: the coordinator and a colluding site learn no more than is charged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distcondense.evaluation.audit import Audit, run_audit
from distcondense.federated import site
from distcondense.federated.accounting import Sharing
from distcondense.federated.audit import AUDITOR
from distcondense.federated.masks import keystream
from distcondense.federated.tables import SiteTable

FAST = "outlier"


def audited(runs: int, *neighbours: str, epsilon: float = 10.0) -> Audit:
    return run_audit(epsilon=epsilon, runs=runs, canaries=0, neighbours=neighbours, auditor=AUDITOR)


def test_an_intact_run_tells_a_coordinator_and_a_colluding_site_no_more_than_is_charged() -> None:
    audit = audited(120, FAST)
    assert audit.passed, audit.lines()
    assert audit.power > 0.1  # it could see


@pytest.mark.parametrize(
    "neighbour",
    [
        name if name in ("many rows", "early event (survival)") else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in AUDITOR.neighbours
        if name != FAST
    ],
)
def test_all_neighbours_and_kinds_of_outcome_are_attacked_and_no_mask_comes_off(neighbour: str) -> None:
    audit = audited(20, neighbour)
    assert audit.passed, audit.lines()


def test_a_noise_share_that_is_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fourth of it: half of it would need more runs to be seen every time."""
    real = Sharing.scale.fget
    assert real is not None
    monkeypatch.setattr(Sharing, "scale", property(lambda sharing: real(sharing) / 4))
    audit = audited(60, FAST, epsilon=4.0)
    assert any(finding.exceeded for finding in audit.findings), audit.lines()


def left_out(pair: bytes, question: str, count: int) -> list[int]:
    return [0] * count


def reused(pair: bytes, question: str, count: int) -> list[int]:
    return keystream(pair, "11" * 32, count)


def seeded_small(pair: bytes, question: str, count: int) -> list[int]:
    return keystream(bytes([pair[0]]), question, count)


@pytest.mark.parametrize(
    ("broken", "words"),
    [(left_out, "left out"), (reused, "those of the question before"), (seeded_small, "made of one of 256 keys")],
)
def test_masks_that_do_not_hide_are_caught(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[..., Any], words: str
) -> None:
    monkeypatch.setattr(site, "keystream", broken)
    monkeypatch.setattr("distcondense.federated.audit.keystream", broken)  # the colluding site's own
    audit = audited(20, FAST)
    assert not audit.passed
    assert any(words in problem for problem in audit.problems), audit.problems


def test_a_site_that_enters_nothing_in_its_ledger_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    real = SiteTable._ask

    def silent(table: SiteTable, question: Any, event: Any, *more: Any) -> Any:
        found = real(table, question, event, *more)
        table.ledger._own.pop()
        return found

    monkeypatch.setattr(SiteTable, "_ask", silent)
    monkeypatch.setattr(site.Ledger, "note", lambda ledger, number, digest: None)
    audit = audited(20, FAST)
    assert any("LEDGER" in problem for problem in audit.problems), audit.lines()
