"""Finished runs read back: their sets from the folder, and the table that they were made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from distcondense.data.cohort import Cohort
from distcondense.data.large import LargeTable
from distcondense.data.outcome import Goal, kind_of
from distcondense.data.persons import HoldoutSplit, split_from
from distcondense.data.reserved import WEIGHT
from distcondense.data.schema import Schema
from distcondense.data.tables import table_name
from distcondense.errors import CohortError, RunFolderError, UserError, brief, need
from distcondense.outcomes.base import Kind
from distcondense.outside import parse_json, read_text
from distcondense.privacy.binding import STATEMENT, compare_files
from distcondense.privacy.statement import Privacy
from distcondense.runs.folder import RunFolder
from distcondense.runs.kept_objects import from_plain
from distcondense.runs.release import SCHEMA, table_names
from distcondense.runs.result import Result, Results
from distcondense.runs.sampling import Sampler


def read_back(folder: RunFolder, kind: Kind) -> dict[str, Result]:
    """The sets of a finished run by their tables' names, from its folder."""
    with _whole(f"run folder {brief(folder.path)}"):
        return _read_back(folder, kind)


def _read_back(folder: RunFolder, kind: Kind) -> dict[str, Result]:
    record, privacy = folder.record(), _privacy(_stated(folder.release, f"run folder {brief(folder.path)}"))
    ipcs = [one["ipc"] for one in record.get("sets", [record])]
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


def load(folder: str | Path) -> Result | Results:
    """A finished run's sets, or what a recipient has of them.

    Parameters
    ----------
    folder : path
        A run folder, or its `release/` alone.

    Returns
    -------
    Result or Results
        `Results`, {IPC: `Result`}, where the run made several. It has what was released: rows, schema and statement;
        of a run folder it can draw further rows, where its method can (`Result.sample`). What it draws from is in
        `internal/`: covered by the guarantee, but not handed over with the release.

    Raises
    ------
    RunFolderError
        Where it is neither, or a file is not as the run wrote it.

    Examples
    --------
    >>> import tempfile
    >>> import distcondense as dc
    >>> from distcondense.data.datasets import load
    >>> data = load("breast_cancer")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = dc.condense(data.frame, **data.how, method="published", ipc=5, steps=5, noise=False)
    ...     result = dc.load(made.save(f"{folder}/run") / "release")
    >>> len(result.frame), result.privacy.guarantee
    (10, 'none')
    """
    need(folder, (str, Path), "folder", "a path")
    place = Path(folder)
    place = place / "release" if (place / "release" / STATEMENT).is_file() else place
    what = f"folder {brief(folder)}"
    if not (place / STATEMENT).is_file():
        raise RunFolderError(what, f"must hold {STATEMENT}", found="no such file", fix="name a run folder or release/")
    with _whole(what):
        stated = _stated(place, what)
        privacy, schema = _privacy(stated), Schema.from_toml(place / SCHEMA)
        roles = ("target",) if len(schema.outcome) == 1 else ("time", "event")
        goal = Goal.from_roles(**dict(zip(roles, (column.name for column in schema.outcome), strict=True)))
        kind = kind_of(goal, schema)
        ipcs = privacy.parameters.get("ipc", [])
        sets, sampler = {}, _sampler(RunFolder(Path(folder)))
        for ipc, name in table_names(ipcs if len(ipcs) > 1 else [0]).items():
            frame = _no_rows(schema, kind) if privacy.answer else pd.read_parquet(place / f"{name}.parquet")
            known = kind.read(frame).kind
            raw = any(column not in frame for column in schema.names)
            sets[ipc] = Result(frame=frame, schema=schema, kind=known, privacy=privacy, raw=raw, sampler=sampler)
    return Results(sets) if len(sets) > 1 else next(iter(sets.values()))


def _sampler(folder: RunFolder) -> Sampler | None:
    """What a run folder draws further rows from; None where it has nothing, as a release alone has not."""
    if not folder.sampler.is_file():
        return None
    with _whole("sampler.json"):
        sampler: Sampler = from_plain(parse_json(read_text(folder.sampler, "sampler.json", RunFolderError)))
        sampler.kind  # noqa: B018  (what is none has none)
        return sampler


@contextmanager
def _whole(what: str) -> Iterator[None]:
    """What a damaged folder makes of its readers becomes one error."""
    try:
        yield
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OSError, StopIteration) as error:  # Arrow's are among them
        raise RunFolderError(
            what,
            "must hold what a finished run wrote",
            found=type(error).__name__,
            fix="restore it from a backup, or condense again",
        ) from None


def _privacy(stated: Mapping[str, Any]) -> Privacy:
    privacy = Privacy.from_dict(dict(stated))
    return replace(privacy, trade_off=tuple((a, b) for a, b in privacy.trade_off))


def _no_rows(schema: Schema, kind: Kind) -> pd.DataFrame:
    """The table of a run that found no answer, which is not written."""
    return pd.DataFrame(columns=[*schema.names, *kind.names, *kind.own_columns(), WEIGHT])


def _stated(release: Path, what: str) -> dict[str, Any]:
    """privacy.json, whose digest and whose files must be as the run wrote them."""
    stated = parse_json(read_text(release / STATEMENT, STATEMENT, RunFolderError))
    if wrong := compare_files(stated, release, whole=False)[0]:
        raise RunFolderError(
            what,
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
