"""What is handed over: the table twice, its schema, what explains it, and a statement that is bound to all of them.

A release without an answer has no table. Its signature is made in `runs/signing.py`.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from distcondense import __version__
from distcondense.data.names import nearest
from distcondense.errors import SettingsError, brief, need
from distcondense.outside import OutsideError, parse_json, parse_toml, read_text
from distcondense.privacy.binding import STATEMENT, bind, file_hash
from distcondense.privacy.statement import Privacy
from distcondense.privacy.verify import Verified, statement_file, verify
from distcondense.runs.files import plain, write_json

LABEL = "distcondense"  # under which the guarantee stands in a frame's attributes and a Parquet file's metadata
PAGE, MANUAL, DATASHEET, PICTURE = "report.html", "README.md", "datasheet.md", "model.svg"
TABLE, SCHEMA = "condensed", "schema.toml"  # TABLE.csv and TABLE.parquet; TABLE-IPC of each set where there are several
GZIPPED = 10_000_000  # values from which on a table's CSV is TABLE.csv.gz: about 200 MB of text
CSV_BATCH = 2**22  # values that are texts at a time
CROISSANT, HEALTH_RECORD, DEPLOYMENT = "croissant.json", "healthdcat.jsonld", "deployment.json"  # for catalogues


@dataclass(frozen=True)
class ReleaseInfo:
    """What catalogues want to know of a release and a program cannot: the custodian's own words, all optional.

    Parameters
    ----------
    title, description : str
        Of the patients' table, in words for a catalogue.
    identifier : str
        A URI of the patients' table.
    publisher, contact : str
        Who holds it, and an e-mail address or a URL.
    licence : str
        Of the release: a URL or an SPDX name.
    url, access_url : str
        Where the release is, and where access to the patients' table is asked for.
    keywords, coding_systems : tuple of str
        Words; URIs of code systems such as ICD-10.
    hdab, hdab_contact : str
        The health data access body in charge, and its e-mail address or URL.
    health_category : str
        URI of the category of electronic health data.
    population, provenance : str
        Whom the table covers; where its records come from.
    version, published, cite_as : str
        Of the release: a version, a date (2026-11-18), a reference.
    key : str
        Fingerprint of the public key that the release will be signed for, as `distcondense privacy keygen` tells it;
        the datasheet quotes it.

    Examples
    --------
    >>> from distcondense.runs.release import ReleaseInfo
    >>> ReleaseInfo.from_dict({"publisher": "A hospital", "contact": "data@hospital.example"}).publisher
    'A hospital'
    """

    title: str = ""
    description: str = ""
    identifier: str = ""
    publisher: str = ""
    contact: str = ""
    licence: str = ""
    url: str = ""
    access_url: str = ""
    keywords: tuple[str, ...] = ()
    coding_systems: tuple[str, ...] = ()
    hdab: str = ""
    hdab_contact: str = ""
    health_category: str = ""
    population: str = ""
    provenance: str = ""
    version: str = ""
    published: str = ""
    cite_as: str = ""
    key: str = ""

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> ReleaseInfo:
        """From the entries of release.toml; an entry that is unknown or no text is refused."""
        known = {entry.name: entry.default for entry in fields(cls)}
        for name, value in given.items():
            what = f"release.toml, {brief(name)}"
            if name not in known:
                raise SettingsError(what, "must be a known entry", found=nearest(name, known), fix=", ".join(known))
            text = isinstance(known[name], str)
            texts = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
            if not (isinstance(value, str) if text else texts):
                fix = f'{name} = "…"' if text else f'{name} = ["…"]'
                rule = f"must be a {'text' if text else 'list of texts'}"
                raise SettingsError(what, rule, found=type(value).__name__, fix=fix)
        plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
        return cls(**plain)

    @classmethod
    def from_any(cls, said: ReleaseInfo | Mapping[str, Any] | str | Path | None) -> ReleaseInfo:
        """As a caller has it: made already, its entries, or the path of release.toml."""
        if said is None:
            return cls()
        if isinstance(said, ReleaseInfo):
            return said
        if isinstance(said, Mapping):
            return cls.from_dict(said)
        need(said, (str, Path), "about", "a ReleaseInfo, its entries or a path", fix='e.g. {"publisher": "…"}')
        return cls.from_toml(said)

    @classmethod
    def from_toml(cls, path: str | Path) -> ReleaseInfo:
        """Read release.toml."""
        what = f"file {brief(path)}"
        try:
            return cls.from_dict(parse_toml(read_text(path, what, SettingsError)))
        except OutsideError as error:
            raise SettingsError(what, "must be TOML", found=str(error), fix='lines such as publisher = "…"') from None


# what HealthDCAT-AP demands of a non-public data set and a program cannot know
DEMANDED = ("identifier", "title", "description", "publisher", "contact", "hdab", "hdab_contact", "health_category")


def missing_for_health_record(info: ReleaseInfo) -> list[str]:
    """What release.toml lacks for a HealthDCAT-AP record of the hospital's data set."""
    return [name for name in DEMANDED if not getattr(info, name)]


