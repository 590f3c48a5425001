"""Handing a command to a cluster as a Ray job: check it, pack the code, refuse data, start.

What goes is the working directory (by default the checkout this program runs from, or this package alone where it is
installed), packed here from exactly the files that `upload.py` has looked at; Ray's own client does the rest. The
nodes' dependencies are theirs: an image, a setup command, or `pip` in a runtime environment file. Data never goes:
COMMAND names it by its path on the cluster or a URI.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from distcondense.cluster.ray.jobs import SubmittedJob, job_client, start_job
from distcondense.cluster.upload import URI, data_suffix, package
from distcondense.errors import ClusterError, DistcondenseWarning, SettingsError

DEFAULT_ADDRESS = "http://127.0.0.1:8265"  # a head node here, or a tunnel to one
OUT_BY_DEFAULT = ("condense", "demo", "study")  # commands that write without being told where


def submit(
    command: Sequence[str],
    *,
    address: str = DEFAULT_ADDRESS,
    working_dir: str | None = None,
    runtime_env: Path | None = None,
    cpus: float = 0,
    log: Callable[[str], None],
) -> SubmittedJob:
    """Start a command as a job on a cluster. Nothing is sent before all is checked.

    Parameters
    ----------
    command
        The program and its arguments.
    address
        The URL of the head node's dashboard.
    working_dir
        The folder to run in, or the URI of an archive that the cluster can read; the checkout or this package if None.
    runtime_env
        A runtime environment file of Ray.
    cpus
        Cores to reserve for the command itself.

    Raises
    ------
    SettingsError
        Where a file that would go may hold patients, or the command or the runtime environment cannot be used.
    ClusterError
        Where the cluster cannot be reached, refuses the token, or does not take the job.
    """
    if not command:
        raise SettingsError(
            "COMMAND",
            "must be given",
            found="nothing after --",
            fix="distcondense submit -- python -m distcondense demo --out /data/demo",
        )
    address = check_address(address)
    for doubt in doubts(command):
        warnings.warn(doubt, DistcondenseWarning, stacklevel=2)
    environment = read_runtime_env(runtime_env) if runtime_env is not None else {}
    with tempfile.TemporaryDirectory(prefix="distcondense-job-") as scratch:
        environment = package(environment, working_dir, Path(scratch) / "job.zip", log)
        client = job_client(address, find_token(os.environ))
        return start_job(client, address, shlex.join(command), environment, cpus, log=log)


def check_address(address: str) -> str:
    """The dashboard's URL, without a slash at its end."""
    try:
        url = urlsplit(address.strip())
        valid = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:  # a port that is no number
        valid = False
    if not valid:
        raise ClusterError(
            "address",
            "must be the URL of a head node's dashboard",
            found=repr(address),
            fix="give http://HEAD:8265 by --address, RAY_API_SERVER_ADDRESS or RAY_ADDRESS; ray:// and 6379 are not it",
        )
    if url.username or url.password:
        raise ClusterError(
            "address",
            "must not hold a password: it would be in the log",
            found="a user name or password before the @",
            fix="give the token by RAY_AUTH_TOKEN_PATH",
        )
    return address.strip().rstrip("/")


def find_token(variables: Mapping[str, str]) -> str | None:
    """The cluster's token where Ray looks for it: RAY_AUTH_TOKEN, the file RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token.

    Ray itself would end this process where the second names a file that is not there.
    """
    if token := variables.get("RAY_AUTH_TOKEN", "").strip():
        return token
    named = variables.get("RAY_AUTH_TOKEN_PATH", "")
    try:
        token = Path(named or os.path.expanduser("~/.ray/auth_token")).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        token = ""
    if named and not token:
        raise ClusterError(
            "RAY_AUTH_TOKEN_PATH",
            "must name a file with the cluster's token",
            found="no file that can be read, or an empty one",
            fix="copy the head node's token into it (there: ray get-auth-token)",
        )
    return token or None


def read_runtime_env(path: Path) -> dict[str, Any]:
    """A runtime environment file, as `ray job submit --runtime-env` takes it."""
    import yaml  # type: ignore[import-untyped]

    try:
        environment = yaml.safe_load(path.read_text(encoding="utf-8"))
        problem = None if isinstance(environment, dict) else type(environment).__name__
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = type(error).__name__ + (f" in line {mark.line + 1}" if mark else "")
    if problem is not None:
        raise SettingsError(
            f"runtime env {path.name}",
            "must be a YAML file that holds a mapping",
            found=problem,
            fix="see cluster/runtime_env.yaml",
        )
    return dict(environment)


def doubts(command: Sequence[str]) -> list[str]:
    """What in a command will not do on the cluster what it does here."""
    lines, outs, subcommand = [], [], ""
    for word, following in pairwise([*command, ""]):
        name, given, value = word.partition("=")
        if name in ("--out", "-o"):
            outs.append(value if given else following)
        if Path(word).name == "distcondense":
            subcommand = following
    if subcommand in OUT_BY_DEFAULT and not outs:
        lines.append(
            f"{subcommand} without --out writes into the job's temporary copy of the working directory, which the "
            "cluster deletes: give --out an absolute path that the cluster keeps"
        )
    relative = [word for word in [*outs, *command] if not word.startswith(("/", "-")) and not URI.match(word)]
    for word in dict.fromkeys(relative):
        if word in outs:
            lines.append(
                f"--out {word} is relative: results land in the job's temporary copy of the working directory, which "
                "the cluster deletes; give an absolute path that the cluster keeps"
            )
        elif data_suffix(Path(word).name):
            lines.append(
                f"{word} is relative: tables are never sent, so it will not be there; give its absolute path on the "
                "cluster or a URI"
            )
    return lines
