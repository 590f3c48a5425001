"""`release/README.md`: for whoever gets a table and has nothing else, in words and code that need no distcondense.

Made of what is released and nothing else: the schema, the kind of outcome, the statement, and how many rows there are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from distcondense import __version__
from distcondense.data.reserved import WEIGHT
from distcondense.data.schema import Column, Label
from distcondense.outcomes.measures import title
from distcondense.outcomes.recipes import Recipe, Released
from distcondense.privacy.statement import Privacy
from distcondense.report.text import clean, written
from distcondense.runs.release import DATASHEET, PAGE, PICTURE, SCHEMA, csv_name
from distcondense.runs.result import Result

if TYPE_CHECKING:
    from jinja2 import Environment

MOST = 12  # categories that are listed
TAKEN_FOR_HOLES = {  # by pandas, readr or read.csv, by default
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
}
_TAKEN = re.compile(r"\s*([+-]?(\d[\d,]*\.?\d*|\.\d+)([eE][+-]?\d+)?|T|F|[Tt]rue|TRUE|[Ff]alse|FALSE|inf|Inf)\s*$")
_CHANGED = re.compile(  # formulas; dates; leading zeros; more than 15 digits; powers of ten; true and false
    r"[=+@\t\r]|-\D|\d{1,4}[-/.]\d{1,4}([-/.]\d{1,4})?$|\d{1,2}[ -]?[A-Za-z]{3,9}$|[A-Za-z]{3,9}[ -]?\d{1,4}$"
    r"|0\d|\d{16}|\d+[eE]\d+$|(?i:true|false)$"
)
# the main measures: from where on a model knows something, by what it expects of itself; a guess reaches 0.5 (R²: 0)
FAINT = {title("auroc"): 0.6, title("macro_auroc"): 0.6, title("c_index"): 0.6, title("r2"): 0.05}
WARNINGS = {  # guarantee → what stands above everything else
    "conditional": "**CAREFUL.** The guarantee holds only if what was read off the patients (bounds, categories) is "
    "public anyway.",
    "as-published": "**WARNING: NO THEOREM COVERS THIS TABLE.** Its ε (as-published) is a paper's own accounting, "
    "which does not bound what the rows tell of a patient. Do not call it differentially private; do not publish it.",
    "none": "**NO PRIVACY GUARANTEE. TREAT THIS TABLE AS PATIENT DATA.** Nothing bounds what its rows tell of a "
    "patient. Do not hand it on; if you are not entitled to see patient data, delete it and tell whoever sent it.",
}


def manual(sets: Mapping[str, Result]) -> str:
    """Of a run's sets by their tables' names."""
    first = next(iter(sets.values()))
    kind, privacy = first.kind, first.privacy
    files = {csv_name(name, one.frame): len(one.frame) for name, one in sets.items()}
    holes = [column.name for column in first.schema.columns if column.keeps_holes]
    return markdown("manual.md.j2").render(
        outcome=" and ".join(map(code, kind.names)),
        warning=WARNINGS.get(privacy.guarantee, ""),
        privacy=privacy,
        claim=clean(privacy.sentence()),
        answer=clean(privacy.answer),
        files=files,
        first=next(iter(files)),
        words=[
            _as_code(f"{column.name}: {column.meaning}", (*kind.names, *kind.own_columns()))
            for column in (*kind.outcome_columns(), *kind.added_columns())
        ],
        weight=code(WEIGHT),
        apart=[code(name) for name in (*kind.names, *kind.own_columns(), WEIGHT)],
        recipes=recipes(sets),
        misread=misread(labels_of(first)),
        columns=[
            (code(column.name), column.kind, f"{column_values(column, code)}{clean(_unit(column))}")
            for column in first.schema.columns
        ],
        holes=[code(name) for name in holes],
        raw=first.raw,
        covered=first.covered,
        expected=expected_words(privacy),
        doubtful=doubtful(privacy),
        names={"schema": SCHEMA, "page": PAGE, "datasheet": DATASHEET, "picture": PICTURE},
        version=__version__,
        unit=privacy.unit,
        rules=[clean(str(rule)) for rule in first.schema.rules],
    )


Listed = Mapping[str, Sequence[Label]]  # column → its categories


def labels_of(result: Result) -> Listed:
    """Of every column of a released table that has categories."""
    own = {column.name: column.categories for column in result.schema.columns}
    return own | ({result.kind.names[-1]: result.kind.labels} if result.kind.labels else {})


def recipes(sets: Mapping[str, Result]) -> tuple[Recipe, ...]:
    """How the first of a run's tables teaches models of other people's tools."""
    name, first = next(iter(sets.items()))
    kind, quoted = first.kind, tuple(texts(labels_of(first)))
    return kind.recipes(Released(csv_name(name, first.frame), kind.names, kind.own_columns(), WEIGHT, quoted))


def texts(labels: Listed) -> list[str]:
    """Columns whose texts a reader of CSV takes for numbers or for true and false, unless it is told."""
    return _columns_with(labels, _TAKEN.match)


def _columns_with(labels: Listed, matches: Callable[[str], object]) -> list[str]:
    """Columns of which some category is a text that matches."""
    return [name for name, own in labels.items() if any(isinstance(text, str) and matches(text) for text in own)]


def misread(labels: Listed) -> list[str]:
    """What tools make of some categories if they are not told otherwise, in a sentence each."""

    def where(matches: Callable[[str], object]) -> str:
        return ", ".join(map(code, _columns_with(labels, matches)))

    warnings = []
    if names := where(lambda text: text in TAKEN_FOR_HOLES):
        warnings.append(
            f"In {names} a category is written like a missing value: pandas and R take it for one by default."
        )
    if names := where(_TAKEN.match):
        warnings.append(
            f"In {names} categories are texts that look like numbers or like true and false (leading zeros, T, "
            "F): read these columns as text."
        )
    if names := where(_CHANGED.match):
        warnings.append(
            f"Spreadsheets change cells of {names} when they open the file (into formulas, dates or shorter "
            "numbers): import it with every column as text."
        )
    if where(lambda text: not text.isascii()) or not all(map(str.isascii, labels)):
        warnings.append("The file is UTF-8 without a byte-order mark: spreadsheets must be told so.")
    return warnings


def expected_words(privacy: Privacy) -> str:
    """How good the model behind the rows takes itself to be: computed from noisy answers, so that it may be quoted."""
    expected = privacy.parameters.get("expected_by_the_model_itself")
    return f"{expected[0]} {expected[1]:.2f}" if expected else ""


def doubtful(privacy: Privacy) -> bool:
    """Whether the model behind the rows takes itself for hardly better than a guess: by noisy answers alone."""
    expected = privacy.parameters.get("expected_by_the_model_itself")
    return expected[1] < FAINT.get(expected[0], -math.inf) if expected else False


def column_values(column: Column, quoted: Callable[[str], str] = str) -> str:
    """Categories, the first of many, or bounds, in the words of the public schema."""
    if column.categories:
        listed = ", ".join(quoted(written(category)) for category in column.categories[:MOST])
        return listed + (f", … ({len(column.categories):,} in all)" if len(column.categories) > MOST else "")
    return "" if column.low is None else f"{written(column.low)} to {written(column.high)}"


def _unit(column: Column) -> str:
    return f" {column.unit}" if column.unit and not column.categories else ""


def code(text: Any) -> str:
    """A name as Markdown shows it verbatim, whatever is in it."""
    plain = clean(str(text)).replace("`", "ˋ").replace("|", "¦").replace("\n", " ")
    return f"`{plain}`"


def _as_code(line: str, names: tuple[str, ...]) -> str:
    """A sentence about columns that begins with one."""
    name = next((name for name in sorted(names, key=len, reverse=True) if line.startswith(name)), "")
    return f"{code(name)}{clean(line[len(name) :])}" if name else clean(line)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined  # slow to import

    return Environment(
        loader=PackageLoader("distcondense.report"),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def markdown(template: str) -> Any:
    """Plain text: nothing in it is escaped but by `code` and `clean`."""
    return _environment().get_template(template)
