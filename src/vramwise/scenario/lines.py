"""JSON Lines, read with bounded memory: numbered lines, each parsed by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

from vramwise.errors import ScenarioError
from vramwise.scenario.files import parse_json
from vramwise.scenario.messages import shown
from vramwise.units import MIB, format_bytes

LONGEST_LINE_BYTES = 16 * MIB
"""A longer line is passed over without being held in memory."""


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Every line that is not blank with its number from 1; None stands for a line that is too long."""
    number = 0
    while line := stream.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        if len(line) <= LONGEST_LINE_BYTES:
            if not line.isspace():
                yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(MIB)
        yield number, None


def parse_line(line: bytes | None) -> dict[str, Any]:
    """The JSON object of one line. Raises ScenarioError, in words, for anything else."""
    if line is None:
        raise ScenarioError("", f"the line is longer than {format_bytes(LONGEST_LINE_BYTES, 'MiB', 0)}")
    try:
        value = parse_json(line.rstrip().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ScenarioError("", "not text (UTF-8)") from None
    except RecursionError:
        raise ScenarioError("", "nested too deeply") from None
    except ValueError as problem:
        raise ScenarioError("", str(problem)) from None
    if not isinstance(value, dict):
        raise ScenarioError("", f"expected a JSON object, got {shown(value)}")
    return value
