"""Whether a peer is handed its table rightly: with almost no noise its rows must have the patients' columns and pairs.

`python -m benchmarks.peers check dpmm-privbayes --data obesity --epsilon 1000`. Numbers are total variation distances,
0 is the same: of each column, and of each column together with the outcome, beside what independence would give. A peer
that is far from its table at ε = 1000 and near independence was handed it wrongly; one that is near there and far at
ε = 1 is drowned by its noise.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.peers.coding import LABEL, Coding
from benchmarks.peers.elsewhere import ELSEWHERE, PeerOptions
from benchmarks.peers.environments import Unfinished, asked
from benchmarks.small import table_of
from distcondense.arrays import Floats

ROWS = 5000  # of a large table: the question is whether it is read rightly


def distances(real: pd.DataFrame, made: pd.DataFrame, sizes: dict[str, int]) -> dict[str, float]:
    """Means over columns: of one column, of its pair with the outcome, and of that pair were the two independent."""
    alone, pairs, independent = [], [], []
    for name in [name for name in sizes if name != LABEL]:
        there, here = (_shares(table, name, sizes) for table in (real, made))
        alone.append(_apart(there.sum(axis=1), here.sum(axis=1)))
        pairs.append(_apart(there, here))
        independent.append(_apart(there, np.outer(there.sum(axis=1), there.sum(axis=0))))
    return {
        "columns": float(np.mean(alone)),
        "pairs with the outcome": float(np.mean(pairs)),
        "the same pairs if independent": float(np.mean(independent)),
    }


def _shares(table: pd.DataFrame, name: str, sizes: dict[str, int]) -> Floats:
    shape = (sizes[name], sizes[LABEL])
    flat = np.ravel_multi_index((table[name].to_numpy(), table[LABEL].to_numpy()), shape)
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape) / len(table)


def _apart(a: Floats, b: Floats) -> float:
    return 0.5 * float(np.abs(a - b).sum())


def check(name: str, data: str, epsilon: float, limit: float = 900.0) -> None:
    peer = next((peer for peer in ELSEWHERE if peer.name == name and peer.algorithm != "ebm"), None)
    if peer is None:
        raise SystemExit(f"no peer {name!r} that makes tables")
    cohort = table_of(data)
    order = np.random.default_rng(0).permutation(len(cohort))[:ROWS]
    options = PeerOptions(epsilon=epsilon, time_limit=limit)
    coding = Coding.of(cohort.facts, options.cells)
    table = coding.table(cohort.take(np.sort(order)))
    answer, _ = asked(peer.environment, peer.question(coding, options), table, 1, limit)
    if isinstance(answer, Unfinished):
        raise SystemExit(f"{name}: not finished within {limit:g} CPU seconds")
    found = ", ".join(f"{key} {value:.3f}" for key, value in distances(table, answer, coding.sizes).items())
    print(f"{name} on {data}, {len(table):,} rows, ε = {epsilon:g} (as-published): total variation of {found}")
