"""Sums of whole numbers, as shell and Python texts hold them: read from their parts, never evaluated as code."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

_LONGEST, _LARGEST = 500, 2**63


def whole_value(text: str, variables: Mapping[str, str]) -> int | None:
    """The value of `text` with +, -, *, /, % and brackets; None for anything else."""
    filled = re.sub(r"[A-Za-z_][A-Za-z0-9_]*", lambda match: variables.get(match.group(), "?"), text[:_LONGEST]).strip()
    if len(text) > _LONGEST or len(filled) > _LONGEST or not re.fullmatch(r"[\d\s+*/%()-]+", filled):
        return None
    try:
        return value_of(ast.parse(re.sub(r"/+", "//", filled), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def value_of(node: ast.expr) -> int | None:
    """The whole number that an expression of numbers is; None where it is anything else or too large."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = value_of(node.operand)
        return None if value is None else -value
    return combined(node.op, value_of(node.left), value_of(node.right)) if isinstance(node, ast.BinOp) else None


def combined(operator: ast.operator, left: object, right: object) -> int | None:
    """The result for two whole numbers; None for anything else, for a division by zero, and beyond 64 bits."""
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    found = _result(operator, left, right)
    return found if found is not None and abs(found) < _LARGEST else None


def _result(operator: ast.operator, left: int, right: int) -> int | None:
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if isinstance(operator, ast.Pow):
        return left**right if 0 <= right <= 64 and abs(left) <= 1024 else None
    if right == 0:
        return None
    if isinstance(operator, ast.FloorDiv | ast.Div):
        return left // right
    return left % right if isinstance(operator, ast.Mod) else None
