"""Hospitals together against all rows in one place, at the same ε: `python -m benchmarks.federated adult 0 1 2`.

adult: five sites, split by years of education, so that they differ. hospitals: a simulated cohort at three hospitals of
different size. wide: 300 simulated proteins at three sites, of which columns are chosen. Each seed holds out a fifth of
the rows anew. Sites are processes of this machine with real messages in a folder; with --sums they are gates of this
process whose noisy parts are added up without messages, which gives the same release with the same law
(tests/federated/test_oracle.py). One site may collude (t = 1); with t = 0 the noise is that of one place, and what is
lost is lost by choosing columns or pairs by Gaussian answers. All ε are end-to-end at δ = 1e-5. Scores are on the
held-out rows: AUROC of the private model itself and of an XGBoost student of the released rows' soft labels (100 a
class); "pairs" is the total variation over all pairs of columns, as benchmarks/private.py has it. CPU seconds are those
of all processes together: on a machine with other work they say more than seconds.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import distcondense as dc
from benchmarks import cohorts, record
from benchmarks.private import pairs
from distcondense.data.codec import design_of
from distcondense.data.cohort import Cohort
from distcondense.data.persons import HoldoutSplit
from distcondense.data.tables import read_table
from distcondense.federated.accounting import Sharing
from distcondense.federated.agreement import PreparedFederated, prepared_for
from distcondense.federated.demo import demo
from distcondense.federated.tables import SiteTable, SummedExact, SummedTable
from distcondense.methods.base import Context
from distcondense.methods.private.condense import condense, open_gate
from distcondense.methods.private.options import PrivateOptions
from distcondense.outcomes.measures import auroc
from distcondense.privacy.accounts import STATE
from distcondense.privacy.answering import BEHIND
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.questions import Question, Step
from distcondense.privacy.rows import IntegerSums
from distcondense.privacy.verify import verify

EPSILON, DELTA, IPC = 1.0, 1e-5, 100
ONE_PLACE, COMPARED = "one place", ("private model", "xgb, soft", "pairs, drawn rows, mean")
SCHOOL = (8, 9, 10, 12)  # years of education, last of each site but the fifth's
ROWS, SHARES, PROTEINS = 20_000, (0.5, 0.3, 0.2), 300


def adult() -> tuple[pd.DataFrame, dict[str, Any], np.ndarray]:
    """Rows, how they are read, and at which of five sites each is."""
    frame = read_table(cohorts.path_of("adult_48842.csv.gz")).drop(columns=["split", "education"]).replace("?", None)
    how = {"target": "income", "positive": ">50K", "schema": cohorts.schema_of("adult")}
    return frame, how, np.searchsorted(SCHOOL, frame["education-num"].to_numpy(float))


def hospitals() -> tuple[pd.DataFrame, dict[str, Any], np.ndarray]:
    """A simulated cohort at three hospitals."""
    from distcondense.data.datasets import load

    made = load("curial_like", rows=ROWS, seed=1)
    place = np.random.default_rng(1).choice(len(SHARES), len(made.frame), p=SHARES)
    return made.frame, {name: value for name, value in made.how.items() if value is not None}, place


def wide() -> tuple[pd.DataFrame, dict[str, Any], np.ndarray]:
    """More columns than pairs are asked of: some are chosen first."""
    from distcondense.data.datasets import load

    made = load("proteomics_like", rows=ROWS, proteins=PROTEINS, prevalence=0.2, seed=1)
    place = np.random.default_rng(1).choice(len(SHARES), len(made.frame), p=SHARES)
    return made.frame, {name: value for name, value in made.how.items() if value is not None}, place


class Parts(SummedExact):
    """Sites in this process: their integers, each with its own part of the noise, are added up as they are."""

    def __init__(self, tables: Sequence[SiteTable], prepared: PreparedFederated) -> None:
        super().__init__([one.size for one in prepared.cells], prepared.side.objective, prepared.rows_per_person)
        self.tables = tables

    def next(self, question: Question, mu: float) -> None:
        """Nothing goes out."""

    def counted(self, question: Question, limit: float) -> IntegerSums:
        parts = [table._noised(BEHIND[table].rows.answer(question, limit)) for table in self.tables]
        return IntegerSums(np.sum(parts, axis=0))

    def _applied(self, step: Step) -> None:
        for table in self.tables:
            BEHIND[table].rows.apply(step)


def summed(parts: Sequence[Cohort], options: PrivateOptions, sharing: Sharing) -> Any:
    """The release of several sites without messages."""
    prepared = prepared_for(parts[0].facts, options, sharing)
    gates = [open_gate(part, HoldoutSplit(0.0, 0), prepared, Ledger()) for part in parts]
    rows = Parts([SiteTable.before(BEHIND[gate], sharing) for gate in gates], prepared)
    names = [one.column.name for one in prepared.cells]

    def gate(ledger: Ledger) -> SummedTable:
        asked = {"names": names, "budget": prepared.budget, "ledger": ledger, "unit": prepared.unit}
        return SummedTable.over(rows, sharing, **asked, choice_cost=prepared.choice_cost)

    return condense(None, prepared, Context(), gate=gate)[options.ipcs[0]]


def runs(data: str, seeds: Sequence[int], *, sums: bool) -> Iterator[dict[str, Any]]:
    frame, how, place = {"adult": adult, "hospitals": hospitals, "wide": wide}[data]()
    sites, options = int(place.max()) + 1, {"epsilon": EPSILON, "delta": DELTA, "ipc": IPC}
    for seed in seeds:
        held = np.random.default_rng([seed, 34]).random(len(frame)) < 0.2
        train, test = (Cohort.from_frame(frame[part], **how) for part in (~held, held))
        with tempfile.TemporaryDirectory() as folder:
            began = Clock()
            central = dc.condense(train, **options, seed=seed, holdout=0.0, out=f"{folder}/central")
            yield {"seed": seed, "where": ONE_PLACE, **_scores(central, train, test, seed, began)}
            if sums:
                parts = [Cohort.from_frame(frame[~held & (place == k)], **how) for k in range(sites)]
                for colluding in (0, 1):
                    began = Clock()
                    made = summed(parts, PrivateOptions(**options, seed=seed), Sharing(sites, colluding))
                    found = _scores(made, train, test, seed, began)
                    yield {"seed": seed, "where": f"{sites} sites, t = {colluding}", **found}
                continue
            tables = {f"site-{k + 1}": frame[~held & (place == k)] for k in range(sites)}
            reading = {name: value for name, value in how.items() if name != "schema"}
            settings, began = PrivateOptions(**options, seed=seed, holdout=0.0), Clock()
            run = demo(Path(folder) / "sites", tables, how["schema"], reading, settings, Sharing(sites, 1), log=print)
            found = _scores(dc.load(run.run), train, test, seed, began)
            more = {"rounds": run.rounds, "bytes_each": run.bytes_each, "verified": verify(run.run).holds}
            yield {"seed": seed, "where": f"{sites} sites, t = 1", **found, **more}


class Clock:
    """Seconds since it was made: of the wall, and of all cores, of ended processes too."""

    def __init__(self) -> None:
        self.began, self.used = time.perf_counter(), self._used()

    def read(self) -> dict[str, float]:
        return {"seconds": time.perf_counter() - self.began, "CPU seconds": self._used() - self.used}

    @staticmethod
    def _used() -> float:
        return sum(os.times()[:4])


def _scores(result: Any, train: Cohort, test: Cohort, seed: int, began: Clock) -> dict[str, Any]:
    took, learned = began.read(), result.sampler.learned
    codes = np.stack([one.codes(test.features[one.column.name]) for one in learned.model.cells], axis=1)
    made = pairs(learned, train, test, seed)
    return {
        "private model": float(auroc(test.outcome["label"], learned.model.margin(codes))),
        "xgb, soft": _student(result, test, seed),
        **{f"pairs, {name}": value for name, value in made.items()},
        "epsilon_end_to_end": result.privacy.epsilon,
        **took,
    }


def _student(result: Any, test: Cohort, seed: int) -> float:
    """XGBoost on the released rows' soft labels, as the manual says."""
    import xgboost as xgb

    rows, risk, persons = result.soft_data()
    known = design_of(test.features[[column.name for column in result.schema.columns]], result.schema)
    settings = {"objective": "binary:logistic", "max_depth": 5, "eta": 0.1, "subsample": 0.7, "seed": seed}
    booster = xgb.train(settings, xgb.DMatrix(rows.to_numpy(), label=risk, weight=persons), 100)
    return float(auroc(test.outcome["label"], booster.inplace_predict(known.to_numpy())))


