"""From what a person names as the model to its configuration, without the network."""

from __future__ import annotations

import marshal
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vramwise.errors import SourceError, UnsupportedModelError, clipped
from vramwise.files import shown_path
from vramwise.formats.safetensors import (
    INDEX_SUFFIX,
    SUFFIX,
    StoredWeights,
    find_weights,
    stored_weights,
    weights_among,
)
from vramwise.records import record
from vramwise.sources.catalog import entry, written, written_behind_organisation
from vramwise.sources.config_file import checked, read_config
from vramwise.sources.hub_cache import cached_config
from vramwise.sources.human_names import MIRRORS, Match, find, near
from vramwise.sources.repository import Folder, Repository

if TYPE_CHECKING:
    from vramwise.formats.gguf_file import GgufHeader

_URL = re.compile(r"^[a-z]+://", re.IGNORECASE)
_HOSTS = {
    "huggingface.co": "",
    "www.huggingface.co": "",
    "hf.co": "",
    "hf-mirror.com": "",
    "modelscope.cn": "models/",
    "www.modelscope.cn": "models/",
}
_GGUF = ".gguf"
_LONGEST_NAME = 500
_LISTED = 6
_HINT = "(vramwise models lists all; a folder or config.json also works)"


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

    def stored_weights(self) -> StoredWeights | None:
        """The tensors that its safetensors files hold, None without any. Raises SourceError for broken ones."""
        if self.repository is None:
            return None
        entry = self.entry or weights_among(self.repository.files())
        return None if entry is None else stored_weights(self.repository, entry)


def resolve(model: str | Mapping[str, object]) -> ModelSource:
    """The configuration that `model` names.

    A table is a config.json itself. Text is, in this order: a Hub or ModelScope URL; a path of a folder or
    config.json; a name of the catalog; a model in the Hugging Face cache on disk; a name as people write
    it. Raises `SourceError` with the nearest names when nothing fits.
    """
    if isinstance(model, str):
        name = model.strip()
        local = _local_source(name)
        return local if local is not None else _named(name)
    if not isinstance(model, Mapping):
        raise SourceError(f"model: expected a name or a table, got {type(model).__name__}")
    try:
        return _inline(marshal.dumps(cast(Any, model), 2))
    except ValueError:  # a mapping, or a value in it, that is no plain dict, list, text or number
        return _from_table(model)


def _local_source(name: str) -> ModelSource | None:
    """The configuration at a path; None when `name` is no path. A folder wins over a name, as in transformers."""
    if _URL.match(name):
        return None
    path = os.path.expanduser(name) if name.startswith("~") else name
    if path.lower().endswith(_GGUF):
        return _gguf_file(path)
    if path.lower().endswith((SUFFIX, INDEX_SUFFIX)):
        return _weight_file(path)
    looks_like_path = path.startswith((".", os.sep)) or path.lower().endswith(".json") or "\\" in path
    try:
        folder = os.path.isdir(path)
    except ValueError:
        raise SourceError(f"{clipped(name, 200)!r}: is no file name") from None
    config = os.path.join(path, "config.json") if folder else path
    if folder and not os.path.isfile(config) and looks_like_path:
        if find_weights(path) is not None:
            return ModelSource(Path(os.path.abspath(path)).name, {}, path, repository=Folder(path))
        raise SourceError(f"{shown_path(name)}: the folder has no config.json")
    if looks_like_path or (folder and os.path.isfile(config)):
        return _read_file(config)
    return None


def _gguf_file(path: str) -> ModelSource:
    """A GGUF file: its header tells configuration and tensors."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        raise SourceError(f"{shown_path(path)}: there is no such file") from None
    return _from_gguf(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _from_gguf(path: str, modified_ns: int, size: int) -> ModelSource:
    from vramwise.formats.gguf_file import read_gguf
    from vramwise.sources.gguf_config import config_of, tensors_of

    header = read_gguf(path)
    try:
        config = config_of(header, shown_path(path))
    except UnsupportedModelError:
        known = _named_in(header)
        if known is None:
            raise
        return ModelSource(known.id, {**known.config, **tensors_of(header)}, path, f"layers as those of {known.id}")
    return ModelSource(str(config.get("_name_or_path") or Path(path).stem), config, path)


def _named_in(header: GgufHeader) -> ModelSource | None:
    """The model of the catalog that a file's `general.name` names."""
    name = header.metadata.get("general.name")
    try:
        known = _named(name) if isinstance(name, str) else None
    except SourceError:
        return None
    return known if known is not None and not known.others else None


def _weight_file(path: str) -> ModelSource:
    """A safetensors file or index, with the config.json beside it where there is one."""
    if not os.path.isfile(path):
        raise SourceError(f"{shown_path(path)}: there is no such file")
    folder, name = os.path.split(path)
    beside = os.path.join(folder, "config.json")
    if os.path.isfile(beside):
        return replace(_read_file(beside), entry=name)
    return ModelSource(name.partition(".safetensors")[0], {}, path, repository=Folder(folder), entry=name)


