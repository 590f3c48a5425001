"""Handing a command to a cluster as a Ray job: pack the code, refuse data, start, follow, end with the job's exit code.

What goes is the working directory (by default the checkout this program runs from, or this package alone where it is
installed), packed here from exactly the files that `upload.py` has looked at. If the package is not in it, it is put
in: the nodes run the code that was submitted, whatever is installed there. Their dependencies are theirs: an image, a
setup command, or `pip` in a runtime environment file. Data never goes: COMMAND names it by its path on the cluster or
a URI.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import distcondense
from distcondense.cluster.upload import data_suffix, entries_of_archive, entry_of, pack, refuse_data
from distcondense.errors import ClusterError, DistcondenseWarning, SettingsError

DEFAULT_ADDRESS = "http://127.0.0.1:8265"  # a head node here, or a tunnel to one
PACKAGE = Path(distcondense.__file__).resolve().parent
NOT_NEEDED = ("/tests", "/docs", "/benchmarks/results")  # of a checkout, by a job
OUT_BY_DEFAULT = ("condense", "demo", "bench", "study")  # commands that write without being told where
PENDING_SAID = 15  # seconds
RECONNECTS = 5  # in a row without a new word
FINAL = ("SUCCEEDED", "FAILED", "STOPPED")
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")


class JobClient(Protocol):
    """A cluster that takes jobs (`ray.jobs.RayJobs`). Lost on the way, it raises ConnectionError."""

    def submit(self, command: str, runtime_env: dict[str, Any], cpus: float) -> str:
        """Start a job; its name."""

    def show_logs(self, job: str, show: Callable[[str], None]) -> None:
        """Show what the job has written from its first word on, and go on until it ends."""

    def state(self, job: str) -> tuple[str, str, int | None]:
        """Status, message and exit code."""


@dataclass(frozen=True)
class JobState:
    """How a job stands."""

    status: str
    message: str
    code: int | None

    @property
    def final(self) -> bool:
        return self.status in FINAL

    @property
    def exit_code(self) -> int:
        """0 done; a failed job's own code, 128 + n if signal n ended it; 1 if it was stopped or never ran."""
        if self.status == "SUCCEEDED":
            return 0
        if not self.code:
            return 1
        return self.code if self.code > 0 else 128 - self.code

    def __str__(self) -> str:
        if self.status == "FAILED" and self.code is None:  # it never ran: nothing but the message says why
            return f"failed: {self.message.strip()}"
        return self.status.lower() + (f" with exit code {self.exit_code}" if self.status == "FAILED" else "")


@dataclass(frozen=True)
class Job:
    """A job that was submitted."""

    client: JobClient
    name: str
    address: str

    @property
    def how_to_go_on(self) -> str:
        verbs = ("logs --follow", "stop")
        ways = [f"RAY_AUTH_MODE=token ray job {verb} --address {self.address} {self.name}" for verb in verbs]
        return f"follow it: {ways[0]}   stop it: {ways[1]}"


def submit(
    command: Sequence[str],
    *,
    address: str = DEFAULT_ADDRESS,
    working_dir: str | None = None,
    runtime_env: Path | None = None,
    cpus: float = 0,
    log: Callable[[str], None],
) -> Job:
    """Start `command` as a job on the cluster of the dashboard at `address`. Nothing is sent before all is checked."""
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
        client = _connect(address, find_token(os.environ))
        name = client.submit(shlex.join(command), environment, cpus)
    return Job(client, name, address)


def follow(
    job: Job, *, show: Callable[[str], None], log: Callable[[str], None], wait: Callable[[float], None] = time.sleep
) -> JobState:
    """Show the job's log until it ends; a connection that breaks is made again, and nothing is shown twice."""
    shown = fruitless = 0
    while True:
        before, seen = shown, 0

        def news(chunk: str) -> None:
            nonlocal shown, seen
            fresh = chunk[max(0, shown - seen) :]
            seen += len(chunk)
            shown = max(shown, seen)
            if fresh:
                show(fresh)

        try:
            _await_start(job, log, wait)
            job.client.show_logs(job.name, news)
            state = JobState(*job.client.state(job.name))
            if state.final:
                return state
        except ConnectionError as error:
            log(f"connection lost ({error}); the job goes on, trying again")
        fruitless = 0 if shown > before else fruitless + 1
        if fruitless > RECONNECTS:
            raise ClusterError(
                f"job {job.name}",
                "must be reachable to be followed",
                found=f"no answer from {job.address} in {fruitless} attempts",
                fix=f"{job.how_to_go_on}",
            )
        wait(min(30.0, 2.0**fruitless))


