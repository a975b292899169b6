"""Tokenizers by a folder, a file or a name: transformers' where it is installed, else the library tokenizers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from vramwise.errors import SourceError, UsageError, clipped
from vramwise.files import shown_path
from vramwise.interop.samples.rows import Sample
from vramwise.sources.hub import why_not_reached

MISSING = (
    "counting tokens needs transformers or tokenizers, neither of which is installed: pip install 'vramwise[torch]'"
)


class Tokenizer(Protocol):
    """What counts tokens; `notes` say what it could not do."""

    shown: str
    notes: tuple[str, ...]

    def lengths(self, samples: Sequence[Sample]) -> list[tuple[str, int]]: ...


def tokenizer_named(name: str) -> Tokenizer:
    """The tokenizer of a folder, a tokenizer.json or a name.

    Raises UsageError where no library is there, SourceError where it cannot be read or found. No code of a repository
    is run.
    """
    file = os.path.join(name, "tokenizer.json") if os.path.isdir(name) else name
    if os.path.isfile(name) and not name.endswith(".json"):
        raise SourceError(f"{shown_path(name)}: expected a folder, a tokenizer.json or a name")
    is_place = name.endswith(".json") or name.startswith(("/", "./", "../", "~"))
    if is_place and not os.path.exists(name):
        raise SourceError(f"{shown_path(name)}: No such file or directory")
    if os.path.isfile(name) or not find_spec("transformers"):
        return _FileTokenizer(file, name)
    return _Transformers(name)


class _FileTokenizer:
    """A tokenizer.json alone, which has no chat template."""

    def __init__(self, file: str, name: str) -> None:
        if not find_spec("tokenizers"):
            raise UsageError(MISSING)
        if not os.path.isfile(file):
            raise SourceError(f"{shown_path(name)}: no tokenizer.json there; a name needs transformers")
        try:
            self._own: Any = import_module("tokenizers").Tokenizer.from_file(file)
        except Exception as problem:  # the library raises bare Exception
            raise SourceError(f"{shown_path(file)}: no tokenizer ({clipped(str(problem), 120)})") from None
        self._own.no_truncation()
        self._own.no_padding()
        self.shown = shown_path(name)
        self.notes: tuple[str, ...] = ()

    def lengths(self, samples: Sequence[Sample]) -> list[tuple[str, int]]:
        if any(sample.turns for sample in samples):
            self.notes = ("a tokenizer.json has no chat template: turns are counted without their marks",)
        encoded = self._own.encode_batch([sample.plain for sample in samples])
        return [(sample.kind, len(one.ids)) for sample, one in zip(samples, encoded, strict=True)]


class _Transformers:
    """transformers' AutoTokenizer, with the chat template that it has.

    Whether the Hub can be reached is asked once and first: its client tries every file five times, half a minute long.
    """

    def __init__(self, name: str) -> None:
        missing = None if os.path.isdir(name) else why_not_reached()
        transformers = import_module("transformers")
        try:
            self._own: Any = transformers.AutoTokenizer.from_pretrained(
                name, trust_remote_code=False, local_files_only=missing is not None
            )
        except Exception as problem:  # the hub's errors are of many libraries
            words = clipped(" ".join(str(problem).split()), 160)
            if missing is not None:
                words = f"it is not in this machine's cache, and there is no way to the Hub ({missing})"
            raise SourceError(f'tokenizer "{shown_path(name)}" cannot be loaded: {words}') from None
        self._has_template = bool(getattr(self._own, "chat_template", None))
        self.shown = shown_path(name)
        self.notes: tuple[str, ...] = ()

    def lengths(self, samples: Sequence[Sample]) -> list[tuple[str, int]]:
        return [(sample.kind, self._length(sample)) for sample in samples]

    def _length(self, sample: Sample) -> int:
        if not sample.turns:
            return len(self._own(sample.text)["input_ids"])
        if self._has_template:
            messages = [{"role": role, "content": content} for role, content in sample.turns]
            try:
                text = self._own.apply_chat_template(messages, tokenize=False)
                return len(self._own(text, add_special_tokens=False)["input_ids"])
            except Exception as problem:  # a template refuses roles in its own words
                self.notes = (f"the chat template refused a sample ({clipped(str(problem), 80)}): counted without it",)
        else:
            self.notes = ("the tokenizer has no chat template: turns are counted without their marks",)
        return len(self._own(sample.plain)["input_ids"])
