"""The planner, and tiles from a pool of workers that are played: no Ray, no threads, a clock that is moved by hand.

Each life of a played worker says how fast it is and how it ends. Its answers are computed for real, so every test can
ask for the only thing that counts: J has the bits of the Jacobian computed in one piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distcondense.arrays import Matrix
from distcondense.cluster.config import Cluster
from distcondense.cluster.plan import LEAST_SECONDS, TILE_SECONDS, TILES_EACH, Grid, plan, shares
from distcondense.cluster.pool import PATIENCE, Outlook, WorkerLost
from distcondense.cluster.tiles import AHEAD, TileDispatcher
from distcondense.cluster.worker import Identity, Shared, TileResult, blas_kernels, versions
from distcondense.errors import ClusterError, ModelError
from distcondense.models.base import BlackBox
from distcondense.models.jacobian import BatchTiler, Tile
from tests import naive

NEVER = math.inf
VERSIONS, BLAS = versions(), blas_kernels()  # asking takes longer than a played step
ROWS, COLUMNS, SHAPE = 13, 10, (4, 3)  # 4 stripes × 4 blocks of units, the last ones cut short
UNITS = 16


# ---- the planner


def entries(tile: Tile) -> list[tuple[int, int]]:
    return [(i, j) for i in range(tile.top, tile.bottom) for j in range(tile.first, tile.last)]


sides = st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 5), st.integers(1, 5))


@given(sides, st.data())
def test_tiles_of_a_run_of_units_are_those_units_and_no_other(side: tuple[int, int, int, int], data: Any) -> None:
    grid, slow = Grid(*side), naive.units(*side)
    assert grid.units == len(slow)
    first = data.draw(st.integers(0, grid.units))
    last = data.draw(st.integers(first, grid.units))
    found = grid.tiles(first, last)
    covered = [entry for _, tile in found for entry in entries(tile)]
    assert sorted(covered) == sorted(entry for unit in slow[first:last] for entry in unit)
    assert sum(units for units, _ in found) == last - first
    for units, tile in found:
        assert sum(set(unit) <= set(entries(tile)) for unit in slow) == units  # none is cut
    assert len(found) <= 3  # the end of a stripe, whole stripes, the start of one


@given(st.integers(0, 500), st.lists(st.floats(0, 1e9, allow_subnormal=False), min_size=1, max_size=9))
def test_shares_add_up_and_are_within_one_of_the_exact_ones(units: int, speeds: list[float]) -> None:
    found = shares(units, speeds)
    assert sum(found) == units
    total = sum(speeds)
    for share, speed in zip(found, speeds, strict=True):
        assert abs(share - (units * speed / total if total else units / len(speeds))) < 1 + 1e-9
        assert share == 0 or speed > 0 or total == 0  # who is away gets nothing


@given(st.integers(0, 100), st.lists(st.integers(0, 8), max_size=7))
def test_shares_are_the_largest_remainders(units: int, speeds: list[int]) -> None:
    whole = [*map(float, speeds), 64.0 - sum(speeds)]  # a power of two in all: no rounding to disagree about
    assert shares(units, whole) == naive.shares(units, whole)
    assert shares(units, [0.0] * len(whole)) == naive.shares(units, [0.0] * len(whole))


@given(sides, st.lists(st.floats(0, 1e4), min_size=1, max_size=5).filter(any))
def test_a_plan_covers_every_entry_once_in_the_order_of_the_table(
    side: tuple[int, int, int, int], speeds: list[float]
) -> None:
    grid = Grid(*side)
    jobs = plan(grid, speeds)
    seen = np.zeros((grid.rows, grid.columns), int)
    for job in jobs:
        seen[job.tile.top : job.tile.bottom, job.tile.first : job.tile.last] += 1
    assert (seen == 1).all()
    assert [job.worker for job in jobs] == sorted(job.worker for job in jobs)
    given_to = [sum(job.units for job in jobs if job.worker == k) for k in range(len(speeds))]
    assert given_to == shares(grid.units, speeds)
    left = list(given_to)
    for job in jobs:
        speed = speeds[job.worker]
        assert speed > 0
        assert job.units <= max(1, speed * LEAST_SECONDS, -(-left[job.worker] // TILES_EACH))
        assert job.units <= max(1, speed * TILE_SECONDS)
        left[job.worker] -= job.units


# ---- a played workers


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Life:
    """One life of a worker. Requests are counted from 0; calibration, where there is one, is the first."""

    speed: float = 10.0  # units per second
    boot: float = 0.125  # seconds before it says who it is; NEVER: there is no room for it
    hangs: bool = False  # with boot=NEVER: there is room, and it never says anything
    dies_at: int | None = None  # dies in the middle of this request; −1: before it says who it is
    stalls_at: int | None = None  # takes `wakes` seconds for this request, and what is queued behind it waits as well
    wakes: float = NEVER
    fails_at: int | None = None  # the model raises `error` in this request
    error: BaseException = field(default_factory=lambda: ModelError("model", "must work", found="a fault"))
    lost: WorkerLost = field(default_factory=lambda: WorkerLost("its process died"))
    versions: dict[str, str] = field(default_factory=dict)
    blas: str = BLAS


@dataclass
class _Alive:
    life: Life
    up_at: float
    free_at: float
    requests: int = 0
    dead_at: float = NEVER
    tickets: set[int] = field(default_factory=set)


class PlayedWorkers:
    """`Workers` that compute at once and answer when the clock says so."""

    def __init__(self, lives: Sequence[Sequence[Life]], way: BatchTiler, clock: Clock, order: Random | None = None):
        self.size, self.clock = len(lives), clock
        self.asked: list[tuple[int, str, Tile]] = []
        self.launched: list[tuple[float, int]] = []  # when, who
        self.dropped: list[int] = []
        self._lives, self._way, self._order = [list(each) for each in lives], way, order
        self._alive: list[_Alive | None] = [None] * self.size
        self._book: dict[int, tuple[float, Any]] = {}  # ticket → when it is settled, and how
        self._tickets = count()
        self._waits = 0

    def launch(self, worker: int, *arguments: Any) -> Hashable:
        assert not arguments
        life = self._lives[worker].pop(0) if len(self._lives[worker]) > 1 else self._lives[worker][0]
        assert self._alive[worker] is None
        up_at = self.clock.now + life.boot
        self._alive[worker] = _Alive(life, up_at, up_at)
        self.launched.append((self.clock.now, worker))
        who = Identity(f"host{worker}", worker, "", {**VERSIONS, **life.versions}, life.blas)
        return self._settle(worker, up_at, life.lost if life.dies_at == -1 else who)

    def put(self, value: Shared) -> Any:
        return ("handed", value)

    def call(self, worker: int, method: str, *arguments: Any, parts: int = 0) -> tuple[Hashable, list[Any]]:
        assert parts == 0
        return self._request(worker, method, *arguments), []

    def wait(self, tickets: Sequence[Any], seconds: float) -> list[tuple[Hashable, Any]]:
        self._waits += 1
        assert self._waits < 5_000, "this does not end"
        assert set(tickets) <= set(self._book), "nobody will ever answer these"
        due = min((self._book[ticket][0] for ticket in tickets), default=NEVER)
        self.clock.now = max(self.clock.now, min(due, self.clock.now + seconds))
        ready = [ticket for ticket in tickets if self._book[ticket][0] <= self.clock.now]
        if self._order is not None and ready:
            self._order.shuffle(ready)
            ready = ready[: self._order.randint(1, len(ready))]
        return [(ticket, self._book[ticket][1]) for ticket in ready]

    def drop(self, worker: int, identity: Identity | None) -> None:
        if (one := self._alive[worker]) is not None:
            for ticket in one.tickets:
                self._book.pop(ticket, None)
        self._alive[worker] = None
        self.dropped.append(worker)

    def outlook(self) -> Outlook:
        pending = [one.life for one in self._alive if one is not None and one.up_at > self.clock.now]
        return Outlook(sum(life.hangs or life.boot < NEVER for life in pending), "0 free cores")

    def units(self, worker: int) -> int:
        """How much a worker was asked for, in tiles of steps."""
        return sum(self.units_of(tile) for who, kind, tile in self.asked if (who, kind) == (worker, "tile"))

    def units_of(self, tile: Tile) -> int:
        height, width = self._way.grid(ROWS)
        return -(-(tile.bottom - tile.top) // height) * -(-(tile.last - tile.first) // width)

    def _request(self, worker: int, kind: str, handed: Any, tile: Tile) -> Hashable:
        one, now = self._alive[worker], self.clock.now
        assert one is not None, "asked although it is gone"
        assert one.up_at <= now, "asked before it is up"
        assert handed[0] == "handed"
        self.asked.append((worker, kind, tile))
        number, one.requests = one.requests, one.requests + 1
        seconds = self.units_of(tile) / one.life.speed
        begins = max(now, one.free_at)
        if number == one.life.dies_at:
            one.dead_at = begins + seconds / 2
        if number == one.life.stalls_at:
            seconds = one.life.wakes
        one.free_at = begins + seconds
        value: Any = one.life.error
        if number != one.life.fails_at:
            part = TileResult(self._way.tile(handed[1].X, handed[1].widths, tile), seconds)
            value = part if kind == "tile" else part.seconds
        return self._settle(worker, one.free_at, value)

    def _settle(self, worker: int, when: float, value: Any) -> int:
        """Enter an answer, unless its worker is dead by then."""
        one, ticket = self._alive[worker], next(self._tickets)
        assert one is not None
        one.tickets.add(ticket)
        lost = when > one.dead_at
        self._book[ticket] = (max(one.dead_at, self.clock.now), one.life.lost) if lost else (when, value)
        return ticket


class Cut(BatchTiler):
    """A black box's batches of a given shape, and how often each entry of J was placed."""

    def __init__(self, shape: tuple[int, int] = SHAPE) -> None:
        slope = np.linspace(-1, 1, COLUMNS, dtype=np.float32)
        model = BlackBox(lambda rows: np.tanh(rows @ slope + rows[:, 0] * rows[:, 3]), "log-risk", COLUMNS)
        super().__init__(model, "blocked")
        self.shape, self.placed = shape, np.zeros((ROWS, COLUMNS), int)

    def grid(self, rows: int) -> tuple[int, int]:
        return self.shape

    def place(self, J: Matrix, tile: Tile, part: Matrix) -> None:
        self.placed[tile.top : tile.bottom, tile.first : tile.last] += 1
        super().place(J, tile, part)


