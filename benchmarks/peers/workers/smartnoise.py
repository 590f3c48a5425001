"""Runs in smartnoise-synth's own environment: codes in, codes out (train.csv, question.json → out.csv)."""

import json
import sys
from pathlib import Path

sys.path.pop(0)  # this folder: its files are called like the packages they use

import pandas as pd
from snsynth.aim import AIMSynthesizer
from snsynth.mst import MSTSynthesizer
from snsynth.transform import TableTransformer
from snsynth.transform.base import ColumnTransformer


class Code(ColumnTransformer):
    """A column that is a code below a public size already: nothing to learn, nothing to do."""

    def __init__(self, size):
        self._size = size
        super().__init__()

    @property
    def cardinality(self):
        return [self._size]

    def _fit(self, val):
        pass

    def _clear_fit(self):
        self._fit_complete = True
        self.output_width = 1

    def _transform(self, val):
        return int(val)

    def _inverse_transform(self, val):
        return int(val)


room = Path(sys.argv[1])
question = json.loads((room / "question.json").read_text())
table = pd.read_csv(room / "train.csv")
sizes = {name: int(size) for name, size in question["sizes"].items()}
budget = {"epsilon": float(question["epsilon"]), "delta": float(question["delta"])}
if question["algorithm"] == "aim":
    synthesizer = AIMSynthesizer(**budget, max_model_size=question["model_size"])
else:
    synthesizer = MSTSynthesizer(**budget)
synthesizer.fit(table, transformer=TableTransformer([Code(size) for size in sizes.values()]))
made = synthesizer.sample(question["rows"])
pd.DataFrame(made, columns=list(sizes)).astype(int).to_csv(room / "out.csv", index=False)
