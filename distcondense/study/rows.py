"""A source's rows as a cohort: read, chosen, renamed, checked."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from distcondense.data import datasets
from distcondense.data.cohort import Cohort
from distcondense.data.outcome import kind_of
from distcondense.data.reading import goal_as_read, read_csv_cells
from distcondense.data.schema import Schema, plain_value
from distcondense.data.tables import is_csv, read_table
from distcondense.errors import CohortError
from distcondense.study.sources import Endpoint, Source


def load(source: Source, endpoint: Endpoint, *, apart_from: Source | None = None) -> Cohort:
    """The cohort of a source; where two sources share a file, without the persons of the other one."""
    if source.simulated is not None:
        made = datasets.load(source.simulated, **source.options)
        return Cohort.from_frame(made.frame, owned=True, **made.how)
    assert source.path is not None
    frame, person = _rows(source, endpoint), source.person_id
    if person is not None and apart_from is not None and apart_from.path == source.path:
        known = _rows(apart_from, endpoint)[apart_from.person_id or person]
        frame = frame[~frame[person].isin(known)].reset_index(drop=True)
    goal = goal_as_read(endpoint.goal, source.schema) if is_csv(source.path) else endpoint.goal
    return Cohort.read(frame, goal, person_id=person, schema=source.schema, ignore=source.aside(endpoint), owned=True)


def _rows(source: Source, endpoint: Endpoint) -> pd.DataFrame:
    """The rows asked for, under the schema's names."""
    assert source.path is not None
    if is_csv(source.path):
        in_file = {new: old for old, new in source.rename.items()}
        goal, schema, person = endpoint.goal.renamed(in_file), source.schema, source.person_id
        if schema is not None:
            columns = tuple(replace(c, name=in_file.get(c.name, c.name)) for c in schema.columns)
            schema = Schema(columns, schema.origin)
        frame = read_csv_cells(
            source.path, schema, kind=kind_of(goal, schema),
            person_id=None if person is None else in_file.get(person, person),
            ignore=[in_file.get(name, name) for name in endpoint.ignore], missing_markers=source.missing_markers,
        )  # fmt: skip
    else:
        frame = read_table(source.path, missing_markers=source.missing_markers)
    for column, value in source.where.items():
        frame = frame[frame[column].map(lambda v: str(plain_value(v))) == str(plain_value(value))]
        if frame.empty:
            raise CohortError(f"data {source.name!r}", f"must have rows where {column!r} is as asked", found="none",
                              fix="check where = {…} in the study file")  # fmt: skip
    return frame.rename(columns=source.rename).reset_index(drop=True)
