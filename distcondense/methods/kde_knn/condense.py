"""kde-knn (KDE-KNN §3.8): density of each class → rows → filters → again, until every class is full.

Patients are read here freely: for scaling, the densities, the validator and the distances. Nothing is private.
Where tables need another choice than the paper's 27 numbers: categories are one-hot columns, which the kernel noise
moves like any other, and a row is judged as it would be released, with legal values only.
"""

from __future__ import annotations

import time as clock
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from distcondense.arrays import Flags, Index, Matrix
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.persons import Split
from distcondense.data.rules import Rules
from distcondense.errors import CohortError, DistcondenseWarning, ModelError
from distcondense.methods.base import Context
from distcondense.methods.kde_knn.filters import far, mean_distance, validator
from distcondense.methods.kde_knn.options import KdeKnnOptions
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result

BATCH = 512  # rows drawn at a time
SEEDS = "seed: split, drawn rows, forest and students. Nothing is noise that protects anybody."
LOUD = (
    "NO PRIVACY: every row is a patient's row plus kernel noise; the distance filter is no differential privacy. "
    "Treat the result as patient data"
)
WHY = (
    "Each synthetic row is a real patient's row plus kernel noise, kept if a model of the patients finds its class "
    "again and no patient is too near.",
    "A smallest distance to patients is no bound on what can be learned about one: that a region is empty tells of "
    "those in its middle, and no ε describes it.",
)

Filter = Callable[[Matrix, int], Flags]  # rows drawn for a class → which are kept


def condense(cohort: Cohort, options: KdeKnnOptions, context: Context, split: Split | None = None) -> Result:
    """Condense by kde-knn. `split` is the seed's, unless a test gives another."""
    warnings.warn(LOUD, DistcondenseWarning, stacklevel=3)
    context.log(LOUD)
    kind, timings, started = cohort.outcome.kind, dict[str, float](), clock.perf_counter()
    splitting = context.stratified(options.seed)
    split = splitting.split(cohort) if split is None else split
    features, train = cohort.features.iloc[split.train], cohort.outcome.take(split.train)
    codec = Codec.fit(features, cohort.schema)
    rows, label, classes = codec.encode(features), kind.strata(train), len(kind.labels)
    timings["encode"] = clock.perf_counter() - started
    if empty := int((np.bincount(label, minlength=classes) == 0).sum()):
        raise CohortError(
            "table",
            "must have training rows of every class of the outcome",
            found=f"{empty} classes without any",
            fix="give more rows, or leave the classes that nobody has out of the schema",
        )

    started = clock.perf_counter()
    model = validator(rows, label, classes, options, context.threads)
    least = options.sigma * mean_distance(rows, context.threads) if options.sigma else 0.0
    timings["filters"] = clock.perf_counter() - started
    context.log(
        f"densities of {classes} classes over {len(rows)} rows × {rows.shape[1]} encoded columns; validator "
        f"{options.validator}, least distance {least:.3g}"
    )

    def passes(drawn: Matrix, wanted: int) -> Flags:
        good = np.ones(len(drawn), bool)
        if model is not None:
            good &= model(drawn) == wanted
        if least > 0:
            good[good] = far(drawn[good], rows, least, context.threads)
        return good

    started = clock.perf_counter()
    schema = replace(cohort.schema.only(codec.columns), notes=())
    mould = Mould(codec, Rules(schema), options.seed)
    frames, drawn_in_all = [], []
    for wanted in range(classes):
        density = Density(rows[label == wanted], options.bandwidth or scott(*rows[label == wanted].shape))

        def progress(filled: int, before: int = wanted * options.ipc) -> None:
            context.progress(step=before + filled, steps=classes * options.ipc)

        frame, drawn = filled_class(density, wanted, mould, passes, options, progress)
        frames.append(frame)
        drawn_in_all.append(drawn)
    timings["condense"] = clock.perf_counter() - started
    frame = pd.concat(frames, ignore_index=True)
    context.log(f"kept {len(frame)} of {sum(drawn_in_all)} drawn rows")
    made = np.repeat(np.arange(classes), options.ipc).astype(train["label"].dtype)
    return Result.from_rows(
        features=frame,
        schema=schema,
        labelled=Labelled(replace(train, arrays={"label": made})),
        privacy=Privacy("none", "kde-knn", None, None, "none", "none", schema_origin=cohort.schema.origin, why=WHY),
        splitting=splitting,
        notes={
            "seeds_policy": SEEDS,
            "scaling": "training rows",
            "drawn_by_class": drawn_in_all,
            "least_distance": least,
            "constant_columns_dropped": list(codec.dropped),
        },
        timings=timings,
        codec=codec,
        encoded=codec.encode(frame),
    )


@dataclass(frozen=True, repr=False)
class Density:
    """Steps 2 and 3, eq. 1 and 2: a Gaussian kernel of width h around each row of a class, in standard deviations."""

    rows: Matrix  # (L, d)
    bandwidth: float

    def draw(self, count: int, rng: np.random.Generator) -> Matrix:
        """Step 4: (count, d) rows: one of the class, plus noise of its kernel."""
        chosen = rng.integers(0, len(self.rows), count)
        noise = rng.standard_normal((count, self.rows.shape[1]))
        return np.asarray(self.rows[chosen] + self.bandwidth * noise, np.float32)


def scott(rows: int, columns: int) -> float:
    """Scott's rule for columns of standard deviation 1: h = L^(−1/(d+4))."""
    return float(rows ** (-1.0 / (columns + 4)))


@dataclass(frozen=True)
class Mould:
    """Drawn numbers → the row that would be released, and as models see it."""

    codec: Codec
    rules: Rules
    seed: int

    def cast(self, drawn: Matrix, rng: np.random.Generator) -> tuple[pd.DataFrame, Matrix]:
        frame = self.codec.decode(drawn)
        if self.rules:
            frame = self.rules.completed(self.rules.repaired(frame, rng))
        return frame, self.codec.encode(frame)


def filled_class(
    density: Density, wanted: int, mould: Mould, passes: Filter, options: KdeKnnOptions, progress: Callable[[int], None]
) -> tuple[pd.DataFrame, int]:
    """Step 7: draw and filter until a class has its IPC rows. The table, and how many rows were drawn for it."""
    rng = np.random.default_rng([options.seed, 0x3DE, wanted])
    kept, filled, drawn, most = list[pd.DataFrame](), 0, 0, options.tries * options.ipc
    while filled < options.ipc:
        if drawn >= most:
            raise ModelError(
                f"class {wanted + 1} of the outcome",
                f"must be filled from at most {options.tries} drawn rows for each that is wanted",
                found=f"{filled} of {options.ipc} rows after {drawn} were drawn",
                fix="say fewer --neighbours, another --validator (or none), a smaller --sigma, or more --tries",
            )
        count = min(BATCH, most - drawn)
        frame, rows = mould.cast(density.draw(count, rng), rng)
        good: Index = np.flatnonzero(passes(rows, wanted))[: options.ipc - filled]
        drawn += int(good[-1]) + 1 if filled + len(good) == options.ipc else count
        kept.append(frame.iloc[good])
        filled += len(good)
        progress(filled)
    return pd.concat(kept, ignore_index=True), drawn
