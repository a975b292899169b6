"""A model's tensors as a GGUF file holds them: name, shape and layer of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from vramwise.models import Block, Model, Operation, Parameter
from vramwise.models.lengths import rope_scaling
from vramwise.models.operations.attention import AnyAttention, AnyRotary, Attention
from vramwise.models.operations.simple import Conv1dLinear
from vramwise.records import record

LOOKED_UP = ("token_embd", "per_layer_token_embd")
"""Tables of which a token reads a row: llama.cpp keeps them on the host, however many layers are on the cards."""


@record
class GgufTensor:
    """One tensor: GGUF name without layer, shape with columns last, and whether it may be quantized."""

    name: str
    shape: tuple[int, ...]
    layer: int | None
    quantizable: bool

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


# Last components of transformers' parameter names -> GGUF names (convert_hf_to_gguf.py, gguf-py tensor_mapping.py).
_NAMES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"linear_attn\.in_proj_qkv$", "attn_qkv"),
        (r"linear_attn\.in_proj_z$", "attn_gate"),
        (r"linear_attn\.out_proj$", "ssm_out"),
        (r"(self_attn|attn|attention|mixer)\.(q_proj|wq)$|attention\.self\.query$", "attn_q"),
        (r"\.q_b_proj$", "attn_q_b"),
        (r"\.q_a_proj$", "attn_q_a"),
        (r"\.kv_a_proj_with_mqa$", "attn_kv_a_mqa"),
        (r"\.k_proj$|attention\.self\.key$", "attn_k"),
        (r"\.v_proj$|attention\.self\.value$", "attn_v"),
        (r"\.(qkv_proj|query_key_value|c_attn|Wqkv|W_pack)$", "attn_qkv"),
        (
            r"(attn|attention|mixer)\.(o_proj|c_proj|dense|wo)$|attn\.out_proj$|attention\.(output\.dense|out_proj)$",
            "attn_output",
        ),
        (r"(?<!shared_)experts\.down_proj$", "ffn_down_exps"),
        (r"experts\.gate_up_proj$", "ffn_gate_up_exps"),
        (r"shared_experts?\.gate_proj$", "ffn_gate_shexp"),
        (r"shared_experts?\.up_proj$", "ffn_up_shexp"),
        (r"shared_experts?\.down_proj$", "ffn_down_shexp"),
        (r"shared_mlp\.output_linear$", "ffn_down_shexp"),
        (r"\.gate_proj$|feed_forward\.w1$", "ffn_gate"),
        (r"\.(up_proj|gate_up_proj|fc1|c_fc|dense_h_to_4h|fc_in|intermediate\.dense)$|feed_forward\.w3$", "ffn_up"),
        (r"\.(down_proj|fc2|dense_4h_to_h|fc_out|mlp\.c_proj|output\.dense)$|feed_forward\.w2$", "ffn_down"),
        (r"\.in_proj$", "ssm_in"),
        (r"\.out_proj$", "ssm_out"),
        (r"\.x_proj$", "ssm_x"),
        (r"\.per_layer_model_projection$", "per_layer_model_proj"),
        (r"\.altup\.(prediction|correction)_coefs$", "altup_coef"),
        (r"\.altup\.modality_router$|\.altup_(unembed_)?projections\.\d+$", "altup"),
        (r"\.laurel\.linear_(left|right)$", "laurel"),
        (r"\.dt_proj$", "ssm_dt"),
    )
)


KEPT_IN_16_BITS = ("per_layer_model_proj", "altup", "laurel")
"""What the quantizer leaves as the converter made it (llama-quant.cpp tensor_allows_quantization; a log of Gemma 4 E2B
in Q4_K_M names one tensor in bf16, one of Gemma 3n E4B 108 in f16)."""
_KEPT_IN_32_BITS = ("altup_coef",)


@lru_cache(maxsize=128)
def gguf_tensors(model: Model) -> tuple[GgufTensor, ...]:
    """Every tensor of the language model; vision towers are files of their own (mmproj)."""
    met: set[str] = set()
    tensors = [tensor for block in model.blocks for tensor in _of_block(block, met)]
    tensors.extend(rotary_factors(model))
    return tuple(tensors)


def _of_block(block: Block, met: set[str]) -> Iterator[GgufTensor]:
    for op in block.ops:
        for parameter in op.parameters:
            if parameter.name in met:  # shared with a layer before
                continue
            met.add(parameter.name)
            if parameter.tied_to is None and parameter.part not in ("vision", "audio", "speech", "projector"):
                yield from tensors_of(block, op, parameter)


def tensors_of(block: Block, op: Operation, parameter: Parameter) -> Iterator[GgufTensor]:
    """What a parameter of an operation is in the file: one tensor, or several."""
    is_cut = parameter.name.endswith(_ENDS_OF_CUTS)
    cut = next(cut for end, cut in _CUTS.items() if parameter.name.endswith(end)) if is_cut else None
    yield from cut(parameter, block) if cut else _of_parameter(parameter, op)


def _of_parameter(parameter: Parameter, op: Operation) -> Iterator[GgufTensor]:
    shape, layer = _squeezed(parameter.shape), parameter.layer
    module, _, leaf = parameter.name.rpartition(".")
    if parameter.part == "embedding" and parameter.shard == "vocab":
        per_layer = module.endswith("embed_tokens_per_layer")
        yield GgufTensor("per_layer_token_embd" if per_layer else "token_embd", shape, None, True)
        return
    if parameter.part == "head" and leaf == "weight":
        yield GgufTensor("output", shape, None, True)
        return
    path = parameter.name if len(shape) == 3 and leaf != "weight" else module
    name = _called(path if layer is None else path.replace(f".{layer}.", ".0.")) or parameter.part
    if isinstance(op, Conv1dLinear) and len(shape) == 2:
        shape = (shape[1], shape[0])
    linear = parameter.is_linear or (parameter.part == "experts" and len(shape) == 3)
    quantizable = linear and len(shape) >= 2 and leaf != "bias" and parameter.part != "router"
    quantizable = quantizable and name not in _KEPT_IN_32_BITS
    if len(shape) == 3 and parameter.part == "experts":
        yield from _experts(name, shape, op, layer)
    else:
        kept = "kept_exps" if parameter.part == "experts" else "kept"  # biases follow their experts
        yield GgufTensor(name if quantizable else kept, shape, layer, quantizable)


@lru_cache(maxsize=4096)
def _called(path: str) -> str:
    """The name of what lies at a path; empty where the table has none. No pattern asks for a layer's number."""
    return next((gguf for pattern, gguf in _NAMES if pattern.search(path)), "")


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Without axes of one, as the converter writes them: the gate of a shared expert becomes a vector, and stays in 32
    bits as all vectors do (convert_hf_to_gguf.py prepare_tensors)."""
    return shape if 1 not in shape else tuple(size for size in shape if size != 1) or shape[-1:]


def _experts(name: str, shape: tuple[int, ...], op: Operation, layer: int | None) -> Iterator[GgufTensor]:
    """Stacked experts; the fused gate and up are two tensors in the file. Rows of the hidden size come last."""
    hidden = op.inputs[0].width
    count, one, other = shape
    if name == "ffn_up":  # Nemotron's experts have no gate
        inner = one if other == hidden else other
        yield GgufTensor("ffn_up_exps", (count, inner, hidden), layer, True)
    elif name == "ffn_gate_up_exps":
        inner = (one if other == hidden else other) // 2
        yield GgufTensor("ffn_gate_exps", (count, inner, hidden), layer, True)
        yield GgufTensor("ffn_up_exps", (count, inner, hidden), layer, True)
    else:
        inner = other if one == hidden else one
        yield GgufTensor("ffn_down_exps", (count, hidden, inner), layer, True)


def _queries_to_gates(parameter: Parameter, block: Block) -> Iterator[GgufTensor]:
    """Qwen3-Next's one product for queries, keys, values and gates; the gates are a tensor of their own in the file."""
    rows, columns = parameter.shape
    values = next(p.shape[1] for p in block.parameters if p.name.endswith("linear_attn.out_proj.weight"))
    yield GgufTensor("attn_qkv", (rows - values, columns), parameter.layer, True)
    yield GgufTensor("attn_gate", (values, columns), parameter.layer, True)


