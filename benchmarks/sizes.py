"""What a run takes by the size of its table: `python -m benchmarks.sizes`, for `distcondense plan`.

Simulated tables of several sizes, each condensed by a command of its own on one thread: its peak of memory and its CPU
seconds, which a busy machine changes little. By method a line is fitted through them, base + each · rows · columns;
`distcondense/cluster/sizes.json` has these, and a test holds it to the result. Out of core: from the `scale` result.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from distcondense.cluster.sizes import IN_BATCHES, IN_MEMORY
from distcondense.data.datasets import simulate

SHAPES = ((4_000, 30), (40_000, 30), (160_000, 30), (4_000, 300), (12_000, 300))  # rows, columns with the outcome
HOW = {
    "private": ["--method", "private", "--epsilon", "1", "--ipc", "50"],
    "published": ["--method", "published", "--epsilon", "2.5", "--ipc", "50", "--steps", "100"],
}

# the peak of this process's own memory: what its parent had would count in the system's account of children
CHILD = """
import json, os, sys
from distcondense import cli
sys.argv[0] = "distcondense"
try:
    cli.main()
    code = 0
except SystemExit as done:
    code = done.code or 0
(peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print(json.dumps([code, int(peak.split()[1]) * 1024, sum(os.times()[:4])]))
"""


def measured(method: str, rows: int, columns: int, room: Path) -> dict[str, Any]:
    """One command in a process of its own."""
    folder = room / f"{rows}-{columns}"
    if not folder.exists():
        simulate("proteomics_like", folder, rows=rows, features=columns - 1)
    (file,) = (folder / "table").glob("*.parquet")
    out = room / f"{method}-{rows}-{columns}"
    command = ["condense", file, "--schema", folder / "schema.toml", "--target", "myeloma", "--threads", "1", "-q"]
    variables = {**os.environ, "DISTCONDENSE_STATE": "off"}
    arguments = [sys.executable, "-c", CHILD, *map(str, command), *HOW[method], "--out", str(out)]
    done = subprocess.run(arguments, env=variables, capture_output=True, text=True, check=False)
    code, peak, seconds = json.loads(done.stdout.splitlines()[-1])
    if code not in (0, 3):
        raise SystemExit(f"{method}, {rows} x {columns}: exit {code}")
    return {"rows": rows, "columns": columns, "bytes": peak, "cpu_seconds": seconds, "exit": code}


def line(points: list[dict[str, Any]], what: str) -> list[float]:
    """(base, each): a line over rows · columns, relative errors squared, that no point's base is below."""
    values = np.array([float(point["rows"] * point["columns"]) for point in points])
    known = np.array([float(point[what]) for point in points])
    weight = 1 / known
    design = np.stack([np.ones(len(values)), values], axis=1)
    base, each = np.linalg.lstsq(design * weight[:, None], known * weight, rcond=None)[0]
    return [float(max(base, 0.0)), float(max(each, 0.0))]


def out_of_core() -> dict[str, Any]:
    """The same of tables that are read in batches, as `benchmarks.scale grow` measured them: 20 columns."""
    points = [
        {"rows": one["rows"], "columns": 20, "bytes": one["anonymous_bytes"], "cpu_seconds": one["cpu_seconds"]}
        for one in record.read("scale")["grow"]
    ]
    return {"points": points, "bytes": line(points, "bytes"), "cpu_seconds": line(points, "cpu_seconds")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    found: dict[str, Any] = {IN_MEMORY: {}, IN_BATCHES: {}}
    with tempfile.TemporaryDirectory() as room:
        for method in HOW:
            points = []
            for rows, columns in SHAPES:
                points.append(measured(method, rows, columns, Path(room)))
                print(method, points[-1], flush=True)
            lines = {what: line(points, what) for what in ("bytes", "cpu_seconds")}
            found[IN_MEMORY][method] = {"points": points, **lines}
    found[IN_BATCHES]["private"] = out_of_core()
    record.write("sizes", found, seeds=[0])


if __name__ == "__main__":
    main()
