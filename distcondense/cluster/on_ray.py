"""The only module that imports ray: joining or starting a cluster, actors, tasks, metrics, jobs.

Thin on purpose. What is decided (which tile goes where, what happens when a worker dies) is in `dispatch.py`, what is
computed in `worker.py`; neither knows Ray. Token authentication is on, always: a cluster started here gets one.
"""

from __future__ import annotations

import os
import pickle
import re
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from distcondense import kernels
from distcondense.cluster.config import Cluster, check_store
from distcondense.cluster.dispatch import Came, Failed, Lost
from distcondense.cluster.worker import Hello, Shared, Worker
from distcondense.errors import ClusterError, DistcondenseWarning, UserError
from distcondense.models.jacobian import Batches, Tile

LOOPBACK = "127.0.0.1"
PROBE_SECONDS = 3.0  # for something to listen at an address
HANDSHAKE_SECONDS = 8.0  # for what listens there to answer as Ray does
THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # always one: with more a product may round otherwise


def _ray() -> Any:
    """ray, imported on first use."""
    late = "ray" in sys.modules and "RAY_AUTH_MODE" not in os.environ  # somebody imported it: it has read its variables
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray is about to make its default
    try:
        import ray
    except ImportError as error:
        raise ClusterError(
            "ray", "must be installed to run on a cluster", found=type(error).__name__, fix="pip install 'ray[default]'"
        ) from None
    if late and not ray.is_initialized():
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")  # read them again; else this process asks without a token, and the cluster never answers
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


@contextmanager
def connected(config: Cluster, *, cpus: int | None = None) -> Iterator[Session]:
    """A cluster for the length of a `with`: joined, or started on this machine (`cpus` cores) and then stopped."""
    fresh = config.starts_here
    if fresh:
        # before ray is imported: without it Ray would listen on every interface of this machine
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    ray = _ray()
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        warnings.warn(
            "RAY_AUTH_MODE is not 'token': anyone who can reach this cluster can run code on it",
            DistcondenseWarning,
            stacklevel=3,
        )
    if ray.is_initialized():  # the caller's own session: used, and left as it is
        session = _session(ray, started_here=False)
        if ":" in config.address and config.address != session.address:
            raise ClusterError(
                f"cluster {config.address}", "must be the one this process is connected to", found=session.address,
                fix="ray.shutdown() first, or leave the address out",
            )  # fmt: skip
        yield session
        return
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    try:
        if fresh:
            _start(ray, config, cpus)
        else:
            _join(ray, config)
        yield _session(ray, started_here=fresh)
    finally:
        ray.shutdown()
        ray_constants.ENABLE_RAY_CLUSTER = before  # the next one may be on other machines


def _start(ray: Any, config: Cluster, cpus: int | None) -> None:
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False  # the variable above, where ray was imported before it was set
    try:
        ray.init(
            address="local", num_cpus=cpus, include_dashboard=False, _node_ip_address=LOOPBACK, log_to_driver=False,
            logging_level="error", object_store_memory=config.object_store_memory, dashboard_host=LOOPBACK,
        )  # fmt: skip
    except ValueError as error:  # an object store below Ray's least size
        raise ClusterError(
            "cluster", "must be possible to start", found=_line(error), fix="raise object_store_memory"
        ) from None
    except ray.exceptions.AuthenticationError:
        raise ClusterError(
            "RAY_AUTH_TOKEN_PATH", "must name a file with a token", found="no file that can be read, or an empty one",
            fix="unset it: a cluster that is started here gets a token of its own",
        ) from None  # fmt: skip
    except (RuntimeError, OSError, ray.exceptions.RayError) as error:
        raise ClusterError(
            "cluster", "must be possible to start", found=_line(error),
            fix="look at the logs in /tmp/ray/session_latest",
        ) from None  # fmt: skip
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
            what, f"must run the versions of this program: {ours}", found=theirs,
            fix="install the cluster's versions here, or rebuild the cluster's image from constraints.txt",
        ) from None  # fmt: skip
    except (ConnectionError, ray.exceptions.RayError) as error:
        raise ClusterError(
            what, "must accept this machine as a driver", found=_line(error),
            fix="run on a node of the cluster (address 'auto' finds it), or submit a job (distcondense submit)",
        ) from None  # fmt: skip


