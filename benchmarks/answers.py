"""False and missed answers: `python -m benchmarks.answers`.

False: the outcomes of a table are permuted, so that nothing is there to be found; how often does a run hand over rows
all the same? Missed: the same tables, simulated and real ones, as they are; how often does it say that it found no
answer? Every fit is a fresh one, through the gate, at δ = 1e-5, with all of its noise and another permutation.
`evidence` is what the rule looks at: the standard deviations by which scores agree with outcomes better than by chance.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import cohorts, record
from distcondense.data import datasets
from distcondense.data.cells import public_cells
from distcondense.data.cohort import Cohort
from distcondense.data.schema import Column, Schema
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.plan import Plan
from distcondense.methods.private.uncertainty import FEW
from distcondense.outcomes.private_side import PrivateFit
from distcondense.privacy.budget import Budget
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger

DELTA = 1e-5
HORIZON = 10.0
CARRIERS = 5  # columns that say something about a simulated outcome


@dataclass
class Fits:
    """A table that is fitted again and again."""

    cohort: Cohort
    budgets: dict[float, Budget] = field(default_factory=dict)

    def __post_init__(self) -> None:
        side = self.cohort.outcome.kind.private_side()
        assert side is not None
        self.side, self.cells = side, public_cells(self.cohort.schema)
        self.plan = Plan.for_table(len(self.cells), side, self.cells)
        self.codes = np.stack([one.codes(self.cohort.features[one.column.name]) for one in self.cells], axis=1)

    def fit(self, epsilon: float, order: np.ndarray | None = None) -> PrivateFit:
        """With the outcomes of the rows in this order."""
        outcome = self.cohort.outcome if order is None else self.cohort.outcome.take(order)
        budget = self.budgets.setdefault(epsilon, self.plan.budget(epsilon, DELTA))
        table = PrivateTable(
            self.codes,
            [one.size for one in self.cells],
            outcome.arrays,
            names=self.cohort.schema.names,
            objective=self.side.objective,
            budget=budget,
            ledger=Ledger(),
            person=self.cohort.person,
            rows_per_person=5,
        )
        return fit_private(table, self.cells, self.plan, self.side)


def simulated(
    rows: int,
    columns: int,
    kind: str = "binary",
    prevalence: float = 0.5,
    missing: float = 0.0,
    alike: float = 0.0,
    effect: float = 1.0,
) -> Cohort:
    """Three numbers, then a category, and so on; correlated by `alike`; half of the holes come with whole visits."""
    rng = np.random.default_rng([rows, columns])
    x = np.sqrt(alike) * rng.normal(size=(rows, 1)) + np.sqrt(1 - alike) * rng.normal(size=(rows, columns))
    visits = rng.random((rows, max(columns // 8, 1)))
    frame, described = {}, []
    for j in range(columns):
        hole = (rng.random(rows) if j % 2 else visits[:, j % visits.shape[1]]) < missing
        if j % 4 == 3:
            values = pd.Series(np.array(list("abcd"), object)[np.digitize(x[:, j], [-0.5, 0.5, 1.2])])
            how: dict[str, Any] = {"kind": "categorical", "categories": tuple("abcd")}
            how |= {"missing": "category"} if missing else {}
        else:
            values = pd.Series(np.clip(x[:, j], -7.9, 7.9))
            how = {"kind": "continuous", "low": -8.0, "high": 8.0}
            how |= {"missing": "indicator", "fill": 0.0} if missing else {}
        frame[f"c{j}"] = values.mask(hole)
        described.append(Column(f"c{j}", **how))
    risk = effect * x[:, :CARRIERS].sum(1) / np.sqrt(CARRIERS)
    described += _outcome(frame, kind, risk, prevalence, rng)
    goal: dict[str, Any] = {"time": "t", "event": "y"} if kind == "survival" else {"target": "y"}
    return Cohort.from_frame(pd.DataFrame(frame), schema=Schema(tuple(described)), **goal)


def _outcome(
    frame: dict[str, Any], kind: str, risk: np.ndarray, prevalence: float, rng: np.random.Generator
) -> list[Column]:
    """Puts it into the frame; its columns."""
    noisy = risk + rng.logistic(size=len(risk))
    if kind == "binary":
        frame["y"] = (noisy > np.quantile(noisy, 1 - prevalence)).astype(int)
        return [Column("y", "binary", categories=(0, 1))]
    if kind == "multiclass":
        frame["y"] = np.digitize(noisy, np.quantile(noisy, [1 / 3, 2 / 3]))
        return [Column("y", "categorical", categories=(0, 1, 2))]
    if kind == "continuous":
        frame["y"] = np.clip(noisy, -20, 20)
        return [Column("y", "continuous", low=-20.0, high=20.0)]
    failure, leaving = rng.exponential(8 / prevalence * np.exp(-risk) / 2), rng.uniform(0.5, 20, len(risk))
    frame["t"] = np.maximum(np.minimum(np.minimum(failure, leaving), HORIZON), 1e-3)
    frame["y"] = ((failure <= leaving) & (failure <= HORIZON)).astype(int)
    return [Column("t", "continuous", low=0.0, high=HORIZON), Column("y", "binary", categories=(0, 1))]


def breast_cancer() -> Cohort:
    made = datasets.load("breast_cancer")
    return Cohort.from_frame(made.frame, **made.how).take(np.random.default_rng(0).permutation(569)[:455])


def proteomics() -> Cohort:
    made = datasets.load("proteomics_like", rows=20_000, prevalence=0.05, seed=1)
    return Cohort.from_frame(made.frame, owned=True, **made.how)


Make = Callable[[], Cohort]
TABLES: dict[str, tuple[Make, tuple[float, ...], int, tuple[float, ...], int]] = {
    # name: (table, ε and number of fits to permuted outcomes, ε and number of fits to its own)
    "455 × 30, breast cancer": (breast_cancer, (2.5, 5.0), 100, (2.5,), 100),
    "3,200 × 10, half are cases": (lambda: simulated(3200, 10), (1.0,), 100, (1.0,), 100),
    "SEER": (lambda: cohorts.seer(declared=True), (0.5, 1.0), 100, (0.5, 1.0), 50),
    "Adult": (lambda: cohorts.adult(declared=True), (), 0, (0.5, 1.0), 5),
    "Diabetes-130": (cohorts.diabetes130, (), 0, (0.5, 1.0), 5),
    "BRFSS": (cohorts.brfss, (), 0, (0.5, 1.0), 5),
    "proteomics, 20,000 × 2,932, 5% cases": (proteomics, (), 0, (1.0,), 5),
    "5,644 × 107, 88% missing, a tenth": (
        lambda: simulated(5644, 107, prevalence=0.1, missing=0.88, alike=0.3), (1.0, 2.5), 100, (), 0,
    ),
    "2,000 × 400, half are cases": (lambda: simulated(2000, 400), (1.0, 2.5), 100, (2.5,), 20),
    "2,000 × 400, a tenth": (lambda: simulated(2000, 400, prevalence=0.1), (2.5,), 100, (), 0),
    "2,000 × 400, three classes": (lambda: simulated(2000, 400, "multiclass"), (2.5,), 100, (), 0),
    "2,000 × 400, a number": (lambda: simulated(2000, 400, "continuous"), (2.5,), 100, (), 0),
    "2,000 × 400, survival": (lambda: simulated(2000, 400, "survival"), (2.5,), 100, (), 0),
    "3,200 × 10, a tenth": (lambda: simulated(3200, 10, prevalence=0.1), (1.0,), 100, (2.5,), 20),
    "3,200 × 10, three classes": (lambda: simulated(3200, 10, "multiclass"), (1.0,), 100, (2.5,), 20),
    "3,200 × 10, a number": (lambda: simulated(3200, 10, "continuous"), (1.0,), 100, (1.0,), 20),
    "3,200 × 10, survival": (lambda: simulated(3200, 10, "survival"), (1.0,), 100, (2.5,), 20),
    "3,200 × 20, correlated by 0.8": (lambda: simulated(3200, 20, alike=0.8), (1.0, 10.0), 100, (1.0,), 20),
}  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--fits", type=int, default=100, help="of each table and ε, at most")
    options.add_argument("--only", default="", help="tables whose name holds this; what is known of others is kept")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    known: list[dict[str, Any]] = (record.read("answers") or []) if said.only else []
    for name in (name for name in TABLES if said.only in name):
        known = [cell for cell in known if cell["table"] != name]
        for cell in fitted(name, said.fits):
            known.append(cell)
            print(line(cell), flush=True)
            record.write("answers", known, seeds=said.fits, text=table(known))


def fitted(name: str, fits: int) -> Iterator[dict[str, Any]]:
    make, permuted, many, real, few = TABLES[name]
    again = Fits(make())
    for what, epsilons, most in (("permuted", permuted, many), ("as it is", real, few)):
        for epsilon in epsilons:
            started, evidence, doubts = time.perf_counter(), [], []
            for seed in range(min(fits, most)):
                order = np.random.default_rng(seed).permutation(len(again.cohort)) if what == "permuted" else None
                learned = again.fit(epsilon, order)
                evidence.append(round(learned.evidence, 2))
                doubts.append(learned.doubt)
            yield {
                "table": name,
                "outcome": what,
                "epsilon_end_to_end": epsilon,
                "fits": len(doubts),
                "answers": doubts.count(""),
                "too_few": doubts.count(FEW),
                "evidence": sorted(evidence),
                "seconds": round((time.perf_counter() - started) / len(doubts), 2),
            }


def line(cell: dict[str, Any]) -> str:
    fits, answers, evidence = cell["fits"], cell["answers"], cell["evidence"]
    wrong = f"{answers} false" if cell["outcome"] == "permuted" else f"{fits - answers} missed"
    if cell["outcome"] != "permuted" and cell["too_few"]:
        wrong += f" ({cell['too_few']} for too few cases)"
    middle = float(np.median(evidence))
    said = [
        cell["table"],
        cell["outcome"],
        f"{cell['epsilon_end_to_end']:g}",
        f"{wrong} of {fits}",
        f"{evidence[0]:.1f}, {middle:.1f}, {evidence[-1]:.1f}",
    ]
    return "| " + " | ".join(said) + " |"


def table(records: list[dict[str, Any]]) -> str:
    head = ["| table | outcome | ε end-to-end | wrong | evidence: least, median, most |", "| --- " * 5 + "|"]
    return "\n".join(head + [line(cell) for cell in records])


if __name__ == "__main__":
    main()
