"""`distcondense federate`: several sites make one condensed table and share nothing but masked sums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from distcondense.cli.common import (
    Decimal,
    Encoding,
    Json,
    Marker,
    Quiet,
    Ray,
    Separator,
    app,
    bytes_of,
    cluster_of,
    markers,
    written,
)

federate_app = typer.Typer(
    help="Several sites, one condensed table: rows stay, masked sums travel.", no_args_is_help=True
)
app.add_typer(federate_app, name="federate")

Shared = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that all parties can read and write.")]
Served = Annotated[
    str, typer.Argument(metavar="FOLDER", help="A folder that all can read and write, or https://coordinator:port.")
]
Tls = Annotated[
    Path | None, typer.Option(help="A folder with cert.pem, key.pem and ca.pem, for https://: both sides show theirs.")
]
Mine = Annotated[Path, typer.Option("--own", help="A folder of this party's own, which nobody else reads.")]


@federate_app.command("init")
def federate_init(
    shared: Shared,
    own: Mine,
    schema: Annotated[Path, typer.Option(help="What is public about the tables (TOML); the same for all sites.")],
    sites: Annotated[int, typer.Option(help="How many sites take part.")],
    target: Annotated[str | None, typer.Option(help="The outcome column; or else --time and --event.")] = None,
    time: Annotated[str | None, typer.Option(help="Follow-up time.")] = None,
    event: Annotated[str | None, typer.Option(help="Whether the event was seen.")] = None,
    positive: Annotated[str | None, typer.Option(help="Value that means yes.")] = None,
    person_id: Annotated[str | None, typer.Option(help="Column that says whose row it is.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Column that is no feature.")] = None,
    colluding: Annotated[int, typer.Option(help="How many sites may collude with the coordinator.")] = 1,
    hospitals: Annotated[int, typer.Option(help="At how many sites one person may be, at most.")] = 1,
    persons: Annotated[int, typer.Option(help="A cap on persons, all sites together.")] = 2**40,
    epsilon: Annotated[float, typer.Option(help="Budget, end-to-end.")] = 1.0,
    delta: Annotated[float, typer.Option(help="δ of the budget.")] = 1e-5,
    ipc: Annotated[int, typer.Option(help="Records per class.")] = 100,
    seed: Annotated[int, typer.Option(help="Of placing rows.")] = 0,
    rows_per_person: Annotated[int, typer.Option(help="Rows of a person that each site reads, at most.")] = 5,
    holdout: Annotated[float, typer.Option(help="Share of persons that each site leaves out.")] = 0.2,
    quiet: Quiet = False,
) -> None:
    """The coordinator proposes an agreement; no row is read."""
    from distcondense.data.schema import Schema
    from distcondense.federated.accounting import Sharing
    from distcondense.federated.parties import init
    from distcondense.methods.base import default_method, method_named
    from distcondense.report.terminal import Console

    said = {"target": target, "time": time, "event": event, "positive": positive, "person_id": person_id}
    reading: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    options = method_named(default_method()).Options(
        epsilon=epsilon, delta=delta, ipc=ipc, seed=seed, rows_per_person=rows_per_person, holdout=holdout
    )
    sharing = Sharing(sites, colluding, hospitals)
    agreement = init(
        shared, own, Schema.from_toml(schema), reading | {"ignore": tuple(ignore or ())}, options, sharing, persons
    )
    prepared = agreement.prepared
    Console(quiet=quiet).log(f"agreement: {prepared.budget_words}; plan: {prepared.plan_words}")
    typer.echo(f"next, at each of {sites} sites: distcondense federate join {shared} TABLE --name NAME --own FOLDER")


@federate_app.command("join")
def federate_join(
    shared: Served,
    table: Annotated[str, typer.Argument(help="This site's table: .csv, .parquet, .feather, .arrow.")],
    own: Mine,
    name: Annotated[str, typer.Option(help="Of this site: small letters, digits and -.")],
    account: Annotated[
        Path | None, typer.Option(help="An account to charge besides the table's own; its cap holds.")
    ] = None,
    missing_marker: Marker = None,
    separator: Separator = None,
    encoding: Encoding = None,
    decimal: Decimal = None,
    tls: Tls = None,
) -> None:
    """A site reads its table against the agreement, and sends its public keys. Nothing else leaves."""
    from distcondense.federated.parties import join

    reading = {**markers(missing_marker), **written(separator, encoding, decimal)}
    agreement = join(shared, own, table, name, account=account, reading=reading, tls=tls)
    typer.echo(f"{name}: the table fits, ε = {agreement.private_options.epsilon:g} (end-to-end) is what it is charged")
    typer.echo(f"next, when all have joined: distcondense federate round {shared} --own {own}")


@federate_app.command("round")
def federate_round(
    shared: Served,
    own: Mine,
    keys: Annotated[
        str, typer.Option(help="The fingerprint of all keys, once the sites have compared it by another way.")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Go on as messages come, to the end.")] = False,
    tls: Tls = None,
    memory: Annotated[
        str | None, typer.Option(help="What a site's rows may take, e.g. 2GB: read in batches then.")
    ] = None,
    ray: Ray = None,
    actors: Annotated[int | None, typer.Option(help="Ray actors; as many as fit if not said.")] = None,
    quiet: Quiet = False,
) -> None:
    """Do what is due: the coordinator asks and adds up, a site answers."""
    from distcondense.federated.parties import round_
    from distcondense.report.terminal import Console

    console, cluster = Console(quiet=quiet), cluster_of(ray, actors=actors)
    rows: dict[str, Any] = {"cluster": cluster, "memory": None if memory is None else bytes_of(memory)}
    with console.progress() as progress:
        said = round_(shared, own, keys=keys, tls=tls, wait=wait, log=console.log, progress=progress, **rows)
    typer.echo(said)


@federate_app.command("close")
def federate_close(shared: Served, own: Mine, tls: Tls = None, quiet: Quiet = False) -> None:
    """The coordinator makes the release; a site ends the session, and forgets the key of its masks."""
    from distcondense.federated.parties import close
    from distcondense.report.terminal import Console

    console = Console(quiet=quiet)
    with console.progress() as progress:
        said = close(shared, own, tls=tls, log=console.log, progress=progress)
    typer.echo(said)


@federate_app.command("serve")
def federate_serve(
    shared: Shared,
    tls: Annotated[Path, typer.Option(help="A folder with cert.pem, key.pem and ca.pem: both sides show theirs.")],
    listen: Annotated[str, typer.Option(help="Address and port.")] = "0.0.0.0:8443",
) -> None:
    """The coordinator serves its folder of messages to the sites, over HTTPS with mutual TLS, until it is stopped."""
    from distcondense.federated.https import served

    with served(shared, tls, listen) as server:
        typer.echo(f"serving {shared} at {listen}; sites say https://HOST:{server.server_port} --tls FOLDER")
        server.serve_forever()


@federate_app.command("demo")
def federate_demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="A new folder.")] = Path("demo-federated"),
    sites: Annotated[int, typer.Option(help="How many.")] = 5,
    colluding: Annotated[int, typer.Option(help="How many may collude with the coordinator.")] = 1,
    epsilon: Annotated[float, typer.Option(help="Budget, end-to-end.")] = 5.0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """All of it on one machine: sites are processes of their own, with real messages, over a small public cohort."""
    from distcondense.data.datasets import load
    from distcondense.federated.accounting import Sharing
    from distcondense.federated.demo import demo
    from distcondense.methods.base import default_method, method_named
    from distcondense.privacy.verify import verify
    from distcondense.report.terminal import Console

    console = Console(quiet=quiet or as_json)
    data = load("gbsg2")
    how = {name: value for name, value in data.how.items() if name != "schema" and value is not None}
    tables = {f"site-{k + 1}": data.frame.iloc[k::sites] for k in range(sites)}
    with console.progress() as progress:
        made = demo(
            out,
            tables,
            data.how["schema"],
            how,
            method_named(default_method()).Options(epsilon=epsilon, ipc=50),
            Sharing(sites, colluding),
            log=console.log,
            progress=progress,
        )
    found = verify(made.run)
    took = {"rounds": made.rounds, "seconds": round(made.seconds, 1), "bytes_each": made.bytes_each}
    if as_json:
        typer.echo(json.dumps({"run": str(made.run), **took, "holds": found.holds}))
    else:
        console.log(f"{made.rounds} rounds, {made.seconds:.0f} s, {made.bytes_each:,} bytes from each site")
        typer.echo("\n".join(found.lines()))
    if not found.holds:
        raise typer.Exit(2)
