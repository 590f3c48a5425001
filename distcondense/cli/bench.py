"""`distcondense bench`: the hot loop, measured."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Quiet, app


@app.command()
def bench(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where table, JSON and plot go; a temporary folder if not said.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small table in under a minute.")] = False,
    threads: Annotated[int, typer.Option(help="Threads of every way measured.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Measure the Jacobian and the whole step, every way beside the others and a copy control, in one run."""
    from distcondense.bench import FULL, QUICK, run_bench
    from distcondense.report.terminal import Console

    out = Path(tempfile.gettempdir()) / "distcondense-results" if out is None else out
    run_bench(QUICK if quick else FULL, threads=threads, out=out, log=Console(quiet=quiet).log)
