"""Several classes and numbers as outcomes: `python -m benchmarks.outcomes obesity|readmission|stages|insurance|bmi`.

Or profiles, chapters: simulated like stages, with classes that are several profiles each, and with codes in chapters.

Every cell is the mean ± standard deviation over seeds on real test rows that nothing was fitted on: a fifth of the
persons, drawn anew for each seed, with fresh privacy noise. Macro one-vs-rest AUROC for classes, R² for numbers. All ε
are end-to-end at δ = 1e-5. At the same total ε stand: the private model itself; the floor (classes: a binary model for
each class against the rest, each with its share of the budget); a naive-Bayes sampler that spends everything on private
marginals by class or stratum, with hard labels. Where a plan names a larger ε, the private model at it stands beside an
additive model without privacy: XGBoost's of depth 1, with the number of rounds that is best on the test rows. Constants
of the method were set with these data sets in view, profiles and chapters apart.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import distcondense as dc
from benchmarks import cohorts, record
from distcondense.data.cells import public_cells
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.outcome import Goal, Outcome, kind_of
from distcondense.data.persons import HoldoutSplit
from distcondense.data.tables import read_table
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.methods.private.condense import open_gate
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.outcomes.base import Kind
from distcondense.privacy.budget import Budget
from distcondense.privacy.ledger import Ledger
from distcondense.runs.result import labelled_of

DELTA = 1e-5
MANY = 20_000  # rows from which on the full data train the default student alone: the others take minutes
ADDED = (50, 100, 200, 400, 800)  # rounds of an additive model without privacy
PLANS: dict[str, dict[str, Any]] = {
    "obesity": {"epsilon": 5.0, "ipcs": (50, 100, 200), "floor": True},
    "readmission": {"epsilon": 1.0, "ipcs": (50, 100, 200), "floor": True},
    "stages": {"epsilon": 1.0, "ipcs": (100,), "floor": True, "louder": 8.0},
    "profiles": {"epsilon": 1.0, "ipcs": (100,), "floor": False},
    "chapters": {"epsilon": 1.0, "ipcs": (100,), "floor": False, "louder": 8.0},
    "readmission-by-row": {"epsilon": 1.0, "ipcs": (200,), "floor": True},
    "insurance": {"epsilon": 5.0, "ipcs": (50, 100), "floor": False},
    "bmi": {"epsilon": 1.0, "ipcs": (50, 100), "floor": False},
}


def obesity() -> Cohort:
    """UCI obesity levels, 2,111 × 16, 7 classes."""
    schema = cohorts.schema_of("obesity")
    return Cohort.from_frame(read_table(cohorts.path_of("obesity_2111.csv")), target="NObeyesdad", schema=schema)


def stages(rows: int = 60_000) -> Cohort:
    """Simulated: 8 classes with shares from 0.26 to 0.003 on 13 columns that hang together; nobody's rows."""
    rng = np.random.default_rng(1)
    hidden, noise = rng.normal(size=(3, rows)), rng.normal(size=(9, rows))
    age = np.clip(62 + 14 * noise[0], 18, 100)
    inflamed, filtered, airless = hidden
    crp = np.exp(2.3 + 1.1 * (0.6 * inflamed + 0.8 * noise[1]))
    lactate = np.exp(0.4 + 0.45 * (0.7 * inflamed + 0.7 * noise[2]))
    albumin = 38 - 2 * inflamed + 4 * noise[3]
    egfr = np.clip(110 - 0.7 * (age - 20) + 14 * filtered + 8 * noise[4], 2, 150)
    systolic = 135 + 0.3 * (age - 60) + 18 * noise[5]
    saturation = np.clip(97 - 2.4 * np.maximum(airless, 0) + 1.2 * noise[6], 60, 100)
    haemoglobin = 132 + 6 * filtered + 14 * noise[7]
    sex, ward = rng.integers(0, 2, rows), rng.choice(5, rows, p=[0.4, 0.25, 0.2, 0.1, 0.05])
    smoking, diabetes = rng.choice(3, rows, p=[0.5, 0.3, 0.2]), rng.random(rows) < 0.15 + 0.1 * (age > 65)
    a, c, f, s = (age - 62) / 14, (np.log(crp) - 2.3) / 1.1, (egfr - 80) / 20, (systolic - 135) / 18
    sour, air = np.maximum((np.log(lactate) - 0.4) / 0.45, 0), np.maximum((97 - saturation) / 2, 0)
    score = np.stack(
        [
            0.3 - 0.8 * a - 0.5 * c,
            0.2 + 0.9 * a - 0.8 * np.abs(f) + 0.4 * sex,
            -0.4 + 1.3 * c - 0.4 * (albumin - 38) / 4.5 + 0.3 * (ward == 1),
            -0.8 + 1.2 * sour + 0.9 * air + 0.4 * (smoking == 2),
            -1.0 - 1.3 * f + 0.7 * diabetes,
            -1.8 + 1.5 * (np.abs(a) < 0.5) - 0.8 * c + (ward == 2) - 0.5 * s,
            -2.6 + 1.1 * s + 0.8 * diabetes + 0.7 * (smoking > 0) + 0.8 * np.sin(2 * np.pi * a / 3),
            -4.6 + 1.3 * air + 1.4 * (a > 1.2) + 0.9 * sour,
        ],
        axis=1,
    )
    label = np.argmax(1.3 * score + rng.gumbel(size=score.shape), axis=1)
    numbers = {  # column → its values, bounds, decimals
        "age": (age, 18, 100, 0),
        "crp": (crp, 0.1, 600, 1),
        "lactate": (lactate, 0.2, 25, 1),
        "albumin": (albumin, 10, 60, 0),
        "egfr": (egfr, 1, 150, 0),
        "haemoglobin": (haemoglobin, 20, 250, 0),
        "systolic": (systolic, 40, 280, 0),
        "saturation": (saturation, 60, 100, 0),
    }
    texts = {  # column → codes, categories
        "sex": (sex, ("f", "m")),
        "ward": (ward, tuple("abcde")),
        "smoking": (smoking, ("never", "past", "now")),
        "diabetes": (diabetes.astype(int), ("no", "yes")),
        "month": (rng.integers(0, 12, rows), tuple("JFMAYULGSOND")),
        "stage": (label, tuple("ABCDEFGH")),
    }
    return _simulated(numbers, texts, "stage")


