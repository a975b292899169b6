"""Block types, those of ik_llama.cpp included, which ggml-org's gguf package does not know.

Source of the latter: ikawrakow/ik_llama.cpp ggml/src/ggml-common.h (blocks of 256 weights; row scales of the _KS and
_KT types are not counted: 2 or 4 bytes a row).
"""

from __future__ import annotations

from functools import lru_cache

from vramwise.formats import GgufType, gguf_type

_IK_BYTES = {
    "IQ6_K": 212, "IQ5_K": 176, "IQ5_KS": 168, "IQ4_K": 144, "IQ4_KS": 136, "IQ4_KSS": 128, "IQ4_KT": 128,
    "IQ3_K": 110, "IQ3_KS": 102, "IQ3_KT": 100, "IQ2_K": 76, "IQ2_KS": 70, "IQ2_KL": 86, "IQ2_KT": 68,
    "IQ1_KT": 56, "IQ1_BN": 52, "IQ2_BN": 64,
}  # fmt: skip


@lru_cache(maxsize=128)
def tensor_type(name: str) -> GgufType:
    """A tensor type by name. Raises UnknownNameError."""
    if name == "Q6_0":
        return GgufType(name, 32, 26)
    if name == "Q8_KV":  # ik_llama.cpp: 8 bits with one fp32 scale a row, here without the scale
        return GgufType(name, 1, 1)
    size = _IK_BYTES.get(name)
    return gguf_type(name) if size is None else GgufType(name, 256, size)


# What a K or I type becomes where a row is no multiple of 256 (llama-quant.cpp tensor_type_fallback).
FALLBACK = {
    "Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "TQ1_0": "Q4_0", "TQ2_0": "Q4_0",
}  # fmt: skip


def fitting(name: str, columns: int) -> GgufType:
    """The type itself, or its fallback where `columns` do not divide by its block; F16 as the last resort."""
    kind = tensor_type(name)
    if columns % kind.block_size == 0:
        return kind
    other = tensor_type(FALLBACK.get(name, "IQ4_NL" if name.startswith("IQ") else "F16"))
    return other if columns % other.block_size == 0 else tensor_type("F16")
