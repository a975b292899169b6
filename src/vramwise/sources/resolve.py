"""From what a person names as the model to its configuration: a path, the catalog, caches, hubs."""

from __future__ import annotations

import marshal
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vramwise.errors import SourceError, clipped
from vramwise.files import may_look_at, read_at_most, shown_path
from vramwise.records import replace
from vramwise.scenario.names import MODEL_SOURCES
from vramwise.sources.repository import Folder, ModelSource, Repository, checked, read_config, with_pooling

if TYPE_CHECKING:
    from vramwise.sources.reference import Reference

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


AUTO, CATALOG = MODEL_SOURCES[0], "catalog"
_LONGEST_NAME = 500

__all__ = ["ModelSource", "resolve"]


def resolve(
    model: str | Mapping[str, object], *, source: str = AUTO, revision: str | None = None, network: bool = True
) -> ModelSource:
    """The configuration that `model` names.

    A table is a config.json itself. Text is, in this order: a path of a folder or file; a name of the catalog; a
    repository in a cache on disk; one on the Hugging Face Hub, then on ModelScope; a name as people write it. `source`
    forces one place; names of the catalog ask nobody. `network=False` asks nobody at all. Raises `SourceError` with
    the nearest names when nothing or several models fit.
    """
    if isinstance(model, str):
        name = model.strip()
        scheme, mark, rest = name.partition("://")
        if mark and scheme.lower() in MODEL_SOURCES:  # hub://ORG/NAME
            name, source = rest, scheme.lower()
        local = local_model(name) if source == AUTO and "://" not in name else None
        return local if local is not None else _named(name, source, revision, network)
    if not isinstance(model, Mapping):
        raise SourceError(f"model: expected a name or a table, got {type(model).__name__}")
    try:
        return _inline(marshal.dumps(cast(Any, model), 2))
    except ValueError:  # a mapping, or a value in it, that is no plain dict, list, text or number
        return _from_table(model)


@lru_cache(maxsize=256)
def _inline(content: bytes) -> ModelSource:
    return _from_table(marshal.loads(content))


def _from_table(table: Mapping[str, object]) -> ModelSource:
    config = checked(table, "model")
    label = config.get("_name_or_path") or config.get("model_type") or "inline configuration"
    return ModelSource(clipped(str(label)), config, "table in the scenario")


def _named(name: str, source: str, revision: str | None, network: bool) -> ModelSource:
    if not name or len(name) > _LONGEST_NAME:
        raise SourceError(f'model: expected a name, a path or a URL, got "{clipped(name)}"')
    from vramwise.sources.known_names import HINT, known, unknown

    in_catalog = source in (AUTO, CATALOG)
    found = known(name) if in_catalog and revision is None else None
    if found is not None:
        return found
    if in_catalog and revision is None and "/" not in name.partition(":")[2]:
        from vramwise.sources.pipelines import known_pipeline

        found = known_pipeline(name)
        if found is not None:
            return found
    asked = _asked(name, source, revision)
    is_plain = asked.revision is None and asked.pick is None
    if in_catalog and is_plain:
        found = known(asked.name) or _meant(asked.name)
        if found is not None:
            return found
    if source == AUTO and os.path.isfile(name):
        raise SourceError(f"{shown_path(name)}: {NO_MODEL}")
    if asked.source == CATALOG or not asked.is_repository:
        raise unknown(asked.name, HINT)
    from vramwise.sources.places import model_somewhere

    return model_somewhere(asked, network=network)


def _meant(name: str) -> ModelSource | None:
    """The model of the catalog that a name means, however people write it, where it is no repository of its own."""
    from vramwise.sources.known_names import is_repository_of_its_own, meant

    if ":" in name:
        from vramwise.sources.named_files import of_a_tag, of_gguf_files, of_the_library

        return of_a_tag(name) or of_gguf_files(name) or meant(name) or of_the_library(name)
    found = None if is_repository_of_its_own(name) else meant(name)
    if found is None and "/" not in name:
        from vramwise.sources.named_files import of_gguf_files, of_words

        found = of_gguf_files(name) or of_words(name)
    return found


def _asked(name: str, source: str, revision: str | None) -> Reference:
    """What the name and the settings beside it ask for together. Raises SourceError where they contradict."""
    from vramwise.sources.reference import reference

    asked = reference(name)
    if revision is not None and asked.revision not in (None, revision):
        raise SourceError(f"{clipped(name)} names the revision {clipped(asked.revision or '')}, revision says another")
    if source not in MODEL_SOURCES:
        raise SourceError(f'source: expected one of {", ".join(MODEL_SOURCES)}, got "{clipped(source)}"')
    return replace(asked, revision=revision or asked.revision, source=asked.source if source == AUTO else source)