@dataclass
class Scene:
    """A dispatcher that asks played workers."""

    dispatcher: TileDispatcher
    workers: PlayedWorkers
    clock: Clock
    way: Cut
    said: list[str]

    def step(self, seed: int = 0) -> float:
        """One step: J must be right to the bit and complete; the seconds it took."""
        shared, began = rows_of(seed), self.clock.now
        self.way.placed[:] = 0
        J = self.dispatcher.jacobian(shared)
        assert J.tobytes() == direct(shared).tobytes()
        assert (self.way.placed == 1).all()
        return self.clock.now - began


def rows_of(seed: int) -> Shared:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    X.flags.writeable = False  # as out of an object store
    return Shared(X, rng.uniform(0.1, 1, COLUMNS).astype(np.float32))


def direct(shared: Shared) -> Matrix:
    """J in one piece."""
    way, whole = Cut(), Tile(0, ROWS, 0, COLUMNS)
    J = np.zeros(shared.X.shape, np.float32)
    way.place(J, whole, way.tile(shared.X, shared.widths, whole))
    return J


def scene(*lives: Life | Sequence[Life], order: Random | None = None, calibrated: bool = True, **config: Any) -> Scene:
    clock, way, said = Clock(), Cut(), list[str]()
    workers = PlayedWorkers([[each] if isinstance(each, Life) else each for each in lives], way, clock, order)
    dispatcher = TileDispatcher(workers, Cluster(**config), way, clock=clock, log=said.append)
    if calibrated:
        dispatcher.calibrate(rows_of(0))
    return Scene(dispatcher, workers, clock, way, said)


