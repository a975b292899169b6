"""LongCat Flash: two attentions and two dense MLPs a layer, routed experts beside them, experts that do nothing."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block, Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.layers.decoder import lm_head, token_embedding
from vramwise.models.layers.latent_attention import attention
from vramwise.models.layers.latent_design import Latent, sizes
from vramwise.models.layers.mlp import gated_mlp
from vramwise.models.operations.experts import ExpertMlps
from vramwise.models.operations.routers import Router

# Defaults of the configuration class (transformers 5.23).
_DEFAULTS = {
    "vocab_size": 131_072, "hidden_size": 6144, "num_attention_heads": 64, "ffn_hidden_size": 12_288,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "moe_topk": 12, "n_routed_experts": 512, "zero_expert_num": 256, "expert_ffn_hidden_size": 2048,
}  # fmt: skip


def feed_forward(b: BlockBuilder, x: Value, c: Config) -> Value:
    """Routed experts; every choice counts as one that does something, the most that it can be."""
    num_experts, inner = c.size("n_routed_experts"), c.size("expert_ffn_hidden_size", "moe_intermediate_size")
    total, chosen = num_experts + c.size("zero_expert_num", least=0), c.size("moe_topk", "num_experts_per_tok")
    if chosen > total:
        raise c.error(f"moe_topk ({chosen}) is more than the number of experts ({total})")
    router = [b.parameter("mlp.router.classifier", "weight", (total, x.width), part="router", is_linear=True)]
    if c.flag("router_bias"):
        router.append(b.parameter("mlp.router.classifier", "bias", (total,), part="router"))
    route = Router(style="longcat_flash", num_experts=total, experts_per_token=chosen)
    weights, indices = b.op(route, "mlp.router", [x], [chosen, chosen], router)
    parameters = [
        b.parameter("mlp.experts", "gate_up_proj", (total, 2 * inner, x.width), part="experts", shard="expert_column"),
        b.parameter("mlp.experts", "down_proj", (num_experts, x.width, inner), part="experts", shard="expert_row"),
    ]
    function = c.text("hidden_act", "silu")
    return b.op(
        ExpertMlps(num_experts=total, experts_per_token=chosen, function=function, gating="halves", style="loop"),
        "mlp.experts",
        [x, weights, indices],
        [x.width],
        parameters,
    )[0]


def layer(c: Config, s: Latent, index: int) -> Block:
    """Attention and dense MLP twice; the experts read what the first MLP reads and join at the end."""
    b = BlockBuilder(f"model.layers.{index}", layer=index)
    x, routed = b.input("hidden", c.hidden_size), None
    for half in range(2):
        x = b.add(x, attention(b, b.rms_norm(x, f"input_layernorm.{half}"), c, s, f"self_attn.{half}"))
        h = b.rms_norm(x, f"post_attention_layernorm.{half}")
        routed = feed_forward(b, h, c) if routed is None else routed
        width = c.size("ffn_hidden_size", "intermediate_size")
        x = b.add(x, gated_mlp(b, h, width, c.text("hidden_act", "silu"), module=f"mlps.{half}"))
    assert routed is not None
    return b.build(hidden=b.add(x, routed))


def counted_as(c: Config) -> str:
    """What training with transformers' class has more than the files."""
    idle = c.filled(_DEFAULTS).size("zero_expert_num", least=0)
    return f"transformers' class makes two products for each of {idle} experts a layer that do nothing" if idle else ""


def blocks(c: Config) -> tuple[Block, ...]:
    """Embedding, layers, head."""
    layers = c.size("num_layers", default=0, least=0) if c.has("num_layers") else 0
    layers = layers or c.size("num_hidden_layers", default=56, least=2) // 2
    c = c.filled(_DEFAULTS)
    s = replace(sizes(c), scaled=True, style="interleaved_cat")
    built = tuple(layer(c, s, i) for i in range(layers))
    return (token_embedding(c), *built, lm_head(c, "model.norm", tied=c.flag("tie_word_embeddings")))
