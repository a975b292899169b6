"""Molmo 2: a tower over flat patches, pooling by attention, and a decoder with further rows of its embedding.

Norms of queries and keys are Qwen 3's or OLMo's, norms of halves before or after them. Training takes the kinds of
tokens along, of which a mask is made for every batch; what it keeps of images is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.nested import inside, renamed
from vramwise.models.layers.decoder import model, token_embedding
from vramwise.models.layers.decoder_design import Design, HeadNorm, LayerKind
from vramwise.models.towers.known_weights import known_weights, norms, product, products
from vramwise.models.towers.tower_design import Weight

_VISION: dict[str, object] = {
    "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 25, "num_attention_heads": 16,
    "num_key_value_heads": 16, "head_dim": 72, "patch_size": 14, "num_channels": 3, "attention_bias": True,
}  # fmt: skip
_ADAPTER: dict[str, object] = {
    "vision_feature_layer": [24, 18], "hidden_size": 1152, "num_attention_heads": 16, "num_key_value_heads": 16,
    "head_dim": 72, "attention_bias": True, "intermediate_size": 18_944, "text_hidden_size": 3584,
}  # fmt: skip
_TEXT: dict[str, object] = {
    "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936,
    "additional_vocab_size": 128, "num_hidden_layers": 36, "intermediate_size": 12_288,
}  # fmt: skip
"""Defaults of `Molmo2VisionConfig`, `Molmo2AdapterConfig` and `Molmo2TextConfig` (transformers 5.23)."""
_FORMER_KEYS = {
    "image_default_input_size": "image_size", "image_patch_size": "patch_size",
    "image_num_pos": "num_position_embeddings", "vit_layers": "vision_feature_layer", "qkv_bias": "attention_bias",
}  # fmt: skip
"""Keys of the published checkpoints' files."""


def part(c: Config, names: tuple[str, ...], defaults: dict[str, object]) -> Config:
    """One of the config's tables, under any of its names, with the class's defaults."""
    given = next((found for found in map(c.table, names) if found is not None), Config({}, c.model_id))
    return Config({_FORMER_KEYS.get(k, k): v for k, v in given.values.items()}, c.model_id).filled(defaults)


def attention(c: Config, name: str, read: int) -> list[Weight]:
    """Queries, keys and values of what is read, and the product behind them."""
    d, bias = c.size("head_dim"), c.flag("attention_bias")
    columns, shared = c.num_attention_heads * d, c.size("num_key_value_heads") * d
    return [
        *product(f"{name}.q_proj", columns, read, bias),
        *products((f"{name}.k_proj", f"{name}.v_proj"), shared, read, bias),
        *product(f"{name}.o_proj", c.hidden_size, columns, bias),
    ]  # fmt: skip


def positions(v: Config) -> int:
    """Patches of an image of the tower's own size."""
    height, width = (Config({"image_size": side}, v.model_id).size("image_size") for side in _sides(v))
    return v.size("num_position_embeddings", default=(height // v.size("patch_size")) * (width // v.size("patch_size")))


def _sides(v: Config) -> list[object]:
    sides = v.items("image_size") or [378, 378]
    if len(sides) != 2:
        raise v.error(f"image_size: expected height and width, got {len(sides)} numbers")
    return list(sides)


def tower(c: Config, v: Config, chosen: list[int]) -> list[Block]:
    """Flat patches and positions, and layers; published files name more layers than are read, which none holds."""
    width, inner, count = v.hidden_size, v.intermediate_size, v.num_hidden_layers
    if c.has("vit_config") and not c.has("vision_config"):
        count = max(i % count for i in chosen) + 1
    ends: list[Weight] = [
        ("positional_embedding", (positions(v), width)),
        *product("patch_embedding", width, v.size("patch_size") ** 2 * v.size("num_channels")),
    ]
    layer = [
        *norms(("layer_norm1", "layer_norm2"), width), *attention(v, "self_attn", width),
        *product("mlp.fc1", inner, width), *product("mlp.fc2", width, inner),
    ]  # fmt: skip
    name = "model.vision_tower"
    layers = [known_weights(f"{name}.layers.{i}", layer, "a layer over patches") for i in range(count)]
    return [known_weights(name, ends, "an embedding of patches"), *layers]


def adapter(a: Config, chosen: int) -> Block:
    """Attention that pools patches of some layers side by side, and a gated MLP."""
    inner, bias = a.intermediate_size, a.flag("mlp_bias")
    weights = [
        *attention(a, "image_pooling_2d", a.hidden_size * chosen),
        *products(("image_projector.gate_proj", "image_projector.up_proj"), inner, a.hidden_size, bias),
        *product("image_projector.down_proj", a.size("text_hidden_size"), inner, bias=False),
    ]
    return known_weights("model.multi_modal_projector", weights, "patches pooled by attention", part="projector")


def language(t: Config) -> tuple[Block, ...]:
    """The decoder; its embedding has rows that its head has not."""
    kind, halves = t.text("qk_norm_type", "qwen3"), ("input_layernorm", "post_attention_layernorm")
    if kind not in ("qwen3", "olmo"):
        raise t.error(f"qk_norm_type: expected qwen3 or olmo, got {kind}")
    after = t.flag("norm_after")
    s = Design(
        norms=(None, halves[0], None, halves[1]) if after else (halves[0], None, halves[1], None),
        qkv_bias=t.flag("attention_bias"), qk_norm=HeadNorm("projection" if kind == "olmo" else "heads"),
        attention={"masked": True},
    )  # fmt: skip
    scaled = t.items("rope_scaling_layers")
    tables = ["default" if scaled is None or i in scaled else "unscaled" for i in range(t.num_hidden_layers)]
    _, *rest = model(t, s, [LayerKind(table=table) for table in tables])
    rows = t.vocab_size + t.size("additional_vocab_size", least=0)
    first = token_embedding(Config({**t.values, "vocab_size": rows}, t.model_id))
    return tuple(renamed(block, inside("model.language_model")) for block in (first, *rest))


def blocks(c: Config) -> tuple[Block, ...]:
    """Tower, adapter, language model, whose head is never tied."""
    v, a = part(c, ("vision_config", "vit_config"), _VISION), part(c, ("adapter_config",), _ADAPTER)
    t = part(c, ("text_config",), _TEXT)
    t = Config({**t.values, "tie_word_embeddings": False}, c.model_id)
    chosen = [int(i) for i in a.items("vision_feature_layer") or [] if isinstance(i, int)]
    if not chosen:
        raise c.error("adapter_config.vision_feature_layer names no layer")
    return (*tower(c, v, chosen), adapter(a, len(chosen)), *language(t))
