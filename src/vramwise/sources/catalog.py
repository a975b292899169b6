"""The built-in catalog: one line a checkpoint, in catalog.jsonl.

A line starts with id and aliases (other names of the same checkpoint). That of a checkpoint with the architecture of
another names it in `like`, and its hyperparameters are those that differ, null where it has none. A name is looked for
in the bytes of the file, and its line alone is parsed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from vramwise.records import record

_FILE = Path(__file__).parent / "catalog.jsonl"
_START = b'{"id":"'


@record
class CatalogEntry:
    """One checkpoint: names, type, hyperparameters and where they were read.

    `kind` tells how: `real` and `real-embedded` (a whole config.json), `reduced` (its sizes), `values` (a
    paper or another tool's table), `class-default` (default of the transformers class), `like` (the sizes of
    the entry that `like` names, and what its source says to be different).
    """

    id: str
    aliases: tuple[str, ...]
    like: str | None
    model_type: str
    kind: str
    source: str
    hyperparameters: dict[str, object]


@record
class Names:
    """Names of the catalog: `ids` in order, `exact` by lower-case name."""

    ids: tuple[str, ...]
    own: tuple[str, ...]
    """Those that are like no other: one of each architecture and size."""
    exact: dict[str, tuple[str, str]]
    """lower-case name -> (id, the name as written)"""


@cache
def _content() -> tuple[bytes, bytes]:
    """The file as it is, and in lower case; a line break before every line."""
    content = b"\n" + _FILE.read_bytes()
    return content, content.lower()


@cache
def names() -> Names:
    """The index of all names, read once."""
    ids: list[str] = []
    own: list[str] = []
    exact: dict[str, tuple[str, str]] = {}
    for line in _content()[0].decode("utf-8").split("\n")[1:-1]:
        model_id, _, rest = line[len(_START) :].partition('","aliases":[')
        ids.append(model_id)
        aliases, _, rest = rest.partition("]")
        if not rest.startswith(',"like"'):
            own.append(model_id)
        for spelling in (model_id, *aliases.replace('"', "").split(",")):
            if spelling:
                exact[spelling.lower()] = (model_id, spelling)
    return Names(tuple(ids), tuple(own), exact)


def written(name: str) -> tuple[str, str] | None:
    """The id and the catalog's spelling of a name, without regard to letter case; None for any other name."""
    if not _may_be_name(name):
        return None
    found = next(_places(b'"' + _key(name)), None)
    return _at(found + 1) if found is not None else None


def written_behind_organisation(short: str) -> list[tuple[str, str]]:
    """Ids and spellings of the names that are this behind their organisation, without regard to letter case."""
    if not _may_be_name(short):
        return []
    return [_at(_content()[0].rindex(b'"', 0, found) + 1) for found in _places(b"/" + _key(short))]


def _may_be_name(name: str) -> bool:
    return bool(name) and name.isprintable() and '"' not in name and "\\" not in name


def _key(name: str) -> bytes:
    return name.lower().encode("utf-8", "replace") + b'"'


def _places(wanted: bytes) -> Iterator[int]:
    """Where these bytes, in lower case, are part of an id or an alias."""
    lowered = _content()[1]
    found = lowered.find(wanted)
    while found >= 0:
        line = lowered.rfind(b"\n", 0, found)
        if found < lowered.index(b"]", line):  # the aliases are the first list of a line
            yield found
        found = lowered.find(wanted, found + 1)


def _at(start: int) -> tuple[str, str]:
    """Id and spelling of the name that begins here."""
    content = _content()[0]
    line = content.rindex(b"\n", 0, start) + 1
    return _text_at(content, line + len(_START)), _text_at(content, start)


def _text_at(content: bytes, start: int) -> str:
    return content[start : content.index(b'"', start)].decode("utf-8")


def line_of(model_id: str) -> bytes:
    """The line of the entry with exactly this id."""
    content = _content()[0]
    start = content.index(b"\n" + _START + model_id.encode("utf-8") + b'"') + 1
    return content[start : content.index(b"\n", start)]


@cache
def lines() -> Mapping[str, tuple[bytes, str | None]]:
    """The line of every id, and the entry that it is like; none of them parsed."""
    found: dict[str, tuple[bytes, str | None]] = {}
    for line in _content()[0].split(b"\n")[1:-1]:
        like = line.find(b',"like":"', line.index(b"]"), line.index(b',"source"'))
        start = like + len(b',"like":"')
        found[_text_at(line, len(_START))] = line, None if like < 0 else _text_at(line, start)
    return found


@cache
def entry(model_id: str) -> CatalogEntry:
    """The entry with exactly this id."""
    fields = json.loads(line_of(model_id))
    like, own = fields.get("like"), fields["hyperparameters"]
    if like is None:
        model_type, kind = fields["model_type"], fields["kind"]
    else:
        base = entry(like)
        model_type, kind, own = base.model_type, "like", _changed(base.hyperparameters, own)
    return CatalogEntry(model_id, tuple(fields["aliases"]), like, model_type, kind, fields["source"], own)


def _changed(table: dict[str, object], differences: dict[str, object]) -> dict[str, object]:
    """`table` with other values, without the keys that are null; those of the language model inside it one by one."""
    changed = {**table, **differences}
    inner, own = table.get("text_config"), differences.get("text_config")
    if isinstance(inner, dict) and isinstance(own, dict):
        changed["text_config"] = _changed(inner, own)
    return {key: value for key, value in changed.items() if value is not None or key not in differences}


def catalog(query: str | None = None) -> list[CatalogEntry]:
    """All entries by id, or those whose id, other names or type hold every word of `query`."""
    words = (query or "").lower().split()
    found = (entry(model_id) for model_id in names().ids)
    return [one for one in found if all(word in _searched(one) for word in words)]


def _searched(one: CatalogEntry) -> str:
    return " ".join((one.id, *one.aliases, one.model_type)).lower()
