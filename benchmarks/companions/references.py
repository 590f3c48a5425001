"""One reference against several at once: `python -m benchmarks.companions.references --seeds 3`.

Thakur et al. 2026 leaves several references to the future.

    published   condensed against XGBoost alone, and against XGBoost, logistic regression and an SVM together (SEER: Cox
                alone, AFT alone, both); without noise, so that what is compared is the reference and not the luck of σ,
                or with --epsilon (as-published)
    private     rows chosen by the whole panel (the product), by students of XGBoost, logistic regression and SVM only
                (SEER: Cox and AFT), from one private model a seed: the noise is the same for all of them

Students are trained on the plain outcome column without weights, as a recipient would, and scored on real test rows:
AUROC on Adult, C-index on SEER. Cells are mean ± standard deviation over seeds.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd

import distcondense as dc
from benchmarks import cohorts, record
from benchmarks.placement import Test, asked
from distcondense import Cohort
from distcondense.data.persons import HoldoutSplit
from distcondense.evaluation.common_models import CLASSIFIERS, standardised
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.methods.private.placement import place
from distcondense.outcomes.base import Kind

WAYS: dict[str, tuple[tuple[str, tuple[str, ...] | None], ...]] = {
    "adult": (("published", ("xgb",)), ("published", ("logistic",)), ("published", ("xgb", "logistic", "svm")),
              ("private", None), ("private", ("xgb", "logistic", "svm"))),
    "seer": (("published", ("cox",)), ("published", ("aft",)), ("published", ("cox", "aft")),
             ("private", None), ("private", ("cox", "aft"))),
}  # fmt: skip


def students(home: EvaluationInput, seed: int) -> dict[str, float]:
    """Scores on held-out patients of students of the plain rows."""
    kind: Kind = home.kind
    test = home.split.test
    here, there = standardised(home.rows, home.codec.encode(home.cohort.features.iloc[test]))
    real = kind.in_unit(home.cohort.outcome.take(test), home.unit)
    if "time" in real.arrays:
        found = {}
        for name, learner in kind.learners.items():
            model = learner.fit(here.astype(np.float32), home.made, seed=seed)
            found[name] = kind.score(learner.link, model.scores(there.astype(np.float32)), real)
        return found
    return {name: kind.score("probability", asked(name, here, home.made["label"], there), real) for name in CLASSIFIERS}


def published(cohort: Cohort, references: tuple[str, ...] | None, said: Any, seed: int) -> dict[str, float]:
    noise = {"noise": False} if said.epsilon is None else {"epsilon": said.epsilon}
    result = dc.condense(
        cohort, method="published", ipc=said.ipc, seed=seed, threads=1, reference=references, steps=said.steps, **noise
    )
    return students(EvaluationInput.from_result(cohort, result), seed)


class Private:
    """One private model a seed, whatever chooses rows for it."""

    def __init__(self, cohort: Cohort, said: Any, seed: int) -> None:
        split = HoldoutSplit(0.2, entropy=seed).split(cohort)
        self.side, self.seed, self.ipc = cohort.outcome.kind.private_side(), seed, said.ipc
        model = dc.PrivateModel(epsilon=said.epsilon or 1.0).fit(cohort.take(split.train))
        self.learned = model.learned_
        self.test = Test.of(cohort.take(split.test), self.learned, self.side)

    def scores(self, references: tuple[str, ...] | None) -> dict[str, float]:
        placed = place(self.learned, self.side, self.ipc, seed=self.seed, named=references or ())
        found = self.test.scores(placed, self.learned, self.seed) if len(placed.codes) else {}
        return {name: score for name, score in found.items() if not name.endswith("soft")}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", nargs="*", default=list(WAYS))
    options.add_argument("--ipc", type=int, default=100)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--steps", type=int, default=300, help="of the published method")
    options.add_argument("--most", type=int, default=50_000, help="rows of a table, at most")
    options.add_argument("--epsilon", type=float, help="private: end-to-end, 1 if not said; published: as-published")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    records: list[dict[str, Any]] = []
    for data in said.data:
        cohort = getattr(cohorts, data)(declared=True)
        if len(cohort) > said.most:
            cohort = cohort.take(np.sort(np.random.default_rng(0).permutation(len(cohort))[: said.most]))
        for seed in range(said.seeds):
            private = Private(cohort, said, seed)
            for method, references in WAYS[data]:
                started = time.process_time()
                if method == "private":
                    found = private.scores(references)
                else:
                    found = published(cohort, references, said, seed)
                seconds = time.process_time() - started
                if not found:
                    print(f"{data} seed {seed}: no answer at this ε", flush=True)
                    continue
                name = " + ".join(references) if references else "the whole panel"
                records.append(
                    {
                        "data": data,
                        "seed": seed,
                        "method": method,
                        "references": name,
                        "scores": found,
                        "seconds": seconds,
                    }
                )
                print(records[-1], flush=True)
                record.write("companions-references", records, seeds=said.seeds, text=page(said, records))
    print(page(said, records))


def page(said: Any, records: list[dict[str, Any]]) -> str:
    budget = "" if said.epsilon is None else f" --epsilon {said.epsilon:g}"
    noise = "no noise" if said.epsilon is None else f"ε = {said.epsilon:g} as-published"
    head = (
        f"`python -m benchmarks.companions.references {' '.join(said.data)} --ipc {said.ipc} --seeds {said.seeds} "
        f"--steps {said.steps} --most {said.most}{budget}`: AUROC (SEER: C-index) of students of {said.ipc} rows a "
        f"class on real test rows, plain labels. published: {noise}; private: ε = {said.epsilon or 1.0:g} end-to-end; "
        "seconds of private are of choosing alone, those of published of the whole run. Private on Adult: these three "
        "references are the whole panel, so that the rows are the same with them and without."
    )
    lines = [head]
    for data in dict.fromkeys(cell["data"] for cell in records):
        own = [cell for cell in records if cell["data"] == data]
        names = list(own[0]["scores"])
        lines += [
            "",
            f"**{data}**",
            "",
            f"| method | references | {' | '.join(names)} | mean | CPU seconds |",
            "| --- " * (len(names) + 4) + "|",
        ]
        for method, references in dict.fromkeys((cell["method"], cell["references"]) for cell in own):
            here = [r for r in own if (r["method"], r["references"]) == (method, references)]
            cells = [spread([r["scores"][name] for r in here]) for name in names]
            mean = spread([float(np.mean(list(r["scores"].values()))) for r in here])
            seconds = f"{np.mean([r['seconds'] for r in here]):.0f}"
            lines.append(f"| {method} | {references} | {' | '.join(cells)} | {mean} | {seconds} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    numbers = pd.Series(values)
    return f"{numbers.mean():.4f}" + (f" ± {numbers.std(ddof=1):.4f}" if len(numbers) > 1 else "")


if __name__ == "__main__":
    main()
