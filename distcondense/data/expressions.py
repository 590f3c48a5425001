"""Formulas and conditions over a table's columns: `weight / (height / 100) ** 2`, `sex == "male" and age >= 18`.

The text is parsed with Python's `ast`, and every node must be one of the few named here; nothing is handed to `eval`. A
column whose name is no Python name stands in backquotes. Words of their own: `true`, `false`, and `x is missing`,
`x is not missing`.

A table is a mapping from names to (m,) float64: numbers as they are, categories by their code, holes as NaN. A formula
of a hole is a hole, and so is what is no finite number (1/0, log(−1)). A comparison with a hole is neither true nor
false. Two numbers that differ by less than float64 can tell after a little arithmetic (`TIE`) are equal.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from distcondense.arrays import Flags, Floats
from distcondense.errors import SchemaError

if TYPE_CHECKING:
    from distcondense.data.schema import Column

Table = Mapping[str, Floats]
Columns = Mapping[str, "Column"]

LONGEST = 2000  # letters
SHOWN = 80  # of them, in a message
DEEPEST = 200  # nodes inside each other
MAX_EXPONENT = 64
TIE = 1e-9  # relative
ARITHMETIC: dict[type[ast.operator], Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": lambda *x: np.minimum.reduce(np.broadcast_arrays(*x)),
    "max": lambda *x: np.maximum.reduce(np.broadcast_arrays(*x)),
    "log": np.log,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "round": np.round,
    "floor": np.floor,
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_WORDS = {"true": True, "false": False, "missing": None}
_TOKENS = re.compile(r""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`([^`]+)`|[^\W\d]\w*""")


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Formula:
    """A number computed from other columns."""

    text: str

    def __post_init__(self) -> None:
        _check_number(self.tree, self.text)

    @cached_property
    def tree(self) -> ast.expr:
        return _parsed(self.text)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(_names(self.tree))

    def problems(self, columns: Columns) -> list[str]:
        return _not_numbers(self.tree, columns)

    def values(self, table: Table, columns: Columns) -> Floats:
        """(m,) NaN where it is a hole."""
        return _numbers(self.tree, table, columns)


@dataclass(frozen=True)
class Condition:
    """Comparisons joined by `and`."""

    text: str

    def __post_init__(self) -> None:
        self.parts  # noqa: B018  (read now, so that a wrong text is refused where it is written)

    @cached_property
    def parts(self) -> tuple[ConditionPart, ...]:
        return tuple(_parts(_parsed(self.text), self.text))

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(part.names for part in self.parts))

    @property
    def must_be_missing(self) -> frozenset[str]:
        """Columns that must be holes for it to be true."""
        return frozenset(name for part in self.parts if part.sign == "is" for name in part.names)

    def problems(self, columns: Columns) -> list[str]:
        return [problem for part in self.parts for problem in part.problems(columns)]

    def truth(self, table: Table, columns: Columns) -> tuple[Flags, Flags]:
        """(m,) which rows it is true of, and which it is false of; with holes it may be neither."""
        results = [part.truth(table, columns) for part in self.parts]
        return np.logical_and.reduce([yes for yes, _ in results]), np.logical_or.reduce([no for _, no in results])


@dataclass(frozen=True)
class ConditionPart:
    """One comparison, `in` a list, or `is missing`."""

    left: ast.expr
    sign: str
    right: ast.expr

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*_names(self.left), *_names(self.right)))

    def problems(self, columns: Columns) -> list[str]:
        try:
            self._sides(columns)
        except SchemaError as error:
            return [str(error)]
        return []

    def truth(self, table: Table, columns: Columns) -> tuple[Flags, Flags]:
        """(m,) where it is true, and where it is false."""
        read_left, rights = self._sides(columns)
        left = read_left(table)
        if self.sign in ("is", "is not"):
            missing = np.isnan(left)
            return (missing, ~missing) if self.sign == "is" else (~missing, missing)
        sign = {"in": "==", "not in": "!="}.get(self.sign, self.sign)
        join = np.logical_and if self.sign == "not in" else np.logical_or
        others = [read(table) for read in rights]
        known = ~np.isnan(left) & ~np.logical_or.reduce([np.isnan(right) for right in others])
        results = join.reduce([_compared(left, sign, right) for right in others])
        return known & results, known & ~results

    def compared_with(self, name: str, table: Table, columns: Columns) -> list[Floats]:
        """The numbers that a column which stands alone on one side is compared with."""
        if self.sign not in FLIPPED:
            return []
        sides = ((self.left, self.right), (self.right, self.left))
        others = [other for own, other in sides if isinstance(own, ast.Name) and own.id == name]
        return [_numbers(other, table, columns) for other in others]

    def _sides(self, columns: Columns) -> tuple[Reader, list[Reader]]:
        """How to read the left side and what it is compared with; an error where they cannot be compared."""
        if self.sign in ("is", "is not"):
            return (lambda table: table[_names_of(self.left)]), []
        if self.sign in ("in", "not in"):
            assert isinstance(self.right, ast.List | ast.Tuple)
            pairs = [_comparable(self.left, "==", item, columns) for item in self.right.elts]
            return pairs[0][0], [right for _, right in pairs]
        left, right = _comparable(self.left, self.sign, self.right, columns)
        return left, [right]


