"""`distcondense privacy`: read and check what a release promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from distcondense.cli.common import Json, privacy_app
from distcondense.errors import SettingsError, brief


@privacy_app.command("verify")
def privacy_verify(
    run: Annotated[Path, typer.Argument(help="A run folder, its release folder or a privacy.json.")],
    key: Annotated[
        Path | None, typer.Option(help="A public key: there must be a signature made with its private half.")
    ] = None,
    least: Annotated[
        str, typer.Option(help="The least guarantee that will do: end-to-end, conditional, as-published, none.")
    ] = "as-published",
    as_json: Json = False,
) -> None:
    """Replay a release's ledger, compare statement, hashes and labels with its files, and check its signature.

    Exit 0 where all of it holds and the guarantee is one that will do; 2 where not, be the statement ever so honest.
    """
    from distcondense.privacy.statement import GUARANTEES, suffices
    from distcondense.runs.files import plain
    from distcondense.runs.signing import verify_release

    if least not in GUARANTEES:
        raise SettingsError(
            "--least", f"must be one of {', '.join(GUARANTEES)}", found=repr(brief(least)), fix="leave it out"
        )
    found = verify_release(run, key=key)
    enough = suffices(found.guarantee, least)
    said = {**found.to_dict(), "least": least, "suffices": enough}
    typer.echo(json.dumps(plain(said)) if as_json else "\n".join(found.lines()))
    if found.holds and not enough and not as_json:
        typer.echo(f"NOT ENOUGH: {least} or better was asked for (--least), this is {found.guarantee}")
    if not (found.holds and enough):
        raise typer.Exit(2)


@privacy_app.command("keygen")
def privacy_keygen(
    out: Annotated[Path, typer.Argument(help="Folder for private.pem (keep it) and public.pem (hand it out).")],
) -> None:
    """Make a pair of Ed25519 keys to sign releases with; the private one is not encrypted."""
    from distcondense.runs.signing import PRIVATE_KEY, PUBLIC_KEY, make_keys

    print_of_key = make_keys(out)
    typer.echo(f"{out / PRIVATE_KEY}: keep it where nobody else can read it; {out / PUBLIC_KEY}: hand it out")
    typer.echo(f'key = "{print_of_key}"  # its fingerprint, a line for release.toml: the datasheet then names it')


@privacy_app.command("sign")
def privacy_sign(
    run: Annotated[Path, typer.Argument(help="A run folder or its release folder.")],
    key: Annotated[Path, typer.Option(help="The private key.")],
) -> None:
    """Sign all files of a release that verifies: a DSSE envelope, in the layout of OpenSSF Model Signing."""
    from distcondense.runs.signing import sign

    typer.echo(f"signed: {sign(run, key)}")


@privacy_app.command("ledger")
def privacy_ledger(
    path: Annotated[Path, typer.Argument(help="The account of a set of patients: a file that their runs share.")],
    create: Annotated[bool, typer.Option("--create", help="Begin it.")] = False,
    cap: Annotated[
        str | None, typer.Option(help="The largest ε that all runs may reach together, or none; an entry of its own.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="With --create: the δ of its total (1e-5).")] = None,
    about: Annotated[str | None, typer.Option(help="With --create: whose account it is, in words.")] = None,
    as_json: Json = False,
) -> None:
    """Show who was charged what for reading a set of patients, the total, and what it means."""
    from distcondense.privacy.odometer import Odometer

    most = _cap_of(cap)
    if create:
        account = Odometer.create(path, cap=most, about=about or "", **({} if delta is None else {"delta": delta}))
    elif delta is not None or about is not None:
        raise SettingsError(
            "--delta and --about", "are set when an account begins", found="no --create", fix="--create"
        )
    else:
        account = Odometer(path)
        if cap is not None:
            account.set_cap(most)
    typer.echo(json.dumps(account.read().to_dict()) if as_json else "\n".join(account.lines()))


def _cap_of(said: str | None) -> float | None:
    try:
        return None if said in (None, "none") else float(said or "")
    except ValueError:
        raise SettingsError("--cap", "must be a number or none", found=repr(said), fix="e.g. --cap 3") from None
