"""`run_audit`: attacks on the methods themselves, and the ε that they prove at least (SPEC §7).

A method is run many times on a small public synthetic cohort, with or without one canary person, by fair coins. An
attacker who knows everybody else's rows guesses the coin; stats.py turns the guesses into a lower bound on ε.

    findings.py   what is found, and the verdict           worlds.py   simulated neighbours, and a witness at the gate
    private.py, published.py   the attacks on one method each, a line in `AUDITORS`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from distcondense.errors import SettingsError
from distcondense.evaluate.audit import private, published
from distcondense.evaluate.audit.findings import Asked, Audit, Auditor, Finding, settled
from distcondense.privacy.budget import check_budget

__all__ = ["AUDITORS", "Audit", "Finding", "run_audit"]

AUDITORS: Mapping[str, Auditor] = {"private": private.AUDITOR, "published": published.AUDITOR}


def run_audit(
    *,
    method: str = "private",
    epsilon: float | None = None,
    delta: float = 1e-5,
    runs: int = 1000,
    canaries: int = 1000,
    seed: int = 0,
    threads: int = 1,
    neighbours: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Audit:
    """Attack a method at this ε: `runs` runs for each pair of neighbours, and one run with `canaries` canaries.

    `seed` makes the cohort; coins and noise come from the operating system, or the bounds would hold for lucky seeds
    only. `threads` go to the models that a method fits. `neighbours` leaves out pairs. `progress` hears (runs done,
    runs in all).
    """
    if method not in AUDITORS:
        raise SettingsError("method", f"must be one of {', '.join(AUDITORS)}", found=repr(method))
    auditor = AUDITORS[method]
    epsilon = auditor.claim if epsilon is None else epsilon
    check_budget(epsilon=epsilon, delta=delta)
    if runs < 20 or (canaries != 0 and canaries < 20):
        raise SettingsError(
            "runs and canaries", "must be 20 or more (canaries: or 0 for none), or nothing could be found",
            found=f"{runs} and {canaries}", fix="1000 runs see most of what there is",
        )  # fmt: skip
    chosen = auditor.neighbours if neighbours is None else tuple(neighbours)
    if unknown := [name for name in chosen if name not in auditor.neighbours]:
        raise SettingsError("neighbours", f"must be among {', '.join(auditor.neighbours)}", found=repr(unknown[0]))
    total, so_far = runs * len(chosen) + auditor.one_run_tables(canaries), 0

    def done() -> None:
        nonlocal so_far
        so_far += 1
        if progress:
            progress(so_far, total)

    asked = Asked(chosen, epsilon, delta, runs, canaries, seed, threads)
    drafts, problems = auditor.attack(asked, done)
    return Audit(method, auditor.guarantee, epsilon, delta, settled(drafts), problems)
