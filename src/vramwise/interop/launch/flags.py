"""Flags of the engines (flags.csv) and the words of a command line cut into flags with their values.

flags.csv lists, by engine, every flag and how many values it takes: 0, 1, 2, `?` (none or a switch's), `~` (none or
any one), `+` (any number).
Read in the released wheels vLLM 0.8.5, 0.11.2, 0.19.0, 0.33.0 and SGLang 0.5.4, 0.5.23, in llama.cpp's
tools/server/README.md as llama-cpp-python 0.3.36 ships it and ik_llama.cpp's common/common.cpp (8337e4cd3). Those of
text-generation-inference are its launcher's (launcher/src/main.rs); TensorRT-LLM's follow its documentation and have
not been held against a release. mlx-lm's are those of 0.32.2 (generate.py, server.py), KoboldCpp's those of
1.117.1 (koboldcpp.py). Megatron-LM's are those of
megatron/training/arguments.py in core 0.8 to 0.18 (in part what newer ones make of dataclasses); torchrun's those of
torch 2.13 distributed/run.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from vramwise.engines import ENGINES, engine_named
from vramwise.errors import UsageError, clipped
from vramwise.interop.launch.values import is_number, json_or_text
from vramwise.tables import table

_DEEPEST = 20
"""Dots of one flag: no configuration of an engine nests as deep."""


@dataclass(slots=True)
class Words:
    """A command line in parts: `given` flags with their values in order, `loose` words, `unknown` flags."""

    given: dict[str, list[str]] = field(default_factory=dict)
    loose: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


@cache
def flags_of(engine: str) -> Mapping[str, str]:
    """Flag -> how many values it takes."""
    return {row["flag"]: row["values"] for row in table(__file__) if row["engine"] == engine}


def cut(engine: str, words: Sequence[str]) -> Words:
    """Sort the words of a command line. Raises UsageError for a known flag without its value.

    `--flag.key value` is part of the flag's JSON; its parts come together as one, after what was given whole (vLLM 0.9
    to 0.33 utils/argparse_utils.py, which tells JSON, sizes such as 80g and text apart in that order).
    """
    found = Words()
    parts: dict[str, dict[str, object]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-" or is_number(word):
            found.loose.append(word)
            continue
        name, equals, value = word.partition("=")
        flag, takes = known(engine, name)
        if flag is None:
            found.unknown.append(name)
            if not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)  # whatever it means, the word after it is most likely its value
            continue
        is_part = "." in name
        values = [value] if equals else list(_values("1" if is_part else takes, rest, flag))
        if is_part:
            _put(parts.setdefault(flag, {}), name, values[0])
            continue
        if takes == "0" and not equals:
            values = ["false" if flag != _dashed(name) else "true"]
        found.given.setdefault(flag, []).extend(values)
    for flag, inner in parts.items():
        found.given.setdefault(flag, []).append(json.dumps(inner))
    return found


def _put(tree: dict[str, object], name: str, text: str) -> None:
    """The value of `--flag.a.b` into the table of the flag; `--flag.a+` adds to a list. Raises UsageError."""
    keys = name.removesuffix("+").split(".")[1:]
    if len(keys) > _DEEPEST:
        raise UsageError(f"{clipped(name)}: nested too deeply")
    for key in keys[:-1]:
        inner = tree.get(key)
        if not isinstance(inner, dict):
            inner = tree[key] = {}
        tree = inner
    value: object = [*text.split(",")] if name.endswith("+") else json_or_text(text)
    before = tree.get(keys[-1])
    tree[keys[-1]] = [*before, *value] if isinstance(before, list) and isinstance(value, list) else value


def known(engine: str, name: str) -> tuple[str | None, str]:
    """The flag that a word means, by its name, without `no-`, or by a beginning that fits it alone."""
    flags = flags_of(engine)
    base = _dashed(name).partition(".")[0]
    if base in flags:
        return base, flags[base]
    positive = base.replace("--no-", "--", 1)
    if flags.get(positive) == "0":
        return positive, "0"
    if base.startswith("--") and _shortens(engine):
        longer = [flag for flag in flags if flag.startswith(base)]
        if len(longer) == 1:
            return longer[0], flags[longer[0]]
    return None, "1"


def _shortens(engine: str) -> bool:
    """Whether a beginning that fits one flag alone is that flag."""
    line = engine_named(engine).command_line if engine in ENGINES else None
    return line is not None and line.shortens_flags


def _dashed(name: str) -> str:
    return "--" + name[2:].replace("_", "-") if name.startswith("--") else name


def _values(takes: str, rest: list[str], flag: str) -> Iterator[str]:
    if takes in ("1", "2"):
        for _ in range(int(takes)):
            if not rest or (rest[0].startswith("--") and len(rest[0]) > 2):
                raise UsageError(f"{clipped(flag)} needs a value")
            yield rest.pop(0)
    elif takes == "?":
        if rest and rest[0].lower() in ("on", "off", "auto", "0", "1", "true", "false", "enabled", "disabled"):
            yield rest.pop(0)
        else:
            yield "on"
    elif takes == "~":
        yield rest.pop(0) if rest and (not rest[0].startswith("-") or is_number(rest[0])) else "on"
    elif takes == "+":
        while rest and not rest[0].startswith("-"):
            yield rest.pop(0)
