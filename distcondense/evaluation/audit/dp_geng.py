"""Attacks on `dp-geng`, white box: what the method asks beyond its generator, whose questions private.py attacks.

Features by class, gradients of the expert and votes (generator tab-pe) are sums of public maps. Any network, and any
population, is as public as one that answers have moved, so these are drawn from a fixed seed, and clipping norms are so
small that the canary's vector is as long as it may be. All of the budget goes to these questions; as in a run, each
gradient is asked at weights that earlier noise has moved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from distcondense.data.cells import Cells
from distcondense.evaluation.audit.findings import Auditor, AuditRequest, PendingFinding
from distcondense.evaluation.audit.neighbours import (
    ALONE,
    MANY,
    OUTLIER,
    SEVERAL,
    UNSEEN,
    AuditSetting,
    GateObserver,
    NeighbourTable,
)
from distcondense.evaluation.audit.private import GUARANTEE, Checks, losses
from distcondense.methods.dp_geng.encoding import Encoding
from distcondense.methods.dp_geng.evolution import Space, Votes
from distcondense.methods.dp_geng.maps import ClassFeatures, Gradients
from distcondense.methods.dp_geng.networks import FeatureNetwork
from distcondense.privacy.budget import Budget
from distcondense.privacy.contributions import Objective
from distcondense.privacy.ledger import Ledger

NEIGHBOURS = (OUTLIER, UNSEEN, ALONE, MANY, SEVERAL)
QUESTIONS = 2  # of each map
HIDDEN, FEATURES = 6, 4
CROWD = 8  # rows of each class that are voted for
CLIP = 1e-3  # every row's vector is longer
STEP = 1e-3  # of the expert, by a noisy gradient


def attack(request: AuditRequest, on_run: Callable[[], None]) -> tuple[list[PendingFinding], tuple[str, ...]]:
    """All chosen pairs of neighbours; the generator's one-run attack is private.py's."""
    checks = Checks(request.epsilon, request.delta)
    pending = [draft for name in request.neighbours for draft in losses(name, request, checks, on_run, watched)]
    return pending, checks.problems()


def watched(
    world: NeighbourTable, worlds: tuple[NeighbourTable, NeighbourTable], setting: AuditSetting, ledger: Ledger
) -> GateObserver:
    """The method's own questions on `world`, with a witness at the gate."""
    budget = Budget.calibrate(epsilon=setting.budget.epsilon, delta=setting.budget.delta)
    witness = GateObserver(worlds, setting)
    table = replace(setting, budget=budget).gate(world, ledger, witness)
    encoding, expert = _public(setting.cells, setting.side.groups)
    mu = budget.mu / np.sqrt(3 * QUESTIONS)
    for _ in range(QUESTIONS):
        table.mapped(_votes(setting.cells, setting.side.groups, table.objective), mu=mu)
    for _ in range(QUESTIONS):
        table.mapped(ClassFeatures(expert, encoding, table.objective, CLIP), mu=mu)
    for _ in range(QUESTIONS):
        noisy = table.mapped(Gradients(expert, encoding, table.objective, CLIP, True), mu=mu)
        expert = expert.moved(-STEP * noisy)
    return witness


def _votes(cells: tuple[Cells, ...], classes: int, objective: Objective) -> Votes:
    """About a population that no patient was asked for."""
    space, rng = Space.from_cells(cells), np.random.default_rng(0xE7)
    crowd = [space.drawn(CROWD, rng) for _ in range(classes)]
    tables = tuple(tuple(space.distances(j, of[:, j]) for j in range(len(cells))) for of in crowd)
    return Votes(tuple(range(len(cells))), tables, objective)


def _public(cells: tuple[Cells, ...], classes: int) -> tuple[Encoding, FeatureNetwork]:
    """An encoding and a network that no patient was asked for."""
    rng = np.random.default_rng(0xD6)
    encoding = Encoding.from_cells(cells, np.stack([rng.integers(0, one.size, 100) for one in cells], axis=1))
    ones = np.ones(FEATURES)
    return encoding, FeatureNetwork(
        rng.normal(size=(encoding.width, HIDDEN)),
        np.ones(HIDDEN),
        rng.normal(size=(HIDDEN, FEATURES)),
        ones,
        0.1 * ones,
        ones,
        rng.normal(size=(FEATURES, classes)),
        np.zeros(classes),
    )


AUDITOR = Auditor(GUARANTEE, NEIGHBOURS, lambda canaries: 0, attack)
