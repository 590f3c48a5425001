"""The rows that a query gives, of DuckDB or of a server, through ADBC (Arrow's database interface).

Every column comes with the type that the database gives it, so that no row decides how another is read. Where a type
would be guessed from rows (SQLite; CSV and JSON inside DuckDB) the query is refused. A database returns rows in any
order: they are put into one that depends on the rows alone, so that the same query is the same table again. A query has
no file by which patients are known again: whoever condenses its rows names an account.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from distcondense.errors import CohortError, SettingsError, brief, need
from distcondense.outside import read_text

WHOLE = 2**53  # whole numbers below it are floats too
MEMORY = ":memory:"  # an empty DuckDB, whose query itself names Parquet, Delta or Iceberg tables
SERVERS = {  # scheme of a URI → the driver's package
    "postgresql": "adbc_driver_postgresql",
    "postgres": "adbc_driver_postgresql",
    "grpc": "adbc_driver_flightsql",
    "grpc+tls": "adbc_driver_flightsql",
    "snowflake": "adbc_driver_snowflake",
}
INSTALL = "pip install 'distcondense[sql]'"
_GUESSED = re.compile(r"(read|sniff)_(csv|json|ndjson|xlsx)|\.(csv|tsv|json|ndjson|jsonl|xlsx)\b", re.IGNORECASE)
_ABOUT_THE_QUERY = re.compile(r"\b((Catalog|Parser|Binder) Error: [^\n]*)")  # DuckDB's words that quote no cell


def query_text(query: str | Path) -> str:
    """The SQL, which may stand in a file that ends in .sql."""
    need(query, (str, Path), "query", "SQL, or a file of it", fix='"SELECT … FROM …", or features.sql')
    if isinstance(query, Path) or re.fullmatch(r"\S+\.sql", query.strip(), re.IGNORECASE):
        return read_text(Path(query), f"query {brief(Path(query).name)}", SettingsError)
    return query


def read_query(database: str | Path, query: str | Path) -> pd.DataFrame:
    """The rows of a query, as typed columns, in an order that depends on them alone.

    Parameters
    ----------
    database : str or Path
        A DuckDB file, which is opened for reading only; ":memory:"; or a URI (postgresql://, grpc://, snowflake://).
    query : str or Path
        One SELECT, or a file of it.

    Raises
    ------
    CohortError
        What the database refuses, without its words where they could hold cells; no rows.
    SettingsError
        No driver, or a query whose types would be guessed from rows.
    """
    from distcondense.data.tables import from_arrow, table_name

    text, what = query_text(query).strip().removesuffix(";"), f"query of {brief(table_name(database))}"
    try:
        with _connected(database, text) as connection, connection.cursor() as cursor:
            cursor.execute(text)
            frame = from_arrow(cursor.fetch_arrow_table())
    except (CohortError, SettingsError):
        raise
    except Exception as error:  # a database's words may quote cells
        said = _ABOUT_THE_QUERY.search(str(error))
        raise CohortError(
            what,
            "must be answered with rows",
            found=brief(said[1]) if said else type(error).__name__,
            fix="try it in the database's own client; it must be one SELECT, and may read only",
        ) from None
    if frame.empty:
        raise CohortError(what, "must have at least one row and one column", found="none", fix="check its conditions")
    if frame.columns.has_duplicates:
        raise CohortError(what, "must name each column once", found="one name twice", fix="say AS for one of them")
    marks = pd.util.hash_pandas_object(_written(frame), index=False).to_numpy()
    return frame.iloc[np.argsort(marks, kind="stable")].reset_index(drop=True)


def _written(frame: pd.DataFrame) -> pd.DataFrame:
    """Every cell as a text of its own value: pandas' type of a column may change with one hole in it."""
    return pd.DataFrame({name: [_text(value) for value in frame[name].astype(object)] for name in frame.columns})


def _text(value: Any) -> str:
    if pd.isna(value):
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < WHOLE:
        return repr(float(value))
    return repr(value)


def _connected(database: str | Path, text: str) -> Any:
    scheme = str(database).partition("://")[0].lower() if "://" in str(database) else ""
    if not scheme:
        if guessed := _GUESSED.search(text):
            raise SettingsError(
                "query",
                "must not read files without types: they would be guessed from rows",
                found=guessed[0],
                fix="give the file itself as the table, or make Parquet of it",
            )
        return _duckdb(str(database))
    if scheme not in SERVERS:
        raise SettingsError(
            "database",
            "must be a DuckDB file, or a URI that begins with one of " + ", ".join(f"{name}://" for name in SERVERS),
            found=f"{brief(scheme)}://",
            fix="export its rows as Parquet"
            + (": SQLite's columns have no types, which would be guessed from rows" if scheme == "sqlite" else ""),
        )
    return _driver(f"{SERVERS[scheme]}.dbapi", SERVERS[scheme].replace("_", "-")).connect(str(database))


def _duckdb(database: str) -> Any:
    if database != MEMORY and not os.path.isfile(database):
        raise CohortError("database", "must exist", found="no such file", fix="check the path, or say a URI")
    driver, manager = _driver("adbc_driver_duckdb", "duckdb"), _driver("adbc_driver_manager.dbapi", "adbc")
    how = {"path": MEMORY} if database == MEMORY else {"path": database, "access_mode": "READ_ONLY"}
    return manager.connect(driver=driver.driver_path(), entrypoint="duckdb_adbc_init", db_kwargs=how)


def _driver(module: str, name: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        fix = INSTALL if name in ("duckdb", "adbc", "adbc-driver-postgresql") else f"pip install {name}"
        raise SettingsError("query", f"needs {name}", found="none", fix=fix) from None
