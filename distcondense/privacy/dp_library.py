"""dp-accounting, imported when something is accounted for, and without three parts of SciPy that it names on import.

They take longer to import than everything else here: `scipy.optimize` for one root, `scipy.signal` and `scipy.stats`
for its privacy losses. curves.py reaches none of them; whatever else does finds them behind names that import them when
they are used.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

HEAVY = ("scipy.optimize", "scipy.signal", "scipy.stats")


class _Later(ModuleType):
    """A module's name, or that of something in it; the module is imported when that is called or looked into."""

    def __init__(self, name: str, inside: str = "") -> None:
        super().__init__(name)
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._inside:
            return _Later(self.__name__, name)
        return getattr(self._itself(), name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._itself()(*arguments, **named)

    def _itself(self) -> Any:
        if isinstance(sys.modules.get(self.__name__), _Later):
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), self._inside)


@contextmanager
def _later(*names: str) -> Iterator[None]:
    """Within, these modules are names only, where nobody has imported them yet."""
    standing_in = {name: _Later(name) for name in names if name not in sys.modules}
    sys.modules.update(standing_in)
    try:
        yield
    finally:
        for name, module in standing_in.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


@cache
def dp_accounting() -> Any:
    """The library; `.rdp` and `.pld` are its packages."""
    with _later(*HEAVY):
        import dp_accounting
        from absl import logging

    # it logs each RDP order that it leaves out of a minimum; leaving one out can only raise ε, so it is no news
    logging.set_verbosity(logging.ERROR)
    return dp_accounting
