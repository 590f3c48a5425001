"""Singling out, linking and inferring, each beside a control group (Giomi et al. 2023, the method of anonymeter).

An attacker guesses from the condensed rows about patients who were in the table, and, by the very same rules, about
patients who were not. What works on both is what the table is for; what works better on those who were in it is a leak:

    risk = (attack − control)/(1 − control),

from success rates at the middle of their Wilson intervals, the interval of the risk by propagation of the two. Beside
it stands what random guesses reach: an attack that is no better says nothing about the risk.

Singling out: predicates read off the condensed rows that hold for exactly one row of a table, of one column (a value
that stands alone, the least, the most) or of several. Both tables have as many rows, for a larger one is harder to be
alone in. Linking: two disjoint sets of a patient's columns lead to the same nearest condensed row. Inferring: the
nearest condensed row's value of a secret column is the patient's (a number: within 5% of its spread).

Guesses about patients are about one row of each. Predicates are not: many of them hang on the same row, so their rate
varies like that of fewer guesses, as many as rows that change tables at random say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from distcondense.arrays import Flags, Floats, Index
from distcondense.evaluation.attacks.base import attack
from distcondense.evaluation.attacks.ceiling import NO_CEILING, Ceilings
from distcondense.evaluation.attacks.chance import shares_luck, shares_power
from distcondense.evaluation.attacks.mixed_table import MixedColumn, MixedTable
from distcondense.evaluation.attacks.targets import ceilings_of
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.resampling import one_row_each
from distcondense.evaluation.score import CONDENSED, Interval, Score, wilson_middle
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.runs.figures import DOTS, Figure, Series, Table

NAME, TITLE = "risks", "Singling out, linking, inferring"
GUESSES = 2_000  # of each attack, and of each control
ROWS = 20_000  # real rows that predicates are tried on, of each table
MADE = 5_000  # condensed rows that are searched
COLUMNS = 100  # that are looked at
SECRETS = 12  # columns that are guessed one by one, besides the outcome's
KNOWN = (2, 4, 8)  # numbers of columns that an attacker knows, besides all
TOLERANCE = 0.05  # of a number's spread: as good as known
EXCHANGES = 200  # of rows between the tables, to see how rates vary
CROWDED = 30  # rows of both tables that a predicate holds for: none of them is alone
FEW = 10  # successes below which no exact rate is shown
TESTED = "members and held out"
LINK, INFER, ALONE = "linking", "inferring", "singling_out"
WORDS = {ALONE: "singling out", LINK: "linking", INFER: "inferring"}
TITLES = {
    "singling_out_risk": "Singling out: risk beside the control (0: none)",
    "linking_risk": "Linking: risk beside the control (0: none)",
    "inferring_risk": "Inferring: risk beside the control (0: none)",
}
NOT_ALONE = "no ceiling: whether a row stands alone depends on all rows"
WEAK = "no better than random guesses: says nothing about the risk"
EQUAL, AT_MOST, AT_LEAST = 0, 1, 2


@dataclass(frozen=True)
class Rate:
    """Successes among guesses."""

    hits: int
    n: int
    crowd: float = 1.0  # so many guesses vary like one: those that hang on the same patient

    @classmethod
    def from_hits(cls, hits: Flags) -> Rate:
        """Of guesses about one patient each."""
        return cls(int(hits.sum()), len(hits))

    @property
    def share(self) -> float:
        return self.hits / self.n

    @property
    def middle(self) -> float:
        """Of Wilson's interval."""
        return float(wilson_middle(self.share, self.n / self.crowd)[0])

    @property
    def half(self) -> float:
        """Of its length."""
        return float(wilson_middle(self.share, self.n / self.crowd)[1])

    @property
    def counted(self) -> tuple[float, float]:
        """Successes and guesses that vary like them, each by itself."""
        return self.hits / self.crowd, self.n / self.crowd

    def __str__(self) -> str:
        return f"{self.share:.1%}" if self.hits >= FEW else f"<{FEW / self.n:.1%}"


