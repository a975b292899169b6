"""How many different trainings a core answers a second, steps replayed: python benchmarks/replay.py [PYTHON …]

Every ninth measured training in a new process, each asked once, then once more at another micro-batch and length. Of
further interpreters (an environment with the compiled wheel) the same, by turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import processes

CASES = Path(__file__).parent / "cases"
EVERY, TURNS = 9, 3


def trainings() -> list[dict[str, Any]]:
    """Scenarios of measured trainings, no two the same."""
    lines = [line for path in sorted(CASES.glob("training*.jsonl")) for line in path.read_text("utf-8").splitlines()]
    found = {json.dumps(case["scenario"]): case["scenario"] for case in map(json.loads, lines)}
    return [one for one in list(found.values())[::EVERY] if one["task"] == "train"]


def answered() -> None:
    """In a process of its own: answers a second, the first time and at other sizes."""
    from vramwise import estimate
    from vramwise.errors import VramwiseError
    from vramwise.training.reserved_memory import play

    asked = trainings()
    rates = []
    for grown in (1, 2):
        began = time.process_time()
        for one in asked:
            sizes = {"sequence_length": grown * one["train"].get("sequence_length", 2048)} if grown > 1 else {}
            try:
                estimate({**one, "train": {**one["train"], **sizes}}, limits=False).to_dict()
            except VramwiseError:
                continue
        rates.append(len(asked) / (time.process_time() - began))
    print(json.dumps([*rates, not play.__file__.endswith(".py"), len(asked)]))


def main() -> None:
    """Measure and print."""
    print(processes.machine())
    print(f"{'trainings a second of CPU':<34}{'different':>11}{'other length':>14}")
    pythons = [sys.executable, *sys.argv[1:]]
    for python in pythons * TURNS:
        said = subprocess.run([python, __file__, "--answered"], capture_output=True, text=True, check=True).stdout
        first, again, compiled, many = json.loads(said)
        print(f"{'compiled' if compiled else 'plain':<10}{many:>5} measured ones{'':<5}{first:>11.1f}{again:>14.1f}")


if __name__ == "__main__":
    answered() if sys.argv[1:] == ["--answered"] else main()
