"""Hazard ratios of Cox models of real and of condensed rows, with intervals and their overlap (Thakur et al. Table 5).

Both are fitted by lifelines without a penalty; where that finds no steady answer (too few rows, columns that say the
same), with the smallest penalty that does, which is stated. A number's ratio is per a tenth of its declared bounds, so
that the unit is public; without bounds, per standard deviation of the condensed rows. A category's is against one
reference category of its column: the one that is most common in both tables.

Beside them the ratios as the paper prints them: L2 penalty 1, every category with its own, per standard deviation of
the real rows, the strongest first. Such a penalty draws all of them towards 1: they say which covariates a model leans
on, not what they do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import stats

from distcondense.arrays import Flags, Floats, Index, Numbers
from distcondense.data.codec import Codec, EncodedColumn
from distcondense.errors import ModelError
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.interpretation.training import ROWS, WORDS
from distcondense.evaluation.resampling import RESAMPLES, between, choose, one_row_each, resampled, some_of
from distcondense.evaluation.score import CONDENSED, FULL, NORMAL, PLAIN, RANDOM, SOFT, UNKNOWN, Score, interval
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.models.learners import COX_PENALTY
from distcondense.outcomes import measures
from distcondense.runs.figures import DOTS, Figure, Series, Table

NAME, TITLE = "hazards", "Hazard ratios"
ROBUST_ROWS = 4_000  # of a weighted fit: the errors that stay right under weights take ten times as long
COVARIATES = 40  # at most; of more, those that say most about the real rows one by one
FEWEST = 10  # real rows with and without a category, and real events: fewer would tell about single patients
PENALTIES = (0.0, 1e-3, 1e-2, 1e-1)
STEADY = 3.0  # most that a standard error may be, per standard deviation of its column
SAME = 1e-5  # of a covariate's length: where less is left, those before it say the same
TOP = 15  # covariates that are drawn
TRAINING = "training rows"
TITLES = {
    "hazard_direction": "Hazard ratios on the same side of 1 (1: all)",
    "hazard_direction_clear": "The same, of those whose real interval leaves out 1 (1: all)",
    "hazard_covered": "Real hazard ratios within the condensed interval (about 1: as intervals promise)",
    "hazard_overlap": "Overlap of intervals (1: same)",
    "hazard_difference": "Mean difference of log hazard ratios (0: same)",
    "hazard_order": "Rank correlation of penalised log hazard ratios (1: same order)",
    "hazard_strongest": "Of the strongest penalised ratios, the share that both have (1: all)",
}


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """Hazard ratios side by side, and how well they agree; for outcomes with a time and an event."""
    if "time" not in inputs.cohort.outcome.arrays:
        return Section(NAME, TITLE, notes=("Hazard ratios are for outcomes with a time and an event.",))
    if not len(inputs.rows):
        return Section(NAME, TITLE, notes=("The run made no rows: there are no hazard ratios to compare.",))
    log("fitting Cox models")
    rows, person = inputs.split.train, inputs.cohort.person
    if person is not None:  # standard errors take rows for people, so that one row of each is enough
        rows = np.sort(one_row_each(rows, person, np.random.default_rng([seed, 0x9E45])))
    real = inputs.sample(rows, ROWS, seed)
    time, event = real.outcome["time"], real.outcome["label"] == 1
    if event.sum() < FEWEST or len(event) < 2 * FEWEST:
        return Section(NAME, TITLE, notes=(f"Fewer than {FEWEST} real training rows have the event.",))
    here, there = unscaled(inputs.codec, inputs.codec.encode(real.features)), unscaled(inputs.codec, inputs.rows)
    terms, left = covariates(inputs, here, there, time, event)
    tables = _tables(inputs, here, there, time, event, seed)
    fits: dict[tuple[str, str], HazardRatios] = {}
    notes = _notes(inputs, len(real), real.of, left, len(terms))
    for way, (design, of_time, of_event, weight) in tables.items():
        try:
            fits[way] = cox([term.of(design) for term in terms], of_time, of_event, weight)
        except ModelError as error:
            fits[way] = HazardRatios.none(len(terms))
            notes.append(f"Cox model of {_words(way)}: {error}.")
        else:
            if fits[way].penalty:
                notes.append(f"The Cox model of {_words(way)} needed an L2 penalty of {fits[way].penalty:g}.")
    truth = fits.pop((FULL, ""))
    scores = [score for way, found in fits.items() for score in _scores(way, truth, found, seed)]
    printed, more = _as_printed(inputs, here, tables, seed)
    scores += more
    settings = {"rows": len(real), "of rows": real.of, "covariates": len(terms), "penalties": list(PENALTIES)}
    order = np.argsort(-np.abs(np.nan_to_num(truth.log)), kind="stable")
    shown = {way: found for way, found in fits.items() if way[0] != RANDOM}
    return Section(
        NAME,
        TITLE,
        tuple(scores),
        (_figure(terms, truth, shown, order[:TOP]),),
        (_table(terms, truth, shown, order), *printed),
        tuple(notes),
        TITLES,
        settings,
    )


# -- covariates -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Covariate:
    """One covariate: an encoded column, and what a step of it is."""

    name: str
    step: str  # in words
    at: int  # its place among the encoded columns
    scale: float = 1.0

    def of(self, raw: Floats) -> Floats:
        return np.asarray(raw[:, self.at] / self.scale, np.float64)


def unscaled(codec: Codec, rows: Numbers) -> Floats:
    """(n, d) numbers in original units, 0 or 1 for categories."""
    return np.asarray(rows, np.float64) * codec.scale + codec.centre


def covariates(
    inputs: EvaluationInput, real: Floats, made: Floats, time: Floats, event: Flags
) -> tuple[list[Covariate], list[str]]:
    """The covariates, and in words what was left out."""
    terms, rare, at = [], 0, 0
    for block in inputs.codec.blocks:
        here = range(at, at + block.width)
        at += block.width
        yes = (real[:, here.start : here.stop] > 0.5).sum(axis=0)  # rows enough with and without a category
        common = (yes >= FEWEST) & (yes <= len(real) - FEWEST)
        kept = [k for k in here if common[k - here.start] or (block.column.numeric and k == here.start)]
        rare += block.width - len(kept)
        against = ""
        if block.values and kept:  # the reference; categories that are left out count as it
            chosen = kept.pop(int(np.argmax([min(real[:, k].mean(), made[:, k].mean()) for k in kept])))
            against = block.names[chosen - here.start].removeprefix(f"{block.column.name}=")
        terms += [_term(inputs, block, k - here.start, k, against, made[:, k]) for k in kept]
    left = [f"{rare} categories that fewer than {FEWEST} real rows have, or do not have, are left out."] if rare else []
    if len(terms) > COVARIATES:
        left.append(f"Of {len(terms)} covariates those {COVARIATES} are compared that say most about the real rows.")
        z = score_test(np.stack([term.of(real) for term in terms], axis=1), time, event)
        terms = [terms[k] for k in np.sort(np.argsort(-np.abs(z), kind="stable")[:COVARIATES])]
    own = independent([term.of(real) for term in terms])
    if not all(own):
        names = ", ".join(term.name for term, new in zip(terms, own, strict=True) if not new)
        left.append(f"Left out, because the real rows say the same in covariates before them: {names}.")
    return [term for term, new in zip(terms, own, strict=True) if new], left


def independent(covariates: Sequence[Floats]) -> list[bool]:
    """Whether each says something that those before it, together, do not."""
    if not len(covariates):
        return []
    design = np.stack([np.ones_like(covariates[0]), *covariates], axis=1)
    length = np.sqrt((design**2).sum(axis=0))
    triangle = np.linalg.qr(design / np.where(length > 0, length, 1.0), mode="r")
    left = np.zeros(design.shape[1])  # of each covariate's length, what those before it leave
    left[: len(triangle)] = np.abs(np.diagonal(triangle))
    return [bool(one > SAME) for one in left[1:]]


def _term(inputs: EvaluationInput, block: EncodedColumn, k: int, at: int, against: str, made: Floats) -> Covariate:
    """The k-th encoded column of a block, with its public step."""
    column, name = block.column, block.names[k]
    if block.values:
        return Covariate(name, f"against {against}", at)
    if not column.numeric:
        return Covariate(f"{name}={column.categories[1]}", f"against {column.categories[0]}", at)
    if k > 0:
        return Covariate(name, "against present", at)
    if column.low is not None and column.high is not None and column.high > column.low:
        tenth = float(column.high - column.low) / 10
        public = inputs.schema.origin == "declared"
        return Covariate(name, f"{tenth:g} {column.unit}".strip() if public else "a tenth of its bounds", at, tenth)
    spread = float(made.std())
    return Covariate(name, "standard deviation of the condensed rows", at, spread if spread > 0 else 1.0)


def score_test(design: Floats, time: Floats, event: Flags) -> Floats:
    """(k,) how far each covariate alone is from saying nothing: its correlation with martingale residuals, × √n."""
    times, at = np.unique(time, return_inverse=True)
    at_risk = len(time) - np.concatenate([[0], np.cumsum(np.bincount(at))[:-1]])
    hazard = np.cumsum(np.bincount(at, event.astype(np.float64), len(times)) / at_risk)
    residual = event - hazard[at]
    apart = design - design.mean(axis=0)
    length = np.sqrt((apart**2).sum(axis=0) * (residual @ residual))
    dot = residual @ apart
    return np.asarray(np.divide(dot, length, out=np.zeros_like(dot), where=length > 0) * len(time) ** 0.5, np.float64)


# -- fits -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class HazardRatios:
    """Log hazard ratios (k,) and their standard errors; NaN where rows do not say."""

    log: Floats
    error: Floats
    penalty: float = 0.0
    rows: int = 0

    @classmethod
    def none(cls, covariates: int) -> HazardRatios:
        return cls(np.full(covariates, np.nan), np.full(covariates, np.nan))

    @property
    def low(self) -> Floats:
        return np.asarray(self.log - NORMAL * self.error)

    @property
    def high(self) -> Floats:
        return np.asarray(self.log + NORMAL * self.error)


def cox(
    covariates: Sequence[Floats],
    time: Floats,
    event: Flags,
    weight: Floats | None = None,
    penalties: Sequence[float] = PENALTIES,
) -> HazardRatios:
    """lifelines' Cox model with the first penalty that gives a steady answer; a covariate that is constant has none.

    With weights the standard errors are the robust ones (a sandwich), which do not take weights for patients.
    """
    from lifelines import CoxPHFitter
    from lifelines.exceptions import ConvergenceError

    design = np.stack(covariates, axis=1) if len(covariates) else np.empty((len(time), 0))
    varies = design.std(axis=0) > 1e-9 * np.maximum(np.abs(design).max(axis=0, initial=0.0), 1e-300)
    found = replace(HazardRatios.none(design.shape[1]), rows=len(time))
    if not varies.any() or event.sum() < 2:
        raise ModelError("rows", "must have two events and a covariate that varies", found="fewer")
    frame = pd.DataFrame(design[:, varies], columns=[f"x{k}" for k in range(int(varies.sum()))])
    frame["time"], frame["event"] = time, event
    if weight is not None:
        frame["weight"] = weight / weight.mean()
    for penalty in penalties:
        model = CoxPHFitter(penalizer=penalty)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what it warns of shows in the standard errors, which are looked at
                model.fit(
                    frame, "time", "event", weights_col=None if weight is None else "weight", robust=weight is not None
                )
        except (ConvergenceError, ValueError, ArithmeticError):
            continue
        log, error = (part.to_numpy(np.float64) for part in (model.params_, model.standard_errors_))
        plain = np.diagonal(model.variance_matrix_.to_numpy(np.float64))  # robust errors do not show what has no end
        steady = np.isfinite(plain).all() and (plain * design[:, varies].var(axis=0) < STEADY**2).all()
        if np.isfinite(log).all() and steady and (error > 0).all():
            found.log[varies], found.error[varies] = log, error
            return replace(found, penalty=penalty)
    raise ModelError("rows", "must give a Cox model that converges", found="none", fix="use more rows or fewer columns")


_Fit = tuple[Floats, Floats, Flags, Floats | None]  # design, time, event, weight


def _tables(
    inputs: EvaluationInput, here: Floats, there: Floats, time: Floats, event: Flags, seed: int
) -> Mapping[tuple[str, str], _Fit]:
    """What is fitted: real rows, condensed rows without and with their weights, as many random real rows."""
    made, weight = inputs.made, inputs.labelled.weight
    rng = np.random.default_rng([seed, 0xC0DE])
    plain, fewer = (choose(len(there), most, rng) for most in (ROWS, ROBUST_ROWS))
    flag = made["label"] == 1
    tables: dict[tuple[str, str], _Fit] = {
        (FULL, ""): (here, time, event, None),
        (CONDENSED, PLAIN): (there[plain], made["time"][plain], flag[plain], None),
    }
    if weight is not None:
        tables[CONDENSED, SOFT] = (there[fewer], made["time"][fewer], flag[fewer], np.asarray(weight, float)[fewer])
    random = np.sort(rng.choice(len(here), min(len(plain), len(here)), replace=False))
    tables[RANDOM, ""] = (here[random], time[random], event[random], None)
    return tables


# -- as printed -------------------------------------------------------------------------------------------------------


def every_covariate(codec: Codec, real: Floats) -> list[Covariate]:
    """All encoded columns that enough real rows have and have not, per standard deviation of the real rows."""
    terms, at, spread = [], 0, real.std(axis=0)
    for block in codec.blocks:
        for k, name in enumerate(block.names):
            column, number = block.column, block.column.numeric and k == 0
            yes = int((real[:, at] > 0.5).sum())
            if spread[at] > 0 and (number or FEWEST <= yes <= len(real) - FEWEST):
                two = not block.values and not column.numeric
                terms.append(Covariate(f"{name}={column.categories[1]}" if two else name, "sd", at, float(spread[at])))
            at += 1
    return terms


def _as_printed(
    inputs: EvaluationInput, real: Floats, tables: Mapping[tuple[str, str], _Fit], seed: int
) -> tuple[tuple[Table, ...], list[Score]]:
    """The table of Thakur et al. 2026 (Table 5), and how much of its order condensed rows keep; random ones beside."""
    terms = every_covariate(inputs.codec, real)
    found: dict[tuple[str, str], HazardRatios] = {}
    for way, (design, time, event, _) in tables.items():
        if way[1] != SOFT:
            try:
                found[way] = cox([term.of(design) for term in terms], time, event, penalties=(COX_PENALTY,))
            except ModelError:
                found[way] = HazardRatios.none(len(terms))
    truth = found.pop((FULL, ""))
    if not np.isfinite(truth.log).any():
        return (), []
    scores = []
    for (trained_on, labels), other in found.items():
        about = {"rows": other.rows, "student": "cox", "labels": labels}
        covered = trained_on == CONDENSED
        blank = Score.from_interval("", trained_on, TRAINING, UNKNOWN, len(terms), covered, **about)
        both = np.flatnonzero(np.isfinite(truth.log) & np.isfinite(other.log))
        if len(both) < 3:
            why = "no Cox model of one of the tables"
            scores += [replace(blank, measure=measure, note=why) for measure in ("hazard_order", "hazard_strongest")]
            continue
        drawn = [_order(truth.log[both[k]], other.log[both[k]]) for k in _again(len(both), seed)]
        reach = between(_order(truth.log[both], other.log[both]), drawn)
        scores.append(blank.with_interval(reach, f"{RESAMPLES} resamples of covariates", measure="hazard_order"))
        top = min(TOP, len(both))
        strongest = [set(both[np.argsort(-np.abs(one.log[both]), kind="stable")[:top]]) for one in (truth, other)]
        common = np.isin(sorted(strongest[0]), sorted(strongest[1]))
        reach = interval(measures.share(common, np.ones(top, bool)))
        scores.append(blank.with_interval(reach, "Wilson, over covariates", measure="hazard_strongest", n=top))
    shown = found[CONDENSED, PLAIN]
    rows, places = [], np.argsort(np.argsort(-np.abs(np.nan_to_num(shown.log)), kind="stable"), kind="stable")
    for place, k in enumerate(np.argsort(-np.abs(np.nan_to_num(truth.log)), kind="stable")):
        rows.append((terms[k].name, place + 1, _ratio(truth, k), int(places[k]) + 1, _ratio(shown, k)))
    table = Table(
        "hazard-ratios-penalised",
        "The same with an L2 penalty of 1, per standard deviation of the real rows, as Thakur et al. 2026 print them",
        ("covariate", "place, real rows", "real rows", "place, condensed rows", "condensed rows"),
        tuple(rows),
        f"The paper prints the first {TOP}. The penalty draws all ratios towards 1; –: does not vary in these rows.",
    )
    return (table,), scores


def _order(a: Floats, b: Floats) -> float:
    """Spearman's rank correlation; NaN where one of them is constant."""
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(stats.spearmanr(a, b).statistic)


