"""Parameters, lengths and least bytes of the catalog's models, known before one is described: what has no room costs
nothing.

sizes.csv is written by tools/build_sizes.py. A row holds for the line of the catalog that it was made from; a model
without such a row is described when its size is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from zlib import crc32

from vramwise.errors import VramwiseError
from vramwise.models.lengths import model_length
from vramwise.planner.bounds import EIGHT_BIT, FILE_TYPES, WIDE, Bounds
from vramwise.records import record
from vramwise.sources.catalog import lines
from vramwise.tables import Row, table

_ONE_SIZE = 5 / 6
"""A model of this share of the largest of a size, or more, is of that size: 65 and 70 billion, 7 and 8."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@record
class Known:
    """What a row says of a model, if it was made from the `line` that the catalog has."""

    line: int
    num_parameters: int
    length: int


@cache
def _rows() -> dict[str, Row]:
    return {row["id"]: row for row in table(__file__, "sizes")}


def _row(model_id: str) -> Row | None:
    """The row of a model that was made from the catalog's line."""
    row = _rows().get(model_id)
    return row if row is not None and int(row["line"], 16) == line_digest(model_id) else None


@cache
def line_digest(model_id: str) -> int:
    """What tells whether a catalog's line, and that which it is like, are those that a size was worked out from."""
    line, like = lines()[model_id]
    return crc32(line, line_digest(like) if like else 0)


@cache
def _known(model_id: str) -> Known | None:
    digest, row = line_digest(model_id), _row(model_id)
    if row is not None:
        return Known(digest, row.whole("num_parameters"), row.whole("length"))
    from vramwise.estimation import described_model

    try:
        model = described_model(model_id)[1]
    except VramwiseError:
        return None
    return Known(digest, model.num_parameters, model_length(model))


@cache
def known_bounds(model_id: str) -> Bounds | None:
    """The least that a model of the catalog takes; None where no family describes it."""
    row = _row(model_id)
    if row is not None:
        return Bounds(
            num_parameters=row.whole("num_parameters"),
            makes_text=bool(row["makes_text"]),
            published_format=row["published_format"],
            pooled_bytes={
                name: row.whole(column)
                for name, column in ((row["published_format"] or WIDE, "pooled_bytes"), (EIGHT_BIT, "fp8_bytes"))
                if row[column]
            },
            least_cache_bytes=row.whole("least_cache_bytes"),
            file_bytes={name: row.whole(name) for name in FILE_TYPES} if row["makes_text"] else {},
        )
    from vramwise.estimation import described_model
    from vramwise.planner.running import bounds_of

    try:
        return bounds_of(described_model(model_id)[1])
    except VramwiseError:
        return None


def num_parameters_of(model_id: str) -> int | None:
    """Parameters of a model of the catalog; None where no family describes it."""
    found = _known(model_id)
    return None if found is None else found.num_parameters


def by_size(ids: Iterable[str]) -> list[str]:
    """Models that are described, the largest first; of those of one size what reads the longest text.

    The catalog has no dates: people want the newer of two models that differ in size by little, and newer ones read
    longer texts. Of one family it is the one whose name counts furthest (3.3 before 3.1).
    """
    sized = [(found, one) for one in ids if (found := _known(one)) is not None]
    ordered: list[str] = []
    alike: list[tuple[Known, str]] = []
    for found, one in sorted(sized, key=lambda one: -one[0].num_parameters):
        if alike and found.num_parameters < _ONE_SIZE * alike[0][0].num_parameters:
            ordered += _newest_first(alike)
            alike = []
        alike.append((found, one))
    return ordered + _newest_first(alike)


def _newest_first(alike: list[tuple[Known, str]]) -> list[str]:
    def order(one: tuple[Known, str]) -> tuple[int, int, tuple[float, ...]]:
        return -one[0].length, -one[0].num_parameters, tuple(-number for number in _numbers(one[1]))

    return [name for _, name in sorted(alike, key=order)]


def _numbers(model_id: str) -> list[float]:
    """The numbers of a name in order, such as 3.3 and 70."""
    return [float(text) for text in _NUMBER.findall(model_id.rpartition("/")[2])]
