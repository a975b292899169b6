"""Segment Anything 1 and 2: an encoder of images, one of prompts, and a decoder of masks; all of part `vision`.

Version 1 has a ViT that attends in windows, version 2 a Hiera in stages. The parameters are those of `SamModel` and
`Sam2Model` in transformers 5.23; version 2's memory of videos is a type of its own. What training keeps of prompts and
masks is not described.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.config import Config
from vramwise.models.families.deepseek_vl import high_config
from vramwise.models.families.nested import renamed, under
from vramwise.models.towers import segment_anything
from vramwise.models.towers.hiera import hiera
from vramwise.models.towers.known_weights import known_weights, norms, product
from vramwise.models.towers.tower_design import Weight, with_bias
from vramwise.models.towers.vision_tower import tower_blocks

_PROMPTS: dict[str, object] = {"hidden_size": 256, "mask_input_channels": 16, "num_point_embeddings": 4}
"""Defaults of `SamPromptEncoderConfig` and `Sam2PromptEncoderConfig`."""
_MASKS: dict[str, object] = {
    "hidden_size": 256, "mlp_dim": 2048, "num_hidden_layers": 2, "num_attention_heads": 8,
    "attention_downsample_rate": 2, "num_multimask_outputs": 3, "iou_head_depth": 3, "iou_head_hidden_dim": 256,
}  # fmt: skip
"""Defaults of `SamMaskDecoderConfig` and `Sam2MaskDecoderConfig`."""
_NECK: dict[str, object] = {"backbone_channel_list": [768, 384, 192, 96], "fpn_hidden_size": 256, "fpn_kernel_size": 1}
"""Defaults of `Sam2VisionConfig`."""
MOST_TABLES = 4096
"""Tables of points, masks and layers of a head; the checkpoints have four."""
MOST_LAYERS_OF_MASKS = 64
"""Layers of a decoder of masks, each of which is as deep as there are layers in version 2; published ones have 2."""


def task(c: Config) -> str:
    """It predicts no tokens."""
    return "none"


def _count(c: Config, name: str, least: int = 1, most: int = MOST_TABLES) -> int:
    found = c.size(name, least=least)
    if found > most:
        raise c.error(f"{name}: at most {most:,}, got {found:,}")
    return found


def prompts(p: Config, *, second: bool) -> list[Weight]:
    """Tables for points and what stands for none, convolutions over a mask that is given."""
    width, channels, points = p.hidden_size, p.size("mask_input_channels", least=4), _count(p, "num_point_embeddings")
    few = channels // 4
    tables: list[Weight] = [(f"point_embed.{i}.weight", (1, width)) for i in range(points)]
    return [
        *with_bias("mask_embed.conv1", few, 1, 2, 2), *with_bias("mask_embed.conv2", channels, few, 2, 2),
        *with_bias("mask_embed.conv3", width, channels, 1, 1), *norms(["mask_embed.layer_norm1"], few),
        *norms(["mask_embed.layer_norm2"], 4 * few), ("no_mask_embed.weight", (1, width)),
        ("not_a_point_embed.weight", (1, width)), *([("point_embed.weight", (points, width))] if second else tables),
    ]  # fmt: skip


def head(m: Config, name: str, inner: int, made: int, depth: int) -> list[Weight]:
    """As many products as `depth`, two at least."""
    width = m.hidden_size
    found = [*product(f"{name}.proj_in", inner, width), *product(f"{name}.proj_out", made, inner)]
    return [*found, *(w for i in range(depth - 2) for w in product(f"{name}.layers.{i}", inner, inner))]


def attention(m: Config, name: str, output: str, rate: int) -> list[Weight]:
    """Attention of points to the image or back, in fewer columns by `rate`."""
    width, inner = m.hidden_size, m.hidden_size // rate
    into = [weight for leaf in "qkv" for weight in product(f"{name}.{leaf}_proj", inner, width)]
    return [*into, *product(f"{name}.{output}", width, inner)]


def mask_layer(m: Config, index: int, *, second: bool) -> list[Weight]:
    """Points look at points, then at the image; the image looks back."""
    name, width, inner, rate = f"transformer.layers.{index}", m.hidden_size, m.size("mlp_dim"), _rate(m, second=second)
    output = "o_proj" if second else "out_proj"
    found = attention(m, f"{name}.self_attn", output, 1)
    for one, other in (("token", "image"), ("image", "token")):
        found += attention(m, f"{name}.cross_attn_{one}_to_{other}", output, rate)
    found += norms([f"{name}.layer_norm{i}" for i in range(1, 5)], width)
    first, last = ("proj_in", "proj_out") if second else ("lin1", "lin2")
    found += [*product(f"{name}.mlp.{first}", inner, width), *product(f"{name}.mlp.{last}", width, inner)]
    more = range(m.num_hidden_layers - 2) if second else ()  # the class makes its depth of the number of layers
    return [*found, *(w for i in more for w in product(f"{name}.mlp.layers.{i}", inner, inner))]


def _rate(m: Config, *, second: bool) -> int:
    """Version 1's layers are made with the rate 2, whatever the config says; only its last attention asks it."""
    return m.size("attention_downsample_rate") if second else 2


