"""A public function names the errors that it raises itself; what the package hands out says what it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import get_args, get_type_hints

import pytest

import vramwise
from vramwise.checking.job import Check
from vramwise.dryrun.block import DryBlock
from vramwise.hardware import GpuMatch
from vramwise.interop.export import Export
from vramwise.models import Model
from vramwise.planner.grid import Grid
from vramwise.planner.option import Option
from vramwise.planner.plan import Plan
from vramwise.planner.rows import Row
from vramwise.watching.watch import Watch

PACKAGE = Path(vramwise.__file__).parent
NOT_FOR_CALLERS = {"AssertionError", "AttributeError", "KeyboardInterrupt", "NotImplementedError", "SystemExit"}
"""What Python's own protocols ask for, and what ends a program."""


def _public(body: list[ast.stmt], within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for each in body:
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
            yield from _public(each.body, f"{each.name}.")
        elif isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            yield f"{within}{each.name}", each


def _raised(node: ast.AST) -> Iterator[str]:
    """The errors that leave it by a `raise` of its own: not those inside a `try` that catches some."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(child, ast.Try) and child.handlers:
            for part in (*child.handlers, *child.orelse, *child.finalbody):
                yield from _raised(part)
            continue
        if isinstance(child, ast.Raise) and child.exc is not None:
            error = child.exc.func if isinstance(child.exc, ast.Call) else child.exc
            name = getattr(error, "id", getattr(error, "attr", ""))
            if name[:1].isupper() and name not in NOT_FOR_CALLERS:
                yield name
        yield from _raised(child)


def test_what_is_raised_stands_in_the_docstring():
    missing = [
        f"{path.relative_to(PACKAGE)}:{function.lineno} {name}: {error}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name, function in _public(ast.parse(path.read_text("utf-8")).body)
        if (said := ast.get_docstring(function)) is not None
        for error in sorted(set(_raised(function)))
        if error not in said
    ]
    assert missing == []


@pytest.mark.parametrize("module", ["config", "lengths"])
def test_what_reads_a_config_says_what_a_wrong_value_raises(module: str):
    """`raise self.error(…)` is a SourceError."""
    functions = _public(ast.parse((PACKAGE / f"models/{module}.py").read_text("utf-8")).body)
    missing = [
        name
        for name, function in functions
        if re.search(r"raise \w+\.error\(", ast.unparse(function))
        and "SourceError" not in (ast.get_docstring(function) or "")
    ]
    assert missing == []


def _classes(found: type, seen: set[type]) -> Iterator[type]:
    """A class of the package and those of its fields and properties' answers."""
    if found in seen or not found.__module__.startswith("vramwise"):
        return
    seen.add(found)
    yield found
    for hints in (found, *(one.fget for one in vars(found).values() if isinstance(one, property) and one.fget)):
        yield from _named_in(hints, seen)


def _named_in(hinted: object, seen: set[type]) -> Iterator[type]:
    try:
        hints = get_type_hints(hinted)
    except (NameError, TypeError):  # imported for type checkers alone
        return
    waiting = list(hints.values())
    while waiting:
        hint = waiting.pop()
        waiting += get_args(hint)
        if isinstance(hint, type):
            yield from _classes(hint, seen)


def test_everything_that_the_package_hands_out_says_what_it_is():
    seen: set[type] = set()
    offered = [getattr(vramwise, name) for name in vramwise.__all__ if not name.startswith("__")]
    answers = [Check, DryBlock, Export, GpuMatch, Grid, Model, Option, Plan, Row, Watch]
    classes = [one for each in (*offered, *answers) if isinstance(each, type) for one in _classes(each, seen)]
    silent = [f"{one.__module__}.{one.__qualname__}" for one in (*offered, *classes) if not one.__doc__]
    silent += [
        f"{one.__module__}.{one.__qualname__}.{name}"
        for one in classes
        for name, member in vars(one).items()
        if not name.startswith("_")
        and isinstance(member, FunctionType | property | classmethod | staticmethod)
        and not member.__doc__
    ]
    assert len(classes) > 15
    assert silent == []


def test_a_usage_error_says_what_raises_it():
    """A caller who reads "Raises UsageError." knows no more than before: people's mistakes are named."""
    bare = [
        f"{path.relative_to(PACKAGE)}:{function.lineno} {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name, function in _public(ast.parse(path.read_text("utf-8")).body)
        if re.search(r"Raises UsageError\.", ast.get_docstring(function) or "")
    ]
    assert bare == []
