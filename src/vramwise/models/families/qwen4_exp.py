"""Qwen 4 (experimental): four residual streams, gated DeltaNet, attention to chosen blocks, n-gram embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.caches import LayerCache
from vramwise.models.config import Config
from vramwise.models.families.moe import with_gated_shared_expert
from vramwise.models.families.qwen3_next import experts
from vramwise.models.layers import delta_net
from vramwise.models.layers.gated_attention import attention
from vramwise.models.layers.hybrid import layer_kinds
from vramwise.models.layers.ngrams import NGrams, layer_embedding, ngrams
from vramwise.models.layers.residual_streams import half, mixed_input
from vramwise.models.layers.sparse import Experts, balancing_loss
from vramwise.models.towers.qwen3_vision import vision_tower

# Defaults of Qwen4ExpTextConfig (transformers 5.23).
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 248_320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "hidden_act": "silu", "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 10, "num_experts": 512, "hc_count": 4, "hc_lowrank": 320,
}  # fmt: skip
_KINDS = {"full_attention": "indexed_attention"}
"""Checkpoints name attention to chosen blocks as full."""


def indexed_attention(b: BlockBuilder, x: Value, c: Config, first: bool) -> Value:
    """Gated attention to the tokens of blocks whose mean keys score best; the first keeps positions on three axes."""
    module, width = "self_attn.indexer", c.size("indexer_head_dim")
    heads = c.size("indexer_n_heads") + c.size("indexer_kv_heads")
    b.part = "attention"
    parameters = [
        b.parameter(f"{module}.index_qk_proj", "weight", (heads * width, x.width), is_linear=True),
        *(b.parameter(f"{module}.{piece}_layernorm", "weight", (width,), part="norm") for piece in "qk"),
    ]
    b.op("block_index", module, [x], [], parameters)
    b.keep(LayerCache("full", 1, width, 0, token_ids=3 if first else 0))
    return attention(b, x, c, "rows", share=1.0, masked=True)


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
    x = b.op("injected", "", [x, h, weights], [x.width])[0]
    h, weights = half(b, x, c, "mlp_hyper_connection")
    h = with_gated_shared_expert(b, h, e, c.size("shared_expert_intermediate_size"))
    return b.build(hidden=b.op("injected", "", [x, h, weights], [x.width])[0])


def text_blocks(c: Config, name: str, *, tied: bool) -> tuple[Block, ...]:
    """Embedding copied to every stream, layers, the streams' mean, head."""
    c = c.filled(_DEFAULTS)
    if c.size("hc_count") < 2:
        raise c.error("hc_count: at least two streams")
    period = c.size("full_attention_interval", default=4)
    default = ["linear_attention" if (i + 1) % period else "indexed_attention" for i in range(c.num_hidden_layers)]
    kinds = layer_kinds(c, default, allowed=("linear_attention", "indexed_attention", "full_attention"))
    kinds = [_KINDS.get(kind, kind) for kind in kinds]
    e, tables = experts(c), ngrams(c, kinds)
    if e is None:
        raise c.error("num_experts: at least one")
    b = BlockBuilder("")
    x = b.embedding(f"{name}.embed_tokens", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.unary("repeat_streams", x, width=c.size("hc_count") * c.hidden_size))
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
