"""`--help` of commands that take a whole scenario: what a newcomer needs, on one screen; `--help all` has the rest."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence

from vramwise.cli.language import broken, said, said_line

ALL = "all"
Sections = Mapping[str, Sequence[str]]
"""Flags by the heading that they stand under."""

JOB: Sections = {
    "what for, and on what": ("--task", "--gpu", "--num-gpus", "--reserve-bytes"),
    "training": (
        "--method", "--micro-batch-size", "--sequence-length", "--precision", "--optimizer", "--checkpointing",
        "--framework", "--fsdp", "--zero-stage",
    ),
    "serving": ("--engine", "--max-model-len", "--quantization", "--gguf-quant", "--tensor-parallel-size",
                "--gpu-memory-utilization"),
}  # fmt: skip
STEP: Sections = {heading: flags for heading, flags in JOB.items() if heading != "serving"}
"""Of commands that run the model itself."""
_HEAD = 30


def brief_help(
    parser: argparse.ArgumentParser, sections: Sections, examples: Sequence[str], width: int
) -> str:  # fmt: skip
    """One screen: how it is called, the flags of `sections` with their choices, and how many more there are."""
    by_flag = {flag: action for action in parser._actions for flag in action.option_strings}
    choices = dict(choices_by_flag())
    lines = [
        *broken(f"{parser.prog}: {parser.description}", width),
        "",
        *(said_line(f"  {example}") for example in examples),
    ]
    shown = 0
    for heading, flags in sections.items():
        lines += ["", said(heading)]
        for flag in flags:
            action = by_flag.get(flag)
            if action is not None:
                lines.append(_row(action, flag, choices.get(flag, ()), width))
                shown += 1
    most = sum(bool(action.option_strings) for action in parser._actions)
    lines += ["", said_line(f"{parser.prog} --help all  lists the other {most - shown} flags, by whose they are")]
    return "\n".join(lines) + "\n"


def _row(action: argparse.Action, flag: str, choices: Sequence[str], width: int) -> str:
    """A flag, and what it takes: its choices where it has some, else its help up to the first stop."""
    names = ", ".join(name for name in action.option_strings if name == flag or len(name) == 2)
    value = f" {action.metavar}" if action.nargs != 0 and action.metavar and not choices else ""
    head = f"  {names}{value}"
    head = f"{head:<{_HEAD}}" if len(head) < _HEAD - 1 else f"{head}  "
    words = (
        [f"{name}," for name in choices] if choices else (action.help or "").replace("%%", "%").split("; ")[0].split()
    )
    said = ""
    for place, word in enumerate(words):
        last = place == len(words) - 1
        longer = f"{said} {word}".lstrip()
        if len(head) + len(longer) + (0 if last else 2) > width:
            return f"{head}{said} …"
        said = longer
    return f"{head}{said.rstrip(',')}"


def choices_by_flag() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Names that a scenario's keys take, by flag; of a key that several tasks have all of them."""
    from vramwise.cli import flag
    from vramwise.scenario.definition import KINDS
    from vramwise.scenario.values import Choice

    found: dict[str, dict[str, None]] = {}
    for kinds in KINDS.values():
        for key, kind in kinds.items():
            if isinstance(kind, Choice):
                found.setdefault(flag(key), {}).update(dict.fromkeys(kind.names))
    return ((name, tuple(values)) for name, values in found.items())
