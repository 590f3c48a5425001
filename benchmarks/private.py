"""The private method beside its baselines: `python -m benchmarks.private adult`.

Or brfss, diabetes130, seer, early (simulated: half of the deaths come early), proteomics, curial (both simulated).
Every cell is the mean ± standard deviation over seeds of the AUROC (survival: C-index) on real test rows that nothing
was fitted on: a fifth of the persons, drawn anew for each seed, together with fresh privacy noise. All ε are
end-to-end at δ = 1e-5 except that of `published`, which is as-published. At the same total ε stand: the private model
itself, and a naive-Bayes sampler that spends everything on private marginals per class and gives hard labels.

Students are trained as a naive recipient would: the released CSV's own outcome column, no weights ("plain"); the one
called "xgb, soft" as the manual says, on `result.soft_data()`. Of survival stand besides the largest distances between
Kaplan-Meier curves (lifelines') of the rows, of the page and of the patients. "pairs" is the total variation over all
pairs of columns, at most 12 groups a column, between 20,000 drawn rows and real test rows.
Constants of the method were set with Adult, BRFSS and SEER in view.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import distcondense as dc
from benchmarks import cohorts, record
from distcondense.data.cells import public_cells
from distcondense.data.codec import Codec, design_of
from distcondense.data.cohort import Cohort
from distcondense.data.outcome import Outcome
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Column, Schema
from distcondense.errors import UserError
from distcondense.outcomes.binary import Logistic, fit_xgb
from distcondense.outcomes.measures import auroc
from distcondense.privacy.budget import Budget
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.report.picture import alone
from distcondense.report.svg import draw
from distcondense.runs.figures import LINES, Figure, Series
from distcondense.runs.result import labelled_of

DELTA = 1e-5
PLANS: dict[str, dict[str, Any]] = {
    "adult": {"epsilons": (0.5, 1.0), "ipcs": (50, 100, 500)},
    "brfss": {"epsilons": (1.0,), "ipcs": (100, 1000)},
    "diabetes130": {"epsilons": (1.0,), "ipcs": (100, 500)},
    "seer": {"epsilons": (1.0, 2.5), "ipcs": (50, 100, 500)},
    "early": {"epsilons": (1.0,), "ipcs": (100, 500)},
    "proteomics": {"epsilons": (1.0, 2.5), "ipcs": (100,)},
    "curial": {"epsilons": (0.3, 1.0), "ipcs": (100,)},
}
TARGETS = {
    ("adult", 1.0, 100): {
        "xgb, soft": 0.906,
        "xgb": 0.888,
        "forest": 0.885,
        "logistic": 0.886,
        "svm": 0.868,
        "mlp": 0.870,
    },
    ("brfss", 1.0, 100): {"xgb": 0.816, "forest": 0.814, "logistic": 0.820, "svm": 0.810, "mlp": 0.816},
    ("diabetes130", 1.0, 500): {"svm": 0.60},
}
FULL_SIZE = {"adult": 17_000}  # rows of each class: a synthetic cohort as large as the real one
DRAWN, GROUPS = 20_000, 12


def load(name: str, prevalence: float, rows: int) -> Cohort:
    if name == "proteomics":
        from distcondense.data.datasets import load as simulated

        made = simulated("proteomics_like", rows=rows, prevalence=prevalence, seed=1)
        return Cohort.from_frame(made.frame, owned=True, **made.how)
    if name == "curial":
        from distcondense.data.datasets import load as simulated

        made = simulated("curial_like", site="PUH", seed=1)
        return Cohort.from_frame(made.frame, owned=True, **made.how)
    if name == "early":
        return early_events()
    return getattr(cohorts, name)(declared=True)


def early_events(rows: int = 9000) -> Cohort:
    """Simulated: half of the deaths in the first 60 of 2,029 days, everybody followed for 344 days at least."""
    rng = np.random.default_rng(1)
    age, score = np.clip(rng.normal(63, 15, rows), 18, 100).round(1), np.clip(rng.gamma(3.5, 11, rows), 0, 143).round()
    group = rng.choice(["failure", "heart", "lung", "cancer", "coma"], rows, p=[0.4, 0.2, 0.1, 0.2, 0.1])
    risk = 0.02 * (age - 63) + 0.025 * (score - 38) + (group == "coma") + 0.6 * (group == "cancer")
    dies = 260 * (rng.exponential(size=rows) * np.exp(-risk)) ** (1 / 0.45)
    leaves = rng.uniform(344, 2029, rows)
    days = np.clip(np.ceil(np.minimum(dies, leaves)), 1, 2029).astype(int)
    frame = pd.DataFrame(
        {"age": age, "score": score, "group": group, "days": days, "died": (dies <= leaves).astype(int)}
    )
    columns = (
        Column("age", "continuous", low=18, high=110, decimals=1),
        Column("score", "integer", low=0, high=150),
        Column("group", "categorical", categories=("failure", "heart", "lung", "cancer", "coma")),
        Column("days", "integer", low=0, high=2100),
        Column("died", "binary", categories=(0, 1)),
    )
    return Cohort.from_frame(frame, time="days", event="died", schema=Schema(columns, origin="declared"))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", choices=PLANS)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--prevalence", type=float, default=0.05, help="proteomics: share of cases")
    options.add_argument("--rows", type=int, default=25_000, help="proteomics: rows, a fifth of them for the test")
    options.add_argument(
        "--published", type=int, default=0, metavar="IPC", help="also the published method at this IPC"
    )
    options.add_argument("--epsilons", type=float, nargs="*", help="other ε (end-to-end) than the plan's")
    options.add_argument("--model", action="store_true", help="the private model alone, beside the default learner")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    plan = PLANS[said.data]
    cohort = load(said.data, said.prevalence, said.rows)
    name = f"private-{said.data}" + ("-model" if said.model else "")
    name += f"-{said.prevalence:g}" if said.data == "proteomics" else ""
    records = []
    if said.published:
        records = [r for r in record.read(name)["cells"] if not r["what"].startswith("published")]
    for seed in range(said.seeds):
        split = HoldoutSplit(0.2, entropy=seed).split(cohort)
        train, test = cohort.take(split.train), cohort.take(split.test)
        for cell in run(said.data, train, test, said.epsilons or plan["epsilons"], plan["ipcs"], seed, said):
            records.append({"seed": seed, **cell})
    text = table(said.data, records)
    print(f"# {said.data}: {cohort!r}, {said.seeds} seeds, δ = {DELTA:g}, ε end-to-end unless said otherwise\n\n{text}")
    record.write(name, {"options": vars(said), "cells": records}, seeds=said.seeds, text=text)


def run(
    data: str, train: Cohort, test: Cohort, epsilons: tuple[float, ...], ipcs: tuple[int, ...], seed: int, said: Any
) -> Iterator[dict[str, Any]]:
    threads = said.threads
    if said.published:
        result = dc.condense(train, method="published", ipc=said.published, epsilon=2.5, seed=seed, threads=threads)
        for name, score in students(result, train, test, seed, threads).items():
            yield {"what": "published, ε = 2.5 as-published", "ipc": said.published, "student": name, "score": score}
        return
    for name, score in full(train, test, seed, threads, alone=said.model).items():
        yield {"what": "full data", "student": name, "score": score}
    for epsilon in epsilons:
        started = time.perf_counter()
        model = dc.PrivateModel(epsilon=epsilon, delta=DELTA).fit(train)
        seconds = time.perf_counter() - started
        margin = model.decision_function(test.features)
        yield {
            "what": "private model",
            "epsilon_end_to_end": epsilon,
            "score": scored(test, model.model_.link, margin),
            "seconds": seconds,
            "no_answer": bool(model.privacy_.answer),
        }
        if said.model:
            continue
        if not model.privacy_.answer:
            for name, value in pairs(model.learned_, train, test, seed).items():
                yield {"what": "pairs", "epsilon_end_to_end": epsilon, "student": name, "score": value}
        sizes = [*ipcs, *([FULL_SIZE[data]] if data in FULL_SIZE and epsilon == 1.0 else [])]
        results = dc.condense(train, ipc=sizes, epsilon=epsilon, delta=DELTA, seed=seed, holdout=0.0, threads=threads)
        if train.outcome.kind.name == "survival" and not seed and not results[ipcs[0]].privacy.answer:
            picture(data, train, results)
        for ipc, result in results.items():
            cell = {"what": "condensed", "epsilon_end_to_end": epsilon, "ipc": ipc}
            if result.privacy.answer:
                yield {**cell, "student": "xgb", "score": None, "no_answer": True}
                continue
            for name, score in students(result, train, test, seed, threads).items():
                yield {**cell, "student": name, "score": score}
            if is_binary(train) and len(train.schema.columns) <= 128 and ipc in ipcs:
                yield {
                    "what": "naive Bayes sampler",
                    "epsilon_end_to_end": epsilon,
                    "ipc": ipc,
                    "student": "xgb",
                    "score": naive_bayes(train, test, epsilon, ipc, seed, threads),
                }
    for ipc in () if said.model else ipcs:
        rows = random_rows(train, ipc, seed)
        for name, score in full(train.take(rows), test, seed, threads).items():
            yield {"what": "random real rows", "ipc": ipc, "student": name, "score": score}


def is_binary(cohort: Cohort) -> bool:
    return cohort.outcome.kind.name == "binary"


def scored(test: Cohort, link: str, score: np.ndarray) -> float:
    return test.outcome.kind.score(link, score, test.outcome)


def full(train: Cohort, test: Cohort, seed: int, threads: int, *, alone: bool = False) -> dict[str, float]:
    """Models of real rows, all or a few; `alone`: by the default learner only."""
    kind = train.outcome.kind
    learners = {kind.learner().name: kind.learner()} if alone else kind.learners
    try:
        codec = Codec.fit(train.features, train.schema)
        X, X_test = codec.encode(train.features), codec.encode(test.features)
        return {
            name: scored(test, learner.link, learner.fit(X, train.outcome, seed=seed, threads=threads).scores(X_test))
            for name, learner in learners.items()
        }
    except UserError:  # a few rows may hold one class only
        return {}


def students(result: dc.Result, train: Cohort, test: Cohort, seed: int, threads: int) -> dict[str, float]:
    """Fresh models of the released rows, scored on real test rows."""
    X_test = design_of(test.features[[c.name for c in result.schema.columns]], result.schema)
    X, y, _ = result.training_data()
    centre, scale = X.mean(), X.std().replace(0, 1)
    rows, real = (((part - centre) / scale).to_numpy(np.float32) for part in (X, X_test))
    if not is_binary(test):
        return {**_survival(result, test, y, rows, real, seed, threads), **curves(result, train)}
    import xgboost as xgb
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC

    soft, risk, persons = result.soft_data()
    settings = {
        "objective": "binary:logistic",
        "max_depth": 5,
        "eta": 0.1,
        "subsample": 0.7,
        "seed": seed,
        "nthread": threads,
    }
    booster = xgb.train(settings, xgb.DMatrix(soft.to_numpy(), label=risk, weight=persons, nthread=threads), 100)
    out = {"xgb, soft": auroc(test.outcome["label"], booster.inplace_predict(X_test.to_numpy()))}
    plain = {
        "xgb": xgb.XGBClassifier(
            max_depth=5, learning_rate=0.1, subsample=0.7, n_estimators=100, random_state=seed, n_jobs=threads
        ),
        "forest": RandomForestClassifier(300, random_state=seed, n_jobs=threads),
        "logistic": LogisticRegression(max_iter=3000),
        "svm": SVC(),
        "mlp": MLPClassifier((32,), max_iter=500, random_state=seed),
    }
    asked = np.random.default_rng(seed).permutation(len(real))[:ASKED]  # an SVM of many rows is slow to ask
    for name, model in plain.items():
        if name in ("svm", "mlp") and len(rows) > 5000:
            continue
        model.fit(rows, y)
        at, label = (real[asked], test.outcome["label"][asked]) if name == "svm" else (real, test.outcome["label"])
        out[name] = auroc(label, model.decision_function(at) if name == "svm" else model.predict_proba(at)[:, 1])
    return out


ASKED = 20_000


def _survival(
    result: dc.Result, test: Cohort, y: Any, rows: np.ndarray, real: np.ndarray, seed: int, threads: int
) -> dict[str, float]:
    """Unweighted Cox and AFT, and how far an unweighted Kaplan-Meier curve is from that of real test patients."""
    time_name, event_name = result.outcome
    times, events = y[time_name].to_numpy(), y[event_name].to_numpy(np.int8)
    outcome = Outcome(result.kind, {"label": events, "time": times / float(np.median(times))})
    fitted = {
        name: learner.fit(rows, outcome, seed=seed, threads=threads) for name, learner in result.kind.learners.items()
    }
    out = {name: scored(test, model.link, model.scores(real)) for name, model in fitted.items()}
    at = np.linspace(0, float(test.outcome["time"].max()), 100)
    apart = np.abs(kaplan_meier(times, events, at) - kaplan_meier(*ends_of(test), at)).max()
    return {**out, "Kaplan-Meier, largest distance to test patients": float(apart)}


def curves(result: dc.Result, train: Cohort) -> dict[str, float]:
    """Rows and page against the patients of the run, at every time from the first percentile of events on.

    Where a hundredth of them are still followed, ten at least: a curve of fewer is a step or two.
    """
    time, event = ends_of(train)
    first, last = np.quantile(time[event == 1], 0.01), np.sort(time)[-max(10, len(time) // 100)]
    at = np.unique(time[(time >= first) & (time <= last)])
    patients, page = kaplan_meier(time, event, at), page_curve(result, at)
    made = labelled_of(result.frame, result.kind).outcome
    rows = kaplan_meier(made["time"], made["label"], at)
    pairs = {"rows": (rows, patients), "page": (page, patients), "rows to page": (rows, page)}
    return {f"Kaplan-Meier, largest distance, {who}": float(np.abs(a - b).max()) for who, (a, b) in pairs.items()}


def page_curve(result: dc.Result, at: np.ndarray) -> np.ndarray:
    (line,) = next(figure for figure in result.covered["model"] if figure.name == "lives").series
    return np.interp(at, np.array(line.x, float), line.y)


def ends_of(cohort: Cohort) -> tuple[np.ndarray, np.ndarray]:
    return cohort.outcome["time"], cohort.outcome["label"]


def kaplan_meier(time: np.ndarray, event: np.ndarray, at: np.ndarray) -> np.ndarray:
    from lifelines import KaplanMeierFitter

    return KaplanMeierFitter().fit(time, event).survival_function_at_times(at).to_numpy()


def picture(data: str, cohort: Cohort, results: dict[int, dc.Result]) -> None:
    """Rows, page and patients in one figure, survival-DATA.svg beside the result."""
    time, event = ends_of(cohort)
    at = np.unique(time)
    lines = [Series("patients", tuple(at.tolist()), tuple(kaplan_meier(time, event, at).tolist()))]
    for ipc, result in results.items():
        labelled = labelled_of(result.frame, result.kind).outcome
        curve = kaplan_meier(labelled["time"], labelled["label"], at)
        lines.append(Series(f"rows, IPC {ipc}", tuple(at.tolist()), tuple(curve.tolist())))
    lines.append(Series("page", tuple(at.tolist()), tuple(page_curve(next(iter(results.values())), at).tolist())))
    figure = Figure(
        "survival",
        LINES,
        f"{data}: rows, page and patients",
        "",
        "time",
        "share without the event",
        tuple(lines),
        y_range=(0.0, 1.0),
    )
    record.target().mkdir(parents=True, exist_ok=True)
    (record.target() / f"survival-{data}.svg").write_text(alone(str(draw(figure))), encoding="utf-8")


def pairs(learned: Any, train: Cohort, test: Cohort, seed: int) -> dict[str, float]:
    """Total variation over pairs of columns against real test rows: of drawn, of independent and of real ones."""
    from itertools import combinations

    from distcondense.methods.private.joint import coarse_cells

    rng, cells = np.random.default_rng(seed), learned.model.cells
    groups = [coarse_cells(p, np.arange(len(p)), c, GROUPS) for p, c in zip(learned.overall, cells, strict=True)]

    def coded(codes: np.ndarray) -> np.ndarray:
        return np.stack([group[codes[:, j]] for j, group in enumerate(groups)], axis=1)

    def real(cohort: Cohort) -> np.ndarray:
        return coded(np.stack([c.codes(cohort.features[c.column.name]).astype(int) for c in cells], axis=1))

    sizes, seen = [int(group.max()) + 1 for group in groups], real(test)
    drawn = learned.joint.draw(learned.marginals, DRAWN, rng)[0]
    ways = {
        "drawn rows": coded(drawn),
        "independent columns": coded(np.stack([rng.choice(len(p), DRAWN, p=p) for p in learned.overall], axis=1)),
        "real training rows": real(train),
    }
    out = {}
    for name, rows in ways.items():
        apart = []
        for i, j in combinations(range(len(cells)), 2):
            both = [
                np.bincount(part[:, i] * sizes[j] + part[:, j], minlength=sizes[i] * sizes[j]) / len(part)
                for part in (rows, seen)
            ]
            apart.append(float(np.abs(both[0] - both[1]).sum()) / 2)
        out[f"{name}, mean"], out[f"{name}, largest"] = float(np.mean(apart)), float(np.max(apart))
    named = {c.column.name: (j, [str(x) for x in c.column.categories]) for j, c in enumerate(cells)}
    if {"relationship", "sex"} <= set(named):
        (r, relation), (s, sex) = named["relationship"], named["sex"]
        for who, other in (("Husband", "Female"), ("Wife", "Male")):
            there = drawn[:, r] == next(k for k, x in enumerate(relation) if x.strip() == who)
            wrong = drawn[there, s] == next(k for k, x in enumerate(sex) if x.strip() == other)
            out[f"{other.lower()} {who.lower()}s"] = float(wrong.mean()) if there.any() else 0.0
    return out


def naive_bayes(train: Cohort, test: Cohort, epsilon: float, ipc: int, seed: int, threads: int) -> float:
    """The low-tech bar: private marginals per class with all of the budget, i.i.d. draws, hard labels."""
    cells = public_cells(train.schema, fine=16)
    budget = Budget.calibrate(epsilon=epsilon, delta=DELTA)
    codes = np.stack([c.codes(train.features[c.column.name]) for c in cells], axis=1)
    gate = PrivateTable(
        codes,
        [c.size for c in cells],
        train.outcome.arrays,
        names=train.schema.names,
        objective=Logistic(),
        budget=budget,
        ledger=Ledger(),
        person=train.person,
        rows_per_person=5,
    )
    rng = np.random.default_rng([seed, ipc])
    drawn = []
    for j in range(len(cells)):
        counts = np.maximum(gate.histogram((j,), by="label", mu=budget.mu / np.sqrt(len(cells))), 0) + 1e-9
        drawn.append(np.concatenate([rng.choice(counts.shape[1], ipc, p=row / row.sum()) for row in counts]))
    X = np.stack(drawn, axis=1).astype(np.float32)
    outcome = Outcome(train.outcome.kind, {"label": np.repeat([0, 1], ipc).astype(np.int8)})
    model = fit_xgb(X, outcome, seed=seed, threads=threads)
    X_test = np.stack([c.codes(test.features[c.column.name]) for c in cells], axis=1).astype(np.float32)
    return auroc(test.outcome["label"], model.scores(X_test))


def random_rows(train: Cohort, ipc: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, 0x4EA1])
    return np.concatenate([rng.permutation(np.flatnonzero(train.outcome["label"] == c))[:ipc] for c in (0, 1)])


def table(data: str, records: list[dict[str, Any]]) -> str:
    """Markdown, one row per way and student."""
    keys: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for r in records:
        keys.setdefault((r["what"], r.get("epsilon_end_to_end"), r.get("ipc"), r.get("student", "—")), []).append(r)
    lines = ["| what | ε end-to-end | IPC | student | score, mean ± sd | target | seconds |", "| --- " * 7 + "|"]
    for (what, epsilon, ipc, student), found in keys.items():
        values = np.array([r["score"] for r in found if r["score"] is not None], float)
        none = sum(bool(r.get("no_answer")) for r in found)
        score = f"{values.mean():.4f} ± {values.std(ddof=1) if len(values) > 1 else 0:.4f}" if len(values) else "—"
        score += f" (no answer in {none} of {len(found)} runs)" if none else ""
        target = TARGETS.get((data, epsilon, ipc), {}).get(student) if what == "condensed" else None
        seconds = [r["seconds"] for r in found if "seconds" in r]
        cells = [
            what,
            epsilon or "—",
            ipc or "—",
            student,
            score,
            f"≥ {target:.3f}" if target else "",
            f"{np.mean(seconds):.1f}" if seconds else "",
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
