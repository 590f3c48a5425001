"""Tables that a study cannot read as they are published: `python -m benchmarks.tables [--where DIR]`.

Diabetes-130 as benchmarks/cohorts.py reads it (readmitted within 30 days or not, middles of classes of age and weight,
chapters of diagnoses), as one Parquet file; and for the quick study a part of each of the two large tables, drawn once:
PERSONS persons of Diabetes-130 with all their rows, ROWS rows of BRFSS. Never committed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import cohorts

WHERE = Path.home() / ".cache" / "distcondense" / "tables"
PERSONS, ROWS = 15_000, 40_000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--where", type=Path, default=WHERE)
    said = options.parse_args()
    said.where.mkdir(parents=True, exist_ok=True)
    whole = cohorts.diabetes130_frame()
    whole.to_parquet(said.where / "diabetes130.parquet", index=False)
    persons = np.random.default_rng(0).permutation(whole["patient_nbr"].unique())[:PERSONS]
    some = whole[whole["patient_nbr"].isin(persons)].reset_index(drop=True)
    some.to_parquet(said.where / "diabetes130-quick.parquet", index=False)
    texts = pd.read_csv(cohorts.path_of("brfss2015_diabetes_binary.csv.gz"), dtype=str)
    chosen = np.sort(np.random.default_rng(0).permutation(len(texts))[:ROWS])
    texts.iloc[chosen].to_csv(said.where / "brfss-quick.csv", index=False)
    for name in ("diabetes130.parquet", "diabetes130-quick.parquet", "brfss-quick.csv"):
        print(said.where / name)


if __name__ == "__main__":
    main()
