"""How kernels are compiled: once (cached on disk), without the GIL, and with types that mypy can follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(**options: Any) -> Callable[[F], F]:
    """`numba.njit` with this package's settings; `error_model="numpy"` where a loop divides, so that it vectorises."""
    compiled: Callable[[F], F] = njit(cache=True, nogil=True, **options)
    return compiled