def _latent(parameter: Parameter, block: Block) -> Iterator[GgufTensor]:
    """The latent's way up in two tensors, for keys (turned over) and for values, as files since April 2025 hold it."""
    rows, rank = parameter.shape
    attention = next(block.operations(AnyAttention))
    heads, values = attention.num_heads, attention.inputs[2].width
    yield GgufTensor("attn_k_b", (heads, rank, rows // heads - values), parameter.layer, True)
    yield GgufTensor("attn_v_b", (heads, values, rank), parameter.layer, True)


def _fused_queries(parameter: Parameter, block: Block) -> Iterator[GgufTensor]:
    """InternLM 2's one product for queries, keys and values: three tensors in the file."""
    rows, columns = parameter.shape
    heads = next(block.operations(Attention)).num_heads
    groups = block.caches[0].num_key_value_heads
    width = rows // (heads + 2 * groups)
    for name, count in (("attn_q", heads), ("attn_k", groups), ("attn_v", groups)):
        yield GgufTensor(name, (count * width, columns), parameter.layer, True)


def _fused_gates(parameter: Parameter, block: Block) -> Iterator[GgufTensor]:
    """Granite's gate and up of every layer's MLP, which stands beside experts where there are any."""
    rows, columns = parameter.shape
    for name in ("ffn_gate_shexp", "ffn_up_shexp"):
        yield GgufTensor(name, (rows // 2, columns), parameter.layer, True)


_CUTS = {
    "linear_attn.in_proj_qkvz.weight": _queries_to_gates,
    "kv_b_proj.weight": _latent,
    "attention.wqkv.weight": _fused_queries,
    "shared_mlp.input_linear.weight": _fused_gates,
}
"""Parameters that are several tensors in the file."""
_ENDS_OF_CUTS = tuple(_CUTS)


def rotary_factors(model: Model) -> Iterator[GgufTensor]:
    """Frequency factors that the converter writes for Llama 3.1's and long RoPE, and for Gemma 4's full layers."""
    scaling = rope_scaling(model)
    full = scaling.get("full_attention")
    if isinstance(full, Mapping) and full.get("rope_type") == "proportional":
        heads = (c.key_head_dim for block in model.layers() for c in block.caches if c.window is None)
        yield GgufTensor("rope_freqs", (next(heads, 0) // 2,), None, False)
        return
    kind = str(scaling.get("rope_type") or scaling.get("type") or "")
    turned = ((block, op) for block in model.layers() for op in block.operations(AnyRotary))
    width = next((op.rotary_dim or cache.key_head_dim for block, op in turned for cache in block.caches), 0)
    if kind == "llama3":
        yield GgufTensor("rope_freqs", (width // 2,), None, False)
    elif kind in ("longrope", "su"):
        yield GgufTensor("rope_factors_long", (width // 2,), None, False)
        yield GgufTensor("rope_factors_short", (width // 2,), None, False)
