"""The least that a model takes on any machine."""

from __future__ import annotations

from collections.abc import Mapping

from vramwise.records import record

WIDE, EIGHT_BIT = "16 bit", "fp8"
"""Precisions in which vLLM holds weights that were published in 16 or 32 bits, as it calls them."""
FILE_TYPES = ("BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M")
"""llama.cpp's usual file types, the best first."""


@record
class Bounds:
    """What a model takes on any machine, so that one that is too small is seen without its description.

    `published_format`: empty for plain 16 or 32 bits. `pooled_bytes`: its weights in vLLM on one card, by what that
    calls the precision: those that it takes of `WIDE` and `EIGHT_BIT`, else the published format. `file_bytes`: of a
    file of each usual type what lies on the card. `least_cache_bytes`: of the shortest context.
    """

    num_parameters: int
    makes_text: bool
    published_format: str
    pooled_bytes: Mapping[str, int]
    least_cache_bytes: int
    file_bytes: Mapping[str, int]
