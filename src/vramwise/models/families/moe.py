"""Decoders of Llama's shape with routed experts: Mixtral, Qwen 2 MoE, Qwen 3 MoE, OLMoE."""

from __future__ import annotations

from functools import partial

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers import mixture
from vramwise.models.layers.design import Design, LayerKind, Piece, sliding_window
from vramwise.models.layers.grouped_attention import grouped_attention
from vramwise.models.layers.mixture import Mixture, experts

# Defaults of the configuration classes of transformers 5.23.
_DEFAULTS = {
    "mixtral": {"num_experts_per_tok": 2, "intermediate_size": 14336},
    "qwen2_moe": {"num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
                  "sliding_window": 4096},
    "qwen3_moe": {"num_experts_per_tok": 8, "moe_intermediate_size": 768, "sliding_window": 4096},
    "olmoe": {"num_experts_per_tok": 8, "intermediate_size": 2048},
}  # fmt: skip
_NUM_EXPERTS = {"mixtral": 8, "qwen2_moe": 60, "qwen3_moe": 128, "olmoe": 64}


def is_sparse(c: Config, index: int) -> bool:
    """Whether a layer has routed experts; Qwen can mix in dense ones."""
    if not c.model_type.startswith("qwen"):
        return True
    dense = c.items("mlp_only_layers") or []
    return index not in dense and (index + 1) % c.size("decoder_sparse_step", default=1) == 0


def windows(c: Config) -> list[int | None]:
    """The window of each layer, None where attention is full."""
    window, types = sliding_window(c), c.layer_types()
    if c.model_type == "mixtral" or (c.model_type == "qwen3_moe" and c.flag("use_sliding_window")):
        return [window] * c.num_hidden_layers
    if c.model_type != "qwen2_moe" or not c.flag("use_sliding_window"):
        return [None] * c.num_hidden_layers
    if types is not None:
        return [window if kind == "sliding_attention" else None for kind in types]
    first = c.size("max_window_layers", default=28, least=0)
    return [window if i % 2 == 0 and i < first else None for i in range(c.num_hidden_layers)]


def clipped_attention(b: BlockBuilder, x: Value, *, c: Config) -> Value:
    """OLMoE: norms over the whole width of q and k, and values clipped in place where the config says so."""
    b.part = "attention"
    heads, groups, d, bias = c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.flag("attention_bias")
    q = b.rms_norm(b.linear(x, "self_attn.q_proj", heads * d, bias=bias), "self_attn.q_norm")
    k = b.rms_norm(b.linear(x, "self_attn.k_proj", groups * d, bias=bias), "self_attn.k_norm")
    v = b.linear(x, "self_attn.v_proj", groups * d, bias=bias)
    if c.has("clip_qkv"):
        q, k, v = (b.unary("clip", part) for part in (q, k, v))
    q, k, v = (b.heads_first(b.heads(part, count)) for part, count in ((q, heads), (k, groups), (v, groups)))
    q, k = b.rotary(q, k)
    mixed = b.attention(q, k, v, num_heads=heads, num_key_value_heads=groups, dropout=c.number("attention_dropout"))
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def attention(c: Config, window: int | None) -> Piece:
    """Attention with the biases and norms of the model type."""
    if c.model_type == "olmoe":
        return partial(clipped_attention, c=c)
    third = c.model_type == "qwen3_moe"
    bias = c.flag("qkv_bias", True) if c.model_type == "qwen2_moe" else third and c.flag("attention_bias")
    norms = ("q_norm", "k_norm") if third else None
    return partial(grouped_attention, c=c, bias=bias, norms=norms, output_bias=bias and third, window=window)


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS[c.model_type])
    mixtral, shared = c.model_type == "mixtral", c.model_type == "qwen2_moe"
    e = experts(
        c, _NUM_EXPERTS[c.model_type], keys=("num_experts", "num_local_experts"),
        routing="mixtral" if mixtral else "qwen", normalized=mixtral or c.flag("norm_topk_prob"),
    )  # fmt: skip
    m = Mixture(
        e, shared=c.size("shared_expert_intermediate_size") if shared else 0, shared_gate=shared, balanced=True,
        jitters=int(c.number("router_jitter_noise") > 0),
    )  # fmt: skip
    kinds = [LayerKind(attention=attention(c, window)) for window in windows(c)]
    return mixture.model(c, Design(), m, [is_sparse(c, i) for i in range(len(kinds))], kinds)
