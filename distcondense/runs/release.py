"""What is handed over: the table twice, its schema, what explains it, and a statement that is bound to all of them.

A release without an answer has no table.
A signature (Ed25519, package `cryptography`, extra `sign`) is detached: 64 bytes beside privacy.json, over its bytes,
and through the hashes in there over every released file.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from distcondense import __version__
from distcondense.errors import ModelError, RunFolderError, brief, os_errors
from distcondense.outside import parse_json
from distcondense.privacy.binding import SIGNATURE, STATEMENT, bind, file_hash
from distcondense.privacy.statement import Privacy
from distcondense.privacy.verify import Verified, statement_file, verify
from distcondense.runs.files import draft_of, plain, write_json, write_whole

LABEL = "distcondense"  # under which the guarantee stands in a frame's attributes and a Parquet file's metadata
PAGE, MANUAL, DATASHEET, PICTURE = "report.html", "README.md", "datasheet.md", "model.svg"
TABLE, SCHEMA = "condensed", "schema.toml"  # TABLE.csv and TABLE.parquet; TABLE-IPC of each set where there are several
PRIVATE_KEY, PUBLIC_KEY = "private.pem", "public.pem"


# -- writing ----------------------------------------------------------------------------------------------------------


def label_frame(frame: pd.DataFrame, privacy: Privacy) -> None:
    """The guarantee becomes an attribute of the frame, which pandas hands on to copies, parts and Parquet files."""
    frame.attrs[LABEL] = plain(privacy.label())


def table_names(ipcs: Collection[int]) -> dict[int, str]:
    """What the table of each IPC is called."""
    return {ipc: TABLE if len(ipcs) == 1 else f"{TABLE}-{ipc}" for ipc in ipcs}


def write_release(
    room: Path, frames: Mapping[str, pd.DataFrame], schema: str, privacy: Privacy, papers: Mapping[str, str]
) -> None:
    """Fill `release/` with tables by their names, which carry their label already, and with what explains them."""
    for name, frame in frames.items():
        write_table(frame, room, name)
    for name, text in {SCHEMA: schema, **papers}.items():
        (room / name).write_text(text, encoding="utf-8")
    tables = [f"{name}.{kind}" for name in frames for kind in ("csv", "parquet")]
    hashes = {name: file_hash(room / name) for name in (*tables, SCHEMA, *papers)}
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
    frame.to_csv(room / f"{name}.csv", index=False)


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


def verify_release(path: Path, *, key: Path | None = None) -> Verified:
    """`privacy.verify`, and what needs more than a statement: each table's own label and, with a key, the signature."""
    public = None if key is None else _load(key, public=True)
    found, file = verify(path), statement_file(path)
    tables = sorted(file.parent.glob(f"{TABLE}*.parquet"))
    found = found.plus([wrong for table in tables for wrong in _wrong_label(file, table)], [])
    return found if public is None else found.plus(*_signature(file, public))


def _wrong_label(file: Path, table: Path) -> list[str]:
    wrong = [f"the label of {table.name} is not that of the statement"]
    try:
        due = Privacy.from_dict(parse_json(file.read_bytes())).label()
        label = parse_json((pq.read_schema(table).metadata or {})[LABEL.encode()])
    except (ValueError, KeyError, OSError, AssertionError, TypeError):  # pyarrow's errors are ValueErrors and OSErrors
        return wrong
    return [] if label == plain(due) else wrong


# -- signatures -------------------------------------------------------------------------------------------------------


def make_keys(folder: Path) -> None:
    """A new pair of keys: `private.pem`, for its owner only, and `public.pem`, for everybody.

    A private key that lies there alone, as a kill leaves it, gets its public half.
    """
    ed25519, serialization = _cryptography()
    public_file, private_file = folder / PUBLIC_KEY, folder / PRIVATE_KEY
    if public_file.exists():
        raise RunFolderError(str(public_file), "must be new", found="a file", fix="choose another folder")
    alone = private_file.exists()
    key = _load(private_file, public=False) if alone else ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    folder.mkdir(parents=True, exist_ok=True)
    if not alone:
        write_whole(private_file, lambda draft: draft.write_bytes(private), mode=0o600)
    write_whole(public_file, lambda draft: draft.write_bytes(public))


def sign(path: Path, key: Path) -> Path:
    """Sign the statement of a release that verifies; the signature's file."""
    private = _load(key, public=False)
    file = statement_file(path)
    with os_errors(f"file {brief(file)}", "must be writable", RunFolderError):
        draft_of(file.with_name(SIGNATURE)).unlink(missing_ok=True)  # what a kill left: it is no part of the release
    if not verify_release(path).holds:
        raise RunFolderError(
            str(file), "must verify before it is signed", found="contradictions", fix="see distcondense privacy verify"
        )
    signature = private.sign(file.read_bytes())
    write_whole(file.with_name(SIGNATURE), lambda draft: draft.write_bytes(signature))
    return file.with_name(SIGNATURE)


def _signature(file: Path, public: Any) -> tuple[list[str], list[str]]:
    from cryptography.exceptions import InvalidSignature

    beside = file.with_name(SIGNATURE)
    if not beside.is_file():
        return [f"there is no signature ({SIGNATURE}) to check with the key"], []
    try:
        public.verify(beside.read_bytes(), file.read_bytes())
    except InvalidSignature:
        return [f"{SIGNATURE} was made with another key or for other bytes"], []
    return [], ["the signature was made with the private half of this key"]


def _load(key: Path, *, public: bool) -> Any:
    ed25519, serialization = _cryptography()
    if not key.is_file():
        raise RunFolderError(f"key {key}", "must be a file", found="none", fix="distcondense privacy keygen FOLDER")
    try:
        if public:
            found = serialization.load_pem_public_key(key.read_bytes())
        else:
            found = serialization.load_pem_private_key(key.read_bytes(), password=None)
    except Exception:  # ValueError, TypeError (a password), UnsupportedAlgorithm: none of them may quote a key
        found = None
    if not isinstance(found, ed25519.Ed25519PublicKey if public else ed25519.Ed25519PrivateKey):
        name = PUBLIC_KEY if public else PRIVATE_KEY
        raise RunFolderError(
            f"key {key}",
            f"must be an Ed25519 {Path(name).stem} key in PEM format without a password",
            found="something else",
            fix=f"the {name} that distcondense privacy keygen writes",
        )
    return found


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise ModelError(
            "signatures",
            "need the package cryptography",
            found="no such package",
            fix="pip install 'distcondense[sign]'",
        ) from None
    return ed25519, serialization
