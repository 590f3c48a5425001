"""PSyGenTAB's Tables II and V beside ours: `python -m benchmarks.companions.psygentab --seeds 3`.

Tables that are public here: breast cancer (scikit-learn's copy of Wisconsin Diagnostic, 569 rows), obesity (2,111),
Adult (48,842), and for the paper's Diabetes Health Indicators the same 253,680 answers of BRFSS 2015 in their two-class
version, of which `--most` rows are used: the paper's three-class file is not among the data here.

    network       the network alone, maximum likelihood: stands where the paper has RTF
    sampling      the default: the search over temperature and top-p of the authors' program, P_min = 0.8: RTF-ALM
    training      Algorithm 1, P_min = 0.8
    private       the private sampler steered, ε end-to-end: the only one with a guarantee; on breast cancer it is
                  conditional, as nobody has declared bounds for that table and they were taken off the data

With `--go-on` cells that the results file has already are not run again. `--sweep` tries Algorithm 1 over P_min and the
weight of the likelihood instead, and holds each against the front of a network that was trained freely: the highest U
among its 25 pairs of temperature and top-p with at least the same P. `--attacks` adds attacks on the released rows (the
paper's Tables VI to IX).

U and P are those of the house's evaluation (`distcondense evaluate`, part composite), on held-out patients: the paper
leaves formulas, weights and normalisation open, so the columns compare in direction, not in value. Table V: a random
forest (scikit-learn's defaults) taught with real or with made rows and tested on real ones; best of no remedy, class
weights and undersampling, as the paper takes the best of its remedies (it has SMOTE, too). F1 is weighted by class.
Quality: SDMetrics' quality report against real test rows, as in the paper's Table IV.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import distcondense as dc
from benchmarks import cohorts, record
from distcondense import Cohort, Schema
from distcondense.data.codec import Codec
from distcondense.data.persons import Stratified, split_from
from distcondense.data.schema import Column
from distcondense.data.tables import read_table
from distcondense.evaluation.attacks.base import MEMBERSHIP
from distcondense.evaluation.score import CONDENSED, PLAIN, RANDOM
from distcondense.runs.result import labelled_of

MOST_ROWS = 2000  # synthetic rows
SMALL = 3000  # rows of a table
# RTF U, P; RTF-ALM U, P; TRTR balanced accuracy, F1; TSTR of PSyGenTAB; TSTR of RTF
PAPER = {
    "breast cancer": (0.82, 0.38, 0.91, 0.44, 0.96, 0.96, 0.96, 0.96, 0.96, 0.96),
    "diabetes": (0.89, 0.55, 0.98, 0.54, 0.40, 0.81, 0.41, 0.80, 0.40, 0.81),
    "obesity": (0.98, 0.52, 0.97, 0.51, 0.94, 0.95, 0.72, 0.71, 0.77, 0.77),
    "adult": (0.98, 0.30, 0.96, 0.48, 0.78, 0.85, 0.78, 0.84, 0.79, 0.85),
}
QUALITY = {"breast cancer": (0.84, 0.90), "diabetes": (0.97, 0.96), "obesity": (0.88, 0.86), "adult": (0.87, 0.94)}
WAYS: dict[str, dict[str, Any]] = {
    "network": {"regime": "off", "balance": False},
    "sampling": {"balance": False},
    "training": {"regime": "training", "balance": False},
    "private": {"sampler": "private"},
}

SWEEP = {"network": WAYS["network"], "sampling": WAYS["sampling"]} | {
    f"P_min {p_min:g}, likelihood × {weight:g}": {
        "regime": "training",
        "balance": False,
        "p_min": p_min,
        "likelihood": weight,
    }
    for p_min in (0.75, 0.8)
    for weight in (1.0, 10.0, 100.0)
}


def breast_cancer() -> Cohort:
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    frame = data.frame.rename(columns=lambda name: name.replace(" ", "_"))
    columns = [
        Column(name, "continuous", low=0.0, high=float(f"{2 * frame[name].max():.1g}")) for name in frame.columns[:-1]
    ]  # rounded up from the data: the private sampler's guarantee is called conditional
    table = Schema((*columns, Column("target", "binary", categories=(0, 1))), "inferred")
    return Cohort.from_frame(frame, target="target", schema=table)


def obesity() -> Cohort:
    frame = read_table(cohorts.path_of("obesity_2111.csv"))
    return Cohort.from_frame(frame, target=str(frame.columns[-1]), schema=cohorts.schema_of("obesity"))


def some(cohort: Cohort, most: int) -> Cohort:
    if len(cohort) <= most:
        return cohort
    return cohort.take(np.sort(np.random.default_rng(0).permutation(len(cohort))[:most]))


TABLES: dict[str, Callable[[], Cohort]] = {
    "breast cancer": breast_cancer,
    "diabetes": lambda: cohorts.brfss(declared=True),
    "obesity": obesity,
    "adult": lambda: cohorts.adult(declared=True),
}


# -- Table V ----------------------------------------------------------------------------------------------------------


def forest(rows: Any, label: Any, test: Any, truth: Any, seed: int) -> tuple[float, float]:
    """(balanced accuracy, weighted F1), each the best over the remedies."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import balanced_accuracy_score, f1_score

    found = []
    for weight, chosen in remedies(label, seed):
        if len(np.unique(label[chosen])) < 2:
            continue
        model = RandomForestClassifier(random_state=seed, class_weight=weight, n_jobs=1)
        said = model.fit(rows[chosen], label[chosen]).predict(test)
        found.append((balanced_accuracy_score(truth, said), f1_score(truth, said, average="weighted")))
    best = np.max(found, axis=0) if found else [np.nan, np.nan]
    return float(best[0]), float(best[1])


