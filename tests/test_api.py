"""The front door as people who know pandas and scikit-learn try it: each test does what one of them did."""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer

import distcondense as dc
from distcondense.cli import app
from distcondense.errors import (
    LISTS,
    SWITCHES,
    DistcondenseWarning,
    SettingsError,
    UserError,
    at_the_command_line,
    in_words,
)

PACKAGE = Path(dc.__file__).parent
SCHEMA = dc.Schema(
    (
        dc.Column("age", "integer", 18, 100),
        dc.Column("sex", "binary", categories=("f", "m")),
        dc.Column("stage", "categorical", categories=("I", "II", "III"), missing="category"),
        dc.Column("died", "binary", categories=("no", "yes")),
    )
)


def patients(n: int = 3000) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    age = rng.integers(18, 101, n)
    died = rng.random(n) < 1 / (1 + np.exp(-(age - 60) / 8))
    stage = rng.choice(["I", "II", "III", None], n)
    return pd.DataFrame(
        {"age": age, "sex": rng.choice(["f", "m"], n), "stage": stage, "died": np.where(died, "yes", "no")}
    )


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return patients()


@pytest.fixture(scope="module")
def run(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> tuple[dc.Result, Path]:
    """A frame, condensed as one would guess, and its run folder."""
    out = tmp_path_factory.mktemp("api") / "run"
    about = {"publisher": "A hospital", "contact": "data@hospital.example"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistcondenseWarning)  # a frame has no account
        result = dc.condense(frame, target="died", schema=SCHEMA, rows=40, epsilon=4.0, out=out, about=about, threads=1)
    return result, out


# -- condense ---------------------------------------------------------------------------------------------------------


def test_a_frame_is_condensed_as_it_is_and_rows_are_rows_in_all(run: tuple[dc.Result, Path]) -> None:
    assert len(run[0].frame) == 40
    assert run[0].privacy.guarantee == "end-to-end"


def test_a_frame_without_a_schema_is_told_in_python_how_to_get_one(frame: pd.DataFrame) -> None:
    with pytest.raises(UserError) as error:
        dc.condense(frame, target="died")
    said = str(error.value)
    assert "schema = dc.Schema.draft(table, target=…)" in said
    assert "schema.confirm(" in said
    assert "trust_inferred_schema=True" in said
    assert "--" not in said
    with at_the_command_line():
        assert "--trust-inferred-schema" in str(error.value)


def test_rows_that_cannot_be_shared_evenly_are_fewer_and_said_so(frame: pd.DataFrame) -> None:
    with pytest.warns(DistcondenseWarning, match="rows: 20 instead of 21"):
        result = dc.condense(frame, target="died", schema=SCHEMA, method="published", noise=False, steps=2, rows=21)
    assert len(result.frame) == 20
    with pytest.raises(SettingsError, match="rows: must be at least one for each class"):
        dc.condense(frame, target="died", schema=SCHEMA, rows=1)
    with pytest.raises(SettingsError, match="and ipc say the same"):
        dc.condense(frame, target="died", schema=SCHEMA, rows=40, ipc=20)


def test_what_was_read_before_is_not_read_in_another_way(frame: pd.DataFrame) -> None:
    cohort = dc.Cohort.from_frame(frame, target="died", schema=SCHEMA)
    with pytest.raises(SettingsError, match=r"target: says how a frame or a file is read\. Found a Cohort"):
        dc.condense(cohort, target="died")
    with pytest.raises(SettingsError, match="separator: says how a CSV is written"):
        dc.condense(frame, target="died", schema=SCHEMA, separator=";")
    with pytest.raises(UserError, match="a frame of pandas, Polars or Arrow, a path or a Cohort"):
        dc.condense([[1, 2]], target="died")


def test_a_path_is_a_table_too_and_so_is_that_of_a_schema(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "schema.toml").write_text(SCHEMA.to_toml(), encoding="utf-8")
    how: dict[str, Any] = {"target": "died", "method": "published", "noise": False, "steps": 2, "rows": 10}
    of_file = dc.condense(tmp_path / "t.csv", schema=tmp_path / "schema.toml", **how)
    pd.testing.assert_frame_equal(of_file.frame, dc.condense(frame, schema=SCHEMA, **how).frame)


def test_frames_of_other_libraries_are_the_same_table(frame: pd.DataFrame) -> None:
    import polars
    import pyarrow as pa

    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    how: dict[str, Any] = {"target": "died", "schema": SCHEMA, "method": "published", "noise": False, "steps": 2}
    due = dc.condense(frame, **how, rows=10).frame
    for table in (arrow, polars.from_arrow(arrow), polars.from_arrow(arrow).lazy()):
        pd.testing.assert_frame_equal(dc.condense(table, **how, rows=10).frame, due)


def test_help_lists_what_may_be_said_once() -> None:
    names = list(inspect.signature(dc.condense).parameters)
    assert {"target", "schema", "rows", "out", "about", "account", "options"} <= set(names)


def test_a_frame_gets_a_draft_and_a_person_stands_for_it(frame: pd.DataFrame) -> None:
    draft = dc.Schema.draft(frame, target="died")
    assert draft.origin == "inferred"
    with pytest.raises(UserError, match="inferred from the table"):
        dc.condense(frame, target="died", schema=draft)
    half = draft.confirm("sex", by="A. Weber")
    assert half.origin == "inferred"
    whole = half.confirm("stage", "died", by="A. Weber", changes={"age": (18, 110)})
    assert whole.origin == "declared"
    assert (whole["age"].low, whole["age"].high) == (18, 110)
    assert [one.by for one in whole.attested] == ["A. Weber", "A. Weber"]
    without = draft.confirm(by="A. Weber", changes={"stage": None, "sex": ["f", "m", "x"]})
    assert (without.names, without["sex"].kind) == (["age", "sex", "died"], "categorical")
    dc.condense(
        frame, target="died", schema=without, method="published", noise=False, steps=2, rows=10, ignore=["stage"]
    )
    with pytest.raises(UserError, match=r"'aeg'.*must be in the schema"):
        draft.confirm("aeg", by="A. Weber")
    with pytest.raises(UserError, match="must have bounds that somebody knows"):
        dc.Schema.infer(frame).confirm(by="A. Weber")


def test_a_draft_reads_no_bounds_off_patients(frame: pd.DataFrame) -> None:
    measured = frame.assign(zinc=np.linspace(0.5, 9.0, len(frame)))
    with_more = pd.concat([measured, frame.iloc[:1].assign(age=101, zinc=999.0)])
    draft, beside = (dc.Schema.draft(one, target="died") for one in (measured, with_more))
    assert [(c.low, c.high, c.domain) for c in draft.columns] == [(c.low, c.high, c.domain) for c in beside.columns]
    assert draft["zinc"].domain == "private"


def test_a_schema_is_written_as_it_is_read(tmp_path: Path) -> None:
    text = SCHEMA.to_toml(tmp_path / "cohort.toml")
    assert text == SCHEMA.to_toml() == (tmp_path / "cohort.toml").read_text(encoding="utf-8")
    assert dc.Schema.from_toml(tmp_path / "cohort.toml") == SCHEMA
    with pytest.raises(UserError, match="must be writable"):
        SCHEMA.to_toml(tmp_path / "no" / "cohort.toml")


def test_other_libraries_words_and_a_target_by_place_are_understood(frame: pd.DataFrame) -> None:
    how: dict[str, Any] = {"schema": SCHEMA, "method": "published", "noise": False, "steps": 2, "rows": 10}
    assert dc.condense(frame, "died", **how).outcome == ("died",)
    with pytest.raises(SettingsError, match="y is called target here; n is called rows here; random_state is called"):
        dc.condense(frame, y="died", n=10, random_state=1)
    with pytest.raises(SettingsError, match=r"target: must be a text\. Found a Series\. Fix: name one of the table's"):
        dc.condense(frame.drop(columns="died"), frame["died"])


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_a_draft_is_the_same_whatever_pandas_calls_a_text(frame: pd.DataFrame, tmp_path: Path, backend: Any) -> None:
    days = [f"{1 + k % 28:02d}.03.2019" for k in range(len(frame))]
    crp = np.where(np.arange(len(frame)) % 9 == 0, "?", "4.25")
    frame.assign(seen=days, crp=crp).to_csv(tmp_path / "t.csv", index=False)
    due, other = (pd.read_csv(tmp_path / "t.csv", **how) for how in ({}, {"dtype_backend": backend}))
    draft = dc.Schema.draft(other, target="died")
    assert draft == dc.Schema.draft(due, target="died")
    assert draft["crp"].missing_values == ("?",)
    assert [(c.name, c.format) for c in draft.ignored] == [("seen", "%d.%m.%Y")]
    cohorts = [dc.Cohort.from_frame(one, target="died", schema=draft) for one in (due, other)]
    assert cohorts[0].fingerprint() == cohorts[1].fingerprint()


def test_a_draft_is_made_of_a_file_and_refuses_a_column_that_is_there_twice(
    frame: pd.DataFrame, tmp_path: Path
) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    of_file = dc.Schema.draft(tmp_path / "t.csv", target="died")
    assert of_file == dc.Schema.draft(frame, target="died")
    with pytest.raises(UserError, match="column names must be unique"):
        dc.Schema.draft(pd.concat([frame, frame[["sex"]]], axis=1), target="died")


def test_a_schema_and_a_statement_show_themselves_without_patients_values(run: tuple[dc.Result, Path]) -> None:
    frame = patients(60).assign(ward=["Oncology", "Unit Z"] * 30)
    draft = dc.Schema.draft(frame, target="died")
    assert repr(draft) == "Schema(5 columns; inferred: nobody stands for 5 of them)"
    assert repr(SCHEMA) == "Schema(4 columns; declared)"
    for text in (str(draft), draft._repr_html_()):
        assert "18 to 120" not in text
        assert "0 to 120 years" in text
        assert "2 categories" in text
        assert "Oncology" not in text
    assert repr(run[0].privacy) == "Privacy(ε = 4 (end-to-end, δ = 1e-05); row protected)"
    assert str(run[0].privacy) == run[0].privacy.paragraph()


# -- results ----------------------------------------------------------------------------------------------------------


def test_a_recipient_who_has_the_release_alone_can_load_it(run: tuple[dc.Result, Path]) -> None:
    result, out = run
    for place in (out, out / "release"):
        for loaded in (dc.load(place), dc.Result.load(place)):
            assert isinstance(loaded, dc.Result)
            pd.testing.assert_frame_equal(loaded.frame, result.frame)
            for one, other in zip(loaded.training_data(), result.training_data(), strict=True):
                np.testing.assert_array_equal(one, other)
            assert loaded.privacy.short() == result.privacy.short()
    with pytest.raises(UserError, match=r"must hold privacy\.json"):
        dc.load(out / "internal")


def test_a_release_that_was_changed_is_not_loaded(run: tuple[dc.Result, Path], tmp_path: Path) -> None:
    for file in (run[1] / "release").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with (tmp_path / "schema.toml").open("a") as file:
        file.write("# mine\n")
    with pytest.raises(UserError, match="must be as the run wrote it"):
        dc.load(tmp_path)


def test_several_sets_are_loaded_together(frame: pd.DataFrame, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistcondenseWarning)
        sets = dc.condense(frame, target="died", schema=SCHEMA, ipc=[5, 10], epsilon=4.0, out=tmp_path / "run")
    loaded = dc.load(tmp_path / "run" / "release")
    assert isinstance(loaded, dc.Results)
    assert {ipc: len(one.frame) for ipc, one in loaded.items()} == {ipc: len(one.frame) for ipc, one in sets.items()}
    assert "IPC 10: Result(20 synthetic rows" in repr(loaded)
    with pytest.raises(UserError, match=r"dc\.load"):
        dc.Result.load(tmp_path / "run")


def test_patients_are_encoded_as_the_condensed_rows_are(run: tuple[dc.Result, Path], frame: pd.DataFrame) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    result = run[0]
    X, y, weight = result.training_data()
    test = frame.assign(age=frame["age"] + 50, stage=frame["stage"].replace({"III": "IV"}), extra=1)
    encoded = result.encoder.transform(test)
    assert list(encoded) == list(X) == list(result.encoder.get_feature_names_out())
    assert encoded["age"].max() == 100
    assert encoded.loc[test["stage"] == "IV", ["stage=I", "stage=II", "stage=III"]].to_numpy().sum() == 0
    model = make_pipeline(result.encoder, LogisticRegression(max_iter=1000))
    features = result.frame[["age", "sex", "stage"]]
    model.fit(features, y, logisticregression__sample_weight=weight)
    assert model.predict_proba(test).shape == (len(test), 2)


def test_a_result_is_scored_on_patients_as_a_model_is(run: tuple[dc.Result, Path], frame: pd.DataFrame) -> None:
    from sklearn.metrics import roc_auc_score

    result, out = run
    test = patients(800).assign(age=lambda f: f["age"] + 30)  # some beyond the bounds
    ranked = dc.load(out / "release").score(test, student="logistic")
    assert ranked == result.score(test, student="logistic") > 0.7
    encoded = result.encoder.transform(test)["age"]
    assert ranked == pytest.approx(roc_auc_score(test["died"] == "yes", encoded), abs=0.1)
    flipped = test.assign(died=test["died"].map({"no": "yes", "yes": "no"}))
    assert result.score(flipped, student="logistic") == pytest.approx(1 - ranked, abs=1e-9)
    with pytest.raises(SettingsError, match="must be one of"):
        result.score(test, student="lgbm")
    with pytest.raises(UserError, match=r"'died'.*must be in the table"):
        result.score(test.drop(columns="died"))


def test_what_the_page_draws_are_axes_in_a_notebook(run: tuple[dc.Result, Path]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    axes = run[0].plot()
    assert [one.get_title() for one in axes] == [figure.title for figure in run[0].covered["model"]]
    assert all(one.lines or one.patches or one.collections for one in axes)
    assert len(dc.load(run[1]).plot("trade_off")) == 1
    with pytest.raises(SettingsError, match=r"must be one of model, marginals, pairs, trade_off.*report\.html"):
        dc.load(run[1]).plot()
    matplotlib.pyplot.close("all")


def test_a_result_shows_itself_and_no_row_that_nothing_covers(run: tuple[dc.Result, Path], frame: pd.DataFrame) -> None:
    assert repr(run[0]).startswith("Result(40 synthetic rows of 3 columns and 'died' (binary); ε = 4 (end-to-end")
    assert "<table" in run[0]._repr_html_()
    bare = dc.condense(frame, target="died", schema=SCHEMA, method="published", noise=False, steps=2, rows=10)
    assert "\n" not in repr(bare)
    assert "<table" not in bare._repr_html_()


def test_what_the_custodian_says_reaches_the_catalogue_files(run: tuple[dc.Result, Path]) -> None:
    assert run[0].info.publisher == "A hospital"
    assert "A hospital" in (run[1] / "release" / "croissant.json").read_text(encoding="utf-8")


def test_the_command_line_takes_the_custodian_s_words_and_rows_in_all(
    call: Any, frame: pd.DataFrame, tmp_path: Path
) -> None:
    frame.to_csv(tmp_path / "t.csv", index=False)
    SCHEMA.to_toml(tmp_path / "schema.toml")
    (tmp_path / "release.toml").write_text('title = "Patients"\npublisher = "nobody"\n', encoding="utf-8")
    how = ["--schema", "schema.toml", "--target", "died", "--method", "published", "--no-noise", "--steps", "2"]
    words = ["--about", "release.toml", "--publisher", "A hospital", "--contact", "data@hospital.example"]
    answer = call("condense", "t.csv", *how, "--rows", "10", *words, "--licence", "CC-BY-4.0", "--out", "run")
    assert answer.code == 0, answer.err
    found = (tmp_path / "run/release/croissant.json").read_text(encoding="utf-8")
    assert all(text in found for text in ("Patients", "A hospital", "CC-BY-4.0"))
    sheet = (tmp_path / "run/release/datasheet.md").read_text(encoding="utf-8")
    assert "once `release.toml` (`--about`) has: identifier, description, hdab, hdab_contact, health_category." in sheet
    assert len(dc.load(tmp_path / "run").frame) == 10


def test_help_of_attack_shows_both_attacks(call: Any) -> None:
    said = call("attack", "--help").out
    assert "RUN --data TABLE" in said
    assert "audit" in said


# -- one text, two doors ----------------------------------------------------------------------------------------------


def texts() -> list[str]:
    """Every text of the package outside the command line that names an option."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "cli" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        constants = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
        found += [text for text in constants if isinstance(text, str) and re.search(r"(?<![\w-])--[a-z]", text)]
    return found


def test_every_error_that_names_an_option_speaks_python_to_python() -> None:
    left = [said for said in map(in_words, texts()) if re.search(r"(?<![\w-])--[a-z]", said)]
    assert [said for said in left if not re.search(r"distcondense |ray |python -m|attack RUN", said)] == []


@pytest.mark.parametrize(
    ("option", "argument"),
    [
        ("say --epsilon 2.5 (as-published)", "say epsilon=2.5 (as-published)"),
        ("go on with --resume: what is finished is kept", "go on with resume=True: what is finished is kept"),
        ("leave out --no-noise", "leave out noise=False"),
        ("say --positive VALUE.", "say positive=VALUE."),
        ("raise --epsilon or --sigma-base", "raise epsilon or sigma_base"),
        ("say --categories-checked code.", 'say categories_checked=["code"].'),
        ("say --sampler private, which needs neither", 'say sampler="private", which needs neither'),
        ("choose another --out", "choose another out"),
        ("begin one: distcondense privacy ledger a.jsonl --create", None),
    ],
)
def test_options_become_arguments(option: str, argument: str | None) -> None:
    assert in_words(option) == (argument or option)
    with at_the_command_line():
        assert in_words(option) == option


def test_the_words_of_switches_and_lists_are_those_of_the_commands() -> None:
    from distcondense.cli.condense import register

    register()
    options: dict[str, Any] = {}

    def walk(command: Any) -> None:
        for parameter in command.params:
            options.update({flag.lstrip("-"): parameter for flag in (*parameter.opts, *parameter.secondary_opts)})
        for child in getattr(command, "commands", {}).values():
            walk(child)

    walk(typer.main.get_command(app))
    switches = {name for name, one in options.items() if getattr(one, "is_flag", False) and len(name) > 1}
    assert switches >= SWITCHES
    named = {name for text in texts() for name in re.findall(r"(?<![\w-])--([a-z][a-z-]*)", text)}
    assert named & switches <= SWITCHES | {"quick", "version", "follow", "dry-run"}  # of other programs' commands
    assert all(options[name].multiple for name in LISTS)
