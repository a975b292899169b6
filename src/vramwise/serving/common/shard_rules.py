"""Whether a rank's share of a quantized layer keeps whole blocks and groups, by engine and version.

Sources, read in the wheels. vLLM 0.6.6 to 0.33.0: model_executor/layers/quantization/fp8.py and utils/fp8_utils.py
(validate_fp8_block_shape, validate_fp8_block_shape_moe), fused_moe/oracle/fp8.py (refine_fp8_moe_block_shape),
layers/linear.py (_maybe_allow_fp8_block_shape_mismatch), awq.py (auto_awq.py), compressed_tensors_wNa16.py,
gptq_marlin.py (auto_gptq.py) and utils/marlin_utils.py, moe_wna16.py, modelopt.py. SGLang 0.4.6 to 0.5.23:
layers/quantization/fp8.py, awq.py, gptq.py. text-generation-inference 3.3.7: utils/weights.py get_sharded.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from vramwise.formats import QuantFormat
from vramwise.serving.common.shards import Shard
from vramwise.serving.common.versions import Version

LAST_FUSED_FREE = (0, 10)  # the last of fused layers that are not cut need not fill its block (0.9.2 no, 0.10.0 yes)
FUSED_FREE = (0, 14)  # fused columns need not fill blocks at all (0.13.0 no, 0.14.1 yes)
SGLANG_UNCHECKED = frozenset({"mimo_v2", "mimo_v2_flash"})  # models/NAME.py: skip_block_quant_check
REFINED_BLOCKS = (0, 29)  # blocks of experts are cut to what the shard allows (0.28.0 no, 0.29.0 yes)
LEAST_REFINED = 32
FP8_KERNELS = 8.9  # platforms/cuda.py supports_fp8: Triton's block kernels, the only ones with refined blocks
CHECKED_EXPERT_GROUPS = (0, 24)  # compressed_tensors_moe_wna16.py raises (0.19.0 no, 0.24.0 yes)
PADDED_TILES = (0, 24)  # Marlin pads layers to its tiles (kernels/linear/mixed_precision/marlin.py; 0.23.0 no)
MARLIN_ROWS, MARLIN_COLUMNS = 64, 128
MACHETE_ROWS, MACHETE_COLUMNS = 128, 64  # utils/machete_utils.py MACHETE_PREPACKED_BLOCK_SHAPE
AWQ_PACKED = 8  # 4-bit values in an int32
LEAST_EXPERT_GROUP = 32  # moe_wna16.py halves the group until it divides, and stops here
NVFP4_GROUP, MXFP8_GROUP = 16, 32
_FP8 = "layers/quantization/fp8.py"


@dataclass(frozen=True, slots=True)
class Case:
    """What the rules hang on besides the shard: `ranks` share a layer, `method` is the checkpoint's quant_method."""

    engine: str
    version: Version
    ranks: int
    expert_ranks: int
    dtype: str
    capability: float | None
    method: str
    model_type: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a shard does not work: `what` happens, the engine's `rule` and where it stands.

    `of_experts`: whole experts would do; `of_format`: it hangs on the checkpoint's format; `refused`: the engine asks,
    else it starts and computes with the scales of other groups.
    """

    what: str
    rule: str
    of_experts: bool
    of_format: bool = True
    refused: bool = True


def uneven(shard: Shard, case: Case) -> Problem | None:
    """Every engine shares rows and columns evenly (vLLM distributed/utils.py divide; fused_moe asserts the same)."""
    if shard.even:
        return None
    ranks = case.expert_ranks if shard.kind == "experts" else case.ranks
    size = shard.whole_inputs if shard.kind != "column" else shard.parameter.shape[0]
    what = f"{ranks} ranks do not share the {size:,} {_axis(shard)} of {shard.label} evenly"
    return Problem(what, "layers are cut evenly", shard.kind == "experts", of_format=False)


def _axis(shard: Shard) -> str:
    return "rows" if shard.kind == "column" else "columns" if shard.kind == "row" else "intermediate values"


def quantized(shard: Shard, rule: QuantFormat, case: Case) -> Problem | None:
    """What a format forbids this shard."""
    if rule.layout == "fp8" and rule.weight_block_size is not None:
        return _blocks(shard, rule.weight_block_size, case)
    if rule.layout in ("awq", "gptq", "marlin", "packed"):
        return _groups(shard, rule, case)
    if rule.layout in ("nvfp4", "mxfp8"):
        return _small_groups(shard, rule, case)
    return None


def _blocks(shard: Shard, block: tuple[int, int], case: Case) -> Problem | None:
    """Rows and columns of a layer's share fill whole blocks; layers smaller than one block are left in 16 bits."""
    if shard.kind == "experts":
        return _expert_blocks(shard, block, case)
    rows, columns = block
    if shard.kind == "row":
        if case.ranks == 1 or shard.inputs % columns == 0 or shard.whole_inputs < columns:
            return None
        return _straddles(shard.label, f"{shard.inputs:,} of {shard.whole_inputs:,} columns", columns)
    if not (shard.is_fused or case.ranks > 1) or shard.parameter.shape[0] < rows:
        return None
    sizes = list(zip(shard.outputs, shard.labels, strict=True))
    if shard.is_fused and case.engine == "vllm":
        if case.version >= FUSED_FREE:
            return None
        if case.ranks == 1 and case.version >= LAST_FUSED_FREE:
            sizes = sizes[:-1]
    if shard.is_fused and case.engine == "sglang" and case.model_type in SGLANG_UNCHECKED:
        return None
    bad = next(((size, label) for size, label in sizes if size % rows), None)
    return None if bad is None else _straddles(bad[1], f"{bad[0]:,} rows", rows)


