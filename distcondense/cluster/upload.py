"""What may leave this machine with a job: code and settings, never a table of patients.

A job's working directory is copied to the head node, kept in its memory and unpacked on every node that works for the
job. So every file that would go is looked at first, and one that may hold patients stops the submission:

1. by its name: the formats that tables, models and archives are kept in (`DATA_SUFFIXES`), a run's `internal/` folder,
   a checkpoint;
2. by its nature: what is not text cannot be looked into (pictures and compiled code aside);
3. by its text: rows of fields. That is 20 lines or 200 numbers, of which nine in ten lines have the same number of
   fields (split at commas, semicolons, tabs, bars or blanks), and either three fields or more, or a number among them;
   or JSON with 200 numbers in it. Settings (name = value, name: value) are no rows. The first 4 MB of a file are read.

Messages name files and reasons, never contents. This is a guard against accidents: it does not find a table that
somebody hides, and it stops some files that are harmless. Both have one cure: data stays out of the working directory
and is given by its path on the cluster or by a URI.
"""

from __future__ import annotations

import codecs
import csv
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import distcondense
from distcondense.errors import SettingsError

# tables; columns and arrays; statistics packages; databases; pickles and models (they remember patients); notebooks
# (their outputs show rows); archives (they are not looked into)
DATA_SUFFIXES = (
    ".csv", ".tsv", ".tab", ".psv", ".xls", ".xlsx", ".xlsm", ".xlsb", ".ods", ".jsonl", ".ndjson", ".arff", ".dbf",
    ".parquet", ".pq", ".feather", ".arrow", ".ipc", ".orc", ".avro", ".npy", ".npz", ".h5", ".hdf", ".hdf5", ".h5ad",
    ".zarr", ".mat",
    ".sas7bdat", ".xpt", ".dta", ".sav", ".zsav", ".por", ".rds", ".rda", ".rdata", ".fst", ".qs", ".jmp",
    ".sqlite", ".sqlite3", ".db", ".duckdb", ".mdb", ".accdb", ".sql", ".dump",
    ".pkl", ".pickle", ".joblib", ".ckpt", ".ubj", ".onnx", ".pt", ".safetensors",
    ".ipynb",
    ".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".lz4", ".7z", ".rar",
)  # fmt: skip
HARMLESS_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".ico", ".so", ".dylib", ".dll", ".pyd", ".pyc")
INTERNAL = re.compile(r"internal(\.coming|\.draft-.*)?")
CHECKPOINTS = frozenset({"checkpoint.npz", "checkpoint.draft"})
RUN_FILES = CHECKPOINTS | {"owner.json", "run.json", "holdout.json", "ledger.jsonl", "earlier.jsonl"}

PACKAGE = Path(distcondense.__file__).resolve().parent
PACKAGE_SUFFIXES, SOURCE_SUFFIXES = (
    (".py", ".j2", ".json", ".typed", ".so"),
    (".cpp", ".h", ".json"),
)  # of the package and its C++
NOT_NEEDED = ("/tests", "/docs", "/benchmarks/results")  # of a checkout, by a job
URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")

LOOKED_AT = 4 * 2**20  # bytes: twenty rows of a table with 20,000 columns
LINES, NUMBERS = 20, 200
MOST = 0.9  # of the lines: a header, comments and a broken row are still a table
LARGEST = 100 * 2**20  # bytes: what Ray's dashboard takes
MOST_FILES = 10_000
SHOWN = 8

_NUMBER = re.compile(r"\s*(?=[.,:/+-]*\d)[\d.,:/+-]+([eE][+-]?\d+)?\s*")  # dates and times too
_JSON = re.compile(r"\s*[\[{][\s\[{]*[\"\d-]")  # the [heading] of a TOML file has a letter there
_JSON_NUMBER = re.compile(r"(?<=[\[:,\s])-?\d+(\.\d+)?([eE][+-]?\d+)?(?=[\],}\s])")
_SETTING = re.compile(r"\s*[{\[(]?\s*[\w.\"'-]+\s*(=|:\s)")
_CONTROL = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")