def profiles(rows: int = 9000) -> Cohort:
    """Simulated: 8 classes, each of three profiles over ten numbers, so that no single column says much."""
    rng = np.random.default_rng(3)
    label = rng.choice(8, rows, p=[0.3, 0.22, 0.16, 0.12, 0.09, 0.06, 0.035, 0.015])
    centre = 1.25 * rng.normal(size=(8, 3, 10))
    mixed = 0.35 * rng.normal(size=(10, 10)) + np.eye(10)
    x = centre[label, rng.choice(3, rows, p=[0.5, 0.3, 0.2])] + 0.8 * rng.normal(size=(rows, 10)) @ mixed
    x[:, 3], x[:, 4], x[:, 5] = np.exp(x[:, 3]), np.exp(x[:, 4] / 2), x[:, 5] ** 2
    own, flag = rng.integers(0, 5, 8), (rng.random(rows) < 0.1 + 0.6 * (label >= 5)).astype(int)
    chapter = np.where(rng.random(rows) < 0.6, own[label], rng.integers(0, 5, rows))
    numbers = {f"x{j}": (x[:, j], np.floor(x[:, j].min()) - 1, np.ceil(x[:, j].max()) + 1, 2) for j in range(10)}
    texts = {
        "chapter": (chapter, tuple("ABCDE")),
        "code": (4 * chapter + rng.integers(0, 4, rows), tuple(f"{c}{k}" for c in "ABCDE" for k in range(4))),
        "sex": (rng.integers(0, 2, rows), ("f", "m")),
        "flag": (flag, ("no", "yes")),
        "profile": (label, tuple("stuvwxyz")),
    }
    return _simulated(numbers, texts, "profile")