def masks(m: Config, *, second: bool) -> list[Weight]:
    """Tokens for masks and their quality, the layers, convolutions that make the image larger, heads."""
    width, tokens = m.hidden_size, _count(m, "num_multimask_outputs") + 1
    found: list[Weight] = [("iou_token.weight", (1, width)), ("mask_tokens.weight", (tokens, width))]
    for index in range(_count(m, "num_hidden_layers", most=MOST_LAYERS_OF_MASKS)):
        found += mask_layer(m, index, second=second)
    final = "transformer.final_attn_token_to_image"
    found += attention(m, final, "o_proj" if second else "out_proj", m.size("attention_downsample_rate"))
    found += norms(["transformer.layer_norm_final_attn"], width)
    found += [("upscale_conv1.weight", (width, width // 4, 2, 2)), ("upscale_conv1.bias", (width // 4,))]
    found += [("upscale_conv2.weight", (width // 4, width // 8, 2, 2)), ("upscale_conv2.bias", (width // 8,))]
    found += norms(["upscale_layer_norm"], width // 4)
    for i in range(tokens):
        found += head(m, f"output_hypernetworks_mlps.{i}", width, width // 8, 3)
    found += head(m, "iou_prediction_head", m.size("iou_head_hidden_dim"), tokens, _count(m, "iou_head_depth"))
    if second:
        found += [*with_bias("conv_s0", width // 8, width, 1, 1), *with_bias("conv_s1", width // 4, width, 1, 1)]
        found += [("obj_score_token.weight", (1, width)), *head(m, "pred_obj_score_head", width, 1, 3)]
    return found


def first_encoder(c: Config) -> tuple[Block, ...]:
    """Version 1's: a ViT, and the places of points that images and prompts share."""
    name, v = "positional_embedding", high_config(c, "vision_config")
    shape = (2, v.size("num_pos_feats", default=128))
    places = known_weights("shared_image_embedding", [(name, shape)], "places of points")
    return (places, *tower_blocks(v, segment_anything.got_ocr2(v), "vision_encoder"))


def second_encoder(c: Config) -> tuple[Block, ...]:
    """Version 2's: a Hiera, and a convolution for each of its stages."""
    v = c.part("vision_config", _NECK)
    width, kernel, channels = v.size("fpn_hidden_size"), v.size("fpn_kernel_size"), v.sizes("backbone_channel_list")
    neck = [w for i, n in enumerate(channels) for w in with_bias(f"convs.{i}", width, n, kernel, kernel)]
    stages = [renamed(block, under("vision_encoder")) for block in hiera(v)]
    return (*stages, known_weights("vision_encoder.neck", neck, "convolutions over stages"))


def blocks(c: Config) -> tuple[Block, ...]:
    """The encoder of images, that of prompts, the decoder of masks."""
    second = c.model_type == "sam2"
    p, m = c.part("prompt_encoder_config", _PROMPTS), c.part("mask_decoder_config", _MASKS)
    images, places = second_encoder(c) if second else first_encoder(c), "positional_embedding"
    shared = f"shared_image_embedding.{places}"
    tied = {} if second else {f"shared_embedding.{places}": shared}
    given = prompts(p, second=second)
    if tied:
        given.append((f"shared_embedding.{places}", images[0].parameters[0].shape))
    nothing = [("no_memory_embedding", (1, 1, c.part("vision_config", _NECK).size("fpn_hidden_size")))]
    return (
        *images, *([known_weights("", nothing, "a memory of nothing")] if second else ()),
        known_weights("prompt_encoder", given, "an encoder of prompts", tied=tied),
        known_weights("mask_decoder", masks(m, second=second), "a decoder of masks"),
    )  # fmt: skip
