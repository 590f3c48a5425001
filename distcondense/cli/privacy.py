"""`distcondense privacy`: read and check what a release promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Json, privacy_app


@privacy_app.command("verify")
def privacy_verify(
    run: Annotated[Path, typer.Argument(help="A run folder, its release folder or a privacy.json.")],
    as_json: Json = False,
) -> None:
    """Replay a release's ledger with two accountants and compare the ε with the one it states."""
    from distcondense.privacy.verify import verify

    found = verify(run)
    typer.echo(json.dumps(found.to_dict()) if as_json else "\n".join(found.lines()))
    if not found.holds:
        raise typer.Exit(2)
