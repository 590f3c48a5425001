"""Tables that a study cannot read as they are published: `python -m benchmarks.tables [--where DIR]`.

Diabetes-130 as benchmarks/cohorts.py reads it (readmitted within 30 days or not, middles of classes of age and weight,
chapters of diagnoses), as one Parquet file. Never committed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import cohorts

WHERE = Path.home() / ".cache" / "distcondense" / "tables"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--where", type=Path, default=WHERE)
    said = options.parse_args()
    said.where.mkdir(parents=True, exist_ok=True)
    path = said.where / "diabetes130.parquet"
    cohorts.diabetes130_frame().to_parquet(path, index=False)
    print(path)


if __name__ == "__main__":
    main()