def chapters(rows: int = 125_000) -> Cohort:
    """Simulated: 8 classes, one of them a 180th of the rows, of numbers and 30 codes in 6 chapters; rough, no line."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, 3)) @ rng.normal(size=(3, 8)) * 0.6 + 0.8 * rng.normal(size=(rows, 8))
    chapter = rng.choice(6, rows, p=[0.3, 0.25, 0.2, 0.12, 0.08, 0.05])
    code = 5 * chapter + rng.integers(0, 5, rows)
    score = (0.6 * rng.normal(size=(30, 8)) + np.repeat(0.6 * rng.normal(size=(6, 8)), 5, 0))[code]
    score += np.array([1.2, 1.0, 0.6, 0.3, 0.0, -0.6, -1.6, -3.6])
    curves = (lambda v: v, lambda v: np.abs(v) - 0.8, lambda v: np.tanh(2 * v), lambda v: np.sin(2 * v))
    for k in range(8):
        for j in range(8):
            score[:, k] += 0.7 * rng.normal() * curves[rng.integers(0, 4)](x[:, j] / 1.1)
        score[:, k] += 0.25 * x[:, k] * x[:, (k + 3) % 8]
    label = np.argmax(1.2 * score + rng.gumbel(size=score.shape), axis=1)
    numbers = {f"x{j}": (x[:, j], -8.0, 8.0, 2) for j in range(8)}
    texts = {
        "chapter": (chapter, tuple("ABCDEF")),
        "code": (code, tuple(f"{c}{k}" for c in "ABCDEF" for k in range(5))),
        "sex": (rng.integers(0, 2, rows), ("f", "m")),
        "week": (rng.integers(0, 7, rows), tuple("abcdefg")),
        "group": (label, tuple("stuvwxyz")),
    }
    return _simulated(numbers, texts, "group")


def _simulated(numbers: dict[str, Any], texts: dict[str, Any], target: str) -> Cohort:
    """`numbers`: column → values, bounds, decimals; `texts`: column → codes, categories."""
    frame = {name: np.clip(values, low, high).round(d) for name, (values, low, high, d) in numbers.items()}
    frame |= {name: np.array(labels)[codes] for name, (codes, labels) in texts.items()}
    columns = [dc.Column(n, "continuous", low=low, high=high, decimals=d) for n, (_, low, high, d) in numbers.items()]
    columns += [
        dc.Column(n, "binary" if len(labels) == 2 else "categorical", categories=labels)
        for n, (_, labels) in texts.items()
    ]
    return Cohort.from_frame(pd.DataFrame(frame), target=target, schema=dc.Schema(tuple(columns)))


def insurance() -> Cohort:
    """Medical cost personal data, 1,338 × 6: charges."""
    schema = cohorts.schema_of("insurance")
    return Cohort.from_frame(read_table(cohorts.path_of("insurance_1338.csv")), target="charges", schema=schema)


def readmission(by_row: bool = False) -> Cohort:
    """Diabetes-130, 101,766 encounters of 71,518 patients: readmitted never, later or within 30 days."""
    binary = cohorts.diabetes130()
    text = pd.read_csv(cohorts.path_of("diabetes130_readmission.csv.gz"), usecols=["readmitted"], keep_default_na=False)
    column = dc.Column("readmitted", "categorical", categories=("NO", ">30", "<30"))
    kind = kind_of(Goal.from_roles(target="readmitted"), dc.Schema((column,)))
    outcome = kind.read(text)
    return replace(binary, outcome=outcome, person=None if by_row else binary.person)


def bmi() -> Cohort:
    """CDC BRFSS 2015, 253,680 answers: body mass index from everything else."""
    frame = read_table(cohorts.path_of("brfss2015_diabetes_binary.csv.gz"))
    return Cohort.from_frame(frame, target="BMI", schema=cohorts.schema_of("brfss"))


LOADERS = {
    "obesity": obesity,
    "insurance": insurance,
    "readmission": readmission,
    "stages": stages,
    "profiles": profiles,
    "chapters": chapters,
    "bmi": bmi,
    "readmission-by-row": lambda: readmission(by_row=True),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", choices=PLANS)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--threads", type=int, default=2)
    said = options.parse_args()
    warnings.simplefilter("ignore")
    plan, cohort = PLANS[said.data], LOADERS[said.data]()
    records = []
    for seed in range(said.seeds):
        split = HoldoutSplit(0.2, seed).split(cohort)
        train, test = cohort.take(split.train), cohort.take(split.test)
        for cell in run(train, test, plan, seed, said.threads):
            records.append({"seed": seed, **cell})
            print(json.dumps(records[-1]), flush=True)
    text = table(records)
    print(f"\n# {said.data}: {cohort!r}, {said.seeds} seeds, ε = {plan['epsilon']:g} end-to-end, δ = {DELTA:g}\n")
    print(text)
    results = {"options": vars(said), "epsilon_end_to_end": plan["epsilon"], "cells": records}
    record.write(f"outcomes-{said.data}", results, seeds=said.seeds, text=text)


def run(train: Cohort, test: Cohort, plan: dict[str, Any], seed: int, threads: int) -> Iterator[dict[str, Any]]:
    epsilon, kind = plan["epsilon"], train.outcome.kind
    for student in kind.learners if len(train) < MANY else [kind.learner().name]:
        yield {"what": "full data", "student": student, "score": real(train, test, student, seed, threads)}
    started = time.perf_counter()
    model = dc.PrivateModel(epsilon=epsilon, delta=DELTA).fit(train)
    seconds = time.perf_counter() - started
    margin = model.decision_function(test.features)
    yield {
        "what": "private model",
        "score": kind.score(model.model_.link, margin, test.outcome),
        "seconds": seconds,
        "no_answer": bool(model.privacy_.answer),
    }
    if "louder" in plan:
        loud = dc.PrivateModel(epsilon=plan["louder"], delta=DELTA).fit(train)
        score = kind.score(loud.model_.link, loud.decision_function(test.features), test.outcome)
        yield {"what": f"private model, ε = {plan['louder']:g}", "score": score}
        yield {"what": "additive, not private", "score": additive(train, test, seed, threads)}
    if plan["floor"]:
        yield {"what": "floor: one-vs-rest, shared budget", "score": floor(train, test, epsilon)}
    for ipc in plan["ipcs"]:
        started = time.perf_counter()
        result = dc.condense(train, ipc=ipc, epsilon=epsilon, delta=DELTA, seed=seed, holdout=0.0, threads=threads)
        seconds = time.perf_counter() - started
        if result.privacy.answer:
            yield {"what": "condensed", "ipc": ipc, "score": None, "no_answer": True, "seconds": seconds}
            continue
        for student in kind.learners:
            for soft in (True, False):
                score = condensed(result, train, test, student, soft, seed, threads)
                yield {
                    "what": "condensed" if soft else "condensed, plain outcome",
                    "ipc": ipc,
                    "student": student,
                    "score": score,
                    "seconds": seconds,
                }
        yield {
            "what": "naive Bayes sampler",
            "ipc": ipc,
            "student": "xgb",
            "score": naive_bayes(train, test, epsilon, ipc, seed, threads),
        }
        made = labelled_of(result.frame, result.kind).outcome
        some = train.take(kind.alike(train.outcome, made, np.random.default_rng([seed, 0x4EA1])))
        for student in kind.learners:
            yield {
                "what": "random real rows",
                "ipc": ipc,
                "student": student,
                "score": real(some, test, student, seed, threads),
            }


def scored(kind: Kind, model: Any, rows: Any, test: Cohort) -> float:
    return kind.score(model.link, model.scores(rows), test.outcome)


def real(train: Cohort, test: Cohort, student: str, seed: int, threads: int) -> float:
    """A model of real rows, all or a few."""
    codec, kind = Codec.public(train.schema), train.outcome.kind
    model = kind.learner(student).fit(codec.encode(train.features), train.outcome, seed=seed, threads=threads)
    return scored(kind, model, codec.encode(test.features), test)


def additive(train: Cohort, test: Cohort, seed: int, threads: int) -> float:
    """XGBoost's trees of one split each, after as many rounds as the test rows like best: a bar, not a model."""
    import xgboost as xgb

    codec, kind = Codec.public(train.schema), train.outcome.kind
    rows = xgb.DMatrix(codec.encode(train.features), label=train.outcome["label"])
    settings = {"objective": "multi:softprob", "num_class": len(kind.labels), "max_depth": 1, "eta": 0.5}
    booster = xgb.train({**settings, "subsample": 0.7, "seed": seed, "nthread": threads}, rows, max(ADDED))
    asked = xgb.DMatrix(codec.encode(test.features))
    answers = (booster.predict(asked, iteration_range=(0, rounds)) for rounds in ADDED)
    return max(kind.score("probabilities", answer, test.outcome) for answer in answers)


