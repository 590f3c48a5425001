"""A report with a part of every section and a figure of every kind. No number of it is a patient's."""

from __future__ import annotations

import json
import math
from typing import Any

from distcondense.data.schema import Column
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, SOFT, Score
from distcondense.evaluation.section import Section
from distcondense.privacy.statement import Privacy
from distcondense.report.release_page import schema_rows
from distcondense.runs.figures import BARS, DOTS, HEAT, LINES, STEPS, Figure, Series, Table
from distcondense.runs.files import plain

COLUMNS = ("age", "C-reactive protein, first of the stay", "smoker", "stage", "systolic pressure", "ward")


def wave(number: int, at: float = 0.7, by: float = 0.2) -> float:
    """Numbers that look measured and are always the same."""
    return at + by * math.sin(1.7 * number + 0.3)


def series(name: str, x: Any, number: int, *, spread: float = 0.0, at: float = 0.7, by: float = 0.2) -> Series:
    y = tuple(wave(number * 7 + i, at, by) for i in range(len(x)))
    low, high = (tuple(v + s * spread for v in y) if spread else None for s in (-1, 1))
    return Series(name, tuple(x), y, low, high)


# -- a figure of every kind -------------------------------------------------------------------------------------------

MONTHS = tuple(range(0, 61, 2))


def falling(name: str, rate: float) -> Series:
    y = tuple(math.exp(-rate * month / 60) for month in MONTHS)
    low, high = (
        tuple(min(max(v + s * 0.02 * (1 + m / 40), 0), 1) for v, m in zip(y, MONTHS, strict=True)) for s in (-1, 1)
    )
    return Series(name, MONTHS, y, low, high)


BY_STUDENT = Figure(
    "students",
    BARS,
    "Every student of the condensed rows lies between floor and ceiling",
    "AUROC on held-out real rows, with 95% intervals.",
    "student",
    "AUROC",
    tuple(
        series(
            way, ("XGBoost", "LightGBM", "forest", "SVM", "logistic", "MLP"), i, spread=0.03, at=0.8 - i / 20, by=0.03
        )
        for i, way in enumerate(("real rows", "condensed", "random real rows"))
    ),
    at=(("chance", 0.5),),
    y_range=(0.5, 1.0),
)
RELIABILITY = Figure(
    "reliability",
    LINES,
    "Predicted risks are close to observed ones",
    "On the diagonal, a risk of 20% means one in five.",
    "predicted risk",
    "observed share",
    (
        Series(
            "real rows",
            (0.05, 0.2, 0.4, 0.6, 0.8),
            (0.06, 0.22, 0.39, 0.58, 0.83),
            (0.03, 0.18, 0.33, 0.5, 0.75),
            (0.1, 0.27, 0.45, 0.66, 0.9),
        ),
        Series(
            "condensed",
            (0.06, 0.21, 0.41, 0.62, 0.79),
            (0.1, 0.25, 0.36, 0.52, 0.71),
            (0.05, 0.2, 0.3, 0.44, 0.62),
            (0.16, 0.3, 0.43, 0.6, 0.8),
        ),
    ),
    diagonal=True,
    x_range=(0.0, 1.0),
    y_range=(0.0, 1.0),
)
SURVIVAL = Figure(
    "kaplan_meier",
    STEPS,
    "Survival by risk group",
    "Kaplan–Meier curves with 95% bands; real and condensed rows.",
    "months",
    "share alive",
    (
        falling("low risk, real", 0.3),
        falling("low risk, condensed", 0.36),
        falling("high risk, real", 1.4),
        falling("high risk, condensed", 1.25),
    ),
    y_range=(0.0, 1.0),
)
HAZARDS = Figure(
    "hazards",
    DOTS,
    "Hazard ratios agree",
    "Dots with 95% intervals; those of real and condensed rows should overlap.",
    "column",
    "hazard ratio",
    tuple(series(name, COLUMNS, i, spread=0.25, at=1.2, by=0.5) for i, name in enumerate(("real", "condensed"))),
    at=(("no effect", 1.0),),
)
PAIRS = Figure(
    "pairs",
    HEAT,
    "Correlations differ little",
    "Correlation in condensed rows less that in real rows.",
    "column",
    "difference",
    tuple(
        Series(a, COLUMNS, tuple(math.nan if i == j else wave(i + j, 0.0, 0.3) for j in range(len(COLUMNS))))
        for i, a in enumerate(COLUMNS)
    ),
)
IMPORTANCE = Figure(
    "importance",
    BARS,
    "The same columns matter",
    "Mean |SHAP|, scaled to the largest.",
    "column",
    "importance",
    tuple(
        series(name, COLUMNS, i, at=0.5, by=0.4)
        for i, name in enumerate(("student of real rows", "student of condensed rows"))
    ),
)
HISTOGRAM = Figure(
    "age",
    BARS,
    "Age",
    "Counts with noise.",
    "years",
    "rows",
    (
        Series(
            "measured",
            tuple(range(20, 95, 3)),
            tuple(400 * math.exp(-(((a - 62) / 18) ** 2)) for a in range(20, 95, 3)),
        ),
    ),
)
BY_SIZE = Figure(
    "sizes",
    LINES,
    "More rows help",
    "Mean over seeds, 95% intervals.",
    "rows per class",
    "AUROC",
    tuple(
        series(name, (10, 50, 100, 500, 1000), i, spread=0.02, at=0.75, by=0.05)
        for i, name in enumerate(("ε = 1 (end-to-end)", "ε = 4 (end-to-end)", "random real rows"))
    ),
    at=(("all real rows", 0.83),),
)
NEAREST = Figure(
    "nearest",
    LINES,
    "Condensed rows are no nearer to patients than other patients are",
    "Cumulative share of rows by the distance to their nearest real row.",
    "distance",
    "share of rows",
    tuple(
        Series(name, tuple(i / 50 for i in range(100)), tuple(1 - math.exp(-((i / 50) ** 2) * k) for i in range(100)))
        for name, k in (("real to real", 2.0), ("condensed to real", 1.4))
    ),
    y_range=(0.0, 1.0),
)
EVERY_KIND = (BY_STUDENT, RELIABILITY, SURVIVAL, HAZARDS, PAIRS, IMPORTANCE, HISTOGRAM, BY_SIZE, NEAREST)


