"""Sites on one machine, each a process of its own with real messages in a folder: to try the protocol and time it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from distcondense.data.schema import Schema
from distcondense.errors import RunFolderError
from distcondense.federated import parties
from distcondense.federated.accounting import Sharing
from distcondense.federated.folder import SharedFolder
from distcondense.federated.messages import COORDINATOR
from distcondense.methods.base import Progress, no_progress
from distcondense.methods.private.options import PrivateOptions
from distcondense.privacy.accounts import STATE

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


@dataclass(frozen=True)
class DemoRun:
    """What a demonstration made, and what it took."""

    run: Path  # the coordinator's run folder, with the release
    rounds: int
    seconds: float
    bytes_each: int  # that one site sent


def demo(
    out: Path,
    tables: Mapping[str, pd.DataFrame],
    schema: Schema,
    reading: Mapping[str, Any],
    options: PrivateOptions,
    sharing: Sharing,
    *,
    log: parties.Log = lambda line: None,
    progress: Progress = no_progress,
) -> DemoRun:
    """A whole session: every table is a site's, in a process of its own; the coordinator is this one.

    Parameters
    ----------
    out : Path
        A new folder: gets `shared/`, and a folder of each party.
    tables : mapping of str to DataFrame
        By the names of sites.
    schema, reading, options, sharing
        As of an agreement.
    """
    if out.exists() and any(out.iterdir()):
        raise RunFolderError(f"folder {out}", "must be new or empty", found="files in it", fix="another --out")
    shared, own = out / "shared", out / COORDINATOR
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    agreement = parties.init(shared, own, schema, reading, options, sharing)
    log(f"agreement {agreement.digest[:16]}: {agreement.prepared.budget_words}, {sharing.sites} sites")
    for name, table in tables.items():
        (out / name).mkdir()
        table.to_csv(out / name / "patients.csv", index=False)
    with ExitStack() as stack:
        joining = [
            stack.enter_context(
                _process(out, name, "join", str(out / name / "patients.csv"), "--name", name, "--own", _own(out, name))
            )
            for name in tables
        ]
        for process in joining:
            process.wait()
        _check(joining)
        fingerprint = parties.set_of_sites(parties.Own(own), SharedFolder(shared)).fingerprint
        log(f"the sites compare by telephone: {fingerprint}")
        answering = [
            stack.enter_context(_process(out, name, "round", "--own", _own(out, name), "--keys", fingerprint, "--wait"))
            for name in tables
        ]
        parties.round_(shared, own, wait=True, on_wait=lambda: _check(answering), log=log, progress=progress)
        log(parties.close(shared, own, log=log, progress=progress))
        for process in answering:
            process.wait()
        _check(answering)
    first = next(iter(tables))
    sent = [file.stat().st_size for file in (shared / "rounds").glob(f"*/{first}")]
    return DemoRun(parties.Own(own).run.path, len(sent), time.perf_counter() - began, sum(sent))


def _own(out: Path, name: str) -> str:
    return str(out / name / "own")


def _process(out: Path, name: str, command: str, *arguments: str) -> subprocess.Popen[str]:
    """A command of one site, which sees nothing of the others but the shared folder."""
    where = {STATE: str(out / name / "state")}
    words = [sys.executable, "-m", "distcondense", "federate", command, str(out / "shared"), *arguments]
    return subprocess.Popen(
        words, env={**os.environ, **ONE_THREAD, **where}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def _check(processes: Sequence[subprocess.Popen[str]]) -> None:
    """A site that failed ends the demonstration, in its own words."""
    for process in processes:
        if process.poll():
            said = "" if process.stdout is None else process.stdout.read().strip()
            for other in processes:
                other.terminate()
            raise RunFolderError("a site", "must answer to the end", found=said.rpartition("\n")[2] or "no word")
