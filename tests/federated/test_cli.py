"""`distcondense federate`, a command at a time, as people at hospitals type it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from distcondense.cli import app
from distcondense.errors import SettingsError
from distcondense.federated import parties
from distcondense.federated.folder import SharedFolder, WaitingError
from tests.federated.sites import described, patients


def test_the_commands_lead_from_one_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTCONDENSE_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    schema, _ = described("died")
    (tmp_path / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
    frame = patients(80)[[*schema.names]]
    for k, name in enumerate(("east", "west")):
        frame.iloc[k::2].to_csv(tmp_path / f"{name}.csv", index=False)

    def say(words: str) -> str:
        found = CliRunner().invoke(app, ["federate", *words.split()])
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        return found.output

    begun = say("init between --own mine --schema schema.toml --sites 2 --colluding 0 --target died --epsilon 8")
    assert "next, at each of 2 sites" in begun
    assert "ε = 8 end-to-end" in begun
    assert "the table fits" in say("join between east.csv --name east --own at-east")
    with pytest.raises(WaitingError, match="1 missing"):
        say("round between --own mine")
    say("join between west.csv --name west --own at-west")
    with pytest.raises(WaitingError, match="rounds/000000"):
        say("round between --own mine")
    keys = parties.set_of_sites(parties.Own(Path("mine")), SharedFolder(Path("between"))).fingerprint
    with pytest.raises(SettingsError, match="nobody confirmed"):
        say("round between --own at-east")
    assert "1 questions answered" in say(f"round between --own at-east --keys {keys}")
    assert "1 questions answered" in say(f"round between --own at-west --keys {keys}")
    with pytest.raises(WaitingError, match="rounds/000001"):
        say("round between --own mine")
    with pytest.raises(WaitingError, match="message close"):
        say("close between --own at-east")
