"""What each part of the published method is for, and what helps where its noise wins.

    python -m benchmarks.ablation parts
    python -m benchmarks.ablation noise

First one part at a time is switched off, or set as Thakur et al. 2026 have it, all else equal, IPC 100 (their
direction: noise costs utility; the match loss and early stopping help). Then AFT on SEER at IPC 500 and 1000 under the
ε (as-published) that is printed: budgets up to no noise at all, other settings, and changes around the engine's step.
The step, and what a patient can do to it, stay as they are, so that the account is the same: only what comes after the
noise, and what is public beforehand, is changed. C-index or AUROC of a model of the raw rows on test rows.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

import distcondense as dc
from benchmarks import cohorts, record
from benchmarks.paper.printed import TUNED, row_of
from distcondense import kernels
from distcondense.arrays import Index
from distcondense.data.cohort import Cohort
from distcondense.data.outcome import Outcome
from distcondense.data.persons import Stratified
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM, Score, find
from distcondense.kernels.update import row_norms
from distcondense.methods.published import condense as published
from distcondense.methods.zero_order import engine
from distcondense.privacy.steps import StepAccountant

BASE = {"epsilon": 2.5}
PARTS: dict[str, dict[str, Any]] = {
    "as is (published, ε = 2.5 as-published)": BASE,
    "match loss off (ρ = 0)": {**BASE, "rho": 0.0},
    "early stopping off (last step)": {**BASE, "early_stopping": False},
    "noise off (no guarantee)": {"noise": False},
    "noise and early stopping off": {"noise": False, "early_stopping": False},
    "noise and match loss off": {"noise": False, "rho": 0.0},
    "learning rate 0.001, as the paper has it": {**BASE, "learning_rate": 0.001},
    "noise off, learning rate 0.001": {"noise": False, "learning_rate": 0.001},
}
GROUPS = 10  # of the rows with an event, by their time; the censored are one more
MOMENTUM = 0.99


def groups_of(labels: Outcome) -> Index:
    """(m,) rows of about the same outcome."""
    found = np.zeros(len(labels), np.int64)
    events = np.flatnonzero(labels["label"] == 1)
    rank = np.argsort(np.argsort(labels["time"][events], kind="stable"), kind="stable")
    found[events] = 1 + rank * GROUPS // len(events)
    return found


@contextmanager
def after_the_noise(*, pooled: float = 0.0, averaged: float = 0.0, shrunk: bool = False) -> Iterator[None]:
    """Gradients pooled over rows of like outcome, by a share or by what their known noise leaves; iterates averaged."""
    kept: dict[str, Any] = {}

    def labels(options: Any, train: Outcome, of: Callable[..., Outcome] = published.synthetic_outcome) -> Outcome:
        kept.clear()
        kept["group"] = groups_of(made := of(options, train))
        return made

    def step(problem: Any, options: Any, state: Any, key: int, threads: int, executors: Any) -> Any:
        raw, noise, group = kept.setdefault("raw", state.X.copy()), problem.noise, kept["group"]
        G, loss = engine.gradient(problem, options, raw, key, state.step, threads, executors)
        sigmas = noise.sigmas(row_norms(G))
        norms = kernels.clip_and_noise(G, noise.clip, sigmas, state.noise_key, state.step, 0, threads)
        if shrunk:
            moment = kept.setdefault("moment", np.zeros(G.shape))
            moment += (1 - MOMENTUM) * (G - moment)
            kept["weight"] = MOMENTUM**2 * kept.get("weight", 0.0) + (1 - MOMENTUM) ** 2
            G = _shrunk(moment, group, kept["weight"] * float(sigmas[0] * noise.clip) ** 2)
            state.adam.step += 1
            raw -= (options.learning_rate / 3 * G / (np.sqrt((G**2).mean()) + 1e-12)).astype(np.float32)
        else:
            G = ((1 - pooled) * G + pooled * _means(G, group)[group]).astype(np.float32)
            kernels.adam(raw, G, state.adam, options.learning_rate, options.beta1, options.beta2, threads)
        state.X = (averaged * state.X + (1 - averaged) * raw).astype(np.float32)
        return loss, norms, sigmas

    with patch.object(published, "synthetic_outcome", labels), patch.object(engine, "_step", step):
        yield


def _means(G: Any, group: Index) -> Any:
    sums = np.zeros((group.max() + 1, G.shape[1]))
    np.add.at(sums, group, G)
    return sums / np.bincount(group)[:, None]


def _shrunk(G: Any, group: Index, noise: float) -> Any:
    """Empirical Bayes: rows are drawn to their group's mean, and that to 0, by the share that is noise."""
    mean, size = _means(G, group), np.bincount(group)[:, None]
    varies = _means((G - mean[group]) ** 2, group).mean(axis=1, keepdims=True) * size / np.maximum(size - 1, 1)
    kept = np.clip(1 - noise / np.maximum(varies, 1e-30), 0, 1)
    of_mean = np.clip(1 - noise / size / np.maximum(mean**2, 1e-30), 0, 1) * mean
    return of_mean[group] + kept[group] * (G - mean[group])


