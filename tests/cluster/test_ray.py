"""Ray: the same bits on any number of actors and nodes, and when actors, nodes and drivers are killed."""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
import xgboost
from ray.cluster_utils import Cluster as RayCluster
from sklearn.neural_network import MLPClassifier

import distcondense as dc
from distcondense.cluster.config import IN_A_JOB
from distcondense.cluster.executors import LocalExecutor, RayExecutor, executor_for
from distcondense.cluster.ray import gauges, session
from distcondense.cluster.ray.actors import TileActor
from distcondense.cluster.ray.session import connected
from distcondense.cluster.worker import Identity
from distcondense.errors import ClusterError, DistcondenseWarning, ModelError
from distcondense.kernels import cuda
from distcondense.methods.zero_order.engine import State
from distcondense.models.base import BlackBox
from distcondense.models.trees import tree_model
from distcondense.runs.checkpoint import Checkpoint
from tests import loops
from tests.cluster import ray_matrix
from tests.conftest import SMALL_SCHEMA, small_frame
from tests.nodes import HANG, NODE, two_nodes
from tests.shell import refused

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayCluster]:
    """Tests join and leave it."""
    with two_nodes(num_gpus=1) as cluster:  # said, not there
        yield cluster


def on(nodes: RayCluster, actors: int, **more: Any) -> RayExecutor:
    patient = {"backoff": 0.0, "start_timeout": HANG}
    return RayExecutor(dc.Cluster(address=nodes.address, actors=actors, **{**patient, **more}))


def identities(executor: RayExecutor) -> list[Identity]:
    """Of the workers that are up."""
    return [member.identity for member in executor._dispatcher.pool.members if member.identity is not None]


NAMED = re.compile(r"ray_distcondense_\w+")

# The one place that knows the names of a method and its options; one thread, as two wait for each other on busy cores.
METHOD = {"method": "published", "epsilon": 2.5, "ipc": 10, "steps": 8, "evaluate_every": 4, "path": "blocked"}
NOISELESS = ["--method", "published", "--no-noise", "--ipc", 10, "--steps", 2, "--path", "blocked", "--threads", 1]
COHORT = {"target": "died", "ignore": ["months", "event"]}


def condense(call: Any, *more: Any) -> Any:
    """A small run of the command line, in this process."""
    small_frame().to_csv("cohort.csv", index=False)
    Path("schema.toml").write_text(SMALL_SCHEMA.to_toml())
    return call(
        "condense",
        "cohort.csv",
        "--schema",
        "schema.toml",
        "--target",
        "died",
        "--ignore",
        "months",
        "--ignore",
        "event",
        *NOISELESS,
        *more,
    )


@pytest.fixture(scope="module")
def undisturbed() -> loops.Ran:
    return loops.run(LocalExecutor(1), loops.smooth())


@pytest.fixture(scope="module")
def boosted() -> Any:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, loops.COLUMNS)).astype(np.float32)
    model = xgboost.XGBClassifier(n_estimators=20, max_depth=3, n_jobs=1, random_state=0)
    return tree_model(model.fit(rows, rows[:, 0] + rows[:, 1] * rows[:, 2] > 0))


