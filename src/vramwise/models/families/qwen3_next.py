"""Qwen 3 Next and Qwen 3.5: three layers of gated DeltaNet to one of gated attention, dense or with experts."""

from __future__ import annotations

from typing import Any

from vramwise.models.blocks import Block, BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.moe import with_gated_shared_expert
from vramwise.models.layers import delta_net
from vramwise.models.layers.gated_attention import attention
from vramwise.models.layers.hybrid import every, layer_kinds
from vramwise.models.layers.parts import gated_mlp
from vramwise.models.layers.sparse import Experts, balancing_loss, checked
from vramwise.models.towers.qwen3_vision import vision_tower
from vramwise.models.towers.vision_tower import image_tokens

# Defaults of the configuration classes (transformers 5.23).
_SHARED: dict[str, Any] = {
    "num_attention_heads": 16, "head_dim": 256, "hidden_act": "silu", "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "full_attention_interval": 4,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "qwen3_next": {
        **_SHARED, "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
        "num_key_value_heads": 2, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "num_experts_per_tok": 10, "num_experts": 512, "norm_topk_prob": True,
    },
    "qwen3_5_text": {
        **_SHARED, "vocab_size": 248_320, "hidden_size": 4096, "intermediate_size": 12_288, "num_hidden_layers": 32,
        "num_key_value_heads": 4,
    },
    "qwen3_5_moe_text": {
        **_SHARED, "vocab_size": 248_320, "hidden_size": 2048, "num_hidden_layers": 40, "num_key_value_heads": 2,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8,
        "num_experts": 256,
    },
}  # fmt: skip
KINDS = ("linear_attention", "full_attention")


def experts(c: Config) -> Experts | None:
    """The routed experts of a sparse layer; Qwen 3.5 without "moe" in its name has none."""
    if c.size("num_experts", default=0, least=0) == 0:
        return None
    return checked(c, Experts(
        num_experts=c.size("num_experts"), experts_per_token=c.size("num_experts_per_tok"),
        intermediate_size=c.size("moe_intermediate_size"), function=c.text("hidden_act"), routing="qwen",
        normalized=c.flag("norm_topk_prob", True),
    ))  # fmt: skip


def layer(c: Config, name: str, index: int, kind: str, e: Experts | None) -> Block:
    """A pre-norm decoder layer."""
    b = BlockBuilder(f"{name}.layers.{index}", layer=index)
    fused = c.model_type == "qwen3_next"
    x = b.input("hidden", c.hidden_size)
    h = b.rms_norm(x, "input_layernorm", style="gemma")
    if kind == "full_attention":
        h = attention(b, h, c, "default" if fused else "rows")
    else:
        h = delta_net.mixer(b, h, delta_net.sizes(c), fused=fused)
    x = b.add(x, h)
    h = b.rms_norm(x, "post_attention_layernorm", style="gemma")
    if e is not None:
        h = with_gated_shared_expert(b, h, e, c.size("shared_expert_intermediate_size"))
    else:
        h = gated_mlp(b, h, c.intermediate_size, c.text("hidden_act"))
    return b.build(hidden=b.add(x, h))


def text_blocks(c: Config, name: str, *, tied: bool) -> tuple[Block, ...]:
    """Embedding, layers and head of the language model named `name`."""
    c = c.filled(_DEFAULTS[c.model_type])
    kinds = layer_kinds(c, every(c, c.size("full_attention_interval")), allowed=KINDS)
    e, dense, step = experts(c), c.items("mlp_only_layers") or [], c.size("decoder_sparse_step", default=1)
    if c.model_type != "qwen3_next":
        dense, step = [], 1
    sparse = [e is not None and i not in dense and (i + 1) % step == 0 for i in range(len(kinds))]
    b = BlockBuilder("")
    first = b.build(hidden=b.embedding(f"{name}.embed_tokens", c.vocab_size, c.hidden_size))
    layers = (layer(c, name, i, kind, e if sparse[i] else None) for i, kind in enumerate(kinds))
    loss = balancing_loss(c, e, sum(sparse)) if e is not None else ()
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), f"{name}.norm", style="gemma")
    tied_to = f"{name}.embed_tokens.weight" if tied else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return (first, *layers, *loss, b.build(logits=logits))


def blocks(c: Config) -> tuple[Block, ...]:
    """The language model; Qwen 3.5 as it is published, with its vision tower before it."""
    tied = c.flag("tie_word_embeddings")
    if c.model_type in _DEFAULTS:
        return text_blocks(c, "model", tied=tied)
    given = c.table("text_config")
    text = Config({**(given.values if given else {}), "model_type": f"{c.model_type}_text"}, c.model_id)
    if any("ForCausalLM" in str(name) for name in c.items("architectures") or ()):
        return text_blocks(text, "model", tied=tied)
    vision = c.table("vision_config") or Config({}, c.model_id)
    embedding, *language = text_blocks(text, "model.language_model", tied=tied)
    placed = image_tokens(embedding.outputs["hidden"].width)
    return (*vision_tower(vision, "model.visual"), embedding, placed, *language)
