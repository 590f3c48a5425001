"""Peak memory of one way in a process of its own: `python -m distcondense.bench.memory`, a pickled question on stdin.

The process warms up on a few rows (imports, compilation), makes X and the trees, resets the kernel's high-water mark of
resident memory (VmHWM), prepares and runs the way once, and reads the mark. Where /proc has no mark, `getrusage`
answers; it never falls, so there a peak below an earlier one shows as 0.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from distcondense.bench.adapters import ADAPTERS, Adapter
from distcondense.bench.problems import BenchProblem
from distcondense.runs.memory import MemoryPeak

HOW = (
    "peak resident memory while a way is prepared and run once, above what its process held with X and the trees "
    "(VmHWM after a reset, one process a way; getrusage where /proc does not say); "
    "steps and copy count their own X, m and v"
)
COLUMNS = 2  # a slow way's memory does not grow with the number of columns
TIMEOUT = 120


def peaks(problem: BenchProblem, adapters: Sequence[Adapter], threads: int) -> dict[str, dict[str, Any]]:
    """Adapter name → {"peak_bytes", "held_bytes"} or {"error"}; side by side on all cores, for nothing is timed."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        answers = pool.map(lambda adapter: _ask(problem, adapter.name, threads), adapters)
        return {adapter.name: answer for adapter, answer in zip(adapters, answers, strict=True)}


def _ask(problem: BenchProblem, name: str, threads: int) -> dict[str, Any]:
    question = pickle.dumps((replace(problem), name, threads))  # a replaced problem is a copy without its arrays
    command = [sys.executable, "-m", "distcondense.bench.memory"]
    try:
        answer = subprocess.run(command, input=question, capture_output=True, timeout=TIMEOUT, check=True)
        return dict(json.loads(answer.stdout.splitlines()[-1]))  # libraries may have spoken before
    except subprocess.CalledProcessError as error:
        return {"error": (error.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]}
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        return {"error": type(error).__name__}


def measure(problem: BenchProblem, adapter: Adapter, threads: int) -> dict[str, int]:
    """In this process, in which the adapter should not have run before."""
    columns = np.arange(COLUMNS, dtype=np.int64) % problem.features
    adapter.prepare(replace(problem, rows=min(problem.rows, 32)), threads)(columns)
    for array in ("X", "steps", "slopes", "used"):
        getattr(problem, array)  # made now, before anything is measured
    memory = MemoryPeak()
    answer = adapter.prepare(problem, threads)(columns)
    grown = memory.grown
    del answer
    return {"peak_bytes": grown, "held_bytes": memory.before}


def main() -> int:
    problem, name, threads = pickle.loads(sys.stdin.buffer.read())
    adapter = next(adapter for adapter in ADAPTERS if adapter.name == name)
    sys.stdout.write("\n" + json.dumps(measure(problem, adapter, threads)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
