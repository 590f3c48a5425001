"""What a private run can show to everybody: the model, marginals and pairs that left the gate. All of it is covered."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from distcondense.arrays import Floats, Index
from distcondense.data.cells import Cells
from distcondense.methods.private.joint import PairTable
from distcondense.outcomes.private_side import PrivateFit, PrivateSide
from distcondense.runs.figures import BARS, HEAT, LINES, STEPS, Figure, Series

STRONGEST = 12  # columns whose part in the model is drawn
DRAWN = 24  # whose marginals are
BINS = 16  # of a number's marginal, at most
NAMES = 20  # categories with a bar of their own
SIDE_BY_SIDE = 3  # classes whose curves can be told apart in one figure
STRETCHES = 8  # of a number, where each class has a row
PAIRS = 6  # pairs of columns whose table is drawn
RANKED = 20  # pairs that are compared
TAIL = 5e-3  # share of patients beyond whom an axis does not go, at either end
NORMAL = 1.96  # standard deviations of a 95% band


def model_figures(
    learned: PrivateFit, side: PrivateSide, labels: tuple[object, ...]
) -> Mapping[str, tuple[Figure, ...]]:
    """By what they show: `model`, `marginals`, `pairs`. Nothing where there was no answer."""
    if not learned.informative:
        return {}
    return {
        "model": (*_survival(learned, side), *_model(learned, side, labels), *_terms(learned, side, labels)),
        "marginals": (*_clipped(learned), *_marginals(learned)),
        "pairs": _pairs(learned),
    }


def _model(learned: PrivateFit, side: PrivateSide, labels: tuple[object, ...]) -> tuple[Figure, ...]:
    """What each value adds to the score, with its 95% band: the strongest columns, all on one scale."""
    tables = [np.atleast_2d(table) for table in learned.model.tables]
    errors = [NORMAL * np.atleast_2d(error) for error in learned.errors]
    codes = [_codes(cells, overall) for cells, overall in zip(learned.model.cells, learned.overall, strict=True)]
    strongest = sorted(range(len(tables)), key=lambda j: -float(np.ptp(tables[j][:, codes[j]], axis=1).max()))
    strongest = strongest[:STRONGEST]
    reach = _reach([tables[j][:, codes[j]] for j in strongest], [errors[j][:, codes[j]] for j in strongest])
    names = [""] if len(tables[0]) == 1 else [str(label) for label in labels] or list(map(str, range(len(tables[0]))))
    out = []
    if len(names) > SIDE_BY_SIDE:
        ends = _reach(
            [tables[j][:, codes[j]] for j in strongest], [np.zeros_like(tables[j][:, codes[j]]) for j in strongest]
        )
        return tuple(
            _by_class(learned, j, names, (tables[j], errors[j]), codes[j], side.effect, ends) for j in strongest
        )
    for j in strongest:
        cells, overall = learned.model.cells[j], learned.overall[j]
        share = overall / max(float(overall.sum()), 1e-12)
        numeric, own = cells.numeric, codes[j]
        shown = np.append(own, own[-1]) if numeric else own  # the last step has an end
        x = _edges(cells)[np.append(own, own[-1] + 1)] if numeric else [_shared(cells, c, share[c]) for c in own]
        lines = tuple(
            Series(name, tuple(x), *(tuple(values[shown].tolist()) for values in (table, table - band, table + band)))
            for name, table, band in zip(names, tables[j], errors[j], strict=True)
        )
        holes = [
            (f"missing ({_percent(share[-1])}){', ' if name else ''}{name}", float(table[-1]))
            for name, table in zip(names, tables[j], strict=True)
        ]
        out.append(
            Figure(
                f"model-{j}",
                STEPS if numeric else BARS,
                f"{cells.column.name}: what it adds to the {side.effect}",
                "As the private model learned it, from noisy answers, with 95% bands. All columns are on one scale; "
                "above 0 raises it. "
                + ("The strip shows where patients are." if numeric else "In brackets: how many have it."),
                _axis(cells),
                f"added to the {side.effect}",
                lines,
                y_range=reach,
                at=tuple(holes) if numeric and cells.hole else (),
                support=tuple(share[own].tolist()) if numeric else (),
            )
        )
    return tuple(out)


def _by_class(
    learned: PrivateFit,
    j: int,
    classes: list[str],
    added: tuple[Floats, Floats],
    codes: Index,
    effect: str,
    reach: tuple[float, float],
) -> Figure:
    """What a column adds to each class: a row of colours a class, where as many curves would hide each other."""
    cells, overall = learned.model.cells[j], learned.overall[j]
    if cells.numeric:
        runs = [codes[run] for run in _runs(overall[codes], STRETCHES)]
        x = [_between(cells, int(run[0]), int(run[-1]), digits=3) for run in runs]
        if cells.hole:
            runs, x = [*runs, np.array([cells.size - 1])], [*x, "missing"]
    else:
        share = overall / max(float(overall.sum()), 1e-12)
        runs, x = [np.array([code]) for code in codes], [_shared(cells, code, share[code]) for code in codes]
    weights = [np.maximum(overall[run], 0) + 1e-9 for run in runs]
    mid, width = (  # the band of a mean is at most the mean of the bands
        np.array([(part[:, run] * w).sum(1) / w.sum() for run, w in zip(runs, weights, strict=True)]).T
        for part in added
    )
    return Figure(
        f"model-{j}",
        HEAT,
        f"{cells.column.name}: what it adds to the {effect}",
        "As the private model learned it, from noisy answers. All columns are on one scale; above 0 raises a class. "
        "The table of each has 95% bands. "
        f"Of {cells.column.name} half of these are narrower than ± {np.median(width):.2g}.",
        _axis(cells),
        "class",
        tuple(
            Series(name, tuple(x), *(tuple(v.tolist()) for v in (y, y - band, y + band)))
            for name, y, band in zip(classes, mid, width, strict=True)
        ),
        y_range=reach,
    )


def _terms(learned: PrivateFit, side: PrivateSide, labels: tuple[object, ...]) -> tuple[Figure, ...]:
    """What the strongest pairs of columns add together, beyond what each adds alone."""
    cells, out = learned.model.cells, []
    scores = range(np.size(learned.model.intercept))
    named = [""] if len(scores) == 1 else [f" of {label}" for label in labels] or [f" of {k}" for k in scores]
    for pair in sorted(learned.model.pairs, key=lambda pair: -float(np.abs(pair.table).max()))[:PAIRS]:
        (i, j), several = pair.columns, pair.table.ndim == 3
        table, error = (part if several else part[None] for part in (pair.table, pair.errors))
        k = int(np.abs(table).max((1, 2)).argmax())
        rows, columns = (_coarse_names(cells[c], g, int(g.max()) + 1) for c, g in zip(pair.columns, pair.groups))  # noqa: B905
        band = NORMAL * error[k]
        lines = tuple(
            Series(name, columns, *(tuple(values.tolist()) for values in (mid, mid - width, mid + width)))
            for name, mid, width in zip(rows, table[k], band, strict=True)
        )
        out.append(
            Figure(
                f"term-{i}-{j}",
                HEAT,
                f"{cells[i].column.name} and {cells[j].column.name}: what they add together to the {side.effect}"
                + named[k],
                "Beyond what each of the two adds alone, as the private model learned it from noisy answers; the table "
                f"below has 95% bands, ± {np.median(band):.2g} in the middle of them.",
                _axis(cells[j]),
                _axis(cells[i]),
                lines,
            )
        )
    return tuple(out)


def _reach(tables: list[Floats], bands: list[Floats]) -> tuple[float, float]:
    """One scale for all: every table, and bands as far as they are not absurdly wide."""
    low, high = min(float(table.min()) for table in tables), max(float(table.max()) for table in tables)
    room = 0.5 * (high - low) or 1.0
    ends = [(float((t - b).min()), float((t + b).max())) for t, b in zip(tables, bands, strict=True)]
    low, high = max(min(end[0] for end in ends), low - room), min(max(end[1] for end in ends), high + room)
    return low - 0.03 * (high - low), high + 0.03 * (high - low)


def _shared(cells: Cells, code: int, share: float) -> str:
    return f"{_name(cells, code)} ({_percent(share)})"


def _percent(share: float) -> str:
    """Of the patients, by noisy counts."""
    return f"{100 * share:.0f}%" if share >= 0.005 else "<1%"


def _survival(learned: PrivateFit, side: PrivateSide) -> tuple[Figure, ...]:
    """The population's survival, where the outcome is one."""
    found = side.curve(learned)
    if found is None:
        return ()
    times, curve = found
    line = Series("private model", (0.0, *times.tolist()), (1.0, *curve.tolist()))
    return (
        Figure(
            "lives",
            LINES,
            "How long the population lives without the event",
            "The share without the event after each time, from noisy counts; the released rows have this curve.",
            "time",
            "share without the event",
            (line,),
            y_range=(0.0, 1.0),
        ),
    )


