"""A way in a process of its own: a case that ends the process is a fault like any other, and the rest goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def in_a_child(way: str, first: int, number: int) -> list[str]:
    """Faults of so many cases, each with how to run it again."""
    faults, done = list[str](), 0
    while done < number:
        with tempfile.TemporaryDirectory(prefix="distcondense-fuzz-log-") as folder:
            log = Path(folder) / "cases.jsonl"
            command = [sys.executable, "-m", "tests.fuzz", "--way", way, "--log", str(log)]
            ended = subprocess.run([*command, "--from", str(first + done), "--cases", str(number - done)], check=False)
            lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        for line in lines:
            faults += [f"{fault} [--way {way} --case {line['case']}]" for fault in line["faults"]]
        begun = [line["case"] for line in lines if line["begins"]]
        done += max(1, len(begun))
        if ended.returncode:
            case = begun[-1] if begun else first
            faults.append(f"traceback: the process ended with {ended.returncode} [--way {way} --case {case}]")
    return faults


def as_a_child(log: Path, first: int, number: int, run: Callable[[int], list[str]]) -> None:
    """These cases one after another; each is in the log before it begins, and its faults after."""
    with log.open("w") as out:
        for case in range(first, first + number):
            out.write(json.dumps({"begins": True, "case": case, "faults": []}) + "\n")
            out.flush()
            if faults := run(case):
                out.write(json.dumps({"begins": False, "case": case, "faults": faults}) + "\n")
