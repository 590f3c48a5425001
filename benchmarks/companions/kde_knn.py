"""KDE-KNN's effect of the filters (Tables 4 and 5) on public tables: `python -m benchmarks.companions.kde_knn`.

Their hospital tables are not public. Comparable ones: 1,275 answers of BRFSS 2015 drawn with their share of cases (979
without, 296 with diabetes; 21 columns), the rest of the survey's rows being the "external" table; and SEER breast
(4,024 patients, 15% died, numbers and categories) with a test part only. As there: 85% to train, 540 rows of each
class, students trained on synthetic rows and tested on real ones by AUROC, seeds repeated. Added: no validator, no
distance filter, and the distance to the closest record (DCR) of each. CatBoost is not a dependency; LightGBM stands in.
NO PRIVACY GUARANTEE: every number here is of a method that promises nothing.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import cohorts, record
from distcondense.data.codec import Codec
from distcondense.data.cohort import Cohort
from distcondense.data.persons import Split
from distcondense.data.schema import Column
from distcondense.data.tables import read_table
from distcondense.kernels.neighbours import nearest
from distcondense.methods.base import Context
from distcondense.methods.kde_knn.condense import condense
from distcondense.methods.kde_knn.filters import mean_distance
from distcondense.methods.kde_knn.options import KdeKnnOptions
from distcondense.outcomes.measures import auroc
from distcondense.runs.result import Result

CASES, CONTROLS, ROWS = 296, 979, 540
EXTERNAL = 10_000
WAYS: dict[str, dict[str, Any]] = {
    "KDE-KNN": {},
    "KDE-RF": {"validator": "rf"},
    "KDE-SVM": {"validator": "svm"},
    "KDE, distance filter only": {"validator": "none"},
    "KDE-KNN, no distance filter": {"sigma": 0.0},
    "KDE alone": {"validator": "none", "sigma": 0.0},
}
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
    from sklearn.svm import SVC, LinearSVC

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
        random_state=seed,
        n_jobs=threads,
    )
    light = lgb.LGBMClassifier(verbose=-1, random_state=seed, n_jobs=threads)
    return {
        "RF": by(forest, True),
        "SVM (linear)": by(LinearSVC(random_state=seed), False),
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
        if way == "KDE-KNN":
            yield from mixed(real, label, rows, labels, scored, seed)


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
        for title, table in (("Tables 3 and 4", "3 and 4"), ("Table 5, SVM (rbf)", "5")):
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
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--data", nargs="*", default=["brfss", "seer"], choices=["brfss", "seer"])
    said = options.parse_args()
    warnings.simplefilter("ignore")
    records = []
    for name in said.data:
        for seed in range(said.seeds):
            for cell in run(name, seed, said.threads):
                records.append(cell)
                print(cell, flush=True)
    text = report(records, said.seeds)
    record.write("companions-kde-knn", records, seeds=said.seeds, text=text)
    print(text)


if __name__ == "__main__":
    main()
