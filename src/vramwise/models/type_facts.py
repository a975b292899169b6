"""What hangs on a type of model in one program, and on that program's version: rows of type_facts.csv.

What a type is made of stands in its family. Here stands what an engine, a library or a converter does with it by its
name alone: a list in its sources, a class that lacks something, a kernel that is chosen. Every row has its source; it
holds from its version on, up to and without `until`, for each of its types (`qwen3_vl*`: all that begin so). The
program `any` is whatever reads the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache

from vramwise.records import record
from vramwise.tables import table

Version = tuple[int, ...]
LATEST: Version = (999,)
ANY = "any"


@record
class TypeFact:
    """One row: the versions and types that it holds for, and a value where the fact has one."""

    start: Version
    stop: Version | None
    types: frozenset[str]
    beginnings: tuple[str, ...]
    value: str
    source: str

    def holds(self, model_type: str, version: Version) -> bool:
        """Whether it holds for a type in a version of the program."""
        return self.reaches(version) and (model_type in self.types or model_type.startswith(self.beginnings))

    def reaches(self, version: Version) -> bool:
        """Whether it holds in a version, for its types."""
        return version >= self.start and (self.stop is None or version < self.stop)


@cache
def facts() -> Mapping[tuple[str, str], tuple[TypeFact, ...]]:
    """Every row, by program and fact."""
    found: dict[tuple[str, str], tuple[TypeFact, ...]] = {}
    for row in table(__file__):
        types = row.words("model_types")
        fact = TypeFact(
            _version(row["from"]) or (),
            _version(row["until"]),
            frozenset(name for name in types if not name.endswith("*")),
            tuple(name[:-1] for name in types if name.endswith("*")),
            row["value"],
            row["source"],
        )
        key = (row["program"], row["fact"])
        found[key] = (*found.get(key, ()), fact)
    return found


def _version(text: str) -> Version | None:
    return tuple(int(piece) for piece in re.findall(r"\d+", text)) or None


def has_fact(program: str, fact: str, model_type: object, version: Version = LATEST) -> bool:
    """Whether a fact holds for a type in a version of a program. Raises KeyError for a fact that no row has."""
    return any(row.holds(str(model_type), version) for row in facts()[program, fact])


@lru_cache(maxsize=256)
def types_with(program: str, fact: str, version: Version | None = None) -> frozenset[str]:
    """The types that a fact holds for in a version, or in some one. Raises KeyError for a fact that no row has."""
    rows = facts()[program, fact]
    return frozenset().union(*(row.types for row in rows if version is None or row.reaches(version)))


def fact_of(program: str, fact: str, model_type: object, version: Version = LATEST) -> TypeFact | None:
    """The first row that holds, None where none does. Raises KeyError for a fact that no row has."""
    return next((row for row in facts()[program, fact] if row.holds(str(model_type), version)), None)


def fact_value(program: str, fact: str, model_type: object, version: Version = LATEST) -> str | None:
    """The value of the first row that holds, None where none does. Raises KeyError for a fact that no row has."""
    row = fact_of(program, fact, model_type, version)
    return None if row is None else row.value
