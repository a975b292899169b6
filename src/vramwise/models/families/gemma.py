"""Gemma 1 to 3, VaultGemma: scaled embeddings, (1 + weight) norms; from Gemma 2 on norms after, two kinds of layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vramwise.models.blocks import Block, BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.families.siglip import projector
from vramwise.models.layers.parts import gated_mlp
from vramwise.models.towers.vision_kinds import DEFAULTS as TOWER_DEFAULTS
from vramwise.models.towers.vision_kinds import siglip_blocks
from vramwise.models.towers.vision_tower import image_tokens

# Defaults of GemmaConfig, Gemma2Config and Gemma3TextConfig (transformers 5.23); published configs leave many out.
_SECOND: dict[str, Any] = {
    "vocab_size": 256_000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma": {
        "vocab_size": 256_000, "hidden_size": 3072, "intermediate_size": 24_576, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 256,
    },
    "gemma2": _SECOND,
    "gemma3_text": {**_SECOND, "vocab_size": 262_208},
    "vaultgemma": _SECOND,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Switches:
    """What differs between the generations."""

    norms_after: bool = False
    mlp_norm: str = "pre_feedforward_layernorm"
    qk_norm: bool = False
    attention_softcap: bool = False
    eager_only: bool = False
    logit_softcap: bool = False


def switches(c: Config, model_type: str) -> Switches:
    """The switches of a generation; transformers lets Gemma 2 run without SDPA only, for the cap on its scores."""
    if model_type == "gemma":
        return Switches(mlp_norm="post_attention_layernorm")
    if model_type in ("gemma2", "vaultgemma"):
        # An explicit null switches a cap off, an absent key leaves the class default of 50 and 30 on.
        caps = [c.values.get(f"{name}_logit_softcapping", 1.0) is not None for name in ("attn", "final")]
        after = model_type == "gemma2"
        return Switches(norms_after=after, attention_softcap=caps[0], eager_only=True, logit_softcap=caps[1])
    return Switches(norms_after=True, qk_norm=True, logit_softcap=c.has("final_logit_softcapping"))


def layer_windows(c: Config, model_type: str) -> list[int | None]:
    """The window of each layer: every second layer of Gemma 2 is full, every sixth of Gemma 3, all of the first."""
    layers = c.num_hidden_layers
    if model_type == "gemma":
        return [None] * layers
    window = c.size("sliding_window")
    if model_type == "gemma3_text" and c.flag("use_bidirectional_attention"):
        window = window // 2 + 1
    types = c.layer_types()
    if types is None:
        period = 2 if model_type in ("gemma2", "vaultgemma") else c.size("sliding_window_pattern", default=6)
        types = ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(layers)]
    return [window if kind == "sliding_attention" else None for kind in types]


def attention(b: BlockBuilder, x: Value, c: Config, s: Switches, window: int | None) -> Value:
    """Grouped-query attention; Gemma 3 norms the turned heads and has a rotary table per kind of layer."""
    heads, groups, d = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    bias = c.flag("attention_bias")
    b.part = "attention"
    q = b.heads_first(b.heads(b.linear(x, "self_attn.q_proj", heads * d, bias=bias), heads))
    k = b.heads_first(b.heads(b.linear(x, "self_attn.k_proj", groups * d, bias=bias), groups))
    v = b.heads_first(b.heads(b.linear(x, "self_attn.v_proj", groups * d, bias=bias), groups))
    if s.qk_norm:
        q = b.rms_norm(q, "self_attn.q_norm", style="gemma")
        k = b.rms_norm(k, "self_attn.k_norm", style="gemma")
    q, k = b.rotary(q, k, table="sliding" if s.qk_norm and window else "default")
    mixed = b.attention(
        q, k, v, num_heads=heads, num_key_value_heads=groups, window=window, dropout=c.number("attention_dropout"),
        causal=not c.flag("use_bidirectional_attention"), softcap=s.attention_softcap, eager_only=s.eager_only,
    )  # fmt: skip
    return b.linear(mixed, "self_attn.o_proj", x.width, bias=bias, shard="row")


def layer(c: Config, s: Switches, name: str, index: int, window: int | None, function: str) -> Block:
    """A decoder layer with norms before, and from Gemma 2 on also after, attention and MLP."""
    b = BlockBuilder(f"{name}.layers.{index}", layer=index)
    x = b.input("hidden", c.hidden_size)
    h = attention(b, b.rms_norm(x, "input_layernorm", style="gemma"), c, s, window)
    if s.norms_after:
        h = b.rms_norm(h, "post_attention_layernorm", style="gemma")
    x = b.add(x, h)
    h = b.rms_norm(x, s.mlp_norm, style="gemma")
    h = gated_mlp(b, h, c.intermediate_size, function)
    if s.norms_after:
        h = b.rms_norm(h, "post_feedforward_layernorm", style="gemma")
    return b.build(hidden=b.add(x, h))


def text_blocks(c: Config, model_type: str, name: str, *, tied: bool, with_images: bool = False) -> tuple[Block, ...]:
    """Embedding, layers and head of the language model named `name`; with images its logits are never capped."""
    s = switches(c, model_type)
    c = c.filled(_DEFAULTS[model_type])
    b = BlockBuilder("")
    embedded = b.embedding(f"{name}.embed_tokens", c.vocab_size, c.hidden_size)
    first = b.build(hidden=b.scale_by_buffer(embedded, f"{name}.embed_tokens"))
    function = c.text("hidden_act" if model_type == "gemma" else "hidden_activation", "gelu_pytorch_tanh")
    windows = layer_windows(c, model_type)
    layers = (layer(c, s, name, i, windows[i], function) for i in range(c.num_hidden_layers))
    b = BlockBuilder("")
    x = b.rms_norm(b.input("hidden", c.hidden_size), f"{name}.norm", style="gemma")
    tied_to = f"{name}.embed_tokens.weight" if tied else None
    logits = b.linear(x, "lm_head", c.vocab_size, shard="vocab", part="head", tied_to=tied_to)
    return (first, *layers, b.build(logits=b.softcap(logits) if s.logit_softcap and not with_images else logits))


def blocks(c: Config) -> tuple[Block, ...]:
    """The language model; with images, the vision tower and the projector before it."""
    tied = c.flag("tie_word_embeddings", True)
    if c.model_type != "gemma3":
        return text_blocks(c, c.model_type, "model", tied=tied)
    text = c.table("text_config") or Config({}, c.model_id)
    vision = (c.table("vision_config") or Config({}, c.model_id)).filled(TOWER_DEFAULTS["siglip_vision_model"])
    width = text.filled(_DEFAULTS["gemma3_text"]).hidden_size
    tokens = c.size("mm_tokens_per_image", default=256)
    embedding, *language = text_blocks(text, "gemma3_text", "model.language_model", tied=tied, with_images=True)
    return (
        *siglip_blocks(vision, "model.vision_tower"),
        projector(vision, "model.multi_modal_projector", width, tokens),
        embedding, image_tokens(width, see_each_other="all"), *language,
    )  # fmt: skip
