"""From what a person names as the model to its configuration: a path, the catalog, caches, hubs."""

from __future__ import annotations

import marshal
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from vramwise.errors import SourceError, clipped
from vramwise.files import shown_path
from vramwise.records import replace
from vramwise.scenario.names import MODEL_SOURCES
from vramwise.sources.local_paths import NO_MODEL, local_model
from vramwise.sources.repository import ModelSource, checked

if TYPE_CHECKING:
    from vramwise.sources.reference import Reference

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
        found = local if local is not None else _named(name, source, revision, network)
        if found.base is None:
            return found
        from vramwise.sources.adapters import on_base

        return on_base(found, found.base, resolve)
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
