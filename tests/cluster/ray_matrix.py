"""Other releases of Ray than the tested one: `python -m tests.cluster.ray_matrix [--newest 3] [--releases 2.61.0 …]`.

Each is installed alone into a temporary folder in front of the environment's own Ray, and the tests that guard what we
lean on in its private internals (distcondense/cluster/ray/_ray_private.py) are run. Prints a line a release; exits with
1 where one of them fails. The pin in pyproject.toml may follow where all pass.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = ("tests/cluster/test_ray.py", "tests/cluster/test_submit.py")


def guards() -> list[str]:
    """The tests that the table in `_ray_private.py` names, by how their names begin."""
    from distcondense.cluster.ray import _ray_private

    return re.findall(r"`(test_\w+)` \|$", _ray_private.__doc__ or "", re.MULTILINE)


def newest(listed: Iterable[str], count: int) -> list[str]:
    """Of the newest `count` minor versions the last release each, the newest first; no release candidates."""
    last: dict[tuple[int, int], tuple[int, int, int]] = {}
    for version in listed:
        if found := re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version.strip()):
            number = int(found[1]), int(found[2]), int(found[3])
            last[number[:2]] = max(number, last.get(number[:2], number))
    return [".".join(map(str, last[minor])) for minor in sorted(last, reverse=True)[:count]]


def on_the_registry() -> list[str]:
    """What pip can install."""
    asked = [sys.executable, "-m", "pip", "index", "versions", "ray"]
    said = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    return re.findall(r"\d+\.\d+\.\d+\w*", said.partition("Available versions:")[2].partition("INSTALLED")[0])


def tried(release: str, folder: Path) -> str:
    """How the guards fare with a release: "passed", or what went wrong."""
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(folder),
        f"ray=={release}",
    ]
    if subprocess.run([*install, f"ray=={release}"], check=False).returncode:
        return "could not be installed"
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *FILES, "-k", " or ".join(guards())]
    before = f"{folder}{os.pathsep}{ROOT}"
    done = subprocess.run(
        run, cwd=ROOT, env={**os.environ, "PYTHONPATH": before}, capture_output=True, text=True, check=False
    )
    failed = re.findall(r"^(?:FAILED|ERROR) \S+::(\S+)", done.stdout, re.MULTILINE)
    if done.returncode and not failed:
        return "the tests could not be run: " + " ".join((done.stdout + done.stderr).split()[-30:])
    return f"fails: {', '.join(failed)}" if failed else "passed"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--newest", type=int, default=3)
    parser.add_argument("--releases", nargs="*")
    said, well = parser.parse_args(arguments), True
    for release in said.releases or newest(on_the_registry(), said.newest):
        with tempfile.TemporaryDirectory(prefix="ray-") as folder:
            result = tried(release, Path(folder))
        well &= result == "passed"
        sys.stdout.write(f"ray {release}: {result}\n")
        sys.stdout.flush()
    return 0 if well else 1


if __name__ == "__main__":
    raise SystemExit(main())
