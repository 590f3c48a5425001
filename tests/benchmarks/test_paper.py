"""The page of the paper's tables: every printed cell has its row and its word, and what is there is not run again."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from benchmarks import record
from benchmarks.paper import __main__ as command
from benchmarks.paper import cells as study
from benchmarks.paper import page as pages
from benchmarks.paper import printed as paper
from benchmarks.paper.cells import Cell, slim
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, Score


def entry(cell: Cell, condensed: float, random: float = 0.7, full: float = 0.8) -> dict[str, Any]:
    scores = [
        slim(Score("auroc", way, "held out", value, value - 0.02, value + 0.02, 100, False))
        for way, value in ((CONDENSED, condensed), (RANDOM, random), (FULL, full))
    ]
    one = {"scores": scores, "epsilon": 1.0, "epsilon_at_last_step": cell.epsilon, "answer": "", "sigma_base": 4.0}
    return {"cell": vars(cell), "sets": {str(cell.ipc): {**one, "steps": 100}}, "seconds": 1.0}


def test_every_cell_of_the_study_is_another_run_and_the_first_seed_comes_first() -> None:
    cells = list(study.cells(3, set(paper.COHORTS)))
    assert len({cell.key for cell in cells}) == len(cells)
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    printed = {(row.cohort, row.reference, ipc) for row in paper.TABLES for ipc in paper.IPC}
    run = {(cell.cohort, cell.reference, cell.ipc) for cell in cells if cell.method == "published"}
    assert printed <= run


@pytest.mark.parametrize(
    ("condensed", "said"), [(0.796, "reached"), (0.795, "reached"), (0.785, "near"), (0.7, "not reached (-0.090)")]
)
def test_a_word_compares_distances_to_the_model_of_all_rows(condensed: float, said: str) -> None:
    cell = Cell("puh", "published", "xgb", 50, 2.5, 0)
    mine = pages.ours({cell.key: entry(cell, condensed)}, "puh", "published", "xgb", 50, 2.5)
    assert pages.word(mine, printed=0.89, full=0.9) == said  # printed 0.01 below; ours of 0.8
    assert pages.word(None, 0.89, 0.9) == "not run"


def test_loud_noise_is_the_reason_and_rows_below_random_ones_are_bold() -> None:
    cell = Cell("puh", "published", "xgb", 50, 2.5, 0)
    found = entry(cell, 0.6)
    found["sets"]["50"]["sigma_base"] = 40.0  # sqrt(100) / 10 = 1
    mine = pages.ours({cell.key: found}, "puh", "published", "xgb", 50, 2.5)
    assert pages.word(mine, 0.89, 0.9) == "not reached (noise: 1)"
    assert pages.shown(mine).startswith("**0.600 ± 0.020")
    assert "below random rows**" in pages.shown(mine)


def test_the_page_has_a_row_for_every_printed_cell_and_means_over_seeds() -> None:
    cells = [Cell("puh", "published", "xgb", 50, 2.5, seed) for seed in (0, 1)]
    text = pages.page({cell.key: entry(cell, 0.79 + 0.02 * cell.seed) for cell in cells})
    assert "0.800 ± 0.020 (sd 0.014, 2 seeds)" in text
    for row in paper.TABLES:
        assert f"## Table {row.table}:" in text
    assert text.count("| not run |") == 4 * len(paper.PAIRS) + 4 * len(paper.TABLES) - 1
    assert "2 cells" in text


def test_what_is_there_is_not_run_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    ran: list[str] = []

    def run(cell: Cell, threads: int) -> dict[str, Any]:
        ran.append(cell.key)
        return entry(cell, 0.75)

    monkeypatch.setenv("DISTCONDENSE_RESULTS", str(tmp_path))
    monkeypatch.setattr(record, "RESULTS", tmp_path / "none")
    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(sys, "argv", ["paper", "--only", "gbsg2", "--methods", "published", "--seeds", "1"])
    command.main()
    assert len(ran) == 4
    first = (tmp_path / "paper.md").read_text(encoding="utf-8").split("\n", 1)[1]
    command.main()
    assert len(ran) == 4
    assert (tmp_path / "paper.md").read_text(encoding="utf-8").split("\n", 1)[1] == first
    assert np.isnan(paper.BESIDE[0].full)