# ---- a workers that is well


def test_the_bits_are_those_of_the_whole_with_any_number_of_workers() -> None:
    for size in (1, 2, 3, 5, 20):
        played = scene(*[Life()] * size)
        for seed in range(3):
            played.step(seed)
        counts, pool = played.dispatcher.counts, played.dispatcher.pool
        assert (pool.restarts, counts.computed_twice, pool.causes) == (0, 0, [])
        assert counts.tiles == sum(kind == "tile" for _, kind, _ in played.workers.asked)  # none was asked for twice


def test_each_worker_is_measured_once_on_one_unit_before_the_first_step() -> None:
    played = scene(Life(speed=10), Life(speed=40), Life(speed=2.5))
    assert sorted(played.workers.asked, key=lambda asked: asked[0]) == [
        (worker, "calibrate", Tile(0, SHAPE[0], 0, SHAPE[1])) for worker in range(3)
    ]
    assert played.dispatcher.speeds == pytest.approx([10, 40, 2.5])
    assert [member.identity and member.identity.host for member in played.dispatcher.pool.members] == [
        "host0",
        "host1",
        "host2",
    ]


def test_unequal_workers_get_work_by_their_speed() -> None:
    played = scene(Life(speed=30), Life(speed=10))
    took = played.step()
    assert (played.workers.units(0), played.workers.units(1)) == (12, 4)
    assert took == pytest.approx(UNITS / 40)


