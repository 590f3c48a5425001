"""The README is true: its Python runs, its commands exist, the demo does what the first screen says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SMALL_SCHEMA, small_frame

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def test_the_readmes_python_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_frame(400).drop(columns=["months", "event"]).to_parquet(tmp_path / "cohort.parquet")
    (tmp_path / "cohort.toml").write_text(SMALL_SCHEMA.to_toml(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("python"))
    assert "dc.condense" in code
    # small data: IPC 100 is more than its rarer class may have, which is said, not refused
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/release/condensed.csv").exists()


def test_every_command_of_the_readme_exists() -> None:
    said = re.findall(r"^distcondense (\w+)", "\n".join(blocks("sh")), re.MULTILINE)
    assert {"schema", "condense"} <= set(said)
    for command in sorted(set(said)):
        done = subprocess.run([sys.executable, "-m", "distcondense", command, "--help"], capture_output=True, cwd=ROOT)
        assert done.returncode == 0
    targets = re.findall(r"^make (\w+)", "\n".join(blocks("sh")), re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["demo", "test"]
    assert all(f"\n{target}:" in makefile for target in targets)


def test_the_demo_condenses_a_classification_and_a_survival_cohort(tmp_path: Path) -> None:
    command = ["demo", "--out", str(tmp_path / "demo"), "--json", "--threads", "2"]
    done = subprocess.run([sys.executable, "-m", "distcondense", *command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert "auroc" in runs["breast_cancer"]["metrics"]["condensed"]
    assert "c_index" in runs["gbsg2"]["metrics"]["condensed"]
    for name, run in runs.items():
        assert run["privacy"]["guarantee"] == "end-to-end"
        internal = tmp_path / "demo" / name / "internal"
        assert (internal / "model.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "demo" / name / "release/condensed.csv").exists()
