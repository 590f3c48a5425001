"""What people install is what was tested: the wheel elsewhere, and the checkout uninstalled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from distcondense.kernels import native_build

ROOT = Path(__file__).resolve().parents[1]
needs_compiler = pytest.mark.skipif(native_build.compiler() is None, reason="no C++ compiler (g++, clang++ or $CXX)")


def run(*command: object, cwd: Path, **env: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | env
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=clean, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that no build folder is left in the checkout."""
    copy = tmp_path_factory.mktemp("source") / "distcondense"
    skip = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", "*.egg-info", "build", "dist", "demo-run", "results", ".*_cache"
    )
    shutil.copytree(ROOT, copy, ignore=skip)
    return copy


def built(sources: Path, out: Path, kind: str = "--wheel", **env: str) -> Path:
    """A wheel or source archive, built without network."""
    run(sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", out, sources, cwd=sources, **env)
    return next(out.iterdir())


@pytest.fixture(scope="module")
def unpacked(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, from which every wheel here is built, as pip builds one."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built(sources, folder / "archive", "--sdist")) as held:
        held.extractall(folder / "unpacked", filter="data")
    (found,) = (folder / "unpacked").iterdir()
    return found


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(unpacked, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("elsewhere"))


def installed(wheel: Path, home: Path) -> Path:
    """A fresh environment that sees this one's dependencies, but distcondense only from the wheel."""
    venv.create(home / "env", with_pip=False)
    site = next((home / "env" / "lib").glob("python*/site-packages"))
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel, cwd=home)
    # dependencies only: a plain path line does not run this environment's own .pth files (the editable install)
    (site / "dependencies.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")) + "\n")
    return home


def test_the_command_line_runs_from_the_installed_wheel(elsewhere: Path) -> None:
    python = elsewhere / "env/bin/python"
    where = run(python, "-c", "import distcondense; print(distcondense.__file__)", cwd=elsewhere).strip()
    assert where.startswith(str(elsewhere))
    (elsewhere / "cohort.csv").write_text(
        "age,marker,died\n"
        + "".join(f"{20 + i % 60},{(i * 37 % 101) / 7:.2f},{int(i % 60 + i % 7 > 33)}\n" for i in range(240))
    )
    out = run(
        python,
        "-m",
        "distcondense",
        "condense",
        "cohort.csv",
        "--target",
        "died",
        "--method",
        "published",
        "--epsilon",
        "2.5",
        "--ipc",
        "10",
        "--steps",
        "10",
        "--evaluate-every",
        "5",
        "--threads",
        "1",
        cwd=elsewhere,
        NUMBA_DISABLE_JIT="1",  # a new place has no compiled kernels yet, and twenty rows need none
    )
    assert "as-published" in out
    assert (elsewhere / "run/release/condensed.parquet").exists()


NATIVE = (
    "import sys; from distcondense.kernels import native, native_build; "
    "sys.stdout.write(f'{native.backend()} {native_build.compiler()} {native_build.source_folder()}')"
)


def carried(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("distcondense/")}


def of_the_package() -> set[str]:
    """Everything under distcondense/ that is no cache: modules, templates, the marker of types."""
    paths = (path for path in (ROOT / "distcondense").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


@needs_compiler
def test_the_wheel_of_the_source_archive_carries_every_file_of_the_package_and_the_native_library(wheel: Path) -> None:
    assert carried(wheel) == of_the_package() | {"distcondense/kernels/_native.so"}
    assert "-py3-none-" in wheel.name  # one wheel a platform, for every Python
    assert not wheel.name.endswith("-any.whl")


@needs_compiler
def test_the_installed_wheel_has_native_kernels_without_a_compiler_and_without_sources(elsewhere: Path) -> None:
    """PATH is empty: no compiler; and there are no sources to build from."""
    nowhere = {"PATH": "", "XDG_CACHE_HOME": str(elsewhere / "cache"), "DISTCONDENSE_BACKEND": "", "CXX": ""}
    assert run(elsewhere / "env/bin/python", "-c", NATIVE, cwd=elsewhere, **nowhere) == "native None None"
    assert not (elsewhere / "cache").exists()


@needs_compiler
def test_the_wheels_library_has_the_bits_of_the_one_built_from_sources(elsewhere: Path, tmp_path: Path) -> None:
    code = (
        "import hashlib, sys, numpy as np; sys.path.append(sys.argv[1]); "
        "from distcondense.kernels import native; from tests import naive; "
        "rng = np.random.default_rng(0); trees = naive.random_ensemble(rng, d=5, trees=3, depth=3); "
        "X, steps = naive.grid_rows(rng, 4, 5), naive.grid_steps(rng, 5); "
        "parts = native.jacobian(trees, X, steps), native.margins(trees, X), native.normals(1, 2, 3, 4, (50, 7)); "
        "sys.stdout.write(hashlib.sha256(b''.join(part.tobytes() for part in parts)).hexdigest())"
    )
    env = {"DISTCONDENSE_BACKEND": "native"}
    here = run(sys.executable, "-c", code, ROOT, cwd=tmp_path, PYTHONPATH=str(ROOT), **env)
    assert run(elsewhere / "env/bin/python", "-c", code, ROOT, cwd=tmp_path, **env) == here


def test_without_a_compiler_the_source_archive_makes_a_pure_wheel_that_runs_on_numba(
    unpacked: Path, tmp_path: Path
) -> None:
    assert not (unpacked / "tests").exists()
    pure = built(unpacked, tmp_path / "pure", CXX="/no/such/compiler")
    assert pure.name.endswith("-py3-none-any.whl")
    assert carried(pure) == of_the_package()
    home = installed(pure, tmp_path / "elsewhere")
    assert run(home / "env/bin/python", "-c", NATIVE, cwd=home, DISTCONDENSE_BACKEND="").startswith("numba")


def test_the_public_workflow_runs_every_python_that_is_claimed_and_what_ci_runs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    claimed = [text.rpartition(" ")[2] for text in project["classifiers"] if text.startswith("Programming Language")]
    (job,) = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == claimed
    assert project["requires-python"] == f">={claimed[0]}"
    assert [step["run"] for step in job["steps"] if "run" in step] == ["bash .ci/run"]
    assert f"Python {claimed[0]} to {claimed[-1]} on Linux" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_checkout_runs_uninstalled(tmp_path: Path) -> None:
    """`python -m distcondense` from the root, with an interpreter that has never heard of the package."""
    venv.create(tmp_path / "env", with_pip=False)
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")) + "\n")
    python = tmp_path / "env/bin/python"
    nothing = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    absent = subprocess.run([python, "-c", "import distcondense"], cwd=tmp_path, capture_output=True, env=nothing)
    assert absent.returncode != 0
    assert "condense" in run(python, "-m", "distcondense", "--help", cwd=ROOT)
