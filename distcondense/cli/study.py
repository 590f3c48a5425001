"""`distcondense study`: grids of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Json, Quiet, app
from distcondense.errors import SettingsError


@app.command()
def study(
    file: Annotated[Path, typer.Argument(help="The study: a TOML file (benchmarks/studies/ has examples).")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The study folder; the file's name with -study if not said."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a Ray cluster to join; RAY_ADDRESS, or one started here, if not said."),
    ] = None,
    in_process: Annotated[bool, typer.Option("--in-process", help="One cell after another, without Ray.")] = False,
    at_once: Annotated[
        int | None, typer.Option(help="Cells at the same time; as many as cores and memory_gb allow if not said.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each cell; the file's if not said.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and list its cells; run nothing.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a grid of condensations: data × outcome × method × reference × IPC × ε × seeds.

    Stopped at any time, the same command goes on: finished cells are kept. Exit 0 when all cells are done, 2 when some
    have failed (they are listed, the others are done all the same).
    """
    from distcondense.report.terminal import Console
    from distcondense.study import Study, plan, run_tasks

    for name, value in (("at-once", at_once), ("threads", threads)):
        if value is not None and value < 1:
            raise SettingsError(f"--{name}", "must be at least 1", found=str(value), fix="leave it out")
    if in_process and (ray is not None or at_once is not None):
        raise SettingsError("--in-process", "runs one cell after another here", found="--ray or --at-once",
                            fix="leave one of them out")  # fmt: skip
    console = Console(quiet=quiet or as_json)
    design = Study.from_toml(file)
    out = Path(f"{file.stem}-study") if out is None else out
    if dry_run:
        board = plan(design, out)
    else:
        board = run_tasks(
            design, out, console, ray=ray, in_process=in_process, at_once=at_once, threads=threads or design.threads
        )
    if as_json:
        typer.echo(json.dumps({"study": design.name, "out": str(out), **board.to_dict()}))
    elif dry_run:
        for line in board.lines:
            typer.echo(f"{'done   ' if line.state == 'kept' else 'waiting'} {line.name}")
    for line in board.failed:
        console.say(f"failed: {line.name}: {line.reason}")
    console.say(f"{board.words()}" + ("" if dry_run else f"; for you only: {out / 'internal' / 'tables.md'}"))
    if board.failed:
        raise typer.Exit(2)
