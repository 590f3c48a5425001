"""`distcondense sample`: further rows of a finished run, all or some, at no cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from distcondense.cli.common import Force, app
from distcondense.errors import SettingsError, brief


@app.command()
def sample(
    run: Annotated[Path, typer.Argument(help="The run folder that condense wrote.")],
    rows: Annotated[int, typer.Option(help="How many rows.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .csv or .parquet file to write.")],
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=…", help="sex=f, site=a,b, age=60:80 or dose= (empty). May be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows (0).", show_default=False)] = 0,
    force: Force = False,
) -> None:
    """Draw further rows from what left the gate: no patient is read, and the run's own guarantee covers them.

    They follow the population; the rows of release/ are chosen to teach and are better for training.
    """
    from distcondense.runs.files import refuse_target, write_whole
    from distcondense.runs.reading import load
    from distcondense.runs.release import write_csv
    from distcondense.runs.result import Results

    refuse_target(out)
    if out.suffix not in (".csv", ".parquet"):
        raise SettingsError("--out", "must end in .csv or .parquet", found=brief(out.name))
    if out.exists() and not force:
        raise SettingsError(f"file {brief(out)}", "exists already", found="a file", fix="--force to replace it")
    found_sets = load(run)
    result = next(iter(found_sets.values())) if isinstance(found_sets, Results) else found_sets  # of one model, all
    columns = {column.name: column for column in (*result.schema.columns, *result.schema.outcome)}
    conditions = dict(_condition(said, columns) for said in where or ())
    found = result.sample(rows, conditions, seed=seed)
    write_whole(out, lambda draft: write_csv(found, draft) if out.suffix == ".csv" else found.to_parquet(draft))
    typer.echo(
        f"{len(found):,} rows in {out}; {result.privacy.short()} covers them together with the release", err=True
    )


def _condition(said: str, columns: dict[str, Any]) -> tuple[str, Any]:
    """sex=f → a category, age=60:80 → a lowest and a highest number."""
    name, equals, text = said.partition("=")
    if not equals:
        raise SettingsError("--where", "must be NAME=…", found=brief(said), fix="--where sex=f --where age=60:80")
    column = columns.get(name)
    if not text or column is None:
        return name, text or None
    if column.numeric:
        try:
            ends = tuple(float(end) for end in text.split(":"))
        except ValueError:
            raise SettingsError(
                "--where", "must be a number, or two with a colon", found=brief(said), fix="age=60:80"
            ) from None
        return name, ends[0] if len(ends) == 1 else ends
    known = {str(label): label for label in column.categories}
    labels = [text] if text in known else text.split(",")
    return name, [known.get(label, label) for label in labels]