@pytest.mark.parametrize("speeds", [(10, 1), (100, 1), (1, 100), (7, 3, 1), (50, 1, 1)])
def test_a_slow_worker_never_makes_a_step_slower_than_the_fastest_one_alone(speeds: tuple[float, ...]) -> None:
    played = scene(*(Life(speed=speed) for speed in speeds))
    for seed in range(3):
        assert played.step(seed) <= UNITS / max(speeds) + 1e-9
    assert played.dispatcher.counts.computed_twice == 0


def test_whoever_is_done_early_takes_over_what_a_slower_one_still_has() -> None:
    """Measured alike, but one is ten times slower in earnest: its queue is emptied by the other, then it gets less."""
    fooled = scene(Life(), Life())
    fooled.workers._alive[1].life = Life(speed=1.0)  # type: ignore[union-attr]
    first = fooled.step(0)
    assert fooled.workers.units(0) > fooled.workers.units(1)
    assert first < UNITS / 2 / 1.0  # half the units at the slow one's speed: what its share would have taken
    for seed in range(1, 30):
        later = fooled.step(seed)
    assert fooled.dispatcher.speeds == pytest.approx([10, 1], rel=0.1)  # its answers came too late, but they came
    assert later <= UNITS / 10 < first


def test_a_worker_that_comes_up_late_is_given_work_as_soon_as_it_is_there() -> None:
    played = scene(Life(speed=2), Life(boot=NEVER), calibrated=False, start_timeout=10)
    played.workers._book[1] = (103.0, played.workers._book[1][1])  # up three seconds from now
    played.workers._alive[1].up_at = played.workers._alive[1].free_at = 103.0  # type: ignore[union-attr]
    played.dispatcher.pool.members[1].losses = 1  # nobody waits for it
    took = played.step()
    assert played.clock.now - took < 103 < played.clock.now
    assert played.workers.units(1) > 0
    assert played.dispatcher.speeds[1] == pytest.approx(10)


def test_a_worker_there_is_no_room_for_does_not_hold_the_others_up_for_ever() -> None:
    played = scene(Life(), Life(boot=NEVER), Life(), start_timeout=20)
    assert played.clock.now <= 100 + 20 + 1
    took = played.step()
    assert took <= 1
    assert played.workers.units(1) == 0


def test_bytes_and_tiles_are_counted() -> None:
    played = scene(Life(), Life())
    shared, counts = rows_of(0), played.dispatcher.counts
    moved = counts.bytes_moved
    assert moved == shared.nbytes
    played.step()
    assert counts.bytes_moved - moved == shared.nbytes + ROWS * COLUMNS * 4
    assert counts.seconds == pytest.approx(played.clock.now - 100.125 - 0.1)


# ---- workers that die


def test_tiles_of_a_worker_that_dies_are_computed_again_by_others() -> None:
    played = scene([Life(dies_at=2), Life(boot=NEVER)], Life())
    played.step()
    assert played.dispatcher.pool.causes == ["its process died"]
    assert played.workers.dropped == [0]
    asked = [tile for _, kind, tile in played.workers.asked if kind == "tile"]
    assert len(asked) > played.dispatcher.counts.tiles  # what it had in hand was asked for again
    assert played.said == ["worker 0 lost (its process died); its work is done again, it is started again in 0.5 s"]


def test_a_worker_that_died_comes_back_after_its_backoff_and_computes_again() -> None:
    played = scene([Life(dies_at=1), Life()], Life(speed=0.25))
    played.step()
    assert played.dispatcher.pool.restarts == 1
    (_, first), (_, second), (again, who) = played.workers.launched
    assert (first, second, who) == (0, 1, 0)
    assert again == pytest.approx(100.125 + 4 + 2 / 10 + 0.5, abs=0.3)
    assert played.dispatcher.speeds[0] == pytest.approx(10)
    before = played.workers.units(0)
    played.step(1)
    assert played.workers.units(0) > before


