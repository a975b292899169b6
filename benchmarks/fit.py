"""The door of `vramwise estimate MODEL` beside its table of precisions, and the catalog against a card.

    python benchmarks/fit.py [--gpu 4090] [--runs 3]

Printed: CPU seconds of the door without and with a card, and their ratio to the table's; wall and CPU seconds of the
short list of `vramwise fit` until its first row and until its end, and of the whole catalog (`--json`), each with an
empty cache folder and again.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

MODEL = "llama-3.1-8b"
Times = tuple[float, float, float]
"""Seconds until the first row, until the end, and of CPU."""


def run(arguments: list[str], cache: str) -> Times:
    """One cold command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    variables = {**os.environ, "VRAMWISE_CACHE": cache, "COLUMNS": "100"}
    command = [sys.executable, "-m", "vramwise", *arguments]
    first, after_heads = 0.0, False
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=variables, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if after_heads and not first:
                first = time.monotonic() - began
            after_heads = after_heads or line.startswith("model  ")
    ended = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return first, ended, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="4090")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    doors = {
        "table": ["estimate", MODEL, "--style", "table"],
        "the door": ["estimate", MODEL],
        "the door of a card": ["estimate", MODEL, "--gpu", args.gpu],
    }
    cpu: dict[str, list[float]] = {name: [] for name in doors}
    for _ in range(args.runs + 1):  # they take turns; the first round is not counted
        for name, command in doors.items():
            cpu[name].append(run(command, "off")[2])
    table = min(cpu["table"][1:])
    for name, times in cpu.items():
        print(f"{name:<22} {min(times[1:]):6.2f} s CPU   {min(times[1:]) / table:4.2f} × the table")
    for name, command in (("short list", []), ("whole catalog", ["--json"])):
        with tempfile.TemporaryDirectory() as cache:
            for which in ("first time", "again"):
                first, ended, used = run(["fit", "--gpu", args.gpu, *command], cache)
                row = f"first row {first:5.2f} s   " if first else ""
                print(f"{name:<15} {which:<11} {row}end {ended:6.2f} s   CPU {used:6.2f} s")


if __name__ == "__main__":
    main()
