"""Python text looked at, never run: the calls in it with the values that stand there or in plain assignments.

A notebook's code cells are one text, without the lines that are a shell's (`!pip install …`) or magic (`%%capture`).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from vramwise.errors import SourceError, UsageError
from vramwise.files import shown_path
from vramwise.interop.files.arithmetic import combined
from vramwise.interop.files.given import Given
from vramwise.units import MIB

_LONGEST, _MOST_NODES, _DEEPEST = MIB, 200_000, 60
_DTYPES = frozenset({"bfloat16", "float16", "float32", "half", "bfloat"})


class Unknown:
    """A value that only a run would tell."""


UNKNOWN = Unknown()


def left_out(names: Iterable[str]) -> tuple[str, ...]:
    """The note that names what is not written out; none where everything is."""
    named = ", ".join(names)
    return (f"only a run would tell, left out: {named}",) if named else ()


@dataclass(slots=True)
class Call:
    """One call: the whole dotted name of what is called, and its arguments as far as they are known."""

    name: str
    positional: list[object] = field(default_factory=list)
    named: dict[str, object] = field(default_factory=dict)

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


def code_of(given: Given) -> str:
    """The Python text of a script or a notebook. Raises SourceError for a notebook that is none."""
    if given.suffix != ".ipynb":
        return given.text
    try:
        cells = json.loads(given.text)["cells"]
        sources = [cell["source"] for cell in cells if cell.get("cell_type") == "code"]
        texts = ["".join(source) if isinstance(source, list) else str(source) for source in sources]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SourceError(f"{shown_path(given.path)}: not a notebook") from None
    return "\n".join(cell for cell in map(_python_of, texts) if _is_python(cell))


def _python_of(cell: str) -> str:
    """A cell with `pass` where a shell's lines or magic stand."""
    lines, goes_on = [], False
    for line in cell.splitlines():
        bare = line.lstrip()
        is_shells = goes_on or bare[:1] in ("!", "%")
        goes_on = is_shells and line.rstrip().endswith("\\")
        lines.append(f"{line[: len(line) - len(bare)]}pass" if is_shells else line)
    return "\n".join(lines)


def _is_python(cell: str) -> bool:
    """Whether a cell can be read; one of another language, or with text to fill in, is passed over."""
    try:
        ast.parse(cell)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def tree_of(text: str, path: str) -> ast.Module:
    """The parsed text. Raises SourceError for what is no Python or too large."""
    if len(text) > _LONGEST:
        raise SourceError(f"{shown_path(path)}: more than 1 MiB of code")
    try:
        tree = ast.parse(text)
        count = sum(1 for _ in zip(ast.walk(tree), range(_MOST_NODES), strict=False))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        where = f" (line {problem.lineno})" if isinstance(problem, SyntaxError) and problem.lineno else ""
        raise SourceError(f"{shown_path(path)}: not Python{where}") from None
    if count >= _MOST_NODES:
        raise SourceError(f"{shown_path(path)}: more code than a training script has")
    return tree


def assigned(tree: ast.AST) -> dict[str, object]:
    """Names with the value of their first plain assignment, defaults of a function's arguments among them."""
    values: dict[str, object] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                _take(target, node.value, values)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            _take(node.target, node.value, values)
        elif isinstance(node, ast.FunctionDef):
            defaults = node.args.defaults
            for argument, default in zip(node.args.args[len(node.args.args) - len(defaults) :], defaults, strict=True):
                values.setdefault(argument.arg, value_in(default, values))
    return values


def _take(target: ast.expr, value: ast.expr, values: dict[str, object]) -> None:
    if isinstance(target, ast.Name):
        found = value_in(value, values)
        if values.get(target.id, UNKNOWN) is UNKNOWN:
            values[target.id] = found
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for inner, one in zip(target.elts, value.elts, strict=True):
            _take(inner, one, values)


def calls_in(tree: ast.AST, values: Mapping[str, object]) -> list[Call]:
    """Every call by a name, in the order of the text."""
    nodes = sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)),
                   key=lambda node: (node.lineno, node.col_offset))  # fmt: skip
    return [call for call in (_call(node, values) for node in nodes) if call is not None]


def _call(node: ast.Call, values: Mapping[str, object], depth: int = 0) -> Call | None:
    name = dotted(node.func)
    if not name:
        return None
    found = Call(name, [value_in(argument, values, depth) for argument in node.args])
    for keyword in node.keywords:
        value = value_in(keyword.value, values, depth)
        if keyword.arg is not None:
            found.named[keyword.arg] = value
        elif isinstance(value, Mapping):
            found.named |= {str(key): one for key, one in value.items()}
    return found


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a name or attribute, else nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < _DEEPEST:
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def value_in(node: ast.expr, values: Mapping[str, object], depth: int = 0) -> object:
    """What an expression is: a constant, a list, a table, a call by its name, a number; UNKNOWN for anything else."""
    if depth > _DEEPEST:
        return UNKNOWN
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values.get(node.id, UNKNOWN)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [value_in(one, values, depth + 1) for one in node.elts]
    if isinstance(node, ast.Dict):
        pairs = [(key, one) for key, one in zip(node.keys, node.values, strict=True) if key is not None]
        return {str(value_in(key, values, depth + 1)): value_in(one, values, depth + 1) for key, one in pairs}
    if isinstance(node, ast.Call):
        call = _call(node, values, depth + 1)
        return UNKNOWN if call is None else {str(k): v for k, v in call.named.items()} if call.name == "dict" else call
    if isinstance(node, ast.Attribute):
        return node.attr if node.attr in _DTYPES else UNKNOWN
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        inner = value_in(node.operand, values, depth + 1)
        if isinstance(node.op, ast.Not):
            return not inner if isinstance(inner, bool) else UNKNOWN
        return -inner if isinstance(inner, int | float) else UNKNOWN
    if isinstance(node, ast.BinOp):
        number = combined(node.op, value_in(node.left, values, depth + 1), value_in(node.right, values, depth + 1))
        return UNKNOWN if number is None else number
    return UNKNOWN


def known(table: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Arguments whose value is known, and the names of the others."""
    found: dict[str, object] = {}
    unknown = []
    for name, value in table.items():
        parts = value if isinstance(value, list) else [value]
        if any(isinstance(part, Unknown | Call) for part in parts):
            unknown.append(name)
        else:
            found[name] = value
    return found, unknown


def first(calls: Iterator[Call] | list[Call], *names: str) -> Call | None:
    """The first call whose name ends so."""
    return next((call for call in calls if any(call.name == name or call.name.endswith(f".{name}") for name in names)),
                None)  # fmt: skip


def names_the_argument(tree: ast.AST, name: str) -> bool:
    """Whether something in the text is given an argument of that name, or a table has it as a key."""
    return any(
        (isinstance(node, ast.keyword) and node.arg == name) or (isinstance(node, ast.Constant) and node.value == name)
        for node in ast.walk(tree)
    )


def text_of(value: object) -> str | None:
    """A text among values."""
    return value if isinstance(value, str) else None


def refuse(path: str, what: str) -> UsageError:
    """The error for a text without what is needed."""
    return UsageError(f"{shown_path(path)}: {what}")
