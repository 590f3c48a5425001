"""The command line: arguments → calls. Exit 0 done; 2 the user's mistake, one clear message; 1 a bug.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distcondense import __version__
from distcondense.errors import DistcondenseWarning, SettingsError, UserError

if TYPE_CHECKING:
    from distcondense.schema import Schema
    from distcondense.settings import Settings

app = typer.Typer(
    name="distcondense",
    help="Condense a patient table into a small synthetic one that trains models almost as well.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
schema_app = typer.Typer(help="Describe what is public about a table.", no_args_is_help=True)
privacy_app = typer.Typer(help="Read and check what a release promises.", no_args_is_help=True)
attack_app = typer.Typer(help="Try to break the promise.", no_args_is_help=True)
app.add_typer(schema_app, name="schema")
app.add_typer(privacy_app, name="privacy")
app.add_typer(attack_app, name="attack")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end instead of tables.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Marker = Annotated[
    list[str] | None,
    typer.Option("--missing-marker", help="Text that marks a hole in a CSV, e.g. '?'. May be repeated."),
]
Threads = Annotated[int | None, typer.Option(help="Threads to use; all cores if not said.")]


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


@app.command()
def condense(
    table: Annotated[Path, typer.Argument(help="The cohort: .csv, .csv.gz, .parquet, .feather or .arrow.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder to write.")] = Path("run"),
    target: Annotated[str | None, typer.Option(help="Binary outcome column.")] = None,
    time: Annotated[str | None, typer.Option(help="Survival: the follow-up time column.")] = None,
    event: Annotated[str | None, typer.Option(help="Survival: the event column.")] = None,
    positive: Annotated[
        str | None, typer.Option(help="The value of the target or event column that means yes.")
    ] = None,
    person_id: Annotated[
        str | None, typer.Option(help="Column that says whose row it is: the guarantee is then about persons.")
    ] = None,
    rows_per_person: Annotated[
        int | None, typer.Option(help="Private: rows of one person beyond this many are not read (5).")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Column that is not a feature. May be repeated.")] = None,
    schema: Annotated[
        Path | None, typer.Option(help="The table's public schema (TOML); mechanism private needs one.")
    ] = None,
    trust_inferred_schema: Annotated[
        bool, typer.Option("--trust-inferred-schema", help="Private: take bounds and categories off the patients.")
    ] = False,
    horizon: Annotated[
        float | None, typer.Option(help="Private, survival: public end of follow-up, if the schema does not say.")
    ] = None,
    holdout: Annotated[
        float | None, typer.Option(help="Private: share of persons left out of the fit, to measure on (0.2).")
    ] = None,
    missing_marker: Marker = None,
    reference: Annotated[str | None, typer.Option(help="xgb (binary); cox or aft (survival).")] = None,
    mechanism: Annotated[
        str, typer.Option(help="private (ε end-to-end, a theorem), published (ε as published, not a theorem) or none.")
    ] = "private",
    ipc: Annotated[int, typer.Option(help="Synthetic records per class (survival: per event status).")] = 100,
    epsilon: Annotated[
        float | None, typer.Option(help="Budget. Private: end-to-end, 1 if not said. Published: as-published.")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of the budget.")] = 1e-5,
    sigma_base: Annotated[
        float | None, typer.Option(help="Noise level; with --epsilon the run stops when the budget is spent.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Planned steps.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Adam's rate.")] = None,
    clip: Annotated[
        float | None,
        typer.Option(help="Clipping norm C; a quarter of the first gradient's median row norm if not said."),
    ] = None,
    perturbation: Annotated[
        tuple[float, float] | None, typer.Option(help="Range of the finite-difference steps, in standard deviations.")
    ] = None,
    rho: Annotated[float | None, typer.Option(help="The match loss's share of the loss; 0 switches it off.")] = None,
    evaluate_every: Annotated[int | None, typer.Option(help="Steps between evaluations on validation.")] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after this many evaluations without a better score; 0: never.")
    ] = None,
    early_stopping: Annotated[bool, typer.Option(help="Release the best step on validation, not the last.")] = True,
    soft: Annotated[bool, typer.Option("--soft", help="Release raw numbers instead of legal values.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of everything but the privacy noise.")] = 0,
    threads: Threads = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run, to the same result.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Condense a table on disk into a run folder."""
    from distcondense.cohort import Cohort
    from distcondense.pipeline import condense as run
    from distcondense.schema import Schema
    from distcondense.terminal import Console

    if quiet:  # they are in run.json
        warnings.simplefilter("ignore", DistcondenseWarning)
    knobs: dict[str, Any] = {
        "steps": steps, "learning_rate": learning_rate, "clip": clip, "rho": rho, "sigma_base": sigma_base,
        "evaluate_every": evaluate_every, "patience": patience, "perturbation": perturbation, "horizon": horizon,
        "rows_per_person": rows_per_person, "holdout": holdout,
        "trust_inferred_schema": trust_inferred_schema or None,
    }  # fmt: skip
    settings = _check_cheap(mechanism, ipc, epsilon, delta, seed, early_stopping, soft, knobs)
    known = Schema.from_toml(schema) if schema else None
    if settings.mechanism == "private":
        _check_public(settings, known, target, time, event, [*(ignore or ()), *([person_id] if person_id else [])])
    cohort = Cohort.from_file(
        table, target=target, time=time, event=event, positive=positive, person_id=person_id, ignore=ignore or (),
        schema=known, **_markers(missing_marker),
    )  # fmt: skip
    console = Console(quiet=quiet or as_json)
    with console.progress() as progress:
        result = run(
            cohort, mechanism=mechanism, reference=reference, ipc=ipc, epsilon=epsilon, delta=delta, seed=seed,
            threads=threads, out=out, resume=resume, force=force, progress=progress, say=console.say, soft=soft,
            early_stopping=early_stopping, **{k: v for k, v in knobs.items() if v is not None},
        )  # fmt: skip
    if as_json:
        typer.echo(
            json.dumps({"out": str(out), "privacy": result.privacy.to_dict(), "metrics": result.internal["metrics"]})
        )
        return
    console.table(table.name, result.internal)
    console.statement(result.privacy)
    console.say(f"release: {out / 'release'} (to hand over)   internal: {out / 'internal'} (for you only)")


