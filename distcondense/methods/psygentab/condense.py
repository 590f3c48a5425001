"""PSyGenTAB from a cohort to a condensed set, with either sampler.

`network`: patients → cells → Algorithm 1 → sampling-time steering → rows. Guarantee none, said loudly.
`private`: patients through the private method's gate, once; then steering of its sampler, and its own placement.
"""

from __future__ import annotations

import time as clock
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.data.cells import public_cells
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.rules import Rules
from distcondense.data.schema import Schema
from distcondense.errors import DistcondenseWarning
from distcondense.methods.base import Context, Prepared
from distcondense.methods.psygentab.lagrangian import Lagrangian
from distcondense.methods.psygentab.layout import Layout, OutcomeCells
from distcondense.methods.psygentab.options import OFF, PsygentabOptions
from distcondense.methods.psygentab.sampling import SamplingSettings, SearchResult, steered
from distcondense.methods.psygentab.scores import TableScorer, TableScores
from distcondense.outcomes.base import Kind, Labelled
from distcondense.outcomes.private_side import restoring
from distcondense.privacy.events import Event
from distcondense.privacy.statement import Privacy
from distcondense.runs.result import Result

MEASURED = (500, 3000)  # rows that U and P of a setting are measured on: as many as are released, within these
NO_PRIVACY = (
    "NO PRIVACY: the network learns from patients without noise, and P is a score of distances, not a guarantee: treat "
    "the result as patient data, or say --sampler private"
)
WHY = (
    "A network learned these rows from patients without any noise.",
    "Its P is a score of distances, not a guarantee: whoever knows the network's way may still find a patient.",
)
OWN_ROWS = "U and P are measured against rows of the private model itself: no patient is looked at"
BELOW = "P = {:.3f} is below P_min = {:g}: what is allowed to bend did not reach it, and the rows are those it came to"
UNLIKE_THE_PROGRAM = (
    "Algorithm 1 constrains the training; the authors' own program never does, and it costs utility: compare with "
    "--regime sampling before these rows are used"
)
RELEASED = 2**20  # number of the draw that is released, which no search has
SEEDS = "seed: split, network, batches, drawn rows and students. There is no privacy noise."


@dataclass(frozen=True)
class PreparedSteering(Prepared):
    """A run with the private sampler before it reads a patient: the private method's own preparation."""

    options: PsygentabOptions
    sampler: Prepared

    @property
    def planned(self) -> tuple[Event, ...]:
        return self.sampler.planned


def _lagrangian(options: PsygentabOptions, columns: int) -> Lagrangian:
    own = (options.multiplier,) * columns if options.columnwise else ()
    return Lagrangian(options.p_min, options.multiplier, options.penalty, options.growth, own)


def _measured(rows: int) -> int:
    return int(np.clip(rows, *MEASURED))


def _told(judged: TableScores, options: PsygentabOptions, context: Context) -> dict[str, Any]:
    """What U and P came to, for run.json; a P below P_min is said, never hidden."""
    if options.regime != OFF and options.p_min > judged.P:
        warnings.warn(BELOW.format(judged.P, options.p_min), DistcondenseWarning, stacklevel=3)
    context.log(f"U = {judged.U:.3f}, P = {judged.P:.3f} (a score of distances, not a guarantee)")
    return {"U": judged.U, "P": judged.P, "parts": dict(judged.parts)}


# -- the network ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NetworkSampler:
    """A trained network as a generator of rows; `fixed` classes where rows are balanced."""

    network: Any  # network.AutoregressiveNetwork
    params: Any
    judge: TableScorer
    seed: int

    def __call__(self, rows: int, settings: SamplingSettings, number: int = 0, fixed: Index | None = None) -> Floats:
        """Another number is another draw."""
        codes: Index = self.network.draw(
            self.params,
            rows,
            (self.seed, 0xD9A3, number),
            temperature=settings.temperature,
            top_p=settings.top_p,
            fixed=fixed,
        )
        return self.judge.layout.placed(codes, np.random.default_rng([self.seed, 0xD9A4, number]))


