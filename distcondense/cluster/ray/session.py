"""Joining a Ray cluster, or starting one on this machine; token authentication is on, always."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from distcondense.cluster.config import Cluster
from distcondense.errors import ClusterError, DistcondenseWarning

LOOPBACK = "127.0.0.1"
_joined_as: dict[str, str] = {}  # the address of this process's session → how it was asked for
PROBE_SECONDS = 5.0  # for something to listen at an address
START_SECONDS = 300  # for the processes of a cluster that is started here; on an idle machine they take three
HANDSHAKE_SECONDS = 20.0  # for what listens there to answer as Ray does; a busy head node takes seconds


def load_ray() -> Any:
    """ray, imported on first use."""
    late = "ray" in sys.modules and "RAY_AUTH_MODE" not in os.environ  # somebody imported it: it has read its variables
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_metrics_report_interval_ms", "2000")  # a short run is over before Ray's ten seconds
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray is about to make its default
    try:
        import ray
    except ImportError as error:
        raise ClusterError(
            "ray", "must be installed to run on a cluster", found=type(error).__name__, fix="pip install 'ray[default]'"
        ) from None
    if late and not ray.is_initialized():
        from distcondense.cluster.ray._ray_private import read_variables_again

        read_variables_again()  # else this process asks without a token, and the cluster never answers
    return ray


@dataclass(frozen=True)
class Session:
    """A connection to a cluster."""

    address: str
    started_here: bool
    cpus: float
    gpus: float
    memory: float  # bytes that tasks may ask for
    object_store: float  # bytes, of the smallest node
    nodes: int

    def __str__(self) -> str:
        where = "started here" if self.started_here else "joined"
        gpus = f", {self.gpus:g} GPUs" if self.gpus else ""
        return f"Ray cluster {where} at {self.address}: {self.nodes} nodes, {self.cpus:g} cores{gpus}"

    def places(self, who: str, cpus: float, *, gpus: float = 0, memory: float = 0) -> int:
        """How many actors or tasks that ask for this fit the cluster at once; an error where not one does."""
        gib = 2**30
        everything = (
            (cpus, self.cpus, "{:g} cores"),
            (gpus, self.gpus, "{:g} GPUs"),
            (memory / gib, self.memory / gib, "{:.1f} GiB"),
        )
        needed = [(need, have, words) for need, have, words in everything if need]
        places = min(int(have // need) for need, have, _ in needed)
        if places < 1:
            need = " and ".join(words.format(need) for need, _, words in needed)
            have = " and ".join(words.format(have) for _, have, words in needed)
            raise ClusterError(
                "cluster", f"must have {need} for one {who}", found=f"{have} in all", fix=f"ask for less per {who}"
            )
        return places


@contextmanager
def connected(config: Cluster, *, cpus: int | None = None) -> Iterator[Session]:
    """A cluster for the length of a `with`: joined, or started on this machine and then stopped.

    One that is started here has `cpus` cores, else what its actors take where their number is said, else all.
    """
    fresh = config.starts_here
    if fresh:
        # before ray is imported: without it Ray would listen on every interface of this machine
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    ray = load_ray()
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        warnings.warn(
            "RAY_AUTH_MODE is not 'token': anyone who can reach this cluster can run code on it",
            DistcondenseWarning,
            stacklevel=3,
        )
    if ray.is_initialized():  # the caller's own session, or one of ours around this: used, and left as it is
        session = _session(ray, started_here=False)
        if ":" in config.address and config.address not in (session.address, _joined_as.get(session.address)):
            raise ClusterError(
                f"cluster {config.address}",
                "must be the one this process is connected to",
                found=session.address,
                fix="ray.shutdown() first, or leave the address out",
            )
        yield session
        return
    from distcondense.cluster.ray._ray_private import address_flag_restored

    with address_flag_restored(), _own_sigterm() as restore:
        try:
            if fresh:
                _start(ray, config, cpus or config.cores_of_actors)
            else:
                _join(ray, config)
            restore()
            session = _session(ray, started_here=fresh)
            _joined_as[session.address] = config.address
            yield session
        finally:
            _joined_as.clear()
            ray.shutdown()


@contextmanager
def _own_sigterm() -> Iterator[Callable[[], None]]:
    """Ray takes SIGTERM for itself, and ends with a code of its own: whoever listened to it before gets it back."""
    before = signal.getsignal(signal.SIGTERM)

    def restore() -> None:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)

    try:
        yield restore
    finally:
        restore()


def _start(ray: Any, config: Cluster, cpus: int | None) -> None:
    from distcondense.cluster.ray import _ray_private

    _ray_private.take_addresses_as_they_are()
    try:
        with _ray_private.patient_start(START_SECONDS):
            ray.init(
                address="local",
                num_cpus=cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="error",
                object_store_memory=config.object_store_memory,
                dashboard_host=LOOPBACK,
                **_ray_private.node_address(LOOPBACK),
            )
    except ValueError as error:  # an object store below Ray's least size
        raise ClusterError(
            "cluster", "must be possible to start", found=first_line(error), fix="raise object_store_memory"
        ) from None
    except ray.exceptions.AuthenticationError:
        raise ClusterError(
            "RAY_AUTH_TOKEN_PATH",
            "must name a file with a token",
            found="no file that can be read, or an empty one",
            fix="unset it: a cluster that is started here gets a token of its own",
        ) from None
    except Exception as error:  # a node that died or did not come up in time is one without a type of its own
        if not isinstance(error, RuntimeError | OSError | ray.exceptions.RayError) and "timed out" not in str(error):
            raise
        raise ClusterError(
            "cluster",
            "must be possible to start",
            found=first_line(error),
            fix="look at the logs in /tmp/ray/session_latest (raylet.out), and at how busy this machine is",
        ) from None
    if not any(os.environ.get(name) for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")):
        with suppress(OSError):  # Ray writes the token it makes for everybody on this machine to read
            os.chmod(os.path.expanduser("~/.ray/auth_token"), 0o600)


def _join(ray: Any, config: Cluster) -> None:
    probe(config)
    what = f"cluster {config.joins}"
    try:
        ray.init(address=config.joins, log_to_driver=False, logging_level="error")
    except RuntimeError as error:
        if "Version mismatch" not in str(error):
            raise
        pairs = re.findall(r"(Ray|Python): (\S+)", str(error))
        theirs, ours = (", ".join(" ".join(pair) for pair in part) for part in (pairs[:2], pairs[2:]))
        raise ClusterError(
            what,
            f"must run the versions of this program: {ours}",
            found=theirs,
            fix="install the cluster's versions here, or rebuild the cluster's image from constraints.txt",
        ) from None
    except (ConnectionError, ray.exceptions.RayError) as error:
        raise ClusterError(
            what,
            "must accept this machine as a driver",
            found=first_line(error),
            fix="run on a node of the cluster (address 'auto' finds it), or submit a job (distcondense submit)",
        ) from None


def probe(config: Cluster) -> None:
    """Fail within seconds, where Ray itself would wait for minutes, if there is no such cluster or it refuses us."""
    ray, address = load_ray(), config.joins
    what = f"cluster {address}"
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or address.startswith("ray://"):
        raise ClusterError(
            what, "must be HOST:PORT of a head node's GCS", found=repr(address), fix="HEAD:6379, 'local' or 'auto'"
        )
    if (problem := _why_nobody_listens(host, int(port))) is not None:
        raise ClusterError(
            what,
            "must be reachable",
            found=f"nobody who listens there ({problem})",
            fix="check the address (ray status on the head node), or leave it out to start a cluster here",
        )
    from distcondense.cluster.ray._ray_private import as_ray_sees, has_token, take_addresses_as_they_are

    try:
        known = has_token()
    except ray.exceptions.AuthenticationError:  # a path is said where there is no file
        known = False
    if not known:
        raise no_token(what, "no token")
    _greet(ray, what, address)
    seen = as_ray_sees(host)  # where nobody listens at that, Ray would wait for minutes
    if seen != host and _why_nobody_listens(seen, int(port)) is not None:
        take_addresses_as_they_are()


def _why_nobody_listens(host: str, port: int) -> str | None:
    try:
        socket.create_connection((host, port), PROBE_SECONDS).close()
    except OSError as error:
        return type(error).__name__
    return None


def _greet(ray: Any, what: str, address: str) -> None:
    """Whether a cluster's GCS is there and takes our token; asked in a thread, as what is not Ray never answers."""
    from distcondense.cluster.ray._ray_private import greet_gcs

    answer: list[BaseException | None] = []

    def ask() -> None:
        try:
            greet_gcs(address)
            answer.append(None)
        except Exception as error:
            answer.append(error)

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    asker.join(HANDSHAKE_SECONDS)
    if not answer:
        raise ClusterError(
            what,
            "must be a Ray cluster's GCS",
            found="something that does not answer as Ray does",
            fix="the GCS port is 6379 unless said otherwise; 8265 and 10001 are other services",
        )
    if isinstance(answer[0], ray.exceptions.AuthenticationError):
        raise no_token(what, "a token it does not accept")
    if answer[0] is not None:
        raise ClusterError(what, "must answer", found=first_line(answer[0]), fix="check the head node's logs")


def no_token(what: str, found: str) -> ClusterError:
    """The error of a cluster that asks for a token we do not have."""
    return ClusterError(
        what,
        "needs the cluster's token",
        found=found,
        fix="set RAY_AUTH_TOKEN_PATH to a file with the head node's token (there: ray get-auth-token)",
    )


def _session(ray: Any, *, started_here: bool) -> Session:
    all_of = ray.cluster_resources()
    alive = [node for node in ray.nodes() if node["alive"]]
    return Session(
        address=ray.get_runtime_context().gcs_address,
        started_here=started_here,
        cpus=all_of.get("CPU", 0.0),
        gpus=all_of.get("GPU", 0.0),
        memory=all_of.get("memory", 0.0),
        object_store=min((node["Resources"].get("object_store_memory", 0.0) for node in alive), default=0.0),
        nodes=len(alive),
    )


def first_line(error: BaseException) -> str:
    """What an error of Ray says, without the pages that follow."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
