"""A release and its statement belong together: hashes, labels, signatures, what a pickle holds, and the same bytes.

Every way to lose or swap a label that a review found is a test here, and so is every file that `verify` must refuse.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import distcondense as dc
from distcondense.data.schema import Column, Schema
from distcondense.errors import RunFolderError, SettingsError
from distcondense.methods.private import plan
from distcondense.methods.private.constants import constants
from distcondense.methods.private.options import PrivateOptions
from distcondense.outcomes.binary import Binary
from distcondense.privacy import ledger, noise
from distcondense.privacy.binding import bind, file_hash, json_digest
from distcondense.privacy.statement import Privacy
from distcondense.report.terminal import fate
from distcondense.runs import release
from distcondense.runs.release import LABEL
from distcondense.runs.signing import make_keys, sign, verify_release
from tests.conftest import SMALL_SCHEMA, quicken, small_frame
from tests.shell import Call, files, refused

NOISELESS = {"method": "published", "noise": False, "steps": 20, "evaluate_every": 20}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few swaps, two candidate sets, small pools: only to save time."""
    quicken(monkeypatch)


def cohort(schema: Schema | None = SMALL_SCHEMA, rows: int = 600) -> dc.Cohort:
    known = (
        None
        if schema is None
        else Schema((*schema.columns, Column("died", "binary", categories=(0, 1))), schema.origin)
    )
    return dc.Cohort.from_frame(small_frame(rows), target="died", ignore=["months", "event"], schema=known)


def condense(out: Path | None = None, **more: Any) -> dc.Result:
    how: dict[str, Any] = {"ipc": 5, "threads": 1, **more}
    if "method" not in how:
        how = {"epsilon": 4.0, "holdout": 0.0, **how}
    return dc.condense(how.pop("cohort", None) or cohort(), out=out, **how)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One private run, and beside it one without any noise."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        quicken(patch)
        condense(folder / "run")
        condense(folder / "bare", **NOISELESS)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    shutil.copytree(made / "run", tmp_path / "run")
    return tmp_path / "run"


def stated(run: Path) -> dict[str, Any]:
    return dict(json.loads((run / "release/privacy.json").read_text()))


def restate(run: Path, change: dict[str, Any], *, sealed: bool = False) -> None:
    """Edit privacy.json by hand; `sealed`: by somebody who makes its own digest fit again."""
    said = {**stated(run), **change}
    if sealed:
        said["digest"] = json_digest(said)
    (run / "release/privacy.json").write_text(json.dumps(said), encoding="utf-8")


def wrong(run: Path, *says: str, **how: Any) -> None:
    """Refused, from the run folder and from the release folder alone, for these reasons."""
    for place in (run, run / "release"):
        found = verify_release(place, **how)
        assert not found.holds
        for words in says:
            assert any(words in line for line in found.contradictions), found.contradictions


# ---- an inferred schema has a guarantee of its own name


def labels_of(result: dc.Result, run: Path) -> dict[str, Any]:
    """The guarantee in every place that names it."""
    parquet = pq.read_schema(run / "release/condensed.parquet").metadata
    record = json.loads((run / "internal/run.json").read_text())
    return {
        "statement": result.privacy.guarantee,
        "privacy.json": stated(run)["guarantee"],
        "parquet": json.loads(parquet[LABEL.encode()])["guarantee"],
        "read_parquet": pd.read_parquet(run / "release/condensed.parquet").attrs[LABEL]["guarantee"],
        "frame": result.frame.attrs[LABEL]["guarantee"],
        "verify": verify_release(run).guarantee,
        "short": result.privacy.short().split("(")[1].split(",")[0],
        "run.json": record["privacy"].split("(")[1].split(",")[0],
    }