def package(
    environment: dict[str, Any], working_dir: str | None, target: Path, log: Callable[[str], None]
) -> dict[str, Any]:
    """The runtime environment to send, its working directory replaced by a zip of what was looked at.

    If this package is not in it, it is put in: the nodes run the code that was submitted, whatever is installed there.
    """
    environment = dict(environment)
    excludes = [str(pattern) for pattern in environment.pop("excludes", None) or ()]
    folder = working_dir or environment.get("working_dir")
    for field in ("pip", "uv", "conda"):  # a file named here is read and sent, line by line
        if isinstance(environment.get(field), str) and Path(environment[field]).is_file():
            refuse_data(f"runtime env: {field}", {environment[field]: Path(environment[field])})
    for module in map(str, environment.get("py_modules") or ()):
        if not URI.match(module):
            _files_of(f"py_modules: {module}", Path(module), excludes, defaults=False)
    if excludes:
        environment["excludes"] = excludes  # for py_modules, which Ray packs itself
    if folder is not None and URI.match(str(folder)):
        return {**environment, "working_dir": str(folder)}
    brings_package = _brings_package(environment)
    if folder is None and brings_package:
        return environment
    if folder is None and (PACKAGE.parent / "pyproject.toml").is_file():
        folder, excludes = PACKAGE.parent, [*excludes, *NOT_NEEDED]
    files = {} if folder is None else _files_of(f"working dir {folder}", Path(folder), excludes)
    if "distcondense/__init__.py" not in files and not brings_package:
        files = package_files() | files
    pack(files, target)
    log(f"packed {len(files)} files ({target.stat().st_size / 2**20:.1f} MB) of {folder or 'this package'}")
    return {**environment, "working_dir": str(target)}


def package_files() -> dict[str, Path]:
    """What a wheel of this package holds, as it would lie in a working directory: name → file.

    With the tested versions, where there is a checkout to take them from: cluster/runtime_env.yaml asks for them.
    """
    from distcondense.kernels.native_build import source_folder

    paths = [path for path in PACKAGE.rglob("*") if path.suffix in PACKAGE_SUFFIXES]
    files = {f"{PACKAGE.name}/{path.relative_to(PACKAGE).as_posix()}": path for path in paths}
    sources = source_folder()
    for source in sorted(sources.iterdir()) if sources is not None else ():
        if source.suffix in SOURCE_SUFFIXES:
            files[f"{PACKAGE.name}/kernels/native_src/{source.name}"] = source
    if (versions := PACKAGE.parent / "constraints.txt").is_file():
        files[versions.name] = versions
    return files


