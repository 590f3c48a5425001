"""The run: interleaved timing of all adapters on all problems, then ratios, growth, and the files.

Round by round every way gets its turn, so that a busy minute of the machine hits all of them; fast ways take several
turns per round, after one untimed turn that brings their data back into the caches. Medians and minima are kept.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from distcondense.bench import memory, report
from distcondense.bench.adapters import ADAPTERS, Adapter, Columns, Run
from distcondense.bench.problems import F32, FULL, QUICK, BenchPlan, BenchProblem, problems
from distcondense.errors import UserError
from distcondense.kernels import native
from distcondense.kernels.arguments import check_threads
from distcondense.runs.files import write_json, write_text, write_whole

Say = Callable[[str], None]
DEFAULT_OUT = Path("benchmarks/results")
VERSIONS = ("distcondense", "numpy", "numba", "xgboost", "treelite", "tl2cgen", "scikit-learn", "matplotlib")


def run_bench(*, quick: bool, threads: int = 1, out: Path = DEFAULT_OUT, log: Say) -> dict[str, Any]:
    """Measure, write bench.json, bench.md and bench.png (quick: bench-quick.*) into `out`, and give back the JSON."""
    return bench(QUICK if quick else FULL, threads=threads, out=out, log=log)


def bench(plan: BenchPlan, *, threads: int, out: Path, log: Say) -> dict[str, Any]:
    """`run_bench` for any plan."""
    check_threads(threads)
    writable(out)
    started, clock = machine(), time.monotonic()
    reasons = {adapter.name: adapter.why_not() for adapter in ADAPTERS}
    for name, reason in reasons.items():
        if reason is not None:
            log(f"{name}: not available: {reason}")
    todo = problems(plan, log)
    results: list[dict[str, Any]] = []
    base = todo[0]
    facts = [problem.facts for problem in todo]
    peaks: dict[str, dict[str, Any]] = {}
    if plan.memory:
        log("peak memory, one process a way")
        peaks = memory.peaks(base, [a for a in ADAPTERS if reasons[a.name] is None and a.name in plan.memory], threads)
    while todo:
        problem = todo.pop(0)  # its rows are freed before the next one's are made
        log(f"measuring {problem.name}")
        found = _Measuring(problem, plan, threads, reasons).results()
        for result in found:
            if problem is base:
                result["peak_memory"] = peaks.get(result["adapter"])
                log(f"  {result['adapter']}: {report.cell(result)}")
        results += found
    record: dict[str, Any] = {
        "mode": plan.name,
        "command": f"distcondense bench{' --quick' if plan.name == 'quick' else ''} --threads {threads}",
        "started": started.pop("now"),
        "seconds": None,
        "threads": threads,
        "machine": {**started, "load_average_start": started.pop("load_average"), "load_average_end": _load()},
        "method": {
            "order": "interleaved: every way in every round; fast ways several times a round after one untimed turn",
            "scaling": "slow ways: measured on k of d features, seconds × d/k; making their buffers is not timed",
            "memory": memory.HOW if plan.memory else "not measured",
            "max_difference": "largest |ΔJ| from structured/Numba on the columns measured",
        },
        "adapters": [
            {
                "name": a.name,
                "what": a.what,
                "says": a.says,
                "available": reasons[a.name] is None,
                "why_not": reasons[a.name],
            }
            for a in ADAPTERS
        ],
        "problems": facts,
        "results": results,
        "ratios": report.ratios(results, facts),
        "growth": report.growth(results, facts, plan.vary),
    }
    record["seconds"] = round(time.monotonic() - clock, 1)
    return _write(record, out, "bench" if plan.name == "full" else f"bench-{plan.name}", log)


def writable(out: Path) -> None:
    """Make the folder before anything is measured, or say why not."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / ".draft").touch()
        (out / ".draft").unlink()
    except OSError as error:
        kind = type(error).__name__
        raise UserError(f"folder {out}", "must be writable", found=kind, fix="choose another --out") from None


def _write(record: dict[str, Any], out: Path, stem: str, log: Say) -> dict[str, Any]:
    picture: Path | None = out / f"{stem}.png"
    try:
        write_whole(out / f"{stem}.png", lambda draft: report.plot(record, draft))
    except UserError as error:  # the numbers are worth more than the picture
        log(f"no plot: {error}")
        picture = None
    record["plot"] = picture.name if picture else None
    write_json(out / f"{stem}.json", record)
    write_text(out / f"{stem}.md", report.markdown(record))
    log(f"{record['seconds']:.0f} s; wrote {out / stem}.json, .md{' and .png' if picture else ''}")
    return record