@pytest.fixture(scope="module")
def perceptron() -> BlackBox:
    """Products of matrices: a BLAS rounds a row by the shape of its batch and the number of its threads."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, loops.COLUMNS))
    model = MLPClassifier((50,), max_iter=20, random_state=0, early_stopping=True).fit(rows, rows[:, 0] > 0)
    return BlackBox(lambda some: model.predict_proba(some)[:, 1], "probability", loops.COLUMNS)


# ---------------------------------------------------------------------------------------------- the same bits


@pytest.mark.parametrize("actors", [1, 3])
def test_any_number_of_actors_on_two_nodes_gives_the_bits_of_one_thread(nodes, undisturbed, actors):
    assert loops.run(LocalExecutor(2), loops.smooth()) == undisturbed
    executor, priorities = on(nodes, actors), set[int]()

    def look(step: int) -> None:
        priorities.update(os.getpriority(os.PRIO_PROCESS, who.pid) for who in identities(executor))

    assert loops.run(executor, loops.smooth(), at_step=look) == undisturbed
    assert priorities == {os.getpriority(os.PRIO_PROCESS, 0)}  # at Ray's own they would starve on a busy machine
    facts = executor.facts()
    assert (facts["executor"], facts["actors"], facts["nodes"], facts["restarts"]) == ("ray", actors, 2, 0)
    assert facts["tiles"] >= loops.STEPS
    assert facts["bytes_moved"] > loops.STEPS * loops.ROWS * loops.COLUMNS * 4


@pytest.mark.parametrize(("path", "actors"), [("compiled", 2), ("blocked", 1), ("structured", 1), ("naive", 1)])
def test_every_path_of_a_tree_model_gives_the_same_bits_through_ray(nodes, boosted, path, actors):
    assert loops.run(on(nodes, actors), boosted, path) == loops.run(LocalExecutor(1), boosted, path)


def test_a_model_made_of_matrix_products_gives_the_same_bits_too(nodes, perceptron):
    one = loops.run(LocalExecutor(1), perceptron)
    assert loops.run(LocalExecutor(2), perceptron) == one
    assert loops.run(on(nodes, 2), perceptron) == one


@pytest.mark.filterwarnings("ignore:the noise of this ε is louder")  # of so few steps
def test_a_tree_model_is_condensed_in_process_and_no_cluster_is_started_or_joined(boosted, tmp_path, monkeypatch):
    """From the command's Cluster down to the loop: which path a run takes is known before Ray is touched."""
    monkeypatch.setattr(session, "connected", lambda *given: pytest.fail("a cluster was started or joined"))
    executor = executor_for(boosted, "auto", dc.Cluster(address="local", actors=1))
    assert loops.run(executor, boosted) == loops.run(LocalExecutor(1), boosted)
    small_frame().to_csv(tmp_path / "cohort.csv", index=False)
    cohort = dc.Cohort.from_file(tmp_path / "cohort.csv", schema=SMALL_SCHEMA, **COHORT)
    trees = {**METHOD, "path": "auto", "steps": 2}
    dc.condense(cohort, out=tmp_path / "run", threads=1, cluster=dc.Cluster(), **trees)
    assert not ray.is_initialized()
    assert "the loop stays in process, and Ray is not used" in (tmp_path / "run/internal/log.txt").read_text()
    execution = json.loads((tmp_path / "run/internal/run.json").read_text())["execution"]
    assert execution["executor"] == "in-process"


def test_the_command_line_starts_a_cluster_of_its_own_and_gives_the_result_of_a_run_without(call, tmp_path):
    assert condense(call, "--out", "here").code == 0
    answer = condense(call, "--out", "there", "--ray", "--actors", 2)
    assert answer.code == 0, answer.err
    assert "Ray cluster started here at 127.0.0.1" in answer.err
    assert not ray.is_initialized()
    here, there = (Path(run, "release/condensed.csv").read_bytes() for run in ("here", "there"))
    assert here == there
    execution = json.loads(Path("there/internal/run.json").read_text())["execution"]
    assert execution["executor"] == "ray"
    assert {"steps_per_second", "tiles_per_second", "bytes_moved", "restarts"} <= set(execution)


# ---------------------------------------------------------------------------------------------- who dies, who stalls


def test_an_actor_killed_in_the_middle_of_a_step_changes_nothing(nodes, undisturbed, tmp_path):
    fuse, executor = tmp_path / "fuse", on(nodes, 2)
    ran = loops.run(executor, loops.smooth(fuse), at_step=lambda step: fuse.touch() if step == 2 else None)
    assert not fuse.exists()
    assert ran == undisturbed
    facts = executor.facts()
    assert facts["workers_lost"] == ["its process died (killed, out of memory, or a crash in native code)"]


def test_an_actor_killed_between_two_steps_comes_back(nodes, undisturbed):
    executor = on(nodes, 1)  # the only one: without it nothing goes on

    def kill(step: int) -> None:
        if step == 2:
            os.kill(identities(executor)[0].pid, signal.SIGKILL)

    assert loops.run(executor, loops.smooth(), at_step=kill) == undisturbed
    assert executor.facts()["restarts"] == 1