@dataclass(frozen=True)
class Trial:
    """One attack: what it reached on patients who were in the table, on others, and what random guesses reach."""

    attack: str  # LINK, INFER, ALONE
    group: str  # what the attacker knew or wanted
    members: Rate
    control: Rate
    baseline: float

    @property
    def risk(self) -> float:
        return (self.members.middle - self.control.middle) / (1 - self.control.middle)

    @property
    def half(self) -> float:
        """Of the risk's 95% interval: ∂risk/∂attack = 1/(1 − control), ∂risk/∂control = (attack − 1)/(1 − control)²."""
        rest = 1 - self.control.middle
        return math.hypot(self.members.half / rest, self.control.half * (1 - self.members.middle) / rest**2)

    @property
    def reach(self) -> Interval:
        """The risk with its 95% interval."""
        return Interval(self.risk, self.risk - self.half, min(1.0, self.risk + self.half))

    @property
    def power(self) -> float:
        """The smallest risk that would have been found with a probability of LIKELY, the control being what it is."""
        c, members, control = self.control.middle, self.members, self.control
        return (shares_power(c, members.n / members.crowd, control.n / control.crowd) - c) / (1 - c)

    def score(self, ceilings: Ceilings | None, charged: bool, rows: int) -> Score:
        """The risk; an attack as good as random guesses says so."""
        alone, weak = self.attack == ALONE, self.members.middle + self.members.half <= self.baseline
        return Score.from_interval(
            f"{self.attack}_risk",
            CONDENSED,
            TESTED,
            self.reach,
            self.members.n + self.control.n,
            charged,
            rows=rows,
            note=WEAK if weak else NO_CEILING if ceilings is None else NOT_ALONE if alone else "",
            group=self.group,
            interval="Wilson, propagated from both rates",
            ceiling=None if ceilings is None or alone else ceilings.risk(self.control.middle),
            power=self.power,
            luck=shares_luck(*self.members.counted, *self.control.counted),
        )


@attack(NAME, TITLE)
def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """The three risks, each beside its control."""
    parts = inputs.split.train, inputs.split.test
    most = min(len(parts[0]), len(parts[1]), ROWS)
    mixed = MixedTable.from_inputs(inputs, most=COLUMNS, seed=seed, rows=MADE)
    tables = []
    for part in parts:  # one row of each person: guesses about them are independent
        sample = inputs.sample(part, most, seed)
        chosen = one_row_each(np.arange(len(sample)), sample.person, np.random.default_rng([seed, 0x09E9]))
        tables.append(mixed.laid_out(sample.features, sample.outcome)[chosen])
    as_many = min(map(len, tables))
    members, control = (table[:as_many] for table in tables)
    inside, outside = members[:GUESSES], control[:GUESSES]
    log("risks: singling out, linking, inferring")
    trials = [
        *singled_out(mixed, members, control, seed),
        *linked(mixed, inside, outside, seed),
        *inferred(mixed, inside, outside, seed),
    ]
    ceilings, charged = ceilings_of(inputs), inputs.privacy.charged
    scores = tuple(trial.score(ceilings, charged, len(inputs.rows)) for trial in trials)
    notes = [
        f"Tables of {as_many:,} of {len(parts[0]):,} rows that were condensed and of {len(parts[1]):,} held-out "
        f"rows, one of each person; at most {GUESSES:,} guesses of each attack on either.",
        f"{len(mixed.made):,} of {len(inputs.rows):,} condensed rows are searched, in {len(mixed.features):,} columns"
        + (f" by chance ({mixed.left_out:,} are left out)." if mixed.left_out else "."),
    ]
    settings = {
        "guesses": GUESSES,
        "rows": ROWS,
        "condensed_rows": MADE,
        "columns": COLUMNS,
        "secrets": SECRETS,
        "tolerance": TOLERANCE,
    }
    return Section(NAME, TITLE, scores, (_figure(trials),), (_table(trials),), tuple(notes), TITLES, settings)


