"""What cells have read of each set of patients, all of them together, with the words for which guarantee its ε is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from distcondense.privacy.accountant import together, unite
from distcondense.privacy.events import Event
from distcondense.privacy.statement import rounded_up
from distcondense.runs.folder import RunFolder
from distcondense.study.folder import StudyFolder, read_json

DELTA = 1e-5  # of the ε of all cells together


def account_words(folder: StudyFolder) -> dict[str, tuple[int, str]]:
    """Per set of patients, by its tables' names: how many cells read them through the gate, and the ε of all, in words.

    Cells of earlier versions of the study file and unfinished ones count: their patients were read all the same. Tables
    of one content have the same patients under several names; one name with several contents has versions of them.
    """
    return {group.title: (len(group.gated), group.words) for group in groups_of(accounts(folder).values())}


def accounts(folder: StudyFolder) -> dict[str, PatientAccount]:
    """What each cell that lies in the folder has read, by the name of its folder."""
    by_cell = {}
    for path in sorted(folder.definitions.glob("*.json")):
        definition, run = read_json(path), RunFolder(folder.cells / path.stem)
        if events := unite(run.earlier_events(), run.read_here()):
            conditional = "epsilon_conditional" in definition["cell"]
            by_cell[path.stem] = PatientAccount({definition["data"]}, {definition["patients"]}, [events], conditional)
    return by_cell


def groups_of(accounts: Iterable[PatientAccount]) -> list[PatientAccount]:
    """One for each set of patients."""
    groups: list[PatientAccount] = []
    for account in accounts:
        same = [group for group in groups if group.shares(account)]
        groups = [group for group in groups if not group.shares(account)]
        groups.append(
            PatientAccount(
                account.names.union(*(group.names for group in same)),
                account.contents.union(*(group.contents for group in same)),
                [*(events for group in same for events in group.accounts), *account.accounts],
                account.conditional or any(group.conditional for group in same),
            )
        )
    return groups


@dataclass(frozen=True)
class PatientAccount:
    """What cells read of one set of patients."""

    names: set[str]  # of tables
    contents: set[str]  # digests of their files
    accounts: list[tuple[Event, ...]]  # one for each cell
    conditional: bool

    def shares(self, other: PatientAccount) -> bool:
        """Whether both read the same patients, or versions of them."""
        return bool(self.names & other.names or self.contents & other.contents)

    @property
    def title(self) -> str:
        versions = f" ({len(self.contents)} versions of the file)" if len(self.contents) > 1 else ""
        return f"{', '.join(sorted(self.names))}{versions}"

    @property
    def gated(self) -> list[tuple[Event, ...]]:
        return [events for events in self.accounts if all(event.kind != "nonprivate" for event in events)]

    @property
    def words(self) -> str:
        bare = len(self.accounts) - len(self.gated)
        without = f"{bare} read them without a gate, which no ε bounds" if bare else ""
        if not self.gated:
            return without
        total = together(unite(*self.gated), DELTA)
        guarantee = "conditional" if self.conditional else "end-to-end"
        if total == "different units":
            words = "without a common bound, because some protect rows and some persons"
        else:
            epsilon = total if isinstance(total, float) else math.inf
            words = f"ε = {rounded_up(epsilon, 3)} ({guarantee}, δ = {DELTA:g})"
        return f"{words}; and {without}" if without else words
