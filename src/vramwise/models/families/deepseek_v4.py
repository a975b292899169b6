"""DeepSeek V4: several residual streams mixed by hyper-connections, one key-value head, compressed far tokens."""

from __future__ import annotations

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.compressed_attention import attention
from vramwise.models.layers.decoder import logits, token_embedding
from vramwise.models.layers.hyper_connections import connected, copies, joined, merged
from vramwise.models.layers.mixture import Mixture, experts, feed_forward
from vramwise.models.layers.routed_experts import balancing_loss
from vramwise.models.operations.simple import Clamp

# Defaults of the configuration class (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    "vocab_size": 129_280, "hidden_size": 4096, "moe_intermediate_size": 2048, "num_hidden_layers": 43,
    "num_attention_heads": 64, "head_dim": 512, "q_lora_rank": 1024, "num_experts_per_tok": 6, "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "sliding_window": 128, "o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64,
    "index_head_dim": 128,
}  # fmt: skip
_BY_RATE = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


def layer_types(c: Config) -> list[str]:
    """Which layers see far tokens, and how much compressed; checkpoints name the rates instead."""
    layers, ratios = c.num_hidden_layers, c.items("compress_ratios")
    types = c.layer_types()
    if types is None and ratios is not None:
        if len(ratios) < layers or any(ratio not in _BY_RATE for ratio in ratios):
            raise c.error(f"compress_ratios: expected {layers} of {', '.join(map(str, _BY_RATE))}")
        types = [_BY_RATE[ratio] for ratio in ratios[:layers]]
    light, heavy = _BY_RATE[4], _BY_RATE[128]
    return types or [light if i > 1 and i % 2 else heavy for i in range(layers)]


def clamped_mlp(b: BlockBuilder, x: Value, m: Mixture) -> Value:
    """The shared expert: gates and values are clamped."""
    width, module, bias = m.shared, m.shared_module, m.bias
    gate = b.unary(Clamp(), b.linear(x, f"{module}.gate_proj", width, bias=bias, part="mlp"))
    up = b.unary(Clamp(), b.linear(x, f"{module}.up_proj", width, bias=bias, part="mlp"))
    h = b.multiply(b.activation(gate, m.experts.function, f"{module}.act_fn"), up)
    return b.linear(h, f"{module}.down_proj", x.width, bias=bias, shard="row", part="mlp")


def mixture(c: Config) -> Mixture:
    """Routed experts, gates and values clamped, and a shared one of their width."""
    e = experts(c, 256, keys=("n_routed_experts", "num_local_experts"), routing="deepseek_v4", gating="limited")
    return Mixture(e, shared=e.intermediate_size, shared_mlp=clamped_mlp, bias=c.flag("mlp_bias"))


def layer(c: Config, m: Mixture, index: int, kind: str) -> Block:
    """Attention and MLP, each between a hyper-connection and its mix."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    *ways, h = connected(b, x, c, "attn_hc")
    h = attention(b, b.rms_norm(h, "input_layernorm", style="fp32-product"), c, kind)
    x = merged(b, ways, h, x)
    *ways, h = connected(b, x, c, "ffn_hc")
    h = feed_forward(b, b.rms_norm(h, "post_attention_layernorm", style="fp32-product"), m=m)
    return b.build(hidden=merged(b, ways, h, x))


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, balancing loss, head."""
    c = c.filled(_DEFAULTS)
    m = mixture(c)
    layers = tuple(layer(c, m, i, kind) for i, kind in enumerate(layer_types(c)))
    b = BlockBuilder("")
    tied = c.flag("tie_word_embeddings")
    last = b.build(logits=logits(b, joined(b, c), c, "model.norm", tied=tied, norm_style="fp32-product"))
    return (token_embedding(c), copies(c), *layers, *balancing_loss(c, m.experts, len(layers)), last)
