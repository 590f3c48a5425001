"""Where one class is rare: what helps, on real and on condensed rows (PSyGenTAB §IV-G, Table V).

The run's own student, taught without and with the usual remedies: weights that make the classes count alike, rows of
the rarer class again, fewer of the commoner one, rows between neighbours of the rarer class (SMOTE), and condensed rows
added to real ones. Decisions are at a probability of one half, as in the paper: at a cut of its own choosing every
remedy would look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from distcondense.arrays import Floats, Index, Matrix
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, WAYS, Score
from distcondense.evaluation.section import Section, quiet
from distcondense.evaluation.utility.lessons import TESTED, Given, Lessons, titles, trained, why_not
from distcondense.evaluation.utility.students import student_of
from distcondense.outcomes.base import Rule
from distcondense.outcomes.measures import title
from distcondense.runs.figures import DOTS, Figure, Series, Table

TITLE = "Where one class is rare"
REAL = 20_000  # real rows, at most
NEIGHBOURS = 5
SEEDS = 5_000  # rows of the rarer class that neighbours are looked for among, at most
CUT = 0.5
LEAST_CASES = 10  # real training rows of the rarer class
ADDED = "condensed rows added"
EXTRA = ("balanced_accuracy", "f1")


@dataclass(frozen=True, repr=False)
class Balanced:
    """Rows, labels and weights after a remedy."""

    rows: Matrix
    label: Index
    weight: Floats | None = None


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Callable[[str], None] = quiet) -> Section:
    """Every remedy on real and on condensed rows, and condensed rows as a remedy for real ones."""
    if inputs.kind.learner().link != "probability":
        return Section("imbalance", TITLE, notes=("remedies for a rare class are for outcomes with two classes",))
    if why := why_not(inputs):
        return Section("imbalance", TITLE, notes=(why,))
    lessons, student = Lessons.of(inputs, seed=seed, tested=TESTED), student_of(inputs.learner)
    if np.bincount(lessons.train.outcome["label"], minlength=2).min() < LEAST_CASES:
        return Section(
            "imbalance", TITLE, notes=(f"one class has <{LEAST_CASES} real training rows: nothing to balance",)
        )
    scores: list[Score] = []
    for given in remedied(lessons, threads=threads):
        log(f"{student.title} of {given.trained_on} rows: {given.group}")
        scores += trained(lessons, student, given, threads=threads, rule=Rule(CUT)).in_exam(lessons.test)
    measures = tuple(dict.fromkeys((inputs.kind.measures[0], *EXTRA)))
    kept = tuple(score for score in scores if score.measure in measures)
    rarer = {
        way: _rarer(outcome)
        for way, outcome in ((FULL, lessons.train.outcome["label"]), (CONDENSED, inputs.labelled.outcome["label"]))
    }
    return Section(
        "imbalance",
        TITLE,
        kept,
        tuple(_figure(kept, measure) for measure in measures),
        (_table(kept, measures),),
        notes=(
            *lessons.notes()[:1],
            f"remedies were tried on {min(len(lessons.train), REAL):,} real training rows and on the condensed rows, "
            "with the outcome column as it is, without soft labels or weights of the release",
            f"the rarer class is {rarer[FULL]:.1%} of the real rows and {rarer[CONDENSED]:.1%} of the condensed ones",
            f"decisions at a probability of {CUT}; F1 is that of the second class; {NEIGHBOURS} neighbours",
        ),
        titles=titles(measures),
        settings={"real_rows_at_most": REAL, "neighbours": NEIGHBOURS, "threshold": CUT, "seed": seed},
    )


def _rarer(label: Index) -> float:
    share = float(np.mean(label == 1))
    return min(share, 1 - share)


def remedied(lessons: Lessons, *, threads: int) -> Iterator[Given]:
    """What the student is taught: every remedy on both kinds of rows.

    Labels are given as certain soft labels too, which a learner takes as they are: with plain ones it may weigh a rare
    class by itself.
    """
    full, condensed = lessons.full(condensed_columns=True), next(lessons.condensed(student_of(lessons.inputs.learner)))
    rng = np.random.default_rng([lessons.seed, 0x1BA1])
    some = np.sort(rng.permutation(len(full.rows))[:REAL])
    full = replace(full, rows=full.rows[some], outcome=full.outcome.take(some))
    for base in (full, replace(condensed, labels=(PLAIN,))):
        start = Balanced(base.rows, base.outcome["label"].astype(np.int64))
        if not 0 < start.label.sum() < len(start.label):  # nothing to balance; the student says why it cannot learn
            yield replace(base, group="none")
            continue
        for name, remedy in REMEDIES.items():
            yield _given(base, name, remedy(start, np.random.default_rng([lessons.seed, 0x5307]), threads))
    both = np.concatenate([full.outcome["label"], condensed.outcome["label"]]).astype(np.int64)
    yield _given(full, ADDED, Balanced(np.concatenate([full.rows, condensed.rows]), both))


def _given(base: Given, name: str, training: Balanced) -> Given:
    outcome = base.outcome.with_arrays(label=training.label.astype(base.outcome["label"].dtype))
    soft = training.label.astype(np.float64)
    return replace(base, rows=training.rows, outcome=outcome, weight=training.weight, soft=soft, group=name)


# -- remedies ---------------------------------------------------------------------------------------------------------


def nothing(training: Balanced, rng: np.random.Generator, threads: int) -> Balanced:
    """As they are."""
    return training


def class_weights(training: Balanced, rng: np.random.Generator, threads: int) -> Balanced:
    """Both classes count alike; the mean weight is 1."""
    counts = np.bincount(training.label, minlength=2)
    return replace(training, weight=(len(training.label) / (2 * counts))[training.label])


def over_sampled(training: Balanced, rng: np.random.Generator, threads: int) -> Balanced:
    """Rows of the rarer class again, by chance, until there are as many."""
    rare, wanted = _rare(training)
    again = rng.choice(rare, wanted)
    return Balanced(
        np.concatenate([training.rows, training.rows[again]]), np.append(training.label, training.label[again])
    )


def under_sampled(training: Balanced, rng: np.random.Generator, threads: int) -> Balanced:
    """As many rows of the commoner class, by chance, as the rarer one has."""
    rare, _ = _rare(training)
    common = np.setdiff1d(np.arange(len(training.label)), rare)
    kept = np.sort(np.append(rare, rng.permutation(common)[: len(rare)]))
    return Balanced(training.rows[kept], training.label[kept])


def between_neighbours(training: Balanced, rng: np.random.Generator, threads: int) -> Balanced:
    """SMOTE: new rows of the rarer class, each somewhere between one of its rows and one of that row's neighbours."""
    from sklearn.neighbors import NearestNeighbors

    rare, wanted = _rare(training)
    seeds = training.rows[rng.permutation(rare)[:SEEDS]]
    near = min(NEIGHBOURS, len(seeds) - 1)
    if not near or not wanted:  # one row has no neighbour
        return over_sampled(training, rng, threads)
    found = NearestNeighbors(n_neighbors=near + 1, n_jobs=threads).fit(seeds).kneighbors(seeds, return_distance=False)
    start, which = rng.integers(0, len(seeds), wanted), rng.integers(1, near + 1, wanted)  # the nearest is itself
    along = rng.random((wanted, 1)).astype(np.float32)
    made = seeds[start] + along * (seeds[found[start, which]] - seeds[start])
    return Balanced(
        np.concatenate([training.rows, made]), np.append(training.label, np.full(wanted, training.label[rare[0]]))
    )


