"""Simulated cohorts: reproducible, chunk-independent, legal under their schemas, and with the signal they promise."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from distcondense.data import datasets, populations
from distcondense.data.cohort import Cohort
from distcondense.data.datasets import DATASETS, Simulated, load, stream
from distcondense.errors import SettingsError

SMALL: dict[str, dict[str, Any]] = {
    "curial_like": {"rows": 6_000},
    "proteomics_like": {"rows": 6_000, "proteins": 60, "prevalence": 0.02},
    "diabetes_like": {"rows": 6_000},
    "seer_like": {"rows": 6_000},
}


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_patients(name: str) -> None:
    first, again, other = (load(name, **SMALL[name], seed=seed).frame for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    assert not first.equals(other)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("chunk_rows", [1_000, 4_096, 5_001])
def test_the_chunk_size_does_not_change_a_row(name: str, chunk_rows: int) -> None:
    chunks = list(stream(name, **SMALL[name], chunk_rows=chunk_rows))
    assert [len(c) for c in chunks[:-1]] == [chunk_rows] * (len(chunks) - 1)
    pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), load(name, **SMALL[name]).frame)


def test_asking_for_fewer_rows_gives_the_first_of_them() -> None:
    pd.testing.assert_frame_equal(load("seer_like", rows=100).frame, load("seer_like", rows=5_000).frame.head(100))


def test_no_two_blocks_and_no_two_sites_repeat_each_other() -> None:
    bmi = load("diabetes_like", rows=2 * populations.BLOCK).frame["bmi"].to_numpy()
    assert not np.array_equal(bmi[: populations.BLOCK], bmi[populations.BLOCK :])
    ages = [load("curial_like", rows=500, site=s, prevalence=0.05).frame["age"] for s in ("PUH", "OUH")]
    assert abs(np.corrcoef(ages[0], ages[1])[0, 1]) < 0.2


@pytest.mark.parametrize("name", DATASETS)
def test_every_value_is_legal_under_the_declared_schema(name: str) -> None:
    made = load(name, **SMALL.get(name, {}))
    assert made.schema.origin == "declared"
    assert list(made.frame.columns) == made.schema.names
    for column in made.schema.columns:
        values = made.frame[column.name]
        assert not values.isna().any(), column.name
        if column.numeric:
            assert values.between(column.low, column.high).all(), column.name
            assert pd.api.types.is_integer_dtype(values) == (column.kind == "integer"), column.name
        else:
            assert set(values.unique()) <= set(column.categories), column.name
            assert values.nunique() > 1, column.name


@pytest.mark.parametrize("name", DATASETS)
def test_the_outcome_is_named_and_present(name: str) -> None:
    made = load(name, **SMALL.get(name, {}))
    names = [made.target] if made.target else [made.time, made.event]
    assert all(n in made.frame for n in names)
    assert set(made.frame[names[-1]].unique()) == {0, 1}
    if made.time:
        assert (made.frame[made.time] > 0).all()


def test_the_shapes_are_the_papers() -> None:
    puh = load("curial_like")
    assert puh.frame.shape == (38_717, 27 + 3 + 1)
    assert {s: site.rows for s, site in populations.SITES.items()} == {"PUH": 38_717, "OUH": 161_955, "UHB": 95_236}
    assert load("seer_like").frame.shape == (4_024, 14 + 2)
    diabetes = load("diabetes_like", rows=5_000).frame.drop(columns=["years", "diabetes"])
    assert pd.get_dummies(diabetes.drop(columns="previous_hypertension")).shape[1] + 1 == 20
    proteins = next(stream("proteomics_like", rows=20))
    assert proteins.shape == (20, 2_932 + 1)
    assert set(proteins.dtypes.iloc[:-1]) == {np.dtype(np.float32)}
    assert (populations.proteomics().rows, populations.diabetes().rows) == (52_999, 474_886)


@pytest.mark.parametrize(
    ("name", "options", "label", "low", "high"),
    [
        ("curial_like", {"rows": 20_000}, "covid_positive", 0.045, 0.062),
        ("curial_like", {"rows": 20_000, "site": "OUH"}, "covid_positive", 0.020, 0.030),
        ("curial_like", {"rows": 20_000, "prevalence": 0.1}, "covid_positive", 0.092, 0.108),
        ("proteomics_like", {"rows": 40_000, "proteins": 20, "prevalence": 0.002}, "myeloma", 0.001, 0.003),
        ("diabetes_like", {"rows": 30_000}, "diabetes", 0.045, 0.056),
        ("seer_like", {"rows": 12_000}, "died", 0.135, 0.165),
    ],
)
def test_cases_and_events_are_as_common_as_promised(
    name: str, options: dict[str, Any], label: str, low: float, high: float
) -> None:
    assert low < load(name, **options).frame[label].mean() < high


def test_the_sites_differ_in_their_patients_not_only_in_their_cases() -> None:
    well = {}
    for site in ("PUH", "OUH", "UHB"):
        frame = load("curial_like", site=site, rows=8_000, prevalence=0.05).frame
        well[site] = frame[frame["covid_positive"] == 0]
    assert well["PUH"]["age"].mean() - well["UHB"]["age"].mean() > 5
    crp = {s: f["c_reactive_protein"].median() for s, f in well.items()}
    assert crp["OUH"] < 0.8 * crp["PUH"]
    assert well["UHB"]["mean_cell_volume"].mean() < well["PUH"]["mean_cell_volume"].mean() - 1


def test_covid_cases_look_like_covid() -> None:
    frame = load("curial_like", rows=12_000, prevalence=0.1).frame
    middle = frame.groupby("covid_positive")[["c_reactive_protein", "eosinophils", "lymphocytes"]].median()
    assert middle.loc[1, "c_reactive_protein"] > 1.3 * middle.loc[0, "c_reactive_protein"]
    assert middle.loc[1, "eosinophils"] < 0.8 * middle.loc[0, "eosinophils"]
    assert middle.loc[1, "lymphocytes"] < 0.85 * middle.loc[0, "lymphocytes"]
    assert np.corrcoef(frame["creatinine"], frame["urea"])[0, 1] > 0.3


def test_trees_find_the_covid_signal_and_beat_a_linear_model() -> None:
    import xgboost as xgb
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    (x, y), (x_new, y_new) = (_numbers(load("curial_like", rows=8_000, seed=s), "covid_positive") for s in (0, 1))
    trees = xgb.XGBClassifier(n_estimators=100, learning_rate=0.1, max_depth=5, subsample=0.7, n_jobs=1).fit(x, y)
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(x, y)
    by_trees, by_line = (roc_auc_score(y_new, m.predict_proba(x_new)[:, 1]) for m in (trees, linear))
    assert 0.88 < by_trees < 0.94
    assert by_trees > by_line + 0.01


def _numbers(made: Simulated, label: str) -> tuple[pd.DataFrame, Any]:
    frame = pd.get_dummies(made.frame, drop_first=True).astype(np.float64)
    return frame.drop(columns=label), frame[label]


@pytest.mark.parametrize(
    ("name", "rows", "low", "high"), [("seer_like", 4_000, 0.69, 0.77), ("diabetes_like", 12_000, 0.75, 0.83)]
)
def test_a_cox_model_finds_the_survival_signal(name: str, rows: int, low: float, high: float) -> None:
    from lifelines import CoxPHFitter
    from lifelines.utils import concordance_index

    made, other = load(name, rows=rows, seed=1), load(name, rows=rows, seed=2)
    frame, new = (pd.get_dummies(m.frame, drop_first=True).astype(np.float64) for m in (made, other))
    frame, new = (f.drop(columns=[c for c in f if str(c).startswith("Grade_")]) for f in (frame, new))
    cox = CoxPHFitter(penalizer=0.01).fit(frame, made.time, made.event)
    assert low < concordance_index(new[made.time], -cox.predict_partial_hazard(new), new[made.event]) < high


def test_proteins_are_correlated_and_some_of_them_carry_the_signal() -> None:
    frame = load("proteomics_like", rows=8_192, proteins=200, prevalence=0.02).frame
    levels, case = frame.iloc[:, :-1].to_numpy(), frame["myeloma"].to_numpy() == 1
    off = np.abs(np.corrcoef(levels[~case].T)[np.triu_indices(200, 1)])
    assert off.max() > 0.3
    apart = np.abs(levels[case].mean(axis=0) - levels[~case].mean(axis=0)) * np.sqrt(case.sum())
    assert 15 <= np.count_nonzero(apart > 3) <= 60


def test_a_wide_cohort_is_streamed_without_being_held_whole() -> None:
    options: dict[str, Any] = {"rows": 6 * populations.BLOCK, "proteins": 400}
    whole = options["rows"] * options["proteins"] * 4
    next(stream("proteomics_like", rows=10, proteins=400))
    tracemalloc.start()
    sizes = [len(frame) for frame in stream("proteomics_like", **options, chunk_rows=2_048)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.75 * whole
    assert sizes == [2_048] * 12


def test_the_real_cohorts_are_the_ones_their_libraries_ship() -> None:
    cancer = load("breast_cancer")
    assert cancer.frame.shape == (569, 31)
    assert cancer.frame["malignant"].sum() == 212
    assert cancer.frame.groupby("malignant")["mean_radius"].mean().diff().iloc[1] > 0
    trial = load("gbsg2")
    assert trial.frame.shape == (686, 10)
    assert trial.frame["recurred_or_died"].sum() == 299
    assert all("by hand" in made.schema.notes[0] for made in (cancer, trial))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: load("curial_lik"), "'curial_like'"),
        (lambda: load("seer_like", row=5), "'rows'"),
        (lambda: load("gbsg2", rows=5), "no 'rows'"),
        (lambda: stream("gbsg2"), "simulated"),
        (lambda: stream("seer_like", chunk_rows=0), "chunk_rows"),
        (lambda: load("seer_like", rows=0), "rows"),
        (lambda: load("seer_like", rows=2.5), "rows"),
        (lambda: load("seer_like", seed=-1), "seed"),
        (lambda: load("curial_like", site="PUHH"), "'PUH'"),
        (lambda: load("curial_like", prevalence=1.2), "1.2"),
        (lambda: load("proteomics_like", proteins=3), "20"),
    ],
)
def test_a_bad_setting_is_named(call: Any, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        call()


def test_importing_the_module_imports_no_heavy_library() -> None:
    heavy = {"sklearn", "lifelines", "pyarrow.parquet", "xgboost"}
    code = f"import sys, distcondense.data.datasets; print(sorted({heavy} & set(sys.modules)))"
    root = Path(datasets.__file__).parents[1]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert out.stdout.strip() == "[]"


def test_sites_that_shift_have_holes_and_other_scales_and_the_same_patients_otherwise() -> None:
    plain, moved = (load("curial_like", site="UHB", rows=4_000, shifted=shifted).frame for shifted in (False, True))
    assert not plain.isna().any().any()
    holes = moved.isna().mean()
    assert set(holes[holes > 0].index) == {"lactate", "basophils", "alanine_aminotransferase"}
    assert holes[holes > 0].between(0.02, 0.5).all()
    assert moved["temperature"].mean() > plain["temperature"].mean() + 0.3
    assert abs(moved["covid_positive"].mean() - plain["covid_positive"].mean()) < 0.02
    with pytest.raises(SettingsError, match="shifted: must be true or false"):
        load("curial_like", shifted=1)


def test_a_model_of_all_rows_loses_more_at_a_site_that_shifts() -> None:
    from sklearn.metrics import roc_auc_score
    from xgboost import XGBClassifier

    def loss(shifted: bool) -> float:
        (x, y), (x_home, y_home), (x_there, y_there) = (
            _numbers(load("curial_like", rows=6_000, prevalence=0.2, site=s, seed=k, shifted=shifted), "covid_positive")
            for s, k in (("OUH", 0), ("OUH", 1), ("UHB", 1))
        )
        model = XGBClassifier(n_estimators=30, max_depth=3, n_jobs=1).fit(x, y)
        home, there = (
            roc_auc_score(b, model.predict_proba(a)[:, 1]) for a, b in ((x_home, y_home), (x_there, y_there))
        )
        return float(home - there)

    assert loss(False) < 0.03
    assert loss(True) > 0.05


def test_sites_that_shift_are_cohorts_of_one_schema() -> None:
    made = [load("curial_like", site=site, rows=300, shifted=True) for site in ("PUH", "OUH", "UHB")]
    assert made[0].schema == made[1].schema == made[2].schema
    assert all(len(Cohort.from_frame(one.frame, **one.how)) == 300 for one in made)
