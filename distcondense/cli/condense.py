"""`distcondense condense`: its options are those of the methods there are, each under its method's name."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from distcondense.cli.common import (
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
    cluster_of,
    markers,
    no_answer,
    refuse_old_words,
    written,
)
from distcondense.data.roles import ROLES
from distcondense.errors import DistcondenseWarning, SettingsError
from distcondense.methods.base import OLD_WORDS, any_length, method_names, methods, one_or_list, types_of

_REPEATED: set[str] = set()  # options that take one text, or several
TABLE, RAY, RUN = "The table", "Ray", "The run"


def fixed(
    table: Annotated[
        str,
        typer.Argument(
            help="The cohort, a path or URI: .csv, .csv.gz, .parquet, .feather, .arrow; or a folder of "
            "files of one kind, which are read in batches."
        ),
    ],
    positive: Annotated[
        str | None, typer.Option(help="The value of the target or event column that means yes.", rich_help_panel=TABLE)
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="Kind of outcome, where the schema does not say: binary, multiclass, continuous, survival.",
            rich_help_panel=TABLE,
        ),
    ] = None,
    person_id: Annotated[
        str | None,
        typer.Option(
            help="Column that says whose row it is: the guarantee is then about persons.", rich_help_panel=TABLE
        ),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Column that is not a feature. May be repeated.", rich_help_panel=TABLE)
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="The table's public schema (TOML); method private needs one.", rich_help_panel=TABLE),
    ] = None,
    missing_marker: Marker = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder to write.", rich_help_panel=RUN)] = Path(
        "run"
    ),
    odometer: Annotated[
        Path | None,
        typer.Option(
            help="The account of these patients (privacy ledger), charged before anybody is read; one is "
            "kept by the table's path if not said.",
            rich_help_panel=RUN,
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory that the table may take, e.g. 2GB: it is then read in batches, as a large file and a "
            "folder are anyway.",
            rich_help_panel=RUN,
        ),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the coded rows of a table that is read in batches; the run's own if not said.",
            rich_help_panel=RUN,
        ),
    ] = None,
    ray: Ray = None,
    actors: Annotated[
        int | None, typer.Option(help="Ray actors; as many as fit if not said.", rich_help_panel=RAY)
    ] = None,
    num_cpus: Annotated[float | None, typer.Option(help="Cores of each actor (1).", rich_help_panel=RAY)] = None,
    num_gpus: Annotated[float | None, typer.Option(help="GPUs of each actor (0).", rich_help_panel=RAY)] = None,
    hung_after: Annotated[
        float | None,
        typer.Option(
            help="Seconds without an answer after which an actor counts as hung and is replaced (300).",
            rich_help_panel=RAY,
        ),
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
    from distcondense.api import condense_file
    from distcondense.data.schema import Schema
    from distcondense.data.tables import table_name
    from distcondense.report.terminal import Console, fate

    if quiet:  # they are in run.json
        warnings.simplefilter("ignore", DistcondenseWarning)
    options = {
        name: one_or_all(value) if name in _REPEATED else value
        for name, value in more.items()
        if value is not None and value != []
    }
    refuse_old_words(options)
    reading = {
        **{role: options.pop(role) for role in ROLES if role in options},
        "positive": positive,
        "kind": kind,
        "person_id": person_id,
        "ignore": ignore or (),
        "schema": None if schema is None else Schema.from_toml(schema),
        **markers(missing_marker),
        **written(separator, encoding, decimal),
    }
    console = Console(quiet=quiet or as_json)
    cluster = cluster_of(ray, actors=actors, num_cpus=num_cpus, num_gpus=num_gpus, hung_after=hung_after)
    with console.progress() as progress:
        result = condense_file(
            table,
            reading,
            threads=threads,
            out=out,
            resume=resume,
            force=force,
            progress=progress,
            log=console.log,
            cluster=cluster,
            odometer=odometer,
            memory=None if memory is None else bytes_of(memory),
            scratch=scratch,
            **options,
        )
    privacy, record = result.privacy, result.internal
    if as_json:
        names = ("sets",) if "sets" in record else ("scores", "scores_note")
        found = {"out": str(out), "answer": not privacy.answer, "privacy": privacy.to_dict()}
        typer.echo(json.dumps(found | {name: record[name] for name in names}))
    console.verdict(record, privacy)
    console.run_table(table_name(table), record)
    console.statement(privacy, out / "release")
    console.log(f"release: {out / 'release'} ({fate(privacy)})   internal: {out / 'internal'} (for you only)")
    if privacy.answer:
        no_answer(privacy.answer)


def register() -> None:
    """(Re)build the command from the methods that are known."""
    app.registered_commands = [command for command in app.registered_commands if command.name != "condense"]

    def condense(**said: Any) -> None:
        fixed(**said)

    signature = inspect.signature(fixed, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    parameters = [own[0], *_outcome_options(), *own[1:], *_method_options()]
    parameters = [parameters[0], *(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters[1:])]
    condense.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    condense.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    condense.__doc__ = fixed.__doc__
    app.command("condense")(condense)


def _outcome_options() -> list[inspect.Parameter]:
    return [_parameter(role, str, about, TABLE) for role, about in ROLES.items()]


def _method_options() -> list[inspect.Parameter]:
    """Every option of every method; one that several share stands once, under all their names."""
    kinds = "; ".join(f"{method.name}: {method.about}" for method in methods())
    found = [_parameter("method", str, f"How the table is made. {kinds}.", "Method")]
    takes: dict[str, list[str]] = {}
    entries: dict[str, tuple[Any, Any]] = {}
    defaults: dict[str, set[Any]] = {}
    for method in methods():
        for entry in fields(method.Options):
            if entry.metadata["cli"]:
                takes.setdefault(entry.name, []).append(method.name)
                hint = types_of(method.Options)[entry.name]
                if entry.name not in entries or one_or_list(hint):  # whoever takes only one says so
                    entries[entry.name] = (entry, hint)
                defaults.setdefault(entry.name, set()).add(entry.default)
    everybody = list(method_names())
    for name, (entry, hint) in entries.items():
        panel = "Every method" if takes[name] == everybody else f"Method {' and '.join(takes[name])}"
        said = len(defaults[name]) == 1 and entry.default not in (None, ()) and not isinstance(entry.default, bool)
        default = f" ({_shown(entry.default)})" if said else ""
        flag = (f"--{name.replace('_', '-')}",) if entry.default is False else ()  # else --x and --no-x
        texts = any(any_length(one) and get_args(one)[0] is str for one in get_args(hint))
        _REPEATED.update([name] if texts else [])
        more = {"parser": whole_numbers, "metavar": "INTEGER[,INTEGER…]"} if one_or_list(hint) and not texts else {}
        kind = list[str] if texts else _plain_type(hint)
        found.append(_parameter(name, kind, entry.metadata["about"] + default, panel, flag, **more))
    found += [
        inspect.Parameter(
            old,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(hidden=True)],
        )
        for old in OLD_WORDS
    ]
    return found


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


def _shown(default: Any) -> str:
    return " ".join(f"{part:g}" for part in default) if isinstance(default, tuple) else f"{default}"


register()
