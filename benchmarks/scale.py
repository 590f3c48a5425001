"""How the private model grows with the table: time and memory out of core, on Ray, by person; and a model of more.

    python -m benchmarks.scale grow --rows 1e6 1e7 1e8      # beside pyarrow reading the same columns, in the same run
    python -m benchmarks.scale ray --rows 1e6 1e7           # one process with two threads; one and two actors
    python -m benchmarks.scale persons --rows 1e7           # three rows a person, in random order; equal in memory
    python -m benchmarks.scale marks --rows 1e7             # keyed hashes of rows and texts beside hashes without a key
    python -m benchmarks.scale model                        # 1e10 rows on 16, 64, 256 nodes, from these and `links`

Tables are simulated (`data/datasets.py`: curial_like, 19 features and the outcome) and streamed to Parquet; they and
scratch files lie in --folder. Every measurement is a process of its own. Memory is anonymous memory: pages of mapped
files belong to their files. Results go to benchmarks/results/scale.json, those of `marks` to scale-marks.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from distcondense.cluster.config import Cluster
from distcondense.cluster.ray.session import connected
from distcondense.cluster.remote_shards import TOGETHER
from distcondense.cluster.shards import opened, opened_on, scratch
from distcondense.data.datasets import load, simulate
from distcondense.data.files import BATCH_ROWS, PIECE_MOST, PIECES_EACH
from distcondense.data.large import LargeTable
from distcondense.data.persons import PERSON, HoldoutSplit, RowHash
from distcondense.data.schema import Schema
from distcondense.kernels.jit import kernel
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.methods.private.prepare import prepare
from distcondense.privacy import noise
from distcondense.privacy.gate import gate_over
from distcondense.privacy.ledger import Ledger

MANY, LINK = 1e10, 1.25e9  # rows of the model; bytes per second of its network, 10 Gbit/s: stated, not measured
FEATURES = 19
ROW_BYTES = 180  # of pyarrow's table, at most: one that memory has no room for is not read whole
COINS = HoldoutSplit(0.2, 2**80 + 11)


def schema() -> Schema:
    whole = load("curial_like", rows=10)
    names = [c.name for c in whole.schema.columns if c.name != whole.target][:FEATURES]
    return Schema(tuple(c for c in whole.schema.columns if c.name in {*names, whole.target}))


def target() -> str:
    return str(load("curial_like", rows=10).target)


def made(folder: Path, rows: int, persons: bool = False) -> Path:
    """The table on disk, in files of up to 2^24 rows; made once."""
    place = folder / f"simulated-{rows}{'-persons' if persons else ''}"
    if not (place / "_made").exists():
        shutil.rmtree(place, ignore_errors=True)  # what was interrupted
        simulate("curial_like", place, rows=rows, features=FEATURES, rows_each=3 if persons else 1)
        (place / "_made").touch()
    return place / "table"


class Peak(threading.Thread):
    """The most anonymous memory of this process, looked at ten times a second."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0

    def run(self) -> None:
        while True:
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith("RssAnon:"):
                    self.most = max(self.most, int(line.split()[1]) * 1024)
            time.sleep(0.1)


def scanned(place: Path) -> None:
    """The same columns once by pyarrow, batch by batch, on two threads, holding none: the least that reading takes."""
    import pyarrow as pa
    import pyarrow.dataset as ds

    pa.set_cpu_count(2)
    for _ in ds.dataset(place, format="parquet").to_batches(batch_size=2**17, batch_readahead=4, fragment_readahead=1):
        pass


