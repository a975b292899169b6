"""Projectors of Aria, Aya Vision, GOT-OCR 2, Idefics 2, MOSS and Llama 4: queries, gates, convolutions, pixels."""

from __future__ import annotations

from vramwise.models.blocks import BlockBuilder, Value
from vramwise.models.config import Config
from vramwise.models.towers.projectors import Ends, features, gated, joined, norm, two_products

# Defaults of Idefics2PerceiverConfig (transformers 5.23).
_PERCEIVER = {
    "resampler_n_latents": 64, "resampler_depth": 3, "resampler_n_heads": 16, "resampler_head_dim": 96,
    "num_key_value_heads": 4,
}  # fmt: skip


def aya(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A norm of joined patches and a gated MLP whose first product makes both halves."""
    if len(e.taken) > 1:
        raise e.model.error(f"vision_feature_layer: expected one layer, whose width the norm has, got {len(e.taken)}")
    x = joined(b, features(b, x, e), e.model.size("downsample_factor", default=2) ** 2, "grid")
    x = norm(b, x, "layernorm")
    inner = e.model.size("alignment_intermediate_size", default=e.width)
    gate, up = b.split(b.linear(x, "linear_1", inner, bias=True), [inner // 2, inner // 2])
    return b.linear(b.multiply(gate, b.activation(up, "silu")), "linear_2", e.width, bias=True, shard="row")


def aria(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Learned queries that read the patches by attention, then a plain MLP."""
    counts = (e.model.table("projector_patch_to_query_dict") or Config({"1225": 128, "4900": 256})).values
    width, queries = x.width, max(Config(counts).size(name) for name in counts)
    h = norm(b, x, "cross_attn.layer_norm_kv")
    for name in "kv":
        h = b.linear(h, f"cross_attn.{name}_proj", width)
    q = b.unary("queries", h, "", [b.parameter("", "query", (queries, width))])
    q = b.linear(norm(b, q, "cross_attn.layer_norm"), "cross_attn.q_proj", width)
    inner = "cross_attn.multihead_attn"
    weights = [
        b.parameter(inner, "in_proj_weight", (3 * width, width)), b.parameter(inner, "in_proj_bias", (3 * width,)),
        b.parameter(inner, "out_proj.weight", (width, width), is_linear=True),
        b.parameter(inner, "out_proj.bias", (width,)),
    ]  # fmt: skip
    mixed = b.linear(b.unary("cross_attention", q, inner, weights), "cross_attn.linear", width, bias=True)
    names = ("feed_forward.linear_in", "feed_forward.linear_out")
    return two_products(b, norm(b, mixed, "layer_norm"), names, (e.width, e.width), bias=False)


def got_ocr2(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Two convolutions that each halve the sides, and a product."""
    channels = e.tower.size("output_channels")
    for index, (given, made) in enumerate(((channels, 2 * channels), (2 * channels, e.width)), 1):
        weight = b.parameter(f"conv_upsampler{index}", "weight", (made, given, 3, 3))
        x = b.unary("halving_convolution", x, f"conv_upsampler{index}", [weight], made)
    return b.linear(b.unary("as_tokens", x), "multimodal_projector", e.width, bias=True)


def moss(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Frames side by side, two products, a norm."""
    x = joined(b, x, e.model.size("audio_merge_size", default=4))
    bias = e.model.flag("projector_bias", True)
    return norm(b, two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width), bias), "norm")


def idefics2(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A gated MLP, then learned latents that read the patches by attention, layer by layer."""
    text = e.model.table("text_config") or Config({}, e.model.model_id)
    inner = text.size("intermediate_size", default=14_336)
    x = gated(b, x, inner, e.width, "modality_projection.")
    c = (e.model.table("perceiver_config") or Config({}, e.model.model_id)).filled(_PERCEIVER)
    heads, groups, d = c.size("resampler_n_heads"), c.size("num_key_value_heads"), c.size("resampler_head_dim")
    name = "perceiver_resampler"
    latents = b.parameter(name, "latents", (c.size("resampler_n_latents"), e.width))
    q = b.unary("queries", x, name, [latents])
    for i in range(c.size("resampler_depth", least=0)):
        layer = f"{name}.layers.{i}"
        h = b.rms_norm(q, f"{layer}.input_latents_norm", part="projector")
        read = b.op("joined_tokens", layer, [b.rms_norm(x, f"{layer}.input_context_norm", part="projector"), h],
                    [e.width])[0]  # fmt: skip
        pieces = ((h, "q", heads), (read, "k", groups), (read, "v", groups))
        heads_of = [b.linear(y, f"{layer}.self_attn.{piece}_proj", count * d) for y, piece, count in pieces]
        mixed = b.op("cross_attention", layer, heads_of, [heads * d])[0]
        q = b.add(q, b.linear(mixed, f"{layer}.self_attn.o_proj", e.width, shard="row"))
        h = b.rms_norm(q, f"{layer}.post_attention_layernorm", part="projector")
        q = b.add(q, gated(b, h, 4 * e.width, e.width, f"{layer}.mlp."))
    return b.rms_norm(q, f"{name}.norm", part="projector")


def llama4(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """The tower's own adapter over shuffled pixels, and one product."""
    share = e.tower.number("pixel_shuffle_ratio", 0.5)
    inner, out = (e.tower.size(f"projector_{end}_dim", default=4096) for end in ("input", "output"))
    if not 0 < share <= 1 or inner != out:
        raise e.model.error("vision_config: pixel_shuffle_ratio must be above 0, projector dims equal")
    x = b.unary("without_last", x)
    x = b.unary("join_squares", x, width=e.tower.intermediate_size, tokens=int(1 / share) ** 2)
    for index, (name, width) in enumerate(zip(("fc1", "fc2"), (inner, out), strict=True)):
        x = b.activation(b.linear(x, f"vision_model.vision_adapter.mlp.{name}", width), "gelu")
        x = b.dropout(x, e.tower.number("projector_dropout")) if not index else x
    x = b.unary("all_rows", x, width=e.tower.size("vision_output_dim", default=7680))
    return b.linear(x, "multi_modal_projector.linear_1", e.width)
