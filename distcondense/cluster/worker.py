"""`TileWorker`: holds the model and computes tiles of its Jacobian. A plain class: it knows neither Ray nor noise.

It is given synthetic rows and the model, and draws no random number. No table of patients reaches it; a model that
keeps patients inside itself (an SVM, nearest neighbours) brings them along.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from threadpoolctl import threadpool_info

from distcondense import kernels
from distcondense.arrays import Matrix
from distcondense.errors import ClusterError
from distcondense.models.base import Model
from distcondense.models.jacobian import BatchTiler, JacobianPath, Tile, make_tiler

ALIKE = ("distcondense", "numpy", "numba", "xgboost", "scikit-learn", "treelite")  # whose version can move a bit


@dataclass(frozen=True)
class Shared:
    """What every tile of a step needs."""

    X: Matrix  # (m, d)
    widths: Matrix  # (d,)

    @property
    def nbytes(self) -> int:
        return self.X.nbytes + self.widths.nbytes


@dataclass(frozen=True)
class Identity:
    """Who a worker is; the driver refuses one that would compute other bits."""

    host: str
    pid: int
    node: str  # of a cluster; "" in process
    versions: dict[str, str]
    blas: str = ""  # which kernels its BLAS took for its processor; another may round a product otherwise


@dataclass(frozen=True)
class TileResult:
    """The quotients of one tile, and the seconds they took."""

    value: Any
    seconds: float

    @property
    def nbytes(self) -> int:
        arrays = self.value if isinstance(self.value, tuple) else (self.value,)
        return sum(array.nbytes for array in arrays)


def versions() -> dict[str, str]:
    """What must be the same wherever tiles of one run are computed."""
    numbers = {"python": ".".join(platform.python_version_tuple()[:2]), "machine": platform.machine()}
    for name in ALIKE:
        try:
            numbers[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # run from a checkout
            numbers[name] = "not installed"
    return {**numbers, "backend": kernels.backend()}


def blas_kernels() -> str:
    """The kernels that this machine's BLAS libraries chose."""
    return ", ".join(
        sorted({str(library.get("architecture")) for library in threadpool_info() if library["user_api"] == "blas"})
    )


class TileWorker:
    """Holds a model and computes tiles of its Jacobian; the same class serves threads and Ray actors.

    Parameters
    ----------
    model, path
        The reference, and how its Jacobian is computed.
    threads
        That its models may use.
    gpu
        Whether to compute on the GPU.

    Raises
    ------
    ClusterError
        Where the GPU cannot be used.
    """

    def __init__(self, model: Model, path: JacobianPath, threads: int = 1, gpu: bool = False) -> None:
        if gpu:
            from distcondense.kernels import cuda

            if (problem := cuda.why_not()) is not None:
                raise ClusterError(
                    f"GPU of {socket.gethostname()}", "must be usable", found=problem, fix="leave out num_gpus"
                )
        self.tiler = make_tiler(model, path, threads=threads, gpu=gpu)

    def identity(self) -> Identity:
        """Who this is: host, process, versions, and the kernels of its BLAS."""
        return Identity(socket.gethostname(), os.getpid(), "", versions(), blas_kernels())

    def refuse_interpreter(self) -> None:
        """Compiled trees and Treelite's interpreter differ in last bits: the workers of a run must not mix them."""
        if isinstance(self.tiler, BatchTiler) and self.tiler.path == "compiled" and self.tiler._scores.engine is None:  # type: ignore[attr-defined]
            raise ClusterError(
                f"worker on {socket.gethostname()}",
                "must compile the trees, or its tiles would differ in their bits",
                found="no tl2cgen or no C compiler that works",
                fix="install both on every node, or use another path",
            )

    def tile(self, shared: Shared, tile: Tile) -> TileResult:
        """The quotients of a tile."""
        started = time.perf_counter()
        value = self.tiler.tile(shared.X, shared.widths, tile)
        return TileResult(value, time.perf_counter() - started)

    def calibrate(self, shared: Shared, tile: Tile) -> float:
        """Seconds this tile takes here once everything is compiled and loaded."""
        self.tile(shared, tile)
        return self.tile(shared, tile).seconds
