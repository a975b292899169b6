"""Models that belong together by their names: `Meta-Llama-3.1-8B` and `Llama-3.3-70B-Instruct` are llamas."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

from vramwise.errors import UnknownNameError, nearest
from vramwise.planner.bounds import Bounds
from vramwise.planner.sizes import known_bounds, num_parameters_of
from vramwise.planner.ways import Question
from vramwise.sources.catalog import entry, names
from vramwise.sources.known_names import words_of

LEAST_BYTES_PER_PARAMETER = 0.25
"""Of the narrowest file types, with room to spare: a model above it by this fits nothing."""
ABOUT_ONE_SIZE = 1.25
"""How many times as many parameters are no other size."""


def family_of(model_id: str) -> str:
    """The first word of a model's name: `llama`, `qwen`, `deepseek`."""
    return next(iter(words_of(model_id.rpartition("/")[2])), "")


def tuned_from(model_id: str) -> str | None:
    """The model of another maker that has the same sizes and stands for this one; None where it is nobody's tune."""
    like = entry(model_id).like
    if like is None:
        return None
    return like if like.partition("/")[0] != model_id.partition("/")[0] else tuned_from(like)


def named(family: str) -> tuple[str, ...]:
    """Ids of the catalog whose names begin with the words of `family`."""
    asked = words_of(family)
    return tuple(one for one in names().ids if asked and words_of(one.rpartition("/")[2])[: len(asked)] == asked)


def members(family: str) -> tuple[str, ...]:
    """Ids of the catalog whose names begin with the words of `family`, else those of the type.

    `qwen` is every Qwen, `qwen3` those of the third generation, `qwen3_moe` a type. Raises UnknownNameError.
    """
    found = named(family) or tuple(one for one in names().ids if entry(one).model_type == family)
    if not found:
        known = dict.fromkeys([*map(family_of, names().ids), *(entry(one).model_type for one in names().ids)])
        raise UnknownNameError("family", family, nearest(family, filter(None, known)), "vramwise models lists all")
    return found


def smaller_ones(question: Question) -> Iterator[tuple[str, Bounds]]:
    """Models of the same family with fewer parameters that may fit, one of each architecture, the largest first; of
    about one size the maker's own. A word alone makes no family: gpt-j is no smaller gpt-oss."""
    own, room = question.model, question.machine.room_bytes
    most = min(own.num_parameters - 1, int(room / LEAST_BYTES_PER_PARAMETER))
    same_type = {one for one in names().own if entry(one).model_type == own.config.model_type}
    ids = set(named(family_of(own.id))).intersection(names().own) or same_type
    makers = {one for one in ids if one.partition("/")[0] == own.id.partition("/")[0]}
    sized = [(num_parameters_of(one) or 0, one) for one in makers | ids & same_type]
    for size, one in sorted(sized, key=lambda pair: (_about(pair[0]), pair[1] in makers, *pair), reverse=True):
        if 0 < size <= most and (bounds := known_bounds(one)) is not None:
            yield one, bounds


def _about(size: int) -> int:
    """The same for sizes that are about one."""
    return round(log(max(1, size), ABOUT_ONE_SIZE))
