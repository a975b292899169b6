"""Where a model's files lie: a folder on disk, a cache of a hub, or a hub itself, all read the same way.

A model's configuration and where it was read.

Reading a config.json that may be anything: missing, huge, cut off, binary, or hostile.

Whether a checkpoint is made to embed: sentence-transformers' modules.json beside its config.json names a pooling.

vLLM 0.9.2 to 0.33.0 (transformers_utils/config.py get_pooling_config) serves such a checkpoint as an embedder unasked.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

from vramwise.errors import SourceError, clipped
from vramwise.files import shown_path
from vramwise.formats.ranged import LocalFiles, RangedFiles
from vramwise.records import record
from vramwise.units import MIB, format_bytes

if TYPE_CHECKING:
    from vramwise.formats.safetensors import StoredWeights


@record
class Adapter:
    """An adapter whose base is the model: what its adapter_config.json says, and its tensors' dtype and bytes."""

    name: str
    method: str
    rank: int
    targets: tuple[str, ...]
    """Names of modules; ("all-linear",) for all."""
    dropout: float
    dora: bool
    dtype: str | None
    stored_bytes: int | None

    def as_training(self) -> dict[str, object]:
        """Its settings as keys of the table `train`, those that its config states."""
        targets = self.targets[0] if self.targets == ("all-linear",) else self.targets
        stated = {
            "lora_rank": self.rank, "lora_targets": targets, "lora_dropout": self.dropout, "dora": self.dora,
            "lora_dtype": self.dtype,
        }  # fmt: skip
        return {key: value for key, value in stated.items() if value}


@record
class Base:
    """What an adapter says its base model is: a name or a path, and its revision where one is said."""

    name: str
    revision: str | None = None


@record
class ModelSource:
    """A model's configuration: `config` has the keys of a config.json, `origin` says where it was read,
    `note` what was chosen where the name left a choice. Treat `config` as read-only: it is shared."""

    id: str
    config: dict[str, object]
    origin: str
    note: str | None = None
    others: tuple[str, ...] = ()
    """Other models that the name would have fitted as well."""
    repository: Repository | None = None
    """Where its files lie; they are looked at only when the type is unknown or they are asked for."""
    entry: str = ""
    """The safetensors file or index of the repository that was named; its own weights where it is empty."""
    stands_in: bool = False
    """Whether nothing of the name is known, and this is what it would be made from."""
    gguf_quant: str | None = None
    """The file type of GGUF files that were named, where their name tells it and no file was read."""
    adapter: Adapter | None = None
    """The adapter that was named, whose base model this is."""
    base: Base | None = None
    """The base model of what is an adapter, which is to be looked for: `resolve` puts it in this one's place."""

    def stored_weights(self) -> StoredWeights | None:
        """The tensors that its safetensors files hold, None without any. Raises SourceError for broken ones."""
        if self.repository is None:
            return None
        if "_class_name" in self.config and not self.entry:
            from vramwise.sources.libraries import component_weights

            found = component_weights(self.config, self.repository)
            if found is not None:
                return found
        if not self.entry and not any(".safetensors" in name for name in self.repository.files()):
            return None
        from vramwise.formats.safetensors import stored_weights, weights_among

        entry = self.entry or weights_among(self.repository.files())
        return None if entry is None else stored_weights(self.repository, entry)


class Repository(RangedFiles, Protocol):
    """A model's files, with a sentence's worth of where they come from.

    `revision` is the commit they belong to where one is known, else empty.
    """

    @property
    def origin(self) -> str: ...
    @property
    def revision(self) -> str: ...


class Folder(LocalFiles):
    """A folder on disk; `origin` and `revision` are told by whoever knows more than its path."""

    def __init__(self, path: str, *, origin: str | None = None, revision: str = "") -> None:
        super().__init__(os.fspath(path))
        self.origin = origin or self.folder
        self.revision = revision


