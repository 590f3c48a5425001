"""What attacks prove about the methods: `python -m benchmarks.audit`.

`private` at ε = 1 and 4 (end-to-end) with a white-box attacker at the gate, `published` at a nominal 2.5 (as-published)
with an attacker who sees the released rows. Bounds grow with the runs; `within reach` is where they would end. At ε = 1
also the whole way: from a file's bytes to the released bytes, by an attacker who has only those.
"""

from __future__ import annotations

import argparse
import time
import warnings

from benchmarks import record
from distcondense.evaluation.audit import run_audit

PRIVATE, NOMINAL = (1.0, 4.0), 2.5
WHOLE = 1.0  # at a larger ε pairs of columns are asked for, whose account takes a second of every run


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=2000, help="private: runs for each pair of neighbours")
    options.add_argument("--canaries", type=int, default=2000, help="private: canaries of the one-run audit")
    options.add_argument("--whole", type=int, default=1000, help="private at ε = 1: runs of each pair the whole way")
    options.add_argument("--published-runs", type=int, default=180)
    options.add_argument("--published-canaries", type=int, default=400)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--threads", type=int, default=1)
    said = options.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for method, epsilon in (*(("private", epsilon) for epsilon in PRIVATE), ("published", NOMINAL)):
        private = method == "private"
        started = time.perf_counter()
        audit = run_audit(
            method=method,
            epsilon=epsilon,
            runs=said.runs if private else said.published_runs,
            canaries=said.canaries if private else said.published_canaries,
            seed=said.seed,
            threads=said.threads,
            whole=said.whole if (method, epsilon) == ("private", WHOLE) else 0,
        )
        seconds = time.perf_counter() - started
        print("\n".join(audit.lines()), f"({seconds:.0f} s)\n", flush=True)
        found.append({**audit.to_dict(), "seconds": round(seconds, 1)})
    record.write("audit", {"options": vars(said), "audits": found}, seeds=[said.seed])


if __name__ == "__main__":
    main()
