"""The least that a model takes on any machine."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.records import record

FILE_TYPES = ("BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M")
"""llama.cpp's usual file types, the best first."""


@record
class Bounds:
    """What a model takes on any machine, so that one that is too small is seen without its description.

    `published_bytes`: its weights as they were published in `published_format`, 0 where that is plain 16 or 32 bits.
    `file_bytes`: of a file of each usual type what lies on the card. `least_cache_bytes`: of the shortest context.
    """

    num_parameters: int
    makes_text: bool
    published_format: str
    published_bytes: int
    least_cache_bytes: int
    file_bytes: Mapping[str, int]
