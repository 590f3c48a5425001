"""Tiles and executors: whoever computes which part of a Jacobian, the bits are the same; and what a run writes first.

Also here, as small as they are: the cluster's settings, errors that travel, the record of steps, `--ray` with or
without an address, and XGBoost's GPU prediction as far as it can be asked for without a GPU.
"""

from __future__ import annotations

import inspect
import json
import os
import pickle
import sys
import threading
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import ray
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_info, threadpool_limits

from distcondense import Cluster, errors, kernels
from distcondense import jacobian as jacobian_function
from distcondense.arrays import Index, Matrix
from distcondense.cli.common import with_address
from distcondense.cluster import executors
from distcondense.cluster.config import check_store
from distcondense.cluster.executors import LocalExecutor, RayExecutor, executor_for, why_in_process
from distcondense.cluster.plan import Grid
from distcondense.cluster.ray import session
from distcondense.cluster.worker import Shared, TileResult, TileWorker, versions
from distcondense.errors import ClusterError, ModelError, SettingsError, UserError
from distcondense.kernels import cuda
from distcondense.kernels.random import normals
from distcondense.kernels.update import NoiseRule
from distcondense.methods.published.options import PublishedOptions
from distcondense.methods.zero_order import engine
from distcondense.methods.zero_order.engine import Problem, RealScores, ReferenceLoss, optimise, seed_key
from distcondense.methods.zero_order.objectives import Composite, bce
from distcondense.models import compiled
from distcondense.models.base import BlackBox, Model
from distcondense.models.jacobian import BatchTiler, Tile, WalkTiler, make_tiler, on_gpu
from distcondense.models.trees import TreeModel, tree_model
from distcondense.privacy.steps import StepAccountant, StepRecord
from distcondense.runs.checkpoint import Checkpoint
from tests import naive

TRAIN, ROWS, COLUMNS = 300, 145, 30
HANG = 600.0  # seconds: for what hangs, not for what is slow


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    kernels.backend()  # built once, in the cache of everybody
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def table(seed: int = 0, rows: int = ROWS) -> Shared:
    rng = np.random.default_rng(seed)
    X = naive.grid_rows(rng, rows, COLUMNS)
    X.flags.writeable = False  # as out of an object store
    return Shared(X, naive.grid_steps(rng, COLUMNS))


def training() -> tuple[Matrix, Index]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(TRAIN, COLUMNS)).astype(np.float32)
    return X, (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=TRAIN) > 0).astype(np.int64)


def trees() -> TreeModel:
    X, y = training()
    X = np.round(X * 4) / np.float32(4)  # thresholds are hit exactly
    return tree_model(
        xgboost.train(
            {"objective": "binary:logistic", "max_depth": 4, "nthread": 1}, xgboost.DMatrix(X, label=y, nthread=1), 12
        )
    )


def through_blas(kind: str) -> Model:
    made = {
        "perceptron": MLPClassifier((24,), max_iter=15, random_state=0, early_stopping=False, tol=0),
        "logistic": LogisticRegression(max_iter=50),
    }[kind]
    with pytest.warns() if kind == "perceptron" else nullcontext():
        made.fit(*training())
    return BlackBox(lambda rows: made.predict_proba(rows)[:, 1], "probability", COLUMNS, kind)


WAYS = [
    ("trees", "blocked"),
    ("trees", "compiled"),
    ("trees", "naive"),
    ("trees", "structured"),
    ("perceptron", "blocked"),
    ("perceptron", "naive"),
    ("logistic", "blocked"),
]
_MODELS: dict[str, Model] = {}


def model_of(kind: str) -> Model:
    if kind not in _MODELS:
        _MODELS[kind] = trees() if kind == "trees" else through_blas(kind)
    return _MODELS[kind]


