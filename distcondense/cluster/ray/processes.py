"""What actors and tasks have in common: what their process starts with, why one is gone, and how one is ended."""

from __future__ import annotations

import os
import re
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

from distcondense import kernels
from distcondense.cluster.ray.session import load_ray
from distcondense.cluster.worker import Identity

THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # always one: with more a product may round otherwise
OUT_OF_MEMORY = "out of memory"


def environment(threads: int) -> dict[str, Any]:
    """A process's runtime environment; the backend is part of a run's identity, and it must not choose another."""
    variables = dict.fromkeys(THREADS, str(threads)) | dict.fromkeys(BLAS_THREADS, "1")
    return {"env_vars": {**variables, "DISTCONDENSE_BACKEND": kernels.backend()}}


def cause_of(error: BaseException) -> str:
    """Why a worker is gone, in a few words; no path, no process number, nothing of what it computed."""
    ray = load_ray()
    text = str(error)
    missing = re.search(r"No module named '([\w.]+)'", text)
    if missing:
        return f"package {missing[1]!r} is not installed on the worker"
    if isinstance(error, ray.exceptions.RuntimeEnvSetupError):
        return "its runtime environment could not be set up"
    memory = isinstance(error, ray.exceptions.OutOfMemoryError) or isinstance(
        getattr(error, "cause", None), MemoryError
    )
    if memory or "running low on memory" in text:  # Ray's memory monitor
        return OUT_OF_MEMORY
    if isinstance(error, ray.exceptions.NodeDiedError) or "its node has died" in text:
        return "its node died"
    if "creation task" in text:  # the last line is the error's, and only its type is told
        kind = text.strip().splitlines()[-1].partition(":")[0].strip()
        return OUT_OF_MEMORY if kind == "MemoryError" else f"it could not load the model ({kind})"
    if isinstance(error, ray.exceptions.RayActorError | ray.exceptions.WorkerCrashedError):
        return "its process died (killed, out of memory, or a crash in native code)"
    return type(error).__name__


def would_fail_again(error: BaseException) -> bool:
    """Starting again would end the same way: it never got as far as running."""
    return isinstance(error, load_ray().exceptions.RuntimeEnvSetupError) or "No module named" in str(error)


def end_process(who: Identity) -> None:
    """End a stopped process, which does not hear what Ray tells it, by a task on its node; others end by themselves."""
    if who.host == socket.gethostname():
        end_stopped(who.pid)
        return
    ray = load_ray()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(who.node, soft=False)
    with suppress(ray.exceptions.RayError):  # a node that is gone has no process left
        ray.remote(end_stopped).options(num_cpus=0, scheduling_strategy=there, max_retries=0).remote(who.pid)


def end_stopped(pid: int) -> None:
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "Tt":
            os.kill(pid, signal.SIGKILL)
