"""Why the published ε and the published C-index do not meet at large IPC: `python -m benchmarks.noise`.

First what one step costs (as-published accounting) when the paper's own rule, signal-to-noise at least 1, is kept: that
rule means σ_i ≤ ‖g_i‖/C ≤ 1. Then the C-index of AFT on SEER as the as-published budget grows, to no noise at all.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import distcondense as dc
from benchmarks import cohorts, record
from benchmarks.published import PAPER, TUNED, main_score
from distcondense.data.persons import Stratified
from distcondense.evaluation.score import CONDENSED
from distcondense.privacy.steps import StepAccountant

BUDGETS = (2.3, 5.0, 10.0, 25.0, 100.0, None)


def cost(q: float, multiplier: float, steps: int) -> float:
    return StepAccountant(q, 1e-5, rows=1, ledger=[(multiplier, steps)]).epsilon()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--threads", type=int, default=2)
    said = options.parse_args()
    warnings.simplefilter("ignore")
    cohort = cohorts.seer()
    train = len(Stratified(0).split(cohort).train)
    print("ε as-published (δ = 1e-5) of k steps at σ = 1, the most noise that signal-to-noise ≥ 1 allows\n")
    print("| IPC | q = m/n | 1 step | 10 steps | 100 steps | paper's ε, Cox / AFT |\n" + "| --- " * 6 + "|")
    for ipc in (50, 100, 500, 1000):
        q = 2 * ipc / train
        costs = " | ".join(f"{cost(q, 1.0, steps):.2f}" for steps in (1, 10, 100))
        print(f"| {ipc} | {q:.3f} | {costs} | {PAPER['cox', ipc][1]:.2f} / {PAPER['aft', ipc][1]:.2f} |")
    print(f"\nSEER, AFT, raw rows, {said.seeds} seeds: C-index by as-published budget\n")
    print(
        "| IPC | " + " | ".join("no noise" if b is None else f"ε = {b:g} as-published" for b in BUDGETS) + " | paper |"
    )
    print("| --- " * (len(BUDGETS) + 2) + "|")
    found = {}
    for ipc in (500, 1000):
        cells = []
        for budget in BUDGETS:
            how = {"noise": False} if budget is None else {"epsilon": budget}
            runs = [
                dc.condense(
                    cohort,
                    method="published",
                    reference="aft",
                    ipc=ipc,
                    seed=seed,
                    soft=True,
                    threads=said.threads,
                    **how,
                    **TUNED["seer", "aft"],
                )
                for seed in range(said.seeds)
            ]
            scores = [main_score(run.internal["scores"], CONDENSED).value for run in runs]
            found[f"{ipc}/{budget}"] = scores
            cells.append(f"{np.mean(scores):.3f} ± {np.std(scores, ddof=1) if said.seeds > 1 else 0:.3f}")
        print(f"| {ipc} | " + " | ".join(cells) + f" | {PAPER['aft', ipc][0]:.3f} |", flush=True)
    record.write("noise", {"options": vars(said), "scores": found}, seeds=said.seeds)


if __name__ == "__main__":
    main()
