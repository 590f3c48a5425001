"""Which rows are for what: a split of the table by persons, made again from a few recorded facts.

`HoldoutSplit`: each person is held out by a coin of their own, made of a secret and their identifier, so that who else
is in the table, and where, changes nobody's part. Rows without identifiers are told apart by what stands in them: the
coin of the k-th of equal rows is made of the secret, that content and k, so that one row more is one coin more.
`Stratified`: 70/10/20 by outcome, seeded (Thakur et al. 2026); it looks at all outcomes at once.
`NestedSplit`: test persons that whoever called a method kept from it, by coins; the method split the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Flags, Floats, Index, Marks
from distcondense.errors import CohortError, SettingsError
from distcondense.kernels import hashing as kernels

if TYPE_CHECKING:
    import pandas as pd

    from distcondense.data.cohort import Cohort
    from distcondense.data.schema import Column

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
class HoldoutSplit:
    """A share of the persons is held out as test rows, each by a coin made of the secret `entropy`."""

    share: float
    entropy: int

    def split(self, cohort: Cohort) -> Split:
        """The rows of those who are not held out for training, the others' for testing."""
        held_out = self._uniforms_of_rows(cohort) < self.share
        return Split(np.flatnonzero(~held_out), np.empty(0, np.int64), np.flatnonzero(held_out))

    def held_out(self, first: Marks, second: Marks) -> Flags:
        """(n,) whose coin says so: of persons by both halves of their digest, of rows `numbered`."""
        return self.uniforms(first, second) < self.share

    def uniforms(self, first: Marks, second: Marks, what: str = "") -> Floats:
        """Uniforms in [0, 1) of the secret and two words."""
        secret = hashlib.sha256(f"{self.entropy}{what}".encode()).digest()
        keys = np.frombuffer(secret[:16], np.uint64)
        out = np.empty(len(first))
        kernels.keyed_uniforms(np.ascontiguousarray(first), np.ascontiguousarray(second), keys[0], keys[1], out)
        return out

    def parts(self, cohort: Cohort, count: int) -> Index:
        """(n,) one of `count` parts for each row: by a second coin of the same person, or of the row."""
        return np.minimum((self._uniforms_of_rows(cohort, " parts") * count).astype(np.int64), count - 1)

    def _uniforms_of_rows(self, cohort: Cohort, what: str = "") -> Floats:
        """(n,) each row's uniform: that of its person, or of its own content where rows name nobody."""
        if cohort.person is None:
            mark = marks_of(cohort)
            return self.uniforms(*numbered(mark, Ranks(len(mark))), what)
        first, second = digests(_identifiers(cohort)).T
        return self.uniforms(first, second, what)[cohort.person]

    def to_dict(self) -> dict[str, Any]:
        return {"by": "coins", "share": self.share, "entropy": str(self.entropy)}


# -- marks: rows and persons by what they are, not by where they stand ------------------------------------------------


def marks_of(cohort: Cohort) -> Marks:
    """(n, 2) 128 bits of each row's features and outcome, from its own values and the schema alone."""
    mark = no_marks(len(cohort))
    for column in cohort.schema.columns:
        mark_column(mark, column, cohort.features[column.name])
    mark_outcome(mark, cohort.outcome.arrays)
    return mark


def no_marks(rows: int) -> Marks:
    """Marks of rows of which nothing is known yet."""
    return np.zeros((rows, 2), np.uint64)


def mark_column(mark: Marks, column: Column, values: pd.Series[Any]) -> None:
    """One more column of the marks, as `check_features` left it."""
    if column.numeric:
        mark_numbers(mark, values.to_numpy(dtype=np.float64, na_value=np.nan))
        return
    kernels.fold(words_of(column, values), mark)


def words_of(column: Column, values: pd.Series[Any]) -> Marks:
    """(n,) the word that each label adds to a mark: its place in the schema's list; unlisted ones go by their text."""
    codes = np.asarray(values.cat.codes, np.int64)
    if column.unknown:  # their list depends on other rows
        return np.append(digests(values.cat.categories)[:, 0], np.uint64(0))[codes]
    return codes.view(np.uint64)


def mark_numbers(mark: Marks, values: Floats) -> None:
    kernels.fold_numbers(np.ascontiguousarray(values, np.float64).view(np.uint64), mark)


