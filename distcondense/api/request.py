"""What `condense` and `evaluate` were asked for, checked before a table is read."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distcondense.cluster.config import Cluster
from distcondense.cluster.executors import refuse_missing_gpus
from distcondense.data.cohort import Facts
from distcondense.data.persons import HoldoutSplit
from distcondense.data.roles import ROLES
from distcondense.data.schema import Schema
from distcondense.errors import MOST_THREADS, DistcondenseWarning, SettingsError, need, whole
from distcondense.evaluation.score import Score
from distcondense.methods.base import (
    Method,
    Options,
    Prepared,
    Progress,
    default_method,
    method_named,
    no_progress,
    options_of,
    prepare,
)
from distcondense.privacy.odometer import Odometer
from distcondense.runs.release import ReleaseInfo

NO_COLUMNS: tuple[str, ...] = ()
OF_CSV = ("missing_markers", "separator", "encoding", "decimal")
READING = (*ROLES, "positive", "kind", "person_id", "schema", "ignore", "query", *OF_CSV)  # how a table is read


def available_threads() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class CondenseRequest:
    """What `condense` was asked for, checked."""

    reading: Mapping[str, Any]  # how the table is read, as far as it was said
    method: Method
    options: Options
    rows: int | None
    about: ReleaseInfo
    threads: int
    out: Path | None
    resume: bool
    force: bool
    progress: Progress
    log: Callable[[str], None]
    cluster: Cluster | None
    account: Odometer | None
    require_account: bool
    memory: int | None
    scratch: Path | None
    held_out: HoldoutSplit | None
    known: Sequence[Score]
    began: float  # on the clock of time.perf_counter

    @classmethod
    def from_arguments(cls, arguments: Mapping[str, Any]) -> CondenseRequest:
        """The arguments of `condense`, by name, checked."""
        began = time.perf_counter()
        for what in ("out", "scratch"):
            if arguments[what] is not None:
                need(arguments[what], (str, Path), what, "a path")
        if arguments["cluster"] is not None:
            need(arguments["cluster"], Cluster, "cluster", "a Cluster", fix="dc.Cluster()")
        if arguments["method"] is not None:
            need(arguments["method"], str, "method", "a text")
        for what in ("resume", "force", "require_account"):
            need(arguments[what], bool, what, "true or false")
        need_calls(progress=arguments["progress"], log=arguments["log"])
        if arguments["held_out"] is not None:
            need(arguments["held_out"], HoldoutSplit, "held_out", "coins that say who is left out")
        need(arguments["known"], (list, tuple), "known", "a list of scores")
        for score in arguments["known"]:
            need(score, Score, "known", "a list of scores")
        reading = {
            name: arguments[name]
            for name in READING
            if arguments[name] is not None and arguments[name] is not NO_COLUMNS
        }
        if isinstance(schema := reading.get("schema"), str | Path):
            reading["schema"] = Schema.from_toml(schema)
        method = method_named(default_method() if arguments["method"] is None else arguments["method"])
        rows, threads = arguments["rows"], arguments["threads"]
        if rows is not None and "ipc" in arguments["options"]:
            raise SettingsError("rows", "and ipc say the same in two ways", found="both", fix="leave one of them out")
        options = options_of(method, arguments["options"])
        if arguments["cluster"] is not None:
            refuse_missing_gpus(arguments["cluster"])
        return cls(
            reading=reading,
            method=method,
            options=options,
            rows=None if rows is None else whole(rows, "rows", 1),
            about=ReleaseInfo.from_any(arguments["about"]),
            threads=available_threads() if threads is None else whole(threads, "threads", 1, MOST_THREADS),
            out=None if arguments["out"] is None else Path(arguments["out"]),
            resume=arguments["resume"],
            force=arguments["force"],
            progress=no_progress if arguments["progress"] is None else arguments["progress"],
            log=silent if arguments["log"] is None else arguments["log"],
            cluster=arguments["cluster"],
            account=Odometer.open(arguments["account"]),
            require_account=arguments["require_account"],
            memory=None if arguments["memory"] is None else whole(arguments["memory"], "memory", 1, 2**63 - 1),
            scratch=None if arguments["scratch"] is None else Path(arguments["scratch"]),
            held_out=arguments["held_out"],
            known=arguments["known"],
            began=began,
        )

    def prepared(self, facts: Facts) -> tuple[Prepared, list[warnings.WarningMessage]]:
        """The run as far as public facts go, and what was warned of meanwhile: it is shown, and kept, with the run."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", DistcondenseWarning)
            options = self.options
            if self.rows is not None:
                options = replace(options, ipc=_per_group(self.rows, facts.kind))
            return prepare(self.method, facts, options), warned


def _per_group(rows: int, kind: Any) -> int:
    """Rows of each class (or what a kind has for one) where so many are wanted in all; IPC."""
    ipc = rows // kind.groups
    if ipc == 0:
        rule = f"must be at least one for each {kind.groups_named}: {kind.groups}"
        raise SettingsError("rows", rule, found=str(rows), fix="ask for more rows")
    if ipc * kind.groups != rows:
        warnings.warn(
            f"rows: {ipc * kind.groups:,} instead of {rows:,}, as many of each {kind.groups_named} ({ipc:,})",
            DistcondenseWarning,
            stacklevel=5,
        )
    return ipc


def need_calls(**calls: Any) -> None:
    """Refuse what was given to be called and cannot be."""
    for what, call in calls.items():
        if call is not None:
            need(call, Callable, what, "something to call")


def silent(line: str) -> None:
    """The log of a run that has none: lines are dropped."""
