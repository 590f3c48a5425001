"""How a result is kept, and the list of all results: `python -m benchmarks.record` writes results/README.md.

A result is `results/NAME.md` for readers, `results/NAME.json` with its numbers under "results", or both. Each begins
with how it was made: command, commit, date, machine, seeds. A study's folder has that in its README.md.

A benchmark writes into a temporary folder, and says where. To keep its result in the checkout, ask for it:
DISTCONDENSE_RESULTS=benchmarks/results python -m benchmarks.NAME.

Documents quote numbers. Each with decimals, in a section that names results, must stand in one of them (or be the mean
or spread of a list of theirs), and the list of results has a seal of each such section: of its numbers, in order, and
of the files' bytes. So neither a number nor a file changes without somebody looking at the other again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import statistics
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
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


# -- numbers that documents quote -------------------------------------------------------------------------------------

NAMED = re.compile(r"benchmarks/results/([\w-]+(?:\.\d\w*)?)(?:\.(?:json|md|png|svg)|/README\.md)?(?=[)\s`])")
NUMBER = re.compile(r"(?<![\w.,])(\d+\.\d+)(?![\d.]*\w|[.,]\d)(\s?(?:%|ms|GB|TB)(?!\w))?")
UNITS = {"%": 100.0, "ms": 1e3, "GB": 1e-9, "TB": 1e-12}
SETTING = re.compile(r"\$+[^$]*\$+|[εδσ] ?(?:=|≥|of|at|above) ?[\d.e-]+|aims?:? (?:of )?[\d.]+|`[^`]*`|\]\([^)]*\)")
CODE_NUMBERS = ("privacy.md", "gate.md")  # theirs are the code's: tests/privacy/test_privacy_doc.py compares them


def sections(document: Path) -> dict[str, str]:
    """The text of a document by its headings, without blocks of code."""
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    parts = re.split(r"^(?=#+ )", text, flags=re.MULTILINE)
    return {part.partition("\n")[0].strip("# "): part for part in parts if document.name not in CODE_NUMBERS}


def quoted(section: str) -> list[tuple[str, str]]:
    """Its numbers with decimals, each with its unit or nothing; settings such as ε = 2.5, code and links are none."""
    return [(number, unit.strip()) for number, unit in NUMBER.findall(SETTING.sub("", section))]


def unfounded(section: str) -> list[str]:
    """Numbers of a section that stand in none of the results it names, to as many decimals as it gives."""
    held = sorted({one for stem in set(NAMED.findall(section)) for one in _values_of(stem)})
    return [f"{number} {unit}".strip() for number, unit in quoted(section) if not _stands(number, unit, held)]


def _stands(number: str, unit: str, held: list[float]) -> bool:
    value, half = float(number), 0.5 * 10.0 ** -len(number.partition(".")[2]) * (1 + 1e-9)
    for scale in {1.0, UNITS.get(unit, 1.0)}:
        at = bisect_left(held, (value - half) / scale)
        if at < len(held) and held[at] <= (value + half) / scale:
            return True
    return False


def _files_of(stem: str) -> list[Path]:
    """What readers see of a result: its Markdown, else its numbers; a study's folder has several files."""
    files = [RESULTS / f"{stem}.md", *sorted((RESULTS / stem).glob("*.md")), RESULTS / f"{stem}.json"]
    return [file for file in files if file.is_file()]


@cache
def _values_of(stem: str) -> tuple[float, ...]:
    files = _files_of(stem)
    tables = [file.read_text(encoding="utf-8") for file in files if file.suffix == ".md"]
    return tuple({one for held in tables or [json.loads(file.read_text()) for file in files] for one in _values(held)})


def _values(held: Any) -> Iterator[float]:
    """Every number; of a list of numbers its mean, median, spread, error and ends, because that is what is quoted."""
    if isinstance(held, dict):
        for name, one in held.items():
            yield from _values(name)
            yield from _values(one)
    elif isinstance(held, list):
        plain = [float(one) for one in held if isinstance(one, int | float) and math.isfinite(one)]
        if 1 < len(plain) == len(held):
            spread = statistics.stdev(plain)
            yield from map(abs, (statistics.mean(plain), statistics.median(plain), min(plain), max(plain)))
            yield from (spread, spread / len(plain) ** 0.5)
        else:
            for one in held:
                yield from _values(one)
    elif isinstance(held, str):
        yield from (float(text.replace(",", "")) for text in re.findall(r"\d+(?:,\d{3})+|\d+\.?\d*(?:e-?\d+)?", held))
    elif isinstance(held, int | float):
        yield abs(float(held))


def quotes() -> dict[tuple[str, str], tuple[int, str]]:
    """By document and heading: how many numbers a section quotes, and the seal of them and of the files they are from.

    Raises
    ------
    ValueError
        Where a number stands in no file that its section names.
    """
    found, wrong = {}, []
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = str(document.relative_to(ROOT))
        for heading, section in sections(document).items():
            stems = sorted(set(NAMED.findall(section)))
            if not stems or not quoted(section):
                continue
            where = f"stands in none of {', '.join(stems)}"
            wrong += [f"{name}, {heading}: {number} {where}" for number in unfounded(section)]
            digests = [hashlib.sha256(file.read_bytes()).hexdigest() for stem in stems for file in _files_of(stem)]
            seal = hashlib.sha256(repr((quoted(section), digests)).encode()).hexdigest()
            found[name, heading] = len(quoted(section)), seal[:12]
    if wrong:
        raise ValueError("\n".join(wrong))
    return found


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
        + "\n\n## Numbers that documents quote\n\nA seal changes with a number and with a file it is from. "
        "Look at both, then write this list anew.\n\n| section | numbers | seal |\n| --- | --- | --- |\n"
        + "".join(
            f"| [{name}](../../{name}): {heading} | {count} | {seal} |\n"
            for (name, heading), (count, seal) in quotes().items()
        )
    )


if __name__ == "__main__":
    try:
        listed = index()
    except ValueError as error:
        sys.exit(str(error))
    (RESULTS / "README.md").write_text(listed, encoding="utf-8")
    print(RESULTS / "README.md")