def test_an_inferred_schema_is_conditional_in_every_label(tmp_path: Path) -> None:
    told: list[str] = []
    result = condense(tmp_path / "run", cohort=cohort(None), trust_inferred_schema=True, log=told.append)
    assert set(labels_of(result, tmp_path / "run").values()) == {"conditional"}
    assert result.privacy.charged
    everything = json.dumps([stated(tmp_path / "run"), result.privacy.paragraph(), told])
    assert "end-to-end" not in everything.replace("no end-to-end", "")
    asked = [name for name in stated(tmp_path / "run")["parameters"] if name.startswith("epsilon_asked")]
    assert asked == ["epsilon_asked_conditional"]
    settings = json.loads((tmp_path / "run/internal/run.json").read_text())["settings"]
    assert [name for name in settings if "epsilon" in name] == ["epsilon_conditional"]
    assert "only if" in result.privacy.paragraph()
    assert "inferred from the patients" in result.privacy.paragraph()
    assert verify_release(tmp_path / "run").holds
    assert all("conditional" in line for line in verify_release(tmp_path / "run").lines())
    assert "only if" in fate(result.privacy)


def test_a_declared_schema_is_end_to_end_in_every_label(made: Path) -> None:
    said = stated(made / "run")
    label = pd.read_parquet(made / "run/release/condensed.parquet").attrs[LABEL]
    assert {name: label[name] for name in ("guarantee", "epsilon", "delta", "unit", "method")} == {
        "guarantee": "end-to-end",
        "epsilon": said["epsilon"],
        "delta": 1e-5,
        "unit": "row",
        "method": "private",
    }
    assert label["statement"] in said["statement"]
    assert PrivateOptions().to_dict()["epsilon_end_to_end"] == 1.0
    assert PrivateOptions(trust_inferred_schema=True).to_dict()["epsilon_conditional"] == 1.0


def test_a_conditional_statement_renamed_end_to_end_is_refused(tmp_path: Path) -> None:
    condense(tmp_path / "run", cohort=cohort(None), trust_inferred_schema=True)
    restate(tmp_path / "run", {"guarantee": "end-to-end"}, sealed=True)
    wrong(tmp_path / "run", "inferred", "label of condensed.parquet")


# ---- a statement is tied to its table


def test_an_honest_release_is_verified_wherever_it_lies(made: Path, tmp_path: Path) -> None:
    said = stated(made / "run")
    assert set(said["files"]) == {
        "README.md",
        "condensed.csv",
        "condensed.parquet",
        "croissant.json",
        "datasheet.md",
        "deployment.json",
        "model.svg",
        "report.html",
        "schema.toml",
    }
    assert said["software"]["version"] == dc.__version__
    assert len(said["constants"]) == 64
    shutil.copytree(made / "run/release", tmp_path / "handed over")
    for place in (made / "run", made / "run/release", tmp_path / "handed over"):
        found = verify_release(place)
        assert found.holds, found.contradictions
        assert any("9 released files" in note for note in found.notes)


def test_a_table_without_noise_under_a_private_statement_is_refused(run: Path, made: Path) -> None:
    for name in ("condensed.csv", "condensed.parquet", "schema.toml"):
        shutil.copy(made / "bare/release" / name, run / "release" / name)
    wrong(run, "condensed.csv is not the file", "condensed.parquet is not the file")
    room = run / "release"
    restate(run, {"files": {name: file_hash(room / name) for name in stated(run)["files"]}}, sealed=True)
    wrong(run, "label of condensed.parquet")  # whoever makes the hashes fit still has the table's own label


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("condensed.csv", lambda file: file.write_text(file.read_text().replace("1", "2", 1))),
        ("condensed.parquet", lambda file: pd.read_parquet(file).assign(age=50).to_parquet(file)),
        ("schema.toml", lambda file: file.write_text(file.read_text().replace("120", "121"))),
    ],
)
def test_an_edited_number_in_any_file_is_refused(name: str, spoil: Callable[[Path], None], run: Path) -> None:
    spoil(run / "release" / name)
    wrong(run, f"{name} is not the file")


@pytest.mark.parametrize(
    "change",
    [
        {"method": "other"},
        {"unit": "person"},
        {"guarantee": "conditional"},
        {"delta": 1e-6},
        {"epsilon": 3.9999},
        {"neighbouring": "add or remove one hair"},
        {"membership_advantage": 0.1},
        {"labels_public": False},
    ],
)
def test_an_edited_statement_is_refused_even_where_its_digest_was_made_to_fit(
    change: dict[str, Any], run: Path
) -> None:
    for sealed in (False, True):
        restate(run, change, sealed=sealed)
        for place in (run, run / "release"):
            assert not verify_release(place).holds


