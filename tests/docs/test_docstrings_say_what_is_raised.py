"""A public function whose own lines raise an error names it in its docstring, as a caller has to know."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import vramwise

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


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_is_raised_stands_in_the_docstring(path):
    missing = [
        f"{name} (line {function.lineno}): {error}"
        for name, function in _public(ast.parse(path.read_text("utf-8")).body)
        if (said := ast.get_docstring(function)) is not None
        for error in sorted(set(_raised(function)))
        if error not in said
    ]
    assert missing == []
