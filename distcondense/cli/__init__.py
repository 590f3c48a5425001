"""The command line: arguments → calls. Exit 0 done; 2 the user's mistake, one clear message; 3 no answer at
this budget; 1 a bug.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import Annotated

import typer

from distcondense import __version__
from distcondense.cli import attack, bench, condense, demo, evaluate, init, privacy, schema, study, submit
from distcondense.cli.common import app, with_address
from distcondense.errors import UNANSWERED, DistcondenseWarning, UserError, os_errors

__all__ = [
    "app",
    "attack",
    "bench",
    "condense",
    "demo",
    "evaluate",
    "init",
    "main",
    "privacy",
    "schema",
    "study",
    "submit",
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"distcondense {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def _leave_at_once(code: int) -> None:
    """Where a store has not answered: its library would wait minutes for it before it lets the process end."""
    if any(thread.name == UNANSWERED for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Run the command line; the user's mistakes become one message and exit code 2."""
    # threads of XGBoost that spin while they wait take a hundred times as long where others want the cores too
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.argv[1:] = with_address(sys.argv[1:])
    condense.register(sys.argv[1:])  # methods may have been added since
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", DistcondenseWarning)
    warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)  # type: ignore[assignment]
    try:
        with os_errors("a file of this command"):  # whoever knows which one says so before
            app()
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        _leave_at_once(2)
        sys.exit(2)
    except SystemExit as done:
        if done.code == 130:  # typer's own answer to Ctrl-C
            typer.echo("interrupted; go on with --resume (a study: by the same command)", err=True)
        raise