def remedies(label: Any, seed: int) -> Iterator[tuple[str | None, Any]]:
    everybody = np.arange(len(label))
    yield None, everybody
    yield "balanced", everybody
    rng, fewest = np.random.default_rng(seed), np.unique(label, return_counts=True)[1].min()
    yield None, np.concatenate([rng.permutation(np.flatnonzero(label == c))[:fewest] for c in np.unique(label)])


def table_five(cohort: Cohort, result: dc.Result, seed: int) -> dict[str, float]:
    split = split_from(result.internal["splitting"]).split(cohort)
    codec = Codec.public(result.schema)
    test = codec.encode(cohort.features.iloc[split.test])
    truth = cohort.outcome.take(split.test)["label"]
    made = codec.encode(dc.data.features.check_features(result.frame[result.schema.names], result.schema))
    label = labelled_of(result.frame, result.kind).outcome["label"]
    balanced, f1 = forest(made, label, test, truth, seed)
    return {"balanced_accuracy": balanced, "weighted_f1": f1}


def real_forest(cohort: Cohort, seed: int) -> dict[str, float]:
    split, codec = Stratified(seed).split(cohort), Codec.public(cohort.schema)
    rows, test = (codec.encode(cohort.features.iloc[part]) for part in (split.train, split.test))
    label, truth = (cohort.outcome.take(part)["label"] for part in (split.train, split.test))
    balanced, f1 = forest(rows, label, test, truth, seed)
    return {"balanced_accuracy": balanced, "weighted_f1": f1}


# -- Tables IV and VI to IX -------------------------------------------------------------------------------------------


def quality(cohort: Cohort, result: dc.Result) -> dict[str, float]:
    """SDMetrics' overall quality score of the released rows against real test rows."""
    from sdmetrics.reports.single_table import QualityReport

    test = split_from(result.internal["splitting"]).split(cohort).test
    outcome = result.kind.names[0]
    real = cohort.features.iloc[test][result.schema.names].assign(
        **{outcome: labels_of(result.kind, cohort.outcome.take(test)["label"])}
    )
    made = result.frame[[*result.schema.names, outcome]].assign(
        **{outcome: labels_of(result.kind, labelled_of(result.frame, result.kind).outcome["label"])}
    )
    numeric = {column.name for column in result.schema.columns if column.numeric}
    told = {name: {"sdtype": "numerical" if name in numeric else "categorical"} for name in made}
    texts = {name: str for name in made if name not in numeric}
    report = QualityReport()
    report.generate(real.astype(texts), made.astype(texts), {"columns": told}, verbose=False)
    return {"quality": float(report.get_score())}


def labels_of(kind: Any, label: Any) -> list[str]:
    return [str(kind.labels[int(one)]) for one in label]


