"""What the attacks find: `python -m benchmarks.leaks adult|seer [--shadows 8]`.

Every attack of `distcondense attack` on one run of each: the private method, the published one, and a toy that releases
half of the training rows as they are. For each group of attacks its strongest score, the ceiling that the guarantee
implies (none without a theorem), the power, and whether the page calls it a leak.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import distcondense as dc
from benchmarks import cohorts, record
from distcondense.data.cohort import Cohort
from distcondense.data.persons import Stratified
from distcondense.evaluation.attacks import ATTACKS
from distcondense.evaluation.findings import Findings
from distcondense.evaluation.leaks import decide
from distcondense.evaluation.score import Score
from distcondense.evaluation.section import Section
from distcondense.methods.base import Context, Options, Prepared, method_named, register
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result


class Memoriser:
    """Half of the training rows, as they are."""

    name: ClassVar[str] = "memoriser"
    about: ClassVar[str] = "a toy that copies"
    guarantee: ClassVar[str] = "none"
    Options: ClassVar[Any] = Options

    def takes(self, kind: Any) -> bool:
        return True

    def prepare(self, facts: Any, options: Any) -> Prepared:
        return Prepared(facts, options)

    def condense(self, cohort: Cohort, prepared: Prepared, context: Context) -> dict[int, Result]:
        options, splitting = prepared.options, Stratified(prepared.options.seed)
        train = splitting.split(cohort).train
        chosen = np.random.default_rng(options.seed).choice(
            train, min(20 * options.ipc, len(train) // 2), replace=False
        )
        made = Result.from_rows(
            cohort.features.iloc[chosen].reset_index(drop=True),
            cohort.schema,
            Labelled(cohort.outcome.take(chosen)),
            Privacy("none", self.name, None, None, "none", "none"),
            splitting,
        )
        return {options.ipc: made}


RUNS: dict[str, dict[str, Any]] = {"private": {"epsilon": 1.0}, "published": {"epsilon": 2.5}, "memoriser": {}}


def strongest(part: Section) -> Score | None:
    """The score that luck would reach most rarely."""
    return min((score for score in part.scores if score.luck is not None), default=None, key=lambda one: one.luck or 0)


def lines(method: str, found: Findings) -> Iterator[str]:
    decision = decide(found.parts)
    for part in found.parts:
        if part.name not in ATTACKS:
            continue
        best = strongest(part)
        if best is None:
            yield f"| {method} | {part.title} | {part.notes[0] if part.notes else '—'} | | | |"
            continue
        words = part.titles.get(best.measure, best.measure)
        of = ", ".join(filter(None, (best.student, best.group)))
        leak = "LEAK" if part.name in decision.leaks else "no leak found"
        ceiling = "" if best.ceiling is None else f"{best.ceiling:.3f}"
        yield (
            f"| {method} | {part.title} | {words}{f' ({of})' if of else ''}: {best.value:.3f} [{best.low:.3f}, "
            f"{best.high:.3f}] | {ceiling} | {best.power:.3f} | {leak} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["adult", "seer"])
    parser.add_argument("--shadows", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    register(Memoriser())  # type: ignore[arg-type]
    cohort, started, said = getattr(cohorts, asked.name)(declared=True), time.perf_counter(), []
    for method, options in RUNS.items():
        if not method_named(method).takes(cohort.outcome.kind):
            continue
        with tempfile.TemporaryDirectory() as room, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = Path(room) / method
            dc.condense(cohort, method=method, ipc=100, threads=asked.threads, out=out, **options)
            (found,) = dc.evaluate_run(
                out, cohort, parts=tuple(ATTACKS), shadows=asked.shadows, threads=asked.threads
            ).values()
        said += [
            f"**{method}**: {found.privacy.short()}. {' '.join(found.safety())}\n",
            *HEAD,
            *lines(method, found),
            "",
        ]
        print("\n".join(said), flush=True)
    text = (
        f"# {asked.name}: what the attacks find\n\nOne run each, {time.perf_counter() - started:.0f} s. The strongest "
        "score of each group; power: the smallest value that would have been found.\n\n" + "\n".join(said)
    )
    record.write(f"leaks-{asked.name}", seeds=[0], text=text)


HEAD = ("| method | attacks | strongest | ceiling | power | verdict |", "| --- | --- | --- | --- | --- | --- |")

if __name__ == "__main__":
    main()
