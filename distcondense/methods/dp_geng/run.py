"""A run of dp-geng after its generator: networks on generated rows, patients' answers about them, and distilled rows.

The networks and rows are public once the generator's answers are; `ask` alone puts questions to patients, by the gate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from distcondense.arrays import Floats, Index, Matrix
from distcondense.methods.dp_geng.distil import Distillation, chosen, reference_rows
from distcondense.methods.dp_geng.encoding import Encoding
from distcondense.methods.dp_geng.generator import Generated
from distcondense.methods.dp_geng.maps import ClassFeatures, Gradients
from distcondense.methods.dp_geng.networks import FeatureNetwork, trained
from distcondense.methods.dp_geng.options import ALL, GENERATED
from distcondense.methods.dp_geng.prepare import PreparedDpGeng
from distcondense.outcomes.private_side import PrivateFit
from distcondense.privacy.gate import PrivateTable

TYPICAL = 0.5  # quantile of norms over generated rows that is the clipping norm C; the paper gives none
SAMPLE = 2000  # generated rows whose gradients say how long gradients are
EXTRACTOR, EXPERT, START, WALK, REFERENCE = 0xD603, 0xD604, 0xD605, 0xD606, 0xD607  # what seeds what


class DpGengRun:
    """One run after the generator: T̂, the networks, and what patients' answers make of them."""

    def __init__(self, prepared: PreparedDpGeng, learned: PrivateFit, log: Callable[[str], None]) -> None:
        self.prepared, self.learned, self.options, self.log = prepared, learned, prepared.options, log
        self.classes = prepared.side.groups
        self.extractors: list[FeatureNetwork] = []
        self.clips: list[float] = []
        self.targets: list[Floats] = []
        self.expert: FeatureNetwork | None = None

    def train(self) -> None:
        """T̂, extractors and the expert, before any patient is asked about them (Algorithm 1, lines 2 and 3)."""
        options, generator = self.options, self.prepared.generator
        self.generated: Generated = generator.drawn(self.learned, options.generated, options.seed)
        self.encoding = Encoding.from_cells(self.learned.model.cells, self.generated.codes)
        self.rows = self.encoding.rows(self.generated.codes)
        many = options.extractors if options.matching else 1  # k-means looks at the features of one
        self.extractors = [self._trained(options.extractor_epochs, EXTRACTOR, n) for n in range(many)]
        self.clips = [typical(network.features(self.rows)) for network in self.extractors]
        if options.expert:
            self.expert = self._trained(options.expert_epochs, EXPERT, 0)
        self.log(f"{len(self.rows)} generated rows; {many} extractors{', an expert' if options.expert else ''} trained")

    def _trained(self, epochs: int, *seed: int) -> FeatureNetwork:
        return trained(
            self.rows,
            self.generated.chance,
            hidden=self.options.units,
            features=self.options.features,
            epochs=epochs,
            seed=(self.options.seed, *seed),
        )

    def ask(self, table: PrivateTable) -> None:
        """Noisy class means of every extractor's features (eq. 1), then the expert's noisy gradients (Algorithm 2)."""
        if self.options.matching:
            for network, clip in zip(self.extractors, self.clips, strict=True):
                asked = ClassFeatures(network, self.encoding, table.objective, clip)
                self.targets.append(
                    class_means(table.mapped(asked, mu=self.prepared.matching_cost), self.learned, clip)
                )
        if self.expert is not None:
            self.expert = self._fine_tuned(self.expert, table)
        self.log(f"asked {len(table.ledger.events)} noisy answers of patients in all")

    def _fine_tuned(self, expert: FeatureNetwork, table: PrivateTable) -> FeatureNetwork:
        """Algorithm 2, of everybody at once: φ ← φ − η·(Σ clipped gradients + noise)/n, n the noisy number of rows."""
        options, whole = self.options, self.options.fine_tune == ALL
        clip = typical(expert.gradients(self.rows[:SAMPLE], self.generated.label[:SAMPLE], whole=whole))
        for _ in range(options.expert_steps):
            asked = Gradients(expert, self.encoding, table.objective, clip, whole)
            noisy = table.mapped(asked, mu=self.prepared.gradient_cost)
            expert = expert.moved(-options.expert_rate * clip / self.learned.rows * noisy)
        return expert

    def distilled(self) -> Floats:
        """(classes, ipc, d) rows as networks see them (Algorithm 1, lines 4 to 16)."""
        options = self.options
        low, high = self.encoding.box
        walk = Distillation(
            self.extractors if options.matching else (),
            np.array(self.targets).reshape(-1, self.classes, options.features),
            np.array(self.clips),
            self.expert,
            reference_rows(self.rows, self.generated.label, self.classes, seed_of(options.seed, REFERENCE)),
            low,
            high,
            options.rate,
            options.guide_rate,
            options.class_batch,
            options.iterations,
        )
        return walk(self._start(), seed_of(options.seed, WALK))

    def _start(self) -> Floats:
        """DP-Init: generated rows of each class that lie nearest to the centres of k-means; or noise, without it."""
        options, low_high = self.options, self.encoding.box
        if options.start != GENERATED:
            rng = np.random.default_rng([options.seed, START])
            return np.clip(rng.normal(size=(self.classes, options.ipc, self.encoding.width)), *low_high)
        features = self.extractors[0].features(self.rows)
        picked = [
            own[chosen(features[own], options.ipc, seed_of(options.seed, START, k))]
            for k in range(self.classes)
            if len(own := np.flatnonzero(self.generated.label == k))
        ]
        rows = [self._exact(where) for where in picked]
        return np.stack([np.clip(self.encoding.of_codec(row), *low_high) for row in rows])

    def _exact(self, where: Index) -> Matrix:
        """Generated rows with their numbers, not the middles of their cells."""
        return self.prepared.generator.rows_of(self.learned, self.generated.codes[where], self.generated.inside[where])

    def logits(self, rows: Floats) -> Floats:
        """(n, classes) of rows as networks see them, by the expert."""
        assert self.expert is not None
        return self.expert.logits(rows)


def typical(vectors: Floats) -> float:
    """C: half of the generated rows' vectors are longer."""
    return max(float(np.quantile(np.sqrt((vectors * vectors).sum(1)), TYPICAL)), 1e-6)


def class_means(noisy: Floats, learned: PrivateFit, clip: float) -> Floats:
    """(classes, features) means of clipped features: noisy sums over noisy numbers of rows, no longer than C."""
    means = clip * noisy.reshape(len(learned.shares), -1) / np.maximum(learned.rows * learned.shares, 1.0)[:, None]
    length = np.sqrt((means * means).sum(1, keepdims=True))
    return np.asarray(means * np.minimum(1.0, clip / np.maximum(length, 1e-12)), np.float64)


def seed_of(*parts: int) -> int:
    return int(np.random.default_rng(list(parts)).integers(2**31))
