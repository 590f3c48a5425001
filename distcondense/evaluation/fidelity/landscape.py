"""The landscape of rows: a t-SNE map of real and condensed rows, and how near the nearest real row is (000 Fig 1 B).

No row is drawn: the map is a grid of shares, in which cells with few patients are blank, and distances are histograms.
Distances condensed–real are compared with real–real within the training rows and with those of held-out rows, which no
method has seen. Distances say nothing about privacy by themselves; copies have a part of their own.
"""

from __future__ import annotations

import warnings

import numpy as np

from distcondense.arrays import Floats, Numbers
from distcondense.evaluation.fidelity.comparison import too_few, why_not
from distcondense.evaluation.inputs import EvaluationInput
from distcondense.evaluation.ruler import Ruler
from distcondense.evaluation.score import CONDENSED, FULL, PLAIN, RANDOM, UNKNOWN, Interval, Score
from distcondense.evaluation.section import Log, Section, quiet
from distcondense.kernels.neighbours import nearest
from distcondense.outcomes.likeness import FEWEST
from distcondense.runs.figures import HEAT, LINES, Figure, Series

NAME, TITLE = "landscape", "Where condensed rows lie among real ones"
MAPPED = 1_500  # rows of the map, real and condensed together
CONDENSED_MAPPED = 500  # of these condensed, at most
PERPLEXITY = 30.0
COMPONENTS = 50  # principal components that the map is made of
STEPS = 500  # of t-SNE
GRID = 24  # cells of the map along each side, at most
PER_CELL = 15  # real rows of a cell, on average: fewer patients make a coarser grid
AMONG = 20_000  # training rows among which the nearest is looked for
ASKED = 5_000  # rows of each kind whose nearest is looked for
NUMBERS = 100_000_000  # of all training rows looked at, so that wide tables get fewer of them
BINS = 30  # of distances, at most
TITLES = {"nearest_distance": "Distance to the nearest real training row, median"}
TESTED = "training rows"


def section(inputs: EvaluationInput, *, seed: int, threads: int, log: Log = quiet) -> Section:
    """The map as two grids, distances as histograms, their medians as scores."""
    if why := why_not(inputs):
        return Section(NAME, TITLE, notes=(f"Not measured: {why}.",), titles=TITLES)
    log("mapping rows")
    figures, notes = _map(inputs, seed, threads)
    log("looking for nearest rows")
    scores, drawn, more = _distances(inputs, seed, threads)
    settings = {
        "mapped rows, at most": MAPPED,
        "training rows searched, at most": AMONG,
        "rows of each kind asked, at most": ASKED,
        "perplexity, at most": PERPLEXITY,
    }
    return Section(NAME, TITLE, tuple(scores), (*figures, *drawn), (), (*notes, *more), TITLES, settings)


# -- the map ----------------------------------------------------------------------------------------------------------


def _map(inputs: EvaluationInput, seed: int, threads: int) -> tuple[list[Figure], list[str]]:
    rng = np.random.default_rng([seed, 0x75EE])
    chosen = np.sort(rng.permutation(len(inputs.rows))[:CONDENSED_MAPPED])
    sample = inputs.sample(inputs.split.train, MAPPED - len(chosen), seed)
    if len(sample) < 2 * FEWEST:
        return [], [f"No map: fewer than {2 * FEWEST} training rows."]
    encoded = inputs.codec.encode(sample.features)
    real, made = (Ruler.of(encoded)(rows) for rows in (encoded, inputs.rows[chosen]))
    places = embedded(np.concatenate([real, made]), seed, threads)
    side = int(np.clip((len(real) / PER_CELL) ** 0.5, 2, GRID))
    held, other = grids(places, len(real), side)
    few = too_few(held)
    shown = [np.where(few, np.nan, grid / grid.sum()) for grid in (held, other)]
    lost, gone = (f"{grid[few].sum() / grid.sum():.0%}" for grid in (held, other))
    about = (
        f"t-SNE puts rows that are alike near each other; its axes have no unit. Cells with fewer than {FEWEST} real "
        f"rows are blank: together they hold {lost} of the real rows and {gone} of the condensed ones."
    )
    axis = tuple(str(k + 1) for k in range(side))
    figures = [
        Figure(
            f"map_{name}",
            HEAT,
            title,
            about,
            "first axis",
            "second axis",
            tuple(Series(str(side - k), axis, tuple(grid[:, side - 1 - k].tolist())) for k in range(side)),
        )
        for name, title, grid in (
            ("real", "Where real rows lie (share of them in each cell)", shown[0]),
            ("condensed", "Where condensed rows lie (share of them in each cell)", shown[1]),
        )
    ]
    note = f"The map: a random {len(real):,} of {sample.of:,} training rows and {len(made):,} condensed rows."
    return figures, [note]