def _again(size: int, seed: int) -> Iterator[Index]:
    """Resamples of so many things, as places."""
    for count in resampled(size, None, seed=seed):
        yield np.repeat(np.arange(size), count.astype(np.int64))


# -- how well they agree ----------------------------------------------------------------------------------------------


def interval_overlap(low: Floats, high: Floats, other_low: Floats, other_high: Floats) -> Floats:
    """Of two intervals [L, U] and [l, u] (Karr et al. 2006): how much of each is in the other, on average.

    J = ½·(o/(U − L) + o/(u − l)) with o = max(0, min(U, u) − max(L, l)). 1: the same; 0: apart. Where one is far
    longer and holds the other it is about ½: few rows have long intervals.
    """
    common = np.maximum(np.minimum(high, other_high) - np.maximum(low, other_low), 0.0)
    return np.asarray((common / (high - low) + common / (other_high - other_low)) / 2, np.float64)


def _scores(way: tuple[str, str], truth: HazardRatios, found: HazardRatios, seed: int) -> Iterator[Score]:
    trained_on, labels = way
    both = np.isfinite(truth.log) & np.isfinite(found.log)
    about = {"rows": found.rows, "student": "cox", "labels": labels}
    covered = trained_on == CONDENSED
    blank = Score.from_interval("", trained_on, TRAINING, UNKNOWN, int(both.sum()), covered, **about)
    if not both.any():
        plain = (measure for measure in TITLES if measure not in ("hazard_order", "hazard_strongest"))
        yield from (replace(blank, measure=measure, note="no Cox model of one of the tables") for measure in plain)
        return
    a, b = truth.log[both], found.log[both]
    low, high, other_low, other_high = (part[both] for part in (truth.low, truth.high, found.low, found.high))
    agrees, clear = np.sign(a) == np.sign(b), (low > 0) | (high < 0)
    whole = np.ones(len(a), bool)
    shares = {
        "hazard_direction": measures.share(agrees, whole),
        "hazard_direction_clear": measures.share(agrees, clear),
        "hazard_covered": measures.share((other_low <= a) & (a <= other_high), whole),
    }
    left = len(truth.log) - len(a)
    note = f"{left} covariates do not vary in one of the tables" if left else ""
    for measure, share in shares.items():
        why = note if np.isfinite(share.value) else "no real interval leaves out 1"
        of = int(clear.sum()) if measure == "hazard_direction_clear" else len(a)
        yield blank.with_interval(interval(share), "Wilson, over covariates", measure=measure, n=of, note=why)
    counts = np.array(list(resampled(len(a), None, seed=seed)))
    for measure, each in (
        ("hazard_overlap", interval_overlap(low, high, other_low, other_high)),
        ("hazard_difference", np.abs(a - b)),
    ):
        drawn = counts @ each / counts.sum(axis=1)
        reach = between(float(each.mean()), drawn)
        yield blank.with_interval(reach, f"{RESAMPLES} resamples of covariates", measure=measure, note=note)


