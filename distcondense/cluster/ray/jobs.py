"""A cluster's jobs, over its dashboard: what `submit.py` talks to."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from distcondense.cluster.ray.session import HANDSHAKE_SECONDS, PROBE_SECONDS, first_line, load_ray, no_token
from distcondense.errors import ClusterError, DistcondenseWarning

ANSWER_SECONDS = 60.0  # for an answer to anything but the first question; Ray's own client would wait for ever
AGENT_SECONDS = 300.0  # for a head that has just started: its dashboard answers before it can take jobs


def files_to_send(folder: str, excludes: Sequence[str], *, defaults: bool) -> list[str]:
    """The files of a folder that Ray would send with a job; `defaults` also leaves out .git, .venv and the like."""
    load_ray()
    from distcondense.cluster.ray import _ray_private

    return _ray_private.files_to_send(folder, excludes, defaults=defaults)


def job_client(address: str, token: str | None, *, handshake: float = HANDSHAKE_SECONDS) -> RayJobs:
    """The jobs of the cluster whose dashboard is at a URL, or an error within seconds that says what is wrong there.

    `handshake` are the seconds that it has for its first answers.
    """
    ray = load_ray()
    what = f"cluster {address}"
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
    from distcondense.cluster.ray import _ray_private

    _ray_private.silence_client()
    kind = _ray_private.patient_client(JobSubmissionClient, connect=PROBE_SECONDS, answer=handshake)
    try:
        with _address_for_jobs(address):
            client = kind(address, headers={"Authorization": f"Bearer {token}"} if token else {})
        theirs, asks = _ray_private.version_at(client), _ray_private.asks_for_token(client)
    except ray.exceptions.AuthenticationError:
        raise no_token(what, "a token it does not accept" if token else "no token") from None
    except (ConnectionError, requests.exceptions.ConnectionError, requests.exceptions.InvalidURL) as error:
        cause = error.__context__ or error
        found = "no TLS that this machine trusts" if "SSL" in type(cause).__name__ else "nobody who answers"
        raise ClusterError(
            what,
            "must be reachable",
            found=found,
            fix="check the address, the tunnel (ray dashboard cluster.yaml, kubectl port-forward) and that Ray is up",
        ) from None
    except requests.exceptions.Timeout:
        raise ClusterError(
            what, "must answer", found=f"no answer in {handshake:g} seconds", fix="check the address"
        ) from None
    except (RuntimeError, ValueError, KeyError, TypeError, requests.exceptions.RequestException) as error:
        ancient = re.search(r"Ray version (\S+) is running", str(error))  # older than Ray's own client takes
        if not ancient:
            raise ClusterError(
                what,
                "must be a Ray dashboard",
                found="something that does not answer as Ray does",
                fix="the dashboard's port is 8265 unless said otherwise; 6379 and 10001 are other services",
            ) from None
        theirs = ancient[1]
    if theirs.split(".")[:2] != ray.__version__.split(".")[:2]:
        raise ClusterError(
            what,
            f"must run the Ray of this program: {ray.__version__}",
            found=f"Ray {theirs}",
            fix=f"pip install 'ray[default]=={theirs}' here, or rebuild the cluster's image from constraints.txt",
        )
    if not asks:
        warnings.warn(
            f"{what} asks for no token: anyone who can reach it can run code on it and read its data; start it with "
            "RAY_AUTH_MODE=token",
            DistcondenseWarning,
            stacklevel=4,
        )
    client.patience = ANSWER_SECONDS
    return RayJobs(client, what)


class RayJobs:
    """A cluster's jobs; the `JobClient` of `submit.py`."""

    def __init__(self, client: Any, what: str) -> None:
        self._client, self._what = client, what

    def submit(self, command: str, runtime_env: dict[str, Any], cpus: float) -> str:
        try:
            return str(self._submitted(entrypoint=command, runtime_env=runtime_env, entrypoint_num_cpus=cpus or None))
        except ClusterError:
            raise
        except (ValueError, TypeError) as error:  # said by Ray on this side, before anything was sent
            raise ClusterError(
                "runtime env", "must be one that Ray takes", found=first_line(error), fix="see cluster/runtime_env.yaml"
            ) from None
        except (RuntimeError, load_ray().exceptions.RayError) as error:  # the head's; its last line is the reason
            reason = str(error).strip().splitlines()[-1:]
            raise ClusterError(
                self._what, "must take the job", found="".join(reason)[:200], fix="check the runtime env file"
            ) from None
        except OSError as error:  # every error of requests is one
            raise ClusterError(
                self._what,
                "must stay reachable",
                found=type(error).__name__,
                fix="see whether it was started (ray job list) before you try again",
            ) from None

    def _submitted(self, **job: Any) -> Any:
        """Ask until the head can take jobs: it says that it cannot yet, and then it has started nothing."""
        from distcondense.cluster.ray import _ray_private

        latest = time.monotonic() + AGENT_SECONDS
        while True:
            try:
                return self._client.submit_job(**job)
            except RuntimeError as error:
                if not _ray_private.without_agent(error):
                    raise
            if time.monotonic() > latest:  # the head itself has waited for each answer
                raise ClusterError(
                    self._what,
                    "must take the job",
                    found=f"a head whose job agent was not up in {AGENT_SECONDS:g} s",
                    fix="see dashboard_agent.log among Ray's logs on the head",
                )

    def show_logs(self, job: str, show: Callable[[str], None]) -> None:
        import asyncio

        import aiohttp

        async def tail() -> None:
            async for chunk in self._client.tail_job_logs(job):
                show(chunk)

        try:
            asyncio.run(tail())
        except (RuntimeError, aiohttp.ClientError, OSError) as error:
            raise ConnectionError(type(error).__name__) from None

    def state(self, job: str) -> tuple[str, str, int | None]:
        try:
            info = self._client.get_job_info(job)
        except (RuntimeError, OSError, load_ray().exceptions.RayError) as error:
            raise ConnectionError(type(error).__name__) from None
        return str(getattr(info.status, "value", info.status)), info.message or "", info.driver_exit_code


@contextmanager
def _address_for_jobs(address: str) -> Iterator[None]:
    """Ray lets this variable win over the address it is given; here the address wins."""
    before = os.environ.get("RAY_API_SERVER_ADDRESS")
    os.environ["RAY_API_SERVER_ADDRESS"] = address
    try:
        yield
    finally:
        if before is None:
            del os.environ["RAY_API_SERVER_ADDRESS"]
        else:
            os.environ["RAY_API_SERVER_ADDRESS"] = before
