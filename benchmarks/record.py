"""How a result is kept, and the list of all results: `python -m benchmarks.record` writes results/README.md.

A result is `results/NAME.md` for readers, `results/NAME.json` with its numbers under "results", or both. Each begins
with how it was made: command, commit, date, machine, seeds. A study's folder has that in its README.md.

A benchmark writes into a temporary folder, and says where. To keep its result in the checkout, ask for it:
DISTCONDENSE_RESULTS=benchmarks/results python -m benchmarks.NAME.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from distcondense.runs.release import commit_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FIELDS = ("command", "commit", "date", "machine", "seeds")
LINE = re.compile(
    r"Made by `(?P<command>[^`]+)`; commit (?P<commit>\S+), (?P<date>[\d-]+), (?P<machine>[^;]+); seeds (?P<seeds>.+)\."
)
QUOTING = ("README.md", "docs", "benchmarks/README.md", "benchmarks/studies")  # documents that may quote a result


def target() -> Path:
    """Where results go: never into the checkout unless it is asked for."""
    return Path(os.environ.get("DISTCONDENSE_RESULTS") or Path(tempfile.gettempdir()) / "distcondense-results")


def write(name: str, results: Any = None, *, seeds: int | Sequence[int], text: str = "") -> None:
    """Write a result of the command that is running.

    Parameters
    ----------
    name : str
        Of the files in results/, without an ending.
    results : JSON
        The numbers, where a program reads them again; none: only the text is written.
    seeds : int or sequence of int
        The seeds that were used; a number n stands for 0 to n − 1.
    text : str
        A table for readers, in Markdown; none if empty.
    """
    made, folder = made_now(seeds), target()
    folder.mkdir(parents=True, exist_ok=True)
    if results is not None:
        (folder / f"{name}.json").write_text(json.dumps({"made": made, "results": results}, indent=1) + "\n")
    if text:
        (folder / f"{name}.md").write_text(f"{line(made)}\n\n{text.strip()}\n", encoding="utf-8")
    print(f"written: {folder / name}.* (DISTCONDENSE_RESULTS names another folder)")


def read(name: str) -> Any:
    """The numbers of a result, as they were written last, else as the checkout has them; None where there are none."""
    files = (folder / f"{name}.json" for folder in (target(), RESULTS))
    file = next((file for file in files if file.exists()), None)
    return None if file is None else json.loads(file.read_text(encoding="utf-8"))["results"]


def made_now(seeds: int | Sequence[int]) -> dict[str, str]:
    """Command, commit, date, machine and seeds of what is running now."""
    main = sys.modules["__main__"].__spec__
    module = main.name.removesuffix(".__main__") if main is not None else Path(sys.argv[0]).name
    if isinstance(seeds, int):
        seeds = range(seeds)
    return {
        "command": " ".join(["python -m", module, *sys.argv[1:]]),
        "commit": commit_of(ROOT) or "unknown",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "seeds": ", ".join(map(str, seeds)) or "none",
    }


def machine() -> str:
    """Cores, memory and processor, as far as the system tells."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    processor = platform.machine()
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        processor = found[1] if found else processor
    except OSError:
        pass
    return f"{len(os.sched_getaffinity(0))} cores of {processor}, {memory:.0f} GB"


def line(made: dict[str, str]) -> str:
    """What a Markdown file says of how it was made."""
    where = f"{made['commit']}, {made['date']}, {made['machine']}"
    return f"Made by `{made['command']}`; commit {where}; seeds {made['seeds']}."


def made(file: Path) -> dict[str, str] | None:
    """How a result file says that it was made; None where it does not say."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".json":
        header = json.loads(text).get("made")
        return header if header and set(header) == set(FIELDS) else None
    found = LINE.search(text)
    return found.groupdict() if found else None


def results() -> list[Path]:
    """Every result: JSON and Markdown files, and the README.md of each study's folder."""
    top = [file for file in RESULTS.iterdir() if file.suffix in (".json", ".md") and file.name != "README.md"]
    return sorted([*top, *RESULTS.glob("*/README.md")])


def quoted_by(stem: str) -> list[str]:
    """Documents that name a result by its file's name."""
    files = [
        path
        for place in QUOTING
        for path in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*.md"))
    ]
    name = re.compile(rf"results/{re.escape(stem)}(?![\w-])")
    return sorted(str(path.relative_to(ROOT)) for path in files if name.search(path.read_text(encoding="utf-8")))


def index() -> str:
    """The text of results/README.md."""
    rows = ["| result | command | commit | date | machine | seeds | quoted in |", "| --- " * 7 + "|"]
    by_stem: dict[str, list[Path]] = {}
    for file in results():
        by_stem.setdefault(file.stem if file.parent == RESULTS else file.parent.name, []).append(file)
    for stem, files in by_stem.items():
        header = made(files[0])
        links = ", ".join(f"[{file.relative_to(RESULTS)}]({file.relative_to(RESULTS)})" for file in files)
        cells = ["?"] * len(FIELDS) if header is None else [header[name] for name in FIELDS]
        quoting = ", ".join(f"[{name}](../../{name})" for name in quoted_by(stem))
        rows.append(f"| {links} | `{cells[0]}` | {cells[1][:10]} | {' | '.join(cells[2:])} | {quoting} |")
    return (
        "# Results\n\nWritten by `python -m benchmarks.record`. Each file says of itself how it was made.\n\n"
        + "\n".join(rows)
        + "\n"
    )


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(index(), encoding="utf-8")
    print(RESULTS / "README.md")