# -- scores and parts -------------------------------------------------------------------------------------------------


def score(measure: str, trained_on: str, value: float, **more: Any) -> Score:
    given = {
        "tested_on": "held out",
        "low": value - 0.03,
        "high": value + 0.03,
        "n": 1460,
        "covered": False,
        "rows": 540,
        "interval": "DeLong",
    } | more
    return Score(measure, trained_on, value=value, **given)


def quick() -> list[Score]:
    ways = ((FULL, 0.861, ""), (CONDENSED, 0.824, PLAIN), (CONDENSED, 0.838, SOFT), (RANDOM, 0.747, ""))
    return [
        score(
            measure,
            way,
            value - less,
            labels=labels,
            rows=540 if way == FULL else 100,
            student="xgboost",
            threshold=0.31,
        )
        for measure, less in (("auroc", 0.0), ("balanced_accuracy", 0.06), ("brier", 0.7))
        for way, value, labels in ways
    ]


def attack(measure: str, value: float, **more: Any) -> Score:
    return score(
        measure,
        CONDENSED,
        value,
        **({"ceiling": 0.62, "power": 0.56, "luck": 0.3, "n": 2000, "group": "all targets"} | more),
    )


def parts() -> list[Section]:
    students = ("xgboost", "lightgbm", "forest", "svm", "logistic", "mlp")
    utility = tuple(
        score(measure, way, wave(i + j, at, 0.02), student=student, labels=labels)
        for i, student in enumerate(students)
        for way, labels, at in ((FULL, "", 0.86), (CONDENSED, PLAIN, 0.82), (CONDENSED, SOFT, 0.83), (RANDOM, "", 0.75))
        for j, measure in enumerate(("auroc", "auprc", "sensitivity", "specificity", "ppv", "npv", "brier"))
    )
    holes = (
        score("ppv", CONDENSED, math.nan, low=math.nan, high=math.nan, group="sex = F", note="nobody was flagged"),
    )
    groups = tuple(
        score("auroc", way, wave(i, 0.8, 0.04), group=group)
        for i, group in enumerate(("sex = F", "sex = M", "ward = ICU"))
        for way in (FULL, CONDENSED)
    )
    columns = tuple(
        score(measure, CONDENSED, abs(wave(i + j, 0.05, 0.04)), group=column, interval="200 resamples")
        for i, column in enumerate(COLUMNS)
        for j, measure in enumerate(("ks", "tv"))
    )
    curve = Table(
        "at_risk",
        "Numbers at risk",
        ("group", "0", "20", "40", "60 months"),
        (
            ("low risk, real", 270, 231, 190, 88),
            ("low risk, condensed", 50, 41, 30, 12),
            ("high risk, real", 270, 120, 41, "<10"),
        ),
    )
    attacks = (
        attack("attack_auroc", 0.513, low=0.49, high=0.536),
        attack("attack_auroc", 0.55, low=0.47, high=0.63, group="most vulnerable tenth", n=200),
        attack("attack_tpr", 0.11, ceiling=0.21, power=0.14, low=0.09, high=0.13),
    )
    return [
        Section(
            "membership",
            "Membership (15 distances, gradient boosting)",
            attacks,
            (NEAREST,),
            (),
            ("attacked: 1,000 of 1,460 members",),
            {
                "attack_auroc": "AUROC of the attack (0.5: chance)",
                "attack_tpr": "Members found at 10% false alarms (0.1: chance)",
            },
            {"targets": 1000},
        ),
        Section(
            "lira",
            "Likelihood ratio with shadow runs",
            (attack("attack_auroc", 0.71, low=0.68, high=0.74, luck=1e-9),),
            (),
            (),
            (),
            {},
            {},
        ),
        Section(
            "utility",
            "Train on condensed rows, test on real ones",
            utility,
            (BY_STUDENT, RELIABILITY),
            (),
            ("on a random 5,000 of 123,456 rows",),
            {},
            {"rows": 5000},
        ),
        Section("curves", "Survival by risk group", (), (SURVIVAL,), (curve,), ()),
        Section(
            "subgroups", "By subgroup", groups + holes, (), (), ("groups of fewer than 50 test rows are left out",)
        ),
        Section(
            "interpretation",
            "What the students look at",
            (score("rank_correlation", CONDENSED, 0.91),),
            (IMPORTANCE,),
            (),
            (),
            {"rank_correlation": "Rank correlation of importances (1: same)"},
        ),
        Section("hazards", "Hazard ratios", (), (HAZARDS,), (), ()),
        Section(
            "fidelity",
            "Columns and pairs",
            columns,
            (PAIRS, HISTOGRAM),
            (),
            (),
            {"ks": "KS distance (0: same)", "tv": "Total variation (0: same)"},
        ),
        Section(
            "copies",
            "Copy check",
            (score("dcr_median", CONDENSED, 1.31, interval="200 resamples"),),
            (),
            (),
            ("Exact matches: 0.",),
            {"dcr_median": "Median distance to the closest real row"},
        ),
    ]