def probe(config: Cluster) -> None:
    """Fail within seconds, where Ray itself would wait for minutes, if there is no such cluster or it refuses us."""
    ray, address = _ray(), config.joins
    what = f"cluster {address}"
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or address.startswith("ray://"):
        raise ClusterError(
            what, "must be HOST:PORT of a head node's GCS", found=repr(address), fix="HEAD:6379, 'local' or 'auto'"
        )
    try:
        socket.create_connection((host, int(port)), PROBE_SECONDS).close()
    except OSError as error:
        raise ClusterError(
            what, "must be reachable", found=f"nobody who listens there ({type(error).__name__})",
            fix="check the address (ray status on the head node), or leave it out to start a cluster here",
        ) from None  # fmt: skip
    from ray._raylet import AuthenticationTokenLoader, GcsClient  # type: ignore[attr-defined]

    try:
        known = AuthenticationTokenLoader.instance().has_token()
    except ray.exceptions.AuthenticationError:  # a path is said where there is no file
        known = False
    if not known:
        raise _no_token(what, "no token")
    answer: list[BaseException | None] = []

    def ask() -> None:
        try:
            GcsClient(address=address)
            answer.append(None)
        except Exception as error:
            answer.append(error)

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    asker.join(HANDSHAKE_SECONDS)
    if not answer:
        raise ClusterError(
            what, "must be a Ray cluster's GCS", found="something that does not answer as Ray does",
            fix="the GCS port is 6379 unless said otherwise; 8265 and 10001 are other services",
        )  # fmt: skip
    if isinstance(answer[0], ray.exceptions.AuthenticationError):
        raise _no_token(what, "a token it does not accept")
    if answer[0] is not None:
        raise ClusterError(what, "must answer", found=_line(answer[0]), fix="check the head node's logs")
    _keep_to_loopback(host, int(port))


def _keep_to_loopback(host: str, port: int) -> None:
    """Ray takes 127.0.0.1 for this machine's own address; where nobody listens at that, it would wait for minutes."""
    from ray._private import ray_constants, services

    seen = services.resolve_ip_for_localhost(host)
    if seen != host:
        try:
            socket.create_connection((seen, port), PROBE_SECONDS).close()
        except OSError:
            ray_constants.ENABLE_RAY_CLUSTER = False  # then it takes the address as it is


def _no_token(what: str, found: str) -> ClusterError:
    return ClusterError(
        what, "needs the cluster's token", found=found,
        fix="set RAY_AUTH_TOKEN_PATH to a file with the head node's token (there: ray get-auth-token)",
    )  # fmt: skip


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


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def cause_of(error: BaseException) -> str:
    """Why a worker is gone, in a few words; no path, no process number, nothing of what it computed."""
    ray = _ray()
    text = str(error)
    missing = re.search(r"No module named '([\w.]+)'", text)
    if missing:
        return f"package {missing[1]!r} is not installed on the worker"
    if isinstance(error, ray.exceptions.RuntimeEnvSetupError):
        return "its runtime environment could not be set up"
    if isinstance(error, ray.exceptions.OutOfMemoryError) or "running low on memory" in text:  # Ray's memory monitor
        return "out of memory"
    if isinstance(error, ray.exceptions.NodeDiedError) or "its node has died" in text:
        return "its node died"
    if "creation task" in text:  # the last line is the error's, and only its type is told
        kind = text.strip().splitlines()[-1].partition(":")[0].strip()
        return "out of memory" if kind == "MemoryError" else f"it could not load the model ({kind})"
    if isinstance(error, ray.exceptions.RayActorError | ray.exceptions.WorkerCrashedError):
        return "its process died (killed, out of memory, or a crash in native code)"
    return type(error).__name__


def _hopeless(error: BaseException) -> bool:
    """Starting again would end the same way: it never got as far as running."""
    ray = _ray()
    return isinstance(error, ray.exceptions.RuntimeEnvSetupError) or "No module named" in str(error)


def _environment(threads: int) -> dict[str, Any]:
    """What a worker's process starts with; the backend is part of a run's identity, and it must not choose another."""
    variables = dict.fromkeys(THREADS, str(threads)) | dict.fromkeys(BLAS_THREADS, "1")
    return {"env_vars": {**variables, "DISTCONDENSE_BACKEND": kernels.backend()}}


