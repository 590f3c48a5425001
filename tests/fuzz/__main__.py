"""Run so many cases, shared among the ways in, and say what was found."""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

from tests.fuzz import batches, calls, disks, runs, statements, tables, texts
from tests.fuzz.apart import as_a_child, in_a_child
from tests.fuzz.driver import KINDS, Way, run_case
from tests.fuzz.locks import locks_hold

WAYS: dict[str, tuple[Way, float]] = {  # name → way, its share of the cases
    "csv": (tables.csv, 0.2),
    "frames": (tables.frames, 0.2),
    "batches": (batches.batches, 0.05),
    "schemas": (texts.schemas, 0.16),
    "statements": (statements.statements, 0.1),
    "options": (texts.options, 0.1),
    "studies": (texts.studies, 0.07),
    "api": (calls.api, 0.08),
    "runs": (runs.runs, 0.012),
    "folders": (disks.folders, 0.01),
    "kills": (disks.kills, 0.018),  # type: ignore[dict-item]
}
LONG = ("runs", "kills")  # they begin first where several run at once


def log(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def number_of(cases: int, way: str, only: str | None) -> int:
    """How many of the cases are this way's."""
    return 0 if only not in (None, way) else cases if only else max(1, round(cases * WAYS[way][1]))


def fuzz(
    cases: int, seed: int, only: str | None = None, *, quiet: bool = False, apart: bool = False, at_once: int = 1
) -> dict[str, list[str]]:
    """Faults by way; every one with the seed of its case. `apart`: each way in its own process, so many at once."""
    found: dict[str, list[str]] = {}

    def run(name: str) -> None:
        way, number = WAYS[name][0], number_of(cases, name, only)
        started, first, faults = time.perf_counter(), seed * 1_000_003, list[str]()
        if apart:
            faults = in_a_child(name, first, number)
        else:
            with locks_hold():
                for one in range(first, first + number):
                    faults += [f"{fault} [--way {name} --case {one}]" for fault in run_case(way, one)]
        found[name] = faults
        if not quiet:
            kinds = Counter(fault.partition(":")[0] for fault in faults)
            told = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "no fault"
            log(f"{name:<11} {number:>6} cases  {time.perf_counter() - started:>6.0f} s  {told}")
            for fault in faults[:5]:
                log(f"      {fault}")

    chosen = [name for name in WAYS if number_of(cases, name, only)]
    with ThreadPoolExecutor(at_once if apart else 1) as pool:  # a thread waits for its way's process
        list(pool.map(run, sorted(chosen, key=LONG.__contains__, reverse=True)) if apart else map(run, chosen))
    return found


def closing(said: argparse.Namespace, faults: list[str]) -> str:
    """One line: cases, and faults by kind."""
    cases = sum(number_of(said.cases, way, said.way) for way in WAYS) if said.case is None else 1
    kinds = Counter(fault.partition(":")[0] for fault in faults)
    counted = ", ".join(f"{kinds[kind]} {words}" for kind, words in KINDS.items())
    return f"seed {said.seed if said.case is None else said.case}: {cases:,} cases: {counted}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--way", choices=list(WAYS))
    parser.add_argument("--at-once", type=int, default=1, help="ways that run side by side, a core each")
    parser.add_argument("--case", type=int, help="run this one again")
    parser.add_argument("--from", type=int, dest="first", help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    said = parser.parse_args()
    warnings.simplefilter("ignore")  # of libraries that make the cases; calls of ours record their own
    if said.log is not None:
        with locks_hold():
            as_a_child(said.log, said.first, said.cases, lambda case: run_case(WAYS[said.way][0], case))
        return
    if said.case is not None:
        with locks_hold():
            faults = {said.way: run_case(WAYS[said.way][0], said.case)}
    else:
        log(f"seed {said.seed}")
        faults = fuzz(said.cases, said.seed, said.way, apart=True, at_once=said.at_once)
    shown = Counter(fault.partition(" [--way")[0][:150] for one in faults.values() for fault in one)
    first: dict[str, str] = {}
    for one in faults.values():
        for fault in one:
            first.setdefault(fault.partition(" [--way")[0][:150], fault)
    for key, count in shown.most_common(60):
        log(f"{count:>5} × {first[key]}")
    log(closing(said, [fault for one in faults.values() for fault in one]))
    sys.exit(1 if shown else 0)


if __name__ == "__main__":
    main()