def _read_file(config: str) -> ModelSource:
    try:
        status = os.stat(config)
    except (OSError, ValueError):
        return _from_file(config, 0, 0)  # says what is wrong with it
    return _from_file(config, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=64)
def _from_file(config: str, modified_ns: int, size: int) -> ModelSource:
    table = _with_quantization(read_config(config), Folder(os.path.dirname(config)))
    name = Path(os.path.abspath(config))  # not resolve(): files of a cache are links to blobs
    label = name.parent.name if name.name == "config.json" else name.stem
    return ModelSource(label or "config.json", table, config, repository=Folder(os.path.dirname(config)))


_BESIDE = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Files that may say what quantized a checkpoint."""


def _with_quantization(table: dict[str, object], files: Repository) -> dict[str, object]:
    """The config with what a file beside it says of its quantization."""
    if "compression_config" not in table and files.files().keys().isdisjoint(_BESIDE):
        return table
    from vramwise.sources.quantization_file import with_quantization

    return with_quantization(table, files)


@lru_cache(maxsize=256)
def _inline(content: bytes) -> ModelSource:
    return _from_table(marshal.loads(content))


def _from_table(table: Mapping[str, object]) -> ModelSource:
    config = checked(table, "model")
    label = config.get("_name_or_path") or config.get("model_type") or "inline configuration"
    return ModelSource(clipped(str(label)), config, "table in the scenario")


@lru_cache(maxsize=512)
def _known(name: str) -> ModelSource | None:
    """A name of the catalog: an id or an alias, without regard to letter case."""
    found = written(name)
    return _from_catalog(*found) if found is not None else None


def _named(name: str) -> ModelSource:
    if not name or len(name) > _LONGEST_NAME:
        raise SourceError(f'model: expected a name, a path or a URL, got "{clipped(name)}"')
    plain = _from_url(name) if _URL.match(name) else name
    found = _known(plain)
    if found is not None:
        return found
    cached = cached_config(plain)
    if cached is not None:
        source = _read_file(os.fspath(cached))
        return replace(source, id=plain, origin=f"Hugging Face cache: {cached}")
    return _by_human_name(plain)


@lru_cache(maxsize=512)
def _by_human_name(name: str) -> ModelSource:
    org, _, short = name.rpartition("/")
    match = find(short) if not org or org.lower() in MIRRORS else None
    if match is None:
        quantized = _quantized(name)
        if quantized is not None:
            return quantized
        close = near(name)
        meant = f": did you mean {', '.join(close)}?" if close else ""
        raise SourceError(f'unknown model "{clipped(name)}"{meant}  {_HINT}')
    source = _from_catalog(match.id, match.spelling)
    notes = [note for note in (_taken(name, match), source.note) if note]
    return replace(source, note="; ".join(notes) or None, others=match.others)


def _taken(name: str, match: Match) -> str | None:
    """What was chosen where the name left a choice."""
    if match.others:
        shown = ", ".join(match.others[:_LISTED]) + (", …" if len(match.others) > _LISTED else "")
        return f'"{clipped(name)}" fits several models: took {match.spelling} (others: {shown})'
    short = name.rpartition("/")[2]
    exact = match.spelling.partition("/")[2].lower() == "-".join(short.lower().split())
    return None if exact and short == name else f'"{clipped(name)}" taken as {match.spelling}'


def _quantized(name: str) -> ModelSource | None:
    """A name that is a known model's with the format of its weights behind it, whoever published it."""
    from vramwise.sources.quantized_names import base_of

    found = base_of(name)
    if found is None:
        return None
    base, words, table = found
    known = _known(base)
    if known is None:
        named = written_behind_organisation(base.rpartition("/")[2])
        known = _from_catalog(*named[0]) if named else None
    if known is None:
        return None
    config = {**known.config, "quantization_config": table}
    return replace(
        known, id=name, config=config, note=f"{clipped(name)}: sizes of {known.id} with {words}, as its name says"
    )


def _from_catalog(model_id: str, spelling: str) -> ModelSource:
    found = entry(model_id)
    note = f"{spelling}: sizes of {found.like}, the same architecture" if found.like else None
    return ModelSource(spelling, found.hyperparameters, f"catalog: {found.source}", note)


def _from_url(url: str) -> str:
    """ORG/NAME of a model page; the revision and the file in the URL are not looked at."""
    host, _, path = _URL.sub("", url).partition("/")
    prefix = _HOSTS.get(host.lower())
    path = re.split(r"[?#]", path)[0].strip("/")
    if prefix is None or not path.startswith(prefix) or not path:
        raise SourceError(f"{clipped(url, 200)}: expected the page of a model, such as https://huggingface.co/ORG/NAME")
    parts = path.removeprefix(prefix).split("/")
    if parts[0] in {"datasets", "spaces", "docs", "papers", "models"}:
        raise SourceError(f"{clipped(url, 200)}: is no model, expected https://huggingface.co/ORG/NAME")
    legacy = len(parts) == 1 or parts[1] in {"tree", "blob", "resolve"}
    return parts[0] if legacy else f"{parts[0]}/{parts[1]}"
