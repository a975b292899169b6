"""Which format a rule of a `quantization_config` gives to which module.

The tools that read such tables match names in ways of their own, which agree on names that a quantizer writes: a whole
name, or pieces of one between dots (`self_attn`, `layers.1.mlp` and `layers.1.`, never `layers.1` in `layers.11`); a
regular expression behind `re:`, from the name's start (compressed-tensors 0.20 and vLLM 0.33
compressed_tensors/utils.py), or without that mark up to where a piece ends (transformers 5.23 quantizers_utils.py
should_convert_module); a pattern with `*`, for the whole name or what lies below it (ModelOpt, vLLM 0.33 modelopt.py);
numbers in brackets, as condensed lists of layers have them (`layers.[0-2,5]`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from vramwise.errors import SourceError, clipped
from vramwise.formats.quantization import QuantFormat
from vramwise.records import record

LONGEST_PATTERN = 500
MOST_REPEATS = 8
LARGEST_RANGE = 10_000
_NESTED = re.compile(r"[*+}]\??\)[*+{]")  # (a+)+ takes for ever on a name that almost fits
_UNMARKED = re.compile(r"[\\^$()|+?]|^\.\*")  # what a regular expression alone has, no name and no other pattern
_REPEATS = re.compile(r"(?<!\\)[*+]|\{\d*,")
_RANGE = re.compile(r"\[(\d+(?:-\d+)?(?:, ?\d+(?:-\d+)?)*)\]")


@record
class Rule:
    """Modules whose names fit `pattern` take `format`; None: they stay in high precision."""

    pattern: str
    format: QuantFormat | None


@record(slots=False)
class ModuleRules:
    """The rules of one checkpoint in the order in which they count, and `default` for modules that none names.

    `main` stands for all where one format is asked for.
    """

    main: QuantFormat
    default: QuantFormat | None
    rules: tuple[Rule, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.main, self.default, self.rules))

    def __reduce__(self) -> tuple[type[ModuleRules], tuple[object, ...]]:
        """Without what was worked out: a hash is another in another process."""
        return ModuleRules, (self.main, self.default, self.rules)

    def rule_of(self, module: str, others: Iterable[str] = ()) -> Rule | None:
        """The first rule that fits a module under its name or another spelling of it."""
        if not self.rules:
            return None
        known = set(module.split("."))
        names = [module, *(name for name in others if self._knows(set(name.split(".")) - known))]
        found = [index for name in names if (index := self._first(name)) is not None]
        return self.rules[min(found)] if found else None

    def _first(self, name: str) -> int | None:
        pieces = name.split(".")
        spans = ((start, stop) for start in range(len(pieces)) for stop in range(start + 1, len(pieces) + 1))
        parts = (".".join(pieces[start:stop]) for start, stop in spans) if self._plain else ()
        plain = [self._plain[part] for part in parts if part in self._plain]
        fits = self._any_pattern is not None and self._any_pattern.match(name)
        others = [index for index, pattern in self._patterns if pattern.match(name)] if fits else []
        return min([*plain, *others[:1]], default=None)

    def _knows(self, pieces: set[str]) -> bool:
        """Whether some rule has the words that another spelling brings; projections may stand for one another."""
        return all(piece in self._text for piece in pieces if not piece.isdecimal() and not piece.endswith("_proj"))

    @cached_property
    def _text(self) -> str:
        return "\n".join(rule.pattern.replace("\\", "") for rule in self.rules)

    @cached_property
    def _any_pattern(self) -> re.Pattern[str] | None:
        """All of them as one, which most names do not fit; a set that numbers its groups is tried one by one."""
        texts = [pattern.pattern for _, pattern in self._patterns]
        try:
            return re.compile("|".join(f"(?:{text})" for text in texts)) if texts else None
        except (re.error, OverflowError, RecursionError):
            return re.compile("")

    @cached_property
    def _plain(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for index, rule in enumerate(self.rules):
            if _is_plain(rule.pattern):
                found.setdefault(rule.pattern.strip("."), index)
        return found

    @cached_property
    def _patterns(self) -> list[tuple[int, re.Pattern[str]]]:
        return [(i, compiled(rule.pattern)) for i, rule in enumerate(self.rules) if not _is_plain(rule.pattern)]


def _is_plain(pattern: str) -> bool:
    return not pattern.startswith("re:") and not re.search(r"[*\[]", pattern) and not _UNMARKED.search(pattern)


def compiled(pattern: str) -> re.Pattern[str]:
    """A rule's pattern as an expression that is matched from a name's start.

    Raises SourceError for what is no expression, and for one that could take for ever.
    """
    shown = f"quantization_config: the pattern {clipped(pattern)!r}"
    if len(pattern) > LONGEST_PATTERN:
        raise SourceError(f"{shown} has {len(pattern):,} characters, expected at most {LONGEST_PATTERN}")
    if pattern.startswith("re:") or _UNMARKED.search(pattern):
        is_marked = pattern.startswith("re:")
        text = pattern[3:] if is_marked else rf"(?:{pattern})(?:(?<=\.)|(?=\.|$))"
        repeats = len(_REPEATS.findall(text.replace(".*.*", ".*")))
        if _NESTED.search(text) or repeats > MOST_REPEATS:
            raise SourceError(f"{shown} repeats what repeats, or more than {MOST_REPEATS} things: it is not tried")
    elif "*" in pattern:
        text = f"(?:{_wildcards(pattern)})(?:\\..*)?$"
    else:
        text = f"(?:.*\\.)?(?:{_wildcards(pattern)})(?:\\..*)?$"
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as problem:
        raise SourceError(f"{shown} is no regular expression: {clipped(str(problem))}") from None


def _wildcards(pattern: str) -> str:
    """`*` for anything and numbers in brackets for any of them; `[0]` as a class of characters is the same."""
    pieces = _RANGE.split(pattern)
    for at in range(1, len(pieces), 2):
        pieces[at] = f"(?:{'|'.join(_numbers(pieces[at]))})"
    for at in range(0, len(pieces), 2):
        pieces[at] = re.sub(r"(?:\\\*)+", ".*", re.escape(pieces[at]))
    return "".join(pieces)


def _numbers(text: str) -> list[str]:
    numbers: set[int] = set()
    for span in text.split(","):
        first, _, last = span.strip().partition("-")
        start, stop = int(first[:9]), int((last or first)[:9])
        if stop - start > LARGEST_RANGE:
            raise SourceError(f"quantization_config: [{clipped(text)}] names more than {LARGEST_RANGE:,} layers")
        numbers.update(range(start, stop + 1))
    return [str(number) for number in sorted(numbers)] or ["(?!)"]
