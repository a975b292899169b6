"""What builds an engine unasked: sequences and tokens of a step, by version.

docs/source/release-notes.md: 256 sequences and 8,192 tokens since 0.11, 2,048 sequences since 0.14. Before 0.11 an
engine takes all inputs at once where max_num_tokens is not stated (docs/source/reference/memory.md);
examples/llama/build.py, which came before trtllm-build (0.8), has 8 sequences and inputs of 2,048 tokens.
"""

from __future__ import annotations

from vramwise.serving.common.versions import Version

TOKENS_BOUND_VERSION, TRTLLM_BUILD_VERSION = (0, 11), (0, 8)
DEFAULT_TOKENS = 8192
_BATCHES: tuple[tuple[Version, int], ...] = (((0, 14), 2048), ((0, 11), 256), (TRTLLM_BUILD_VERSION, 1), ((0,), 8))
_INPUT_TOKENS, _SCRIPTS_INPUT_TOKENS = 1024, 2048


def default_batch(version: Version) -> int:
    """Sequences of a step."""
    return next(batch for since, batch in _BATCHES if version >= since)


def default_tokens(version: Version, sequences: int, length: int) -> int:
    """Tokens of a step."""
    if version >= TOKENS_BOUND_VERSION:
        return DEFAULT_TOKENS
    inputs = _INPUT_TOKENS if version >= TRTLLM_BUILD_VERSION else _SCRIPTS_INPUT_TOKENS
    return sequences * min(inputs, length)
