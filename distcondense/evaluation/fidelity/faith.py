"""PSyGenTAB's P (eq. 3) and FAITH (eq. 9–13): how far condensed rows are from training rows, and if they make sense.

P is a score of distances: it says nothing about what the guarantee says. Rules come from the schema. Beside condensed
rows stand held-out rows in their place: what rows reach that are nobody's copy. Few copies are never counted exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from distcondense.arrays import Flags, Floats, Matrix
from distcondense.data.codec import category_codes
from distcondense.data.rules import Rules
from distcondense.data.schema import Schema
from distcondense.evaluation.fidelity.comparison import HELD, Comparison, centred, legal_frame
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.score import CONDENSED, HELD_OUT, PLAIN, RANDOM, Interval, Score, interval
from distcondense.kernels.neighbours import nearest_manhattan
from distcondense.outcomes.likeness import FEWEST, beyond, column_numbers
from distcondense.outcomes.measures import Measured, ranking
from distcondense.outcomes.utility import alignment, composed, nothing
from distcondense.runs.figures import Table

ASKED = 2_000  # condensed and held-out rows whose nearest training rows are looked for
AMONG = 10_000  # training rows that are searched
WORK = 4e9  # differences of two numbers: wide tables get fewer training rows
NEARER = 0.05  # ε of eq. 12: this share of held-out rows is as near to a training row
P_WEIGHTS = (0.5, 0.25, 0.25)  # λ of eq. 3
COUNTED = "counted, not estimated"
ROUNDED = f"a count below {FEWEST} is taken for {FEWEST}"
TITLES = {
    "p_distance": "P of PSyGenTAB: a distance score, not a privacy guarantee, eq. 3 (1: farthest)",
    "d_c": "Distance to the closest record, Gower, and its ratio (0: copies)",
    "delta_dist": "Nearer to training rows than held-out rows are (0: no)",
    "r_dup": "Copies and repeated rows, share (0: none)",
    "faith": "FAITH of PSyGenTAB, eq. 9 (1: best)",
    "s_fact": "Factuality: rows that break no rule, eq. 10 (1: all)",
    "s_align": "Alignment of correlations, eq. 11 (1: same)",
    "s_integ": "Integrity: rows that are nobody's, eq. 12 (1: all)",
    "s_track": "Tracking: rows within the real range, eq. 13 (1: all)",
}
CHOICES = (
    f"P: λ = {P_WEIGHTS[0]:g}, {P_WEIGHTS[1]:g}, {P_WEIGHTS[2]:g}; eq. 3 then lies within ±½ and is moved by ½ into "
    "[0, 1]. D_c: mean of Gower distance and its ratio to the second nearest. Δ_dist: 2·P(a condensed row is nearer "
    "than a held-out row) − 1, at least 0. R_dup: share of rows that equal a training row or each other.",
    f"FAITH: equal weights, as in the paper. Integrity: ε is the distance within which {NEARER:.0%} of held-out rows "
    "have a training row.",
    "The yardstick of P and FAITH are held-out rows in the place of condensed ones.",
)


# -- P ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class NearestDistances:
    """Gower distances of condensed and of held-out rows to the nearest and second nearest training row."""

    made: Floats  # (m, 2)
    held: Floats  # (n, 2)
    repeated: Flags  # (m,) condensed rows that equal an earlier one
    note: str


def nearness(inputs: EvaluationInput, seed: int, threads: int) -> NearestDistances:
    frame, schema = legal_frame(inputs), inputs.schema
    schema = schema.only(name for name in schema.names if name in frame and name in inputs.cohort.features)
    chosen = np.sort(np.random.default_rng([seed, 0x60E2]).permutation(len(frame))[:ASKED])
    held = inputs.sample(inputs.split.test, ASKED, seed)
    width = sum(2 if c.numeric else max(len(c.categories) + 1, 1) for c in schema.columns)
    most = int(np.clip(WORK / ((len(chosen) + len(held)) * width), FEWEST, AMONG))
    train = inputs.sample(inputs.split.train, most, seed)
    tables = gower_rows(schema, train.features, train.features, frame.iloc[chosen], held.features)
    among, made, real = (np.ascontiguousarray(table) for table in tables)
    near = [nearest_manhattan(rows, among, 2, threads)[0] for rows in (made, real)]
    repeated = pd.DataFrame(made).duplicated().to_numpy()
    note = (
        f"P and FAITH: {len(chosen):,} condensed and {len(held):,} held-out rows, chosen at random where there are "
        f"more, against {len(train):,} of {train.of:,} training rows."
    )
    return NearestDistances(near[0], near[1], repeated, note)


def gower_rows(schema: Schema, of: pd.DataFrame, *tables: pd.DataFrame) -> list[Matrix]:
    """Rows whose Manhattan distance is Gower's: the mean over columns of |difference|/range, or 0 and 1 of categories.

    The range is that of the first table. A hole lies in the middle and is half a range farther from any number.
    """
    out: list[list[Floats]] = [[] for _ in tables]
    many = max(len(schema.columns), 1)
    for column in schema.columns:
        if not column.numeric:
            size = len(column.categories) + 1
            for blocks, table in zip(out, tables, strict=True):
                blocks.append(np.eye(size)[category_codes(table[column.name], column)] / 2 / many)
            continue
        known = column_numbers(of[column.name], column)
        known = known[~np.isnan(known)]
        low, width = (float(known.min()), float(np.ptp(known))) if len(known) else (0.0, 0.0)
        for blocks, table in zip(out, tables, strict=True):
            values = column_numbers(table[column.name], column)
            hole = np.isnan(values)
            place = (values - low) / (width or 1.0)
            blocks.append(np.stack([np.where(hole, 0.5, place), hole / 2], axis=1) / many)
    return [np.concatenate(blocks, axis=1).astype(np.float32) for blocks in out]


def distance_scores(near: NearestDistances) -> list[Score]:
    """Eq. 3 for condensed rows; for held-out rows in their place."""
    scores = []
    for name, labels, rows, repeated in (
        (CONDENSED, PLAIN, near.made, near.repeated),
        (RANDOM, "", near.held, np.zeros(len(near.held), bool)),
    ):
        for measure, found in p_parts(rows, near.held, repeated).items():
            counted = measure == "r_dup"
            few = counted and round(found.value * len(rows)) == FEWEST
            about = {"rows": len(rows), "note": ROUNDED if few else "", "labels": labels}
            how, covered = COUNTED if counted else "1.96 standard errors over rows", name == CONDENSED
            scores.append(
                Score.from_interval(measure, name, HELD_OUT, found, len(near.held), covered, interval=how, **about)
            )
    return scores


def p_parts(rows: Floats, held: Floats, repeated: Flags) -> dict[str, Interval]:
    """P and its three parts from (m, 2) distances to the two nearest training rows."""
    ratio = np.divide(rows[:, 0], rows[:, -1], out=np.zeros(len(rows)), where=rows[:, -1] > 0)
    each = (np.minimum(rows[:, 0], 1.0) + ratio) / 2
    label = np.concatenate([np.ones(len(held), np.int8), np.zeros(len(rows), np.int8)])
    nearer = ranking(label, np.concatenate([held[:, 0], rows[:, 0]]))
    assert nearer.influence is not None
    delta, slope = max(2 * nearer.value - 1, 0.0), 2.0 * (nearer.value > 0.5)
    copied = int(((rows[:, 0] == 0) | repeated).sum())
    copies = min(hidden(copied), len(rows)) / len(rows)
    closeness = np.concatenate([np.zeros(len(held)), (each - each.mean()) / len(rows)])
    first, second, third = P_WEIGHTS
    value = first * each.mean() - second * delta - third * copies + second + third
    found = {
        "p_distance": Measured(value, first * closeness - second * slope * nearer.influence),
        "d_c": Measured(float(each.mean()), closeness),
        "delta_dist": Measured(delta, slope * nearer.influence),
    }
    reaches = {name: interval(measured) for name, measured in found.items()}
    within = {name: Interval(at.value, max(at.low, 0.0), min(at.high, 1.0)) for name, at in reaches.items()}
    return {**within, "r_dup": Interval(copies, copies, copies)}


def hidden(count: int) -> int:
    """A small number of rows that are like a patient's is not said exactly."""
    return FEWEST if 0 < count < FEWEST else count