# -- singling out -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Predicates:
    """Conjunctions of k terms: column, EQUAL, AT_MOST or AT_LEAST, value; (q, k) each."""

    column: Index
    sign: Index
    value: Floats

    def __len__(self) -> int:
        return len(self.column)

    def alone(self, table: Floats) -> int:
        """How many of them hold for exactly one row."""
        return sum(len(rows) == 1 for rows in self.rows(table))

    def rows(self, table: Floats) -> Iterator[Index]:
        """For which rows each of them holds: those of its rarest term, of which the other terms leave some."""
        columns = np.asfortranarray(table)
        order = {int(j): np.argsort(columns[:, j], kind="stable") for j in np.unique(self.column)}
        start, stop = np.zeros(self.column.shape, np.int64), np.zeros(self.column.shape, np.int64)
        for j, rows in order.items():
            here = self.column == j
            start[here], stop[here] = _range(columns[rows, j], self.sign[here], self.value[here])
        for q, rarest in enumerate((stop - start).argmin(1)):
            there = order[int(self.column[q, rarest])][start[q, rarest] : stop[q, rarest]]
            for k, (j, sign, value) in enumerate(zip(self.column[q], self.sign[q], self.value[q], strict=True)):
                if k != rarest and len(there):
                    there = there[_holds(columns[there, j], sign, value)]
            yield there

    def on_both(self, members: Floats, control: Floats, seed: int) -> tuple[Rate, Rate]:
        """How many single a row out in either table. Many may single out the same one, so that their number varies
        more than that of as many guesses: by how much is seen where rows change tables at random, which are alike."""
        table = np.concatenate([members, control])
        # of too many none is alone in either table
        held = [rows if len(rows) <= CROWDED else rows[:0] for rows in self.rows(table)]
        starts = np.concatenate([[0], np.cumsum([len(rows) for rows in held])])
        used, at = np.unique(np.concatenate([*held, np.empty(0, np.int64)]), return_inverse=True)  # most are in none
        holds = sparse.csr_array((np.ones(len(at)), at, starts), shape=(len(self), len(used)))
        ours = np.random.default_rng([seed, 0x5A99]).random((len(used), EXCHANGES + 1)) < len(members) / len(table)
        ours[:, 0] = used < len(members)
        hits = np.stack([((holds @ side.astype(np.float64)) == 1).sum(0) for side in (ours, ~ours)])
        share = hits[:, 0].mean() / len(self)
        expected = 2 * share * (1 - share) * len(self)
        varies = float(np.var(hits[0, 1:] - hits[1, 1:]))
        crowd = max(1.0, float(varies / expected)) if expected > 0 else 1.0
        return Rate(int(hits[0, 0]), len(self), crowd), Rate(int(hits[1, 0]), len(self), crowd)


def _range(values: Floats, sign: Index, value: Floats) -> tuple[Index, Index]:
    """Of each term, from where to where it holds in sorted values, holes last."""
    there, hole = values[~np.isnan(values)], np.isnan(value)
    low, high = (np.searchsorted(there, value, side) for side in ("left", "right"))
    start, stop = np.where(sign == AT_MOST, 0, low), np.where(sign == AT_LEAST, len(there), high)
    return np.where(hole, len(there), start), np.where(hole, len(values), stop)


def _holds(here: Floats, sign: int, value: float) -> Flags:
    if sign == EQUAL:
        return np.isnan(here) if np.isnan(value) else np.asarray(here == value)
    return np.asarray(here <= value if sign == AT_MOST else here >= value)


def singled_out(mixed: MixedTable, members: Floats, control: Floats, seed: int) -> Iterator[Trial]:
    """With predicates of one column, and of several; real rows are tables of the same size."""
    rng = np.random.default_rng([seed, 0xA10E])
    plans = {"one column": univariate(mixed, rng)}
    plans |= {f"{known} columns": multivariate(mixed, known, rng) for known in _numbers(len(mixed.features))}
    for group, predicates in plans.items():
        if len(predicates):
            guesses = random_predicates(mixed, len(predicates), predicates.column.shape[1], rng)
            rates = predicates.on_both(members, control, seed)
            yield Trial(ALONE, group, *rates, guesses.alone(members) / len(guesses))


