"""`distcondense plan`: what a run will take, on one machine and on a cluster, before anybody is read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Json, app


@app.command()
def plan(
    table: Annotated[str, typer.Argument(metavar="TABLE|SHAPE", help="A file, a folder of them, or e.g. 1e7x20.")],
    method: Annotated[str | None, typer.Option(help="One that was measured; the default one if not said.")] = None,
    cores: Annotated[int, typer.Option(min=1, help="Of one machine.")] = 4,
    actors: Annotated[int, typer.Option(min=1, help="Of a cluster, of two cores each.")] = 8,
    as_json: Json = False,
) -> None:
    """Say what condensing a table will take: memory, time and scratch, from measurements of simulated tables.

    Only the files' metadata is looked at (of a CSV the lengths of its first lines): nobody is charged for it.
    """
    from distcondense.cluster import sizes
    from distcondense.methods.base import default_method
    from distcondense.report.text import markdown_table

    method = default_method() if method is None else method

    shape = sizes.Shape.from_text(table) or sizes.Shape.from_table(Path(table))
    ways = sizes.plan(shape, method, cores=cores, actors=actors)
    if as_json:
        said = {"rows": shape.rows, "columns": shape.columns, "exact": shape.exact, "method": method}
        typer.echo(json.dumps({**said, "ways": [asdict(one) for one in ways]}))
        return
    typer.echo(f"{shape}, method {method}; about, on {cores} cores like those measured")
    head = ("where", "memory (request)", "time", "scratch", "how")
    for line in markdown_table(head, [one.row() for one in ways]):
        typer.echo(line)
    fitting = sizes.fits(ways, sizes.here())
    typer.echo(
        f"this machine ({sizes.in_bytes(sizes.here())}) has room for: "
        + (", ".join(one.where for one in fitting) if fitting else "none of these on its own")
    )