def test_the_backoff_doubles_with_each_death_in_a_row() -> None:
    dead = Life(dies_at=-1, boot=0)
    played = scene([Life(dies_at=1), dead, dead, Life()], Life(speed=0.25), backoff=0.25, max_restarts=3)
    played.step()
    times = [when for when, who in played.workers.launched if who == 0][1:]
    assert np.diff(times) == pytest.approx([0.5, 1.0])
    assert played.dispatcher.pool.restarts == 3
    assert [line.rsplit(" ", 2)[1] for line in played.said] == ["0.25", "0.5", "1"]


def test_a_good_tile_clears_a_workers_record() -> None:
    """It dies in its second tile in every life: for ever below the cap, as there is progress each time."""
    played = scene([Life(dies_at=2), Life(dies_at=1)], max_restarts=1, backoff=0.125)
    played.step()
    assert played.dispatcher.pool.restarts > 3  # far over the cap
    assert all(line.endswith("0.125 s") for line in played.said)


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_worker_that_dies_for_ever_ends_the_run_with_its_cause(most: int) -> None:
    last = Life(dies_at=0, lost=WorkerLost("out of memory"))
    played = scene([Life(dies_at=1, lost=WorkerLost("out of memory")), last], Life(speed=0.001), max_restarts=most)
    with pytest.raises(ClusterError) as caught:
        played.step()
    assert caught.value.what == "worker 0"
    assert caught.value.found == f"lost {most + 1} times in a row: out of memory"
    assert "memory" in caught.value.fix
    assert played.dispatcher.pool.restarts == most


@pytest.mark.parametrize("dies_at", [-1, 0, 1])
def test_a_worker_that_would_fail_again_ends_the_run_at_once(dies_at: int) -> None:
    gone = Life(dies_at=dies_at, lost=WorkerLost("package 'lightgbm' is not installed on the worker", again=False))
    with pytest.raises(ClusterError, match=r"lightgbm.*Fix: install it on every node") as caught:
        scene(gone, Life()).step()
    assert "in a row" not in caught.value.found


def test_when_all_are_dead_the_step_goes_on_with_the_first_that_is_back() -> None:
    played = scene([Life(dies_at=1), Life()], [Life(dies_at=1), Life(boot=NEVER)])
    played.step()
    assert played.dispatcher.pool.restarts == 2
    assert played.dispatcher.pool.causes == ["its process died"] * 2


def test_a_step_that_begins_with_everybody_dead_waits_for_one() -> None:
    played = scene([Life(), Life(), Life()])
    played.dispatcher.pool.lose(0, WorkerLost("its node died"))
    played.step()
    assert played.dispatcher.pool.restarts == 1


@pytest.mark.parametrize("size", [1, 2])
def test_a_crew_that_dies_while_it_is_measured_is_measured_again(size: int) -> None:
    played = scene(*[[Life(dies_at=0), Life()]] * size)
    assert any(played.dispatcher.speeds)
    played.step()


def test_a_worker_that_dies_while_it_is_measured_holds_nobody_up() -> None:
    played = scene([Life(dies_at=0), Life(boot=NEVER)], Life())
    assert played.clock.now < 101
    played.step()


def test_no_room_for_anybody_ends_the_run_in_time() -> None:
    with pytest.raises(ClusterError, match=r"must have room for one worker within 7 s\. Found 0 free cores"):
        scene(Life(boot=NEVER), Life(boot=NEVER), start_timeout=7)
    played = scene([Life(dies_at=1), Life(boot=NEVER)], start_timeout=7)
    began = played.clock.now
    with pytest.raises(ClusterError, match="within 7 s"):
        played.step()
    assert 7 < played.clock.now - began < 9


@pytest.mark.parametrize("boot", [8.0, 69.0])
def test_a_worker_that_has_its_cores_is_slow_and_not_missing(boot: float) -> None:
    played = scene(Life(boot=boot), Life(boot=NEVER), start_timeout=7)
    assert played.clock.now == pytest.approx(100 + boot, abs=1)
    played.step()
    assert played.said[0] == "too few workers are up after 7 s; 1 have their cores and are starting"
    assert len([line for line in played.said if "are starting" in line]) == 1


