"""Jobs on a cluster, by Ray's own client (`ray.job_submission.JobSubmissionClient`): it sends, starts and shows logs.

What is added are errors that say what is wrong, a connection that is made again, and the job's exit code as ours.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from distcondense.cluster.ray.session import HANDSHAKE_SECONDS, PROBE_SECONDS, first_line, load_ray, no_token
from distcondense.errors import ClusterError, DistcondenseWarning

AGENT_SECONDS = 300.0  # for a head that has just started: its dashboard answers before it can take jobs
AWAITED_SECONDS = 8.0  # until it is said what is waited for
PENDING_SECONDS = 15  # that a job waits before it is said why
RECONNECTS = 5  # in a row without a new word
FINAL = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True)
class JobState:
    """How a job stands: Ray's status and message, and the exit code of its command."""

    status: str
    message: str
    code: int | None

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
class SubmittedJob:
    """A job that was submitted.

    Parameters
    ----------
    client
        Ray's client of the cluster (`job_client`).
    name
        The job's submission id.
    address
        The URL of the cluster's dashboard.
    """

    client: Any
    name: str
    address: str

    @property
    def how_to_go_on(self) -> str:
        """The commands of Ray that follow and stop the job."""
        logs, stop = (
            f"RAY_AUTH_MODE=token ray job {verb} --address {self.address} {self.name}"
            for verb in ("logs --follow", "stop")
        )
        return f"follow it: {logs}   stop it: {stop}"

    def state(self) -> JobState:
        """How it stands; ConnectionError where the cluster does not answer."""
        try:
            info = self.client.get_job_info(self.name)
        except (RuntimeError, OSError, load_ray().exceptions.RayError) as error:
            raise ConnectionError(type(error).__name__) from None
        return JobState(str(getattr(info.status, "value", info.status)), info.message or "", info.driver_exit_code)

    def show_log(self, show: Callable[[str], None]) -> None:
        """Show what the job has written from its first word on, and go on until it ends."""
        import aiohttp

        async def tail() -> None:
            async for chunk in self.client.tail_job_logs(self.name):
                show(chunk)

        try:
            asyncio.run(tail())
        except (RuntimeError, aiohttp.ClientError, OSError) as error:
            raise ConnectionError(type(error).__name__) from None

    def follow(
        self, *, show: Callable[[str], None], log: Callable[[str], None], wait: Callable[[float], None] = time.sleep
    ) -> JobState:
        """Show the job's log until it ends; a connection that breaks is made again, and nothing is shown twice.

        Raises
        ------
        ClusterError
            Where the cluster stays away; the message says by which command to go on.
        """
        shown = fruitless = 0
        while fruitless <= RECONNECTS:
            before = known = shown

            def show_new(chunk: str) -> None:
                nonlocal known, shown
                new = chunk[known:]
                known -= min(known, len(chunk))
                shown += len(new)
                if new:
                    show(new)

            try:
                self._await_start(log, wait)
                self.show_log(show_new)
                if (state := self.state()).status in FINAL:
                    return state
            except ConnectionError as error:
                log(f"connection lost ({error}); the job goes on, trying again")
            fruitless = 0 if shown > before else fruitless + 1
            wait(min(30.0, 2.0**fruitless))
        raise ClusterError(
            f"job {self.name}",
            "must be reachable to be followed",
            found=f"no answer from {self.address} in {fruitless} attempts",
            fix=self.how_to_go_on,
        )

    def _await_start(self, log: Callable[[str], None], wait: Callable[[float], None]) -> None:
        """Until a job runs its log is empty: say why it does not run, once."""
        seconds = 0
        while (state := self.state()).status == "PENDING":
            if seconds == PENDING_SECONDS:
                log(f"job {self.name}: {state.message}")
            wait(1.0)
            seconds += 1


