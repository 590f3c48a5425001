"""How the private model grows with the table: time and memory out of core, on Ray, by person; and a model of more.

    python -m benchmarks.scale grow --rows 1e6 1e7 1e8      # beside pyarrow reading the same columns, in the same run
    python -m benchmarks.scale ray --rows 1e7               # one process with two threads; one and two actors
    python -m benchmarks.scale persons --rows 1e7           # three rows a person, in random order; equal in memory
    python -m benchmarks.scale model                        # 1e10 rows on 16, 64, 256 nodes, from these and `links`

Tables are simulated (`data/datasets.py`: curial_like, 19 features and the outcome) and streamed to Parquet; they and
scratch files lie in --folder. Every measurement is a process of its own. Memory is anonymous memory: pages of mapped
files belong to their files. Results go to benchmarks/results/scale.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from distcondense.cluster.config import Cluster
from distcondense.cluster.shards import opened, opened_on, scratch
from distcondense.data.datasets import load, stream
from distcondense.data.files import PIECE_ROWS
from distcondense.data.large import LargeTable
from distcondense.data.persons import Coins
from distcondense.data.schema import Schema
from distcondense.methods.private.condense import public_side
from distcondense.methods.private.fit import fit_private
from distcondense.methods.private.options import PrivateOptions
from distcondense.privacy import noise
from distcondense.privacy.gate import gate_over
from distcondense.privacy.ledger import Ledger

RESULTS = Path(__file__).parent / "results" / "scale.json"
LINKS = RESULTS.with_name("scale-links.json")
MANY, LINK = 1e10, 1.25e9  # rows of the model; bytes per second of its network, 10 Gbit/s: stated, not measured
FEATURES = 19
GROUP_ROWS = 2**18
COINS = Coins(0.2, 2**80 + 11)


def schema() -> Schema:
    whole = load("curial_like", rows=10)
    names = [c.name for c in whole.schema.columns if c.name != whole.target][:FEATURES]
    return Schema(tuple(c for c in whole.schema.columns if c.name in {*names, whole.target}))


def target() -> str:
    return str(load("curial_like", rows=10).target)


def made(folder: Path, rows: int, persons: bool = False) -> Path:
    """The table on disk, in files of up to 2^24 rows; made once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = folder / f"rows-{rows}{'-persons' if persons else ''}"
    if (place / "_made").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    names, done, part, writer = schema().names, 0, 0, None
    who = np.random.default_rng(1).permutation(rows) // 3 if persons else None
    for frame in stream("curial_like", rows=rows, chunk_rows=GROUP_ROWS):
        chosen = frame[names]
        if who is not None:
            chosen = chosen.assign(who=who[done : done + len(frame)])
        table = pa.Table.from_pandas(chosen, preserve_index=False)
        if writer is None:
            writer = pq.ParquetWriter(place / f"{part:04d}.parquet", table.schema, compression="zstd")
        writer.write_table(table, row_group_size=GROUP_ROWS)
        done += len(frame)
        if done // 2**24 > part:
            writer.close()
            writer, part = None, done // 2**24
    if writer is not None:
        writer.close()
    (place / "_made").touch()
    return place


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


