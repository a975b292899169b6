"""wav2vec 2.0 and HuBERT: convolutions over samples, and an encoder over their frames; all of part `audio`.

Bare, or with the product to characters of `Wav2Vec2ForCTC`. The parameters are those of transformers 5.23; what
training keeps is not described, for frames are masked at random and layers left out.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.towers.known_weights import known_weights, product, products
from vramwise.models.towers.tower_design import Weight

CLASS_DEFAULTS: dict[str, object] = {
    "vocab_size": 32, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "conv_dim": [512] * 7, "conv_kernel": [10, 3, 3, 3, 3, 2, 2],
    "num_conv_pos_embeddings": 128, "num_conv_pos_embedding_groups": 16, "mask_time_prob": 0.05,
    "num_adapter_layers": 3, "adapter_kernel_size": 3,
}  # fmt: skip
"""Defaults of `Wav2Vec2Config` and `HubertConfig`."""


def task(c: Config) -> str:
    """It predicts no tokens one after another."""
    return "none"


def writes(c: Config) -> bool:
    """Whether the config names the class with a product to characters."""
    return any(str(name).endswith("ForCTC") for name in c.items("architectures") or [])


def _norm(name: str, width: int) -> tuple[Weight, Weight]:
    return (f"{name}.weight", (width,)), (f"{name}.bias", (width,))


def convolutions(c: Config) -> list[Weight]:
    """One convolution after another over samples; all are normed, or the first one by groups."""
    widths, kernels, every = c.sizes("conv_dim"), c.sizes("conv_kernel"), c.text("feat_extract_norm", "group")
    if not widths or len(widths) != len(kernels):
        raise c.error(f"conv_dim ({len(widths)} numbers) and conv_kernel ({len(kernels)}) name the same convolutions")
    if every not in ("group", "layer"):
        raise c.error(f"feat_extract_norm: expected group or layer, got {every}")
    found: list[Weight] = []
    for index, (given, width, kernel) in enumerate(zip([1, *widths], widths, kernels, strict=False)):
        name = f"feature_extractor.conv_layers.{index}"
        found.append((f"{name}.conv.weight", (width, given, kernel)))
        if c.flag("conv_bias"):
            found.append((f"{name}.conv.bias", (width,)))
        found += _norm(f"{name}.layer_norm", width) if every == "layer" or not index else ()
    last = widths[-1]
    normed = c.flag("feat_proj_layer_norm", True) or c.model_type != "hubert"
    found += _norm("feature_projection.layer_norm", last) if normed else ()
    return [*found, *product("feature_projection.projection", c.hidden_size, last)]


def before_layers(c: Config) -> list[Weight]:
    """What stands in for masked frames, the convolution that tells places apart, and a norm."""
    width, kernel, groups = c.hidden_size, c.size("num_conv_pos_embeddings"), c.size("num_conv_pos_embedding_groups")
    if width % groups:
        raise c.error(f"num_conv_pos_embedding_groups ({groups}) does not divide hidden_size ({width})")
    masks = c.number("mask_time_prob") > 0 or c.number("mask_feature_prob") > 0
    name = "encoder.pos_conv_embed"
    weight = f"{name}.conv.parametrizations.weight"
    place: list[Weight] = [
        (f"{name}.conv.bias", (width,)), (f"{weight}.original0", (1, 1, kernel)),
        (f"{weight}.original1", (width, width // groups, kernel)),
    ]  # fmt: skip
    if c.model_type == "hubert" and c.flag("conv_pos_batch_norm"):
        place = [(f"{name}.conv.weight", (width, width // groups, kernel)), (f"{name}.conv.bias", (width,)),
                 *_norm(f"{name}.batch_norm", width)]  # fmt: skip
    return [*([("masked_spec_embed", (width,))] if masks else []), *place, *_norm("encoder.layer_norm", width)]


def layer(c: Config) -> list[Weight]:
    """Attention, feed-forward, their norms; an adapter for each language in stable layers that have them."""
    width, inner = c.hidden_size, c.intermediate_size
    found = products([f"attention.{name}_proj" for name in ("k", "v", "q", "out")], width, width)
    found += [*_norm("layer_norm", width), *product("feed_forward.intermediate_dense", inner, width)]
    found += [*product("feed_forward.output_dense", width, inner), *_norm("final_layer_norm", width)]
    if c.flag("do_stable_layer_norm") and c.has("adapter_attn_dim"):
        narrow = c.size("adapter_attn_dim")
        found += [*_norm("adapter_layer.norm", width), *product("adapter_layer.linear_1", narrow, width)]
        found += product("adapter_layer.linear_2", width, narrow)
    return found


def shortening(c: Config) -> list[Weight]:
    """Convolutions behind the layers that make fewer frames, where the config adds them."""
    if c.model_type == "hubert" or not c.flag("add_adapter"):
        return []
    width = c.size("output_hidden_size", default=c.hidden_size)
    found: list[Weight] = []
    if width != c.hidden_size:
        found = [*product("adapter.proj", width, c.hidden_size), *_norm("adapter.proj_layer_norm", width)]
    for index in range(c.size("num_adapter_layers")):
        name, kernel = f"adapter.layers.{index}.conv", c.size("adapter_kernel_size")
        found += [(f"{name}.weight", (2 * width, width, kernel)), (f"{name}.bias", (2 * width,))]
    return found


def _block(name: str, weights: list[Weight], what: str, index: int | None = None) -> Block:
    return known_weights(name, weights, what, part="audio", modality="audio", layer=index)


def blocks(config: Config) -> tuple[Block, ...]:
    """Convolutions, layers, and the product to characters."""
    c = config.filled(CLASS_DEFAULTS)
    c.heads_of(c.hidden_size)
    name = c.model_type if writes(c) else ""
    inside = f"{name}." if name else ""
    first = _block(name, [*convolutions(c), *before_layers(c)], "convolutions over samples")
    layers = (_block(f"{inside}encoder.layers.{i}", layer(c), "a layer over frames", i)
              for i in range(c.num_hidden_layers))  # fmt: skip
    behind, last = shortening(c), product("lm_head", c.vocab_size, shortened(c))
    more = (_block(name, behind, "convolutions over frames"),) if behind else ()
    return (first, *layers, *more, *((_block("", last, "characters"),) if name else ()))


def shortened(c: Config) -> int:
    """The width of what comes out."""
    return c.size("output_hidden_size", default=c.hidden_size) if c.flag("add_adapter") else c.hidden_size
