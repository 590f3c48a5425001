"""Tree models compiled to shared libraries: Treelite → tl2cgen → the machine's C compiler, kept by the model's hash.

Libraries live in the user's cache (`$XDG_CACHE_HOME/distcondense/models`). Without a compiler or tl2cgen,
Treelite's own interpreter (GTIL) answers instead: slower, the same scores to float32 rounding, and a warning says so.

tl2cgen brings a Treelite of its own, older than ours: within one major version the layout of a model is the same, but
the number in it is not, and each load warned of that. So tl2cgen gets the model with the number that it knows, and
what it makes of it is tried against our Treelite's interpreter before it is used.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distcondense.errors import DistcondenseWarning
from distcondense.models.trees import TreeModel

KNOWN = (4, 1, 2)  # the Treelite inside tl2cgen 1.0
TRIED = 64  # rows, some with holes, on which a compiled model must score as the interpreter does
_COMPILING = threading.Lock()  # several threads may want one model at once, and stdout is everybody's


@dataclass(frozen=True)
class CompiledPredictor:
    """Scores of a tree model through tl2cgen (or GTIL); rows are (k, d) of `dtype`, the answer (k,) float32."""

    engine: Any
    forest: Any
    dtype: Any
    raw_margin: bool
    threads: int

    def __call__(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        if self.engine is None:
            import treelite

            answer = treelite.gtil.predict(self.forest, rows, nthread=self.threads, pred_margin=self.raw_margin)
        else:
            import tl2cgen

            answer = self.engine.predict(tl2cgen.DMatrix(rows, dtype=str(self.dtype)), pred_margin=self.raw_margin)
        # a forest of two-class shares answers with both: the last is class 1
        return np.asarray(answer, np.float32).reshape(len(rows), -1)[:, -1]


def compiled_predictor(model: TreeModel, *, threads: int = 1) -> CompiledPredictor:
    """A compiled twin of `model`; compiles on first use, then loads from the cache."""
    import treelite

    forest = treelite.Model.deserialize_bytes(model.treelite_bytes)
    engine = None
    problem = "no C compiler (gcc or clang) on PATH"
    toolchain = find_toolchain()
    if find_spec("tl2cgen") is None:
        problem = "tl2cgen is not installed (pip install 'distcondense[compiled]')"
    elif (library := library_path(model)).exists() or toolchain is not None:
        try:
            engine = _tried(_load(forest, library, toolchain, threads), forest, model.raw_margin)
        except Exception as error:  # whatever the compiler or the loader says, GTIL can answer
            problem = f"tl2cgen failed: {(str(error).strip().splitlines() or [type(error).__name__])[0]}"
    if engine is None:
        warnings.warn(
            f"path 'compiled' falls back to Treelite's interpreter, about three times slower: {problem}",
            DistcondenseWarning,
            stacklevel=4,
        )
    return CompiledPredictor(engine, forest, np.dtype(forest.input_type), model.raw_margin, threads)


def input_type(model: TreeModel) -> np.dtype[Any]:
    """The float type in which the model's own library compares."""
    import treelite

    return np.dtype(treelite.Model.deserialize_bytes(model.treelite_bytes).input_type)


def find_toolchain() -> str | None:
    return next((name for name in ("gcc", "clang") if shutil.which(name)), None)


def library_path(model: TreeModel) -> Path:
    """Where the shared library of this model is kept; the hash covers trees and the versions that compile them."""
    import tl2cgen
    import treelite

    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    versions = f"{treelite.__version__}-{tl2cgen.__version__}"
    return root / "distcondense" / "models" / f"{model.fingerprint[:32]}-{versions}.so"


def _load(forest: Any, library: Path, toolchain: str | None, threads: int) -> Any:
    import tl2cgen

    with _COMPILING:
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with tempfile.TemporaryDirectory(dir=library.parent) as folder:
                built = Path(folder) / "model.so"
                files = min(forest.num_tree, 16)  # one huge C file takes gcc far longer than several
                with redirect_stdout(StringIO()):  # it reports its progress by print
                    tl2cgen.export_lib(
                        AsKnown(forest), toolchain, built, params={"parallel_comp": files}, nthread=threads
                    )
                os.replace(built, library)
    return tl2cgen.Predictor(library, nthread=threads)


@dataclass(frozen=True)
class AsKnown:
    """A Treelite model as tl2cgen asks for it, under the version that tl2cgen knows."""

    forest: Any

    def serialize_bytes(self) -> bytes:
        own: bytes = self.forest.serialize_bytes()
        major, minor, patch = np.frombuffer(own[:12], np.int32)
        if major != KNOWN[0] or (minor, patch) <= KNOWN[1:]:  # another layout is for tl2cgen to refuse
            return own
        return np.array(KNOWN, np.int32).tobytes() + own[12:]


def _tried(engine: Any, forest: Any, raw_margin: bool) -> Any:
    """The engine, if it scores a few rows as Treelite's interpreter does."""
    import treelite

    dtype = np.dtype(forest.input_type)
    rows = np.random.default_rng(0).normal(size=(TRIED, forest.num_feature)).astype(dtype)
    rows[rows > 1.5] = np.nan
    compiled, interpreted = (
        CompiledPredictor(one, forest, dtype, raw_margin, 1)(rows).astype(np.float64) for one in (engine, None)
    )
    if not np.allclose(compiled, interpreted, rtol=1e-4, atol=1e-5, equal_nan=True):
        raise ValueError(f"what tl2cgen {KNOWN} made of a model of Treelite {treelite.__version__} scores otherwise")
    return engine
