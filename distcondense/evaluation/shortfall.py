"""Whether condensed rows fall short: of as many random real rows, or of what a guess reaches.

One rule for the terminal, the custodian's page, report.json and `--json`. It reads scores that were computed on
patients, so what it says belongs in `internal/`, never in `release/`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from distcondense.evaluation.score import CONDENSED, RANDOM, Score, find
from distcondense.outcomes.measures import title

BALANCED = "balanced_accuracy"
NEAR = 0.05  # a balanced accuracy that is no further than this above a guess's
POOR = "NOT GOOD ENOUGH"


def shortfall(scores: Sequence[Score], outcome: Mapping[str, Any]) -> str:
    """Why rows with these first scores should not be relied on, in a sentence; empty where nothing speaks against it.

    Parameters
    ----------
    scores : sequence of Score
        Of models of the condensed rows, and of as many random real ones, on held-out patients.
    outcome : mapping
        What the run's record says of it: its `labels`, where it has classes.

    Returns
    -------
    str
    """
    made = find(scores, CONDENSED)
    if made is None or math.isnan(made.value):
        return ""
    reasons, floor = [], find(scores, RANDOM, made.measure)
    if floor is not None and made.value < floor.value:
        reasons.append(
            f"models of the {made.rows} condensed rows reach {title(made.measure)} {made.value:.3f}, below "
            f"{floor.value:.3f} of models of as many random real rows"
        )
    right, classes = find(scores, CONDENSED, BALANCED), len(outcome.get("labels", ()))
    if right is not None and classes and right.value < 1 / classes + NEAR:
        reasons.append(
            f"their {title(BALANCED).lower()} is {right.value:.3f}, hardly above a guess's {1 / classes:.3f}"
        )
    return f"{POOR}: {'; '.join(reasons)}." if reasons else ""


def shortfall_of_sets(record: Mapping[str, Any]) -> str:
    """The first that there is among a run's sets, as its record has their scores."""
    sets, outcome = record.get("sets", [record]), record["data"]["outcome"]
    said = (shortfall([Score.from_dict(entry) for entry in one["scores"]], outcome) for one in sets)
    return next((sentence for sentence in said if sentence), "")