def mark_outcome(mark: Marks, arrays: Mapping[str, NDArray[Any]]) -> None:
    for name in sorted(arrays):
        mark_numbers(mark, np.asarray(arrays[name], np.float64))


def digests(texts: Iterable[str]) -> Marks:
    """(k, 2) 128 bits of each text: no two of any number of persons have the same."""
    hashes = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
    return np.frombuffer(b"".join(hashes), np.uint64).reshape(-1, 2)


class Ranks:
    """Numbers equal marks off, 0, 1, 2, …, also over several calls: `rows` marks in all, at most."""

    def __init__(self, rows: int) -> None:
        places = 1 << max(4, int(2 * rows).bit_length())
        self._keys, self._counts = no_marks(places), np.zeros(places, np.uint32)

    def count(self, mark: Marks) -> Marks:
        """(n,) how many equal marks stood before each."""
        rank = np.empty(len(mark), np.uint64)
        kernels.occurrence_ranks(np.ascontiguousarray(mark), self._keys, self._counts, rank)
        return rank


def numbered(mark: Marks, ranks: Ranks) -> tuple[Marks, Marks]:
    """Two words of which a row's coin is made: its content, and how many equal rows were met before it."""
    return mark[:, 0], mark[:, 1] + ranks.count(mark)


def reading_order(cohort: Cohort) -> Marks | None:
    """(n,) by which a person's rows are taken where they have more than are read: a hash of who and what, not where."""
    if cohort.person is None:
        return None
    return ordered(marks_of(cohort)[:, 0], digests(_identifiers(cohort))[cohort.person, 0])


def ordered(mark: Marks, who: Marks) -> Marks:
    """(n,) of the first halves of both: by person, so that no content comes first with everybody."""
    both = np.stack([who, who], axis=1)
    kernels.fold(np.ascontiguousarray(mark), both)
    return both[:, 0]


def _identifiers(cohort: Cohort) -> Sequence[str]:
    assert cohort.person is not None
    return cohort.identifiers or [str(code) for code in range(int(cohort.person.max(initial=-1)) + 1)]


@dataclass(frozen=True)
class Stratified:
    """Train, validation and test, stratified by outcome; rows of one person stay together."""

    seed: int
    fractions: tuple[float, float, float] = FRACTIONS

    def split(self, cohort: Cohort) -> Split:
        if min(self.fractions[:2]) <= 0 or self.fractions[2] < 0 or abs(sum(self.fractions) - 1) > 1e-9:
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
        for name in ("train", "validation", *(["test"] if self.fractions[2] else [])):
            if need := outcome.kind.lacking(outcome.take(getattr(split, name))):
                raise CohortError(
                    "table",
                    f"the {name} part needs {need}",
                    found=f"{len(outcome)} rows in all",
                    fix="give more rows: a split of 70/10/20 leaves too few here",
                )
        return split

    def to_dict(self) -> dict[str, Any]:
        return {"by": "strata", "seed": self.seed, "fractions": list(self.fractions)}


@dataclass(frozen=True)
class NestedSplit:
    """Test persons whom a method never saw: coins chose them before it began. What it left out itself is not used."""

    test: HoldoutSplit
    rest: Splitting  # how the method split the rows that it was given

    def split(self, cohort: Cohort) -> Split:
        given = self.test.split(cohort)
        own = self.rest.split(cohort.take(given.train))
        return Split(given.train[own.train], given.train[own.validation], given.test)

    def to_dict(self) -> dict[str, Any]:
        return {"by": "apart", "test": self.test.to_dict(), "rest": self.rest.to_dict()}


Splitting = HoldoutSplit | Stratified | NestedSplit


def split_from(record: dict[str, Any]) -> Splitting:
    """The splitting that a run's record names, as its `to_dict` wrote it."""
    if record["by"] == "apart":
        test = split_from(record["test"])
        assert isinstance(test, HoldoutSplit)
        return NestedSplit(test, split_from(record["rest"]))
    if record["by"] == "coins":
        return HoldoutSplit(float(record["share"]), int(record["entropy"]))
    return Stratified(int(record["seed"]), tuple(record["fractions"]))
