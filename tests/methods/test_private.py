"""The private path from table to release: what it reads, what it spends, what it writes, and what it refuses."""

from __future__ import annotations

import ast
import json
import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import distcondense as dc
from distcondense.data.cohort import Cohort, Facts
from distcondense.data.outcome import Goal, Outcome
from distcondense.data.persons import HoldoutSplit
from distcondense.data.schema import Column, Schema
from distcondense.errors import (
    BudgetError,
    CohortError,
    DistcondenseWarning,
    RunFolderError,
    SchemaError,
    SettingsError,
)
from distcondense.evaluation.score import CONDENSED, FULL, REFERENCE, Score, find
from distcondense.methods.base import Context
from distcondense.methods.private import METHOD, placement
from distcondense.methods.private import condense as private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.privacy import noise
from distcondense.privacy.accountant import replay
from distcondense.privacy.gate import PrivateTable
from distcondense.privacy.ledger import Ledger
from distcondense.privacy.verify import verify
from distcondense.report import internal_files, release_page
from distcondense.runs.folder import RunFolder
from tests.conftest import OUTCOMES, SMALL_SCHEMA, SMALL_TABLE, real_data, small_frame

PACKAGE = Path(dc.__file__).parent
pytestmark = pytest.mark.usefixtures("quick_placement")


def cohort_of(rows: int = 1500, **assigned) -> Cohort:
    frame = small_frame(rows).assign(**assigned)
    return Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=SMALL_TABLE)


@pytest.fixture(scope="module")
def large() -> Cohort:
    return cohort_of()


@pytest.fixture(scope="module")
def large_survival() -> Cohort:
    return Cohort.from_frame(small_frame(1500), time="months", event="event", ignore=["died"], schema=SMALL_TABLE)


def quick(cohort: Cohort, **more) -> dc.Result:
    return dc.condense(cohort, **{"ipc": 20, "epsilon": 4.0, "threads": 1, **more})


@pytest.fixture
def spend():
    """`quick` where only the account matters: nobody is held out, so nothing is measured."""
    return lambda cohort, **more: quick(cohort, **{"holdout": 0.0, **more})


def interrupt(*_, **__):
    raise KeyboardInterrupt


def refuse(*_, **__):
    raise SettingsError("x", "y")


# -- what is read -----------------------------------------------------------------------------------------------------


class Armed:
    """Stands where patients were: any use of it fails the test."""

    def __getattribute__(self, name):
        raise AssertionError(f"patients were touched after the gate was built: {name}")

    __len__ = __iter__ = __getitem__ = __array__ = lambda self, *_: pytest.fail("patients were touched")


class OutcomeInWords:
    """The public half of an outcome."""

    def __init__(self, real: Outcome) -> None:
        self.kind = real.kind

    def __getattr__(self, name):
        raise AssertionError(f"the outcome was touched after the gate was built: {name}")


@pytest.mark.parametrize("kind", ["binary", "survival"])
def test_the_whole_private_path_runs_on_a_booby_trapped_table(kind, large, large_survival, monkeypatch):
    """Once the gate is built the cohort is mined, and every row inside the gate explodes outside the gate's answers."""
    cohort, more = (large, {}) if kind == "binary" else (large_survival, {"horizon": 60.0})
    built = private.open_gate
    answering = {"depth": 0}

    class Trapped(PrivateTable):
        def __getattribute__(self, name):
            allowed = {
                "names",
                "sizes",
                "objective",
                "budget",
                "ledger",
                "spent",
                "groups",
                "histogram",
                "sums",
                "shift",
                "bins",
                "choose",
                "related",
                "total",
            }
            if not name.startswith("_") and name not in allowed:
                raise AssertionError(f"not an answer of the gate: {name}")
            return super().__getattribute__(name)

    monkeypatch.setattr(private, "PrivateTable", Trapped)

    def open_and_arm(own, *rest):
        table = built(own, *rest)
        object.__setattr__(own, "features", Armed())
        object.__setattr__(own, "person", None)
        object.__setattr__(own, "outcome", OutcomeInWords(own.outcome))
        answering["depth"] += 1
        return table

    monkeypatch.setattr(private, "open_gate", open_and_arm)
    mined = Cohort(cohort.features, cohort.schema, cohort.outcome)
    options = PrivateOptions(ipc=10, epsilon=4.0, **more)
    made = private.condense(mined, prepare(mined.facts, options), Context())[10]
    assert answering["depth"] == 1
    assert len(made.frame) == 20
    with pytest.raises(AssertionError, match="touched"):
        _ = mined.features.iloc  # the trap works


