"""What Ray buys for a black box, where more workers stop helping, and what kernels buy:
`python -m benchmarks.cluster speed|scaling|kernels`.

speed: one step's Jacobian of the 2,932-feature problem, in process (1 and 2 threads) and on Ray (1 and 2 actors), for
tl2cgen and a scikit-learn SVM; the structured path in process and through Ray. Each round runs all of them, one after
the other, on executors that stay open; ratios are of medians over the rounds. Beside Ray's times stands what the
planner expected: the units of a step over the speeds that it divided them by.

kernels: clip, noise and Adam by the kernels and by NumPy, and a batch of perturbed rows, which NumPy makes.

scaling: step time against the number of workers, from a stated model whose terms are measured here,

    T(w) = driver + put + (nodes − 1)·bytes(X)/network + max(work/w + tile, tiles·message + bytes(J)/store)

and beside it measured steps with up to 32 actors on this machine whose black box *waits* for as long as the work would
take: what is left of a step when cores are not the limit is Ray and the driver.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import record
from distcondense import Cluster, kernels
from distcondense.bench.problems import FULL, BenchProblem, problems
from distcondense.cluster.executors import Executor, LocalExecutor, RayExecutor
from distcondense.cluster.plan import LEAST_SECONDS, grid_of, plan
from distcondense.cluster.ray.session import connected
from distcondense.cluster.worker import Shared
from distcondense.kernels import update
from distcondense.kernels.perturbation import perturbed
from distcondense.kernels.update import AdamState, NoiseRule
from distcondense.models.base import BlackBox, Model
from distcondense.models.jacobian import TILE_BYTES, TILE_ROWS, BatchTiler, make_tiler

NETWORK = 1.25e9  # bytes per second of a 10 Gbit/s network: stated, not measured
PER_NODE = 16  # workers a node, in the model


def seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def base() -> BenchProblem:
    """The proteomics problem: 2,000 rows × 2,932 features, 100 trees of depth 5."""
    (problem,) = problems(replace(FULL, vary={}), print)
    return problem


def svm(features: int) -> BlackBox:
    """A scikit-learn SVM with an RBF kernel on 150 simulated patients."""
    from sklearn.svm import SVC

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((150, features))
    model = SVC(gamma="scale").fit(rows, rows[:, :60].sum(axis=1) > 0)
    return BlackBox(lambda some: 1 / (1 + np.exp(-model.decision_function(some))), "probability", features, "svm")


def speed(said: argparse.Namespace) -> dict[str, Any]:
    problem = base()
    found: dict[str, Any] = {}
    for name, reference, path, rows in (
        ("tl2cgen", problem.reference, "compiled", said.rows),
        ("SVM", svm(problem.features), "blocked", said.svm_rows),
        ("structured", problem.reference, "structured", problem.rows),
    ):
        X, widths = problem.X[:rows], problem.steps
        here = Cluster(address="local", actors=3)
        with ExitStack() as stack:
            stack.enter_context(connected(here, cpus=3))  # one cluster for both: only who is asked has work
            ways: dict[str, Executor] = {
                "in process, 1 thread": LocalExecutor(1),
                "in process, 2 threads": LocalExecutor(2),
                "Ray, 1 actor": RayExecutor(replace(here, actors=1)),
                "Ray, 2 actors": RayExecutor(replace(here, actors=2)),
            }
            times: dict[str, list[float]] = {way: [] for way in ways}
            for executor in ways.values():
                stack.enter_context(executor)
                executor.open(reference, path, X, widths)  # type: ignore[arg-type]
            answers: set[bytes] = {executor.jacobian(X, widths).tobytes() for executor in ways.values()}
            assert len(answers) == 1, "the bits differ"
            for _ in range(said.rounds):
                for way, executor in ways.items():
                    times[way].append(seconds(lambda e=executor, X=X, w=widths: e.jacobian(X, w)))  # type: ignore[misc]
                print(
                    f"{name} {rows} × {problem.features}:", {w: round(t[-1], 3) for w, t in times.items()}, flush=True
                )
            units = grid_of(make_tiler(reference, path), rows).units
            speeds = {way: executor.facts().get("units_per_second") for way, executor in ways.items()}
            planned = {way: units / sum(each) for way, each in speeds.items() if each}
        medians = {way: statistics.median(values) for way, values in times.items()}
        found[name] = {"rows": rows, "features": problem.features, "path": path, "seconds": times, "medians": medians}
        found[name]["planned"] = planned
    return found


def kernel_seconds(said: argparse.Namespace) -> dict[str, Any]:
    """Each way of a part of the step in turn, the least of `--rounds`; one thread, 2,000 rows × 2,932 columns."""
    rng = np.random.default_rng(0)
    m, d = 2_000, 2_932
    G, sigmas = rng.standard_normal((m, d), dtype=np.float32), np.full(m, 4.0, np.float32)
    X, adam = G.copy(), AdamState.zeros((m, d))

    def clip_and_noise() -> None:
        norms = np.sqrt((G.astype(np.float64) ** 2).sum(axis=1))
        clipped = G * np.minimum(1, 1e-2 / norms)[:, None].astype(np.float32)
        clipped += sigmas[:, None] * np.float32(1e-2) * rng.standard_normal((m, d), dtype=np.float32)

    def moments() -> None:
        first, second = 0.9 * adam.m + 0.1 * G, 0.999 * adam.v + 0.001 * G * G
        X - 0.05 * first / (np.sqrt(second) + 1e-8)

    def batch() -> None:
        for _ in perturbed(X[:100], np.ones(d, np.float32), np.arange(d), shape=(100, 20), dtype=np.dtype(np.float32)):
            pass

    ways: dict[str, Callable[[], Any]] = {
        "clip and noise, NumPy": clip_and_noise,
        "clip and noise, Numba": lambda: update.clip_and_noise(G.copy(), 1e-2, sigmas, 1, 0, 0, 1),
        f"clip and noise, {kernels.backend()}": lambda: kernels.clip_and_noise(G.copy(), 1e-2, sigmas, 1, 0, 0, 1),
        "Adam, NumPy": moments,
        "Adam, Numba": lambda: update.adam(X, G, adam, 0.05, 0.9, 0.999, 1),
        f"Adam, {kernels.backend()}": lambda: kernels.adam(X, G, adam, 0.05, 0.9, 0.999, 1),
        "perturbed batches of 100 rows, NumPy": batch,
    }
    times: dict[str, list[float]] = {way: [] for way in ways}
    for way in ways.values():
        way()  # compiles
    for _ in range(said.rounds):
        for name, way in ways.items():
            times[name].append(seconds(way))
    return {"rows": m, "features": d, "seconds": times}


def kernel_lines(found: dict[str, Any]) -> list[str]:
    least = {way: min(values) for way, values in found["seconds"].items()}
    lines = [
        "## Parts of a step (`python -m benchmarks.cluster kernels`)",
        "",
        f"One thread, {found['rows']:,} rows × {found['features']:,} columns, the least of the rounds.",
        "",
        "| part | seconds | against NumPy |",
        "| --- | --- | --- |",
    ]
    for way, taken in least.items():
        beside = least.get(way.split(",")[0] + ", NumPy")
        lines.append(f"| {way} | {taken:.4f} | {'' if beside is None else f'{beside / taken:.1f}×'} |")
    return lines


def waiting(features: int, per_row: float) -> BlackBox:
    """A black box that takes its time and no core."""

    def scores(rows: Any) -> Any:
        time.sleep(per_row * len(rows))
        return rows[:, 0] * 0

    return BlackBox(scores, "probability", features, "waiting")


def driver_seconds(reference: Model, X: Any) -> float:
    """What the driver does in a step besides the Jacobian: scores, clip and noise, Adam."""
    X, G = X.copy(), np.ones(X.shape, np.float32)
    adam, noise = AdamState.zeros(X.shape), NoiseRule(1.0, 1.0)

    def step() -> None:
        reference.scores(X)
        sigma = noise.sigmas(np.ones(len(X), np.float32))
        kernels.clip_and_noise(G, 1.0, sigma, 5, 0, 0, 2)
        kernels.adam(X, G, adam, 0.05, 0.9, 0.999, 2)

    step()
    return statistics.median(seconds(step) for _ in range(5))


def scaling(said: argparse.Namespace) -> dict[str, Any]:
    problem = base()
    X, widths, d = problem.X, problem.steps, problem.features
    per_row = said.microseconds * 1e-6
    work = 2.0 * X.size * per_row
    found: dict[str, Any] = {
        "rows": len(X),
        "features": d,
        "seconds_per_row": per_row,
        "work_seconds": work,
        "driver_seconds": driver_seconds(problem.reference, X),
        "measured": {},
    }
    with RayExecutor(Cluster(address="local", actors=2)) as executor:
        executor.open(waiting(d, 0.0), "blocked", X, widths)
        workers = executor._dispatcher.pool.workers
        found["put_seconds"] = statistics.median(seconds(lambda: workers.put(Shared(X, widths))) for _ in range(5))
    few, narrow = X[:64, :512].copy(), widths[:512].copy()
    with RayExecutor(Cluster(address="local", actors=2)) as executor:
        # a box that costs nothing, one unit a tile: a step is then messages and nothing else
        executor.open(waiting(512, 0.0), "naive", few, narrow)
        executor.jacobian(few, narrow)
        executor._dispatcher._speeds = [1e-3] * 2
        taken = seconds(lambda: executor.jacobian(few, narrow))
        found["message_seconds"] = taken / 512
    J = np.empty(X.shape, np.float32)
    part = np.ones((len(X), 16), np.float32)
    place = statistics.median(seconds(lambda: J.__setitem__((slice(None), np.arange(16)), part)) for _ in range(20))
    found["place_bytes_per_second"] = part.nbytes / place
    for workers in said.workers:
        with RayExecutor(Cluster(address="local", actors=workers, num_cpus=0.01, start_timeout=300)) as executor:
            executor.open(waiting(d, per_row), "blocked", X, widths)
            taken = seconds(lambda e=executor: e.jacobian(X, widths))  # type: ignore[misc]
            found["measured"][workers] = taken + found["driver_seconds"]
            print(f"{workers} workers: {taken:.2f} s measured, {model(found, workers):.2f} s by the model", flush=True)
    found["model"] = {w: model(found, w) for w in (1, 2, 4, 8, 16, 32, 64, 128, 256)}
    return found


def model(found: dict[str, Any], workers: int) -> float:
    """T(w) as the file's head states it."""
    table = found["rows"] * found["features"] * 4
    share = found["work_seconds"] / workers
    batches = BatchTiler(waiting(found["features"], 0.0), "blocked", 1, TILE_BYTES, TILE_ROWS)
    grid = grid_of(batches, found["rows"])
    tiles = len(plan(grid, [grid.units / found["work_seconds"]] * workers))  # as the planner would cut them
    tile = max(LEAST_SECONDS, found["work_seconds"] / grid.units)  # the last one, that is waited for
    nodes = -(-workers // PER_NODE)
    driver = tiles * found["message_seconds"] + table / found["place_bytes_per_second"]
    moved = found["put_seconds"] + (nodes - 1) * table / NETWORK
    return found["driver_seconds"] + moved + max(share + tile, driver)


def speed_lines(found: dict[str, Any]) -> list[str]:
    ways = list(next(iter(found.values()))["medians"])
    lines = [
        "## Black box, one step's Jacobian (`python -m benchmarks.cluster speed`)",
        "",
        "Seconds are medians over the rounds; ratios by medians / by minima (other guests of the machine come and go).",
        "",
        f"| reference | rows × features | {' | '.join(ways)} | 2 actors against 1 | 2 actors against 2 threads |"
        " planned, 1 and 2 actors |",
        "|" + " --- |" * (len(ways) + 5),
    ]
    for name, row in found.items():
        cells = [f"{value:.3g} s" for value in row["medians"].values()]
        _, two, ray1, ray2 = row["medians"].values()
        _, two_best, ray1_best, ray2_best = (min(values) for values in row["seconds"].values())
        cells += [
            f"{ray1 / ray2:.2f}× / {ray1_best / ray2_best:.2f}× faster",
            f"{ray2 / two:.2f}× / {ray2_best / two_best:.2f}× its time",
            " and ".join(f"{value:.3g} s" for value in row.get("planned", {}).values()),
        ]
        lines.append(f"| {name} | {row['rows']:,} × {row['features']:,} | {' | '.join(cells)} |")
    return lines


def scaling_lines(found: dict[str, Any]) -> list[str]:
    lines = [
        "## Step time against workers (`python -m benchmarks.cluster scaling`)",
        "",
        f"{found['rows']:,} rows × {found['features']:,} features, a black box of "
        f"{1e6 * found['seconds_per_row']:.0f} µs a row: {found['work_seconds']:.0f} s of work a step. Measured here: "
        f"driver {found['driver_seconds']:.3f} s, X into the store {found['put_seconds']:.3f} s, "
        f"{1e3 * found['message_seconds']:.2f} ms a tile, answers placed at "
        f"{found['place_bytes_per_second'] / 1e9:.1f} GB/s. Stated: network {NETWORK / 1e9:.2f} GB/s, "
        f"{PER_NODE} workers a node.",
        "",
        "| workers | measured (waiting box), s | model, s | speed-up by the model | efficiency |",
        "| --- | --- | --- | --- | --- |",
    ]
    measured = {int(k): v for k, v in found["measured"].items()}
    by_model = {int(k): v for k, v in found["model"].items()}
    for workers, taken in by_model.items():
        seen = f"{measured[workers]:.2f}" if workers in measured else ""
        times = by_model[1] / taken
        lines.append(f"| {workers} | {seen} | {taken:.2f} | {times:.1f}× | {100 * times / workers:.0f}% |")
    best = min(by_model, key=lambda workers: by_model[workers])
    lines += [
        "",
        f"By the model a step is fastest with about {best} workers; with more, the driver's messages are the limit. "
        "Measured times hold what the actors copy as well, on the cores of this one machine.",
    ]
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=["speed", "scaling", "kernels"])
    options.add_argument("--rows", type=int, default=400, help="rows of the tl2cgen problem")
    options.add_argument("--svm-rows", type=int, default=8)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--microseconds", type=float, default=15.0, help="of the waiting black box, per row")
    options.add_argument("--workers", type=int, nargs="*", default=[4, 8, 16, 32])
    said = options.parse_args()
    warnings.simplefilter("ignore")
    measure, write = {
        "speed": (speed, speed_lines), "scaling": (scaling, scaling_lines), "kernels": (kernel_seconds, kernel_lines)
    }[said.what]  # fmt: skip
    found = measure(said)
    lines = write(found)
    record.write(f"cluster-{said.what}", found, seeds=[], text="\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
