"""What the gate refuses before a question is entered: shapes, kinds and prices, never a value of a patient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.arrays import Codes
from distcondense.errors import BudgetError, CohortError, SettingsError
from distcondense.privacy import noise
from distcondense.privacy.accountant import totals
from distcondense.privacy.budget import Budget
from distcondense.privacy.contributions import Objective, Target
from distcondense.privacy.layout import UnlistedColumn
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.rows import MU_MAX, ROWS_MAX, ROWS_SHARD_MAX

TOLERANCE = 1e-9  # on μ²: shares of a budget need not add up to the last bit; Budget.calibrate leaves ten times more


def check_table(
    codes: Codes,
    sizes: Sequence[int],
    target: Target,
    names: Sequence[str],
    person: NDArray[Any] | None,
    rows_per_person: int,
    order: NDArray[Any] | None,
    unlisted: Mapping[int, UnlistedColumn],
) -> None:
    """Refuse arrays whose shapes do not fit together."""
    if np.ndim(codes) != 2 or np.asarray(codes).dtype.kind not in "iu":
        raise CohortError("codes", "must be a two-dimensional array of integers", found=f"{np.ndim(codes)} dimensions")
    n, d = np.shape(codes)
    if len(sizes) != d or len(names) != d or not all(int(size) >= 1 for size in sizes):
        raise CohortError(
            "sizes and names",
            f"must have one entry for each of {d} columns, sizes of 1 or more",
            found=f"{len(sizes)} sizes, {len(names)} names",
        )
    if n > ROWS_SHARD_MAX:
        raise CohortError(
            "codes",
            f"must have at most {ROWS_SHARD_MAX} rows in one place",
            fix="condense the file: it is read in parts",
        )
    for what, array in (*target.items(), ("person", person), ("order", order)):
        if array is not None and np.shape(array) != (n,):
            raise CohortError(what, "must have one entry for each row of codes", found=f"{np.ndim(array)} dimensions")
    if not 1 <= rows_per_person <= ROWS_MAX:
        raise SettingsError("rows_per_person", f"must be between 1 and {ROWS_MAX}", found=f"{rows_per_person}")
    for column, values in unlisted.items():
        if not 0 <= column < d or sizes[column] != 1 or np.shape(values.codes) != (n,):
            raise CohortError(
                f"unlisted column {column}",
                "must be a column of one bin with one entry for each row",
                found=f"{np.ndim(values.codes)} dimensions",
            )


def check_target(objective: Objective, target: Target) -> None:
    """Refuse a target that the objective cannot take; tried on no rows at all, so that no error shows a patient."""
    try:
        objective.prepare({name: np.asarray(values)[:0] for name, values in target.items()})
    except KeyError as missing:
        raise CohortError(
            f"target {missing.args[0]!r}",
            f"must be given with a {type(objective).__name__} objective",
            found=", ".join(target) or "no target",
            fix=f"target={{{missing.args[0]!r}: …}}",
        ) from None


def check_ledger(ledger: Ledger, budget: Budget) -> None:
    """Refuse a ledger that holds more than the budget: nothing could be promised."""
    spent = totals(ledger.events)
    dearest = max((each for each, _ in spent.picks), default=0.0)
    if (
        spent.delta_categories > budget.delta_categories * (1 + TOLERANCE)
        or spent.mu**2 > budget.mu**2 * (1 + TOLERANCE)
        or spent.picked > budget.picks
        or dearest > budget.pick_epsilon * (1 + 1e-12)
    ):
        raise BudgetError(
            "ledger",
            "must hold no more than the budget",
            found=f"mu {spent.mu:.6g} of {budget.mu:.6g}, {spent.picked} picks of {budget.picks}",
            fix="use the run's own budget, or a new one that covers what was spent",
        )


def gaussian_limit(mu: float) -> float:
    """GRID·μ, the most that one person may change a Gaussian answer of price μ by, in grid units."""
    if not 0 < mu <= MU_MAX:
        raise SettingsError("mu", f"must be above 0 and at most {MU_MAX:g}", found=f"{mu}")
    limit = noise.GRID * mu
    check_opendp_cost(noise.gaussian_rho(limit, noise.GRID), mu**2 / 2)
    return limit


def check_opendp_cost(theirs: float, ours: float) -> None:
    """Refuse noise whose zCDP cost ρ by opendp's own account exceeds what the ledger is charged."""
    if not theirs <= ours * (1 + 1e-9):
        raise BudgetError("noise", f"must cost rho = {ours:.6g} at most", found=f"{theirs:.6g} by opendp's account")
