"""MiniCPM-V 2.6: SigLIP, a resampler that reads an image into a few queries, and Qwen 2.

Parameter names are those of `modeling_minicpmv.py`, `modeling_navit_siglip.py` and `resampler.py` in
openbmb/MiniCPM-V-2_6. Other versions have other language models under the same `model_type` and are refused.
"""

from __future__ import annotations

from vramwise.models.blocks import Block
from vramwise.models.builder import BlockBuilder
from vramwise.models.config import Config
from vramwise.models.families.nested import language_model, under
from vramwise.models.operations.image_tokens import Project
from vramwise.models.operations.undescribed import Undescribed
from vramwise.models.towers.siglip_vision import siglip_blocks

_VISION_DEFAULTS = {
    "hidden_size": 1152, "image_size": 980, "intermediate_size": 4304, "num_attention_heads": 16,
    "num_hidden_layers": 27, "patch_size": 14,
}  # fmt: skip


def resampler(c: Config, vision_width: int, width: int) -> Block:
    """Learned queries attend to the image's patches; their result is normed and multiplied by one matrix."""
    b = BlockBuilder("resampler", part="projector", modality="image")
    x = b.input("image", vision_width)
    if vision_width != width:
        x = b.linear(x, "kv_proj", width)
    x = b.layer_norm(x, "ln_kv", part="projector")
    weights = [
        b.parameter("", "query", (c.size("query_num", default=64), width)),
        *(b.parameter("ln_q", leaf, (width,)) for leaf in ("weight", "bias")),
        b.parameter("attn", "in_proj_weight", (3 * width, width), shard="column"),
        b.parameter("attn", "in_proj_bias", (3 * width,), shard="column"),
        b.parameter("attn.out_proj", "weight", (width, width), shard="row", is_linear=True),
        b.parameter("attn.out_proj", "bias", (width,)),
    ]
    x = b.layer_norm(b.unary(Undescribed(name="a resampler"), x, "attn", weights), "ln_post", part="projector")
    return b.build(image=b.unary(Project(), x, "", [b.parameter("", "proj", (width, width))]))


def blocks(c: Config) -> tuple[Block, ...]:
    """Vision tower, resampler, language model."""
    version = c.get("version")
    if str(version or "2.6") != "2.6" or (version is None and not c.has("max_window_layers")):
        raise c.error("only version 2.6 of MiniCPM-V, whose language model is Qwen 2, is described")
    v = (c.table("vision_config") or Config({}, c.model_id)).filled(_VISION_DEFAULTS)
    layers = v.num_hidden_layers - int(c.flag("drop_vision_last_layer"))
    v = Config({**v.values, "num_hidden_layers": layers, "vision_use_head": False}, c.model_id)
    language = language_model(Config({**c.values, "model_type": "qwen2"}, c.model_id), under("llm"))
    return (*siglip_blocks(v, "vpm"), resampler(c, v.hidden_size, language[-1].inputs["hidden"].width), *language)
