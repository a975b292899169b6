"""What lies between a tower and the language model: tokens joined, normed and brought to its width."""

from __future__ import annotations

from vramwise.models.blocks import Value
from vramwise.models.builder import BlockBuilder
from vramwise.models.operations.flat_images import JoinUnpadded
from vramwise.models.operations.image_tokens import (
    AveragePool,
    JoinFeaturesOfOne,
    JoinGrid,
    JoinRows,
    JoinSquares,
    Project,
    WithoutFirst,
)
from vramwise.models.operations.packed_images import JoinUnfolded
from vramwise.models.operations.sam import AsTokens, HalvingConvolution
from vramwise.models.operations.tiles import AllRows, WithoutLast
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.projector_pieces import Ends, features, gated, joined, norm, num_features, two_products


def llava(b: BlockBuilder, x: Value, e: Ends) -> Value:
    bias = e.model.flag("multimodal_projector_bias", True)
    return two_products(b, features(b, x, e), ("linear_1", "linear_2"), (e.width, e.width), bias)


def vipllava(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A norm of several layers' results side by side, then as LLaVA."""
    x = norm(b, features(b, x, e), "projector_layernorm")
    return two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width))


def deepseek_vl(b: BlockBuilder, x: Value, e: Ends) -> Value:
    return two_products(b, x, ("linear1", "linear2"), (e.width, e.width))


