"""Locks that hold for root too: the rights to pass them by are laid down, for this thread."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator

VERSION = 0x20080522  # of Linux's capabilities, in two words
PASS_LOCKS = 0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextlib.contextmanager
def locks_hold() -> Iterator[None]:
    """Inside, a file that nobody may read cannot be read; elsewhere than on Linux it depends on who asks."""
    if not sys.platform.startswith("linux"):
        yield
        return
    libc = ctypes.CDLL(None)
    header, now = (ctypes.c_uint32 * 2)(VERSION, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, now)
    before = now[0]
    now[0] = before & ~PASS_LOCKS
    libc.capset(header, now)
    try:
        yield
    finally:
        now[0] = before
        libc.capset(header, now)
