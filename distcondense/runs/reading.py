"""Finished runs read back: their sets from the folder, and the table that they were made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.data.persons import HoldoutSplit, split_from
from distcondense.data.reserved import WEIGHT
from distcondense.data.schema import Schema
from distcondense.data.tables import table_name
from distcondense.errors import CohortError, RunFolderError, UserError, brief
from distcondense.outcomes.base import Kind
from distcondense.outside import parse_json, read_text
from distcondense.privacy.binding import STATEMENT, compare_files
from distcondense.privacy.statement import Privacy
from distcondense.runs.folder import RunFolder
from distcondense.runs.release import SCHEMA, table_names
from distcondense.runs.result import Result


def read_back(folder: RunFolder, kind: Kind) -> dict[str, Result]:
    """The sets of a finished run by their tables' names, from its folder."""
    try:
        return _read_back(folder, kind)
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OSError, StopIteration) as error:  # Arrow's are among them
        raise RunFolderError(
            f"run folder {brief(folder.path)}",
            "must hold what a finished run wrote",
            found=type(error).__name__,
            fix="restore it from a backup, or condense again",
        ) from None


def _read_back(folder: RunFolder, kind: Kind) -> dict[str, Result]:
    record, stated = folder.record(), _statement(folder)
    ipcs = [one["ipc"] for one in record.get("sets", [record])]
    privacy = Privacy.from_dict(stated)
    privacy = replace(privacy, trade_off=tuple((a, b) for a, b in privacy.trade_off))
    schema, out = Schema.from_toml(folder.release / SCHEMA), {}
    for ipc, name in table_names(ipcs).items():
        own = next(one for one in record.get("sets", [record]) if one["ipc"] == ipc)
        out[name] = Result(
            frame=_no_rows(schema, kind) if privacy.answer else pd.read_parquet(folder.release / f"{name}.parquet"),
            schema=schema,
            kind=kind,
            privacy=privacy,
            raw=record["raw"],
            internal={**record, **own},
        )
    return out


def _no_rows(schema: Schema, kind: Kind) -> pd.DataFrame:
    """The table of a run that found no answer, which is not written."""
    return pd.DataFrame(columns=[*schema.names, *kind.names, *kind.own_columns(), WEIGHT])


def _statement(folder: RunFolder) -> dict[str, Any]:
    """privacy.json, whose digest and whose files must be as the run wrote them."""
    stated = parse_json(read_text(folder.release / STATEMENT, STATEMENT, RunFolderError))
    if wrong := compare_files(stated, folder.release, whole=False)[0]:
        raise RunFolderError(
            f"run folder {brief(folder.path)}",
            "release/ must be as the run wrote it",
            found=brief(wrong[0]),
            fix="restore it from a backup, or condense again",
        )
    return dict(stated)


# -- the table -------------------------------------------------------------------------------------------------------


def read_again(
    run: str | Path, table: str | Path, *, site: bool = False, how: Mapping[str, str] | None = None
) -> Cohort:
    """A table as the run's own was read: the same columns, schema and markers; for `evaluate_run`.

    site: it is another site's, whose errors say so. how: separator, encoding and decimal, where they are not the run's.
    """
    folder = RunFolder(Path(run))
    then = dict(folder.record()["data"]["how"])
    schema = None if then["schema"] is None else Schema.from_dict(then["schema"], where="run.json")
    said = {**then, **(how or {}), "schema": schema, "ignore": tuple(then["ignore"])}
    if said.pop("in_batches", False) and not site:
        return _drawn(folder, table, {name: value for name, value in said.items() if value is not None})
    try:
        return Cohort.from_file(table, **{name: value for name, value in said.items() if value is not None})
    except CohortError as error:
        if not site:
            raise
        raise CohortError(
            f"site {table_name(table)}",
            "must have the columns, units and categories of the run's own table",
            found=str(error),
        ) from None


def _drawn(folder: RunFolder, table: str | Path, how: dict[str, Any]) -> Cohort:
    """The sample that a run was evaluated on, of a table that is read in batches."""
    record = folder.record()
    large = LargeTable.from_path(table, **how)
    if large.fingerprint() != record["data"]["fingerprint"]:
        raise CohortError(
            "table",
            "must be the one that the run condensed",
            found="other files",
            fix=f"say the folder or file that {folder.path.name} was made of",
        )
    coins = split_from(record["splitting"])
    assert isinstance(coins, HoldoutSplit)
    return large.draw(coins)


def refuse_another_table(folder: RunFolder, cohort: Cohort, record: Mapping[str, Any]) -> None:
    """A run is evaluated on the table it was made of: another would be split at random among trained and held out."""
    if record["data"]["how"].get("in_batches") and len(cohort) == record["data"]["evaluated_on_rows"]:
        return  # its sample, whose files were compared when it was drawn
    rows = record["data"]["rows"]
    if record["data"]["fingerprint"] == cohort.fingerprint():
        return
    raise CohortError(
        "table",
        "must be the one that the run condensed",
        found=f"{len(cohort)} rows that are not its own"
        if len(cohort) == rows
        else f"{len(cohort)} rows where the run had {rows}",
        fix=f"say the table that {folder.path.name} was made of; other tables go with --external",
    )