def univariate(mixed: MixedTable, rng: np.random.Generator) -> Predicates:
    """A value that one condensed row alone has; the least and the most of a number."""
    terms: list[tuple[int, int, float]] = []
    for j in mixed.features:
        values, counts = np.unique(mixed.made[:, j], return_counts=True)
        terms += [(int(j), EQUAL, float(value)) for value in values[counts == 1]]
        there = values[~np.isnan(values)]
        if mixed.columns[j].numeric and len(there):
            terms += [(int(j), AT_MOST, float(there[0])), (int(j), AT_LEAST, float(there[-1]))]
    if len(terms) > GUESSES:
        terms = [terms[k] for k in rng.choice(len(terms), GUESSES, replace=False)]
    column, sign, value = np.array(terms, np.float64).reshape(-1, 3).T[:, :, None]
    return Predicates(column.astype(np.int64), sign.astype(np.int64), value)


def multivariate(mixed: MixedTable, known: int, rng: np.random.Generator) -> Predicates:
    """Of a condensed row: its categories, and of its numbers that they are no nearer to the middle than they are."""
    column = _choices(mixed.features, GUESSES, known, rng)
    value = mixed.made[rng.integers(0, len(mixed.made), GUESSES)[:, None], column]
    there = (values[~np.isnan(values)] for values in mixed.made.T)
    middles = np.array([np.median(values) if len(values) else 0.0 for values in there])
    numeric = np.array([mixed_column.numeric for mixed_column in mixed.columns])[column] & ~np.isnan(value)
    away = np.where(np.nan_to_num(value) > middles[column], AT_LEAST, AT_MOST)
    return Predicates(column, np.where(numeric, away, EQUAL), value)


def random_predicates(mixed: MixedTable, q: int, known: int, rng: np.random.Generator) -> Predicates:
    """Columns, signs and values by chance, values from the condensed rows' range."""
    column = _choices(mixed.features, q, known, rng)
    numeric = np.array([mixed_column.numeric for mixed_column in mixed.columns])[column]
    there = [values[~np.isnan(values)] for values in mixed.made.T]
    low, high = (np.array([end(values) if len(values) else 0.0 for values in there]) for end in (np.min, np.max))
    value = low[column] + rng.random((q, known)) * (high - low)[column]
    whole = np.floor(low[column] + rng.random((q, known)) * (high - low + 1)[column])
    sign = np.where(numeric, rng.integers(AT_MOST, AT_LEAST + 1, (q, known)), EQUAL)
    return Predicates(column, sign, np.where(numeric, value, whole))


# -- linking ----------------------------------------------------------------------------------------------------------