def _check_cheap(
    mechanism: str, ipc: int, epsilon: float | None, delta: float, seed: int, early_stopping: bool, soft: bool,
    knobs: dict[str, Any],
) -> Settings:  # fmt: skip
    """Refuse impossible settings before reading a large table."""
    from distcondense.settings import Settings

    given = {k: v for k, v in knobs.items() if v is not None}
    return Settings(mechanism=mechanism, ipc=ipc, epsilon=epsilon, delta=delta, seed=seed,  # type: ignore[arg-type]
                    early_stopping=early_stopping, soft=soft, **given)  # fmt: skip


def _check_public(
    settings: Settings, schema: Schema | None, target: str | None, time: str | None, event: str | None, aside: list[str]
) -> None:
    """Refuse a private run that public knowledge alone rules out, before the table is opened."""
    from dataclasses import replace

    from distcondense.errors import SchemaError
    from distcondense.methods.private import public_side

    if schema is None:
        if settings.trust_inferred_schema:
            return
        raise SchemaError(
            "schema", "must be given: the private mechanism takes bounds and categories as public", found="none",
            fix="draft one (distcondense schema infer TABLE -o schema.toml), check it, set origin = \"declared\" and "
            "pass --schema; or say --trust-inferred-schema, which the statement will tell",
        )  # fmt: skip
    names = (target,) if time is None else (time, event)
    if settings.horizon is None and time is not None and time in schema:
        settings = replace(settings, horizon=schema[time].high)
    features = schema.without([*(name for name in names if name), *aside])
    public_side(features, settings, "binary" if time is None else "survival", tuple(name or "" for name in names))


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the two run folders go.")] = Path("demo-run"),
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    threads: Threads = None,
) -> None:
    """One classification and one survival run on data that ships with scikit-learn and lifelines."""
    from distcondense.cohort import Cohort
    from distcondense.datasets import load
    from distcondense.pipeline import condense as run
    from distcondense.terminal import Console

    console = Console(quiet=quiet or as_json)
    records = {}
    for name, reference, epsilon in (("breast_cancer", "xgb", 5.0), ("gbsg2", "cox", 2.5)):
        data = load(name)
        console.say(f"{name}: {data.description}")
        cohort = Cohort.from_frame(data.frame, **data.how)
        with console.progress() as progress:
            result = run(
                cohort, reference=reference, ipc=50, epsilon=epsilon, threads=threads,
                out=out / name, force=force, progress=progress, say=console.say,
            )  # fmt: skip
        records[name] = {"privacy": result.privacy.to_dict(), "metrics": result.internal["metrics"]}
        console.table(name, result.internal)
        console.statement(result.privacy)
    if as_json:
        typer.echo(json.dumps({"out": str(out), "runs": records}))
    console.say(f"run folders: {', '.join(str(out / name) for name in records)}")