@pytest.fixture(params=["wide", "striped"])
def batches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Batches of all rows and a few columns, or of 12 rows and one column, the last stripe of a single row."""
    if request.param == "striped":
        monkeypatch.setattr(sys.modules["distcondense.models.jacobian"], "TILE_BYTES", 2 * COLUMNS * 4 * 12)
    return str(request.param)


def whole(way: BatchTiler | WalkTiler, shared: Shared) -> Matrix:
    """J computed as one tile, with one thread in a BLAS, as the contract says."""
    J, all_of_it = np.zeros(shared.X.shape, np.float32), Tile(0, len(shared.X), 0, len(way.columns))
    with threadpool_limits(1, user_api="blas"):
        way.place(J, all_of_it, way.tile(shared.X, shared.widths, all_of_it))  # type: ignore[arg-type]
    return J


# ---- tiles


@pytest.mark.parametrize(("kind", "path"), WAYS)
def test_any_tile_plan_gives_the_bits_of_the_whole(kind: str, path: Any, batches: str) -> None:
    model, shared = model_of(kind), table()
    way = make_tiler(model, path)
    grid = Grid(ROWS, len(way.columns), *way.grid(ROWS))
    assert grid.units > 2
    expected = whole(way, shared)
    assert np.count_nonzero(expected) > ROWS
    workers = [TileWorker(model, path), TileWorker(model, path)]

    @given(st.sets(st.integers(1, grid.units - 1), max_size=6), st.integers(0, 2**32))
    @settings(max_examples=8 if path == "naive" else 12)
    def check(cuts: set[int], seed: int) -> None:
        ends, order = sorted({0, *cuts, grid.units}), Random(seed)
        tiles = [tile for a, b in pairwise(ends) for _, tile in grid.tiles(a, b)]
        order.shuffle(tiles)
        J = np.zeros(shared.X.shape, np.float32)
        for tile in tiles:
            way.place(J, tile, order.choice(workers).tile(shared, tile).value)
        assert J.tobytes() == expected.tobytes()

    with threadpool_limits(1, user_api="blas"):
        check()


@pytest.mark.parametrize(("kind", "path"), WAYS)
def test_more_threads_give_the_same_bits(kind: str, path: Any, batches: str) -> None:
    model, shared = model_of(kind), table()
    expected = whole(make_tiler(model, path), shared)
    for threads in (1, 2, 3):
        with LocalExecutor(threads) as executor:
            executor.open(model, path, shared.X, shared.widths)
            assert executor.fuses == (path == "structured")
            for _ in range(2):
                assert executor.jacobian(shared.X, shared.widths).tobytes() == expected.tobytes()
            assert executor.facts() == {"executor": "in-process", "threads": threads}


@pytest.mark.parametrize(("kind", "path"), [way for way in WAYS if way[1] != "structured"])
def test_tiles_are_the_jacobian(kind: str, path: Any, batches: str) -> None:
    """A BLAS may round a row otherwise in a batch of another shape; trees may not."""
    model, shared = model_of(kind), table()
    one = jacobian_function(model, shared.X, shared.widths, path)
    found = whole(make_tiler(model, path), shared)
    if kind == "trees":
        assert found.tobytes() == one.tobytes()  # type: ignore[union-attr]
    else:
        np.testing.assert_allclose(found * shared.widths, one * shared.widths, atol=1e-6)  # type: ignore[operator]


@pytest.mark.parametrize("rows", [1, 63, 64, 65])
def test_a_table_of_any_height_is_cut_into_whole_batches(rows: int, batches: str) -> None:
    for kind, path in WAYS[:4]:
        way, shared = make_tiler(model_of(kind), path), table(rows=rows)  # type: ignore[arg-type]
        height, width = way.grid(rows)
        assert 1 <= height <= rows
        assert width >= 1
        with LocalExecutor(2) as executor:
            executor.open(model_of(kind), path, shared.X, shared.widths)  # type: ignore[arg-type]
            assert executor.jacobian(shared.X, shared.widths).tobytes() == whole(way, shared).tobytes()


def test_a_model_that_tests_no_feature_has_a_jacobian_of_zeros() -> None:
    X, _ = training()
    stump = tree_model(xgboost.train({"nthread": 1}, xgboost.DMatrix(X, label=np.ones(TRAIN), nthread=1), 1))
    shared = table()
    for path in ("structured", "compiled", "blocked"):
        with LocalExecutor(2) as executor:
            executor.open(stump, path, shared.X, shared.widths)
            assert not executor.jacobian(shared.X, shared.widths).any()
        way = make_tiler(stump, path)
        grid = Grid(ROWS, max(len(way.columns), 1), *way.grid(ROWS))  # as the dispatcher sees it
        J = np.zeros(shared.X.shape, np.float32)
        for _, tile in grid.tiles(0, grid.units):
            way.place(J, tile, TileWorker(stump, path).tile(shared, tile).value)
        assert not J.any()


# ---- the executor of this process


def test_two_threads_call_a_black_box_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=HANG)
    seen = set[int]()

    def meet(rows: Matrix) -> Matrix:
        if threading.get_ident() not in seen:
            seen.add(threading.get_ident())
            both.wait()
        return rows.sum(axis=1)

    shared = table()
    with LocalExecutor(2) as executor:
        executor.open(BlackBox(meet, "log-risk", COLUMNS), "auto", shared.X, shared.widths)
        executor.jacobian(shared.X, shared.widths)
    assert len(seen) == 2
    assert threading.get_ident() not in seen


def test_a_blas_has_one_thread_while_the_executor_is_open_and_its_own_number_afterwards() -> None:
    def of_blas() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    within = list[list[int]]()

    def watch(rows: Matrix) -> Matrix:
        within.append(of_blas())
        return rows.sum(axis=1)

    shared = table(rows=5)
    with threadpool_limits(2, user_api="blas"):
        with LocalExecutor(2) as executor:
            executor.open(BlackBox(watch, "log-risk", COLUMNS), "blocked", shared.X, shared.widths)
            executor.jacobian(shared.X, shared.widths)
        assert set(of_blas()) == {2}
    assert {count for counts in within for count in counts} == {1}


def test_an_error_of_the_model_comes_out_of_a_thread_as_it_is() -> None:
    shared = table()
    with LocalExecutor(2) as executor:
        executor.open(BlackBox(lambda rows: rows[:, 0] * np.nan, "log-risk", COLUMNS), "auto", shared.X, shared.widths)
        with pytest.raises(ModelError, match="finite scores"):
            executor.jacobian(shared.X, shared.widths)


def line() -> Any:
    """A linear score that is never asked for one."""

    class Line:
        name, link, n_features = "line", "log-risk", COLUMNS
        coefficients = np.linspace(-1, 1, COLUMNS)

        def scores(self, rows: Matrix) -> Matrix:
            raise AssertionError("not needed")

    return Line()


def test_a_linear_score_stays_in_closed_form() -> None:
    shared = table()
    with LocalExecutor(2) as executor:
        executor.open(line(), "auto", shared.X, shared.widths)
        J = executor.jacobian(shared.X, shared.widths)
    np.testing.assert_array_equal(J, np.tile(line().coefficients.astype(np.float32), (ROWS, 1)))
    with pytest.raises(SettingsError, match="needs a tree ensemble"):
        make_tiler(line(), "structured")


def test_the_executor_is_ray_only_where_a_cluster_is_said() -> None:
    assert isinstance(executor_for(model_of("logistic"), "auto", None, threads=3), LocalExecutor)
    there = executor_for(model_of("logistic"), "auto", Cluster(actors=2), threads=3)
    assert isinstance(there, RayExecutor)  # not opened: nothing is started


def test_trees_and_linear_scores_start_no_cluster_and_the_log_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has structure stays in process: that is known before Ray is touched."""
    monkeypatch.setattr(session, "connected", lambda *given: pytest.fail("a cluster was started or joined"))
    shared, lines = table(), list[str]()
    for model, reason in ((model_of("trees"), "faster than messages"), (line(), "closed form")):
        with executor_for(model, "auto", Cluster(address="local"), threads=2, log=lines.append) as executor:
            executor.open(model, "auto", shared.X, shared.widths)
            assert executor.fuses
            with LocalExecutor(1) as here:
                here.open(model, "auto", shared.X, shared.widths)
                due = here.jacobian(shared.X, shared.widths)
            assert executor.jacobian(shared.X, shared.widths).tobytes() == due.tobytes()
            executor.report(steps_per_second=1.0, epsilon=None, guarantee="none")
            assert executor.facts() == {"executor": "in-process", "threads": 2}
        assert "stays in process" in lines[-1]
        assert reason in lines[-1]
    assert len(lines) == 2
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("kind", "path", "gpus", "here"),
    [
        ("trees", "auto", 0, True),
        ("trees", "auto", 1, False),
        ("trees", "structured", 0, False),
        ("trees", "blocked", 0, False),
        ("logistic", "auto", 0, False),
    ],
)
def test_a_cluster_is_used_for_black_boxes_gpus_and_where_the_path_asks_for_it(
    kind: str, path: Any, gpus: float, here: bool
) -> None:
    assert (why_in_process(model_of(kind), path, Cluster(num_gpus=gpus)) is not None) == here


