"""`run_audit`: attacks on the methods themselves, and the ε that they prove at least.

A method is run many times on a small public synthetic cohort, with or without one canary person, by fair coins. An
attacker who knows everybody else's rows guesses the coin; stats.py turns the guesses into a lower bound on ε.

    findings.py            what is found, and the verdict
    neighbours.py          simulated neighbours, and an observer at the gate
    private.py, published.py, dp_geng.py   the attacks on one method each, a line in `AUDITORS`
    end_to_end.py          from a file's bytes to the released bytes
    release_features.py    what can be read off released bytes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from distcondense.errors import SettingsError
from distcondense.evaluation.audit import dp_geng, end_to_end, private, published
from distcondense.evaluation.audit.findings import Audit, Auditor, AuditRequest, Finding, settled
from distcondense.privacy.budget import check_budget

__all__ = ["AUDITORS", "Audit", "Finding", "run_audit"]

AUDITORS: Mapping[str, Auditor] = {
    "private": private.AUDITOR,
    "published": published.AUDITOR,
    "dp-geng": dp_geng.AUDITOR,
}


def run_audit(
    *,
    method: str = "private",
    epsilon: float | None = None,
    delta: float = 1e-5,
    runs: int = 1000,
    canaries: int = 1000,
    seed: int = 0,
    threads: int = 1,
    whole: int = 0,
    neighbours: Sequence[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    auditor: Auditor | None = None,
) -> Audit:
    """Attack a method with canaries on simulated patients, and bound its ε from below.

    Coins and noise come from the operating system, or the bounds would hold for lucky seeds only.

    Parameters
    ----------
    method : str
        A key of `AUDITORS`.
    epsilon, delta : float
        The claim that is tested; the auditor's own ε if none is said.
    runs : int
        Runs of each pair of neighbours.
    canaries : int
        Canaries of the one-run attack; 0: none.
    seed : int
        Of the simulated cohort.
    threads : int
        Of the models that a method fits.
    whole : int
        So many runs, of each pair of files, also go the whole way from a file's bytes to the released bytes, and one
        with `canaries`; 0: none.
    neighbours : sequence of str, optional
        The pairs to look at; all of them if not said.
    progress : callable, optional
        Called with (runs done, runs in all).
    auditor : Auditor, optional
        Who attacks, where it is not the method's entry in `AUDITORS`.

    Returns
    -------
    Audit

    Raises
    ------
    SettingsError
        For a method without an auditor, and for too few runs to find anything.
    """
    if auditor is None and method not in AUDITORS:
        raise SettingsError("method", f"must be one of {', '.join(AUDITORS)}", found=repr(method))
    auditor = AUDITORS[method] if auditor is None else auditor
    epsilon = auditor.claim if epsilon is None else epsilon
    check_budget(epsilon=epsilon, delta=delta)
    if runs < 20 or (canaries != 0 and canaries < 20):
        raise SettingsError(
            "runs and canaries",
            "must be 20 or more (canaries: or 0 for none), or nothing could be found",
            found=f"{runs} and {canaries}",
            fix="1000 runs see most of what there is",
        )
    if whole and (whole < end_to_end.LEAST or auditor.whole is None):
        raise SettingsError(
            "whole",
            f"must be 0 or at least {end_to_end.LEAST}, of a method whose release states what every answer cost",
            found=f"{whole} for method {method}",
            fix="100 runs of each pair take a minute",
        )
    known = (*auditor.neighbours, *(end_to_end.PAIRS if whole else ()))
    chosen = known if neighbours is None else tuple(neighbours)
    if unknown := [name for name in chosen if name not in known]:
        raise SettingsError("neighbours", f"must be among {', '.join(known)}", found=repr(unknown[0]))
    at_the_gate = tuple(name for name in chosen if name in auditor.neighbours)
    request = AuditRequest(chosen, epsilon, delta, runs, canaries, seed, threads, whole)
    total, so_far = runs * len(at_the_gate) + auditor.one_run_tables(canaries) + end_to_end.total_runs(request), 0

    def on_run() -> None:
        nonlocal so_far
        so_far += 1
        if progress:
            progress(so_far, total)

    pending, problems = auditor.attack(replace(request, neighbours=at_the_gate), on_run)
    if whole and auditor.whole is not None:
        more, found = end_to_end.attack(method, auditor.guarantee, auditor.whole, request, on_run)
        pending, problems = [*pending, *more], (*problems, *found)
    return Audit(method, auditor.guarantee, epsilon, delta, settled(pending), problems)