def embedded(rows: Numbers, seed: int, threads: int) -> Floats:
    """(n, 2) where t-SNE puts the rows, from their first principal components."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # copies of one row have no direction to go
        if rows.shape[1] > COMPONENTS:
            rows = PCA(COMPONENTS, svd_solver="randomized", random_state=seed % 2**31).fit_transform(rows)
        start = "pca" if rows.shape[1] > 1 and rows.std() > 0 else "random"
        model = TSNE(
            perplexity=min(PERPLEXITY, max(1.0, (len(rows) - 1) / 3)),
            init=start,
            random_state=seed % 2**31,
            n_jobs=threads,
            max_iter=STEPS,
        )
        return np.asarray(model.fit_transform(rows.astype(np.float32)), np.float64)


def grids(places: Floats, real: int, side: int) -> tuple[Floats, Floats]:
    """(side, side) rows in each cell of a square grid over all places: the first `real` of them, and the others."""
    edges = [np.linspace(axis.min(), max(axis.max(), axis.min() + 1e-9), side + 1) for axis in places.T]
    return (
        np.histogram2d(places[:real, 0], places[:real, 1], edges)[0],
        np.histogram2d(places[real:, 0], places[real:, 1], edges)[0],
    )


# -- nearest rows -----------------------------------------------------------------------------------------------------


def _distances(inputs: EvaluationInput, seed: int, threads: int) -> tuple[list[Score], list[Figure], list[str]]:
    width = max(inputs.rows.shape[1], 1)
    train = inputs.sample(inputs.split.train, max(FEWEST, min(AMONG, NUMBERS // width)), seed)
    held = inputs.sample(inputs.split.test, ASKED, seed)
    rng = np.random.default_rng([seed, 0xD157])
    chosen = np.sort(rng.permutation(len(inputs.rows))[:ASKED])
    own = np.sort(rng.permutation(len(train))[:ASKED])
    encoded = inputs.codec.encode(train.features)
    ruler = Ruler.of(encoded)
    among, made, real = (ruler(rows) for rows in (encoded, inputs.rows[chosen], inputs.codec.encode(held.features)))
    found = {
        (FULL, "", "real–real, within training rows"): nearest(among[own], among, 2, threads)[0][:, -1],
        (RANDOM, "", "held-out–real"): nearest(real, among, 1, threads)[0][:, 0],
        (CONDENSED, PLAIN, "condensed–real"): nearest(made, among, 1, threads)[0][:, 0],
    }
    scores = []
    for (name, labels, _), distances in found.items():
        about = {"rows": len(distances), "labels": labels, "interval": "order statistics"}
        reach, covered = median_between(distances), name == CONDENSED
        scores.append(Score.from_interval("nearest_distance", name, TESTED, reach, len(among), covered, **about))
    notes = [
        f"Distances to the nearest of {len(train):,} training rows"
        + (f" (of {train.of:,}, at random)" if len(train) < train.of else "")
        + f", of at most {ASKED:,} rows of each kind, in standard deviations of encoded columns; without the outcome.",
        "Beside condensed rows stand training rows, each without itself, and as random real rows the held-out ones.",
    ]
    return scores, _histograms({words: values for (_, _, words), values in found.items()}), notes


def median_between(values: Floats) -> Interval:
    """The median and the order statistics between which it lies with 95%, whatever the distribution."""
    from scipy.stats import binom

    ordered, n = np.sort(values), len(values)
    if n < FEWEST:
        return UNKNOWN
    low = int(max(binom.ppf(0.025, n, 0.5) - 1, 0))
    ends = np.median(ordered), ordered[low], ordered[n - 1 - low]
    return Interval(*(float(f"{end:.3g}") for end in ends))  # not to the last digit: it is somebody's distance


def _histograms(found: dict[str, Floats]) -> list[Figure]:
    """On one axis of powers of ten, between round numbers that nearly all distances lie between."""
    every = np.concatenate(list(found.values()))
    if not (every > 0).any():
        return []
    low, high = np.log10(np.quantile(every[every > 0], [0.02, 0.98]))
    low, high = np.floor(low * 5) / 5, np.ceil(high * 5) / 5 + (low == high)
    bins = int(np.clip(min(map(len, found.values())) // (3 * FEWEST), 3, BINS))
    edges = np.linspace(low, high, bins + 1)
    series = []
    for words, distances in found.items():
        at = np.clip(np.searchsorted(10**edges, distances, side="right") - 1, 0, bins - 1)
        counts = np.bincount(at, minlength=bins).astype(np.float64)
        share = np.where(too_few(counts), np.nan, counts / len(distances))
        series.append(Series(words, tuple(np.round((edges[1:] + edges[:-1]) / 2, 3).tolist()), tuple(share.tolist())))
    about = (
        "Share of rows by the distance to their nearest training row, in powers of ten; the first and the last point "
        "stand for all beyond, copies too. Condensed rows that lie nearer than held-out rows do are near somebody in "
        f"particular. Bins with fewer than {FEWEST} rows are blank."
    )
    return [
        Figure(
            "nearest",
            LINES,
            "How near the nearest real training row is",
            about,
            "log10 of the distance, in standard deviations of encoded columns",
            "share of rows",
            tuple(series),
        )
    ]