def test_an_unknown_guarantee_is_no_guarantee(run: Path) -> None:
    restate(run, {"guarantee": "theorem"}, sealed=True)
    with pytest.raises(RunFolderError, match="must state a guarantee"):
        verify_release(run)


def test_an_edited_parameter_is_seen_by_the_digest(run: Path) -> None:
    restate(run, {"parameters": {**stated(run)["parameters"], "rows_noisy_estimate": 7}})
    wrong(run, "edited after the run")


def test_a_dropped_entry_is_refused_also_from_the_file_alone(run: Path) -> None:
    restate(run, {"ledger": stated(run)["ledger"][:-1]}, sealed=True)
    wrong(run, "adds up to less than the stated ε")
    assert any("internal/ledger.jsonl" in line for line in verify_release(run).contradictions)


def test_another_schema_another_file_and_a_missing_file_are_refused(run: Path) -> None:
    (run / "release/notes.txt").write_text("17 patients")
    wrong(run, "notes.txt is not part of the release")
    (run / "release/notes.txt").unlink()
    assert verify_release(run).holds
    (run / "release/schema.toml").write_text(Schema((Column("x", "integer", low=0, high=1),)).to_toml())
    wrong(run, "schema.toml is not the file")
    (run / "release/schema.toml").unlink()
    wrong(run, "schema.toml is missing")
    restate(run, {"files": {}}, sealed=True)
    wrong(run, "names no released file")


def test_a_file_outside_the_release_is_never_read(run: Path) -> None:
    restate(run, {"files": {**stated(run)["files"], "../internal/run.json": "0" * 64}}, sealed=True)
    wrong(run, "not the name of a released file")