def test_a_whole_node_killed_changes_nothing(nodes, undisturbed):
    victim = nodes.add_node(**NODE, num_cpus=2)
    executor, before = on(nodes, 3, num_cpus=2), []  # as many as there are nodes, one on each

    def kill(step: int) -> None:
        if step == 2:
            before.extend(who.node for who in identities(executor))
            nodes.remove_node(victim, allow_graceful=False)
            for who in identities(executor):  # they would notice by themselves, in a while
                if who.node == victim.node_id:
                    with suppress(ProcessLookupError):
                        os.kill(who.pid, signal.SIGKILL)

    assert loops.run(executor, loops.smooth(), at_step=kill) == undisturbed
    assert victim.node_id in before  # it had work
    facts = executor.facts()  # the others may be done before Ray knows that the node is gone
    assert facts["workers_lost"] or facts["tiles_computed_twice"]


def ask_until_gone(process: int) -> None:
    while True:
        os.kill(process, 0)


def test_a_stalled_actor_is_relieved_and_the_step_finishes(nodes, undisturbed):
    executor, stopped = on(nodes, 2), []

    def stop(step: int) -> None:
        if step == 2:
            stopped.append(identities(executor)[0].pid)
            os.kill(stopped[0], signal.SIGSTOP)

    assert loops.run(executor, loops.smooth(), at_step=stop) == undisturbed
    assert executor.facts()["tiles_computed_twice"] >= 1
    with pytest.raises(ProcessLookupError):  # a stopped process goes with its run, too
        ask_until_gone(stopped[0])


def test_an_actor_that_dies_for_ever_ends_the_run_with_its_cause(nodes):
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ClusterError, match=r"lost 2 times in a row: its process died"):
        loops.run(on(nodes, 1, max_restarts=1), always(die))


def test_a_worker_out_of_memory_is_named_as_that(nodes):
    def fill() -> None:
        raise MemoryError

    with pytest.raises(ClusterError, match=r"out of memory.*more memory"):
        loops.run(on(nodes, 1, max_restarts=0), always(fill))