def _rare(training: Balanced) -> tuple[Index, int]:
    """Rows of the rarer class, and how many more the other one has."""
    counts = np.bincount(training.label, minlength=2)
    return np.flatnonzero(training.label == int(np.argmin(counts))), int(counts.max() - counts.min())


REMEDIES: dict[str, Callable[[Balanced, np.random.Generator, int], Balanced]] = {
    "none": nothing,
    "class weights": class_weights,
    "over-sampling": over_sampled,
    "under-sampling": under_sampled,
    "SMOTE": between_neighbours,
}


# -- what is shown ----------------------------------------------------------------------------------------------------


def _figure(scores: Sequence[Score], measure: str) -> Figure:
    series = []
    for way in (FULL, CONDENSED):
        shown = [one for one in scores if (one.measure, one.trained_on) == (measure, way)]
        series.append(
            Series(
                WAYS[way],
                tuple(one.group for one in shown),
                tuple(one.value for one in shown),
                tuple(one.low for one in shown),
                tuple(one.high for one in shown),
            )
        )
    return Figure(
        f"remedies-{measure}",
        DOTS,
        f"{title(measure)} with each remedy",
        "Each column is a remedy for a rare class; its points are models of real and of condensed rows, tested on "
        "held-out patients, with 95% intervals.",
        "Remedy",
        titles((measure,))[measure],
        tuple(series),
    )


def _table(scores: Sequence[Score], measures: Sequence[str]) -> Table:
    by = {(score.trained_on, score.group, score.measure): score.value for score in scores}
    kinds = list(dict.fromkeys((score.trained_on, score.group) for score in scores))
    rows = tuple(
        (WAYS[way], group, *(by.get((way, group, measure), float("nan")) for measure in measures))
        for way, group in kinds
    )
    return Table(
        "remedies", "Remedies for a rare class (004 Table V)", ("Trained on", "Remedy", *map(title, measures)), rows
    )
