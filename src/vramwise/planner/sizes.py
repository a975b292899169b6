"""Parameters of the catalog's models, known before a model is described, so that hopeless ones cost nothing.

sizes.csv is written by tools/build_sizes.py. A row holds for the line of the catalog that it was made from; a model
without such a row is described when its size is asked for.
"""

from __future__ import annotations

from functools import cache
from zlib import crc32

from vramwise.errors import VramwiseError
from vramwise.sources.catalog import entry, line_of
from vramwise.tables import table


@cache
def _rows() -> dict[str, tuple[int, int]]:
    return {row["id"]: (int(row["line"], 16), row.whole("num_parameters")) for row in table(__file__, "sizes")}


def line_digest(model_id: str) -> int:
    """What tells whether a catalog's line, and that which it is like, are those that a size was worked out from."""
    like = entry(model_id).like
    return crc32(line_of(model_id), line_digest(like) if like else 0)


@cache
def num_parameters_of(model_id: str) -> int | None:
    """Parameters of a model of the catalog; None where no family describes it."""
    digest, size = _rows().get(model_id, (-1, 0))
    if digest == line_digest(model_id):
        return size
    from vramwise.estimation import described_model

    try:
        return described_model(model_id)[1].num_parameters
    except VramwiseError:
        return None