def _marginals(learned: PrivateFit) -> tuple[Figure, ...]:
    """How common values are, among all rows."""
    out = []
    for j, cells in enumerate(learned.model.cells[:DRAWN]):
        names, share = _binned(cells, learned.overall[j])
        out.append(
            Figure(
                f"marginal-{j}",
                BARS,
                f"{cells.column.name}: how common its values are",
                "Shares of the patients, from noisy counts; numbers in groups of about equal size.",
                _axis(cells),
                "share of patients",
                (Series("noisy share", names, tuple(share)),),
            )
        )
    return tuple(out)


def _clipped(learned: PrivateFit) -> tuple[Figure, ...]:
    """How many the bounds that were found leave out, of columns where nobody knew them."""
    if not learned.clipped:
        return ()
    bounds = {cells.column.name: cells for cells in learned.model.cells}
    names, share, low, high = [], [], [], []
    for one in learned.clipped:
        column = bounds[one.column].column
        ends = ((f"below {column.low:g}", one.below), (f"above {column.high:g}", one.above))
        for (where, rows), noise in zip(ends, one.noise, strict=True):
            names.append(f"{one.column}, {where}")
            share.append(rows / learned.rows)
            low.append(max(rows - NORMAL * noise, 0.0) / learned.rows)
            high.append((rows + NORMAL * noise) / learned.rows)
    return (
        Figure(
            "clipped",
            BARS,
            "What bounds leave out",
            "Nobody knew the bounds of these columns: they were found by noisy counts. Shares of the patients whose "
            "value lies beyond and counts as the lowest or the highest one, with 95% bands of the noise.",
            "column",
            "share of patients",
            (Series("noisy share", tuple(names), tuple(share), tuple(low), tuple(high)),),
        ),
    )


