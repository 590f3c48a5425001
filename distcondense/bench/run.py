"""The run: interleaved timing of all adapters on all problems, then ratios, growth, and the files.

Round by round every way gets its turn, so that a busy minute of the machine hits all of them; fast ways take several
turns per round, after one untimed turn that brings their data back into the caches. Medians and minima are kept.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from distcondense.bench import memory, report
from distcondense.bench.adapters import ADAPTERS, Adapter, Columns, Run
from distcondense.bench.problems import F32, BenchPlan, BenchProblem, problems
from distcondense.errors import UserError
from distcondense.kernels import native, walk
from distcondense.kernels.arguments import check_threads
from distcondense.runs.files import write_json, write_text, write_whole

VERSIONS = ("distcondense", "numpy", "numba", "xgboost", "treelite", "tl2cgen", "scikit-learn", "matplotlib")

CLOCKS = (time.perf_counter, time.process_time)  # of more threads, of one


def run_bench(plan: BenchPlan, *, threads: int, out: Path, log: Callable[[str], None]) -> dict[str, Any]:
    """Measure every adapter on every problem of a plan, in one run.

    Parameters
    ----------
    plan : BenchPlan
        Which problems, and how often they are measured: QUICK, FULL or one of your own.
    threads : int
        Of every adapter.
    out : Path
        Where bench.json, bench.md and bench.png go; their names end in the plan's unless it is the full one.
    log : callable
        Is told what is being measured, line by line.

    Returns
    -------
    dict
        What bench.json holds: machine, problems, results, ratios within this run, growth along each series.

    Raises
    ------
    UserError
        For a folder that cannot be written, before anything is measured.
    """
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
        measured = _measure(problem, plan, threads, reasons)
        if problem is base:
            for result in measured:
                result["peak_memory"] = peaks.get(result["adapter"])
                log(f"  {result['adapter']}: {report.cell(result)}")
        results += measured
    adapters = [
        {
            "name": a.name,
            "what": a.what,
            "says": a.says,
            "available": reasons[a.name] is None,
            "why_not": reasons[a.name],
        }
        for a in ADAPTERS
    ]
    record: dict[str, Any] = {
        "mode": plan.name,
        "command": f"distcondense bench{' --quick' if plan.name == 'quick' else ''} --threads {threads}",
        "started": started.pop("now"),
        "seconds": round(time.monotonic() - clock, 1),
        "threads": threads,
        "machine": {**started, "load_average_start": started.pop("load_average"), "load_average_end": _load()},
        "method": {
            "clock": "of one thread the processor's seconds, which a busy machine changes little; of more the clock's",
            "order": "interleaved: every way in every round; fast ways several times a round after one untimed turn",
            "scaling": "slow ways: measured on k of d features, seconds × d/k; making their buffers is not timed",
            "memory": memory.HOW if plan.memory else "not measured",
            "max_difference": "largest |ΔJ| from structured/Numba on the columns measured",
        },
        "adapters": adapters,
        "problems": facts,
        "results": results,
        "ratios": report.ratios(results, facts),
        "growth": report.growth(results, facts, plan.vary),
    }
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


def _write(record: dict[str, Any], out: Path, stem: str, log: Callable[[str], None]) -> dict[str, Any]:
    record["plot"] = f"{stem}.png"
    try:
        write_whole(out / f"{stem}.png", lambda draft: report.plot(record, draft))
    except UserError as error:  # the numbers are worth more than the picture
        log(f"no plot: {error}")
        record["plot"] = None
    write_json(out / f"{stem}.json", record)
    write_text(out / f"{stem}.md", report.markdown(record))
    log(f"{record['seconds']:.0f} s; wrote {out / stem}.json, .md{' and .png' if record['plot'] else ''}")
    return record


@dataclass
class _Timed:
    """An adapter that is ready to run on one problem, and how long its turns took."""

    adapter: Adapter
    run: Run
    columns: Columns
    clock: Callable[[], float]
    times: list[float] = field(default_factory=list)
    max_difference: float | None = None

    def turn(self) -> float:
        """Seconds of one turn."""
        begin = self.clock()
        answer = self.run(self.columns)
        end = self.clock()
        del answer  # giving memory back is not part of the work
        return end - begin


def _measure(
    problem: BenchProblem, plan: BenchPlan, threads: int, reasons: Mapping[str, str | None]
) -> list[dict[str, Any]]:
    """One problem's turn: a result for each adapter, measured or not."""
    base = "base" in problem.series
    rounds, calls = (plan.rounds, plan.calls) if base else (plan.growth_rounds, plan.growth_calls)
    slow_seconds = plan.slow_seconds if base else plan.slow_growth_seconds
    skipped = {name: f"not available: {reason}" for name, reason in reasons.items() if reason is not None}
    if slow_seconds is None:
        why = f"not measured: in {plan.name} mode slow ways run on the base problem only"
        skipped = {adapter.name: why for adapter in ADAPTERS if adapter.slow} | skipped
    J = walk.jacobian(problem.reference.ensemble, problem.X, problem.steps, threads)
    share = (slow_seconds or 0.0) / rounds
    timed = {a.name: _prepared(a, problem, threads, J, share) for a in ADAPTERS if a.name not in skipped}
    del J
    slow = [way for way in timed.values() if way.adapter.slow]
    fast = [way for way in timed.values() if not way.adapter.slow]
    for _ in range(rounds):
        for way in slow:
            way.times.append(way.turn())
        for way in fast:
            way.turn()
        for _ in range(calls):
            for way in fast:
                way.times.append(way.turn())
    blank = {"problem": problem.name, "rounds": rounds, "features_total": problem.features, **NOTHING_MEASURED}
    results = []
    for adapter in ADAPTERS:
        head = {**blank, "adapter": adapter.name, "what": adapter.what}
        if adapter.name in skipped:
            results.append({**head, "status": skipped[adapter.name]})
        else:
            results.append({**head, **_result(timed[adapter.name], problem.features)})
    return results