# -- reports ----------------------------------------------------------------------------------------------------------


def privacy() -> Privacy:
    curve = tuple((i / 40, max(0.0, (1 - i / 40) ** 1.45)) for i in range(41))
    entry = {
        "kind": "gaussian",
        "query": "histogram",
        "columns": ["age"],
        "cells": 40,
        "cost": 0.1,
        "noise": 10.5,
        "picks": 1,
        "sensitivity": 1.0,
        "by": "label",
        "unit": "person",
        "run": "a",
        "delta": 0.0,
    }
    return Privacy(
        "end-to-end",
        "toy",
        0.9812,
        1e-5,
        "add or remove one person",
        "the operating system",
        "person",
        ledger=[entry] * 3,
        public=("the schema", "the settings"),
        not_covered=("what many people have in common", "other releases"),
        trade_off=curve,
        membership_advantage=0.21,
    )


def internal() -> dict[str, Any]:
    """As `internal/report.json` holds it."""
    said = privacy()
    words = {"short": said.short(), "sentence": said.sentence(), "paragraph": said.paragraph()}
    return as_json(
        {
            "format": 1,
            "run": {
                "name": "icu-2026",
                "method": "toy",
                "outcome": {"kind": "of two classes", "columns": ["died"]},
                "made": "2026-11-16",
                "version": "0.1.0",
                "rows_real": 123456,
                "rows_condensed": 100,
                "columns": 6,
            },
            "privacy": {**said.to_dict(), **words},
            "verdict": [
                "A model of the condensed rows reaches 0.838 AUROC on real patients; one of all real rows 0.861.",
                "No leak was found by six of seven attacks at this power.",
            ],
            "quick": [one.to_dict() for one in quick()],
            "parts": [part.to_dict() for part in parts()],
            "made_with": {
                "timings": {"read": 1.2, "condense": 31.5, "evaluate": 4.25, "total": 37.2},
                "settings": {"ipc": 50, "seed": 0, "holdout": 0.2, "categories_checked": []},
                "versions": {"python": "3.11.7", "numpy": "2.4.6"},
                "warnings": ["Two columns were not in the schema and were left out."],
                "odometer": "One run read these patients: ε = 0.982 (end-to-end, δ = 1e-05).",
            },
        }
    )


