"""From a repository, on disk or on a hub, to a model's configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vramwise.errors import SourceError, UnsupportedModelError, clipped
from vramwise.formats.ranged import shown_in
from vramwise.formats.safetensors import INDEX_SUFFIX, SUFFIX, weights_among
from vramwise.sources.picks import SubFolder, has_folder, nothing_fits, picked_gguf, usual_gguf
from vramwise.sources.repository import LARGEST_CONFIG_BYTES, ModelSource, Repository, parsed_config, with_pooling
from vramwise.sources.repository_files import pytorch_note, with_quantization

if TYPE_CHECKING:
    from vramwise.formats.gguf_file import GgufHeader

CONFIG, ADAPTER, PIPELINE = "config.json", "adapter_config.json", "model_index.json"


def model_in(repository: Repository, model_id: str, pick: str | None = None) -> ModelSource:
    """The model that a repository holds, or what `pick` takes of it: a GGUF file, a folder, a safetensors file.

    Raises SourceError where nothing in it describes a model.
    """
    if pick:
        return _picked(repository, model_id, pick.strip("/"))
    files = repository.files()
    if CONFIG in files:
        config = config_in(repository)
        return ModelSource(
            model_id, config, repository.origin, pytorch_note(repository), repository=repository
        )  # fmt: skip
    if ADAPTER in files:
        from vramwise.sources.adapters import adapter_alone

        return adapter_alone(repository, model_id)
    usual = usual_gguf(repository)
    if usual is not None:
        path, note = usual
        found = gguf_model(repository, path)
        return replace(found, id=model_id, note=note or found.note)
    if PIPELINE in files:
        content = repository.read(PIPELINE, LARGEST_CONFIG_BYTES)
        table = parsed_config(content, shown_in(repository, PIPELINE))
        return ModelSource(model_id, table, repository.origin, repository=repository)
    if weights_among(files) is not None:
        return ModelSource(model_id, {}, repository.origin, repository=repository)
    kind = "folder" if repository.at_once == 1 else "repository"
    raise SourceError(f"{shown_in(repository, '')}: the {kind} has no {CONFIG}, no safetensors and no GGUF file")


def _picked(repository: Repository, model_id: str, pick: str) -> ModelSource:
    path = picked_gguf(repository, pick)
    if path is not None:
        return replace(gguf_model(repository, path), id=f"{model_id}:{pick}")
    if pick in repository.files() and pick.endswith((SUFFIX, INDEX_SUFFIX)):
        folder, _, entry = pick.rpartition("/")
        inner: Repository = SubFolder(repository, folder) if folder else repository
        config = config_in(inner) if CONFIG in inner.files() else {}
        return ModelSource(f"{model_id}:{clipped(pick)}", config, inner.origin, repository=inner, entry=entry)
    if has_folder(repository, pick):
        return model_in(SubFolder(repository, pick), f"{model_id}:{clipped(pick)}")
    raise nothing_fits(repository, pick)


def config_in(repository: Repository) -> dict[str, object]:
    """The table in a repository's config.json. Raises SourceError in one line."""
    content = repository.read(CONFIG, LARGEST_CONFIG_BYTES)
    table = with_quantization(parsed_config(content, shown_in(repository, CONFIG)), repository)
    return with_pooling(table, repository)


def gguf_model(repository: Repository, path: str) -> ModelSource:
    """A GGUF file: its header tells configuration and tensors, or the model that it names the layers."""
    from vramwise.formats.gguf_file import gguf_header
    from vramwise.sources.gguf_config import config_of, tensors_of

    header = gguf_header(repository, path)
    origin = shown_in(repository, path) if repository.at_once == 1 else f"{repository.origin}, {path}"
    try:
        config = config_of(header, shown_in(repository, path))
    except UnsupportedModelError:
        known = _named_in(header)
        if known is None:
            raise
        config = {**known.config, **tensors_of(header)}
        return ModelSource(known.id, config, origin, f"layers as those of {known.id}")
    stem = path.rpartition("/")[2].removesuffix(".gguf")
    return ModelSource(str(config.get("_name_or_path") or stem), config, origin)


def _named_in(header: GgufHeader) -> ModelSource | None:
    """The model of the catalog that a file's `general.name` names."""
    from vramwise.sources.known_names import by_name

    name = header.metadata.get("general.name")
    try:
        known = by_name(name) if isinstance(name, str) else None
    except SourceError:
        return None
    return known if known is not None and not known.others else None