def attacked(cohort: Cohort, result: dc.Result, seed: int) -> dict[str, float]:
    """The strongest AUROC of the membership attacks, with its interval's lower end."""
    scores = [
        one
        for one in dc.evaluate(cohort, result, parts=["membership"], seed=seed, threads=1)
        if one.measure == "auroc" and one.tested_on.startswith(MEMBERSHIP) and np.isfinite(one.value)
    ]
    worst = max(scores, key=lambda one: one.value)
    return {"membership": worst.value, "membership, low": worst.low}


# -- the runs ---------------------------------------------------------------------------------------------------------


def measured(cohort: Cohort, result: dc.Result, seed: int) -> dict[str, float]:
    """U and P of the house's evaluation for the plain rows, beside the yardstick's."""
    found = {}
    for score in dc.evaluate(cohort, result, parts=["composite"], seed=seed, threads=1):
        if score.measure in ("utility", "p_distance", "r_dup", "e_pred"):
            if score.trained_on == CONDENSED and score.labels in (PLAIN, ""):
                found[score.measure] = score.value
            elif score.trained_on == RANDOM:
                found[f"{score.measure} of real rows"] = score.value
    return found


def private(epsilon: float, cohort: Cohort) -> dict[str, Any]:
    return {"epsilon": epsilon, "trust_inferred_schema": cohort.schema.origin == "inferred"}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", nargs="*", default=list(TABLES))
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--most", type=int, default=20_000, help="rows of a table, at most")
    options.add_argument("--steps", type=int, default=1500, help="mini-batches of training, about")
    options.add_argument("--epsilon", type=float, default=1.0, help="end-to-end, of the private sampler")
    options.add_argument("--ways", nargs="*", default=list(WAYS))
    options.add_argument("--sweep", action="store_true", help="Algorithm 1 over P_min and the likelihood's weight")
    options.add_argument("--attacks", action="store_true", help="membership attacks on the rows, a minute each")
    options.add_argument("--go-on", action="store_true", help="from the results file, which must be of these options")
    said = options.parse_args()
    warnings.simplefilter("ignore")
    ways, name_of = (SWEEP, "companions-psygentab-sweep") if said.sweep else (WAYS, "companions-psygentab")
    said.ways = list(ways) if said.sweep else said.ways
    records: list[dict[str, Any]] = (record.read(name_of) or []) if said.go_on else []
    done = {(cell["data"], cell["seed"], cell["way"]) for cell in records}
    for name in said.data:
        cohort = some(TABLES[name](), said.most)
        classes = max(len(cohort.outcome.kind.labels), 2)
        ipc = min(int(0.7 * len(cohort)), MOST_ROWS) // classes
        batch = 128 if len(cohort) > SMALL else 32  # the paper's, but a small table would have too few steps an epoch
        epochs = max(2, round(said.steps / max(0.7 * len(cohort) / batch, 1)))
        for seed in range(said.seeds):
            if (name, seed, "real rows") not in done:
                records.append({"data": name, "seed": seed, "way": "real rows", **real_forest(cohort, seed)})
            for way in said.ways:
                if (name, seed, way) in done:
                    continue
                own = {
                    **ways[way],
                    **(private(said.epsilon, cohort) if way == "private" else {"epochs": epochs, "batch": batch}),
                }
                started = time.process_time()
                result = dc.condense(cohort, method="psygentab", ipc=ipc, seed=seed, threads=1, **own)
                seconds = time.process_time() - started
                told = result.internal["psygentab"]
                cell = {
                    "data": name,
                    "seed": seed,
                    "way": way,
                    "rows": len(result.frame),
                    "seconds": seconds,
                    "U in the run": told.get("U"),
                    "P in the run": told.get("P"),
                    "tried": told.get("tried"),
                    "guarantee": result.privacy.guarantee,
                }
                if len(result.frame):
                    cell |= {
                        **measured(cohort, result, seed),
                        **table_five(cohort, result, seed),
                        **({} if said.sweep else quality(cohort, result)),
                        **(attacked(cohort, result, seed) if said.attacks else {}),
                    }
                records.append(cell)
                print(cell, flush=True)
                record.write(name_of, records, seeds=said.seeds, text=page(vars(said), records))
    print(page(vars(said), records))


