"""What people install is what was tested: the wheel elsewhere, and the checkout uninstalled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*command: object, cwd: Path, **env: str) -> str:
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")} | env
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=clean, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built without network from a copy of the sources, so that no build folder is left in the checkout."""
    copy = tmp_path_factory.mktemp("source") / "distcondense"
    skip = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", "*.egg-info", "build", "dist", "demo-run", "results", ".*_cache"
    )
    shutil.copytree(ROOT, copy, ignore=skip)
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, copy, cwd=copy)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment that sees this one's dependencies, but distcondense only from the wheel."""
    home = tmp_path_factory.mktemp("elsewhere")
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


def test_the_wheel_carries_every_module_and_the_native_sources(wheel: Path) -> None:
    """Its packages are listed by hand: one that was forgotten is missing only where it was installed."""
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("distcondense/")}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "distcondense").rglob("*.py")}
    assert modules == {name for name in carried if name.endswith(".py")}
    sources = {f"distcondense/kernels/native_src/{path.name}" for path in (ROOT / "kernels").glob("*.[ch]*")}
    assert sources
    assert sources <= carried


def test_the_checkout_runs_uninstalled(tmp_path: Path) -> None:
    """`python -m distcondense` from the root, with an interpreter that has never heard of the package."""
    venv.create(tmp_path / "env", with_pip=False)
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")) + "\n")
    python = tmp_path / "env/bin/python"
    absent = subprocess.run([python, "-c", "import distcondense"], cwd=tmp_path, capture_output=True)
    assert absent.returncode != 0
    assert "condense" in run(python, "-m", "distcondense", "--help", cwd=ROOT)
