"""Runs in interpret's own environment: DP-EBM of codes. (train.csv, question.json → out.json: what each code adds.)"""

import json
import sys
from pathlib import Path

sys.path.pop(0)  # this folder: its files are called like the packages they use

import numpy as np
import pandas as pd
from interpret.privacy import DPExplainableBoostingClassifier

room = Path(sys.argv[1])
question = json.loads((room / "question.json").read_text())
table = pd.read_csv(room / "train.csv")
label = question["label"]
sizes = {name: int(size) for name, size in question["sizes"].items() if name != label}
kinds = ["continuous" if name in question["ordered"] else "nominal" for name in sizes]


def seen(codes):
    """Numbers as numbers, categories as texts."""
    return pd.DataFrame(
        {
            name: codes[name].astype(float) if kind == "continuous" else codes[name].astype(str)
            for name, kind in zip(sizes, kinds, strict=True)
        }
    )


model = DPExplainableBoostingClassifier(
    epsilon=question["epsilon"],
    delta=question["delta"],
    feature_types=kinds,
    n_jobs=1,
    random_state=None,
    privacy_bounds={name: (0.0, float(size - 1)) for name, size in sizes.items()},
)
model.fit(seen(table), table[label].to_numpy())
terms = {
    names[0]: position
    for position, names in enumerate([[list(sizes)[i] for i in features] for features in model.term_features_])
}
tables = {}
for name, size in sizes.items():
    some = pd.DataFrame({other: np.zeros(size, int) for other in sizes})
    some[name] = np.arange(size)
    tables[name] = model.eval_terms(seen(some))[:, terms[name]].tolist() if name in terms else [0.0] * size
intercept = float(np.ravel(model.intercept_)[0])
(room / "out.json").write_text(json.dumps({"intercept": intercept, "tables": tables}))