# -- writing ----------------------------------------------------------------------------------------------------------


def label_frame(frame: pd.DataFrame, privacy: Privacy) -> None:
    """The guarantee becomes an attribute of the frame, which pandas hands on to copies, parts and Parquet files."""
    frame.attrs[LABEL] = plain(privacy.label())


def table_names(ipcs: Collection[int]) -> dict[int, str]:
    """What the table of each IPC is called."""
    return {ipc: TABLE if len(ipcs) == 1 else f"{TABLE}-{ipc}" for ipc in ipcs}


def csv_name(name: str, frame: pd.DataFrame) -> str:
    """What a table's CSV is called: above `GZIPPED` values it is compressed."""
    return f"{name}.csv.gz" if frame.size > GZIPPED else f"{name}.csv"


def write_release(
    room: Path,
    frames: Mapping[str, pd.DataFrame],
    schema: str,
    privacy: Privacy,
    papers: Mapping[str, str],
    catalogue: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda hashes: {},
) -> None:
    """Fill `release/` with tables by their names, which carry their label already, and with what explains them.

    `catalogue` makes further texts by name from the SHA-256 of those.
    """
    for name, frame in frames.items():
        write_table(frame, room, name)
    for name, text in {SCHEMA: schema, **papers}.items():
        (room / name).write_text(text, encoding="utf-8")
    tables = [file for name, frame in frames.items() for file in (csv_name(name, frame), f"{name}.parquet")]
    hashes = {name: file_hash(room / name) for name in (*tables, SCHEMA, *papers)}
    for name, text in catalogue(hashes).items():
        (room / name).write_text(text, encoding="utf-8")
        hashes[name] = file_hash(room / name)
    write_json(room / STATEMENT, bind(plain(privacy.to_dict()), hashes, software()))


