"""`distcondense init`: a guided first run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Decimal, Encoding, Force, Marker, Query, Separator, Threads, app, markers, written
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
    query: Query = None,
    threads: Threads = None,
) -> None:
    """Draft a schema, ask what it cannot know, check it, say what ε will buy, and print the command to run."""
    import sys

    from distcondense.data.dialect import Dialect
    from distcondense.data.tables import read_table, table_name
    from distcondense.guide.forecast import about, forecasts, simulated, suggested
    from distcondense.guide.prompts import DefaultAnswers, TerminalPrompts
    from distcondense.guide.wizard import run_wizard
    from distcondense.report.terminal import Console, forecast_table, schema_table
    from distcondense.runs.files import refuse_target, write_text

    refuse_target(out)
    if out.exists() and not force:
        raise SettingsError(f"schema file {out}", "exists already", found="a file", fix="--force to replace it")
    dialect = Dialect(**written(separator, encoding, decimal))
    frame = read_table(table, dialect=dialect, query=query, **markers(missing_marker))
    attended = not yes and sys.stdin.isatty()
    prompts = TerminalPrompts() if attended else DefaultAnswers()
    state = run_wizard(frame, prompts)
    write_text(out, state.to_toml())
    console = Console()
    console.out.print(schema_table(table_name(table), state.summary()))
    console.log(f"written: {out}")
    for line in (*(prompts.open if isinstance(prompts, DefaultAnswers) else ()), *state.problems):
        typer.echo(f"open: {line}")
    epsilon = 1.0
    if plan and state.outcome:
        rows = about(len(frame) if not state.person else int(frame[state.person].nunique()))
        cohort = simulated(state.schema, state.outcome, rows)
        with console.progress() as progress:
            expected = list(forecasts(cohort, ipc=ipc, threads=threads, on_progress=progress))
        console.out.print(forecast_table(expected, rows))
        epsilon = suggested(expected)
    if state.outcome:
        command = shlex.join(state.command(table, str(out), epsilon=epsilon, ipc=ipc, query=query))
        if state.schema.origin == "inferred":  # as it stands, the command would be refused
            typer.echo(f"next, once a person has confirmed what is open (init again, with --force): {command}")
            typer.echo(f"or now, and the guarantee is conditional: {command} --trust-inferred-schema")
        else:
            typer.echo(f"next: {command}")
