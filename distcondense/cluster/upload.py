"""What may leave this machine with a job: code and settings, never a table of patients.

A job's working directory is copied to the head node, kept in its memory and unpacked on every node that works for the
job. So every file that would go is looked at first, and one that may hold patients stops the submission:

1. by its name: the formats that tables, models and archives are kept in (`DATA_SUFFIXES`), a run folder's `internal/`
   room, a checkpoint;
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

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
ROOM = re.compile(r"internal(\.coming|\.draft-.*)?")
CHECKPOINTS = frozenset({"checkpoint.npz", "checkpoint.draft"})
ROOM_FILES = CHECKPOINTS | {"owner.json", "run.json", "holdout.json", "ledger.jsonl", "earlier.jsonl"}

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


@dataclass(frozen=True)
class Entry:
    """One file that would go: its name in the package, its size, and how to read its first bytes."""

    name: str
    size: int
    head: Callable[[], bytes]
    also_called: str = ""  # what a link leads to


def entry_of(path: Path, name: str) -> Entry:
    def head() -> bytes:
        with open(path, "rb") as file:
            return file.read(LOOKED_AT)

    return Entry(name, path.stat().st_size, head, path.resolve().name)


def entries_of_archive(path: Path) -> list[Entry]:
    """The files inside a .zip or .whl, which Ray would unpack for the job."""
    try:
        with zipfile.ZipFile(path) as archive:
            files = [info for info in archive.infolist() if not info.is_dir()]
    except (zipfile.BadZipFile, OSError) as error:
        raise SettingsError(
            f"archive {path.name}",
            "must be a .zip or .whl, which can be looked into",
            found=type(error).__name__,
            fix="give a folder with --working-dir",
        ) from None

    def head(name: str) -> bytes:
        with zipfile.ZipFile(path) as archive, archive.open(name) as file:
            return file.read(LOOKED_AT)

    return [Entry(info.filename, info.file_size, partial(head, info.filename)) for info in files]


def refuse_data(what: str, entries: Iterable[Entry]) -> None:
    """Raise if anything in here may hold patients, or is more than can be sent; names first, nothing is opened then."""
    entries = list(entries)
    rooms = internal_rooms(entry.name for entry in entries)
    _refuse(what, [(e.name, why) for e in entries if (why := _why_by_name(e, rooms))])
    size = sum(entry.size for entry in entries)
    if len(entries) > MOST_FILES or size > LARGEST:
        raise SettingsError(
            what,
            f"must be under {LARGEST // 2**20} MB and {MOST_FILES:,} files",
            found=f"{size / 2**20:.0f} MB in {len(entries):,} files",
            fix="list what is not needed in .rayignore",
        )
    _refuse(what, [(e.name, why) for e in entries if (why := _why_by_content(e))])


def internal_rooms(names: Iterable[str]) -> set[PurePosixPath]:
    """The `internal/` rooms of run folders among these files: known by their name and by a file every run leaves."""
    parents = ((PurePosixPath(name), parent) for name in names for parent in PurePosixPath(name).parents)
    return {room for path, room in parents if ROOM.fullmatch(room.name) and path.name in ROOM_FILES}


def data_suffix(name: str) -> str | None:
    """The ending that says a file holds data, if it has one: of cohort.csv.gz and cohort.csv.old it is .csv."""
    return next((s for s in PurePosixPath(name.lower()).suffixes if s in DATA_SUFFIXES), None)


def pack(files: Iterable[tuple[str, Path]], target: Path) -> None:
    """A zip of exactly these files; the same files make the same bytes, so that Ray sends them once."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(files):
            info = zipfile.ZipInfo(name)  # dated 1980, whenever it was written
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (path.stat().st_mode & 0o777) << 16
            archive.writestr(info, path.read_bytes())


def _why_by_name(entry: Entry, rooms: set[PurePosixPath]) -> str | None:
    if not rooms.isdisjoint(PurePosixPath(entry.name).parents):
        return "a run's internal room"
    if PurePosixPath(entry.name).name in CHECKPOINTS:
        return "a checkpoint"
    suffix = data_suffix(PurePosixPath(entry.name).name) or data_suffix(entry.also_called)
    return suffix and f"{suffix} data"


def _why_by_content(entry: Entry) -> str | None:
    if entry.name.lower().endswith(HARMLESS_SUFFIXES):
        return None
    try:
        head = entry.head()
    except (OSError, RuntimeError, zipfile.BadZipFile):  # no permission; a member with a password
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
    return any(_rows_of_fields(lines, split) for split in (*map(_split_at, ",;\t|"), str.split))


def _split_at(delimiter: str) -> Callable[[str], list[str]]:
    def split(line: str) -> list[str]:
        return next(csv.reader([line], delimiter=delimiter), [])

    return split


def _rows_of_fields(lines: Sequence[str], split: Callable[[str], list[str]]) -> bool:
    try:
        rows = [[line] if _SETTING.match(line) else split(line) for line in lines]
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
    return (width >= 3 and split is not str.split) or sum(map(bool, numbers)) >= MOST * len(lines)


def _refuse(what: str, found: Sequence[tuple[str, str]]) -> None:
    if found:
        names = ", ".join(f"{name} ({why})" for name, why in sorted(found)[:SHOWN])
        more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        raise SettingsError(
            what,
            "must hold nothing that may be a table of patients: it is copied to every node",
            found=names + more,
            fix="keep data where the cluster can read it and give COMMAND its absolute path or URI; "
            "list files that must not go in .rayignore",
        )