def test_a_worker_that_has_its_cores_and_never_answers_is_given_up_in_the_end() -> None:
    played = scene([Life(dies_at=1), Life(boot=NEVER, hangs=True)], start_timeout=7)
    began = played.clock.now
    with pytest.raises(
        ClusterError, match=r"within 70 s\. Found 1 of 1 missing, 1 that have their cores and do not answer"
    ):
        played.step()
    assert 7 * PATIENCE < played.clock.now - began < 7 * PATIENCE + 2


def test_workers_that_die_slowly_one_after_the_other_are_named_by_their_cause() -> None:
    """Nobody is up for longer than start_timeout, and there is room all the time."""
    with pytest.raises(ClusterError, match=r"lost 4 times in a row: its process died"):
        scene(Life(boot=5, dies_at=-1), start_timeout=7, backoff=2.0)


# ---- workers that stall


def test_what_a_stalled_worker_holds_is_computed_by_others() -> None:
    played = scene(Life(stalls_at=1), Life())
    took = played.step()
    assert played.dispatcher.counts.computed_twice == AHEAD
    assert played.dispatcher.pool.causes == []
    assert took < 5
    held = [tile for who, kind, tile in played.workers.asked if (who, kind) == (0, "tile")]
    assert len(held) == AHEAD
    for tile in held:
        assert played.workers.asked.count((1, "tile", tile)) == 1


@pytest.mark.parametrize("stalls_at", [1, 2, 3, 4])
def test_a_stalled_worker_is_given_nothing_in_later_steps(stalls_at: int) -> None:
    played = scene(Life(stalls_at=stalls_at), Life())
    played.step(0)
    before = played.workers.units(0)
    for seed in range(1, 4):
        assert played.step(seed) <= UNITS / 10 + 1e-9  # as if the other were alone, without waiting for the first
    assert played.workers.units(0) == before


def test_the_share_of_a_stalled_worker_is_divided_by_the_speed_of_the_others() -> None:
    played = scene(Life(speed=100, stalls_at=1), Life(speed=30), Life(speed=10))
    played.step(0)
    before = [played.workers.units(worker) for worker in range(3)]
    assert played.step(1) == pytest.approx(UNITS / 40)
    assert [played.workers.units(worker) - was for worker, was in enumerate(before)] == [0, 12, 4]


def test_a_tile_that_comes_from_two_workers_in_one_step_counts_once() -> None:
    """The other one computes the first tile again and stalls on the second; then the first one wakes and sends both."""
    alone = scene(Life(stalls_at=1, wakes=30.0), Life())
    alone.step()
    requests = [tile for who, _, tile in alone.workers.asked if who == 1]  # the last two are the other one's
    played = scene(Life(stalls_at=1, wakes=30.0), Life(stalls_at=len(requests) - 1))
    assert played.step() > 30
    first, second = (tile for who, kind, tile in played.workers.asked if (who, kind) == (0, "tile"))
    assert [tile for who, _, tile in played.workers.asked if who == 1][-2:] == [first, second]


def test_a_stalled_workers_late_answer_is_ignored_and_it_gets_work_again() -> None:
    played = scene(Life(stalls_at=1, wakes=4.0), Life(speed=8))
    played.step(0)
    before = played.workers.units(0)
    for seed in range(1, 8):  # the late tile comes in one of these, of other rows
        played.step(seed)
    assert played.clock.now > 105
    assert played.workers.units(0) > before
    assert played.dispatcher.counts.computed_twice == AHEAD


@pytest.mark.parametrize("second", range(1, 8))  # in one of these it is the first one's tile
def test_a_tile_on_which_two_workers_stall_is_computed_by_a_third(second: int) -> None:
    played = scene(Life(stalls_at=1), Life(stalls_at=second), Life())
    assert played.step() < 30
    played.step(1)


def test_one_stalled_and_one_dead_leave_the_rest_to_the_third() -> None:
    played = scene(Life(stalls_at=1), [Life(dies_at=1), Life(boot=NEVER)], Life())
    assert played.step() < 10


def test_a_fast_worker_that_stalls_is_relieved_by_a_slow_one() -> None:
    played = scene(Life(speed=100, stalls_at=1), Life(speed=1))
    assert played.step() < 3 * UNITS
    assert played.step(1) < 2 * UNITS


def test_a_worker_that_stalls_while_it_is_measured_holds_the_run_up_for_a_while_only() -> None:
    played = scene(Life(stalls_at=0), Life(), start_timeout=15)
    assert played.clock.now < 100 + 15 + 1
    assert played.step() < 2
    assert played.workers.units(0) == 0


