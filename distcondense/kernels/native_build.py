"""Finds, builds and caches the native kernels: C++ sources in, one shared library out, nothing else needed.

The build is optional: without a compiler there is no library and everything runs on Numba. Built libraries live in the
user's cache, named by a hash of sources, flags and compiler, and appear there by one rename, so that any number of
processes may build at once and none ever loads half a file.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from distcondense.errors import DistcondenseError

PLAIN = ("api", "ensemble")  # compiled once
PER_ISA = ("walk", "update")  # compiled once per instruction set
_X86_ISAS = {"portable": (), "avx2": ("-mavx2",), "avx512": ("-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw")}
# No contraction: a fused multiply-add would round differently from the portable path. NaN keeps its meaning.
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
    "-Wno-maybe-uninitialized",
)
# Four Box–Muller chains wait for each other unless the compiler mixes them; Clang does so unasked and lacks the flags.
_GCC_FLAGS = ("-fschedule-insns", "-fsched-pressure")


_NOT_THE_SOURCES = ("signal terminated program", "No space left on device")


class NativeBuildError(DistcondenseError):
    """The compiler is missing or refused the sources."""


class NativeBuildCutOff(NativeBuildError):
    """The compiler was killed, or had no room: that says nothing about the next try."""


def source_folder() -> Path | None:
    """The folder of the C++ sources: `kernels/` of a checkout, `native_src/` of an installed wheel, or None."""
    here = Path(__file__).resolve().parent
    for folder in (here / "native_src", here.parents[1] / "kernels"):
        if (folder / "distcondense.h").is_file():
            return folder
    return None


@cache
def compiler() -> str | None:
    """The C++ compiler: $CXX if set, else the first of g++, clang++, c++ on the path, or None."""
    named = os.environ.get("CXX", "").strip()
    for name in (named,) if named else ("g++", "clang++", "c++"):
        found = shutil.which(name)
        if found:
            return found
    return None


@cache
def _compiler_version(path: str) -> str:
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return answer.stdout


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/distcondense, or ~/.cache/distcondense."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "distcondense"


def _isas() -> dict[str, tuple[str, ...]]:
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return dict(_X86_ISAS) if x86 else {"portable": ()}


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _source_hash(folder: Path) -> str:
    names = ["distcondense.h", "lanes.h", *(f"{name}.cpp" for name in (*PLAIN, *PER_ISA))]
    texts = [(folder / name).read_text(encoding="utf-8") for name in names]
    return _digest(platform.machine(), *_FLAGS, *_GCC_FLAGS, repr(_isas()), *texts)


def library_path() -> Path | None:
    """Where the library of these sources is or would be; None where there is neither a compiler nor a built library."""
    folder = source_folder()
    if folder is None:
        return None
    stem = f"native-{_source_hash(folder)}"
    found = compiler()
    if found is None:  # a library built earlier, or on a machine that shares this cache
        return next(iter(sorted(cache_folder().glob(f"{stem}-*.so"))), None)
    return cache_folder() / f"{stem}-{_digest(_compiler_version(found))}.so"


def _run(command: Sequence[str | Path]) -> None:
    answer = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if answer.returncode:
        cut_off = answer.returncode < 0 or any(words in answer.stderr for words in _NOT_THE_SOURCES)
        error = NativeBuildCutOff if cut_off else NativeBuildError
        raise error(f"{' '.join(str(part) for part in command)}\n{answer.stderr.strip()}")


def compile_to(target: Path, *, flags: Sequence[str] = (), driver: bool = False) -> None:
    """Compile all sources with extra `flags` into `target`: a shared library, or the test driver's executable."""
    folder, found = source_folder(), compiler()
    if folder is None or found is None:
        raise NativeBuildError(
            "no C++ sources found" if folder is None else "no C++ compiler found (g++, clang++, $CXX)"
        )
    isas, scheduling = _isas(), () if "clang" in _compiler_version(found) else _GCC_FLAGS
    shared = [found, *_FLAGS, *(["-DDCK_X86"] if "avx2" in isas else []), *flags]
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        jobs: list[tuple[Path, list[str | Path]]] = []
        for name in (*PLAIN, *(["driver"] if driver else [])):
            jobs.append((Path(scratch, f"{name}.o"), [*shared, "-c", folder / f"{name}.cpp"]))
        for name in PER_ISA:
            for isa, extra in isas.items():
                command: list[str | Path] = [
                    *shared,
                    *scheduling,
                    *extra,
                    f"-DDCK_ISA={isa}",
                    "-c",
                    folder / f"{name}.cpp",
                ]
                jobs.append((Path(scratch, f"{name}-{isa}.o"), command))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(lambda job: _run([*job[1], "-o", job[0]]), jobs))
        built = Path(scratch, "built")
        link = [found, *flags, *([] if driver else ["-shared"]), "-pthread"]
        _run([*link, *(out for out, _ in jobs), "-o", built])
        os.replace(built, target)  # on one file system: whole or not at all


def _still_there(target: Path) -> bool:
    """Whether the sources of this library are."""
    try:
        return library_path() == target
    except OSError:
        return False


def build(*, force: bool = False) -> Path:
    """The library's path, built if it is not there yet. What the compiler has refused is not tried again unless forced.

    A build that was cut off is: a job that is killed takes its copy of the sources along, and the cache is everybody's.
    """
    target = library_path()
    if target is None:
        raise NativeBuildError("no C++ compiler found (g++, clang++ or $CXX), or no sources beside the package")
    if target.exists() and not force:
        return target
    failed = target.with_suffix(".failed")
    if failed.exists() and not force:
        raise NativeBuildError(f"an earlier build failed, see {failed}")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        compile_to(target)
    except NativeBuildError as error:
        if not isinstance(error, NativeBuildCutOff) and _still_there(target):
            failed.write_text(str(error), encoding="utf-8")
        raise
    failed.unlink(missing_ok=True)
    return target
