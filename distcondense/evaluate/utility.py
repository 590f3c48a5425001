"""Utility on held-out patients: AUROC and what follows at the validation-chosen threshold, or the C-index.

Intervals are 95% percentile bootstrap over test patients (persons together where rows share a person). These numbers
are computed on patients outside any guarantee: they belong in `internal/`, never in `release/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Outcome, Split
from distcondense.errors import ModelError
from distcondense.methods.base import Condensed, in_unit
from distcondense.models.base import Link, Reference
from distcondense.outcomes.measures import AurocSample, CIndexSample

RESAMPLES = 1000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        return {k: (None if np.isnan(v) else float(v)) for k, v in vars(self).items()}


def bootstrap(
    measures: dict[str, Callable[[Floats | None], float]],
    rows: int,
    *,
    seed: int,
    person: NDArray[np.int64] | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, Estimate]:
    """Each measure on the sample and its percentile interval; a measure takes counts per row (None: all ones)."""
    rng = np.random.default_rng([seed, 0xB007])
    unit = np.arange(rows) if person is None else np.unique(person, return_inverse=True)[1]
    units = int(unit.max()) + 1
    drawn: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(resamples):
        counts = np.bincount(rng.integers(0, units, units), minlength=units).astype(np.float64)[unit]
        for name, measure in measures.items():
            drawn[name].append(measure(counts))
    out = {}
    for name, measure in measures.items():
        values = np.array(drawn[name])
        values = values[np.isfinite(values)]  # a resample without cases has no AUROC
        low, high = np.percentile(values, [2.5, 97.5]) if len(values) else (np.nan, np.nan)
        out[name] = Estimate(measure(None), float(low), float(high))
    return out


def best_threshold(label: NDArray[np.int8], score: NDArray[np.floating]) -> float:
    """The cut with the largest sensitivity + specificity (Youden), to be chosen on validation rows only."""
    order = np.argsort(-score, kind="stable")
    ranked, cases = score[order], label[order] == 1
    sensitivity = np.cumsum(cases) / max(cases.sum(), 1)
    fall_out = np.cumsum(~cases) / max((~cases).sum(), 1)
    last_of_tie = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # a cut must not split equal scores
    return float(ranked[last_of_tie[np.argmax((sensitivity - fall_out)[last_of_tie])]])


def measures_of(
    link: Link, score: NDArray[np.floating], outcome: Outcome, threshold: float | None
) -> dict[str, Callable[[Floats | None], float]]:
    """What can be said about scores on these rows."""
    if outcome.time is not None:
        return {"c_index": CIndexSample(outcome.time, outcome.label, -score if link == "log-time" else score)}
    case, flagged = outcome.label == 1, score >= (np.inf if threshold is None else threshold)

    def share(of: NDArray[np.bool_], among: NDArray[np.bool_]) -> Callable[[Floats | None], float]:
        def measure(weight: Floats | None) -> float:
            w = np.ones(len(of)) if weight is None else weight
            total = w[among].sum()
            return float(w[of & among].sum() / total) if total else float("nan")

        return measure

    return {
        "auroc": AurocSample(outcome.label, score),
        "sensitivity": share(flagged, case),
        "specificity": share(~flagged, ~case),
        "ppv": share(case, flagged),
        "npv": share(~case, ~flagged),
    }


def estimates(
    link: Link, score: NDArray[np.floating], outcome: Outcome, threshold: float | None, *, seed: int, person: Any
) -> dict[str, Any]:
    """Every measure of these scores with its interval, as run.json keeps them; `person` says whose row each is."""
    found = bootstrap(measures_of(link, score, outcome, threshold), len(outcome), seed=seed, person=person)
    return {"threshold": threshold, **{name: estimate.to_dict() for name, estimate in found.items()}}


def evaluate(cohort: Cohort, split: Split, condensed: Condensed, *, seed: int, threads: int) -> dict[str, Any]:
    """Full data, condensed, and as many random real rows of the same class balance, on the test part.

    Published: the reference is the model of the full data. Private: the reference is the private model, a row of its
    own, and the full-data model is fitted here, for the custodian's eyes only. The private mechanism has no validation
    part; there the threshold is chosen on training rows.
    """
    private = condensed.privacy.guarantee == "end-to-end"
    if private and (why := _nothing_to_measure(cohort, split)):
        return {"rows": {"condensed": len(condensed.outcome), "test": len(split.test)}, "note": why}
    unit, choosing = condensed.time_unit, split.train if private else split.validation
    real = {name: in_unit(cohort.outcome.take(part), unit)
            for name, part in (("train", split.train), ("choose", choosing), ("test", split.test))}  # fmt: skip
    person = None if cohort.person is None else cohort.person[split.test]
    learner = condensed.learner

    def encoded(codec: Codec) -> dict[str, Any]:
        return {name: codec.encode(cohort.features.iloc[part])
                for name, part in (("choose", choosing), ("test", split.test))}  # fmt: skip

    rows = encoded(condensed.codec)

    def measured(fit: Callable[[], Reference], seen: dict[str, Any] = rows) -> dict[str, Any]:
        try:
            model = fit()
        except ModelError as error:
            return {"failed": str(error)}
        threshold = None
        if cohort.task == "binary":
            threshold = best_threshold(real["choose"].label, model.scores(seen["choose"]))
        return estimates(model.link, model.scores(seen["test"]), real["test"], threshold, seed=seed, person=person)

    def full() -> dict[str, Any]:
        """All patients and, where the private model used a few columns only, all columns."""
        if not private:
            return measured(lambda: condensed.reference)
        some = condensed.codec.columns != cohort.schema.names
        every = encoded(Codec.public(cohort.schema)) if some else rows
        return measured(lambda: learner.fit(every["choose"], real["train"], seed=seed, threads=threads), every)

    def alike() -> dict[str, Any]:
        few = condensed.codec.encode(cohort.features.iloc[split.train[chosen]])
        return measured(lambda: learner.fit(few, real["train"].take(chosen), seed=seed, threads=threads))

    ways: dict[str, tuple[int, Callable[[], dict[str, Any]]]] = {"full": (len(split.train), full)}
    if private:
        ways["private_model"] = (len(split.train), lambda: measured(lambda: condensed.reference))
    if len(condensed.outcome):  # a private run without an answer has no rows
        chosen = random_rows(real["train"], condensed.outcome, seed)
        student = lambda: condensed.student(seed=seed, threads=threads)  # noqa: E731
        ways["condensed"] = (len(condensed.outcome), lambda: measured(student))
        ways["random_real"] = (len(chosen), alike)
    return {
        **{name: measure() for name, (_, measure) in ways.items()},
        "rows": {**{name: count for name, (count, _) in ways.items()}, "test": len(split.test)},
        "interval": f"95% percentile bootstrap, {RESAMPLES} resamples of test "
        + ("rows" if person is None else "persons"),
    }


def _nothing_to_measure(cohort: Cohort, split: Split) -> str:
    """Why a private run's release cannot be measured on patients; a run must not fail for that."""
    if not len(split.test):
        return "nobody was held out, so nothing was measured on patients"
    if any(cohort.outcome.take(part).lacks_a_class for part in (split.train, split.test)):
        return "too few rows of one class to measure on patients"
    return ""


def random_rows(train: Outcome, labels: Outcome, seed: int) -> NDArray[np.int64]:
    """Random training rows, as many of each class (event status) as the condensed set has, or all there are."""
    rng = np.random.default_rng([seed, 0x4EA1])
    chosen = []
    for value in (0, 1):
        there = np.flatnonzero(train.label == value)
        chosen.append(rng.permutation(there)[: int((labels.label == value).sum())])
    return np.concatenate(chosen)
