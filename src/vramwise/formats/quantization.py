"""Weight quantization formats: the tensors that replace one linear weight, and their exact bytes.

A format is one row below: which tensors a weight of shape (out_features, in_features) becomes, with
bits, group size and the dtype of scales as the named library stores them. A stack of experts
(experts, out_features, in_features) is so many independent weights.

Not counted: workspaces of kernels, padding that an engine adds, the allocator's rounding to 512 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from vramwise.errors import UnknownNameError, UsageError, nearest
from vramwise.records import record

Tensors = tuple[tuple[str, int], ...]
"""Stored tensors of one weight: name and bytes of each."""

BNB_BLOCK_SIZE = 64  # bitsandbytes 0.50.2 functional.py quantize_4bit: default blocksize
BNB_NESTED_BLOCK_SIZE = 256  # the same: quantize_blockwise(absmax - offset, blocksize=256)

_BNB = "bitsandbytes 0.50.2 functional.py quantize_4bit, quantize_blockwise"
_GPTQ = "AutoGPTQ auto_gptq/nn_modules/qlinear QuantLinear: qweight, qzeros, scales, g_idx"
_AWQ = "casper-hansen/AutoAWQ awq/modules/linear/gemm.py WQLinear_GEMM: qweight, qzeros, scales"
_MARLIN = "vllm kernels/mixed_precision/marlin.py: symmetric weights keep no zero points, and no g_idx"
_PACKED = "compressed-tensors 0.20.0 compressors/pack_quantized: weight_packed, weight_scale, weight_shape"
_W8A8 = "vllm compressed_tensors_w8a8_int8.py: int8 weight, one fp32 scale an output channel"
_FP8 = "vllm quantization/fp8.py: fp8 weight, fp32 weight_scale and input_scale, or weight_scale_inv by block"
_FP8_DYNAMIC = "vllm compressed_tensors_w8a8_fp8.py: fp8 weight, one fp32 scale an output channel"
_MXFP4 = "OCP microscaling formats 1.0: 32 values of 4 bits share one 8-bit exponent"
_MXFP8 = "OCP microscaling formats 1.0: 32 values of 8 bits share one 8-bit exponent"
_NVFP4 = "compressed-tensors 0.20.0 compressors/nvfp4: weight_packed, fp8 weight_scale of 16, global scales"
_INT8 = "bitsandbytes 0.50.2 nn/modules.py Int8Params: CB int8, SCB fp32 an output row"
_MLX = "mlx 0.32.4 nn/layers/quantized.py: packed uint32 weight, 16-bit scales and biases a group"
_MLX_FLOAT = "mlx 0.32.4 nn/layers/quantized.py, modes mxfp4, mxfp8, nvfp4: packed weight, an 8-bit scale a group"
_GGUF = "the file's own tensor types, see GGUF_TYPES"

_OUTSIDE_LAYERS = frozenset({"embedding", "norm", "head"})
_CHECKPOINT_SKIPS = _OUTSIDE_LAYERS | {"router", "vision", "audio", "speech", "projector"}


@record
class QuantFormat:
    """How one library stores a quantized linear weight.

    `bits` are those of a weight without scales; `group_size` 0 means one scale a row or tensor, -1 a whole
    row as one group. `skipped_parts` name the parts of a model that stay in 16 bits by default;
    `only_parts`, when set, the only ones that are quantized.
    """

    name: str
    bits: int
    group_size: int
    source: str
    layout: str
    skipped_parts: frozenset[str] = _CHECKPOINT_SKIPS
    only_parts: frozenset[str] = frozenset()
    quantizes_fused_experts: bool = True
    takes_group_size: bool = False
    weight_block_size: tuple[int, int] | None = None
    stored_bytes: tuple[int, int] = (1, 1)
    """Bytes that a file holds for so many weights, where only the file tells the format."""

    def tensors_for(self, shape: Sequence[int]) -> Tensors:
        """Tensors that replace a weight of `shape` (out, in) or (experts, out, in), with bytes of each.

        Raises `UsageError` for `gguf`, whose sizes are in the file's tensor types.
        """
        return _tensors(self, tuple(shape))

    def bytes_for(self, shape: Sequence[int]) -> int:
        """Bytes of a weight of `shape` with scales, zero points, code tables: the sum of `tensors_for`."""
        return _bytes(self, tuple(shape))

    def bits_per_weight(self, shape: Sequence[int] = (4096, 4096)) -> float:
        """Bits a weight costs with everything that belongs to it, for a weight of `shape`."""
        return 8 * self.bytes_for(shape) / prod(shape)

    def quantizes(self, part: str, shape: Sequence[int], is_linear: bool) -> bool:
        """Whether a parameter is replaced: by its part, its shape and whether it is a linear weight."""
        if self.layout.startswith("mlx") and (not shape or shape[-1] % self.group_size):
            return False  # mlx-lm 0.32.2 utils.py quantize_model leaves such a width alone
        if self.layout.startswith("mlx") and len(shape) == 2:
            return part not in self.skipped_parts  # embeddings and routers too
        if part in self.skipped_parts or (self.only_parts and part not in self.only_parts):
            return False
        return is_linear if len(shape) != 3 else part == "experts" and self.quantizes_fused_experts

    def stays_high_precision(self, part: str, shape: Sequence[int], is_linear: bool) -> bool:
        """The opposite of `quantizes`: embeddings, norms and the head always, the rest by format."""
        return not self.quantizes(part, shape, is_linear)


def _groups(in_features: int, group_size: int) -> int:
    return 1 if group_size <= 0 else -(-in_features // group_size)


def _int32_words(numel: int, bits: int) -> int:
    return -(-numel * bits // 32)


def _bnb_4bit(rule: QuantFormat, out: int, inner: int) -> Tensors:
    blocks = -(-out * inner // rule.group_size)
    return (("weight", -(-out * inner // 2)), ("absmax", 4 * blocks), ("code", 16 * 4))


def _bnb_4bit_double(rule: QuantFormat, out: int, inner: int) -> Tensors:
    blocks = -(-out * inner // rule.group_size)
    return (
        ("weight", -(-out * inner // 2)),
        ("absmax", blocks),
        ("code", 16 * 4),
        ("nested_absmax", 4 * -(-blocks // BNB_NESTED_BLOCK_SIZE)),
        ("nested_code", 256 * 4),
        ("offset", 4),
    )


def _bnb_int8(rule: QuantFormat, out: int, inner: int) -> Tensors:
    return (("weight", out * inner), ("SCB", 4 * out))


def _gptq(rule: QuantFormat, out: int, inner: int) -> Tensors:
    groups = _groups(inner, rule.group_size)
    return (
        ("qweight", 4 * _int32_words(inner, rule.bits) * out),
        ("qzeros", 4 * groups * _int32_words(out, rule.bits)),
        ("scales", 2 * groups * out),
        ("g_idx", 4 * inner),
    )


def _marlin(rule: QuantFormat, out: int, inner: int) -> Tensors:
    groups = _groups(inner, rule.group_size)
    return (("qweight", 4 * _int32_words(inner, rule.bits) * out), ("scales", 2 * groups * out))


def _awq(rule: QuantFormat, out: int, inner: int) -> Tensors:
    groups = _groups(inner, rule.group_size)
    return (
        ("qweight", 4 * inner * _int32_words(out, rule.bits)),
        ("qzeros", 4 * groups * _int32_words(out, rule.bits)),
        ("scales", 2 * groups * out),
    )


def _packed(rule: QuantFormat, out: int, inner: int) -> Tensors:
    groups = _groups(inner, rule.group_size)
    return (
        ("weight_packed", 4 * out * _int32_words(inner, rule.bits)),
        ("weight_scale", 2 * out * groups),
        ("weight_shape", 2 * 8),
    )


def _packed_zeros(rule: QuantFormat, out: int, inner: int) -> Tensors:
    zeros = 4 * _int32_words(out, rule.bits) * _groups(inner, rule.group_size)
    return (*_packed(rule, out, inner), ("weight_zero_point", zeros))


def _half_scales(rule: QuantFormat, out: int, inner: int) -> Tensors:
    return (("weight", out * inner), ("weight_scales", 2 * out * _groups(inner, rule.group_size)))


def _int8_zeros(rule: QuantFormat, out: int, inner: int) -> Tensors:
    scales = out * _groups(inner, rule.group_size)
    return (("qdata", out * inner), ("scale", 4 * scales), ("zero_point", scales))


def _fp32_scales(rule: QuantFormat, out: int, inner: int) -> Tensors:
    return (("weight", out * inner), ("scale", 4 * (out if rule.group_size else 1)))


def _half_zeros(rule: QuantFormat, out: int, inner: int) -> Tensors:
    groups = out * inner // rule.group_size if rule.group_size > 0 else out
    packed = 4 * -(-out * inner // 10) if rule.bits == 3 else -(-out * inner * rule.bits // 8)
    return (("W_q", packed), ("scale", 2 * groups), ("zero", 2 * groups))


def _as_stored(rule: QuantFormat, out: int, inner: int) -> Tensors:
    size, values = rule.stored_bytes
    return (("weight", -(-out * inner * size // values)),)


def _by_channel(rule: QuantFormat, out: int, inner: int) -> Tensors:
    return (("weight", out * inner), ("weight_scale", 4 * out))


def _fp8(rule: QuantFormat, out: int, inner: int) -> Tensors:
    if rule.weight_block_size is None:
        return (("weight", out * inner), ("weight_scale", 4), ("input_scale", 4))
    rows, columns = rule.weight_block_size
    return (("weight", out * inner), ("weight_scale_inv", 4 * -(-out // rows) * -(-inner // columns)))


def _mxfp4(rule: QuantFormat, out: int, inner: int) -> Tensors:
    return (("blocks", out * -(-inner // 2)), ("scales", out * _groups(inner, rule.group_size)))


def _mxfp8(rule: QuantFormat, out: int, inner: int) -> Tensors:
    return (("weight", out * inner), ("weight_scale", out * _groups(inner, rule.group_size)))


def _nvfp4(rule: QuantFormat, out: int, inner: int) -> Tensors:
    return (
        ("weight_packed", out * -(-inner // 2)),
        ("weight_scale", out * _groups(inner, rule.group_size)),
        ("weight_global_scale", 4),
        ("input_global_scale", 4),
    )


def _mlx(rule: QuantFormat, out: int, inner: int) -> Tensors:
    groups = _groups(inner, rule.group_size)
    return (
        ("weight", 4 * out * _int32_words(inner, rule.bits)),
        ("scales", 2 * out * groups),
        ("biases", 2 * out * groups),
    )


def _mlx_float(rule: QuantFormat, out: int, inner: int) -> Tensors:
    return (("weight", 4 * out * _int32_words(inner, rule.bits)), ("scales", out * _groups(inner, rule.group_size)))


def _gguf(rule: QuantFormat, out: int, inner: int) -> Tensors:
    raise UsageError("gguf alone tells no size: name the file type (gguf_quant = Q4_K_M, Q8_0, …)")


_LAYOUTS: dict[str, Callable[[QuantFormat, int, int], Tensors]] = {
    "bnb-4bit": _bnb_4bit,
    "bnb-4bit-double": _bnb_4bit_double,
    "bnb-int8": _bnb_int8,
    "gptq": _gptq,
    "marlin": _marlin,
    "awq": _awq,
    "packed": _packed,
    "packed-zeros": _packed_zeros,
    "half-scales": _half_scales,
    "int8-zeros": _int8_zeros,
    "fp32-scales": _fp32_scales,
    "half-zeros": _half_zeros,
    "as-stored": _as_stored,
    "by-channel": _by_channel,
    "fp8": _fp8,
    "mxfp4": _mxfp4,
    "mxfp8": _mxfp8,
    "nvfp4": _nvfp4,
    "mlx-affine": _mlx,
    "mlx-float": _mlx_float,
    "gguf": _gguf,
}


def _bitsandbytes(name: str, bits: int, group_size: int, source: str, layout: str) -> QuantFormat:
    # Every nn.Linear but the head is replaced (routers and vision towers too); experts that transformers 5
    # keeps as one 3-D parameter are no nn.Linear and stay as they are.
    return QuantFormat(
        name,
        bits,
        group_size,
        source,
        layout,
        skipped_parts=_OUTSIDE_LAYERS,
        quantizes_fused_experts=False,
        takes_group_size=group_size > 0,
    )


QUANTIZATIONS: tuple[QuantFormat, ...] = (
    _bitsandbytes("nf4", 4, BNB_BLOCK_SIZE, _BNB, "bnb-4bit"),
    _bitsandbytes("nf4-dq", 4, BNB_BLOCK_SIZE, _BNB, "bnb-4bit-double"),
    _bitsandbytes("fp4", 4, BNB_BLOCK_SIZE, _BNB, "bnb-4bit"),
    _bitsandbytes("int8", 8, 0, _INT8, "bnb-int8"),
    QuantFormat("gptq-int4", 4, 128, _GPTQ, "gptq", takes_group_size=True),
    QuantFormat("gptq-int8", 8, 128, _GPTQ, "gptq", takes_group_size=True),
    QuantFormat("gptq-marlin", 4, 128, _MARLIN, "marlin", takes_group_size=True),
    QuantFormat("awq-int4", 4, 128, _AWQ, "awq", takes_group_size=True),
    QuantFormat("w4a16", 4, 128, _PACKED, "packed", takes_group_size=True),
    QuantFormat("w8a8", 8, 0, _W8A8, "by-channel"),
    QuantFormat("fp8", 8, 0, _FP8, "fp8"),
    QuantFormat("fp8-dynamic", 8, 0, _FP8_DYNAMIC, "by-channel"),
    QuantFormat("mxfp4", 4, 32, _MXFP4, "mxfp4", only_parts=frozenset({"experts"})),
    QuantFormat("mxfp8", 8, 32, _MXFP8, "mxfp8"),
    QuantFormat("nvfp4", 4, 16, _NVFP4, "nvfp4"),
    *(
        QuantFormat(
            f"mlx-{bits}bit", bits, 64, _MLX, "mlx-affine", skipped_parts=frozenset({"norm"}), takes_group_size=True
        )
        for bits in (2, 3, 4, 5, 6, 8)
    ),
    *(
        QuantFormat(f"mlx-{mode}", bits, group, _MLX_FLOAT, "mlx-float", skipped_parts=frozenset({"norm"}))
        for mode, bits, group in (("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16))
    ),
    QuantFormat("gguf", 0, 0, _GGUF, "gguf", skipped_parts=frozenset({"norm"})),
)

ALIASES: dict[str, str] = {
    "gptq": "gptq-int4",
    "awq": "awq-int4",
    "bitsandbytes-nf4": "nf4",
    "bnb-nf4": "nf4",
    "bitsandbytes-nf4-dq": "nf4-dq",
    "bitsandbytes-fp4": "fp4",
    "bitsandbytes-int8": "int8",
    "bnb-int8": "int8",
    "llm-int8": "int8",
    "llm.int8": "int8",
    "compressed-tensors-w4a16": "w4a16",
    "w8a8-int8": "w8a8",
}
"""Other names of a format, as engines and checkpoints write them."""

_BY_NAME = {row.name: row for row in QUANTIZATIONS}


@lru_cache(maxsize=256)
def quantization(
    name: str, group_size: int | None = None, weight_block_size: tuple[int, int] | None = None
) -> QuantFormat:
    """The quantization format called `name`, with the checkpoint's group size or fp8 block size.

    `group_size` -1 is one group a row; formats without groups of free size (fp8, nvfp4, …) ignore it.
    Raises `UnknownNameError`, and `UsageError` for a group size that no library takes.
    """
    key = name.strip().lower().replace("_", "-")
    found = _BY_NAME.get(ALIASES.get(key, key))
    if found is None:
        raise UnknownNameError("quantization", name, nearest(name, [*_BY_NAME, *ALIASES]), "vramwise dtypes lists all")
    if weight_block_size is not None:
        if found.layout != "fp8" or len(weight_block_size) != 2 or min(weight_block_size) < 1:
            given = f"{found.name} has no weight_block_size {list(weight_block_size)}"
            raise UsageError(f"{given}: only fp8 does, two numbers of at least 1")
        found = replace(found, weight_block_size=weight_block_size)
    if group_size is None or group_size == found.group_size or not found.takes_group_size:
        return found
    if group_size == 0 or group_size < -1 or (group_size == -1 and found.layout.startswith("bnb")):
        raise UsageError(f"quantization_group_size: expected a whole number ≥ 1, got {group_size}")
    return replace(found, group_size=group_size)


@lru_cache(maxsize=4096)
def _tensors(rule: QuantFormat, shape: tuple[int, ...]) -> Tensors:
    if len(shape) not in (2, 3):
        raise UsageError(f"{rule.name} replaces linear weights (out, in), not shape {list(shape)}")
    count = shape[0] if len(shape) == 3 else 1
    one = _LAYOUTS[rule.layout](rule, shape[-2], shape[-1])
    return tuple((name, count * size) for name, size in one)


@lru_cache(maxsize=4096)
def _bytes(rule: QuantFormat, shape: tuple[int, ...]) -> int:
    return sum(size for _, size in _tensors(rule, shape))
