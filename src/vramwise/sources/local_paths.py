"""A model at a path of this machine: a folder, a config.json, a GGUF or safetensors file."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from vramwise.errors import SourceError, clipped
from vramwise.files import may_look_at, read_at_most, shown_path
from vramwise.records import replace
from vramwise.sources.repository import Folder, ModelSource, Repository, read_config, with_pooling

_GGUF = ".gguf"
NO_MODEL = (
    "holds no model, command line or configuration that is known here: expected config.json, .safetensors, .gguf, a "
    "scenario, or another tool's file"
)
NOT_READ = "files of this machine are not read here but those of `vramwise web --allow-files DIR`"
_WEIGHTS = (".safetensors", ".safetensors.index.json")
_FILES_OF_TOOLS = (".json", ".yaml", ".yml", ".toml", ".sh", ".sbatch", ".slurm", ".ipynb", ".py")
"""Endings that no model's name has: files that people mean and mistype."""


def local_model(name: str) -> ModelSource | None:
    """The configuration at a path; None when `name` is no path. A folder wins over a name, as in transformers.

    `FOLDER:PICK` takes a part of a folder. Raises SourceError for a path that leads nowhere.
    """
    path = os.path.expanduser(name) if name.startswith("~") else name
    if not may_look_at(path):
        if os.path.isabs(path) or name.startswith((".", "~")) or "\\" in path:
            raise SourceError(f"{shown_path(name)}: {NOT_READ}")
        return None
    if path.lower().endswith(_GGUF) and not _is_part_of_a_repository(path):
        return _gguf_file(path)
    if path.lower().endswith(_WEIGHTS) and not _is_part_of_a_repository(path):
        return _weight_file(path)
    looks_like_path = path.startswith((".", os.sep)) or path.lower().endswith(_FILES_OF_TOOLS) or "\\" in path
    try:
        folder = os.path.isdir(path)
    except ValueError:
        raise SourceError(f"{clipped(name, 200)!r}: is no file name") from None
    if not folder and ":" in path:
        place, _, pick = path.rpartition(":")
        if os.path.isdir(place):
            return folder_model(Folder(place), _label(place), pick)
    config = os.path.join(path, "config.json") if folder else path
    if folder and not os.path.isfile(config):
        return folder_model(Folder(path), _label(path), None) if looks_like_path else None
    if looks_like_path and not folder and not path.lower().endswith(".json") and _is_other_text(path):
        raise SourceError(f"{shown_path(path)}: {NO_MODEL}")
    if looks_like_path and not path.lower().endswith(".json") and _is_missing(path):
        raise SourceError(_nowhere(name))
    return _read_file(config) if looks_like_path or folder else None


def _is_missing(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        pass  # reading it says why
    return False


def _nowhere(name: str) -> str:
    """What to say of a path that leads nowhere: names that are known here and look like its last part."""
    from vramwise.sources.known_names import near

    is_a_tools = name.lower().endswith(_FILES_OF_TOOLS) and not name.lower().endswith(".json")
    close = [] if is_a_tools else near(re.split(r"[/\\]+", name.rstrip("/\\"))[-1])
    instead = f"; known by their names are {', '.join(close)}" if close else ""
    return f"{shown_path(name)}: No such file or directory{instead}"


def _is_other_text(path: str) -> bool:
    """Whether a file begins as no JSON does."""
    try:
        return os.path.isfile(path) and not read_at_most(path, 4096).lstrip().startswith(b"{")
    except (OSError, SourceError):
        return False  # reading it says why


def _is_part_of_a_repository(path: str) -> bool:
    """`ORG/NAME:FILE.gguf` is a file of a repository, unless it lies here."""
    return ":" in path and not os.path.exists(path) and not path.startswith((".", os.sep, "~")) and "\\" not in path


def folder_model(folder: Folder, model_id: str, pick: str | None) -> ModelSource:
    """The model in a folder, under another name than the folder's; its config.json is parsed once."""
    config = os.path.join(folder.folder, "config.json")
    if not pick and os.path.isfile(config):
        return replace(_read_file(config), id=model_id, origin=folder.origin, repository=folder)
    from vramwise.sources.described import model_in

    return model_in(folder, model_id, pick)


def _gguf_file(path: str) -> ModelSource:
    """A GGUF file: its header tells configuration and tensors."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        raise SourceError(f"{shown_path(path)}: there is no such file") from None
    return _from_gguf(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _from_gguf(path: str, modified_ns: int, size: int) -> ModelSource:
    from vramwise.sources.described import gguf_model

    folder, name = os.path.split(path)
    return gguf_model(Folder(folder), name)


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
    files = Folder(os.path.dirname(config))
    table = with_pooling(_with_quantization(read_config(config), files), files)
    name = Path(os.path.abspath(config))  # not resolve(): files of a cache are links to blobs
    label = name.parent.name if name.name == "config.json" else name.stem
    return ModelSource(label or "config.json", table, config, repository=Folder(os.path.dirname(config)))


_BESIDE = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""Files that may say what quantized a checkpoint."""


def _with_quantization(table: dict[str, object], files: Repository) -> dict[str, object]:
    """The config with what a file beside it says of its quantization."""
    if "compression_config" not in table and files.files().keys().isdisjoint(_BESIDE):
        return table
    from vramwise.sources.repository_files import with_quantization

    return with_quantization(table, files)


def _label(folder: str) -> str:
    return Path(os.path.abspath(folder)).name
