"""Atomic checkpoints, so that a run killed at any moment resumes to the same bits.

A checkpoint holds the synthetic rows, the optimiser's state, the history, the ledger and the noise key. The key exists
nowhere else, and the file is erased when the run is finished: afterwards nothing stored can reproduce the noise.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.errors import RunFolderError
from distcondense.runs.files import write_whole


@dataclass(frozen=True)
class Checkpoint:
    """One file that always holds a whole state, the newest or the one before."""

    path: Path

    def save(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

        def write(draft: Path) -> None:
            with open(draft, "wb") as out:
                np.savez(out, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)  # type: ignore[arg-type]

        write_whole(self.path, write, mode=0o600)  # only its owner may read it: it holds the noise key

    def load(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
        """What was saved last, or None."""
        try:
            with np.load(self.path, allow_pickle=False) as data:
                arrays = {name: data[name] for name in data.files if name != "facts"}
                return arrays, json.loads(data["facts"].tobytes())
        except FileNotFoundError:
            return None
        except (zipfile.BadZipFile, ValueError, KeyError, OSError, EOFError, RecursionError) as error:
            raise RunFolderError(
                f"checkpoint {self.path.name}",
                "must be readable",
                found=type(error).__name__,
                fix="start again with --force",
            ) from None

    def erase(self) -> None:
        for path in (self.path, self.path.with_name(self.path.name + ".draft")):
            path.unlink(missing_ok=True)