class Beginning(Folder):
    """A folder with the beginning of one file, whose whole size somebody tells: enough for a header."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(path)
        self.told_size = size

    def size(self, path: str) -> int | None:
        held = super().size(path)
        return held if held is None else max(held, self.told_size)


MODULES = "modules.json"
KEY = "sentence_transformers_pooling"
"""What a config here has of it; no config.json has such a key."""


def with_pooling(config: dict[str, object], files: RangedFiles) -> dict[str, object]:
    """`config` with KEY where the file says so; a file that cannot be read says nothing."""
    if MODULES not in files.files():
        return config
    try:
        modules = json.loads(files.read(MODULES, MIB))
    except (SourceError, ValueError, RecursionError):
        return config
    kinds = [one.get("type") for one in modules if isinstance(one, dict)] if isinstance(modules, list) else []
    pools = any(str(kind).startswith("sentence_transformers.") and str(kind).endswith(".Pooling") for kind in kinds)
    return {**config, KEY: True} if pools else config


LARGEST_CONFIG_BYTES = 10 * MIB
DEEPEST_CONFIG = 40
# Mamba-2 checkpoints write "time_step_limit": [0.0, Infinity]; it sets no size.
UNBOUNDED_KEYS = frozenset({"time_step_limit"})


def read_config(path: str | os.PathLike[str]) -> dict[str, object]:
    """The table in the JSON file at `path`.

    Raises `SourceError` with one line that names the file and what is wrong with it.
    """
    shown = shown_path(os.fspath(path))
    return parsed_config(_content(Path(path), shown), shown)


def parsed_config(content: bytes, shown: str) -> dict[str, object]:
    """The table in a config.json's bytes. Raises `SourceError` as `read_config` does."""
    text = _text(content, shown)
    try:
        table = json.loads(text)
    except json.JSONDecodeError as problem:
        raise SourceError(
            f"{shown}: no valid JSON: {problem.msg} (line {problem.lineno}, column {problem.colno})"
        ) from None
    except RecursionError:
        raise SourceError(f"{shown}: nested deeper than any model configuration") from None
    except ValueError:  # an integer of thousands of digits
        raise SourceError(f"{shown}: holds a number that is too long to read") from None
    if not isinstance(table, dict):
        raise SourceError(f"{shown}: expected a JSON object of hyperparameters, got {_kind(table)}")
    return checked(table, shown)


def checked(table: Mapping[str, object], where: str) -> dict[str, object]:
    """`table` as a dict when all its numbers are finite and it is not nested absurdly deep.

    Raises `SourceError` naming the key.
    """
    _check(table, "", where, 0)
    return dict(table)


def _content(path: Path, shown: str) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise SourceError(f"{shown}: is a folder, expected a config.json")
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(f"{shown}: is no regular file, expected a config.json")
        if status.st_size > LARGEST_CONFIG_BYTES:
            raise SourceError(
                f"{shown}: {format_bytes(status.st_size, 'MiB')} is too large for a config.json "
                f"(at most {format_bytes(LARGEST_CONFIG_BYTES, 'MiB', 0)})"
            )
        return path.read_bytes()
    except OSError as problem:
        raise SourceError(f"{shown}: {problem.strerror or problem}") from None
    except ValueError:  # a NUL character in the name
        raise SourceError(f"{shown}: is no file name") from None


def _text(content: bytes, shown: str) -> str:
    if not content.strip():
        raise SourceError(f"{shown}: is empty, expected a JSON object of hyperparameters")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(f"{shown}: is not text (UTF-8), expected a config.json") from None


def _check(value: object, path: str, where: str, depth: int) -> None:
    if depth > DEEPEST_CONFIG:
        _refuse(where, path, f"is nested deeper than {DEEPEST_CONFIG} levels")
    if isinstance(value, Mapping):
        for key, part in value.items():
            if not isinstance(key, str):
                _refuse(where, path, f"has the key {clipped(repr(key))}, expected text")
            if key not in UNBOUNDED_KEYS:
                _check(part, f"{path}.{key}" if path else key, where, depth + 1)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _check(part, path, where, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        _refuse(where, path, f"is {value}, expected a finite number")


def _refuse(where: str, path: str, problem: str) -> NoReturn:
    raise SourceError(f"{where}: {clipped(path, 100) or 'the table'} {problem}")


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    return {"str": "text", "NoneType": "null", "bool": "true or false"}.get(type(value).__name__, "a number")