def _pairs(learned: PrivateFit) -> tuple[Figure, ...]:
    """How strongly pairs of columns hang together, of those that were measured, and the tables of the strongest."""
    joint, cells = learned.joint, learned.model.cells
    known = {**{pair: PairTable.whole(table.sum(0)) for pair, table in joint.forest.items()}, **joint.more}
    tables = {pair: table.shares for pair, table in known.items()}
    if not tables:
        return ()
    told = {pair: _information(table) for pair, table in tables.items()}
    ranked = sorted(told, key=lambda pair: -told[pair])
    names = tuple(f"{cells[i].column.name} × {cells[j].column.name}" for i, j in ranked[:RANKED])
    figures = [
        Figure(
            "pairs",
            BARS,
            "Columns that hang together",
            "Mutual information of the pairs of columns that were measured, "
            "with noise: how much knowing one tells about the other. 0: nothing.",
            "pair of columns",
            "bits",
            (Series("private model", names, tuple(told[pair] for pair in ranked[:RANKED])),),
        )
    ]
    for i, j in ranked[:PAIRS]:
        table = tables[i, j]
        share = table / np.maximum(table.sum(1, keepdims=True), 1e-12)
        groups = ((i, known[i, j].first), (j, known[i, j].second))
        rows, columns = (_coarse_names(cells[k], one[joint.coarse[k]], int(one.max()) + 1) for k, one in groups)
        figures.append(
            Figure(
                f"pair-{i}-{j}",
                HEAT,
                f"{cells[j].column.name} by {cells[i].column.name}",
                f"Of the patients in each row ({cells[i].column.name}) the share in each column, from noisy counts.",
                _axis(cells[j]),
                _axis(cells[i]),
                tuple(Series(name, columns, tuple(line)) for name, line in zip(rows, share.tolist(), strict=True)),
            )
        )
    return tuple(figures)


