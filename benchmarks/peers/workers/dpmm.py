"""Runs in dpmm's own environment: codes in, codes out. `python dpmm.py FOLDER` (train.csv, question.json → out.csv)."""

import json
import sys
from pathlib import Path

sys.path.pop(0)  # this folder: its files are called like the packages they use

import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline, PrivBayesPipeline

PIPELINES = {"aim": AIMPipeline, "mst": MSTPipeline, "privbayes": PrivBayesPipeline}

room = Path(sys.argv[1])
question = json.loads((room / "question.json").read_text())
table = pd.read_csv(room / "train.csv")
sizes = {name: int(size) for name, size in question["sizes"].items()}
size = question["model_size"] if question["algorithm"] == "aim" else None
pipeline = PIPELINES[question["algorithm"]](
    epsilon=question["epsilon"], delta=question["delta"], max_model_size=size, n_jobs=1, disable_processing=True
)
pipeline.fit(table, domain=sizes)  # no preprocessing: columns are codes below these public sizes
made = pipeline.generate(n_records=question["rows"])
made[list(sizes)].astype(int).to_csv(room / "out.csv", index=False)
