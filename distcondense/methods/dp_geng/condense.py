"""dp-geng from a cohort to a condensed set (DP-GENG, Algorithm 1): one ledger, one budget, all patients by the gate.

    prepare.py    the three parts of μ, and everything that will be asked                      line 1
    generator.py  the sampler, fitted through the gate; generated rows T̂                       line 2
    run.py        extractors and expert on T̂; patients' noisy class means (eq. 1) and gradients (Algorithm 2);
                  rows that start by k-means and are distilled (distil.py), when no patient is asked any more

Patients are read in `generator.py` alone, where the gate is opened: once for the sampler, once for the maps.
"""

from __future__ import annotations

import math
import time as clock
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from distcondense.arrays import Floats
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.outcome import Outcome
from distcondense.data.persons import HoldoutSplit
from distcondense.methods.base import Context
from distcondense.methods.dp_geng import allocation, distil, encoding, evolution, generator, networks, prepare, run
from distcondense.methods.dp_geng.allocation import sigma_of_lemma_5, sigma_of_theorem_2
from distcondense.methods.dp_geng.prepare import PreparedDpGeng
from distcondense.methods.dp_geng.run import DpGengRun
from distcondense.models.base import Model
from distcondense.models.learners import FittedModel
from distcondense.outcomes.base import Labelled
from distcondense.outcomes.private_side import PrivateFit
from distcondense.privacy.curves import gaussian_epsilon
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result

OWN = (
    allocation,
    distil,
    encoding,
    evolution,
    generator,
    networks,
    prepare,
    run,
)  # whose constants are bound to statements
SEEDS = (
    "seed: generated rows, networks, distillation. noise: the operating system, never kept. holdout: coins from the "
    "operating system, kept in internal/."
)


def condense(cohort: Cohort, prepared: PreparedDpGeng, context: Context) -> Result:
    """Condense a cohort to one set of IPC rows for each class."""
    options, timings = prepared.options, dict[str, float]()
    splitting = context.holdout_split(options.holdout)
    ledger = context.ledger()
    parts = prepared.allocation
    context.log(
        f"budget: ε = {options.epsilon:g} {options.promise} at δ = {options.delta:g}; μ: generator "
        f"{parts.generator:.3g}, matching {parts.matching:.3g}, expert {parts.expert:.3g}"
    )
    with _timed(timings, "generator"):
        learned = prepared.generator.fitted(
            cohort, splitting, ledger, lambda done, of: context.progress(step=done, steps=of)
        )
    state = DpGengRun(prepared, learned, context.log)
    if learned.informative:
        with _timed(timings, "networks"):
            state.train()
        with _timed(timings, "patients"):
            state.ask(prepared.generator.opened(cohort, splitting, learned, ledger))
        with _timed(timings, "condense"):
            rows = state.distilled()
    else:
        context.log("no signal above the noise: nothing is released but the statement")
        rows = np.zeros((prepared.side.groups, 0, 0))
    privacy = _statement(prepared, learned, ledger, context)
    return _condensed(state, rows, privacy, splitting, timings)


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    started = clock.perf_counter()
    yield
    timings[name] = clock.perf_counter() - started


# ---- what is released -----------------------------------------------------------------------------------------------


def _condensed(
    state: DpGengRun, rows: Floats, privacy: Privacy, splitting: HoldoutSplit, timings: dict[str, float]
) -> Result:
    generator, learned = state.prepared.generator, state.learned
    side = state.prepared.side
    values = generator.nothing(learned)
    if learned.informative:
        values = state.encoding.codec.decode(state.encoding.to_codec(rows.reshape(-1, rows.shape[2])))
    frame, schema, codec, encoded = generator.released(learned, values)
    labelled = side.kind.no_rows()
    if len(frame):
        label = np.repeat(np.arange(len(rows)), rows.shape[1]).astype(labelled.outcome["label"].dtype)
        soft = side.expected(_margin(state, frame))
        labelled = side.weighted(learned, Labelled(Outcome(labelled.outcome.kind, {"label": label}), soft))
    return Result.from_rows(
        features=frame,
        schema=schema,
        labelled=labelled,
        privacy=privacy,
        splitting=splitting,
        notes={"seeds_policy": SEEDS, "scaling": "public"},
        timings=timings,
        codec=codec,
        encoded=encoded,
        reference=_reference(state, codec),
        reference_covered=True,
        unit=side.unit,
        covered=generator.shown(learned),
    )


def _margin(state: DpGengRun, frame: pd.DataFrame) -> Floats:
    """What is expected of released rows: by the expert, or where there is none by the generator's model."""
    if state.expert is None:
        return np.asarray(state.learned.model.margin(state.learned.model.codes(frame)), np.float64)
    return _of_logits(state, state.expert.logits(state.encoding.of_codec(state.encoding.codec.encode(frame))))


def _of_logits(state: DpGengRun, logits: Floats) -> Floats:
    """One score where the kind of outcome has one, the log odds; else all of them."""
    return logits[:, 1] - logits[:, 0] if state.prepared.side.objective.scores == 1 else logits


def _reference(state: DpGengRun, codec: Codec) -> Model:
    """What rows were condensed against: the expert over the codec's rows, or the generator's model."""
    if state.expert is None:
        return state.learned.model.over(codec)
    expert, encoding, side = state.expert, state.encoding, state.prepared.side
    own = {block.column.name for block in encoding.codec.blocks}
    used = np.repeat([block.column.name in own for block in codec.blocks], [block.width for block in codec.blocks])

    def scores(rows: Any) -> Floats:
        margin = _of_logits(state, expert.logits(encoding.of_codec(np.asarray(rows, np.float32)[:, used])))
        return side.expected(margin) if side.objective.scores == 1 else margin

    return FittedModel(scores, side.link, len(codec.centre), "expert")  # type: ignore[arg-type]


def _statement(prepared: PreparedDpGeng, learned: PrivateFit, ledger: Ledger, context: Context) -> Privacy:
    """The ledger's exact account, which is the claim, and beside it the paper's own."""
    said = prepared.generator.statement(learned, ledger, context, OWN)
    return replace(said, method="dp-geng", parameters={**said.parameters, **_paper(prepared, learned)})


def _paper(prepared: PreparedDpGeng, learned: PrivateFit) -> dict[str, Any]:
    """DP-GENG's accounting of the same parts: Lemmas 2 and 3, and Theorem 2 for its batches and steps."""
    parts, budget, options = prepared.allocation, prepared.generator.budget, prepared.options
    choices = budget.picks * budget.pick_epsilon**2 / 4  # of μ²: an exponential mechanism as a Gaussian of equal ρ
    total = math.sqrt(parts.total**2 + choices)
    found: dict[str, Any] = {
        "mu_generator": parts.generator,
        "mu_matching": parts.matching,
        "mu_expert": parts.expert,
        "epsilon_as_published_by_lemmas_2_and_3": gaussian_epsilon(total, budget.delta),
        "sampling": "none: every question is asked of all rows, so no amplification is claimed",
    }
    if options.matching:
        sampled = min(1.0, options.class_batch / max(learned.rows, 1.0))
        for name, sigma in (("theorem_2_as_printed", sigma_of_theorem_2), ("lemma_5", sigma_of_lemma_5)):
            found[f"sigma_matching_by_{name}"] = sigma(parts.matching, sampled=sampled, steps=options.iterations)
        found["sigma_matching_of_one_answer"] = 1 / prepared.matching_cost
    return found
