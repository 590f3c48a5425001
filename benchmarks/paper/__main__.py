"""The command: cells that are not there yet, and the page."""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import benchmarks.paper
from benchmarks import record
from benchmarks.paper.cells import METHODS, cells, run
from benchmarks.paper.page import SEEDS, page
from benchmarks.paper.printed import COHORTS
from distcondense.errors import UserError


def main() -> None:
    options = argparse.ArgumentParser(
        description=benchmarks.paper.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", nargs="*", default=list(COHORTS), choices=list(COHORTS), metavar="COHORT")
    options.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS, metavar="METHOD")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--minutes", type=float, default=360.0, help="no cell is begun after so many")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--page", action="store_true", help="write the page again, run nothing")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    done: dict[str, Any] = record.read("paper") or {}
    until = time.monotonic() + 60 * said.minutes
    for cell in () if said.page else cells(said.seeds, set(said.only)):
        if cell.key in done or cell.method not in said.methods:
            continue
        if time.monotonic() > until:
            print("time is up: the same command goes on from here")
            break
        try:
            done[cell.key] = run(cell, said.threads)
        except UserError as error:
            print(f"{cell.key}: {error}", flush=True)
            continue
        print(f"{cell.key}: {done[cell.key]['seconds']:.0f} s", flush=True)
        record.write("paper", done, seeds=_seeds(done))
    record.write("paper", done, seeds=_seeds(done), text=page(done))
    print(page(done))


def _seeds(done: dict[str, Any]) -> list[int]:
    return sorted({entry["cell"]["seed"] for entry in done.values()})


if __name__ == "__main__":
    main()