# -- FAITH ------------------------------------------------------------------------------------------------------------


def faith_scores(
    inputs: EvaluationInput, comparison: Comparison, gaps: Sequence[Floats], near: NearestDistances, seed: int
) -> tuple[list[Score], tuple[Table, ...]]:
    """Eq. 9–13 for every way, and which rules are broken how often."""
    frame, held = legal_frame(inputs), inputs.sample(inputs.split.test, HELD, seed).features
    rules = Rules(inputs.schema)
    epsilon = float(np.quantile(near.held[:, 0], NEARER))
    support = TrainingSupport.from_inputs(inputs)
    scores = []
    for k, side in enumerate(comparison.sides):
        table, distances = (held, near.held) if side.name == RANDOM else (frame, near.made)
        lines = alignment(comparison, gaps[k])
        parts: dict[str, tuple[Floats, str]] = {
            "s_fact": _share(~obeying(rules, table), exact=side.name != RANDOM)
            if rules
            else nothing("the schema declares no rules"),
            "s_align": nothing("no two columns of numbers that vary") if lines is None else (lines, ""),
            "s_integ": _share(distances[:, 0] <= epsilon),
            "s_track": _share(support.outside(table)),
        }
        for name, (values, note) in {"faith": composed(parts), **parts}.items():
            counted = name not in ("faith", "s_align") and bool(np.isfinite(values[0]))
            found = Interval(*[float(values[0])] * 3) if counted else centred(values)
            scores.append(comparison.score(name, side, found, note=note, how=COUNTED if counted else ""))
    return scores, _rule_table(rules, frame, held)


