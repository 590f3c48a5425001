"""The accounts that are kept where nobody named one: those of files, in the custodian's state folder.

`$DISTCONDENSE_STATE` is that folder, or `off`; if not set, `$XDG_STATE_HOME/distcondense`, else
`~/.local/state/distcondense`. Whatever reads a file is charged to that file's account (`accounts_of`). A file is known
again by its real path, by its device and inode (links, a move), and by a digest of its content (byte-identical copies).
Which of these belong to which account is in `files.jsonl` there, with the key of the digests, which is random: neither
leaves that folder. A file that is known by several accounts makes them one, and so does a folder that is read as one
table. What is not recognised: a copy that was edited or written in another format, and what lies at a store (s3://),
which goes by its address alone. Then an account must be named.

A file is digested once for each of its states (device, inode, size, both times of change): the cost of reading it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from distcondense.errors import RunFolderError, SettingsError
from distcondense.privacy.chained_file import OLDER, ChainedFile, UnwritableFileError, entry_of, parsed_line
from distcondense.privacy.odometer import Odometer

STATE, OFF = "DISTCONDENSE_STATE", "off"
VERSION = 1
PART = 2**20  # bytes of a file that are digested at once

NAMED = "Charged to an account that whoever ran it named, {}: runs on it count as runs on the same patients."
KEPT = (
    "Charged to the account that is kept of the table's file: runs on that file, on links to it and on byte-identical "
    "copies count as runs on the same patients; an edited copy is not recognised."
)
NONE = "NO ACCOUNT of these patients was charged ({}): what other runs read of them is not counted."
NO_FILE = "a table in memory, and no account was named"
SWITCHED_OFF = f"{STATE} is {OFF}"
UNWRITABLE = "the folder of accounts cannot be written"


@dataclass(frozen=True)
class KeptAccounts:
    """The accounts that a run on some patients is charged to, and what is said of them in its statement."""

    odometers: tuple[Odometer, ...]
    words: str
    warning: str = ""  # where one should have been kept and cannot be

    @property
    def before(self) -> str:
        """What earlier runs were charged, in words, and where that stands; empty where there were none."""
        read = [(odometer, odometer.read()) for odometer in self.odometers]
        return "; ".join(f"{account.meaning()} ({odometer.path})" for odometer, account in read if account.charges)


def accounts_of(named: Odometer | None, files: Sequence[str | Path], *, required: bool = False) -> KeptAccounts:
    """The account that a caller named, and that of the files that a table is read from.

    Raises
    ------
    SettingsError
        Where one is required and there is none.
    """
    kept = account_of_files(files) if files else NO_FILE
    both = tuple(one for one in (named, kept) if isinstance(one, Odometer))
    if both:
        return KeptAccounts(both, KEPT if named is None else NAMED.format(repr(named.path.name)))
    words = NONE.format(kept)
    if required:
        raise SettingsError(
            "require_account",
            "asks for an account of the patients",
            found=str(kept),
            fix=f"name one (--account FILE), or a folder that can be written ({STATE}); no patient was read",
        )
    return KeptAccounts((), words, words if kept == UNWRITABLE else "")


def state_folder() -> Path | None:
    """Where the accounts of files are kept; None where that is switched off."""
    folder = os.environ.get(STATE, "")
    if folder:
        return None if folder == OFF else Path(folder)
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if home else Path.home() / ".local" / "state") / "distcondense"


def account_of_files(files: Sequence[str | Path]) -> Odometer | str:
    """The account of these files, begun where there is none; why there is none where none can be kept."""
    folder = state_folder()
    if folder is None:
        return SWITCHED_OFF
    places = [_real(str(file)) for file in files]
    index = ChainedFile(folder / "files.jsonl", "accounts of files")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "accounts").mkdir(exist_ok=True)
        if not index.path.exists():
            index.create({"files": VERSION, "key": os.urandom(32).hex()})
    except RunFolderError:  # another process may have begun it
        if not index.path.exists():
            return UNWRITABLE
    except OSError:
        return UNWRITABLE
    try:
        return _found(index, folder / "accounts", places)
    except UnwritableFileError:
        return UNWRITABLE


@dataclass(frozen=True)
class FileState:
    """What a file is known by."""

    path: str
    device: int = 0
    inode: int = 0
    size: int = 0
    modified: int = 0  # ns
    changed: int = 0  # ns; of all these times nobody can set this one back
    digest: str = ""  # of a folder and of what is not here none

    def is_same(self, other: FileState) -> bool:
        """Whether both are the same patients."""
        linked = self.inode != 0 and (self.device, self.inode) == (other.device, other.inode)
        return self.path == other.path or linked or self.digest == other.digest != ""


def _found(index: ChainedFile, accounts: Path, places: Sequence[str]) -> Odometer:
    """The account of what lies at these places; several that it was known by are joined, and all is noted."""
    with index.locked() as (file, lines):
        key, known = _entries(index, lines)
        digests = {_without_digest(state): state.digest for state, _ in known}
        states = [_state(place, key, digests) for place in places]
        names = [name for state, name in known if any(state.is_same(one) for one in states)]
        name = names[0] if names else _name(places[0])
        into = _opened(accounts / name, Path(places[0]).name)
        for other in dict.fromkeys(names):
            if other != name:
                _opened(accounts / other, Path(places[0]).name).join(into)
        noted = {state for state, _ in known}
        for state in dict.fromkeys(states):
            if state not in noted:
                index.append(file, lines, {"entry": "file", "account": name, **asdict(state)})
        return Odometer(into.path)


def _entries(index: ChainedFile, lines: Sequence[bytes]) -> tuple[bytes, list[tuple[FileState, str]]]:
    """The key, and what is known: states of files, each with the name of its account."""
    try:
        head = parsed_line(lines[0])
        if head["files"] != VERSION:
            raise ValueError
        key, known = bytes.fromhex(head["key"]), []
        for number in range(1, len(lines)):
            entry = entry_of(list(lines), number)
            device, inode, size, modified, changed = (
                int(entry[name]) for name in ("device", "inode", "size", "modified", "changed")
            )
            name = str(entry["account"])
            if name != Path(name).name:
                raise ValueError
            known.append(
                (FileState(str(entry["path"]), device, inode, size, modified, changed, str(entry["digest"])), name)
            )
    except (ValueError, KeyError, TypeError):
        raise RunFolderError(
            index.name, "must be as they were written, line by line", found=f"{index.path} damaged", fix=OLDER
        ) from None
    return key, known


def _opened(path: Path, about: str) -> Odometer:
    if not path.exists():
        return Odometer.create(path, about=about)
    return Odometer(path)


def _name(place: str) -> str:
    """Of a new account: that of the file, and a digest of where it lies."""
    digest = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{Path(place).name[:100]}-{digest}.jsonl"


def _real(file: str) -> str:
    """Where it lies: its real path; at a store its address, without options and without whose key it is read with."""
    if "://" in file and not file.lower().startswith("file:"):
        return re.sub(r"(?<=://)[^/@]*:[^/@]*@", "", file.partition("?")[0])
    return os.path.realpath(unquote(urlsplit(file).path) if "://" in file else file)


def _state(place: str, key: bytes, digests: dict[FileState, str]) -> FileState:
    try:
        status = os.stat(place)
        state = FileState(place, status.st_dev, status.st_ino)
        if not stat.S_ISREG(status.st_mode):  # a folder, whose files come beside it
            return state
        state = replace(state, size=status.st_size, modified=status.st_mtime_ns, changed=status.st_ctime_ns)
        return replace(state, digest=digests.get(_without_digest(state)) or _digest(place, key))
    except (OSError, ValueError):  # at a store, or gone since it was read
        return FileState(place)


def _without_digest(state: FileState) -> FileState:
    """By which a digest is found again: under whatever name."""
    return replace(state, path="", digest="")


def _digest(place: str, key: bytes) -> str:
    """Keyed: whoever guesses what a file holds cannot try it against what is kept here without the key."""
    digest = hashlib.blake2b(key=key, digest_size=32)
    with open(place, "rb") as file:
        while part := file.read(PART):
            digest.update(part)
    return digest.hexdigest()
