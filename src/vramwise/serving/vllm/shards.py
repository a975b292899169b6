"""What vLLM asks of a rank's share of a quantized layer, by version.

Read in the wheels 0.6.6 to 0.33.0: model_executor/layers/quantization/fp8.py and utils/fp8_utils.py
(validate_fp8_block_shape, validate_fp8_block_shape_moe), fused_moe/oracle/fp8.py (refine_fp8_moe_block_shape),
layers/linear.py (_maybe_allow_fp8_block_shape_mismatch), awq.py (auto_awq.py), compressed_tensors_wNa16.py,
gptq_marlin.py (auto_gptq.py) and utils/marlin_utils.py, moe_wna16.py, modelopt.py.
"""

from __future__ import annotations

from math import gcd

from vramwise.formats import QuantFormat
from vramwise.serving.common.shard_rules import (
    FP8,
    Case,
    Problem,
    awq_rows,
    column_blocks,
    expert_blocks,
    is_cut_by_rows,
    row_blocks,
    row_groups,
    where_groups_are_asked,
)
from vramwise.serving.common.shards import Shard

LAST_FUSED_FREE = (0, 10)  # the last of fused layers that are not cut need not fill its block (0.9.2 no, 0.10.0 yes)
FUSED_FREE = (0, 14)  # fused columns need not fill blocks at all (0.13.0 no, 0.14.1 yes)
REFINED_BLOCKS = (0, 29)  # blocks of experts are cut to what the shard allows (0.28.0 no, 0.29.0 yes)
LEAST_REFINED = 32
FP8_KERNELS = 8.9  # platforms/cuda.py supports_fp8: Triton's block kernels, the only ones with refined blocks
CHECKED_EXPERT_GROUPS = (0, 24)  # compressed_tensors_moe_wna16.py raises (0.19.0 no, 0.24.0 yes)
PADDED_TILES = (0, 24)  # Marlin pads layers to its tiles (kernels/linear/mixed_precision/marlin.py; 0.23.0 no)
MARLIN_ROWS, MARLIN_COLUMNS = 64, 128
MACHETE_ROWS, MACHETE_COLUMNS = 128, 64  # utils/machete_utils.py MACHETE_PREPACKED_BLOCK_SHAPE
LEAST_EXPERT_GROUP = 32  # moe_wna16.py halves the group until it divides, and stops here
NVFP4_GROUP, MXFP8_GROUP = 16, 32
AMPERE, HOPPER = 8.0, 9.0


def quantized(shard: Shard, format: QuantFormat, case: Case) -> Problem | None:
    """What a format forbids this shard."""
    if format.layout == "fp8" and format.weight_block_size is not None:
        return _blocks(shard, format.weight_block_size, case)
    if format.layout in ("awq", "gptq", "marlin", "packed"):
        return _expert_groups(shard, format, case) if shard.kind == "experts" else _groups(shard, format, case)
    if format.layout in ("nvfp4", "mxfp8"):
        return _small_groups(shard, format, case)
    return None


def refined_block(shard: Shard, format: QuantFormat | None) -> int | None:
    """The block to which experts' are cut from REFINED_BLOCKS on; None where they stay as they are."""
    if format is None or format.weight_block_size is None or shard.kind != "experts":
        return None
    size = gcd(*format.weight_block_size, shard.inputs, shard.outputs[0])
    return size if any(shard.inputs % side for side in format.weight_block_size) else None


def _blocks(shard: Shard, block: tuple[int, int], case: Case) -> Problem | None:
    """Rows and columns of a layer's share fill whole blocks; layers smaller than one block are left in 16 bits."""
    if shard.kind == "experts":
        return _expert_blocks(shard, block, case)
    rows, columns = block
    if shard.kind == "row":
        return row_blocks(shard, columns, case)
    if not is_cut_by_rows(shard, rows, case) or (shard.is_fused and case.version >= FUSED_FREE):
        return None
    sizes = list(zip(shard.outputs, shard.labels, strict=True))
    if shard.is_fused and case.ranks == 1 and case.version >= LAST_FUSED_FREE:
        sizes = sizes[:-1]
    return column_blocks(sizes, rows)


