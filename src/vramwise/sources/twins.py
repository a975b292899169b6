"""Other names of models of the catalog: owners on ModelScope and renamed ones (twins.csv).

A row whose names end with `/` stands for every repository of an owner that has the same name with one of the twin's
owners: `ZhipuAI/GLM-4.5-Air` is `zai-org/GLM-4.5-Air`. `same`: the same checkpoint; else another one of the same
architecture and sizes.
"""

from __future__ import annotations

from vramwise.records import record
from vramwise.sources.catalog import written
from vramwise.tables import table


@record
class Twin:
    """A model of the catalog that another name means: its id, the catalog's spelling, and whether it is the same."""

    id: str
    spelling: str
    same: bool


def twin_of(name: str) -> Twin | None:
    """The model of the catalog that a name of twins.csv means, without regard to letter case; None for any other."""
    owner, slash, short = name.strip().partition("/")
    if not slash or not short or "/" in short:
        return None
    wanted = (name.lower(), f"{owner.lower()}/")
    for row in table(__file__):
        if row["name"].lower() not in wanted:
            continue
        for twin in row.words("twin"):
            found = written(f"{twin}{short}" if twin.endswith("/") else twin)
            if found is not None:
                return Twin(*found, same=row["same"] == "yes")
    return None
