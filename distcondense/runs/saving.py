"""A result becomes a run folder: the release with what explains it, the ledger, and run.json, which marks it finished.

The documents of a release are made in packages above this one and named here, as methods are named in their registry:
they read results, and a result must be able to save itself. A new one is a module that makes a text of a run's sets and
one line in `DOCUMENTS`. It may read what is released and nothing else; `tests/runs/test_release.py` holds it to that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

from distcondense.errors import RunFolderError, brief, need, os_errors
from distcondense.privacy.accountant import advantage_with_earlier, unite, with_earlier
from distcondense.privacy.ledger import read_events
from distcondense.privacy.statement import Privacy
from distcondense.runs.files import write_json
from distcondense.runs.folder import RunFolder
from distcondense.runs.kept_objects import to_plain
from distcondense.runs.release import DATASHEET, MANUAL, PAGE, PICTURE, label_frame, write_release
from distcondense.runs.result import Result, Results

# a file's name → module:function that makes its text of all sets of a run, by their tables' names; None: no such file
DOCUMENTS = {
    MANUAL: "distcondense.report.manual:manual",
    DATASHEET: "distcondense.report.datasheet:datasheet",
    PICTURE: "distcondense.report.picture:picture",
    PAGE: "distcondense.report.release_page:released_page",
}


def save(result: Result | Results, path: str | Path, *, force: bool = False) -> Path:
    """Write a finished run into a folder that is new, or its own, or with `force` another run's."""
    need(path, (str, Path), "path", "a path")
    result.record  # noqa: B018  (refused before a folder is made)
    folder = RunFolder(Path(path))
    with os_errors(f"run folder {brief(path)}", "must be readable and writable", RunFolderError):
        begun = not folder.finished and folder.internal.exists()
    folder.claim(result.identity, resume=not force and begun, force=force)
    write_run(folder, result)
    return folder.path


def write_run(folder: RunFolder, result: Result | Results) -> None:
    """Fill a folder that is this run's, run.json last.

    Without one of its documents there is no release: the run stays unfinished, and `--resume` goes on from what it has.
    """
    started, sets, record = time.perf_counter(), result.tables, result.internal
    first = next(iter(sets.values()))
    if first.privacy.charged:
        counted = _bring_the_account(first, folder)
        for one in sets.values():
            object.__setattr__(one, "privacy", counted)
            label_frame(one.frame, counted)
    frames = {} if first.privacy.answer else {name: one.frame for name, one in sets.items()}
    documents, schema = _documents(folder, sets), first.schema.to_toml()
    described = partial(import_module("distcondense.report.catalogue").catalogue, sets)
    folder.write_release(lambda room: write_release(room, frames, schema, first.privacy, documents, described))
    if first.sampler is not None:
        try:
            write_json(folder.sampler, to_plain(first.sampler))
        except TypeError as error:  # a kind of outcome from elsewhere: its rows are paid for all the same
            told = f"no {folder.sampler.name}: {error} is no data of this package"
            record = {**record, "warnings": [*record.get("warnings", ()), told]}
    taken = {**record.get("timings_seconds", {}), "write": time.perf_counter() - started}
    folder.finish({**record, "timings_seconds": taken})


def _documents(folder: RunFolder, sets: Mapping[str, Result]) -> dict[str, str]:
    """What explains a release."""
    texts, failed = {}, []
    for name, home in DOCUMENTS.items():
        module, _, function = home.partition(":")
        try:
            text = getattr(import_module(module), function)(sets)
        except Exception as error:  # its message may quote a value, its type does not
            failed.append(f"no {name} ({type(error).__name__})")
            continue
        if text is not None:
            texts[name] = text
    if failed:
        raise RunFolderError(
            f"run folder {brief(folder.path)}",
            "needs the documents that explain its release",
            found=", ".join(failed),
            fix="install distcondense whole (its templates too), then the same command with --resume: nothing of the "
            "budget is lost",
        )
    return texts


def _bring_the_account(result: Result, folder: RunFolder) -> Privacy:
    """The folder's ledger becomes this run's; what other runs spent, here or where it was made, is counted."""
    own, there = result.privacy.events, read_events(folder.ledger)
    on_accounts = (account.others(run) for account in result.accounts for run in {event.run for event in own})
    others = unite(result.earlier, *on_accounts, folder.earlier_events(), there)
    if {event.run for event in there} != {event.run for event in own}:
        folder.replace_ledger(own)
    folder.account(others)
    assert result.privacy.delta is not None
    earlier = folder.earlier_events()
    both = with_earlier(own, earlier, result.privacy.delta)
    return replace(
        result.privacy,
        epsilon_with_earlier_runs=both,
        advantage_with_earlier_runs=advantage_with_earlier(own, earlier, both),
    )
