"""Numbers of a run on Ray's dashboard and its Prometheus endpoint; none of them tells a value of a patient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distcondense.cluster.ray.session import load_ray

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
