"""How many scenarios a second `vramwise batch --no-replay` answers on one core, reading and writing included.

    python benchmarks/batch.py [--count 1512] [--profile load]

Each mix is written to a file and put through the command itself in this process, pinned to one core; the time is CPU
time from the first line to the last. It is put through twice: with every model new, and again when the models and the
kinds of settings repeat. `measured cases` are those under benchmarks/cases; the others are variations of eight models
whose sizes never repeat.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import processes
import scenarios

from vramwise.cli.main import main as vramwise

LEAST_A_SECOND = 1000


def mixes() -> dict[str, Iterator[scenarios.Scenario]]:
    """Endless scenarios by the name of their mix."""
    by_task = {task: scenarios.variations(task) for task in scenarios.TASKS}
    turns = zip(*(scenarios.variations(task) for task in scenarios.TASKS), strict=True)
    return {
        "measured cases": itertools.cycle(scenarios.measured()),
        **by_task,
        "all tasks": itertools.chain.from_iterable(turns),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1512)
    parser.add_argument("--profile", metavar="MIX", help="print where the time of one mix goes instead")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        if args.profile:
            profile(Path(name), mixes()[args.profile], args.count)
            return
        print(f"{processes.machine()}; one core; {args.count:,} scenarios a mix, twice")
        print(f"{'mix':<16}{'new':>9}{'repeating':>13}{'each':>11}{'answer':>11}{'errors':>8}")
        for mix, endless in mixes().items():
            first, _, _ = answered(Path(name), endless, args.count)
            spent, size, errors = answered(Path(name), endless, args.count)
            rates = f"{args.count / first:>7,.0f}/s{args.count / spent:>11,.0f}/s"
            each = f"{1e3 * spent / args.count:>8.2f} ms{size / args.count / 1024:>7.1f} KiB"
            print(f"{mix:<16}{rates}{each}{errors:>8}")
    print(f"goal: at least {LEAST_A_SECOND:,}/s when models repeat")


def answered(folder: Path, endless: Iterator[scenarios.Scenario], count: int) -> tuple[float, int, int]:
    """CPU seconds of one `vramwise batch`, bytes that it wrote, lines that it answered with an error."""
    asked, out = folder / "in.jsonl", folder / "out.jsonl"
    lines = (json.dumps(one) for one in itertools.islice(endless, count))
    asked.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    start = time.process_time()
    with contextlib.redirect_stderr(io.StringIO()):
        code = vramwise(["batch", "--no-replay", str(asked), "-o", str(out)])
    spent = time.process_time() - start
    if code:
        raise SystemExit(f"vramwise batch: exit code {code}")
    text = out.read_text(encoding="utf-8")
    errors = sum('"error":{"type"' in line[:200] for line in text.splitlines())
    return spent, len(text), errors


def profile(folder: Path, endless: Iterator[scenarios.Scenario], count: int) -> None:
    import cProfile
    import pstats

    answered(folder, endless, count)
    recorded = cProfile.Profile()
    recorded.runcall(answered, folder, endless, count)
    pstats.Stats(recorded).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    main()