def _await_start(job: Job, log: Callable[[str], None], wait: Callable[[float], None]) -> None:
    """Until a job runs its log is empty: say why it does not run, once."""
    seconds = 0
    while (state := JobState(*job.client.state(job.name))).status == "PENDING":
        if seconds == PENDING_SAID:
            log(f"job {job.name}: {state.message}")
        wait(1.0)
        seconds += 1


def check_address(address: str) -> str:
    """The dashboard's URL, without a slash at its end."""
    try:
        url = urlsplit(address.strip())
        fine = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:  # a port that is no number
        fine = False
    if not fine:
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
        path = Path(named) if named else Path.home() / ".ray" / "auth_token"
        token = path.read_text(encoding="utf-8").strip()
        if token or not named:
            return token or None
        found = "an empty file"
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        if not named:
            return None
        found = type(error).__name__
    raise ClusterError(
        "RAY_AUTH_TOKEN_PATH",
        "must name a file with the cluster's token",
        found=found,
        fix="copy the head node's token into it (there: ray get-auth-token)",
    )


def read_runtime_env(path: Path) -> dict[str, Any]:
    """A runtime environment file, as `ray job submit --runtime-env` takes it."""
    import yaml  # type: ignore[import-untyped]

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise SettingsError(
            f"runtime env {path.name}",
            "must be a readable YAML file",
            found=f"{type(error).__name__}{where}",
            fix="see cluster/runtime_env.yaml",
        ) from None
    if not isinstance(found, dict):
        raise SettingsError(
            f"runtime env {path.name}",
            "must be a mapping",
            found=type(found).__name__,
            fix="see cluster/runtime_env.yaml",
        )
    return found


def package(
    environment: dict[str, Any], working_dir: str | None, target: Path, log: Callable[[str], None]
) -> dict[str, Any]:
    """The runtime environment to send, its working directory replaced by a zip of what was looked at."""
    environment = dict(environment)
    excludes = [str(pattern) for pattern in environment.pop("excludes", None) or ()]
    given = working_dir or environment.get("working_dir")
    for field in ("pip", "uv", "conda"):  # a file named here is read and sent, line by line
        if isinstance(environment.get(field), str) and Path(environment[field]).is_file():
            refuse_data(f"runtime env: {field}", [entry_of(Path(environment[field]), environment[field])])
    for module in environment.get("py_modules") or ():
        _check_module(str(module), excludes)
    if excludes:
        environment["excludes"] = excludes  # for py_modules, which Ray packs itself
    if given is not None and _URI.match(str(given)):
        environment["working_dir"] = str(given)
        return environment
    if given is None and _brings_package(environment):
        return environment
    checkout = (PACKAGE.parent / "pyproject.toml").is_file()
    folder = Path(given) if given is not None else PACKAGE.parent if checkout else None
    files = _files_of(folder, [*excludes, *NOT_NEEDED] if given is None else excludes) if folder else {}
    if "distcondense/__init__.py" not in files and not _brings_package(environment):
        files = package_files() | files
    pack(files.items(), target)
    environment["working_dir"] = str(target)
    log(f"packed {len(files)} files ({target.stat().st_size / 2**20:.1f} MB) of {folder or 'this package'}")
    return environment


