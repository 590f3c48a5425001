"""A source's rows as a cohort: read, chosen, renamed, checked.

Rows are chosen (`where`) each by its own cell: of a CSV, a text in the study file is the cell's exact text, a number or
true/false what the text says; of a typed file, the value itself. Nobody's row changes who else is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from distcondense.data import datasets
from distcondense.data.cohort import Cohort
from distcondense.data.csv_table import decimal_of, read_cell
from distcondense.data.outcome import kind_of
from distcondense.data.reading import read_csv_cells
from distcondense.data.schema import Label, Schema
from distcondense.data.tables import is_csv, read_table
from distcondense.data.values import DATE, Values, identifiers_of, plain_number, text_of, type_of
from distcondense.errors import CohortError
from distcondense.study.sources import Endpoint, Source


def load(source: Source, endpoint: Endpoint, *, apart_from: Source | None = None) -> Cohort:
    """The cohort of a source; where two sources share a file, without the persons of the other one."""
    if source.simulated is not None:
        simulated = datasets.load(source.simulated, **source.options)
        return Cohort.from_frame(simulated.frame, owned=True, **simulated.how)
    assert source.path is not None
    frame, person = _rows(source, endpoint), source.person_id
    if person is not None and apart_from is not None and apart_from.path == source.path:
        other = apart_from.person_id or person
        known = set(identifiers_of(_rows(apart_from, endpoint)[other], other)[1])
        code, texts = identifiers_of(frame[person], person)
        frame = frame[np.array([text not in known for text in texts])[code]].reset_index(drop=True)
    cohort = Cohort.read(
        frame, endpoint.goal, person_id=person, schema=source.schema, ignore=source.aside(endpoint), owned=True
    )
    return replace(cohort, file=source.path)


def _is(wanted: Label, read: Callable[[Any], Any], value: Any) -> bool:
    """Whether one cell or value is the one asked for; a text that is not asked for as text, by what it says."""
    answer = read(value)
    if type_of(answer) == DATE:
        answer = text_of(answer)
    return type_of(answer) == type_of(wanted) and bool(answer == wanted)


def _rows(source: Source, endpoint: Endpoint) -> pd.DataFrame:
    """The rows asked for, under the schema's names."""
    assert source.path is not None
    if is_csv(source.path):
        in_file = {new: old for old, new in source.rename.items()}
        goal, schema, person = endpoint.goal.renamed(in_file), source.schema, source.person_id
        if schema is not None:
            columns = tuple(replace(c, name=in_file.get(c.name, c.name)) for c in (*schema.columns, *schema.ignored))
            schema = Schema(columns, schema.origin)
        frame = read_csv_cells(
            source.path,
            schema,
            kind=kind_of(goal, schema),
            person_id=None if person is None else in_file.get(person, person),
            ignore=[in_file.get(name, name) for name in endpoint.ignore],
            exact=source.where,
            missing_markers=source.missing_markers,
            dialect=source.dialect,
        )
    else:
        frame = read_table(source.path, missing_markers=source.missing_markers)
    decimal = decimal_of(frame)
    for column, wanted in source.where.items():
        read = (
            partial(read_cell, decimal=decimal) if is_csv(source.path) and not isinstance(wanted, str) else plain_number
        )
        here = Values.from_series(frame[column], column).map(partial(_is, wanted, read), False, bool)
        frame = frame[here]
        if frame.empty:
            raise CohortError(
                f"data {source.name!r}",
                f"must have rows where {column!r} is as asked",
                found="none",
                fix="check where = {…} in the study file: a text is a cell's exact text, a number what it says",
            )
    return frame.rename(columns=source.rename).reset_index(drop=True)