def held(place: Path, apart: bool) -> None:
    """The same columns once by pyarrow, on two threads, as a table in memory; `apart`: a table a file, each dropped."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(2)
    for one in sorted(place.glob("*.parquet")) if apart else [place]:
        pq.read_table(one)


def fitted(
    place: Path, folder: Path, *, threads: int, actors: int, persons: bool, memory: int | None
) -> dict[str, Any]:
    """From files to the private model; seconds of both halves, and of a cluster's start and end apart from them."""
    how: dict[str, Any] = {"target": target(), "schema": schema()}
    table = LargeTable.from_path(place, **how, **({"person_id": "who"} if persons else {}))
    public = prepare(table.facts, PrivateOptions(epsilon=1.0, rows_per_person=2 if persons else 5))
    cells, objective, most = public.cells, public.side.objective, public.rows_per_person
    exact: list[str] = []
    if persons:  # integers before noise, to compare with memory
        noise.discrete_gaussian = lambda sums, scale: (exact.append(repr(sums.tolist())), sums.copy())[1]  # type: ignore[assignment]
        noise.noisy_top = lambda scores, count, scale: np.argsort(-scores, kind="stable")[:count]  # type: ignore[assignment]
    clock = {"begin": time.perf_counter()}
    found: dict[str, Any] = {}
    with ExitStack() as held_open:
        if actors:
            config = Cluster(address="local", actors=actors, start_timeout=300)
            held_open.enter_context(connected(config, cpus=actors))
            clock["cluster"] = time.perf_counter()
            rows = held_open.enter_context(
                opened_on(config, table, cells, objective, COINS, most, scratch_=folder, memory=memory)
            )
            shards: Any = rows.shards
            found["cluster_seconds"] = clock["cluster"] - clock["begin"]  # Ray's own processes
            found["actors_start_seconds"] = shards.start_seconds  # theirs, until they have imported what they need
            clock["begin"] = clock["cluster"] + shards.start_seconds
            found["actors_open_cpu_seconds"] = cpu_of(shards)
        else:
            place_ = held_open.enter_context(scratch(folder))
            rows = opened(table, cells, objective, COINS, most, place_, threads=threads, memory=memory)
        clock["opened"] = time.perf_counter()
        gate = gate_over(
            rows, names=[c.column.name for c in cells], budget=public.budget, ledger=Ledger(), unit=public.unit
        )
        learned = fit_private(gate, cells, public.plan, public.side)
        clock["fitted"] = time.perf_counter()
        if actors:
            found["actors_cpu_seconds"] = cpu_of(shards)
    open_, fit, end = (
        clock["opened"] - clock["begin"],
        clock["fitted"] - clock["opened"],
        time.perf_counter() - clock["fitted"],
    )
    found |= {
        "rows": table.read_rows,
        "open_seconds": open_,
        "fit_seconds": fit,
        "end_seconds": end,
        "work_seconds": open_ + fit,
        "answers": len(gate.ledger.events),
        "rows_noisy": round(learned.rows),
    }
    return {**found, **({"exact": hash_of(exact)} if persons else {})}


def cpu_of(shards: Any) -> float:
    """Seconds of the cores that the actors of shards have taken, all of them on this machine, since they began."""

    pids = [member.identity.pid for member in shards.pool.members]
    spent = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]
    return sum(int(ticks) for both in spent for ticks in both) / os.sysconf("SC_CLK_TCK")


def in_memory(place: Path) -> dict[str, Any]:
    """The person-level table read whole, and its integers before noise."""
    import pyarrow.parquet as pq

    from distcondense.data.cohort import Cohort
    from distcondense.data.tables import as_frame
    from distcondense.methods.private.condense import open_gate

    cohort = Cohort.from_frame(as_frame(pq.read_table(place)), target=target(), schema=schema(), person_id="who")
    options = PrivateOptions(epsilon=1.0, rows_per_person=2)
    public = prepare(cohort.facts, options)
    exact: list[str] = []
    noise.discrete_gaussian = lambda sums, scale: (exact.append(repr(sums.tolist())), sums.copy())[1]  # type: ignore[assignment]
    noise.noisy_top = lambda scores, count, scale: np.argsort(-scores, kind="stable")[:count]  # type: ignore[assignment]
    gate = open_gate(cohort, COINS, public, Ledger())
    fit_private(gate, public.cells, public.plan, public.side)
    return {"exact": hash_of(exact)}


