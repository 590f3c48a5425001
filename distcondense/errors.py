"""One tree of errors and warnings.

Every error a user can cause is a `UserError` and has four parts: what (the thing named), the rule it breaks, what was
found, and how to fix it. The command line prints it without a traceback and exits with 2. None of the four parts may
hold a patient's value: say the column, the count of rows, the first line number, never the cell. What the operating
system refuses becomes such an error in one place, `os_errors`.

Texts name a setting as the command line has it (`--epsilon 2`). Whoever reads them in Python reads Python's words for
it (`epsilon=2`): they are said at the door, `in_words`, as an error or a warning is shown.
"""

from __future__ import annotations

import errno
import numbers
import os
import re
import signal
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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

    def __str__(self) -> str:
        return in_words(super().__str__())

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


class SystemCallError(UserError):
    """The operating system refused a call of a library, about no file of the run: its folder and log are kept."""


class Stopped(KeyboardInterrupt):
    """SIGTERM: like Ctrl-C, nothing is lost. It says which signal it was."""


class DistcondenseWarning(UserWarning):
    """Something was changed, dropped or doubted, and the user should know."""

    def __str__(self) -> str:
        return in_words(super().__str__())


# -- the two doors ----------------------------------------------------------------------------------------------------

_DOOR = {"command line": False}  # whether whoever is spoken to typed a command; of this process
_OPTION = re.compile(  # a value ends its clause, or stands before one of these words
    r"(?<![\w-])--(?P<name>[a-z][a-z0-9-]*)"
    r"(?:[ =](?P<value>[.,](?= )|\w(?:[\w.=-]*\w)?(?=$|[.,;:)]|\n| [(]| (?:or|and|has|on) )))?"
)
_SHELL = re.compile(r"\b(distcondense|ray|python -m|attack RUN) ?[^,;:]*$")  # a whole command stays one
SWITCHES = frozenset(  # options without a value: said in Python as true, or as false where they begin with no-
    [
        "create",
        "early-stopping",
        "force",
        "json",
        "no-noise",
        "noise",
        "plan",
        "quiet",
        "require-account",
        "resume",
        "soft",
        "wait",
        "trust-inferred-schema",
        "yes",
    ]
)
LISTS = {"categories-checked": "categories_checked", "ignore": "ignore", "missing-marker": "missing_markers"}
_COMMANDS = {  # what is another call in Python
    "distcondense init TABLE": "schema = dc.Schema.draft(table, target=…); schema = schema.confirm(by=YOUR_NAME)"
}


@contextmanager
def at_the_command_line() -> Iterator[None]:
    """In here errors and warnings speak of options."""
    before = _DOOR["command line"]
    _DOOR["command line"] = True
    try:
        yield
    finally:
        _DOOR["command line"] = before


def is_command() -> bool:
    """Whether this process is a command that somebody typed."""
    return _DOOR["command line"]


def in_words(text: str) -> str:
    """A text as the reader of this process types settings: options of a command, or arguments of a call."""
    if _DOOR["command line"]:
        return text
    for command, call in _COMMANDS.items():
        text = text.replace(command, call)
    return _OPTION.sub(_argument, text)


def _argument(found: re.Match[str]) -> str:
    name, value = found["name"], found["value"]
    if _SHELL.search(found.string[: found.start()]):
        return found[0]
    if name in SWITCHES:
        after = found[0].removeprefix(f"--{name}")
        return f"{name.removeprefix('no-').replace('-', '_')}={not name.startswith('no-')}{after}"
    argument = LISTS.get(name, name.replace("-", "_"))
    if value is None:
        return argument
    plain = value.isupper() or re.fullmatch(r"[0-9.]*[0-9]", value)  # a placeholder, a number
    typed = value if plain else f'"{value}"'
    return f"{argument}=[{typed}]" if name in LISTS else f"{argument}={typed}"


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
_OF_THE_DISK = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EMFILE, errno.ENFILE}
    | {number for number, said in _SAID.items() if said is _NO_ANSWER}
)
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


@contextmanager
def kept_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Warnings of the `with`, each shown at once by the rules of whoever is outside, and kept in the list."""
    kept: list[warnings.WarningMessage] = []
    rules, show = warnings.filters[:], warnings.showwarning

    def keep(message: Any, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any) -> None:
        kept.append(warnings.WarningMessage(message, category, filename, lineno))
        with warnings.catch_warnings():
            warnings.filters[:], warnings.showwarning = rules, show  # type: ignore[index]
            warnings.warn_explicit(message, category, filename, lineno)

    with warnings.catch_warnings():
        warnings.simplefilter("always", DistcondenseWarning)
        warnings.showwarning = keep
        yield kept


@contextmanager
def library_calls(folder: Path | None) -> Iterator[None]:
    """What the operating system refuses a library in here, about no file in this folder, is told by the call's name.

    Full disks and limits are the folder's, whoever meets them first.
    """
    try:
        yield
    except OSError as error:
        named = os.fspath(error.filename) if isinstance(error.filename, str | os.PathLike) else None
        ours = folder is not None and named is not None and os.path.abspath(named).startswith(str(folder.absolute()))
        if ours or error.errno in _OF_THE_DISK:
            raise
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        home = frames[-1].f_globals.get("__name__", "") if frames else ""
        if not home or home.split(".")[0] == "distcondense":
            raise
        raise SystemCallError(
            f"the call {home}.{frames[-1].f_code.co_qualname}",
            "must be one that the operating system allows",
            found=_SAID.get(error.errno or 0, (type(error).__name__, ""))[0],
            fix="see that the working directory and temporary folders are still there; the run folder and its log are "
            "kept, the same command with --resume goes on",
        ) from None


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM ends the `with` as Ctrl-C does, instead of the process at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough: what follows is tidying up
        raise Stopped(signal.Signals(number).name)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


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