def _information(table: Floats) -> float:
    """Mutual information in bits."""
    p = np.maximum(table, 0) / max(float(table.sum()), 1e-12)
    apart = p.sum(1, keepdims=True) * p.sum(0, keepdims=True)
    there = p > 0
    return max(float((p[there] * np.log2(p[there] / apart[there])).sum()), 0.0)


def _codes(cells: Cells, overall: Floats) -> Index:
    """Of a number the cells that all but the last few patients are in; of categories the commonest."""
    inner = cells.size - cells.hole
    if not cells.numeric:
        return np.sort(np.argsort(-overall, kind="stable")[:NAMES])
    if not overall[:inner].sum() > 0:  # by the noisy counts nobody has a value here
        return np.arange(inner)
    reached = np.cumsum(overall[:inner]) / float(overall[:inner].sum())
    first, last = np.searchsorted(reached, [TAIL, 1 - TAIL])
    return np.arange(first, min(last, inner - 1) + 1)


def _edges(cells: Cells) -> Floats:
    return np.concatenate([[cells.column.low], cells.cuts, [cells.column.high]]).astype(np.float64)


def _axis(cells: Cells) -> str:
    return f"{cells.column.name}, {cells.column.unit}" if cells.column.unit else cells.column.name


def _name(cells: Cells, code: int) -> str:
    return "missing" if cells.hole and code == cells.size - 1 else str(cells.column.categories[code])


def _between(cells: Cells, first: int, last: int, digits: int = 4) -> str:
    """A run of a number's cells: from where to where."""
    edges = _edges(cells)
    return f"{edges[first]:.{digits}g} to {edges[last + 1]:.{digits}g}"


def _binned(cells: Cells, overall: Floats) -> tuple[tuple[str, ...], Floats]:
    """Names and shares: a number's cells in runs of about equal mass, the commonest categories and the rest."""
    codes = _codes(cells, overall)
    if not cells.numeric:
        names, share = tuple(_name(cells, code) for code in codes), overall[codes]
        rest = 1 - float(share.sum())
        return ((*names, "others"), np.append(share, rest)) if rest > 1e-9 else (names, share)
    runs = [codes[run] for run in _runs(overall[codes], BINS)]
    names = tuple(_between(cells, int(run[0]), int(run[-1])) for run in runs)
    share = np.array([float(overall[run].sum()) for run in runs])
    return ((*names, "missing"), np.append(share, overall[-1])) if cells.hole else (names, share)


def _runs(shares: Floats, most: int) -> list[Index]:
    """Cells that follow one another, in at most so many runs of about equal mass."""
    held = shares / max(float(shares.sum()), 1e-12)
    bins = np.clip(((np.cumsum(held) - held / 2) * most).astype(np.int64), 0, most - 1)
    bins = np.unique(bins, return_inverse=True)[1]
    return [np.flatnonzero(bins == k) for k in range(int(bins.max()) + 1)]


def _coarse_names(cells: Cells, coarse: Index, size: int) -> tuple[str, ...]:
    """Of each coarse cell what it holds."""
    out = []
    for k in range(size):
        codes = np.flatnonzero(coarse == k)
        if not len(codes):
            out.append("—")
        elif cells.numeric and not (cells.hole and codes[-1] == cells.size - 1):
            out.append(_between(cells, int(codes[0]), int(codes[-1])))
        else:
            few = [_name(cells, int(code)) for code in codes[:2]]
            out.append(", ".join(few) + (f" and {len(codes) - 2} more" if len(codes) > 2 else ""))
    return tuple(out)
