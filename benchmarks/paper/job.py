"""Proteomics at IPC 1000, in this process and as a Ray job: `python -m benchmarks.paper.job [--rows N --steps N]`.

52,999 × 2,932, about 98 training cases, `published` at the printed ε, noise from one key so that runs can be compared.
The job is sent by `distcondense submit` (`ray job submit`) to a head node that is started here on the loopback; there
two actors compute the tiles of the structured Jacobian. `once` is what both run.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

import distcondense as dc
from benchmarks import record
from benchmarks.paper.printed import FEW_CASES, row_of, simulated
from distcondense import kernels
from distcondense.evaluation.score import TRAINED_ON, Score, find
from distcondense.runs.memory import MemoryPeak

IPC = 1000
MARK = "measured: "
START = """
import ray.scripts.scripts
from distcondense.cluster.ray._ray_private import patient_start
with patient_start(600):
    ray.scripts.scripts.main()
"""


def once(said: argparse.Namespace) -> dict[str, Any]:
    """One run: what it made, what it took, how good it is."""
    cohort = simulated("proteomics_like", rows=said.rows, prevalence=FEW_CASES)
    memory, began, worked = MemoryPeak(), time.perf_counter(), time.process_time()
    cluster = dc.Cluster(address="auto", actors=said.actors, num_cpus=0.5) if said.actors else None
    result = dc.condense(
        cohort, method="published", ipc=IPC, epsilon=row_of("proteomics").epsilon[-1], steps=said.steps, seed=0,
        noise_key=1, threads=1, path="structured" if said.actors else "auto", cluster=cluster,
    )  # fmt: skip
    scores = [Score.from_dict(one) for one in result.internal["scores"]]
    values = {way: found for way in TRAINED_ON if (found := find(scores, way)) is not None}
    return {
        "rows": len(cohort),
        "backend": kernels.backend(),
        "table": cohort.fingerprint(),
        "sha256": hashlib.sha256(pd.util.hash_pandas_object(result.frame).to_numpy().tobytes()).hexdigest(),
        "auroc": {way: (score.value, score.low, score.high) for way, score in values.items()},
        "epsilon": (result.privacy.epsilon, result.privacy.epsilon_at_last_step),
        "execution": result.internal["execution"],
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - worked,
        "peak_memory_bytes": memory.peak,
        "of_it_the_table": memory.before,
    }


@contextmanager
def head_node() -> Iterator[dict[str, str]]:
    """A head on the loopback with a token, as variables for those who talk to it; it ends with the session it is in."""
    with tempfile.TemporaryDirectory(prefix="dc-") as room, contextlib.ExitStack() as held:
        (Path(room) / "token").write_text("0123456789abcdef" * 4)
        sockets = [held.enter_context(socket.socket()) for _ in range(3)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [one.getsockname()[1] for one in sockets]
        held.close()
        programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        known = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": f"{room}/token", "PATH": programs}
        names = ("port", "dashboard-port", "ray-client-server-port")
        command = [
            *(sys.executable, "-c", START, "start", "--head", "--block", "--node-ip-address=127.0.0.1"),
            *("--dashboard-host=127.0.0.1", "--num-cpus=2", "--object-store-memory=500000000"),
            *(f"--temp-dir={room}/ray", "--disable-usage-stats"),
            *(f"--{name}={port}" for name, port in zip(names, ports, strict=True)),
        ]
        head = subprocess.Popen(command, cwd=room, env=known, stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            assert head.stdout is not None
            if not any("block forever" in line for line in head.stdout):
                raise RuntimeError("no head node")
            yield {**known, "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{ports[1]}"}
        finally:
            for process in Path("/proc").glob("[0-9]*"):  # workers have process groups of their own
                with contextlib.suppress(ProcessLookupError):
                    if os.getsid(int(process.name)) == head.pid:
                        os.kill(int(process.name), signal.SIGKILL)
            head.communicate()


def measured(command: list[str], env: dict[str, str]) -> dict[str, Any]:
    """What `once` said, wherever it ran."""
    said = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True).stdout
    line = next(line for line in reversed(said.splitlines()) if MARK in line)
    found: dict[str, Any] = json.loads(line.split(MARK, 1)[1])
    return found


def page(here: dict[str, Any], job: dict[str, Any], steps: int) -> str:
    if here["table"] != job["table"]:
        raise RuntimeError("two tables were simulated: their runs say nothing of each other")
    same = "the same bits" if here["sha256"] == job["sha256"] else "**other bits**"
    lines = [
        f"# Proteomics, {here['rows']:,} × 2,932, IPC {IPC}, {steps} steps, one thread\n",
        f"ε = {here['epsilon'][0]:.3g} (as-published), {here['epsilon'][1]:.3g} at the last step. The rows of both: "
        f"{same} ({here['sha256'][:16]}, {job['sha256'][:16]}).\n",
        "| | in this process | Ray job, two actors |",
        "| --- | --- | --- |",
    ]
    for way, (value, low, high) in here["auroc"].items():
        there = job["auroc"][way][0]
        lines.append(f"| AUROC, {TRAINED_ON[way].lower()} | {value:.3f} [{low:.3f}, {high:.3f}] | {there:.3f} |")
    for name, of in (
        ("seconds", lambda one: f"{one['seconds']:.0f}"),
        ("of the driver's core", lambda one: f"{one['cpu_seconds']:.0f}"),
        ("driver's memory at most, GB", lambda one: f"{one['peak_memory_bytes'] / 1e9:.1f}"),
        ("of it before, with the table, GB", lambda one: f"{one['of_it_the_table'] / 1e9:.1f}"),
        ("steps a second", lambda one: f"{one['execution']['steps_per_second']:.2f}"),
    ):
        lines.append(f"| {name} | {of(here)} | {of(job)} |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", nargs="?", choices=["both", "once"], default="both")
    options.add_argument("--rows", type=int, default=52_999)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--actors", type=int, default=0, help="of once, on the cluster it is on")
    said = options.parse_args()
    if said.what == "once":
        warnings.simplefilter("ignore")
        print(MARK + json.dumps(once(said)))
        return
    command = ["python", "-m", "benchmarks.paper.job", "once", "--rows", str(said.rows), "--steps", str(said.steps)]
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as Ray has it: the table is made by matrix products
    here = measured([sys.executable, *command[1:]], os.environ | alone)
    print(json.dumps(here), flush=True)
    with head_node() as known, tempfile.TemporaryDirectory() as code:
        for name in ("distcondense", "kernels", "benchmarks"):  # a job's folder may hold no data
            ignored = shutil.ignore_patterns("results", "__pycache__")
            shutil.copytree(record.ROOT / name, Path(code) / name, ignore=ignored)
        submit = [sys.executable, "-m", "distcondense", "submit", "--working-dir", code, "--"]
        job = measured([*submit, *command, "--actors", "2"], known)
    record.write("paper-job", {"here": here, "job": job}, seeds=[0], text=page(here, job, said.steps))
    print(page(here, job, said.steps))


if __name__ == "__main__":
    main()
