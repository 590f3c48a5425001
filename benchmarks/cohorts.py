"""The real data sets beside the project, as cohorts. They are not part of the product and never committed.

`declared=True` gives the schema of benchmarks/schemas (public knowledge about each data set), which the private
method needs; without it the schema is inferred, as the published method's benchmarks do.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from distcondense import Cohort, Schema
from distcondense.data.tables import read_table

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SCHEMAS = Path(__file__).parent / "schemas"
CHAPTERS = (  # ICD-9: last code of each chapter
    (139, "infectious"), (239, "neoplasms"), (279, "endocrine"), (289, "blood"), (319, "mental"), (389, "nervous"),
    (459, "circulatory"), (519, "respiratory"), (579, "digestive"), (629, "genitourinary"), (679, "pregnancy"),
    (709, "skin"), (739, "musculoskeletal"), (759, "congenital"), (779, "perinatal"), (799, "symptoms"),
    (999, "injury"),
)  # fmt: skip


def path_of(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        sys.exit(f"this benchmark needs the data set {name} in ../shared/data, which is not there")
    return path


def schema_of(name: str, declared: bool = True) -> Schema | None:
    return Schema.from_toml(SCHEMAS / f"{name}.toml") if declared else None


def seer(declared: bool = False) -> Cohort:
    """SEER breast, 4,024 patients: months until death."""
    frame = read_table(path_of("seer_breast_4024.csv")).rename(columns=str.strip)
    return Cohort.from_frame(
        frame, time="Survival Months", event="Status", positive="Dead", schema=schema_of("seer", declared)
    )


def adult(declared: bool = False) -> Cohort:
    """UCI Adult, 48,842 people: income above 50K. `education` repeats `education-num`; `split` is not a feature."""
    frame = read_table(path_of("adult_48842.csv.gz")).drop(columns=["split", "education"])
    if declared:
        frame = frame.replace("?", None)
    return Cohort.from_frame(frame, target="income", positive=">50K", schema=schema_of("adult", declared))


def brfss(declared: bool = True) -> Cohort:
    """CDC BRFSS 2015, 253,680 answers: diabetes."""
    frame = read_table(path_of("brfss2015_diabetes_binary.csv.gz"))
    return Cohort.from_frame(frame, target="Diabetes_binary", schema=schema_of("brfss", declared))


def diabetes130(declared: bool = True) -> Cohort:
    """Diabetes-130, 101,766 encounters of 71,518 patients: readmitted within 30 days. 45 columns, by person."""
    return Cohort.from_frame(
        diabetes130_frame(),
        target="readmitted",
        positive="<30",
        person_id="patient_nbr",
        schema=schema_of("diabetes130", declared),
    )


def diabetes130_frame() -> pd.DataFrame:
    """The published table with an outcome of two values, numbers for classes of numbers, chapters for diagnoses."""
    frame = pd.read_csv(path_of("diabetes130_readmission.csv.gz"), keep_default_na=False, low_memory=False)
    frame["readmitted"] = frame["readmitted"].where(frame["readmitted"] == "<30", "no")
    frame["age"] = frame["age"].map(_middle)
    frame["weight_kg"] = frame["weight"].map(lambda text: None if text == "?" else _middle(text)).astype("float64")
    for name in ("diag_1", "diag_2", "diag_3"):
        frame[name] = frame[name].map(_chapter)
    return frame.drop(columns=["encounter_id", "weight", "examide", "citoglipton"]).replace("?", None)


def _middle(text: str) -> float:
    """The middle of a class such as [70-80); ">200" is an open one."""
    if text.startswith(">"):
        return float(text[1:]) + 12
    low, high = text.strip("[)").split("-")
    return float((int(low) + int(high)) // 2)


def _chapter(code: str) -> str:
    if code == "?":
        return code
    if code[0] in "EV":
        return {"E": "external", "V": "supplementary"}[code[0]]
    number = int(float(code))
    return "diabetes" if number == 250 else next(name for last, name in CHAPTERS if number <= last)