Reader = Callable[[Table], Floats]


def _parsed(text: str) -> ast.expr:
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        raise _wrong(text, f"a text of 1 to {LONGEST:,} letters", "another length or type")
    quoted: dict[str, str] = {}

    def aside(match: re.Match[str]) -> str:
        """Names in backquotes, and those in other alphabets, which Python would spell its own way."""
        name = match[1] or match[0]
        if match[1] is None and (name[0] in "\"'" or name.isascii()):
            return match[0]
        return quoted.setdefault(name, f"_{'q' * 20}{len(quoted)}_")

    source = _TOKENS.sub(aside, text.strip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's own about odd literals
            tree = ast.parse(source, mode="eval").body
        names = {stand_in: name for name, stand_in in quoted.items()}
        tree = _OwnWords(names).visit(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _wrong(
            text,
            "readable",
            "something else",
            "check signs, brackets and quotes; a column whose name has "
            "spaces or is a word of Python (class, in) stands in `backquotes`",
        ) from None
    if _depth(tree) > DEEPEST:
        raise _wrong(text, f"at most {DEEPEST} deep", "more", "split it into several")
    return tree  # type: ignore[no-any-return]


class _OwnWords(ast.NodeTransformer):
    """`true`, `false` and `missing` as constants; names in backquotes as what they stand for."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in _WORDS:
            return ast.Constant(_WORDS[node.id])
        return ast.Name(self.names.get(node.id, node.id), ast.Load())

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self.visit(argument) for argument in node.args]
        return node


def _depth(tree: ast.AST) -> int:
    depth, level = 0, [tree]
    while level and depth <= DEEPEST:
        depth, level = depth + 1, [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    below = node.args if isinstance(node, ast.Call) else ast.iter_child_nodes(node)
    for child in below:
        yield from _names(child)


def _names_of(node: ast.expr) -> str:
    assert isinstance(node, ast.Name)
    return node.id


def _wrong(text: Any, rule: str, found: str, fix: str = "") -> SchemaError:
    cut = str(text) if len(str(text)) <= SHOWN else f"{str(text)[:SHOWN]}…"
    return SchemaError(repr(cut), f"must be {rule}", found=found, fix=fix)


def _check_number(node: ast.expr, text: str) -> None:
    """Numbers, columns, + − * / **, brackets and a few functions."""
    match node:
        case ast.Name():
            return
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if not _finite(value):
                raise _wrong(text, "of finite numbers", "one beyond float64")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner):
            _check_number(inner, text)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            _check_number(left, text)
            _check_number(right, text)
            number = _literal(right) if isinstance(op, ast.Pow) else 0
            if isinstance(number, int | float) and abs(number) > MAX_EXPONENT:
                raise _wrong(text, f"without exponents above {MAX_EXPONENT}", str(number))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            least, most = (2, 99) if name in ("min", "max") else (1, 1)
            if not least <= len(arguments) <= most:
                many = "two or more arguments" if least == 2 else "one argument"
                raise _wrong(text, f"with {many} for {name}", str(len(arguments)))
            for argument in arguments:
                _check_number(argument, text)
        case _:
            raise _wrong(
                text, f"made of columns, numbers, + - * / **, brackets and {', '.join(FUNCTIONS)}", _shown(node)
            )


def _finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _shown(node: ast.AST) -> str:
    """What stands there, in words."""
    match node:
        case ast.Attribute(attr=name):
            return f"an attribute, .{name}"
        case ast.Call(func=ast.Name(id=name)):
            return f"function {name}"
        case ast.Call():
            return "a call"
        case ast.Constant(value=None):
            return "missing, which is written `is missing`"
        case ast.Constant(value=value):
            return repr(value)
        case ast.BoolOp(op=ast.Or()):
            return "or"
        case ast.UnaryOp(op=ast.Not()):
            return "not"
    return {"Subscript": "an index, [...]", "List": "a list", "Compare": "a comparison"}.get(
        type(node).__name__, type(node).__name__
    )


def _literal(node: ast.expr) -> Any:
    """A text, number or truth as it is written; `...` where the node is none."""
    match node:
        case ast.Constant(value=str() | bool() | int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)) if value is not True:
            return -value
    return ...


def _parts(node: ast.expr, text: str) -> Iterator[ConditionPart]:
    """The comparisons of a condition; `18 <= age <= 65` are two."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for inner in node.values:
            yield from _parts(inner, text)
        return
    if not isinstance(node, ast.Compare):
        raise _wrong(
            text,
            "comparisons (==, !=, <, <=, >, >=, in [...], is missing), joined by and",
            _shown(node),
            "of what `or` joins make several rules" if _shown(node) == "or" else "",
        )
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        part = ConditionPart(left, COMPARISONS[type(op)], right)
        _check_part(part, text)
        yield part
        left = right


def _check_part(part: ConditionPart, text: str) -> None:
    sides = [part.left, part.right]
    if part.sign in ("is", "is not"):
        if not (isinstance(part.left, ast.Name) and isinstance(part.right, ast.Constant) and part.right.value is None):
            raise _wrong(text, "`column is missing` where it says is", "something else", "compare with ==")
        return
    if part.sign in ("in", "not in"):
        if not isinstance(part.right, ast.List | ast.Tuple) or not part.right.elts:
            raise _wrong(text, 'a column `in` a list, as in stage in ["I", "II"]', "no list")
        sides = [part.left, *part.right.elts]
        if any(_literal(item) is ... for item in part.right.elts):
            raise _wrong(text, "a list of texts, numbers or true/false", "something else in it")
    for side in sides:
        if _literal(side) is ...:
            _check_number(side, text)
        elif isinstance(_literal(side), int | float) and not _finite(_literal(side)):
            raise _wrong(text, "of finite numbers", "one beyond float64")
    if not any(True for side in sides for _ in _names(side)):
        raise _wrong(text, "about a column", "two constants")


# -- comparing --------------------------------------------------------------------------------------------------------


def _comparable(left: ast.expr, sign: str, right: ast.expr, columns: Columns) -> tuple[Reader, Reader]:
    """How to read both sides as numbers that can be compared: categories by code or, where they are numbers, so."""
    one, other = _labelled(left, columns), _labelled(right, columns)
    if one is None and other is not None:
        second, first = _comparable(right, FLIPPED[sign], left, columns)
        return first, second
    if one is None:
        problems = [*_not_numbers(left, columns), *_not_numbers(right, columns)]
        if problems:
            raise SchemaError("comparison", "needs numbers on both sides", found=problems[0])
        return _reader(left, columns), _reader(right, columns)
    by_code = sign in ("==", "!=")
    value = _literal(right)
    if other is not None:
        same = one.categories == other.categories
        if by_code or (one.ordered and other.ordered and same):
            return _reader(left, columns, codes=True), _translated(other, one)
    elif value is not ...:
        code = code_of(one, value)
        if code is not None and (by_code or one.ordered):
            return _reader(left, columns, codes=True), lambda table: np.array(float(code))
        if code is None and (by_code or not (_number_labels(one) and _is_number(value))):
            raise SchemaError(
                f"column {one.name!r}",
                "must have the category",
                found=f"no {value!r} among its {len(one.categories)}",
                fix="write it as the schema does",
            )
    if by_code and other is None and value is ... and not _number_labels(one):
        raise SchemaError(f"column {one.name!r}", "has categories: compare it with one of them", found="numbers")
    problems = [*_not_numbers(left, columns), *_not_numbers(right, columns)]
    if problems:
        raise SchemaError(
            f"column {one.name!r}", "has no order", found=sign, fix="say ordered = true, or compare with == or in"
        )
    return _reader(left, columns), _reader(right, columns)


def _labelled(node: ast.expr, columns: Columns) -> Column | None:
    """The column, where a side is one with categories and nothing else."""
    column = columns[node.id] if isinstance(node, ast.Name) else None
    return None if column is None or column.numeric else column


def code_of(column: Column, value: Any) -> int | None:
    """The number of a category; 1, true and "1" are three."""
    for code, label in enumerate(column.categories):
        if label == value and _sort(label) == _sort(value):
            return code
    return None


def _sort(value: Any) -> str:
    return "text" if isinstance(value, str) else "truth" if isinstance(value, bool) else "number"


def _is_number(value: Any) -> bool:
    return _sort(value) == "number"


def _number_labels(column: Column) -> bool:
    return all(map(_is_number, column.categories))


def _not_numbers(node: ast.expr, columns: Columns) -> list[str]:
    """What stands in a formula without being a number."""
    texts = [child.value for child in ast.walk(node) if isinstance(child, ast.Constant)]
    problems = [f"{value!r} is no number" for value in texts if not _is_number(value)]
    return problems + [
        f"column {name!r} has categories that are no numbers"
        for name in sorted(set(_names(node)))
        if not columns[name].numeric and not _number_labels(columns[name])
    ]


def _reader(node: ast.expr, columns: Columns, *, codes: bool = False) -> Reader:
    if codes:
        return lambda table: table[_names_of(node)]
    return lambda table: _numbers(node, table, columns)


def _translated(column: Column, into: Column) -> Reader:
    """One column's codes as another's; a category that the other does not have is none of its own."""
    translated = [code_of(into, label) for label in column.categories]
    codes = np.array([*(-1 if code is None else code for code in translated), np.nan])
    return lambda table: _looked_up(codes, table[column.name])


def _looked_up(values: Floats, codes: Floats) -> Floats:
    """`values` of these codes; its last one is for holes."""
    return values[np.where(np.isnan(codes), len(values) - 1, codes).astype(np.int64)]


def _compared(left: Floats, sign: str, right: Floats) -> Flags:
    equal = np.abs(left - right) <= TIE * np.maximum(np.abs(left), np.abs(right))
    signs: dict[str, Callable[[], Any]] = {
        "==": lambda: equal,
        "!=": lambda: ~equal,
        "<": lambda: (left < right) & ~equal,
        "<=": lambda: (left < right) | equal,
        ">": lambda: (left > right) & ~equal,
        ">=": lambda: (left > right) | equal,
    }
    flags: Flags = signs[sign]()
    return flags


# -- computing --------------------------------------------------------------------------------------------------------


def _numbers(node: ast.expr, table: Table, columns: Columns) -> Floats:
    """(m,) or a single number; NaN where it is a hole."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return np.array(float(value))
        case ast.Name(id=name):
            column = columns[name]
            if column.numeric:
                return table[name]
            return _looked_up(np.array([*map(float, column.categories), np.nan]), table[name])
        case ast.UnaryOp(op=op, operand=inner):
            inside = _numbers(inner, table, columns)
            return -inside if isinstance(op, ast.USub) else inside
        case ast.BinOp(left=left, op=op, right=right):
            return _known(ARITHMETIC[type(op)], [_numbers(side, table, columns) for side in (left, right)])
        case ast.Call(func=ast.Name(id=function), args=arguments):
            return _known(FUNCTIONS[function], [_numbers(argument, table, columns) for argument in arguments])
    raise AssertionError(type(node).__name__)


def _known(function: Callable[..., Any], arguments: Sequence[Floats]) -> Floats:
    """What the function makes of them; a hole where one is (NumPy's hole ** 0 is 1), or where it is no number."""
    with np.errstate(all="ignore"):
        values = function(*arguments)
    holes = operator.or_(~np.isfinite(values), np.logical_or.reduce(np.broadcast_arrays(*map(np.isnan, arguments))))
    return np.where(holes, np.nan, values)
