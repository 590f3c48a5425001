"""The figures and Table 5 in numbers: the sections of an evaluation that stand for them, and Figure 5B."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from xgboost import XGBRegressor

import distcondense as dc
from benchmarks.paper.printed import NAMED
from distcondense.api import evaluate_run
from distcondense.data.cohort import Cohort
from distcondense.evaluation.attacks.attribute import TREES
from distcondense.evaluation.attacks.targets import places
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.runs.files import plain

SECTIONS = {  # section → what it stands for, and the measures that the page shows
    "landscape": ("Figure 1: nearest real row, in standard deviations", ("nearest_distance",)),
    "curves": ("Figure 2: predicted and observed curves", ("predicted_distance", "calibration_error")),
    "utility": ("Figure 3: other models trained on the rows", ("auroc", "c_index")),
    "interpretation": ("Figures 4 and S1: SHAP importance", ("attribution_correlation", "attribution_short")),
    "hazards": ("Table 5: penalised hazard ratios per standard deviation", ("hazard_order", "hazard_strongest")),
    "membership": ("Figure 5A: membership attack", ("auroc", "advantage", "tpr_at_0.1")),
}
MOST_ATTRIBUTES = 60  # columns that are guessed, the named ones first
ATTRIBUTE_SEEDS = 5


def sections(cohort: Cohort, how: dict[str, Any], threads: int) -> dict[str, Any]:
    """Condensed and evaluated, in a folder that is thrown away; of each section its scores and short tables."""
    with tempfile.TemporaryDirectory() as room:
        out = Path(room) / "run"
        dc.condense(cohort, **how, out=out)
        (found,) = evaluate_run(out, cohort, parts=tuple(SECTIONS), threads=threads).values()
    return {
        part.name: {
            "scores": [plain(score.to_dict()) for score in part.scores],
            "titles": dict(part.titles),
            "tables": {table.name: [list(table.columns), *map(list, table.rows)] for table in part.tables},
            "figures": [figure for figure in plain(part.to_dict())["figures"] if part.name == "curves"],
            "notes": list(part.notes),
        }
        for part in found.parts
    }


def attributes(name: str, cohort: Cohort, how: dict[str, Any], threads: int) -> dict[str, list[float]]:
    """Figure 5B: R² of each attribute of real rows, learned from the others of condensed rows, over five seeds.

    Gradient boosting as printed (100 trees, depth 3, rate 0.1), every column as a number; a category is its code.
    """
    found: dict[str, list[float]] = {}
    for seed in range(ATTRIBUTE_SEEDS):
        inputs = EvaluationInput.from_result(cohort, dc.condense(cohort, **{**how, "seed": seed}))
        real = inputs.codec.encode(inputs.sample(inputs.split.train, 5_000, seed).features)
        for column, of_made, of_real, learned, asked in _targets(name, inputs, real):
            model = XGBRegressor(**TREES, n_jobs=threads, random_state=seed)
            wrong = model.fit(learned, of_made).predict(asked) - of_real
            found.setdefault(column, []).append(float(1 - (wrong**2).mean() / of_real.var()))
    return found


def _targets(name: str, inputs: EvaluationInput, real: Any) -> Iterator[tuple[str, Any, Any, Any, Any]]:
    """Each attribute: its values in condensed and in real rows, and the other columns of both."""
    first = NAMED.get(name, ())
    for block, place in sorted(places(inputs.codec), key=lambda one: one[0].column.name not in first)[:MOST_ATTRIBUTES]:
        of_made, of_real = (
            rows[:, place].argmax(1).astype(np.float64) if block.values else rows[:, place.start]
            for rows in (inputs.rows, real)
        )
        if np.ptp(of_real) > 0:
            learned, asked = (np.delete(rows, np.r_[place], axis=1) for rows in (inputs.rows, real))
            yield block.column.name, of_made, of_real, learned, asked
