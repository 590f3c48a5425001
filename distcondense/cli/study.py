"""`distcondense study`: grids of runs; `distcondense study status`: how one stands."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import A_RUN, INTERRUPTED, STOPPED, Json, Quiet, study_app
from distcondense.errors import SettingsError, Stopped


@study_app.command(A_RUN, epilog="How a study stands, while it runs and after: distcondense study status OUT")
def study(
    file: Annotated[Path, typer.Argument(help="The study: a TOML file (benchmarks/studies/ has examples).")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The study folder; the file's name with -study if not said.")
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
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only cells with these values: data=a,b, method=…, reference=…, epsilon=…. May be repeated."),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Only these seeds of the file, e.g. 0,1.")] = None,
    with_: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            help="A results.parquet that another machine made of a part of this study: its cells "
            "are not run, and are in the report. May be repeated.",
        ),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Run no cell: write the report of what is done, here and elsewhere.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the file and its tables, list the cells, say what they take; run none."),
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a grid of condensations: data × outcome × method × reference × IPC × ε × seeds.

    Stopped at any time, the same command goes on: finished cells are kept. Exit 0 when all cells are done, 2 when some
    have failed (they are listed, the others are done all the same).
    """
    from distcondense.report.terminal import Console
    from distcondense.study import ExternalResults, Study, forecast, plan, run_tasks

    for name, value in (("at-once", at_once), ("threads", threads)):
        if value is not None and value < 1:
            raise SettingsError(f"--{name}", "must be at least 1", found=str(value), fix="leave it out")
    if in_process and (ray is not None or at_once is not None):
        raise SettingsError(
            "--in-process", "runs one cell after another here", found="--ray or --at-once", fix="leave one of them out"
        )
    if report and (dry_run or only or seeds or ray is not None):
        raise SettingsError(
            "--report",
            "runs nothing and tells of all",
            found="--dry-run, --only, --seeds or --ray",
            fix="leave one of them out",
        )
    console = Console(quiet=quiet or as_json)
    design = Study.from_toml(file, prepared=not report)
    chosen = () if report else design.only(_wanted(only or [], seeds)) if only or seeds else None
    out = Path(f"{file.stem}-study") if out is None else out
    external = ExternalResults.from_files(with_ or (), design)
    more = {}
    if dry_run:
        progress = plan(design, out, chosen, external)
        expected = forecast(design, progress, at_once=1 if in_process else at_once, threads=threads or design.threads)
        more = {"forecast": expected.to_dict()}
        for sentence in expected.lines():
            console.log(sentence)
    else:
        try:
            progress = run_tasks(
                design,
                out,
                console,
                ray=ray,
                in_process=in_process or report,
                at_once=at_once,
                threads=threads or design.threads,
                chosen=chosen,
                external=external,
            )
        except KeyboardInterrupt as stop:
            how, words = str(stop) or "interrupted", plan(design, out, chosen, external).words()
            again = shlex.join(["distcondense", *sys.argv[1:]])
            typer.echo(f"stopped ({how}): {words}. Nothing is lost; go on by the same command: {again}", err=True)
            raise typer.Exit(STOPPED if isinstance(stop, Stopped) else INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps({"study": design.name, "out": str(out), **progress.to_dict(), **more}))
    elif dry_run:
        for line in progress.lines:
            if line.state != "left":
                typer.echo(f"{'waiting' if line.state == 'waiting' else 'done   '} {line.name}")
    for line in progress.failed:
        console.log(f"failed: {line.name}: {line.reason}")
    console.log(f"{progress.words()}" + ("" if dry_run else f"; for you only: {out / 'internal' / 'tables.md'}"))
    if progress.failed:
        raise typer.Exit(2)


@study_app.command("status")
def study_status(
    out: Annotated[Path, typer.Argument(help="The study folder: the study's --out.")], as_json: Json = False
) -> None:
    """How a study stands: cells done, running and failed, time left, its main numbers so far. Nothing is written."""
    from distcondense.report.terminal import Console
    from distcondense.study import Status

    status = Status.from_folder(out)
    if as_json:
        typer.echo(json.dumps(status.to_dict()))
    else:
        status.show(Console())


def _wanted(only: list[str], seeds: str | None) -> dict[str, list[str]]:
    """`data=a,b` → data: [a, b]."""
    wanted: dict[str, list[str]] = {}
    for text in [*only, *([] if seeds is None else [f"seed={seeds}"])]:
        key, equals, values = text.partition("=")
        if not equals or not values:
            raise SettingsError(
                "--only",
                "must be of the form KEY=VALUE,VALUE",
                found=repr(text),
                fix="for example --only data=adult,obesity",
            )
        wanted.setdefault(key, []).extend(value.strip() for value in values.split(","))
    return wanted
