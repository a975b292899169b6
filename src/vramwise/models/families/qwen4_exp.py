"""Qwen 4 (experimental): four residual streams, gated DeltaNet, attention to chosen blocks, n-gram embeddings."""

from __future__ import annotations

from dataclasses import replace

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.qwen3_next import SHARED, routed
from vramwise.models.layers import delta_net
from vramwise.models.layers.gated_attention import indexed_attention
from vramwise.models.layers.layer_kinds import every, layer_kinds
from vramwise.models.layers.mixture import with_gated_shared_expert
from vramwise.models.layers.ngrams import NGrams, layer_embedding, ngrams
from vramwise.models.layers.residual_streams import half, mixed_input
from vramwise.models.layers.routed_experts import Experts, balancing_loss
from vramwise.models.operations.residual_streams import Injected, RepeatStreams
from vramwise.models.towers.qwen3_vision import vision_tower

# Defaults of Qwen4ExpTextConfig (transformers 5.23).
_DEFAULTS: dict[str, object] = {
    **SHARED, "vocab_size": 248_320, "hidden_size": 2048, "num_hidden_layers": 40, "num_key_value_heads": 2,
    "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10,
    "num_experts": 512, "hc_count": 4, "hc_lowrank": 320,
}  # fmt: skip
_KINDS = {"full_attention": "indexed_attention"}
"""Checkpoints name attention to chosen blocks as full."""


def layer(c: Config, name: str, index: int, kinds: list[str], e: Experts, n: NGrams | None) -> Block:
    b = BlockBuilder(f"{name}.layers.{index}", layer=index)
    x = b.input("hidden", c.size("hc_count") * c.hidden_size)
    if n is not None:
        x = b.add(x, layer_embedding(b, x, c, n))
    h, weights = half(b, x, c, "attn_hyper_connection")
    if kinds[index] == "linear_attention":
        gate = c.text("output_gate_type") or c.text("hidden_act")
        h = delta_net.mixer(b, h, replace(delta_net.sizes(c), gate=gate), fused=False)
    else:
        h = indexed_attention(b, h, c, first=kinds.index("indexed_attention") == index)
    x = b.op(Injected(), "", [x, h, weights], [x.width])[0]
    h, weights = half(b, x, c, "mlp_hyper_connection")
    h = with_gated_shared_expert(b, h, e, c.size("shared_expert_intermediate_size"))
    return b.build(hidden=b.op(Injected(), "", [x, h, weights], [x.width])[0])


def text_blocks(c: Config, name: str, *, tied: bool) -> tuple[Block, ...]:
    """Embedding copied to every stream, layers, the streams' mean, head."""
    c = c.filled(_DEFAULTS)
    if c.size("hc_count") < 2:
        raise c.error("hc_count: at least two streams")
    default = every(c, c.size("full_attention_interval"))
    kinds = layer_kinds(c, default, allowed=("linear_attention", "indexed_attention", "full_attention"))
    kinds = [_KINDS.get(kind, kind) for kind in kinds]
    e, tables = routed(c), ngrams(c, kinds)
    if e is None:
        raise c.error("num_experts: at least one")
    b = BlockBuilder("")
    x = b.embedding(f"{name}.embed_tokens", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.unary(RepeatStreams(), x, width=c.size("hc_count") * c.hidden_size))
    layers = [layer(c, name, i, kinds, e, tables.get(i)) for i in range(len(kinds))]
    b = BlockBuilder(name)
    mean = mixed_input(b, b.input("hidden", first.outputs["hidden"].width), c, "hyper_connection_mixer")[0]
    last = b.build(hidden=mean)
    b = BlockBuilder("")
    tied_to = f"{name}.embed_tokens.weight" if tied else None
    x = b.input("hidden", c.hidden_size)
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return (first, *layers, last, *balancing_loss(c, e, len(layers)), b.build(logits=logits))


def blocks(c: Config) -> tuple[Block, ...]:
    """The language model, as it is published with its vision tower before it."""
    tied = c.flag("tie_word_embeddings")
    if c.model_type == "qwen4_exp_text":
        return text_blocks(c, "model", tied=tied)
    text = c.table("text_config") or Config({}, c.model_id)
    if any("ForCausalLM" in str(name) for name in c.items("architectures") or ()):
        return text_blocks(text, "model", tied=tied)
    vision = c.table("vision_config") or Config({}, c.model_id)
    return (*vision_tower(vision, "model.visual"), *text_blocks(text, "model.language_model", tied=tied))