def test_two_threads_compile_a_model_once_and_leave_stdout_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The compiler's progress is kept off stdout, which belongs to the whole process."""
    import tl2cgen

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before, real, made = sys.stdout, tl2cgen.export_lib, list[int]()
    model = trees()
    other = threading.Thread(target=compiled.compiled_predictor, args=(model,))

    def export(*arguments: Any, **options: Any) -> Any:
        made.append(threading.get_ident())
        if len(made) == 1:
            other.start()
            other.join(0.2)  # time enough to get here, too, were it let
        return real(*arguments, **options)

    monkeypatch.setattr(tl2cgen, "export_lib", export)
    compiled.compiled_predictor(model)
    other.join(HANG)
    assert len(made) == 1
    assert sys.stdout is before


# ---- the worker, a plain class


def test_a_worker_says_who_it_is_and_measures_itself() -> None:
    worker, shared = TileWorker(model_of("trees"), "blocked"), table()
    who = worker.identity()
    assert (who.pid, who.versions) == (os.getpid(), versions())
    assert {"python", "machine", "backend", "numpy", "xgboost"} <= set(who.versions)
    tile = Tile(0, ROWS, 0, 4)
    part = worker.tile(shared, tile)
    assert isinstance(part, TileResult)
    assert part.value.shape == (ROWS, 4)
    assert part.nbytes == ROWS * 4 * 4
    assert part.seconds > 0
    assert worker.calibrate(shared, tile) > 0
    assert pickle.loads(pickle.dumps(part)).value.tobytes() == part.value.tobytes()
    sparse = TileWorker(model_of("trees"), "structured").tile(shared, Tile(0, 64, 0, 1))
    assert sparse.nbytes == sum(array.nbytes for array in sparse.value)
    assert shared.nbytes == shared.X.nbytes + shared.widths.nbytes