@dataclass
class _Way:
    adapter: Adapter
    run: Run
    columns: Columns
    times: list[float]
    max_difference: float | None = None

    def take(self) -> float:
        begin = time.perf_counter()
        answer = self.run(self.columns)
        end = time.perf_counter()
        del answer  # giving memory back is not part of the work
        return end - begin


class _Measuring:
    """One problem's turn."""

    def __init__(self, problem: BenchProblem, plan: BenchPlan, threads: int, reasons: Mapping[str, str | None]) -> None:
        self.problem, self.threads, self.reasons = problem, threads, reasons
        is_base = "base" in problem.series
        self.rounds, self.calls = (plan.rounds, plan.calls) if is_base else (plan.growth_rounds, plan.growth_calls)
        self.slow_seconds = plan.slow_seconds if is_base else plan.slow_growth_seconds
        self.mode = plan.name

    def results(self) -> list[dict[str, Any]]:
        J = _structured_oracle(self.problem, self.threads)
        ways = {a.name: self._prepared(a, J) for a in ADAPTERS if self._skipped(a) is None}
        del J
        slow = [way for way in ways.values() if way.adapter.slow]
        fast = [way for way in ways.values() if not way.adapter.slow]
        for _ in range(self.rounds):
            for way in slow:
                way.times.append(way.take())
            for way in fast:
                way.take()
            for _ in range(self.calls):
                for way in fast:
                    way.times.append(way.take())
        return [self._result(adapter, ways.get(adapter.name)) for adapter in ADAPTERS]

    def _skipped(self, adapter: Adapter) -> str | None:
        reason = self.reasons[adapter.name]
        if reason is not None:
            return f"not available: {reason}"
        if adapter.slow and self.slow_seconds is None:
            return f"not measured: in {self.mode} mode slow ways run on the base problem only"
        return None

    def _prepared(self, adapter: Adapter, J: F32) -> _Way:
        """Warmed up, compared with the structured Jacobian, and with as many columns as the time allows."""
        run = adapter.prepare(self.problem, self.threads)
        order = _columns(self.problem)
        way = _Way(adapter, run, order[:1], [])
        way.take()
        if adapter.slow:
            assert self.slow_seconds is not None
            count = int(self.slow_seconds / self.rounds / max(way.take(), 1e-9))
            way.columns = order[: max(1, min(count, len(order)))]
        answer = run(way.columns)
        if answer is not None:
            mine = {"sample": way.columns, "used": self.problem.used}.get(adapter.covers)
            way.max_difference = float(np.abs(answer - (J if mine is None else J[:, mine])).max())
        return way

    def _result(self, adapter: Adapter, way: _Way | None) -> dict[str, Any]:
        result: dict[str, Any] = {
            "problem": self.problem.name,
            "adapter": adapter.name,
            "what": adapter.what,
            "status": "measured",
            "rounds": self.rounds,
            "repeats": 0,
            "features_measured": None,
            "features_total": self.problem.features,
            "scaled": False,
            "note": "",
            "measured_seconds": None,
            "seconds": None,
            "max_difference": None,
            "peak_memory": None,
        }
        if way is None:
            return {**result, "status": str(self._skipped(adapter))}
        measured = {"median": float(np.median(way.times)), "min": min(way.times)}
        result |= {
            "repeats": len(way.times),
            "measured_seconds": measured,
            "seconds": measured,
            "max_difference": way.max_difference,
        }
        if adapter.slow:
            k, d = len(way.columns), self.problem.features
            result |= {"features_measured": k, "scaled": k < d}
            if k < d:
                result["note"] = f"measured on {k:,} of {d:,} features, scaled"
                result["seconds"] = {name: value * d / k for name, value in measured.items()}
        elif adapter.what == "jacobian":
            result["features_measured"] = self.problem.features
        return result


def _columns(problem: BenchProblem) -> Columns:
    """All columns in a fixed random order, a used one first, so that a sample compares more than zeros."""
    order = np.random.default_rng(5).permutation(problem.features).astype(np.int64)
    first = np.random.default_rng(6).permutation(problem.used)[:1]
    return np.concatenate((first, order[order != first[0]])) if len(first) else order


def _structured_oracle(problem: BenchProblem, threads: int) -> F32:
    from distcondense.kernels import walk

    return walk.jacobian(problem.reference.ensemble, problem.X, problem.steps, threads)


def machine() -> dict[str, Any]:
    """What a reader needs to judge the numbers; nothing that names the machine."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "now": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "cpu": _cpu(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "isa": native.isa() if native.why_not() is None else None,
        "versions": {name: _version(name) for name in VERSIONS},
        "load_average": _load(),
    }


def _load() -> list[float] | None:
    return [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
