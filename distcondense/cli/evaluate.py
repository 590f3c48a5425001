"""`distcondense evaluate`, `distcondense attack RUN`: measure a finished run on its own table, into `internal/`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distcondense.cli.common import (
    A_RUN,
    LEAK,
    Decimal,
    Encoding,
    Json,
    Quiet,
    Separator,
    Threads,
    app,
    attack_app,
    written,
)

if TYPE_CHECKING:
    from distcondense.evaluation.findings import Findings

Run = Annotated[Path, typer.Argument(help="The run folder that condense wrote.")]
Data = Annotated[str, typer.Option("--data", help="The table it was made of, a path or URI; read as it was then.")]
Seed = Annotated[int | None, typer.Option(help="Seed of samples, models and attacks; the run's own if not said.")]


@app.command()
def evaluate(
    run: Run,
    data: Data,
    external: Annotated[
        list[str] | None, typer.Option(help="Another site's table, to test the same models on. May be repeated.")
    ] = None,
    parts: Annotated[
        str | None, typer.Option(help="Only these, with commas between them (see docs/evaluation.md); all if not said.")
    ] = None,
    attacks: Annotated[bool, typer.Option("--attacks", help="The attacks too: see distcondense attack.")] = False,
    seed: Seed = None,
    threads: Threads = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """How good a condensed table is, and how like the real one: everything, on patients that the run held out.

    Writes internal/report.json and internal/report.html, which are for the custodian only.
    """
    from distcondense.evaluation.suite import ATTACKS, LIKENESS, UTILITY

    chosen = (*UTILITY, *LIKENESS, *(ATTACKS if attacks else ())) if parts is None else _list(parts)
    how = written(separator, encoding, decimal)
    _measure(run, data, chosen, external or (), 0, seed, threads, how, quiet=quiet, as_json=as_json)


@attack_app.command(A_RUN, hidden=True)
def attack_run(
    run: Run,
    data: Data,
    attacks: Annotated[
        str | None, typer.Option("--only", help="Only these attacks, with commas between them; all if not said.")
    ] = None,
    shadows: Annotated[
        int, typer.Option(help="Runs of the same method on random halves of the table, for LiRA; each takes a run.")
    ] = 0,
    seed: Seed = None,
    threads: Threads = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Attack a finished run as somebody would who has its release: who was in the table, and what they are like.

    Exit 0 where no leak was found at this power, 4 where one was: the verdict says what to do now.
    """
    from distcondense.evaluation.suite import ATTACKS

    chosen = tuple(ATTACKS) if attacks is None else _list(attacks)
    how = written(separator, encoding, decimal)
    found = _measure(run, data, ("copies", *chosen), (), shadows, seed, threads, how, quiet=quiet, as_json=as_json)
    if any(one.leaky for one in found):
        raise typer.Exit(LEAK)


def _list(said: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in said.split(",") if name.strip())


def _measure(
    run: Path,
    data: str,
    parts: Sequence[str],
    external: Sequence[str],
    shadows: int,
    seed: int | None,
    threads: int | None,
    how: Mapping[str, str],
    *,
    quiet: bool,
    as_json: bool,
) -> list[Findings]:
    """Measured, written, shown: the findings of every set."""
    from distcondense.api import evaluate_run
    from distcondense.data.tables import table_name
    from distcondense.evaluation.suite import EvaluationRequest
    from distcondense.report.terminal import Console
    from distcondense.runs.reading import read_again

    EvaluationRequest(tuple(parts))  # refused before a large table is read
    console = Console(quiet=quiet or as_json)
    with console.progress() as told:
        told(doing=f"reading {table_name(data)}", step=0, steps=0)
        cohort = read_again(run, data, how=how)
        sites = {table_name(one): read_again(run, one, site=True, how=how) for one in external}

        def progress(name: str, done: int, of: int) -> None:
            told(doing="measuring", step=done, steps=of, note=name)

        found = evaluate_run(
            run,
            cohort,
            parts=parts,
            external=sites,
            shadows=shadows,
            seed=seed,
            threads=threads,
            log=console.log,
            progress=progress,
        )
    if as_json:
        said: dict[str, Any] = {name: one.to_dict() for name, one in found.items()}
        typer.echo(json.dumps(next(iter(said.values())) if len(said) == 1 else said))
        return list(found.values())
    for one in found.values():
        console.findings(one)
    console.log(f"written: {run / 'internal'} (report.json and report.html, for you only: computed on patients)")
    return list(found.values())