def linked(mixed: MixedTable, members: Floats, control: Floats, seed: int) -> Iterator[Trial]:
    """Whether two disjoint halves of what is known of a patient lead to the same condensed row."""
    rng = np.random.default_rng([seed, 0x1146])
    for known in _numbers(len(mixed.features)):
        if known < 2:
            continue
        chosen = rng.permutation(mixed.features)[:known]
        first, second = chosen[: known // 2], chosen[known // 2 :]
        ours, theirs = (
            Rate.from_hits(mixed.nearest(rows, first) == mixed.nearest(rows, second)) for rows in (members, control)
        )
        yield Trial(LINK, f"{len(first)} and {len(second)} columns", ours, theirs, 1 / len(mixed.made))


# -- inferring --------------------------------------------------------------------------------------------------------


def inferred(mixed: MixedTable, members: Floats, control: Floats, seed: int) -> Iterator[Trial]:
    """Each secret from all other columns; then any secret, from few known columns or many."""
    rng = np.random.default_rng([seed, 0x1FE2])
    features = mixed.features
    secrets = np.sort(rng.permutation(features)[:SECRETS])
    secrets = np.concatenate([secrets, np.arange(len(features), len(mixed.columns))])
    both = [_each(mixed, rows, secrets) for rows in (members, control)]
    for secret, ours, theirs in zip(secrets, *both, strict=True):
        column, values = mixed.columns[secret], mixed.made[:, secret]
        by_chance = float(close(column, rng.choice(values, len(members)), members[:, secret]).mean())
        yield Trial(INFER, column.name, Rate.from_hits(ours), Rate.from_hits(theirs), by_chance)
    for known in _numbers(len(features) - 1):
        results = []
        for rows in (members, control):  # each patient has one secret, each secret the same known columns for both
            which = np.random.default_rng([seed, 0x5EC2]).integers(0, len(secrets), len(rows))
            hit, chance = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
            for k, secret in enumerate(secrets):
                mine = np.flatnonzero(which == k)
                others = np.random.default_rng([seed, known, k]).permutation(features[features != secret])[:known]
                column, values, truth = mixed.columns[secret], mixed.made[:, secret], rows[mine, secret]
                hit[mine] = close(column, values[mixed.nearest(rows[mine], others)], truth)
                chance[mine] = close(column, rng.choice(values, len(mine)), truth)
            results.append((Rate.from_hits(hit), float(chance.mean())))
        yield Trial(INFER, f"any, from {known} columns", results[0][0], results[1][0], results[0][1])


def _each(mixed: MixedTable, rows: Floats, secrets: Index) -> list[Flags]:
    """Of every secret: whether the nearest condensed row in all other columns has the patient's value.

    What differs by rounding alone is as near, and the first of those as near is taken.
    """
    hits, features = [np.zeros(len(rows), bool) for _ in secrets], set(mixed.features.tolist())
    for here, total in mixed.apart(rows, mixed.features):
        for hit, secret in zip(hits, secrets, strict=True):
            without = total - mixed.differences(rows[here, secret], int(secret)) if secret in features else total
            at = (without <= without.min(1, keepdims=True) + 1e-5).argmax(1)
            hit[here] = close(mixed.columns[secret], mixed.made[at, secret], rows[here, secret])
    return hits


def close(column: MixedColumn, guess: Floats, truth: Floats) -> Flags:
    """(n,) whether a guess is as good as the truth."""
    same = (np.isnan(guess) & np.isnan(truth)) | (guess == truth)
    if column.numeric:  # a difference from a hole is NaN, and never small
        same |= np.abs(guess - truth) <= TOLERANCE * column.spread
    return np.asarray(same)


# -- what people see --------------------------------------------------------------------------------------------------


def _table(trials: list[Trial]) -> Table:
    rows = []
    for trial in trials:
        rates = str(trial.members), str(trial.control), f"{trial.baseline:.1%}"
        risk = f"{trial.risk:.3f} ({trial.reach.low:.3f} to {trial.reach.high:.3f})"
        rows.append((WORDS[trial.attack], trial.group, *rates, risk))
    return Table(
        "risks",
        "What attackers reach",
        ("Attack", "Knows or wants", "Members", "Control", "Random", "Risk (95%)"),
        tuple(rows),
        "Success rates on patients who were condensed, on patients who were not, and of random guesses.",
    )


def _figure(trials: list[Trial]) -> Figure:
    series = Series(
        "risk",
        tuple(f"{WORDS[trial.attack]}: {trial.group}" for trial in trials),
        tuple(trial.risk for trial in trials),
        tuple(trial.reach.low for trial in trials),
        tuple(trial.reach.high for trial in trials),
    )
    return Figure(
        "risks",
        DOTS,
        "What having been in the table costs",
        "Risk beside the control group, with 95% intervals. 0: members are no worse off than patients who were never "
        "in the table; 1: always found.",
        "attack",
        "risk",
        (series,),
        at=(("no risk beside the control", 0.0),),
    )


def _numbers(columns: int) -> list[int]:
    """How many columns an attacker may know: some, and all."""
    return [*(known for known in KNOWN if known < columns), *([columns] if columns > 0 else [])]


def _choices(columns: Index, q: int, known: int, rng: np.random.Generator) -> Index:
    """(q, known) different columns, by chance."""
    return columns[np.argsort(rng.random((q, len(columns))), axis=1)[:, :known]]
