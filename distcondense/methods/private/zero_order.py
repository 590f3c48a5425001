"""Placed rows moved by the zero-order engine of Thakur et al. 2026, under the end-to-end guarantee.

Nothing here sees a patient. Where the published method has real rows, there is a pool of whole rows drawn from what
left the gate: it gives the scaling, the class means of the match loss and what the judge looks at. The reference is the
private model (and, if wanted, students of the placed rows, and models that a user brings). So this is post-processing:
no noise is needed, and any number of steps is free.

Rows start as `place` left them. Categories, holes and the plain outcome stay; a number moves at most so far that a
share REACH of the rows lies between, and never out of the cells of a pair of columns that was paid for. Numbers move
only where it helps: along the way the judge of the kind of outcome, who chose among the placed sets, looks at the legal
rows that would come of it, and then at one column after the other as the last step left it. The best are kept, and
those are the start where nothing was better. `python -m benchmarks.placement` measures what that is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distcondense.arrays import Flags, Floats, Index, Matrix
from distcondense.data.codec import Codec
from distcondense.data.outcome import Outcome
from distcondense.data.schema import Schema
from distcondense.errors import ModelError, SettingsError
from distcondense.kernels.update import NoiseRule
from distcondense.methods.base import Context
from distcondense.methods.private.options import PRIVATE_MODEL, STUDENTS
from distcondense.methods.private.placement import LARGE, Legal, PlacedRows, population
from distcondense.methods.zero_order.engine import (
    Problem,
    RealScores,
    ReferenceLoss,
    in_units_of_the_start,
    optimise,
    seed_key,
    widths_of,
)
from distcondense.methods.zero_order.objectives import LOSSES, Composite, Valued, softmax, squares
from distcondense.methods.zero_order.several import opened
from distcondense.models.additive import ensemble_of
from distcondense.models.base import EnsembleModel, Model
from distcondense.models.jacobian import JacobianPath
from distcondense.models.references import in_model_space
from distcondense.outcomes.base import Kind, Labelled
from distcondense.outcomes.private_side import Judge, PrivateFit, PrivateSide

Rng = np.random.Generator

DRAWN = 4000  # rows of the pool
REACH = 0.1  # share of the rows that a number may pass
RATE = 0.05  # Adam's, in standard deviations of the pool
WIDTHS = (0.025, 2.0)  # of the finite differences, as in the paper
RHO = 0.1  # the match loss's share
STRATA = 4  # of event times, as in the paper
LOOKS = 4  # of the judge, evenly over the steps
COLUMNS = 8  # that moved most, and are then judged one by one
TAUGHT = ("xgb", "logistic", "cox", "aft")  # learners that make references of the placed rows

# the published losses, and one of a number as outcome
OF_ONE_SCORE: dict[str, Callable[[Floats, Outcome], Valued]] = {
    **LOSSES,
    "value": lambda f, labels: squares(f, labels["value"]),
}


@dataclass(frozen=True)
class MoveSettings:
    """The settings of the engine's loop (see `zero_order.engine.Loop`); there is no budget to stop at."""

    seed: int
    steps: int
    learning_rate: float = RATE
    beta1: float = 0.9
    beta2: float = 0.999
    perturbation: tuple[float, float] = WIDTHS
    early_stopping: bool = True
    patience: int = 0
    epsilon: float | None = None

    def every(self, columns: int) -> int:
        return max(1, self.steps // LOOKS)


def moved(
    placed: PlacedRows,
    learned: PrivateFit,
    side: PrivateSide,
    *,
    seed: int,
    steps: int,
    references: Sequence[Any] = (),
    path: JacobianPath = "auto",
    legal: Legal | None = None,
    context: Context | None = None,
    among: Sequence[str] = (),
) -> tuple[PlacedRows, dict[str, Any]]:
    """The placed rows with numbers moved, or as they are where that helps nobody; and how it went, for run.json.

    `references`: names (`options.REFERENCES`) and models over `dc.design` columns; the private model where none is
    said. A row that `legal` would then call illegal stays where it is. `among`: learners whose students alone are
    moved against and asked, where it is not all that there are.
    """
    context = Context() if context is None else context
    if not learned.informative or not 0 < len(placed.codes) <= LARGE:  # larger sets are drawn, and not judged
        return placed, {}
    field = MovableRows.from_placed(placed, learned, side, np.random.default_rng([seed, 0x9006]), legal, among)
    losses = [term for name in references or (PRIVATE_MODEL,) for term in field.losses(name, seed, context.threads)]
    problem = Problem(
        in_units_of_the_start(losses, field.start, seed_key(seed), context.threads),
        field.start,
        NoiseRule(np.inf),
        field.box,
    )
    settings, judged = MoveSettings(seed, steps), field.judged
    before = judged(field.start)
    widths = widths_of(settings, seed_key(seed), 0, field.start.shape[1])
    with opened(problem.models, path, field.start, widths, context) as executors:
        state = optimise(
            problem, settings, validate=judged, executors=executors, threads=context.threads, progress=context.progress
        )
        execution = max((executor.facts() for executor in executors), key=len)  # of the one that has machines
    assert state.best_X is not None
    now, score = (state.best_X, state.best_score) if state.best_score > before else (field.start, before)
    now, after = field.column_by_column(now, score, state.X)
    facts = {
        "references": [model.name for model in problem.models],
        "steps": state.step,
        "released_step": state.best_step if score > before else 0,
        "judged_before": before,
        "judged_after": after,
        "columns_moved": field.differing(now),
        "execution": execution,
    }
    return (field.settled(now) if after > before else placed), facts


@dataclass(frozen=True)
class MovableRows:
    """Where rows move: the start, how far they may go, and the pool that stands where patients would."""

    placed: PlacedRows
    learned: PrivateFit
    side: PrivateSide
    codec: Codec  # scaled by the pool
    start: Matrix  # (m, d) encoded
    box: tuple[Matrix, Matrix]
    limits: tuple[Floats, Floats]  # (m, columns) of numbers, in original units
    rows: Matrix  # the pool, encoded
    outcome: Outcome  # of the pool
    judge: Judge
    legal: Legal | None
    among: tuple[str, ...] = ()

    @classmethod
    def from_placed(
        cls,
        placed: PlacedRows,
        learned: PrivateFit,
        side: PrivateSide,
        rng: Rng,
        legal: Legal | None = None,
        among: Sequence[str] = (),
    ) -> MovableRows:
        cells = learned.model.cells
        codes, inside = population(learned, DRAWN, rng, legal)
        at = rng.permutation((np.arange(DRAWN) + 0.5) / DRAWN)
        pool = PlacedRows(codes, inside, side.label(learned, codes, at, len(placed.codes)))
        frame, schema = pool.features(cells), Schema(tuple(cell.column for cell in cells))
        codec = Codec.fit(frame, schema, keep_constant=True)
        start = codec.encode(placed.features(cells))
        limits = _limits(placed, learned)
        seen = Codec.public(schema).encode(frame)
        judge = side.judge(learned, codes, seen, among)
        box = _box(start, codec, limits)
        rows = codec.encode(frame)
        outcome = pool.labelled.outcome
        return cls(placed, learned, side, codec, start, box, limits, rows, outcome, judge, legal, tuple(among))

    # -- references

    @property
    def kind(self) -> Kind:
        kind: Kind = self.placed.labelled.outcome.kind
        return kind

    def losses(self, reference: Any, seed: int, threads: int) -> list[ReferenceLoss]:
        if reference == PRIVATE_MODEL:
            return [self._private()]
        if reference == STUDENTS:
            return [self._loss(model) for model in self._students(seed, threads)]
        return [
            self._loss(
                in_model_space(
                    as_scores(reference), self.codec, self.kind.links, None, unit=self.side.unit, threads=threads
                )
            )
        ]

    def _private(self) -> ReferenceLoss:
        model = self.learned.model
        if np.ndim(model.intercept) == 0:
            return self._loss(model.over(self.codec))
        parts = tuple(
            EnsembleModel(f"{model.name}, score {k + 1}", "margin", ensemble_of(model.score(k), self.codec))
            for k in range(len(model.intercept))
        )
        label = self.placed.labelled.outcome["label"]
        return ReferenceLoss(parts, lambda f, means: softmax(f, label), RealScores((), ()))

    def _students(self, seed: int, threads: int) -> list[Model]:
        """Of the rows as they are placed, by the plain outcome, as whoever gets the table would train them."""
        outcome, kind = self._in_unit(self.placed.labelled.outcome), self.kind
        found = []
        for name in student_learners(kind, self.among):
            try:
                found.append(kind.learners[name].fit(self.start, outcome, seed=seed, threads=threads))
            except ModelError:  # some sets of few rows have no Cox model
                continue
        return found or [self.learned.model.over(self.codec)]

    def _in_unit(self, outcome: Outcome) -> Outcome:
        return self.kind.in_unit(outcome, self.side.unit)

    def _loss(self, model: Model) -> ReferenceLoss:
        """The published objective, with the pool where it has patients."""
        labels, pool = self._in_unit(self.placed.labelled.outcome), self._in_unit(self.outcome)
        of_rows, count, average = _strata(self.kind, pool, labels)
        of_pool, _, _ = _strata(self.kind, pool, pool)
        scores = model.scores(self.rows).astype(np.float64)
        real = RealScores(
            tuple(scores[of_pool == k] for k in range(count)), tuple(int((of_rows == k).sum()) for k in range(count))
        )
        loss = OF_ONE_SCORE[model.link]
        return ReferenceLoss((model,), Composite(lambda f: loss(f, labels), of_rows, average, RHO), real)

    # -- back to rows

    def judged(self, X: Matrix) -> float:
        placed = self.placed if X is self.start else self.settled(X)
        schema = Schema(tuple(block.column for block in self.codec.blocks))
        rows = Codec.public(schema).encode(placed.features(self.learned.model.cells))
        return float(self.judge(rows, placed.labelled))

    def column_by_column(self, X: Matrix, score: float, last: Matrix) -> tuple[Matrix, float]:
        """X with columns as they are in `last`, where the judge says so: those that moved most first; and its score."""
        far = np.abs(last - self.start).sum(axis=0)
        for at in np.argsort(-far, kind="stable")[:COLUMNS]:
            if far[at] == 0 or np.array_equal(X[:, at], last[:, at]):
                continue
            trial = X.copy()
            trial[:, at] = last[:, at]
            if (found := self.judged(trial)) > score:
                X, score = trial, found
        return X, score

    def differing(self, X: Matrix) -> list[str]:
        return [name for name, moved in zip(self.codec.names, (self.start != X).any(axis=0), strict=True) if moved]

    def settled(self, X: Matrix) -> PlacedRows:
        """Legal values nearest to X, in their cells; what was not moved, and rows that may not, as they were."""
        cells, raw, first = self.learned.model.cells, self.codec.legal(X), self.placed
        codes, inside, at = first.codes.copy(), first.inside.copy(), 0
        for j, (cell, block) in enumerate(zip(cells, self.codec.blocks, strict=True)):
            changed = np.flatnonzero(X[:, at] != self.start[:, at]) if cell.numeric else np.empty(0, np.int64)
            if len(changed):
                numbers = np.clip(raw[changed, at], *(limit[changed, j] for limit in self.limits))
                codes[changed, j], inside[changed, j] = cell.located(numbers)
            at += block.width
        back = self._contradicts(codes)
        if self.legal is not None:
            back |= ~self.legal(PlacedRows(codes, inside, first.labelled).features(cells))
        codes[back], inside[back] = first.codes[back], first.inside[back]
        return PlacedRows(codes, inside, self._labelled(codes))

    def _contradicts(self, codes: Index) -> Flags:
        """(m,) rows whose class would be another one now, where the class says what the private model expects."""
        labelled, even = self.placed.labelled, np.full(len(codes), 0.5)
        if labelled.soft is None or "label" not in labelled.outcome.arrays:
            return np.zeros(len(codes), np.bool_)
        before, after = (
            self.side.label(self.learned, at, even, len(codes)).outcome["label"] for at in (self.placed.codes, codes)
        )
        return np.asarray((before == labelled.outcome["label"]) & (after != before))

    def _labelled(self, codes: Index) -> Labelled:
        """The outcome that rows were moved towards, beside what the private model expects of them now."""
        labelled = self.placed.labelled
        if labelled.soft is not None:
            margin = self.learned.model.margin(codes)
            labelled = replace(labelled, soft=self.side.expected(margin))
        return self.side.weighted(self.learned, labelled)


def _limits(placed: PlacedRows, learned: PrivateFit) -> tuple[Floats, Floats]:
    """(m, columns) the lowest and highest that each number may become, in original units; NaN: it stays."""
    low = np.full(placed.codes.shape, np.nan)
    high = low.copy()
    coarse = _kept(learned)
    for j, (cell, p) in enumerate(zip(learned.model.cells, learned.overall, strict=True)):
        if not cell.numeric:
            continue
        here = np.flatnonzero(placed.codes[:, j] < cell.size - cell.hole)
        first, last = _stretch(placed.codes[here, j], p[: cell.size - cell.hole], coarse.get(j))
        low[here, j] = cell.numbers(first, np.zeros(len(here)))
        high[here, j] = cell.numbers(last, np.full(len(here), 1 - 2.0**-40))
    return low, high


def _kept(learned: PrivateFit) -> dict[int, Index]:
    """Of columns whose tables with others were paid for: the coarse cell of each cell, which a row must not leave."""
    if learned.joint is None:
        return {}
    paired = {j for pair in (*learned.joint.forest, *learned.joint.more) for j in pair}
    return {j: learned.joint.coarse[j] for j in paired}


def _stretch(codes: Index, p: Floats, coarse: Index | None) -> tuple[Index, Index]:
    """The first and last cell that each may move to: REACH of the rows away, within its coarse cell."""
    reached = np.cumsum(p) / max(float(p.sum()), 1e-12)
    rank = reached[codes] - p[codes] / max(float(p.sum()), 1e-12) / 2
    most = len(p) - 1
    first = np.minimum(np.searchsorted(reached, rank - REACH, side="right"), codes)
    last = np.clip(np.searchsorted(reached, rank + REACH, side="left"), codes, most)
    if coarse is not None:
        own = coarse[: len(p)]
        starts = np.flatnonzero(np.diff(own, prepend=-1))
        ends = np.append(starts[1:] - 1, most)
        run = np.searchsorted(starts, codes, side="right") - 1
        first, last = np.maximum(first, starts[run]), np.minimum(last, ends[run])
    return first, last


def _box(start: Matrix, codec: Codec, limits: tuple[Floats, Floats]) -> tuple[Matrix, Matrix]:
    """The limits, encoded; what stays has its own value for both."""
    low, high = start.copy(), start.copy()
    at = 0
    for j, block in enumerate(codec.blocks):
        centre, scale = codec.centre[at], codec.scale[at]
        for bound, limit, side in ((low, limits[0], np.minimum), (high, limits[1], np.maximum)):
            encoded = ((limit[:, j] - centre) / scale).astype(np.float32)
            bound[:, at] = np.where(np.isnan(encoded), start[:, at], side(encoded, start[:, at]))
        at += block.width
    return low, high


def _strata(kind: Kind, pool: Outcome, outcome: Outcome) -> tuple[Index, int, bool]:
    """Of the match loss; all rows together for a kind of outcome that the published method does not know."""
    try:
        return kind.match_strata(pool, outcome, STRATA)
    except NotImplementedError:
        return np.zeros(len(outcome), np.int64), 1, False


def student_learners(kind: Kind, among: Sequence[str] = ()) -> list[str]:
    """Learners whose students can be references: of one score a row; quick ones, where none is named."""
    return [name for name in among or TAUGHT if name in kind.learners and kind.learners[name].link in OF_ONE_SCORE]


# -- before a patient is read -----------------------------------------------------------------------------------------


def as_scores(model: Any) -> Any:
    """A classifier that is no tree ensemble as a function rows → P(yes); anything else as it is."""
    from distcondense.models.trees import library_of, tree_model

    if isinstance(model, Model) or not hasattr(model, "predict_proba"):
        return model
    if library_of(model) is not None:
        try:
            tree_model(model)
        except ModelError:  # a library that has trees has other models, too
            pass
        else:
            return model

    def scores(rows: Matrix) -> Any:
        return model.predict_proba(rows)[:, 1]

    scores.__name__ = type(model).__name__
    return scores


def refuse_references(
    references: Sequence[Any], kind: Kind, side: PrivateSide, schema: Schema, *, chosen: bool
) -> None:
    """What cannot be moved against is refused here, while the budget is whole. `chosen`: columns will be."""
    if STUDENTS in [name for name in references if isinstance(name, str)] and not student_learners(kind):
        raise SettingsError(
            "references",
            "students must have one score a row",
            found=f"a {kind.name} outcome",
            fix=f"say --references {PRIVATE_MODEL}",
        )
    given = [model for model in references if not isinstance(model, str)]
    if not given:
        return
    if chosen or any(column.unknown for column in schema.columns):
        raise SettingsError(
            "references",
            "a model from elsewhere needs columns that are public",
            found="columns that are chosen, or described, by noisy answers",
            fix=f"say --references {PRIVATE_MODEL}",
        )
    codec = Codec.public(schema)
    for model in given:
        fitted = in_model_space(as_scores(model), codec, kind.links, None, unit=side.unit)
        if fitted.link not in OF_ONE_SCORE:
            raise ModelError(
                f"reference {fitted.name!r}",
                f"must have scores that are a {' or a '.join(OF_ONE_SCORE)}",
                found=f"scores that are a {fitted.link}",
            )
        fitted.scores(np.zeros((2, len(codec.names)), np.float32))  # it must answer now, not after the budget is spent
