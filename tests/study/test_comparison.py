"""Who is compared with whom in a study: methods at the same ε of the same guarantee, and no others."""

from __future__ import annotations

import pandas as pd

from distcondense.evaluation.score import CONDENSED, PLAIN
from distcondense.methods.base import default_method
from distcondense.study.comparison import behind, overview, pictures
from distcondense.study.results import QUICK


def results(**means: tuple[str, float]) -> pd.DataFrame:
    """Three seeds of each method: its guarantee and mean, all at ε = 1."""
    rows = [
        {
            "data": "ward",
            "method": method,
            "made_by": method,
            "reference": "full",
            "epsilon_asked": 1.0,
            "ipc": 10,
            "trained_on": CONDENSED,
            "guarantee": guarantee,
            "main": True,
            "value": mean + 0.001 * seed,
            "low": mean - 0.02,
            "high": mean + 0.02,
            "part": QUICK,
            "labels": PLAIN,
            "metric": "auroc",
            "seed": seed,
        }
        for method, (guarantee, mean) in means.items()
        for seed in range(3)
    ]
    return pd.DataFrame(rows)


def test_an_epsilon_as_published_is_never_held_to_one_end_to_end() -> None:
    ours = default_method()
    found = results(**{ours: ("end-to-end", 0.8), "rival": ("as-published", 0.9)})
    said = " ".join(behind(found))
    assert f"No other method was measured beside {ours} at the same ε of the same guarantee" in said
    assert "Not compared, as their ε is of another guarantee" in said
    assert "rival (as-published)" in said
    assert "ahead" not in said
    assert overview(found) == []
    (figure,) = pictures(found)
    assert [series.name for series in figure.series] == ["ε 1 (end-to-end)", "ε 1 (as-published)"]


def test_methods_of_one_guarantee_are_compared_and_the_guarantee_is_said() -> None:
    ours = default_method()
    found = results(**{ours: ("end-to-end", 0.8), "rival": ("end-to-end", 0.9), "third": ("as-published", 0.95)})
    counted, *others = behind(found)
    assert counted.startswith("At equal ε of the same guarantee and IPC")
    assert "rival (full, ε = 1 end-to-end) is ahead" in others[0]
    assert others[-1].endswith("third (as-published).")
    (table,) = overview(found)
    assert "third" not in str(table.rows)
