"""`distcondense schema`: draft and check what is public about a table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Decimal, Encoding, Force, Marker, Query, Separator, markers, schema_app, written
from distcondense.errors import SettingsError


@schema_app.command("infer")
def schema_infer(
    table: Annotated[str, typer.Argument(help="The table to look at, a path or URI.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write it; printed if not said.")] = None,
    force: Force = False,
    missing_marker: Marker = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    query: Query = None,
) -> None:
    """Draft a schema from a table, for a person to check and edit. It is marked as inferred."""
    from distcondense.data.dialect import Dialect
    from distcondense.data.draft import draft
    from distcondense.data.tables import read_table
    from distcondense.runs.files import refuse_target, write_text

    if out is not None:
        refuse_target(out)
        if os.path.lexists(out) and not force:
            raise SettingsError(f"schema file {out}", "exists already", found="a file", fix="--force to replace it")
    dialect = Dialect(**written(separator, encoding, decimal))
    found = draft(read_table(table, dialect=dialect, query=query, **markers(missing_marker)))
    text = found.to_toml()
    for line in found.hints:
        typer.echo(f"hint: {line}", err=True)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_text(out, text)
    typer.echo(f'drafted {out}: check every bound and category, then set origin = "declared"', err=True)


@schema_app.command("check")
def schema_check(
    schema: Annotated[Path, typer.Argument(help="The schema file.")],
    table: Annotated[str | None, typer.Argument(help="A table that should fit it, a path or URI.")] = None,
    missing_marker: Marker = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    query: Query = None,
) -> None:
    """Check a schema, and a table against it; how many rows break each of its rules is said, not refused."""
    from functools import partial

    from distcondense.data.dates import with_computed
    from distcondense.data.dialect import Dialect
    from distcondense.data.features import check_features
    from distcondense.data.missing import hints
    from distcondense.data.reading import read_csv_cells
    from distcondense.data.reserved import refuse_reserved
    from distcondense.data.rules import Rules
    from distcondense.data.schema import Schema
    from distcondense.data.tables import is_csv, read_table, table_name
    from distcondense.errors import CohortError

    known = Schema.from_toml(schema)
    rules = Rules(known)
    rules.check()
    broken = []
    if table is not None:
        of_csv = query is None and is_csv(table)
        read = partial(read_csv_cells, table, known) if of_csv else partial(read_table, table, query=query)
        frame = read(dialect=Dialect(**written(separator, encoding, decimal)), **markers(missing_marker))
        refuse_reserved(set(frame.columns).difference(c.name for c in known.added))  # a release fits its own schema
        absent = [n for n in known.in_table if n not in frame]
        if absent:
            raise CohortError(
                f"table {table_name(table)}",
                "must have every column of the schema",
                found=f"{len(absent)} missing: {', '.join(map(repr, absent[:8]))}",
                fix="add the columns or take them out of the schema",
            )
        frame = with_computed(frame, known)
        for hint in hints(frame, known):
            typer.echo(f"hint: {hint}", err=True)
        broken = rules.broken(check_features(frame, known))
    typer.echo(
        f"{schema}: {len(known.columns)} columns, {known.origin}" + (f"; {table_name(table)} fits" if table else "")
    )
    for rule, rows in broken:
        typer.echo(f"  {rule.words}: broken in {rows} of {len(frame)} rows")


@schema_app.command("rules")
def schema_rules(
    table: Annotated[str, typer.Argument(help="The table, a path or URI.")],
    schema: Annotated[Path, typer.Option("--schema", help="What is public about it.")],
    without: Annotated[
        list[str] | None, typer.Option("--without", help="A column that no rule may name, as the outcome; repeatable.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Ask, and write the schema with what was confirmed here.")
    ] = None,
    force: Force = False,
    missing_marker: Marker = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
) -> None:
    """Propose rules that a table happens to obey (nested codes, copies, orders …); none holds until confirmed."""
    import sys

    from distcondense.data.dates import with_computed
    from distcondense.data.dialect import Dialect
    from distcondense.data.names import nearest
    from distcondense.data.proposals import proposed_rules
    from distcondense.data.schema import Schema
    from distcondense.data.tables import read_table
    from distcondense.guide.confirming import with_confirmed_rules
    from distcondense.guide.prompts import TerminalPrompts
    from distcondense.runs.files import refuse_target, write_text

    if out is not None:
        refuse_target(out)
        if os.path.lexists(out) and not force:
            raise SettingsError(f"schema file {out}", "exists already", found="a file", fix="--force to replace it")
    known = Schema.from_toml(schema)
    if unknown := [name for name in without or () if name not in known.names]:
        raise SettingsError(
            "--without", "must name columns of the schema", found=nearest(unknown[0], known.names), fix="check it"
        )
    dialect = Dialect(**written(separator, encoding, decimal))
    frame = with_computed(read_table(table, dialect=dialect, **markers(missing_marker)), known)
    if out is None or not sys.stdin.isatty():
        for proposal in proposed_rules(frame, known, without or ()):
            typer.echo(f"by definition? {proposal.line}")
        return
    confirmed = with_confirmed_rules(frame, known, without or (), TerminalPrompts())
    write_text(out, confirmed.to_toml())
    typer.echo(f"written: {out}, {len(confirmed.rules) - len(known.rules)} rules more", err=True)
