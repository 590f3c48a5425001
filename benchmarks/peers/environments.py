"""The peers' environments: one venv each, built from requirements-NAME.txt, outside the checkout and never committed.

The folder is ~/.cache/distcondense/peers, or what DISTCONDENSE_PEERS says. dpmm needs Python 3.10 or 3.11 (its own
metadata); the others run on this program's.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from distcondense.errors import SettingsError

NAMES = ("dpmm", "smartnoise", "interpret")
HERE = Path(__file__).parent


def home() -> Path:
    said = os.environ.get("DISTCONDENSE_PEERS")
    return Path(said) if said else Path.home() / ".cache" / "distcondense" / "peers"


def python_of(name: str, where: Path | None = None) -> Path:
    return (where or home()) / name / "bin" / "python"


def build(name: str, where: Path | None = None) -> None:
    """A fresh venv with the pinned versions; a finished one with the same pins is kept."""
    folder, pins = (where or home()) / name, (HERE / f"requirements-{name}.txt").read_text(encoding="utf-8")
    mark = folder / "pins.txt"
    if mark.exists() and mark.read_text(encoding="utf-8") == pins:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(HERE / f"requirements-{name}.txt")], check=True)
    mark.write_text(pins, encoding="utf-8")


def asked(name: str, question: dict[str, Any], table: pd.DataFrame, threads: int) -> tuple[Any, int]:
    """What the peer's worker answers to a table of codes: a CSV's frame or a JSON object, and its peak memory in bytes.

    The table lies in a folder that only this user can read, and that is gone afterwards.
    """
    python = python_of(name)
    if not python.exists():
        raise SettingsError(
            f"peer {name}", "needs its environment", found="none",
            fix=f"python -m benchmarks.peers build {name}",
        )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="peer-") as folder:
        room = Path(folder)
        table.to_csv(room / "train.csv", index=False)
        (room / "question.json").write_text(json.dumps(question), encoding="utf-8")
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONPATH": "", "JAX_PLATFORMS": "cpu"}
        command = [str(python), str(HERE / "workers" / f"{name}.py"), folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["no message"])[-1].split(":")[0]  # its type: no patient's value
            raise SettingsError(f"peer {name}", "must end well", found=why, fix="see benchmarks/peers")
        if (room / "out.json").exists():
            return json.loads((room / "out.json").read_text(encoding="utf-8")), peak
        return pd.read_csv(room / "out.csv"), peak
