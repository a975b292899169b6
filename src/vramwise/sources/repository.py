"""Where a model's files lie: a folder on disk, a cache of a hub, or a hub itself, all read the same way.

A model's configuration and where it was read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from vramwise.formats.ranged import LocalFiles, RangedFiles
from vramwise.records import record

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

    def stored_weights(self) -> StoredWeights | None:
        """The tensors that its safetensors files hold, None without any. Raises SourceError for broken ones."""
        from vramwise.formats.safetensors import stored_weights, weights_among

        if self.repository is None:
            return None
        if "_class_name" in self.config and not self.entry:
            from vramwise.sources.libraries import component_weights

            found = component_weights(self.config, self.repository)
            if found is not None:
                return found
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
