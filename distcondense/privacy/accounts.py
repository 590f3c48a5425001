"""The account that is kept where nobody named one: that of a table, by its path, in the custodian's state folder.

`$DISTCONDENSE_STATE` is that folder, or `off`; if not set, `$XDG_STATE_HOME/distcondense`, else
`~/.local/state/distcondense`. It goes by the file's path: a table that was changed in place is the same patients, a
copy under another name is not known to be. Whoever wants more names an account (`--odometer`), which copies share too.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from distcondense.errors import RunFolderError
from distcondense.privacy.odometer import Odometer

STATE, OFF = "DISTCONDENSE_STATE", "off"


def state_folder() -> Path | None:
    """Where the accounts of tables are kept; None where that is switched off."""
    folder = os.environ.get(STATE, "")
    if folder:
        return None if folder == OFF else Path(folder)
    home = os.environ.get("XDG_STATE_HOME", "")
    return (Path(home) if home else Path.home() / ".local" / "state") / "distcondense"


def account_of_table(table: str | Path) -> Odometer | None:
    """The account of the table at this path, begun where there is none; None where none can be kept."""
    folder = state_folder()
    if folder is None:
        return None
    place = os.path.realpath(table)
    if "://" in str(table):  # without options, and without whose key it is read with
        place = re.sub(r"(?<=://)[^/@]*:[^/@]*@", "", str(table).partition("?")[0])
    name = f"{Path(place).name}-{hashlib.sha256(place.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.jsonl"
    path = folder / "accounts" / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return Odometer.create(path, about=Path(place).name)
    except (OSError, RunFolderError):  # another process may have begun it, or nothing can be written here
        if not path.exists():
            return None
    return Odometer(path)


def earlier_spending(odometer: Odometer) -> str:
    """What earlier runs on the same table were charged, in words; empty where there were none."""
    account = odometer.read()
    return account.meaning() if account.charges else ""
