"""`vramwise models [QUERY]`: models that are known by name."""

from __future__ import annotations

import argparse
import json
import re

from vramwise.cli.listing import print_table
from vramwise.cli.screens.paint import screen_width, show, wrapped_text
from vramwise.errors import UnknownNameError, nearest
from vramwise.models.config import stated_dtype
from vramwise.sources.catalog import CatalogEntry, catalog
from vramwise.sources.known_names import near
from vramwise.sources.pipelines import pipelines

HELP = "list models that are known by name"

_QUANTIZED = re.compile(r"nvfp4|mxfp4|fp8|awq|gptq|bitsandbytes|int8|int4|(pack|float|int)-quantized")
_COMPRESSED = {"pack-quantized": "int4", "float-quantized": "fp8", "int-quantized": "int8"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of the command."""
    parser.add_argument("query", nargs="*", metavar="QUERY", help="words of a name or a model type")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--offline", action="store_true", help="ask no hub: the catalog and caches alone")
    parser.add_argument("--types", action="store_true", help="the model types that are described, instead of models")


def run(args: argparse.Namespace) -> int:
    """Print the models that fit; raises UnknownNameError when none does."""
    query = " ".join(args.query)
    if args.types:
        return _list_types(query, as_json=args.json)
    found = [*catalog(query), *pipelines(query)] or _elsewhere(args.query)
    if not found:
        raise UnknownNameError("model", query, near(query), "vramwise models lists all")
    described = _described_types() | {one.model_type for one in pipelines()}
    if args.json:
        print(json.dumps([_facts(one, described) for one in found], indent=2, ensure_ascii=False))
        return 0
    print_table(("model", "context", "weights"), [_row(one) for one in found], numbers=(1,))
    can = sum(one.model_type in described for one in found)
    said = f"{len(found):,} {'model' if len(found) == 1 else 'models'}, {can:,} of families that can be estimated; "
    show(["", *wrapped_text("", f"{said}--json has types, sizes and sources", screen_width())])
    return 0


def _row(one: CatalogEntry) -> tuple[str, str, str]:
    positions, weights = context_and_weights(one)
    return one.id, f"{positions:,}" if positions else "", weights


def context_and_weights(one: CatalogEntry) -> tuple[int | None, str]:
    """Positions, and the format or dtype of the weights, as far as the entry states them."""
    inner = one.hyperparameters.get("text_config")
    tables = (one.hyperparameters, inner if isinstance(inner, dict) else {})
    stated = (table.get(key) for table in tables for key in ("max_position_embeddings", "n_positions", "seq_length"))
    positions = next((value for value in stated if isinstance(value, int)), None)
    weights = stated_dtype(one.hyperparameters) or ""
    if table := one.hyperparameters.get("quantization_config"):
        named = _QUANTIZED.search(json.dumps(table).lower())
        weights = _COMPRESSED.get(named.group(), named.group()) if named else "other"
    return positions, weights


def _elsewhere(words: list[str]) -> list[CatalogEntry]:
    """A repository that the catalog does not have, as an entry of it; a name without organisation is looked up here."""
    if len(words) != 1 or "/" not in words[0]:
        return []
    from vramwise.sources import resolve

    found = resolve(words[0])
    return [
        CatalogEntry(found.id, (), None, str(found.config.get("model_type") or ""), "real", found.origin, found.config)
    ]


def _list_types(query: str, *, as_json: bool) -> int:
    """The described model types that hold `query`; docs/model-types.md says how exact each is."""
    types = sorted(_described_types())
    found = [name for name in types if query.lower() in name]
    if not found:
        raise UnknownNameError("model type", query, nearest(query, types), "vramwise models --types lists all")
    print(json.dumps(found, indent=2) if as_json else "\n".join(found))
    return 0


def _described_types() -> frozenset[str]:
    from vramwise.models import supported_types

    return frozenset(supported_types())


def _facts(one: CatalogEntry, described: frozenset[str]) -> dict[str, object]:
    return {
        "id": one.id,
        "aliases": list(one.aliases),
        "like": one.like,
        "model_type": one.model_type,
        "described": one.model_type in described,
        "kind": one.kind,
        "source": one.source,
        "hyperparameters": one.hyperparameters,
    }
