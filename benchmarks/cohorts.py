"""The real data sets beside the project, as cohorts. They are not part of the product and never committed."""

from __future__ import annotations

import sys
from pathlib import Path

from distcondense import Cohort
from distcondense.tables import read_table

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def _table(name: str):
    path = DATA / name
    if not path.exists():
        sys.exit(f"this benchmark needs the data set {name} in ../shared/data, which is not there")
    return read_table(path)


def seer() -> Cohort:
    """SEER breast, 4,024 patients: months until death."""
    frame = _table("seer_breast_4024.csv").rename(columns=str.strip)
    return Cohort.from_frame(frame, time="Survival Months", event="Status", positive="Dead")


def adult() -> Cohort:
    """UCI Adult, 48,842 people: income above 50K. `education` repeats `education-num`; `split` is not a feature."""
    frame = _table("adult_48842.csv.gz").drop(columns=["split", "education"])
    return Cohort.from_frame(frame, target="income", positive=">50K")
