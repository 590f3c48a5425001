"""kde-knn against KDE-KNN §3.8 by hand; the filters; a loop that ends; and that nothing of it sounds private."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import KernelDensity, KNeighborsClassifier

import distcondense as dc
from distcondense.data.cohort import Cohort
from distcondense.data.schema import Column, Schema
from distcondense.errors import CohortError, DistcondenseWarning, ModelError, SettingsError
from distcondense.methods.base import method_named
from distcondense.methods.kde_knn import condense as home
from distcondense.methods.kde_knn.condense import Density, scott
from distcondense.methods.kde_knn.filters import far, mean_distance, voted
from distcondense.methods.kde_knn.options import KdeKnnOptions
from distcondense.privacy.odometer import Odometer
from distcondense.privacy.verify import verify
from distcondense.runs.result import released_order
from tests import naive
from tests.conftest import small_frame
from tests.shell import Call, refused

pytestmark = pytest.mark.filterwarnings("ignore:NO PRIVACY:distcondense.errors.DistcondenseWarning")

NUMBERS = Schema((Column("a", "continuous", low=-50, high=50), Column("b", "continuous", low=-50, high=50)))


def numbers(rows: int = 90, seed: int = 3, classes: int = 2) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    return pd.DataFrame({"a": rng.normal(2.0 * y, 1), "b": rng.normal(-1.0 * y, 2), "y": y})


def tiny() -> Cohort:
    return Cohort.from_frame(numbers(), target="y", schema=NUMBERS)


def made(cohort: Cohort, **more: Any) -> dc.Result:
    return dc.condense(cohort, method="kde-knn", **{"ipc": 15, "threads": 1, **more})


# -- by hand ----------------------------------------------------------------------------------------------------------


def test_a_run_is_the_algorithm_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "BATCH", 16)
    cohort = tiny()
    result = made(cohort, ipc=12, neighbours=7, sigma=1.5, seed=4)
    split = dc.data.persons.Stratified(4).split(cohort)
    codec = dc.data.codec.Codec.fit(cohort.features.iloc[split.train], cohort.schema)
    rows, label = codec.encode(cohort.features.iloc[split.train]), cohort.outcome.take(split.train)["label"]

    def legal(row: list[float]) -> list[float]:
        return [float(x) for x in codec.project(np.array([row], np.float32))[0]]

    in_order = result.frame.iloc[np.argsort(released_order(len(result.frame)))]
    for wanted in (0, 1):
        rng = np.random.default_rng([4, 0x3DE, wanted])
        kept = naive.kde_knn(rows.tolist(), label, wanted, 12, 7, 1.5, rng, 16, legal)
        mine = codec.encode(in_order[in_order["y"] == wanted][["a", "b"]])
        assert np.allclose(mine, [row for _, row in kept], atol=1e-5)
        assert result.internal["drawn_by_class"][wanted] == kept[-1][0] + 1


def test_the_vote_is_the_one_of_scikit_learn_and_of_the_loop() -> None:
    rng = np.random.default_rng(0)
    rows, drawn = (rng.normal(size=(n, 3)).astype(np.float32) for n in (60, 40))
    label = rng.integers(0, 3, 60)
    mine = voted(rows, label, 3, drawn, 5, 1)
    theirs = KNeighborsClassifier(5, metric="manhattan", algorithm="brute").fit(rows, label).predict(drawn)
    assert np.array_equal(mine, theirs)
    assert mine.tolist() == [naive.knn_class(row, rows.tolist(), label, 5) for row in drawn.tolist()]


def test_the_distance_is_the_mean_to_the_nearest_other_row_and_the_filter_keeps_what_is_as_far() -> None:
    rng = np.random.default_rng(1)
    rows, drawn = (rng.normal(size=(n, 4)).astype(np.float32) for n in (50, 80))
    sigma = mean_distance(rows, 1)
    assert sigma == pytest.approx(naive.mean_dcr(rows.tolist()))
    nearest = np.array([min(np.linalg.norm(row - other) for other in rows) for row in drawn])
    assert np.array_equal(far(drawn, rows, sigma, 1), nearest >= sigma)
    assert 0 < far(drawn, rows, sigma, 1).sum() < 80
    assert mean_distance(np.repeat(rows[:5], 2, axis=0), 1) == 0  # copies are other rows


def test_rows_are_drawn_from_the_kernel_density_of_scott_s_rule() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(40, 2)).astype(np.float32)
    theirs = KernelDensity(bandwidth="scott").fit(rows)
    density = Density(rows, scott(*rows.shape))
    assert density.bandwidth == pytest.approx(theirs.bandwidth_) == scott(40, 2)
    drawn = density.draw(20_000, rng)
    assert np.allclose(drawn.mean(0), rows.mean(0), atol=0.03)
    assert np.allclose(drawn.var(0), rows.var(0) + density.bandwidth**2, atol=0.06)


# -- what comes out ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["knn", "rf", "svm", "none"])
def test_every_validator_fills_both_classes_with_legal_rows(binary: Cohort, name: str) -> None:
    result = made(binary, validator=name)
    assert result.frame["died"].value_counts().to_dict() == {0: 15, 1: 15}
    assert set(result.frame["stage"]) <= {"I", "II", "III"}
    assert set(result.frame["smoker"]) <= {0, 1}
    assert (result.frame["age"] == result.frame["age"].round()).all()
    assert result.frame["crp"].between(0, 400).all()


def test_released_rows_themselves_are_as_far_from_patients_as_asked_and_their_class_is_found_again(
    binary: Cohort,
) -> None:
    result = made(binary, ipc=40, sigma=1.2, neighbours=9)
    split = dc.data.persons.Stratified(0).split(binary)
    codec = dc.data.codec.Codec.fit(binary.features.iloc[split.train], binary.schema)
    rows, label = codec.encode(binary.features.iloc[split.train]), binary.outcome.take(split.train)["label"]
    own = codec.encode(dc.data.features.check_features(result.frame, result.schema))
    assert far(own, rows, 1.2 * mean_distance(rows, 1) - 1e-4, 1).all()
    assert np.array_equal(voted(rows, label.astype(int), 2, own, 9, 1), result.frame["died"])


def test_several_classes_are_filled_and_taught(tmp_path: Path) -> None:
    schema = Schema((*NUMBERS.columns, Column("y", "categorical", categories=(0, 1, 2))))
    cohort = Cohort.from_frame(numbers(300, classes=3), target="y", schema=schema)
    result = made(cohort, ipc=20, out=tmp_path / "run")
    assert result.frame["y"].value_counts().to_dict() == {0: 20, 1: 20, 2: 20}
    found = {s["trained_on"]: s["value"] for s in result.internal["scores"] if s["measure"] == "macro_auroc"}
    assert found["condensed"] > 0.6


def test_one_seed_is_one_table_and_an_interrupted_run_resumes_to_it(
    binary: Cohort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, other = made(binary, seed=5), made(binary, seed=6)
    told: list[tuple[int, int]] = []

    def stop(*, step: int, steps: int, **_: Any) -> None:
        told.append((step, steps))
        if step > 15:  # in the second class
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(binary, seed=5, out=tmp_path / "run", progress=stop)
    resumed = made(binary, seed=5, out=tmp_path / "run", resume=True)
    assert resumed.frame.equals(whole.frame)
    assert not resumed.frame.equals(other.frame)
    assert told[-1] == (30, 30)


def test_a_class_that_cannot_be_filled_ends_with_a_message(binary: Cohort) -> None:
    with pytest.raises(ModelError) as error:
        made(binary, sigma=50.0, tries=40)
    for part in ("at most 40 drawn rows", "Found 0 of 15 rows after 600 were drawn", "a smaller sigma"):
        assert part in str(error.value)


def test_a_class_that_nobody_has_is_refused_by_its_number() -> None:
    schema = Schema((*NUMBERS.columns, Column("y", "categorical", categories=(0, 1, 2, 3))))
    cohort = Cohort.from_frame(numbers(300, classes=3), target="y", schema=schema)
    with pytest.raises(CohortError, match=r"every class of the outcome|at least one row of every class|classes"):
        made(cohort)


def test_other_kinds_of_outcome_are_refused_by_name(survival: Cohort) -> None:
    with pytest.raises(SettingsError, match=r"kde-knn: takes multiclass and binary outcomes. Found a survival"):
        made(survival)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"validator": "tree"}, "validator: must be one of knn, rf, svm, none"),
        ({"neighbours": 0}, "neighbours: must be in"),
        ({"sigma": -1.0}, "sigma: must be 0 or more"),
        ({"bandwidth": 0.0}, "bandwidth: must be above 0"),
        ({"tries": 0}, "tries: must be in"),
    ],
)
def test_settings_outside_their_range_are_named(how: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        KdeKnnOptions(**how)


def test_the_defaults_are_the_paper_s() -> None:
    said = KdeKnnOptions()
    assert (said.validator, said.neighbours, said.sigma, said.bandwidth) == ("knn", 23, 1.0, None)


# -- it is not private, and says so -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["epsilon", "delta"])
def test_a_budget_is_refused_with_the_reason(binary: Cohort, name: str) -> None:
    with pytest.raises(SettingsError, match=r"kde-knn gives no privacy guarantee, whatever the .*say private"):
        made(binary, **{name: 0.1})


def test_everything_that_speaks_of_its_privacy_says_that_there_is_none(call: Call) -> None:
    small_frame().drop(columns=["months", "event"]).to_csv("t.csv", index=False)
    how = ("condense", "t.csv", "--target", "died", "--method", "kde-knn", "--ipc", 10, "--threads", 1, "--out", "run")
    answer = call(*how)
    assert answer.code == 0, answer.err
    flat = " ".join((answer.out + answer.err).split())
    for part in (
        "NO PRIVACY GUARANTEE",
        "(treat as patient data)",
        "NO PRIVACY: every row is a patient's row plus kernel noise",
    ):
        assert part in flat
    sheet = " ".join(Path("run/release/datasheet.md").read_text(encoding="utf-8").split())
    assert "NO PRIVACY GUARANTEE. Each synthetic row is a real patient's row" in sheet
    said = json.loads(Path("run/release/privacy.json").read_text())
    assert (said["guarantee"], said["epsilon"], said["delta"], said["ledger"]) == ("none", None, None, [])
    assert "no differential privacy" in " ".join(json.loads(Path("run/internal/run.json").read_text())["warnings"])
    assert "NO PRIVACY GUARANTEE" in Path("run/release/report.html").read_text()
    refused(call(*how, "--force", "--epsilon", 1), "gives no privacy guarantee")
    assert "NO PRIVACY GUARANTEE" in " ".join(call("condense", "--help").out.replace("│", " ").split())


def test_the_warning_is_a_warning(binary: Cohort) -> None:
    with pytest.warns(DistcondenseWarning, match="NO PRIVACY.*Treat the result as patient data"):
        made(binary)


def test_an_honest_statement_verifies_and_one_that_claims_more_does_not(
    binary: Cohort, tmp_path: Path, call: Call
) -> None:
    made(binary, out=tmp_path / "run")
    assert verify(tmp_path / "run").holds
    answer = call("privacy", "verify", tmp_path / "run")
    assert answer.code == 2  # honest, but whoever says `verify && publish` must not publish patients
    assert "NOT ENOUGH: as-published or better was asked for (--least), this is none" in answer.out
    answer = call("privacy", "verify", tmp_path / "run", "--least", "none")
    assert answer.code == 0
    assert "NO PRIVACY GUARANTEE, and the statement says so: treat the table as patient data" in answer.out
    assert json.loads(call("privacy", "verify", tmp_path / "run", "--json").out)["guarantee"] == "none"
    file = tmp_path / "run/release/privacy.json"
    honest = json.loads(file.read_text())
    for forged in (
        {"epsilon": 1.0},
        {"statement": "guarantee: end-to-end"},
        {"why": ["It is safe."]},
        {"ledger": [{"event": "noise"}]},
    ):
        file.write_text(json.dumps({**honest, **forged}))
        assert not verify(tmp_path / "run").holds


def test_it_is_charged_as_a_run_that_no_epsilon_bounds(binary: Cohort, tmp_path: Path) -> None:
    events = method_named("kde-knn").prepare(binary.facts, KdeKnnOptions()).planned
    assert [event.kind for event in events] == ["nonprivate"]
    account = Odometer.create(tmp_path / "a.jsonl")
    made(binary, account=account)
    assert "unbounded" in " ".join(account.lines())
