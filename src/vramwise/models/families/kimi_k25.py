"""Kimi K2.5: a vision tower over patches of frames, a projector, and DeepSeek V3's text model (as Kimi K2's)."""

from __future__ import annotations

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, language_model
from vramwise.models.towers.clip_layer import mlp

# Defaults of Kimi_K25VisionConfig (transformers 5.23), and the names of the same sizes in the hub's own code.
_DEFAULTS = {
    "patch_size": 14, "pos_emb_height": 64, "pos_emb_width": 64, "num_attention_heads": 16, "num_hidden_layers": 27,
    "hidden_size": 1152, "intermediate_size": 4304, "hidden_act": "gelu_pytorch_tanh", "merge_kernel_size": (2, 2),
}  # fmt: skip
_OWN_NAMES = {
    "hidden_size": "vt_hidden_size", "intermediate_size": "vt_intermediate_size",
    "num_attention_heads": "vt_num_attention_heads", "num_hidden_layers": "vt_num_hidden_layers",
    "pos_emb_height": "init_pos_emb_height", "pos_emb_width": "init_pos_emb_width",
}  # fmt: skip


def vision_config(c: Config) -> Config:
    """The vision part's sizes, by either name."""
    v = c.table("vision_config") or Config({}, c.model_id)
    own = {name: v.values[other] for name, other in _OWN_NAMES.items() if v.has(other)}
    return Config({**own, **{k: x for k, x in v.values.items() if x is not None}}, c.model_id).filled(_DEFAULTS)


def builder(name: str) -> BlockBuilder:
    return BlockBuilder(name, part="vision", modality="image")


def embedding(v: Config, name: str) -> Block:
    """Patches, one convolution each, plus a learned grid that is interpolated to the image's size."""
    b = builder(f"{name}.patch_embed")
    width, patch = v.hidden_size, v.size("patch_size")
    weights = [b.parameter("proj", "weight", (width, 3, patch, patch)), b.parameter("proj", "bias", (width,))]
    x = b.op("patch_embedding", "proj", [], [width], weights)[0]
    grid = (v.size("pos_emb_height"), v.size("pos_emb_width"), width)
    return b.build(image=b.unary("add_grid", x, "pos_emb", [b.parameter("pos_emb", "position_embeddings", grid)]))


def layer(v: Config, name: str, index: int) -> Block:
    """A pre-norm encoder layer with rotary positions."""
    b = builder(f"{name}.layers.{index}")
    heads, width = v.num_attention_heads, v.hidden_size
    if width % heads:
        raise v.error(f"num_attention_heads ({heads}) of the vision tower does not divide its hidden_size ({width})")
    x = b.input("image", width)
    h = b.layer_norm(x, "norm1", part="vision")
    q, k, w = (b.heads_first(b.heads(b.linear(h, f"attn.{n}_proj", width, bias=True), heads)) for n in "qkv")
    q, k = b.rotary(q, k)
    mixed = b.attention(q, k, w, num_heads=heads, num_key_value_heads=heads, causal=False, cache=None)
    x = b.add(x, b.linear(mixed, "attn.proj", width, bias=True, shard="row"))
    return b.build(image=b.add(x, mlp(b, b.layer_norm(x, "norm2", part="vision"), v, "mlp")))


def projector(c: Config, v: Config, name: str, width: int) -> Block:
    """Norm of each patch, neighbouring patches joined, two linear layers."""
    b = BlockBuilder(name, part="projector", modality="image")
    rows, columns = (v.items("merge_kernel_size") or [2, 2])[:2]
    joined = v.hidden_size * int(rows) * int(columns)
    x: Value = b.layer_norm(
        b.input("image", c.size("projection_hidden_size", default=1152)), "pre_norm", part="projector"
    )
    h = b.linear(b.unary("join_patches", x, width=joined), "in_proj", joined, bias=True)
    return b.build(image=b.linear(b.activation(h, "gelu"), "out_proj", width, bias=True, shard="row"))


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, projector, language model."""
    v, text = vision_config(c), c.table("text_config") or Config({}, c.model_id)
    kind = text.text("model_type", "deepseek_v3")
    kind = "deepseek_v3" if kind == "kimi_k2" else kind
    tied = c.flag("tie_word_embeddings", True)
    text = Config({**text.values, "model_type": kind, "tie_word_embeddings": tied}, c.model_id)
    name = "model.vision_tower"
    b = builder(name)
    closing = b.build(image=b.layer_norm(b.input("image", v.hidden_size), "final_layernorm", part="vision"))
    language = language_model(text, inside("model.language_model"))
    return (
        embedding(v, name), *(layer(v, name, i) for i in range(v.num_hidden_layers)), closing,
        projector(c, v, "model.mm_projector", language[-1].inputs["hidden"].width), *language,
    )  # fmt: skip
