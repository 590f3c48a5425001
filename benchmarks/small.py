"""Small tables, where noise decides: `python -m benchmarks.small [TABLE …] [--rows] [--parts]`.

The private method beside a naive-Bayes sampler (benchmarks/peers: a histogram of every column by class through the same
gate, with all of the budget) at the same ε, end-to-end at δ = 1e-5: on small real tables (obesity, SEER, insurance), on
a simulated one, and on random parts of Adult, BRFSS and Diabetes-130 of 500 to 10,000 rows. Each seed draws other rows
to train and to test on, with fresh noise for every fit. A cell is the mean ± its standard error over seeds, a
difference is taken seed by seed.

    (nothing)    the private model itself, asked about real test rows, beside the posterior of naive Bayes
    --rows       condensed rows at --ipc: the mean over all students of the study (evaluation/utility/students.py), with
                 the plain outcome column, and as the manual says; --methods names others beside these two
    --parts      the private model with one part changed at a time (`PARTS`): what each costs or wins

Measures: AUROC, macro AUROC of several classes, C-index, R². A run without an answer counts as what guessing scores.
Constants of the method were set with parts of these tables in view: obesity, and Adult and BRFSS of 500 to 2,000 rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks import cohorts, outcomes, record
from benchmarks.peers import register
from benchmarks.peers.by_hand import SamplerOptions
from distcondense.data.cells import FINE, public_cells
from distcondense.data.cohort import Cohort
from distcondense.data.persons import HoldoutSplit
from distcondense.errors import UserError
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.models import learners_of, recipient
from distcondense.methods import base
from distcondense.methods.base import Context
from distcondense.methods.private import domain, fit, plan
from distcondense.methods.private.condense import open_gate
from distcondense.methods.private.fit import PlannedQueries, fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.outcomes.private_side import PrivateFit, PrivateSide
from distcondense.privacy.budget import Budget
from distcondense.privacy.ledger import Ledger
from distcondense.runs.result import Result

DELTA = 1e-5
TEST = 4000  # rows that are tested on, at most
GUESS = {"continuous": 0.0}  # what guessing scores; 0.5 for what ranks
SIZES = (500, 1000, 2000, 4000, 10_000)
WHOLE = ("obesity", "seer", "insurance")
TABLES = (*WHOLE, "curial-3200", *(f"{name}-{rows}" for name in ("adult", "brfss", "diabetes130") for rows in SIZES))
EPSILONS = (0.5, 1.0, 3.0, 8.0)
METHODS = ("private", "naive-bayes")
PARTS: dict[str, tuple[tuple[Any, str, float], ...]] = {  # module, constant and its value instead
    "as it is": (),
    "nothing from the histograms": ((fit, "LOOKS", 0),),
    "128 cells of a number, always": ((plan, "FEWEST_CELLS", FINE),),
    "cells follow noise": ((domain, "SEEN", 0.0),),
    "cells merged less": ((fit, "LEAST", 0.5),),
    "a fifth for the histograms": ((plan, "HISTOGRAM_SHARE", 0.2),),
    "one round": ((plan, "EPOCHS", 1),),
}


@cache
def table_of(name: str) -> Cohort:
    if name == "curial":
        from distcondense.data.datasets import load

        made = load("curial_like", site="PUH", rows=12_000, seed=1)
        return Cohort.from_frame(made.frame, owned=True, **made.how)
    loader = outcomes.LOADERS.get(name) or (lambda: getattr(cohorts, name)(declared=True))
    return loader()


def parts_of(name: str, seed: int) -> tuple[Cohort, Cohort]:
    """Rows to train and to test on: four fifths and one of a small table, or so many rows of a large one."""
    base, _, rows = name.partition("-")
    cohort = table_of(base)
    order = np.random.default_rng([seed, 0x5A11]).permutation(len(cohort))
    many = int(rows) if rows else len(cohort) * 4 // 5
    return cohort.take(np.sort(order[:many])), cohort.take(np.sort(order[many : many + TEST]))


# -- the two methods --------------------------------------------------------------------------------------------------


def private(train: Cohort, epsilon: float) -> tuple[PrivateFit, PrivateSide]:
    options = PrivateOptions(epsilon=epsilon, delta=DELTA)
    public = prepare(train.facts, options)
    gate = open_gate(train, HoldoutSplit(0.0, 1), public, Ledger())
    return fit_private(gate, public.cells, public.plan, public.side), public.side


def model_score(learned: PrivateFit, test: Cohort) -> float:
    margin = learned.model.margin(learned.model.codes(test.features))
    return test.outcome.kind.score(learned.model.link, margin, test.outcome)


def naive_bayes_score(train: Cohort, test: Cohort, epsilon: float) -> float:
    """The posterior of a naive Bayes model: all of the budget on histograms by class (event status, stratum)."""
    options, budget = PrivateOptions(epsilon=epsilon, delta=DELTA), Budget.calibrate(epsilon=epsilon, delta=DELTA)
    public, cells = prepare(train.facts, options), public_cells(train.schema, fine=SamplerOptions().cells)
    gate = open_gate(train, HoldoutSplit(0.0, 1), replace(public, cells=cells, budget=budget), Ledger())
    spent, value = 0.0, None
    if public.side.grouping == "stratum":  # strata and their means come from the outcome's own histogram
        facts, objective = public.side.begin(PlannedQueries(gate, public.plan)), gate.objective
        edges = np.array([objective.low, *objective.cuts, objective.high])  # type: ignore[attr-defined]
        spent, value = public.plan.own["outcome"], (edges[1:] + edges[:-1]) / 2
        value[-1] = min(value[-1], facts["centre"] + 2 * facts["unit"])  # a long tail's middle is far from its mean
    mu = budget.mu * np.sqrt((1 - spent) / len(cells))
    score, groups = 0.0, []
    for j, cell in enumerate(cells):
        counts = np.maximum(gate.histogram((j,), by=public.side.grouping, mu=mu), 0.0)
        groups.append(counts.sum(1))
        counts = counts + 0.5 / mu  # half a standard deviation of noise, so that an emptied cell forbids nothing
        logs = np.log(counts / counts.sum(1, keepdims=True))
        score = score + logs[:, cell.codes(test.features[cell.column.name])].T
    held = np.median(groups, axis=0) + 1.0
    margin = score + np.log(held / held.sum())
    chance = np.exp(margin - margin.max(1, keepdims=True))
    chance = chance / chance.sum(1, keepdims=True)
    kind = test.outcome.kind
    if value is not None:
        return kind.score("value", chance @ value, test.outcome)
    if len(held) == 2:
        odds = margin[:, 1] - margin[:, 0]
        return kind.score("log-risk" if "time" in kind.roles else "log-odds", odds, test.outcome)
    return kind.score("probabilities", chance, test.outcome)


# -- rows -------------------------------------------------------------------------------------------------------------


def condensed(name: str, train: Cohort, epsilon: float, ipc: int, seed: int) -> Result | None:
    """Rows of that method or peer, of all training rows; None where it does not take this kind of outcome."""
    register()
    method = base.method_named(name)
    if not method.takes(train.outcome.kind):
        return None
    options = method.Options(ipc=ipc, epsilon=epsilon, delta=DELTA, seed=seed)
    return method.condense(train, method.prepare(train.facts, options), Context(apart=True))[ipc]


def taught(made: Result, train: Cohort, test: Cohort, seed: int) -> dict[str, float]:
    """Mean over students: of the plain outcome column, and as the manual says."""
    kind, home = train.outcome.kind, EvaluationInput.from_result(train, made)
    if not len(home.rows):
        return dict.fromkeys(("plain", "manual"), GUESS.get(kind.name, 0.5))
    real, found = home.codec.encode(test.features), {"plain": [], "manual": []}
    for student in map(recipient, learners_of(kind)):
        for way, how in (("plain", {}), ("manual", {"weight": home.labelled.weight, "soft": home.labelled.soft})):
            if way == "manual" and not any(value is not None for value in how.values()):
                found[way].append(found["plain"][-1])
                continue
            try:
                model = student.fit(home.rows, home.made, seed=seed, threads=1, **how)
                found[way].append(kind.score(model.link, model.scores(real), test.outcome))
            except UserError:  # some sets of few rows have no such model
                found[way].append(GUESS.get(kind.name, 0.5))
    return {way: float(np.mean(scores)) for way, scores in found.items()}


# -- all of it --------------------------------------------------------------------------------------------------------


def run(name: str, epsilon: float, seed: int, said: argparse.Namespace) -> Iterator[dict[str, Any]]:
    train, test = parts_of(name, seed)
    cell = {"table": name, "epsilon_end_to_end": epsilon, "seed": seed}
    if said.rows:
        for method in (*METHODS, *said.methods):
            started = time.perf_counter()
            made = condensed(method, train, epsilon, said.ipc, seed)
            seconds = time.perf_counter() - started
            if made is not None:
                for way, score in taught(made, train, test, seed).items():
                    yield {**cell, "what": f"{method}, {way}", "score": score, "seconds": seconds}
        return
    yield {**cell, "what": "naive Bayes", "score": naive_bayes_score(train, test, epsilon)}
    for what, changes in PARTS.items() if said.parts else (("as it is", ()),):
        with ExitStack() as stack:
            for module, constant, value in changes:
                stack.enter_context(patch.object(module, constant, value))
            started = time.perf_counter()
            learned, _ = private(train, epsilon)
            seconds = time.perf_counter() - started
        score = GUESS.get(train.outcome.kind.name, 0.5) if learned.doubt else model_score(learned, test)
        yield {**cell, "what": what, "score": score, "raw": model_score(learned, test), "seconds": seconds}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(TABLES))
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--epsilons", type=float, nargs="*", default=EPSILONS, help="end-to-end")
    options.add_argument("--rows", action="store_true", help="condensed rows instead of the model")
    options.add_argument("--parts", action="store_true", help="one part changed at a time")
    options.add_argument("--ipc", type=int, default=100)
    options.add_argument("--methods", nargs="*", default=[], help="further methods or peers, with --rows")
    options.add_argument("--name", help="of the files in results/: small-NAME; without it nothing is written")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    records = []
    for table in said.tables or TABLES:
        for epsilon in said.epsilons:
            found = [cell for seed in range(said.seeds) for cell in run(table, epsilon, seed, said)]
            records += found
            print(line(found), flush=True)
    if said.name:
        head = (
            f"Mean ± standard error over seeds, δ = {DELTA:g}. Constants of the method were set with parts of these "
            "tables in view."
        )
        record.write(f"small-{said.name}", records, seeds=said.seeds, text=f"{head}\n\n{page(records)}")


def line(found: list[dict[str, Any]]) -> str:
    """One table at one ε, for a terminal."""
    parts = [f"{what} {spread(scores)}" for what, scores in by_what(found).items()]
    return f"{found[0]['table']} ε = {found[0]['epsilon_end_to_end']:g} end-to-end: {'; '.join(parts)}"


def by_what(found: list[dict[str, Any]]) -> dict[str, list[float]]:
    out: dict[str, list[float]] = {}
    for cell in found:
        out.setdefault(cell["what"], []).append(cell["score"])
    return out


def spread(scores: list[float]) -> str:
    error = np.std(scores, ddof=1) / np.sqrt(len(scores)) if len(scores) > 1 else 0.0
    return f"{np.mean(scores):.3f} ± {error:.3f}"


def page(records: list[dict[str, Any]]) -> str:
    """Markdown: a row for each table and ε."""
    whats = list(by_what(records))
    lines = [f"| table | ε end-to-end | {' | '.join(whats)} |", "| --- " * (len(whats) + 2) + "|"]
    for table, epsilon in dict.fromkeys((r["table"], r["epsilon_end_to_end"]) for r in records):
        own = by_what([r for r in records if (r["table"], r["epsilon_end_to_end"]) == (table, epsilon)])
        cells = [spread(own[what]) if what in own else "" for what in whats]
        lines.append(f"| {table} | {epsilon:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
