"""Attacks on `published`: the attacker sees the released rows only.

It suffices to look at what was never noised: the scale of a column, and which categories its encoding kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from distcondense.data.cohort import Cohort
from distcondense.data.persons import Split
from distcondense.data.schema import Column, Schema
from distcondense.errors import DistcondenseWarning
from distcondense.evaluation.audit.findings import Auditor, AuditRequest, PendingFinding, coins, many_runs, one_run
from distcondense.evaluation.audit.neighbours import ALONE, CERTAIN, OUTLIER, UNSEEN
from distcondense.methods.base import Context
from distcondense.methods.published.condense import condense
from distcondense.methods.published.options import PublishedOptions
from distcondense.privacy.steps import calibrate

GUARANTEE = "as-published"
NEIGHBOURS = (OUTLIER, UNSEEN, ALONE)  # it promises nothing to a person with many rows
ROWS = 200
TRAIN, VALID = 140, 170  # the rows before; the rest are for the test
IPC, STEPS = 40, 10
PILOT = 0.1  # its runs are slow and its statistics far apart: few runs find the threshold
MANY_IPC = 1000


def attack(request: AuditRequest, on_run: Callable[[], None]) -> tuple[list[PendingFinding], tuple[str, ...]]:
    """All chosen pairs of neighbours, then the one-run attack. It keeps no ledger that could have problems."""
    pending: list[PendingFinding] = []
    for name in request.neighbours:
        others, canary = neighbouring(name, request.seed)
        worlds = [PublishedTable.from_frame(table, request, IPC) for table in (others, pd.concat([others, canary]))]
        member = coins(request.runs)
        noiseless = [world.release(noise=False) for world in worlds]
        statistic = np.zeros(request.runs)
        for run in range(request.runs):
            statistic[run] = nearer(worlds[int(member[run])].release(), *noiseless)
            on_run()
        pending += many_runs(
            name, statistic, member, request.epsilon, request.delta, GUARANTEE, gaussian=False, pilot=PILOT
        )
    if request.canaries:
        pending.append(_one_run(request))
        on_run()
    return pending, ()


def neighbouring(name: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(everybody else, the canary), in original units; the last rows are for validation and test."""
    rng = np.random.default_rng([seed, 0xA0D18])
    marker = rng.uniform(0, 10, ROWS)
    case = (rng.random(ROWS) < 1 / (1 + np.exp(6 - marker))).astype(int)
    if name == ALONE:
        case[:TRAIN] = 0
    others = pd.DataFrame({"marker": marker, "site": rng.choice(["A", "B"], ROWS), "case": case})
    own = {OUTLIER: (100.0, "B", 0), UNSEEN: (5.0, "C", 1), ALONE: (1.0, "A", 1)}[name]
    return others, pd.DataFrame([own], columns=list(others.columns))


def nearer(released: pd.DataFrame, without: pd.DataFrame, with_: pd.DataFrame) -> float:
    """How much nearer a released table lies to what the method makes *with* the canary when no noise is added.

    Start, seeds and everybody else are known, so both noiseless tables are. A category that one of them cannot have
    settles the matter.
    """
    if set(released["site"]) - set(without["site"]):
        return CERTAIN
    far = [
        float(((released["marker"] - table["marker"]) ** 2).sum() + (released["site"] != table["site"]).sum())
        for table in (without, with_)
    ]
    return far[0] - far[1]


@dataclass(frozen=True)
class PublishedTable:
    """The published method on one table; the canary, appended, is a training row: seeds are public."""

    cohort: Cohort
    split: Split
    ipc: int
    sigma: float
    request: AuditRequest

    @classmethod
    def from_frame(
        cls, table: pd.DataFrame, request: AuditRequest, ipc: int, sites: tuple[str, ...] = ("A", "B", "C")
    ) -> PublishedTable:
        schema = Schema(
            (
                Column("marker", "continuous", low=0.0, high=100.0),
                Column("site", "categorical", categories=sites),
                Column("case", "binary", categories=(0, 1)),
            )
        )
        cohort = Cohort.from_frame(table.reset_index(drop=True), schema=schema, target="case")
        row = np.arange(len(table))
        train = (row < TRAIN) | (row >= ROWS)
        valid = (row >= TRAIN) & (row < VALID)
        split = Split(row[train], row[valid], row[~train & ~valid])
        # what `epsilon=` would do, once instead of in every run
        sigma = _sigma(request.epsilon, request.delta, min(1.0, 2 * ipc / int(train.sum())))
        return cls(cohort, split, ipc, sigma, request)

    def release(self, *, noise: bool = True) -> pd.DataFrame:
        """The one call of the method: its rows in original units."""
        options = PublishedOptions(
            ipc=self.ipc,
            noise=noise,
            sigma_base=self.sigma if noise else None,
            delta=self.request.delta,
            steps=STEPS,
            evaluate_every=STEPS,
            seed=self.request.seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DistcondenseWarning)  # of tiny classes: they are meant
            made = condense(self.cohort, options, Context(threads=self.request.threads), self.split)
        assert made.details is not None
        return made.details.features.assign(case=made.details.labelled.outcome["label"])


@lru_cache(maxsize=8)
def _sigma(epsilon: float, delta: float, rate: float) -> float:
    return calibrate(epsilon=epsilon, delta=delta, sampling_rate=rate, steps=STEPS)


def _one_run(request: AuditRequest) -> PendingFinding:
    """Each canary has a site of its own; a released row from there gives it away. Few enough guesses to be sure of."""
    canaries, rng = request.canaries, np.random.default_rng([request.seed, 0x0F])
    others, _ = neighbouring(OUTLIER, request.seed)
    others["site"] = "A"
    sites = np.array([f"c{k}" for k in range(canaries)])
    every = pd.DataFrame({"marker": rng.uniform(0, 10, canaries), "site": sites, "case": rng.integers(0, 2, canaries)})
    member = coins(canaries)
    world = PublishedTable.from_frame(pd.concat([others, every[member]]), request, MANY_IPC, ("A", *sites.tolist()))
    released = world.release()["site"].value_counts()
    score = np.array([float(released.get(site, 0)) for site in sites])
    return one_run(score, member, int(0.4 * canaries), request.epsilon, request.delta, GUARANTEE)


AUDITOR = Auditor(GUARANTEE, NEIGHBOURS, lambda canaries: int(canaries > 0), attack, claim=2.5)
