"""Utility at other sites: models of one hospital's rows on another hospital's patients (paper 000 §2.4, Table 4).

Everything here can be made from a finished run folder and the two tables, so a site may be added later without
condensing again: a private run is not repeated (and not paid for) because somebody wants one more test.
The numbers are computed on patients: they belong in `internal/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Outcome, Split
from distcondense.errors import ModelError, UserError
from distcondense.evaluate.utility import RESAMPLES, best_threshold, estimates, random_rows
from distcondense.methods.base import Floats, Matrix, in_unit
from distcondense.models.base import Reference
from distcondense.models.learners import Learner


@dataclass(frozen=True, repr=False)
class Home:
    """The site whose rows were condensed, and the condensed rows as its release holds them."""

    cohort: Cohort
    split: Split
    learner: Learner
    codec: Codec
    rows: Matrix  # (m, d) condensed, encoded; m = 0 where a private run had no answer
    outcome: Outcome  # (m,)
    time_unit: float
    private: bool
    risk: Floats | None = None
    weight: Floats | None = None


@dataclass(frozen=True)
class _Trained:
    """A fitted model, how rows are encoded for it, and its threshold, chosen at home."""

    model: Reference
    codec: Codec
    threshold: float | None


def evaluate_elsewhere(home: Home, sites: Mapping[str, Cohort], *, seed: int, threads: int) -> dict[str, Any]:
    """Full data, condensed and random real rows of home, on the test part of every other site.

    As in `evaluate`: thresholds are chosen on home's validation rows (private: its training rows), the full-data model
    of the private mechanism sees all columns. Of another site only the test part (20%, same seed) is used, so that its
    own models and those from elsewhere are measured on the same patients.
    """
    trained = _train(home, seed, threads)
    return {name: _tested(home, trained, site, seed) for name, site in sites.items()}


def _train(home: Home, seed: int, threads: int) -> dict[str, tuple[int, _Trained | str]]:
    """Rows and model of every way to train at home; in words why there is none."""
    cohort, split = home.cohort, home.split
    choosing = split.train if home.private else split.validation
    train, choose = (in_unit(cohort.outcome.take(part), home.time_unit) for part in (split.train, choosing))
    wide = Codec.public(cohort.schema) if home.private else home.codec

    def rows(codec: Codec, part: NDArray[np.int64]) -> Matrix:
        return codec.encode(cohort.features.iloc[part])

    def trained(codec: Codec, fit: Callable[[], Reference]) -> _Trained | str:
        try:
            model = fit()
        except ModelError as error:
            return str(error)
        binary = cohort.task == "binary"
        cut = best_threshold(choose.label, model.scores(rows(codec, choosing))) if binary else None
        return _Trained(model, codec, cut)

    def full() -> Reference:
        validation = None if home.private else (rows(wide, choosing), choose)
        return home.learner.fit(rows(wide, split.train), train, validation=validation, seed=seed, threads=threads)

    ways: dict[str, tuple[int, _Trained | str]] = {"full": (len(split.train), trained(wide, full))}
    if len(home.outcome):
        student = in_unit(home.outcome, home.time_unit)
        chosen = random_rows(train, home.outcome, seed)
        condensed = trained(home.codec, lambda: home.learner.fit(
            home.rows, student, risk=home.risk, weight=home.weight, seed=seed, threads=threads))  # fmt: skip
        few = trained(home.codec, lambda: home.learner.fit(
            rows(home.codec, split.train[chosen]), train.take(chosen), seed=seed, threads=threads))  # fmt: skip
        ways |= {"condensed": (len(home.outcome), condensed), "random_real": (len(chosen), few)}
    return ways


def _tested(
    home: Home, trained: Mapping[str, tuple[int, _Trained | str]], site: Cohort, seed: int
) -> dict[str, Any]:  # fmt: skip
    try:
        test = site.split(seed=seed).test
    except UserError as error:
        return {"note": str(error)}
    outcome = in_unit(site.outcome.take(test), home.time_unit)
    person = None if site.person is None else site.person[test]

    def measured(way: _Trained | str) -> dict[str, Any]:
        if isinstance(way, str):
            return {"failed": way}
        score = way.model.scores(way.codec.encode(site.features.iloc[test]))
        return estimates(way.model.link, score, outcome, way.threshold, seed=seed, person=person)

    return {
        **{name: measured(way) for name, (_, way) in trained.items()},
        "rows": {**{name: count for name, (count, _) in trained.items()}, "test": len(test)},
        "interval": f"95% percentile bootstrap, {RESAMPLES} resamples of the other site's test "
        + ("rows" if person is None else "persons"),
    }
