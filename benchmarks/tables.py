"""Tables that a study cannot read as they are published: `python -m benchmarks.tables [--where DIR]`.

Diabetes-130 as benchmarks/cohorts.py reads it (readmitted within 30 days or not, middles of classes of age and weight,
chapters of diagnoses), as one Parquet file; and for the quick study a part of each of the two large tables, drawn once:
PERSONS persons of Diabetes-130 with all their rows, ROWS rows of BRFSS, and ROWS others for an outcome that nobody had
looked at. Kidney transplants (lifelines, 863 patients) with sex and race in place of four indicators. Never committed.
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
    order = np.random.default_rng(0).permutation(len(texts))
    for name, chosen in (("brfss-quick", order[:ROWS]), ("brfss-heart", order[ROWS : 2 * ROWS])):
        texts.iloc[np.sort(chosen)].to_csv(said.where / f"{name}.csv", index=False)
    kidney().to_csv(said.where / "kidney.csv", index=False)
    for path in sorted(said.where.iterdir()):
        print(path)


def kidney() -> pd.DataFrame:
    """Days from a transplant to death, 863 patients, 16% died."""
    from lifelines.datasets import load_kidney_transplant

    told = load_kidney_transplant()
    black, male = told["black_male"] + told["black_female"], told["black_male"] + told["white_male"]
    return pd.DataFrame(
        {
            "age": told["age"],
            "sex": np.where(male == 1, "male", "female"),
            "race": np.where(black == 1, "black", "white"),
            "time": told["time"],
            "death": told["death"],
        }
    )


if __name__ == "__main__":
    main()