def full_means(self: engine.RealScores, key: int, step: int) -> Any:
    """The mean score of all real rows of a stratum instead of a draw: nothing in it is added to the noise."""
    return np.array([s.mean() if len(s) and n else np.nan for s, n in zip(self.by_stratum, self.counts, strict=True)])


def at_real_quantiles() -> AbstractContextManager[Any]:
    """Events at quantiles of the real event times instead of evenly from the first to the end of follow-up."""
    before = published.synthetic_outcome

    def labels(options: Any, train: Outcome) -> Outcome:
        made = before(options, train)
        real, time, events = train["time"][train["label"] == 1], made["time"].copy(), made["label"] == 1
        time[events] = np.quantile(real, (np.arange(events.sum()) + 0.5) / events.sum())
        return replace(made, arrays={**made.arrays, "time": time})

    return patch.object(published, "synthetic_outcome", labels)


def clipped_at(share: float) -> AbstractContextManager[Any]:
    """C as another share of the first gradient's median norm (a quarter)."""
    return patch.object(published, "CLIP_SHARE", share)


AFT = {"reference": "aft", **TUNED["seer", "aft"]}
SMALL = {"steps": 2000, "learning_rate": 0.02, "evaluate_every": 200}
LOUD: dict[str, tuple[dict[str, Any], Callable[[], AbstractContextManager[Any]]]] = {
    "as tuned on SEER": (AFT, nullcontext),
    "ε = 5 (as-published)": ({**AFT, "epsilon": 5.0}, nullcontext),
    "ε = 25 (as-published)": ({**AFT, "epsilon": 25.0}, nullcontext),
    "no noise (no guarantee)": ({**AFT, "epsilon": None, "noise": False}, nullcontext),
    "the defaults": ({"reference": "aft"}, nullcontext),
    "50 steps at rate 0.3": ({**AFT, "steps": 50, "learning_rate": 0.3, "evaluate_every": 5}, nullcontext),
    "2,000 steps at rate 0.02": ({**AFT, **SMALL}, nullcontext),
    "C a twentieth of the median norm": (AFT, lambda: clipped_at(0.05)),
    "C the median norm": (AFT, lambda: clipped_at(1.0)),
    "match loss to the means of all real rows": (AFT, lambda: patch.object(engine.RealScores, "means", full_means)),
    "event times at real quantiles": (AFT, at_real_quantiles),
    "iterates averaged (0.98)": (AFT, lambda: after_the_noise(averaged=0.98)),
    "gradients pooled over rows of like outcome": (AFT, lambda: after_the_noise(pooled=1.0)),
    "pooled by four fifths": (AFT, lambda: after_the_noise(pooled=0.8)),
    "pooled by four fifths, averaged": (AFT, lambda: after_the_noise(pooled=0.8, averaged=0.98)),
    "pooled by what the noise leaves": (AFT, lambda: after_the_noise(shrunk=True)),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("which", choices=["parts", "noise"])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--threads", type=int, default=2)
    said = options.parse_args()
    warnings.simplefilter("ignore")
    name, seer = f"ablation-{said.which}", cohorts.seer()
    found: dict[str, Any] = record.read(name) or {}
    for seed in range(said.seeds):  # the first of everything, then the next
        for variant, problem, cohort, how, changed in plan(said.which, seer):
            scores = found.setdefault(variant, {}).setdefault(problem, [])
            if len(scores) > seed:
                continue
            with changed():
                result = dc.condense(cohort, method="published", seed=seed, soft=True, threads=said.threads, **how)
            scores.append([main_score(result.internal["scores"], way).value for way in (CONDENSED, RANDOM, FULL)])
            print(f"{variant}, {problem}: {_mean(scores, 0)}", flush=True)
            record.write(name, found, seeds=seed + 1)
        record.write(name, found, seeds=seed + 1, text=page(said.which, found, seer))


Changed = Callable[[], AbstractContextManager[Any]]


def plan(which: str, seer: Cohort) -> Iterator[tuple[str, str, Cohort, dict[str, Any], Changed]]:
    """Variant, problem, cohort, settings, and what is changed around the step."""
    if which == "parts":
        problems = {"SEER Cox": (seer, "cox"), "SEER AFT": (seer, "aft"), "Adult XGB": (cohorts.adult(), "xgb")}
        for variant, how in PARTS.items():
            for name, (cohort, reference) in problems.items():
                yield variant, name, cohort, {"ipc": 100, "reference": reference, **how}, nullcontext
        return
    for variant, (how, changed) in LOUD.items():
        for ipc, _, epsilon in row_of("seer", "aft"):
            if ipc >= 500:
                yield variant, f"IPC {ipc}", seer, {"ipc": ipc, "epsilon": epsilon, **how}, changed


def main_score(scores: list[dict[str, Any]], way: str) -> Score:
    """The kind's main measure of one way to train, which is the first that a run records of it."""
    found = find(map(Score.from_dict, scores), way)
    assert found is not None
    return found


def _mean(scores: list[list[float]], place: int) -> str:
    values = np.array(scores)[:, place]
    return f"{values.mean():.3f} " + (f"± {values.std(ddof=1):.3f}" if len(values) > 1 else "(1 seed)")


def page(which: str, found: dict[str, Any], seer: Cohort) -> str:
    if which == "parts":
        title = "# What each part of `published` is for: IPC 100, ε = 2.5 (as-published), raw rows"
        return "\n".join([title, "", *_grid(found)])
    aft, cox = row_of("seer", "aft"), row_of("seer", "cox")
    lines = ["# AFT on SEER where noise wins, at the printed ε (as-published), raw rows", "", *_grid(found)]
    lines += [f"| printed | {aft.scores[2]:.3f} | {aft.scores[3]:.3f} |", ""]
    lines += [
        "ε as-published (δ = 1e-5) of k steps at σ = 1, the most noise that signal-to-noise ≥ 1 allows:",
        "",
        "| IPC | q = m/n | 1 step | 10 steps | 100 steps | printed ε, Cox / AFT |",
        "| --- " * 6 + "|",
    ]
    train = len(Stratified(0).split(seer).train)
    for (ipc, _, of_cox), (_, _, of_aft) in zip(cox, aft, strict=True):
        costs = " | ".join(f"{cost(2 * ipc / train, 1.0, steps):.2f}" for steps in (1, 10, 100))
        lines.append(f"| {ipc} | {2 * ipc / train:.3f} | {costs} | {of_cox:.2f} / {of_aft:.2f} |")
    return "\n".join(lines)


def _grid(found: dict[str, Any]) -> list[str]:
    """Mean ± sd over seeds; the first variant's random and real rows stand for all."""
    first = next(iter(found.values()))
    rows = [(variant, [_mean(scores, 0) for scores in by.values()]) for variant, by in found.items()]
    for place, name in ((1, "as many random real rows"), (2, "all real rows")):
        rows.append((name, [_mean(scores, place) for scores in first.values()]))
    head = ["| variant | " + " | ".join(first) + " |", "| --- " * (1 + len(first)) + "|"]
    return head + ["| " + " | ".join([name, *cells]) + " |" for name, cells in rows]


def cost(q: float, multiplier: float, steps: int) -> float:
    return StepAccountant(q, 1e-5, rows=1, ledger=[(multiplier, steps)]).epsilon()


if __name__ == "__main__":
    main()
