"""Built-in pipelines of Diffusers, one line each in pipelines.jsonl, and the components of any pipeline.

A line has an id, aliases, the source of every value, and a `model_index.json` whose components are tables, each the
component's config with its class: only what sets sizes and structure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from vramwise.errors import SourceError, clipped
from vramwise.formats.ranged import RangedFiles
from vramwise.sources.catalog import CatalogEntry
from vramwise.sources.repository import ModelSource

_FILE = Path(__file__).parent / "pipelines.jsonl"
_NO_MODELS = ("Scheduler", "Tokenizer", "TokenizerFast", "Processor", "Extractor", "FeatureExtractor")


@cache
def _rows() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for name in (row["id"], *row["aliases"]):
            found[name.lower()] = row
    return found


def pipeline_names() -> tuple[str, ...]:
    """Ids of the built-in pipelines."""
    return tuple(dict.fromkeys(str(row["id"]) for row in _rows().values()))


def pipelines(query: str = "") -> list[CatalogEntry]:
    """The built-in pipelines whose id, other names or class hold every word of `query`, as entries of the catalog."""
    found = []
    for name in pipeline_names():
        row = _rows()[name.lower()]
        config, aliases = row["config"], row["aliases"]
        assert isinstance(config, dict)
        assert isinstance(aliases, list)
        kind = str(config["_class_name"])
        if all(word in " ".join((name, *aliases, kind)).lower() for word in query.lower().split()):
            found.append(CatalogEntry(name, tuple(aliases), None, kind, "reduced", str(row["source"]), config))
    return found


def known_pipeline(name: str) -> ModelSource | None:
    """A built-in pipeline, or `NAME:COMPONENT` one model of it; None for other names.

    Raises SourceError for a component that it does not have.
    """
    whole, colon, part = name.strip().partition(":")
    row = _rows().get(whole.lower())
    if row is None:
        return None
    config, origin = row["config"], f"catalog: {row['source']}"
    assert isinstance(config, dict)
    if not colon:
        return ModelSource(str(row["id"]), config, origin)
    inner = config.get(part)
    if not isinstance(inner, dict):
        parts = ", ".join(key for key, value in config.items() if isinstance(value, dict))
        raise SourceError(f'{row["id"]} has no component "{clipped(part)}": expected one of {parts}')
    return ModelSource(f"{row['id']}:{part}", inner, origin)


def component_configs(config: Mapping[str, object], files: RangedFiles | None) -> dict[str, dict[str, object]]:
    """Config and class of every model that a `model_index.json` names; empty for what is no pipeline.

    Raises SourceError where a component's config cannot be read.
    """
    from vramwise.sources.repository import LARGEST_CONFIG_BYTES, parsed_config

    found: dict[str, dict[str, object]] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and isinstance(value.get("_class_name"), str):
            found[name] = dict(value)
        elif isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(one, str) for one in value):
            path = f"{name}/config.json"
            if files is None or value[1].endswith(_NO_MODELS) or path not in files.files():
                continue
            table = parsed_config(files.read(path, LARGEST_CONFIG_BYTES), f"{files.name}/{path}")
            found[name] = {**table, "_class_name": value[1]}
    return found
