"""The native kernels' library: the one that the installed wheel brings, or one built from a checkout's C++ sources.

A wheel's library was built by `kernels/CMakeLists.txt`. Sources are built here, at first use; both take what to compile
and the flags from `kernels/build.json`. The build is optional: without a compiler there is no library and everything
runs on Numba. Built libraries live in the user's cache, named by a hash of sources, flags and compiler, and appear
there by one rename, so that any number of processes may build at once and none ever loads half a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from distcondense.errors import DistcondenseError

IN_WHEEL = Path(__file__).resolve().parent / "_native.so"
_NOT_THE_SOURCES = ("signal terminated program", "No space left on device")


class NativeBuildError(DistcondenseError):
    """The compiler is missing or refused the sources."""


class NativeBuildCutOff(NativeBuildError):
    """The compiler was killed, or had no room: that says nothing about the next try."""


def source_folder() -> Path | None:
    """The folder of the C++ sources: `kernels/` of a checkout, `native_src/` of what `submit` sent, or None."""
    here = Path(__file__).resolve().parent
    for folder in (here / "native_src", here.parents[1] / "kernels"):
        if (folder / "distcondense.h").is_file():
            return folder
    return None


@dataclass(frozen=True)
class BuildPlan:
    """What is compiled and how, as `kernels/build.json` says it: file stems, and flags of the compiler."""

    once: tuple[str, ...]
    per_isa: tuple[str, ...]
    flags: tuple[str, ...]
    gcc_flags: tuple[str, ...]
    isas: Mapping[str, tuple[str, ...]]


def build_plan(folder: Path) -> BuildPlan:
    """The plan of the sources in `folder`, for this machine's instruction sets."""
    plan = json.loads((folder / "build.json").read_text(encoding="utf-8"))
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    return BuildPlan(
        once=tuple(plan["sources"]),
        per_isa=tuple(plan["sources per instruction set"]),
        flags=(*plan["flags"], *(["-DDCK_X86"] if x86 else [])),
        gcc_flags=tuple(plan["flags of GCC"]),
        isas={isa: tuple(more) for isa, more in plan["instruction sets"].items() if x86 or isa == "portable"},
    )


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


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _source_hash(folder: Path) -> str:
    plan = build_plan(folder)
    names = ["build.json", "distcondense.h", "lanes.h", *(f"{name}.cpp" for name in (*plan.once, *plan.per_isa))]
    return _digest(platform.machine(), *((folder / name).read_text(encoding="utf-8") for name in names))


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
    plan = build_plan(folder)
    scheduling = () if "clang" in _compiler_version(found) else plan.gcc_flags
    shared = [found, *plan.flags, *flags]
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        jobs: list[tuple[Path, list[str | Path]]] = []
        for name in (*plan.once, *(["driver"] if driver else [])):
            jobs.append((Path(scratch, f"{name}.o"), [*shared, "-c", folder / f"{name}.cpp"]))
        for name in plan.per_isa:
            for isa, extra in plan.isas.items():
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
    """The library's path: the wheel's own, else the one of the sources, built if it is not there yet.

    What the compiler has refused is not tried again unless forced. A build that was cut off is: a job that is killed
    takes its copy of the sources along, and the cache is everybody's.
    """
    if IN_WHEEL.is_file():
        return IN_WHEEL
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