def test_a_package_missing_on_a_worker_is_named_at_once(nodes, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def scores(rows):\n    return rows[:, 0] * 0 + 0.5\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    with on(nodes, 1) as executor:
        (tmp_path / "only_here.py").unlink()  # workers are told where the driver looks for modules
        rows = np.zeros((loops.ROWS, loops.COLUMNS), np.float32)
        with pytest.raises(ClusterError, match=r"package 'only_here' is not installed.*runtime_env"):
            executor.open(BlackBox(only_here.scores, "probability", loops.COLUMNS), "auto", rows, rows[0] + 1)


def test_an_error_of_the_model_is_the_error_of_the_run(nodes):
    def half(rows: Any) -> Any:
        return rows[: len(rows) // 2, 0]

    with pytest.raises(ModelError, match="one score per row"):
        loops.run(on(nodes, 1), BlackBox(half, "probability", loops.COLUMNS))


def always(blow: Any) -> BlackBox:
    """A black box that blows up on every worker, always."""
    driver = os.getpid()

    def scores(rows: Any) -> Any:
        if os.getpid() != driver:
            blow()
        return 1 / (1 + np.exp(-rows[:, 0]))

    return BlackBox(scores, "probability", loops.COLUMNS)


# ---------------------------------------------------------------------------------------------- the driver dies

DRIVER = """
import json, os, signal, sys
import distcondense as dc
from distcondense.methods.zero_order import engine
from distcondense.runs.checkpoint import Checkpoint

address, dies, resume = sys.argv[1], sys.argv[2], sys.argv[3] == "resume"
cohort, options = map(json.loads, sys.argv[4:])
engine.CHECKPOINT_SECONDS = engine.CHECKPOINT_SHARE = 0.0
save = Checkpoint.save

def save_or_die(self, arrays, facts):
    if dies == f"between ledger and checkpoint {facts['step']}":
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, arrays, facts)

def progress(*, step, **_):
    if dies == f"after step {step}":
        os.kill(os.getpid(), signal.SIGKILL)

Checkpoint.save = save_or_die
table = dc.Cohort.from_file("cohort.csv", schema=dc.Schema.from_toml("schema.toml"), **cohort)
dc.condense(table, out="run", progress=progress, threads=1, resume=resume,
            cluster=dc.Cluster(address=address, actors=1, start_timeout=600), **options)
"""


def drive(folder: Path, *arguments: str) -> int:
    """A run in a process of its own, which may be killed: `address, when it dies, "fresh" or "resume"`."""
    said = [*arguments, json.dumps(COHORT), json.dumps(METHOD)]
    how = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": str(ROOT)}, "timeout": HANG}
    return subprocess.run([sys.executable, "-c", DRIVER, *said], check=False, **how).returncode


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_driver_killed_twice_resumes_to_the_undisturbed_result(nodes, tmp_path, monkeypatch):
    """Once after a step, once between the record of a step and the checkpoint of its state."""
    out = tmp_path / "run"
    small_frame().to_csv(tmp_path / "cohort.csv", index=False)
    (tmp_path / "schema.toml").write_text(SMALL_SCHEMA.to_toml())
    checkpoint = Checkpoint(out / "internal/checkpoint.npz")
    for dies, how, known, recorded in (
        ("after step 3", "fresh", 3, 3),
        ("between ledger and checkpoint 6", "resume", 5, 6),  # never behind the state
    ):
        assert drive(tmp_path, nodes.address, dies, how) == -signal.SIGKILL
        state, _ = State.load(checkpoint)
        assert (state.step, len(lines(out / "internal/steps.jsonl"))) == (known, recorded)
    monkeypatch.chdir(tmp_path)
    cohort = dc.Cohort.from_file("cohort.csv", schema=SMALL_SCHEMA, **COHORT)
    there = dc.Cluster(address=nodes.address, actors=1, start_timeout=HANG)
    dc.condense(cohort, out="run", threads=1, resume=True, cluster=there, **METHOD)
    assert not checkpoint.path.exists()  # and with it the noise key
    assert str(state.noise_key).encode() not in b"".join(p.read_bytes() for p in out.rglob("*") if p.is_file())

    whole = dc.condense(cohort, threads=1, noise_key=state.noise_key, **METHOD)
    pd.testing.assert_frame_equal(
        pd.read_parquet(out / "release/condensed.parquet"), whole.frame, check_exact=True, check_dtype=False
    )
    released = json.loads((out / "release/privacy.json").read_text())
    assert released["ledger"] == whole.privacy.to_dict()["ledger"]
    assert [entry["step"] for entry in lines(out / "internal/steps.jsonl")] == list(range(8))
    assert sum(entry["count"] for entry in released["ledger"]) == 8


# ---------------------------------------------------------------------------------------------- what cannot work


def test_an_address_where_nobody_listens_is_refused(call):
    refused(condense(call, "--ray", "127.0.0.1:1"), "cluster 127.0.0.1:1", "nobody who listens there")
    assert not Path("run").exists()


@pytest.mark.parametrize("address", ["nonsense", "ray://127.0.0.1:10001", "127.0.0.1"])
def test_what_is_no_address_is_refused(call, address):
    refused(condense(call, "--ray", address), "must be HOST:PORT", repr(address))


def test_a_port_of_something_else_is_refused(call, monkeypatch):
    monkeypatch.setattr("distcondense.cluster.ray.session.HANDSHAKE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = "{}:{}".format(*server.getsockname())
        refused(condense(call, "--ray", address), "does not answer as Ray does")


def test_a_node_that_does_not_come_up_is_said(monkeypatch):
    def init(**_: Any) -> None:
        raise Exception("The current node timed out during startup. This could happen because …")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(ClusterError, match="timed out during startup"), connected(dc.Cluster(address="local")):
        pass


def test_options_of_actors_without_ray_are_refused(call):
    refused(condense(call, "--actors", 2), "--actors", "no --ray")


def shell(folder: Path, before: str, address: str, **variables: str) -> Any:
    """The command line in a process of its own: Ray reads a token, and its own version, only once."""
    code = f"import sys; {before}; from distcondense import cli; sys.argv = ['distcondense', *sys.argv[1:]]; cli.main()"
    (folder / "cohort.csv").write_text(small_frame().to_csv(index=False))
    how = ["condense", "cohort.csv", "--target", "died", *map(str, NOISELESS), "--ray", address]
    return python(folder, code, *how, **variables)


def python(folder: Path, code: str, *arguments: str, **variables: str) -> Any:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )


@pytest.mark.parametrize(("token", "found"), [("f" * 64, "a token it does not accept"), (None, "no token")])
def test_a_wrong_or_missing_token_is_refused_with_the_way_to_get_one(nodes, tmp_path, token, found):
    path = tmp_path / "token"
    if token:
        path.write_text(token)
    answer = shell(tmp_path, "pass", nodes.address, RAY_AUTH_TOKEN_PATH=str(path))
    assert answer.returncode == 2, answer.stderr
    assert f"Found {found}" in answer.stderr
    assert "RAY_AUTH_TOKEN_PATH" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_cluster_of_another_version_is_refused_with_both_versions(nodes, tmp_path):
    answer = shell(tmp_path, "import ray; ray.__version__ = '2.1.0'", nodes.address)
    assert answer.returncode == 2, answer.stderr
    assert f"Found Ray {ray.__version__}" in answer.stderr
    assert "this program: Ray 2.1.0" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_an_object_store_too_small_for_a_step_is_refused_before_the_first_one(nodes):
    rows = np.zeros((4000, 3000), np.float32)  # 46 MiB, twice, and as much again of answers: 80 MiB are too few
    with on(nodes, 1) as executor, pytest.raises(ClusterError, match=r"object store: must hold 137 MiB"):
        executor.open(BlackBox(lambda some: some[:, 0], "probability", 3000), "auto", rows, rows[0] + 1)


def test_more_per_actor_than_the_cluster_has_is_refused(nodes):
    rows = np.zeros((10, 3), np.float32)
    with RayExecutor(dc.Cluster(address=nodes.address, num_gpus=2)) as executor:  # noqa: SIM117
        with pytest.raises(ClusterError, match=r"2 GPUs for one actor.*1 GPUs in all"):
            executor.open(BlackBox(lambda some: some[:, 0], "probability", 3), "auto", rows, rows[0] + 1)


def test_no_room_for_a_worker_is_said_with_what_is_free(nodes):
    rows = np.zeros((10, 3), np.float32)
    executor = on(nodes, 1, num_gpus=1, start_timeout=1)
    with connected(executor.config), executor:
        holder = ray.remote(num_cpus=0, num_gpus=1)(threading.Event).remote()  # of the only GPU
        ray.get(holder.is_set.remote())
        with pytest.raises(ClusterError, match=r"room for one worker within 1 s\. Found \d free cores and 0 free GPUs"):
            executor.open(BlackBox(lambda some: some[:, 0], "probability", 3), "auto", rows, rows[0] + 1)


def test_a_worker_that_is_slow_to_start_is_waited_for(nodes, tmp_path, monkeypatch):
    """Its model loads only when the driver has said that it is patient."""
    gate, said = tmp_path / "gate", list[str]()
    os.mkfifo(gate)

    class Slow:  # inside a function, so that it travels by value
        def __call__(self, rows: Any) -> Any:
            return rows[:, 0] * 0 + 0.5

        def __setstate__(self, state: Any) -> None:
            with open(state) as waits:
                waits.read()

        def __getstate__(self) -> Any:
            return str(gate)

    def log(line: str) -> None:
        said.append(line)
        if "are starting" in line:
            gate.write_text("go")

    rows = np.zeros((10, 3), np.float32)
    monkeypatch.setattr("distcondense.cluster.pool.PATIENCE", HANG / 3)
    with on(nodes, 1, start_timeout=3) as executor:
        executor.log = log
        executor.open(BlackBox(Slow(), "probability", 3), "auto", rows, rows[0] + 1)
        assert not executor.jacobian(rows, rows[0] + 1).any()
    assert "too few workers are up after 3 s; 1 have their cores and are starting" in said


def test_a_model_that_cannot_travel_is_refused(nodes):
    lock = threading.Lock()

    def scores(rows: Any) -> Any:
        with lock:
            return rows[:, 0] * 0 + 0.5

    with pytest.raises(ClusterError, match="reference model: must be one that can be pickled"):
        loops.run(on(nodes, 1), BlackBox(scores, "probability", loops.COLUMNS))


def test_a_worker_that_would_interpret_what_others_compile_is_refused(boosted, tmp_path, monkeypatch):
    monkeypatch.setattr("distcondense.models.compiled.find_toolchain", lambda: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.warns(DistcondenseWarning, match="interpreter"):
        actor = TileActor(pickle.dumps(boosted), "compiled", 1, False)
    with pytest.raises(ClusterError, match="must compile the trees"):
        actor.identity()


def test_a_program_that_imported_ray_before_us_joins_a_loopback_cluster(nodes, tmp_path):
    """Without the variable the tests set: Ray would look for the cluster at this machine's own address, for minutes."""
    code = """
import os, sys
del os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"], os.environ["RAY_AUTH_MODE"]
import ray
from distcondense import Cluster
from distcondense.cluster.ray.session import connected
with connected(Cluster(address=sys.argv[1])) as session:
    print(session)
"""
    answer = python(tmp_path, code, nodes.address)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(f"Ray cluster joined at {nodes.address}: ")


def test_a_second_node_on_the_loopback_cannot_be_started_by_rays_command(tmp_path):
    """The variable that keeps every port on 127.0.0.1 makes `ray start --address` refuse; without it Ray looks for the
    head at this machine's other address, where nobody listens."""
    code = "import sys, ray.scripts.scripts as s; sys.argv[0] = 'ray'; s.main()"
    how = ["start", "--address=127.0.0.1:1", "--node-ip-address=127.0.0.1"]
    answer = python(tmp_path, code, *how, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    assert answer.returncode != 0
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" in answer.stdout + answer.stderr
    code = "from distcondense.cluster.ray._ray_private import as_ray_sees; print(as_ray_sees('127.0.0.1'))"
    answer = python(tmp_path, code, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="1")
    alone = socket.gethostbyname(socket.gethostname()).startswith("127.")
    assert answer.stdout.strip() != "127.0.0.1" or alone


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not tell who listens where")
def test_a_cluster_that_we_start_listens_on_the_loopback_alone(tmp_path):
    """Every port of every process of it, those of its metrics among them, without the variable the tests set."""
    code = """
import json, os, sys
from pathlib import Path
del os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"]
from distcondense import Cluster
from distcondense.cluster.ray.session import connected

def family():
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found

def listening():
    sockets = set()
    for pid in family():
        for one in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                sockets.add(os.readlink(one))
            except OSError:
                pass
    text = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    lines = [line.split() for line in text.splitlines() if "local_address" not in line]
    where = [line[1].split(":") for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets]
    return [(host, int(port, 16)) for host, port in where]

with connected(Cluster(address="local", object_store_memory=80 * 2**20)) as session:
    import ray
    ray.get(ray.remote(lambda: 1).remote())
    metrics, where = {node["MetricsExportPort"] for node in ray.nodes()}, []
    while not metrics <= {port for _, port in where}:  # until the agent listens there: it starts last
        where = listening()
    print(json.dumps(sorted({host for host, _ in where})))
"""
    answer = python(tmp_path, code)
    assert answer.returncode == 0, answer.stderr
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 in both tables, as the system writes it
    hosts = set(json.loads(answer.stdout.splitlines()[-1]))
    assert hosts
    assert hosts <= loopback


@pytest.mark.skipif(cuda.why_not() is None, reason="this machine has a GPU")
@pytest.mark.parametrize("where", ["local", "joined"])
def test_a_gpu_that_is_not_there_is_told_before_a_table_is_read(call, nodes, where):
    address = "" if where == "local" else nodes.address
    arguments = ["--method", "published", "--no-noise", "--ray", *([address] if address else []), "--num-gpus", "9"]
    answer = call("condense", "nowhere.csv", "--target", "died", *arguments)
    refused(answer, "num_gpus" if where == "local" else "9 GPUs for one actor")
    assert "nowhere.csv" not in answer.err


@pytest.mark.skipif(cuda.why_not() is None, reason="this machine has a GPU")
def test_an_actor_whose_gpu_cannot_be_used_says_why_at_once(nodes, boosted):
    with pytest.raises(ClusterError, match=r"GPU of .*: must be usable"):
        loops.run(on(nodes, 1, num_gpus=1), boosted, "structured")


# ---------------------------------------------------------------------------------------------- what is seen


def read(address: str) -> str:
    """A page; nothing of an agent that is not up yet, or does not answer."""
    with suppress(OSError), urllib.request.urlopen(address, timeout=10) as answer:
        return str(answer.read().decode())
    return ""


def test_the_run_is_on_rays_metrics_with_the_name_of_its_guarantee(nodes, undisturbed):
    executor, pages = on(nodes, 1), []
    spent = undisturbed.history[-1]["epsilon_as_published"]

    def look(step: int) -> None:
        if step == loops.STEPS:
            ports = [node["MetricsExportPort"] for node in ray.nodes() if node["alive"]]
            late = time.monotonic() + HANG
            while time.monotonic() < late:  # until the agent has got them: it collects twice a second
                pages[:] = [read(f"http://127.0.0.1:{port}/metrics") for port in ports]
                if any(line.endswith(f" {spent}") for page in pages for line in page.splitlines()):
                    break

    loops.run(executor, loops.smooth(), at_step=look)
    lines = [line for page in pages for line in page.splitlines() if "distcondense_" in line and line[0] != "#"]
    for name in ("steps_per_second", "tiles_per_second", "bytes_moved", "actor_restarts", "epsilon"):
        assert any(name in line for line in lines), name
    epsilon = [line for line in lines if "distcondense_epsilon" in line]
    assert all('guarantee="as-published"' in line for line in epsilon)
    assert any(line.endswith(f" {spent}") for line in epsilon)


@pytest.mark.filterwarnings("ignore:the noise of this ε is louder")  # of so few steps
@pytest.mark.parametrize("kind", ["trees in process", "black box on actors", "private"])
@pytest.mark.parametrize("way", ["joined", "a job"])
def test_every_kind_of_run_is_on_a_nodes_prometheus_port(nodes, tmp_path, monkeypatch, kind, way):
    """Whatever computes it: its step, of how many, and for how long, by the run's name and phase."""
    if way == "a job" and kind != "private":
        pytest.skip("one kind is enough")
    pages: list[str] = []
    path = "blocked" if kind == "black box on actors" else "auto"
    how = {"epsilon": 8.0, "ipc": 2} if kind == "private" else {**METHOD, "path": path, "steps": 2}
    cluster = dc.Cluster(address=nodes.address, actors=1, start_timeout=HANG)
    if way == "a job":
        monkeypatch.setenv(IN_A_JOB, "{}")
        monkeypatch.setattr("distcondense.cluster.ray.gauges.Cluster", lambda address: cluster)

    def look(*, step: int, steps: int, doing: str = "", **facts: Any) -> None:
        late = time.monotonic() + HANG
        while not pages and time.monotonic() < late:  # once: until an agent has got them
            ports = [node["MetricsExportPort"] for node in ray.nodes() if node["alive"]]
            found = [read(f"http://127.0.0.1:{port}/metrics") for port in ports]
            pages.extend(page for page in found if "distcondense_run_seconds{" in page)

    schema = dc.Schema((*SMALL_SCHEMA.columns, dc.Column("died", "binary", categories=(0, 1))))
    cohort = dc.Cohort.from_frame(small_frame(), schema=schema, **COHORT)
    given = cluster if way == "joined" else None
    dc.condense(cohort, out=tmp_path / "ward", threads=1, cluster=given, progress=look, **how)
    lines = [line for page in pages for line in page.splitlines() if "distcondense_run_" in line and line[0] != "#"]
    assert {name for name in gauges.RUN if any(name + "{" in line for line in lines)} == set(gauges.RUN)
    assert all('run="ward"' in line and 'doing="' in line for line in lines)
    assert not ray.is_initialized()


def test_the_dashboard_shows_every_gauge_and_no_other():
    """cluster/grafana.json is made for Prometheus as it scrapes a node."""
    board = json.loads((ROOT / "cluster/grafana.json").read_text(encoding="utf-8"))
    asked = {name for panel in board["panels"] for target in panel["targets"] for name in NAMED.findall(target["expr"])}
    tables = (gauges.RUN, gauges.TILES, gauges.EPSILON, gauges.ROWS, gauges.STUDY_CELLS, gauges.STUDY_TIME)
    assert asked == {f"ray_distcondense_{name}" for table in tables for name in table}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        shown = any("epsilon" in target["expr"] for target in panel["targets"])
        assert not shown or all("{{guarantee}}" in target["legendFormat"] for target in panel["targets"])


# ---------------------------------------------------------------------------------------------- what is private to Ray

PRIVATE = "distcondense/cluster/ray/_ray_private.py"
ALLOWED = {PRIVATE, "tests/cluster/test_submit.py"}  # the second: Ray's own check of cluster.yaml


def private_names(path: Path) -> set[str]:
    """Private modules of ray that a file imports; in the room of Ray also private attributes, methods and options."""
    found, room = set[str](), path.parent.name == "ray"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = list[str]()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        found |= {name for name in names if name.split(".")[0] == "ray" and "._" in name}
        if room and isinstance(node, ast.Attribute) and getattr(node.value, "id", "") != "self":
            found |= {ast.unparse(node)} if node.attr.startswith("_") and not node.attr.endswith("__") else set()
        if room and isinstance(node, ast.keyword) and (node.arg or "").startswith("_"):
            found.add(str(node.arg))
    return found


def test_what_is_private_to_ray_is_used_in_one_file_only():
    files = [path for room in ("distcondense", "benchmarks", "tests") for path in (ROOT / room).rglob("*.py")]
    using = {str(path.relative_to(ROOT)) for path in files if private_names(path)}
    assert using == ALLOWED


@pytest.mark.parametrize(
    "line",
    [
        "import ray._private.state",
        "from ray._private import state",
        "from ray.autoscaler import _private",
        "client._do_request(1)",
        "ray.init(_node_ip_address=1)",
    ],
)
def test_a_private_name_of_ray_would_be_noticed(tmp_path, line):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/file.py").write_text(line)
    assert private_names(tmp_path / "ray/file.py")


def test_every_private_name_has_a_test_that_guards_it():
    """`make ray-matrix` runs these with other releases."""
    tests = "".join((ROOT / file).read_text(encoding="utf-8") for file in ray_matrix.FILES)
    table = (ROOT / PRIVATE).read_text(encoding="utf-8").partition("import inspect")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith(("| names", "| ---"))]
    assert len(ray_matrix.guards()) == len(rows) > 6
    assert [guard for guard in ray_matrix.guards() if f"def {guard}" not in tests] == []
    used = private_modules((ROOT / PRIVATE).read_text(encoding="utf-8"))
    assert [name for name in used if name not in table] == []


def private_modules(text: str) -> set[str]:
    """What a file imports from Ray's private modules."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ray") and "_" in (node.module or ""):
            found |= {alias.name for alias in node.names} - {"services", "ray_constants", "state"}
    return found - {"DEFAULT_DASHBOARD_AGENT_LISTEN_PORT"}


def test_the_newest_releases_are_the_last_of_each_minor_version():
    listed = ["2.9.0", "2.60.0", "2.61.0rc0", "2.60.1", "3.0.0", "2.59.3"]
    assert ray_matrix.newest(listed, 3) == ["3.0.0", "2.60.1", "2.59.3"]


def test_rays_version_is_bounded_to_the_tested_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (asked,) = [line for line in project["dependencies"] if line.startswith("ray")]
    (tested,) = re.findall(r"^ray==(\d+)\.(\d+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    major, minor = map(int, tested)
    assert asked == f"ray[default]>={major}.{minor},<{major}.{minor + 1}"
    assert ray.__version__.startswith(f"{major}.{minor}.")
