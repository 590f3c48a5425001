"""Whether what was learned is an answer, or chance: rows are counted first, and one question is asked after the rounds.

The question is how far the model's scores f agree with the outcomes: Σ g·φ over all rows, where −g is what a row's
gradient would be if the features said nothing, and φ is f cut to length 1. It is one number, so that its noise is
small, and the noise that the model was fitted to is no part of it: columns that repeat each other may fit that noise
back and forth, which looks like evidence column by column, but agrees with nobody. The patients' own variation is in
both. What it alone would give is drawn from public facts and noisy answers: columns without any relation to the
outcome, with the same cells, hessians and noise, smoothed by the same code. An answer must agree better than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from distcondense.arrays import Codes, Floats
from distcondense.kernels import elementwise
from distcondense.methods.private.smoothing import smooth
from distcondense.outcomes.private_side import PrivateFit, PrivateQueries, PrivateSide
from distcondense.privacy.contributions import Objective, Statistic, Target

DRAWS = 100  # of a table without any relation
MANY = 10_000  # normal scores by which it is known what cutting them does
SEED = 0xC0DE  # of these draws: they are compared with a noisy answer, so it is no secret
PRODUCT = 0.9  # weight of g·φ in a row's norm
MEANS = 0.3  # and of g and of φ
WIDTH = 0.5  # of the scores' standard deviation: further out than that all count alike, against the noise
NARROWEST = 1e-6  # where all scores are the same
# below any of these the run says that it found no answer, instead of handing over noise as data
STANDS_OUT = 2.5  # standard deviations by which scores agree with outcomes better than by chance
SPREAD = 0.15  # standard deviation of the model's margin; less than that is an AUROC of about 0.54
CASES = 3.0  # noisy number of the rarer class, in standard deviations of its noise
FEW = "too few rows of the rarer class to tell from noise"
NOTHING = "no relation between the features and the outcome that stands out of the noise"


@dataclass(frozen=True)
class ChosenAmong:
    """How columns were chosen: each was the best of `rivals` by its |gradient sums| and Gumbel noise."""

    rivals: int = 1
    noise: float = 0.0  # scale of the Gumbel noise, in persons


@dataclass(frozen=True)
class ColumnEvidence:
    """What all rounds told about the table of one column, or of a pair."""

    precision: Floats  # (S, cells, cells)
    noise: Floats  # (S, cells, cells) covariance of the information that privacy noise makes
    hessian: Floats  # (S, cells)
    kernels: Floats
    chosen: ChosenAmong | None = None  # of a pair; columns are all chosen alike


@dataclass(frozen=True)
class AgreementObjective:
    """An objective with one statistic more, "agreement": how a row's score and its outcome go together.

    With g and φ of norm at most 1 (the objective's own proof; φ is cut) a row adds (0.9·g·φ, 0.3·g, 0.3·φ): |g·φ| ≤ 1
    by Cauchy and Schwarz, so its norm is at most √(0.81 + 2·0.09) < 1. Read as Σ g·φ, (S,) Σ g, (S,) Σ φ: with the
    sums of both a shift of all scores or outcomes can be taken out again.
    """

    of: Objective
    start: tuple[float, ...]  # (S,) the score of all rows if the features said nothing
    centre: tuple[float, ...]  # (S,) the mean of the scores now
    width: float  # of differences from it that count in full

    @property
    def statistics(self) -> Mapping[str, Statistic]:
        scores = self.of.scores
        weights = np.array([PRODUCT] + [MEANS] * (2 * scores))

        def values(target: Target, score: Floats) -> list[Floats]:
            several = np.reshape(score, (len(score), scores))
            still = np.reshape(np.broadcast_to(self.start, several.shape), np.shape(score))
            g = -np.stack(self.of.contributions(still, target)[:scores], axis=1)
            f = several - self.centre
            phi = f / np.maximum(np.sqrt(elementwise.row_sums(f * f)), self.width)[:, None]
            return [PRODUCT * elementwise.row_sums(g * phi), *(MEANS * g.T), *(MEANS * phi.T)]

        made = Statistic(len(weights), values, lambda answer: answer / weights, float(1 / PRODUCT))
        return {**self.of.statistics, "agreement": made}

    @property
    def scores(self) -> int:
        return self.of.scores

    @property
    def scales(self) -> tuple[float, ...]:
        return self.of.scales

    @property
    def groupings(self) -> Mapping[str, int]:
        return self.of.groupings

    @property
    def ready(self) -> bool:
        return self.of.ready

    def prepare(self, target: Target) -> Target:
        return self.of.prepare(target)

    def group(self, by: str, target: Target) -> Codes:
        return self.of.group(by, target)

    def contributions(self, score: Floats, target: Target) -> tuple[Floats, ...]:
        return self.of.contributions(score, target)

    def continues(self, earlier: Objective) -> bool:
        return self.of.continues(earlier)


def agreement_evidence(
    ask: PrivateQueries,
    side: PrivateSide,
    intercept: Any,
    tables: Sequence[Floats],
    evidence: Sequence[ColumnEvidence],
    rows: float,
    facts: Mapping[str, Any],
    chosen: ChosenAmong,
) -> float:
    """By how many standard deviations the model agrees with the outcomes better than chance would; asks one question.

    `tables` are those of merged cells, as the rounds left them. Where their means lie the hessians say best.
    """
    objective = ask.objective
    scores, scale = objective.scores, objective.scales[0]
    start = np.atleast_1d(intercept).astype(np.float64)
    centre, square = start, 0.0
    for table, one in zip(tables, evidence, strict=True):
        mean, variance = _moments(np.atleast_2d(table), one.hessian)
        centre, square = centre + mean, square + variance.sum()
    if not side.drifts:
        start = centre
    ask.set_objective(
        AgreementObjective(
            objective, tuple(start.tolist()), tuple(centre.tolist()), max(float(WIDTH * np.sqrt(square)), NARROWEST)
        )
    )
    product, *means = ask.total("agreement", "agreement")
    g, phi = np.clip(np.reshape(means, (2, scores)) / max(rows, 1.0), -1, 1)
    noise = ask.noise("agreement") * np.sqrt(1 / PRODUCT**2 + (g @ g + phi @ phi) / MEANS**2)
    chance = by_chance(side, evidence, facts.get("dispersion", 1.0), ChosenAmong(chosen.rivals, chosen.noise / scale))
    # as much of scores that spread like these, cut to φ; the more they spread, the less of it chance can have made
    chance = scale * _cut(scores) * chance / max(float(np.sqrt(square)), NARROWEST)
    return stands_out(product - rows * (g @ phi), chance, noise)


def stands_out(agreement: float, chance: Floats, noise: float) -> float:
    """Standard deviations by which an agreement with Gaussian noise is above what chance makes, `chance` (draws,).

    Models of nothing agree little most of the time and sometimes much: where their deviation would make more of an
    agreement than the share of them that reaches it, it is that share that counts.
    """
    reached = np.mean(special.ndtr((chance - agreement) / noise))
    return float(min((agreement - chance.mean()) / np.hypot(chance.std(), noise), -special.ndtri(reached)))


def _cut(scores: int) -> float:
    """Σ g·φ of normal scores f whose Σ g·f is 1, and their variance: by Stein's lemma the same for whatever g is."""
    drawn = np.random.Generator(np.random.PCG64(SEED)).normal(size=(MANY, scores)) / np.sqrt(scores)
    length = np.sqrt((drawn * drawn).sum(1))
    return float(np.mean(length**2 / np.maximum(length, WIDTH)))


def by_chance(side: PrivateSide, evidence: Sequence[ColumnEvidence], dispersion: float, chosen: ChosenAmong) -> Floats:
    """(DRAWS,) Σ g·f, in units of a gradient, of models f fitted to nothing but patients' variation and noise.

    Columns are drawn independently of each other: those that share their variation have less of it between them.
    """
    rng = np.random.Generator(np.random.PCG64(SEED))  # no noise: the same in every run
    agreement = np.zeros(DRAWS)
    for one in evidence:
        H = np.broadcast_to(one.hessian[:, None], (len(one.hessian), DRAWS, one.hessian.shape[1]))
        share, held = _multinomial(one.hessian)
        own = _chosen(rng, np.sqrt(dispersion * held), share, one.chosen or chosen)
        # Σ of rounds: the patients' part is the same in each, the noise is new
        blur = one.hessian[..., None] * np.linalg.pinv(one.precision, hermitian=True) @ _root(one.noise)
        slope = side.newton(own + _zero_sum(rng.normal(size=H.shape) @ blur.transpose(0, 2, 1), share), H)
        made = side.settled(smooth(one.precision, slope @ one.precision, one.kernels))
        mean, _ = _moments(made, one.hessian[:, None])
        agreement -= ((made - mean[..., None]) * own).sum((0, 2))
    return agreement


def _moments(table: Floats, hessian: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of (…, cells) tables over rows; a cell's hessian says how many it holds."""
    share = hessian / np.maximum(hessian.sum(-1, keepdims=True), 1e-12)
    mean = (table * share).sum(-1)
    return mean, (np.square(table - mean[..., None]) * share).sum(-1)


def _chosen(rng: np.random.Generator, deviation: Floats, share: Floats, chosen: ChosenAmong) -> Floats:
    """(S, DRAWS, cells) gradient sums of a column without any relation, the best of its rivals."""
    scores, cells = deviation.shape
    out = np.empty((scores, DRAWS, cells))
    for draw in range(DRAWS):
        rivals = _zero_sum(rng.normal(size=(scores, chosen.rivals, cells)) * deviation[:, None], share)
        worth = np.abs(rivals).sum((0, 2)) + chosen.noise * rng.gumbel(size=chosen.rivals)
        out[:, draw] = rivals[:, worth.argmax()]
    return out


def _root(covariance: Floats) -> Floats:
    """(S, s, s) symmetric square roots."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))[:, None]) @ vectors.transpose(0, 2, 1), np.float64)


def _multinomial(hessian: Floats) -> tuple[Floats, Floats]:
    """(S, cells) shares of several classes in each cell, and their rows: n·p where a hessian is n·p(1 − p)."""
    if len(hessian) == 1:
        return np.zeros_like(hessian), hessian
    part = hessian / np.maximum(hessian.sum(0), 1e-12)
    held = hessian / np.maximum(1 - part, 1e-6)
    return held / np.maximum(held.sum(0), 1e-12), held


def _zero_sum(drawn: Floats, share: Floats) -> Floats:
    """(S, n, cells) several gradients of one row add up to 0: what is left over goes to classes by their share.

    In equal parts it would drown a class that hardly anybody is in. Of variances n·p that leaves n·p(1 − p).
    """
    return drawn - share[:, None] * drawn.sum(0)


def reason_for_doubt(learned: PrivateFit, side: PrivateSide, noise: float) -> str:
    """Why what was learned is no answer, in words; empty where it is one. `noise` is that of a group's rows."""
    if learned.rows * side.least_share(learned.shares) < CASES * noise:
        return FEW
    overall, model = learned.overall, learned.model
    columns = zip(overall, model.tables, strict=True)  # tables have mean 0
    variances = np.sum([np.square(np.atleast_2d(table)) @ p for p, table in columns], axis=0)
    for pair in model.pairs:
        first, second = (np.bincount(group, overall[j]) for j, group in zip(pair.columns, pair.groups, strict=True))
        table = pair.table if pair.table.ndim == 3 else pair.table[None]
        variances = variances + np.einsum("sab,a,b->s", np.square(table), first, second)
    # of several scores that add up to 0: for two classes that would be the spread of the log odds
    spread = np.sqrt(variances[0] if len(variances) == 1 else 2 * variances.sum() / (len(variances) - 1))
    if learned.evidence < STANDS_OUT or spread < SPREAD:
        return NOTHING
    return ""
