"""Tokens that a method of speculative decoding drafts at once where nobody says how many.

llama.cpp common/speculative.cpp common_speculative_n_max and common/common.h, as of September 2026.
"""

from __future__ import annotations

from vramwise.scenario.definition import ServeSettings

_UNASKED = 3  # common_params_speculative_draft n_max
_BY_METHOD = {"ngram-simple": 48, "ngram-map-k": 48, "ngram-map-k4v": 48, "ngram-mod": 64, "ngram-cache": 8}


def drafted_tokens(settings: ServeSettings) -> int:
    """The most drafted tokens of a sequence in a batch; 0 without drafts."""
    told = settings.speculative
    if not told:
        return 0
    stated = told.get("num_tokens")
    return int(stated) if stated is not None else _BY_METHOD.get(str(told.get("method")), _UNASKED)


def drafts_alone(settings: ServeSettings) -> bool:
    """Whether drafts come from the text that there is, without a model of their own."""
    told = settings.speculative or {}
    return "ngram" in str(told.get("method")) and not told.get("model")
