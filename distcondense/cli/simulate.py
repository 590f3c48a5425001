"""`distcondense simulate`: a table of any size on disk, of nobody, to try a machine or a cluster with."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Json, Quiet, app, rows_of


@app.command()
def simulate(
    name: Annotated[
        str, typer.Argument(help="curial, proteomics, diabetes or seer: the shapes of Thakur et al. 2026.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder: gets table/ and schema.toml.")],
    rows: Annotated[str | None, typer.Option(help="How many, e.g. 1e7; as in the paper if not said.")] = None,
    features: Annotated[int | None, typer.Option(help="The first so many columns and the outcome.")] = None,
    rows_each: Annotated[int, typer.Option(help="Rows of each person; more than one make a column who.")] = 1,
    seed: Annotated[int, typer.Option(help="Of the patients drawn.")] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write a simulated table as Parquet files, and its schema: no row of it is a patient's."""
    from distcondense.data.datasets import POPULATIONS
    from distcondense.data.datasets import simulate as write
    from distcondense.report.terminal import Console

    console = Console(quiet=quiet or as_json)
    full = name if name in POPULATIONS else f"{name}_like"
    with console.progress() as progress:
        table = write(
            full,
            out,
            rows=None if rows is None else rows_of(rows),
            seed=seed,
            features=features,
            rows_each=rows_each,
            on_rows=lambda done, of: progress(doing=f"simulating {full}", step=done, steps=of),
        )
    made = POPULATIONS[full]()
    roles = [("--target", made.target), ("--time", made.time), ("--event", made.event)]
    said = [part for role, column in roles if column for part in (role, column)]
    person = ["--person-id", "who"] if rows_each > 1 else []
    command = ["distcondense", "condense", str(table), "--schema", str(out / "schema.toml"), *said, *person]
    if as_json:
        typer.echo(json.dumps({"table": str(table), "schema": str(out / "schema.toml"), "condense": command}))
        return
    console.log(f"written: {table}, {out / 'schema.toml'}; condense it by:")
    typer.echo(shlex.join(command))
