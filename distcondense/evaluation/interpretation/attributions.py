"""What models rely on: columns' attributions in students of real and condensed rows (Thakur et al. 2026 §2.5, Fig 4).

Two students: boosted trees (exact TreeSHAP, by XGBoost) and a linear one, whose Shapley values are coefficient ×
distance from the mean. Attributions of the encoded columns of one table column are added up, with their signs, row by
row; of several classes the absolute values are added up. A column's importance is the mean |attribution| over rows: of
the same held-out real rows for both students, and of the rows that each was taught with.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from distcondense.arrays import Floats, Index, Matrix
from distcondense.data.codec import Codec
from distcondense.errors import ModelError
from distcondense.evaluation.inputs import EvaluationInput, Sample
from distcondense.evaluation.interpretation.training import ROWS, WORDS, training_sets
from distcondense.evaluation.resampling import RESAMPLES, between, choose, in_words, resampled, some_of
from distcondense.evaluation.score import CONDENSED, FULL, HELD_OUT, PLAIN, RANDOM, SOFT, UNKNOWN, Interval, Score
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.models.learners import TrainingSet, booster_of
from distcondense.outcomes.base import Kind
from distcondense.runs.figures import BARS, Figure, Series, Table

NAME, TITLE = "interpretation", "What models rely on"
EXPLAINED = 1_000  # rows that are explained
FEWEST = 20  # rows to explain: a mean of fewer would tell about single patients
TOP, SHORT = 15, 5  # longest columns of a comparison, as in Fig 4; and fewer, for tables that have few
STEPS = 500  # at most, of a logistic regression
BLOCK = 20_000_000  # attributions held at a time
OWN = "own rows"
TITLES = {
    "attribution_correlation": "Rank correlation of columns' importance (1: same order)",
    "attribution_top": f"Overlap of the {TOP} most important columns (1: same)",
    "attribution_short": f"Overlap of the {SHORT} most important columns (1: same)",
    "attribution_distance": "Distance of the shares of importance (0: same)",
}
STUDENTS = {"trees": "boosted trees", "linear": "linear model"}

Explain = Callable[[Matrix], Floats]  # (n, d) encoded rows → (n, c) |attribution| of each column of the table


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """Importance of columns in students of real and of condensed rows, and how well the two agree."""
    if not len(inputs.rows):
        return Section(NAME, TITLE, notes=("The run made no rows: there is nothing to explain.",))
    columns = [block.column.name for block in inputs.codec.blocks if block.width]
    train = inputs.sample(inputs.split.train, ROWS, seed)
    test = inputs.sample(inputs.split.test, EXPLAINED, seed)
    scores: list[Score] = []
    figures, tables, notes = [], [], _notes(inputs, train, test, columns)
    for name, teach in {"trees": taught_trees, "linear": taught_linear}.items():
        log(f"explaining {STUDENTS[name]}")
        found = list(_attributed(inputs, train, test, teach, seed=seed, threads=threads))
        notes += [f"{STUDENTS[name]} of {one.words}: {one.note}" for one in found if one.note]
        real = found[0]
        for one in found[1:]:
            scores += _scores(name, real, one, test, train, columns, seed)
        shown = [one for one in found if one.held is not None and one.trained_on != RANDOM]
        if real.held is not None and len(shown) > 1:
            figures.append(_figure(name, shown, columns))
            tables.append(_table(name, shown, columns))
    settings = {
        "taught with rows": len(train),
        "of rows": train.of,
        "explained rows": len(test),
        "of held-out rows": test.of,
        "columns": len(columns),
        "resamples": RESAMPLES,
        **_tops(columns),
    }
    return Section(NAME, TITLE, tuple(scores), tuple(figures), tuple(tables), tuple(notes), TITLES, settings)


# -- attributions -----------------------------------------------------------------------------------------------------


def by_column(values: Floats, codec: Codec) -> Floats:
    """(n, d) or (n, K, d) attributions of encoded columns → (n, c) absolute ones of the table's columns.

    A column's encoded columns are added up with their signs, for a row has one of its categories and not the others;
    scores of several classes by their absolute values.
    """
    widths = [block.width for block in codec.blocks if block.width]
    starts = np.concatenate([[0], np.cumsum(widths)[:-1]]).astype(np.int64)
    summed = np.abs(np.add.reduceat(np.asarray(values, np.float64), starts, axis=-1))
    return np.asarray(summed if summed.ndim == 2 else summed.sum(axis=1), np.float64)


def explained_trees(booster: Any, codec: Codec, threads: int) -> Explain:
    """TreeSHAP by the library itself, in margins: log odds, log time, or the outcome's own unit."""
    import xgboost as xgb

    booster.set_param({"nthread": threads})

    def explain(rows: Matrix) -> Floats:
        done, step = [], max(1, BLOCK // (rows.shape[1] + 1))
        at = 0
        while at < len(rows):
            block = xgb.DMatrix(rows[at : at + step], nthread=threads)
            given = booster.predict(block, pred_contribs=True, validate_features=False)[..., :-1]  # without the bias
            done.append(by_column(given, codec))
            at += step
            step = max(1, BLOCK // int(np.prod(given.shape[1:])))  # the first block tells how many classes there are
        return np.concatenate(done)

    return explain


def explained_line(coefficients: Floats, codec: Codec) -> Explain:
    """(d,) or (K, d) coefficients: what a column adds is β·(x − mean), exactly."""
    beta = np.asarray(coefficients, np.float64)

    def explain(rows: Matrix) -> Floats:
        apart = rows - rows.mean(axis=0, dtype=np.float64)
        return by_column(apart * beta if beta.ndim == 1 else apart[:, None, :] * beta, codec)

    return explain


def taught_trees(kind: Kind, training: TrainingSet, codec: Codec) -> Explain:
    """The kind's own boosted trees: the first of its learners that XGBoost fitted (a log-risk is a linear score)."""
    for learner in sorted(kind.learners.values(), key=lambda learner: learner.link == "log-risk"):
        if learner.link == "probabilities":  # several scores a row: the model keeps no trees, so they are made again
            return explained_trees(_several(kind, training), codec, training.threads)
        model = learner.fit(
            training.rows,
            training.outcome,
            weight=training.weight,
            soft=training.soft,
            seed=training.seed,
            threads=training.threads,
        )
        booster = getattr(getattr(model, "predictor", None), "booster", None)
        if booster is not None:
            return explained_trees(booster, codec, training.threads)
    raise ModelError("boosted trees", "must be among the learners of this outcome", found="none")


def _several(kind: Kind, training: TrainingSet) -> Any:
    """Boosted trees with a score a class; soft labels are learned class by class against the rest."""
    params: dict[str, Any] = {"objective": "binary:logistic"}
    if training.soft is None:
        params = {"objective": "multi:softprob", "num_class": len(kind.labels)}
    label = training.outcome["label"] if training.soft is None else training.soft
    return booster_of(params, training, {"label": label, "weight": training.weight})


def taught_linear(kind: Kind, training: TrainingSet, codec: Codec) -> Explain:
    """Cox where the kind has it, logistic regression of classes, else ridge; on columns standardised by these rows."""
    centre, scale = training.rows.mean(0, dtype=np.float64), training.rows.std(0, dtype=np.float64)
    scale = np.where(scale > 1e-9, scale, np.inf)  # a constant column has no coefficient
    rows = ((training.rows - centre) / scale).astype(np.float32)
    if training.weight is not None:  # of mean 1, so that penalties weigh as much as without
        training = replace(training, weight=np.asarray(training.weight, np.float64) / np.mean(training.weight))
    hazards = [learner for learner in kind.learners.values() if learner.link == "log-risk"]
    if hazards:
        model: Any = hazards[0].fit(rows, training.outcome, weight=training.weight, seed=training.seed, threads=1)
        return explained_line(model.coefficients / scale, codec)
    if kind.labels:
        return explained_line(_logistic(rows, training) / scale, codec)
    if "value" in training.outcome.arrays:
        from sklearn.linear_model import Ridge

        value = training.outcome["value"] if training.soft is None else training.soft
        return explained_line(Ridge(1.0).fit(rows, value, training.weight).coef_ / scale, codec)
    raise ModelError("linear model", "must be one that this outcome can teach", found="neither classes nor a number")


def _logistic(rows: Matrix, training: TrainingSet) -> Floats:
    """(d,), or (K, d) of several classes. Soft labels become a row of each class, weighted by them."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    label, weight = training.outcome["label"].astype(np.int64), training.weight
    if training.soft is not None:
        soft = np.asarray(training.soft, np.float64)
        soft = np.stack([1 - soft, soft], axis=1) if soft.ndim == 1 else soft
        own = np.ones(len(rows)) if weight is None else np.asarray(weight, np.float64)
        rows, label = np.tile(rows, (soft.shape[1], 1)), np.repeat(np.arange(soft.shape[1]), len(rows))
        weight = (own[:, None] * soft).T.ravel()
    weight = None if weight is None else weight / weight.mean()
    with threadpool_limits(limits=training.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one that stops early is close enough for its columns' order
        beta = LogisticRegression(max_iter=STEPS).fit(rows, label, weight).coef_
    return np.asarray(beta[0] if len(beta) == 1 else beta, np.float64)


# -- students of real and condensed rows ------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class StudentAttributions:
    """One student's attributions: of the held-out rows, and of rows like those it was taught with."""

    trained_on: str
    labels: str
    rows: int  # that it was taught with
    held: Floats | None = None  # (n, c)
    own: Floats | None = None
    note: str = ""

    @property
    def words(self) -> str:
        return WORDS[self.trained_on] + (", by the manual" if self.labels == SOFT else "")


def _attributed(
    inputs: EvaluationInput,
    train: Sample,
    test: Sample,
    teach: Callable[[Kind, TrainingSet, Codec], Explain],
    *,
    seed: int,
    threads: int,
) -> Iterator[StudentAttributions]:
    """The student of real rows first; then those of condensed rows, and of as many random real ones."""
    kind, codec = inputs.kind, inputs.codec
    held = codec.encode(test.features) if len(test) >= FEWEST else None
    for (trained_on, labels), training in training_sets(inputs, train, seed=seed, threads=threads).items():
        blank = StudentAttributions(trained_on, labels, len(training.rows))
        try:
            if lacking := kind.lacking(training.outcome):
                raise ModelError("student", f"needs rows with {lacking}", found="none")
            explain = teach(kind, training, codec)
        except (ModelError, ValueError, ArithmeticError) as error:
            why = str(error) if isinstance(error, ModelError) else type(error).__name__
            yield replace(blank, note=f"could not be taught ({why})")
            continue
        own, enough = None, len(training.rows) >= FEWEST or trained_on != FULL  # of few patients nothing is said
        if enough and (trained_on, labels) in ((FULL, ""), (CONDENSED, PLAIN)):
            own = explain(training.rows[_explained(len(training.rows), seed)])
        yield replace(blank, held=None if held is None else explain(held), own=own)


def _explained(rows: int, seed: int) -> Index:
    """Which of a student's own rows are explained."""
    return choose(rows, EXPLAINED, np.random.default_rng([seed, 0xE819]))


# -- how well they agree ----------------------------------------------------------------------------------------------


def rank_correlation(one: Floats, other: Floats) -> float:
    """Spearman's, ties by their mean rank. NaN where there are fewer than three columns or all are alike."""
    if len(one) < 3:
        return float("nan")
    a, b = stats.rankdata(one), stats.rankdata(other)
    a, b = a - a.mean(), b - b.mean()
    length = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / length if length > 0 else float("nan")


def top_overlap(one: Floats, other: Floats, k: int) -> float:
    """The share of the k most important columns that are the same; columns without any importance are in no list."""
    first, second = (
        set(np.argsort(-importance, kind="stable")[:k]) & set(np.flatnonzero(importance > 0))
        for importance in (one, other)
    )
    longer = max(len(first), len(second))
    return len(first & second) / longer if longer else float("nan")


def share_distance(one: Floats, other: Floats) -> float:
    """½ Σ |difference| of the columns' shares of all importance: between 0 (same) and 1 (nothing in common)."""
    if one.sum() <= 0 or other.sum() <= 0:
        return float("nan")
    return float(np.abs(one / one.sum() - other / other.sum()).sum() / 2)


def compared(
    one: Floats, other: Floats, columns: Sequence[str], *, person: Index | None, apart: bool, seed: int
) -> dict[str, Interval]:
    """Every measure of two (n, c) attributions. `apart`: of other rows each, so that each is resampled by itself."""
    tops = _tops(columns)
    measures: dict[str, Callable[[Floats, Floats], float]] = {
        "attribution_correlation": rank_correlation,
        "attribution_top": lambda a, b: top_overlap(a, b, tops["attribution_top"]),
        "attribution_short": lambda a, b: top_overlap(a, b, tops["attribution_short"]),
        "attribution_distance": share_distance,
    }
    drawn: dict[str, list[float]] = {name: [] for name in measures}
    others = resampled(len(other), None, seed=seed + 1) if apart else None
    for counts in resampled(len(one), person, seed=seed):
        theirs = counts if others is None else next(others)
        a, b = counts @ one / counts.sum(), theirs @ other / theirs.sum()
        for name, measure in measures.items():
            drawn[name].append(measure(a, b))
    a, b = one.mean(axis=0), other.mean(axis=0)
    return {name: between(measure(a, b), drawn[name]) for name, measure in measures.items()}


def _tops(columns: Sequence[str]) -> dict[str, int]:
    return {"attribution_top": min(TOP, len(columns)), "attribution_short": min(SHORT, max(len(columns) // 2, 1))}


def _scores(
    student: str,
    real: StudentAttributions,
    other: StudentAttributions,
    test: Sample,
    train: Sample,
    columns: Sequence[str],
    seed: int,
) -> Iterator[Score]:
    about = {"rows": other.rows, "student": student, "labels": other.labels}
    covered = other.trained_on == CONDENSED
    blank = Score.from_interval("", other.trained_on, HELD_OUT, UNKNOWN, len(test), covered, **about)
    if real.held is None or other.held is None:
        why = real.note or other.note or f"fewer than {FEWEST} rows were held out"
        yield from (replace(blank, measure=measure, note=why) for measure in TITLES)
    else:
        measures = compared(real.held, other.held, columns, person=test.person, apart=False, seed=seed)
        yield from _measured(blank, measures, columns, in_words(test.person))
    if real.own is not None and other.own is not None:
        person = None if train.person is None else train.person[_explained(len(train), seed)]
        measures = compared(real.own, other.own, columns, person=person, apart=True, seed=seed)
        words = in_words(person, "each student's own")
        yield from _measured(replace(blank, tested_on=OWN, n=len(real.own)), measures, columns, words)


def _measured(blank: Score, measures: Mapping[str, Interval], columns: Sequence[str], words: str) -> Iterator[Score]:
    tops = _tops(columns)
    for measure, reach in measures.items():
        note = ""
        if not np.isfinite(reach.value):
            note = "fewer than three columns, or none of any importance"
        elif tops.get(measure) == len(columns):
            note = "of as many columns as the table has: it cannot be low"
        yield blank.with_interval(reach, words, measure=measure, note=note)


# -- what people see --------------------------------------------------------------------------------------------------


def _figure(student: str, shown: Sequence[StudentAttributions], columns: Sequence[str]) -> Figure:
    """The shares of importance of the columns that matter most in real rows."""
    means = [one.held.mean(axis=0) for one in shown if one.held is not None]
    most = np.argsort(-means[0], kind="stable")[:TOP]
    names = tuple(columns[at] for at in most)
    series = []
    for one, mean in zip(shown, means, strict=True):
        share = mean / mean.sum() if mean.sum() > 0 else mean
        series.append(Series(one.words, names, tuple(round(float(share[at]), 5) for at in most)))
    return Figure(
        f"attributions-{student}",
        BARS,
        f"Columns that matter most: {STUDENTS[student]}",
        "Mean absolute SHAP value of each column, as a share of all, on the same held-out real rows. Where the bars of "
        "a column are alike, students rely on it alike.",
        "column",
        "share of all importance",
        tuple(series),
    )


def _table(student: str, shown: Sequence[StudentAttributions], columns: Sequence[str]) -> Table:
    """Importance and rank of all columns that are among the first in one of the students."""
    means = [one.held.mean(axis=0) for one in shown if one.held is not None]
    ranks = [stats.rankdata(-mean, method="min").astype(int) for mean in means]
    listed = [at for at in np.argsort(-means[0], kind="stable") if any(rank[at] <= TOP for rank in ranks)]
    head = [words for one in shown for words in (one.words, f"rank, {one.words}")]
    rows = []
    for at in listed:
        cells = [cell for mean, rank in zip(means, ranks, strict=True) for cell in (float(f"{mean[at]:.4g}"), rank[at])]
        rows.append((columns[at], *(cell if isinstance(cell, float) else int(cell) for cell in cells)))
    return Table(
        f"attributions-{student}",
        f"Mean |SHAP| by column: {STUDENTS[student]}",
        ("column", *head),
        tuple(rows),
        "In units of the student's margin, so that sizes of two students need not agree where their order does.",
    )


def _notes(inputs: EvaluationInput, train: Sample, test: Sample, columns: Sequence[str]) -> list[str]:
    real = len(inputs.cohort.schema.names)
    notes = [
        f"Students of real rows saw {some_of(len(train), train.of)} training rows, those of condensed rows "
        f"{some_of(min(len(inputs.rows), ROWS), len(inputs.rows))}; explained were {some_of(len(test), test.of)} "
        "held-out rows.",
        "Intervals resample the explained rows; the students stay as they are. Random real rows are some of those that "
        "the student of real rows saw, as many of each class as condensed rows.",
        f"Two lists of {_tops(columns)['attribution_top']} columns drawn by chance share "
        f"{_tops(columns)['attribution_top'] / max(len(columns), 1):.0%} on average.",
    ]
    if len(columns) < real:
        notes.append(f"{real - len(columns)} of {real} columns are not in the condensed rows and were left out.")
    return notes