def write_table(frame: pd.DataFrame, room: Path, name: str = TABLE) -> None:
    parquet = frame.copy()
    for column in parquet.select_dtypes(object).columns:
        if len({type(value) for value in parquet[column].dropna()}) > 1:  # a Parquet column has one type
            parquet[column] = parquet[column].map(str, na_action="ignore")
    table = pa.Table.from_pandas(parquet, preserve_index=False)
    label = json.dumps(frame.attrs[LABEL], ensure_ascii=False)
    labelled = table.replace_schema_metadata({**(table.schema.metadata or {}), LABEL: label})
    pq.write_table(labelled, room / f"{name}.parquet")
    write_csv(frame, room / csv_name(name, frame))


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """The bytes of `frame.to_csv(path, index=False)`, in a fifth of its time; gzipped where the name says so."""
    rows = max(1, CSV_BATCH // max(frame.shape[1], 1))
    with open(path, "wb") as plain_file:
        # no name and no time inside: the same table is the same file
        zipped = gzip.GzipFile("", "wb", 1, plain_file, mtime=0) if path.suffix == ".gz" else None
        file: IO[bytes] = zipped or plain_file  # type: ignore[assignment]
        _write_lines(file, [_quoted(pa.array([str(name)], pa.large_string())) for name in frame.columns])
        for top in range(0, len(frame), rows):
            part = frame.iloc[top : top + rows]
            _write_lines(file, _texts_of(part))
        if zipped is not None:
            zipped.close()


def _write_lines(file: IO[bytes], columns: list[pa.Array]) -> None:
    if len(columns) == 1:  # or a row without a value would be no row
        columns = [pc.if_else(pc.equal(columns[0], ""), _text('""'), columns[0])]
    lines = pc.binary_join_element_wise(*columns, _text(","))
    file.write(pc.binary_join(pa.LargeListArray.from_arrays([0, len(lines)], lines), _text("\n"))[0].as_buffer())
    file.write(b"\n")


def _texts_of(part: pd.DataFrame) -> list[pa.Array]:
    """The rows of a table in pieces: numbers that stand side by side are one, other columns one each."""
    pieces, end = [], 0
    for dtype, run in groupby(part.dtypes):
        begin, end = end, end + len(list(run))
        if dtype in (np.float64, np.int64):
            texts = _numbers(part.iloc[:, begin:end].to_numpy().reshape(-1))
            rows = pa.LargeListArray.from_arrays(np.arange(0, len(texts) + 1, end - begin), texts)
            pieces.append(pc.binary_join(rows, _text(",")))
        else:
            pieces += [_words(part.iloc[:, j]) for j in range(begin, end)]
    return pieces


def _words(column: pd.Series[Any]) -> pa.Array:
    """A column as a CSV has it; nothing where there is no value."""
    values = (column if isinstance(column.dtype, np.dtype) else column.astype(object)).to_numpy()
    given = zip(values, column.isna(), strict=True)
    return _quoted(pa.array(["" if none else str(value) for value, none in given], pa.large_string()))


def _numbers(values: NDArray[Any]) -> pa.Array:
    """The shortest texts that are read back as the same numbers; nothing where there is none."""
    if values.dtype == np.int64:
        return pc.cast(pa.array(values), pa.large_string())
    texts = pc.fill_null(pc.cast(pa.array(values, from_pandas=True), pa.large_string()), "")
    size = np.abs(values)
    own = np.isfinite(values) & ((values == np.floor(values)) | (size < 1e-4) | (size >= 1e15))  # Arrow: 1, 0.00001
    return pc.replace_with_mask(texts, own, pa.array([repr(float(v)) for v in values[own]], pa.large_string()))


def _quoted(texts: pa.Array) -> pa.Array:
    needed = pc.match_substring_regex(texts, '[",\r\n]')
    doubled = pc.replace_substring(texts, '"', '""')
    return pc.if_else(needed, pc.binary_join_element_wise(_text('"'), doubled, _text('"'), _text("")), texts)


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def software() -> dict[str, Any]:
    """What made a release."""
    return {"version": __version__, "commit": _commit()}


@cache
def _commit() -> str | None:
    return _installed_commit() or commit_of(Path(__file__).parents[2])


def _installed_commit() -> str | None:
    """Of a package that was installed from a repository's address."""
    try:
        source = json.loads(metadata.distribution("distcondense").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return None
    return source.get("vcs_info", {}).get("commit_id")


def commit_of(checkout: Path) -> str | None:
    """The commit of a checkout, with "-dirty" where files differ from it; None where there is none to know."""
    if not (checkout / ".git").exists():  # a folder somewhere inside another project's repository is not ours
        return None
    ask = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # several processes of a run ask at once, and only want to know
    try:  # for as long as it takes: what a release says of itself must not depend on how busy the machine is
        found = subprocess.run(ask, capture_output=True, text=True, env=quiet, check=False)
    except OSError:
        return None
    return found.stdout.strip() or None if found.returncode == 0 else None


# -- checking ---------------------------------------------------------------------------------------------------------


def verify_tables(path: Path) -> Verified:
    """`privacy.verify`, and each table's own label."""
    found, file = verify(path), statement_file(path)
    tables = sorted(file.parent.glob(f"{TABLE}*.parquet"))
    lacking = _lacking(file) if path.is_dir() else []
    return found.plus([*lacking, *(wrong for table in tables for wrong in _wrong_label(file, table))], [])


def _lacking(file: Path) -> list[str]:
    """What a release must have and this statement does not name: documents, and tables unless it has no answer."""
    stated = parse_json(file.read_bytes())
    named = stated.get("files") or {}
    lacking = [name for name in (MANUAL, DATASHEET, PAGE, SCHEMA) if name not in named]
    tables = {Path(name.removesuffix(".gz")).suffix for name in named if name.startswith(TABLE)}
    lacking += [f"{TABLE}{kind}" for kind in (".csv", ".parquet") if not stated.get("answer") and kind not in tables]
    return [f"{name} is missing, and the statement names none: the release is not whole" for name in lacking]


def _wrong_label(file: Path, table: Path) -> list[str]:
    wrong = [f"the label of {table.name} is not that of the statement"]
    try:
        due = Privacy.from_dict(parse_json(file.read_bytes())).label()
        label = parse_json((pq.read_schema(table).metadata or {})[LABEL.encode()])
    except (ValueError, KeyError, OSError, AssertionError, TypeError):  # pyarrow's errors are ValueErrors and OSErrors
        return wrong
    return [] if label == plain(due) else wrong
