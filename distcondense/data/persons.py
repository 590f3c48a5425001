"""Which rows are for what: a split of the table by persons, made again from a few recorded facts.

`Coins`: each person is left out by a coin of their own, made of a secret and their identifier, so that who else is in
the table changes nobody's part. Rows without identifiers have no name: their coins go by place in the table, which is
as good a draw, but another one where a row is added before them.
`Stratified`: 70/10/20 by outcome, seeded (paper 000); it looks at all outcomes at once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from distcondense.arrays import Index
from distcondense.errors import CohortError, SettingsError

if TYPE_CHECKING:
    from distcondense.data.cohort import Cohort

FRACTIONS = (0.7, 0.1, 0.2)


@dataclass(frozen=True)
class Split:
    """Row numbers of the three parts."""

    train: Index
    validation: Index
    test: Index

    @property
    def choosing(self) -> Index:
        """Rows to choose a threshold on: validation, or the training rows where nothing was set apart for that."""
        return self.validation if len(self.validation) else self.train


@dataclass(frozen=True)
class Coins:
    """A share of the persons is left out. Runs of earlier versions drew by place in the table: `keyed` is False."""

    share: float
    entropy: int
    keyed: bool = True

    def of(self, cohort: Cohort) -> Split:
        person = np.arange(len(cohort)) if cohort.person is None else cohort.person
        if self.keyed and cohort.person is not None:
            known = cohort.identifiers or map(str, range(int(person.max()) + 1))
            secret = hashlib.sha256(str(self.entropy).encode()).digest()
            uniform = np.array([_uniform(secret, identifier) for identifier in known])
        else:
            uniform = np.random.default_rng(self.entropy).random(int(person.max()) + 1)
        out = (uniform < self.share)[person]
        return Split(np.flatnonzero(~out), np.empty(0, np.int64), np.flatnonzero(out))

    def to_dict(self) -> dict[str, Any]:
        return {"by": "coins", "share": self.share, "entropy": str(self.entropy), "keyed": self.keyed}


def _uniform(secret: bytes, identifier: str) -> float:
    """In [0, 1), from the secret and the person's own text."""
    drawn = hashlib.blake2b(identifier.encode("utf-8", "surrogatepass"), key=secret, digest_size=8).digest()
    return (int.from_bytes(drawn) >> 11) / 2**53


@dataclass(frozen=True)
class Stratified:
    """Train, validation and test, stratified by outcome; rows of one person stay together."""

    seed: int
    fractions: tuple[float, float, float] = FRACTIONS

    def of(self, cohort: Cohort) -> Split:
        if min(self.fractions) <= 0 or abs(sum(self.fractions) - 1) > 1e-9:
            raise SettingsError("split fractions", "must be positive and sum to 1", found=str(self.fractions))
        outcome = cohort.outcome
        outcome.kind.check(outcome)
        rng = np.random.default_rng([self.seed, 0x5917])
        person = np.arange(len(cohort)) if cohort.person is None else cohort.person
        who = np.unique(person)
        stratum = np.zeros(who.max() + 1, np.int64)
        np.maximum.at(stratum, person, outcome.kind.strata(outcome))  # a person with any event is in its stratum
        part = np.empty(who.max() + 1, np.int8)
        for value in np.unique(stratum[who]):
            members = rng.permutation(who[stratum[who] == value])
            first, second = np.round(np.cumsum(self.fractions[:2]) * len(members)).astype(int)
            part[members[:first]], part[members[first:second]], part[members[second:]] = 0, 1, 2
        of_row = part[person]
        split = Split(*(np.flatnonzero(of_row == k) for k in range(3)))
        for name in ("train", "validation", "test"):
            if need := outcome.kind.lacking(outcome.take(getattr(split, name))):
                raise CohortError(
                    "table", f"the {name} part needs {need}", found=f"{len(outcome)} rows in all",
                    fix="give more rows: a split of 70/10/20 leaves too few here",
                )  # fmt: skip
        return split

    def to_dict(self) -> dict[str, Any]:
        return {"by": "strata", "seed": self.seed, "fractions": list(self.fractions)}


def split_from(record: dict[str, Any]) -> Coins | Stratified:
    """The way of splitting that a run's record names."""
    if record["by"] == "coins":
        return Coins(float(record["share"]), int(record["entropy"]), record.get("keyed", False))
    return Stratified(int(record["seed"]), tuple(record["fractions"]))
