"""`distcondense attack`: try to break the promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Json, Quiet, attack_app
from distcondense.errors import SettingsError
from distcondense.methods.base import default_method, method_named

CLAIMS = {"end-to-end": 1.0, "as-published": 2.5}  # guarantee → the ε that is tested if none is said


@attack_app.command("audit")
def attack_audit(
    method: Annotated[str | None, typer.Option(help="Whose: private (the default) or published.")] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Claim to test. Private: end-to-end (1). Published: as-published (2.5).")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of the claim.")] = 1e-5,
    runs: Annotated[int, typer.Option(help="Runs per worst-case neighbour.")] = 1000,
    canaries: Annotated[int, typer.Option(help="Canaries of the one-run audit.")] = 1000,
    whole: Annotated[
        int,
        typer.Option(
            help="Runs of each pair of files that go the whole way, from a file's bytes to the released "
            "bytes; 100 take a minute or two. 0: none."
        ),
    ] = 0,
    federated: Annotated[
        bool, typer.Option("--federated", help="A run of three sites: by its coordinator and a colluding site.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the findings as JSON here.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of the models under attack.")] = 1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Attack a method with canaries on simulated patients, and bound its ε from below with confidence.

    Exit 0 where no bound is above the claim, 2 where one is: then the claim is wrong.
    """
    from distcondense.evaluation.audit import run_audit
    from distcondense.federated.audit import AUDITOR
    from distcondense.report.terminal import Console
    from distcondense.runs.files import refuse_target, write_json

    if threads < 1:
        raise SettingsError("--threads", "must be at least 1", found=str(threads), fix="leave it out")
    if out is not None:
        refuse_target(out)  # before the work
    chosen = method_named(method or default_method())
    if federated and chosen.name != default_method():
        raise SettingsError("--federated", f"is for {default_method()} alone", found=chosen.name, fix="leave one out")
    claim = CLAIMS.get(chosen.guarantee, 1.0) if epsilon is None else epsilon
    console = Console(quiet=quiet or as_json)
    with console.progress() as progress:
        audit = run_audit(
            method=f"{chosen.name}, three sites," if federated else chosen.name,
            auditor=AUDITOR if federated else None,
            epsilon=claim,
            delta=delta,
            runs=runs,
            canaries=0 if federated else canaries,
            threads=threads,
            whole=whole,
            progress=lambda done, of: progress(doing="attacking", step=done, steps=of),
        )
    if out is not None:
        write_json(out, audit.to_dict())
    typer.echo(json.dumps(audit.to_dict()) if as_json else "\n".join(audit.lines()))
    if not audit.passed:
        raise typer.Exit(2)
