"""Errors that a person reads: one clear line each, and the exit code of the command line.

VramwiseError               exit 1
├── UsageError              exit 2   the question is wrong
│   ├── ScenarioError                a key of a scenario, with its path
│   ├── UnevenCutError               ranks that cannot each have the same share of a layer
│   └── UnknownNameError             a model, GPU, dtype, … that nobody knows, with the nearest matches
├── SourceError             exit 4   model or file not reachable, or not readable
└── UnsupportedModelError   exit 1   a known model, or a setting of it, that is not described yet
    ├── UndescribedTypeError         a model type that no family describes; `nearest_type` may be like it
    ├── UndescribedOperationError    an operation without a rule, which no other's stands in for
    └── ViewError                    a tensor that has no view of the wanted shape: heads cut where they cannot be
"""

from __future__ import annotations

import re
from collections.abc import Iterable

DOES_NOT_FIT = 3
"""The exit code of an answer, not of an error: what was asked for does not fit."""
LEAST_LIKENESS = 0.5  # of two names, from 0 to 1 as difflib has it; what is less alike is no help
HOLDS_THE_NAME = 0.8  # likeness of a longer name that holds the whole of what was given
WIDEST_GAP = 0.25  # what is this much less alike than the best match is not offered beside it


class VramwiseError(Exception):
    """Anything vramwise refuses to do, said in one line."""

    exit_code = 1


class UsageError(VramwiseError):
    """The question is wrong: a flag, a value, a combination."""

    exit_code = 2


class NamesNoModelError(UsageError):
    """A command line that names no model: of a file with several, the others are what is asked."""


class ScenarioError(UsageError):
    """A key of a scenario is wrong; `path` says which (`train.micro_batch_size`), `problem` says why."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path
        self.problem = problem


class UnevenCutError(UsageError):
    """A width that the ranks do not divide."""


class UnknownNameError(UsageError):
    """A name that no catalog row answers to.

    >>> str(UnknownNameError("GPU", "4900", ["rtx-4090"], "vramwise gpus lists all"))
    'unknown GPU "4900": did you mean rtx-4090?  (vramwise gpus lists all)'
    """

    def __init__(self, what: str, name: str, matches: Iterable[str] = (), hint: str = "") -> None:
        self.what = what
        self.name = name
        self.matches = list(matches)
        meant = f": did you mean {', '.join(self.matches)}?" if self.matches else ""
        super().__init__(f'unknown {what} "{clipped(name)}"{meant}{f"  ({hint})" if hint else ""}')


class SourceError(VramwiseError):
    """A model or a file that cannot be reached or read."""

    exit_code = 4


class UnsupportedModelError(VramwiseError):
    """A model whose family vramwise does not describe yet."""


class UndescribedTypeError(UnsupportedModelError):
    """A model type that no family describes; `nearest_type` is the described one that looks like it, if any."""

    def __init__(self, model_id: str, given: str, nearest_type: str | None, *, brings_code: bool = False) -> None:
        self.given = given
        self.nearest_type = nearest_type
        code = " (its code comes with the checkpoint and is never run)" if brings_code else ""
        what = (
            f"the nearest described type is {nearest_type}: if it is the same architecture, say --like {nearest_type}"
            if nearest_type is not None
            else "no described type is like it; its safetensors files beside the config tell its weights"
        )
        super().__init__(f"{model_id or 'model'}: {given} is not described yet{code}; {what}")


class UndescribedOperationError(UnsupportedModelError):
    """An operation that no table has: it is not answered for by another."""


class ViewError(UnsupportedModelError):
    """A tensor that cannot be seen in the wanted shape without a copy."""


def nearest(name: str, candidates: Iterable[str], n: int = 3) -> list[str]:
    """At most `n` candidates that look like `name`, best first; only letters and digits count."""
    from difflib import SequenceMatcher  # only an error needs it: keeps the start of every other run short

    wanted = _plain(name)
    by_plain: dict[str, str] = {}
    for candidate in candidates:
        by_plain.setdefault(_plain(candidate), candidate)
    scores: dict[str, float] = {}
    matcher = SequenceMatcher(b=wanted, autojunk=False)
    for plain in by_plain:
        matcher.set_seq1(plain)
        score = matcher.ratio() if matcher.quick_ratio() > LEAST_LIKENESS else 0.0
        scores[plain] = max(score, HOLDS_THE_NAME) if len(wanted) >= 3 and wanted in plain else score
    enough = max(LEAST_LIKENESS, max(scores.values(), default=0) - WIDEST_GAP)
    best = sorted((plain for plain, score in scores.items() if score > enough), key=scores.__getitem__, reverse=True)
    return [by_plain[plain] for plain in best[:n]]


class LeftOut(str):
    """A note that names what a reader of commands did not understand."""

    __slots__ = ()


class Misspelt(LeftOut):
    """One whose word looks like another that counts."""

    __slots__ = ()


class Doubt(str):
    """A note of why a program may fail though it fits, or be about another model than the one that was meant."""

    __slots__ = ()


def in_one(*notes: str | None) -> str | None:
    """Notes as one, a doubt if one of them is; None for none."""
    text = "; ".join(filter(None, notes))
    return Doubt(text) if any(isinstance(note, Doubt) for note in notes) else text or None


def clipped(text: str, length: int = 60) -> str:
    """`text` on one line and not longer than `length`, for quoting what was given in a message.

    A user's name and password are left out of an address.

    >>> clipped("https://user:password@host/name")
    'https://host/name'
    """
    line = " ".join(without_passwords(printable(text)).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def without_passwords(text: str) -> str:
    """`text` with `user:password@` gone from every address in it, also where a path made one slash of two."""
    return re.sub(_USER, r"\1", text) if "@" in text else text


_USER = r"(?<=[A-Za-z]{2}:/)(/?)[^/\s\"']*@"


def printable(text: str) -> str:
    """`text` without the characters that steer a terminal (C0 but blanks, DEL, C1): foreign text must not.

    >>> printable("a\x1b]0;title\x07b")
    'a]0;titleb'
    """
    return text if text.isprintable() else text.translate(_STEERING)


_BLANKS = frozenset(b"\t\n\v\f\r\x1c\x1d\x1e\x1f\x85")  # what str.split takes for blanks: they become one
_STEERING = {code: " " if code in _BLANKS else None for code in (*range(0x20), *range(0x7F, 0xA0))}


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
