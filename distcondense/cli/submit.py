"""`distcondense submit`: a command as a job on a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Quiet, app


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
    from distcondense.cluster.submit import submit as start
    from distcondense.report.terminal import Console

    console = Console(quiet=quiet)
    job = start(
        command or [],
        address=address or DEFAULT_ADDRESS,
        working_dir=working_dir,
        runtime_env=runtime_env,
        cpus=entrypoint_num_cpus,
        log=console.log,
    )
    if not follow:
        typer.echo(job.name)
        console.log(job.how_to_go_on)
        return
    console.log(f"job {job.name} at {job.address}; its log follows, Ctrl-C leaves it running")
    try:
        state = job.follow(show=lambda text: None if quiet else typer.echo(text, nl=False), log=console.log)
    except KeyboardInterrupt:
        typer.echo(f"job {job.name} goes on; {job.how_to_go_on}", err=True)
        raise typer.Exit(1) from None
    console.log(f"job {job.name} {state}")
    if state.exit_code:
        raise typer.Exit(state.exit_code)
