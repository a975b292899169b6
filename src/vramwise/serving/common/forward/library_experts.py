"""Routed NVFP4 experts in FlashInfer's kernels of TensorRT-LLM, which make their buffers for each call and let them go.

Read in FlashInfer 0.6.1, 0.6.6 and fb28d7242b35, csrc/trtllm_fused_moe_kernel_launcher.cu (FP4BlockScaleLauncher) and
getMaxNumCtasInBatchDim.
"""

from __future__ import annotations

from vramwise.models.allocator import block_bytes

TILES = 8, 256  # the fewest and most rows that a kernel takes at once: powers of two
GROUP = 16  # values that share a scale of one byte


def padded_rows(tokens: int, chosen: int, experts: int, *, pads: bool = True) -> int:
    """Rows of the buffers: whole tiles, as many as the worst choice of experts fills.

    The tile is that which is taken before any were timed, as in a profile run: half the power of two over an expert's
    mean (computeSelectedTileN, of which the first). Not `pads`: the smallest tile.
    """
    rows = tokens * chosen
    mean = min(max(1 << (rows // max(experts, 1)).bit_length(), TILES[0]), TILES[1])
    tile = max(TILES[0], mean // 2) if pads else TILES[0]
    filled = min(experts, rows)
    return (filled + (rows - filled) // tile) * tile


def library_expert_bytes(
    tokens: int, sizes: tuple[int, int, int, int], experts: int, element_bytes: int, *, pads: bool
) -> int:
    """What one call makes: its input and the rows between both products in 4 bits, what the second makes in 16."""
    chosen, inner, _, hidden = sizes
    rows = padded_rows(tokens, chosen, experts, pads=pads)
    return _four_bits(tokens, hidden) + _four_bits(rows, inner) + block_bytes(rows * hidden * element_bytes)


def _four_bits(rows: int, width: int) -> int:
    return block_bytes(rows * width // 2) + block_bytes(rows * width // GROUP)
