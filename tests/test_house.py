"""The house stands as drawn: imports point one way, heavy things load late, the top level is fixed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import distcondense

PACKAGE = Path(distcondense.__file__).parent
ROOT = PACKAGE.parent

# rooms from the ground up; a room may import its own level's earlier names and anything below, never above
ORDER = [
    {"errors"}, {"schema"}, {"tables"}, {"cohort"}, {"codec", "populations", "kernels", "privacy"},
    {"bins", "datasets"}, {"metrics"}, {"references", "objectives", "settings"}, {"jacobian"}, {"cluster"}, {"engine"},
    {"methods"}, {"private_model"}, {"evaluate"}, {"plots"}, {"runfolder"}, {"result"}, {"pipeline"}, {"bench"},
    {"terminal"}, {"study"}, {"cli"}, {"__main__"},
]  # fmt: skip
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_rooms(path: Path):
    """Rooms a file imports at its top level or inside a function; TYPE_CHECKING blocks count too."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names] if node.module == "distcondense" else [node.module]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "distcondense" and len(parts) > 1 and parts[1] in LEVEL:
                yield parts[1]


def test_every_import_points_downstream():
    against = []
    for path in PACKAGE.rglob("*.py"):
        room = room_of(path)
        if room == "__init__" or "native_src" in path.parts:
            continue
        assert room in LEVEL, f"{path} is in no room of the drawing"
        against += [
            f"{path.relative_to(PACKAGE)} → {other}"
            for other in imported_rooms(path)
            if other != room and LEVEL[other] >= LEVEL[room]
        ]
    assert against == []


def test_the_import_graph_test_would_notice_an_arrow_against_the_stream(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from distcondense.cli import main\n")
    assert list(imported_rooms(wrong)) == ["cli"]
    assert LEVEL["cli"] > LEVEL["engine"]


def test_kernels_know_nothing_of_tables_or_clusters():
    for path in (PACKAGE / "kernels").glob("*.py"):
        assert not re.search(r"^\s*(import|from) (pandas|ray|treelite)\b", path.read_text(), re.MULTILINE), path.name


def test_help_loads_nothing_heavy():
    heavy = "{'numpy', 'pandas', 'numba', 'xgboost', 'ray'}"
    code = f"import sys; import distcondense.cli; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


def test_the_top_level_of_the_repository_is_the_fixed_one():
    if not (ROOT / ".git").exists():
        import pytest

        pytest.skip("not a checkout")
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split(
        "\n"
    )
    top = {name.split("/")[0] for name in tracked if name}
    allowed = {
        "pyproject.toml", "README.md", "distcondense", "kernels", "cluster", "tests", "benchmarks", "docs",
        "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "constraints.txt", ".ci", ".gitignore",
        ".pre-commit-config.yaml",
    }  # fmt: skip
    assert top <= allowed, top - allowed


def test_kernels_and_cluster_folders_hold_no_python():
    assert [p.name for folder in ("kernels", "cluster") for p in (ROOT / folder).rglob("*.py")] == []


def test_public_names_are_all_there_and_lazy():
    for name in distcondense.__all__:
        assert getattr(distcondense, name) is not None
    assert set(distcondense.__all__) <= set(dir(distcondense))


def test_only_one_module_imports_ray():
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else
                     [node.module or ""] if isinstance(node, ast.ImportFrom) else [])
        if name.split(".")[0] == "ray"
    }  # fmt: skip
    assert found == {"cluster/on_ray.py"}


def test_a_run_in_process_does_not_import_ray():
    code = "import sys, distcondense.api, distcondense.cluster.executors; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
