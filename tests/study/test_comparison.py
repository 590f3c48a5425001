"""Who is compared with whom in a study: methods at the same ε of the same guarantee, and no others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from distcondense.evaluation.score import CONDENSED, PLAIN
from distcondense.methods.base import default_method
from distcondense.report.picture import panels
from distcondense.study.answer import against_epsilon, answer
from distcondense.study.comparison import StudyComparison, behind, overview, pictures
from distcondense.study.results import QUICK, ScoreRows


def results(**means: tuple[str, float]) -> StudyComparison:
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
            "cpu_seconds": 1.0,
        }
        for method, (guarantee, mean) in means.items()
        for seed in range(3)
    ]
    return StudyComparison(ScoreRows.from_frame(pd.DataFrame(rows)))


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


def test_the_answer_counts_tables_names_who_is_ahead_and_which_tables_nobody_had_looked_at() -> None:
    ours = default_method()
    found = results(**{ours: ("end-to-end", 0.8), "rival": ("end-to-end", 0.9), "third": ("as-published", 0.95)})
    lines = answer(found, {"ward": [], "seen": [ours]})
    assert lines[0] == (
        "A theorem at ε = 1 (end-to-end)",
        f"{ours} teaches best on 0 of 1 table and is clearly behind on 1; level with it or ahead: "
        "rival on ward (+0.100, clearly).",
    )
    assert "third (as-published) +0.150 on 1 table" in lines[-2].words
    assert lines[-1].words == (
        f"constants of {ours} were set with seen in view, and not with ward: there it is, at ε = 1, by 0.100 behind "
        "the best other method, mean over 1 table."
    )
    assert len(lines) <= 10
    assert answer(found, {})[-1] == lines[-2]  # a file that does not say who saw a table gets no such line
    assert answer(results(rival=("end-to-end", 0.9)), {}) == []


def test_the_figure_has_a_line_a_method_with_its_guarantee_the_default_first() -> None:
    ours = default_method()
    (figure,) = against_epsilon(results(rival=("as-published", 0.9), **{ours: ("end-to-end", 0.8)}))
    assert [series.name for series in figure.series] == [f"{ours} (end-to-end)", "rival (as-published)"]
    assert [series.broken for series in figure.series] == [False, True]  # what has no theorem is seen at once
    assert figure.series[0].x == (1.0,)
    assert abs(figure.series[0].y[0] - 0.801) < 1e-9


def test_panels_share_one_legend_with_each_line_once() -> None:
    ours = default_method()
    (figure,) = against_epsilon(results(rival=("as-published", 0.9), **{ours: ("end-to-end", 0.8)}))
    drawn = panels([figure, figure], "Which method when", "", one_legend=True)
    assert drawn.count(f">{ours} (end-to-end)</text>") == drawn.count(">rival (as-published)</text>") == 1
    assert panels([figure, figure], "Which method when", "").count(">rival (as-published)</text>") == 2


def test_rows_as_arrays_choose_and_group_as_a_frame_does() -> None:
    frame = pd.DataFrame(
        {"method": ["b", "a", None, "b"], "ipc": [2, 1, None, 2], "value": [1.0, 2.0, 3.0, None], "main": [True] * 4}
    ).astype({"method": "string", "ipc": "Int64"})
    rows = ScoreRows.from_frame(frame)
    assert [(key, [*part["value"][~(part["value"] != part["value"])]]) for key, part in rows.groups("method")] == [
        (("b",), [1.0]),
        (("a",), [2.0]),
        ((None,), [3.0]),
    ]
    by_both = frame.groupby(["method", "ipc"], sort=False, dropna=False)
    assert [len(part) for _, part in rows.groups("method", "ipc")] == [len(part) for _, part in by_both]
    assert len(rows.where(rows["method"] == "b")) == 2
    later = rows.where(rows["ipc"] != 1).where(np.array([2, 0]))  # a choice of a choice, in its own order
    assert [key for key, _ in later.groups("method")] == [("b",)]
    assert list(later["value"][1:]) == [1.0]
    assert list(rows.where(rows["value"] > 5).groups("method")) == []
