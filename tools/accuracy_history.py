"""Keeps a release's table of errors: a line an engine and quantity of docs/accuracy.md in benchmarks/history.csv.

    python tools/accuracy_history.py VERSION DAY [PAGE]      # docs/accuracy.md as it is in the release

Releases are not judged on the same cases, since there are more of them each time: `count` says of how many.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
HISTORY = ROOT / "benchmarks" / "history.csv"
PAGE = ROOT / "docs" / "accuracy.md"
FIELDS = ("version", "day", "engine", "quantity", "count", "median_absolute", "p90_absolute", "worst", "inside")
_LINE = re.compile(
    r"^ (\w+) +(\d+)(?:/\d+)? +[+−\d.,]+ +([\d.,]+) +([\d.,]+) +([+−]?[\d.,]+) +(\d+) % +\d+ % +[\d.,]+ %$"
)


def lines_of(page: str) -> Iterator[dict[str, str]]:
    """The table of errors of a page: percentages as printed; a quantity that nothing is compared of has none."""
    table = page.partition(" quantity ")[2].partition("\n\n")[0].splitlines()[1:]
    engine = ""
    for line in table:
        if not line.startswith(" "):
            engine = line
        elif found := _LINE.match(line):
            plain = (text.replace(",", "").replace("−", "-").lstrip("+") for text in found.groups())
            yield {"engine": engine, **dict(zip(FIELDS[3:], plain, strict=True))}


def kept() -> list[dict[str, str]]:
    """Every line of every release, the oldest first."""
    with HISTORY.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("day", help="of the release, as CHANGELOG.md has it")
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    args = parser.parse_args()
    others = [row for row in kept() if row["version"] != args.version] if HISTORY.exists() else []
    fresh = [{"version": args.version, "day": args.day, **row} for row in lines_of(args.page.read_text("utf-8"))]
    with HISTORY.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*others, *fresh])


if __name__ == "__main__":
    main()
