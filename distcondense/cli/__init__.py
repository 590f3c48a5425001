"""The command line: arguments → calls. Exit 0 done; 2 the user's mistake, one clear message; 3 no answer at
this budget; 4 of `attack RUN` alone, a leak was found; 130 Ctrl-C, 143 SIGTERM, both with how to go on; 1 a bug.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import os
import shlex
import sys
import threading
import warnings
from typing import Annotated

import typer

from distcondense import __version__
from distcondense.cli import (
    attack,
    bench,
    condense,
    demo,
    evaluate,
    federate,
    init,
    plan,
    privacy,
    sample,
    schema,
    simulate,
    study,
    submit,
)
from distcondense.cli.common import INTERRUPTED, STOPPED, app, with_address
from distcondense.errors import (
    UNANSWERED,
    DistcondenseWarning,
    SettingsError,
    Stopped,
    UserError,
    at_the_command_line,
    brief,
    os_errors,
    stoppable,
)

__all__ = [
    "app",
    "attack",
    "bench",
    "condense",
    "demo",
    "evaluate",
    "federate",
    "init",
    "main",
    "plan",
    "privacy",
    "sample",
    "schema",
    "simulate",
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
    log: Annotated[
        str | None, typer.Option(help="text, or json: standard error is one JSON object a line, of every command.")
    ] = None,
) -> None:
    if log not in (None, "text", "json"):
        raise SettingsError("--log", "must be text or json", found=repr(brief(log)), fix="leave it out for text")
    if log is not None:
        os.environ["DISTCONDENSE_LOG"] = log


def _say(level: str, text: str) -> None:
    """On standard error, as the rest of the log is."""
    from distcondense.report.terminal import log_entry

    structured = os.environ.get("DISTCONDENSE_LOG") == "json"
    # not typer's echo: what shows progress takes sys.stderr over, and puts a line above its own
    sys.stderr.write((log_entry(level, text=text) if structured else f"{level}: {text}") + "\n")
    sys.stderr.flush()


def _log_first(arguments: list[str]) -> list[str]:
    """`--log json` may stand anywhere in front of a `--`; it belongs to the program, not to a command of it."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    moved, rest, behind = list[str](), list[str](), False
    for argument in arguments[:end]:
        ours = behind or argument == "--log" or argument.startswith("--log=")
        behind = argument == "--log"
        (moved if ours else rest).append(argument)
    return [*moved, *rest, *arguments[end:]]


def _leave_at_once(code: int) -> None:
    """Where a store has not answered: its library would wait minutes for it before it lets the process end."""
    if any(thread.name == UNANSWERED for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Run the command line; the user's mistakes become one message and exit code 2."""
    with at_the_command_line():
        _main()


def _main() -> None:
    # threads of XGBoost that spin while they wait take a hundred times as long where others want the cores too
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    sys.argv[1:] = _log_first(with_address(sys.argv[1:]))
    log = os.environ.get("DISTCONDENSE_LOG")
    condense.register(sys.argv[1:])  # methods may have been added since
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", DistcondenseWarning)
    warnings.showwarning = lambda message, *_, **__: _say("warning", str(message))  # type: ignore[assignment]
    try:
        # whoever knows which file it is says so before
        with os_errors("a file of this command"), stoppable():
            app()
    except UserError as error:
        _say("error", str(error))
        _leave_at_once(2)
        sys.exit(2)
    except SystemExit as done:
        if done.code != INTERRUPTED:
            raise
        stop = done.__context__
        while stop is not None and not isinstance(stop, Stopped):  # typer makes one answer of both
            stop = stop.__context__
        typer.echo(_how_to_go_on("interrupted" if stop is None else f"stopped ({stop})", sys.argv[1:]), err=True)
        sys.exit(INTERRUPTED if stop is None else STOPPED)
    finally:
        os.environ.pop("DISTCONDENSE_LOG", None)  # of this command alone
        os.environ.update({} if log is None else {"DISTCONDENSE_LOG": log})


def _how_to_go_on(how: str, arguments: list[str]) -> str:
    """What a person, or the log of a job, is told of a command that was stopped."""
    if arguments[:1] != ["condense"]:
        return f"{how}; nothing half-written is left, and the same command begins again"
    again = [one for one in arguments if one != "--force"]
    again += [] if "--resume" in again else ["--resume"]
    return f"{how}; what was done is kept, go on by: {shlex.join(['distcondense', *again])}"