def test_calibration_does_not_count_the_first_call() -> None:
    """Which compiles and loads."""
    calls = list[int]()
    worker = TileWorker(BlackBox(lambda rows: rows.sum(axis=1), "log-risk", COLUMNS), "blocked")
    real = worker.tile

    def counted(*arguments: Any) -> TileResult:
        calls.append(1)
        return TileResult(real(*arguments).value, seconds=float(len(calls)))

    worker.tile = counted  # type: ignore[assignment, method-assign]
    assert worker.calibrate(table(), Tile(0, ROWS, 0, 1)) == 2.0


def test_a_worker_without_a_usable_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "why_not", lambda: "no CUDA driver")
    with pytest.raises(ClusterError, match=r"must be usable\. Found no CUDA driver\. Fix: leave out num_gpus"):
        TileWorker(model_of("trees"), "structured", gpu=True)


def test_paths_a_model_does_not_have_are_refused() -> None:
    with pytest.raises(SettingsError, match="needs a tree model that Treelite can read"):
        TileWorker(model_of("logistic"), "compiled")
    with pytest.raises(SettingsError, match="needs a tree ensemble"):
        TileWorker(model_of("logistic"), "structured")


def test_xgboost_predicts_on_the_gpu_in_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU XGBoost would go back to the CPU with a warning: only what it is asked for is looked at."""
    model, asked = trees(), list[tuple[Any, Any]]()
    before = model.scores(table().X)

    def note(self: Any, params: Any, value: Any = None) -> None:
        if "device" in params:
            asked.append((self, params))

    monkeypatch.setattr(xgboost.Booster, "set_param", note)
    twin = on_gpu(model)
    assert isinstance(twin, TreeModel)
    assert [params for _, params in asked] == [{"device": "cuda"}]
    assert twin.predictor.booster is asked[0][0]  # type: ignore[attr-defined]
    assert twin.predictor.booster is not model.predictor.booster  # type: ignore[attr-defined]
    assert json.loads(model.predictor.booster.save_config())["learner"]["generic_param"]["device"] == "cpu"  # type: ignore[attr-defined]
    assert model.scores(table().X).tobytes() == before.tobytes()
    assert (twin.name, twin.link, twin.n_features) == (model.name, model.link, model.n_features)
    assert twin.fingerprint == model.fingerprint
    way = make_tiler(model, "blocked", gpu=True)
    assert isinstance(way, BatchTiler)
    assert way.model is not model
    assert len(asked) == 2
    assert make_tiler(model, "blocked").model is model  # type: ignore[union-attr]
    box = model_of("logistic")
    assert on_gpu(box) is box


# ---- the loop: which way the Jacobian came must not show


class Tiles:
    """An executor that never fuses: tiles through workers, as on a cluster."""

    fuses = False

    def __init__(self, model: Model) -> None:
        self.worker = TileWorker(model, "structured")

    def __enter__(self) -> Tiles:
        return self

    def __exit__(self, *error: Any) -> None: ...

    def open(self, *arguments: Any) -> None: ...

    def jacobian(self, X: Matrix, widths: Matrix) -> Matrix:
        way, J, shared = self.worker.tiler, np.zeros(X.shape, np.float32), Shared(X, widths)
        grid = Grid(len(X), len(way.columns), *way.grid(len(X)))
        for unit in reversed(range(grid.units)):
            for _, tile in grid.tiles(unit, unit + 1):
                way.place(J, tile, self.worker.tile(shared, tile).value)
        return J

    def report(self, **facts: Any) -> None: ...

    def facts(self) -> dict[str, Any]:
        return {}


def loop(
    executor: Any,
    *,
    sigma_base: float = 1.0,
    rows: int = ROWS,
    checkpoint: Checkpoint | None = None,
    record: StepRecord | None = None,
    steps: int = 10,
    noise_key: int = 7,
    **more: Any,
) -> tuple[engine.State, StepAccountant]:
    """A small noisy run on trees."""
    label = (np.arange(rows) % 2).astype(np.int8)
    real = np.linspace(0.05, 0.95, 40)
    start = normals(seed_key(0), engine.START_STREAM, 0, 0, (rows, COLUMNS))
    aim = ReferenceLoss(
        (model_of("trees"),),
        Composite(lambda f: bce(f, label), label.astype(np.int64), average=False, rho=0.1),
        RealScores((real[:20], real[20:]), (rows - rows // 2, rows // 2)),
    )
    problem = Problem((aim,), start, NoiseRule(0.05, sigma_base))
    said = PublishedOptions(noise=False, ipc=3, steps=steps, evaluate_every=5, learning_rate=0.1)
    accountant = StepAccountant(0.1, 1e-5, rows, record=record)
    with executor:
        executor.open(problem.models[0], "auto", start, np.ones(COLUMNS, np.float32))
        state = optimise(
            problem,
            said,
            noise_key=noise_key,
            accountant=accountant,
            validate=lambda X: float(X.sum()),
            executors=[executor],
            checkpoint=checkpoint,
            **more,
        )
    return state, accountant


@pytest.mark.parametrize("rows", [2, 65, ROWS])
@pytest.mark.parametrize("sigma_base", [0.0, 1.0])
def test_the_fused_loop_and_one_through_tiles_have_the_same_bits(sigma_base: float, rows: int) -> None:
    """Trees are fused in process, and through tiles where the path 'structured' sends them to a cluster."""
    fused, paid = loop(LocalExecutor(2), sigma_base=sigma_base, rows=rows)
    tiled, paid_too = loop(Tiles(model_of("trees")), sigma_base=sigma_base, rows=rows)
    assert fused.X.tobytes() == tiled.X.tobytes()
    assert fused.adam.m.tobytes() == tiled.adam.m.tobytes()
    assert fused.adam.v.tobytes() == tiled.adam.v.tobytes()
    assert fused.history == tiled.history
    assert paid.ledger == paid_too.ledger
    assert np.ptp(fused.X - normals(seed_key(0), engine.START_STREAM, 0, 0, (rows, COLUMNS))) > 0.1  # it moved


# ---- the record of steps


def entered(path: Path) -> dict[int, float]:
    """What a new process knows."""
    return dict(StepRecord(path)._known)


def test_a_record_is_on_disk_after_writing_and_only_grows(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    record = StepRecord(path)
    assert record.enter(0, 2.0) == 2.0
    assert not path.exists()
    record.write()
    first = path.read_bytes()
    assert entered(path) == {0: 2.0}
    record.write()
    assert path.read_bytes() == first  # nothing new, nothing written
    record.enter(1, 1.5)
    record.write()
    again = StepRecord(path)
    assert again.enter(1, 1.5) == 1.5  # the same step once more, after a restart
    again.enter(2, 1.0)
    again.write()
    assert path.read_bytes().startswith(first)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 1, 2]


def test_a_step_entered_twice_costs_what_it_cost_at_its_dearest(tmp_path: Path) -> None:
    """Little noise is dear."""
    path = tmp_path / "steps.jsonl"
    record = StepRecord(path)
    assert [record.enter(3, noise) for noise in (2.0, 1.0, 5.0)] == [2.0, 1.0, 1.0]
    record.write()
    assert StepRecord(path).enter(3, 4.0) == 1.0
    dear, cheap = (StepAccountant(0.1, 1e-5, 6, record=StepRecord(path)) for _ in range(2))
    cheap.record = None
    for accountant in (dear, cheap):
        for _ in range(5):
            accountant.spend(4.0)
    assert dear.ledger == [(4.0, 3), (1.0, 1), (4.0, 1)]
    assert cheap.ledger == [(4.0, 5)]
    assert dear.epsilon() > cheap.epsilon()


def test_a_record_torn_anywhere_keeps_its_whole_lines_and_can_be_written_on(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    record = StepRecord(path)
    for step, noise in enumerate((2.0, 1.25, 3.0)):
        record.enter(step, noise)
    record.write()
    text = path.read_bytes()
    for cut in range(len(text) + 1):
        path.write_bytes(text[:cut])
        lines = text[:cut].count(b"\n")
        known = dict(enumerate((2.0, 1.25, 3.0)[:lines]))
        again = StepRecord(path)
        assert again._known == known
        for step in range(lines, 4):
            assert again.enter(step, 0.5) == 0.5
        again.write()
        assert entered(path) == known | dict.fromkeys(range(lines, 4), 0.5)
        assert path.read_bytes().startswith(text[:cut])


class Broken(Checkpoint):
    """A disk that takes the record and then no state."""

    def save(self, arrays: Any, facts: Any) -> None:
        raise OSError("disk full")


def test_a_step_is_in_the_record_before_its_state_is_in_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    with pytest.raises(OSError, match="disk full"):
        loop(LocalExecutor(), record=StepRecord(path), checkpoint=Broken(tmp_path / "checkpoint.npz"))
    assert list(entered(path)) == [0]
    _, undisturbed = loop(LocalExecutor())
    assert entered(path)[0] == undisturbed.ledger[0][0]


@pytest.mark.parametrize("at", [1, 4, 9])
def test_killed_between_record_and_checkpoint_a_run_goes_on_to_the_same_bits_and_ledger(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(engine, "CHECKPOINT_SHARE", 0)
    whole_run, paid = loop(LocalExecutor())

    class Dies(Checkpoint):
        def save(self, arrays: Any, facts: Any) -> None:
            if facts["step"] == at + 1:
                raise KeyboardInterrupt
            super().save(arrays, facts)

    path, file = tmp_path / "steps.jsonl", tmp_path / "checkpoint.npz"
    with pytest.raises(KeyboardInterrupt):
        loop(LocalExecutor(), record=StepRecord(path), checkpoint=Dies(file))
    assert list(entered(path)) == list(range(at + 1))  # one ahead of the checkpoint
    state, paid_again = loop(LocalExecutor(), record=StepRecord(path), checkpoint=Checkpoint(file), noise_key=999)
    assert state.X.tobytes() == whole_run.X.tobytes()
    assert paid_again.ledger == paid.ledger
    assert len(path.read_text().splitlines()) == 10
    assert len(entered(path)) == 10


def test_a_step_that_was_recorded_dearer_is_never_accounted_cheaper(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    before = StepRecord(path)
    before.enter(2, 0.001)
    before.write()
    _, paid = loop(LocalExecutor(), record=StepRecord(path))
    assert paid.steps == 10
    assert min(noise for noise, _ in paid.ledger) == 0.001


def test_the_record_of_a_run_without_a_checkpoint_is_written_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    loop(LocalExecutor(), record=StepRecord(path))
    assert list(entered(path)) == list(range(10))


# ---- settings, errors, the command line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("actors", 0),
        ("actors", -2),
        ("num_cpus", 0),
        ("num_cpus", float("nan")),
        ("num_gpus", -1),
        ("max_restarts", -1),
        ("backoff", -0.5),
        ("start_timeout", 0),
    ],
)
def test_a_knob_outside_its_range_is_named_with_its_rule(name: str, value: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        Cluster(**{name: value})
    assert caught.value.what == f"cluster: {name}"
    assert caught.value.rule.startswith("must be")
    assert caught.value.found == str(value)


def test_what_is_legal_is_taken() -> None:
    assert Cluster(num_cpus=0.5).threads == 1
    assert Cluster(num_cpus=4).threads == 4
    Cluster(actors=1, max_restarts=0, backoff=0, num_gpus=0.25)


def test_an_address_is_said_or_comes_from_the_environment_or_a_cluster_is_started(monkeypatch: Any) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert Cluster().starts_here
    assert Cluster(address="local").starts_here
    assert not Cluster(address="head:6379").starts_here
    monkeypatch.setenv("RAY_ADDRESS", "other:6379")
    assert not Cluster().starts_here
    assert Cluster().joins == "other:6379"
    assert Cluster(address="head:6379").joins == "head:6379"
    assert Cluster(address="local").starts_here
    monkeypatch.setenv("RAY_ADDRESS", "local")  # as Ray itself understands it
    assert Cluster().starts_here


def kinds() -> list[type[UserError]]:
    return [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, UserError)]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_an_error_survives_the_way_back_from_a_worker(kind: type[UserError]) -> None:
    assert len(kinds()) > 6
    for error in (kind("it", "must be so", found="otherwise", fix="change it"), kind("it", "must be so")):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is kind
        assert (back.what, back.rule, back.found, back.fix) == (error.what, error.rule, error.found, error.fix)
        assert str(back) == str(error)


def test_a_store_that_cannot_hold_a_step_is_refused_with_both_sizes() -> None:
    shared = Shared(np.zeros((1024, 1024), np.float32), np.ones(1024, np.float32))
    step = 2 * shared.nbytes + 1024 * 1024 * 4, "a step's rows and answers", "a smaller IPC"
    check_store(16 * 2**20, *step)
    with pytest.raises(ClusterError, match=r"must hold 12 MiB.*Found 14 MiB, of which 80% may be used"):
        check_store(14 * 2**20, *step)


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ([], []),
        (["demo"], ["demo"]),
        (["condense", "--ray"], ["condense", "--ray="]),
        (["condense", "--ray", "--ipc", "5"], ["condense", "--ray=", "--ipc", "5"]),
        (["condense", "--ray", "-q"], ["condense", "--ray=", "-q"]),
        (["condense", "--ray", "table.csv"], ["condense", "--ray=", "table.csv"]),
        (["condense", "--ray", "head:6379", "table.csv"], ["condense", "--ray", "head:6379", "table.csv"]),
        (["condense", "--ray", "local", "table.csv"], ["condense", "--ray", "local", "table.csv"]),
        (["condense", "--ray", "", "table.csv"], ["condense", "--ray", "", "table.csv"]),
        (["condense", "--ray=head:6379", "table.csv"], ["condense", "--ray=head:6379", "table.csv"]),
        (["submit", "--", "other", "--ray"], ["submit", "--", "other", "--ray"]),
        (["study", "--ray", "--", "table.csv"], ["study", "--ray=", "--", "table.csv"]),
    ],
)
def test_ray_takes_an_address_or_nothing(said: list[str], meant: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("table.csv").touch()
    assert with_address(said) == meant


# ---- processes


def test_a_model_that_holds_the_lock_is_computed_by_processes_and_if_one_dies_by_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(rows: Matrix) -> Any:  # of this test: it can be sent only by value
        return np.array([float(np.tanh(row[0] * row[1]) + row[2]) for row in rows])

    model, shared, said = BlackBox(slow, "probability", COLUMNS), table(), list[str]()
    with LocalExecutor(1) as alone:
        alone.open(model, "blocked", shared.X, shared.widths)
        due = alone.jacobian(shared.X, shared.widths)
    monkeypatch.setattr(executors, "WORTH_SAYING", 0.0)
    monkeypatch.setattr(executors, "HELD", 0.0)  # however busy this machine is
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(sys.modules["distcondense.models.jacobian"], "TILE_ROWS", 1)
    with LocalExecutor(2, log=said.append) as executor:
        executor.open(model, "blocked", shared.X, shared.widths)
        np.testing.assert_array_equal(executor.jacobian(shared.X, shared.widths), due)
        assert executor.facts().get("processes") == 2, said
        assert "2 processes: the model holds the interpreter's lock" in said[0]
        for pid in list(executor._processes._pool._processes):  # type: ignore[union-attr]
            os.kill(pid, 9)
        np.testing.assert_array_equal(executor.jacobian(shared.X, shared.widths), due)
        assert "processes" not in executor.facts()
        assert said[1:] == ["a process has died: threads go on in place of processes"]


def test_a_model_that_cannot_be_sent_to_processes_stays_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, shared, said = threading.Lock(), table(), list[str]()

    def locked(rows: Matrix) -> Any:
        with lock:
            return rows[:, 0] * rows[:, 1]

    monkeypatch.setattr(executors, "WORTH_SAYING", 0.0)
    monkeypatch.setattr(executors, "HELD", 0.0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(sys.modules["distcondense.models.jacobian"], "TILE_ROWS", 1)
    with LocalExecutor(2, log=said.append) as executor:
        executor.open(BlackBox(locked, "probability", COLUMNS), "blocked", shared.X, shared.widths)
        executor.jacobian(shared.X, shared.widths)
    assert "cannot be sent to processes (TypeError)" in said[0]