def hash_of(exact: list[str]) -> str:
    return hashlib.sha256("\n".join(exact).encode()).hexdigest()


def measured(what: str, place: Path, folder: Path, **how: Any) -> dict[str, Any]:
    """One measurement in a process of its own."""
    given = json.dumps({"what": what, "place": str(place), "folder": str(folder), **how})
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale", "one", "--given", given], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def one(given: dict[str, Any]) -> None:
    what, place, folder = given.pop("what"), Path(given.pop("place")), Path(given.pop("folder"))
    peak = Peak()
    peak.start()
    began, cpu = time.perf_counter(), time.process_time()
    found: dict[str, Any] = {}
    if what == "scan":
        scanned(place)
    elif what == "table":
        held(place, **given)
    elif what == "memory":
        found = in_memory(place)
    else:
        found = fitted(place, folder, **given)
    print(
        json.dumps(
            {
                **found,
                "seconds": time.perf_counter() - began,
                "cpu_seconds": time.process_time() - cpu,
                "anonymous_bytes": peak.most,
                "load": os.getloadavg()[0],
            }
        )
    )


def has_room(rows: int) -> bool:
    """Whether memory has room for pyarrow's table of so many rows."""
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    return rows * ROW_BYTES < int(free.split()[1]) * 1024


def grow(rows: list[int], folder: Path) -> dict[str, Any]:
    """Beside pyarrow three times: rows that pass by, a table a file, each dropped, and one table that is held.

    Differences tell what one row more costs.
    """
    found: list[dict[str, Any]] = []
    for count in rows:
        place = made(folder, count)
        ways = {"scan": ("scan", {}), "files": ("table", {"apart": True}), "table": ("table", {"apart": False})}
        beside = {
            name: measured(what, place, folder, **how)
            for name, (what, how) in ways.items()
            if name != "table" or has_room(count)
        }
        ours = measured("ours", place, folder, threads=2, actors=0, persons=False, memory=None)
        last: dict[str, Any] = {"rows": count, **ours, "microseconds_a_row": 1e6 * ours["seconds"] / count}
        for name, other in beside.items():
            last |= {
                f"{name}_seconds": other["seconds"],
                f"{name}_cpu_seconds": other["cpu_seconds"],
                f"{name}_bytes": other["anonymous_bytes"],
                f"times_{name}": ours["seconds"] / other["seconds"],
                f"cpu_times_{name}": ours["cpu_seconds"] / other["cpu_seconds"],
            }
        if found:
            more = count - found[-1]["rows"]
            last["microseconds_a_further_row"] = 1e6 * (ours["seconds"] - found[-1]["seconds"]) / more
            last["cpu_microseconds_a_further_row"] = 1e6 * (ours["cpu_seconds"] - found[-1]["cpu_seconds"]) / more
        found.append(last)
        times = ", ".join(f"{last[f'times_{name}']:.2f}× pyarrow's {name}" for name in beside)
        print(
            f"{count:>11,} rows: {ours['seconds']:.1f} s ({ours['cpu_seconds']:.1f} s of the cores), {times}, "
            f"{ours['anonymous_bytes'] / 1e9:.2f} GB anonymous",
            flush=True,
        )
    return {"grow": found}