def _room(session: Session, who: str, cpus: float, *, gpus: float = 0, memory: float = 0) -> int:
    """How many actors or tasks that ask for this fit the cluster at once; an error where not one does."""
    gib = 2**30
    everything = ((cpus, session.cpus, "{:g} cores"), (gpus, session.gpus, "{:g} GPUs"),
                  (memory / gib, session.memory / gib, "{:.1f} GiB"))  # fmt: skip
    asked = [(need, have, words) for need, have, words in everything if need]
    room = min(int(have // need) for need, have, _ in asked)
    if room < 1:
        need = " and ".join(words.format(need) for need, _, words in asked)
        have = " and ".join(words.format(have) for _, have, words in asked)
        raise ClusterError(
            "cluster", f"must have {need} for one {who}", found=f"{have} in all", fix=f"ask for less per {who}"
        )
    return room


class _Actor(Worker):
    """A `Worker` in a process of its own.

    The model comes as bytes: unpickled from Ray's store its arrays would be read-only, which scikit-learn refuses.
    """

    def __init__(self, packed: bytes, *arguments: Any) -> None:
        self._refused: UserError | None = None
        try:
            super().__init__(pickle.loads(packed), *arguments)
            self._refuse_interpreter()
        except UserError as error:  # raised here, Ray would only say that the actor died
            self._refused = error

    def hello(self) -> Hello:
        if self._refused is not None:
            raise self._refused
        return replace(super().hello(), node=_ray().get_runtime_context().get_node_id())

    def _refuse_interpreter(self) -> None:
        """Compiled trees and Treelite's interpreter differ in last bits: a crew must not mix them."""
        if isinstance(self.way, Batches) and self.way.path == "compiled" and self.way._scores.engine is None:  # type: ignore[attr-defined]
            raise ClusterError(
                f"worker on {socket.gethostname()}", "must compile the trees, or its tiles would differ in their bits",
                found="no tl2cgen or no C compiler that works",
                fix="install both on every node, or use another path",
            )  # fmt: skip


class RayCrew:
    """Actors that each hold a `Worker`; the `Crew` of `dispatch.py`."""

    def __init__(self, session: Session, config: Cluster, model: Any, path: str) -> None:
        self._ray = _ray()
        self.config, self.path = config, path
        self.size = config.actors or 0
        if not self.size or session.started_here:  # a cluster that is joined may grow to what was said
            room = _room(session, "actor", config.num_cpus, gpus=config.num_gpus)
            self.size = self.size or room
        from ray import cloudpickle

        try:
            packed = cloudpickle.dumps(model)
        except Exception as error:  # a lock, a file, a connection: each has an error of its own
            raise ClusterError(
                "reference model", "must be one that can be pickled, to travel to the workers",
                found=type(error).__name__, fix="make what cannot travel in the function itself, or run without Ray",
            ) from None  # fmt: skip
        check_store(session.object_store, len(packed), "the model", "a smaller model")
        self._model = self._put(packed, "the model")  # once; restarted actors read it from there, too
        self._remote = self._ray.remote(_Actor)
        self._actors: list[Any] = [None] * self.size

    def raise_up(self, worker: int) -> Any:
        """A new actor in the place of `worker`; the ticket of its `hello`."""
        options = {"num_cpus": self.config.num_cpus, "num_gpus": self.config.num_gpus, "max_restarts": 0}
        actor = self._remote.options(
            **options, runtime_env=_environment(self.config.threads)
        ).remote(self._model, self.path, self.config.threads, self.config.num_gpus > 0)  # fmt: skip
        self._actors[worker] = actor
        return actor.hello.remote()

    def share(self, shared: Shared) -> Any:
        """X and the widths into the object store, once a step."""
        return self._put(shared, "the rows of a step")

    def _put(self, value: Any, what: str) -> Any:
        try:
            return self._ray.put(value)
        except self._ray.exceptions.ObjectStoreFullError:
            raise ClusterError(
                "object store", f"must hold {what}", found="a full object store",
                fix="give the nodes more object_store_memory, or use a smaller IPC or model",
            ) from None  # fmt: skip

    def calibrate(self, worker: int, shared: Any, tile: Tile) -> Any:
        return self._actors[worker].calibrate.remote(shared, tile)

    def start(self, worker: int, shared: Any, tile: Tile) -> Any:
        return self._actors[worker].tile.remote(shared, tile)

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[Came]:
        """What came back: answers, errors of the model, or the news that a worker is gone."""
        if not tickets:  # everybody is gone; Ray would return at once, and the caller spin
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(tickets), num_returns=len(tickets), timeout=0)
        if not ready:
            ready, _ = self._ray.wait(list(tickets), num_returns=1, timeout=seconds)
        return [Came(ticket, self._value(ticket)) for ticket in ready]

    def _value(self, ticket: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(ticket)
        except (errors.RayActorError, errors.WorkerCrashedError, errors.NodeDiedError, errors.RuntimeEnvSetupError,
                errors.OutOfMemoryError, errors.ObjectLostError, errors.RaySystemError) as error:  # fmt: skip
            return Lost(cause_of(error), hopeless=_hopeless(error))
        except errors.RayTaskError as error:
            cause = error.cause if isinstance(error.cause, BaseException) else error
            if isinstance(cause, MemoryError):
                return Lost("out of memory", hopeless=False)
            if isinstance(cause, ImportError):
                return Lost(cause_of(error), hopeless=True)
            return Failed(cause)

    def drop(self, worker: int) -> None:
        """End what is left of an actor."""
        if self._actors[worker] is not None:
            self._ray.kill(self._actors[worker], no_restart=True)
            self._actors[worker] = None

    def resources_free(self) -> str:
        free = self._ray.available_resources()
        return f"{free.get('CPU', 0):g} free cores and {free.get('GPU', 0):g} free GPUs"

    def close(self) -> None:
        for worker in range(self.size):
            self.drop(worker)


class Meters:
    """The run's gauges on Ray's dashboard (and its Prometheus endpoint)."""

    def __init__(self) -> None:
        _ray()
        from ray.util.metrics import Gauge

        def gauge(name: str, text: str, *tags: str) -> Any:
            return Gauge(f"distcondense_{name}", description=text, tag_keys=tags)

        self._gauges = {
            "steps_per_second": gauge("steps_per_second", "Steps of the loop per second."),
            "tiles_per_second": gauge("tiles_per_second", "Tiles of the Jacobian that came back per second."),
            "bytes_moved": gauge("bytes_moved", "Bytes through the object store since the run began."),
            "restarts": gauge("actor_restarts", "Actors started again since the run began."),
        }
        self._epsilon = gauge("epsilon", "Privacy spent so far; the tag says by which guarantee.", "guarantee")

    def set(self, facts: dict[str, float], epsilon: float | None, guarantee: str) -> None:
        for name, value in facts.items():
            if name in self._gauges:
                self._gauges[name].set(value)
        if epsilon is not None:
            self._epsilon.set(epsilon, tags={"guarantee": guarantee})


class TaskPool:
    """Functions as Ray tasks, a bounded number at once, each with the cores and the memory it is allowed."""

    def __init__(self, session: Session, *, at_once: int | None = None, num_cpus: float = 1, memory: int = 0) -> None:
        self._ray = _ray()
        room = _room(session, "task", num_cpus, memory=memory)
        self.at_once = min(room, at_once or room)
        self._options = {
            "num_cpus": num_cpus, "memory": memory or None, "max_retries": 0,
            "runtime_env": _environment(max(1, int(num_cpus))),
        }  # fmt: skip
        self._running: dict[Any, int] = {}

    def start(self, number: int, function: Callable[..., Any], *arguments: Any) -> None:
        self._running[self._ray.remote(function).options(**self._options).remote(*arguments)] = number

    def wait(self, seconds: float) -> list[tuple[int, Any]]:
        """What is finished, as (number, value) or (number, exception); waits up to `seconds` for the first."""
        if not self._running:
            return []
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=seconds)
        return [(self._running.pop(ticket), self._value(ticket)) for ticket in ready]

    def _value(self, ticket: Any) -> Any:
        try:
            return self._ray.get(ticket)
        except self._ray.exceptions.RayTaskError as error:
            cause = error.cause
            return cause if isinstance(cause, UserError) else ClusterError("task", "must end well", found=_kind(cause))
        except self._ray.exceptions.RayError as error:
            return ClusterError("task", "must end well", found=cause_of(error))

    def cancel(self) -> None:
        for ticket in self._running:
            self._ray.cancel(ticket, force=True)
        self._running.clear()


def _kind(error: Any) -> str:
    """An error's type only: its text may hold what it was computing on."""
    return type(error).__name__


# --- jobs

ANSWER_SECONDS = 60.0  # for an answer to anything but the first question; Ray's own client would wait for ever


def files_to_send(folder: str, excludes: Sequence[str], *, defaults: bool) -> list[str]:
    """The files of a folder that Ray would send with a job, by Ray's own walk.

    It follows links, and leaves out what .gitignore and .rayignore of the folder and its subfolders say, `excludes`,
    and with `defaults` (a working directory, not a module) .git, .venv, venv and __pycache__.
    """
    import logging
    from pathlib import Path

    _ray()
    from ray._private import ray_constants
    from ray._private.runtime_env.packaging import _dir_travel, _get_excludes

    found: list[str] = []

    def note(path: Path) -> None:
        if path.is_file():
            found.append(str(path))

    usual = ray_constants.get_runtime_env_default_excludes() if defaults else []
    root = Path(folder).absolute()
    _dir_travel(
        root, [_get_excludes(root, [*usual, *excludes])], note, logger=logging.getLogger(__name__),
        include_gitignore=os.environ.get(ray_constants.RAY_RUNTIME_ENV_IGNORE_GITIGNORE, "0") != "1",
    )  # fmt: skip
    return found


def job_client(address: str, token: str | None) -> RayJobs:
    """The jobs of the cluster whose dashboard is at a URL, or an error within seconds that says what is wrong there."""
    ray = _ray()
    what = f"cluster {address}"
    try:
        import aiohttp  # noqa: F401
        import requests
        from ray.job_submission import JobSubmissionClient
    except ImportError as error:
        raise ClusterError(
            "ray[default]", "must be installed to submit jobs", found=_line(error), fix="pip install 'ray[default]'"
        ) from None
    _hush()

    class Client(JobSubmissionClient):  # type: ignore[misc]
        patience = HANDSHAKE_SECONDS

        def _do_request(self, *arguments: Any, **options: Any) -> Any:
            return super()._do_request(*arguments, timeout=(PROBE_SECONDS, self.patience), **options)

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with _address_for_jobs(address):
            client = Client(address, headers=headers)
        theirs, mode = client._server_ray_version, client._do_request("GET", "/api/authentication_mode")
        asks = mode.status_code == 200 and mode.json()["authentication_mode"] == "token"
    except ray.exceptions.AuthenticationError:
        raise _no_token(what, "a token it does not accept" if token else "no token") from None
    except (ConnectionError, requests.exceptions.ConnectionError, requests.exceptions.InvalidURL) as error:
        cause = error.__context__ or error
        found = "no TLS that this machine trusts" if "SSL" in type(cause).__name__ else "nobody who answers"
        raise ClusterError(
            what, "must be reachable", found=found,
            fix="check the address, the tunnel (ray dashboard cluster.yaml, kubectl port-forward) and that Ray is up",
        ) from None  # fmt: skip
    except requests.exceptions.Timeout:
        raise ClusterError(
            what, "must answer", found=f"no answer in {HANDSHAKE_SECONDS:g} seconds", fix="check the address"
        ) from None
    except (RuntimeError, ValueError, KeyError, TypeError, requests.exceptions.RequestException) as error:
        ancient = re.search(r"Ray version (\S+) is running", str(error))  # older than Ray's own client takes
        if not ancient:
            raise ClusterError(
                what, "must be a Ray dashboard", found="something that does not answer as Ray does",
                fix="the dashboard's port is 8265 unless said otherwise; 6379 and 10001 are other services",
            ) from None  # fmt: skip
        theirs = ancient[1]
    if theirs.split(".")[:2] != ray.__version__.split(".")[:2]:
        raise ClusterError(
            what, f"must run the Ray of this program: {ray.__version__}", found=f"Ray {theirs}",
            fix=f"pip install 'ray[default]=={theirs}' here, or rebuild the cluster's image from constraints.txt",
        )  # fmt: skip
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
    """A cluster's jobs, over its dashboard; the `JobClient` of `submit.py`."""

    def __init__(self, client: Any, what: str) -> None:
        self._client, self._what = client, what

    def submit(self, command: str, runtime_env: dict[str, Any], cpus: float) -> str:
        try:
            name = self._client.submit_job(
                entrypoint=command, runtime_env=runtime_env, entrypoint_num_cpus=cpus or None
            )
        except (ValueError, TypeError) as error:  # said by Ray on this side, before anything was sent
            raise ClusterError(
                "runtime env", "must be one that Ray takes", found=_line(error), fix="see cluster/runtime_env.yaml"
            ) from None
        except (RuntimeError, _ray().exceptions.RayError) as error:  # the head's answer; its last line is the reason
            reason = str(error).strip().splitlines()[-1:]
            raise ClusterError(
                self._what, "must take the job", found="".join(reason)[:200], fix="check the runtime env file"
            ) from None
        except OSError as error:  # every error of requests is one
            raise ClusterError(
                self._what, "must stay reachable", found=type(error).__name__,
                fix="see whether it was started (ray job list) before you try again",
            ) from None  # fmt: skip
        return str(name)

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
        except (RuntimeError, OSError, _ray().exceptions.RayError) as error:
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


def _hush() -> None:
    """Ray's client tells of every package and closed socket; what people need to know is said by `submit`."""
    import logging

    for name in ("ray.dashboard.modules.job.sdk", "ray.dashboard.modules.dashboard_sdk"):
        logging.getLogger(name).setLevel(logging.ERROR)
