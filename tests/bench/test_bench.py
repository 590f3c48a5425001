"""The benchmark on a tiny problem: every way gives one Jacobian, and the files say what was measured and how."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import issparse

from distcondense.bench import problems as bench_problems
from distcondense.bench import run as bench_run
from distcondense.bench.adapters import ADAPTERS
from distcondense.bench.problems import BenchPlan, BenchProblem, problems
from distcondense.errors import SettingsError, UserError

TINY = BenchPlan(
    name="tiny",
    rows=24,
    features=12,
    trees=4,
    depth=3,
    tree_features=6,
    vary={"features": (6, 40), "trees": (2, 4)},
    rounds=2,
    calls=1,
    growth_rounds=1,
    growth_calls=1,
    slow_seconds=1e-6,
    slow_growth_seconds=None,
    memory=("structured/Numba",),
)


@pytest.fixture(scope="module", autouse=True)
def few_training_rows() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_problems, "TRAINING_ROWS", 200)
        yield


@pytest.fixture(scope="module")
def made() -> list[BenchProblem]:
    return problems(TINY, lambda line: None)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, list[str]]:
    out, said = tmp_path_factory.mktemp("bench") / "results", []
    return bench_run.run_bench(TINY, threads=1, out=out, log=said.append), out, said


def _result(record: dict[str, Any], adapter: str, problem: str = "base") -> dict[str, Any]:
    return next(r for r in record["results"] if (r["adapter"], r["problem"]) == (adapter, problem))


@pytest.mark.parametrize("name", [a.name for a in ADAPTERS if a.what == "jacobian"])
def test_every_way_gives_the_jacobian_of_the_naive_one(made: list[BenchProblem], name: str) -> None:
    ways = {adapter.name: adapter for adapter in ADAPTERS}
    reason = ways[name].why_not()
    if reason is not None:
        pytest.skip(reason)
    for problem in (made[0], made[-1]):
        every = np.arange(problem.features)
        wanted = ways["naive XGBoost"].prepare(problem, 1)(every)
        found = ways[name].prepare(problem, 1)(every)
        assert wanted is not None
        assert found is not None
        assert np.count_nonzero(wanted) > 0
        if issparse(found):
            found = found.toarray()
        if ways[name].covers == "used":
            assert not np.delete(wanted, problem.used, axis=1).any()
            wanted = wanted[:, problem.used]
        np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_both_fused_steps_run_on_the_same_problem(made: list[BenchProblem]) -> None:
    for adapter in ADAPTERS:
        if adapter.what == "step" and adapter.why_not() is None:
            assert adapter.prepare(made[0], 1)(np.arange(1)) is None


def test_the_same_trees_stand_among_more_columns(made: list[BenchProblem]) -> None:
    series = [p for p in made if "features" in p.series]
    assert [p.features for p in series] == [12, 6, 40]
    for problem in series:
        np.testing.assert_array_equal(problem.reference.ensemble.threshold, series[0].reference.ensemble.threshold)
        assert problem.reference.n_features == problem.features


def test_every_problem_and_way_has_its_line_in_the_json(run: tuple[dict[str, Any], Path, list[str]]) -> None:
    _, out, _ = run
    stored = json.loads((out / "bench-tiny.json").read_text())
    assert {
        "mode",
        "command",
        "started",
        "seconds",
        "threads",
        "machine",
        "method",
        "adapters",
        "problems",
        "results",
        "ratios",
        "growth",
        "plot",
    } <= set(stored)
    assert {"cores", "cpu", "isa", "versions", "load_average_start", "load_average_end"} <= set(stored["machine"])
    assert len(stored["results"]) == len(stored["problems"]) * len(ADAPTERS)
    fields = {
        "problem",
        "adapter",
        "what",
        "status",
        "rounds",
        "repeats",
        "features_measured",
        "features_total",
        "scaled",
        "note",
        "measured_seconds",
        "seconds",
        "max_difference",
        "peak_memory",
    }
    for result in stored["results"]:
        assert set(result) == fields
        if result["status"] == "measured":
            assert result["repeats"] >= 1
            assert 0 <= result["seconds"]["min"] <= result["seconds"]["median"]
            assert result["max_difference"] is None or result["max_difference"] < 2e-5
    assert _result(stored, "structured/Numba")["repeats"] == TINY.rounds * TINY.calls
    assert _result(stored, "structured/Numba")["peak_memory"]["peak_bytes"] >= 0
    assert {r["step"] for r in stored["ratios"]} == {"fused/Numba", "fused/C++"}


def test_what_was_scaled_says_so(run: tuple[dict[str, Any], Path, list[str]]) -> None:
    record, out, _ = run
    slow = _result(record, "naive XGBoost")
    assert slow["scaled"]
    assert slow["note"] == "measured on 1 of 12 features, scaled"
    assert slow["seconds"]["min"] == pytest.approx(12 * slow["measured_seconds"]["min"])
    assert slow["note"] in (out / "bench-tiny.md").read_text()
    fast = _result(record, "structured/Numba")
    assert not fast["scaled"]
    assert fast["seconds"] == fast["measured_seconds"]
    later = next(r for r in record["results"] if r["adapter"] == "GTIL" and r["problem"] != "base")
    assert later["seconds"] is None
    assert later["status"].startswith("not measured: ")


def test_the_plot_is_a_picture(run: tuple[dict[str, Any], Path, list[str]]) -> None:
    pytest.importorskip("matplotlib")
    assert (run[1] / "bench-tiny.png").read_bytes().startswith(b"\x89PNG")


def test_a_way_that_is_missing_is_shown_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[BenchProblem]
) -> None:
    """No tl2cgen and no matplotlib: the run goes on, and table and messages say what is missing."""
    real, said = builtins.__import__, []

    def importing(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", importing)
    monkeypatch.setattr("distcondense.bench.adapters.find_spec", lambda name: None)
    monkeypatch.setattr(bench_run, "problems", lambda plan, log: made[:1])
    plan = BenchPlan(
        name="tiny",
        vary={},
        tree_features=6,
        features=12,
        rounds=1,
        calls=1,
        growth_rounds=1,
        growth_calls=1,
        slow_seconds=1e-6,
        slow_growth_seconds=None,
    )
    record = bench_run.run_bench(plan, threads=1, out=tmp_path, log=said.append)
    assert _result(record, "tl2cgen")["status"].startswith("not available: tl2cgen is not installed")
    assert "not available: tl2cgen" in (tmp_path / "bench-tiny.md").read_text()
    assert record["plot"] is None
    assert any("pip install 'distcondense[plot]'" in line for line in said)


def test_a_folder_that_cannot_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="must be writable"):
        bench_run.writable(tmp_path / "file" / "results")


def test_trees_must_fit_into_the_fewest_columns() -> None:
    with pytest.raises(SettingsError, match="tree_features"):
        BenchPlan(
            name="x",
            vary={"features": (10,)},
            tree_features=20,
            rounds=1,
            calls=1,
            growth_rounds=1,
            growth_calls=1,
            slow_seconds=1,
            slow_growth_seconds=None,
        )