def held(place: Path) -> None:
    """The same columns once by pyarrow, on two threads, as a table in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(2)
    pq.read_table(place)


def fitted(
    place: Path, folder: Path, *, threads: int, actors: int, persons: bool, memory: int | None
) -> dict[str, Any]:
    """From files to the private model; seconds of both halves."""
    how: dict[str, Any] = {"target": target(), "schema": schema()}
    table = LargeTable.of(place, **how, **({"person_id": "who"} if persons else {}))
    public = public_side(table.facts, PrivateOptions(epsilon=1.0, rows_per_person=2 if persons else 5))
    cells, objective, most = public.cells, public.side.objective, public.rows_per_person
    began = time.perf_counter()
    exact: list[str] = []
    if persons:  # integers before noise, to compare with memory
        noise.discrete_gaussian = lambda sums, scale: (exact.append(repr(sums.tolist())), sums.copy())[1]  # type: ignore[assignment]
        noise.noisy_top = lambda scores, count, scale: np.argsort(-scores, kind="stable")[:count]  # type: ignore[assignment]
    if actors:
        opening: Any = opened_on(
            Cluster(address="local", actors=actors), table, cells, objective, COINS, most, scratch_=folder
        )
    else:
        opening = scratch(folder)
    with opening as first:
        rows = first if actors else opened(
            table, cells, objective, COINS, most, first, threads=threads, memory=memory
        )  # fmt: skip
        opened_at = time.perf_counter()
        gate = gate_over(rows, names=[c.column.name for c in cells], budget=public.budget, ledger=Ledger(),
                         unit=public.unit)  # fmt: skip
        learned = fit_private(gate, cells, public.plan, public.side)
    ended = time.perf_counter()
    found = {"rows": table.read_rows, "open_seconds": opened_at - began, "fit_seconds": ended - opened_at,
             "answers": len(gate.ledger.events), "rows_noisy": round(learned.rows)}  # fmt: skip
    return {**found, **({"exact": hash_of(exact)} if persons else {})}


def in_memory(place: Path) -> dict[str, Any]:
    """The person-level table read whole, and its integers before noise."""
    import pyarrow.parquet as pq

    from distcondense.data.cohort import Cohort
    from distcondense.data.tables import as_frame
    from distcondense.methods.private.condense import open_gate

    cohort = Cohort.from_frame(as_frame(pq.read_table(place)), target=target(), schema=schema(), person_id="who")
    options = PrivateOptions(epsilon=1.0, rows_per_person=2)
    public = public_side(cohort.facts, options)
    exact: list[str] = []
    noise.discrete_gaussian = lambda sums, scale: (exact.append(repr(sums.tolist())), sums.copy())[1]  # type: ignore[assignment]
    noise.noisy_top = lambda scores, count, scale: np.argsort(-scores, kind="stable")[:count]  # type: ignore[assignment]
    gate = open_gate(cohort, COINS.of(cohort).train, options, public, Ledger())
    fit_private(gate, public.cells, public.plan, public.side)
    return {"exact": hash_of(exact)}


def hash_of(exact: list[str]) -> str:
    import hashlib

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
    if what in ("scan", "table"):
        {"scan": scanned, "table": held}[what](place)
    elif what == "memory":
        found = in_memory(place)
    else:
        found = fitted(place, folder, **given)
    print(json.dumps({**found, "seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu,
                      "anonymous_bytes": peak.most}))  # fmt: skip


def grow(rows: list[int], folder: Path) -> dict[str, Any]:
    """Beside pyarrow twice: rows that pass by, and a table that is held. Differences tell what one row more costs."""
    found: list[dict[str, Any]] = []
    for count in rows:
        place = made(folder, count)
        scan, table = measured("scan", place, folder), measured("table", place, folder)
        ours = measured("ours", place, folder, threads=2, actors=0, persons=False, memory=None)
        last = {"rows": count, "scan_seconds": scan["seconds"], "scan_cpu_seconds": scan["cpu_seconds"],
                "table_seconds": table["seconds"], "table_bytes": table["anonymous_bytes"], **ours,
                "times_scan": ours["seconds"] / scan["seconds"], "times_table": ours["seconds"] / table["seconds"],
                "microseconds_a_row": 1e6 * ours["seconds"] / count}  # fmt: skip
        if found:
            more = count - found[-1]["rows"]
            last["microseconds_a_further_row"] = 1e6 * (ours["seconds"] - found[-1]["seconds"]) / more
            last["cpu_microseconds_a_further_row"] = 1e6 * (ours["cpu_seconds"] - found[-1]["cpu_seconds"]) / more
        found.append(last)
        print(f"{count:>11,} rows: {ours['seconds']:.1f} s ({ours['cpu_seconds']:.1f} s of the cores), "
              f"{last['times_table']:.2f}× pyarrow's table, {last['times_scan']:.2f}× its scan, "
              f"{ours['anonymous_bytes'] / 1e9:.2f} GB anonymous (the table: {table['anonymous_bytes'] / 1e9:.1f})",
              flush=True)  # fmt: skip
    return {"grow": found}


def on_ray(count: int, folder: Path) -> dict[str, Any]:
    place, found = made(folder, count), {}
    for name, how in (("two threads", {"threads": 2, "actors": 0}), ("one actor", {"threads": 1, "actors": 1}),
                      ("two actors", {"threads": 1, "actors": 2})):  # fmt: skip
        found[name] = measured("ours", place, folder, persons=False, memory=None, **how)
        print(f"{name}: {found[name]['open_seconds'] + found[name]['fit_seconds']:.1f} s", flush=True)
    return {"ray": {"rows": count, **found}}


def by_person(count: int, folder: Path) -> dict[str, Any]:
    place = made(folder, count, persons=True)
    ours = measured("ours", place, folder, threads=2, actors=0, persons=True, memory=None)
    small = made(folder, min(count, 10**6), persons=True)
    both = [measured("ours", small, folder, threads=2, actors=0, persons=True, memory=None)["exact"],
            measured("memory", small, folder)["exact"]]  # fmt: skip
    print(f"persons: {ours['seconds']:.1f} s; equal to memory at {min(count, 10**6):,} rows: {both[0] == both[1]}")
    return {"persons": {"rows": count, **ours, "equal_in_memory": both[0] == both[1]}}


def modelled(known: dict[str, Any]) -> dict[str, Any]:
    """Seconds of 1e10 rows on N nodes of two cores, from terms measured here and by `links`; a link is stated.

    open and fit grow with the rows of a node. A reader hands each piece over to each owner, by way of the driver, which
    goes on beside reading; records cross a node's link. An answer or a step is a round over all nodes, and its sums
    are taken in by the driver one after the other.
    """
    links = json.loads(LINKS.read_text())
    largest = max(known["grow"], key=lambda entry: entry["rows"])
    a, b = largest["open_seconds"] / largest["rows"], largest["fit_seconds"] / largest["rows"]
    answers, steps, each = links["answers"], links["steps"], links["round"]["each_actor_seconds"]
    out = []
    for nodes in (16, 64, 256):
        rows = MANY / nodes
        slower = max(1 / LINK, 1 / links["across_bytes_per_second"])
        terms = {
            "open": a * rows,
            "hand-over": MANY / PIECE_ROWS * nodes * each,
            "exchange": links["record_bytes"] * rows * (nodes - 1) / nodes * slower,
            "fit": b * rows,
            "rounds": sum(count * (links[name]["one_actor_seconds"] + (nodes - 1) * links[name]["each_actor_seconds"])
                          for name, count in (("round", answers), ("step", steps))),
            "sums": answers * nodes * links["answer_bytes"] * (1 / links["sums_bytes_per_second"] + 1 / LINK),
        }  # fmt: skip
        reading = max(terms["open"] + terms["exchange"], terms["hand-over"])
        total = reading + terms["fit"] + terms["rounds"] + terms["sums"]
        out.append({"nodes": nodes, "seconds": total, "most": max(terms, key=lambda name: terms[name]), **terms})
        print(f"{nodes} nodes: {total:.0f} s, " + ", ".join(f"{k} {v:.1f}" for k, v in terms.items()))
    return {"model": {"rows": MANY, "of": largest["rows"], "link_bytes_per_second": LINK, "nodes": out}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["grow", "ray", "persons", "model", "one"])
    parser.add_argument("--rows", type=float, nargs="+", default=[1e6])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/distcondense-scale"))
    parser.add_argument("--given", default="{}")
    said = parser.parse_args()
    if said.what == "one":
        one(json.loads(said.given))
        return
    rows = [int(count) for count in said.rows]
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    ways = {"grow": lambda: grow(rows, said.folder), "ray": lambda: on_ray(rows[0], said.folder),
            "persons": lambda: by_person(rows[0], said.folder), "model": lambda: modelled(known)}  # fmt: skip
    known |= ways[said.what]()
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
