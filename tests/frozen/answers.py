"""What the commands that plan, judge and count say for `commands.txt`, as they last said it (`answers.jsonl`).

    python tests/frozen/answers.py            what is no longer so, exit 1 if anything
    python tests/frozen/answers.py --write    freeze what is said today (a minute)

Every value of `--json` is held but ends of intervals and probabilities, which move with each new case.
"""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from freeze import differences, lines_of, write_lines

from vramwise.cli.main import main as vramwise

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.jsonl"
MOVING = frozenset({"low", "high", "probability"})


def commands() -> list[str]:
    return (HERE / "commands.txt").read_text("utf-8").splitlines()


def frozen() -> dict[str, dict[str, Any]]:
    """The answers as they were frozen, by command."""
    return {line.pop("command"): line for line in lines_of(ANSWERS)}


def answer_of(command: str) -> dict[str, Any]:
    """What a command says today."""
    first, *rest = shlex.split(command)
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(StringIO()):
        code = vramwise([first, "--json", *rest])
    return {"exit": code, "answer": _held(json.loads(said.getvalue()))}


def _held(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _held(entry) for key, entry in value.items() if key not in MOVING}
    if isinstance(value, list):
        return {str(place): _held(entry) for place, entry in enumerate(value)}
    return float(f"{value:.9g}") if isinstance(value, float) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="freeze what is said today")
    if parser.parse_args().write:
        write_lines(ANSWERS, ({"command": command, **answer_of(command)} for command in commands()))
        return 0
    then = frozen()
    found = [line for command in commands() for line in differences(command, then.get(command, {}), answer_of(command))]
    print("\n".join([*found, f"{len(found)} values are other than frozen"]))
    return bool(found)


if __name__ == "__main__":
    raise SystemExit(main())