def page(said: dict[str, Any], records: list[dict[str, Any]]) -> str:
    command = (
        f"python -m benchmarks.companions.psygentab {' '.join(map(repr, said['data']))} --seeds {said['seeds']} "
        f"--most {said['most']} --steps {said['steps']} --epsilon {said['epsilon']:g}"
        f"{' --sweep' * said['sweep']}{' --attacks' * said['attacks']}"
    )
    frame = pd.DataFrame(records)
    head = (
        f"`{command}`: mean ± standard deviation over seeds. Ways `network`, `training` and `sampling` have NO privacy "
        f"guarantee; `private` has ε = {said['epsilon']:g}, of the guarantee beside it. U and P are those of the "
        "house's evaluation on held-out patients (P is a score of distances, no guarantee); the paper's are by its "
        "own, unstated, normalisation. `diabetes`: BRFSS 2015 with two classes, the paper's has three. Balanced "
        "accuracy and F1 (weighted): a random forest on real test rows, Table V."
    )
    lines = [
        head,
        "",
        "| table | way | U | P | balanced accuracy | F1 | quality | membership | copies | rows | CPU seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    columns = (
        "utility",
        "p_distance",
        "balanced_accuracy",
        "weighted_f1",
        "quality",
        "membership",
        "r_dup",
        "rows",
        "seconds",
    )
    for name in dict.fromkeys(frame["data"]):
        paper, rest = PAPER[name], " | | | | |"
        for words, at, better in (("RTF", (0, 1, 8, 9), 1), ("RTF-ALM", (2, 3, 6, 7), 0)):
            told = [f"{one:.2f}" for one in (*(paper[k] for k in at), QUALITY[name][better])]
            lines.append(f"| {name} | paper: {words} | {' | '.join(told)}{rest}")
        lines.append(f"| {name} | paper: real rows | | | {paper[4]:.2f} | {paper[5]:.2f} |{rest}")
        here = frame[frame["data"] == name]
        for way in dict.fromkeys(here["way"]):
            own = here[here["way"] == way]
            cells = [spread(own[c]) if c in own and own[c].notna().any() else "" for c in columns]
            kinds = own["guarantee"].dropna().unique() if "guarantee" in own else ()
            words = f"{way} ({kinds[0]})" if way == "private" and len(kinds) else way
            if lacking := int((own.get("rows", pd.Series([1])) == 0).sum()):
                words += f": no answer at this ε in {lacking} of {len(own)}"
            lines.append(f"| {name} | {words} | {' | '.join(cells)} |")
        alike = here[here["way"] != "private"]  # which has a split of its own
        yard = [
            spread(alike.groupby("seed")[f"{c} of real rows"].mean()) if f"{c} of real rows" in here else ""
            for c in columns[:2]
        ]
        lines.append(
            f"| {name} | yardstick: as many real rows (U), held-out rows (P) | {' | '.join(yard)} | | | | | | | |"
        )
    return "\n".join([*lines, *(front(frame) if said["sweep"] else ())])


def front(frame: pd.DataFrame) -> Iterator[str]:
    """U and P that runs had themselves, each beside the best that free training has to offer at that P."""
    yield from (
        "",
        "The front: U and P as the run itself measures them, on one draw of rows. *Free training at this P or more*: "
        "the highest U among 25 pairs of temperature and top-p of the network that was trained freely, with the same "
        "seed (its own U in `network`'s line); a dash where none has that P.",
        "",
        "| table | way | U | P | free training at this P or more | U gained |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for (name, way), own in frame[frame["U in the run"].notna()].groupby(["data", "way"], sort=False):
        free = frame[(frame["data"] == name) & (frame["way"] == "sampling")].set_index("seed")["tried"]
        best = pd.Series(
            {
                cell.seed: max((one["U"] for one in free[cell.seed] if one["P"] >= cell.P), default=np.nan)
                for cell in own.rename(columns={"P in the run": "P"}).itertuples()
                if cell.seed in free.index
            },
            dtype=float,
        )
        gained = own.set_index("seed")["U in the run"] - best
        told = [spread(one) if one.notna().any() else "—" for one in (best, gained)]
        measured = [spread(own[f"{which} in the run"]) for which in "UP"]
        yield f"| {name} | {way} | {' | '.join([*measured, *told])} |"


def spread(values: pd.Series[Any]) -> str:
    numbers = values.dropna().astype(float)
    digits = 0 if numbers.mean() > 2 else 3
    apart = f" ± {numbers.std(ddof=1):.{digits}f}" if len(numbers) > 1 else ""
    return f"{numbers.mean():.{digits}f}{apart}"


if __name__ == "__main__":
    main()
