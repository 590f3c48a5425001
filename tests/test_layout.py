"""The packages are as drawn in CONTRIBUTING.md: imports point one way, names stay in their places, heavy loads late."""

from __future__ import annotations

import ast
import doctest
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import distcondense
from distcondense.data.outcome import kind_names
from distcondense.methods.base import method_names

PACKAGE = Path(distcondense.__file__).parent
ROOT = PACKAGE.parent
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if "native_src" not in path.parts]


def drawing(text: str) -> dict[str, int]:
    """Package → level, from the first block of the section "The packages"."""
    block = text.split("## The packages")[1].split("```")[1]
    levels: dict[str, int] = {}
    for level, line in enumerate(line for line in block.strip().splitlines() if line[:1].strip()):
        rooms = re.match(r"((?:\w+ )*\w+)  ", line)
        assert rooms, line
        levels |= dict.fromkeys(rooms[1].split(), level)
    return levels


LEVEL = drawing((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Modules a file imports at its top level or inside a function; TYPE_CHECKING blocks count too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            bare = node.module == "distcondense"
            yield from [f"{node.module}.{a.name}" for a in node.names] if bare else [node.module]
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names)


def imported_rooms(path: Path) -> Iterator[str]:
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "distcondense" and len(parts) > 1 and parts[1] in LEVEL:
            yield parts[1]


def against_the_stream(path: Path, room: str) -> list[str]:
    return [other for other in imported_rooms(path) if other != room and LEVEL[other] >= LEVEL[room]]


def test_the_drawing_has_every_room_and_no_other():
    there = {room_of(path) for path in SOURCES} - {"__init__", "__main__"}
    assert there == set(LEVEL)


def test_every_import_points_downstream():
    against = [
        f"{path.relative_to(PACKAGE)} → {other}"
        for path in SOURCES
        if room_of(path) not in ("__init__", "__main__")
        for other in against_the_stream(path, room_of(path))
    ]
    assert against == []


def test_the_import_graph_test_would_notice_an_arrow_against_the_stream(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def f():\n    from distcondense.cli import main\n")
    assert against_the_stream(wrong, "methods") == ["cli"]


# -- names stay in their rooms ----------------------------------------------------------------------------------------

# where a method's name may stand, and why
METHOD_PLACES = {
    "methods/base.py": "the registry",
    "data/schema.py": "a column whose bounds are to be found by noisy answers",
    "data/column.py": "the word that a schema's author writes where nobody knows bounds or categories",
    "report/catalogue.py": "a column whose bounds are to be found by noisy answers",
    "guide/wizard.py": "the same word, as an answer to a question about bounds",
    "evaluation/audit/__init__.py": "the registry of auditors: an audit knows the mechanism it attacks",
    "evaluation/audit/private.py": "the auditor of that method",
    "evaluation/audit/published.py": "the auditor of that method",
    "evaluation/audit/dp_geng.py": "the auditor of that method, beside that of its generator",
    "evaluation/audit/neighbours.py": "what that auditor looks at: the method's own plan",
    "methods/dp_geng/generator.py": "its generator is that method's sampler (DP-GENG leaves it open)",
    "methods/dp_geng/options.py": "the generators' names",
    "__init__.py": "public names: dc.PrivateModel is an estimator of its own",
    "federated/agreement.py": "plans that method for rows at several sites",
    "federated/parties.py": "runs that method with a gate whose rows are elsewhere",
    "federated/tables.py": "has as many cells of a pair as that method looks at",
    "federated/audit.py": "attacks that method at several sites",
    "federated/site.py": "opens that method's gate before one site's rows",
    "federated/demo.py": "takes that method's settings",
    "methods/psygentab/__init__.py": "its sampler may be that method's, which says what it will ask",
    "methods/psygentab/options.py": "the sampler's name, and its settings",
    "methods/psygentab/condense.py": "runs that method with another way to draw rows",
    "methods/psygentab/private_sampler.py": "rows as that method draws them, steered",
}
# where a kind's name may stand, and why
KIND_PLACES = {
    "data/outcome.py": "the registry",
    "data/schema.py": "kinds of columns",
    "data/column.py": "kinds of *columns* share the words binary and continuous",
    "data/draft.py": "kinds of columns",
    "data/codec.py": "kinds of columns",
    "data/populations.py": "schemas of simulated cohorts: kinds of columns",
    "data/datasets.py": "schemas of simulated cohorts: kinds of columns",
    "models/additive.py": "kinds of columns",
    "report/catalogue.py": "kinds of columns",
    "models/trees.py": "LightGBM's objective of that name",
    "methods/private/estimator.py": "describes y as a column of a schema: kinds of columns",
    "evaluation/interpretation/curves.py": "its other half, survival curves, stands in a file of that name",
    "evaluation/audit/private.py": "its worst cases are of two kinds of outcome",
    "federated/audit.py": "schemas of the same worst cases: kinds of columns",
    "evaluation/audit/published.py": "schemas of simulated worlds: kinds of columns",
}


def said(path: Path, names: set[str]) -> set[str]:
    """Names that a file says as a text of their own, or imports by module."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    modules = {part for name in imported(path) if name.startswith("distcondense.") for part in name.split(".")[1:]}
    return names & (texts | modules)


def places(names: tuple[str, ...], own: str, exceptions: dict[str, str]) -> list[str]:
    found = []
    for path in SOURCES:
        where = path.relative_to(PACKAGE).as_posix()
        if where not in exceptions:
            inside = {name: f"{own}/{name.replace('-', '_')}" for name in names}
            found += [f"{where}: {name}" for name in said(path, set(names)) if not where.startswith(inside[name])]
    return found


def test_no_method_is_named_outside_its_folder():
    assert places(method_names(), "methods", METHOD_PLACES) == []


def test_no_kind_of_outcome_is_named_outside_its_file():
    found = places(kind_names(), "outcomes", KIND_PLACES)
    inside = [entry for entry in found if not entry.startswith("outcomes/")]  # kinds may build on each other
    assert inside == []


def test_the_exceptions_are_still_needed():
    for names, exceptions in ((method_names(), METHOD_PLACES), (kind_names(), KIND_PLACES)):
        for where in exceptions:
            assert said(PACKAGE / where, set(names)), f"{where} needs no exception any more"


def test_a_name_in_the_wrong_room_would_be_noticed(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text('def f(task):\n    return task == "binary" or "survival curves are fine"\n')
    assert said(wrong, set(kind_names())) == {"binary"}


def test_nobody_asks_whether_there_is_a_time():
    asking = re.compile(r"\btime is (not )?None|\.task\b")
    asked = [path.name for path in SOURCES if room_of(path) != "outcomes" and asking.search(path.read_text())]
    assert asked == []


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_kernels_know_nothing_of_tables_or_clusters():
    for path in (PACKAGE / "kernels").glob("*.py"):
        assert not re.search(r"^\s*(import|from) (pandas|ray|treelite)\b", path.read_text(), re.MULTILINE), path.name


def test_array_aliases_stand_once():
    alias = re.compile(r"^(Floats|Matrix|Index|Labels|Codes|Flags) = ", re.MULTILINE)
    assert [path.name for path in SOURCES if alias.search(path.read_text())] == ["arrays.py"]


def test_help_loads_nothing_heavy():
    heavy = "{'numpy', 'pandas', 'numba', 'xgboost', 'ray'}"
    code = f"import sys; import distcondense.cli; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"


def test_the_top_level_of_the_repository_is_the_fixed_one():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    tracked = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT).stdout.split(
        "\n"
    )
    top = {name.split("/")[0] for name in tracked if name}
    allowed = {
        "pyproject.toml",
        "README.md",
        "distcondense",
        "kernels",
        "cluster",
        "tests",
        "benchmarks",
        "docs",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "CITATION.cff",
        "LICENSE",
        "Makefile",
        "SECURITY.md",
        "mkdocs.yml",
        "constraints.txt",
        ".ci",
        ".github",
        ".gitignore",
        ".pre-commit-config.yaml",
    }
    assert top <= allowed, top - allowed


def test_kernels_and_cluster_folders_hold_no_python():
    assert [p.name for folder in ("kernels", "cluster") for p in (ROOT / folder).rglob("*.py")] == []


def test_a_class_name_stands_for_one_thing():
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("name", distcondense.__all__)
def test_a_public_name_says_what_goes_in_and_its_example_runs(name: str) -> None:
    thing = getattr(distcondense, name)
    text = thing.__doc__ or ""
    assert re.search(r"^ *(Parameters|Attributes)$", text, re.M), "no Parameters or Attributes"
    assert isinstance(thing, type) or re.search(r"^ *Returns$", text, re.M), "no Returns"
    own, *of_methods = sorted(
        (test for test in doctest.DocTestFinder().find(thing, name) if test.examples), key=lambda one: one.name
    )
    assert own.name == name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for example in (own, *of_methods):
            assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example).failed == 0, example.name


def test_public_names_are_all_there_and_lazy():
    for name in distcondense.__all__:
        assert getattr(distcondense, name) is not None
    assert set(distcondense.__all__) <= set(dir(distcondense))
    assert callable(distcondense.evaluate)


def test_only_one_room_imports_ray():
    found = {
        path.relative_to(PACKAGE).parent.as_posix()
        for path in SOURCES
        for name in imported(path)
        if name.split(".")[0] == "ray"
    }
    assert found == {"cluster/ray"}


def test_a_run_in_process_does_not_import_ray():
    code = "import sys, distcondense.api, distcondense.cluster.executors; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_only_one_place_writes_atomically():
    """Folders move in runs/folder.py; compiled libraries are not a run's, and below that package."""
    moves = {path.relative_to(PACKAGE).as_posix() for path in SOURCES if "os.replace(" in path.read_text()}
    own = {"runs/files.py", "runs/folder.py", "models/compiled.py"}
    assert {where for where in moves if not where.startswith("kernels/")} == own


UNTIL_THE_FIRST_READ = """
import os, sys

def first_read(event, arguments):
    if event == "open" and str(arguments[0]) == sys.argv[1]:
        heavy = "scipy.signal scipy.stats numba opendp xgboost sklearn treelite matplotlib ray jinja2".split()
        print([name for name in heavy if name in sys.modules], flush=True)
        os._exit(0)

sys.addaudithook(first_read)
import distcondense as dc
dc.condense(sys.argv[1], schema=sys.argv[2], target="smoker", ipc=5, epsilon=1.0, method=sys.argv[3])
"""


@pytest.mark.parametrize("method", ["private", "published"])
def test_nothing_heavy_is_imported_before_the_first_byte_of_a_table_is_read(tmp_path, method):
    (tmp_path / "patients.csv").write_text("age,smoker\n40,no\n50,yes\n")
    schema = ROOT / "benchmarks" / "schemas" / "insurance.toml"
    if not schema.exists():
        pytest.skip("not a checkout")
    found = subprocess.run(
        [sys.executable, "-c", UNTIL_THE_FIRST_READ, str(tmp_path / "patients.csv"), str(schema), method],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert found.stdout.strip() == "[]"