def pack(files: Mapping[str, Path], target: Path) -> None:
    """A zip of exactly these files; the same files make the same bytes, so that Ray sends them once."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files.items()):
            info = zipfile.ZipInfo(name)  # dated 1980, whenever it was written
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (path.stat().st_mode & 0o777) << 16
            archive.writestr(info, path.read_bytes())


def _brings_package(environment: Mapping[str, Any]) -> bool:
    """Whether an image or a requirement puts the package on the nodes."""
    if environment.get("image_uri") or environment.get("container"):
        return True
    for field in ("pip", "uv"):
        value = environment.get(field)
        value = value.get("packages") if isinstance(value, dict) else value
        if isinstance(value, list) and any(re.match(r"distcondense\b", str(requirement)) for requirement in value):
            return True
    return False


def _files_of(what: str, folder: Path, excludes: Sequence[str], *, defaults: bool = True) -> dict[str, Path]:
    """The files Ray would send of a folder, each looked at: name → file."""
    from distcondense.cluster.ray._ray_private import files_to_send
    from distcondense.cluster.ray.session import load_ray

    if not folder.is_dir():
        raise SettingsError(
            what,
            "must be a folder",
            found="a file" if folder.exists() else "no such folder",
            fix="give a folder, or the URI of an archive that the cluster can read",
        )
    load_ray()
    try:
        paths = files_to_send(folder, excludes, defaults=defaults)
    except OSError as error:
        raise SettingsError(
            what, "must be readable", found=type(error).__name__, fix="list what is not needed in .rayignore"
        ) from None
    files = {path.relative_to(folder.absolute()).as_posix(): path for path in paths}
    refuse_data(what, files)
    return files


def refuse_data(what: str, files: Mapping[str, Path]) -> None:
    """Raise if one of these files may hold patients, or they are more than can be sent; names are looked at first."""
    folders = internal_folders(files)
    _refuse(what, {name: _why_by_name(name, path, folders) for name, path in files.items()})
    size = sum(path.stat().st_size for path in files.values())
    if len(files) > MOST_FILES or size > LARGEST:
        raise SettingsError(
            what,
            f"must be under {LARGEST // 2**20} MB and {MOST_FILES:,} files",
            found=f"{size / 2**20:.0f} MB in {len(files):,} files",
            fix="list what is not needed in .rayignore",
        )
    _refuse(what, {name: _why_by_content(name, path) for name, path in files.items()})


def internal_folders(names: Iterable[str]) -> set[PurePosixPath]:
    """The `internal/` folders of runs among these files: known by their name and by a file every run leaves."""
    parents = ((PurePosixPath(name), parent) for name in names for parent in PurePosixPath(name).parents)
    return {folder for path, folder in parents if INTERNAL.fullmatch(folder.name) and path.name in RUN_FILES}


def data_suffix(name: str) -> str | None:
    """The ending that says a file holds data, if it has one: of cohort.csv.gz and cohort.csv.old it is .csv."""
    return next((s for s in PurePosixPath(name.lower()).suffixes if s in DATA_SUFFIXES), None)


def _why_by_name(name: str, path: Path, folders: set[PurePosixPath]) -> str | None:
    """Why a file is refused by its name, or by that of what it links to."""
    if not folders.isdisjoint(PurePosixPath(name).parents):
        return "a run's internal folder"
    if PurePosixPath(name).name in CHECKPOINTS:
        return "a checkpoint"
    suffix = data_suffix(PurePosixPath(name).name) or data_suffix(path.resolve().name)
    return suffix and f"{suffix} data"


def _why_by_content(name: str, path: Path) -> str | None:
    """Why a file is refused by its first bytes."""
    if name.lower().endswith(HARMLESS_SUFFIXES):
        return None
    try:
        with open(path, "rb") as file:
            head = file.read(LOOKED_AT)
    except OSError:
        return "cannot be read"
    text = _decode(head)
    if text is None:
        return "not text"
    if len(head) == LOOKED_AT:
        text = text[: text.rfind("\n") + 1] or text  # the last line is cut
    return "rows of fields" if reads_as_table(text) else None


def _decode(head: bytes) -> str | None:
    """The text, or None of a binary file. The end may be cut inside a character."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what Excel calls Unicode text
        return head.decode("utf-16", errors="ignore")
    if _CONTROL.search(head):
        return None
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return head.decode("latin-1")


def reads_as_table(text: str) -> bool:
    """Whether a text is rows of fields, or JSON full of numbers; the file's docstring has the rule."""
    if _JSON.match(text) and sum(1 for _ in _JSON_NUMBER.finditer(text)) >= NUMBERS:
        return True
    lines = [line for line in text.splitlines() if line.strip()]
    return any(_rows_of_fields(lines, separator) for separator in (*",;\t|", None))


def _rows_of_fields(lines: Sequence[str], separator: str | None) -> bool:
    """Whether lines are rows of fields between separators; None: between blanks."""

    def fields(line: str) -> list[str]:
        return line.split() if separator is None else next(csv.reader([line], delimiter=separator), [])

    try:
        rows = [[line] if _SETTING.match(line) else fields(line) for line in lines]
    except csv.Error:  # a field longer than csv allows: a program's line or a picture's, not a cell
        return False
    if not rows:
        return False
    width = Counter(map(len, rows)).most_common(1)[0][0]
    rows = [row for row in rows if len(row) == width]
    numbers = [sum(_NUMBER.fullmatch(cell) is not None for cell in row) for row in rows]
    if len(rows) < MOST * len(lines) or (len(lines) < LINES and sum(numbers) < NUMBERS):
        return False
    # three words at blanks may be prose, three fields at commas are not
    return (width >= 3 and separator is not None) or sum(map(bool, numbers)) >= MOST * len(lines)


def _refuse(what: str, reasons: Mapping[str, str | None]) -> None:
    """Raise if there is a reason against any of these files."""
    refused = [f"{name} ({reason})" for name, reason in sorted(reasons.items()) if reason]
    if refused:
        more = f" and {len(refused) - SHOWN} more" if len(refused) > SHOWN else ""
        raise SettingsError(
            what,
            "must hold nothing that may be a table of patients: it is copied to every node",
            found=", ".join(refused[:SHOWN]) + more,
            fix="keep data where the cluster can read it and give COMMAND its absolute path or URI; "
            "list files that must not go in .rayignore",
        )
