"""Functions as Ray tasks (`TaskPool`), for the cells of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distcondense.cluster.ray.gauges import STUDY_CELLS, STUDY_TIME, Gauges
from distcondense.cluster.ray.processes import cause_of, environment
from distcondense.cluster.ray.session import Session, load_ray
from distcondense.errors import ClusterError, UserError


class TaskPool:
    """Functions as Ray tasks, a bounded number at once, each with the cores and the memory it is allowed."""

    def __init__(self, session: Session, *, at_once: int | None = None, num_cpus: float = 1, memory: int = 0) -> None:
        self._ray = load_ray()
        places = session.places("task", num_cpus, memory=memory)
        self.at_once = min(places, at_once or places)
        self._options = {
            "num_cpus": num_cpus,
            "memory": memory or None,
            "max_retries": 0,
            "runtime_env": environment(max(1, int(num_cpus))),
        }
        self._running: dict[Any, int] = {}
        self._cells, self._time = Gauges(STUDY_CELLS, "study", "state"), Gauges(STUDY_TIME, "study")
        self._shown: dict[str, int] = {}  # cells by state, as last shown

    def start(self, number: int, function: Callable[..., Any], *arguments: Any) -> None:
        """Run a function; `wait` gives its value with this number."""
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
            if isinstance(error.cause, UserError):
                return error.cause
            # its type only: an error's text may hold what it was computing on
            return ClusterError("task", "must end well", found=type(error.cause).__name__)
        except self._ray.exceptions.RayError as error:
            return ClusterError("task", "must end well", found=cause_of(error))

    def show(self, study: str, cells: Mapping[str, int], seconds_left: float | None) -> None:
        """Gauges on Ray's dashboard and its Prometheus endpoint: cells by state, and the time that is left."""
        self._shown |= dict.fromkeys(self._shown, 0) | dict(cells)  # what is not there any more would stay as it was
        for state, count in self._shown.items():
            self._cells.set({"study_cells": count}, study=study, state=state)
        if seconds_left is not None:
            self._time.set({"study_seconds_left": seconds_left}, study=study)

    def cancel(self) -> None:
        """End all that is running."""
        for ticket in self._running:
            self._ray.cancel(ticket, force=True)
        self._running.clear()
