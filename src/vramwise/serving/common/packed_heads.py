"""Caches whose heads are packed: codes of a few bits with scales beside them, key and value in one slot.

Source: vLLM 0.33.0 v1/attention/backends/triton_attn.py customize_spec (one fp32 scale for each token's key and value
of a head; 0.20 to 0.29: the same bytes in kv_cache_interface.py), utils/torch_utils.py nvfp4_kv_cache_full_dim,
model_executor/layers/quantization/turboquant/config.py (slot_size_aligned, from_cache_dtype).
"""

from __future__ import annotations

from vramwise.records import record

_SCALE_BYTES = 4
_BLOCK = 16  # values of NVFP4 that share an fp8 scale


@record
class _Turbo:
    """Bits of a key's and of a value's code; keys of 8 bits are fp8, without a norm beside them."""

    key_bits: int
    value_bits: int


_TURBO = {
    "turboquant_k8v4": _Turbo(8, 4),
    "turboquant_4bit_nc": _Turbo(4, 4),
    "turboquant_k3v4_nc": _Turbo(3, 4),
    "turboquant_3bit_nc": _Turbo(3, 3),
}
_BITS = {"int8_per_token_head": 8, "fp8_per_token_head": 8, "int4_per_token_head": 4}
_BLOCKS = ("nvfp4", "nvfp4_4over6")
_NORM_BYTES, _RANGE_BYTES = 2, 4  # a key's norm; a value's scale and zero, fp16 all


def is_packed(cache_dtype: str) -> bool:
    """Whether a cache of that dtype has more in a head than its elements."""
    return cache_dtype in _TURBO or cache_dtype in _BITS or cache_dtype in _BLOCKS


def packed_element_bytes(cache_dtype: str) -> float:
    """Bytes of a value where heads are not laid out apart: NVFP4's with its part of a scale, as TensorRT-LLM counts
    them (_torch/pyexecutor/resource_manager.py get_cache_bytes_per_token); else of the bytes that the tensor has."""
    return 0.5 + 1 / _BLOCK if cache_dtype in _BLOCKS else 1


def packed_head_bytes(cache_dtype: str, key_dim: int, value_dim: int) -> int | None:
    """Bytes that a token takes in one head, None where they are those of its elements."""
    if cache_dtype in _BITS:
        return (key_dim + value_dim) * _BITS[cache_dtype] // 8 + 2 * _SCALE_BYTES
    if cache_dtype in _BLOCKS:
        return sum(dim // 2 + dim // _BLOCK for dim in (key_dim, value_dim))
    turbo = _TURBO.get(cache_dtype)
    if turbo is None:
        return None
    key = key_dim if turbo.key_bits == 8 else -(-key_dim * turbo.key_bits // 8) + _NORM_BYTES
    slot = key + -(-key_dim * turbo.value_bits // 8) + _RANGE_BYTES
    return slot + slot % 2


OUTER_LAYERS = 2
"""Layers at each end that a TurboQuant cache leaves in the model's dtype, but in hybrids (get_boundary_skip_layers)."""


def keeps_outer_layers(cache_dtype: str) -> bool:
    """Whether a cache of that dtype leaves the outer layers in the model's."""
    return cache_dtype in _TURBO
