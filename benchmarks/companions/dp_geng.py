"""DP-GENG's ablation on tables: `python -m benchmarks.companions.dp_geng adult|obesity --epsilons 1 3 --seeds 3`.

Table 3 (a) of the paper adds its parts one by one: rows that start as generated ones (DP-Init), feature matching from
noise (DP-FM), both, and both with the expert's guidance (DP-EG). Every cell here is the mean ± standard deviation over
seeds on real test rows that nothing was fitted on, with fresh privacy noise; each way spends the whole ε (end-to-end,
δ = 1e-5), and a part that is left out leaves its share to the others. Beside them stands the private method.

The paper's Tables 3 (b) and 4 change the generator: the last ways are the whole method with private evolution (Tab-PE)
and with noisy histograms by class in the place of the private method's sampler.

Binary outcomes: AUROC of students as in `benchmarks.private`; several classes: macro AUROC as in `benchmarks.outcomes`.
With --lira N the paper's Table 2: LiRA with N shadow runs on the whole method and on the private one, at the first ε.
With --allocate the paper's search for μ_G and μ_E (Appendix D) is run on the table, as if it were public.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import distcondense as dc
from benchmarks import cohorts, outcomes, private, record
from distcondense.data.cohort import Cohort
from distcondense.data.persons import HoldoutSplit
from distcondense.methods.dp_geng.allocation import searched
from distcondense.methods.dp_geng.options import DpGengOptions
from distcondense.methods.dp_geng.prepare import prepare
from distcondense.methods.dp_geng.run import DpGengRun
from distcondense.privacy.ledger import Ledger

DELTA = 1e-5
LOADERS = {"adult": lambda: cohorts.adult(declared=True), "obesity": outcomes.obesity}
WAYS: dict[str, dict[str, Any]] = {
    "DP-Init": {"matching": False, "expert": False},
    "DP-FM": {"start": "noise", "expert": False},
    "DP-Init + DP-FM": {"expert": False},
    "DP-Init + DP-FM + DP-EG": {},
    "the same, generator tab-pe": {"generator": "tab-pe"},
    "the same, generator marginals": {"generator": "marginals"},
}
PRIVATE, WHOLE = "private", "DP-Init + DP-FM + DP-EG"
QUICK = {"extractors": 5, "generated": 8000, "extractor_epochs": 20, "expert_epochs": 30}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", choices=LOADERS)
    options.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0])
    options.add_argument("--ipc", type=int, default=50)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--quick", action="store_true", help=f"with {QUICK}")
    options.add_argument("--ways", nargs="+", default=[*WAYS, PRIVATE], choices=[*WAYS, PRIVATE])
    options.add_argument("--lira", type=int, default=0, metavar="N", help="only LiRA, with so many shadow runs")
    options.add_argument("--allocate", action="store_true", help="only the paper's search for shares")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    cohort = LOADERS[said.data]()
    if said.allocate:
        for epsilon in said.epsilons:
            print(json.dumps(allocated(cohort, epsilon)), flush=True)
        return
    if said.lira:
        cells = [lira(cohort, way, seed, said) for seed in range(said.seeds) for way in (WHOLE, PRIVATE)]
        record.write(f"dp-geng-lira-{said.data}", cells, seeds=said.seeds, text=lira_table(cells, said))
        return
    records = []
    for seed in range(said.seeds):
        split = HoldoutSplit(0.2, seed).split(cohort)
        train, test = cohort.take(split.train), cohort.take(split.test)
        for epsilon in said.epsilons:
            for cell in run(train, test, epsilon, seed, said):
                records.append({"seed": seed, "epsilon_end_to_end": epsilon, **cell})
                print(json.dumps(records[-1]), flush=True)
        text, kept = table(records), {"options": vars(said), "cells": records}
        record.write(f"dp-geng-{said.data}", kept, seeds=seed + 1, text=text)
    print(f"\n# {said.data}: {cohort!r}, IPC {said.ipc}, {said.seeds} seeds, δ = {DELTA:g}\n\n{text}")


def run(train: Cohort, test: Cohort, epsilon: float, seed: int, said: Any) -> Iterator[dict[str, Any]]:
    how = {"ipc": said.ipc, "epsilon": epsilon, "delta": DELTA, "seed": seed, "holdout": 0.0, "threads": said.threads}
    for way, more in {**WAYS, PRIVATE: None}.items():
        if way not in said.ways:
            continue
        own = {} if more is None else {"method": "dp-geng", **more, **(QUICK if said.quick else {})}
        started = time.perf_counter()
        result = dc.condense(train, **how, **own)
        seconds = time.perf_counter() - started
        if result.privacy.answer:
            yield {"what": way, "student": "—", "score": None, "seconds": seconds}
            continue
        for student, score in scored(result, train, test, seed, said.threads).items():
            yield {"what": way, "student": student, "score": score, "seconds": seconds}


def scored(result: dc.Result, train: Cohort, test: Cohort, seed: int, threads: int) -> dict[str, float]:
    """Students of the released rows, by the plain outcome column and by soft labels."""
    if private.is_binary(test):
        return private.students(result, test, seed, threads)
    return {
        student + (", soft" if soft else ""): outcomes.condensed(result, train, test, student, soft, seed, threads)
        for student in test.outcome.kind.learners
        for soft in (True, False)
    }


def lira(cohort: Cohort, way: str, seed: int, said: Any) -> dict[str, Any]:
    """The strongest of LiRA's statistics against every run in turn, with the lower end of its interval."""
    own = {} if way == PRIVATE else {"method": "dp-geng", **(QUICK if said.quick else {})}
    how = {"ipc": said.ipc, "epsilon": said.epsilons[0], "delta": DELTA, "seed": seed, "threads": said.threads}
    with TemporaryDirectory() as folder:
        dc.condense(cohort, out=Path(folder) / "run", holdout=0.5, **how, **own)
        found = dc.evaluate_run(Path(folder) / "run", cohort, parts=["lira"], shadows=said.lira, threads=said.threads)
    scores = [one for findings in found.values() for part in findings.parts for one in part.scores]
    told = {
        name: max((one for one in scores if one.measure == name and np.isfinite(one.value)), key=lambda one: one.value)
        for name in ("auroc", "tpr_at_0.001")
        if any(one.measure == name and np.isfinite(one.value) for one in scores)
    }
    values = {name: [one.value, one.low, one.high] for name, one in told.items()}
    print(way, seed, values, flush=True)
    return {"what": way, "seed": seed, **values}