def job_client(address: str, token: str | None, *, answer_seconds: float = HANDSHAKE_SECONDS) -> Any:
    """Ray's client of the cluster whose dashboard is at a URL.

    Parameters
    ----------
    address
        The URL, e.g. http://127.0.0.1:8265.
    token
        The cluster's token; None where there is none.
    answer_seconds
        That the dashboard has for its first answers; Ray's own client would wait for ever.

    Raises
    ------
    ClusterError
        Within seconds, where nobody or something else answers there, the token is not taken, or Ray's version differs.
    """
    ray, what = load_ray(), f"cluster {address}"
    try:
        import aiohttp  # noqa: F401
        import requests
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise ClusterError(
            "ray[default]",
            "must be installed to submit jobs",
            found=first_line(error),
            fix="pip install 'ray[default]'",
        ) from None
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    errors = requests.exceptions

    def ask(path: str) -> Any:
        return requests.get(address + path, headers=headers, timeout=(PROBE_SECONDS, answer_seconds))

    try:
        answer, mode = ask("/api/version"), ask("/api/authentication_mode")
        refused = answer.status_code in (401, 403)
        theirs = "" if refused else str(answer.json()["ray_version"])
        asks_for_token = mode.status_code == 200 and mode.json()["authentication_mode"] == "token"
    except (errors.ConnectionError, errors.InvalidURL) as error:
        raise ClusterError(
            what,
            "must be reachable",
            found="no TLS that this machine trusts" if isinstance(error, errors.SSLError) else "nobody who answers",
            fix="check the address, the tunnel (ray dashboard cluster.yaml, kubectl port-forward) and that Ray is up",
        ) from None
    except errors.Timeout:
        raise ClusterError(
            what, "must answer", found=f"no answer in {answer_seconds:g} seconds", fix="check the address"
        ) from None
    except (errors.RequestException, ValueError, KeyError, TypeError):
        raise ClusterError(
            what,
            "must be a Ray dashboard",
            found="something that does not answer as Ray does",
            fix="the dashboard's port is 8265 unless said otherwise; 6379 and 10001 are other services",
        ) from None
    if refused:
        raise no_token(what, "a token it does not accept" if token else "no token")
    if theirs.split(".")[:2] != ray.__version__.split(".")[:2]:
        raise ClusterError(
            what,
            f"must run the Ray of this program: {ray.__version__}",
            found=f"Ray {theirs}",
            fix=f"pip install 'ray[default]=={theirs}' here, or rebuild the cluster's image from constraints.txt",
        )
    if not asks_for_token:
        warnings.warn(
            f"{what} asks for no token: anyone who can reach it can run code on it and read its data; start it with "
            "RAY_AUTH_MODE=token",
            DistcondenseWarning,
            stacklevel=3,
        )
    for name in ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk"):
        logging.getLogger(name).setLevel(logging.ERROR)  # it logs every package and closed socket
    with _address_for_jobs(address):
        return JobSubmissionClient(address, headers=headers)


def start_job(
    client: Any,
    address: str,
    command: str,
    runtime_env: dict[str, Any],
    cpus: float,
    *,
    log: Callable[[str], None] = lambda line: None,
) -> SubmittedJob:
    """Send the runtime environment and start a command; a head that cannot take jobs yet is asked again.

    What is awaited is said within AWAITED_SECONDS, and whoever waits may stop.
    """
    awaited = (
        f"waiting for the job agent of {address}: the head takes jobs once its agent has its port (on a head that has "
        f"just started soon, else see dashboard_agent.log among Ray's logs there); given up after {AGENT_SECONDS:.0f} s"
    )
    saying = threading.Timer(AWAITED_SECONDS, log, [awaited])
    saying.daemon = True
    saying.start()
    try:
        return _started(client, address, command, runtime_env, cpus)
    finally:
        saying.cancel()


def _started(client: Any, address: str, command: str, runtime_env: dict[str, Any], cpus: float) -> SubmittedJob:
    what, latest = f"cluster {address}", time.monotonic() + AGENT_SECONDS
    while True:
        try:
            name = client.submit_job(entrypoint=command, runtime_env=runtime_env, entrypoint_num_cpus=cpus or None)
            return SubmittedJob(client, str(name), address)
        except (ValueError, TypeError) as error:  # of Ray on this side, before anything was sent
            raise ClusterError(
                "runtime env", "must be one that Ray takes", found=first_line(error), fix="see cluster/runtime_env.yaml"
            ) from None
        except (RuntimeError, load_ray().exceptions.RayError) as error:  # the head's; its last line is the reason
            # the agent comes up after the dashboard; the head has waited for it before it says so
            if "No available agent to submit job" in str(error) and time.monotonic() <= latest:
                continue
            raise ClusterError(
                what,
                "must take the job",
                found="".join(str(error).strip().splitlines()[-1:])[:200],
                fix="check the runtime env file, and dashboard_agent.log among Ray's logs on the head",
            ) from None
        except OSError as error:  # every error of requests is one
            raise ClusterError(
                what,
                "must stay reachable",
                found=type(error).__name__,
                fix="see whether it was started (ray job list) before you try again",
            ) from None


@contextmanager
def _address_for_jobs(address: str) -> Iterator[None]:
    """Ray lets this variable win over the address it is given; here the address wins."""
    before = os.environ.get("RAY_API_SERVER_ADDRESS")
    os.environ["RAY_API_SERVER_ADDRESS"] = address
    try:
        yield
    finally:
        os.environ.pop("RAY_API_SERVER_ADDRESS")
        if before is not None:
            os.environ["RAY_API_SERVER_ADDRESS"] = before