def release() -> dict[str, Any]:
    return as_json(
        {
            "format": 1,
            "name": "icu-2026",
            "privacy": {**privacy().to_dict(), "software": {"version": "0.1.0", "commit": None}},
            "schema": schema_rows(
                (
                    Column("age", "integer", unit="years", low=0, high=120),
                    Column("stage", "categorical", categories=("I", "II", "III")),
                    Column("icd", "categorical", categories=tuple(f"C{i:02d}" for i in range(80))),
                    Column("crp", "continuous", unit="mg/L", low=0, high=400.5),
                )
            ),
            "outcome": "died is the label; weight says how many patients a row stands for.",
            "rows": 100,
            "model": [_as_dict(IMPORTANCE), _as_dict(BY_SIZE)],
            "marginals": [_as_dict(HISTOGRAM)],
            "pairs": [_as_dict(PAIRS)],
            "ledger": [
                {"question": "histogram", "columns": ["age"], "cells": 40, "noise": 10.47},
                {"question": "sums", "columns": ["age", "stage"], "cells": 120, "noise": 9.8},
            ],
            "rules": ["systolic >= diastolic", 'if sex == "male" then pregnant == "no"'],
            "use": [
                "Read the table and train with its weights:",
                "    import pandas as pd",
                '    rows = pd.read_parquet("condensed.parquet")',
                "Weights matter.",
            ],
        }
    )


def study() -> dict[str, Any]:
    return as_json(
        {
            "format": 1,
            "name": "four-hospitals",
            "made": "2026-11-16",
            "version": "0.1.0",
            "finished": 22,
            "cells": 24,
            "verdict": ["At ε = 1 (end-to-end) 100 rows reach 96% of the ceiling."],
            "read": {"icu": "read by 12 cells through the gate; all that was read: ε = 3.2 (end-to-end, δ = 1e-05)"},
            "titles": {"auroc": "AUROC", "ipc": "IPC"},
            "grid": [
                {
                    "cohort": cohort,
                    "method": "toy",
                    "epsilon": f"ε = {e} (end-to-end)",
                    "ipc": ipc,
                    "seeds": 3,
                    "auroc": [wave(ipc + e), wave(ipc + e) - 0.02, wave(ipc + e) + 0.02],
                }
                for cohort in ("icu", "wards")
                for e in (1, 4)
                for ipc in (10, 50, 100)
            ],
            "figures": [_as_dict(BY_SIZE), _as_dict(BY_STUDENT)],
            "failed": {"icu-toy-7": "the budget does not pay for what was asked"},
        }
    )


def as_json(data: Any) -> Any:
    """Through a file and back."""
    return json.loads(json.dumps(plain(data), allow_nan=False))


def _as_dict(figure: Figure) -> Any:
    from dataclasses import asdict

    return asdict(figure)
