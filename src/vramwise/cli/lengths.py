"""`vramwise lengths DATA.jsonl --tokenizer NAME`: how long one's own samples are, as the scenario says it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.files import open_to_read, shown_path, write_file
from vramwise.interop.samples.counts import Counts
from vramwise.interop.samples.rows import Sample, sample_of
from vramwise.interop.samples.tokenizers import Tokenizer, tokenizer_named
from vramwise.scenario.files import numbered_lines, parse_line
from vramwise.units import counted

HELP = "how many tokens your samples have, as train.sample_lengths says it"
AT_ONCE = 64
MOST_NAMED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA.jsonl", help="one sample a line: text, messages, prompt + completion, …")
    parser.add_argument(
        "--tokenizer", metavar="NAME", required=True, help="a folder or tokenizer.json, or a name (transformers)"
    )
    parser.add_argument(
        "--column", metavar="NAME", help="the column that holds the text, where it is none of the usual"
    )
    parser.add_argument("--limit", metavar="N", help="read the first N samples only")
    parser.add_argument("-o", "--output", metavar="FILE.toml", help="write the scenario's lines there too")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Print mean, spread, maximum and percentiles; 0 when a sample was read. Raises SourceError."""
    limit = _limit(args.limit)
    open_to_read(args.data).close()  # a tokenizer of the hub takes longer to come than a missing file to be noticed
    tokenizer = tokenizer_named(args.tokenizer)
    counts = _counted(args.data, tokenizer, args.column, limit)
    if not counts.samples:
        raise SourceError(f"{shown_path(args.data)}: holds no sample{_why(counts)}")
    lines = _scenario_lines(counts)
    if args.output is not None:
        write_file(args.output, "\n".join(lines) + "\n")
    if args.json:
        json.dump({**counts.to_dict(), "tokenizer": tokenizer.shown}, sys.stdout)
        print()
        return 0
    from vramwise.cli.screens.paint import screen_width, show, wrapped, wrapped_text

    width = screen_width()
    shown = [f"{name} {value:,}" for name, value in counts.percentiles().items()]
    text = [
        f"{counted(counts.samples, 'sample')}, {counts.tokens:,} tokens ({tokenizer.shown})",
        *wrapped(shown, width),
    ]
    text += [line for note in _notes(counts, tokenizer) for line in wrapped_text("note  ", note, width)]
    show([*text, "", *lines])
    return 0


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 12 or int(text) < 1:
        raise UsageError(f'--limit: expected a whole number from 1 on, got "{clipped(text, 20)}"')
    return int(text)


def _counted(path: str, tokenizer: Tokenizer, column: str | None, limit: int | None) -> Counts:
    """Lengths of every sample of a file; memory is bounded by a batch of lines and the number of lengths."""
    counts = Counts()
    waiting: list[Sample] = []
    for sample in _samples(path, column, counts):
        waiting.append(sample)
        if len(waiting) == AT_ONCE:
            counts.add(tokenizer.lengths(waiting))
            waiting = []
        if limit is not None and counts.samples + len(waiting) >= limit:
            break
    counts.add(tokenizer.lengths(waiting))
    return counts


def _samples(path: str, column: str | None, counts: Counts) -> Iterator[Sample]:
    from vramwise.cli.screens.progress import Progress

    with open_to_read(path) as file:
        progress = Progress("counting tokens", max(1, os.fstat(file.fileno()).st_size), "bytes")
        try:
            done = 0
            for number, line in numbered_lines(file):
                done += len(line or b"")
                progress.at(done)
                try:
                    yield sample_of(parse_line(line), column)
                except UsageError as problem:
                    counts.broken(number, str(problem))
        finally:
            progress.end()


def _why(counts: Counts) -> str:
    lines = "line" if counts.skipped == 1 else "lines"
    return f": {counts.skipped:,} {lines} could not be read ({counts.reasons[0]})" if counts.reasons else ""


def _scenario_lines(counts: Counts) -> list[str]:
    mean, spread, maximum = counts.mean, counts.spread, counts.maximum
    said = f"fixed = {maximum}" if spread == 0 else f"mean = {mean}, spread = {spread}, maximum = {maximum}"
    return ["[train]", f"sample_lengths = {{ {said} }}"]


def _notes(counts: Counts, tokenizer: Tokenizer) -> Iterator[str]:
    if counts.skipped:
        lines = f"{counted(counts.skipped, 'line')} {'was' if counts.skipped == 1 else 'were'} left out"
        yield f"{lines}: {'; '.join(counts.reasons[:MOST_NAMED])}"
    if counts.read_as:
        yield f"read as {', '.join(f'{name} ({count:,})' for name, count in counts.read_as.items())}"
    yield from tokenizer.notes
