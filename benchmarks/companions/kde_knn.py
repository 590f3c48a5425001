"""KDE-KNN's effect of the filters (Tables 4 and 5) on public tables: `python -m benchmarks.companions.kde_knn`.

Their hospital tables are not public. Comparable ones: 1,275 answers of BRFSS 2015 drawn with their share of cases (979
without, 296 with diabetes; 21 columns), the rest of the survey's rows being the "external" table; and SEER breast
(4,024 patients, 15% died, numbers and categories) with a test part only. As there: 85% to train, 540 rows of each
class, students trained on synthetic rows and tested on real ones by AUROC, seeds repeated. Added: no validator, no
distance filter, and the distance to the closest record (DCR) of each; bandwidths (Figure 6); SMOTE–Tomek of both
classes (Table A8) and, as the deep comparator, psygentab's network without its search, where they have TabDDPM and
CT-GAN; the paper's rank tests: Kolmogorov–Smirnov of every column against the real rows (Table 6), Mann–Whitney of the
two real tables with Bonferroni's correction (Table 1). CatBoost is not a dependency; LightGBM with its defaults stands
in.
NO PRIVACY GUARANTEE: every number here is of a method that promises nothing.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

import distcondense as dc
from benchmarks import cohorts, record
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.features import check_features
from distcondense.data.persons import Split
from distcondense.data.schema import Column
from distcondense.data.tables import read_table
from distcondense.kernels.neighbours import nearest
from distcondense.methods.base import Context
from distcondense.methods.kde_knn.condense import condense
from distcondense.methods.kde_knn.filters import mean_distance
from distcondense.methods.kde_knn.options import KdeKnnOptions
from distcondense.outcomes.measures import auroc
from distcondense.runs.result import Result, labelled_of

CASES, CONTROLS, ROWS = 296, 979, 540
EXTERNAL = 10_000
WAYS: dict[str, dict[str, Any]] = {
    "KDE-KNN": {},
    "KDE-RF": {"validator": "rf"},
    "KDE-SVM": {"validator": "svm"},
    "KDE, distance filter only": {"validator": "none"},
    "KDE-KNN, no distance filter": {"sigma": 0.0},
    "KDE alone": {"validator": "none", "sigma": 0.0},
    **{f"KDE-KNN, bandwidth {width:g}": {"bandwidth": width, "sigma": 0.0} for width in (0.1, 0.25, 0.5, 1.0)},
}
SMOTE_TOMEK, NETWORK = "SMOTE–Tomek", "network (psygentab, no search)"
SURE = 0.05  # of a rank test
NONE = np.empty(0, np.int64)


def brfss(seed: int) -> tuple[Cohort, Cohort]:
    """A table of their size and share of cases, and the external one."""
    whole = cohorts.brfss()
    label, rng = whole.outcome["label"], np.random.default_rng(seed)
    order = rng.permutation(len(whole))
    chosen = np.concatenate([order[label[order] == 1][:CASES], order[label[order] == 0][:CONTROLS]])
    rest = np.setdiff1d(order, chosen)
    return whole.take(np.sort(chosen)), whole.take(rng.choice(rest, EXTERNAL, replace=False))


def seer(seed: int) -> tuple[Cohort, None]:
    frame = read_table(cohorts.path_of("seer_breast_4024.csv")).rename(columns=str.strip)
    schema = cohorts.schema_of("seer")
    assert schema is not None
    features = schema.without(("Survival Months", "Status"))
    told = Column("Status", "binary", categories=("Alive", "Dead"))
    table = frame.drop(columns=["Survival Months"])
    return Cohort.from_frame(table, target="Status", schema=type(schema)((*features.columns, told))), None


def students(seed: int, threads: int) -> dict[str, Callable[[Any, Any], Callable[[Any], Any]]]:
    """Classifiers of Tables 3 and 4, with the settings of their appendix A."""
    import lightgbm as lgb
    import xgboost as xgb
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.svm import SVC

    def by(model: Any, probabilities: bool) -> Callable[[Any, Any], Callable[[Any], Any]]:
        def fit(rows: Any, label: Any) -> Callable[[Any], Any]:
            model.fit(rows, label)
            return (lambda at: model.predict_proba(at)[:, 1]) if probabilities else model.decision_function

        return fit

    forest = RandomForestClassifier(
        120, max_depth=16, min_samples_split=4, min_samples_leaf=2, random_state=seed, n_jobs=threads
    )
    trees = xgb.XGBClassifier(
        n_estimators=148,
        max_depth=7,
        learning_rate=0.0216,
        gamma=0.1664,
        subsample=0.5931,
        colsample_bytree=0.7361,
        scale_pos_weight=8.399,
        random_state=seed,
        n_jobs=threads,
    )
    light = lgb.LGBMClassifier(verbose=-1, random_state=seed, n_jobs=threads)
    return {
        "RF": by(forest, True),
        "SVM (linear)": by(SVC(kernel="linear", C=4.0), False),
        "SVM (rbf)": by(SVC(C=4.0), False),
        "XGBoost": by(trees, True),
        "LightGBM": by(light, True),
    }


def run(name: str, seed: int, threads: int) -> Iterator[dict[str, Any]]:
    cohort, external = brfss(seed) if name == "brfss" else seer(seed)
    order = np.random.default_rng([seed, 85]).permutation(len(cohort))
    train, test = (cohort.take(np.sort(part)) for part in np.split(order, [round(0.85 * len(order))]))
    codec = Codec.fit(train.features, train.schema)
    real, label = codec.encode(train.features), train.outcome["label"].astype(int)
    tested = {"test": test} if external is None else {"test": test, "external": external}
    there = {where: (codec.encode(c.features), c.outcome["label"]) for where, c in tested.items()}

    def scored(rows: Any, labels: Any, which: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
        for student, fit in students(seed, threads).items():
            if not which or student in which:
                model = fit(rows, labels)
                found = {where: float(auroc(y, model(at))) for where, (at, y) in there.items()}
                yield {"data": name, "seed": seed, "student": student, **found}

    yield from ({"table": "3 and 4", "way": "real rows", **one} for one in scored(real, label))
    yield {"table": "DCR", "data": name, "seed": seed, "way": "real rows", "dcr": mean_distance(real, threads)}
    for where, (at, _) in there.items():
        yield {"table": "ranks", "data": name, "seed": seed, "way": f"real rows, {where}", **ranks(real, at)}
    for way, make in ((SMOTE_TOMEK, smote_tomek), (NETWORK, network)):
        rows, labels = make(train, codec, real, label, seed, threads)
        yield from ({"table": "3 and 4", "way": way, **one} for one in scored(rows, labels))
        dcr = float(nearest(rows, real, 1, threads)[0].mean())
        yield {"table": "DCR", "data": name, "seed": seed, "way": way, "dcr": dcr}
        yield {"table": "ranks", "data": name, "seed": seed, "way": way, **ranks(real, rows)}
    for way, how in WAYS.items():
        made = condense(
            train,
            KdeKnnOptions(ipc=ROWS, seed=seed, **how),
            Context(threads=threads),
            Split(np.arange(len(train)), NONE, NONE),
        )
        rows, labels = encoded(made, codec), made.details.labelled.outcome["label"].astype(int)
        yield from ({"table": "3 and 4", "way": way, **one} for one in scored(rows, labels))
        dcr, drawn = float(nearest(rows, real, 1, threads)[0].mean()), made.details.notes["drawn_by_class"]
        kept = [round(ROWS / max(one, 1), 3) for one in drawn]
        yield {"table": "DCR", "data": name, "seed": seed, "way": way, "dcr": dcr, "kept_by_class": kept}
        yield {"table": "ranks", "data": name, "seed": seed, "way": way, **ranks(real, rows)}
        if way == "KDE-KNN":
            yield from mixed(real, label, rows, labels, scored, seed)


def smote_tomek(train: Cohort, codec: Codec, real: Any, label: Any, seed: int, threads: int) -> tuple[Any, Any]:
    """ROWS rows of each class between real ones and their neighbours, less Tomek links: all synthetic."""
    from imblearn.over_sampling import SMOTE
    from imblearn.under_sampling import TomekLinks

    rows, labels = [], []
    for k, many in enumerate(np.bincount(label)):
        both = SMOTE(sampling_strategy={k: many + ROWS}, k_neighbors=7, random_state=seed).fit_resample(real, label)
        rows.append(np.asarray(both[0])[len(real) :])
        labels.append(np.full(ROWS, k))
    found = TomekLinks(sampling_strategy="all").fit_resample(np.concatenate(rows), np.concatenate(labels))
    return np.asarray(found[0], np.float32), np.asarray(found[1], int)


def network(train: Cohort, codec: Codec, real: Any, label: Any, seed: int, threads: int) -> tuple[Any, Any]:
    """The deep comparator: an autoregressive network, trained on patients without noise."""
    how = {"method": "psygentab", "regime": "off", "ipc": ROWS, "seed": seed, "threads": threads}
    made = dc.condense(train, **how)
    rows = codec.encode(check_features(made.frame[made.schema.names], made.schema))
    return rows, labelled_of(made.frame, made.kind).outcome["label"].astype(int)


def ranks(real: Any, other: Any) -> dict[str, float]:
    """Mean p of Kolmogorov–Smirnov over columns; share of columns that Mann–Whitney, corrected, tells apart."""
    varied = [j for j in range(real.shape[1]) if len(np.unique(real[:, j])) > 1]
    ks = [stats.ks_2samp(real[:, j], other[:, j]).pvalue for j in varied]
    told = [stats.mannwhitneyu(real[:, j], other[:, j]).pvalue * len(varied) < SURE for j in varied]
    return {"ks_p": float(np.mean(ks)), "told_apart": float(np.mean(told))}


def encoded(made: Result, codec: Codec) -> Any:
    features = made.details.features
    return codec.encode(features.reindex(columns=[*features, *(c for c in codec.columns if c not in features)]))


def mixed(real: Any, label: Any, rows: Any, labels: Any, scored: Any, seed: int) -> Iterator[dict[str, Any]]:
    """Table 5: so much of each, of as many rows in all as there are of both."""
    rng, n = np.random.default_rng([seed, 5]), min(len(real), len(rows))
    for share in (0, 20, 40, 60, 80, 100):
        few = round(n * share / 100)
        ours, theirs = rng.permutation(len(rows))[:few], rng.permutation(len(real))[: n - few]
        together = np.concatenate([rows[ours], real[theirs]]), np.concatenate([labels[ours], label[theirs]])
        yield from ({"table": "5", "way": f"{share}% synthetic", **one} for one in scored(*together, ("SVM (rbf)",)))


def report(records: list[dict[str, Any]], seeds: int) -> str:
    frame = pd.DataFrame(records)
    lines = [
        f"# kde-knn: the effect of the filters, {seeds} seeds",
        "",
        f"`python -m benchmarks.companions.kde_knn --seeds {seeds}`. NO PRIVACY GUARANTEE of any row. Mean ± "
        "standard deviation of the AUROC on real rows.",
        "",
    ]
    for name, own in frame.groupby("data", sort=False):
        where = [w for w in ("test", "external") if own.get(w, pd.Series(dtype=float)).notna().any()]
        for title, table in (("Tables 3, 4 and A10", "3 and 4"), ("Table 5, SVM (rbf)", "5")):
            some = own[own["table"] == table]
            lines += [
                f"## {name}: {title}",
                "",
                f"| rows | student | {' | '.join(where)} |",
                "| --- | --- |" + " --- |" * len(where),
            ]
            for (way, student), cell in some.groupby(["way", "student"], sort=False):
                told = " | ".join(f"{cell[w].mean():.3f} ± {cell[w].std(ddof=0):.3f}" for w in where)
                lines.append(f"| {way} | {student} | {told} |")
            lines.append("")
        lines += [
            f"## {name}: distance to the closest record, and drawn rows that are kept",
            "",
            "| rows | mean DCR | kept, class by class |",
            "| --- | --- | --- |",
        ]
        for way, cell in own[own["table"] == "DCR"].groupby("way", sort=False):
            kept = [one for one in cell["kept_by_class"] if isinstance(one, list)]
            told = ", ".join(f"{share:.3f}" for share in np.mean(kept, axis=0)) if kept else ""
            lines.append(f"| {way} | {cell['dcr'].mean():.3f} | {told} |")
        lines += [
            "",
            f"## {name}: rank tests of every column against the training rows",
            "",
            "| rows | Kolmogorov–Smirnov, mean p | columns that Mann–Whitney tells apart (Bonferroni) |",
            "| --- | --- | --- |",
        ]
        for way, cell in own[own["table"] == "ranks"].groupby("way", sort=False):
            lines.append(f"| {way} | {cell['ks_p'].mean():.3f} | {cell['told_apart'].mean():.0%} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--data", nargs="*", default=["brfss", "seer"], choices=["brfss", "seer"])
    said = options.parse_args()
    warnings.simplefilter("ignore")
    records: list[dict[str, Any]] = []
    for seed in range(said.seeds):
        for name in said.data:
            for cell in run(name, seed, said.threads):
                records.append(cell)
                print(cell, flush=True)
        text = report(records, seed + 1)
        record.write("companions-kde-knn", records, seeds=seed + 1, text=text)
    print(text)


if __name__ == "__main__":
    main()
