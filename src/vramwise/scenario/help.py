"""What `--help` and the schema say of a key: its own line, its owner's name in front, and the group it stands in."""

from __future__ import annotations

from vramwise.scenario.nested import nested_tables
from vramwise.scenario.owners import LLAMA_CPP, OLLAMA, title_of
from vramwise.scenario.settings import Settings, kinds_of, ownership_of

_MOST_OWNERS = 2
_TWINS = {OLLAMA: LLAMA_CPP}


def described(cls: type[Settings], key: str, *, group: str = "") -> str:
    """A key's line of help; its owners stand in front where they are few and are not the name of the group."""
    whose = ownership_of(cls)[key]
    titles = dict.fromkeys(title_of(_TWINS.get(owner, owner)) for owner in whose.owners)
    named = 0 < len(titles) <= _MOST_OWNERS and list(titles) != [group] and all(titles)
    return f"{', '.join(titles)}: {kinds_of(cls)[key].help}" if named else kinds_of(cls)[key].help


def group_of(cls: type[Settings], key: str) -> str:
    """The title of the nested table that a key belongs to, where that is one alone; else empty."""
    table = table_beside(cls, key)
    return nested_tables(cls)[table].title if table else ""


def table_beside(cls: type[Settings], key: str) -> str:
    """The name of the nested table that a key belongs to, where that is one alone; else empty. Its title may stand in
    an engine's record, the name does not."""
    places = set(ownership_of(cls)[key].places) - {OLLAMA.table}
    return places.pop() if len(places) == 1 else ""