def test_a_statement_alone_says_what_it_could_not_compare(run: Path, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    shutil.copy(run / "release/privacy.json", tmp_path / "alone")
    found = verify_release(tmp_path / "alone/privacy.json")
    assert found.holds
    assert any("nothing but the statement was checked" in note for note in found.notes)


def test_a_saved_result_is_bound_like_a_run(tmp_path: Path) -> None:
    result = condense()
    result.save(tmp_path / "a")
    result.save(tmp_path / "b")
    for name in "ab":
        assert verify_release(tmp_path / name).holds
    assert files(tmp_path / "a/release") == files(tmp_path / "b/release")


def test_an_as_published_release_is_bound_too(tmp_path: Path) -> None:
    condense(tmp_path / "run", method="published", sigma_base=6.0, steps=20, evaluate_every=20)
    assert verify_release(tmp_path / "run").holds
    file = tmp_path / "run/release/condensed.csv"
    file.write_text(file.read_text() + "\n")
    wrong(tmp_path / "run", "condensed.csv is not the file")


def test_the_commit_is_that_of_this_checkout_or_none_of_a_folder_that_is_not_ours(tmp_path: Path) -> None:
    assert release.commit_of(tmp_path) is None
    (tmp_path / ".git").mkdir()
    assert release.commit_of(tmp_path) is None  # no repository that git can read
    ours = release.commit_of(Path(dc.__file__).parents[1])
    assert ours is None or len(ours.removesuffix("-dirty")) == 40


def test_what_a_release_says_of_its_commit_does_not_depend_on_how_busy_the_machine_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Cells of one study are made by several processes; on a busy machine some gave up on git, and said no commit."""

    def patient(ask: list[str], *, timeout: float | None = None, **how: Any) -> subprocess.CompletedProcess[str]:
        if timeout is not None:
            raise subprocess.TimeoutExpired(ask, timeout)
        return subprocess.CompletedProcess(ask, 0, "a" * 40 + "\n", "")

    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(subprocess, "run", patient)
    assert release.commit_of(tmp_path) == "a" * 40


def test_another_constant_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    before = constants(Binary)
    assert before["distcondense.methods.private.plan.EPOCHS"] == plan.EPOCHS
    monkeypatch.setattr(plan, "EPOCHS", 4)
    assert json_digest(constants(Binary)) != json_digest(before)


# ---- labels travel with the table


def test_the_label_survives_where_pandas_keeps_attributes(made: Path, tmp_path: Path) -> None:
    frame = pd.read_parquet(made / "run/release/condensed.parquet")
    label = frame.attrs[LABEL]
    frame.to_parquet(tmp_path / "again.parquet")
    again = pd.read_parquet(tmp_path / "again.parquet")
    for one in (frame.copy(), frame.head(3), frame.drop(columns="age"), again, pickle.loads(pickle.dumps(frame))):
        assert one.attrs[LABEL] == label


def test_a_pickled_result_holds_the_release_and_nothing_else(tmp_path: Path) -> None:
    result = condense(holdout=0.3)
    assert result.internal["data"]["rows"] == 600
    packed = pickle.dumps(result)
    again = pickle.loads(packed)
    pd.testing.assert_frame_equal(again.frame, result.frame)
    assert again.privacy == result.privacy
    assert again.frame.attrs == result.frame.attrs
    assert (again.internal, again.identity) == ({}, {})
    assert str(result.identity["data"]).encode() not in packed
    again.training_data()
    with pytest.raises(SettingsError, match="record of its run"):
        dc.evaluate(cohort(), again)
    with pytest.raises(SettingsError, match="record of its run"):
        again.save(tmp_path / "run")


@pytest.mark.parametrize(
    ("guarantee", "more", "says"),
    [
        ("end-to-end", {}, "to hand over"),
        ("conditional", {}, "to hand over only if"),
        ("as-published", {}, "not covered by a theorem"),
        ("none", {}, "treat as patient data"),
        ("end-to-end", {"answer": "NO ANSWER"}, "no answer"),
        ("end-to-end", {"epsilon_with_earlier_runs": "unbounded"}, "no bound together with earlier runs"),
    ],
)
def test_the_terminal_says_to_hand_over_only_what_is_covered(guarantee: Any, more: dict[str, Any], says: str) -> None:
    said = fate(Privacy(guarantee, "any", 1.0, 1e-5, "row", "os", **more))
    assert says in said
    assert (said == "to hand over") == (says == "to hand over")


def test_a_run_without_noise_is_not_offered_to_hand_over(call: Call, tmp_path: Path) -> None:
    small_frame(300).drop(columns=["months", "event"]).to_csv(tmp_path / "cohort.csv", index=False)
    said = Schema((*SMALL_SCHEMA.columns, Column("died", "binary", categories=(0, 1))))
    (tmp_path / "schema.toml").write_text(said.to_toml(), encoding="utf-8")
    answer = call(
        "condense",
        "cohort.csv",
        "--target",
        "died",
        "--schema",
        "schema.toml",
        "--method",
        "published",
        "--no-noise",
        "--ipc",
        "5",
        "--steps",
        "10",
        "--evaluate-every",
        "10",
        "--threads",
        "1",
    )
    assert answer.code == 0, answer.err
    assert "treat as patient data" in answer.err
    assert "to hand over" not in answer.err


# ---- signatures


def test_a_signature_holds_for_its_key_and_its_bytes_only(run: Path, tmp_path: Path, call: Call) -> None:
    told = call("privacy", "keygen", "keys").out
    assert call("privacy", "keygen", "other").code == 0
    private, public = tmp_path / "keys/private.pem", tmp_path / "keys/public.pem"
    assert private.stat().st_mode & 0o077 == 0
    answer = call("privacy", "verify", "run", "--key", public)
    assert answer.code == 2
    assert "no signature" in answer.out
    assert call("privacy", "verify", "run").out.strip().endswith("only from a signature: there is no signature")
    assert call("privacy", "sign", "run", "--key", private).code == 0
    mark = re.search(r'key = "(SHA256:.{43})"', told)[1]  # type: ignore[index]
    answer = call("privacy", "verify", "run")
    assert f"it says that it was made with the key of fingerprint {mark}" in " ".join(answer.out.split())
    assert answer.code == 0  # a signature is no extra file
    assert "there is a signature (signature.dsse.json), which was not checked" in answer.out
    assert "--key PUBLIC.pem" in answer.out
    answer = call("privacy", "verify", "run", "--key", public)
    assert answer.code == 0
    assert "the holder of the key's private half signed this statement" in answer.out
    assert f"signed by the holder of the key with the fingerprint {mark}: all " in answer.out
    assert "condensed.csv" in answer.out
    assert "cannot be seen" not in answer.out
    assert json.loads(call("privacy", "verify", "run", "--key", public, "--json").out)["holds"]
    answer = call("privacy", "verify", "run", "--key", tmp_path / "other/public.pem")
    assert answer.code == 2
    assert "another key" in answer.out
    file = run / "release/privacy.json"
    file.write_bytes(file.read_bytes() + b"\n")
    assert call("privacy", "verify", "run").code == 0  # says the same
    assert call("privacy", "verify", "run", "--key", public).code == 2  # but is not what was signed


def test_a_whole_forgery_is_seen_by_the_signature_alone(run: Path, made: Path, tmp_path: Path) -> None:
    """Table, hashes, label and digest all made to fit: only the key of who made the release tells."""
    make_keys(tmp_path / "keys")
    sign(run, tmp_path / "keys/private.pem")
    frame = pd.read_parquet(run / "release/condensed.parquet")
    frame["age"] = frame["age"].to_numpy()[::-1]
    release.write_table(frame, run / "release")
    room, said = run / "release", stated(run)
    forged = bind(
        {name: value for name, value in said.items() if name not in ("files", "software", "digest")},
        {name: file_hash(room / name) for name in said["files"]},
        said["software"],
    )
    (room / "privacy.json").write_text(json.dumps(forged))
    assert verify_release(run).holds
    wrong(run, "made for other files", key=tmp_path / "keys/public.pem")


def test_somebody_elses_programs_accept_the_signature_and_refuse_a_changed_file(run: Path, tmp_path: Path) -> None:
    """The envelope by securesystemslib, its statement by OpenSSF Model Signing, which hashes files."""
    dsse, signer = pytest.importorskip("securesystemslib.dsse"), pytest.importorskip("securesystemslib.signer")
    signing, hashing = (
        pytest.importorskip("model_signing._signing.signing"),
        pytest.importorskip("model_signing.hashing"),
    )
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    make_keys(tmp_path / "keys")
    file = sign(run, tmp_path / "keys/private.pem")
    envelope = dsse.Envelope.from_dict(json.loads(file.read_text()))
    public = load_pem_public_key((tmp_path / "keys/public.pem").read_bytes())
    key = signer.SSlibKey.from_crypto(public, next(iter(envelope.signatures)))
    assert envelope.verify([key], 1)
    stated_files = signing.dsse_payload_to_manifest(json.loads(envelope.payload))
    on_disk = hashing.Config().set_ignored_paths(paths=[file], ignore_git_paths=False).hash(run / "release")
    assert stated_files == on_disk
    table = run / "release/condensed.csv"
    table.write_text(table.read_text().replace("1", "2", 1))
    changed = hashing.Config().set_ignored_paths(paths=[file], ignore_git_paths=False).hash(run / "release")
    assert stated_files != changed
    envelope.payload += b" "
    with pytest.raises(Exception, match="signatures"):
        envelope.verify([key], 1)


def test_keys_are_never_overwritten_and_wrong_files_are_named(run: Path, tmp_path: Path, call: Call) -> None:
    make_keys(tmp_path / "keys")
    refused(call("privacy", "keygen", "keys"), "must be new")
    refused(call("privacy", "sign", "run", "--key", "keys/public.pem"), "must be an Ed25519 private key")
    refused(call("privacy", "verify", "run", "--key", "keys/private.pem"), "must be an Ed25519 public key")
    refused(call("privacy", "sign", "run", "--key", "nowhere.pem"), "must be a file")


@pytest.mark.parametrize("lost", ["README.md", "datasheet.md", "report.html", "schema.toml", "condensed.csv"])
def test_a_release_that_never_had_one_of_its_files_is_not_whole(run: Path, lost: str) -> None:
    """Its statement fits what is there: only what every release has shows that something is missing."""
    (run / "release" / lost).unlink()
    said = stated(run)
    restate(run, {"files": {name: due for name, due in said["files"].items() if name != lost}}, sealed=True)
    wrong(run, f"{lost} is missing, and the statement names none")


def test_a_release_that_does_not_verify_is_not_signed(run: Path, tmp_path: Path) -> None:
    make_keys(tmp_path / "keys")
    restate(run, {"delta": 1e-9})
    with pytest.raises(RunFolderError, match="must verify before it is signed"):
        sign(run, tmp_path / "keys/private.pem")
    assert not (run / "release/signature.dsse.json").exists()


def test_without_the_extra_the_error_names_it(
    run: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    for command in (["keygen", "k"], ["sign", "run", "--key", "k"], ["verify", "run", "--key", "k"]):
        refused(call("privacy", *command), "distcondense[sign]")


# ---- the same bytes on real neighbours, through files

EXTRA = {"who": "p-extra", "age": 88, "crp": None, "smoker": 1, "stage": "IV"}  # nobody else has stage IV
KINDS: dict[str, tuple[dict[str, str], tuple[Column, ...], dict[str, Any], dict[str, Any]]] = {
    # how the outcome is said, its columns, options, what the extra person has: a class, or a value, of their own
    "binary": ({"target": "died"}, (Column("died", "binary", categories=("no", "yes")),), {}, {"died": "yes"}),
    "multiclass": ({"target": "grade"}, (Column("grade", "categorical", categories=("a", "b", "c", "d")),), {},
                   {"grade": "d"}),
    "continuous": ({"target": "stay"}, (Column("stay", "continuous", low=0.0, high=60.0),), {}, {"stay": 60.0}),
    "survival": ({"time": "months", "event": "event"},
                 (Column("months", "continuous", low=0.0, high=1e7), Column("event", "binary", categories=(0, 1))),
                 {"horizon": 50.0}, {"months": 1e6, "event": 1}),
}  # fmt: skip


RELEASED = [
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


def neighbours(kind: str) -> tuple[pd.DataFrame, pd.DataFrame, Schema, dict[str, Any]]:
    """A table, the same with one person more, who makes integers floats and has what nobody else has; their schema."""
    rng = np.random.default_rng(3)
    frame = small_frame(2100, 5)
    frame.insert(0, "who", [f"p{i // 2}" for i in range(len(frame))])
    risk = 0.05 * (frame["age"] - 55) + frame["smoker"]
    frame["grade"] = np.array(["a", "b", "c"])[np.digitize(risk + rng.normal(0, 0.5, len(frame)), [-0.5, 1.0])]
    frame["stay"] = np.round((10 + 4 * risk + rng.normal(0, 1, len(frame))).clip(0, 59), 1)
    frame["died"] = np.where(frame["died"] == 1, "yes", "no")
    how, columns, _, own = KINDS[kind]
    names = ["who", *SMALL_SCHEMA.names, *how.values()]
    frame = frame[names]
    schema = Schema(
        (
            Column("age", "integer", low=0, high=120, missing="constant", fill=50),
            Column("crp", "continuous", low=0, high=400, missing="indicator"),
            Column("smoker", "binary", categories=(0, 1)),
            Column("stage", "categorical", categories=("I", "II", "III", "IV")),
            *columns,
        )
    )
    more = pd.DataFrame([{**EXTRA, **own, "age": None}, {**EXTRA, **own}])[names]  # their age is missing once
    place = 13
    both = pd.concat([frame.iloc[:place].astype(object), more.astype(object), frame.iloc[place:].astype(object)])
    both = both.reset_index(drop=True).infer_objects()
    assert both["age"].dtype != frame["age"].dtype  # the odd person changes how the column is stored
    return frame, both, schema, how


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_neighbouring_files_with_the_same_answers_give_the_same_release_to_the_byte(
    kind: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the real reader and the real plan; only the noisy integers, and the run's random name, are pinned."""
    alone, both, schema, how = neighbours(kind)
    given: dict[str, Any] = {"epsilon": 8.0, "ipc": 5, "threads": 1, "seed": 3, **KINDS[kind][2]}
    gaussian, top = noise.discrete_gaussian, noise.noisy_top
    said: list[Any] = []

    def keep(sums: Any, *how: Any) -> Any:
        said.append(gaussian(sums, *how) if len(how) == 1 else top(sums, *how))
        return said[-1]

    class Named:
        hex = "0" * 32

    monkeypatch.setattr(ledger.uuid, "uuid4", Named)
    exact: dict[str, list[Any]] = {}
    for name, frame in (("without", alone), ("with", both)):
        file = tmp_path / f"{name}.{suffix}"
        frame.to_csv(file, index=False) if suffix == "csv" else frame.to_parquet(file, index=False)
        again = iter(said)
        seen = exact.setdefault(name, [])
        answer = keep if name == "without" else (lambda sums, *how, again=again: next(again))

        def noised(sums: Any, *how: Any, seen: list[Any] = seen, answer: Any = answer) -> Any:
            seen.append(sums.copy())
            return answer(sums, *how)

        monkeypatch.setattr(noise, "discrete_gaussian", noised)
        monkeypatch.setattr(noise, "noisy_top", noised)
        read = dc.Cohort.from_file(file, **how, person_id="who", schema=schema)
        dc.condense(read, out=tmp_path / name / "run", **given)
    assert len(exact["with"]) == len(exact["without"])
    assert any((a != b).any() for a, b in zip(exact["with"], exact["without"], strict=True))  # the person was there
    one, other = (files(tmp_path / name / "run/release") for name in ("without", "with"))
    assert sorted(one) == RELEASED
    assert len(one["condensed.csv"].splitlines()) > 10
    assert [name for name in one if one[name] != other[name]] == []
    for name in ("without", "with"):
        assert verify_release(tmp_path / name / "run").holds


def test_a_csv_has_the_bytes_that_pandas_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [0.1, 1.0, -0.0, 1e-5, 3.3e-7, 1e15, 1e22, 123456789.123, np.nan, 5e-324, 12345678912345680.0, -2.5e-4]
    frame = pd.DataFrame(
        {
            "float": numbers,
            "whole": np.arange(12) * 1.0,
            "int": np.arange(12) - 5,
            "single": np.asarray([*numbers[:9], 0.25, 3.0, -7.5], np.float32),
            "truth": [True, False] * 6,
            "text": ["plain", "a,b", 'say "so"', "two\nlines", "", None, " lead", "007", "ä", "x\ty", "'", ";"],
            "mixed": ["a", 1, 2.5, None] * 3,
            "maybe": pd.array([1, None, 3] * 4, "Int64"),
            'na"me,': pd.Categorical(["low", "high, higher", None] * 4),
        }
    )
    monkeypatch.setattr(release, "CSV_BATCH", 40)  # four rows at a time
    for part in (frame, frame[:0], frame[["float"]], frame[["text"]]):
        part.to_csv(tmp_path / "slow.csv", index=False)
        release.write_csv(part, tmp_path / "fast.csv")
        assert (tmp_path / "fast.csv").read_bytes() == (tmp_path / "slow.csv").read_bytes()


def test_a_large_csv_is_gzipped_and_named_so_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "GZIPPED", 50)
    frame = small_frame()
    made = dc.condense(frame, target="died", ignore=["months", "event"], ipc=10, out=tmp_path / "run", **NOISELESS)
    room = tmp_path / "run" / "release"
    table = pd.read_csv(room / "condensed.csv.gz", dtype=made.frame.dtypes.to_dict())  # type: ignore[arg-type]
    pd.testing.assert_frame_equal(table, made.frame, check_categorical=False)
    assert not (room / "condensed.csv").exists()
    assert release.verify_tables(room.parent).contradictions == ()
    for text in ("README.md", "datasheet.md", "report.html", "croissant.json"):
        said = (room / text).read_text(encoding="utf-8")
        assert "condensed.csv" not in said.replace("condensed.csv.gz", ""), text
