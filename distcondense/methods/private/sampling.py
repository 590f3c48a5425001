"""Whole rows of a private model, as many as anybody wants: post-processing of what left the gate.

The same steps as for the released set, without a choice among the rows: drawn, labelled as the population is, made
legal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Matrix
from distcondense.data.codec import Codec
from distcondense.data.rules import Rules
from distcondense.data.schema import Schema
from distcondense.methods.private.placement import Legal, population, values_of
from distcondense.outcomes.private_side import PrivateFit, PrivateSide
from distcondense.runs.result import table_of

MANY_ROWS = 10**6  # of a set so large that outcomes come by chance, as patients' do

Rng = np.random.Generator


@dataclass(frozen=True)
class PopulationSampler:
    """What left the gate, and how rows are made of it; `runs/sampling.py: Sampler`."""

    learned: PrivateFit
    side: PrivateSide
    schema: Schema

    @property
    def rows(self) -> float:
        return self.learned.rows

    @property
    def kind(self) -> Any:
        return self.side.kind

    def drawn(self, rows: int, rng: Rng) -> pd.DataFrame:
        legal = legal_rules(self.learned, self.schema)
        codes, inside = population(self.learned, rows, rng, legal)
        labelled = self.side.label(self.learned, codes, rng.random(len(codes)), MANY_ROWS)
        values = values_of(self.learned.model.cells, codes, inside)
        features, schema, _, _ = released_rows(self.learned, self.schema, values, int(rng.integers(2**31)))
        return table_of(features, schema, self.side.kind, labelled)


def legal_rules(learned: PrivateFit, schema: Schema) -> Legal | None:
    """Which rows of a table of the used columns obey the rules of the domain; None where there are no rules."""
    rules = Rules(schema.described([cells.column for cells in learned.model.cells]))
    return rules.holds if rules else None


def released_rows(
    learned: PrivateFit, schema: Schema, values: pd.DataFrame, seed: int
) -> tuple[pd.DataFrame, Schema, Codec, Matrix]:
    """Values of the used columns as they are released: (legal and complete by the rules, schema, codec, encoded)."""
    own = [cells.column for cells in learned.model.cells]
    known = schema.described(own)
    names = Rules(known).reachable(column.name for column in own)
    used = replace(known.only(names), notes=())
    codec, drawn, rules = Codec.public(used), Codec.public(Schema(tuple(own))), Rules(used)
    frame = drawn.decode(drawn.encode(values))
    for column in own:  # a codec's rows have seven digits
        if column.numeric and not column.whole and column.decimals is None and column.step is None:
            frame[column.name] = values[column.name].where(frame[column.name].notna())
    frame = rules.completed(rules.repaired(frame, np.random.default_rng([seed, 0x9005])))[names]
    return frame, used, codec, codec.encode(frame)
