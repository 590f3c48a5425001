"""`LargeTable`: a table that is read in batches and never held: a Parquet, Arrow or CSV file, or a folder of one kind.

What is wrong with its files is found before a row is read where their own headers tell (names and types of columns);
what is wrong with rows is said by the checks of `Cohort`, batch by batch, with the file's name. A batch is read by
itself, which a declared schema makes possible. Evaluation sees a sample of people (or of rows that name nobody), by a
hash of the run's secret; who is held out of the table is held out of the sample.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from distcondense.data.coding import Coded, Coder, is_plain
from distcondense.data.cohort import Cohort, Facts, checked_roles
from distcondense.data.files import Piece, arrow_batches, csv_parts, files_of, format_of, pieces_of, shape_of
from distcondense.data.names import Names
from distcondense.data.outcome import Goal
from distcondense.data.persons import PERSON, HoldoutSplit
from distcondense.data.roles import ROLES
from distcondense.data.tables import as_frame, is_csv, is_uri, table_name
from distcondense.errors import CohortError, DistcondenseWarning, SchemaError, need

SAMPLE = 200_000  # rows that evaluation sees, about
_OF_CSV = ("missing_markers", "separator", "encoding", "decimal")  # how a CSV is read


@dataclass(frozen=True, repr=False)
class Batch:
    """Some rows of a file."""

    coded: Coded
    some: Callable[[Any], Any]  # which of them → these as they are: an Arrow table or a Cohort
    file: str
    first: int  # the first row's number in the file, from 0


@dataclass(repr=False)
class LargeTable:
    """A table on disk or at a URI that is read in batches and never held, and how it is to be read.

    Make one with `from_path`, and hand it to `dc.condense` in place of a cohort.

    Attributes
    ----------
    path : str
        A file, a folder of files of one kind, or a URI.
    facts : Facts
        What is public about it: outcome, schema, whose rows they are.

    Examples
    --------
    >>> import tempfile
    >>> import distcondense as dc
    >>> from distcondense.data.datasets import load
    >>> data = load("breast_cancer")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data.frame.to_parquet(f"{folder}/part-0.parquet")
    ...     table = dc.LargeTable.from_path(folder, **data.how)
    >>> len(table.files)
    1
    """

    path: str
    how: Mapping[str, Any]  # as `Cohort.from_file` takes it
    facts: Facts
    pieces: tuple[Piece, ...]
    files: tuple[tuple[str, int, int], ...]  # name, bytes, time of the last change
    ignored: tuple[str, ...] = ()
    sample: Cohort | None = field(default=None)  # once it was read
    read_rows: int = 0  # that were read

    def __repr__(self) -> str:
        return f"LargeTable({len(self.files)} files, {self.facts.kind.name})"

    @property
    def read_from(self) -> tuple[str, ...]:
        """The file, or the folder and every file in it, whose patients these are."""
        return (self.path, *(name for name, _, _ in self.files))

    @property
    def schema(self) -> Any:
        return self.facts.schema

    @property
    def rows(self) -> int:
        """Rows of all its files; of CSV about so many."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.files)

    def fingerprint(self) -> str:
        """Which data this is, by its files' names, sizes and times: for telling run folders apart."""
        facts = (
            self.facts.schema.to_dict(),  # type: ignore[union-attr]
            (self.facts.kind.name, self.facts.kind.names),
            self.how.get("person_id"),
            self.files,
        )
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @classmethod
    def from_path(cls, path: str | Path, **how: Any) -> LargeTable:
        """A table that is read in batches.

        Names and types of columns are checked here, rows when they are read.

        Parameters
        ----------
        path : str or Path
            A Parquet, Arrow or CSV file, a folder of one kind of them, or the URI of either.
        **how
            As in `Cohort.from_file`; the schema must be declared.

        Returns
        -------
        LargeTable

        Raises
        ------
        SchemaError
            Where no schema is given.
        CohortError
            Where files are missing, of several kinds, or have not the columns of the schema.

        Examples
        --------
        >>> import distcondense as dc, pandas as pd, pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> pd.DataFrame({"age": [34, 71], "died": ["no", "yes"]}).to_parquet(folder / "visits.parquet")
        >>> schema = dc.Schema((dc.Column("age", "integer", 18, 110),
        ...                     dc.Column("died", "binary", categories=("no", "yes"))))
        >>> table = dc.LargeTable.from_path(folder, target="died", schema=schema)
        >>> table, table.rows
        (LargeTable(1 files, binary), 2)
        """
        need(path, (str, Path), "table", "a path or URI")
        how = checked_roles(how)
        schema = how.get("schema")
        if schema is None:
            raise SchemaError(
                "schema",
                "must be declared for a table that is read in batches",
                found="none",
                fix="describe a part of it (distcondense init TABLE), and pass --schema",
            )
        goal = Goal.from_roles(
            positive=how.get("positive"), kind=how.get("kind"), **{role: how.get(role) for role in ROLES}
        )
        ignore, person_id = how["ignore"], how.get("person_id")
        facts = Facts.from_goal(goal, schema, person_id=person_id, ignore=ignore)
        files = files_of(str(path))
        pieces: list[Piece] = []
        kinds: dict[str, tuple[str, str]] = {}
        extra, header = tuple[str, ...](), Names((), ())
        features = schema.only(facts.schema.names).in_table  # type: ignore[union-attr]
        needed = [*dict.fromkeys((*features, *facts.kind.names, *([person_id] if person_id else [])))]
        for file in files:
            parts, names = pieces_of(file, needed, kinds)
            pieces += parts
            aside = {*needed, *ignore, *(c.name for c in schema.ignored)}
            if not extra:
                extra, header = tuple(name for name in names if name not in aside), Names(names, aside)
        if extra:
            warnings.warn(
                f"{len(extra)} columns are not in the schema and are left out: {header.some(extra)}",
                DistcondenseWarning,
                stacklevel=2,
            )
        if not any(piece.rows for piece in pieces):
            raise CohortError("table", "must have at least one row", found="files without rows", fix="check the export")
        stated = {name: value for name, value in how.items() if value is not None}
        place = str(path) if is_uri(path) else os.path.abspath(path)
        return cls(place, {**stated, "ignore": ignore}, facts, tuple(pieces), files, extra)

    def coder(self, cells: Any, coins: HoldoutSplit) -> Coder:
        assert self.facts.schema is not None
        plain = all(is_plain(column) for column in (*self.how["schema"].columns, *self.how["schema"].outcome))
        return Coder(
            self.facts.schema,
            self.facts.kind,
            tuple(cells),
            coins,
            self.how.get("person_id"),
            None if plain else self._cohort,
        )

    def _cohort(self, frame: Any) -> Cohort:
        """Rows as `Cohort` reads them, whatever that takes."""
        options = {name: value for name, value in self.how.items() if name not in _OF_CSV}
        absent = [name for name in options["ignore"] if name not in frame]  # nobody reads them
        options["ignore"] = tuple(name for name in options["ignore"] if name in frame)
        options["schema"] = options["schema"].without(absent)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DistcondenseWarning)  # said once, for the whole table
            return Cohort.from_frame(frame, owned=True, **options)

    def read(self, piece: Piece, coder: Coder) -> Iterator[Batch]:
        """A piece in batches, coded."""
        yield from (self._csv if is_csv(piece.file) else self._typed)(piece, coder)

    def _typed(self, piece: Piece, coder: Coder) -> Iterator[Batch]:
        import pyarrow as pa

        at = 0
        for batch in arrow_batches(piece, coder.columns):
            batch = batch.replace_schema_metadata(None)  # pandas would believe whatever stands there
            with _somewhere(piece, at):
                try:
                    coded = coder.of_batch(batch)
                except (UnicodeDecodeError, pa.ArrowException):  # texts that are none: found where they are looked at
                    raise CohortError("rows", "must hold texts in UTF-8", found="other bytes") from None

            def some(flags: Any, batch: Any = batch) -> Any:
                return pa.Table.from_batches([batch.filter(pa.array(flags))])

            yield Batch(coded, some, piece.file, piece.first + at)
            at += batch.num_rows

    def _csv(self, piece: Piece, coder: Coder) -> Iterator[Batch]:
        """Parts of the file, cut where a line ends outside quotes, each with its header, as files of their own."""
        at = 0
        for text in csv_parts(piece.file):
            with tempfile.TemporaryDirectory() as folder:  # readable by its owner alone
                part = Path(folder) / "part.csv"
                part.write_bytes(text)
                with _somewhere(piece, at), warnings.catch_warnings():
                    warnings.simplefilter("ignore", DistcondenseWarning)
                    cohort = Cohort.from_file(part, **self.how)
                    coded = coder.of_cohort(cohort)

            def some(flags: Any, cohort: Cohort = cohort) -> Any:
                return cohort.take(np.flatnonzero(flags))

            yield Batch(coded, some, piece.file, at)
            at += len(cohort)

    def sampled(self, batch: Batch, coins: HoldoutSplit, rate: float) -> Any:
        """(n,) whose rows evaluation sees: a person's all or none; rows without a person each by itself.

        Any of equal rows may be the first of them: so the coins of a sample are those of as many rows of the table.
        """
        coded = batch.coded
        if coded.who is not None:
            return coins.uniforms(coded.who[:, 0], coded.who[:, 1], "sample") < rate
        places = np.arange(batch.first, batch.first + len(coded), dtype=np.uint64)
        file = coins.digests([table_name(batch.file)], PERSON)[0, 0]
        return coins.uniforms(coded.mark[:, 0], places ^ file, "sample") < rate

    def take_sample(self, parts: Sequence[Any]) -> None:
        """What `read` gave of the sampled rows becomes the cohort that evaluation sees."""
        import pyarrow as pa

        parts = [part for part in parts if len(part)]
        if not parts:
            return
        if isinstance(parts[0], Cohort):
            sample = _joined(parts)
        else:
            sample = self._cohort(as_frame(pa.concat_tables(map(_decoded, parts), promote_options="permissive")))
        self.sample = replace(sample, file=self.path)

    def draw(self, coins: HoldoutSplit) -> Cohort:
        """The sample alone, again: what a run that was made with these coins was measured on."""
        coder, parts, rate = self.coder((), coins), list[Any](), self.rate
        for piece in self.pieces:
            for batch in self.read(piece, coder):
                if (flags := self.sampled(batch, coins, rate)).any():
                    parts.append(batch.some(flags))
        self.take_sample(parts)
        assert self.sample is not None
        return self.sample

    @property
    def rate(self) -> float:
        """Share of the rows that evaluation sees."""
        return min(1.0, SAMPLE / max(self.rows, 1))


