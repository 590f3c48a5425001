"""What each part of the published method is for: `python -m benchmarks.ablation`.

One part is switched off (or set as the paper has it) at a time; all else equal, IPC 100, mean ± sd over seeds. The
paper's direction: noise costs utility; the match loss and early stopping help.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import distcondense as dc
from benchmarks import cohorts, record
from benchmarks.published import main_score
from distcondense.evaluation.score import CONDENSED

BASE = {"epsilon": 2.5}
VARIANTS = {
    "as is (published, ε = 2.5 as-published)": BASE,
    "match loss off (ρ = 0)": {**BASE, "rho": 0.0},
    "early stopping off (last step)": {**BASE, "early_stopping": False},
    "noise off (no guarantee)": {"noise": False},
    "noise and early stopping off": {"noise": False, "early_stopping": False},
    "noise and match loss off": {"noise": False, "rho": 0.0},
    "learning rate 0.001, as the paper has it": {**BASE, "learning_rate": 0.001},
    "noise off, learning rate 0.001": {"noise": False, "learning_rate": 0.001},
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--threads", type=int, default=2)
    said = options.parse_args()
    warnings.simplefilter("ignore")
    seer, adult = cohorts.seer(), cohorts.adult()
    problems = {"SEER Cox": (seer, "cox"), "SEER AFT": (seer, "aft"), "Adult XGB": (adult, "xgb")}
    print(f"IPC 100, {said.steps} steps, {said.seeds} seeds, raw rows; C-index (SEER) and AUROC (Adult) on test rows\n")
    print("| variant | " + " | ".join(problems) + " |\n" + "| --- " * (1 + len(problems)) + "|")
    found: dict[str, dict[str, list[float]]] = {}
    for variant, how in VARIANTS.items():
        cells = []
        for name, (cohort, reference) in problems.items():
            scores = []
            for seed in range(said.seeds):
                result = dc.condense(
                    cohort,
                    method="published",
                    reference=reference,
                    ipc=100,
                    seed=seed,
                    steps=said.steps,
                    soft=True,
                    threads=said.threads,
                    **how,
                )
                scores.append(main_score(result.internal["scores"], CONDENSED).value)
            found.setdefault(variant, {})[name] = scores
            cells.append(f"{np.mean(scores):.3f} ± {np.std(scores, ddof=1) if said.seeds > 1 else 0:.3f}")
        print("| " + " | ".join([variant, *cells]) + " |", flush=True)
    record.write("ablation", {"options": vars(said), "scores": found}, seeds=said.seeds)


if __name__ == "__main__":
    main()
