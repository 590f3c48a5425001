"""The peers' environments: one venv each, built from requirements-NAME.txt, outside the checkout and never committed.

The folder is ~/.cache/distcondense/peers, or what DISTCONDENSE_PEERS says. dpmm needs Python 3.10 or 3.11 (its own
metadata); the others run on this program's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from distcondense.errors import SettingsError

NAMES = ("dpmm", "smartnoise", "interpret")
HERE = Path(__file__).parent
PATIENCE = 10
LOOK_EVERY = 0.05  # seconds between two looks at a peer's process


def home() -> Path:
    said = os.environ.get("DISTCONDENSE_PEERS")
    return Path(said) if said else Path.home() / ".cache" / "distcondense" / "peers"


def python_of(name: str, where: Path | None = None) -> Path:
    return (where or home()) / name / "bin" / "python"


def build(name: str, where: Path | None = None) -> None:
    """A fresh venv with the pinned versions and nothing else; a finished one with the same pins is kept."""
    folder, pins = (where or home()) / name, (HERE / f"requirements-{name}.txt").read_text(encoding="utf-8")
    mark = folder / "pins.txt"
    if mark.exists() and mark.read_text(encoding="utf-8") == pins:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
    ]
    subprocess.run([*pip, "-r", str(HERE / f"requirements-{name}.txt")], check=True)
    mark.write_text(pins, encoding="utf-8")


@dataclass(frozen=True)
class Unfinished:
    """In place of an answer: the peer was stopped at its time limit."""

    seconds: float


def asked(name: str, question: dict[str, Any], table: pd.DataFrame, threads: int, limit: float) -> tuple[Any, int]:
    """What the peer's worker answers to a table of codes, and its peak memory in bytes.

    An answer is a CSV's frame, a JSON object, or that there was none within `limit` CPU seconds. The table lies in a
    folder that only this user can read, and that is gone afterwards.
    """
    python = python_of(name)
    if not python.exists():
        raise SettingsError(
            f"peer {name}", "needs its environment", found="none", fix=f"python -m benchmarks.peers build {name}"
        )
    with tempfile.TemporaryDirectory(prefix="peer-") as folder:
        room = Path(folder)
        table.to_csv(room / "train.csv", index=False)
        (room / "question.json").write_text(json.dumps(question), encoding="utf-8")
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment = {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONPATH": "", "JAX_PLATFORMS": "cpu"}
        ended = run([str(python), str(HERE / "workers" / f"{name}.py"), folder], environment, limit)
        if ended.stopped:
            return Unfinished(limit), ended.peak
        if ended.code:
            why = (ended.errors.strip().splitlines() or ["no message"])[-1].split(":")[
                0
            ]  # its type: no patient's value
            raise SettingsError(f"peer {name}", "must end well", found=why, fix="see benchmarks/peers")
        if (room / "out.json").exists():
            return json.loads((room / "out.json").read_text(encoding="utf-8")), ended.peak
        return pd.read_csv(room / "out.csv"), ended.peak


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    errors: str
    peak: int  # bytes
    stopped: bool  # at the time limit


def run(command: list[str], environment: Mapping[str, str], limit: float) -> Ended:
    """A process, for `limit` CPU seconds at most, so that a busy machine stops none; its children end with it.

    One that waits for ever is stopped, too: after PATIENCE times as many seconds by the clock.
    """
    peak, until = 0, time.monotonic() + PATIENCE * limit
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, env=dict(environment), stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )
        try:
            while process.poll() is None and _worked(process.pid) < limit and time.monotonic() < until:
                peak = max(peak, _peak(process.pid))  # what the system tells at the end includes this process's own
                time.sleep(LOOK_EVERY)
            stopped = process.poll() is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        errors.seek(0)
        return Ended(code, errors.read().decode("utf-8", "replace"), peak, stopped)


def _worked(pid: int) -> float:
    """CPU seconds of a process so far; 0 where the system does not say."""
    with suppress(OSError, IndexError):
        said = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(said[11]) + int(said[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _peak(pid: int) -> int:
    """The most bytes that a process has held so far; 0 where the system does not say."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0
