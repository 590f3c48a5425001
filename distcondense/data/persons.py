"""Which rows are for what: a split of the table by persons, made again from a few recorded facts.

`HoldoutSplit`: each person is held out by a coin of their own, made of a secret and their identifier, so that who else
is in the table, and where, changes nobody's part. Rows without identifiers are told apart by what stands in them: the
coin of the k-th of equal rows is made of the secret, that content and k, so that one row more is one coin more. Rows,
persons and texts are told apart by hashes keyed with the same secret, so that nobody can choose two that share one.
`Stratified`: 70/10/20 by outcome, seeded (Thakur et al. 2026); it looks at all outcomes at once.
`NestedSplit`: test persons that whoever called a method kept from it, by coins; the method split the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
PERSON, TEXT = 2, 3  # words of 64 bits: of whoever has rows, and of unlisted values, of which a table has many columns


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
    """A share of the persons is held out as test rows, each by a coin made of the secret `entropy`.

    The secret also keys the hashes by which rows, persons and texts are told apart: whoever chooses rows must not know
    it. It is in no `repr`.
    """

    share: float
    entropy: int = field(repr=False)

    def split(self, cohort: Cohort) -> Split:
        """The rows of those who are not held out for training, the others' for testing."""
        held_out = self._uniforms_of_rows(cohort) < self.share if self.share > 0 else np.zeros(len(cohort), np.bool_)
        return Split(np.flatnonzero(~held_out), np.empty(0, np.int64), np.flatnonzero(held_out))

    def held_out(self, first: Marks, second: Marks) -> Flags:
        """(n,) whose coin says so: of persons by both halves of their digest, of rows `numbered`."""
        return self.uniforms(first, second) < self.share

    def uniforms(self, first: Marks, second: Marks, what: str = "") -> Floats:
        """Uniforms in [0, 1) of the secret and two words."""
        out, (key0, key1) = np.empty(len(first)), self.key(what)
        kernels.keyed_uniforms(np.ascontiguousarray(first), np.ascontiguousarray(second), key0, key1, out)
        return out

    def key(self, what: str) -> Marks:
        """(2,) words made of the secret, others for each purpose."""
        return np.frombuffer(hashlib.sha256(f"{self.entropy}{what}".encode()).digest()[:16], np.uint64)

    def digests(self, texts: Iterable[str], words: int) -> Marks:
        """(k, words) keyed hash of each text."""
        key, size = self.key(" texts").tobytes(), 8 * words
        hashes = [
            hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size, key=key).digest() for text in texts
        ]
        return np.frombuffer(b"".join(hashes), np.uint64).reshape(-1, words)

    def parts(self, cohort: Cohort, count: int) -> Index:
        """(n,) one of `count` parts for each row: by a second coin of the same person, or of the row."""
        return np.minimum((self._uniforms_of_rows(cohort, " parts") * count).astype(np.int64), count - 1)

    def _uniforms_of_rows(self, cohort: Cohort, what: str = "") -> Floats:
        """(n,) each row's uniform: that of its person, or of its own content where rows name nobody."""
        if cohort.person is None:
            mark = marks_of(cohort, self)
            return self.uniforms(*numbered(mark, Ranks(len(mark))), what)
        first, second = self.digests(_identifiers(cohort), PERSON).T
        return self.uniforms(first, second, what)[cohort.person]

    def to_dict(self) -> dict[str, Any]:
        return {"by": "coins", "share": self.share, "entropy": str(self.entropy)}


# -- marks: rows and persons by what they are, not by where they stand ------------------------------------------------


def marks_of(cohort: Cohort, coins: HoldoutSplit) -> Marks:
    """(n, 2) 128 bits of each row's features and outcome, from its own values, the schema and the secret alone."""
    rows = RowHash(len(cohort), coins)
    for column in cohort.schema.columns:
        rows.add_column(column, cohort.features[column.name])
    rows.add_outcome(cohort.outcome.arrays)
    return rows.marks()


class RowHash:
    """A hash of each of so many rows, keyed with the secret: column after column is added, then marks are read off."""

    def __init__(self, rows: int, coins: HoldoutSplit) -> None:
        self.coins, self.words = coins, 0
        self._state = np.empty((4, rows), np.uint64)
        key0, key1 = coins.key(" marks")
        kernels.begin(key0, key1, self._state)

    def add_column(self, column: Column, values: pd.Series[Any]) -> None:
        """One more column, as `check_features` left it."""
        if column.numeric:
            self.add_numbers(values.to_numpy(dtype=np.float64, na_value=np.nan))
        else:
            self.add_words(words_of(column, values, self.coins))

    def add_words(self, words: Marks) -> None:
        """(n, k) words of each row."""
        for word in words.T:
            kernels.fold(np.ascontiguousarray(word), self._state)
        self.words += words.shape[1]

    def add_numbers(self, values: Floats) -> None:
        kernels.fold_numbers(np.ascontiguousarray(values, np.float64).view(np.uint64), self._state)
        self.words += 1

    def add_listed(self, values: NDArray[Any], low: int, codes: NDArray[Any], words: Marks, out: NDArray[Any]) -> None:
        """Whole numbers from `low` on, by the word of each; out ← the code of each."""
        kernels.fold_listed(values, low, codes, words, out, self._state)
        self.words += 1

    def add_outcome(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for name in sorted(arrays):
            self.add_numbers(np.asarray(arrays[name], np.float64))

    def marks(self) -> Marks:
        mark = np.empty((self._state.shape[1], 2), np.uint64)
        kernels.finish(self.words, self._state, mark)
        return mark


def words_of(column: Column, values: pd.Series[Any], coins: HoldoutSplit) -> Marks:
    """(n, k) words that each label adds to a hash: its place in the schema's list; unlisted ones go by their text."""
    codes = np.asarray(values.cat.codes, np.int64)
    if column.unknown:  # their list depends on other rows
        return texts_of(values, coins)[codes]
    return codes.view(np.uint64).reshape(-1, 1)


def texts_of(values: pd.Series[Any], coins: HoldoutSplit) -> Marks:
    """(categories + 1, TEXT) keyed hash of the text of each category, and zeros for a hole behind them."""
    return np.concatenate([coins.digests(values.cat.categories, TEXT), np.zeros((1, TEXT), np.uint64)])


class Ranks:
    """Numbers equal marks off, 0, 1, 2, …, also over several calls: `rows` marks in all, at most."""

    def __init__(self, rows: int) -> None:
        places = 1 << max(4, int(2 * rows).bit_length())
        self._keys, self._counts = np.zeros((places, 2), np.uint64), np.zeros(places, np.uint32)

    def count(self, mark: Marks) -> Marks:
        """(n,) how many equal marks stood before each."""
        rank = np.empty(len(mark), np.uint64)
        kernels.occurrence_ranks(np.ascontiguousarray(mark), self._keys, self._counts, rank)
        return rank


def numbered(mark: Marks, ranks: Ranks) -> tuple[Marks, Marks]:
    """Two words of which a row's coin is made: its content, and how many equal rows were met before it."""
    return mark[:, 0], mark[:, 1] + ranks.count(mark)


def reading_order(cohort: Cohort, coins: HoldoutSplit) -> Marks | None:
    """(n,) by which a person's rows are taken where they have more than are read: a hash of who and what, not where."""
    if cohort.person is None:
        return None
    return ordered(marks_of(cohort, coins)[:, 0], coins.digests(_identifiers(cohort), PERSON)[cohort.person, 0])


def ordered(mark: Marks, who: Marks) -> Marks:
    """(n,) of the first halves of both: by person, so that no content comes first with everybody."""
    return mark ^ who


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
