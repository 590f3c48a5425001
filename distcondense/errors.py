"""One tree of errors and warnings.

Every error a user can cause is a `UserError` and has four parts: what (the thing named), the rule it breaks, what was
found, and how to fix it. The command line prints it without a traceback and exits with 2. None of the four parts may
hold a patient's value: say the column, the count of rows, the first line number, never the cell. What the operating
system refuses becomes such an error in one place, `os_errors`.
"""

from __future__ import annotations

import errno
import numbers
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class DistcondenseError(Exception):
    """Anything this package raises on purpose."""


class UserError(DistcondenseError, ValueError):
    """The caller's mistake, said in one message: what · rule · found · fix."""

    def __init__(self, what: str, rule: str, *, found: str = "", fix: str = "") -> None:
        self.what, self.rule, self.found, self.fix = what, rule, found, fix
        text = f"{what}: {rule.rstrip('.')}."
        if found:
            text += f" Found {found.rstrip('.')}."
        if fix:
            text += f" Fix: {fix.rstrip('.')}."
        super().__init__(text)

    def __reduce__(self) -> tuple[Any, ...]:  # errors travel back from workers
        return _again, (type(self), self.what, self.rule, self.found, self.fix)


def _again(kind: type[UserError], what: str, rule: str, found: str, fix: str) -> UserError:
    return kind(what, rule, found=found, fix=fix)


class SchemaError(UserError):
    """The schema is not a legal description of a table."""


class CohortError(UserError):
    """The table does not fit its schema, or cannot be condensed."""


class SettingsError(UserError):
    """A setting outside its range, or two that contradict each other."""


class ModelError(UserError):
    """A reference model that cannot be used."""


class RunFolderError(UserError):
    """The run folder is finished, belongs to other settings, or cannot be written."""


class BudgetError(UserError):
    """The privacy budget does not pay for what was asked."""


class ClusterError(UserError):
    """A cluster that cannot be reached, does not fit this program, or keeps losing its workers."""


class DistcondenseWarning(UserWarning):
    """Something was changed, dropped or doubted, and the user should know."""


def need(value: Any, kinds: Any, what: str, words: str, fix: str = "") -> None:
    """Refuse an argument of another type: by its type's name, never by what it holds."""
    if not isinstance(value, kinds) or type(value).__name__ == "timedelta64":  # which NumPy takes for a whole number
        raise SettingsError(what, f"must be {words}", found=f"a {type(value).__name__}", fix=fix or "see help()")


def whole(value: Any, what: str, low: int, high: int = 2**31 - 1) -> int:
    """A whole number of any library within these bounds, as Python's; anything else is refused."""
    need(value, numbers.Integral, what, "a whole number")
    if not low <= value <= high:
        rule = f"must be at least {low}" if value < low else f"must be at most {high:,}"
        raise SettingsError(what, rule, found=brief(value), fix="leave it out for the default")
    return int(value)


MOST_THREADS = 4096
UNANSWERED = "waits for a store"  # name of a thread that nothing can interrupt: whoever leaves must not wait for it

# -- what the operating system says -----------------------------------------------------------------------------------

_ROOM = "make room, then go on with the same command and --resume: what is finished is kept"
_NO_ANSWER = ("a disk or network folder that does not answer", "mount it again, then go on with --resume")
_SAID: dict[int, tuple[str, str]] = {  # errno → found, fix
    errno.EACCES: ("no permission", "ask for the right to it, or say another path"),
    errno.EPERM: ("no permission", "ask for the right to it, or say another path"),
    errno.EROFS: ("a disk that is read-only", "say another path"),
    errno.ENOSPC: ("no space left on the disk", _ROOM),
    errno.EDQUOT: ("no space left in your quota", _ROOM),
    errno.EFBIG: ("a limit on the size of files", _ROOM),
    errno.ENOENT: ("no such file or folder", "check the path; folders in front of it must exist"),
    errno.ENOTDIR: ("a file where a folder must be", "check the path"),
    errno.EISDIR: ("a folder where a file must be", "name the file, not its folder"),
    errno.EEXIST: ("something of that name already", "say another path"),
    errno.ENOTEMPTY: ("a folder that is not empty", "say another path"),
    errno.ENAMETOOLONG: ("a name that is too long for the disk", "say a shorter path"),
    errno.ELOOP: ("a link that leads back to itself", "say the path of the file itself"),
    errno.EMFILE: ("too many open files", "raise the limit (ulimit -n)"),
    errno.ENFILE: ("too many open files", "close other programs"),
    errno.ENXIO: ("no regular file", "name a file"),
    errno.ENODEV: ("no regular file", "name a file"),
    errno.EBUSY: ("a file that is in use", "close what uses it, then try again"),
    **dict.fromkeys((errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH,
                     errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNRESET, errno.ECONNREFUSED), _NO_ANSWER),
}  # fmt: skip
_NUL = re.compile("embedded nul", re.IGNORECASE)  # Python: null byte, Arrow: NUL char in path
_LONGEST_NAME = 120


@contextmanager
def os_errors(
    what: str, rule: str = "must be readable and writable", kind: type[UserError] = UserError
) -> Iterator[None]:
    """What the operating system refuses in here becomes the caller's mistake, said in four parts."""
    try:
        yield
    except OSError as error:
        refuse_os(error, what, rule, kind)
    except UnicodeEncodeError as error:
        if error.reason != "surrogates not allowed":
            raise
        raise kind(brief(what), rule, found="a name that no disk can hold", fix="check the path") from None
    except ValueError as error:
        if isinstance(error, UserError) or not _NUL.search(str(error)):
            raise
        raise kind(brief(what), rule, found="a name with a NUL in it", fix="check the path") from None


def refuse_os(error: OSError, what: str, rule: str, kind: type[UserError] = UserError) -> NoReturn:
    """Raise it in our words. Its own would name the file again, or quote what a reader had in hand."""
    found, fix = _SAID.get(error.errno or 0, (type(error).__name__, "check the path and its disk, then try again"))
    raise kind(brief(what), rule, found=found, fix=fix) from None


def may(path: str | os.PathLike[str], mode: int) -> bool:
    """Whether this process may read, write or enter it, as what it acts as now."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def brief(text: object) -> str:
    """A name from outside as messages show it: printable, and cut where it is long."""
    try:
        printable = str(text).encode("utf-8", "backslashreplace").decode()
    except ValueError:  # Python writes no more than 4,300 digits
        return "a number of thousands of digits"
    return (
        printable
        if len(printable) <= _LONGEST_NAME
        else f"{printable[: _LONGEST_NAME - 20]}… ({len(printable)} characters)"
    )