def network(cohort: Cohort, options: PsygentabOptions, context: Context) -> Result:
    """Train the network on patients and draw the rows from it: no guarantee, and a warning that says so."""
    from distcondense.methods.psygentab.network import AutoregressiveNetwork
    from distcondense.methods.psygentab.training import trained

    warnings.warn(NO_PRIVACY, DistcondenseWarning, stacklevel=2)
    if options.at_training:
        warnings.warn(UNLIKE_THE_PROGRAM, DistcondenseWarning, stacklevel=2)
    kind: Kind = cohort.outcome.kind
    learner, splitting, timings = kind.learner(options.reference), context.stratified(options.seed), dict[str, float]()
    split = splitting.split(cohort)
    rules = Rules(cohort.schema)
    cells = public_cells(cohort.schema.without(rules.derived), options.cells)
    started = clock.perf_counter()
    train = cohort.outcome.take(split.train)
    layout = Layout(OutcomeCells.from_outcome(train, options.cells), cells)
    table, held = (
        layout.patients(cohort.features.iloc[part], cohort.outcome.take(part))
        for part in (split.train, split.validation)
    )
    timings["encode"] = clock.perf_counter() - started

    started = clock.perf_counter()
    judge = TableScorer.from_rows(layout, learner, table, held, seed=options.seed, threads=context.threads)
    network = AutoregressiveNetwork(layout, options.hidden)
    done = trained(network, np.floor(table).astype(np.int64), judge, _lagrangian(options, len(cells)), options, context)
    timings["network"] = clock.perf_counter() - started
    context.log(f"network: {done.epoch} epochs over {len(table)} rows × {len(layout.sizes)} columns ({done.stopped})")

    started = clock.perf_counter()
    draw = NetworkSampler(network, done.params, judge, options.seed)
    groups = int(kind.strata(train).max()) + 1
    rows = options.ipc * groups
    end = None
    if options.at_sampling:
        end = steered(draw, judge, options.p_min, _measured(rows), options.rounds)
        context.log(f"sampling: {_words(end)}")
    fixed = _classes(layout, options, groups)
    made = draw(rows, SamplingSettings() if end is None else end.settings, RELEASED, fixed)
    judged = judge(draw(_measured(rows), SamplingSettings())) if end is None else end.judged
    notes = _told(judged, options, context)
    timings["condense"] = clock.perf_counter() - started

    outcome, weight = layout.outcome.outcome(made[:, : layout.first]), None
    if fixed is not None:
        shares = np.bincount(kind.strata(train), minlength=groups) / len(train)
        weight = restoring(kind.strata(outcome), shares, len(train))
    rng, public = np.random.default_rng([options.seed, 0xD9A5]), Codec.public(Schema(tuple(c.column for c in cells)))
    frame = public.decode(public.encode(layout.frame(made)))
    frame = rules.completed(rules.repaired(frame, rng))[cohort.schema.names]
    return Result.from_rows(
        features=frame,
        schema=replace(cohort.schema, notes=()),
        labelled=Labelled(outcome, weight=weight),
        privacy=Privacy("none", "psygentab", None, None, "none", "none", schema_origin=cohort.schema.origin, why=WHY),
        splitting=splitting,
        notes={
            "seeds_policy": SEEDS,
            "psygentab": {
                **notes,
                "sampler": options.sampler,
                "epochs": done.epoch,
                "stopped": done.stopped,
                "training": done.history,
                **_search(end),
            },
        },
        timings=timings,
        learner=learner,
    )


def _classes(layout: Layout, options: PsygentabOptions, groups: int) -> Index | None:
    """(rows,) the class of each, as many of each; None where rows are as common as among patients, or have no class."""
    if not options.balance or layout.outcome.edges[0] is not None:
        return None
    return np.repeat(np.arange(groups), options.ipc)


def _words(end: SearchResult) -> str:
    settings = end.settings
    return f"temperature {settings.temperature:g}, top-p {settings.top_p:g}: the highest P of {len(end.history)} rounds"


def _search(end: SearchResult | None) -> Mapping[str, Any]:
    if end is None:
        return {}
    return {
        "sampling": end.history,
        "tried": end.tried,
        "satisfied": end.satisfied,
        "settings": asdict(end.settings),
        "settings_by_lagrangian": asdict(end.by_lagrangian),
    }


# -- the private sampler ----------------------------------------------------------------------------------------------


def steered_private(cohort: Cohort, prepared: PreparedSteering, context: Context) -> Result:
    """The private method's run, with its population drawn by a steered sampler; its statement, with this name."""
    from distcondense.methods.private.condense import condense
    from distcondense.methods.private.placement import Draw, population
    from distcondense.methods.psygentab.private_sampler import Legal, PrivateSampler
    from distcondense.outcomes.private_side import PrivateFit, PrivateSide

    options, told = prepared.options, dict[str, Any]()
    learner = prepared.facts.kind.learner(options.reference)

    def steer(learned: PrivateFit, side: PrivateSide, legal: Legal | None) -> Draw:
        """From what left the gate alone: neither the cohort nor its rows are in reach of what is called here."""
        if not learned.informative:
            return population
        sampler = PrivateSampler(learned, side, options.seed, learner, context.threads, legal)
        context.log(OWN_ROWS)
        settings, end = SamplingSettings(), None
        if options.at_sampling:
            end = steered(sampler, sampler.judge, options.p_min, _measured(options.ipc * side.groups), options.rounds)
            settings = end.settings
            context.log(f"sampling: {_words(end)}")
            told.update(_told(end.judged, options, context))
        told.update({"sampler": options.sampler, "measured_against": OWN_ROWS, **_search(end)})
        return lambda _, rows, rng, __: sampler.draw(rows, rng, settings)

    (made,) = condense(cohort, prepared.sampler, context, steer=steer).values()  # type: ignore[arg-type]  # PreparedPrivate
    result = replace(made, privacy=replace(made.privacy, method="psygentab"))
    assert result.details is not None
    return result.with_details(notes={**result.details.notes, "psygentab": told})
