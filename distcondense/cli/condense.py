"""`distcondense condense`: it takes the options of every method, and its help shows those of one."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from distcondense.cli.common import (
    RUN,
    TABLE,
    Decimal,
    Encoding,
    Force,
    Json,
    Marker,
    Quiet,
    Ray,
    Separator,
    Threads,
    app,
    bytes_of,
    cluster_of,
    markers,
    no_answer,
    written,
)
from distcondense.data.roles import ROLES
from distcondense.errors import DistcondenseWarning
from distcondense.methods.base import (
    any_length,
    default_method,
    method_named,
    method_names,
    methods,
    one_or_list,
    types_of,
)

_REPEATED: set[str] = set()  # options that take one text, or several
BESIDE = {  # an option → those that help shows beside it alone
    "--ray": ("actors", "num_cpus", "num_gpus", "hung_after"),
    "--about": ("publisher", "contact", "licence"),
    "--account": ("require_account",),
    "--memory": ("scratch",),
}


def fixed(
    table: Annotated[str, typer.Argument(help="A file, URI or folder; with --query SQL a database.")],
    positive: Annotated[
        str | None, typer.Option(help="Value of target or event that means yes.", rich_help_panel=TABLE)
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="Of outcome, e.g. multiclass, survival; else the schema's.", rich_help_panel=TABLE),
    ] = None,
    person_id: Annotated[
        str | None, typer.Option(help="Column that says whose row it is: persons are protected.", rich_help_panel=TABLE)
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Column that is no feature. May be repeated.", rich_help_panel=TABLE),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="What is public about it (TOML); method private needs one.", rich_help_panel=TABLE),
    ] = None,
    missing_marker: Marker = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    query: Annotated[str | None, typer.Option(hidden=True)] = None,  # the first line of help says it
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder to write.", rich_help_panel=RUN)] = Path(
        "run"
    ),
    rows: Annotated[
        int | None, typer.Option(help="Rows in all, instead of --ipc rows of each class.", rich_help_panel=RUN)
    ] = None,
    about: Annotated[
        Path | None,
        typer.Option(help="release.toml: what catalogues may know, such as --publisher.", rich_help_panel=RUN),
    ] = None,
    publisher: Annotated[str | None, typer.Option(help="Who holds the patients' table.", rich_help_panel=RUN)] = None,
    contact: Annotated[str | None, typer.Option(help="Their e-mail address or URL.", rich_help_panel=RUN)] = None,
    licence: Annotated[
        str | None, typer.Option(help="Of the release: a URL or SPDX name.", rich_help_panel=RUN)
    ] = None,
    account: Annotated[
        Path | None, typer.Option(help="An account to charge besides the table's own.", rich_help_panel=RUN)
    ] = None,
    require_account: Annotated[
        bool, typer.Option("--require-account", help="Refuse where no account can be charged.", rich_help_panel=RUN)
    ] = False,
    memory: Annotated[
        str | None, typer.Option(help="What the table may take, e.g. 2GB: read in batches then.", rich_help_panel=RUN)
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for coded rows of batches; else the run's own.", rich_help_panel=RUN)
    ] = None,
    ray: Ray = None,
    actors: Annotated[
        int | None, typer.Option(help="Ray actors; as many as fit if not said.", rich_help_panel=RUN)
    ] = None,
    num_cpus: Annotated[float | None, typer.Option(help="Cores of each actor (1).", rich_help_panel=RUN)] = None,
    num_gpus: Annotated[float | None, typer.Option(help="GPUs of each actor (0).", rich_help_panel=RUN)] = None,
    hung_after: Annotated[
        float | None,
        typer.Option(help="Seconds of silence after which an actor is replaced (300).", rich_help_panel=RUN),
    ] = None,
    threads: Threads = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run, to the same result.", rich_help_panel=RUN)
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **more: Any,
) -> None:
    """Condense a table on disk into a run folder."""
    from distcondense.api import condense
    from distcondense.data.schema import Schema
    from distcondense.data.tables import table_name
    from distcondense.evaluation.shortfall import shortfall_of_sets
    from distcondense.report.terminal import Console, fate
    from distcondense.runs.release import ReleaseInfo

    if quiet:  # they are in run.json
        warnings.simplefilter("ignore", DistcondenseWarning)
    options = {
        name: one_or_all(value) if name in _REPEATED else value
        for name, value in more.items()
        if value is not None and value != []
    }
    reading = {
        **{role: options.pop(role) for role in ROLES if role in options},
        "positive": positive,
        "kind": kind,
        "person_id": person_id,
        "ignore": ignore or (),
        "schema": None if schema is None else Schema.from_toml(schema),
        **markers(missing_marker),
        **written(separator, encoding, decimal),
        "query": query,
    }
    said = {"publisher": publisher, "contact": contact, "licence": licence}
    words: dict[str, Any] = {name: text for name, text in said.items() if text is not None}
    info = replace(ReleaseInfo.from_any(about), **words)
    console = Console(quiet=quiet or as_json)
    cluster = cluster_of(ray, actors=actors, num_cpus=num_cpus, num_gpus=num_gpus, hung_after=hung_after)
    with console.progress() as progress:
        result = condense(
            table,
            **reading,
            rows=rows,
            about=info,
            threads=threads,
            out=out,
            resume=resume,
            force=force,
            progress=progress,
            log=console.log,
            cluster=cluster,
            account=account,
            require_account=require_account,
            memory=None if memory is None else bytes_of(memory),
            scratch=scratch,
            **options,
        )
    privacy, record = result.privacy, result.internal
    if as_json:
        names = ("sets",) if "sets" in record else ("scores", "scores_note")
        poor = shortfall_of_sets(record)
        found = {"out": str(out), "answer": not privacy.answer, "poor": poor, "privacy": privacy.to_dict()}
        typer.echo(json.dumps(found | {name: record[name] for name in names}))
    console.verdict(record, privacy)
    console.run_table(table_name(table), record)
    console.statement(privacy, out / "release")
    console.log(f"release: {out / 'release'} ({fate(privacy)})   internal: {out / 'internal'} (for you only)")
    if privacy.answer:
        no_answer(privacy.answer)


def register(arguments: Sequence[str] = ()) -> None:
    """(Re)build the command from the methods that are known.

    Every option of every method is accepted. Help shows those that all methods share and those of the method that
    stands in `arguments`, or else of the default; what belongs to another option (`BESIDE`), where that one is.
    """
    app.registered_commands = [command for command in app.registered_commands if command.name != "condense"]

    def condense(**said: Any) -> None:
        fixed(**said)

    signature = inspect.signature(fixed, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    for option, names in BESIDE.items():
        if not any(argument.startswith(option) for argument in arguments):
            own = [_hidden(parameter) if parameter.name in names else parameter for parameter in own]
    roles = [_parameter(role, str, about, TABLE) for role, about in ROLES.items()]
    parameters = [own[0], *roles, *own[1:], *_method_options(arguments)]
    parameters = [parameters[0], *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters[1:])]
    condense.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    condense.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    condense.__doc__ = fixed.__doc__
    app.command("condense", epilog=_list_of_methods())(condense)


def _method_in(arguments: Sequence[str]) -> str:
    """The method that a command line names; the default where it names none, or one that there is not."""
    values = [value for flag, value in pairwise(arguments) if flag == "--method"]
    values += [argument.partition("=")[2] for argument in arguments if argument.startswith("--method=")]
    return next((value for value in values if value in method_names()), default_method())


def _list_of_methods() -> str:
    """For the end of help, a line each (which \\b keeps apart)."""
    lines = [f"  {method.name:<10} {method.about}".replace("[", "\\[") for method in methods()]
    return "\n".join(["\b", "Methods, whose options --method NAME --help shows:", *lines])


def _method_options(arguments: Sequence[str]) -> list[inspect.Parameter]:
    """The options of all methods, in the words of the method that is shown; those that it has not are hidden."""
    shown = _method_in(arguments)
    parameters = [
        _parameter("method", str, f"How the table is made: see below ({default_method()}).", f"Method {shown}")
    ]
    options: dict[str, tuple[Any, Any]] = {}
    for method in sorted(methods(), key=lambda method: method.name != shown):
        for entry in fields(method.Options):
            hint = types_of(method.Options)[entry.name]
            if not entry.metadata["cli"]:
                continue
            if entry.name not in options:
                options[entry.name] = (entry, hint)
            elif one_or_list(hint):  # whoever takes only one says so
                options[entry.name] = (options[entry.name][0], hint)
    own = {entry.name for entry in fields(method_named(shown).Options)}
    for name, (entry, hint) in options.items():
        told = entry.default not in (None, ()) and not isinstance(entry.default, bool)
        default = f" ({_default_words(entry.default)})" if told else ""
        flag = (f"--{name.replace('_', '-')}",) if entry.default is False else ()  # else --x and --no-x
        texts = any(any_length(one) and get_args(one)[0] is str for one in get_args(hint))
        _REPEATED.update([name] if texts else [])
        more = {"parser": whole_numbers, "metavar": "N[,N…]"} if one_or_list(hint) and not texts else {}
        kind = list[str] if texts else _plain_type(hint)
        more |= {"metavar": "TEXT"} if kind == list[str] else {}
        about = entry.metadata["about"].removesuffix(".") + f"{default}."
        parameters.append(_parameter(name, kind, about, f"Method {shown}", flag, hidden=name not in own, **more))
    return parameters


def _hidden(parameter: inspect.Parameter) -> inspect.Parameter:
    kind, option = get_args(parameter.annotation)
    hidden = copy(option)
    hidden.hidden = True
    return parameter.replace(annotation=Annotated[kind, hidden])


def _parameter(
    name: str, kind: Any, about: str, panel: str, flag: tuple[str, ...] = (), **more: Any
) -> inspect.Parameter:
    note = Annotated[kind | None, typer.Option(*flag, help=about, rich_help_panel=panel, show_default=False, **more)]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=note)


def whole_numbers(said: str) -> Any:
    """100 is a number, 50,100,500 a list of them."""
    try:
        numbers = tuple(int(part) for part in said.split(","))
    except ValueError:
        raise typer.BadParameter(f"{said!r} is not a whole number, or several with commas between them") from None
    return numbers if len(numbers) > 1 else numbers[0]


def one_or_all(said: list[str]) -> Any:
    """Texts that were said one by one, or with commas between them; the text itself where there is only one."""
    texts = tuple(part.strip() for one in said for part in one.split(","))
    return texts if len(texts) > 1 else texts[0]


def _plain_type(hint: Any) -> Any:
    """What the command line reads: the first type that is said on its own."""
    if any_length(hint):
        return list[str]
    if getattr(hint, "__origin__", None) is tuple:
        return hint
    kinds = [kind for kind in get_args(hint) or (hint,) if kind in (bool, int, float, str)]
    return kinds[0] if kinds else str


def _default_words(default: Any) -> str:
    return " ".join(f"{part:g}" for part in default) if isinstance(default, tuple) else f"{default}"


register()
