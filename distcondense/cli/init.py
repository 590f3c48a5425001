"""`distcondense init`: a guided first run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Decimal, Encoding, Force, Marker, Separator, Threads, app, markers, written
from distcondense.errors import SettingsError


@app.command("init")
def init(
    table: Annotated[str, typer.Argument(help="The table to begin with, a path or URI.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the schema is written.")] = Path("schema.toml"),
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: write a draft, list what is open.")] = False,
    plan: Annotated[bool, typer.Option("--plan/--no-plan", help="Try what ε buys on a simulated table.")] = True,
    ipc: Annotated[int, typer.Option(help="Synthetic rows per class, for the plan and the command.")] = 100,
    force: Force = False,
    missing_marker: Marker = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    threads: Threads = None,
) -> None:
    """Draft a schema, ask what it cannot know, check it, say what ε will buy, and print the command to run."""
    import sys

    from distcondense.data.dialect import Dialect
    from distcondense.data.tables import read_table, table_name
    from distcondense.guide.forecast import about, foresee, simulated, suggested
    from distcondense.guide.prompts import Nobody, Terminal
    from distcondense.guide.wizard import begin, summary
    from distcondense.report.terminal import Console, forecast_table, schema_table
    from distcondense.runs.files import refuse_target, write_text

    refuse_target(out)
    if out.exists() and not force:
        raise SettingsError(f"schema file {out}", "exists already", found="a file", fix="--force to replace it")
    frame = read_table(table, dialect=Dialect(**written(separator, encoding, decimal)), **markers(missing_marker))
    asked = not yes and sys.stdin.isatty()
    ask = Terminal() if asked else Nobody()
    begun = begin(frame, ask, declared=asked)
    write_text(out, begun.to_toml())
    console = Console()
    console.out.print(schema_table(table_name(table), summary(begun)))
    console.log(f"written: {out}")
    for line in ask.open if isinstance(ask, Nobody) else ():
        typer.echo(f"open: {line}")
    if not asked:
        typer.echo(f'open: check every bound and category in {out}, then set origin = "declared"')
    if begun.problem:
        typer.echo(f"open: {begun.problem}")
    epsilon = 1.0
    if plan and begun.outcome:
        rows = len(frame) if not begun.person else int(frame[begun.person].nunique())
        with console.progress() as progress:
            made = list(
                foresee(
                    simulated(begun.schema, begun.outcome, about(rows)), ipc=ipc, threads=threads, progress=progress
                )
            )
        console.out.print(forecast_table(made, about(rows)))
        epsilon = suggested(made)
    if begun.outcome:
        typer.echo("next: " + shlex.join(begun.command(table, str(out), epsilon=epsilon, ipc=ipc)))
