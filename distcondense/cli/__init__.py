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
    from distcondense.cluster.config import Cluster
    from distcondense.data.schema import Schema
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
    table: Annotated[str, typer.Argument(help="The cohort, a path or URI: .csv, .csv.gz, .parquet, .feather, .arrow.")],
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
    path: Annotated[
        str, typer.Option(help="Way of the Jacobian: auto, structured, compiled, blocked or naive.")
    ] = "auto",
    ray: Annotated[
        str | None,
        typer.Option(metavar="[ADDRESS]", help="Spread the Jacobian over Ray: start a cluster here, or join one."),
    ] = None,
    actors: Annotated[int | None, typer.Option(help="Ray actors; as many as fit if not said.")] = None,
    num_cpus: Annotated[float | None, typer.Option(help="Cores of each actor (1).")] = None,
    num_gpus: Annotated[float | None, typer.Option(help="GPUs of each actor (0).")] = None,
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
    from distcondense.api import condense as run
    from distcondense.data.cohort import Cohort
    from distcondense.data.schema import Schema
    from distcondense.data.tables import table_name
    from distcondense.report.terminal import Console

    if quiet:  # they are in run.json
        warnings.simplefilter("ignore", DistcondenseWarning)
    knobs: dict[str, Any] = {
        "steps": steps, "learning_rate": learning_rate, "clip": clip, "rho": rho, "sigma_base": sigma_base,
        "evaluate_every": evaluate_every, "patience": patience, "perturbation": perturbation, "horizon": horizon,
        "rows_per_person": rows_per_person, "holdout": holdout,
        "trust_inferred_schema": trust_inferred_schema or None,
    }  # fmt: skip
    settings = _check_cheap(mechanism, ipc, epsilon, delta, seed, early_stopping, soft, knobs)
    cluster = _cluster(ray, actors=actors, num_cpus=num_cpus, num_gpus=num_gpus)
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
            early_stopping=early_stopping, cluster=cluster, path=path,
            **{k: v for k, v in knobs.items() if v is not None},
        )  # fmt: skip
    if as_json:
        typer.echo(
            json.dumps({"out": str(out), "privacy": result.privacy.to_dict(), "metrics": result.internal["metrics"]})
        )
        return
    console.table(table_name(table), result.internal)
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


def _cluster(ray: str | None, **knobs: Any) -> Cluster | None:
    """The cluster asked for; one that is to be joined is tried now, before a large table is read."""
    from distcondense.cluster.config import Cluster

    said = {name: value for name, value in knobs.items() if value is not None}
    if ray is not None:
        cluster = Cluster(address=ray, **said)
        if not cluster.starts_here:
            from distcondense.cluster.on_ray import probe

            probe(cluster)
        return cluster
    if said:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in said)
        raise SettingsError(names, "is about Ray", found="no --ray", fix="add --ray, or leave it out")
    return None


def _check_public(
    settings: Settings, schema: Schema | None, target: str | None, time: str | None, event: str | None, aside: list[str]
) -> None:
    """Refuse a private run that public knowledge alone rules out, before the table is opened."""
    from dataclasses import replace

    from distcondense.errors import SchemaError
    from distcondense.methods.private.condense import public_side

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
    from distcondense.api import condense as run
    from distcondense.data.cohort import Cohort
    from distcondense.data.datasets import load
    from distcondense.report.terminal import Console

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


@app.command(context_settings={"allow_interspersed_args": False})
def submit(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND…", help="What to run there, e.g. python -m distcondense demo --out /data/demo."
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar=["RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"],
            help="The head node's dashboard; http://127.0.0.1:8265 if not said.",
        ),
    ] = None,
    working_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Folder (or an archive's URI) to run in; the checkout or this package if not said."
        ),
    ] = None,
    runtime_env: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ray runtime environment, e.g. cluster/runtime_env.yaml.")
    ] = None,
    entrypoint_num_cpus: Annotated[float, typer.Option(min=0, help="Cores to reserve for COMMAND itself.")] = 0,
    follow: Annotated[bool, typer.Option(help="Show the job's log and exit with its code.")] = True,
    quiet: Quiet = False,
) -> None:
    """Run a command on a Ray cluster, as a job. Tables are never sent: COMMAND names data by path there or URI."""
    from distcondense.cluster.submit import DEFAULT_ADDRESS
    from distcondense.cluster.submit import follow as watch
    from distcondense.cluster.submit import submit as start
    from distcondense.report.terminal import Console

    console = Console(quiet=quiet)
    job = start(
        command or [], address=address or DEFAULT_ADDRESS, working_dir=working_dir, runtime_env=runtime_env,
        cpus=entrypoint_num_cpus, say=console.say,
    )  # fmt: skip
    if not follow:
        typer.echo(job.name)
        console.say(job.how_to_go_on)
        return
    console.say(f"job {job.name} at {job.address}; its log follows, Ctrl-C leaves it running")
    try:
        state = watch(job, show=lambda text: None if quiet else typer.echo(text, nl=False), say=console.say)
    except KeyboardInterrupt:
        typer.echo(f"job {job.name} goes on; {job.how_to_go_on}", err=True)
        raise typer.Exit(1) from None
    console.say(f"job {job.name} {state}")
    if state.exit_code:
        raise typer.Exit(state.exit_code)


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
    from distcondense.report.terminal import Console

    run_bench(quick=quick, threads=threads, out=out, say=Console(quiet=quiet).say)