def condensed(
    result: dc.Result, train: Cohort, test: Cohort, student: str, soft: bool, seed: int, threads: int
) -> float:
    """A fresh model of the released rows, with the soft labels or as a naive recipient takes the outcome column."""
    home = EvaluationInput.from_result(train, result)
    labelled, kind = home.labelled, train.outcome.kind
    how = {"weight": labelled.weight, "soft": labelled.soft} if soft else {}
    model = kind.learner(student).fit(home.rows, labelled.outcome, seed=seed, threads=threads, **how)
    return scored(kind, model, home.codec.encode(test.features), test)


def floor(train: Cohort, test: Cohort, epsilon: float) -> float:
    """One binary private model for each class against the rest; μ² is shared equally, so that all cost ε together."""
    from distcondense.outcomes.binary import Binary

    classes = len(train.outcome.kind.labels)
    answers = np.zeros((len(test), classes))
    for k in range(classes):
        label = (train.outcome["label"] == k).astype(np.int8)
        one = replace(train, outcome=Outcome(Binary(("class",)), {"label": label}))
        options = PrivateOptions(epsilon=epsilon, delta=DELTA)
        public = prepare(one.facts, options)
        share = replace(public, budget=replace(public.budget, mu=public.budget.mu / np.sqrt(classes)))
        gate = open_gate(one, HoldoutSplit(0.0, 1), share, Ledger())
        learned = fit_private(gate, share.cells, share.plan, share.side)
        answers[:, k] = share.side.expected(learned.model.margin(learned.model.codes(test.features)))
    return train.outcome.kind.score("probabilities", answers, test.outcome)


