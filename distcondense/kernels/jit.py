"""How kernels are compiled: at their first call, once (cached on disk), without the GIL, and with types for mypy.

Importing a module of kernels does not import Numba: the table is read, and the command line answers, before that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_LOCK = RLock()  # two threads that call a kernel first compile it once


class Kernel:
    """A Python function that Numba compiles when it is first called, or asked for what Numba knows of it."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self._function, self._options = function, options
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return (self._compiled or self.compiled())(*arguments)

    def __getattr__(self, name: str) -> Any:  # signatures, stats, py_func, …
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.compiled(), name)

    @property
    def py_func(self) -> Callable[..., Any]:
        """The Python function, its callees compiled: another target may compile it too."""
        self.compiled()
        return self._function

    def compiled(self) -> Any:
        """Numba's dispatcher, which takes this one's place in its module; so do those of the kernels that it calls."""
        with _LOCK:
            if self._compiled is None:
                from numba import njit

                names = self._function.__globals__
                for name in self._function.__code__.co_names:
                    if isinstance(called := names.get(name), Kernel):
                        names[name] = called.compiled()
                self._compiled = njit(cache=True, nogil=True, **self._options)(self._function)
                if names.get(self._function.__name__) is self:
                    names[self._function.__name__] = self._compiled
            return self._compiled


def kernel(**options: Any) -> Callable[[F], F]:
    """`numba.njit` with this package's settings; `error_model="numpy"` where a loop divides, so that it vectorises."""

    def waiting(function: F) -> F:
        return Kernel(function, options)  # type: ignore[return-value]

    return waiting
