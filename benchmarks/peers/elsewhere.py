"""Peers in environments of their own, as methods: codes go out as CSV, codes (or a model's tables) come back."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from benchmarks.peers.coding import LABEL, Coding
from benchmarks.peers.environments import Unfinished, asked
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort, Facts
from distcondense.errors import SettingsError
from distcondense.methods.base import Context, Options, Prepared, option
from distcondense.models.additive import AdditiveModel
from distcondense.outcomes.base import Labelled
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result

WHY = (
    "ε is {whose} own account of its mechanism, a theorem of its authors about {unit}s that are added or removed; this "
    "project has neither proved nor audited their code, and does not know how they draw noise.",
    "Bounds, cells, categories and the outcome's values were handed to it as public.",
)
POOL, MOST = 20_000, 200_000  # rows that are drawn, at least and at most, to choose sets from
RARE = 40  # times as many as a set needs, for a rare class


@dataclass(frozen=True, kw_only=True)
class PeerOptions(Options):
    """What a peer is asked."""

    guarantee: ClassVar[str] = "as-published"
    ipc: int | tuple[int, ...] = option(100, "Rows of each class; several from one fit.")  # type: ignore[assignment]
    epsilon: float = option(1.0, "Budget, of the peer's own account.")
    delta: float = option(1e-5, "δ of the budget.")
    cells: int = option(32, "Public cells of a number.")
    model_size: float = option(80.0, "AIM: megabytes of its model; the authors' default. Smaller is faster.")
    time_limit: float = option(300.0, "CPU seconds it may take; what has not ended then is stopped, without an answer.")

    @property
    def ipcs(self) -> tuple[int, ...]:
        return self.ipc if isinstance(self.ipc, tuple) else (self.ipc,)

    def problems(self) -> Iterator[SettingsError]:
        yield from super().problems()
        yield from self.need(0 < self.epsilon < float("inf"), "epsilon", "must be above 0 and finite")
        yield from self.need(0 < self.delta < 1, "delta", "must be in (0, 1)")
        yield from self.need(0 < self.time_limit < float("inf"), "time_limit", "must be above 0 and finite")


class Peer:
    """One algorithm of one package that makes tables."""

    guarantee: ClassVar[str] = "as-published"
    Options: ClassVar[Any] = PeerOptions

    def __init__(self, name: str, environment: str, algorithm: str, whose: str, kinds: tuple[str, ...]) -> None:
        self.name, self.environment, self.algorithm, self.whose, self.kinds = name, environment, algorithm, whose, kinds
        self.about = f"peer: {whose}, {algorithm}"

    def takes(self, kind: Any) -> bool:
        return kind.name in self.kinds

    def prepare(self, facts: Facts, options: PeerOptions) -> Prepared:
        if facts.schema is None or any(column.unknown for column in facts.schema.columns):
            raise SettingsError(
                f"peer {self.name}",
                "needs a declared schema",
                found="none, or unknown bounds",
                fix="declare bounds and categories",
            )
        Coding.of(facts, options.cells)
        return Prepared(facts, options)

    def condense(self, cohort: Cohort, prepared: Prepared, context: Context) -> dict[int, Result]:
        options, splitting = prepared.options, context.holdout_split(0.2)
        given, coding = cohort.take(splitting.split(cohort).train), Coding.of(cohort.facts, options.cells)
        table, began = coding.table(given), clock.perf_counter()
        question = self.question(coding, options)
        answer, peak = asked(self.environment, question, table, context.threads, options.time_limit)
        seconds = clock.perf_counter() - began
        notes = {"scaling": "public", "peak_memory_bytes": peak, "peer": self.whose}
        late = f"not finished within {answer.seconds:g} CPU seconds" if isinstance(answer, Unfinished) else ""
        made = nothing(options, cohort) if late else self.sets(answer, coding, options, cohort)
        return {
            ipc: Result.from_rows(
                features=frame,
                schema=cohort.schema,
                labelled=labelled,
                splitting=splitting,
                notes=notes,
                privacy=self.privacy(cohort.facts, options, late or ("" if model is None else "a model, and no rows")),
                timings={"condense": seconds},
                codec=Codec.public(cohort.schema),
                reference=model,
                reference_covered=model is not None,
            )
            for ipc, (frame, labelled, model) in made.items()
        }

    def question(self, coding: Coding, options: PeerOptions) -> dict[str, Any]:
        """Public numbers only."""
        rows = min(max(RARE * coding.classes * max(options.ipcs), POOL), MOST)
        return {
            "algorithm": self.algorithm,
            "sizes": coding.sizes,
            "ordered": coding.ordered,
            "label": LABEL,
            "rows": rows,
            "epsilon": options.epsilon,
            "delta": options.delta,
            "model_size": options.model_size,
        }

    def sets(self, answer: Any, coding: Coding, options: PeerOptions, cohort: Cohort) -> dict[int, Any]:
        rng, found = np.random.default_rng([options.seed, 0x9EE6]), {}
        for ipc, codes in coding.sets(answer, options.ipcs, options.seed).items():
            frame, outcome = coding.rows(codes, rng)
            found[ipc] = (frame, Labelled(outcome), None)
        return found

    def privacy(self, facts: Facts, options: PeerOptions, answer: str) -> Privacy:
        unit = "person" if facts.by_person else "row"
        why = tuple(line.format(whose=self.whose, unit=unit) for line in WHY)
        return Privacy(
            "as-published",
            self.name,
            options.epsilon,
            options.delta,
            f"add or remove one {unit}, by its own account",
            f"{self.whose}'s own",
            unit=unit,
            why=why,
            worst_case_epsilon="unknown size: not examined",
            answer=answer,
        )


class Model(Peer):
    """One that makes a model and no table: it is scored as what it is."""

    def sets(self, answer: Any, coding: Coding, options: PeerOptions, cohort: Cohort) -> dict[int, Any]:
        tables = tuple(np.asarray(answer["tables"][f"c{j}"], float) for j in range(len(coding.cells)))
        model = AdditiveModel(coding.cells, float(answer["intercept"]), tables, "probability", self.name)
        over = model.over(Codec.public(cohort.schema))
        return {ipc: (*rest, over) for ipc, (*rest, _) in nothing(options, cohort).items()}


def nothing(options: PeerOptions, cohort: Cohort) -> dict[int, Any]:
    """No rows, and no model."""
    nobody = cohort.outcome.take(np.empty(0, np.int64))
    empty = pd.DataFrame({name: cohort.features[name].iloc[:0] for name in cohort.schema.names})
    return {ipc: (empty, Labelled(nobody), None) for ipc in options.ipcs}


CLASSES = ("binary", "multiclass", "survival")
DPMM, SMARTNOISE = "dpmm 0.1.9", "smartnoise-synth 1.0.8"
ELSEWHERE = (
    Peer("dpmm-aim", "dpmm", "aim", DPMM, CLASSES),
    Peer("dpmm-mst", "dpmm", "mst", DPMM, CLASSES),
    Peer("dpmm-privbayes", "dpmm", "privbayes", DPMM, CLASSES),
    Peer("smartnoise-aim", "smartnoise", "aim", SMARTNOISE, CLASSES),
    Peer("smartnoise-mst", "smartnoise", "mst", SMARTNOISE, CLASSES),
    Model("dp-ebm", "interpret", "ebm", "interpret-core 0.7.8", ("binary",)),
)
