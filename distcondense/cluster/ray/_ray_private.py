"""Every name that Ray keeps to itself and we need nonetheless, each behind one function that says what for.

| names of Ray | used for | guarded by |
| --- | --- | --- |
| `_raylet.Config` | ray was imported before its variables were set | `test_a_program_that_imported_ray_before_us` |
| `_raylet.AuthenticationTokenLoader`, `_raylet.GcsClient` | wrong tokens | `test_a_wrong_or_missing_token` |
| `ray_constants.ENABLE_RAY_CLUSTER`, `_node_ip_address` | 127.0.0.1 | `test_a_cluster_that_we_start_listens` |
| `services.resolve_ip_for_localhost` | where Ray would look for it | `test_a_second_node_on_the_loopback` |
| `services.start_raylet`, `services.get_node` | a node may take its time | `test_any_number_of_actors` |
| `_raylet.persist_port` | ports of its agents are there before it | `test_a_node_that_does_not_come_up` |
| `state.actors` | actors that start are told from those without room | `test_a_worker_that_is_slow_to_start` |
| `worker.global_worker`, `autoscaler.v2.sdk` | what is asked for and not there | `test_no_room_for_a_worker` |
| `packaging._dir_travel`, `packaging._get_excludes` | what would be sent | `test_ignored_and_excluded_tables` |
| variable `RAY_JOB_CONFIG_JSON_ENV_VAR` (`cluster/config.py`) | a job's own | `test_a_real_job_runs_the_code` |

Names with an underscore may change with any release: pyproject.toml bounds Ray to the versions this file was tested
with, `make ray-matrix` tries the newest ones by the tests above, and a test sees to it that no other file does. Call
`session.load_ray` first: ray reads its variables when it is first imported.
"""

from __future__ import annotations

import inspect
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

# ---- variables, addresses and tokens


def read_variables_again() -> None:
    """Ray reads RAY_AUTH_MODE when it is imported; where it was imported before the variable was set, once more."""
    from ray._raylet import Config  # type: ignore[attr-defined]

    Config.initialize("")


@contextmanager
def address_flag_restored() -> Iterator[None]:
    """Undo `take_addresses_as_they_are` at the end: the next cluster may be on other machines."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def take_addresses_as_they_are() -> None:
    """Ray then leaves 127.0.0.1 as it is, as if RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 had been set before its import."""
    from ray._private import ray_constants

    ray_constants.ENABLE_RAY_CLUSTER = False


def as_ray_sees(host: str) -> str:
    """The address that Ray would use for `host`: of the loopback it makes this machine's own address."""
    from ray._private import services

    return str(services.resolve_ip_for_localhost(host))


def node_address(address: str) -> dict[str, str]:
    """The option of `ray.init` that makes a new cluster listen at `address` only."""
    return {"_node_ip_address": address}


def has_token() -> bool:
    """Whether Ray finds a token to show; AuthenticationError where a path is said and there is no file."""
    from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

    return bool(AuthenticationTokenLoader.instance().has_token())