def on_ray(rows: list[int], folder: Path) -> dict[str, Any]:
    """The work of actors and threads: open and fit. What starts and ends a cluster is told apart from it."""
    found: list[dict[str, Any]] = []
    for count in rows:
        place, last = made(folder, count), dict[str, Any]()
        for name, how in (
            ("two threads", {"threads": 2, "actors": 0}),
            ("one actor", {"threads": 1, "actors": 1}),
            ("two actors", {"threads": 1, "actors": 2}),
        ):
            last[name] = one_way = measured("ours", place, folder, persons=False, memory=None, **how)
            start = sum(one_way.get(part, 0.0) for part in ("cluster_seconds", "actors_start_seconds"))
            print(
                f"{count:,} rows, {name}: {one_way['work_seconds']:.1f} s (open {one_way['open_seconds']:.1f}, fit "
                f"{one_way['fit_seconds']:.1f}); start {start:.1f}, end {one_way['end_seconds']:.1f}",
                flush=True,
            )
        work = {name: one_way["work_seconds"] for name, one_way in last.items()}
        last["two actors over two threads"] = work["two actors"] / work["two threads"]
        last["one actor over two actors"] = work["one actor"] / work["two actors"]
        if found:  # what further rows cost, without what every process and every fit costs once
            more = {name: seconds - found[-1][name]["work_seconds"] for name, seconds in work.items()}
            last["of further rows, two actors over two threads"] = more["two actors"] / more["two threads"]
            last["of further rows, one actor over two actors"] = more["one actor"] / more["two actors"]
        print("; ".join(f"{name}: {value:.2f}" for name, value in last.items() if isinstance(value, float)), flush=True)
        found.append({"rows": count, **last})
    return {"ray": found}


def by_person(count: int, folder: Path) -> dict[str, Any]:
    place = made(folder, count, persons=True)
    ours = measured("ours", place, folder, threads=2, actors=0, persons=True, memory=None)
    small = made(folder, min(count, 10**6), persons=True)
    both = [
        measured("ours", small, folder, threads=2, actors=0, persons=True, memory=None)["exact"],
        measured("memory", small, folder)["exact"],
    ]
    print(f"persons: {ours['seconds']:.1f} s; equal to memory at {min(count, 10**6):,} rows: {both[0] == both[1]}")
    return {"persons": {"rows": count, **ours, "equal_in_memory": both[0] == both[1]}}


# -- hashes under a key, and without ----------------------------------------------------------------------------------

WORDS, LISTED, ROUNDS = FEATURES + 1, 100, 5
_ODD, _32, _29 = (np.uint64(0xD1B54A32D192ED03), np.uint64(0xA24BAED4963EE407)), np.uint64(32), np.uint64(29)


@kernel()
def folded_without_a_key(words: Any, mark: Any) -> None:
    """The control: one product a lane, a XOR and a sum of the same word; rows that collide can be made in seconds."""
    for i in range(len(words)):
        word = words[i] ^ (words[i] >> _32)
        a, b = (mark[i, 0] ^ word) * _ODD[0], (mark[i, 1] + word) * _ODD[1]
        mark[i, 0], mark[i, 1] = a ^ (a >> _32), b ^ (b >> _29)


