"""How much memory this process holds, and held at most."""

from __future__ import annotations

import resource
import sys
from contextlib import suppress
from pathlib import Path


def resident(field: str) -> int:
    """VmRSS (now) or VmHWM (at most) of this process in bytes; the mark of getrusage where /proc has neither."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


class MemoryPeak:
    """The high-water mark of this process's memory from now on; one that cannot be reset never falls."""

    def __init__(self) -> None:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
        self.before = resident("VmRSS")

    @property
    def peak(self) -> int:
        return resident("VmHWM")

    @property
    def grown(self) -> int:
        return max(self.peak - self.before, 0)