def greet_gcs(address: str) -> None:
    """Connect to a head node's GCS and no more; an error of Ray if it refuses, and no end if it is not Ray."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    GcsClient(address=address)


# ---- starting a node on a busy machine


@contextmanager
def patient_start(seconds: int) -> Iterator[None]:
    """Nodes that are started on this machine within the `with` may take their time, unless they die.

    Ray gives up after 15 or 30 seconds, however busy the machine is. Its raylet even ends itself where the two agents
    of its node have not written their ports into files 15 seconds after it began (Ray's issue 65983, open). So the
    ports are chosen, and the files are there, before it begins. Workers run at this program's own priority: at Ray's
    (niceness 15) four busy processes leave them a thirtieth of a core, and an actor takes minutes to come up.
    """
    from ray._private import services

    start, get = services.start_raylet, services.get_node
    raylets: list[Any] = []

    @wraps(start)
    def start_raylet(*arguments: Any, **options: Any) -> Any:
        given = inspect.signature(start).bind(*arguments, **options)
        _write_ports(given.arguments)
        raylets.append(start(*given.args, **given.kwargs))
        return raylets[-1]

    def get_node(*arguments: Any) -> Any:
        latest = time.monotonic() + seconds
        while True:
            try:
                return get(*arguments)
            except RuntimeError:  # it is not known yet
                dead = raylets and raylets[-1].process.poll() is not None
                if dead or time.monotonic() > latest:
                    raise
            time.sleep(0.1)

    variables = {  # read by the processes of a node when they start
        "RAY_gcs_server_port_wait_time_s": seconds,
        "RAY_worker_register_timeout_seconds": seconds,
        "RAY_agent_register_timeout_ms": 1000 * seconds,
        "RAY_worker_niceness": 0,
    }
    ours = {name: str(value) for name, value in variables.items() if name not in os.environ}
    os.environ.update(ours)
    services.start_raylet, services.get_node = start_raylet, get_node
    try:
        yield
    finally:
        services.start_raylet, services.get_node = start, get
        for name in ours:
            del os.environ[name]


def _write_ports(options: dict[str, Any]) -> None:
    """A free port for each of a node's agents, in `options` of `start_raylet` and in the file the raylet looks for.

    Also in place of the one number that Ray has for the jobs' agent: of two nodes on a machine the later one would
    find it taken, stay up, and never take a job.
    """
    from ray import _raylet
    from ray._private.ray_constants import DEFAULT_DASHBOARD_AGENT_LISTEN_PORT

    raylet: Any = _raylet  # its stubs know little of it
    files = {
        "metrics_agent_port": raylet.METRICS_AGENT_PORT_NAME,
        "metrics_export_port": raylet.METRICS_EXPORT_PORT_NAME,
        "dashboard_agent_listen_port": raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
        "runtime_env_agent_port": raylet.RUNTIME_ENV_AGENT_PORT_NAME,
    }
    with ExitStack() as held:  # all at once, so that they differ
        for name, file in files.items():
            free = held.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            if options.get(name) in (None, 0, DEFAULT_DASHBOARD_AGENT_LISTEN_PORT):
                options[name] = free.getsockname()[1]
            raylet.persist_port(options["session_dir"], options["node_id"], file, options[name])


# ---- actors that are not up yet


def has_process(actor: Any) -> bool:
    """Whether an actor has a process: Ray calls it pending both while it waits for room and while it is starting."""
    from ray._private import state

    return bool(state.actors(actor_id=actor._actor_id.hex()).get("Pid"))


def waiting_for_room(resources: Mapping[str, float]) -> int:
    """How many requests for exactly these resources wait for a node that has them free, of all jobs together."""
    from ray._private.worker import global_worker
    from ray.autoscaler.v2.sdk import get_cluster_resource_state

    pending = get_cluster_resource_state(global_worker.gcs_client).pending_resource_requests
    return sum(entry.count for entry in pending if dict(entry.request.resources_bundle) == dict(resources))


# ---- jobs


def files_to_send(folder: Path, excludes: Sequence[str], *, defaults: bool) -> list[Path]:
    """The files of a folder that Ray would send with a job, by Ray's own walk.

    It follows links, and leaves out what .gitignore and .rayignore of the folder and its subfolders say, `excludes`,
    and with `defaults` (a working directory, not a module) .git, .venv, venv and __pycache__.
    """
    from ray._private import ray_constants
    from ray._private.runtime_env.packaging import _dir_travel, _get_excludes

    paths: list[Path] = []
    usual = ray_constants.get_runtime_env_default_excludes() if defaults else []
    root = folder.absolute()
    _dir_travel(
        root,
        [_get_excludes(root, [*usual, *excludes])],
        paths.append,
        logger=logging.getLogger(__name__),
        include_gitignore=os.environ.get(ray_constants.RAY_RUNTIME_ENV_IGNORE_GITIGNORE, "0") != "1",
    )
    return [path for path in paths if path.is_file()]