# ---- errors


def test_an_error_of_the_model_is_raised_as_it_is() -> None:
    error = ModelError("reference model 'svm'", "must return finite scores", found="3 scores that are NaN")
    played = scene(Life(fails_at=2, error=error), Life())
    with pytest.raises(ModelError) as caught:
        played.step()
    assert caught.value is error
    assert played.dispatcher.pool.causes == []
    with pytest.raises(ModelError):
        scene(Life(fails_at=0, error=error), Life())


def test_a_step_after_one_that_failed_takes_nothing_of_it() -> None:
    """Tiles of the failed step come back later; they are of other rows."""
    played = scene(Life(fails_at=1), Life(speed=1))
    with pytest.raises(ModelError):
        played.step(0)
    played.step(1)


@pytest.mark.parametrize("late", [False, True])
def test_a_worker_with_other_versions_is_refused(late: bool) -> None:
    other = Life(versions={"numpy": "1.0", "backend": "other"})
    lives = ([Life(dies_at=1), other], Life(speed=0.5)) if late else (other, Life())
    with pytest.raises(ClusterError) as caught:
        scene(*lives).step()
    ours = VERSIONS
    assert caught.value.what == "worker on host0"
    assert caught.value.found == f"numpy 1.0 (here {ours['numpy']}), backend other (here {ours['backend']})"


def test_a_worker_on_another_kind_of_processor_is_spoken_of_once_and_works() -> None:
    played = scene(Life(blas="Z80"), Life())
    played.step()
    played.step()
    spoken = [line for line in played.said if "another processor" in line]
    assert len(spoken) == 1
    assert "host0" in spoken[0]
    assert "Z80" in spoken[0]


# ---- anything at all

lives = st.builds(
    Life,
    speed=st.sampled_from([0.5, 3.0, 10.0, 200.0]),
    boot=st.sampled_from([0.0, 0.125, 2.0]),
    dies_at=st.none() | st.integers(-1, 6),
    stalls_at=st.none() | st.integers(0, 6),
    wakes=st.sampled_from([1.0, 9.0, NEVER]),
)
sound = st.builds(Life, speed=st.sampled_from([0.5, 3.0, 10.0, 200.0]))


@given(
    st.lists(st.lists(lives, min_size=1, max_size=3), max_size=3),
    st.lists(lives, max_size=3),
    sound,
    st.integers(0, 2**32),
)
@settings(max_examples=150)
def test_whoever_dies_stalls_or_answers_in_whatever_order_the_bits_are_the_same(
    others: list[list[Life]], doomed: list[Life], last: Life, seed: int
) -> None:
    """Someone is sound in the end: then every step ends, and each is right."""
    certain: Callable[[Life], Life] = lambda life: Life(life.speed, life.boot, life.dies_at)  # noqa: E731
    workers = [*[[*each, last] for each in others], [*map(certain, doomed), last]]
    played = scene(*workers, order=Random(seed), max_restarts=10, backoff=0.25)
    for step in range(4):
        played.step(step)


# ---- a watchdog


def test_a_worker_that_hangs_alone_is_replaced_after_the_stated_time() -> None:
    played = scene([Life(stalls_at=1), Life()], hung_after=40, backoff=0)
    assert 40 < played.step() < 50
    played.step(1)
    assert played.dispatcher.pool.causes == ["no answer within 40 s"]
    assert played.workers.dropped == [0]
    assert any("no answer within 40 s" in line for line in played.said)


def test_workers_that_all_hang_are_replaced_and_a_slow_one_is_left_alone() -> None:
    played = scene([Life(stalls_at=1), Life()], [Life(stalls_at=2), Life()], hung_after=40, backoff=0)
    played.step()
    played.step(1)
    assert set(played.dispatcher.pool.causes) == {"no answer within 40 s"}
    slow = scene(Life(stalls_at=1, wakes=39.0), hung_after=40)
    slow.step()
    assert slow.dispatcher.pool.causes == []


def test_a_crew_that_hangs_for_ever_ends_the_run_in_words() -> None:
    lives = [Life(stalls_at=1), *[Life(stalls_at=0)] * 9]
    played = scene(lives, hung_after=40, backoff=0, max_restarts=2)
    with pytest.raises(ClusterError, match=r"lost 3 times in a row: no answer within 40 s"):
        played.step()
