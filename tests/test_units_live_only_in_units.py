"""Only vramwise.units knows how many bytes a unit has: 2**30, 1 << 30 and 1e9 stand nowhere else.

Nor is anything multiplied or divided by 1024; as a count of its own (GPT-2's positions) it may stand.
"""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "vramwise"
SKIPPED = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.STRING)
UNIT_CONSTANTS = re.compile(
    r"[*/%] 1_?024(\.0)?(?![\w.])|(?<![\w.])1_?024(\.0)? [*/%]|(?<![\w.])("
    r"1_?048_?576|1_?073_?741_?824|1_?000_?000_?000"
    r"|1e9|1e-9|1\.0e9"
    r"|2(\.0)? \*\* (10|20|30)|1 << (10|20|30)|10(\.0)? \*\* 9|1_?000 \*\* 3"
    r")(?![\w.])"
)
MAY_HOLD_ONE = re.compile(r"1_?024|1_?048_?576|1_?073_?741_?824|1_?000_?000_?000|1(\.0)?e-?9|0\s*\*\*|2\s*\*\*|1\s*<<")
"""Text that may be one of them: the others need not be taken apart."""


def code_of(source):
    """The code's tokens without comments and texts, one blank between them."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return " ".join(token.string for token in tokens if token.type not in SKIPPED)


def test_no_other_module_holds_a_unit():
    found = [
        f"{path.relative_to(SOURCES)}: {match.group()}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path.name != "units.py"
        if MAY_HOLD_ONE.search(text := path.read_text("utf-8"))
        for match in UNIT_CONSTANTS.finditer(code_of(text))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    ["n / 1024", "1024 * n", "n // 1024 // 2", "n * 2**30", "n >> (1 << 30)", "n / 1e9", "10**9", "x = 1_073_741_824"],
)
def test_the_search_finds_them(code):
    assert MAY_HOLD_ONE.search(code)
    assert UNIT_CONSTANTS.search(code_of(code + "\n"))


@pytest.mark.parametrize(
    "code", ["n / 10240", "'1024'", "# 2**30", "2**31", "1e12", "x.h1024", "n_positions = 1024", "f(1024)"]
)
def test_the_search_finds_nothing_else(code):
    assert not UNIT_CONSTANTS.search(code_of(code + "\n"))