@schema_app.command("infer")
def schema_infer(
    table: Annotated[Path, typer.Argument(help="The table to look at.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write it; printed if not said.")] = None,
    force: Force = False,
    missing_marker: Marker = None,
) -> None:
    """Draft a schema from a table, for a person to check and edit. It is marked as inferred."""
    from distcondense.data.schema import Schema
    from distcondense.data.tables import read_table

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

    from distcondense.data.cohort import check_features, read_csv_cells
    from distcondense.data.schema import Schema
    from distcondense.data.tables import is_csv, read_table
    from distcondense.errors import CohortError

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
    from distcondense.evaluate.audit.run import run_audit
    from distcondense.report.terminal import Console

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


@app.command()
def study(
    file: Annotated[Path, typer.Argument(help="The study: a TOML file (benchmarks/studies/ has examples).")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The study folder; the file's name with -study if not said."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a Ray cluster to join; RAY_ADDRESS, or one started here, if not said."),
    ] = None,
    in_process: Annotated[bool, typer.Option("--in-process", help="One cell after another, without Ray.")] = False,
    at_once: Annotated[
        int | None, typer.Option(help="Cells at the same time; as many as cores and memory_gb allow if not said.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of each cell; the file's if not said.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the file and list its cells; run nothing.")] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run a grid of condensations: data × outcome × method × reference × IPC × ε × seeds.

    Stopped at any time, the same command goes on: finished cells are kept. Exit 0 when all cells are done, 2 when some
    have failed (they are listed, the others are done all the same).
    """
    from distcondense.report.terminal import Console
    from distcondense.study import Study, plan, run_tasks

    for name, value in (("at-once", at_once), ("threads", threads)):
        if value is not None and value < 1:
            raise SettingsError(f"--{name}", "must be at least 1", found=str(value), fix="leave it out")
    if in_process and (ray is not None or at_once is not None):
        raise SettingsError("--in-process", "runs one cell after another here", found="--ray or --at-once",
                            fix="leave one of them out")  # fmt: skip
    console = Console(quiet=quiet or as_json)
    design = Study.from_toml(file)
    out = Path(f"{file.stem}-study") if out is None else out
    if dry_run:
        board = plan(design, out)
    else:
        board = run_tasks(
            design, out, console, ray=ray, in_process=in_process, at_once=at_once, threads=threads or design.threads
        )
    if as_json:
        typer.echo(json.dumps({"study": design.name, "out": str(out), **board.to_dict()}))
    elif dry_run:
        for line in board.lines:
            typer.echo(f"{'done   ' if line.state == 'kept' else 'waiting'} {line.cell.name}")
    for line in board.failed:
        console.say(f"failed: {line.cell.name}: {line.reason}")
    console.say(f"{board.words()}" + ("" if dry_run else f"; for you only: {out / 'internal' / 'tables.md'}"))
    if board.failed:
        raise typer.Exit(2)


def _markers(said: list[str] | None) -> dict[str, Any]:
    from distcondense.data.tables import MISSING_MARKERS

    return {"missing_markers": (*MISSING_MARKERS, *said)} if said else {}


def _with_address(arguments: list[str]) -> list[str]:
    """`--ray` takes an address or nothing: what follows is none if it is an option or a file."""
    end = arguments.index("--") if "--" in arguments else len(arguments)  # what is behind it is not ours
    found = []
    for this, after in zip(arguments[:end], [*arguments[1:end], "-"], strict=False):
        none = after.startswith("-") or (after != "" and Path(after).exists())
        found.append("--ray=" if this == "--ray" and none else this)
    return found + arguments[end:]


def main() -> None:
    """Run the command line; the user's mistakes become one message and exit code 2."""
    sys.argv[1:] = _with_address(sys.argv[1:])
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
            typer.echo("interrupted; go on with --resume (a study: by the same command)", err=True)
        raise
