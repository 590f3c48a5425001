"""`distcondense demo`: every method that takes both, on two small real cohorts that ship with the dependencies."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from distcondense.cli.common import Force, Json, Quiet, Ray, Threads, app, cluster_of
from distcondense.errors import UserError
from distcondense.methods.base import method_named, methods, options_of, prepare

# cohort → ε, of the guarantee named; the small first cohort needs a larger one of the theorem's
COHORTS = {"breast_cancer": {"end-to-end": 5.0, "as-published": 2.5}, "gbsg2": {"end-to-end": 2.5, "as-published": 2.5}}
QUICK = {"ipc": 50, "steps": 200}  # where a method has such an option


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the run folders go.")] = Path("demo-run"),
    method: Annotated[str | None, typer.Option(help="One method only; all that take both cohorts if not said.")] = None,
    ray: Ray = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    threads: Threads = None,
) -> None:
    """Methods side by side on one classification and one survival cohort that ship with scikit-learn and lifelines."""
    from distcondense.api import condense as run
    from distcondense.data.cohort import Cohort
    from distcondense.data.datasets import load
    from distcondense.report.terminal import Console

    cohorts = {name: load(name) for name in COHORTS}
    kinds = [Cohort.from_frame(data.frame, **data.how).outcome.kind for data in cohorts.values()]
    both = [one for one in methods() if all(map(one.takes, kinds))]
    chosen = both if method is None else [method_named(method)]
    cluster = cluster_of(ray)
    console = Console(quiet=quiet or as_json)
    shown: dict[str, dict[str, Any]] = {}
    for name, budgets in COHORTS.items():
        data = cohorts[name]
        console.log(f"{name}: {data.description}")
        cohort = Cohort.from_frame(data.frame, **data.how)
        results: dict[str, Any] = {}
        for one in (one for one in chosen if one.takes(cohort.outcome.kind)):
            own = {entry.name for entry in fields(one.Options)}
            said: dict[str, Any] = {key: value for key, value in QUICK.items() if key in own}
            if "epsilon" in own and one.guarantee in budgets:
                said["epsilon"] = budgets[one.guarantee]
            try:
                prepare(one, cohort.facts, options_of(one, said))
            except UserError as error:  # a package that only this method needs is not here
                if method is not None:
                    raise
                console.log(f"left out: {error}")
                continue
            with console.progress() as progress:
                results[one.name] = run(
                    cohort,
                    method=one.name,
                    threads=threads,
                    out=out / name / one.name,
                    force=force,
                    progress=progress,
                    log=console.log,
                    cluster=cluster,
                    **said,
                )
        console.methods_table(name, {one: result.internal for one, result in results.items()})
        for made, result in results.items():
            console.statement(result.privacy, out / name / made / "release")
        shown[name] = {
            one: {"privacy": result.privacy.to_dict(), "scores": result.internal["scores"]}
            for one, result in results.items()
        }
    if as_json:
        typer.echo(json.dumps({"out": str(out), "runs": shown}))
    console.log(f"run folders: {', '.join(str(out / name / one) for name, runs in shown.items() for one in runs)}")