NOTHING_MEASURED: dict[str, Any] = {
    "repeats": 0,
    "features_measured": None,
    "scaled": False,
    "note": "",
    "measured_seconds": None,
    "seconds": None,
    "max_difference": None,
    "peak_memory": None,
}


def _prepared(adapter: Adapter, problem: BenchProblem, threads: int, J: F32, seconds: float) -> _Timed:
    """Warmed up, compared with the structured Jacobian, and with as many columns as the seconds of a round allow."""
    # all columns in a fixed random order, a used one first, so that a sample compares more than zeros
    order = np.random.default_rng(5).permutation(problem.features).astype(np.int64)
    first = np.random.default_rng(6).permutation(problem.used)[:1]
    order = np.concatenate((first, order[~np.isin(order, first)]))
    way = _Timed(adapter, adapter.prepare(problem, threads), order[:1], CLOCKS[threads == 1])
    way.turn()
    if adapter.slow:
        count = int(seconds / max(way.turn(), 1e-9))
        way.columns = order[: max(1, min(count, len(order)))]
    answer = way.run(way.columns)
    if answer is not None:
        mine = {"sample": way.columns, "used": problem.used}.get(adapter.covers)
        way.max_difference = float(np.abs(answer - (J if mine is None else J[:, mine])).max())
    return way


def _result(way: _Timed, features: int) -> dict[str, Any]:
    """Median and minimum; of a sample of the features scaled to all of them."""
    measured = {"median": float(np.median(way.times)), "min": min(way.times)}
    result: dict[str, Any] = {
        "status": "measured",
        "repeats": len(way.times),
        "measured_seconds": measured,
        "seconds": measured,
        "max_difference": way.max_difference,
    }
    if way.adapter.slow or way.adapter.what == "jacobian":
        result["features_measured"] = len(way.columns) if way.adapter.slow else features
    if way.adapter.slow and len(way.columns) < features:
        k = len(way.columns)
        result |= {"scaled": True, "note": f"measured on {k:,} of {features:,} features, scaled"}
        result["seconds"] = {name: value * features / k for name, value in measured.items()}
    return result


def machine() -> dict[str, Any]:
    """What a reader needs to judge the numbers; nothing that names the machine."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions: dict[str, str | None] = dict.fromkeys(VERSIONS)
    for name in VERSIONS:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "now": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "usable_cores": usable,
        "cpu": _cpu(),
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "isa": native.isa() if native.why_not() is None else None,
        "versions": versions,
        "load_average": _load(),
    }


def _load() -> list[float] | None:
    return [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