def _expert_blocks(shard: Shard, block: tuple[int, int], case: Case) -> Problem | None:
    """The gate's and up's rows, and the down projection's columns where ranks share experts, fill whole blocks."""
    rows, columns = block
    size = shard.inputs
    if size % rows == 0 and (case.ranks == 1 or size % columns == 0):
        return None
    bad = rows if size % rows else columns
    held = f"a rank holds {size:,} of an expert's {shard.whole_inputs:,} rows"
    if case.engine == "vllm" and case.method == "fp8" and case.version >= REFINED_BLOCKS:
        refined = gcd(rows, columns, size, shard.outputs[0])
        old_card = case.capability is not None and case.capability < FP8_KERNELS
        if refined >= LEAST_REFINED and not old_card:
            return None
        where = "fused_moe/oracle/fp8.py, no kernel takes smaller blocks on this card" if old_card else _FP8
        return Problem(f"{held}, which blocks of {bad} do not divide", where, True)
    return Problem(f"{held}, which blocks of {bad} do not divide", _FP8, True)


def refined_block(shard: Shard, rule: QuantFormat | None) -> int | None:
    """The block to which vLLM cuts the experts' from REFINED_BLOCKS on; None where they stay as they are."""
    if rule is None or rule.weight_block_size is None or shard.kind != "experts":
        return None
    size = gcd(*rule.weight_block_size, shard.inputs, shard.outputs[0])
    return size if any(shard.inputs % side for side in rule.weight_block_size) else None


def _straddles(label: str, held: str, block: int) -> Problem:
    return Problem(f"a rank holds {held} of {label}, which blocks of {block} do not divide", _FP8, False)


def _groups(shard: Shard, rule: QuantFormat, case: Case) -> Problem | None:
    group = rule.group_size
    if shard.kind == "experts":
        return _expert_groups(shard, rule, case)
    cut = shard.kind == "row" and case.ranks > 1
    if cut and 0 < group < shard.whole_inputs and shard.inputs % group:
        known = {"awq": "quantization/awq.py", "packed": "compressed_tensors_wNa16.py"}
        held = f"{shard.inputs:,} of {shard.whole_inputs:,} columns of {shard.label}"
        what = f"a rank holds {held}, which groups of {group} do not divide"
        return Problem(what, known.get(rule.layout, "gptq_marlin.py"), False, refused=not _unasked(shard, rule, case))
    rows = sum(shard.outputs)
    if rule.layout == "awq" and rows % AWQ_PACKED:
        return Problem(
            f"a rank holds {rows:,} rows of {shard.label}, not a multiple of 8", "quantization/awq.py", False
        )
    return _tiles(shard, rule, case) if case.engine == "vllm" else None


def _unasked(shard: Shard, rule: QuantFormat, case: Case) -> bool:
    """vLLM's kernels for GPTQ that do not ask how ranks share the groups: ExLlama's in fp16, Machete's on Hopper."""
    if rule.layout not in ("gptq", "marlin") or case.engine != "vllm":
        return False
    machete = shard.inputs % MACHETE_COLUMNS == 0 and sum(shard.outputs) % MACHETE_ROWS == 0
    return case.dtype == "fp16" or (case.capability == 9.0 and machete)


def _tiles(shard: Shard, rule: QuantFormat, case: Case) -> Problem | None:
    """Marlin's tiles: AWQ falls back to its own kernels, fp16 to ExLlama's, Hopper has Machete's, 0.24 on pads."""
    if rule.layout == "awq" or rule.bits != 4 or case.version >= PADDED_TILES or case.dtype == "fp16":
        return None
    rows, hopper = sum(shard.outputs), case.capability == 9.0
    if case.capability is None or hopper or case.capability < 8.0:
        return None
    if rows % MARLIN_ROWS == 0 and shard.inputs % MARLIN_COLUMNS == 0:
        return None
    held = f"a rank holds {rows:,} × {shard.inputs:,} of {shard.label}"
    what = f"{held}, not whole tiles of {MARLIN_ROWS} × {MARLIN_COLUMNS}"
    return Problem(what, "utils/marlin_utils.py verify_marlin_supports_shape", False)


def _expert_groups(shard: Shard, rule: QuantFormat, case: Case) -> Problem | None:
    group, hidden = rule.group_size, shard.outputs[0]
    if case.engine != "vllm" or group <= 0 or (shard.inputs % group == 0 and hidden % group == 0):
        return None
    held = f"a rank holds {shard.inputs:,} of an expert's {shard.whole_inputs:,} intermediate values, which groups of"
    if rule.layout == "packed":
        if case.version < CHECKED_EXPERT_GROUPS:
            return None
        return Problem(f"{held} {group} do not divide", "compressed_tensors_moe_wna16.py", True)
    while group >= LEAST_EXPERT_GROUP and (shard.inputs % group or hidden % group):
        group //= 2
    if group >= LEAST_EXPERT_GROUP:
        return None
    return Problem(f"{held} {LEAST_EXPERT_GROUP} or more do not divide", "quantization/moe_wna16.py", True)


def _small_groups(shard: Shard, rule: QuantFormat, case: Case) -> Problem | None:
    """modelopt's checkpoints; those of compressed-tensors are not asked, nor are NVFP4's experts."""
    group = NVFP4_GROUP if rule.layout == "nvfp4" else MXFP8_GROUP
    if case.engine != "vllm" or case.method != "modelopt" or shard.inputs % group == 0:
        return None
    if shard.kind == "experts" and rule.layout == "nvfp4":
        return None
    held = f"{shard.inputs:,} of {shard.whole_inputs:,} columns of {shard.label}"
    what = f"a rank holds {held}, which groups of {group} do not divide"
    return Problem(what, "layers/quantization/modelopt.py", shard.kind == "experts")
