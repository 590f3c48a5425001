"""`distcondense demo`: methods side by side on two small real cohorts that ship with the dependencies."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from distcondense.cli.common import Force, Json, Quiet, Ray, Threads, app, cluster_of
from distcondense.errors import UserError
from distcondense.methods.base import method_named, methods

# cohort → ε, of the guarantee named; the small first cohort needs a larger one of the theorem's
COHORTS = {"breast_cancer": {"end-to-end": 5.0, "as-published": 2.5}, "gbsg2": {"end-to-end": 2.5, "as-published": 2.5}}
QUICK = {"ipc": 50, "steps": 200}  # where a method has such an option
MAIN = 2  # the first methods of the registry: the default, and the published one that it is compared with


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the run folders go.")] = Path("demo-run"),
    method: Annotated[str | None, typer.Option(help="One method only.")] = None,
    all_methods: Annotated[
        bool, typer.Option("--all-methods", help="Every method that takes both cohorts, not only the first two.")
    ] = False,
    ray: Ray = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
    threads: Threads = None,
) -> None:
    """Two methods side by side on a classification and a survival cohort that ship with scikit-learn and lifelines."""
    from distcondense.api import condense as run
    from distcondense.data.cohort import Cohort
    from distcondense.data.datasets import load
    from distcondense.evaluation.shortfall import shortfall_of_sets
    from distcondense.report.terminal import Console

    datasets = {name: load(name) for name in COHORTS}
    cohorts = {name: Cohort.from_frame(data.frame, **data.how) for name, data in datasets.items()}
    takes_both = [one for one in methods() if all(one.takes(cohort.outcome.kind) for cohort in cohorts.values())]
    chosen = [method_named(method)] if method else takes_both if all_methods else takes_both[:MAIN]
    cluster = cluster_of(ray)
    console = Console(quiet=quiet or as_json)
    shown: dict[str, dict[str, Any]] = {}
    for name, cohort in cohorts.items():
        console.log(f"{name}: {datasets[name].description}")
        results: dict[str, Any] = {}
        for one in (one for one in chosen if one.takes(cohort.outcome.kind)):
            known = {entry.name for entry in fields(one.Options)}
            options: dict[str, Any] = {key: value for key, value in QUICK.items() if key in known}
            if "epsilon" in known and one.guarantee in COHORTS[name]:
                options["epsilon"] = COHORTS[name][one.guarantee]
            try:
                with console.progress() as progress:
                    results[one.name] = run(
                        cohort,
                        method=one.name,
                        threads=threads,
                        out=out / name / one.name,
                        force=force,
                        progress=progress,
                        cluster=cluster,
                        **options,
                    )
            except UserError as error:  # a package that only this method needs is not here
                if one in takes_both[:MAIN] or method:
                    raise
                console.log(f"left out: {error}")
        console.methods_table(name, {made: result.internal for made, result in results.items()})
        poor = {made: shortfall_of_sets(result.internal) for made, result in results.items()}
        for made, result in results.items():
            if poor[made]:
                console.out.print(f"{made}: {poor[made]}", style="bold red", markup=False, soft_wrap=True)
            console.out.print(f"{made}: {result.privacy.sentence()}", markup=False, soft_wrap=True)
        shown[name] = {
            made: {"poor": poor[made], "privacy": result.privacy.to_dict(), "scores": result.internal["scores"]}
            for made, result in results.items()
        }
    if as_json:
        typer.echo(json.dumps({"out": str(out), "runs": shown}))
    console.out.print("open, of each run:")
    for name, runs in shown.items():
        for made in runs:
            pages = f"  {out / name / made}/release/report.html, and internal/report.html (for you only)"
            console.out.print(pages, markup=False, soft_wrap=True)
