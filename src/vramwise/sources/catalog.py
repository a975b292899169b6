"""The built-in catalog: one line of hyperparameters a model, in catalog.jsonl.

A line starts with id, aliases (other names of the same checkpoint) and variants (checkpoints of the same
architecture), so names are indexed without reading the rest; a line is parsed when somebody asks for it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from vramwise.records import record

_HEAD_END = ',"model_type":'


@record
class CatalogEntry:
    """One model: names, type, hyperparameters and where they were read.

    `kind` tells how: `real` and `real-embedded` (a whole config.json), `reduced` (its sizes), `values` (a
    paper or another tool's table), `class-default` (default of the transformers class), `recalled`.
    """

    id: str
    aliases: tuple[str, ...]
    variants: tuple[str, ...]
    model_type: str
    kind: str
    source: str
    hyperparameters: dict[str, object]


@record
class Names:
    """Names of the catalog: `ids` in order, `lines` by id, `exact` by lower-case name."""

    ids: tuple[str, ...]
    lines: dict[str, str]
    exact: dict[str, tuple[str, str, bool]]
    """lower-case name -> (id, the name as written, whether it is a variant)"""


@cache
def names() -> Names:
    """The index of names, read once."""
    text = (Path(__file__).parent / "catalog.jsonl").read_text(encoding="utf-8")
    lines: dict[str, str] = {}
    exact: dict[str, tuple[str, str, bool]] = {}
    for line in text.splitlines():
        head = json.loads(line[: line.index(_HEAD_END)] + "}")
        lines[head["id"]] = line
        exact[head["id"].lower()] = (head["id"], head["id"], False)
        for alias in head["aliases"]:
            exact[alias.lower()] = (head["id"], alias, False)
        for variant in head["variants"]:
            exact[variant.lower()] = (head["id"], variant, True)
    return Names(tuple(lines), lines, exact)


@cache
def entry(model_id: str) -> CatalogEntry:
    """The entry with exactly this id."""
    fields = json.loads(names().lines[model_id])
    fields["aliases"], fields["variants"] = tuple(fields["aliases"]), tuple(fields["variants"])
    return CatalogEntry(**fields)


def catalog(query: str | None = None) -> list[CatalogEntry]:
    """All entries by id, or those whose id, other names or type hold every word of `query`."""
    words = (query or "").lower().split()
    found = (entry(model_id) for model_id in names().ids)
    return [one for one in found if all(word in _searched(one) for word in words)]


def _searched(one: CatalogEntry) -> str:
    return " ".join((one.id, *one.aliases, *one.variants, one.model_type)).lower()
