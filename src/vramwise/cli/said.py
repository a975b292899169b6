"""Numbers as people say them: a context of 32k is 32,768 tokens."""

from __future__ import annotations

from vramwise.units import KIB, MIB

LENGTHS = frozenset({
    "sequence_length", "decoder_sequence_length", "max_model_len", "max_num_batched_tokens", "chunked_prefill_size",
    "max_total_tokens", "n_ctx", "max_kv_size", "prefill_step_size", "prompt_tokens", "new_tokens",
})  # fmt: skip
"""Keys that count tokens: only of these is a k 1,024 without doubt; a file writes the number out."""
_MOST_DIGITS = 12
_THOUSANDS = {"k": KIB, "m": MIB}


def said_number(text: str) -> int | None:
    """`4096`, `4k`, `1M` as a whole number; None for what is none."""
    unit = _THOUSANDS.get(text[-1:].lower(), 1)
    digits = text[:-1] if unit != 1 else text
    return int(digits) * unit if digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS else None