def hashed(rows: int) -> dict[str, Any]:
    """Seconds on one core for so many rows of 20 words, batch by batch, and for a tenth as many texts; medians."""
    rng = np.random.default_rng(3)
    numbers = rng.normal(size=(WORDS, BATCH_ROWS))
    values, each = rng.integers(0, LISTED, (WORDS, BATCH_ROWS)), np.arange(float(LISTED)).view(np.uint64)
    out, codes = np.empty(BATCH_ROWS, np.uint8), np.arange(LISTED, dtype=np.uint8)
    texts = [f"patient {number}" for number in range(BATCH_ROWS)]

    def without_a_key() -> None:
        mark = np.zeros((BATCH_ROWS, 2), np.uint64)
        for column in numbers:
            folded_without_a_key(column.view(np.uint64), mark)

    def keyed() -> None:
        own = RowHash(BATCH_ROWS, COINS)
        for column in numbers:
            own.add_numbers(column)
        own.marks()

    def keyed_listed() -> None:
        own = RowHash(BATCH_ROWS, COINS)
        for column in values:
            own.add_listed(column, 0, codes, each, out)
        own.marks()

    def texts_without_a_key() -> None:
        np.frombuffer(b"".join(hashlib.blake2b(one.encode(), digest_size=16).digest() for one in texts), np.uint64)

    ways = {
        "rows without a key": (without_a_key, rows),
        "rows": (keyed, rows),
        "rows of listed numbers": (keyed_listed, rows),
        "texts without a key": (texts_without_a_key, rows // 10),
        "texts": (lambda: COINS.digests(texts, PERSON), rows // 10),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(ROUNDS + 1):
        for name, (call, count) in ways.items():
            began = time.perf_counter()
            for _ in range(-(-count // BATCH_ROWS)):
                call()
            if number:  # the first compiles
                seconds[name].append(time.perf_counter() - began)
    found = {name: float(np.median(each)) for name, each in seconds.items()}
    ratios = {name: found[name] / found[f"{name} without a key"] for name in ("rows", "texts")}
    print("; ".join(f"{name}: {value:.2f} s" for name, value in found.items()))
    print("; ".join(f"{name}: {value:.2f} × without a key" for name, value in ratios.items()))
    return {"rows": rows, "texts": rows // 10, "words": WORDS, "rounds": ROUNDS, "seconds": found, "ratio": ratios}


def modelled(known: dict[str, Any]) -> dict[str, Any]:
    """Seconds of 1e10 rows on N nodes of two cores, from terms measured here and by `links`; a link is stated.

    open and fit grow with the rows of a node. The driver hands each piece over to each owner but its reader, beside the
    reading; records cross a node's link. A question that goes to the rows is a round over all nodes, with the steps
    since the last, and its sums are taken in by the driver one after the other.
    """
    links = record.read("scale-links")
    largest = max(known["grow"], key=lambda entry: entry["rows"])
    a, b = largest["open_seconds"] / largest["rows"], largest["fit_seconds"] / largest["rows"]
    rounds, each, handed = links["rounds"], links["round"]["each_actor_seconds"], links["handed"]
    out = []
    for nodes in (16, 64, 256):
        rows = MANY / nodes
        slower = max(1 / LINK, 1 / links["across_bytes_per_second"])
        loads = MANY / min(PIECE_MOST, rows / PIECES_EACH) * (nodes - 1)
        terms = {
            "open": a * rows,
            "hand-over": loads * (handed["load_seconds"] + handed["call_seconds"] / max(1, nodes // TOGETHER)),
            "exchange": links["record_bytes"] * rows * (nodes - 1) / nodes * slower,
            "fit": b * rows,
            "rounds": rounds * (links["round"]["one_actor_seconds"] + (nodes - 1) * each),
            "sums": rounds * nodes * links["answer_bytes"] * (1 / links["sums_bytes_per_second"] + 1 / LINK),
        }
        reading = max(terms["open"] + terms["exchange"], terms["hand-over"])
        total = reading + terms["fit"] + terms["rounds"] + terms["sums"]
        out.append({"nodes": nodes, "seconds": total, "most": max(terms, key=lambda name: terms[name]), **terms})
        print(f"{nodes} nodes: {total:.0f} s, " + ", ".join(f"{k} {v:.1f}" for k, v in terms.items()))
    return {"model": {"rows": MANY, "of": largest["rows"], "link_bytes_per_second": LINK, "nodes": out}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["grow", "ray", "persons", "marks", "model", "one"])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/distcondense-scale"))
    parser.add_argument("--given", default="{}")
    said = parser.parse_args()
    if said.what == "one":
        one(json.loads(said.given))
        return
    rows = [int(count) for count in said.rows]
    if said.what == "marks":
        record.write("scale-marks", hashed(rows[0]), seeds=[3])
        return
    known = record.read("scale") or {}
    ways = {
        "grow": lambda: grow(rows, said.folder),
        "ray": lambda: on_ray(rows, said.folder),
        "persons": lambda: by_person(rows[0], said.folder),
        "model": lambda: modelled(known),
    }
    known |= ways[said.what]()
    record.write("scale", known, seeds=[])


if __name__ == "__main__":
    main()