# -- what people see --------------------------------------------------------------------------------------------------


def _words(way: tuple[str, str]) -> str:
    return WORDS[way[0]] + (", weighted" if way[1] == SOFT else "")


def _table(
    terms: Sequence[Covariate], truth: HazardRatios, shown: Mapping[tuple[str, str], HazardRatios], order: Index
) -> Table:
    rows = []
    for k in order:
        cells = [_ratio(truth, k)]
        for found in shown.values():
            overlap = interval_overlap(truth.low[k], truth.high[k], found.low[k], found.high[k])
            cells += [_ratio(found, k), f"{float(overlap):.2f}" if np.isfinite(overlap) else "–"]
        rows.append((terms[k].name, terms[k].step, *cells))
    head = [words for way in shown for words in (_words(way), f"overlap, {_words(way)}")]
    return Table(
        "hazard-ratios",
        "Hazard ratio [95% interval] by covariate",
        ("covariate", "per", "real rows", *head),
        tuple(rows),
        "Strongest in real rows first. –: does not vary in these rows, or no model.",
    )


def _ratio(found: HazardRatios, k: int) -> str:
    if not np.isfinite(found.log[k]):
        return "–"
    ratio, low, high = np.exp(np.clip([found.log[k], found.low[k], found.high[k]], -50, 50))
    return f"{ratio:.3g} [{low:.3g}, {high:.3g}]"