def package_files() -> dict[str, Path]:
    """This package as it would lie in a working directory: name → file, the C++ sources where a wheel has them.

    With the tested versions, where there is a checkout to take them from: cluster/runtime_env.yaml asks for them.
    """
    from distcondense.kernels.native_build import source_folder

    files = {f"{PACKAGE.name}/{p.relative_to(PACKAGE).as_posix()}": p for p in PACKAGE.rglob("*.py")}
    sources = source_folder()
    for source in sorted(sources.iterdir()) if sources is not None else ():
        if source.suffix in (".cpp", ".h", ".md"):
            files[f"{PACKAGE.name}/kernels/native_src/{source.name}"] = source
    if (versions := PACKAGE.parent / "constraints.txt").is_file():
        files[versions.name] = versions
    return files


def doubts(command: Sequence[str]) -> list[str]:
    """What in a command will not do on the cluster what it does here."""
    found = []
    outs = list(_values_of(command, "--out", "-o"))
    ours = _subcommand(command)
    if ours in OUT_BY_DEFAULT and not outs:
        found.append(
            f"{ours} without --out writes into the job's temporary copy of the working directory, which the cluster "
            "deletes: give --out an absolute path that the cluster keeps"
        )
    for out in outs:
        if not _absolute(out):
            found.append(
                f"--out {out} is relative: results land in the job's temporary copy of the working directory, which "
                "the cluster deletes; give an absolute path that the cluster keeps"
            )
    for word in command:
        if data_suffix(Path(word).name) and not word.startswith("-") and not _absolute(word) and word not in outs:
            found.append(
                f"{word} is relative: tables are never sent, so it will not be there; give its absolute path on the "
                "cluster or a URI"
            )
    return found


def _subcommand(command: Sequence[str]) -> str | None:
    for word, following in pairwise(command):
        if Path(word).name == "distcondense":
            return following
    return None


def _values_of(command: Sequence[str], *names: str) -> Iterable[str]:
    for at, word in enumerate(command):
        name, given, value = word.partition("=")
        if name in names:
            if given:
                yield value
            elif at + 1 < len(command):
                yield command[at + 1]


def _absolute(path: str) -> bool:
    return path.startswith("/") or _URI.match(path) is not None


def _brings_package(environment: Mapping[str, Any]) -> bool:
    """Whether an image or a requirement puts the package on the nodes."""
    if environment.get("image_uri") or environment.get("container"):
        return True
    wanted: list[Any] = []
    for field in ("pip", "uv"):
        value = environment.get(field)
        value = value.get("packages") if isinstance(value, dict) else value
        wanted += value if isinstance(value, list) else []
    return any(re.match(r"distcondense\b", str(one)) for one in wanted)


def _check_module(module: str, excludes: Sequence[str]) -> None:
    what, path = f"py_modules: {module}", Path(module)
    if _URI.match(module):
        return
    if path.is_dir():
        _files_of(path, excludes, what=what, defaults=False)
    elif path.suffix == ".whl":
        refuse_data(what, entries_of_archive(path))
    elif path.is_file():
        refuse_data(what, [entry_of(path, path.name)])
    else:
        raise SettingsError(what, "must exist", found="no such folder or file", fix="check the runtime env file")


def _files_of(
    folder: Path, excludes: Sequence[str], *, what: str | None = None, defaults: bool = True
) -> dict[str, Path]:
    """The files Ray would send of a folder, each looked at: name → file."""
    from distcondense.cluster.ray.jobs import files_to_send

    what = what or f"working dir {folder}"
    if not folder.is_dir():
        raise SettingsError(
            what,
            "must be a folder",
            found="a file" if folder.exists() else "no such folder",
            fix="give a folder, or the URI of an archive that the cluster can read",
        )
    try:
        paths = [Path(path) for path in files_to_send(str(folder), excludes, defaults=defaults)]
    except OSError as error:
        raise SettingsError(
            what, "must be readable", found=type(error).__name__, fix="list what is not needed in .rayignore"
        ) from None
    root = folder.absolute()
    files = {path.relative_to(root).as_posix(): path for path in paths}
    refuse_data(what, [entry_of(path, name) for name, path in files.items()])
    return files


def _connect(address: str, token: str | None) -> JobClient:
    from distcondense.cluster.ray.jobs import job_client

    return job_client(address, token)
