"""Algorithm 1 of PSyGenTAB: ALM-based privacy-constrained training, line by line, over epochs that can be resumed.

    1  for each epoch                            9  evaluate U and P on validation rows (hard rows, scores.py)
    2    for each mini-batch of training rows   10  if P < P_min: μ ← αμ
    3      draw a synthetic batch               13  λ ← max(0, λ + (P_min − P))
    4–6    U, P, eq. 5 on it (network.py)       14  stop where P ≥ P_min and the likelihood is on a plateau
    7      θ by gradient descent (Adam)

Without the constraint the same loop is plain maximum likelihood, the paper's baseline. Everything here reads patients
without noise: what comes of it has no guarantee. Every number is a function of (seed, epoch, batch), so that a run
killed at any moment goes on to the same network.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from distcondense.arrays import Index
from distcondense.methods.base import Context
from distcondense.methods.psygentab.lagrangian import Lagrangian
from distcondense.methods.psygentab.network import AutoregressiveNetwork, Params, SoftTargets, training_step
from distcondense.methods.psygentab.options import PsygentabOptions
from distcondense.methods.psygentab.scores import TableScorer
from distcondense.runs.checkpoint import Checkpoint

BANK = 256  # records that a step's distances are measured to
JUDGED = 1000  # rows drawn to evaluate an epoch
EPOCH = 20_000  # training rows of an epoch, at most, drawn afresh: of large tables 50 passes would take hours


@dataclass
class Training:
    """Where the training stands; everything a restart needs."""

    params: Params
    state: Any  # the optimiser's
    lagrangian: Lagrangian
    epoch: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    stopped: str = ""

    def save(self, checkpoint: Checkpoint) -> None:
        leaves = jax.tree.leaves((self.params, self.state))
        facts = {
            "epoch": self.epoch,
            "history": self.history,
            "stopped": self.stopped,
            "multiplier": self.lagrangian.multiplier,
            "penalty": self.lagrangian.penalty,
            "columns": list(self.lagrangian.columns),
        }
        checkpoint.save({f"leaf{k}": np.asarray(leaf) for k, leaf in enumerate(leaves)}, facts)

    def restored(self, checkpoint: Checkpoint) -> Training:
        """As it was saved last, in the shape of this one."""
        found = checkpoint.load()
        if found is None:
            return self
        arrays, facts = found
        leaves = [jnp.asarray(arrays[f"leaf{k}"]) for k in range(len(arrays))]
        params, state = jax.tree.unflatten(jax.tree.structure((self.params, self.state)), leaves)
        columns = tuple(facts.pop("columns"))
        lagrangian = replace(
            self.lagrangian, multiplier=facts.pop("multiplier"), penalty=facts.pop("penalty"), columns=columns
        )
        return Training(params, state, lagrangian, **facts)


def trained(
    network: AutoregressiveNetwork,
    train: Index,
    judge: TableScorer,
    lagrangian: Lagrangian,
    options: PsygentabOptions,
    context: Context,
) -> Training:
    """The network after Algorithm 1 on (n, columns) training rows, or after plain maximum likelihood."""
    seed, batch = options.seed, min(options.batch, len(train))
    targets = (
        SoftTargets.from_rows(network, train, judge.held, min(BANK, len(train)), seed) if options.at_training else None
    )
    held = np.floor(judge.held).astype(np.int64)
    step, optimiser = training_step(
        network, targets, lagrangian, options.learning_rate, batch, likelihood_weight=options.likelihood
    )
    params = network.start(train, seed)
    now = Training(params, optimiser.init(params), lagrangian)
    checkpoint = None if context.folder is None else context.folder.checkpoint
    if checkpoint is not None:
        now = now.restored(checkpoint)
    while now.epoch < options.epochs and not now.stopped:
        loss = _epoch(step, now, network, train, targets, batch, seed)
        now.epoch += 1
        if targets is not None:
            _evaluate(now, network, held, judge, seed)
        now.history.append(
            {"epoch": now.epoch, "loss": loss, **now.history.pop()}
            if targets is not None
            else {"epoch": now.epoch, "loss": loss}
        )
        if checkpoint is not None:
            now.save(checkpoint)
        context.progress(step=now.epoch, steps=options.epochs, loss=loss, score=now.history[-1].get("U"))
    now.stopped = now.stopped or "all epochs"
    return now


def _epoch(
    step: Any,
    now: Training,
    network: AutoregressiveNetwork,
    train: Index,
    targets: SoftTargets | None,
    batch: int,
    seed: int,
) -> float:
    """Lines 2–8; the mean loss of its mini-batches."""
    rng = np.random.default_rng([seed, 0xE90C, now.epoch])
    some = rng.permutation(len(train))[:EPOCH]
    batches = -(-len(some) // batch)
    order = np.resize(some, batches * batch).reshape(batches, batch)
    key = jax.random.fold_in(jax.random.key(seed), now.epoch)
    lagrangian, losses = now.lagrangian, []
    multipliers = (lagrangian.multiplier, lagrangian.penalty, jnp.asarray(lagrangian.columns, jnp.float32))
    for k, rows in enumerate(order):
        records = train[rng.integers(len(train), size=0 if targets is None else targets.bank), network.layout.first :]
        given = (train[rows], records, jax.random.fold_in(key, k), *multipliers)
        now.params, now.state, loss = step(now.params, now.state, *given)
        losses.append(loss)
    return float(np.mean([float(one) for one in losses]))


def _evaluate(now: Training, network: AutoregressiveNetwork, held: Index, judge: TableScorer, seed: int) -> None:
    """Lines 9–16."""
    rows = network.draw(now.params, JUDGED, (seed, 0x3A1D))
    judged = judge(judge.layout.placed(rows, np.random.default_rng([seed, 0x3A1E])))
    likelihoods = [*(epoch["likelihood"] for epoch in now.history), float(network.likelihood(now.params, held))]
    by_column = judged.by_column if now.lagrangian.columns else ()
    now.lagrangian = now.lagrangian.updated(judged.P, by_column)
    if now.lagrangian.done(judged.P, likelihoods):
        now.stopped = "P_min is reached and the likelihood is on a plateau"
    now.history.append(
        {
            "U": judged.U,
            "P": judged.P,
            "likelihood": likelihoods[-1],
            "multiplier": now.lagrangian.multiplier,
            "penalty": now.lagrangian.penalty,
        }
    )
