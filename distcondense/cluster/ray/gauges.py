"""Numbers of a run on Ray's dashboard and its Prometheus endpoint; none of them tells a value of a patient."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from distcondense.cluster.config import IN_A_JOB, Cluster
from distcondense.cluster.ray.session import connected, load_ray
from distcondense.errors import ClusterError

RUN = {
    "run_step": "Step of the phase that the tag names.",
    "run_steps": "Steps of that phase; 0 where nobody can foresee them.",
    "run_seconds": "Seconds since the run began.",
}
TILES = {
    "steps_per_second": "Steps of the loop per second.",
    "tiles_per_second": "Tiles of the Jacobian that came back per second.",
    "bytes_moved": "Bytes through the object store since the run began.",
    "actor_restarts": "Actors started again since the run began.",
}
EPSILON = {"epsilon": "Privacy spent so far; the tag says by which guarantee."}
ROWS = {
    "rows_rows_per_second": "Rows read per second.",
    "rows_rows_read": "Rows read so far.",
    "rows_bytes_read": "Bytes read so far.",
    "rows_shards": "Owners that have their rows.",
    "rows_seconds_left": "Seconds until all rows are read, about.",
    "rows_restarts": "Workers replaced.",
    "rows_moved": "Buckets that went from slow workers to others.",
}
STUDY_CELLS = {"study_cells": "Cells of the study by state."}
STUDY_TIME = {"study_seconds_left": "Seconds until the study is done, as far as is known."}


@contextmanager
def on_gauges(
    config: Cluster | None, name: str, on_progress: Callable[..., None], log: Callable[[str], None]
) -> Iterator[Callable[..., None]]:
    """A run's progress as gauges too, whatever computes it: on the cluster that it joins or whose job it is.

    A cluster that is to be started is none: where the run has no use for it nobody scrapes it. One that cannot be
    joined for this stops no run.

    Parameters
    ----------
    config
        The cluster that the run may use.
    name
        What the tag `run` says.
    on_progress
        Called as before, behind the gauges.
    log
        Told why there are none.
    """
    joined = config if config is not None and not config.starts_here else None
    if joined is None and IN_A_JOB in os.environ:
        joined = Cluster(address="auto")
    if joined is None:
        yield on_progress
        return
    with ExitStack() as stack:
        try:
            stack.enter_context(connected(joined))
            gauges = Gauges(RUN, "run", "doing")
        except ClusterError as error:
            if config is not None:
                raise
            log(f"no gauges: {error}")
            yield on_progress
            return
        began, before = time.monotonic(), ""

        def shown(*, step: int, steps: int, doing: str = "condensing", **facts: Any) -> None:
            nonlocal before
            if before not in ("", doing):  # what is over would stay as it was
                gauges.set(dict.fromkeys(RUN, 0.0), run=name, doing=before)
            before, numbers = doing, (step, steps, time.monotonic() - began)
            gauges.set(dict(zip(RUN, map(float, numbers), strict=True)), run=name, doing=doing)
            on_progress(step=step, steps=steps, doing=doing, **facts)

        yield shown


class Gauges:
    """Gauges by their names, which all begin with distcondense_; `tags` are those that every one of them has."""

    def __init__(self, about: Mapping[str, str], *tags: str) -> None:
        load_ray()
        from ray.util.metrics import Gauge

        self._gauges: dict[str, Any] = {
            name: Gauge(f"distcondense_{name}", description=text, tag_keys=tags) for name, text in about.items()
        }

    def set(self, values: Mapping[str, float], *, prefix: str = "", **tags: str) -> None:
        """Values by the gauges' names, without `prefix`."""
        for name, value in values.items():
            self._gauges[prefix + name].set(value, tags)
