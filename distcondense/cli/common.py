"""What several commands share: the apps, and options that mean the same everywhere."""

from __future__ import annotations

import os
import re
from copy import copy
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from distcondense.errors import SettingsError, brief

if TYPE_CHECKING:
    from distcondense.cluster.config import Cluster

app = typer.Typer(
    name="distcondense",
    help="Condense a patient table into a small synthetic one that trains models almost as well.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
schema_app = typer.Typer(help="Describe what is public about a table.", no_args_is_help=True)
privacy_app = typer.Typer(help="Read and check what a release promises.", no_args_is_help=True)


NO_ANSWER, LEAK, INTERRUPTED, STOPPED = 3, 4, 130, 143  # exit codes; the last as shells know Ctrl-C and SIGTERM
A_RUN = "a-run"  # hidden, and no likely name of a folder: run is one


class NamedAsItsGroup(typer.Context):
    """Of a command that is called by its group's name: `study FILE`."""

    @property
    def command_path(self) -> str:
        return super().command_path.strip()


class Hidden(TyperGroup):
    """A group with a hidden command, A_RUN, whose name stands in no usage line."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name == A_RUN and command is not None:
            command.context_class = NamedAsItsGroup
        return "" if name == A_RUN else name, command, rest


class RunOrAudit(Hidden):
    """What is no command of its own is a run's folder: `attack RUN` is `attack a-run RUN`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = args and (args[0] in self.commands or args[0].startswith("-"))
        return super().resolve_command(ctx, args if known else [A_RUN, *args])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Help lists both, the run's folder as what it is."""
        commands, run = self.commands, copy(self.commands[A_RUN])
        run.name, run.hidden = "RUN --data TABLE", False
        self.commands = {A_RUN: run, **{name: one for name, one in commands.items() if name != A_RUN}}
        super().format_help(ctx, formatter)
        self.commands = commands


attack_app = typer.Typer(
    help="Try to break the promise: attack RUN --data TABLE attacks a release, attack audit the mechanism itself.",
    no_args_is_help=True,
    cls=RunOrAudit,
)


class FileOrStatus(Hidden):
    """What is no command of its own is the study's: `study FILE --out OUT` is `study a-run FILE --out OUT`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args and args[0] in self.commands else [A_RUN, *args])


study_app = typer.Typer(help="Run a grid of condensations; study status OUT: how it stands.", cls=FileOrStatus)
app.add_typer(study_app, name="study")
app.add_typer(schema_app, name="schema")
app.add_typer(privacy_app, name="privacy")
app.add_typer(attack_app, name="attack")

TABLE, RUN = "The table", "Options"  # panels of help; --help stands in the second
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print nothing but errors, and that there is no answer.", rich_help_panel=RUN),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.", rich_help_panel=RUN)]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.", rich_help_panel=RUN)]
Marker = Annotated[
    list[str] | None,
    typer.Option(
        "--missing-marker",
        metavar="TEXT",
        help="Marks a hole in a CSV, e.g. '?'. May be repeated.",
        rich_help_panel=TABLE,
    ),
]
Separator = Annotated[
    str | None, typer.Option(help="Of a CSV: comma, semicolon, tab or the sign; else guessed.", rich_help_panel=TABLE)
]
Encoding = Annotated[
    str | None, typer.Option(help="Of a CSV, e.g. utf-8, cp1252; else guessed.", rich_help_panel=TABLE)
]
Decimal = Annotated[
    str | None, typer.Option(help="Decimal sign of a CSV, . or , ; else guessed.", rich_help_panel=TABLE)
]
Query = Annotated[
    str | None,
    typer.Option(
        metavar="SQL", help="SQL (or a .sql file): its rows are the table, of a database.", rich_help_panel=TABLE
    ),
]
Threads = Annotated[int | None, typer.Option(help="Threads to use; all cores if not said.", rich_help_panel=RUN)]
Ray = Annotated[
    str | None,
    typer.Option(
        metavar="[ADDRESS]", help="Spread the work over Ray: start a cluster, or join one.", rich_help_panel=RUN
    ),
]


def markers(said: list[str] | None) -> dict[str, Any]:
    from distcondense.data.tables import MISSING_MARKERS

    return {"missing_markers": (*MISSING_MARKERS, *said)} if said else {}


def written(separator: str | None, encoding: str | None, decimal: str | None) -> dict[str, str]:
    """How a CSV is written, as far as it was said; refused before a table is read."""
    from distcondense.data.dialect import Dialect

    return Dialect(separator, encoding, decimal).stated()


def no_answer(why: str) -> NoReturn:
    """The end of a run that could not answer: said however quiet, with an exit code of its own."""
    typer.echo(why, err=True)
    raise typer.Exit(NO_ANSWER)


def cluster_of(ray: str | None, **knobs: Any) -> Cluster | None:
    """The cluster asked for; one that is to be joined is tried now, before a large table is read."""
    from distcondense.cluster.config import Cluster

    said = {name: value for name, value in knobs.items() if value is not None}
    if ray is not None:
        cluster = Cluster(address=ray, **{name.removeprefix("actor_"): value for name, value in said.items()})
        if not cluster.starts_here:
            from distcondense.cluster.ray.session import probe

            probe(cluster)
        return cluster
    if said:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in said)
        raise SettingsError(names, "is about Ray", found="no --ray", fix="add --ray, or leave it out")
    return None


def rows_of(said: str) -> int:
    """1e7 or 10000000: a whole number of rows."""
    try:
        number = float(said)
    except ValueError:
        number = 0.0
    if not 1 <= number <= 1e12 or number != int(number):
        raise SettingsError("--rows", "must be a whole number", found=repr(brief(said)), fix="e.g. --rows 1e7")
    return int(number)


def bytes_of(said: str) -> int:
    """2GB, 500MB, 1.5GiB or a number of bytes."""
    found = re.fullmatch(r"([0-9.]+)\s*([kmgt]?)(i?)b?", said.strip(), re.IGNORECASE)
    try:
        number = float(found[1]) if found else 0.0
    except ValueError:
        number = 0.0
    if found is None or not 0 < number < 1e6 * 2**40:
        raise SettingsError("memory", "must be a number of bytes", found=repr(said), fix="say 2GB, or 500MB")
    return int(number * (1024 if found[3] else 1000) ** " kmgt".index(found[2].lower() or " "))


def with_address(arguments: list[str]) -> list[str]:
    """`--ray` takes an address or nothing: what follows is none if it is an option or a file."""
    end = arguments.index("--") if "--" in arguments else len(arguments)  # what is behind it is not ours
    found = []
    for this, after in zip(arguments[:end], [*arguments[1:end], "-"], strict=False):
        none = after.startswith("-") or (after != "" and os.path.exists(after))
        found.append("--ray=" if this == "--ray" and none else this)
    return found + arguments[end:]
