"""Every flag of every command stands in frozen_flags.txt: a new one, or one less, is a decision.

After such a decision, write the file anew: python tests/test_frozen_flags.py
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from vramwise.cli.main import COMMANDS, command_parser

FROZEN = Path(__file__).with_name("frozen_flags.txt")
BUILT = [name for name in COMMANDS if find_spec(f"vramwise.cli.{name.replace('-', '_')}")]


def flags_of(command):
    return sorted(set(command_parser(command).option_strings()))


def frozen():
    table: dict[str, list[str]] = {}
    for line in FROZEN.read_text("utf-8").splitlines():
        if line.startswith("vramwise "):
            table[line.removeprefix("vramwise ")] = flags = []
        elif line:
            flags.append(line.strip())
    return table


@pytest.mark.parametrize("command", BUILT)
def test_the_flags_are_the_frozen_ones(command):
    assert flags_of(command) == frozen()[command]


def test_no_command_is_missing():
    assert list(frozen()) == BUILT


if __name__ == "__main__":
    FROZEN.write_text(
        "\n\n".join("\n    ".join([f"vramwise {name}", *flags_of(name)]) for name in BUILT) + "\n", "utf-8"
    )