def table(data: str, found: list[dict[str, Any]]) -> str:
    """Means over seeds, in Markdown."""
    frame = pd.DataFrame(found)
    columns = [name for name in frame.columns if name not in ("seed", "where", "verified")]
    lines = [f"## {data}, ε = {EPSILON:g} (end-to-end)", "", "| | " + " | ".join(columns) + " |"]
    lines.append("| --- " * (len(columns) + 1) + "|")
    for where, rows in frame.groupby("where", sort=False):
        means = (rows[name].mean() for name in columns)
        lines.append(f"| {where} | " + " | ".join("" if np.isnan(m) else f"{m:,.4g}" for m in means) + " |")
    lines += ["", "Difference to one place, mean over seeds with its 95% interval (Student's t):", ""]
    for where in frame["where"].unique():
        if where != ONE_PLACE and len(frame["seed"].unique()) > 1:
            lines += [f"- {where}: " + ", ".join(_difference(frame, where, name) for name in COMPARED)]
    return "\n".join(lines) + "\n"


def _difference(frame: pd.DataFrame, where: str, name: str) -> str:
    there, here = (frame[frame["where"] == one].set_index("seed")[name] for one in (where, ONE_PLACE))
    apart = (there - here).to_numpy()
    half = stats.t.ppf(0.975, len(apart) - 1) * np.std(apart, ddof=1) / np.sqrt(len(apart))
    return f"{name} {np.mean(apart):+.4f} [{np.mean(apart) - half:+.4f}, {np.mean(apart) + half:+.4f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=["adult", "hospitals", "wide"])
    parser.add_argument("seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--sums", action="store_true", help="without messages")
    asked = parser.parse_args()
    os.environ[STATE] = "off"  # nobody's patients
    found = list(runs(asked.data, asked.seeds, sums=asked.sums))
    print(text := table(asked.data, found))
    name = f"federated-{asked.data}" + ("-sums" if asked.sums else "")
    record.write(name, found, seeds=asked.seeds, text=text)


if __name__ == "__main__":
    main()
