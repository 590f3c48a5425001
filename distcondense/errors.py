"""One tree of errors and warnings.

Every error a user can cause is a `UserError` and has four parts: what (the thing named), the rule it breaks, what was
found, and how to fix it. The command line prints it without a traceback and exits with 2. None of the four parts may
hold a patient's value: say the column, the count of rows, the first line number, never the cell.
"""

from __future__ import annotations

from typing import Any


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