def _decoded(table: Any) -> Any:
    """Without dictionaries, which another file may do without."""
    import pyarrow as pa

    columns = [one.cast(one.type.value_type) if pa.types.is_dictionary(one.type) else one for one in table.columns]
    return pa.table(columns, names=table.column_names)


def is_large(path: str | Path, memory: int) -> bool:
    """Whether a table is a folder, or a file that would not fit so much memory as a frame, about."""
    if is_uri(path):
        files = files_of(str(path))
        if len(files) > 1 or table_name(files[0][0]) != table_name(path):
            return True
        size = files[0][1]
    elif os.path.isfile(path) and format_of(path):
        size = os.path.getsize(path)
    else:
        return os.path.isdir(path)
    if is_csv(path):
        return size * (25 if str(path).lower().endswith(".gz") else 5) > memory
    try:
        counts, schema = shape_of(str(path))
    except Exception:
        return False  # whoever reads it will say what is wrong
    return sum(counts) * len(schema.names) * 24 > memory


def _joined(cohorts: Sequence[Cohort]) -> Cohort:
    first = cohorts[0]
    columns = {}
    for column in first.schema.columns:
        parts = [cohort.features[column.name] for cohort in cohorts]
        unlisted = column.unknown and not column.numeric
        columns[column.name] = union_categoricals(parts, sort_categories=True) if unlisted else pd.concat(parts).array
    features = pd.DataFrame(columns)
    arrays = {name: np.concatenate([cohort.outcome[name] for cohort in cohorts]) for name in first.outcome.arrays}
    person, identifiers = None, tuple[str, ...]()
    if first.person is not None:
        texts = np.concatenate([np.array(cohort.identifiers, object)[cohort.person] for cohort in cohorts])
        codes, known = pd.factorize(texts)
        person, identifiers = codes.astype(np.int64), tuple(known)
    outcome = replace(first.outcome, arrays=arrays)
    return replace(first, features=features, outcome=outcome, person=person, identifiers=identifiers)


@contextmanager
def _somewhere(piece: Piece, at: int) -> Iterator[None]:
    """What is wrong with a batch, with the file's name and where in it the batch begins."""
    try:
        yield
    except CohortError as error:
        raise CohortError(
            f"file {table_name(piece.file)}",
            "must hold rows that fit the schema",
            found=f"in rows {piece.first + at + 1} and further, counted from there: {error}",
        ) from None