def test_only_open_gate_names_the_cohorts_rows_in_the_private_method():
    tree = ast.parse((PACKAGE / "methods" / "private" / "condense.py").read_text())

    def reads(node):
        public = ("cohort.outcome", "cohort.outcome.kind", "cohort.facts", "cohort.schema")
        said = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        return said.startswith("cohort.") and not said.startswith("cohort.outcome.kind.") and said not in public

    functions = [function for function in tree.body if isinstance(function, ast.FunctionDef)]
    assert {f.name for f in functions if any(reads(node) for node in ast.walk(f))} == {"open_gate"}
    given = [f.name for f in functions if any(argument.arg == "cohort" for argument in f.args.args)]
    assert given == ["condense", "open_gate"]
    for name in ("fit", "plan", "placement", "smoothing", "figures", "uncertainty", "students", "options"):
        assert "Cohort" not in (PACKAGE / "methods" / "private" / f"{name}.py").read_text()


@pytest.mark.real_noise
def test_no_noise_but_opendps_is_drawn_on_the_path(large, monkeypatch):
    """With NumPy's, the standard library's and the kernels' generators broken, the gate still answers; without opendp
    it does not."""

    def broken(*_, **__):
        raise AssertionError("noise from elsewhere")

    options = PrivateOptions(epsilon=4.0)
    public = prepare(large.facts, options)
    for module, names in (
        (np.random, ("default_rng", "normal", "standard_normal", "randn", "laplace", "random")),
        (random, ("random", "gauss", "getrandbits")),
        (secrets, ("randbits", "token_bytes")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, broken)
    table = private.open_gate(large, HoldoutSplit(0.0, 1), public, Ledger())
    learned = private.fit_private(table, public.cells, public.plan, public.side)
    assert learned.informative
    monkeypatch.setattr(noise, "discrete_gaussian", broken)
    table = private.open_gate(large, HoldoutSplit(0.0, 1), public, Ledger())
    with pytest.raises(AssertionError, match="elsewhere"):
        private.fit_private(table, public.cells, public.plan, public.side)


def test_privacy_noise_is_drawn_in_one_file_only():
    drawing = [
        path.name
        for path in (PACKAGE / "privacy").glob("*.py")
        if any(
            word in path.read_text() for word in ("make_gaussian", "make_noisy_top_k", "np.random", "import secrets")
        )
    ]
    assert drawing == ["noise.py"]


@pytest.mark.real_noise
def test_a_seed_moves_the_placement_and_never_the_noise(large):
    one, two = (quick(large, seed=3, holdout=0.0) for _ in range(2))
    assert not one.frame.equals(two.frame)  # fresh noise
    assert (
        one.privacy.parameters["rows_noisy_estimate"] != two.privacy.parameters["rows_noisy_estimate"]
        or (one.frame["distcondense_risk"].to_numpy() != two.frame["distcondense_risk"].to_numpy()).any()
    )
    learned, side = dc.PrivateModel(epsilon=4.0).fit(large).learned_, large.outcome.kind.private_side()
    same = [placement.place(learned, side, 10, seed=seed) for seed in (1, 1, 2)]
    assert np.array_equal(same[0].codes, same[1].codes)
    assert not np.array_equal(same[0].codes, same[2].codes)


# -- what is spent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (1.0, 1e-6), (4.0, 1e-5)])
def test_the_reported_epsilon_is_what_the_ledger_replays_to_and_never_above_the_asked_one(large, epsilon, delta, spend):
    privacy = spend(large, epsilon=epsilon, delta=delta).privacy
    assert privacy.guarantee == "end-to-end"
    assert privacy.delta == delta
    assert epsilon * 0.97 < privacy.epsilon <= epsilon  # small tables choose no pairs
    found = replay(privacy.events, delta)
    assert found.agree
    assert found.epsilon <= privacy.epsilon + 1e-9


def test_verify_reads_a_run_a_release_or_a_file_and_notices_a_ledger_that_was_touched(large, tmp_path, spend):
    spend(large, out=tmp_path / "run")
    file = tmp_path / "run" / "release" / "privacy.json"
    for path in (tmp_path / "run", tmp_path / "run" / "release", file):
        found = verify(path)
        assert found.holds
        assert len(found.accountants) == 2
        assert all("end-to-end" in line for line in found.lines())
    said = json.loads(file.read_text())
    said["ledger"].append(said["ledger"][-1])
    file.write_text(json.dumps(said))
    assert not verify(file).holds
    said["ledger"], said["epsilon"] = said["ledger"][:-1], said["epsilon"] * 0.9
    file.write_text(json.dumps(said))
    assert not verify(file).holds
    file.write_text("{}")
    with pytest.raises(RunFolderError, match=r"must be a privacy\.json"):
        verify(file)
    with pytest.raises(RunFolderError, match="must be a run folder"):
        verify(tmp_path / "nothing")


def test_verify_replays_the_published_accounting_too(binary, tmp_path):
    how = {"method": "published", "ipc": 20, "evaluate_every": 20, "steps": 20, "threads": 1}
    dc.condense(binary, sigma_base=6.0, **how, out=tmp_path / "run")
    found = verify(tmp_path / "run")
    assert found.holds
    assert found.guarantee == "as-published"
    dc.condense(binary, noise=False, **how, out=tmp_path / "bare")
    found = verify(tmp_path / "bare")
    assert found.holds
    assert found.verdict.startswith("NO PRIVACY GUARANTEE, and the statement says so")


def test_a_killed_run_resumes_from_its_answers_without_asking_again(large, tmp_path, monkeypatch, spend):
    real = PrivateTable.sums
    calls = {"left": 5}

    def dies(self, *args, **kwargs):
        if calls["left"] == 0:
            raise KeyboardInterrupt
        calls["left"] -= 1
        return real(self, *args, **kwargs)

    monkeypatch.setattr(PrivateTable, "sums", dies)
    with pytest.raises(KeyboardInterrupt):
        spend(large, out=tmp_path / "run")
    before = (tmp_path / "run" / "internal" / "ledger.jsonl").read_text().splitlines()
    monkeypatch.setattr(PrivateTable, "sums", real)
    draws = []
    gaussian, top = noise.discrete_gaussian, noise.noisy_top
    monkeypatch.setattr(noise, "discrete_gaussian", lambda *a: draws.append(1) or gaussian(*a))
    monkeypatch.setattr(noise, "noisy_top", lambda *a: draws.append(1) or top(*a))
    result = spend(large, out=tmp_path / "run", resume=True)
    after = (tmp_path / "run" / "internal" / "ledger.jsonl").read_text().splitlines()
    assert after[: len(before)] == before
    assert len(draws) == len(after) - len(before)  # what was answered is not asked, and not paid for, twice
    assert result.privacy.epsilon <= 4.0
    assert verify(tmp_path / "run").holds


def test_two_resumed_copies_of_a_finished_ledger_give_the_same_release(large, tmp_path, spend):
    spend(large, out=tmp_path / "run")
    first = pd.read_parquet(tmp_path / "run" / "release" / "condensed.parquet")
    (tmp_path / "run" / "internal" / "run.json").unlink()  # as if killed before the last file
    second = spend(large, out=tmp_path / "run", resume=True).frame
    pd.testing.assert_frame_equal(first, second.reset_index(drop=True), check_dtype=False)


def test_a_forced_re_run_adds_up_with_the_run_it_replaces(large, tmp_path, spend):
    alone = spend(large, out=tmp_path / "run").privacy
    assert alone.epsilon_with_earlier_runs is None
    again = spend(large, out=tmp_path / "run", force=True).privacy
    assert again.epsilon_with_earlier_runs > 1.3 * again.epsilon
    assert "together with them" in again.paragraph()
    third = spend(large, out=tmp_path / "run", force=True).privacy
    assert third.epsilon_with_earlier_runs > again.epsilon_with_earlier_runs


# -- what is written --------------------------------------------------------------------------------------------------


def test_the_release_holds_legal_rows_soft_labels_and_weights_in_persons(large, tmp_path):
    result = quick(large, out=tmp_path / "run", ipc=25)
    frame = result.frame
    assert list(frame) == ["age", "crp", "smoker", "stage", "died", "distcondense_risk", "distcondense_weight"]
    assert len(frame) == 50
    assert frame["died"].sum() == 25
    assert frame["age"].between(0, 120).all()
    assert pd.api.types.is_integer_dtype(frame["age"])
    assert set(frame["stage"]) <= {"I", "II", "III"}
    assert frame["distcondense_risk"].between(0, 1).all()
    assert frame["distcondense_risk"].nunique() > 10
    assert frame["distcondense_weight"].sum() == pytest.approx(result.privacy.parameters["rows_noisy_estimate"], abs=1)
    X, y, weight = result.training_data()
    assert weight.mean() == pytest.approx(1.0)
    assert set(y) == {0, 1}
    soft, risk, persons = result.soft_data()
    assert len(soft) == len(risk) == len(persons) == 50
    assert list(X) == list(soft)


def test_a_survival_release_has_times_within_the_public_horizon_and_the_private_event_share(large_survival):
    result = quick(large_survival, horizon=60.0, ipc=25, epsilon=10.0)
    frame = result.frame
    assert frame["months"].between(0, 60, inclusive="right").all()
    assert len(frame) == 50
    share = result.privacy.parameters["group_shares_noisy_estimate"][1]
    assert frame["event"].mean() == pytest.approx(share, abs=0.06)  # without weights, which are all the same
    assert frame["distcondense_weight"].nunique() == 1
    assert find(map(Score.from_dict, result.internal["scores"]), CONDENSED, "c_index").value > 0.5  # 0.65 ± 0.02


def test_nothing_in_the_release_depends_on_the_number_of_rows_but_through_the_gate(large, tmp_path, spend):
    spend(large, out=tmp_path / "run")
    said = json.loads((tmp_path / "run" / "release" / "privacy.json").read_text())
    said.pop("statement")
    assert "sampling_rate" not in json.dumps(said)
    assert [name for name in said["parameters"] if "rows" in name or "share" in name] == [
        "rows_noisy_estimate",
        "group_shares_noisy_estimate",
    ]
    assert sorted(path.name for path in (tmp_path / "run" / "release").iterdir()) == [
        "README.md",
        "condensed.csv",
        "condensed.parquet",
        "croissant.json",
        "datasheet.md",
        "deployment.json",
        "model.svg",
        "privacy.json",
        "report.html",
        "schema.toml",
    ]


def test_the_statement_says_who_is_protected_how_much_and_what_is_not_covered(large, spend):
    privacy = spend(large, epsilon=1.0).privacy
    text = privacy.paragraph()
    for words in (
        "end-to-end",
        "ε = 1",
        "δ = 1e-05",
        "add or remove one row",
        "Taken as public",
        "Not covered",
        "sensitivity plus specificity",
    ):
        assert words in text
    assert privacy.short() == "ε = 1 (end-to-end, δ = 1e-05)"
    curve = np.array(privacy.trade_off)
    assert (np.diff(curve[:, 0]) > 0).all()
    assert (np.diff(curve[:, 1]) <= 1e-12).all()
    assert (1 - curve.sum(1)).max() <= privacy.membership_advantage + 1e-9
    assert 0 < privacy.membership_advantage < (np.e - 1) / (np.e + 1) + 1e-4  # of any (1, δ) mechanism


def test_internal_numbers_stay_internal_and_the_demo_of_a_run_is_measured_on_people_left_out(large, tmp_path):
    result = quick(large, out=tmp_path / "run")
    scores = [Score.from_dict(score) for score in result.internal["scores"]]
    assert {score.trained_on: score.covered for score in scores} == {
        "full": False,
        "reference": True,
        "condensed": True,
        "random_real": False,
    }
    full = find(scores, FULL, "auroc")
    assert full.n + full.rows == len(large)
    assert find(scores, REFERENCE, "auroc").value > 0.6  # 0.78 ± 0.03 over who is left out and the noise
    released = (tmp_path / "run" / "release" / "privacy.json").read_text()
    assert f"{full.value:.6f}"[:7] not in released
    assert "auroc" not in released
    page = (tmp_path / "run" / "release" / "report.html").read_text(encoding="utf-8")
    assert f"{full.value:.6f}"[:7] not in page
    assert "AUROC" not in page
    assert str(len(large)) not in page.split("<svg")[0]


# -- persons ----------------------------------------------------------------------------------------------------------


def test_a_person_with_many_rows_is_one_person(tmp_path):
    frame = small_frame(900).assign(who=np.arange(900) // 3)
    cohort = Cohort.from_frame(frame, target="died", person_id="who", ignore=["months", "event"], schema=SMALL_TABLE)
    privacy = quick(cohort, rows_per_person=2).privacy
    assert "one person with all their rows, of which at most 2 are read" in privacy.neighbouring
    assert privacy.parameters["rows_noisy_estimate"] < 700  # a third of the rows is not read, and persons are clipped


def test_diabetes_130_is_protected_by_person():
    real_data("diabetes130_readmission.csv.gz")
    from benchmarks import cohorts

    cohort = cohorts.diabetes130()
    assert len(np.unique(cohort.person)) == 71_518
    assert len(cohort) == 101_766
    assert len(cohort.schema.columns) == 45
    model = dc.PrivateModel(epsilon=1.0, rows_per_person=3).fit(cohort)
    assert "one person" in model.privacy_.neighbouring
    assert model.learned_.informative
    assert model.learned_.rows < 90_000  # rows beyond three are dropped, several rows of one person are clipped


# -- bad input --------------------------------------------------------------------------------------------------------


def test_a_budget_too_small_for_any_answer_is_refused_before_a_patient_is_read(large, monkeypatch, tmp_path):
    monkeypatch.setattr(Cohort, "fingerprint", lambda self: pytest.fail("patients were read"))
    monkeypatch.setattr(private, "open_gate", lambda *_: pytest.fail("patients were read"))
    with pytest.raises(BudgetError, match="no patient was read"):
        quick(large, epsilon=0.001, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_inferred_schema_is_refused_unless_trusted_and_then_told():
    cohort = Cohort.from_frame(small_frame(600), target="died", ignore=["months", "event"])
    with pytest.raises(SchemaError, match="must be declared"):
        quick(cohort)
    privacy = quick(cohort, trust_inferred_schema=True).privacy
    assert "inferred from the patients" in privacy.paragraph()


def test_unbounded_numbers_unknown_horizons_and_labels_off_the_rows_are_refused(large):
    bare = Schema(tuple(Column(c.name, c.kind, categories=c.categories) for c in SMALL_TABLE.columns))
    frame = small_frame(1500)
    with pytest.raises(SchemaError, match="needs public bounds"):
        quick(Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=bare))
    timed = Cohort.from_frame(frame, time="months", event="event", ignore=["died"], schema=SMALL_TABLE)
    with pytest.raises(SettingsError, match="end of follow-up"):
        quick(timed)
    words = frame.assign(died=np.where(frame["died"] == 1, "yes", "no"))
    texts = Cohort.from_frame(words, target="died", positive="yes", ignore=["months", "event"], schema=SMALL_SCHEMA)
    with pytest.raises(SettingsError, match="read off the rows"):
        quick(texts)
    declared = Schema((*SMALL_SCHEMA.columns, Column("died", "binary", categories=("no", "yes"))))
    result = quick(Cohort.from_frame(words, target="died", ignore=["months", "event"], schema=declared))
    assert set(result.frame["died"]) == {"no", "yes"}


def test_a_model_from_elsewhere_a_noise_key_and_published_knobs_are_refused(large):
    with pytest.raises(SettingsError, match="is not covered"):
        quick(large, reference=lambda rows: rows[:, 0])
    with pytest.raises(SettingsError, match="noise_key belongs to method published"):
        quick(large, noise_key=7)
    with pytest.raises(SettingsError, match="steps belongs to method published"):
        quick(large, steps=10)


def test_a_large_epsilon_is_a_warning(large, spend):
    with pytest.warns(DistcondenseWarning, match="promises patients very little"):
        spend(large, epsilon=12.0)


def test_the_schemas_bound_of_the_time_is_the_horizon():
    schema = Schema((*SMALL_SCHEMA.columns, Column("months", "continuous", low=0, high=72), OUTCOMES[2]))
    cohort = Cohort.from_frame(small_frame(600), time="months", event="event", ignore=["died"], schema=schema)
    assert quick(cohort).frame["months"].max() <= 72


@pytest.mark.parametrize("value", [0, 1])
def test_a_class_with_no_rows_raises_nothing_and_ends_without_an_answer(value, tmp_path):
    """Decided: an error would tell that the class is empty, so the run goes through and releases no rows."""
    result = quick(cohort_of(400, died=value), out=tmp_path / "run")
    assert len(result.frame) == 0
    assert "NO ANSWER" in result.privacy.paragraph()
    assert result.privacy.epsilon <= 4.0
    assert not list((tmp_path / "run/release").glob("condensed*"))
    assert verify(tmp_path / "run").holds


def test_an_outcome_unrelated_to_the_features_has_no_answer():
    shuffled = np.random.default_rng(5).integers(0, 2, 1500)
    result = quick(cohort_of(1500, died=shuffled), epsilon=0.5)
    assert result.privacy.answer.startswith("NO ANSWER")
    assert len(result.frame) == 0


def test_columns_with_one_category_and_columns_nobody_varies_in_are_fine():
    frame = small_frame(1200).assign(country="DE", dose=5)
    schema = Schema(
        (*SMALL_TABLE.columns, Column("country", "categorical", categories=("DE",)), Column("dose", "integer", 0, 10))
    )
    result = quick(Cohort.from_frame(frame, target="died", ignore=["months", "event"], schema=schema))
    assert set(result.frame["country"]) == {"DE"}
    assert result.frame["dose"].between(0, 10).all()


def test_an_unseen_category_may_or_may_not_appear_but_is_never_dropped_from_the_schema(large):
    schema = Schema(
        tuple(
            Column(c.name, c.kind, categories=("I", "II", "III", "IV")) if c.name == "stage" else c
            for c in SMALL_TABLE.columns
        )
    )
    cohort = Cohort.from_frame(small_frame(1500), target="died", ignore=["months", "event"], schema=schema)
    assert quick(cohort).schema["stage"].categories == ("I", "II", "III", "IV")


# -- the account survives ---------------------------------------------------------------------------------------------


def test_a_forced_run_that_is_refused_does_not_forget_what_a_killed_run_spent(large, tmp_path, monkeypatch, spend):
    with monkeypatch.context() as patch:
        patch.setattr(PrivateTable, "sums", interrupt)
        with pytest.raises(KeyboardInterrupt):
            spend(large, out=tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(private, "condense", refuse)
        with pytest.raises(SettingsError):
            spend(large, out=tmp_path / "run", force=True)
    assert spend(large, out=tmp_path / "run", force=True).privacy.epsilon_with_earlier_runs is not None


def test_a_kill_while_a_run_is_being_replaced_loses_no_account(large, tmp_path, monkeypatch, spend):
    spend(large, out=tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "_finish_replacing", interrupt)
        with pytest.raises(KeyboardInterrupt):
            RunFolder(tmp_path / "run")._set_aside()
    assert spend(large, out=tmp_path / "run", force=True).privacy.epsilon_with_earlier_runs is not None


def test_a_result_saved_later_brings_its_ledger_along(large, tmp_path, spend):
    made = spend(large)
    made.save(tmp_path / "run")
    kept = [event.to_dict() for event in Ledger(RunFolder(tmp_path / "run").ledger).events]
    assert kept == made.privacy.ledger
    assert len(kept) > 16
    spend(large).save(tmp_path / "run", force=True)
    said = json.loads((tmp_path / "run" / "release" / "privacy.json").read_text())
    assert said["epsilon_with_earlier_runs"] > 4.0


def test_the_private_model_refuses_what_the_run_refuses_and_shows_no_value():
    words = small_frame(400).assign(died=lambda f: np.where(f["died"] == 1, "yes", "no"))
    texts = Cohort.from_frame(words, target="died", positive="yes", ignore=["months", "event"], schema=SMALL_SCHEMA)
    with pytest.raises(SettingsError, match="read off the rows"):
        dc.PrivateModel().fit(texts)
    frame = small_frame(50)
    times = frame["months"].astype(object)
    times.iloc[3] = "PATIENTVALUE"
    with pytest.raises(CohortError) as error:
        dc.PrivateModel(schema=SMALL_SCHEMA, horizon=60).fit(
            frame[SMALL_SCHEMA.names], pd.DataFrame({"t": times, "e": frame["event"]})
        )
    assert "PATIENTVALUE" not in str(error.value)


@pytest.mark.parametrize("value", [0, 1])
def test_naming_the_positive_value_of_a_0_1_outcome_does_not_show_an_empty_class(value):
    frame = small_frame(400).assign(died=value)
    cohort = Cohort.from_frame(frame, target="died", positive=1, ignore=["months", "event"], schema=SMALL_TABLE)
    assert cohort.outcome.kind.labels == (0, 1)
    assert cohort.outcome.kind.labels_public
    assert quick(cohort).privacy.answer


def test_a_public_function_keeps_its_name_however_often_and_early_its_module_is_loaded():
    import distcondense.methods.zero_order.engine  # noqa: F401  (loads the submodule first)

    assert callable(dc.jacobian)
    assert dc.jacobian is dc.jacobian


def test_rows_and_persons_are_never_added_up(tmp_path, spend):
    frame = small_frame(900).assign(who=np.arange(900) // 3)
    how = {"target": "died", "schema": SMALL_TABLE}
    spend(Cohort.from_frame(frame, ignore=["months", "event", "who"], **how), out=tmp_path / "run")
    again = spend(
        Cohort.from_frame(frame, ignore=["months", "event"], person_id="who", **how), out=tmp_path / "run", force=True
    )
    assert "different units" in again.privacy.epsilon_with_earlier_runs
    assert "different units" in again.privacy.paragraph()


def test_a_killed_replacement_stays_counted_when_the_next_one_is_refused(large, tmp_path, monkeypatch, spend):
    spend(large, out=tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(PrivateTable, "sums", interrupt)
        with pytest.raises(KeyboardInterrupt):
            spend(large, out=tmp_path / "run", force=True)
    with monkeypatch.context() as patch:
        patch.setattr(private, "condense", refuse)
        with pytest.raises(SettingsError):
            spend(large, out=tmp_path / "run", force=True)
    folder = RunFolder(tmp_path / "run")
    runs = {event.run for event in (*folder.earlier_events(), *Ledger(folder.ledger).events)}
    assert len(runs) == 2  # the finished one and the killed one
    spend(large, out=tmp_path / "run", force=True)
    assert len({event.run for event in folder.earlier_events()}) == 2


def test_a_result_saved_twice_is_one_run_and_one_saved_elsewhere_keeps_its_past(large, tmp_path, spend):
    result = spend(large)
    result.save(tmp_path / "run")
    result.save(tmp_path / "run", force=True)
    assert json.loads((tmp_path / "run/release/privacy.json").read_text())["epsilon_with_earlier_runs"] is None
    spend(large, out=tmp_path / "two")
    third = spend(large, out=tmp_path / "two", force=True)
    known = third.privacy.epsilon_with_earlier_runs
    spend(large, out=tmp_path / "three")
    third.save(tmp_path / "three", force=True)
    said = json.loads((tmp_path / "three/release/privacy.json").read_text())
    assert said["epsilon_with_earlier_runs"] > known


def test_a_shortened_ledger_is_noticed_by_the_answers_beside_it(large, tmp_path, monkeypatch, spend):
    calls = {"left": 3}
    real = PrivateTable.sums

    def dies(self, *args, **kwargs):
        calls["left"] -= 1
        if calls["left"] < 0:
            raise KeyboardInterrupt
        return real(self, *args, **kwargs)

    monkeypatch.setattr(PrivateTable, "sums", dies)
    with pytest.raises(KeyboardInterrupt):
        spend(large, out=tmp_path / "run")
    monkeypatch.setattr(PrivateTable, "sums", real)
    file = tmp_path / "run/internal/ledger.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:2]))
    with pytest.raises(RunFolderError, match="every event that was answered"):
        spend(large, out=tmp_path / "run", resume=True)
    file.unlink()
    with pytest.raises(RunFolderError, match="every event that was answered"):
        spend(large, out=tmp_path / "run", resume=True)


def test_threads_that_ask_at_once_cannot_overspend(large):
    options = PrivateOptions(epsilon=4.0)
    public = prepare(large.facts, options)
    table = private.open_gate(large, HoldoutSplit(0.0, 1), public, Ledger())
    answered = []

    def ask(_):
        try:
            table.histogram((0,), mu=0.9 * public.budget.mu)
            answered.append(1)
        except BudgetError:
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(16)))
    assert len(answered) == len(table.ledger.events) == 1


def test_what_comes_after_the_gate_may_fail_and_what_was_paid_for_is_kept(large, tmp_path, monkeypatch):
    """Pages that cannot be made, and a patient whose time breaks the Cox model of the evaluation."""

    def broken(*_):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(release_page, "release_page", broken)
        patch.setattr(internal_files, "internal_page", broken)
        with pytest.raises(RunFolderError, match=r"no report\.html \(ZeroDivisionError\)"):
            quick(large, out=tmp_path / "a")
        assert not (tmp_path / "a/release").exists()
    with monkeypatch.context() as patch:  # what was paid for is kept: the run goes on from there
        patch.setattr(internal_files, "internal_page", broken)
        quick(large, out=tmp_path / "a", resume=True)
    assert (tmp_path / "a/release/report.html").exists()
    assert not (tmp_path / "a/internal/report.html").exists()
    assert "no report: ZeroDivisionError" in (tmp_path / "a/internal/log.txt").read_text()
    late = small_frame(900)
    late.loc[5, "months"] = 1.7e308
    cohort = Cohort.from_frame(late, time="months", event="event", ignore=["died"], schema=SMALL_TABLE)
    result = quick(cohort, horizon=1.0, out=tmp_path / "b")
    assert (tmp_path / "b/release/privacy.json").exists()
    assert result.internal["scores"] or result.internal["scores_note"]


def test_what_would_fail_half_way_is_refused_before_a_patient_is_read(large):
    with pytest.raises(SettingsError, match=r"at most 0\.01"):
        quick(large, delta=0.5)
    many = Column("code", "categorical", categories=tuple(range(600_000)))
    schema = Schema((*SMALL_TABLE.columns, many))
    with pytest.raises(SchemaError, match="noisy answers in all"):
        METHOD.prepare(
            Facts.from_goal(Goal.from_roles(target="died"), schema, ignore=("months", "event")),
            PrivateOptions(epsilon=4.0, categories_checked=("code",)),
        )


def test_a_cohort_without_a_censored_row_has_an_answer():
    frame = small_frame(1500).assign(event=1)
    cohort = Cohort.from_frame(frame, time="months", event="event", ignore=["died"], schema=SMALL_TABLE)
    assert not quick(cohort, horizon=60.0).privacy.answer


def test_labels_read_off_the_rows_are_told(large):
    words = small_frame(900).assign(died=lambda f: np.where(f["died"] == 1, "yes", "no"))
    cohort = Cohort.from_frame(words, target="died", positive="yes", ignore=["months", "event"], schema=SMALL_SCHEMA)
    privacy = quick(cohort, trust_inferred_schema=True).privacy
    assert not privacy.labels_public
    assert "outcome's values were read off patients" in privacy.paragraph()


@pytest.mark.parametrize("kind", ["binary", "multiclass", "continuous", "survival"])
def test_columns_in_which_nobody_has_a_value_end_in_a_release(kind: str) -> None:
    """By the noisy counts nobody may have one: there is nothing to draw of such a column, and no reason to stop."""
    rng, empty = np.random.default_rng(0), [f"lab {number}" for number in range(12)]
    age = rng.integers(20, 90, 2000)
    outcome, how = {
        "binary": ({"y": (age > 60).astype(int)}, {"target": "y"}),
        "multiclass": ({"y": np.digitize(age, [45, 65])}, {"target": "y"}),
        "continuous": ({"y": age / 10.0}, {"target": "y"}),
        "survival": ({"time": 100.0 - age, "event": np.ones(len(age), int)}, {"time": "time", "event": "event"}),
    }[kind]
    columns = [
        Column("age", "integer", low=20, high=90),
        *(Column(name, "continuous", low=0.0, high=10.0, missing="indicator") for name in empty),
        *{
            "binary": [Column("y", "binary", categories=(0, 1))],
            "multiclass": [Column("y", "categorical", categories=(0, 1, 2))],
            "continuous": [Column("y", "continuous", low=0.0, high=10.0)],
            "survival": [
                Column("time", "continuous", low=0.0, high=100.0),
                Column("event", "binary", categories=(0, 1)),
            ],
        }[kind],
    ]
    frame = pd.DataFrame({"age": age, **dict.fromkeys(empty, np.nan), **outcome})
    cohort = dc.Cohort.from_frame(frame, schema=Schema(tuple(columns)), **how)
    result = dc.condense(cohort, ipc=3, epsilon=8.0)
    assert len(result.frame)
    assert result.privacy.guarantee == "end-to-end"