def naive_bayes(train: Cohort, test: Cohort, epsilon: float, ipc: int, seed: int, threads: int) -> float:
    """The low-tech bar: private marginals by group with all of the budget, i.i.d. draws, hard labels."""
    kind = train.outcome.kind
    options = PrivateOptions(epsilon=epsilon, delta=DELTA)
    public = prepare(train.facts, options)
    cells = public_cells(train.schema, fine=16)
    budget = Budget.calibrate(epsilon=epsilon, delta=DELTA)
    gate = open_gate(train, HoldoutSplit(0.0, 1), replace(public, cells=cells, budget=budget), Ledger())
    spent, groups, value = 0.0, public.side.groups, None
    if public.side.grouping == "stratum":  # strata and their means come from the outcome's own histogram
        from distcondense.methods.private.fit import PlannedQueries

        asking = PlannedQueries(gate, public.plan)
        facts, objective = public.side.begin(asking), gate.objective
        spent, groups = public.plan.own["outcome"], objective.groupings["stratum"]
        edges = np.array([objective.low, *objective.cuts, objective.high])
        value = (edges[1:] + edges[:-1]) / 2
        value[-1] = min(value[-1], facts["centre"] + 2 * facts["unit"])  # a long tail's middle is far from its mean
    rng = np.random.default_rng([seed, ipc])
    drawn = []
    for j in range(len(cells)):
        counts = gate.histogram((j,), by=public.side.grouping, mu=budget.mu * np.sqrt((1 - spent) / len(cells)))
        counts = np.maximum(counts, 0) + 1e-9
        drawn.append(np.concatenate([rng.choice(counts.shape[1], ipc, p=row / row.sum()) for row in counts]))
    group = np.repeat(np.arange(groups), ipc)
    arrays = {"label": group} if value is None else {"value": value[group]}
    X, X_test = np.stack(drawn, axis=1), np.stack([c.codes(test.features[c.column.name]) for c in cells], axis=1)
    model = kind.learner().fit(X.astype(np.float32), Outcome(kind, arrays), seed=seed, threads=threads)
    return scored(kind, model, X_test.astype(np.float32), test)


def table(records: list[dict[str, Any]]) -> str:
    """Markdown, one row per way and student."""
    keys: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for r in records:
        keys.setdefault((r["what"], r.get("ipc"), r.get("student", "—")), []).append(r)
    lines = ["| what | IPC | student | score, mean ± sd | seconds |", "| --- " * 5 + "|"]
    for (what, ipc, student), found in keys.items():
        values = np.array([r["score"] for r in found if r["score"] is not None], float)
        none = sum(bool(r.get("no_answer")) for r in found)
        score = f"{values.mean():.4f} ± {values.std(ddof=1) if len(values) > 1 else 0:.4f}" if len(values) else "—"
        score += f" (no answer in {none} of {len(found)} runs)" if none else ""
        seconds = [r["seconds"] for r in found if "seconds" in r]
        cells = [what, ipc or "—", student, score, f"{np.mean(seconds):.1f}" if seconds else ""]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