def lira_table(cells: list[dict[str, Any]], said: Any) -> str:
    lines = [
        f"LiRA with {said.lira} shadow runs, ε = {said.epsilons[0]:g} end-to-end, IPC {said.ipc}: the strongest of its "
        "statistics, with its 95% interval. An AUROC of 0.5 is a guess.",
        "",
        "| method | seed | AUROC | of members found at one false alarm in a thousand |",
        "| --- | --- | --- | --- |",
    ]
    for cell in cells:
        words = [
            "—" if name not in cell else "{:.3f} ({:.3f} to {:.3f})".format(*cell[name])
            for name in ("auroc", "tpr_at_0.001")
        ]
        lines.append(f"| {cell['what']} | {cell['seed']} | {' | '.join(words)} |")
    return "\n".join(lines)


def allocated(cohort: Cohort, epsilon: float) -> dict[str, Any]:
    """The paper's search: Fréchet distance of generated to real features for μ_G, the expert's accuracy for μ_E."""
    options = DpGengOptions(epsilon=epsilon, delta=DELTA, holdout=0.0, generated=5000, extractors=1)
    prepared, everybody = prepare(cohort.facts, options), np.arange(len(cohort))
    total = prepared.generator.budget.mu

    def worked(generator: float, expert: float) -> tuple[DpGengRun, Any]:
        parts = replace(prepared.allocation, generator=generator, expert=max(expert, 1e-3))
        plan = replace(prepared.generator.prepared.plan, part=min((generator / total) ** 2, 1.0))
        sampler = replace(prepared.generator, prepared=replace(prepared.generator.prepared, plan=plan))
        own = replace(prepared, generator=sampler, allocation=parts)
        learned = own.generator.fitted(cohort, everybody, Ledger(), lambda done, of: None)
        work = DpGengRun(own, learned, lambda line: None)
        work.train()
        return work, own.generator.opened(cohort, everybody, learned, Ledger())

    def distance(mu: float) -> float:
        work, _ = worked(mu, 0.0)
        cells = work.learned.model.cells
        codes = np.stack([c.codes(cohort.features[c.column.name]).astype(int) for c in cells], axis=1)
        return frechet(work.encoding.rows(codes), work.rows)

    def accuracy(mu: float) -> float:
        work, gate = worked(total, mu)
        work.options = replace(options, matching=False)
        work.ask(gate)
        cells = work.learned.model.cells
        codes = np.stack([c.codes(cohort.features[c.column.name]).astype(int) for c in cells], axis=1)
        assert work.expert is not None
        return float((work.expert.logits(work.encoding.rows(codes)).argmax(1) == cohort.outcome["label"]).mean())

    found = searched(total, distance, accuracy, rounds=4)
    shares = {name: (part / total) ** 2 for name, part in vars(found).items()}
    return {"epsilon_end_to_end": epsilon, "mu_total": total, "shares of mu²": shares}


def frechet(first: np.ndarray, second: np.ndarray) -> float:
    """Between Gaussians with diagonal covariances: the paper's FID without an image network."""
    apart = first.mean(0) - second.mean(0)
    return float(apart @ apart + ((first.std(0) - second.std(0)) ** 2).sum())


def table(records: list[dict[str, Any]]) -> str:
    """Markdown, one row per ε and way, one column per student."""
    students = list(dict.fromkeys(r["student"] for r in records if r["score"] is not None))
    lines = [f"| ε end-to-end | way | {' | '.join(students)} | seconds |", "| --- " * (len(students) + 3) + "|"]
    for epsilon in sorted({r["epsilon_end_to_end"] for r in records}):
        for way in dict.fromkeys(r["what"] for r in records):
            own = [r for r in records if r["epsilon_end_to_end"] == epsilon and r["what"] == way]
            cells = []
            for student in students:
                values = np.array([r["score"] for r in own if r["student"] == student], float)
                spread = values.std(ddof=1) if len(values) > 1 else 0.0
                cells.append(f"{values.mean():.3f} ± {spread:.3f}" if len(values) else "no answer")
            lines.append(f"| {epsilon:g} | {way} | {' | '.join(cells)} | {np.mean([r['seconds'] for r in own]):.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
