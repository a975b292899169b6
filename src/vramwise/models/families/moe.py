"""Decoders of Llama's shape with routed experts: Mixtral, Qwen 2 MoE, Qwen 3 MoE, OLMoE."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.layers.grouped_attention import grouped_attention
from vramwise.models.layers.parts import gated_mlp, lm_head, token_embedding
from vramwise.models.layers.sparse import Experts, balancing_loss, checked, routed_experts

# Defaults of the configuration classes of transformers 5.23.
_DEFAULTS = {
    "mixtral": {"num_experts_per_tok": 2, "intermediate_size": 14336},
    "qwen2_moe": {"num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632,
                  "sliding_window": 4096},
    "qwen3_moe": {"num_experts_per_tok": 8, "moe_intermediate_size": 768, "sliding_window": 4096},
    "olmoe": {"num_experts_per_tok": 8, "intermediate_size": 2048},
}  # fmt: skip
_NUM_EXPERTS = {"mixtral": 8, "qwen2_moe": 60, "qwen3_moe": 128, "olmoe": 64}


def experts(c: Config) -> Experts:
    """The routed experts of a sparse layer; Mixtral and OLMoE have no other width than theirs."""
    mixtral = c.model_type == "mixtral"
    return checked(c, Experts(
        # The classes take both names, and write the one that they prefer.
        num_experts=c.size("num_experts", "num_local_experts", default=_NUM_EXPERTS[c.model_type]),
        experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.size("moe_intermediate_size", "intermediate_size"),
        function=c.text("hidden_act", "silu"), routing="mixtral" if mixtral else "qwen",
        normalized=mixtral or c.flag("norm_topk_prob"),
    ))  # fmt: skip


def is_sparse(c: Config, index: int) -> bool:
    """Whether a layer has routed experts; Qwen can mix in dense ones."""
    if not c.model_type.startswith("qwen"):
        return True
    dense = c.items("mlp_only_layers") or []
    return index not in dense and (index + 1) % c.size("decoder_sparse_step", default=1) == 0


def windows(c: Config) -> list[int | None]:
    """The window of each layer, None where attention is full."""
    layers = c.num_hidden_layers
    window = c.size("sliding_window", default=0, least=0) or None
    if c.model_type == "olmoe":
        return [None] * layers
    if c.model_type == "mixtral":
        return [window] * layers
    if not c.flag("use_sliding_window"):
        return [None] * layers
    if c.model_type == "qwen3_moe":
        return [window] * layers
    types = c.layer_types()
    if types is not None:
        return [window if kind == "sliding_attention" else None for kind in types]
    first = c.size("max_window_layers", default=28, least=0)
    return [window if i % 2 == 0 and i < first else None for i in range(layers)]


def clipped_attention(b: BlockBuilder, x: Value, c: Config) -> Value:
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
    dropout = c.number("attention_dropout")
    mixed = b.attention(q, k, v, num_heads=heads, num_key_value_heads=groups, dropout=dropout)
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def attention(b: BlockBuilder, x: Value, c: Config, window: int | None) -> Value:
    """Grouped-query attention of the family."""
    if c.model_type == "olmoe":
        return clipped_attention(b, x, c)
    third = c.model_type == "qwen3_moe"
    bias = c.flag("qkv_bias", True) if c.model_type == "qwen2_moe" else third and c.flag("attention_bias")
    norms = ("q_norm", "k_norm") if third else None
    return grouped_attention(b, x, c, bias=bias, norms=norms, output_bias=bias and third, window=window)


def sparse_mlp(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Routed experts, and in Qwen 2 MoE one shared expert behind a sigmoid gate."""
    e = experts(c)
    if c.number("router_jitter_noise") > 0:
        x = b.unary("jitter", x, "mlp")
    if c.model_type != "qwen2_moe":
        return routed_experts(b, x, e)
    return with_gated_shared_expert(b, x, e, c.size("shared_expert_intermediate_size"))


def with_gated_shared_expert(b: BlockBuilder, x: Value, e: Experts, width: int) -> Value:
    """Routed experts, plus a shared one times the sigmoid of a number for each token."""
    shared = gated_mlp(b, x, width, e.function, module="mlp.shared_expert")
    routed = routed_experts(b, x, e)
    gate = b.linear(x, "mlp.shared_expert_gate", 1, shard="replicated", part="mlp")
    return b.add(routed, b.multiply(shared, b.activation(gate, "sigmoid", "mlp")))


def layer(c: Config, index: int, window: int | None) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    x = b.add(x, attention(b, b.rms_norm(x, "input_layernorm"), c, window))
    h = b.rms_norm(x, "post_attention_layernorm")
    if is_sparse(c, index):
        h = sparse_mlp(b, h, c)
    else:
        h = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act", "silu"))
    return b.build(hidden=b.add(x, h))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    c = c.filled(_DEFAULTS[c.model_type])
    layers = tuple(layer(c, i, window) for i, window in enumerate(windows(c)))
    head = lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings"))
    num_sparse = sum(is_sparse(c, i) for i in range(len(layers)))
    return (token_embedding(c), *layers, *balancing_loss(c, experts(c), num_sparse), head)