@app.command()
def bench(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where table, JSON and plot go.")] = Path(
        "benchmarks/results"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="A small table in under a minute.")] = False,
    threads: Annotated[int, typer.Option(help="Threads of every way measured.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Measure the Jacobian and the whole step, every way beside the others and a copy control, in one run."""
    from distcondense.bench import run_bench
    from distcondense.terminal import Console

    run_bench(quick=quick, threads=threads, out=out, say=Console(quiet=quiet).say)


@schema_app.command("infer")
def schema_infer(
    table: Annotated[Path, typer.Argument(help="The table to look at.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write it; printed if not said.")] = None,
    force: Force = False,
    missing_marker: Marker = None,
) -> None:
    """Draft a schema from a table, for a person to check and edit. It is marked as inferred."""
    from distcondense.schema import Schema
    from distcondense.tables import read_table

    if out is not None and out.exists() and not force:
        raise SettingsError(f"schema file {out}", "exists already", found="a file", fix="--force to replace it")
    text = Schema.infer(read_table(table, **_markers(missing_marker))).to_toml()
    if out is None:
        typer.echo(text, nl=False)
        return
    draft = out.with_name(out.name + ".draft")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(out)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise SettingsError(
            f"schema file {out}", "must be writable", found=type(error).__name__, fix="choose another --out"
        ) from None
    typer.echo(f'drafted {out}: check every bound and category, then set origin = "declared"', err=True)


@schema_app.command("check")
def schema_check(
    schema: Annotated[Path, typer.Argument(help="The schema file.")],
    table: Annotated[Path | None, typer.Argument(help="A table that should fit it.")] = None,
    missing_marker: Marker = None,
) -> None:
    """Check a schema, and a table against it."""
    from functools import partial

    from distcondense.cohort import check_features, read_csv_cells
    from distcondense.errors import CohortError
    from distcondense.schema import Schema
    from distcondense.tables import is_csv, read_table

    known = Schema.from_toml(schema)
    if table is not None:
        read = partial(read_csv_cells, table, known) if is_csv(table) else partial(read_table, table)
        frame = read(**_markers(missing_marker))
        absent = [n for n in known.names if n not in frame]
        if absent:
            raise CohortError(f"table {table.name}", "must have every column of the schema",
                              found=f"{len(absent)} missing: {', '.join(map(repr, absent[:8]))}",
                              fix="add the columns or take them out of the schema")  # fmt: skip
        check_features(frame, known)
    typer.echo(f"{schema}: {len(known.columns)} columns, {known.origin}" + (f"; {table} fits" if table else ""))


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


@attack_app.command("audit")
def attack_audit(
    mechanism: Annotated[str, typer.Option(help="private or published.")] = "private",
    epsilon: Annotated[
        float | None, typer.Option(help="Claim to test. Private: end-to-end (1). Published: as-published (2.5).")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ of the claim.")] = 1e-5,
    runs: Annotated[int, typer.Option(help="Runs per worst-case neighbour.")] = 1000,
    canaries: Annotated[int, typer.Option(help="Canaries of the one-run audit.")] = 1000,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the findings as JSON here.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of the models under attack.")] = 1,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Attack the mechanism with canaries on simulated patients, and bound its ε from below with confidence.

    Exit 0 where no bound is above the claim, 2 where one is: then the claim is wrong.
    """
    from distcondense.evaluate.audit import run_audit
    from distcondense.terminal import Console

    console = Console(quiet=quiet or as_json)
    claim = epsilon if epsilon is not None else (1.0 if mechanism == "private" else 2.5)
    with console.progress() as progress:
        audit = run_audit(
            mechanism=mechanism, epsilon=claim, delta=delta, runs=runs, canaries=canaries, threads=threads,  # type: ignore[arg-type]
            progress=lambda done, of: progress(step=done, steps=of, loss=None, score=None, epsilon=None),
        )  # fmt: skip
    if out is not None:
        out.write_text(json.dumps(audit.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    typer.echo(json.dumps(audit.to_dict()) if as_json else "\n".join(audit.lines()))
    if not audit.passed:
        raise typer.Exit(2)


def _markers(said: list[str] | None) -> dict[str, Any]:
    from distcondense.tables import MISSING_MARKERS

    return {"missing_markers": (*MISSING_MARKERS, *said)} if said else {}


def main() -> None:
    """Run the command line; the user's mistakes become one message and exit code 2."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", DistcondenseWarning)
    warnings.showwarning = lambda message, *_, **__: typer.echo(f"warning: {message}", err=True)  # type: ignore[assignment]
    try:
        app()
    except UserError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except SystemExit as done:
        if done.code == 130:  # typer's own answer to Ctrl-C
            typer.echo("interrupted; go on with --resume", err=True)
        raise