def _expert_blocks(shard: Shard, block: tuple[int, int], case: Case) -> Problem | None:
    if case.method != "fp8" or case.version < REFINED_BLOCKS:
        return expert_blocks(shard, block, case)
    old_card = case.capability is not None and case.capability < FP8_KERNELS
    if gcd(*block, shard.inputs, shard.outputs[0]) >= LEAST_REFINED and not old_card:
        return None
    where = "fused_moe/oracle/fp8.py, no kernel takes smaller blocks on this card" if old_card else FP8
    return expert_blocks(shard, block, case, where)


def _groups(shard: Shard, format: QuantFormat, case: Case) -> Problem | None:
    refused = not _unasked(shard, format, case)
    problem = row_groups(shard, format.group_size, case, where_groups_are_asked(format), refused=refused)
    if problem is None and format.layout == "awq":
        problem = awq_rows(shard)
    return problem or _tiles(shard, format, case)


def _unasked(shard: Shard, format: QuantFormat, case: Case) -> bool:
    """Kernels for GPTQ that do not ask how ranks share the groups: ExLlama's in fp16, Machete's on Hopper."""
    if format.layout not in ("gptq", "marlin"):
        return False
    machete = shard.inputs % MACHETE_COLUMNS == 0 and sum(shard.outputs) % MACHETE_ROWS == 0
    return case.dtype == "fp16" or (case.capability == HOPPER and machete)


def _tiles(shard: Shard, format: QuantFormat, case: Case) -> Problem | None:
    """Marlin's tiles: AWQ falls back to its own kernels, fp16 to ExLlama's, Hopper has Machete's, 0.24 on pads."""
    if format.layout == "awq" or format.bits != 4 or case.version >= PADDED_TILES or case.dtype == "fp16":
        return None
    if case.capability is None or case.capability == HOPPER or case.capability < AMPERE:
        return None
    rows = sum(shard.outputs)
    if rows % MARLIN_ROWS == 0 and shard.inputs % MARLIN_COLUMNS == 0:
        return None
    held = f"a rank holds {rows:,} × {shard.inputs:,} of {shard.label}"
    what = f"{held}, not whole tiles of {MARLIN_ROWS} × {MARLIN_COLUMNS}"
    return Problem(what, "utils/marlin_utils.py verify_marlin_supports_shape", False)


def _expert_groups(shard: Shard, format: QuantFormat, case: Case) -> Problem | None:
    group, hidden = format.group_size, shard.outputs[0]
    if group <= 0 or (shard.inputs % group == 0 and hidden % group == 0):
        return None
    held = f"a rank holds {shard.inputs:,} of an expert's {shard.whole_inputs:,} intermediate values, which groups of"
    if format.layout == "packed":
        if case.version < CHECKED_EXPERT_GROUPS:
            return None
        return Problem(f"{held} {group} do not divide", "compressed_tensors_moe_wna16.py", True)
    while group >= LEAST_EXPERT_GROUP and (shard.inputs % group or hidden % group):
        group //= 2
    if group >= LEAST_EXPERT_GROUP:
        return None
    return Problem(f"{held} {LEAST_EXPERT_GROUP} or more do not divide", "quantization/moe_wna16.py", True)


def _small_groups(shard: Shard, format: QuantFormat, case: Case) -> Problem | None:
    """modelopt's checkpoints; those of compressed-tensors are not asked, nor are NVFP4's experts."""
    group = NVFP4_GROUP if format.layout == "nvfp4" else MXFP8_GROUP
    if case.method != "modelopt" or shard.inputs % group == 0:
        return None
    if shard.kind == "experts" and format.layout == "nvfp4":
        return None
    held = f"{shard.inputs:,} of {shard.whole_inputs:,} columns of {shard.label}"
    what = f"a rank holds {held}, which groups of {group} do not divide"
    return Problem(what, "layers/quantization/modelopt.py", shard.kind == "experts")
