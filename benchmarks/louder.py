"""What helps AFT on SEER at IPC 500 and 1000 under the printed ε (as-published): `python -m benchmarks.louder`.

The step and what a patient can do to it stay as they are, so that the account is the same; only what comes after the
noise, and what is public beforehand, is changed, one thing at a time (C-index of a model of the raw rows on test rows,
seeds 0 and 1, beside a model of as many random real rows). Where a variant is no setting of the method it is made here,
around the engine's step.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

import distcondense as dc
from benchmarks import cohorts, record
from benchmarks.published import PAPER, TUNED, main_score
from distcondense import kernels
from distcondense.data.outcome import Outcome
from distcondense.evaluation.score import CONDENSED, FULL, RANDOM
from distcondense.kernels.update import row_norms
from distcondense.methods.published import condense as published
from distcondense.methods.zero_order import engine

AFT = TUNED["seer", "aft"]
GROUPS = 10  # of the rows with an event, by their time; the censored are one more


def _groups(labels: Outcome, groups: int = GROUPS) -> Any:
    """(m,) rows of about the same outcome."""
    found = np.zeros(len(labels), np.int64)
    events = np.flatnonzero(labels["label"] == 1)
    rank = np.argsort(np.argsort(labels["time"][events], kind="stable"), kind="stable")
    found[events] = 1 + rank * groups // len(events)
    return found


@contextmanager
def around_the_step(*, pooled: float = 0.0, averaged: float = 0.0, by_row: bool = False) -> Iterator[None]:
    """After the noise: gradients pooled by outcome, steps of one length for a whole row, iterates averaged."""
    kept: dict[str, Any] = {}

    def labels(options: Any, train: Outcome, of: Callable[..., Outcome] = published.synthetic_outcome) -> Outcome:
        kept.clear()
        kept["labels"] = of(options, train)
        return kept["labels"]

    def step(problem: Any, options: Any, state: Any, key: int, threads: int, executors: Any) -> Any:
        raw, noise = kept.setdefault("raw", state.X.copy()), problem.noise
        G, loss = engine.gradient(problem, options, raw, key, state.step, threads, executors)
        sigmas = noise.sigmas(row_norms(G))
        norms = kernels.clip_and_noise(G, noise.clip, sigmas, state.noise_key, state.step, 0, threads)
        if pooled:
            group = _groups(kept["labels"])
            sums = np.zeros((group.max() + 1, G.shape[1]))
            np.add.at(sums, group, G)
            means = sums / np.bincount(group)[:, None]
            G = ((1 - pooled) * G + pooled * means[group]).astype(np.float32)
        if by_row:
            moment = state.adam.m
            moment *= 0.95
            moment += 0.05 * G
            state.adam.step += 1
            length = np.sqrt((moment**2).mean(1, keepdims=True)) + 1e-12
            raw -= (options.learning_rate / 3 * moment / length).astype(np.float32)
        else:
            kernels.adam(raw, G, state.adam, options.learning_rate, options.beta1, options.beta2, threads)
        state.X = averaged * state.X + (1 - averaged) * raw if averaged else raw.copy()
        state.X = state.X.astype(np.float32)
        return loss, norms, sigmas

    with patch.object(published, "synthetic_outcome", labels), patch.object(engine, "_step", step):
        yield


def full_means(self: engine.RealScores, key: int, step: int) -> Any:
    """The mean score of all real rows of a stratum instead of a draw: nothing in it is added to the noise."""
    return np.array([s.mean() if len(s) and n else np.nan for s, n in zip(self.by_stratum, self.counts, strict=True)])


@contextmanager
def at_real_quantiles() -> Iterator[None]:
    """Events at quantiles of the real event times instead of evenly from the first to the end of follow-up."""
    before = published.synthetic_outcome

    def labels(options: Any, train: Outcome) -> Outcome:
        made = before(options, train)
        real, time, events = train["time"][train["label"] == 1], made["time"].copy(), made["label"] == 1
        time[events] = np.quantile(real, (np.arange(events.sum()) + 0.5) / events.sum())
        return replace(made, arrays={**made.arrays, "time": time})

    with patch.object(published, "synthetic_outcome", labels):
        yield


@contextmanager
def clipped_at(share: float) -> Iterator[None]:
    """C as another share of the first gradient's median norm (a quarter)."""
    with patch.object(published, "CLIP_SHARE", share):
        yield


