"""The picture of the README: `python -m benchmarks.picture` condenses Adult at ε = 1 (end-to-end), to docs/adult.svg.

Left: models tested on real people whom nobody trained on. Right: what the private model behind the rows learned, with
the bands of its noise. Adult is public, so that its scores may stand in a document; a hospital's may not.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import distcondense as dc
from benchmarks.cohorts import adult
from distcondense.evaluation.score import Score
from distcondense.report.internal_page import at_a_glance
from distcondense.report.picture import panels

PICTURE = Path(__file__).parents[1] / "docs" / "adult.svg"
COLUMNS = 5  # of the model that are drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ipc", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    said = parser.parse_args()
    result = dc.condense(adult(declared=True), ipc=said.ipc, epsilon=said.epsilon, threads=said.threads, log=print)
    scores = [Score.from_dict(one) for one in result.record["scores"]]
    rows = len(result.frame)
    figures = (*at_a_glance(scores), *result.covered["model"][:COLUMNS])
    title = f"UCI Adult, income above 50K: {rows} synthetic rows in place of {result.record['data']['rows']:,} people"
    PICTURE.write_text(panels(figures, title, result.privacy.short()), encoding="utf-8")
    print(PICTURE)


if __name__ == "__main__":
    main()
