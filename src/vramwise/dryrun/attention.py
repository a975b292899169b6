"""Which SDPA kernel a card runs, and a call of it: a build without CUDA has no way to choose and takes `math`.

ATen/native/transformers/cuda/sdp_utils.cpp (torch 2.13): flash for 16 bit without a mask, equal head sizes up to 256
(padded to whole 8); else the memory-efficient kernel, which wants equal numbers of heads and takes a mask, expanded and
its last dimension padded to whole 8; else math. From torch 2.11 on compute capability 9.0 and 10.0 cuDNN's kernel comes
first where flash would: it keeps the same tensors (output, one fp32 number a row, two seeds).
"""

from __future__ import annotations

from typing import Any, Final

from vramwise.measure.libraries import library

_LARGEST_HEAD: Final = 256
_MULTIPLE: Final = 8


def redirected(capability: tuple[int, int]) -> Any:
    """`aten::scaled_dot_product_attention` for CUDA tensors, as the card's own choice has it."""
    torch = library("torch")
    aten = torch.ops.aten

    def attention(
        query: Any, key: Any, value: Any, attn_mask: object = None, dropout_p: float = 0.0, is_causal: bool = False, *,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        kernel = chosen(query, key, value, attn_mask, capability, grouped=enable_gqa)
        if kernel == "flash":
            size = query.shape[-1]
            wanted = -size % _MULTIPLE
            if wanted:
                scale = size**-0.5 if scale is None else scale
                query, key, value = (torch.nn.functional.pad(t, (0, wanted)) for t in (query, key, value))
            out = aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)
            return out[0][..., :size] if wanted else out[0]
        if kernel == "efficient":
            mask = None if attn_mask is None else _as_bias(attn_mask, query, key)
            needs = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
            return aten._scaled_dot_product_efficient_attention(
                query, key, value, mask, needs, dropout_p, is_causal, scale=scale
            )[0]
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]

    return attention


def chosen(query: Any, key: Any, value: Any, mask: object, capability: tuple[int, int], *, grouped: bool) -> str:
    """flash, efficient or math."""
    torch = library("torch")
    backends = torch.backends.cuda
    is_short = query.dtype in (torch.float16, torch.bfloat16)
    heads_agree = query.shape[1] == key.shape[1] if query.dim() == 4 else False
    if query.dim() != 4:
        return "math"
    sizes = query.shape[-1], value.shape[-1]
    if (
        mask is None and is_short and sizes[0] == sizes[1] <= _LARGEST_HEAD and capability >= (8, 0)
        and backends.flash_sdp_enabled() and (heads_agree or grouped)
    ):  # fmt: skip
        return "flash"
    return "efficient" if heads_agree and backends.mem_efficient_sdp_enabled() else "math"


def _as_bias(mask: Any, query: Any, key: Any) -> Any:
    """A mask as the efficient kernel takes it: numbers, its rows padded to whole 8, expanded to every head."""
    torch = library("torch")
    if mask.dtype == torch.bool:
        numbers = torch.zeros_like(mask, dtype=query.dtype)
        mask = numbers.masked_fill_(mask.logical_not(), float("-inf"))
    columns = mask.shape[-1]
    if columns % _MULTIPLE:
        mask = torch.nn.functional.pad(mask, (0, -columns % _MULTIPLE))[..., :columns]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