@contextmanager
def with_full_means() -> Iterator[None]:
    with patch.object(engine.RealScores, "means", full_means):
        yield


VARIANTS: dict[str, tuple[dict[str, Any], Callable[[], Any] | None]] = {
    "as tuned on SEER": (AFT, None),
    "the defaults": ({}, None),
    "fewer, larger steps: 50 at rate 0.3": ({**AFT, "steps": 50, "learning_rate": 0.3, "evaluate_every": 5}, None),
    "more, smaller steps: 2,000 at rate 0.02": (
        {**AFT, "steps": 2000, "learning_rate": 0.02, "evaluate_every": 200},
        None,
    ),
    "C a twentieth of the median norm": (AFT, lambda: clipped_at(0.05)),
    "C the median norm": (AFT, lambda: clipped_at(1.0)),
    "iterates averaged (0.98)": (AFT, lambda: around_the_step(averaged=0.98)),
    "gradients pooled over rows of like outcome": (AFT, lambda: around_the_step(pooled=1.0)),
    "pooled by four fifths": (AFT, lambda: around_the_step(pooled=0.8)),
    "pooled, and one step length for a row": (AFT, lambda: around_the_step(pooled=1.0, by_row=True)),
    "pooled by four fifths, averaged": (AFT, lambda: around_the_step(pooled=0.8, averaged=0.98)),
    "match loss to the means of all real rows": (AFT, with_full_means),
    "event times at real quantiles": (AFT, at_real_quantiles),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--ipc", type=int, nargs="*", default=[500, 1000])
    options.add_argument("--threads", type=int, default=2)
    said = options.parse_args()
    warnings.simplefilter("ignore")
    cohort, found = cohorts.seer(), dict[str, Any]()
    lines = ["| variant | " + " | ".join(f"IPC {ipc}" for ipc in said.ipc) + " |", "| --- " * (1 + len(said.ipc)) + "|"]
    print("\n".join(lines))
    beside: dict[int, list[tuple[float, float]]] = {ipc: [] for ipc in said.ipc}
    for variant, (how, changed) in VARIANTS.items():
        cells = []
        for ipc in said.ipc:
            scores = []
            for seed in range(said.seeds):
                with ExitStack() as stack:
                    if changed is not None:
                        stack.enter_context(changed())
                    result = dc.condense(
                        cohort, method="published", reference="aft", ipc=ipc, epsilon=PAPER["aft", ipc][1], seed=seed,
                        soft=True, threads=said.threads, **how,
                    )  # fmt: skip
                got = result.internal["scores"]
                scores.append(main_score(got, CONDENSED).value)
                beside[ipc].append((main_score(got, RANDOM).value, main_score(got, FULL).value))
            found.setdefault(variant, {})[ipc] = scores
            cells.append(f"{np.mean(scores):.3f} ± {np.std(scores, ddof=1) if said.seeds > 1 else 0:.3f}")
        lines.append("| " + " | ".join([variant, *cells]) + " |")
        print(lines[-1], flush=True)
        text = "\n".join([*lines, *_beside(beside, said.ipc)])  # after each: what was run is kept
        record.write("louder", {"options": vars(said), "scores": found}, seeds=said.seeds, text=text)


def _beside(beside: dict[int, list[tuple[float, float]]], ipcs: list[int]) -> Iterator[str]:
    for number, name in enumerate(("as many random real rows", "all real rows")):
        cells = [f"{np.mean([pair[number] for pair in beside[ipc]]):.3f}" for ipc in ipcs]
        yield "| " + " | ".join([name, *cells]) + " |"
    yield "| printed | " + " | ".join(f"{PAPER['aft', ipc][0]:.3f}" for ipc in ipcs) + " |"


if __name__ == "__main__":
    main()
