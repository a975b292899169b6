"""`llama-bench …`: its tests as one server that has room for the longest of them.

Read in llama.cpp at 0104b151c tools/llama-bench/llama-bench.cpp: a context of prompt, generated tokens and depth for
each test (512 alone, 128 alone, and what `-pg` pairs), values in lists and ranges (`512-2048+512`, `128-1024*2`),
switches that take 0 or 1.
"""

from __future__ import annotations

import re
from dataclasses import replace

from vramwise.errors import UsageError, clipped
from vramwise.interop.launch.command import Start

_PROMPT, _GENERATED = 512, 128
_SIZES = {"-p": "prompt", "--n-prompt": "prompt", "-n": "generated", "--n-gen": "generated", "-d": "depth",
          "--n-depth": "depth"}  # fmt: skip
_LISTED = frozenset({"-b", "--batch-size", "-ub", "--ubatch-size", "-ngl", "--n-gpu-layers", "-ncmoe", "--n-cpu-moe"})
_SWITCHES = frozenset({"-nkvo", "--no-kv-offload", "-mmp", "--mmap", "-dio", "--direct-io", "-embd", "--embeddings",
                       "-nopo", "--no-op-offload", "--no-host"})  # fmt: skip
_OF_ITS_OWN = frozenset({"-r", "--repetitions", "--prio", "--delay", "-o", "--output", "-oe", "--output-err", "--poll",
                         "-C", "--cpu-mask", "--cpu-strict", "-lm", "--load-mode", "-fitt", "--fit-target", "-fitc",
                         "--fit-ctx"})  # fmt: skip
_BARE = frozenset({"-v", "--verbose", "--progress", "--no-warmup", "--list-devices"})
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:([+*])(\d{1,9}))?)?")
_MOST = 10_000


def as_server(start: Start) -> tuple[Start, str]:
    """The server's command line, and the note that says which test it is. Raises UsageError for a value of none."""
    sizes: dict[str, list[int]] = {"prompt": [], "generated": [], "depth": []}
    pairs: list[int] = []
    words: list[str] = []
    rest = list(start.words)
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if flag in _BARE or not flag.startswith("-"):
            words += [] if flag in _BARE else [flag]
            continue
        value = value if equals else rest.pop(0) if rest else ""
        if flag in _SIZES:
            sizes[_SIZES[flag]] += _numbers(flag, value)
        elif flag == "-pg":
            pairs.append(sum(max(_numbers(flag, part)) for part in value.split(",")[:2]))
        elif flag in _SWITCHES:
            words += [flag] if value in ("1", "on", "true") and flag != "--mmap" else []
        elif flag in _LISTED and not value.startswith("-"):
            words += [flag, str(max(_numbers(flag, value)))]
        elif flag in ("-ts", "--tensor-split"):
            words += [flag, value.split(",")[0].replace("/", ",")]
        elif flag not in _OF_ITS_OWN:
            words += [flag, value]
    prompt, generated = sizes["prompt"] or [_PROMPT], sizes["generated"] or [_GENERATED]
    tests = [*prompt, *generated, *pairs]
    length = max(tests) + max(sizes["depth"] or [0])
    note = f"llama-bench makes a context for each test: of the longest, {length:,} tokens, one sequence"
    return replace(
        start, words=(*words, "-c", str(max(1, length)), "-np", "1"), program="llama-bench for one test"
    ), note


def _numbers(flag: str, text: str) -> list[int]:
    """`512`, `512,1024`, `128-1024*2`: the numbers, of a range its ends."""
    found: list[int] = []
    for part in text.split(",")[:_MOST]:
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise UsageError(f'{flag}: expected numbers such as 512,1024 or 128-1024*2, got "{clipped(text)}"')
        found += [int(end) for end in (match[1], match[2]) if end]
    return found