def minimax_m3(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Two products for each patch, and two for each square of patches."""
    inner = e.model.size("projector_hidden_size", default=6144)
    x = two_products(b, x, ("linear_1", "linear_2"), (inner, e.width))
    return two_products(
        b, joined(b, x, e.tower.size("spatial_merge_size") ** 2), ("merge_linear_1", "merge_linear_2"), (inner, e.width)
    )


def gemma3(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Patches averaged to the tokens of an image, a norm, one matrix."""
    tokens = e.model.size("mm_tokens_per_image", default=256)
    rows = e.tower.size("image_size") // e.tower.size("patch_size")
    x = b.unary(AveragePool(rows=rows, kernel=rows // int(tokens**0.5)), x)
    x = b.rms_norm(x, "mm_soft_emb_norm", style="gemma", part="projector")
    weight = b.parameter("", "mm_input_projection_weight", (x.width, e.width))
    return b.unary(Project(), x, "", [weight], e.width)


def lfm2_vl(b: BlockBuilder, x: Value, e: Ends) -> Value:
    x = joined(b, x, e.model.size("downsample_factor", default=2) ** 2, JoinUnpadded)
    x = norm(b, x, "layer_norm") if e.model.flag("projector_use_layernorm", True) else x
    widths = (e.model.size("projector_hidden_size", default=2560), e.width)
    return two_products(b, x, ("linear_1", "linear_2"), widths, e.model.flag("projector_bias", True))


def mistral3(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A norm, squares of patches merged by a product, then as LLaVA."""
    x = b.rms_norm(x, "norm", part="projector")
    merged = joined(b, x, e.model.size("spatial_merge_size", default=2) ** 2, JoinUnfolded)
    x = joined(b, b.linear(merged, "patch_merger.merging_layer", x.width), num_features(e), JoinFeaturesOfOne)
    bias = e.model.flag("multimodal_projector_bias")
    return two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width), bias)


def internvl(b: BlockBuilder, x: Value, e: Ends) -> Value:
    share = e.model.number("downsample_ratio", 0.5)
    if not 0 < share <= 1:
        raise e.model.error(f"downsample_ratio: expected a number above 0 and at most 1, got {share}")
    if e.model.text("vision_feature_select_strategy", "default") == "default":
        x = b.unary(WithoutFirst(), x)
    x = norm(b, joined(b, x, int(1 / share) ** 2, JoinSquares), "layer_norm")
    return two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width))


def idefics3(b: BlockBuilder, x: Value, e: Ends) -> Value:
    return b.linear(joined(b, x, e.model.size("scale_factor", default=2) ** 2, JoinSquares), "proj", e.width)


def linear(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """One product (PaliGemma, Qwen2-Audio)."""
    return b.linear(x, "linear", e.model.size("projection_dim", default=e.width), bias=True)


def glm4v(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A product, a norm, and a gated MLP."""
    width, inner = e.tower.size("out_hidden_size"), e.tower.intermediate_size
    if e.model.model_type == "glm_ocr":
        inner = width * e.tower.size("in_channels")
    if e.model.model_type == "glm5_next":
        inner = e.tower.size("projection_intermediate_size")
    x = b.unary(AllRows(), x, width=width)
    x = b.activation(norm(b, b.linear(x, "proj", width), "post_projection_norm"), "gelu")
    return gated(b, x, inner, width)


def aya(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A norm of joined patches and a gated MLP whose first product makes both halves."""
    if len(e.taken) > 1:
        raise e.model.error(f"vision_feature_layer: expected one layer, whose width the norm has, got {len(e.taken)}")
    x = joined(b, features(b, x, e), e.model.size("downsample_factor", default=2) ** 2, JoinGrid)
    x = norm(b, x, "layernorm")
    inner = e.model.size("alignment_intermediate_size", default=e.width)
    gate, up = b.split(b.linear(x, "linear_1", inner, bias=True), [inner // 2, inner // 2])
    return b.linear(b.multiply(gate, b.activation(up, "silu")), "linear_2", e.width, bias=True, shard="row")


def cohere2(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Joined patches and a gated MLP whose first product makes both halves."""
    x = joined(b, x, e.model.size("downsample_factor", default=2) ** 2, JoinGrid)
    inner = e.model.size("alignment_intermediate_size", default=36_864)
    up, gate = b.split(b.linear(x, "linear_1", inner, bias=True), [inner // 2, inner // 2])
    return b.linear(b.multiply(b.activation(gate, "silu"), up), "linear_2", e.width, bias=True, shard="row")


def lighton(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A norm, squares of patches merged by a product, then as LLaVA without biases."""
    x = b.rms_norm(x, "norm", part="projector")
    merged = joined(b, x, e.model.size("spatial_merge_size", default=2) ** 2, JoinUnfolded)
    x = b.linear(merged, "patch_merger.merging_layer", x.width)
    return two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width), bias=False)


def paddleocr(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """A norm of patches, squares of them side by side, two products."""
    x = joined(b, norm(b, x, "pre_norm"), e.tower.size("spatial_merge_size") ** 2)
    return two_products(b, x, ("linear_1", "linear_2"), (x.width, e.width))


def voxtral(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """As many frames side by side as the tower's MLP is times as wide, two products without biases."""
    wide = e.tower.intermediate_size
    x = b.unary(JoinRows(tokens=max(wide // x.width, 1)), x, width=wide)
    return two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width), bias=False)


def audioflamingo3(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Two products as wide as the language model."""
    bias = e.model.flag("projector_bias", True)
    return two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width), bias=bias)


def glmasr(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """As many frames side by side as the tower's MLP is times as wide, two products."""
    wide = e.tower.intermediate_size
    x = b.unary(JoinRows(tokens=max(wide // x.width, 1)), x, width=wide)
    return two_products(b, x, ("linear_1", "linear_2"), (2 * e.width, e.width))


def ovis2(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """The table of a vocabulary of images."""
    width = e.model.size("hidden_size", default=1536)
    if not e.model.flag("tie_word_embeddings", True) and width != e.width:
        raise e.model.error(f"hidden_size: expected the language model's ({e.width}), got {width}")
    table = b.parameter("visual_embeddings_table", "weight", (e.tower.vocab_size, width))
    return b.unary(Undescribed(name="a vocabulary of images"), x, "visual_embeddings_table", [table], width=e.width)


def video_llama_3(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Two products as wide as the language model."""
    return two_products(b, x, ("readout.0", "readout.2"), (e.width, e.width))


def qwen3_asr(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Two products, as wide as the tower and as its config says."""
    return two_products(b, x, ("linear_1", "linear_2"), (x.width, e.tower.size("output_dim")))


def got_ocr2(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Two convolutions that each halve the sides, and a product."""
    channels = e.tower.size("output_channels")
    for index, (given, made) in enumerate(((channels, 2 * channels), (2 * channels, e.width)), 1):
        weight = b.parameter(f"conv_upsampler{index}", "weight", (made, given, 3, 3))
        x = b.unary(HalvingConvolution(), x, f"conv_upsampler{index}", [weight], made)
    return b.linear(b.unary(AsTokens(), x), "multimodal_projector", e.width, bias=True)


def moss(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """Frames side by side, two products, a norm."""
    x = joined(b, x, e.model.size("audio_merge_size", default=4))
    bias = e.model.flag("projector_bias", True)
    return norm(b, two_products(b, x, ("linear_1", "linear_2"), (e.width, e.width), bias), "norm")


def llama4(b: BlockBuilder, x: Value, e: Ends) -> Value:
    """The tower's own adapter over shuffled pixels, and one product."""
    share = e.tower.number("pixel_shuffle_ratio", 0.5)
    inner, out = (e.tower.size(f"projector_{end}_dim", default=4096) for end in ("input", "output"))
    if not 0 < share <= 1 or inner != out:
        raise e.model.error("vision_config: pixel_shuffle_ratio must be above 0, projector dims equal")
    x = b.unary(WithoutLast(), x)
    x = b.unary(JoinSquares(tokens=int(1 / share) ** 2), x, width=e.tower.intermediate_size)
    module = "vision_model.vision_adapter.mlp"
    x = b.activation(b.linear(x, f"{module}.fc1", inner), "gelu")
    x = b.dropout(x, e.tower.number("projector_dropout"))
    x = b.activation(b.linear(x, f"{module}.fc2", out, shard="row"), "gelu")
    x = b.unary(AllRows(), x, width=e.tower.size("vision_output_dim", default=7680))
    return b.linear(x, "multi_modal_projector.linear_1", e.width)
