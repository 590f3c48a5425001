"""Where one class is rare: what helps, on real and on condensed rows (PSyGenTAB §IV-G, Table V).

The run's own model, trained without and with the usual remedies: weights that make the classes count alike, rows of
the rarer class again, fewer of the commoner one, rows between neighbours of the rarer class (SMOTE), and condensed rows
added to real ones. Decisions are at a probability of one half, as in the paper: at a cut of its own choosing every
remedy would look alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from distcondense.arrays import Floats, Index, Matrix
from distcondense.evaluation.experiment import Arm, Experiment, dots, titles, why_not
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.models import title_of
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, TRAINED_ON, Score
from distcondense.evaluation.section import Section, quiet
from distcondense.outcomes.base import Rule
from distcondense.outcomes.measures import title
from distcondense.runs.figures import DOTS, Figure, Table

TITLE = "Where one class is rare"
REAL = 20_000  # real rows, at most
NEIGHBOURS = 5
SEEDS = 5_000  # rows of the rarer class that neighbours are looked for among, at most
CUT = 0.5
LEAST_CASES = 10  # real training rows of the rarer class
ADDED = "condensed rows added"
EXTRA = ("balanced_accuracy", "f1")


Remedied = tuple[Matrix, Index, Floats | None]  # rows, labels, and weights where the remedy makes some
Remedy = Callable[[Matrix, Index, np.random.Generator, int], Remedied]


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Callable[[str], None] = quiet) -> Section:
    """Every remedy on real and on condensed rows, and condensed rows as a remedy for real ones."""
    if inputs.kind.learner().link != "probability":
        return Section("imbalance", TITLE, notes=("remedies for a rare class are for outcomes with two classes",))
    if why := why_not(inputs):
        return Section("imbalance", TITLE, notes=(why,))
    experiment, learner = Experiment(inputs, seed, threads), inputs.learner
    real = experiment.train.outcome["label"]
    if np.bincount(real, minlength=2).min() < LEAST_CASES:
        why = f"one class has <{LEAST_CASES} real training rows: nothing to balance"
        return Section("imbalance", TITLE, notes=(why,))
    measures = tuple(dict.fromkeys((inputs.kind.measures[0], *EXTRA)))
    scores: list[Score] = []
    for arm in remedied(experiment):
        log(f"{title_of(learner.name)} of {arm.trained_on} rows: {arm.group}")
        model = experiment.trained(arm, learner, rule=Rule(CUT))
        scores += [score for score in model.scores(experiment.test) if score.measure in measures]
    shares = [float(np.mean(label == 1)) for label in (real, inputs.labelled.outcome["label"])]
    rarer, rarer_condensed = (min(share, 1 - share) for share in shares)
    return Section(
        "imbalance",
        TITLE,
        tuple(scores),
        tuple(_figure(scores, measure) for measure in measures),
        (_table(scores, measures),),
        notes=(
            *experiment.notes()[:1],
            f"remedies were tried on {min(len(experiment.train), REAL):,} real training rows and on the condensed "
            "rows, with the outcome column as it is, without soft labels or weights of the release",
            f"the rarer class is {rarer:.1%} of the real rows and {rarer_condensed:.1%} of the condensed ones",
            f"decisions at a probability of {CUT}; F1 is that of the second class; {NEIGHBOURS} neighbours",
        ),
        titles=titles(measures),
        settings={"real_rows_at_most": REAL, "neighbours": NEIGHBOURS, "threshold": CUT, "seed": seed},
    )


def remedied(experiment: Experiment) -> Iterator[Arm]:
    """What the model is trained on: every remedy on both kinds of rows.

    Labels are given as certain soft labels too, which a learner takes as they are: with plain ones it may weigh a rare
    class by itself.
    """
    full, condensed = experiment.full(experiment.inputs.codec), experiment.condensed(PLAIN)
    some = np.sort(np.random.default_rng([experiment.seed, 0x1BA1]).permutation(len(full.rows))[:REAL])
    full = replace(full, rows=full.rows[some], outcome=full.outcome.take(some), validation=None)
    for arm in (full, condensed):
        label = arm.outcome["label"].astype(np.int64)
        if not 0 < label.sum() < len(label):  # nothing to balance; the model says why it cannot learn
            yield replace(arm, group="none")
            continue
        for name, remedy in REMEDIES.items():
            rng = np.random.default_rng([experiment.seed, 0x5307])
            yield _with(arm, name, remedy(arm.rows, label, rng, experiment.threads))
    both = np.concatenate([full.outcome["label"], condensed.outcome["label"]]).astype(np.int64)
    yield _with(full, ADDED, (np.concatenate([full.rows, condensed.rows]), both, None))


def _with(arm: Arm, name: str, remedied: Remedied) -> Arm:
    rows, label, weight = remedied
    outcome = arm.outcome.with_arrays(label=label.astype(arm.outcome["label"].dtype))
    return replace(arm, rows=rows, outcome=outcome, weight=weight, soft=label.astype(np.float64), group=name)


# -- remedies ---------------------------------------------------------------------------------------------------------


def nothing(rows: Matrix, label: Index, rng: np.random.Generator, threads: int) -> Remedied:
    """As they are."""
    return rows, label, None


def class_weights(rows: Matrix, label: Index, rng: np.random.Generator, threads: int) -> Remedied:
    """Both classes count alike; the mean weight is 1."""
    counts = np.bincount(label, minlength=2)
    return rows, label, (len(label) / (2 * counts))[label]


def over_sampled(rows: Matrix, label: Index, rng: np.random.Generator, threads: int) -> Remedied:
    """Rows of the rarer class again, by chance, until there are as many."""
    rare, wanted = _rare(label)
    again = rng.choice(rare, wanted)
    return np.concatenate([rows, rows[again]]), np.append(label, label[again]), None


def under_sampled(rows: Matrix, label: Index, rng: np.random.Generator, threads: int) -> Remedied:
    """As many rows of the commoner class, by chance, as the rarer one has."""
    rare, _ = _rare(label)
    common = np.setdiff1d(np.arange(len(label)), rare)
    kept = np.sort(np.append(rare, rng.permutation(common)[: len(rare)]))
    return rows[kept], label[kept], None


def between_neighbours(rows: Matrix, label: Index, rng: np.random.Generator, threads: int) -> Remedied:
    """SMOTE: new rows of the rarer class, each somewhere between one of its rows and one of that row's neighbours."""
    from sklearn.neighbors import NearestNeighbors

    rare, wanted = _rare(label)
    seeds = rows[rng.permutation(rare)[:SEEDS]]
    near = min(NEIGHBOURS, len(seeds) - 1)
    if not near or not wanted:  # one row has no neighbour
        return over_sampled(rows, label, rng, threads)
    nearest = NearestNeighbors(n_neighbors=near + 1, n_jobs=threads).fit(seeds).kneighbors(seeds, return_distance=False)
    start, which = rng.integers(0, len(seeds), wanted), rng.integers(1, near + 1, wanted)  # the nearest is itself
    along = rng.random((wanted, 1)).astype(np.float32)
    new = seeds[start] + along * (seeds[nearest[start, which]] - seeds[start])
    return np.concatenate([rows, new]), np.append(label, np.full(wanted, label[rare[0]])), None


def _rare(label: Index) -> tuple[Index, int]:
    """Rows of the rarer class, and how many more the other one has."""
    counts = np.bincount(label, minlength=2)
    return np.flatnonzero(label == int(np.argmin(counts))), int(counts.max() - counts.min())


REMEDIES: dict[str, Remedy] = {
    "none": nothing,
    "class weights": class_weights,
    "over-sampling": over_sampled,
    "under-sampling": under_sampled,
    "SMOTE": between_neighbours,
}


# -- what is shown ----------------------------------------------------------------------------------------------------


def _figure(scores: Sequence[Score], measure: str) -> Figure:
    series = []
    for trained_on in (FULL, CONDENSED):
        shown = {s.group: s for s in scores if (s.measure, s.trained_on) == (measure, trained_on)}
        series.append(dots(TRAINED_ON[trained_on], shown))
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
        (TRAINED_ON[trained_on], group, *(by.get((trained_on, group, measure), float("nan")) for measure in measures))
        for trained_on, group in kinds
    )
    return Table(
        "remedies",
        "Remedies for a rare class (PSyGenTAB Table V)",
        ("Trained on", "Remedy", *map(title, measures)),
        rows,
    )