def _share(bad: Flags, exact: bool = False) -> tuple[Floats, str]:
    """The share of other rows; a small number of bad ones exactly only where it tells about no patient."""
    there = int(bad.sum())
    count = there if exact else hidden(there)
    return np.array([1 - min(count, len(bad)) / max(len(bad), 1)]), "" if count == there else ROUNDED


def obeying(rules: Rules, frame: pd.DataFrame) -> Flags:
    """(m,) rows that break no rule and whose derived columns are what their formulas say."""
    obeys = rules.holds(frame)
    if rules.derived:
        plain = frame.reset_index(drop=True)
        computed = rules.completed(plain)
        for name in rules.derived:
            if name in plain and name in computed:
                obeys &= _same(plain[name], computed[name], rules.columns[name].numeric)
    return obeys


def _same(one: pd.Series, other: pd.Series, numeric: bool) -> Flags:  # type: ignore[type-arg]
    if numeric:
        a, b = (series.to_numpy(dtype=np.float64, na_value=np.nan) for series in (one, other))
        return np.isclose(a, b, rtol=1e-6, atol=0.0, equal_nan=True)
    ours, theirs = one.astype(object), other.astype(object)
    return ((ours == theirs) | (ours.isna() & theirs.isna())).to_numpy(bool)


@dataclass(frozen=True, repr=False)
class TrainingSupport:
    """What training rows have: the range of each number, the categories of each other column."""

    schema: Schema
    ranges: Mapping[str, tuple[float, float]]
    present: Mapping[str, Flags]

    @classmethod
    def from_inputs(cls, inputs: EvaluationInput) -> TrainingSupport:
        train, ranges, present = inputs.cohort.features, {}, {}
        schema = inputs.schema.only(name for name in inputs.schema.names if name in train)
        for column in schema.columns:
            series = train[column.name].iloc[inputs.split.train]
            if column.numeric:
                values = column_numbers(series, column)
                values = values[~np.isnan(values)]
                ranges[column.name] = (float(values.min()), float(values.max())) if len(values) else (np.inf, -np.inf)
            else:
                seen = np.zeros(len(column.categories) + 1, bool)
                seen[category_codes(series, column)] = True
                present[column.name] = seen
        return cls(schema, ranges, present)

    def outside(self, frame: pd.DataFrame) -> Flags:
        """(m,) rows with a value that no training row reaches; a hole is no value."""
        out = np.zeros(len(frame), bool)
        for column in self.schema.columns:
            if column.name not in frame:
                continue
            if column.numeric:
                out |= beyond(column_numbers(frame[column.name], column), self.ranges[column.name])
            else:
                codes = category_codes(frame[column.name], column)
                out |= ~self.present[column.name][codes] & (codes < len(column.categories))
        return out


def _rule_table(rules: Rules, frame: pd.DataFrame, held: pd.DataFrame) -> tuple[Table, ...]:
    if not rules:
        return ()
    real = {rule.words: count for rule, count in rules.broken(held)}
    rows = tuple(
        (rule.words, count, f"<{FEWEST}" if 0 < real.get(rule.words, 0) < FEWEST else real.get(rule.words, 0))
        for rule, count in rules.broken(frame)
    )
    columns = ("Rule", f"Condensed rows that break it, of {len(frame):,}", f"Held-out rows, of {len(held):,}")
    return (Table("rules", "Rules of the schema", columns, rows, "Factuality counts rows that break any of them."),)
