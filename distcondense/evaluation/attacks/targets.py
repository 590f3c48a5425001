"""Who is attacked: members, who were in the table that was condensed, and outsiders, left out of it by a coin."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from distcondense.arrays import Flags, Floats, Index, Matrix
from distcondense.data.codec import Codec, EncodedColumn
from distcondense.data.outcome import Outcome
from distcondense.evaluation.attacks.ceiling import Ceilings
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.resampling import choose, one_row_each
from distcondense.evaluation.ruler import Ruler
from distcondense.kernels.neighbours import nearest

MOST = 5000  # members that are attacked, and as many outsiders
MOST_CONDENSED = 20_000  # condensed rows that an attack looks at
CROWD = 50_000  # real rows among which a target's nearest other person is looked for
LEAST = 20  # of either, for a score to be worth its interval


class NotAttackedError(Exception):
    """There is nothing to attack, or nobody to attack it for; the message says why."""


@dataclass(frozen=True, repr=False)
class Targets:
    """Members and outsiders, as many of either, one row of each person."""

    rows: Matrix  # (n, d) encoded as the condensed rows are
    ruler: Ruler  # on which distances are measured
    member: Flags  # (n,)
    outcome: Outcome  # in the unit that models see
    apart: Floats  # (n,) distance to the nearest other person's row
    reference: Index  # row numbers of outsiders that are not attacked: what an attacker may know of the population
    members: int  # persons (or rows) that there are
    outsiders: int
    by_person: bool

    def __len__(self) -> int:
        return len(self.member)

    @property
    def ruled(self) -> Matrix:
        """(n, d) as distances are measured."""
        return self.ruler(self.rows)

    @property
    def vulnerable(self) -> Flags:
        """(n,) the tenth that is farthest from everybody else."""
        chosen = np.zeros(len(self), bool)
        chosen[np.argsort(-self.apart, kind="stable")[: math.ceil(len(self) / 10)]] = True
        return chosen


def check_attackable(inputs: EvaluationInput, least: int = LEAST) -> None:
    """A `NotAttackedError` where there are no condensed rows or too few persons on either side."""
    if not len(inputs.rows):
        raise NotAttackedError("the run gave no answer: there are no condensed rows to attack")
    if not len(inputs.split.test):
        raise NotAttackedError("nobody was held out: without outsiders nothing can be said about members")
    if min(len(inputs.split.train), len(inputs.split.test)) < least:
        raise NotAttackedError(f"fewer than {least} rows in the table or held out: too few to say anything")


def both_sides(inputs: EvaluationInput, rng: np.random.Generator) -> tuple[Index, Index]:
    """Row numbers of members and of outsiders, one of each person, in random order."""
    person = inputs.cohort.person
    return one_row_each(inputs.split.train, person, rng), one_row_each(inputs.split.test, person, rng)


def draw_targets(inputs: EvaluationInput, *, seed: int, threads: int, reference: bool = False) -> Targets:
    """Who is attacked, by chance.

    Parameters
    ----------
    inputs : EvaluationInput
        The cohort, its split and the condensed rows.
    seed, threads : int
        Of the choice; of the search for neighbours.
    reference : bool
        Half of the outsiders are not attacked but known to the attacker.

    Returns
    -------
    Targets

    Raises
    ------
    NotAttackedError
        Where there are fewer than `LEAST` persons on either side.
    """
    rng = np.random.default_rng([seed, 0xA77A])
    members, outsiders = both_sides(inputs, rng)
    known = outsiders[len(outsiders) // 2 :] if reference else outsiders[:0]
    free = outsiders[: len(outsiders) - len(known)]
    count = min(len(members), len(free), MOST)
    if count < LEAST:
        raise NotAttackedError(f"fewer than {LEAST} persons in the table or held out: too few to say anything")
    chosen = np.concatenate([members[:count], free[:count]])
    rows = inputs.codec.encode(inputs.cohort.features.iloc[chosen])
    others = rng.permutation(np.concatenate([members[count:], outsiders[count:]]))[: max(CROWD - len(chosen), 0)]
    ruler = Ruler.of(rows)
    crowd = ruler(np.concatenate([rows, inputs.codec.encode(inputs.cohort.features.iloc[others])]))
    return Targets(
        rows,
        ruler,
        np.arange(len(chosen)) < count,
        inputs.kind.in_unit(inputs.cohort.outcome.take(chosen), inputs.unit),
        nearest(crowd[: len(rows)], crowd, 2, threads)[0][:, 1],  # the first neighbour is the row itself, or its copy
        known,
        len(members),
        len(outsiders),
        inputs.cohort.person is not None,
    )


def condensed_rows(inputs: EvaluationInput, seed: int) -> Matrix:
    """The condensed rows, encoded; a random choice where there are more than an attack looks at."""
    return inputs.rows[choose(len(inputs.rows), MOST_CONDENSED, np.random.default_rng([seed, 0xC0DE]))]


def places(codec: Codec) -> list[tuple[EncodedColumn, slice]]:
    """The table's columns, and where each stands among the encoded ones."""
    stops = np.cumsum([block.width for block in codec.blocks])
    ends = zip(codec.blocks, stops.tolist(), strict=True)
    return [(block, slice(stop - block.width, stop)) for block, stop in ends if block.width]


def ceilings_of(inputs: EvaluationInput) -> Ceilings | None:
    """What the guarantee allows at most; None where it is none, or one of rows where persons are attacked."""
    if inputs.cohort.person is not None and inputs.privacy.unit != "person":
        return None
    return Ceilings.from_privacy(inputs.privacy)
