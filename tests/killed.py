"""`python -m tests.killed STUDY OUT MODULE NAME CALL`: run a study in this process and be killed by a real SIGKILL.

The signal comes when the CALL-th call of MODULE.NAME is about to be made: nothing after it happens, no handler runs.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any


def kill_at(module: str, name: str, call: int) -> None:
    owner: Any = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    real, made = getattr(owner, last), 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal made
        made += 1
        if made == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)

    setattr(owner, last, counted)


def main() -> None:
    study, out, module, name, call = sys.argv[1:]
    from distcondense.study import LocalTasks, Study, run_study

    warnings.simplefilter("ignore")
    kill_at(module, name, int(call))
    run_study(Study.from_toml(study), Path(out), LocalTasks(), threads=1)


if __name__ == "__main__":
    main()