def _figure(
    terms: Sequence[Covariate], truth: HazardRatios, shown: Mapping[tuple[str, str], HazardRatios], most: Index
) -> Figure:
    series = []
    names = tuple(terms[k].name for k in most)
    for words, found in [("real rows", truth), *((_words(way), found) for way, found in shown.items())]:
        y, low, high = (tuple(round(float(part[k]), 4) for k in most) for part in (found.log, found.low, found.high))
        series.append(Series(words, names, y, low, high))
    return Figure(
        "hazard-ratios",
        DOTS,
        "Log hazard ratios of real and condensed rows",
        "Above 0 the event comes sooner, below 0 later. Whiskers are 95% intervals: the fewer the rows, the longer.",
        "covariate",
        "log hazard ratio",
        tuple(series),
        at=(("no effect", 0.0),),
    )


def _notes(inputs: EvaluationInput, rows: int, of: int, left: Sequence[str], terms: int) -> list[str]:
    each = " (one row of each person)" if inputs.cohort.person is not None else ""
    notes = [
        f"Cox models of {some_of(rows, of)} real training rows{each} and of "
        f"{some_of(min(len(inputs.rows), ROWS), len(inputs.rows))} condensed rows, {terms} covariates.",
        "Intervals of condensed rows are those that a recipient would state, as if the rows were patients.",
    ]
    if inputs.labelled.weight is not None:
        notes.append(f"Weighted: at most {ROBUST_ROWS:,} condensed rows, robust standard errors.")
    return [*notes, *left]
